"""Versions: whether the bytes of several sources, or of an earlier process, belong together.

Sources must say that they have the same version. Those that say nothing, or nothing reliable, must
give the same bytes as the others in a few places. Mirrors whose ETags and dates both differ are
not combined unless the object will be proven in the end: two versions may differ in a place that
no sample shows. The caches of one director are combined: it vouches that they have the same object,
and each may have validators of its own. Stretches are (begin, end, source), half-open.
"""

from __future__ import annotations

import hashlib
import threading
import time
from urllib.parse import urlsplit

from headway.node.errors import HeadwayError, TransferError
from headway.node.transfer import scheduler
from headway.node.transfer.client import open_client
from headway.node.transfer.connection import Quiet
from headway.node.transfer.ledger import joined, without
from headway.node.transfer.source import MANY_BAD, Fault, Identity, Source
from headway.node.transfer.urls import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headway.node.transfer.client import Client
    from headway.node.transfer.ledger import Lease, Ledger
    from headway.node.transfer.part import Part

    Stretches = list[tuple[int, int, int]]


SAMPLES = 3  # where nothing else will tell whether the whole is right
SAMPLES_PROVABLE = 1
SAMPLE = 64 << 10
MOST_RESTARTS = 5  # versions of one object that are tried before it is given up
PORTIONS = 8  # of one source's bytes; each costs one more check of the whole object
_MIXED = 3  # times that a chunk of several givers is wrong before all of them are blamed
_PAGES = ("text/html", "application/xhtml+xml")
_PAGE_NAMES = ("", "html", "htm", "xhtml", "shtml", "php", "asp", "aspx", "jsp", "cgi")


