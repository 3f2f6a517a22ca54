"""The plugin on a real HTCondor: system-wide and brought along, both ways, sound and failing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.lab import Made, Server, Silent, Status

from .harness import Pool
from .jobs import PlainJob
from .together import Together, at_the_same_time, promises


def administered(pool: Pool) -> tuple[PlainJob, dict[str, str]]:
    """A job at a site that has the plugin."""
    return PlainJob(pool, "ADMIN"), {}


def brought(pool: Pool, plugin: Path | None = None) -> tuple[PlainJob, dict[str, str]]:
    """A job that brings the plugin to sites that know nothing of it."""
    job = PlainJob(pool, files={"headway-plugin": plugin or pool.home / "headway-plugin"})
    return job, {"transfer_plugins": "http=headway-plugin"}


Way = Callable[[Pool], tuple[PlainJob, dict[str, str]]]


def moves(pool: Pool, way: Way) -> None:
    """Down and up, with a 404 that passes, connections that stall, and checksums."""
    contents = {f"/in/{name}.bin": Made(1_500_000, seed=n) for n, name in enumerate("abc")}
    faults = [
        Status(404).on("/in/a.bin").for_seconds(1.5),
        Silent(after=400_000).on("/in/b.bin").times(2),
    ]
    sums = ", ".join(f"{path[4:]}={content.checksum()}" for path, content in contents.items())
    with Server(contents, faults) as server:
        urls = [server.url(path, query="sig=s3cret") for path in contents]
        job, more = way(pool)
        job.submit(
            "cat a.bin b.bin c.bin > all; wc -c < all > count",
            transfer_input_files=", ".join(urls),
            transfer_output_files="all, count",
            transfer_output_remaps=f'"all = {server.url("/out/all")}"',
            **{"My.HeadwayChecksums": f'"{sums}"'},
            **more,
        )
        log = job.log_with("005", "012")
        assert "return value 0" in log, log
        sent = server.store["/out/all"].content
        whole = b"".join(content.read(0, content.size) for content in contents.values())
        assert sent.read(0, sent.size) == whole
        assert all(
            "headway" in request.headers.get("user-agent", "").lower()
            for request in server.requests
        )
    assert (job.folder / "count").read_text().strip() == str(len(whole))
    told = job.input_record()
    assert "HeadwayVersion" in told and told.count('Proof = "checksum"') == 3, told
    assert "s3cret" not in log


def fails(pool: Pool, way: Way) -> None:
    """What is not as it should be, or not there, holds the job with the reason in words."""
    with Server({"/in/a.bin": Made(500_000)}, [Status(403).methods("PUT")]) as server:
        inputs, more = way(pool)
        inputs.submit(
            "true",
            transfer_input_files=f"{server.url('/in/a.bin')}, {server.url('/in/never.bin')}",
            **{"My.HeadwayChecksums": f'"a.bin=sha256:{"0" * 64}"', "My.HeadwayGrace": "1"},
            **more,
        )
        outputs, more = way(pool)
        outputs.submit(
            "echo something > it",
            transfer_output_files="it",
            transfer_output_remaps=f'"it = {server.url("/out/it")}"',
            **more,
        )
        log = inputs.log_with("005", "012")
        assert "Code 13 " in log.partition("\n012 (")[2], log
        assert "sha256 is" in log and "404" in log  # both: the hold itself names the first of them
        log = outputs.log_with("005", "012")
        held = log.partition("\n012 (")[2]
        assert "Code 12 " in held and "403" in held, log
        assert not [path for path in server.store.paths() if path.startswith("/out")]
    for job in (inputs, outputs):
        job.remove()


class Promises:
    def system_wide(self, pool: Pool) -> None:
        moves(pool, administered)

    def brought_along(self, pool: Pool) -> None:
        moves(pool, brought)

    def system_wide_when_it_fails(self, pool: Pool) -> None:
        fails(pool, administered)

    def brought_along_when_it_fails(self, pool: Pool) -> None:
        fails(pool, brought)

    def a_node_without_python(self, pool: Pool) -> None:
        """The same file, but for the names by which its head would find an interpreter."""
        good = (pool.home / "headway-plugin").read_bytes()
        head, mark, rest = good.partition(b"exit 11")
        assert mark
        bad = pool.user_dir() / "no-python"
        bad.write_bytes(head.replace(b"python", b"pithon") + mark + rest)
        bad.chmod(0o755)
        with Server({"/in/a.bin": b"there"}) as server:
            job, more = brought(pool, bad)
            job.submit("true", transfer_input_files=server.url("/in/a.bin"), **more)
            log = job.log_with("005", "012")
            assert not server.requests
        held = log.partition("\n012 (")[2]
        assert "headway: no Python 3.9 or later on this node" in held, log
        job.remove()


@at_the_same_time(lambda pool, promise: getattr(Promises(), promise)(pool), seconds=10)
@pytest.mark.parametrize("promise", promises(Promises))
def test_the_plugin(together: Together, request: pytest.FixtureRequest, promise: str) -> None:
    together.wait(request)
