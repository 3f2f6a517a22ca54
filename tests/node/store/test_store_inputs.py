"""Inputs that stay on a node, as its jobs meet them: real agents, a real store, real servers."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.lab import Flip, Headers, LyingHead, Made, Rate, Server, Validators
from tests.node.conftest import Chirp, Node, wait

from headway.node.errors import Exit
from headway.node.store.folder import FACTS, Entry, Settings, Store, create_store
from headway.node.store.inputs import SMALL
from headway.node.transfer.manifest import digest_of, make_manifest

SIZE = SMALL + (4 << 20)
LARGE = Made(SIZE, seed=17)


def sha256(content: Made | bytes) -> str:
    data = content if isinstance(content, bytes) else content.read(0, content.size)
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class Site:
    """A node with a store, on which one job follows the other."""

    def __init__(self, folder: Path, pyz: Path, chirp: Chirp, settings: Settings) -> None:
        self.folder, self._pyz, self._chirp = folder, pyz, chirp
        self.root = folder / "store"
        create_store(str(self.root), settings)
        self.nodes: list[Node] = []

    def job(self, command: str, url: str, **more: Any) -> Node:
        """A new scratch folder, with the plan of a job that has one input."""
        node = Node(self.folder / f"scratch{len(self.nodes)}", self._pyz, self._chirp)
        self.nodes.append(node)
        ad = node.folder / ".machine.ad"
        ad.write_text(f'HeadwayStore = "{self.root}"\nName = "slot1@node"\n')
        node.environment["_CONDOR_MACHINE_AD"] = str(ad)
        node.plan(command, inputs=[{"urls": [url], "path": "data.bin", **more}])
        return node

    def run(self, command: str, url: str, **more: Any) -> dict[str, Any]:
        """Run such a job; what its record says about the input."""
        node = self.job(command, url, **more)
        assert node.run() == 0, node.stderr
        found: dict[str, Any] = node.record()["inputs"][0]
        return found

    def log(self) -> str:
        return (self.nodes[-1].attempt() / "agent.log").read_text()

    def entries(self) -> list[Entry]:
        return Store(str(self.root)).entries()

    def close(self) -> None:
        for node in self.nodes:
            for process in node.started:
                if process.poll() is None:
                    process.send_signal(signal.SIGKILL)
                    process.communicate()


@pytest.fixture
def site(tmp_path: Path, pyz: Path, chirp: Chirp) -> Iterator[Site]:
    made = Site(tmp_path, pyz, chirp, Settings(shared_account=False))
    yield made
    made.close()


@pytest.fixture
def pilot(tmp_path: Path, pyz: Path, chirp: Chirp) -> Iterator[Site]:
    """A node where several people's jobs run under one account."""
    made = Site(tmp_path, pyz, chirp, Settings(share_inputs=True))
    yield made
    made.close()


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    place = tmp_path / "store"
    place.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m,mode=700", "tmpfs", str(place)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def gets(server: Server) -> int:
    return len(server.ranges)


@pytest.mark.parametrize("content", [LARGE, Made(5000, seed=2)], ids=["large", "small"])
@pytest.mark.parametrize("declared", ["checksum", "manifest", "nothing"])
def test_the_next_job_has_its_input_at_once(
    site: Site, tmp_path: Path, content: Made, declared: str
) -> None:
    data = content.read(0, content.size)
    (tmp_path / "object").write_bytes(data)
    manifest = make_manifest(str(tmp_path / "object"))
    more = {"checksum": {"checksum": sha256(data)}, "manifest": {"manifest": digest_of(manifest)}}
    with Server({"/a": content, "/a.headway": manifest}) as server:
        command = "cat data.bin | sha256sum"
        first = site.run(command, server.url("/a"), **more.get(declared, {}))
        seen = gets(server)
        second = site.run(command, server.url("/a"), **more.get(declared, {}))
        assert gets(server) == seen
        assert declared != "nothing" or server.requests[-1].method == "HEAD"
    assert first["fetched"] and not second["fetched"]
    assert second["source"] == "store" and second["bytes"] == content.size
    assert second["proof"] == first["proof"] and second["verified"] == (declared != "nothing")
    sums = [node.stdout().split()[0] for node in site.nodes]
    assert sums == [sha256(data)[7:]] * 2
    one, two = (node.folder / "data.bin" for node in site.nodes)
    entry = max(site.entries(), key=lambda each: each.size)
    assert len(site.entries()) == 1 + (declared == "manifest")
    assert not (site.nodes[0].folder / "data.bin.headway").exists()
    assert "from the node's store" in site.log()
    if content.size > SMALL:
        assert os.path.samefile(one, two) and os.stat(one).st_mode & 0o222 == 0
        assert os.stat(entry.data).st_nlink == 3
    else:
        assert not os.path.samefile(one, two) and os.stat(one).st_mode & 0o200
    assert os.listdir(Path(entry.folder).parent.parent / "drafts") == []


