"""The bodies of events, read for all events of one number in a block at once.

Only bodies in the form that HTCondor itself writes are read here; any other body is marked as odd,
and the caller reads it through an `Event`. The texts come from `events.format`. How lines are found
among them is written out here, because that works on arrays of eight-byte words.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from headway.events.columnar.columns import MEASURED, NONE, Flags, Ints, Longs, Strings, machine
from headway.events.columnar.headers import (
    TENS,
    YEAR,
    Dates,
    Template,
    TextBlock,
    Words,
    begins,
    dates_with_year,
    integers,
    long_integers,
    two,
    u64,
    word,
)
from headway.events.event import BY_COMMON_STAGE, BY_TRANSFER, Kind
from headway.events.format import (
    AD_SITE,
    CODES,
    COMMON_FILES,
    COMMON_MAPPED,
    EVICTED_CODES,
    EVICTION_REASON,
    EXECUTING,
    FIRST_LINE_IS_REASON,
    NO_REASON,
    NORMAL_END,
    OWN_ACCORD,
    RECEIVED,
    REMOTE_ERROR,
    RUN_USAGE,
    SENT,
    SIGNAL_END,
    SITE,
    SLOT,
    TABLE,
    TABLE_COLUMNS,
    TO_HOST,
    TRANSFER_TEXTS,
)

_TAB, _RETURN, _QUOTE, _AND, _OPEN, _CLOSE = b'\t\r"&<>'
_EXECUTING, _SLOT, _TO_HOST = (line.raw[0] for line in (EXECUTING, SLOT, TO_HOST))
_MAPPED = f"{COMMON_MAPPED} = ".encode()
_ERROR_ON = b"%bstarter%b" % tuple(REMOTE_ERROR.raw[:2])
_NODES = ((b'    [ DAGNodeName = "', b'"'), (b"    DAG Node: ", b""))
_NODE_NAME = re.compile(rb"[A-Za-z0-9_+-]+")
_CODES = re.compile(CODES.exact() + rb"\Z")
_EVICTED_CODES = re.compile(EVICTED_CODES.exact() + rb"\Z")
_ENDING = re.compile(b"(?:%b|%b)\\Z" % (NORMAL_END.exact(), SIGNAL_END.exact()))
_MACHINE_NAME = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._-]*\Z")

_CACHE_SIZE = 1 << 14
Made = TypeVar("Made")


class Cache(dict[bytes, Made]):
    """What a function made of texts; when it is full, it forgets everything."""

    def __init__(self, function: Callable[[bytes], Made]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, key: bytes) -> Made:
        if len(self) >= _CACHE_SIZE:
            self.clear()
        value = self[key] = self._function(key)
        return value


class Caches:
    """What the texts that recur in a log mean; texts become numbers of `strings`."""

    def __init__(self, strings: Strings) -> None:
        self.strings = strings
        place = strings.place
        #: Machines by any address, and by their names; -1 for what is not just a name.
        self.machines = Cache(lambda raw: place(machine(raw.decode().strip())))
        self.names = Cache(lambda raw: place(raw.decode()) if _MACHINE_NAME.match(raw) else -1)
        #: Code and subcode of a 012 or a 021.
        self.codes = Cache(lambda raw: _pair(_CODES, raw))
        #: Code and subcode in the header of a 004; before HTCondor 10 there were none.
        self.evicted_codes = Cache(
            lambda raw: _pair(_EVICTED_CODES, raw) if b"Code" in raw else (NONE, NONE)
        )
        #: Return value and signal.
        self.endings = Cache(lambda raw: _pair(_ENDING, raw))
        #: Where the columns `Usage` and `Request` of a table end, by its first line.
        self.titles = Cache(_titles)


def _pair(pattern: re.Pattern[bytes], raw: bytes) -> tuple[int, int] | None:
    match = pattern.match(raw)
    if not match:
        return None
    first, second = (NONE if group is None else int(group) for group in match.groups())
    return first, second


def columns_of_pairs(pairs: list[tuple[int, int] | None]) -> Ints:
    """The two columns that pairs of numbers are; NONE where there is no pair."""
    return np.array([pair or (NONE, NONE) for pair in pairs], np.int32).reshape(-1, 2).T


def _titles(header: bytes) -> tuple[int, int]:
    used, asked = (title.encode() for title in TABLE_COLUMNS[:2])
    places = header.find(used), header.find(asked)
    return (places[0] + len(used), places[1] + len(asked)) if min(places) >= 0 else (0, 0)


class Bodies(NamedTuple):
    """Where the events of one number are: their texts, and their lines among the newlines."""

    block: TextBlock
    caches: Caches
    text: Longs  # where the header's text begins
    newlines: Longs
    first: Longs  # the newline that ends the header
    last: Longs  # the newline that ends the body

    def line(self, number: int, rows: Longs | slice = slice(None)) -> tuple[Longs, Longs]:
        """Where the n-th line below the header begins and ends; the rows must have it."""
        at = self.first[rows] + number
        return self.newlines[at - 1] + 1, self.newlines[at]

    def place(self, starts: Longs, ends: Longs) -> Ints:
        """The numbers of the texts there."""
        texts = self.block.texts(starts, ends)
        return np.array(self.caches.strings.place_all(texts), np.int32)


class Lines:
    """All lines of some bodies; `owner` is the body of each."""

    def __init__(self, bodies: Bodies) -> None:
        counts = bodies.last - bodies.first
        self.begins = np.cumsum(counts) - counts
        self.owner = np.repeat(np.arange(len(counts)), counts)
        line = np.arange(counts.sum()) + np.repeat(bodies.first - self.begins, counts)
        self.start, self.end = bodies.newlines[line] + 1, bodies.newlines[line + 1]
        self.word = bodies.block.word[self.start]

    def once(self, lines: Longs, odd: Flags) -> Longs:
        """The bodies of these lines; those that have several of them are odd."""
        owners = self.owner[lines]
        odd[owners[1:][owners[1:] == owners[:-1]]] = True
        return owners


class BodyColumns(NamedTuple):
    """What the bodies say, by column, and which of them have to be read in another way."""

    columns: dict[str, Ints]
    odd: Flags


def _none(bodies: Bodies) -> Ints:
    return np.full(len(bodies.first), -1, np.int32)


def _first_lines(bodies: Bodies) -> BodyColumns:
    text = _none(bodies)
    rows = np.flatnonzero(bodies.last > bodies.first)
    text[rows] = bodies.place(*bodies.line(1, rows))
    return BodyColumns({"text": text}, np.zeros(len(text), np.bool_))


def _submit(bodies: Bodies) -> BodyColumns:
    """The name that DAGMan gave to a job."""
    lines, text = Lines(bodies), _none(bodies)
    odd = np.zeros(len(text), np.bool_)
    data = bodies.block.data
    for node, end in _NODES:
        mine = np.flatnonzero(begins(lines.word, node[:8]))
        mine = mine[bodies.block.says(lines.start[mine] + 8, node[8:])]
        if not mine.size:
            continue
        starts, ends = lines.start[mine] + len(node), lines.end[mine]
        if end:
            bounds = zip(starts.tolist(), ends.tolist(), strict=True)
            ends = np.array([data.find(end, a, b) for a, b in bounds], np.int64)
        owners = lines.once(mine, odd)
        names = [data[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
        usual = np.array([_NODE_NAME.fullmatch(name) is not None for name in names], np.bool_)
        odd[owners[~usual | (text[owners] >= 0)]] = True
        text[owners[usual]] = bodies.place(starts[usual], ends[usual])
    return BodyColumns({"text": text}, odd)


def _transfer(bodies: Bodies) -> BodyColumns:
    host, lines = _none(bodies), Lines(bodies)
    odd = np.zeros(len(host), np.bool_)
    # A line before it may tell how long the transfer was queued.
    mine = np.flatnonzero(begins(lines.word, _TO_HOST[:8]))
    mine = mine[bodies.block.says(lines.start[mine] + 8, _TO_HOST[8:])]
    owners = lines.once(mine, odd)
    host[owners] = _machines(bodies, lines.start[mine] + len(_TO_HOST), lines.end[mine])
    return BodyColumns({"host": host}, odd)


def _execute(bodies: Bodies) -> BodyColumns:
    block, slot, site = bodies.block, _none(bodies), _none(bodies)
    host, odd = _none(bodies), ~block.says(bodies.text, _EXECUTING)
    rows = np.flatnonzero(~odd)
    host[rows] = _machines(
        bodies, bodies.text[rows] + len(_EXECUTING), bodies.newlines[bodies.first[rows]]
    )
    lines = Lines(bodies)
    mine = np.flatnonzero(begins(lines.word, _SLOT[:8]))
    mine = mine[block.says(lines.start[mine] + 8, _SLOT[8:])]
    texts = block.texts(lines.start[mine] + len(_SLOT), lines.end[mine])
    places = bodies.caches.strings.place_all([text.strip('"').strip() for text in texts])
    slot[lines.once(mine, odd)] = places
    # Attributes are indented with one tab; anything else may hide a site.
    usual = (block.byte[lines.start] == _TAB) & (block.byte[lines.start + 1] > 0x20)
    odd[lines.owner[~usual & (lines.start < lines.end)]] = True
    _attribute(bodies, lines, f"\t{SITE}".encode(), site, odd)
    return BodyColumns({"host": host, "slot": slot, "site": site}, odd)


def _held(bodies: Bodies) -> BodyColumns:
    block, counts = bodies.block, bodies.last - bodies.first
    code, subcode = np.full((2, len(counts)), NONE, np.int32)
    odd, text = counts < 1, _none(bodies)
    rows, last = np.flatnonzero(counts > 1), bodies.last.copy()
    lines = block.slices(bodies.newlines[last[rows] - 1] + 1, bodies.newlines[last[rows]])
    pairs = [bodies.caches.codes[line] for line in lines]
    code[rows], subcode[rows] = columns_of_pairs(pairs)
    # Without codes, the last line belongs to the reason.
    odd[rows] = [not pair and b"Code" in line for pair, line in zip(pairs, lines, strict=True)]
    last[rows[np.array([pair is not None for pair in pairs], np.bool_)]] -= 1
    rows = np.flatnonzero(last - bodies.first == 1)
    text[rows] = _reasons(bodies, block.texts(*bodies.line(1, rows)))
    rows = np.flatnonzero(last - bodies.first > 1)
    several = block.slices(bodies.line(1, rows)[0], bodies.newlines[last[rows]])
    reasons = ["|".join(map(str.strip, lines.decode().split("\n"))) for lines in several]
    text[rows] = _reasons(bodies, reasons)
    return BodyColumns({"code": code, "subcode": subcode, "text": text}, odd)


def _reasons(bodies: Bodies, texts: list[str]) -> list[int]:
    return bodies.caches.strings.place_all(["" if text == NO_REASON else text for text in texts])


def _remote_error(bodies: Bodies) -> BodyColumns:
    columns, odd = _held(bodies)
    starts, ends = bodies.text, bodies.newlines[bodies.first]
    colon = bodies.block.byte[ends - 1] == 0x3A
    odd |= ~bodies.block.says(starts, _ERROR_ON) | (colon & (bodies.block.byte[ends - 2] == 0x3A))
    slot = _none(bodies)
    rows = np.flatnonzero(~odd)
    slot[rows] = bodies.place(starts[rows] + len(_ERROR_ON), (ends - colon)[rows])
    return BodyColumns({**columns, "slot": slot}, odd)


def _ad(bodies: Bodies) -> BodyColumns:
    lines = Lines(bodies)
    odd = np.zeros(len(bodies.first), np.bool_)
    odd[lines.owner[bodies.block.byte[lines.start] < 0x21]] = True  # indented, or no attribute
    site, slot, user = _none(bodies), _none(bodies), _none(bodies)
    _attribute(bodies, lines, AD_SITE.encode(), site, odd)
    _attribute(bodies, lines, b"SlotName", slot, odd)
    _attribute(bodies, lines, b"RemoteHost", slot, odd)
    _attribute(bodies, lines, b"User", user, odd, of_text=lambda text: text.partition("@")[0])
    _attribute(bodies, lines, b"Owner", user, odd)
    kind = np.full(len(odd), Kind.OTHER, np.int32)
    mine = np.flatnonzero(begins(lines.word, _MAPPED[:8]))
    mine = mine[bodies.block.says(lines.start[mine] + 8, _MAPPED[8:])]
    kind[lines.owner[mine]] = Kind.COMMON_MAPPED
    return BodyColumns({"site": site, "slot": slot, "user": user, "kind": kind}, odd)


def _attribute(
    bodies: Bodies,
    lines: Lines,
    name: bytes,
    into: Ints,
    odd: Flags,
    of_text: Callable[[str], str] | None = None,
) -> None:
    """Put in the texts of lines like `name = "text"`."""
    block = bodies.block
    mine = np.flatnonzero(begins(lines.word, name[:8]))
    at = lines.start[mine]
    mine = mine[block.says(at + 8, name[8:]) & ~_in_name(block.byte[at + len(name)])]
    starts, ends = lines.start[mine] + len(name) + 4, lines.end[mine]
    good = block.says(starts - 4, b' = "') & (ends > starts) & (block.byte[ends - 1] == _QUOTE)
    owners = lines.once(mine, odd)
    odd[owners[~good]] = True
    texts = block.texts(starts[good], ends[good] - 1)
    owners = owners[good]
    odd[owners] |= np.array([not text or '"' in text for text in texts], np.bool_)
    if of_text:
        texts = [of_text(text).strip() for text in texts]
    into[owners] = bodies.caches.strings.place_all(texts)


def _in_name(byte: NDArray[np.uint8]) -> Flags:
    return np.asarray(((byte | 0x20) - 0x61 < 26) | (byte - 0x30 < 10) | (byte == 0x5F))


def _machines(bodies: Bodies, starts: Longs, ends: Longs) -> Ints:
    """The machines that addresses like `<IP:port?…&alias=name>` are of: by alias, else by IP.

    One machine has many addresses: the port and the socket differ from job to job.
    """
    block, caches = bodies.block, bodies.caches
    data, byte = block.data, block.byte
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
    host[rows] = [caches.names[name] for name in names]
    rows = np.flatnonzero(usual & (alias < 0))
    host[rows] = _by_ip(bodies, starts[rows] + 1, np.where(query < 0, ends - 1, query)[rows])
    rows = np.flatnonzero(host < 0)
    host[rows] = [caches.machines[raw] for raw in block.slices(starts[rows], ends[rows])]
    return host


def _by_ip(bodies: Bodies, starts: Longs, ends: Longs) -> Ints:
    """The machines at addresses like `IP:port`; -1 where it is none like that."""
    block, names = bodies.block, bodies.caches.names
    colon = starts + _first(block.word[starts], 0x3A)
    late = np.flatnonzero(colon == starts + 8)
    colon[late] += _first(block.word[starts[late] + 8], 0x3A)
    _, width = integers(block.word[colon + 1])
    good = (colon < starts + 16) & (width > 0) & (colon + 1 + width == ends)
    rows = np.flatnonzero(good)
    found = np.full(len(starts), -1, np.int32)
    found[rows] = [names[name] for name in block.slices(starts[rows], colon[rows])]
    return found


def _first(at_words: Words, byte: int) -> Longs:
    """Where this byte comes first in words; 8 where it does not."""
    other = at_words ^ u64(byte * _EACH)
    found = (other - u64(_EACH)) & ~other & u64(0x80 * _EACH)
    return (np.bitwise_count((found & (~found + u64(1))) - u64(1)) >> 3).astype(np.int64)


_EACH = 0x0101010101010101


#: Events whose kind is in the text of the header: the number of each, and its texts.
STAGES: dict[int, dict[bytes, Kind]] = {
    40: {text.encode(): BY_TRANSFER[transfer] for transfer, text in TRANSFER_TEXTS.items()},
    47: {
        COMMON_FILES.raw[0] + stage.value.encode(): kind for stage, kind in BY_COMMON_STAGE.items()
    },
}


def stage_kinds(block: TextBlock, number: int, texts: Longs, ends: Longs) -> NDArray[np.uint8]:
    """The kinds of the events of this number whose headers' texts begin and end there."""
    kinds = np.zeros(len(texts), np.uint8)
    lengths = ends - texts - (block.byte[ends - 1] == _RETURN)
    for text, kind in STAGES[number].items():
        rows = np.flatnonzero(lengths == len(text))
        kinds[rows[block.says(texts[rows], text)]] = kind
    return kinds


