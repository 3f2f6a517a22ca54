"""`headway init`: every job.toml that it writes loads, and says what the script does."""

from __future__ import annotations

import json
import string
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.cli.draft import guess
from headway.cli.init import write_job_toml
from headway.errors import SpecError
from headway.spec import load_job

from .conftest import Done

TRAIN = '''\
"""See https://example.org/paper.html and https://example.org/old.tar."""
import argparse, json
from pathlib import Path
import torch
from model import Net
import helpers.data
DATA = "https://example.org/cifar-10-binary.tar.gz"
parser = argparse.ArgumentParser()
parser.add_argument("--output", type=Path, default=Path("model.pt"))
parser.add_argument("--epochs", type=int, default=3)
settings = json.load(open("settings.json"))
torch.save(Net().state_dict(), "weights/final.pt")
with open("metrics.json", "w") as file:
    json.dump({}, file)
Path("notes.txt").write_text("x")
open("/tmp/elsewhere.txt", "w")
open(f"{DATA}.txt", "w")
'''


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "helpers").mkdir()
    (tmp_path / "helpers" / "__init__.py").touch()
    (tmp_path / "model.py").write_text("class Net: ...")
    (tmp_path / "settings.json").write_text("{}")
    path = tmp_path / "train.py"
    path.write_text(TRAIN)
    return path


def test_it_asks_for_no_more_disk_than_it_has_reason_to(script: Path, tmp_path: Path) -> None:
    target, text = write_job_toml(script)
    assert load_job(target).resources.disk == 2 * 10**9
    assert "# disk: 2 GB for models and checkpoints.\n" in text
    assert "# Add the size of cifar-10-binary.tar.gz, which line 7 fetches.\n" in text
    target.unlink()
    data = tmp_path / "helpers" / "data.bin"
    with data.open("wb") as file:
        file.truncate(3 * 10**9)
    target, text = write_job_toml(script)
    assert load_job(target).resources.disk == 81 * 10**8  # and a few more bytes, twice
    assert "# disk: 3 GB of files, packed and unpacked, and 2 GB for models and che" in text
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "count.sh").write_text("wc -l data.csv > lines.txt\n")
    (plain / "data.csv").write_bytes(b"x" * 20_000_000)
    target, text = write_job_toml(plain / "count.sh")
    assert load_job(target).resources.disk == 11 * 10**8
    assert "# disk: 20 MB of files, packed and unpacked, and 1 GB for what the comm" in text


def test_what_is_read_off_a_script(script: Path) -> None:
    found = guess(script)
    assert found.command == ["python3", "train.py"]
    assert set(found.files) == {"train.py", "model.py", "helpers", "settings.json"}
    assert set(found.outputs) == {"model.pt", "weights/final.pt", "metrics.json", "notes.txt"}
    assert "https://example.org/cifar-10-binary.tar.gz" in found.urls
    assert "https://example.org/paper.html" not in found.urls
    assert found.gpu_module == "torch"


def test_the_file_loads_and_explains(script: Path, headway: Callable[..., Done]) -> None:
    done = headway("init", "train.py")
    assert "wrote job.toml" in done.stdout
    job = load_job(script.with_name("job.toml"))
    assert job.name == "train"
    assert {output.path for output in job.outputs} >= {"metrics.json", "model.pt"}
    assert job.resources.gpus is None
    text = script.with_name("job.toml").read_text()
    assert '# url = "https://example.org/cifar-10-binary.tar.gz"' in text
    assert "# [resources.gpus]" in text
    assert "the script uses torch" in text


def test_nothing_is_overwritten(script: Path, headway: Callable[..., Done]) -> None:
    script.with_name("job.toml").write_text("mine")
    assert "exists already" in headway("init", "train.py", code=2).stderr
    assert script.with_name("job.toml").read_text() == "mine"
    script.with_name("job.toml").unlink()
    document = json.loads(headway("init", "train.py", "--json").stdout)
    assert document["text"] == script.with_name("job.toml").read_text()
    assert sorted(path.name for path in script.parent.iterdir() if path.name[0] == ".") == []


def test_the_comments_hold_once_they_are_uncommented(script: Path) -> None:
    target, text = write_job_toml(script)
    lines = [
        line.removeprefix("# ")
        if line.startswith(("# [", "# count", "# memory", "# url", "# paths", "# interval"))
        else line
        for line in text.splitlines()
    ]
    target.write_text("\n".join(lines))
    job = load_job(target)
    assert job.resources.gpus is not None
    assert job.checkpoint is not None
    assert job.inputs


@pytest.mark.parametrize(
    ("name", "text", "command"),
    [
        ("go.sh", "echo hi\n", ["bash", "go.sh"]),
        ("go", "#!/usr/bin/env python3\nprint(1)\n", ["python3", "go"]),
        ("go", "#!/bin/sh\n", ["sh", "go"]),
        ("go.R", "print(1)", ["Rscript", "go.R"]),
        ("a.out", "\x7fELF\0\0", ["./a.out"]),
        ("bad.py", "def broken(:\n", ["python3", "bad.py"]),
        ("empty.py", "", ["python3", "empty.py"]),
    ],
)
def test_interpreters(tmp_path: Path, name: str, text: str, command: list[str]) -> None:
    (tmp_path / name).write_text(text)
    target, _ = write_job_toml(tmp_path / name)
    assert list(load_job(target).command) == command


