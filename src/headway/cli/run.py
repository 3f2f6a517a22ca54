"""`headway run`: run the jobs of a job.toml and watch them until they end."""

from __future__ import annotations

import contextlib
from argparse import BooleanOptionalAction, Namespace
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from headway.cli.commands import FAILED, INTERRUPTED, OK, WRONG
from headway.cli.parser import Parser, UsageError
from headway.cli.terminal import StopSignal, near, patience, print_json, print_stderr
from headway.pool.lint.traps import LintFinding, Severity, errors_of, worst_first
from headway.text import many, printable

if TYPE_CHECKING:
    from headway.api import Run, Submission
    from headway.cli.job_text import RunJobs
    from headway.pool import Pool
    from headway.pool.results import Results

_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.HINT: "cyan"}


def print_findings(findings: Sequence[LintFinding]) -> None:
    """Print all findings on stderr, the worst first, each with its remedy."""
    for severity, group in groupby(worst_first(findings), key=lambda finding: finding.severity):
        found = list(group)
        print_stderr(f"{many(len(found), severity.value)}:", _STYLES[severity])
        for finding in found:
            for number, line in enumerate(str(finding.problem).splitlines()):
                print_stderr(f"  {'  ' if number else ''}{printable(line)}")


def finding_document(finding: LintFinding) -> dict[str, str]:
    """A finding for programs."""
    return {
        "severity": finding.severity.value,
        "id": finding.id,
        "where": finding.where,
        "what": finding.what,
        "remedy": finding.remedy,
        "line": finding.line,
    }


def parser(name: str) -> Parser:
    made = Parser(
        name,
        call,
        "JOB.TOML [--pool POOL] [--set K=V]… [--resource NAME=V]… [options]\n"
        "       headway run --resume RUN [options]",
        "Run the jobs that a job.toml describes, and watch them until all have ended or are held"
        " for good. Ctrl-C stops jobs on the local pool, and --resume continues them later. Jobs on"
        " HTCondor keep running after Ctrl-C.",
        [
            ("headway run job.toml", "on this machine"),
            ("headway run job.toml --pool htcondor", "on the pool of this access point"),
            ("headway run job.toml --dry-run", "show what would be submitted"),
            ("headway run job.toml --set count=3 --resource mem=8GB", "with changes"),
            ("headway run job.toml --pool local:cpus=4,simulate-gpus=2", "with 4 CPUs and 2 GPUs"),
            ("headway run job.toml --detach", "submit, and watch later"),
            ("headway run job.toml --only-missing", "only failed jobs and new rows"),
            ("headway run --resume cifar10-3", "continue a run that was stopped"),
        ],
    )
    made.argument("job", "JOB.TOML", "the job description", nargs="?")
    pools = "local, local:cpus=4,simulate-gpus=2, htcondor or htcondor:schedd=NAME"
    made.option("--pool", "POOL", f"where to run: {pools}; default: local")
    made.job_options()
    made.add_argument(
        "--deliver",
        choices=("now", "later"),
        help="bring outputs home with their job, or later, so that its slot is free at once",
    )
    made.flag("--dry-run", "print exactly what would be submitted, and submit nothing")
    made.add_argument(
        "--strict",
        action=BooleanOptionalAction,
        help="refuse jobs that no slot of the pool could run, or only warn; default: refuse unless"
        " the pool may get other slots",
    )
    made.flag("--detach", "submit the jobs, and do not watch them")
    made.flag("--again", "start a new run, even if one of the same job has not ended")
    text = "run only the jobs that have no verified output yet, and keep the other results"
    made.flag("--only-missing", text)
    made.flag("--no-heal", "leave held jobs to their own retries; see `headway heal`")
    made.option("--resume", "RUN", "continue a run that was stopped, or watch a run again")
    return made


def call(arguments: Namespace) -> int:
    if arguments.resume is not None:
        return _resume(arguments)
    if arguments.job is None:
        remedy = "`headway init SCRIPT` writes one; `headway run --help` has examples"
        raise UsageError("missing: JOB.TOML", remedy)
    if arguments.only_missing and arguments.again:
        raise UsageError(
            "--only-missing and --again do not go together",
            "--only-missing keeps the results that are there; without it all jobs run",
        )
    return _start(arguments)


def _start(arguments: Namespace) -> int:
    from headway.pool import Runs, open_pool

    pool = open_pool(arguments.pool or "local", Runs.here().root.parent)
    if arguments.dry_run:
        return _plan(pool, arguments)
    with pool.beginning():
        return _plan(pool, arguments)


