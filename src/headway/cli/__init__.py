"""The command line. This module loads nothing that `headway --help` does not need."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from headway.cli.commands import BUG, FAILED, INTERRUPTED, OK, PIPE, POOL, WRONG

TYPE_CHECKING = False  # instead of `typing`, which takes time to load
if TYPE_CHECKING:
    from headway.cli.parser import Parser
    from headway.errors import HeadwayError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the words after `headway`; default: those of this process.

    Returns:
        The exit code; docs/commands/run.md has the list.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    for stream in (sys.stdout, sys.stderr):
        # File names and logs may contain characters that the terminal's encoding lacks.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _main(words)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        import signal

        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not cut this short
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
        elif option == "--no-color":
            os.environ["NO_COLOR"] = "1"
        elif option in ("-h", "--help"):
            words.clear()
        elif option == "--version":
            import headway

            print(f"headway {headway.__version__}")
            return OK
        elif option != "--debug":
            _refuse_option(option)
    if not words or words == ["help"]:
        from headway.cli.commands import overview

        print(overview(), end="")
        return OK
    if words[0] == "help":
        return _main([words[1], "--help"])
    parser = parser_of(words[0])
    from headway.cli.parser import UsageError
    from headway.cli.terminal import log_to_stderr

    try:
        arguments = parser.parse(words[1:])
        if arguments.no_color:
            os.environ["NO_COLOR"] = "1"
        with log_to_stderr(verbose + arguments.verbose):
            return parser.call(arguments)
    except UsageError as error:
        error.message = f"{parser.prog}: {error.message}"
        raise


def parser_of(name: str) -> Parser:
    """The parser of a command; its module loads now."""
    from importlib import import_module

    from headway.cli.commands import COMMANDS

    if name not in COMMANDS:
        _refuse_command(name)
    module = import_module(f"headway.cli.{COMMANDS[name].module}")
    parser: Parser = module.parser(name)
    parser.finish()
    return parser


def _refuse_command(name: str) -> None:
    from headway.cli.commands import COMMANDS, SYNONYMS
    from headway.text import closest

    meant = SYNONYMS.get(name.lower()) or closest(name.lower(), list(COMMANDS))
    if name.endswith(".toml"):
        meant = f"run {name}"
    _refuse(f"there is no command {name!r}", f"did you mean `headway {meant}`? " if meant else "")


def _refuse_option(option: str) -> None:
    from headway.text import closest

    meant = closest(option, ["--help", "--version", "--no-color", "--debug"])
    hint = f"did you mean {meant}? " if meant else "options of a command come after it; "
    _refuse(f"there is no option {option}", hint)


def _refuse(what: str, hint: str) -> None:
    from headway.cli.parser import UsageError

    raise UsageError(what, f"{hint}`headway --help` shows all of them")


def print_error(error: Exception, as_json: bool) -> int:
    """Print an error for people and, with --json, also for programs; return the exit code."""
    from headway.cli.terminal import paint, print_json
    from headway.errors import HeadwayError
    from headway.text import printable

    code, text = BUG, f"{type(error).__name__}: {error}".rstrip(": ")
    if isinstance(error, HeadwayError):
        code, text = _exit_code(error), str(error)
    else:
        text = f"this is a bug in headway: {printable(text)}; run again with --debug"
    print(paint("error: ", "bold red", sys.stderr), end="", file=sys.stderr)
    for line in text.splitlines() or [""]:
        print(printable(line), file=sys.stderr)
    if as_json:
        print_json({"type": "error", "error": _error_document(error), "exit": code})
    return code


def _exit_code(error: HeadwayError) -> int:
    from headway.errors import NodeError, PoolError, TransferError

    if isinstance(error, PoolError):
        return POOL
    passing = isinstance(error, TransferError) and error.retryable
    return FAILED if passing or isinstance(error, NodeError) else WRONG


def _error_document(error: Exception) -> dict[str, object]:
    from headway.errors import HeadwayError, PreflightError, SpecError, TransferError

    document: dict[str, object] = {"kind": type(error).__name__}
    if isinstance(error, (SpecError, PreflightError)):
        document["problems"] = [
            {"where": problem.where, "what": problem.what, "remedy": problem.remedy}
            for problem in error.problems
        ]
    if isinstance(error, TransferError):
        document["retryable"] = error.retryable
    if isinstance(error, HeadwayError):
        return document | {"message": error.message, "remedy": error.remedy}
    return document | {"message": str(error), "remedy": "run again with --debug"}
