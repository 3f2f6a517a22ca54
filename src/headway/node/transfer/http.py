"""HTTP/1.1 over a connection: requests, answers, and bodies however the server frames them.

Everything that a server can get wrong ends in a Fault with the phase in which it happened; what a
server can send besides the body is bounded.
"""

from __future__ import annotations

import contextlib
import re
import time

from headway.node.transfer.connection import BUFFER, MOMENT, Connection, Quiet, proxy_refusal
from headway.node.transfer.heads import (
    HEAD_END,
    MAX_HEAD,
    ResponseHead,
    meaning,
    parse_fields,
    request_head,
)
from headway.node.transfer.source import Fault
from headway.node.transfer.urls import Route

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from headway.node.transfer.connection import Stop
    from headway.node.transfer.heads import Fields

ANSWER = 30.0  # seconds for a whole small exchange
EARLY = 4.0  # seconds in which a request that was sent early must be answered
ONCE = {"Accept": "*/*", "Accept-Encoding": "identity", "Connection": "close"}
MAX_INTERIM = 8  # 1xx answers before the real one
_SMALL = 1 << 16
_DRAIN = 5.0  # seconds that the rest of a body, or its trailers, may take
_LINE = 200  # bytes of the line before a chunk
_FIRST = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]{0,9}(?:;[^\r\n]{0,150})?\r?\n")
_NEXT = re.compile(rb"\r?\n([0-9A-Fa-f]{1,15})[ \t]{0,9}(?:;[^\r\n]{0,150})?\r?\n")
_END = re.compile(rb"\r?\n")
_RUN = 16  # chunks that are looked at together at first
# refusals that may pass by themselves: an XCache under load says 404 to what it has
_PASSING = (404, 408, 409, 421, 423, 425, 429)
_REMEDIES = {
    **dict.fromkeys((401, 403), "check that the job's token is valid there and has not expired"),
    **dict.fromkeys((404, 410), "check that the object exists under this URL"),
    **dict.fromkeys((413, 507), "the destination is full: choose another one, or make room"),
}


class HttpConnection(Connection):
    """A connection that carries requests, one after the other or several at once."""

    usable = False  # open, and nothing of an earlier answer in the way
    _early_failed = False

    def __enter__(self) -> HttpConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.usable = False
        super().close()

    def retarget(self, url: str) -> None:
        """Another object of the same host is next."""
        self.route = Route(url)

    def ask(self, method: str, headers: Mapping[str, str]) -> Answer:
        """Send a request without a body, and read the answer's head."""
        self.request(method, headers)
        return self.answer(method)

    def request(self, method: str, headers: Mapping[str, str]) -> None:
        """Send the head of a request; the connection is opened first where it is not."""
        head = request_head(self.route, method, headers)
        if not self.is_open:
            self.connect()
        self.phase, self.usable = "first byte", False
        if self._early_failed:
            self.close()
            raise Fault("the connection failed", phase=self.phase)
        try:
            self.send(head)
        except Exception:
            self.close()
            raise

    def answer(self, method: str, silence: float | None = None) -> Answer:
        """Read the head of the next answer that is not an interim one.

        `silence`: seconds that the server may take; else those of the connection. A Fault where no
        proper answer came, or a proxy wants a password.
        """
        self.usable = False
        patience = self.silence if silence is None else silence
        try:
            answer = self._final_answer(method, patience, continues=False)
            assert answer is not None
        except Exception as error:
            self.phase = "first byte"
            failed = self._failed(error)
            self.close()
            raise failed from None
        self.phase = "body"
        return answer

    def ask_early(self, method: str, headers: Mapping[str, str]) -> bool:
        """Send another request while an answer is still being read; False: it cannot be done.

        Its own answer, by `answer_early`, is what comes next when that one has ended.
        """
        if self._pipe is None:
            return False
        try:
            self._pipe.sendall(request_head(self.route, method, headers))
        except (OSError, Fault):
            self._early_failed = True  # half of it may be on its way
            return False
        return True

    def answer_early(self, method: str) -> Answer:
        """The head of the answer to the oldest request that was sent early."""
        self.phase = "first byte"
        if self._early_failed:
            self.close()
            raise Fault("the connection failed", phase=self.phase)
        return self.answer(method, EARLY)

    def refusal_before_body(self, method: str, seconds: float) -> Answer | None:
        """What the server says in place of 100 Continue; None: it wants the body, or is silent."""
        since = time.monotonic()
        while self.at == self.end:
            try:
                if not self.fill():
                    break
            except Quiet:
                if time.monotonic() - since > seconds:
                    return None
                self.check()
        return self._final_answer(method, self.silence, continues=True)

    def _final_answer(self, method: str, silence: float, *, continues: bool) -> Answer | None:
        """The first answer that is not an interim one; `continues`: None for 100 Continue."""
        for _ in range(MAX_INTERIM + 1):
            head = self.head(silence)
            if head.status == 407:
                raise proxy_refusal(self.route, 407)
            if head.status >= 200:
                return Answer(self, head, method)
            if head.status == 100 and continues:
                return None
            if head.status == 101:
                break
        raise Fault("it does not speak HTTP properly (interim answers)", phase=self.phase)


