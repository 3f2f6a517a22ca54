"""Outputs that wait in a node's store, as two real agents see it: the job and its courier."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.lab import Fault, Hang, Server, Status
from tests.node.conftest import Chirp, Node, wait

from headway.node.classad import read_old_ad
from headway.node.errors import ENDED_BY_POOL, Exit
from headway.node.store.folder import Settings, Store, create_store
from headway.node.store.sandboxes import FILES, TAKEN_AGE, TICKET, Sandboxes

DELIVER = {"smallest": 10, "stays": 3600.0}
COMMAND = "mkdir -p out/deep; echo result > out/deep/a; : > out/empty; echo more > b"
DECLARED = [{"path": "out"}, {"path": "b"}]
LATER = {"outputs": DECLARED, "deliver": DELIVER}


class Yard:
    """A node with a store, a slot for jobs and a transfer slot."""

    def __init__(self, folder: Path, pyz: Path, chirp: Chirp) -> None:
        self.folder, self._pyz, self.chirp = folder, pyz, chirp
        self.root = folder / "store"
        create_store(str(self.root), Settings())
        self.nodes: list[Node] = []

    def node(self, *, transfer: bool = False, ad: str = "") -> Node:
        node = Node(self.folder / f"scratch{len(self.nodes)}", self._pyz, self.chirp)
        self.nodes.append(node)
        machine = f'Name = "slot1_1@7@node.example.org"\nHeadwayStore = "{self.root}"\n'
        machine += f"HeadwayTransferSlot = {str(transfer).lower()}\n"
        for name, text in (("machine", machine), ("job", ad)):
            (node.folder / f".{name}.ad").write_text(text)
            node.environment[f"_CONDOR_{name.upper()}_AD"] = str(node.folder / f".{name}.ad")
        node.plan(COMMAND, **LATER)
        return node

    def ad(self) -> dict[str, Any]:
        """The job's ad, as HTCondor has it after what the agents have set by chirp."""
        lines = []
        for raw in self.chirp.raw:
            words = raw.decode().rstrip("\n").split(" ", 2)
            if words[0] == "set_job_attr":
                lines.append(f"{words[1]} = {words[2]}")
        self.text = "\n".join(lines)
        return dict(read_old_ad(self.text))

    @property
    def sandboxes(self) -> Sandboxes:
        return Sandboxes(Store(str(self.root)))


@pytest.fixture
def yard(tmp_path: Path, pyz: Path, chirp: Chirp) -> Iterator[Yard]:
    made = Yard(tmp_path, pyz, chirp)
    yield made
    for node in made.nodes:
        for process in node.started:
            if process.poll() is None:
                process.kill()
                process.communicate()


def home(node: Node) -> dict[str, str]:
    """What HTCondor would bring home as outputs."""
    place = node.folder / "headway-out" / "outputs"
    return {
        str(path.relative_to(place)): path.read_text()
        for path in sorted(place.rglob("*"))
        if path.is_file()
    }


WHOLE = {"b": "more\n", "out/deep/a": "result\n", "out/empty": ""}


def test_a_job_leaves_its_outputs_and_a_courier_brings_them(yard: Yard) -> None:
    job = yard.node()
    assert job.run() == 0, job.stderr
    assert home(job) == {} and [size for _, size in yard.sandboxes.held()] == [12]
    ad = yard.ad()
    assert ad["headwaysandboxat"] == "7@node.example.org"
    assert isinstance(ad["headwaydeliversince"], int)
    assert job.record()["outputs"][0]["bytes"] == 7 and job.record()["exit"] == 0
    for _ in range(2):  # the first one is evicted before its files are home
        courier = yard.node(transfer=True, ad=yard.text)
        assert courier.run() == 0, courier.stderr
        assert home(courier) == WHOLE
    record = courier.record()
    assert [phase["name"] for phase in record["phases"]] == ["deliver"]
    assert record["phases"][0]["bytes"] == 12 and record["command"] is None
    assert [(each["path"], each["bytes"]) for each in record["outputs"]] == [("out", 7), ("b", 5)]


def test_small_outputs_go_home_with_their_job(yard: Yard) -> None:
    job = yard.node()
    job.plan(COMMAND, outputs=DECLARED, deliver={"smallest": 1000, "stays": 60})
    assert job.run() == 0
    assert home(job) == WHOLE and yard.sandboxes.held() == [] and yard.ad() == {}


