"""Segments of an attempt, and agents that were killed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

from .conftest import Node, Web, alive, wait

STEP = """
import os, sys
os.makedirs("ckpt", exist_ok=True)
step = len(os.listdir("ckpt"))
open(f"ckpt/{step}", "w").close()
print("step", step, flush=True)
found = [n for n in os.listdir(".") if n == ".headway-attempt.json"]
record = f"headway-out/attempts/{os.environ['HEADWAY_ATTEMPT']}/record.json"
secret = '"nonce": "' in open(record).read()
if found or secret: sys.exit(1)
sys.exit(0 if step == 2 else 85)
"""
CHECKPOINT: dict[str, Any] = {"paths": ["ckpt"], "exit_code": 85, "interval": None, "signal": None}


def test_segments_continue_the_attempt(node: Node) -> None:
    node.python(STEP, checkpoint=CHECKPOINT)
    assert node.run() == 85, node.stderr
    assert (node.folder / ".headway-attempt.json").stat().st_mode & 0o777 == 0o600
    nonce = node.record()["nonce"]
    assert node.run() == 85, node.stderr
    assert node.run() == 0, node.stderr
    assert len(node.attempts()) == 1
    assert node.stdout() == "step 0\nstep 1\nstep 2\n"
    record = node.record()
    assert record["nonce"] == nonce
    assert [segment["exit"] for segment in record["segments"]] == [85, 85, 0]
    assert [segment["segment"] for segment in record["segments"]] == [1, 2, 3]
    assert len(record["phases"]) == 3 + 3 + 4
    assert not (node.folder / ".headway-attempt.json").exists()
    assert {each["nonce"] for each in node.chirp.phases()} == {nonce}
    assert [e["exit"] for e in node.chirp.phases() if e["phase"] == "done"] == ["85", "85", "0"]


def test_elsewhere_it_is_a_new_attempt(node: Node) -> None:
    node.python(STEP, checkpoint=CHECKPOINT)
    assert node.run() == 85
    first = node.record()
    (node.folder / ".headway-attempt.json").unlink()
    assert node.run() == 85
    second = node.record()
    assert second["attempt"] != first["attempt"]
    assert second["nonce"] != first["nonce"]
    assert second["segments"][0]["segment"] == 1


def test_a_checkpoint_that_was_not_written(node: Node) -> None:
    node.plan(["sh", "-c", "exit 85"], checkpoint=CHECKPOINT)
    assert node.run() == 83
    assert "exited 85 but ckpt is missing" in node.stderr


def test_a_forged_note_is_not_believed(node: Node) -> None:
    node.plan(["true"])
    for note in (
        {"attempt": "../../../etc/x", "nonce": "0" * 16, "segment": 1},
        {"attempt": "20250101T000000Z-abcdef", "nonce": "x" * 16, "segment": 1},
        {"attempt": "20250101T000000Z-abcdef", "nonce": "0" * 16, "segment": -5},
        ["not", "a", "note"],
    ):
        (node.folder / ".headway-attempt.json").write_text(json.dumps(note))
        assert node.run() == 0
        assert node.record()["segments"][0]["segment"] == 1
        assert node.record()["attempt"] != "20250101T000000Z-abcdef"


def test_the_time_limit_counts_all_segments(node: Node) -> None:
    """Either is within it by itself, and the first has much room to start on a busy machine."""
    code = (
        "import os, time; seconds = 1.3 if os.path.exists('ckpt') else 0.5;"
        "os.makedirs('ckpt', exist_ok=True); time.sleep(seconds); os._exit(85)"
    )
    node.python(code, checkpoint=CHECKPOINT, time_limit=1.6)
    assert node.run() == 85
    assert node.run() == 86


def test_an_agent_killed_in_the_middle_leaves_nothing_that_breaks_the_next(
    node: Node, web: Web
) -> None:
    web.files["data"] = os.urandom(300_000)
    digest = hashlib.sha256(web.files["data"]).hexdigest()
    inputs = [
        {"urls": [web.url("data")], "path": "in/data", "checksum": f"sha256:{digest}"},
        {"urls": [web.url("data")], "path": "sized", "size": 300_000},
        {"urls": [web.url("data")], "path": "unproven"},
    ]
    outputs = [{"path": "out"}]
    node.python(
        "import os, time; os.mkdir('out'); open('ready','w').write(str(os.getpid()));"
        "time.sleep(60)",
        inputs=inputs,
        outputs=outputs,
    )
    process = node.start()
    wait(lambda: (node.folder / "ready").exists() and (node.folder / "ready").read_text())
    process.send_signal(signal.SIGKILL)
    assert node.end(process) == -9
    os.kill(int((node.folder / "ready").read_text()), signal.SIGKILL)
    early = node.record()
    assert (early["exit"], early["nonce"]) == (None, None)
    (node.folder / "headway-out/outputs").mkdir()
    (node.folder / "headway-out/outputs/stale").touch()
    (node.folder / "in/data.part").write_bytes(b"rest of an earlier start")
    time.sleep(0.01)

    node.plan("touch out/model", inputs=inputs, outputs=outputs)
    assert node.run() == 0, node.stderr
    assert len(node.attempts()) == 2
    assert web.paths() == ["data", "data", "data", "data"]  # only the unproven one again
    home = sorted(p.name for p in (node.folder / "headway-out/outputs").rglob("*"))
    assert home == ["model", "out"]
    assert not list((node.folder / "headway-out").rglob(".reserve"))
    fetched = {each["path"]: each["fetched"] for each in node.record()["inputs"]}
    assert fetched == {"in/data": False, "sized": False, "unproven": True}


def test_proven_inputs_are_not_read_again_in_the_next_segment(node: Node, web: Web) -> None:
    web.files["data"] = b"x" * 1000
    node.python(STEP, checkpoint=CHECKPOINT, inputs=[{"urls": [web.url("data")], "path": "data"}])
    assert [node.run() for _ in range(3)] == [85, 85, 0]
    assert web.paths() == ["data"]


def test_a_killed_agent_does_not_leave_its_command_to_a_second_one(node: Node) -> None:
    """HTCondor kills the whole family; here the command lives on and must not disturb."""
    node.python("import os, time; open('pid','w').write(str(os.getpid())); time.sleep(60)")
    process = node.start()
    wait(lambda: (node.folder / "pid").exists() and (node.folder / "pid").read_text())
    process.kill()
    node.end(process)
    pid = int((node.folder / "pid").read_text())
    assert alive(pid)
    node.plan(["true"])
    assert node.run() == 0
    os.kill(pid, signal.SIGKILL)


def test_the_checkpoint_travels_in_the_output_folder(node: Node, tmp_path: Path) -> None:
    """HTCondor gives the next attempt the output folder of the evicted one, and nothing else."""
    node.python(STEP, checkpoint=CHECKPOINT)
    assert node.run() == 85
    snapshot = node.folder / "headway-out/checkpoint"
    assert [p.name for p in snapshot.glob("*/files/ckpt/*")] == ["0"]
    shutil.rmtree(node.folder / "ckpt")
    (node.folder / ".headway-attempt.json").unlink()
    assert node.run() == 85
    assert node.stdout() == "step 1\n"
    assert node.run() == 0
    assert not snapshot.exists()
    assert len(node.attempts()) == 2


def test_a_torn_write_does_not_reach_the_last_good_checkpoint(node: Node) -> None:
    code = """
