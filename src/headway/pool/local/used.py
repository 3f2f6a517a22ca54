"""What an attempt has used, as the event log tells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.events import Resource, Usage
from headway.pool import folder
from headway.pool.local.machine import Request


@dataclass
class Used:
    """What an attempt has used so far."""

    busy: float = 0.0  # seconds that the slot was taken
    executed: float = 0.0  # of which the agent ran
    user: float = 0.0
    system: float = 0.0
    peak_memory: int = 0
    scratch_bytes: int = 0
    bytes_in: int = 0
    bytes_home: int = 0
    gpus: tuple[str, ...] = ()

    @classmethod
    def recorded(cls, record: Mapping[str, Any]) -> Used:
        """As far as the agent's own record knows it."""
        found = record["segments"] if record else []
        seconds = sum(number(s, "end") - number(s, "begin") for s in found if number(s, "end"))
        return cls(
            busy=max(0.0, seconds),
            executed=max(0.0, seconds),
            user=sum(number(segment, "cpu_user") for segment in found),
            system=sum(number(segment, "cpu_system") for segment in found),
            peak_memory=int(max((number(segment, "max_rss") for segment in found), default=0)),
        )

    def in_log(self, request: Request) -> dict[str, Any]:
        """The same as the event log has it."""
        cpus = (self.user + self.system) / self.executed if self.executed > 0 else 0.0
        memory, disk = _mebibytes(request.memory), _kibibytes(request.disk)
        resources = {
            "Cpus": Resource(round(cpus, 2), request.cpus, request.cpus),
            "Disk": Resource(_kibibytes(self.scratch_bytes), disk, disk),
            "GPUs": Resource(None, request.gpus or None, request.gpus, self.gpus),
            "Memory": Resource(_mebibytes(self.peak_memory), memory, memory),
            "TimeExecute": Resource(round(self.executed)),
            "TimeSlotBusy": Resource(round(self.busy)),
        }
        return {
            "usage": Usage(round(self.user), round(self.system)),
            "sent": self.bytes_home,
            "received": self.bytes_in,
            "resources": resources,
        }


def number(segment: Mapping[str, Any], key: str) -> float:
    """A number of a record that a command could have written to."""
    value = segment.get(key)
    return float(value) if isinstance(value, (int, float)) and 0 <= value < 1e15 else 0.0


def _mebibytes(size: int) -> int:
    return -(-size // 2**20)


def _kibibytes(size: int) -> int:
    return -(-size // 2**10)


def read_record(attempt: Path) -> dict[str, Any]:
    """The record that an agent left in its attempt's folder; empty: there is none to be read."""
    record = folder.read_record(attempt)
    segments = record.get("segments")
    kept = [s for s in segments if isinstance(s, dict)] if isinstance(segments, list) else []
    return {**record, "segments": kept} if record else {}
