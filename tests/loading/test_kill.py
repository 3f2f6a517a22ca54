"""A training that is killed at any moment goes on, and every sample was in one completed step."""

from __future__ import annotations

import json
import os
import random
import subprocess
import textwrap
import time
from pathlib import Path

import pytest
from tests.lab.torch_loaded import Program, TorchLoaded
from tests.loading.conftest import CLASSES, COUNT, EACH

TRAINING = """
    import json, os, signal, sys
    import torch
    from headway.checkpoint import Checkpoint
    from headway.torch import Loader, TarDataset

    torch.set_num_threads(1)
    EPOCHS = 2

    def decode(data):
        return torch.tensor(float(data.partition(b"/")[0]))

    def transform(number):
        return number, torch.rand(())

    if __name__ == "__main__":
        data = TarDataset(sys.argv[1], decode=decode, transform=transform)
        loader = Loader(data, 16, seed=7, workers=int(sys.argv[2]))
        model = torch.nn.Linear(1, 1)
        torch.nn.init.constant_(model.weight, 0.5)
        checkpoint = Checkpoint("ckpt")
        kept = checkpoint.load(model=model, loader=loader)
        step = kept["step"] if kept else 0
        left = int(sys.argv[3])  # steps until it waits to be killed
        log = os.open("steps", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        while loader.epoch < EPOCHS:
            for (numbers, noise), labels in loader:
                epoch = loader.epoch
                with torch.no_grad():
                    model.weight += (noise.sum() * 1e-3).item()
                had = [int(n) for n in numbers.tolist()]
                line = {"epoch": epoch, "step": step, "had": had, "weight": model.weight.item()}
                step += 1
                os.write(log, (json.dumps(line) + "\\n").encode())
                if step % 3 == 0:
                    checkpoint.save(model=model, loader=loader, step=step)
                left -= 1
                if left == 0:
                    signal.pause()
        checkpoint.save(model=model, loader=loader, step=step)
        print(model.weight.item())
"""


def start(loaded: TorchLoaded, folder: Path, path: Path, workers: int, most: int = 0) -> Program:
    (folder / "train.py").write_text(textwrap.dedent(TRAINING))
    with open(folder / "said", "wb") as said, open(folder / "errors", "wb") as errors:
        words = ["train.py", str(path), str(workers), str(most)]
        return loaded.start(words, cwd=folder, output=said.fileno(), errors=errors.fileno())


def said_by(program: Program, folder: Path) -> str:
    assert program.wait(100) == 0, (folder / "errors").read_text()
    return (folder / "said").read_text()


def lines(folder: Path) -> list[dict[str, object]]:
    try:
        return [json.loads(line) for line in (folder / "steps").read_text().splitlines()]
    except FileNotFoundError:
        return []


@pytest.mark.timeout(240)
def test_killed_at_any_moment(path: Path, tmp_path: Path, torch_loaded: TorchLoaded) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir()
    cut.mkdir()
    undisturbed = start(torch_loaded, whole, path, 0)
    moments = random.Random(5)
    for workers in (2, 0):
        process = start(torch_loaded, cut, path, workers, most=10)
        had = len(lines(cut))
        enough = had + moments.randint(2, 8)
        end = time.monotonic() + 60
        while len(lines(cut)) < enough:
            assert time.monotonic() < end and process.poll() is None
            time.sleep(0.001)
        time.sleep(moments.random() * 0.003)
        process.kill()
        assert process.wait() == -9
    output = said_by(start(torch_loaded, cut, path, 2), cut)
    assert output == said_by(undisturbed, whole) != ""  # the same weight to the last bit

    steps: dict[object, dict[str, object]] = {}
    for line in lines(cut):
        assert steps.setdefault(line["step"], line) == line  # done again, it is the same step
    assert list(steps.values()) == lines(whole)
    for epoch in range(2):
        had_in_epoch: list[int] = []
        for line in steps.values():
            if line["epoch"] == epoch:
                had_in_epoch += line["had"]  # type: ignore[arg-type]
        assert sorted(had_in_epoch) == list(range(COUNT)) == list(range(CLASSES * EACH))


def test_from_the_file_that_comes_with_a_job(
    path: Path, tmp_path: Path, torch_loaded: TorchLoaded
) -> None:
    """headway-node.pyz on PYTHONPATH is all that a worker node has of Headway."""
    from headway.pool.program import build_agent

    build_agent(tmp_path / "headway-node.pyz")
    program = """
        import headway, headway.files, headway.torch
        assert ".pyz" in headway.torch.__file__
        assert ".pyz" in headway.files.__file__
        import sys
        loader = headway.torch.Loader(headway.torch.TarDataset(sys.argv[1]), 50, workers=1)
        print(sum(len(labels) for _, labels in loader), len(headway.files.Files(sys.argv[1])))
    """
    (tmp_path / "program.py").write_text(textwrap.dedent(program))
    done = subprocess.run(
        torch_loaded.command("program.py", str(path)),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "headway-node.pyz")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == [str(COUNT)] * 2, done.stderr