class Versions:
    """Which version is being downloaded, and which sources have it."""

    def __init__(self, *, provable: bool, by_chunk: bool) -> None:
        self.provable = provable
        self.by_chunk = by_chunk  # each chunk will be proven by itself, whoever gives it
        self.pinned: Identity | None = None
        self.place = ""  # the source that it is from
        self._compared: dict[int, int] = {}  # samples that were right, by source
        self.rivals: list[int] = []  # sources with another version

    @property
    def open(self) -> bool:
        """Whether no version has been chosen yet."""
        return self.pinned is None

    def take_over(self, identity: Identity, place: str) -> None:
        """An earlier process has downloaded some of this version."""
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
        return not ledger.bytes and any(not lease.racing for lease in ledger.leases())

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
        """Whether another source has this version, too."""
        return any(each.trusted and not each.closed for each in sources if each is not source)

    def rival(self, source: Source, identity: Identity) -> Fault:
        """The fault of a source that has another version."""
        source.identity = identity
        if source.key not in self.rivals:
            self.rivals.append(source.key)
        told = self.pinned is not None and self.pinned.disputes(identity)
        return Fault(
            f"it has another version of the object{', by its ETag or date' if told else ''}",
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
        """Nothing is left of what was downloaded, so any version may be the right one again."""
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


# -- samples: whether sources give the same bytes
#
# Where a checksum of the whole object says that some byte is wrong, other sources are asked for
# samples of what each source gave; where they differ, more samples narrow down where that begins
# and ends. Where nothing proves an object, three samples of each source's bytes are compared before
# it gets its name. A single wrong byte is hardly ever found that way, a wrong part nearly always.


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
    """The parts of a stretch that hold every wrong sample, and as little else as is worth it.

    `same`: whether the COMPARED bytes from this offset on are as another source has them.
    `samples`: how many to take, two at least, before the borders are narrowed down.
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
    return joined(wrong)


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
    """What to fetch again first, and what next if that does not help; nothing where all agree.

    `disputed`: parts that differ from what others have, by the source that gave them.
    `outvoted`: the sources against which two or more others agree.
    """
    if not disputed:
        return []
    size = {key: sum(b - a for a, b, _ in parts) for key, parts in disputed.items()}
    first = [key for key in disputed if key in outvoted] or [min(disputed, key=lambda k: size[k])]
    tries = [[part for key in first for part in disputed[key]]]
    if len(first) < len(disputed):
        tries.append(sorted(part for parts in disputed.values() for part in parts))
    return tries


class SampleCheck:
    """Takes the samples in a thread of its own; `done` is called at the end, without any lock."""

    def __init__(
        self,
        part: Part,
        written: Sequence[tuple[int, int, int]],
        sources: Sequence[Source],
        done: Callable[[], None],
        *,
        others: int = 2,
    ) -> None:
        """`others`: how many sources are asked about another one's bytes."""
        self._part, self._written, self._done = part, list(written), done
        self._others = others
        ranged = [each for each in sources if each.ranges is not False]
        self._sources = sorted(ranged, key=lambda each: (each.faults, -each.bytes))
        self._clients: dict[int, Client] = {}
        self._asked: dict[int, int] = {}
        self._end = time.monotonic() + SECONDS
        self.rounds: list[Stretches] = []
        self.under_way = len(self._sources) > 1
        if self.under_way:
            threading.Thread(target=self._run, name="sample-check", daemon=True).start()

    def watch(self, now: float) -> None:
        """End it when it takes too long."""
        if self.under_way and now > self._end:
            self.end()

    def end(self) -> None:
        self._end = 0.0
        for client in list(self._clients.values()):
            client.abort()

    def _run(self) -> None:
        try:
            self._compare()
        except (HeadwayError, OSError):
            pass  # the disk fails, which others will tell better
        finally:
            for client in self._clients.values():
                client.close()
            self.under_way = False
            self._done()

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
        if other.key not in self._clients:
            self._clients[other.key] = open_client(other.url, other.token)
        theirs = memoryview(bytearray(end - begin))
        ours = memoryview(bytearray(end - begin))
        late = threading.Timer(_SOON, self._clients[other.key].abort)
        late.daemon = True
        late.start()
        try:
            self._sample(self._clients[other.key], begin, theirs)
        finally:
            late.cancel()
        return self._part.read_into([ours], begin) == len(ours) and ours == theirs

    def _sample(self, client: Client, begin: int, view: memoryview) -> None:
        head = client.open(begin, begin + len(view))
        if head.begin != begin or head.end != begin + len(view):
            client.close()
            raise Fault("it gives another part than it was asked for")
        filled = 0
        while filled < len(view):
            try:
                count = client.read_into(view[filled:])
            except Quiet:
                if time.monotonic() > self._end:
                    raise Fault("it gave nothing in time") from None
                continue
            if count == 0:
                raise Fault("it broke off")
            filled += count
        if not client.finish():
            client.close()


# -- repair: what is done about wrong bytes
#
# A checksum of the whole object says only that some byte is wrong. Without a manifest there is one
# way to find it: fetch bytes again from another source, and check the whole again. The wrong byte
# may be in what comes last, so in the worst case the whole object is fetched once more, and half of
# it on average for one wrong byte. To that end one source's bytes are replaced in portions, with a
# check after each. A source that is wrong in many places is replaced completely; if the smaller
# share of the others was suspected first, that comes on top. With a manifest it is one chunk in any
# case. The decisions are made here; the download carries them out.


class Repair:
    """Which bytes of a wrong object to fetch again, and in which order; the lock is held."""

    def __init__(self) -> None:
        self._check: SampleCheck | None = None  # of what the sources give, once it was wrong
        self._mixed: dict[int, int] = {}  # chunks of several givers, and how often they were wrong
        self.clear()

    def clear(self) -> None:
        """Suspect nobody any more."""
        self._first: Stretches = []  # who gave what when the object was first found wrong
        self._differing: list[Stretches] = []  # stretches that samples show to be doubtful
        self._queue: list[Stretches] = []
        self._suspects: list[int] = []

    @property
    def active(self) -> bool:
        """Whether bytes of a wrong object are being replaced."""
        return bool(self._suspects)

    @property
    def begins(self) -> bool:
        """Whether the next portion is the first of another source's."""
        return bool(self._differing) or not self._queue

    def certain(self, begin: int, givers: int) -> bool:
        """Whether to blame all sources of a wrong chunk."""
        if givers > 1:
            self._mixed[begin] = self._mixed.get(begin, 0) + 1
        return givers <= 1 or self._mixed[begin] >= _MIXED

    def compared(
        self, part: Part, written: Stretches, sources: Sequence[Source], done: Callable[[], None]
    ) -> bool:
        """Whether it is known where sources differ, as far as small samples can tell."""
        if self.active or not written:
            return True
        if self._check is None:
            self._check = SampleCheck(part, written, sources, done)
            if not self._check.under_way:
                return True
        elif not self._check.under_way and self._check.rounds:
            self._differing, self._check.rounds = self._check.rounds, []
        self._check.watch(time.monotonic())
        return not self._check.under_way

    def portion(self, written: Stretches, sources: Sequence[Source], size: int) -> Stretches:
        """What to fetch again now from these sources; nothing: all was replaced in vain."""
        # a source without ranges sends the whole object for every portion, so there is but one
        ranged = sum(each.ranges is not False for each in sources)
        whole = ranged < min(2, len(sources)) or not ranged
        return self.next(written, least=size if whole else 4 * scheduler.LEAST_CHUNK)

    def next(self, written: Stretches, *, least: int) -> Stretches:
        """The stretches to fetch again now, `least` bytes or more: no less is worth a request."""
        if self._differing:
            return self._differing.pop(0)
        if not self._suspects:
            self._first = list(written)
        while not self._queue:
            shares: dict[int, int] = {}
            for begin, end, source in written:
                if source not in self._suspects:
                    shares[source] = shares.get(source, 0) + end - begin
            if not shares:
                return []
            # an earlier process's bytes first, then sources that gave little: they are soon done
            suspect = min(shares, key=lambda key: (key >= 0, shares[key]))
            self._suspects.append(suspect)
            self._queue = self._portions(suspect, written, max(least, shares[suspect] // PORTIONS))
        portion = self._queue.pop(0)
        while self._queue and sum(end - begin for begin, end, _ in portion) < least:
            portion += self._queue.pop(0)  # a request costs more than it seemed
        return portion

    def _portions(self, suspect: int, written: Stretches, size: int) -> list[Stretches]:
        """What the suspect gave, first the bytes that it gave from the beginning."""
        fresh = [each for each in written if each[2] == suspect]
        old = _overlap(fresh, [each for each in self._first if each[2] == suspect])
        for begin, end, _ in old:
            fresh = without(fresh, begin, end)
        portions: list[Stretches] = []
        room = 0
        for begin, end, source in old + fresh:
            while begin < end:
                if room <= 0:
                    portions.append([])
                    room = size
                stop = min(end, begin + room)
                portions[-1].append((begin, stop, source))
                room -= stop - begin
                begin = stop
        return portions

    def restart(self) -> None:
        self.clear()
        self.end()
        self._check = None

    def end(self) -> None:
        if self._check is not None:
            self._check.end()


def _overlap(some: Stretches, others: Stretches) -> Stretches:
    pairs = [(one, other) for one in some for other in others]
    both = [(max(a, begin), min(b, end), source) for (begin, end, source), (a, b, _) in pairs]
    return [each for each in both if each[0] < each[1]]


def page_instead(source: Source, identity: Identity) -> bool:
    """Whether a web page comes instead of the object, as where a network wants a login first."""
    if identity.media_type not in _PAGES:
        return False
    last = urlsplit(source.url).path.rpartition("/")[2].lower()
    suffix = last.rpartition(".")[2] if "." in last else ""
    return suffix not in _PAGE_NAMES


def page_fault(identity: Identity) -> Fault:
    return Fault(
        f"it gives a web page ({identity.media_type}) in place of the object",
        lasting=True,
        phase="first byte",
        remedy="open the URL in a browser: the network or the server may want a login; "
        "if it is the object after all, declare its checksum",
    )


def own_word() -> Fault:
    return Fault(
        "it says itself that it has another version of the object",
        settled=True,
        bad_copy=True,
        phase="verify",
        remedy="check the declared checksum and the object",
    )


def disagreement(
    name: str, size: int | None, here: Identity, giver: str, sources: Sequence[Source]
) -> TransferError | None:
    """Why an object that nothing proves cannot get its name: another source has a different one.

    `here`: what is known of its bytes, and not settled by what was declared. `giver`: the URL of
    the source that gave the last one.
    """
    for source in sources:
        said = source.identity or source.opinion
        if said is None or page_instead(source, said):
            continue
        if here.differs(said, same_place=False):
            what = f"has {said.size} bytes" if said.size != size else "has another digest"
            words = f"{shown(giver)} gave {size} bytes, and at {shown(source.url)} it {what}"
            return disagreed(name, words)
        if source.gives_others:
            return disagreed(name, f"{shown(giver)} and {shown(source.url)} give different bytes")
    return None


def disagreed(name: str, words: str) -> TransferError:
    """The error of an object that nothing proves and that sources have in different ways."""
    return TransferError(
        f"{name} did not arrive: its sources disagree, and nothing tells which of them is "
        f"right: {words}",
        retryable=True,
        remedy="declare its checksum, or name only sources that are right",
    )
