"""Logs that are rotated under the collector, and what gets lost when it is too late."""

from __future__ import annotations

import gzip
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.collect.stores import collect, long_log, tables_of

from headway.collect import Collector, read_collected, status
from headway.collect.tail import Cursor, OpenLog, opened
from headway.events import read_columns

EVENTS = long_log(2)


def append(log: Path, events: list[bytes]) -> None:
    with log.open("ab") as file:
        file.write(b"".join(events))


def old(log: Path) -> None:
    """As HTCondor does with one rotation."""
    log.replace(log.with_name(log.name + ".old"))


def numbered(log: Path) -> None:
    """As HTCondor does with several, and as logrotate does."""
    for number in range(8, 0, -1):
        older = log.with_name(f"{log.name}.{number}")
        if older.exists():
            older.replace(log.with_name(f"{log.name}.{number + 1}"))
    log.replace(log.with_name(log.name + ".1"))


def packed(log: Path) -> None:
    """As logrotate does with `compress`."""
    for number in range(8, 0, -1):
        older = log.with_name(f"{log.name}.{number}.gz")
        if older.exists():
            older.replace(log.with_name(f"{log.name}.{number + 1}.gz"))
    log.with_name(log.name + ".1.gz").write_bytes(gzip.compress(log.read_bytes()))
    log.unlink()


def copied(log: Path) -> None:
    """As logrotate does with `copytruncate`."""
    for number in range(8, 0, -1):
        older = log.with_name(f"{log.name}.{number}")
        if older.exists():
            older.replace(log.with_name(f"{log.name}.{number + 1}"))
    shutil.copyfile(log, log.with_name(log.name + ".1"))
    os.truncate(log, 0)


def dated(log: Path) -> None:
    """As logrotate does with `dateext`: a name that says nothing to us."""
    count = len(list(log.parent.glob(f"{log.name}-*")))
    log.replace(log.with_name(f"{log.name}-2026101{count}"))


def the_whole(
    store: Path, tmp_path: Path, count: int | None = None, *, ordered: bool = True
) -> None:
    """The store holds these events, each once and in order, as if they had been one file."""
    whole = tmp_path / "whole"
    whole.write_bytes(b"".join(EVENTS[:count]))
    found, expected = tables_of(read_collected(store)), tables_of(read_columns([whole]))
    names = [name for name in found if "." not in name and name not in ("file", "log", "offset")]
    rows, right = (list(zip(*(of[n] for n in names), strict=True)) for of in (found, expected))
    if not ordered:
        rows.sort(key=repr)
        right.sort(key=repr)
    assert len(rows) == len(right)
    assert rows == right


@pytest.mark.parametrize("rotate", [old, numbered, packed, copied, dated])
@pytest.mark.parametrize("follows", [True, False], ids=["following", "again"])
def test_through_rotations(rotate: Callable[[Path], None], follows: bool, tmp_path: Path) -> None:
    log, store = tmp_path / "logs" / "EventLog", tmp_path / "kept"
    log.parent.mkdir()
    random.seed(3)
    places = [log.parent] if rotate is dated else [log]
    collector = Collector(places, store, waits=True) if follows else None
    polled = 0
    at = 0
    since = 0  # rotations since we looked
    while at < len(EVENTS):
        step = random.randint(1, 120)
        append(log, EVENTS[at : at + step])
        at += step
        if random.random() < 0.6:
            polled += collector.poll().events if collector else collect(store, *places).events
            since = 0
        if random.random() < 0.5 and (since == 0 or rotate is not old):
            rotate(log)
            since += 1
    if collector:
        collector.poll()
        collector.close()
    else:
        collect(store, *places)
    # Under a name that says nothing a file that nobody had met is a log of its own.
    the_whole(store, tmp_path, ordered=rotate is not dated)
    assert status(store).gap_count == 0
    assert polled <= len(EVENTS)


