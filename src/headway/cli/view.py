"""How a run goes: plain lines, JSON lines, or a live table where there is a terminal."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headway.cli.job_text import (
    COLUMNS,
    GROUPS,
    STYLES,
    RunJobs,
    count_words,
    fetching_words,
    group_of,
    job_cells,
    message,
    progress_words,
    state_word,
    why,
)
from headway.cli.terminal import StopSignal, can_redraw, clock, print_json
from headway.events import JobState, Status
from headway.pool.deliveries import DeliveryLines
from headway.spec import format_duration
from headway.text import many, printable

if TYPE_CHECKING:
    from headway.holds.heal import BackgroundHealer

MANY = 50  # jobs; beyond this, a line for each change is of no use
CONDENSED = 2.0  # seconds between two lines of counts, at the least
PROGRESS = 30.0  # seconds between two lines on the same transfer
FRAME = 0.25  # seconds between two pictures, at the least
CLOCK = 1.0  # seconds after which the times are redrawn though nothing happened
LOOK = 0.1  # seconds between two looks at the event log
ALIVE = 2.0  # seconds between two checks that the local pool still runs
_BAR, _NARROW = 12, 16  # characters
_ROOM_FOR_BYTES, _ROOM_FOR_BAR = 90, 110  # columns of the terminal
_CHROME = 4  # lines that are not jobs: header, titles, footer, and where the cursor stands


class RunView:
    """What shows a run while it goes on; this one shows nothing."""

    def saw(self, state: JobState) -> None:
        """Something happened to a job."""

    def tick(self) -> None:
        """The event log was read, whether or not it had news."""

    def note(self, text: str) -> None:
        """Show a line that is not about a job's state."""

    def close(self) -> None:
        """Show what was held back."""


class LineView(RunView):
    """One line for every change of a job's state or phase."""

    def __init__(self, run_jobs: RunJobs) -> None:
        self.run_jobs = run_jobs
        self._last: dict[int, tuple[object, ...]] = {}
        self._printed: dict[int, float] = {}

    def saw(self, state: JobState) -> None:
        if state.phase == "done":
            return
        now = time.monotonic()
        key = (state.status, state.phase, state.attempts, state.couriers, group_of(state))
        moving = state.progress_bytes is not None
        overdue = moving and now - self._printed.get(state.proc, now) >= PROGRESS
        if self._last.get(state.proc) == key and not overdue:
            return
        self._last[state.proc] = key
        self._printed[state.proc] = now
        self.note(f"{self.run_jobs.name(state.proc)} {_line(state, self.run_jobs.lines)}")

    def note(self, text: str) -> None:
        print(f"{clock()} {printable(text)}", flush=True)


class CountView(LineView):
    """For many jobs: how many are in which state, whenever that has changed."""

    def __init__(self, run_jobs: RunJobs) -> None:
        super().__init__(run_jobs)
        self._words = ""
        self._time = float("-inf")

    def saw(self, state: JobState) -> None:
        """`tick` prints the counts."""

    def tick(self) -> None:
        if time.monotonic() - self._time >= CONDENSED:
            self.close()

    def close(self) -> None:
        words = count_words(self.run_jobs.counts)
        if words != self._words:
            self._words, self._time = words, time.monotonic()
            self.note(f"{self.run_jobs.label}: {words}")


class JsonView(RunView):
    """One JSON object a line for every event of a job."""

    def __init__(self, run_jobs: RunJobs) -> None:
        self.run_jobs = run_jobs

    def saw(self, state: JobState) -> None:
        print_json({"type": "job", "run": self.run_jobs.label, **self.run_jobs.document(state)})

    def note(self, text: str) -> None:
        print_json({"type": "note", "run": self.run_jobs.label, "text": text})


def _line(state: JobState, lines: DeliveryLines) -> str:
    text = state_word(state)
    if state.status is Status.DELIVERING:
        moved = f", {progress}" if (progress := progress_words(state)) else ""
        return f"{text}{moved}: {message(state, lines, time.time())}"
    if state.phase:
        text += f", {state.phase}"
    if state.site and group_of(state) == "running":
        text += f" at {state.site}"
    if state.attempts > 1 and group_of(state) == "running":
        text += f" (attempt {state.attempts})"
    if progress := progress_words(state):
        text += f", {progress}"
    last = why(state) or fetching_words(state)
    return f"{text}: {last}" if last else text


