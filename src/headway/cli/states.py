"""The table of jobs and their states."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence

from headway.cli.show import print_table, printable
from headway.cli.words import (
    STYLES,
    elapsed_words,
    fetching_words,
    group_of,
    progress_words,
    short_why,
    state_word,
)
from headway.events import JobState

_TITLES = ("job", "row", "state", "phase", "site", "progress", "elapsed", "attempts", "last word")


def print_states(
    states: Sequence[JobState],
    name: Callable[[JobState], str],
    now: float,
    *,
    row: Callable[[int, int], str] = lambda job, width: "",
) -> None:
    """One line a job; what no job has needs no column."""
    room = max(16, shutil.get_terminal_size().columns // 3)
    rows = [
        (
            name(state),
            row(state.proc, room),
            state_word(state),
            printable(state.phase),
            printable(state.site),
            progress_words(state),
            elapsed_words(state, now),
            str(state.attempts),
            printable(short_why(state) or fetching_words(state)),
        )
        for state in states
    ]
    keep = [place for place in range(len(_TITLES)) if any(row[place] for row in rows)]
    print_table(
        [_TITLES[place] for place in keep],
        [[row[place] for place in keep] for row in rows],
        [STYLES[group_of(state)] for state in states],
    )
