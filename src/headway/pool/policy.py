"""What happens to a job automatically: retries, holds, releases, and the sites that it avoids.

Each rule is here twice, side by side: as the ClassAd expression that HTCondor evaluates, and as the
function that the local pool calls. A test evaluates both over their whole domain and compares.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from headway.node.errors import LONGEST_REASON, REASON, Exit
from headway.node.host import (
    COURIER,
    HANDED,
    PREFETCH,
    PREFETCH_AFTER,
    PREFETCH_FOR,
    PREFETCHED_AT,
    PREFETCHED_UNTIL,
    SANDBOX_AT,
    SINCE,
    STEPS,
    TRANSFER_SLOT,
    TRANSFER_SLOTS,
)
from headway.pool.match import SITE, site_names

if TYPE_CHECKING:
    from headway.spec import Retries

HISTORY = 5  # how many past sites a job remembers
JOB = "HeadwayJob"  # of a node of a DAG: the number of its job in the run
PAIRED = "HeadwayPaired"  # whether another job of a DAG is its courier
AVOID = "HeadwayAvoid"  # the places that a job avoids now: sites at first, later nodes
AVOIDED = "HeadwayAvoided"  # whether a slot is at such a place
AT_AVOIDED_PLACE = f"identicalMember({SITE}, {AVOID}) || identicalMember(TARGET.Name, {AVOID})"
# A requirement with one of these in it already keeps a job away from its past sites.
AVOIDANCE = (AVOIDED, "MachineAttrGLIDEIN_ResourceName")
AHEAD = "HeadwayMayPrefetch"
MOST_PREFETCHES = 6  # starts for that
SETTLED = 5  # seconds in the queue
NOT_AVOIDED = f"{AVOIDED} =!= true"  # the requirement; undefined means that the slot will do
LONGEST_BACKOFF = 3600
MORE = 1.5  # times what a job used when it was stopped, since it needs more than that
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
_NO_INPUT = (_ON_EXIT_HOLD, int(Exit.INPUT_RETRYABLE))  # the hold after `AfterExit.HOLD`
_PATIENT = 2  # failed inputs after which a job may still go back to the same site
_NODE_LONGER = 4  # a node is avoided this many times as long as its site
_SET_BACK = 60  # a hold this many seconds in the future means that the clock was set back
_ODD = re.compile("[^ -~]")
# Attempts that ended by themselves, without those that led to a hold for a missing input, and
# without those that left the outputs for a courier.
_ENDS = f"((NumJobCompletions ?: 0) - (NumHoldsByReason.JobPolicy ?: 0) - ({STEPS} ?: 0))"


class RetryLimits(Protocol):
    """`[retries]` of job.toml, as `spec.Retries` and the local pool's supervisor have it."""

    node: int
    input: int
    output: int
    command: int
    holds: int
    backoff: float
    avoid: float


class AfterExit(Enum):
    """What happens to a job whose attempt has ended by itself."""

    END = "leaves the queue"
    RETRY = "goes back into the queue"
    HOLD = "is held, and released after a pause"


def after_exit(
    status: int,
    *,
    ends: int,
    holds: int,
    retries: RetryLimits,
    handed: bool = False,
    courier: bool = False,
    starts: int = 0,
) -> AfterExit:
    """`status`: the exit code, or a negative signal; `holds`: the number of holds so far.

    `ends`: how many attempts have ended by themselves so far, without those that led to a hold.
    `handed`: this attempt left its outputs in a node's store, and a courier is to bring them.
    `courier`: the outputs are in a node's store; of a courier that was killed, this was not the
    last of `starts`.
    """
    if handed and status == Exit.OK:
        return AfterExit.RETRY
    if courier and status < 0 and starts <= MOST_STARTS:
        return AfterExit.RETRY
    if status == Exit.INPUT_RETRYABLE:
        return AfterExit.HOLD if holds < retries.input else AfterExit.END
    allowed = {
        Exit.OK: 0,
        Exit.BAD_NODE: retries.node,
        Exit.INPUT_FAILED: 0,
        Exit.OUTPUT_MISSING: retries.output,
        Exit.OUT_OF_TIME: 0,
        Exit.AGENT_ERROR: 0,
    }
    limit = {int(code): limit for code, limit in allowed.items()}.get(status, retries.command)
    return AfterExit.RETRY if ends < limit else AfterExit.END


