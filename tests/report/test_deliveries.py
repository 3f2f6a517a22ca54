"""Outputs that couriers bring home: what counts, what does not, and what the report says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.report.columns import Made, made_columns
from tests.report.spent import accounts_of, adds_up, spent
from tests.report.written import BEGIN, HOST, write_log

from headway.events import Direction, EventWriter, Jobs, Stage, read_log
from headway.events.event import Kind
from headway.pool.folder import RunFolder
from headway.report import Report, report
from headway.report.accounting import account
from headway.report.accounts import Accounts
from headway.report.deliveries import delivery_figures
from headway.report.export import tables
from headway.report.figures import losses, totals
from headway.report.findings import find
from headway.report.records import read_records

GIGABYTE = 1_000_000_000
#: A job that computes for 100 s on its slot, sends its ticket for 1 s, and waits in a store.
COMPUTED: list[tuple[float, Kind]] = [
    (0, Kind.SUBMITTED),
    (10, Kind.EXECUTING),
    (11, Kind.RUN),
    (111, Kind.DONE_LATER),
    (112, Kind.REQUEUED),
]
#: A courier that comes after 8 s and sends for 30 s.
DELIVERED: list[tuple[float, Kind]] = [
    (120, Kind.INPUT_STARTED),
    (121, Kind.INPUT_FINISHED),
    (122, Kind.EXECUTING),
    (123, Kind.DELIVER),
    (125, Kind.DONE),
    (126, Kind.OUTPUT_STARTED),
    (155, Kind.SUCCEEDED),
]


def of(*events: tuple[float, Kind]) -> Accounts:
    """The accounts of one job; they add up."""
    found = accounts_of(events)
    adds_up(found)
    return found


def later(events: Sequence[tuple[float, Kind]], seconds: float) -> list[tuple[float, Kind]]:
    return [(at + seconds, kind) for at, kind in events]


def test_a_courier_is_no_attempt_and_its_time_no_slot_time() -> None:
    accounts = of(*COMPUTED, *DELIVERED)
    assert spent(accounts) == {
        ("queued", "none", "none"): 10,
        ("compute", "good", "none"): 101,
        ("transfer-out", "good", "none"): 1,
        ("stored", "none", "none"): 8,
        ("delivery", "none", "none"): 35,
    }
    found = totals(accounts)
    assert (found.succeeded, found.attempts, found.requeues, found.evictions) == (1, 1, 0, 0)
    assert (found.slot_s, found.good_s, found.bad_s) == (102, 102, 0)
    assert accounts.attempts["ending"].to_list() == ["success"]
    assert find(accounts) == []
    deliveries = found.deliveries
    assert deliveries is not None
    assert (deliveries.left, deliveries.home, deliveries.couriers) == (1, 1, 1)
    assert (deliveries.stored_s, deliveries.delivery_s) == (8, 35)
    assert (deliveries.home_mean_s, deliveries.saved_s, deliveries.bytes) == (43, 30, None)


def test_a_courier_that_is_a_job_of_its_own_is_one_too() -> None:
    """DAGMan: the command's own 005, and the events of another job, which reading maps to this."""
    computed = [*COMPUTED[:-1], (112, Kind.SUCCEEDED), (113, Kind.OTHER)]
    found = totals(of(*computed, *DELIVERED))
    assert (found.succeeded, found.attempts, found.slot_s, found.good_s) == (1, 1, 102, 102)
    assert found.deliveries is not None and found.deliveries.home == 1
    waiting = of(*computed, (150, Kind.OTHER))
    assert waiting.jobs["outcome"].to_list() == ["unfinished"]
    assert waiting.jobs["stored_s"].to_list() == [38]


def test_couriers_that_fail_cost_the_job_nothing() -> None:
    evicted = [*DELIVERED[:-1], (150, Kind.EVICTED)]
    failed = later([*DELIVERED[:-1], (150, Kind.REQUEUED)], 100)
    accounts = of(*COMPUTED, *evicted, *failed, *later(DELIVERED, 200))
    found = totals(accounts)
    assert (found.attempts, found.evictions, found.requeues, found.bad_s) == (1, 0, 0, 0)
    assert found.compute_share == pytest.approx(101 / 102)
    assert found.deliveries is not None
    assert (found.deliveries.couriers, found.deliveries.delivery_s) == (3, 95)
    assert found.deliveries.saved_s == 30  # those that brought nothing home saved nothing
    assert losses(accounts) == [] and find(accounts) == []


