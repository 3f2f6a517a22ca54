"""The readers that `benchmarks/events.py` compares, each for a process of its own.

    python benchmarks/event_readers.py headway|columns|joblog|cli LOG

Each prints one line of JSON with what it found, so that nobody is quick by leaving something out.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import resource
import sys
import time

SITES = 50  # a summary shows fewer, the one with the most slot time first


def main() -> int:
    reader, path = sys.argv[1:]
    readers = {"headway": headway, "columns": columns, "joblog": joblog, "cli": cli}
    print(json.dumps(readers[reader](path)))
    gc.freeze()  # as `headway report` does: what ends anyway need not be searched for cycles
    return 0


def headway(path: str) -> dict[str, float]:
    """The full accounting: every event read, every second accounted, and the figures of them."""
    import_s = Meter()
    from headway.events.columnar.bulk import read_thin
    from headway.report.accounting import account_parts
    from headway.report.figures import losses, sites, totals

    imported = import_s.stop()
    work = Meter()
    read_s = Meter()
    events = read_thin([path])
    read = read_s.stop()
    account_s = Meter()
    accounts = account_parts(events.some_jobs(), events.last_events(), events=events.events)
    accounted = account_s.stop()
    figures_s = Meter()
    found = totals(accounts)
    lost, places = losses(accounts), sites(accounts, SITES)
    return {
        "events": accounts.events,
        "jobs": found.jobs,
        "skipped": sum(skip.length for _, skip in accounts.skipped),
        "sites": len(places),
        "losses": len(lost),
        "import_s": imported,
        "read_s": read,
        "account_s": accounted,
        "figures_s": figures_s.stop(),
        **work.costs(),
    }


def columns(path: str) -> dict[str, float]:
    """Every event read, with all that it says, as columns."""
    from headway.events import read_columns

    work = Meter()
    return {"events": len(read_columns([path])), **work.costs()}


def joblog(path: str) -> dict[str, float]:
    """HTCondor's own reader, asked of each event only what it is, whose it is and when it was."""
    import htcondor2

    work = Meter()
    events = 0
    with htcondor2.JobEventLog(path) as log:
        for event in log.events(stop_after=0):
            _ = event.type, event.cluster, event.proc, event.timestamp
            events += 1
    return {"events": events, **work.costs()}


def cli(path: str) -> dict[str, float]:
    """`htcondor eventlog read LOG`: one line a job, but for those removed before they executed."""
    from htcondor_cli.cli import main as command  # type: ignore[import-untyped]

    work = Meter()
    printed = io.StringIO()
    sys.argv = ["htcondor", "eventlog", "read", path]
    with contextlib.redirect_stdout(printed):
        code = command()
    if code:
        raise SystemExit(code)
    lines = printed.getvalue().splitlines()
    return {"jobs": sum(not line.startswith("Job ") for line in lines), **work.costs()}


class Meter:
    """What work costs from here on, without the imports before it."""

    def __init__(self) -> None:
        self._cpu, self._memory = _cpu(), _memory()
        self._begin = time.perf_counter()

    def stop(self) -> float:
        """Seconds of the wall clock."""
        return time.perf_counter() - self._begin

    def costs(self) -> dict[str, float]:
        """Seconds of CPU in all processes, and bytes that the largest of them grew by."""
        return {"work_cpu_s": _cpu() - self._cpu, "work_memory": _memory() - self._memory}


def _cpu() -> float:
    own, below = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return own.ru_utime + own.ru_stime + below.ru_utime + below.ru_stime


def _memory() -> int:
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most * (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    sys.exit(main())
