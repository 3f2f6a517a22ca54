"""The fetcher: brings one object while the command reads it, in a process of its own.

    headway-node.pyz fetcher

What to fetch is one line of JSON on its standard input, which then stays open: its end is the wish
to stop, also when the agent was killed. Standard output has a line of JSON for each thing that the
agent shall know: that it has begun, how far it is, and how it ended.
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

from headway.node.errors import (
    Exit,
    HeadwayError,
    NodeError,
    Stopped,
    TransferError,
    code_of,
    words_of,
)
from headway.node.stream.arrival import ARRIVAL_SUFFIX as ARRIVAL
from headway.node.stream.arrival import WANTED_SUFFIX as WANTED
from headway.node.stream.arrival import Arrival, read_wanted
from headway.node.transfer.fetch import fetch
from headway.node.transfer.options import PATIENCE
from headway.node.transfer.part import SUFFIX as PART

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from headway.node.transfer.manifest import Manifest
    from headway.node.transfer.options import ReadControl, Snapshot

    Stretch = tuple[int, int]


UNIT = 1 << 20  # bytes that are told of together where no manifest says more
LEAST_WINDOW = 16  # chunks
_EVERY = 0.05  # seconds between two looks
_SPARE = 4  # chunks of a window that are left for those who wait


class Readers:
    """Those who read an object while it arrives, as the transfer engine knows them.

    It tells readers by `PATH.arrival` what is there, and the engine by what they wait for and by
    `PATH.wanted` what to bring next. Where the object has but a window of the disk, it also gives
    back what was read.
    """

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

    def look(self, control: ReadControl) -> None:
        """Tell the engine what is wanted, and give back what is not."""
        if self._error is not None:
            raise self._error
        now = time.monotonic()
        if self.arrival is None or now - self._looked < _EVERY:
            return
        self._looked = now
        wished = [self._stretch(number) for number in self.arrival.wishes()]
        control.wish(wished)
        self._hear(control, wished)
        if self.default and not self._told:
            self._told = True
            control.turn(self.default)
        if self.room:
            self._make_room_for(control, wished)

    def _hear(self, control: ReadControl, wished: list[Stretch]) -> None:
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
        found = read_wanted(self.path, self.unit, self.arrival.chunks)
        if found is None:
            return
        if same:
            self._pass(control, found.done)
            return
        self._told = True
        self._order, self._done = [self._stretch(each) for each in found.chunks], found.done
        control.turn(self._order, self._done)
        self._make_room(control, wished)

    def _stretch(self, number: int) -> Stretch:
        assert self.arrival is not None
        return number * self.unit, min((number + 1) * self.unit, self.arrival.size)

    # -- a window on the object

    def _pass(self, control: ReadControl, done: int) -> None:
        """Give back what the readers have passed."""
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
        """Another epoch has begun: only what it needs soon stays."""
        if not self.room:
            return
        soon = {*self._soon(self._done), *wished}
        for stretch in self._here():
            if stretch not in soon:
                self._give_back(control, *stretch)

    def _make_room_for(self, control: ReadControl, wished: list[Stretch]) -> None:
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
    """In which order a reader with no wishes of its own will read; empty: that of the file."""
    from headway.node.stream.samples import Choice
    from headway.node.stream.source import SampleSource

    try:
        source = SampleSource(path, Choice())
        if not source.indexed:
            return []
        return list(source.order(seed=0, epoch=0).stretches())
    except (HeadwayError, OSError):
        return []  # not a tar file


_TELL = 0.5  # seconds between two words on how far it is


def run_fetcher() -> int:
    """One object, to its end or to that of standard input; returns the exit code."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    line = sys.stdin.buffer.readline()
    try:
        task = Task(json.loads(line))
    except (ValueError, KeyError, TypeError):
        sys.stderr.write("headway: the fetcher is started by the agent\n")
        return int(Exit.AGENT_ERROR)
    return _Fetcher(task).run()


class Task:
    """What to fetch, and how; the agent writes it and the fetcher reads it."""

    def __init__(self, data: dict[str, object]) -> None:
        self.path = str(data["path"])
        urls = data["urls"]
        self.urls = [str(url) for url in urls] if isinstance(urls, list) else []
        size, window = data.get("size"), data.get("window")
        self.size = size if isinstance(size, int) else None
        self.window = window if isinstance(window, int) else 0
        checksum, pin = data.get("checksum"), data.get("manifest")
        self.checksum = str(checksum) if checksum else None
        self.manifest = str(pin) if pin else None
        patience = data.get("patience")
        self.patience = float(patience) if isinstance(patience, (int, float)) else PATIENCE
        self.again = data.get("again") is True  # a fetcher before this one was killed

    def as_json(self) -> dict[str, object]:
        return dict(vars(self))


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
            meant = code_of(error)
            code = int(Exit.AGENT_ERROR if meant is None else meant)
            if meant is None:
                import traceback

                traceback.print_exc()
            words = words_of(error)
            arrival = self._readers.arrival if self._readers is not None else None
            if arrival is not None:
                arrival.fail(words, retryable=code != Exit.INPUT_FAILED)
            self._tell("failed", error=words, remedy=getattr(error, "remedy", ""), code=code)
            return code

    def _run(self) -> int:
        task = self._task
        manifest = self._manifest()
        if task.window and manifest is not None and task.window < manifest.size:
            self._check_holes()
        readers = Readers(task.path, manifest, window=task.window, again=task.again)
        self._readers = readers
        if task.again and os.path.exists(task.path):  # it was killed after its last byte
            size = os.path.getsize(task.path)
            readers.finish(size)
            self._tell("whole", size=size, proof="manifest" if manifest else "")
            return 0
        if manifest is not None and manifest.is_tar:
            threading.Thread(target=self._think, daemon=True).start()
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
        self._tell("whole", size=got.bytes, proof=got.proof, url=got.url)
        return 0

    def _manifest(self) -> Manifest | None:
        if self._task.manifest is None:
            return None
        from headway.node.transfer.manifest import MAX_MANIFEST, SUFFIX, read_manifest

        with open(f"{self._task.path}{SUFFIX}", "rb") as file:
            return read_manifest(file.read(MAX_MANIFEST + 1), pin=self._task.manifest)

    def _check_holes(self) -> None:
        from headway.node.transfer.part import can_punch

        folder = os.path.dirname(self._task.path) or os.curdir
        if not can_punch(folder):
            raise NodeError(
                "this node's file system cannot give back parts of a file, as keep = false needs",
                remedy="another node may do; keep = true needs the whole object's disk",
            )

    def _think(self) -> None:
        """Beside the first bytes: how they should go on while nobody says so."""
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
        """One line for the agent; what is no news can be lost when it does not listen."""
        readers, last = self._readers, self._last
        arrival = readers.arrival if readers is not None else None
        if state == "begun" and arrival is None:
            return
        said: dict[str, object] = {
            "state": state,
            "seconds": round(time.monotonic() - self._begin, 3),
            "here": arrival.count() if arrival is not None else 0,
            "size": arrival.size if arrival is not None else None,
            "ever": arrival.ever if arrival is not None else 0,
            "again": arrival.again if arrival is not None else 0,
        }
        if last is not None:
            said["snapshot"] = last.as_json()
        said.update(more)
        data = json.dumps(said).encode() + b"\n"
        if state == "progress" and not select.select([], [1], [], 0)[1]:
            return
        with contextlib.suppress(OSError):
            while data:
                data = data[os.write(1, data) :]


def _ended() -> bool:
    """Whether the agent wants it to stop, or is gone."""
    ready = select.select([0], [], [], 0)[0]
    return bool(ready) and not os.read(0, 4096)
