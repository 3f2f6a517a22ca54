"""The bodies of events, all of one number in a block at once.

A body that HTCondor does not write just so is odd: it is left to `details`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headway.events.columnar.columns import NONE
from headway.events.columnar.details import Details
from headway.events.columnar.headers import Flags, Longs, Words, integers, u64
from headway.events.columnar.view import View, begins
from headway.events.event import TRANSFER_TEXTS
from headway.events.kind import BY_TRANSFER

Places = NDArray[np.int32]

_TAB, _RETURN, _QUOTE, _AND, _OPEN, _CLOSE = b'\t\r"&<>'
_EXECUTING = b"Job executing on host: "
_TO_HOST = b"\tTransferring to host: "
_ERROR_ON = b"Error from starter on "
_CODE, _SUBCODE = b"\tCode ", b" Subcode "
_SITE = b"GLIDEIN_ResourceName"


class Bodies(NamedTuple):
    """Where the events of one number are: their texts, and their lines among the newlines."""

    view: View
    details: Details
    text: Longs  # where the header's text begins
    newlines: Longs
    first: Longs  # the newline that ends the header
    last: Longs  # the newline that ends the body

    def line(self, number: int, rows: Longs | slice = slice(None)) -> tuple[Longs, Longs]:
        """Where the n-th line below the header begins and ends; the rows must have it."""
        at = self.first[rows] + number
        return self.newlines[at - 1] + 1, self.newlines[at]

    def place(self, starts: Longs, ends: Longs) -> Places:
        """The numbers of the texts there."""
        texts = self.view.texts(starts, ends)
        return np.array(self.details.strings.place_all(texts), np.int32)


class Lines:
    """All lines of some bodies; `owner` is the body of each."""

    def __init__(self, bodies: Bodies) -> None:
        counts = bodies.last - bodies.first
        self.begins = np.cumsum(counts) - counts
        self.owner = np.repeat(np.arange(len(counts)), counts)
        line = np.arange(counts.sum()) + np.repeat(bodies.first - self.begins, counts)
        self.start, self.end = bodies.newlines[line] + 1, bodies.newlines[line + 1]
        self.word = bodies.view.word[self.start]

    def once(self, lines: Longs, odd: Flags) -> Longs:
        """The bodies of these lines; those that have several of them are odd."""
        owners = self.owner[lines]
        odd[owners[1:][owners[1:] == owners[:-1]]] = True
        return owners


class Found(NamedTuple):
    """Columns of the events, and which of the events have to be read in another way."""

    columns: dict[str, Places]
    odd: Flags


def _none(bodies: Bodies) -> Places:
    return np.full(len(bodies.first), -1, np.int32)


def _first_lines(bodies: Bodies) -> Found:
    text = _none(bodies)
    rows = np.flatnonzero(bodies.last > bodies.first)
    text[rows] = bodies.place(*bodies.line(1, rows))
    return Found({"text": text}, np.zeros(len(text), np.bool_))


def _transfer(bodies: Bodies) -> Found:
    host, lines = _none(bodies), Lines(bodies)
    odd = np.zeros(len(host), np.bool_)
    # A line before it may tell how long the transfer was queued.
    mine = np.flatnonzero(begins(lines.word, _TO_HOST[:8]))
    mine = mine[bodies.view.says(lines.start[mine] + 8, _TO_HOST[8:])]
    owners = lines.once(mine, odd)
    host[owners] = _machines(bodies, lines.start[mine] + len(_TO_HOST), lines.end[mine])
    return Found({"host": host}, odd)


def _execute(bodies: Bodies) -> Found:
    view, slot, site = bodies.view, _none(bodies), _none(bodies)
    host, odd = _none(bodies), ~view.says(bodies.text, _EXECUTING)
    rows = np.flatnonzero(~odd)
    host[rows] = _machines(
        bodies, bodies.text[rows] + len(_EXECUTING), bodies.newlines[bodies.first[rows]]
    )
    lines = Lines(bodies)
    mine = np.flatnonzero(begins(lines.word, b"\tSlotNam"))
    mine = mine[view.says(lines.start[mine] + 8, b"e: ")]
    texts = view.texts(lines.start[mine] + len(b"\tSlotName: "), lines.end[mine])
    places = bodies.details.strings.place_all([text.strip('"').strip() for text in texts])
    slot[lines.once(mine, odd)] = places
    # Attributes are indented with one tab; anything else may hide a site.
    usual = (view.byte[lines.start] == _TAB) & (view.byte[lines.start + 1] > 0x20)
    odd[lines.owner[~usual & (lines.start < lines.end)]] = True
    _attribute(bodies, lines, b"\t" + _SITE, site, odd)
    return Found({"host": host, "slot": slot, "site": site}, odd)


def _held(bodies: Bodies) -> Found:
    view, counts = bodies.view, bodies.last - bodies.first
    code, subcode = (np.full(len(counts), NONE, np.int32) for _ in range(2))
    odd = (counts < 1) | (counts > 2)
    text = _none(bodies)
    rows = np.flatnonzero(~odd)
    reasons = view.texts(*bodies.line(1, rows))
    reasons = ["" if reason == "Reason unspecified" else reason for reason in reasons]
    text[rows] = bodies.details.strings.place_all(reasons)
    rows = np.flatnonzero(counts == 2)
    at, ends = bodies.line(2, rows)
    good = view.says(at, _CODE)
    at = at + len(_CODE)
    code[rows], width = integers(view.word[at])
    at = at + width
    good &= (width > 0) & view.says(at, _SUBCODE)
    at = at + len(_SUBCODE)
    subcode[rows], width = integers(view.word[at])
    odd[rows] = ~(good & (width > 0) & (at + width == ends))
    return Found({"code": code, "subcode": subcode, "text": text}, odd)


def _remote_error(bodies: Bodies) -> Found:
    columns, odd = _held(bodies)
    starts, ends = bodies.text, bodies.newlines[bodies.first]
    colon = bodies.view.byte[ends - 1] == 0x3A
    odd |= ~bodies.view.says(starts, _ERROR_ON) | (colon & (bodies.view.byte[ends - 2] == 0x3A))
    slot = _none(bodies)
    rows = np.flatnonzero(~odd)
    slot[rows] = bodies.place(starts[rows] + len(_ERROR_ON), (ends - colon)[rows])
    return Found({**columns, "slot": slot}, odd)


def _ad(bodies: Bodies) -> Found:
    lines = Lines(bodies)
    odd = np.zeros(len(bodies.first), np.bool_)
    odd[lines.owner[bodies.view.byte[lines.start] < 0x21]] = True  # indented, or no attribute
    site, slot, user = _none(bodies), _none(bodies), _none(bodies)
    _attribute(bodies, lines, b"MachineAttr" + _SITE + b"0", site, odd)
    _attribute(bodies, lines, b"SlotName", slot, odd)
    _attribute(bodies, lines, b"RemoteHost", slot, odd)
    _attribute(bodies, lines, b"User", user, odd, of_text=lambda text: text.partition("@")[0])
    _attribute(bodies, lines, b"Owner", user, odd)
    return Found({"site": site, "slot": slot, "user": user}, odd)


def _attribute(
    bodies: Bodies,
    lines: Lines,
    name: bytes,
    into: Places,
    odd: Flags,
    of_text: Callable[[str], str] | None = None,
) -> None:
    """Put in the texts of lines like `name = "text"`."""
    view = bodies.view
    mine = np.flatnonzero(begins(lines.word, name[:8]))
    at = lines.start[mine]
    mine = mine[view.says(at + 8, name[8:]) & ~_in_name(view.byte[at + len(name)])]
    starts, ends = lines.start[mine] + len(name) + 4, lines.end[mine]
    good = view.says(starts - 4, b' = "') & (ends > starts) & (view.byte[ends - 1] == _QUOTE)
    owners = lines.once(mine, odd)
    odd[owners[~good]] = True
    texts = view.texts(starts[good], ends[good] - 1)
    owners = owners[good]
    odd[owners] |= np.array([not text or '"' in text for text in texts], np.bool_)
    if of_text:
        texts = [of_text(text).strip() for text in texts]
    into[owners] = bodies.details.strings.place_all(texts)


def _in_name(byte: NDArray[np.uint8]) -> Flags:
    return np.asarray(((byte | 0x20) - 0x61 < 26) | (byte - 0x30 < 10) | (byte == 0x5F))


def _machines(bodies: Bodies, starts: Longs, ends: Longs) -> Places:
    """The machines that addresses like `<IP:port?…&alias=name>` are of: by alias, else by IP.

    One machine has many addresses: the port and the socket differ from job to job.
    """
    view, details = bodies.view, bodies.details
    data, byte = view.data, view.byte
    host = np.full(len(starts), -1, np.int32)
    bounds = list(zip(starts.tolist(), ends.tolist(), strict=True))
    query = np.array([data.find(b"?", a, b) for a, b in bounds], np.int64)
    alias = np.array([data.find(b"alias=", a, b) for a, b in bounds], np.int64)
    usual = (byte[starts] == _OPEN) & (byte[ends - 1] == _CLOSE)
    # A second question mark would make it part of another value.
    begins_part = (byte[alias - 1] == _AND) | (query == alias - 1)
    rows = np.flatnonzero(usual & (alias >= 0) & (query >= 0) & (query < alias) & begins_part)
    at = (alias[rows] + len(b"alias=")).tolist()
    stop = (ends[rows] - 1).tolist()
    cut = [data.find(b"&", a, b) for a, b in zip(at, stop, strict=True)]
    names = [data[a : b if c < 0 else c] for a, b, c in zip(at, stop, cut, strict=True)]
    host[rows] = [details.names[name] for name in names]
    rows = np.flatnonzero(usual & (alias < 0))
    host[rows] = _by_ip(bodies, starts[rows] + 1, np.where(query < 0, ends - 1, query)[rows])
    rows = np.flatnonzero(host < 0)
    host[rows] = [details.machines[raw] for raw in view.slices(starts[rows], ends[rows])]
    return host


def _by_ip(bodies: Bodies, starts: Longs, ends: Longs) -> Places:
    """The machines at addresses like `IP:port`; -1 where it is none like that."""
    view, names = bodies.view, bodies.details.names
    colon = starts + _first(view.word[starts], 0x3A)
    late = np.flatnonzero(colon == starts + 8)
    colon[late] += _first(view.word[starts[late] + 8], 0x3A)
    _, width = integers(view.word[colon + 1])
    good = (colon < starts + 16) & (width > 0) & (colon + 1 + width == ends)
    rows = np.flatnonzero(good)
    found = np.full(len(starts), -1, np.int32)
    found[rows] = [names[name] for name in view.slices(starts[rows], colon[rows])]
    return found


def _first(at_words: Words, byte: int) -> Longs:
    """Where this byte comes first in words; 8 where it does not."""
    other = at_words ^ u64(byte * _EACH)
    found = (other - u64(_EACH)) & ~other & u64(0x80 * _EACH)
    return (np.bitwise_count((found & (~found + u64(1))) - u64(1)) >> 3).astype(np.int64)


_EACH = 0x0101010101010101


_TRANSFERS = {text.encode(): BY_TRANSFER[transfer] for transfer, text in TRANSFER_TEXTS.items()}


def transfer_kinds(view: View, texts: Longs, ends: Longs) -> NDArray[np.uint8]:
    """The kinds of the 040 events whose headers' texts begin and end at these places."""
    kinds = np.zeros(len(texts), np.uint8)
    lengths = ends - texts - (view.byte[ends - 1] == _RETURN)
    for text, kind in _TRANSFERS.items():
        rows = np.flatnonzero(lengths == len(text))
        kinds[rows[view.says(texts[rows], text)]] = kind
    return kinds


Reader = Callable[[Bodies], Found]
#: By the numbers of events.
BODIES: dict[int, Reader] = {
    1: _execute,
    12: _held,
    21: _remote_error,
    28: _ad,
    40: _transfer,
    **dict.fromkeys((2, 7, 9, 13, 22, 24, 46), _first_lines),
}