Reader = Callable[[Bodies], BodyColumns]
#: By the numbers of events.
BODIES: dict[int, Reader] = {
    0: _submit,
    1: _execute,
    12: _held,
    21: _remote_error,
    28: _ad,
    40: _transfer,
    **dict.fromkeys(FIRST_LINE_IS_REASON, _first_lines),
}


# The bodies of 004 and 005 events, all lines of a block at once.


_HEADER = f"{TABLE} :".encode()
_COLON = _HEADER.index(b":")
#: How far a table may reach, and how wide its cells may be.
_REACH, _CELL = 64, 16
_SPACES, _HIGH = word(b" " * 8), word(b"\x80" * 8)
_USED, _ASKED = 0, 1
_ACCORD, _REASON = OWN_ACCORD.raw[0], EVICTION_REASON.raw[0]
#: Which line of a requeued body says how the command ended.
ENDING_LINE = 5
_T, _Z = b"TZ"

#: The beginning of a resource's line, what follows it, and what its cells measure.
_RESOURCES: tuple[tuple[bytes, bytes, dict[int, str]], ...] = (
    (b"\t   Memo", b"ry ", {_USED: "memory_used", _ASKED: "memory_asked"}),
    (b"\t   Disk", b" ", {_USED: "disk_used", _ASKED: "disk_asked"}),
    (b"\t   Cpus", b" ", {_USED: "cpus_used", _ASKED: "cpus_asked"}),
    (b"\t   GPUs", b" ", {_ASKED: "gpus_asked"}),
    (b"\t   Time", b"Execute ", {_USED: "execute"}),
    (b"\t   Time", b"SlotBusy", {_USED: "busy"}),
)
_TIME = b"\t   Time"
_CPU, _SENT, _RECEIVED = map(MEASURED.index, ("cpu_seconds", "sent", "received"))
_CLOCK = Template(b" 00:00:0")


