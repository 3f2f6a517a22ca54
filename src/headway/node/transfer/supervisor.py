"""The supervisor of one transfer: it watches the lanes, steers them, and says when it is over."""

from __future__ import annotations

import contextlib
import time

from headway.node.errors import HeadwayError, Stopped
from headway.node.processors import usable_processors
from headway.node.transfer import questions, reading, repair, steering
from headway.node.transfer.job import Job
from headway.node.transfer.journal import SUFFIX, Journal, read_journal
from headway.node.transfer.keeper import Keeper
from headway.node.transfer.part import Part
from headway.node.transfer.questions import Questions
from headway.node.transfer.report import Snapshot, absence, failure, impatience, snapshot
from headway.node.transfer.roster import Roster
from headway.node.transfer.steering import LaneView, SourceView
from headway.node.transfer.views import views

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.node.transfer.proof import Chunks
    from headway.node.transfer.route import Readers

_PROCESSORS = usable_processors()
_TICK = 0.05
_MEASURE = 0.25
_TELL = 0.5
_STOPPED = 5.0  # seconds of a tick: no machine is so busy, so the process was stopped
_THIRST = 5.0  # seconds without a byte after which directors are asked for more sources
_RIVAL = 3.0  # seconds without progress after which another version is better than none


class Supervisor:
    """Measures, decides, and never touches a byte itself."""

    def __init__(
        self,
        part: Part,
        journal: Journal,
        roster: Roster,
        size: int | None,
        checksum: str | None,
        manifest: Chunks | None,
        connections: int,
        readers: Readers | None = None,
    ) -> None:
        self.part, self.journal, self.roster = part, journal, roster
        self.job = Job(
            part,
            journal,
            size=size,
            checksum=checksum,
            manifest=manifest,
            connections=connections,
            readers=readers,
        )
        self.readers = readers
        self.patience = self.grace = 0.0
        self.final = False
        self.progress: Callable[[int, int | None], None] | None = None
        self.watch: Callable[[Snapshot], None] | None = None
        self.should_stop: Callable[[], bool] = lambda: False
        self.proof = ""
        self._begin = time.monotonic()
        self._measured = self._told = 0.0
        self._keeper = Keeper(self.job, part, journal)
        self.questions = Questions(self.job)
        self._whole_since: float | None = None

    def resume(self) -> None:
        """Go on from what is there, or begin anew."""
        past = read_journal(f"{self.part.place}{SUFFIX}", self.part.file, self.journal.proof)
        with self.job.changed:
            if past is not None and (past.stretches or self.readers is not None):
                self.job.resume(past)
            if self.readers is not None and self.job.versions.open and self.job.manifest is None:
                self.readers.lost(0, 1 << 62)  # nothing says which version an earlier one brought
            reading.begin(self.job)
        if not self.job.ledger.bytes:
            self.journal.remove()
            self.part.clear()

    def supervise(self) -> None:
        """Until the object is whole and proven; an error when it cannot be."""
        job = self.job
        if self.readers is not None and job.being_read:
            self.readers.look(job)
        with job.changed:
            while True:
                now = time.monotonic()
                self._raise_errors()
                if self._proven(now):
                    job.end()  # before the lock is free: what comes late changes nothing any more
                    return
                self._steer(now)
                self._raise_hopeless(now)
                if self.readers is None or not self.readers.room:  # else it comes and goes
                    self._keeper.keep(now)
                if reading.paused(job):
                    job.progressed = job.came = now  # nobody is to blame that nothing comes
                self._rest(now)
                job.changed.release()  # callbacks may take their time, and may call us
                try:
                    self._tell(time.monotonic())
                    if self.readers is not None and job.being_read:
                        self.readers.look(job)
                    if self.should_stop():
                        raise Stopped("the transfer was stopped")
                finally:
                    job.changed.acquire()

    def _rest(self, now: float) -> None:
        """Wait a moment; while this process itself is stopped, nobody's time runs out."""
        job = self.job
        job.changed.wait(_TICK)
        stopped = time.monotonic() - now
        if stopped > _STOPPED:
            job.progressed += stopped
            job.came += stopped
            self.questions.postpone(stopped)
            for lane in job.lanes.values():
                lane.last = min(now + stopped, lane.last + stopped)
            for source in job.sources:
                if source.absent_since is not None:
                    source.absent_since += stopped

    def finish(self) -> None:
        job = self.job
        self._end_lanes()
        self._keeper.join()
        assert job.ledger.size is not None
        self._tell(time.monotonic(), last=True)
        self.part.finish(job.ledger.size)
        self.journal.remove()
        if job.manifest is not None:
            self.proof = "manifest"
        elif job.checksum is not None:
            self.proof = "checksum"
        elif job.prover.expects:
            self.proof = "digest"
        elif job.declared is not None:
            self.proof = "size"

    def close(self, *, keep: bool) -> None:
        """Let go of everything; nobody writes after this."""
        ended = self._end_lanes()
        self._keeper.join()
        # without a journal nobody could go on from what would stay
        keep = keep and (self.job.error is None or self.journal.begun)
        if keep and self.job.error is None:
            with contextlib.suppress(HeadwayError), self.job.changed:
                self._keeper.write()
        ended = self.job.prover.close() and ended
        if keep:
            self.journal.close()
        else:
            self.journal.remove()
        self.part.close(keep=keep, busy=not ended)

    def snapshot(self) -> Snapshot:
        with self.job.changed:
            return snapshot(self.job, time.monotonic(), self._begin)

    # -- with the lock held

    def _raise_errors(self) -> None:
        job = self.job
        error = job.error or job.prover.error
        if error is not None:
            raise error

    def _proven(self, now: float) -> bool:
        job = self.job
        if not job.ledger.complete:
            self._whole_since = None
            self.questions.take_back_farewell()
            return False
        if self._whole_since is None:
            self._whole_since = now
        if any(lane.awaits_last_word for lane in job.lanes.values()):
            return False
        waited = now - self._whole_since >= questions.PATIENCE
        if self.questions.under_way and not waited:
            return False
        job.prover.wake()
        if not job.prover.done():
            return False
        wrong = job.prover.wrong()
        if wrong is not None:
            repair.wrong_whole(job, wrong)
            return False
        if job.manifest is not None or job.prover.expects:
            return True
        several = job.requests > 1 or job.length_unsaid
        if job.lanes and not waited:
            for lane in job.lanes.values():
                lane.cut(steering.Verdict(lane.key, "nothing is left to bring", 0.0, failure=False))
            return False
        if self.questions.begin_farewell(several=several):
            return False
        if self.questions.awaits_farewell(now):
            return False
        job.error = job.error or repair.disagreement(job)
        if job.error is not None or self.questions.begin_samples():
            return False
        if self.questions.awaits_samples(now):
            return False
        if self.questions.samples_differ:
            job.error = repair.disagreed(job, "they give different bytes")
        return job.error is None

    def _steer(self, now: float) -> None:
        job = self.job
        stuck = not job.lanes or now - job.progressed > _THIRST
        for fresh in self.roster.news(now, stuck=stuck):
            job.add(fresh)
        lanes, sources = views(job, now)
        if now - self._measured >= _MEASURE:
            self._measured = now
            self._measure(lanes, sources, now)
        for verdict in steering.stalls(lanes, sources):
            lane = job.lanes.get(verdict.lane)
            if lane is not None and not (lane.lease is None and lane.got):
                lane.cut(verdict)
        if job.ledger.complete:
            return
        self.questions.ask(now)
        lanes, sources = views(job, now)
        cut = {lane.key for lane in job.lanes.values() if lane.verdict is not None}
        live = [view for view in lanes if view.key not in cut]
        known = not job.versions.open and any(s.identity is not None for s in job.sources)
        picked = steering.openings(
            sources,
            live,
            most=job.connections,
            remaining=job.ledger.remaining,
            known=known,
            processors=_PROCESSORS,
        )
        opened = 0
        for key in picked:
            if len(live) + opened + len(job.enquired) >= job.connections:
                break
            if opened and not known:
                break
            source = job.source(key)
            opened += source is not None and job.open_lane(source)
        # one that fell silent before and has given nothing since is no hope
        hope = opened or any(not lane.source.silences for lane in job.lanes.values())
        idle = 0.0 if hope else now - job.progressed
        if idle > _THIRST:
            for each in job.sources:  # nobody else can help: ask again for what was wrong
                job.ledger.pardon(each.key)
        if idle > min(_RIVAL, self.patience / 3):
            self._try_rivals()

    def _measure(self, lanes: list[LaneView], sources: list[SourceView], now: float) -> None:
        job = self.job
        for view in lanes:
            source = job.source(view.source)
            if source is not None and view.phase == "body" and view.age > 0.5 and view.got:
                source.measured(view.recent)
        for each in sources:
            best = job.best_rates.get(each.key, 0.0)
            own = job.source(each.key)
            if own is None:
                continue
            if steering.falling(each, lanes, best):
                own.ease(now)
                job.best_rates[each.key] = own.rate
                last = max(view.key for view in lanes if view.source == each.key)
                words = "one connection less brings as much"
                job.lanes[last].cut(steering.Verdict(last, words, 0.0, failure=False))
            else:
                job.best_rates[each.key] = max(best, own.rate)

    def _try_rivals(self) -> bool:
        """Nobody gives the version that was begun; another one may be had."""
        return repair.switch(self.job, repair.rivals(self.job))

    def _raise_hopeless(self, now: float) -> None:
        job, roster = self.job, self.roster
        late = now - job.waiting_since > self.patience
        if job.lanes or job.ledger.complete:
            if late and not job.ledger.complete:
                raise impatience(job, roster, now, self.patience)
            return
        if not job.sources:
            if roster.refused(now) or late:
                raise failure(job, roster)
            return
        sources = job.sources
        if not roster.waiting(now):
            if steering.agreed_absent([s.absent_since for s in sources], now, self.grace):
                raise absence(job, self.final)
            # on a slot another node may do better, and somebody may mend it within its patience
            refusals = [max(s.refusals, s.lasting if self.final else 0) for s in sources]
            if steering.hopeless(refusals, [s.closed for s in sources]):
                if self._try_rivals():
                    return
                raise failure(job, roster)
        if late:
            raise impatience(job, roster, now, self.patience)

    # -- without it

    def _tell(self, now: float, *, last: bool = False) -> None:
        if now - self._told < _TELL and not last:
            return
        self._told = now
        if self.progress is not None:
            self.progress(self.job.ledger.bytes, self.job.ledger.size)
        if self.watch is not None:
            self.watch(self.snapshot())

    def _end_lanes(self) -> bool:
        """Whether no thread can touch the part any more."""
        job = self.job
        with job.changed:
            job.end()
            lanes = list(job.lanes.values())
        for lane in lanes:
            lane.cut()
        self.questions.end()
        if job.comparison is not None:
            job.comparison.end()
        end = time.monotonic() + 2.0
        for lane in lanes:
            lane.join(end - time.monotonic())
        with job.changed:
            # a name service can keep a thread for long; it writes nothing, for its lease is over
            while job.ledger.writing:
                job.changed.wait(_TICK)
            return not job.lanes
