"""`headway status`: the jobs of a run, from its event log alone."""

from __future__ import annotations

import time
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from headway.cli import OK
from headway.cli.parser import Parser

if TYPE_CHECKING:
    from headway.cli.board import Board
    from headway.events import JobState

MOST = 200  # rows, unless all are asked for


def parser(name: str) -> Parser:
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
    made.add_argument(
        "--all", action="store_true", help=f"every job, also where there are more than {MOST}"
    )
    made.add_argument(
        "--results",
        action="store_true",
        help="where each job's outputs are, those kept from other runs included",
    )
    made.set_defaults(call=call)
    return made


def call(arguments: Namespace) -> int:
    from headway.api import Run
    from headway.cli.address import find
    from headway.cli.board import Board
    from headway.cli.log_status import are_logs
    from headway.cli.show import patience, print_json

    if are_logs(arguments.address):
        return _call_on_logs(arguments)
    address = find(next(iter(arguments.address), None))
    if arguments.results:
        from headway.cli import results

        with patience("looking for the outputs"):
            found = Run(address.folder).results()
        results.print_results(address.folder, found, as_json=arguments.json)
        return OK
    with patience("reading the event log"):
        board = Board(Run(address.folder))
    if arguments.json:
        print_json(document(board, address.job))
    elif address.job is not None:
        _print_job(board, address.job)
    else:
        _print_run(board, arguments.all)
    return OK


def _call_on_logs(arguments: Namespace) -> int:
    from headway.cli import log_status
    from headway.cli.show import patience, print_json

    with patience("reading the event logs"):
        most = None if arguments.all or arguments.json else MOST
        found = log_status.read_jobs(arguments.address, most)
    if arguments.json:
        print_json(log_status.document(found))
    else:
        log_status.print_jobs(found, most)
    return OK


def document(board: Board, job: int | None = None) -> dict[str, Any]:
    """What `--json` prints."""

    from headway.pool.results import read_kept

    run = board.run
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
        "jobs": board.size,
        "counts": board.counts,
        "settled": run.settled(),
        "lost": bool(run.lost()),
        "kept": [each.as_dict() for each in read_kept(run.folder)],
        "states": [board.document(state) for state in chosen],
    }


def _print_run(board: Board, everything: bool) -> None:
    from headway.cli.ending import print_trouble, results_words
    from headway.cli.results import print_kept
    from headway.cli.show import paint
    from headway.cli.states import print_states
    from headway.cli.words import count_words, nobody_runs

    run = board.run
    kind = run.folder.facts.pool["kind"]
    if not run.submitted:
        print(f"{paint(run.label, 'bold')} on {kind}: not submitted")
        print(f"submit it with `headway run --resume {run.label}`")
        print_kept(run)
        return
    print(f"{paint(run.label, 'bold')} on {kind}: {count_words(board.counts)}")
    states = board.first(board.size if everything else MOST)
    if states:
        print_states(states, lambda state: f"{run.label}.{state.proc}", time.time(), row=board.row)
    hidden = board.size - len(states)
    if hidden > 0 and states:
        print(f"… and {hidden:,} more; --all shows them")
    print_trouble(run, board)
    if run.lost():
        print(nobody_runs(run.label))
    if board.counts["succeeded"]:
        print(f"results: {results_words(run)}")
    print_kept(run)


def _print_job(board: Board, job: int) -> None:
    from headway.cli.ending import cause
    from headway.cli.show import near, paint, printable
    from headway.cli.words import next_step, state_word

    run = board.run
    state = run.jobs.get(job)
    print(f"{paint(board.name(job), 'bold')} ", end="")
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
    from headway.cli.words import elapsed_words, fetching_words, progress_words

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
