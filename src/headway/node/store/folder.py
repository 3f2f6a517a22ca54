"""The store's folder: who owns what in it, its entries, its locks and its limits.

    STORE/
      headway-store.json     the settings; a folder without this file is no store
      u1000/                 what the user with this id keeps, for this user alone (0700)
        inputs/NAME/         an entry: the file `data`, and `entry.json`, which describes it
        sandboxes/NAME/      an entry with a folder `files`: see `sandboxes`
        drafts/NAME/         an entry that is being made, or whose maker was killed
        active/, coming/, ahead/  marks: see `ahead`

A draft becomes an entry by one rename, and an entry that goes is renamed first. So an entry is
complete or not there. Whoever makes an entry, or reads it in place, holds a lock on its folder;
the kernel releases the lock when that process ends.

Nothing here follows a link, and no file of another user is used, so no user gets what another one
has put there. Jobs of several people that run under one account are one user to the node: see
`Settings.shared_account`.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import time

from headway.node.errors import NodeError
from headway.node.files import lock, remove_tree, sync_folder, why_untrusted, write_atomically

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from headway.node.files import Lock

MARKER = "headway-store.json"
DATA, FACTS = "data", "entry.json"
FORMAT = 1
INPUTS, SANDBOXES, DRAFTS = "inputs", "sandboxes", "drafts"
_GONE = ".gone-"  # how the name of an entry begins while it is being removed
_MOST_FACTS = 1 << 20
_DRAFT_AGE = 86400.0  # seconds after which nobody goes on with a download
_POLL = 0.1
_MOST_ENTRIES = 2000  # of one user: each is looked at when there is to be room
_KNOWN = 10.0  # seconds for which a list of the entries is good enough
_OURS = 0o700
DAY = 86400.0


class Settings:
    """How much a store keeps, for how long, and for whom.

    Args:
        quota: The bytes of inputs that one user may keep; None: no limit.
        keep_free: The bytes of the file system that inputs leave free.
        age: The seconds after which an input that nobody has used goes.
        shared_account: Several people run jobs under one account of this node.
        share_inputs: Keep inputs even there. The administrator says so.
        sandbox_quota: The bytes of sandboxes that one user may keep; None: no limit.
    """

    def __init__(
        self,
        *,
        quota: int | None = None,
        keep_free: int = 0,
        age: float = 30 * DAY,
        shared_account: bool = True,
        share_inputs: bool = False,
        sandbox_quota: int | None = None,
    ) -> None:
        self.quota, self.keep_free, self.age = quota, keep_free, age
        self.sandbox_quota = sandbox_quota
        self.shared_account, self.share_inputs = shared_account, share_inputs

    @property
    def keeps_inputs(self) -> bool:
        return self.share_inputs or not self.shared_account

    def as_json(self) -> dict[str, object]:
        return {"format": FORMAT, **vars(self)}

    @classmethod
    def read(cls, data: bytes) -> Settings:
        """Parse the marker; raises ValueError if it is damaged."""
        found = json.loads(data)
        if not isinstance(found, dict) or found.pop("format", None) != FORMAT:
            raise ValueError(f"it is not of format {FORMAT}")
        settings = cls()
        for name, usual in vars(settings).items():
            value = found.get(name, usual)
            number = isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0
            fits = isinstance(value, bool) if isinstance(usual, bool) else number
            if not fits and not (name.endswith("quota") and value is None):
                raise ValueError(f"{name} cannot be {value!r:.40}")
            setattr(settings, name, value)
        return settings


class Entry:
    """Something that the store keeps, as its `entry.json` describes it."""

    def __init__(self, folder: str, facts: dict[str, Any], used: float) -> None:
        self.folder, self.facts = folder, facts
        self.used = used  # when, in seconds since the epoch
        self.size: int = facts["size"]

    @property
    def name(self) -> str:
        return os.path.basename(self.folder)

    @property
    def data(self) -> str:
        return os.path.join(self.folder, DATA)

    @property
    def pinned(self) -> bool:
        """Whether it stays whatever the limits are."""
        return self.facts.get("pinned") is True

    def fault(self) -> str:
        """What shows at a glance that the data is not what was kept; empty: nothing does."""
        try:
            found = os.lstat(self.data)
        except OSError as error:
            return f"it cannot be read: {error.strerror}"
        if not stat.S_ISREG(found.st_mode):
            return "it is not a file"
        if found.st_uid != os.geteuid():
            return f"it belongs to another user ({found.st_uid})"
        if found.st_mode & 0o222:
            return "it can be written to"
        if (found.st_size, found.st_mtime_ns) != (self.size, self.facts["mtime_ns"]):
            return "it was changed after it was kept"
        return ""


class Draft:
    """The folder of an entry that is being made, and the lock on it."""

    def __init__(self, store: Store, name: str, folder: str, held: Held) -> None:
        self._store, self._name, self.folder, self._held = store, name, folder, held

    @property
    def data(self) -> str:
        """Where the data of the entry is to be written."""
        return os.path.join(self.folder, DATA)

    def finish(self, facts: dict[str, Any], kept_as: str = "") -> Entry:
        """Make it an entry, of another name if one is given; an older one of that name goes.

        Raises:
            BlockingIOError: A process reads the older one in place.
            OSError: The disk fails.
        """
        os.chmod(self.data, 0o444)
        found = os.lstat(self.data)
        now = time.time()
        facts = {
            **facts,
            "format": FORMAT,
            "size": found.st_size,
            "mtime_ns": found.st_mtime_ns,
            "kept": round(now, 3),
        }
        for name in os.listdir(self.folder):
            if name != DATA:
                os.unlink(os.path.join(self.folder, name))
        write_atomically(os.path.join(self.folder, FACTS), json.dumps(facts).encode(), 0o600)
        target = os.path.join(self._store.inputs, kept_as or self._name)
        for _ in range(2):
            try:
                os.rename(self.folder, target)
                break
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                if not self._store.drop(target):
                    raise BlockingIOError(errno.EAGAIN, "it is being read", target) from None
        sync_folder(self._store.inputs)
        entry = Entry(target, facts, now)
        self._store.note_new(entry)
        return entry

    def remove(self) -> None:
        self._store.discard(self.folder)

    def close(self) -> None:
        self._held.release()


class Held:
    """A lock on a folder, and its descriptor."""

    def __init__(self, file: int, held: Lock) -> None:
        self._file, self._lock = file, held

    def release(self) -> None:
        if self._file >= 0:
            self._lock.release()
            os.close(self._file)
            self._file = -1

    def outlive_exec(self) -> None:
        """Keep the lock when this process becomes another program."""
        os.set_inheritable(self._lock.descriptor, True)


def hold(folder: str, *, shared: bool = False) -> Held | None:
    """Lock a folder; None if another process has, or if the folder is no longer there."""
    try:
        file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        held = lock(file, shared=shared)
        if os.path.samestat(os.fstat(file), os.lstat(folder)):
            return Held(file, held)
        held.release()
    except OSError:
        pass
    os.close(file)
    return None


def create_store(root: str, settings: Settings, *, mode: int = _OURS) -> None:
    """Make a folder a store, or give a store these settings; OSError if that is not possible."""
    os.makedirs(root, mode, exist_ok=True)
    data = json.dumps(settings.as_json(), indent=1).encode() + b"\n"
    write_atomically(os.path.join(root, MARKER), data, 0o644)


class Store:
    """One user's part of a store.

    Args:
        root: The store's folder.

    Raises:
        NodeError: It is no store, or not one that this user can trust.
    """

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)
        try:
            self.settings = _settings(self.root)
            self.home = os.path.join(self.root, f"u{os.geteuid()}")
            own_folder(self.home)
            kinds = (INPUTS, SANDBOXES, DRAFTS)
            folders = [os.path.join(self.home, each) for each in kinds]
            self.inputs, self.sandboxes, self.drafts = folders
            for folder in folders:
                own_folder(folder)
        except OSError as error:
            raise _unusable(self.root, error.strerror or str(error)) from None
        self._known: list[Entry] = []
        self._known_at = float("-inf")

    def find(self, name: str) -> Entry | None:
        """The entry of this name; one that is damaged at a glance is dropped."""
        folder = os.path.join(self.inputs, name)
        try:
            used = os.lstat(folder).st_mtime
        except OSError:
            return None
        entry = _read_entry(folder, used)
        if entry is None or entry.fault():
            with contextlib.suppress(OSError):
                self.drop(folder)
            return None
        return entry

    def entries(self) -> list[Entry]:
        """All entries, the one that was used longest ago first; damaged ones are left out."""
        found = []
        for each in listed(self.inputs):
            with contextlib.suppress(OSError):
                entry = _read_entry(each, os.lstat(each).st_mtime)
                if entry is not None:
                    found.append(entry)
        return sorted(found, key=lambda entry: entry.used)

    def note_new(self, entry: Entry) -> None:
        """Note an entry that was made since the entries were listed."""
        self._known = [*(each for each in self._known if each.folder != entry.folder), entry]

    def touch(self, entry: Entry) -> None:
        """Note that an entry is used now."""
        entry.used = time.time()
        with contextlib.suppress(OSError):
            os.utime(entry.folder)

    def pin(self, entry: Entry, pinned: bool) -> None:
        """Let an entry stay whatever the limits are, or take that back."""
        entry.facts["pinned"] = pinned
        data = json.dumps(entry.facts).encode()
        write_atomically(os.path.join(entry.folder, FACTS), data, 0o600)
        with contextlib.suppress(OSError):
            os.utime(entry.folder, (entry.used, entry.used))

    def note_checked(self, entry: Entry) -> None:
        """Note that all bytes of an entry were proven after it was kept."""
        entry.facts.pop("unchecked", None)
        data = json.dumps(entry.facts).encode()
        write_atomically(os.path.join(entry.folder, FACTS), data, 0o600)

    def draft(self, name: str, go_on: Callable[[str], bool] = lambda _draft: False) -> Draft | None:
        """Lock the draft of an entry; what a killed process has left in it is there.

        Args:
            name: The name of the entry.
            go_on: Called often while another process makes the entry, with the draft's folder;
                whether to wait on.

        Returns:
            The draft, or None: `go_on` did not want to wait.
        """
        folder = os.path.join(self.drafts, name)
        while True:
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, _OURS)
            held = hold(folder)
            if held is not None:
                return Draft(self, name, folder, held)
            if not go_on(folder):
                return None
            time.sleep(_POLL)

    def drop(self, folder: str) -> bool:
        """Remove an entry or a draft; False if a process is using it."""
        held = hold(folder)
        if held is None:
            return False
        try:
            self.discard(folder)
        finally:
            held.release()
        return True

    def discard(self, folder: str) -> None:
        """Remove a folder that nobody else uses, in such a way that it is there or not."""
        gone = os.path.join(self.drafts, f"{_GONE}{os.urandom(6).hex()}")
        os.rename(folder, gone)
        remove_tree(gone)

    def make_room(self, size: int = 0, *, at_least: int = 0) -> bool:
        """Drop what was used longest ago until so many bytes more can be kept.

        Nothing goes for something that could not be kept even so.

        Args:
            size: The bytes to be kept.
            at_least: Drop at least so many bytes, whatever the limits are.

        Returns:
            Whether the limits allow it.
        """
        if time.monotonic() - self._known_at > _KNOWN:
            self._known, self._known_at = self.entries(), time.monotonic()
        room = _Room(self, self._known, size, at_least)
        if size and not room.would_fit():
            return False
        for folder in () if room.fits else listed(self.drafts):
            room.drop_draft(folder)
        for entry in self._known:
            if room.fits:
                break
            room.drop(entry)
        self._known = room.left
        return room.fits

    def sweep(self, now: float | None = None) -> list[str]:
        """Remove what is damaged, too old or too much; returns what went, in words."""
        now = time.time() if now is None else now
        went = []
        for folder in listed(self.drafts, hidden=True):
            with contextlib.suppress(OSError):
                name, age = os.path.basename(folder), now - _last_change(folder)
                if name.startswith(_GONE):
                    remove_tree(folder)
                elif (age > _DRAFT_AGE or age < -DAY) and self.drop(folder):
                    went.append(f"{name}: a download that nobody goes on with")
        for folder in listed(self.inputs):
            with contextlib.suppress(OSError):
                name = os.path.basename(folder)
                entry = _read_entry(folder, os.lstat(folder).st_mtime)
                why = "its description is damaged" if entry is None else entry.fault()
                if not why and entry is not None and not entry.pinned:
                    unused = now - entry.used
                    why = f"not used for {unused / DAY:.0f} days" if unused > self.age else ""
                if why and self.drop(folder):
                    went.append(f"{name}: {why}")
        before = {entry.name for entry in self.entries()}
        self.make_room()
        over = sorted(before - {entry.name for entry in self.entries()})
        return [*went, *(f"{name}: to stay within the limits" for name in over)]

    @property
    def age(self) -> float:
        return self.settings.age


class _Room:
    """What is to go so that something else can be kept."""

    def __init__(self, store: Store, entries: list[Entry], size: int, at_least: int) -> None:
        self._store, self._settings, self._size = store, store.settings, size
        self._at_least = at_least
        self.left = list(entries)

    @property
    def fits(self) -> bool:
        return self._short_of_quota <= 0 and self._short_of_disk <= 0

    def would_fit(self) -> bool:
        """Whether it would fit if everything went that may go."""
        loose = [entry for entry in self.left if not entry.pinned]
        freed = sum(entry.size for entry in loose)
        return self._short_of_quota <= freed and self._short_of_disk <= freed

    @property
    def _short_of_quota(self) -> int:
        if len(self.left) > _MOST_ENTRIES:
            return 1
        if self._settings.quota is None:
            return 0
        total = sum(entry.size for entry in self.left) + self._size
        return total - int(self._settings.quota)

    @property
    def _short_of_disk(self) -> int:
        spare = int(self._settings.keep_free) - (free_bytes(self._store.root) - self._size)
        return max(spare, self._at_least)

    def drop_draft(self, folder: str) -> None:
        """Drop a download that nobody goes on with now."""
        if not self.fits:
            with contextlib.suppress(OSError):
                size = sum(os.lstat(os.path.join(folder, n)).st_blocks for n in os.listdir(folder))
                if self._store.drop(folder):
                    self._at_least -= size * 512

    def drop(self, entry: Entry) -> None:
        """Drop an entry, if that helps: the disk space of one that a job has linked stays taken."""
        with contextlib.suppress(OSError):
            helps = self._short_of_quota > 0 or os.lstat(entry.data).st_nlink == 1
            if not entry.pinned and helps and self._store.drop(entry.folder):
                self.left.remove(entry)
                self._at_least -= entry.size


def open_store(root: str | None) -> Store | None:
    """The store at this path; None if there is none that this user can use."""
    if not root:
        return None
    with contextlib.suppress(NodeError):
        return Store(root)
    return None


def discard_foreign(path: str) -> None:
    """Remove what root finds in the place of a user's folder; links are not followed."""
    if stat.S_ISDIR(os.lstat(path).st_mode):
        import shutil

        shutil.rmtree(path, ignore_errors=True)  # changes no mode: it may not be what it was
    else:
        os.unlink(path)


