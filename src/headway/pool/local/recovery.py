"""What a killed supervisor has left lying, taken up by the next one."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from headway.events import read_log
from headway.node.exits import Exit
from headway.node.temporary import sweep
from headway.node.verdict import ENDED_BY_POOL
from headway.pool.local import control
from headway.pool.local.entries import Entry
from headway.pool.local.scratch import has_checkpoint, remove_tree, save_checkpoint
from headway.pool.local.strays import kill_marked
from headway.pool.local.supervisor import Supervisor
from headway.pool.local.used import Used, number, read_record

_SAME_SECOND = 2.0  # the log rounds times down


def recover(supervisor: Supervisor) -> None:
    """Learn from the log where things stand, and bring attempts to an end that nobody runs."""
    queue, folder = supervisor.queue, supervisor.folder
    queue.replay(read_log(folder.events).events)
    queue.submit_missing(f"<127.0.0.1:0?alias={socket.gethostname()}>")
    scratch = folder.path / "scratch"
    if scratch.is_dir():
        kill_marked(scratch)
        sweep()
    for entry in queue.in_status("running"):
        _end_attempt(supervisor, entry, scratch / f"{entry.index}.{entry.starts}")
    for left in scratch.glob("*"):
        remove_tree(left)
    for left in (folder.path / "spool").glob("*"):
        job = queue.get(int(left.name)) if left.name.isdigit() else None
        if job is not None and job.status == "over":
            remove_tree(left)
    control.tidy(folder)


def _end_attempt(supervisor: Supervisor, entry: Entry, scratch: Path) -> None:
    """Over, or to be tried again, if its record says how it ended; else evicted."""
    queue, folder = supervisor.queue, supervisor.folder
    checkpointed = False
    if supervisor.job.checkpoint is not None and has_checkpoint(scratch):
        save_checkpoint(folder, entry.index, scratch, move=True)
        checkpointed = True
    moved = Used()
    stuck = supervisor.bring_home(entry, scratch, moved)
    record = _record_of(supervisor, entry)
    used = Used.recorded(record)
    used.bytes_home, used.scratch_bytes = moved.bytes_home, moved.scratch_bytes
    status = record.get("exit")
    if stuck is not None:
        queue.evicted(entry, used, stuck.reason, held=stuck)
    elif type(status) is int and status not in (Exit.CHECKPOINT, ENDED_BY_POOL):
        if status == Exit.OK:
            supervisor.put_in_place(entry)
        queue.exited(entry, status, used, str(record.get("reason") or ""))
    else:
        reason = "the local pool was killed while this job ran"
        queue.evicted(entry, used, reason, checkpointed=checkpointed)


def _record_of(supervisor: Supervisor, entry: Entry) -> dict[str, Any]:
    """The record of the attempt under way, and of no other of the same job."""
    folder = supervisor.folder
    if entry.attempt:
        return supervisor.record(entry)
    # Its agent could not tell the log who it is. Success is the end of a job, so there is but one.
    for attempt in reversed(folder.attempts(entry.index)):
        record = read_record(attempt)
        began = [number(segment, "begin") for segment in record.get("segments", ())]
        recent = began and began[0] >= entry.since - _SAME_SECOND
        if record.get("exit") == Exit.OK and recent:
            return record
    return {}
