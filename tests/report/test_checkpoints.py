"""Checkpoints: what one holds is as good as its job, and what came after it was done again."""

from __future__ import annotations

from tests.report.columns import Made, made_columns
from tests.report.spent import accounts_of, adds_up, spent

from headway.events.event import Kind
from headway.report.accounting import account

RUN, OUT, SENT = Kind.EXECUTING, Kind.OUTPUT_STARTED, Kind.OUTPUT_FINISHED


def test_what_a_checkpoint_saved_is_as_good_as_its_job() -> None:
    history = [
        (0.0, RUN),
        (100, OUT),
        (110, SENT),
        (111, Kind.ALIVE),
        (150, Kind.EVICTED),
        (200, RUN),
    ]
    won = accounts_of([*history, (300, Kind.SUCCEEDED)])
    adds_up(won)
    assert spent(won)[("compute", "good", "none")] == 200
    assert spent(won)[("checkpoint", "good", "none")] == 10
    assert spent(won)[("compute", "bad", "redone")] == 40
    lost = accounts_of([*history, (300, Kind.FAILED)])
    assert spent(lost)[("compute", "bad", "failed")] == 200
    assert spent(lost)[("compute", "bad", "redone")] == 40
    going = accounts_of(history, until=300)
    assert spent(going)[("compute", "open", "none")] == 200


def test_the_last_output_is_no_checkpoint() -> None:
    accounts = accounts_of([(0, RUN), (100, OUT), (110, SENT), (112, Kind.SUCCEEDED)])
    assert spent(accounts) == {
        ("compute", "good", "none"): 100,
        ("transfer-out", "good", "none"): 12,
    }
    assert accounts.jobs["checkpoints"].to_list() == [0]


def test_between_two_segments_of_an_agent_nothing_computes() -> None:
    def line(at: float, kind: Kind) -> Made:
        return Made(at, kind, text="n1")

    events = [
        Made(0, RUN),
        line(0, Kind.RUN),
        line(100, Kind.STAGE_OUT),
        line(101, Kind.DONE_CHECKPOINT),
        Made(102, OUT),
        Made(110, SENT),
        line(115, Kind.CHECK),
        line(116, Kind.RUN),
        Made(150, Kind.EVICTED),
        Made(160, RUN),
        Made(170, Kind.SUCCEEDED),
    ]
    accounts = account(made_columns(events))
    adds_up(accounts)
    assert spent(accounts) == {
        ("compute", "good", "none"): 110,
        ("checkpoint", "good", "none"): 15,
        ("starting", "bad", "eviction"): 1,
        ("compute", "bad", "redone"): 34,
        ("queued", "none", "none"): 10,
    }


def test_a_log_may_begin_with_the_end_of_a_checkpoint() -> None:
    accounts = accounts_of(
        [(0, OUT), (5, SENT), (6, Kind.ALIVE), (20, Kind.EVICTED), (30, RUN), (40, OUT)]
    )
    adds_up(accounts)
    assert accounts.attempts["checkpoints"].to_list() == [1, 0]
    assert spent(accounts)[("checkpoint", "open", "none")] == 5
    assert spent(accounts)[("compute", "bad", "redone")] == 15


def test_a_command_computes_on_after_its_checkpoint_until_it_is_evicted() -> None:
    """Nothing has to be in the log between: sizes that do not change are not told."""
    won = accounts_of(
        [
            (0, RUN),
            (100, OUT),
            (110, SENT),
            (111, Kind.OTHER),
            (700, Kind.EVICTED),
            (800, RUN),
            (900, Kind.SUCCEEDED),
        ]
    )
    assert spent(won) == {
        ("compute", "good", "none"): 200,
        ("checkpoint", "good", "none"): 10,
        ("compute", "bad", "redone"): 590,
        ("queued", "none", "none"): 100,
    }


def test_what_was_saved_is_lost_by_what_cost_the_job_its_result() -> None:
    def line(at: float, kind: Kind) -> Made:
        return Made(at, kind, text="n1")

    events = [
        Made(0, RUN),
        line(0, Kind.RUN),
        line(100, Kind.DONE_CHECKPOINT),
        Made(100, OUT),
        Made(110, SENT),
        Made(120, Kind.EVICTED),
        Made(130, RUN),
        line(130, Kind.RUN),
        Made(200, Kind.FAILED, value=86),
    ]
    accounts = account(made_columns(events))
    assert spent(accounts)[("compute", "bad", "over-time")] == 170
    assert spent(accounts)[("checkpoint", "bad", "over-time")] == 20


def test_a_node_that_came_back_before_the_checkpoint_had_gone_on() -> None:
    accounts = accounts_of(
        [
            (0, RUN),
            (10, Kind.DISCONNECTED),
            (20, Kind.RECONNECTED),
            (30, OUT),
            (35, SENT),
            (35, Kind.EVICTED),
            (40, RUN),
            (50, Kind.SUCCEEDED),
        ]
    )
    assert spent(accounts)[("disconnected", "good", "none")] == 10
