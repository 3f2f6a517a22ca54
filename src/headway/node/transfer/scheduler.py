"""The scheduler: which source is asked for which bytes, who is stalled, and when to give up.

Pure: everything that counts is in the views, so every decision can be tested without a clock, a
socket or a thread. Rates are bytes a second, times are seconds, lanes are connections in use.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

FIRST_CHUNK = 16 << 20  # the first request, while the size is unknown
LEAST_CHUNK = 1 << 20
MOST_CHUNK = 64 << 20  # bounds how far proofs lag behind the bytes, and what one lease can hold up
CHUNK_SECONDS = 20.0
OVERHEAD = 0.1  # of a request's time that waiting for its first byte may take
MOST_FOR_LATENCY = 1 << 30  # bytes of a request, where proofs in order lag behind for it
RACE = 1.0  # seconds without a first byte after which the next source is asked too
WORTH = 2.0  # seconds that must be left for another connection to be worth its opening
WINDOW = 3.0  # seconds over which a rate is recent
SETTLE = 3.0  # seconds of body before a rate says anything
FLOOR = 0.15  # of what the peers give: below it a source is stalled
OWN_FLOOR = 0.1  # of what it gave itself
SILENCE = 2.0  # seconds without a byte, while others could give them
ANSWER = 5.0  # seconds for a first byte while others give bytes
ANSWER_ELSEWHERE = 8.0  # the same while others could be asked
ANSWER_ALONE = 15.0  # the same when there is no other; doubled while it does not help
SET_ASIDE = 15.0  # seconds for which one that is much worse than others is not asked
ALONE = 3.0  # the same when there is no other; doubled while it does not help
MOST_ALONE = 60.0
HEDGE_SHARE = 0.04  # of the object that may be fetched twice
HEDGE_LEAST = 1 << 20
GAIN = 1.1  # several lanes of a source must bring so many times what one of them brought
TRIES = 4  # refusals in a row that are believed
THIRST = 5.0  # seconds without a byte after which more is tried to get any
RIVAL = 3.0  # seconds without progress after which another version is better than none
_MOMENT = 0.05  # seconds of bytes that show what they cost this node
_BUSY = 0.7  # of the processors that may be busy with it
_SLOW_DISK = 0.5  # of the lanes' time spent in writing
_STEADY = 8.0  # seconds after which a low rate is not a beginning's; a slot's log speaks after ten
_WAITING = ("resolve", "connect", "TLS", "first byte")


class LaneView:
    """One connection at one moment."""

    def __init__(
        self,
        *,
        key: int,
        source: int,
        phase: str,
        age: float,
        silence: float,
        recent: float,
        usual: float = 0.0,
        gap: float = 0.0,
        left: int | None = None,
        got: int = 0,
        latency: float = 0.0,
        cpu_share: float = 0.0,
    ) -> None:
        self.key, self.source, self.phase = key, source, phase
        self.age = age  # of this request
        self.silence = silence  # since the last byte, or since the request
        self.recent = recent  # rate over the last WINDOW
        self.usual = usual  # the rate over a longer time
        self.gap = gap  # the longest pause between two pieces that it has come back from
        self.left = left  # of its lease
        self.got = got  # of this request
        self.latency = latency  # from a request to its source to the first byte
        self.cpu_share = cpu_share  # the share of a processor that its bytes take

    @property
    def eta(self) -> float:
        """Seconds to the end of its lease at the recent rate."""
        if self.left == 0:
            return 0.0
        if self.left is None or self.recent <= 0:
            return float("inf")
        return self.left / self.recent


class SourceView:
    """One source at one moment."""

    def __init__(
        self,
        *,
        key: int,
        rank: int = 0,
        ready: bool = True,
        allowed: int = 2,
        lanes: int = 0,
        rate: float = 0.0,
        ranges: bool | None = None,
        last_resort: bool = False,
        silences: int = 0,
        closed: bool = False,
        answered: bool = True,
        faults: int = 0,
    ) -> None:
        self.key, self.rank, self.ready, self.allowed = key, rank, ready, allowed
        self.lanes, self.rate, self.ranges = lanes, rate, ranges
        self.last_resort, self.silences, self.closed = last_resort, silences, closed
        self.answered = answered  # ever; else one connection has to show first that it does
        self.faults = faults  # in a row


class CutReason:
    """Why a lane is cut."""

    def __init__(self, lane: int, words: str, bench: float, *, failure: bool) -> None:
        self.lane, self.words = lane, words
        self.bench = bench  # seconds for which its source is set aside
        self.failure = failure  # the source failed; else others are only better


def stalls(lanes: Sequence[LaneView], sources: Sequence[SourceView]) -> list[CutReason]:
    """The lanes to cut."""
    reasons = (_stall(lane, lanes, sources) for lane in lanes)
    return [reason for reason in reasons if reason is not None]


def _stall(
    lane: LaneView, lanes: Sequence[LaneView], sources: Sequence[SourceView]
) -> CutReason | None:
    if lane.phase in ("disk", "verify"):  # the node's doing, not the source's
        return None
    others = [s for s in sources if s.key != lane.source and (s.ready or s.lanes) and not s.closed]
    peers = [
        x for x in lanes if x.source != lane.source and x.phase == "body" and x.silence < SILENCE
    ]
    limit = _silence_limit(lane, others, peers, sources)
    if lane.silence > limit:
        doing = "said nothing" if lane.phase in _WAITING else "gave nothing"
        words = f"it {doing} for {lane.silence:.0f} s"
        return CutReason(lane.key, words, 0.0, failure=True)
    if lane.phase != "body" or lane.age < SETTLE or not others:
        return None
    best = max((peer.recent for peer in peers if peer.age >= SETTLE / 2), default=0.0)
    if lane.recent < FLOOR * best and lane.eta > WORTH:
        words = f"it gives {shown_rate(lane.recent)} where others give {shown_rate(best)}"
        return CutReason(lane.key, words, SET_ASIDE, failure=False)
    fallen = lane.usual > 0 and lane.recent < OWN_FLOOR * lane.usual and lane.age > 2 * SETTLE
    # when the others have fallen just as far, it is the network, and leaving would not help
    alike = any(peer.recent < 4 * lane.recent for peer in peers)
    fresh = [s for s in others if s.ready and s.lanes < s.allowed and not s.last_resort]
    if fallen and fresh and not alike and lane.eta > WORTH:
        words = f"it fell from {shown_rate(lane.usual)} to {shown_rate(lane.recent)}"
        return CutReason(lane.key, words, SET_ASIDE, failure=False)
    return None


def _silence_limit(
    lane: LaneView,
    others: Sequence[SourceView],
    peers: Sequence[LaneView],
    sources: Sequence[SourceView],
) -> float:
    """How long this lane may be silent."""
    own = next((s for s in sources if s.key == lane.source), None)
    # waiting longer may help one that never begins; one that gave bytes and fell silent has failed
    again = 1.0 if lane.got else 2.0 ** min(own.silences if own else 0, 6)
    if lane.phase in _WAITING:
        if peers:
            return ANSWER
        if any(s.ready and not s.lanes and not s.faults for s in others):  # they want its place
            return max(RACE, ANSWER_ELSEWHERE / (1 + _hung(sources) / 2))
        return ANSWER_ELSEWHERE if others else min(ANSWER_ALONE * again, MOST_ALONE)
    pause = 4 * lane.gap
    if peers:  # the network is well, so silence is the source's
        return max(SILENCE, min(pause, 2 * ALONE))
    if others:
        return max(SILENCE * 2, min(pause, 4 * ALONE))
    return max(min(ALONE * again, MOST_ALONE), pause)


def openings(
    sources: Sequence[SourceView],
    lanes: Sequence[LaneView],
    *,
    most: int,
    remaining: int | None,
    known: bool,
    processors: int = 1 << 10,
) -> list[int]:
    """The sources at which lanes are worth opening, best first, as long as there is room.

    `known`: somebody has answered; before that, only the first that has something to do is meant.
    """
    if _cpu_bound(lanes, processors):
        return []
    usable = [s for s in sources if s.ready and not s.closed]
    caches = [s for s in usable if not s.last_resort]
    working = {lane.source for lane in lanes if lane.silence < RACE}
    if not caches and not (working - {s.key for s in sources if s.last_resort}):
        caches = usable
    usable = sorted(caches, key=lambda s: (-_class(s, caches), s.faults, s.rank, s.key))
    if len(lanes) >= most or not usable:
        return []
    if not lanes and not known:
        return [source.key for source in usable]
    waiting = [lane for lane in lanes if lane.phase in _WAITING and lane.got == 0]
    if not known:
        # nobody has answered yet: ask one more source for each second of silence, or sooner where
        # others have hung before
        race = RACE / (1 + _hung(sources))
        if all(lane.silence >= race for lane in waiting):
            return [s.key for s in usable if s.lanes == 0]
        return []
    if remaining is not None and not _worth(remaining, lanes):
        return []
    picked: list[int] = []
    for source in usable:
        # one that knows no ranges, or has not answered yet, has no use for a second lane
        allowed = source.allowed if source.answered and source.ranges is not False else 1
        picked += [source.key] * max(0, allowed - source.lanes)
    return picked


def _hung(sources: Sequence[SourceView]) -> int:
    """How many have fallen silent, and not given anything since."""
    return sum(source.silences > 0 for source in sources)


def _cpu_bound(lanes: Sequence[LaneView], processors: int) -> bool:
    """Whether this node limits them, or may: half of its processors busy are enough."""
    if len(lanes) == 1 and lanes[0].phase in ("body", "disk"):
        first = lanes[0]
        begins = (first.age if first.got else first.silence) < _MOMENT
        if begins and first.latency < _MOMENT:  # else it is far away, and others are needed at once
            return True
    cpu = sum(lane.cpu_share for lane in lanes if lane.silence < RACE)
    return cpu >= _BUSY * max(1, processors // 2)


def _class(source: SourceView, all_of_them: Sequence[SourceView]) -> int:
    """2: fast or not yet measured, 1: much slower than the best; ranks decide within a class."""
    best = max((s.rate for s in all_of_them), default=0.0)
    known_ranges = 0 if source.ranges is False else 1
    return 2 * known_ranges + (0 if 0 < source.rate < 0.3 * best else 1)


def _worth(remaining: int, lanes: Sequence[LaneView]) -> bool:
    """Whether another connection can bring the end nearer."""
    flowing = sum(lane.recent for lane in lanes)
    free = remaining - sum(lane.left or 0 for lane in lanes)
    if not lanes or free >= 4 * LEAST_CHUNK:
        return True
    if any(lane.left is not None and lane.left > 2 * LEAST_CHUNK for lane in lanes):
        return flowing <= 0 or remaining / flowing > WORTH / 4
    # the rate of one that has fallen silent says for a while that it is nearly done
    etas = (max(lane.silence, lane.eta if lane.recent > 0 else 0.0) for lane in lanes)
    return max(etas, default=0.0) > WORTH


def chunk(
    remaining: int | None,
    lanes: int,
    rate: float,
    total_rate: float,
    *,
    free: int | None = None,
    latency: float = 0.0,
    ordered: bool = False,
) -> int:
    """How many bytes a lane asks for; `free` is what is not leased yet.

    Every request costs its `latency`, so a lane asks for its whole share; the first to finish takes
    over from the others. `ordered`: the bytes are proven from the first to the last, so the lanes
    stay close together, and ask for less and less towards the end.
    """
    if remaining is None:
        return FIRST_CHUNK
    pool = remaining if free is None else free
    share = rate / total_rate if rate > 0 and total_rate > 0 else 1.0 / max(1, lanes)
    share = min(1.0, max(share, 0.05))
    ordered = ordered and lanes > 1
    count = int(pool * share / 2) if ordered else -int(-remaining * share)
    if rate > 0:
        count = min(count, int(rate * max(CHUNK_SECONDS, latency / OVERHEAD)))
    if ordered:
        count = min(count, MOST_CHUNK)
    worth = min(rate * latency / OVERHEAD, MOST_FOR_LATENCY)
    count = max(LEAST_CHUNK, min(max(count, int(worth)), pool))
    crumb = not ordered and 0 < pool - count < LEAST_CHUNK  # not worth a request of its own
    return pool if crumb else count


def first_chunk(size: int | None, lanes: int, *, ordered: bool) -> int:
    """How many bytes everybody is asked for before anybody has answered."""
    if size is None:
        return FIRST_CHUNK
    share = chunk(size, lanes, 0.0, 0.0, ordered=ordered)
    return min(size, max(FIRST_CHUNK, share))


def chunk_for_readers(rate: float, latency: float, grain: int) -> int:
    """The bytes of a request while readers wait: enough that its latency hardly counts."""
    most = max(LEAST_CHUNK, min(int(rate * latency / OVERHEAD), MOST_CHUNK))
    return -(-most // grain) * grain


def share(
    others: Sequence[LaneView],
    source: int,
    rate: float,
    remaining: int | None,
    *,
    lanes: int,
    free: int,
    latency: float,
    ordered: bool,
) -> int:
    """How many bytes a lane of a source asks for, given the other lanes.

    `lanes`: how many there will be while nothing changes. The rest is as for `chunk`.
    """
    lanes = max(len(others) + 1, lanes)
    # those of the same source, and those of whom nothing is known, will do as well as this one
    known = [view.recent for view in others if view.recent and view.source != source]
    total = sum(known) + (lanes - len(known)) * rate
    return chunk(remaining, lanes, rate, total, free=free, latency=latency, ordered=ordered)


def steal(
    lanes: Sequence[LaneView], source: int, rate: float, latency: float = 0.0
) -> tuple[int, int] | None:
    """From which lane an idle one takes how many of the last bytes; None: it would not help."""
    soon = max(WORTH / 40, 2 * latency)
    best: tuple[float, int, int] | None = None
    for lane in lanes:
        if lane.left is None or lane.left <= 0 or lane.phase == "disk":
            continue
        if lane.got == 0 and lane.silence < max(RACE, 2 * lane.latency):
            continue  # it has just begun
        mine = rate or lane.recent or 1.0
        theirs = lane.recent if lane.silence < SILENCE else 0.0
        if theirs > 0:
            little = lane.left < 2 * LEAST_CHUNK or lane.left / theirs < soon
            drags = lane.left / theirs > max(WORTH, soon) and mine > 2 * theirs
            if little and not drags:
                continue
        # a thief's first byte comes later, and its victim goes on meanwhile
        count = int((lane.left - theirs * latency) * mine / (mine + theirs))
        if theirs > 0 and lane.left - count < LEAST_CHUNK and mine < 4 * theirs:
            continue
        gain = lane.left / max(theirs, 1.0)
        if count > 0 and (best is None or gain > best[0]):
            best = (gain, lane.key, count)
    return best[1:] if best else None


def hedge(lanes: Sequence[LaneView], source: int, rate: float, *, budget: int) -> int | None:
    """The lane whose last bytes an idle one fetches too, because they take too long."""
    best: tuple[float, int] | None = None
    for lane in lanes:
        if lane.source == source or lane.left is None or not 0 < lane.left <= budget:
            continue
        waits = lane.silence if lane.recent <= 0 else lane.eta
        mine = lane.left / rate if rate > 0 else 0.5
        if waits > max(1.0, 3 * mine) and (best is None or waits > best[0]):
            best = (waits, lane.key)
    return best[1] if best else None


def hedge_budget(size: int | None, spent: int) -> int:
    """Bytes that may still be fetched twice."""
    return 0 if size is None else max(HEDGE_LEAST, int(size * HEDGE_SHARE)) - spent


def falling(source: SourceView, lanes: Sequence[LaneView], best_rate: float) -> bool:
    """Whether several lanes of a source bring hardly more than one did, so that one should go."""
    own = [
        x
        for x in lanes  # one that is silent says nothing of what the source can give
        if x.source == source.key and x.phase == "body" and x.age >= SETTLE and x.silence < RACE
    ]
    if len(own) < 2 or best_rate <= 0:
        return False
    return sum(lane.recent for lane in own) < GAIN * best_rate


def hopeless(refusals: Sequence[int], closed: Sequence[bool]) -> bool:
    """Whether every source has refused for good, or so often that it is believed."""
    return bool(closed) and all(shut or count >= TRIES for count, shut in zip(refusals, closed))


def agreed_absent(since: Sequence[float | None], now: float, grace: float) -> bool:
    """Whether every source has said "not there", and nothing else, for the grace period."""
    return bool(since) and all(each is not None and now - each >= grace for each in since)


def bottleneck(rates: Sequence[float], lanes: int, *, seconds: float, writing: float) -> str:
    """What a transfer waits for most: "disk", "source", "network" or "".

    `rates`: those of the sources that have given anything. `writing`: seconds spent in writing, of
    all lanes together.
    """
    if writing > _SLOW_DISK * seconds * max(1, lanes) and seconds > 5:
        return "disk"
    rates = sorted(rates)
    if len(rates) > 1 and rates[0] < rates[-1] / 4:
        return "source"
    if len(rates) > 1 and rates[-1] < 1e6 and seconds > _STEADY:
        return "network"  # they are all alike, and all slow
    if len(rates) == 1 and rates[0] < 1e5 and seconds > _STEADY:
        return "source"
    return ""


def shown_rate(rate: float) -> str:
    """A rate for people."""
    for unit, size in (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)):
        if rate >= size:
            return f"{rate / size:.1f} {unit}"
    return f"{rate:.0f} B/s"
