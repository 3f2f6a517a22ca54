"""`headway run`: from a job.toml to results, or to what stands in the way."""

from __future__ import annotations

import contextlib
import sys
from argparse import BooleanOptionalAction, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headway.cli import FAILED, INTERRUPTED, OK, WRONG
from headway.cli.parser import Parser, UsageError

if TYPE_CHECKING:
    from headway.api import Run
    from headway.cli.board import Board
    from headway.pool.preflight.findings import Finding
    from headway.pool.results import Survey

POOLS = "local, local:cpus=4,simulate-gpus=2, htcondor, htcondor:schedd=NAME"


def parser(name: str) -> Parser:
    made = Parser(
        name,
        "JOB.TOML [--pool POOL] [--set K=V]… [--resource NAME=V]… [options]\n"
        "       headway run --resume RUN [options]",
        "Run the jobs that a job.toml describes and watch them until nothing more happens by\n"
        "itself. Ctrl-C on the local pool stops the jobs, to be resumed; on HTCondor they go on.",
        [
            ("headway run job.toml", "on this machine"),
            ("headway run job.toml --pool htcondor", "on the pool of this access point"),
            ("headway run job.toml --dry-run", "what would be submitted; makes nothing"),
            ("headway run job.toml --set count=3 --resource mem=8GB", "with changes"),
            ("headway run job.toml --pool local:cpus=4,simulate-gpus=2", "a share, with GPUs"),
            ("headway run job.toml --detach", "submit, and come back to it later"),
            (
                "headway run job.toml --only-missing",
                "what failed, and new rows",
            ),
            ("headway run --resume cifar10-3", "go on with a run that was stopped"),
        ],
    )
    made.add_argument("job", nargs="?", metavar="JOB.TOML", help="the job description")
    made.add_argument("--pool", metavar="POOL", help=f"where: {POOLS}; default: local")
    made.add_argument(
        "--set", action="append", default=[], metavar="K=V", help="change a key of job.toml"
    )
    made.add_argument(
        "--resource",
        action="append",
        default=[],
        metavar="NAME=V",
        help="ask for more or less: cpu, mem, disk, nvidia-gpu, gpu-mem",
    )
    made.add_argument(
        "--dry-run", action="store_true", help="print exactly what would be submitted"
    )
    made.add_argument(
        "--strict",
        action=BooleanOptionalAction,
        help="refuse, or only warn of, what no slot of the pool could run; default: refuse unless"
        " other slots may come",
    )
    made.add_argument("--detach", action="store_true", help="submit, and do not watch")
    made.add_argument(
        "--again", action="store_true", help="a new run, even if one of the same job has not ended"
    )
    made.add_argument(
        "--only-missing",
        action="store_true",
        help="run only the jobs that have no verified output yet, and keep the others'",
    )
    made.add_argument(
        "--no-heal",
        action="store_true",
        help="leave held jobs to their own retries; see `headway heal`",
    )
    made.add_argument("--resume", metavar="RUN", help="go on with a run, or watch it again")
    made.set_defaults(call=call)
    return made


def call(arguments: Namespace) -> int:
    if arguments.resume is not None:
        return _resume(arguments)
    if arguments.job is None:
        raise UsageError(
            "headway run: missing: JOB.TOML",
            remedy="`headway init SCRIPT` writes one; `headway run --help` has examples",
        )
    return _start(arguments)


def _start(arguments: Namespace) -> int:
    from headway.api import find_missing, prepare_run
    from headway.cli import results
    from headway.cli.findings import tell
    from headway.cli.show import patience
    from headway.pool import Runs, open_pool
    from headway.pool.preflight import preflight, raise_errors
    from headway.pool.results import KEPT, MISSING, WAITS, kept_text
    from headway.spec import load_job

    if arguments.only_missing and arguments.again:
        raise UsageError(
            "headway run: --only-missing and --again do not go together",
            remedy="--only-missing keeps the results that are there; without it all jobs run",
        )
    path = Path(arguments.job)
    base = path.absolute().parent
    with patience("reading the job"):
        job = load_job(path, overrides=arguments.set, resources=arguments.resource)
        runs = Runs.here()
        pool = open_pool(arguments.pool or "local", runs.root.parent)
    found, kept = None, ""
    if arguments.only_missing:
        with patience("looking for the results that are there"):
            found = find_missing(job, base, runs)
        results.tell(found, job, runs, as_json=arguments.json, dry=arguments.dry_run)
        if not found.of(MISSING):
            return FAILED if found.of(WAITS) else OK
        found.check_places(job, base)
        job, kept = found.missing_part(job), kept_text(found.of(KEPT))
    with patience("looking for what could go wrong"):
        findings = preflight(
            job,
            base,
            pool.limits(),
            pool=pool.kind,
            match=pool.match(job),
            strict=arguments.strict,
        )
    if arguments.dry_run:
        text = pool.describe(job, runs.next(job.name), base)
        return _dry_run(text, str(runs.next(job.name).path), findings, arguments.json, found)
    tell(findings, arguments.json)
    raise_errors(findings)
    with patience("packing the job's files"):
        run = prepare_run(job, base, pool, runs=runs, again=arguments.again, kept=kept)
    if run.folder.facts.cluster is not None:
        print(
            f"{run.label} is this very job and has not ended: going on with it"
            " (--again starts another)",
            file=sys.stderr,
        )
    return _go(run, arguments)


