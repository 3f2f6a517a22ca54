"""The attempt: its name, its secret, its folder, and what it hands from one segment to the next.

When the agent exits with a checkpoint, HTCondor saves the checkpoint and starts the same agent in
the same folder again: the same attempt goes on with its next segment. A note in the scratch folder
says so. It is read and deleted before the command starts, which must never see the nonce.
"""

from __future__ import annotations

import contextlib
import json
import os
import time

from headway.node.plan import OUT, SECRETS

NOTE = ".headway-attempt.json"


class Attempt:
    """One try of a job on one slot; a later segment of it continues an earlier one."""

    def __init__(self, note: dict[str, object] | None = None) -> None:
        carried = note or {}
        self.id = str(carried.get("attempt") or _new_id())
        self.nonce = str(carried.get("nonce") or os.urandom(8).hex())
        number = carried.get("segment")
        self.segment = number + 1 if isinstance(number, int) else 1
        used = carried.get("used")
        # seconds of run that count towards the time limit
        self.used = float(used) if isinstance(used, (int, float)) else 0.0
        self.segments = _dicts(carried.get("segments"))
        self.phases = _dicts(carried.get("phases"))
        self.inputs = _dicts(carried.get("inputs"))
        proven = carried.get("proven")
        # input path -> [size, mtime_ns, inode] when it was last proven
        self.proven: dict[str, object] = proven if isinstance(proven, dict) else {}
        #: What the job took from the shell of whoever submitted it: kept in memory alone.
        self.secrets: dict[str, str] = {}
        self.folder = f"{OUT}/attempts/{self.id}"

    def leave_note(self) -> None:
        """Hand over to the next segment; the last act before exiting with a checkpoint."""
        names = ("nonce", "segment", "used", "segments", "phases", "inputs", "proven")
        note = {"attempt": self.id, **{name: getattr(self, name) for name in names}}
        if self.secrets:  # the pool brings no input again for the next segment
            write_json(SECRETS, self.secrets)
        write_json(NOTE, note)


def begin_attempt() -> Attempt:
    """The attempt that goes on here, or a new one."""
    try:
        with open(NOTE, encoding="utf-8") as file:
            note = json.load(file)
    except (OSError, ValueError, RecursionError):
        note = None
    with contextlib.suppress(OSError):
        os.unlink(NOTE)
    return Attempt(note if _sound(note) else None)


def write_json(path: str, data: object) -> None:
    """Write to a temporary name, then put in place; only the owner may read it."""
    temporary = f"{path}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        json.dump(data, file, indent=1, ensure_ascii=True)
        file.write("\n")
    os.replace(temporary, path)


def _new_id() -> str:
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.urandom(3).hex()}"


def _sound(note: object) -> bool:
    """Whether the note can be the agent's own: the command may have written there as well."""
    if not isinstance(note, dict):
        return False
    name, nonce = note.get("attempt"), note.get("nonce")
    number = note.get("segment")
    return (
        isinstance(name, str)
        and len(name) == 23
        and not set(name) - set("0123456789abcdefTZ-")
        and isinstance(nonce, str)
        and len(nonce) == 16
        and not set(nonce) - set("0123456789abcdef")
        and isinstance(number, int)
        and 0 < number < 1_000_000
    )


def _dicts(values: object) -> list[dict[str, object]]:
    return [v for v in values if isinstance(v, dict)] if isinstance(values, list) else []
