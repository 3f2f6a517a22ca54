"""A command on a worker imports headway.checkpoint with nothing installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import headway

SCRIPT = """\
import sys
import time
from headway.checkpoint import Checkpoint
assert "site" not in sys.modules  # -S: what is installed on this machine is out of sight
checkpoint = Checkpoint("ckpt")
kept = checkpoint.load()
step = kept["step"] if kept else 0
print("from", step, flush=True)
while step < 3:
    step += 1
    time.sleep(0.002)
    checkpoint.tick(step=step)
open("done", "w").write(str(step))
"""

JOB = """\
name = "train"
command = "{python} -S train.py"
files = ["train.py"]
outputs = ["done"]
environment = {{ PYTHONPATH = "/nowhere" }}
[resources]
memory = "50 MB"
disk = "10 MB"
[checkpoint]  # the interval is over at once: it leaves after each step, and is started again
paths = ["ckpt"]
interval = "0.001 s"
exit_code = {code}
"""


@pytest.mark.parametrize("code", [85, 77])
def test_on_the_local_pool(tmp_path: Path, code: int) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "job.toml").write_text(JOB.format(python=sys.executable, code=code))
    run = headway.run(tmp_path / "job.toml", start=tmp_path)
    run.pool.leave(run.folder)
    assert run.succeeded(), run.stream(0, "stderr")
    stdout = run.stream(0, "stdout")
    assert stdout is not None and stdout.read_text() == "from 0\nfrom 1\nfrom 2\nfrom 3\n"
