"""Inputs that come to a node's store before their job does, as real agents bring them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.lab import Hang, Made, Server, Silent, Status
from tests.lab.faults import Fault
from tests.node.conftest import Chirp, Node, wait

from headway.node.classad import read_old_ad
from headway.node.errors import ENDED_BY_POOL, Exit
from headway.node.store.ahead import Ahead, mark
from headway.node.store.folder import Held, Settings, Store, create_store

RUN = "1f2e3d4c5b6a79881f2e3d4c5b6a7988"
CONTENT, OTHER = (Made(20 << 20, seed=seed) for seed in (1, 2))


class Site:
    """A node with a store, on which another job of the run computes."""

    def __init__(self, folder: Path, pyz: Path, chirp: Chirp) -> None:
        self.folder, self._pyz, self.chirp = folder, pyz, chirp
        self.root = folder / "store"
        create_store(str(self.root), Settings(share_inputs=True))
        self.nodes: list[Node] = []
        self.computing: Held | None = None

    def compute(self) -> None:
        self.computing = Ahead(Store(str(self.root))).compute(mark(RUN, "0"))

    def node(self, url: str, *, transfer: bool, **more: Any) -> Node:
        node = Node(self.folder / f"scratch{len(self.nodes)}", self._pyz, self.chirp)
        self.nodes.append(node)
        machine = f'Name = "slot{2 if transfer else "1_1"}@node.example.org"\n'
        machine += f'HeadwayStore = "{self.root}"\nHeadwayTransferSlots = 4\n'
        machine += f"HeadwayTransferSlot = {str(transfer).lower()}\n"
        job = f"{self.ad_text()}\nNumShadowStarts = {len(self.nodes)}\n"
        for name, text in (("machine", machine), ("job", job)):
            (node.folder / f".{name}.ad").write_text(text)
            node.environment[f"_CONDOR_{name.upper()}_AD"] = str(node.folder / f".{name}.ad")
        given = {"urls": [url], "path": "in.bin", "patience": 1.0, **more}
        node.plan("cp in.bin out.bin", run=RUN, inputs=[given], prefetch=True)
        node.row(job="1")
        return node

    def ad_text(self) -> str:
        """The job's ad, as HTCondor has it after what the agents have set by chirp."""
        lines = []
        for raw in self.chirp.raw:
            words = raw.decode().rstrip("\n").split(" ", 2)
            if words[0] == "set_job_attr":
                lines.append(f"{words[1]} = {words[2]}")
        return "\n".join(lines)

    def ad(self) -> dict[str, Any]:
        return dict(read_old_ad(self.ad_text()))

    @property
    def kept(self) -> list[str]:
        return sorted(os.listdir(Store(str(self.root)).inputs))

    def marks(self, kind: str) -> list[str]:
        return os.listdir(Path(Store(str(self.root)).home, kind))


@pytest.fixture
def site(tmp_path: Path, pyz: Path, chirp: Chirp) -> Iterator[Site]:
    made = Site(tmp_path, pyz, chirp)
    yield made
    for node in made.nodes:
        for process in node.started:
            if process.poll() is None:
                process.kill()
                process.communicate()


@pytest.mark.parametrize("proof", ["none", "checksum"])
@pytest.mark.parametrize("shared", [True, False])
def test_the_job_finds_what_came(site: Site, proof: str, shared: bool) -> None:
    create_store(str(site.root), Settings(shared_account=shared, share_inputs=True))
    site.compute()
    more = {"checksum": CONTENT.checksum()} if proof == "checksum" else {}
    with Server({"/a": CONTENT}) as server:
        waiting = site.node(server.url("/a"), transfer=True, **more)
        assert waiting.run() == Exit.BAD_NODE, waiting.stderr  # never 0
        assert server.sent == CONTENT.size and len(site.kept) == 1
        assert site.kept[0] == f"sha256-{CONTENT.digest('sha256')}"
        ad = site.ad()
        assert ad["headwayprefetchedat"] == "node.example.org" and ad["headwayprefetch"] == 1
        assert ad["headwaysteps"] == 1 and ad["headwayprefetcheduntil"] > 1e9
        assert site.marks("ahead") == [mark(RUN, "1")] and site.marks("coming") == []
        record = waiting.record()
        assert [phase["name"] for phase in record["phases"]] == ["prefetch"]
        assert record["phases"][0]["bytes"] == CONTENT.size and record["inputs"][0]["fetched"]
        assert record["command"] is None and not (waiting.folder / "in.bin").exists()

        job = site.node(server.url("/a"), transfer=False, **more)
        assert job.run() == 0, job.stderr
        assert server.sent == CONTENT.size, "it was downloaded again"
    assert CONTENT.fault(job.folder / "out.bin") is None
    [given] = job.record()["inputs"]
    assert (given["source"], given["fetched"]) == ("store", False)
    assert site.marks("ahead") == [], "it has come"
    assert sorted(site.marks("active")) == [mark(RUN, "0"), mark(RUN, "1")]