class LiveView(RunView):
    """Draws the jobs that matter most on a terminal, and nothing while nothing changes."""

    def __init__(
        self,
        run_jobs: RunJobs,
        pool: str,
        console: Console | None = None,
        *,
        began: float | None = None,
    ) -> None:
        self.run_jobs = run_jobs
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
        """Draw the last picture, and leave it on the screen."""
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
        shown = self.run_jobs.first(max(1, height - _CHROME))
        parts: list[RenderableType] = [self._header(), _table(self.run_jobs, shown, now, width)]
        hidden = {
            group: count - sum(group_of(state) == group for state in shown)
            for group, count in self.run_jobs.counts.items()
        }
        if any(hidden.values()):
            words = f"  … and {sum(hidden.values()):,} more: {count_words(hidden)}"
            parts.append(Text(words, style="dim", no_wrap=True, overflow="ellipsis"))
        return Group(*parts)

    def _header(self) -> Text:
        counts = self.run_jobs.counts
        parts = [
            Text(self.run_jobs.label, style="bold"),
            Text(f"on {self.pool}"),
            Text(many(self.run_jobs.size, "job")),
            *(Text(f"{counts[g]:,} {g}", style=STYLES[g]) for g in GROUPS if counts[g]),
            Text(format_duration(int(time.monotonic() - self._began)), style="dim"),
        ]
        line = Text(no_wrap=True, overflow="ellipsis")
        for number, part in enumerate(parts):
            line.append(" · " if number else "", style="dim").append_text(part)
        return line


def _table(run_jobs: RunJobs, states: list[JobState], now: float, width: int) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, expand=True, header_style="dim")
    rows = [_row(run_jobs, state, now, width) for state in states]
    # A column that is empty for all jobs is left out, except the last, which takes the rest.
    used = [any(row[n].plain for row in rows) for n in range(len(COLUMNS) - 1)] + [True]
    for title, shown in zip(COLUMNS, used, strict=True):
        if title == COLUMNS[-1]:
            table.add_column(title, no_wrap=True, overflow="ellipsis", ratio=1)
        elif shown:
            side: JustifyMethod = "right" if title in ("elapsed", "attempts") else "left"
            most = 28 if title == "site" else 44
            table.add_column(title, no_wrap=True, overflow="ellipsis", justify=side, max_width=most)
    for row in rows:
        table.add_row(*(cell for cell, shown in zip(row, used, strict=True) if shown))
    return table


def _row(run_jobs: RunJobs, state: JobState, now: float, width: int) -> list[Text]:
    style = STYLES[group_of(state)]
    row = run_jobs.row(state.proc, max(_NARROW, width // 4))
    styles = {"row": "dim", "state": style, "message": "" if style == "dim" else style}
    name, lines = f"{run_jobs.label}.{state.proc}", run_jobs.lines
    cells = zip(COLUMNS, job_cells(state, name, row, now, lines), strict=True)
    return [
        _progress(state, width) if title == "progress" else Text(cell, style=styles.get(title, ""))
        for title, cell in cells
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


def choose_view(run_jobs: RunJobs, *, as_json: bool) -> RunView:
    """The view that fits where stdout goes."""
    if as_json:
        return JsonView(run_jobs)
    if can_redraw(sys.stdout):
        return LiveView(run_jobs, run_jobs.run.folder.facts.pool["kind"])
    return CountView(run_jobs) if run_jobs.size > MANY else LineView(run_jobs)


class RunWatcher:
    """Feeds a view from the event log; Ctrl-C asks it to end but never interrupts a step."""

    def __init__(
        self, run_jobs: RunJobs, view: RunView, heal: BackgroundHealer | None, stop: StopSignal
    ) -> None:
        self.run = run_jobs.run
        self.run_jobs = run_jobs
        self.view = view
        self.heal = heal
        self.stop = stop
        self._checked = time.monotonic()
        self.run.saw = self._saw

    def until_settled(self) -> bool:
        """True once all jobs are over or held for good; False if a signal came first."""
        news = True
        with self.stop.listening():
            while not self.stop:
                news = self.look() or news
                if news and not self.run_jobs.busy and not (self.heal and self.heal.busy):
                    if self.run.settled():
                        return True
                    news = False
                if time.monotonic() - self._checked >= ALIVE:
                    self._checked = time.monotonic()
                    self.run.check_pool()
                time.sleep(LOOK)
        return False

    def look(self) -> bool:
        """Read what is new in the event log, and show it."""
        news = self.run.refresh()
        while self.heal and self.heal.notes:
            self.view.note(self.heal.notes.popleft())
        self.view.tick()
        return news

    def leave(self) -> str:
        """Tell the pool that nobody watches any more; goes on showing while the jobs stop."""
        from concurrent.futures import ThreadPoolExecutor, wait

        with self.stop.listening(), ThreadPoolExecutor(1) as beside:
            leaving = beside.submit(self.run.pool.leave, self.run.folder)
            if not wait([leaving], 0.5).done:
                grace = format_duration(self.run.folder.job.grace)
                self.view.note(f"stopping; commands have {grace} to save their work")
            while not leaving.done():
                self.look()
                wait([leaving], LOOK)
            self.look()
        label, said = self.run.label, leaving.result()
        return said if said.startswith(label) else f"{label}: {said}"

    def _saw(self, state: JobState) -> None:
        self.run_jobs.take(state)
        self.view.saw(state)
        if self.heal and state.status is Status.HELD:
            self.heal.poke()
