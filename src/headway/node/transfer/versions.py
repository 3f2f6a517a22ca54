"""Versions: whether the bytes of several sources, or of an earlier process, belong together.

Sources must say that they hold the same version. Those that say nothing, or whose word counts for
little, must give the same bytes as the others in a few places. Mirrors whose ETags and dates both
differ are not put together unless the whole will be proven in the end: two versions may differ in a
place that nobody looked at. The caches of one director are: it vouches that they have the same
object, and each may have validators of its own.
"""

from __future__ import annotations

import hashlib

from headway.node.transfer.source import Fault, Identity, Source
from headway.node.transfer.urls import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from headway.node.transfer.ledger import Lease, Ledger

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
