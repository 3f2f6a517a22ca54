"""`headway hold`, `release`, `remove`, `evict` and `set`: act on jobs in the queue."""

from __future__ import annotations

from argparse import Namespace
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from headway.cli.commands import FAILED, OK
from headway.cli.parser import Parser, UsageError
from headway.cli.terminal import paint, patience, print_json
from headway.text import printable

if TYPE_CHECKING:
    from headway.api import Run
    from headway.pool import RunFolder
    from headway.spec.override import NewRequest

_PAST = {"hold": "held", "release": "released", "remove": "removed", "evict": "evicted"}
#: The groups of jobs on which each action has an effect.
_FITTING = {
    "hold": ("running", "delivering", "idle"),
    "release": ("held",),
    "remove": ("running", "delivering", "idle", "held"),
    "evict": ("running", "delivering"),
}
_DESCRIPTIONS = {
    "hold": "Stop jobs and keep them in the queue until you release them.",
    "release": "Let held jobs run again. If a local run was stopped, this starts its held jobs"
    " again.",
    "remove": "Take jobs out of the queue for good. Their output and logs that are already here"
    " stay.",
    "evict": "Stop running jobs and put them back into the queue. They start again, on another"
    " machine if possible, and continue from their last checkpoint if they have one.",
    "set": "Change what jobs in the queue request: memory, disk, cpus, gpus, time_limit and, where"
    " the pool has duration categories, duration (Medium or Long). The change takes effect at the"
    " next start: release a held job yourself; a running job keeps what it has.",
}
_NEXT = {
    "held": "held: `headway release {}` starts it with the new values",
    "running": "running: this counts from the next start on; `headway evict {}` restarts it",
}


def parser(name: str) -> Parser:
    usage, metavar, what = "RUN[.JOB]… | --all", "RUN[.JOB]", "the runs or jobs"
    examples = [
        (f"headway {name} cifar10-3.0", "one job"),
        (f"headway {name} cifar10-3.0 cifar10-3.7", "two jobs"),
        (f"headway {name} cifar10-3", "all jobs of a run"),
        (f"headway {name} --all", "all jobs of all runs that are here"),
    ]
    if name == "set":
        usage, metavar = "RUN[.JOB]… KEY=VALUE…", "RUN[.JOB] KEY=VALUE"
        what = "the jobs, and their new values"
        examples = [
            ("headway set cifar10-3.0 memory=2GB", "one job"),
            ("headway set cifar10-3 memory=2GB disk=20GB", "all jobs of a run, two changes"),
            ("headway set cifar10-3.0 cifar10-3.7 gpus=2", "two jobs"),
            ("headway set cifar10-3 time_limit=12h", "more time for the command"),
        ]
    made = Parser(name, partial(call, name), usage, _DESCRIPTIONS[name], examples)
    made.argument("address", metavar, what, nargs="*")
    made.flag("--all", "all jobs of all runs that are here")
    return made


def call(name: str, arguments: Namespace) -> int:
    from headway.api import Run

    wanted = _requests(arguments) if name == "set" else []
    results: list[dict[str, Any]] = []
    stored: set[tuple[str, int]] = set()  # jobs whose outputs wait in a node's store
    for folder, jobs in _chosen(name, arguments).items():
        with patience(f"asking the pool of {folder.label}"):
            run = Run(folder)
            stored |= {(run.label, job) for job, state in run.jobs.items() if state.stored}
            results += _set(run, jobs, wanted) if wanted else _act(run, name, jobs)
    if arguments.json:
        changes = {"changes": {new.key: new.value.strip('"') for new in wanted}} if wanted else {}
        print_json({"action": name, **changes, "results": results})
    else:
        _print(name, ", ".join(new.words for new in wanted), results)
        gone = [each for each in results if not each["error"]] if name == "remove" else []
        if given_up := sum((each["run"], each["job"]) in stored for each in gone):
            words = "the outputs of one of them are" if len(gone) > 1 else "its outputs are"
            words = f"the outputs of {given_up:,} of them are" if given_up > 1 else words
            print(f"  {words} given up: they were computed and waited in a node's store")
    return FAILED if any(result["error"] for result in results) else OK


