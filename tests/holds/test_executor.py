"""The hand's guards, as HTCondor's own ClassAds evaluate them, killed at every step."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from headway.errors import PoolError
from headway.holds.audit import Edit, Intent
from headway.holds.executor import Executor
from headway.holds.hold import CLAIM, HEAL, HEALS, Key
from headway.pool.htcondor.schedd import Schedd, run_scope
from headway.pool.policy import AVOID

classad2 = pytest.importorskip("classad2")
SINCE = 1_800_000_000


class Killed(Exception):
    """Between two questions."""


class Paper(Schedd):
    """A schedd on paper: real ads and real constraints, and an end after some questions."""

    def __init__(self, *ads: Mapping[str, Any]) -> None:
        super().__init__()
        self.ads = [self._ad(ad) for ad in ads]
        self.fuse = -1
        self.released: list[tuple[int, str]] = []
        self.meanwhile: Callable[[], None] = lambda: None

    def _ad(self, facts: Mapping[str, Any]) -> Any:
        ad = classad2.ClassAd()
        for name, value in facts.items():
            ad[name] = value
        return ad

    def _matching(self, constraint: str) -> list[Any]:
        if self.fuse == 0:
            raise Killed
        self.fuse -= 1
        tree = classad2.ExprTree(constraint)
        return [ad for ad in self.ads if tree.eval(ad) is True]

    def query(
        self, constraint: str, attributes: Sequence[str], *, clusters: bool = False
    ) -> list[dict[str, Any]]:
        found = self._matching(constraint)
        return [{name: _plain(ad.get(name)) for name in attributes} for ad in found]

    def edit(self, constraint: str, attribute: str, value: str) -> None:
        found = self._matching(constraint)
        if not found:
            raise PoolError("Unable to edit jobs matching constraint")
        for ad in found:
            ad[attribute] = classad2.ExprTree(value)

    def act(self, action: str, constraint: str, reason: str) -> Mapping[str, int]:
        self.meanwhile()
        found = self._matching(constraint)
        for ad in found:
            assert ad["JobStatus"] == 5
            ad["JobStatus"] = {"Release": 1, "Remove": 3}[action]
            if action == "Release":
                self.released.append((ad["ProcId"], reason))
        return {"TotalSuccess": len(found)}


def _plain(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


def job(number: int, **facts: Any) -> dict[str, Any]:
    plain = {"ClusterId": 7, "ProcId": number, "JobStatus": 5, "NumHolds": 1, "RequestMemory": 100}
    hold = {"EnteredCurrentStatus": SINCE, "HoldReasonCode": 13, "HoldReasonSubCode": 256}
    return {**plain, **hold, "Requirements": True, **facts}


def intent(number: int, **changes: Any) -> Intent:
    plain = Intent(
        f"me/7.{number}", 0.0, "release", Key(7, number), "ann", 1, float(SINCE), 13, 256,
        claim="me/1/1",
    )  # fmt: skip
    return replace(plain, **changes)


def test_killed_at_every_step_and_done_once() -> None:
    grown = (Edit("HeadwayFirstRequestMemory", "100"), Edit("RequestMemory", "300", "100"))
    intents = [intent(0), intent(1, edits=grown), intent(2, avoid=("A-SITE",)), intent(3)]
    for fuses in itertools.product(range(10), repeat=2):
        schedd = Paper(job(0), job(1), job(2), job(3, **{HEAL: False}))
        hands = Executor(schedd, "true")
        schedd.fuse = fuses[0]
        with pytest.raises(Killed):
            hands.carry_out(intents)
        schedd.fuse = fuses[1]
        with contextlib.suppress(Killed):  # what is done already takes fewer questions
            hands.carry_out(intents)
        schedd.fuse = -1
        told = hands.carry_out(intents)
        assert [told[i.id][0] for i in intents] == [True, True, True, False], fuses
        assert sorted(number for number, _ in schedd.released) == [0, 1, 2]
        assert [ad.get(HEALS) for ad in schedd.ads] == [1, 1, 1, None]
        assert schedd.ads[1]["RequestMemory"] == 300
        assert schedd.ads[1]["HeadwayFirstRequestMemory"] == 100
        requirements = str(schedd.ads[2]["Requirements"])
        assert requirements.count(AVOID) == 1, requirements


@pytest.mark.parametrize(
    "change",
    [
        {"JobStatus": 1}, {"NumHolds": 2}, {"EnteredCurrentStatus": SINCE + 1},
        {"HoldReasonCode": 1}, {"HoldReasonSubCode": 2}, {HEAL: False}, {CLAIM: "you/1/1"},
        {"RequestMemory": 200},
    ],
    ids=str,
)  # fmt: skip
def test_what_changed_since_it_was_seen_is_not_touched(change: dict[str, Any]) -> None:
    grown = (Edit("RequestMemory", "300", "100"),)
    schedd = Paper(job(0, **change))
    told = Executor(schedd, "true").carry_out([intent(0, edits=grown)])
    assert not schedd.released
    assert told["me/7.0"][0] is False


@pytest.mark.parametrize("change", [{HEAL: False}, {CLAIM: "you/1/1"}, {"NumHolds": 2}], ids=str)
def test_what_changes_at_the_last_moment_too(change: dict[str, Any]) -> None:
    schedd = Paper(job(0))
    schedd.meanwhile = lambda: schedd.ads[0].update(change)
    Executor(schedd, "true").carry_out([intent(0)])
    assert not schedd.released


def test_of_two_only_one_gets_its_claim_in() -> None:
    schedd = Paper(job(0))
    mine, yours = intent(0), intent(0, id="you/7.0", claim="you/1/1")
    # both have seen the same; the other one is quicker
    schedd.meanwhile = lambda: None
    assert Executor(schedd, "true").carry_out([yours])["you/7.0"] == (True, "")
    assert Executor(schedd, "true").carry_out([mine])["me/7.0"] == (
        False,
        "somebody else was first",
    )
    assert len(schedd.released) == 1 and schedd.ads[0][HEALS] == 1


def test_each_release_is_signed_with_its_own_claim() -> None:
    """What two earlier rounds left open is settled together, and each keeps its name."""
    schedd = Paper(job(0), job(1))
    Executor(schedd, "true").carry_out([intent(0), intent(1, claim="me/1/2")])
    assert schedd.released == [(0, "via headway heal me/1/1"), (1, "via headway heal me/1/2")]


def test_a_removal_and_a_job_that_has_left() -> None:
    schedd = Paper(job(0), job(1))
    done = Executor(schedd, "true").carry_out([intent(0, act="remove"), intent(5)])
    assert done["me/7.0"][0] is True and schedd.ads[0]["JobStatus"] == 3
    assert done["me/7.5"] == (None, "it has left the queue since")
    assert schedd.ads[1]["JobStatus"] == 5


def test_no_intent_reaches_a_job_outside_the_scope() -> None:
    """Whatever an audit says: what somebody put into it is not carried out on other jobs."""
    mine = {"HeadwayRun": "abc"}
    schedd = Paper(job(0, **mine), job(1, HeadwayRun="other"), job(2))
    grown = (Edit("RequestMemory", "300", "100"),)
    forged = [intent(0), intent(1, edits=grown, avoid=("A-SITE",)), intent(2, act="remove")]
    hands = Executor(schedd, run_scope(7, "abc"))
    hands.carry_out(forged)
    assert [number for number, _ in schedd.released] == [0]
    for ad in schedd.ads[1:]:
        assert ad["JobStatus"] == 5 and ad["RequestMemory"] == 100 and CLAIM not in ad
    assert set(hands.ads([Key(7, 0), Key(7, 1), Key(7, 2)])) == {Key(7, 0)}


def test_a_name_cannot_become_an_expression() -> None:
    schedd = Paper(job(0, HeadwayRun="abc"))
    for name in ('x" || true || "', "x\\", '\\" || true || "'):
        assert not schedd.query(run_scope(7, name), ["ProcId"])
    assert schedd.query(run_scope(7, "abc"), ["ProcId"])


@pytest.mark.parametrize(("claim", "done"), [("me/1/1", True), ("you/1/1", None)])
@pytest.mark.parametrize("status", [3, 4])
def test_a_release_that_ended_at_once_is_ours_by_its_claim(
    status: int, claim: str, done: bool | None
) -> None:
    schedd = Paper(job(0, JobStatus=status, **{CLAIM: claim}))
    assert Executor(schedd, "true").carry_out([intent(0)])["me/7.0"][0] is done
