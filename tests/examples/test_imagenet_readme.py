"""The README of the ImageNet example, command by command, as a newcomer would run it."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.lab import Filed, Rate, Server
from tests.node.stream.arriving import Trickle

from headway.check import TITLES

if importlib.util.find_spec("torch") is None or importlib.util.find_spec("PIL") is None:
    pytest.skip("the ImageNet example needs PyTorch and Pillow", allow_module_level=True)

TINY = "--image-size 32 --width 4 --batch-size 16 --epochs 1 --held-out 0 --threads 1 --save-model"
EXAMPLE = Path(__file__).parents[2] / "examples" / "imagenet"
README = (EXAMPLE / "README.md").read_text(encoding="utf-8")


@pytest.mark.timeout(290)
def test_the_commands_run(tmp_path: Path, quick_torch: str) -> None:
    for name in ("train.py", "make_data.py", "job.toml", "job.local.toml"):
        shutil.copy(EXAMPLE / name, tmp_path)
    with (tmp_path / "job.local.toml").open("a", encoding="utf-8") as file:
        file.write(f"\n{quick_torch}")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    def run(command: str) -> str:
        done = subprocess.run(
            ["sh", "-e", "-c", command],
            cwd=tmp_path,
            env={**os.environ, "PATH": path, "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    blocks = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    trained, checked, described = blocks
    results = tmp_path / re.findall(r"results: (\S+)", run(trained))[0]
    metrics = json.loads((results / "metrics.json").read_text())
    assert len(metrics["epochs"]) == 6 and metrics["epochs"][-1]["top1"] > 0.4  # chance: 0.1
    assert (results / "imagenet_resnet50.pt").stat().st_size > 1e6
    promises = run(checked)
    assert re.findall(r"^(kept|broken|not tried) ", promises, re.MULTILINE) == ["kept"] * len(
        TITLES
    )
    shutil.copy(tmp_path / "train.tar.headway", tmp_path / "ILSVRC2012_img_train.tar.headway")
    assert '+JobDurationCategory = "Long"' in run(described)


@pytest.mark.timeout(200)
def test_the_job_for_the_ospool_trains_while_its_data_arrives(
    tmp_path: Path, quick_torch: str
) -> None:
    """Its manifest is made by the job for that, and travels with it: at the source is none."""
    for name in ("train.py", "job.toml", "publish.py", "publish.toml"):
        shutil.copy(EXAMPLE / name, tmp_path)
    name, trace = "ILSVRC2012_img_train.tar", tmp_path / "trace.jsonl"
    data = tmp_path / "elsewhere" / name
    data.parent.mkdir()
    flags = "--classes 10 --per-class 40 --side 160 --workers 1"
    make = [sys.executable, str(EXAMPLE / "make_data.py"), "--output", str(data), *flags.split()]
    subprocess.run(make, check=True)
    size, digest = data.stat().st_size, hashlib.sha256(data.read_bytes()).hexdigest()
    small = """[resources]\nmemory = "1 GB"\ndisk = "200 MB"\n\n"""
    command = f"env HEADWAY_TRACE={trace} python3 train.py {TINY}"
    for job in (tmp_path / "job.toml", tmp_path / "publish.toml"):
        text = job.read_text(encoding="utf-8")
        text = re.sub(r"\[resources\].*?\n\n", small, text, flags=re.DOTALL)
        text = re.sub(r'command = "python3 train.py[^\n]*', f'command = "{command}"', text)
        text = re.sub(r"\[\[inputs\]\]\nurl = \"https.*?\n\n", "", text, flags=re.DOTALL)
        text = re.sub(r"container = [^\n]*\n", "", text)
        job.write_text(f"{text}\n{quick_torch}", encoding="utf-8")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    def run(job: str, **values: object) -> subprocess.Popen[str]:
        said = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
        return subprocess.Popen(
            [sys.executable, "-m", "headway", "run", job, "--set", f"inputs[0].size={size}", *said],
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def whole(process: subprocess.Popen[str]) -> str:
        said, _ = process.communicate(timeout=100)
        assert process.returncode == 0, said
        return said

    with Filed(data) as content, Server({f"/{name}": content}) as server:
        url = {"inputs[0].url": server.url(f"/{name}")}
        whole(run("publish.toml", **url, **{"inputs[0].checksum": f"sha256:{digest}"}))
    manifest = tmp_path / f"{name}.headway"
    pin = f"sha256:{hashlib.sha256(manifest.read_bytes()).hexdigest()}"
    # Most of it comes only once the training was seen under way, however slow the machine is.
    seen = threading.Event()
    faults = [Rate(size // 4, scope="server"), Trickle(seen.is_set, after=size // 4)]
    with Filed(data) as content, Server({f"/{name}": content}, faults) as server:
        url = {"inputs[0].url": server.url(f"/{name}")}
        process = run("job.toml", **url, **{"inputs[0].manifest": pin})
        while process.poll() is None and not trace.exists():
            time.sleep(0.01)
        sent = server.sent
        seen.set()
        assert trace.exists(), whole(process)
        said = whole(process)
        asked = [request.path for request in server.requests]
    results = tmp_path / re.findall(r"results: (\S+)", said)[0]
    assert json.loads((results / "metrics.json").read_text())["epochs"]
    assert 0 < sent < 0.8 * size and not any(each.endswith(".headway") for each in asked)
