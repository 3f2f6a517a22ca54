"""Whose a run is: Headway acts only on what nobody else could have made, and reads the rest."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headway.api import Run, Submission
from headway.check import check
from headway.cli import main
from headway.errors import HeadwayError, RunError
from headway.events import EventWriter
from headway.holds.audit import Audit, read_audit
from headway.pool import Action, RunFolder, Runs, open_pool
from headway.pool.folder import RunFacts
from headway.spec import build_job, dump_job

MALLORY = 4242
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def give(path: Path, uid: int = MALLORY) -> None:
    """Make it another user's, with all that is in it."""
    for each in [path, *path.rglob("*")]:
        os.chown(each, uid, uid, follow_symlinks=False)


def make(place: Path, name: str = "job", kind: str = "local", cluster: int | None = 7) -> RunFolder:
    """A run of one job that is held."""
    job = build_job({"name": name, "command": "true"}, folder=place)

    def fill(folder: RunFolder, _: RunFacts) -> None:
        folder.job_file.write_text(dump_job(job))
        folder.jobs.mkdir()

    sites = open_pool("local:cpus=1", Path("/")).facts()["sites"]
    facts = {"kind": kind, "schedd": None, "collector": None, "sites": sites}
    runs = Runs(place / ".headway")
    folder = runs.create(name, pool=facts, base=place, digest="d", fill=fill)
    folder.update(cluster=cluster)
    with EventWriter(folder.events) as log:
        log.submitted(7, 0, "<127.0.0.1:1>")
        log.held(7, 0, "the transfer broke off", 11, 0)
    return folder


@root_only
def test_a_headway_folder_of_somebody_above_is_not_ours(tmp_path: Path) -> None:
    """Its owner could swap the node program, and run code as whoever works below it."""
    theirs, mine = tmp_path / "theirs", tmp_path / "theirs" / "mine"
    make(theirs)
    give(theirs)
    mine.mkdir()
    (mine / "deep").mkdir()
    for start in (mine, mine / "deep"):
        assert Runs.here(start).root == start / ".headway"
    run = make(mine)
    assert Runs.here(mine / "deep").folder == run.path.parent, "our own is found from below"


@root_only
def test_the_search_ends_at_a_folder_of_another_owner_and_at_a_mount(tmp_path: Path) -> None:
    make(tmp_path)
    between = tmp_path / "between"
    (between / "mine").mkdir(parents=True)
    assert Runs.here(between / "mine").root.parent == tmp_path
    os.chown(between, MALLORY, MALLORY)
    assert Runs.here(between / "mine").root.parent == between / "mine"
    os.chown(between, os.geteuid(), os.getegid())
    mounted = subprocess.run(["mount", "-t", "tmpfs", "none", between], capture_output=True)
    if mounted.returncode:
        pytest.skip("nothing can be mounted here")
    try:
        (between / "mine").mkdir()
        assert Runs.here(between / "mine").root.parent == between / "mine"
    finally:
        subprocess.run(["umount", between], check=True)


def share(path: Path, mode: int, group: int = -1) -> None:
    os.chown(path, -1, group)
    path.chmod(mode)


SPOILED: dict[str, Callable[[Path], object]] = {
    ".headway of another": lambda house: os.chown(house, MALLORY, MALLORY),
    "runs of another": lambda house: os.chown(house / "runs", MALLORY, MALLORY),
    ".headway open to all": lambda house: share(house, 0o777),
    "runs open to all": lambda house: share(house / "runs", 0o757),
    "sticky, and yet open to all": lambda house: share(house, 0o1777),
    "open to a group": lambda house: share(house, 0o770, MALLORY),
    "a project folder open to all": lambda house: share(house.parent, 0o777),
}


@root_only
@pytest.mark.parametrize("how", SPOILED)
def test_what_others_can_change_is_not_acted_on(tmp_path: Path, how: str) -> None:
    place = tmp_path / "project"
    place.mkdir()
    folder = make(place)
    SPOILED[how](place / ".headway")
    job = build_job({"name": "new", "command": "true"}, folder=place)
    pool = open_pool("local:cpus=1", place)
    with pytest.raises(RunError) as refused:
        Submission(job, place, pool, Runs.here(place)).prepare()
    told = f"{refused.value.message} {refused.value.remedy}"
    assert str(place) in told
    assert any(word in told for word in ("`chmod", "`sudo", "`cd`")), told
    with pytest.raises(RunError):
        Run(folder).release()
    with pytest.raises(RunError):
        Run(folder).edit([0], "RequestMemory", "9")
    with pytest.raises(RunError):
        pool.submit(folder)
    (place / "job.toml").write_text('name = "x"\ncommand = "true"\n[checkpoint]\npaths = ["x"]\n')
    with pytest.raises(RunError):
        check(place / "job.toml", start=place)
    assert [run.label for run in Runs.here(place)] == ["job-1"], "it can still be read"


