"""`headway status` and `headway list`: the jobs of a run or of any event log, and all runs."""

from __future__ import annotations

import logging
import shlex
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.api import Run
from headway.cli.address import are_logs, find
from headway.cli.commands import OK
from headway.cli.job_text import (
    STYLES,
    JobGroups,
    RunJobs,
    count_words,
    delivered_words,
    delivery_words,
    elapsed_words,
    fetching_words,
    group_of,
    next_step,
    nobody_runs,
    phase_word,
    print_states,
    progress_words,
    state_word,
    why,
)
from headway.cli.parser import Parser
from headway.cli.run_summary import cause, print_kept, print_results, print_trouble, results_words
from headway.cli.terminal import (
    date_time,
    near,
    paint,
    patience,
    print_hidden,
    print_json,
    print_table,
)
from headway.errors import HeadwayError
from headway.events import Jobs, JobState, Skip, read_log
from headway.events.files import NO_LOGS, LogFile, find_logs
from headway.events.opening import Format, LogReader
from headway.pool.folder import RunFolder, Runs
from headway.pool.results import read_kept
from headway.text import printable

_log = logging.getLogger(__name__)
MOST = 200  # rows, unless all are asked for
BIG = 16 << 20  # bytes of logs beyond which not every event is read
_MOST_REASONS = 10  # held jobs whose reason gets a line of its own


@dataclass
class LogJobs:
    """The jobs in some logs; of big logs, `jobs` has only those that are shown."""

    paths: list[str]
    logs: list[str] = field(default_factory=list)
    jobs: list[JobState] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)  # of all jobs, by group
    last: float = 0.0  # the time of the last event
    skipped: list[tuple[str, Skip]] = field(default_factory=list)
    unread: list[tuple[str, str]] = field(default_factory=list)

    @property
    def total(self) -> int:
        """How many jobs the logs have."""
        return sum(self.counts.values())

    def groups(self) -> JobGroups:
        """The jobs, by what they are doing."""
        found = JobGroups(len(self.jobs))
        for key, state in enumerate(self.jobs):
            found.put(key, state)
        return found


def read_jobs(paths: Sequence[str], most: int | None = None) -> LogJobs:
    """Read logs and their rotations; with `most`, big logs are read only for so many jobs."""
    found = LogJobs(list(paths))
    chains = find_logs(paths, found.unread)
    found.logs = [chain.name for chain in chains]
    for name in found.logs:
        _log.info("reading %s", name)
    files = [file for chain in chains for file in chain.files]
    if most is not None and sum(file.size for file in files) >= BIG and all(map(_is_plain, files)):
        from headway.report.timeline import summarize

        seen = summarize(found.paths, most)
        found.jobs, found.counts, found.last = seen.jobs, seen.counts, seen.last
        found.skipped = seen.skipped
        return found
    for chain in chains:
        jobs = Jobs()  # of its own: two logs may both have a job 1.0
        for file in chain.files:
            log = read_log(file.path)
            for event in log.events:
                jobs.update(event)
            found.last = max([found.last, *(event.time for event in log.events)])
            found.skipped += [(str(file.path), skip) for skip in log.skipped]
        found.jobs += jobs.by_id.values()
    found.counts = found.groups().counts
    return found


def _is_plain(file: LogFile) -> bool:
    """Whether events can be read at any place of the file."""
    if file.format is not Format.TEXT:
        return False
    with LogReader(file.path) as opened:
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
            {"file": file, "why": reason} for file, reason in found.unread if reason not in NO_LOGS
        ],
        "states": [{"job": _id(state), **state.as_dict()} for state in found.jobs],
    }


