"""Slots that computed nothing: which zeros are believed, what they are called, and what is not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

from headway.events import read_columns
from headway.report.accounting import account
from headway.report.accounts import Accounts
from headway.report.figures import groups, losses, totals
from headway.report.findings import Finding, find

HOUR = 3600.0


class Log:
    """An event log as HTCondor writes it, event by event."""

    def __init__(self) -> None:
        self.text = ""

    def event(self, number: int, job: str, at: float, head: str, *body: str) -> None:
        cluster, proc = job.split(".")
        days, rest = divmod(int(at), 86400)
        when = f"2026-01-{2 + days:02d} {rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
        lines = "".join(f"\t{line}\n" for line in body)
        self.text += f"{number:03d} ({cluster}.{proc:0>3}.000) {when} {head}\n{lines}...\n"

    def run(
        self, job: str, at: float, seconds: float, end: str, host: str, cpu: float | None
    ) -> float:
        """One attempt, and how it ended: "evicted", "done", "failed", "held", "removed"."""
        self.event(1, job, at, f"Job executing on host: <10.0.0.1:9618?alias={host}>")
        used = (
            ()
            if cpu is None
            else (_usage(cpu), "\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Local Usage")
        )
        at += seconds
        if end in ("evicted", "held", "removed"):
            self.event(4, job, at, "Job was evicted.", "(0) Job was not checkpointed.", *used)
        if end == "held":
            self.event(12, job, at, "Job was held.", "a rule of mine", "Code 3 Subcode 0")
        if end == "removed":
            self.event(9, job, at, "Job was aborted.", "via condor_rm (by user ada)")
        if end in ("done", "failed"):
            value = 0 if end == "done" else 1
            said = f"(1) Normal termination (return value {value})"
            self.event(5, job, at, "Job terminated.", said, *used)
        return at

    def submit(self, job: str, at: float = 0.0) -> None:
        self.event(0, job, at, "Job submitted from host: <10.0.0.9:9618>")


def _usage(cpu: float) -> str:
    days, rest = divmod(int(cpu), 86400)
    clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"\tUsr {days} {clock}, Sys 0 00:00:00  -  Run Remote Usage"


Try = tuple[float, str, str, float | None]  # hours, end, host, CPU seconds


def accounts_of(path: Path, jobs: Sequence[tuple[str, Sequence[Try]]]) -> Accounts:
    log = Log()
    for job, tries in jobs:
        log.submit(job)
        at = 60.0
        for hours, end, host, cpu in tries:
            at = log.run(job, at, hours * HOUR, end, host, cpu) + 60
    (path / "train.log").write_text(log.text)
    return account(read_columns([path / "train.log"]))


def causes(accounts: Accounts) -> list[str]:
    return accounts.attempts["cause"].cast(pl.String).to_list()


GOOD: Try = (2.0, "done", "good.a.test", 7000.0)


def test_an_attempt_without_cpu_time_lost_its_time_to_that(tmp_path: Path) -> None:
    accounts = accounts_of(tmp_path, [("7.0", [(3.0, "evicted", "bad.b.test", 1.0), GOOD])])
    assert causes(accounts) == ["idle", "none"]
    assert accounts.attempts["ending"].to_list() == ["eviction", "success"]
    assert accounts.attempts["cpu_s"].to_list() == [1.0, 7000.0]
    assert accounts.jobs["cpu_s"].to_list() == [7001.0]
    [loss] = losses(accounts)
    assert (loss.cause, loss.seconds) == ("idle", 3 * HOUR)
    # It is an eviction all the same, wherever evictions are counted.
    assert totals(accounts).evictions == 1
    assert [group.evictions for group in groups(accounts, "cluster")] == [1]


@pytest.mark.parametrize("end", ["evicted", "failed", "held", "removed"])
def test_however_it_ended(tmp_path: Path, end: str) -> None:
    accounts = accounts_of(tmp_path, [("7.0", [GOOD]), ("7.1", [(30.0, end, "bad.b.test", 0.0)])])
    assert causes(accounts) == ["none", "idle"]


@pytest.mark.parametrize(
    ("jobs", "why"),
    [
        ([("7.0", [(30.0, "evicted", "h", 0.0)] * 5)], "no figure of the log is alive"),
        ([("7.0", [(30.0, "evicted", "h", None), GOOD])], "the event does not say"),
        ([("7.0", [(10.0, "evicted", "h", 300.0), GOOD])], "it reads files, or feeds a GPU"),
        ([("7.0", [(0.1, "evicted", "h", 0.0), GOOD])], "it had hardly begun"),
        (
            [("7.0", [GOOD]), ("8.0", [(9.0, "evicted", "h", 0.0), (9.0, "done", "h", 0.0)])],
            "this cluster needs none",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_called_idle(
    tmp_path: Path, jobs: list[tuple[str, list[Try]]], why: str
) -> None:
    assert "idle" not in causes(accounts_of(tmp_path, jobs)), why


def test_two_logs_are_believed_each_by_itself(tmp_path: Path) -> None:
    """What a log's zeros mean does not depend on which other logs are given."""
    one, two = tmp_path / "one", tmp_path / "two"
    for place in (one, two):
        place.mkdir()
    alone = accounts_of(one, [("7.0", [(30.0, "evicted", "h.a.test", 0.0)] * 3)])
    other = accounts_of(two, [("9.0", [(30.0, "evicted", "h.a.test", 0.0), GOOD])])
    both = account(read_columns([one / "train.log", two / "train.log"]))
    assert sorted(causes(both)) == sorted(causes(alone) + causes(other))


