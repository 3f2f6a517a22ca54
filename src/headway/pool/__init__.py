"""Where jobs run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headway.errors import PoolError
from headway.pool.base import Action, ActionResult, Limits, Pool
from headway.pool.folder import RunFolder, Runs

__all__ = [
    "Action",
    "ActionResult",
    "Limits",
    "Pool",
    "RunFolder",
    "Runs",
    "open_pool",
    "pool_of",
]


def open_pool(text: str, folder: Path) -> Pool:
    """The pool that `local`, `local:cpus=4`, `htcondor` or `htcondor:schedd=NAME` names."""
    kind, _, options = text.partition(":")
    if kind == "local":
        from headway.pool.local.pool import LocalPool

        return LocalPool.parse(options, folder)
    if kind == "htcondor":
        from headway.pool.htcondor import HTCondorPool

        return HTCondorPool.parse(options)
    raise PoolError(
        f"there is no pool {kind!r}",
        remedy="--pool local runs on this machine, --pool htcondor on an HTCondor pool",
    )


def pool_of(facts: Mapping[str, Any]) -> Pool:
    """The pool that run.json names."""
    if facts["kind"] == "local":
        from headway.pool.local.pool import LocalPool

        return LocalPool.from_facts(facts)
    from headway.pool.htcondor import HTCondorPool

    return HTCondorPool.from_facts(facts)
