"""A job's output while it grows and moves, and what of it may reach a terminal."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.api import Run
from headway.cli.logs import JobOutput, RunOutput, TerminalFilter
from headway.events import EventWriter
from headway.pool.folder import RunFolder

FIRST, SECOND = "20250101T000000Z-bbbbbb", "20250101T000100Z-aaaaaa"


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"plain\ttext\n", b"plain\ttext\n"),
        (b"\x1b[1;31mred\x1b[0m", b"\x1b[1;31mred\x1b[0m\x1b[0m"),
        (b"\x1b[2Jcleared", b"cleared"),
        (b"\x1b]0;title\x07text", b"text"),
        (b"\x1b]52;c;aGk=\x1b\\text", b"text"),
        (b"\x1bPq#0\x1b\\text", b"text"),
        (b"\x1bctext", b"text"),
        (b"\x1b(0text", b"text"),
        (b"a\x07b\x08c\x00d\x7fe", b"abcde"),
        (b"\xc2\x9b2Jtext", b"2Jtext"),
        ("naïve 日本 🚀".encode(), "naïve 日本 🚀".encode()),
        (b"\xff\xfe", "��".encode()),
        (b"10 %\r20 %\r\n", b"10 %\n20 %\n"),
        ("safe\u202egnp.exe".encode(), b"safegnp.exe"),
    ],
)
def test_what_passes(raw: bytes, shown: bytes) -> None:
    assert TerminalFilter().feed(raw, last=True) == shown
    safe = TerminalFilter()  # and byte by byte the same
    one_by_one = b"".join(safe.feed(raw[n : n + 1]) for n in range(len(raw)))
    together = one_by_one + safe.feed(b"", last=True)
    if b"]" not in raw and b"P" not in raw:  # long strings are not waited for, but do no harm
        assert together == shown


@given(st.lists(st.binary(max_size=40)))
def test_nothing_but_colours_ever_acts(blocks: list[bytes]) -> None:
    safe = TerminalFilter()
    out = b"".join(safe.feed(block) for block in blocks) + safe.feed(b"", last=True)
    rest = re.sub(rb"\x1b\[[0-9;:]*m", b"", out).decode("utf-8")
    assert not [c for c in rest if (c < " " and c not in "\n\t") or "\x7f" <= c <= "\x9f"]


def steps(monkeypatch: pytest.MonkeyPatch, *world: Callable[[], object]) -> None:
    """Let the world go on by one step whenever somebody waits."""
    left = iter(world)
    monkeypatch.setattr(time, "sleep", lambda _: next(left)())


def test_following_across_attempts(
    make_run: Callable[..., RunFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run("move", pool="local")
    writer = EventWriter(folder.events)
    scratch = folder.path / "scratch"
    away = [scratch / f"0.{n}/headway-out/attempts/{a}" for n, a in ((1, FIRST), (2, SECOND))]

    def write(attempt: int, text: str) -> None:
        away[attempt].mkdir(parents=True, exist_ok=True)
        with (away[attempt] / "stdout").open("a") as file:
            file.write(text)

    def bring_home(attempt: int) -> None:
        home = folder.job_folder(0) / "attempts"
        home.mkdir(parents=True, exist_ok=True)
        shutil.move(away[attempt], home)

    def evicted() -> None:
        write(0, "three ")
        bring_home(0)
        writer.evicted(1, 0, reason="away")

    def over() -> None:
        write(1, "five")
        bring_home(1)
        writer.terminated(1, 0, return_value=0)

    writer.submitted(1, 0, "<a>")
    writer.executing(1, 0, "<a>")
    write(0, "one ")
    steps(
        monkeypatch,
        lambda: write(0, "two "),
        evicted,
        lambda: writer.executing(1, 0, "<b>"),
        lambda: write(1, "four "),
        over,
    )
    assert b"".join(JobOutput(Run(folder), 0, "stdout").follow()) == b"one two three four five"
    assert b"".join(JobOutput(Run(folder), 0, "stdout").read()) == b"four five"
    assert b"".join(JobOutput(Run(folder), 0, "stdout").follow()) == b"four five"


def test_following_all_jobs_until_the_last_is_over(
    make_run: Callable[..., RunFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run("all", jobs=1000, pool="local")
    writer = EventWriter(folder.events)
    looked: list[int] = []
    seen = JobOutput.attempts

    def attempts(output: JobOutput) -> dict[str, Path]:
        looked.append(output.job)
        return seen(output)

    def write(job: int, text: str) -> None:
        place = folder.path / f"scratch/{job}.1/headway-out/attempts/{FIRST}"
        place.mkdir(parents=True, exist_ok=True)
        with (place / "stdout").open("a") as file:
            file.write(text)

    def over(*jobs: int) -> None:
        for job in jobs:
            writer.terminated(1, job, return_value=0)

    def begin() -> None:
        looked.clear()
        monkeypatch.setattr(JobOutput, "attempts", attempts)
        write(7, "a\nb")

    def check() -> None:
        assert set(looked) == {7, 8}  # those that never ran cost nothing
        write(7, "c\n")
        over(8)

    with writer.group():
        for job in range(1000):
            writer.submitted(1, job, "<a>")
    for job in (7, 8):
        writer.executing(1, job, "<a>")
    write(8, "x")

    def end() -> None:
        write(7, "d")
        over(7)
        for job in {*range(1000)} - {7, 8}:
            writer.aborted(1, job, "gone")

    steps(monkeypatch, begin, check, end)
    lines = list(RunOutput(Run(folder), "stdout").follow())
    assert lines == [(7, b"a"), (7, b"bc"), (8, b"x"), (7, b"d")]


class Tailing:
    """A pool that shows what a running job writes."""

    def tail(self, folder: RunFolder, job: int, name: str, *, follow: bool) -> Iterator[bytes]:
        yield b"seen "
        yield b"from afar "


def test_what_was_tailed_is_not_shown_twice(
    make_run: Callable[..., RunFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run("far")
    writer = EventWriter(folder.events)
    writer.submitted(1, 0, "<a>")
    writer.executing(1, 0, "<a>")

    def over() -> None:
        home = folder.job_folder(0) / "attempts" / FIRST
        home.mkdir(parents=True)
        (home / "stdout").write_bytes(b"before seen from afar and the end")
        writer.terminated(1, 0, return_value=0)

    steps(monkeypatch, over)
    run = Run(folder, Tailing())  # type: ignore[arg-type]
    assert b"".join(JobOutput(run, 0, "stdout").follow()) == b"seen from afar and the end"


class Growing:
    """A pool whose running jobs write one more line each time that they are asked."""

    def __init__(self) -> None:
        self.asked: dict[int, int] = {}

    def tail(self, folder: RunFolder, job: int, name: str, *, follow: bool) -> Iterator[bytes]:
        assert not follow  # one job must not keep the others waiting
        self.asked[job] = self.asked.get(job, 0) + 1
        yield b"".join(b"line %d\n" % n for n in range(self.asked[job]))


def test_jobs_on_a_pool_are_asked_in_turn(
    make_run: Callable[..., RunFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run("far", jobs=2)
    writer = EventWriter(folder.events)
    for job in range(2):
        writer.submitted(1, job, "<a>")
        writer.executing(1, job, "<a>")

    def over() -> None:
        for job in range(2):
            home = folder.job_folder(job) / "attempts" / FIRST
            home.mkdir(parents=True)
            (home / "stdout").write_bytes(b"line 0\nline 1\nline 2")
            writer.terminated(1, job, return_value=0)

    steps(monkeypatch, lambda: None, lambda: None, lambda: None, over)
    run = Run(folder, Growing())  # type: ignore[arg-type]
    lines = list(RunOutput(run, "stdout").follow())
    for job in range(2):
        assert [line for number, line in lines if number == job] == [
            b"line 0", b"line 1", b"line 2",
        ]  # fmt: skip


def test_following_ends_where_nobody_runs_the_job(
    make_run: Callable[..., RunFolder],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = make_run("lost", pool="local")
    with EventWriter(folder.events) as writer:
        writer.submitted(1, 0, "<a>")
    monkeypatch.setattr(time, "sleep", lambda _: None)
    assert list(JobOutput(Run(folder), 0, "stdout").follow()) == []
    assert "nobody runs it now" in capsys.readouterr().err
