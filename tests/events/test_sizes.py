"""Hostile sizes: what a log can cost is bounded, and grows with its bytes and no faster."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from headway.cli import main
from headway.collect.tail import Cursor, OpenLog
from headway.events import Event, Follower, opening, read_columns, read_log
from headway.events import opening as limits
from headway.events.clock import Clock
from headway.events.opening import LINE_LIMIT, LONG_LINE, MORE, SKIPS_LIMIT, ZEROS, Skips
from headway.events.read import JsonParser
from headway.holds.history import read_hold_events
from headway.node.classad import parse_lines, read_ads, read_old_ad

WHEN = "(7.000.000) 2026-01-02 03:04:05"
ONE = f"001 {WHEN} Job executing on host: <10.0.0.1:9618>\n...\n".encode()


def seconds(call: Callable[[], object]) -> float:
    """Processor time: what others do on this machine does not count."""
    begin = time.process_time()
    call()
    return time.process_time() - begin


def grows_no_faster(call: Callable[[int], object], size: int) -> None:
    """Four times as much may take four times as long, and as much again; not sixteen times."""
    call(size // 16)  # what is made once
    once, four = seconds(lambda: call(size)), seconds(lambda: call(4 * size))
    assert four < 8 * once + 0.1, f"{once:.3f} s, then {four:.3f} s"


LINES = {
    "blanks and no value": lambda n: "A" + " " * n,
    "blanks behind the sign": lambda n: "A =" + " " * n,
    "blanks in the value": lambda n: "A = x" + " " * n + "y",
    "blanks before": lambda n: " " * n + "A",
    "a long name": lambda n: "A" * n + "!",
    "dots": lambda n: "A." * n + " = 1",
    "signs": lambda n: "A " + "=" * n,
    "quotes": lambda n: 'A = "' + '\\"' * n,
    "digits": lambda n: "A = " + "9" * n,
    "digits and a mark": lambda n: "A = " + "9" * n + "!",
    "a real": lambda n: "A = 1." + "9" * n + "e" + "9" * n,
}


@pytest.mark.parametrize("kind", LINES)
def test_the_lines_of_ads_are_read_in_linear_time(kind: str) -> None:
    # The pattern that read them took a minute for 200 kB of blanks.
    grows_no_faster(lambda n: parse_lines([LINES[kind](n)]), 50_000)
    grows_no_faster(lambda n: read_old_ad(LINES[kind](n)), 50_000)
    event = Event(28, 1, 0, 0, 0.0, "", (LINES[kind](200_000),))
    assert seconds(lambda: (event.attributes, event.slot, event.site)) < 2


@pytest.mark.parametrize(
    "text",
    [
        lambda n: "[ a = " + "/*" * n,
        lambda n: "[ a = 1 + " + '"' * n + " ]",
        lambda n: "[ a = 1 + " + "'x" * n + " ]",
        lambda n: "[ " + "a = b + 1; " * n + "]",
        lambda n: "[ a = { " + "1 + 1, " * n + "} ]",
        lambda n: "[ a = 1 + {" + "1 + {" * 100 + " " * n,
        lambda n: "[ " * 20 + "a = x + " + "/*" * n,
        lambda n: "// x" + "/" * n,
        lambda n: "[ a = " + "{ " * 25 + "1 + 1, " * n,
    ],
)
def test_new_ads_are_read_in_linear_time(text: Callable[[int], str]) -> None:
    def read(n: int) -> None:
        with suppress(ValueError):
            read_ads(text(n))

    grows_no_faster(read, 5_000)


@pytest.mark.parametrize("digits", [18, 19, 40, 5_000, 100_000])
def test_a_size_of_any_number_of_digits(digits: int) -> None:
    number = "9" * digits
    body = (
        f"\t{number}  -  MemoryUsage of job (MB)",
        f"\t{number}  -  ResidentSetSize of job (KB)",
    )
    event = Event(6, 1, 0, 0, 0.0, f"Image size of job updated: {number}", body)
    assert event.sizes == (
        {}
        if digits > 18
        else dict.fromkeys(("ImageSize", "MemoryUsage", "ResidentSetSize"), 10**18 - 1)
    )


@pytest.mark.parametrize("digits", [40, 5_000, 100_000])
def test_numbers_of_any_number_of_digits(digits: int, tmp_path: Path) -> None:
    n = "9" * digits
    ends = (
        f"005 {WHEN} Job terminated.\n\t(1) Normal termination (return value {n})\n"
        f"\t\tUsr {n} 00:00:00, Sys 0 00:00:00  -  Run Remote Usage\n"
        f"\t{n}  -  Run Bytes Sent By Job\n"
        "\tPartitionable Resources :    Usage  Request Allocated\n"
        f"\t   Memory (MB)          : {n} {n} {n}\n...\n"
    )
    log = (
        f"{ends}006 {WHEN} Image size of job updated: {n}\n...\n"
        f"012 {WHEN} Job was held.\n\tx\n\tCode {n} Subcode {n}\n...\n"
        f"008 {WHEN} headway nonce=a phase=stage-in state=end bytes={n}\n...\n"
        f"028 {WHEN} Job ad information event triggered.\nX = {n}\nY = {n}.5e{n}\n...\n"
    )
    path = tmp_path / "log"
    path.write_text(log)
    events = read_log(path).events
    for event in events:
        for name in dir(Event):
            if not name.startswith("_"):
                getattr(event, name)
    assert len(events) == len(read_columns([path]).number) == 5
    parser = JsonParser(Clock(0.0))
    parser.feed(
        f'{{"EventTypeNumber": 5, "Cluster": {n}, "EventTime": "2026-01-02T03:04:05"}}\n'.encode()
    )
    assert len(parser.skipped) == (digits > 4300)


def test_long_lines_are_cut_and_told(tmp_path: Path) -> None:
    path = tmp_path / "log"
    long = "ä" * LINE_LIMIT
    hold = (
        f"012 (7.000.000) 2026-01-02 03:04:06 Job was held.\n\t{long}\n\tCode 13 Subcode 2\n...\n"
    )
    path.write_bytes(ONE + hold.encode() + ONE)
    log = read_log(path)
    assert [event.number for event in log.events] == [1, 12, 1]
    assert log.events[1].codes == (13, 2)
    assert set(log.events[1].reason) == {"ä"}
    (skip,) = log.skipped
    assert skip.why == LONG_LINE
    assert skip.length == len(long.encode()) + 1 - LINE_LIMIT + 1  # the tab, and half a letter
    assert path.read_bytes()[skip.offset : skip.offset + skip.length + 1].endswith("ä\n".encode())
    columns = read_columns([path])
    assert [skip for _, skip in columns.skipped] == [skip]
    assert list(columns.code[1:2]) == [13]


def test_lines_of_real_length_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    files = ", ".join(f"input/part-{n:05d}.parquet" for n in range(9_000))
    path.write_text(f'028 (7.000.000) 2026-01-02 03:04:06 Job ad\nTransferInput = "{files}"\n...\n')
    log = read_log(path)
    assert len(files) > 200_000
    assert log.skipped == ()
    assert log.events[0].attributes["TransferInput"] == files


def test_a_long_line_of_an_ad_is_cut_and_told() -> None:
    parser = JsonParser(Clock(0.0))
    (event,) = parser.feed(
        b'{"EventTypeNumber": 12, "EventTime": "2026-01-02T03:04:05", "HoldReason": "'
        + b"x" * 2 * LINE_LIMIT
        + b'"}\n'
    )
    assert max(map(len, event.body)) == LINE_LIMIT
    assert [(skip.offset, skip.length, skip.why) for skip in parser.skipped] == [
        (0, LINE_LIMIT + 1, LONG_LINE)
    ]


HOLE = 1 << 40


def sparse(path: Path) -> Path:
    with open(path, "wb") as file:
        file.write(ONE)
        file.seek(HOLE)
        file.write(ONE)
    if path.stat().st_blocks * 512 > 1 << 30:
        pytest.skip("this file system has no holes")
    return path


def test_a_hole_of_a_terabyte_is_passed_over_and_told(tmp_path: Path) -> None:
    path = sparse(tmp_path / "log")
    begin = time.process_time()
    log, columns, follower = read_log(path), read_columns([path]), Follower(path)
    events = follower.poll()
    follower.close()
    assert time.process_time() - begin < 10
    for count, skipped in (
        (len(log.events), list(log.skipped)),
        (len(columns.number), [skip for _, skip in columns.skipped]),
        (len(events), follower.skipped),
    ):
        assert count == 2
        assert sum(skip.length for skip in skipped) == pytest.approx(HOLE - len(ONE), abs=5 << 20)
        assert ZEROS in [skip.why for skip in skipped]


def test_written_zeros_are_passed_over_and_told(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(ONE + bytes(64 << 20) + b"\n" + ONE)
    tracemalloc.start()
    try:
        log = read_log(path)
        columns = read_columns([path], workers=1)
        assert tracemalloc.get_traced_memory()[1] < 60 << 20
    finally:
        tracemalloc.stop()
    for count, skipped in (
        (len(log.events), log.skipped),
        (len(columns.number), [skip for _, skip in columns.skipped]),
    ):
        assert count == 2
        assert (64 << 20) <= sum(skip.length for skip in skipped) <= (64 << 20) + 1
        assert len(skipped) < 5


def test_a_follower_does_not_read_zeros_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    path.write_bytes(ONE + bytes(8 << 20))
    follower = Follower(path)
    assert len(follower.poll()) == 1
    with path.open("ab") as file:
        file.write(b"\n" + ONE)
    read = 0
    pread = os.pread

    def counted(descriptor: int, size: int, at: int) -> bytes:
        nonlocal read
        found = pread(descriptor, size, at)
        read += len(found)
        return found

    monkeypatch.setattr(os, "pread", counted)
    assert len(follower.poll()) == 1
    assert read < 3 << 20


BOMBS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, 9),
    "xz": lzma.compress,
    "bzip2": bz2.compress,
}


@pytest.mark.parametrize("kind", BOMBS)
@pytest.mark.parametrize("filling", [b"\0", b"a"])
def test_a_bomb_ends_with_a_word(
    kind: str, filling: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "FREE_BYTES", 4 << 20)
    path = tmp_path / "log"
    path.write_bytes(BOMBS[kind](ONE + filling * (40 << 20)))
    log = read_log(path)
    columns = read_columns([path])
    assert len(log.events) == len(columns.number) == 1
    for skipped in (log.skipped, [skip for _, skip in columns.skipped]):
        word = skipped[-1]
        assert f"the {kind} data grow more than 500-fold" in word.why
        assert "decompress" in word.why
        assert 3 << 20 <= word.offset <= 24 << 20


def test_status_and_advise_say_where_reading_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(opening, "FREE_BYTES", 4 << 20)
    path = tmp_path / "log"
    path.write_bytes(gzip.compress(ONE + bytes(40 << 20), 9))
    assert main(["status", str(path)]) == 0
    told = capsys.readouterr().out
    assert "was read up to byte" in told
    assert "the gzip data grow more than 500-fold" in told
    unread: list[tuple[str, str]] = []
    read_hold_events([path], unread)
    assert [(file, "500-fold" in why) for file, why in unread] == [(str(path), True)]


def test_the_most_repetitive_log_is_no_bomb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "FREE_BYTES", 1 << 20)
    path = tmp_path / "log"
    path.write_bytes(lzma.compress(b"".join(_every_minute(20_000)), preset=1))
    log = read_log(path)
    assert (len(log.events), log.skipped) == (20_000, ())


def _every_minute(count: int) -> Iterator[bytes]:
    for n in range(count):
        at = f"2026-01-{1 + n // 1440:02d} {n // 60 % 24:02d}:{n % 60:02d}:05"
        body = "\t120  -  MemoryUsage of job (MB)\n...\n"
        yield f"006 (7.000.000) {at} Image size of job updated: 1234\n{body}".encode()


def test_a_compressed_file_of_any_ratio_ends_somewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "INFLATED_LIMIT", 2 << 20)
    path = tmp_path / "log"
    path.write_bytes(gzip.compress(os.urandom(1 << 10).hex().encode() * (1 << 11), 1))
    with opening.LogReader(path) as file:
        size = sum(
            block if isinstance(block, int) else len(block) for block in file.blocks(1 << 18)
        )
        assert size <= 2 << 20
        assert file.damage
        assert "only the first" in file.damage.why


def test_the_rest_before_damage_is_read_in_linear_time(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(gzip.compress(ONE * 50_000)[:-20])
    begin = time.process_time()
    log = read_log(path)
    assert time.process_time() - begin < 4
    assert len(log.events) > 49_000


def test_skips_without_number_are_counted_and_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(ONE + b"x\n...\n" * 200_000 + ONE)
    log, columns = read_log(path), read_columns([path])
    for skipped in (log.skipped, [skip for _, skip in columns.skipped]):
        assert len(skipped) == SKIPS_LIMIT + 1
        assert sum(skip.length for skip in skipped) == 200_000
        assert skipped[-1].why == MORE
    dates = ONE.replace(b"01-02", b"99-99") * 5_000
    path.write_bytes(ONE + dates + ONE)
    log, columns = read_log(path), read_columns([path])
    assert len(log.skipped) == len(columns.skipped) == SKIPS_LIMIT + 1


def test_what_follows_on_a_skip_belongs_to_it() -> None:
    skips = Skips()
    skips.add(0, 5, "a")
    skips.add(5, 5, "a")
    skips.add(10, 5, "b")
    skips.add(16, 5, "b")
    assert [(skip.offset, skip.length) for skip in skips] == [(0, 10), (10, 5), (16, 5)]


GARBAGE = {
    "a line": lambda n: b"a" * n,
    "headers": lambda n: b"001 (1.0.0) " * (n // 12),
    "header lines": lambda n: b"001 (1.0.0) 2026-01-01 00:00:00 x\n" * (n // 34),
    "newlines": lambda n: b"\n" * n,
    "almost ends": lambda n: b"\n.." * (n // 3),
    "ends": lambda n: b"\n...\n" * (n // 5),
    "carriage returns": lambda n: b"\r\n" * (n // 2),
    "zeros between": lambda n: b"\0a" * (n // 2),
    "braces": lambda n: b"{}" * (n // 2),
    "brace lines": lambda n: b"{\n" * (n // 2),
    "tags": lambda n: b"<c>" * (n // 3),
    "tag lines": lambda n: b"<c>\n" * (n // 4),
    "attributes": lambda n: b'<a n="x"><s>' * (n // 12),
}
BEGINNINGS = {
    "text": ONE,
    "json": b'{"EventTypeNumber": 1, "EventTime": "2026-01-02T03:04:05"}\n',
    "xml": b'<c><a n="EventTypeNumber"><i>1</i></a></c>\n<c>\n',
}


@pytest.mark.parametrize("form", BEGINNINGS)
@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_is_read_in_linear_time(form: str, kind: str, tmp_path: Path) -> None:
    def read(n: int) -> None:
        path = tmp_path / f"log-{n}"
        path.write_bytes(BEGINNINGS[form] + GARBAGE[kind](n))
        read_log(path)
        read_columns([path], workers=1)

    grows_no_faster(read, 400_000)


def test_a_compressed_log_is_collected_in_one_pass(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(ONE * 60_000))
    file = OpenLog(path, b"key")
    cursor = Cursor(1)
    inflated = 0
    read = file._reader.read

    def counted(size: int = 1 << 20) -> bytes:
        nonlocal inflated
        found = read(size)
        inflated += len(found)
        return found

    file._reader.read = counted  # type: ignore[method-assign]
    size = len(ONE) * 60_000
    while cursor.offset < size:
        data = file.read(cursor.offset, 1 << 18)[: (1 << 18) - 50]
        assert data
        cursor.offset += len(data)
        file.mark(cursor, data)
    file.close()
    assert inflated < 2 * size


def test_the_limits_are_in_one_place() -> None:
    assert limits.LINE_LIMIT < limits.EVENT_LIMIT < limits.FREE_BYTES < limits.INFLATED_LIMIT
