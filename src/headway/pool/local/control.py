"""How one process asks a run's supervisor for something: a file in, a file back."""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from headway.errors import PoolError, PoolUnreachable
from headway.pool.folder import RunFolder, write_atomically

_PATIENCE = 15.0


class Request:
    """One question found in the control folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.body: Mapping[str, Any] = json.loads(path.read_bytes())

    def answer(self, body: object) -> None:
        """Answer first, then take the question away: a crash between the two only asks it again."""
        # One who cannot be answered (a full disk) waits in vain, which must not end the pool.
        with contextlib.suppress(OSError):
            write_atomically(self.path.with_suffix(".answer"), json.dumps(body).encode())
        with contextlib.suppress(OSError):
            self.path.unlink()


def requests(folder: RunFolder) -> Iterator[Request]:
    """What was asked and not yet answered, oldest first."""
    place = folder.path / "control"
    try:
        names = os.listdir(place)
    except OSError:
        return  # nobody has ever asked
    for name in sorted(names):
        if name.endswith(".json") and not name.startswith("."):
            try:
                yield Request(place / name)
            except FileNotFoundError:
                continue  # who asked did not wait
            except (OSError, ValueError, RecursionError):
                with contextlib.suppress(OSError):
                    (place / name).rename(place / f"{name}.bad")


def tidy(folder: RunFolder) -> None:
    """Remove answers that nobody came for."""
    with contextlib.suppress(OSError):
        for left in (folder.path / "control").glob("*.answer"):
            left.unlink(missing_ok=True)


def ask(folder: RunFolder, body: Mapping[str, Any], *, alive: Callable[[], bool]) -> Any:
    """Ask the running supervisor and wait for its answer; None if it ends without one."""
    place = folder.path / "control"
    path = place / f"{time.time_ns()}-{uuid.uuid4().hex[:8]}.json"
    answer = path.with_suffix(".answer")
    try:
        place.mkdir(0o700, exist_ok=True)
        write_atomically(path, json.dumps(body).encode())
    except OSError as error:
        raise PoolError(
            f"the local pool of {folder.label} cannot be asked: {error.strerror}",
            remedy=f"is there space and permission in {place}?",
        ) from error
    deadline = time.monotonic() + _PATIENCE
    try:
        while time.monotonic() < deadline:
            with contextlib.suppress(FileNotFoundError):
                return json.loads(answer.read_bytes())
            if not alive() and not answer.exists():
                return None
            time.sleep(0.02)
    finally:
        for file in (path, answer):
            with contextlib.suppress(OSError):
                file.unlink()
    raise PoolUnreachable(
        f"the local pool of {folder.label} did not answer within {_PATIENCE:.0f} s",
        remedy="asking again is safe",
    )
