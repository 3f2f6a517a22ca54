"""`headway run --only-missing`: what counts as there, what is run, and that nothing is lost."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import headway
from headway.api import Submission, find_missing, look, plan_run
from headway.cli import main
from headway.errors import PreflightError
from headway.events import EventWriter
from headway.pool import open_pool
from headway.pool.folder import RunFolder, Runs
from headway.pool.prepare import prepare
from headway.pool.results import KEPT, MISSING, Results, all_results, kept_text, read_kept
from headway.spec import Job, build_job

from .house import SMALL, House

TRAIN = """\
import os, sys
lr = sys.argv[1]
if lr == "0.2":
    sys.exit(3)
open("model.pt", "w").write(lr + os.environ["HEADWAY_JOB"])
"""
SCAN = (
    'name = "scan"\ncommand = "python3 train.py {lr}"\nfiles = ["train.py"]\n'
    'outputs = [{path = "model.pt", to = "results/{lr}.pt"}]\ntable = "lr.csv"\n' + SMALL
)


def test_only_what_failed_or_is_new_is_run(house: House) -> None:
    house.write(TRAIN, "train.py")
    house.write("lr\n0.1\n0.2\n0.3\n", "lr.csv")
    house.run(SCAN, code=1)
    mine = house.folder / "results/0.1.pt"
    mine_before = mine.stat()

    house.write(TRAIN.replace('"0.2"', '"never"'), "train.py")
    house.write("lr\n0.4\n0.3\n0.2\n0.1\n", "lr.csv")  # other numbers, and a new row
    done = house.headway("run", "job.toml", "--only-missing", "--dry-run", "--json")
    told = json.loads(done.stdout)["only_missing"]
    assert {row["row"]["lr"]: row["why"] for row in told["run"]} == {
        "0.4": "it has not been run yet",
        "0.2": "scan-1.1 failed: the command exited with 3",
    }
    assert [each["run"] for each in told["kept"]] == ["scan-1", "scan-1"]
    assert not (house.folder / ".headway/runs/scan-2").exists()

    done = house.headway("run", "job.toml", "--pool", house.pool, "--only-missing")
    assert "scan has 4 jobs: 2 kept from scan-1, 2 to run" in done.stderr
    assert "train.py changed since scan-1" in done.stderr
    assert "kept: 2 from scan-1" in done.stdout
    # each job has the number that it has in the table, not that in the run
    texts = {path.name: path.read_text() for path in (house.folder / "results").iterdir()}
    assert texts == {"0.1.pt": "0.10", "0.2.pt": "0.22", "0.3.pt": "0.32", "0.4.pt": "0.40"}
    assert mine.stat().st_mtime_ns == mine_before.st_mtime_ns

    done = house.headway("run", "job.toml", "--only-missing")
    assert done.stdout.startswith("nothing to run: all jobs have their outputs")
    assert not (house.folder / ".headway/runs/scan-3").exists()
    lines = house.headway("status", "scan-2", "--results").stdout.splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["scan-2.0", "lr=0.4", "succeeded", "results/0.4.pt"],
        ["scan-1.2", "lr=0.3", "succeeded", "results/0.3.pt"],
        ["scan-2.1", "lr=0.2", "succeeded", "results/0.2.pt"],
        ["scan-1.0", "lr=0.1", "succeeded", "results/0.1.pt"],
    ]
    assert "2 succeeded (2 kept from other runs)" in house.headway("list").stdout
    assert len(json.loads(house.headway("status", "--json").stdout)["kept"]) == 2

    mine.unlink()
    done = house.headway("run", "job.toml", "--only-missing", "--dry-run")
    assert f"scan-1.0 succeeded, but model.pt is no longer at {mine}" in done.stderr


# -- runs that never ran

Made = Callable[..., RunFolder]
DONE = {"outputs": [{"path": "model.pt", "bytes": 5, "files": 1}], "exit": 0}


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("1")
    return tmp_path


def described(base: Path, table: object = None, **more: Any) -> Job:
    raw: dict[str, Any] = {
        "name": "s",
        "command": "python3 train.py {lr}",
        "files": ["train.py"],
        "table": table or [{"lr": lr} for lr in (0.1, 0.2, 0.3)],
        "outputs": ["model.pt"],
        **more,
    }
    return build_job(raw, folder=base)


@pytest.fixture
def made(base: Path) -> Made:
    """A run whose jobs are in the given states; those that succeeded have their output."""

    def make(job: Job, states: Sequence[str], *, pool: str = "htcondor") -> RunFolder:
        runs = Runs(base / ".headway")
        folder = prepare(job, base, runs, {"kind": pool, "sites": []}, "d")
        if not states:
            return folder
        folder.update(cluster=7)
        cluster = 7 if pool == "htcondor" else folder.facts.number
        with EventWriter(folder.events) as writer:
            for number, state in enumerate(states):
                place = (cluster, number)
                if state == "none":
                    continue
                writer.submitted(*place, "<127.0.0.1:0>")
                if state == "held":
                    writer.held(*place, "because", 1, 0)
                elif state == "removed":
                    writer.aborted(*place, "via rm")
                elif state != "idle":
                    writer.executing(*place, "<127.0.0.1:0>")
                if state in ("ok", "failed"):
                    writer.terminated(*place, return_value=0 if state == "ok" else 83)
                if state == "ok":
                    attempt = folder.job_folder(number) / "attempts/20260101T000000Z-aa"
                    attempt.mkdir(parents=True)
                    (attempt / "record.json").write_text(json.dumps(DONE))
                    (folder.job_folder(number) / "outputs").mkdir()
                    (folder.job_folder(number) / "outputs/model.pt").write_text("12345")
        return folder

    return make


def states(found: Results) -> list[str]:
    return [each.state for each in found.results]


def ask(base: Path, job: Job) -> Results:
    return find_missing(job, base, Runs(base / ".headway"))


def test_a_job_in_another_queue_is_not_run_twice(base: Path, made: Made) -> None:
    job = described(base, [{"lr": n} for n in range(7)])
    made(job, ["ok", "failed", "removed", "idle", "running", "held", "none"])
    found = ask(base, job)
    assert states(found) == ["kept", "missing", "missing", "busy", "busy", "waits", "busy"]
    assert found.words() == "1 kept from s-1, 3 under way in s-1, 1 waiting in s-1, 2 to run"
    part = found.missing_part(job)
    assert part.rows == ({"lr": "1", "job": "1"}, {"lr": "2", "job": "2"})
    assert part.row(1) == {"lr": "2", "job": "2"}


def test_what_was_stopped_waits_for_a_person_and_what_was_never_submitted_does_not(
    base: Path, made: Made
) -> None:
    job = described(base)
    made(job, ["ok", "running", "idle"], pool="local")
    assert states(ask(base, job)) == ["kept", "waits", "waits"]
    other = described(base, name="t")
    made(other, [])
    assert states(ask(base, other)) == ["missing"] * 3


def test_another_command_or_input_is_another_job_and_more_memory_is_not(
    base: Path, made: Made
) -> None:
    job = described(base)
    made(job, ["ok", "ok", "failed"])
    kept = ["kept", "kept", "missing"]
    assert states(ask(base, described(base, resources={"memory": "9 GB"}))) == kept
    assert states(ask(base, described(base, retries={"command": 3}, grace="9 s"))) == kept
    (base / "lib.py").write_text("2")
    found = ask(base, described(base, files=["train.py", "lib.py"]))
    assert states(found) == kept and found.notes[0].startswith("lib.py changed since s-1")
    for change in (
        {"command": "python3 train.py {lr} --epochs 9"},
        {"environment": {"A": "b"}},
        {"inputs": ["https://example.org/other.tar"]},
    ):
        found = ask(base, described(base, **change))
        assert states(found) == ["missing"] * 3
        assert found.results[0].why == f"s-1 ran it with another `{next(iter(change))}`"
    found = ask(base, described(base, outputs=["model.pt", "log.csv"]))
    assert found.results[0].why == "s-1.0 succeeded, but log.csv was not among its outputs"
    found = ask(base, described(base, outputs=[{"path": "model.pt", "min_size": "6 B"}]))
    assert "5 bytes, at least 6" in found.results[1].why


def test_an_input_that_is_unpacked_now_makes_another_job(base: Path, made: Made) -> None:
    data = {"url": "https://example.org/data.tar", "path": "data"}
    made(described(base, inputs=[data]), ["ok", "ok", "ok"])
    found = ask(base, described(base, inputs=[{**data, "unpack": True}]))
    assert states(found) == ["missing"] * 3
    assert found.results[0].why == "s-1 ran it with another `inputs`"


def test_an_output_that_is_gone_or_cut_does_not_count(base: Path, made: Made) -> None:
    job = described(base)
    folder = made(job, ["ok", "ok", "ok"])
    (folder.job_folder(0) / "outputs/model.pt").unlink()
    (folder.job_folder(1) / "outputs/model.pt").write_text("123")
    found = ask(base, job)
    assert states(found) == ["missing", "missing", "kept"]
    assert "is no longer at" in found.results[0].why
    assert "has 3 bytes and had 5" in found.results[1].why


def test_what_went_to_a_url_counts_by_its_record(base: Path, made: Made) -> None:
    url = "https://example.org/out/{lr}.pt"
    job = described(base, outputs=[{"path": "model.pt", "to": url}])
    folder = made(job, ["ok", "ok", "ok"])
    for number in range(3):
        (folder.job_folder(number) / "outputs/model.pt").unlink()
    record = next((folder.job_folder(1) / "attempts").glob("*/record.json"))
    record.write_text(json.dumps({"exit": 0, "outputs": [{"path": "other", "bytes": 1}]}))
    found = ask(base, job)
    assert states(found) == ["kept", "missing", "kept"]
    assert found.results[0].outputs[0].where == "https://example.org/out/0.1.pt"


def test_jobs_of_a_count_are_known_by_their_number(base: Path, made: Made) -> None:
    job = described(base, command="python3 train.py")
    job = job.model_copy(update={"rows": None, "count": 4})
    made(job, ["ok", "failed", "ok", "failed"])
    part = ask(base, job).missing_part(job)
    assert part.rows == ({"job": "1"}, {"job": "3"})
    made(part, ["ok", "failed"])  # s-2 has jobs 1 and 3 as its 0 and 1
    found = ask(base, job)
    assert [each.name for each in found.of(KEPT)] == ["s-1.0", "s-2.0", "s-1.2"]
    assert found.missing_part(job).rows == ({"job": "3"},)


def test_equal_rows_are_as_many_jobs(base: Path, made: Made) -> None:
    made(described(base, [{"lr": 1}, {"lr": 1}]), ["ok", "failed"])
    assert states(ask(base, described(base, [{"lr": 1}] * 3))) == ["kept", "missing", "missing"]
    # a column that no part of the job asks for makes no other job of a row
    found = ask(base, described(base, [{"lr": 1, "note": "a"}, {"lr": 2, "note": "b"}]))
    assert states(found) == ["kept", "missing"]


def test_a_run_of_another_folder_or_a_damaged_one_does_not_count(base: Path, made: Made) -> None:
    job = described(base)
    first = made(job, ["ok"] * 3)
    made(job, ["ok"] * 3).job_file.write_text("{")
    first.update(base="/elsewhere")
    found = ask(base, job)
    assert states(found) == ["missing"] * 3
    assert [note.split(":")[0] for note in found.notes] == ["s-2 is left out", "s-1 does not count"]


def test_no_kept_result_is_replaced(base: Path, made: Made) -> None:
    output = {"path": "model.pt", "to": "out/{job}.pt", "overwrite": True}
    job = described(base, [{"lr": 1}, {"lr": 2}], outputs=[output])
    folder = made(job, ["ok", "failed"])
    (base / "out").mkdir()
    (folder.job_folder(0) / "outputs/model.pt").rename(base / "out/0.pt")
    moved = described(base, [{"lr": 2}, {"lr": 1}], outputs=[output])  # lr=2 has number 0 now
    with pytest.raises(
        PreflightError, match=r"job 0 would replace .*out/0.pt, the result of s-1.0"
    ):
        ask(base, moved).check_places(moved, base)
    ask(base, job).check_places(job, base)
    with pytest.raises(PreflightError):
        headway.run(moved, only_missing=True)
    told: list[int] = []
    with pytest.raises(PreflightError):
        plan_run(
            moved,
            only_missing=True,
            on_results=lambda _, results: told.append(len(results.results)),
        )
    assert told == [2]  # what there is, before what is wrong with it


def test_what_a_run_was_spared_is_told_as_it_is_now(
    base: Path, made: Made, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = described(base)
    first = made(job, ["ok", "ok", "failed"])
    found = ask(base, job)
    runs = Runs(base / ".headway")
    kept = kept_text(found.of(KEPT))
    second = prepare(found.missing_part(job), base, runs, {"kind": "htcondor"}, "e", kept)
    assert [each.name for each in read_kept(second)] == ["s-1.0", "s-1.1"]
    assert [each.state for each in all_results(look(second))] == [KEPT, KEPT, MISSING]
    (first.job_folder(1) / "outputs/model.pt").unlink()
    results = headway.Run(second).results()
    assert [each.state for each in results] == [KEPT, MISSING, MISSING]
    one = json.loads(kept)["kept"][0]
    for change in (
        {"job": "x"},
        {"outputs": [{"path": "a", "where": 5, "bytes": "x"}]},
        {"row": 3},
    ):
        second.kept.write_text(json.dumps({"kept": [{**one, **change}]}))
        with pytest.raises(headway.RunError):
            read_kept(second)
    monkeypatch.chdir(base)
    assert main(["list"]) == 0
    assert "kept.json cannot be read" in capsys.readouterr().out
    odd = {"run": 7, "state": "", "outputs": [{"path": 1, "where": 5, "bytes": None}]}
    second.kept.write_text(json.dumps({"kept": [{**one, **odd}]}))
    assert all_results(look(second))[0].why == "7 was removed"


def test_two_who_ask_at_the_same_moment_get_the_same_run(base: Path, made: Made) -> None:
    job = described(base, resources={"memory": "20 MB", "disk": "10 MB"})
    made(job, ["ok", "failed", "failed"])
    runs = Runs(base / ".headway")
    pool = open_pool("local:cpus=1", base)
    start = threading.Barrier(4)
    got: list[str] = []

    def ask_too() -> None:
        found = find_missing(job, base, runs)
        start.wait()
        part = found.missing_part(job)
        got.append(Submission(part, base, pool, runs, results=found).prepare().label)

    threads = [threading.Thread(target=ask_too) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == ["s-2"] * 4


def test_from_python_nothing_to_run_gives_the_run_that_has_it(base: Path, made: Made) -> None:
    job = described(base, resources={"memory": "20 MB", "disk": "10 MB"})
    made(job, ["ok"] * 3)
    run = headway.run(job, only_missing=True)
    assert run.label == "s-1" and len(list(Runs(base / ".headway"))) == 1
