"""The quick reader: the same events and the same skips as the careful one, on every input."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples_of import examples

from headway.events import Columns, Event, EventParser, columns_of
from headway.events.clock import Clock
from headway.events.columnar.assemble import File, assemble
from headway.events.columnar.columns import NONE, column_names
from headway.events.columnar.scan import Scanner
from headway.events.opening import Skip

LOGS = sorted((Path(__file__).parent / "logs").glob("*.log"))
COMMON = sorted((Path(__file__).parent / "common").glob("*.log"))
NOW = 1_800_000_000.0
TEXTS = ("site", "slot", "host", "user", "text")

quick = settings(
    max_examples=examples(100),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


class Recording(EventParser):
    """The careful reader, with where it found its events."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.offsets: list[int] = []

    def _event(self, match: re.Match[bytes], chunk: bytes, end: int) -> Event | None:
        event = super()._event(match, chunk, end)
        if event:
            self.offsets.append(end - len(b"\n...\n") - len(chunk) + match.start())
        return event


def careful(data: bytes, modified: float = NOW) -> Columns:
    clock: Clock | None = Clock(modified)
    while clock:
        parser = Recording(clock)
        events = parser.feed(data)
        events += parser.close()
        clock = clock.again()
    return columns_of(events, offsets=parser.offsets, skipped=parser.skipped)


def quickly(data: bytes, block: int = 1 << 20, modified: float = NOW) -> Columns:
    scanner = Scanner()
    for start in range(0, len(data), block):
        scanner.feed(data[start : start + block])
    scanner.close()
    return assemble([scanner.arrays()], [File("", modified=modified)], [""], [""])


def table(columns: Columns) -> dict[str, Any]:
    """All that columns say, in Python's own types."""
    found: dict[str, Any] = {name: getattr(columns, name).tolist() for name in column_names()}
    strings = [*columns.strings, None]
    for name in TEXTS:
        found[name] = [strings[place] for place in found[name]]
    for field in fields(columns.usage):
        values = getattr(columns.usage, field.name)
        found[f"usage {field.name}"] = np.where(np.isnan(values), -1, values).tolist()
    return found | {"skipped": columns.skipped}


def assert_same(data: bytes, *blocks: int, modified: float = NOW) -> Columns:
    expected = careful(data, modified)
    wanted = table(expected)
    for block in blocks or (1 << 20,):
        found = table(quickly(data, block, modified))
        for name, values in wanted.items():
            assert found[name] == values, (name, block)
    return expected


def event(
    text: str = "x", when: str = "2026-11-15 22:19:56", number: str = "000", ident: str = "1.0.0"
) -> bytes:
    return f"{number} ({ident}) {when} {text}\n...\n".encode()


ONE, TWO, THREE = (event(f"Job submitted from host: <{n}>", ident=f"1.{n}.0") for n in range(3))
TORN = b"005 (1.7.0) 2026-11-15 22:19:56 Job terminated.\n\t(1) Norm"
TERMINATED = next(
    data[data.index(b"005 (") :]
    for data in (path.read_bytes() for path in LOGS)
    if b"\n005 (" in data
)


@pytest.mark.parametrize("path", [*LOGS, *COMMON], ids=lambda path: path.stem)
def test_real_logs(path: Path) -> None:
    data = path.read_bytes()
    columns = assert_same(data, 1 << 20, 4096, 997, 64)
    assert len(columns) == data.count(b"\n...\n")
    assert columns.skipped == []


def test_all_real_logs_as_one() -> None:
    assert_same(b"".join(path.read_bytes() for path in LOGS), 1 << 20, 10_007)


