"""The trials: one whole run, then the same job interrupted in each way that a pool can.

Runs are compared step by step, by their traces or by what they print.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

from headway.check.bench import (
    Bench,
    CommandProgress,
    KilledSave,
    Start,
    TimeOver,
    build,
    differing,
    states,
)
from headway.node.errors import Exit

_FLOAT = re.compile(r"[-+]?(?:\d+\.\d*(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|\.\d+|nan|inf)\b")
# what may differ from run to run: times, dates, rates
_TIMES = re.compile(
    r"\b\w*(?:seconds|elapsed|time|duration|eta|took|speed|rate)\w*\s*[=:]?\s*[\d.:]+"
    r"(?:\s?(?:ms|s|sec|secs|seconds|min)\b)?"
    r"|[\d.]+\s?(?:ms|s|sec|secs|seconds|min|it/s|images/s|samples/s|/s)\b(?!\s*[=:])"
    r"|\d{1,4}[-/:]\d{2}[-/:]\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2})?)?(?:[.,]\d+)?Z?",
    re.IGNORECASE,
)
#: Characters of a line that are read: the patterns are too slow for a dump of a megabyte.
_LONGEST = 1000
_LEARNING_RATE = re.compile(r"(?i)learning[_ ]?rate")


@dataclass(frozen=True)
class TracedStep:
    """One step of a training: its name, its numbers (the loss first), and its samples if traced."""

    step: str
    numbers: tuple[float, ...]
    samples: str | None = None


def label(step: str) -> str:
    """The name of a step for people: of a printed line, the part before its first number."""
    head = step[:_LONGEST].partition("#")[0].strip()
    return re.sub(r"\W*\w+\s*[=:]$", "", head) or head or step


def _records(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The JSON objects of a trace; a kill may have cut a line."""
    for line in lines:
        with contextlib.suppress(ValueError, RecursionError):
            record = json.loads(line)
            if isinstance(record, dict):
                yield record


def from_trace(lines: Iterable[str]) -> list[TracedStep]:
    """The steps of a trace."""
    rows = []
    for record in _records(lines):
        if "step" not in record:
            continue
        name = " ".join(f"{key} {record[key]}" for key in ("epoch", "step") if key in record)
        samples = record.get("samples")
        numbers = tuple(
            float(value)
            for key, value in record.items()
            if key not in ("epoch", "step", "samples") and type(value) in (int, float)
        )
        rows.append(TracedStep(name, numbers, None if samples is None else json.dumps(samples)))
    return rows


def from_text(lines: Iterable[str]) -> list[TracedStep]:
    """The steps of printed lines: decimal fractions are the numbers, the rest is the name."""
    rows = []
    for line in lines:
        plain = _TIMES.sub("", _LEARNING_RATE.sub("lr", line[:_LONGEST])).strip()
        values = _FLOAT.findall(plain)
        step = _FLOAT.sub("#", plain)
        if values and re.search(r"\d", step):
            rows.append(TracedStep(step, tuple(map(float, values))))
    return rows


def events(lines: Iterable[str], kind: str) -> list[dict[str, Any]]:
    """The events of one kind, `save` or `leave`, that headway.checkpoint has traced."""
    return [record for record in _records(lines) if record.get("event") == kind]


@dataclass(frozen=True)
class FirstDifference:
    """The first step at which two runs differ."""

    step: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"at {self.step}: {self.found}, uninterrupted {self.expected}"


@dataclass(frozen=True)
class CurveComparison:
    """How an interrupted run differs from an uninterrupted one."""

    numbers: FirstDifference | None
    samples: FirstDifference | None
    skipped: tuple[str, ...]  # steps that no start did
    starts: tuple[int | None, ...]  # the place in the whole curve at which each start began
    ends: tuple[int | None, ...]
    compared: int  # rows
    samples_compared: int
    elsewhere: str  # the step of the uninterrupted run that has the differing numbers


def usable(rows: Sequence[TracedStep]) -> list[TracedStep]:
    """The rows whose step occurs once: a step that comes again in each epoch cannot be compared."""
    times = Counter(row.step for row in rows)
    return [row for row in rows if times[row.step] == 1]


