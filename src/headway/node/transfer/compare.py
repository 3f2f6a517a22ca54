"""Comparison: whether sources give the same bytes, by small samples.

Where a checksum of the whole says that some byte is wrong, other sources are asked for samples of
what each source gave; where they differ, more samples narrow down where that begins and ends. Where
nothing proves an object, three samples of each source's bytes are compared before it gets its name.
A single wrong byte is hardly ever met that way, a wrong part nearly always.
"""

from __future__ import annotations

import threading
import time

from headway.node.errors import HeadwayError
from headway.node.transfer.connection import Quiet
from headway.node.transfer.source import Fault
from headway.node.transfer.stream import open_stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headway.node.transfer.part import Part
    from headway.node.transfer.source import Source
    from headway.node.transfer.stream import Stream

    Stretches = list[tuple[int, int, int]]

SAMPLE = 16 << 10
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
            ((middle[0] + middle[1] - SAMPLE) // 2, middle),
            (last[1] - SAMPLE, last),
        ):
            at = max(begin, at)
            found.add((at, min(end, at + SAMPLE), giver))
    return sorted(found)


def borders(
    begin: int, end: int, same: Callable[[int], bool], samples: int = _SAMPLES
) -> list[tuple[int, int]]:
    """The parts of a stretch that are wrong, where `same` tells it of the sample at an offset.

    Args:
        begin: The stretch's first byte.
        end: The byte behind its last one.
        same: Whether the SAMPLE bytes from this offset on are as another source has them.
        samples: How many to take before borders are looked for, two at least.

    Returns:
        Parts that hold every sample which differs, and as little else as is worth asking for.
    """
    last = max(begin, end - SAMPLE)
    step = max(1, (last - begin) // (samples - 1))
    points = sorted({*range(begin, last + 1, step), last})
    looks = [(point, same(point)) for point in points]
    wrong: list[tuple[int, int]] = []
    for number, (point, right) in enumerate(looks):
        if right:
            continue
        before = looks[number - 1] if number else (begin, False)
        after = looks[number + 1] if number + 1 < len(looks) else (end, False)
        first = _border(before[0], point, same) + SAMPLE if before[1] else before[0]
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
            same = lambda at: self._same(other, at, min(end, at + SAMPLE))  # noqa: E731
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
