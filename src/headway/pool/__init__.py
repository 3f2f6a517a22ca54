"""Where jobs run.

The names below are loaded when they are first used: the program that talks to a schedd is started
for each request, and needs none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.errors import PoolError

if TYPE_CHECKING:
    from headway.pool.base import Action, ActionResult, Limits, Pool
    from headway.pool.folder import RunFolder, Runs

__all__ = ["Action", "ActionResult", "Limits", "Pool", "RunFolder", "Runs", "open_pool", "pool_of"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "folder" if name in ("RunFolder", "Runs") else "base"
    return getattr(import_module(f"{__name__}.{module}"), name)


def open_pool(text: str, folder: Path) -> Pool:
    """The pool that the option `--pool` names.

    Args:
        text: `local`, `local:cpus=4`, `htcondor` or `htcondor:schedd=NAME`.
        folder: On whose disk the local pool puts its scratch folders.

    Returns:
        The pool; it is not contacted yet.

    Raises:
        PoolError: There is no such pool, or an option of it is wrong.
    """
    kind, _, options = text.partition(":")
    if kind == "local":
        from headway.pool.local.pool import LocalPool

        return LocalPool.parse(options, folder)
    if kind == "htcondor":
        from headway.pool.htcondor.pool import HTCondorPool

        return HTCondorPool.parse(options)
    raise PoolError(
        f"there is no pool {kind!r}",
        remedy="--pool local runs on this machine, --pool htcondor on an HTCondor pool",
    )


def pool_of(facts: Mapping[str, Any]) -> Pool:
    """The pool of a run.

    Args:
        facts: What run.json keeps of it.

    Returns:
        The pool; it is not contacted yet.

    Raises:
        RunError: run.json is damaged.
    """
    if facts["kind"] == "local":
        from headway.pool.local.pool import LocalPool

        return LocalPool.from_facts(facts)
    from headway.pool.htcondor.pool import HTCondorPool

    return HTCondorPool.from_facts(facts)
