"""A parcel: results of a worker as plain bytes, arrays as they lie in memory."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field

import numpy as np

from headway.events.columnar.part import TYPES, Array, Part
from headway.events.columnar.strings import Packed
from headway.events.skip import Skip

_HEAD = struct.Struct("<q")
_ALIGN = 8


@dataclass
class Result:
    """What came of reading a piece of a file, or several small files."""

    file: int  # place among the files, of the first one
    start: int
    part: Part
    unfinished: list[tuple[int, Skip]] = field(default_factory=list)  # with the file
    unread: str = ""  # why


def pack(results: list[Result]) -> list[memoryview]:
    """The results as bytes: what there is, then the arrays one after the other."""
    arrays: list[Array] = []

    def put(array: Array) -> int:
        arrays.append(np.ascontiguousarray(array))
        return len(arrays) - 1

    contents = [
        {
            "file": result.file,
            "start": result.start,
            "columns": {name: put(_small(column)) for name, column in result.part.columns.items()},
            "rest": {name: put(getattr(result.part, name)) for name in _ARRAYS},
            "time": None if result.part.time is None else put(result.part.time),
            # Inert text has no newlines.
            "strings": put(Packed.of(result.part.strings).data),
            "skipped": [(file, *_fields(skip)) for file, skip in result.part.skipped],
            "files": result.part.files,
            "sizes": result.part.sizes,
            "count": result.part.count,
            "unfinished": [(file, *_fields(skip)) for file, skip in result.unfinished],
            "unread": result.unread,
        }
        for result in results
    ]
    kinds = [(array.dtype.str, array.shape) for array in arrays]
    head = json.dumps([contents, kinds]).encode()
    pieces = [memoryview(_HEAD.pack(len(head)) + head + bytes(-len(head) % _ALIGN))]
    for array in arrays:
        if array.size:
            pieces += [array.data.cast("B"), memoryview(bytes(-array.nbytes % _ALIGN))]
    return pieces


def unpack(data: memoryview) -> list[Result]:
    """The results that were packed; their arrays lie in the data."""
    (size,) = _HEAD.unpack_from(data)
    at = _HEAD.size + size
    contents, kinds = json.loads(bytes(data[_HEAD.size : at]))
    at += -size % _ALIGN
    arrays: list[Array] = []
    for kind, shape in kinds:
        array = np.ndarray(shape, kind, data, at) if 0 not in shape else np.empty(shape, kind)
        at += array.nbytes + -array.nbytes % _ALIGN
        arrays.append(array)
    return [
        Result(
            content["file"],
            content["start"],
            Part(
                {
                    name: _whole(arrays[place], name, sum(content["sizes"]))
                    for name, place in content["columns"].items()
                },
                **{name: arrays[place] for name, place in content["rest"].items()},
                strings=Packed(arrays[content["strings"]]),
                skipped=[(file, Skip(*skip)) for file, *skip in content["skipped"]],
                files=content["files"],
                sizes=content["sizes"],
                count=content["count"],
                time=None if content["time"] is None else arrays[content["time"]],
            ),
            [(file, Skip(*skip)) for file, *skip in content["unfinished"]],
            content["unread"],
        )
        for content in contents
    ]


_ARRAYS = ("usage_row", "usage", "hint_row", "hint")


def _small(column: Array) -> Array:
    """The column in fewer bytes: once if it is the same for all, else with smaller numbers."""
    if column.size and (column == column[0]).all():
        return column[:1]
    if column.dtype.kind == "i" and column.size:
        least, most = column.min(), column.max()
        for kind in (np.int8, np.int16, np.int32):
            if np.iinfo(kind).min <= least and most <= np.iinfo(kind).max:
                return column.astype(kind)
    return column


def _whole(column: Array, name: str, count: int) -> Array:
    # Only the minutes are reckoned with before they become part of a longer column.
    found = column.astype(TYPES[name], copy=False) if name == "minute" else column
    return np.broadcast_to(found, count)


def _fields(skip: Skip) -> tuple[int, int, str]:
    return skip.offset, skip.length, skip.why
