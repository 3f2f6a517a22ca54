"""The live view on a real (pseudo) terminal, and its picture of a hundred thousand jobs."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import select
import struct
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from headway.api import Run
from headway.cli.job_text import RunJobs
from headway.cli.view import LiveView
from headway.events import EventWriter, JobState, Status
from headway.pool.folder import RunFolder

from .conftest import environment

Make = Callable[..., RunFolder]
POOL = ("--pool", "local:cpus=4")


def on_terminal(
    argv: Sequence[str],
    folder: Path,
    *,
    size: tuple[int, int] = (24, 120),
    press: tuple[str, bytes] | None = None,
    env: dict[str, str] | None = None,
) -> tuple[str, int]:
    """Run a command on a terminal of its own; `press` a key (twice) when a text is seen."""
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execve(argv[0], list(argv), {**environment(folder), **(env or {})})
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    out = b""
    presses = [time.monotonic()] if press else []
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if select.select([fd], [], [], 0.05)[0]:
            try:
                block = os.read(fd, 65536)
            except OSError:
                break
            if not block:
                break
            out += block
        if press and press[0].encode() in out and len(presses) < 3:
            os.write(fd, press[1])
            presses.append(time.monotonic())
            time.sleep(0.02)
    os.close(fd)
    return out.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_run_on_a_terminal(
    job_toml: Callable[..., Path], command: Sequence[str], tmp_path: Path
) -> None:
    job_toml((0.5, 0), (0.5, 4))
    text, code = on_terminal([*command, "run", "job.toml", *POOL], tmp_path)
    assert code == 1
    assert "\x1b[2K" in text  # it redraws
    assert "\x1b[31m" in text  # in colour
    assert text.rstrip().endswith("results: .headway/runs/small-1/jobs/JOB/outputs")
    assert "\x1b[?25h" in text[text.rindex("\x1b[?25l") :]  # and gives the cursor back
    bare = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    assert re.search(r"small-1 · on local · 2 jobs · .*1 failed · 1 succeeded", bare)
    assert re.search(r"small-1\.1 +code=4 +failed +\S+ +\d+ s +1 +the command exited with 4", bare)


def test_no_colours_where_none_are_wanted(
    job_toml: Callable[..., Path], command: Sequence[str], tmp_path: Path
) -> None:
    job_toml((0, 4))
    argv = [*command, "run", "job.toml", *POOL]
    for more, env in (("--no-color", {"A": "b"}), ("--again", {"NO_COLOR": "1"})):
        text, _ = on_terminal([*argv, more], tmp_path, env=env)
        assert "\x1b[31m" not in text
    text, _ = on_terminal(argv, tmp_path, env={"TERM": "dumb"})
    assert "\x1b" not in text
    assert "small-3.0 (seconds=0 code=4) idle" in text


def test_ctrl_c_on_a_terminal(
    job_toml: Callable[..., Path], command: Sequence[str], tmp_path: Path
) -> None:
    job_toml((30, 0))
    argv = [*command, "run", "job.toml", *POOL]
    text, code = on_terminal(argv, tmp_path, press=("1 running", b"\x03"))
    assert code == 130
    assert "its jobs were stopped; go on with `headway run --resume small-1`" in text
    assert "Traceback" not in text


def test_logs_on_a_terminal_are_tamed(
    make_run: Make, command: Sequence[str], tmp_path: Path
) -> None:
    folder = make_run("wild")
    place = folder.job_folder(0) / "attempts" / "20250101T000000Z-aaaaaa"
    place.mkdir(parents=True)
    (place / "stdout").write_bytes(b"\x1b]0;owned\x07\x1b[32mgreen\x1b[0m\x1b[2J")
    text, code = on_terminal([*command, "logs", "wild.0"], tmp_path)
    assert code == 0
    assert text == "\x1b[32mgreen\x1b[0m\x1b[0m"


def crowd(make_run: Make, size: int) -> RunJobs:
    run_jobs = RunJobs(Run(make_run("crowd", jobs=size)))
    statuses = [Status.IDLE, Status.RUNNING, Status.HELD, Status.COMPLETED]
    for number in range(size):
        state = JobState(1, number, status=statuses[number % 4], submitted=1000.0, started=1001.0)
        state.return_value = 0
        state.why = "[bold]not markup[/bold] \x1b[2J"
        state.site = "[link=x]site"
        run_jobs.take(state)
    return run_jobs


@pytest.mark.parametrize("size", [(5, 40), (24, 80), (50, 200), (1, 20)])
def test_the_picture_fits_the_terminal(make_run: Make, size: tuple[int, int]) -> None:
    height, width = size
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True)
    view = LiveView(crowd(make_run, 300), "local", console)
    lines = console.render_lines(view.picture(2000.0), pad=False)
    assert len(lines) <= max(height - 1, 4)
    assert all(sum(segment.cell_length for segment in line) <= width for line in lines)
    text = "".join(segment.text for line in lines for segment in line)
    assert "\x1b" not in text
    if width >= 80:
        assert "[bold]not markup[/bold]" in text or "[bold]not" in text
        assert "more:" in text


def test_a_hundred_thousand_jobs_are_cheap(make_run: Make) -> None:
    run_jobs = crowd(make_run, 100_000)
    console = Console(file=io.StringIO(), width=120, height=50, force_terminal=True)
    view = LiveView(run_jobs, "local", console)
    view.tick()
    begin = time.process_time()
    for number in range(20):
        state = run_jobs.groups["running"].get(4 * number + 1)
        assert state is not None
        state.status = Status.COMPLETED
        run_jobs.take(state)
        view.saw(state)
        view.picture(2000.0)
    assert (time.process_time() - begin) / 20 < 0.2  # a picture; four a second are drawn
    view.close()


def test_nothing_is_drawn_too_often(make_run: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_run("calm")
    run_jobs = RunJobs(Run(folder))
    view = LiveView(run_jobs, "local", Console(file=io.StringIO(), force_terminal=True))
    drawn: list[float] = []
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    picture = view.picture

    def counted(at: float) -> RenderableType:
        drawn.append(now[0])
        return picture(at)

    monkeypatch.setattr(view, "picture", counted)
    state = JobState(1, 0)
    for _ in range(100):  # ten seconds, of which five with changes
        if now[0] < 105:
            view.saw(state)
        view.tick()
        now[0] += 0.1
    assert len(drawn) <= 5 * 4 + 5 + 2
    with EventWriter(folder.events) as writer:
        writer.submitted(1, 0, "<a>")
    view.close()
