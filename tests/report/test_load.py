"""From what a user names to accounts: logs, folders, runs with their records, declared outputs."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.report.written import BEGIN, HOST, write_log

import headway
from headway.errors import EventLogError, ReportError
from headway.events import EventWriter
from headway.pool.folder import RunFacts, RunFolder, Runs
from headway.report import Report, report
from headway.report.load import declared
from headway.report.reading import locate
from headway.report.records import RECORDS, row_of

SCRIPT = """\
import os, sys, time
saved = os.path.exists("saved")
time.sleep(2.2)
if not saved:
    open("saved", "w").write("1")
    sys.exit(85)
if sys.argv[1] == "1":
    sys.exit(3)
open("model.pt", "w").write("x" * 1000)
"""
JOB = """\
name = "small"
command = "python3 train.py {{job}}"
files = ["train.py"]
count = 2
outputs = ["model.pt"]
inputs = ["http://127.0.0.1:{port}/data.bin"]
[checkpoint]
paths = ["saved"]
[resources]
memory = "50 MB"
disk = "50 MB"
"""
BYTES, SLOW, COMPUTE = 3_000_000, 2.2, 4.4


class Slow(SimpleHTTPRequestHandler):
    """A source that takes its time."""

    def do_GET(self) -> None:
        time.sleep(SLOW)
        super().do_GET()

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[headway.Run]:
    """A real run on the local pool: input over HTTP, a checkpoint each, one success."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "data").mkdir()
    (folder / "data/data.bin").write_bytes(b"d" * BYTES)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Slow, directory=str(folder / "data")))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (folder / "train.py").write_text(SCRIPT)
    (folder / "job.toml").write_text(JOB.format(port=server.server_port))
    try:
        command = [sys.executable, "-m", "headway", "run", "job.toml", "--pool", "local:cpus=2"]
        environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder)}
        subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=120)
        yield headway.Run.find(start=folder)
    finally:
        server.shutdown()
        server.server_close()


def test_a_run_brings_its_records(run: headway.Run) -> None:
    found = report(run.folder)
    assert found.name == "small-1"
    assert (found.totals.jobs, found.totals.succeeded, found.totals.failed) == (2, 1, 1)
    assert found.records.schema == RECORDS
    assert found.records["attempt"].to_list() == [0, 1]
    assert found.records["exit"].to_list() == [0, 83]
    assert found.records["segments"].to_list() == [2, 2]
    assert found.records["staged"].to_list() == [BYTES, BYTES]
    assert found.records["outputs"].to_list() == [1, 0]
    assert found.records["output_bytes"].to_list() == [1000, None]
    assert "exited with 3" in found.records["reason"][1]
    assert found.accounts.attempts["received"].to_list() == [BYTES, BYTES]
    assert found.accounts.attempts["reason"].to_list() == [None, "the command exited with 3"]
    assert "2 attempt records came home" in found.text()
    assert "1 output verified" in found.text(120)
    assert found.accounts.jobs["checkpoints"].to_list() == [1, 1]


def without_chirp(run: headway.Run, to: Path) -> RunFolder:
    """The same run as if no line of its agents had got through."""
    import shutil

    folder = RunFolder(Path(shutil.copytree(run.folder.path, to / run.label)))
    events = folder.events.read_bytes().split(b"...\n")
    folder.events.write_bytes(b"...\n".join(e for e in events if not e.startswith(b"008")))
    return folder


def test_what_the_log_does_not_tell_the_records_do(run: headway.Run, tmp_path: Path) -> None:
    whole = report(run.folder).accounts.attempts
    silent = without_chirp(run, tmp_path)
    found = report(silent).accounts.attempts
    assert found["agent_transfer"].all()
    assert found["slot_s"].to_list() == whole["slot_s"].to_list()
    assert found["received"].to_list() == [BYTES, BYTES]
    # Logs know whole seconds, so each of two segments may be off by one.
    for attempt, told in zip(found.iter_rows(named=True), whole.iter_rows(named=True), strict=True):
        assert COMPUTE - 2 <= attempt["compute_s"] <= attempt["slot_s"] - SLOW + 1
        assert SLOW - 1 <= attempt["transfer_in_s"] <= attempt["slot_s"] - COMPUTE + 2
        assert attempt["checkpoints"] == told["checkpoints"] == 1
    for path in silent.jobs.glob("*/attempts/*/record.json"):
        path.unlink()
    bare = report(silent).accounts.attempts
    assert not bare["agent_transfer"].any()
    assert bare["transfer_in_s"].sum() == 0
    assert bare["received"].sum() == 0


