"""What the tests of event logs share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headway.events import Event, EventParser, EventWriter, Jobs, JobState

LOGS = Path(__file__).parent / "logs"


@pytest.fixture
def logs() -> Path:
    """The folder of logs that a real pool wrote."""
    return LOGS


@pytest.fixture
def judge() -> Callable[[Path], list[dict[str, Any]]]:
    """HTCondor's own reader: the attributes of each event of a log."""
    htcondor2 = pytest.importorskip("htcondor2")

    def read(path: Path) -> list[dict[str, Any]]:
        with htcondor2.JobEventLog(str(path)) as log:
            return [dict(event) | {"type": int(event.type)} for event in log.events(stop_after=0)]

    return read


@pytest.fixture
def written(tmp_path: Path) -> Callable[[Callable[[EventWriter], None]], list[Event]]:
    """The events that our own reader finds in what a function has written."""

    def write(act: Callable[[EventWriter], None]) -> list[Event]:
        path = tmp_path / "written.log"
        path.unlink(missing_ok=True)
        with EventWriter(path) as writer:
            act(writer)
        parser = EventParser()
        events = parser.feed(path.read_bytes())
        assert not parser.skipped
        assert not parser.pending
        return events

    return write


@pytest.fixture
def job(
    written: Callable[[Callable[[EventWriter], None]], list[Event]],
) -> Callable[[Callable[[EventWriter], None]], JobState]:
    """The state of job 1.0 after what a function has written."""
    return lambda act: Jobs(written(act)).by_id[1, 0]
