"""An input that arrives while the command runs: what the agent, the fetcher and readers make of it.

The command is a reader that compares every chunk with the truth, in an order of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.lab import Change, Fault, Flip, Held, Made, Rate, Server, Silent, Status
from tests.node.conftest import Node, alive, wait
from tests.node.stream.arriving import until_awaited

from headway.node.errors import Exit
from headway.node.plan import Plan
from headway.node.stream.arrival import Arrival
from headway.node.stream.feed import Feed
from headway.node.transfer.manifest import digest_of, make_manifest

CHUNK = 1 << 16
SIZE = 100 * CHUNK + 1234

READER = """
import hashlib, json, os, random, sys, time
from headway.node.stream.samples import Object
from headway.node.stream.arrival import Wanted
from array import array

truth = json.load(open("truth.json"))
with open("reader.pid", "w") as file:
    file.write(str(os.getpid()))
thing = Object("data.bin")
unit = truth["unit"]
for epoch in range(truth.get("epochs", 1)):
    numbers = list(range(len(truth["digests"])))
    if truth.get("shuffle", True):
        random.Random(epoch).shuffle(numbers)
        if thing.arrival is not None:
            told = Wanted("data.bin", array("I", numbers), thing.arrival.chunk)
    for count, number in enumerate(numbers):
        begin = number * unit
        data = thing.read(begin, min(unit, truth["size"] - begin))
        if hashlib.sha256(data).hexdigest() != truth["digests"][number]:
            print("wrong bytes at", begin, flush=True)
            sys.exit(3)
        if thing.arrival is not None and truth.get("shuffle", True):
            told.done(count + 1)
        time.sleep(truth.get("pause", 0))
