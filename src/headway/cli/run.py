"""`headway run`: from a job.toml to results, or to what stands in the way."""

from __future__ import annotations

import contextlib
import sys
from argparse import BooleanOptionalAction, Namespace
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from headway.cli.commands import FAILED, INTERRUPTED, OK, WRONG
from headway.cli.parser import Parser, UsageError
from headway.cli.terminal import near, paint, patience, print_json, printable
from headway.pool.lint.traps import LintFinding, Severity, errors_of, worst_first
from headway.text import many

if TYPE_CHECKING:
    from headway.api import Plan, Run
    from headway.cli.job_text import RunJobs
    from headway.pool.results import Survey


# What the checks before submit have found, for people and for programs.


_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.HINT: "cyan"}


def tell(findings: Sequence[LintFinding], as_json: bool) -> None:
    """Warnings and hints before a submit; errors come with the refusal."""
    lesser = [finding for finding in findings if finding.severity is not Severity.ERROR]
    if as_json:
        for finding in lesser:
            print_json({"type": "finding", **as_dict(finding)})
    else:
        print_findings(lesser)


def print_findings(findings: Sequence[LintFinding]) -> None:
    """All findings on stderr, the worst first, each with its remedy."""
    for severity, group in groupby(worst_first(findings), key=lambda finding: finding.severity):
        found = list(group)
        title = many(len(found), severity.value)
        print(paint(f"{title}:", _STYLES[severity], sys.stderr), file=sys.stderr)
        for finding in found:
            for number, line in enumerate(str(finding.problem).splitlines()):
                print(f"  {'' if not number else '  '}{printable(line)}", file=sys.stderr)


def as_dict(finding: LintFinding) -> dict[str, str]:
    return {
        "severity": finding.severity.value,
        "id": finding.id,
        "where": finding.where,
        "what": finding.what,
        "remedy": finding.remedy,
        "line": finding.line,
    }


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
    made.flag("--dry-run", help="print exactly what would be submitted")
    made.add_argument(
        "--strict",
        action=BooleanOptionalAction,
        help="refuse, or only warn of, what no slot of the pool could run; default: refuse unless"
        " other slots may come",
    )
    made.flag("--detach", help="submit, and do not watch")
    made.flag("--again", help="a new run, even if one of the same job has not ended")
    made.flag(
        "--only-missing",
        help="run only the jobs that have no verified output yet, and keep the others'",
    )
    made.flag("--no-heal", help="leave held jobs to their own retries; see `headway heal`")
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
    """As `headway.run` does it, and says what it is about to do."""
    from headway.api import Plan
    from headway.pool.results import MISSING, WAITS

    if arguments.only_missing and arguments.again:
        raise UsageError(
            "headway run: --only-missing and --again do not go together",
            remedy="--only-missing keeps the results that are there; without it all jobs run",
        )
    with patience("reading the job"):
        plan = Plan(
            arguments.job,
            pool=arguments.pool or "local",
            overrides=arguments.set,
            resources=arguments.resource,
        )
    found = None
    if arguments.only_missing:
        from headway.cli.run_summary import tell_missing

        with patience("looking for the results that are there"):
            found = plan.find_missing()
        tell_missing(found, plan.job, plan.runs, as_json=arguments.json, dry=arguments.dry_run)
        if not found.of(MISSING):
            return FAILED if found.of(WAITS) else OK
        plan.keep(found)
    with patience("looking for what could go wrong"):
        plan.check(arguments.strict)
    if arguments.dry_run:
        return _dry_run(plan, arguments.json, found)
    tell(plan.findings, arguments.json)
    with patience("packing the job's files"):
        run = plan.prepare(again=arguments.again)
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

    names = ("pool", "set", "resource", "dry_run", "again", "only_missing")
    given = ["JOB.TOML"] if arguments.job is not None else []
    given += [f"--{name.replace('_', '-')}" for name in names if getattr(arguments, name)]
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
        print(f"\ninterrupted; go on with `headway run --resume {run.label}`", file=sys.stderr)
        return INTERRUPTED
    if arguments.detach:
        return _detached(run, arguments.json)
    return _watch(run_jobs, arguments.json, heals=not arguments.no_heal)


def _detached(run: Run, as_json: bool) -> int:
    if as_json:
        print_json({"type": "submitted", "run": run.label, "cluster": run.folder.facts.cluster})
    else:
        print(f"{run.label} is submitted; {near(run.folder.path)} keeps what comes home")
        print(f"  watch it:   headway run --resume {run.label}")
        print(f"  its state:  headway status {run.label}")
    return OK


def _watch(run_jobs: RunJobs, as_json: bool, *, heals: bool) -> int:
    from headway.cli.run_summary import print_ending, summary
    from headway.cli.view import NoView, Watch, choose_view
    from headway.holds.heal import BackgroundHealer

    run = run_jobs.run
    # The local pool releases by itself what passes, and ends when there is no more for it to do.
    heal = BackgroundHealer(run.folder, run.pool) if heals and run.pool.kind != "local" else None
    watch = Watch(run, run_jobs, choose_view(run_jobs, as_json=as_json), heal)
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
        print_json({**summary(run, run_jobs), "left": sentence or None})
    else:
        print_ending(run, run_jobs)
        if sentence:
            print(sentence, file=sys.stderr)
    if sentence:
        return watch.exit_code
    return OK if run.succeeded() else FAILED


def _dry_run(plan: Plan, as_json: bool, found: Survey | None) -> int:
    from headway.cli.run_summary import document as missing_document

    folder, findings = plan.runs.next(plan.job.name), plan.findings
    text = plan.pool.describe(plan.job, folder, plan.base)
    if as_json:
        shown = {"folder": str(folder.path), "describe": text}
        document = {**shown, "findings": [as_dict(finding) for finding in findings]}
        print_json(
            document if found is None else {**document, "only_missing": missing_document(found)}
        )
    else:
        print_findings(findings)
        print(text, end="" if text.endswith("\n") else "\n")
    return WRONG if errors_of(findings) else OK
