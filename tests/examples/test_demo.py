"""The README's first command: data over HTTP, training, an eviction on purpose, the result home."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the demo trains with torch; install the extra `examples`")

EXAMPLE = Path(__file__).parents[2] / "examples" / "cifar10"
COMMAND = (
    "python3 train.py --data cifar10-small.tar --epochs 4 --width 8 --blocks 1 --batch-size 32"
    " --threads 1"
)


@pytest.mark.timeout(280)
def test_the_demo_is_evicted_goes_on_and_learns(
    tmp_path: Path, quick_start: dict[str, str]
) -> None:
    quick = f'environment.PYTHONPATH="{quick_start["PYTHONPATH"]}"'
    done = subprocess.run(
        [sys.executable, str(EXAMPLE / "demo.py"), "--set", f'command="{COMMAND}"', "--set", quick],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=270,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 attempts, 1 eviction on purpose" in done.stdout
    result = Path(done.stdout.strip().rpartition("The result: ")[2])
    assert result.stat().st_size > 10_000
    metrics = json.loads((result.parent / "metrics.json").read_text())
    assert metrics["resumed"] == 1 and metrics["test_accuracy"] > 0.3, metrics
