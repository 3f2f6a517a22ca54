"""The watch: notices that the attempt must end, whatever the agent is doing at that moment.

A signal handler only takes a note and wakes the main thread by a pipe, so nothing is interrupted
half-way and no signal is lost between looking and waiting. Work that may block runs in a thread of
its own, which the main thread leaves behind when the attempt must end.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time

from headway.node.errors import Stopped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
EVICTED = "evicted"
ORPHANED = "orphaned"
_TICK = 1.0  # seconds between two looks at the parent
_WORDS = {
    EVICTED: "the pool asked the attempt to end (evicted, held or removed)",
    ORPHANED: "the pool that started the attempt is gone",
}


class Watch:
    """Holds the signals from its creation on; `cause` is empty while the attempt may go on."""

    def __init__(self, parent: int | None = None) -> None:
        self.cause = ""
        self._parent = parent
        self._first_parent = os.getppid()
        self._next_look = 0.0
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in STOP_SIGNALS:
            # started under nohup: a hangup is not meant for us
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._stop)
        signal.signal(signal.SIGCHLD, _nothing)

    def _stop(self, _number: int, _frame: object) -> None:
        self.cause = self.cause or EVICTED

    def words(self) -> str:
        """Why the attempt must end."""
        return _WORDS.get(self.cause, "")

    def check(self) -> None:
        """Raise Stopped when the attempt must end."""
        self._look()
        if self.cause:
            raise Stopped(self.words())

    def wait(self, seconds: float | None) -> None:
        """Sleep until a signal arrives, a child ends, work is done, or the time has passed."""
        if self._parent is not None:
            seconds = _TICK if seconds is None else min(seconds, _TICK)
        timeout = None if seconds is None else max(0.0, seconds)
        ready, _, _ = select.select([self._read], [], [], timeout)
        if ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._read, 4096)
        self._look()

    def work(self, task: Callable[[], T], tick: Callable[[], float | None] | None = None) -> T:
        """Run `task` in a thread; `tick` is called now and then and says how soon again."""
        import threading

        result: list[T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                result.append(task())
            except BaseException as error:
                errors.append(error)
            os.write(self._write, b"\0")

        self.check()
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        while not result and not errors:
            self.wait(tick() if tick else None)
            if self.cause:
                thread.join(0.2)  # it may just be putting its files in order
                raise Stopped(self.words())
        if errors:
            raise errors[0]
        return result[0]

    def _look(self) -> None:
        """The orphan rule: HEADWAY_PARENT must still be our parent, or at least alive."""
        now = time.monotonic()
        if self._parent is None or self.cause or now < self._next_look:
            return
        self._next_look = now + _TICK / 2
        parent = os.getppid()
        if parent == self._parent:
            return
        if self._first_parent == self._parent or parent != self._first_parent:
            self.cause = ORPHANED
            return
        try:  # there is a wrapper between the pool and us
            os.kill(self._parent, 0)
        except ProcessLookupError:
            self.cause = ORPHANED
        except OSError:
            pass


def _nothing(_number: int, _frame: object) -> None:
    """A Python-level handler must exist for the wake-up to be written."""
