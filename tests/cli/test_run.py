"""`headway run` on the local pool, as a user's shell sees it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.lab import Server
from tests.loaded import finished

from headway.api import Run
from headway.cli.job_text import RunJobs
from headway.cli.view import CountView, LineView
from headway.events import EventWriter
from headway.pool.folder import RunFolder

from .conftest import Done, environment

Call = Callable[..., Done]
Write = Callable[..., Path]
POOL = ("--pool", "local:cpus=4")


def started(folder: Path, *words: str) -> subprocess.Popen[str]:
    """A command of a user in this folder, whose output can be read while it runs."""
    pipe = subprocess.PIPE
    return subprocess.Popen(
        words, cwd=folder, env=environment(folder), stdout=pipe, stderr=pipe, text=True
    )


def test_a_run_that_succeeds(headway: Call, job_toml: Write, tmp_path: Path) -> None:
    job_toml((0, 0))
    done = headway("run", "job.toml", *POOL)
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d small-1\.0 \(seconds=0 code=0\) idle", lines[0])
    phases = [phase for phase in ("check", "stage-in", "run", "stage-out") if phase in done.stdout]
    assert phases == ["check", "stage-in", "run", "stage-out"]
    assert lines[-2].startswith("small-1 finished after ")
    assert lines[-1] == "results: .headway/runs/small-1/jobs/0/outputs"
    assert (tmp_path / ".headway/runs/small-1/jobs/0/outputs/result.txt").read_text() == "done"
    assert "\x1b" not in done.stdout
    assert headway("logs").stdout == "out 0 0\n"
    assert headway("logs", "--stderr").stdout == "err\n"
    assert "1 succeeded" in headway("status").stdout
    assert "1 succeeded" in headway("list").stdout


def test_a_run_that_fails_shows_why(headway: Call, job_toml: Write) -> None:
    job_toml((0, 0), (0, 3))
    done = headway("run", "job.toml", *POOL, code=1)
    assert "1 failed, 1 succeeded" in done.stdout
    assert "small-1.1 (code=3) failed: the command exited with 3" in done.stdout
    assert "its stderr: .headway/runs/small-1/jobs/1/attempts/" in done.stdout
    assert "│ err" in done.stdout
    assert "headway logs small-1.1 --stderr" in done.stdout


def test_a_run_as_json_lines(headway: Call, job_toml: Write) -> None:
    job_toml((0, 0), (0, 1))
    done = headway("run", "job.toml", "--json", *POOL, code=1)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[0]["type"] == "run"
    assert lines[0]["run"] == "small-1"
    assert {line["type"] for line in lines[1:-1]} <= {"job", "finding", "note"}
    assert lines[-1]["type"] == "end"
    assert lines[-1]["counts"]["failed"] == 1
    assert lines[-1]["failed"][0]["job"] == 1
    assert lines[-1]["succeeded"] is False


def test_a_dry_run_makes_nothing(headway: Call, job_toml: Write, tmp_path: Path) -> None:
    job_toml((0, 0))
    before = sorted(tmp_path.rglob("*"))
    done = headway("run", "job.toml", "--dry-run", *POOL)
    assert '"command"' in done.stdout
    document = json.loads(headway("run", "job.toml", "--dry-run", "--json", *POOL).stdout)
    assert document["folder"].endswith("/.headway/runs/small-1")
    assert document["describe"] == done.stdout
    assert sorted(tmp_path.rglob("*")) == before


def test_what_would_fail_is_not_submitted(headway: Call, job_toml: Write, tmp_path: Path) -> None:
    job_toml((0, 0))
    done = headway("run", "job.toml", "--resource", "cpu=900", *POOL, code=2)
    assert "error: resources.cpus: asks for 900 cpus" in done.stderr
    assert not (tmp_path / ".headway").exists()
    dry = headway("run", "job.toml", "--resource", "cpu=900", "--dry-run", *POOL, code=2)
    assert "1 error:" in dry.stderr
    assert dry.stdout


def test_overrides_reach_the_job(headway: Call, job_toml: Write) -> None:
    job_toml((0, 0))
    options = ("--set", "environment.A=b", "--resource", "mem=60MB", "--dry-run")
    assert '"A": "b"' in headway("run", "job.toml", *options, *POOL).stdout
    wrong = headway("run", "job.toml", "--set", "cuont=2", *POOL, code=2)
    assert "did you mean `count`?" in wrong.stderr


def test_detach_act_and_resume(headway: Call, job_toml: Write) -> None:
    job_toml((30, 0), (0.2, 0))
    done = headway("run", "job.toml", "--detach", *POOL)
    assert "small-1 is submitted" in done.stdout
    wait(lambda: "1 running, 1 succeeded" in headway("status").stdout)
    wait(lambda: headway("logs", ".0").stdout == "out 30 0\n")  # from its scratch folder
    assert "held small-1.0" in headway("hold", "small-1.0").stdout
    wait(lambda: "1 held" in headway("status").stdout)
    assert "headway release small-1.0" in headway("status").stdout
    assert "released small-1.0" in headway("release", "0").stdout
    wait(lambda: "1 running" in headway("status").stdout)
    assert "evicted small-1.0" in headway("evict", ".0").stdout
    wait(lambda: '"evictions": 1' in headway("status", ".0", "--json").stdout)
    answer = json.loads(headway("remove", "--all", "--json").stdout)
    assert answer["results"] == [{"run": "small-1", "job": 0, "error": None}]
    wait(lambda: "1 removed, 1 succeeded" in headway("status").stdout)
    assert "it has already left the queue" in headway("hold", ".0", code=1).stdout
    assert "there is no job to hold" in headway("hold", "small").stdout
    assert "there is no job to release" in headway("release", "--all").stdout
    resumed = headway("run", "--resume", "small-1", code=1)  # over: only says what became of it
    assert "1 removed, 1 succeeded" in resumed.stdout


def test_logs_follow_until_the_job_is_over(
    headway: Call, job_toml: Write, command: Sequence[str], tmp_path: Path
) -> None:
    go_on = waits_to_end(job_toml((0, 0)))
    headway("run", "job.toml", "--detach", *POOL)
    with started(tmp_path, *command, "logs", "-f") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "out 0 0\n"
        assert process.poll() is None
        go_on.touch()
        done = finished(process)
    assert (done.stdout, done.returncode) == ("", 0), done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_stops_and_resume_goes_on(
    job_toml: Write, headway: Call, command: Sequence[str], tmp_path: Path, number: signal.Signals
) -> None:
    go_on = waits_to_end(job_toml((0, 0)))
    with started(tmp_path, *command, "run", "job.toml", *POOL) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "running, run" in line:
                break
        process.send_signal(number)
        time.sleep(0.05)
        process.send_signal(number)  # impatience changes nothing
        done = finished(process)
    err = done.stderr
    assert done.returncode == 128 + number, done.stdout + err
    assert "small-1: its jobs were stopped; go on with `headway run --resume small-1`" in err
    assert "Traceback" not in err
    assert "1 idle" in headway("status").stdout
    go_on.touch()
    resumed = headway("run", "--resume", "small")
    assert "(attempt 2)" in resumed.stdout
    assert "1 succeeded" in resumed.stdout


def test_a_reader_that_goes_away_stops_the_run(
    job_toml: Write, headway: Call, command: Sequence[str], tmp_path: Path
) -> None:
    job_toml((5, 0), (0.5, 0))
    with started(tmp_path, *command, "run", "job.toml", *POOL) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(120) == 141, process.stderr.read()
        assert "its jobs were stopped" in process.stderr.read()
    assert " idle" in headway("status").stdout


def test_a_killed_pool_is_noticed(
    job_toml: Write, headway: Call, command: Sequence[str], tmp_path: Path
) -> None:
    job_toml((20, 0))
    with started(tmp_path, *command, "run", "job.toml", *POOL) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "running, run" in line:
                break
        found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for child in map(int, found):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        err = finished(process).stderr
    assert process.returncode == 3, err
    assert "the local pool of small-1 ended before its jobs did" in err
    assert "nobody runs these jobs now" in headway("status").stdout
    headway("remove", "small-1")


def test_many_jobs_become_counts(
    make_run: Callable[..., RunFolder], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_run("many", jobs=60)
    run_jobs = RunJobs(Run(folder))
    view = CountView(run_jobs)
    view.tick()
    with EventWriter(folder.events) as writer, writer.group():
        for job in range(60):
            writer.submitted(1, job, "<a>")
            writer.executing(1, job, "<b>")
    run_jobs.run.refresh()
    view.tick()
    view.tick()
    view.close()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == ["many-1: 60 idle", "many-1: 60 running"]


def test_a_long_transfer_is_heard_of(
    make_run: Callable[..., RunFolder],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = make_run("slow")
    run_jobs = RunJobs(Run(folder))
    view = LineView(run_jobs)
    run_jobs.run.saw = view.saw
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with EventWriter(folder.events) as writer:
        writer.submitted(1, 0, "<a>")
        writer.executing(1, 0, "<b>")
        for step in range(10):
            line = f"headway nonce=a phase=stage-in state=progress bytes={step}000000 total=9000000"
            writer.generic(1, 0, line)
            run_jobs.run.refresh()
            now[0] += 10
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(", ")[-1] for line in lines[2:]] == [
        "0 B / 9 MB", "3 / 9 MB", "6 / 9 MB", "9 / 9 MB",
    ]  # fmt: skip


def wait(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def waits_to_end(job_toml: Path) -> Path:
    """Let the job's command go on, after its first words, until the returned file is there."""
    go_on, script = job_toml.with_name("go-on"), job_toml.with_name("work.py")
    waits = f"while not os.path.exists({str(go_on)!r}): time.sleep(0.02)"
    sleeps = "time.sleep(float(sys.argv[1]))"
    text = script.read_text().replace("import sys,", "import os, sys,")
    script.write_text(text.replace(sleeps, waits))
    return go_on