def by_key(accounts: Accounts) -> dict[str, Finding]:
    return {one.key: one for one in find(accounts)}


def good(place: str = "g{}.good.test") -> list[tuple[str, list[Try]]]:
    return [(f"7.{n}", [(2.0, "done", place.format(n % 7), 7000.0)]) for n in range(30)]


def test_nodes_on_which_nothing_ever_computed_are_grouped(tmp_path: Path) -> None:
    """The same cluster computes elsewhere; 20 machines of one domain are one line."""
    still = [
        (f"7.{100 + n}", [(3.0, "evicted", f"n{n % 20}.bad.test", 0.0), GOOD]) for n in range(60)
    ]
    found = by_key(accounts_of(tmp_path, [*good(), *still]))
    nodes = found["idle:nodes"]
    assert nodes.title == (
        "Nothing ever computed on 20 machines of bad.test (60 attempts): 180.0 slot hours lost"
    )
    assert nodes.table is not None
    assert nodes.table.rows == (("bad.test", "20", "60", "180.0 h", "0 s"),)
    assert ("attempts of the same clusters elsewhere that computed", "90 of 90") in nodes.evidence
    assert nodes.advice[0].lines == ('requirements = !regexp("[.]bad[.]test$", TARGET.Machine)',)
    # Nothing was computed, so no checkpoint would have saved it, and no site name was made up.
    assert set(found) == {"idle:nodes"}
    assert "checkpoint" not in str(nodes.advice) and "GLIDEIN" not in str(nodes.advice)


def test_addresses_are_grouped_and_put_into_no_line(tmp_path: Path) -> None:
    still = [(f"7.{100 + n}", [(3.0, "evicted", f"10.1.2.{n % 9}", 0.0), GOOD]) for n in range(40)]
    nodes = by_key(accounts_of(tmp_path, [*good(), *still]))["idle:nodes"]
    assert nodes.table is not None and nodes.table.rows[0][:2] == ("10.1.2.*", "9")
    assert not any("10.1" in line for step in nodes.advice for line in step.lines)


@pytest.mark.parametrize(
    ("end", "key", "remedy"),
    [
        ("evicted", "idle:hang", "condor_ssh_to_job"),
        ("failed", "idle:wrapper", "Read what the wrapper wrote last"),
        ("removed", "idle:waits", "universe = local"),
    ],
)
def test_a_cluster_that_computes_nowhere_is_its_own_fault(
    tmp_path: Path, end: str, key: str, remedy: str
) -> None:
    still = [(f"8.{n}", [(5.0, end, f"g{n}.good.test", 2.0)]) for n in range(6)]
    found = by_key(accounts_of(tmp_path, [*good(), *still]))
    assert key in found
    assert not any(k.startswith(("restart", "site-worse", "black-hole", "idle:n")) for k in found)
    assert found[key].cost_s == 6 * 5 * HOUR
    assert remedy in str(found[key].advice)
    assert found[key].evidence[0] == ("CPU time that these attempts used", "12 s in 30.0 h")


def test_what_ran_only_on_dead_nodes_is_not_its_own_fault(tmp_path: Path) -> None:
    still = [
        (f"7.{100 + n}", [(3.0, "evicted", f"n{n % 5}.bad.test", 0.0), GOOD]) for n in range(30)
    ]
    alone = [(f"8.{n}", [(3.0, "evicted", f"n{n}.bad.test", 0.0)]) for n in range(5)]
    found = by_key(accounts_of(tmp_path, [*good(), *still, *alone]))
    assert found["idle:nodes"].attempts == 35
    assert "idle:hang" not in found


