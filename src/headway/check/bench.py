"""Starts of the job's command on this machine, as the local pool makes them, and what each did."""

from __future__ import annotations

import contextlib
import ctypes
import glob
import hashlib
import json
import os
import re
import select
import shutil
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.node.checkpoint import FOLDER, copy_file, find
from headway.node.errors import Exit
from headway.node.plan import OUT, PLAN
from headway.pool.base import Action
from headway.pool.folder import Runs
from headway.pool.local.attempt import IN_CONTAINER, AttemptEnd, RunningAttempt
from headway.pool.local.machine import Claim, ResourceRequest, find_apptainer, take
from headway.pool.local.pool import LocalPool
from headway.pool.local.scratch import checkpoint_folder, marked, remove_tree, save_checkpoint
from headway.pool.prepare import prepare
from headway.pool.program import compile_agent, encoded_row
from headway.spec import Job
from headway.spec.places import image_path

# Saves: what a command does to its checkpoint files, and what a kill in between would leave.
#
# Most saves take less than a millisecond, too little to hit with a kill. So inotify watches the
# order of the steps, and from it each state is built that a kill could have left: a file that is
# written under its own name can be half written, one that is moved into place cannot.

WRITTEN, MOVED, DELETED = "written", "moved", "deleted"
_MODIFY, _CLOSE_WRITE, _FROM, _TO, _CREATE, _DELETE = 0x2, 0x8, 0x40, 0x80, 0x100, 0x200
_FOLDER, _OVERFLOW = 0x40000000, 0x4000
_MASK = _MODIFY | _CLOSE_WRITE | _FROM | _TO | _CREATE | _DELETE
_MOST = 3  # states that are tried


@dataclass(frozen=True)
class FileChange:
    """The last change of a path of the checkpoint, or its removal before that."""

    path: str
    how: str


@dataclass(frozen=True)
class KilledSave:
    """What a kill would leave: the first `done` changes, and perhaps half of the next one."""

    done: int
    torn: str  # a path that is half written; empty: none
    words: str


def fold(events: Iterable[tuple[int, str]], paths: Sequence[str]) -> list[FileChange]:
    """The last change of each path below `paths`, in their order, from pairs of mask and path.

    A path that was removed and created again has both changes: in between it did not exist.
    """
    changes: dict[tuple[str, bool], str] = {}  # by path, and whether it is its removal

    def forget(path: str, *, removals: bool) -> None:
        for known in list(changes):
            inner = known[0].startswith(f"{path}/")
            if inner or (known[0] == path and (removals or not known[1])):
                del changes[known]

    for mask, path in events:
        if mask & _FOLDER and mask & (_CREATE | _MODIFY | _CLOSE_WRITE):
            continue
        if not any(path == each or path.startswith(f"{each}/") for each in paths):
            continue
        if mask & (_MODIFY | _CLOSE_WRITE | _CREATE):
            if mask & _CLOSE_WRITE and changes.get((path, False)) == WRITTEN:
                continue  # its place in the order is that of the last byte
            changes.pop((path, False), None)
            changes[path, False] = WRITTEN
        elif mask & _TO:
            forget(path, removals=False)
            changes[path, False] = MOVED
        elif mask & (_FROM | _DELETE):
            forget(path, removals=True)
            changes[path, True] = DELETED
    return [FileChange(path, how) for (path, _), how in changes.items()]


def relevant(changes: Iterable[FileChange], before: Path, after: Path) -> list[FileChange]:
    """The changes without files that existed only in between."""
    return [
        change
        for change in changes
        if os.path.lexists((before if change.how == DELETED else after) / change.path)
    ]


def states(changes: Sequence[FileChange], after: Path) -> list[KilledSave]:
    """The states worth trying: files half written, and a checkpoint of old and new parts."""
    torn = [
        KilledSave(place, change.path, f"{change.path} was half written")
        for place, change in enumerate(changes)
        if change.how == WRITTEN
        and not (after / change.path).is_symlink()
        and (after / change.path).stat().st_size > 1
    ]
    torn.sort(key=lambda state: (after / state.torn).stat().st_size)
    mixed = []
    for done, change in enumerate(changes, 1):
        later = next((each.path for each in changes[done:] if each.how != DELETED), None)
        if later is not None:
            words = f"{change.path} was {change.how} and {later} not yet"
            mixed.append(KilledSave(done, "", words))
    return [*reversed(torn[-2:]), *mixed[: _MOST - len(torn[-2:])]]


