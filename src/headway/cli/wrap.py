"""`headway wrap`: an existing submit file, followed and healed by Headway."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.cli.commands import OK, WRONG
from headway.cli.parser import Parser

if TYPE_CHECKING:
    from headway.pool.lint.wrap import Wrapped


def parser(name: str) -> Parser:
    """The parser of `headway wrap`, or of `headway plugin`."""
    return _plugin_parser(name) if name == "plugin" else _wrap_parser(name)


def _wrap_parser(name: str) -> Parser:
    made = Parser(
        name,
        "JOB.SUB [--check] [-o FILE] [--overwrite]",
        "Write a copy of an HTCondor submit file with the lines that let Headway follow its jobs\n"
        "and heal them; every line of the original stays as it is. URLs among the inputs are\n"
        "staged in by Headway's agent, which is written beside it and starts your executable.\n"
        "It also says what is risky in the file and in the scripts that it names; with --check it\n"
        "does nothing else.",
        [
            ("headway wrap train.sub", "writes train.headway.sub, and shows the difference"),
            ("headway wrap train.sub --check", "what could go wrong; exit code 2 on errors"),
            ("headway wrap train.sub -o other.sub", "to another file"),
            ("headway wrap train.sub -o -", "to stdout"),
        ],
    )
    made.add_argument("file", metavar="JOB.SUB", help="the submit file")
    made.flag("--check", help="say what is risky; write nothing")
    made.add_argument(
        "-o", "--to", metavar="FILE", help="where to write; -: stdout; default: JOB.headway.sub"
    )
    made.flag("--overwrite", help="replace a file that is there")
    made.set_defaults(call=call)
    return made


def call(arguments: Namespace) -> int:
    return _check(arguments) if arguments.check else _wrap(arguments)


def _check(arguments: Namespace) -> int:
    from headway.cli.run import as_dict, print_findings
    from headway.cli.terminal import print_json
    from headway.pool.lint.risks import file_risks
    from headway.pool.lint.traps import errors_of

    findings = file_risks(Path(arguments.file))
    if arguments.json:
        print_json({"file": arguments.file, "findings": [as_dict(f) for f in findings]})
    elif findings:
        print_findings(findings)
    else:
        print(f"{arguments.file}: nothing risky found")
    return WRONG if errors_of(findings) else OK


def _wrap(arguments: Namespace) -> int:
    from headway.cli.terminal import near, print_json
    from headway.pool.lint.wrap import wrap_file

    path = Path(arguments.file)
    if arguments.to == "-":
        return _to_stdout(path, arguments.json)
    to = Path(arguments.to) if arguments.to else None
    target, wrapped = wrap_file(path, to, overwrite=arguments.overwrite)
    if arguments.json:
        print_json({"file": str(path), "written": str(target), **_facts(path, wrapped)})
        return OK
    print(wrapped.diff(path.name, target.name), end="", flush=True)
    _say(path, wrapped)
    print(
        f"written to {near(target)}; submit it with: condor_submit {near(target)}", file=sys.stderr
    )
    return OK


def _to_stdout(path: Path, as_json: bool) -> int:
    from headway.cli.terminal import print_json
    from headway.node.plan import AGENT
    from headway.pool.lint.queue_view import submit_folder
    from headway.pool.lint.submit_file import read, read_text
    from headway.pool.lint.wrap import wrap

    # nothing is written, so the agent must be there already for the URLs to be staged in by it
    text = read_text(path)
    agent = path.with_name(f"{path.stem}.{AGENT}")
    base = submit_folder(read(text), path.parent, Path()) if agent.exists() else None
    wrapped = wrap(text, path.stem, base=base, agent=_from(agent, base))
    if as_json:
        facts = _facts(path, wrapped)
        print_json({"file": str(path), "written": None, **facts, "text": wrapped.text})
        return OK
    sys.stdout.flush()
    sys.stdout.buffer.write(wrapped.text.encode("utf-8", errors="surrogateescape"))
    sys.stdout.flush()
    _say(path, wrapped)
    return OK


def _from(agent: Path, base: Path | None) -> str | None:
    """The agent's name as condor_submit finds it in `base`."""
    if base is None or agent.absolute().parent == base.absolute():
        return None
    return agent.absolute().as_posix()


def _say(path: Path, wrapped: Wrapped) -> None:
    """What was left alone, and what is still risky."""
    from headway.cli.run import print_findings
    from headway.pool.lint.wrap import risks_left

    print_findings(risks_left(wrapped, path))
    for note in wrapped.notes:
        print(f"note: {note}", file=sys.stderr)


def _facts(path: Path, wrapped: Wrapped) -> dict[str, Any]:
    from headway.cli.run import as_dict
    from headway.pool.lint.wrap import risks_left

    findings = [as_dict(finding) for finding in risks_left(wrapped, path)]
    return {"added": list(wrapped.added), "notes": list(wrapped.notes), "findings": findings}


# `headway plugin`: the file-transfer plugin for HTCondor, as one file.


DEFAULT = "headway-plugin"


def _plugin_parser(name: str) -> Parser:
    made = Parser(
        name,
        "[-o FILE]",
        "Write HTCondor's file-transfer plugin: one file, which needs Python 3.9, nothing else.\n"
        "An administrator names it in FILETRANSFER_PLUGINS; a job on a pool without it brings it\n"
        "along in transfer_plugins. Large inputs belong into job.toml instead, where no time-out\n"
        "of HTCondor's ends their transfer.",
        [
            ("headway plugin", f"writes {DEFAULT}, says how to use it"),
            ("headway plugin -o /usr/local/libexec/headway-plugin", "for a whole pool"),
        ],
    )
    made.add_argument("-o", "--to", metavar="FILE", default=DEFAULT, help="where to write it")
    made.set_defaults(call=plugin)
    return made


def plugin(arguments: Namespace) -> int:
    from headway.cli.terminal import near, print_json, printable
    from headway.node.plugin import METHODS

    target = Path(arguments.to)
    write_plugin(target)
    if arguments.json:
        print_json({"path": str(target), "methods": list(METHODS)})
        return OK
    shown = printable(near(target.absolute()))
    pairs = f"osdf,https={shown}"
    print(f"{shown} is written")
    print(f"  a pool:  FILETRANSFER_PLUGINS = $(FILETRANSFER_PLUGINS), {target.absolute()}")
    print(f"  a job:   transfer_plugins = {pairs}")
    return OK


def write_plugin(target: Path) -> None:
    """Write the plugin, whole or not at all, and never over a file that is not one."""
    from headway.errors import HeadwayError
    from headway.pool.prepare import build_agent, is_agent

    try:
        if target.is_symlink() or (target.exists() and not is_agent(target)):
            raise HeadwayError(
                f"{target} exists and is not a plugin of Headway's",
                remedy="move it away, or name another file with -o",
            )
        build_agent(target)
    except OSError as error:
        raise HeadwayError(f"{target} cannot be written: {error.strerror}") from None
