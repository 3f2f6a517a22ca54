"""`headway deliveries`: outputs that are not home yet, why, and how to send or give them up."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headway.cli.commands import FAILED, OK
from headway.cli.parser import Parser, UsageError
from headway.cli.terminal import moment, paint, patience, print_json, print_stderr, print_table
from headway.text import ordinal, printable

if TYPE_CHECKING:
    from headway.api import Run
    from headway.pool.deliveries import Delivery
    from headway.pool.htcondor.pool import HTCondorPool

_STYLES = {"failed": "red", "damaged": "red", "held": "yellow", "coming": "cyan", "again": "dim"}
_DONE = {"retry": "not sent", "drop": "not dropped"}


def parser(name: str) -> Parser:
    made = Parser(
        name,
        call,
        "[RUN|RUN.JOB…] [--retry | --drop [--remove]]",
        "List the outputs that wait in the stores of nodes, or are on their way home: how much, how"
        " old, and what they wait for. That is known from the run folders. Where the queue and the"
        " collector answer, they add why no courier has started. --retry has a held courier try"
        " again at once, and sends another one for a job whose courier has failed. --drop gives the"
        " outputs up, so that their job computes them again. What has arrived here is never"
        " touched.",
        [
            ("headway deliveries", "what waits, in all runs that are here"),
            ("headway deliveries scan-2", "in that run"),
            ("headway deliveries --retry scan-2.3", "try again now"),
            ("headway deliveries --retry scan-2", "the same for all of its jobs that need it"),
            ("headway deliveries --drop scan-2.3", "compute it again, do not wait any longer"),
            ("headway deliveries --drop --remove scan-2.3", "give the job up, too"),
        ],
    )
    text = "runs or jobs; default: all runs that are here"
    made.argument("address", "RUN|RUN.JOB", text, nargs="*")
    which = made.add_mutually_exclusive_group()
    text = "release held couriers, and send another one where the last has failed"
    which.add_argument("--retry", action="store_true", help=text)
    text = "give up what is in the store: the job computes it again"
    which.add_argument("--drop", action="store_true", help=text)
    made.flag("--remove", "with --drop: take the job out of the queue instead")
    return made


def call(arguments: Namespace) -> int:
    action = "retry" if arguments.retry else "drop" if arguments.drop else ""
    if arguments.remove and action != "drop":
        raise UsageError("--remove goes with --drop", "`headway remove` takes other jobs out")
    if action and not arguments.address:
        example = f"name it, such as `headway deliveries --{action} scan-2.3`"
        raise UsageError("which run or job?", example)
    chosen = _chosen(arguments.address)
    for run in chosen if action else ():
        run.folder.check_own()
    notes: list[str] = []
    with patience("asking the queue and the collector"):
        found = [
            each
            for run, jobs in chosen.items()
            for each in _deliveries(run, notes)
            if jobs is None or each.job in jobs
        ]
    if action:
        return _act(arguments, action, chosen, found, notes)
    if arguments.json:
        print_json({"deliveries": [each.as_dict() for each in _ordered(found)], "notes": notes})
    else:
        _print(_ordered(found), notes)
    return OK


def _chosen(words: Sequence[str]) -> dict[Run, set[int] | None]:
    """The runs, and which of their jobs; None: all."""
    from headway.api import Run
    from headway.cli.address import find
    from headway.pool import Runs

    if not words:
        return {Run(folder): None for folder in Runs.here() if _delivers(folder)}
    runs: dict[str, Run] = {}
    jobs: dict[str, set[int] | None] = {}
    for address in map(find, words):
        label = str(address.folder.path)
        runs.setdefault(label, Run(address.folder))
        known = jobs.setdefault(label, set())
        if known is not None:
            jobs[label] = None if address.job is None else known | {address.job}
    return {run: jobs[label] for label, run in runs.items()}


def _delivers(folder: Any) -> bool:
    """Whether outputs of a run may go home later; one that cannot be read has none to show."""
    from headway.errors import HeadwayError

    try:
        return bool(folder.job.deliver == "later")
    except HeadwayError:
        return False


def _deliveries(run: Run, notes: list[str]) -> list[Delivery]:
    """The deliveries of a run, with what its pool knows of them if it answers."""
    from headway.errors import PoolError
    from headway.pool.deliveries import explained, find_deliveries, nodes_of
    from headway.pool.htcondor.pool import HTCondorPool

    now = time.time()
    found = find_deliveries(run.folder, run.jobs, run.damaged(), now)
    pool = run.pool
    if not found or not isinstance(pool, HTCondorPool):
        return found
    try:
        facts = pool.deliveries(run.folder)
    except PoolError as error:
        notes.append(f"the queue was not asked: {error.message}")
        return found
    try:
        facts = replace(facts, slots=pool.slots_of(list(nodes_of(found))))
    except PoolError as error:
        notes.append(f"the collector was not asked: {error.message}")
    return [explained(each, facts, now) for each in found]


def _ordered(found: Sequence[Delivery]) -> list[Delivery]:
    from headway.pool.deliveries import in_order

    return in_order(found)


def _print(found: Sequence[Delivery], notes: Sequence[str]) -> None:
    from headway.pool.deliveries import Stage

    for note in dict.fromkeys(notes):
        print_stderr(printable(note))
    if not found:
        print("no outputs wait for their delivery")
        return
    now = time.time()
    titles = ("job", "state", "size", "files", "at", "age", "why")
    rows = [_cells(each, now) for each in found]
    print_table(titles, rows, [_STYLES.get(each.stage.value, "") for each in found])
    hints = {
        "to try again now: headway deliveries --retry {}": (Stage.HELD, Stage.FAILED),
        "to compute it again: headway deliveries --drop {}": (Stage.WAITS, Stage.HELD),
        "to compute it again: headway run JOB.TOML --only-missing": (Stage.DAMAGED,),
    }
    for hint, stages in hints.items():
        first = next((each for each in found if each.stage in stages), None)
        if first is not None:
            print(hint.format(first.name))


def _cells(one: Delivery, now: float) -> list[str]:
    from headway.spec import format_size

    return [
        one.name,
        one.stage.value,
        "" if one.bytes is None else format_size(one.bytes),
        "" if one.files is None else f"{one.files:,}",
        printable(one.where),
        "" if one.since is None else _age(now - one.since),
        printable(why(one, now)),
    ]


def _age(seconds: float) -> str:
    """How long something waits: after some minutes, whole minutes will do."""
    from headway.spec import format_duration

    whole = max(0, int(seconds))
    return format_duration(whole - whole % 60 if whole >= 600 else whole)


def why(one: Delivery, now: float) -> str:
    """What a delivery waits for, or what is wrong with it."""
    from headway.pool.deliveries import Stage
    from headway.spec import format_size

    parts = [f"{ordinal(one.place)} in line"] if one.place else []
    if one.courier_since is not None:
        parts.append(f"courier since {moment(one.courier_since, now)}")
        for rate, words in ((one.rate, "sends at"), (one.rate_before, "earlier ones came at")):
            if rate:
                parts.append(f"{words} {format_size(round(rate))}/s")
                break
    parts.append(one.why)
    if one.stage is Stage.HELD and one.released is not None:
        parts.append(f"released by itself at {moment(one.released, now)}")
    elif one.stage is Stage.HELD:
        parts.append("not released by itself")
    if one.stage is Stage.WAITS and one.deadline is not None:
        left = max(0, int(one.deadline - now))
        parts.append(f"else computed again in {_age(left)}" if left else "too late")
    if one.stage is Stage.FAILED and one.kept_until is not None:
        parts.append(f"kept there until {moment(one.kept_until, now)}")
    return "; ".join(filter(None, parts))


# -- retry and drop: each returns what was done, and why it could not be done


def _act(
    arguments: Namespace,
    action: str,
    chosen: Mapping[Run, set[int] | None],
    found: Sequence[Delivery],
    notes: Sequence[str],
) -> int:
    from headway.errors import PoolError

    results = []
    for run, jobs in chosen.items():
        mine = {each.job: each for each in found if each.run == run.label}
        wanted = sorted(mine if jobs is None else jobs)
        for job in wanted:
            done, error = "", _nothing_waits(run, job)
            if job in mine:
                do = (
                    _retry if action == "retry" else _drop_and_remove if arguments.remove else _drop
                )
                try:
                    done, error = do(run, mine[job])
                except PoolError as refusal:
                    done, error = "", refusal.message
            if jobs is not None or done or not _is_well(mine[job], action):
                results.append({"run": run.label, "job": job, "done": done, "error": error or None})
    if arguments.json:
        print_json({"action": action, "results": results, "notes": list(notes)})
    else:
        for note in dict.fromkeys(notes):
            print_stderr(printable(note))
        for each in results:
            name = f"{each['run']}.{each['job']}"
            if each["error"]:
                print(f"{paint(_DONE[action], 'red')} {name}: {printable(str(each['error']))}")
            else:
                print(f"{name}: {printable(str(each['done']))}")
        if not results:
            print(f"there is nothing to {action}")
    return FAILED if any(each["error"] for each in results) else OK


def _is_well(one: Delivery, action: str) -> bool:
    """Whether a delivery of a run that was named as a whole needs nothing done."""
    from headway.pool.deliveries import Stage

    return one.stage in (Stage.COMING, Stage.AGAIN) or (
        action == "retry" and one.stage is Stage.WAITS
    )


def _nothing_waits(run: Run, job: int) -> str:
    from headway.cli.job_text import state_word

    state = run.jobs.get(job)
    if state is None:
        return "it is not in the event log yet"
    if state.delivered is not None:
        return "its outputs are home"
    return f"nothing of it waits in a store: it is {state_word(state)}"


def _retry(run: Run, one: Delivery) -> tuple[str, str]:
    from headway.pool.deliveries import Stage

    if one.stage is Stage.HELD and one.why.startswith("DAGMan"):
        return "", f"{one.why}; `condor_release {run.folder.facts.cluster}` lets it go on"
    if one.stage is Stage.HELD:
        return _result(run.release, one, f"released: a courier may bring {_amount(one)} now")
    if one.stage is Stage.COMING:
        return "", "a courier is at work"
    if one.stage is Stage.AGAIN:
        return "", "its outputs are being computed again"
    if one.stage is Stage.WAITS:
        return "", f"its courier waits already: {why(one, time.time())}"
    if not run.folder.dag.exists():
        return "", f"it was its own courier and has left the queue; {_COMPUTE}"
    failed = run.jobs[one.job].undelivered
    sent = _condor(run).send_courier(run.folder, one.job, failed=failed)
    return f"another courier is in the queue, as {sent}, for {_amount(one)}", ""


def _drop(run: Run, one: Delivery) -> tuple[str, str]:
    from headway.node.host import SINCE
    from headway.pool.deliveries import Stage

    if problem := _cannot_drop(one):
        return "", problem
    done = f"{_amount(one)} are given up; it computes them again"

    def edit(jobs: Sequence[int]) -> Any:
        return run.edit(jobs, SINCE, "undefined")

    made, error = _result(edit, one, done)
    if not error and one.stage is Stage.HELD:
        made, error = _result(run.release, one, f"{done}, released from its hold")
    return made, error


def _drop_and_remove(run: Run, one: Delivery) -> tuple[str, str]:
    if problem := _cannot_drop(one):
        return "", problem
    return _result(run.remove, one, f"removed from the queue; {_amount(one)} are given up")


def _cannot_drop(one: Delivery) -> str:
    """Why what is in the store cannot be given up; empty if it can."""
    from headway.pool.deliveries import Stage

    if one.stage is Stage.COMING:
        return f"a courier is bringing them; to stop it first: headway hold {one.name}"
    if one.stage is Stage.AGAIN:
        return "its outputs are being computed again"
    if one.stage is Stage.DAMAGED:
        return f"it is not in the queue; {_COMPUTE}"
    if one.stage is Stage.FAILED:
        return f"it has left the queue; {_COMPUTE}"
    return "" if not one.why.startswith("DAGMan") else one.why


_COMPUTE = "`headway run JOB.TOML --only-missing` computes it again"


def _result(act: Callable[[Sequence[int]], Any], one: Delivery, done: str) -> tuple[str, str]:
    """Do something to the job in the queue."""
    (answer,) = act([one.job])
    return ("", answer.error) if answer.error else (done, "")


def _amount(one: Delivery) -> str:
    from headway.spec import format_size

    size = "its outputs" if one.bytes is None else format_size(one.bytes)
    return f"{size} at {one.where}"


def _condor(run: Run) -> HTCondorPool:
    from headway.pool.htcondor.pool import HTCondorPool

    pool = run.pool
    assert isinstance(pool, HTCondorPool)  # others have no couriers
    return pool