import os, signal, sys, time
os.makedirs("ckpt/deep", exist_ok=True)
if not os.path.exists("ckpt/deep/model"):
    open("ckpt/deep/model", "w").write("good")
    os.symlink("deep/model", "ckpt/latest")
    os.symlink("..", "ckpt/up")
    os.symlink("/etc/passwd", "ckpt/far")
    os.mkfifo("ckpt/pipe")
    sys.exit(85)
assert os.path.islink("ckpt/latest")
open("ckpt/deep/model", "w").write("to")
open("ready", "w").close()
time.sleep(60)
"""
    node.python(code, checkpoint=CHECKPOINT, grace=0.2)
    assert node.run() == 85, node.stderr
    process = node.start()
    node.wait_for("ready")
    process.terminate()
    assert node.end(process) == 143
    (kept,) = node.folder.glob("headway-out/checkpoint/*/files/ckpt")
    assert (kept / "deep/model").read_text() == "good"
    assert (kept / "latest").read_text() == "good"
    assert sorted(p.name for p in kept.iterdir()) == ["deep", "latest"]
    assert (node.folder / "ckpt/deep/model").read_text() == "to"
    # elsewhere
    shutil.rmtree(node.folder / "ckpt")
    (node.folder / "ckpt.headway-part").mkdir()
    node.plan("cat ckpt/latest", checkpoint=CHECKPOINT)
    assert node.run() == 0
    assert node.stdout() == "good"


def test_a_checkpoint_of_single_files(node: Node) -> None:
    saved = {**CHECKPOINT, "paths": ["state/a", "b", "state"]}
    node.plan("mkdir state; echo a > state/a; echo b > b; exit 85", checkpoint=saved)
    assert node.run() == 85, node.stderr
    shutil.rmtree(node.folder / "state")
    (node.folder / "b").unlink()
    node.plan("cat state/a b", checkpoint=saved)
    assert node.run() == 0, node.stderr
    assert node.stdout() == "a\nb\n"


def test_a_failed_attempt_sends_no_checkpoint_home(node: Node) -> None:
    node.python(STEP, checkpoint=CHECKPOINT)
    assert node.run() == 85
    node.plan(["false"], checkpoint=CHECKPOINT)
    assert node.run() == 83
    assert not (node.folder / "headway-out/checkpoint").exists()
