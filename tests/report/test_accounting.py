"""Accounting: every second of a job is in one piece, and every lost one has a cause."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples_of import examples
from tests.report.columns import Made, made_columns
from tests.report.spent import accounts_of, adds_up, spent

from headway.events.columnar.columns import NONE
from headway.events.event import Kind
from headway.events.life import Life, step
from headway.report.accounting import account
from headway.report.accounts import Accounts
from headway.report.tables import Texts
from headway.report.timeline import StateTable

IN, ARRIVED, RUN = Kind.INPUT_STARTED, Kind.INPUT_FINISHED, Kind.EXECUTING
OUT, SENT = Kind.OUTPUT_STARTED, Kind.OUTPUT_FINISHED

MOMENTS = st.one_of(
    st.integers(0, 10_000).map(float), st.floats(0, 1e6, allow_nan=False, allow_infinity=False)
)
EVENTS = st.builds(
    Made,
    time=MOMENTS,
    kind=st.sampled_from(Kind),
    proc=st.integers(0, 2),
    cluster=st.integers(1, 2),
    code=st.sampled_from([12, 13, 34, 47, 1007, 1008, 1022]),
    value=st.sampled_from([0, 1, 81, 84, 85]),
    text=st.sampled_from(["", "a", "b", "transfer stalled for 3600 seconds"]),
    site=st.sampled_from(["", "CHTC-Spark-CE1"]),
    log=st.integers(0, 1),
)


@settings(max_examples=examples(400), deadline=None)
@given(st.lists(EVENTS, max_size=40), st.booleans())
def test_the_pieces_of_a_job_add_up_to_its_time(events: list[Made], in_order: bool) -> None:
    if in_order:
        events = sorted(events, key=lambda event: event.time)
    accounts = account(made_columns(events))
    adds_up(accounts)
    assert accounts.jobs["attempts"].sum() == accounts.attempts.height


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(EVENTS, min_size=1, max_size=30), st.integers(0, 2))
def test_a_job_is_accounted_for_itself(events: list[Made], proc: int) -> None:
    """Other jobs in the log change nothing in a job that has ended."""
    events = [Made(**(vars(e) | {"cluster": 1, "log": 0})) for e in events]
    ended = [*events, Made(2e6, Kind.SUCCEEDED, proc=proc)]
    alone = account(made_columns([e for e in ended if e.proc == proc]), until=3e6)
    among = account(made_columns(ended), until=3e6)
    columns = ["outcome", "attempts", "total_s", "good_s", "bad_s", "queued_s", "held_s", "holds"]

    def jobs(accounts: Accounts) -> list[tuple[object, ...]]:
        return accounts.jobs.filter(pl.col("proc") == proc).select(columns).rows()

    assert jobs(alone) == jobs(among)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.lists(st.sampled_from(Kind), min_size=1, max_size=12), min_size=1, max_size=90))
def test_many_lives_at_once_are_the_same_lives(jobs: list[list[Kind]]) -> None:
    first = np.cumsum([0, *map(len, jobs)])[:-1]
    lives = StateTable()
    cells = lives.cells(np.array([k for job in jobs for k in job], np.uint8), first).tolist()
    expected = []
    for job in jobs:
        life = Life()
        for kind in job:
            life, effect = step(life, kind)
            expected.append((life, effect))
    assert [(lives.met[cell // 256], cell % 256) for cell in cells] == expected


def test_a_success_is_good_throughout() -> None:
    accounts = accounts_of(
        [
            (0, Kind.SUBMITTED),
            (10, Kind.INPUT_QUEUED),
            (15, IN),
            (45, ARRIVED),
            (46, RUN),
            (146, OUT),
            (150, SENT),
            (151, Kind.SUCCEEDED),
        ]
    )
    assert spent(accounts) == {
        ("queued", "none", "none"): 10,
        ("waiting", "good", "none"): 5,
        ("transfer-in", "good", "none"): 30,
        ("starting", "good", "none"): 1,
        ("compute", "good", "none"): 100,
        ("transfer-out", "good", "none"): 5,
    }
    job = accounts.jobs.row(0, named=True)
    assert (job["outcome"], job["good_compute_s"], job["transfer_s"]) == ("success", 100, 30)


def test_a_transfer_that_is_cut_off_is_an_attempt_with_a_cause() -> None:
    stall = "Error from slot1: Input File transfer stalled for 3600 seconds"
    accounts = account(
        made_columns(
            [
                Made(0, Kind.SUBMITTED),
                Made(10, IN),
                Made(3610, Kind.REMOTE_ERROR, text=stall, slot="slot1@node7"),
                Made(3612, Kind.EVICTED, code=1007, subcode=0, text=stall),
                Made(3620, IN),
                Made(3700, ARRIVED),
                Made(3700, RUN, site="CHTC-Spark-CE1", slot="slot2@node8"),
                Made(3800, Kind.SUCCEEDED, value=0),
            ]
        )
    )
    adds_up(accounts)
    assert accounts.attempts["ending"].to_list() == ["transfer-cut", "success"]
    assert accounts.attempts["site"].to_list() == ["node7", "CHTC-Spark-CE1"]
    assert accounts.attempts["transfer_in_s"].to_list() == [3602, 80]
    job = accounts.jobs.row(0, named=True)
    assert (job["stalls"], job["evictions"], job["attempts"]) == (1, 0, 2)
    assert (job["last_transfer_s"], job["transfer_s"], job["bad_s"]) == (80, 3682, 3602)


def test_a_hold_explains_the_eviction_just_before_it() -> None:
    reason = "Transfer input files failure: 404 page not found"
    accounts = account(
        made_columns(
            [
                Made(0, Kind.SUBMITTED),
                Made(5, IN),
                Made(6, Kind.TRANSFER_FAILED, code=13, subcode=256, text="other words"),
                Made(6, Kind.HELD, code=13, subcode=256, text=reason),
                Made(106, Kind.RELEASED),
                Made(110, RUN),
                Made(120, Kind.HELD, code=34, subcode=102, text="memory"),
            ]
        ),
        until=200,
    )
    adds_up(accounts)
    assert accounts.attempts["ending"].to_list() == ["transfer-failed", "hold"]
    assert accounts.attempts["reason"].to_list() == [reason, "memory"]
    assert accounts.jobs.row(0, named=True)["evictions"] == 0
    assert accounts.holds["held_s"].to_list() == [100, 80]
    assert accounts.holds["released"].to_list() == [106, None]
    assert accounts.holds["attempt"].to_list() == [0, 1]


def test_the_agents_phases_are_told_apart_within_execution() -> None:
    def line(at: float, kind: Kind, nonce: str = "n1") -> Made:
        return Made(at, kind, text=nonce)

    events = [
        Made(0, RUN),
        line(1, Kind.CHECK),
        line(5, Kind.STAGE_IN),
        line(20, Kind.RUN, "forged"),
        line(65, Kind.RUN),
        line(165, Kind.STAGE_OUT),
        line(170, Kind.DONE),
        Made(171, Kind.FAILED, value=81),
    ]
    accounts = account(made_columns(events))
    adds_up(accounts)
    attempt = accounts.attempts.row(0, named=True)
    assert attempt["transfer_in_s"] == 60
    assert attempt["compute_s"] == 101  # the second before the agent speaks is the command's
    assert (attempt["starting_s"], attempt["transfer_out_s"]) == (4, 6)
    assert attempt["ending"] == "transfer-failed"
    assert attempt["agent_transfer"]
    plain = account(made_columns([Made(0, RUN), Made(9, Kind.FAILED, value=81)]))
    assert plain.attempts["ending"].to_list() == ["failed"]


def test_a_node_that_is_lost_is_a_disconnect_once() -> None:
    accounts = account(
        made_columns(
            [
                Made(0, RUN),
                Made(50, Kind.DISCONNECTED),
                Made(60, Kind.RECONNECT_FAILED, text="Job not found"),
                Made(60, Kind.EVICTED, code=1008, text="Job not found"),
                Made(70, RUN),
                Made(80, Kind.DISCONNECTED),
                Made(90, Kind.RECONNECTED),
                Made(100, Kind.SUCCEEDED),
            ]
        )
    )
    adds_up(accounts)
    assert accounts.attempts["ending"].to_list() == ["disconnect", "success"]
    assert accounts.jobs["evictions"].to_list() == [1]
    assert spent(accounts)[("disconnected", "bad", "disconnect")] == 10
    assert spent(accounts)[("disconnected", "good", "none")] == 10


def test_a_missing_output_makes_a_wrong_output_of_a_success() -> None:
    events = [(0.0, RUN), (10.0, Kind.SUCCEEDED)]
    assert accounts_of(events, outputs={(1, 0): True}).jobs["outcome"].to_list() == ["success"]
    missing = accounts_of(events, outputs={(1, 0): False})
    assert missing.jobs["outcome"].to_list() == ["failed"]
    assert missing.jobs["good_s"].to_list() == [0]


def test_two_logs_that_tell_of_the_same_job_count_once() -> None:
    mine = [
        Made(0, Kind.SUBMITTED),
        Made(5, RUN, site="A"),
        Made(9, Kind.ALIVE),
        Made(15, Kind.SUCCEEDED),
    ]
    pool = [Made(**(vars(e) | {"log": 1})) for e in mine]
    twice = account(made_columns([*mine, *pool[:2], pool[3]]))
    assert twice.jobs.height == 1
    assert twice.attempts.height == 1
    assert twice.jobs["total_s"].to_list() == [15]


def test_the_same_id_at_two_access_points_is_two_jobs() -> None:
    here = [Made(0, Kind.SUBMITTED), Made(5, RUN), Made(15, Kind.SUCCEEDED)]
    there = [Made(100, Kind.SUBMITTED, log=1), Made(105, RUN, log=1), Made(125, Kind.FAILED, log=1)]
    accounts = account(made_columns([*here, *there]))
    assert accounts.jobs["outcome"].to_list() == ["success", "failed"]
    assert accounts.jobs["total_s"].to_list() == [15, 25]
    assert accounts.jobs["log"].to_list() == ["log0", "log1"]


def test_a_clock_that_goes_back_costs_no_negative_time() -> None:
    accounts = accounts_of(
        [(100, Kind.SUBMITTED), (150, RUN), (90, Kind.ALIVE), (160, Kind.SUCCEEDED)]
    )
    adds_up(accounts)
    assert accounts.jobs["total_s"].to_list() == [60]


def test_since_leaves_out_jobs_that_ended_before() -> None:
    events = [
        Made(0, RUN, proc=0),
        Made(10, Kind.SUCCEEDED, proc=0),
        Made(5, RUN, proc=1),
        Made(20, Kind.SUCCEEDED, proc=1),
    ]
    accounts = account(made_columns(events), since=15)
    assert accounts.jobs["proc"].to_list() == [1]
    assert accounts.jobs["good_s"].to_list() == [15]
    assert account(made_columns(events), since=1e9).jobs.height == 0


def test_a_log_without_events_has_empty_accounts() -> None:
    accounts = account(made_columns([]))
    assert (accounts.jobs.height, accounts.attempts.height, accounts.pieces.height) == (0, 0, 0)


def test_an_attempt_without_001_is_at_the_only_site_that_its_machine_was_ever_at() -> None:
    events = [
        Made(0, RUN, site="A", slot="slot1@m1"),
        Made(5, Kind.SUCCEEDED),
        Made(0, IN, proc=1),
        Made(9, Kind.REMOTE_ERROR, proc=1, slot="slot2@m1"),
        Made(9, Kind.EVICTED, proc=1, code=1007),
        Made(10, IN, proc=1, slot="slot1@m2"),
        Made(19, Kind.EVICTED, proc=1, code=1007),
    ]
    assert account(made_columns(events)).attempts["site"].to_list() == ["A", "A", "m2"]
    moved = [*events, Made(0, RUN, proc=2, site="B", slot="slot1@m1")]
    assert account(made_columns(moved)).attempts["site"].to_list()[:2] == ["A", "m1"]


def test_forged_lines_neither_stage_in_nor_run() -> None:
    honest = [Made(0, RUN), Made(1, Kind.CHECK, text="n1"), Made(9, Kind.SUCCEEDED)]
    forged = [Made(2, Kind.STAGE_IN, text="x"), Made(3, Kind.RUN, text="x")]
    late = [Made(10, Kind.STAGE_IN, text="n1")]
    attempt = account(made_columns([*honest[:2], *forged, honest[2], *late])).attempts
    assert attempt["agent_transfer"].to_list() == [False]
    assert attempt["transfer_in_s"].to_list() == [0]


def test_holds_lie_end_to_end_and_none_follows_the_end() -> None:
    accounts = account(
        made_columns(
            [
                Made(0, RUN),
                Made(10, Kind.HELD, code=3),
                Made(30, Kind.HELD, code=26),
                Made(70, Kind.RELEASED),
                Made(80, RUN),
                Made(90, Kind.SUCCEEDED),
                Made(91, Kind.HELD, code=1),
                Made(92, Kind.REQUEUED),
            ]
        )
    )
    assert accounts.holds["held_s"].to_list() == [20, 40]
    assert accounts.holds["released"].to_list() == [None, 70]
    job = accounts.jobs.row(0, named=True)
    assert (job["holds"], job["hold_code"], job["held_s"], job["requeues"]) == (2, 26, 60, 0)


def test_a_hold_explains_the_eviction_whatever_stands_between() -> None:
    between = [Made(10, Kind.OTHER)] * 5 + [Made(10, Kind.ALIVE), Made(11, Kind.EVICTED)]
    hold = Made(12, Kind.HELD, code=34, text="memory")
    accounts = account(made_columns([Made(0, RUN), Made(10, Kind.EVICTED), *between, hold]))
    assert accounts.attempts["ending"].to_list() == ["hold"]
    assert accounts.jobs["evictions"].to_list() == [0]


def test_a_command_that_ended_had_started() -> None:
    accounts = accounts_of([(0, Kind.SUBMITTED), (100, Kind.SUCCEEDED)])
    assert accounts.attempts["executed"].to_list() == [True]
    removed = accounts_of([(0, Kind.SUBMITTED), (100, Kind.REMOVED)])
    assert removed.attempts.height == 0


def test_a_parallel_job_is_at_no_site_of_its_own() -> None:
    accounts = account(made_columns([Made(0, RUN, host="MPI_job"), Made(9, Kind.SUCCEEDED)]))
    assert accounts.attempts["site"].to_list() == [None]


@pytest.mark.parametrize(
    ("kind", "code", "subcode", "reason", "ending"),
    [
        (
            Kind.HELD, 12, 2,
            "Transfer output files failure at access point ap1 while receiving files from"
            " execution point slot1@n1. Details: writing to file /home/alice/out/model.pt:"
            " (errno 2) No such file or directory",
            "transfer-failed",
        ),
        (
            Kind.HELD, 12, 2,
            "Transfer output files failure at execution point slot1@n1 while sending files to"
            " access point ap1. Details: reading from file /var/execute/dir_1/model.pt:"
            " (errno 2) No such file or directory",
            "failed",
        ),
        (
            Kind.SHADOW_EXCEPTION, NONE, NONE,
            "Error from slot1@n1: Job wrapper failure: the wrapper exited with status 1",
            "bad-node",
        ),
        (Kind.HELD, 47, 0, "The job exceeded allowed execute duration of 20:00:00", "over-time"),
        (Kind.HELD, 26, 102, "Used more than 4 CPUs", "hold"),
    ],
)  # fmt: skip
def test_the_cause_goes_by_the_words(
    kind: Kind, code: int, subcode: int, reason: str, ending: str
) -> None:
    events = [Made(0, RUN), Made(9, kind, code=code, subcode=subcode, text=reason)]
    assert account(made_columns(events)).attempts["ending"].to_list() == [ending]


def test_an_old_log_says_in_words_what_a_code_would() -> None:
    reason = "Error from slot1@m1: STARTER at 10.0.0.7 failed to send file(s) to <10.0.0.1:9618>"
    for code, ending in (
        (NONE, "transfer-failed"),
        (13, "transfer-failed"),
        (26, "transfer-failed"),
    ):
        events = [Made(0, RUN), Made(9, Kind.HELD, code=code, text=reason)]
        assert account(made_columns(events)).attempts["ending"].to_list() == [ending]


def test_a_text_that_was_not_taken_is_null() -> None:
    columns = replace(made_columns([]), strings=["a", "b", "c"])
    texts = Texts(columns, np.array([0, 2]))
    assert texts.of(np.array([0, 1, 2, -1])).to_list() == ["a", None, "c", None]
