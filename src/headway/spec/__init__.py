"""job.toml: one file that describes a job, read into a validated `Job`."""

from headway.spec.job import (
    Checkpoint,
    Gpus,
    Input,
    Job,
    Output,
    Resources,
    Retries,
    Sites,
)
from headway.spec.load import build_job, dump_job, load_job, load_resolved
from headway.spec.override import apply as apply_overrides
from headway.spec.units import format_duration, format_size, parse_duration, parse_size

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