@root_only
def test_a_group_of_ones_own_and_a_sticky_project_folder_are_fine(tmp_path: Path) -> None:
    """Where umask is 002 each user has a group that nobody else is in; /tmp is for everybody."""
    folder = make(tmp_path)
    (tmp_path / ".headway").chmod(0o2775)
    tmp_path.chmod(0o1777)
    folder.check_own()


@root_only
def test_links_to_a_headway_folder(tmp_path: Path) -> None:
    """A home's quota sends many to another disk: a link is fine if all of it is ours."""
    real, place = tmp_path / "scratch", tmp_path / "project"
    place.mkdir()
    make(real)
    link = place / ".headway"
    link.symlink_to(real / ".headway")
    found = Runs.here(place)
    found.check_own()
    next(iter(found)).check_own()
    os.chown(link, MALLORY, MALLORY, follow_symlinks=False)
    with pytest.raises(RunError, match="belongs to user 4242"):
        found.check_own()
    os.chown(link, os.geteuid(), -1, follow_symlinks=False)
    os.chown(real / ".headway", MALLORY, MALLORY)
    with pytest.raises(RunError, match="belongs to user 4242"):
        found.check_own()
    link.unlink()
    link.symlink_to(tmp_path / "nowhere")
    with pytest.raises(RunError, match="leads nowhere"):
        found.check_own()


