"""Outputs that go home later, on a real pool where something goes wrong.

Each fault is tried both ways: with a single job, which is its own courier, and with several, whose
couriers DAGMan submits. Whatever happens, a job ends with one output, that of one of its attempts,
or says why not; and nothing stays behind in the store after the sweeper.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.lab import Drop, Rate, Server, dead_url
from tests.lab import Status as Answers

from headway.events import Outcome, Status

from .delivering import COMMAND, OVERDUE, SIZE, Jobs, Site, file_system, settle, ways
from .harness import USER, Pool
from .together import Together, at_the_same_time, promises


def at(server: Server, prefix: str) -> Callable[[int], bytes]:
    """What the server has of each job."""

    def found(job: int) -> bytes:
        thing = server.store[f"{prefix}{job}"].content
        return thing.read(0, thing.size)

    return found


class Faults:
    """Each gets a site of its own."""

    def nothing_is_wrong(self, pool: Pool) -> None:
        site = Site(pool, "D-PLAIN")
        both = ways(site)
        settle(*both)
        for jobs in both:
            jobs.delivered()
        assert len(site.held()) == 3
        site.is_empty()

    def in_a_container(self, pool: Pool) -> None:
        """Its agent copies the outputs into the store; the courier runs outside, without image."""
        if not pool.containers:
            return
        site = Site(pool, "D-BOX", containers=True)
        both = ways(site, more=f'container = "{pool.image}"')
        settle(*both)
        for jobs in both:
            jobs.delivered()
            attempts = [jobs.run.folder.attempts(job) for job in range(jobs.count)]
            assert [len(each) for each in attempts] == [2] * jobs.count
            log = jobs.run.folder.events.read_text()
            received = [float(each) for each in re.findall(r"(\d+)  -  Run Bytes Received", log)]
            assert len(received) == 2 * jobs.count
            small = [each for each in received if each < pool.image.stat().st_size / 4]
            assert len(small) == jobs.count, "a courier brought the image along"
        site.is_empty()

    def a_damaged_store(self, pool: Pool) -> None:
        """A file has other bytes, one is gone, a ticket is another one, one file is empty."""
        site = Site(pool, "D-DAMAGED", closed=True)
        both = ways(site, 3)
        for jobs in both:
            jobs.left()
        for number, name in enumerate(site.held()):
            place = site.sandboxes / name
            if number == 0:
                with open(place / "files/out.bin", "r+b") as file:
                    file.seek(SIZE // 2)
                    file.write(b"?")
            elif number == 1:
                shutil.rmtree(place)
            elif number == 2:
                ticket = (place / "ticket.json").read_text()
                assert str(SIZE) in ticket
                (place / "ticket.json").write_text(ticket.replace(str(SIZE), str(SIZE + 1)))
            else:
                (place / "files/out.bin").write_bytes(b"")
        site.open()
        settle(*both)
        for jobs in both:
            jobs.delivered(computed=2)
            assert "left in a store before did not arrive" in jobs.agent_log()
        site.is_empty(OVERDUE)

    def two_users(self, pool: Pool) -> None:
        """Their jobs run with one account, as in a pilot: each user gets what is theirs."""
        site = Site(pool, "D-TWO", closed=True)
        users = {"hwuser": site, "daemon": site.of("daemon")}
        runs = {user: Jobs(place, 2) for user, place in users.items()}
        for jobs in runs.values():
            jobs.left()
        assert len(site.held()) == 4
        site.open()
        settle(*runs.values())
        for user, jobs in runs.items():
            jobs.delivered()
            for job in range(jobs.count):
                home = jobs.run.folder.job_folder(job) / "outputs" / "out.bin"
                assert home.owner() == user
        site.is_empty()

    def handed_over_twice(self, pool: Pool) -> None:
        """The access point forgets a sandbox, and the job leaves another: one of them counts."""
        site = Site(pool, "D-TWICE", closed=True)
        both = single, several = ways(site)
        for jobs in both:
            jobs.left()
        courier = "HeadwayPaired =?= false && HeadwaySandbox isnt undefined"
        pool.wait_for(lambda: len(several.queue(courier)) == several.count, 60, "couriers")
        assert len(single.queue()) == 1
        first = site.held()
        assert len(first) == 3
        for jobs in both:
            for name in ("HeadwaySandbox", "HeadwayDeliverSince"):
                ours = f'HeadwayRun == "{jobs.run.folder.facts.id}" && JobUniverse != 7'
                jobs.ask("condor_qedit", "-constraint", ours, name, "undefined")
        pool.wait_for(lambda: len(site.held()) == 6, 120, "the second sandboxes")
        site.open()
        settle(*both)
        for jobs in both:
            jobs.delivered(computed=2)
        assert set(first) < set(site.held())
        site.is_empty(OVERDUE)

    def the_store_is_deleted(self, pool: Pool) -> None:
        """First couriers wait, since it may be back; the sweeper makes a new one, and it is not."""
        site = Site(pool, "D-DELETED", closed=True)
        both = ways(site)
        for jobs in both:
            jobs.left()
        shutil.rmtree(site.root)
        site.open()
        for jobs in both:
            jobs.wait(lambda state: state.status is Status.HELD)
            assert "this node has no store" in jobs.run.jobs[0].hold_reason
        pool.administer(site.name, "condor_restart", "-startd", "-fast")
        settle(*both)
        for jobs in both:
            jobs.delivered(computed=2)
        site.is_empty(OVERDUE)

    def a_lost_job_continues(self, pool: Pool) -> None:
        """From its checkpoint, which HTCondor has as long as the job is in the queue.

        The courier of a job in a DAG is another job: it begins at the beginning.
        """
        site = Site(pool, "D-SAVED", closed=True)
        command = f"if [ -e saved ]; then cat saved; {COMMAND}; else date > saved; exit 85; fi"
        more = '[checkpoint]\npaths = ["saved"]\nexit_code = 85\n'
        both = ways(site, command=command, more=more)
        for jobs in both:
            jobs.left()
        shutil.rmtree(site.sandboxes)
        site.open()
        settle(*both)
        for jobs in both:
            jobs.delivered(computed=2)
        segments = [[len(each["segments"]) for each in jobs.attempts(0)] for jobs in both]
        assert segments == [[2, 1, 1], [2, 1, 2]]
        assert "saved restored from the checkpoint" in both[0].agent_log()
        site.is_empty(OVERDUE)

    def a_destination_in_trouble(self, pool: Pool) -> None:
        """URLs that are down for a while, and for ever; that refuse, are full, or slow."""
        site = Site(pool, "D-URLS", transfer_slots=8)
        kinds = {
            "down": Drop(at="request"),
            "refused": Answers(403),
            "full": Answers(507),
            "slow": Rate(2_000_000),
        }
        faults = {
            name: fault.on(*(f"/{name}/{each}" for each in ("1-0", "2-0", "2-1")))
            for name, fault in kinds.items()
        }
        with Server(faults=faults.values()) as server:
            urls = {name: server.url(f"/{name}/") for name in faults} | {"dead": dead_url()}
            runs = {
                name: ways(site, to=f"{url}COUNT-{{job}}", holds=10 if name == "down" else 0)
                for name, url in urls.items()
            }
            for jobs in runs["down"]:
                jobs.wait(lambda state: state.status is Status.HELD)
                said = jobs.run.jobs[0].hold_reason
                assert "the outputs could not be delivered: out.bin could not be sent to" in said
                assert "released by itself after" in said
            server.faults = [faults[name] for name in ("refused", "full", "slow")]
            settle(*(jobs for both in runs.values() for jobs in both))
            for name, both in runs.items():
                for jobs in both:
                    if name in ("down", "slow"):
                        jobs.delivered(at=at(server, f"/{name}/{jobs.count}-"))
                        continue
                    for job in range(jobs.count):
                        state = jobs.run.jobs[job]
                        assert state.outcome is Outcome.FAILURE
                        assert "out.bin could not be sent to" in state.why
                        assert state.return_value == (84 if name == "refused" else 81)
                        assert len(jobs.computed(job)) == 1
                        jobs.nothing_home(job)
            assert len(server.store.paths()) == 6
        site.is_empty(OVERDUE)

    def a_courier_is_killed(self, pool: Pool) -> None:
        """In mid-transfer: its agent, its starter; and it is evicted."""
        site = Site(pool, "D-KILLS", transfer_slots=6)
        slow = Rate(200_000)
        with Server(faults=[slow]) as server:
            several = Jobs(site, 3, to=f"{server.url()}several/{{job}}")
            singles = [Jobs(site, to=f"{server.url()}{n}/{{job}}") for n in range(3)]
            couriers = [(several, job) for job in range(3)] + [(each, 0) for each in singles]
            for jobs, job in couriers:
                jobs.wait(lambda state: state.phase == "deliver", job)
            for number, (jobs, job) in enumerate(couriers):
                agent = site.agent(jobs.run, job)
                if number % 3 == 0:
                    os.kill(agent, signal.SIGKILL)
                elif number % 3 == 1:
                    environment = Path(f"/proc/{agent}/environ").read_text().split("\0")
                    [starter] = [e for e in environment if e.startswith("CONDOR_STARTER_PID=")]
                    os.kill(int(starter.partition("=")[2]), signal.SIGKILL)
                else:
                    jobs.place.headway("evict", f"{jobs.run.label}.{job}")
            server.faults = []
            settle(several, *singles)
            several.delivered(at=at(server, "/several/"))
            for number, jobs in enumerate(singles):
                jobs.delivered(at=at(server, f"/{number}/"))
            assert len(server.store.paths()) == 6
        site.is_empty(OVERDUE)

    def home_is_full(self, pool: Pool) -> None:
        site = Site(pool, "D-FULL")
        with ExitStack() as full:
            both = ways(
                site,
                to="full/{job}.bin",
                before=lambda folder: full.enter_context(file_system(folder / "full", "4m", USER)),
            )
            for jobs in both:
                for job in range(jobs.count):
                    jobs.wait(lambda state: state.status is Status.HELD, job)
                    assert "No space left" in jobs.run.jobs[job].hold_reason
        for jobs in both:
            jobs.place.headway("release", jobs.run.label)
        settle(*both)
        for jobs in both:
            jobs.delivered(at=jobs.place.folder / "full")
        site.is_empty()

    def the_time_is_over(self, pool: Pool) -> None:
        """No courier comes in time: the job computes again, and takes its outputs along."""
        site = Site(pool, "D-LATE", closed=True)
        both = ways(site, within="10 s")
        settle(*both)
        for jobs in both:
            jobs.delivered(computed=2)
            assert "left in a store before did not arrive" in jobs.agent_log()
        assert len(site.held()) == 3
        site.is_empty(OVERDUE)

    def the_site_crashes(self, pool: Pool) -> None:
        site = Site(pool, "D-CRASH", closed=True)
        both = ways(site)
        for jobs in both:
            jobs.left()
        pool.stop_site(site.name, "crash")
        site.open(running=False)
        pool.start_sites(site.name)
        settle(*both)
        for jobs in both:
            jobs.delivered()
        site.is_empty()

    def a_small_store_elsewhere(self, pool: Pool) -> None:
        """It is another file system, with room for one of three: the others go with their job."""
        site = Site(pool, "D-SMALL", closed=True)
        with site.store_of("16m"):
            both = ways(site)
            for jobs in both:
                jobs.left()
            assert len(site.held()) == 1
            site.open()
            settle(*both)
            for jobs in both:
                jobs.delivered()
            said = "".join(jobs.agent_log(job) for jobs in both for job in range(jobs.count))
            assert said.count("No space left on device") == 2, said
            site.is_empty(OVERDUE)

    def evicted_while_handing_over(self, pool: Pool) -> None:
        site, size = Site(pool, "D-EVICTED"), 150_000_000
        command = f'yes "$HEADWAY_JOB $HEADWAY_ATTEMPT" | head -c {size} > out.bin'
        both = ways(site, command=command)
        pool.wait_for(lambda: any(site.drafts.iterdir()), 60, "a hand-over")
        for jobs in both:
            jobs.place.headway("evict", jobs.run.label, code=None)
        settle(*both)
        for jobs in both:
            jobs.delivered(computed=None, size=size)
        site.is_empty(OVERDUE)


@at_the_same_time(lambda pool, promise: getattr(Faults(), promise)(pool), seconds=40)
@pytest.mark.parametrize("promise", promises(Faults))
def test_faults(together: Together, request: pytest.FixtureRequest, promise: str) -> None:
    together.wait(request)
