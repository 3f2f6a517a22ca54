"""The verdict on each promise of the checkpoint contract, with its evidence and how to fix it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from headway.check.bench import Start
from headway.check.trials import (
    CurveComparison,
    FirstDifference,
    TrialStarts,
    compare,
    events,
    failed,
    failure,
    label,
    other_results,
    reacted,
    spread,
    succeeded,
    unlike_twins,
    usable,
)
from headway.node.errors import Exit
from headway.spec import Job
from headway.text import many

PromiseVerdict = Literal["kept", "broken", "not tried"]

#: The promises, in the order in which they are shown.
TITLES = {
    "runs": "an uninterrupted run succeeds",
    "outputs": "the declared outputs appear, after an interruption too",
    "sigterm": "SIGTERM leaves a checkpoint within the grace",
    "exit-code": "the exit code says that a checkpoint was written",
    "interval": "the command saves and leaves at the interval",
    "resume": "a second start goes on from the checkpoint",
    "curve": "the loss curve is that of an uninterrupted run",
    "order": "the samples come in the order of an uninterrupted run",
    "results": "the outputs are those of an uninterrupted run",
    "atomic": "a kill while saving leaves a checkpoint to go on from",
    "used-folder": "a start in a used folder works",
    "cost": "a checkpoint is quick and small enough",
}


@dataclass(frozen=True)
class Promise:
    """One promise, and whether the job keeps it."""

    name: str
    verdict: PromiseVerdict
    evidence: tuple[str, ...]
    mend: str = ""  # how to fix it, with the lines to write

    @property
    def title(self) -> str:
        return TITLES[self.name]

    def as_dict(self) -> dict[str, Any]:
        return {"title": self.title, **asdict(self)}


@dataclass(frozen=True)
class Checked:
    """What `headway check` found."""

    promises: tuple[Promise, ...]
    compared: str  # what the runs were compared by
    notes: tuple[str, ...]
    runs: int
    seconds: float

    @property
    def broken(self) -> list[Promise]:
        return [each for each in self.promises if each.verdict == "broken"]

    def as_dict(self) -> dict[str, Any]:
        return {
            "promises": [each.as_dict() for each in self.promises],
            "compared": self.compared,
            "notes": list(self.notes),
            "runs": self.runs,
            "seconds": round(self.seconds, 1),
        }


_LOOP = """\
from headway.checkpoint import Checkpoint  # on the worker nothing needs to be installed for it

