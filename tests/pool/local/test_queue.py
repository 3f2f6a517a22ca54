"""The queue: whatever happens, its log tells the same story to one who reads it later."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.events import EventWriter, read_log
from headway.pool.base import Action
from headway.pool.folder import RunFolder
from headway.pool.local.attempt import ResourceUsage, RunningAttempt
from headway.pool.local.job import LocalJob
from headway.pool.local.machine import Claim, Site
from headway.pool.local.queue import HoldReason, Queue, QueueEntry, QueueState
from headway.spec import Retries, build_job

from .house import judge

SITES = [Site(name, cpus=2, memory=10**9, disk=10**9) for name in "ABCDEF"]
JOBS = 3


def make_job(**more: object) -> LocalJob:
    raw = {"name": "q", "command": "true", "count": JOBS, "retries": {"command": 2}, **more}
    return LocalJob.of(build_job(raw, folder=Path("/")).model_dump())


TEXT = st.text(max_size=60)
STEPS = st.lists(
    st.tuples(
        st.integers(0, JOBS - 1),
        st.one_of(
            st.tuples(st.just("start"), st.sampled_from(SITES)),
            st.tuples(st.just("exit"), st.sampled_from([0, 1, 80, 81, 82, 83, 84, 86, 87, -9])),
            st.tuples(st.just("evict"), st.booleans()),
            st.tuples(st.just("act"), st.sampled_from(list(Action))),
            st.tuples(st.just("edit"), st.sampled_from(["RequestMemory", "RequestCpus", "Other"])),
            st.tuples(st.just("say"), TEXT),
            st.tuples(st.just("begin"), st.sampled_from(["a-1", "b-2"])),
            st.tuples(st.just("checkpoint"), st.none()),
            st.tuples(st.just("fail"), st.sampled_from([5, 28])),
            st.tuples(st.just("due"), st.none()),
        ),
        TEXT,
    ),
    max_size=25,
)


def take_step(queue: Queue, entry: QueueEntry, step: tuple[str, object], text: str) -> None:
    kind, value = step
    runs, idle = entry.status == "running", entry.status == "idle"
    if kind == "start" and idle:
        assert isinstance(value, Site)
        claim = Claim(value.name, 1, 10**6, 10**6, ("GPU-1",))
        folder = RunFolder(Path(f"/nowhere/runs/x{text}".replace("\0", "")))
        queue.started(entry, RunningAttempt(folder, entry.index, entry.starts + 1, value, claim, 1))
    elif kind == "exit" and runs:
        assert isinstance(value, int)
        queue.exited(entry, value, ResourceUsage(busy=2, executed=1.5, user=1, gpus=("GPU-1",)))
    elif kind == "evict" and runs:
        queue.evicted(entry, ResourceUsage(), text, held=HoldReason(text) if value else None)
    elif kind == "act" and not runs:
        assert isinstance(value, Action)
        queue.act(entry, value, text)
    elif kind == "edit":
        queue.edit(entry, str(value), "77")
    elif kind == "say" and entry.status != "over":
        queue.log_line(entry.index, str(value))
    elif kind == "begin" and runs:
        line = f"headway nonce=00 phase=check state=begin t=1.0 attempt={value} segment=1"
        queue.log_line(entry.index, line)
    elif kind == "checkpoint" and runs:
        queue.checkpointed(entry)
    elif kind == "fail" and idle:
        queue.start_failed(entry, OSError(value, text))
    elif kind == "due":
        queue.release_due()


def known(entries: QueueState) -> list[object]:
    told: list[object] = [
        {**vars(entry), "since": None, "moved": None, "plain": entry.plain}
        for entry in map(entries.get, range(3))
        if entry is not None
    ]  # fmt: skip
    waiting = [entry.index for entry in entries.odd()]
    first = entries.first_plain()
    return [told, entries.ads(), entries.has_work(), sorted(waiting), first and first.index]


@settings(max_examples=80, deadline=None)
@given(STEPS)
def test_the_log_read_again_gives_the_same_queue(
    steps: list[tuple[int, tuple[str, object], str]],
) -> None:
    job = make_job()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.log"
        queue = Queue(EventWriter(path), 7, job)
        queue.submit_missing("<127.0.0.1:0>")
        for index, step, text in steps:
            take_step(queue, queue[index], step, text)
        queue.sync()
        queue.close()
        log = read_log(path)
        assert not log.skipped
        again = QueueState(7, job)
        again.replay(log.events)
        assert known(again) == known(queue)
        for index in range(JOBS):
            assert abs(again[index].since - queue[index].since) < 2
        assert judge(path) == len(log.events)


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    made = Queue(EventWriter(tmp_path / "events.log"), 1, make_job())
    made.submit_missing("<a>")
    return made


def start(queue: Queue, entry: QueueEntry, site: Site) -> None:
    claim = Claim(site.name, 1, 1, 1)
    queue.started(
        entry, RunningAttempt(RunFolder(Path("/x/runs/a-1")), entry.index, 1, site, claim, 1)
    )


def test_a_failure_avoids_the_site_for_a_while(queue: Queue) -> None:
    entry = queue[0]
    start(queue, entry, SITES[0])
    queue.exited(entry, 83, ResourceUsage())
    assert entry.status == "idle" and not entry.plain
    assert [site.name for site in queue.sites_for(entry, SITES)] == list("BCDEF")
    assert [site.name for site in queue.sites_for(entry, SITES[:1])] == ["A"]  # nowhere else to go
    entry.moved -= 4 * Retries().avoid + 1
    assert len(queue.sites_for(entry, SITES)) == 6


def test_the_users_own_hold_is_no_failure(queue: Queue) -> None:
    entry = queue[0]
    start(queue, entry, SITES[0])
    queue.evicted(entry, ResourceUsage(), "by hand", held=HoldReason("by hand"))
    assert entry.status == "held" and entry.holds == 1
    assert not queue.act(entry, Action.RELEASE, "again")
    assert entry.plain and len(queue.sites_for(entry, SITES)) == 6


def test_a_passing_fault_is_released_once_its_pause_is_over(queue: Queue) -> None:
    entry = queue[0]
    queue.start_failed(entry, OSError(5, "Input/output error"))
    assert entry.status == "held" and queue.has_work()
    assert not queue.release_due()
    queue._due = [(time.monotonic() - 1, index) for _, index in queue._due]  # as if 60 s had passed
    entry.moved = queue._due[0][0] - 60
    assert queue.release_due() and entry.status == "idle"
    queue.start_failed(entry, OSError(28, "No space left"))  # nobody mends that by waiting
    assert not queue._due


def test_a_clock_that_is_set_back_holds_no_release_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither in the pool that wrote the hold nor in one that reads it in the log."""
    job = make_job(retries={"backoff": "0.2 s"})
    queue = Queue(EventWriter(tmp_path / "events.log"), 1, job)
    queue.submit_missing("<a>")
    queue.start_failed(queue[0], OSError(5, "Input/output error"))
    queue.sync()
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - 3600)
    again = Queue(EventWriter(tmp_path / "other.log"), 1, job)
    again.replay(read_log(tmp_path / "events.log").events)
    assert again[0].status == "held"
    time.sleep(0.3)
    for pool in (queue, again):
        assert pool.release_due() and pool[0].status == "idle"


