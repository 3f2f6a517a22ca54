"""Outputs that go home later, while people act on the jobs and daemons of the access point die."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.lab import Rate, Server

from headway.events import Outcome, Status

from .delivering import COMMAND, OVERDUE, Jobs, Site, settle, ways
from .harness import Pool
from .test_delivery import at
from .test_htcondor import daemon
from .together import Together, at_the_same_time, promises


def dagman(jobs: Jobs) -> int:
    """The pid of the DAGMan of a run, as soon as there is one."""

    def found() -> int:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = path.read_text(errors="replace").split("\0")
                here = Path(os.readlink(path.parent / "cwd"))
                if Path(words[0]).name == "condor_dagman" and here == jobs.run.folder.path:
                    return int(path.parent.name)
        return 0

    return jobs.site.pool.wait_for(found, 60, "DAGMan")


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def waits(jobs: Jobs, count: int) -> None:
    """Wait until so many couriers are in the queue."""
    ours = "HeadwayCourier =?= true && JobStatus == 1"
    jobs.site.pool.wait_for(lambda: len(jobs.queue(ours)) == count, 60, f"{count} couriers")


class Acts:
    def some_are_removed(self, pool: Pool) -> None:
        """One whose courier waits, one whose courier is held; the others are delivered."""
        site = Site(pool, "D-REMOVE", closed=True)
        jobs, single = Jobs(site, 4), Jobs(site)
        jobs.left()
        single.left()
        waits(jobs, 4)
        jobs.place.headway("hold", f"{jobs.run.label}.2", f"{jobs.run.label}.3")
        for job in (2, 3):
            jobs.wait(lambda state: state.status is Status.HELD, job)
        jobs.place.headway("remove", f"{jobs.run.label}.1", f"{jobs.run.label}.2")
        single.place.headway("remove", single.run.label)
        for job in (1, 2):
            jobs.wait(lambda state: state.status is Status.REMOVED, job)
        site.open()
        jobs.place.headway("release", f"{jobs.run.label}.3")
        settle(jobs, single)
        outcomes = [jobs.run.jobs[job].outcome for job in range(4)]
        gone, done = Outcome.REMOVED, Outcome.SUCCESS
        assert outcomes == [done, gone, gone, done]
        assert single.run.jobs[0].outcome is gone
        for job in (1, 2):
            jobs.nothing_home(job)
        single.nothing_home()
        jobs.delivered(of=(0, 3))
        assert not jobs.run.succeeded()
        assert not jobs.queue() and not single.queue()
        site.is_empty(OVERDUE)

    def all_are_held_and_released(self, pool: Pool) -> None:
        site = Site(pool, "D-HOLD", closed=True)
        both = ways(site)
        for jobs in both:
            jobs.left()
        waits(both[1], 2)
        for jobs in both:
            jobs.place.headway("hold", jobs.run.label)
            for job in range(jobs.count):
                jobs.wait(lambda state: state.status is Status.HELD, job)
        site.open()
        for jobs in both:
            jobs.place.headway("release", jobs.run.label)
        settle(*both)
        for jobs in both:
            jobs.delivered()
        site.is_empty()

    def all_are_removed(self, pool: Pool) -> None:
        site = Site(pool, "D-ALL", closed=True)
        both = ways(site, 3)
        for jobs in both:
            jobs.left()
            jobs.place.headway("remove", jobs.run.label)
        settle(*both)
        for jobs in both:
            jobs.is_gone()
            for job in range(jobs.count):
                assert jobs.run.jobs[job].outcome is Outcome.REMOVED
                jobs.nothing_home(job)
        site.open()
        site.is_empty(OVERDUE)

    def dagman_is_killed(self, pool: Pool) -> None:
        """While jobs compute, while the script before a courier runs, and while couriers wait."""
        site = Site(pool, "D-DAGMAN", closed=True)
        jobs = Jobs(site, 3)
        script = jobs.run.folder.path / "pair.sh"
        pool.wait_for(script.exists, 30)
        began = jobs.run.folder.path / "began"
        text = script.read_text().replace("#!/bin/sh\n", f"#!/bin/sh\ntouch '{began}'; sleep 2\n")
        script.write_text(text)
        os.kill(dagman(jobs), signal.SIGKILL)
        pool.wait_for(began.exists, 120, "pair.sh")
        os.kill(dagman(jobs), signal.SIGKILL)
        jobs.left()
        waits(jobs, 3)
        os.kill(dagman(jobs), signal.SIGKILL)
        site.open()
        jobs.settle()
        jobs.delivered()
        site.is_empty()

    def a_ticket_is_damaged_on_its_way(self, pool: Pool) -> None:
        """Or by a hostile node: its courier is told of no sandbox, and computes."""
        site = Site(pool, "D-TICKET", closed=True)
        sign = pool.user_dir() / "sign"
        jobs = Jobs(site, 2, command=f"until [ -e {sign} ]; do sleep 0.2; done; {COMMAND}")
        for job in range(2):
            jobs.wait(lambda state: state.phase == "run", job)
        with stopped(dagman(jobs)):
            sign.touch()
            jobs.left()
            ticket = jobs.run.folder.job_folder(0) / "ticket.json"
            pool.wait_for(ticket.exists, 60)
            time.sleep(1)
            ticket.write_text('{"format": 1, "sandbox": "x\\nqueue 3"}')
        site.open()
        jobs.settle()
        assert len(jobs.computed(0)) == 2 and len(jobs.computed(1)) == 1
        jobs.delivered(computed=None)
        site.is_empty(OVERDUE)


@at_the_same_time(lambda pool, promise: getattr(Acts(), promise)(pool), seconds=40)
@pytest.mark.parametrize("promise", promises(Acts))
def test_acts(together: Together, request: pytest.FixtureRequest, promise: str) -> None:
    together.wait(request)


def test_the_schedd_is_killed(condor_pool: Pool) -> None:
    """While couriers wait, and while they send."""
    site = Site(condor_pool, "D-SCHEDD", closed=True, transfer_slots=6)
    both = ways(site)
    with Server(faults=[Rate(1_000_000)]) as server:
        sending = ways(site, to=f"{server.url()}COUNT-{{job}}")
        for jobs in (*both, *sending):
            jobs.left()
        os.kill(daemon(condor_pool, "condor_schedd"), signal.SIGKILL)
        site.open()
        for jobs in sending:
            jobs.wait(lambda state: state.phase == "deliver")
        os.kill(daemon(condor_pool, "condor_schedd"), signal.SIGKILL)
        settle(*both, *sending)
        for jobs in both:
            jobs.delivered()
        for jobs in sending:
            jobs.delivered(at=at(server, f"/{jobs.count}-"))
    site.is_empty()
