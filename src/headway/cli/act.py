"""`headway hold`, `release`, `remove`, `evict` and `set`: what one can ask of jobs in the queue."""

from __future__ import annotations

from argparse import Namespace
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from headway.cli.commands import FAILED, OK
from headway.cli.parser import Parser, UsageError

if TYPE_CHECKING:
    from headway.api import Run
    from headway.pool import Action, ActionResult, RunFolder
    from headway.spec.override import NewRequest

DONE = {"hold": "held", "release": "released", "remove": "removed", "evict": "evicted"}
_FITTING = {
    "hold": ("running", "idle"),
    "release": ("held",),
    "remove": ("running", "idle", "held"),
    "evict": ("running",),
}
_WORDS = {
    "hold": "Take jobs off their nodes and keep them in the queue until they are released.",
    "release": "Let held jobs go on; of a local run that was stopped, the held jobs start again.",
    "remove": "Take jobs out of the queue for good; what came home of them stays.",
    "evict": "Take running jobs off their nodes; they go back into the queue and start again,\n"
    "elsewhere if they can, from their last checkpoint if they have one.",
}


def parser(name: str) -> Parser:
    if name == "set":
        return _set_parser()
    made = Parser(
        name,
        "RUN[.JOB]… | --all",
        _WORDS[name],
        [
            (f"headway {name} cifar10-3.0", "one job"),
            (f"headway {name} cifar10-3.0 cifar10-3.7", "two jobs"),
            (f"headway {name} cifar10-3", "all jobs of a run"),
            (f"headway {name} --all", "all jobs of all runs that are here"),
        ],
    )
    made.add_argument("address", nargs="*", metavar="RUN[.JOB]", help="which runs or jobs")
    made.flag("--all", help="all jobs of all runs that are here")
    made.set_defaults(call=partial(call, name))
    return made


def _set_parser() -> Parser:
    made = Parser(
        "set",
        "RUN[.JOB]… KEY=VALUE…",
        "Change what jobs in the queue ask for: memory, disk, cpus, gpus, time_limit and, where\n"
        "the pool has categories, duration (Medium or Long). It counts from the next start on: a\n"
        "held job still has to be released, and a running one goes on with what it has.",
        [
            ("headway set cifar10-3.0 memory=2GB", "one job"),
            ("headway set cifar10-3 memory=2GB disk=20GB", "all jobs of a run, two changes"),
            ("headway set cifar10-3.0 cifar10-3.7 gpus=2", "two jobs"),
            ("headway set cifar10-3 time_limit=12h", "more time for the command"),
        ],
    )
    made.add_argument(
        "address", nargs="*", metavar="RUN[.JOB] KEY=VALUE", help="which jobs, and what they get"
    )
    made.flag("--all", help="all jobs of all runs that are here")
    made.set_defaults(call=set_requests)
    return made


def set_requests(arguments: Namespace) -> int:
    """Change requests of jobs, and say from when on that counts."""
    from headway.api import Run
    from headway.cli.job_text import group_of
    from headway.cli.terminal import patience, print_json
    from headway.spec.errors import Wrong
    from headway.spec.override import parse_request

    wanted: list[NewRequest] = []
    for word in (word for word in arguments.address if "=" in word):
        try:
            wanted.append(parse_request(word))
        except Wrong as error:
            raise UsageError(f"headway set: {error.what}", remedy=error.remedy) from None
    keys = [each.key for each in wanted]
    if not wanted or len(set(keys)) < len(keys):
        raise UsageError(
            f"headway set: {'one key is there twice' if wanted else 'missing: KEY=VALUE'}",
            remedy="name each change once, such as `headway set cifar10-3.0 memory=2GB`",
        )
    arguments.address = [word for word in arguments.address if "=" not in word]
    results: list[dict[str, Any]] = []
    for folder, jobs in _chosen("set", arguments).items():
        run = Run(folder)
        states = run.jobs
        if jobs is None:
            jobs = [job for job, state in states.items() if not state.terminal]
        with patience(f"asking the pool of {folder.label}"):
            errors = _set(run, jobs, wanted)
        for job in jobs:
            state = group_of(states[job]) if job in states else ""
            told = {"run": folder.label, "job": job, "state": state}
            results.append({**told, "error": errors.get(job) or None})
    if arguments.json:
        changes = {each.key: each.value.strip('"') for each in wanted}
        print_json({"action": "set", "changes": changes, "results": results})
    else:
        _print_set(", ".join(each.words for each in wanted), results)
    return FAILED if any(result["error"] for result in results) else OK