print("all read", thing.waited, flush=True)
sys.exit(truth.get("code", 0))
"""


class Stage:
    """A node, an object with a manifest at a server, and a reader as the command."""

    def __init__(self, node: Node, folder: Path) -> None:
        self.node, self.folder = node, folder
        self.content = Made(SIZE, seed=7)
        self.content.write(folder / "data.bin").close()
        self.manifest = make_manifest(str(folder / "data.bin"), chunk_size=CHUNK)
        self.objects = {"/data.bin": self.content, "/data.bin.headway": Held(self.manifest)}

    def server(self, *faults: Fault) -> Server:
        return Server(self.objects, list(faults))

    def until_awaited(self) -> Fault:
        return until_awaited(self.node.folder / "data.bin")

    def set_up(self, *urls: str, truth: dict[str, Any] | None = None, **changes: Any) -> None:
        pieces = [self.content.read(at, CHUNK) for at in range(0, SIZE, CHUNK)]
        digests = [hashlib.sha256(piece).hexdigest() for piece in pieces]
        said = {"unit": CHUNK, "size": SIZE, "digests": digests, **(truth or {})}
        (self.node.folder / "truth.json").write_text(json.dumps(said))
        given = {
            "path": "data.bin",
            "urls": list(urls),
            "manifest": digest_of(self.manifest),
            "mode": "stream",
            "patience": 30.0,
        }
        given.update({key: changes.pop(key) for key in list(changes) if key in (*given, *MORE)})
        command = [sys.executable, "-c", READER.replace("{", "{{").replace("}", "}}")]
        self.node.plan(command, inputs=[given], **changes)

    def input(self) -> dict[str, Any]:
        found: dict[str, Any] = self.node.record()["inputs"][0]
        return found


MORE = ("checksum", "size", "keep", "window")


@pytest.fixture
def stage(node: Node, tmp_path: Path) -> Stage:
    folder = tmp_path / "published"
    folder.mkdir()
    return Stage(node, folder)


def fetchers_of(agent: int) -> list[int]:
    """The process ids of the fetchers that an agent has started."""
    found: list[int] = []
    with contextlib.suppress(OSError):  # it has ended
        for thread in Path(f"/proc/{agent}/task").iterdir():
            for child in (thread / "children").read_text().split():
                with contextlib.suppress(OSError):
                    if b"fetcher" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0"):
                        found.append(int(child))
    return found


def fetcher_of(agent: int) -> int:
    """The process id of the fetcher, as soon as there is one."""
    wait(lambda: fetchers_of(agent))
    return fetchers_of(agent)[0]


def arrived(node: Node, chunks: int) -> Callable[[], bool]:
    def enough() -> bool:
        try:
            with Arrival.follow(str(node.folder / "data.bin.arrival")) as arrival:
                return arrival.count() >= chunks * CHUNK
        except OSError:
            return False

    return enough


def test_the_command_reads_while_it_arrives(stage: Stage) -> None:
    with stage.server(Rate(4 << 20), stage.until_awaited()) as server:
        stage.set_up(server.url("/data.bin"))
        begin = time.monotonic()
        assert stage.node.run() == 0, stage.node.stderr
        took = time.monotonic() - begin
    assert "all read" in stage.node.stdout()
    told = stage.input()
    assert told["mode"] == "stream" and told["proof"] == "manifest" and told["verified"]
    assert told["bytes"] == told["size"] == SIZE and told["refetched"] == 0
    assert 0 < told["whole_at"] <= took
    assert told["waited"] > 0 and 0 < told["waited_share"] <= 1
    phases = {
        phase["name"]: phase["end"] - phase["begin"] for phase in stage.node.record()["phases"]
    }
    assert phases["stage-in"] < phases["run"]
    assert stage.content.fault(stage.node.folder / "data.bin") is None
    assert (stage.node.folder / "data.bin.headway").stat().st_mode & 0o777 == 0o444
    assert not list(stage.node.folder.glob("data.bin.[apw]*"))


def test_the_epoch_ends_with_the_download(stage: Stage) -> None:
    with stage.server(Rate(2 << 20, scope="server"), stage.until_awaited()) as server:
        stage.set_up(server.url("/data.bin"))
        assert stage.node.run() == 0, stage.node.stderr
    record, told = stage.node.record(), stage.input()
    begin = next(p["end"] for p in record["phases"] if p["name"] == "stage-in")
    download = told["whole_at"]
    assert record["command"]["end"] - begin < 1.1 * download + 1.0  # Python needs some to end
    assert download > SIZE / (2 << 20) * 0.7


def test_a_source_falls_silent(stage: Stage) -> None:
    with stage.server(Silent(after=20 * CHUNK, scope="server")) as sick, stage.server() as well:
        stage.set_up(sick.url("/data.bin"), well.url("/data.bin"))
        assert stage.node.run() == 0, stage.node.stderr
        assert sick.sent + well.sent < 1.3 * SIZE
    assert "all read" in stage.node.stdout()


def test_wrong_chunks_are_repaired_before_anybody_sees_them(stage: Stage) -> None:
    flips = [Flip(at=number * CHUNK + 77) for number in (0, 3, 50, 99)]
    with stage.server(*flips, Rate(8 << 20)) as sick, stage.server(Rate(8 << 20)) as well:
        stage.set_up(sick.url("/data.bin"), well.url("/data.bin"))
        assert stage.node.run() == 0, stage.node.stderr
    assert "all read" in stage.node.stdout()
    faults = [source.get("fault", "") for source in stage.input()["sources"]]
    assert any("is not what the manifest says" in fault for fault in faults)


def test_the_only_source_is_wrong(stage: Stage) -> None:
    with stage.server(Flip(at=40 * CHUNK)) as server:
        stage.set_up(server.url("/data.bin"), truth={"code": 5})
        assert stage.node.run() == 82
    record = stage.node.record()
    assert "wrong bytes" not in stage.node.stdout() and record["command"]["status"] == 1
    assert "is not what the manifest says" in record["reason"]
    assert "is not what the manifest says" in (stage.node.attempt() / "stderr").read_text()
    assert record["inputs"][0]["error"]


def test_a_source_that_goes_away(stage: Stage) -> None:
    gone = Silent(after=30 * CHUNK, scope="server"), Status(503).bytes(30 * CHUNK)
    with stage.server(*gone) as server:
        stage.set_up(server.url("/data.bin"), patience=1.5)
        assert stage.node.run() == 81
    assert "'data.bin' did not arrive" in stage.node.record()["reason"]
    assert "data.bin did not arrive" in (stage.node.attempt() / "stderr").read_text()


@pytest.mark.parametrize("flip", [False, True])
def test_a_killed_fetcher_goes_on(stage: Stage, flip: bool) -> None:
    faults: list[Fault] = [Rate(2 << 20)]
    faults += [Flip(at=number * CHUNK + 5) for number in range(0, 100, 7)] if flip else []
    with stage.server(*faults) as first, stage.server(Rate(2 << 20)) as second:
        stage.set_up(first.url("/data.bin"), second.url("/data.bin"))
        process = stage.node.start()
        for chunks in (10, 40):
            wait(arrived(stage.node, chunks))
            os.kill(fetcher_of(process.pid), signal.SIGKILL)
        assert stage.node.end(process) == 0, stage.node.stderr
        most = 1.5 if flip else 1.25
        assert first.sent + second.sent < most * SIZE  # nothing proven came twice
    assert stage.input()["restarts"] == 2 and "all read" in stage.node.stdout()
    assert stage.content.fault(stage.node.folder / "data.bin") is None


@pytest.mark.parametrize("journal", [True, False])
def test_a_fetcher_killed_before_it_has_written_down_any_bytes(stage: Stage, journal: bool) -> None:
    """Another one goes on where it was; where nothing says with which version, nobody does."""
    content = Made(12 << 20, seed=8)
    unit = 1 << 20
    digests = [hashlib.sha256(p).hexdigest() for p in content.pieces(unit)]
    truth = {"unit": unit, "size": content.size, "digests": digests, "shuffle": False}
    with Server({"/data.bin": content}, [Rate(4 << 20, scope="server")]) as server:
        stage.set_up(server.url("/data.bin"), manifest=None, truth={**truth, "pause": 0.3})
        process = stage.node.start()
        wait(arrived(stage.node, 1))
        path = stage.node.folder / "data.bin.part.journal"
        assert len(path.read_bytes().splitlines()) == 1
        if not journal:
            path.unlink()
        os.kill(fetcher_of(process.pid), signal.SIGKILL)
        assert stage.node.end(process) == (0 if journal else 81), stage.node.stderr
        assert not journal or server.sent < 1.25 * content.size
    assert stage.input()["restarts"] == 1
    if not journal:
        assert "changed at its source" in stage.node.stderr
        return
    assert "all read" in stage.node.stdout()
    assert content.fault(stage.node.folder / "data.bin") is None


def test_something_is_in_the_way(stage: Stage) -> None:
    with stage.server() as server:
        stage.set_up(server.url("/data.bin"))
        (stage.node.folder / "data.bin.part").mkdir()
        assert stage.node.run() == 80
    assert "command" not in stage.node.record() or not stage.node.record()["command"]


def test_a_full_disk_while_the_command_reads(stage: Stage) -> None:
    """The limit on the size of files is the disk's end; what is there already is right."""
    limited = stage.node.folder / "limited"
    limited.write_text(
        f'#!/bin/sh\nulimit -f {3 * SIZE // 4 // 512}\nexec "{stage.node.pyz}" "$@"\n'
    )
    limited.chmod(0o755)
    stage.node.pyz = limited
    with stage.server(Rate(4 << 20)) as server:
        stage.set_up(server.url("/data.bin"))
        assert stage.node.run() == 80, stage.node.stderr
    assert "disk is full" in stage.node.record()["reason"]
    assert "wrong bytes" not in stage.node.stdout()