def test_an_object_that_changed_is_fetched_again(site: Site) -> None:
    with Server({"/a": b"first"}) as server:
        url = server.url("/a")
        for number, content in enumerate((b"first", b"first", b"other", b"other")):
            server.store["/a"] = content
            found = site.run("cat data.bin", url)
            assert site.nodes[-1].stdout().encode() == content
            assert found["fetched"] == (number in (0, 2))
    assert len(site.entries()) == 1


def test_what_no_server_can_vouch_for_is_not_kept(site: Site) -> None:
    """Neither ETag nor digest, and a date of a moment ago: another version may have the same."""
    with Server(
        {"/a": b"data"}, [Headers((("ETag", None),)), Validators(modified="now")]
    ) as server:
        for _ in range(2):
            assert site.run("cat data.bin", server.url("/a"))["fetched"]
    assert site.entries() == []


def test_a_job_may_say_that_nothing_is_kept(site: Site) -> None:
    with Server({"/a": b"data"}) as server:
        for _ in range(2):
            more = {"checksum": sha256(b"data"), "store": False}
            assert site.run("true", server.url("/a"), **more)["fetched"]
    assert site.entries() == []


def test_a_file_here_is_not_kept_twice(site: Site, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"data")
    assert site.run("true", f"file://{tmp_path}/a", checksum=sha256(b"data"))["fetched"]
    assert site.entries() == []


@pytest.mark.parametrize("declared", ["checksum", "nothing"])
def test_damaged_bytes_are_found_and_fetched_again(site: Site, declared: str) -> None:
    """A disk that gives other bytes changes neither the size nor the time of a file."""
    more = {"checksum": sha256(LARGE)} if declared == "checksum" else {}
    with Server({"/a": LARGE}) as server:
        site.run("true", server.url("/a"), **more)
        [entry] = site.entries()
        os.chmod(entry.data, 0o600)
        with open(entry.data, "r+b") as file:
            file.seek(SIZE - 10)
            file.write(bytes(10))
        os.chmod(entry.data, 0o444)
        os.utime(entry.data, ns=(0, entry.facts["mtime_ns"]))
        assert not entry.fault()
        found = site.run("sha256sum < data.bin", server.url("/a"), **more)
    assert found["fetched"] and site.nodes[-1].stdout().split()[0] == sha256(LARGE)[7:]
    assert "were damaged" in site.log()


def test_two_jobs_share_one_download(site: Site) -> None:
    with Server({"/a": LARGE}, [Rate(8e6)]) as server:
        more = {"checksum": sha256(LARGE)}
        jobs = [site.job("sha256sum < data.bin", server.url("/a"), **more) for _ in range(3)]
        processes = [job.start() for job in jobs]
        assert [job.end(each) for job, each in zip(jobs, processes, strict=True)] == [0, 0, 0]
        assert server.sent < 1.5 * SIZE
    fetched = sorted(job.record()["inputs"][0]["fetched"] for job in jobs)
    assert fetched == [False, False, True]
    assert {job.stdout().split()[0] for job in jobs} == {sha256(LARGE)[7:]}