def test_without_a_store_they_go_home_with_their_job(yard: Yard) -> None:
    shutil.rmtree(yard.root)
    job = yard.node()
    assert job.run() == 0
    assert home(job) == WHOLE and yard.ad() == {}
    log = (job.attempt() / "agent.log").read_text()
    assert "go home with the job: the store" in log and "No such file" in log


def test_without_transfer_slots_they_go_home_with_their_job(yard: Yard) -> None:
    job = yard.node()
    machine = job.folder / ".machine.ad"
    machine.write_text(machine.read_text().replace("HeadwayTransferSlot = false\n", ""))
    assert job.run() == 0
    assert home(job) == WHOLE and yard.sandboxes.held() == [] and yard.ad() == {}
    log = (job.attempt() / "agent.log").read_text()
    assert "go home with the job: this node has no transfer slots" in log


def test_what_was_left_in_vain_goes_home_with_its_job(yard: Yard) -> None:
    """Its node did not come back in time: nobody waits for a courier once more."""
    assert yard.node().run() == 0
    yard.ad()
    again = yard.node(ad=yard.text)
    assert again.run() == 0 and home(again) == WHOLE
    assert (again.folder / "headway-out" / "ticket.json").read_text() == "{}"


def test_where_nobody_can_be_told_they_go_home_with_their_job(yard: Yard) -> None:
    yard.chirp.answer = b"-1\n"  # the starter refuses
    job = yard.node()
    assert job.run() == 0
    assert home(job) == WHOLE and yard.sandboxes.held() == []
    assert "cannot be told of a sandbox" in (job.attempt() / "agent.log").read_text()


def test_a_missing_output_is_not_handed_over(yard: Yard) -> None:
    job = yard.node()
    job.plan("echo more > b", **LATER)
    assert job.run() == Exit.OUTPUT_MISSING
    assert yard.sandboxes.held() == [] and yard.ad() == {}


@pytest.mark.parametrize("damage", ["lost", "changed", "forged"])
def test_a_lost_sandbox_is_computed_again(yard: Yard, damage: str) -> None:
    assert yard.node().run() == 0
    yard.ad()
    [(name, _)] = yard.sandboxes.held()
    place = Path(Store(str(yard.root)).sandboxes, name)
    if damage == "lost":
        assert yard.sandboxes.drop(name)
    elif damage == "changed":
        (place / FILES / "b").write_text("pore\n")
    else:
        (place / FILES / "b").write_text("pore\n")
        true, other = (hashlib.sha256(data).hexdigest() for data in (b"more\n", b"pore\n"))
        ticket = (place / TICKET).read_text()
        assert true in ticket
        (place / TICKET).write_text(ticket.replace(true, other))
    courier = yard.node(transfer=True, ad=yard.text)
    assert courier.run() == Exit.BAD_NODE
    assert not (courier.folder / "headway-out" / "outputs").exists()
    assert yard.ad()["headwaydeliversince"] is None, "it is still a courier"
    again = yard.node(ad=yard.text)
    assert again.run() == 0 and home(again) == WHOLE, "they were left in a store once more"
    assert yard.ad()["headwaysteps"] == 2, "neither the hand-over nor its loss is a failed try"