def test_outputs_that_were_lost_and_computed_again_are_a_loss_with_a_name() -> None:
    lost = [*DELIVERED[:4], (124, Kind.LOST), (125, Kind.DONE), (126, Kind.REQUEUED)]
    again = [(200, Kind.EXECUTING), (201, Kind.CHECK), (202, Kind.RUN), (302, Kind.SUCCEEDED)]
    accounts = of(*COMPUTED, *lost, *again)
    (loss,) = losses(accounts)
    assert (loss.cause, loss.seconds, loss.attempts) == ("lost-sandbox", 102, 1)
    found = totals(accounts)
    assert (found.attempts, found.requeues, found.good_s) == (2, 0, 102)
    assert accounts.attempts["ending"].to_list() == ["lost-sandbox", "success"]
    assert found.deliveries is not None
    assert (found.deliveries.lost, found.deliveries.home, found.deliveries.saved_s) == (1, 0, None)
    (finding,) = find(accounts)
    assert finding.key == "lost:lost-sandbox" and "outputs lost on their way home" in finding.title


def test_a_job_that_stops_being_a_courier_computes_from_its_first_second_on() -> None:
    """Past the deadline it matches an ordinary slot; its agent says so only when it runs."""
    again = [
        (500, Kind.INPUT_STARTED),
        (510, Kind.INPUT_FINISHED),
        (511, Kind.EXECUTING),
        (512, Kind.CHECK),
        (513, Kind.RUN),
        (613, Kind.SUCCEEDED),
    ]
    accounts = of(*COMPUTED, *again)
    found = totals(accounts)
    assert (found.attempts, found.slot_s, found.transfer_s) == (2, 215, 10)
    assert accounts.jobs["stored_s"].to_list() == [388]
    assert accounts.jobs["delivery_s"].to_list() == [0]


def test_outputs_on_their_way_are_not_decided_yet() -> None:
    for more in ([], DELIVERED[:-1]):
        accounts = of(*COMPUTED, *more, (200, Kind.OTHER))
        found = totals(accounts)
        assert (found.good_s, found.bad_s, found.open_s) == (0, 0, 102)
        assert found.deliveries is not None and found.deliveries.waiting == 1


@pytest.mark.parametrize(
    ("end", "cause"),
    [(Kind.REMOVED, "removed"), (Kind.FAILED, "failed")],
    ids=["removed", "failed"],
)
def test_a_job_that_ends_without_its_outputs_has_lost_its_compute(end: Kind, cause: str) -> None:
    accounts = of(*COMPUTED, *DELIVERED[:-1], (150, end))
    assert [(loss.cause, loss.seconds) for loss in losses(accounts)] == [(cause, 102)]
    found = delivery_figures(accounts)
    assert found is not None and (found.failed, found.home) == (1, 0)


def test_outputs_that_the_user_misses_make_a_failed_job_only_when_a_courier_was_there() -> None:
    computed = [*COMPUTED[:-1], (112, Kind.SUCCEEDED)]
    missing = {(1, 0): False}
    assert accounts_of(computed, outputs=missing).jobs["outcome"].to_list() == ["unfinished"]
    both = accounts_of([*computed, *DELIVERED], outputs=missing)
    assert both.jobs["outcome"].to_list() == ["failed"]


def test_a_hold_of_a_courier_is_the_jobs_but_ends_no_attempt() -> None:
    held = [*DELIVERED[:-1], (150, Kind.HELD), (160, Kind.RELEASED)]
    accounts = of(*COMPUTED, *held, *later(DELIVERED, 100))
    assert accounts.holds["attempt"].to_list() == [None]
    found = totals(accounts)
    assert (found.holds, found.succeeded, found.bad_s) == (1, 1, 0)


def test_a_log_that_begins_with_a_courier_has_its_time_all_the_same() -> None:
    accounts = of((0, Kind.DELIVER), (30, Kind.SUCCEEDED))
    assert accounts.jobs.select("outcome", "attempts", "delivery_s").row(0) == ("success", 0, 30)
    assert totals(accounts).deliveries is None


