"""Columns: what they say, from objects, from many files, and on several processors."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.errors import EventLogError
from headway.events import Columns, Event, columns_of, read_columns, read_log
from headway.events.columnar import workers
from headway.events.columnar.columns import NONE, column_names, frame, machine
from headway.events.event import Kind, kind_of
from headway.events.opening import Skip

ONE = b"000 (001.000.000) 2026-11-15 22:19:56 Job submitted from host: <1>\n...\n"
TEXTS = ("site", "slot", "host", "user", "text")


def table(columns: Columns) -> dict[str, Any]:
    found: dict[str, Any] = {name: getattr(columns, name).tolist() for name in column_names()}
    strings = [*columns.strings, None]
    for name in TEXTS:
        found[name] = [strings[place] for place in found[name]]
    for field in fields(columns.usage):
        values = getattr(columns.usage, field.name)
        found[f"usage {field.name}"] = np.where(np.isnan(values), -1, values).tolist()
    return found


def said(columns: Columns, name: str, row: int) -> str:
    place = int(getattr(columns, name)[row])
    return columns.strings[place] if place >= 0 else ""


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("<127.0.0.1:27315?addrs=127.0.0.1-27315&alias=node.pool.test>", "node.pool.test"),
        ("<127.0.0.1:27315?alias=a&noUDP>", "a"),
        ("<127.0.0.1:27315?addrs=1&alias=>", "127.0.0.1"),
        ("<128.105.1.2:9618>", "128.105.1.2"),
        ("<[2607:f388::1]:9618?addrs=x>", "2607:f388::1"),
        ("<[::1]:9618?alias=six>", "six"),
        ("2607:f388::1", "2607:f388::1"),
        ("node.pool.test:9618", "node.pool.test"),
        ("node.pool.test", "node.pool.test"),
        ("slot1@node", "slot1@node"),
        ("", ""),
    ],
)
def test_machine(host: str, name: str) -> None:
    assert machine(host) == name


def test_what_the_columns_say(logs: Path) -> None:
    events = read_log(logs / "fail_404.log").events
    columns = columns_of(events, file="x")
    assert columns.number.tolist() == [event.number for event in events]
    assert columns.time.tolist() == [round(event.time * 1e6) for event in events]
    assert columns.kind.tolist() == [int(kind_of(event)) for event in events]
    assert (columns.files, columns.logs, columns.owners) == (["x"], ["x"], [""])
    assert columns.offset.tolist() == [-1] * len(events)
    for row, event in enumerate(events):
        assert said(columns, "site", row) == event.site
        assert said(columns, "slot", row) == event.slot
        assert columns.code[row] == (NONE if event.code is None else event.code)
        assert columns.value[row] == (NONE if event.return_value is None else event.return_value)
        if event.number in (4, 12, 13, 21):
            assert said(columns, "text", row) == event.reason
    ended = [event for event in events if event.number in (4, 5)]
    assert [events[row] for row in columns.usage.row] == ended
    assert columns.usage.received.tolist() == [event.received for event in ended]
    assert columns.usage.memory_asked.tolist() == [e.resources["Memory"].request for e in ended]
    assert columns.usage.busy[-1] == ended[-1].resources["TimeSlotBusy"].usage


def test_users_and_agents() -> None:
    body = ('Owner = "ann"', 'User = "bob@pool.test"')
    line = "headway nonce=5f phase=stage-in state=end bytes=123"
    columns = columns_of(
        [
            Event(28, 1, 0, 0, 0.0, "Job ad information event triggered.", body),
            Event(28, 1, 0, 0, 0.0, "Job ad information event triggered.", body[1:]),
            Event(8, 1, 0, 0, 0.25, line),
            Event(8, 1, 0, 0, 0.25, line.replace("nonce", "once")),
            Event(12, 1, 0, 0, 0.25, "", ("\t\x1b[31m" + "é" * 9000, "\tCode 1 Subcode 2")),
        ]
    )
    assert [said(columns, "user", row) for row in range(3)] == ["ann", "bob", ""]
    assert [said(columns, "text", row) for row in range(4)] == ["", "", "5f", ""]
    assert columns.kind[2:4].tolist() == [Kind.ALIVE, Kind.OTHER]
    assert columns.usage.row.tolist() == [2]
    assert columns.usage.staged.tolist() == [123]
    assert columns.time[2] == 250_000
    reason = said(columns, "text", 4)
    assert "\x1b" not in reason
    assert len(reason.encode()) <= 2000


def test_no_events() -> None:
    columns = columns_of([])
    assert len(columns) == 0
    assert frame(columns).height == 0


def test_files_and_chains(logs: Path, tmp_path: Path) -> None:
    data = (logs / "vacate.log").read_bytes()
    half = data.index(b"\n...\n", len(data) // 2) + 5
    (tmp_path / "a.log.old").write_bytes(data[:half])
    (tmp_path / "a.log").write_bytes(data[half:])
    (tmp_path / "b.log.gz").write_bytes(gzip.compress(data + b"stray"))
    (tmp_path / "c.log.xz").write_bytes(lzma.compress(data)[:-50])
    (tmp_path / "d.log").write_bytes(b"middle\n...\n" + data[:-20])
    (tmp_path / "notes.txt").write_bytes(b"hello")
    columns = read_columns([tmp_path])
    names = [Path(name).name for name in columns.files]
    assert names == ["a.log.old", "a.log", "b.log.gz", "c.log.xz", "d.log"]
    assert [Path(name).name for name in columns.logs] == ["a.log", "b.log.gz", "c.log.xz", "d.log"]
    assert len(columns.owners) == 4
    whole = table(columns_of(read_log(logs / "vacate.log").events))
    for log in (0, 1):
        rows = np.flatnonzero(columns.log == log).tolist()
        assert columns.time[rows].tolist() == whole["time"]
        assert [said(columns, "text", row) or None for row in rows] == whole["text"]
    assert columns.file[columns.log == 0].tolist() == sorted(columns.file[columns.log == 0])
    assert columns.offset[columns.file == 1][0] == 0
    assert [Path(name).name for name, _ in columns.unread] == ["notes.txt"]
    skipped = {Path(name).name: skip for name, skip in columns.skipped}
    assert skipped["d.log"] == Skip(0, 6, "no event")
    assert "xz" in skipped["c.log.xz"].why
    unfinished = {Path(name).name: skip for name, skip in columns.unfinished}
    assert unfinished["b.log.gz"] == Skip(len(data), 5, "no event")
    assert unfinished["d.log"].why == "an event without an end"
    assert set(unfinished) == {"b.log.gz", "d.log"} | ({"c.log.xz"} & set(unfinished))


def test_small_files_are_as_if_alone(logs: Path, tmp_path: Path) -> None:
    data = (logs / "vacate.log").read_bytes()
    yearless = data.replace(b" 2026-11-15 ", b" 11/15 ")
    endings = [
        *(b"", b"\n", b"...\n", b"...\n...\n", b"...\r\n", b"...\r\n...\n", b"\r\n...\r\n"),
        *(
            b"x",
            b"x\n...",
            b"x\n...\n",
            b"\n...",
            b"...",
            b"...\n...",
            ONE[:-3],
            ONE[:-1],
            ONE[:20],
        ),
        *(b"\0" * 9, b"\xef\xbb\xbf", b"x\r\n...\r", b"...\n" + ONE, b"\xe9" + ONE),
        ONE.replace(b"11-15", b"11-31"),
    ]
    contents = [start + ending for ending in endings for start in (data, yearless, b"")]
    contents += [ending + data for ending in endings]
    paths = [tmp_path / f"{at:04d}" for at in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
        os.utime(path, (1_795_000_000, 1_795_000_000))
    columns = read_columns([tmp_path])
    found = table(columns)
    places = {name: place for place, name in enumerate(columns.files)}
    skipped = [(places[name], skip) for name, skip in columns.skipped]
    assert len(places) > 60
    for name, place in places.items():
        log = read_log(name)
        rows = np.flatnonzero(columns.file == place).tolist()
        wanted = table(columns_of(log.events))
        for column in column_names():
            if column not in ("log", "file", "offset"):
                assert [found[column][row] for row in rows] == wanted[column], (name, column)
        assert tuple(skip for file, skip in skipped if file == place) == log.skipped
        content = Path(name).read_bytes()
        numbers = [content[columns.offset[row] :][:3] for row in rows]
        assert numbers == [b"%03d" % event.number for event in log.events]
        rest = content[log.offset :]
        unfinished = [skip for name_, skip in columns.unfinished if name_ == name]
        assert [skip.length for skip in unfinished] == ([len(rest)] if rest.strip(BLANK) else [])


BLANK = b"\xef\xbb\xbf \t\r\n"


def test_json_and_xml_go_through_objects(tmp_path: Path) -> None:
    ad = {
        "EventTypeNumber": 12,
        "EventTime": "2026-11-15T22:19:56.123",
        "MyType": "JobHeldEvent",
        "Cluster": 3,
        "Proc": 1,
        "Subproc": 0,
        "HoldReason": "why",
        "HoldReasonCode": 13,
        "HoldReasonSubCode": 2,
    }
    path = tmp_path / "log"
    path.write_text(json.dumps(ad) + "\n")
    columns = read_columns([path])
    log = read_log(path)
    assert table(columns) == table(columns_of(log.events))
    assert (columns.code.tolist(), columns.subcode.tolist()) == ([13], [2])
    assert columns.time.tolist() == [round(log.events[0].time * 1e6)]


def test_named_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(EventLogError):
        read_columns([tmp_path / "none"])


def test_progress(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_bytes(ONE * 10)
    told: list[tuple[int, int]] = []
    read_columns([tmp_path], progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (len(ONE) * 20, len(ONE) * 20)


def test_frame(logs: Path) -> None:
    columns = read_columns([logs / "fail_404.log"])
    found = frame(columns)
    assert found.columns == [
        *("number", "cluster", "proc", "subproc", "time", "kind", "code", "subcode"),
        *("return_value", "signal", "site", "slot", "host", "user", "text", "file", "offset"),
    ]
    assert found.height == len(columns)
    assert found["time"].dtype.time_zone == "UTC"  # type: ignore[attr-defined]
    assert found["time"].dt.timestamp("us").to_list() == columns.time.tolist()
    held = found.filter(found["number"] == 12)
    assert held["code"].to_list() == [13]
    assert held["kind"].to_list() == ["held"]
    assert "404 Not Found" in held["text"][0]
    assert held["return_value"].to_list() == [None]
    assert found["return_value"].drop_nulls().to_list() == [0]
    assert set(found["file"]) == {str(logs / "fail_404.log")}
    assert columns.strings and len(columns.strings) == len(set(columns.strings))


def run(script: str, *words: object) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own: only one that has a single thread may fork."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script), *map(str, words)],
        capture_output=True,
        text=True,
        timeout=120,
    )


SMALL = """
    import sys
    from headway.events.columnar import bulk
    bulk._BLOCK, bulk._RANGE, bulk._WORTH_FORKING = 500, 2000, 0
    """


def test_any_number_of_workers(logs: Path, tmp_path: Path) -> None:
    data = b"".join(path.read_bytes() for path in sorted(logs.glob("*.log"))[:16])
    damaged = data.replace(b"\n...\n040", b"\n...\n...\n...\n040", 20).replace(
        b"Cpus", b"\0\r\n", 3
    )
    yearless = data.replace(b" 2026-11-15 ", b" 11/15 ")
    for name, content in (
        ("a", damaged),
        ("b", yearless),
        ("c", data),
        ("d", b"x" * 9000 + b"\n" + ONE),
    ):
        (tmp_path / name).write_bytes(content)
    result = run(
        SMALL
        + """
    import hashlib
    from dataclasses import fields
    from headway.events import read_columns
    from headway.events.columnar.columns import column_names
    made = []
    bulk._BLOCK, bulk._RANGE = 1500, 4000
    for workers in (1, 2, 5):
        c = read_columns(sys.argv[1:], workers=workers)
        strings = [*c.strings, None]
        texts = {name: [strings[at] for at in getattr(c, name)] for name in
                 ("site", "slot", "host", "user", "text")}
        arrays = [getattr(c, n).tobytes() for n in column_names() if n not in texts]
        arrays += [getattr(c.usage, f.name).tobytes() for f in fields(c.usage)]
        rest = repr((texts, c.skipped, c.unfinished, c.unread, c.files, c.logs))
        made.append(hashlib.sha256(b"".join(arrays) + rest.encode()).hexdigest())
        print(len(c), len(c.skipped))
    assert len(set(made)) == 1, made
    """,
        *(tmp_path / name for name in "abcd"),
    )
    assert result.returncode == 0, result.stderr
    logs_ = [read_log(tmp_path / name) for name in "abcd"]
    expected = (sum(len(log.events) for log in logs_), sum(len(log.skipped) for log in logs_))
    assert {tuple(map(int, line.split())) for line in result.stdout.splitlines()} == {expected}
    # And the events are those of the careful reader.
    columns = read_columns([tmp_path / name for name in "abcd"])
    wanted = columns_of(event for log in logs_ for event in log.events)
    found, expected_table = table(columns), table(wanted)
    for name in column_names():
        if name not in ("log", "file", "offset"):
            assert found[name] == expected_table[name], name
    assert [skip for _, skip in columns.skipped] == [s for log in logs_ for s in log.skipped]


FAULTY = (
    SMALL
    + """
    import os, signal, time
    from headway.events import read_columns
    from headway.events.columnar import bulk
    read = bulk._read
    def faulty(task):
        if task[0].start > 4000:
            {fault}
        return read(task)
    bulk._read = faulty
    read_columns(sys.argv[1:2], workers=2)
    """
)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("raise ValueError('oh no')", ["reading the event logs failed", "ValueError: oh no"]),
        (
            "made = read(task); made[0].unread = len; return made",
            ["reading the event logs failed", "TypeError: a worker cannot send"],
        ),
        ("os.kill(os.getpid(), signal.SIGKILL)", ["a process that was reading", "died"]),
    ],
)
def test_a_failure_in_a_worker_is_told(
    fault: str, words: list[str], logs: Path, tmp_path: Path
) -> None:
    path = tmp_path / "log"
    path.write_bytes((logs / "vacate.log").read_bytes() * 5)
    result = run(FAULTY.format(fault=fault), path)
    assert result.returncode == 1
    for word in ("EventLogError", *words):
        assert word in result.stderr


def test_what_a_worker_made_arrives_as_it_was() -> None:
    made: dict[str, Any] = {
        "arrays": [
            np.array([[1.5, np.nan]]),
            np.zeros((0, 3)),
            np.array([True]),
            np.arange(3)[::2],
        ],
        "rest": ["é\udcff\n", 2**62, -1.5, None, np.int64(3)],
        "none": np.empty(0, np.int8),
    }
    found = workers._unpacked(memoryview(bytearray(b"".join(workers._packed(made)))))
    for array, wanted in zip(found["arrays"], made["arrays"], strict=True):
        assert array.dtype == wanted.dtype
        np.testing.assert_array_equal(array, wanted)
    assert found["rest"] == made["rest"] and found["none"].shape == (0,)


def test_nobody_waits_for_a_slow_worker() -> None:
    """It has sent half of its result when another one has sent all of its own."""
    (slow_out, slow_in), (out, into) = os.pipe(), os.pipe()
    os.write(slow_in, workers._FRAME.pack(0, 100) + bytes(50))
    workers._send(into, 1, workers._packed(["made"]))
    gone = threading.Timer(10, os.close, [slow_in])
    gone.start()
    try:
        assert next(workers._collected([slow_out, out])) == (1, ["made"])
    finally:
        gone.cancel()
        for pipe in (slow_out, slow_in, out, into):
            with suppress(OSError):
                os.close(pipe)


def test_workers_die_with_their_parent(logs: Path, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes((logs / "vacate.log").read_bytes() * 5)
    pids = tmp_path / "pids"
    fault = "open(sys.argv[2], 'a').write(f'{os.getpid()} '); time.sleep(2)"
    script = textwrap.dedent(FAULTY.format(fault=fault))
    with subprocess.Popen([sys.executable, "-c", script, path, pids]) as parent:
        assert wait_for(lambda: pids.exists() and len(pids.read_text().split()) >= 2)
        parent.kill()
    children = {int(word) for word in pids.read_text().split()} - {parent.pid}
    assert children
    assert wait_for(lambda: not any(map(alive, children)))


def wait_for(done: Callable[[], bool]) -> bool:
    end = time.monotonic() + 30
    while not done() and time.monotonic() < end:
        time.sleep(0.05)
    return done()


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_a_process_with_threads_does_not_fork(logs: Path, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes((logs / "vacate.log").read_bytes() * 5)
    result = run(
        SMALL
        + """
    import os, threading
    from headway.events import read_columns
    os.fork = None
    stop = threading.Event()
    threading.Thread(target=stop.wait).start()
    print(len(read_columns(sys.argv[1:], workers=2)))
    stop.set()
    """,
        path,
    )
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) == len(read_log(path).events)


def test_a_file_that_shrinks_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(ONE * 1000)
    result = run(
        SMALL
        + """
    import os
    from headway.events import read_columns
    from headway.events.columnar import bulk
    read = bulk._read
    def shrinking(task):
        os.truncate(sys.argv[1], 5000)
        return read(task)
    bulk._read = shrinking
    print(len(read_columns(sys.argv[1:], workers=1)))
    """,
        path,
    )
    assert result.returncode == 0, result.stderr
    assert 0 < int(result.stdout) <= 5000 // len(ONE)


def test_reading_does_not_load_polars(logs: Path) -> None:
    result = run(
        """
    import sys
    from headway.events import read_columns
    read_columns(sys.argv[1:])
    assert "polars" not in sys.modules
    """,
        logs,
    )
    assert result.returncode == 0, result.stderr
