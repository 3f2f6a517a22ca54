"""A command reads a tar file by `headway.files` while the real fetcher brings it."""

from __future__ import annotations

import hashlib
import os
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.lab import Held, Rate, Server
from tests.node.conftest import Node
from tests.node.stream.arriving import until_awaited
from tests.node.transfer.made_tars import make_nested

from headway.node.transfer.manifest import digest_of, make_manifest

CHUNK = 1 << 16
READER = """
import hashlib, sys
import headway.files
for epoch in range(2):
    files = headway.files.stream("train.tar", seed=3, epoch=epoch)
    seen = set()
    for name, class_name, data in files:
        digest = hashlib.sha256(data[32:]).digest()
        if digest != data[:32] or name.partition("/")[0] != class_name or name in seen:
            sys.exit("wrong bytes: " + name)
        seen.add(name)
    print(epoch, len(seen), files.waited > 0)
"""


def sample(draw: random.Random) -> bytes:
    data = draw.randbytes(draw.randint(5_000, 60_000))
    return hashlib.sha256(data).digest() + data


@pytest.fixture
def content() -> bytes:
    draw = random.Random(1)
    return make_nested({f"n{c}": {f"{i}.bin": sample(draw) for i in range(40)} for c in range(6)})


@pytest.mark.parametrize("window", [0, 60 * CHUNK])
def test_every_file_once_an_epoch(node: Node, tmp_path: Path, content: bytes, window: int) -> None:
    """Also where the disk has room for half of it: what was given back comes again."""
    (tmp_path / "train.tar").write_bytes(content)
    manifest = make_manifest(str(tmp_path / "train.tar"), chunk_size=CHUNK)
    objects = {"/train.tar": Held(content), "/train.tar.headway": Held(manifest)}
    with Server(objects, [Rate(8 << 20), until_awaited(node.folder / "train.tar")]) as server:
        given: dict[str, Any] = {
            "path": "train.tar",
            "urls": [server.url("/train.tar")],
            "manifest": digest_of(manifest),
            "mode": "stream",
            "patience": 30.0,
        }
        if window:
            given.update(keep=False, window=window)
        command = [sys.executable, "-c", READER.replace("{", "{{").replace("}", "}}")]
        node.plan(command, inputs=[given])
        assert node.run() == 0, node.stderr
        sent = server.sent
    assert node.stdout().split()[:2] == ["0", "240"], node.stdout()
    assert node.stdout().splitlines()[1].startswith("1 240")
    assert node.record()["inputs"][0]["waited"] > 0
    if window:
        assert sent < 3.3 * len(content)  # twice, and again the blocks of samples that cross
    else:
        assert len(content) <= sent < 1.3 * len(content)
        assert os.path.getsize(node.folder / "train.tar") == len(content)
