"""What each tool makes of a sick source, alone and beside a healthy one.

    python benchmarks/transfer_faults.py [--size MB] [--limit SECONDS] [--tools A,B] [--faults A,B]
                                         [--at-once N] [--json FILE]

Runs curl, wget, aria2c, pelicanfs, HTCondor's own curl_plugin and Headway (those that are here) on
servers of the fault lab, on loopback, each cell in a process of its own with a time limit. A source
gives 100 MB/s. "+1" means that a healthy mirror was offered after the sick source. A cell says:

    ok 2.1 s / 0 MB     the file is right; seconds; megabytes sent beyond its size
    silent              the tool was content with wrong bytes
    fail 62 s / 30 MB   it gave up; "left" when wrong bytes lie under the final name
    never               still at it when the time limit came

Exits with 1 when Headway leaves wrong bytes, or fails, is late (healthy time and 10 s) or wasteful
(5 %) with a healthy source beside the sick one. Where only a checksum of the whole tells that bytes
are wrong, here with a flipped byte and with another version, no order of fetching can do with
less than the whole again in the worst case, so that is what it may cost; with a manifest it is a
chunk (tests/node/transfer/test_faults.py).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.lab import (
    Authority,
    Delay,
    Director,
    Drop,
    Fault,
    Flip,
    Garbage,
    Hang,
    IgnoreRange,
    Made,
    Rate,
    Redirect,
    Reset,
    Server,
    Silent,
    Status,
    Truncate,
    Version,
    WrongContentRange,
)
from transfer_tools import TOOLS, Task, Tool, environment

PACE = 100e6  # bytes per second of every source
LATE, WASTE = 10.0, 0.05  # what Headway may cost beside a healthy source
UNSEEN = ("flipped byte", "other version")  # only the whole's checksum tells
NAME = "/lab/object"


def faults(size: int) -> dict[str, list[Fault]]:
    """The columns: those of every tool's manual, then those that only careful tools notice."""
    return {
        "none": [],
        "hang": [Hang()],
        "stall for ever": [Silent(after=size // 4, scope="server")],
        "stall per conn": [Silent(after=size // 8)],
        "1 KB/s": [Rate(1000)],
        "404 for 2 s": [Status(404).for_seconds(2)],
        "503 for 6 s": [Status(503, retry_after="2").for_seconds(6)],
        "truncated": [Truncate(size // 2, scope="object")],
        "flipped byte": [Flip(size // 3)],
        "reset often": [Reset(every=size // 4)],
        "no Range": [IgnoreRange()],
        "404": [Status(404)],
        "cut once": [Truncate(size // 2).once()],
        "refused": [Drop()],
        "garbage": [Garbage()],
        "loop": [Redirect()],
        "wrong range": [WrongContentRange(1 << 16)],
        "other version": [Version(Made(size, seed=2))],
        "late 3 s": [Delay(3)],
    }


@dataclass
class Cell:
    tool: str
    fault: str
    outcome: str  # ok, silent, fail, never
    seconds: float
    wasted: float  # megabytes
    left: bool  # wrong bytes lie under the final name
    words: str  # the end of what the tool said

    def __str__(self) -> str:
        cost = f"{self.seconds:.0f} s / {self.wasted:.0f} MB"
        if self.outcome == "never":
            return "never"
        return f"{self.outcome} {cost}" + (", left" if self.left and self.outcome == "fail" else "")


def main() -> int:
    parser = argparse.ArgumentParser(description="Run transfer tools against sick sources.")
    parser.add_argument("--size", type=int, default=200, help="MiB")
    parser.add_argument("--limit", type=float, default=320, help="seconds for one cell")
    parser.add_argument("--tools", help="some of: " + ", ".join(TOOLS))
    parser.add_argument("--faults", help="some of: " + ", ".join(faults(1 << 20)))
    parser.add_argument("--at-once", type=int, default=4, help="cells; most of them only wait")
    parser.add_argument("--json", type=Path, help="write all cells to this file")
    arguments = parser.parse_args()
    content = Made(arguments.size << 20, seed=1)
    content.digest("sha256")
    every = faults(content.size)
    columns = arguments.faults.split(",") if arguments.faults else list(every)
    rows: list[tuple[Tool, bool]] = []
    for tool in TOOLS.values():
        if (
            tool.tls_only
            or tool.proves
            or (arguments.tools and tool.name not in arguments.tools.split(","))
        ):
            continue
        if why := tool.missing():
            print(f"without {tool.name}: {why}", file=sys.stderr)
            continue
        rows += [(tool, False)] if not tool.federated else []
        rows += [(tool, True)] if tool.federated or tool.mirrors else []
    authority = Authority.get()  # made before the threads begin
    with ThreadPoolExecutor(arguments.at_once) as pool:
        cells = {
            (tool.name, beside, column): pool.submit(
                _run, tool, beside, column, every[column], content, arguments.limit, authority
            )
            for tool, beside in rows
            for column in columns
        }
        print(f"{content.size / 2**20:.0f} MiB; limit {arguments.limit:g} s\n")
        print("| tool | " + " | ".join(columns) + " |")
        print("| --- |" + " --- |" * len(columns))
        for tool, beside in rows:
            texts = [str(cells[tool.name, beside, column].result()) for column in columns]
            print(f"| {_label(tool, beside)} | " + " | ".join(texts) + " |", flush=True)
    done = [cell.result() for cell in cells.values()]
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(cell) for cell in done], indent=1))
    return _judge(done, content.size)


def _label(tool: Tool, beside: bool) -> str:
    return f"{tool.name} +1" if beside else tool.name


def _run(
    tool: Tool,
    beside: bool,
    column: str,
    sickness: list[Fault],
    content: Made,
    limit: float,
    authority: Authority,
) -> Cell:
    """One cell: a sick source, perhaps a healthy one, one process."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headway-bench-")))
        base = Rate(PACE, scope="server")
        sources = [stack.enter_context(Server({NAME: content}, [base, *sickness]))]
        if beside:
            sources.append(stack.enter_context(Server({NAME: content}, [base])))
        federation = ""
        if tool.federated:
            director = stack.enter_context(Director("/lab", sources, sources[-1:]))
            federation = f"pelican://{director.address[0]}:{director.address[1]}"
        path = folder / "object"
        urls = [source.url(NAME) for source in sources]
        task = Task(
            urls,
            path,
            content.size,
            content.digest("sha256"),
            federation=federation,
            name=NAME,
            bundle=authority.bundle,
        )
        code, seconds, words = _call(
            tool.command(task), environment(tool, authority), folder, limit
        )
        sent = sum(source.sent for source in sources)
        right = path.exists() and content.fault(path) is None
        left = path.exists() and not right and not _unfinished(path)
    if code is None:
        outcome = "never"
    elif code == 0:
        outcome = "ok" if right else "silent"
    else:
        outcome = "fail"
    wasted = max(0, sent - content.size) if outcome in ("ok", "silent") else sent
    return Cell(_label(tool, beside), column, outcome, seconds, wasted / 1e6, left, words)


def _unfinished(path: Path) -> bool:
    """Whether the tool itself marks the file as a part, as aria2c does with a control file."""
    return path.with_name(path.name + ".aria2").exists()


def _call(
    command: list[str], variables: dict[str, str], folder: Path, limit: float
) -> tuple[int | None, float, str]:
    """Exit code (None: it did not end), seconds, and the end of what it said."""
    log = folder / "said"
    begin = time.monotonic()
    with log.open("wb") as said:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env=variables,
            cwd=folder,
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        seconds = time.monotonic() - begin
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its own session: whatever it left behind
        process.wait()
    return code, seconds, log.read_text(errors="replace")[-300:]


def _last_line(cell: Cell) -> str:
    return (cell.words.strip().splitlines() or ["it said nothing"])[-1]


def _judge(cells: list[Cell], size: int) -> int:
    """Complaints about Headway's own row."""
    complaints = []
    healthy = min(
        (c.seconds for c in cells if c.tool == "headway +1" and c.fault == "none"), default=0
    )
    for cell in cells:
        if not cell.tool.startswith("headway"):
            continue
        if cell.outcome == "silent" or cell.left:
            complaints.append(f"{cell.tool}, {cell.fault}: wrong bytes under the final name")
        if not cell.tool.endswith("+1"):
            continue
        if cell.outcome != "ok":
            complaints.append(f"{cell.tool}, {cell.fault}: {cell.outcome}: {_last_line(cell)}")
        elif cell.seconds > healthy + LATE:
            complaints.append(f"{cell.tool}, {cell.fault}: {cell.seconds:.1f} s")
        elif cell.wasted * 1e6 > (WASTE + (cell.fault in UNSEEN)) * size:
            complaints.append(f"{cell.tool}, {cell.fault}: {cell.wasted:.1f} MB wasted")
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
