"""benchmarks/transfer.py and transfer_faults.py: how they judge, and that they run, in small."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from measure import file_system, machine
from transfer import LIMITS, Column, Run, Rush, _measure, crowd_complaints, quartiles
from transfer_faults import CHUNK, MOST_REQUESTS, Cell, judge, rows, table

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TARGETS = ("memory", "disk")
OURS = ["headway", "headway sha256", "headway manifest"]


@pytest.fixture
def tools() -> list[str]:
    return [*OURS, *filter(shutil.which, ["curl"])]


def ran(name: str, *arguments: str, folder: Path, **variables: str) -> tuple[int, list[str]]:
    """A benchmark's exit code, and what it printed; it must have come to its end."""
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / name), *arguments],
        env={**os.environ, "TMPDIR": str(folder), **variables},
        capture_output=True,
        text=True,
        timeout=100,
    )
    wrong = [line for line in done.stderr.splitlines() if not line.startswith("without ")]
    assert not wrong and done.returncode in (0, 1), done.stderr
    return done.returncode, done.stdout.splitlines()


def column(way: str = "http", target: str = "memory", **seconds: list[float]) -> Column:
    """A gigabyte a run; as many CPU seconds as it takes."""
    made = Column(way, target, 1, 10**9)
    for name, each in seconds.items():
        made.runs[name] = [Run(one, one, 30_000_000) for one in each]
    return made


@pytest.mark.parametrize(
    ("way", "target", "ours", "said"),
    [
        ("http", "memory", 1.0, []),
        ("http", "memory", 1.01, ["0.990 of curl's rate, not 1.00", "1.01 times curl's CPU"]),
        ("https", "memory", 1.05, []),
        ("https", "memory", 1.1, ["0.909 of curl's rate, not 0.95"]),
        ("https", "memory", 1.2, ["0.833 of curl's rate, not 0.95", "1.20 times curl's CPU"]),
        ("http", "disk", 1.05, []),
        ("https", "disk", 1.06, ["0.943 of curl's rate, not 0.95"]),
        ("https", "disk", 1.25, ["0.800 of curl's rate, not 0.95", "1.25 times curl's CPU"]),
        ("wide", "memory", 1.5, ["0.667 of curl's rate, not 1.00"]),  # CPU is not judged there
    ],
)
def test_limits(way: str, target: str, ours: float, said: list[str]) -> None:
    complaints = column(way, target, headway=[ours], curl=[1.0], wget=[2.0]).complaints()
    assert len(complaints) == len(said)
    assert all(words in complaint for words, complaint in zip(said, complaints, strict=True))


def test_a_faster_peer_counts_where_the_fastest_is_the_measure() -> None:
    def complaints(way: str, target: str) -> list[str]:
        return column(way, target, headway=[1.0], curl=[1.0], curl_plugin=[0.5]).complaints()

    assert complaints("https", "memory") == []
    for way, target in (("http", "memory"), ("http", "disk"), ("https", "disk")):
        (said,) = complaints(way, target)
        assert "0.500 of curl_plugin's rate" in said
    assert set(LIMITS) >= {(way, target) for way in ("http", "https") for target in TARGETS}


def test_memory_is_limited_and_the_median_decides() -> None:
    taken = column(headway=[1.0, 0.9, 9.0], curl=[1.0, 1.0, 1.0])
    assert taken.complaints() == []
    taken.runs["headway"] = [replace(run, memory=90_000_000) for run in taken.runs["headway"]]
    assert taken.complaints() == ["http, 1 connection, in memory: 90 MB of memory"]


def test_what_proves_is_shown_and_not_judged() -> None:
    taken = column(headway=[1.0], curl=[1.0])
    taken.runs |= {"headway sha256": [Run(99.0, 99.0, 1)], "headway+": [Run(0.1, 0.1, 1)]}
    assert taken.complaints() == [] and taken.fastest_peer() == "curl"
    shown = "\n".join(taken.lines())
    assert all(name in shown for name in taken.runs)


def test_who_is_far_behind_need_not_run_on() -> None:
    taken = column(headway=[1.0] * 3, curl=[1.0] * 3, wget=[1.2] * 3, pelicanfs=[2, 2, 1.3])
    taken.runs["headway sha256"] = []
    wanted = {"headway": 9, "curl": 9, "wget": 9, "pelicanfs": 3, "headway sha256": 3}
    assert {name: taken.most_runs(name, 9) for name in wanted} == wanted
    assert taken.most_runs("pelicanfs", 2) == 2
    slow = column(headway=[1.0] * 3, curl=[5.0] * 3, wget=[1.0] * 3)
    assert slow.most_runs("curl", 9) == 9  # its CPU is the measure
    early = column(wget=[1.0] * 2, pelicanfs=[9.0] * 2)
    assert early.most_runs("pelicanfs", 9) == 9


def test_a_column_is_kept_whole() -> None:
    taken = column(headway=[1.0, 2.0], curl=[3.0])
    assert Column.read(json.loads(json.dumps(asdict(taken)))) == taken


