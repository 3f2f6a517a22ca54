"""Fetch: download one object to its path, from whichever of its sources are healthy.

This is the loop that watches a download and says when it is over, the errors that say why it
failed, and the download of an object's manifest.
"""

from __future__ import annotations

import contextlib
import os
import time
from urllib.parse import unquote

from headway.node.errors import (
    HeadwayError,
    ManifestError,
    NodeError,
    StalledError,
    Stopped,
    TransferError,
)
from headway.node.transfer import head_requests, scheduler
from headway.node.transfer.discovery import Discovery
from headway.node.transfer.download import Download
from headway.node.transfer.head_requests import HeadRequests
from headway.node.transfer.journal import SUFFIX, Journal, read_journal
from headway.node.transfer.options import GRACE, PATIENCE, Fetched, Options
from headway.node.transfer.part import Part
from headway.node.transfer.source import Fault
from headway.node.transfer.urls import authority, shown
from headway.node.transfer.versions import disagreed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from headway.node.transfer.manifest import Manifest
    from headway.node.transfer.source import Source

_TICK = 0.05
_REPORT = 0.5
_STOPPED = 5.0  # seconds of a tick after which the process must have been stopped
_SLOW_WRITE = 1.0  # seconds of one write that tell of the disk and not of the sources


class FetchLoop:
    """Watches one download: it measures and decides, and never touches a byte itself."""

    def __init__(self, urls: Sequence[str], path: str, options: Options) -> None:
        self._urls, self._path, self._options = urls, path, options
        self._begin = time.monotonic()
        if options.contradicted is not None:
            raise TransferError(
                f"{os.path.basename(path)} is declared with {options.contradicted} bytes, "
                f"but its manifest says {options.size}",
                retryable=False,
                remedy="publish the object again, or correct the size",
            )
        self._discovery = Discovery(urls, options)
        if options.should_stop():
            raise Stopped("the transfer was stopped")
        part = Part(path, replace=options.replace)
        self._journal = Journal(f"{part.place}{SUFFIX}", options.owner())
        self.download = Download(part, self._journal, options)
        want_digest = options.negotiate and not options.provable
        self.requests = HeadRequests(self.download, want_digest=want_digest)
        self._reported = 0.0
        self._complete_since: float | None = None

    def run(self) -> Fetched:
        """Until the object is complete, proven and in its place."""
        download, finished = self.download, False
        try:
            self.resume()
            self.supervise()
            self.finish()
            finished = True
        finally:
            self.close(keep=self._options.keep and not finished and download.ledger.bytes > 0)
        with download.changed:
            last = download.snapshot(time.monotonic(), self._begin)
        url = download.last_url or self._urls[0]
        seconds, proof = time.monotonic() - self._begin, download.assembly.proof
        size, verified = download.ledger.bytes, self._options.provable
        identity = download.versions.pinned
        return Fetched(self._path, size, seconds, url, verified, proof, last, identity)

    def resume(self) -> None:
        """Resume what is there, or start over."""
        part = self.download.part
        past = read_journal(f"{part.place}{SUFFIX}", part.file, self._journal.proof)
        self.download.assembly.resume(past)

    def supervise(self) -> None:
        """Until the object is complete and proven; an error when it cannot be."""
        download, assembly = self.download, self.download.assembly
        assembly.look()
        with download.changed:
            while True:
                now = time.monotonic()
                error = download.error or download.prover.error
                if error is not None:
                    raise error
                if self._proven(now):
                    download.end()  # before the lock is free: whatever comes later changes nothing
                    return
                self._steer(now)
                self._raise_hopeless(now)
                assembly.record(now)
                if assembly.paused:
                    download.pause(now)
                self._rest(now)
                download.changed.release()  # callbacks may take their time, and may call us
                try:
                    self._report(time.monotonic())
                    assembly.look()
                    if self._options.should_stop():
                        raise Stopped("the transfer was stopped")
                finally:
                    download.changed.acquire()

    def finish(self) -> None:
        """Put the object in its place."""
        self._end_lanes()
        self.download.assembly.settle()
        self._report(time.monotonic(), last=True)
        self.download.assembly.finish()

    def close(self, *, keep: bool) -> None:
        """Close everything; nothing is written after this."""
        ended = self._end_lanes()
        assembly = self.download.assembly
        assembly.settle()
        assembly.close(keep=keep, failed=self.download.error is not None, ended=ended)

    # -- with the lock held

    def _rest(self, now: float) -> None:
        """Wait a moment; time in which this process itself was stopped does not count."""
        self.download.changed.wait(_TICK)
        stopped = time.monotonic() - now
        if stopped > _STOPPED:
            self.download.postpone(now, stopped)
            self.requests.postpone(stopped)

    def _proven(self, now: float) -> bool:
        download, requests, prover = self.download, self.requests, self.download.prover
        if not download.ledger.complete:
            self._complete_since = None
            requests.take_back_final_check()
            return False
        if self._complete_since is None:
            self._complete_since = now
        if any(lane.awaits_last_word for lane in download.lanes.values()):
            return False
        waited = now - self._complete_since >= head_requests.PATIENCE
        if requests.under_way and not waited:
            return False
        prover.wake()
        if not prover.done():
            return False
        wrong = prover.wrong()
        if wrong is not None:
            download.wrong_whole(wrong)
            return False
        if self._options.manifest is not None or prover.expects:
            return True
        several = download.requests > 1 or download.assembly.length_unsaid
        if download.lanes and not waited:
            for lane in download.lanes.values():
                lane.dismiss("nothing is left to bring")
            return False
        if requests.begin_final_check(several=several) or requests.awaits_final_check(now):
            return False
        download.fail(download.disagreement())
        if download.error is not None or requests.begin_samples():
            return False
        if requests.awaits_samples(now):
            return False
        if requests.samples_differ:
            download.fail(disagreed(download.part.name, "they give different bytes"))
        return download.error is None

    def _steer(self, now: float) -> None:
        download = self.download
        stuck = not download.lanes or now - download.progressed > scheduler.THIRST
        download.add(self._discovery.news(now, stuck=stuck))
        download.cut_stalled(now)
        if not download.ledger.complete:
            self.requests.ask(now)
            download.open_lanes(now)

    def _raise_hopeless(self, now: float) -> None:
        download, discovery, options = self.download, self._discovery, self._options
        late = now - download.waiting_since > options.patience
        complete = download.ledger.complete
        if not (download.lanes or complete or discovery.waiting()) and download.sources:
            since = [source.absent_since for source in download.sources]
            if scheduler.agreed_absent(since, now, options.grace):
                raise _error(download, retryable=False if options.absence_is_final else None)
            # on a slot another node may do better, or somebody may repair it within the patience
            refusals = [
                max(source.refusals, source.lasting if options.absence_is_final else 0)
                for source in download.sources
            ]
            if scheduler.hopeless(refusals, [source.closed for source in download.sources]):
                if download.try_rivals():
                    return
                raise _error(download, discovery.faults())
        if not (download.lanes or complete or download.sources):
            if discovery.refused() or late:
                raise _error(download, discovery.faults())
        elif late and not complete:
            raise _impatience(download, discovery.faults(), now)

    # -- without it

    def _report(self, now: float, *, last: bool = False) -> None:
        if now - self._reported < _REPORT and not last:
            return
        self._reported = now
        ledger, options = self.download.ledger, self._options
        if options.progress is not None:
            options.progress(ledger.bytes, ledger.size)
        if options.watch is not None:
            with self.download.changed:
                snapshot = self.download.snapshot(time.monotonic(), self._begin)
            options.watch(snapshot)

    def _end_lanes(self) -> bool:
        """Whether no thread can touch the part any more."""
        download = self.download
        with download.changed:
            lanes = download.end()
        for lane in lanes:
            lane.cut()
        self.requests.end()
        end = time.monotonic() + 2.0
        for lane in lanes:
            lane.join(end - time.monotonic())
        with download.changed:
            # a thread may hang in the name service; its lease is over, so it writes nothing
            while download.ledger.writing:
                download.changed.wait(_TICK)
            return not download.lanes


