"""One job at a time: who is left alone, what is changed, and when the next look is due."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headway.holds.advice import Act
from headway.holds.audit import HealState
from headway.holds.decisions import Decision, Verb, breakers_of, claim_of, decide
from headway.holds.guards import _ours
from headway.holds.hold import CLAIM, QueuedHold
from headway.holds.rules import Rules
from headway.pool.policy import NOT_AVOIDED, avoid_lines, avoid_sites, release_expression
from headway.spec import Retries

from .held_made import NOW, advice, case, held, more, told

RULES = Rules()
RAISED = {"RequestMemory": 6000, "HeadwayFirstRequestMemory": 2048}


def decided(
    job: QueuedHold, act: Act = Act.RELEASE, rules: Rules = RULES, **changes: Any
) -> Decision:
    return decide(HealState(rules, id="me"), [case(job, act, **changes)], NOW, rules)[0]


def test_a_plain_one_is_released() -> None:
    decision = decided(held())
    assert decision.verb is Verb.RELEASE and decision.intent is not None
    assert decision.intent.heals == 0 and decision.intent.edits == ()


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (held(code=1, subcode=0), "on purpose"),
        (held(code=15, subcode=0), "on purpose"),
        (held(code=16, subcode=0), "on purpose"),
        (held(HeadwayHeal=False), "HeadwayHeal is false"),
        (held(age=15 * 86400.0), "14 days"),
        (held(NumShadowStarts=31), "31 times"),
        (held(holds=6), "budget is 5"),
        (held(holds=3, HeadwayHeals=5), "budget is 5"),
        (held(HeadwayRun="ab12"), "taken away"),
        (held(NumHoldsByReason="[ TransferInputError = 4 ]"), "NumHolds was edited"),
    ],
)
def test_what_is_left_alone_whatever_the_advice(job: QueuedHold, why: str) -> None:
    for act in Act:
        decision = decided(job, act, Rules(remove=True, remove_after=0.0), kind="permanent")
        if act is Act.REMOVE and "budget" in why:
            continue
        assert decision.verb is Verb.LEAVE and decision.intent is None, act
    assert why in decided(job).why


@pytest.mark.parametrize(
    ("attribute", "original", "now"),
    [
        ("PeriodicRelease", "(time() - EnteredCurrentStatus) > 60", False),
        ("PeriodicRelease", None, False),
        ("PeriodicHold", None, True),
    ],
)
def test_what_somebody_edited_to_keep_it_held(attribute: str, original: Any, now: Any) -> None:
    job = replace(held(**{attribute: now}), original={attribute: original, "ClusterId": 8123})
    assert decided(job).verb is Verb.LEAVE
    assert attribute in decided(job).why
    # submitted like that, it is nobody's edit
    same = replace(job, original={attribute: now, "ClusterId": 8123})
    if attribute == "PeriodicRelease":
        assert decided(same).verb is Verb.RELEASE


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"code": 12}, "somebody edited it"),
        ({"subcode": 2}, "somebody edited it"),
        ({"reason": "another one"}, "another reason"),
        ({"holds": 4}, "tells of 4 holds"),
        ({"held": False}, "does not say"),
    ],
)
def test_the_queue_and_the_log_disagree(changes: dict[str, Any], why: str) -> None:
    job = held()
    one = replace(case(job), logged=told(job, **changes))
    decision = decide(HealState(RULES, id="me"), [one], NOW, RULES)[0]
    assert decision.verb is Verb.LEAVE and why in decision.why


def test_a_code_that_the_queue_never_counted_is_an_edit() -> None:
    for counts, verb in (("TransferInputError = 1", Verb.RELEASE), ("JobPolicy = 1", Verb.LEAVE)):
        one = replace(case(held(NumHoldsByReason=f"[ {counts} ]")), logged=None)
        assert decide(HealState(RULES, id="me"), [one], NOW, RULES)[0].verb is verb


def test_a_reason_in_two_spellings_is_one() -> None:
    """The queue has line ends where the log has bars, and the log may cut it."""
    job = held(reason="Error from slot1@a:\nno such file\r\n  (errno 2)\n")
    one = replace(
        case(job), logged=told(job, reason="Error from slot1@a:|no such file   (errno 2)|")
    )
    assert decide(HealState(RULES, id="me"), [one], NOW, RULES)[0].verb is Verb.RELEASE


class TestItsOwnPolicy:
    def test_headways_own_is_waited_for_and_then_taken_over_from(self) -> None:
        expression = release_expression(Retries(holds=2, backoff=30.0))
        job = held(age=20.0, PeriodicRelease=expression)
        decision = decided(job)
        assert decision.verb is Verb.WAIT and "its own periodic_release will" in decision.why
        # its own bound is reached: heal takes over what is left of the budget
        assert decided(held(holds=3, PeriodicRelease=expression)).verb is Verb.RELEASE
        # a hold that its own does not cover
        job = held(code=34, subcode=102, PeriodicRelease=expression)
        assert decided(job).verb is Verb.RELEASE
        # as the schedd writes it
        spelt = expression.replace(" && ", "  &&  ").replace("pow(2, ", "pow(2,")
        assert decided(held(age=20.0, PeriodicRelease=spelt)).verb is Verb.WAIT

    @pytest.mark.parametrize("seconds", [0.5, 1.0, 60.0, 90.25, 7200.0])
    def test_it_is_known_as_the_schedd_writes_it(self, seconds: float) -> None:
        classad2 = pytest.importorskip("classad2")
        retries = Retries(holds=2, input=7, backoff=seconds)
        spelt = str(classad2.ExprTree(release_expression(retries)))
        assert _ours(spelt) == retries
        assert _ours(f"{spelt} && false") is None, "somebody edited it"

    def test_a_foreign_one_gets_the_longest_pause_that_it_may_mean(self) -> None:
        expression = "NumJobStarts < 5 && (time() - EnteredCurrentStatus) > 7200"
        assert decided(held(age=7000.0, PeriodicRelease=expression)).verb is Verb.WAIT
        assert decided(held(age=7600.0, PeriodicRelease=expression)).verb is Verb.RELEASE
        assert decided(held(age=100.0, PeriodicRelease=True)).verb is Verb.WAIT


class TestBudgets:
    def test_a_persons_holds_cost_nothing(self) -> None:
        job = held(holds=8, NumHoldsByReason="[ UserRequest = 7; TransferInputError = 1 ]")
        one = replace(case(job), logged=None)
        assert decide(HealState(RULES, id="me"), [one], NOW, RULES)[0].verb is Verb.RELEASE

    def test_a_hold_that_htcondor_counts_three_times_is_one(self) -> None:
        job = held(holds=9)
        one = replace(case(job), logged=told(job, holds=3, unwanted=3, releases=2))
        assert decide(HealState(RULES, id="me"), [one], NOW, RULES)[0].verb is Verb.RELEASE

    def test_an_hour_is_shared(self) -> None:
        rules = Rules(most_per_hour=3, most_per_user=2)
        reason = "The job could not be started at {}.example.org"
        jobs = [
            held(n, user="ann" if n < 4 else "bob", reason=reason.format(f"h{n}")) for n in range(8)
        ]
        cases = [case(job, cause=f"cause-{n}") for n, job in enumerate(jobs)]
        made = decide(HealState(rules, id="me"), cases, NOW, rules)
        users = [d.case.held.user for d in made if d.verb is Verb.RELEASE]
        assert users == ["ann", "ann", "bob"]
        assert any("one user's jobs" in d.why for d in made)
        assert any("3 releases in an hour" in d.why for d in made)


class TestChanges:
    def test_a_request_grows_within_its_limits(self) -> None:
        decision = decided(held(), Act.CHANGE, changes=(more("RequestMemory", 6000),))
        assert decision.intent is not None
        edits = {edit.attribute: edit.new for edit in decision.intent.edits}
        assert edits == {"HeadwayFirstRequestMemory": "2048", "RequestMemory": "6000"}
        assert decision.intent.edits[-1].old == "2048"

    @pytest.mark.parametrize(
        ("changes", "facts", "why"),
        [
            ((more("RequestMemory", 9000),), {}, "9,000 MiB, and heal may go up to 8,192 MiB"),
            # what the user asked for counts, not what heal has made of it
            ((more("RequestMemory", 9000),), RAISED, "9,000 MiB, and heal may go up to 8,192 MiB"),
            ((more("RequestMemory", 200_000),), {"RequestMemory": 120_000}, "up to 131,072 MiB"),
            ((more("RequestMemory", 3000),), {"RequestMemory": "MemoryUsage * 2"}, "an expression"),
            ((more("RequestGPUs", 2),), {}, "not changed unasked"),
            ((more("JobDurationCategory", 1),), {}, "not changed unasked"),
            ((more("", 0),), {}, "only a person"),
            ((), {}, "not known"),
        ],
    )  # fmt: skip
    def test_and_no_further(self, changes: Any, facts: dict[str, Any], why: str) -> None:
        decision = decided(held(**facts), Act.CHANGE, changes=changes)
        assert decision.verb is Verb.LEAVE and why in decision.why

    def test_what_was_raised_since_is_enough(self) -> None:
        job = held(RequestMemory=8000)
        decision = decided(job, Act.CHANGE, changes=(more("RequestMemory", 6000),))
        assert decision.verb is Verb.RELEASE and decision.intent and decision.intent.edits == ()

    def test_a_category_is_changed_when_told_to(self) -> None:
        change = replace(more("JobDurationCategory", 0), new='"Long"')
        rules = Rules(duration=True)
        decision = decided(held(code=46, subcode=0), Act.CHANGE, rules, changes=(change,))
        assert decision.intent and decision.intent.edits[0].new == '"Long"'


class TestRemoval:
    READY = Rules(remove=True, remove_after=60.0)

    def test_only_when_asked_for_and_agreed(self) -> None:
        job = held(code=6, subcode=2)
        assert decided(job, Act.REMOVE, kind="permanent").verb is Verb.LEAVE
        assert decided(job, Act.REMOVE, self.READY, kind="permanent").verb is Verb.REMOVE
        young = held(code=6, subcode=2, age=10.0)
        assert decided(young, Act.REMOVE, self.READY, kind="permanent").verb is Verb.WAIT
        assert decided(job, Act.REMOVE, self.READY, kind="depends").verb is Verb.LEAVE

    @pytest.mark.parametrize("changes", [None, {"complete": False}, {"reason": ""}, {"code": 7}])
    def test_never_by_the_log_or_the_queue_alone(self, changes: dict[str, Any] | None) -> None:
        job = held(code=6, subcode=2)
        log = None if changes is None else told(job, **changes)
        one = replace(case(job, Act.REMOVE, kind="permanent"), logged=log)
        made = decide(HealState(self.READY, id="me"), [one], NOW, self.READY)[0]
        assert made.verb is Verb.LEAVE


def test_pauses_and_waits() -> None:
    assert decided(held(age=30.0)).verb is Verb.WAIT
    assert decided(held(age=61.0)).verb is Verb.RELEASE
    assert decided(held(holds=3, age=200.0)).due == pytest.approx(NOW + 40.0)
    waits = decided(held(age=100.0), Act.WAIT, until=NOW + 50.0, next_check=900.0)
    assert waits.verb is Verb.WAIT and waits.due == pytest.approx(NOW + 50.0)
    assert decided(held(age=100.0), Act.WAIT, until=NOW - 1.0).verb is Verb.RELEASE
    # no wait is without an end
    assert decided(held(age=3700.0), Act.WAIT, until=None).verb is Verb.RELEASE
    assert decided(held(), Act.UNKNOWN).verb is Verb.LEAVE


def test_another_heal_is_respected_and_taken_over_from() -> None:
    job = held(age=1000.0)
    theirs = claim_of("them", replace(job, age=900.0), 3)
    assert "another heal" in decided(replace(job, facts={**job.facts, CLAIM: theirs})).why
    old = claim_of("them", replace(job, age=50.0), 3)
    assert decided(replace(job, facts={**job.facts, CLAIM: old})).verb is Verb.RELEASE
    future = claim_of("them", replace(job, age=9000.0), 3)  # the queue's clock was set back
    assert decided(replace(job, facts={**job.facts, CLAIM: future})).verb is Verb.RELEASE
    # of an earlier hold, or nonsense
    for claim in (f"them/{job.since - 100:.0f}/1", "x", "them//", "a/999999999999999/1", '"; x'):
        assert decided(replace(job, facts={**job.facts, CLAIM: claim})).verb is Verb.RELEASE


def test_breakers_are_by_source_site_and_cause() -> None:
    job = held(site="BAD-SITE")
    assert breakers_of(advice(job)) == ("source cache.example.org", "cause input-object-not-found")
    there = breakers_of(advice(held(reason="no word of where", site="BAD-SITE"), avoid_site=True))
    assert there[0] == "site BAD-SITE, input-object-not-found"
    assert breakers_of(advice(held(reason="no"))) == ("only cause input-object-not-found",)


def test_sites_are_avoided_few_and_only_with_plain_names() -> None:
    job = held(reason="x", site="BAD-SITE", HeadwayAvoid="['A', 'B', 'C']")
    decision = decided(job, avoid_site=True)
    assert decision.intent and decision.intent.avoid == ("B", "C", "BAD-SITE")
    for site in ('X" || true', "", "a b"):
        decision = decided(held(reason="x", site=site), avoid_site=True)
        assert decision.intent and decision.intent.avoid == ()
    own = held(reason="x", site="S", Requirements="x =!= MY.MachineAttrGLIDEIN_ResourceName1")
    assert decided(own, avoid_site=True).intent.avoid == ()  # type: ignore[union-attr]
    avoids = avoid_lines(Retries())["+HeadwayAvoid"]
    own = held(reason="x", site="S", Requirements=NOT_AVOIDED, HeadwayAvoid=avoids)
    assert decided(own, avoid_site=True).intent.avoid == ()  # type: ignore[union-attr]
    text = avoid_sites(["A", "B"])
    healed = held(reason="x", site="S", Requirements=NOT_AVOIDED, HeadwayAvoid=text)
    assert decided(healed, avoid_site=True).intent.avoid == ("A", "B", "S")  # type: ignore[union-attr]