def test_what_cannot_be_done_is_told(queue: Queue) -> None:
    entry = queue[0]
    assert queue.act(entry, Action.RELEASE, "") == "it is not held but idle"
    assert queue.act(entry, Action.EVICT, "") == "it is not running but idle"
    assert queue.act(entry, Action.HOLD, "") == ""
    assert queue.act(entry, Action.HOLD, "") == "it is already held"
    for value in ("-1", "0", "1.5", "", "²", "1e3"):
        assert "whole number" in queue.edit(entry, "RequestMemory", value)
    assert "can edit" in queue.edit(entry, "Requirements", "1")
    assert queue.act(entry, Action.REMOVE, "") == ""
    assert queue.act(entry, Action.HOLD, "") == "it has already left the queue"
    assert queue.edit(entry, "RequestMemory", "100") == "it has already left the queue"
    assert queue.get(3) is None and queue.get(-1) is None


def test_a_hundred_thousand_jobs_are_looked_at_once(tmp_path: Path) -> None:
    queue = Queue(EventWriter(tmp_path / "events.log"), 1, make_job(count=100_000))
    began = time.process_time()
    queue.submit_missing("<a>")
    for _ in range(100_000):
        first = queue.first_plain()
        assert first is not None
        queue._move(first, "over", 0.0)
    assert time.process_time() - began < 15
    assert queue.first_plain() is None
