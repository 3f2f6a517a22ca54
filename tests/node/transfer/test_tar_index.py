"""The tar indexer finds what tarfile finds, however the bytes arrive."""

from __future__ import annotations

import io
import os
import random
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.node.transfer.manifest import Manifest, read_manifest, write_manifest
from headway.node.transfer.tar import MAX_EXTENDED, Member, TarIndexer

from .made_tars import FORMATS, Seen, make_nested, make_tar, padded, raw_header, seen_by_tarfile

END = bytes(1024)


def index(data: bytes, piece: int = 1 << 20, *, known: bool = True) -> TarIndexer:
    tar = TarIndexer(len(data) if known else None)
    for begin in range(0, len(data), piece):
        tar.feed(memoryview(data)[begin : begin + piece])
    tar.finish(len(data))
    return tar


def opened(tar: TarIndexer, size: int) -> Manifest:
    chunks = -(-size // (1 << 20))
    made = write_manifest(size, 1 << 20, bytes(32), bytes(32 * chunks), tar.members.sections())
    return read_manifest(made)


def members_of(data: bytes) -> list[Member]:
    tar = index(data)
    assert tar.is_tar and not tar.damage
    return list(opened(tar, len(data)).members())


def seen(members: list[Member]) -> list[Seen]:
    return [Seen(m.name, m.offset, m.size, m.kind, m.target) for m in members]


NAMES = st.one_of(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12),
    st.integers(90, 400).map(lambda n: "long/" * 3 + "n" * n),
    st.sampled_from(["./a", "/abs/b", "a/../b", "..", "c/d/e.jpg", "x.tar", "é/ü.png", "-", " "]),
)
TARS = st.dictionaries(NAMES.filter(bool), st.binary(max_size=1500), max_size=8)


@given(TARS, st.sampled_from(["gnu", "pax"]), st.integers(1, 3000))
@settings(max_examples=150, deadline=None)
def test_it_finds_what_tarfile_finds(members: dict[str, bytes], format: str, piece: int) -> None:
    data = make_tar(members, format)
    tar = index(data, piece)
    assert tar.is_tar and not tar.damage and tar.end_mark
    assert seen(list(opened(tar, len(data)).members())) == seen_by_tarfile(data)


@pytest.mark.parametrize("format", FORMATS)
def test_nested_class_tars_as_ilsvrc2012_has_them(format: str) -> None:
    source = random.Random(7)
    classes = {
        f"n{number:08d}": {
            f"n{number:08d}_{k}.JPEG": source.randbytes(source.randrange(1, 3000))
            for k in range(20)
        }
        for number in (1440764, 1443537, 15075141)
    }
    data = make_nested(classes, format)
    manifest = opened(index(data), len(data))
    assert manifest.classes == tuple(classes)
    assert [tar.name for tar in manifest.tars] == [f"{name}.tar" for name in classes]
    assert [(tar.first, tar.members) for tar in manifest.tars] == [(0, 20), (20, 20), (40, 20)]
    for member in manifest.members():
        assert member.class_name is not None and member.tar == f"{member.class_name}.tar"
        content = data[member.offset : member.offset + member.size]
        assert content == classes[member.class_name][member.name]
    for tar in manifest.tars:
        whole = data[tar.offset : tar.offset + tar.size]
        assert whole == make_tar(classes[tar.name.removesuffix(".tar")])


def test_class_folders_and_what_is_not_a_class() -> None:
    folders = {"train/cat/1.jpg": b"1", "train/dog/2.jpg": b"22", "README": b"r", "val/cat/3": b""}
    found = members_of(make_tar(folders, "pax"))
    assert [member.class_name for member in found] == ["cat", "dog", None, "cat"]
    cifar = make_tar({f"cifar-10-batches-bin/data_batch_{n}.bin": bytes(3073) for n in range(1, 6)})
    assert [member.class_name for member in members_of(cifar)] == [None] * 5
    assert members_of(cifar)[1].offset == 512 * (1 + 7 + 1)


