"""status, list and logs, from event logs that no pool has written."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.api import Run
from headway.cli.job_text import RunJobs
from headway.cli.run_summary import print_ending
from headway.errors import RunError
from headway.events import EventWriter
from headway.pool.folder import RunFacts, RunFolder, Runs
from headway.spec import Job, dump_job
from headway.text import RowWords, width_of

from .conftest import Done

Call = Callable[..., Done]
Make = Callable[..., RunFolder]
HOST = "<127.0.0.1:9618>"


def story(writer: EventWriter) -> None:
    """Five jobs: idle, running, held, failed, succeeded."""
    for job in range(5):
        writer.submitted(1, job, HOST, time=1000)
    for job in range(1, 5):
        writer.executing(1, job, HOST, slot=f"slot1@node{job}", time=1010)
    line = "headway nonce=abc phase=stage-in state=progress bytes=500000000 total=2000000000"
    writer.generic(1, 1, line, time=1011)
    writer.held(1, 2, "Error from slot1@node2: \x1b[2J[red]disk[/red]", 13, 256, time=1020)
    writer.terminated(1, 3, return_value=83, time=1030)
    writer.terminated(1, 4, return_value=0, time=1090)


def test_status_tells_it_all(headway: Call, make_run: Make) -> None:
    make_run("tale", jobs=5, events=story)
    text = headway("status").stdout
    assert "tale-1 on htcondor: 1 failed, 1 held, 1 running, 1 idle, 1 succeeded" in text
    lines = [line.split() for line in text.splitlines()]
    order = [line[1] for line in lines if line and line[0].startswith("tale-1.")][:5]
    assert order == ["failed", "held", "running", "idle", "succeeded"]
    assert "500 MB / 2 GB" in text or "0.5 / 2 GB" in text
    assert "headway logs tale-1.3 --stderr" in text
    assert "headway advise tale-1.2" in text
    assert "\x1b" not in text
    assert "[red]disk[/red]" in text
    assert "results: .headway/runs/tale-1/jobs/JOB/outputs" in text


def test_status_of_one_job(headway: Call, make_run: Make) -> None:
    make_run("tale", jobs=6, events=story)
    assert "tale-1.3 failed: the command failed" in headway("status", ".3").stdout
    assert "node1" in headway("status", "tale.1").stdout
    assert "is not in the event log yet" in headway("status", "5").stdout


def test_status_as_json(headway: Call, make_run: Make) -> None:
    make_run("tale", jobs=6, events=story)
    document = json.loads(headway("status", "--json").stdout)
    assert document["counts"]["idle"] == 2  # one of them is not in the log yet
    assert [state["job"] for state in document["states"]] == [0, 1, 2, 3, 4]
    assert document["settled"] is False
    one = json.loads(headway("status", ".4", "--json").stdout)
    assert [state["outcome"] for state in one["states"]] == ["success"]


def test_status_and_list_where_nothing_may_be_written(headway: Call, make_run: Make) -> None:
    folder = make_run("tale", jobs=5, events=story, pool="local")
    folder.path.chmod(0o555)
    try:
        assert "1 failed" in headway("status").stdout
        assert "tale-1" in headway("list").stdout
        assert headway("logs", ".0").stdout == ""
    finally:
        folder.path.chmod(0o755)


def test_a_local_run_that_nobody_runs_says_so(headway: Call, make_run: Make) -> None:
    make_run("tale", jobs=5, events=story, pool="local")
    assert "go on with `headway run --resume tale-1`" in headway("status").stdout
    assert json.loads(headway("status", "--json").stdout)["lost"] is True


def test_a_large_run_is_cut_short(headway: Call, make_run: Make) -> None:
    def submit(writer: EventWriter) -> None:
        with writer.group():
            for job in range(300):
                writer.submitted(1, job, HOST)

    make_run("large", jobs=300, events=submit)
    text = headway("status").stdout
    assert "… and 100 more; --all shows them" in text
    assert text.count("large-1.") == 200
    assert headway("status", "--all").stdout.count("large-1.") == 300


def test_list(headway: Call, make_run: Make) -> None:
    assert "no runs in .headway/runs" in headway("list").stdout
    make_run("tale", jobs=5, events=story)
    make_run("other", cluster=None, pool="local")
    lines = headway("list").stdout.splitlines()
    assert lines[0].split() == ["run", "pool", "created", "jobs", "results"]
    assert "1 failed, 1 held, 1 running, 1 idle, 1 succeeded" in lines[1]
    assert "not submitted" in lines[2]
    document = json.loads(headway("list", "--json").stdout)
    assert [run["run"] for run in document["runs"]] == ["tale-1", "other-1"]


def test_a_run_that_cannot_be_read_does_not_hide_the_others(headway: Call, make_run: Make) -> None:
    make_run("tale", jobs=5, events=story)
    make_run("broken").job_file.write_text("{")
    lines = headway("list").stdout.splitlines()
    assert "1 failed" in lines[1] and "job.json: invalid JSON" in lines[2]
    whole, broken = json.loads(headway("list", "--json").stdout)["runs"]
    assert whole["error"] is None and "job.json: invalid JSON" in broken["error"]


def test_somebody_else_s_run_is_seen_by_its_log(
    make_run: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run("tale", jobs=5, events=story)

    def refuse(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("headway.pool.folder.read_plain", refuse)
    with pytest.raises(RunError, match=r"^only \w+ can read \S*job\.json\n") as caught:
        assert RunFolder(folder.path).job
    assert f"headway status {folder.events}" in caught.value.remedy


def put(folder: RunFolder, job: int, attempt: str, **streams: bytes) -> None:
    place = folder.job_folder(job) / "attempts" / attempt
    place.mkdir(parents=True)
    for name, data in streams.items():
        (place / {"agent": "agent.log"}.get(name, name)).write_bytes(data)


def test_logs_are_the_newest_attempt_s_own_bytes(headway: Call, make_run: Make) -> None:
    folder = make_run("tale", jobs=5, events=story)
    put(folder, 3, "20250101T000000Z-aaaaaa", stdout=b"old")
    raw = b"\x00\xff\x1b[2J new \r\n"
    put(folder, 3, "20250101T000009Z-bbbbbb", stdout=raw, stderr=b"oh", agent=b"hm")
    assert os.fsencode(headway("logs", "tale.3").stdout.replace("\n", "\r\n")) == raw
    assert headway("logs", "tale.3", "--stderr").stdout == "oh"
    assert headway("logs", "tale.3", "--agent").stdout == "hm"
    assert headway("logs", "tale.3", "-f").stdout.endswith("new \n")
    document = json.loads(headway("logs", "tale.3", "--json").stdout)
    assert document["attempt"] == "20250101T000009Z-bbbbbb"
    assert " new " in document["text"]


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ("0", "is idle and has not run yet"),
        ("1", "its output arrives here when the attempt ends"),
        ("3", "its stdout did not arrive here"),
        ("5", "is not in the event log yet"),
    ],
)
def test_logs_say_where_the_output_is(headway: Call, make_run: Make, job: str, said: str) -> None:
    make_run("tale", jobs=6, events=story)
    done = headway("logs", job)
    assert done.stdout == ""
    assert said in done.stderr


def test_the_board_follows_the_log(make_run: Make) -> None:
    folder = make_run("tale", jobs=6, events=story)
    run_jobs = RunJobs(Run(folder))
    assert run_jobs.counts["idle"] == 2
    assert [state.proc for state in run_jobs.first(3)] == [3, 2, 1]
    with EventWriter(folder.events) as writer:
        writer.released(1, 2, "go")
        writer.aborted(1, 0, "away")
    run_jobs.run.refresh()
    assert run_jobs.counts == {
        "failed": 1, "held": 0, "running": 1, "delivering": 0,
        "idle": 2, "removed": 1, "succeeded": 1,
    }  # fmt: skip
    assert run_jobs.busy
    assert len(run_jobs.first(100)) == 5
    assert run_jobs.first(0) == []


def test_trouble_does_not_hide_what_runs(make_run: Make) -> None:
    def crowd(writer: EventWriter) -> None:
        with writer.group():
            for job in range(60):
                writer.submitted(1, job, HOST)
                writer.executing(1, job, HOST)
                if job < 40:
                    writer.terminated(1, job, return_value=1)

    run_jobs = RunJobs(Run(make_run("crowd", jobs=60, events=crowd)))
    shown = run_jobs.first(10)
    assert sum(state.terminal for state in shown) == 5
    assert sum(not state.terminal for state in shown) == 5
    assert len(run_jobs.first(50)) == 50


def test_paths_are_shown_as_one_would_type_them(
    headway: Call, make_run: Make, tmp_path: Path
) -> None:
    folder = make_run("tale", jobs=5, events=story)
    put(folder, 3, "20250101T000000Z-aaaaaa", stderr=b"a\nb\x1b[31m\n")
    text = headway("status").stdout
    assert "its stderr: .headway/runs/tale-1/jobs/3/attempts/" in text
    assert str(tmp_path) not in text


# -- the logs of all jobs


def finished(writer: EventWriter) -> None:
    for job in range(3):
        writer.submitted(1, job, HOST)
        writer.executing(1, job, HOST)
        writer.terminated(1, job, return_value=0)


def test_the_logs_of_a_run_are_those_of_all_its_jobs(headway: Call, make_run: Make) -> None:
    folder = make_run("tale", jobs=3, events=finished)
    put(folder, 0, "20250101T000000Z-aaaaaa", stdout=b"old")
    put(folder, 0, "20250101T000009Z-aaaaaa", stdout=b"one\n\xff two\r\n", stderr=b"oh")
    put(folder, 2, "20250101T000000Z-aaaaaa", stdout=b"10 %\r20 %\r100 %\nno newline")
    lines = ["tale-1.0 | one", "tale-1.0 | \udcff two", "tale-1.2 | 100 %", "tale-1.2 | no newline"]
    assert headway("logs", "tale-1").stdout.splitlines() == lines
    assert headway("logs", "tale-1", "-f").stdout.splitlines() == lines
    assert headway("logs", "tale-1", "--stderr").stdout == "tale-1.0 | oh\n"
    nothing = headway("logs", "tale-1", "--agent")
    assert not nothing.stdout and "there is no agent.log here" in nothing.stderr
    document = json.loads(headway("logs", "tale-1", "--json").stdout)
    assert [job["text"][:3] for job in document["jobs"]] == ["one", "", "10 "]
    told = [json.loads(line) for line in headway("logs", "-f", "--json").stdout.splitlines()]
    assert [line["job"] for line in told] == [0, 0, 2, 2] and told[2]["text"] == "100 %"
    told = [json.loads(line) for line in headway("logs", ".2", "-f", "--json").stdout.splitlines()]
    assert told[1]["text"] == "no newline"


# -- the rows of a table


def test_a_job_is_shown_with_its_row(headway: Call, tmp_path: Path) -> None:
    evil = "\x1b[31m\u202e\r\n" + "x" * 80
    table = [
        {"lr": "0.1", "seed": "1", "data": f"/a/long/way/to/some/data/{name}.tar", "note": note}
        for name, note in (("one", "plain"), ("two", evil))
    ]
    job = Job(name="scan", command="true", rows=[{"lr": "0"}]).model_copy(
        update={"rows": tuple(table)}
    )

    def fill(folder: RunFolder, facts: RunFacts) -> None:
        folder.job_file.write_text(dump_job(job))
        folder.jobs.mkdir()

    pool = {"kind": "htcondor", "schedd": None, "collector": None}
    runs = Runs(tmp_path / ".headway")
    folder = runs.create("scan", pool=pool, base=tmp_path, digest="d", fill=fill)
    folder.update(cluster=1)
    with EventWriter(folder.events) as writer:
        for number in range(2):
            writer.submitted(1, number, "<127.0.0.1:0>")
        writer.held(1, 1, "no reason", 1, 0)
    shown = headway("status").stdout
    # what all rows have in common is left out, and so is what a long path begins with
    assert re.search(r"^job +row +state ", shown, re.MULTILINE)
    assert re.search(r"^scan-1\.0 +data=…one\.tar note=plain +idle", shown, re.MULTILINE)
    assert not set(shown) & set("\x1b\r\u202e") and "x" * 40 not in shown
    states = json.loads(headway("status", "--json").stdout)["states"]
    assert [state["row"] for state in states] == table
    assert headway("status", ".0").stdout.startswith("scan-1.0 (data=…one.tar note=plain) ")
    report = json.loads(headway("report", "scan-1", "--json").stdout)
    assert [job["row"][:13] for job in report["jobs"]] == ["data=…one.tar", "data=…two.tar"]
    headway("report", "scan-1", "--html", "page.html")


def test_rows_in_few_words() -> None:
    same = RowWords([{"a": "1"}, {"a": "1"}])
    assert (same(0), same(5)) == ("", "")
    assert RowWords([{"a": "1", "b": "x y"}])(0) == 'a=1 b="x y"'
    assert RowWords([{"job": "3"}, {"job": "7"}])(1) == "job=7"
    assert RowWords([{"job": "3", "lr": "1"}, {"job": "7", "lr": "2"}])(1) == "lr=2"
    wide = RowWords([{f"c{n}": str(row) for n in range(40)} for row in range(2)])
    assert width_of(wide(1)) == RowWords.ROW and wide(1, 20).endswith("…")
    assert RowWords(None)(0) == ""


def test_a_refused_submit_has_one_answer(headway: Call, make_run: Make) -> None:
    """`status` and `list` say the same, and what to do next."""
    refused = make_run("refused", jobs=3, cluster=None)
    assert repr(Run(refused)) == "<Run refused-1 on htcondor: not submitted>"
    make_run("waits", jobs=3, cluster=7)  # submitted, and its log has nothing yet
    text = headway("status", "refused-1").stdout
    assert "refused-1 on htcondor: not submitted" in text and "idle" not in text
    assert "headway run --resume refused-1" in text
    assert "is not submitted" in headway("status", "refused-1.0").stdout
    listed = headway("list").stdout.splitlines()
    assert "not submitted" in listed[1] and "3 idle" in listed[2]
    assert "3 idle" in headway("status", "waits-1").stdout
    for label, submitted in (("refused-1", False), ("waits-1", True)):
        one = json.loads(headway("status", label, "--json").stdout)
        runs = json.loads(headway("list", "--json").stdout)["runs"]
        (other,) = [run for run in runs if run["run"] == label]
        assert one["submitted"] is other["submitted"] is submitted
        assert {group: n for group, n in one["counts"].items() if n} == other["counts"]


def test_a_finished_run_that_is_resumed_shows_how_long_it_took(
    headway: Call, make_run: Make
) -> None:
    def events(log: EventWriter) -> None:
        log.submitted(1, 0, "<127.0.0.1:1>", time=1000.0)
        log.executing(1, 0, "<127.0.0.1:1>", time=1010.0)
        log.terminated(1, 0, return_value=0, time=1120.0)

    make_run("old", events=events)  # created 1001 s after the epoch
    text = headway("run", "--resume", "old-1").stdout
    assert "old-1 finished after 2 min: 1 succeeded" in text
    *_, end = headway("run", "--resume", "old-1", "--json").stdout.splitlines()
    assert json.loads(end)["seconds"] == 120.0


def test_a_run_that_is_left_while_a_job_waits_for_its_release_is_not_finished(
    make_run: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    def events(log: EventWriter) -> None:
        log.submitted(1, 0, HOST, time=1000.0)
        log.executing(1, 0, HOST, time=1010.0)
        log.held(1, 0, "an input did not arrive", code, code and 81, time=1020.0)

    for code, word in ((3, "left"), (1, "finished")):
        run = Run(make_run("waits", events=events))
        print_ending(run, RunJobs(run))
        assert f"waits-{1 + (code == 1)} {word} after" in capsys.readouterr().out


def test_an_input_that_is_another_one_points_to_its_declaration(
    headway: Call, make_run: Make
) -> None:
    def events(log: EventWriter) -> None:
        log.submitted(1, 0, HOST, time=1000.0)
        log.executing(1, 0, HOST, time=1010.0)
        log.terminated(1, 0, return_value=82, time=1020.0)

    make_run("other", events=events)
    assert "check its url and checksum in job.toml" in headway("status").stdout
