"""Heads of HTTP/1.1 messages: requests to write, answers to read, dates and redirects.

Pure: nothing here touches the network. Servers are read as curl reads them: lines may end without
a carriage return, and a folded line belongs to the field before it. Whatever could be understood in
two ways is refused.
"""

from __future__ import annotations

import re
import time
from base64 import b64encode
from urllib.parse import urljoin

from headway.node import VERSION
from headway.node.errors import AccessDeniedError, NotFoundError, TransferError
from headway.node.transfer.source import Fault
from headway.node.transfer.urls import ascii_target, scrubbed, split

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from headway.node.transfer.urls import Route

    Fields = list[tuple[str, str]]

MAX_HEAD = 64 << 10  # bytes of a head, or of trailers
MAX_FIELDS = 256
REDIRECTS = (301, 302, 303, 307, 308)
MOST_REDIRECTS = 10  # that are followed; one more is refused
HEAD_END = re.compile(rb"\r?\n\r?\n")
_MAX_LENGTH = 1 << 62
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: ([^\r\n]*))?\Z")
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_LINE_END = re.compile(rb"\r?\n")


# -- requests


def request_head(route: Route, method: str, headers: Mapping[str, str]) -> bytes:
    """The head of a request; a token among the headers takes precedence over a password."""
    through = None if route.tls else route.proxy  # a tunnel's proxy does not see the request
    fields = {
        "Host": route.host_header,
        "User-Agent": f"headway/{VERSION}",
        **_basic("Authorization", route.userinfo),
        **(_basic("Proxy-Authorization", through.userinfo) if through else {}),
        **headers,
    }
    target = ascii_target(route.absolute if through else route.target)
    return _head(f"{method} {target} HTTP/1.1", fields)


def tunnel_head(route: Route) -> bytes:
    """The head that asks a proxy for a connection to the route's host."""
    place = f"{route.bracketed}:{route.port}"
    userinfo = route.proxy.userinfo if route.proxy else None
    fields = {"Host": place, **_basic("Proxy-Authorization", userinfo)}
    return _head(f"CONNECT {place} HTTP/1.1", fields)


def _basic(field: str, userinfo: str | None) -> dict[str, str]:
    if userinfo is None:
        return {}
    return {field: f"Basic {b64encode(userinfo.encode()).decode('ascii')}"}


def _head(first: str, fields: Mapping[str, str]) -> bytes:
    lines = [first, *(f"{name}: {value}" for name, value in fields.items())]
    if any(mark in line for line in lines for mark in "\r\n\0"):
        raise Fault("the request would hold a line break", settled=True)
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")


# -- answers


class ResponseHead:
    """The status line and the fields of an answer."""

    def __init__(self, status: int, reason: str, fields: Fields, *, keeps: bool = True) -> None:
        self.status, self.reason = status, reason
        self.fields = fields  # names in lower case
        options = self.get("Connection").lower()
        # whether the connection stays open; of HTTP/1.0 only when the server says so
        self.keeps = "close" not in options if keeps else "keep-alive" in options
        self.body = b""  # its beginning, where it was read for its words

    def get(self, name: str) -> str:
        """A field's value; several different ones are joined, as HTTP allows; "": not there."""
        wanted = name.lower()
        return ", ".join(dict.fromkeys(value for key, value in self.fields if key == wanted))

    @property
    def length(self) -> int | None:
        """Content-Length, if it is a number and the same wherever it is said."""
        return number(self.get("Content-Length"))

    @property
    def after(self) -> float:
        """Seconds that the server asks to wait."""
        return retry_after(self.get("Retry-After"), self.get("Date"))

    def words(self) -> str:
        """The status line, with what the body says if it is plain text or JSON."""
        said = ""
        if self.body[:1] == b"{" or self.get("Content-Type").lower().startswith("text/plain"):
            said = _message(self.body)
        line = f"HTTP {self.status} {scrubbed(self.reason, 60)}".strip()
        return f"{line} ({said})" if said else line


def meaning(status: int) -> type[TransferError]:
    """The error that the refusal of a request stands for."""
    if status in (401, 403):
        return AccessDeniedError
    return NotFoundError if status in (404, 410) else TransferError


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