def fetch(urls: Sequence[str], path: str, **options: Any) -> Fetched:
    """Download one object to `path`; until then it is PATH.part, with a journal.

    Args:
        urls: Its sources, the best one first.
        path: The file to write.
        options: See `Options`.

    Returns:
        The file, and what proves it.

    Raises:
        TransferError: It did not arrive, or is not what was declared.
        NodeError: The node's disk is full or fails.
        Stopped: The caller wanted to stop.
    """
    return FetchLoop(urls, path, Options(**options)).run()


# -- why it did not arrive


def _impatience(
    download: Download, director_faults: list[tuple[str, Fault]], now: float
) -> HeadwayError:
    """Nothing has come from anywhere for too long."""
    new = " new" if download.last_useful - download.progressed > 1 else ""
    waited = f"nothing{new} came for {now - download.progressed:.0f} s"
    lanes = download.lanes.values()
    if any(lane.on_disk and now - lane.last > _SLOW_WRITE for lane in lanes):
        name = download.part.name
        return NodeError(f"{name} did not arrive: the node's disk takes no more bytes, {waited}")
    remedy = "try again, or elsewhere"
    tail = f"; {waited}"
    return _error(download, director_faults, tail, StalledError, retryable=True, remedy=remedy)


def _error(
    download: Download,
    director_faults: Sequence[tuple[str, Fault]] = (),
    tail: str = "",
    usual: type[TransferError] = TransferError,
    *,
    retryable: bool | None = None,
    remedy: str = "",
) -> HeadwayError:
    """What every source has said; `retryable` None: whether any of them may do better."""
    part = download.part
    said = [(source.url, source.fault or _doing(download, source)) for source in download.sources]
    said += director_faults
    faults = [fault for _, fault in said if fault is not None]
    words = "; ".join(f"{shown(url)}: {_words(fault)}" for url, fault in said)
    if part.seconds > 5 and part.written / part.seconds < 5e6:
        tail += f"; the node's disk is slow ({scheduler.shown_rate(part.written / part.seconds)})"
    message = f"{part.name} did not arrive: {words or 'no source answered'}{tail}"
    remedy = next((fault.remedy for fault in faults if fault.remedy), remedy)
    means = {fault.means for fault in faults}
    kind = means.pop() if len(means) == 1 else TransferError
    error: HeadwayError = NodeError(message, remedy=remedy)
    if not faults or not all(fault.node for fault in faults):
        if retryable is None:
            retryable = any(fault.retryable for fault in faults) or not faults
        kind = usual if kind is TransferError else kind
        error = kind(message, retryable=retryable, remedy=remedy)
    error.brief = _brief([(authority(url), fault) for url, fault in said if fault is not None])
    return error


