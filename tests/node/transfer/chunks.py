"""The chunk digests of a content of the lab, in the shape in which the engine reads a manifest."""

from __future__ import annotations

import hashlib

from tests.lab import Content


class Chunks:
    """As much of a manifest as proves bytes."""

    algorithm = "sha256"

    def __init__(self, content: Content, chunk_size: int) -> None:
        self.size, self.chunk_size = content.size, chunk_size
        self.digests = [
            hashlib.sha256(content.read(offset, chunk_size)).digest()
            for offset in range(0, content.size, chunk_size)
        ]
