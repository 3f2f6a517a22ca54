"""Repair: what is done about wrong bytes, and about sources that have different versions.

A checksum of the whole says only that some byte is wrong. Without a manifest the place can be found
in one way alone: bytes are fetched a second time from somebody else, and the whole is looked at
again. Whatever the order, the wrong byte may lie in what comes last, so the least that can be
promised is the whole once more, and half of it on average for one wrong byte. That is kept by going
through one source's bytes in portions, looking after each. A source that is wrong in many places is
replaced as a whole; where the others' smaller share was doubted first, that comes to the whole and
that share. With a manifest it is one chunk in any case.

Here is what is decided; what a decision means for sources and bytes is the download's doing.
Stretches are (begin, end, source), half-open.
"""

from __future__ import annotations

import time
from urllib.parse import urlsplit

from headway.node.errors import TransferError
from headway.node.transfer import scheduler
from headway.node.transfer.ledger import without
from headway.node.transfer.source import Fault, Identity
from headway.node.transfer.urls import shown
from headway.node.transfer.versions import Comparison

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headway.node.transfer.part import Part
    from headway.node.transfer.source import Source

    Stretches = list[tuple[int, int, int]]

MOST_RESTARTS = 5  # versions of one object that are tried before it is given up
PORTIONS = 8  # of one source's bytes; each costs one more look at the whole
_MIXED = 3  # times that a chunk of several givers is wrong before all of them are blamed
_PAGES = ("text/html", "application/xhtml+xml")
_PAGE_NAMES = ("", "html", "htm", "xhtml", "shtml", "php", "asp", "aspx", "jsp", "cgi")


class Repair:
    """What was found out so far about wrong bytes of one object; its lock is held."""

    def __init__(self) -> None:
        self._doubts = Doubts()
        self._comparison: Comparison | None = None  # of what the sources give, once it was wrong
        self._mixed: dict[int, int] = {}  # chunks of several givers, and how often they were wrong

    @property
    def active(self) -> bool:
        """Whether bytes of a wrong whole are being replaced."""
        return self._doubts.active

    def certain(self, begin: int, givers: int) -> bool:
        """Whether all who gave a wrong chunk are to blame for it."""
        if givers > 1:
            self._mixed[begin] = self._mixed.get(begin, 0) + 1
        return givers <= 1 or self._mixed[begin] >= _MIXED

    def compared(
        self,
        part: Part,
        written: Stretches,
        sources: Sequence[Source],
        told: Callable[[], None],
    ) -> bool:
        """Whether it is known where sources differ, as far as small samples can tell."""
        if self._doubts.active or not written:
            return True
        if self._comparison is None:
            self._comparison = Comparison(part, written, sources, told)
            if not self._comparison.under_way:
                return True
        elif not self._comparison.under_way and self._comparison.rounds:
            self._doubts.found(self._comparison.rounds)
            self._comparison.rounds = []
        self._comparison.watch(time.monotonic())
        return not self._comparison.under_way

    @property
    def begins(self) -> bool:
        """Whether the next portion is the first of another source's."""
        return self._doubts.begins

    def portion(self, written: Stretches, sources: Sequence[Source], size: int) -> Stretches:
        """What to fetch again now from these sources; nothing: all was replaced in vain."""
        # who gives the whole only gives it for every portion, so there is but one
        ranged = sum(each.ranges is not False for each in sources)
        whole = ranged < min(2, len(sources)) or not ranged
        return self._doubts.next(written, least=size if whole else 4 * scheduler.LEAST_CHUNK)

    def clear(self) -> None:
        """Nothing is left of what was doubted."""
        self._doubts.clear()

    def restart(self) -> None:
        """The object has become another one."""
        self._doubts.clear()
        self.end()
        self._comparison = None

    def end(self) -> None:
        if self._comparison is not None:
            self._comparison.end()


class Doubts:
    """The order in which the bytes of one whole are doubted."""

    def __init__(self) -> None:
        self._first: Stretches = []  # who gave what when the whole was first found wrong
        self._found: list[Stretches] = []  # tries for which there is a reason
        self._queue: list[Stretches] = []
        self._suspected: list[int] = []

    @property
    def active(self) -> bool:
        return bool(self._suspected)

    @property
    def begins(self) -> bool:
        """Whether the next portion is the first of another source's."""
        return bool(self._found) or not self._queue

    def clear(self) -> None:
        self._first, self._found, self._queue, self._suspected = [], [], [], []

    def found(self, rounds: Sequence[Stretches]) -> None:
        """Try these stretches first, one round after the other: they differ between sources."""
        self._found = list(rounds)

    def next(self, written: Sequence[tuple[int, int, int]], *, least: int) -> Stretches:
        """The stretches to fetch again now; none: each source's bytes have been replaced in vain.

        `least`: bytes of a portion; no less is worth a request.
        """
        if self._found:
            return self._found.pop(0)
        if not self._suspected:
            self._first = list(written)
        while not self._queue:
            shares: dict[int, int] = {}
            for begin, end, source in written:
                if source not in self._suspected:
                    shares[source] = shares.get(source, 0) + end - begin
            if not shares:
                return []
            # an earlier process's bytes first, then those who gave little: they are soon excluded
            suspect = min(shares, key=lambda key: (key >= 0, shares[key]))
            self._suspected.append(suspect)
            self._queue = self._portions(suspect, written, max(least, shares[suspect] // PORTIONS))
        portion = self._queue.pop(0)
        while self._queue and sum(end - begin for begin, end, _ in portion) < least:
            portion += self._queue.pop(0)  # a request has become dearer than it seemed
        return portion

    def _portions(
        self, suspect: int, written: Sequence[tuple[int, int, int]], size: int
    ) -> list[Stretches]:
        """What the suspect gave, first the bytes that nobody else has given in between."""
        given = [each for each in written if each[2] == suspect]
        own = [each for each in self._first if each[2] == suspect]
        old = _overlap(given, own)
        fresh = given
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


def _overlap(some: Stretches, others: Stretches) -> Stretches:
    result = []
    for begin, end, source in some:
        for a, b, _ in others:
            if max(a, begin) < min(b, end):
                result.append((max(a, begin), min(b, end), source))
    return result


# -- versions


def page_instead(source: Source, identity: Identity) -> bool:
    """Whether a web page comes in place of the object, as where a network wants a login first."""
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
        "it has another version of the object, by its own word",
        retryable=False,
        settled=True,
        bad_copy=True,
        phase="verify",
        remedy="check the declared checksum and the object",
    )


def disagreement(
    name: str, size: int | None, here: Identity, giver: str, sources: Sequence[Source]
) -> TransferError | None:
    """Why an object that nothing proves cannot get its name: another source knows it otherwise.

    Args:
        name: The object's.
        size: Its bytes that are here.
        here: What is known of them, and not settled by what was declared.
        giver: The URL of the source that gave the last byte.
        sources: All of them.
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
