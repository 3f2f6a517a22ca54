"""An object that arrives: a thread plays the fetcher, in the order that readers ask for."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tests.lab.answer import Answer, Bucket, Case
from tests.lab.faults import Fault

from headway.node.errors import TransferError
from headway.node.stream.arrival import Arrival, read_wanted


@dataclass(frozen=True)
class Trickle(Fault):
    """After the first `after` bytes, send the others in a trickle until `until` says otherwise.

    However slow the machine is, something can then happen while the object arrives.
    """

    until: Callable[[], bool]
    after: int = 1 << 16

    def shape(self, case: Case, answer: Answer) -> bool:
        answer.buckets.append(case.shared.setdefault(self, _Gate(self)))
        return True


class _Gate(Bucket):
    def __init__(self, fault: Trickle) -> None:
        super().__init__(1 << 30)
        self._until, self._left, self._open = fault.until, fault.after, False

    @property
    def portion(self) -> int:
        return 1 << 14

    def take(self, count: int) -> float:
        self._left -= count
        end = time.monotonic() + 0.5
        while not self._open and self._left < 0 and time.monotonic() < end:
            self._open = self._until()
            time.sleep(0.0 if self._open else 0.02)
        return 0.0


def until_awaited(path: Path) -> Fault:
    """A trickle until a reader on the node waits for the object at `path`."""

    def is_awaited() -> bool:
        try:
            with Arrival.follow(f"{path}.arrival") as arrival:
                return bool(arrival.wishes()) or arrival.waited() > 0
        except (OSError, TransferError, ValueError):
            return False

    return Trickle(is_awaited).on(f"/{path.name}")


class Arriving:
    """Brings one chunk after the other: wishes first, then PATH.wanted, then the file's order.

    `hold`: after so many it waits for `release`; `strict`: only what PATH.wanted says.
    """

    def __init__(
        self,
        path: Path,
        content: bytes,
        chunk: int,
        *,
        pause: float = 0.0,
        hold: int = 1 << 30,
        strict: bool = False,
    ) -> None:
        self.path, self.content, self.chunk, self.pause = path, content, chunk, pause
        self._hold, self._strict = hold, strict
        self.chunks = -(-len(content) // chunk)
        self.brought: list[int] = []
        self._stop = threading.Event()
        self._part = os.open(f"{path}.part", os.O_RDWR | os.O_CREAT)
        os.ftruncate(self._part, len(content))
        self.arrival = Arrival.begin(f"{path}.arrival", len(content), chunk)
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Arriving:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        self.arrival.close()
        os.close(self._part)

    def bring(self, number: int) -> None:
        begin, end = number * self.chunk, min(len(self.content), (number + 1) * self.chunk)
        os.pwrite(self._part, self.content[begin:end], begin)
        self.arrival.mark(begin, end)
        self.brought.append(number)

    def release(self) -> None:
        self._hold = 1 << 30

    def whole(self) -> bool:
        return len(self.brought) == self.chunks

    def _next(self) -> int | None:
        found = read_wanted(str(self.path), self.chunk, self.chunks)
        if len(self.brought) >= self._hold or (self._strict and found is None):
            return None
        wishes = [] if self._strict else self.arrival.wishes()
        order: list[int] = [*wishes, *(found.chunks if found else ()), *range(self.chunks)]
        return next(number for number in order if number not in self.brought)

    def _run(self) -> None:
        while not self._stop.is_set() and not self.whole():
            number = self._next()
            if number is not None:
                self.bring(number)
            time.sleep(self.pause if number is not None else 0.002)
        if self.whole():
            self.arrival.finish()
            os.rename(f"{self.path}.part", self.path)
