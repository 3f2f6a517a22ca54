"""The parser of one command: argparse, with errors that say what was probably meant."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NoReturn, TypeVar

from headway.errors import HeadwayError

# A moment on the command line: how long ago, or a date and time.


_EXAMPLES = "such as 7d, 12h, 90min, 2025-11-16 or 2025-11-16T08:30"


def moment(text: str, now: float) -> float:
    """Seconds since the epoch; a date without a zone is meant here."""
    from headway.spec import parse_duration
    from headway.spec.errors import Wrong

    given = text.strip()
    if re.match(r"[0-9]{4}-", given):
        try:
            # Python 3.10 does not know the Z, and knows no fractions of other lengths.
            found = datetime.fromisoformat(re.sub(r"[zZ]\Z", "+00:00", given)).timestamp()
        except (ValueError, OverflowError, OSError):
            raise UsageError(
                f"--since {text[:60]!r} is no date", remedy=f"write it {_EXAMPLES}"
            ) from None
    else:
        try:
            found = now - parse_duration(given)
        except Wrong as error:
            raise UsageError(f"--since: {error.what}", remedy=f"write it {_EXAMPLES}") from None
    if found > now:
        raise UsageError(f"--since {text[:60]} is in the future", remedy=f"write it {_EXAMPLES}")
    return found


_T = TypeVar("_T")


class UsageError(HeadwayError):
    """The command line cannot be understood."""


def parsed(text: str | None, parse: Callable[[object], _T], what: str) -> _T | None:
    """A size or a duration as the spec reads it; UsageError where it is none."""
    from headway.spec.errors import Wrong

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

    def flag(self, *names: str, help: str) -> None:
        """Add an option without a value."""
        self.add_argument(*names, action="store_true", help=help)

    def finish(self) -> None:
        """Add the options that every command has."""
        common = self.add_argument_group("everywhere")
        common.add_argument("--json", action="store_true", help="print JSON, and nothing else")
        common.add_argument(
            "-v", dest="verbose", action="count", default=0, help="log on stderr; -vv: more"
        )
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
        from headway.text import closest

        meant = closest(name, known) if word.startswith("-") else None
        hint = f"did you mean {meant}? " if meant else ""
        what = f"there is no option {name}" if word.startswith("-") else f"{word!r} is one too many"
        raise UsageError(
            f"headway {self.command}: {what}",
            remedy=f"{hint}`headway {self.command} --help` shows what there is",
        )


_KNOWS_COLOR = "color" in inspect.signature(argparse.ArgumentParser.__init__).parameters