def print_jobs(found: LogJobs, most: int | None) -> None:
    """Print a table of at most `most` jobs, and why some of them are held."""
    groups = found.groups()
    names = [near(Path(path)) for path in found.paths]
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")
    print(f"{paint(shown, 'bold')}: {count_words(found.counts) or 'no jobs'}")
    states = groups.first(len(found.jobs) if most is None else most)
    if states:
        print_states(states, _id, found.last, groups.lines)
    print_hidden(found.total - len(states), "--all shows them")
    held = [state for state in states if group_of(state) == "held"][:_MOST_REASONS]
    for state in held:
        print(f"  {paint(f'{_id(state)} held', STYLES['held'])}: {printable(why(state))}")
        logs = " ".join(map(shlex.quote, names[:3]))
        print(f"    what to do about it: headway advise {logs} {_id(state)}")
    if (number := found.counts.get("held", 0) - len(held)) > 0:
        print(f"  … and {number:,} more that are held")
    skipped = sum(skip.length for _, skip in found.skipped)
    if skipped:
        print(f"skipped {skipped:,} bytes that are part of no event; --json says where")
    for file, skip in found.skipped:
        if not skip.length:  # reading ended there
            where = f"{near(Path(file))} was read up to byte {skip.offset:,}"
            print(f"{where}: {printable(skip.why)}")
    if found.jobs:
        print(f"where the time went: headway report {' '.join(names[:3])}")


def _id(state: JobState) -> str:
    return f"{state.cluster}.{state.proc}"


def parser(name: str) -> Parser:
    """The parser of `headway status`, or of `headway list`."""
    if name == "list":
        return Parser(
            name,
            list_runs,
            "[options]",
            "List all runs below the nearest `.headway` folder, the newest last.",
            [("headway list", "all runs"), ("headway list --json", "for programs")],
        )
    made = Parser(
        name,
        call,
        "[RUN|RUN.JOB|LOG…] [--all | --results]",
        "Show the jobs of a run, those that need attention first, and what to do about them. This"
        " also works for any HTCondor event log, rotated or compressed ones included, and for a"
        " folder of logs. headway status only reads the event log: it works while the run goes on,"
        " and from any account.",
        [
            ("headway status", "the newest run"),
            ("headway status cifar10-3", "that run"),
            ("headway status cifar10", "the newest run of that name"),
            ("headway status cifar10-3.0", "everything about one job"),
            ("headway status scan-2 --results", "where the outputs of all jobs of the table are"),
            ("headway status train.log", "the jobs of an event log"),
            ("headway status --json", "for programs"),
        ],
    )
    text = "a run, a job or event logs; default: the newest run"
    made.argument("address", "RUN|RUN.JOB|LOG", text, nargs="*")
    made.flag("--all", f"show every job, even if there are more than {MOST}")
    made.flag("--results", "show where each job's outputs are, also those kept from other runs")
    return made


def call(arguments: Namespace) -> int:
    if are_logs(arguments.address):
        with patience("reading the event logs"):
            most = None if arguments.all or arguments.json else MOST
            found = read_jobs(arguments.address, most)
        if arguments.json:
            print_json(log_document(found))
        else:
            print_jobs(found, most)
        return OK
    address = find(next(iter(arguments.address), None))
    if arguments.results:
        with patience("looking for the outputs"):
            results = Run(address.folder).results()
        print_results(address.folder, results, as_json=arguments.json)
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


def _run_document(run: Run) -> dict[str, Any]:
    """What `status --json` and `list --json` both say of a run."""
    facts = run.folder.facts
    return {
        "run": run.label,
        "pool": facts.pool["kind"],
        "cluster": facts.cluster,
        "created": facts.created,
        "submitted": run.submitted,
    }


def document(run_jobs: RunJobs, job: int | None = None) -> dict[str, Any]:
    """What `--json` prints."""
    run = run_jobs.run
    states = run.jobs
    chosen = states.values() if job is None else [states[job]] if job in states else []
    return {
        **_run_document(run),
        "folder": str(run.folder.path),
        "jobs": run_jobs.size,
        "counts": run_jobs.counts,
        "settled": run.settled(),
        "lost": bool(run.lost()),
        "kept": [each.as_dict() for each in read_kept(run.folder)],
        "states": [run_jobs.document(state) for state in chosen],
    }