def test_a_shell_script_around_a_python_script(tmp_path: Path) -> None:
    (tmp_path / "inner.py").write_text("import torch\ntorch.save(1, 'net.pt')\n")
    (tmp_path / "go.sh").write_text(
        "#!/bin/bash\n# wget https://example.org/no.tar\n"
        "curl -O https://example.org/data.tar\npython3 inner.py\n"
    )
    found = guess(tmp_path / "go.sh")
    assert found.files == ["go.sh", "inner.py"]
    assert found.urls == {"https://example.org/data.tar": 3}
    assert found.gpu_module == "torch"
    assert "net.pt" in found.outputs


@given(name=st.text(string.printable + "äß{}日\x7f", min_size=1, max_size=20))
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None
)
def test_any_name_gives_a_good_file_or_a_reason(
    tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    if "/" in name or name in (".", "..", "job.toml"):
        return
    script = tmp_path_factory.mktemp("any") / f"{name}.py"
    script.write_text('open("out.txt", "w")')
    try:
        target, _ = write_job_toml(script)
    except SpecError:
        # Some names cannot be in `files` at all; then nothing must be left behind.
        assert [path.name for path in script.parent.iterdir()] == [script.name]
        return
    assert load_job(target).command[-1].replace("{{", "{").replace("}}", "}") == script.name


CONDITIONAL = """\
import argparse, torch
from torchvision import datasets

def save_checkpoint(state, is_best):
    torch.save(state, "checkpoint.pth.tar")
    if is_best:
        shutil.copyfile("checkpoint.pth.tar", "best.pth.tar")
        torch.save(state, "best.pth.tar")

def debug():
    open("debug.txt", "w")

def dump(rows):
    rows.to_csv("rows.csv")

class Trainer:
    def __init__(self):
        open("started.txt", "w")
    def export(self):
        torch.save(1, "exported.pt")
    def unused(self):
        torch.save(1, "unused.pt")

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--save-model", action="store_true")
    parser.add_argument("--metrics", default="metrics.json")
    parser.add_argument("--output-file", default="predictions.npz")
    args = parser.parse_args()
    data = datasets.MNIST("../data", train=True)
    for epoch in range(3):
        save_checkpoint({}, epoch == 2)
    if args.debug:
        debug()
        open(args.metrics, "w")
    trainer = Trainer()
    trainer.export()
    try:
        open("history.txt", "w")
    except OSError:
        open("error.txt", "w")
    if args.fast:
        open("both.txt", "w")
    else:
        open("both.txt", "w")
    spawn(dump)
    np.savez(args.output_file)
    if args.save_model:
        torch.save(model.state_dict(), "mnist_cnn.pt")

if __name__ == "__main__":
    main()
"""


def test_what_is_written_under_a_condition_is_not_declared(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(CONDITIONAL)
    found = guess(tmp_path / "train.py")
    sure = {"checkpoint.pth.tar", "started.txt", "exported.pt", "history.txt", "both.txt"}
    assert set(found.outputs) == {*sure, "rows.csv", "predictions.npz"}
    perhaps = {"best.pth.tar", "debug.txt", "unused.pt", "error.txt", "mnist_cnn.pt"}
    assert set(found.perhaps) == {*perhaps, "metrics.json"}
    target, text = write_job_toml(tmp_path / "train.py")
    assert "mnist_cnn.pt" not in {output.path for output in load_job(target).outputs}
    line = CONDITIONAL.splitlines().index('        torch.save(model.state_dict(), "mnist_cnn.pt")')
    assert f"# [[outputs]]  # line {line + 1} writes it, but only under a condition\n" in text
    assert '# path = "mnist_cnn.pt"\n' in text


def test_data_above_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text('import sys\nread("../data")\nopen("../../x/a b.csv")\n')
    found = guess(tmp_path / "train.py")
    assert found.above == {"../data": 2, "../../x/a b.csv": 3}
    _, text = write_job_toml(tmp_path / "train.py")
    assert "# Line 2 names ../data, which is outside the job's folder" in text
    assert "Let the script read data instead, and copy the file into this folder" in text
    (tmp_path / "go.sh").write_text("python3 train.py --data ../sets/b.tar\n")
    assert guess(tmp_path / "go.sh").above == {
        "../sets/b.tar": 1,
        "../data": 2,
        "../../x/a b.csv": 3,
    }


@pytest.mark.parametrize("name", ["params.txt", "data.tar", "job.toml"])
def test_a_file_that_cannot_be_started_is_no_script(
    tmp_path: Path, name: str, headway: Callable[..., Done]
) -> None:
    (tmp_path / name).write_text("0.1, 1\n")
    assert "neither a script nor a submit file" in headway("init", name, code=2).stderr
    assert [path.name for path in tmp_path.iterdir()] == [name]
    (tmp_path / name).chmod(0o755)
    if name != "job.toml":
        assert "wrote " in headway("init", name).stdout