def test_a_courier_that_says_that_it_computes_has_no_attempt_either() -> None:
    for kind in (Kind.RUN, Kind.STAGE_IN):
        accounts = of((0, Kind.DELIVER), (10, kind), (30, Kind.SUCCEEDED))
        assert accounts.jobs["delivery_s"].to_list() == [30]
        accounts = of(*COMPUTED, *DELIVERED[:4], (124, kind), *DELIVERED[4:])
        assert accounts.jobs["delivery_s"].to_list() == [35]


def test_a_line_that_the_log_has_lost_shows_in_the_courier() -> None:
    found = totals(of(*COMPUTED[:-2], COMPUTED[-1], *DELIVERED))
    assert (found.attempts, found.good_s, found.bad_s) == (1, 102, 0)


def test_the_command_cannot_say_that_it_left_its_outputs() -> None:
    events = [Made(at, kind, text="own") for at, kind in COMPUTED]
    events.insert(3, Made(50, Kind.DONE_LATER, text="forged"))
    accounts = account(made_columns([*events[:4], Made(60, Kind.EVICTED, code=1004)]))
    assert accounts.deliveries.is_empty()
    assert accounts.attempts["ending"].to_list() == ["eviction"]


def write_deliveries(path: Path, jobs: int = 4) -> Path:
    """A log in HTCondor's words: each job leaves a gigabyte; of the first, a store lost it once."""
    courier = f"{HOST[:-1]}?alias=node>"

    def line(proc: int, at: float, words: str) -> None:
        log.generic(1, proc, f"headway nonce=n{at:.0f} {words}", time=at)

    def compute(proc: int, at: float, *, leaves: bool = True) -> float:
        site = {"GLIDEIN_ResourceName": "Site"}
        log.executing(1, proc, HOST, slot="slot1@node", attributes=site, time=at)
        log.generic(1, proc, f"headway nonce=c{at:.0f} phase=run state=begin", time=at + 1)
        said = f"sandbox=s{proc} at=node size={GIGABYTE}"
        done = f"headway nonce=c{at:.0f} phase=done state=end exit=0 {said}"
        log.generic(1, proc, done, time=at + 601)
        log.evicted(1, proc, "", requeued=True, return_value=0, sent=2_000, time=at + 602)
        return at + 602

    def deliver(proc: int, at: float, *, lost: bool = False) -> float:
        log.executing(1, proc, courier, slot="slot2@node", time=at)
        name = f"headway nonce=d{at:.0f}"
        log.generic(1, proc, f"{name} phase=deliver state=begin", time=at + 1)
        if lost:
            log.generic(1, proc, f"{name} phase=deliver state=lost sandbox=s{proc}", time=at + 2)
            log.generic(1, proc, f"{name} phase=done state=end exit=80", time=at + 2)
            log.evicted(1, proc, "", requeued=True, return_value=80, time=at + 3)
            return at + 3
        log.generic(1, proc, f"{name} phase=done state=end exit=0", time=at + 3)
        log.transfer(1, proc, Direction.OUTPUT, Stage.STARTED, host=HOST, time=at + 3)
        log.transfer(1, proc, Direction.OUTPUT, Stage.FINISHED, time=at + 123)
        log.terminated(1, proc, return_value=0, sent=GIGABYTE + 5_000, time=at + 123)
        return at + 123

    with EventWriter(path) as log, log.group():
        for proc in range(jobs):
            log.submitted(1, proc, HOST, time=BEGIN)
            end = compute(proc, BEGIN + 10)
            if not proc:
                end = compute(proc, deliver(proc, end + 20, lost=True) + 20)
            deliver(proc, end + 20)
    return path


