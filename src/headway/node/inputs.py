"""Inputs: every declared input is in place and verified before the command starts."""

from __future__ import annotations

import contextlib
import os
import time

from headway.node.errors import LONGEST_REASON, HeadwayError, NodeError, TransferError, words_of
from headway.node.record import FIRST, describe_sources
from headway.node.store.inputs import Wanted
from headway.node.transfer import Fetched, fetch, prove
from headway.node.transfer.options import PATIENCE
from headway.node.transfer.urls import ascii_target, host_of, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from headway.node.plan import PlannedInput
    from headway.node.record import Attempt, Progress
    from headway.node.store.inputs import InputStore, Taken
    from headway.node.transfer.manifest import Manifest
    from headway.node.transfer.options import Snapshot

_WORDS = 200
_LONGEST_URL = 300
_LEAST = 60  # characters that are left for what went wrong


class _Staged:
    """How an input came to be in its place."""

    def __init__(
        self, how: str, proof: str, source: str = "", snapshot: Snapshot | None = None
    ) -> None:
        self.how, self.proof, self.source = how, proof, source
        self.snapshot = snapshot  # of the download, if the agent fetched it

    @property
    def verified(self) -> bool:
        return self.proof in ("checksum", "manifest")


def missing(
    inputs: list[PlannedInput], attempt: Attempt, store: InputStore | None = None
) -> list[PlannedInput]:
    """The inputs to fetch; a quick look at sizes, not at checksums."""
    return [
        each
        for each in inputs
        if each.urls
        and not _unchanged(each, attempt)
        and not _plausible(each)
        and not (store is not None and each.store and store.has(wanted(each)))
    ]


def stage_in(
    inputs: list[PlannedInput],
    attempt: Attempt,
    progress: Progress,
    should_stop: Callable[[], bool],
    note: Callable[[str], None],
    records: list[dict[str, Any]],
    disk: int | None = None,
    store: InputStore | None = None,
) -> None:
    """Bring each input to its path, verify it, and unpack it if the plan says so.

    `records` takes an entry for each input; `disk`: the bytes that the job requested; `store`: the
    node's.
    """
    earlier = {each.get("path"): each for each in attempt.inputs}
    used = 0  # bytes of inputs so far
    for each in inputs:
        begin = time.monotonic()
        progress.begin(each.path)
        held = store is None or store.hold_again(each.path)
        if held and _unchanged(each, attempt) and each.path in earlier:
            progress.finished(_bytes_of(earlier[each.path]))
            records.append(earlier[each.path])  # an earlier segment knows where it came from
            continue
        try:
            usable = store if each.store else None
            staged = _bring(each, progress, should_stop, usable, may_stay=held)
            size = os.path.getsize(each.path)
            used += size
            if each.unpack is not None:
                room = None if disk is None else max(0, disk - used)
                unpacked = _unpack(each, staged.verified, room, progress, should_stop, note)
                used += _bytes_of(unpacked) - size
        except Exception as error:
            last = progress.snapshot
            entry = _entry(each, _Staged("failed", ""), last.bytes if last else 0, begin, last)
            records.append({**entry, "error": words_of(error)[:_WORDS]})
            if isinstance(error, HeadwayError):
                error.brief = brief(each, error)
            raise
        attempt.proven[each.unpack or each.path] = mark(each)
        progress.finished(size)
        entry = _entry(each, staged, size, begin, staged.snapshot)
        records.append(entry if each.unpack is None else {**entry, "unpacked": unpacked})
        seconds, proof = entry["seconds"], staged.proof
        verified = f", verified by its {proof}" if proof else ""
        note(f"{each.path}: {size} bytes {staged.how} in {seconds} s{verified}")
        if staged.snapshot is not None and seconds >= FIRST:
            gave = "+".join(f"{s['host']}/{s['bytes']}" for s in entry["sources"] if s["bytes"])
            line = {"file": each.path, "size": size, "seconds": seconds, "proof": proof or "none"}
            progress.arrived.append({**line, "from": gave or staged.source})


