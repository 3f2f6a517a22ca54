"""A batch of small files, which are read as if they were one."""

from __future__ import annotations

from headway.events.chunk import END, HEADER, blank
from headway.events.columnar.parcel import Result
from headway.events.columnar.part import placed
from headway.events.columnar.scan import Scanner
from headway.events.skip import Skip

_LIMIT = 4 << 20
#: Ends that are no sure ones: their mark may share a newline with the one before.
_UNSURE = (b"\n..." + END, b"\n...\r" + END)


class Batch:
    """Files that follow each other; only those that are as whole as if they were alone."""

    def __init__(self) -> None:
        self._files: list[int] = []
        self._starts: list[int] = []
        self._pieces: list[bytes] = []
        self._size = 0
        self._unfinished: list[tuple[int, Skip]] = []

    def take(self, file: int, data: bytes) -> bool:
        """Add a file, if it is plain to see where its last event ends and there is room."""
        if data.endswith(END[:-1]):
            data += END[-1:]
        end = data.rfind(END) + len(END) if data else 0
        whole = data[:end]
        unsure = (end < len(END) and data) or whole.endswith(_UNSURE) or b"\r" in data[end:]
        if unsure or (self._files and self._size + end > _LIMIT):
            return False
        self._unfinished += unfinished(file, end, data[end:])
        self._files.append(file)
        self._starts.append(self._size)
        self._pieces.append(whole)
        self._size += end
        return True

    def results(self) -> list[Result]:
        """What is in all of them; nothing if there are none."""
        if not self._files:
            return []
        scanner = Scanner()
        scanner.feed(b"".join(self._pieces))
        part = placed(scanner.part(), self._files, self._starts)
        return [Result(self._files[0], 0, part, self._unfinished)]


def unfinished(file: int, offset: int, rest: bytes) -> list[tuple[int, Skip]]:
    """What lies behind the last complete event of a file, if it is anything."""
    if blank(rest):
        return []
    why = "an event without an end" if HEADER.match(rest) else "no event"
    return [(file, Skip(offset, len(rest), why))]