def test_quartiles() -> None:
    assert quartiles([3.0]) == (3.0, 3.0)
    assert quartiles([1.0, 2.0, 3.0, 4.0, 5.0]) == (2.0, 4.0)


def test_what_follows_a_tool_counts(tmp_path: Path) -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    tries = [_measure([["true"]], dict(os.environ), tmp_path) for _ in range(9)]
    alone = min(tries, key=lambda run: run.seconds)  # a busy machine makes some of them longer
    both = _measure([["true"], [sys.executable, "-c", busy]], dict(os.environ), tmp_path)
    assert both.seconds >= 0.3 > alone.seconds and both.cpu >= 0.3 > alone.cpu
    with pytest.raises(SystemExit, match="false failed"):
        _measure([["true"], ["false"]], dict(os.environ), tmp_path)


def test_the_machine_is_named(tmp_path: Path) -> None:
    assert file_system(Path("/proc/self/task")) == "proc"
    assert file_system(tmp_path) == file_system(tmp_path / "not" / "there") != "unknown"
    about = machine()
    assert about["cores"] and all(about.values())


@pytest.mark.parametrize(("way", "runs"), [("http", 2), ("https", 1), ("wide-https", 1)])
def test_every_tool_has_its_row(way: str, runs: int, tools: list[str], tmp_path: Path) -> None:
    words = ["--size", "1", "--runs", str(runs), "--ways", way, "--connections", "2"]
    where = ["--tools", ",".join(tools), "--folder", str(tmp_path), "--disk", str(tmp_path)]
    keep = tmp_path / "kept.json"
    _, lines = ran("transfer.py", *words, *where, "--json", str(keep), folder=tmp_path)
    kept = json.loads(keep.read_text())
    assert set(kept["machine"]["tools"]) == set(tools)
    columns = [Column.read(raw) for raw in kept["columns"]]
    assert [each.target for each in columns] == (["memory"] if "wide" in way else [*TARGETS])
    assert set(kept["machine"]["file_systems"]) == {each.target for each in columns}
    for each in columns:
        assert each.title in lines and set(each.runs) == set(tools)
        assert all(len(own) == runs for own in each.runs.values())
        # memory is looked at now and then: of one that ends at once little may have been seen
        assert all(
            run.seconds > 0 and run.cpu > 0 and run.memory < 80e6
            for own in each.runs.values()
            for run in own
        )
    assert any("min left" in line for line in lines)
    assert not [path for path in tmp_path.iterdir() if path != keep]


def test_a_column_ends_when_its_time_is_over(tmp_path: Path) -> None:
    words = ["--size", "1", "--runs", "5", "--ways", "http", "--connections", "1"]
    more = ["--targets", "memory", "--minutes", "0", "--tools", "headway"]
    _, lines = ran("transfer.py", *words, *more, "--folder", str(tmp_path), folder=tmp_path)
    assert "http, 1 connection, in memory: its time is over after 3 turns" in lines
    assert not any("turn 4 of 5" in line for line in lines)


def test_on_a_disk_a_sync_follows_each_run(tools: list[str], tmp_path: Path) -> None:
    seen, real, noting = tmp_path / "seen", shutil.which("sync"), tmp_path / "bin" / "sync"
    noting.parent.mkdir()
    noting.write_text(f'#!/bin/sh\necho "$@" >> {seen}\nexec {real} "$@"\n')
    noting.chmod(0o755)
    path = f"{noting.parent}:{os.environ['PATH']}"
    words = ["--size", "1", "--runs", "1", "--ways", "http", "--connections", "1"]
    where = ["--tools", ",".join(tools), "--folder", str(tmp_path), "--disk", str(tmp_path)]
    ran("transfer.py", *words, *where, folder=tmp_path, PATH=path)
    synced = [[Path(word) for word in line.split()] for line in seen.read_text().splitlines()]
    assert len(synced) == len(tools)  # those in memory have none
    assert all(file.parent == folder and file.name == "target" for file, folder in synced)


@pytest.mark.parametrize(("ours", "complains"), [(10.0, False), (10.1, True)])
def test_a_crowd_is_judged_by_the_mean_of_both_turns(ours: float, complains: bool) -> None:
    rushes = [Rush("headway", 1, seconds, 0, 9) for seconds in (9.0, 11.0)]
    rushes += [Rush("headway", None, ours, 0, 9) for _ in range(2)]
    assert bool(crowd_complaints(rushes)) is complains
    assert crowd_complaints([*rushes[:3], replace(rushes[3], failed=1)])


def test_a_crowd(tools: list[str], tmp_path: Path) -> None:
    words = ["--clients", "3", "--size", "1", "--tools", ",".join(tools)]
    words += ["--json", str(tmp_path / "kept.json")]
    _, lines = ran("transfer.py", "--crowd", *words, "--folder", str(tmp_path), folder=tmp_path)
    assert lines[0] == "3 clients, 1 MiB each"
    wanted = ["headway, 1 connection", "headway, as it comes"] * 2
    wanted += ["curl, 1 connection"] if "curl" in tools else []
    assert sorted(line[:28].rstrip() for line in lines[1:] if " s (ideal " in line) == sorted(
        wanted
    )
    assert not any("failed" in line for line in lines)
    kept = json.loads((tmp_path / "kept.json").read_text())
    assert sorted(Rush(**raw).label for raw in kept["rushes"]) == sorted(wanted)


