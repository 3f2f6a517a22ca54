"""The record of an attempt: what it is, how it went, and how much of its data has arrived."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time

from headway.node import VERSION
from headway.node.errors import LONGEST_REASON, REASON, Exit, words_of
from headway.node.files import write_atomically
from headway.node.plan import OUT, SECRETS

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from headway.node.host import HostInfo
    from headway.node.plan import Plan
    from headway.node.transfer.options import Snapshot


# Chirp: the lines that the agent writes into the job's event log while it runs.
#
# HTCondor's starter listens on a TCP port; `.chirp.config` holds "host port cookie". A request is
# one line of words, in which a backslash escapes a space or a backslash. The answer is one line
# with a number, which is negative on failure. The agent uses only `cookie`, `ulog` and
# `set_job_attr`.

TIMEOUT = 2.0  # seconds for one line: connect, send and answer
LINE_MAX = 1000  # HTCondor cuts the text of an 008 event at 1,023 bytes
_TRIES = 3  # after this many failures in a row only the last line is tried again
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:/+-")


def encode(value: object) -> str:
    """The value as a line has it: percent-encoded except for `A-Za-z0-9._:/+-`."""
    data = str(value).encode("utf-8", "replace")
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in data)


def line(nonce: str, phase: str, state: str, when: float, values: Mapping[str, object]) -> str:
    """One line of an 008 event; values that do not fit are dropped from the end."""
    text = f"headway nonce={nonce} phase={phase} state={state} t={when:.3f}"
    for key, value in values.items():
        if value is None:
            continue
        word = f" {key}={encode(value)}"
        room = LINE_MAX - len(text)
        if len(word) > room:
            cut = word[: max(0, room)]
            percent = cut.rfind("%", len(cut) - 2)  # never half an encoded byte
            cut = cut[:percent] if percent >= 0 else cut
            return text + cut if len(cut) > len(key) + 20 else text
        text += word
    return text


def escape(word: str) -> str:
    """The word as one word of a chirp request."""
    return "".join("\\" + c if c in " \t\r\n\\" else c for c in word)


class Chirp:
    """A connection to the starter; failures are noted and never raised."""

    def __init__(self, environment: Mapping[str, str], note: Callable[[str], None]) -> None:
        self._note = note
        self._failures = 0
        self._socket: socket.socket | None = None
        self._address = _read_config(environment)
        self._noted = self._address is None
        if self._address is None:
            note("no chirp configuration: phases are not shown in the event log")

    def send(self, text: str, *, last: bool = False) -> bool:
        """Write one line to the job's event log; False if that failed."""
        if self._address is None or (self._failures >= _TRIES and not last):
            return False
        error = self._request(f"ulog {escape(text)}")
        self._failures = self._failures + 1 if error else 0
        if error and not self._noted:
            self._noted = True
            self._note(f"chirp failed: {error}")
        return not error

    def set_attribute(
        self, name: str, expression: str, *, quiet: bool = False, patience: float = TIMEOUT
    ) -> bool:
        """Set an attribute in the job's ad, for its later attempts; False if that failed."""
        error = self._request(f"set_job_attr {name} {escape(expression)}", patience)
        if error and not quiet:
            self._note(f"{name} cannot be set by chirp: {error}")
        return not error

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _request(self, request: str, patience: float = TIMEOUT) -> str:
        """Connect if need be, and send a request; returns what went wrong, or an empty text."""
        try:
            if self._address is None:
                return "no chirp configuration"
            if self._socket is None:
                import socket

                host, port, cookie = self._address
                self._socket = socket.create_connection((host, port), timeout=TIMEOUT)
                _ask(self._socket, f"cookie {escape(cookie)}")
            self._socket.settimeout(patience)
            _ask(self._socket, request)
        except (OSError, ValueError) as error:
            self.close()
            return str(error) or type(error).__name__
        return ""


def _ask(connection: socket.socket, request: str) -> None:
    connection.sendall(request.encode("utf-8", "replace") + b"\n")
    answer = b""
    while not answer.endswith(b"\n"):
        piece = connection.recv(256)
        if not piece or len(answer) > 256:
            raise OSError("the starter broke off the connection")
        answer += piece
    code = int(answer)
    if code < 0:
        raise OSError(f"the starter refused with {code}")


def _read_config(environment: Mapping[str, str]) -> tuple[str, int, str] | None:
    named = environment.get("_CONDOR_CHIRP_CONFIG")
    folders = (environment.get("_CONDOR_SCRATCH_DIR"), os.curdir)
    for path in [named, *(os.path.join(folder, ".chirp.config") for folder in folders if folder)]:
        with contextlib.suppress(OSError, ValueError), open(path or "", encoding="utf-8") as file:
            host, port, cookie = file.read(4096).split()
            return host, int(port), cookie
    return None


