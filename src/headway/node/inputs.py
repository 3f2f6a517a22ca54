"""Inputs: every declared input is in place and proven before the command starts."""

from __future__ import annotations

import contextlib
import os
import time

from headway.node.errors import LONGEST_REASON, HeadwayError, NodeError, TransferError, words_of
from headway.node.record import FIRST
from headway.node.transfer import fetch, prove
from headway.node.transfer.options import PATIENCE
from headway.node.transfer.urls import ascii_target, host_of, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from headway.node.plan import Input
    from headway.node.record import Attempt, Progress
    from headway.node.transfer.manifest import Manifest
    from headway.node.transfer.options import Snapshot

_SOURCES = 20  # that a record names at most
_WORDS = 200
_LONGEST_URL = 300
_LEAST = 60  # characters that are left for what went wrong


class _Came:
    """How an input came to be there."""

    def __init__(self, how: str, proof: str = "", source: str = "") -> None:
        self.how, self.proof, self.source = how, proof, source
        self.last: Snapshot | None = None  # its sources, if the agent fetched it


def sizes(inputs: list[Input]) -> dict[str, int | None]:
    """The bytes of each input, as far as they are declared."""
    return {each.path: each.size for each in inputs}


def missing(inputs: list[Input], attempt: Attempt) -> list[Input]:
    """The inputs that are to be fetched, as far as a glance can tell (sizes, not checksums)."""
    return [
        each
        for each in inputs
        if each.urls and not _unchanged(each, attempt) and not _plausible(each)
    ]


def stage_in(
    inputs: list[Input],
    attempt: Attempt,
    progress: Progress,
    should_stop: Callable[[], bool],
    note: Callable[[str], None],
    told: list[dict[str, object]],
    disk: int | None = None,
) -> None:
    """Bring each input to its path, prove it, and unpack it where that is wanted.

    `told` takes what the record says of them; `disk` is what the job has asked for of it.
    """
    before = {each.get("path"): each for each in attempt.inputs}
    here = 0  # bytes of inputs by now
    for each in inputs:
        begin = time.monotonic()
        progress.begin(each.path)
        if _unchanged(each, attempt) and each.path in before:
            progress.finished(_bytes_of(before[each.path]))
            told.append(before[each.path])  # an earlier segment's word on where it came from
            continue
        unpacked = None
        try:
            came = _bring(each, progress, should_stop)
            status = os.stat(each.path)
            here += status.st_size
            if each.unpack is not None:
                room = None if disk is None else max(0, disk - here)
                unpacked = _unpack(each, came, room, progress, should_stop, note)
                here += _bytes_of(unpacked) - status.st_size
        except Exception as error:
            told.append(_failed(each, time.monotonic() - begin, error, progress.snapshot))
            if isinstance(error, HeadwayError):
                error.brief = brief(each, error)
            raise
        if each.unpack is None:
            attempt.proven[each.path] = _mark(status)
        else:
            attempt.proven[each.unpack] = _folder_mark(os.stat(each.unpack))
        progress.finished(status.st_size)
        seconds = round(time.monotonic() - begin, 3)
        proof = f", proven by its {came.proof}" if came.proof else ""
        note(f"{each.path}: {status.st_size} bytes {came.how} in {seconds} s{proof}")
        sources = _sources(came.last)
        told.append(
            {
                "path": each.path,
                "source": came.source,
                "bytes": status.st_size,
                "seconds": seconds,
                "verified": came.proof in ("checksum", "manifest"),
                "proof": came.proof,
                "fetched": came.last is not None,
                "sources": sources,
                **({} if unpacked is None else {"unpacked": unpacked}),
            }
        )
        if came.last is not None and seconds >= FIRST:
            gave = [f"{s['host']}/{s['bytes']}" for s in sources if s["bytes"]]
            progress.arrived.append(
                {
                    "file": each.path,
                    "size": status.st_size,
                    "seconds": seconds,
                    "proof": came.proof or "none",
                    "from": "+".join(gave) or came.source,
                }
            )


def brief(each: Input, error: HeadwayError) -> str:
    """Which input failed, how and where it was to come from, in one short line.

    A hold's reason, `headway status` and `headway advise` show it. A URL goes in whole, without
    its query and user, or not at all: advice may ask for it.
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
    """How long a text is as a hold's reason; `Chirp.set_reason` writes it in ASCII."""
    return len(text.encode("ascii", "backslashreplace"))


