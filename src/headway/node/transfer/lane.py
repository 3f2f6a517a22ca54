"""Lanes: one connection each with the thread that reads it, and what is measured of it."""

from __future__ import annotations

import threading
import time
from collections import deque

from headway.node.transfer import scheduler
from headway.node.transfer.connection import Quiet
from headway.node.transfer.scheduler import CutReason, LaneView
from headway.node.transfer.source import Fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from headway.node.transfer.client import Client, Head
    from headway.node.transfer.ledger import Lease
    from headway.node.transfer.source import Source

    class Work(Protocol):
        """The download that a lane works for; every call takes its lock by itself."""

        def next_lease(self, lane: Lane) -> Lease | None: ...
        def next_early(self, lane: Lane) -> Lease | None: ...
        def opened(self, lane: Lane, lease: Lease, head: Head) -> None: ...
        def write(self, lane: Lane, lease: Lease, piece: memoryview) -> None: ...
        def sampled(self, lane: Lane, lease: Lease, piece: memoryview) -> None: ...
        def ended(self, lane: Lane, lease: Lease, taken_back: bool) -> None: ...
        def failed(self, lane: Lane, lease: Lease | None, fault: Fault) -> None: ...
        def broken(self, lane: Lane, lease: Lease | None, error: BaseException) -> None: ...
        def left(self, lane: Lane) -> None: ...  # closes its connection, or keeps it for later


BUFFER = 2 << 20
_AHEAD = 1.5  # times its latency before the end of an answer the next one is asked for
_MOMENT = 0.02  # seconds that a request may take beyond the latency
_MOST_AHEAD = 8  # requests
_HOLD = 0.2  # seconds for which received bytes may wait for more of them before they are written
_GLANCE = 0.03  # seconds over which processor time says anything
_SLOW = 20.0  # seconds over which a lane's usual rate is taken


class Superseded(Exception):
    """Another lane brings these bytes already: ask for others."""


