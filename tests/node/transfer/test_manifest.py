"""Manifests: right, compact, and safe to read whoever wrote them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.errors import TransferError
from headway.node.errors import ManifestError
from headway.node.transfer.manifest import (
    MAX_CHUNKS,
    Manifest,
    chunk_size_for,
    digest_of,
    make_manifest,
    manifest_url,
    read_manifest,
    write_manifest,
)
from headway.node.transfer.tar import Builder, Member

from .made_tars import make_nested, make_tar, seen_by_tarfile

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def written(folder: Path, data: bytes, name: str = "object.tar") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def signed(head: dict[str, Any], sections: dict[str, bytes]) -> bytes:
    """A manifest by somebody who knows how: every digest in it is right."""
    told = [[name, len(data), hashlib.sha256(data).hexdigest()] for name, data in sections.items()]
    line = json.dumps({**head, "sections": told}).encode()
    first = f"headway-manifest 1 {hashlib.sha256(line).hexdigest()}\n".encode()
    return first + line + b"\n" + b"".join(sections.values())


def taken_apart(data: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    _, line, rest = data.split(b"\n", 2)
    head = json.loads(line)
    sections, at = {}, 0
    for name, length, _ in head.pop("sections"):
        sections[name] = rest[at : at + length]
        at += length
    return head, sections


@pytest.mark.parametrize("size", [0, 1, 64 * KIB, 64 * KIB + 1, 5 * MIB + 17, 9 * MIB])
def test_every_chunk_and_the_whole_have_their_digest(tmp_path: Path, size: int) -> None:
    content = random.Random(size).randbytes(size)
    seen: list[tuple[int, int]] = []
    path = written(tmp_path, content, "object.bin")
    data = make_manifest(str(path), lambda *told: seen.append(told), chunk_size=64 * KIB)
    manifest = read_manifest(data, pin=digest_of(data))
    assert (manifest.size, manifest.algorithm) == (size, "sha256")
    assert manifest.sha256 == hashlib.sha256(content).hexdigest()
    assert manifest.chunks == len(manifest.digests) == -(-size // (64 * KIB))
    end = 0
    for number in range(manifest.chunks):
        begin, end = end, min(size, end + manifest.chunk_size)
        assert manifest.digests[number] == hashlib.sha256(content[begin:end]).digest()
    assert end == size
    for beyond in (manifest.chunks, -1):
        with pytest.raises(IndexError):
            manifest.digests[beyond]
    assert not manifest.is_tar and list(manifest.members()) == [] and manifest.classes == ()
    assert not seen or seen[-1] == (size, size)


def test_a_tar_file_is_indexed_while_it_is_hashed(tmp_path: Path) -> None:
    source = random.Random(1)
    classes = {
        f"n{c}": {f"n{c}_{k}.JPEG": source.randbytes(source.randrange(70_000)) for k in range(60)}
        for c in range(5)
    }
    content = make_nested(classes)  # its headers lie across the pieces that are read
    manifest = read_manifest(make_manifest(str(written(tmp_path, content))))
    assert manifest.member_count == 300
    found = [(m.name, m.offset, m.size, m.kind, m.target) for m in manifest.members()]
    assert found == [tuple(each) for each in seen_by_tarfile(content)]
    plain = read_manifest(make_manifest(str(written(tmp_path, content)), index=False))
    assert not plain.is_tar and plain.sha256 == manifest.sha256


def test_the_columns_say_what_the_members_say(tmp_path: Path) -> None:
    content = make_tar({f"{c}/{k}": bytes(k) for c in "ab" for k in range(5)})
    manifest = read_manifest(make_manifest(str(written(tmp_path, content))))
    index = manifest.index
    assert index is not None
    members = list(manifest.members())
    assert list(index.offsets()) == [member.offset for member in members]
    assert list(index.sizes()) == [member.size for member in members]
    classes = [manifest.classes[number - 1] for number in index.class_numbers()]
    assert classes == [member.class_name for member in members]


def test_the_same_object_gives_the_same_manifest(tmp_path: Path) -> None:
    content = make_tar({"a/1": b"1", "b/2": b"2"})
    one = written(tmp_path, content, "one.tar")
    other = written(tmp_path, content, "other.tar")
    os.utime(other, (1, 1))
    assert make_manifest(str(one)) == make_manifest(str(other))


def test_chunks_grow_with_the_object() -> None:
    assert chunk_size_for(0) == chunk_size_for(200 * MIB) == MIB // 4
    assert chunk_size_for(GIB) == chunk_size_for(150 * 10**9) == chunk_size_for(10**12) == MIB
    assert chunk_size_for(2**50) == GIB
    for size in (256 * GIB, 256 * GIB + 1, 2**44, 2**50):
        assert -(-size // chunk_size_for(size)) <= MAX_CHUNKS


def test_a_manifest_lies_beside_its_object() -> None:
    assert manifest_url("https://h/a/b.tar") == "https://h/a/b.tar.headway"
    assert manifest_url("osdf:///n/b.tar?directread") == "osdf:///n/b.tar.headway?directread"


def test_a_million_images_take_little_room(tmp_path: Path) -> None:
    """A tenth of ILSVRC2012's training set: 100 class tars of 1,281 images."""
    source = random.Random(3)
    builder, at = Builder(), 0
    for c in range(100):
        wnid = f"n{c * 7919 + 1440764:08d}"
        begin, first = at + 512, len(builder)
        at = begin
        for number in sorted(source.sample(range(40_000), 1281), key=str):
            size = int(source.lognormvariate(11.5, 0.6))
            builder.add(f"{wnid}_{number}.JPEG".encode(), at + 512, size, wnid.encode())
            at += 512 + -(-size // 512) * 512
        at = begin + -(-(at + 1024 - begin) // 10240) * 10240
        assert builder.add_tar(f"{wnid}.tar".encode(), begin, at - begin, first)
    size = at + 10240
    digests = bytes(32 * -(-size // (8 * MIB)))
    data = write_manifest(size, 8 * MIB, bytes(32), digests, builder.sections())
    assert len(data) < 128_100 * 15  # 25 MB for all of it would be 19.5 bytes each
    (tmp_path / "m").write_bytes(data)
    code = (
        "import re, sys, time; from headway.node.transfer.manifest import read_manifest\n"
        "data = open(sys.argv[1], 'rb').read(); begin = time.process_time()\n"
        "manifest = read_manifest(data); manifest.digests[0]; read = time.process_time() - begin\n"
        "print(read, sum(1 for _ in manifest.members()),\n"
        "      re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "m")],
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, count, rss = done.stdout.split()
    assert count == "128100"
    assert float(seconds) < 0.2  # of processor time, a tenth of the two seconds for all of it
    assert int(rss) < 60 << 10  # in KiB


# -- hostile manifests ----------------------------------------------------------------------------


def small() -> bytes:
    builder = Builder()
    builder.add(b"a/1", 512, 100, b"a")
    builder.add(b"b/2", 1536, 7, b"b")
    return write_manifest(192 * KIB, 64 * KIB, bytes(32), os.urandom(96), builder.sections())


SMALL = small()


def test_a_pin_tells_a_forgery() -> None:
    pin = f"sha256:{hashlib.sha256(SMALL).hexdigest()}"
    assert digest_of(SMALL) == pin
    read_manifest(SMALL, pin=pin)
    read_manifest(SMALL, pin=pin.upper())
    head, sections = taken_apart(SMALL)
    forged = signed(head, {**sections, "chunks": bytes(96)})
    read_manifest(forged)
    with pytest.raises(ManifestError, match="not the pinned") as caught:
        read_manifest(forged, pin=pin)
    assert caught.value.retryable and isinstance(caught.value, TransferError)
    for wrong in ("", "md5:" + "0" * 32, "sha256:" + "g" * 64, "sha256:12"):
        with pytest.raises(ManifestError, match="pin"):
            read_manifest(SMALL, pin=wrong)


def test_every_flipped_bit_and_every_cut_is_noticed() -> None:
    for place in range(len(SMALL)):
        bad = bytearray(SMALL)
        bad[place] ^= 1 << (place % 8)
        with pytest.raises(ManifestError):
            read_manifest(bytes(bad))
    for cut in range(0, len(SMALL), 7):
        with pytest.raises(ManifestError):
            read_manifest(SMALL[:cut])
    with pytest.raises(ManifestError, match="bytes follow"):
        read_manifest(SMALL + b"\0")


def test_a_newer_version_says_so() -> None:
    newer = SMALL.replace(b"headway-manifest 1 ", b"headway-manifest 2 ", 1)
    with pytest.raises(ManifestError, match="version 2") as caught:
        read_manifest(newer)
    assert not caught.value.retryable


def test_unknown_sections_of_a_later_headway_are_passed_over() -> None:
    head, sections = taken_apart(SMALL)
    manifest = read_manifest(signed({**head, "new": 1}, {**sections, "future": b"?"}))
    assert [member.name for member in manifest.members()] == ["a/1", "b/2"]


HEADS = st.fixed_dictionaries(
    {},
    optional={
        key: st.one_of(
            st.integers(-(2**70), 2**70),
            st.none(),
            st.booleans(),
            st.text(max_size=70),
            st.floats(),
        )
        for key in ("size", "chunk_size", "members", "sha256", "sections")
    },
)
PARTS = st.dictionaries(st.sampled_from(sorted(taken_apart(SMALL)[1])), st.binary(max_size=80))


@given(HEADS, PARTS)
@settings(max_examples=300, deadline=None)
def test_a_hostile_author_gets_a_clean_error_or_members_inside(
    head: dict[str, Any], parts: dict[str, bytes]
) -> None:
    real, sections = taken_apart(SMALL)
    try:
        manifest = read_manifest(signed({**real, **head}, {**sections, **parts}))
        check(manifest)
    except ManifestError as error:
        assert "manifest" in error.message


@given(st.binary(max_size=600), st.booleans())
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_read_or_refused(data: bytes, begins_well: bool) -> None:
    first = f"headway-manifest 1 {hashlib.sha256(data).hexdigest()}\n".encode()
    with pytest.raises(ManifestError):
        read_manifest(first + data if begins_well else data)


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=8))
@settings(max_examples=300, deadline=None)
def test_changed_columns_never_lead_outside(changes: list[tuple[int, int]]) -> None:
    head, sections = taken_apart(INDEXED)
    names = list(sections)[1:]
    for place, value in changes:
        name = names[place % len(names)]
        if sections[name]:
            changed = bytearray(sections[name])
            changed[place % len(changed)] = value
            sections[name] = bytes(changed)
    with contextlib.suppress(ManifestError):
        check(read_manifest(signed(head, sections)))


def check(manifest: Manifest) -> list[Member]:
    members = []
    for member in manifest.members():
        assert 0 <= member.offset <= member.offset + member.size <= manifest.size
        parts = member.name.split("/")
        assert "" not in parts and ".." not in parts and "\0" not in member.name
        assert member.class_name is None or "/" not in member.class_name
        members.append(member)
    for number in range(manifest.chunks):
        assert len(manifest.digests[number]) == 32
    return members


def indexed() -> bytes:
    from headway.node.transfer.tar import TarIndexer

    nested = make_tar({"x.JPEG": b"1" * 300, "y.JPEG": b"2"})
    content = make_tar({"n1.tar": nested, "n2.tar": nested, "q/é" * 30: b"3"}, "pax")
    tar = TarIndexer(len(content))
    tar.feed(content)
    tar.members.add(b"link", 0x8000, 0, None, 2, 0, b"../x")
    chunks = bytes(32 * -(-len(content) // (64 * KIB)))
    return write_manifest(len(content), 64 * KIB, bytes(32), chunks, tar.members.sections())


INDEXED = indexed()
