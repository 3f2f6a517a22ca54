"""The keeper: writes down now and then what is on disk for sure, so that another can go on."""

from __future__ import annotations

import contextlib
import threading
import time

from headway.node.errors import HeadwayError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.node.transfer.job import Job
    from headway.node.transfer.journal import Journal
    from headway.node.transfer.part import Part

_EVERY = 2.0


class Keeper:
    """Syncs the part beside the transfer, then has the journal tell of it."""

    def __init__(self, job: Job, part: Part, journal: Journal) -> None:
        self._job, self._part, self._journal = job, part, journal
        self._last = time.monotonic()
        self._thread: threading.Thread | None = None

    def keep(self, now: float) -> None:
        """Begin with it if it is time, the job's lock being held."""
        if now - self._last < _EVERY or not self._job.ledger.bytes:
            return
        if self._thread is not None and self._thread.is_alive():
            return
        self._last = now
        self._thread = threading.Thread(target=self._sync, name="journal", daemon=True)
        self._thread.start()

    def write(self) -> None:
        """Once more at the end, the job's lock being held."""
        written = self._job.ledger.written()
        self._part.sync()
        self._write(written)

    def join(self) -> None:
        """Until nothing is being written any more."""
        if self._thread is not None:
            self._thread.join()

    def _sync(self) -> None:
        job = self._job
        with job.changed:
            before, written = (job.restarts, job.losses), job.ledger.written()
        with contextlib.suppress(HeadwayError):
            self._part.sync()
            with job.changed:
                if before == (job.restarts, job.losses) and not job.over:
                    self._write(written)

    def _write(self, written: list[tuple[int, int, int]]) -> None:
        about = self._job.identity_for_journal()
        if about is None:
            return
        if not self._journal.begun:
            self._journal.begin(self._part.file, about[0].size or 0, *about, written)
        else:
            self._journal.extend(written)
