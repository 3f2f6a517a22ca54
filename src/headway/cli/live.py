"""The live view: one table of the jobs that matter most, as high as the terminal allows."""

from __future__ import annotations

import time

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headway.cli.board import Board
from headway.cli.show import printable
from headway.cli.words import (
    GROUPS,
    STYLES,
    count_words,
    elapsed_words,
    group_of,
    progress_words,
    state_word,
    why,
)
from headway.events import JobState
from headway.spec import format_duration

FRAME = 0.25  # seconds between two pictures, at the least
CLOCK = 1.0  # seconds after which the times are drawn anew though nothing happened
_BAR = 12
_CHROME = 5  # lines that are not jobs: header, titles, rule, footer, and where the cursor stands


class LiveView:
    """Draws the board on a terminal, and draws nothing while nothing changes."""

    def __init__(self, board: Board, pool: str, console: Console | None = None) -> None:
        self.board = board
        self.pool = pool
        self.console = console or Console(highlight=False)
        self._began = time.monotonic()
        self._drawn = 0.0
        self._changed = True
        self._live = Live(
            console=self.console,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )
        self._live.start()

    def saw(self, state: JobState) -> None:
        self._changed = True

    def tick(self) -> None:
        """Draw, if there is something new and the last picture is old enough."""
        age = time.monotonic() - self._drawn
        if age >= (FRAME if self._changed else CLOCK):
            self._draw()

    def note(self, text: str) -> None:
        """A line above the table that stays."""
        self.console.print(Text(printable(text)))

    def close(self) -> None:
        """Draw the last picture, and leave it standing."""
        self._draw()
        self._live.stop()

    def _draw(self) -> None:
        self._drawn, self._changed = time.monotonic(), False
        self._live.update(self.picture(time.time()), refresh=True)

    def picture(self, now: float) -> RenderableType:
        """Header, table and footer for this moment."""
        room = max(1, self.console.size.height - _CHROME)
        shown = self.board.first(room)
        parts: list[RenderableType] = [self._header(), _table(self.board.label, shown, now)]
        rest = {
            group: count - sum(group_of(state) == group for state in shown)
            for group, count in self.board.counts.items()
        }
        if any(rest.values()):
            hidden = sum(rest.values())
            parts.append(Text(f"  … and {hidden:,} more: {count_words(rest)}", style="dim"))
        return Group(*parts)

    def _header(self) -> Text:
        counts = self.board.counts
        jobs = "1 job" if self.board.size == 1 else f"{self.board.size:,} jobs"
        parts = [
            Text(self.board.label, style="bold"),
            Text(f"on {self.pool}"),
            Text(jobs),
            *(Text(f"{counts[g]:,} {g}", style=STYLES[g]) for g in GROUPS if counts[g]),
            Text(format_duration(int(time.monotonic() - self._began)), style="dim"),
        ]
        line = Text(no_wrap=True, overflow="ellipsis")
        for number, part in enumerate(parts):
            line.append(" · " if number else "", style="dim").append_text(part)
        return line


def _table(label: str, states: list[JobState], now: float) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, expand=True)
    for title in ("job", "state", "phase", "site"):
        table.add_column(title, no_wrap=True, overflow="ellipsis", max_width=28)
    table.add_column("progress", no_wrap=True)
    table.add_column("elapsed", no_wrap=True, justify="right")
    table.add_column("attempts", no_wrap=True, justify="right")
    table.add_column("last word", no_wrap=True, overflow="ellipsis", ratio=1)
    for state in states:
        style = STYLES[group_of(state)]
        table.add_row(
            Text(f"{label}.{state.proc}"),
            Text(state_word(state), style=style),
            Text(printable(state.phase)),
            Text(printable(state.site)),
            _progress(state),
            Text(elapsed_words(state, now)),
            Text(str(state.attempts or "")),
            Text(printable(why(state)), style="" if style == "dim" else style),
        )
    return table


def _progress(state: JobState) -> Text:
    words = progress_words(state)
    if not state.progress_total or state.progress_bytes is None:
        return Text(words)
    share = min(1.0, state.progress_bytes / state.progress_total)
    done = round(share * _BAR)
    return Text.assemble(
        ("━" * done, "cyan"), ("━" * (_BAR - done), "dim"), f" {100 * share:3.0f} %  {words}"
    )
