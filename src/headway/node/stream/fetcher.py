"""The fetcher: downloads one object while the command reads it, in a process of its own.

    headway-node.pyz fetcher

Its task is one line of JSON on standard input, which then stays open: its end asks the fetcher to
stop, also when the agent was killed. On standard output it writes lines of JSON for the agent: that
it has begun, its progress, and how it ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import threading
import time
from typing import NamedTuple

from headway.node.errors import (
    Exit,
    HeadwayError,
    NodeError,
    Stopped,
    TransferError,
    code_of,
    is_bug,
    words_of,
)
from headway.node.stream.arrival import ARRIVAL_SUFFIX as ARRIVAL
from headway.node.stream.arrival import WANTED_SUFFIX as WANTED
from headway.node.stream.arrival import Arrival, read_wanted
from headway.node.transfer.fetch import fetch
from headway.node.transfer.manifest import SUFFIX as MANIFEST
from headway.node.transfer.manifest import open_manifest
from headway.node.transfer.options import PATIENCE
from headway.node.transfer.part import SUFFIX as PART
from headway.node.transfer.part import can_punch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from headway.node.transfer.manifest import Manifest
    from headway.node.transfer.options import ReadControl, Snapshot

    Stretch = tuple[int, int]


UNIT = 1 << 20  # bytes that are marked together where there is no manifest
LEAST_WINDOW = 16  # chunks
_EVERY = 0.05  # seconds between two looks
_SPARE = 4  # chunks of a window that are left for readers that wait


class Task(NamedTuple):
    """What to fetch, and how; the agent sends it to the fetcher."""

    path: str
    urls: list[str]
    size: int | None = None
    checksum: str | None = None
    manifest: str | None = None
    patience: float = PATIENCE
    window: int = 0
    again: bool = False  # a fetcher before this one was killed


def changed_at_source(name: str) -> TransferError:
    """The error for an object whose bytes turned out to be wrong after readers had them."""
    return TransferError(
        f"{name} changed at its source, or was wrong, while it was being read",
        retryable=True,
        remedy="a `manifest` verifies every chunk before it is read",
    )


class Readers:
    """The readers of an object while it arrives, as the transfer engine sees them.

    It tells the readers by `PATH.arrival` what is there, and the engine what to fetch next: what
    readers wait for, then the order in `PATH.wanted`. If the object may take only a window of the
    disk, it also gives back what was read.
    """

    def __init__(
        self, path: str, manifest: Manifest | None, *, window: int = 0, again: bool = False
    ) -> None:
        """`again`: another fetcher was killed, and this one continues its work."""
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
        self.default: list[Stretch] = []  # the order to start with; set by another thread
        self._error: TransferError | None = None
        self._looked = 0.0
        self._wanted = -1  # PATH.wanted as last seen; kept open, so that its inode is not reused
        self._changed = 0
        self._order: list[Stretch] = []
        self._done = 0
        self._has_order = False

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
        """The complete object is there under its own name."""
        if self.arrival is None:
            self.arrival = Arrival.go_on(f"{self.path}{ARRIVAL}", size, self.unit, room=self.room)
        self.arrival.finish()

    def proven(self, begin: int, end: int) -> None:
        if self.arrival is not None and self._error is None:
            self.arrival.mark(begin, end)

    def lost(self, begin: int, end: int) -> None:
        if self.arrival is None:
            if self._again:
                self._forget_earlier()
            return
        if self._manifest is None and any(a < end and b > begin for a, b in self.arrival.marked()):
            self._error = changed_at_source(os.path.basename(self.path))
            self.arrival.fail(self._error.message, retryable=True)
        self.arrival.unmark(begin, end)

    def _forget_earlier(self) -> None:
        """Unmark everything that a fetcher before this one, which was killed, has marked."""
        none = contextlib.suppress(OSError, TransferError, ValueError)
        with none, Arrival.follow(f"{self.path}{ARRIVAL}") as earlier:
            earlier.unmark(0, earlier.size)

    def look(self, control: ReadControl) -> None:
        """Tell the engine what to fetch next, and give back what is not needed."""
        if self._error is not None:
            raise self._error
        now = time.monotonic()
        if self.arrival is None or now - self._looked < _EVERY:
            return
        self._looked = now
        wished = [self._stretch(number) for number in self.arrival.wishes()]
        control.wish(wished)
        self._hear(control, wished)
        if self.default and not self._has_order:
            self._has_order = True
            control.turn(self.default)
        if self.room:
            self._make_room_for(control, wished)

    def _hear(self, control: ReadControl, wished: list[Stretch]) -> None:
        """Take over what a reader has written to `PATH.wanted`: a new order, or how far it is."""
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
        found = read_wanted(self.path, self.unit, self.arrival.chunks)
        if found is None:
            return
        if same:
            self._pass(control, found.done)
            return
        self._has_order = True
        self._order, self._done = [self._stretch(each) for each in found.chunks], found.done
        control.turn(self._order, self._done)
        self._make_room(control, wished)

    def _stretch(self, number: int) -> Stretch:
        assert self.arrival is not None
        return number * self.unit, min((number + 1) * self.unit, self.arrival.size)

    def _pass(self, control: ReadControl, done: int) -> None:
        """Give back what the readers are done with."""
        done = max(self._done, min(done, len(self._order)))
        control.passed(done)  # first, or it would be fetched again at once
        soon = set(self._soon(done))  # the edge of a block may be wanted again with its neighbour
        for stretch in self._order[self._done : done]:
            if stretch not in soon:
                self._give_back(control, *stretch)
        self._done = done

    def _soon(self, done: int) -> list[Stretch]:
        return self._order[done : done + self.room // self.unit - _SPARE]

    def _make_room(self, control: ReadControl, wished: list[Stretch]) -> None:
        """At the start of another epoch, give back all that it does not need soon."""
        if not self.room:
            return
        soon = {*self._soon(self._done), *wished}
        for stretch in self._here():
            if stretch not in soon:
                self._give_back(control, *stretch)

    def _make_room_for(self, control: ReadControl, wished: list[Stretch]) -> None:
        """If a reader waits and there is no room, give back what will be read last."""
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
            self._give_back(control, *stretch)

    def _here(self) -> list[Stretch]:
        assert self.arrival is not None
        spans = ((a // self.unit, -(-b // self.unit)) for a, b in self.arrival.marked())
        return [self._stretch(number) for a, b in spans for number in range(a, b)]

    def _give_back(self, control: ReadControl, begin: int, end: int) -> None:
        assert self.arrival is not None
        if self.arrival.has(begin, end):
            control.give_back(begin, end)


def default_order(path: str) -> list[Stretch]:
    """The order in which a reader reads by default; empty: the order of the file."""
    from headway.node.stream.samples import Choice
    from headway.node.stream.source import SampleSource

    try:
        source = SampleSource(path, Choice())
        if not source.indexed:
            return []
        return list(source.order(seed=0, epoch=0).stretches())
    except (HeadwayError, OSError):
        return []  # not a tar file


def run_fetcher() -> int:
    """Fetch one object, or stop at the end of standard input; returns the exit code."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    try:
        task = Task(**json.loads(sys.stdin.buffer.readline()))
    except (ValueError, TypeError):
        sys.stderr.write("headway: the fetcher is started by the agent\n")
        return int(Exit.AGENT_ERROR)
    return _Fetcher(task).run()


