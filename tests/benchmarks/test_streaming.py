"""How benchmarks/streaming.py judges what it has measured; the measuring is its own to do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from streaming import NAME, OURS, Column, Result, standings, table, used

SECONDS = Column("seconds", "seconds", False, ".1f")
RATE = Column("images/s", "rate", True, ",.0f")


@pytest.mark.parametrize(
    ("ours", "theirs", "standing"),
    [
        ([1.0, 1.1, 1.2], [2.0, 2.1, 2.2], "leads"),
        ([1.0, 1.1, 1.2], [1.1, 1.1, 1.1], "leads"),  # a tie is nobody's defeat
        ([1.0, 1.3, 1.4], [1.1, 1.2, 1.3], "level"),
        ([1.4, 1.5, 1.6], [1.1, 1.2, 1.3], "behind"),
        ([1.4], [1.3], "behind"),  # one run tells nothing of its spread
    ],
)
def test_a_column_is_led_by_the_median(
    ours: list[float], theirs: list[float], standing: str
) -> None:
    assert SECONDS.standing(ours, theirs) == standing
    assert RATE.standing([-each for each in ours], [-each for each in theirs]) == standing


def runs(*pairs: tuple[float, float]) -> list[Result]:
    return [{"seconds": seconds, "rate": rate} for seconds, rate in pairs]


def test_every_column_that_is_not_led_is_told_with_both_figures() -> None:
    taken = {
        "one": runs((5.0, 4000.0), (5.0, 4000.0)),
        "other": runs((9.0, 1234.0), (9.0, 1234.0)),
        OURS: runs((4.0, 3000.0), (4.0, 3000.0)),
    }
    found = standings("present", (SECONDS, RATE), taken)
    assert found == {"level": [], "behind": ["present: behind in images/s: 3,000, one 4,000"]}
    assert standings("present", (RATE,), {"one": taken["one"]}) == {"level": [], "behind": []}


def test_an_epoch_that_ends_late_is_told_even_where_it_leads() -> None:
    taken = {"one": [{"late": 2.0}], OURS: [{"late": 1.2}, {"late": 1.11}, {"late": 1.0}]}
    late = Column("late", "late", False, ".3f")
    told = ["arriving: the epoch ends at 1.110 of the download's time"]
    assert standings("arriving", (late,), taken)["behind"] == told


def test_the_table_has_a_line_for_each_way() -> None:
    lines = table((SECONDS, RATE), {"one": {"seconds": 1.25, "rate": 4000.0}})
    assert [line.split() for line in lines] == [["seconds", "images/s"], ["one", "1.2", "4,000"]]


def test_the_data_itself_is_no_extra(tmp_path: Path) -> None:
    tar, made = tmp_path / NAME, tmp_path / "made"
    tar.write_bytes(bytes(1 << 20))
    (made / "folder").mkdir(parents=True)
    os.link(tar, made / NAME)
    before = used(made, tar)
    assert before[1] == 1
    (made / "folder" / "image").write_bytes(bytes(1 << 16))
    (made / f"{NAME}.part").write_bytes(bytes(1 << 18))
    disk, inodes = used(made, tar)
    assert inodes == 2
    assert disk - before[0] >= (1 << 16) + (1 << 18)
