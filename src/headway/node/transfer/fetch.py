"""Fetch: bring one object to its path, from whichever of its sources are healthy.

The loop that watches a download and says when it is over, the errors that tell why it did not
arrive, and the manifest that is fetched from beside an object.
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
from headway.node.transfer import head_requests, repair, scheduler
from headway.node.transfer.discovery import Discovery
from headway.node.transfer.download import Download
from headway.node.transfer.head_requests import HeadRequests
from headway.node.transfer.journal import SUFFIX, Journal, read_journal
from headway.node.transfer.options import GRACE, PATIENCE, Fetched, Options
from headway.node.transfer.part import Part
from headway.node.transfer.source import Fault
from headway.node.transfer.urls import authority, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Concatenate, ParamSpec  # novm - for types alone

    from headway.node.transfer.manifest import Manifest
    from headway.node.transfer.source import Source

    P = ParamSpec("P")

_TICK = 0.05
_TELL = 0.5
_STOPPED = 5.0  # seconds of a tick: no machine is so busy, so the process was stopped
_SLOW_WRITE = 1.0  # seconds of one write that tell of the disk and not of the sources


def _taking(options: Callable[P, Options]) -> Callable[Concatenate[Sequence[str], str, P], Fetched]:
    """The function that fetches, with the names and types of its options."""

    def fetch(urls: Sequence[str], path: str, /, *args: P.args, **named: P.kwargs) -> Fetched:
        """Bring one object to `path`; the bytes gather in PATH.part, with a journal beside it.

        Args:
            urls: Where it is, the best source first.
            path: Where it shall be.
            args: None; options have names.
            named: See `Options`.

        Returns:
            The file, with what proves it.

        Raises:
            TransferError: It did not arrive, or is not what was declared.
            NodeError: The node's disk is full or fails.
            Stopped: The caller wanted to stop.
        """
        return FetchLoop(urls, path, options(*args, **named)).run()

    return fetch


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
        self._told = 0.0
        self._whole_since: float | None = None

    def run(self) -> Fetched:
        """Until the object is whole, proven and in its place."""
        whole = False
        try:
            self.resume()
            self.supervise()
            self.finish()
            whole = True
        finally:
            keep = self._options.keep and not whole and self.download.ledger.bytes > 0
            self.close(keep=keep)
        with self.download.changed:
            last = self.download.snapshot(time.monotonic(), self._begin)
        return Fetched(
            self._path,
            self.download.ledger.bytes,
            time.monotonic() - self._begin,
            self.download.last_url or (self._urls[0] if self._urls else ""),
            self._options.provable,
            self.download.assembly.proof,
            last,
        )

    def resume(self) -> None:
        """Go on from what is there, or begin anew."""
        part = self.download.part
        past = read_journal(f"{part.place}{SUFFIX}", part.file, self._journal.proof)
        self.download.assembly.resume(past)

    def supervise(self) -> None:
        """Until the object is whole and proven; an error when it cannot be."""
        download, assembly = self.download, self.download.assembly
        assembly.look()
        with download.changed:
            while True:
                now = time.monotonic()
                error = download.error or download.prover.error
                if error is not None:
                    raise error
                if self._proven(now):
                    download.end()  # before the lock is free: what comes late changes nothing
                    return
                self._steer(now)
                self._raise_hopeless(now)
                assembly.keep(now)
                if assembly.paused:
                    download.pause(now)
                self._rest(now)
                download.changed.release()  # callbacks may take their time, and may call us
                try:
                    self._tell(time.monotonic())
                    assembly.look()
                    if self._options.should_stop():
                        raise Stopped("the transfer was stopped")
                finally:
                    download.changed.acquire()

    def finish(self) -> None:
        """Put the object in its place."""
        self._end_lanes()
        self.download.assembly.settle()
        self._tell(time.monotonic(), last=True)
        self.download.assembly.finish()

    def close(self, *, keep: bool) -> None:
        """Let go of everything; nobody writes after this."""
        ended = self._end_lanes()
        assembly = self.download.assembly
        assembly.settle()
        assembly.close(keep=keep, failed=self.download.error is not None, ended=ended)

    # -- with the lock held

    def _rest(self, now: float) -> None:
        """Wait a moment; while this process itself is stopped, nobody's time runs out."""
        self.download.changed.wait(_TICK)
        stopped = time.monotonic() - now
        if stopped > _STOPPED:
            self.download.postpone(now, stopped)
            self.requests.postpone(stopped)

    def _proven(self, now: float) -> bool:
        download, requests, prover = self.download, self.requests, self.download.prover
        if not download.ledger.complete:
            self._whole_since = None
            requests.take_back_farewell()
            return False
        if self._whole_since is None:
            self._whole_since = now
        if any(lane.awaits_last_word for lane in download.lanes.values()):
            return False
        waited = now - self._whole_since >= head_requests.PATIENCE
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
        if requests.begin_farewell(several=several) or requests.awaits_farewell(now):
            return False
        download.fail(download.disagreement())
        if download.error is not None or requests.begin_samples():
            return False
        if requests.awaits_samples(now):
            return False
        if requests.samples_differ:
            download.fail(repair.disagreed(download.part.name, "they give different bytes"))
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
                raise absence(download, final=options.absence_is_final)
            # on a slot another node may do better, and somebody may mend it within its patience
            refusals = [
                max(source.refusals, source.lasting if options.absence_is_final else 0)
                for source in download.sources
            ]
            if scheduler.hopeless(refusals, [source.closed for source in download.sources]):
                if download.try_rivals():
                    return
                raise failure(download, discovery)
        if not (download.lanes or complete or download.sources):
            if discovery.refused() or late:
                raise failure(download, discovery)
        elif late and not complete:
            raise impatience(download, discovery, now)

    # -- without it

    def _tell(self, now: float, *, last: bool = False) -> None:
        if now - self._told < _TELL and not last:
            return
        self._told = now
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
            # a name service can keep a thread for long; it writes nothing, for its lease is over
            while download.ledger.writing:
                download.changed.wait(_TICK)
            return not download.lanes


