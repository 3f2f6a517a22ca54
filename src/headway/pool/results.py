"""Results: which jobs of a description have their outputs, in which run, and what is missing.

Two jobs are the same if they do the same: by their command, environment, container and inputs, with
the placeholders filled in. So the order of a table's rows does not matter, but a changed command
makes another job. What a job asks for (resources, retries, sites, limits) may change, and so may
its `files`: editing the script is how most failures are fixed. Results from before an edit are
kept, and a note says so.

`candidates` and `remove` clean up: which runs can be removed, what is lost with them, and removal.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tarfile
import time
import uuid
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from headway.errors import HeadwayError, PreflightError, Problem, RunError
from headway.events import JobState, Outcome, Status
from headway.node.plan import fill
from headway.pool.arrivals import arrival
from headway.pool.folder import RunFolder, Runs, failing, read_plain, read_record
from headway.pool.local.scratch import remove_tree, tree_size
from headway.pool.prepare import packed_files
from headway.pool.program import drop_unused
from headway.spec import Job, Output
from headway.text import many

KEPT, BUSY, WAITS, MISSING = "kept", "busy", "waits", "missing"
_MAX_KEPT = 1 << 29  # bytes of kept.json
_REMOVED = ".gone-"  # what the folder of a run is called while it is being removed
# what a damaged or forged file may raise
_BAD_FILE = (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError)


@dataclass(frozen=True)
class StoredOutput:
    """One output of a job: its declared path, and where it is now, a path or a URL."""

    path: str
    where: str
    bytes: int | None = None  # as the agent measured it; None: unknown

    @property
    def is_url(self) -> bool:
        return "://" in self.where


@dataclass(frozen=True)
class Result:
    """The result of one job of a description, or why there is none."""

    job: int  # its number in the description
    row: Mapping[str, str]
    state: str  # KEPT: verified; BUSY: in the queue; WAITS: for a person; MISSING: to be run
    why: str = ""
    run: str = ""  # the run that has it
    index: int = 0  # the job's number in that run
    outputs: tuple[StoredOutput, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.run}.{self.index}" if self.run else ""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "row": dict(self.row)}


@dataclass(frozen=True)
class Results:
    """The results of all jobs of a description, and notes about the runs that have them."""

    results: tuple[Result, ...]
    notes: tuple[str, ...] = ()

    def of(self, *states: str) -> list[Result]:
        """The jobs in one of these states."""
        return [each for each in self.results if each.state in states]

    def words(self) -> str:
        """`7 kept from scan-1, 1 under way in scan-2, 2 to run`."""
        parts = []
        for state, form in ((KEPT, "kept from"), (BUSY, "under way in"), (WAITS, "waiting in")):
            counts = Counter(each.run for each in self.of(state))
            parts += [f"{count:,} {form} {run}" for run, count in sorted(counts.items())]
        return ", ".join([*parts, f"{len(self.of(MISSING)):,} to run"])

    def missing_part(self, job: Job) -> Job:
        """The job with only the rows that are to be run; each keeps its number."""
        missing = self.of(MISSING)
        if len(missing) == len(self.results):
            return job
        return job.model_copy(update={"rows": tuple(dict(each.row) for each in missing)})

    def check_places(self, job: Job, base: Path) -> None:
        """Refuse to run a job whose output would replace the result of another one."""
        taken = {out.where: each for each in self.of(KEPT, BUSY, WAITS) for out in each.outputs}
        problems = []
        for each in self.of(MISSING):
            for number, output in enumerate(job.outputs):
                where = _destination(output, each.row, base)
                if where in taken:
                    owner = taken[where].name
                    what = f"job {each.job} would replace {where}, the result of {owner}"
                    remedy = "give the output a place of its own, such as one with the row's values"
                    problems.append(Problem(f"outputs[{number}].to", what, remedy))
        if problems:
            raise PreflightError(problems[:10])


@dataclass(frozen=True)
class RunState:
    """One run as it is now: the states of its jobs, and whether nobody runs them any more."""

    folder: RunFolder
    states: Mapping[int, JobState]
    lost: bool = False


GetState = Callable[[RunFolder], RunState]


class _EarlierJobs:
    """The results of earlier runs, by what the jobs do, and by row and number."""

    def __init__(self) -> None:
        self._by_key: dict[tuple[object, ...], deque[Result]] = defaultdict(deque)
        self._used: set[tuple[str, int]] = set()

    def add(self, key: str, result: Result) -> None:
        for identity in _identities(key, result.job, result.row):
            self._by_key[(result.state, *identity)].append(result)

    def take(self, state: str, identity: tuple[object, ...]) -> Result | None:
        """A result that nobody has taken yet."""
        waiting = self._by_key.get((state, *identity))
        while waiting:
            result = waiting.popleft()
            if (result.run, result.index) not in self._used:
                self._used.add((result.run, result.index))
                return result
        return None


def find_results(job: Job, base: Path, runs: Iterable[RunFolder], look: GetState) -> Results:
    """The results of a description's jobs in the runs of the same name.

    Args:
        job: The description.
        base: The folder of job.toml.
        runs: The runs to look through, oldest first.
        look: Reads the state of a run's jobs.

    Returns:
        A result for each job.
    """
    notes: list[str] = []
    earlier_jobs = _EarlierJobs()
    failed: dict[str, Result] = {}  # by what it does, the newest one without a result
    changed: dict[tuple[tuple[str, str], ...], str] = {}  # by row, what another run did
    folders: dict[str, RunFolder] = {}
    for folder in reversed(list(runs)):
        if folder.facts.name != job.name:
            continue
        if folder.facts.base != str(base):
            notes.append(f"{folder.label} does not count: it belongs to {folder.facts.base}")
            continue
        try:
            earlier, state = folder.job, look(folder)
        except HeadwayError as error:
            notes.append(f"{folder.label} is left out: {error.message}")
            continue
        folders[folder.label] = folder
        words = _changes(earlier, job)
        for index in range(earlier.size):
            row = earlier.row(index)
            key = work_key(earlier, row)
            result = _result_of(state, index, job)
            if result.state == MISSING:
                failed.setdefault(key, result)
            earlier_jobs.add(key, result)
            if words:
                changed.setdefault(_columns(row), f"{folder.label} ran it with {words}")
    rows = [job.row(index) for index in range(job.size)]
    keys = [work_key(job, row) for row in rows]
    found: dict[int, Result] = {}
    for state_name in (KEPT, BUSY, WAITS):
        for exactness in range(3):  # first the very same row and number, last any that does it
            for number, (key, row) in enumerate(zip(keys, rows, strict=True)):
                if number not in found:
                    identity = _identities(key, number, row)[exactness]
                    if taken := earlier_jobs.take(state_name, identity):
                        found[number] = replace(taken, job=number, row=row)
    for number, (key, row) in enumerate(zip(keys, rows, strict=True)):
        if number not in found:
            before = failed.get(key)
            why = before.why if before else changed.get(_columns(row), "it has not been run yet")
            found[number] = Result(number, row, MISSING, why)
    results = tuple(found[number] for number in range(job.size))
    for label in sorted({each.run for each in results if each.state == KEPT}):
        edited = changed_files(folders[label], job, base)
        if edited:
            more = f" and {many(len(edited) - 3, 'other file')}" if len(edited) > 3 else ""
            notes.append(
                f"{', '.join(edited[:3])}{more} changed since {label}, whose results are kept as"
                " they are; to run all jobs again, leave out --only-missing"
            )
    return Results(results, tuple(notes))


def work_key(job: Job, row: Mapping[str, str]) -> str:
    """What a job does, as a digest: two jobs with the same one bring the same result."""
    work = {
        "command": [fill(word, row) for word in job.command],
        "shell": job.shell,
        "environment": {name: fill(value, row) for name, value in job.environment.items()},
        "container": job.container,
        "inputs": [
            {
                "urls": [fill(url, row) for url in given.urls],
                "path": fill(given.path, row),
                "unpack": given.unpack,
                "proof": [given.checksum, given.size, given.manifest],
            }
            for given in job.inputs
        ],
        # without a table, the number is all that tells jobs apart, by HEADWAY_JOB
        "number": row.get("job") if set(row) <= {"job"} else None,
    }
    return hashlib.sha256(json.dumps(work, sort_keys=True).encode()).hexdigest()


def outputs_of(folder: RunFolder, index: int) -> tuple[tuple[StoredOutput, ...], str]:
    """Where the outputs of a job that succeeded are, and what is wrong with them, if anything.

    Uploads to a URL were verified when they were sent, which the record shows. Other outputs must
    be where they were, and as large as they were. Those that a courier brought must be what its
    ticket says.
    """
    sizes = _recorded(folder, index)
    stored, faults = [], []
    for output, one in zip(folder.job.outputs, _planned(folder, index), strict=True):
        home = folder.job_folder(index) / "outputs" / one.path
        if not one.is_url and not os.path.lexists(one.where) and home.exists():
            one = replace(one, where=str(home))  # something was in its way
        one = replace(one, bytes=sizes.get(one.path))
        fault = "" if one.is_url else _fault(one)
        if one.is_url and sizes and one.path not in sizes:
            fault = f"{one.path} was not sent"
        if fault and output.required:
            faults.append(fault)
        if not fault:
            stored.append(one)
    if not faults and (wrong := arrival(folder.path, index)):
        faults.append(wrong)
    return tuple(stored), "; ".join(faults)


def changed_files(folder: RunFolder, job: Job, base: Path) -> list[str]:
    """The job's own files that are not what they were in an earlier run."""
    try:
        with tarfile.open(folder.payload) as archive:
            before = {PurePosixPath(entry.name).as_posix(): entry for entry in archive}
            now = {name: path for name, path in packed_files(job.files, base) if path.is_file()}
            was = {name for name, entry in before.items() if entry.isfile()}
            return sorted(
                name
                for name in was | set(now)
                if name not in now or name not in was or _differs(archive, before[name], now[name])
            )
    except (OSError, tarfile.TarError):
        return []