def _entry(
    each: PlannedInput, staged: _Staged, size: int, begin: float, last: Snapshot | None
) -> dict[str, Any]:
    """What the record says about an input."""
    return {
        "path": each.path,
        "source": staged.source,
        "bytes": size,
        "seconds": round(time.monotonic() - begin, 3),
        "verified": staged.verified,
        "proof": staged.proof,
        "fetched": staged.snapshot is not None,
        "sources": describe_sources(last.as_json() if last is not None else None),
    }


def brief(each: PlannedInput, error: HeadwayError) -> str:
    """Which input failed, how, and where it should have come from, in one short line.

    A hold's reason, `headway status` and `headway advise` show it. It has a complete URL, without
    its query and user, or none: advice may send a request to it.
    """
    words = error.brief or words_of(error)
    lead = f"the input '{each.path}' did not arrive: "
    for known in (lead, f"{each.path} did not arrive: "):
        words = words[len(known) :] if words.startswith(known) else words
    url = ascii_target(shown(each.urls[0])) if each.urls else ""
    url = f" ({url})" if url and url not in words else ""
    room = LONGEST_REASON - _ascii_length(lead)
    if len(url) > min(_LONGEST_URL, room - _LEAST):
        url = ""
    return f"{lead}{_cut(words, room - len(url))}{url}"


def _ascii_length(text: str) -> int:
    """The length of a text as a hold's reason, which `set_reason` writes in ASCII."""
    return len(text.encode("ascii", "backslashreplace"))


def _cut(words: str, room: int) -> str:
    """The words that fit; a URL among them is never cut."""
    words = words[: max(0, room) + 1]
    while words and _ascii_length(words) > room:
        words = words.rpartition(" ")[0]
    return words


def streamed(
    inputs: list[PlannedInput], attempt: Attempt, store: InputStore | None = None
) -> list[PlannedInput]:
    """The inputs that arrive while the command runs; not those that are already here."""
    return [each for each in missing(inputs, attempt, store) if each.streams]


def pinned(
    each: PlannedInput,
    should_stop: Callable[[], bool],
    *,
    keep: bool = False,
    store: InputStore | None = None,
) -> Manifest | None:
    """The manifest of an input: from the job's files, from an earlier segment, or from its URLs.

    `keep`: it stays beside the object, for those who read the object while it arrives. `store`: of
    the node, where it may be already.
    """
    if each.manifest is None:
        return None
    from headway.node.transfer.fetch import pinned_manifest
    from headway.node.transfer.manifest import SUFFIX, manifest_url, open_manifest

    path = f"{each.path}{SUFFIX}"
    if keep or store is not None:
        _stay_inside(path)
    with contextlib.suppress(OSError, TransferError):
        return open_manifest(path, pin=each.manifest)
    mine = Wanted([manifest_url(url) for url in each.urls], checksum=each.manifest)
    try:
        if store is not None and store.take(mine, path) is not None:
            with contextlib.suppress(OSError, TransferError):
                return open_manifest(path, pin=each.manifest)
        found = pinned_manifest(
            each.urls,
            each.manifest,
            folder=os.curdir,
            patience=_patience(each),
            should_stop=should_stop,
            keep_as=path if keep or store is not None else None,
        )
        if store is not None:
            store.add(mine, path, "checksum", checked=True)
        return found
    except TransferError as error:
        error.brief = f"its manifest: {error.brief or words_of(error)}"
        raise
    finally:
        if store is not None and not keep:
            with contextlib.suppress(OSError):
                os.unlink(path)


