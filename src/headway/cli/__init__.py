"""The command line. This module loads nothing that `headway --help` does not need."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from headway.cli.commands import BUG, FAILED, INTERRUPTED, OK, PIPE, POOL, WRONG

TYPE_CHECKING = False  # that of `typing`, which `headway --help` need not wait for
if TYPE_CHECKING:
    from headway.cli.parser import Parser
    from headway.errors import HeadwayError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code says how it went (see docs/commands)."""
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    for stream in (sys.stdout, sys.stderr):
        # A file name or a log may hold what the terminal's encoding has not.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _main(words)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        _ignore_more()
        if debug:
            raise
        print("\ninterrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        import contextlib

        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else OK
    except Exception as error:
        if debug:
            raise
        return print_error(error, "--json" in words)


def _main(words: list[str]) -> int:
    verbose = 0
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if option in ("-v", "-vv"):
            verbose += len(option) - 1
        elif option in ("--debug", "--no-color"):
            if option == "--no-color":
                os.environ["NO_COLOR"] = "1"
        elif option in ("-h", "--help"):
            return _overview()
        elif option == "--version":
            import headway

            print(f"headway {headway.__version__}")
            return OK
        else:
            _unknown_option(option)
    if not words or words[0] == "help":
        return _overview() if len(words) < 2 else _main([words[1], "--help"])
    name, rest = words[0], words[1:]
    parser = parser_of(name)
    arguments = parser.parse(rest)
    if arguments.no_color:
        os.environ["NO_COLOR"] = "1"
    from headway.cli.terminal import shown_log

    with shown_log(verbose + arguments.verbose):
        return int(parser.get_default("call")(arguments))


def parser_of(name: str) -> Parser:
    """The parser of a command; its module loads now."""
    from importlib import import_module

    from headway.cli.commands import COMMANDS

    if name not in COMMANDS:
        _unknown_command(name)
    module = import_module(f"headway.cli.{COMMANDS[name].module}")
    parser: Parser = module.parser(name)
    parser.finish()
    return parser


def _overview() -> int:
    from headway.cli.commands import overview

    print(overview(), end="")
    return OK


def _unknown_command(name: str) -> None:
    from headway.cli.commands import COMMANDS, SYNONYMS
    from headway.cli.parser import UsageError
    from headway.text import closest

    meant = SYNONYMS.get(name.lower()) or closest(name.lower(), list(COMMANDS))
    if name.endswith(".toml"):
        meant = f"run {name}"
    hint = f"did you mean `headway {meant}`? " if meant else ""
    raise UsageError(
        f"there is no command {name!r}", remedy=f"{hint}`headway --help` shows all of them"
    )


def _unknown_option(option: str) -> None:
    from headway.cli.parser import UsageError
    from headway.text import closest

    meant = closest(option, ["--help", "--version", "--no-color", "--debug"])
    hint = f"did you mean {meant}? " if meant else "options of a command come after it; "
    raise UsageError(
        f"there is no option {option}", remedy=f"{hint}`headway --help` shows what there is"
    )


# What went wrong, in words on stderr, and the exit code that says it to programs.


def print_error(error: Exception, as_json: bool) -> int:
    """Print an error as people, and with --json also as programs, can read it."""
    from headway.cli.terminal import paint, print_json, printable
    from headway.errors import HeadwayError

    if not isinstance(error, HeadwayError):
        what = f"{type(error).__name__}: {error}".rstrip(": ")
        text = f"this is a bug in headway: {printable(what)}; run again with --debug"
        print(paint("error:", "bold red", sys.stderr), text, file=sys.stderr)
        code = BUG
    else:
        for line in str(error).splitlines():
            first = line == str(error).splitlines()[0]
            lead = paint("error: ", "bold red", sys.stderr) if first else ""
            print(f"{lead}{printable(line)}", file=sys.stderr)
        code = _code(error)
    if as_json:
        print_json({"type": "error", "error": _facts(error), "exit": code})
    return code


def _code(error: HeadwayError) -> int:
    from headway.errors import NodeError, PoolError, TransferError

    if isinstance(error, PoolError):
        return POOL
    passing = isinstance(error, TransferError) and error.retryable
    return FAILED if passing or isinstance(error, NodeError) else WRONG


def _facts(error: Exception) -> dict[str, object]:
    from headway.errors import HeadwayError, PreflightError, SpecError, TransferError

    facts: dict[str, object] = {"kind": type(error).__name__}
    if isinstance(error, (SpecError, PreflightError)):
        facts["problems"] = [
            {"where": problem.where, "what": problem.what, "remedy": problem.remedy}
            for problem in error.problems
        ]
    if isinstance(error, HeadwayError):
        if isinstance(error, TransferError):
            facts["retryable"] = error.retryable
        return facts | {"message": error.message, "remedy": error.remedy}
    return facts | {"message": str(error), "remedy": "run again with --debug"}


def _ignore_more() -> None:
    """A second Ctrl-C must not cut short the way out."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
