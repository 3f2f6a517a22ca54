"""Inputs in the store: kept once they are proven, and given to the next job that wants them.

What says that a kept input is the wanted one: the pin of its manifest or its checksum, which come
from the job's description; for an input without either, the version that a server tells for the
URL now. Before it is given away, it is looked at: size, time, owner and some pieces of its bytes.
Where several people share an account, all of its bytes are proven, by what the job declares.

Jobs that want the same input at once share one download: the others wait for the first.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import random
import time

from headway.node.errors import DiskError, NodeError, NoSpaceError, Stopped, words_of
from headway.node.host import store_folder
from headway.node.store.folder import Store, hold
from headway.node.transfer.checksum import file_digests, prove
from headway.node.transfer.head_requests import ask_version
from headway.node.transfer.urls import authority, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from headway.node.store.folder import Draft, Entry, Held
    from headway.node.transfer import Fetched
    from headway.node.transfer.manifest import Manifest
    from headway.node.transfer.source import Identity

SMALL = 16 << 20  # bytes; what is not larger is copied, so that the job may change it
_PIECE = 256 << 10
_PIECES = 16  # that are looked at before an entry is given away
_DAMAGED = (ArithmeticError, KeyError, TypeError, ValueError)  # what odd descriptions may raise
_STRONG = ("sha256", "md5")
_NEWS = 30.0  # seconds for which what a server has told of its version is news
_SETTLED = 60.0  # seconds after which a date of change tells one version from the next


class Wanted:
    """An input as a job declares it."""

    def __init__(
        self,
        urls: Sequence[str],
        *,
        size: int | None = None,
        checksum: str | None = None,
        pin: str | None = None,
    ) -> None:
        self.urls, self.size, self.checksum, self.pin = urls, size, checksum, pin
        # what a server has told of its version, for an input without a proof
        self.version: dict[str, Any] | None = None
        self.asked: float | None = None  # when it was

    @property
    def name(self) -> str:
        """The name of its entry: what proves it, or else where it comes from."""
        if self.pin is not None:
            return f"manifest-{self.pin.partition(':')[2]}"
        where = hashlib.sha256("\n".join(self.urls).encode()).hexdigest()[:32]
        if self.checksum is None:
            return f"url-{where}"
        algorithm, _, digits = self.checksum.partition(":")
        return f"{algorithm}-{digits}" + ("" if algorithm in _STRONG else f"-{where}")

    @property
    def proven(self) -> bool:
        """Whether the job declares what its bytes must be."""
        return self.pin is not None or self.checksum is not None


class Taken:
    """An input that came out of the store."""

    def __init__(self, entry: Entry, how: str) -> None:
        self.entry, self.how = entry, how

    @property
    def proof(self) -> str:
        """What its bytes were proven by when they were kept."""
        return str(self.entry.facts.get("proof", ""))


def open_inputs(
    environment: Mapping[str, str],
    note: Callable[[str], None],
    should_stop: Callable[[], bool] = lambda: False,
) -> InputStore | None:
    """The inputs in this node's store, if it has one that this user can use."""
    root = store_folder(environment)
    try:
        return InputStore(Store(root), note, should_stop) if root else None
    except NodeError as error:
        note(error.message)
        return None


