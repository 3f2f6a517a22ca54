"""What another process finds, and what a disk that is full or gone does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.lab import Made, Object, Rate, Server, Silent

from headway.node.errors import DiskError, NodeError, TransferError
from headway.node.transfer import fetch
from headway.node.transfer.part import Part

from .chunks import manifest_of

MB = 1 << 20
SIZE = 40 * MB
CONTENT = Made(SIZE, seed=11)


def fetch_and_be_killed(urls: list[str], path: Path, checksum: str | None, enough: int) -> int:
    """Another process fetches, and is killed once its journal speaks of so many bytes."""
    code = (
        "import sys; from headway.node.transfer import fetch; "
        "fetch(sys.argv[3:], sys.argv[1], checksum=sys.argv[2] or None)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(path), checksum or "", *urls])
    try:
        end = time.monotonic() + 20
        while (known := journalled(path)) < enough:
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    return known


def journalled(path: Path) -> int:
    from headway.node.transfer.journal import parse

    part, journal = Path(f"{path}.part"), Path(f"{path}.part.journal")
    if not part.exists() or not journal.exists():
        return 0
    about = part.stat()
    data = journal.read_bytes()
    proof = data.partition(b"\n")[0].split(b'"')
    past = parse(
        data,
        inode=about.st_ino,
        length=about.st_size,
        proof=proof[1].decode() if len(proof) > 1 else "",
    )
    return sum(end - begin for begin, end, _ in past.stretches) if past is not None else 0


@pytest.mark.parametrize("declared", [True, False], ids=["checksum", "nothing declared"])
@pytest.mark.parametrize("sources", [1, 2])
def test_another_process_goes_on_after_a_kill(declared: bool, sources: int, tmp_path: Path) -> None:
    path = tmp_path / "object"
    checksum = CONTENT.checksum() if declared else None
    pace = [Rate(12 * MB / sources, "server")]
    with Server({"/a": CONTENT}, pace) as one, Server({"/a": CONTENT}, pace) as other:
        servers = [one, other][:sources]
        known = fetch_and_be_killed([s.url("/a") for s in servers], path, checksum, 5 * MB)
        assert not path.exists()
        while one.connections_now or other.connections_now:
            time.sleep(0.01)  # what they still send to the killed process counts as sent before
        one.faults = other.faults = []
        before = one.sent + other.sent
        urls = [s.url("/a", query="token=new") for s in servers]
        got = fetch(urls, str(path), checksum=checksum)
        assert CONTENT.fault(path) is None
        received = sum(each.bytes + each.wasted for each in got.snapshot.sources)
        assert received <= SIZE - known + 2 * MB
        # the kernel may hold some of what was sent on a connection that was given up for another
        buffers = 6 * MB if sources > 1 else 0
        assert one.sent + other.sent - before <= SIZE - known + 2 * MB + buffers
    assert os.listdir(tmp_path) == ["object"]


def kept(path: Path, server: Server, **more: object) -> int:
    """A fetch that is stopped in the middle and keeps what it has; returns how much that is."""
    begin = time.monotonic()
    with pytest.raises(TransferError):
        fetch([server.url("/a")], str(path), patience=1, keep=True, **more)
    assert time.monotonic() - begin < 10
    return journalled(path)


def half(limit: int = 20 * MB) -> list[Silent]:
    return [Silent(after=limit, scope="server")]


def test_what_is_kept_is_used(tmp_path: Path) -> None:
    path = tmp_path / "object"
    with Server({"/a": CONTENT}, half()) as server:
        assert kept(path, server, size=SIZE) == 20 * MB
        server.faults, before = [], server.sent
        got = fetch([server.url("/a")], str(path), size=SIZE)
        assert server.sent - before == 20 * MB
    assert CONTENT.fault(path) is None
    assert got.bytes == SIZE


@pytest.mark.parametrize("etag", ["content", None], ids=["another ETag", "no ETag"])
def test_versions_are_not_mixed(etag: str | None, tmp_path: Path) -> None:
    path = tmp_path / "object"
    new = Made(SIZE, seed=12)
    old = Object(CONTENT, etag=etag, modified=None)
    with Server({"/a": old}, half()) as server:
        assert kept(path, server) > 0
    with Server({"/a": Object(new, etag=etag, modified=None)}) as server:
        fetch([server.url("/a")], str(path))
    assert new.fault(path) is None


@pytest.mark.parametrize("damage", ["part", "journal", "other part", "bytes", "link"])
def test_what_is_damaged_is_fetched_anew(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "object"
    part, journal = Path(f"{path}.part"), Path(f"{path}.part.journal")
    outside = tmp_path / "outside"
    outside.write_bytes(b"precious")
    with Server({"/a": CONTENT}, half()) as server:
        kept(path, server, checksum=CONTENT.checksum())
        if damage == "part":
            part.unlink()
        elif damage == "journal":
            journal.write_bytes(os.urandom(100))
        elif damage == "other part":
            part.rename(tmp_path / "moved")
            part.write_bytes(bytes(SIZE))
        elif damage == "bytes":
            with part.open("r+b") as file:
                file.write(b"wrong")
        else:
            part.unlink()
            part.symlink_to(outside)
        server.faults = []
        fetch([server.url("/a")], str(path), checksum=CONTENT.checksum())
    assert CONTENT.fault(path) is None
    assert outside.read_bytes() == b"precious"
    assert not part.exists() and not journal.exists()


def test_with_a_manifest_only_the_damaged_chunk_is_fetched_anew(tmp_path: Path) -> None:
    path = tmp_path / "object"
    chunks = manifest_of(CONTENT, 2 * MB)
    with Server({"/a": CONTENT}, half()) as server:
        known = kept(path, server, manifest=chunks)
        with Path(f"{path}.part").open("r+b") as file:
            file.write(b"wrong")
        server.faults, before = [], server.sent
        fetch([server.url("/a")], str(path), manifest=chunks)
        assert server.sent - before <= SIZE - known + 2 * MB
    assert CONTENT.fault(path) is None


def test_two_processes_do_not_write_the_same_part(tmp_path: Path) -> None:
    from headway.node.transfer.part import Part

    part = Part(str(tmp_path / "object"))
    with Server({"/a": CONTENT}) as server, pytest.raises(TransferError) as caught:
        fetch([server.url("/a")], str(tmp_path / "object"))
    assert caught.value.retryable
    assert "another process" in caught.value.message
    part.close(keep=False)


def test_a_file_that_another_process_has_just_named_is_left_alone(tmp_path: Path) -> None:
    """It opened the part before that got its name, and the lock was free after: not ours."""
    path = tmp_path / "object"
    part = Part(str(path))
    part.write(memoryview(b"whole"), 0)
    real, moments = os.open, iter([True])

    def late(*words: object, **more: object) -> int:
        file = real(*words, **more)  # type: ignore[arg-type]
        if next(moments, False):
            part.finish(5)
            part.close(keep=False)
        return file

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", late)
        with pytest.raises(TransferError, match="has just downloaded object"):
            Part(str(path))
    assert path.read_bytes() == b"whole"


def test_a_name_that_a_killed_process_left_to_a_whole_file_is_dropped(tmp_path: Path) -> None:
    """The file has its own name and still the part's: what comes now must not go into it."""
    path = tmp_path / "object"
    path.write_bytes(b"whole")
    os.link(path, f"{path}.part")
    part = Part(str(path), replace=False)
    part.write(memoryview(b"other"), 0)
    with pytest.raises(TransferError, match="somebody put it there"):
        part.finish(5)
    part.close(keep=False)
    assert path.read_bytes() == b"whole" and os.listdir(tmp_path) == ["object"]


needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")


@needs_root
def test_a_part_of_another_user_is_neither_used_nor_removed(tmp_path: Path) -> None:
    path = tmp_path / "object"
    with Server({"/a": CONTENT}, half()) as server:
        kept(path, server)  # nothing but the journal says which of its bytes are good
        part = Path(f"{path}.part")
        os.chown(part, 12345, 12345)
        before = server.sent
        with pytest.raises(
            NodeError, match=r"object\.part belongs to another user \(12345\)"
        ) as no:
            fetch([server.url("/a")], str(path))
        assert "another path" in no.value.remedy
        assert server.sent == before
    assert part.stat().st_uid == 12345 and not path.exists()


@pytest.mark.parametrize("whose", ["everybody's part", "everybody's journal", "two names", "other"])
def test_bytes_that_somebody_else_could_have_put_there_are_fetched_anew(
    whose: str, tmp_path: Path
) -> None:
    path = tmp_path / "object"
    part, journal = Path(f"{path}.part"), Path(f"{path}.part.journal")
    with Server({"/a": CONTENT}, half()) as server:
        kept(path, server)
        if whose == "everybody's part":
            part.chmod(0o666)
        elif whose == "everybody's journal":
            journal.chmod(0o666)
        elif whose == "two names":
            os.link(journal, tmp_path / "other name")
        elif os.getuid() == 0:
            os.chown(journal, 12345, 12345)
        else:
            pytest.skip("only root can give a file away")
        with part.open("r+b") as file:  # in the middle of what the journal calls good
            file.write(b"planted")
        held = part.open("r+b")
        server.faults = []
        fetch([server.url("/a")], str(path))
        if whose == "everybody's part":
            held.seek(0)
            held.write(b"planted")  # who has it open does not have the new one
        held.close()
    assert CONTENT.fault(path) is None


