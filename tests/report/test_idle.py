"""Slots that computed nothing: which zeros are believed, what they are called, and what is not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

from headway.events import read_columns
from headway.report.accounting import account
from headway.report.accounts import Accounts
from headway.report.findings import Finding, find
from headway.report.figures import losses, totals
from headway.report.groups import groups

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

    def run(self, job: str, at: float, seconds: float, end: str, host: str, cpu: float | None) -> float:
        """One attempt, and how it ended: "evicted", "done", "failed", "held", "removed"."""
        self.event(1, job, at, f"Job executing on host: <10.0.0.1:9618?alias={host}>")
        used = () if cpu is None else (_usage(cpu), "\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Local Usage")
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


def told(path: Path, jobs: Sequence[tuple[str, Sequence[Try]]]) -> Accounts:
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
    accounts = told(tmp_path, [("7.0", [(3.0, "evicted", "bad.b.test", 1.0), GOOD])])
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
    accounts = told(tmp_path, [("7.0", [GOOD]), ("7.1", [(30.0, end, "bad.b.test", 0.0)])])
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
    assert "idle" not in causes(told(tmp_path, jobs)), why


def test_two_logs_are_believed_each_by_itself(tmp_path: Path) -> None:
    """What a log's zeros mean does not depend on which other logs are given."""
    one, two = tmp_path / "one", tmp_path / "two"
    for place in (one, two):
        place.mkdir()
    alone = told(one, [("7.0", [(30.0, "evicted", "h.a.test", 0.0)] * 3)])
    other = told(two, [("9.0", [(30.0, "evicted", "h.a.test", 0.0), GOOD])])
    both = account(read_columns([one / "train.log", two / "train.log"]))
    assert sorted(causes(both)) == sorted(causes(alone) + causes(other))
