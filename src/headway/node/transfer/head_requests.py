"""HEAD requests: what servers are asked about the object beside its bytes, and after the last.

Before the end: is there a digest of the whole, and where two versions were seen, which one do they
have? At the end of a download that took several requests and that nothing else will prove: is the
object still the one that it was? Each is asked in a thread of its own.
"""

from __future__ import annotations

import contextlib
import threading
import time

from headway.node.transfer import scheduler
from headway.node.transfer.checksum import best_digest
from headway.node.transfer.source import Fault
from headway.node.transfer.stream import open_stream
from headway.node.transfer.versions import Comparison, probes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headway.node.transfer.download import Download
    from headway.node.transfer.source import Identity, Source
    from headway.node.transfer.stream import HttpStream, Stream

PATIENCE = 3.0  # seconds for which a whole object waits for a server's last word
OPINION = 1.0  # the same of a source that has given nothing
_SMALL = scheduler.FIRST_CHUNK


class HeadRequest:
    """One HEAD request to each of some sources, which are all told of in the end.

    `told` is called with the lock of `changed` held.
    `digest`: the algorithm of a digest that is asked for, or "any". `doubted`: whether the answer
    is worth another look, by a GET. `kept`: connections that have
    nothing else to do; where there is none, or it has failed meanwhile, a fresh one is opened, and
    offered to `keep` afterwards.
    """

    def __init__(
        self,
        sources: list[Source],
        told: Callable[[Source, Identity | None], None],
        changed: threading.Condition,
        *,
        digest: str = "",
        kept: Mapping[int, HttpStream] | None = None,
        keep: Callable[[Source, Stream], bool] = lambda _source, _stream: False,
        doubted: Callable[[Source, Identity | None], bool] = lambda _source, _identity: False,
    ) -> None:
        self._told, self._changed = told, changed
        self._digest, self._doubted = digest, doubted
        self._kept, self._keep = dict(kept or {}), keep
        self._ended = False
        self._streams: list[Stream] = []
        self.keys = {source.key for source in sources}  # those whose answer is awaited
        for source in sources:
            threading.Thread(
                target=self._ask, args=(source,), name="head-request", daemon=True
            ).start()

    @property
    def under_way(self) -> bool:
        return bool(self.keys)

    def end(self) -> None:
        """Nobody needs the answers any more."""
        self._ended = True
        for stream in [*self._streams, *self._kept.values()]:
            stream.abort()

    def _ask(self, source: Source) -> None:
        identity = None
        try:
            identity = self._answer(source)
        except Fault:
            pass  # it need not answer
        finally:
            with self._changed:  # it is over when what it has found is known, and not before
                self._told(source, None if self._ended else identity)
                self.keys.discard(source.key)
                self._changed.notify_all()

    def _answer(self, source: Source) -> Identity | None:
        kept = self._kept.get(source.key)
        if kept is not None:
            with contextlib.closing(kept), contextlib.suppress(Fault):
                return self._look(source, kept)
        fresh = open_stream(source.url, source.token)
        self._streams.append(fresh)
        try:
            return None if self._ended else self._look(source, fresh)
        finally:
            if not self._keep(source, fresh):
                fresh.close()

    def _look(self, source: Source, stream: Stream) -> Identity | None:
        said = stream.about(digest=self._digest)
        if not self._doubted(source, said):
            return said
        given = stream.glimpse()
        if given is not None and given.size is None and said is not None:
            given.size = said.size
        return given