def parse_head(text: bytes) -> ResponseHead:
    """Read an answer's head, without the empty line that ends it; Fault: it is not HTTP/1."""
    first, _, rest = text.partition(b"\n")
    match = _STATUS.match(first[:-1] if first.endswith(b"\r") else first)
    if match is None:
        raise Fault("it does not speak HTTP properly (status line)")
    reason = scrubbed((match[3] or b"").decode("latin-1"), 60)
    return ResponseHead(int(match[2]), reason, parse_fields(rest), keeps=match[1] == b"1")


def parse_fields(text: bytes) -> Fields:
    """The fields of a head or of trailers, names in lower case."""
    fields: list[tuple[str, list[bytes]]] = []
    for line in _LINE_END.split(text) if text else []:
        if b"\r" in line or b"\0" in line:
            raise Fault("it does not speak HTTP properly (a field of the head)")
        if line[:1] in (b" ", b"\t") and fields:
            fields[-1][1].append(line.strip(b" \t"))
            continue
        # Not by one pattern: with blanks on both sides of a value it takes the square of a line.
        name, colon, value = line.partition(b":")
        name = name.rstrip(b" \t")
        if not colon or not _NAME.match(name):
            raise Fault("it does not speak HTTP properly (a field of the head)")
        if len(fields) >= MAX_FIELDS:
            raise Fault("it does not speak HTTP properly (too many fields)")
        fields.append((name.decode("ascii").lower(), [value.strip(b" \t")]))
    return [(name, b" ".join(filter(None, parts)).decode("latin-1")) for name, parts in fields]


def number(text: str) -> int | None:
    """A number of bytes as HTTP writes it; None when it is none."""
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        return None
    value = int(text)
    return value if value < _MAX_LENGTH else None


# -- dates, which are read by the server's own clock: a node's may be hours off


def clock(date: str) -> float:
    """The time by an answer's Date, else by the node's clock."""
    told = _timestamp(date) if date else None
    return time.time() if told is None else told


def retry_after(text: str, date: str = "") -> float:
    """The seconds that a server asks to wait, whether it names them or a date; 0: neither."""
    text = text.strip()
    seconds = number(text)
    if seconds is not None:
        return float(seconds)
    until = _timestamp(text) if text else None
    return 0.0 if until is None else max(0.0, until - clock(date))


def _timestamp(text: str) -> float | None:
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, IndexError, OverflowError):
        return None


# -- redirects


class Redirects:
    """The URLs that one request is led through; `url` is the one to ask now."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._seen = {url}

    def follow(self, location: str) -> str:
        """Go where a Location leads.

        A Fault where it leads nowhere, away from the network or from TLS, back to a URL of this
        chain, or where the chain is too long.
        """
        target = followed(self.url, location)
        if target in self._seen:
            raise Fault(
                "it redirects in a loop",
                phase="first byte",
                lasting=True,
                remedy="the server must be repaired; use another source until then",
            )
        if len(self._seen) > MOST_REDIRECTS:
            raise Fault(f"more than {MOST_REDIRECTS} redirects", phase="first byte", lasting=True)
        self._seen.add(target)
        self.url = target
        return target


def followed(url: str, location: str) -> str:
    """Where a redirect leads; Fault when that is away from the network or from TLS."""
    target = joined(url, location)
    scheme = split(target).scheme
    if scheme == "file":
        words = "it redirects to a file of this node, which is refused"
        raise Fault(words, retryable=False, phase="first byte")
    if split(url).scheme == "https" and scheme != "https":
        words = "it redirects from https to http, which is refused"
        raise Fault(words, retryable=False, phase="first byte")
    return target


def joined(url: str, location: str) -> str:
    """The URL that a Location means, seen from another; Fault when it is none."""
    try:
        if not location:
            raise ValueError("no address")
        target = urljoin(url, location)
        split(target)
    except ValueError as error:
        words = f"it redirects to nowhere: {error}"
        raise Fault(words, retryable=False, phase="first byte") from None
    return target