@pytest.mark.parametrize("sources", [1, 2])
def test_a_disk_that_is_too_small(sources: int, tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk; the kernel says so in the same way."""
    code = (
        "import sys, signal, resource; from headway.node.transfer import fetch; "
        "from headway.node.errors import NodeError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({10 * MB}, {10 * MB}))\n"
        "try: fetch(sys.argv[2:], sys.argv[1])\n"
        "except NodeError as error: print(error.message)"
    )
    with Server({"/a": CONTENT}) as one, Server({"/a": CONTENT}) as other:
        urls = [one.url("/a"), other.url("/a")][:sources]
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "object"), *urls],
            capture_output=True,
            text=True,
            timeout=30,
        )
    assert "disk is full: object" in done.stdout, done.stderr
    assert os.listdir(tmp_path) == []


def test_a_file_system_that_is_too_small(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        with Server({"/a": CONTENT}) as server, pytest.raises(NodeError) as caught:
            fetch([server.url("/a")], str(folder / "object"))
        assert "disk is full" in caught.value.message
        assert os.listdir(folder) == []
        assert server.sent < 12 * MB  # it was known before the bytes came
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_size_beyond_the_disk_is_refused_before_any_of_it_is_taken(tmp_path: Path) -> None:
    part = Part(str(tmp_path / "object"))
    with pytest.raises(DiskError, match=r"needs 1000000000000000 bytes, and [0-9]+ are free"):
        part.reserve(10**15)
    assert os.fstat(part.file).st_blocks == 0
    part.close(keep=False)


def test_memory_does_not_grow_with_the_object(tmp_path: Path) -> None:
    code = (
        "import sys; from headway.node.transfer import fetch\n"
        "fetch([sys.argv[1]], sys.argv[2], checksum=sys.argv[3])\n"
        "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"
    )
    with (
        Made(150 * MB, seed=1).write(tmp_path / "source") as large,
        Server({"/a": large}) as server,
    ):
        done = subprocess.run(
            [sys.executable, "-c", code, server.url("/a"), str(tmp_path / "o"), large.checksum()],
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) * 1024 < 80e6
