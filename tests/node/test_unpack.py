"""Archives that become folders, and archives that mean harm."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import os
import random
import shutil
import stat
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.node import unpack as module
from headway.node.errors import DiskError, NodeError, Stopped, TransferError
from headway.node.unpack import Unpacked, unpack

from .conftest import Node, Web
from .test_payload import member

BIG = random.Random(1).randbytes(300_000)
FILES = {"a.txt": b"small", "deep/er/b.bin": BIG, "empty": b"", "träin er.py": b"code"}


def tar_of(files: dict[str, bytes] = FILES) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name, content in files.items():
            info = member(name, size=len(content), mode=0o755 if name == "a.txt" else 0o644)
            tar.addfile(info, io.BytesIO(content))
    return data.getvalue()


def tar_with(*members: tuple[tarfile.TarInfo, bytes], end: bool = True) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for info, content in members:
            if content:
                info.size = len(content)
            tar.addfile(info, io.BytesIO(content) if content else None)
        size = tar.offset
    return data.getvalue() if end else data.getvalue()[:size]


def zip_of(files: dict[str, bytes] = FILES, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return data.getvalue()


def zstd(data: bytes) -> bytes:
    if shutil.which("zstd") is None:
        pytest.skip("there is no zstd here")
    return subprocess.run(["zstd", "-q", "-c"], input=data, capture_output=True, check=True).stdout


@pytest.fixture
def opened(tmp_path: Path) -> Callable[..., Unpacked]:
    """Unpack these bytes to `out` below a folder of their own."""

    def open_up(data: bytes, **more: Any) -> Unpacked:
        (tmp_path / "job").mkdir(exist_ok=True)
        archive = tmp_path / "job" / "x.packed"
        archive.write_bytes(data)
        options = {"room": None, "proven": False, **more}
        return unpack(str(archive), str(tmp_path / "job" / "out"), **options)

    return open_up


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


Opened = Callable[..., Unpacked]
KINDS: dict[str, Callable[[], bytes]] = {
    "tar": tar_of,
    "tar.gz": lambda: gzip.compress(tar_of()),
    "tar.bz2": lambda: bz2.compress(tar_of()),
    "tar.xz": lambda: lzma.compress(tar_of()),
    "tar.zst": lambda: zstd(tar_of()),
    "zip": zip_of,
    "stored zip": lambda: zip_of(method=zipfile.ZIP_STORED),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind(kind: str, opened: Opened, tmp_path: Path) -> None:
    found = opened(KINDS[kind]())
    out = tmp_path / "job" / "out"
    assert tree(out) == FILES
    assert (found.files, found.bytes) == (4, sum(map(len, FILES.values())))
    assert os.listdir(tmp_path / "job") == ["out"]  # neither the archive nor a draft
    if kind.startswith("tar"):
        assert os.access(out / "a.txt", os.X_OK) and not os.access(out / "empty", os.X_OK)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, zstd])
@pytest.mark.parametrize("data", [b"", b"one,two\n", BIG])
def test_a_compressed_file_becomes_a_file(
    pack: Callable[[bytes], bytes], data: bytes, opened: Opened, tmp_path: Path
) -> None:
    opened(pack(data))
    assert (tmp_path / "job" / "out").read_bytes() == data
    assert os.listdir(tmp_path / "job") == ["out"]


@pytest.mark.parametrize("kind", ["tar", "zip"])
@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x", "a/b/../../../x", "/", ".."])
def test_a_name_outside_is_refused(kind: str, name: str, opened: Opened, tmp_path: Path) -> None:
    files = {"good": b"x", name: b"planted"}
    with pytest.raises(TransferError, match="is outside of the folder") as caught:
        opened(tar_of(files) if kind == "tar" else zip_of(files))
    assert not caught.value.retryable
    assert os.listdir(tmp_path) == ["job"] and os.listdir(tmp_path / "job") == []


def test_links_stay_within(opened: Opened, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"mine")

    def link(name: str, to: str) -> tuple[tarfile.TarInfo, bytes]:
        return member(name, type=tarfile.SYMTYPE, linkname=to), b""

    found = opened(
        tar_with(
            (member("d/file"), b"data"),
            link("d/good", "file"),
            link("up", "d/../d/file"),
            link("empty", ""),
            link("absolute", "/etc/passwd"),
            link("out", "../../secret"),
            link("a/b/c/root", "../../.."),  # within, and with the next one far outside
            link("climbs", "a/b/c/root/../../secret"),
            link("through", "d"),
            (member("through/file"), b"written"),  # not through the link
            (member("hard", type=tarfile.LNKTYPE, linkname="d/file"), b""),
        )
    )
    out = tmp_path / "job" / "out"
    assert (out / "d/good").read_bytes() == (out / "up").read_bytes() == b"data"
    assert (out / "hard").samefile(out / "d/file")
    assert (out / "through/file").read_bytes() == b"written"
    for name in ("empty", "absolute", "out", "climbs"):
        assert not os.path.lexists(out / name)
    assert found.left_count == 5
    root = os.path.realpath(out)
    for folder, folders, names in os.walk(out):
        for name in (*folders, *names):
            assert os.path.realpath(os.path.join(folder, name)).startswith(root)


@pytest.mark.parametrize("to", ["../secret", "/etc/passwd", "nothing", "hard", "link"])
def test_a_hard_link_to_something_else_is_refused(to: str, opened: Opened, tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "secret").write_bytes(b"mine")
    data = tar_with(
        (member("link", type=tarfile.SYMTYPE, linkname="../secret"), b""),
        (member("hard", type=tarfile.LNKTYPE, linkname=to), b""),
    )
    with pytest.raises(TransferError, match=r"outside|lacks"):
        opened(data)


def test_devices_and_rights_are_not_taken_over(opened: Opened, tmp_path: Path) -> None:
    found = opened(
        tar_with(
            (member("pipe", type=tarfile.FIFOTYPE), b""),
            (member("disk", type=tarfile.BLKTYPE, devmajor=8, devminor=0), b""),
            (member("null", type=tarfile.CHRTYPE, devmajor=1, devminor=3), b""),
            (member("root", mode=0o6777, uid=0, gid=0), b"x"),
            (member("folder", type=tarfile.DIRTYPE, mode=0o000), b""),
            (member("folder/in", mtime=1 << 60), b"x"),
        )
    )
    out = tmp_path / "job" / "out"
    assert sorted(os.listdir(out)) == ["folder", "root"]
    assert stat.S_IMODE((out / "root").stat().st_mode) == 0o755
    assert found.left_count == 3 and "neither a file nor a folder" in found.left_out[0]


def test_the_later_of_two_counts_once(opened: Opened, tmp_path: Path) -> None:
    twice = [(member("a"), b"first, and longer"), (member("a"), b"second")]
    found = opened(tar_with(*twice), room=25 + 512)
    assert tree(tmp_path / "job" / "out") == {"a": b"second"}
    assert (found.files, found.bytes) == (1, 6)


@pytest.mark.parametrize(
    "members",
    [
        [(member("a"), b"x"), (member("a/b"), b"x")],
        [(member("a/b"), b"x"), (member("a"), b"x")],
        [(member("n" * 300), b"x")],
        [(member("a", type=tarfile.DIRTYPE), b""), (member("a"), b"x")],
    ],
)
def test_names_that_cannot_be_are_the_archives_fault(
    members: list[tuple[tarfile.TarInfo, bytes]], opened: Opened
) -> None:
    with pytest.raises(TransferError, match="cannot be written") as caught:
        opened(tar_with(*members))
    assert not caught.value.retryable


def test_a_bomb_ends_at_the_disk_that_was_asked_for(opened: Opened, tmp_path: Path) -> None:
    zeros = bytes(50 << 20)
    for data in (
        gzip.compress(tar_of({"a": zeros})),
        zip_of({"a": zeros}),
        gzip.compress(zeros[:512].replace(b"\0", b"x") + zeros),
        tar_with(*[(member(f"{n}"), bytes(1 << 20)) for n in range(12)]),
    ):
        with pytest.raises(TransferError, match="more than 10000000 bytes unpacked") as caught:
            opened(data, room=10_000_000)
        assert not caught.value.retryable and "disk" in caught.value.remedy
        assert "out" not in os.listdir(tmp_path / "job")
        assert not [name for name in os.listdir(tmp_path / "job") if "unpacking" in name]


@pytest.mark.parametrize("kind", ["hard links", "folders", "empty files", "links"])
def test_what_takes_no_bytes_has_its_bounds_too(opened: Opened, kind: str) -> None:
    members = {
        "hard links": [  # the last of each three takes back what the first has counted
            each
            for n in range(20)
            for each in (
                (member(f"{n}"), bytes(100_000)),
                (member(f"{n}b", type=tarfile.LNKTYPE, linkname=f"{n}"), b""),
                (member(f"{n}b"), b""),
            )
        ],
        "folders": [(member(f"{n}/" + "a/" * 100 + "x"), b"") for n in range(5)],
        "empty files": [(member(f"{n}"), b"") for n in range(2000)],
        "links": [(member(f"{n}", type=tarfile.SYMTYPE, linkname="x"), b"") for n in range(2000)],
    }[kind]
    with pytest.raises(TransferError, match="more than 1000000 bytes unpacked"):
        opened(gzip.compress(tar_with(*members)), room=1_000_000)


def test_folders_within_each_other_can_be_removed_again(opened: Opened, tmp_path: Path) -> None:
    with pytest.raises(TransferError, match="more than 256 folders deep"):
        opened(tar_with((member("b"), b"x"), (member("a/" * 900 + "x"), b"x")))
    assert os.listdir(tmp_path / "job") == []


def test_a_name_that_comes_again_costs_no_look_at_all_others(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "listdir", None)
    assert opened(tar_with((member("a1"), b"x"), (member("a1"), b"y"))).files == 1


def test_what_is_left_out_is_told_in_harmless_words(opened: Opened) -> None:
    names = ("a\x1b[2J\nb", "a\udcff")
    links = [(member(name, type=tarfile.SYMTYPE, linkname="/etc"), b"") for name in names]
    for words in opened(tar_with(*links)).left_out:
        assert words.isprintable() and words.encode()


def noted(kind: bytes, notes: bytes) -> bytes:
    header = member("x", type=kind, size=len(notes)).tobuf(tarfile.USTAR_FORMAT)
    return header + notes + bytes(-len(notes) % 512)


def sparse(entries: int) -> bytes:
    notes = b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n25 GNU.sparse.realsize=0\n"
    extents = f"{entries}\n".encode() + b"0\n0\n" * entries
    header = member("x", size=len(extents)).tobuf(tarfile.USTAR_FORMAT)
    return noted(tarfile.XHDTYPE, notes) + header + extents + bytes(-len(extents) % 512)


def old_sparse(blocks: int) -> bytes:
    header = bytearray(member("x", type=tarfile.GNUTYPE_SPARSE).tobuf(tarfile.GNU_FORMAT))
    header[482] = 1
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + (b"00000000000\0" * 42 + b"\1" + bytes(7)) * blocks


@pytest.mark.parametrize(
    "headers",
    [
        noted(tarfile.XHDTYPE, b"1" * 100_000),
        noted(tarfile.XHDTYPE, b"2 " * 10_000 + b"="),
        noted(tarfile.XHDTYPE, b"100006 a=" + b"1" * 99_996 + b"\n"),
        noted(tarfile.XHDTYPE, b"0 a=\n"),
        noted(tarfile.XGLTYPE, b"3007 a=" + b"b" * 2999 + b"\n") * 3,
        sparse(600_000),
        old_sparse(5_000),
    ],
)
def test_headers_cost_no_more_than_their_bytes(headers: bytes, opened: Opened) -> None:
    begin = time.process_time()
    with pytest.raises(TransferError, match=r"headers|notes") as caught:
        opened(gzip.compress(headers + tar_of()))
    assert not caught.value.retryable and time.process_time() - begin < 8


def test_sparse_files_and_notes_on_all_members(opened: Opened, tmp_path: Path) -> None:
    everywhere = noted(tarfile.XGLTYPE, b"52 comment=" + b"0" * 40 + b"\n")
    data = everywhere + sparse(3) + tar_of({"träin" * 30: b"code"})
    assert opened(data).files == 2
    assert (tmp_path / "job" / "out" / ("träin" * 30)).read_bytes() == b"code"


def test_a_zip_that_lies_about_its_size(opened: Opened) -> None:
    data = bytearray(zip_of({"a": bytes(1 << 20)}))
    for mark, at in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        begin = data.index(mark) + at
        data[begin : begin + 4] = (5).to_bytes(4, "little")
    with pytest.raises(TransferError):
        opened(bytes(data), room=1000)


def test_too_many_members_and_too_long_a_header(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_MEMBERS", 3)
    with pytest.raises(TransferError, match="more than 3 members"):
        opened(tar_of())
    monkeypatch.setattr(module, "MOST_MEMBERS", 100)
    header = member("x", type=tarfile.XHDTYPE, size=1 << 32).tobuf(tarfile.USTAR_FORMAT)
    with pytest.raises(TransferError, match="too long"):
        opened(header + bytes(1 << 16))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", [0.3, 0.6, 0.97])
def test_a_truncated_archive_is_no_archive(
    kind: str, part: float, opened: Opened, tmp_path: Path
) -> None:
    data = KINDS[kind]()
    with pytest.raises(TransferError, match="cannot be unpacked") as caught:
        opened(data[: int(len(data) * part)] if kind != "tar" else data[: int(300_000 * part)])
    assert caught.value.retryable and "checksum" in caught.value.remedy
    assert os.listdir(tmp_path / "job") == []  # another try begins anew
    with pytest.raises(TransferError) as proven:
        opened(data[:1000], proven=True)
    assert not proven.value.retryable


def test_a_tar_without_its_end(opened: Opened, tmp_path: Path) -> None:
    """Cut between two members it looks whole; a header that is broken looks like the end."""
    cut = tar_with((member("a"), b"x"), (member("b"), b"y"), end=False)
    with pytest.raises(TransferError, match="without its end mark"):
        opened(cut)
    assert opened(cut, proven=True).files == 2  # so it was packed
    broken = bytearray(tar_of())
    broken[1024] ^= 1
    with pytest.raises(TransferError, match="damaged after 1 files"):
        opened(bytes(broken), proven=True)


@pytest.mark.parametrize("data", [b"", b"text", b"\0" * 100, b"PK\x03\x04nonsense", b"\x1f\x8bno"])
def test_what_is_no_archive(data: bytes, opened: Opened) -> None:
    with pytest.raises(TransferError, match="cannot be unpacked"):
        opened(data)


def test_a_zip_whose_list_lies_nowhere(opened: Opened) -> None:
    data = bytearray(zip_of())
    data[-6] ^= 0x80  # of the offset of its list
    with pytest.raises(TransferError, match="cannot be unpacked"):
        opened(bytes(data))


def test_an_empty_archive_is_an_empty_folder(opened: Opened, tmp_path: Path) -> None:
    for data in (tar_of({}), zip_of({})):
        opened(data)
        assert os.listdir(tmp_path / "job" / "out") == []


def test_a_password(opened: Opened) -> None:
    data = bytearray(zip_of({"a": b"x"}))
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + at] |= 1
    with pytest.raises(TransferError, match="needs a password"):
        opened(bytes(data))


def test_names_that_differ_in_capitals(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert opened(tar_of({"A": b"1", "a": b"2"})).files == 2
    for name in ("open", "lstat"):
        real = getattr(os, name)

        def insensitive(path: Any, *words: Any, real: Any = real, **more: Any) -> Any:
            return real(str(path).lower() if "unpacking" in str(path) else path, *words, **more)

        monkeypatch.setattr(os, name, insensitive)
    with pytest.raises(TransferError, match="capitals only"):
        opened(tar_of({"a": b"1", "A": b"2"}))


def test_a_full_disk_is_the_nodes_fault(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open("/dev/full", "wb", buffering=0) as full:

        def write(file: int, data: Any) -> int:
            return full.write(data)

        monkeypatch.setattr(os, "write", write)
        with pytest.raises(DiskError, match="disk is full"):
            opened(tar_of())
    assert os.listdir(tmp_path / "job") == ["x.packed"]


def test_without_zstd(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    data = zstd(tar_of())
    monkeypatch.setattr(shutil, "which", lambda _: None)
    if sys.version_info >= (3, 14):
        opened(data)
    else:
        assert not module.can_read_zstd()
        with pytest.raises(NodeError, match=r"neither the program zstd nor Python 3\.14"):
            opened(data)


def test_it_stops_when_it_is_told_to(opened: Opened, tmp_path: Path) -> None:
    asked = iter([False] * 5)
    with pytest.raises(Stopped):
        opened(tar_of(), should_stop=lambda: next(asked, True))
    assert os.listdir(tmp_path / "job") == ["x.packed"]


def test_what_an_earlier_try_has_left_is_replaced(opened: Opened, tmp_path: Path) -> None:
    for place in ("out", ".out.unpacking", ".out.unpacking.old"):
        (tmp_path / "job" / place / "old").mkdir(parents=True)
    opened(tar_of())
    assert tree(tmp_path / "job" / "out") == FILES and os.listdir(tmp_path / "job") == ["out"]


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150
)
@given(
    st.sampled_from(["tar", "tar.gz", "zip", "tar.xz"]),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=8),
    st.floats(0, 1),
)
def test_whatever_happened_to_it_nothing_lands_outside(
    opened: Opened, tmp_path: Path, kind: str, flips: list[tuple[float, int]], cut: float
) -> None:
    data = bytearray(_small(kind))
    for at, value in flips:
        data[int(at * (len(data) - 1))] = value
    shutil.rmtree(tmp_path / "job", ignore_errors=True)
    try:
        opened(bytes(data[: int(len(data) * max(cut, 0.2))]), room=1 << 20)
    except TransferError:
        assert set(os.listdir(tmp_path / "job")) <= {"x.packed"}
    assert os.listdir(tmp_path) == ["job"]


def _small(kind: str) -> bytes:
    files = {"a": b"x" * 700, "d/b": b"y", "d/c": b""}
    data = zip_of(files) if kind == "zip" else tar_of(files)
    if kind == "tar.gz":
        return gzip.compress(data)
    return lzma.compress(data) if kind == "tar.xz" else data


# -- as a job has it


def test_the_command_finds_the_folder(node: Node, web: Web) -> None:
    web.files["train.tar.gz"] = data = gzip.compress(tar_of())
    (node.folder / "brought.zip").write_bytes(zip_of({"z": b"zipped"}))
    given: list[dict[str, Any]] = [
        {
            "urls": [web.url("train.tar.gz")],
            "path": "in/train.tar.gz",
            "unpack": "in/train",
            "checksum": f"sha256:{hashlib.sha256(data).hexdigest()}",
        },
        {"urls": [], "path": "z/brought.zip", "arrives_as": "brought.zip", "unpack": "z/d"},
    ]
    node.plan("cat in/train/a.txt z/d/z; ls in z", inputs=given, disk=10_000_000)
    assert node.run() == 0, node.stderr
    assert node.stdout() == "smallzippedin:\ntrain\n\nz:\nd\n"
    first, second = node.record()["inputs"]
    assert first["path"] == "in/train.tar.gz" and first["bytes"] == len(data)
    told = first["unpacked"]
    assert (told["path"], told["files"], told["left_out"]) == ("in/train", 4, 0)
    assert second["unpacked"]["files"] == 1
    assert "unpacked to in/train" in (node.attempt() / "agent.log").read_text()


def test_a_later_segment_finds_what_the_first_has_unpacked(node: Node, web: Web) -> None:
    web.files["t.tar"] = tar_of()
    given = {"urls": [web.url("t.tar")], "path": "t.tar", "unpack": "t"}
    code = "echo x >> t/mine; touch saved; [ -e again ] || { touch again; exit 85; }; cat t/mine"
    node.plan(code, inputs=[given], checkpoint={"paths": ["saved"], "exit_code": 85})
    assert node.run() == 85, node.stderr
    assert node.run() == 0, node.stderr
    assert node.stdout().endswith("x\nx\n")
    assert len([path for path in web.paths() if path == "t.tar"]) == 1


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python reads it itself")
def test_a_node_without_zstd_is_left_before_anything_is_fetched(node: Node, web: Web) -> None:
    (node.folder.parent / "bin").mkdir()
    for name in ("sh", "env"):
        os.symlink(str(shutil.which(name)), node.folder.parent / "bin" / name)
    node.environment["PATH"] = str(node.folder.parent / "bin")
    web.files["t.tar.zst"] = b"x"
    given = {"urls": [web.url("t.tar.zst")], "path": "t.tar.zst", "unpack": "t"}
    node.plan(["true"], inputs=[given])
    assert node.run() == 80
    assert "neither zstd nor Python 3.14" in node.stderr
    assert web.requests == []


@pytest.mark.parametrize(
    ("data", "more", "code", "words"),
    [
        (tar_of()[:5000], {}, 81, "cannot be unpacked"),
        (tar_of({"../x": b"x"}), {}, 82, "is outside of the folder"),
        (gzip.compress(tar_of({"a": bytes(5 << 20)})), {"disk": 1 << 20}, 82, "unpacked, which is"),
    ],
)
def test_an_archive_that_cannot_be_unpacked_fails_the_attempt(
    node: Node, web: Web, data: bytes, more: dict[str, Any], code: int, words: str
) -> None:
    web.files["t.tar"] = data
    given = {"urls": [web.url("t.tar")], "path": "t.tar", "unpack": "t"}
    node.plan(["touch", "ran"], inputs=[given], **more)
    assert node.run() == code
    assert words in node.stderr
    assert words in node.record()["inputs"][0]["error"]
    assert not (node.folder / "ran").exists() and not (node.folder / "t").exists()


def test_progress_says_that_it_unpacks(tmp_path: Path, web: Web, monkeypatch: Any) -> None:
    from headway.node import inputs
    from headway.node.plan import Plan
    from headway.node.record import Attempt, Progress

    monkeypatch.chdir(tmp_path)
    web.files["t.tar"] = tar_of()
    given = {"urls": [web.url("t.tar")], "path": "t.tar", "unpack": "t"}
    plan = Plan({"format": 1, "command": ["x"], "inputs": [given]}, {})
    progress = Progress({each.path: each.size for each in plan.inputs})
    begun, go_on = threading.Event(), threading.Event()

    def slowly(*words: Any, **more: Any) -> Unpacked:
        begun.set()
        go_on.wait(10)
        return unpack(*words, **more)

    monkeypatch.setattr(module, "unpack", slowly)
    attempt, told = Attempt(), []  # type: ignore[var-annotated]
    staging = threading.Thread(
        target=inputs.stage_in,
        args=(plan.inputs, attempt, progress, lambda: False, lambda _: None, told),
    )
    staging.start()
    assert begun.wait(10)
    assert progress.values()["file"] == "t.tar, unpacking"
    go_on.set()
    staging.join(10)
    assert told[0]["unpacked"]["files"] == 4


def test_an_agent_that_is_killed_while_it_unpacks(node: Node, web: Web) -> None:
    """There is no folder of that name until all of it is there."""
    web.files["t.tar.gz"] = gzip.compress(tar_of({f"{n}": b"x" for n in range(1000)}), 1)
    given = {"urls": [web.url("t.tar.gz")], "path": "t.tar.gz", "unpack": "t"}
    node.plan("ls t | wc -l", inputs=[given])
    process = node.start()
    end = time.monotonic() + 15
    while not (node.folder / ".t.unpacking").exists() and time.monotonic() < end:
        time.sleep(0.002)
    process.kill()
    process.communicate()
    assert not (node.folder / "t").exists()
    assert node.run() == 0, node.stderr
    assert node.stdout().strip() == "1000"
    assert not (node.folder / ".t.unpacking").exists()
