"""The parser of one command: argparse, with errors that say what was probably meant."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NoReturn

from headway.errors import HeadwayError
from headway.spec.errors import Wrong
from headway.spec.units import parse_duration
from headway.text import closest


class UsageError(HeadwayError):
    """The command line cannot be understood; `main` puts the name of the command before it."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message, remedy=remedy)


def whole_number(most: int = 10**9, least: int = 0, remedy: str = "") -> Callable[[str], int]:
    """A parser for whole numbers from `least` to `most`."""

    def parse(text: str) -> int:
        if text.isascii() and text.isdigit() and least <= int(text[:12]) <= most:
            return int(text)
        what = f"{text[:20]!r} is not a whole number from {least} to {most:,}"
        raise Wrong(what, remedy or f"write it such as {max(least, 3)}")

    return parse


def since(text: str, now: float | None = None) -> float:
    """Seconds since the epoch, from "7d" (ago) or a date; without a zone it is local time."""
    now = time.time() if now is None else now
    example = "write it such as 7d, 12h, 90min, 2025-11-16 or 2025-11-16T08:30"
    given = text.strip()
    try:
        if re.match(r"[0-9]{4}-", given):
            # Python 3.10 does not know the Z, and knows no fractions of other lengths.
            begin = datetime.fromisoformat(re.sub(r"[zZ]\Z", "+00:00", given)).timestamp()
        else:
            begin = now - parse_duration(given)
    except Wrong as wrong:
        raise Wrong(wrong.what, example) from None
    except (ValueError, OverflowError, OSError):
        raise Wrong(f"{text[:60]!r} is not a date", example) from None
    if begin > now:
        raise Wrong(f"{text[:60]} is in the future", example)
    return begin


class _Formatter(argparse.HelpFormatter):
    """The same help on every Python: fixed columns, and an option's value named once."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=24, width=88)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        return f"{', '.join(action.option_strings)} {action.metavar or action.dest.upper()}"

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        import textwrap

        # The description is wrapped, and the examples stay as they are.
        return text if "\n" in text else textwrap.fill(text, width, break_on_hyphens=False)


class Parser(argparse.ArgumentParser):
    """One command's parser; wrong input is a UsageError, printed like every other error.

    Args:
        command: the name of the command.
        call: what runs it; gets the arguments and returns the exit code.
        usage: what comes after the name in the usage line.
        description: what the command does, in a paragraph.
        examples: command lines, each with a few words on what it does.
    """

    def __init__(
        self,
        command: str,
        call: Callable[[argparse.Namespace], int],
        usage: str,
        description: str,
        examples: Sequence[tuple[str, str]],
    ) -> None:
        width = max(len(example) for example, _ in examples)
        shown = "\n".join(f"  {example:<{width}}  # {what}" for example, what in examples)
        plain: dict[str, Any] = {"color": False} if sys.version_info >= (3, 14) else {}
        super().__init__(
            prog=f"headway {command}",
            usage=f"headway {command} {usage}",
            description=description,
            epilog=f"examples:\n{shown}",
            formatter_class=_Formatter,
            allow_abbrev=False,
            add_help=False,
            **plain,
        )
        self._positionals.title = "arguments"
        self.call = call

    def argument(self, name: str, metavar: str, help: str, **more: Any) -> None:
        """Add a positional argument; `more` is as argparse has it."""
        self.add_argument(name, metavar=metavar, help=help, **more)

    def option(
        self,
        *words: str,
        parse: Callable[[str], Any] | None = None,
        many: bool = False,
        **more: Any,
    ) -> None:
        """Add an option with a value.

        Args:
            words: its names, then what its value is called, then its help.
            parse: turns the text into the value; raises Wrong.
            many: it may be given several times, and the value is a list.
            more: as argparse has it.
        """
        *names, metavar, help = words

        def read(text: str) -> Any:
            try:
                return text if parse is None else parse(text)
            except Wrong as wrong:
                raise UsageError(f"{names[-1]}: {wrong.what}", wrong.remedy) from None

        if many:
            more |= {"action": "append", "default": []}
        self.add_argument(*names, metavar=metavar, help=help, type=read, **more)

    def flag(self, *words: str) -> None:
        """Add an option without a value: its names, then its help."""
        *names, help = words
        self.add_argument(*names, action="store_true", help=help)

    def job_options(self) -> None:
        """Add the options that change what a job.toml says."""
        self.option("--set", "K=V", "change a key of job.toml; may be repeated", many=True)
        resources = "cpu, mem, disk, nvidia-gpu, gpu-mem"
        text = f"request more or less of a resource: {resources}; may be repeated"
        self.option("--resource", "NAME=V", text, many=True)

    def finish(self) -> None:
        """Add the options that every command has."""
        common = self.add_argument_group("options of every command")
        common.add_argument("--json", action="store_true", help="print JSON and nothing else")
        text = "log to stderr what Headway does; -vv logs more"
        common.add_argument("-v", dest="verbose", action="count", default=0, help=text)
        common.add_argument("--no-color", action="store_true", help="print without colours")
        common.add_argument("--debug", action="store_true", help="show a traceback on errors")
        common.add_argument("-h", "--help", action="help", help="show this help")

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """The arguments, or a UsageError with what was probably meant."""
        arguments, extra = self.parse_known_args(argv)
        if not extra:
            return arguments
        name = extra[0].split("=", 1)[0]
        hint, what = "", f"unexpected argument {extra[0]!r}"
        if name.startswith("-"):
            meant, what = closest(name, self._option_string_actions), f"there is no option {name}"
            hint = f"did you mean {meant}? " if meant else ""
        raise UsageError(what, f"{hint}`{self.prog} --help` shows the arguments and options")

    def error(self, message: str) -> NoReturn:
        message = re.sub(r"^the following arguments are required: ", "missing: ", message)
        raise UsageError(message, f"{self.format_usage().strip()}; see `{self.prog} --help`")
