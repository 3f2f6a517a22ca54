"""Reports: where every second of slot time went, from event logs.

    from headway.report import report

    found = report("train.log")
    print(found.totals.compute_share, found.findings[0].title)

What a report is made with is heavier than the rest of Headway, and loads while the logs are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from headway.report.document import Report
    from headway.report.reading import LogOrRun

__all__ = ["Report", "report"]


def report(
    places: LogOrRun | Sequence[LogOrRun],
    *,
    outputs: str | Sequence[str] = (),
    since: float | None = None,
    start: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Report on event logs, folders of them, or runs by name.

    Args:
        places: One of them or several: a path, or the label or name of a run.
        outputs: Where results must be, with $(Cluster) and $(Process), for a job to count as a
            success.
        since: Seconds since the epoch; jobs whose last event is earlier are left out.
        start: Where to look for the `.headway` folder; the current folder by default.
        progress: Called with the bytes read so far and the bytes in all.

    Returns:
        The report; what is not asked for is not worked out.

    Raises:
        ReportError: There is no such log or run, or no event to report of.

    Example:
        >>> found = report("train.log")
        >>> found.totals.jobs, found.totals.succeeded
        (2, 1)
        >>> [loss.cause for loss in found.losses]
        ['failed']
    """
    from headway.errors import ReportError
    from headway.report.reading import locate, read_logs

    several = places if isinstance(places, Sequence) and not isinstance(places, str) else [places]
    if not several:
        raise ReportError("no log or run was named", remedy="name one, such as events.log")
    found = [locate(place, start) for place in several]
    events = [read_logs(found, since=since, progress=progress)]
    from headway.report.document import Report
    from headway.report.load import load

    wanted = [outputs] if isinstance(outputs, str) else outputs
    # Handed over, so that `load` can give their memory back.
    return Report(load(found, events.pop(), outputs=wanted, since=since))


def __getattr__(name: str) -> Any:
    if name != "Report":
        raise AttributeError(f"module 'headway.report' has no attribute {name!r}")
    from headway.report.document import Report

    return Report


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
