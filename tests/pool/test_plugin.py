"""The plugin on a real HTCondor: system-wide and brought along, both ways, cut and not cut."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.lab import Made, Rate, Server, Status

from headway.cli.plugin import write_plugin

from .harness import Pool

# Two sites whose starter gives up soon; one of them looks more often whether its plugin is alive.
SITES = """PLAIN|4|2048||
CUTS|2|1024||STARTER_FILE_XFER_STALL_TIMEOUT = 10
WATCHES|2|1024||STARTER_FILE_XFER_STALL_TIMEOUT = 10;MY_POPEN_KEEPALIVE_INTERVAL = 2"""
SUBMIT = """
import json, sys, htcondor2
schedd = htcondor2.Schedd()
print(schedd.submit(htcondor2.Submit(json.loads(sys.argv[1]))).cluster())
"""
SLOW = 16_000_000


class Job:
    """A job of the user's in a folder of its own."""

    def __init__(self, pool: Pool, site: str = "", *, files: dict[str, Path] | None = None) -> None:
        self.pool, self.folder, self.cluster = pool, pool.user_dir(), ""
        for name, source in (files or {}).items():
            shutil.copy2(source, self.folder / name)
        pool.give(self.folder)
        self.description = {
            "log": "job.log",
            "executable": "/bin/sh",
            "transfer_executable": "False",
            "should_transfer_files": "YES",
            "request_memory": "64MB",
            "requirements": f'GLIDEIN_ResourceName == "{site}"' if site else "true",
        }

    def submit(self, command: str, **more: str) -> Job:
        description = {**self.description, "arguments": f"\"-c '{command}'\"", **more}
        done = self.pool.python(SUBMIT, json.dumps(description), cwd=self.folder)
        assert done.returncode == 0, done.stderr
        self.cluster = done.stdout.strip()
        return self

    def log_with(self, *events: str) -> str:
        path = self.folder / "job.log"

        def log() -> str:
            text = path.read_text() if path.exists() else ""
            return text if any(f"\n{number} (" in f"\n{text}" for number in events) else ""

        return self.pool.wait_for(log, 60, f"event {' or '.join(events)} in {path}")

    def epochs(self) -> str:
        done = self.pool.run_as_user(
            ["condor_history", "-epochs", "-type", "INPUT", "-long", self.cluster]
        )
        return done.stdout


@pytest.fixture(scope="module")
def plugin() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="hwplugin-", dir="/tmp"))
    folder.chmod(0o755)
    write_plugin(folder / "headway-plugin")
    yield folder / "headway-plugin"
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def pool(condor_pool: Pool, plugin: Path) -> Iterator[Pool]:
    """A pool whose administrator has put the plugin in."""
    assert condor_pool.version  # where no pool can be had, this is not tried either
    pool = Pool({"POOL_SITES": SITES, "POOL_EXTRA_SITES": f"FILETRANSFER_PLUGINS = {plugin}"})
    pool.start()
    yield pool
    pool.stop()


def test_system_wide_both_ways_with_a_passing_404_and_a_checksum(
    condor_pool: Pool, pool: Pool
) -> None:
    content, other = Made(3_000_000, seed=1), Made(2_000_000, seed=2)
    faults = [Status(404).on("/in/a.bin").for_seconds(1.5)]
    with Server({"/in/a.bin": content, "/in/b.bin": other}, faults) as server:
        good = Job(pool, "PLAIN").submit(
            "cat a.bin b.bin > both; wc -c < both > count",
            transfer_input_files=f"{server.url('/in/a.bin')}, {server.url('/in/b.bin')}",
            transfer_output_files="both, count",
            transfer_output_remaps=f'"both = {server.url("/out/both")}"',
            **{"My.HeadwayChecksums": f'"a.bin={content.checksum()}"'},
        )
        bad = Job(pool, "PLAIN").submit(
            "true",
            transfer_input_files=server.url("/in/b.bin"),
            **{"My.HeadwayChecksums": f'"b.bin=sha256:{"0" * 64}"'},
        )
        assert "return value 0" in good.log_with("005", "012")
        both = server.store["/out/both"].content
        assert both.read(0, 9_000_000) == content.read(0, 3_000_000) + other.read(0, 2_000_000)
        assert (good.folder / "count").read_text().strip() == "5000000"
        told = pool.wait_for(good.epochs, 20, "the record of the transfer")
        assert "HeadwayVersion" in told and 'Proof = "checksum"' in told
        log = bad.log_with("005", "012", "004")
    assert "sha256 is" in log and "return value" not in log


def test_brought_along_by_the_job_on_a_pool_that_knows_nothing_of_it(
    condor_pool: Pool, plugin: Path
) -> None:
    content = Made(1_000_000, seed=3)
    with Server({"/in/a.bin": content}) as server:
        job = Job(condor_pool, files={"headway-plugin": plugin}).submit(
            "cp a.bin copy",
            transfer_plugins="http=headway-plugin",
            transfer_input_files=server.url("/in/a.bin", query="sig=s3cret"),
            transfer_output_files="copy",
            output_destination=server.url("/out"),
        )
        log = job.log_with("005", "012")
        agents = {request.headers.get("user-agent", "") for request in server.requests}
        assert "return value 0" in log, log
        assert all("headway" in agent.lower() for agent in agents), agents
        stored = next(path for path in server.store.paths() if path.startswith("/out"))
        assert server.store[stored].content.read(0, 2_000_000) == content.read(0, 1_000_000)
    assert "s3cret" not in log


def test_the_starters_time_out(condor_pool: Pool, pool: Pool) -> None:
    """16 s of transfer where the starter cuts after 10: ended in time, or seen to be alive."""
    content = Made(SLOW, seed=4)
    per_connection = SLOW // 16 // 2
    with Server({"/in/slow.bin": content}, [Rate(per_connection)]) as server:
        urls = {"transfer_input_files": server.url("/in/slow.bin")}
        told = {"My.HeadwayStallTimeout": "10"}
        ends = Job(pool, "CUTS").submit("true", **urls, **told)
        lives = Job(pool, "WATCHES").submit("true", **urls)
        first = ends.log_with("004", "005", "012")
        assert "was stopped after 8 s" in first, first
        assert "Input File transfer stalled" not in first
        pool.run_as_user(["condor_rm", ends.cluster])
        last = lives.log_with("004", "005", "012")
        assert "return value 0" in last, last
