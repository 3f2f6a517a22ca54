"""Outputs that wait in a node's store: what the commands say of them, by made event logs."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence

import pytest

from headway.api import Run
from headway.cli.job_text import RunJobs, elapsed_words
from headway.cli.run_summary import summary
from headway.cli.view import LineView
from headway.events import Direction, EventWriter, JobState, Outcome, Stage, Status
from headway.node.store.sandboxes import Ticket
from headway.pool.folder import RunFolder
from headway.text import ordinal

from .conftest import Done

Call = Callable[..., Done]
Make = Callable[..., RunFolder]
HOST = "<127.0.0.1:9618>"
OUT = Direction.OUTPUT
RUN = "0badcafe"  # the beginning of a run's id
HOME = 100  # what is added to a job's cluster for its courier


class Pairs:
    """Writes what a DAG of jobs and couriers writes: job n is cluster n, its courier HOME + n."""

    def __init__(self, writer: EventWriter) -> None:
        self.writer = writer

    def submit(self, jobs: int, time: float = 1000) -> None:
        for job in range(jobs):
            note = f"DAG Node: job-{RUN}-{job}"
            self.writer.submitted(job + 1, 0, HOST, notes=note, time=time)

    def start(self, cluster: int, site: str, time: float, slot: str = "slot1") -> None:
        props = {"GLIDEIN_ResourceName": site} if site else {}
        name = f"{slot}@glidein_{site or 'X'}@node.example"
        self.writer.executing(cluster, 0, HOST, slot=name, attributes=props, time=time)

    def say(self, cluster: int, text: str, time: float) -> None:
        self.writer.generic(cluster, 0, f"headway nonce=n{cluster} {text}", time=time)

    def hand_over(self, job: int, site: str, time: float, size: int = 20_000_000) -> None:
        """Compute for a minute, and leave the outputs at the site."""
        cluster = job + 1
        self.start(cluster, site, time - 60)
        self.say(cluster, "phase=run state=begin", time - 59)
        at = f"glidein_{site or 'X'}%40node.example"
        told = f"sandbox={RUN}-{job} at={at} size={size}"
        self.say(cluster, f"phase=done state=end exit=0 status=0 {told}", time)
        self.writer.terminated(cluster, 0, return_value=0, time=time)

    def send(self, job: int, time: float) -> None:
        note = f"DAG Node: courier-{RUN}-{job}"
        self.writer.submitted(HOME + job, 0, HOST, notes=note, time=time)

    def fetch(self, job: int, site: str, time: float) -> None:
        """The courier is at work."""
        self.start(HOME + job, site, time, slot="slot2")
        self.say(HOME + job, "phase=deliver state=begin", time)

    def bring(self, job: int, time: float, code: int = 0) -> None:
        self.say(HOME + job, f"phase=done state=end exit={code}", time)
        self.writer.terminated(HOME + job, 0, return_value=code, time=time)


def night(writer: EventWriter) -> None:
    """Six jobs: brought home, on its way, second and first in line, at another node, computing."""
    pairs = Pairs(writer)
    pairs.submit(6)
    for job, (site, time) in enumerate(
        [("NODE-A", 1100), ("NODE-A", 1110), ("NODE-A", 1130), ("NODE-A", 1120), ("NODE-B", 1140)]
    ):
        pairs.hand_over(job, site, time)
        pairs.send(job, time + 2)
    pairs.fetch(0, "NODE-A", 1150)
    pairs.bring(0, 1160)
    pairs.fetch(1, "NODE-A", 1160)
    pairs.start(6, "NODE-B", 1100)


def message(text: str, job: str) -> str:
    """The rest of a job's line, after the number of attempts."""
    [line] = re.findall(rf"^{re.escape(job)} .*", text, re.MULTILINE)
    return re.split(r" {2,}", line)[-1]