def _resume(arguments: Namespace) -> int:
    from headway.api import Run
    from headway.cli.address import find_run

    given = ["JOB.TOML"] if arguments.job is not None else []
    given += ["--pool"] if arguments.pool is not None else []
    given += ["--set"] if arguments.set else []
    given += ["--resource"] if arguments.resource else []
    given += ["--dry-run"] if arguments.dry_run else []
    given += ["--again"] if arguments.again else []
    given += ["--only-missing"] if arguments.only_missing else []
    given += ["--strict"] if arguments.strict is not None else []
    if given:
        raise UsageError(
            f"headway run: {given[0]} and --resume do not go together",
            remedy="a run is resumed as it was submitted; start a new one to change something",
        )
    folder = find_run(arguments.resume)
    folder.check_own()
    return _go(Run(folder), arguments)


def _go(run: Run, arguments: Namespace) -> int:
    """Submit, and watch unless told otherwise."""
    from headway.cli.board import Board
    from headway.cli.show import patience, print_json

    if arguments.detach and hasattr(run.pool, "detached"):
        run.pool.detached = True
    board = Board(run)
    if arguments.json:
        facts = {"type": "run", "run": run.label, "pool": run.pool.kind, "jobs": board.size}
        print_json({**facts, "folder": str(run.folder.path)})
    try:
        if not run.settled():
            with patience(f"submitting {run.label}"):
                run.pool.submit(run.folder)
    except KeyboardInterrupt:
        print(f"\ninterrupted; go on with `headway run --resume {run.label}`", file=sys.stderr)
        return INTERRUPTED
    if arguments.detach:
        return _detached(run, arguments.json)
    return _watch(board, arguments.json, heals=not arguments.no_heal)


def _detached(run: Run, as_json: bool) -> int:
    from headway.cli.show import near, print_json

    if as_json:
        print_json({"type": "submitted", "run": run.label, "cluster": run.folder.facts.cluster})
    else:
        print(f"{run.label} is submitted; {near(run.folder.path)} keeps what comes home")
        print(f"  watch it:   headway run --resume {run.label}")
        print(f"  its state:  headway status {run.label}")
    return OK


def _watch(board: Board, as_json: bool, *, heals: bool) -> int:
    from headway.cli.ending import print_ending, summary
    from headway.cli.lines import NoView
    from headway.cli.show import print_json
    from headway.cli.watch import Watch, choose_view
    from headway.heal.inside import Inside

    run = board.run
    # The local pool releases by itself what passes, and ends when there is no more for it to do.
    heal = Inside(run.folder, run.pool) if heals and run.pool.kind != "local" else None
    watch = Watch(run, board, choose_view(board, as_json=as_json), heal)
    sentence = ""
    try:
        with contextlib.closing(watch.view), contextlib.ExitStack() as stack:
            if heal is not None:
                stack.enter_context(contextlib.closing(heal))
            if not watch.until_settled():
                sentence = watch.leave()
    except BrokenPipeError:
        watch.view = NoView()
        print(watch.leave(), file=sys.stderr)
        raise
    if as_json:
        print_json({**summary(run, board), "left": sentence or None})
    else:
        print_ending(run, board)
        if sentence:
            print(sentence, file=sys.stderr)
    if sentence:
        return watch.exit_code
    return OK if run.succeeded() else FAILED


def _dry_run(
    text: str,
    folder: str,
    findings: Sequence[Finding],
    as_json: bool,
    found: Survey | None = None,
) -> int:
    from headway.cli import results
    from headway.cli.findings import as_dict, print_findings
    from headway.cli.show import print_json

    if as_json:
        document = {"folder": folder, "describe": text, "findings": [as_dict(f) for f in findings]}
        print_json(
            document if found is None else {**document, "only_missing": results.document(found)}
        )
    else:
        print_findings(findings)
        print(text, end="" if text.endswith("\n") else "\n")
    return OK if not any(f.severity == "error" for f in findings) else WRONG