# The attempt: its name, its secret, its folder, and what it passes from one segment to the next.
#
# When the agent exits with a checkpoint, HTCondor saves the checkpoint and starts the same agent
# in the same folder again: the attempt continues with its next segment. A note in the scratch
# folder says so. It is read and deleted before the command starts, which must never see the nonce.

NOTE = ".headway-attempt.json"
_ID = re.compile(r"[0-9a-fTZ-]{23}")
_NONCE = re.compile(r"[0-9a-f]{16}")


class Attempt:
    """One try of a job on one slot; a later segment of it continues an earlier one."""

    def __init__(self, note: Mapping[str, Any] | None = None) -> None:
        carried = note or {}
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        self.id = str(carried.get("attempt") or f"{stamp}-{os.urandom(3).hex()}")
        self.nonce = str(carried.get("nonce") or os.urandom(8).hex())
        self.segment: int = carried.get("segment", 0) + 1
        used = carried.get("used")
        # seconds of run that count towards the time limit
        self.used = float(used) if isinstance(used, (int, float)) else 0.0
        self.segments = _dicts(carried.get("segments"))
        self.phases = _dicts(carried.get("phases"))
        self.inputs = _dicts(carried.get("inputs"))
        proven = carried.get("proven")
        # input path -> [size, mtime_ns, inode] when it was last verified
        self.proven: dict[str, object] = proven if isinstance(proven, dict) else {}
        #: Values from the environment of whoever submitted the job: kept in memory only.
        self.secrets: dict[str, str] = {}
        self.folder = f"{OUT}/attempts/{self.id}"

    def leave_note(self) -> None:
        """Hand over to the next segment; the last act before exiting with a checkpoint."""
        names = ("nonce", "segment", "used", "segments", "phases", "inputs", "proven")
        note = {"attempt": self.id, **{name: getattr(self, name) for name in names}}
        if self.secrets:  # the pool does not transfer inputs again for the next segment
            write_json(SECRETS, self.secrets)
        write_json(NOTE, note)


def begin_attempt() -> Attempt:
    """The attempt that continues here, or a new one."""
    note = read_json(NOTE)
    with contextlib.suppress(OSError):
        os.unlink(NOTE)
    return Attempt(note if _is_own_note(note) else None)


def read_json(path: str) -> dict[str, Any]:
    """The JSON object in a file; empty where there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def write_json(path: str, data: object, mode: int = 0o600) -> None:
    """Write JSON atomically; by default only the owner may read it."""
    text = json.dumps(data, indent=1, ensure_ascii=True)
    temporary = f"{os.path.basename(path)}.tmp"  # the next write replaces what a kill leaves
    write_atomically(path, f"{text}\n".encode(), mode, fsync=False, temporary=temporary)


def _is_own_note(note: Mapping[str, object]) -> bool:
    """Whether the agent can have written the note: the command may have written there too."""
    number = note.get("segment")
    return (
        _ID.fullmatch(str(note.get("attempt"))) is not None
        and _NONCE.fullmatch(str(note.get("nonce"))) is not None
        and isinstance(number, int)
        and 0 < number < 1_000_000
    )


def _dicts(values: object) -> list[dict[str, object]]:
    return [v for v in values if isinstance(v, dict)] if isinstance(values, list) else []


# The record: what the agent says about an attempt, as 008 lines, a log and `record.json`.
#
# `record.json` is written before the command starts, without the nonce, and again at the end with
# it. A small reserve file makes room for the record when the command has filled the disk.

FORMAT = 1
RESERVE = ".reserve"
_RESERVE_SIZE = 65_536


class EventLines(Chirp):
    """The agent's lines in the job's event log; the attempt's nonce shows that they are its own."""

    def __init__(self, attempt: Attempt, note: Callable[[str], None]) -> None:
        self.attempt = attempt
        self.phases = list(attempt.phases)
        self._clock = time.time() - time.monotonic()
        super().__init__(os.environ, note)

    def now(self) -> float:
        """Wall time that never runs backwards: one reading of it plus monotonic time."""
        return self._clock + time.monotonic()

    def send_line(
        self, phase: str, state: str, values: Mapping[str, object], when: float | None = None
    ) -> None:
        """Write one 008 line; `when`: its time, unless it is now."""
        when = self.now() if when is None else when
        text = line(self.attempt.nonce, phase, state, when, values)
        self.send(text, last=phase == "done")

    @contextlib.contextmanager
    def phase(self, name: str, **begun: object) -> Iterator[dict[str, object]]:
        """Report the begin, the end and any error of a phase; yields the values of its end."""
        begin, error = self.now(), ""
        values: dict[str, object] = {"ok": True}
        self.send_line(name, "begin", begun, begin)
        try:
            yield values
        except BaseException as raised:
            error = words_of(raised)
            raise
        finally:
            end = self.now()
            ok = bool(values.pop("ok")) and not error
            times = {"begin": round(begin, 3), "end": round(end, 3)}
            entry = {"name": name, "segment": self.attempt.segment, **times, "ok": ok, **values}
            self.phases.append({**entry, "error": error} if error else entry)
            values = {"ok": int(ok), "seconds": round(end - begin, 3), **values}
            self.send_line(name, "end", {**values, "error": error[:200] or None}, end)

    def set_reason(self, words: str) -> None:
        """Put the reason for the end of this attempt into the job's ad, for `pool.policy`.

        The start number goes with it, because the reason of an earlier attempt does not count. The
        embedded pool takes no attributes: it reads the record.
        """
        from headway.node.classad import quoted, read_job_ad

        starts = read_job_ad(os.environ).get("numshadowstarts")
        text = " ".join(words.encode("ascii", "backslashreplace").decode().split())
        if isinstance(starts, int):
            value = f"{{{starts}, {quoted(text[:LONGEST_REASON])}}}"
            self.set_attribute(REASON, value, quiet=True)