def test_status_says_where_outputs_wait_and_for_how_many(headway: Call, make_run: Make) -> None:
    make_run("tale", jobs=6, events=night)
    text = headway("status").stdout
    assert "tale-1 on htcondor: 1 running, 4 delivering, 1 succeeded" in text
    assert message(text, "tale-1.2") == "20 MB at NODE-A, 2nd in line"
    assert message(text, "tale-1.3") == "20 MB at NODE-A, 1st in line"
    assert message(text, "tale-1.4") == "20 MB at NODE-B, 1st in line"
    assert re.fullmatch(
        r"20 MB from NODE-A, courier since [\d: -]+, earlier ones came at 2 MB/s",
        message(text, "tale-1.1"),
    )
    for job in range(1, 5):
        [line] = re.findall(rf"^tale-1\.{job} .*", text, re.MULTILINE)
        cells = re.split(r" {2,}", line)
        assert cells[1] == "delivering" and "1 min" in cells and cells[-2] == "1"
    one = headway("status", ".2").stdout
    assert one.startswith("tale-1.2 delivering: computed; its outputs wait at NODE-A\n")
    assert "HTCondor ID  102.0" in one and "outputs      20 MB at NODE-A, 2nd in line" in one
    home = headway("status", ".0").stdout
    assert "delivered    20 MB from NODE-A in 10 s, 2 MB/s" in home
    assert "attempts     1" in home and "couriers     1" in home
    states = json.loads(headway("status", "--json").stdout)["states"]
    found = [(each["stored"], each["attempts"], each["couriers"]) for each in states]
    assert found == [(False, 1, 1), (True, 1, 1), *[(True, 1, 0)] * 3, (False, 1, 0)]
    assert [each.get("in_line") for each in states] == [None, None, 2, 1, 1, None]
    assert states[1]["rate"] is None and states[1]["rate_before"] == 2_000_000


def test_an_upload_is_told_by_its_agent(headway: Call, make_run: Make) -> None:
    def events(writer: EventWriter) -> None:
        pairs = Pairs(writer)
        pairs.submit(1)
        pairs.hand_over(0, "NODE-A", 1100)
        pairs.send(0, 1101)
        pairs.fetch(0, "NODE-A", 1110)
        moved = "bytes=5000000 total=20000000 file=out.bin"
        pairs.say(HOME, f"phase=deliver state=progress {moved}", 1115)

    make_run("tale", events=events)
    text = headway("status").stdout
    assert message(text, "tale-1.0").endswith(", sends out.bin at 1 MB/s")
    assert "5 / 20 MB" in text
    assert json.loads(headway("status", "--json").stdout)["states"][0]["rate"] == 1_000_000


def test_a_courier_that_fails_is_not_the_end_while_dagman_sends_another(make_run: Make) -> None:
    def first(writer: EventWriter) -> None:
        pairs = Pairs(writer)
        pairs.submit(1)
        pairs.hand_over(0, "NODE-A", 1100)
        pairs.send(0, 1101)
        pairs.fetch(0, "NODE-A", 1110)
        pairs.bring(0, 1120, code=84)

    folder = make_run("tale", events=first)
    run = Run(folder)
    state = run.jobs[0]
    assert state.outcome is Outcome.FAILURE and state.undelivered and run.settled()
    with EventWriter(folder.dag_log) as writer:
        writer.submitted(50, 0, HOST)
        writer.executing(50, 0, HOST)
    assert run.refresh() and not run.settled()
    with EventWriter(folder.events) as writer:
        writer.submitted(200, 0, HOST, notes=f"DAG Node: courier-{RUN}-0", time=1130)
    state = run.jobs[0]
    assert state.status is Status.DELIVERING and state.htcondor_id == "200.0"
    assert (state.ended, state.return_value) == (None, None)
    assert state.why == "another courier is to bring its outputs"
    with EventWriter(folder.events) as writer:
        pairs = Pairs(writer)
        pairs.start(200, "NODE-A", 1140, slot="slot2")
        pairs.say(200, "phase=deliver state=begin", 1140)
        pairs.say(200, "phase=done state=end exit=0", 1150)
        writer.terminated(200, 0, return_value=0, time=1150)
    state = run.jobs[0]
    assert state.outcome is Outcome.SUCCESS and (state.attempts, state.couriers) == (1, 2)
    assert not run.settled()  # DAGMan still compares what came home
    with EventWriter(folder.dag_log) as writer:
        writer.terminated(50, 0, return_value=0)
    assert run.refresh() and run.settled()