def test_a_file_that_lost_all_its_names_is_read_to_its_end(tmp_path: Path) -> None:
    log, store = tmp_path / "EventLog", tmp_path / "kept"
    with Collector([log], store, waits=True) as collector:
        append(log, EVENTS[:50])
        collector.poll()
        append(log, EVENTS[50:80])
        log.unlink()
        append(log, EVENTS[80:100])
        collector.poll()
        assert status(store).gap_count == 0
    the_whole(store, tmp_path, 100)


def test_a_rotation_that_outran_us_is_a_gap(tmp_path: Path) -> None:
    log, store = tmp_path / "EventLog", tmp_path / "kept"
    append(log, EVENTS[:50])
    collect(store, log)
    append(log, EVENTS[50:80])
    old(log)
    append(log, EVENTS[80:90])
    old(log)
    append(log, EVENTS[90:100])
    poll = collect(store, log)
    assert poll.events == 20
    assert len(poll.gaps) == 1 and "rotated away or emptied" in poll.gaps[0].why
    assert poll.gaps[0].since == pytest.approx(read_collected(store).time[49] / 1e6)
    assert collect(store, log).gaps == ()
    assert status(store).gap_count == 1


def test_an_emptied_log_without_a_copy_is_a_gap(tmp_path: Path) -> None:
    log, store = tmp_path / "EventLog", tmp_path / "kept"
    with Collector([log], store, waits=True) as collector:
        append(log, EVENTS[:50])
        collector.poll()
        log.write_bytes(b"".join(EVENTS[60:200]))
        poll = collector.poll()
        assert poll.events == 140 and len(poll.gaps) == 1
        os.truncate(log, 0)
        assert len(collector.poll().gaps) == 1
        append(log, EVENTS[200:210])
        assert collector.poll().events == 10
    assert status(store).gap_count == 2


def test_a_finished_log_that_is_taken_away_is_no_gap(tmp_path: Path) -> None:
    log, store = tmp_path / "job.log", tmp_path / "kept"
    append(log, EVENTS[:50])
    with Collector([tmp_path], store, waits=True) as collector:
        collector.poll()
        log.unlink()
        assert collector.poll().gaps == ()
    (tmp_path / "other.log").write_bytes(EVENTS[0])
    assert collect(store, tmp_path).gaps == ()
    assert status(store).gap_count == 0


def test_half_an_event_that_is_gone_is_a_gap(tmp_path: Path) -> None:
    log, store = tmp_path / "job.log", tmp_path / "kept"
    append(log, EVENTS[:50])
    collect(store, tmp_path)
    append(log, [EVENTS[50][:-8]])
    collect(store, tmp_path)
    log.unlink()
    (tmp_path / "other.log").write_bytes(EVENTS[0])
    (gap,) = collect(store, tmp_path).gaps
    assert "were no whole event" in gap.why


HEADER = (
    "008 (000.000.000) 2026-10-11 0{0}:00:00 Global JobLog: ctime=179000000{0} id=0.1234.{0} "
    "sequence={0} size={1} events={2} offset=0 event_off=0 max_rotation=1 creator_name=<AP>\n...\n"
)


def test_the_pool_s_own_header_may_change_and_tells_of_lost_files(tmp_path: Path) -> None:
    log, store = tmp_path / "EventLog", tmp_path / "kept"
    append(log, [HEADER.format(1, 0, 0).encode()])
    collect(store, log)
    # HTCondor writes size and count into it, in place, when it rotates the file.
    whole = HEADER.format(1, 9, 9).encode() + b"".join(EVENTS[:30])
    log.write_bytes(whole)
    old(log)
    append(log, [HEADER.format(2, 0, 0).encode(), *EVENTS[30:40]])
    assert collect(store, log).events == 41
    log.write_bytes(log.read_bytes().replace(b"size=0 events=0", b"size=7 events=7"))
    old(log)
    append(log, [HEADER.format(5, 0, 0).encode(), *EVENTS[60:70]])
    poll = collect(store, log)
    assert poll.events == 11
    assert [gap.why for gap in poll.gaps] == ["2 rotated files are gone that nobody had read"]
    assert collect(store, log).events == 0