class InputStore:
    """The inputs of one user in a store.

    Args:
        store: The store.
        note: Called with a sentence about what was not as it should be.
        should_stop: Asked often; Stopped is raised when it says so.
    """

    def __init__(
        self,
        store: Store,
        note: Callable[[str], None] = lambda _words: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._store, self._note, self._should_stop = store, note, should_stop
        self._held: list[Held] = []  # the locks on inputs that are read in place

    def has(self, wanted: Wanted) -> bool:
        """Whether it keeps this input, as far as a look at its size and time tells."""
        usable = wanted.proven and self._keeps(wanted)
        entry = self._store.find(wanted.name) if usable else None
        return entry is not None and wanted.size in (None, entry.size)

    def hold_again(self, path: str) -> bool:
        """Lock an input that an earlier segment left as a link into the store.

        False: what the link leads to may go at any time. Another file needs no lock.
        """
        try:
            place = os.path.dirname(os.readlink(path))
        except OSError:
            return True
        if os.path.dirname(place) != self._store.inputs:
            return True
        held = hold(place, shared=True)
        if held is None or not os.path.exists(path):
            return False
        self._held.append(held)
        return True

    def outlive_exec(self) -> None:
        """Keep the locks when this process becomes another program."""
        for each in self._held:
            each.outlive_exec()

    def take(self, wanted: Wanted, path: str, manifest: Manifest | None = None) -> Taken | None:
        """Put a kept input to `path`; None if there is none, or not the right one."""
        try:
            entry = self._store.find(wanted.name) if self._keeps(wanted) else None
            if entry is None or wanted.size not in (None, entry.size):
                return None
            if not wanted.proven and not self._ask_version(wanted):
                return None  # nobody can say whether it is still the same
            why = self._objection(entry, wanted, manifest)
            if not why:
                return self._give(entry, path)
        except OSError as error:
            self._note(f"the store cannot be read: {error.strerror}")
            return None
        except _DAMAGED as error:
            why = f"its description is damaged: {error!r:.80}"
        self._note(f"{os.path.basename(path)}: the copy in the store is not used: {why}")
        with contextlib.suppress(OSError):
            self._store.drop(os.path.join(self._store.inputs, wanted.name))
        return None

    def bring(
        self,
        wanted: Wanted,
        path: str,
        fetch: Callable[[str], Fetched],
        *,
        manifest: Manifest | None = None,
        patience: float,
        waits: Callable[[], None] = lambda: None,
    ) -> Fetched | Taken:
        """Download an input into the store and put it to `path`; or wait for who does.

        Whatever is wrong with the store, the input is downloaded to `path` then.

        Args:
            wanted: The input.
            path: Where the job wants it.
            fetch: Downloads it to the path that it is given.
            manifest: What each chunk must be.
            patience: The seconds without a byte after which nobody waits for another's download.
            waits: Called once if another job is downloading it.

        Returns:
            What `fetch` returned, or what another job has brought meanwhile.
        """
        draft = None
        try:
            go_on = _Patience(patience, self._should_stop, waits)
            draft = self._begin(wanted, manifest, go_on)
            if draft is not None:
                got = self._fill(draft, wanted, path, fetch, manifest)
                if got is not None:
                    return got
        except (DiskError, OSError, *_DAMAGED) as error:
            self._note(f"{os.path.basename(path)} is not kept in the store: {words_of(error)}")
            if draft is not None and isinstance(error, DiskError):
                with contextlib.suppress(OSError):  # what is there may be why the disk is full
                    draft.remove()
        finally:
            if draft is not None:
                draft.close()
        return fetch(path)

    def prefetch(
        self, wanted: Wanted, fetch: Callable[[str], Fetched], manifest: Manifest | None = None
    ) -> tuple[str, Fetched | None]:
        """Download an input for a job that will come for it.

        One without a proof is kept by the checksum that it is found to have: whoever asks for it by
        that checksum knows that it is what came now.

        Args:
            wanted: The input.
            fetch: Downloads it to the path that it is given.
            manifest: What each chunk must be.

        Returns:
            That checksum, or an empty text; and what `fetch` returned, if it was called: neither if
            the input is here, or another job is downloading it.

        Raises:
            NodeError: The store does not keep it.
            TransferError: It cannot be downloaded.
            OSError: The disk fails.
        """
        store, size = self._store, wanted.size if manifest is None else manifest.size
        if not store.settings.keeps_inputs:
            raise NodeError("the node keeps no inputs")
        told = None if wanted.proven else self._ask_version(wanted)
        if told is not None:
            size = told["size"]
        elif not wanted.proven:
            raise NodeError("no server tells which version of it there is")
        kept = store.find(wanted.name) if self._keeps(wanted) else None
        if kept is not None and (told is None or _is_same(told, kept.facts["version"])):
            return "", None
        if size is not None and not store.make_room(size):
            raise NodeError("the node's store is full")
        draft = store.draft(wanted.name)
        if draft is None:
            return "", None  # another job is downloading it
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(draft.data)
            got, checksum, name = fetch(draft.data), "", wanted.name
            if not wanted.proven:
                if not self._is_as_told(wanted, got):
                    raise NodeError("it changed while it was being downloaded")
                checksum = f"sha256:{file_digests(draft.data, self._should_stop)['sha256']}"
                name = Wanted(wanted.urls, checksum=checksum).name
            about = {"proof": got.proof or "size", "seconds": round(got.seconds, 3)}
            draft.finish(self._facts(wanted, draft.data, about), name)
            return checksum, got
        except DiskError:
            draft.remove()
            raise
        finally:
            draft.close()

    def take_prefetched(self, wanted: Wanted, path: str) -> Taken | None:
        """Put what was prefetched to `path`, if a server still has the same version.

        `wanted` has the checksum that `prefetch` returned.
        """
        return self.take(wanted, path) if self._ask_version(wanted) is not None else None

    def add(self, wanted: Wanted, path: str, proof: str, *, checked: bool) -> None:
        """Keep a file that a job has; it can no longer be written to.

        Nothing happens if it cannot be kept.

        Args:
            wanted: The input that it is.
            path: Where it is.
            proof: What its bytes were proven by.
            checked: Nobody can have written to it since; else whoever takes it out proves it.
        """
        store, draft = self._store, None
        try:
            size = os.path.getsize(path)
            if not wanted.proven or not self._keeps(wanted) or store.find(wanted.name) is not None:
                return
            draft = store.draft(wanted.name) if store.make_room(size) else None
            if draft is None:
                return
            with contextlib.suppress(FileNotFoundError):
                os.unlink(draft.data)
            try:
                os.link(path, draft.data, follow_symlinks=False)
            except OSError:
                if size > SMALL:
                    raise
                _copy(path, draft.data)
            about = {"proof": proof} if checked else {"proof": proof, "unchecked": True}
            draft.finish(self._facts(wanted, draft.data, about))
        except OSError as error:
            self._note(f"{os.path.basename(path)} is not kept in the store: {error.strerror}")
        finally:
            if draft is not None:
                draft.close()

    def _keeps(self, wanted: Wanted) -> bool:
        settings = self._store.settings
        return settings.keeps_inputs and (wanted.proven or not settings.shared_account)

    def _begin(
        self, wanted: Wanted, manifest: Manifest | None, go_on: Callable[[str], bool]
    ) -> Draft | None:
        """The locked draft; None if this input is not to be kept, or cannot be."""
        store, size = self._store, wanted.size if manifest is None else manifest.size
        if not self._keeps(wanted):
            return None
        if not wanted.proven:
            told = self._ask_version(wanted)
            if told is None:
                return None
            size = told["size"]
        if size is not None and not store.make_room(size):
            return None
        return store.draft(wanted.name, go_on)

    def _fill(
        self,
        draft: Draft,
        wanted: Wanted,
        path: str,
        fetch: Callable[[str], Fetched],
        manifest: Manifest | None,
    ) -> Fetched | Taken | None:
        """Make the draft an entry, and give it to the job; None: the job must fetch for itself."""
        taken = self.take(wanted, path, manifest)  # somebody may have brought it meanwhile
        if taken is not None:
            with contextlib.suppress(OSError):
                draft.remove()
            return taken
        got: Fetched | None = None
        about: dict[str, Any] = {"proof": "manifest" if wanted.pin else "checksum"}
        # It may be from a process that was killed before it made it an entry.
        found = wanted.proven and os.path.exists(draft.data)
        if not found or self._whole(draft.data, wanted, manifest) is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(draft.data)
            got = self._fetch(draft, fetch)
            about = {"proof": got.proof, "seconds": round(got.seconds, 3)}
            if not wanted.proven and not self._is_as_told(wanted, got):
                _move(draft.data, path)
                return got
        try:
            entry = draft.finish(self._facts(wanted, draft.data, about))
        except BlockingIOError:  # a job reads an older version in place
            _move(draft.data, path)
            return got
        draft.close()  # who reads it in place holds a lock of its own
        taken = self._give(entry, path)
        self._store.make_room()
        return got or taken

    def _fetch(self, draft: Draft, fetch: Callable[[str], Fetched]) -> Fetched:
        try:
            return fetch(draft.data)
        except NoSpaceError:
            if not self._store.make_room(at_least=SMALL):
                raise
        return fetch(draft.data)

    def _is_as_told(self, wanted: Wanted, got: Fetched) -> bool:
        """Whether the bytes that came are of the version that a server had told before."""
        told, identity = wanted.version, got.identity
        if told is None or identity is None or got.bytes != told["size"]:
            return False
        came = {**identity.as_json(), "size": got.bytes, "host": authority(got.url)}
        return _is_same(came, told)

    def _facts(self, wanted: Wanted, data: str, about: dict[str, Any]) -> dict[str, Any]:
        size = os.path.getsize(data)
        pieces = [(at, min(size, at + _PIECE)) for at in _places(size)]
        return {
            **about,
            "urls": [shown(url) for url in wanted.urls],
            "checksum": wanted.checksum,
            "manifest": wanted.pin,
            "version": wanted.version,
            "pieces": [[begin, end, digest(data, begin, end)] for begin, end in pieces],
        }

    def _objection(self, entry: Entry, wanted: Wanted, manifest: Manifest | None) -> str | None:
        """Why an entry is not what the job wants."""
        if wanted.version is not None and not _is_same(wanted.version, entry.facts["version"]):
            return "the object at its URL has changed"
        unchecked = entry.facts.get("unchecked", False)
        if self._store.settings.shared_account or unchecked:
            wrong = self._whole(entry.data, wanted, manifest)
            if wrong is None and unchecked:
                self._store.note_checked(entry)
            return wrong
        pieces = entry.facts["pieces"]
        if manifest is not None:
            pieces = _chunks(manifest)
        for begin, end, expected in pieces:
            if digest(entry.data, begin, end) != expected:
                return f"its bytes from {begin} to {end} were damaged"
        return None

    def _ask_version(self, wanted: Wanted) -> dict[str, Any] | None:
        """What a server says of its version, if that tells it from every other one."""
        now = time.monotonic()
        if wanted.asked is None or now - wanted.asked > _NEWS:
            told = ask_version(wanted.urls, self._should_stop)
            wanted.asked, wanted.version = time.monotonic(), None
            if told is not None and _is_telling(told[0]):
                wanted.version = {**told[0].as_json(), "host": authority(told[1])}
        return wanted.version

    def _whole(self, path: str, wanted: Wanted, manifest: Manifest | None) -> str | None:
        size, checksum = wanted.size, wanted.checksum
        if manifest is not None:
            size, checksum = manifest.size, checksum or manifest.checksum
        return prove(path, size=size, checksum=checksum, should_stop=self._should_stop)

    def _give(self, entry: Entry, path: str) -> Taken:
        """Put the data to where the job wants it: a copy, a second name, or a link to it."""
        self._store.touch(entry)
        os.makedirs(os.path.dirname(path) or os.curdir, exist_ok=True)
        if entry.size <= SMALL:
            _copy(entry.data, path)
            return Taken(entry, "copied")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        try:
            os.link(entry.data, path, follow_symlinks=False)
            return Taken(entry, "linked")
        except OSError:  # another file system, or another mount of the same one
            held = hold(entry.folder, shared=True)
            if held is None:
                raise
            self._held.append(held)
            os.symlink(entry.data, path)
            return Taken(entry, "read in place")


class _Patience:
    """Whether to wait on for another job's download: while its bytes arrive."""

    def __init__(
        self, patience: float, should_stop: Callable[[], bool], waits: Callable[[], None]
    ) -> None:
        self._patience, self._should_stop, self._waits = patience, should_stop, waits
        self._seen: object = None
        self._since = 0.0

    def __call__(self, draft: str) -> bool:
        if self._should_stop():
            raise Stopped("the transfer was stopped")
        now = time.monotonic()
        if self._seen is None:
            self._waits()
        seen = _signs_of_life(draft)
        if seen != self._seen:
            self._seen, self._since = seen, now
        return now - self._since < self._patience


def _signs_of_life(folder: str) -> list[tuple[str, int, int]]:
    """What changes in a folder while a download is under way."""
    found = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for each in entries:
            about = each.stat(follow_symlinks=False)
            found.append((each.name, about.st_blocks, about.st_mtime_ns))
    return sorted(found)


def digest(path: str, begin: int, end: int) -> str:
    """The sha256 of a part of a file, in hex."""
    with open(path, "rb", buffering=0) as file:
        file.seek(begin)
        hasher, left = hashlib.sha256(), end - begin
        while left > 0 and (piece := file.read(min(left, 1 << 20))):
            hasher.update(piece)
            left -= len(piece)
        return hasher.hexdigest()


def _places(size: int) -> list[int]:
    """Where the pieces begin: the first, the last, and some in between."""
    last = max(0, size - _PIECE)
    between = (random.randrange(last + 1) for _ in range(_PIECES - 2))  # noqa: S311
    return sorted({0, last, *between}) if size else []


def _chunks(manifest: Manifest) -> list[tuple[int, int, str]]:
    """Some chunks of an object, and what they must be."""
    wanted = max(1, _PIECES * _PIECE // manifest.chunk_size)
    count = min(manifest.chunks, wanted)
    size = manifest.chunk_size
    return [
        (n * size, min(manifest.size, (n + 1) * size), manifest.digests[n].hex())
        for n in random.sample(range(manifest.chunks), count)
    ]


def _is_telling(identity: Identity) -> bool:
    """Whether what a server says tells this version from the next one."""
    from email.utils import parsedate_to_datetime

    if identity.etag or identity.digests:
        return True
    try:
        changed = parsedate_to_datetime(identity.modified).timestamp()
    except (TypeError, ValueError, OverflowError):
        return False
    return time.time() - changed > _SETTLED


def _is_same(told: dict[str, Any], kept: dict[str, Any]) -> bool:
    """Whether two answers speak of the same version of an object."""
    if told["size"] != kept["size"]:
        return False
    common = told["digests"].keys() & kept["digests"].keys()
    if common:
        return all(told["digests"][name] == kept["digests"][name] for name in common)
    etags = told["etag"], kept["etag"]
    if all(etags) and (told["host"] == kept["host"] or etags[0] == etags[1]):
        return bool(etags[0] == etags[1])
    # servers make ETags in ways of their own, while copies keep their dates
    return bool(told["modified"]) and told["modified"] == kept["modified"]


def _copy(source: str, target: str) -> None:
    """Copy a file, whole or not at all; the job may write to it."""
    from headway.node.checkpoint import copy_file

    part = f"{target}.{os.urandom(4).hex()}"
    try:
        copy_file(source, part)
        os.chmod(part, 0o644)
        os.replace(part, target)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(part)


def _move(source: str, target: str) -> None:
    """Give a download that cannot be kept to the job alone."""
    os.makedirs(os.path.dirname(target) or os.curdir, exist_ok=True)
    try:
        os.rename(source, target)
        os.chmod(target, 0o644)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy(source, target)