def test_after_a_kill_the_next_job_goes_on_with_the_download(site: Site) -> None:
    with Server({"/a": LARGE}, [Rate(8e6)]) as server:
        more = {"checksum": sha256(LARGE)}
        first = site.job("true", server.url("/a"), **more)
        process = first.start()
        wait(lambda: server.sent > SIZE // 2)
        second = site.job("sha256sum < data.bin", server.url("/a"), **more)
        other = second.start()
        process.kill()
        process.communicate()
        assert second.end(other) == 0, second.stderr
        assert server.sent < 1.6 * SIZE
    assert second.stdout().split()[0] == sha256(LARGE)[7:]
    assert os.listdir(Store(str(site.root)).drafts) == []


def test_an_eviction_leaves_what_has_arrived_to_the_next(site: Site) -> None:
    with Server({"/a": LARGE}, [Rate(8e6)]) as server:
        more = {"checksum": sha256(LARGE)}
        first = site.job("true", server.url("/a"), **more)
        process = first.start()
        wait(lambda: server.sent > SIZE // 2)
        process.terminate()
        assert first.end(process) != 0
        server.faults = []
        assert site.run("true", server.url("/a"), **more)["fetched"]
        assert server.sent < 1.6 * SIZE


def test_a_hung_download_is_not_waited_for_for_ever(site: Site) -> None:
    """The other agent is stopped, as on a node that swaps: this one fetches for itself."""
    with Server({"/a": LARGE}, [Rate(8e6)]) as server:
        more = {"checksum": sha256(LARGE), "patience": 1.0}
        first = site.job("true", server.url("/a"), **more)
        process = first.start()
        wait(lambda: server.sent > SIZE // 4)
        process.send_signal(signal.SIGSTOP)
        server.faults = []
        assert site.run("true", server.url("/a"), **more)["fetched"]
        process.kill()
        process.communicate()


def test_wrong_bytes_are_not_kept(site: Site) -> None:
    with Server({"/a": LARGE}, [Flip(1000)]) as server:
        job = site.job("true", server.url("/a"), checksum=sha256(LARGE), patience=1.0)
        assert job.run() in (Exit.INPUT_FAILED, Exit.INPUT_RETRYABLE)
        server.faults = []
        assert site.entries() == []
        assert site.run("true", server.url("/a"), checksum=sha256(LARGE))["fetched"]


def test_an_input_larger_than_the_store_is_fetched_as_ever(
    tmp_path: Path, pyz: Path, chirp: Chirp
) -> None:
    site = Site(tmp_path, pyz, chirp, Settings(quota=3000, shared_account=False))
    try:
        with Server({"/a": Made(2000, seed=1), "/b": Made(2000, seed=2), "/c": LARGE}) as server:
            for name in "abc":
                assert site.run("test -s data.bin", server.url(f"/{name}"))["fetched"]
            assert [entry.facts["urls"][0][-1] for entry in site.entries()] == ["b"]
            assert site.run("true", server.url("/a"))["fetched"]
            assert not site.run("true", server.url("/a"))["fetched"]
    finally:
        site.close()


def test_a_stream_fills_the_store_and_reads_from_it(site: Site, tmp_path: Path) -> None:
    (tmp_path / "object").write_bytes(LARGE.read(0, SIZE))
    manifest = make_manifest(str(tmp_path / "object"))
    more = {"manifest": digest_of(manifest), "mode": "stream"}
    with Server({"/a": LARGE, "/a.headway": manifest}) as server:
        first = site.run(
            "until [ -e data.bin ]; do sleep 0.1; done; sleep 1", server.url("/a"), **more
        )
        assert first["mode"] == "stream"
        assert len(site.entries()) == 2, site.log()
        asked = len(server.requests)
        second = site.run("sha256sum < data.bin", server.url("/a"), **more)
        assert len(server.requests) == asked
    assert second["source"] == "store" and second["proof"] == "manifest"
    assert site.nodes[-1].stdout().split()[0] == sha256(LARGE)[7:]


# -- what may be wrong with a store


def test_a_copy_that_does_not_fit_is_not_delivered(site: Site) -> None:
    """The store has room, and the job's own folder has none: half of a file is no input."""
    small = Made(3 << 20, seed=5)
    with Server({"/a": small}) as server:
        more = {"checksum": sha256(small)}
        site.run("true", server.url("/a"), **more)
        job = site.job("true", server.url("/a"), **more)
        names = (".machine.ad", ".chirp.config", "plan.json")
        files = {name: (job.folder / name).read_bytes() for name in names}
        mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(job.folder)]
        if os.getuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
            pytest.skip("mounting a small file system needs root")
        try:
            for name, data in files.items():
                (job.folder / name).write_bytes(data)
            assert job.run() == Exit.BAD_NODE
            assert not (job.folder / "data.bin").exists()
        finally:
            subprocess.run(["umount", "-l", str(job.folder)], check=True)
    assert len(site.entries()) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"pieces": None}, {"pieces": [[1]]}, {"pieces": [["a", "b", "c"]]}, {"version": 7},
        {"version": {}}, {"size": 1e400}, {"kept": "today"}, {"proof": None}, {"urls": 3},
    ],
)  # fmt: skip
@pytest.mark.parametrize("declared", ["checksum", "nothing"])
def test_an_odd_description_fails_no_job(site: Site, change: dict[str, Any], declared: str) -> None:
    data = b"small"
    more = {"checksum": sha256(data)} if declared == "checksum" else {}
    with Server({"/a": data}) as server:
        site.run("true", server.url("/a"), **more)
        [entry] = site.entries()
        text = json.dumps({**entry.facts, **change}).replace("Infinity", "1e400")
        Path(entry.folder, FACTS).write_text(text)
        for _ in range(2):
            site.run("cat data.bin", server.url("/a"), **more)
            assert site.nodes[-1].stdout() == "small"