def test_a_clock_that_is_off_moves_no_phase_out_of_its_attempt(
    run: headway.Run, tmp_path: Path
) -> None:
    folder = without_chirp(run, tmp_path)
    for shift, path in zip(
        (-200, 200), sorted(folder.jobs.glob("*/attempts/*/record.json")), strict=True
    ):
        record = json.loads(path.read_text())
        for part in (*record["segments"], *record["phases"]):
            part["begin"] += shift
            part["end"] += shift
        path.write_text(json.dumps(record))
    found = report(folder)
    pieces = found.accounts.pieces.group_by("job").agg(pl.col("seconds").sum()).sort("job")
    assert pieces["seconds"].to_list() == pytest.approx(found.accounts.jobs["total_s"].to_list())
    assert found.accounts.attempts["agent_transfer"].all()
    for attempt in found.accounts.attempts.iter_rows(named=True):
        assert COMPUTE - 2 <= attempt["compute_s"] <= attempt["slot_s"] - SLOW + 1
        assert SLOW - 1 <= attempt["transfer_in_s"] <= attempt["slot_s"] - COMPUTE + 2


def test_damaged_records_are_passed_over(run: headway.Run, tmp_path: Path) -> None:
    folder = without_chirp(run, tmp_path)
    first, second = sorted(folder.jobs.glob("*/attempts/*/record.json"))
    first.write_bytes(b'{"segments": [' * 100_000)
    second.write_text('[{"exit": "nonsense"}]')
    (folder.jobs / "x" / "attempts" / "y").mkdir(parents=True)
    (folder.jobs / "x" / "attempts" / "y" / "record.json").write_text("{}")
    found = report(folder)
    assert found.records.is_empty()
    assert found.totals.succeeded == 1


Anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["stage-in", "run", "done", "85"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "begin", "end", "bytes", "seconds", "exit", "fetched"]), inner
        )
    ),
    max_leaves=12,
)


def test_records_name_the_sources(run: headway.Run, tmp_path: Path) -> None:
    folder = without_chirp(run, tmp_path)
    for path in folder.jobs.glob("*/attempts/*/record.json"):
        record = json.loads(path.read_text())
        gave = {"host": "one.cache:8443", "state": "active", "bytes": 5, "wasted": 1}
        bad = {"host": "two\x1b[31m", "state": "benched", "bytes": 0, "fault": "silent (body)"}
        odd: list[object] = [3, {"host": 7}, {"host": "three", "bytes": "x"}]
        record["inputs"] = [{"fetched": True, "bytes": 5, "sources": [gave, bad, *odd]}]
        path.write_text(json.dumps(record))
    found = report(folder)
    assert set(found.records["sources"]) == {"one.cache:8443"}
    rows = found.accounts.sources.filter(pl.col("attempt") == 0).drop("job", "attempt").rows()
    assert rows[0] == ("one.cache:8443", 5.0, 1.0, False, None)
    assert rows[1][1:] == (0.0, 0.0, True, "silent (body)")
    assert "\x1b" not in rows[1][0]
    assert [row[0] for row in rows[2:]] == ["three"]


def test_what_streams_is_no_staging() -> None:
    gave = {"host": "cache", "bytes": 7, "state": "active", "wasted": 0}
    file = {"path": "a", "fetched": True, "bytes": 5, "sources": []}
    stream = {"path": "b", "fetched": True, "mode": "stream", "bytes": 7, "sources": [gave]}
    row = row_of({"inputs": [file, {**stream, "refetched": 3, "waited": 1.5}]})
    assert (row["fetched"], row["streamed"], row["waited_s"]) == (5, 10, 1.5)
    assert row["sources"] == "cache"


@given(st.dictionaries(st.sampled_from([*RECORDS, "phases", "inputs", "command"]), Anything))
def test_whatever_a_record_holds_its_row_fits_the_table(raw: dict[str, Any]) -> None:
    row = row_of(raw)
    known = {name: row[name] for name in RECORDS if name in row}
    frame = pl.DataFrame([known], schema={name: RECORDS[name] for name in known})
    assert frame.height == 1


