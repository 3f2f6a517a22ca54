"""The agent's own transfers on a real HTCondor: through a director, with sick caches, uncut."""

from __future__ import annotations

import shutil

import pytest
from tests.lab import Authority, Digests, Made, Rate, Reset, Server, Silent, Status
from tests.node.transfer.federation import Registry

from headway.events import Outcome
from headway.node.errors import Exit

from .harness import STALL, Pool
from .jobs import PlainJob
from .places import CondorPlace, record
from .together import Together, at_the_same_time, promises

SMALL = '[resources]\nmemory = "64 MB"\ndisk = "80 MB"\n'
ONE, TWO = Made(3_000_000, seed=1), Made(8_000_000, seed=2)


def trusted(place: CondorPlace) -> str:
    """The lines of a job.toml that make the agent trust the lab's authority."""
    shutil.copy(Authority.get().bundle, place.folder / "ca.pem")
    return f'[environment]\nSSL_CERT_FILE = "{place.folder}/ca.pem"\n'


def stored(origin: Server) -> dict[str, bytes]:
    """What lies at the origin, but for the inputs."""
    found = {path: origin.store[path].content for path in origin.store.paths()}
    return {p: c.read(0, c.size) for p, c in found.items() if not p.startswith("/lab/in/")}


class Promises:
    def longer_than_the_starter_allows(self, pool: Pool) -> None:
        """HTCondor's own plugin is cut, ours ends in time or is seen to live, the agent goes on."""
        place, content = CondorPlace(pool), Made(14 << 20, seed=3)
        with Server({"/in/slow": content}, [Rate((1 << 20) / 2)]) as server:
            url = server.url("/in/slow")
            given = {"transfer_input_files": url, "request_disk": "50MB"}
            stock = PlainJob(pool, "STOCK").submit("true", **given)
            watched = PlainJob(pool, "WATCHES").submit("true", **given)
            ended = PlainJob(pool, "CUTS").submit(
                "true", **given, **{"My.HeadwayStallTimeout": str(STALL)}
            )
            run = place.run(
                'name = "uncut"\ncommand = "true"\n[sites]\nonly = ["STOCK"]\n'
                '[submit]\n"+WantsSite" = \'"STOCK"\'\n'
                f'[[inputs]]\nurl = "{url}"\nchecksum = "{content.checksum()}"\n' + SMALL
            )
            logs = [job.log_with("004", "005", "012") for job in (stock, ended, watched)]
            for job in (stock, ended):
                job.remove()
        assert "Input File transfer stalled" in logs[0] and "\n001 (" not in logs[0], logs[0]
        assert f"was stopped after {STALL - 1} s" in logs[1], logs[1]
        assert "return value 0" in logs[2], logs[2]
        state = run.jobs[0]
        assert state.outcome is Outcome.SUCCESS and state.attempts == 1
        assert state.site == "STOCK" and record(run)["inputs"][0]["seconds"] > 2 * STALL

    def through_a_director_with_a_sick_cache(self, pool: Pool) -> None:
        """Inputs by a cache that says 404 at first and falls silent; the output by PUT."""
        place, tls = CondorPlace(pool), Authority.get().good
        objects = {"/lab/in/one": ONE, "/lab/in/two": TWO}
        sick = [
            Status(404).on("/lab/in/one").for_seconds(2),
            Silent(after=1_000_000, scope="server").on("/lab/in/two"),
        ]
        with (
            Server(objects, sick, tls=tls) as first,
            Server(objects, tls=tls) as second,
            Server(objects, tls=tls, moves=True, digests=Digests()) as origin,
            Registry("/lab", [first, second], [origin]) as director,
        ):
            inputs = "".join(
                f'[[inputs]]\nurl = "{director.pelican_url(f"/in/{name}")}"\npath = "{name}"\n'
                f'size = {content.size}\nchecksum = "{content.checksum()}"\n'
                for name, content in (("one", ONE), ("two", TWO))
            )
            run = place.run(
                'name = "federated"\nshell = true\ncommand = "cat one two > out.bin"\n'
                f'outputs = [{{ path = "out.bin", to = "{director.pelican_url("/out.bin")}" }}]\n'
                + inputs
                + trusted(place)
                + SMALL
            )
            assert run.jobs[0].outcome is Outcome.SUCCESS and run.jobs[0].attempts == 1
            whole = ONE.read(0, ONE.size) + TWO.read(0, TWO.size)
            assert stored(origin) == {"/lab/out.bin": whole}
            assert first.sent > 0, "the sick cache was not tried"
            assert first.sent + second.sent + origin.sent < 1.05 * len(whole) + 2 * ONE.size
        told = record(run)["inputs"]
        assert [(each["bytes"], each["verified"]) for each in told] == [
            (ONE.size, True),
            (TWO.size, True),
        ]
        assert sum(each["seconds"] for each in told) < 20
        assert "phase=stage-in state=end" in run.folder.events.read_text()

    def an_upload_that_fails_for_good(self, pool: Pool) -> None:
        """Cut on the way every time, and never under its final name; the output comes home."""
        place, tls = CondorPlace(pool), Authority.get().good
        broken = [Reset(every=200_000).methods("PUT")]
        with (
            Server({}, broken, tls=tls, moves=True, half_objects=True) as origin,
            Registry("/lab", [origin], [origin]) as director,
        ):
            run = place.run(
                'name = "unsent"\nshell = true\n'
                'command = "head -c 2000000 /dev/zero > out.bin"\n'
                f'outputs = [{{ path = "out.bin", to = "{director.pelican_url("/out.bin")}" }}]\n'
                "[retries]\noutput = 0\n" + trusted(place) + SMALL,
                code=1,
            )
            assert len([each for each in origin.requests if each.method == "PUT"]) > 1
            assert "/lab/out.bin" not in stored(origin)
        state = run.jobs[0]
        assert state.failure is Exit.OUTPUT_MISSING and state.attempts == 1
        assert "out.bin" in state.why, state.why
        kept = run.folder.attempts(0)[-1] / "outputs/out.bin"
        assert kept.stat().st_size == 2_000_000


@at_the_same_time(lambda pool, promise: getattr(Promises(), promise)(pool), seconds=15)
@pytest.mark.parametrize("promise", promises(Promises))
def test_the_agent(together: Together, request: pytest.FixtureRequest, promise: str) -> None:
    together.wait(request)
