"""The writer: HTCondor's own bytes, inert texts, and a log that survives crashes."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from headway.errors import EventLogError
from headway.events import (
    Direction,
    Event,
    EventType,
    EventWriter,
    Expr,
    Resource,
    Stage,
    Usage,
    Value,
    columns_of,
    fold,
    frame,
    inert,
    read_columns,
    read_log,
)
from headway.events.format import TRANSFER_TEXTS

FORGED = (
    "x\n...\n005 (001.000.000) 2026-11-15 22:22:22 Job terminated.\n"
    "\t(1) Normal termination (return value 0)\n...\n"
)
Judge = Callable[[Path], list[dict[str, Any]]]
examples = settings(
    max_examples=60,
    deadline=None,
    # HTCondor's reader sleeps a second over each event that it cannot read: no shrinking.
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
texts = st.one_of(
    st.text(max_size=60),
    st.text(alphabet="a .\n\t\r\\\"'[]=|%\0\x85\u2028é", max_size=40),
    st.sampled_from(
        [
            FORGED,
            "...",
            "\n...\n",
            "Code 1 Subcode 2",
            "Reason: x",
            "Partitionable Resources : 1",
            "\ud800",
            "x" * 5000,
            "é" * 3000,
            "[ a = 1 ]",
        ]
    ),
)
counts = st.integers(0, 10**12)
codes = st.integers(-(2**31), 2**31 - 1)
seconds = st.integers(1_600_000_000, 1_900_000_000)
numbers = st.one_of(st.none(), st.integers(0, 10**9), st.floats(0, 10**6))
names = st.from_regex(r"[A-Z][a-z]{1,8}[0-9]?", fullmatch=True)
values: st.SearchStrategy[Value] = st.one_of(
    texts,
    st.booleans(),
    st.integers(-(2**62), 2**62),
    st.floats(allow_nan=False, allow_infinity=False),
)


def rewritten(event: Event, writer: EventWriter) -> None:
    """Write an event anew from what our reader understood of it."""
    e, ident = event, (event.cluster, event.proc)
    # "0.00" stands for a share that was not quite nothing.
    table = {
        name: Resource(
            0.001 if row.usage == 0 and isinstance(row.usage, float) else row.usage,
            row.request,
            row.allocated,
            row.assigned,
        )
        for name, row in e.resources.items()
    }
    t = e.time
    if e.number == 0:
        writer.submitted(*ident, e.host, time=t)
    elif e.number == 1:
        writer.executing(*ident, e.host, slot=e.slot, attributes=e.attributes, time=t)
    elif e.number == 4:
        assert e.codes
        writer.evicted(
            *ident,
            e.reason,
            *e.codes,
            usage=e.usage,
            sent=e.sent or 0,
            received=e.received or 0,
            resources=table,
            time=t,
        )
    elif e.number == 5:
        writer.terminated(
            *ident,
            return_value=e.return_value,
            signal=e.signal,
            usage=e.usage,
            sent=e.sent or 0,
            received=e.received or 0,
            resources=table,
            time=t,
        )
    elif e.number == 6:
        writer.image_size(
            *ident,
            e.sizes["ImageSize"],
            memory_mb=e.sizes.get("MemoryUsage"),
            resident_kb=e.sizes.get("ResidentSetSize"),
            time=t,
        )
    elif e.number == 8:
        writer.generic(*ident, e.text, time=t)
    elif e.number == 9:
        writer.aborted(*ident, e.reason, time=t)
    elif e.number == 12:
        assert e.codes
        writer.held(*ident, e.reason, *e.codes, time=t)
    elif e.number == 13:
        writer.released(*ident, e.reason, time=t)
    elif e.number == 28:
        trigger = EventType(int(e.attributes["TriggerEventTypeNumber"]))
        writer.ad_information(*ident, trigger, e.attributes, time=t)
    elif e.number == 40:
        assert e.transfer
        writer.transfer(*ident, *e.transfer, host=e.host, time=t)
    else:
        raise LookupError(e.number)


def test_bytes_are_htcondors(logs: Path, tmp_path: Path) -> None:
    compared = set()
    for path in sorted(logs.glob("*.log")):
        real = [part + b"\n...\n" for part in path.read_bytes().split(b"\n...\n")[:-1]]
        for original, event in zip(real, read_log(path).events, strict=True):
            if event.number in (21, 22, 23, 24):
                continue
            copy = tmp_path / "copy.log"
            copy.unlink(missing_ok=True)
            with EventWriter(copy) as writer:
                rewritten(event, writer)
            assert copy.read_bytes() == original
            compared.add(event.number)
    assert compared == {0, 1, 4, 5, 6, 8, 9, 12, 13, 28, 40}


@given(
    reason=texts,
    code=codes,
    subcode=codes,
    at=seconds,
    proc=st.integers(0, 10**6),
    return_value=st.integers(0, 2**31 - 1),
    signal=st.integers(1, 64),
    moved=counts,
    user=st.integers(0, 10**8),
    size=counts,
    resources=st.dictionaries(names, st.builds(Resource, numbers, numbers, numbers), max_size=4),
    attributes=st.dictionaries(names, values, max_size=5),
    transfer=st.sampled_from(list(TRANSFER_TEXTS)),
)
@examples
def test_htcondor_and_we_read_back_the_same(
    tmp_path: Path,
    judge: Judge,
    reason: str,
    code: int,
    subcode: int,
    at: int,
    proc: int,
    return_value: int,
    signal: int,
    moved: int,
    user: int,
    size: int,
    resources: dict[str, Resource],
    attributes: dict[str, Value],
    transfer: tuple[Direction, Stage],
) -> None:
    path = tmp_path / "made.log"
    path.unlink(missing_ok=True)
    usage = Usage(user, 7)
    with EventWriter(path) as w, w.group():
        w.submitted(1, proc, reason, time=at)
        w.transfer(1, proc, *transfer, host=reason, queued_seconds=3, time=at)
        w.executing(1, proc, reason, slot=reason, attributes=attributes, time=at)
        w.generic(1, proc, reason, time=at)
        w.image_size(1, proc, size, memory_mb=3, resident_kb=4, time=at)
        w.evicted(1, proc, reason, code, subcode, usage=usage, sent=moved, time=at)
        w.evicted(1, proc, reason, requeued=True, return_value=return_value, time=at)
        w.evicted(1, proc, reason, requeued=True, signal=signal, resources=resources, time=at)
        w.held(1, proc, reason, code, subcode, time=at)
        w.released(1, proc, reason, time=at)
        w.ad_information(1, proc, EventType.RELEASED, attributes, time=at)
        w.terminated(1, proc, return_value=return_value, usage=usage, resources=resources, time=at)
        w.terminated(1, proc, signal=signal, received=moved, time=at)
        w.aborted(1, proc, reason, time=at)
    log = read_log(path)
    ours, theirs = log.events, judge(path)
    expected = [0, 40, 1, 8, 6, 4, 4, 4, 12, 13, 28, 5, 5, 9]
    assert [event.number for event in ours] == expected
    assert [event["type"] for event in theirs] == expected
    assert log.skipped == ()
    assert {(event.proc, event.time) for event in ours} == {(proc, at)}
    assert {event["Proc"] for event in theirs} == {proc}
    quick, slow = frame(read_columns([path])), frame(columns_of(ours))
    assert quick.drop("file", "offset").equals(slow.drop("file", "offset"))

    text = inert(reason)
    words = "" if text == "Reason unspecified" else text
    (
        submit,
        move,
        execute,
        generic,
        image,
        evict,
        again,
        killed,
        hold,
        release,
        ad,
        end,
        died,
        abort,
    ) = ours
    j = theirs
    assert submit.host == j[0]["SubmitHost"]
    assert execute.host == j[2]["ExecuteHost"]
    assert move.transfer == transfer
    assert move.host == j[1].get("Host", "") == text
    assert execute.slot == j[2].get("SlotName", "")
    assert generic.text == j[3].get("Info", "")
    assert generic.text in (text, "…") or (len(text) > 900 // 4 and generic.text[-1] == "…")
    assert image.sizes == {"ImageSize": size, "MemoryUsage": 3, "ResidentSetSize": 4}
    assert j[4]["Size"] == size
    assert evict.reason == j[5].get("Reason", "") == text
    assert evict.code == (code or None)
    assert j[5].get("ReasonCode", 0) == code
    assert (evict.sent, evict.usage) == (moved, usage)
    assert j[5]["SentBytes"] == moved
    assert again.reason == j[6].get("Reason", "") == text
    assert again.return_value == j[6]["ReturnValue"] == return_value
    assert killed.signal == j[7]["TerminatedBySignal"] == signal
    assert killed.reason == j[7].get("Reason", "") == text
    assert again.requeued and killed.requeued and not evict.requeued
    assert hold.reason == j[8].get("HoldReason", "") == words
    assert hold.codes == (j[8]["HoldReasonCode"], j[8]["HoldReasonSubCode"]) == (code, subcode)
    assert release.reason == j[9].get("Reason", "") == text
    assert end.return_value == j[11]["ReturnValue"] == return_value
    assert died.signal == j[12]["TerminatedBySignal"] == signal
    assert died.received == moved
    assert j[12]["ReceivedBytes"] == pytest.approx(moved, rel=1e-6)
    assert abort.reason == j[13].get("Reason", "") == text
    props = j[2].get("ExecuteProps", {})
    for name, value in attributes.items():
        assert execute.attributes[name] == ad.attributes[name] == props[name] == j[10][name]
        if not isinstance(value, str):
            assert execute.attributes[name] == value
    for name, row in resources.items():
        assert end.resources[name] == killed.resources[name]
        for cell, wanted in (("usage", row.usage), ("request", row.request)):
            found = getattr(end.resources[name], cell)
            assert (found is None) == (wanted is None)
            assert found is None or found == pytest.approx(wanted, abs=0.0051)
        assert j[11].get(f"{name}Usage") == end.resources[name].usage
        assert j[11].get(f"Request{name}") == end.resources[name].request


@given(text=texts)
@examples
def test_no_text_forges_an_event(tmp_path: Path, text: str) -> None:
    path = tmp_path / "forged.log"
    path.unlink(missing_ok=True)
    with EventWriter(path) as w:
        w.submitted(1, 0, "host", notes=text)
        w.executing(1, 0, text, slot=text, attributes={"A": text, "B": Expr(text)})
        w.generic(1, 0, text)
        w.evicted(1, 0, text, requeued=True, return_value=1)
        w.held(1, 0, text, 1, 2)
    log = read_log(path)
    assert [event.number for event in log.events] == [0, 1, 8, 4, 12]
    assert log.skipped == ()
    assert fold(log.events)[0].hold_code == 1
    assert path.read_bytes().count(b"\n...\n") == 5
    assert max(map(len, path.read_bytes().split(b"\n"))) < 8200


def test_a_forged_termination_is_one_harmless_line(tmp_path: Path) -> None:
    with EventWriter(tmp_path / "log") as w:
        w.generic(1, 0, FORGED)
    (event,) = read_log(tmp_path / "log").events
    assert event.text.startswith("x|...|005 (001.000.000)")


def test_gpus_are_named(tmp_path: Path, judge: Judge) -> None:
    with EventWriter(tmp_path / "log") as w:
        w.terminated(
            1,
            0,
            return_value=0,
            resources={"GPUs": Resource(0.5, 2, 2, ("GPU-a", "GPU-b")), "Cpus": Resource(1, 1, 1)},
        )
    (event,) = read_log(tmp_path / "log").events
    assert event.resources["GPUs"] == Resource(0.5, 2, 2, ("GPU-a", "GPU-b"))
    assert judge(tmp_path / "log")[0]["AssignedGPUs"] == "GPU-a,GPU-b"


@pytest.mark.parametrize("name", ["", "a b", "1a", "a\nb", "true", "é"])
def test_attribute_names_are_checked(tmp_path: Path, name: str) -> None:
    with EventWriter(tmp_path / "log") as w, pytest.raises(ValueError, match="attribute name"):
        w.executing(1, 0, "h", attributes={name: 1})
    assert read_log(tmp_path / "log").events == []


def test_either_value_or_signal(tmp_path: Path) -> None:
    with EventWriter(tmp_path / "log") as w:
        with pytest.raises(ValueError, match="either"):
            w.terminated(1, 0)
        with pytest.raises(ValueError, match="either"):
            w.terminated(1, 0, return_value=0, signal=9)


@given(cut=st.integers(0, 400))
@examples
def test_a_torn_event_is_cut_off_at_opening(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "torn.log"
    path.unlink(missing_ok=True)
    with EventWriter(path) as w:
        w.submitted(1, 0, "a")
        w.held(1, 0, "b", 1, 2)
        w.terminated(1, 0, return_value=0)
    whole = path.read_bytes()
    torn = whole[: max(0, len(whole) - cut)]
    path.write_bytes(torn)
    with EventWriter(path) as w:
        kept = torn.rfind(b"\n...\n") + 5 if b"\n...\n" in torn else 0
        assert w.repaired == len(torn) - kept
        assert path.read_bytes() == whole[:kept]
        w.generic(1, 0, "on we go")
    log = read_log(path)
    assert log.skipped == ()
    assert log.events[-1].text == "on we go"


def test_repair_finds_the_end_across_blocks(tmp_path: Path) -> None:
    for size in (65520, 65530, 65535, 65536, 65541, 131077, 200000):
        path = tmp_path / f"{size}.log"
        with EventWriter(path) as w:
            w.generic(1, 0, "a")
        whole = path.read_bytes()
        path.write_bytes(whole + b"008 (001.000.000) " + b"x" * size)
        with EventWriter(path) as w:
            assert w.repaired == size + 18
        assert path.read_bytes() == whole


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "thesis.txt"
    path.write_text("Chapter 1\n")
    with pytest.raises(EventLogError, match="not an event log"):
        EventWriter(path)
    assert path.read_text() == "Chapter 1\n"


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(EventLogError, match="cannot be opened") as caught:
        EventWriter(tmp_path / "none" / "log")
    assert "folder" in caught.value.remedy


@pytest.mark.parametrize("written", [0, 10, None])
def test_a_full_disk_leaves_no_torn_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int | None
) -> None:
    path = tmp_path / "log"
    real = os.write
    with EventWriter(path) as w:
        w.submitted(1, 0, "a")
        before = path.read_bytes()

        def full(fd: int, data: bytes) -> int:
            if written is None:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(fd, data[:written])

        monkeypatch.setattr(os, "write", full)
        with pytest.raises(EventLogError, match="No space left") as caught:
            w.held(1, 0, "b", 1, 2)
        assert "Make room" in caught.value.remedy
        assert path.read_bytes() == before
        monkeypatch.undo()
        w.held(1, 0, "b", 1, 2)
    assert [event.number for event in read_log(path).events] == [0, 12]


def test_a_real_limit_leaves_no_torn_event(tmp_path: Path) -> None:
    script = """