def test_a_missing_input_is_named_everywhere(headway: Call, tmp_path: Path) -> None:
    """In the hold's reason, `status`, `advise` and the ending; the URL without its secrets."""
    job = """\
name = "lacks"
command = "true"
[[inputs]]
url = "{url}"
path = "data/d.tar"
patience = "1 s"
[retries]
input = {retries}
[resources]
memory = "50 MB"
disk = "10 MB"
"""
    with Server({}) as server:
        url = server.url("gone/d.tar")
        host = url.split("/")[2]
        secret = f"{url}?sig=geheim"
        said = f"the input 'data/d.tar' did not arrive: HTTP 404 Not Found from {host} ({url})"
        (tmp_path / "job.toml").write_text(job.format(url=secret, retries=3))
        headway("run", "job.toml", "--detach")
        events = tmp_path / ".headway/runs/lacks-1/events.log"
        wait(lambda: "\n012 (" in events.read_text())
        log, shown = events.read_text(), headway("status", "lacks-1").stdout
        assert f"Headway: {said}; released by itself after 60 s" in log
        assert said in shown and "what to do about it: headway advise lacks-1.0" in shown
        card = " ".join(headway("advise", "lacks-1.0").stdout.split())
        assert f"data/d.tar did not arrive: HTTP 404 Not Found from {host} ({url})." in card
        assert "Wait for the job's own release, 60 s after the hold." in card
        assert f"headway sources {url} && headway release lacks-1.0" in card
        headway("remove", "lacks-1")
        # Without retries the job ends, and the ending says the same.
        (tmp_path / "job.toml").write_text(job.format(url=secret, retries=0))
        ended = headway("run", "job.toml", "--again", code=1)
        assert f"lacks-2.0 failed: {said}\n" in ended.stdout
    for text in (log, shown, card, ended.stdout):
        assert "geheim" not in text