def test_another_version_is_not_taken(site: Site) -> None:
    site.compute()
    with Server({"/a": CONTENT}) as server:
        assert site.node(server.url("/a"), transfer=True).run() == Exit.BAD_NODE
        server.store["/a"] = OTHER
        job = site.node(server.url("/a"), transfer=False)
        assert job.run() == 0, job.stderr
    assert OTHER.fault(job.folder / "out.bin") is None and job.record()["inputs"][0]["fetched"]


def test_a_forged_copy_is_not_taken(site: Site) -> None:
    """Under a shared account, by what another job has put there."""
    site.compute()
    with Server({"/a": CONTENT}) as server:
        assert site.node(server.url("/a"), transfer=True).run() == Exit.BAD_NODE
        data = Path(Store(str(site.root)).inputs, site.kept[0], "data")
        about = data.stat()
        data.chmod(0o644)
        with data.open("r+b") as file:
            file.seek(5 << 20)
            file.write(b"forged")
        data.chmod(0o444)
        os.utime(data, ns=(about.st_atime_ns, about.st_mtime_ns))
        job = site.node(server.url("/a"), transfer=False)
        assert job.run() == 0, job.stderr
    assert CONTENT.fault(job.folder / "out.bin") is None and job.record()["inputs"][0]["fetched"]


def test_nothing_comes_that_is_not_wanted(site: Site) -> None:
    with Server({"/a": CONTENT}) as server:
        waiting = site.node(server.url("/a"), transfer=True)
        assert waiting.run() == Exit.BAD_NODE
        assert server.sent == 0
    ad = site.ad()
    assert "headwayprefetchedat" not in ad and ad["headwayprefetch"] == ad["headwaysteps"] == 1
    assert "no more inputs are wanted" in waiting.stderr


@pytest.mark.parametrize("trouble", ["refused", "silent", "no store", "no inputs", "full"])
def test_whatever_goes_wrong_the_job_only_waits_on(site: Site, trouble: str) -> None:
    site.compute()
    faults: dict[str, list[Fault]] = {"refused": [Status(403)], "silent": [Silent(after=1 << 20)]}
    if trouble == "no store":
        site.root.rename(site.folder / "away")
    elif trouble == "no inputs":
        create_store(str(site.root), Settings())
    elif trouble == "full":
        create_store(str(site.root), Settings(share_inputs=True, quota=1 << 20))
    with Server({"/a": CONTENT}, faults.get(trouble, [])) as server:
        waiting = site.node(server.url("/a"), transfer=True)
        assert waiting.run() == Exit.BAD_NODE, waiting.stderr
    ad = site.ad()
    assert "headwayprefetchedat" not in ad and ad["headwayprefetch"] == ad["headwaysteps"] == 1
    assert "the inputs did not come" in waiting.stderr
    if trouble != "no store":
        assert site.kept == site.marks("coming") == site.marks("ahead") == []


@pytest.mark.parametrize("how", ["evicted", "killed"])
def test_a_prefetch_that_is_ended(site: Site, how: str) -> None:
    site.compute()
    with Server({"/a": CONTENT}, [Hang("request").on("/a").methods("GET")]) as server:
        waiting = site.node(server.url("/a"), transfer=True)
        process = waiting.start()
        wait(lambda: any(each.method == "GET" for each in server.requests))
        assert site.marks("coming") == [mark(RUN, "1")]
        assert site.ad()["headwayprefetch"] == 1, "it was said too late"
        process.terminate() if how == "evicted" else process.kill()
        code = waiting.end(process)
    assert code == (ENDED_BY_POOL if how == "evicted" else -9)
    # HTCondor counts an attempt that was killed as one that ended, but not one that it evicts
    assert site.ad()["headwaysteps"] == (0 if how == "evicted" else 1)
    assert Ahead(Store(str(site.root))).wanted() == [RUN[:8]]


def test_where_nobody_can_be_told_nothing_is_downloaded(site: Site) -> None:
    site.compute()
    site.chirp.answer = b"-1\n"  # the starter refuses
    with Server({"/a": CONTENT}) as server:
        waiting = site.node(server.url("/a"), transfer=True)
        process = waiting.start()
        wait(lambda: len(site.chirp.raw) > 2)
        process.terminate()
        assert waiting.end(process) == ENDED_BY_POOL
        assert server.sent == 0
