"""`headway logs`: print what a job wrote."""

from __future__ import annotations

import codecs
import re
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from headway.api import Run
from headway.cli.address import find
from headway.cli.commands import OK
from headway.cli.job_text import group_of, state_word
from headway.cli.parser import Parser
from headway.cli.terminal import paint, print_json, print_stderr
from headway.events import JobState, Status
from headway.node.plan import OUT
from headway.pool.folder import read_record
from headway.pool.htcondor.pool import overlap
from headway.text import RowWords, padded, printable, width_of

_BLOCK = 1 << 16
_LOOK = 0.2  # seconds
_ALIVE = 10  # looks between two checks that the local pool still runs
_OVERLAP = 4096
_STYLES = ("cyan", "green", "yellow", "bold", "dim")


class JobOutput:
    """The stdout, stderr or agent.log of a job; on the local pool also while the job runs."""

    def __init__(self, run: Run, job: int, name: str) -> None:
        self.run = run
        self.job = job
        self.name = name
        self._tailed = b""
        self._asked = b""  # what condor_tail gave last
        self._shown: dict[str, int] = {}  # bytes by attempt; -1: from before we began

    @property
    def state(self) -> JobState | None:
        """The job's state; None if the log does not know the job yet."""
        return self.run.jobs.get(self.job)

    @property
    def is_away(self) -> bool:
        """Whether the output of a running attempt is on another machine."""
        return bool(self.run.folder.facts.pool["kind"] != "local")

    def attempts(self) -> dict[str, Path]:
        """The file of each attempt that has one, oldest first; home goes before scratch."""
        away = self.run.folder.path.glob(f"scratch/{self.job}.*/{OUT}/attempts/*")
        attempts = [*sorted(away), *self.run.folder.attempts(self.job)]
        found = {each.name: each / self.name for each in attempts if (each / self.name).is_file()}
        return dict(sorted(found.items(), key=_begin))

    def read(self) -> Iterator[bytes]:
        """The newest attempt's output; of a job that runs on HTCondor, what condor_tail gives."""
        tail = self._tail(follow=False)
        if tail is not None:
            yield from tail
            return
        for path in list(self.attempts().values())[-1:]:
            yield from _blocks(path, 0)

    def follow(self) -> Iterator[bytes]:
        """The newest attempt's output, and that of the following ones until the job is over."""
        self.skip_old_attempts()
        before: Status | None = None
        for _ in _looks(self.run):
            state = self.state
            over = state is not None and state.terminal
            tail = None if over else self._tail(follow=True)
            if tail is not None:
                yield from self._remember(tail)
            yield from self.grown()
            if over:
                return
            if state is not None and state.status is Status.HELD and before is not Status.HELD:
                print_stderr(f"held: {printable(state.hold_reason)}; waiting for more")
            if state is not None and state.status is Status.DELIVERING is not before:
                print_stderr("its command has ended; waiting for its outputs to come home")
            before = state.status if state is not None else None

    def skip_old_attempts(self) -> None:
        """Leave out what the attempts before the newest wrote."""
        self._shown = dict.fromkeys(list(self.attempts())[:-1], -1)

    def grown(self) -> Iterator[bytes]:
        """What the attempts have written to their files since the last look."""
        for name, path in self.attempts().items():
            if name not in self._shown:
                self._shown[name] = self._shown_of(path)
            for block in _blocks(path, self._shown[name]) if self._shown[name] >= 0 else ():
                self._shown[name] += len(block)
                yield block

    def ask(self) -> bytes:
        """What a job that runs on HTCondor has written since the last call."""
        tail = self._tail(follow=False)
        if tail is None:
            return b""
        text = b"".join(tail)
        news = text[overlap(self._asked, text) :]
        self._asked = text or self._asked
        return b"".join(self._remember(iter([news])))

    def document(self) -> dict[str, Any]:
        """What `--json` prints."""
        name, path = next(reversed(self.attempts().items()), (None, None))
        state = self.state
        return {
            **self.document_head(),
            "attempt": name,
            "path": str(path) if path else None,
            "state": group_of(state) if state else None,
            "text": b"".join(self.read()).decode("utf-8", "replace"),
        }

    def document_head(self) -> dict[str, Any]:
        """Which output of which job it is, for programs."""
        rows = self.run.folder.job.rows
        row = dict(rows[self.job]) if rows is not None else None
        return {"run": self.run.label, "job": self.job, "row": row, "stream": self.name}

    def why_nothing(self) -> str:
        """Why there is nothing to show, and where the output is."""
        name = f"{self.run.label}.{self.job}"
        state = self.state
        if state is None:
            return f"{name} is not in the event log yet"
        if self.attempts():
            return f"{name} wrote nothing to {self.name}"
        name += f" is {state_word(state)}"
        if group_of(state) == "running" and not self.is_away:
            return f"{name}; its command has not started yet"
        if group_of(state) == "running":
            where = printable(state.site) or "its node"
            return f"{name} at {where}; its output arrives here when the attempt ends"
        if not state.attempts:
            return f"{name} and has not run yet"
        return f"{name}; its {self.name} did not arrive here"

    def _tail(self, *, follow: bool) -> Iterator[bytes] | None:
        state = self.state
        if state is None or state.status is not Status.RUNNING or not self.is_away:
            return None
        tail = getattr(self.run.pool, "tail", None)
        found: Iterator[bytes] | None = (
            tail(self.run.folder, self.job, self.name, follow=follow) if tail else None
        )
        return found

    def _remember(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        for block in blocks:
            self._tailed = (self._tailed + block)[-_OVERLAP:]
            yield block

    def _shown_of(self, path: Path) -> int:
        """How much of a file that arrived was already shown while the job ran."""
        tailed, self._tailed = self._tailed, b""
        place = path.read_bytes().rfind(tailed) if tailed else -1
        return place + len(tailed) if place >= 0 else 0


class RunOutput:
    """What all jobs of a run write, line by line, each with the job's number."""

    ASKED = 10  # jobs on HTCondor that are asked for their output, unless it is followed
    LONGEST = 1 << 16  # bytes of a line that are waited for

    def __init__(self, run: Run, name: str) -> None:
        self.run = run
        self.jobs = [JobOutput(run, job, name) for job in range(run.folder.job.size)]
        self.shown = 0
        self._rest: dict[int, bytes] = {}
        self._next = 0

    def read(self) -> Iterator[tuple[int, bytes]]:
        """The output of each job's newest attempt, job by job."""
        away = 0
        for output in self.jobs:
            state = output.state
            if state is not None and state.status is Status.RUNNING and output.is_away:
                away += 1
                if away > self.ASKED:
                    continue
            for block in output.read():
                yield from self._lines(output.job, block)
            yield from self._lines(output.job, b"", last=True)
        if away > self.ASKED:
            hint = f"name one: headway logs {self.run.label}.JOB"
            print_stderr(f"{away - self.ASKED:,} more jobs are running and were not asked; {hint}")

    def follow(self) -> Iterator[tuple[int, bytes]]:
        """The same, and what the jobs write until nothing more happens by itself."""
        left = {output.job: output for output in self.jobs}
        for output in self.jobs:
            output.skip_old_attempts()
        for _ in _looks(self.run):
            settled, states = self.run.settled(), self.run.jobs
            for job, output in list(left.items()):
                state = states.get(job)
                if state is None or (not state.attempts and not state.terminal):
                    continue  # nothing of it can be anywhere
                for block in output.grown():
                    yield from self._lines(job, block)
                if state.terminal:
                    yield from self._lines(job, b"", last=True)
                    del left[job]
            yield from self._ask_one(left, states)
            if settled:
                for job in left:
                    yield from self._lines(job, b"", last=True)
                return

    def _ask_one(
        self, left: Mapping[int, JobOutput], states: Mapping[int, JobState]
    ) -> Iterator[tuple[int, bytes]]:
        """Ask HTCondor about one running job, a different one each time: it takes a while."""
        running = [
            output
            for job, output in left.items()
            if job in states and states[job].status is Status.RUNNING and output.is_away
        ]
        if running:
            self._next += 1
            output = running[self._next % len(running)]
            yield from self._lines(output.job, output.ask())

    def _lines(self, job: int, data: bytes, *, last: bool = False) -> Iterator[tuple[int, bytes]]:
        """Complete lines; of one that a progress bar rewrote, only its last state."""
        *lines, rest = (self._rest.pop(job, b"") + data).split(b"\n")
        if len(rest) > self.LONGEST or (last and rest):
            lines, rest = [*lines, rest], b""
        if rest:
            self._rest[job] = rest
        for line in lines:
            self.shown += 1
            yield job, line.rstrip(b"\r").rpartition(b"\r")[2]


class TerminalFilter:
    """Makes bytes safe for a terminal: text, line ends, tabs and colours pass, nothing else."""

    _COLOR = re.compile(r"(\x1b\[[0-9;:]*m)")
    _SEQUENCE = re.compile(
        r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_].*?(?:\x07|\x1b\\)|[ -/]*[0-~])", re.DOTALL
    )
    _OPEN = re.compile(r"(?:\x1b(?:\[[0-?]*)?[ -/]*|\r)\Z")

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._colored = False

    def feed(self, data: bytes, *, last: bool = False) -> bytes:
        """What may be shown of `data`; a sequence that is cut in two waits for its other half."""
        text = self._rest + self._decoder.decode(data, final=last)
        open_end = self._OPEN.search(text)
        self._rest = ""
        if open_end and not last and len(open_end[0]) < 64:
            text, self._rest = text[: open_end.start()], open_end[0]
        pieces = self._COLOR.split(text)
        self._colored = self._colored or len(pieces) > 1
        pieces[::2] = [self._plain(piece) for piece in pieces[::2]]
        ended = "\x1b[0m" if last and self._colored else ""
        return ("".join(pieces) + ended).encode("utf-8", "replace")

    def _plain(self, text: str) -> str:
        text = self._SEQUENCE.sub("", text)
        # A progress bar returns to the line's start; without that, each state gets its own line.
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        return "".join(char for char in text if char in "\n\t" or printable(char) == char)


