"""The audit: what heal decided, on what evidence, what it did, and how that ended.

Append-only JSON lines. A line is on the disk before what it tells of is done. A line that a kill or
a full disk cut short is closed off and passed over; it was never acted upon.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headway.errors import HeadwayError
from headway.node.locks import lock
from headway.pool.owners import open_own, open_plain

FORMAT = 1


class AuditError(HeadwayError):
    """The audit cannot be read or written, or another heal has it."""


class Audit:
    """One audit, open for one heal; another one that asks for it is told so."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # what it says is done: nobody else may have written it, and it must lead nowhere else
            self._fd = open_own(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise _failed(path, error) from error
        try:
            self._lock = lock(self._fd)
        except BlockingIOError:
            os.close(self._fd)
            raise AuditError(
                f"another heal is at work with {path}",
                remedy="one is enough; end it first, or look at what it does with"
                " `headway heal --audit`",
            ) from None
        except OSError as error:
            os.close(self._fd)
            raise _failed(path, error) from error
        try:
            self._mend()
            self.records = list(read(path))
            if not any(record.get("kind") == "audit" for record in self.records):
                first = {"kind": "audit", "id": uuid.uuid4().hex[:12], "format": FORMAT}
                self.records += self.write(first)
        except BaseException:
            self.close()
            raise

    def write(self, *records: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Append lines and have them on the disk; returns them as they were written."""
        now = round(time.time(), 3)
        stamped = [{"time": now, **record} for record in records]
        text = "".join(json.dumps(record, default=str) + "\n" for record in stamped)
        data = text.encode("ascii")  # what a log says cannot act on a terminal from here
        try:
            while data:
                data = data[os.write(self._fd, data) :]
            os.fsync(self._fd)
        except OSError as error:
            # What did get there must not become one line with what comes next.
            with contextlib.suppress(OSError):
                self._mend()
            raise _failed(self.path, error) from error
        return stamped

    def close(self) -> None:
        """Let go of it."""
        if self._fd >= 0:
            self._lock.release()
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Audit:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _mend(self) -> None:
        """Close off a last line that has no end."""
        size = os.fstat(self._fd).st_size
        if size and os.pread(self._fd, 1, size - 1) != b"\n":
            os.write(self._fd, b"\n")


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of an audit; what is none is passed over."""
    try:
        with open(open_plain(path), "rb") as file:
            for line in file:
                record = _record(line)
                if record is not None:
                    yield record
    except FileNotFoundError:
        return
    except OSError as error:
        raise _failed(path, error) from error


def _record(line: bytes) -> dict[str, Any] | None:
    if not line.endswith(b"\n"):
        return None  # being written, or cut short
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and _makes_sense(record) else None


def _makes_sense(record: Mapping[str, Any]) -> bool:
    """Whether the fold can take it; a damaged line must not stop heal for ever."""
    from headway.heal.state import Ending, Intent

    try:
        if record["kind"] == "intent":
            Intent.of(record["intent"])
        elif record["kind"] == "outcome":
            Ending(record["how"])
        float(record.get("time", 0.0))
    except (KeyError, TypeError, ValueError):
        return False
    return True


def _failed(path: Path, error: OSError) -> AuditError:
    return AuditError(
        f"the audit {path} cannot be written: {error.strerror or error}",
        remedy="heal does nothing that it cannot write down; is there space and permission?",
    )