def test_a_store_on_a_full_disk_fails_no_job(elsewhere: Path, site: Site) -> None:
    """It is full of something else, and the job's own disk is not."""
    full = os.open(elsewhere / "full", os.O_WRONLY | os.O_CREAT)
    with pytest.raises(OSError, match="No space"):
        while True:
            os.write(full, bytes(4096))
    os.close(full)
    with Server({"/a": LARGE}) as server:
        found = site.run("sha256sum < data.bin", server.url("/a"), checksum=sha256(LARGE))
    assert found["fetched"] and site.nodes[-1].stdout().split()[0] == sha256(LARGE)[7:]
    assert not (site.nodes[-1].folder / "data.bin").is_symlink()


def test_a_stream_that_the_command_has_changed_is_not_passed_on(site: Site, tmp_path: Path) -> None:
    (tmp_path / "object").write_bytes(LARGE.read(0, SIZE))
    manifest = make_manifest(str(tmp_path / "object"))
    more = {"manifest": digest_of(manifest)}
    change = "printf x | dd of=data.bin bs=1 seek=1000000 conv=notrunc 2> /dev/null"
    waits = f"until [ -e data.bin ]; do sleep 0.1; done; chmod u+w data.bin; {change}; sleep 1"
    with Server({"/a": LARGE, "/a.headway": manifest}) as server:
        site.run(waits, server.url("/a"), **more, mode="stream")
        for _ in range(2):
            site.run("sha256sum < data.bin", server.url("/a"), **more)
            assert site.nodes[-1].stdout().split()[0] == sha256(LARGE)[7:]


def test_bytes_of_another_version_than_was_told_are_not_kept(site: Site) -> None:
    """A HEAD speaks of the new version, and the GET brings the old one from a stale cache."""
    with Server({"/a": b"old"}, [LyingHead(etag='"new"').methods("HEAD")]) as server:
        assert site.run("cat data.bin", server.url("/a"))["fetched"]
        assert site.entries() == []
        server.faults = []
        server.store["/a"] = b"new"
        site.run("cat data.bin", server.url("/a"))
    assert site.nodes[-1].stdout() == "new"


def test_downloads_that_were_given_up_make_room(site: Site) -> None:
    store = Store(str(site.root))
    (Path(store.drafts) / "left").mkdir()
    (Path(store.drafts) / "left" / "data.part").write_bytes(bytes(5 << 20))
    assert store.make_room(at_least=1 << 20)
    assert os.listdir(store.drafts) == []


def test_what_a_job_has_linked_gives_no_room(site: Site) -> None:
    with Server({"/a": LARGE}) as server:
        site.run("true", server.url("/a"), checksum=sha256(LARGE))
    assert not Store(str(site.root)).make_room(at_least=1)
    assert len(site.entries()) == 1, "its disk space stays taken anyway"


# -- where an account is shared


def test_in_a_shared_account_nothing_is_kept_unless_the_administrator_says_so(
    tmp_path: Path, pyz: Path, chirp: Chirp
) -> None:
    site = Site(tmp_path, pyz, chirp, Settings())
    try:
        with Server({"/a": LARGE}) as server:
            for _ in range(2):
                assert site.run("true", server.url("/a"), checksum=sha256(LARGE))["fetched"]
        assert site.entries() == []
    finally:
        site.close()