def _result_of(run: RunState, index: int, wanted: Job) -> Result:
    """The result of one job of an earlier run."""
    folder, row = run.folder, run.folder.job.row(index)
    number = int(row["job"]) if row["job"].isdigit() else index
    one = Result(number, row, MISSING, run=folder.label, index=index)
    state = run.states.get(index)
    if state is None or not state.terminal:
        if state is None and folder.facts.cluster is None:
            return replace(one, why=f"{folder.label} was never submitted")
        to_come = replace(one, state=WAITS, outputs=_planned(folder, index))
        if state is not None and state.status is Status.HELD:
            return replace(to_come, why=f"{one.name} is held: {state.hold_reason}")
        if run.lost:
            return replace(to_come, why=f"{folder.label} was stopped before it ended")
        word = state.status.value if state is not None else Status.IDLE.value
        return replace(to_come, state=BUSY, why=f"{one.name} is {word}")
    if state.outcome is not Outcome.SUCCESS:
        word = "was removed" if state.outcome is Outcome.REMOVED else "failed"
        cause = state.why.removeprefix("failed: ").removeprefix("removed: ")
        more = f": {cause}" if cause and cause != word else ""
        return replace(one, why=f"{one.name} {word}{more}")
    stored, fault = outputs_of(folder, index)
    fault = fault or _lacking(wanted, row, stored)
    if fault:
        return replace(one, why=f"{one.name} succeeded, but {fault}")
    return replace(one, state=KEPT, why=f"{one.name} succeeded", outputs=stored)


