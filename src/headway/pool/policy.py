"""What becomes of a job with nobody watching: retries, holds, releases, and the sites it avoids.

Each rule stands here twice, side by side: as the ClassAd expression that HTCondor evaluates, and as
the function that the local pool calls. A test evaluates both over their whole domain and compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from headway.node.exits import Exit
from headway.spec import Retries

HISTORY = 5  # how many past sites a job remembers
LONGEST_BACKOFF = 3600
HELD_LIMIT = 14 * 86400  # the OSPool may remove jobs that are held for longer
MOST_STARTS = 30  # the OSPool may hold jobs that were started more often

# Codes whose holds are plainly transient, whatever the subcode: transfer protocol errors (11, 18),
# a site's prepare hook, accounts and container test (19, 23, 45), a lost EC2 connection (40-42).
_TRANSIENT_CODES = (11, 18, 19, 23, 40, 41, 42, 45)
# Failure to start (6): I/O error, resource busy, no memory, text file busy.
_TRANSIENT_START_ERRNOS = (5, 11, 12, 26)
# Transfers (12, 13): a plugin's own exit code (status << 8), its time-out, and network errnos.
# Errno 2 and 13 (the user's own path) are permanent.
_TRANSIENT_TRANSFER_ERRNOS = (5, 62, 101, 104, 110, 111, 113)
_ON_EXIT_HOLD = 3
_NO_INPUT = (_ON_EXIT_HOLD, int(Exit.INPUT_RETRYABLE))  # the hold after `Verdict.HOLD`


class Verdict(Enum):
    """What happens to a job whose attempt has ended by itself."""

    END = "leaves the queue"
    RETRY = "goes back into the queue"
    HOLD = "is held, and released after a pause"


def verdict(status: int, *, completions: int, holds: int, retries: Retries) -> Verdict:
    """`status`: exit code, negative for a signal; `completions`, `holds`: how many came before."""
    if status == Exit.INPUT_RETRYABLE:
        return Verdict.HOLD if holds < retries.input else Verdict.END
    allowed = {
        Exit.OK: 0,
        Exit.BAD_NODE: retries.node,
        Exit.INPUT_FAILED: 0,
        Exit.OUTPUT_MISSING: retries.output,
        Exit.OUT_OF_TIME: 0,
        Exit.AGENT_ERROR: 0,
    }
    limit = {int(code): limit for code, limit in allowed.items()}.get(status, retries.command)
    return Verdict.RETRY if completions < limit else Verdict.END


def exit_lines(retries: Retries) -> dict[str, str]:
    """The submit lines that say the same as `verdict`."""
    # HTCondor counts the completion before it evaluates; `verdict` counts only those before.
    spent = "NumJobCompletions > {}".format
    never = (Exit.OK, Exit.INPUT_RETRYABLE, Exit.INPUT_FAILED, Exit.OUT_OF_TIME, Exit.AGENT_ERROR)
    done = " || ".join(f"ExitCode == {int(code)}" for code in never)
    return {
        "on_exit_remove": (
            f"ifThenElse(ExitBySignal, {spent(retries.command)}, "
            f"ifThenElse(ExitCode == {int(Exit.BAD_NODE)}, {spent(retries.node)}, "
            f"ifThenElse(ExitCode == {int(Exit.OUTPUT_MISSING)}, {spent(retries.output)}, "
            f"{done} || {spent(retries.command)})))"
        ),
        "on_exit_hold": (
            f"ExitBySignal == false && ExitCode == {int(Exit.INPUT_RETRYABLE)}"
            f" && (NumHolds ?: 0) < {retries.input}"
        ),
        "on_exit_hold_reason": (
            '"Headway: an input did not arrive; released by itself after a pause"'
        ),
        "on_exit_hold_subcode": str(int(Exit.INPUT_RETRYABLE)),
    }


def backoff(holds: int, retries: Retries) -> float:
    """Seconds that a job stays held after its `holds`-th hold; doubles each time."""
    return min(float(LONGEST_BACKOFF), retries.backoff * 2.0 ** (holds - 1))


def releases(code: int, subcode: int, *, holds: int, starts: int, retries: Retries) -> bool:
    """Whether a hold is plainly transient and within the job's budget; `holds` counts this one."""
    if starts > MOST_STARTS:
        return False
    if code == _ON_EXIT_HOLD:
        return (code, subcode) == _NO_INPUT and holds <= retries.input
    transient = (
        code in _TRANSIENT_CODES
        or (code == 6 and subcode in _TRANSIENT_START_ERRNOS)
        or (code in (12, 13) and (subcode >= 256 or subcode in _TRANSIENT_TRANSFER_ERRNOS))
    )
    return transient and holds <= retries.holds


