"""HEAD requests: what servers are asked about the object besides its bytes.

During a download: is there a digest of the whole object, and where two versions were seen, which
one does a server have? At the end of a download that took several requests and that nothing else
will prove: is the object still the same? Each request has a thread of its own.
"""

from __future__ import annotations

import contextlib
import threading
import time

from headway.node.transfer import scheduler
from headway.node.transfer.checksum import best_digest
from headway.node.transfer.client import open_client
from headway.node.transfer.discovery import Discovery
from headway.node.transfer.options import Options
from headway.node.transfer.source import Fault
from headway.node.transfer.versions import SampleCheck, probes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headway.node.transfer.client import Client, HttpClient
    from headway.node.transfer.download import Download
    from headway.node.transfer.source import Identity, Source

PATIENCE = 3.0  # seconds for which a complete object waits for a server's answer
OPINION = 1.0  # the same for a source that has given no bytes
_SMALL = scheduler.FIRST_CHUNK
_LOOK = 0.02


class HeadRequest:
    """One HEAD request to each of some sources."""

    def __init__(
        self,
        sources: list[Source],
        on_answer: Callable[[Source, Identity | None], None],
        changed: threading.Condition,
        *,
        digest: str = "",
        idle: Mapping[int, HttpClient] | None = None,
        keep: Callable[[Source, Client], bool] = lambda _source, _client: False,
        doubted: Callable[[Source, Identity | None], bool] = lambda _source, _identity: False,
    ) -> None:
        """Start them.

        `on_answer` is called for each source with the lock of `changed` held; None: no answer.
        `digest`: the algorithm of a digest to ask for, or "any". `idle`: clients that have nothing
        else to do; where there is none, or it has failed meanwhile, a new connection is opened and
        offered to `keep` afterwards. `doubted`: whether to check an answer by a GET.
        """
        self._on_answer, self._changed = on_answer, changed
        self._digest, self._doubted = digest, doubted
        self._idle, self._keep = dict(idle or {}), keep
        self._ended = False
        self._clients: list[Client] = []
        self.keys = {source.key for source in sources}  # those whose answer is awaited
        for each in sources:
            threading.Thread(
                target=self._ask, args=(each,), name="head-request", daemon=True
            ).start()

    @property
    def under_way(self) -> bool:
        return bool(self.keys)

    def end(self) -> None:
        self._ended = True
        for client in [*self._clients, *self._idle.values()]:
            client.abort()

    def _ask(self, source: Source) -> None:
        identity = None
        try:
            with contextlib.suppress(Fault):  # it need not answer
                identity = self._answer(source)
        finally:
            with self._changed:  # it is over when its answer has been handed over, and not before
                self._on_answer(source, None if self._ended else identity)
                self.keys.discard(source.key)
                self._changed.notify_all()

    def _answer(self, source: Source) -> Identity | None:
        idle = self._idle.get(source.key)
        if idle is not None:
            with contextlib.closing(idle), contextlib.suppress(Fault):
                return self._look(source, idle)
        fresh = open_client(source.url, source.token)
        self._clients.append(fresh)
        try:
            return None if self._ended else self._look(source, fresh)
        finally:
            if not self._keep(source, fresh):
                fresh.close()

    def _look(self, source: Source, client: Client) -> Identity | None:
        said = client.about(digest=self._digest)
        if not self._doubted(source, said):
            return said
        given = client.about_by_get()
        if given is not None and given.size is None and said is not None:
            given.size = said.size
        return given


