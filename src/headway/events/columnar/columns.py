"""Events as columns: what accounts of millions of events are made from."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from headway.events.skip import Skip

#: A whole number that the event does not have.
NONE = -(2**31)

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]


@dataclass
class Usage:
    """What 004, 005 and the agent's lines measured; NaN: not said. `row` is the event's row."""

    row: Longs
    memory_used: Floats  # MB
    memory_asked: Floats
    disk_used: Floats  # KB
    disk_asked: Floats
    cpus_used: Floats
    cpus_asked: Floats
    gpus_asked: Floats
    cpu_seconds: Floats  # user and system, of this attempt
    sent: Floats  # bytes of this attempt
    received: Floats
    execute: Floats  # HTCondor's TimeExecute, seconds
    busy: Floats  # HTCondor's TimeSlotBusy, seconds
    staged: Floats  # bytes that the agent staged in by itself


@dataclass
class Columns:
    """One row an event, in the order of the logs; see `Event` for what the words mean.

    Text columns hold places in `strings`, -1 for none. Events about no job (a negative proc, an
    execution point's own numbers) have rows too.
    """

    number: NDArray[np.int16]
    cluster: Longs
    proc: Longs
    subproc: Longs
    time: Longs  # microseconds since the epoch
    kind: Bytes  # `Kind`
    code: Ints  # of 004, 012, 021; NONE
    subcode: Ints
    value: Ints  # the return value: 005, 004 of a requeued job; NONE
    signal: Ints
    site: Ints  # GLIDEIN_ResourceName, as 001 and 028 name it
    slot: Ints  # the slot's name: 001, 021, 028
    host: Ints  # the machine's name or address: 001, 040
    user: Ints  # 028's Owner or User
    text: Ints  # the reason; the nonce of an agent's line
    log: Ints  # place in `logs`
    file: Ints  # place in `files`
    offset: Longs  # of the event in its (decompressed) file
    usage: Usage
    strings: list[str] = field(default_factory=list)
    #: The files that were read, in order; `logs` names each chain of rotated files by its newest.
    files: list[str] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)
    owners: list[str] = field(default_factory=list)  # of each log: who owns the file, or ""
    skipped: list[tuple[str, Skip]] = field(default_factory=list)  # file, what
    unread: list[tuple[str, str]] = field(default_factory=list)  # file, why
    #: What lies behind the last complete event of a file: an event that is still being written.
    unfinished: list[tuple[str, Skip]] = field(default_factory=list)
    #: Files whose dates have no year, where nothing tells for sure which one is meant.
    yearless: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.number)


def column_names() -> list[str]:
    """The names of the per-event columns."""
    return [f.name for f in fields(Columns) if f.name not in _REST]


_REST = {
    "usage",
    "strings",
    "files",
    "logs",
    "owners",
    "skipped",
    "unread",
    "unfinished",
    "yearless",
}
