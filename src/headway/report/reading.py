"""Reading: from what a user names, logs or runs, to events.

What makes the rest of a report takes a while to import. Nothing here needs it, so that it is
imported while other processes read.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.errors import ReportError
from headway.events import inert
from headway.pool.folder import RunFolder, Runs

if TYPE_CHECKING:
    from headway.events.columnar.thin import Thin

logger = logging.getLogger(__name__)

LogOrRun = str | os.PathLike[str] | RunFolder


def locate(place: LogOrRun, start: Path | None = None) -> Path | RunFolder:
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
        progress: Called with the bytes read so far and the bytes in all.

    Returns:
        The events, as far as accounts need them; at least one.

    Raises:
        ReportError: There is no event to report of.
    """
    begin = time.perf_counter()
    logs = [_log(each) if isinstance(each, RunFolder) else each for each in found]
    events = _read(logs, since, progress)
    _check(events, found)
    seconds = time.perf_counter() - begin
    logger.info("read %d events of %d logs in %.2f s", events.events, len(events.logs), seconds)
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
            "what `headway collect` has kept cannot be combined with other logs",
            remedy="name that folder only",
        )
    return read_collected_thin(logs[0], since=since, progress=progress)


def _prepare() -> None:
    """Load what the rest of the report is made with, which takes a while."""
    import_module("headway.report.document")
    import_module("headway.report.findings")
    import_module("headway.holds").table()


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
    remedy = "name the file that `log =` of your submit file names, or a folder with such files"
    skipped = sum(skip.length for _, skip in columns.skipped)
    if columns.unread:
        why = "; ".join(f"{inert(file, 200)} {inert(why, 200)}" for file, why in columns.unread[:3])
    elif skipped:
        why = f"all of its {skipped:,} bytes were skipped"
        remedy = "is it an HTCondor event log, the file that `log =` of a submit file names?"
    else:
        why = "it is empty" if columns.files else "there is no event log"
    raise ReportError(f"no events in {names_of(found)}: {why}", remedy=remedy)


def names_of(found: Sequence[Path | RunFolder]) -> str:
    """The first few in words."""
    labels = (each.label if isinstance(each, RunFolder) else str(each) for each in found[:3])
    return ", ".join(inert(label, 200) for label in labels)


def _nothing(text: str, runs: Runs) -> ReportError:
    from headway.text import closest

    labels = [run.label for run in runs]
    folder = Path(text).parent
    beside: list[str] = []
    with contextlib.suppress(OSError):
        beside = [str(folder / name) for name in os.listdir(folder)]
    shown: Any = inert(text, 200)
    close = closest(text, [*labels, *beside])
    hint = f"did you mean {inert(close, 200)}? " if close else ""
    return ReportError(
        f"there is no log and no run {shown!r}",
        remedy=f"{hint}name an event log, a folder with logs, or a run (`headway list` shows them)",
    )
