"""Results: which jobs of a description have their outputs, in which run, and what is missing.

A job is known again by what it does: its command, environment, container and inputs, with the
placeholders filled in. So a row of a table is the same job wherever it stands in the table, and a
changed command is another job. What a job asks for (resources, retries, sites, limits) may change,
and so may its `files`: a failure is often mended by an edit of the script. Results from before
an edit are kept, and `changed_files` tells about it.

`candidates` and `remove` clean up: which runs can go, what that would lose, and their removal.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tarfile
import time
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from headway.errors import HeadwayError, PreflightError, Problem, RunError
from headway.events import JobState, Outcome, Status
from headway.node.files import write_atomically
from headway.node.plan import fill
from headway.pool.folder import RunFolder, Runs, read_plain, read_record
from headway.pool.local.scratch import remove_tree, tree_size
from headway.pool.prepare import drop_unused, packed_files
from headway.spec import Job, Output
from headway.text import many

KEPT, BUSY, WAITS, MISSING = "kept", "busy", "waits", "missing"
_MOST_KEPT = 1 << 29  # bytes of kept.json
# what a file raises that headway did not write
_NOT_WHAT_IT_WAS = (
    ArithmeticError,
    AttributeError,
    KeyError,
    RecursionError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True)
class Placed:
    """One output of a job: its declared path, and where it is now, a path or a URL."""

    path: str
    where: str
    bytes: int | None = None  # as the agent measured it; None: no record says

    @property
    def is_url(self) -> bool:
        return "://" in self.where


@dataclass(frozen=True)
class Result:
    """What there is of one job of a description."""

    job: int  # its number in the description
    row: Mapping[str, str]
    state: str  # KEPT: verified; BUSY: under way; WAITS: for a person; MISSING: to be run
    why: str = ""
    run: str = ""  # the run that has it, and the job's number there
    index: int = 0
    outputs: tuple[Placed, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.run}.{self.index}" if self.run else ""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "row": dict(self.row)}


@dataclass(frozen=True)
class Survey:
    """All jobs of a description, and what a reader should know of those that are kept."""

    results: tuple[Result, ...]
    notes: tuple[str, ...] = ()

    def of(self, *states: str) -> list[Result]:
        """The jobs in one of these states."""
        return [each for each in self.results if each.state in states]

    def words(self) -> str:
        """`7 kept from scan-1, 1 under way in scan-2, 2 to run`."""
        said = []
        for state, form in ((KEPT, "kept from"), (BUSY, "under way in"), (WAITS, "waiting in")):
            counts: dict[str, int] = defaultdict(int)
            for each in self.of(state):
                counts[each.run] += 1
            said += [f"{count:,} {form} {run}" for run, count in sorted(counts.items())]
        return ", ".join([*said, f"{len(self.of(MISSING)):,} to run"])

    def missing_part(self, job: Job) -> Job:
        """The jobs that are to be run, each with the number that it has in the description."""
        missing = self.of(MISSING)
        if len(missing) == len(self.results):
            return job
        return job.model_copy(update={"rows": tuple(dict(each.row) for each in missing)})

    def check_places(self, job: Job, base: Path) -> None:
        """Refuse to run a job whose output would replace that of another one, which is kept."""
        taken = {
            placed.where: each for each in self.of(KEPT, BUSY, WAITS) for placed in each.outputs
        }
        problems = []
        for each in self.of(MISSING):
            for number, output in enumerate(job.outputs):
                where = _destination(output, each.row, base)
                if where in taken:
                    what = (
                        f"job {each.job} would replace {where}, the result of {taken[where].name}"
                    )
                    remedy = "give the output a place of its own, such as one with the row's values"
                    problems.append(Problem(f"outputs[{number}].to", what, remedy))
        if problems:
            raise PreflightError(problems[:10])


@dataclass(frozen=True)
class Seen:
    """One run as it is now: the states of its jobs, and whether nobody runs them any more."""

    folder: RunFolder
    states: Mapping[int, JobState]
    lost: bool = False


@dataclass
class _Candidates:
    """The jobs of earlier runs that do the same, by what they do and by row and number."""

    by_key: dict[tuple[object, ...], deque[Result]] = field(
        default_factory=lambda: defaultdict(deque)
    )
    used: set[tuple[str, int]] = field(default_factory=set)

    def add(self, key: str, result: Result) -> None:
        for kind in _kinds(key, result.job, result.row):
            self.by_key[(result.state, *kind)].append(result)

    def take(self, state: str, kind: tuple[object, ...]) -> Result | None:
        waiting = self.by_key.get((state, *kind))
        while waiting:
            result = waiting.popleft()
            if (result.run, result.index) not in self.used:
                self.used.add((result.run, result.index))
                return result
        return None


def survey(
    job: Job, base: Path, runs: Iterable[RunFolder], look: Callable[[RunFolder], Seen]
) -> Survey:
    """What there is of each job of a description in the runs of the same name.

    Args:
        job: the description.
        base: the folder of job.toml.
        runs: the runs to look through, oldest first.
        look: reads the state of a run's jobs.
    """
    notes: list[str] = []
    candidates = _Candidates()
    last: dict[str, Result] = {}  # by what it does, the newest that brought nothing
    changed: dict[tuple[tuple[str, str], ...], str] = {}  # by row, what another run did
    folders: dict[str, RunFolder] = {}
    for folder in reversed(list(runs)):
        if folder.facts.name != job.name:
            continue
        if folder.facts.base != str(base):
            notes.append(f"{folder.label} does not count: it is of {folder.facts.base}")
            continue
        try:
            earlier, seen = folder.job, look(folder)
        except HeadwayError as error:
            notes.append(f"{folder.label} is left out: {error.message}")
            continue
        folders[folder.label] = folder
        words = _changes(earlier, job)
        for index in range(earlier.size):
            row = earlier.row(index)
            key = work_key(earlier, row)
            result = _result_of(seen, index, job)
            if result.state == MISSING:
                last.setdefault(key, result)
            candidates.add(key, result)
            if words:
                changed.setdefault(_columns(row), f"{folder.label} ran it with {words}")
    rows = [job.row(index) for index in range(job.size)]
    keys = [work_key(job, row) for row in rows]
    found: dict[int, Result] = {}
    for state in (KEPT, BUSY, WAITS):
        for kind in range(3):  # first the very same row and number, at last any that does the same
            for number, (key, row) in enumerate(zip(keys, rows, strict=True)):
                if number in found:
                    continue
                taken = candidates.take(state, _kinds(key, number, row)[kind])
                if taken is not None:
                    found[number] = replace(taken, job=number, row=row)
    for number, (key, row) in enumerate(zip(keys, rows, strict=True)):
        if number not in found:
            before = last.get(key)
            why = before.why if before else changed.get(_columns(row), "it has not been run yet")
            found[number] = Result(number, row, MISSING, why)
    results = tuple(found[number] for number in range(job.size))
    for label in sorted({each.run for each in results if each.state == KEPT}):
        edited = changed_files(folders[label], job, base)
        if edited:
            notes.append(_edited_words(edited, label))
    return Survey(results, tuple(notes))


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


def outputs_of(folder: RunFolder, index: int) -> tuple[tuple[Placed, ...], str]:
    """Where the outputs of a job that succeeded are, and what is wrong with them, if anything.

    What went to a URL was proven when it was sent, which the record tells; the rest must be there,
    and as large as it was.
    """
    job, row = folder.job, folder.job.row(index)
    told = _recorded(folder, index)
    placed, faults = [], []
    for output in job.outputs:
        path = fill(output.path, row)
        home = folder.job_folder(index) / "outputs" / path
        where = _destination(output, row, Path(folder.facts.base)) or str(home)
        if "://" not in where and not os.path.lexists(where) and home.exists():
            where = str(home)  # something was in its way
        one = Placed(path, where, told.get(path))
        fault = "" if one.is_url else _fault(one)
        if one.is_url and told and path not in told:
            fault = f"{path} was not sent"
        if fault and output.required:
            faults.append(fault)
        if not fault:
            placed.append(one)
    return tuple(placed), "; ".join(faults)


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


def _result_of(seen: Seen, index: int, wanted: Job) -> Result:
    """What there is of one job of an earlier run."""
    folder, row = seen.folder, seen.folder.job.row(index)
    name = f"{folder.label}.{index}"
    number = int(row["job"]) if row["job"].isdigit() else index
    one = Result(number, row, MISSING, run=folder.label, index=index)
    to_come = replace(one, outputs=_planned(folder, index, row))
    state = seen.states.get(index)
    if state is None or not state.terminal:
        if state is None and folder.facts.cluster is None:
            return replace(one, why=f"{folder.label} was never submitted")
        if state is not None and state.status is Status.HELD:
            return replace(to_come, state=WAITS, why=f"{name} is held: {state.hold_reason}")
        if seen.lost:
            return replace(to_come, state=WAITS, why=f"{folder.label} was stopped before it ended")
        word = state.status.value if state is not None else Status.IDLE.value
        return replace(to_come, state=BUSY, why=f"{name} is {word}")
    if state.outcome is not Outcome.SUCCESS:
        word = "was removed" if state.outcome is Outcome.REMOVED else "failed"
        said = state.why.removeprefix("failed: ").removeprefix("removed: ")
        return replace(one, why=f"{name} {word}" + (f": {said}" if said and said != word else ""))
    placed, fault = outputs_of(folder, index)
    lacking = _lacking(wanted, row, placed)
    if fault or lacking:
        return replace(one, why=f"{name} succeeded, but {fault or lacking}")
    return replace(one, state=KEPT, why=f"{name} succeeded", outputs=placed)


def _lacking(wanted: Job, row: Mapping[str, str], placed: Sequence[Placed]) -> str:
    """What the description declares by now and this job did not bring."""
    have = {one.path: one for one in placed}
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


def _fault(one: Placed) -> str:
    try:
        size = _size(one.where)
    except OSError:
        return f"{one.path} is no longer at {one.where}"
    if one.bytes is None or size == one.bytes or (os.path.isdir(one.where) and size > one.bytes):
        return ""
    return f"{one.where} has {size:,} bytes and had {one.bytes:,}"


def _size(path: str) -> int:
    return tree_size(Path(path)) if os.path.isdir(path) else os.stat(path).st_size


def _planned(folder: RunFolder, index: int, row: Mapping[str, str]) -> tuple[Placed, ...]:
    """Where the outputs of a job will be."""
    base, home = Path(folder.facts.base), folder.job_folder(index) / "outputs"
    paths = [(output, fill(output.path, row)) for output in folder.job.outputs]
    return tuple(
        Placed(path, _destination(output, row, base) or str(home / path)) for output, path in paths
    )


def _recorded(folder: RunFolder, index: int) -> dict[str, int]:
    """The bytes of each output, as the record of the attempt that succeeded has them."""
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
    """Where an output goes, other than to the run folder; empty: nowhere else."""
    if not output.to:
        return ""
    to = fill(output.to, row)
    return to if "://" in to else os.path.normpath(base / to)


def _kinds(key: str, number: int, row: Mapping[str, str]) -> tuple[tuple[object, ...], ...]:
    """From the very same job to any that does the same."""
    columns = _columns(row)
    return (key, columns, number), (key, columns), (key,)


def _columns(row: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    columns = tuple(sorted((name, value) for name, value in row.items() if name != "job"))
    return columns or (("job", row.get("job", "")),)


def _changes(earlier: Job, job: Job) -> str:
    """What of two descriptions makes their jobs different ones, in words."""
    keys = ("command", "shell", "environment", "container", "inputs")
    return " and ".join(
        f"another `{key}`" for key in keys if getattr(earlier, key) != getattr(job, key)
    )


def _differs(archive: tarfile.TarFile, entry: tarfile.TarInfo, path: Path) -> bool:
    if entry.size != path.stat().st_size:
        return True
    packed = archive.extractfile(entry)
    if packed is None:
        return True
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            if packed.read(len(block)) != block:
                return True
    return False


def _edited_words(edited: Sequence[str], label: str) -> str:
    more = f" and {many(len(edited) - 3, 'other file')}" if len(edited) > 3 else ""
    return (
        f"{', '.join(edited[:3])}{more} changed since {label}, whose results are kept as they are;"
        " to run all jobs again, leave out --only-missing"
    )


# -- what a run of only the missing jobs says of the others


def kept_text(results: Iterable[Result]) -> str:
    """What kept.json holds: the results that a run was spared, and where they are; or nothing."""
    kept = [each.as_dict() for each in results]
    return json.dumps({"format": 1, "kept": kept}, indent=1) + "\n" if kept else ""


def read_kept(folder: RunFolder) -> list[Result]:
    """The results that a run was spared; empty for a run of all jobs."""
    try:
        return [_kept(each) for each in json.loads(read_plain(folder.kept, _MOST_KEPT))["kept"]]
    except FileNotFoundError:
        return []
    except (OSError, *_NOT_WHAT_IT_WAS) as error:
        raise RunError(
            f"{folder.kept} cannot be read: {error}",
            remedy="the runs that it names still have them",
        ) from error


def _kept(told: Mapping[str, Any]) -> Result:
    """One result of kept.json, with every value of its type: the run may be anybody's."""
    outputs = []
    for each in told["outputs"]:
        size = each.get("bytes")
        outputs.append(
            Placed(str(each["path"]), str(each["where"]), None if size is None else int(size))
        )
    run = str(told["run"])
    if "/" in run or run in ("", ".", ".."):
        raise ValueError(f"{run!r} is no run")
    row = {str(name): str(value) for name, value in told["row"].items()}
    words = str(told["state"]), str(told.get("why", ""))
    return Result(int(told["job"]), row, *words, run, int(told["index"]), tuple(outputs))


