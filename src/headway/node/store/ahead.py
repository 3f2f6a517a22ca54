"""Marks in the store: which runs compute on this node, and for which waiting jobs it has inputs.

    STORE/u1000/active/RUN-JOB/   an agent computes this job here, and holds a lock on the mark
    STORE/u1000/coming/RUN-JOB/   an agent is bringing the inputs of this waiting job, likewise
    STORE/u1000/ahead/RUN-JOB/    they are here, and the job has not come yet

RUN is the beginning of a run's id. The inputs of one more job are worth bringing while more jobs of
its run compute here than have inputs waiting. A mark whose agent was killed is not locked, and does
not count.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections import Counter

from headway.node.store.folder import hold, listed, own_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.node.store.folder import Held, Store

LONGEST = 3600.0  # seconds after which nobody counts on a job to come for its inputs
_MOST = 64  # jobs of one user that are asked for at the same time
_DIGITS = 8  # of a run's id
_MARK = re.compile(r"([0-9a-f]{8})-[0-9]{1,9}")
_TRIES, _PAUSE = 40, 0.05


def mark(run: str, job: str) -> str:
    """The name of a job's mark."""
    return f"{run[:_DIGITS]}-{job}"


class Ahead:
    """The marks of one user; OSError if they cannot be made."""

    def __init__(self, store: Store) -> None:
        kinds = ("active", "coming", "ahead")
        self._active, self._coming, self._ahead = (os.path.join(store.home, k) for k in kinds)
        for folder in (self._active, self._coming, self._ahead):
            own_folder(folder)

    def compute(self, name: str) -> Held | None:
        """Note that a job computes here for as long as the lock is held."""
        return _made(os.path.join(self._active, name))

    def arrive(self, name: str) -> None:
        """Note that a job is here, and that no inputs wait for it any more."""
        with contextlib.suppress(OSError):
            os.rmdir(os.path.join(self._ahead, name))

    def begin(self, name: str) -> Held | None:
        """Lock a mark that inputs are coming; None: there are enough without them."""
        gate = _locked(self._coming)  # of two that come for the same place, one gets it
        if gate is None:
            return None
        try:
            if name.partition("-")[0] not in self.wanted():
                return None
            return _made(os.path.join(self._coming, name))
        finally:
            gate.release()

    def finish(self, name: str, *, here: bool) -> None:
        """The mark's end, while it is locked; `here`: the inputs have come."""
        mine = os.path.join(self._coming, name)
        with contextlib.suppress(OSError):
            if here:
                os.utime(mine)
                os.rename(mine, os.path.join(self._ahead, name))
            else:
                os.rmdir(mine)

    def wanted(self) -> list[str]:
        """The runs that compute here, each as often as inputs for it are to be brought."""
        active, coming = (_runs(each) for each in (self._active, self._coming))
        ahead = _runs(self._ahead, younger=LONGEST)
        return sorted((active - coming - ahead).elements())[:_MOST]

    def sweep(self, now: float) -> None:
        """Remove the marks of agents that were killed, and of jobs that have not come."""
        for folder in (self._active, self._coming, self._ahead):
            for each in listed(folder):
                with contextlib.suppress(OSError):
                    old = abs(now - os.lstat(each).st_mtime) > LONGEST
                    held = hold(each) if folder != self._ahead or old else None
                    if held is not None:
                        os.rmdir(each)
                        held.release()


def _runs(folder: str, younger: float | None = None) -> Counter[str]:
    """How many marks each run has: those that are locked, or else those that are new enough."""
    found: Counter[str] = Counter()
    for each in listed(folder):
        match = _MARK.fullmatch(os.path.basename(each))
        if match is None:
            continue
        with contextlib.suppress(OSError):
            if younger is not None:
                found[match[1]] += abs(time.time() - os.lstat(each).st_mtime) < younger
            elif (held := hold(each, shared=True)) is None:
                found[match[1]] += 1
            else:
                held.release()
    return found


def _made(folder: str) -> Held | None:
    """Make and lock a mark; the sweeper may remove it, or look at its lock, just now."""
    for _ in range(_TRIES):
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        held = hold(folder)
        if held is not None:
            return held
        time.sleep(_PAUSE)
    return None


def _locked(folder: str) -> Held | None:
    for _ in range(_TRIES):
        held = hold(folder)
        if held is not None:
            return held
        time.sleep(_PAUSE)
    return None