def test_a_new_run_is_not_for_the_group_to_write(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        folder = make(tmp_path)
    finally:
        os.umask(before)
    for each in (tmp_path / ".headway", folder.path.parent, folder.path):
        assert each.stat().st_mode & 0o022 == 0, each


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    yield tmp_path


@root_only
@pytest.mark.parametrize("kind", ["local", "htcondor"])
def test_staff_look_at_a_users_run_and_do_not_act_on_it(
    in_folder: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make(in_folder, kind=kind)
    give(in_folder)
    before = {path: path.stat().st_mtime_ns for path in in_folder.rglob("*")}
    for words in (["status", "job-1"], ["list"], ["report", "job-1"], ["advise", "job-1"]):
        assert main(words) == 0, capsys.readouterr().err
    acts = [[word, "job-1.0"] for word in ("hold", "release", "remove", "evict")]
    acts += [["set", "job-1.0", "memory=2GB"], ["clean", "job-1", "--do"]]
    for words in (*acts, ["heal", "--do", "--once", "job-1"], ["run", "--resume", "job-1"]):
        assert main(words) != 0
        told = capsys.readouterr().err
        assert "belongs to user 4242" in told and "sudo -u" in told, told
    # nothing of it was touched, and nothing was left in it
    assert {path: path.stat().st_mtime_ns for path in in_folder.rglob("*")} == before
    with pytest.raises(RunError, match="belongs to"):
        Run(folder).act(Action.HOLD, None)


@root_only
@pytest.mark.parametrize("way", ["link", "second name", "pipe", "another's", "open to all"])
def test_an_audit_that_leads_elsewhere_is_not_written(tmp_path: Path, way: str) -> None:
    """As a link it made root append to a file of its owner's choice."""
    victim, audit = tmp_path / "victim", tmp_path / "heal.jsonl"
    victim.write_text("precious\n")
    if way == "link":
        audit.symlink_to(victim)
    elif way == "second name":
        os.link(victim, audit)
    elif way == "pipe":
        os.mkfifo(audit)
    else:
        audit.touch()
        if way == "another's":
            os.chown(audit, MALLORY, -1)
        else:
            audit.chmod(0o666)
    with pytest.raises(HeadwayError):
        Audit(audit)
    assert victim.read_text() == "precious\n"
    if way in ("link", "pipe"):
        with pytest.raises(HeadwayError):
            list(read_audit(audit))  # which does not hang


@pytest.mark.parametrize(
    "facts",
    [
        {"cluster": "7 || true"}, {"cluster": True}, {"cluster": -1}, {"cluster": 7.5},
        {"id": 'x" || true || "'}, {"id": ""}, {"id": 7}, {"number": "1"}, {"number": True},
        {"created": "now"}, {"created": float("nan")}, {"name": ["x"]}, {"base": 3},
        {"digest": None}, {"pool": []}, {"pool": {"kind": "other"}}, {"submitted": "x"},
        {"pool": {"kind": "htcondor", "schedd": 5}}, {"format": 99}, {"format": "1"},
        {"more": 1},
    ],
    ids=str,
)  # fmt: skip
def test_each_fact_of_run_json_is_checked(tmp_path: Path, facts: dict[str, object]) -> None:
    folder = make(tmp_path, kind="htcondor")
    known = json.loads((folder.path / "run.json").read_text())
    (folder.path / "run.json").write_text(json.dumps({**known, **facts}))
    with pytest.raises(RunError, match="cannot be read"):
        _ = folder.facts


@pytest.mark.parametrize(
    "sites", [None, 7, [1], [{}], [{"gpus": 3}], [{"gpus": [{"x": 1}]}]], ids=str
)
def test_the_sites_of_run_json_are_checked(tmp_path: Path, sites: object) -> None:
    folder = make(tmp_path)
    folder.update(pool={"kind": "local", "sites": sites})
    with pytest.raises(RunError, match="does not say where"):
        _ = Run(folder).pool


@pytest.mark.parametrize("name", ["run.json", "supervisor.lock", "events.log"])
def test_a_pipe_in_a_run_folder_stops_nobody(tmp_path: Path, name: str) -> None:
    folder = make(tmp_path)
    (folder.path / name).unlink(missing_ok=True)
    os.mkfifo(folder.path / name)
    with contextlib.suppress(HeadwayError):
        _ = folder.facts
        folder.is_locked("supervisor")
        _ = Run(folder).jobs


def test_a_lock_that_is_a_link_makes_no_file_elsewhere(tmp_path: Path) -> None:
    folder = make(tmp_path)
    (folder.path / "run.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match="symbolic link"), folder.locked():
        pass
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("name", ["job.json", "kept.json", "record.json", "supervisor.log"])
@pytest.mark.parametrize("how", ["pipe", "link", "huge", "deep"])
def test_readers_of_a_run_are_neither_held_up_nor_led_astray(
    in_folder: Path, name: str, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make(in_folder)
    attempt = folder.jobs / "0" / "attempts" / "20260101T000000Z-abcdef"
    attempt.mkdir(parents=True)
    file = attempt / name if name == "record.json" else folder.path / name
    file.unlink(missing_ok=True)
    (in_folder / "secret").write_text("{'key': 'very secret'}")
    if how == "pipe":
        os.mkfifo(file)
    elif how == "link":
        file.symlink_to(in_folder / "secret")
    elif how == "huge":
        file.touch()
        os.truncate(file, 1 << 40)
    else:
        file.write_text("[" * 100_000)
    for words in (["status", "job-1"], ["list"], ["logs", "job-1.0"], ["report", "job-1"]):
        main(words)
        told = "".join(capsys.readouterr())
        assert "very secret" not in told and "bug in headway" not in told, told


@pytest.mark.parametrize(
    "change",
    [{"run": 5}, {"run": "../.."}, {"outputs": [{"path": 1, "where": "x", "bytes": "a"}]},
     {"outputs": 3}, {"row": []}, {"state": {}, "why": None}, {"job": 1e400}],
)  # fmt: skip
def test_each_value_of_kept_json_is_checked(
    in_folder: Path, change: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make(in_folder)
    one = {"job": 1, "row": {}, "state": "kept", "why": "", "run": "a-1", "index": 0, "outputs": []}
    folder.kept.write_text(json.dumps({"format": 1, "kept": [{**one, **change}]}))
    for words in (["status", "job-1"], ["list"], ["clean"]):
        main(words)
        assert "bug in headway" not in "".join(capsys.readouterr())


@pytest.mark.parametrize("name", ["scratch", "spool", "control", "jobs", "jobs/0"])
def test_a_run_that_was_made_elsewhere_leads_nowhere_else(
    in_folder: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is the user's own where it came in an archive or a clone, links and all."""
    folder = make(in_folder)
    kept = in_folder / "thesis" / "0.answer" / "chapter"
    kept.parent.mkdir(parents=True)
    kept.write_text("all of it")
    place = folder.path / name
    if place.is_dir():
        place.rmdir()
    place.symlink_to(in_folder / "thesis")
    for words in (["remove", "job-1.0"], ["release", "job-1.0"], ["run", "--resume", "job-1"]):
        assert main(words) != 0
        assert f"{name} is a symbolic link" in capsys.readouterr().err
    assert kept.read_text() == "all of it"
    main(["clean", "job-1", "--do", "--outputs"])
    assert kept.read_text() == "all of it"
