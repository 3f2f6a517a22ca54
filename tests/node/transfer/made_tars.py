"""Tar files made by Python's tarfile and by hand, and what tarfile itself reads in them."""

from __future__ import annotations

import io
import tarfile
from typing import NamedTuple

from headway.node.transfer.tar import safe_name

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


class Seen(NamedTuple):
    """A member as tarfile sees it, under the name that the index gives it."""

    name: str
    offset: int
    size: int
    kind: str
    target: str


def make_tar(members: dict[str, bytes], format: str = "gnu") -> bytes:
    """A tar file with these members."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=FORMATS[format]) as archive:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return made.getvalue()


def make_nested(classes: dict[str, dict[str, bytes]], format: str = "gnu") -> bytes:
    """As ILSVRC2012: a tar file of one tar file per class."""
    return make_tar({f"{name}.tar": make_tar(images) for name, images in classes.items()}, format)


def raw_header(name: bytes, size: int, kind: bytes = b"0", **fields: bytes) -> bytes:
    """A header by hand, with a right checksum; `at_N` puts bytes at N."""
    block = bytearray(512)
    block[: len(name)] = name
    block[124:136] = b"%011o\0" % size if size < 8**11 else b"\x80" + size.to_bytes(11, "big")
    block[156:157] = kind
    block[257:265] = b"ustar\x0000"
    for place, data in fields.items():
        at = int(place.removeprefix("at_"))
        block[at : at + len(data)] = data
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)


def seen_by_tarfile(data: bytes, base: int = 0) -> list[Seen]:
    """What tarfile finds, nested tar files taken apart, directories and devices left out."""
    found = []
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:", errors="surrogateescape") as archive:
        for entry in archive:
            raw = safe_name(entry.name.encode("utf-8", "surrogateescape"))
            if raw is None:
                continue
            name = raw.decode("utf-8", "surrogateescape")
            start = entry.offset_data
            if entry.issym() or entry.islnk():
                kind = "symbolic link" if entry.issym() else "hard link"
                found.append(Seen(name, base + start, 0, kind, entry.linkname))
            elif entry.isreg() and name.endswith(".tar") and entry.size >= 512:
                found += seen_by_tarfile(data[start : start + entry.size], start)
            elif entry.isreg():
                kind = "sparse" if entry.issparse() else "file"
                found.append(Seen(name, base + start, entry.size, kind, ""))
    return found