import resource, signal, sys
from headway.errors import EventLogError
from headway.events import EventWriter
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
with EventWriter(sys.argv[1]) as w:
    try:
        for n in range(1000):
            w.held(1, n, "some reason", 1, 2)
    except EventLogError:
        sys.exit(7)
"""
    path = tmp_path / "log"
    done = subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    assert done.returncode == 7
    log = read_log(path)
    assert log.offset == path.stat().st_size
    assert 5 < len(log.events) < 20


def test_a_group_is_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[int] = []
    syncs: list[int] = []
    real = os.write

    def write(fd: int, data: bytes) -> int:
        writes.append(fd)
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)
    monkeypatch.setattr(os, "fsync", syncs.append)
    with EventWriter(tmp_path / "log", fsync=True) as w:
        with w.group():
            for proc in range(10):
                w.submitted(1, proc, "a")
            assert writes == []
        assert len(writes) == 1
        assert syncs == []
        with w.group():
            w.terminated(1, 0, return_value=0)
            w.held(1, 1)
        assert (len(writes), len(syncs)) == (2, 1)
        with pytest.raises(LookupError), w.group():
            w.aborted(1, 2)
            raise LookupError
        with w.group():
            pass
        assert len(writes) == 2
    assert len(read_log(tmp_path / "log").events) == 12


def test_threads_and_writers_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "log"
    writers = [EventWriter(path) for _ in range(2)]

    def write(n: int) -> None:
        for proc in range(50):
            writers[n % 2].held(n + 1, proc, "r" * 500, n, proc)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for writer in writers:
        writer.close()
        writer.close()
    log = read_log(path)
    assert log.skipped == ()
    assert len(log.events) == 300
    with pytest.raises(EventLogError, match="closed"):
        writers[0].released(1, 0)


def test_the_descriptor_is_not_inherited(tmp_path: Path) -> None:
    with EventWriter(tmp_path / "log") as w:
        assert not os.get_inheritable(w._fd)
