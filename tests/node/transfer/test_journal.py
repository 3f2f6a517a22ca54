"""The journal: any cut of it, and any damage to it, is safe to read."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from headway.node.transfer.journal import Journal, parse, read_journal
from headway.node.transfer.part import Part
from headway.node.transfer.source import Identity

IDENTITY = Identity(1000, '"1"', "Mon", {"md5": "00"})


@pytest.fixture
def part(tmp_path: Path) -> int:
    file = os.open(tmp_path / "x.part", os.O_RDWR | os.O_CREAT)
    os.ftruncate(file, 1000)
    return file


def written(tmp_path: Path, part: int) -> bytes:
    journal = Journal(str(tmp_path / "j"), "md5:1")
    journal.begin(part, IDENTITY, "place", [(0, 100, 2)])
    journal.extend([(0, 200, 2), (300, 400, 1)])
    journal.extend([(0, 200, 2), (200, 400, 3)])
    journal.forget([(0, 50, 2), (300, 400, 1)])
    journal.extend([(0, 60, 2), (300, 400, 1)])
    journal.close()
    return (tmp_path / "j").read_bytes()


@pytest.fixture
def settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """What was in the folder each time that it was synchronised."""
    real, seen = os.fsync, []

    def noted(file: int) -> None:
        real(file)
        if os.path.samestat(os.fstat(file), os.stat(tmp_path)):
            seen.append(set(os.listdir(tmp_path)))

    monkeypatch.setattr(os, "fsync", noted)
    return seen


def test_its_name_survives_a_crash_and_does_not_come_back(
    tmp_path: Path, part: int, settled: list[set[str]]
) -> None:
    journal = Journal(str(tmp_path / "x.part.journal"), "")
    journal.begin(part, IDENTITY, "place", [(0, 100, 2)])
    assert settled == [{"x.part", "x.part.journal"}]
    journal.extend([(0, 200, 2)])
    assert len(settled) == 1  # a line more is the file's own matter
    journal.remove()
    assert settled[1:] == [{"x.part"}]
    journal.remove()
    assert len(settled) == 2


def test_a_finished_file_keeps_its_name(tmp_path: Path, settled: list[set[str]]) -> None:
    for replace in (True, False):
        whole = Part(str(tmp_path / f"{replace}"), replace=replace)
        whole.finish(0)
        whole.close(keep=False)
    assert settled == [{"True"}, {"True", "False"}]


def test_what_was_written_is_read(tmp_path: Path, part: int) -> None:
    written(tmp_path, part)
    past = read_journal(str(tmp_path / "j"), part, "md5:1")
    assert past is not None
    assert past.stretches == [(0, 60, -1), (300, 400, -1)]
    assert (past.size, past.place, past.identity.etag) == (1000, "place", '"1"')


def test_a_journal_of_something_else_is_not_used(tmp_path: Path, part: int) -> None:
    data = written(tmp_path, part)
    inode = os.fstat(part).st_ino
    assert parse(data, inode=inode, length=1000, proof="md5:1") is not None
    assert parse(data, inode=inode + 1, length=1000, proof="md5:1") is None
    assert parse(data, inode=inode, length=1000, proof="md5:2") is None
    assert read_journal(str(tmp_path / "none"), part, "md5:1") is None
    (tmp_path / "link").symlink_to(tmp_path / "j")
    assert read_journal(str(tmp_path / "link"), part, "md5:1") is None
    assert read_journal(str(tmp_path), part, "md5:1") is None


def test_what_lies_behind_the_parts_end_is_not_believed(tmp_path: Path, part: int) -> None:
    data = written(tmp_path, part)
    past = parse(data, inode=os.fstat(part).st_ino, length=350, proof="md5:1")
    assert past is not None and past.stretches == [(0, 60, -1), (300, 350, -1)]


def test_every_cut_is_a_state_that_once_was(tmp_path: Path, part: int) -> None:
    data = written(tmp_path, part)
    states: set[tuple[tuple[int, int, int], ...]] = set()
    for end in range(len(data) + 1):
        past = parse(data[:end], inode=os.fstat(part).st_ino, length=1000, proof="md5:1")
        if past is not None:
            states.add(tuple(past.stretches))
    # a set of new stretches may be cut after any of its lines; a loss is one line
    assert states == {
        (),
        ((0, 100, -1),),
        ((0, 200, -1),),
        ((0, 200, -1), (300, 400, -1)),
        ((0, 400, -1),),
        ((0, 50, -1), (300, 400, -1)),
        ((0, 60, -1), (300, 400, -1)),
    }


@given(st.binary(max_size=300))
def test_any_bytes_are_safe(data: bytes) -> None:
    assert parse(data, inode=1, length=1000, proof="") is None


@settings(max_examples=200)
@given(at=st.integers(0, 10_000), value=st.integers(0, 255))
def test_any_changed_byte_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, at: int, value: int
) -> None:
    folder = tmp_path_factory.getbasetemp()
    file = os.open(folder / "y.part", os.O_RDWR | os.O_CREAT)
    try:
        data = bytearray(written(folder, file))
        at %= len(data)
        before, data[at] = data[at], value
        inode = os.fstat(file).st_ino
        past = parse(bytes(data), inode=inode, length=1000, proof="md5:1")
        if before == value or past is None:
            return
        line = bytes(data)[:at].count(b"\n")
        assert line > 0
        for begin, end, _ in past.stretches:
            assert 0 <= begin < end <= 400
    finally:
        os.close(file)


@given(
    st.lists(
        st.one_of(
            st.integers(), st.text(max_size=5), st.none(), st.lists(st.integers(), max_size=3)
        ),
        max_size=6,
    )
)
def test_lines_that_are_whole_but_hostile(line: list[object]) -> None:
    from headway.node.transfer.journal import _line

    head = _line([1, 7, 1000, "", IDENTITY.as_json(), "p"])
    past = parse(head + _line(line), inode=7, length=1000, proof="")
    assert past is not None
    assert all(0 <= begin < end <= 1000 for begin, end, _ in past.stretches)
    assert parse(_line(line), inode=7, length=1000, proof="") is None


def test_a_full_disk_ends_the_journal_and_nothing_else(part: int) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    journal = Journal("/dev/full", "")
    journal.begin = None  # type: ignore[assignment,method-assign]
    journal._file = os.open("/dev/full", os.O_WRONLY)
    journal._path = "/nonexistent/journal"
    journal.extend([(0, 1, 0)])
    assert not journal.begun
    journal.extend([(0, 2, 0)])