def _cut(words: str, room: int) -> str:
    """The words that fit; a URL among them stays whole or goes."""
    words = words[: max(0, room) + 1]
    while words and _ascii_length(words) > room:
        words = words.rpartition(" ")[0]
    return words


def streamed(inputs: list[Input], attempt: Attempt) -> list[Input]:
    """The inputs that arrive while the command runs: not those that are here already."""
    return [
        each
        for each in inputs
        if each.streams and each.urls and not _unchanged(each, attempt) and not _plausible(each)
    ]


def pinned(each: Input, should_stop: Callable[[], bool]) -> Manifest | None:
    """The manifest of an input that streams; it stays beside the object for its readers."""
    if each.manifest is None:
        return None
    from headway.node.transfer.manifest import SUFFIX

    _stay_inside(each.path)
    patience = PATIENCE if each.patience is None else each.patience
    return _pinned(each, patience, should_stop, keep_as=f"{each.path}{SUFFIX}")


def _bring(each: Input, progress: Progress, should_stop: Callable[[], bool]) -> _Came:
    if not each.urls:
        return _take(each, should_stop)
    patience = PATIENCE if each.patience is None else each.patience
    manifest = _pinned(each, patience, should_stop)
    size, checksum = each.size, each.checksum
    if manifest is not None:
        size = manifest.size if size is None else size
        checksum = checksum or manifest.checksum
    if _plausible(each, manifest):
        wrong = prove(each.path, size=size, checksum=checksum, should_stop=should_stop)
        if wrong is None:
            return _Came("already there", _declared(each))
    if os.path.isdir(each.path):
        raise TransferError(
            f"the input {each.path} cannot be placed: a folder of that name is in the way",
            retryable=False,
            remedy="give the input another path",
        )
    _stay_inside(each.path)
    got = fetch(
        each.urls,
        each.path,
        size=each.size,
        checksum=each.checksum,
        manifest=manifest,
        watch=progress.watched,
        should_stop=should_stop,
        patience=patience,
    )
    came = _Came("fetched", got.proof, host_of(got.url))
    came.last = got.snapshot
    return came


def _unpack(
    each: Input,
    came: _Came,
    room: int | None,
    progress: Progress,
    should_stop: Callable[[], bool],
    note: Callable[[str], None],
) -> dict[str, object]:
    """Turn the archive into the folder that the command wants; returns what the record says."""
    from headway.node.unpack import unpack

    assert each.unpack is not None
    begin = time.monotonic()
    _stay_inside(each.unpack)
    progress.file = f"{each.path}, unpacking"
    proven = came.proof in ("checksum", "manifest")
    made = unpack(each.path, each.unpack, room=room, proven=proven, should_stop=should_stop)
    seconds = round(time.monotonic() - begin, 3)
    note(f"{each.path}: unpacked to {each.unpack} in {seconds} s: {made.files} files, {made.bytes}"
         " bytes")  # fmt: skip
    for left in made.left_out:
        note(f"{each.path}: left out {left}")
    return {
        "path": each.unpack,
        "files": made.files,
        "bytes": made.bytes,
        "seconds": seconds,
        "left_out": made.left_count,
    }


def _bytes_of(told: dict[str, object]) -> int:
    count = told.get("bytes")
    return count if isinstance(count, int) else 0


def _pinned(
    each: Input, patience: float, should_stop: Callable[[], bool], keep_as: str | None = None
) -> Manifest | None:
    """One that is here already, from the job's files or an earlier segment, or that at the URLs."""
    if each.manifest is None:
        return None
    from headway.node.transfer.fetch import pinned_manifest
    from headway.node.transfer.manifest import MAX_MANIFEST, SUFFIX, read_manifest

    with contextlib.suppress(OSError, TransferError), open(f"{each.path}{SUFFIX}", "rb") as file:
        return read_manifest(file.read(MAX_MANIFEST + 1), pin=each.manifest)
    try:
        return pinned_manifest(
            each.urls,
            each.manifest,
            folder=os.curdir,
            patience=patience,
            should_stop=should_stop,
            keep_as=keep_as,
        )
    except TransferError as error:
        error.brief = f"its manifest: {error.brief or words_of(error)}"
        raise


