"""A training with torch while the real fetcher brings its data, whatever happens to the two.

The training proves every sample that it gets, and writes down which they were.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.lab import Fault, Flip, Held, Rate, Server, Silent, Status
from tests.lab.torch_loaded import TorchLoaded
from tests.node.conftest import Chirp, Node, wait
from tests.node.stream.arriving import Trickle, until_awaited
from tests.node.stream.test_streams import fetcher_of, fetchers_of
from tests.node.transfer.made_tars import make_nested, make_tar

from headway.node.stream.arrival import Arrival
from headway.node.transfer.manifest import digest_of, make_manifest

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

CHUNK = 1 << 16
CLASSES, EACH = 6, 40
COUNT = CLASSES * EACH
LABELS = [f"n{c}" for c in range(CLASSES)]
SECONDS = 90  # that a training may take: torch alone takes some to start

TRAINING = """
import hashlib, json, os, sys, time
import torch
from headway.torch import Loader, TarDataset

torch.set_num_threads(1)
asked = json.load(open("asked.json"))

def decode(data):
    if hashlib.sha256(data[36:]).digest() != data[4:36]:
        open("wrong", "a").write(data[:4].hex())
    number = int.from_bytes(data[:4], "big")
    if number in asked["corrupt"]:
        raise ValueError("no image")
    return number

def log(**said):
    with open("log", "a") as file:
        file.write(json.dumps(said) + "\\n")