def test_hangs_here_and_there_blame_no_node(tmp_path: Path) -> None:
    still = [
        (f"7.{100 + n}", [(3.0, "evicted", f"g{n % 7}.good.test", 0.0), GOOD]) for n in range(8)
    ]
    found = by_key(accounts_of(tmp_path, [*good(), *still]))
    assert found["idle:sometimes"].attempts == 8
    assert "idle:nodes" not in found


def test_a_checkpoint_is_advised_for_attempts_that_computed(tmp_path: Path) -> None:
    """20 evictions, of which 5 had computed."""
    still = [(f"7.{100 + n}", [(9.0, "evicted", "n1.bad.test", 0.0), GOOD]) for n in range(15)]
    work = [(f"7.{200 + n}", [(4.0, "evicted", "g1.good.test", 14000.0), GOOD]) for n in range(5)]
    accounts = accounts_of(tmp_path, [*good(), *still, *work])
    restart = by_key(accounts)["restart"]
    assert restart.title == (
        "20.0 slot hours of compute were lost in 5 of 20 evictions because there was no checkpoint"
    )
    assert totals(accounts).evictions == 20
    assert restart.cost_s == 5 * 4 * HOUR
    assert ("CPU time of these attempts", "19.4 h in 20.0 h") in restart.evidence


def test_a_log_whose_zeros_may_mean_nothing_is_told_of_with_care(tmp_path: Path) -> None:
    tries: list[Try] = [(9.0, "evicted", "n1.bad.test", 0.0)] * 4
    found = by_key(accounts_of(tmp_path, [("7.0", tries)]))
    assert set(found) == {"restart:no-cpu-time"}
    assert found["restart:no-cpu-time"].title == (
        "36.0 slot hours were lost in 4 evictions, and the log shows no CPU time for them"
    )


def test_another_log_of_the_same_cluster_can_tell_what_a_zero_means(tmp_path: Path) -> None:
    """Each job has a log of its own: only together do they show that CPU time is reported."""
    for n in range(30):
        (tmp_path / str(n)).mkdir()
        tries = [(9.0, "evicted", f"n{n % 5}.bad.test", 0.0)] if n % 2 else [GOOD]
        accounts_of(tmp_path / str(n), [(f"7.{n}", tries)])
    accounts = account(read_columns(sorted(tmp_path.glob("*/train.log"))))
    found = by_key(accounts)
    assert found["idle:nodes"].attempts == 15
    assert not any(key.startswith("restart") for key in found)


def test_a_cluster_that_mostly_met_dead_nodes_is_not_to_blame(tmp_path: Path) -> None:
    """Each job was evicted 30 times before it computed once: 97 % of the attempts are idle."""
    jobs = [
        (f"7.{n}", [(0.3, "evicted", f"n{k % 9}.bad.test", 0.0) for k in range(30)] + [GOOD])
        for n in range(10)
    ]
    found = by_key(accounts_of(tmp_path, jobs))
    assert found["idle:nodes"].attempts == 300
    assert "idle:hang" not in found


def test_the_table_of_resources_may_know_better(tmp_path: Path) -> None:
    """A node that was lost sends no last figure; the cores that it had used are in the table."""
    log = Log()
    log.submit("7.0")
    log.run("7.0", 60, 7000, "done", "g1.good.test", 6900.0)
    log.submit("7.1")
    log.event(1, "7.1", 60, "Job executing on host: <10.0.0.1:9618?alias=n1.test>")
    log.event(
        *(4, "7.1", 40000, "Job was evicted. Code 1008 Subcode 0", "(0) CPU times"),
        "\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Remote Usage",
        "Partitionable Resources :    Usage  Request Allocated",
        "   Cpus                 :     0.95        1         1",
    )
    (tmp_path / "train.log").write_text(log.text)
    accounts = account(read_columns([tmp_path / "train.log"]))
    assert "idle" not in causes(accounts)
    assert accounts.attempts["cpu_s"].to_list() == [6900, pytest.approx(0.95 * 39940)]


def test_short_evictions_without_cpu_time_are_no_lost_compute(tmp_path: Path) -> None:
    """On dead machines jobs are also evicted within minutes: that belongs to the same finding."""
    jobs: list[tuple[str, list[Try]]] = []
    for n in range(30):
        short: list[Try] = [(0.1, "evicted", f"n{k}.bad.test", 0.0) for k in range(9)]
        jobs.append((f"7.{n}", [*short, (3.0, "evicted", f"n{n % 9}.bad.test", 0.0), GOOD]))
    found = by_key(accounts_of(tmp_path, jobs))
    assert set(found) == {"idle:nodes"}
    assert found["idle:nodes"].attempts == 300
    assert found["idle:nodes"].cost_s == pytest.approx(30 * (3.0 + 0.9) * HOUR)