CASES: dict[str, bytes] = {
    "nothing": b"",
    "blank": b"\n\n \r\n",
    "blank lines": ONE + b"\n\n" + TWO + b"\n \n",
    "merge conflict": ONE + b"<<<<<<< HEAD\n" + TWO + b"=======\n" + THREE + b">>>>>>> x\n",
    "interleaved": ONE[:-4] + TWO + b"...\n" + THREE,
    "torn": ONE + TORN + b"\n" + TWO,
    "torn in place": ONE + TORN + TWO + THREE,
    "nul blocks": ONE + b"\0" * 512 + TWO + TORN + b"\0\0" + THREE,
    "nul inside": ONE + event("a\0b\n\tc\0") + TWO,
    "bom": b"\xef\xbb\xbf" + ONE + TWO,
    "bom inside": ONE + b"\xef\xbb\xbf" + TWO,
    "start in the middle": b"f an event\n\tmore\n...\n" + ONE,
    "start with a mark": b"...\n" + ONE,
    "start with a newline": b"\n...\n" + ONE,
    "marks in a row": ONE + b"...\n" * 5 + TWO + b"...\n...\n" + THREE + b"...\r\n...\n" * 3 + ONE,
    "marks that are none": ONE + event("a\n....\n ...\n...x\n\t...") + TWO,
    "no end": ONE + TORN,
    "no last newline": ONE + TWO[:-1],
    "half a mark": ONE + TWO[:-2],
    "latin-1": ONE
    + event("x", number="012").replace(b"x", b"Job was held.\n\tcaf\xe9\n\tCode 1 Subcode 2"),
    "utf-8": event("Job was aborted.\n\tby Jürgen \u2028 \u00a0", number="009") + TWO,
    "utf-8 and latin-1": event("é\n\té", number="009")
    + event("x\n\ty", number="009").replace(b"y", b"\xe9"),
    "unknown numbers": event(number="199")
    + event(number="888", ident="1.-01.-01")
    + event(number="039"),
    "crlf": (ONE + TERMINATED + TWO).replace(b"\n", b"\r\n"),
    "some crlf": ONE + TWO.replace(b"\n", b"\r\n") + THREE + b"a\rb\n" + TERMINATED,
    "crlf transfers": (
        event("Started transferring input files\n\tTransferring to host: <1.2.3.4>", number="040")
        + event("Finished transferring input files", number="040")
    ).replace(b"\n", b"\r\n"),
    "crlf last": (ONE + TWO).replace(b"\n", b"\r\n")[:-1],
    "hand-made cuts": ONE + TERMINATED[:200] + TERMINATED[300:] + TERMINATED[100:] + TWO,
    "header in a body": event("Job was held.\n012 (1.0.0) oh no\n\tCode 1 Subcode 2", number="012")
    + TWO,
    "header-like body": event("x\n123 (nothing\n\t456 (", number="012") + TWO,
    "dates": b"".join(
        event(when=when)
        for when in (
            "2026-11-15T22:19:56",
            "2026-11-15 22:19:56.125",
            "2026-11-15 22:19:56.123456789",
            "2026-11-15 22:19:56.1234567",
            "2026-11-15 22:19:56.12345678",
            "2026-11-15 22:19:56Z",
            "2026-11-15T22:19:56.500Z",
            "2026-11-15 22:19:56-06:00",
            "2026-11-15 22:19:56+0530",
            "2026-11-15 22:19:56.25+14:00",
            "2026-03-29 02:30:00",
            "2026-10-25 02:30:00",
            "2026-10-25 03:59:59",
            "2026-11-15 22:19:99",
            "1969-12-31 23:59:59",
            "0001-01-01 00:00:00",
            "9999-12-31 23:59:59",
        )
    ),
    "dates that are none": b"".join(
        ONE + event("x\n\ty", when=when, number="005")
        for when in (
            "2026-13-01 00:00:00",
            "2026-02-30 00:00:00",
            "0000-01-01 00:00:00",
            "2026-11-15 24:00:00",
            "2026-11-15 23:60:00",
            "02/30 10:00:00",
            "2026-11-15 10:00:00+9900",
            "2026-11-15 10:00:00+24:00",
            "2026-11-15 10:00:00.",
            "2026-11-15 10:00:00.1234567890",
            "2026-11-15 10:00:00Zx",
            "2026-11-15  10:00:00",
            "2026/11/15 10:00:00",
            "11/15 10:00",
        )
    ),
    "no years": b"".join(
        event(when=when)
        for when in (
            "11/30 10:00:00",
            "12/31 23:59:59.250",
            "01/01 00:00:01",
            "12/31 23:59:59",
            "02/29 01:01:01Z",
            "2028-03-01 10:00:00",
            "03/02T10:00:00",
            "02/30 10:00:00",
        )
    ),
    "no text": b"000 (1.0.0) 2026-11-15 22:19:56\n...\n001 (1.0.0) 2026-11-15 22:19:56\n\tx\n...\n",
    "odd ids": b"".join(
        event(ident=ident)
        for ident in (
            "12345678.123456789.0",
            "1234567890.0.0",
            "12345678901.0.0",
            "-1.-2.-3",
            "1..0",
            ".0.0",
            "1.0",
            "1.0.0.0",
            "1.0.x",
        )
    ),
    "almost headers": b"".join(
        ONE.replace(old, new, 1)
        for old, new in (
            (b"000 (", b"00a ("),
            (b"000 (", b"000("),
            (b") ", b")"),
            (b"2026-", b"2026:"),
            (b"22:19", b"22.19"),
            (b":56 ", b":5 "),
            (b":56 ", b":56x"),
            (b":56 ", b":56\t"),
        )
    ),
    "transfers": b"".join(
        event(text, number="040")
        for text in (
            "Entered queue to transfer input files",
            "Started transferring input files\n\tTransferring to host: <[::1]:9618?alias=a.b>",
            "Started transferring input filed",
            "Started transferring input files ",
            "Finished transferring output files\n\tSeconds in queue: 3",
            "Finished transferring input files\n\tTransferring to host: <1.2.3.4:9618>\n"
            "\tTransferring to host: <5.6.7.8>",
            "",
        )
    ),
    "addresses": b"".join(
        event(f"Job executing on host: {address}\n\tSlotName: a", number="001")
        + event(
            f"Started transferring input files\n\tTransferring to host: {address}", number="040"
        )
        for address in (
            "<1.2.3.4:5?addrs=1.2.3.4-5&alias=a.b>",
            "<1.2.3.4:5?addrs=1.2.3.4-5&alias=a.b&noUDP&sock=startd_1>",
            "<1.2.3.4:5?alias=a&alias=b>",
            "<1.2.3.4:5?x=1&alias=a&alias=b>",
            "<1.2.3.4:5?x=1&alias=&alias=b>",
            "<1.2.3.4:5&alias=a?alias=b>",
            "<1.2.3.4:5&alias=a>",
            "<1.2.3.4:5?xalias=a&yalias=b>",
            "<1.2.3.4:5?x=?alias=a&alias=b>",
            "<1.2.3.4:5?x=1&alias=a>>",
            "<<1.2.3.4:5?x=1&alias=<a>",
            "<1.2.3.4:5?x=1&alias=-a>",
            "<1.2.3.4:5?x=1&alias=é>",
            "<1.2.3.4:5?x=1&alias=a> ",
            "1.2.3.4:5?x=1&alias=a",
            "<?&alias=a>",
            "<>",
            "",
        )
    ),
    "executing": b"".join(
        event(text, number="001")
        for text in (
            "Job executing on host: <[2001:db8::1]:9618>",
            'Job executing on host: <1.2.3.4:5?addrs=1&alias=&x>\n\tSlotName: "slot1@x"',
            'Job executing on host: h:1\n GLIDEIN_ResourceName="A"\nGLIDEIN_ResourceName = \n'
            "\tSlotName: a\n\tSlotName: b",
            'Job executing\n\tGLIDEIN_ResourceName = "A\\"B"\n\tGLIDEIN_ResourceName = 3',
            'x\n\tGLIDEIN_ResourceNames = "A"\n\tnot GLIDEIN_ResourceName = "B"',
            "host: \x1b[31mred\n\tSlotName: " + "a" * 5000,
        )
    ),
    "ads": b"".join(
        event("Job ad information event triggered.\n" + text, number="028")
        for text in (
            'Owner = "ann"\nUser = "bob@pool"\nSlotName = "s"\nRemoteHost = "r"',
            'Owner = ""\nUser = "bob@pool"\nMachineAttrGLIDEIN_ResourceName0 = "SITE"',
            "\tOwner=undefined\nUser =bob\nRemoteHost = 3\nUserLog = 1",
            'RemoteHost = ""\nSlotName = "s"\nMachineAttrGLIDEIN_ResourceName0 = undefined',
            "SlotName =",
            'Owner = "a"b"\nUser = "c@d"\nSlotName = "s\\"t"\nRemoteHost = " r "',
            'Owner = "ann"\nOwner = "eve"\nUsers = "x"\nOwner.x = "y"\nOwnerX = "z"',
            ' Owner = "ann"\n\tUser = "bob@pool"\nSlotName = "s" \nRemoteHost = "',
            'User = "@pool"\nSlotName = "é"\nMachineAttrGLIDEIN_ResourceName0="A"',
            'Owner = " "\nUser = "bob@pool"\nMachineAttrGLIDEIN_ResourceName01 = "A"',
        )
    ),
    "reasons": b"".join(
        event("x\n" + text, number=number)
        for number in ("012", "021", "009", "013", "022", "024", "002", "007", "046")
        for text in (
            "",
            "\tReason unspecified",
            "\tReason unspecified\n\tCode 0 Subcode 0",
            "\tCode 1 Subcode 2",
            "\ta\n\tCode -1 Subcode 99999999999",
            "\ta\n\tb\n\tCode 3 Subcode -4",
            "\ta\n\tCode 3 Subcode 4 ",
            "\ta\n\tb",
            "\t" + "é" * 3000 + "\n\tCode 1 Subcode 1",
            "\t\x1f a \x1f\n\tCode 1 Subcode 1",
        )
    )
    + event("Job was held.", number="012")
    + b"".join(
        event(text + "\n\tx", number="021")
        for text in (
            "Error from starter on a on b::",
            "Error from starter on slot1@a:",
            "Error from starter on slot1@a : ",
            "Error from starter on : :",
            "Error from starter on ",
            "Error from starter on",
            "Warning from starter on é:",
        )
    ),
    "agents": b"".join(
        event(text, number="008")
        for text in (
            "headway nonce=5f phase=stage-in state=begin",
            "  headway nonce=5f phase=stage-in state=end bytes=12345",
            "headway nonce=5f phase=stage-in state=end bytes=1e5",
            "headway phase=run state=begin",
            "headway nonce=%41 phase=done exit=85",
            "headwayx nonce=1",
            "something else",
            "",
        )
    ),
}

