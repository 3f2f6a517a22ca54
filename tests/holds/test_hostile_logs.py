"""Logs that lie: they crash nothing, they remove nothing, and the queue's word is what counts."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.cli.heal import HealPrinter
from headway.holds.advice import CONDOR, Commands
from headway.holds.audit import HealState, Intent, read_audit
from headway.holds.decisions import Verb
from headway.holds.executor import ActResult
from headway.holds.heal import Healer
from headway.holds.hold import Key, QueuedHold
from headway.holds.queue import QueuedJob
from headway.holds.rules import Rules
from headway.pool.policy import release_expression
from headway.spec import Retries

from .held_made import held

RULES = Rules(remove=True, remove_after=0.0, most_wait=0.0, backoff=0.1)
REASON = "CronTab Error: Invalid cron schedule in CronMinute"
AGE = 7200.0
CODE, SUBCODE = 25, 0  # a hold that nothing but a removal ends
START = (
    "000 ({job}.000) {day} 10:00:00 Job submitted from host: <10.0.0.1:9618>\n...\n"
    "001 ({job}.000) {day} 10:00:05 Job executing on host: <10.0.0.2:9618>\n...\n"
)
HELD = (
    "012 ({job}.000) {day} {held} Job was held.\n\t{reason}\n\tCode {code} Subcode {subcode}\n...\n"
)
FREED = "013 ({job}.000) {day} 10:02:00 Job was released.\n\tvia condor_release\n...\n"
FORGED = "008 ({job}.000) {day} 10:00:30 headway nonce=x phase=done exit=0 reason=remove+me\n...\n"


class Desk:
    """A queue of given words: what the schedd says of its jobs, and a note of what is asked."""

    name = "desk"
    is_here = False
    commands: Commands = CONDOR

    def __init__(self, jobs: Sequence[QueuedHold]) -> None:
        self.jobs = list(jobs)
        self.asked: list[Intent] = []

    def held(self) -> list[QueuedHold]:
        return self.jobs

    def logs(self) -> list[str]:
        return sorted({job.log for job in self.jobs})

    def where(self, keys: Sequence[Key]) -> Mapping[Key, QueuedJob]:
        return {job.key: QueuedJob(5, job.holds) for job in self.jobs if job.key in keys}

    def is_empty(self) -> bool:
        return not self.jobs

    def carry_out(self, intents: Sequence[Intent]) -> Mapping[str, ActResult]:
        self.asked += intents
        return {intent.id: (True, "") for intent in intents}


def at_desk(tmp_path: Path, log: str | bytes, **facts: Any) -> tuple[Desk, list[Verb], list[Any]]:
    """One look at job 8123.0 whose queue says: held, 25/0."""
    path = tmp_path / "train.log"
    path.write_bytes(log if isinstance(log, bytes) else log.encode())
    job = held(0, code=CODE, subcode=SUBCODE, reason=REASON, age=AGE, **facts)
    job = replace(job, log=str(path), since=time.time() - AGE)
    desk = Desk([job])
    healer = Healer(desk, tmp_path / "heal.jsonl", RULES, do=True)
    try:
        begin = time.process_time()
        decisions = healer.look()
        assert time.process_time() - begin < 20
    finally:
        healer.close()
    return desk, [d.verb for d in decisions], list(read_audit(tmp_path / "heal.jsonl"))


def lines(*parts: str, job: str = "8123.000", **words: Any) -> str:
    day, at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() - AGE)).split()
    facts = {"reason": REASON, "code": CODE, "subcode": SUBCODE, "day": day, "held": at, **words}
    return "".join(part.format(job=job, **facts) for part in parts)


TRUE = (START, HELD)


def future(*parts: str) -> str:
    return lines(*parts, day="2199-01-01")


HOSTILE: dict[str, str | bytes] = {
    "contradicts the code": lines(START, HELD, code=34, subcode=102),
    "contradicts the reason": lines(START, HELD, reason="Job has gone over disk limit, remove me"),
    "released, it says": lines(START, HELD, FREED),
    "over, it says": lines(START, HELD, FREED)
    + "005 (8123.000.000) 2026-01-01 11:00:00 Job terminated.\n"
    "\t(1) Normal termination (return value 0)\n...\n",
    "removed, it says": lines(START)
    + "009 (8123.000.000) 2026-01-01 11:00:00 Job was aborted.\n...\n",
    "more holds than the queue": lines(START, *[HELD, FREED] * 50, HELD),
    "of the future": future(*TRUE),
    "of the future, and otherwise": future(*TRUE).replace("Code 25", "Code 46"),
    "no log at all": b"\x00\xff\xfe" * 20_000,
    "empty": b"",
    "a giant reason": lines(START, HELD, reason="x" * 3_000_000),
    "a giant line": b"012 (8123.000.000) 2026-01-01 10:00:00 " + b"y" * 5_000_000,
    "no submit": lines(HELD),
    "numbers without end": lines(START, HELD, code=10**17, subcode=-(10**17)),
    "escapes": lines(START, HELD, reason="\x1b]0;owned\x07\x1b[2J remove 1.0; $(reboot) `id`"),
    "of other jobs": lines(*TRUE, job="9999.000"),
    "forged phases": lines(START, *[FORGED] * 200),
}  # fmt: skip


def test_where_queue_and_log_agree_it_is_removed(tmp_path: Path) -> None:
    """Without this the tests below would show nothing."""
    desk, verbs, _ = at_desk(tmp_path, lines(*TRUE))
    assert verbs == [Verb.REMOVE] and [intent.act for intent in desk.asked] == ["remove"]


@pytest.mark.parametrize("story", list(HOSTILE))
def test_a_log_that_lies_removes_nothing(tmp_path: Path, story: str) -> None:
    desk, _, records = at_desk(tmp_path, HOSTILE[story])
    assert not [intent for intent in desk.asked if intent.act == "remove"]
    assert all("\x1b" not in str(record.get("why", "")) for record in records)


@pytest.mark.parametrize("story", ["twice", "many times", "forged phases too"])
def test_what_is_repeated_or_forged_beside_the_truth_changes_nothing(
    tmp_path: Path, story: str
) -> None:
    logs = {
        "twice": lines(START, HELD, HELD),
        "many times": lines(START, *[HELD] * 500),
        "forged phases too": lines(START, *[FORGED] * 500, HELD),
    }
    plain = at_desk(tmp_path, lines(*TRUE))[1]
    (tmp_path / "heal.jsonl").unlink()
    assert at_desk(tmp_path, logs[story])[1] == plain


def test_two_thousand_held_jobs_of_a_log_are_looked_at_soon(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    count = 2000
    path.write_text("".join(lines(*TRUE, job=f"8123.{n:03}") for n in range(count)))
    jobs = [
        replace(
            held(n, code=CODE, subcode=SUBCODE, reason=REASON, age=AGE),
            log=str(path),
            since=time.time() - AGE,
        )
        for n in range(count)
    ]
    healer = Healer(Desk(jobs), tmp_path / "heal.jsonl", RULES, do=False)
    begin = time.process_time()
    assert len(healer.look()) == count
    assert time.process_time() - begin < 15
    healer.close()


def test_a_clock_that_is_set_back_does_not_stall_heal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue says for an hour that the job was held just now; heal knows better."""
    job = replace(held(0, code=11, subcode=0, age=0.0), log="", since=time.time() + 3600)
    rules = Rules(backoff=0.3, most_wait=0.3)
    desk = Desk([job])
    healer = Healer(desk, tmp_path / "heal.jsonl", rules, do=True)
    try:
        (first,) = healer.look()
        assert first.verb is Verb.WAIT and healer.due <= time.monotonic() + 1.0
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() - 3600)
        assert healer.due <= time.monotonic() + 1.0, "it would sleep for an hour"
        time.sleep(0.4)
        (second,) = healer.look()
        assert second.verb is Verb.RELEASE and len(desk.asked) == 1
    finally:
        healer.close()
    # The next heal reads what lies an hour ahead by its clock: it counts as now.
    records = list(read_audit(tmp_path / "heal.jsonl"))
    now = time.time()
    assert max(record["time"] for record in records) > now + 3000
    state = HealState.of(records, rules, latest=now)
    (entry,) = state.by_id.values()
    assert entry.intent.time == entry.tried == now and state.in_last_hour(now).total() == 1