def test_without_a_manifest_it_comes_in_its_own_order(stage: Stage) -> None:
    plain = {"shuffle": False}
    with stage.server(Rate(4 << 20, scope="server"), stage.until_awaited()) as server:
        checksum = stage.content.checksum("md5")
        stage.set_up(server.url("/data.bin"), manifest=None, checksum=checksum, truth=plain)
        assert stage.node.run() == 0, stage.node.stderr
    told = stage.input()
    assert told["proof"] == "checksum" and told["verified"] and told["bytes"] == SIZE
    record = stage.node.record()
    begin = next(p["end"] for p in record["phases"] if p["name"] == "stage-in")
    assert record["command"]["end"] - begin < 1.2 * told["whole_at"] + 1.0


def test_a_wrong_whole_is_found_whatever_the_command_says(stage: Stage) -> None:
    with stage.server() as server:
        stage.set_up(server.url("/data.bin"), manifest=None, checksum=f"md5:{0:032x}")
        stage.node.plan(["sleep", "1.5"], inputs=[plan_input(stage)])
        assert stage.node.run() == 81
    assert stage.node.record()["command"]["status"] == 0
    assert "was wrong, while it was being read" in stage.node.record()["reason"]


def test_nothing_is_declared(stage: Stage) -> None:
    with stage.server() as server:
        stage.set_up(server.url("/data.bin"), manifest=None, truth={"shuffle": False})
        assert stage.node.run() == 0, stage.node.stderr
    assert stage.input()["verified"] is False


def test_an_object_that_changes_while_it_is_read_unproven(stage: Stage) -> None:
    with stage.server(Change(Made(SIZE, seed=8), 30 * CHUNK), Rate(2 << 20)) as server:
        stage.set_up(server.url("/data.bin"), manifest=None, truth={"shuffle": False})
        assert stage.node.run() != 0
    assert stage.node.record()["exit"] in (81, 82, 83)


