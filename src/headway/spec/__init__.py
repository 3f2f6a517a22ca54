"""job.toml: one file that describes a job, read into a validated `Job`.

The names are loaded when they are first used, since pydantic takes its time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.spec.job import (
        CheckpointSettings,
        Gpus,
        Input,
        Job,
        Output,
        Resources,
        Retries,
        Sites,
        build_job,
        dump_job,
        load_job,
        load_resolved,
    )
    from headway.spec.override import apply_overrides
    from headway.spec.units import format_duration, format_size, parse_duration, parse_size

__all__ = [
    "CheckpointSettings",
    "Gpus",
    "Input",
    "Job",
    "Output",
    "Resources",
    "Retries",
    "Sites",
    "apply_overrides",
    "build_job",
    "dump_job",
    "format_duration",
    "format_size",
    "load_job",
    "load_resolved",
    "parse_duration",
    "parse_size",
]


_MODULES = {name: "units" for name in __all__ if name.startswith(("format_", "parse_"))}
_MODULES["apply_overrides"] = "override"


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'job')}"), name)