def compare(
    whole: Sequence[TracedStep], starts: Sequence[Sequence[TracedStep]], tolerance: float = 0.0
) -> CurveComparison:
    """Compare the rows of each start with those of the uninterrupted run."""
    whole = usable(whole)
    places = {row.step: place for place, row in enumerate(whole)}
    numbers: FirstDifference | None = None
    samples: FirstDifference | None = None
    elsewhere = ""
    samples_compared = 0
    known = [[row for row in rows if row.step in places] for rows in starts]
    for row in chain.from_iterable(known):
        expected = whole[places[row.step]]
        if numbers is None and not close(expected.numbers, row.numbers, tolerance):
            shown = _shown(expected.numbers), _shown(row.numbers)
            numbers = FirstDifference(label(row.step), *shown)
            same = (r.step for r in whole if r.numbers and close(r.numbers, row.numbers, 0.0))
            elsewhere = label(next(same, ""))
        if expected.samples is not None and row.samples is not None:
            samples_compared += 1
            if samples is None and expected.samples != row.samples:
                shown = expected.samples[:60], row.samples[:60]
                samples = FirstDifference(label(row.step), *shown)
    seen = {row.step for row in chain.from_iterable(known)}
    return CurveComparison(
        numbers,
        samples,
        tuple(label(row.step) for row in whole if row.step not in seen),
        tuple(places[rows[0].step] if rows else None for rows in known),
        tuple(places[rows[-1].step] if rows else None for rows in known),
        sum(map(len, known)),
        samples_compared,
        elsewhere,
    )


def close(expected: Sequence[float], found: Sequence[float], tolerance: float) -> bool:
    """Whether all numbers are equal, or within the relative `tolerance`."""
    if len(expected) != len(found):
        return False
    return all(
        one == other
        or (math.isnan(one) and math.isnan(other))
        or (tolerance > 0 and math.isclose(one, other, rel_tol=tolerance))
        for one, other in zip(expected, found, strict=True)
    )


def spread(one: Sequence[TracedStep], other: Sequence[TracedStep]) -> float:
    """How far two uninterrupted runs are apart, relative; inf: they cannot be compared."""
    second = {row.step: row for row in usable(other)}
    far = 0.0
    for row in usable(one):
        twin = second.get(row.step)
        if twin is None or twin.samples != row.samples or len(twin.numbers) != len(row.numbers):
            return math.inf
        for a, b in zip(row.numbers, twin.numbers, strict=True):
            if a != b and not (math.isnan(a) and math.isnan(b)):
                far = max(far, abs(a - b) / max(abs(a), abs(b)))
    return far if far == far else math.inf


def _shown(numbers: Sequence[float]) -> str:
    return " ".join(f"{number:.8g}" for number in numbers) or "nothing"


#: The starts of one job, from its first to its end.
Life = list[Start]


@dataclass
class TrialStarts:
    """All starts, by trial."""

    whole: Life = field(default_factory=list)
    twin: Life = field(default_factory=list)  # another whole run, if an interrupted one differed
    evicted: Life = field(default_factory=list)  # SIGTERM, again or the interval, kill -9, the end
    used: Life = field(default_factory=list)  # kill -9, and another start in the same folder
    torn: list[tuple[KilledSave, Life]] = field(default_factory=list)
    saving: Start | None = None  # the start whose save is interrupted in `torn`
    interval: float | None = None  # seconds, of the second start of `evicted`
    quick: bool = False  # evictions only
    over: bool = False  # the time was over before all was tried

    def rows(self, life: Sequence[Start]) -> list[list[TracedStep]]:
        """The rows of each start: from its trace if the whole run has one, else from its output."""
        if self.traced:
            return [from_trace(start.trace) for start in life]
        return [from_text(start.lines) for start in life]

    @property
    def traced(self) -> bool:
        return any(from_trace(start.trace) for start in self.whole)

    @property
    def curve(self) -> list[TracedStep]:
        return self.flat(self.whole)

    def flat(self, life: Sequence[Start]) -> list[TracedStep]:
        """The rows of all starts as one."""
        return [row for rows in self.rows(life) for row in rows]

    @property
    def training(self) -> float:
        """The seconds of the whole run from its first step to its last; all of it without steps."""
        span = sum(start.span for start in self.whole)
        return span or sum(start.seconds for start in self.whole)

    @property
    def lives(self) -> list[Life]:
        """The interrupted ones."""
        return [self.evicted, self.used, *(life for _, life in self.torn)]


