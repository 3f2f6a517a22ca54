"""`headway clean`: what goes, what stays, and that nothing is left half."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.api import look
from headway.errors import RunError
from headway.events import EventWriter
from headway.pool import results
from headway.pool.folder import RunFolder, Runs

from .conftest import Done

Call = Callable[..., Done]
Make = Callable[..., RunFolder]
HOST = "<127.0.0.1:9618>"
DAY = 86400.0


def over(writer: EventWriter, when: float = 1000.0) -> None:
    writer.submitted(1, 0, HOST, time=when)
    writer.executing(1, 0, HOST, time=when)
    writer.terminated(1, 0, return_value=0, time=when)


def held(writer: EventWriter) -> None:
    writer.submitted(1, 0, HOST, time=1000)
    writer.held(1, 0, "because", 1, 0, time=1000)


def has_output(folder: RunFolder, text: str = "model", place: str = "outputs") -> None:
    (folder.job_folder(0) / place).mkdir(parents=True)
    (folder.job_folder(0) / place / "model.pt").write_text(text)


def judged(tmp_path: Path, **options: object) -> dict[str, tuple[bool, str]]:
    found = results.candidates(Runs(tmp_path / ".headway"), look, **options)  # type: ignore[arg-type]
    return {one.folder.label: (one.goes, one.why) for one in found}


def test_without_do_nothing_is_changed(headway: Call, make_run: Make, tmp_path: Path) -> None:
    for _ in range(2):
        make_run("old", events=over)
    has_output(make_run("results", events=over))
    make_run("held", events=held)
    before = sorted(tmp_path.rglob("*"))
    shown = headway("clean").stdout
    assert "2 runs, " in shown and "--do removes them" in shown
    assert "stays: the only copy of 1 output is in it; see --outputs" in shown
    assert "stays: 1 job is not over" in shown
    assert sorted(tmp_path.rglob("*")) == before
    assert "--do needs to know which runs" in headway("clean", "--do", code=2).stderr
    assert "--older" in headway("clean", "--older", "soon", code=2).stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_what_is_over_goes_and_the_rest_stays(
    headway: Call, make_run: Make, tmp_path: Path
) -> None:
    runs = Runs(tmp_path / ".headway")
    for _ in range(3):
        make_run("old", events=over)
    has_output(make_run("results", events=over))
    has_output(make_run("partial", events=over), place="attempts/20250101T000000Z-a/outputs")
    make_run("held", events=held)
    make_run("queued", jobs=2, events=over)  # the log does not know its other job yet
    make_run("broken", events=over).job_file.write_text("{")
    told = json.loads(headway("clean", "--keep", "1", "--do", "--json").stdout)
    assert [run["run"] for run in told["runs"] if run["removed"]] == ["old-1", "old-2"]
    headway("clean", "--keep", "0", "--do")
    stay = {"results-1", "partial-1", "held-1", "queued-1", "broken-1"}
    assert {entry.name for entry in runs.folder.iterdir() if entry.name[0] != "."} == stay
    headway("clean", "results", "partial", "held", "--outputs", "--do")
    assert {run.label for run in runs} == {"held-1", "queued-1", "broken-1"}
    # the labels of runs that are gone are not used again
    assert make_run("old", events=over).label == "old-4"


def test_by_age(make_run: Make, tmp_path: Path) -> None:
    make_run("a", events=lambda writer: over(writer, 10 * DAY))
    make_run("b", events=lambda writer: over(writer, 30 * DAY))
    found = judged(tmp_path, older=7 * DAY, now=31 * DAY)
    assert found == {"a-1": (True, ""), "b-1": (False, "ended more recently than --older")}


def test_a_run_that_was_perhaps_submitted_stays(make_run: Make, tmp_path: Path) -> None:
    make_run("never", cluster=None)
    make_run("perhaps", cluster=None).submit_file.write_text("queue")
    found = judged(tmp_path)
    assert found["never-1"] == (True, "")
    assert found["perhaps-1"][1].startswith("may be in the queue")


def test_what_another_run_counts_on_is_told(make_run: Make, tmp_path: Path) -> None:
    has_output(make_run("scan", events=over))
    later = make_run("scan", events=over)
    one = {"job": 0, "row": {"job": "0"}, "state": "kept", "run": "scan-1", "index": 0}
    later.kept.write_text(json.dumps({"kept": [{**one, "outputs": []}]}))
    found = judged(tmp_path, outputs=True)
    assert found["scan-1"] == (True, "with its outputs, which scan-2 still needs")


def test_a_run_that_is_taken_up_meanwhile_stays(make_run: Make, tmp_path: Path) -> None:
    runs = Runs(tmp_path / ".headway")
    local = make_run("local", pool="local", events=over)
    for folder, lock in ((local, "supervisor"), (make_run("far", events=over), "submit")):
        (one,) = results.candidates(runs, look, chosen=[folder.label])
        with folder.locked(lock):
            assert judged(tmp_path)[folder.label] == (False, "is being worked on")
            with pytest.raises(RunError):
                results.remove(runs, one, look)
        with EventWriter(folder.events) as writer:
            writer.submitted(2, 0, HOST)
        with pytest.raises(RunError, match="not over"):
            results.remove(runs, one, look)
        assert folder.path.is_dir()


def test_a_removal_that_is_cut_off_leaves_nothing_half(
    make_run: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(tmp_path / ".headway")
    make_run("old", events=over)
    (one,) = results.candidates(runs, look)

    def killed(_: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(results, "remove_tree", killed)
        with pytest.raises(KeyboardInterrupt):
            results.remove(runs, one, look)
    assert not list(runs)
    assert results.sweep(runs, act=False) > 0
    assert results.sweep(runs, act=True) > 0 and results.sweep(runs, act=True) == 0
    assert [entry.name for entry in runs.folder.iterdir()] == [".last-old"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_what_is_another_user_s_stays(make_run: Make, tmp_path: Path) -> None:
    folder = make_run("theirs", events=over)
    os.chown(folder.path, 12345, 12345)
    goes, why = judged(tmp_path)["theirs-1"]
    assert not goes and why.startswith("left alone: ") and "12345" in why
    make_run("open", events=over).path.chmod(0o777)
    assert judged(tmp_path)["open-1"][1].startswith("left alone: others can write")


def test_a_link_in_place_of_a_run_is_not_followed(make_run: Make, tmp_path: Path) -> None:
    folder = make_run("old", events=over)
    folder.path.rename(tmp_path / "elsewhere")
    folder.path.symlink_to(tmp_path / "elsewhere")
    assert judged(tmp_path)["old-1"] == (False, "is not a folder of its own")
