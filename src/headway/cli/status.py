"""`headway status`: the jobs of a run, from its event log alone."""

from __future__ import annotations

import logging
import os
import re
import shlex
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.cli.commands import OK
from headway.cli.job_text import (
    STYLES,
    JobGroups,
    RunJobs,
    count_words,
    elapsed_words,
    fetching_words,
    group_of,
    next_step,
    nobody_runs,
    print_states,
    progress_words,
    state_word,
    why,
)
from headway.cli.parser import Parser
from headway.cli.terminal import near, paint, patience, print_json, printable
from headway.events import Jobs, JobState, Skip, read_log
from headway.events.files import NO_LOGS, LogFile, find_logs
from headway.events.opening import Format, open_log
from headway.pool.folder import Runs

if TYPE_CHECKING:
    from headway.pool.folder import RunFolder


# The jobs of event logs that belong to no run, in the same words.


_log = logging.getLogger(__name__)
BIG = 16 << 20  # bytes of logs beyond which not every event is looked at
_MOST_WORDS = 10  # jobs whose reason gets a line of its own
_NUMBER = re.compile(r"[0-9]*(\.[0-9]+)?\Z", re.ASCII)


def are_logs(words: Sequence[str]) -> bool:
    """Whether these words name logs; a run's own name, and a job's number, go before a path."""
    if not words:
        return False
    if len(words) > 1:
        return True
    text = words[0]
    try:
        there = os.path.exists(text)
        path = Path(text).resolve()
        # A folder that this one lies in holds whatever there is, and no one asks for that.
        if (path / "run.json").is_file() or path == Path.cwd() or path in Path.cwd().parents:
            return False
    except (OSError, ValueError):
        return False
    if os.sep in text or text.endswith(".log"):
        return True
    if not there:
        return False
    runs = list(Runs.here())
    named = any(text in (run.label, run.facts.name) for run in runs)
    return not named and not (runs and _NUMBER.match(text))


@dataclass
class LogJobs:
    """What is known of the jobs in some logs; `last` is the time of the last event."""

    paths: list[str]
    total: int = 0
    logs: list[str] = field(default_factory=list)
    jobs: list[JobState] = field(default_factory=list)
    last: float = 0.0
    skipped: list[tuple[str, Skip]] = field(default_factory=list)
    unread: list[tuple[str, str]] = field(default_factory=list)

    #: Of all jobs, where only some of them are in `jobs`.
    counts: dict[str, int] = field(default_factory=dict)

    def groups(self) -> JobGroups:
        """The jobs, sorted by what they are doing."""
        found = JobGroups(len(self.jobs))
        for key, state in enumerate(self.jobs):
            found.put(key, state)
        return found


def read_jobs(paths: Sequence[str], most: int | None = None) -> LogJobs:
    """Read logs, with their rotations; two logs may both have a job 1.0.

    Of big logs, and if `most` jobs are to be shown at most, only so many of each kind are read.
    """
    found = LogJobs(list(paths))
    chains = find_logs(paths, found.unread)
    found.logs = [chain.name for chain in chains]
    for name in found.logs:
        _log.info("reading %s", name)
    files = [file for chain in chains for file in chain.files]
    if most is not None and sum(file.size for file in files) >= BIG and all(map(_is_plain, files)):
        return _read_big(found, most)
    for chain in chains:
        jobs = Jobs()
        for file in chain.files:
            log = read_log(file.path)
            for event in log.events:
                jobs.update(event)
            found.last = max([found.last, *(event.time for event in log.events)])
            found.skipped += [(str(file.path), skip) for skip in log.skipped]
        found.jobs += jobs.by_id.values()
    found.total = len(found.jobs)
    found.counts = found.groups().counts
    return found


def _read_big(found: LogJobs, most: int) -> LogJobs:
    from headway.report.timeline import summarize

    seen = summarize(found.paths, most)
    found.jobs, found.counts, found.last = seen.jobs, seen.counts, seen.last
    found.total = sum(seen.counts.values())
    found.skipped = seen.skipped
    return found


def _is_plain(file: LogFile) -> bool:
    """Whether an event can be read where it lies."""
    if file.format is not Format.TEXT:
        return False
    with open_log(file.path) as opened:
        return not opened.compression


def log_document(found: LogJobs) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "logs": found.logs,
        "jobs": found.total,
        "counts": found.counts,
        "last": found.last or None,
        "skipped": [
            {"file": file, "offset": skip.offset, "bytes": skip.length, "why": skip.why}
            for file, skip in found.skipped
        ],
        "unread": [
            {"file": file, "why": said} for file, said in found.unread if said not in NO_LOGS
        ],
        "states": [{"job": _id(state), **state.as_dict()} for state in found.jobs],
    }