def free_bytes(folder: str) -> int:
    """The bytes that this user can still write to the file system."""
    about = os.statvfs(folder)
    return about.f_bavail * about.f_frsize


def _settings(root: str) -> Settings:
    """The settings of a store whose folder and marker nobody else can replace."""
    about = os.lstat(root)
    if not stat.S_ISDIR(about.st_mode):
        raise _unusable(root, "it is not a folder")
    if about.st_uid not in (os.geteuid(), 0):
        raise _unusable(root, f"it belongs to another user ({about.st_uid})")
    if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not about.st_mode & stat.S_ISVTX:
        raise _unusable(root, "others can write to it, and it is not sticky as /tmp is")
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        marker = os.open(os.path.join(root, MARKER), flags)
    except FileNotFoundError:
        raise _unusable(root, f"it has no {MARKER}") from None
    with open(marker, "rb") as file:
        about = os.fstat(marker)
        why = why_untrusted(about, by_root=True)
        if why or not stat.S_ISREG(about.st_mode):
            raise _unusable(root, f"its {MARKER} {why or 'is not a file'}")
        try:
            return Settings.read(file.read(_MOST_FACTS))
        except (ValueError, RecursionError) as error:
            raise _unusable(root, f"its {MARKER} is damaged: {error}") from None


def own_folder(folder: str) -> None:
    """Make a folder for this user alone; refuse one that is not."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, _OURS)
    about = os.lstat(folder)
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
        raise _unusable(folder, "it is not a folder of this user's own")
    if stat.S_IMODE(about.st_mode) & 0o077:
        os.chmod(folder, _OURS)


def _unusable(folder: str, why: str) -> NodeError:
    return NodeError(f"the store {folder} cannot be used: {why}")


def _read_entry(folder: str, used: float) -> Entry | None:
    """An entry, unless its description is missing or damaged."""
    facts = read_facts(folder)
    return None if facts is None else Entry(folder, facts, used)


def read_facts(folder: str) -> dict[str, Any] | None:
    """The description of an entry; None if it is missing or damaged."""
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        with open(os.open(os.path.join(folder, FACTS), flags), "rb") as file:
            facts = json.loads(file.read(_MOST_FACTS))
        sizes = [facts[key] for key in ("size", "mtime_ns")]
        if facts["format"] != FORMAT or not all(type(n) is int and n >= 0 for n in sizes):
            return None
        return dict(facts) if 0 <= facts["kept"] < 1e12 else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def listed(folder: str, *, hidden: bool = False) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(folder)):
            if hidden or not name.startswith("."):
                yield os.path.join(folder, name)


def _last_change(folder: str) -> float:
    """When a folder or a file in it was last written to."""
    paths = [folder, *(os.path.join(folder, name) for name in os.listdir(folder))]
    return max(os.lstat(path).st_mtime for path in paths)