def test_a_window_of_the_disk(stage: Stage) -> None:
    window = 24 * CHUNK
    most: list[int] = []
    with stage.server() as server:
        truth = {"epochs": 3, "pause": 0.002}
        stage.set_up(server.url("/data.bin"), keep=False, window=window, truth=truth)
        process = stage.node.start()
        while process.poll() is None:
            with contextlib.suppress(OSError):
                most.append((stage.node.folder / "data.bin.part").stat().st_blocks * 512)
            time.sleep(0.01)
        assert stage.node.end(process) == 0, stage.node.stderr
        assert 2.5 * SIZE < server.sent < 3.6 * SIZE  # what was begun before the order was told
    assert "all read" in stage.node.stdout()
    told = stage.input()
    assert told["window"] == window and told["whole_at"] is None
    assert 1.5 * SIZE < told["refetched"] < 2.2 * SIZE
    assert 12 * CHUNK < max(most) <= window + 4 * CHUNK
    said = (stage.node.attempt() / "agent.log").read_text()
    assert told["each_epoch"] == SIZE and f"every epoch fetches about {SIZE} bytes" in said


def test_a_window_and_a_killed_fetcher(stage: Stage) -> None:
    with stage.server(Rate(8 << 20)) as server:
        truth = {"epochs": 2}
        stage.set_up(server.url("/data.bin"), keep=False, window=20 * CHUNK, truth=truth)
        process = stage.node.start()
        for _ in range(2):
            wait(arrived(stage.node, 5))
            os.kill(fetcher_of(process.pid), signal.SIGKILL)
            time.sleep(0.2)
        assert stage.node.end(process) == 0, stage.node.stderr
    assert "all read" in stage.node.stdout()


def test_another_segment_goes_on(stage: Stage) -> None:
    checkpoint = {"paths": ["saved"], "exit_code": 85}
    with stage.server(Rate(4 << 20)) as server:
        stage.set_up(server.url("/data.bin"), checkpoint=checkpoint)
        plan = json.loads((stage.node.folder / "plan.json").read_text())
        reader = plan["command"]
        stop = "import sys, time; time.sleep(0.5); open('saved', 'w').close(); sys.exit(85)"
        plan["command"] = [sys.executable, "-c", stop]
        (stage.node.folder / "plan.json").write_text(json.dumps(plan))
        assert stage.node.run() == 85
        assert 0 < stage.input()["bytes"] < SIZE
        plan["command"] = reader
        (stage.node.folder / "plan.json").write_text(json.dumps(plan))
        assert stage.node.run() == 0, stage.node.stderr
        assert server.sent < 1.2 * SIZE + 2 * len(stage.manifest)
        assert sum(request.path.endswith(".headway") for request in server.requests) == 1
    assert stage.content.fault(stage.node.folder / "data.bin") is None


SAVES = """
import os, signal, sys, time
from headway.node.errors import TransferError
from headway.node.stream.samples import Object

thing = Object("data.bin")
try:
    while True:
        for begin in range(0, thing.size, 1 << 16):
            thing.read(begin, min(1 << 16, thing.size - begin))
        thing.arrival and thing.arrival.check()
        time.sleep(0.01)
except TransferError as error:
    print(error, flush=True)
open("saved", "w").close()
if "evicted" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(85))
    os.kill(os.getppid(), signal.SIGTERM)
    signal.pause()
sys.exit(85)
"""


def set_up_saves(stage: Stage, *urls: str, evicted: bool = False, **changes: Any) -> None:
    stage.set_up(*urls, checkpoint={"paths": ["saved"], "exit_code": 85}, **changes)
    plan = json.loads((stage.node.folder / "plan.json").read_text())
    plan["command"] = [sys.executable, "-c", SAVES, *(["evicted"] if evicted else [])]
    (stage.node.folder / "plan.json").write_text(json.dumps(plan))


def test_a_checkpoint_of_proven_bytes_outlives_the_input(stage: Stage) -> None:
    gone = Silent(after=30 * CHUNK, scope="server"), Status(503).bytes(30 * CHUNK)
    with stage.server(*gone) as server:
        set_up_saves(stage, server.url("/data.bin"), patience=1.0)
        assert stage.node.run() == 85, stage.node.stderr
        assert (stage.node.folder / "headway-out/checkpoint").is_dir()
        assert "data.bin did not arrive" in stage.input()["error"]
        assert stage.node.run() == 81  # nothing has come since: another node may do better
    assert "'data.bin' did not arrive" in stage.node.record()["reason"]
    assert not (stage.node.folder / "headway-out/checkpoint").exists()