def _looks(run: Run) -> Iterator[None]:
    """Yield again and again, with pauses, until the local pool has ended before its jobs."""
    for number in count(1):
        yield
        if number % _ALIVE == 0 and run.lost():
            print_stderr(f"nobody runs it now; go on with `headway run --resume {run.label}`")
            return
        time.sleep(_LOOK)


def record_of(run: Run, job: int) -> dict[str, Any]:
    """What the agent recorded of the newest attempt that came home; empty if there is none."""
    records = (read_record(attempt) for attempt in reversed(run.folder.attempts(job)))
    return next(filter(None, records), {})


def _begin(item: tuple[str, Path]) -> tuple[str, float]:
    """Names begin with the second in which the attempt began; within it, the file's time tells."""
    name, path = item
    try:
        return name[:16], path.parent.stat().st_mtime
    except OSError:
        return name[:16], 0.0


def _blocks(path: Path, begin: int) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            file.seek(begin)
            while block := file.read(_BLOCK):
                yield block
    except FileNotFoundError:
        return  # it is on its way home


def parser(name: str) -> Parser:
    made = Parser(
        name,
        call,
        "[RUN|RUN.JOB] [-f] [--stderr|--agent]",
        "Print what a job wrote to stdout, or to stderr, or what Headway's agent logged on its"
        " node. If a job had several attempts, this is the newest one that is here. For a run with"
        " several jobs, headway logs prints the output of all of them, each line with its job and"
        " row. Bytes pass unchanged, except that on a terminal control characters other than"
        " colours are left out.",
        [
            ("headway logs", "all jobs of the newest run"),
            ("headway logs cifar10-3.0", "job 0 of that run"),
            ("headway logs .4 --stderr", "job 4 of the newest run"),
            ("headway logs cifar10-3.0 -f", "follow until the job is over"),
            ("headway logs scan-1 -f", "follow all jobs until the run is over"),
        ],
    )
    made.argument("address", "RUN|RUN.JOB", "the run or job; default: the newest run", nargs="?")
    made.flag("-f", "--follow", "print new output until the jobs end, across attempts")
    which = made.add_mutually_exclusive_group()
    which.add_argument("--stderr", action="store_true", help="print stderr instead")
    which.add_argument("--agent", action="store_true", help="print the agent's log instead")
    return made


