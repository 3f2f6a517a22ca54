"""The table of holds, holds.toml: what each kind of hold means, and which kind a hold is."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from headway.events import inert
from headway.holds.reason import LONGEST, Reason, parse

TRANSIENT, PERMANENT, DEPENDS, NEVER = "transient", "permanent", "depends", "never"
INPUT, OUTPUT = "input", "output"
#: A job is past these steps once its command has started, and past the others once it has ended.
BEFORE_START = frozenset({"input", "start"})

#: HTCondor's names for the codes (the labels of NumHoldsByReason).
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
    49: "CannotSwitchPrimaryGroup",
}  # fmt: skip
#: Codes from here on, and subcodes as far below zero, evict a job and do not hold it.
VACATE = 1000

_FIELD = re.compile(r"\{(\w+)(?:\|([^{}]*(?:\{[^{}]*\}[^{}]*)?))?\}")


@dataclass(frozen=True)
class Change:
    """One thing to change before the job is released.

    `new` is a ClassAd expression for the job's `attribute`, as for `Pool.edit`; both are empty if
    only a person can make the change. `line` is what to write into job.toml or the submit file for
    later jobs.
    """

    words: str
    attribute: str = ""
    old: str = ""
    new: str = ""
    line: str = ""


@dataclass(frozen=True)
class HoldMeaning:
    """What a kind of hold means: one entry of holds.toml, which says what each field is for."""

    id: str
    kind: str
    headline: str
    why: str
    do: str
    codes: frozenset[int] | None = None
    from_code: int | None = None
    rule: str = ""
    general: bool = False
    subcodes: frozenset[int] | None = None
    least: int | None = None
    way: str = ""
    status: frozenset[int] | None = None
    reason: re.Pattern[str] | None = None
    either: bool = False
    either_subcode: bool = False
    prior: float = 0.0
    worth: float = 0.0
    step: str = "run"
    elsewhere: bool = False
    wait: str = ""
    checks: tuple[str, ...] = ()
    raises: str = ""
    changes: tuple[Change, ...] = ()
    act: str = ""
    cost: float = 0.5
    versions: str = ""

    def fits(self, case: Symptom, *, by_words: bool) -> bool:
        """Whether the entry is about this case; `by_words`: a subcode alone does not count."""
        if by_words and self.general:
            return False
        code = case.code
        if self.from_code is not None:
            return code >= self.from_code or case.subcode <= -self.from_code
        # If the reason says which way files went, the code has nothing to add.
        coded = self.codes is None or code in self.codes or bool(self.way and case.way_said)
        if self.either:
            return (self.codes is not None and coded) or self._said(case)
        if not coded or (self.way and self.way != case.way):
            return False
        if self.status is not None and case.status not in self.status:
            return False
        listed = self._listed(case.subcode)
        if self.either_subcode:
            return self._said(case) or (listed and not by_words)
        return listed and ((self.reason is None and not self.rule) or self._said(case))

    def _listed(self, subcode: int) -> bool:
        if self.least is not None and subcode < self.least:
            return False
        return self.subcodes is None or subcode in self.subcodes

    def _said(self, case: Symptom) -> bool:
        if self.rule and self.rule == case.rule:
            return True
        return self.reason is not None and self.reason.search(case.text[:LONGEST]) is not None


class Symptom(NamedTuple):
    """What an event says about why a job stopped."""

    code: int
    subcode: int
    text: str  # the reason's template, and the text that it quotes
    status: int | None  # of HTTP
    way: str  # which way files moved
    way_said: bool  # whether the reason says so
    rule: str  # what a policy expression is about


_OUTPUT_SAID = re.compile(
    r"transfer output files failure|(?:starter|execution point)\b[^;]{0,200}?\bfailed to send file"
    r"|shadow\b[^;]{0,200}?\bfailed to (?:receive|write|create)"
    r"|failed to (?:upload|transfer output)|attempts to transfer output|stage-out failed",
    re.IGNORECASE,
)
_INPUT_SAID = re.compile(
    r"transfer input files failure|shadow\b[^;]{0,200}?\bfailed to send file"
    r"|starter\b[^;]{0,200}?\bfailed to (?:receive|write)|failed to (?:download|transfer input)"
    r"|\binput file transfer\b|stage-in failed",
    re.IGNORECASE,
)
#: A plugin's message alone comes from a download: for an upload, the starter's comes first.
_FETCHED = re.compile(r"FILETRANSFER:|failed to transfer files", re.IGNORECASE)
_TRANSFERS = {OUTPUT: 12, INPUT: 13}


def way_of(code: int, text: str) -> tuple[str, bool]:
    """Which way files moved, by the reason or else by the code; and whether the reason says so."""
    found = [
        (match.start(), way)
        for way, pattern in ((OUTPUT, _OUTPUT_SAID), (INPUT, _INPUT_SAID))
        if (match := pattern.search(text[:LONGEST]))
    ]
    if found:
        return min(found)[1], True
    if _FETCHED.search(text[:LONGEST]):
        return INPUT, True
    return next((way for way, number in _TRANSFERS.items() if number == code), ""), False


#: The code that HTCondor gives to a hold with this text: a 007 has the text and no code.
_CODE_SAID = re.compile(
    r"(?P<c6>\bfailed to execute\b|executable does not exist)"
    r"|(?P<c7>as standard (?:output|error)\b|standard (?:output|error) file\b)"
    r"|(?P<c8>as standard input\b|standard input file\b)"
    r"|(?P<c9>standard (?:output|error) stream)|(?P<c10>standard input stream)"
    r"|(?P<c14>initial working directory)"
    r"|(?P<c22>initialize user log)"
    r"|(?P<c34>memory limit|out-of-memory event|\b(?:memory|disk|cpus?) usage exceeded"
    r"|exceeded allocated disk|job killed: v?mem)|(?P<c26>job killed: (?:wall|cput))"
    r"|(?P<c35>cannot pull image|unable to launch container)"
    r"|(?P<c36>failed to upload checkpoint)"
    r"|(?P<c4>job credentials are not available|proxy about to expire)"
    r"|(?P<c47>exceeded allowed \w{3,7} duration)"
    r"|(?P<c19>hook_prepare_job|prepare-hook)",
    re.IGNORECASE,
)
_GLOBUS = 2  # its subcodes are Globus's own numbers
_PLUGIN = 256  # from here on, a subcode is a plugin's exit code times 256
#: Codes whose subcode is an errno, which the reason has as text, too.
_ERRNO_CODES = frozenset({6, 7, 8, 9, 10, 12, 13, 14})
_ERRNO_SAID = {
    "No such file or directory": 2, "Permission denied": 13, "Exec format error": 8,
    "Input/output error": 5, "Cannot allocate memory": 12, "No space left on device": 28,
    "Stale file handle": 116, "Disk quota exceeded": 122, "Is a directory": 21,
    "Not a directory": 20, "Text file busy": 26,
}  # fmt: skip
_ERRNO = re.compile("|".join(map(re.escape, _ERRNO_SAID)))


def _codes(code: int, subcode: int, text: str, errno: str, way: str) -> tuple[int, int]:
    """Code and subcode, by the text if HTCondor gave none; `way`: by the text."""
    if (not 0 < code < VACATE and subcode > -VACATE) or code == _GLOBUS:
        said = _CODE_SAID.search(text[:LONGEST])
        if way:
            code, subcode = _TRANSFERS[way], 0
        elif said:
            code, subcode = int((said.lastgroup or "c0")[1:]), 0
    if code in _ERRNO_CODES and subcode < _PLUGIN:
        words = _ERRNO.search(text[:LONGEST])
        if errno:
            return code, int(errno)
        return code, subcode or (_ERRNO_SAID[words[0]] if words else 0)
    return code, subcode


@cache
def table() -> tuple[HoldMeaning, ...]:
    """All entries, in their order."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    path = Path(__file__).with_name("holds.toml")
    return tuple(_meaning(row) for row in tomllib.loads(path.read_text("utf-8"))["hold"])


