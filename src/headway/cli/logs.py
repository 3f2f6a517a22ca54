"""`headway logs`: what a job wrote, as it wrote it."""

from __future__ import annotations

import codecs
import re
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from headway.api import Run
from headway.cli.commands import OK
from headway.cli.job_text import group_of, state_word
from headway.cli.parser import Parser
from headway.cli.terminal import paint, print_json, printable, width_of
from headway.events import JobState, Status
from headway.node.plan import OUT
from headway.pool.folder import read_record
from headway.pool.htcondor.pool import overlap

# One stream of a job (stdout, stderr, agent.log), wherever its newest attempt has it now.


_BLOCK = 1 << 16
_LOOK = 0.2  # seconds
_ALIVE = 10  # looks between two questions whether the local pool still lives
_OVERLAP = 4096


class Stream:
    """What a job writes; on the local pool also while the attempt is under way."""

    def __init__(self, run: Run, job: int, name: str) -> None:
        self.run = run
        self.job = job
        self.name = name
        self._tailed = b""
        self._asked = b""  # what condor_tail told last
        self._at: dict[str, int] = {}  # by attempt, how much of it was shown; -1: before our time

    @property
    def state(self) -> JobState | None:
        return self.run.jobs.get(self.job)

    @property
    def is_away(self) -> bool:
        """Whether the output of a running attempt can only be asked for."""
        return bool(self.run.folder.facts.pool["kind"] != "local")

    def attempts(self) -> dict[str, Path]:
        """The stream of each attempt that has one, oldest first; home goes before scratch."""
        folder = self.run.folder
        found: dict[str, Path] = {}
        scratch = folder.path / "scratch"
        away = sorted(scratch.glob(f"{self.job}.*/{OUT}/attempts/*"))
        for attempt in [*away, *folder.attempts(self.job)]:
            path = attempt / self.name
            if path.is_file():
                found[attempt.name] = path
        return dict(sorted(found.items(), key=_begin))

    def read(self) -> Iterator[bytes]:
        """All of the newest attempt's; of a job that runs on HTCondor what can be had of it."""
        tail = self._tail(follow=False)
        if tail is not None:
            yield from tail
            return
        for path in list(self.attempts().values())[-1:]:
            yield from _blocks(path, 0)

    def follow(self) -> Iterator[bytes]:
        """The newest attempt's, and what it and those after it write until the job is over."""
        self.begin()
        told: Status | None = None
        looks = 0
        while True:
            state = self.state
            over = state is not None and state.terminal
            tail = None if over else self._tail(follow=True)
            if tail is not None:
                yield from self._remember(tail)
            yield from self.grown()
            if over:
                return
            if state is not None and state.status is Status.HELD and told is not Status.HELD:
                print(f"held: {printable(state.hold_reason)}; waiting for more", file=sys.stderr)
            told = state.status if state is not None else None
            looks += 1
            if looks % _ALIVE == 0 and _told_lost(self.run):
                return
            time.sleep(_LOOK)

    def begin(self) -> None:
        """What the attempts before the newest wrote is not to be shown."""
        self._at = dict.fromkeys(list(self.attempts())[:-1], -1)

    def grown(self) -> Iterator[bytes]:
        """What the files of the attempts have got since the last look."""
        for name, path in self.attempts().items():
            if name not in self._at:
                self._at[name] = self._shown_of(path)
            for block in _blocks(path, self._at[name]) if self._at[name] >= 0 else ():
                self._at[name] += len(block)
                yield block

    def asked(self) -> bytes:
        """What a job that runs on HTCondor has written since it was last asked for it."""
        tail = self._tail(follow=False)
        if tail is None:
            return b""
        told = b"".join(tail)
        news = told[overlap(self._asked, told) :]
        self._asked = told or self._asked
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
        """Which stream of which job it is, for programs."""
        rows = self.run.folder.job.rows
        row = dict(rows[self.job]) if rows is not None else None
        return {"run": self.run.label, "job": self.job, "row": row, "stream": self.name}

    def why_nothing(self) -> str:
        """Where the output is, if it is not here."""
        name = f"{self.run.label}.{self.job}"
        state = self.state
        if state is None:
            return f"{name} is not in the event log yet"
        if self.attempts():
            return f"{name} wrote nothing to {self.name}"
        if group_of(state) == "running":
            if self.run.folder.facts.pool["kind"] == "local":
                return f"{name} is {state_word(state)}; its command has not started yet"
            return (
                f"{name} is {state_word(state)} at {printable(state.site) or 'its node'};"
                " its output comes home when the attempt ends"
            )
        if not state.attempts:
            return f"{name} is {state_word(state)} and has not run yet"
        return f"{name} is {state_word(state)}; nothing came home of its {self.name}"

    def _tail(self, *, follow: bool) -> Iterator[bytes] | None:
        state = self.state
        if self.run.folder.facts.pool["kind"] == "local" or state is None:
            return None
        if state.status is not Status.RUNNING:
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
        """How much of a file that came home was already shown while it was away."""
        tailed, self._tailed = self._tailed, b""
        place = path.read_bytes().rfind(tailed) if tailed else -1
        return place + len(tailed) if place >= 0 else 0