ENDINGS = {
    "requeued": b"(0) CPU times=(0) Job terminated and was requeued",
    "killed": b"(1) Normal termination (return value 0)"
    b"=(0) Abnormal termination (signal 9)\n\t(0) No core file",
    "odd value": b"return value 0=return value -99999999999",
    "decimals": b"  -  Run Bytes=.5  -  Run Bytes",
    "long cpu": b"Usr 0 00:00:00=Usr 12 23:59:59",
    "odd cpu": b"Usr 0 00:00:00=Usr 0 0:00:00",
    "no bytes": b"Run Bytes=Ran Bytes",
    "no table": b"Partitionable=Particle",
    "wide table": b"Usage  Request=  Usage     Request",
    "numbers": b"Disk (KB)            :       =Disk (KB)            :   1.5e3",
    "junk": b"Memory (MB)          :=Memory (MB)          :   x",
    "cut": b"   Disk (KB) =Disk",
    "twice": b"   Cpus   =   Disk   ",
    "gpus": b"   GPUs                 :         =   GPUs                 :        2",
    "assigned": b"Allocated \n=Allocated Assigned\n",
    "tag": b"TimeSlotBusy"
    b"=Job terminated of its own accord at 2026-11-15T20:19:56Z with exit-code 0.\n\tTimeSlotBusy",
}
BOTH = b"".join(path.read_bytes() for path in LOGS if path.stem in ("vacate", "gpu", "selfckpt"))