def print_jobs(found: LogJobs, most: int | None) -> None:
    """A table of the jobs, at most so many, and why those that need attention do."""
    groups = found.groups()
    names = [printable(near(Path(path))) for path in found.paths]
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")
    print(f"{paint(shown, 'bold')}: {count_words(found.counts) or 'no jobs'}")
    states = groups.first(len(found.jobs) if most is None else most)
    if states:
        print_states(states, _id, found.last)
    if found.total > len(states):
        print(f"… and {found.total - len(states):,} more; --all shows them")
    _print_trouble(states, found.counts.get("held", 0), " ".join(map(shlex.quote, names[:3])))
    skipped = sum(skip.length for _, skip in found.skipped)
    if skipped:
        print(f"skipped {skipped:,} bytes that are part of no event; --json says where")
    for file, skip in found.skipped:
        if not skip.length:  # reading ended there
            where = f"{printable(near(Path(file)))} was read up to byte {skip.offset:,}"
            print(f"{where}: {printable(skip.why)}")
    if found.jobs:
        print(f"where the time went: headway report {' '.join(names[:3])}")


def _print_trouble(states: Sequence[JobState], number: int, logs: str) -> None:
    held = [state for state in states if group_of(state) == "held"]
    for state in held[:_MOST_WORDS]:
        print(f"  {paint(f'{_id(state)} held', STYLES['held'])}: {printable(why(state))}")
        print(f"    what to do about it: headway advise {logs} {_id(state)}")
    if number > len(held[:_MOST_WORDS]):
        print(f"  … and {number - len(held[:_MOST_WORDS]):,} more that are held")


def _id(state: JobState) -> str:
    return f"{state.cluster}.{state.proc}"


MOST = 200  # rows, unless all are asked for


def parser(name: str) -> Parser:
    """The parser of `headway status`, or of `headway list`."""
    return _list_parser(name) if name == "list" else _status_parser(name)


def _status_parser(name: str) -> Parser:
    made = Parser(
        name,
        "[RUN|RUN.JOB|LOG…] [--all | --results]",
        "Show the jobs of a run, those that need attention first, and what to do about them; or\n"
        "those of any HTCondor event log, also a rotated or compressed one, or a folder of logs.\n"
        "Reads the event log alone: it works while the run goes on, and from any account.",
        [
            ("headway status", "the newest run"),
            ("headway status cifar10-3", "that run"),
            ("headway status cifar10", "the newest run of that name"),
            ("headway status cifar10-3.0", "all that is known of one job"),
            ("headway status scan-2 --results", "where the outputs of all jobs of the table are"),
            ("headway status train.log", "the jobs of an event log"),
            ("headway status --json", "for programs"),
        ],
    )
    made.add_argument(
        "address", nargs="*", metavar="RUN|RUN.JOB|LOG", help="default: the newest run"
    )
    made.flag("--all", help=f"every job, also where there are more than {MOST}")
    made.flag("--results", help="where each job's outputs are, those kept from other runs included")
    made.set_defaults(call=call)
    return made


def call(arguments: Namespace) -> int:
    from headway.api import Run
    from headway.cli.address import find

    if are_logs(arguments.address):
        return _call_on_logs(arguments)
    address = find(next(iter(arguments.address), None))
    if arguments.results:
        from headway.cli import run_summary

        with patience("looking for the outputs"):
            found = Run(address.folder).results()
        run_summary.print_results(address.folder, found, as_json=arguments.json)
        return OK
    with patience("reading the event log"):
        run_jobs = RunJobs(Run(address.folder))
    if arguments.json:
        print_json(document(run_jobs, address.job))
    elif address.job is not None:
        _print_job(run_jobs, address.job)
    else:
        _print_run(run_jobs, arguments.all)
    return OK


def _call_on_logs(arguments: Namespace) -> int:

    with patience("reading the event logs"):
        most = None if arguments.all or arguments.json else MOST
        found = read_jobs(arguments.address, most)
    if arguments.json:
        print_json(log_document(found))
    else:
        print_jobs(found, most)
    return OK


def document(run_jobs: RunJobs, job: int | None = None) -> dict[str, Any]:
    """What `--json` prints."""

    from headway.pool.results import read_kept

    run = run_jobs.run
    facts = run.folder.facts
    states = run.jobs
    chosen = states.values() if job is None else [states[job]] if job in states else []
    return {
        "run": run.label,
        "pool": facts.pool["kind"],
        "cluster": facts.cluster,
        "created": facts.created,
        "submitted": run.submitted,
        "folder": str(run.folder.path),
        "jobs": run_jobs.size,
        "counts": run_jobs.counts,
        "settled": run.settled(),
        "lost": bool(run.lost()),
        "kept": [each.as_dict() for each in read_kept(run.folder)],
        "states": [run_jobs.document(state) for state in chosen],
    }


