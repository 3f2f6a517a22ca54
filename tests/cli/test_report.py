"""`headway report` and `headway status LOG`, as a user calls them."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.report.study import logs as study_logs
from tests.report.written import BEGIN, HOSTILE, write_log

from headway.cli import status
from headway.cli.parser import since
from headway.events import EventWriter
from headway.pool.folder import RunFolder
from headway.spec.errors import Wrong

from .conftest import Done, environment, without_progress

Call = Callable[..., Done]
Make = Callable[..., RunFolder]
LOGS = Path(__file__).parents[1] / "events" / "logs"


def test_a_summary_and_exit_code_0_where_jobs_failed(headway: Call, tmp_path: Path) -> None:
    write_log(tmp_path / "train.log", [0, 0, 1, "Transfer input files failure"])
    done = headway("report", "train.log")
    assert done.stderr == ""
    assert done.stdout.startswith("train.log\n4 jobs, 4 attempts, 1 site")
    assert "jobs that succeeded" in done.stdout and "2 of 4" in done.stdout
    assert "Losses by cause" in done.stdout
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 120  # COLUMNS of the tests


def test_a_narrow_terminal(headway: Call, tmp_path: Path) -> None:
    write_log(tmp_path / "train.log", [0, 0, 1])
    done = headway("report", "train.log", env={"COLUMNS": "60"})
    assert max(map(len, done.stdout.splitlines())) <= 60


def test_the_newest_run_and_a_run_by_name(headway: Call, tmp_path: Path, make_run: Make) -> None:
    for name in ("one", "two"):
        write_log(make_run(name, jobs=2).events, [0, 1], cluster=1)
    assert headway("report").stdout.startswith("two-1\n")
    assert headway("report", "one").stdout.startswith("one-1\n")
    assert headway("report", ".headway/runs/one-1").stdout.startswith("one-1\n")


def test_json_is_one_document(headway: Call, tmp_path: Path) -> None:
    write_log(tmp_path / "train.log", [0, 1, HOSTILE])
    done = headway("report", "train.log", "--json", "--by", "site")
    document = json.loads(done.stdout)
    assert done.stdout.count("\n") == 1
    assert document["format"] == 1 and document["written"] == []
    assert document["totals"]["held"] == 1
    assert document["groups"][0]["key"] == "Site"
    assert not [char for char in done.stdout if ord(char) < 32 and char != "\n"]


def test_files_are_written_and_named(headway: Call, tmp_path: Path) -> None:
    write_log(tmp_path / "train.log", [0, 1, HOSTILE])
    done = headway(
        "report", "train.log", "--html", "r.html", "--csv", "tables", "--parquet", "p.parquet"
    )
    names = ["jobs", "attempts", "pieces", "holds", "losses"]
    files = ["r.html", *(f"tables/{name}.csv" for name in names), "p.parquet"]
    assert done.stdout.splitlines() == [f"written: {file}" for file in files]
    assert all((tmp_path / file).stat().st_size for file in files)
    page = (tmp_path / "r.html").read_text()
    assert page.startswith("<!doctype html>") and "<script>alert" not in page
    with (tmp_path / "tables/jobs.csv").open(newline="") as file:
        jobs = list(csv.DictReader(file))
    assert jobs[2]["hold_reason"].startswith("'=HYPERLINK")
    assert "\x1b" not in jobs[2]["hold_reason"]
    document = json.loads(headway("report", "train.log", "--json", "--html", "r.html").stdout)
    assert document["written"] == ["r.html"]


def test_stdout_gets_the_report_and_nothing_else(headway: Call, tmp_path: Path) -> None:
    write_log(tmp_path / "train.log", [0, 1])
    page = headway("report", "train.log", "--html", "-", "--csv", "tables")
    assert page.stdout.startswith("<!doctype html>")
    assert page.stdout.rstrip().endswith("</html>")
    assert "written: tables/jobs.csv" in page.stderr
    table = headway("report", "train.log", "--csv", "-")
    assert len(list(csv.reader(io.StringIO(table.stdout)))) == 3


def test_nothing_of_the_user_s_is_overwritten(headway: Call, tmp_path: Path) -> None:
    write_log(tmp_path / "train.log", [0, 1])
    headway("report", "train.log", "--html", "r.html")
    headway("report", "train.log", "--html", "r.html")  # ours: made anew
    (tmp_path / "r.html").write_text("mine")
    before = (tmp_path / "train.log").read_bytes()
    for target in ("r.html", "train.log"):
        done = headway("report", "train.log", "--html", target, code=2)
        assert f"{target} already exists" in done.stderr and "--force" in done.stderr
    assert (tmp_path / "r.html").read_text() == "mine"
    assert "already exists" in headway("report", "train.log", "--csv", "r.html", code=2).stderr
    assert (tmp_path / "train.log").read_bytes() == before
    headway("report", "train.log", "--html", "r.html", "--force")
    assert (tmp_path / "r.html").read_text() != "mine"
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".r.html")]


def test_compare(headway: Call, tmp_path: Path, make_run: Make) -> None:
    write_log(tmp_path / "before.log", [0, 1] * 30, transfer=1000)
    write_log(make_run("after", jobs=60).events, [0] * 60, transfer=10)
    done = headway("report", "--compare", "before.log", "after")
    assert done.stdout.startswith("before.log → after-1\n")
    assert "better: success, of jobs that ended: 50.0 % → 100.0 % (+50.0 points)" in done.stdout
    assert "better: compute share: 25.0 % → 99.0 % (+74.0 points)" in done.stdout
    document = json.loads(headway("report", "--compare", "before.log", "after", "--json").stdout)
    figures = {figure["name"]: figure for figure in document["figures"]}
    assert figures["success, of jobs that ended"]["runs"][1]["change"] == "better"
    assert document["format"] == 1 and document["few"] == []
    assert document["notes"] == [] and document["written"] == []


def test_a_comparison_as_a_page_and_as_a_table(
    headway: Call, tmp_path: Path, make_run: Make
) -> None:
    write_log(tmp_path / "before.log", [0, 1] * 30, transfer=1000)
    with (tmp_path / "before.log").open("ab") as log:
        log.write(b"<<<<<<< HEAD\n005 (1.0")
    write_log(make_run("after", jobs=60).events, [0] * 60, transfer=10)
    both = ("report", "--compare", "before.log", "after")
    done = headway(*both, "--html", "both.html", "--csv", "both.csv")
    assert done.stdout == "written: both.html\nwritten: both.csv\n"
    page = (tmp_path / "both.html").read_text()
    assert "before.log" in page and ">25.0 %<" in page and "+74.0 points, better" in page
    assert "not complete: still being written?" in page
    rows = list(csv.DictReader(io.StringIO((tmp_path / "both.csv").read_text())))
    share = next(row for row in rows if row["name"] == "compute share")
    assert (share["part"], share["unit"]) == ("figure", "share")
    assert (float(share["before"]), share["after-1: change"]) == (0.25, "better")
    assert {row["site"] for row in rows if row["part"] == "site"} == {"Site"}
    headway(*both, "--html", "both.html", "--csv", "both.csv")  # our own are replaced
    (tmp_path / "mine.csv").write_text("mine")
    assert "already exists" in headway(*both, "--csv", "mine.csv", code=2).stderr
    assert headway(*both, "--html", "-").stdout.startswith("<!doctype html>")
    assert headway(*both, "--csv", "-").stdout.startswith("part,site,name,unit,before,after-1,")
    assert "still being written?" in headway(*both).stdout


def test_several_runs_are_compared_with_the_first(headway: Call, tmp_path: Path) -> None:
    for name, transfer in (("stock-2024", 1000), ("stock-2026", 500), ("headway", 10)):
        (tmp_path / "r" / name).mkdir(parents=True)
        write_log(tmp_path / "r" / name / "events.log", [0] * 30, transfer=transfer)
    all_three = ("report", "--compare", "r/stock-2024", "r/stock-2026", "r/headway")
    done = headway(*all_three).stdout
    assert done.startswith("r/stock-2024 → r/stock-2026, r/headway\n")
    assert "compute share" in done
    headway(*all_three, "--html", "all.html", "--csv", "all.csv")
    assert "What changed: " in (tmp_path / "all.html").read_text()
    rows = list(csv.DictReader(io.StringIO((tmp_path / "all.csv").read_text())))
    share = next(row for row in rows if row["name"] == "goodput")
    assert {"stock-2024", "stock-2026", "headway", "headway: change"} <= share.keys()
    headway("report", "--compare", "r/headway", "r/stock-2026", "--csv", "all.csv")  # ours
    document = json.loads(headway(*all_three, "--json").stdout)
    assert document["runs"] == ["r/stock-2024", "r/stock-2026", "r/headway"]
    assert {len(figure["runs"]) for figure in document["figures"]} == {3}


def test_since(headway: Call, tmp_path: Path) -> None:
    now = time.time()
    write_log(tmp_path / "old.log", [0, 0], begin=now - 30 * 86400)
    write_log(tmp_path / "new.log", [0], begin=now - 86400, cluster=2)
    done = headway("report", "old.log", "new.log", "--since", "7d")
    assert "1 job, 1 attempt" in done.stdout
    assert "2 jobs without an event since" in done.stdout
    none = headway("report", "old.log", "--since", "7d", code=2)
    assert "no job has an event since" in none.stderr and "the last event is of" in none.stderr


def test_moments() -> None:
    now = 1_757_000_000.0
    assert since("7d", now) == now - 7 * 86400
    assert since("12 h", now) == now - 43200
    assert since("2025-09-01T00:00:00Z", now) == 1_756_684_800.0
    assert since("2025-09-01T02:00+02:00", now) == 1_756_684_800.0
    local = time.mktime((2025, 9, 1, 8, 30, 0, 0, 0, -1))
    assert since("2025-09-01 08:30", now) == local
    assert since("2025-09-01", now) == local - 8.5 * 3600
    for wrong in ("", "7", "yesterday", "2025-13-01", "-3d", "2099-01-01", "9999999 weeks"):
        with pytest.raises(Wrong) as caught:
            since(wrong, now)
        assert "such as 7d" in caught.value.remedy


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing.log"], "there is no log and no run 'nothing.log'"),
        (["trian.log"], "did you mean train.log?"),
        (["train.log", "--by", "day"], "invalid choice: 'day'"),
        (["train.log", "--since", "soon"], "--since"),
        (["train.log", "--output", "$(Item).pt"], "$(Item)"),
        (["--compare", "train.log"], "nothing to compare it with"),
        (["train.log", "--compare", "train.log", "train.log"], "do not go together"),
        (["--compare", "train.log", "train.log", "--parquet", "x"], "do not go together"),
        (["--compare", "train.log", "train.log", "--by", "site"], "do not go together"),
        (["train.log", "--since", ""], "--since"),
        (["train.log", "--html", "-", "--json"], "both go to stdout"),
        (["train.log", "--html", "-", "--csv", "-"], "both go to stdout"),
        (["train.log", "--parquet", "-"], "does not go to stdout"),
        (["train.log", "--html", "no/such/r.html"], "cannot be written"),
        (["train.log", "--html", "."], "is a folder"),
        (["notes.txt"], "is not an event log"),
        (["damage.log"], "bytes were skipped"),
        (["empty.log"], "it is empty"),
        (["--hmtl", "x"], "did you mean --html?"),
        ([], "there are no runs"),
    ],
)
def test_wrong_words_are_answered(
    headway: Call, tmp_path: Path, words: list[str], said: str
) -> None:
    write_log(tmp_path / "train.log", [0])
    (tmp_path / "notes.txt").write_text("no events here\n" * 10)
    (tmp_path / "empty.log").touch()
    (tmp_path / "damage.log").write_bytes(
        b"000 (001.000.000) 2025-13-45 08:00:00 Job submitted\n...\n" * 9
    )
    done = headway("report", *words, code=2)
    assert said in done.stderr
    assert done.stderr.startswith("error: ")
    if "--json" not in words:
        assert done.stdout == ""
        error = json.loads(headway("report", *words, "--json", code=2).stdout or "{}")
        assert error["type"] == "error" and error["exit"] == 2


def test_a_closed_pipe_is_quiet(command: Sequence[str], tmp_path: Path) -> None:
    log = write_log(tmp_path / "train.log", [0] * 50)
    for extra in ([], ["--json"], ["--html", "-"], ["--csv", "-"]):
        reading, writing = os.pipe()
        os.close(reading)
        with os.fdopen(writing, "w") as closed:
            done = subprocess.run(
                [*command, "report", str(log), *extra],
                stdout=closed,
                stderr=subprocess.PIPE,
                env=environment(tmp_path),
                text=True,
            )
        assert (without_progress(done.stderr), done.returncode) == ("", 141), extra


def test_status_and_help_load_no_frames(tmp_path: Path) -> None:
    log = write_log(tmp_path / "train.log", [0])
    code = "import sys, headway.cli\n"
    for words in (["report", "--help"], ["status", str(log)], ["list"]):
        code += f"headway.cli.main({words!r})\n"
        code += f"assert not {{'polars', 'numpy'}} & set(sys.modules), {words!r}\n"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def story(path: Path) -> None:
    write_log(path, [0, 1, "Transfer failed \x1b[2J", None], cluster=8123)


def test_status_of_a_log(headway: Call, tmp_path: Path) -> None:
    story(tmp_path / "train.log")
    text = headway("status", "train.log").stdout
    assert text.startswith("train.log: 1 failed, 1 held, 1 running, 1 succeeded\n")
    rows = [line.split()[:2] for line in text.splitlines() if line.startswith("8123.")]
    assert rows == [["8123.1", "failed"], ["8123.2", "held"], ["8123.3", "running"],
                    ["8123.0", "succeeded"]]  # fmt: skip
    assert "headway advise train.log 8123.2" in text
    assert "where the time went: headway report train.log" in text
    assert "\x1b" not in text
    # A plain log may be years old: what runs has run up to its last event.
    running = next(line for line in text.splitlines() if line.startswith("8123.3"))
    assert "16 min 40 s" in running


def test_status_of_rotated_and_compressed_logs(headway: Call, tmp_path: Path) -> None:
    story(tmp_path / "whole.log")
    raw = (tmp_path / "whole.log").read_bytes()
    middle = raw.index(b"...\n", len(raw) // 2) + 4
    (tmp_path / "train.log.old").write_bytes(raw[:middle])
    (tmp_path / "train.log").write_bytes(raw[middle:])
    (tmp_path / "gz").mkdir()
    with gzip.open(tmp_path / "gz/train.log.gz", "wb") as file:
        file.write(raw)
    whole = json.loads(headway("status", "whole.log", "--json").stdout)
    assert whole["counts"]["failed"] == 1 and whole["jobs"] == 4
    assert whole["last"] == BEGIN + 1110
    assert whole["states"][0]["job"] == "8123.0"
    for words in (["train.log"], ["gz/train.log.gz"], ["gz"], ["./gz/", "gz/train.log.gz"]):
        again = json.loads(headway("status", *words, "--json").stdout)
        assert (again["counts"], again["states"]) == (whole["counts"], whole["states"]), words


def test_status_knows_logs_from_runs(headway: Call, tmp_path: Path, make_run: Make) -> None:
    def one(writer: EventWriter) -> None:
        writer.submitted(1, 0, "<127.0.0.1:9618>")

    make_run("tale", events=one)
    for name in ("tale", "0", "other"):
        story(tmp_path / name)
    assert headway("status", "tale").stdout.startswith("tale-1 on htcondor")
    assert headway("status", "./tale").stdout.startswith("tale: 1 failed")
    assert headway("status", "0").stdout.startswith("tale-1.0 idle")
    assert headway("status", "other").stdout.startswith("other: 1 failed")
    assert headway("status", ".headway/runs/tale-1").stdout.startswith("tale-1 on htcondor")
    assert "cannot be read" in headway("status", "no.log", code=2).stderr
    two = headway("status", "other", "tale").stdout
    assert two.startswith("other, tale: 2 failed, 2 held")


@pytest.mark.parametrize("most", [200, 3])
def test_status_of_big_logs_is_the_same_and_quicker(
    tmp_path: Path, most: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [str(path) for path in sorted(LOGS.glob("*.log"))]
    for name, data in study_logs().items():
        (tmp_path / name).write_bytes(data.replace(b"2024-09-", b"09/"))  # without the year
        paths.append(str(tmp_path / name))
    for path in paths:
        shown = []
        for big in (1 << 40, 0):
            monkeypatch.setattr(status, "BIG", big)
            status.print_jobs(status.read_jobs([path], most), most)
            shown.append(capsys.readouterr().out)
        assert shown[0] == shown[1], path
        assert ": " in shown[0]


def test_trouble_of_one_kind_does_not_hide_the_other(headway: Call, tmp_path: Path) -> None:
    write_log(tmp_path / "train.log", [1] * 300 + ["no such file"] * 5)
    text = headway("status", "train.log").stdout
    assert text.count(" held ") == 5
    assert "headway advise train.log 1.304" in text


def test_status_of_many_jobs_is_cut_short(headway: Call, tmp_path: Path) -> None:
    write_log(tmp_path / "train.log", [0] * 300)
    text = headway("status", "train.log").stdout
    assert "… and 100 more; --all shows them" in text
    assert headway("status", "train.log", "--all").stdout.count(" succeeded ") == 300
