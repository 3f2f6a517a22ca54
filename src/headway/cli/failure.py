"""What went wrong, in words on stderr, and the exit code that says it to programs."""

from __future__ import annotations

import json
import sys

from headway.cli import BUG, FAILED, POOL, WRONG
from headway.cli.show import paint, printable
from headway.errors import (
    HeadwayError,
    NodeError,
    PoolError,
    PreflightError,
    SpecError,
    TransferError,
)


def report(error: Exception, as_json: bool) -> int:
    """Print an error as people, and with --json also as programs, can read it."""
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
        print(json.dumps({"type": "error", "error": _facts(error), "exit": code}))
    return code


def _code(error: HeadwayError) -> int:
    if isinstance(error, PoolError):
        return POOL
    passing = isinstance(error, TransferError) and error.retryable
    return FAILED if passing or isinstance(error, NodeError) else WRONG


def _facts(error: Exception) -> dict[str, object]:
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
