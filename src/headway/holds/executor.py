"""Carries out decisions exactly once, even if heal is killed in between.

The schedd itself guards each step by what was seen when the decision was made: the same hold, and
no claim of another heal. So each step can be repeated, a job that has changed is not touched, and
of two heals that want the same only one can claim the job.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from headway.errors import PoolError, PoolUnreachable
from headway.holds.advice import constraint
from headway.holds.audit import Intent
from headway.holds.hold import CLAIM, HEAL, HEALS, HELD_STATUS, Key, whole
from headway.node.classad import quoted
from headway.pool import Action, Pool, RunFolder
from headway.pool.htcondor.schedd import Schedd
from headway.pool.policy import AT_AVOIDED_PLACE, AVOID, AVOIDED, NOT_AVOIDED, avoid_sites

_REMOVED, _COMPLETED = 3, 4
Guard = Callable[[Intent], str]
#: Whether an intent was carried out (None: only the log can tell), and if not, why.
ActResult = tuple[bool | None, str]


class Executor:
    """Acts on the jobs of a schedd.

    Args:
        schedd: Where they are.
        scope: The constraint that they meet. Every query and action includes it, so no job outside
            of it is touched, whatever an intent says.
    """

    def __init__(self, schedd: Schedd, scope: str) -> None:
        self._schedd = schedd
        self._scope = f"({scope})"

    def carry_out(self, intents: Sequence[Intent]) -> dict[str, ActResult]:
        """Carry out the intents, and return what became of each by its id; safe to repeat."""
        for (act, claim), some in _by(intents, lambda i: (i.act, i.claim)).items():
            self._edit(some, _free, CLAIM, quoted(claim))
            if act == "release":
                self._prepare(some)
            self._schedd.act(act.capitalize(), self._any(some, _ready), f"via headway heal {claim}")
        ads = self.ads([intent.key for intent in intents])
        return {intent.id: _result(intent, ads.get(intent.key)) for intent in intents}

    def ads(self, keys: Sequence[Key]) -> dict[Key, dict[str, Any]]:
        """The ads of those jobs that are still in the queue."""
        if not keys:
            return {}
        wanted = ["ClusterId", "ProcId", "JobStatus", "NumHolds", "EnteredCurrentStatus", CLAIM]
        wanted += ["HoldReasonCode", "HoldReasonSubCode", "HoldReason"]
        ads = self._schedd.query(f"{self._scope} && ({constraint(keys)})", wanted)
        return {Key(int(ad["ClusterId"]), int(ad["ProcId"])): ad for ad in ads}

    def _prepare(self, intents: Sequence[Intent]) -> None:
        """Count the release in the jobs, and make the changes that must come before it."""
        for heals, some in _by(intents, lambda intent: intent.heals).items():
            self._edit(
                some, lambda i: f"{_ours(i)} && ({HEALS} ?: 0) == {i.heals}", HEALS, str(heals + 1)
            )
        for edit in dict.fromkeys(edit for intent in intents for edit in intent.edits):
            some = [intent for intent in intents if edit in intent.edits]
            same = f" && {edit.attribute} == {edit.old}" if edit.old else ""
            self._edit(some, lambda i, same=same: _ours(i) + same, edit.attribute, edit.new)  # type: ignore[misc]
        for sites, some in _by(intents, lambda intent: intent.avoid).items():
            if sites:
                self._avoid(some, sites)

    def _avoid(self, intents: Sequence[Intent], sites: Sequence[str]) -> None:
        """Keep jobs away from sites, by one requirement and a list that can be emptied again."""
        self._edit(intents, _ours, AVOID, avoid_sites(sites))
        self._edit(intents, _ours, AVOIDED, AT_AVOIDED_PLACE)
        ads = self._schedd.query(self._any(intents, _ours), ["ClusterId", "ProcId", "Requirements"])
        known = {Key(int(ad["ClusterId"]), int(ad["ProcId"])): ad["Requirements"] for ad in ads}
        lacking = [i for i in intents if AVOID not in str(known.get(i.key) or AVOID)]
        for requirements, some in _by(lacking, lambda i: str(known[i.key])).items():
            self._edit(some, _ours, "Requirements", f"({requirements}) && ({NOT_AVOIDED})")

    def _edit(self, intents: Sequence[Intent], guard: Guard, attribute: str, value: str) -> None:
        try:
            self._schedd.edit(self._any(intents, guard), attribute, value)
        except PoolUnreachable:
            raise
        except PoolError:
            pass  # no job fits the guard: it was done before, or must not be done any more

    def _any(self, intents: Iterable[Intent], guard: Guard) -> str:
        """The constraint for the jobs of some intents that fit the guard, within the scope."""
        guarded = " || ".join(f"({guard(intent)})" for intent in intents)
        return f"{self._scope} && ({guarded})"


def _result(intent: Intent, ad: Mapping[str, Any] | None) -> ActResult:
    """Whether an intent was carried out, by what the queue says afterwards."""
    if intent.act == "remove":
        gone = ad is None or ad["JobStatus"] in (_REMOVED, _COMPLETED)
        return gone, "" if gone else "the schedd did not remove it"
    ours = ad is not None and ad[CLAIM] == intent.claim
    if ad is None or (not ours and ad["JobStatus"] in (_REMOVED, _COMPLETED)):
        return None, "it has left the queue since"
    same = (
        ad["JobStatus"] == HELD_STATUS
        and whole(ad["NumHolds"]) == intent.holds
        and ad["EnteredCurrentStatus"] == int(intent.since)
    )
    if not same:
        return (True, "") if ours else (False, "somebody else was first")
    return False, "the schedd did not release it" if ours else "it may not, or no longer, be edited"


def _same(intent: Intent) -> str:
    """The guard: the job still has the hold that was seen."""
    return (
        f"ClusterId == {intent.key.cluster} && ProcId == {intent.key.proc}"
        f" && JobStatus == {HELD_STATUS} && (NumHolds ?: 0) == {intent.holds}"
        f" && EnteredCurrentStatus == {int(intent.since)}"
        f" && (HoldReasonCode ?: 0) == {intent.code}"
        f" && (HoldReasonSubCode ?: 0) == {intent.subcode}"
        f" && {HEAL} =!= false"
    )


def _free(intent: Intent) -> str:
    """The guard: nobody has claimed the job since then."""
    before = f'({CLAIM} ?: "") == {quoted(intent.before)}'
    return f"{_same(intent)} && ({before} || {CLAIM} == {quoted(intent.claim)})"


def _ours(intent: Intent) -> str:
    return f"{_same(intent)} && {CLAIM} == {quoted(intent.claim)}"


def _ready(intent: Intent) -> str:
    """The guard: the job is claimed, counted and changed as intended."""
    parts = [_ours(intent)]
    if intent.act == "release":
        parts.append(f"{HEALS} == {intent.heals + 1}")
        parts += [f"{edit.attribute} == {edit.new}" for edit in intent.edits]
    return " && ".join(parts)


def _by(intents: Sequence[Intent], name: Callable[[Intent], Any]) -> dict[Any, list[Intent]]:
    groups = defaultdict(list)
    for intent in intents:
        groups[name(intent)].append(intent)
    return groups


def carry_out_locally(pool: Pool, folder: RunFolder, intent: Intent) -> ActResult:
    """Act on a job of the local pool; the caller has just seen that it has the hold."""
    job = intent.key.proc
    for edit in intent.edits:
        if edit.attribute.startswith("Request"):
            (answer,) = pool.edit(folder, [job], edit.attribute, edit.new)
            if answer.error:
                return False, answer.error
    action = Action.RELEASE if intent.act == "release" else Action.REMOVE
    error = pool.act(folder, action, [job], f"via headway heal {intent.claim}")[0].error
    return not error, error