def _requests(arguments: Namespace) -> list[NewRequest]:
    """The KEY=VALUE words, which are taken out of the addresses."""
    from headway.spec.errors import Wrong
    from headway.spec.override import parse_request

    try:
        wanted = [parse_request(word) for word in arguments.address if "=" in word]
    except Wrong as error:
        raise UsageError(error.what, error.remedy) from None
    if not wanted or len({new.key for new in wanted}) < len(wanted):
        raise UsageError(
            "a key is given twice" if wanted else "missing: KEY=VALUE",
            "name each change once, such as `headway set cifar10-3.0 memory=2GB`",
        )
    arguments.address = [word for word in arguments.address if "=" not in word]
    return wanted


def _chosen(name: str, arguments: Namespace) -> dict[RunFolder, list[int] | None]:
    """The jobs asked for, by run; None means all jobs of that run."""
    from headway.cli.address import find
    from headway.pool import Runs

    if arguments.all and arguments.address:
        raise UsageError(
            f"--all and {arguments.address[0]} do not go together",
            "the label of a run means all of its jobs",
        )
    if arguments.all:
        return dict.fromkeys(Runs.here())
    if not arguments.address:
        example = f"name it, such as `headway {name} cifar10-3.0`, or use --all"
        raise UsageError("which run or job?", example)
    folders: dict[str, RunFolder] = {}
    jobs: defaultdict[str, dict[int | None, None]] = defaultdict(dict)
    for address in map(find, arguments.address):
        folders[str(address.folder.path)] = address.folder
        jobs[str(address.folder.path)][address.job] = None
    return {
        folders[path]: None if None in chosen else [job for job in chosen if job is not None]
        for path, chosen in jobs.items()
    }


def _act(run: Run, name: str, jobs: list[int] | None) -> list[dict[str, Any]]:
    from headway.cli.job_text import group_of
    from headway.pool import Action

    if jobs is None:
        states, local = run.jobs, run.pool.kind == "local"
        fitting = [job for job, state in states.items() if group_of(state) in _FITTING[name]]
        # HTCondor may not have made all jobs yet, and those are not in the log.
        more = not local and 0 < len(states) < run.folder.job.size
        if not fitting and not more:
            return []
        jobs = fitting if local else None  # one request for the whole cluster
    done = run.act(Action(name), jobs)
    return [{"run": run.label, "job": each.job, "error": each.error or None} for each in done]


def _set(run: Run, jobs: list[int] | None, wanted: Sequence[NewRequest]) -> list[dict[str, Any]]:
    from headway.cli.job_text import group_of

    states = run.jobs
    if jobs is None:
        jobs = [job for job, state in states.items() if not state.terminal]
    errors = _errors_of_set(run, jobs, wanted)
    return [
        {
            "run": run.label,
            "job": job,
            "state": group_of(states[job]) if job in states else "",
            "error": errors.get(job) or None,
        }
        for job in jobs
    ]


def _errors_of_set(run: Run, jobs: Sequence[int], wanted: Sequence[NewRequest]) -> dict[int, str]:
    """Make the changes; after its first error a job is not changed further."""
    limits = run.pool.limits()
    for new in wanted:
        most = getattr(limits, new.key, None)
        scale = {"memory": 2**20, "disk": 2**10}.get(new.key, 1)
        if isinstance(most, int) and int(new.value) * scale > most:
            return dict.fromkeys(jobs, f"{new.words} is more than any slot of {run.pool.name} has")
    errors: dict[int, str] = {}
    for new in wanted:
        left = [job for job in jobs if job not in errors]
        done = run.edit(left, new.attribute, new.value) if left else []
        errors |= {result.job: result.error for result in done if result.error}
    return errors


def _print(name: str, changes: str, results: Sequence[dict[str, Any]]) -> None:
    groups: defaultdict[tuple[str, str, str], list[int]] = defaultdict(list)
    for each in results:
        groups[each["run"], each["error"] or "", each.get("state", "")].append(each["job"])
    past = _PAST.get(name, name)
    for (label, error, state), jobs in sorted(groups.items(), key=lambda item: bool(item[0][1])):
        which = f"{label}.{jobs[0]}" if len(jobs) == 1 else f"{len(jobs):,} jobs of {label}"
        if error:
            print(f"{paint(f'not {past}', 'red')} {which}: {printable(error)}")
            continue
        print(f"{past} {which}: {changes}" if changes else f"{past} {which}")
        if state in _NEXT:
            print(f"  {_NEXT[state].format(which if len(jobs) == 1 else label)}")
    if not results:
        print(f"there is no job to {name}")