def test_a_run_s_name_goes_before_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = make_run(tmp_path, "tale")
    write_log(tmp_path / "tale", [0])
    for place in ("tale", "tale-1", folder.path, str(folder.path)):
        found = locate(place)
        assert isinstance(found, RunFolder) and found.path == folder.path
    assert locate("./tale") == Path("./tale")
    with pytest.raises(ReportError, match="there is no log and no run 'tail-1'") as caught:
        locate("tail-1")
    assert "did you mean tale-1?" in caught.value.remedy
    with pytest.raises(ReportError, match="no log and no run"):
        locate("x" * 5000)


def make_run(base: Path, name: str, *, pool: str = "htcondor") -> RunFolder:
    def fill(folder: RunFolder, _: RunFacts) -> None:
        folder.jobs.mkdir()

    runs = Runs(base / ".headway")
    return runs.create(name, pool={"kind": pool}, base=base, digest="", fill=fill)


def test_a_live_run_is_accounted_up_to_now(tmp_path: Path) -> None:
    begin = time.time() - 5000
    live = make_run(tmp_path, "live")
    write_log(live.events, [None, 0], begin=begin)
    now = report("live", start=tmp_path).accounts
    assert now.jobs["open_s"].to_list() == [pytest.approx(4990, abs=30), 0.0]
    plain = write_log(tmp_path / "plain.log", [None, 0], begin=begin)
    assert report(plain).accounts.jobs["open_s"].to_list() == [1100.0, 0.0]
    # Nobody runs a local run whose supervisor is gone.
    dead = make_run(tmp_path, "dead", pool="local")
    write_log(dead.events, [None, 0], begin=begin)
    assert report("dead", start=tmp_path).accounts.jobs["open_s"].to_list() == [1100.0, 0.0]
    # A run that is over does not grow.
    over = make_run(tmp_path, "over")
    write_log(over.events, [0, 1], begin=begin)
    assert report("over", start=tmp_path).accounts.end == pytest.approx(begin + 1110, abs=1)


def test_a_run_that_was_never_submitted(tmp_path: Path) -> None:
    make_run(tmp_path, "never")
    with pytest.raises(ReportError, match="never-1 has no event log yet"):
        report("never", start=tmp_path)


def test_folders_rotations_and_compressed_logs(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    write_log(tmp_path / "logs/a.log", [0, 1])
    whole = (tmp_path / "logs/a.log").read_bytes()
    with gzip.open(tmp_path / "logs/b.log.gz", "wb") as file:
        file.write(whole.replace(b"(001.", b"(002."))
    (tmp_path / "logs/notes.txt").write_text("hello")
    found = report(tmp_path / "logs")
    assert found.accounts.jobs["id"].to_list() == ["1.0", "1.1", "2.0", "2.1"]
    assert len(found.accounts.files) == 2
    assert "1 other file is not an event log or has no events." in found.text()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it is empty"),
        (b"\0" * 5000, "not an event log"),
        (b"nothing but words\n" * 100, "not an event log"),
        (b"000 (001.000.000) 2025-13-45 08:00:00 Job submitted\n...\n" * 50, "bytes were skipped"),
    ],
)
def test_nothing_to_report_of(tmp_path: Path, content: bytes, said: str) -> None:
    log = tmp_path / "x.log"
    log.write_bytes(content)
    with pytest.raises((ReportError, EventLogError), match=said):
        report(log)


def test_an_empty_folder_and_no_place_at_all(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="there is no event log"):
        report(tmp_path)
    with pytest.raises(ReportError, match="no log or run was named"):
        report([])


def test_damage_is_skipped_and_told(tmp_path: Path) -> None:
    log = write_log(tmp_path / "x.log", [0, 0])
    whole = log.read_bytes()
    cut = whole.index(b"...\n") + 4
    log.write_bytes(whole[:cut] + b"<<<<<<< HEAD\n\0\0\0\0\n" + whole[cut:])
    found = report(log)
    assert found.totals.succeeded == 2
    assert sum(skip.length for _, skip in found.accounts.skipped) > 0
    assert "which are part of no event" in found.text()
    document = found.json()
    assert document["skipped"][0]["file"] == str(log)