@pytest.mark.parametrize("refusal", ["for a while", "for good", "evicted"])
def test_a_courier_that_cannot_send_brings_nothing_home(yard: Yard, refusal: str) -> None:
    """The sandbox stays for the next one, however long the pause is."""
    faults: dict[str, Fault] = {
        "for a while": Status(503, retry_after="0").on("/b"),
        "for good": Status(403).on("/b"),
        "evicted": Hang("request").on("/b"),
    }
    with Server(faults=[faults[refusal]]) as server:
        outputs = [{"path": "out"}, {"path": "b", "to": server.url("/b")}]
        outputs.insert(0, {"path": "a", "to": server.url("/a")})  # is there when the other fails
        job, courier, second = (yard.node(transfer=number > 0) for number in range(3))
        for node in (job, courier, second):
            node.plan(f"{COMMAND}; echo one > a", outputs=outputs, deliver=DELIVER)
        assert job.run() == 0
        yard.ad()
        for node in (courier, second):
            (node.folder / ".job.ad").write_text(yard.text)
        process = courier.start()
        if refusal == "evicted":
            wait(lambda: any(each.path == "/b" for each in server.requests))
            process.terminate()
        code, out = courier.end(process), courier.folder / "headway-out"
        expected = {"for a while": Exit.INPUT_RETRYABLE, "for good": Exit.OUTPUT_MISSING}
        assert code == expected.get(refusal, ENDED_BY_POOL), courier.stderr
        assert not (out / "outputs").exists() and server.store.paths() == ["/a"]
        if refusal == "for good":  # as with any other attempt that could not send its outputs
            assert (courier.attempt() / "outputs" / "b").read_text() == "more\n"
            return
        assert not list(out.rglob("b"))
        assert yard.sandboxes.sweep(time.time() + TAKEN_AGE + 60) == [], "it was not delivered"
        server.faults = []
        assert second.run() == 0, second.stderr
        assert server.store.paths() == ["/a", "/b"]
        assert server.store["/b"].content.read(0, 99) == b"more\n"
        assert home(second) == {key: text for key, text in WHOLE.items() if key != "b"}


@pytest.mark.parametrize("trouble", ["no store", "no room"])
def test_trouble_on_the_couriers_side_loses_nothing(yard: Yard, trouble: str) -> None:
    """The store is not mounted for a while, or something is in the way: another courier comes."""
    assert yard.node().run() == 0
    yard.ad()
    courier = yard.node(transfer=True, ad=yard.text)
    if trouble == "no store":
        yard.root.rename(yard.folder / "away")
    else:
        (courier.folder / "headway-out").mkdir()
        (courier.folder / "headway-out" / "outputs").symlink_to("nowhere/at/all")
    code = courier.run()
    assert isinstance(yard.ad()["headwaydeliversince"], int), "it would be computed again"
    if trouble == "no store":
        assert code == Exit.INPUT_RETRYABLE
        (yard.folder / "away").rename(yard.root)
    second = yard.node(transfer=True, ad=yard.text)
    assert second.run() == 0 and home(second) == WHOLE


def test_an_eviction_during_the_hand_over_leaves_one_result(yard: Yard, tmp_path: Path) -> None:
    """A large output takes a moment to prove: the eviction comes before, in it, or after."""
    job = yard.node()
    command = "head -c 300000000 /dev/zero > b; touch made"
    job.plan(command, outputs=[{"path": "b"}], deliver=DELIVER, grace=5.0)
    process = job.start()
    wait(lambda: (job.folder / "made").exists())
    process.terminate()
    code = job.end(process)
    held = yard.sandboxes.held()
    if code == 0:
        assert len(held) == 1 or (job.folder / "headway-out/outputs/b").exists()
    else:
        assert code == ENDED_BY_POOL and held == []
    assert os.listdir(Store(str(yard.root)).drafts) == []


@pytest.mark.parametrize("there", ["ours", "half of ours", "another's"])
def test_a_courier_that_was_killed_at_the_end_of_its_upload(yard: Yard, there: str) -> None:
    """A plain server tells no digest: what is there is its own if nothing was there before."""
    with Server(half_objects=True) as server:
        silent = Hang("request").methods("PUT")
        server.faults = [Status(503, retry_after="0")] if there == "another's" else [silent]
        outputs = [{"path": "b", "to": server.url("/b")}]
        job, courier, second = (yard.node(transfer=number > 0) for number in range(3))
        for node in (job, courier, second):
            node.plan("echo of the job > b", outputs=outputs, deliver=DELIVER)
        assert job.run() == 0
        yard.ad()
        for node in (courier, second):
            (node.folder / ".job.ad").write_text(yard.text)
        process = courier.start()
        wait(lambda: len(server.requests) > 2)
        process.kill()
        courier.end(process)
        assert not (courier.folder / "headway-out" / "outputs").exists()
        server.faults = []
        texts = {"ours": b"of the job\n", "half of ours": b"of t", "another's": b"of a thie\n"}
        server.store["/b"] = texts[there]
        code = second.run()
        found = server.store["/b"].content.read(0, 99)
        if there == "another's":
            assert code == Exit.OUTPUT_MISSING and found == b"of a thie\n"
            assert "something is there already" in second.stderr
        else:
            assert code == 0 and found == b"of the job\n"
