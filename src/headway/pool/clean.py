"""Cleaning: which runs can go, what that would lose, and their removal.

Only a run that has ended can go. A result that is nowhere else than in the run folder is the user's
own: it goes only where that is asked for.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from headway.errors import HeadwayError, RunError
from headway.pool.folder import RunFolder, Runs, write_atomically
from headway.pool.local.scratch import remove_tree
from headway.pool.package import drop_unused
from headway.pool.results import Seen, read_kept
from headway.text import many

_GONE = ".gone-"
Look = Callable[[RunFolder], Seen]


@dataclass(frozen=True)
class Candidate:
    """A run, and whether it can go; `why` says what keeps it, or how it ended up here."""

    folder: RunFolder
    goes: bool
    why: str
    ended: float | None = None
    bytes: int = 0  # what its removal frees
    outputs: int = 0  # files of results that are in the run folder
    output_bytes: int = 0
    removed: bool = False

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        facts = asdict(replace(self, folder=None))  # type: ignore[arg-type]
        del facts["folder"]
        return {"run": self.folder.label, **facts, "path": str(self.folder.path)}


def candidates(
    runs: Runs,
    look: Look,
    *,
    chosen: Sequence[str] | None = None,
    older: float | None = None,
    keep: int | None = None,
    outputs: bool = False,
    now: float | None = None,
) -> list[Candidate]:
    """What would become of each run that is asked about, oldest first.

    Args:
        runs: where to look.
        look: reads the state of a run's jobs.
        chosen: the labels of the runs that are meant; None: all.
        older: seconds since a run ended, at the least, for it to go.
        keep: how many of the newest runs of each name stay.
        outputs: whether runs go that have results in them.
        now: the time, for tests.
    """
    now = time.time() if now is None else now
    every = list(runs)
    newest = _newest(every, keep or 0)
    users = _users(every)
    found = []
    for folder in every:
        if chosen is not None and folder.label not in chosen:
            continue
        one = _measured(folder)
        ended, why = _ended(folder, look)
        one = replace(one, ended=ended)
        if ended is not None and older is not None and now - ended < older:
            why = "ended later than that"
        elif ended is not None and folder.label in newest:
            why = f"is one of the newest {keep}" if keep != 1 else "is the newest of its name"
        elif ended is not None and one.outputs and not outputs:
            why = f"the only copy of {many(one.outputs, 'output')} is in it; see --outputs"
        if not why and one.outputs:
            counts = sorted(users.get(folder.label, set()))
            why = (
                f"with its outputs, which {counts[-1]} counts on" if counts else "with its outputs"
            )
            found.append(replace(one, goes=True, why=why))
        else:
            found.append(replace(one, goes=not why, why=why))
    return found


def remove(runs: Runs, one: Candidate, look: Look) -> Candidate:
    """Remove a run: under its name it is whole until it is gone, also if this is killed.

    Raises:
        RunError: it has been taken up again, or cannot be removed.
    """
    folder = one.folder
    folder.check_own()
    local = folder.facts.pool.get("kind") == "local"
    # whoever would run its jobs, or submit them, needs this lock
    with folder.locked("supervisor" if local else "submit"):
        _, why = _ended(folder, look, locked=True)
        if why:
            raise RunError(f"{folder.label} stays: {why}", remedy="wait until its jobs are over")
        try:
            _remember_number(runs, folder)
            gone = runs.folder / f"{_GONE}{uuid.uuid4().hex}"
            folder.path.rename(gone)
        except OSError as error:
            raise RunError(
                f"{folder.label} cannot be removed: {error.strerror}",
                remedy=f"you need to write to {runs.folder}",
            ) from error
    remove_tree(gone)
    return replace(one, removed=True)


def sweep(runs: Runs, *, act: bool) -> int:
    """Remove what no run needs: unused programs, and what a removal that was cut off has left."""
    if act:
        runs.check_own()
    freed = drop_unused(runs.root / "node", act=act)
    for gone in runs.folder.glob(f"{_GONE}*") if runs.folder.is_dir() else ():
        if not gone.is_symlink():
            freed += _tree(gone)[0]
            if act:
                remove_tree(gone)
    return freed


def _ended(folder: RunFolder, look: Look, *, locked: bool = False) -> tuple[float | None, str]:
    """When a run ended; or why it cannot be said to have."""
    try:
        if folder.path.is_symlink():
            return None, "is not a folder of its own"
        folder.check_own()
        facts, size = folder.facts, folder.job.size
        states = look(folder).states
    except (HeadwayError, OSError) as error:
        said = error.message if isinstance(error, HeadwayError) else str(error)
        return None, f"left alone: {said}"
    if not locked:
        with contextlib.suppress(HeadwayError):
            if folder.is_locked("supervisor") or folder.is_locked("submit"):
                return None, "is being worked on"
    if facts.cluster is None and not states:
        if folder.submit_file.exists():
            return None, f"may be in the queue: `headway run --resume {folder.label}` finds out"
        return float(facts.created), ""  # nothing of it ever ran
    alive = size - sum(state.terminal for state in states.values())
    if alive > 0:
        return None, f"{many(alive, 'job')} {'is' if alive == 1 else 'are'} not over"
    return max((state.ended or facts.created for state in states.values()), default=0.0), ""


def _measured(folder: RunFolder) -> Candidate:
    every, _ = _tree(folder.path)
    size = files = 0
    places = [*folder.jobs.glob("*/outputs"), *folder.jobs.glob("*/attempts/*/outputs")]
    for place in places:
        bytes_, count = _tree(place)
        size, files = size + bytes_, files + count
    return Candidate(folder, False, "", None, every, files, size)


def _tree(path: Path) -> tuple[int, int]:
    """The bytes that go with a folder, and how many files; a file with another name stays."""
    size = count = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                found = os.lstat(os.path.join(folder, name))
                size += found.st_size if found.st_nlink == 1 else 0
                count += 1
    return size, count


def _newest(every: Iterable[RunFolder], keep: int) -> set[str]:
    by_name: dict[str, list[str]] = {}
    for folder in every:
        by_name.setdefault(folder.facts.name, []).append(folder.label)
    return {label for labels in by_name.values() for label in labels[-keep:] if keep}


def _users(every: Iterable[RunFolder]) -> dict[str, set[str]]:
    """Of each run, the runs that were spared a job because of its results."""
    users: dict[str, set[str]] = {}
    for folder in every:
        with contextlib.suppress(HeadwayError):
            for each in read_kept(folder):
                users.setdefault(each.run, set()).add(folder.label)
    return users


def _remember_number(runs: Runs, folder: RunFolder) -> None:
    """See to it that no other run gets the label of one that is gone."""
    stem, _, number = folder.label.rpartition("-")
    last = runs.last_number(stem)
    if int(number) > last:
        write_atomically(runs.folder / f".last-{stem}", f"{int(number)}\n".encode())
