"""Checksums, against other implementations of them."""

from __future__ import annotations

import hashlib
import os
import zlib
from pathlib import Path

import pytest

from headway.node.transfer import checksum, prove
from headway.node.transfer.checksum import best_digest

DATA = os.urandom(300_000)


@pytest.mark.parametrize("data", [b"", b"123456789", DATA[:100_001]])
def test_checksums(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(data)
    plain = checksum._PlainCrc32c()
    plain.update(data)
    crc = plain.hexdigest()
    if data == b"123456789":
        assert crc == "e3069283"
    for declared in (
        f"sha256:{hashlib.sha256(data).hexdigest()}",
        f"md5:{hashlib.md5(data).hexdigest()}",
        f"adler32:{zlib.adler32(data):08x}",
        f"crc32c:{crc}",
    ):
        assert prove(str(tmp_path / "f"), size=len(data), checksum=declared) is None
        wrong = declared[:-1] + ("0" if declared[-1] != "0" else "1")
        assert prove(str(tmp_path / "f"), size=None, checksum=wrong)


def test_the_kernels_crc32c_agrees() -> None:
    try:
        kernel = checksum._KernelCrc32c()
    except (OSError, AttributeError) as error:
        pytest.skip(f"the kernel does not offer crc32c here: {error}")
    plain = checksum._PlainCrc32c()
    for piece in (DATA[:10], b"", DATA[10:300_000]):
        kernel.update(piece)
        plain.update(piece)
    assert kernel.hexdigest() == plain.hexdigest()


def test_proving_what_is_not_there(tmp_path: Path) -> None:
    assert prove(str(tmp_path / "none"), size=1, checksum=None)
    assert prove(str(tmp_path), size=None, checksum=None)


def test_the_best_digest_is_one_that_this_node_computes_fast() -> None:
    told = {"adler32": "1", "crc32c": "2", "md5": "3", "sha256": "4"}
    assert best_digest(told, 1 << 40) == "sha256:4"
    assert best_digest({}, 5) is None
    assert best_digest({"crc32c": "2"}, 1000) == "crc32c:2"
    try:
        checksum._KernelCrc32c()
    except (OSError, AttributeError):
        assert best_digest({"crc32c": "2", "adler32": "1"}, 1 << 40) == "adler32:1"
