"""SIGTERM to a whole process group: while a batch is waited for, and with workers beside."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.checkpoint import Checkpoint
from headway.node.process import ignore_foreign_sigterm


class Numbers:
    """A loader of 0, 1, 2, …; `strike` is called before each is given, and after it was counted."""

    def __init__(self, strike: Any) -> None:
        self.position, self.strike = 0, strike

    def __iter__(self) -> Iterator[int]:
        while True:
            self.strike(self.position, "before")
            self.position += 1
            self.strike(self.position, "after")
            yield self.position - 1

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}


def leave_at(number: int, moment: str, folder: Path) -> tuple[list[int], Any]:
    """Have SIGTERM come at that moment: what the loop had done, and what was saved."""
    done: list[int] = []

    def strike(position: int, when: str) -> None:
        if (position, when) == (number, moment):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.001)  # the handler has its turn
            assert moment == "after", "a batch came although SIGTERM was there first"

    loader = Numbers(strike)
    checkpoint = Checkpoint(str(folder))

    def state() -> dict[str, Any]:
        return {"loader": loader, "done": done}

    with pytest.raises(SystemExit) as left:
        for batch in checkpoint.over(loader, state):
            done.append(batch)
            checkpoint.tick(**state())
    assert left.value.code == 85
    return done, Checkpoint(str(folder)).load()


@pytest.fixture(autouse=True)
def own_handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("number", [0, 3])
def test_sigterm_while_a_batch_is_waited_for(tmp_path: Path, number: int) -> None:
    done, kept = leave_at(number, "before", tmp_path)
    assert done == list(range(number))
    assert kept == {"loader": {"position": number}, "done": done}


def test_a_batch_that_was_given_is_not_lost(tmp_path: Path) -> None:
    """Its place is counted when SIGTERM comes: the loop must have it first."""
    done, kept = leave_at(3, "after", tmp_path)
    assert done == [0, 1, 2] and kept == {"loader": {"position": 3}, "done": done}


def test_over_ends_where_the_loader_does(tmp_path: Path) -> None:
    assert list(Checkpoint(str(tmp_path)).over([1, 2, 3], dict)) == [1, 2, 3]


def _shielded(ready: Any) -> None:
    ignore_foreign_sigterm()
    ready.send(1)
    time.sleep(60)


def test_a_child_passes_over_sigterm_of_others() -> None:
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_shielded, args=(theirs,))
    child.start()
    assert child.pid is not None and child.pid > 0 and ours.poll(10)
    subprocess.run(["kill", "-TERM", str(child.pid)], check=True)  # from a process of its own
    child.join(0.5)
    assert child.exitcode is None
    child.terminate()
    child.join(10)
    assert child.exitcode == 0


QUICK_TORCH = Path(__file__).parents[1] / "lab" / "quick_torch"
TRAINING = """
    import sys, time, torch
    from headway.checkpoint import Checkpoint

    class Squares(torch.utils.data.Dataset):
        def __len__(self):
            return 100_000
        def __getitem__(self, number):
            time.sleep(0.001)
            return torch.tensor(number**2)

    if __name__ == "__main__":
        torch.set_num_threads(1)
        checkpoint, step = Checkpoint("ckpt"), 0
        model = torch.nn.Linear(300, 300)
        for _ in torch.utils.data.DataLoader(Squares(), batch_size=4, num_workers=2):
            time.sleep(0.02)
            step += 1
            print(step, flush=True)
            checkpoint.tick(step=step, model=model)
"""


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch")
def test_torchs_workers_outlive_an_eviction(tmp_path: Path) -> None:
    """A loader whose workers were killed would raise in the midst of the save."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(TRAINING)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(QUICK_TORCH)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout and process.pid > 0
        steps = [process.stdout.readline() for _ in range(5)]
        os.killpg(process.pid, signal.SIGTERM)
        rest, said = process.communicate(timeout=120)
    finally:
        process.kill()
    assert (process.returncode, said) == (85, "")
    kept = Checkpoint(str(tmp_path / "ckpt")).load()
    assert kept is not None and kept["step"] == len(steps) + len(rest.splitlines())
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)  # and none of them is left