def _bring(
    each: PlannedInput,
    progress: Progress,
    should_stop: Callable[[], bool],
    store: InputStore | None,
    *,
    may_stay: bool,
) -> _Staged:
    if not each.urls:
        return _take_transferred(each, should_stop)
    manifest = pinned(each, should_stop, keep=each.streams, store=store)
    if may_stay and _plausible(each, manifest) and not _fault(each, manifest, should_stop):
        return _Staged("already there", _declared(each))
    if os.path.isdir(each.path):
        raise TransferError(
            f"the input {each.path} cannot be placed: a folder of that name is in the way",
            retryable=False,
            remedy="give the input another path",
        )
    _stay_inside(each.path)

    download = _downloader(each, manifest, progress, should_stop)
    if store is None:
        got: Fetched | Taken = download(each.path)
    else:
        what = wanted(each)
        early = wanted(each, each.prefetched) if each.prefetched else None
        taken = store.take_prefetched(early, each.path) if early is not None else None
        got = (
            taken
            or store.take(what, each.path, manifest)
            or store.bring(what, each.path, download, manifest=manifest, patience=_patience(each))
        )
    if isinstance(got, Fetched):
        return _Staged("fetched", got.proof, host_of(got.url), got.snapshot)
    return _Staged(f"{got.how} from the node's store", _declared(each) or got.proof, "store")


def _downloader(
    each: PlannedInput,
    manifest: Manifest | None,
    progress: Progress,
    should_stop: Callable[[], bool],
) -> Callable[[str], Fetched]:
    """What downloads an input to the path that it is given."""

    def download(path: str) -> Fetched:
        return fetch(
            each.urls,
            path,
            size=each.size,
            checksum=each.checksum,
            manifest=manifest,
            watch=progress.watched,
            should_stop=should_stop,
            patience=_patience(each),
            keep=path != each.path,  # in the store the next job can go on with it
        )

    return download


def prefetch(
    each: PlannedInput,
    progress: Progress,
    should_stop: Callable[[], bool],
    store: InputStore,
    records: list[dict[str, Any]],
) -> str:
    """Bring an input into the store; returns the checksum of one that declares none."""
    begin = time.monotonic()
    progress.begin(each.path)
    manifest = pinned(each, should_stop, store=store)
    download = _downloader(each, manifest, progress, should_stop)
    checksum, got = store.prefetch(wanted(each), download, manifest)
    size = got.bytes if got is not None else 0
    progress.finished(size)
    if got is not None:
        staged = _Staged("fetched", got.proof, host_of(got.url), got.snapshot)
        records.append(_entry(each, staged, size, begin, got.snapshot))
    return checksum


def wanted(each: PlannedInput, checksum: str | None = None) -> Wanted:
    """The input as the node's store knows it; `checksum`: in place of the one it declares."""
    return Wanted(each.urls, size=each.size, checksum=checksum or each.checksum, pin=each.manifest)


def _fault(
    each: PlannedInput, manifest: Manifest | None, should_stop: Callable[[], bool]
) -> str | None:
    """What is wrong with the file that is here; None if it is as declared."""
    size, checksum = each.size, each.checksum
    if manifest is not None:
        size = manifest.size if size is None else size
        checksum = checksum or manifest.checksum
    return prove(each.path, size=size, checksum=checksum, should_stop=should_stop)


def _unpack(
    each: PlannedInput,
    verified: bool,
    room: int | None,
    progress: Progress,
    should_stop: Callable[[], bool],
    note: Callable[[str], None],
) -> dict[str, object]:
    """Unpack the archive; returns the entry for the record."""
    from headway.node.unpack import unpack

    assert each.unpack is not None
    begin = time.monotonic()
    _stay_inside(each.unpack)
    progress.file = f"{each.path}, unpacking"
    made = unpack(each.path, each.unpack, room=room, proven=verified, should_stop=should_stop)
    seconds = round(time.monotonic() - begin, 3)
    counts = f"{made.files} files, {made.bytes} bytes"
    note(f"{each.path}: unpacked to {each.unpack} in {seconds} s: {counts}")
    for left in made.left_out:
        note(f"{each.path}: left out {left}")
    return {
        "path": each.unpack,
        "files": made.files,
        "bytes": made.bytes,
        "seconds": seconds,
        "left_out": made.left_count,
    }


