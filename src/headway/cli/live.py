"""The live view: one table of the jobs that matter most, as high as the terminal allows."""

from __future__ import annotations

import time

from rich.console import Console, Group, JustifyMethod, RenderableType
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
    fetching_words,
    group_of,
    progress_words,
    short_why,
    state_word,
)
from headway.events import JobState
from headway.spec import format_duration

FRAME = 0.25  # seconds between two pictures, at the least
CLOCK = 1.0  # seconds after which the times are drawn anew though nothing happened
_COLUMNS = ("job", "row", "state", "phase", "site", "progress", "elapsed", "attempts", "last word")
_BAR, _SITE, _NARROW = 12, 28, 16  # characters
_ROOM_FOR_BYTES, _ROOM_FOR_BAR = 90, 110  # columns of the terminal
_CHROME = 4  # lines that are not jobs: header, titles, footer, and where the cursor stands


class LiveView:
    """Draws the board on a terminal, and draws nothing while nothing changes."""

    def __init__(
        self,
        board: Board,
        pool: str,
        console: Console | None = None,
        *,
        began: float | None = None,
    ) -> None:
        self.board = board
        self.pool = pool
        self.console = console or Console(highlight=False)
        self._began = time.monotonic() if began is None else began
        self._drawn = 0.0
        self._changed = True
        self._live = Live(
            console=self.console,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )

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
        if not self._live.is_started:
            self._live.start()
        self._drawn, self._changed = time.monotonic(), False
        self._live.update(self.picture(time.time()), refresh=True)

    def picture(self, now: float) -> RenderableType:
        """Header, table and footer for this moment."""
        width, height = self.console.size
        room = max(1, height - _CHROME)
        shown = self.board.first(room)
        parts: list[RenderableType] = [self._header(), _table(self.board, shown, now, width)]
        rest = {
            group: count - sum(group_of(state) == group for state in shown)
            for group, count in self.board.counts.items()
        }
        if any(rest.values()):
            hidden = sum(rest.values())
            words = f"  … and {hidden:,} more: {count_words(rest)}"
            parts.append(Text(words, style="dim", no_wrap=True, overflow="ellipsis"))
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


def _table(board: Board, states: list[JobState], now: float, width: int) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, expand=True, header_style="dim")
    rows = [_row(board, state, now, width) for state in states]
    # What no job has needs no column, except the words at the end, which take what is left.
    used = [any(row[n].plain for row in rows) for n in range(len(_COLUMNS) - 1)] + [True]
    for title, shown in zip(_COLUMNS, used, strict=True):
        if title == _COLUMNS[-1]:
            table.add_column(title, no_wrap=True, overflow="ellipsis", ratio=1)
        elif shown:
            side: JustifyMethod = "right" if title in ("elapsed", "attempts") else "left"
            table.add_column(title, no_wrap=True, overflow="ellipsis", justify=side, max_width=44)
    for row in rows:
        table.add_row(*(cell for cell, shown in zip(row, used, strict=True) if shown))
    return table


def _row(board: Board, state: JobState, now: float, width: int) -> list[Text]:
    style = STYLES[group_of(state)]
    return [
        Text(f"{board.label}.{state.proc}"),
        Text(board.row(state.proc, max(_NARROW, width // 4)), style="dim"),
        Text(state_word(state), style=style),
        Text(printable(state.phase)),
        Text(printable(state.site)[:_SITE]),
        _progress(state, width),
        Text(elapsed_words(state, now)),
        Text(str(state.attempts or "")),
        Text(
            printable(short_why(state) or fetching_words(state)),
            style="" if style == "dim" else style,
        ),
    ]


def _progress(state: JobState, width: int) -> Text:
    words = progress_words(state)
    if not state.progress_total or state.progress_bytes is None:
        return Text(words)
    share = min(1.0, state.progress_bytes / state.progress_total)
    done = round(share * _BAR)
    text = Text(f"{100 * share:3.0f} %")
    if width >= _ROOM_FOR_BAR:
        bar = Text.assemble(("━" * done, "cyan"), ("─" * (_BAR - done), "dim"), " ")
        text = bar.append_text(text)
    return text.append(f"  {words}") if width >= _ROOM_FOR_BYTES else text
