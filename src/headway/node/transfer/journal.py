"""The journal: which bytes of PATH.part are certainly on disk, so that another process can go on.

It is the file PATH.part.journal, and only ever grows. Each line is a CRC and a JSON array; the
first says which object and which part it belongs to. Reading stops at the first incomplete line, so
a kill at any point, or damage, loses the newest lines and nothing else. Data is synchronised before
the line that speaks of it, and a loss is recorded before the bytes are written anew. The folder is
synchronised when the journal appears and when it goes.
"""

from __future__ import annotations

import contextlib
import os
import stat
import zlib

from headway.node.files import sync_folder, why_untrusted
from headway.node.transfer.ledger import joined
from headway.node.transfer.source import Identity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.node.transfer.ledger import Stretch

    Stretches = list[tuple[int, int, int]]

SUFFIX = ".journal"
FORMAT = 1
MAX_BYTES = 32 << 20
_MAX_TEXT = 1000
EARLIER = -1  # the source of bytes that an earlier process has brought


class SavedState:
    """What an earlier process has left."""

    def __init__(self, size: int, identity: Identity, place: str, stretches: Stretches) -> None:
        self.size = size
        self.identity = identity  # of the version that was being downloaded
        self.place = place  # the source that the identity is from, as `place_of` writes it
        self.stretches = stretches


class Journal:
    """Writes the journal of one part; a failure to do so never stops a transfer."""

    def __init__(self, path: str, proof: str) -> None:
        self._path = path
        self.proof = proof  # the declared checksum or manifest, to which the part belongs
        self._file: int | None = None
        self._recorded: list[Stretch] = []
        self._broken = False

    def begin(self, part: int, identity: Identity, place: str, had: Stretches) -> None:
        """Start a new one for a part; `had` is what is already on disk."""
        self.remove()
        self._broken = False
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW
        try:
            self._file = os.open(self._path, flags | os.O_CLOEXEC, 0o600)
        except OSError:
            self._broken = True
            return
        inode, size = os.fstat(part).st_ino, identity.size
        self._recorded = []
        self._append([[FORMAT, inode, size, self.proof, identity.as_json(), place]])
        self.extend(had)
        sync_folder(os.path.dirname(self._path))

    @property
    def begun(self) -> bool:
        return self._file is not None

    def extend(self, written: Stretches) -> None:
        """Add what is new; the caller has synchronised the data."""
        now = _pairs(written)
        lines: list[list[object]] = [["+", a, b] for a, b in _new(now, self._recorded)]
        if lines:
            self._recorded = now
            self._append(lines)

    def forget(self, written: Stretches) -> None:
        """Some bytes were wrong: only these are left. Call it before any is written again."""
        self._recorded = _pairs(written)
        self._append([["=", *map(list, self._recorded)]])

    def remove(self) -> None:
        """Remove it for good: if it came back after a crash, it would describe other bytes."""
        self.close()
        with contextlib.suppress(OSError):
            os.unlink(self._path)
            sync_folder(os.path.dirname(self._path))

    def close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = None

    def _append(self, lines: list[list[object]]) -> None:
        if self._file is None or self._broken:
            return
        data = b"".join(_line(each) for each in lines)
        try:
            while data:
                data = data[os.write(self._file, data) :]
            os.fdatasync(self._file)
        except OSError:
            # half a line would hide every later one, and an unrecorded loss would be worse
            self._broken = True
            self.remove()


def read_journal(path: str, part: int, proof: str) -> SavedState | None:
    """What the journal of this part says; None when there is nothing that can be relied upon."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        about = os.fstat(file)
        if not stat.S_ISREG(about.st_mode) or about.st_size > MAX_BYTES:
            return None
        if why_untrusted(about) or about.st_nlink > 1:
            return None  # anybody could have written it
        data = b""
        while len(data) <= MAX_BYTES and (piece := os.read(file, 1 << 20)):
            data += piece
        mark = os.fstat(part)
    except OSError:
        return None
    finally:
        os.close(file)
    return parse(data, inode=mark.st_ino, length=mark.st_size, proof=proof)


def parse(data: bytes, *, inode: int, length: int, proof: str) -> SavedState | None:
    """Read the bytes of a journal, which may be anything."""
    past: SavedState | None = None
    fresh: Stretches = []  # put together now and then: there may be thousands
    for raw in data.split(b"\n")[:-1]:
        line = _checked(raw)
        if line is None:
            break
        if past is None:
            past = _head(line, inode, proof)
            if past is None:
                return None
        elif not _apply(past, line, fresh):
            break
    if past is not None:
        limit = min(length, past.size)
        stretches = _pairs(past.stretches + fresh)
        past.stretches = [(a, min(b, limit), EARLIER) for a, b in stretches if a < limit]
    return past


def _head(line: list[object], inode: int, proof: str) -> SavedState | None:
    if len(line) != 6 or line[:2] != [FORMAT, inode] or line[3] != proof:
        return None
    size, about, place = line[2], line[4], line[5]
    if not _natural(size) or not isinstance(about, dict) or not isinstance(place, str):
        return None
    texts = [about.get("etag"), about.get("modified")]
    digests = about.get("digests")
    if not all(isinstance(text, str) and len(text) <= _MAX_TEXT for text in texts):
        return None
    if not isinstance(digests, dict) or about.get("size") != size:
        return None
    if not all(isinstance(each, str) for pair in digests.items() for each in pair):
        return None
    identity = Identity(int(str(size)), str(texts[0]), str(texts[1]), digests)
    return SavedState(int(str(size)), identity, place, [])


def _apply(past: SavedState, line: list[object], fresh: Stretches) -> bool:
    pairs = [line[1:]] if line[:1] == ["+"] else line[1:] if line[:1] == ["="] else None
    if pairs is None:
        return False
    stretches = []
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2 or not all(map(_natural, pair)):
            return False
        if not pair[0] < pair[1] <= past.size:
            return False
        stretches.append((pair[0], pair[1], EARLIER))
    if line[0] == "=":
        past.stretches = []
        fresh.clear()
    fresh += stretches
    return True


def _line(content: list[object]) -> bytes:
    import json  # not at the start: most transfers are over before there is a journal

    text = json.dumps(content, separators=(",", ":")).encode()
    return b"%08x %b\n" % (zlib.crc32(text), text)


def _checked(raw: bytes) -> list[object] | None:
    import json

    try:
        if int(raw[:8], 16) != zlib.crc32(raw[9:]) or raw[8:9] != b" ":
            return None
        content = json.loads(raw[9:])
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, list) else None


def _natural(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


def _pairs(stretches: Stretches) -> list[Stretch]:
    """The same bytes in as few stretches as possible; who gave them is not recorded."""
    return joined((begin, end) for begin, end, _ in stretches)


def _new(now: list[Stretch], known: list[Stretch]) -> list[Stretch]:
    """What of some joined stretches is in none of others, in one walk along both."""
    result, at = [], 0
    for begin, end in now:
        while at < len(known) and known[at][1] <= begin:
            at += 1
        after = at
        while after < len(known) and known[after][0] < end:
            if known[after][0] > begin:
                result.append((begin, known[after][0]))
            begin = max(begin, known[after][1])
            after += 1
        if begin < end:
            result.append((begin, end))
    return result