def call(arguments: Namespace) -> int:
    address = find(arguments.address)
    name = "stderr" if arguments.stderr else "agent.log" if arguments.agent else "stdout"
    run = Run(address.folder)
    if address.job is None and run.folder.job.size > 1:
        return _print_run(run, name, arguments)
    output = JobOutput(run, address.job or 0, name)
    if arguments.json and not arguments.follow:
        print_json(output.document())
        return OK
    sys.stdout.flush()
    blocks = output.follow() if arguments.follow else output.read()
    if not (_print_json_lines if arguments.json else _print_blocks)(output, blocks):
        print_stderr(output.why_nothing())
    return OK


def _print_blocks(output: JobOutput, blocks: Iterator[bytes]) -> bool:
    """Print bytes as they are into a file or pipe, and filtered on a terminal."""
    out = sys.stdout.buffer
    safe = TerminalFilter() if sys.stdout.isatty() else None
    some = False
    for block in blocks:
        some = True
        out.write(safe.feed(block) if safe else block)
        out.flush()
    out.write(safe.feed(b"", last=True) if safe else b"")
    out.flush()
    return some


def _print_json_lines(output: JobOutput, blocks: Iterator[bytes]) -> bool:
    """Print one JSON object for each line that the job wrote."""
    head, rest, some = output.document_head(), b"", False

    def write(line: bytes) -> None:
        print_json({**head, "text": line.decode("utf-8", "replace")})

    for block in blocks:
        some = True
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            write(line)
    if rest:
        write(rest)
    return some


def _print_run(run: Run, name: str, arguments: Namespace) -> int:
    """Print the output of all jobs, each line with its job before it."""
    output = RunOutput(run, name)
    if arguments.json and not arguments.follow:
        jobs = [each.document() for each in output.jobs]
        print_json({"run": run.label, "stream": name, "jobs": jobs})
        return OK
    row = RowWords(run.folder.job.rows)
    names = [f"{run.label}.{job} {row(job, 32)}".rstrip() for job in range(len(output.jobs))]
    width = max(map(width_of, names))
    sys.stdout.flush()
    out, filtered = sys.stdout.buffer, sys.stdout.isatty()
    for job, line in output.follow() if arguments.follow else output.read():
        if arguments.json:
            head = output.jobs[job].document_head()
            print_json({**head, "text": line.decode("utf-8", "replace")})
            continue
        before = paint(padded(names[job], width), _STYLES[job % len(_STYLES)])
        shown = TerminalFilter().feed(line, last=True) if filtered else line
        out.write(f"{before} | ".encode("utf-8", "replace") + shown + b"\n")
        if arguments.follow:
            out.flush()
    out.flush()
    if not output.shown:
        print_stderr(f"there is no {name} here of the jobs of {run.label}")
    return OK
