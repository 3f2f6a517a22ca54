"""Headway: machine-learning training that gets somewhere on HTCondor pools.

    import headway

    run = headway.run("job.toml", pool="local")
    if run.succeeded():
        print(run.outputs())

All names below load when they are first used, so that `import headway` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # that of `typing`, which would cost a fetch a tenth of its start
if TYPE_CHECKING:
    from typing import Any

    from headway.api import Run, run
    from headway.errors import (
        AccessDeniedError,
        CorruptError,
        EventLogError,
        HeadwayError,
        ManifestError,
        NodeError,
        NoSpaceError,
        NotFoundError,
        PoolError,
        PoolUnreachable,
        PreflightError,
        ReportError,
        RunError,
        SpecError,
        StalledError,
        Stopped,
        TransferError,
    )
    from headway.pool import Runs
    from headway.report import Report
    from headway.spec import Job, load_job
    from headway.transfers import Fetched, Snapshot, fetch, publish, put

    __version__: str

__all__ = [
    "AccessDeniedError",
    "CorruptError",
    "EventLogError",
    "Fetched",
    "HeadwayError",
    "Job",
    "ManifestError",
    "NoSpaceError",
    "NodeError",
    "NotFoundError",
    "PoolError",
    "PoolUnreachable",
    "PreflightError",
    "Report",
    "ReportError",
    "Run",
    "RunError",
    "Runs",
    "Snapshot",
    "SpecError",
    "StalledError",
    "Stopped",
    "TransferError",
    "__version__",
    "fetch",
    "load_job",
    "publish",
    "put",
    "run",
]

_HOMES = {
    **dict.fromkeys(
        (name for name in __all__ if name.endswith(("Error", "Unreachable"))), "headway.errors"
    ),
    "Stopped": "headway.errors",
    "Report": "headway.report",
    "Run": "headway.api",
    "run": "headway.api",
    "Runs": "headway.pool",
    "Job": "headway.spec",
    "load_job": "headway.spec",
    **dict.fromkeys(("Fetched", "Snapshot", "fetch", "publish", "put"), "headway.transfers"),
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = _version()
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'headway' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    from headway.node import VERSION

    try:
        return version("headway")
    except PackageNotFoundError:
        return VERSION
