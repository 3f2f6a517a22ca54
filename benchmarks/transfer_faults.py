"""What each tool makes of a sick source, alone and beside a healthy one.

    python benchmarks/transfer_faults.py [--size MB] [--limit SECONDS] [--tools A,B] [--faults A,B]
                                         [--at-once N] [--json FILE]

Runs curl, wget, aria2c, pelicanfs, HTCondor's own curl_plugin and Headway (those that are here) on
servers of the fault lab, on loopback, each cell in a process of its own with a time limit. A source
gives 100 MB/s. "+1" means that a healthy mirror was offered after the sick source. Tools that can
check one are told the size and a checksum of the whole, unless the row says otherwise. A cell says:

    2 s, 30 MB              the file is right; seconds; megabytes sent beyond its size
    wrong, silently         the tool was content with wrong bytes
    nothing could tell      so it was, and nothing was declared and no other source offered
    error, 62 s, 30 MB      it gave up; "wrong file left" when wrong bytes lie under the final name
    never                   still at it when the time limit came

Exits with 1 when Headway

- leaves wrong bytes where anything that was declared or a second source could have told;
- fails, is late (healthy time and 10 s) or wasteful (5 %) with a healthy source beside the sick
  one. Fifty hung sources may cost 25 s. Where only a checksum of the whole tells that some bytes
  are wrong, samples across both sources find out where they differ, and not which of the two is
  right: the smaller share of that part is fetched from the other source first, and if this was the
  wrong guess all of the part. Where half of the bytes differ, that is three quarters of the object
  at most, and a chunk. A single flipped byte escapes samples, and where all bytes differ there is
  nothing to narrow down: these may cost the whole again. With a manifest it is a chunk
  (tests/node/transfer/test_faults.py);
- fails alone where the object is whole and only what is said of it is strange;
- goes on for ever: more than three times the object's size, or more than 200 requests.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measure import machine
from tests.lab import (
    Authority,
    Chunked,
    Coded,
    Delay,
    Director,
    Drop,
    Fault,
    Flip,
    FoldedHeaders,
    Garbage,
    Hang,
    Headers,
    Http10,
    IgnoreRange,
    LineFeeds,
    LyingHead,
    Made,
    OtherBytes,
    Portal,
    Rate,
    Redirect,
    Reset,
    Server,
    Silent,
    Status,
    Truncate,
    Unsized,
    Validators,
    Version,
    WrongContentRange,
    dead_ipv6,
)
from transfer_tools import TOOLS, Task, Tool, environment

from headway.node.transfer.scheduler import FIRST_CHUNK

PACE = 100e6  # bytes per second of every source
LATE, WASTE = 10.0, 0.05  # what Headway may cost beside a healthy source
SAMPLED = 0.10  # where only the whole's checksum tells, and a chunk:
CHUNK = 8 << 20
MOST_BYTES, MOST_REQUESTS = 3.0, 200  # of one download: times its size
SMALL = 16 << 20  # the object whose server needs long for each byte
NAME = "/lab/object.tar"
BOTH = "both.lab.invalid"  # the name of a host with IPv6 and IPv4


@dataclass(frozen=True)
class Row:
    """One fault: what is wrong with a source, and what a tool may know of the object."""

    name: str
    faults: tuple[Fault, ...] = ()
    declared: str = "size, sha256"
    alone: str = "any"  # "right": a careful tool needs no mirror; "unknowable": nothing can tell
    waste: float = WASTE  # of the size, that may be sent beyond it beside a healthy source
    late: float = LATE  # seconds beyond those of a healthy source, beside one
    small: bool = False
    sick: int = 1  # sources that have the fault
    tls: str = ""  # which of the lab's identities the sick source has
    dead_ipv6: bool = False  # the source's name has an IPv6 address that does not answer

    def size(self, size: int) -> int:
        return min(size, SMALL) if self.small else size


def rows(size: int) -> list[Row]:
    """Those of every tool's manual, then those that only careful tools notice."""
    half, small = size // 2, min(size, SMALL) // 2
    guessed_wrong = 1.5 * half / size + CHUNK / size
    undated = Headers((("Last-Modified", None),))
    untagged = Headers((("ETag", None),))
    page = b"<html><body><h1>503 Service Unavailable</h1></body></html>\n"
    date = "Fri, 03 Jan 2025 00:00:00 GMT"
    return [
        Row("none", alone="right"),
        Row("hangs", (Hang(),)),
        Row("silent for ever after some bytes", (Silent(after=size // 4, scope="server"),)),
        Row("silent on each connection after some bytes", (Silent(after=size // 8),)),
        Row("1 KB/s", (Rate(1000),)),
        Row("404 for 2 s", (Status(404).for_seconds(2),)),
        Row("503 for 6 s", (Status(503, retry_after="2").for_seconds(6),)),
        Row("truncated, with a correct length", (Truncate(half, scope="object"),)),
        Row("flipped byte", (Flip(size // 3),), waste=1 + SAMPLED),
        Row("reset often", (Reset(every=size // 4),)),
        Row("no Range", (IgnoreRange(),), alone="right"),
        Row("404 for ever", (Status(404),)),
        Row("cut once", (Truncate(half).once(),)),
        Row("connection refused", (Drop(),)),
        Row("garbage", (Garbage(),)),
        Row("redirects in a loop", (Redirect(),)),
        Row("wrong Content-Range", (WrongContentRange(1 << 16),)),
        Row("another version of the object", (Version(Made(size, seed=2)),), waste=1 + WASTE),
        Row("answers 3 s late", (Delay(3),)),
        # bytes that only a checksum tells from the right ones
        Row(
            "right range said, other bytes given",
            (WrongContentRange(1 << 16, lie=True),),
            waste=1 + WASTE,  # all of them: with two sources, only the whole tells whose are right
        ),
        Row("wrong bytes after a good start", (OtherBytes(half),), waste=guessed_wrong),
        # no length anywhere
        Row(
            "no length, chunks cut off",
            (IgnoreRange(), Chunked(), Truncate(half)),
            declared="nothing",
        ),
        Row(
            "no length, connection closed early",
            (Unsized(), Truncate(half)),
            declared="nothing",
            alone="unknowable",
        ),
        Row("no length, TLS cut off", (Unsized(), Truncate(half)), declared="nothing", tls="good"),
        Row(
            "HTTP/1.0, ends early",
            (Http10(), Truncate(half)),
            declared="nothing",
            alone="unknowable",
        ),
        # what is said of an object that is right
        Row("HEAD: 0 bytes", (LyingHead(length=0),), declared="nothing", alone="right"),
        Row("HEAD: another size", (LyingHead(length=half),), declared="nothing", alone="right"),
        Row("HEAD: another ETag", (LyingHead(etag='"x"'),), declared="nothing", alone="right"),
        Row(
            "HEAD: another date",
            (untagged, LyingHead(modified=date)),
            declared="nothing",
            alone="right",
        ),
        Row("a new ETag each time", (Validators(etag="new"),), declared="sha256", alone="right"),
        Row(
            "a new ETag each time, nothing declared",
            (Validators(etag="new"),),
            declared="nothing",
            alone="right",
            waste=WASTE + FIRST_CHUNK / size,  # what came under the first ETag
        ),
        Row(
            "Last-Modified: now",
            (untagged, Validators(modified="now")),
            declared="sha256",
            alone="right",
        ),
        Row(
            "two back ends with their own ETags",
            (undated, Validators(etag=('"a"', '"b"'))),
            declared="sha256",
            alone="right",
        ),
        # pages in place of the object
        Row("captive portal", (Portal(),)),
        Row("captive portal, nothing declared", (Portal(),), declared="nothing"),
        Row(
            "error page with 200, nothing declared",
            (Portal(page).methods("GET"),),
            declared="nothing",
        ),
        # the way to the object
        Row("fifty that hang", (Hang(),), sick=50, late=25.0),
        Row("dead IPv6 beside IPv4", dead_ipv6=True, alone="right"),
        Row("expired certificate", tls="expired"),
        # framing
        Row("gzip that nobody asked for", (Coded(),)),
        Row("folded headers", (FoldedHeaders(),), alone="right"),
        Row("lines end with LF", (LineFeeds(),), alone="right"),
        Row("chunks of 64 bytes", (Chunked(64),), alone="right", small=True),
        Row("chunks of 1 byte", (Chunked(1),), alone="right", small=True),
        Row(
            "no length, chunks of 1 byte, cut off",
            (IgnoreRange(), Chunked(1), Truncate(small)),
            declared="nothing",
            small=True,
        ),
    ]


@dataclass(frozen=True)
class Cell:
    """What came of one tool and one row."""

    tool: str
    beside: bool  # a healthy mirror was offered
    fault: str
    declared: str  # what the tool was told of the object, if it can check it
    outcome: str  # ok, silent, fail, never
    seconds: float
    size: int  # of the object
    sent: int  # bytes, by all sources
    requests: int
    left: bool  # wrong bytes lie under the final name
    unknowable: bool  # nothing that was declared or offered could tell wrong bytes
    words: str  # the end of what the tool said

    @property
    def label(self) -> str:
        return f"{self.tool} +1" if self.beside else self.tool

    @property
    def wasted(self) -> int:
        """Bytes for nothing: all of them, where no file came of it."""
        return max(0, self.sent - self.size) if self.outcome in ("ok", "silent") else self.sent

    @property
    def endless(self) -> bool:
        return self.sent > MOST_BYTES * self.size or self.requests > MOST_REQUESTS

    def __str__(self) -> str:
        megabytes = f"{self.wasted / 1e6:,.0f} MB"
        cost = f"{self.seconds:.0f} s" + (f", {megabytes}" if self.wasted >= 5e5 else "")
        if self.outcome == "ok":
            return cost
        if self.outcome == "silent":
            return "nothing could tell" if self.unknowable else "wrong, silently"
        if self.outcome == "never":
            return "never" + (f", {megabytes}" if self.endless else "")
        return f"error, {cost}" + (", wrong file left" if self.left else "")


def table(cells: list[Cell]) -> list[str]:
    """A line of Markdown for each fault, a column for each tool; those with a mirror last."""
    labels = list(dict.fromkeys(each.label for each in cells if not each.beside))
    labels += dict.fromkeys(each.label for each in cells if each.beside)
    found = {(each.fault, each.label): str(each) for each in cells}
    titles = [f"**{label}**" if label.startswith("headway") else label for label in labels]
    lines = [
        f"| fault | declared | {' | '.join(titles)} |",
        "| --- | --- |" + " --- |" * len(labels),
    ]
    for fault, declared in dict.fromkeys((each.fault, each.declared) for each in cells):
        texts = (found.get((fault, label), "") for label in labels)
        lines.append(f"| {fault} | {declared} | {' | '.join(texts)} |")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description="Run transfer tools against sick sources.")
    parser.add_argument("--size", type=int, default=200, help="MiB")
    parser.add_argument("--limit", type=float, default=60, help="seconds for one cell")
    parser.add_argument("--tools", help="some of: " + ", ".join(TOOLS))
    parser.add_argument(
        "--faults", help="some of: " + "; ".join(row.name for row in rows(1 << 20)) + " (with ;)"
    )
    parser.add_argument("--at-once", type=int, default=4, help="cells; most of them only wait")
    parser.add_argument("--json", type=Path, help="write all cells to this file")
    arguments = parser.parse_args()
    size = arguments.size << 20
    chosen = [
        row for row in rows(size) if not arguments.faults or row.name in arguments.faults.split(";")
    ]
    if unnamed := _no_names():
        print(f"without a dead IPv6: {unnamed}", file=sys.stderr)
        chosen = [row for row in chosen if not row.dead_ipv6]
    columns: list[tuple[Tool, bool]] = []
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
        columns += [(tool, False)] if not tool.federated else []
        columns += [(tool, True)] if tool.federated or tool.mirrors else []
    contents = {each: Made(each, seed=1) for each in {row.size(size) for row in chosen}}
    for content in contents.values():
        content.digest("sha256")
    authority = Authority.get()  # made before the threads begin
    print(f"{arguments.size} MiB; limit {arguments.limit:g} s", flush=True)
    done: list[Cell] = []
    begin = time.monotonic()
    with ThreadPoolExecutor(arguments.at_once) as pool:
        waiting = {
            row.name: [
                pool.submit(
                    _run, tool, beside, row, contents[row.size(size)], arguments.limit, authority
                )
                for tool, beside in columns
                if not (tool.federated and row.sick > 1)  # a director names six sources at most
            ]
            for row in chosen
        }
        for number, (name, cells) in enumerate(waiting.items(), 1):
            fresh = [cell.result() for cell in cells]
            done += fresh
            left = (time.monotonic() - begin) / number * (len(waiting) - number) / 60
            texts = "; ".join(f"{cell.label}: {cell}" for cell in fresh)
            print(f"{name}: {texts} (about {left:.0f} min left)", flush=True)
    print("", *table(done), "", sep="\n", flush=True)
    if arguments.json:
        about = machine()
        tools = {tool.name: tool.version() for tool, _ in columns}
        kept = {"machine": {**about, "tools": tools}, "size": size, "limit": arguments.limit}
        kept["cells"] = [asdict(cell) for cell in done]
        arguments.json.write_text(json.dumps(kept, indent=1) + "\n")
    complaints = judge(done, {row.name: row for row in chosen})
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


def _run(
    tool: Tool, beside: bool, row: Row, content: Made, limit: float, authority: Authority
) -> Cell:
    """One cell: sick sources, perhaps a healthy one, one process."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headway-bench-")))
        base = Rate(PACE, scope="server")
        tls = getattr(authority, row.tls) if row.tls else None
        host = "127.0.0.1" if row.dead_ipv6 else None
        sources = [
            stack.enter_context(Server({NAME: content}, [base, *row.faults], tls=tls, host=host))
            for _ in range(row.sick)
        ]
        urls = [source.url(NAME) for source in sources]
        prefix: list[str] = []
        if row.dead_ipv6:
            port = sources[0].address[1]
            urls = [f"http://{BOTH}:{port}{NAME}"]
            ipv6 = stack.enter_context(dead_ipv6(port))
            prefix = _naming(folder, [ipv6, "127.0.0.1"])
        if beside:
            healthy = Server({NAME: content}, [base], tls=authority.good if row.tls else None)
            sources.append(stack.enter_context(healthy))
            urls.append(healthy.url(NAME))
        federation = ""
        if tool.federated:
            caches = [url.removesuffix(NAME) for url in urls]
            director = stack.enter_context(Director("/lab", caches, caches[-1:]))
            federation = f"pelican://{director.address[0]}:{director.address[1]}"
        path = folder / "object"
        task = Task(
            urls,
            path,
            content.size if "size" in row.declared else None,
            content.digest("sha256") if "sha256" in row.declared else "",
            federation=federation,
            name=NAME,
            bundle=authority.bundle,
            retry=True,
        )
        command = [*prefix, *tool.command(task)]
        code, seconds, words = _call(command, environment(tool, authority), folder, limit)
        right = path.exists() and content.fault(path) is None
        left = path.exists() and not right and not _unfinished(path)
    if code is None:
        outcome = "never"
    elif code == 0:
        outcome = "ok" if right else "silent"
    else:
        outcome = "fail"
    return Cell(
        tool.name,
        beside,
        row.name,
        row.declared,
        outcome,
        round(seconds, 2),
        content.size,
        sum(source.sent for source in sources),
        sum(len(source.requests) for source in sources),
        left,
        row.alone == "unknowable" and not beside,
        words,
    )


def _naming(folder: Path, addresses: list[str]) -> list[str]:
    """Starts a command for which BOTH has these addresses, and nothing else of the host changes."""
    hosts = folder / "hosts"
    known = Path("/etc/hosts").read_text()
    hosts.write_text(known + "".join(f"{address} {BOTH}\n" for address in addresses))
    script = f'mount --bind {shlex.quote(str(hosts))} /etc/hosts && exec "$@"'
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", "--mount", *user, "sh", "-c", script, "sh"]


def _no_names() -> str:
    """Why no name can be given an IPv6 address here; empty: it can."""
    try:
        with (
            Server(host="127.0.0.1") as server,
            dead_ipv6(server.address[1]) as ipv6,
            tempfile.TemporaryDirectory(prefix="headway-bench-") as folder,
        ):
            command = [*_naming(Path(folder), [ipv6]), "getent", "ahosts", BOTH]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            return done.stderr.strip() if done.returncode else ""
    except OSError as error:
        return str(error)


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
    words = log.read_text(errors="replace").replace(f"{folder}/", "").splitlines()
    # of a traceback the paths are this machine's own
    return code, seconds, "\n".join(line for line in words if 'File "' not in line)[-300:]


def _said(cell: Cell) -> str:
    return " ".join(cell.words.split()) or "it said nothing"


def judge(cells: list[Cell], known: dict[str, Row]) -> list[str]:
    """Complaints about Headway's own cells."""
    said = []
    ours = [cell for cell in cells if cell.tool == "headway"]
    healthy = min((c.seconds for c in ours if c.beside and c.fault == "none"), default=0)
    for cell in ours:
        row, where = known[cell.fault], f"{cell.label}, {cell.fault}"
        if (cell.outcome == "silent" or cell.left) and not cell.unknowable:
            said.append(f"{where}: wrong bytes under the final name")
        if cell.endless:
            said.append(f"{where}: {cell.sent / 1e6:,.0f} MB in {cell.requests} requests")
        if cell.outcome in ("fail", "never") and (cell.beside or row.alone == "right"):
            said.append(f"{where}: {cell.outcome}: {_said(cell)}")
        elif cell.beside and cell.seconds > healthy + row.late:
            said.append(f"{where}: {cell.seconds:.1f} s")
        elif cell.beside and cell.wasted > row.waste * cell.size:
            said.append(f"{where}: {cell.wasted / 1e6:.1f} MB wasted")
    return said


if __name__ == "__main__":
    sys.exit(main())
