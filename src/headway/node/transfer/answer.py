"""Answers: the head of an HTTP answer and its body, however the server frames it."""

from __future__ import annotations

import contextlib
import re

from headway.node.transfer.source import Fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.node.transfer.wire import Wire

MOMENT = 0.25  # seconds after which a reader of a body hears that nothing comes
MAX_FIELDS = 200
_MAX_LENGTH = 1 << 62
_SMALL = 1 << 16
_DRAIN = 5.0  # seconds that the rest of a body, or its trailers, may take
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_LINE_END = re.compile(rb"\r?\n")
_HEX = re.compile(rb"[0-9A-Fa-f]{1,15}\Z")


class Quiet(Exception):
    """Nothing came for a moment; nothing is lost, and reading may go on."""


class Answer:
    """The head of an answer, and its body as far as it has been read."""

    def __init__(
        self, wire: Wire, status: int, reason: str, fields: list[tuple[str, str]], keeps: bool
    ) -> None:
        self.wire, self.status, self.reason = wire, status, reason
        self.fields = fields
        self.trailers: list[tuple[str, str]] = []
        self.left: int | None = 0  # bytes to come; None: until the end, or chunk by chunk
        self.chunked = False
        self._in_chunk = 0
        self._between = False  # a chunk's closing line break is still to come
        self._in_trailer = False
        self._lines: list[bytes] = []
        self._done = False
        options = (self.get("connection") or "").lower()
        self.keeps = "close" not in options if keeps else "keep-alive" in options

    @property
    def done(self) -> bool:
        """Whether the body has come to its proper end."""
        return self._done

    @property
    def ends_anywhere(self) -> bool:
        """Whether nothing but the end of the connection tells where the body ends."""
        return self.left is None and not self.chunked

    def get(self, name: str) -> str | None:
        """A field's value; the first one where there are several."""
        return next((value for each, value in self.fields if each == name), None)

    def frame(self, method: str) -> None:
        """Find out how the body ends."""
        coding = [v.lower() for n, v in self.fields if n == "transfer-encoding"]
        lengths = {v for n, v in self.fields if n == "content-length"}
        if method == "HEAD" or self.status in (204, 304):
            self.left = 0
        elif coding:
            if coding != ["chunked"]:
                raise Fault("it uses a transfer coding that nobody asked for")
            self.chunked, self.left = True, None
        elif lengths:
            self.left = number(next(iter(lengths))) if len(lengths) == 1 else None
            if self.left is None:
                raise Fault("it does not say properly how long its answer is")
        else:
            self.left, self.keeps = None, False
        if self.get("content-encoding") not in (None, "", "identity"):
            raise Fault("it changes the bytes by a content coding that nobody asked for")
        if self.left == 0:
            self._end()

    def read_into(self, view: memoryview) -> int:
        """Receive into the buffer; 0 at the proper end of the body."""
        if self._done:
            return 0
        if self.chunked:
            return self._chunked_into(view)
        want = view if self.left is None or self.left >= len(view) else view[: self.left]
        count = self.wire.receive(want)
        if self.left is not None:
            self.left -= count
            if count == 0:
                self.wire.close()
                raise Fault(f"it broke off {self.left} bytes before the end", phase="body")
            if self.left == 0:
                self._end()
        elif count == 0:
            self._end()
        return count

    def drain(self, limit: int = _SMALL) -> int:
        """Read the rest of a short body, so that the connection serves again; else close it.

        Returns the bytes that were thrown away.
        """
        view = memoryview(bytearray(_SMALL))
        thrown, moments = 0, 0
        with contextlib.suppress(Fault):
            while not self._done and thrown <= limit and (self.left or 0) <= limit:
                try:
                    thrown += self.read_into(view)
                except Quiet:
                    moments += 1
                    if moments * MOMENT > _DRAIN:
                        break
        if not self._done:
            self.wire.close()
        return thrown

    def _chunked_into(self, view: memoryview) -> int:
        if self._in_chunk == 0 and not self._next_chunk():
            return 0
        count = self.wire.receive(view[: min(self._in_chunk, len(view))])
        if count == 0:
            self.wire.close()
            raise Fault("it broke off within a chunk of its answer", phase="body")
        self._in_chunk -= count
        return count

    def _next_chunk(self) -> bool:
        if self._in_trailer:
            return self._read_trailer()
        if self._between and self.wire.line() != b"":
            raise self._bad("chunk")
        self._between = False  # a Quiet may come next, and then this part is done
        size = self.wire.line().partition(b";")[0].strip()
        if not _HEX.match(size):
            raise self._bad("chunk size")
        self._in_chunk, self._between = int(size, 16), True
        if self._in_chunk:
            return True
        self._in_trailer = True
        return self._read_trailer()

    def _read_trailer(self) -> bool:
        while line := self.wire.line():
            self._lines.append(line)
            if len(self._lines) > MAX_FIELDS:
                raise self._bad("trailers")
        self.trailers = fields_of(b"\r\n".join(self._lines))
        self._end()
        return False

    def _bad(self, what: str) -> Fault:
        self.wire.close()
        return Fault(f"it does not speak HTTP properly ({what})", phase="body")

    def _end(self) -> None:
        self._done = True
        if self.keeps:
            self.wire.usable = True
        else:
            self.wire.close()


def fields_of(text: bytes) -> list[tuple[str, str]]:
    """The fields of a head or of trailers, names in lower case."""
    fields = []
    # XRootD ends a line without \\r where a Digest follows Content-Range
    for line in _LINE_END.split(text) if text else []:
        # Not by one pattern: with blanks on both sides of a value it takes the square of a line.
        name, colon, value = line.partition(b":")
        if not colon or not _NAME.match(name):
            raise Fault("it does not speak HTTP properly (a field of the head)")
        fields.append((name.decode("ascii").lower(), value.strip(b" \t").decode("latin-1")))
    if len(fields) > MAX_FIELDS:
        raise Fault("it does not speak HTTP properly (too many fields)")
    return fields


def number(text: str) -> int | None:
    """A number of bytes as HTTP writes it; None when it is none."""
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        return None
    value = int(text)
    return value if value < _MAX_LENGTH else None
