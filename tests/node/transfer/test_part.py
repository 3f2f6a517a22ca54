"""What is written to a part lies where it belongs, and the disk begins with it early."""

from __future__ import annotations

import itertools
import os
import random
from pathlib import Path

import pytest

from headway.node.transfer import part as module
from headway.node.transfer.part import Part

MB = 1 << 20


def test_pieces_of_any_length_at_any_place(tmp_path: Path) -> None:
    chance = random.Random(5)
    content = chance.randbytes(40 * MB)
    cuts = sorted({0, len(content), *(chance.randrange(len(content)) for _ in range(30))})
    pieces = list(itertools.pairwise(cuts))
    chance.shuffle(pieces)
    part = Part(str(tmp_path / "a"))
    part.reserve(len(content))
    for begin, end in pieces:
        part.write(memoryview(content)[begin:end], begin)
    assert part.written == len(content)
    part.finish(len(content))
    part.close(keep=False)
    assert (tmp_path / "a").read_bytes() == content


def test_the_disk_begins_with_each_batch_once_and_with_nothing_that_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[int, int]] = []
    real = module.start_writeback

    def noted(file: int, begin: int, length: int) -> None:
        assert os.fstat(file).st_size >= begin + length
        started.append((begin, length))
        real(file, begin, length)

    monkeypatch.setattr(module, "start_writeback", noted)
    part = Part(str(tmp_path / "a"))
    piece = memoryview(bytes(3 * MB + 1))
    at = 0
    while at < 50 * MB:
        part.write(piece, at)
        at += len(piece)
    part.close(keep=False)
    assert started == [(0, 16 * MB), (16 * MB, 16 * MB), (32 * MB, 16 * MB)]