class AllStreams:
    """What all jobs of a run write, line by line, each with the job's number."""

    ASKED = 10  # jobs that run on HTCondor and are asked for their output, unless it is followed
    LONGEST = 1 << 16  # bytes of a line that are waited for

    def __init__(self, run: Run, name: str) -> None:
        self.run = run
        self.streams = [Stream(run, job, name) for job in range(run.folder.job.size)]
        self.shown = 0
        self._rest: dict[int, bytes] = {}
        self._next = 0

    def read(self) -> Iterator[tuple[int, bytes]]:
        """All that is here of each job's newest attempt, job by job."""
        away = 0
        for stream in self.streams:
            state = stream.state
            runs = state is not None and state.status is Status.RUNNING
            away += runs and stream.is_away
            if away > self.ASKED and runs and stream.is_away:
                continue
            for block in stream.read():
                yield from self._lines(stream.job, block)
            yield from self._lines(stream.job, b"", last=True)
        if away > self.ASKED:
            label, more = self.run.label, away - self.ASKED
            print(
                f"{more:,} more jobs run and were not asked; name one: headway logs {label}.JOB",
                file=sys.stderr,
            )

    def follow(self) -> Iterator[tuple[int, bytes]]:
        """The same, and what the jobs write until nothing more happens by itself."""
        left = {stream.job: stream for stream in self.streams}
        for stream in self.streams:
            stream.begin()
        looks = 0
        while True:
            settled, states = self.run.settled(), self.run.jobs
            for job, stream in list(left.items()):
                state = states.get(job)
                if state is None or (not state.attempts and not state.terminal):
                    continue  # nothing of it can be anywhere
                for block in stream.grown():
                    yield from self._lines(job, block)
                if state.terminal:
                    yield from self._lines(job, b"", last=True)
                    del left[job]
            yield from self._ask_one(left, states)
            if settled:
                for job in left:
                    yield from self._lines(job, b"", last=True)
                return
            looks += 1
            if looks % _ALIVE == 0 and _told_lost(self.run):
                return
            time.sleep(_LOOK)

    def _ask_one(
        self, left: Mapping[int, Stream], states: Mapping[int, JobState]
    ) -> Iterator[tuple[int, bytes]]:
        """Ask HTCondor about one job that runs, a different one each time: it takes a while."""
        running = [
            job
            for job, stream in left.items()
            if stream.is_away and job in states and states[job].status is Status.RUNNING
        ]
        if running:
            self._next += 1
            job = running[self._next % len(running)]
            yield from self._lines(job, left[job].asked())

    def _lines(self, job: int, data: bytes, *, last: bool = False) -> Iterator[tuple[int, bytes]]:
        """Whole lines; of one that a progress bar wrote again and again, what it says at last."""
        *lines, rest = (self._rest.pop(job, b"") + data).split(b"\n")
        if len(rest) > self.LONGEST or (last and rest):
            lines, rest = [*lines, rest], b""
        if rest:
            self._rest[job] = rest
        for line in lines:
            self.shown += 1
            yield job, line.rstrip(b"\r").rpartition(b"\r")[2]


class Tamer:
    """Makes bytes safe for a terminal: text, line ends, tabs and colours pass, nothing else."""

    _KEPT = re.compile(r"(\x1b\[[0-9;:]*m)")
    _SEQUENCE = re.compile(
        r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_].*?(?:\x07|\x1b\\)|[ -/]*[0-~])", re.DOTALL
    )
    _OPEN = re.compile(r"(?:\x1b(?:\[[0-?]*)?[ -/]*|\r)\Z")

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._colored = False

    def feed(self, data: bytes, *, last: bool = False) -> bytes:
        """What may be shown of what was read; a sequence cut in two waits for its other half."""
        text = self._rest + self._decoder.decode(data, final=last)
        cut = self._OPEN.search(text)
        self._rest = ""
        if cut and not last and len(cut[0]) < 64:
            text, self._rest = text[: cut.start()], cut[0]
        pieces = self._KEPT.split(text)
        self._colored = self._colored or len(pieces) > 1
        pieces[::2] = [self._plain(piece) for piece in pieces[::2]]
        ended = "\x1b[0m" if last and self._colored else ""
        return ("".join(pieces) + ended).encode("utf-8", "replace")

    def _plain(self, text: str) -> str:
        text = self._SEQUENCE.sub("", text)
        # A progress bar returns to the line's start; without that, each state gets its own line.
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        return "".join(char for char in text if char in "\n\t" or printable(char) == char)


