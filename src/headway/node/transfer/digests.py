"""Digest headers: how servers tell the digest of an object, and how it is told to them."""

from __future__ import annotations

import hashlib
import re
import zlib
from base64 import b64encode
from binascii import a2b_base64

from headway.node.errors import Stopped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
    hashes = {"sha256": hashlib.sha256(), "md5": hashlib.md5(usedforsecurity=False)}
    adler = 1
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(_CHUNK):
            if should_stop():
                raise Stopped("the transfer was stopped")
            for each in hashes.values():
                each.update(piece)
            adler = zlib.adler32(piece, adler)
    told = {kind: each.hexdigest() for kind, each in hashes.items()}
    return {**told, "adler32": f"{adler:08x}"}


def _hex(text: str, length: int) -> str | None:
    """Hexadecimal or base64, whichever has the right length; servers use both."""
    if re.fullmatch(rf"[0-9A-Fa-f]{{{2 * length}}}", text):
        return text.lower()
    try:
        data = a2b_base64(text.replace("-", "+").replace("_", "/"))
    except ValueError:
        return None
    return data.hex() if len(data) == length else None
