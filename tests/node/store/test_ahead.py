"""Marks of the jobs that compute on a node, and of the inputs that came for waiting ones."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.node.classad import parse_lines
from headway.node.store.ahead import LONGEST, Ahead, mark
from headway.node.store.folder import Settings, Store, create_store
from headway.node.store.sweeper import run_store

RUN, OTHER = "1f2e3d4c" + 24 * "0", "aaaaaaaa" + 24 * "0"
HOLDS = """
import sys, time
from headway.node.store.ahead import Ahead
from headway.node.store.folder import Store
held = getattr(Ahead(Store(sys.argv[1])), sys.argv[2])(sys.argv[3])
print(held is not None, flush=True)
time.sleep(600)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    create_store(str(tmp_path / "store"), Settings(share_inputs=True))
    return tmp_path / "store"


@pytest.fixture
def marks(root: Path) -> Ahead:
    return Ahead(Store(str(root)))


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def agent(
    started: list[subprocess.Popen[str]], root: Path, what: str, name: str
) -> subprocess.Popen[str]:
    """A process that holds a mark, as an agent does."""
    command = [sys.executable, "-c", HOLDS, str(root), what, name]
    started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    assert started[-1].stdout is not None and started[-1].stdout.readline() == "True\n"
    return started[-1]


def test_as_many_inputs_are_wanted_as_jobs_compute(marks: Ahead) -> None:
    assert marks.wanted() == [] and marks.begin(mark(RUN, "1")) is None
    first, second = (marks.compute(mark(RUN, job)) for job in "03")
    assert first is not None and second is not None
    other = marks.compute(mark(OTHER, "0"))
    assert marks.wanted() == [RUN[:8], RUN[:8], OTHER[:8]]
    coming = marks.begin(mark(RUN, "1"))
    assert coming is not None and marks.wanted() == [RUN[:8], OTHER[:8]]
    marks.finish(mark(RUN, "1"), here=True)
    coming.release()
    assert marks.wanted() == [RUN[:8], OTHER[:8]], "it waits now"
    coming = marks.begin(mark(RUN, "2"))
    assert coming is not None and marks.begin(mark(RUN, "4")) is None, "there are enough"
    marks.finish(mark(RUN, "2"), here=False)
    coming.release()
    assert marks.wanted() == [RUN[:8], OTHER[:8]], "it did not come"
    marks.arrive(mark(RUN, "1"))
    marks.arrive(mark(RUN, "7"))
    assert marks.wanted() == [RUN[:8], RUN[:8], OTHER[:8]]
    for held in (first, second, other):
        assert held is not None
        held.release()
    assert marks.wanted() == [], "nobody computes here"


@pytest.mark.parametrize("what", ["compute", "begin"])
def test_a_killed_agents_mark_does_not_count(
    root: Path, marks: Ahead, started: list[subprocess.Popen[str]], what: str
) -> None:
    held = marks.compute(mark(RUN, "0"))
    killed = agent(started, root, what, mark(RUN, "1"))
    assert len(marks.wanted()) == (2 if what == "compute" else 0)
    killed.kill()
    killed.wait()
    assert marks.wanted() == [RUN[:8]]
    marks.sweep(time.time())
    home = Store(str(root)).home
    assert os.listdir(f"{home}/active") == [mark(RUN, "0")] and not os.listdir(f"{home}/coming")
    again = marks.compute(mark(RUN, "1"))
    assert held is not None and again is not None


def test_of_two_at_once_one_brings_it(
    root: Path, marks: Ahead, started: list[subprocess.Popen[str]]
) -> None:
    agent(started, root, "compute", mark(RUN, "0"))
    command = [sys.executable, "-c", HOLDS, str(root), "begin"]
    both = [
        subprocess.Popen([*command, mark(RUN, job)], stdout=subprocess.PIPE, text=True)
        for job in "1234"
    ]
    started += both
    said = [process.stdout.readline() for process in both if process.stdout is not None]
    assert sorted(said) == ["False\n"] * 3 + ["True\n"]
    assert marks.wanted() == []


def test_a_job_that_does_not_come_is_not_waited_for(root: Path, marks: Ahead) -> None:
    held = marks.compute(mark(RUN, "0"))
    coming = marks.begin(mark(RUN, "1"))
    assert held is not None and coming is not None
    marks.finish(mark(RUN, "1"), here=True)
    coming.release()
    place = Path(Store(str(root)).home, "ahead", mark(RUN, "1"))
    marks.sweep(time.time())
    assert place.exists() and marks.wanted() == []
    old = time.time() - LONGEST - 10
    os.utime(place, (old, old))
    assert marks.wanted() == [RUN[:8]]
    marks.sweep(time.time())
    assert not place.exists()


def test_the_sweeper_tells_it(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def told() -> object:
        assert run_store([str(root)]) == 0
        return dict(parse_lines(capsys.readouterr().out.splitlines()))["HeadwayPrefetchFor"]

    assert told() == ""
    marks = Ahead(Store(str(root)))
    held = [marks.compute(mark(run, job)) for run, job in ((RUN, "0"), (RUN, "1"), (OTHER, "0"))]
    Path(Store(str(root)).home, "active", 'x",forged').mkdir()
    assert None not in held and told() == f"{RUN[:8]},{RUN[:8]},{OTHER[:8]}"
    create_store(str(root), Settings(share_inputs=False))
    assert told() == "", "it keeps no inputs"
