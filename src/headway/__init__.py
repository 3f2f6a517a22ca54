"""Headway: machine-learning training that gets somewhere on HTCondor pools.

    import headway

    run = headway.run("job.toml", pool="local")
    if run.succeeded():
        print(run.outputs())

The names below load when they are first used, so that `import headway` is quick.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # instead of `typing`, which would take a tenth of the start of a fetch
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

#: The modules of the names above; the others are in `headway.errors`.
_MODULES = {
    "api": ("Run", "run"),
    "pool": ("Runs",),
    "report": ("Report",),
    "spec": ("Job", "load_job"),
    "transfers": ("Fetched", "Snapshot", "fetch", "publish", "put"),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'headway' has no attribute {name!r}")
    if name == "__version__":
        value: Any = _version()
    else:
        module = next((m for m, names in _MODULES.items() if name in names), "errors")
        value = getattr(import_module(f"headway.{module}"), name)
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