def _set(run: Run, jobs: Sequence[int], wanted: Sequence[NewRequest]) -> dict[int, str]:
    """The errors by job; after the first one a job is not changed further."""
    limits = run.pool.limits()
    errors: dict[int, str] = {}
    for each in wanted:
        most = getattr(limits, each.key, None)
        scale = {"memory": 2**20, "disk": 2**10}.get(each.key, 1)
        if isinstance(most, int) and int(each.value) * scale > most:
            words = f"{each.words} is more than any place of {run.pool.name} has"
            return errors | dict.fromkeys(jobs, words)
    for each in wanted:
        left = [job for job in jobs if job not in errors]
        done = run.edit(left, each.attribute, each.value) if left else []
        errors |= {result.job: result.error for result in done if result.error}
    return errors


_THEN = {
    "held": "held: `headway release {}` starts with that",
    "running": "running: that counts from the next start on; `headway evict {}` brings it about",
}


def _print_set(words: str, results: Sequence[Mapping[str, Any]]) -> None:
    from headway.cli.terminal import paint, printable

    groups: defaultdict[tuple[str, str, str], list[int]] = defaultdict(list)
    for each in results:
        groups[each["run"], each["error"] or "", each["state"]].append(each["job"])
    for (label, error, state), jobs in groups.items():
        which = _which(label, jobs)
        if error:
            print(f"{paint('not set', 'red')} {which}: {printable(error)}")
            continue
        print(f"set {which}: {words}")
        if state in _THEN:
            print(f"  {_THEN[state].format(which if len(jobs) == 1 else label)}")
    if not results:
        print("there is no job to set")


def call(name: str, arguments: Namespace) -> int:
    from headway.api import Run
    from headway.cli.terminal import patience, print_json
    from headway.pool import Action

    action = Action(name)
    results: list[tuple[RunFolder, ActionResult]] = []
    for folder, jobs in _chosen(name, arguments).items():
        with patience(f"asking the pool of {folder.label}"):
            run = Run(folder)
            done = _act_on_all(run, action) if jobs is None else run.act(action, jobs)
            results += [(folder, result) for result in done]
    if arguments.json:
        print_json(
            {
                "action": name,
                "results": [
                    {"run": folder.label, "job": result.job, "error": result.error or None}
                    for folder, result in results
                ],
            }
        )
    else:
        _print(name, results)
    return FAILED if any(result.error for _, result in results) else OK


def _act_on_all(run: Run, action: Action) -> list[ActionResult]:
    """Act on those jobs of a run for which the action means something."""
    from headway.cli.job_text import group_of

    fitting = [job for job, state in run.jobs.items() if group_of(state) in _FITTING[action.value]]
    if run.pool.kind == "local":
        return run.act(action, fitting) if fitting else []
    # HTCondor may not have made all jobs yet, and those are not in the log.
    more = 0 < len(run.jobs) < run.folder.job.size
    # One request for the whole cluster, however many jobs.
    return run.act(action, None) if fitting or more else []


def _chosen(name: str, arguments: Namespace) -> dict[RunFolder, list[int] | None]:
    """The jobs asked for, by run; None: all of that run."""
    from headway.cli.address import find
    from headway.pool import Runs

    if arguments.all and arguments.address:
        raise UsageError(
            f"headway {name}: --all and {arguments.address[0]} do not go together",
            remedy="a run's label alone means all of its jobs",
        )
    if arguments.all:
        return dict.fromkeys(Runs.here())
    if not arguments.address:
        raise UsageError(
            f"headway {name}: which run or job?",
            remedy=f"name it, such as `headway {name} cifar10-3.0`, or say --all",
        )
    folders: dict[str, RunFolder] = {}
    jobs: dict[str, list[int] | None] = {}
    for text in arguments.address:
        address = find(text)
        key = str(address.folder.path)
        folders[key] = address.folder
        before = jobs.get(key, [])
        if address.job is None or before is None:
            jobs[key] = None
        elif address.job not in before:
            jobs[key] = [*before, address.job]
    return {folders[key]: chosen for key, chosen in jobs.items()}


def _print(name: str, results: Sequence[tuple[RunFolder, ActionResult]]) -> None:
    from headway.cli.terminal import paint, printable

    done: defaultdict[str, list[int]] = defaultdict(list)
    failed: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for folder, result in results:
        if result.error:
            failed[folder.label, result.error].append(result.job)
        else:
            done[folder.label].append(result.job)
    for label, jobs in done.items():
        print(f"{DONE[name]} {_which(label, jobs)}")
    for (label, error), jobs in failed.items():
        print(f"{paint(f'not {DONE[name]}', 'red')} {_which(label, jobs)}: {printable(error)}")
    if not results:
        print(f"there is no job to {name}")


def _which(label: str, jobs: Sequence[int]) -> str:
    return f"{label}.{jobs[0]}" if len(jobs) == 1 else f"{len(jobs):,} jobs of {label}"