def classify(code: int | None, subcode: int | None, reason: str) -> HoldMeaning:
    """What the table knows of a hold, an exception (007) or an eviction (004).

    Args:
        code: HTCondor's code; None where the event gives none.
        subcode: The subcode; None where the event gives none.
        reason: The reason as the log has it.

    Returns:
        The entry that fits best; the last one of the table fits everything.
    """
    return find(code or 0, subcode or 0, parse(reason))


def find(code: int, subcode: int, reason: Reason) -> HoldMeaning:
    """Like `classify`, for a reason that is parsed already."""
    values = reason.values
    return _find(
        code,
        subcode,
        reason.template,
        "" if "rule" in values else values.get("text", ""),
        values.get("status", ""),
        values.get("errno", ""),
        values.get("rule", ""),
    )


@lru_cache(maxsize=32768)
def _find(
    code: int, subcode: int, template: str, quoted: str, status: str, errno: str, rule: str
) -> HoldMeaning:
    text = f"{template} {quoted}" if quoted else template
    way, said = way_of(code, text)
    code, subcode = _codes(code, subcode, text, errno, way if said else "")
    number = int(status) if status.isdecimal() else None
    case = Symptom(code, subcode, text, number, way, said, rule)
    # The text first: the subcode of a rule is whatever somebody chose.
    for by_words in (True, False):
        for entry in table():
            if entry.fits(case, by_words=by_words):
                return entry
    raise AssertionError("the last entry of holds.toml fits everything")