def test_what_is_said_of_the_next_look_is_true(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wait may last half an hour, and heal looks at all of its jobs every few minutes."""
    own = release_expression(Retries())
    job = replace(held(0, code=11, subcode=0, age=1.0, PeriodicRelease=own), log="")
    healer = Healer(Desk([job]), tmp_path / "heal.jsonl", RULES, do=True)
    try:
        (decision,) = healer.look()
        assert decision.verb is Verb.WAIT and decision.due - time.time() > 1700
        HealPrinter(as_json=False).looked(healer)
        look = time.time() + healer.due - time.monotonic()
        said = capsys.readouterr().out
        times = {time.strftime("%H:%M:%S", time.localtime(look + n)) for n in (-1, 0, 1)}
        assert any(f"looks again at {at}, or when its log has news" in said for at in times), said
    finally:
        healer.close()


def test_many_jobs_without_a_log_are_asked_about_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A constraint that names thousands of jobs is too long for a command, and for a schedd."""
    asked: list[Key] = []

    def where(keys: Sequence[Key]) -> Mapping[Key, QueuedJob]:
        assert len(keys) <= 100
        asked.extend(keys)
        return {}

    desk, keys = Desk([]), [Key(7, proc) for proc in range(0, 500, 2)]
    monkeypatch.setattr(desk, "where", where)
    healer = Healer(desk, tmp_path / "heal.jsonl", RULES, do=True)
    try:
        now = time.time()
        for key in keys:
            one = Intent(f"me/{key}", now, "release", key, "ann", 1, now, 13, 0, claim="me/1/1")
            healer.state.take({"kind": "intent", "intent": one.as_json(), "time": now})
            healer.state.take({"kind": "result", "id": one.id, "done": True, "time": now})
        healer.look()
        assert asked == keys and not healer.state.open
    finally:
        healer.close()
