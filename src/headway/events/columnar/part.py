"""A part: the events of a stretch of a log as arrays, before its clock has been read."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.events.columnar.columns import NONE
from headway.events.columnar.rows import Measured, Row
from headway.events.columnar.strings import Strings
from headway.events.skip import Skip

#: The columns that a part has, beside those of its clock.
TYPES: dict[str, str] = {
    "number": "<i2",
    "cluster": "<i8",
    "proc": "<i8",
    "subproc": "<i8",
    "kind": "|u1",
    "code": "<i4",
    "subcode": "<i4",
    "value": "<i4",
    "signal": "<i4",
    "site": "<i4",
    "slot": "<i4",
    "host": "<i4",
    "user": "<i4",
    "text": "<i4",
    "offset": "<i8",
    "length": "<i4",
    "minute": "<i8",
    "second": "|u1",
    "fraction": "<f8",
}
TEXTS = ("site", "slot", "host", "user", "text")
NUMBERS = ("code", "subcode", "value", "signal")
_WIDTH = len(Measured._fields)

Array = NDArray[Any]


@dataclass
class Part:
    """The events of a range of a file, or of several small files, and what was skipped there."""

    columns: dict[str, Array]
    usage_row: NDArray[np.int64]
    usage: NDArray[np.float64]  # a row as `Measured`
    hint_row: NDArray[np.int64]  # events that tell a time in UTC, or in their ad
    hint: NDArray[np.float64]  # see `Clock`; below zero: the time in an ad
    strings: Sequence[str]
    skipped: list[tuple[int, Skip]] = field(default_factory=list)  # with the file
    files: list[int] = field(default_factory=lambda: [0])  # places among the files that are read
    sizes: list[int] = field(default_factory=lambda: [0])  # how many events each file has here
    time: NDArray[np.float64] | None = None  # once it is known
    count: int = 0  # of all its events, where only those are here that tell something

    def __len__(self) -> int:
        return len(self.columns["number"])


def blank_columns(size: int) -> dict[str, Array]:
    """Columns of events that say nothing."""
    columns: dict[str, Array] = {name: np.zeros(size, kind) for name, kind in TYPES.items()}
    for name in TEXTS:
        columns[name].fill(-1)
    for name in NUMBERS:
        columns[name].fill(NONE)
    return columns


def put_rows(
    columns: dict[str, Array], at: Array | list[int] | slice, rows: Sequence[Row], strings: Strings
) -> None:
    """Write what events say into their places."""
    place = strings.place
    for name, values in zip(Row._fields, zip(*rows, strict=True), strict=False):
        if name in TEXTS:
            columns[name][at] = [place(value) for value in values]
        elif name != "measured":
            columns[name][at] = values


def measurements(rows: Sequence[Measured]) -> NDArray[np.float64]:
    """Measurements as an array."""
    return np.array(rows, np.float64).reshape(len(rows), _WIDTH)


def no_events() -> Part:
    """An empty part."""
    none = np.empty(0, np.int64)
    return Part(blank_columns(0), none, measurements([]), none, np.empty(0), [])


def kept(part: Part, keep: NDArray[np.bool_]) -> Part:
    """The part with these of its events only."""
    place = np.concatenate([[0], np.cumsum(keep)])
    usage, hint = keep[part.usage_row], keep[part.hint_row]
    bounds = np.cumsum([0, *part.sizes])
    return replace(
        part,
        columns={name: column[keep] for name, column in part.columns.items()},
        usage_row=place[part.usage_row[usage]],
        usage=part.usage[usage],
        hint_row=place[part.hint_row[hint]],
        hint=part.hint[hint],
        sizes=np.diff(place[np.minimum(bounds, len(keep))]).tolist(),
        time=None if part.time is None else part.time[keep],
    )


def placed(part: Part, files: Sequence[int], starts: Sequence[int]) -> Part:
    """The part with its events and skips put into these files, which began at these offsets."""
    offset = part.columns["offset"]
    bounds = [*np.searchsorted(offset, starts).tolist(), len(part)]
    part.files, part.sizes = list(files), np.diff(bounds).tolist()
    part.columns["offset"] = offset - np.repeat(np.array(starts, np.int64), part.sizes)
    places = [bisect_right(starts, skip.offset) - 1 for _, skip in part.skipped]
    part.skipped = [
        (files[place], Skip(skip.offset - starts[place], skip.length, skip.why))
        for place, (_, skip) in zip(places, part.skipped, strict=True)
    ]
    return part


def joined(parts: Sequence[Part]) -> Part:
    """Parts that follow each other as one; their strings must be the same list."""
    if len(parts) == 1:
        return parts[0]
    starts = np.cumsum([0, *(len(part) for part in parts)])
    return Part(
        {
            name: np.concatenate([np.empty(0, kind), *(part.columns[name] for part in parts)])
            for name, kind in TYPES.items()
        },
        np.concatenate(
            [np.empty(0, np.int64), *(p.usage_row + s for p, s in zip(parts, starts, strict=False))]
        ),
        np.concatenate([np.empty((0, _WIDTH)), *(part.usage for part in parts)]),
        np.concatenate(
            [np.empty(0, np.int64), *(p.hint_row + s for p, s in zip(parts, starts, strict=False))]
        ),
        np.concatenate([np.empty(0), *(part.hint for part in parts)]),
        parts[0].strings if parts else [],
        [skip for part in parts for skip in part.skipped],
    )