@pytest.mark.parametrize("name", CASES)
def test_crafted_cases(name: str) -> None:
    data = CASES[name]
    assert_same(data, *(range(1, len(data)) if len(data) < 300 else (1 << 20, 101, 7)))
    assert_same(b"\n" + data + ONE)


@pytest.mark.parametrize("name", ENDINGS)
def test_endings_of_all_shapes(name: str) -> None:
    old, _, new = ENDINGS[name].partition(b"=")
    assert old in BOTH
    assert_same(BOTH.replace(old, new))
    assert_same(BOTH.replace(old, new, 1))


def test_an_event_that_has_no_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("read", "columnar.scan"):
        monkeypatch.setattr(f"headway.events.{module}.EVENT_LIMIT", 300)
    long = ONE[:-5] + b"\n\tx" * 200
    for gap in (b"\n...\n", b"\n...\r\n", b"\n...x", b"\0" * 995 + b"\n...\n"):
        for extra in range(6):
            data = TWO + long + b"y" * extra + gap + THREE + b"z" * 1000
            columns = assert_same(data, 1 << 20, 50, 7, 1)
            assert columns.skipped


def test_zone_of_a_hint() -> None:
    told = (
        b"\n\n\tJob terminated of its own accord at 2026-11-15T%02d:19:56Z with exit-code 0.\n...\n"
    )
    for hours in (22, 21, 4, 3):
        data = TERMINATED.replace(b"\n...\n", told % hours)
        assert_same(data * 3, 1 << 20, 100)
        yearless = re.sub(rb"\d{4}-(\d\d)-(\d\d) (?=\d\d:)", rb"\1/\2 ", data)
        assert_same(yearless * 3, 1 << 20, 100)
        assert_same(yearless + TORN + b"\n" + ONE + CASES["no years"])


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe"])
def test_daylight_saving_time(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        times = [
            f"2026-{day} {h:02d}:{m:02d}:00" for day in DAYS for h in range(4) for m in MINUTES
        ]
        assert_same(b"".join(event(when=when) for when in times))
    finally:
        monkeypatch.undo()
        time.tzset()


DAYS = ("03-08", "03-29", "04-05", "10-04", "10-25", "11-01")
MINUTES = (0, 1, 29, 30, 59)


def test_truncated_at_every_offset(logs: Path) -> None:
    data = (logs / "bad_exec.log").read_bytes()
    for end in range(len(data)):
        assert_same(data[:end], 1 << 20)


def test_begun_at_every_offset(logs: Path) -> None:
    data = (logs / "exec_duration.log").read_bytes()
    for start in range(len(data)):
        assert_same(data[start:], 1 << 20)


SMALL = [path.read_bytes() for path in LOGS if path.stat().st_size < 3000]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(st.sampled_from(SMALL)))
    for _ in range(draw(st.integers(1, 8))):
        at = draw(st.integers(0, len(data)))
        junk = draw(
            st.one_of(
                st.binary(max_size=8),
                st.sampled_from(
                    [b"\n", b"\n...\n", b"...\n", b"\r\n", b"\0\0", b"\t", ONE, ONE[:40]]
                ),
            )
        )
        data[at : at + draw(st.integers(0, 12))] = junk
    return bytes(data)


