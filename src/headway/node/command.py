"""The command: what the plan asks to be run, and in which environment."""

from __future__ import annotations

import os
import signal

import headway.node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.node.plan import Plan

# names in HEADWAY_PRIVATE, parted by spaces, are for the agent alone
_PRIVATE = ("HEADWAY_ROW", "HEADWAY_PARENT", "HEADWAY_PRIVATE")


def argv(plan: Plan) -> list[str]:
    """The arguments to start with; a shell line is wrapped so that its exit code survives signals.

    A shell dies of a signal at once, while the program that it runs is still saving its state. With
    the trap it waits for that program and passes its exit code on; the program has no trap.
    """
    if not plan.shell:
        return plan.command
    names = {"TERM"}
    if plan.checkpoint is not None and plan.checkpoint.signal is not None:
        names.add(plan.checkpoint.signal[3:])
    return ["/bin/sh", "-c", f"trap exit {' '.join(sorted(names))}\n{plan.command[0]}"]


def environment(plan: Plan, attempt: str) -> dict[str, str]:
    """The node's environment and the plan's, without what is headway's own."""
    private = {*_PRIVATE, *os.environ.get("HEADWAY_PRIVATE", "").split()}
    filled = {name: value for name, value in os.environ.items() if name not in private}
    filled.setdefault("PYTHONUNBUFFERED", "1")  # what it prints is seen when it prints it
    filled.update(plan.environment)
    filled["HEADWAY_JOB"] = plan.row.get("job", "0")
    filled["HEADWAY_ATTEMPT"] = attempt
    wanted = plan.checkpoint
    if wanted is not None:
        filled["HEADWAY_CHECKPOINT_EXIT_CODE"] = str(wanted.exit_code)
        if wanted.interval is not None:
            filled["HEADWAY_CHECKPOINT_INTERVAL"] = f"{wanted.interval:g}"
        if wanted.signal is not None:
            filled["HEADWAY_CHECKPOINT_SIGNAL"] = wanted.signal
    package = own_package()
    if package:
        before = filled.get("PYTHONPATH")
        filled["PYTHONPATH"] = f"{package}{os.pathsep}{before}" if before else package
    return filled


def own_package() -> str:
    """headway-node.pyz, if this runs from it: the command can import `headway.checkpoint` from it.

    Empty also where its path has the sign that parts PYTHONPATH.
    """
    package = os.path.abspath(headway.node.__path__[0])
    archive = os.path.dirname(os.path.dirname(package))
    return archive if os.path.isfile(archive) and os.pathsep not in archive else ""


def nudge(plan: Plan) -> tuple[float, int] | None:
    """When the command is to be asked for a checkpoint, and by which signal."""
    wanted = plan.checkpoint
    if wanted is None or wanted.interval is None or wanted.signal is None:
        return None
    return wanted.interval, getattr(signal, wanted.signal)


def saved(plan: Plan, status: int | None) -> bool:
    """Whether this exit status says that a checkpoint has been written."""
    return plan.checkpoint is not None and status == plan.checkpoint.exit_code
