"""job.toml: one file that describes a job, read into a validated `Job`.

The names load when they are first used: who only needs a size in words need not wait for them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.spec.job import (
        Checkpoint,
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

_OF = {
    "job": (
        *("Checkpoint", "Gpus", "Input", "Job", "Output", "Resources", "Retries", "Sites"),
        *("build_job", "dump_job", "load_job", "load_resolved"),
    ),
    "override": ("apply_overrides",),
    "units": ("format_duration", "format_size", "parse_duration", "parse_size"),
}
_MODULES = {name: module for module, names in _OF.items() for name in names}

__all__ = [
    "Checkpoint",
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


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'headway.spec' has no attribute {name!r}")
    return getattr(import_module(f"headway.spec.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
