"""The parser of one command: argparse, with errors that say what was probably meant."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

from headway.errors import HeadwayError

_T = TypeVar("_T")


class UsageError(HeadwayError):
    """The command line cannot be understood."""


def closest(word: str, known: Sequence[str]) -> str | None:
    """The known word that was probably meant."""
    from difflib import get_close_matches

    found = get_close_matches(word, known, n=1, cutoff=0.6)
    return found[0] if found else None


def parsed(text: str | None, parse: Callable[[object], _T], what: str) -> _T | None:
    """A size or a duration as the spec reads it; UsageError where it is none."""
    from headway.spec.words import Wrong

    if text is None:
        return None
    try:
        return parse(text)
    except Wrong as wrong:
        raise UsageError(f"{what}: {wrong.what}", remedy=wrong.remedy) from None


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """The same help on every Python: fixed columns, and an option's value named once."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=24, width=88)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        names = ", ".join(action.option_strings)
        return f"{names} {action.metavar or action.dest.upper()}"


class Parser(argparse.ArgumentParser):
    """One command's parser; wrong input is a UsageError, printed like every other error."""

    def __init__(
        self, command: str, usage: str, description: str, examples: Sequence[tuple[str, str]]
    ) -> None:
        width = max(len(example) for example, _ in examples)
        shown = "\n".join(f"  {example:<{width}}  # {what}" for example, what in examples)
        plain: dict[str, Any] = {"color": False} if _KNOWS_COLOR else {}
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
        self.command = command
        self.examples = tuple(example for example, _ in examples)

    def finish(self) -> None:
        """Add the options that every command has."""
        common = self.add_argument_group("everywhere")
        common.add_argument("--json", action="store_true", help="print JSON, and nothing else")
        common.add_argument("--no-color", action="store_true", help="no colours")
        common.add_argument("--debug", action="store_true", help="a traceback on errors")
        common.add_argument("-h", "--help", action="help", help="show this help")

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """The arguments, or a UsageError with what was probably meant."""
        arguments, extra = self.parse_known_args(argv)
        if extra:
            self._refuse(extra[0])
        return arguments

    def error(self, message: str) -> NoReturn:
        message = re.sub(r"^the following arguments are required: ", "missing: ", message)
        raise UsageError(
            f"headway {self.command}: {message}",
            remedy=f"{self.format_usage().strip()}; see `headway {self.command} --help`",
        )

    def _refuse(self, word: str) -> NoReturn:
        name = word.split("=", 1)[0]
        known = list(self._option_string_actions)
        meant = closest(name, known) if word.startswith("-") else None
        hint = f"did you mean {meant}? " if meant else ""
        what = f"there is no option {name}" if word.startswith("-") else f"{word!r} is one too many"
        raise UsageError(
            f"headway {self.command}: {what}",
            remedy=f"{hint}`headway {self.command} --help` shows what there is",
        )


_KNOWS_COLOR = "color" in inspect.signature(argparse.ArgumentParser.__init__).parameters