def test_nothing_more_happens_once_dagman_is_removed_before_it_sent_a_courier(
    make_run: Make,
) -> None:
    def computed(writer: EventWriter) -> None:
        pairs = Pairs(writer)
        pairs.submit(1)
        pairs.hand_over(0, "NODE-A", 1100)

    folder = make_run("tale", events=computed)
    with EventWriter(folder.dag_log) as writer:
        writer.submitted(50, 0, HOST, time=1000)
        writer.executing(50, 0, HOST, time=1001)
    run = Run(folder)
    assert run.jobs[0].status is Status.DELIVERING and not run.settled()
    with EventWriter(folder.dag_log) as writer:
        writer.aborted(50, 0, "via condor_rm", time=1102)
    assert run.refresh() and run.settled() and not run.succeeded()
    with EventWriter(folder.events) as writer:  # `headway deliveries --retry`
        Pairs(writer).send(0, 1200)
        Pairs(writer).fetch(0, "NODE-A", 1210)
    assert not run.settled()


def test_holds_are_counted_as_htcondor_counts_them(make_run: Make) -> None:
    """A courier in a DAG is another job: it has all of its releases left."""

    def events(writer: EventWriter) -> None:
        pairs = Pairs(writer)
        pairs.submit(1)
        for time in range(1001, 1006):
            writer.held(1, 0, "no space left", 12, 256, time=time)
            writer.released(1, 0, "again", time=time)
        pairs.hand_over(0, "NODE-A", 1100)
        pairs.send(0, 1101)
        pairs.fetch(0, "NODE-A", 1110)
        writer.held(HOME, 0, "no space left", 12, 256, time=1120)

    run = Run(make_run("tale", events=events))
    state = run.jobs[0]
    assert state.holds == 6 and state.queue_counts == (1, 1) and not run.settled()
    assert state.stored and state.status is Status.HELD


def test_a_held_courier_says_what_to_do(headway: Call, make_run: Make) -> None:
    def events(writer: EventWriter) -> None:
        pairs = Pairs(writer)
        pairs.submit(1)
        pairs.hand_over(0, "NODE-A", 1100)
        pairs.send(0, 1101)
        pairs.fetch(0, "NODE-A", 1110)
        writer.held(HOME, 0, "Transfer output files failure", 12, 2, time=1120)

    make_run("tale", events=events)
    text = headway("status").stdout
    assert message(text, "tale-1.0") == "Transfer output files failure; 20 MB wait at NODE-A"
    assert "to let a courier bring its outputs: headway deliveries --retry tale-1.0" in text


def own_courier(writer: EventWriter, *more: str) -> None:
    """A job without DAGMan: HTCondor puts it back into the queue, and it is its own courier."""
    writer.submitted(1, 0, HOST, time=1000)
    writer.executing(1, 0, HOST, slot="slot1@node", time=1010)
    writer.generic(1, 0, "headway nonce=a phase=run state=begin", time=1011)
    done = "headway nonce=a phase=done state=end exit=0 sandbox=s at=node size=5000"
    writer.generic(1, 0, done, time=1020)
    writer.evicted(1, 0, requeued=True, return_value=0, time=1021)
    writer.executing(1, 0, HOST, slot="slot2@node", time=1030)
    for line in more:
        writer.generic(1, 0, f"headway nonce=b {line}", time=1031)


@pytest.mark.parametrize(
    ("said", "status", "counts"),
    [
        ([], Status.DELIVERING, (1, 1)),
        (["phase=deliver state=begin"], Status.DELIVERING, (1, 1)),
        (["phase=deliver state=begin", "phase=deliver state=lost"], Status.RUNNING, (1, 1)),
        (["phase=check state=begin"], Status.RUNNING, (2, 0)),
    ],
)
def test_an_attempt_is_what_its_agent_says(
    make_run: Make, said: Sequence[str], status: Status, counts: tuple[int, int]
) -> None:
    state = Run(make_run("own", events=lambda log: own_courier(log, *said))).jobs[0]
    assert state.status is status and (state.attempts, state.couriers) == counts
    assert state.requeues == 0


