"""The store: which objects a server has, and how it answers for them when nothing is wrong."""

from __future__ import annotations

import base64
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote, urlsplit

from .answer import Answer, Request
from .content import Content, Held

MODIFIED = "Wed, 01 Jan 2025 00:00:00 GMT"
_NAMES = {"sha-256": "sha256", "md5": "md5", "crc32c": "crc32c", "adler32": "adler32"}


@dataclass(frozen=True)
class Digests:
    """How a server answers Want-Digest and Want-Repr-Digest."""

    algorithms: tuple[str, ...] = ("sha-256", "md5", "crc32c", "adler32")
    crc32c: Literal["hex", "base64"] = "base64"  # as XRootD gives it
    refuse: int | None = None  # a status for HEAD requests that want one: caches say 405
    of: Content | None = None  # the digest of other bytes than it serves


NO_DIGESTS = Digests(algorithms=())


@dataclass(frozen=True)
class Object:
    """Content with the headers that speak of it; None leaves a header away."""

    content: Content
    etag: str | None = "content"
    modified: str | None = MODIFIED

    @property
    def validator(self) -> str | None:
        return self.content.etag if self.etag == "content" else self.etag


class Store:
    """Objects by their path, and the puts of clients."""

    def __init__(
        self,
        objects: Mapping[str, Object | Content | bytes],
        digests: Digests = NO_DIGESTS,
        *,
        trailers: bool = False,
        age: int | None = None,
        half_objects: bool = False,
        moves: bool = False,
    ) -> None:
        self._objects: dict[str, Object] = {}
        self._lock = threading.Lock()
        self.digests, self.trailers, self.age = digests, trailers, age
        self.half_objects = half_objects  # a put that breaks off leaves what came under its name
        self.moves = moves  # MOVE and DELETE are understood
        for path, content in objects.items():
            self[path] = content

    def __setitem__(self, path: str, content: Object | Content | bytes) -> None:
        if isinstance(content, bytes):
            content = Held(content)
        with self._lock:
            self._objects["/" + path.lstrip("/")] = (
                content if isinstance(content, Object) else Object(content)
            )

    def __getitem__(self, path: str) -> Object:
        with self._lock:
            return self._objects["/" + path.lstrip("/")]

    def __contains__(self, path: str) -> bool:
        with self._lock:
            return "/" + path.lstrip("/") in self._objects

    def __delitem__(self, path: str) -> None:
        with self._lock:
            del self._objects["/" + path.lstrip("/")]

    def paths(self) -> list[str]:
        with self._lock:
            return sorted(self._objects)

    def answer(self, request: Request) -> Answer:
        """What a sound server says to GET, HEAD, MOVE and DELETE."""
        path = unquote(request.path)
        if request.method in ("MOVE", "DELETE") and self.moves:
            return self._change(path, request)
        if request.method not in ("GET", "HEAD"):
            return _words(405, b"not allowed\n")
        if path not in self:
            return _words(404, b"no such object\n")
        wants = request.headers.get("want-digest") or request.headers.get("want-repr-digest")
        if wants and self.digests.refuse and request.method == "HEAD":
            return _words(self.digests.refuse, b"")
        return self._give(self[path], request)

    def before_put(self, request: Request) -> Answer | None:
        """The refusal of a put whose condition does not hold."""
        taken = unquote(request.path) in self
        if request.headers.get("if-none-match") == "*" and taken:
            return _words(412, b"it exists\n")
        return None

    def put(self, request: Request, data: bytes, whole: bool) -> Answer:
        """Take in what has come; `whole` is false when the client went away before the end."""
        path = unquote(request.path)
        existed = path in self
        if whole or self.half_objects:
            self[path] = data
        return _words(200 if existed else 201, b"")

    def _change(self, path: str, request: Request) -> Answer:
        if path not in self:
            return _words(404, b"no such object\n")
        if request.method == "MOVE":
            to = unquote(urlsplit(request.headers.get("destination", "")).path)
            if not to:
                return _words(400, b"no Destination\n")
            if request.headers.get("overwrite", "T") == "F" and to in self:
                return _words(412, b"it exists\n")
            self[to] = self[path]
        del self[path]
        return _words(204, b"")

    def _give(self, thing: Object, request: Request) -> Answer:
        content, answer = thing.content, Answer(200)
        answer.set("Accept-Ranges", "bytes")
        answer.set("Content-Type", "application/octet-stream")
        answer.set("ETag", thing.validator)
        answer.set("Last-Modified", thing.modified)
        if self.age is not None:
            answer.set("Age", str(self.age))
        self._say_digests(content, request, answer)
        if "if-match" in request.headers and request.headers["if-match"] != thing.validator:
            return _words(412, b"another version\n")
        answer.body(content, 0, content.size)
        ranged = request.range if request.method == "GET" else None
        if ranged is not None and request.headers.get("if-range") in (
            None,
            thing.validator,
            thing.modified,
        ):
            part = parse_range(ranged, content.size)
            if part == "unsatisfiable":
                refusal = _words(416, b"")
                refusal.set("Content-Range", f"bytes */{content.size}")
                return refusal
            if part is not None:
                answer.body(content, *part)
                answer.status = 206
                answer.say_range()
        if self.trailers and request.asks("te", "trailers") and request.method == "GET":
            answer.length = None
            answer.trailers["X-Transfer-Status"] = "200: OK"
        return answer

    def _say_digests(self, content: Content, request: Request, answer: Answer) -> None:
        content = self.digests.of or content
        for header, name in (("want-digest", "Digest"), ("want-repr-digest", "Repr-Digest")):
            wanted = preferred(request.headers.get(header, ""))
            chosen = [one for one in wanted if one in self.digests.algorithms]
            if chosen:
                digits = bytes.fromhex(content.digest(_NAMES[chosen[0]]))
                form = self._form(chosen[0], digits, structured=name == "Repr-Digest")
                answer.set(name, f"{chosen[0]}={form}")

    def _form(self, algorithm: str, digits: bytes, *, structured: bool) -> str:
        if structured:
            return f":{base64.b64encode(digits).decode()}:"
        if algorithm == "adler32" or (algorithm == "crc32c" and self.digests.crc32c == "hex"):
            return digits.hex()
        return base64.b64encode(digits).decode()


def preferred(wanted: str) -> list[str]:
    """The algorithms that a Want-Digest ("a;q=0.5, b") or Want-Repr-Digest ("a=5, b=1") names."""
    weights: dict[str, float] = {}
    for item in wanted.lower().split(","):
        name, _, weight = item.replace(";q=", "=").strip().partition("=")
        try:
            weights[name.strip()] = float(weight) if weight else 1.0
        except ValueError:
            continue
    return sorted((name for name in weights if weights[name] > 0), key=lambda name: -weights[name])


def parse_range(text: str, size: int) -> tuple[int, int] | Literal["unsatisfiable"] | None:
    """Begin and end of a single range; None when it is to be ignored, as several at once are."""
    unit, _, spec = text.partition("=")
    first, dash, last = spec.strip().partition("-")
    if unit.strip() != "bytes" or not dash or "," in spec:
        return None
    try:
        if not first:
            return (max(0, size - int(last)), size) if int(last) and size else "unsatisfiable"
        begin, end = int(first), min(int(last) + 1, size) if last else size
    except ValueError:
        return None
    if begin >= size:
        return "unsatisfiable"
    return (begin, end) if begin < end else None


def _words(status: int, text: bytes) -> Answer:
    answer = Answer(status)
    answer.say(status, text)
    return answer