def _take(each: Input, should_stop: Callable[[], bool]) -> _Came:
    """An input that HTCondor has brought, and its manifest if one is pinned."""
    size, checksum = each.size, each.checksum
    if each.manifest is not None:
        from headway.node.transfer.manifest import MAX_MANIFEST, SUFFIX, read_manifest

        name = f"{each.arrives_as}{SUFFIX}"
        packed = f"{each.path}{SUFFIX}"  # among the job's files
        try:
            with open(packed if os.path.exists(packed) else name, "rb") as file:
                manifest = read_manifest(file.read(MAX_MANIFEST + 1), pin=each.manifest)
        except OSError as error:
            raise _not_brought(name, error) from None
        size = manifest.size if size is None else size
        checksum = checksum or manifest.checksum
    _take_brought(each)
    wrong = prove(each.path, size=size, checksum=checksum, should_stop=should_stop)
    if wrong is not None:
        raise TransferError(
            f"{each.path} was brought by HTCondor, but {wrong}",
            retryable=True,
            remedy="another try may get a good copy; if not, check size and checksum",
        )
    return _Came("brought by HTCondor", _declared(each))


def _declared(each: Input) -> str:
    """What an input is proven by when it is proven here, from end to end."""
    if each.manifest is not None:
        return "manifest"
    if each.checksum is not None:
        return "checksum"
    return "size" if each.size is not None else ""


def _failed(
    each: Input, seconds: float, error: Exception, last: Snapshot | None
) -> dict[str, object]:
    return {
        "path": each.path,
        "source": "",
        "bytes": last.bytes if last is not None else 0,
        "seconds": round(seconds, 3),
        "verified": False,
        "proof": "",
        "fetched": False,
        "sources": _sources(last),
        "error": words_of(error)[:_WORDS],
    }


def _sources(last: Snapshot | None) -> list[dict[str, object]]:
    return describe_sources([] if last is None else [each.as_json() for each in last.sources])


def describe_sources(sources: list[dict[str, Any]]) -> list[dict[str, object]]:
    """Who gave what, and what was last wrong with whom; the words hold nothing of a URL's query."""
    told = []
    for each in sorted(sources, key=lambda source: -source["bytes"])[:_SOURCES]:
        facts: dict[str, object] = {
            name: each[name] for name in ("host", "state", "bytes", "wasted")
        }
        words, phase = each["words"], each["phase"]
        if words:
            facts["fault"] = f"{words} ({phase})" if phase else words
        told.append(facts)
    return told


def _plausible(each: Input, manifest: Manifest | None = None) -> bool:
    """Whether a file of the right size is there; where nothing is declared nothing is provable."""
    size = each.size if manifest is None else manifest.size
    if size is None and each.checksum is None:
        return False
    try:
        status = os.stat(each.path)
    except OSError:
        return False
    return size is None or status.st_size == size


def _unchanged(each: Input, attempt: Attempt) -> bool:
    """Whether an earlier segment of this attempt has proven the very file that is here."""
    try:
        if each.unpack is not None:
            return attempt.proven.get(each.unpack) == _folder_mark(os.stat(each.unpack))
        return attempt.proven.get(each.path) == _mark(os.stat(each.path))
    except OSError:
        return False


def _mark(status: os.stat_result) -> list[int]:
    return [status.st_size, status.st_mtime_ns, status.st_ino]


def _folder_mark(status: os.stat_result) -> list[int]:
    """What stays the same of a folder while the command works in it."""
    return [0, 0, status.st_ino]


def _take_brought(each: Input) -> None:
    """HTCondor puts a file under the name in its URL; the command wants it at its path."""
    name = each.arrives_as
    if os.path.exists(each.path):
        return
    if not os.path.exists(name):
        raise _not_brought(name)
    _stay_inside(each.path)
    try:
        os.makedirs(os.path.dirname(each.path) or os.curdir, exist_ok=True)
        os.rename(name, each.path)
    except OSError as error:
        raise NodeError(f"{name} cannot be moved to {each.path}: {error.strerror}") from None


def _not_brought(name: str, error: OSError | None = None) -> TransferError:
    if error is not None and not isinstance(error, FileNotFoundError):
        return TransferError(f"{name} cannot be read: {error.strerror}", retryable=True)
    return TransferError(
        f"{name} is not in the job's folder; HTCondor did not bring it",
        retryable=False,
        remedy="look at the transfer events of the job and at its URL",
    )


def _stay_inside(path: str) -> None:
    """A link that came with the payload must not lead an input out of the job's folder."""
    root = os.path.realpath(os.curdir)
    folder = os.path.realpath(os.path.dirname(path) or os.curdir)
    if os.path.commonpath([root, folder]) != root:
        raise TransferError(
            f"the input {path} would be written outside the job's folder, through a link",
            retryable=False,
        )
