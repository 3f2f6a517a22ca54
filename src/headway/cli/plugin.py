"""`headway plugin`: the file-transfer plugin for HTCondor, as one file."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from headway.cli import OK
from headway.cli.parser import Parser

DEFAULT = "headway-plugin"


def parser(name: str) -> Parser:
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
    made.set_defaults(call=call)
    return made


def call(arguments: Namespace) -> int:
    from headway.cli.show import near, print_json, printable
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
    from headway.pool.package import build_agent, is_agent

    try:
        if target.is_symlink() or (target.exists() and not is_agent(target)):
            raise HeadwayError(
                f"{target} exists and is not a plugin of Headway's",
                remedy="move it away, or name another file with -o",
            )
        build_agent(target)
    except OSError as error:
        raise HeadwayError(f"{target} cannot be written: {error.strerror}") from None
