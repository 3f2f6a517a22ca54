"""The README of the ImageNet example, command by command, as a newcomer would run it."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headway.check import TITLES
from headway.spec import load_job

if importlib.util.find_spec("torch") is None or importlib.util.find_spec("PIL") is None:
    pytest.skip("the ImageNet example needs PyTorch and Pillow", allow_module_level=True)

EXAMPLE = Path(__file__).parents[2] / "examples" / "imagenet"
README = (EXAMPLE / "README.md").read_text(encoding="utf-8")


@pytest.mark.timeout(290)
def test_the_commands_run(tmp_path: Path) -> None:
    for name in ("train.py", "make_data.py", "job.toml", "job.local.toml"):
        shutil.copy(EXAMPLE / name, tmp_path)
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
    assert '+JobDurationCategory = "Long"' in run(described)


def test_an_input_of_ones_own_can_be_put_in(tmp_path: Path) -> None:
    """The lines for a published copy, in place of the first input."""
    text = (EXAMPLE / "job.toml").read_text(encoding="utf-8")
    [lines] = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
    first = re.search(r"\[\[inputs\]\].*?\n\n", text, re.DOTALL)
    assert first is not None
    own = text.replace(first[0], lines.replace("…", "0" * 64) + "\n")
    (tmp_path / "job.toml").write_text(own, encoding="utf-8")
    (tmp_path / "train.py").touch()
    job = load_job(tmp_path / "job.toml")
    assert [each.mode for each in job.inputs] == ["stream", "file"]
    assert job.inputs[0].urls[0].startswith("osdf:///ospool/")
