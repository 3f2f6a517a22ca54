"""The command line of headway-node.pyz: `agent plan.json`, or HTCondor's options for a plugin."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_USAGE = (
    "usage: headway-node.pyz agent PLAN\n"
    "       headway-node.pyz stage PROGRAM [ARGUMENT ...]\n"
    "       headway-node.pyz store FOLDER [SETTING=VALUE ...]\n"
    "       headway-node.pyz version\n"
    "       headway-node.pyz -classad\n"
    "       headway-node.pyz -infile FILE -outfile FILE [-upload]\n"
)
_PLUGIN = ("-classad", "-infile", "-outfile", "-upload")


def main(arguments: Sequence[str]) -> int:
    """Run what the arguments name; returns the exit code."""
    if len(arguments) == 2 and arguments[0] == "agent":
        from headway.node.agent import run_agent

        return run_agent(arguments[1])
    if list(arguments) == ["fetcher"]:
        from headway.node.stream.fetcher import run_fetcher

        return run_fetcher()
    if len(arguments) >= 2 and arguments[0] == "stage":
        from headway.node.stage import run_wrapped

        return run_wrapped(arguments[1], arguments[2:])
    if arguments and arguments[0] in _PLUGIN:
        from headway.node.plugin import run_plugin

        return run_plugin(arguments)
    if len(arguments) >= 2 and arguments[0] == "store":
        from headway.node.store.sweeper import run_store

        return run_store(arguments[1:])
    if list(arguments) == ["version"]:
        from headway.node import VERSION

        sys.stdout.write(f"{VERSION}\n")
        return 0
    sys.stderr.write(_USAGE)
    return 87


def start(arguments: Sequence[str]) -> None:
    """Run and exit at once, without waiting for threads that wait for a dead server."""
    for descriptor in (0, 1, 2):  # the next file that is opened would take a closed one
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    code = main(arguments)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    start(sys.argv[1:])
