"""The reader: every date style, every kind of damage."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.errors import EventLogError
from headway.events import Event, EventParser, EventType, Expr, read_log

quick = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def event(
    text: str, when: str = "2026-11-15 22:19:56", number: str = "000", ident: str = "1.0.0"
) -> bytes:
    return f"{number} ({ident}) {when} {text}\n...\n".encode()


ONE, TWO, THREE = (event(f"Job submitted from host: <{n}>", ident=f"1.{n}.0") for n in range(3))


def events(data: bytes, reference: float | None = None) -> list[Event]:
    return EventParser(reference).feed(data)


def procs(data: bytes) -> list[int]:
    return [event.proc for event in events(data)]


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This machine is in Berlin."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def utc(*moment: int) -> float:
    return datetime(*moment, tzinfo=timezone.utc).timestamp()  # type: ignore[misc,arg-type]


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ("2026-11-15 22:19:56", utc(2026, 11, 15, 21, 19, 56)),
        ("2026-07-15 22:19:56", utc(2026, 7, 15, 20, 19, 56)),
        ("2026-11-15T22:19:56", utc(2026, 11, 15, 21, 19, 56)),
        ("2026-11-15 22:19:56.125", utc(2026, 11, 15, 21, 19, 56) + 0.125),
        ("2026-11-15 22:19:56Z", utc(2026, 11, 15, 22, 19, 56)),
        ("2026-11-15T22:19:56.500Z", utc(2026, 11, 15, 22, 19, 56) + 0.5),
        ("2026-11-15 22:19:56-06:00", utc(2026, 11, 16, 4, 19, 56)),
        ("2026-11-15 22:19:56+0530", utc(2026, 11, 15, 16, 49, 56)),
        ("11/15 22:19:56", utc(2026, 11, 15, 21, 19, 56)),
        ("11/15 22:19:56.250", utc(2026, 11, 15, 21, 19, 56) + 0.25),
        ("11/21 22:19:56", utc(2025, 11, 21, 21, 19, 56)),
        ("02/29 12:00:00", utc(2024, 2, 29, 11, 0, 0)),
    ],
)
@pytest.mark.usefixtures("berlin")
def test_dates(when: str, expected: float) -> None:
    (found,) = events(event("x", when), reference=utc(2026, 11, 20, 0, 0, 0))
    assert found.time == expected
    assert found.text == "x"
    assert found.when.timestamp() == expected


def years(path: Path) -> list[int]:
    return [time.localtime(found.time).tm_year for found in read_log(path).events]


def test_new_year_without_years(tmp_path: Path) -> None:
    path = tmp_path / "log"
    dates = [
        "11/30 10:00:00",
        "12/31 23:59:59",
        "01/01 00:00:01",
        "12/31 23:59:59",
        "02/03 01:01:01",
    ]
    path.write_bytes(b"".join(event("x", date) for date in dates))
    os.utime(path, (0, utc(2025, 2, 4, 0, 0, 0)))
    assert years(path) == [2024, 2024, 2025, 2024, 2025]
    # A copy, touched long after: still in order, and as late as can be.
    os.utime(path, (0, utc(2026, 12, 24, 0, 0, 0)))
    assert years(path) == [2025, 2025, 2026, 2025, 2026]


@pytest.mark.parametrize("when", ["2026-13-01 00:00:00", "2026-02-30 00:00:00", "00/00 00:00:00"])
def test_a_date_that_is_none_is_skipped_and_counted(when: str) -> None:
    parser = EventParser()
    bad = event("x", when)
    assert [e.proc for e in parser.feed(ONE + bad + TWO)] == [0, 1]
    (skip,) = parser.skipped
    assert (skip.offset, skip.length, skip.why) == (len(ONE), len(bad) - 5, "an impossible date")


def test_damage() -> None:
    assert procs(ONE + b"\n\n" + TWO) == [0, 1]
    assert procs(b"\xef\xbb\xbf" + ONE + TWO) == [0, 1]
    assert procs((ONE + TWO).replace(b"\n", b"\r\n")) == [0, 1]
    assert procs(ONE + TWO.replace(b"\n", b"\r\n") + THREE) == [0, 1, 2]
    assert procs(ONE + b"<<<<<<< HEAD\n" + TWO + b"=======\n" + THREE) == [0, 1, 2]
    assert procs(ONE + b"\0" * 512 + TWO) == [0, 1]
    assert procs(b"middle of an event\n\tmore\n...\n" + ONE) == [0]
    assert procs(b"...\n" + ONE + b"...\n...\n" + TWO) == [0, 1]
    assert procs(b"\tbody of a rotated event\n...\n") == []
    assert [found.body for found in events(ONE + b"...\n" + TWO)] == [(), ()]
    assert [found.body for found in events(ONE + b"...\n")] == [()]


def test_torn_events_give_way_to_whole_ones() -> None:
    torn = b"005 (1.7.0) 2026-11-15 22:19:56 Job terminated.\n\t(1) Norm"
    for gap in (b"\n", b"\0\0\0", b"\r\n"):
        parser = EventParser()
        data = ONE + torn + gap + TWO
        assert [e.proc for e in parser.feed(data)] == [0, 1]
        assert not parser.pending
        (skip,) = parser.skipped
        assert (skip.offset, skip.why) == (len(ONE), "an event without an end")
        assert skip.length == len(torn + gap)


def test_skips_tell_where() -> None:
    parser = EventParser()
    parser.feed(ONE + b"stray\n" + TWO + b"\n \n" + THREE)
    (skip,) = parser.skipped
    assert (skip.offset, skip.length, skip.why) == (len(ONE), 6, "no event")
    assert parser.offset == len(ONE + b"stray\n" + TWO + b"\n \n" + THREE)


def test_latin_1_and_unknown_numbers() -> None:
    latin, unknown, future = events(
        event("x").replace(b"x", "é".encode("latin-1"))
        + event("what is this", number="199")
        + event("y", number="888", ident="1.-01.-01")
    )
    assert latin.text == "é"
    assert unknown.number == 199
    assert (future.number, future.proc, future.subproc) == (888, -1, -1)


def test_an_unterminated_event_waits() -> None:
    parser = EventParser()
    data = ONE + TWO
    for at in range(len(ONE), len(data)):
        parser = EventParser()
        assert [e.proc for e in parser.feed(data[:at])] == [0]
        assert (parser.offset, parser.pending) == (len(ONE), at - len(ONE))
        assert [e.proc for e in parser.feed(data[at:])] == [1]
        assert (parser.offset, parser.pending, parser.skipped) == (len(data), 0, [])


def test_endless_garbage_does_not_pile_up() -> None:
    parser = EventParser()
    for _ in range(20):
        assert parser.feed(b"\0" * (1 << 20)) == []
    assert parser.pending < 5 << 20
    assert [e.proc for e in parser.feed(b"\n" + ONE)] == [0]
    assert [(skip.offset, skip.length) for skip in parser.skipped] == [(0, 20 << 20)]


def test_read_log_takes_a_last_event_whose_newline_an_editor_took(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes((ONE + TWO)[:-1])
    assert len(read_log(tmp_path / "log").events) == 2
    (tmp_path / "log").write_bytes((ONE + TWO)[:-2])
    log = read_log(tmp_path / "log")
    assert len(log.events) == 1
    assert log.offset == len(ONE)


def test_a_log_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(EventLogError, match="cannot be read: No such file") as caught:
        read_log(tmp_path / "none")
    assert "path" in caught.value.remedy


pieces = st.sampled_from(
    [
        ONE,
        TWO,
        THREE,
        ONE[:30],
        TWO[7:],
        b"\n",
        b"\r\n",
        b"...\n",
        b"...\r\n",
        b"\0\0",
        b"stray",
        b"...",
    ]
)


@given(
    st.lists(st.one_of(pieces, st.binary(max_size=12)), max_size=12), st.lists(st.integers(0, 400))
)
@quick
def test_pieces_do_not_matter(parts: list[bytes], cuts: list[int]) -> None:
    data = b"".join(parts)
    whole = EventParser(0)
    expected = whole.feed(data)
    pieced = EventParser(0)
    found: list[Event] = []
    bounds = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in pairwise(bounds):
        found += pieced.feed(data[start:end])
    assert found == expected
    assert (pieced.offset, pieced.pending) == (whole.offset, whole.pending)
    assert sum(s.length for s in pieced.skipped) == sum(s.length for s in whole.skipped)


@given(st.data())
@quick
def test_whole_events_survive_any_damage_elsewhere(data: st.DataObject) -> None:
    junk = data.draw(
        st.lists(st.binary(max_size=30).filter(lambda b: b"..." not in b), min_size=4, max_size=4)
    )
    log = b"\n".join(
        [junk[0], ONE + junk[1], b"...\n" + TWO + junk[2], b"...\n" + THREE + junk[3], b"...\n"]
    )
    assert procs(log) == [0, 1, 2]


def test_accessors_of_what_an_event_does_not_have() -> None:
    for number in range(50):
        bare = Event(number, 1, 0, 0, 0.0)
        for name in ("return_value", "signal", "codes", "code", "subcode", "transfer", "agent"):
            assert getattr(bare, name) is None
        for name in ("usage", "sent", "received"):
            assert getattr(bare, name) is None
        for name in ("reason", "site", "slot", "host", "attributes", "resources", "sizes"):
            assert not getattr(bare, name)
        assert not bare.requeued


@given(
    st.integers(0, 50),
    st.text(max_size=40),
    st.lists(
        st.one_of(st.text(max_size=40), st.sampled_from(["\tReason: ", "\tCode 1 Subcode 2"]))
    ),
)
@quick
def test_accessors_never_raise(number: int, text: str, body: list[str]) -> None:
    made = Event(number, 1, 0, 0, 0.0, text, tuple(body))
    for name in dir(Event):
        if not name.startswith("_"):
            getattr(made, name)


def test_accessors(logs: Path) -> None:
    found = {event.number: event for event in read_log(logs / "starter_kill.log").events}
    assert found[22].reason == "Socket between submit and execute hosts closed unexpectedly"
    assert found[24].reason == "Job not found at execution machine"
    (gpu,) = (e for e in read_log(logs / "gpu.log").events if e.number == EventType.EXECUTE)
    assert gpu.attributes["GPUs"] == 1
    assert gpu.attributes["AvailableGPUs"] == Expr("{ GPUs_GPU_a0223334 }")
    assert isinstance(gpu.attributes["AvailableGPUs"], Expr)
    error = next(e for e in read_log(logs / "memory.log").events if e.number == 21)
    assert error.reason == "memory usage exceeded request_memory"
    assert error.codes == (21, 102)
    assert error.slot == "slot1_3@glidein_2@127-0-0-1.pool.test"


def test_agent_lines() -> None:
    (line,) = events(
        event(
            "headway nonce=5f3a phase=stage-in state=begin path=a%20b%0A%C3%A9 nonce=evil =x loose",
            number="008",
        )
    )
    assert line.agent == {"nonce": "5f3a", "phase": "stage-in", "state": "begin", "path": "a b\né"}
    for text in ("", "headwayx nonce=1", "my headway nonce=1"):
        assert events(event(text, number="008"))[0].agent is None
    assert events(event("headway nonce=1", number="007"))[0].agent is None


def test_importing_is_cheap() -> None:
    script = "import sys, headway.events; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", script], text=True).split()
    assert not {"pydantic", "rich", "htcondor2", "numpy", "asyncio", "headway.spec"} & set(loaded)
