"""The reasons that logs give: what kind of reason it is, and the limit or the source in it."""

from __future__ import annotations

import re

import polars as pl

#: A reason's kind shows in its beginning; one line of a hostile log may be megabytes.
_LONGEST = 600

# In this order: what stays readable first, then what differs from job to job.
_MASKS = (
    # A 404 is another thing than a 503: the digits of an HTTP status stay.
    (r"(?i)\b(returned|status|http/\S+|code|error)([ :=]+)([45]\d\d)\b", "$1 HTTP_$3"),
    (
        r"(?i)\b([45]\d\d)\b(:? (?:page|not|no|forbidden|bad|internal|service|gateway|too)\b)",
        "HTTP_$1$2",
    ),
    (r"<[0-9a-fA-F.:\[\]]+(?::\d+)?[^>\s]*>", "HOST"),
    (r"\b[A-Za-z][A-Za-z0-9+.-]*://[^\s,;|)'\"]*", "URL"),
    (r"\b[\w.-]+@[\w.@-]+", "SLOT"),
    (r"(^|[\s'\"(=:])/[^\s,;|)'\"]+", "${1}PATH"),
    (r"\b(?:[A-Za-z0-9][\w-]*\.){2,}[A-Za-z]{2,}(?::\d+)?\b", "HOST"),
    (r"\b[0-9a-fA-F]{8,}\b", "N"),
    (r"\b\d[\w.:+-]*", "N"),
)


def masked(reason: pl.Expr) -> pl.Expr:
    """The reason without what differs from job to job: numbers, hosts, paths, ids."""
    text = reason.fill_null("").str.slice(0, _LONGEST)
    for pattern, put in _MASKS:
        text = text.str.replace_all(pattern, put)
    return text.str.replace_all(r"\s+", " ").str.strip_chars(" |.")


def with_template(frame: pl.DataFrame) -> pl.DataFrame:
    """Adds `template` to a frame with a `reason`; each different reason is looked at once."""
    frame = frame.with_columns(pl.col("reason").cast(pl.String).fill_null(""))
    kinds = frame.select("reason").unique().with_columns(template=masked(pl.col("reason")))
    return frame.join(kinds, on="reason", how="left", maintain_order="left")


#: "Input File transfer stalled for 3601 seconds": how old the transfer was when it was cut.
STALLED = r"(?i)transfer stalled for (\d{1,7}) s"

_ALLOWED = re.compile(r"(?i)exceeded allowed (job|execute) duration of (\S+)")
_CLOCK = re.compile(r"(?:(\d{1,4})\+)?(?:(\d{1,4}):)?(\d{1,4}):(\d{2})")

#: What policies that hold for the running time say, in the words of pools and users.
TOO_LONG = (
    r"(?i)(exceeded allowed \w+ duration|\b(ran|running|run|been running) (for )?(too long|longer)"
    r"|wall ?(clock )?time|time limit|run ?time (limit|exceed)|max\w* (run|wall)\s?time"
    r"|exceeded .{0,40}\b(hours|duration)\b)"
)


def allowed_duration(reason: str | None) -> tuple[str, float] | None:
    """What was limited ("job" or "execute") and to how many seconds: "20:00:00", "1+16:00:00"."""
    match = _ALLOWED.search((reason or "")[:_LONGEST])
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
    text = reason.str.slice(0, 4 * _LONGEST)
    return pl.coalesce(text.str.extract(pattern, 1) for pattern in _SOURCES).str.to_lowercase()


#: Answers that are about the object, not about who gave the answer.
OBJECT_AT_FAULT = (
    r"(?i)(\b40[134]\b|not found|no such file|does ?n[o']t exist|no namespace|forbidden"
    r"|unauthori[sz]ed|permission denied|errno 2\b|errno 13\b)"
)