class Answer(ResponseHead):
    """The head of an answer, and its body as far as it has been read."""

    def __init__(self, connection: HttpConnection, head: ResponseHead, method: str) -> None:
        super().__init__(head.status, head.reason, head.fields)
        self.keeps = head.keeps
        self.connection = connection
        self.trailers: Fields = []
        self.left: int | None = 0  # bytes to come; None: until the end, or chunk by chunk
        self.chunked = False
        self.done = False  # the body has come to its proper end
        self._in_chunk = 0
        self._chunk_line = b""  # the last one, with the line break before it
        self._in_trailer = False
        self._run = _RUN
        self._frame(method)

    @property
    def ends_anywhere(self) -> bool:
        """Whether nothing but the end of the connection tells where the body ends."""
        return self.left is None and not self.chunked

    def _frame(self, method: str) -> None:
        """Find out how the body ends."""
        coding = self.get("Transfer-Encoding").lower()
        if method == "HEAD" or self.status in (204, 304):
            self.left = 0
        elif coding:
            if coding != "chunked":
                raise Fault("it uses a transfer coding that was not requested")
            self.chunked, self.left = True, None
            if self.get("Content-Length"):
                self.keeps = False  # a server between may have counted in another way
        elif self.get("Content-Length"):
            self.left = self.length
            if self.left is None:
                raise Fault("it does not say properly how long its answer is")
        else:
            self.left, self.keeps = None, False
        changed = self.get("Content-Encoding").lower() not in ("", "identity")
        if changed and self.status in (200, 206) and method == "GET":
            raise Fault(
                "it changes the bytes by a content coding that was not requested",
                lasting=True,
                remedy="the server must send the object as it is; use another source until then",
            )
        if self.left == 0:
            self._end()

    def read_into(self, view: memoryview) -> int:
        """Receive into the buffer; 0 at the proper end of the body, Quiet when nothing comes."""
        if self.done:
            return 0
        if self.chunked:
            return self._chunks_into(view)
        want = view if self.left is None or self.left >= len(view) else view[: self.left]
        count = self.connection.receive(want)
        if self.left is not None:
            self.left -= count
            if count == 0:
                raise self._broken(f"it broke off {self.left} bytes before the end")
            if self.left == 0:
                self._end()
        elif count == 0:
            self._end()
        return count

    def read(self, limit: int) -> bytes:
        """The body's beginning, also in `body`; a Fault if it breaks off or falls silent before."""
        view, since = memoryview(bytearray(min(limit, _SMALL))), time.monotonic()
        got = bytearray()
        try:
            while len(got) < limit and not self.done:
                try:
                    got += view[: self.read_into(view[: limit - len(got)])]
                    since = time.monotonic()
                    self.connection.check()
                except Quiet:
                    self.connection.wait(since, self.connection.silence, "fell silent")
        except Fault as fault:
            fault.phase = fault.phase or "body"
            raise
        finally:
            self.body = bytes(got)
        return self.body

    def drain(self, limit: int = _SMALL) -> int:
        """Read the rest of a short body, or close the connection; returns how much that was."""
        view = memoryview(bytearray(_SMALL))
        thrown, moments = 0, 0
        with contextlib.suppress(Fault):
            while not self.done and thrown <= limit and (self.left or 0) <= limit:
                try:
                    thrown += self.read_into(view)
                except Quiet:
                    moments += 1
                    if moments * MOMENT > _DRAIN:
                        break
        if not self.done:
            self.connection.close()
        return thrown

    def _chunks_into(self, view: memoryview) -> int:
        """Take what the connection's buffer holds of the chunks; only if that is nothing, wait."""
        wire, got, room = self.connection, 0, len(view)
        while got < room:
            if not self._in_chunk:
                line = self._next_line()
                if line is None:
                    if got or self.done:
                        break
                    self._more()
                elif line == self._chunk_line:
                    got += self._alike(view[got:], line)
                else:
                    self._chunk_line = line
            elif wire.at < wire.end:
                count = min(self._in_chunk, wire.end - wire.at, room - got)
                view[got : got + count] = wire.view[wire.at : wire.at + count]
                wire.at += count
                got += count
                self._in_chunk -= count
            elif got:
                break
            elif self._in_chunk >= BUFFER:  # a large one goes straight to its place
                got = wire.receive(view[: min(self._in_chunk, room)])
                self._in_chunk -= got
                if not got:
                    raise self._broken("it broke off within a chunk of its answer")
                break
            else:
                self._more()
        return got

    def _next_line(self) -> bytes | None:
        """Read the line before a chunk, or the trailers; None: more bytes must come, or the end."""
        wire = self.connection
        if self._in_trailer:
            self._end_of_trailers()
            return None
        form = _NEXT if self._chunk_line else _FIRST
        match = form.match(wire.buffer, wire.at, min(wire.end, wire.at + _LINE))
        if match is None:
            breaks = wire.buffer.count(b"\n", wire.at, wire.end)
            if breaks >= (2 if self._chunk_line else 1) or wire.end - wire.at >= _LINE:
                raise self._broken("it does not speak HTTP properly (chunk size)")
            return None
        wire.at = match.end()
        self._in_chunk = int(match[1], 16)
        if self._in_chunk:
            return match[0]
        self._in_trailer = True
        self._end_of_trailers()
        return None

    def _end_of_trailers(self) -> None:
        wire = self.connection
        none = _END.match(wire.buffer, wire.at, wire.end)
        end = none or HEAD_END.search(wire.buffer, wire.at, wire.end)
        if (end.start() if end else wire.end) - wire.at > MAX_HEAD:
            raise self._broken("it does not speak HTTP properly (trailers)")
        if end is not None:
            text = bytes(wire.view[wire.at : end.start()])
            wire.at = end.end()
            try:
                self.trailers = parse_fields(text)
            except Fault as fault:
                raise self._broken(fault.words) from None
            self._end()

    def _alike(self, view: memoryview, line: bytes) -> int:
        """Take many chunks at once that have the same size, as small ones mostly do.

        The buffer holds the bytes of each chunk and then the line before the next one. For each
        byte of that line, count for how many chunks it is the same.
        """
        wire, size = self.connection, self._in_chunk
        step = size + len(line)
        count = min((wire.end - wire.at) // step, len(view) // size, self._run)
        if count < _RUN:
            return 0
        text = bytes(wire.view[wire.at : wire.at + count * step])
        for at in range(len(line)):
            same = text[size + at : count * step : step]
            count -= len(same.lstrip(line[at : at + 1]))
        self._run = 4 * self._run if count == self._run else max(_RUN, count)
        if size == 1:
            view[:count] = text[: count * step : step]
        else:
            pieces = [text[at : at + size] for at in range(0, count * step, step)]
            view[: count * size] = b"".join(pieces)
        wire.at += count * step
        return count * size

    def _more(self) -> None:
        if not self.connection.fill():
            raise self._broken("it broke off within a chunk of its answer")

    def _broken(self, words: str) -> Fault:
        self.connection.close()
        return Fault(words, phase="body")

    def _end(self) -> None:
        self.done = True
        if self.keeps:
            self.connection.usable = True
        else:
            self.connection.close()


def ask(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    should_stop: Stop = lambda: False,
    seconds: float = ANSWER,
    body_limit: int = _SMALL,
    public: bool = False,
) -> Answer:
    """Make one small request without a body, in so many seconds; redirects are not followed.

    Returns the answer, whatever its status; the beginning of its body, which may be shorter than
    it should be, is in `body`. A Fault: no proper answer came. `public`: the URL comes from a
    stranger, so no host of a private network is asked.
    """
    end = time.monotonic() + seconds
    length = {"Content-Length": "0"} if method == "PUT" else {}
    with HttpConnection(
        url, silence=seconds, deadline=end, should_stop=should_stop, public=public
    ) as connection:
        answer = connection.ask(method, {**ONCE, **length, **(headers or {})})
        with contextlib.suppress(Fault):  # the head is what matters
            answer.read(body_limit)
        return answer


def refusal(answer: ResponseHead, *, passing: tuple[int, ...] = ()) -> Fault:
    """What an answer that is no success means for another try; `passing`: more that may pass."""
    status = answer.status
    return Fault(
        answer.words(),
        retryable=status in (*_PASSING, *passing) or not 400 <= status < 500,
        after=answer.after,
        remedy=_REMEDIES.get(status, ""),
        phase="first byte",
        absent=status in (404, 410),
        strain=status in (429, 503),
        means=meaning(status),
    )