class AttemptRecord(EventLines):
    """The evidence of one attempt."""

    def __init__(self, attempt: Attempt, host_info: HostInfo) -> None:
        self.host_info = host_info
        self.inputs: list[dict[str, object]] = list(attempt.inputs)
        self.outputs: list[dict[str, object]] = []
        self.problems: list[str] = []
        self.command: dict[str, object] = {}
        self.sandbox: dict[str, object] = {}  # what was left in the node's store, if anything
        self.plan: Plan | None = None  # as soon as it is known
        self._reserve = f"{attempt.folder}/{RESERVE}"
        os.makedirs(attempt.folder, 0o755, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self.log_file = os.open(f"{attempt.folder}/agent.log", flags, 0o644)
        with open(self._reserve, "wb") as file:
            file.write(os.urandom(_RESERVE_SIZE))  # random: some file systems squeeze zeros away
        super().__init__(attempt, self.note)
        self.begin = self.now()

    def note(self, words: str) -> None:
        """Write a line to agent.log; a full disk is no failure."""
        stamp = time.strftime("%H:%M:%S", time.gmtime(self.now()))
        _write_text(self.log_file, f"{stamp} {words}\n")

    def log(self, words: str) -> None:
        """Write a line to agent.log and stderr."""
        self.note(words)
        _write_text(2, f"headway: {words}\n")

    def problem(self, words: str) -> None:
        """Record something that is wrong but does not end the attempt."""
        self.problems.append(words)
        self.log(words)

    def where(self) -> str:
        """The job and the host, for messages."""
        job = f"job {self.plan.row.get('job')} " if self.plan else ""
        return f"{job}on {self.host_info}"

    def write_early(self) -> None:
        """Write what is known so far, without the nonce: the command can read it."""
        try:
            self._write(self._record(None, "the agent has not finished", secret=False))
        except OSError as error:
            self.log(f"the early record cannot be written: {error.strerror}")
            with contextlib.suppress(OSError):  # that of the last segment holds the nonce
                os.unlink(f"{self.attempt.folder}/record.json")

    def finish(self, code: int, reason: str) -> None:
        """Write the last line and the full record, even when the disk is full."""
        done: dict[str, object] = {"exit": code}
        done.update((key, self.command.get(key)) for key in ("status", "signal"))
        if code not in (Exit.OK, Exit.CHECKPOINT):
            done["reason"] = reason[:LONGEST_REASON]
        done.update(self.sandbox)
        self.send_line("done", "end", done)
        self.close()
        with contextlib.suppress(OSError):
            os.unlink(self._reserve)
        try:
            self._write(self._record(code, reason, secret=True))
        except OSError as error:
            self.log(f"the record cannot be written: {error.strerror}")

    def segments(self, code: int | None) -> list[dict[str, object]]:
        """The segments up to and including this one."""
        keys = ("status", "signal", "seconds", "cpu_user", "cpu_system", "max_rss")
        this: dict[str, object] = {
            "segment": self.attempt.segment,
            "begin": round(self.begin, 3),
            "end": round(self.now(), 3) if code is not None else None,
            "exit": code,
            **{key: self.command.get(key) for key in keys},
        }
        return [*self.attempt.segments, this]

    def _record(self, code: int | None, reason: str, *, secret: bool) -> dict[str, object]:
        plan, host = self.plan, self.host_info
        return {
            "format": FORMAT,
            "attempt": self.attempt.id,
            "nonce": self.attempt.nonce if secret else None,
            "run": plan.run if plan else None,
            "name": plan.name if plan else None,
            "job": plan.row.get("job") if plan else None,
            "host": host.host,
            "site": host.site,
            "slot": host.slot,
            "cluster_proc": host.cluster_proc,
            "python": ".".join(str(part) for part in sys.version_info[:3]),
            "agent": VERSION,
            "segments": self.segments(code),
            "phases": self.phases,
            "inputs": self.inputs,
            "command": self.command or None,
            "outputs": self.outputs,
            "problems": self.problems,
            "exit": code,
            "reason": reason,
        }

    def _write(self, record: dict[str, object]) -> None:
        # the command may have removed the folder
        os.makedirs(self.attempt.folder, 0o755, exist_ok=True)
        write_json(f"{self.attempt.folder}/record.json", record, 0o644)


def _write_text(descriptor: int, text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(descriptor, text.encode("utf-8", "backslashreplace"))


# Progress: how far a transfer phase is, and when to say so.

FIRST = 5.0  # seconds to the first line; the interval then doubles, so that the log stays small
LONGEST = 300.0
_SOURCES, _LINE_SOURCES = 20, 6  # that a record and a line name at most


class Progress:
    """How far a phase is; written by the transferring thread, read by the main thread."""

    def __init__(self, sizes: Mapping[str, int | None]) -> None:
        self._sizes = dict(sizes)  # by path; None: not known yet
        self.file = ""
        self.snapshot: Snapshot | None = None  # of the current file, while sources are at work
        self.arrived: list[dict[str, object]] = []  # files that still need a line in the log
        self._finished = 0
        self._current = 0

    @property
    def done(self) -> int:
        return self._finished + self._current

    @property
    def total(self) -> int | None:
        """The bytes of all files, as soon as all are known."""
        known = [size for size in self._sizes.values() if size is not None]
        return sum(known) if len(known) == len(self._sizes) else None

    def begin(self, path: str) -> None:
        """Go on to the next file."""
        self.file, self.snapshot = path, None

    def moved(self, count: int, _total: int | None) -> None:
        """Take the bytes of the current file that have been sent."""
        self._current = count

    def watched(self, snapshot: Snapshot) -> None:
        """Take the state of the current download."""
        self.snapshot = snapshot
        self._current = snapshot.bytes
        if snapshot.total is not None:
            self._sizes[self.file] = snapshot.total

    def finished(self, size: int) -> None:
        """Count the current file as complete."""
        if self.file in self._sizes and self._sizes[self.file] is None:
            self._sizes[self.file] = size
        self.snapshot = None
        self._finished, self._current = self._finished + size, 0

    def values(self) -> dict[str, object]:
        """The values of a progress line; the longest comes last, where a line is cut."""
        values: dict[str, object] = {"bytes": self.done, "total": self.total, "file": self.file}
        now = self.snapshot
        if now is not None:
            values.update(done=now.bytes, size=now.total, rate=int(now.rate), slow=now.slow or None)
            values["from"] = format_sources(describe_sources(now.as_json()))
        return values


class ProgressReporter:
    """Sends a progress line after 5 s, 10, 20, 40, … and in the end every five minutes."""

    def __init__(self, lines: EventLines, phase: str, progress: Progress) -> None:
        self._lines, self._phase, self._progress = lines, phase, progress
        self._begin = time.monotonic()
        self._next = FIRST

    def tick(self) -> float:
        """Send a line if one is due; returns the seconds until the next call."""
        now = time.monotonic() - self._begin
        self.report_arrivals()
        if now >= self._next:
            self._lines.send_line(self._phase, "progress", self._progress.values())
            self._next = next_after(self._next, now)
        return min(self._next - now, FIRST)

    def report_arrivals(self) -> None:
        """Send a line for each file that took a while and has arrived."""
        while self._progress.arrived:
            self._lines.send_line(self._phase, "arrived", self._progress.arrived.pop(0))


def next_after(mark: float, now: float) -> float:
    """The first mark of 5, 10, 20, …, 320, 620, 920, … after `now`."""
    while mark <= now:
        mark += min(mark, LONGEST)
    return mark


def describe_sources(snapshot: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """What each source gave and what last went wrong with it; holds nothing of a URL's query."""
    described = []
    sources = (snapshot or {}).get("sources") or []
    for each in sorted(sources, key=lambda source: -source["bytes"])[:_SOURCES]:
        facts = {name: each[name] for name in ("host", "state", "bytes", "wasted")}
        if each["words"]:
            facts["fault"] = each["words"] + (f" ({each['phase']})" if each["phase"] else "")
        described.append(facts)
    return described


def format_sources(sources: list[dict[str, Any]]) -> str | None:
    """HOST/STATE/BYTES for each source, joined by `+`; those that gave most come first."""
    texts = [f"{each['host']}/{each['state']}/{each['bytes']}" for each in sources[:_LINE_SOURCES]]
    return "+".join(texts) or None
