"""The table of holds: what is known of each kind, read from holds.toml."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from headway.holds.reason import LONGEST, Reason, parse

TRANSIENT, PERMANENT, DEPENDS, NEVER = "transient", "permanent", "depends", "never"
INPUT, OUTPUT = "input", "output"
#: Steps that are behind a job once its command has started; the others, once it has ended.
BEFORE_START = frozenset({"input", "start"})

#: HTCondor's names of the codes (the labels of NumHoldsByReason).
CODE_NAMES = {
    0: "Unspecified", 1: "UserRequest", 2: "GlobusGramError", 3: "JobPolicy",
    4: "CorruptedCredential", 5: "JobPolicyUndefined", 6: "FailedToCreateProcess",
    7: "UnableToOpenOutput", 8: "UnableToOpenInput", 9: "UnableToOpenOutputStream",
    10: "UnableToOpenInputStream", 11: "InvalidTransferAck", 12: "TransferOutputError",
    13: "TransferInputError", 14: "IwdError", 15: "SubmittedOnHold", 16: "SpoolingInput",
    17: "JobShadowMismatch", 18: "InvalidTransferGoAhead", 19: "HookPrepareJobFailure",
    20: "MissedDeferredExecutionTime", 21: "StartdHeldJob", 22: "UnableToInitUserLog",
    23: "FailedToAccessUserAccount", 24: "NoCompatibleShadow", 25: "InvalidCronSettings",
    26: "SystemPolicy", 27: "SystemPolicyUndefined", 32: "MaxTransferInputSizeExceeded",
    33: "MaxTransferOutputSizeExceeded", 34: "JobOutOfResources", 35: "InvalidDockerImage",
    36: "FailedToCheckpoint", 37: "EC2UserError", 38: "EC2InternalError", 39: "EC2AdminError",
    40: "EC2ConnectionProblem", 41: "EC2ServerError", 42: "EC2InstancePotentiallyLost",
    43: "PreScriptFailed", 44: "PostScriptFailed", 45: "SingularityTestFailed",
    46: "JobDurationExceeded", 47: "JobExecuteExceeded", 48: "HookShadowPrepareJobFailure",
}  # fmt: skip

_FIELD = re.compile(r"\{(\w+)(?:\|([^{}]*(?:\{[^{}]*\}[^{}]*)?))?\}")


class Advisable(NamedTuple):
    """A change that a person makes, or that an edit of the job does."""

    words: str
    attribute: str = ""
    new: str = ""
    line: str = ""


@dataclass(frozen=True)
class Entry:
    """One row of the table; holds.toml says what its columns mean."""

    id: str
    kind: str
    headline: str
    why: str
    do: str
    codes: frozenset[int] | None
    from_code: int | None
    subcodes: frozenset[int] | None
    least: int | None
    way: str
    status: frozenset[int] | None
    reason: re.Pattern[str] | None
    either: bool
    either_subcode: bool
    prior: float
    worth: float
    step: str
    elsewhere: bool
    wait: str
    checks: tuple[str, ...]
    raises: str
    changes: tuple[Advisable, ...]
    act: str
    cost: float
    versions: str

    def fits(self, code: int, subcode: int, text: str, status: int | None, way: str) -> bool:
        """Whether the entry is about holds of this kind; what costs least is looked at first."""
        if self.from_code is not None:
            return code >= self.from_code or subcode <= -self.from_code
        coded = self.codes is None or code in self.codes
        if self.either:
            return coded or self._said(text)
        if not coded or (self.way and self.way != way):
            return False
        if self.status is not None and status not in self.status:
            return False
        if self.least is not None and subcode < self.least:
            return False
        listed = self.subcodes is None or subcode in self.subcodes
        if self.either_subcode:
            return listed or self._said(text)
        return listed and (self.reason is None or self._said(text))

    def _said(self, text: str) -> bool:
        return self.reason is not None and self.reason.search(text[:LONGEST]) is not None


_OUTPUT_SAID = re.compile(
    r"transfer output files failure|(?:starter|execution point)\b[^;]{0,200}?\bfailed to send file"
    r"|shadow\b[^;]{0,200}?\bfailed to (?:receive|write)|failed to (?:upload|transfer output)",
    re.IGNORECASE,
)
_INPUT_SAID = re.compile(
    r"transfer input files failure|shadow\b[^;]{0,200}?\bfailed to send file"
    r"|starter\b[^;]{0,200}?\bfailed to (?:receive|write)|failed to (?:download|transfer input)",
    re.IGNORECASE,
)


def way_of(code: int, text: str) -> str:
    """Which way files moved: the reason's first word on it, else the code."""
    found = [
        (match.start(), way)
        for way, pattern in ((OUTPUT, _OUTPUT_SAID), (INPUT, _INPUT_SAID))
        if (match := pattern.search(text[:LONGEST]))
    ]
    return min(found)[1] if found else {12: OUTPUT, 13: INPUT}.get(code, "")