SIZE = 200 << 20
ROWS = {row.name: row for row in rows(SIZE)}


def cell(fault: str, *, beside: bool = False, **changes: object) -> Cell:
    """What Headway should make of a fault, or else."""
    unknowable = ROWS[fault].alone == "unknowable" and not beside
    right = Cell(
        "headway", beside, fault, "", "ok", 3.0, SIZE, SIZE, 30, False, unknowable, "gave up"
    )
    return replace(right, **changes)  # type: ignore[arg-type]


def judged(*cells: Cell) -> list[str]:
    return judge([cell("none", beside=True), *cells], ROWS)


def test_rows_have_names_of_their_own() -> None:
    assert len(ROWS) == len(rows(SIZE))
    assert {row.alone for row in ROWS.values()} == {"any", "right", "unknowable"}


@pytest.mark.parametrize("beside", [False, True])
def test_wrong_bytes_are_a_fault_where_anything_could_tell(beside: bool) -> None:
    for changes in ({"outcome": "silent"}, {"outcome": "fail", "left": True}):
        told = judged(cell("captive portal", beside=beside, **changes))
        assert any("wrong bytes under the final name" in words for words in told)
    unknown = cell("HTTP/1.0, ends early", beside=beside, outcome="silent")
    assert bool(judged(unknown)) is beside
    assert str(unknown) == ("wrong, silently" if beside else "nothing could tell")


def test_beside_a_healthy_source_all_must_be_right_soon_and_sparing() -> None:
    def complains(fault: str, **changes: object) -> bool:
        return bool(judged(cell(fault, beside=True, **changes)))

    assert not complains("hangs", seconds=12.9, sent=int(1.05 * SIZE))
    assert complains("hangs", seconds=13.1)
    assert complains("hangs", sent=int(1.06 * SIZE))
    assert complains("hangs", outcome="fail") and complains("hangs", outcome="never")
    assert not complains("flipped byte", sent=2 * SIZE)
    guessed = "wrong bytes after a good start"
    assert not complains(guessed, sent=int(1.75 * SIZE) + CHUNK - 1)
    assert complains(guessed, sent=int(1.75 * SIZE) + CHUNK + 10)


def test_alone_it_may_fail_but_not_for_ever() -> None:
    assert not judged(cell("hangs", outcome="never", sent=0))
    assert judged(cell("folded headers", outcome="fail", sent=0))
    assert not judged(cell("flipped byte", outcome="fail", sent=2 * SIZE))
    endless = cell("no length, chunks cut off", outcome="never", sent=3 * SIZE + 1)
    assert judged(endless) == ["headway, no length, chunks cut off: 629 MB in 30 requests"]
    assert str(endless) == "never, 629 MB"
    assert judged(cell("hangs", outcome="never", sent=0, requests=MOST_REQUESTS + 1))


def test_other_tools_are_not_judged() -> None:
    assert not judged(replace(cell("hangs", beside=True, outcome="never"), tool="aria2c"))


def test_the_table_has_a_line_for_each_fault_and_a_column_for_each_tool() -> None:
    cells = [cell("none"), cell("none", beside=True), cell("hangs", outcome="never", sent=0)]
    assert table([*cells, replace(cells[0], tool="curl", seconds=4.0)]) == [
        "| fault | declared | **headway** | curl | **headway +1** |",
        "| --- | --- | --- | --- | --- |",
        "| none |  | 3 s | 4 s | 3 s |",
        "| hangs |  | never |  |  |",
    ]


def test_faults(tools: list[str], tmp_path: Path) -> None:
    faults = ["none", "404 for 2 s", "flipped byte", "no Range", "dead IPv6 beside IPv4"]
    words = ["--size", "2", "--limit", "20", "--tools", ",".join(tools)]
    more = ["--faults", ";".join(faults), "--json", str(tmp_path / "cells")]
    code, lines = ran("transfer_faults.py", *words, *more, folder=tmp_path)
    assert code == 0, lines
    kept = json.loads((tmp_path / "cells").read_text())
    cells = [Cell(**raw) for raw in kept["cells"]]
    if not any(each.fault == faults[-1] for each in cells):  # no IPv6, or no namespaces here
        faults.pop()
    found = {(each.label, each.fault): each.outcome for each in cells}
    assert len(found) == len(cells) == len(faults) * (3 if "curl" in tools else 2)
    assert all(found["headway +1", fault] == "ok" for fault in faults)
    assert table(cells)[0] in lines
    assert str(tmp_path) not in (tmp_path / "cells").read_text()
    if "curl" in tools:
        assert found["curl", "flipped byte"] == "silent"