def succeeded(life: Life) -> bool:
    return bool(life) and life[-1].code == Exit.OK


def failed(start: Start) -> bool:
    """Whether the command failed by itself."""
    if start.interrupted and not start.hung:
        return False
    return start.code not in (Exit.OK, Exit.CHECKPOINT, Exit.OUTPUT_MISSING)


def reacted(start: Start) -> bool:
    """Whether SIGTERM made it save; a single program that SIGTERM killed did not."""
    return start.late and not (start.signal == signal.SIGTERM and len(start.programs) <= 1)


def failure(who: str, start: Start) -> list[str]:
    """How a start failed, with the last line of its stderr."""
    lines = [line for line in start.stderr.splitlines() if line.strip()]
    how = start.words() if start.status or start.signal or start.hung else start.reason
    return [f"{who}: {how}", *(f"its stderr: {line}" for line in lines[-1:])]


def other_results(found: TrialStarts) -> list[str]:
    """The outputs that an interrupted run wrote otherwise than the whole one."""
    if not found.whole:
        return []
    whole = found.whole[-1].outputs
    lives = [life for life in (found.evicted, found.used) if succeeded(life)]
    return sorted({name for life in lives for name in differing(whole, life[-1].outputs)})


def unlike_twins(found: TrialStarts) -> list[str]:
    """The outputs that differ between two whole runs."""
    if not succeeded(found.twin):
        return []
    return differing(found.whole[-1].outputs, found.twin[-1].outputs)


_MOST_STARTS = 1000  # of a command that leaves with a checkpoint by itself
_FIRST, _SECOND, _THIRD, _USED = 0.3, 0.2, 0.15, 0.55  # shares of the whole run
_LATER = 0.8
_LEAST_INTERVAL = 0.05
_LIVE = 6  # lines: fewer do not show how far a run is


