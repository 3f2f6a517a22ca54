"""Questions: what servers are asked about the object while its bytes come, and after the last."""

from __future__ import annotations

import time

from headway.node.transfer import repair, steering
from headway.node.transfer.checksum import best_digest
from headway.node.transfer.compare import Comparison, probes
from headway.node.transfer.enquiry import Enquiry
from headway.node.transfer.views import views

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.node.transfer.job import Job
    from headway.node.transfer.source import Identity, Source
    from headway.node.transfer.stream import Stream

PATIENCE = 3.0  # seconds for which a whole object waits for a server's last word
OPINION = 1.0  # the same of a source that has given nothing
_SMALL = steering.FIRST_CHUNK


class Questions:
    """Every method expects the job's lock to be held; the answers take it by themselves."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._wants_digest = False
        self._asked_after: int | None = None  # restarts, when it was asked for
        self._since = 0.0
        self._pending: Enquiry | None = None
        self._farewell: Enquiry | None = None
        self._samples: Comparison | None = None
        self._farewell_since = self._samples_since = 0.0
        self._heard: set[int] = set()  # sources that were asked for their word in a dispute

    def want_digest(self) -> None:
        """A digest of the whole is worth having, from whoever tells one."""
        self._wants_digest = True

    def ask(self, now: float) -> None:
        """Ask what is open, and note in the job whose connections are busy with it."""
        job = self._job
        if self._asked_after not in (None, job.restarts):
            self.want_digest()  # that was of another version
        if self._wants_digest and not job.versions.open:
            self._ask_digest()
        if job.disputed:
            self._ask_words(now)
        job.enquired = self._asking(now)

    @property
    def under_way(self) -> bool:
        return self._pending is not None and self._pending.under_way

    def begin_farewell(self, *, several: bool) -> bool:
        """Ask what only the sources can tell before the object gets its name, unless that was done.

        Those who gave bytes by `several` answers: is it still the same? Some who have not been
        asked for any: is it as long as they have it?
        """
        job = self._job
        if self._farewell is not None:
            return False
        given = job.ledger.givers()
        asked = [source for source in job.sources if several and source.key in given]
        kept = job.idle.take(asked)
        asked += self._unasked()
        self._farewell = Enquiry(
            asked, self._told_last, job.changed, kept=kept, doubted=self._doubted
        )
        self._farewell_since = time.monotonic()
        return bool(asked)

    def _unasked(self) -> list[Source]:
        """The source whose opinion is worth having, if none is known but that of the givers.

        A director vouches for those that it names.
        """
        unknown = [
            source
            for source in self._job.sources
            if source.identity is None
            and not (source.closed or source.named_for or source.refusals)
            and source.absent_since is None
        ]
        return sorted(unknown, key=lambda s: (s.faults, s.rank))[:1]

    def awaits_farewell(self, now: float) -> bool:
        """Whether an answer to the last questions is still worth waiting for."""
        asked = self._farewell.keys if self._farewell is not None else set()
        gave = any(s.identity is not None for s in self._job.sources if s.key in asked)
        return bool(asked) and now - self._farewell_since < (PATIENCE if gave else OPINION)

    def begin_samples(self) -> bool:
        """Compare a few bytes across sources, unless that was done or a director vouches for them.

        A sample of a cache that has not got the object makes it fetch all of it.
        """
        job = self._job
        if self._samples is not None:
            return False
        rivals = job.versions.rivals
        known = [s for s in job.sources if s.identity or s.opinion]
        asked = [s for s in known if not s.named_for and (not s.closed or s.key in rivals)]
        samples = probes(job.ledger.written())
        self._samples = Comparison(job.part, samples, asked, job.wake, others=1)
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
        for enquiry in (self._pending, self._farewell):
            if enquiry is not None:
                enquiry.end()
        if self._samples is not None:
            self._samples.end()
        self._job.idle.close()

    def _ask_words(self, now: float) -> None:
        """Two versions were seen and one is declared: those who have them may know their digests.

        The bytes cannot tell before one version is here as a whole, so without such a word, or a
        majority, the one that was met first is gathered, at the risk of all its bytes.
        """
        job = self._job
        if self.under_way:
            return
        asked = [s for s in repair.rivals(job) if s.key not in self._heard]
        asked = asked or [s for s in job.sources if s.trusted and s.key not in self._heard][:1]
        if job.checksum is None or not asked:
            job.disputed = False
            return
        own = [lane for lane in job.lanes.values() if lane.source is asked[0]]
        if len(own) >= asked[0].allowed:  # the question needs one of its connections
            words = "its word is wanted"
            own[-1].cut(steering.Verdict(own[-1].key, words, 0.0, failure=False))
        elif len(job.lanes) < job.connections:
            self._since = now
            self._heard.add(asked[0].key)
            name = job.checksum.partition(":")[0].lower()
            self._pending = Enquiry(asked[:1], self._told_word, job.changed, digest=name)

    def _told_word(self, source: Source, identity: Identity | None) -> None:
        with self._job.changed:
            if identity is not None:
                repair.heard(self._job, source, identity)
            self._job.changed.notify_all()

    def _ask_digest(self) -> None:
        """Ask a server for a digest of the whole, beside the transfer."""
        job = self._job
        size = job.ledger.size
        asked = [each for each in job.sources if each.trusted][:1]
        pinned = job.versions.pinned
        if pinned is None or size is None or not asked:
            return
        self._wants_digest, self._asked_after = False, job.restarts
        self._expect(pinned, size)
        if size > _SMALL and not job.prover.expects:
            self._since = time.monotonic()
            self._pending = Enquiry(
                asked, self._told_digest, job.changed, digest="any", keep=self._spare
            )

    def _spare(self, source: Source, stream: Stream) -> bool:
        """Keep a connection for the lane whose place the question has taken, if there is one."""
        job = self._job
        with job.changed:
            _, sources = views(job, time.monotonic())
            room = any(s.key == source.key and s.lanes <= s.allowed for s in sources)
            room = room and len(job.lanes) + len(job.enquired) <= job.connections
            return room and not job.over and job.idle.keep(source, stream, unused=True)

    def _asking(self, now: float) -> list[int]:
        """Where a connection of ours is busy with an enquiry; one that takes long is ended."""
        if self._pending is None or not self._pending.under_way:
            return []
        if now - self._since > 2 * PATIENCE:
            self._pending.end()
        return list(self._pending.keys)

    def _expect(self, identity: Identity, size: int) -> None:
        best = best_digest(identity.digests, size)
        if best is not None and not self._job.prover.expects:
            self._job.prover.expect(best)
            self._job.prover.wake()

    def _told_digest(self, source: Source, identity: Identity | None) -> None:
        job = self._job
        with job.changed:
            size = job.ledger.size
            current = source.trusted and not job.over and job.restarts == self._asked_after
            if identity is not None and size is not None and current:
                self._expect(identity, size)
            job.changed.notify_all()

    def _doubted(self, source: Source, identity: Identity | None) -> bool:
        """Whether an answer to HEAD, which may be wrong, would change anything."""
        job = self._job
        with job.changed:
            if identity is None or identity.size != job.ledger.size:
                return True
            before = source.identity or job.versions.pinned
            gave = source.identity is not None
            return before is not None and before.differs(identity, same_place=gave)

    def _told_last(self, source: Source, identity: Identity | None) -> None:
        """The same object still, after the last byte? A change in the middle shows only here."""
        job = self._job
        with job.changed:
            job.changed.notify_all()
            before = source.identity
            if identity is None or job.over:
                return
            if before is None:
                source.opinion = identity
            # one answer is of one version, whatever the server calls the next one
            if (
                before is not None
                and job.requests > 1
                and before.differs(identity, same_place=True)
            ):
                job.start_over(source)
            else:
                repair.cut_short(job, identity)
