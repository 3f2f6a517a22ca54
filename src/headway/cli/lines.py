"""The views for where there is no terminal: plain lines, few lines for many jobs, JSON lines."""

from __future__ import annotations

import time

from headway.cli.board import Board
from headway.cli.show import print_json, printable
from headway.cli.words import (
    count_words,
    fetching_words,
    group_of,
    progress_words,
    state_word,
    why,
)
from headway.events import JobState

MANY = 50  # jobs; beyond this, single changes tell nobody anything
CONDENSED = 2.0  # seconds between two lines of counts, at the least
PROGRESS = 30.0  # seconds between two lines on the same transfer


class LineView:
    """One line for every change of a job's state or phase."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self._last: dict[int, tuple[object, ...]] = {}
        self._said: dict[int, float] = {}

    def saw(self, state: JobState) -> None:
        if state.phase == "done":
            return
        now = time.monotonic()
        key = (state.status, state.phase, state.attempts, group_of(state))
        moving = state.progress_bytes is not None
        overdue = moving and now - self._said.get(state.proc, now) >= PROGRESS
        if self._last.get(state.proc) == key and not overdue:
            return
        self._last[state.proc] = key
        self._said[state.proc] = now
        print(f"{_clock()} {self.board.name(state.proc)} {_words(state)}", flush=True)

    def tick(self) -> None:
        """Lines are printed when things happen."""

    def note(self, text: str) -> None:
        print(f"{_clock()} {printable(text)}", flush=True)

    def close(self) -> None:
        """Nothing is kept back."""


class CountView:
    """For many jobs: how many are in which state, whenever that has changed."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self._last = ""
        self._said = float("-inf")

    def saw(self, state: JobState) -> None:
        """The board counts."""

    def tick(self) -> None:
        if time.monotonic() - self._said >= CONDENSED:
            self._say()

    def note(self, text: str) -> None:
        print(f"{_clock()} {printable(text)}", flush=True)

    def close(self) -> None:
        self._say()

    def _say(self) -> None:
        words = count_words(self.board.counts)
        if words != self._last:
            self._last, self._said = words, time.monotonic()
            print(f"{_clock()} {self.board.label}: {words}", flush=True)


class JsonView:
    """One JSON object a line for every event of a job."""

    def __init__(self, board: Board) -> None:
        self.board = board

    def saw(self, state: JobState) -> None:
        print_json({"type": "job", "run": self.board.label, **self.board.document(state)})

    def tick(self) -> None:
        """Lines are printed when things happen."""

    def note(self, text: str) -> None:
        print_json({"type": "note", "run": self.board.label, "text": text})

    def close(self) -> None:
        """Nothing is kept back."""


class NoView:
    """For when there is nobody left to show anything to."""

    def saw(self, state: JobState) -> None: ...
    def tick(self) -> None: ...
    def note(self, text: str) -> None: ...
    def close(self) -> None: ...


def _words(state: JobState) -> str:
    text = state_word(state)
    if state.phase:
        text += f", {printable(state.phase)}"
    if state.site and group_of(state) == "running":
        text += f" at {printable(state.site)}"
    if state.attempts > 1 and group_of(state) == "running":
        text += f" (attempt {state.attempts})"
    moved = progress_words(state)
    if moved:
        text += f", {moved}"
    last = why(state) or fetching_words(state)
    return f"{text}: {printable(last)}" if last else text


def _clock() -> str:
    return time.strftime("%H:%M:%S")
