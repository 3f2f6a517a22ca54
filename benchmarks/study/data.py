"""The data set in small, and what a job that read it right must have made of it."""

from __future__ import annotations

import hashlib
import io
import random
import tarfile
from pathlib import Path

from study.world import EPOCHS

from headway.node.transfer.manifest import digest_of, make_manifest

CLASSES, PER_CLASS = 20, 50
CHUNK = 1 << 16
WEIGHTS = random.Random("weights").randbytes(100_000)


class DataSet:
    """A tar file of about `size` bytes, class by class, and its manifest."""

    def __init__(self, path: Path, size: int) -> None:
        self.path, self._sum = path, 0
        dice = random.Random("data set")
        each = size // (CLASSES * PER_CLASS) // 512 * 512 - 512  # a member has a header of 512
        with tarfile.open(path, "w") as tar:
            for number in range(CLASSES * PER_CLASS):
                member = tarfile.TarInfo(f"n{number // PER_CLASS:08}/{number}.jpeg")
                data = dice.randbytes(each)
                member.size = each
                tar.addfile(member, io.BytesIO(data))
                for epoch in range(EPOCHS):
                    digest = hashlib.sha256(f"{epoch} {member.name} ".encode() + data).digest()
                    self._sum += int.from_bytes(digest, "big")
        self.size = path.stat().st_size
        self.manifest = make_manifest(str(path), chunk_size=CHUNK)
        self.pin = digest_of(self.manifest)

    @property
    def model(self) -> str:
        """The model of a job that read every sample once an epoch, and the right weights."""
        return hashlib.sha256(b"%064x" % (self._sum % (1 << 256)) + WEIGHTS).hexdigest()
