"""The judge: from the starts that were made to a verdict on each promise, and how to mend it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from headway.check.bench import Start
from headway.check.trials import (
    CurveComparison,
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
    too_quick,
    unlike_twins,
    usable,
)
from headway.node.errors import Exit
from headway.spec import Job

PromiseVerdict = Literal["kept", "broken", "not tried"]

#: What is promised, in the order in which it is told.
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
    """One promise and what was found of it."""

    name: str
    verdict: PromiseVerdict
    evidence: tuple[str, ...]
    mend: str = ""  # what to do, with the lines to write; only of a broken one

    @property
    def title(self) -> str:
        return TITLES[self.name]

    def as_dict(self) -> dict[str, Any]:
        return {"title": self.title, **asdict(self)}


@dataclass(frozen=True)
class Checked:
    """What `headway check` found."""

    promises: tuple[Promise, ...]
    compared: str  # what the interrupted runs were compared by, in words
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
    "sigterm-slow": "Look at should_stop() more often, at each batch, not at each epoch; or give"
    ' it more time in\njob.toml, which a pool may shorten:\n\ngrace = "{longer} s"',
    "exit-code": "Something between the agent and the program does not pass the exit code on. Let"
    " the wrapper become\nthe program:\n\nexec python3 train.py\n\nor, where lines must follow it,"
    " let the shell outlive the signal and keep the code:\n\ntrap : TERM\npython3 train.py\n"
    "code=$?\n…\nexit $code",
    "paths": 'Name in job.toml what the command really writes:\n\n[checkpoint]\npaths = ["{path}"]',
    "interval": "Leave with {code} when HEADWAY_CHECKPOINT_INTERVAL seconds are over: tick() of"
    " headway.checkpoint\ndoes. Or let the agent ask for it by a signal that the command"
    ' handles:\n\n[checkpoint]\nsignal = "SIGTERM"',
    "resume": "Load the checkpoint at the start, if there is one, and go on behind the step that"
    " it was saved after:\n\n" + _LOOP,
    "curve": "Save and load all that the next step depends on: the model, the optimizer, the"
    " scheduler, the random\nnumber generators (headway.checkpoint keeps Python's, NumPy's and"
    " torch's by itself) and the number of\nsteps done, all after the same step:\n\n" + _LOOP,
    "order": "Save where the sampler is, or make its order follow from seed and epoch alone and"
    " skip what is done:\n\ngenerator = torch.Generator().manual_seed(seed + epoch)\n"
    "order = torch.randperm(len(data), generator=generator)[batches_done * batch_size:]\n\n"
    "A generator or a data set with a state can be saved as it is:\n\n"
    "checkpoint.tick(model=model, generator=generator, data=data, step=step)",
    "seed": "Two uninterrupted runs differ: seed everything that is random, then check again:\n\n"
    "random.seed(0); numpy.random.seed(0); torch.manual_seed(0)",
    "trace": "Let the command tell each step (it costs nothing outside of a check):\n\n"
    "from headway.checkpoint import trace\n\ntrace(step=step, loss=loss, samples=indices)",
    "atomic": "Write under another name, then put it in place, and all that belongs together into"
    " one file:\n\nwith open(path + '.tmp', 'wb') as file:\n    torch.save(state, file)\n"
    "    file.flush()\n    os.fsync(file.fileno())\nos.replace(path + '.tmp', path)\n\n"
    "headway.checkpoint does, and keeps the one before:\n\n"
    'Checkpoint("{path}").save(model=model, step=step)',
    "used-folder": "Expect files of an earlier start: os.makedirs(…, exist_ok=True), open(…, 'w')"
    " instead of 'x', and no\nguard that gives up because a folder is there.",
    "cost": "Save less often, or less: an interval of at least {longer} s would make the saving"
    ' less than a tenth:\n\n[checkpoint]\ninterval = "{longer} s"',
}


def mend(name: str, *, path: str = "ckpt", code: int = 85, longer: float = 0.0) -> str:
    """What to do about a broken promise; `path`: of the checkpoint, `longer`: in seconds."""
    text = _MENDS[name]
    for word, value in (("path", path), ("code", str(code)), ("longer", f"{longer:.0f}")):
        text = text.replace("{" + word + "}", value)
    return text


QUICK = "left out of a quick check"
_NEAR = 1e-3  # relative; what would pass as the same beyond it may well be another curve
_TWICE = 2.0  # a third run may be as far from either of two as they are from each other
_UNLIKE = "two uninterrupted runs differ: the training is not reproducible"
_LAST = 0.2  # of a run: who ends within it may have had nothing left to save
_SHARE = 0.1  # of the interval that saving and sending may take
_LINE = 12.5e6  # bytes a second: what a checkpoint is sent home with, by assumption


def differs(found: TrialStarts) -> bool:
    """Whether an interrupted run did otherwise than the whole one, as far as can be compared."""
    whole = found.curve
    for life in (found.evicted, found.used):
        comparison = compare(whole, found.rows(life))
        if comparison.numbers or comparison.samples or (comparison.skipped and succeeded(life)):
            return True
    return bool(other_results(found))


def tolerance_of(apart: float) -> float | None:
    """How far from the whole run an interrupted one may be, relative; None: it tells nothing.

    `apart`: two whole runs, from each other.
    """
    allowed = _TWICE * apart
    return allowed if allowed <= _NEAR else None


class ContractJudge:
    """Looks at the evidence once for each promise."""

    def __init__(self, job: Job, found: TrialStarts) -> None:
        self._job, self._found = job, found
        self._code = job.checkpoint.exit_code if job.checkpoint else 85
        self._path = job.checkpoint.paths[0] if job.checkpoint else "ckpt"
        self._whole = usable(found.curve)
        apart = spread(self._whole, found.flat(found.twin)) if found.twin else 0.0
        allowed = tolerance_of(apart)
        self._unlike = allowed is None  # two whole runs are no twins: nothing can be compared
        self._tolerance = allowed or 0.0
        self._evicted = self._compared(found.evicted)
        self._used = self._compared(found.used)

    def promises(self) -> list[Promise]:
        """All of them, in the order of their titles."""
        runs = self._runs()
        if runs.verdict != "kept":
            why = "the uninterrupted run did not succeed"
            if self._found.over:
                why = "the time was over"
            return [runs, *(Promise(name, "not tried", (why,)) for name in _AFTER)]
        return [runs, *(getattr(self, f"_{name.replace('-', '_')}")() for name in _AFTER)]

    def compared(self) -> str:
        """What the runs were compared by, in words."""
        if not self._whole:
            names = ", ".join(sorted(self._found.whole[-1].outputs)) if self._found.whole else ""
            outputs = f"the outputs ({names})" if names else "nothing: there are no outputs"
            return f"{outputs}; the command traces no steps and prints no numbers"
        if not self._found.traced:
            return f"{len(self._whole)} printed lines with numbers, times left out, and the outputs"
        samples = any(row.samples is not None for row in self._whole)
        what = "losses and samples" if samples else "losses"
        return f"{what} of {len(self._whole)} traced steps, and the outputs"

    # -- what follows answers to one promise each

    def _runs(self) -> Promise:
        if not self._found.whole or self._found.whole[-1].hung:
            return self._made("runs", "not tried", "the time was over before it ended")
        last = self._found.whole[-1]
        if last.code == Exit.OK:
            words = f"{last.wall:.1f} s"
            starts = len(self._found.whole)
            return self._made("runs", "kept", words + (f", {starts} starts" if starts > 1 else ""))
        return self._made("runs", "broken", *failure("the command", last))

    def _outputs(self) -> Promise:
        if not self._job.outputs:
            return self._made("outputs", "not tried", "job.toml declares none")
        for name, life in (("after evictions", self._found.evicted), ("", self._found.used)):
            if life and life[-1].code == Exit.OUTPUT_MISSING:
                return self._made(
                    "outputs", "broken", f"{name or 'after a kill'}: {life[-1].reason}"
                )
        names = ", ".join(sorted(self._found.whole[-1].outputs)) or "all optional, none there"
        ended = [life for life in (self._found.evicted, self._found.used) if succeeded(life)]
        more = "after interruptions too" if ended else "uninterrupted only"
        return self._made("outputs", "kept", f"{names}; {more}")

    def _sigterm(self) -> Promise:
        first = self._found.evicted[0] if self._found.evicted else None
        if first is None or not first.interrupted:
            return self._made("sigterm", "not tried", too_quick(first))
        if self._finished(0) and first.to_end < _LAST * self._found.whole[-1].seconds:
            words = f"the command ended {first.to_end:.1f} s after SIGTERM: take a larger slice"
            return self._made("sigterm", "not tried", words)
        if self._finished(0):
            words = "the command went on to its end, as if there had been no SIGTERM"
            return self._made("sigterm", "broken", words)
        grace, took = self._job.grace, f"{first.to_end:.1f} s after SIGTERM"
        if first.code == Exit.CHECKPOINT or (reacted(first) and first.to_end < grace):
            words = f"{first.bytes:,} bytes, {took}, of {grace:g} s"
            return self._made("sigterm", "kept", words)
        if first.status == self._code and not first.bytes:
            words = f"the command exited with {self._code}, and {self._path} is not there"
            return self._made("sigterm", "broken", words, mend_as="paths")
        if first.to_end >= grace or first.signal == 9:
            words = f"the command went on for the grace of {grace:g} s and was killed"
            slow = "sigterm-slow" if first.late else ""
            return self._made("sigterm", "broken", words, mend_as=slow, longer=4 * grace)
        words = f"the command {first.words()} {took}, and nothing was written to {self._path}"
        return self._made("sigterm", "broken", words)

    def _exit_code(self) -> Promise:
        for number, start in enumerate(self._found.evicted[:2]):
            if not self._lost(number):
                continue
            left = events(start.trace, "leave")
            said = f"the program left with {left[-1].get('code')}" if left else "it was saved"
            evidence = [f"{said}, but the command {start.words()}, not with {self._code}"]
            if len(start.programs) > 1:
                evidence.append(f"it consists of: {'; '.join(start.programs)}")
            return self._made("exit-code", "broken", *evidence)
        if any(start.code == Exit.CHECKPOINT for start in self._found.evicted[:2]):
            return self._made("exit-code", "kept", f"exit code {self._code}")
        return self._made("exit-code", "not tried", "no checkpoint was written on SIGTERM")

    def _lost(self, number: int) -> bool:
        """Whether a start saved and left as it should, and the exit code did not arrive."""
        start, end = self._found.evicted[number], self._evicted.ends[number]
        if start.code in (None, Exit.CHECKPOINT) or start.status == self._code:
            return False
        if start.interrupted:
            return reacted(start) and not self._finished(number)
        early = end is not None and end < len(self._whole) - 1
        return bool(events(start.trace, "leave")) or (start.saved and early)

    def _finished(self, number: int) -> bool:
        """Whether a start did all that was left, as far as can be seen."""
        start, end = self._found.evicted[number], self._evicted.ends[number]
        known = end == len(self._whole) - 1 if self._whole else bool(self._job.outputs)
        return start.status == 0 and known  # an agent that was asked to end says so instead

    def _interval(self) -> Promise:
        found = self._found
        if found.interval is None:
            wanted = self._job.checkpoint
            none = wanted is None or wanted.interval is None
            why = "job.toml has no interval" if none else "it did not come to that"
            return self._made("interval", "not tried", why)
        if len(found.evicted) < 2:
            return self._made("interval", "not tried", "it did not come to that")
        start = found.evicted[1]
        told = f"with {found.interval:.1f} s for the interval"
        if start.code == Exit.CHECKPOINT:
            return self._made("interval", "kept", f"{told} it left after {start.seconds:.1f} s")
        if self._lost(1):
            return self._made("interval", "kept", f"{told} it left, but see the exit code")
        words = f"{told} the command {start.words()} after {start.seconds:.1f} s"
        if start.code == Exit.OK and (start.span or start.seconds) < 1.5 * found.interval:
            return self._made("interval", "not tried", f"{words}: take a larger slice")
        return self._made("interval", "broken", words)

    def _resume(self) -> Promise:
        told = []
        for life, comparison in (
            (self._found.evicted, self._evicted),
            (self._found.used, self._used),
        ):
            furthest = -1
            for number, start in enumerate(life):
                begin, end = comparison.starts[number], comparison.ends[number]
                if start.had and number:
                    if failed(start) and not (life is self._found.evicted and self._lost(number)):
                        return self._made("resume", "broken", *failure("a second start", start))
                    if begin == 0 and furthest > 0:
                        words = (
                            f"the checkpoint was there after {self._step(furthest)}, and the next"
                            f" start began at {self._step(0)}, from the beginning"
                        )
                        return self._made("resume", "broken", words)
                    if begin is not None and begin > furthest + 1:
                        words = (
                            f"the last step was {self._step(furthest)}, and the next start began"
                            f" at {self._step(begin)}: {begin - furthest - 1} steps are left out"
                        )
                        return self._made("resume", "broken", words)
                    if begin is not None:
                        again = furthest + 1 - begin
                        told.append(
                            f"after {self._step(furthest)} at {self._step(begin)}"
                            + (f", {again} step{'s' * (again > 1)} again" if again else "")
                        )
                furthest = max(furthest, -1 if end is None else end)
        if told:
            return self._made("resume", "kept", *told[:3])
        if not any(start.bytes for start in (*self._found.evicted, *self._found.used)):
            return self._made("resume", "not tried", "no checkpoint was written")
        return self._made(
            "resume", "not tried", "no step is told by which it could be seen", mend_as="trace"
        )

    def _curve(self) -> Promise:
        why = self._incomparable()
        if why:
            return why if why.name == "curve" else self._made("curve", "not tried", *why.evidence)
        for comparison in (self._evicted, self._used):
            found = comparison.numbers
            if found is not None:
                words = f"at {found.step}: {found.found}, uninterrupted {found.expected}"
                evidence = [words]
                if comparison.elsewhere:
                    evidence.append(
                        f"the uninterrupted run has {found.found} at {comparison.elsewhere}:"
                        " the state and the step do not belong together"
                    )
                if comparison.samples is None and comparison.samples_compared:
                    evidence.append(
                        "the samples are the same: the model, the optimizer, the"
                        " schedule or random numbers are not"
                    )
                return self._made("curve", "broken", *evidence)
        for life, comparison in (
            (self._found.evicted, self._evicted),
            (self._found.used, self._used),
        ):
            if comparison.skipped and succeeded(life):
                number, first = len(comparison.skipped), comparison.skipped[0]
                return self._made("curve", "broken", f"{number} steps are missing, from {first} on")
        rows = self._evicted.compared + self._used.compared
        near = f" to {self._tolerance:.1g}, as two whole runs are" if self._tolerance else ""
        return self._made("curve", "kept", f"{rows} steps of interrupted runs are the same{near}")

    def _order(self) -> Promise:
        if not any(row.samples is not None for row in self._whole):
            why = "no samples are traced"
            return self._made("order", "not tried", why, mend_as="trace")
        if self._unlike:
            return self._made("order", "not tried", _UNLIKE, mend_as="seed")
        for comparison in (self._evicted, self._used):
            found = comparison.samples
            if found is not None:
                words = f"at {found.step}: {found.found}, uninterrupted {found.expected}"
                return self._made("order", "broken", words)
        rows = self._evicted.samples_compared + self._used.samples_compared
        return self._made("order", "kept", f"{rows} steps have the same samples")

    def _results(self) -> Promise:
        if not self._found.whole[-1].outputs:
            return self._made("results", "not tried", "there are no outputs")
        lives = [life for life in (self._found.evicted, self._found.used) if succeeded(life)]
        if not lives:
            return self._made("results", "not tried", "no interrupted run came to its end")
        other = other_results(self._found)
        unlike = set(unlike_twins(self._found))
        wrong = [name for name in other if name not in unlike]
        if wrong:
            words = f"{', '.join(wrong)}: not as from an uninterrupted run"
            return self._made("results", "broken", words, mend_as="curve")
        same = sorted(set(self._found.whole[-1].outputs) - unlike)
        if not same:
            words = f"{', '.join(sorted(unlike))} differ between two uninterrupted runs"
            return self._made("results", "not tried", words, mend_as="seed")
        return self._made("results", "kept", f"the same: {', '.join(same)}")

    def _atomic(self) -> Promise:
        saving = self._found.saving
        if saving is None:
            why = "the time was over" if self._found.over else "no save was seen"
            why = QUICK if self._found.quick else why
            return self._made("atomic", "not tried", why)
        if saving.blind:
            return self._made("atomic", "not tried", "this system does not tell how files change")
        had = saving.had
        rows = self._compared([saving])
        reached = rows.ends[0]
        for state, life in self._found.torn:
            if not life:
                continue
            comparison = self._compared(life)
            begin = comparison.starts[0]
            if life[-1].code != Exit.OK:
                words = failure(f"if {state.words}, the next start", life[-1])
                return self._made("atomic", "broken", *words)
            if had and begin == 0 and (rows.starts[0] or 0) > 0:
                words_ = f"if {state.words}, the next start begins at {self._step(0)}: all is lost"
                return self._made("atomic", "broken", words_)
            if begin is not None and reached is not None and begin > reached + 1:
                words_ = f"if {state.words}, the next start begins at {self._step(begin)}"
                return self._made("atomic", "broken", words_)
            if not self._unlike and (comparison.numbers or comparison.samples):
                found = comparison.numbers or comparison.samples
                assert found is not None
                words_ = (
                    f"if {state.words}, the next start gives at {found.step} {found.found},"
                    f" uninterrupted {found.expected}"
                )
                return self._made("atomic", "broken", words_)
        tried = [f"went on although {state.words}" for state, life in self._found.torn if life]
        return self._made("atomic", "kept", *(tried or ["all of it is put in place at once"]))

    def _used_folder(self) -> Promise:
        life = self._found.used
        if len(life) < 2:
            why = QUICK if self._found.quick else too_quick(life[0] if life else None)
            return self._made("used-folder", "not tried", why)
        if not succeeded(life):
            return self._made("used-folder", "broken", *failure("the second start", life[-1]))
        return self._made("used-folder", "kept", "killed, and started again to its end")

    def _cost(self) -> Promise:
        ended = [s for s in self._found.evicted if s.code == Exit.CHECKPOINT]
        saves = [each for s in self._all() for each in events(s.trace, "save")]
        seconds = max((float(str(each.get("seconds") or 0)) for each in saves), default=None)
        if seconds is None:
            seconds = min((s.to_end for s in ended if s.interrupted), default=None)
        size = max((start.bytes for start in self._all()), default=0)
        if seconds is None or not size:
            return self._made("cost", "not tried", "no checkpoint was measured")
        words = f"{size / 1e6:,.3f} MB in {seconds:.2f} s"
        interval = self._job.checkpoint.interval if self._job.checkpoint else None
        if interval is None:
            return self._made("cost", "kept", f"{words}; job.toml has no interval to hold against")
        all_in = seconds + size / _LINE
        share = all_in / interval
        told = f"{words}, and {size / _LINE:.2f} s to send it at 100 Mbit/s"
        of = f"{100 * share:.2g} % of the interval of {interval:g} s"
        if share <= _SHARE:
            return self._made("cost", "kept", f"{told}: {of}")
        return self._made("cost", "broken", f"{told}: {of}", longer=math.ceil(all_in / _SHARE))

    # -- helpers

    def _made(
        self,
        name: str,
        verdict: PromiseVerdict,
        *evidence: str,
        mend_as: str = "",
        longer: float = 0.0,
    ) -> Promise:
        how = ""
        if verdict == "broken" or mend_as:
            how = mend(mend_as or name, path=self._path, code=self._code, longer=longer)
        return Promise(name, verdict, evidence, how)

    def _compared(self, life: Sequence[Start]) -> CurveComparison:
        return compare(self._whole, self._found.rows(life), self._tolerance)

    def _incomparable(self) -> Promise | None:
        if len(self._whole) < 2:
            why = "the command traces no steps and prints no numbers"
            return self._made("curve", "not tried", why, mend_as="trace")
        if self._unlike:
            return self._made("curve", "not tried", _UNLIKE, mend_as="seed")
        if not self._evicted.compared and not self._used.compared:
            return self._made("curve", "not tried", "no interrupted run told a step")
        return None

    def _step(self, place: int) -> str:
        return label(self._whole[place].step) if 0 <= place < len(self._whole) else "nothing"

    def _all(self) -> list[Start]:
        found = self._found
        return [*found.whole, *(start for life in found.lives for start in life)]


_AFTER = (
    "outputs",
    "sigterm",
    "exit-code",
    "interval",
    "resume",
    "curve",
    "order",
    "results",
    "atomic",
    "used-folder",
    "cost",
)