def _lacking(wanted: Job, row: Mapping[str, str], stored: Sequence[StoredOutput]) -> str:
    """An output that the description declares by now and this job did not write, in words."""
    have = {one.path: one for one in stored}
    for output in wanted.outputs:
        try:
            path = fill(output.path, row)
        except KeyError:  # a column that its table did not have
            continue
        if output.required and path not in have:
            return f"{path} was not among its outputs"
        size = have[path].bytes if path in have else None
        if size is not None and size < output.min_size:
            return f"{path} has {size:,} bytes, at least {output.min_size:,} are declared"
    return ""


def _fault(one: StoredOutput) -> str:
    try:
        folder = os.path.isdir(one.where)
        size = tree_size(Path(one.where)) if folder else os.stat(one.where).st_size
    except OSError:
        return f"{one.path} is no longer at {one.where}"
    if one.bytes is None or size == one.bytes or (folder and size > one.bytes):
        return ""
    return f"{one.where} has {size:,} bytes and had {one.bytes:,}"


def _planned(folder: RunFolder, index: int) -> tuple[StoredOutput, ...]:
    """Where the outputs of a job will be."""
    row, base, home = folder.job.row(index), Path(folder.facts.base), folder.job_folder(index)
    places = ((fill(out.path, row), _destination(out, row, base)) for out in folder.job.outputs)
    return tuple(StoredOutput(path, to or str(home / "outputs" / path)) for path, to in places)


def _recorded(folder: RunFolder, index: int) -> dict[str, int]:
    """The bytes of each output, by the record of the attempt that succeeded."""
    for attempt in reversed(folder.attempts(index)):
        try:
            record = read_record(attempt)
            if record["exit"] == 0:
                return {
                    str(each["path"]): int(each["bytes"])
                    for each in record["outputs"]
                    if isinstance(each["bytes"], int)
                }
        except (ValueError, TypeError, KeyError):
            continue
    return {}