def release_expression(retries: Retries) -> str:
    """`releases` and `backoff` as periodic_release.

    Bounded by NumHolds and NumShadowStarts: NumJobStarts stays 0 when input transfers fail.
    """
    code = "HoldReasonCode"
    subcode = "HoldReasonSubCode"
    transient = " || ".join(
        [
            *(f"{code} == {number}" for number in _TRANSIENT_CODES),
            f"({code} == 6 && ({_any_of(subcode, _TRANSIENT_START_ERRNOS)}))",
            f"(({code} == 12 || {code} == 13) && ({subcode} >= 256"
            f" || {_any_of(subcode, _TRANSIENT_TRANSFER_ERRNOS)}))",
        ]
    )
    pause = f"{retries.backoff:g} * pow(2, NumHolds - 1)"
    return (
        f"JobStatus == 5 && (NumShadowStarts ?: 0) <= {MOST_STARTS}"
        f" && (time() - EnteredCurrentStatus) > ifThenElse({pause} < {LONGEST_BACKOFF},"
        f" {pause}, {LONGEST_BACKOFF})"
        f" && (({code} == {_ON_EXIT_HOLD} && {subcode} == {int(Exit.INPUT_RETRYABLE)}"
        f" && NumHolds <= {retries.input})"
        f" || (NumHolds <= {retries.holds} && ({transient})))"
    )


def remove_lines() -> dict[str, str]:
    """A job that nobody released in two weeks ends; one that a person holds (1) does not."""
    return {
        "periodic_remove": (
            f"JobStatus == 5 && HoldReasonCode =!= 1"
            f" && (time() - EnteredCurrentStatus) > {HELD_LIMIT}"
        ),
        "+PeriodicRemoveReason": '"Headway: held for 14 days and not released"',
    }


def blames_site(*, completions: int, holds: int, hold: tuple[int, int]) -> bool:
    """Whether a job that failed goes elsewhere; `holds`: apart from users' own, `hold`: the last.

    An input that did not arrive once is no site's fault yet: what is away is mostly so for all.
    """
    first_input = hold == _NO_INPUT and completions == holds == 1
    return completions + holds > 0 and not first_input


def avoid_expression(retries: Retries) -> str:
    """A requirement: where `blames_site`, not again to a site of this job's past, for a while.

    A schedd that does not count holds by reason counts the user's own too.
    """
    completions = "(NumJobCompletions ?: 0)"
    holds = "((NumHolds ?: 0) - (NumHoldsByReason.UserRequest ?: 0))"
    code, subcode = _NO_INPUT
    here = "(TARGET.GLIDEIN_ResourceName ?: TARGET.Machine)"
    elsewhere = " && ".join(
        f"{here} =!= (MY.MachineAttrGLIDEIN_ResourceName{n} ?: MY.MachineAttrMachine{n})"
        # 0 is the present site while a job runs; when it waits, its past starts at 1.
        for n in range(1, HISTORY)
    )
    return (
        f"{completions} + {holds} == 0"
        f" || (LastHoldReasonCode =?= {code} && LastHoldReasonSubCode =?= {subcode}"
        f" && {completions} == 1 && {holds} == 1)"
        f" || (time() - EnteredCurrentStatus) > {retries.avoid:g} || ({elsewhere})"
    )


def log_lines() -> Mapping[str, str]:
    """What makes the event log know where things happened, also for jobs that never started."""
    return {
        "ulog_execute_attrs": "GLIDEIN_ResourceName",
        "job_machine_attrs": "GLIDEIN_ResourceName, Machine",
        "job_machine_attrs_history_length": str(HISTORY),
        "job_ad_information_attrs": (
            "MachineAttrGLIDEIN_ResourceName0, RemoteHost, NumShadowStarts"
        ),
    }


def _any_of(attribute: str, values: tuple[int, ...]) -> str:
    return " || ".join(f"{attribute} == {value}" for value in values)