class HeadRequests:
    """All HEAD requests of one download, whose lock is held by whoever calls.

    Args:
        download: The download.
        want_digest: A digest of the whole object is worth having, from whoever tells one.
    """

    def __init__(self, download: Download, *, want_digest: bool) -> None:
        self._download = download
        self._wants_digest = want_digest
        self._asked_after: int | None = None  # restarts, when it was asked for
        self._since = 0.0
        self._pending: HeadRequest | None = None
        self._final: HeadRequest | None = None
        self._samples: SampleCheck | None = None
        self._final_since = self._samples_since = 0.0
        self._heard: set[int] = set()  # sources that were asked for their word in a dispute

    def ask(self, now: float) -> None:
        """Ask what is not known yet, and tell the download whose connections are busy with it."""
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

    def begin_final_check(self, *, several: bool) -> bool:
        """Ask what only the sources can tell before the object gets its name, unless that was done.

        Those that gave bytes in `several` answers: is it still the same? One that was not asked
        for any: does it have the same size there?
        """
        download = self._download
        if self._final is not None:
            return False
        given = download.ledger.givers()
        asked = [source for source in download.sources if several and source.key in given]
        idle = download.idle.take(asked)
        asked += self._unasked()
        self._final = HeadRequest(
            asked, self._on_last_answer, download.changed, idle=idle, doubted=self._doubted
        )
        self._final_since = time.monotonic()
        return bool(asked)

    def _unasked(self) -> list[Source]:
        """The best source that has not said anything yet; a director vouches for those it names."""
        unknown = [
            source
            for source in self._download.sources
            if source.identity is None
            and not (source.closed or source.named_for or source.refusals)
            and source.absent_since is None
        ]
        return sorted(unknown, key=lambda s: (s.faults, s.rank))[:1]

    def awaits_final_check(self, now: float) -> bool:
        """Whether an answer to the last questions is still worth waiting for."""
        asked = self._final.keys if self._final is not None else set()
        gave = any(s.identity is not None for s in self._download.sources if s.key in asked)
        return bool(asked) and now - self._final_since < (PATIENCE if gave else OPINION)

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
        self._samples = SampleCheck(download.part, samples, asked, download.wake, others=1)
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
        self._final_since += seconds
        self._samples_since += seconds

    def take_back_final_check(self) -> None:
        """The object is not complete after all."""
        for check in (self._final, self._samples):
            if check is not None:
                check.end()
        self._final = self._samples = None

    def end(self) -> None:
        self.take_back_final_check()
        if self._pending is not None:
            self._pending.end()
        self._download.idle.close()

    def _ask_words(self, now: float) -> None:
        """Two versions were seen and one is declared: the sources may know their digests.

        The bytes cannot tell before one version is complete. So without an answer, or a majority,
        the version that was seen first is fetched, at the risk of all its bytes.
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
            own[-1].dismiss("its connection is needed for a question")
        elif len(download.lanes) < download.options.connections:
            self._since = now
            self._heard.add(asked[0].key)
            name = download.options.checksum.partition(":")[0].lower()
            self._pending = HeadRequest(asked[:1], self._on_word, download.changed, digest=name)

    def _on_word(self, source: Source, identity: Identity | None) -> None:
        if identity is not None:
            self._download.heard(source, identity)

    def _ask_digest(self) -> None:
        """Ask a server for a digest of the object, in parallel to the download."""
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
                asked, self._on_digest, download.changed, digest="any", keep=self._spare
            )

    def _spare(self, source: Source, client: Client) -> bool:
        """Keep a connection for the lane whose place the question has taken, if there is one."""
        download = self._download
        with download.changed:
            return download.has_room(source) and download.idle.keep(source, client, unused=True)

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

    def _on_digest(self, source: Source, identity: Identity | None) -> None:
        download, size = self._download, self._download.ledger.size
        current = source.trusted and download.restarts == self._asked_after
        if identity is not None and size is not None and current and not download.over:
            self._expect(identity, size)

    def _doubted(self, source: Source, identity: Identity | None) -> bool:
        """Whether an answer to HEAD, which may be wrong, would change anything."""
        download = self._download
        with download.changed:
            if identity is None or identity.size != download.ledger.size:
                return True
            before = source.identity or download.versions.pinned
            gave = source.identity is not None
            return before is not None and before.differs(identity, same_place=gave)

    def _on_last_answer(self, source: Source, identity: Identity | None) -> None:
        """The same object still, after the last byte? A change in the middle shows only here."""
        download, before = self._download, source.identity
        if identity is None or download.over:
            return
        if before is None:
            source.only_asked(identity)
        # one answer is of one version, whatever the server calls the next one
        several = download.requests > 1
        if several and before is not None and before.differs(identity, same_place=True):
            download.start_over(source)
        else:
            download.cut_short(identity)


def ask_version(
    urls: Sequence[str], should_stop: Callable[[], bool], *, limit: float = PATIENCE
) -> tuple[Identity, str] | None:
    """What the first source that answers says of the version that it has, and that source's URL.

    None: no source says within `limit` seconds how large the object is.
    """
    discovery = Discovery(urls, Options(should_stop=should_stop))
    end = time.monotonic() + limit
    while not should_stop():
        now = time.monotonic()
        for source in discovery.news(now, stuck=False):
            left = end - time.monotonic()
            if left <= 0:
                return None
            client = open_client(source.url, source.token)
            timer = threading.Timer(left, client.abort)
            timer.daemon = True
            timer.start()
            try:
                said = client.about()
            except Fault:
                said = None
            finally:
                timer.cancel()
                client.close()
            if said is not None and said.size is not None:
                return said, source.url
        if now > end or not discovery.waiting():
            return None
        time.sleep(_LOOK)
    return None