def exit_lines(retries: Retries, *, later: bool = False, ahead: bool = False) -> dict[str, str]:
    """The submit lines that say the same as `after_exit`.

    `later`: attempts may leave their outputs for couriers. What such an attempt exits with is not
    the end of the job, unless the courier is a job of its own. Nor is a signal that ends a courier:
    the outputs are still there. `ahead`: it may have been started only to bring its inputs, and
    goes on waiting however that ended.
    """
    # HTCondor counts the completion before it evaluates; `after_exit` counts only those before.
    spent = f"{_ENDS} > {{}}".format
    never = (Exit.OK, Exit.INPUT_RETRYABLE, Exit.INPUT_FAILED, Exit.OUT_OF_TIME, Exit.AGENT_ERROR)
    done = " || ".join(f"ExitCode == {int(code)}" for code in never)
    handed = f"ExitCode =?= 0 && {HANDED} =?= NumShadowStarts && {PAIRED} =!= true"
    killed = f"ExitBySignal && {COURIER} =?= true && NumShadowStarts <= {MOST_STARTS}"
    return {
        "on_exit_remove": (f"{PREFETCH} =!= NumShadowStarts && " if ahead else "")
        + (f"!({handed}) && !({killed}) && " if later else "")
        + (
            f"ifThenElse(ExitBySignal, {spent(retries.command)}, "
            f"ifThenElse(ExitCode == {int(Exit.BAD_NODE)}, {spent(retries.node)}, "
            f"ifThenElse(ExitCode == {int(Exit.OUTPUT_MISSING)}, {spent(retries.output)}, "
            f"{done} || {spent(retries.command)})))"
        ),
        "on_exit_hold": (
            f"ExitBySignal == false && ExitCode == {int(Exit.INPUT_RETRYABLE)}"
            f" && (NumHolds ?: 0) < {retries.input}"
        ),
        "on_exit_hold_reason": hold_reason_expression(retries),
        "on_exit_hold_subcode": str(int(Exit.INPUT_RETRYABLE)),
    }


def hold_reason(said: str, *, holds: int, retries: RetryLimits) -> str:
    """The reason of a hold after `AfterExit.HOLD`; `said` by the agent, after so many `holds`."""
    plain = _ODD.sub("?", said)[:LONGEST_REASON] or "an input did not arrive"
    return f"Headway: {plain}; released by itself after {int(backoff(holds + 1, retries))} s"


def hold_reason_expression(retries: Retries) -> str:
    """The same as an expression of the attribute that the agent has set by chirp.

    Others could set it too, but cannot forge an event: only printable ASCII is used, cut short.
    """
    said = f"{REASON}[1]"
    pause = f"{retries.backoff:g} * pow(2, NumHolds ?: 0)"
    return (
        f'strcat("Headway: ", ifThenElse({REASON}[0] =?= NumShadowStarts && isString({said})'
        f' && size({said}) > 0, substr(replaceAll("{_ODD.pattern}", {said}, "?"),'
        f' 0, {LONGEST_REASON}), "an input did not arrive"), "; released by itself after ",'
        f' int(ifThenElse({pause} < {LONGEST_BACKOFF}, {pause}, {LONGEST_BACKOFF})), " s")'
    )


def backoff(holds: int, retries: RetryLimits) -> float:
    """The seconds that a job stays held after its `holds`-th hold; they double each time."""
    return min(float(LONGEST_BACKOFF), retries.backoff * 2.0 ** (holds - 1))


def releases(code: int, subcode: int, *, holds: int, starts: int, retries: RetryLimits) -> bool:
    """Whether a hold is transient and the job has releases left; `holds` counts this one."""
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

    It counts NumShadowStarts, since NumJobStarts stays 0 when input transfers fail. After the clock
    was set back, a hold may lie in the future: then it does not wait.
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
        f" && ((time() - EnteredCurrentStatus) > ifThenElse({pause} < {LONGEST_BACKOFF},"
        f" {pause}, {LONGEST_BACKOFF}) || EnteredCurrentStatus > time() + {_SET_BACK})"
        f" && (({code} == {_ON_EXIT_HOLD} && {subcode} == {int(Exit.INPUT_RETRYABLE)}"
        f" && NumHolds <= {retries.input})"
        f" || (NumHolds <= {retries.holds} && ({transient})))"
    )


