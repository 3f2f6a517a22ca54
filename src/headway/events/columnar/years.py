"""The years of files whose dates have none: the files of one folder agree.

A file's own evidence comes first (see `Clock.sure`): dates with a year, times in UTC that it
tells, or that it was last written to when its last event happened. A copy, a clone or an archive
has lost the last of these. Then the files beside it tell: those of the same folder, then those
of the folders around it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple

YEAR = 365.2425 * 86400
_DAY = 86400
_YEAR_AT_MOST = 300 * _DAY
#: Spans that lie closer than this count as one.
_CLOSE = 30 * _DAY


class Span(NamedTuple):
    """From the first event to the last, in seconds since the epoch."""

    begin: float
    end: float

    def with_(self, other: Span) -> Span:
        """The span of both."""
        return Span(min(self.begin, other.begin), max(self.end, other.end))


def agreed(
    names: Sequence[str], known: Mapping[int, Span], unsure: Mapping[int, tuple[Span, float]]
) -> tuple[dict[int, int], list[int]]:
    """How many years earlier files are than was assumed, and the files that stay in doubt.

    Args:
        names: The paths of all files; the other arguments go by their places here.
        known: The files whose years are known.
        unsure: The others, put as late as possible, and when they were last written to.

    Returns:
        The years to go back, of the files where that is not 0, and those that nothing in their
        own folder tells of.
    """
    folders = _known_by_folder(names, known)
    back: dict[int, int] = {}
    doubtful: list[int] = []
    alone: dict[str, list[int]] = {}
    for file, (span, _) in unsure.items():
        home = os.path.dirname(names[file])
        near = next((folder for folder in _upwards(home) if folder in folders), None)
        if near is None:
            alone.setdefault(home, []).append(file)
        else:
            back[file] = _years_back(span, folders[near])
        if near != home:
            doubtful.append(file)
    for files in alone.values():
        back |= _together({file: unsure[file] for file in files})
    return {file: years for file, years in back.items() if years}, doubtful


def years_earlier(span: Span, years: int) -> float | None:
    """What to add to the times of a file that lies so many years earlier.

    None where it is not the same for all of them: a leap day or another offset from UTC lies
    between.
    """
    if time.daylight or span.end - span.begin > _YEAR_AT_MOST:
        return None
    found = set()
    for at in span:
        then = datetime.fromtimestamp(at)
        try:
            found.add(then.replace(year=then.year - years).timestamp() - at)
        except ValueError:  # 29 February
            return None
    return found.pop() if len(found) == 1 else None


def _known_by_folder(names: Sequence[str], known: Mapping[int, Span]) -> dict[str, list[Span]]:
    """The known spans of each folder and of all below it; those that are close as one."""
    found: dict[str, list[Span]] = {}
    if not known:
        return found
    top = os.path.commonpath([os.path.dirname(os.path.abspath(name)) for name in names])
    for file, span in known.items():
        for folder in _upwards(os.path.dirname(names[file])):
            found.setdefault(folder, []).append(span)
            if os.path.abspath(folder) == top:
                break
    return {folder: _merged(spans) for folder, spans in found.items()}


def _upwards(folder: str) -> list[str]:
    found = [folder]
    while os.path.dirname(found[-1]) != found[-1]:
        found.append(os.path.dirname(found[-1]))
    return found


def _merged(spans: list[Span]) -> list[Span]:
    spans.sort()
    found = spans[:1]
    for span in spans[1:]:
        if span.begin <= found[-1].end + _CLOSE:
            found[-1] = found[-1].with_(span)
        else:
            found.append(span)
    return found


def _years_back(span: Span, known: Sequence[Span]) -> int:
    """How far back a file has to be put to lie next to what is known."""

    def apart(years: int) -> float:
        begin, end = span.begin - years * YEAR, span.end - years * YEAR
        return min(max(0.0, other.begin - end, begin - other.end) for other in known)

    tries = {0}
    for other in known:
        nearest = int((span.begin + span.end - other.begin - other.end) / 2 / YEAR)
        tries |= {max(0, nearest + more) for more in (-1, 0, 1)}
    return min(sorted(tries), key=apart)


def _together(files: Mapping[int, tuple[Span, float]]) -> dict[int, int]:
    """Files of one folder that were all written at the same time, as a copy is: without a year
    between them that the others do not fill."""
    times = [modified for _, modified in files.values()]
    if max(times) - min(times) > _DAY:
        return {}
    order = sorted(files, key=lambda file: files[file][0].end)
    ends = [files[file][0].end for file in order]
    gaps = [later - earlier for earlier, later in pairwise(ends)]
    widest = max(range(len(gaps)), key=gaps.__getitem__, default=0)
    if not gaps or gaps[widest] <= YEAR - (ends[-1] - ends[0]):
        return {}
    return dict.fromkeys(order[widest + 1 :], 1)
