"""Sandboxes in the store: outputs of jobs that have ended, on their way home.

A job hands its verified outputs over with one rename, writes a ticket and ends; its slot is free.
A courier takes them out again later: hard links to the same files, so that nothing is copied and
nothing is lost if the courier dies. The ticket names every file, its size and its sha256. The
ticket's own digest goes home with the job, and comes back with the courier: what is taken out must
be what that ticket says, whatever else the store says.

    STORE/u1000/sandboxes/NAME/     `files`, `ticket.json`, and `entry.json`, which describes it
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import stat
import time

from headway.node.errors import NodeError, Stopped
from headway.node.files import sync_folder, tree_files, write_atomically
from headway.node.store.folder import FACTS, Draft, Store, hold, listed, read_facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

FILES, TICKET = "files", "ticket.json"
FORMAT = 1
TAKEN_AGE = 1800.0  # seconds after which a sandbox that a courier took out is not needed again
MOST_TICKET = 64 << 20  # bytes: some 500,000 files
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,120}", re.ASCII)
_STARTD = re.compile(r"[\w.@:+-]{1,255}", re.ASCII)
_PIECE = 1 << 20


class SandboxError(NodeError):
    """A sandbox is lost, or not what its ticket says: its job must be computed again."""


class NoHandOver(Exception):
    """The outputs go home with the job, as ever; the text says why."""


class Ticket:
    """What a sandbox holds, for whoever takes it out or receives it.

    Attributes:
        sandbox: Its name in the store.
        store: The store's folder.
        at: The name of the startd whose store it is.
        files: The path, size and sha256 of each file, in the order of their paths.
        folders: The path of each folder.
        made: When it was handed over, in seconds since the epoch.
        until: How long it stays at least.
    """

    def __init__(
        self,
        sandbox: str,
        store: str,
        at: str,
        files: list[tuple[str, int, str]],
        folders: list[str],
        made: float,
        until: float,
    ) -> None:
        self.sandbox, self.store, self.at = sandbox, store, at
        self.files, self.folders = files, folders
        self.made, self.until = made, until

    @property
    def size(self) -> int:
        return sum(size for _, size, _ in self.files)

    def as_bytes(self) -> bytes:
        """The ticket as a file; its digest is that of these bytes."""
        data = {"format": FORMAT, **vars(self)}
        return json.dumps(data, separators=(",", ":"), sort_keys=True).encode()

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.as_bytes()).hexdigest()

    @classmethod
    def read(cls, data: bytes) -> Ticket:
        """Check a ticket from anybody; raises SandboxError."""
        try:
            if len(data) > MOST_TICKET:
                raise ValueError("its size")
            found = json.loads(data)
            if found["format"] != FORMAT:
                raise ValueError("its format")
            files = [_checked_file(*each) for each in found["files"]]
            folders = [_checked_path(each) for each in found["folders"]]
            names = [*folders, *(name for name, _, _ in files)]
            if len(set(names)) < len(names) or not _NAME.fullmatch(found["sandbox"]):
                raise ValueError("its names")
            if not _STARTD.fullmatch(found["at"]):
                raise ValueError("its node")
            made, until = float(found["made"]), float(found["until"])
            place = found["sandbox"], str(found["store"]), found["at"]
            return cls(*place, files, folders, made, until)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise SandboxError(f"the ticket is damaged: {error}") from None


def _checked_file(path: object, size: object, digest: object) -> tuple[str, int, str]:
    """One line of a ticket."""
    name = _checked_path(path)
    if type(size) is not int or size < 0:
        raise ValueError(f"the size of {name[:80]!r}")
    if not isinstance(digest, str) or not re.fullmatch("[0-9a-f]{64}", digest):
        raise ValueError(f"the digest of {name[:80]!r}")
    return name, size, digest


def _checked_path(path: object) -> str:
    """A path that does not lead out of the folder."""
    if not isinstance(path, str) or "\0" in path or {"", ".", ".."} & set(path.split("/")):
        raise ValueError(f"the path {str(path)[:80]!r}")
    return path


class Sending:
    """The URLs where there was nothing until a courier began to send a file of a sandbox there.

    What is there afterwards is its own: the whole file, if the courier died before it could say so,
    or a part of it. URLs may be secret; only their digests are noted.
    """

    def __init__(self, home: str) -> None:
        self._home = home

    def begun(self, url: str) -> bool:
        facts = read_facts(self._home)
        noted = facts.get("sending") if facts is not None else None
        return isinstance(noted, list) and _mark(url) in noted

    def begin(self, url: str) -> None:
        facts = read_facts(self._home)
        if facts is not None and not self.begun(url):
            noted = facts.get("sending")
            marks = noted if isinstance(noted, list) else []
            with contextlib.suppress(OSError):
                _note(self._home, {**facts, "sending": [*marks, _mark(url)]})


class Sandboxes:
    """The sandboxes of one user in a store.

    Args:
        store: The store.
        should_stop: Asked often; Stopped is raised when it says so.
    """

    def __init__(self, store: Store, should_stop: Callable[[], bool] = lambda: False) -> None:
        self._store, self._should_stop = store, should_stop

    def hand_over(self, folder: str, name: str, *, at: str, stays: float) -> Ticket:
        """Move a folder into the store, or copy it where the store is another file system.

        A container sees the store as a file system of its own, too.

        Args:
            folder: The outputs, with no links and nothing but files and folders in it. It is gone
                afterwards unless it was copied, and untouched after an exception.
            name: The sandbox's name; no other attempt has it.
            at: The name of this node's startd.
            stays: The seconds for which it stays at least.

        Returns:
            The ticket for it.

        Raises:
            NoHandOver: The outputs must go home with the job.
            Stopped: The caller wanted to stop.
        """
        store = self._store
        if not _NAME.fullmatch(name) or not _STARTD.fullmatch(at):
            raise NoHandOver(f"{name!r} of {at!r} cannot be the name of a sandbox")
        try:
            moves = self._can_move(folder)
            found = tree_files(folder)
            size, quota = sum(os.lstat(path).st_size for path, _ in found), self._quota
            held = sum(size for _, size in self.held())
            if held + size > quota:
                raise NoHandOver(f"the store holds {held} bytes of {quota:.0f} for sandboxes")
            folders = sorted(
                os.path.relpath(os.path.join(place, each), folder)
                for place, names, _ in os.walk(folder)
                for each in names
            )
            draft = self._draft(name)
            copies = None if moves else os.path.join(draft.folder, FILES)
            done = False
            try:
                for each in folders if copies else ():
                    os.makedirs(os.path.join(copies or "", each))
                files = [self._line(path, below, copies) for path, below in found]
                now = time.time()
                times = round(now, 3), round(now + stays, 3)
                ticket = Ticket(name, store.root, at, files, folders, *times)
                self._put_in_place(draft, folder if moves else None, ticket)
                done = True
            finally:
                if not done:
                    with contextlib.suppress(OSError):
                        draft.remove()
                draft.close()
            return ticket
        except OSError as error:
            raise NoHandOver(f"the store cannot be used: {error.strerror}") from None

    def ticket(self, name: str, digest: str) -> Ticket:
        """The ticket of a sandbox, proven by its digest; raises SandboxError."""
        lost = SandboxError(f"the sandbox {name[:80]} is not in the store of this node")
        if not _NAME.fullmatch(name):
            raise lost
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        path = os.path.join(self._store.sandboxes, name, TICKET)
        try:
            with open(os.open(path, flags), "rb") as file:
                data = file.read(MOST_TICKET + 1)
        except OSError:
            raise lost from None
        if hashlib.sha256(data).hexdigest() != digest:
            raise SandboxError(f"the ticket of {name} in the store is not the one that went home")
        return Ticket.read(data)

    def take_out(self, ticket: Ticket, folder: str) -> None:
        """Put the files of a sandbox into a new folder, each proven by the ticket.

        The sandbox stays, so that another courier can take it out again.

        Nothing is left in `folder` after an exception.

        Raises:
            SandboxError: It is not there, or not what the ticket says.
            NodeError: It may be fine, but cannot be taken out now.
            Stopped: The caller wanted to stop.
        """
        home = os.path.join(self._store.sandboxes, ticket.sandbox)
        held, facts = hold(home, shared=True), read_facts(home)
        if held is None or facts is None:
            if held is not None:
                held.release()
            raise SandboxError(f"the sandbox {ticket.sandbox} is not in the store of this node")
        fine = False
        try:
            os.makedirs(folder)
            for name in ticket.folders:
                os.makedirs(os.path.join(folder, name), exist_ok=True)
            linked = True
            for name, size, digest in ticket.files:
                target = os.path.join(folder, name)
                os.makedirs(os.path.dirname(target), exist_ok=True)
                linked = _duplicate(os.path.join(home, FILES, name), target) and linked
                self._prove(target, name, size, digest)
            with contextlib.suppress(OSError):
                known = {"taken": round(time.time(), 3), "linked": linked}
                _note(home, {**facts, **known})
            fine = True
        except OSError as error:
            words = f"the sandbox {ticket.sandbox} cannot be taken out: {error.strerror}"
            raise NodeError(words, remedy="another courier may take it out") from None
        finally:
            held.release()
            if not fine:
                self._clear(folder)

    def sending(self, name: str) -> Sending:
        """What couriers have begun to send of a sandbox."""
        return Sending(os.path.join(self._store.sandboxes, name))

    def put_off(self, name: str) -> None:
        """Note that a sandbox that was taken out has not arrived: it is still needed."""
        home = os.path.join(self._store.sandboxes, name)
        facts = read_facts(home) if _NAME.fullmatch(name) else None
        if facts is not None and facts.pop("taken", None) is not None:
            with contextlib.suppress(OSError):
                _note(home, facts)

    def take_back(self, name: str, folder: str) -> None:
        """Undo a hand-over that nobody has been told of; raises OSError if that fails."""
        if not os.path.isdir(folder):  # else it was copied
            os.rename(os.path.join(self._store.sandboxes, name, FILES), folder)
        self.drop(name)

    def drop(self, name: str) -> bool:
        """Remove a sandbox; False if there is none."""
        if not _NAME.fullmatch(name):
            return False
        return self._store.drop(os.path.join(self._store.sandboxes, name))

    def held(self) -> list[tuple[str, int]]:
        """The name and the bytes of each sandbox that is there."""
        found = []
        for folder in listed(self._store.sandboxes):
            facts = read_facts(folder)
            if facts is not None:
                found.append((os.path.basename(folder), int(facts["size"])))
        return found

    def sweep(self, now: float) -> list[str]:
        """Remove what is damaged, overdue or delivered; returns what went, in words."""
        went = []
        for folder in listed(self._store.sandboxes):
            with contextlib.suppress(OSError):
                name, facts = os.path.basename(folder), read_facts(folder)
                why = "its description is damaged" if facts is None else _over(folder, facts, now)
                if why and self._store.drop(folder):
                    went.append(f"{name}: {why}")
        return went

    @property
    def _quota(self) -> float:
        quota = self._store.settings.sandbox_quota
        return float("inf") if quota is None else quota

    def _can_move(self, folder: str) -> bool:
        """Move an empty folder: two mounts of one file system look the same, and are not."""
        probe, name = f"{folder}.probe", f".probe-{os.urandom(6).hex()}"
        os.mkdir(probe)
        try:
            os.rename(probe, os.path.join(self._store.drafts, name))
            probe = os.path.join(self._store.drafts, name)
            return True
        except OSError as error:
            if error.errno == errno.EXDEV:
                return False
            raise
        finally:
            os.rmdir(probe)

    def _line(self, path: str, below: str, copies: str | None) -> tuple[str, int, str]:
        """What the ticket says of a file, which is copied into a folder if there is one."""
        about = os.lstat(path)
        if not stat.S_ISREG(about.st_mode):
            raise NoHandOver(f"{below} is not a file")
        copy = None if copies is None else os.path.join(copies, below)
        if copy is not None:
            os.makedirs(os.path.dirname(copy), exist_ok=True)
        return below, about.st_size, self._sha256(path, copy)

    def _sha256(self, path: str, copy: str | None = None) -> str:
        hasher = hashlib.sha256()
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        with contextlib.ExitStack() as stack:
            stream = stack.enter_context(open(file, "rb", buffering=0))
            taker = stack.enter_context(open(copy, "xb")) if copy is not None else None
            while piece := stream.read(_PIECE):
                if self._should_stop():
                    raise Stopped("the hand-over was stopped")
                hasher.update(piece)
                if taker is not None:
                    taker.write(piece)
            if taker is not None:
                os.fchmod(taker.fileno(), stat.S_IMODE(os.fstat(file).st_mode))
        return hasher.hexdigest()

    def _prove(self, path: str, name: str, size: int, digest: str) -> None:
        about = os.lstat(path)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid():
            raise SandboxError(f"{name} in the store is not a file of this user's")
        if about.st_size != size or self._sha256(path) != digest:
            raise SandboxError(f"{name} in the store is not what was handed over")

    def _draft(self, name: str) -> Draft:
        store = self._store
        if os.path.lexists(os.path.join(store.sandboxes, name)):
            raise NoHandOver(f"there is a sandbox called {name} already")
        draft = store.draft(name)
        if draft is None:
            raise NoHandOver(f"another process hands {name} over")
        return draft

    def _put_in_place(self, draft: Draft, folder: str | None, ticket: Ticket) -> None:
        """Make a sandbox of a draft, and of the folder that is moved into it."""
        store, moved = self._store, False
        files = os.path.join(draft.folder, FILES)
        try:
            facts = {
                "format": FORMAT,
                "size": ticket.size,
                "mtime_ns": 0,
                "kept": ticket.made,
                "until": ticket.until,
                "clock": _clock(),
            }
            data = json.dumps(facts).encode()
            write_atomically(os.path.join(draft.folder, TICKET), ticket.as_bytes(), 0o600)
            write_atomically(os.path.join(draft.folder, FACTS), data, 0o600)
            if folder is not None:
                os.rename(folder, files)
            os.makedirs(files, exist_ok=True)
            os.rename(draft.folder, os.path.join(store.sandboxes, ticket.sandbox))
            moved = True
            sync_folder(store.sandboxes)
        finally:
            if not moved and folder is not None:
                with contextlib.suppress(OSError):
                    if os.path.isdir(files):
                        os.rename(files, folder)

    def _clear(self, folder: str) -> None:
        import shutil

        shutil.rmtree(folder, ignore_errors=True)


def _duplicate(source: str, target: str) -> bool:
    """A second name for a file, or a copy where that is not possible; whether it is a name."""
    if not os.path.lexists(source):
        raise SandboxError(f"{os.path.basename(source)} is no longer in the store")
    try:
        os.link(source, target, follow_symlinks=False)
        return True
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK):
            raise
    from headway.node.checkpoint import copy_file

    if not stat.S_ISREG(os.lstat(source).st_mode):
        raise SandboxError(f"{os.path.basename(source)} in the store is not a file")
    copy_file(source, target)
    return False


def _note(home: str, facts: dict[str, Any]) -> None:
    write_atomically(os.path.join(home, FACTS), json.dumps(facts).encode(), 0o600)


def _mark(url: str) -> str:
    return hashlib.sha256(url.encode()).hexdigest()[:16]


def _clock() -> list[object]:
    """The time since this machine's start, which no correction of the clock changes."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return [file.read().strip(), time.clock_gettime(time.CLOCK_BOOTTIME)]
    except (OSError, AttributeError):
        return ["", 0.0]


def _waited(facts: dict[str, Any], now: float) -> float:
    """For how many seconds a sandbox has been there; the clock may have jumped meanwhile."""
    wall = now - facts["kept"]
    boot, up = facts.get("clock") or ("", 0.0)
    here, now_up = _clock()
    if boot and boot == here and isinstance(now_up, float):
        return min(float(wall), now_up - float(up) + (now - time.time()))
    return float(wall)


def _over(folder: str, facts: dict[str, Any], now: float) -> str:
    """Why a sandbox is not needed any more; notes that it still is while a courier sends it."""
    try:
        stays, taken = facts["until"] - facts["kept"], facts.get("taken")
        if _waited(facts, now) > stays:
            return "nobody has taken it out in time" if taken is None else "its time is over"
        if taken is None or not facts["linked"] or abs(now - taken) < TAKEN_AGE:
            return ""
    except (KeyError, TypeError, ValueError):
        return "its description is damaged"
    # a courier that is still sending the files has names of its own for them
    if any(os.lstat(path).st_nlink > 1 for path, _ in tree_files(f"{folder}/{FILES}")):
        _note(folder, {**facts, "taken": round(now, 3)})
        return ""
    return "it was taken out"
