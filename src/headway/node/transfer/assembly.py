"""The assembly: the bytes of one object as they arrive, on disk, accounted for, and proven.

It owns the part file, the ledger, the prover and the journal, and tells readers what is there. The
caller of a method holds the lock of `changed`, except for `write` and the methods for readers.
"""

from __future__ import annotations

import contextlib
import threading
import time

from headway.node.errors import HeadwayError
from headway.node.transfer.journal import EARLIER
from headway.node.transfer.ledger import Ledger, ReadOrder
from headway.node.transfer.prover import Prover
from headway.node.transfer.source import Fault, Identity
from headway.node.transfer.versions import SAMPLE, Versions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headway.node.transfer.journal import Journal, SavedState
    from headway.node.transfer.ledger import Lease, Stretch
    from headway.node.transfer.options import Options
    from headway.node.transfer.part import Part

    Stretches = list[tuple[int, int, int]]

ALL = 1 << 62  # behind the last byte of any object
_EVERY = 2.0  # seconds between two entries of the journal


class Assembly:
    """What is here of one object."""

    def __init__(
        self, part: Part, journal: Journal, options: Options, bad_chunk: Callable[[int, int], None]
    ) -> None:
        """`bad_chunk` is called for each chunk that is not what the manifest says."""
        lock = threading.RLock()
        self.changed = threading.Condition(lock)
        self.part = part
        self._options, self._readers, self._manifest = options, options.readers, options.manifest
        self._journal = journal
        self._order = ReadOrder(room=self._readers.room if self._readers else 0)
        grain = self._manifest.chunk_size if self._manifest is not None else 1
        self.ledger = Ledger(
            options.size, grain=grain, order=self._order if self._readers else None
        )
        self.prover = Prover(
            part,
            self.ledger,
            self.changed,
            lock,
            bad_chunk,
            self._manifest,
            None if self._readers is None else self._readers.proven,
        )
        if options.checksum is not None:
            self.prover.expect(options.checksum)
        self.versions = Versions(provable=options.provable, by_chunk=self._manifest is not None)
        self._recorded = time.monotonic()  # when the journal was last written to
        self._recorder: threading.Thread | None = None
        self.over = False  # nobody may write any more
        self.reserved = False  # the part has its size
        self.length_unsaid = False  # it is known only from where a connection ended
        self.being_read = False
        self._losses = 0  # times that bytes were taken back
        self._furthest = 0  # the most bytes that were here; no others are progress

    # -- from the beginning to the end

    def resume(self, past: SavedState | None) -> None:
        """Resume what an earlier process has left, or start over."""
        with self.changed:
            if past is not None and (past.stretches or self._readers is not None):
                self._take_over(past)
            if self._readers is not None and self.versions.open and self._manifest is None:
                self._readers.lost(0, ALL)  # nothing says which version that was
            self._begin_reading()
        if not self.ledger.bytes:
            self._journal.remove()
            self.part.clear()

    def _take_over(self, past: SavedState) -> None:
        if self._options.size not in (None, past.size):
            return
        stretches = past.stretches
        whole = len(stretches) == 1 and stretches[0][:2] == (0, past.size)
        if whole and not self.versions.provable:
            # complete, but perhaps an old version: fetch its last bytes again
            stretches = [(0, max(0, past.size - SAMPLE), stretches[0][2])]
        self.ledger.size = past.size
        self.ledger.restore(stretches)
        self.versions.take_over(past.identity, past.place)
        for begin, end, _ in stretches:
            self.arrived(begin, end)
        self.prover.wake()

    def record(self, now: float) -> None:
        """Every few seconds, write down what is on disk for sure, in a thread of its own."""
        if self._readers is not None and self._readers.room:
            return  # bytes come and go
        if now - self._recorded < _EVERY or not self.ledger.bytes:
            return
        if self._recorder is None or not self._recorder.is_alive():
            self._recorded = now
            self._recorder = threading.Thread(target=self._sync, name="journal", daemon=True)
            self._recorder.start()

    def _sync(self) -> None:
        with self.changed:
            losses, written = self._losses, self.ledger.written()
        with contextlib.suppress(HeadwayError):
            self.part.sync()
            with self.changed:
                if not self.over and losses == self._losses:
                    self._record(written)

    def _record(self, written: Stretches) -> None:
        about = self._about()
        if about is not None and self._journal.begun:
            self._journal.extend(written)
        elif about is not None:
            self._journal.begin(self.part.file, *about, written)

    def end(self) -> None:
        """Nothing that lanes or servers still say counts any more."""
        self.over = True
        self.ledger.revoke()

    def finish(self) -> None:
        """Give the object its name; no lock is held."""
        assert self.ledger.size is not None
        self.part.finish(self.ledger.size)
        self._journal.remove()

    def settle(self) -> None:
        """Wait until nothing is being written to the journal; no lock is held."""
        if self._recorder is not None:
            self._recorder.join()

    def close(self, *, keep: bool, failed: bool, ended: bool) -> None:
        """Let go of everything; no lock is held.

        `keep`: another process may resume it. `failed`: the node or the engine itself failed.
        `ended`: no lane can touch the part any more.
        """
        # without a journal nobody could resume it
        keep = keep and (not failed or self._journal.begun)
        if keep and not failed:
            with contextlib.suppress(HeadwayError), self.changed:
                written = self.ledger.written()
                self.part.sync()
                self._record(written)
        ended = self.prover.close() and ended
        if keep:
            self._journal.close()
        else:
            self._journal.remove()
        self.part.close(keep=keep, busy=not ended)

    # -- what is known of it

    @property
    def ordered(self) -> bool:
        """Whether the bytes are proven from the first to the last, as a digest of the whole is."""
        return self._manifest is None and self.prover.expects

    @property
    def proof(self) -> str:
        """What has proven it, now that it is whole."""
        if self._manifest is not None:
            return "manifest"
        if self._options.checksum is not None:
            return "checksum"
        if self.prover.expects:
            return "digest"
        return "size" if self._options.size is not None else ""

    def _about(self) -> tuple[Identity, str] | None:
        """The version being downloaded and its source, as the journal records them."""
        pinned = self.versions.pinned
        if pinned is None or self.ledger.size is None:
            return None
        about = Identity(self.ledger.size, pinned.etag, pinned.modified, pinned.digests)
        return about, self.versions.place

    def check_size(self, size: int | None) -> None:
        """Refuse an object that has more bytes than it may have."""
        most = self._options.most
        if most is not None and size is not None and size > most:
            raise Fault(f"it is too large: more than {most} bytes", settled=True, phase="body")

    def learn_size(self, size: int | None) -> None:
        if self.ledger.size is None and size is not None:
            self.ledger.learn_size(size)

    def ended_at(self, end: int, *, unsaid: bool) -> None:
        """A connection ended, so this is the object's length; `unsaid`: unless it was cut off."""
        if self.ledger.size is None:
            self.ledger.size, self.length_unsaid = end, unsaid

    def lengthen(self, size: int) -> None:
        """The object is longer than it seemed; what is here is its beginning."""
        self.ledger.size, self.reserved, self.length_unsaid = size, False, False

    # -- bytes come in

    def reserve(self) -> None:
        """Give the part its size as soon as that is known, and let readers begin."""
        if self.reserved or self.ledger.size is None:
            return
        self.reserved = True
        self.part.reserve(self.ledger.size, self._readers.room if self._readers else 0)
        self._begin_reading()
        about = self._about()
        # the journal knows the version before readers see any of its bytes
        if self.being_read and self._manifest is None and about and not self.ledger.bytes:
            self._journal.begin(self.part.file, *about, [])

    def write(self, lease: Lease, piece: memoryview) -> list[Stretch]:
        """Write those bytes that no other lane has brought; returns which. It takes the lock."""
        with self.changed:
            at = lease.at
            self.check_size(at + len(piece))
            stretches = [] if self.over else self.ledger.claim(lease, len(piece))
        try:
            for begin, end in stretches:
                self.part.write(piece[begin - at : end - at], begin)
        finally:
            with self.changed:
                self.ledger.wrote(lease)
        return stretches

    def arrived(self, begin: int, end: int) -> None:
        """Bytes are on disk; without a manifest, readers may use them at once."""
        self.prover.arrived(begin, end)
        size = self.ledger.size
        if self._readers is None or self._manifest is not None or size is None:
            return
        if not self.being_read:
            return
        unit = self._readers.unit
        for first in range(begin // unit * unit, end, unit):
            if self.ledger.on_disk(first, min(first + unit, size)):
                self._readers.proven(first, min(first + unit, size))

    def note_progress(self) -> bool:
        """Note how many bytes are here; returns whether they are more than ever before."""
        fresh = self.ledger.bytes > self._furthest
        self._furthest = max(self._furthest, self.ledger.bytes)
        return fresh

    def expect(self, digest: str) -> None:
        """A server has told a digest of the object, and none was declared."""
        if not self.prover.expects:
            self.prover.expect(digest)
            self.prover.wake()

    # -- bytes are taken back

    def restart(self) -> None:
        """The object has changed: nothing that is here counts any more."""
        if self._readers is not None and self.ledger.size is not None:
            self._readers.lost(0, self.ledger.size)
        self._losses += 1
        self.ledger.forget_all()
        self._lower()
        self.ledger.size = self._options.size
        self.versions.reset()
        self.length_unsaid = self.reserved = False
        if self._options.checksum is None:
            self.prover.expect(None)  # a server's digest was that of the other version
        self.prover.forgotten(0, ALL)
        self._journal.remove()

    def forget(self, begin: int, end: int, *, blame: bool = False) -> set[int]:
        """Take bytes back; returns their sources, which `blame` does not ask for them again."""
        self._losses += 1
        if self._readers is not None and self.ledger.size is not None:
            self._readers.lost(begin, min(end, self.ledger.size))
        blamed = self.ledger.forget(begin, end, blame=blame)
        self.prover.forgotten(begin, end)
        self._journal.forget(self.ledger.written())
        self._lower()
        return blamed

    def forget_all(self) -> None:
        """Take all bytes back, and the length with them: it may be wrong too."""
        self.forget(0, ALL)
        self.ledger.size, self.reserved = self._options.size, False

    def take_back(self, begin: int, end: int) -> None:
        """A server says that its answer was wrong, which may happen any number of times."""
        furthest = self._furthest
        self.forget(begin, end)
        self._furthest = furthest

    def _lower(self) -> None:
        """Bytes were given up on purpose: to bring them again is progress."""
        self._furthest = min(self._furthest, self.ledger.bytes)

    # -- for readers, who hold no lock

    def look(self) -> None:
        """Let readers say what they want, once they know the size of the object."""
        if self._readers is not None and self.being_read:
            self._readers.look(self)

    def turn(self, order: Sequence[Stretch], passed: int = 0) -> None:
        """Bring the object in this order; what comes before `passed` was read already."""
        with self.changed:
            self._order.turn(order, passed)
            self.prover.prefer(order[passed:])
            self.changed.notify_all()

    def wish(self, stretches: list[Stretch]) -> None:
        """Fetch these first: somebody waits for them."""
        with self.changed:
            if self._order.wishes != stretches:
                self._order.wishes = stretches
                self.prover.prefer(stretches)
                self.changed.notify_all()

    def passed(self, count: int) -> None:
        """The first stretches of the order were read."""
        with self.changed:
            self._order.passed(count)

    def give_back(self, begin: int, end: int) -> None:
        """What was read leaves the disk, and may be wanted again later."""
        with self.changed:
            if self._readers is not None and not self.over:
                self._readers.lost(begin, end)
                self.ledger.forget(begin, end, blame=False)
                self.prover.forgotten(begin, end)
                self._lower()
                self.part.punch(begin, end)
                self.changed.notify_all()

    # -- about readers, with the lock held

    def _begin_reading(self) -> None:
        """Let readers know how long the object is, as soon as that is known."""
        if self._readers is None or self.ledger.size is None or self.being_read:
            return
        self.being_read = True
        for first, end in self._readers.begins(self.ledger.size):
            self.ledger.restore([(first, end, EARLIER)])
            self.prover.known(first, end)
        for first, end, _ in self.ledger.written():
            self.arrived(first, end)

    @property
    def paused(self) -> bool:
        """Whether nothing is to be fetched just now, although there is more."""
        if not self._order.room or self.ledger.leases():
            return False
        return self._order.next(self.ledger, EARLIER, 1) is None

    @property
    def full(self) -> bool:
        """Whether readers have to make room before more can come."""
        return self._order.full(self.ledger)
