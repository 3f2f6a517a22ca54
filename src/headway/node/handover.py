"""The handover: what the command leaves behind goes to where it goes home from."""

from __future__ import annotations

import os

from headway.node import checkpoint, outputs
from headway.node.errors import HeadwayError, Stopped
from headway.node.exits import Exit
from headway.node.plan import OUT
from headway.node.verdict import Failed, words_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.node.journal import Journal
    from headway.node.plan import Plan
    from headway.node.watch import Watch

OUTPUTS = f"{OUT}/outputs"


def hand_over(plan: Plan, journal: Journal, watch: Watch) -> int:
    """Verify, send and move the outputs of a command that succeeded; returns their bytes."""
    try:
        found, faults = outputs.find(plan.outputs, journal.problem)
        if faults:
            raise outputs.OutputError(
                "; ".join(faults), remedy="look at the command's stdout and stderr"
            )
        sent = [each for each in found if each.output.url is not None]
        if sent:
            journal.outputs += _send(sent, journal, watch)
        rest = [each for each in found if each.output.url is None]
        journal.outputs += outputs.move(rest, OUTPUTS)
    except Stopped:
        raise
    except (HeadwayError, OSError) as error:
        keep_outputs(plan, journal)
        remedy = getattr(error, "remedy", "")
        raise Failed(Exit.OUTPUT_MISSING, words_of(error), remedy=remedy) from None
    return sum(each.bytes for each in found)


def keep_outputs(plan: Plan, journal: Journal) -> None:
    """What there is of the outputs goes home with the failed attempt."""
    kept = f"{journal.attempt.folder}/outputs"
    try:
        if os.path.isdir(OUTPUTS):
            os.makedirs(journal.attempt.folder, 0o755, exist_ok=True)
            os.rename(OUTPUTS, kept)
        found, _ = outputs.find(plan.outputs, journal.note)
        journal.outputs = outputs.move(found, kept)
    except (OSError, HeadwayError) as error:
        journal.note(f"outputs could not be kept: {words_of(error)}")


def save_checkpoint(paths: list[str], journal: Journal) -> None:
    """Put the checkpoint that the command has just written into the output folder."""
    lacking = [path for path in paths if not os.path.exists(path)]
    if lacking:
        raise Failed(
            Exit.COMMAND_FAILED,
            f"the command exited {journal.command['status']} but {', '.join(lacking)} is missing",
            remedy="the command must write each checkpoint path before it exits",
        )
    try:
        checkpoint.save(paths, journal.problem)
    except OSError as error:
        raise Failed(
            Exit.COMMAND_FAILED, f"the checkpoint could not be kept: {words_of(error)}"
        ) from None


def restore_checkpoint(paths: list[str], journal: Journal, watch: Watch) -> None:
    """In a thread: a large checkpoint takes its time, and an eviction does not wait for it."""
    for path in watch.work(lambda: checkpoint.restore(paths, watch.check, journal.problem)):
        journal.note(f"{path} restored from the checkpoint")


def _send(found: list[outputs.Found], journal: Journal, watch: Watch) -> list[dict[str, object]]:
    from headway.node.progress import Progress, Teller
    from headway.node.upload import send

    progress = Progress({each.output.path: each.bytes for each in found})
    teller = Teller(journal, "stage-out", progress)
    return watch.work(lambda: send(found, progress, lambda: watch.cause != ""), teller.tick)