fetch = _taking(Options)


# -- why it did not arrive


def impatience(download: Download, discovery: Discovery, now: float) -> HeadwayError:
    """Nothing has come from anywhere for too long."""
    new = " new" if download.came - download.progressed > 1 else ""
    waited = f"nothing{new} came for {now - download.progressed:.0f} s"
    lanes = download.lanes.values()
    if any(lane.on_disk and now - lane.last > _SLOW_WRITE for lane in lanes):
        name = download.part.name
        return NodeError(f"{name} did not arrive: the node's disk takes no more bytes, {waited}")
    remedy = "try again, or elsewhere"
    tail = f"; {waited}"
    return _error(download, discovery, tail, StalledError, retryable=True, remedy=remedy)


def absence(download: Download, *, final: bool) -> HeadwayError:
    """Every source says that there is no such object."""
    return _error(download, None, "", retryable=not final, remedy="")


def failure(download: Download, discovery: Discovery) -> HeadwayError:
    """Every source has refused."""
    return _error(download, discovery, "", retryable=None, remedy="")


def _error(
    download: Download,
    discovery: Discovery | None,
    tail: str,
    usual: type[TransferError] = TransferError,
    *,
    retryable: bool | None,
    remedy: str,
) -> HeadwayError:
    part = download.part
    told = [(source.url, source.fault or _doing(download, source)) for source in download.sources]
    told += list(discovery.faults()) if discovery is not None else []
    faults = [fault for _, fault in told if fault is not None]
    said = "; ".join(f"{shown(url)}: {_words(fault)}" for url, fault in told)
    if part.seconds > 5 and part.written / part.seconds < 5e6:
        tail += f"; the node's disk is slow ({scheduler.shown_rate(part.written / part.seconds)})"
    message = f"{part.name} did not arrive: {said or 'no source answered'}{tail}"
    remedy = next((fault.remedy for fault in faults if fault.remedy), remedy)
    means = {fault.means for fault in faults}
    kind = means.pop() if len(means) == 1 else TransferError
    error: HeadwayError
    if faults and all(fault.node for fault in faults):
        error = NodeError(message, remedy=remedy)
    else:
        if retryable is None:
            retryable = any(fault.retryable for fault in faults) or not faults
        kind = usual if kind is TransferError else kind
        error = kind(message, retryable=retryable, remedy=remedy)
    error.brief = _brief([(authority(url), fault) for url, fault in told if fault is not None])
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
            return Fault(f"it has said nothing for {silent:.0f} s", phase=lane.stream.phase)
    return None


def _words(fault: Fault | None) -> str:
    if fault is None:
        return "no fault of its own"
    hope = "may pass" if fault.retryable else "will not pass"
    return f"{fault.words} ({fault.phase}, {hope})" if fault.phase else fault.words


# -- the pinned manifest: fetched from beside its object, and believed for its digest alone


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
    """The manifest of the object that lies at `urls`, from whichever of them has the pinned one.

    It gathers in a folder of its own below `folder`, which is gone afterwards; what a process that
    was killed has left of it is used by the next one. `keep_as`: a path at which it stays.
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
        found = manifest.read_manifest(_read(path, manifest.MAX_MANIFEST + 1), pin=pin)
        if keep_as is not None:
            _keep(path, keep_as)
        return found
    except ManifestError:
        raise
    except TransferError as error:
        beside = (
            f"the manifest lies beside the object as NAME{manifest.SUFFIX}: `headway publish` "
            "writes it and prints the digest to pin"
        )
        remedy = f"{error.remedy}; {beside}" if error.remedy else beside
        raise ManifestError(error.message, retryable=error.retryable, remedy=remedy) from None
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


def _read(path: str, most: int) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(most)
    except OSError as error:
        raise NodeError(
            f"the node's disk fails: {os.path.basename(path)}: {error.strerror}"
        ) from None