class Endings:
    """What the lines of some bodies of 004 or 005 events say."""

    def __init__(self, bodies: Bodies, requeued: Flags) -> None:
        """Read the bodies; of those that are `requeued`, a line says how the command ended."""
        self._block, self._lines = bodies.block, Lines(bodies)
        self._word, self._byte = bodies.block.word, bodies.block.byte
        self._owner = self._lines.owner
        self._start, self._end = self._lines.start, self._lines.end
        self._counts = bodies.last - bodies.first
        #: Bodies that have to be read in another way.
        self.odd = (self._counts == 0) | (requeued & (self._counts <= ENDING_LINE))
        self.measured = np.full((len(self.odd), len(MEASURED)), np.nan)
        #: The lines with a reason, by body; -1 for none.
        self.reason = np.full(len(self.odd), -1)
        #: The times in UTC that bodies tell, and where they might, but not in the usual words.
        self.utc = np.full(len(self.odd), np.nan)
        self.unclear = np.zeros(len(self.odd), np.bool_)
        self._titles = bodies.caches.titles
        self._read(requeued)

    def lines(self, number: int, rows: Longs | slice = slice(None)) -> list[bytes]:
        """The n-th line of each body; of an odd one perhaps another."""
        if not len(self._start):
            return [b""] * len(self.odd)
        at = np.minimum(self._lines.begins[rows] + number, len(self._start) - 1)
        return self._block.slices(self._start[at], self._end[at])

    def reasons(self, rows: Longs, requeued: Flags) -> list[str]:
        """The reasons of bodies that have one."""
        lines = self.reason[rows]
        starts = self._start[lines] + np.where(requeued[rows], 0, len(_REASON))
        return self._block.texts(starts, self._end[lines])

    def _read(self, requeued: Flags) -> None:
        begin = self._lines.word
        known = self._start == self._end
        known |= begins(begin, b"\t(0)") | begins(begin, b"\t(1)")
        dated = begins(begin, _ACCORD[:8])
        self._end_times(np.flatnonzero(dated))
        known |= dated
        known |= self._reasons(begin, requeued)
        known |= self._cpu_times(begins(begin, b"\t\tUsr "))
        known |= self._transferred(begin)
        known |= self._table(begin)
        if requeued.any():
            known[self._requeue_reasons(begin, np.flatnonzero(requeued & ~self.odd))] = True
        self.odd[self._owner[~known]] = True

    def _once(self, lines: Longs) -> Longs:
        return self._lines.once(lines, self.odd)

    def _end_times(self, lines: Longs) -> None:
        """Read when jobs ended of their own accord."""
        owners, at = self._owner[lines], self._start[lines]
        good = self._block.says(at, _ACCORD)
        at = at + len(_ACCORD)
        dated, key, second = dates_with_year(self._word, at)
        month, day, hour, minute, valid = Dates.of(key)
        good &= dated & valid & (day <= 28) & (key // YEAR > 1970) & (second < 60)
        good &= (self._byte[at + 10] == _T) & (self._byte[at + 19] == _Z)
        months = np.where(good, (key // YEAR - 1970) * 12 + month - 1, 0)
        days = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) + day - 1
        seconds = ((days * 24 + hour) * 60 + minute) * 60 + second
        self.utc[owners] = np.where(good, seconds, np.nan)
        self.unclear[owners[~good]] = True
        self.unclear[owners[1:][owners[1:] == owners[:-1]]] = True
        self.utc[self.unclear] = np.nan

    def _reasons(self, begin: Words, requeued: Flags) -> Flags:
        found: Flags = begins(begin, _REASON[:8]) & (self._byte[self._start + 8] == _REASON[8])
        lines = np.flatnonzero(found)
        owners = self._once(lines)
        self.reason[owners] = lines
        self.odd[owners] |= requeued[owners]  # which has its reason in another place
        return found

    def _requeue_reasons(self, begin: Words, rows: Longs) -> Longs:
        """The lines that say why bodies were requeued: behind the ending, and the core file."""
        ending = self._lines.begins[rows] + ENDING_LINE
        lines = ending + 1 + begins(begin[ending], b"\t(0)")
        has = lines < self._lines.begins[rows] + self._counts[rows]
        rows, lines = rows[has], lines[has]
        start = self._start[lines]
        table = begins(begin[lines], _HEADER[:8])
        usual = (self._byte[start] == _TAB) & (self._byte[start + 1] > 0x20) & ~table
        usual &= self._byte[start + 1] < 0x7F
        self.reason[rows[usual]] = lines[usual]
        self.odd[rows[~usual & ~table]] = True
        return np.asarray(lines[usual])

    def _cpu_times(self, candidates: Flags) -> Flags:
        lines = np.flatnonzero(candidates)
        at = self._start[lines] + 6
        good = np.ones(len(lines), np.bool_)
        seconds = np.zeros(len(lines), np.int64)
        for after in (b", Sys ", b""):
            days, width = integers(self._word[at])
            at = at + width
            clock, rest = self._word[at], self._word[at + 8]
            good &= (width > 0) & _CLOCK.fits(clock) & (_digit(self._byte[at + 8]))
            good &= begins(rest >> u64(8), after)
            pairs = _CLOCK.pairs(clock)
            last = two(pairs, 7) + self._byte[at + 8] - 0x30
            seconds += ((days * 24 + two(pairs, 1)) * 60 + two(pairs, 4)) * 60 + last
            at = at + 9 + len(after)
        run = self._block.says(at, RUN_USAGE.raw[1])
        mine = lines[run & good]
        self.measured[self._once(mine), _CPU] = seconds[run & good]
        candidates[lines[~good]] = False
        return candidates

    def _transferred(self, begin: Words) -> Flags:
        found: Flags = ((begin & u64(0xFF)) == 0x09) & _digit((begin >> u64(8)) & u64(0xFF))
        lines = np.flatnonzero(found)
        at = self._start[lines] + 1
        value, width = long_integers(self._word, at)
        at = at + width
        good = self._block.says(at, b"  -  Total ")
        for text, place in ((SENT.raw[1], _SENT), (RECEIVED.raw[1], _RECEIVED)):
            here = self._block.says(at, text)
            self.measured[self._once(lines[here]), place] = value[here]
            good |= here
        found[lines[~good]] = False
        return found

    def _table(self, begin: Words) -> Flags:
        header = begins(begin, _HEADER[:8])
        lines = np.flatnonzero(header)
        good = self._block.says(self._start[lines], _HEADER)
        titles = self._block.slices(self._start[lines], self._end[lines])
        ends = np.array([self._titles[title] for title in titles], np.int64).reshape(-1, 2)
        good &= (ends[:, 0] > _COLON) & (ends[:, 1] > ends[:, 0]) & (ends[:, 1] <= _REACH)
        self._stops = np.zeros((len(self.odd), 2), np.int64)
        self._stops[self._once(lines)] = ends
        header[lines[~good]] = False
        row = begins(begin, b"\t   ") & (self._end - self._start > _COLON)
        row &= self._byte[self._start + _COLON] == 0x3A
        row &= self._byte[self._start + 4] > 0x20
        if not self._block.ascii:  # the columns are characters, not bytes
            for column in range(0, _REACH, 8):
                row &= (self._word[self._start + column] & _HIGH) == 0
        # A table ends with the first line that is not of it.
        inside = header | row
        alone = row.copy()
        alone[1:] &= ~(inside[:-1] & (self._owner[1:] == self._owner[:-1]))
        row &= ~alone
        lines = np.flatnonzero(row)
        names, follows = begin[lines], self._word[self._start[lines] + 8]
        good = np.ones(len(lines), np.bool_)
        cells: list[tuple[Longs, int, int]] = []
        for text, after, measures in _RESOURCES:
            mine = begins(names, text)
            exact = mine & begins(follows, after)
            good &= ~mine | exact | (text == _TIME)
            for column, name in measures.items():
                cells.append((lines[exact], column, MEASURED.index(name)))
        self._cells(cells)
        row[lines[~good]] = False
        times = lines[begins(names, _TIME)]
        at = self._start[times] + 8
        good = self._block.says(at, b"Execute ") | self._block.says(at, b"SlotBusy ")
        self.odd[self._owner[times[~good]]] = True
        return np.asarray(header | row)

    def _cells(self, cells: list[tuple[Longs, int, int]]) -> None:
        """Read these cells of these lines into their places.

        A number stands anywhere in its cell, with nothing but blanks around it.
        """
        lines = np.concatenate([lines for lines, _, _ in cells])
        sizes = [len(lines) for lines, _, _ in cells]
        place = np.repeat([place for _, _, place in cells], sizes)
        column = np.repeat([column for _, column, _ in cells], sizes)
        owner, start = self._owner[lines], self._start[lines]
        stops = self._stops[owner]
        at = start + np.where(column == _USED, _COLON + 1, stops[:, 0])
        stop = np.minimum(
            start + np.where(column == _USED, stops[:, 0], stops[:, 1]), self._end[lines]
        )
        size = np.maximum(stop - at, 0)
        low, high = self._word[at], self._word[at + 8]
        # What is behind the cell becomes zero, which counts as blank.
        low &= _KEEP[np.minimum(size, 8)]
        high &= _KEEP[np.clip(size - 8, 0, 8)]
        lead = _zero_bytes(low ^ _SPACES)
        low, high = _shifted(low, high, lead)
        more = np.flatnonzero(lead == 8)
        if more.size:
            low[more], high[more] = _shifted(
                low[more], high[more], _zero_bytes(low[more] ^ _SPACES)
            )
        value, width = integers(low)
        found = value.astype(np.float64)
        long = np.flatnonzero(width == 8)
        if long.size:
            digits, wider = integers(high[long])
            found[long] = value[long] * TENS[wider] + digits
            width[long] += wider
        rest = width.astype(np.uint64)
        point = np.flatnonzero(
            (_at(low, np.minimum(rest, u64(7))) == 0x2E) & (width > 0) & (width < 7)
        )
        if point.size:
            digits, places = integers(low[point] >> ((rest[point] + u64(1)) << u64(3)))
            power = TENS[places]
            found[point] = (value[point] * power + digits) / power
            rest[point] += (places + 1).astype(np.uint64)
        low, high = _shifted(low, high, np.minimum(rest, u64(8)))
        long = np.flatnonzero(rest > 8)
        if long.size:
            low[long], high[long] = _shifted(low[long], high[long], rest[long] - u64(8))
        found[width == 0] = np.nan
        good = (size <= _CELL) & (((low | high) & ~_SPACES) == 0)
        self.odd[owner[~good]] = True
        self.measured[owner, place] = found


#: The bits of the first bytes of a word, by how many.
_KEEP = np.array([256**n - 1 for n in range(9)], np.uint64)


def _shifted(low: Words, high: Words, count: Words) -> tuple[Words, Words]:
    """Two words as one of sixteen bytes, without its first ones, which are 8 at most."""
    bits = count << u64(3)
    # A shift by all 64 bits does nothing in C.
    whole = count == 8
    back = np.where(count == 0, u64(0), high << (u64(64) - np.maximum(bits, u64(1))))
    made = np.where(whole, high, (low >> np.where(whole, u64(0), bits)) | back)
    return made, np.where(whole, u64(0), high >> np.where(whole, u64(0), bits))


def _digit(byte: NDArray[np.unsignedinteger]) -> Flags:
    return np.asarray((byte >= 0x30) & (byte <= 0x39))


def _zero_bytes(found: Words) -> Words:
    """How many of the first bytes are zero; 8 where all are."""
    low = found & (~found + u64(1))
    return np.bitwise_count(low - u64(1)).astype(np.uint64) >> u64(3)


def _at(found: Words, place: Words) -> Words:
    return (found >> (place << u64(3))) & u64(0xFF)
