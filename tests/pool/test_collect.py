"""`headway collect` on the pool-wide event log that HTCondor itself writes and rotates."""

from __future__ import annotations

import os
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.collect import Collector, Poll, read_collected, status
from headway.events import read_log

from .harness import Pool
from .jobs import PlainJob, submit_all

pytestmark = pytest.mark.pool

JOBS = 16
#: Small enough that HTCondor rotates several times, and few enough files that it matters.
SETTINGS = """
EVENT_LOG = $(LOG)/EventLog
EVENT_LOG_MAX_SIZE = 12000
EVENT_LOG_MAX_ROTATIONS = 3
"""


@pytest.fixture
def event_log(condor_pool: Pool) -> Iterator[Path]:
    """The pool's own log, for as long as a test lasts."""
    config = condor_pool.home / "etc" / "condor_config"
    before = config.read_text()

    def configure(text: str) -> None:
        config.write_text(text)
        environment = {**condor_pool.env, "HOME": "/root"}
        for daemon in ("schedd", "master"):
            subprocess.run(
                ["condor_reconfig", "-daemon", daemon],
                env=environment,
                check=True,
                capture_output=True,
                timeout=60,
            )

    configure(before + SETTINGS)
    try:
        yield condor_pool.home / "cm" / "log" / "EventLog"
    finally:
        configure(before)


def test_htcondor_s_own_rotations(condor_pool: Pool, event_log: Path, tmp_path: Path) -> None:
    store, stop, polls = tmp_path / "kept", threading.Event(), list[Poll]()
    collector = Collector([event_log], store, waits=True)

    def follow() -> None:
        polls.extend(collector.follow(0.1, stop))

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        jobs = [PlainJob(condor_pool) for _ in range(JOBS)]
        submit_all(jobs, "true")
        for job in jobs:
            job.log_with("005")
    finally:
        stop.set()
        thread.join()
        collector.close()
    found = read_collected(store)
    clusters = {int(one.cluster) for one in jobs}
    stored = Counter(
        key
        for key in zip(
            found.number.tolist(), found.cluster.tolist(), found.proc.tolist(), strict=True
        )
        if key[1] in clusters
    )
    told = Counter(
        (event.number, event.cluster, event.proc)
        for one in jobs
        for event in read_log(one.folder / "job.log").events
    )
    assert stored == told
    assert status(store).gap_count == 0
    rotated = [path for path in os.listdir(event_log.parent) if path.startswith("EventLog.")]
    assert len(rotated) >= 2
    assert len(set(found.file.tolist())) >= 3
