"""Opening logs: whatever compressed them, and however they were damaged."""

from __future__ import annotations

import bz2
import gzip
import lzma
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.errors import EventLogError
from headway.events import read_log
from headway.events.opening import LogReader

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LOG = (Path(__file__).parent / "logs" / "periodic_release_unbounded.log").read_bytes()
LONG = LOG * 20
PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "gzip": gzip.compress,
    "xz": lzma.compress,
    "bzip2": bz2.compress,
    "zstd": zstd.compress,
}
every = pytest.mark.parametrize("kind", PACK)
packed = pytest.mark.parametrize("kind", [kind for kind in PACK if kind])
quick = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def content(path: Path, size: int = 1000) -> tuple[bytes, str]:
    with LogReader(path) as file:
        data = b""
        while block := file.read(size):
            assert len(block) <= size
            data += block
        assert file.read(size) == b""
        assert file.offset == len(data)
        if file.damage:
            assert file.damage.offset == len(data)
        return data, file.damage.why if file.damage else ""


@every
@pytest.mark.parametrize("size", [1, 1000, 1 << 20])
def test_by_content_whatever_the_name(kind: str, size: int, tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_bytes(PACK[kind](LOG[:20_000]))
    assert content(path, size) == (LOG[:20_000], "")
    with LogReader(path) as file:
        assert file.compression == kind
        assert file.read(10)
        file.rewind()
        assert file.read(3) == LOG[:3]


@every
def test_read_log(kind: str, logs: Path, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(PACK[kind](LOG))
    plain = read_log(logs / "periodic_release_unbounded.log")
    assert read_log(path) == plain


@packed
def test_several_streams_and_padding(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    pack = PACK[kind]
    path.write_bytes(pack(b"one ") + pack(b"") + pack(b"two ") + b"\0" * 512 + pack(b"three"))
    assert content(path) == (b"one two three", "")
    path.write_bytes(pack(b"one") + b"\0" * 100_000)
    assert content(path) == (b"one", "")
    path.write_bytes(pack(b"one") + b"something else")
    assert content(path) == (b"one", f"the {kind} data are followed by something else")


def test_empty(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"")
    assert content(path) == (b"", "")


@packed
def test_truncated(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    data = PACK[kind](LONG)
    for cut in (12, 13, len(data) // 3, len(data) // 2, len(data) - 9, len(data) - 1):
        path.write_bytes(data[:cut])
        found, why = content(path, 1 << 20)
        assert LONG.startswith(found)
        assert why == f"the {kind} data end in the middle"
        # As much as its own decompressor makes of it.
        if kind == "gzip":
            assert found == zlib.decompressobj(wbits=31).decompress(data[:cut])
    log = read_log(path)
    assert len(log.events) > 1000
    assert log.skipped[-1].why == f"the {kind} data end in the middle"


def test_everything_before_the_damage(tmp_path: Path) -> None:
    path = tmp_path / "log"
    data = bytearray(gzip.compress(LOG))
    data[len(data) * 3 // 4] ^= 0xFF
    path.write_bytes(data)
    expected = b""
    decompressor = zlib.decompressobj(wbits=31)
    with pytest.raises(zlib.error):
        for at in range(len(data)):
            expected += decompressor.decompress(data[at : at + 1])
    for size in (100, 1 << 20):
        found, why = content(path, size)
        # The last byte may be lost together with the code that zlib fails at.
        assert expected.startswith(found)
        assert len(found) >= len(expected) - 1
        assert why.startswith("the gzip data are damaged: Error -3")
    assert len(found) > len(LOG) // 2


@given(st.data())
@quick
def test_any_damage(tmp_path: Path, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["gzip", "xz", "bzip2", "zstd"]))
    raw = bytearray(PACK[kind](LOG[:9000]))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "any"
    path.write_bytes(bytes(raw[: data.draw(st.integers(0, len(raw)))]))
    found, _ = content(path, data.draw(st.sampled_from([1, 777, 1 << 16])))
    log = read_log(path)
    assert log.offset <= len(found)


@packed
def test_a_bomb_takes_no_memory(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "bomb"
    path.write_bytes(PACK[kind](b"\0" * (64 << 20)))
    tracemalloc.start()
    with LogReader(path) as file:
        while file.read(1 << 16):
            pass
        assert file.offset == 64 << 20
        assert not file.damage
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 << 20


def test_a_window_that_is_too_large(tmp_path: Path) -> None:
    path = tmp_path / "log"
    raw = bytearray(lzma.compress(b"x" * 100))
    # The block's header names the size of the dictionary in one byte; a checksum ends the header.
    size_at = raw.index(b"\x21\x01") + 2
    end = 12 + (raw[12] + 1) * 4
    raw[size_at] = 36  # 1 GB
    raw[end - 4 : end] = zlib.crc32(raw[12 : end - 4]).to_bytes(4, "little")
    path.write_bytes(raw)
    assert content(path) == (b"", "the xz data are damaged: Memory usage limit exceeded")
    parameters = {int(zstd.CompressionParameter.window_log): 28}
    compressor = zstd.ZstdCompressor(options=parameters)
    path.write_bytes(compressor.compress(b"x" * 100) + compressor.flush())
    found, why = content(path)
    assert found == b""
    assert "too much memory" in why


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        LogReader(tmp_path / "none")
    with pytest.raises(EventLogError, match="cannot be read: Is a directory"):
        read_log(tmp_path)
