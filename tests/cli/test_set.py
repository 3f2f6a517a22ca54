"""`headway set`: what jobs in the queue ask for, changed by hand."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.api import Run
from headway.events import EventWriter, Status
from headway.holds.advice import set_words
from headway.node.errors import Exit
from headway.pool.folder import RunFolder
from headway.spec.errors import Wrong
from headway.spec.override import parse_request

from .conftest import Done

Call = Callable[..., Done]


@pytest.mark.parametrize(
    ("text", "attribute", "value"),
    [
        ("memory=2GB", "RequestMemory", "1908"),
        ("memory=2 GiB", "RequestMemory", "2048"),
        ("disk=1MB", "RequestDisk", "977"),
        ("cpus=04", "RequestCpus", "4"),
        ("gpus=0", "RequestGPUs", "0"),
        ("time_limit=1h 30min", "HeadwayTimeLimit", "5400"),
        ("duration=Long", "JobDurationCategory", '"Long"'),
    ],
)
def test_what_can_be_set(text: str, attribute: str, value: str) -> None:
    found = parse_request(text)
    assert (found.attribute, found.value) == (attribute, value)
    back = set_words(attribute, value)
    if back:  # the command that advice names sets the very same
        assert parse_request(back).value == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("memory", "is not KEY=VALUE"),
        ("memory=", "is not KEY=VALUE"),
        ("memory=2G", "two readings"),
        ("memory=2048", "unit"),
        ("memory=0GB", "more than 0"),
        ("memory=RequestMemory*2", "is not a size"),
        ("memroy=2GB", "do you mean `memory`"),
        ("cpus=0", "is not a number of cpus"),
        ("cpus=1.5", "is not a number of cpus"),
        ("gpus=-1", "is not a number of gpus"),
        ("time_limit=0s", "more than 0"),
        ("duration=Short", "Medium or Long"),
        ('duration="Long" || true', "Medium or Long"),
    ],
)
def test_what_cannot(text: str, said: str) -> None:
    with pytest.raises(Wrong) as wrong:
        parse_request(text)
    assert said in str(wrong.value)


def test_a_held_job_goes_on_with_what_was_set(headway: Call, tmp_path: Path) -> None:
    """Also the command's time limit, which no pool but Headway's agent knows."""
    (tmp_path / "job.toml").write_text(
        'name = "slow"\ncommand = "sleep 60"\ngrace = "1 s"\n'
        '[resources]\nmemory = "50 MB"\ndisk = "10 MB"\n'
    )
    pool = ("--pool", "local:memory=1GB,cpus=2")
    headway("run", "job.toml", "--detach", *pool)
    run = Run.find("slow-1", start=tmp_path)

    def wait(status: Status) -> None:
        deadline = time.monotonic() + 120
        while run.jobs[0].status is not status and time.monotonic() < deadline:
            time.sleep(0.02)
        assert run.jobs[0].status is status

    wait(Status.RUNNING)
    text = headway("set", "slow-1.0", "memory=70MiB").stdout
    assert "set slow-1.0: memory = 73.4 MB" in text and "counts from the next start" in text
    headway("hold", "slow-1")
    wait(Status.HELD)
    assert "more than any slot of local" in headway("set", "0", "memory=9GB", code=1).stdout
    assert "not JobDurationCategory" in headway("set", "0", "duration=Long", code=1).stdout
    text = headway("set", "slow-1", "memory=80MiB", "time_limit=1s").stdout
    assert "`headway release slow-1.0` starts it with the new values" in text
    headway("release", "slow-1")
    wait(Status.COMPLETED)
    assert run.jobs[0].failure is Exit.OUT_OF_TIME
    assert "Memory = 80\n" in run.folder.events.read_text()
    over = json.loads(headway("set", "slow-1.0", "cpus=2", "--json", code=1).stdout)
    assert over["changes"] == {"cpus": "2"}
    (result,) = over["results"]
    assert result["job"] == 0 and "left the queue" in result["error"]


def test_what_is_asked_must_be_plain(headway: Call, make_run: Callable[..., RunFolder]) -> None:
    def events(log: EventWriter) -> None:
        log.submitted(5, 0, "<127.0.0.1:1>", time=1000.0)

    make_run("train", cluster=5, pool="local", events=events)
    assert "which run or job?" in headway("set", "memory=2GB", code=2).stderr
    assert "missing: KEY=VALUE" in headway("set", "train-1", code=2).stderr
    twice = headway("set", "train-1", "cpus=1", "cpus=2", code=2)
    assert "a key is given twice" in twice.stderr
    wrong = headway("set", "train-1", "memroy=2GB", code=2)
    assert "do you mean `memory`" in wrong.stderr