class Lane:
    """One connection to one source, and the thread that reads it."""

    def __init__(self, key: int, source: Source, client: Client, work: Work) -> None:
        self.key, self.source, self.client = key, source, client
        self.lease: Lease | None = None
        self.coming: deque[Lease] = deque()  # what was asked for beforehand, to follow it
        self.cut_reason: CutReason | None = None  # why it was cut off
        self.moved = 0  # bytes received
        self.got = 0  # of them in this request
        self.fresh = 0  # of those, bytes that no lane had brought before
        self.begun = self.last = time.monotonic()
        # seconds spent on first bytes, and since when it waits for one; only ever replaced whole
        self._waits: tuple[float, float | None] = (0.0, self.begun)
        self._made = self.begun
        self.flowing: float | None = None  # since when bytes come
        self._cpu = 0.0  # seconds of processor time by the last byte
        self._cpu_looked = 0.0, 0.0  # the time of a byte, and the CPU seconds by then
        self._cpu_share = 0.0
        self.gap = 0.0
        self.usual = 0.0
        self.on_disk = False
        self.ahead = True  # requests may be sent before they are due
        self._early = True  # the first bytes are written at once: others are compared with them
        self._samples: deque[tuple[float, int]] = deque()
        self._work = work
        self._thread = threading.Thread(target=self._run, name=f"lane-{key}", daemon=True)

    def start(self, lease: Lease) -> None:
        """Begin with this stretch; the download says what comes next."""
        self.lease = lease
        self._thread.start()

    def cut(self, reason: CutReason | None = None) -> None:
        """Take its bytes away; the thread ends by itself."""
        self.cut_reason = self.cut_reason or reason
        self.client.abort()

    def dismiss(self, words: str) -> None:
        """Cut it off through no fault of its source."""
        self.cut(CutReason(self.key, words, 0.0, failure=False))

    def join(self, seconds: float) -> None:
        self._thread.join(max(0.0, seconds))

    @property
    def awaits_last_word(self) -> bool:
        """Whether all bytes of its request are here, and not yet what the server says behind."""
        lease = self.lease
        if lease is None or lease.over or lease.end is None or lease.sample:
            return False
        return lease.begin < lease.end <= lease.at

    def done(self, *, taken_back: bool = False) -> None:
        """Its request is over; `taken_back`: the server says that it went wrong."""
        self.lease = None
        if taken_back:
            self.got = 0

    def brought(self, count: int) -> None:
        """So many of its bytes had not been here before."""
        self.fresh += count

    def let_go(self) -> list[Lease]:
        """Its request is over; returns the leases that it had requested early."""
        self.lease = None
        early = list(self.coming)
        self.coming.clear()
        return early

    def postpone(self, begin: float, seconds: float) -> None:
        """This process was stopped for so long, which is not the source's silence."""
        self.last = min(begin + seconds, self.last + seconds)

    def rest(self) -> None:
        """Until its next request, time does not count against the source."""
        now = time.monotonic()
        waited, since = self._waits
        self._waits = waited if since is None else waited + now - since, now

    def rate(self, now: float) -> float:
        """Bytes a second, as last measured."""
        clock = self._clock(now)
        if not self._samples or clock <= self._samples[0][0]:
            return 0.0
        return (self.moved - self._samples[0][1]) / (clock - self._samples[0][0])

    def _clock(self, now: float) -> float:
        """The time without the waits for first bytes, by which rates are measured."""
        waited, since = self._waits
        return now - waited if since is None else since - waited

    def view(self, now: float, left: int | None) -> LaneView:
        """What the scheduler needs to know, measured now."""
        samples = self._samples
        moved, clock = self.moved, self._clock(now)
        if not samples or clock > samples[-1][0]:
            samples.append((clock, moved))
        while len(samples) > 2 and samples[1][0] <= clock - scheduler.WINDOW:
            samples.popleft()
        seconds = clock - samples[0][0]
        recent = (moved - samples[0][1]) / seconds if seconds > 0.05 else 0.0
        if not recent and seconds <= 0.05 and self.flowing is not None:
            recent = moved / max(clock - self._made, 0.01)
        if self.flowing is not None and now - self.flowing > scheduler.WINDOW:
            weight = min(1.0, 0.25 / _SLOW)
            self.usual = max(recent, (1 - weight) * self.usual + weight * recent)
        return LaneView(
            key=self.key,
            source=self.source.key,
            phase="disk" if self.on_disk else self.client.phase,
            age=now - (self.flowing if self.flowing is not None else self.begun),
            silence=max(0.0, now - self.last),
            recent=recent,
            usual=self.usual,
            gap=self.gap,
            left=left,
            got=self.got,
            latency=self.source.latency,
            cpu_share=self._cpu_share_now(now),
        )

    def _cpu_share_now(self, now: float) -> float:
        """The share of a processor that its bytes have taken in the last second."""
        (when, before), last, cpu = self._cpu_looked, self.last, self._cpu
        if self.flowing is not None and last - when > _GLANCE:
            self._cpu_share = (cpu - before) / (last - when)
            if now - when > 1.0:
                self._cpu_looked = last, cpu
        return self._cpu_share

    def _run(self) -> None:
        buffer = memoryview(bytearray(BUFFER))
        lease = self.lease
        try:
            while lease is not None:
                self.rest()
                self.begun = self.last = time.monotonic()
                self.got = self.fresh = 0
                try:
                    if not self._bring(lease, buffer):
                        self.client.close()
                except Superseded:
                    self.client.close()
                lease = self.coming.popleft() if self.coming else None
                if lease is None or lease.over:
                    self.client.drop_early()
                    lease = self._work.next_lease(self)
                self.lease = lease
        except Fault as fault:
            self.client.close()
            self._work.failed(self, lease, fault)
        except Exception as error:
            self.client.close()
            self._work.broken(self, lease, error)
        finally:
            self._work.left(self)

    def _bring(self, lease: Lease, buffer: memoryview) -> bool:
        """Returns whether the connection serves for another request."""
        whole = lease.end is None or (self.source.ranges is False and not lease.sample)
        cpu = time.thread_time()
        head = self.client.open(lease.begin, None if whole else lease.end)
        if self.client.forgets:
            self.source.forgot_a_request()
        if not self.client.was_early:
            cpu = time.thread_time() - cpu  # the node's own time, which is not latency
            self.source.answered_after(max(0.0, self._received(0) - self.begun - cpu))
        self._work.opened(self, lease, head)
        stop = head.end
        if lease.sample:
            return self._compare(lease, head, buffer)
        at = head.begin  # of the next byte from the wire
        filled, since, now = 0, 0.0, self.last
        while True:
            end = lease.end  # it may have come nearer
            goal = stop if end is None else end if stop is None else min(end, stop)
            want = BUFFER - at % BUFFER  # pieces end where blocks of the disk do
            if goal is not None:
                want = min(want, goal - at)
            if want > 0:
                try:
                    count = self.client.read_into(buffer[filled : filled + want])
                except Quiet:
                    if filled:
                        self._put(lease, buffer[:filled])
                        filled = 0
                    if self.cut_reason is not None:
                        raise Fault("given up", phase="body") from None
                    continue
                except Fault:
                    if filled:
                        self._put(lease, buffer[:filled])
                    raise
                now = self._received(count)
                since = since if filled else now
                at += count
                lease.reached = at
                if stop is not None:
                    self._look_ahead(stop - at)
                filled += count
            else:
                count = 0
            held = at % BUFFER == 0 or now - since > _HOLD or self._early
            if filled and (count == 0 or held):
                self._put(lease, buffer[:filled])
                filled = 0
            if count == 0:
                break
        if stop is not None and at < stop:  # the rest belongs to somebody else by now
            if lease.end is None or at < lease.end:
                raise Fault(f"it ended {stop - at} bytes too early", phase="body")
            self._work.ended(self, lease, False)
            return False
        if stop is None and lease.end is not None and at < lease.end:
            raise Fault(f"it ended {lease.end - at} bytes too early", phase="body")
        if stop is None and lease.stolen:  # its answer goes on with what others bring
            self._work.ended(self, lease, False)
            return False
        try:
            again = self.client.finish()
        except Fault:
            self._work.ended(self, lease, True)
            raise
        self._work.ended(self, lease, False)
        return again

    def _look_ahead(self, left: int) -> None:
        """Request what comes next, early enough that the connection does not fall idle."""
        far = self.source.rate * (_AHEAD * self.source.latency + _MOMENT)
        left += sum(lease.left or 0 for lease in self.coming)
        while self.ahead and left < far and len(self.coming) < _MOST_AHEAD:
            lease = self._work.next_early(self)
            if lease is None or lease.end is None:
                return
            self.coming.append(lease)
            left += lease.end - lease.begin
            self.ahead = self.client.ask_early(lease.begin, lease.end)

    def _put(self, lease: Lease, piece: memoryview) -> None:
        begin = time.monotonic()
        self.on_disk, self._early = True, False
        try:
            self._work.write(self, lease, piece)
        finally:
            self.on_disk = False
            self.last += time.monotonic() - begin  # a slow disk is not the source's silence

    def _compare(self, lease: Lease, head: Head, buffer: memoryview) -> bool:
        assert head.end is not None
        want, filled = head.end - head.begin, 0
        while filled < want:
            try:
                count = self.client.read_into(buffer[filled:want])
            except Quiet:
                if self.cut_reason is not None:
                    raise Fault("given up", phase="body") from None
                continue
            self._received(count)
            if count == 0:
                raise Fault("it broke off", phase="body")
            filled += count
        again = self.client.finish()
        self._work.sampled(self, lease, buffer[:filled])
        return again

    def _received(self, count: int) -> float:
        now = time.monotonic()
        if count:
            waited, since = self._waits
            if since is not None:
                self._waits = waited + now - since, None
            self._cpu = time.thread_time()
            if self.flowing is None:
                self._cpu_looked = now, self._cpu
                self.flowing = now
            elif self.got:
                self.gap = max(self.gap * 0.999, now - self.last)
            self.moved += count
            self.got += count
        self.last = now
        return now
