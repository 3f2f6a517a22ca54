"""One request and its answer, whole and bounded: what directors, and servers about uploads, say."""

from __future__ import annotations

import re
import time

from headway.node.errors import Stopped
from headway.node.transfer.line import Line
from headway.node.transfer.moments import retry_after
from headway.node.transfer.request import request
from headway.node.transfer.source import Fault
from headway.node.transfer.urls import scrubbed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Stop = Callable[[], bool]

ANSWER = 30.0  # seconds for a whole small exchange
_BODY = 1 << 16
_FIELDS = 256
_STATUS = re.compile(r"HTTP/1\.[01] ([1-5]\d\d)(?: (.*))?")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class Reply:
    """A server's answer; `body` is its beginning, at most what was asked for."""

    def __init__(self, url: str, status: int, reason: str, fields: list[tuple[str, str]]) -> None:
        self.url, self.status, self.reason = url, status, reason
        self.fields = fields
        self.body = b""
        self.seconds = 0.0  # from the first byte sent to the head's last byte

    def get(self, name: str) -> str:
        """A header's value, several joined as HTTP allows; empty: not there."""
        wanted = name.lower()
        return ", ".join(value for key, value in self.fields if key == wanted)

    @property
    def length(self) -> int | None:
        """Content-Length, if it is a number and the same wherever it is said."""
        values = {value for key, value in self.fields if key == "content-length"}
        value = values.pop() if len(values) == 1 else ""
        return int(value) if value.isascii() and value.isdigit() and len(value) < 19 else None

    @property
    def after(self) -> float:
        """Seconds that the server asks to wait."""
        return retry_after(self.get("Retry-After"), self.get("Date"))

    def words(self) -> str:
        """The status in words, with what the body says where it is plain."""
        said = ""
        if self.body[:1] == b"{" or self.get("Content-Type").lower().startswith("text/plain"):
            said = _message(self.body)
        line = f"HTTP {self.status} {scrubbed(self.reason, 60)}".strip()
        return f"{line} ({said})" if said else line


def ask(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    should_stop: Stop = lambda: False,
    seconds: float = ANSWER,
    body_limit: int = _BODY,
    public: bool = False,
) -> Reply:
    """One request without a body; redirects are not followed. Fault: no proper answer came."""
    end = time.monotonic() + seconds
    try:
        with Line(
            url, silence=seconds, deadline=end, should_stop=should_stop, public=public
        ) as line:
            begin = time.monotonic()
            length = {"Content-Length": "0"} if method == "PUT" else {}
            line.send(head(line, method, {**length, **(headers or {})}))
            reply = read_head(line, url)
            reply.seconds = time.monotonic() - begin
            if method != "HEAD" and reply.status not in (204, 304):
                reply.body = read_body(line, reply, body_limit)
            return reply
    except (Fault, Stopped):
        raise
    except (OSError, ValueError) as error:
        raise failed(error) from None


def head(line: Line, method: str, headers: Mapping[str, str]) -> bytes:
    """The head of the only request that a line carries."""
    usual = {"Accept": "*/*", "Accept-Encoding": "identity", "Connection": "close"}
    return request(line.route, method, {**usual, **headers})


def read_head(line: Line, url: str) -> Reply:
    """The final answer's head; interim ones are passed over."""
    for _ in range(8):
        lines = line.head()
        match = _STATUS.fullmatch(lines[0])
        if match is None:
            raise Fault("it does not speak HTTP properly", phase=line.phase)
        reply = Reply(url, int(match[1]), match[2] or "", list(_fields(lines[1:])))
        if reply.status >= 200:
            return reply
    raise Fault("it gives one interim answer after the other", phase=line.phase)


def read_body(line: Line, reply: Reply, limit: int) -> bytes:
    """The body's beginning, up to `limit` bytes; the connection is of no use afterwards."""
    if reply.get("Transfer-Encoding").lower() == "chunked":
        return _chunked(line, limit)
    wanted = limit if reply.length is None else min(limit, reply.length)
    data = bytearray()
    while len(data) < wanted:
        piece = line.receive(wanted - len(data), "fell silent")
        if not piece:
            break
        data += piece
    return bytes(data)


def refusal(reply: Reply) -> Fault:
    """What an answer that is no success means for another try."""
    retryable = reply.status >= 500 or reply.status in (404, 407, 408, 409, 421, 423, 425, 429)
    remedy = ""
    if reply.status in (401, 403):
        remedy = "check that the job's token is valid for this path and has not expired"
    elif reply.status in (404, 410):
        remedy = "check that the object exists under this URL"
    elif reply.status in (413, 507):
        remedy = "there is no room at the destination; choose another, or make room"
    return Fault(
        reply.words(),
        retryable=retryable,
        after=reply.after,
        remedy=remedy,
        phase="first byte",
        absent=reply.status in (404, 410),
        strain=reply.status in (429, 503),
    )


def _fields(lines: Iterable[str]) -> Iterable[tuple[str, str]]:
    for number, text in enumerate(lines):
        if number >= _FIELDS:
            raise Fault("its answer has too many headers")
        name, colon, value = text.partition(":")
        name = name.rstrip(" \t")
        if colon and _NAME.fullmatch(name):  # what is no header is passed over, as others do
            yield name.lower(), value.strip(" \t")


def _chunked(line: Line, limit: int) -> bytes:
    data, raw = bytearray(), bytearray()
    while len(data) < limit:
        while b"\n" not in raw:
            piece = line.receive(1 << 14, "fell silent")
            if not piece or len(raw) > 256:
                return bytes(data)
            raw += piece
        size_line, _, rest = bytes(raw).partition(b"\n")
        digits = size_line.partition(b";")[0].strip()
        if not re.fullmatch(rb"[0-9a-fA-F]{1,15}", digits):
            raise Fault("it does not speak HTTP properly", phase=line.phase)
        size, raw = int(digits, 16), bytearray(rest)
        if size == 0:
            break
        while len(raw) < size + 2 and len(data) + len(raw) < limit + 2:
            piece = line.receive(1 << 14, "fell silent")
            if not piece:
                break
            raw += piece
        data += raw[: min(size, limit - len(data))]
        if len(raw) < size + 2:
            break
        del raw[: size + 2]
    return bytes(data)


def _message(body: bytes) -> str:
    text = body[:4096].decode("utf-8", "replace")
    if text.startswith("{"):
        import json

        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            return ""
        said = (data.get("msg") or data.get("error")) if isinstance(data, dict) else None
        text = said if isinstance(said, str) else ""
    return scrubbed(text, 120)


def failed(error: Exception, phase: str = "first byte") -> Fault:
    """What a connection's trouble is called."""
    words = getattr(error, "strerror", None) or type(error).__name__
    return Fault(f"the connection failed: {scrubbed(words, 80)}", phase=phase)