def _told_lost(run: Run) -> bool:
    """Whether nobody runs these jobs now, which a person is told."""
    if not run.lost():
        return False
    print(f"nobody runs it now; `headway run --resume {run.label}`", file=sys.stderr)
    return True


def record_of(run: Run, job: int) -> dict[str, Any]:
    """What the agent recorded of the newest attempt that came home; empty if there is none."""
    for attempt in reversed(run.folder.attempts(job)):
        record = read_record(attempt)
        if record:
            return record
    return {}


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


_STYLES = ("cyan", "green", "yellow", "bold", "dim")


def parser(name: str) -> Parser:
    made = Parser(
        name,
        "[RUN|RUN.JOB] [-f] [--stderr|--agent]",
        "Print what a job wrote: its stdout, or its stderr, or what the agent noted about the\n"
        "attempt. Of several attempts the newest that is here. Of a run of several jobs: what\n"
        "all of them wrote, with the job and its row before each line. Bytes pass unchanged; only\n"
        "on a terminal, control characters other than colours are left out.",
        [
            ("headway logs", "the newest run, all of its jobs"),
            ("headway logs cifar10-3.0", "job 0 of that run"),
            ("headway logs .4 --stderr", "job 4 of the newest run"),
            ("headway logs cifar10-3.0 -f", "go on until the job is over"),
            ("headway logs scan-1 -f", "all jobs, until the run is over"),
        ],
    )
    made.add_argument("address", nargs="?", metavar="RUN|RUN.JOB", help="default: the newest run")
    made.flag("-f", "--follow", help="go on until the jobs end, across attempts")
    which = made.add_mutually_exclusive_group()
    which.add_argument("--stderr", action="store_true", help="its stderr instead")
    which.add_argument("--agent", action="store_true", help="the agent's own log instead")
    made.set_defaults(call=call)
    return made


def call(arguments: Namespace) -> int:
    from headway.cli.address import find

    address = find(arguments.address)
    name = "stderr" if arguments.stderr else "agent.log" if arguments.agent else "stdout"
    run = Run(address.folder)
    if address.job is None and run.folder.job.size > 1:
        return _call_on_all(run, name, arguments)
    stream = Stream(run, address.job or 0, name)
    if arguments.json and not arguments.follow:
        print_json(stream.document())
        return OK
    nothing = True
    show = _json_writer(stream) if arguments.json else _writer()
    for data in stream.follow() if arguments.follow else stream.read():
        nothing = False
        show(data, False)
    show(b"", True)
    if nothing:
        print(stream.why_nothing(), file=sys.stderr)
    return OK


def _call_on_all(run: Run, name: str, arguments: Namespace) -> int:
    """The streams of all jobs, each line with its job before it."""
    from headway.text import RowWords, padded

    streams = AllStreams(run, name)
    if arguments.json and not arguments.follow:
        jobs = [stream.document() for stream in streams.streams]
        print_json({"run": run.label, "stream": name, "jobs": jobs})
        return OK
    rows, row = run.folder.job.rows, RowWords(run.folder.job.rows)
    names = [f"{run.label}.{job} {row(job, 32)}".rstrip() for job in range(len(streams.streams))]
    width = max(map(width_of, names))
    sys.stdout.flush()
    out, tame = sys.stdout.buffer, sys.stdout.isatty()
    for job, line in streams.follow() if arguments.follow else streams.read():
        if arguments.json:
            told = {"run": run.label, "job": job, "row": dict(rows[job]) if rows else None}
            print_json({**told, "stream": name, "text": line.decode("utf-8", "replace")})
            continue
        before = paint(padded(names[job], width), _STYLES[job % len(_STYLES)])
        shown = Tamer().feed(line, last=True) if tame else line
        out.write(f"{before} | ".encode("utf-8", "replace") + shown + b"\n")
        if arguments.follow:
            out.flush()
    out.flush()
    if not streams.shown:
        print(f"nothing is here of the {name} of {run.label}'s jobs", file=sys.stderr)
    return OK


def _json_writer(stream: Stream) -> Callable[[bytes, bool], None]:
    """One JSON object a line that the job wrote."""

    rest = b""
    told = {key: stream.document_head()[key] for key in ("run", "job", "row", "stream")}

    def write(data: bytes, last: bool) -> None:
        nonlocal rest
        *lines, rest = (rest + data).split(b"\n")
        for line in [*lines, rest] if last and rest else lines:
            print_json({**told, "text": line.decode("utf-8", "replace")})

    return write


def _writer() -> Callable[[bytes, bool], None]:
    """Bytes as they are into a file or pipe; tamed on a terminal."""

    sys.stdout.flush()
    out = sys.stdout.buffer
    tamer = Tamer() if sys.stdout.isatty() else None

    def write(data: bytes, last: bool) -> None:
        out.write(tamer.feed(data, last=last) if tamer else data)
        out.flush()

    return write
