"""`headway wrap` and `headway plugin`: for jobs that an HTCondor submit file describes."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from headway.cli.commands import OK, WRONG
from headway.cli.parser import Parser
from headway.cli.terminal import near, print_json, print_stderr

if TYPE_CHECKING:
    from headway.pool.lint.wrap import Wrapped

_PLUGIN = "headway-plugin"


def parser(name: str) -> Parser:
    """The parser of `headway wrap`, or of `headway plugin`."""
    if name == "plugin":
        made = Parser(
            name,
            plugin,
            "[-o FILE]",
            "Write HTCondor's file-transfer plugin: one file that needs only Python 3.9. An"
            " administrator names it in FILETRANSFER_PLUGINS. On a pool without it, a job brings it"
            " along in transfer_plugins. Large inputs belong in job.toml instead: there, no timeout"
            " of HTCondor ends their transfer.",
            [
                ("headway plugin", f"writes {_PLUGIN}"),
                ("headway plugin -o /usr/local/libexec/headway-plugin", "for a whole pool"),
            ],
        )
        made.option("-o", "--to", "FILE", f"where to write it; default: {_PLUGIN}", default=_PLUGIN)
        return made
    made = Parser(
        name,
        call,
        "JOB.SUB [--check] [-o FILE] [--overwrite]",
        "Write a copy of an HTCondor submit file with the lines that let Headway follow and heal"
        " its jobs. Every line of the original stays as it is. If there are URLs among the inputs,"
        " Headway's agent fetches them and then starts your executable; the agent is written next"
        " to the copy. headway wrap also warns about what is risky in the submit file and in its"
        " scripts; with --check it does only that.",
        [
            ("headway wrap train.sub", "writes train.headway.sub, and shows the difference"),
            ("headway wrap train.sub --check", "what could go wrong; exit code 2 on errors"),
            ("headway wrap train.sub -o other.sub", "to another file"),
            ("headway wrap train.sub -o -", "to stdout"),
        ],
    )
    made.argument("file", "JOB.SUB", "the submit file")
    made.flag("--check", "only show what is risky; write nothing")
    text = "where to write; -: stdout; default: JOB.headway.sub"
    made.option("-o", "--to", "FILE", text)
    made.flag("--overwrite", "replace a file that is there already")
    return made


def call(arguments: Namespace) -> int:
    from headway.cli.run import finding_document, print_findings
    from headway.pool.lint.wrap import risks_left, wrap_file

    path = Path(arguments.file)
    if arguments.check:
        return _check(path, arguments.json)
    target, text = None, {}
    if arguments.to == "-":
        wrapped = _wrap_text(path)
        text = {"text": wrapped.text}
    else:
        to = Path(arguments.to) if arguments.to else None
        target, wrapped = wrap_file(path, to, overwrite=arguments.overwrite)
    risks = risks_left(wrapped, path)
    if arguments.json:
        document = {"file": str(path), "written": str(target) if target else None}
        lists = {"added": list(wrapped.added), "notes": list(wrapped.notes)}
        findings = [finding_document(finding) for finding in risks]
        print_json({**document, **lists, "findings": findings, **text})
        return OK
    if target is not None:
        print(wrapped.diff(path.name, target.name), end="", flush=True)
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(wrapped.text.encode("utf-8", errors="surrogateescape"))
        sys.stdout.flush()
    print_findings(risks)
    for note in wrapped.notes:
        print_stderr(f"note: {note}")
    if target is not None:
        print_stderr(f"wrote {near(target)}; submit it with: condor_submit {near(target)}")
    return OK


def _check(path: Path, as_json: bool) -> int:
    from headway.cli.run import finding_document, print_findings
    from headway.pool.lint.risks import file_risks
    from headway.pool.lint.traps import errors_of

    findings = file_risks(path)
    if as_json:
        print_json(
            {"file": str(path), "findings": [finding_document(finding) for finding in findings]}
        )
    elif findings:
        print_findings(findings)
    else:
        print(f"{path}: nothing risky found")
    return WRONG if errors_of(findings) else OK


def _wrap_text(path: Path) -> Wrapped:
    """Wrap without writing; for URLs to be staged in, the agent must be there already."""
    from headway.node.plan import AGENT
    from headway.pool.lint.queue_view import submit_folder
    from headway.pool.lint.submit_file import read, read_text
    from headway.pool.lint.wrap import wrap

    text = read_text(path)
    agent = path.with_name(f"{path.stem}.{AGENT}").absolute()
    if not agent.exists():
        return wrap(text, path.stem)
    base = submit_folder(read(text), path.parent, Path())
    beside = agent.parent == base.absolute()
    return wrap(text, path.stem, base=base, agent=None if beside else agent.as_posix())


def plugin(arguments: Namespace) -> int:
    from headway.node.plugin import METHODS

    target = Path(arguments.to)
    write_plugin(target)
    if arguments.json:
        print_json({"path": str(target), "methods": list(METHODS)})
        return OK
    shown = near(target.absolute())
    print(f"wrote {shown}")
    print(f"  for a pool:  FILETRANSFER_PLUGINS = $(FILETRANSFER_PLUGINS), {target.absolute()}")
    print(f"  for a job:   transfer_plugins = osdf,https={shown}")
    return OK


def write_plugin(target: Path) -> None:
    """Write the plugin atomically, and never over a file that is not one."""
    from headway.errors import HeadwayError
    from headway.pool.program import build_agent, is_agent

    try:
        if target.is_symlink() or (target.exists() and not is_agent(target)):
            raise HeadwayError(
                f"{target} exists and is not a plugin of Headway's",
                remedy="move it away, or name another file with -o",
            )
        build_agent(target)
    except OSError as error:
        raise HeadwayError(f"{target} cannot be written: {error.strerror}") from None