def test_a_declared_output_must_be_there_and_not_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "logs").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    log = write_log(tmp_path / "logs/x.log", [0, 0, 0, 0, 1], cluster=7)
    (tmp_path / "here/m_7_0.pt").write_text("here")
    (tmp_path / "logs/m_7_1.pt").write_text("beside the log")
    (tmp_path / "here/m_7_2.pt").write_text("")
    (tmp_path / "here/m_7_4.pt").write_text("of a job that failed")
    outcomes = report(log, outputs="m_$(ClusterId)_$(Process).pt").accounts.jobs["outcome"]
    assert outcomes.to_list() == ["success", "success", *["failed"] * 3]
    both = report(log, outputs=["m_$(Cluster)_$(ProcId).pt", "log_$(process)"])
    assert both.totals.succeeded == 0
    assert "is the pattern of --output right" in both.notes[0]
    assert report(log).totals.succeeded == 4
    with pytest.raises(ReportError, match=r"\$\(Item\)"):
        report(log, outputs="m_$(Item)")
    assert declared("a$(CLUSTER).$( Process )")(1, 2) == "a1.2"


def test_since_leaves_out_and_says_so(tmp_path: Path) -> None:
    write_log(tmp_path / "old.log", [0, 0, 0], begin=BEGIN)
    write_log(tmp_path / "new.log", [0, 1], begin=BEGIN + 86400, cluster=2)
    logs = [tmp_path / "old.log", tmp_path / "new.log"]
    found = report(logs, since=BEGIN + 5000)
    assert found.totals.jobs == 2
    assert found.notes[0].startswith("3 jobs without an event since ")
    assert report(logs, since=BEGIN).notes == ()
    with pytest.raises(ReportError, match=r"no job has an event since .* the last event is of"):
        report(logs, since=BEGIN + 200_000)


def test_the_same_events_from_two_files_count_once(tmp_path: Path) -> None:
    log = write_log(tmp_path / "x.log", [0, 0])
    (tmp_path / "copy.log").write_bytes(log.read_bytes())
    assert report([log, log, tmp_path / "copy.log"]).totals.jobs == 2


def test_hostile_text_is_inert_on_a_terminal(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    with EventWriter(log) as writer:
        writer.submitted(1, 0, HOST, time=BEGIN)
    raw = log.read_bytes()
    hostile = "\x1b[2J\x1b]0;title\x07\u202eevil\x9b31m".encode()
    raw += b"001 (001.000.000) 2025-09-04 18:00:00 Job executing on host: <127.0.0.1:1>\n"
    raw += b"\tSlotName: slot1@" + hostile + b'\n\tGLIDEIN_ResourceName = "' + hostile + b'"\n...\n'
    raw += b"012 (001.000.000) 2025-09-04 18:10:00 Job was held.\n\t" + hostile * 3
    raw += b"\n\tCode 13 Subcode 256\n...\n"
    log.write_bytes(raw)
    found: Report = report(log)
    text = found.text(everything=True, by="site") + found.text(by="code")
    assert not [char for char in text if ord(char) < 32 and char != "\n"]
    assert not set(text) & {"\x7f", "\x9b", "\u202e"}
    assert "evil" in text


def test_a_last_event_that_is_not_complete_is_told(tmp_path: Path) -> None:
    log = write_log(tmp_path / "x.log", [0, None])
    whole = log.read_bytes()
    with log.open("ab") as file:
        file.write(b"005 (001.001.000) 2025-09-04 16:00:00 Job termin")
    found = report(log)
    assert found.totals.unfinished == 1
    text = " ".join(found.text().split())
    assert "not complete (48 bytes from byte" in text and "still being written?" in text
    assert found.json()["unfinished"] == [{"file": str(log), "offset": len(whole), "bytes": 48}]
    page = found.html()
    assert "still being written?" in page and "Every byte was read" not in page
    assert "still being written?" in " ".join(found.compare(found).notes)
    log.write_bytes(whole)
    assert "still being written?" not in report(log).text()
    assert "Every byte was read" in report(log).html()


def test_the_page_has_the_notes_too(tmp_path: Path) -> None:
    log = write_log(tmp_path / "x.log", [0, 0])
    found = report(log, outputs="model_$(Process).pt")
    assert found.notes and "is the pattern of --output right" in found.html()


def test_a_folder_without_logs_says_what_to_name(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(ReportError, match=r"notes\.txt is not an event log") as caught:
        report(tmp_path)
    assert "`log =`" in (caught.value.remedy or "")