def all_results(seen: Seen) -> list[Result]:
    """The results of a run's own jobs, and those that it was spared, as they are now."""
    job = seen.folder.job
    own = [_result_of(seen, index, job) for index in range(job.size)]
    runs = seen.folder.path.parent
    kept = []
    for each in read_kept(seen.folder):
        placed = each.outputs
        home = RunFolder(runs / each.run)
        gone = [fault for one in placed if not one.is_url and (fault := _fault(one))]
        why = "; ".join(gone) or each.why
        if not home.path.is_dir() and gone:
            why = f"{each.run} was removed"
        kept.append(replace(each, state=MISSING if gone else KEPT, why=why))
    return sorted([*own, *kept], key=lambda each: each.job)


# Cleaning.
#
# Only a run that has ended can go. A result that is nowhere else than in the run folder is the
# user's own: it goes only where that is asked for.

_GONE = ".gone-"
Look = Callable[[RunFolder], Seen]


@dataclass(frozen=True)
class Candidate:
    """A run, and whether it can go; `why` says what keeps it, or how it ended up here."""

    folder: RunFolder
    goes: bool
    why: str
    ended: float | None = None
    bytes: int = 0  # what its removal frees
    outputs: int = 0  # files of results that are in the run folder
    output_bytes: int = 0
    removed: bool = False

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        facts = asdict(replace(self, folder=None))  # type: ignore[arg-type]
        del facts["folder"]
        return {"run": self.folder.label, **facts, "path": str(self.folder.path)}