@given(damaged(), st.integers(1, 500))
@quick
def test_damaged_logs(data: bytes, block: int) -> None:
    assert_same(data, 1 << 20, block)


BODIES = [
    b"\n" + chunk + b"\n...\n"
    for data in (path.read_bytes() for path in LOGS)
    for chunk in data.split(b"\n...\n")
    if chunk[:3] in (b"001", b"004", b"005", b"012", b"021", b"028", b"040")
]
SIGNS = [bytes([byte]) for byte in b' \t\n0123456789:.,-()<>?&="xR\x0b\x1c\x85\xa0\xe9']


@given(
    st.lists(
        st.tuples(
            st.sampled_from(BODIES),
            st.lists(
                st.tuples(
                    st.floats(0, 1, exclude_max=True),
                    st.integers(0, 2),
                    st.sampled_from([*SIGNS, b"", "\u00a0".encode(), b"  ", b"\n\t"]),
                ),
                max_size=3,
            ),
        ),
        min_size=1,
        max_size=20,
    )
)
@quick
def test_bodies_that_are_almost_right(
    changed: list[tuple[bytes, list[tuple[float, int, bytes]]]],
) -> None:
    data = bytearray()
    for body, changes in changed:
        made = bytearray(body)
        for where, length, sign in changes:
            # Behind the header, as a rule: damaged headers have tests of their own.
            at = min(len(made), 50) + int(where * max(0, len(made) - 55))
            made[at : at + length] = sign
        data += made
    assert_same(bytes(data))


