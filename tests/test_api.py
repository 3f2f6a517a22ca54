"""The Python API: jobs made in Python, and no error that is not a HeadwayError."""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import headway
from headway.pool.prepare import prepare
from headway.report import report
from headway.spec import Gpus, Input, Resources, dump_job, load_job, load_resolved

SMALL = {"memory": 20_000_000, "disk": 10_000_000}


def wrong(**keys: Any) -> dict[str, str]:
    """Where a job made in Python is found wrong, and why."""
    with pytest.raises(headway.SpecError) as caught:
        headway.Job(**keys)
    return {problem.where: problem.what for problem in caught.value.problems}


def test_a_table_in_python_is_that_of_a_job_toml(tmp_path: Path) -> None:
    table = [
        {"lr": 0.1, "seed": 1, "augment": True, "name": "a, b"},
        {"lr": 1e-5, "seed": -2, "augment": False, "name": "ü"},
    ]
    (tmp_path / "job.toml").write_text(
        'name = "s"\ncommand = "x {lr} {seed} {augment} {name}"\n'
        'table = [{lr = 0.1, seed = 1, augment = true, name = "a, b"},'
        ' {lr = 1e-5, seed = -2, augment = false, name = "ü"}]\n'
    )
    written = load_job(tmp_path / "job.toml")
    command = "x {lr} {seed} {augment} {name}"
    assert headway.Job(name="s", command=command, table=table) == written
    assert headway.Job(name="s", command=command, table=tuple(table)).rows == written.rows
    assert headway.Job(name="s", command=command, rows=table).rows == written.rows
    assert written.rows is not None and written.rows[1]["lr"] == "1e-05"


def test_a_table_in_python_may_be_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rows.csv").write_text("lr\n0.1\n")
    monkeypatch.chdir(tmp_path)
    for table in ("rows.csv", Path("rows.csv"), tmp_path / "rows.csv"):
        assert headway.Job(name="s", command="x {lr}", table=table).rows == ({"lr": "0.1"},)
    assert headway.Job(name="s", command="x", files=[Path("rows.csv")]).files == ("rows.csv",)


def test_a_job_made_in_python_is_a_job(tmp_path: Path) -> None:
    job = headway.Job(name="s", command=["x", "{lr}"], table=[{"lr": 1}], resources=SMALL)
    assert job.resources.memory == 20_000_000
    assert load_resolved(dump_job(job)) == job == pickle.loads(pickle.dumps(job))
    assert copy.deepcopy(job) == job
    assert job.model_copy(update={"name": "t"}).name == "t"


def test_everything_wrong_with_a_job_made_in_python_is_told_at_once() -> None:
    assert wrong() == {"Job: name": "is missing", "Job: command": "is missing"}
    found = wrong(
        name="a/b",
        command="x {lrr}",
        cuont=3,
        table=[{"lr": 1}],
        resources={"memry": 1, "disk": "4 bananas"},
        inputs=[{"url": 3}],
        outputs=[{"path": "../x"}],
    )
    assert set(found) == {
        "Job: name",
        "Job: command",
        "Job: cuont",
        "Job: resources.memry",
        "Job: resources.disk",
        "Job: inputs[0].url",
        "Job: outputs[0].path",
    }
    assert found["Job: command"] == "no column is called `lrr`"


def test_what_only_all_keys_together_show_is_told_too() -> None:
    found = wrong(
        name="s", command="x", table=[{"a": 1}, {"a": 2}], outputs=[{"path": "x", "to": "y"}]
    )
    assert found == {"Job: outputs[0].to": 'all 2 jobs would write to "y"'}
    assert wrong(name="s", command="x", table=[{"a": None}]) == {
        "Job: table[0].a": "should be text or a number, not None"
    }
    assert "Job: count" in wrong(name="s", command="x", table=[{"a": 1}], count=2)
    assert "Job: table" in wrong(name="s", command="x", table=3)
    assert "Job: rows" in wrong(name="s", command="x", table=[{"a": 1}], rows=[{"a": 1}])


