"""Which files make up a log."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import pwd
import random
import tempfile
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.errors import EventLogError
from headway.events import read_log
from headway.events.files import LogChain, find_logs, rotations
from headway.events.opening import Format

START = datetime(2026, 11, 1)


def event(hour: int, proc: int = 0) -> bytes:
    return f"008 (001.{proc:03d}.000) {START + timedelta(hours=hour)} x\n...\n".encode()


def write(folder: Path, **hours: int) -> None:
    """Files by name, `_` for the dot, each with one event at an hour."""
    for name, hour in hours.items():
        (folder / name.replace("_", ".")).write_bytes(event(hour))


def names(chains: list[LogChain]) -> list[list[str]]:
    return [[file.path.name for file in chain.files] for chain in chains]


def test_one_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(event(3))
    os.utime(path, (5, 1_800_000_000))
    (chain,) = find_logs([path])
    (file,) = chain.files
    assert (chain.name, file.path, file.format) == (str(path), path, Format.TEXT)
    assert (file.size, file.mtime) == (len(event(3)), 1_800_000_000)
    assert file.owner == chain.owner == pwd.getpwuid(os.getuid()).pw_name
    assert file.first == (START + timedelta(hours=3)).timestamp()
    assert find_logs([str(path), path, tmp_path]) == [chain]


def test_an_owner_without_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    write(tmp_path, log=1)
    assert find_logs([tmp_path])[0].owner is None


def test_rotations_lie_beside(tmp_path: Path) -> None:
    write(tmp_path, log=9, log_1=8, log_2=7, log_10=1, log_old_txt=5, logs=3, other_1=2)
    assert names(find_logs([tmp_path / "log"])) == [["log.10", "log.2", "log.1", "log"]]
    assert names(find_logs([tmp_path / "log", tmp_path / "log.2"])) == [
        ["log.10", "log.2", "log.1", "log"]
    ]
    assert names(find_logs([tmp_path / "log.2"])) == [["log.2"]]
    everything = ["log.10", "log.2", "log.1", "log"], ["log.old.txt"], ["logs"], ["other.1"]
    assert names(find_logs([tmp_path])) == list(everything)
    assert find_logs(sorted(tmp_path.iterdir())) == find_logs([tmp_path])
    assert rotations(tmp_path / "log") == [tmp_path / f"log.{n}" for n in (10, 2, 1)]


def test_the_pool_s_own_log(tmp_path: Path) -> None:
    write(tmp_path, EventLog=9, EventLog_old=8)
    assert names(find_logs([tmp_path / "EventLog"])) == [["EventLog.old", "EventLog"]]
    write(tmp_path, EventLog_20261101T010000=1, EventLog_20261101T030000=3)
    assert names(find_logs([tmp_path / "EventLog"])) == [
        ["EventLog.20261101T010000", "EventLog.20261101T030000", "EventLog.old", "EventLog"]
    ]


def test_its_header_has_the_time_of_the_rotation(tmp_path: Path) -> None:
    header = b"008 (-01.-01.-01) 2026-11-%d 00:00:00 Global JobLog: ctime=1 id=2\n...\n"
    (tmp_path / "EventLog").write_bytes(header % 20 + event(50))
    (tmp_path / "EventLog.1").write_bytes(header % 20 + event(5))
    (chain,) = find_logs([tmp_path / "EventLog"])
    assert [file.first for file in chain.files] == [
        (START + timedelta(hours=hour)).timestamp() for hour in (5, 50)
    ]


def test_compressed_rotations(tmp_path: Path) -> None:
    write(tmp_path, log=9, log_1=8)
    (tmp_path / "log.2.gz").write_bytes(gzip.compress(event(7)))
    (tmp_path / "log.3.xz").write_bytes(lzma.compress(event(6)))
    (tmp_path / "log.4.bz2").write_bytes(bz2.compress(event(5)))
    (chain,) = find_logs([tmp_path / "log"])
    assert names([chain]) == [["log.4.bz2", "log.3.xz", "log.2.gz", "log.1", "log"]]
    assert [read_log(file.path).events[0].time for file in chain.files] == [
        file.first for file in chain.files
    ]


def test_a_compressed_copy_is_not_read_twice(tmp_path: Path) -> None:
    write(tmp_path, log=9, log_1=8)
    (tmp_path / "log.1.gz").write_bytes(gzip.compress(event(8)))
    unread: list[tuple[str, str]] = []
    assert names(find_logs([tmp_path], unread)) == [["log.1", "log"]]
    assert unread == [(str(tmp_path / "log.1.gz"), "is a compressed copy of log.1")]


def test_a_log_that_has_only_rotations_left(tmp_path: Path) -> None:
    write(tmp_path, log_1=8, log_2=7)
    (chain,) = find_logs([tmp_path / "log"])
    assert (chain.name, names([chain])) == (str(tmp_path / "log"), [["log.2", "log.1"]])
    (tmp_path / "one.gz").write_bytes(gzip.compress(event(1)))
    assert names(find_logs([tmp_path / "one"])) == [["one.gz"]]


def test_numbers_that_are_not_rotations(tmp_path: Path) -> None:
    # log = job.$(Process): all were submitted at once.
    write(tmp_path, job_0=5, job_1=5, job_2=5)
    assert names(find_logs([tmp_path])) == [["job.0"], ["job.1"], ["job.2"]]
    # Later processes were submitted later.
    write(tmp_path, job_0=5, job_1=6, job_2=7)
    assert names(find_logs([tmp_path])) == [["job.0"], ["job.1"], ["job.2"]]


def test_times_decide_where_names_contradict_them(tmp_path: Path) -> None:
    write(tmp_path, log=9, log_old=5, log_1=8, log_2=7)
    assert names(find_logs([tmp_path])) == [["log.old", "log.2", "log.1", "log"]]


def test_the_same_file_by_other_names(tmp_path: Path) -> None:
    write(tmp_path, log=9)
    (tmp_path / "zlink").symlink_to("log")
    os.link(tmp_path / "log", tmp_path / "hard")
    (tmp_path / "loop").symlink_to(".")
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "up").symlink_to("..")
    assert names(find_logs([tmp_path / "log", tmp_path])) == [["log"]]
    assert len(find_logs([tmp_path])) == 1
    assert names(find_logs([tmp_path / "loop"])) == [["hard"]]


def test_what_is_no_log(tmp_path: Path) -> None:
    write(tmp_path, log=9)
    (tmp_path / "out.txt").write_text("Epoch 1: loss 0.5\n")
    (tmp_path / "empty").touch()
    (tmp_path / "model.bin").write_bytes(random.Random(1).randbytes(100_000))
    (tmp_path / "gone").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "log.1").write_text("notes\n")
    unread: list[tuple[str, str]] = []
    assert names(find_logs([tmp_path], unread)) == [["log"]]
    assert unread == [
        (str(tmp_path / "empty"), "is empty"),
        (str(tmp_path / "gone"), "cannot be read: No such file or directory"),
        (str(tmp_path / "log.1"), "is not an event log"),
        (str(tmp_path / "model.bin"), "is not an event log"),
        (str(tmp_path / "out.txt"), "is not an event log"),
        (str(tmp_path / "pipe"), "is not a regular file"),
    ]  # fmt: skip
    for name, why in [
        ("out.txt", "is not an event log"),
        ("pipe", "is not a regular file"),
        ("none", "cannot be read: No such file"),
        ("gone", "cannot be read: No such file"),
    ]:
        with pytest.raises(EventLogError, match=f".*{name} {why}") as caught:
            find_logs([tmp_path / name])
        assert caught.value.remedy
    # A job that has not been submitted yet.
    assert names(find_logs([tmp_path / "empty"])) == [["empty"]]


def test_a_named_log_may_begin_with_a_hole(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"\0" * 500_000 + event(1))
    assert names(find_logs([tmp_path / "log"])) == [["log"]]


def test_formats(tmp_path: Path) -> None:
    chains = find_logs([Path(__file__).parent / "formats"])
    found = {file.path.name: file.format for chain in chains for file in chain.files}
    assert found["jobs.json"] is Format.JSON
    assert found["jobs.xml"] is Format.XML
    assert found["gpu-xml.log"] is Format.TEXT
    assert all(chain.files[0].first for chain in chains)


@given(
    st.dictionaries(st.integers(1, 30), st.sampled_from(["", ".gz", ".xz", ".bz2"]), max_size=6),
    st.randoms(use_true_random=False),
)
@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_chain_comes_in_order(
    tmp_path: Path, kept: dict[int, str], chance: random.Random
) -> None:
    pack: dict[str, Callable[[bytes], bytes]] = {
        "": bytes,
        ".gz": gzip.compress,
        ".xz": lzma.compress,
        ".bz2": bz2.compress,
    }
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    (folder / "log").write_bytes(event(100))
    for number, ending in kept.items():
        (folder / f"log.{number}{ending}").write_bytes(pack[ending](event(100 - number)))
    paths = list(folder.iterdir())
    chance.shuffle(paths)
    expected = [f"log.{n}{kept[n]}" for n in sorted(kept, reverse=True)] + ["log"]
    for given_paths in ([folder], [folder / "log"], paths):
        assert names(find_logs(given_paths)) == [expected]


def test_a_folder_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for proc in range(50):
        (tmp_path / f"job{proc}.log").write_bytes(event(1, proc))
    paths = sorted(tmp_path.iterdir())
    listed = []
    real = os.listdir

    def listing(path: Path) -> list[str]:
        listed.append(path)
        return real(path)

    monkeypatch.setattr(os, "listdir", listing)
    assert len(find_logs(paths)) == 50
    assert listed == [tmp_path]


def test_of_a_run_folder_only_its_log_is_looked_at(tmp_path: Path) -> None:
    for number in range(3):
        run = tmp_path / ".headway" / "runs" / f"train-{number}"
        (run / "jobs" / "0" / "outputs").mkdir(parents=True)
        for name in ("run.json", "job.json", "plan.json", "headway-node.pyz", "supervisor.lock"):
            (run / name).write_bytes(b"{}")
        (run / "jobs" / "0" / "outputs" / "train.log").write_bytes(ONE_EVENT)
        (run / "events.log").write_bytes(ONE_EVENT)
        (run / "events.log.old").write_bytes(ONE_EVENT)
    (tmp_path / ".headway" / "runs" / "draft").mkdir()
    (tmp_path / ".headway" / "runs" / "draft" / "run.json").write_bytes(b"{}")
    (tmp_path / ".headway" / "runs" / "draft" / "job.json").write_bytes(b"{}")
    unread: list[tuple[str, str]] = []
    chains = find_logs([tmp_path / ".headway" / "runs"], unread)
    assert [Path(chain.name).name for chain in chains] == ["events.log"] * 3
    assert [len(chain.files) for chain in chains] == [2] * 3
    assert unread == []


ONE_EVENT = b"000 (7.000.000) 2026-01-02 03:00:00 Job submitted from host: <10.0.0.1:9618>\n...\n"
