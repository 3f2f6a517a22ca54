"""Watching a run until nothing more happens by itself, or until somebody has seen enough."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Protocol

from headway.api import Run
from headway.cli.board import Board
from headway.cli.signals import Asked
from headway.events import JobState, Status
from headway.heal.inside import Inside
from headway.spec import format_duration

LOOK = 0.1  # seconds between two looks at the event log
ALIVE = 2.0  # seconds between two looks whether the local pool still lives


class View(Protocol):
    """What shows a run while it goes on."""

    def saw(self, state: JobState) -> None: ...
    def tick(self) -> None: ...
    def note(self, text: str) -> None: ...
    def close(self) -> None: ...


def choose_view(board: Board, *, as_json: bool) -> View:
    """The view that fits where stdout goes."""
    from headway.cli.lines import MANY, CountView, JsonView, LineView

    if as_json:
        return JsonView(board)
    if sys.stdout.isatty() and is_able():
        from headway.cli.live import LiveView

        return LiveView(board, board.run.folder.facts.pool["kind"])
    return CountView(board) if board.size > MANY else LineView(board)


class Watch:
    """Feeds a view from the event log; Ctrl-C asks it to end and never breaks what it is doing."""

    def __init__(self, run: Run, board: Board, view: View, heal: Inside | None = None) -> None:
        self.run = run
        self.board = board
        self.view = view
        self.heal = heal
        self.asked = Asked()
        self._checked = time.monotonic()
        run.saw = self._saw

    def until_settled(self) -> bool:
        """True once all jobs are over or held for good; False if somebody wants to leave."""
        news = True
        with self.asked.heard():
            while not self.asked:
                news = self.look() or news
                if news and not self.board.busy and not (self.heal and self.heal.busy):
                    if self.run.settled():
                        return True
                    news = False
                self._check_pool()
                time.sleep(LOOK)
        return False

    def look(self) -> bool:
        """Take in what the event log has got, and show it."""
        news = self.run.refresh()
        while self.heal and self.heal.notes:
            self.view.note(self.heal.notes.popleft())
        self.view.tick()
        return news

    def leave(self) -> str:
        """Tell the pool that nobody watches any more; goes on showing while the jobs stop."""
        said: list[str] = []
        failed: list[Exception] = []

        def work() -> None:
            try:
                said.append(self.run.pool.leave(self.run.folder))
            except Exception as error:
                failed.append(error)

        with self.asked.heard():
            thread = threading.Thread(target=work)
            thread.start()
            thread.join(0.5)
            if thread.is_alive():
                grace = format_duration(self.run.folder.job.grace)
                self.view.note(f"stopping; commands have {grace} to save their work")
            while thread.is_alive():
                self.look()
                thread.join(LOOK)
            self.look()
        if failed:
            raise failed[0]
        label = self.run.label
        return said[0] if said[0].startswith(label) else f"{label}: {said[0]}"

    @property
    def exit_code(self) -> int:
        return self.asked.exit_code

    def _saw(self, state: JobState) -> None:
        self.board.take(state)
        self.view.saw(state)
        if self.heal and state.status is Status.HELD:
            self.heal.poke()

    def _check_pool(self) -> None:
        now = time.monotonic()
        if now - self._checked < ALIVE:
            return
        self._checked = now
        self.run.check_pool()


def is_able() -> bool:
    """Whether the terminal can move its cursor."""
    return os.environ.get("TERM", "") not in ("", "dumb")