checkpoint = Checkpoint("{path}")
kept = checkpoint.load(model=model, optimizer=optimizer, scheduler=scheduler, data=data)
step = kept["step"] if kept else 0
while step < steps:
    …  # one step
    step += 1
    checkpoint.tick(model=model, optimizer=optimizer, scheduler=scheduler, data=data, step=step)"""

_MENDS = {
    "runs": "Run the command by hand in an empty folder with its inputs, and look at its stderr.",
    "outputs": "Write every declared output at the end of the training, also when the start that"
    " gets there\nfound nothing left to train.",
    "sigterm": "Save the state and leave with {code} when SIGTERM comes. In Python:\n\n" + _LOOP,
    "sigterm-slow": "Look at should_stop() more often, after each batch, not after each epoch; or"
    ' give it more time in\njob.toml, which a pool may shorten:\n\ngrace = "{longer} s"',
    "exit-code": "Something between the agent and the program does not pass the exit code on. Let"
    " the wrapper become\nthe program:\n\nexec python3 train.py\n\nor, where lines must follow it,"
    " let the shell outlive the signal and keep the code:\n\ntrap : TERM\npython3 train.py\n"
    "code=$?\n…\nexit $code",
    "paths": 'Name in job.toml what the command really writes:\n\n[checkpoint]\npaths = ["{path}"]',
    "interval": "Leave with {code} when HEADWAY_CHECKPOINT_INTERVAL seconds are over: tick() of"
    " headway.checkpoint\ndoes. Or let the agent ask for it by a signal that the command"
    ' handles:\n\n[checkpoint]\nsignal = "SIGTERM"',
    "resume": "Load the checkpoint at the start, if there is one, and continue after the step at"
    " which it was saved:\n\n" + _LOOP,
    "curve": "Save and load everything that the next step depends on: the model, the optimizer, the"
    " scheduler, the random\nnumber generators (headway.checkpoint saves Python's, NumPy's and"
    " torch's by itself) and the number of\nsteps done, all after the same step:\n\n" + _LOOP,
    "order": "Save the sampler's position, or derive its order from the seed and the epoch and"
    " skip what is done:\n\ngenerator = torch.Generator().manual_seed(seed + epoch)\n"
    "order = torch.randperm(len(data), generator=generator)[batches_done * batch_size:]\n\n"
    "A generator or a data set with a state can be saved as it is:\n\n"
    "checkpoint.tick(model=model, generator=generator, data=data, step=step)",
    "seed": "Two uninterrupted runs differ: seed everything that is random, then check again:\n\n"
    "random.seed(0); numpy.random.seed(0); torch.manual_seed(0)",
    "trace": "Let the command trace each step (it costs nothing outside of a check):\n\n"
    "from headway.checkpoint import trace\n\ntrace(step=step, loss=loss, samples=indices)",
    "atomic": "Write under another name, then rename it, and keep what belongs together in one"
    " file:\n\nwith open(path + '.tmp', 'wb') as file:\n    torch.save(state, file)\n"
    "    file.flush()\n    os.fsync(file.fileno())\nos.replace(path + '.tmp', path)\n\n"
    "headway.checkpoint does so, and keeps the previous checkpoint:\n\n"
    'Checkpoint("{path}").save(model=model, step=step)',
    "used-folder": "Expect files of an earlier start: os.makedirs(…, exist_ok=True), open(…, 'w')"
    " instead of 'x', and no\nguard that gives up because a folder is there.",
    "cost": "Save less often, or less: an interval of at least {longer} s would make the saving"
    ' less than a tenth:\n\n[checkpoint]\ninterval = "{longer} s"',
}


_QUICK = "left out of a quick check"
_NOT_REACHED = "the check did not get that far"
_NEAR = 1e-3  # relative; beyond it, two curves may well be different ones
_TWICE = 2.0  # a third run may be as far from either of two as they are from each other
_UNLIKE = "two uninterrupted runs differ: the training is not reproducible"
_LAST = 0.2  # of a run: a command that ends within it may have had nothing left to save
_SHARE = 0.1  # of the interval that saving and sending may take
_LINE = 12.5e6  # bytes per second: the assumed speed at which a checkpoint is sent back


def differs(found: TrialStarts) -> bool:
    """Whether an interrupted run differs from the whole one, as far as they can be compared."""
    whole = found.curve
    for life in (found.evicted, found.used):
        comparison = compare(whole, found.rows(life))
        if comparison.numbers or comparison.samples or (comparison.skipped and succeeded(life)):
            return True
    return bool(other_results(found))


def tolerance_of(apart: float) -> float | None:
    """How far an interrupted run may be from the whole one, relative; None: no comparison is valid.

    `apart` is the distance between two whole runs.
    """
    allowed = _TWICE * apart
    return allowed if allowed <= _NEAR else None


@dataclass(frozen=True)
class _Judged:
    verdict: PromiseVerdict
    evidence: tuple[str, ...]
    mend_as: str = ""  # the entry of _MENDS, if it is not that of the promise
    longer: float = 0.0  # seconds


def _kept(*evidence: str) -> _Judged:
    return _Judged("kept", evidence)


def _broken(*evidence: str, mend_as: str = "", longer: float = 0.0) -> _Judged:
    return _Judged("broken", evidence, mend_as, longer)


def _not_tried(*evidence: str, mend_as: str = "") -> _Judged:
    return _Judged("not tried", evidence, mend_as)


def _too_quick(start: Start | None) -> str:
    if start is None:
        return _NOT_REACHED
    return f"the command {start.words()} before it could be interrupted: use a larger slice"


class ContractJudge:
    """Judges each promise by the starts that were made."""

    def __init__(self, job: Job, found: TrialStarts) -> None:
        self._job, self._found = job, found
        self._code = job.checkpoint.exit_code if job.checkpoint else 85
        self._path = job.checkpoint.paths[0] if job.checkpoint else "ckpt"
        self._whole = usable(found.curve)
        apart = spread(self._whole, found.flat(found.twin)) if found.twin else 0.0
        allowed = tolerance_of(apart)
        self._unlike = allowed is None  # two whole runs differ: no comparison is valid
        self._tolerance = allowed or 0.0
        self._evicted = self._compared(found.evicted)
        self._used = self._compared(found.used)
        self._interrupted = ((found.evicted, self._evicted), (found.used, self._used))

    def promises(self) -> list[Promise]:
        """All promises, in the order of `TITLES`."""
        promises = [self._promise("runs", self._runs())]
        for name in list(TITLES)[1:]:
            judged = _not_tried("the uninterrupted run did not succeed")
            if promises[0].verdict == "kept":
                judged = getattr(self, f"_{name.replace('-', '_')}")()
            elif self._found.over:
                judged = _not_tried("the time was over")
            promises.append(self._promise(name, judged))
        return promises

    def _promise(self, name: str, judged: _Judged) -> Promise:
        text = ""
        if judged.verdict == "broken" or judged.mend_as:
            text = _MENDS[judged.mend_as or name].replace("{path}", self._path)
            text = text.replace("{code}", str(self._code))
            text = text.replace("{longer}", f"{judged.longer:.0f}")
        return Promise(name, judged.verdict, judged.evidence, text)

    def compared(self) -> str:
        """What the runs were compared by."""
        if not self._whole:
            names = ", ".join(sorted(self._found.whole[-1].outputs)) if self._found.whole else ""
            outputs = f"the outputs ({names})" if names else "nothing: there are no outputs"
            return f"{outputs}; the command traces no steps and prints no numbers"
        if not self._found.traced:
            return f"{len(self._whole)} printed lines with numbers, times left out, and the outputs"
        samples = any(row.samples is not None for row in self._whole)
        what = "losses and samples" if samples else "losses"
        return f"{what} of {len(self._whole)} traced steps, and the outputs"

    # -- one method for each promise

    def _runs(self) -> _Judged:
        if not self._found.whole or self._found.whole[-1].hung:
            return _not_tried("the time was over before it ended")
        last, starts = self._found.whole[-1], len(self._found.whole)
        if last.code != Exit.OK:
            return _broken(*failure("the command", last))
        return _kept(f"{last.wall:.1f} s" + (f", {starts} starts" if starts > 1 else ""))

    def _outputs(self) -> _Judged:
        if not self._job.outputs:
            return _not_tried("job.toml declares none")
        evicted, used = self._found.evicted, self._found.used
        for when, life in (("after evictions", evicted), ("after a kill", used)):
            if life and life[-1].code == Exit.OUTPUT_MISSING:
                return _broken(f"{when}: {life[-1].reason}")
        names = ", ".join(sorted(self._found.whole[-1].outputs)) or "all optional, none there"
        ended = succeeded(evicted) or succeeded(used)
        return _kept(f"{names}; {'after interruptions too' if ended else 'uninterrupted only'}")

    def _sigterm(self) -> _Judged:
        first = self._found.evicted[0] if self._found.evicted else None
        if first is None or not first.interrupted:
            return _not_tried(_too_quick(first))
        if self._finished(0) and first.to_end < _LAST * self._found.whole[-1].seconds:
            words = f"the command ended {first.to_end:.1f} s after SIGTERM: use a larger slice"
            return _not_tried(words)
        if self._finished(0):
            return _broken("the command went on to its end, as if there had been no SIGTERM")
        grace, took = self._job.grace, f"{first.to_end:.1f} s after SIGTERM"
        if first.code == Exit.CHECKPOINT or (reacted(first) and first.to_end < grace):
            return _kept(f"{first.bytes:,} bytes, {took}, of {grace:g} s")
        if first.status == self._code and not first.bytes:
            words = f"the command exited with {self._code}, and {self._path} is not there"
            return _broken(words, mend_as="paths")
        if first.to_end >= grace or first.signal == 9:
            words = f"the command went on for the grace of {grace:g} s and was killed"
            return _broken(words, mend_as="sigterm-slow" if first.late else "", longer=4 * grace)
        return _broken(f"the command {first.words()} {took}, and did not write to {self._path}")

    def _exit_code(self) -> _Judged:
        for number, start in enumerate(self._found.evicted[:2]):
            if not self._lost(number):
                continue
            left = events(start.trace, "leave")
            said = f"the program left with {left[-1].get('code')}" if left else "it was saved"
            evidence = [f"{said}, but the command {start.words()}, not with {self._code}"]
            if len(start.programs) > 1:
                evidence.append(f"it consists of: {'; '.join(start.programs)}")
            return _broken(*evidence)
        if any(start.code == Exit.CHECKPOINT for start in self._found.evicted[:2]):
            return _kept(f"exit code {self._code}")
        return _not_tried("the command wrote no checkpoint on SIGTERM")

    def _lost(self, number: int) -> bool:
        """Whether a start saved and left as it should, but its exit code got lost."""
        start, end = self._found.evicted[number], self._evicted.ends[number]
        if start.code in (None, Exit.CHECKPOINT) or start.status == self._code:
            return False
        if start.interrupted:
            return reacted(start) and not self._finished(number)
        early = end is not None and end < len(self._whole) - 1
        return bool(events(start.trace, "leave")) or (start.saved and early)

    def _finished(self, number: int) -> bool:
        """Whether a start did everything that was left, as far as can be seen."""
        start, end = self._found.evicted[number], self._evicted.ends[number]
        known = end == len(self._whole) - 1 if self._whole else bool(self._job.outputs)
        return start.status == 0 and known  # an agent that was told to end has another code

    def _interval(self) -> _Judged:
        found, wanted = self._found, self._job.checkpoint
        if wanted is None or wanted.interval is None:
            return _not_tried("job.toml has no interval")
        if found.interval is None or len(found.evicted) < 2:
            return _not_tried(_NOT_REACHED)
        start = found.evicted[1]
        given = f"with an interval of {found.interval:.1f} s"
        if start.code == Exit.CHECKPOINT:
            return _kept(f"{given} it left after {start.seconds:.1f} s")
        if self._lost(1):
            return _kept(f"{given} it left, but see the exit code")
        words = f"{given} the command {start.words()} after {start.seconds:.1f} s"
        if start.code == Exit.OK and (start.span or start.seconds) < 1.5 * found.interval:
            return _not_tried(f"{words}: use a larger slice")
        return _broken(words)

    def _resume(self) -> _Judged:
        resumed = []
        for life, comparison in self._interrupted:
            furthest = -1
            for number, start in enumerate(life):
                begin, end = comparison.starts[number], comparison.ends[number]
                if start.had and number:
                    if failed(start) and not (life is self._found.evicted and self._lost(number)):
                        return _broken(*failure("a second start", start))
                    if begin == 0 and furthest > 0:
                        return _broken(
                            f"the checkpoint was there after {self._step(furthest)}, and the next"
                            f" start began at {self._step(0)}, from the beginning"
                        )
                    if begin is not None and begin > furthest + 1:
                        return _broken(
                            f"the last step was {self._step(furthest)}, and the next start began"
                            f" at {self._step(begin)}: {begin - furthest - 1} steps are left out"
                        )
                    if begin is not None:
                        again = furthest + 1 - begin
                        repeated = f", {many(again, 'step')} again" if again else ""
                        place = f"after {self._step(furthest)} at {self._step(begin)}"
                        resumed.append(place + repeated)
                furthest = max(furthest, -1 if end is None else end)
        if resumed:
            return _kept(*resumed[:3])
        if not any(start.bytes for start in (*self._found.evicted, *self._found.used)):
            return _not_tried("the command wrote no checkpoint")
        return _not_tried("the command reports no steps that would show it", mend_as="trace")

    def _curve(self) -> _Judged:
        if len(self._whole) < 2:
            return _not_tried("the command traces no steps and prints no numbers", mend_as="trace")
        if self._unlike:
            return _not_tried(_UNLIKE, mend_as="seed")
        if not self._evicted.compared and not self._used.compared:
            return _not_tried("no interrupted run reported a step")
        for _, comparison in self._interrupted:
            if comparison.numbers is not None:
                return _broken(*_other_numbers(comparison, comparison.numbers))
        for life, comparison in self._interrupted:
            if comparison.skipped and succeeded(life):
                number, first = len(comparison.skipped), comparison.skipped[0]
                return _broken(f"{number} steps are missing, from {first} on")
        rows = self._evicted.compared + self._used.compared
        near = f" to {self._tolerance:.1g}, as two whole runs are" if self._tolerance else ""
        return _kept(f"{rows} steps of interrupted runs are the same{near}")

    def _order(self) -> _Judged:
        if not any(row.samples is not None for row in self._whole):
            return _not_tried("the command traces no samples", mend_as="trace")
        if self._unlike:
            return _not_tried(_UNLIKE, mend_as="seed")
        for _, comparison in self._interrupted:
            if comparison.samples is not None:
                return _broken(str(comparison.samples))
        rows = self._evicted.samples_compared + self._used.samples_compared
        return _kept(f"{rows} steps have the same samples")

    def _results(self) -> _Judged:
        outputs = self._found.whole[-1].outputs
        if not outputs:
            return _not_tried("there are no outputs")
        if not succeeded(self._found.evicted) and not succeeded(self._found.used):
            return _not_tried("no interrupted run came to its end")
        unlike = set(unlike_twins(self._found))
        wrong = [name for name in other_results(self._found) if name not in unlike]
        if wrong:
            words = f"{', '.join(wrong)}: not the same as from an uninterrupted run"
            return _broken(words, mend_as="curve")
        same = sorted(set(outputs) - unlike)
        if not same:
            words = f"{', '.join(sorted(unlike))} differ between two uninterrupted runs"
            return _not_tried(words, mend_as="seed")
        return _kept(f"the same: {', '.join(same)}")

    def _atomic(self) -> _Judged:
        saving = self._found.saving
        if saving is None:
            why = "the time was over" if self._found.over else "no save was seen"
            return _not_tried(_QUICK if self._found.quick else why)
        if saving.blind:
            return _not_tried("how the files of a checkpoint were written was not seen")
        rows = self._compared([saving])
        reached = rows.ends[0]
        torn = [(f"if {state.words}, the next start", life) for state, life in self._found.torn]
        for next_start, life in torn:
            if not life:
                continue
            comparison = self._compared(life)
            begin = comparison.starts[0]
            if life[-1].code != Exit.OK:
                return _broken(*failure(next_start, life[-1]))
            if saving.had and begin == 0 and (rows.starts[0] or 0) > 0:
                return _broken(f"{next_start} begins at {self._step(0)}: all work is lost")
            if begin is not None and reached is not None and begin > reached + 1:
                return _broken(f"{next_start} begins at {self._step(begin)}")
            found = comparison.numbers or comparison.samples
            if found is not None and not self._unlike:
                return _broken(f"{next_start} differs {found}")
        tried = [f"went on although {state.words}" for state, life in self._found.torn if life]
        return _kept(*(tried or ["each save is put in place at once"]))

    def _used_folder(self) -> _Judged:
        life = self._found.used
        if len(life) < 2:
            return _not_tried(
                _QUICK if self._found.quick else _too_quick(life[0] if life else None)
            )
        if not succeeded(life):
            return _broken(*failure("the second start", life[-1]))
        return _kept("killed, and started again to its end")

    def _cost(self) -> _Judged:
        starts = [*self._found.whole, *(start for life in self._found.lives for start in life)]
        saves = [each for start in starts for each in events(start.trace, "save")]
        seconds = max((float(str(each.get("seconds") or 0)) for each in saves), default=None)
        if seconds is None:
            left = (s for s in self._found.evicted if s.code == Exit.CHECKPOINT and s.interrupted)
            seconds = min((start.to_end for start in left), default=None)
        size = max((start.bytes for start in starts), default=0)
        if seconds is None or not size:
            return _not_tried("no checkpoint was measured")
        words = f"{size / 1e6:,.3f} MB in {seconds:.2f} s"
        interval = self._job.checkpoint.interval if self._job.checkpoint else None
        if interval is None:
            return _kept(f"{words}; job.toml has no interval to compare it with")
        all_in = seconds + size / _LINE
        share = all_in / interval
        words += f", and {size / _LINE:.2f} s to send it at 100 Mbit/s:"
        words += f" {100 * share:.2g} % of the interval of {interval:g} s"
        return (
            _kept(words) if share <= _SHARE else _broken(words, longer=math.ceil(all_in / _SHARE))
        )

    def _compared(self, life: Sequence[Start]) -> CurveComparison:
        return compare(self._whole, self._found.rows(life), self._tolerance)

    def _step(self, place: int) -> str:
        return label(self._whole[place].step) if 0 <= place < len(self._whole) else "nothing"


def _other_numbers(comparison: CurveComparison, found: FirstDifference) -> Iterator[str]:
    yield str(found)
    if comparison.elsewhere:
        yield (
            f"the uninterrupted run has {found.found} at {comparison.elsewhere}: the state and the"
            " step do not belong together"
        )
    if comparison.samples is None and comparison.samples_compared:
        yield (
            "the samples are the same: the model, the optimizer, the schedule or the random numbers"
            " are not"
        )