def _plan(pool: Pool, arguments: Namespace) -> int:
    """The same as `headway.run`, with messages between the steps."""
    from headway.api import plan_run
    from headway.pool.results import WAITS

    as_json = arguments.json

    def tell(planned: Submission, results: Results) -> None:
        from headway.cli.run_summary import print_missing

        print_missing(results, planned, as_json=as_json, dry=arguments.dry_run)

    planned = plan_run(
        arguments.job,
        pool=pool,
        overrides=[
            *arguments.set,
            *([f"deliver={arguments.deliver}"] if arguments.deliver else []),
        ],
        resources=arguments.resource,
        only_missing=arguments.only_missing,
        strict=arguments.strict,
        step=patience,
        on_results=tell,
    )
    if planned.results is not None and not planned.is_needed:
        return FAILED if planned.results.of(WAITS) else OK
    if arguments.dry_run:
        return _dry_run(planned, as_json)
    # Errors come with the refusal.
    lesser = [finding for finding in planned.findings if finding.severity is not Severity.ERROR]
    if as_json:
        for finding in lesser:
            print_json({"type": "finding", **finding_document(finding)})
    else:
        print_findings(lesser)
    with patience("packing the job's files"):
        run = planned.prepare(again=arguments.again)
    if run.folder.facts.cluster is not None:
        what = f"{run.label} is this very job and has not ended"
        print_stderr(f"{what}: going on with it (--again starts another)")
    return _submit(run, arguments)


def _dry_run(planned: Submission, as_json: bool) -> int:
    folder, findings = planned.runs.next(planned.job.name), planned.findings
    text = planned.pool.describe(planned.job, folder, planned.base)
    if as_json:
        from headway.cli.run_summary import missing_document

        document = {"folder": str(folder.path), "describe": text}
        shown = {**document, "findings": [finding_document(finding) for finding in findings]}
        results = planned.results
        print_json({**shown, **({"only_missing": missing_document(results)} if results else {})})
    else:
        print_findings(findings)
        print(text, end="" if text.endswith("\n") else "\n")
    return WRONG if errors_of(findings) else OK


def _resume(arguments: Namespace) -> int:
    from headway.api import Run
    from headway.cli.address import find_run

    names = ("pool", "set", "resource", "deliver", "dry_run", "again", "only_missing")
    given = ["JOB.TOML"] if arguments.job is not None else []
    given += [f"--{name.replace('_', '-')}" for name in names if getattr(arguments, name)]
    given += ["--strict"] if arguments.strict is not None else []
    if given:
        raise UsageError(
            f"{given[0]} and --resume do not go together",
            "a run is resumed as it was submitted; start a new one to change something",
        )
    folder = find_run(arguments.resume)
    folder.check_own()
    return _submit(Run(folder), arguments)


def _submit(run: Run, arguments: Namespace) -> int:
    """Submit the jobs, and watch them unless --detach is given."""
    from headway.cli.job_text import RunJobs

    if arguments.detach and hasattr(run.pool, "detached"):
        run.pool.detached = True
    run_jobs = RunJobs(run)
    if arguments.json:
        facts = {"type": "run", "run": run.label, "pool": run.pool.kind, "jobs": run_jobs.size}
        print_json({**facts, "folder": str(run.folder.path)})
    try:
        with patience(f"submitting {run.label}"):
            run.submit()
    except KeyboardInterrupt:
        print_stderr(f"\ninterrupted; go on with `headway run --resume {run.label}`")
        return INTERRUPTED
    if not arguments.detach:
        return _watch(run_jobs, arguments.json, heals=not arguments.no_heal)
    if arguments.json:
        print_json({"type": "submitted", "run": run.label, "cluster": run.folder.facts.cluster})
    else:
        print(f"{run.label} is submitted; its results will be in {near(run.folder.path)}")
        print(f"  watch it:   headway run --resume {run.label}")
        print(f"  its state:  headway status {run.label}")
    return OK


def _watch(run_jobs: RunJobs, as_json: bool, *, heals: bool) -> int:
    stop = StopSignal()
    with stop.listening():  # the jobs may run already while these modules are loaded
        from headway.cli.run_summary import print_ending, summary
        from headway.cli.view import RunView, RunWatcher, choose_view

        run, heal = run_jobs.run, None
        # The local pool releases transient holds itself, and ends when it has nothing more to do.
        if heals and run.pool.kind != "local":
            from headway.holds.heal import BackgroundHealer

            heal = BackgroundHealer(run.folder, run.pool)
        watcher = RunWatcher(run_jobs, choose_view(run_jobs, as_json=as_json), heal, stop)
    left = ""
    try:
        with contextlib.closing(watcher.view), contextlib.ExitStack() as stack:
            if heal is not None:
                stack.enter_context(contextlib.closing(heal))
            if not watcher.until_settled():
                left = watcher.leave()
    except BrokenPipeError:
        watcher.view = RunView()
        print_stderr(watcher.leave())
        raise
    if as_json:
        print_json({**summary(run, run_jobs), "left": left or None})
    else:
        print_ending(run, run_jobs)
        if left:
            print_stderr(left)
    if left:
        return stop.exit_code
    for job, fault in run.damaged().items():
        remedy = "`headway run --only-missing` computes it again"
        print_stderr(f"{run.label}.{job}: what came home is not what it made: {fault}; {remedy}")
    return OK if run.succeeded() else FAILED
