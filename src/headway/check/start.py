"""One start of the command: what became of it."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from pathlib import Path

from headway.check.saves import Change

_AHEAD = 0.2  # share of the lines that may be seen at once
_BEFORE_END = 0.9  # share of the run; what is seen later may have been flushed by its end


@dataclass
class Seen:
    """How far a running command is."""

    rows: int = 0  # of its trace, in this start
    lines: int = 0  # that it printed
    seconds: float = 0.0  # since it was started
    listened: float | None = None  # seconds after which it had a handler for SIGTERM


@dataclass
class Start:
    """One start of the command, and what became of it."""

    place: int  # the number of its folder
    code: int | None = None  # the agent's exit code; None: it was killed
    status: int | None = None  # the command's
    signal: int | None = None
    seconds: float = 0.0  # of the command
    wall: float = 0.0
    span: float = 0.0  # seconds from the first step to the last
    to_end: float = 0.0  # seconds from the interruption to the end
    interrupted: bool = False
    hung: bool = False
    reason: str = ""
    stderr: str = ""
    trace: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    programs: list[str] = field(default_factory=list)  # that ran when it was interrupted
    changes: list[Change] = field(default_factory=list)  # of the checkpoint
    late: bool = False  # it was written to after the interruption
    blind: bool = False  # the changes could not be watched
    had: bool = False  # there was a checkpoint when it began
    before: Path = Path()  # copies of the checkpoint, as long as they are needed
    after: Path = Path()
    bytes: int = 0  # of the checkpoint afterwards
    outputs: dict[str, str] = field(default_factory=dict)
    listened: float | None = None  # seconds after which it had a handler for SIGTERM
    printed: list[tuple[float, int]] = field(default_factory=list)  # lines so far, after seconds

    @property
    def saved(self) -> bool:
        """Whether the checkpoint was written to, and is there."""
        return bool(self.bytes and self.changes)

    def live(self, share: float) -> bool:
        """Whether this share of the lines was seen when it was printed.

        A buffer hands lines over in blocks, or all of them at the end: they do not tell then how
        far the command is.
        """
        total = len(self.lines)
        for after, seen in self.printed:
            if seen >= share * total:
                return seen <= (share + _AHEAD) * total and after < _BEFORE_END * self.seconds
        return False

    def words(self) -> str:
        """How the command ended."""
        if self.hung:
            return f"did not end in {self.wall:.0f} s"
        if self.signal is not None:
            return f"was killed by {signal.Signals(self.signal).name}"
        return f"exited with {self.status}" if self.status is not None else self.reason