def candidates(
    runs: Runs,
    look: Look,
    *,
    chosen: Sequence[str] | None = None,
    older: float | None = None,
    keep: int | None = None,
    outputs: bool = False,
    now: float | None = None,
) -> list[Candidate]:
    """What would become of each run that is asked about, oldest first.

    Args:
        runs: where to look.
        look: reads the state of a run's jobs.
        chosen: the labels of the runs that are meant; None: all.
        older: seconds since a run ended, at the least, for it to go.
        keep: how many of the newest runs of each name stay.
        outputs: whether runs go that have results in them.
        now: the time, for tests.
    """
    now = time.time() if now is None else now
    every = list(runs)
    newest = _newest(every, keep or 0)
    users = _users(every)
    found = []
    for folder in every:
        if chosen is not None and folder.label not in chosen:
            continue
        one = _measured(folder)
        ended, why = _ended(folder, look)
        one = replace(one, ended=ended)
        if ended is not None and older is not None and now - ended < older:
            why = "ended later than that"
        elif ended is not None and folder.label in newest:
            why = f"is one of the newest {keep}" if keep != 1 else "is the newest of its name"
        elif ended is not None and one.outputs and not outputs:
            why = f"the only copy of {many(one.outputs, 'output')} is in it; see --outputs"
        if not why and one.outputs:
            counts = sorted(users.get(folder.label, set()))
            why = (
                f"with its outputs, which {counts[-1]} counts on" if counts else "with its outputs"
            )
            found.append(replace(one, goes=True, why=why))
        else:
            found.append(replace(one, goes=not why, why=why))
    return found


