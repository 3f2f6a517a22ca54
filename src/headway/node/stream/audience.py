"""The audience: those who read an object while it arrives, as the transfer engine knows them.

It tells readers by `PATH.arrival` what is there, and the engine by what they wait for and by
`PATH.wanted` what to bring next. Where the object has but a window of the disk, it also gives back
what was read.
"""

from __future__ import annotations

import os
import time

from headway.node.errors import HeadwayError, TransferError
from headway.node.stream.arrival import SUFFIX as ARRIVAL
from headway.node.stream.arrival import Arrival
from headway.node.stream.wanted import SUFFIX as WANTED
from headway.node.stream.wanted import told
from headway.node.transfer import reading
from headway.node.transfer.part import SUFFIX as PART

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from headway.node.transfer.job import Job
    from headway.node.transfer.manifest import Manifest

    Stretch = tuple[int, int]

UNIT = 1 << 20  # bytes that are told of together where no manifest says more
LEAST_WINDOW = 16  # chunks
_EVERY = 0.05  # seconds between two looks
_SPARE = 4  # chunks of a window that are left for those who wait


class Audience:
    """The readers of one object."""

    def __init__(
        self, path: str, manifest: Manifest | None, *, window: int = 0, again: bool = False
    ) -> None:
        """`again`: another fetcher has been killed, and this one goes on with its work."""
        self.path, self._manifest, self._again = path, manifest, again
        self.unit = manifest.chunk_size if manifest is not None else UNIT
        self.room = 0 if manifest is None or window >= manifest.size else window
        if self.room and self.room < LEAST_WINDOW * self.unit:
            raise TransferError(
                f"{os.path.basename(path)}: a window of {window} bytes is too small: its chunks"
                f" have {self.unit} bytes, and {LEAST_WINDOW} of them must fit",
                retryable=False,
                remedy=f"window = {LEAST_WINDOW * self.unit} or more, or publish smaller chunks",
            )
        self.arrival: Arrival | None = None
        self.default: list[Stretch] = []  # the order to begin with; set by another thread
        self._error: TransferError | None = None
        self._looked = 0.0
        self._wanted = -1  # PATH.wanted as last seen; kept open, so that its number stays its own
        self._changed = 0
        self._order: list[Stretch] = []
        self._done = 0
        self._told = False

    def begins(self, size: int) -> Sequence[Stretch]:
        name = f"{self.path}{ARRIVAL}"
        if self._again:
            self.arrival = Arrival.go_on(name, size, self.unit, room=self.room)
            length = os.path.getsize(f"{self.path}{PART}")
            marked = self.arrival.marked()
            if all(end <= length for _, end in marked):
                return marked
            self.arrival.unmark(0, size)  # somebody has cut the part
            return []
        self.arrival = Arrival.begin(name, size, self.unit, room=self.room)
        return []

    def finish(self, size: int) -> None:
        """The whole object is there under its own name."""
        if self.arrival is None:
            self.arrival = Arrival.go_on(f"{self.path}{ARRIVAL}", size, self.unit, room=self.room)
        self.arrival.finish()

    def proven(self, begin: int, end: int) -> None:
        if self.arrival is not None and self._error is None:
            self.arrival.mark(begin, end)

    def lost(self, begin: int, end: int) -> None:
        if self.arrival is None:
            if self._again:
                self._lose_earlier()
            return
        if self._manifest is None and any(a < end and b > begin for a, b in self.arrival.marked()):
            self._error = TransferError(
                f"{os.path.basename(self.path)} changed at its source, or was wrong, while it was"
                " being read",
                retryable=True,
                remedy="a `manifest` proves every chunk before it is read",
            )
            self.arrival.fail(self._error.message, retryable=True)
        self.arrival.unmark(begin, end)

    def _lose_earlier(self) -> None:
        """What a fetcher that was killed has told readers of does not count."""
        try:
            earlier = Arrival.follow(f"{self.path}{ARRIVAL}")
        except (OSError, TransferError, ValueError):
            return  # it has told nobody of anything
        with earlier:
            earlier.unmark(0, earlier.size)

    def look(self, job: Job) -> None:
        """Tell the engine what is wanted, and give back what is not."""
        if self._error is not None:
            raise self._error
        now = time.monotonic()
        if self.arrival is None or now - self._looked < _EVERY:
            return
        self._looked = now
        wished = [self._stretch(number) for number in self.arrival.wishes()]
        reading.wish(job, wished)
        self._hear(job, wished)
        if self.default and not self._told:
            self._told = True
            reading.turn(job, self.default)
        if self.room:
            self._make_room_for(job, wished)

    def _hear(self, job: Job, wished: list[Stretch]) -> None:
        """Whether a reader has told another order, or how far it is."""
        assert self.arrival is not None
        try:
            about = os.stat(f"{self.path}{WANTED}")
            same = self._wanted >= 0 and os.path.samestat(about, os.fstat(self._wanted))
            if same and (not self.room or about.st_mtime_ns == self._changed):
                return
            if not same:
                fresh = os.open(f"{self.path}{WANTED}", os.O_RDONLY | os.O_CLOEXEC)
                if self._wanted >= 0:
                    os.close(self._wanted)
                self._wanted = fresh
        except OSError:
            return
        self._changed = about.st_mtime_ns
        found = told(self.path, self.unit, self.arrival.chunks)
        if found is None:
            return
        if same:
            self._pass(job, found.done)
            return
        self._told = True
        self._order, self._done = [self._stretch(each) for each in found.chunks], found.done
        reading.turn(job, self._order, self._done)
        self._make_room(job, wished)

    def _stretch(self, number: int) -> Stretch:
        assert self.arrival is not None
        return number * self.unit, min((number + 1) * self.unit, self.arrival.size)

    # -- a window on the object

    def _pass(self, job: Job, done: int) -> None:
        """Give back what the readers have passed."""
        done = max(self._done, min(done, len(self._order)))
        reading.passed(job, done)  # first, or it would be fetched again at once
        soon = set(self._soon(done))  # the edge of a block may be wanted again with its neighbour
        for stretch in self._order[self._done : done]:
            if stretch not in soon:
                self._give_back(job, *stretch)
        self._done = done

    def _soon(self, done: int) -> list[Stretch]:
        return self._order[done : done + self.room // self.unit - _SPARE]

    def _make_room(self, job: Job, wished: list[Stretch]) -> None:
        """Another epoch has begun: only what it needs soon stays."""
        if not self.room:
            return
        soon = {*self._soon(self._done), *wished}
        for stretch in self._here():
            if stretch not in soon:
                self._give_back(job, *stretch)

    def _make_room_for(self, job: Job, wished: list[Stretch]) -> None:
        """Somebody waits, and there is no room: what will be read last goes first."""
        assert self.arrival is not None
        missing = [each for each in wished if not self.arrival.has(*each)]
        here = self._here() if missing else []
        over = (len(here) + len(missing)) * self.unit - self.room
        if over <= 0:
            return
        left = self._order[self._done :]
        places = {stretch: -place for place, stretch in enumerate(reversed(left), 1)}  # its first
        here.sort(key=lambda each: places.get(each, 0), reverse=True)
        for stretch in [each for each in here if each not in wished][: -(-over // self.unit)]:
            self._give_back(job, *stretch)

    def _here(self) -> list[Stretch]:
        assert self.arrival is not None
        spans = ((a // self.unit, -(-b // self.unit)) for a, b in self.arrival.marked())
        return [self._stretch(number) for a, b in spans for number in range(a, b)]

    def _give_back(self, job: Job, begin: int, end: int) -> None:
        assert self.arrival is not None
        if self.arrival.has(begin, end):
            reading.give_back(job, begin, end)


def default_order(path: str) -> list[Stretch]:
    """In which order a reader with no wishes of its own will read; empty: that of the file."""
    from headway.node.stream.samples import Choice
    from headway.node.stream.source import Source

    try:
        source = Source(path, Choice())
        if not source.indexed:
            return []
        return list(source.order(seed=0, epoch=0).stretches())
    except (HeadwayError, OSError):
        return []  # not a tar file