def _take_transferred(each: PlannedInput, should_stop: Callable[[], bool]) -> _Staged:
    """Take an input that HTCondor has transferred, and its manifest if one is pinned."""
    manifest = None
    if each.manifest is not None:
        from headway.node.transfer.manifest import SUFFIX, open_manifest

        name = f"{each.arrives_as}{SUFFIX}"
        packed = f"{each.path}{SUFFIX}"  # among the job's files
        try:
            manifest = open_manifest(packed if os.path.exists(packed) else name, pin=each.manifest)
        except FileNotFoundError:
            raise _not_transferred(name) from None
        except OSError as error:
            raise TransferError(
                f"{name} cannot be read: {error.strerror}", retryable=True
            ) from None
    _rename_transferred(each)
    wrong = _fault(each, manifest, should_stop)
    if wrong is not None:
        raise TransferError(
            f"{each.path} was transferred by HTCondor, but {wrong}",
            retryable=True,
            remedy="another try may get a good copy; if not, check size and checksum",
        )
    return _Staged("transferred by HTCondor", _declared(each))


def _rename_transferred(each: PlannedInput) -> None:
    """Move a file from the name in its URL, which HTCondor gives it, to its path."""
    name = each.arrives_as
    if os.path.exists(each.path):
        return
    if not os.path.exists(name):
        raise _not_transferred(name)
    _stay_inside(each.path)
    try:
        os.makedirs(os.path.dirname(each.path) or os.curdir, exist_ok=True)
        os.rename(name, each.path)
    except OSError as error:
        raise NodeError(f"{name} cannot be moved to {each.path}: {error.strerror}") from None


def _not_transferred(name: str) -> TransferError:
    return TransferError(
        f"{name} is not in the job's folder; HTCondor did not transfer it",
        retryable=False,
        remedy="look at the transfer events of the job and at its URL",
    )


def _declared(each: PlannedInput) -> str:
    """What an input is verified by when all of it is read here."""
    if each.manifest is not None:
        return "manifest"
    if each.checksum is not None:
        return "checksum"
    return "size" if each.size is not None else ""


def _patience(each: PlannedInput) -> float:
    return PATIENCE if each.patience is None else each.patience


def _bytes_of(entry: dict[str, object]) -> int:
    count = entry.get("bytes")
    return count if isinstance(count, int) else 0


def _plausible(each: PlannedInput, manifest: Manifest | None = None) -> bool:
    """Whether a file of the declared size is here; False if neither size nor checksum is known."""
    size = each.size if manifest is None else manifest.size
    if size is None and each.checksum is None:
        return False
    try:
        status = os.stat(each.path)
    except OSError:
        return False
    return size is None or status.st_size == size


def _unchanged(each: PlannedInput, attempt: Attempt) -> bool:
    """Whether an earlier segment of this attempt has verified the very file that is here."""
    try:
        return attempt.proven.get(each.unpack or each.path) == mark(each)
    except OSError:
        return False


def mark(each: PlannedInput) -> list[int]:
    """What changes if the input is replaced; the command may work in what was unpacked."""
    status = os.stat(each.unpack or each.path)
    if each.unpack is not None:
        return [0, 0, status.st_ino]
    return [status.st_size, status.st_mtime_ns, status.st_ino]


def _stay_inside(path: str) -> None:
    """Refuse a path that leaves the job's folder through a link in the payload."""
    root = os.path.realpath(os.curdir)
    folder = os.path.realpath(os.path.dirname(path) or os.curdir)
    if os.path.commonpath([root, folder]) != root:
        raise TransferError(
            f"the input {path} would be written outside the job's folder, through a link",
            retryable=False,
        )
