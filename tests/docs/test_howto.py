"""docs/howto.md: its commands, typed in its order in one folder."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/howto.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", PAGE, re.DOTALL))
TYPED = re.findall(r"^\$ headway (.*)$", PAGE, re.MULTILINE)
TRAIN = """\
import sys
print("learning at", sys.argv[2])
if float(sys.argv[2]) > 1:
    sys.exit("the loss is not a number any more")
open("model.pt", "w").write("weights")
"""
#: What a command must say, and its exit code where it is not 0.
SAID = {
    "run scan.toml": ("scan-1.2 (lr=3.0) failed", 1),
    "status scan-1": ("scan-1.2  lr=3.0  failed", 0),
    "logs scan-1": ("scan-1.0 lr=0.1 | learning at 0.1", 0),
    "logs scan-1.2 --stderr": ("not a number", 0),
    "run scan.toml --only-missing": ("1 succeeded", 0),
    "status scan-2 --results": ("scan-1.1  lr=0.3  succeeded", 0),
    "run long.toml --detach": ("long-1 is submitted", 0),
    "hold long-1.0": ("held long-1.0", 0),
    "set long-1.0 memory=200MB": ("memory = 200 MB", 0),
    "release long-1.0": ("released long-1.0", 0),
    "remove long-1": ("removed long-1.0", 0),
    "run unpacked.toml": ("unpacked-1 finished", 0),
    "run secret.toml": ("secret-1 finished", 0),
    "clean": ("would go", 0),
    "clean --older 30d --do": ("removed 0 runs", 0),
}


def test_every_command_does_what_the_page_says(tmp_path: Path) -> None:
    assert list(SAID) == TYPED
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "train.py").write_text(TRAIN)
    with tarfile.open(tmp_path / "train.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "train.py", "one.txt")
    job = (tmp_path / "unpacked.toml").read_text()
    (tmp_path / "unpacked.toml").write_text(
        job.replace("https://example.org", f"file://{tmp_path}")
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "120"}
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    env["WANDB_API_KEY"] = "s3cret"
    for line, (words, code) in SAID.items():
        if "--only-missing" in line:
            (tmp_path / "train.py").write_text(TRAIN.replace("> 1", "> 100"))
        done = subprocess.run(
            [sys.executable, "-m", "headway", *shlex.split(line)],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == code, (line, done.stdout, done.stderr)
        assert words in done.stdout + done.stderr, (line, done.stdout, done.stderr)