def build(
    state: KilledSave, changes: Sequence[FileChange], before: Path, after: Path, root: Path
) -> None:
    """Lay the state out below `root`."""
    copy_paths(os.listdir(before) if before.is_dir() else [], before, root)
    for change in changes[: state.done]:
        _remove(root / change.path)
        if change.how != DELETED:
            copy_paths([change.path], after, root)
    if state.torn:
        _remove(root / state.torn)
        copy_paths([state.torn], after, root)
        os.truncate(root / state.torn, (after / state.torn).stat().st_size // 2)


def copy_paths(paths: Iterable[str], source: Path, target: Path) -> None:
    """Copy those of `paths` that exist from one folder to another."""
    for path in paths:
        origin, place = source / path, target / path
        if not os.path.lexists(origin):
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        if origin.is_symlink():
            place.symlink_to(origin.readlink())
        elif origin.is_dir():
            shutil.copytree(
                origin, place, symlinks=True, copy_function=copy_file, dirs_exist_ok=True
            )
        else:
            copy_file(str(origin), str(place))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


class SaveWatch:
    """Watches the paths of a checkpoint below a folder; `blind` if it missed a change."""

    def __init__(self, root: Path, paths: Sequence[str]) -> None:
        self.root, self.paths = root, tuple(paths)
        self.events: list[tuple[int, str]] = []
        self.blind = sys.platform != "linux"
        self._unseen: set[str] = set()  # files that were there before their folder was watched
        self._folders: dict[int, str] = {}
        self._moved: dict[int, str] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._handle = -1
        if self.blind:
            return
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._handle = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self.blind = self._handle < 0
        if self.blind:
            return
        for path in self.paths:
            for above in [*Path(path).parents][::-1]:
                self._add("" if above == Path() else str(above))
            self._add_below(path, new=False)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> list[FileChange]:
        """Stop watching, and return the changes."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            os.close(self._handle)
            self._thread = None
        self.blind = self.blind or bool(self._unseen)
        return fold(self.events, self.paths)

    def mark(self) -> int:
        """Read what has happened up to now, and return the number of events."""
        with self._lock, contextlib.suppress(BlockingIOError):
            while self._handle >= 0:
                self._take(os.read(self._handle, 1 << 16))
        return len(self.events)

    def _add(self, folder: str) -> None:
        place = os.fsencode(self.root / folder if folder else self.root)
        number = self._libc.inotify_add_watch(self._handle, place, _MASK)
        if number >= 0:
            self._folders[number] = folder

    def _add_below(self, path: str, *, new: bool) -> None:
        """Watch a folder and those in it.

        How the files of a `new` folder came there was not seen, unless they change once more.
        """
        folder = self.root / path
        if not folder.is_dir() or folder.is_symlink():
            return
        self._add(path)  # first, so that nothing is missed between the two
        with contextlib.suppress(OSError):
            for entry in sorted(os.scandir(folder), key=lambda each: each.name):
                inner = f"{path}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    self._add_below(inner, new=new)
                elif new:
                    self.events.append((_TO, inner))
                    self._unseen.add(inner)

    def _matters(self, folder: str) -> bool:
        """Whether a folder contains a checkpoint, or lies in one."""
        return any(
            f"{each}/".startswith(f"{folder}/") or folder.startswith(f"{each}/")
            for each in self.paths
        )

    def _run(self) -> None:
        while True:
            ended = self._stop.is_set()  # first, so that what came before it is still read
            if select.select([self._handle], [], [], 0 if ended else 0.02)[0]:
                self.mark()
            elif ended:
                return

    def _take(self, data: bytes) -> None:
        place = 0
        while place < len(data):
            number, mask, cookie, length = struct.unpack_from("iIII", data, place)
            name = os.fsdecode(data[place + 16 : place + 16 + length].rstrip(b"\0"))
            place += 16 + length
            if mask & _OVERFLOW:
                self.blind = True
            if number not in self._folders or not name:
                continue
            path = os.path.join(self._folders[number], name)
            self.events.append((mask, path))
            self._unseen.discard(path)
            if not mask & _FOLDER:
                continue
            if mask & _FROM:
                self._moved[cookie] = path
                self._unseen = {each for each in self._unseen if not each.startswith(f"{path}/")}
            elif mask & _TO and cookie in self._moved:
                old = self._moved.pop(cookie)
                for watched, folder in self._folders.items():
                    if folder == old or folder.startswith(f"{old}/"):
                        self._folders[watched] = path + folder[len(old) :]
            if mask & (_CREATE | _TO) and self._matters(path):
                self._add_below(path, new=bool(mask & _CREATE))


_AHEAD = 0.2  # share of the lines that may arrive at once
_BEFORE_END = 0.9  # share of the run; later lines may have been flushed by its end


@dataclass
class CommandProgress:
    """How far a running command is."""

    rows: int = 0  # of its trace, in this start
    lines: int = 0  # that it printed
    seconds: float = 0.0  # since it was started
    listened: float | None = None  # seconds after which it had a handler for SIGTERM


@dataclass
class Start:
    """One start of the command, and how it ended."""

    place: int  # the number of its folder
    code: int | None = None  # the agent's exit code; None: it was killed
    status: int | None = None  # the command's
    signal: int | None = None
    seconds: float = 0.0  # of the command
    wall: float = 0.0
    span: float = 0.0  # seconds from the first step to the last
    to_end: float = 0.0  # seconds from the interruption to the end
    interrupted: bool = False
    hung: bool = False
    reason: str = ""
    stderr: str = ""
    trace: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    programs: list[str] = field(default_factory=list)  # that ran when it was interrupted
    changes: list[FileChange] = field(default_factory=list)  # of the checkpoint
    late: bool = False  # the checkpoint was written to after the interruption
    blind: bool = False  # not all changes were seen
    had: bool = False  # there was a checkpoint when it began
    before: Path = Path()  # copies of the checkpoint, as long as they are needed
    after: Path = Path()
    bytes: int = 0  # of the checkpoint afterwards
    outputs: dict[str, str] = field(default_factory=dict)
    listened: float | None = None  # seconds after which it had a handler for SIGTERM
    printed: list[tuple[float, int]] = field(default_factory=list)  # lines so far, after seconds

    @property
    def saved(self) -> bool:
        """Whether the checkpoint was written to, and is there."""
        return bool(self.bytes and self.changes)

    def live(self, share: float) -> bool:
        """Whether this share of the lines arrived when it was printed.

        A buffer passes lines on in blocks, or all of them at the end. Then they do not show how
        far the command is.
        """
        total = len(self.lines)
        for after, seen in self.printed:
            if seen >= share * total:
                return seen <= (share + _AHEAD) * total and after < _BEFORE_END * self.seconds
        return False

    def words(self) -> str:
        """How the command ended."""
        if self.hung:
            return f"did not end in {self.wall:.0f} s"
        if self.signal is not None:
            return f"was killed by {signal.Signals(self.signal).name}"
        return f"exited with {self.status}" if self.status is not None else self.reason


# keys whose values may differ in an interrupted run: times, hosts, numbers of starts
_OTHERWISE = re.compile(
    r"(?i)time|second|elapsed|duration|date|stamp|rate$|speed|host|node|pid|resum|restart|attempt"
    r"|start|wall|uptime"
)


def digests(folder: Path) -> dict[str, str]:
    """The digest of each file below a folder; of JSON without the keys that may differ."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): _digest(path) for path in files}


def differing(one: dict[str, str], other: dict[str, str]) -> list[str]:
    """The names of files that are not the same in both."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def _digest(path: Path) -> str:
    if path.suffix == ".json":
        with contextlib.suppress(ValueError, RecursionError):  # then by its bytes
            document = _without_times(json.loads(path.read_bytes()))
            return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _without_times(value: object) -> object:
    if isinstance(value, dict):
        return {
            key: _without_times(inner)
            for key, inner in value.items()
            if key in ("learning_rate", "lr")
            or isinstance(inner, (dict, list))
            or not _OTHERWISE.search(key)
        }
    return [_without_times(each) for each in value] if isinstance(value, list) else value


TRACE = ".headway-trace"
_SHELLS = ("sh", "bash", "dash", "ksh", "zsh", "busybox")
_TAIL = 2000  # characters of stderr that are kept


class StartFollower:
    """Reads what a start adds to its trace, its record and its output."""

    def __init__(self, scratch: Path) -> None:
        self._trace = scratch / TRACE
        self._attempts = scratch / OUT / "attempts"
        self._at = self._trace.stat().st_size if self._trace.exists() else 0
        self._streams = {path: path.stat().st_size for path in self._attempts.glob("*/std*")}
        self._records = self._marks()
        self._lines = self._printed = self._shown = 0
        self._stdout: Path | None = None
        self._read = self._at
        self._running = False
        self.begin = time.time()

    def _marks(self) -> dict[Path, tuple[int, int]]:
        found = {}
        for path in self._attempts.glob("*/record.json"):
            with contextlib.suppress(OSError):
                status = path.stat()
                found[path] = (status.st_ino, status.st_mtime_ns)
        return found

    def running(self) -> bool:
        """Whether the agent has started the command: it writes its record just before."""
        if not self._running and self._marks() != self._records:
            self._running, self.begin = True, time.time()
        return self._running

    def rows(self) -> int:
        """The rows of the trace so far."""
        data = _added(self._trace, self._read)
        self._read += len(data)
        self._lines += data.count(b'"step"')
        return self._lines

    def printed(self) -> int:
        """The lines of stdout so far."""
        if self._stdout is None and self._running:
            with contextlib.suppress(OSError, ValueError):
                self._stdout = max(self._attempts.glob("*/stdout"), key=os.path.getmtime)
                self._shown = self._streams.get(self._stdout, 0)
        if self._stdout is not None:
            data = _added(self._stdout, self._shown)
            self._shown += len(data)
            self._printed += data.count(b"\n")
        return self._printed

    def finish(self, made: Start) -> None:
        made.trace = _added(self._trace, self._at).decode("utf-8", "replace").splitlines()
        for name in ("stdout", "stderr"):
            paths = sorted(self._attempts.glob(f"*/{name}"))
            added = (_added(path, self._streams.get(path, 0)) for path in paths)
            text = "".join(data.decode("utf-8", "replace") for data in added)
            if name == "stdout":
                made.lines = text.splitlines()
            else:
                made.stderr = text[-_TAIL:]
        newest = max(self._marks().items(), key=lambda each: each[1][1], default=None)
        if newest is None or (newest[0] in self._records and not self._running):
            return
        with contextlib.suppress(OSError, ValueError):
            record = json.loads(newest[0].read_bytes())
            made.reason = str(record.get("reason") or "")
            command = record.get("command") or {}
            if made.code is not None:
                made.status, made.signal = command.get("status"), command.get("signal")
                made.seconds = float(command.get("seconds") or 0.0)


def _added(path: Path, at: int) -> bytes:
    """What was added to a file after its first `at` bytes."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(at)
        return file.read()
    return b""


def programs(scratch: Path, agent: int) -> list[str]:
    """The command lines of the programs in a scratch folder, without the agent."""
    found = []
    for pid in sorted(marked(scratch)):
        with contextlib.suppress(OSError):
            line = _arguments(pid).replace(b"\0", b" ").decode("utf-8", "replace").strip()
            if pid != agent and line:
                found.append(line[:200])
    return found


def listeners(agent: int) -> set[int]:
    """The programs that an agent runs and that have a handler for SIGTERM.

    Shells do not count, because they have one for what they start, nor does a fork of the agent
    that has not become another program yet. A program that has left the agent's process tree, as a
    daemon does, is not seen.
    """
    found = set()
    own = _arguments(agent)
    below = _children(agent)
    while below:
        pid = below.pop()
        below += _children(pid)
        if _arguments(pid) == own:  # asked first: after its exec it has no handler of the agent's
            continue
        with contextlib.suppress(OSError, ValueError):
            text = Path(f"/proc/{pid}/status").read_text()
            status = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
            caught = int(status.get("SigCgt", "0"), 16) >> (signal.SIGTERM - 1) & 1
            if caught and status.get("Name", "").strip() not in _SHELLS:
                found.add(pid)
    return found


def _children(pid: int) -> list[int]:
    """The children of a process, without a search through all processes of a busy machine."""
    found: list[int] = []
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        with contextlib.suppress(OSError):  # a thread may end at any time
            found += map(int, Path(path).read_text().split())
    return found


def _arguments(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


_LOOK = 0.004  # seconds between looks at a running command
_LISTEN = 0.02  # the same, at its handlers
_LEEWAY = 10.0  # seconds beyond the grace after which everything of an attempt is killed


class TimeOver(Exception):
    """The time limit of the check is over."""


class Bench:
    """A run folder in which the check starts one job as often as needed."""

    def __init__(self, job: Job, base: Path, root: Path, index: int, deadline: float) -> None:
        self.index, self.deadline = index, deadline
        self.notes: list[str] = []
        self.starts = self._places = self._copies = 0
        pool = LocalPool.parse("", root)
        self._site = pool.sites[0]
        self.job = job = self._fitted(job)
        self.folder = prepare(job, base, Runs(root / ".headway"), pool.facts(), "check")
        self._claim = take(self._site, ResourceRequest.of(job.resources.model_dump()), ()) or Claim(
            self._site.name, job.resources.cpus, job.resources.memory, job.resources.disk
        )
        self._agent = compile_agent(self.folder.agent, self.folder.programs)
        self._row = encoded_row(job.row(index))
        self._image = image_path(job.container, base) if job.container else None
        self._plan: dict[str, Any] = json.loads(self.folder.plan.read_bytes())
        self._plan["disk"] = None  # a slice needs less
        for output in self._plan["outputs"]:
            output["to"] = None  # nothing leaves this machine
        self._root = root
        self.best_save: Start | None = None  # the start with the most useful save
        self.paths: Sequence[str] = job.checkpoint.paths if job.checkpoint else ()

    def _fitted(self, job: Job) -> Job:
        """The job as this machine can run it."""
        changes: dict[str, Any] = {}
        wanted = job.resources.gpus
        if wanted is not None and len(self._site.gpus) < wanted.count:
            self.notes.append("this machine lacks the GPUs that the job asks for: it runs without")
            changes["resources"] = job.resources.model_copy(update={"gpus": None})
        if job.container and find_apptainer() is None:
            self.notes.append("there is no apptainer here: it runs without the job's container")
            changes["container"] = None
        return job.model_copy(update=changes)

    @property
    def spool(self) -> Path:
        """Where the pool keeps the last checkpoint that the command left."""
        return checkpoint_folder(self.folder, self.index)

    def new_place(self) -> int:
        """The number of a new folder."""
        self._places += 1
        return self._places

    def scratch(self, place: int) -> Path:
        return self._attempt(place).scratch

    def forget(self) -> None:
        """Remove the spooled checkpoint, before a new trial."""
        remove_tree(self.spool)

    def start(
        self,
        place: int,
        *,
        interval: float | None = None,
        when: Callable[[CommandProgress], bool] | None = None,
        how: str = "",
        patience: float = 3600.0,
        laid: Callable[[Path], None] | None = None,
    ) -> Start:
        """Start the command in a folder, new or used, and follow it to its end.

        It is interrupted by `how` ("term" or "kill") as soon as `when` is true. `laid` puts a
        checkpoint into a new folder.
        """
        attempt = self._attempt(place)
        if not attempt.scratch.exists():
            attempt.prepare("", has_inputs=bool(self.job.inputs))
            if laid is not None:
                laid(attempt.scratch)
        made = Start(place, before=self._copy(attempt.scratch))
        made.had = any(made.before.iterdir())
        self._write_plan(attempt.scratch, interval)
        watch = StartFollower(attempt.scratch)
        self.starts += 1
        begin = time.monotonic()
        attempt.start(self._agent, self._row, self._image)
        saves: list[SaveWatch] = []
        try:
            early = self._follow(attempt, made, watch, saves, when, how, patience)
        finally:
            attempt.kill()  # also ends the processes that it left
            while attempt.poll() is None:
                time.sleep(_LOOK)
            changes = [change for each in saves for change in each.close()]
        made.wall = time.monotonic() - begin
        killed = made.hung or (made.interrupted and how == "kill")
        made.code = None if killed else attempt.poll()
        watch.finish(made)
        made.after = self._copy(attempt.scratch)
        made.bytes = _size(made.after)
        made.blind = not saves or saves[0].blind
        made.changes = relevant(changes, made.before, made.after)
        if saves and made.interrupted:
            late = relevant(fold(saves[0].events[early:], self.paths), made.before, made.after)
            made.late = any(each.how != DELETED for each in late)
        if made.code == Exit.CHECKPOINT:
            save_checkpoint(self.folder, self.index, attempt.scratch)
        made.outputs = digests(attempt.scratch / OUT / "outputs")
        self._share_inputs(attempt.scratch, watch.begin)
        self._keep_one(made, candidate=laid is None)
        return made

    def _follow(
        self,
        attempt: RunningAttempt,
        made: Start,
        watch: StartFollower,
        saves: list[SaveWatch],
        when: Callable[[CommandProgress], bool] | None,
        how: str,
        patience: float,
    ) -> int:
        """Follow it to its end; returns the number of save events before the interruption."""
        begin, acted, early = time.monotonic(), 0.0, 0
        rows, first, last = 0, 0.0, 0.0
        started = look = 0.0
        while attempt.poll() is None:
            now = time.monotonic()
            if not saves and watch.running():
                saves.append(SaveWatch(attempt.scratch, self.paths))
                started = now
            seen = CommandProgress(watch.rows(), watch.printed(), now - started if started else 0.0)
            if started and made.listened is None and not seen.rows and now > look:
                made.listened = seen.seconds if listeners(attempt.pid) else None
                look = now + _LISTEN
            seen.listened = made.listened
            if seen.lines > (made.printed[-1][1] if made.printed else 0):
                made.printed.append((seen.seconds, seen.lines))
            if seen.rows > rows:
                rows, first, last = seen.rows, first or now, now
            if not acted and when is not None and saves and when(seen):
                acted, early, made.interrupted = now, saves[0].mark(), True
                made.programs = programs(attempt.scratch, attempt.pid)
                if how == "kill":
                    attempt.kill()
                else:
                    ending = AttemptEnd(Action.EVICT, "headway check")
                    attempt.end(ending, self.job.grace + _LEEWAY)
            if now > begin + patience and not made.hung:
                made.hung = True
                attempt.kill()
            if now > self.deadline:
                raise TimeOver
            time.sleep(_LOOK)
        made.span = last - first
        made.to_end = time.monotonic() - acted if acted else 0.0
        return early

    def _keep_one(self, made: Start, *, candidate: bool) -> None:
        """Keep only the copies of the best save, because checkpoints are large.

        The best one was seen, began with a checkpoint and was not killed while it wrote.
        """

        def rank(start: Start) -> tuple[bool, bool, bool, bool]:
            return (not start.saved, start.blind, not start.had, start.code is None)

        best = self.best_save
        if candidate and made.saved and (best is None or rank(made) < rank(best)):
            self.best_save, made = made, best or Start(0)
        for copy in (made.before, made.after):
            if copy != Path():
                remove_tree(copy)

    def drop(self, place: int) -> None:
        """Remove a folder that is not started in again."""
        remove_tree(self.scratch(place))

    def _attempt(self, place: int) -> RunningAttempt:
        return RunningAttempt(self.folder, self.index, place, self._site, self._claim, 1)

    def _write_plan(self, scratch: Path, interval: float | None) -> None:
        plan = dict(self._plan)
        inside = Path(IN_CONTAINER) if self._image else scratch
        plan["environment"] = {
            **plan["environment"],
            "HEADWAY_TRACE": str(inside / TRACE).replace("{", "{{").replace("}", "}}"),
        }
        if plan["checkpoint"] is not None:
            given = {"interval": interval}
            given |= {} if interval is not None else {"signal": None}
            plan["checkpoint"] = {**plan["checkpoint"], **given}
        (scratch / PLAN).write_text(json.dumps(plan), encoding="utf-8")

    def _copy(self, scratch: Path) -> Path:
        self._copies += 1
        target = self._root / "copies" / str(self._copies)
        target.mkdir(parents=True)
        copy_paths(self.paths, scratch, target)
        spooled = find(str(scratch / FOLDER))  # the agent will put it in place in a new folder
        if spooled is not None and not _size(target):
            copy_paths(self.paths, Path(spooled.place), target)
        return target

    def _share_inputs(self, scratch: Path, begin: float) -> None:
        """Let later starts take each input from the first one, unless it was changed."""
        if self._image:
            return  # a container does not see it
        for number, given in enumerate(self._plan["inputs"]):
            path, kept = scratch / given["path"], self._root / "inputs" / str(number)
            if "{" in given["path"] or kept.exists() or given.get("mode") == "stream":
                continue
            with contextlib.suppress(OSError):
                if path.is_file() and path.stat().st_mtime <= begin:
                    kept.parent.mkdir(exist_ok=True)
                    os.link(path, kept)
                    given["urls"] = [kept.as_uri()]
                    given["manifest"] = None  # it is not in this folder


def _size(folder: Path) -> int:
    return sum(each.lstat().st_size for each in folder.rglob("*") if not each.is_dir())
