"""`headway advise`, as a user calls it."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable
from pathlib import Path

from tests.holds import logs_made as made
from tests.report.study import write
from tests.report.written import HOSTILE

from headway.events import EventWriter
from headway.pool.folder import RunFolder

from .conftest import Done

Call = Callable[..., Done]
Make = Callable[..., RunFolder]
LOGS = Path(__file__).parents[1] / "events" / "logs"


def held_log(path: Path, name: str) -> Path:
    """A real log, up to its first hold."""
    data = (LOGS / f"{name}.log").read_text()
    end = data.index("\n...\n", data.index("\n012 ")) + len("\n...\n")
    path.write_text(data[:end])
    return path


def cost(headway: Call, *words: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    headway(*words, anew=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_one_job_of_a_log_in_half_a_second(headway: Call, tmp_path: Path) -> None:
    held_log(tmp_path / "memory.log", "memory")
    done = headway("advise", "memory.log", "14.0", "--offline")
    first, *rest = done.stdout.splitlines()
    assert first.startswith("14.0  change, then release  after the change 75% likely")
    text = "\n".join(rest)
    assert "The job used more memory than it asked for." in text
    assert "raise the memory request from 64 MiB to 640 MiB (it used 390 MiB)" in text
    assert "Expected loss: " in text and "\x1b" not in done.stdout and done.stderr == ""
    assert rest[-1] == "  condor_qedit 14.0 RequestMemory 640 && condor_release 14.0"
    # Of the processor: this machine may do something else as well. The best of a few.
    assert min(cost(headway, "advise", "memory.log", "14.0", "--offline") for _ in range(3)) < 0.5


def test_the_study_s_logs_are_grouped(headway: Call, tmp_path: Path) -> None:
    write(tmp_path / "study")
    text = headway("advise", "study/", "--offline").stdout
    assert text.startswith("study/: 18 held jobs\n")
    assert "release  16 jobs" in text and "change, then release  2 jobs" in text
    assert "JobDurationCategory '\"Long\"' && condor_release 794569.5 794569.18" in text
    document = json.loads(headway("advise", "study/", "--offline", "--json").stdout)
    assert document["counts"] == {"release": 16, "change": 2} and document["held"] == 18
    (one,) = [each for each in document["advice"] if each["job"] == "794569.5"]
    assert one["group"] == 'change:over-time:JobDurationCategory="Long"'
    ids = headway("advise", "study/", "--offline", "--ids", "change:over-time").stdout
    assert ids.split() == ["794569.5", "794569.18"]
    wrong = headway("advise", "study/", "--ids", "remove:x", "--offline", code=2)
    assert "release:input-object-not-found" in wrong.stderr


def test_what_a_newcomer_is_told_about_a_missing_output(headway: Call, tmp_path: Path) -> None:
    held_log(tmp_path / "out.log", "missing_output")
    text = headway("advise", "out.log", "8.0").stdout
    assert "The command ended without writing a file that it should: model.pt." in text
    assert "stderr" in text and "When that is done:\n  condor_release 8.0" in text


def test_a_run_and_its_jobs(headway: Call, make_run: Make) -> None:
    def events(log: EventWriter) -> None:
        for proc in range(3):
            log.submitted(5, proc, "<127.0.0.1:1>", time=1000.0)
        log.held(5, 0, "via condor_hold (by user me)", 1, 0, time=1100.0)
        log.held(5, 2, f"read: connection reset by peer {HOSTILE}", 13, 256, time=1100.0)

    make_run("train", jobs=3, cluster=5, events=events)
    text = headway("advise", "train-1", "--offline").stdout
    assert "release  1 job" in text and "headway release train-1.2" in text
    assert "leave it  1 job" in text and "headway release train-1.0" not in text
    assert "\x1b" not in text and "\u202e" not in text and "\x07" not in text
    card = headway("advise", "train-1.0", "--offline").stdout
    assert card.startswith("train-1.0  leave it\n") and "Somebody put the job on hold" in card
    assert headway("advise", "train.1", "--offline").stdout == "train-1.1 is not held\n"
    shown = headway("advise", "train-1.2", "--offline", "--json").stdout
    assert "\x1b" not in shown and json.loads(shown)["advice"][0]["name"] == "train-1.2"


def test_a_job_that_waits_on_a_local_pool_that_has_ended(headway: Call, make_run: Make) -> None:
    def events(writer: EventWriter) -> None:
        writer.submitted(1, 0, "<127.0.0.1:9618>")
        writer.held(1, 0, "Headway: the input 'a' did not arrive; released by itself", 3, 81)

    make_run("gone", events=events, pool="local")
    for words in ("gone-1", "gone-1.0"):
        assert "go on with `headway run --resume gone-1`" in headway("advise", words).stdout
    json.loads(headway("advise", "gone-1", "--json").stdout)


def test_more_logs_are_learnt_from_and_not_asked_about(headway: Call, tmp_path: Path) -> None:
    good = [event for n in range(12) for event in made.released_and(n, n * 300.0, True)]
    held = [made.submitted(99, 8000), *made.tried(99, 8001)]
    made.written(tmp_path / "past.log", [*good, *held])
    asked = [made.submitted(0, 9000, 2), *made.tried(0, 9001, made.NOT_FOUND, 2)]
    made.written(tmp_path / "now.log", asked)
    alone = json.loads(headway("advise", "now.log", "--offline", "--json").stdout)["advice"]
    more = headway("advise", "now.log", "--also", "past.log", "--offline", "--json").stdout
    (informed,) = json.loads(more)["advice"]
    assert alone[0]["cases"] == 0 and informed["cases"] == 12
    assert informed["probability"] > alone[0]["probability"]


def test_what_cannot_be_is_said(headway: Call, tmp_path: Path) -> None:
    held_log(tmp_path / "memory.log", "memory")
    assert "no job 7.7" in headway("advise", "memory.log", "7.7", code=2).stderr
    assert "--held and x" in headway("advise", "--held", "x", code=2).stderr
    assert "cannot be read" in headway("advise", "nothing.log", code=None).stderr
    assert "there are no runs" in headway("advise", code=None).stderr
    (tmp_path / "ok.log").write_bytes((LOGS / "ok_transfer.log").read_bytes())
    assert headway("advise", "ok.log").stdout == "ok.log: no job is held\n"


def test_no_queue_is_told_as_that(headway: Call) -> None:
    done = headway("advise", "--held", code=3, env={"HEADWAY_PATIENCE": "5", "CONDOR_CONFIG": "/x"})
    assert "error:" in done.stderr and "Traceback" not in done.stderr
