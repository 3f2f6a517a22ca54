"""Outputs that go home later, on a real pool where something goes wrong.

Each fault is tried both ways: with a single job, which is its own courier, and with several, whose
couriers DAGMan submits. Whatever happens, a job ends with one output, that of one of its attempts,
or says why not; and nothing stays behind in the store after the sweeper.
"""

from __future__ import annotations

import shutil

import pytest
from tests.lab import Drop, Rate, Server, dead_url
from tests.lab import Status as Answers

from headway.events import Status

from .delivering import OVERDUE, SIZE, Site, settle, ways
from .harness import Pool
from .together import Together, at_the_same_time, promises


class Faults:
    """Each gets a site of its own."""

    def nothing_is_wrong(self, pool: Pool) -> None:
        site = Site(pool, "D-PLAIN")
        both = ways(site)
        settle(*both)
        for jobs in both:
            jobs.delivered()
            assert jobs.run.jobs[0].return_value == 0
        assert len(site.held()) == 3
        site.is_empty()

    def a_damaged_store(self, pool: Pool) -> None:
        """A file has other bytes, one is gone, a ticket is another one, and so is all of it."""
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
        site.is_empty(OVERDUE)

    def a_destination_in_trouble(self, pool: Pool) -> None:
        """URLs that are down for a while, and for ever; that refuse, are full, or slow."""
        site = Site(pool, "D-URLS")
        faults = {
            "down": Drop().on("/down/0", "/down/1"),
            "refused": Answers(403).on("/refused/0", "/refused/1"),
            "full": Answers(507).on("/full/0", "/full/1"),
            "slow": Rate(2_000_000).on("/slow/0", "/slow/1"),
        }
        dead = dead_url()
        with Server(faults=faults.values()) as server:
            urls = {name: server.url(f"/{name}/") for name in faults} | {"dead": dead}
            runs = {
                name: ways(site, to=f"{url}{{job}}", holds=1 if name == "dead" else 10)
                for name, url in urls.items()
            }
            for jobs in runs["down"]:
                jobs.wait(lambda state: state.status is Status.HELD)
                assert "could not be" in jobs.run.jobs[0].hold_reason
                print(jobs.run.jobs[0].hold_reason)
            server.faults = [faults[name] for name in ("refused", "full", "slow")]
            settle(*(jobs for both in runs.values() for jobs in both))
            for name, both in runs.items():
                for jobs in both:
                    print(name, jobs.count, jobs.run.jobs[0])
                    print(
                        sorted(
                            str(x.relative_to(jobs.run.folder.path))
                            for x in jobs.run.folder.path.glob("jobs/*/**/*")
                        )
                    )

    def a_courier_is_killed(self, pool: Pool) -> None:
        """In mid-transfer: its agent, its starter; and it is evicted."""
        site = Site(pool, "D-KILLS")
        with Server(faults=[Rate(200_000)]) as server:
            runs = {
                name: ways(site, to=server.url(f"/{name}/{{job}}"))
                for name in ("agent", "starter", "evict")
            }
            for both in runs.values():
                for jobs in both:
                    for job in range(jobs.count):
                        jobs.wait(lambda state: state.phase == "deliver", job)
            for name, both in runs.items():
                for jobs in both:
                    for job in range(jobs.count):
                        pass


@at_the_same_time(lambda pool, promise: getattr(Faults(), promise)(pool), seconds=40)
@pytest.mark.parametrize("promise", promises(Faults))
def test_faults(together: Together, request: pytest.FixtureRequest, promise: str) -> None:
    together.wait(request)