def test_in_a_shared_account_every_byte_is_proven(pilot: Site) -> None:
    """Somebody with the same account puts other bytes there, and describes them as they are."""
    with Server({"/a": LARGE}) as server:
        more = {"checksum": sha256(LARGE)}
        pilot.run("true", server.url("/a"), **more)
        assert not pilot.run("true", server.url("/a"), **more)["fetched"]
        [entry] = pilot.entries()
        poison = bytearray(LARGE.read(0, SIZE))
        poison[SIZE // 3] ^= 1
        shutil.rmtree(entry.folder)
        draft = Store(str(pilot.root)).draft(entry.name)
        assert draft is not None
        Path(draft.data).write_bytes(poison)
        pieces = [[0, SIZE, hashlib.sha256(poison).hexdigest()]]
        draft.finish({**entry.facts, "pieces": pieces})
        draft.close()
        found = pilot.run("sha256sum < data.bin", server.url("/a"), **more)
    assert found["fetched"] and pilot.nodes[-1].stdout().split()[0] == sha256(LARGE)[7:]


def test_in_a_shared_account_what_nothing_proves_is_not_kept(pilot: Site) -> None:
    with Server({"/a": LARGE}) as server:
        for _ in range(2):
            assert pilot.run("true", server.url("/a"))["fetched"]
    assert pilot.entries() == []


# -- another file system


def test_a_store_on_another_file_system_is_read_in_place(elsewhere: Path, site: Site) -> None:
    with Server({"/a": LARGE}) as server:
        more = {"checksum": sha256(LARGE)}
        for number in range(2):
            found = site.run("sha256sum < data.bin", server.url("/a"), **more)
            assert found["fetched"] == (number == 0)
            assert site.nodes[-1].stdout().split()[0] == sha256(LARGE)[7:]
            assert (site.nodes[-1].folder / "data.bin").is_symlink()
        job = site.job(
            "touch began; until [ -e go ]; do sleep 0.05; done; sha256sum < data.bin",
            server.url("/a"),
            **more,
        )
        process = job.start()
        job.wait_for("began")
        store = Store(str(site.root))
        assert not store.make_room(at_least=1), "it is being read"
        (job.folder / "go").touch()
        assert job.end(process) == 0
        assert job.stdout().split()[0] == sha256(LARGE)[7:]
        assert store.make_room(at_least=1) and store.entries() == []


def test_a_full_store_makes_room_for_the_next_input(elsewhere: Path, site: Site) -> None:
    """Three inputs of 20 MiB do not fit on 64 MiB beside what is there."""
    contents = {f"/{name}": Made(SIZE, seed=n) for n, name in enumerate("abcd")}
    with Server(contents) as server:
        for path, content in contents.items():
            found = site.run("sha256sum < data.bin", server.url(path), checksum=sha256(content))
            assert found["fetched"]
            assert site.nodes[-1].stdout().split()[0] == sha256(content)[7:]
    assert 1 <= len(site.entries()) <= 3
    assert time.time() - site.entries()[-1].used < 600


def test_a_job_that_continues_after_a_checkpoint_holds_what_it_reads_in_place(
    elsewhere: Path, site: Site
) -> None:
    with Server({"/a": LARGE}) as server:
        command = (
            "if [ -e ckpt ]; then touch again; until [ -e go ]; do sleep 0.05; done;"
            " sha256sum < data.bin; else touch ckpt; exit 85; fi"
        )
        job = site.job(command, server.url("/a"), checksum=sha256(LARGE))
        plan = json.loads((job.folder / "plan.json").read_text())
        plan["checkpoint"] = {"paths": ["ckpt"], "exit_code": 85}
        (job.folder / "plan.json").write_text(json.dumps(plan))
        assert job.run() == Exit.CHECKPOINT
        process = job.start()
        job.wait_for("again")
        assert not Store(str(site.root)).make_room(at_least=1), "it is being read"
        (job.folder / "go").touch()
        assert job.end(process) == 0, job.stderr
    assert job.stdout().split()[0] == sha256(LARGE)[7:]