class HeadRequests:
    """All questions of one download.

    Every method expects its lock to be held; the answers take it by themselves.
    """

    def __init__(self, download: Download, *, want_digest: bool) -> None:
        """`want_digest`: a digest of the whole is worth having, from whoever tells one."""
        self._download = download
        self._wants_digest = want_digest
        self._asked_after: int | None = None  # restarts, when it was asked for
        self._since = 0.0
        self._pending: HeadRequest | None = None
        self._farewell: HeadRequest | None = None
        self._samples: Comparison | None = None
        self._farewell_since = self._samples_since = 0.0
        self._heard: set[int] = set()  # sources that were asked for their word in a dispute

    def ask(self, now: float) -> None:
        """Ask what is open, and tell the download whose connections are busy with it."""
        download = self._download
        if self._asked_after not in (None, download.restarts):
            self._wants_digest = True  # that was of another version
        if self._wants_digest and not download.versions.open:
            self._ask_digest()
        if download.disputed:
            self._ask_words(now)
        download.note_asked(self._asking(now))

    @property
    def under_way(self) -> bool:
        return self._pending is not None and self._pending.under_way

    def begin_farewell(self, *, several: bool) -> bool:
        """Ask what only the sources can tell before the object gets its name, unless that was done.

        Those who gave bytes by `several` answers: is it still the same? Some who have not been
        asked for any: is it as long as they have it?
        """
        download = self._download
        if self._farewell is not None:
            return False
        given = download.ledger.givers()
        asked = [source for source in download.sources if several and source.key in given]
        kept = download.idle.take(asked)
        asked += self._unasked()
        self._farewell = HeadRequest(
            asked, self._told_last, download.changed, kept=kept, doubted=self._doubted
        )
        self._farewell_since = time.monotonic()
        return bool(asked)

    def _unasked(self) -> list[Source]:
        """The source whose opinion is worth having, if none is known but that of the givers.

        A director vouches for those that it names.
        """
        unknown = [
            source
            for source in self._download.sources
            if source.identity is None
            and not (source.closed or source.named_for or source.refusals)
            and source.absent_since is None
        ]
        return sorted(unknown, key=lambda s: (s.faults, s.rank))[:1]

    def awaits_farewell(self, now: float) -> bool:
        """Whether an answer to the last questions is still worth waiting for."""
        asked = self._farewell.keys if self._farewell is not None else set()
        gave = any(s.identity is not None for s in self._download.sources if s.key in asked)
        return bool(asked) and now - self._farewell_since < (PATIENCE if gave else OPINION)

    def begin_samples(self) -> bool:
        """Compare a few bytes across sources, unless that was done or a director vouches for them.

        A sample of a cache that has not got the object makes it fetch all of it.
        """
        download = self._download
        if self._samples is not None:
            return False
        rivals = download.versions.rivals
        known = [s for s in download.sources if s.identity or s.opinion]
        asked = [s for s in known if not s.named_for and (not s.closed or s.key in rivals)]
        samples = probes(download.ledger.written())
        self._samples = Comparison(download.part, samples, asked, download.wake, others=1)
        self._samples_since = time.monotonic()
        return self._samples.under_way

    @property
    def samples_differ(self) -> bool:
        return self._samples is not None and bool(self._samples.rounds)

    def awaits_samples(self, now: float) -> bool:
        """Whether the comparison of a few bytes is still worth waiting for."""
        under_way = self._samples is not None and self._samples.under_way
        return under_way and now - self._samples_since < PATIENCE

    def postpone(self, seconds: float) -> None:
        """Nobody could answer for so long: this process was stopped."""
        self._farewell_since += seconds
        self._samples_since += seconds

    def take_back_farewell(self) -> None:
        """The object is not whole after all."""
        if self._farewell is not None:
            self._farewell.end()
        self._farewell = None
        if self._samples is not None:
            self._samples.end()
            self._samples = None

    def end(self) -> None:
        """Nobody needs the answers any more."""
        for request in (self._pending, self._farewell):
            if request is not None:
                request.end()
        if self._samples is not None:
            self._samples.end()
        self._download.idle.close()

    def _ask_words(self, now: float) -> None:
        """Two versions were seen and one is declared: those who have them may know their digests.

        The bytes cannot tell before one version is here as a whole, so without such a word, or a
        majority, the one that was met first is gathered, at the risk of all its bytes.
        """
        download = self._download
        if self.under_way:
            return
        asked = [
            s for s in download.versions.worth_a_try(download.sources) if s.key not in self._heard
        ]
        asked = asked or [s for s in download.sources if s.trusted and s.key not in self._heard][:1]
        if download.options.checksum is None or not asked:
            download.settle_dispute()
            return
        own = [lane for lane in download.lanes.values() if lane.source is asked[0]]
        if len(own) >= asked[0].allowed:  # the question needs one of its connections
            own[-1].dismiss("its word is wanted")
        elif len(download.lanes) < download.options.connections:
            self._since = now
            self._heard.add(asked[0].key)
            name = download.options.checksum.partition(":")[0].lower()
            self._pending = HeadRequest(asked[:1], self._told_word, download.changed, digest=name)

    def _told_word(self, source: Source, identity: Identity | None) -> None:
        with self._download.changed:
            if identity is not None:
                self._download.heard(source, identity)
            self._download.changed.notify_all()

    def _ask_digest(self) -> None:
        """Ask a server for a digest of the whole, beside the transfer."""
        download = self._download
        size = download.ledger.size
        asked = [each for each in download.sources if each.trusted][:1]
        pinned = download.versions.pinned
        if pinned is None or size is None or not asked:
            return
        self._wants_digest, self._asked_after = False, download.restarts
        self._expect(pinned, size)
        if size > _SMALL and not download.prover.expects:
            self._since = time.monotonic()
            self._pending = HeadRequest(
                asked, self._told_digest, download.changed, digest="any", keep=self._spare
            )

    def _spare(self, source: Source, stream: Stream) -> bool:
        """Keep a connection for the lane whose place the question has taken, if there is one."""
        download = self._download
        with download.changed:
            return download.has_room(source) and download.idle.keep(source, stream, unused=True)

    def _asking(self, now: float) -> list[int]:
        """Where a connection of ours is busy with a question; one that takes long is ended."""
        if self._pending is None or not self._pending.under_way:
            return []
        if now - self._since > 2 * PATIENCE:
            self._pending.end()
        return list(self._pending.keys)

    def _expect(self, identity: Identity, size: int) -> None:
        best = best_digest(identity.digests, size)
        if best is not None:
            self._download.assembly.expect(best)

    def _told_digest(self, source: Source, identity: Identity | None) -> None:
        download = self._download
        with download.changed:
            size = download.ledger.size
            current = (
                source.trusted and not download.over and download.restarts == self._asked_after
            )
            if identity is not None and size is not None and current:
                self._expect(identity, size)
            download.changed.notify_all()

    def _doubted(self, source: Source, identity: Identity | None) -> bool:
        """Whether an answer to HEAD, which may be wrong, would change anything."""
        download = self._download
        with download.changed:
            if identity is None or identity.size != download.ledger.size:
                return True
            before = source.identity or download.versions.pinned
            gave = source.identity is not None
            return before is not None and before.differs(identity, same_place=gave)

    def _told_last(self, source: Source, identity: Identity | None) -> None:
        """The same object still, after the last byte? A change in the middle shows only here."""
        download = self._download
        with download.changed:
            download.changed.notify_all()
            before = source.identity
            if identity is None or download.over:
                return
            if before is None:
                source.opinion = identity
            # one answer is of one version, whatever the server calls the next one
            if (
                before is not None
                and download.requests > 1
                and before.differs(identity, same_place=True)
            ):
                download.start_over(source)
            else:
                download.cut_short(identity)