@pytest.mark.parametrize("format", ["gnu", "pax"])
def test_links_devices_and_folders(format: str) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=FORMATS[format]) as archive:
        for name, kind, target in [
            ("folder", tarfile.DIRTYPE, ""),
            ("folder/soft", tarfile.SYMTYPE, "../" * 50 + "etc/passwd"),
            ("folder/hard", tarfile.LNKTYPE, "folder/file"),
            ("pipe", tarfile.FIFOTYPE, ""),
            ("null", tarfile.CHRTYPE, ""),
        ]:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, target
            archive.addfile(entry)
        entry = tarfile.TarInfo("folder/file")
        entry.size = 3
        archive.addfile(entry, io.BytesIO(b"abc"))
    found = members_of(made.getvalue())
    assert seen(found) == seen_by_tarfile(made.getvalue())
    assert [member.kind for member in found] == ["symbolic link", "hard link", "file"]
    assert [member.size for member in found] == [0, 0, 3]
    assert found[0].target == "../" * 50 + "etc/passwd"


@pytest.mark.skipif(not shutil.which("tar"), reason="needs GNU tar")
@pytest.mark.parametrize(
    "options",
    [["--format=gnu"], *(["--format=pax", f"--sparse-version={v}"] for v in ("0.0", "0.1", "1.0"))],
    ids=lambda options: "-".join(options[-1:]),
)
def test_members_with_holes_as_gnu_tar_writes_them(options: list[str], tmp_path: Path) -> None:
    with (tmp_path / "holes").open("wb") as file:
        for place in range(60):
            file.seek(place * 200_000)
            file.write(b"data" * 1000)
        file.truncate(20_000_000)
    (tmp_path / "after").write_bytes(b"x" * 700)
    subprocess.run(
        ["tar", *options, "--sparse", "-cf", "made.tar", "holes", "after"], cwd=tmp_path, check=True
    )
    data = (tmp_path / "made.tar").read_bytes()
    holes, after = members_of(data)
    assert (holes.name, holes.kind, holes.full_size) == ("holes", "sparse", 20_000_000)
    assert holes.size < 1_000_000
    assert data[after.offset : after.offset + after.size] == b"x" * 700


def test_old_and_odd_headers() -> None:
    signed = bytearray(raw_header(b"sign\xe9d", 1))
    block = bytes(signed[:148]) + b" " * 8 + bytes(signed[156:])
    signed[148:156] = b"%06o\0 " % (sum(block) - 256 * sum(byte > 127 for byte in block))
    data = b"".join(
        [
            raw_header(b"binary-size", 600, at_124=b"\x80" + (600).to_bytes(11, "big")),
            padded(b"b" * 600),
            bytes(signed) + padded(b"s"),
            raw_header(b"tail", 2, at_345=b"with/prefix") + padded(b"pp"),
            raw_header(b"gnu", 0, at_257=b"ustar  \0", at_345=b"14371737145"),
            raw_header(b"old-folder/", 0, b"\0"),
            raw_header(b"unknown", 5, b"Z") + padded(b"skip!"),
            raw_header(b"last", 1, b"7") + padded(b"l"),
            END,
        ]
    )
    found = members_of(data)
    names = [os.fsencode(member.name) for member in found]
    assert names == [b"binary-size", b"sign\xe9d", b"with/prefix/tail", b"gnu", b"last"]
    for member, content in zip(found, [b"b" * 600, b"s", b"pp", b"", b"l"], strict=True):
        assert data[member.offset : member.offset + member.size] == content


