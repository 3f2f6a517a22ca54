"""The curve: what a training did at each step, from its trace or from what it printed."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_FLOAT = re.compile(r"[-+]?(?:\d+\.\d*(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|\.\d+|nan|inf)\b")
# what differs from run to run by right: times, dates, rates
_TIMES = re.compile(
    r"\b\w*(?:seconds|elapsed|time|duration|eta|took|speed|rate)\w*\s*[=:]?\s*[\d.:]+"
    r"(?:\s?(?:ms|s|sec|secs|seconds|min)\b)?"
    r"|[\d.]+\s?(?:ms|s|sec|secs|seconds|min|it/s|images/s|samples/s|/s)\b(?!\s*[=:])"
    r"|\d{1,4}[-/:]\d{2}[-/:]\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2})?)?(?:[.,]\d+)?Z?",
    re.IGNORECASE,
)
#: Characters of a line that are looked at: the patterns are not made for a dump of a megabyte.
_LONGEST = 1000
_LEARNING_RATE = re.compile(r"(?i)learning[_ ]?rate")


@dataclass(frozen=True)
class Row:
    """One step: which, its numbers (the loss first of all), and the samples if they were told."""

    step: str
    numbers: tuple[float, ...]
    samples: str | None = None


def label(step: str) -> str:
    """A step for people: of a printed line what stands before its first number."""
    head = step[:_LONGEST].partition("#")[0].strip()
    return re.sub(r"\W*\w+\s*[=:]$", "", head) or head or step


def from_trace(lines: Iterable[str]) -> list[Row]:
    """The rows of a trace; lines that are none are passed over, a kill may have cut one."""
    rows = []
    for line in lines:
        try:
            told = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if not isinstance(told, dict) or "step" not in told:
            continue
        place = [f"{key} {told[key]}" for key in ("epoch", "step") if key in told]
        samples = told.get("samples")
        rows.append(
            Row(
                " ".join(place),
                tuple(
                    float(value)
                    for key, value in told.items()
                    if key not in ("epoch", "step", "samples")
                    and isinstance(value, (int, float))
                    and not isinstance(value, bool)
                ),
                None if samples is None else json.dumps(samples),
            )
        )
    return rows


def from_text(lines: Iterable[str]) -> list[Row]:
    """Rows from printed lines: the numbers with a decimal point are values, the rest says which."""
    rows = []
    for line in lines:
        plain = _LEARNING_RATE.sub("lr", line[:_LONGEST])
        plain = _TIMES.sub("", plain).strip()
        values = _FLOAT.findall(plain)
        step = _FLOAT.sub("#", plain)
        if values and re.search(r"\d", step):
            rows.append(Row(step, tuple(map(float, values))))
    return rows


def events(lines: Iterable[str], kind: str) -> list[dict[str, object]]:
    """What headway.checkpoint itself has traced: each `save`, each `leave`."""
    found = []
    for line in lines:
        try:
            told = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(told, dict) and told.get("event") == kind:
            found.append(told)
    return found


@dataclass(frozen=True)
class Difference:
    """The first step at which two runs differ."""

    step: str
    expected: str
    found: str


@dataclass(frozen=True)
class Comparison:
    """What an interrupted run did otherwise than an uninterrupted one."""

    numbers: Difference | None
    samples: Difference | None
    skipped: tuple[str, ...]  # steps that no start ever did
    starts: tuple[int | None, ...]  # the place in the whole curve at which each start began
    ends: tuple[int | None, ...]
    compared: int  # rows
    samples_compared: int
    elsewhere: str  # the step of the uninterrupted run that has the differing numbers


def usable(rows: Sequence[Row]) -> list[Row]:
    """The rows whose step is told once: a step that comes again in each epoch tells nothing."""
    times = Counter(row.step for row in rows)
    return [row for row in rows if times[row.step] == 1]


def compare(
    whole: Sequence[Row], starts: Sequence[Sequence[Row]], tolerance: float = 0.0
) -> Comparison:
    """Hold the rows of each start against the uninterrupted run's."""
    whole = usable(whole)
    places = {row.step: place for place, row in enumerate(whole)}
    numbers: Difference | None = None
    samples: Difference | None = None
    elsewhere = ""
    compared = samples_compared = 0
    seen: set[str] = set()
    for rows in starts:
        for row in rows:
            if row.step not in places:
                continue
            seen.add(row.step)
            compared += 1
            expected = whole[places[row.step]]
            if numbers is None and not close(expected.numbers, row.numbers, tolerance):
                numbers = Difference(label(row.step), _shown(expected.numbers), _shown(row.numbers))
                same = (r.step for r in whole if r.numbers and close(r.numbers, row.numbers, 0.0))
                elsewhere = label(next(same, ""))
            if expected.samples is not None and row.samples is not None:
                samples_compared += 1
                if samples is None and expected.samples != row.samples:
                    samples = Difference(label(row.step), expected.samples[:60], row.samples[:60])
    known = [[places[row.step] for row in rows if row.step in places] for rows in starts]
    return Comparison(
        numbers,
        samples,
        tuple(label(row.step) for row in whole if row.step not in seen),
        tuple(each[0] if each else None for each in known),
        tuple(each[-1] if each else None for each in known),
        compared,
        samples_compared,
        elsewhere,
    )


def close(expected: Sequence[float], found: Sequence[float], tolerance: float) -> bool:
    """Whether all numbers are equal, or as near as `tolerance` (relative) allows."""
    if len(expected) != len(found):
        return False
    return all(
        one == other
        or (math.isnan(one) and math.isnan(other))
        or (tolerance > 0 and math.isclose(one, other, rel_tol=tolerance))
        for one, other in zip(expected, found, strict=True)
    )


def spread(one: Sequence[Row], other: Sequence[Row]) -> float:
    """How far two uninterrupted runs are apart, relative; inf: not the same run at all."""
    first, second = usable(one), {row.step: row for row in usable(other)}
    far = 0.0
    for row in first:
        twin = second.get(row.step)
        if twin is None or twin.samples != row.samples or len(twin.numbers) != len(row.numbers):
            return math.inf
        for a, b in zip(row.numbers, twin.numbers, strict=True):
            if a != b and not (math.isnan(a) and math.isnan(b)):
                far = max(far, abs(a - b) / max(abs(a), abs(b)))
    return far if far == far else math.inf


def _shown(numbers: Sequence[float]) -> str:
    return " ".join(f"{number:.8g}" for number in numbers) or "nothing"
