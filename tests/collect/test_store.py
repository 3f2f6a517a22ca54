"""A store is the logs: the same events, once each, and the same accounts."""

from __future__ import annotations

import gc
import gzip
import json
import os
import random
import shutil
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from tests.collect.stores import LOGS, collect, events_of, long_log, same_events

from headway.collect import Collector, read_collected, status
from headway.collect.ledger import compactable
from headway.errors import CollectError, EventLogError
from headway.events import read_columns

FORMATS = LOGS.parent / "formats"


def ledger(store: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((store / "collected.json").read_bytes())
    return found


def test_a_folder_of_real_logs(tmp_path: Path) -> None:
    store = tmp_path / "kept"
    poll = collect(store, LOGS)
    assert poll.logs == len(list(LOGS.glob("*.log"))) and not poll.gaps
    found = same_events(store, [LOGS])
    assert poll.events == len(found)
    assert collect(store, LOGS).events == 0
    same_events(store, [LOGS])


def test_the_report_reads_a_store(tmp_path: Path) -> None:
    from headway.errors import ReportError
    from headway.report import report

    collect(tmp_path / "kept", LOGS)
    kept, logs = report([tmp_path / "kept"]).accounts, report([LOGS]).accounts
    assert kept.jobs.drop("log").sort("id").equals(logs.jobs.drop("log").sort("id"))
    assert kept.holds.equals(logs.holds) and kept.pieces.equals(logs.pieces)
    with pytest.raises(ReportError, match="cannot be combined with other logs"):
        report([tmp_path / "kept", LOGS])


def test_since_reads_no_more_than_the_jobs_since_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headway.report import report

    log, store = tmp_path / "EventLog", tmp_path / "kept"
    log.write_bytes(b"".join(long_log()))
    collect(store, log)
    last = int(read_columns([log]).time.max()) / 1e6
    read: list[object] = []
    read_parquet = pl.read_parquet

    def watched(file: object, *, columns: list[str] | None) -> pl.DataFrame:
        read.append(columns)
        return read_parquet(file, columns=columns)  # type: ignore[arg-type]

    monkeypatch.setattr(pl, "read_parquet", watched)
    for since in (last - 600, last - 40_000, last - 2 * 86_400, last + 1_000):
        read.clear()
        try:
            kept = report([store], since=since)
        except Exception as error:
            with pytest.raises(type(error), match=str(error)[:30]):
                report([log], since=since)
            continue
        logs = report([log], since=since)
        assert kept.accounts.jobs.drop("log").equals(logs.accounts.jobs.drop("log"))
        assert kept.accounts.pieces.equals(logs.accounts.pieces)
        assert kept.accounts.events == logs.accounts.events
        assert kept.notes == logs.notes
        if since == last - 600:
            assert ["cluster", "proc"] in read  # of the days before, who was there


def test_several_days_rotated_and_compressed(tmp_path: Path) -> None:
    events = long_log()
    log, store = tmp_path / "EventLog", tmp_path / "kept"
    cuts = [0, 100, len(events) // 2, len(events) - 30, len(events)]
    pieces = [b"".join(events[a:b]) for a, b in pairwise(cuts)]
    (tmp_path / "EventLog.3.gz").write_bytes(gzip.compress(pieces[0]))
    (tmp_path / "EventLog.2").write_bytes(pieces[1])
    (tmp_path / "EventLog.1").write_bytes(pieces[2])
    log.write_bytes(pieces[3])
    poll = collect(store, log)
    assert (poll.events, poll.logs) == (len(events), 1)
    same_events(store, [log])
    days = status(store).days
    assert [day.day for day in days] == [f"2026-10-{day}" for day in range(11, 15)]
    assert all(day.parts == 1 for day in days)
    assert sum(day.events for day in days) == len(events)


@pytest.mark.parametrize("name", ["jobs-json.log", "jobs-xml.log", "gpu-xml.log", "gpu-json.log"])
def test_logs_that_are_no_text(name: str, tmp_path: Path) -> None:
    log, store = tmp_path / name, tmp_path / "kept"
    whole = (FORMATS / name).read_bytes()
    log.write_bytes(whole[: len(whole) // 2])
    collect(store, log)
    log.write_bytes(whole)
    os.utime(log, (1_700_000_000, 1_700_000_000))
    collect(store, log)
    same_events(store, [log], leave=("file", "offset"))


def test_growing_by_any_bytes(tmp_path: Path) -> None:
    whole = b"".join(long_log(1))
    log, store = tmp_path / "job.log", tmp_path / "kept"
    random.seed(5)
    cuts = sorted(random.sample(range(len(whole)), 12))
    for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        with log.open("ab") as file:
            file.write(whole[begin:end])
        collect(store, log)
    same_events(store, [log])
    assert [day.parts for day in status(store).days] == [1]


def test_damage_is_skipped_as_a_reader_skips_it(tmp_path: Path) -> None:
    events = long_log(1)[:60]
    torn = [events[3][: len(events[3]) // 2], b"<<<<<<< HEAD\n", b"\0" * 300, b"\n\n"]
    crlf = next(one for one in events if one.startswith(b"001")).replace(b"\n", b"\r\n")
    latin = next(one for one in events if one.startswith(b"000")).replace(b"Job", b"J\xf6b")
    odd = b"012 (7.0.0) 2026-10-11 10:00:00 Job was held.\n\tx\n...\r\r\n\tCode 1 Subcode 2\n...\n"
    dateless = b"012 (7.0.0) 2026-13-41 10:00:00 Job was held.\n\tx\n...\n"
    pieces = [*events[:10], *torn, *events[10:30], crlf, latin, odd, dateless, *events[30:]]
    log, store = tmp_path / "job.log", tmp_path / "kept"
    log.write_bytes(b"\xef\xbb\xbf" + b"".join(pieces) + events[0][:40])
    collect(store, log)
    same_events(store, [log])
    assert status(store).skipped > 300


def test_the_zone_that_a_log_tells_late(tmp_path: Path) -> None:
    """Hours without a hint, then one: what was stored before is read in the right zone, too."""
    head = "".join(
        f"006 (5.0.0) 11/15 {hour:02d}:00:00 Image size of job updated: 1\n...\n"
        for hour in range(3)
    )
    end = (
        "005 (5.0.0) 11/15 03:00:01 Job terminated.\n\t(1) Normal termination (return value 0)\n"
        "\tJob terminated of its own accord at 2025-11-15T09:00:00Z with exit-code 0.\n...\n"
    )
    log, store = tmp_path / "job.log", tmp_path / "kept"
    for text in ("000 (5.0.0) 11/15 00:00:00 Job submitted from host: <h>\n...\n" + head, end):
        with log.open("a") as file:
            file.write(text)
        os.utime(log, (1_763_200_000, 1_763_200_000))
        collect(store, log)
    found = same_events(store, [log])
    assert found.time[0] / 1e6 == 1763186400.0  # six hours west of Greenwich
    assert found.time[-1] / 1e6 == 1763197201.0


def test_a_year_in_the_future_makes_no_folders(tmp_path: Path) -> None:
    event = "006 (5.0.0) {} Image size of job updated: 1\n...\n"
    days = [f"{year}-01-0{day} 00:00:00" for year in range(1990, 2090) for day in range(1, 9)]
    days += ["9999-12-31 23:59:59", "0001-01-02 00:00:00"]
    log, store = tmp_path / "job.log", tmp_path / "kept"
    log.write_text("".join(event.format(day) for day in days))
    collect(store, log)
    found = status(store)
    assert len(found.days) <= 401 and found.days[-1].day == "unknown"
    assert found.events == len(days) == len(read_collected(store))
    assert found.last is not None and found.last < 4e9
    same_events(store, [log])


def test_small_parts_become_one(tmp_path: Path) -> None:
    events = long_log(2)
    log, store = tmp_path / "job.log", tmp_path / "kept"
    with Collector([log], store, waits=True) as collector:
        for begin in range(0, len(events), 100):
            with log.open("ab") as file:
                file.write(b"".join(events[begin : begin + 100]))
            collector.poll()
        assert not compactable(collector.ledger.parts, "2030-01-01")
    assert len(list(store.glob("events/*/*"))) == 2
    same_events(store, [log])


def test_a_day_that_goes_on_is_left_until_there_are_many(tmp_path: Path) -> None:
    import time

    log, store = tmp_path / "job.log", tmp_path / "kept"
    counts = []
    with Collector([log], store, waits=True) as collector:
        for number in range(40):
            now = time.strftime("%Y-%m-%d %H:%M:%S")
            with log.open("a") as file:
                file.write(f"006 (5.{number}.0) {now} Image size of job updated: 1\n...\n")
            collector.poll()
            counts.append(len(collector.ledger.parts))
    assert max(counts) == 32 and counts[-1] < 12
    assert len(read_collected(store)) == 40


def test_nothing_new_writes_nothing(tmp_path: Path) -> None:
    log, store = tmp_path / "job.log", tmp_path / "kept"
    log.write_bytes(b"".join(long_log(1)[:50]))
    with Collector([tmp_path / "*.log"], store, waits=True) as collector:
        collector.poll()
        before = (store / "collected.json").stat()
        for _ in range(5):
            assert collector.poll().events == 0
        after = (store / "collected.json").stat()
    assert before.st_mtime_ns == after.st_mtime_ns and before.st_ino == after.st_ino


def test_new_logs_in_a_folder_are_noticed(tmp_path: Path) -> None:
    folder, store = tmp_path / "logs", tmp_path / "kept"
    (folder / "deeper").mkdir(parents=True)
    (folder / "notes.txt").write_text("nothing\n" * 100)
    events = long_log(1)
    with Collector([folder], store, waits=True) as collector:
        assert collector.poll().logs == 0
        (folder / "a.log").write_bytes(events[0][:20])
        collector.poll()
        (folder / "a.log").write_bytes(b"".join(events[:20]))
        (folder / "deeper" / "b.log").write_bytes(b"".join(events[20:50]))
        assert collector.poll().events == 50
    same_events(store, [folder])


def test_a_store_within_the_folder_is_not_collected(tmp_path: Path) -> None:
    shutil.copytree(LOGS, tmp_path / "logs")
    store = tmp_path / "logs" / "kept"
    collect(store, tmp_path / "logs")
    collect(store, tmp_path / "logs")
    assert len(read_collected(store)) == len(read_columns([LOGS]))


def test_two_at_once(tmp_path: Path) -> None:
    log, store = tmp_path / "job.log", tmp_path / "kept"
    log.write_bytes(events_of((LOGS / "gpu.log").read_bytes())[0])
    with Collector([log], store), pytest.raises(CollectError, match=r"another .* writes into"):
        Collector([log], store)
    collect(store, log)


def test_what_is_refused(tmp_path: Path) -> None:
    log, store = tmp_path / "job.log", tmp_path / "kept"
    shutil.copy(LOGS / "gpu.log", log)
    with pytest.raises(CollectError, match="no log"):
        Collector([tmp_path / "nothing.log"], store)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(CollectError, match="not empty"):
        Collector([log], tmp_path / "mine")
    collect(store, log)
    with pytest.raises(CollectError, match="not anonymised"):
        collect(store, log, anonymise=True)
    with pytest.raises(CollectError, match="is the store itself"):
        Collector([store], store)
    (store / "collected.json").write_text('{"format": 99}')
    with pytest.raises(CollectError, match="another version"):
        collect(store, log)
    for damage in ("{", "[]", '{"format": 1}', '{"format": 1, "sources": 5}'):
        (store / "collected.json").write_text(damage)
        with pytest.raises(CollectError, match="cannot be read"):
            collect(store, log)
        with pytest.raises(EventLogError):
            read_collected(store)


def test_what_is_not_ours_in_the_store_stays(tmp_path: Path) -> None:
    store = tmp_path / "kept"
    collect(store, LOGS)
    day = next(store.glob("events/*"))
    (day / "readme.txt").write_text("mine")
    (day / "part-00000099.parquet").write_bytes(b"left by one that was killed")
    (day / ".part-00000098.parquet.new").write_bytes(b"half")
    collect(store, LOGS)
    assert sorted(path.name for path in day.iterdir())[1:] == ["readme.txt"]
    same_events(store, [LOGS])


def test_a_part_is_plain_parquet(tmp_path: Path) -> None:
    store = tmp_path / "kept"
    collect(store, LOGS)
    table = pl.read_parquet(store / "events/*/*.parquet")
    assert table.height == len(read_columns([LOGS]))
    held = table.filter(pl.col("number") == 12)
    assert held["text"].str.contains("Code").all()


def test_thousands_of_logs(tmp_path: Path) -> None:
    import time

    folder, store = tmp_path / "logs", tmp_path / "kept"
    folder.mkdir()
    events = long_log(1)
    for number in range(2000):
        (folder / f"job_{number}.log").write_bytes(events[number % len(events)])
    gc.collect()  # descriptors that other tests have left to the garbage collector
    before = len(os.listdir("/proc/self/fd"))
    with Collector([f"{folder}/*.log"], store, waits=True) as collector:
        assert collector.poll().events == 2000
        collector.poll()
        begin = time.process_time()
        assert collector.poll().events == 0
        assert time.process_time() - begin < 1
        assert len(os.listdir("/proc/self/fd")) - before < 100
    assert len(read_collected(store).logs) == 2000


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.log")
    with pytest.raises(CollectError, match="not a regular file"):
        Collector([tmp_path / "pipe.log"], tmp_path / "kept")
    (tmp_path / "a.log").write_bytes(long_log(1)[0])
    assert collect(tmp_path / "kept", tmp_path).events == 1
    with Collector([tmp_path / "b.log"], tmp_path / "kept", waits=True) as collector:
        os.mkfifo(tmp_path / "b.log")
        assert collector.poll().events == 0