def test_a_member_of_more_than_four_gigabytes() -> None:
    """Only headers are read, so the bytes between them need not be there."""
    sizes = [6 << 30, 1 << 20, 9 << 30]
    blocks, at = {}, 0
    for number, size in enumerate(sizes):
        blocks[at] = raw_header(b"part%d" % number, size)
        at += 512 + -(-size // 512) * 512
    total = at + 1024
    tar = TarIndexer(total)
    while tar.want is not None:
        offset, length = tar.want
        tar.take(blocks.get(offset, bytes(length)))
    tar.finish(total)
    found = list(opened(tar, total).members())
    assert [member.size for member in found] == sizes and not tar.damage
    assert found[2].offset == 3 * 512 + (6 << 30) + (1 << 20)


def test_far_gaps_between_members() -> None:
    skipped = raw_header(b"skipped", 300 * 512, b"Z") + bytes(300 * 512)
    data = raw_header(b"a", 1) + padded(b"a") + skipped + raw_header(b"b", 1) + padded(b"b") + END
    found = members_of(data)
    assert [data[m.offset : m.offset + m.size] for m in found] == [b"a", b"b"]


def test_names_that_lead_out_are_left_out() -> None:
    names = ["../up", "a/../../b", "/abs", "./dot", "ok", "a/..", "...", "x//y", "..c/d"]
    tar = index(make_tar(dict.fromkeys(names, b"1"), "pax"))
    manifest = opened(tar, 1 << 20)
    assert [m.name for m in manifest.members()] == ["abs", "dot", "ok", "...", "x/y", "..c/d"]
    assert tar.members.left_out == 3


@pytest.mark.parametrize("known", [True, False])
def test_every_cut_is_noticed_but_one_between_members(known: bool) -> None:
    data = make_tar({"first": b"1" * 700, "second": b"2" * 100, "n" * 150: b"3"})
    whole = [member.offset for member in members_of(data)]
    after = {512 + 1024, 512 + 1024 + 1024}  # headers begin there
    ends = whole[-1] + 512
    for cut in range(512, ends, 64):
        tar = index(data[:cut], 100, known=known)
        assert tar.is_tar
        assert bool(tar.damage) == (cut not in after), cut
        assert not tar.end_mark
    assert "ends within second" in index(data[: 512 + 1024 + 512 + 50], known=known).damage


def test_a_damaged_nested_tar_is_a_plain_member() -> None:
    good = make_tar({"n1_1.JPEG": b"1", "n1_2.JPEG": b"2"})
    torn = make_tar({"n2_1.JPEG": b"1" * 9000})[:5000]
    data = make_tar({"n1.tar": good, "n2.tar": torn, "n3.tar": good, "not.tar": b"no" * 600})
    manifest = opened(index(data), len(data))
    found = [(member.tar, member.name, member.class_name) for member in manifest.members()]
    assert found == [
        ("n1.tar", "n1_1.JPEG", "n1"),
        ("n1.tar", "n1_2.JPEG", "n1"),
        (None, "n2.tar", None),
        ("n3.tar", "n1_1.JPEG", "n3"),
        ("n3.tar", "n1_2.JPEG", "n3"),
        (None, "not.tar", None),
    ]
    assert manifest.classes == ("n1", "n3")


def test_empty_tars() -> None:
    assert members_of(make_tar({})) == []
    nested = make_tar({"n1.tar": make_tar({}), "n2.tar": make_tar({"a": b"1"})})
    manifest = opened(index(nested), len(nested))
    assert [tar.members for tar in manifest.tars] == [0, 1]
    assert [member.tar for member in manifest.members()] == ["n2.tar"]
    zeros = TarIndexer(2048, empty_is_tar=False)
    zeros.feed(bytes(2048))
    assert not zeros.is_tar


@given(st.binary(max_size=4000), st.integers(1, 2000))
@settings(max_examples=150, deadline=None)
def test_any_bytes_end_in_words_at_worst(data: bytes, piece: int) -> None:
    tar = index(data, piece)
    assert tar.want is None
    opened(tar, max(1, len(data)))


@given(
    st.sampled_from(["gnu", "pax"]),
    st.lists(st.tuples(st.integers(0, 6000), st.integers(0, 255)), min_size=1, max_size=6),
)
@settings(max_examples=200, deadline=None)
def test_flipped_bytes_never_put_a_member_outside(
    format: str, changes: list[tuple[int, int]]
) -> None:
    nested = make_tar({"a" * 120: b"1" * 600, "b": b"2"})
    data = bytearray(make_tar({"x/é": b"1", "in.tar": nested, "y/z": b"3" * 900}, format))
    for place, value in changes:
        data[place % len(data)] = value
    tar = index(bytes(data), 997)
    for member in opened(tar, len(data)).members():
        assert 0 <= member.offset <= member.offset + member.size <= len(data)


def test_a_huge_extended_header_is_not_read() -> None:
    data = raw_header(b"././@LongLink", MAX_EXTENDED + 1, b"L")
    tar = TarIndexer(1 << 40)
    tar.feed(data)
    assert tar.want is None and "too long" in tar.damage
