"""The reasons that logs give: what they mean, by the table of holds, and what they name.

`headway advise` and the report read one table, `headway.holds`, so that they cannot disagree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import polars as pl

from headway.holds import HoldMeaning, Reason, filled, parse, table
from headway.holds.reason import NOTHING
from headway.holds.table import NEVER, words_of
from headway.report.accounting import LONGEST, with_cause
from headway.report.accounts import Accounts, once
from headway.report.findings.finding import shown

#: How many different reasons of one kind are looked at for what they have in common.
_COMPARED = 100


@once
def caused_holds(accounts: Accounts) -> pl.DataFrame:
    """The holds with `template` and `cause`; one without a reason has that of its attempt."""
    reason = pl.col("reason").cast(pl.String)
    holds = accounts.holds.with_columns(reason=reason)
    silent = holds.get_column("reason").fill_null("").str.contains(NOTHING)
    if silent.any():
        ended = accounts.attempts.select("attempt", ended=reason)
        holds = holds.join(ended, on="attempt", how="left", maintain_order="left")
        said = pl.when(silent).then(pl.coalesce("ended", "reason")).otherwise("reason")
        holds = holds.with_columns(reason=said).drop("ended")
    holds = holds.with_row_index("place")
    ended = holds.filter(pl.col("attempt").is_not_null() & ~silent)
    known = caused_ends(accounts).select("template", "cause")[ended.get_column("attempt")]
    ended = ended.hstack(known).drop_nulls("cause")
    others = with_cause(holds.join(ended, on="place", how="anti"))
    return pl.concat([ended, others]).sort("place").drop("place")


@once
def caused_ends(accounts: Accounts) -> pl.DataFrame:
    """All attempts, with `template` and `cause` of the reason why they ended."""
    if accounts.ends is None:
        return with_cause(accounts.attempts.drop("cause"))
    ends = accounts.ends.rename({"entry": "cause"})
    return accounts.attempts.drop("cause").hstack(ends)


def on_purpose() -> list[str]:
    """The causes of holds that somebody wants."""
    return [entry.id for entry in table() if entry.kind == NEVER]


def entry_named(cause: str) -> HoldMeaning:
    """The entry of the table with this id."""
    return next(entry for entry in table() if entry.id == cause)


class HoldText:
    """A kind of hold in words, by some holds of it: what the table says, with what all name."""

    def __init__(self, holds: pl.DataFrame) -> None:
        """Of rows of `caused_holds` with one cause."""
        row = holds.row(0, named=True)
        self.entry = entry_named(row["cause"])
        self.reason = str(row["reason"] or "")
        codes = holds.select("code", "subcode").unique().sort("code", "subcode", nulls_last=True)
        self.codes = [_number(code, sub) for code, sub in codes.head(3).iter_rows()]
        reasons = holds.get_column("reason").unique(maintain_order=True).head(_COMPARED).to_list()
        common = Reason("", _common(parse(str(reason or "")) for reason in reasons))
        self._words = words_of(row["code"] or 0, row["subcode"] or 0, self.reason, common)
        if len(reasons) > 1:
            self._words["said"] = f"“{what(self.reason)}”"

    @property
    def headline(self) -> str:
        """What happened, as the end of a sentence."""
        if self.entry.id == "unknown":
            return what(self.reason)
        text = shown(filled(self.entry.headline, self._words), 400).removesuffix(".")
        return text[0].lower() + text[1:] if text[1:2].islower() else text

    @property
    def why(self) -> str:
        """Why that is."""
        return filled(self.entry.why, self._words)

    @property
    def do(self) -> str:
        """What to do about it."""
        return filled(self.entry.do, self._words)

    @property
    def number(self) -> str:
        """The codes: "code 12/2", "codes 12/256, 13/256"."""
        return f"code{'s' if len(self.codes) > 1 else ''} {', '.join(self.codes)}"


def _number(code: int | None, subcode: int | None) -> str:
    return "?" if code is None else f"{code}/{subcode or 0}"


def _common(reasons: Iterable[Reason]) -> dict[str, str]:
    """The values that all reasons share."""
    found: dict[str, str] | None = None
    for reason in reasons:
        values = dict(reason.values)
        found = values if found is None else dict(found.items() & values.items())
    return found or {}


_PREAMBLE = re.compile(
    r"\A(?:Error from [^:]{1,200}: )?(?:Transfer (?:in|out)put files failure at .{1,400}?"
    r"(?:Details:|using protocol \S{1,40})\s*(?:Details:)?\s*)?(?:Error from [^:]{1,200}: )?"
    r"(?:(?:STARTER|SHADOW) at \S{1,100} failed to send file\(s\) to <[^>]{1,300}>[:;] ?:? ?)?"
)
_TAIL = re.compile(r"; (?:STARTER|SHADOW) failed to (?:receive|send) file|\( URL file")
_LONGEST_HEART = 120


def what(reason: str) -> str:
    """The heart of a reason: what failed, without slot and URL; long words are cut in the middle.

    Args:
        reason: The reason in the words of the log.

    Returns:
        One line, made harmless, that ends where the cause stands.
    """
    text = _PREAMBLE.sub("", reason[:2000], count=1)
    text = _TAIL.split(text, maxsplit=1)[0].rpartition("|Error: ")[2]
    text = shown(text.strip(" |") or "no reason given", 2000)
    if len(text) <= _LONGEST_HEART:
        return text
    return f"{text[:50].rstrip()} … {text[-(_LONGEST_HEART - 53) :].lstrip()}"


#: "Input File transfer stalled for 3601 seconds": how old the transfer was when it was cut.
STALLED = r"(?i)transfer stalled for (\d{1,7}) s"

_ALLOWED = re.compile(r"(?i)exceeded allowed (job|execute) duration of (\S+)")
_CLOCK = re.compile(r"(?:(\d{1,4})\+)?(?:(\d{1,4}):)?(\d{1,4}):(\d{2})")

#: The causes of holds by rules of the job or of the pool that are about its time.
TOO_LONG = ("over-time-by-policy", "own-rule-time")


def allowed_duration(reason: str | None) -> tuple[str, float] | None:
    """What was limited ("job" or "execute") and to how many seconds: "20:00:00", "1+16:00:00"."""
    match = _ALLOWED.search((reason or "")[:LONGEST])
    if not match:
        return None
    clock = _CLOCK.match(match[2])
    if not clock:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
    return match[1].lower(), float(days * 86400 + hours * 3600 + minutes * 60 + seconds)


_HOST = r"([A-Za-z0-9][A-Za-z0-9_.-]*\.[A-Za-z0-9-]+)"

#: Where a transfer came from, as transfer plugins tell it: Pelican's "from HOST:8443:", an attempt
#: of several, the address that could not be reached, at last the URL itself where it names a host.
#: Of several attempts the first is taken: it is the source that was preferred.
_SOURCES = (
    r"(?i)\bfrom " + _HOST + r":\d{2,5}:",
    r"(?i)\b(?:Get|Head|Propfind) \\?\"https?://" + _HOST,
    r"(?i)could not resolve host:? '?" + _HOST,
    r"(?i)(?:failed to connect to|connection to) " + _HOST,
    r"(?i)URL file = https?://" + _HOST,
)


def source(reason: pl.Expr) -> pl.Expr:
    """The cache or origin that a failed transfer names, or null."""
    text = reason.str.slice(0, 4 * LONGEST)
    return pl.coalesce(text.str.extract(pattern, 1) for pattern in _SOURCES).str.to_lowercase()


#: Answers that are about the object, not about who gave the answer.
OBJECT_AT_FAULT = (
    r"(?i)(\b40[134]\b|not found|no such file|does ?n[o']t exist|no namespace|forbidden"
    r"|unauthori[sz]ed|permission denied|errno 2\b|errno 13\b)"
)