def _print_run(run_jobs: RunJobs, everything: bool) -> None:
    from headway.cli.run_summary import print_kept, print_trouble, results_words

    run = run_jobs.run
    kind = run.folder.facts.pool["kind"]
    if not run.submitted:
        print(f"{paint(run.label, 'bold')} on {kind}: not submitted")
        print(f"submit it with `headway run --resume {run.label}`")
        print_kept(run)
        return
    print(f"{paint(run.label, 'bold')} on {kind}: {count_words(run_jobs.counts)}")
    states = run_jobs.first(run_jobs.size if everything else MOST)
    if states:
        print_states(
            states, lambda state: f"{run.label}.{state.proc}", time.time(), row=run_jobs.row
        )
    hidden = run_jobs.size - len(states)
    if hidden > 0 and states:
        print(f"… and {hidden:,} more; --all shows them")
    print_trouble(run, run_jobs)
    if run.lost():
        print(nobody_runs(run.label))
    if run_jobs.counts["succeeded"]:
        print(f"results: {results_words(run)}")
    print_kept(run)


def _print_job(run_jobs: RunJobs, job: int) -> None:
    from headway.cli.run_summary import cause

    run = run_jobs.run
    state = run.jobs.get(job)
    print(f"{paint(run_jobs.name(job), 'bold')} ", end="")
    if state is None:
        if run.submitted:
            print("is not in the event log yet")
        else:
            print(f"is not submitted; submit it with `headway run --resume {run.label}`")
        return
    said = cause(run, state)
    print(state_word(state) + (f": {printable(said)}" if said else ""))
    for name, value in _facts(state):
        print(f"  {name:<12} {printable(value)}")
    for name in ("stdout", "stderr"):
        path = run.stream(job, name)
        if path is not None:
            print(f"  {name:<12} {near(path)}")
    if run.outputs(job).is_dir():
        print(f"  {'results':<12} {near(run.outputs(job))}")
    step = next_step(run.label, state)
    if step:
        print(f"  {step}")


def _facts(state: JobState) -> list[tuple[str, str]]:

    def at(moment: float | None) -> str:
        if moment is None:
            return ""
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))

    facts = [
        ("HTCondor's", f"{state.cluster}.{state.proc}"),
        ("phase", state.phase),
        ("progress", progress_words(state)),
        ("transfer", fetching_words(state)),
        ("site", state.site),
        ("slot", state.slot),
        ("submitted", at(state.submitted)),
        ("first ran", at(state.started)),
        ("ended", at(state.ended)),
        ("elapsed", elapsed_words(state, time.time())),
        ("attempts", str(state.attempts)),
        ("evictions", str(state.evictions or "")),
        ("holds", str(state.holds or "")),
        ("checkpoints", str(state.checkpoints or "")),
    ]
    return [(name, value) for name, value in facts if value]


# `headway list`: all runs that are here.


def _list_parser(name: str) -> Parser:
    made = Parser(
        name,
        "[options]",
        "List all runs below the nearest `.headway` folder, the newest last.",
        [("headway list", "all of them"), ("headway list --json", "for programs")],
    )
    made.set_defaults(call=list_runs)
    return made


def list_runs(arguments: Namespace) -> int:
    from headway.cli.terminal import near, patience, print_json, print_table
    from headway.pool.folder import Runs

    runs = Runs.here()
    with patience("reading the event logs"):
        found = [_readable(folder) for folder in runs]
    if arguments.json:
        print_json({"folder": str(runs.folder), "runs": found})
        return OK
    if not found:
        print(f"no runs in {near(runs.folder)}; start one with `headway run job.toml`")
        return OK
    rows = [
        (
            str(run["run"]),
            str(run["pool"] or "?"),
            _when(run["created"]),
            _jobs_words(run),
            near(runs.folder / str(run["run"]) / "jobs"),
        )
        for run in found
    ]
    print_table(("run", "pool", "created", "jobs", "results"), rows)
    return OK


def _when(created: float | None) -> str:
    return "?" if created is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(created))


def _jobs_words(run: dict[str, Any]) -> str:
    from headway.cli.job_text import count_words

    if run["error"]:
        return str(run["error"])
    kept = f" ({run['kept']:,} kept from other runs)" if run["kept"] else ""
    words = count_words(run["counts"]) if run["submitted"] else "not submitted"
    return words + kept


def _readable(folder: RunFolder) -> dict[str, Any]:
    """What there is of a run; one that cannot be read does not hide the others."""
    from headway.errors import HeadwayError

    try:
        return {**_run_facts(folder), "error": None}
    except HeadwayError as error:
        unknown = dict.fromkeys(("pool", "cluster", "created", "submitted", "kept"))
        return {
            "run": folder.label,
            **unknown,
            "counts": {},
            "results": str(folder.jobs),
            "error": error.message,
        }


def _run_facts(folder: RunFolder) -> dict[str, Any]:
    from headway.api import Run
    from headway.cli.job_text import RunJobs
    from headway.pool.results import read_kept

    facts, run = folder.facts, Run(folder)
    counts = {group: number for group, number in RunJobs(run).counts.items() if number}
    return {
        "run": folder.label,
        "pool": facts.pool["kind"],
        "cluster": facts.cluster,
        "created": facts.created,
        "submitted": run.submitted,
        "counts": counts,
        "kept": len(read_kept(folder)),
        "results": str(folder.jobs),
    }
