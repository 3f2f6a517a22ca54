"""`headway heal` on runs of the local pool, and what it says."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.api import Run
from headway.events import EventWriter, Outcome, Status
from headway.holds.audit import Audit
from headway.holds.heal import BackgroundHealer
from headway.pool import Runs

from .conftest import SCRIPT, Done

Headway = Callable[..., Done]
QUICK = ("--backoff", "1s", "--most-wait", "1s")
LONGEST = 120.0  # seconds that a busy machine may take for what usually takes one


def until(run: Run, status: Status) -> None:
    end = time.monotonic() + LONGEST
    while run.jobs[0].status is not status:
        assert time.monotonic() < end, run.folder.events.read_text()
        time.sleep(0.02)


@pytest.fixture
def passing(headway: Headway, job_toml: Callable[..., Path], tmp_path: Path) -> Run:
    """A run whose only job is held for something that passes, and that nobody runs now."""
    path = job_toml((0, 0))
    path.write_text(path.read_text() + '[retries]\nholds = 0\nbackoff = "1 s"\n')
    go = tmp_path / "go"  # without it the job would not wait for its hold
    waits = f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.05)\n"
    (tmp_path / "work.py").write_text(waits + SCRIPT)
    headway("run", "job.toml", "--detach")
    run = Run(Runs(tmp_path / ".headway").find())
    headway("hold", run.label)
    until(run, Status.HELD)
    go.touch()
    end = time.monotonic() + LONGEST
    while run.folder.is_locked("supervisor"):
        assert time.monotonic() < end
        time.sleep(0.02)
    with EventWriter(run.folder.events) as log:
        log.released(run.folder.facts.cluster or 0, 0, "a person let it go")
        log.held(run.folder.facts.cluster or 0, 0, "the transfer broke off", 11, 0)
    return run


def test_a_hold_that_passes_is_healed(headway: Headway, passing: Run) -> None:
    label = passing.label
    time.sleep(2.1)  # the pause after a second hold
    told = headway("heal", label, *QUICK).stdout
    assert "release" in told and "11/0" in told and "nothing was done; --do does it" in told
    assert passing.jobs[0].status is Status.HELD
    assert not (passing.folder.path / "heal.jsonl").exists(), "a dry run leaves nothing"

    done = json.loads(headway("heal", label, "--do", "--once", "--json", *QUICK).stdout)
    (decision,) = done["queues"][0]["decisions"]
    assert done["did"] and decision["verb"] == "release" and decision["advice"]["cause"]
    assert passing.wait(LONGEST) and passing.jobs[0].outcome is Outcome.SUCCESS
    log = passing.folder.events.read_text()
    assert log.count("via headway heal ") == 1, log

    # a healer of its own accord ends where there is nothing left, and has seen how it ended
    told = headway("heal", label, "--do", *QUICK).stdout
    assert "no job is left; 1 release, 0 removals: 1 success" in told, told
    audit = headway("heal", label, "--audit").stdout
    assert "released" in audit and "success" in audit and "11/0" in audit
    shown = json.loads(headway("heal", label, "--audit", "--json").stdout)
    assert shown["releases"] == 1 and shown["endings"] == {"success": 1}
    assert "no job is held" in headway("heal", label).stdout


def test_from_within_a_watched_run(passing: Run) -> None:
    """As `headway run` has it: in a thread, awake once a job is held, and heard of by notes."""
    inside = BackgroundHealer(passing.folder, passing.pool)
    inside.poke()
    end = time.monotonic() + LONGEST
    while not inside.notes and time.monotonic() < end:
        assert inside.busy, passing.folder.events.read_text()
        time.sleep(0.05)
    assert inside.notes.popleft().startswith(f"heal: release {passing.label}.0: ")
    assert passing.wait(LONGEST) and passing.jobs[0].outcome is Outcome.SUCCESS
    inside.close()
    assert not inside.busy
    with Audit(passing.folder.path / "heal.jsonl"):
        second = BackgroundHealer(passing.folder, passing.pool)
        second.poke()
        while second.busy:
            time.sleep(0.05)
        assert "another heal is at work" in second.notes.popleft()


def test_a_persons_hold_is_left(
    headway: Headway, job_toml: Callable[..., Path], tmp_path: Path
) -> None:
    job_toml((60, 0))
    headway("run", "job.toml", "--detach")
    run = Run(Runs(tmp_path / ".headway").find())
    headway("hold", run.label)
    until(run, Status.HELD)
    told = headway("heal", run.label, "--do", "--once", "--remove", *QUICK).stdout
    assert "leave" in told and "somebody holds it on purpose" in told
    assert run.jobs[0].status is Status.HELD
    headway("remove", run.label)


def test_one_at_a_time(headway: Headway, passing: Run) -> None:
    with Audit(passing.folder.path / "heal.jsonl"):
        refused = headway("heal", passing.label, "--do", code=2)
        assert "another heal is at work" in refused.stderr and "one is enough" in refused.stderr
        assert "11/0" in headway("heal", passing.label).stdout, "looking is always possible"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--audit", "--do"), "--audit only shows"),
        (("--everybody",), "--everybody goes with --pool"),
        (("--pool", "htcondor", "fake-1"), "do not go together"),
        (("fake-1", "--backoff", "soon"), "soon"),
        (("fake-1", "--most-memory", "12"), "12"),
        (("fake-1", "--most-per-job", "-1"), "--most-per-job"),
        (("--pool", "local"), "no queue"),
        (("--pool", "htcondor:where=x"), "unknown key"),
    ],
)
def test_what_cannot_be_meant(
    headway: Headway, make_run: Callable[..., object], words: tuple[str, ...], said: str
) -> None:
    make_run()
    done = headway("heal", *words, code=None)
    assert done.returncode in (2, 3) and said in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and "bug in headway" not in done.stderr