class Trials:
    """Makes the starts, one after the other, and reports each."""

    def __init__(self, bench: Bench, say: Callable[[str], None]) -> None:
        self._bench, self._say = bench, say
        self.evidence = TrialStarts()

    def run(self, differs: Callable[[TrialStarts], bool], *, quick: bool = False) -> TrialStarts:
        """Run all trials; the twin only if an interrupted run differs from the whole one."""
        found = self.evidence
        found.quick = quick
        try:
            self._whole()
            if found.whole[-1].code == Exit.OK:
                self._evicted()
                if not quick:
                    self._used()
                    self._torn()
                if differs(found):
                    self._say("another uninterrupted run, since something differed")
                    self._bench.forget()
                    found.twin = self._to_end(self._bench.new_place())
        except TimeOver:
            found.over = True
        return found

    def _whole(self) -> None:
        self._say("an uninterrupted run")
        life = self.evidence.whole
        self._bench.forget()
        self._to_end(self._bench.new_place(), life, patience=float("inf"))
        last = life[-1]
        rows = len(self.evidence.curve)
        how = "traced" if self.evidence.traced else "printed"
        self._say(f"  it {last.words()} after {last.wall:.1f} s; {rows} steps {how}")

    def _evicted(self) -> None:
        self._say("SIGTERM, a start elsewhere, a second checkpoint, kill -9, a start elsewhere")
        bench, life = self._bench, self.evidence.evicted
        bench.forget()
        place = bench.new_place()
        life.append(self._interrupt(place, _FIRST, "term"))
        if self._over(life[-1]):
            return
        place = self._next(place, life[-1])
        wanted = bench.job.checkpoint
        if wanted is not None and wanted.interval is not None:
            interval = max(_LEAST_INTERVAL, _SECOND * self.evidence.training)
            self.evidence.interval = interval = min(wanted.interval, interval)
            life.append(bench.start(place, interval=interval, patience=self._patience()))
        else:
            life.append(self._interrupt(place, _SECOND, "term"))
        if self._over(life[-1]):
            return
        # after a checkpoint HTCondor starts the command again where it is
        life.append(self._interrupt(place, _THIRD, "kill"))
        if not self._over(life[-1]):
            place = bench.new_place() if bench.spool.exists() else place
            self._to_end(place, life)

    def _used(self) -> None:
        self._say("kill -9, and a start in the same folder")
        life, place = self.evidence.used, self._bench.new_place()
        self._bench.forget()
        life.append(self._interrupt(place, _USED, "kill"))
        if not self._over(life[-1]):
            self._to_end(place, life)

    def _torn(self) -> None:
        """Start from each state that a kill during a save could leave."""
        found = self.evidence
        chosen = found.saving = self._bench.best_save
        if chosen is None:
            return
        for state in states(chosen.changes, chosen.after):
            self._say(f"a start after a kill while {state.words.replace(' was ', ' is ', 1)}")
            self._bench.forget()
            place = self._bench.new_place()
            life: Life = []
            found.torn.append((state, life))
            first = self._bench.start(
                place,
                patience=self._patience(),
                laid=partial(build, state, chosen.changes, chosen.before, chosen.after),
            )
            life.append(first)
            if first.code == Exit.CHECKPOINT:
                self._to_end(place, life)
            self._bench.drop(place)

    def _to_end(self, place: int, life: Life | None = None, patience: float | None = None) -> Life:
        """Start again until the command does not exit with a checkpoint."""
        life = [] if life is None else life
        for _ in range(_MOST_STARTS):
            limit = self._patience() if patience is None else patience
            life.append(self._bench.start(place, patience=limit))
            if life[-1].code != Exit.CHECKPOINT:
                break
        self._bench.drop(place)
        return life

    def _interrupt(self, place: int, share: float, how: str) -> Start:
        when = self._due(share)
        return self._bench.start(place, when=when, how=how, patience=self._patience())

    def _due(self, share: float) -> Callable[[CommandProgress], bool]:
        """A test of whether this share of the run is done: by steps, by lines, or else by time."""
        whole = self.evidence.whole
        if self.evidence.traced:
            rows = max(1, round(share * len(self.evidence.curve)))
            return lambda seen: seen.rows >= rows
        if len(whole) == 1 and len(whole[0].lines) >= _LIVE and whole[0].live(share):
            lines = max(1, round(share * len(whole[0].lines)))
            late = partial(self._time_has_come, min(_LATER, 2 * share))
            # before its first line it may still import, and have no handler for SIGTERM yet
            return lambda seen: seen.lines >= lines or (seen.lines > 0 and late(seen))
        return partial(self._time_has_come, share)

    def _time_has_come(self, share: float, seen: CommandProgress) -> bool:
        """Whether this share of the time is over, counted from when the command handles SIGTERM.

        The time before, such as for imports, differs from start to start.
        """
        whole = self.evidence.whole
        wanted = share * sum(start.seconds - (start.listened or 0.0) for start in whole)
        if whole[0].listened is None:
            return seen.seconds >= wanted
        return seen.listened is not None and seen.seconds - seen.listened >= wanted

    def _next(self, place: int, start: Start) -> int:
        """Where the pool would start it next: elsewhere, if it has left a checkpoint."""
        if start.code != Exit.CHECKPOINT:
            return place
        self._bench.drop(place)
        return self._bench.new_place()

    def _over(self, start: Start) -> bool:
        """Whether the job has ended, by success or by its own failure."""
        if start.interrupted:
            return start.code == Exit.OK
        return start.code != Exit.CHECKPOINT

    def _patience(self) -> float:
        whole = sum(start.wall for start in self.evidence.whole)
        return 5 * whole + self._bench.job.grace + 30.0