def _brief(faults: list[tuple[str, Fault]]) -> str:
    """What the first source said, and how many more failed; for a line that must be short."""
    if not faults:
        return "no source answered"
    host, fault = faults[0]
    others = len({other for other, _ in faults} - {host})
    more = f", and {others} more source{'s' * (others > 1)} failed" if others else ""
    return f"{fault.words} from {host}{more}"


def _doing(download: Download, source: Source) -> Fault | None:
    """What a source that has not failed yet is being waited for."""
    for lane in download.lanes.values():
        if lane.source is source:
            silent = time.monotonic() - lane.last
            return Fault(f"it has said nothing for {silent:.0f} s", phase=lane.client.phase)
    return None


def _words(fault: Fault | None) -> str:
    if fault is None:
        return "no fault of its own"
    hope = "may pass" if fault.retryable else "will not pass"
    return f"{fault.words} ({fault.phase}, {hope})" if fault.phase else fault.words


# -- the pinned manifest, from the folder of its object; its digest alone says that it is right


def pinned_manifest(
    urls: Sequence[str],
    pin: str,
    *,
    folder: str,
    patience: float = PATIENCE,
    grace: float = GRACE,
    absence_is_final: bool = False,
    direct: bool = False,
    should_stop: Callable[[], bool] = lambda: False,
    keep_as: str | None = None,
) -> Manifest:
    """Download the manifest of the object at `urls`, from whichever of them has the pinned one.

    It arrives in a temporary folder below `folder`; what a killed process left there is used by the
    next one. `keep_as`: a path at which it stays. The other options are those of `fetch`.
    """
    from headway.node.transfer import manifest

    pin = manifest.checked_pin(pin)
    place = os.path.join(folder, f".headway-manifest-{pin[7:23]}")
    path = os.path.join(place, f"{_name(urls[0] if urls else '')}{manifest.SUFFIX}")
    try:
        fetch(
            [manifest.manifest_url(url) for url in urls],
            path,
            most=manifest.MAX_MANIFEST,
            checksum=pin,
            should_stop=should_stop,
            patience=patience,
            grace=grace,
            absence_is_final=absence_is_final,
            direct=direct,
        )
        found = manifest.open_manifest(path, pin=pin)
        if keep_as is not None:
            _keep(path, keep_as)
        return found
    except ManifestError:
        raise
    except TransferError as error:
        where = (
            f"the manifest belongs next to the object as NAME{manifest.SUFFIX}: `headway publish` "
            "writes it and prints the digest to pin"
        )
        remedy = f"{error.remedy}; {where}" if error.remedy else where
        raise ManifestError(error.message, retryable=error.retryable, remedy=remedy) from None
    except OSError as error:
        words = f"the node's disk fails: {os.path.basename(path)}: {error.strerror}"
        raise NodeError(words) from None
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
        with contextlib.suppress(OSError):
            os.rmdir(place)


def _name(url: str) -> str:
    """What messages call the object; a URL from anybody must not lead out of the folder."""
    last = unquote(url.partition("?")[0].partition("#")[0].rstrip("/")).rpartition("/")[2]
    plain = "".join(c if c.isprintable() else "_" for c in last)
    while len(os.fsencode(plain)) > 100:
        plain = plain[:-1]
    return plain or "object"


def _keep(path: str, target: str) -> None:
    try:
        os.makedirs(os.path.dirname(target) or os.curdir, exist_ok=True)
        os.chmod(path, 0o444)
        os.replace(path, target)
    except OSError as error:
        raise NodeError(f"{target} cannot be written: {error.strerror}") from None