def _print_run(run_jobs: RunJobs, everything: bool) -> None:
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
            states,
            lambda state: f"{run.label}.{state.proc}",
            time.time(),
            run_jobs.lines,
            row=run_jobs.row,
        )
        print_hidden(run_jobs.size - len(states), "--all shows them")
    print_trouble(run, run_jobs)
    for job, fault in run.damaged().items():
        name = paint(f"{run_jobs.name(job)} damaged", STYLES["failed"])
        print(f"  {name}: {printable(fault)}")
        print(
            f"    what a courier brought is not what the job made: headway deliveries {run.label}"
        )
    if run.lost():
        print(nobody_runs(run.label))
    if run_jobs.counts["delivering"]:
        print(f"what the deliveries wait for: headway deliveries {run.label}")
    if run_jobs.counts["succeeded"]:
        print(f"results: {results_words(run)}")
    print_kept(run)


def _print_job(run_jobs: RunJobs, job: int) -> None:
    run = run_jobs.run
    name, state = paint(run_jobs.name(job), "bold"), run.jobs.get(job)
    if state is None and run.submitted:
        print(f"{name} is not in the event log yet")
        return
    if state is None:
        print(f"{name} is not submitted; submit it with `headway run --resume {run.label}`")
        return
    reason = cause(run, state)
    print(f"{name} {state_word(state)}" + (f": {printable(reason)}" if reason else ""))
    for title, value in _facts(run_jobs, job, state).items():
        if value:
            print(f"  {title:<12} {printable(str(value))}")
    if step := next_step(run.label, state):
        print(f"  {step}")


def _facts(run_jobs: RunJobs, job: int, state: JobState) -> dict[str, object]:
    """What is known of a job; empty values are not shown."""
    run, now = run_jobs.run, time.time()

    def at(moment: float | None) -> str:
        return "" if moment is None else date_time(moment)

    files = {name: run.stream(job, name) for name in ("stdout", "stderr")}
    outputs = run.outputs(job)
    return {
        "HTCondor ID": state.htcondor_id or f"{state.cluster}.{state.proc}",
        "phase": phase_word(state),
        "progress": progress_words(state),
        "transfer": fetching_words(state),
        "site": state.site,
        "slot": state.slot,
        "submitted": at(state.submitted),
        "first ran": at(state.started),
        "ended": at(state.ended),
        "elapsed": elapsed_words(state, now),
        "outputs": delivery_words(state, run_jobs.lines, now),
        "stored": at(state.sandbox_since) if state.stored or state.delivered else "",
        "delivered": delivered_words(state),
        "attempts": str(state.attempts),
        "couriers": state.couriers,
        "evictions": state.evictions,
        "holds": state.holds,
        "checkpoints": state.checkpoints,
        **{name: near(path) for name, path in files.items() if path is not None},
        "results": near(outputs) if outputs.is_dir() and not state.stored else "",
    }


def list_runs(arguments: Namespace) -> int:
    runs = Runs.here()
    with patience("reading the event logs"):
        found = [_listed(folder) for folder in runs]
    if arguments.json:
        print_json({"folder": str(runs.folder), "runs": found})
    elif not found:
        print(f"no runs in {near(runs.folder)}; start one with `headway run job.toml`")
    else:
        rows = [
            (
                str(run["run"]),
                str(run["pool"] or "?"),
                "?" if run["created"] is None else date_time(run["created"])[:-3],
                _jobs_words(run),
                near(runs.folder / str(run["run"]) / "jobs"),
            )
            for run in found
        ]
        print_table(("run", "pool", "created", "jobs", "results"), rows)
    return OK


def _jobs_words(run: dict[str, Any]) -> str:
    kept = f" ({run['kept']:,} kept from other runs)" if run["kept"] else ""
    words = count_words(run["counts"]) if run["submitted"] else "not submitted"
    return str(run["error"] or words + kept)


def _listed(folder: RunFolder) -> dict[str, Any]:
    """A run for the list; one that cannot be read does not hide the others."""
    results = str(folder.jobs)
    try:
        run = Run(folder)
        counts = {group: number for group, number in RunJobs(run).counts.items() if number}
        kept = len(read_kept(folder))
        known = {**_run_document(run), "counts": counts, "kept": kept}
        return {**known, "results": results, "error": None}
    except HeadwayError as error:
        unknown = dict.fromkeys(("pool", "cluster", "created", "submitted", "kept"))
        known = {"run": folder.label, **unknown, "counts": {}}
        return {**known, "results": results, "error": error.message}
