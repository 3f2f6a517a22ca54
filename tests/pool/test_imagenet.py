"""The ImageNet example on a real HTCondor: streaming and evicted, it ends with the same model."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.lab import Filed, Held, Rate, Server, Silent

from headway.events import Outcome
from headway.node.transfer.manifest import digest_of, make_manifest

from .client import ROOT, install_extra, system_python
from .harness import Pool
from .places import CondorPlace
from .together import beside_others

if importlib.util.find_spec("torch") is None or importlib.util.find_spec("PIL") is None:
    pytest.skip("the ImageNet example needs PyTorch and Pillow", allow_module_level=True)

EXAMPLE = ROOT / "examples" / "imagenet"
SEEN, MODEL = "trace.jsonl", "imagenet_resnet50.pt"
SMALL = (
    "--data train.tar --image-size 32 --width 8 --batch-size 16 --epochs 2 --held-out 0"
    " --threads 1 --save-model"
)
MADE = ("--classes", "8", "--per-class", "40", "--side", "160", "--workers", "1")
STEPS = 18  # of an epoch: nine tenths of 320 images in batches of 16
# Elsewhere each time, with workers, which change nothing; the trace of all attempts belongs to the
# checkpoint.
JOB = f"""
name = "imagenet"
command = "env HEADWAY_TRACE={SEEN} %s train.py {SMALL} --workers 2"
files = ["train.py"]
outputs = ["{MODEL}", "metrics.json", "{SEEN}"]
requirements = "TARGET.GLIDEIN_ResourceName =!= MY.MachineAttrGLIDEIN_ResourceName0"
grace = "30 s"
[environment]
PYTHONPATH = "%s"
[[inputs]]
url = "%s"
manifest = "%s"
mode = "stream"
[checkpoint]
paths = ["ckpt", "{SEEN}"]
[resources]
memory = "1.5 GB"
disk = "200 MB"
"""


def steps(trace: Path) -> list[tuple[int, int, float, list[int]]]:
    rows = [json.loads(line) for line in trace.read_text().splitlines()]
    return [(r["epoch"], r["step"], r["loss"], r["samples"]) for r in rows if "step" in r]


def uninterrupted(libraries: Path, data: Path, folder: Path) -> subprocess.Popen[str]:
    """The same command on this machine, with all of the data there."""
    for source in (data, Path(f"{data}.headway")):
        (folder / source.name).symlink_to(source)
    return subprocess.Popen(
        [system_python(), str(EXAMPLE / "train.py"), *SMALL.split()],
        cwd=folder,
        env={"PYTHONPATH": f"{ROOT / 'src'}:{libraries}", "HEADWAY_TRACE": SEEN},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.timeout(600)  # the first time, PyTorch is installed for the jobs
@beside_others(40)
def test_an_evicted_training_ends_with_the_same_model(condor_pool: Pool) -> None:
    libraries = install_extra("examples", condor_pool.image.parent)
    folder = condor_pool.user_dir()
    data, whole = folder / "train.tar", folder / "whole"
    make = [sys.executable, str(EXAMPLE / "make_data.py"), "--output", str(data), *MADE]
    subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
    manifest = make_manifest(str(data), chunk_size=1 << 16)
    Path(f"{data}.headway").write_bytes(manifest)
    content = Filed(data)
    objects = {"/train.tar": content, "/train.tar.headway": Held(manifest)}
    place = CondorPlace(condor_pool)
    place.write({"train.py": (EXAMPLE / "train.py").read_text()})
    whole.mkdir()

    def traced() -> int:
        found = condor_pool.home.glob(f"sites/*/execute/dir_*/scratch/{SEEN}")
        return sum(path.read_bytes().count(b'"step"') for path in found)

    # all of it takes a minute, so that the eviction is in the midst of the first epoch
    with Server(objects, [Rate(content.size / 60, scope="server")]) as server:
        told = (system_python(), libraries, server.url("/train.tar"), digest_of(manifest))
        run = place.start(JOB % told)
        alone = uninterrupted(libraries, data, whole)
        try:
            condor_pool.wait_for(lambda: traced() >= 3, 240, "three steps of the training")
            server.faults = [Silent()]  # the training waits for data when SIGTERM comes
            place.headway("evict", run.label)
            place.wait(run, lambda state: state.evictions == 1)
            server.faults = []
            place.settle(run, 300)
            said, _ = alone.communicate(timeout=300)
        finally:
            alone.kill()
            alone.wait()
    content.close()
    state, home = run.jobs[0], run.outputs(0)
    assert state.outcome is Outcome.SUCCESS and state.attempts == 2, place.story()
    assert alone.returncode == 0, said

    attempts = sorted(
        run.folder.attempts(0), key=lambda each: _record(each)["segments"][0]["begin"]
    )
    first, last = map(_record, attempts)
    assert first["site"] != last["site"]
    assert 0 < first["inputs"][0]["bytes"] < content.size == first["inputs"][0]["size"]
    going_on = re.match(r"going on at sample (\d+) of epoch 1\n", _stdout(attempts[1]))
    assert going_on is not None and _stdout(attempts[0]) == ""

    seen, expected = steps(home / SEEN), steps(whole / SEEN)
    assert len(expected) == 2 * STEPS and seen == expected
    left_at = [step for step in seen if step[0] == 0][: int(going_on[1]) // 16]
    assert 3 <= len(left_at) < STEPS
    assert (home / MODEL).read_bytes() == (whole / MODEL).read_bytes()
    assert (home / "metrics.json").read_bytes() == (whole / "metrics.json").read_bytes()


def _record(attempt: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((attempt / "record.json").read_text())
    return found


def _stdout(attempt: Path) -> str:
    return (attempt / "stdout").read_text()