def remove_lines() -> dict[str, str]:
    """Remove a job that is held for two weeks, unless a person holds it (code 1)."""
    return {
        "periodic_remove": (
            f"JobStatus == 5 && HoldReasonCode =!= 1"
            f" && (time() - EnteredCurrentStatus) > {HELD_LIMIT}"
        ),
        "+PeriodicRemoveReason": '"Headway: held for 14 days and not released"',
    }


def courier_lines(within: float) -> dict[str, str]:
    """What makes a job a courier while its outputs wait in a node's store.

    Args:
        within: Seconds after which it is no courier any more, and computes them again.
    """
    return {
        f"+{COURIER}": _delivers(within),
        "keep_claim_idle": for_couriers("300", "0"),  # so that the next courier starts at once
    }


def for_couriers(courier: str, otherwise: str) -> str:
    """An expression with one value while a job is a courier, and another one while it is not."""
    return f"ifThenElse({COURIER} =?= true, {courier}, {otherwise})"


#: The slots that take a courier: its sandbox is on their node.
AT_SANDBOX = f"TARGET.{TRANSFER_SLOT} =?= true && splitSlotName(TARGET.Name)[1] =?= {SANDBOX_AT}"


#: Whether a waiting job may bring its inputs to the node of a transfer slot: as long as it has done
#: nothing but that, and not right after it came into the queue, when an ordinary slot may be free.
#: Each transfer slot is for one of the runs that the node asks for. While it runs, its status and
#: counts are others than when it was matched; the slot looks at it again then.
MAY_PREFETCH = (
    f'split(TARGET.{PREFETCH_FOR} ?: "", ",")[TARGET.SlotID % TARGET.{TRANSFER_SLOTS}]'
    " =?= substr(HeadwayRun, 0, 8)"
    f" && (JobStatus =!= 1 || (NumShadowStarts ?: 0) == ({PREFETCH} ?: 0)"
    f" && (NumShadowStarts ?: 0) < {MOST_PREFETCHES} && {PREFETCHED_AT} =?= undefined"
    f" && time() > ({PREFETCH_AFTER} ?: 0) && time() - EnteredCurrentStatus > {SETTLED})"
)
#: Whether its inputs are at no other node, or have waited there for long enough.
NOT_PREFETCHED_ELSEWHERE = (
    f"{PREFETCHED_AT} =?= undefined || splitSlotName(TARGET.Name)[1] =?= {PREFETCHED_AT}"
    f" || time() > ({PREFETCHED_UNTIL} ?: 0)"
)


def prefetch_lines(within: float | None) -> dict[str, str]:
    """What makes a job a courier, too, that may bring its own inputs to a node.

    Args:
        within: As of `courier_lines`, if it also leaves its outputs to couriers; else None.
    """
    delivers = f"{_delivers(within)} || " if within is not None else ""
    return {f"+{COURIER}": f"{delivers}TARGET.{TRANSFER_SLOT} =?= true", f"+{AHEAD}": MAY_PREFETCH}


def courier_needs(*, later: float | None, ahead: bool) -> dict[str, str]:
    """What a courier asks for in place of what its job does: in MB and KB.

    Args:
        later: The seconds of `courier_lines` if the job leaves its outputs to couriers.
        ahead: Whether it may bring its inputs to a node.
    """
    place = f"{AHEAD} =?= true" if later is None else AT_SANDBOX
    if ahead and later is not None:
        at_sandbox = f"{_delivers(later)} && {AT_SANDBOX}"
        place = f"ifThenElse({SINCE} =!= undefined, {at_sandbox}, {AHEAD} =?= true)"
    return {
        "request_cpus": "0",
        "request_memory": "100",
        "request_disk": "1024",
        "request_gpus": "0",
        "requirements": place,
    }


