"""Checksums: sha256, md5, adler32 and crc32c, fed piece by piece, and as HTTP headers."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import re
import socket
import zlib
from base64 import b64encode
from binascii import a2b_base64

from headway.node.errors import Stopped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Protocol

    Piece = bytes | bytearray | memoryview

    class Hasher(Protocol):
        def update(self, piece: Piece, /) -> object: ...
        def hexdigest(self) -> str: ...


_CHUNK = 1 << 20
_BYTES = {"sha256": 32, "md5": 16, "adler32": 4, "crc32c": 4}
_WORDS = {"sha-256": "sha256", "md5": "md5", "adler32": "adler32", "crc32c": "crc32c"}
_PART = re.compile(r"([A-Za-z0-9-]{1,20})\s*=\s*:?([A-Za-z0-9+/_-]{1,128}={0,2}):?")


def said_digests(header: Callable[[str], str]) -> dict[str, str]:
    """Name to hex of every digest of the whole object that an answer's headers hold."""
    told: dict[str, str] = {}
    for text in (header("Repr-Digest"), header("Digest")):
        for match in _PART.finditer(text[:4096]):
            kind = _WORDS.get(match[1].lower())
            digits = _hex(match[2], _BYTES[kind]) if kind else None
            if kind and digits:
                told.setdefault(kind, digits)
    return told


def as_header(digests: Mapping[str, str]) -> dict[str, str]:
    """What a server needs to refuse bytes that it did not receive as they were sent."""
    sha, md5 = (b64encode(bytes.fromhex(digests[kind])).decode() for kind in ("sha256", "md5"))
    return {"Content-MD5": md5, "Digest": f"sha-256={sha}", "Repr-Digest": f"sha-256=:{sha}:"}


def file_digests(path: str, should_stop: Callable[[], bool] = lambda: False) -> dict[str, str]:
    """sha-256, md5 and adler32 of a file in one pass, as hex: what servers may be able to tell."""
    hashers = {kind: _hasher(kind) for kind in ("sha256", "md5", "adler32")}
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(_CHUNK):
            if should_stop():
                raise Stopped("the transfer was stopped")
            for each in hashers.values():
                each.update(piece)
    return {kind: each.hexdigest() for kind, each in hashers.items()}


def _hex(text: str, length: int) -> str | None:
    """Hexadecimal or base64, whichever has the right length; servers use both."""
    if re.fullmatch(rf"[0-9A-Fa-f]{{{2 * length}}}", text):
        return text.lower()
    try:
        data = a2b_base64(text.replace("-", "+").replace("_", "/"))
    except ValueError:
        return None
    return data.hex() if len(data) == length else None


class Checksum:
    """A declared checksum, "name:hex", and the running value of what has arrived."""

    def __init__(self, declared: str) -> None:
        self.name, _, digits = declared.lower().partition(":")
        self.expected = digits
        self.restart()

    def restart(self) -> None:
        self._hasher = _hasher(self.name)
        self.feed = self._hasher.update  #: Takes in the next bytes.

    def fault(self) -> str | None:
        """None when the value is the declared one, else what is wrong."""
        value = self._hasher.hexdigest()
        if value == self.expected:
            return None
        return f"{self.name} is {_short(value)}, not {_short(self.expected)}"


def prove(
    path: str,
    *,
    size: int | None,
    checksum: str | None,
    should_stop: Callable[[], bool] = lambda: False,
) -> str | None:
    """None when the file is what was declared, else what is wrong with it."""
    try:
        have = os.path.getsize(path)
        if not os.path.isfile(path):
            return "it is not a file"
        if size is not None and have != size:
            return f"it has {have} bytes, not {size}"
        if checksum is None:
            return None
        running = Checksum(checksum)
        with open(path, "rb") as file:
            while piece := file.read(_CHUNK):
                if should_stop():
                    raise Stopped("the check was stopped")
                running.feed(piece)
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    return running.fault()


def best_digest(told: dict[str, str], size: int) -> str | None:
    """Of the digests that a server tells, the one that says most and is computed fast enough."""
    for name in ("sha256", "md5", "crc32c", "adler32"):
        if name not in told:
            continue
        if name == "crc32c" and size > 16 * _CHUNK and _crc32c().slow:
            continue
        return f"{name}:{told[name]}"
    return None


def _short(digits: str) -> str:
    return digits if len(digits) <= 16 else f"{digits[:12]}…"


def _hasher(kind: str) -> Hasher:
    if kind in ("sha256", "md5"):
        return hashlib.new(kind, usedforsecurity=False)
    if kind == "adler32":
        return _Continued(zlib.adler32, 1)
    if kind == "crc32c":
        return _crc32c()
    raise ValueError(f"unknown checksum {kind!r}")


class _Continued:
    """A checksum of 32 bits, by a function that carries its value on from piece to piece."""

    slow = False

    def __init__(self, extend: Callable[[Piece, int], int], value: int = 0) -> None:
        self._extend, self._value = extend, value

    def update(self, piece: Piece) -> None:
        self._value = self._extend(piece, self._value)

    def hexdigest(self) -> str:
        return f"{self._value:08x}"


def _crc32c() -> _KernelCrc32c | _Continued:
    """The fastest that this node has and that gets a known value right."""
    for make in (_KernelCrc32c, _crc32c_library, _google_crc32c):
        # not Linux, a container that does not allow it, a library of any kind
        with contextlib.suppress(Exception):
            trial = make()
            trial.update(memoryview(bytearray(b"123456789")))
            if trial.hexdigest() == "e3069283":
                return make()
    return _PlainCrc32c()


class _KernelCrc32c:
    """The kernel's crc32c, where it lets a process use it: about a hundred times faster."""

    slow = False

    def __init__(self) -> None:
        with socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET) as algorithm:
            algorithm.bind(("hash", "crc32c"))
            self._operation, _ = algorithm.accept()

    def update(self, piece: Piece) -> None:
        view = memoryview(piece)
        while view:
            sent = self._operation.send(view, socket.MSG_MORE)
            view = view[sent:]

    def hexdigest(self) -> str:
        self._operation.send(b"")
        value = int.from_bytes(self._operation.recv(4), "little")
        self._operation.close()
        return f"{value:08x}"


def _crc32c_library() -> _Continued:
    return _Continued(importlib.import_module("crc32c").crc32c)


def _google_crc32c() -> _Continued:
    library = importlib.import_module("google_crc32c")
    if library.implementation != "c":
        raise ImportError("it is the slow one")
    return _Continued(lambda piece, value: library.extend(value, bytes(piece)))


class _PlainCrc32c(_Continued):
    """The same in plain Python: right, but only a few megabytes a second."""

    slow = True
    _table: tuple[int, ...] = ()

    def __init__(self) -> None:
        super().__init__(self._plain)
        if not _PlainCrc32c._table:
            _PlainCrc32c._table = tuple(_table())

    def _plain(self, piece: Piece, value: int) -> int:
        table, value = self._table, value ^ 0xFFFFFFFF
        for byte in memoryview(piece):
            value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
        return value ^ 0xFFFFFFFF


def _table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table
