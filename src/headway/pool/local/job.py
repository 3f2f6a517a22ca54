"""What the local pool's supervisor needs to know of a job, read from job.json as plain data.

The models of `headway.spec` have validated it before it was written. Loading them again would take
longer than all else that a supervisor does before its first job starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headway.node.plan import fill
from headway.pool.folder import RunFolder
from headway.pool.local.machine import ResourceRequest
from headway.spec.places import is_url


@dataclass
class LocalRetries:
    """`[retries]` of job.toml."""

    node: int
    input: int
    output: int
    command: int
    holds: int
    backoff: float
    avoid: float


@dataclass(frozen=True)
class LocalOutput:
    """One output of job.toml."""

    path: str
    to: str | None
    overwrite: bool


@dataclass(frozen=True)
class LocalJob:
    """The parts of a `headway.spec.Job` that decide when and where it runs, and what is kept."""

    size: int
    rows: Sequence[Mapping[str, str]] | None
    has_inputs: bool
    outputs: tuple[LocalOutput, ...]
    has_checkpoint: bool
    container: str | None
    grace: float
    request: ResourceRequest
    retries: LocalRetries
    prefer: frozenset[str]
    only: frozenset[str]
    avoid: frozenset[str]

    @classmethod
    def read(cls, folder: RunFolder) -> LocalJob:
        """The job of a run.

        Raises:
            RunError: job.json is damaged, or is not this user's to read.
        """
        try:
            return cls.of(folder.job_document())
        except (KeyError, TypeError, AttributeError):
            # An older Headway wrote it, and the models know the defaults of what is missing. Or it
            # is damaged, and they know where.
            return cls.of(folder.job.model_dump())

    @classmethod
    def of(cls, job: Mapping[str, Any]) -> LocalJob:
        """The same, from a job as plain data."""
        rows, sites, outputs = job["rows"], job["sites"], job["outputs"]
        return cls(
            size=len(rows) if rows is not None else job["count"],
            rows=rows,
            has_inputs=bool(job["inputs"]),
            outputs=tuple(LocalOutput(o["path"], o["to"], o["overwrite"]) for o in outputs),
            has_checkpoint=job["checkpoint"] is not None,
            container=job["container"],
            grace=job["grace"],
            request=ResourceRequest.of(job["resources"]),
            retries=LocalRetries(**job["retries"]),
            prefer=frozenset(sites["prefer"]),
            only=frozenset(sites["only"]),
            avoid=frozenset(sites["avoid"]),
        )

    def row(self, index: int) -> dict[str, str]:
        """The placeholder values of one job, as `Job.row` has them."""
        return {"job": str(index), **(self.rows[index] if self.rows is not None else {})}

    def uploads(self, output: LocalOutput) -> bool:
        """Whether an output goes to a URL, as `Job.uploads` has it."""
        return output.to is not None and is_url(fill(output.to, self.row(0)))