def _delivers(within: float) -> str:
    return f"{SINCE} =!= undefined && time() - {SINCE} < {within:.0f}"


def on_transfer_slot(there: str, otherwise: str) -> str:
    """An expression with one value for a start on a transfer slot, which it is known to be then."""
    last = f"MachineAttr{TRANSFER_SLOT}0"
    return f"ifThenElse({COURIER} =?= true || {last} =?= true, {there}, {otherwise})"


def blames_place(*, ends: int, holds: int, hold: tuple[int, int]) -> bool:
    """Whether a job that failed avoids the site; `holds`: without users' own, `hold`: the last.

    A missing input is not the site's fault at first: mostly it is missing everywhere.
    """
    inputs_only = ends == 0 and hold == _NO_INPUT
    return ends + holds > (_PATIENT if inputs_only else 0)


def node_avoidance(ends: int, retries: RetryLimits) -> float:
    """For how many seconds a job that `blames_place` avoids its past nodes.

    A bad node is mostly idle, and so takes every job that comes back to its site.
    """
    return (_NODE_LONGER if ends else 1) * retries.avoid


def avoid_lines(retries: Retries) -> dict[str, str]:
    """`blames_place` and `node_avoidance` as attributes, for the requirement NOT_AVOIDED.

    A site is avoided for `retries.avoid`, its nodes possibly for longer. A schedd that does not
    count holds by reason also counts the user's own, and missing inputs.
    """
    holds = "((NumHolds ?: 0) - (NumHoldsByReason.UserRequest ?: 0))"
    code, subcode = _NO_INPUT
    inputs_only = (
        f"{_ENDS} == 0 && LastHoldReasonCode =?= {code} && LastHoldReasonSubCode =?= {subcode}"
    )
    past = range(1, HISTORY)  # 0 is the present site while a job runs
    sites = ", ".join(f"MachineAttrGLIDEIN_ResourceName{n} ?: MachineAttrMachine{n}" for n in past)
    # slot1_2@node is a part of slot1@node, which the next job is matched with
    nodes = ", ".join(f'replace("_[0-9]+@", MachineAttrName{n}, "@")' for n in past)
    later = _for_a_while(node_avoidance(1, retries), f"{_ENDS} > 0", nodes, "{}")
    blamed = f"{_ENDS} + {holds} > ifThenElse({inputs_only}, {_PATIENT}, 0)"
    return {
        f"+{AVOID}": _for_a_while(retries.avoid, blamed, sites, later),
        f"+{AVOIDED}": AT_AVOIDED_PLACE,
    }


def avoid_sites(sites: Iterable[str]) -> str:
    """The value of AVOID that keeps a job away from these sites for the default time."""
    from headway.spec import Retries

    return _for_a_while(Retries().avoid, "true", site_names(sites), "{}")


def _for_a_while(seconds: float, condition: str, places: str, later: str) -> str:
    waited = "(time() - EnteredCurrentStatus)"
    return f"ifThenElse({condition} && {waited} <= {seconds:g}, {{{places}}}, {later})"


def log_lines() -> Mapping[str, str]:
    """The lines that put sites into the event log, also for jobs that never started."""
    return {
        "ulog_execute_attrs": "GLIDEIN_ResourceName",
        "job_machine_attrs": "GLIDEIN_ResourceName, Machine, Name",
        "job_machine_attrs_history_length": str(HISTORY),
        "job_ad_information_attrs": (
            "MachineAttrGLIDEIN_ResourceName0, RemoteHost, NumShadowStarts, CommonFilesMappedTime"
        ),
    }


def _any_of(attribute: str, values: tuple[int, ...]) -> str:
    return " || ".join(f"{attribute} == {value}" for value in values)


def enough_for(known: float) -> int:
    """The request, in MB, for a job that was stopped.

    Args:
        known: What it used, or what it asked for, whichever is more, in MB.

    Returns:
        Half as much again, rounded up to what people would write.
    """
    megabytes = known * MORE
    step = 128 if megabytes <= 2048 else 1024
    return math.ceil(megabytes / step) * step