def _destination(output: Output, row: Mapping[str, str], base: Path) -> str:
    """Where job.toml sends an output; empty: it stays in the run folder."""
    if not output.to:
        return ""
    to = fill(output.to, row)
    return to if "://" in to else os.path.normpath(base / to)


def _identities(key: str, number: int, row: Mapping[str, str]) -> tuple[tuple[object, ...], ...]:
    """Keys of a job: the first means the very same job, the last any that does the same."""
    columns = _columns(row)
    return (key, columns, number), (key, columns), (key,)


def _columns(row: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    columns = tuple(sorted((name, value) for name, value in row.items() if name != "job"))
    return columns or (("job", row.get("job", "")),)


def _changes(earlier: Job, job: Job) -> str:
    """The keys that make the jobs of two descriptions different ones, in words."""
    keys = ("command", "shell", "environment", "container", "inputs")
    return " and ".join(
        f"another `{key}`" for key in keys if getattr(earlier, key) != getattr(job, key)
    )


def _differs(archive: tarfile.TarFile, entry: tarfile.TarInfo, path: Path) -> bool:
    if entry.size != path.stat().st_size:
        return True
    packed = archive.extractfile(entry)
    with path.open("rb") as file:
        blocks = iter(lambda: file.read(1 << 20), b"")
        return packed is None or any(packed.read(len(block)) != block for block in blocks)


def kept_text(results: Iterable[Result]) -> str:
    """The text of kept.json: the results of other runs that this one need not produce."""
    kept = [each.as_dict() for each in results]
    return json.dumps({"format": 1, "kept": kept}, indent=1) + "\n" if kept else ""


def read_kept(folder: RunFolder) -> list[Result]:
    """The results that a run takes from other runs; empty if it runs all jobs itself."""
    try:
        return [_kept(each) for each in json.loads(read_plain(folder.kept, _MAX_KEPT))["kept"]]
    except FileNotFoundError:
        return []
    except (OSError, *_BAD_FILE) as error:
        raise RunError(
            f"{folder.kept} cannot be read: {error}",
            remedy="the runs that it names still have the results",
        ) from error


def _kept(facts: Mapping[str, Any]) -> Result:
    """One result of kept.json, whose types are checked: anybody may have written the file."""
    outputs = []
    for each in facts["outputs"]:
        size = each.get("bytes")
        size = None if size is None else int(size)
        outputs.append(StoredOutput(str(each["path"]), str(each["where"]), size))
    run = str(facts["run"])
    if "/" in run or run in ("", ".", ".."):
        raise ValueError(f"{run!r} is no run")
    row = {str(name): str(value) for name, value in facts["row"].items()}
    words = str(facts["state"]), str(facts.get("why", ""))
    return Result(int(facts["job"]), row, *words, run, int(facts["index"]), tuple(outputs))


def all_results(run: RunState) -> list[Result]:
    """The results of a run's own jobs, and those that it takes from other runs, as they are now."""
    job = run.folder.job
    found = [_result_of(run, index, job) for index in range(job.size)]
    for each in read_kept(run.folder):
        faults = [fault for one in each.outputs if not one.is_url and (fault := _fault(one))]
        why = "; ".join(faults) or each.why
        if faults and not run.folder.path.with_name(each.run).is_dir():
            why = f"{each.run} was removed"
        found.append(replace(each, state=MISSING if faults else KEPT, why=why))
    return sorted(found, key=lambda each: each.job)


# Cleaning up. Only a run that has ended can be removed. Results that are only in the run folder are
# the user's own: they are removed only on request.


@dataclass(frozen=True)
class Candidate:
    """A run, and whether it can be removed; `why` says what keeps it, or what goes with it."""

    folder: RunFolder
    goes: bool
    why: str
    ended: float | None = None
    bytes: int = 0  # what its removal frees
    outputs: int = 0  # result files that are in the run folder
    output_bytes: int = 0
    removed: bool = False

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        facts = asdict(replace(self, folder=None))  # type: ignore[arg-type]
        del facts["folder"]
        return {"run": self.folder.label, **facts, "path": str(self.folder.path)}


def candidates(
    runs: Runs,
    look: GetState,
    *,
    chosen: Sequence[str] | None = None,
    older: float | None = None,
    keep: int | None = None,
    outputs: bool = False,
    now: float | None = None,
) -> list[Candidate]:
    """Which runs can be removed, and why the others cannot.

    Args:
        runs: The runs to look through.
        look: Reads the state of a run's jobs.
        chosen: The labels of the runs to look at; None: all.
        older: Only runs that ended at least this many seconds ago can be removed.
        keep: How many of the newest runs of each name to keep.
        outputs: Whether runs with results in them can be removed.
        now: The time, for tests.

    Returns:
        One for each run that was asked about, oldest first.
    """
    now = time.time() if now is None else now
    every = list(runs)
    by_name: dict[str, list[str]] = defaultdict(list)
    for folder in every:
        by_name[folder.facts.name].append(folder.label)
    newest = {label for labels in by_name.values() for label in labels[-keep:]} if keep else set()
    users = _users(every)
    found = []
    for folder in every:
        if chosen is not None and folder.label not in chosen:
            continue
        ended, why = _ended(folder, look)
        places = [*folder.jobs.glob("*/outputs"), *folder.jobs.glob("*/attempts/*/outputs")]
        sizes = [_tree(place) for place in places]
        output_bytes, files = sum(size for size, _ in sizes), sum(count for _, count in sizes)
        if ended is not None and older is not None and now - ended < older:
            why = "ended more recently than --older"
        elif ended is not None and folder.label in newest:
            why = f"is one of the newest {keep}" if keep != 1 else "is the newest of its name"
        elif ended is not None and files and not outputs:
            why = f"the only copy of {many(files, 'output')} is in it; see --outputs"
        goes = not why
        if goes and files:
            user = max(users.get(folder.label, ()), default="")
            why = f"with its outputs, which {user} still needs" if user else "with its outputs"
        size, _ = _tree(folder.path)
        found.append(Candidate(folder, goes, why, ended, size, files, output_bytes))
    return found


def remove(runs: Runs, one: Candidate, look: GetState) -> Candidate:
    """Remove a run. If this is interrupted, the run is either complete or gone.

    Raises:
        RunError: Its jobs have been started again, or it cannot be removed.
    """
    folder = one.folder
    folder.check_own()
    local = folder.facts.pool.get("kind") == "local"
    # whoever would run its jobs, or submit them, needs this lock
    with folder.locked("supervisor" if local else "submit"):
        _, why = _ended(folder, look, locked=True)
        if why:
            raise RunError(f"{folder.label} stays: {why}", remedy="wait until its jobs are over")
        removed = runs.folder / f"{_REMOVED}{uuid.uuid4().hex}"
        with failing(f"{folder.label} cannot be removed", f"you need to write to {runs.folder}"):
            runs.remember_number(folder.label)
            folder.path.rename(removed)
    remove_tree(removed)
    return replace(one, removed=True)


def sweep(runs: Runs, *, act: bool) -> int:
    """Remove unused programs and the rest of interrupted removals, or only count their bytes."""
    if act:
        runs.check_own()
    freed = drop_unused(runs.root / "node", act=act)
    for left in runs.folder.glob(f"{_REMOVED}*") if runs.folder.is_dir() else ():
        if not left.is_symlink():
            freed += _tree(left)[0]
            if act:
                remove_tree(left)
    return freed


def _ended(folder: RunFolder, look: GetState, *, locked: bool = False) -> tuple[float | None, str]:
    """When a run ended, or why it has not, as far as anybody can tell."""
    try:
        if folder.path.is_symlink():
            return None, "is not a folder of its own"
        folder.check_own()
        facts, size = folder.facts, folder.job.size
        states = look(folder).states
    except (HeadwayError, OSError) as error:
        return None, f"left alone: {getattr(error, 'message', error)}"
    if not locked:
        with contextlib.suppress(HeadwayError):
            if folder.is_locked("supervisor") or folder.is_locked("submit"):
                return None, "is being worked on"
    if facts.cluster is None and not states:
        if folder.submit_file.exists():
            return None, f"may be in the queue: `headway run --resume {folder.label}` finds out"
        return float(facts.created), ""  # nothing of it ever ran
    alive = size - sum(state.terminal for state in states.values())
    if alive > 0:
        return None, f"{many(alive, 'job')} {'is' if alive == 1 else 'are'} not over"
    return max((state.ended or facts.created for state in states.values()), default=0.0), ""


def _tree(path: Path) -> tuple[int, int]:
    """The bytes that the removal of a folder frees, without hard links, and its number of files."""
    size = count = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                found = os.lstat(os.path.join(folder, name))
                size += found.st_size if found.st_nlink == 1 else 0
                count += 1
    return size, count


def _users(every: Iterable[RunFolder]) -> dict[str, set[str]]:
    """For each run, the runs that take results from it."""
    users: dict[str, set[str]] = defaultdict(set)
    for folder in every:
        with contextlib.suppress(HeadwayError):
            for each in read_kept(folder):
                users[each.run].add(folder.label)
    return users
