"""Kill a process at each of its lines in turn: what is on disk then must make sense."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def killed_at(line: int, act: Callable[[], object], ours: Callable[[FrameType], bool]) -> int:
    """Act in a process that is killed at the so manyth line of ours; 0: it does not end.

    Args:
        line: Which line; 0: none of them.
        act: What the process does.
        ours: Which lines count, by their frames.

    Returns:
        How many lines there were, if the process came to its end; else 0.
    """
    there, here = os.pipe()
    child = os.fork()
    if child == 0:
        passed = 0

        def traced(frame: FrameType, event: str, argument: object) -> Any:
            nonlocal passed
            if event == "line" and ours(frame):
                passed += 1
                if passed == line:
                    os.kill(os.getpid(), signal.SIGKILL)
            return traced

        sys.settrace(traced)
        act()
        sys.settrace(None)
        os.write(here, str(passed).encode())
        os._exit(0)
    os.close(here)
    with os.fdopen(there) as file:
        said = file.read()
    os.waitpid(child, 0)
    return int(said or 0)


def in_a_new_process(target: Callable[..., None], *arguments: object) -> None:
    """Call a function where forks are cheap: this process may have loaded torch."""
    process = multiprocessing.get_context("spawn").Process(target=target, args=arguments)
    process.start()
    process.join()
    assert process.exitcode == 0