def test_a_failure_that_no_try_mends_is_not_put_off(stage: Stage) -> None:
    with stage.server(Flip(at=40 * CHUNK)) as server:
        set_up_saves(stage, server.url("/data.bin"))
        assert stage.node.run() == 82


def test_a_checkpoint_of_bytes_that_nothing_proves(stage: Stage) -> None:
    gone = Silent(after=30 * CHUNK, scope="server"), Status(503).bytes(30 * CHUNK)
    with stage.server(*gone) as server:
        set_up_saves(stage, server.url("/data.bin"), patience=1.0, manifest=None)
        assert stage.node.run() == 81


@pytest.mark.parametrize("evicted", [False, True])
def test_a_checkpoint_of_wrong_bytes_is_refused(stage: Stage, evicted: bool) -> None:
    with stage.server() as server:
        wrong = {"manifest": None, "checksum": f"md5:{0:032x}"}
        set_up_saves(stage, server.url("/data.bin"), evicted=evicted, **wrong)
        assert stage.node.run() == (143 if evicted else 81), stage.node.stderr
    assert "wrong, while it was being read" in stage.node.stdout()
    assert not (stage.node.folder / "headway-out/checkpoint").exists()
    assert "wrong" in stage.node.record()["reason"]


def test_a_window_and_a_source_that_goes_away(stage: Stage) -> None:
    gone = Silent(after=30 * CHUNK, scope="server"), Status(503).bytes(30 * CHUNK)
    with stage.server(*gone) as server:
        stage.set_up(server.url("/data.bin"), patience=1.5, keep=False, window=20 * CHUNK)
        assert stage.node.run() == 81
    assert "'data.bin' did not arrive" in stage.node.record()["reason"]


def test_a_window_that_is_too_small(stage: Stage) -> None:
    with stage.server() as server:
        stage.set_up(server.url("/data.bin"), keep=False, window=3 * CHUNK)
        assert stage.node.run() == 82
    assert "is too small" in stage.node.record()["reason"]


def test_the_command_ends_first(stage: Stage) -> None:
    with stage.server(Rate(1 << 14)) as server:
        stage.set_up(server.url("/data.bin"))
        stage.node.plan([sys.executable, "-c", "pass"], inputs=[plan_input(stage)])
        process = stage.node.start()
        fetcher = fetcher_of(process.pid)
        assert stage.node.end(process) == 0
        assert not alive(fetcher)
    told = stage.input()
    assert told["whole_at"] is None and told["bytes"] < SIZE and "error" not in told
    phases = {phase["name"]: phase["end"] for phase in stage.node.record()["phases"]}
    assert phases["stage-out"] - phases["run"] < 6  # it does not wait for the rest


def plan_input(stage: Stage) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((stage.node.folder / "plan.json").read_text())["inputs"][0]
    return found


def test_the_commands_own_failure_stays_its_own(stage: Stage) -> None:
    with stage.server() as server:
        stage.set_up(server.url("/data.bin"), truth={"code": 7})
        assert stage.node.run() == 83
    assert stage.node.record()["command"]["status"] == 7


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_end_of_the_agent_ends_all(stage: Stage, number: int) -> None:
    with stage.server(Rate(1 << 18)) as server:
        stage.set_up(server.url("/data.bin"))
        process = stage.node.start()
        fetcher = fetcher_of(process.pid)
        written = stage.node.folder / "reader.pid"
        wait(lambda: written.exists() and written.read_text())
        reader = int(written.read_text())
        process.send_signal(number)
        code = stage.node.end(process) if number == signal.SIGTERM else process.wait(10)
        wait(lambda: not alive(fetcher))
        if number == signal.SIGTERM:
            assert code == 143 and not alive(reader)
        else:
            os.kill(reader, signal.SIGKILL)
            for pipe in (process.stdout, process.stderr):
                assert pipe is not None
                pipe.close()


def test_a_failure_that_is_not_told_in_full_is_a_failure() -> None:
    given = {"urls": ["http://x/a"], "path": "a", "mode": "stream"}
    feed = Feed(Plan({"format": 1, "command": ["true"], "inputs": [given]}, {}).inputs[0], None, 2)
    feed._output, told = os.pipe()
    os.set_blocking(feed._output, False)
    os.write(told, b'{"state": "failed"}\n')
    feed._hear()
    feed._close()
    os.close(told)
    assert feed.over and feed.failure is not None
    assert feed.failure.code == Exit.AGENT_ERROR