@cache
def table() -> tuple[Entry, ...]:
    """All entries, in their order."""
    path = Path(__file__).with_name("holds.toml")
    return tuple(_entry(row) for row in _toml(path.read_bytes())["hold"])


def classify(code: int | None, subcode: int | None, reason: str) -> Entry:
    """What the table knows of a hold, an exception (007) or an eviction (004).

    Args:
        code: HTCondor's code; None where the event gives none.
        subcode: The subcode; None where the event gives none.
        reason: The reason in the words of the log.

    Returns:
        The entry that fits best; the last one of the table fits everything.
    """
    return find(code or 0, subcode or 0, parse(reason))


def find(code: int, subcode: int, reason: Reason) -> Entry:
    """As `classify`, for a reason that is parsed already."""
    values = reason.values
    return _find(code, subcode, reason.template, values.get("text", ""), values.get("status", ""))


@lru_cache(maxsize=32768)
def _find(code: int, subcode: int, template: str, quoted: str, status: str) -> Entry:
    number = int(status) if status.isdecimal() else None
    text = f"{template} {quoted}" if quoted else template
    way = way_of(code, text)
    return next(entry for entry in table() if entry.fits(code, subcode, text, number, way))


def code_name(code: int, subcode: int) -> str:
    """The code in HTCondor's words: "21/9 (StartdHeldJob)"."""
    name = CODE_NAMES.get(code)
    return f"code {code}/{subcode}" + (f" ({name})" if name else "")


def filled(words: str, values: Mapping[str, str]) -> str:
    """The words of an entry with a reason's values: {path|what to say where it has none}."""

    if "{" not in words:
        return words

    def put(match: re.Match[str]) -> str:
        value = values.get(match[1])
        return value if value else filled(match[2] or match[1], values)

    return _FIELD.sub(put, words)


def _toml(data: bytes) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads(data.decode("utf-8"))


def _any_of(patterns: Sequence[str]) -> re.Pattern[str] | None:
    if not patterns:
        return None
    return re.compile("|".join(f"(?:{text})" for text in patterns), re.IGNORECASE)


def _entry(row: dict[str, Any]) -> Entry:
    known = {key: row.pop(key) for key in list(row)}

    def numbers(key: str) -> frozenset[int] | None:
        found = known.pop(key, None)
        return None if found is None else frozenset(found)

    made = Entry(
        id=known.pop("id"),
        kind=known.pop("class"),
        headline=known.pop("headline"),
        why=known.pop("why"),
        do=known.pop("do"),
        codes=numbers("codes"),
        from_code=known.pop("from_code", None),
        subcodes=numbers("subcodes"),
        least=known.pop("from", None),
        way=known.pop("way", ""),
        status=numbers("status"),
        reason=_any_of(known.pop("reason", ())),
        either=known.pop("either", False),
        either_subcode=known.pop("either_subcode", False),
        prior=known.pop("prior", 0.0),
        worth=known.pop("worth", 0.0),
        step=known.pop("step", "run"),
        elsewhere=known.pop("elsewhere", False),
        wait=known.pop("wait", ""),
        checks=tuple(known.pop("checks", ())),
        raises=known.pop("raise", ""),
        changes=tuple(Advisable(**change) for change in known.pop("change", ())),
        act=known.pop("act", ""),
        cost=known.pop("cost", 0.5),
        versions=known.pop("versions", ""),
    )
    if known:
        raise ValueError(f"holds.toml: {made.id}: unknown {', '.join(known)}")
    return made
