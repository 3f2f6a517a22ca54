"""The manifest of a content of the lab, with no more than proves its bytes."""

from __future__ import annotations

import hashlib

from tests.lab import Content

from headway.node.transfer.manifest import Digests, Manifest


def manifest_of(content: Content, chunk_size: int) -> Manifest:
    digests = b"".join(
        hashlib.sha256(content.read(offset, chunk_size)).digest()
        for offset in range(0, content.size, chunk_size)
    )
    return Manifest(content.size, chunk_size, "", Digests(memoryview(digests)), None)