def remove(runs: Runs, one: Candidate, look: Look) -> Candidate:
    """Remove a run: under its name it is whole until it is gone, also if this is killed.

    Raises:
        RunError: it has been taken up again, or cannot be removed.
    """
    folder = one.folder
    folder.check_own()
    local = folder.facts.pool.get("kind") == "local"
    # whoever would run its jobs, or submit them, needs this lock
    with folder.locked("supervisor" if local else "submit"):
        _, why = _ended(folder, look, locked=True)
        if why:
            raise RunError(f"{folder.label} stays: {why}", remedy="wait until its jobs are over")
        try:
            _remember_number(runs, folder)
            gone = runs.folder / f"{_GONE}{uuid.uuid4().hex}"
            folder.path.rename(gone)
        except OSError as error:
            raise RunError(
                f"{folder.label} cannot be removed: {error.strerror}",
                remedy=f"you need to write to {runs.folder}",
            ) from error
    remove_tree(gone)
    return replace(one, removed=True)


def sweep(runs: Runs, *, act: bool) -> int:
    """Remove what no run needs: unused programs, and what a removal that was cut off has left."""
    if act:
        runs.check_own()
    freed = drop_unused(runs.root / "node", act=act)
    for gone in runs.folder.glob(f"{_GONE}*") if runs.folder.is_dir() else ():
        if not gone.is_symlink():
            freed += _tree(gone)[0]
            if act:
                remove_tree(gone)
    return freed