class _Fetcher:
    def __init__(self, task: Task) -> None:
        self._task = task
        self._readers: Readers | None = None
        self._begin = time.monotonic()
        self._begun = False
        self._last: Snapshot | None = None

    def run(self) -> int:
        try:
            return self._run()
        except Stopped:
            self._tell("stopped")
            return 0
        except Exception as error:
            if is_bug(error):
                import traceback

                traceback.print_exc()
            code, words = code_of(error), words_of(error)
            arrival = self._readers.arrival if self._readers is not None else None
            if arrival is not None:
                arrival.fail(words, retryable=code != Exit.INPUT_FAILED)
            self._tell("failed", error=words, remedy=getattr(error, "remedy", ""), code=code)
            return code

    def _run(self) -> int:
        task = self._task
        manifest = None
        if task.manifest is not None:
            manifest = open_manifest(f"{task.path}{MANIFEST}", pin=task.manifest)
        windowed = manifest is not None and 0 < task.window < manifest.size
        if windowed and not can_punch(os.path.dirname(task.path) or os.curdir):
            raise NodeError(
                "this node's file system cannot free parts of a file, as keep = false needs",
                remedy="another node may work; keep = true needs disk for the whole object",
            )
        readers = Readers(task.path, manifest, window=task.window, again=task.again)
        self._readers = readers
        if task.again and os.path.exists(task.path):  # it was killed after its last byte
            size = os.path.getsize(task.path)
            readers.finish(size)
            self._tell("complete", size=size, proof="manifest" if manifest else "")
            return 0
        if manifest is not None and manifest.is_tar:
            threading.Thread(target=self._find_order, daemon=True).start()
        checksum = task.checksum if not readers.room else None
        got = fetch(
            task.urls,
            task.path,
            size=task.size,
            checksum=checksum,
            manifest=manifest,
            watch=self._watch,
            should_stop=_ended,
            patience=task.patience,
            keep=True,
            readers=readers,
        )
        self._last = got.snapshot
        readers.finish(got.bytes)
        self._tell("complete", size=got.bytes, proof=got.proof, url=got.url)
        return 0

    def _find_order(self) -> None:
        """Work out the default order, while the first bytes arrive."""
        readers = self._readers
        while readers is not None and readers.arrival is None:
            time.sleep(0.01)
        if readers is not None:
            readers.default = default_order(self._task.path)

    def _watch(self, now: Snapshot) -> None:
        self._last = now
        self._tell("progress" if self._begun else "begun")
        if self._readers is not None and self._readers.arrival is not None:
            self._begun = True

    def _tell(self, state: str, **more: object) -> None:
        """Send a line to the agent; progress is dropped if the agent does not read."""
        readers, last = self._readers, self._last
        arrival = readers.arrival if readers is not None else None
        if state == "begun" and arrival is None:
            return
        message: dict[str, object] = {
            "state": state,
            "seconds": round(time.monotonic() - self._begin, 3),
            "here": arrival.count() if arrival is not None else 0,
            "size": arrival.size if arrival is not None else None,
            "ever": arrival.ever if arrival is not None else 0,
            "again": arrival.again if arrival is not None else 0,
        }
        if last is not None:
            message["snapshot"] = last.as_json()
        data = json.dumps({**message, **more}).encode() + b"\n"
        if state == "progress" and not select.select([], [1], [], 0)[1]:
            return
        with contextlib.suppress(OSError):
            while data:
                data = data[os.write(1, data) :]


def _ended() -> bool:
    """Whether the agent asks it to stop, or is gone."""
    ready = select.select([0], [], [], 0)[0]
    return bool(ready) and not os.read(0, 4096)