def test_the_parts_of_a_job_and_a_change_of_it_are_refused_in_the_same_way() -> None:
    for make, where in (
        (lambda: Resources(memry=1), "Resources: memry"),  # type: ignore[call-arg]
        (lambda: Gpus(count=0), "Gpus: count"),
        (lambda: Input(path="x"), "Input: url"),  # type: ignore[call-arg]
    ):
        with pytest.raises(headway.SpecError) as caught:
            make()
        assert [problem.where for problem in caught.value.problems] == [where]
    job = headway.Job(name="s", command="x")
    with pytest.raises(headway.SpecError, match="model_copy"):
        job.name = "y"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> headway.Run:
    """A run that was prepared and never submitted."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    job = headway.Job(name="s", command="true", count=2, resources=SMALL)
    facts = {"kind": "local", "name": "local", "sites": []}
    return headway.Run(prepare(job, tmp_path, headway.Runs(tmp_path / ".headway"), facts, "d"))


def test_a_run_says_what_it_is(run: headway.Run) -> None:
    assert repr(run) == "<Run s-1 on local: not submitted>"
    run.folder.events.write_text(
        "000 (001.000.000) 2026-11-17 10:00:00 Job submitted from host: <127.0.0.1:0>\n...\n"
        "005 (001.000.000) 2026-11-17 10:00:09 Job terminated.\n"
        "\t(1) Normal termination (return value 0)\n...\n"
    )
    assert repr(run) == "<Run s-1 on local: 1 succeeded, 1 idle>"
    (run.folder.path / "run.json").write_text("{")
    assert repr(headway.Run(run.folder)).startswith("<Run s-1: ")


LONG = "x" * 5000
PATHS = ("nope", "folder", "binary", "fifo", LONG, "a\0b", "", "binary/x")


def calls(run: headway.Run) -> Iterator[Callable[[], object]]:
    """What can be asked of the API, with arguments that no use was thought of for."""
    job = headway.Job(name="s", command="true", files=["binary"], resources=SMALL)
    here = Path("binary").absolute().as_uri()
    for path in PATHS:
        yield partial(headway.load_job, path)
        yield partial(headway.run, path)
        yield partial(headway.run, job, base=path or "nope")
        yield partial(headway.Run.find, path or "nope")
        yield partial(headway.publish, path if path != "binary" else "nope")
        yield partial(headway.put, path, "ftp://127.0.0.1:9/x")
        yield partial(headway.fetch, here, path or "folder/x/", checksum="md5:" + 32 * "0")
        if path != "folder":
            yield partial(headway.run, job, start=path or "nope")
            yield partial(headway.Run.find, "s", start=path or "nope")
            yield partial(report, path or "nope")
    for given in (["count"], ["count=x"], [3], "count=3", ["a\0b=3"], [None]):
        yield partial(headway.load_job, "job.toml", overrides=given)  # type: ignore[arg-type]
        yield partial(headway.load_job, "job.toml", resources=given)  # type: ignore[arg-type]
    for pool in ("", "nowhere", "local:cpus=x", "local:sites=folder", "htcondor:x=y", LONG):
        yield partial(headway.run, "job.toml", pool=pool)
    for number in (-1, 2, 10**30, "0", "x", None, 0.5):
        yield partial(run.outputs, number)  # type: ignore[arg-type]
        yield partial(run.stream, number)  # type: ignore[arg-type]
        yield partial(run.hold, [number])  # type: ignore[list-item]
        yield partial(run.edit, [number], "RequestMemory", 1)  # type: ignore[list-item]
    for url in ("", "nope", "http://", "http://[", "ftp://x/y", "a\0b", "osdf://", [], [""], [3]):
        yield partial(headway.fetch, url, "out", patience=0.1)  # type: ignore[arg-type]
        yield partial(headway.put, "binary", url)  # type: ignore[arg-type]
    for options in ({"checksum": "x"}, {"manifest": "x"}, {"size": -1}, {"size": 1}):
        yield partial(headway.fetch, here, "out", **options)
    for size in (0, -5, 10**30):
        yield partial(headway.publish, "binary", chunk_size=size)


def test_no_public_callable_raises_a_stranger_s_error(run: headway.Run, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\0")
    (tmp_path / "folder").mkdir()
    (tmp_path / "job.toml").write_text('name = "s"\ncommand = "true"\n')
    os.mkfifo(tmp_path / "fifo")
    strangers = []
    for call in calls(run):
        try:
            strangers.append(f"{call} refused nothing and gave {call()!r}")
        except headway.HeadwayError as error:
            assert error.message
        except Exception as error:
            strangers.append(f"{call}: {error!r}")
    assert not strangers


@pytest.mark.parametrize("damage", ["run.json", "job.json", "pool", "gone"])
def test_a_damaged_run_folder_is_told_in_our_own_words(run: headway.Run, damage: str) -> None:
    if damage == "gone":
        run.folder.path.rename(run.folder.path.with_name("elsewhere"))
    elif damage == "pool":
        run.folder.update(pool={"kind": "local"})
    else:
        (run.folder.path / damage).write_text('{"name": 3}')
    run = headway.Run(run.folder)
    asked: list[Callable[[], object]] = [
        run.settled, run.succeeded, run.lost, run.hold, run.outputs, run.stream,
        lambda: run.pool, lambda: run.jobs, lambda: run.wait(0),
    ]  # fmt: skip
    refused = 0
    for call in asked:
        try:
            call()
        except headway.HeadwayError:
            refused += 1
    assert refused