def _ended(folder: RunFolder, look: Look, *, locked: bool = False) -> tuple[float | None, str]:
    """When a run ended; or why it cannot be said to have."""
    try:
        if folder.path.is_symlink():
            return None, "is not a folder of its own"
        folder.check_own()
        facts, size = folder.facts, folder.job.size
        states = look(folder).states
    except (HeadwayError, OSError) as error:
        said = error.message if isinstance(error, HeadwayError) else str(error)
        return None, f"left alone: {said}"
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


def _measured(folder: RunFolder) -> Candidate:
    every, _ = _tree(folder.path)
    size = files = 0
    places = [*folder.jobs.glob("*/outputs"), *folder.jobs.glob("*/attempts/*/outputs")]
    for place in places:
        bytes_, count = _tree(place)
        size, files = size + bytes_, files + count
    return Candidate(folder, False, "", None, every, files, size)


def _tree(path: Path) -> tuple[int, int]:
    """The bytes that go with a folder, and how many files; a file with another name stays."""
    size = count = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                found = os.lstat(os.path.join(folder, name))
                size += found.st_size if found.st_nlink == 1 else 0
                count += 1
    return size, count


def _newest(every: Iterable[RunFolder], keep: int) -> set[str]:
    by_name: dict[str, list[str]] = {}
    for folder in every:
        by_name.setdefault(folder.facts.name, []).append(folder.label)
    return {label for labels in by_name.values() for label in labels[-keep:] if keep}


def _users(every: Iterable[RunFolder]) -> dict[str, set[str]]:
    """Of each run, the runs that were spared a job because of its results."""
    users: dict[str, set[str]] = {}
    for folder in every:
        with contextlib.suppress(HeadwayError):
            for each in read_kept(folder):
                users.setdefault(each.run, set()).add(folder.label)
    return users


def _remember_number(runs: Runs, folder: RunFolder) -> None:
    """See to it that no other run gets the label of one that is gone."""
    stem, _, number = folder.label.rpartition("-")
    last = runs.last_number(stem)
    if int(number) > last:
        write_atomically(runs.folder / f".last-{stem}", f"{int(number)}\n".encode())
