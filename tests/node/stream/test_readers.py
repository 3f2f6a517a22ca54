"""What readers hear of an object that has no manifest."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.node.errors import TransferError
from headway.node.stream.arrival import FAILED, Arrival
from headway.node.stream.fetcher import UNIT, Readers


def test_after_another_version_nobody_hears_of_more(tmp_path: Path) -> None:
    """They have read some of the old one, and its successor comes before the next look."""
    readers = Readers(str(tmp_path / "a"), None)
    readers.begins(4 * UNIT)
    with Arrival.follow(str(tmp_path / "a.arrival")) as reader:
        readers.proven(0, UNIT)
        readers.lost(0, 4 * UNIT)
        readers.proven(0, 2 * UNIT)
        assert reader.state == FAILED and reader.count() == 0
        with pytest.raises(TransferError, match="changed at its source") as caught:
            reader.wait(UNIT, 2 * UNIT)
        assert caught.value.retryable


def test_a_loss_that_nobody_has_heard_of_is_none(tmp_path: Path) -> None:
    readers = Readers(str(tmp_path / "a"), None)
    readers.begins(4 * UNIT)
    with Arrival.follow(str(tmp_path / "a.arrival")) as reader:
        readers.lost(0, 4 * UNIT)
        readers.proven(0, UNIT)
        assert reader.wait(0, UNIT) == 0.0