def code_name(code: int, subcode: int) -> str:
    """The code with HTCondor's name for it: "code 21/9 (StartdHeldJob)"."""
    name = CODE_NAMES.get(code)
    return f"code {code}/{subcode}" + (f" ({name})" if name else "")


def filled(words: str, values: Mapping[str, str]) -> str:
    """A text of the table with a reason's values: {path|what to say if it has none}."""
    if "{" not in words:
        return words

    def put(match: re.Match[str]) -> str:
        value = values.get(match[1])
        return value if value else filled(match[2] or match[1], values)

    return _FIELD.sub(put, words)


#: Fields whose names in holds.toml are words of Python.
_RENAMED = {"class": "kind", "from": "least", "raise": "raises", "change": "changes"}
_CONVERTED: dict[str, Callable[[Any], Any]] = {
    "codes": frozenset,
    "subcodes": frozenset,
    "status": frozenset,
    "reason": lambda texts: re.compile("|".join(f"(?:{text})" for text in texts), re.IGNORECASE),
    "checks": tuple,
    "changes": lambda changes: tuple(Change(**change) for change in changes),
}


def _meaning(row: dict[str, Any]) -> HoldMeaning:
    """An entry of holds.toml; TypeError if it has a field that is not known."""
    fields = {_RENAMED.get(key, key): value for key, value in row.items()}
    for name in fields.keys() & _CONVERTED.keys():
        fields[name] = _CONVERTED[name](fields[name])
    return HoldMeaning(**fields)


_LONGEST_WORD = 300
_MOST_SAID = 160
#: The name that HTCondor gives a job's executable on the node.
_COPY = "condor_exec.exe"


def words_of(
    code: int, subcode: int, text: str, reason: Reason, facts: Mapping[str, object] | None = None
) -> dict[str, str]:
    """The values for `filled`, without control characters.

    Args:
        code: HTCondor's code.
        subcode: The subcode.
        text: The reason as the log has it.
        reason: The same, parsed.
        facts: What the job's ad says; `Cmd` is the user's own name for the executable.

    Returns:
        The reason's values, with `code`, `said` (the reason itself, in quotes), `name` (of the
        file, without its folder) and `program` (the executable as the user knows it, if known).
    """
    made = {name: inert(value, _LONGEST_WORD) for name, value in reason.values.items()}
    made["code"] = code_name(code, subcode)
    said = inert(text, _MOST_SAID).strip(" |.")
    if said:
        made["said"] = f"“{said}”"
    if "path" in made:
        made["name"] = made["path"].rpartition("/")[2] or made["path"]
    if made.get("name", _COPY) == _COPY:
        made.pop("path", None)  # the user does not know the node's copy
        own = (facts or {}).get("Cmd")
        made["program"] = inert(own, _LONGEST_WORD) if isinstance(own, str) else ""
    else:
        made["program"] = made["path"]
    return made


def wilson(hits: float, of: float, z: float = 1.96) -> tuple[float, float]:
    """Wilson's interval of a rate, which is right for few cases, too, and for rates near 0 and 1.

    Args:
        hits: In how many cases it happened.
        of: How many cases there are; a case may weigh more or less than one.
        z: How many standard errors wide: 1.96 gives a 95 % interval, 1.645 one of 90 %.

    Returns:
        Its two bounds, between 0 and 1; without a case nothing is known.
    """
    if of <= 0:
        return 0.0, 1.0
    share = hits / of
    scale, middle = 1 + z * z / of, share + z * z / (2 * of)
    half = z * math.sqrt(max(0.0, share * (1 - share)) / of + z * z / (4 * of * of))
    low, high = (middle - half) / scale, (middle + half) / scale
    return max(0.0, min(share, low)), min(1.0, max(share, high))