def test_a_log_is_known_again_by_another_name(tmp_path: Path) -> None:
    """A hard link, and a file that somebody moved within the folder, are no new events."""
    log, store = tmp_path / "logs" / "a.log", tmp_path / "kept"
    log.parent.mkdir()
    append(log, EVENTS[:20])
    collect(store, log.parent)
    os.link(log, log.with_name("b.log"))
    assert collect(store, log.parent).events == 0
    log.unlink()
    assert collect(store, log.parent).events == 0
    append(log.with_name("b.log"), EVENTS[20:30])
    assert collect(store, log.parent).events == 10
    the_whole(store, tmp_path, 30)


def test_numbered_logs_of_their_own_are_no_rotations(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"job.{number}").write_bytes(b"".join(EVENTS[number * 40 : number * 40 + 40]))
    store = tmp_path / "kept"
    poll = collect(store, tmp_path)
    assert (poll.events, poll.logs) == (120, 3)
    assert collect(store, tmp_path).events == 0
    assert len(read_collected(store).logs) == 3


@pytest.mark.parametrize("rotate", [numbered, copied])
@pytest.mark.parametrize("times", [1, 2])
def test_rotated_while_its_files_are_opened(
    rotate: Callable[[Path], None], times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an older file holds is stored before what is newer, and nothing is taken for lost."""
    log, store = tmp_path / "EventLog", tmp_path / "kept"
    with Collector([log], store, waits=True) as collector:
        append(log, EVENTS[:50])
        collector.poll()
        append(log, EVENTS[50:100])
        at = 100

        def rotated_meanwhile(*arguments: Any, **options: Any) -> list[OpenLog]:
            nonlocal at
            files = list(opened(*arguments, **options))
            if at < 100 + 50 * times:
                rotate(log)
                append(log, EVENTS[at : at + 50])
                at += 50
            return files

        monkeypatch.setattr("headway.collect.tail.opened", rotated_meanwhile)
        for _ in range(5):
            collector.poll()
    the_whole(store, tmp_path, 100 + 50 * times)
    assert status(store).gap_count == 0


def test_emptied_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is emptied and filled again under the reader gives no bytes of two files."""
    log, store = tmp_path / "EventLog", tmp_path / "kept"
    with Collector([log], store, waits=True) as collector:
        append(log, EVENTS[:50])
        collector.poll()
        append(log, EVENTS[50:60])
        refresh = OpenLog.refresh

        def emptied(file: OpenLog) -> None:
            refresh(file)
            if file.path == log and not log.with_name("EventLog.1").exists():
                copied(log)
                append(log, EVENTS[60:200])

        monkeypatch.setattr(OpenLog, "refresh", emptied)
        for _ in range(4):
            collector.poll()
    the_whole(store, tmp_path, 200)
    assert status(store).gap_count == 0


def test_emptied_just_after_it_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy of a file is recognised by the bytes that were read, not by what followed them."""
    log, store = tmp_path / "EventLog", tmp_path / "kept"
    with Collector([log], store, waits=True) as collector:
        append(log, EVENTS[:50])
        collector.poll()
        append(log, EVENTS[50:60])
        begins_like = OpenLog.begins_like

        def emptied(file: OpenLog, cursor: Cursor) -> bool:
            same = begins_like(file, cursor)
            if file.path == log and not log.with_name("EventLog.1").exists():
                copied(log)
                append(log, EVENTS[60:200])
            return same

        monkeypatch.setattr(OpenLog, "begins_like", emptied)
        for _ in range(4):
            collector.poll()
    the_whole(store, tmp_path, 200)
    assert status(store).gap_count == 0
