"""Real reasons of holds, exceptions and evictions, labelled twice: what is said of each of them.

tests/holds/reasons.toml says where each is from and what the two labels are.
"""

from __future__ import annotations

import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.holds.held_made import NOW, told
from tests.holds.held_made import held as held_job

from headway.holds import classify, parse, table
from headway.holds.advice import Act
from headway.holds.advise import advise
from headway.holds.audit import HealState
from headway.holds.decisions import Decision, HeldJob, Verb, decide
from headway.holds.history import History
from headway.holds.hold import JobId, hold_of
from headway.holds.rules import Rules

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = Path(__file__).with_name("reasons.toml")
WORDS = {Act.UNKNOWN: "unknown"}
LABELS = ("a", "b")
#: What the labels and the table see differently, with the table's reason for it.
DIFFERENT = {
    # Both labels say that the name is wrong. The OSDF answers 404 also while a director or a cache
    # is ill, so the table has one look first (`headway sources`), and what others got decides.
    "url-1", "url-11", "url-14",
}  # fmt: skip


def read_toml(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


@cache
def reasons() -> tuple[dict[str, Any], ...]:
    return tuple(read_toml(FILE)["reason"])


def both(reason: dict[str, Any], what: str) -> set[str]:
    return {each for label in LABELS for each in reason[label][what]}


def harmful(reason: dict[str, Any]) -> set[str]:
    return both(reason, "harmful") - set(reason.get("settled", {}).get("harmless", ()))


def act_of(reason: dict[str, Any]) -> str:
    """What is advised where nothing but the hold itself is known."""
    hold = hold_of(
        JobId("", 1, 0), NOW, reason.get("code", 0), reason.get("subcode", 0), reason["text"]
    )
    act = advise(hold, History()).act
    return WORDS.get(act, act.value)


def wrong(reason: dict[str, Any]) -> list[str]:
    """What the code says of a reason that no label says."""
    entry = classify(reason.get("code"), reason.get("subcode"), reason["text"])
    found = []
    if entry.id not in reason["entries"]:
        found.append(f"cause {entry.id}")
    if entry.kind not in both(reason, "kind"):
        found.append(f"kind {entry.kind}")
    if entry.way and entry.way not in both(reason, "way"):
        found.append(f"way {entry.way}")
    if reason["event"] == "012":
        act = act_of(reason)
        if act not in both(reason, "acceptable") - harmful(reason):
            found.append(f"act {act}")
    return found


def test_there_are_enough_of_them_and_each_is_labelled_twice() -> None:
    assert len({reason["id"] for reason in reasons()}) == len(reasons())
    count = Counter((reason["event"], reason["found"]) for reason in reasons())
    assert count["012", "public"] >= 100
    assert (
        sum(count[event, found] for event in ("004", "007") for found in ("public", "source")) >= 40
    )
    ids = {entry.id for entry in table()}
    for reason in reasons():
        assert reason["source"] and reason["entries"], reason["id"]
        assert set(reason["entries"]) & ids, reason["id"]
        for label in LABELS:
            assert reason[label]["cause"] and reason[label]["kind"], reason["id"]


def test_at_most_one_in_twenty_is_wrong() -> None:
    for events in (("012",), ("004", "007")):
        asked = [reason for reason in reasons() if reason["event"] in events]
        bad = {reason["id"]: wrong(reason) for reason in asked if wrong(reason)}
        assert set(bad) <= DIFFERENT, bad
        assert 20 * len(bad) <= len(asked)


@pytest.mark.parametrize("reason", reasons(), ids=lambda reason: str(reason["id"]))
def test_nothing_harmful_is_advised(reason: dict[str, Any]) -> None:
    if reason["event"] == "012":
        assert act_of(reason) not in harmful(reason)


def healed(reason: dict[str, Any], age: float, rules: Rules) -> Decision:
    """What heal does about a job that is held for this, whose log says the same as the queue."""
    job = held_job(
        code=reason.get("code", 0),
        subcode=reason.get("subcode", 0),
        reason=reason["text"],
        age=age,
        RequestMemory=2048,
        RequestDisk=10**6,
        MemoryUsage=2000,
        MemoryProvisioned=2048,
    )
    hold = hold_of(
        JobId(job.log, *job.key),
        job.since,
        job.code,
        job.subcode,
        job.reason,
        facts=dict(job.facts),
    )
    advice = advise(hold, History(), now=NOW)
    [decision] = decide(HealState(id="a"), [HeldJob(job, advice, told(job))], NOW, rules)
    return decision


@pytest.mark.parametrize("reason", reasons(), ids=lambda reason: str(reason["id"]))
@pytest.mark.parametrize("age", [3700.0, 30 * 3600.0])
def test_heal_does_nothing_harmful(reason: dict[str, Any], age: float) -> None:
    if reason["event"] != "012":
        return
    decision = healed(reason, age, Rules(remove=True, remove_after=0.0))
    done = decision.verb
    if done is Verb.RELEASE and decision.intent and decision.intent.edits:
        return  # a job that is changed first is another matter
    assert done.value not in harmful(reason), decision.why


def test_heal_does_release_what_passes() -> None:
    """Or the test before would be met by a heal that never does anything."""
    passing = [
        reason
        for reason in reasons()
        if reason["event"] == "012"
        and all(reason[label]["kind"] == ["transient"] for label in LABELS)
    ]
    verbs = Counter(healed(reason, 30 * 3600.0, Rules()).verb for reason in passing)
    assert len(passing) >= 15 and verbs[Verb.RELEASE] >= 0.9 * len(passing)


@pytest.mark.parametrize("reason", reasons(), ids=lambda reason: str(reason["id"]))
def test_every_advice_cites_what_it_rests_on(reason: dict[str, Any]) -> None:
    """The entry of the table, why it is so, the cases behind the chance, and what to do."""
    if reason["event"] != "012":
        return
    code, subcode = reason.get("code", 0), reason.get("subcode", 0)
    hold = hold_of(JobId("a.log", 1, 0), NOW, code, subcode, reason["text"])
    advice = advise(hold, History())
    entry = classify(code, subcode, reason["text"])
    assert advice.cause == entry.id and advice.headline.endswith(".")
    assert "{" not in " ".join([advice.headline, *advice.reasons])
    assert len(advice.reasons) >= 2 and all(said.strip() for said in advice.reasons)
    if advice.probability is not None:
        assert advice.cases == 0 and "no other case" in " ".join(advice.reasons)
    cited = advice.as_json()["hold"]
    assert (cited["code"], cited["subcode"]) == (code, subcode) and advice.as_json()["log"]


def test_a_template_of_a_template_is_itself() -> None:
    for reason in reasons():
        template = parse(reason["text"]).template
        assert parse(template).template == template, reason["id"]


def test_a_million_attempts_cost_as_much_as_their_kinds() -> None:
    """The report classifies each different (code, subcode, reason) once, and reasons are cached."""
    import time

    asked = [(r.get("code"), r.get("subcode"), r["text"]) for r in reasons()]
    for case in asked:
        classify(*case)
    begin = time.process_time()
    for _ in range(20):
        for case in asked:
            classify(*case)
    assert (time.process_time() - begin) / (20 * len(asked)) < 50e-6
