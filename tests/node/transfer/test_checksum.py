"""Checksums, against other implementations of them."""

from __future__ import annotations

import hashlib
import os
import socket
import sys
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


LIBRARIES = {
    "crc32c": "def crc32c(data, value=0): return crc(data, value)",
    "google_crc32c": (
        "implementation = 'c'\n"
        "def extend(value, data):\n"
        "    assert isinstance(data, bytes)  # it takes nothing that can be written to\n"
        "    return crc(data, value)"
    ),
}
ITS_CRC = """
def crc(data, value):
    value ^= 0xFFFFFFFF
    for byte in bytes(data):
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF
"""


@pytest.mark.parametrize(
    ("name", "text", "used"),
    [
        ("crc32c", LIBRARIES["crc32c"], True),
        ("google_crc32c", LIBRARIES["google_crc32c"], True),
        ("google_crc32c", LIBRARIES["google_crc32c"].replace("'c'", "'python'"), False),
        ("crc32c", "def crc32c(data, value=0): return 0xE3069283 + len(data)", False),
        ("crc32c", "def crc32c(data): return crc(data, 0)", False),
        ("crc32c", "raise OSError('built for another machine')", False),
        ("crc32c", "", False),
    ],
)
def test_a_library_takes_the_kernels_place_if_it_is_right(
    name: str, text: str, used: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(socket, "AF_ALG", raising=False)
    for each in LIBRARIES:
        monkeypatch.delitem(sys.modules, each, raising=False)
        (tmp_path / f"{each}.py").write_text("")  # none that this Python has
    (tmp_path / f"{name}.py").write_text(ITS_CRC + text)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        assert isinstance(checksum._crc32c(), checksum._PlainCrc32c) is not used
        best = best_digest({"crc32c": "2", "adler32": "1"}, 1 << 40)
        assert best == ("crc32c:2" if used else "adler32:1")
        plain, running = checksum._PlainCrc32c(), checksum._crc32c()
        for piece in (DATA[:10], b"", memoryview(bytearray(DATA[10:3000]))):
            running.update(piece)
            plain.update(piece)
        assert running.hexdigest() == plain.hexdigest()
    finally:
        for each in LIBRARIES:
            sys.modules.pop(each, None)