@pytest.fixture(scope="module")
def delivered(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return report(write_deliveries(tmp_path_factory.mktemp("delivered") / "jobs.log"))


def test_status_counts_the_same(delivered: Report) -> None:
    """Couriers are no attempts there either, and what they lack is no eviction and no requeue."""
    states = Jobs(read_log(delivered.accounts.files[0]).events).by_id
    names = ["attempts", "holds", "requeues", "evictions", "checkpoints"]
    told = {(row[0], row[1]): row[2:] for row in _jobs(delivered, ["cluster", "proc", *names])}
    assert told == {
        key: tuple(getattr(state, name) for name in names) for key, state in states.items()
    }
    assert _jobs(delivered, names)[0] == (2, 0, 0, 0, 0)


def _jobs(found: Report, names: list[str]) -> list[tuple[int, ...]]:
    return found.accounts.jobs.select(names).rows()


def test_the_real_log_of_a_dag() -> None:
    """Two jobs, each with a courier that is a job of its own; its times are whole seconds."""
    found = report(str(Path(__file__).parents[1] / "events" / "dag" / "pairs.log"))
    adds_up(found.accounts)
    assert (found.totals.jobs, found.totals.succeeded, found.totals.attempts) == (2, 2, 2)
    assert found.totals.compute_share == 1
    deliveries = found.totals.deliveries
    assert deliveries is not None and deliveries.bytes == 40_000_000
    assert (deliveries.left, deliveries.home, deliveries.couriers) == (2, 2, 2)


def test_the_terminal_says_it(delivered: Report) -> None:
    text = delivered.text(100)
    rows = [line.strip() for line in text[text.index("Deliveries") :].splitlines()]
    assert rows[:7] == [
        "Deliveries  outputs that went home on transfer slots, whose time is no job's slot time",
        "outputs that couriers brought home  4 of 5, 4.0 GB",
        "outputs lost, and computed again    1",
        "time in the stores of nodes         2 min",
        "time on transfer slots              8 min, 5 couriers",
        "from hand-over to home              2 min mean",
        "slot time saved, estimated          8 min",
    ]
    assert rows[7].startswith("Slot time saved is how long these couriers took")
    assert "outputs lost on their way home" in text


def test_the_document_has_it(delivered: Report) -> None:
    document = delivered.json()
    assert document["totals"]["deliveries"] == {
        "left": 5,
        "home": 4,
        "waiting": 0,
        "lost": 1,
        "failed": 0,
        "couriers": 5,
        "bytes": 4.0 * GIGABYTE,
        "stored_s": 100.0,
        "delivery_s": 495.0,
        "home_mean_s": 143.0,
        "saved_s": 480.0,
    }
    assert document["totals"]["phases"]["delivery"] == 495.0
    assert document["jobs"][1]["delivery_s"] == 123.0


def test_the_tables_have_it(delivered: Report) -> None:
    table = tables(delivered.accounts)["deliveries"]
    assert table["job_id"].to_list() == ["1.0", "1.0", "1.1", "1.2", "1.3"]
    assert table["became"].to_list() == ["lost", "home", "home", "home", "home"]
    assert table["couriers"].to_list() == [1] * 5


def test_the_page_has_it(delivered: Report) -> None:
    page = delivered.html()
    assert "outputs that couriers brought home" in page and "transfer slot" in page


def test_the_record_of_a_courier_is_no_attempts_record(tmp_path: Path) -> None:
    for name, phase in (("computed", "run"), ("courier", "deliver")):
        record = {"cluster_proc": "1.0", "exit": 0, "phases": [{"name": phase, "begin": BEGIN}]}
        path = tmp_path / "jobs" / "0" / "attempts" / name / "record.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(record))
    assert [row["record"] for row in read_records(RunFolder(tmp_path))] == ["computed"]


def test_a_report_without_deliveries_says_nothing_of_them(tmp_path: Path) -> None:
    found = report(write_log(tmp_path / "plain.log", [0, 0, 1, None]))
    text = found.text(100, everything=True).replace(str(tmp_path), "")
    for shown in (text, str(found.json()["totals"])):
        for word in ("deliver", "courier", "stored"):
            assert word not in shown.lower()
    assert "deliveries" not in found.tables
    page = found.html()
    for word in ("courier", "Deliveries", "on their way home:"):
        assert word not in page.partition("<script")[0]


def test_the_time_in_which_inputs_come_ahead_is_no_attempt_and_no_loss() -> None:
    accounts = of(
        (0, Kind.SUBMITTED),
        (10, Kind.INPUT_STARTED),
        (11, Kind.EXECUTING),
        (12, Kind.PREFETCH),
        (40, Kind.DONE),
        (41, Kind.OUTPUT_STARTED),
        (42, Kind.REQUEUED),
        (100, Kind.EXECUTING),
        (101, Kind.RUN),
        (150, Kind.SUCCEEDED),
    )
    [job] = accounts.jobs.to_dicts()
    assert (job["attempts"], job["requeues"], job["evictions"]) == (1, 0, 0)
    assert (job["queued_s"], job["prefetch_s"], job["slot_s"]) == (68, 32, 50)
    assert (job["good_s"], job["bad_s"]) == (50, 0)
    assert accounts.deliveries.is_empty()