def test_plain_lines_and_the_end_of_a_run(
    make_run: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    run_jobs = RunJobs(Run(make_run("own")))
    folder, view = run_jobs.run.folder, LineView(run_jobs)

    def saw(state: JobState) -> None:
        run_jobs.take(state)
        view.saw(state)

    run_jobs.run.saw = saw
    with EventWriter(folder.events) as writer:
        own_courier(writer, "phase=deliver state=begin")
        writer.transfer(1, 0, OUT, Stage.STARTED, time=1032)
        writer.transfer(1, 0, OUT, Stage.FINISHED, time=1039)
        writer.terminated(1, 0, return_value=0, time=1040)
    run_jobs.run.refresh()
    lines = [line[9:] for line in capsys.readouterr().out.splitlines()]
    assert "own-1.0 delivering: 5 kB at node, 1st in line" in lines
    assert any(re.match(r"own-1\.0 delivering: 5 kB from node, courier since ", x) for x in lines)
    assert lines[-1] == "own-1.0 succeeded"
    end = summary(run_jobs.run, run_jobs)
    assert end["succeeded"] is True and end["damaged"] == []


def test_elapsed_is_the_time_of_the_command(make_run: Make) -> None:
    def events(log: EventWriter) -> None:
        own_courier(log, "phase=deliver state=begin")
        log.terminated(1, 0, return_value=0, time=1040)

    state = Run(make_run("own", events=events)).jobs[0]
    assert (state.computed, state.delivered, state.ended) == (1020, 1040, 1040)
    assert elapsed_words(state, 5000) == "10 s"


def test_places() -> None:
    assert [ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 102, 111, 1000)] == [
        *("1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "102nd", "111th", "1,000th")
    ]


# -- headway deliveries


@pytest.fixture
def stored_run(make_run: Make) -> Callable[..., RunFolder]:
    """A run whose outputs may go home later."""

    def make(events: Callable[[EventWriter], None], jobs: int = 6, name: str = "tale") -> RunFolder:
        folder = make_run(name, jobs=jobs, events=events)
        described = json.loads(folder.job_file.read_text())
        folder.job_file.write_text(json.dumps({**described, "deliver": "later"}))
        folder.dag.write_text("")
        return folder

    return make


def put_ticket(folder: RunFolder, job: int, content: bytes = b"weights") -> None:
    """What comes home at once of a job whose outputs wait."""
    home = folder.job_folder(job)
    home.mkdir()
    digest = hashlib.sha256(content).hexdigest()
    files = [("model.pt", len(content), digest)]
    ticket = Ticket(f"{RUN}-{job}", "/store", "startd@node", files, [], 1.0, 2e9)
    (home / "ticket.json").write_bytes(ticket.as_bytes())


UNASKED = {"CONDOR_CONFIG": "/dev/null/none", "HEADWAY_PATIENCE": "2"}


def test_what_waits_is_listed_though_no_pool_answers(
    headway: Call, stored_run: Callable[..., RunFolder]
) -> None:
    folder = stored_run(night)
    put_ticket(folder, 2)
    done = headway("deliveries", env=UNASKED)
    assert "the queue was not asked: " in done.stderr
    lines = [re.split(r" {2,}", line) for line in done.stdout.splitlines()]
    assert lines[0] == ["job", "state", "size", "files", "at", "age", "why"]
    assert [line[:2] for line in lines[1:5]] == [
        ["tale-1.3", "waits"], ["tale-1.2", "waits"], ["tale-1.4", "waits"], ["tale-1.1", "coming"],
    ]  # fmt: skip
    assert lines[2][2:5] == ["20 MB", "1", "NODE-A"] and lines[2][-1].startswith("2nd in line")
    assert lines[4][-1].endswith("; earlier ones came at 2 MB/s")
    assert "to compute it again: headway deliveries --drop tale-1.3" in done.stdout
    document = json.loads(headway("deliveries", "tale-1", "--json", env=UNASKED).stdout)
    assert [each["place"] for each in document["deliveries"]] == [1, 2, 1, None]
    assert document["deliveries"][0]["deadline"] == 1120 + 4 * 3600 and document["notes"]
    one = headway("deliveries", ".4", "--json", env=UNASKED).stdout
    assert [each["job"] for each in json.loads(one)["deliveries"]] == [4]


def test_nothing_waits(headway: Call, make_run: Make) -> None:
    make_run("plain", events=lambda log: own_courier(log))
    assert headway("deliveries").stdout == "no outputs wait for their delivery\n"


def troubled(writer: EventWriter) -> None:
    """Held for a while, held for good, failed, home and damaged, computed again, removed."""
    pairs = Pairs(writer)
    pairs.submit(6)
    for job in range(6):
        pairs.hand_over(job, "NODE-A", 1100 + job)
        pairs.send(job, 1110)
        pairs.fetch(job, "NODE-A", 1120)
    reason = "Headway: the outputs could not be delivered: refused; released by itself after 60 s"
    writer.held(HOME, 0, reason, 3, 81, time=1130)
    writer.held(HOME + 1, 0, "Transfer output files failure", 12, 2, time=1130)
    pairs.bring(2, 1130, code=84)
    pairs.bring(3, 1130)
    pairs.say(HOME + 4, "phase=deliver state=lost", 1130)
    writer.evicted(HOME + 4, 0, requeued=True, return_value=80, time=1131)
    writer.aborted(HOME + 5, 0, "via headway remove", time=1130)


def test_what_needs_somebody_comes_first(
    headway: Call, stored_run: Callable[..., RunFolder]
) -> None:
    folder = stored_run(troubled)
    put_ticket(folder, 2)
    put_ticket(folder, 3)
    done = headway("deliveries", env=UNASKED)
    lines = [re.split(r" {2,}", line) for line in done.stdout.splitlines()]
    assert [line[:2] for line in lines[1:6]] == [
        ["tale-1.2", "failed"], ["tale-1.3", "damaged"], ["tale-1.0", "held"],
        ["tale-1.1", "held"], ["tale-1.4", "again"],
    ]  # fmt: skip
    whys = [line[-1] for line in lines[1:6]]
    assert "kept there until 2033-05-1" in whys[0] and "84" in whys[0]
    assert whys[1].endswith("model.pt has not arrived")
    assert re.fullmatch(
        r"the outputs could not be delivered: refused; released by itself at 1970-.*", whys[2]
    )
    assert whys[3] == "Transfer output files failure; not released by itself"
    assert whys[4].startswith("put back to try again: ")
    assert "to try again now: headway deliveries --retry tale-1.2" in done.stdout
    assert "headway run JOB.TOML --only-missing" in done.stdout
    assert re.search(
        r"  tale-1\.3 damaged: \S*/model\.pt has not arrived", headway("status").stdout
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--drop", "tale-1.1"], "a courier is bringing them; to stop it first: headway hold"),
        (["--drop", "tale-1.0"], "not dropped tale-1.0: its outputs are home"),
        (["--drop", "tale-1.5"], "nothing of it waits in a store: it is running"),
        (["--retry", "tale-1.1"], "not sent tale-1.1: a courier is at work"),
        (["--retry", "tale-1.2"], "its courier waits already: 2nd in line"),
        (["--drop", "--remove", "tale-1.2"], "cannot be reached"),
    ],
)
def test_what_cannot_be_done_is_said(
    headway: Call, stored_run: Callable[..., RunFolder], words: Sequence[str], said: str
) -> None:
    stored_run(night)
    assert said in headway("deliveries", *words, env=UNASKED, code=1).stdout


def test_which_words_go_together(headway: Call, stored_run: Callable[..., RunFolder]) -> None:
    stored_run(night)
    assert "which run or job?" in headway("deliveries", "--drop", code=2).stderr
    assert "--remove goes with --drop" in headway("deliveries", "--remove", ".1", code=2).stderr
    both = headway("deliveries", "--retry", "--drop", ".1", code=2).stderr
    assert "not allowed with" in both
    # nothing of a whole run is in need of a courier
    assert headway("deliveries", "--retry", "tale-1", env=UNASKED).stdout == (
        "there is nothing to retry\n"
    )


def test_only_the_owner_acts(headway: Call, stored_run: Callable[..., RunFolder]) -> None:
    folder = stored_run(night)
    folder.path.chmod(0o777)
    said = headway("deliveries", "--drop", "tale-1.2", env=UNASKED, code=2).stderr
    assert "others can write to" in said
