"""A job whose input streams is checked as it will run: interrupted while its data arrives."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.check.test_faults import broken, evidence, seen
from tests.lab import Held, Rate, Server
from tests.node.transfer.made_tars import make_nested

from headway.check import check
from headway.node.transfer.manifest import digest_of, make_manifest

SCRIPT = Path(__file__).parent / "scripts" / "streaming.py"
JOB = """\
name = "streaming"
command = "python3 streaming.py"
files = ["streaming.py"]
outputs = ["model.json"]
grace = "10 s"
[resources]
memory = "50 MB"
disk = "20 MB"
[checkpoint]
paths = ["ckpt"]
[[inputs]]
url = "{url}"
manifest = "{pin}"
mode = "stream"
{more}
"""


@pytest.mark.parametrize("more", ["", 'keep = false\nwindow = "1.2 MB"'])
@pytest.mark.parametrize("forget", [False, True])
def test_while_it_arrives(tmp_path: Path, forget: bool, more: str) -> None:
    draw = random.Random(1)
    content = make_nested(
        {f"n{c}": {f"{i}.bin": draw.randbytes(20_000) for i in range(20)} for c in range(4)}
    )
    (tmp_path / "streaming.py").write_bytes(SCRIPT.read_bytes())
    (tmp_path / "published.tar").write_bytes(content)
    manifest = make_manifest(str(tmp_path / "published.tar"), chunk_size=1 << 16)
    objects = {"/train.tar": Held(content), "/train.tar.headway": Held(manifest)}
    with Server(objects, [Rate(2 << 20, scope="server")]) as server:
        job = JOB.format(url=server.url("/train.tar"), pin=digest_of(manifest), more=more)
        (tmp_path / "job.toml").write_text(job)
        extra = "--forget" if forget else ""
        found = seen(
            check(tmp_path / "job.toml", extra=extra, start=tmp_path, limit=240.0, quick=True)
        )
    if forget:
        assert {"order", "curve"} <= broken(found), found
        assert "uninterrupted" in evidence(found, "order")
    else:
        assert broken(found) == set(), found
        for name in ("resume", "curve", "order", "results", "sigterm", "exit-code"):
            assert found[name].verdict == "kept", found[name]
