"""Versions: whether the bytes of several sources, or of an earlier process, belong together.

Sources must say that they hold the same version. Those that say nothing, or whose word counts for
little, must give the same bytes as the others in a few places. Mirrors whose ETags and dates both
differ are not put together unless the whole will be proven in the end: two versions may differ in a
place that nobody looked at. The caches of one director are: it vouches that they have the same
object, and each may have validators of its own.
"""

from __future__ import annotations

import hashlib
import threading
import time

from headway.node.errors import HeadwayError
from headway.node.transfer.connection import Quiet
from headway.node.transfer.source import MANY_BAD, Fault, Identity, Source
from headway.node.transfer.stream import open_stream
from headway.node.transfer.urls import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headway.node.transfer.ledger import Lease, Ledger
    from headway.node.transfer.part import Part
    from headway.node.transfer.source import Source
    from headway.node.transfer.stream import Stream

    Stretches = list[tuple[int, int, int]]


SAMPLES = 3  # where nothing else will tell whether the whole is right
SAMPLES_PROVABLE = 1
SAMPLE = 64 << 10


class Versions:
    """Which version is being gathered, and which sources have it."""

    def __init__(self, *, provable: bool, by_chunk: bool) -> None:
        self.provable = provable
        self.by_chunk = by_chunk  # each chunk will be proven by itself, whoever gives it
        self.pinned: Identity | None = None
        self.place = ""  # the source that it is from
        self._compared: dict[int, int] = {}  # samples that were right, by source
        self.rivals: list[int] = []  # sources with another version

    @property
    def open(self) -> bool:
        """Whether nothing is settled yet."""
        return self.pinned is None

    def take_over(self, identity: Identity, place: str) -> None:
        """An earlier process has gathered this version."""
        self.pinned, self.place = identity, place

    def pin(self, source: Source, identity: Identity) -> None:
        self.pinned, self.place = identity, place_of(source)
        source.trusted = True

    def reset(self) -> None:
        self.pinned, self.place = None, ""
        self._compared.clear()

    def meet(
        self, source: Source, identity: Identity, ledger: Ledger, *, proven_later: bool = False
    ) -> str:
        """What to do with a source that has answered: "go", "sample", "rival" or "restart".

        `proven_later`: a mixture of versions would show in the end.
        """
        pinned = self.pinned
        if pinned is None:
            self.pin(source, identity)
            return "go"
        if source.trusted or self.by_chunk:
            source.trusted = True
            self._learn(identity)
            return "go"
        place = place_of(source)
        same_place = self.place == place
        if pinned.differs(identity, same_place=same_place and not self.provable):
            stale = not ledger.bytes or (same_place and not self._proved_elsewhere(ledger))
            return "restart" if stale else "rival"
        validated = same_place and bool(
            (pinned.etag and pinned.etag == identity.etag)
            or (pinned.modified and pinned.modified == identity.modified)
        )
        if validated or pinned.agrees(identity):
            source.trusted = True
            self._learn(identity)
            return "go"
        if not ledger.bytes:
            return "restart"
        bound = same_place or proven_later or same_name(self.place, place)
        return "rival" if pinned.disputes(identity) and not bound else "sample"

    def _learn(self, identity: Identity) -> None:
        if self.pinned is not None:
            for name, digits in identity.digests.items():
                self.pinned.digests.setdefault(name, digits)
            if self.pinned.size is None:
                self.pinned.size = identity.size

    def _proved_elsewhere(self, ledger: Ledger) -> bool:
        return any(key >= 0 for key in ledger.givers())

    def must_wait(self, source: Source, ledger: Ledger) -> bool:
        """Whether a source cannot begin because there is nothing yet to compare it with."""
        if source.trusted or self.pinned is None or self.by_chunk:
            return False
        return not ledger.bytes and any(not lease.rival for lease in ledger.leases())

    def must_compare(self, source: Source, ledger: Ledger) -> bool:
        """Whether a source has to show first that it has the same version."""
        if source.trusted or self.pinned is None or self.by_chunk:
            return False
        told = self.pinned.etag or self.pinned.modified
        if told and source.identity is None and self.place == place_of(source):
            return False  # its answer will tell
        return self._place_for(source, ledger) is not None

    def next_sample(self, source: Source, ledger: Ledger) -> Lease | None:
        """A stretch that is here already, for the source to give as well."""
        stretch = self._place_for(source, ledger)
        return None if stretch is None else ledger.sample(source.key, *stretch)

    def _place_for(self, source: Source, ledger: Ledger) -> tuple[int, int] | None:
        """The beginning, the end and the middle of what is here."""
        stretches = [(a, b) for a, b, key in ledger.written() if key != source.key]
        if not stretches:
            return None
        number = self._compared.get(source.key, 0)
        begin, end = (stretches[0], stretches[-1], stretches[len(stretches) // 2])[number % 3]
        at = (begin, max(begin, end - SAMPLE), begin + max(0, end - begin - SAMPLE) // 2)[
            number % 3
        ]
        return at, min(end, at + SAMPLE)

    def compared(self, source: Source, same: bool) -> bool:
        """Take in the outcome of a sample; False: it is another version."""
        if not same:
            return False
        self._compared[source.key] = self._compared.get(source.key, 0) + 1
        enough = SAMPLES_PROVABLE if self.provable else SAMPLES
        if self._compared[source.key] >= enough:
            source.trusted = True
        return True

    def others(self, source: Source, sources: Sequence[Source]) -> bool:
        """Whether the version does not hang on this source alone."""
        return any(each.trusted and not each.closed for each in sources if each is not source)

    def rival(self, source: Source, identity: Identity) -> Fault:
        """The fault of a source that has another version."""
        source.identity = identity
        if source.key not in self.rivals:
            self.rivals.append(source.key)
        told = self.pinned is not None and self.pinned.disputes(identity)
        return Fault(
            f"it has another version of the object{', by its ETag or date' if told else ''}",
            retryable=False,
            settled=True,
            phase="verify",
            remedy="declare a checksum, so that the right version can be told",
        )

    def worth_a_try(self, sources: Sequence[Source]) -> list[Source]:
        """The sources of another version that may have the right one."""
        return [each for each in sources if each.key in self.rivals and each.bad < MANY_BAD]

    def outvoted(self, sources: Sequence[Source]) -> list[Source]:
        """The sources of another version, when more of them say that they have the same one."""
        here = sum(each.trusted and not each.closed for each in sources)
        rivals = [each for each in sources if each.key in self.rivals and not each.bad]
        for one in rivals:
            alike = [
                each
                for each in rivals
                if each is one
                or (one.identity and each.identity and one.identity.agrees(each.identity))
            ]
            if len(alike) > max(1, here):
                return alike
        return []

    def pardon(self, sources: Sequence[Source]) -> None:
        """Nothing is left of what was gathered, so any version may be the right one again."""
        self.reset()
        for each in sources:
            each.trusted = False
            if each.key in self.rivals and not each.bad:
                each.closed = False
        self.rivals.clear()


def place_of(source: Source) -> str:
    """A source's name for the journal: it tells nothing of the URL, and not a query at all.

    A director's word on which object it is for follows behind a colon.
    """
    place = _hidden(source.url)
    return f"{place}:{_hidden(source.named_for)}" if source.named_for else place


def same_name(one: str, other: str) -> bool:
    """Whether a director has named both places for the same object."""
    name = one.partition(":")[2]
    return bool(name) and name == other.partition(":")[2]


def _hidden(url: str) -> str:
    return hashlib.sha256(shown(url).encode()).hexdigest()[:16]


# Comparison: whether sources give the same bytes, by small samples.
#
# Where a checksum of the whole says that some byte is wrong, other sources are asked for samples
# of what each source gave; where they differ, more samples narrow down where that begins and ends.
# Where nothing proves an object, three samples of each source's bytes are compared before it gets
# its name. A single wrong byte is hardly ever met that way, a wrong part nearly always.


COMPARED = 16 << 10
SECONDS = 10.0  # for all samples; what was found by then counts
_SAMPLES = 9  # of one stretch at most, evenly spread
_LEAST = 2  # of one stretch
_COARSE = 48  # of all stretches, dealt out by their sizes, before borders are looked for
_MOST = 120  # samples of one source
_NEAR = 1 << 20  # bytes to which a border is narrowed down
_SOON = 2.5  # seconds for one sample


def probes(written: Sequence[tuple[int, int, int]]) -> Stretches:
    """The beginning, the middle and the end of what each source gave, a sample each."""
    found: set[tuple[int, int, int]] = set()
    for giver in {each[2] for each in written}:
        given = [each for each in written if each[2] == giver]
        first, middle, last = given[0], given[len(given) // 2], given[-1]
        for at, (begin, end, _) in (
            (first[0], first),
            ((middle[0] + middle[1] - COMPARED) // 2, middle),
            (last[1] - COMPARED, last),
        ):
            at = max(begin, at)
            found.add((at, min(end, at + COMPARED), giver))
    return sorted(found)


def borders(
    begin: int, end: int, same: Callable[[int], bool], samples: int = _SAMPLES
) -> list[tuple[int, int]]:
    """The parts of a stretch that are wrong, where `same` tells it of the sample at an offset.

    Args:
        begin: The stretch's first byte.
        end: The byte behind its last one.
        same: Whether the COMPARED bytes from this offset on are as another source has them.
        samples: How many to take before borders are looked for, two at least.

    Returns:
        Parts that hold every sample which differs, and as little else as is worth asking for.
    """
    last = max(begin, end - COMPARED)
    step = max(1, (last - begin) // (samples - 1))
    points = sorted({*range(begin, last + 1, step), last})
    looks = [(point, same(point)) for point in points]
    wrong: list[tuple[int, int]] = []
    for number, (point, right) in enumerate(looks):
        if right:
            continue
        before = looks[number - 1] if number else (begin, False)
        after = looks[number + 1] if number + 1 < len(looks) else (end, False)
        first = _border(before[0], point, same) + COMPARED if before[1] else before[0]
        stop = _border(after[0], point, same) if after[1] else after[0]
        wrong.append((max(begin, first), min(end, stop)))
    return _joined(wrong)


def _border(right: int, wrong: int, same: Callable[[int], bool]) -> int:
    """The right offset next to a wrong one, as near as it is worth asking for."""
    while abs(wrong - right) > _NEAR:
        middle = (right + wrong) // 2
        if same(middle):
            right = middle
        else:
            wrong = middle
    return right


def rounds(disputed: dict[int, Stretches], outvoted: set[int]) -> list[Stretches]:
    """What to fetch again first, and what then if that does not help.

    Args:
        disputed: Parts that differ from what others have, by the source that gave them.
        outvoted: The sources against whom two or more others agree.

    Returns:
        Stretches for one try after the other; none where nothing differs.
    """
    if not disputed:
        return []
    size = {key: sum(b - a for a, b, _ in parts) for key, parts in disputed.items()}
    first = [key for key in disputed if key in outvoted] or [min(disputed, key=lambda k: size[k])]
    tries = [[part for key in first for part in disputed[key]]]
    if len(first) < len(disputed):
        tries.append(sorted(part for parts in disputed.values() for part in parts))
    return tries


class Comparison:
    """Takes the samples in a thread of its own; `told` is called in the end, without any lock."""

    def __init__(
        self,
        part: Part,
        written: Sequence[tuple[int, int, int]],
        sources: Sequence[Source],
        told: Callable[[], None],
        *,
        others: int = 2,
    ) -> None:
        """`others`: how many sources are asked about another one's bytes."""
        self._part, self._written, self._told = part, list(written), told
        self._others = others
        ranged = [each for each in sources if each.ranges is not False]
        self._sources = sorted(ranged, key=lambda each: (each.faults, -each.bytes))
        self._streams: dict[int, Stream] = {}
        self._asked: dict[int, int] = {}
        self._end = time.monotonic() + SECONDS
        self.rounds: list[Stretches] = []
        self.under_way = len(self._sources) > 1
        if self.under_way:
            threading.Thread(target=self._run, name="comparison", daemon=True).start()

    def watch(self, now: float) -> None:
        """End it when it takes too long."""
        if self.under_way and now > self._end:
            self.end()

    def end(self) -> None:
        """Nobody needs more of it."""
        self._end = 0.0
        for stream in list(self._streams.values()):
            stream.abort()

    def _run(self) -> None:
        try:
            self._compare()
        except (HeadwayError, OSError):
            pass  # the disk fails, which others will tell better
        finally:
            for stream in self._streams.values():
                stream.close()
            self.under_way = False
            self._told()

    def _compare(self) -> None:
        disputed: dict[int, Stretches] = {}
        against: dict[int, int] = {}
        total = sum(end - begin for begin, end, _ in self._written)
        for begin, end, giver in self._written:
            samples = max(_LEAST, min(_SAMPLES, _COARSE * (end - begin) // max(1, total)))
            others = [each for each in self._sources if each.key != giver][: self._others]
            found = [self._parts(begin, end, other, samples) for other in others]
            heard = [parts for parts in found if parts is not None]
            if heard and all(heard):  # else somebody has the same
                disputed.setdefault(giver, []).extend((a, b, giver) for a, b in heard[0])
                against[giver] = max(against.get(giver, 0), len(heard))
        self.rounds = rounds(disputed, {key for key, count in against.items() if count > 1})

    def _parts(
        self, begin: int, end: int, other: Source, samples: int
    ) -> list[tuple[int, int]] | None:
        """The parts of a stretch that another source has otherwise; None: it did not say."""
        try:
            same = lambda at: self._same(other, at, min(end, at + COMPARED))  # noqa: E731
            return borders(begin, end, same, samples)
        except Fault:
            self._sources = [each for each in self._sources if each is not other]
            return None

    def _same(self, other: Source, begin: int, end: int) -> bool:
        self._asked[other.key] = self._asked.get(other.key, 0) + 1
        if time.monotonic() > self._end or self._asked[other.key] > _MOST:
            raise Fault("there is no time for it")
        if other.key not in self._streams:
            self._streams[other.key] = open_stream(other.url, other.token)
        theirs = memoryview(bytearray(end - begin))
        ours = memoryview(bytearray(end - begin))
        late = threading.Timer(_SOON, self._streams[other.key].abort)
        late.daemon = True
        late.start()
        try:
            self._sample(self._streams[other.key], begin, theirs)
        finally:
            late.cancel()
        return self._part.read_into([ours], begin) == len(ours) and ours == theirs

    def _sample(self, stream: Stream, begin: int, view: memoryview) -> None:
        head = stream.open(begin, begin + len(view))
        if head.begin != begin or head.end != begin + len(view):
            stream.close()
            raise Fault("it gives another part than it was asked for")
        filled = 0
        while filled < len(view):
            try:
                count = stream.read_into(view[filled:])
            except Quiet:
                if time.monotonic() > self._end:
                    raise Fault("it gave nothing in time") from None
                continue
            if count == 0:
                raise Fault("it broke off")
            filled += count
        if not stream.finish():
            stream.close()


def _joined(parts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    result: list[tuple[int, int]] = []
    for begin, end in sorted(parts):
        if result and begin <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((begin, end))
    return result
