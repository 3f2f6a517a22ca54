"""Columns made by hand: the events of the accounting's tests without a log around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from headway.events.columnar.columns import NONE, Columns, UsageColumns, column_names
from headway.events.event import AGENT_KINDS, BY_NUMBER, Kind
from headway.events.format import EventType

_NUMBERS = {kind: int(number) for number, kind in BY_NUMBER.items()} | {
    Kind.SUCCEEDED: 5,
    Kind.FAILED: 5,
    Kind.EVICTED: 4,
    Kind.TRANSFER_FAILED: 4,
    Kind.REQUEUED: 4,
    Kind.OTHER: 33,
    Kind.COMMON_STARTED: 47,
    Kind.COMMON_FINISHED: 47,
    Kind.COMMON_MAPPED: 28,
}


@dataclass(frozen=True)
class Made:
    """One event; times in seconds."""

    time: float
    kind: Kind
    proc: int = 0
    cluster: int = 1
    code: int = NONE
    subcode: int = NONE
    value: int = NONE
    text: str = ""
    site: str = ""
    slot: str = ""
    host: str = ""
    log: int = 0

    @property
    def number(self) -> int:
        if Kind.INPUT_QUEUED <= self.kind <= Kind.OUTPUT_FINISHED:
            return int(EventType.FILE_TRANSFER)
        if self.kind in AGENT_KINDS:
            return int(EventType.GENERIC)
        return _NUMBERS[self.kind]


def made_columns(events: Sequence[Made]) -> Columns:
    """The columns that a log with these events would give."""
    strings: list[str] = []

    def place(text: str) -> int:
        if not text:
            return -1
        if text not in strings:
            strings.append(text)
        return strings.index(text)

    values: dict[str, list[int]] = {name: [] for name in column_names()}
    for at, event in enumerate(events):
        row = {
            "number": event.number,
            "cluster": event.cluster,
            "proc": event.proc,
            "time": round(event.time * 1e6),
            "kind": int(event.kind),
            "code": event.code,
            "subcode": event.subcode,
            "value": event.value,
            "signal": NONE,
            "site": place(event.site),
            "slot": place(event.slot),
            "host": place(event.host),
            "user": -1,
            "text": place(event.text),
            "log": event.log,
            "offset": at,
        }
        for name, column in values.items():
            column.append(row.get(name, 0))
    types = {
        "number": np.int16,
        "kind": np.uint8,
        **dict.fromkeys(("cluster", "proc", "subproc", "time", "offset"), np.int64),
    }
    arrays: dict[str, Any] = {
        name: np.array(v, types.get(name, np.int32)) for name, v in values.items()
    }
    empty: dict[str, Any] = {field.name: np.zeros(0) for field in fields(UsageColumns)} | {
        "row": np.zeros(0, np.int64)
    }
    logs = [f"log{n}" for n in range(max((e.log for e in events), default=0) + 1)]
    return Columns(
        **arrays, usage=UsageColumns(**empty), strings=strings, files=logs, logs=logs, owners=[]
    )