@given(st.data())
@quick
def test_two_writers_in_one_file(data: st.DataObject) -> None:
    one, two = (iter(data.draw(st.sampled_from(SMALL)).splitlines(keepends=True)) for _ in range(2))
    turns = data.draw(st.lists(st.tuples(st.booleans(), st.integers(1, 12)), max_size=30))
    mixed = b"".join(_taken(one if first else two, count) for first, count in turns)
    assert_same(mixed, 1 << 20, data.draw(st.integers(20, 300)))


def _taken(lines: Iterator[bytes], count: int) -> bytes:
    return b"".join(line for _, line in zip(range(count), lines, strict=False))


@given(
    st.lists(
        st.one_of(st.sampled_from([ONE, TWO, b"...\n", b"\n", b"..."]), st.binary(max_size=20))
    )
)
@quick
def test_noise(parts: list[bytes]) -> None:
    assert_same(b"".join(parts), 1 << 20, 3)


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_read_like_htcondor_does(path: Path, judge: Callable[[Path], list[dict[str, Any]]]) -> None:
    columns = quickly(path.read_bytes(), modified=path.stat().st_mtime)
    theirs = judge(path)
    assert columns.number.tolist() == [their["type"] for their in theirs]
    for row, their in enumerate(theirs):
        assert (columns.cluster[row], columns.proc[row]) == (their["Cluster"], their["Proc"])
        if their["type"] == 12:
            code, subcode = their["HoldReasonCode"], their["HoldReasonSubCode"]
            assert (columns.code[row], columns.subcode[row]) == (code, subcode)
        moment = datetime.fromisoformat(their["EventTime"]).timestamp()
        assert columns.time[row] == moment * 1_000_000


def test_numbers_that_are_too_large_are_clipped() -> None:
    columns = quickly(event("x\n\ta\n\tCode 99999999999 Subcode -99999999999", number="012"))
    assert columns.code.tolist() == [2**31 - 1]
    assert columns.subcode.tolist() == [NONE + 1]


def test_what_waits_behind_the_last_event() -> None:
    scanner = Scanner(1000)
    scanner.feed(ONE + TORN)
    scanner.close()
    assert scanner.pending == TORN
    assert scanner.offset == 1000 + len(ONE)
    part = scanner.arrays()
    assert part.columns["offset"].tolist() == [1000]
    assert part.skipped == []
    scanner.feed(b"\n" + TWO)
    skip = Skip(1000 + len(ONE), len(TORN) + 1, "an event without an end")
    assert scanner.arrays().skipped == [(0, skip)]
