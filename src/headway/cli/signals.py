"""Signals that ask a command to end: they set a flag, and never break what it is doing."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

from headway.cli import INTERRUPTED


class Asked:
    """Whether somebody wants the command to end."""

    def __init__(self) -> None:
        self.by: int | None = None  # the signal

    def __bool__(self) -> bool:
        return self.by is not None

    @property
    def exit_code(self) -> int:
        """What a shell expects of a program that a signal has ended."""
        return INTERRUPTED if self.by in (None, signal.SIGINT) else 128 + self.by

    @contextlib.contextmanager
    def heard(self) -> Iterator[None]:
        """Listen to Ctrl-C and SIGTERM; a second Ctrl-C changes nothing."""

        def stop(number: int, _: object) -> None:
            self.by = self.by or number

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                # Once asked to end, nothing that is pressed again cuts short the way out.
                signal.signal(number, handler if self.by is None else signal.SIG_IGN)
