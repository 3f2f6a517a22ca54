"""The fold: what events say about a job, in whatever order they come."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.cli.job_text import fetching_words
from headway.events import (
    TERMINAL,
    Direction,
    Event,
    EventType,
    EventWriter,
    Jobs,
    JobState,
    Outcome,
    Stage,
    Status,
    fold,
)
from headway.events.format import TRANSFER_TEXTS
from headway.node.errors import MEANING, Exit

Act = Callable[[EventWriter], object]
Job = Callable[[Act], JobState]
IN, OUT = Direction.INPUT, Direction.OUTPUT
J = (1, 0)


def start(w: EventWriter, site: str = "Site") -> None:
    w.transfer(*J, IN, Stage.STARTED, host="<n>")
    w.transfer(*J, IN, Stage.FINISHED)
    w.executing(*J, "<n>", slot="slot1@node", attributes={"GLIDEIN_ResourceName": site})


def test_a_job_from_beginning_to_end(job: Job) -> None:
    def act(w: EventWriter) -> None:
        w.submitted(*J, "ap", time=100)
        w.transfer(*J, IN, Stage.QUEUED, time=110)
        w.transfer(*J, IN, Stage.STARTED, time=111)
        w.executing(*J, "<n>", slot="slot1@node", time=112)
        w.transfer(*J, IN, Stage.FINISHED, time=112)  # late, as on real pools
        w.transfer(*J, OUT, Stage.STARTED, time=200)
        w.transfer(*J, OUT, Stage.FINISHED, time=201)
        w.terminated(*J, return_value=0, time=202)

    state = job(act)
    assert (state.submitted, state.started, state.ended, state.since) == (100, 112, 202, 202)
    assert (state.attempts, state.checkpoints, state.site) == (1, 0, "node")
    assert (state.status, state.outcome, state.failure) == (Status.COMPLETED, Outcome.SUCCESS, None)
    assert json.loads(json.dumps(state.as_dict()))["outcome"] == "success"


@pytest.mark.parametrize("code", [1, 255, *MEANING])
def test_exit_codes(job: Job, code: int) -> None:
    state = job(lambda w: w.terminated(*J, return_value=code))
    assert state.outcome is (Outcome.FAILURE if code else Outcome.SUCCESS)
    assert state.failure == (Exit(code) if code in MEANING and code else None)
    if code:
        assert state.why.startswith("failed: ")
        assert f"exit code {code}" in state.why


def test_signals(job: Job) -> None:
    state = job(lambda w: w.terminated(*J, signal=9))
    assert (state.outcome, state.signal) == (Outcome.FAILURE, 9)
    assert state.why == "failed: killed by signal 9"


def test_the_agents_phases(job: Job) -> None:
    def act(*lines: str) -> Act:
        def write(w: EventWriter) -> None:
            start(w)
            for line in lines:
                w.generic(*J, f"headway {line}")

        return write

    begin = "nonce=a phase=stage-in state=begin"
    moved = "nonce=a phase=stage-in state=progress bytes=5 total=10"
    state = job(act(begin, moved))
    assert (state.phase, state.progress_bytes, state.progress_total) == ("stage-in", 5, 10)
    assert state.status is Status.RUNNING
    state = job(act(begin, moved, "nonce=a phase=run state=begin"))
    assert (state.phase, state.progress_bytes, state.progress_total) == ("run", None, None)
    state = job(
        act(begin, "nonce=b phase=run state=begin", "phase=run", "nonce=a bytes=x total=-1")
    )
    assert (state.phase, state.foreign, state.progress_bytes) == ("stage-in", 2, None)


def test_the_file_under_way(job: Job) -> None:
    def act(*lines: str) -> Act:
        def write(w: EventWriter) -> None:
            start(w)
            for line in lines:
                w.generic(*J, f"headway nonce=a phase=stage-in {line}")

        return write

    moved = (
        "state=progress bytes=51 total=110 file=in/train%20a.tar done=41 size=100 rate=38000000"
        " from=cache.one:8443/active/30+cache.two/active/11+cache.three/benched/0"
    )
    state = job(act("state=begin", moved))
    assert state.progress_file == "in/train a.tar"
    assert (state.progress_file_bytes, state.progress_file_size) == (41, 100)
    assert (state.progress_rate, state.progress_sources) == (38_000_000, 2)
    assert fetching_words(state) == "fetching in/train a.tar 41 %, 38 MB/s from 2 sources"
    state = job(act("state=begin", moved, "state=arrived file=in/train%20a.tar size=100"))
    assert (state.progress_bytes, fetching_words(state)) == (51, "")
    state = job(act("state=begin", "state=progress file=%1b[31m done=x size=- rate=5 from=+/+//"))
    assert "\x1b" not in fetching_words(state)


def test_a_transfer_beside_the_command(job: Job) -> None:
    def act(w: EventWriter) -> None:
        start(w)
        w.generic(*J, "headway nonce=a phase=run state=begin")
        w.generic(*J, "headway nonce=a phase=run state=progress file=a.tar done=41 size=100 rate=5")

    state = job(act)
    assert state.phase == "run"
    assert fetching_words(state) == "streaming a.tar 41 %, 5 B/s"


def test_another_attempt_has_another_nonce(job: Job) -> None:
    def act(w: EventWriter) -> None:
        w.generic(*J, "headway nonce=z phase=run state=begin")  # no attempt: nobody's line
        start(w)
        w.generic(*J, "headway nonce=a phase=run state=begin")
        w.evicted(*J, "vacated", 1022)
        start(w)
        w.generic(*J, "headway nonce=b phase=check state=begin")
        w.generic(*J, "headway nonce=a phase=run state=begin")

    state = job(act)
    assert (state.phase, state.foreign, state.attempts) == ("check", 2, 2)


def test_lines_before_the_001(job: Job) -> None:
    def act(w: EventWriter) -> None:
        w.transfer(*J, IN, Stage.STARTED)
        w.generic(*J, "headway nonce=a phase=check state=begin")
        w.executing(*J, "<n>")
        w.generic(*J, "headway nonce=a phase=stage-in state=begin")

    state = job(act)
    assert (state.phase, state.foreign) == ("stage-in", 0)


def test_after_a_checkpoint_the_agent_may_come_back_with_another_nonce(job: Job) -> None:
    def act(w: EventWriter) -> None:
        start(w)
        w.generic(*J, "headway nonce=a phase=run state=begin")
        w.generic(*J, "headway nonce=a phase=done exit=85")
        w.transfer(*J, OUT, Stage.STARTED)
        w.transfer(*J, OUT, Stage.FINISHED)
        w.generic(*J, "headway nonce=b phase=check state=begin")

    state = job(act)
    assert (state.phase, state.foreign, state.checkpoints, state.attempts) == ("check", 0, 1, 1)
    assert state.status is Status.RUNNING


def test_the_agents_own_reason_is_the_better_one(job: Job) -> None:
    def act(reason: str, exit_code: int) -> Act:
        def write(w: EventWriter) -> None:
            start(w)
            w.generic(*J, f"headway nonce=a phase=done exit={exit_code} reason={reason}")
            w.terminated(*J, return_value=83)

        return write

    assert job(act("train.py%20ended%20with%201", 83)).why == ("failed: train.py ended with 1")
    assert (
        job(act("all%20is%20well", 0)).why
        == "failed: the command failed (Headway's own exit code 83)"
    )
    assert "\n" not in job(act("a%0Ab%1B", 83)).why


@pytest.mark.parametrize("end", ["requeued", "evicted"])
def test_a_job_that_brings_its_inputs_ahead_still_waits(job: Job, end: str) -> None:
    def begun(w: EventWriter) -> None:
        w.submitted(*J, "ap", time=100)
        start(w, "NODE-A")
        w.generic(*J, "headway nonce=a phase=prefetch state=begin")

    def done(w: EventWriter) -> None:
        begun(w)
        if end == "requeued":
            w.generic(*J, "headway nonce=a phase=done exit=80 reason=the%20inputs%20are%20there")
            w.transfer(*J, OUT, Stage.STARTED)
            w.transfer(*J, OUT, Stage.FINISHED)
        w.evicted(*J, "OnExitRemove is false", requeued=end == "requeued", return_value=80)

    state = job(begun)
    assert (state.status, state.why, state.phase) == (
        Status.IDLE,
        "prefetching at NODE-A",
        "prefetch",
    )
    assert (state.attempts, state.prefetches, state.started) == (0, 1, None)
    state = job(done)
    assert state.why == ("the inputs are there" if end == "requeued" else "its inputs did not come")
    counts = state.attempts, state.prefetches, state.requeues, state.evictions, state.checkpoints
    assert (state.status, *counts) == (Status.IDLE, 0, 1, 0, 0, 0)

    def again(w: EventWriter) -> None:
        done(w)
        start(w, "NODE-B")

    state = job(again)
    assert (state.status, state.attempts, state.queue_counts) == (Status.RUNNING, 1, (0, 2))


def test_requeued_by_policy(job: Job) -> None:
    def act(w: EventWriter) -> None:
        start(w)
        w.transfer(*J, OUT, Stage.STARTED)
        w.transfer(*J, OUT, Stage.FINISHED)
        w.evicted(*J, "OnExitRemove is false", requeued=True, return_value=81)

    state = job(act)
    assert (state.status, state.requeues, state.evictions, state.checkpoints) == (
        Status.IDLE,
        1,
        0,
        0,
    )
    assert state.failure is Exit.INPUT_RETRYABLE
    assert state.why.startswith("put back to try again: failed: an input did not arrive")
    assert state.why.count("exit code") == 1
    assert "OnExitRemove" not in state.why

    def again(w: EventWriter) -> None:
        act(w)
        start(w, "Elsewhere")

    state = job(again)
    assert (state.attempts, state.return_value, state.site) == (2, None, "Elsewhere")


def test_a_checkpoint_saved_just_before_an_eviction_counts(job: Job) -> None:
    def act(code: int) -> Act:
        def write(w: EventWriter) -> None:
            start(w)
            w.transfer(*J, OUT, Stage.STARTED)
            w.transfer(*J, OUT, Stage.FINISHED)
            w.evicted(*J, "reason", code)

        return write

    assert job(act(1022)).checkpoints == 1
    assert job(act(12)).checkpoints == 0


def test_an_eviction_long_before_a_hold_still_counts(job: Job) -> None:
    def act(gap: float) -> Act:
        def write(w: EventWriter) -> None:
            start(w)
            w.evicted(*J, "vacated", 1022, time=1000)
            w.held(*J, "by user", 1, time=1000 + gap)

        return write

    assert job(act(0)).evictions == 0
    assert job(act(3600)).evictions == 1


def test_028_names_the_site_of_an_attempt_that_never_ran(job: Job) -> None:
    def act(w: EventWriter) -> None:
        w.transfer(*J, IN, Stage.STARTED)
        w.ad_information(
            *J,
            EventType.FILE_TRANSFER,
            {"MachineAttrGLIDEIN_ResourceName0": "Site", "RemoteHost": "slot1@node"},
        )
        w.held(*J, "Transfer input files failure", 13, 256)

    state = job(act)
    assert (state.site, state.slot, state.attempts, state.started) == (
        "Site",
        "slot1@node",
        1,
        None,
    )
    assert state.why == "held: Transfer input files failure (code 13, subcode 256)"


def test_what_the_log_says_cannot_reach_the_terminal() -> None:
    state = JobState(1, 0)
    state.update(Event(12, 1, 0, 0, 1.0, "Job was held.", ("\t\x1b[31mred", "\tCode 1 Subcode 2")))
    assert state.why == "held:  [31mred (code 1, subcode 2)"
    assert state.hold_reason == "[31mred"


def test_suspended_and_back(job: Job) -> None:
    state = job(start)
    for number, expected in (
        (EventType.SUSPENDED, Status.SUSPENDED),
        (EventType.DISCONNECTED, Status.DISCONNECTED),
        (EventType.RECONNECTED, Status.RUNNING),
        (EventType.UNSUSPENDED, Status.RUNNING),
        (EventType.RECONNECT_FAILED, Status.IDLE),
    ):
        state.update(Event(number, 1, 0, 0, 1.0))
        assert state.status is expected
    assert state.evictions == 1


def test_clusters_apart() -> None:
    def submit(cluster: int, proc: int) -> Event:
        return Event(0, cluster, proc, 0, 1.0)

    events = [submit(1, 0), submit(1, 1), submit(2, 0), Event(35, 2, -1, -1, 1.0)]
    events.append(Event(100, 3, 0, 0, 1.0))
    assert sorted(Jobs(events).by_id) == [(1, 0), (1, 1), (2, 0)]
    assert {job.cluster for job in fold(events).values()} == {2}
    assert sorted(fold(events, 1)) == [0, 1]
    assert fold([]) == {}


agent_lines = st.sampled_from(
    [
        "headway nonce=a phase=run state=begin",
        "headway nonce=b phase=stage-in bytes=3 total=9",
        "headway nonce=a phase=done exit=85",
        "headway phase=run",
        "hello",
    ]
)
texts = st.one_of(
    st.sampled_from(list(TRANSFER_TEXTS.values())),
    agent_lines,
    st.just("Job was evicted. Code 1022 Subcode 0"),
    st.text(max_size=20),
)
bodies = st.lists(
    st.one_of(
        st.sampled_from(
            [
                "\t(1) Normal termination (return value 0)",
                "\t(0) Abnormal termination (signal 9)",
                "\t(0) Job terminated and was requeued",
                "\tCode 13 Subcode 256",
                "\tReason: x",
                "\tSlotName: s@m",
                'MachineAttrGLIDEIN_ResourceName0 = "Site"',
            ]
        ),
        st.text(max_size=20),
    ),
    max_size=8,
).map(tuple)
numbers = st.one_of(
    st.sampled_from([0, 1, 4, 5, 8, 9, 12, 13, 22, 23, 40, 40, 40]), st.integers(0, 60)
)
events = st.builds(
    Event, numbers, st.just(1), st.just(0), st.just(0), st.floats(0, 2e9), texts, bodies
)


@given(st.lists(events, max_size=40))
@settings(deadline=None, max_examples=300)
def test_any_sequence(sequence: list[Event]) -> None:
    jobs = Jobs()
    ended: dict[str, object] | None = None
    for event in sequence:
        state = jobs.update(event)
        assert state is not None
        assert min(state.attempts, state.holds, state.evictions, state.checkpoints) >= 0
        assert (state.status in TERMINAL) == state.terminal == (state.outcome is not None)
        assert (state.ended is not None) == state.terminal
        assert not any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") for c in state.why)
        if state.status is Status.HELD:
            assert state.holds
        if state.status in (Status.RUNNING, Status.TRANSFERRING_IN, Status.TRANSFERRING_OUT):
            assert state.attempts
        now = state.as_dict() | {"events": 0}
        assert ended is None or now == ended
        ended = now if state.terminal else None
        json.dumps(now)
    assert Jobs(sequence).by_id == jobs.by_id
