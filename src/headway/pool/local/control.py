"""How one process asks a run's supervisor for something: a file in, a file back."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from headway.errors import PoolUnreachable
from headway.pool.folder import RunFolder, write_atomically

_PATIENCE = 15.0


class Request:
    """One question found in the control folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.body: Mapping[str, Any] = json.loads(path.read_bytes())

    def answer(self, body: object) -> None:
        """Answer first, then take the question away: a crash between the two only asks it again."""
        write_atomically(self.path.with_suffix(".answer"), json.dumps(body).encode())
        self.path.unlink(missing_ok=True)


def requests(folder: RunFolder) -> Iterator[Request]:
    """What was asked and not yet answered, oldest first."""
    place = folder.path / "control"
    with contextlib.suppress(FileNotFoundError):
        for path in sorted(place.glob("*.json")):
            with contextlib.suppress(OSError, ValueError):
                yield Request(path)


def ask(folder: RunFolder, body: Mapping[str, Any], *, alive: Callable[[], bool]) -> Any:
    """Ask the running supervisor and wait for its answer; None if it ends without one."""
    place = folder.path / "control"
    place.mkdir(exist_ok=True)
    path = place / f"{time.time_ns()}-{uuid.uuid4().hex[:8]}.json"
    answer = path.with_suffix(".answer")
    write_atomically(path, json.dumps(body).encode())
    deadline = time.monotonic() + _PATIENCE
    try:
        while time.monotonic() < deadline:
            with contextlib.suppress(FileNotFoundError):
                return json.loads(answer.read_bytes())
            if not alive() and not answer.exists():
                return None
            time.sleep(0.02)
    finally:
        path.unlink(missing_ok=True)
        answer.unlink(missing_ok=True)
    raise PoolUnreachable(
        f"the local pool of {folder.label} did not answer within {_PATIENCE:.0f} s",
        remedy="asking again is safe",
    )