if __name__ == "__main__":
    if "WORLD_SIZE" in os.environ:
        torch.distributed.init_process_group(
            "gloo",
            init_method="file://" + os.path.abspath("meet"),
            rank=int(os.environ["RANK"]),
            world_size=int(os.environ["WORLD_SIZE"]),
        )
    data = TarDataset("train.tar", decode=decode, **asked["data"])
    loader = Loader(data, asked["batch"], seed=1, workers=asked["workers"], **asked["loader"])
    while loader.epoch < asked["epochs"]:
        epoch, had = loader.epoch, []
        for numbers, labels in loader:
            assert asked["data"].get("record") or labels.tolist() == (numbers // 40).tolist()
            had += numbers.tolist()
            skipped = loader.skipped
            if "WORLD_SIZE" in os.environ:
                torch.distributed.all_reduce(torch.zeros(1))
            log(epoch=epoch, rank=loader.rank, step=numbers.tolist())
            time.sleep(asked["pause"])
        log(epoch=epoch, rank=loader.rank, had=had, waited=loader.waited, skipped=skipped)
"""
LAUNCHER = """
import os, subprocess, sys
started = []
for rank in range(int(sys.argv[1])):
    place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": sys.argv[1]}
    started.append(subprocess.Popen(sys.argv[2:], env={**os.environ, **place}))
sys.exit(max(each.wait() for each in started))
"""


def sample(draw: random.Random, number: int) -> bytes:
    data = draw.randbytes(draw.randint(5_000, 60_000))
    return number.to_bytes(4, "big") + hashlib.sha256(data).digest() + data


class Training:
    """A node, a data set at servers, and the training as its command."""

    def __init__(self, node: Node, content: bytes, torch_loaded: TorchLoaded) -> None:
        self.node, self.content, self.torch_loaded = node, content, torch_loaded
        path = node.folder.parent / "published.tar"
        path.write_bytes(content)
        self.manifest = make_manifest(str(path), chunk_size=CHUNK)
        self.pin: str | None = digest_of(self.manifest)
        self.asked: dict[str, Any] = {
            "epochs": 1,
            "workers": 2,
            "batch": 16,
            "pause": 0.0,
            "corrupt": [],
            "data": {},
            "loader": {},
        }

    def server(self, *faults: Fault) -> Server:
        objects = {"/train.tar": Held(self.content), "/train.tar.headway": Held(self.manifest)}
        return Server(objects, list(faults))

    def start(
        self, *servers: Server, ranks: int = 1, patience: float = 30.0, **given: Any
    ) -> subprocess.Popen[bytes]:
        folder = self.node.folder
        (folder / "train.py").write_text(TRAINING)
        (folder / "launch.py").write_text(LAUNCHER)
        (folder / "asked.json").write_text(json.dumps(self.asked))
        command = self.torch_loaded.command("train.py")
        if ranks > 1:
            command = [sys.executable, "launch.py", str(ranks), *command]
        data = {
            "path": "train.tar",
            "urls": [server.url("/train.tar") for server in servers],
            "manifest": self.pin,
            "mode": "stream",
            "patience": patience,
            **given,
        }
        self.node.plan(command, inputs=[data])
        return self.node.start()

    def end(self, process: subprocess.Popen[bytes]) -> int:
        _, said = process.communicate(timeout=SECONDS)
        self.node.stderr = said.decode()
        assert not (self.node.folder / "wrong").exists(), "it trained on wrong bytes"
        return process.returncode

    def run(self, *servers: Server, **given: Any) -> int:
        return self.end(self.start(*servers, **given))

    def log(self) -> list[dict[str, Any]]:
        with contextlib.suppress(FileNotFoundError):
            lines = (self.node.folder / "log").read_text().splitlines(keepends=True)
            return [json.loads(line) for line in lines if line.endswith("\n")]
        return []

    def epochs(self) -> list[dict[str, Any]]:
        return [line for line in self.log() if "had" in line]

    def steps(self) -> int:
        return sum("step" in line for line in self.log())

    def input(self) -> dict[str, Any]:
        found: dict[str, Any] = self.node.record()["inputs"][0]
        return found

    def said(self) -> str:
        return (self.node.attempt() / "stderr").read_text()

    def arrival(self) -> Arrival:
        return Arrival.follow(str(self.node.folder / "train.tar.arrival"))


@pytest.fixture(scope="module")
def content() -> bytes:
    draw = random.Random(1)
    return make_nested(
        {
            f"n{c}": {f"{i}.bin": sample(draw, c * EACH + i) for i in range(EACH)}
            for c in range(CLASSES)
        }
    )


@pytest.fixture
def training(node: Node, content: bytes, torch_loaded: TorchLoaded) -> Training:
    return Training(node, content, torch_loaded)


@pytest.mark.parametrize(("workers", "proven"), [(2, True), (0, False)])
def test_an_epoch_while_it_arrives(training: Training, workers: int, proven: bool) -> None:
    """The record has the wait of the loop; without a manifest it is indexed as it goes."""
    training.asked.update(epochs=2, workers=workers)
    if not proven:
        training.pin = None
        training.asked["data"] = {"classes": LABELS}
    awaited = until_awaited(training.node.folder / "train.tar")
    with training.server(Rate(3 << 20, scope="server"), awaited) as server:
        assert training.run(server) == 0, training.said()
        assert server.sent < 1.02 * len(training.content) + len(training.manifest)
    first, second = training.epochs()
    assert sorted(first["had"]) == sorted(second["had"]) == list(range(COUNT))
    assert first["had"] != second["had"]
    told = training.input()
    assert told["verified"] is proven and told["whole_at"] > 0
    assert told["waited"] == pytest.approx(second["waited"], abs=0.1) and told["waited"] > 0.5
    seconds = training.node.record()["command"]["seconds"]
    assert told["waited_share"] == pytest.approx(told["waited"] / seconds, abs=0.001)


def test_a_source_stalls(training: Training) -> None:
    silent = Silent(after=20 * CHUNK, scope="server")
    with training.server(silent) as sick, training.server(Rate(8 << 20)) as well:
        assert training.run(sick, well) == 0, training.said()
        assert sick.sent + well.sent < 1.3 * len(training.content)
    assert sorted(training.epochs()[0]["had"]) == list(range(COUNT))


def test_all_sources_stall(training: Training) -> None:
    """It waits as long as the patience says, and ends as one that may be tried again."""
    gone = Silent(after=40 * CHUNK, scope="server"), Status(503).bytes(40 * CHUNK)
    training.asked["pause"] = 0.01
    with training.server(*gone) as server:
        assert training.run(server, patience=2.0) == 81, training.node.stderr
    record = training.node.record()
    assert "'train.tar' did not arrive" in record["reason"] and "did not arrive" in training.said()
    assert record["command"]["status"] == 1 and not training.epochs()


def test_wrong_chunks_are_repaired(training: Training, content: bytes) -> None:
    flips = [Flip(at=at + 77) for at in range(0, len(content), 9 * CHUNK)]
    with training.server(*flips, Rate(4 << 20)) as sick, training.server(Rate(4 << 20)) as well:
        assert training.run(sick, well) == 0, training.said()
    assert sorted(training.epochs()[0]["had"]) == list(range(COUNT))
    told = training.input()
    assert told["refetched"] == 0  # nobody was told of a chunk before it was proven
    faults = [source.get("fault", "") for source in told["sources"]]
    assert any("is not what the manifest says" in fault for fault in faults)


def test_the_only_source_has_wrong_chunks(training: Training, content: bytes) -> None:
    with training.server(Flip(at=len(content) // 2), Rate(8 << 20)) as server:
        assert training.run(server) == 82, training.node.stderr
    assert "is not what the manifest says" in training.node.record()["reason"]
    assert "is not what the manifest says" in training.said() and not training.epochs()
    assert training.input()["refetched"] == 0


@pytest.mark.parametrize("window", [0, 60 * CHUNK])
def test_the_fetcher_is_killed(training: Training, content: bytes, window: int) -> None:
    """What comes again because of it is what was on its way; all that came is counted."""
    training.asked.update(epochs=2, workers=1)
    given = {"keep": False, "window": window} if window else {}
    kills, killed = 3, threading.Event()
    faults: list[Fault] = [Rate(4 << 20, scope="server")]
    if not window:
        # Or all of it may be there before the last kill. What comes before the training has told
        # its order may be for later steps; what the steps before a kill need is less than half.
        faults.append(until_awaited(training.node.folder / "train.tar"))
        faults.append(Trickle(killed.is_set, len(content) * 3 // 4).on("/train.tar"))
    with training.server(*faults) as server:
        process = training.start(server, **given)
        for kill in range(kills):
            wait(lambda least=1 + (8 if window else 2) * kill: training.steps() >= least, SECONDS)  # type: ignore[misc]
            os.kill(fetcher_of(process.pid), signal.SIGKILL)
        killed.set()
        assert training.end(process) == 0, training.said()
        sent = server.sent - len(training.manifest)
    epochs = training.epochs()
    assert [sorted(each["had"]) for each in epochs] == [list(range(COUNT))] * 2
    told = training.input()
    assert told["restarts"] == kills and told["bytes"] == len(content)
    counted = told["bytes"] + told["refetched"]
    assert counted <= sent < counted + kills * 10 * CHUNK
    if window:
        assert told["refetched"] > 0.5 * len(content)
        assert sent < 2 * told["each_epoch"] + kills * 10 * CHUNK + window
    else:
        assert told["refetched"] == 0


@pytest.fixture
def hasty(pyz: Path, tmp_path: Path) -> Path:
    """The agent, but that its first pause before it starts a fetcher again is not half a second."""
    with zipfile.ZipFile(pyz) as agent:
        stub = pyz.read_bytes()[: min(entry.header_offset for entry in agent.infolist())]
        sources = {name: agent.read(name) for name in agent.namelist() if name.endswith(".py")}
    feed = sources["headway/node/stream/feed.py"]
    assert feed.count(b"\n_PAUSE = 0.5 ") == 1
    sources["headway/node/stream/feed.py"] = feed.replace(b"\n_PAUSE = 0.5 ", b"\n_PAUSE = 0.02 ")
    path = tmp_path / "hasty.pyz"
    path.write_bytes(stub)
    path.chmod(0o755)
    with zipfile.ZipFile(path, "a") as agent:
        for name, source in sources.items():
            agent.writestr(name, source)
    return path


def test_a_fetcher_that_always_dies(training: Training, hasty: Path) -> None:
    """The training is not left to wait for ever."""
    training.node.pyz = hasty
    training.asked["pause"] = 0.05
    with training.server(Rate(1 << 18, scope="server")) as server:
        process = training.start(server)
        wait(lambda: training.steps() > 1, SECONDS)
        end = time.monotonic() + SECONDS
        while process.poll() is None and time.monotonic() < end:
            for fetcher in fetchers_of(process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(fetcher, signal.SIGKILL)
            time.sleep(0.05)
        assert training.end(process) == 81, training.node.stderr
    assert "was killed by SIGKILL, 6 times in a row" in training.node.record()["reason"]
    assert "times in a row" in training.said() and not training.epochs()


@pytest.fixture
def small(tmp_path: Path, pyz: Path, chirp: Chirp) -> Iterator[Node]:
    """A node whose scratch folder is a file system of 6 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(folder)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        yield Node(folder, pyz, chirp)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_the_disk_fills_up_while_it_trains(
    small: Node, content: bytes, torch_loaded: TorchLoaded
) -> None:
    """Somebody else takes what was free when it began: another node may do."""
    training = Training(small, content, torch_loaded)
    training.asked.update(epochs=50, workers=1, pause=0.01)
    with training.server(Rate(8 << 20, scope="server")) as server:
        process = training.start(server, keep=False, window=60 * CHUNK)
        wait(lambda: training.steps() > 10, SECONDS)
        with pytest.raises(OSError), open(small.folder / "other", "wb", buffering=0) as file:
            while True:
                file.write(bytes(CHUNK))
        assert training.end(process) == 80, training.node.stderr
    assert "disk is full" in training.node.record()["reason"]
    assert training.steps() > 0 and len(training.epochs()) < 50


def test_more_disk_than_the_node_has(
    small: Node, content: bytes, torch_loaded: TorchLoaded
) -> None:
    """With room for a window only, keep = true is known to fail before the training starts."""
    training = Training(small, content, torch_loaded)
    with training.server() as server:
        assert training.run(server) == 80
        assert server.sent < 2 << 20
        assert not training.log()
        assert training.run(server, keep=False, window=60 * CHUNK) == 0, training.said()
    assert sorted(training.epochs()[0]["had"]) == list(range(COUNT))


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_a_window_costs_what_is_said_before(
    training: Training, content: bytes, share: float
) -> None:
    window, epochs = int(share * len(content)), 3
    most: list[int] = []
    training.asked.update(epochs=epochs, workers=0 if share < 0.5 else 1)
    with training.server() as server:
        process = training.start(server, keep=False, window=window)
        while process.poll() is None:
            with contextlib.suppress(OSError):
                most.append((training.node.folder / "train.tar.part").stat().st_blocks * 512)
            time.sleep(0.01)
        assert training.end(process) == 0, training.said()
        sent = server.sent - len(training.manifest)
    assert [sorted(each["had"]) for each in training.epochs()] == [list(range(COUNT))] * epochs
    assert max(most) <= window + 4 * CHUNK
    told = training.input()
    each = told["each_epoch"]
    said = (training.node.attempt() / "agent.log").read_text()
    assert f"every epoch fetches about {each} bytes: 5 epochs {5 * each}" in said
    assert len(content) < each < 1.5 * len(content)
    # what was begun before the first order was told may be in vain; what stays over the end of
    # an epoch need not come again
    assert epochs * (each - window) <= sent <= epochs * each + 32 * CHUNK
    assert told["bytes"] + told["refetched"] == pytest.approx(sent, rel=0.02)
    if share < 0.5:
        assert sent == pytest.approx(epochs * each, rel=0.1)


def test_a_window_that_is_too_small_for_what_is_read_ahead(training: Training) -> None:
    """Else each block would come again and again, which nobody has said before."""
    training.asked["workers"] = 4
    with training.server() as server:
        assert training.run(server, keep=False, window=40 * CHUNK) == 83
        assert server.sent < 2 * len(training.content)
    assert "a window of 2621440 bytes is too small: 144 samples are read ahead" in training.said()
    least = int(training.said().rpartition("window = ")[2].split()[0])
    training.asked["workers"] = 1
    with training.server() as server:
        assert training.run(server, keep=False, window=least) == 0, training.said()
        assert server.sent < 1.2 * training.input()["each_epoch"] + len(training.manifest)


def test_a_window_that_holds_all_of_it(training: Training, content: bytes) -> None:
    training.asked.update(epochs=3, workers=1)
    with training.server() as server:
        assert training.run(server, keep=False, window=len(content)) == 0, training.said()
        assert server.sent < 1.02 * len(content) + len(training.manifest)
    told = training.input()
    assert told["whole_at"] is not None and told["refetched"] == 0 and "each_epoch" not in told
    assert "every epoch" not in (training.node.attempt() / "agent.log").read_text()


@pytest.mark.parametrize("window", [0, 60 * CHUNK])
def test_ranks_share_what_arrives(training: Training, content: bytes, window: int) -> None:
    training.asked.update(epochs=2, workers=1, batch=4)
    given = {"keep": False, "window": window} if window else {}
    with training.server(Rate(6 << 20, scope="server")) as server:
        assert training.run(server, ranks=3, **given) == 0, training.said()
        sent = server.sent - len(training.manifest)
    for epoch in range(2):
        shares = {each["rank"]: each["had"] for each in training.epochs() if each["epoch"] == epoch}
        assert sorted(shares) == [0, 1, 2]
        assert sorted(number for had in shares.values() for number in had) == list(range(COUNT))
    told = training.input()
    assert told["waited"] == pytest.approx(max(e["waited"] for e in training.epochs()), abs=0.1)
    if window:
        assert sent < 2 * told["each_epoch"] + window
    else:
        assert sent < 1.02 * len(content)


def test_a_corrupt_sample_has_its_place_while_it_arrives(
    training: Training, content: bytes
) -> None:
    bad = (7).to_bytes(4, "big")
    place = next(at + 512 for at in range(512, len(content), 512) if _named(content, at, "7.bin"))
    assert content[place : place + 4] == bad
    training.asked.update(corrupt=[7, 107], loader={"corrupt": "skip", "corrupt_share": 0.01})
    training.pin = None
    training.asked["data"] = {"classes": LABELS}
    with training.server(Rate(6 << 20, scope="server")) as server:
        assert training.run(server) == 0, training.said()
        assert training.epochs()[0]["skipped"] == 2
        assert sorted(training.epochs()[0]["had"]) == [
            number for number in range(COUNT) if number not in (7, 107)
        ]
        assert training.said().count("left out a sample") == 1
        for each in training.node.folder.glob("train.tar*"):
            each.unlink()
        (training.node.folder / "log").unlink()
        training.asked.update(corrupt=[7], loader={})
        assert training.run(server) == 83
    assert f"bytes at byte {place} of" in training.said() and "n0/7.bin" in training.said()


def _named(content: bytes, at: int, name: str) -> bool:
    return content[at : at + len(name) + 1] == name.encode() + b"\0"


def test_records_as_cifar_has_them(node: Node, torch_loaded: TorchLoaded) -> None:
    """Labels are in the records, and a record may lie in two chunks."""
    draw = random.Random(2)
    records = []
    for number in range(1000):
        pixels = draw.randbytes(3072 - 36)
        head = bytes([number % 10]) + number.to_bytes(4, "big")
        records.append(head + hashlib.sha256(pixels).digest() + pixels)
    members = {
        f"cifar/data_batch_{batch}.bin": b"".join(records[batch * 200 : batch * 200 + 200])
        for batch in range(5)
    }
    content = make_tar({"cifar/readme.html": b"<html>", **members})
    training = Training(node, content, torch_loaded)
    training.asked.update(epochs=2, data={"only": "*.bin", "record": 3073})
    with training.server(Rate(4 << 20, scope="server")) as server:
        assert training.run(server, keep=False, window=24 * CHUNK) == 0, training.said()
    assert [sorted(each["had"]) for each in training.epochs()] == [list(range(1000))] * 2
