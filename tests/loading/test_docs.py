"""The examples of docs/streaming.md, and of the docstrings, run."""

from __future__ import annotations

import doctest
import re
import subprocess
from pathlib import Path
from types import ModuleType

import pytest
from tests.lab.torch_loaded import TorchLoaded
from tests.loading.conftest import write
from tests.node.transfer.made_tars import make_nested, make_tar

import headway.files
import headway.torch.dataset

PAGE = (Path(__file__).parents[2] / "docs" / "streaming.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"<!-- example: (\w+) -->\n```python\n(.*?)```", PAGE, re.DOTALL))
EXPECTED = {
    "trains": r"epoch 1: waited \d+ s for data\nepoch 2: waited \d+ s for data\n",
    "map": r"epoch 1: 16 steps\nepoch 2: 16 steps\n",
    "cifar": r"\(100, 3, 32, 32\) 0 9\n",
    "files": r"n\d/\d+\.jpeg n\d 40\d waited 0 s\n20 files are left\n407 121\n",
}


@pytest.mark.parametrize("name", EXPECTED)
def test_the_examples_run(name: str, tmp_path: Path, torch_loaded: TorchLoaded) -> None:
    assert set(EXAMPLES) == set(EXPECTED)
    images = {
        f"n{c}": {f"{i}.jpeg": bytes([c]) * (400 + i % 10) for i in range(30)} for c in range(4)
    }
    images["n0"]["notes.txt"] = b"not an image"
    write(tmp_path / "train.tar", make_nested(images))
    records = {
        f"c/data_batch_{b}.bin": b"".join(bytes([n % 10]) + bytes(3072) for n in range(60))
        for b in (1, 2)
    }
    write(tmp_path / "cifar-10-binary.tar", make_tar({"c/test_batch.bin": b"", **records}))
    strict = "import warnings; warnings.simplefilter('error')\n"
    (tmp_path / "example.py").write_text(strict + EXAMPLES[name])
    done = subprocess.run(
        torch_loaded.command("example.py"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(EXPECTED[name], done.stdout), done.stdout


@pytest.mark.parametrize("module", [headway.files, headway.torch.dataset])
def test_the_examples_of_docstrings_run(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"cat/1.jpeg": b"miaow", "dog/1.jpeg": b"woof", "notes.txt": b"n"}
    write(tmp_path / "train.tar", make_tar(files))
    monkeypatch.chdir(tmp_path)
    found = doctest.testmod(module)
    assert found.attempted and not found.failed
