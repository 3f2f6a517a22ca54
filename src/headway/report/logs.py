"""The logs that a report is of: from what a user names to events.

What makes the rest of a report takes a while to import. Nothing here needs it, so that it is
imported while other processes read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.errors import ReportError
from headway.events import inert
from headway.holds import table
from headway.pool.folder import RunFolder, Runs

if TYPE_CHECKING:
    from headway.events.columnar.thin import Thin

Place = str | os.PathLike[str] | RunFolder


def locate(place: Place, start: Path | None = None) -> Path | RunFolder:
    """A run by its label or name, a run's own folder, or the path of a log or a folder of logs.

    A run's own label or name goes before a path of the same name; `./NAME` is always the path.
    """
    if isinstance(place, RunFolder):
        return place
    text = os.fspath(place)
    runs = Runs.here(start)
    if isinstance(place, str) and os.sep not in text:
        named = [run for run in runs if text in (run.label, run.facts.name)]
        if named:
            return named[-1]
    path = Path(text)
    try:
        there = path.exists()
    except OSError:  # too long for any path
        there = False
    if there:
        return RunFolder(path.absolute()) if (path / "run.json").is_file() else path
    raise _nothing(text, runs)


def read_logs(
    found: Sequence[Path | RunFolder],
    *,
    since: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Thin:
    """The events of logs, folders of logs and runs.

    Args:
        found: What `locate` found.
        since: Of what `headway collect` has kept, only jobs with an event since then are read.
        progress: Is told how many bytes of how many are read.

    Returns:
        The events, as far as accounts need them; at least one.

    Raises:
        ReportError: There is no event to report of.
    """
    logs = [_log(each) if isinstance(each, RunFolder) else each for each in found]
    events = _read(logs, since, progress)
    _check(events, found)
    return events


def _read(
    logs: Sequence[Path], since: float | None, progress: Callable[[int, int], None] | None
) -> Thin:
    from headway.events.collected import is_collected, read_collected_thin
    from headway.events.columnar.bulk import read_thin

    if not any(is_collected(log) for log in logs):
        return read_thin(logs, progress=progress, meanwhile=_prepare)
    if len(logs) > 1:
        raise ReportError(
            "what `headway collect` has kept is reported of alone", remedy="name that folder only"
        )
    return read_collected_thin(logs[0], since=since, progress=progress)


def _prepare() -> None:
    """Load what the rest of the report is made with, which takes a while."""
    import_module("headway.report.whole")
    import_module("headway.report.findings")
    table()


def _log(run: RunFolder) -> Path:
    if not run.events.exists():
        raise ReportError(
            f"{run.label} has no event log yet",
            remedy=f"it was not submitted; `headway run --resume {run.label}` does that",
        )
    return run.events


def _check(events: Thin, found: Sequence[Path | RunFolder]) -> None:
    """Nothing to report of is an error that says what was there instead."""
    if len(events):
        return
    columns = events.columns()
    names = ", ".join(map(name_of, found[:3]))
    why = "; ".join(f"{inert(file, 200)} {inert(said, 200)}" for file, said in columns.unread[:3])
    remedy = "name the file that `log =` of your submit file names, or a folder with such files"
    skipped = sum(skip.length for _, skip in columns.skipped)
    if why:
        raise ReportError(f"there is no event to report of in {names}: {why}", remedy=remedy)
    if skipped:
        raise ReportError(
            f"there is no event in {names}: all of its {skipped:,} bytes were skipped",
            remedy="is it an HTCondor event log, the file that `log =` of a submit file names?",
        )
    what = "it is empty" if columns.files else "there is no event log"
    raise ReportError(
        f"there is no event in {names}: {what}",
        remedy=remedy,
    )


def name_of(place: Path | RunFolder) -> str:
    return inert(place.label if isinstance(place, RunFolder) else str(place), 200)


def _nothing(text: str, runs: Runs) -> ReportError:
    from difflib import get_close_matches

    labels = [run.label for run in runs]
    folder = Path(text).parent
    try:
        beside = [str(folder / name) if folder != Path() else name for name in os.listdir(folder)]
    except OSError:
        beside = []
    shown: Any = inert(text, 200)
    close = get_close_matches(text, [*labels, *beside], n=1)
    hint = f"did you mean {inert(close[0], 200)}? " if close else ""
    return ReportError(
        f"there is no log and no run {shown!r}",
        remedy=f"{hint}name an event log, a folder with logs, or a run (`headway list` shows them)",
    )
