"""The record of an attempt: what it is, how it went, how far it has come."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time

from headway.node import VERSION
from headway.node.errors import LONGEST_REASON, Exit, words_of
from headway.node.files import write_atomically
from headway.node.plan import OUT, SECRETS

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping
    from typing import Protocol

    from headway.node.host import HostInfo
    from headway.node.plan import Plan
    from headway.node.transfer.options import Snapshot

    class Lines(Protocol):
        """Who writes into the event log."""

        def progress(self, phase: str, **values: object) -> None: ...
        def arrived(self, phase: str, **values: object) -> None: ...


# Chirp: the lines that the agent writes into the job's event log while it runs.
#
# HTCondor's starter listens on a TCP port; `.chirp.config` holds "host port cookie". One request
# is one line, its words separated by spaces, a space or backslash within a word escaped by a
# backslash; the answer is one line with a number, negative on failure. Only `cookie`, `ulog` and
# `set_job_attr` are spoken.


TIMEOUT = 2.0  # seconds for one line: connect, send and answer
LINE_MAX = 1000  # HTCondor cuts the text of an 008 event at 1,023 bytes
_TRIES = 3  # after so many failures in a row only the last line is tried again
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:/+-")


def encode(value: object) -> str:
    """The value as it stands in a line: percent-encoded but for `A-Za-z0-9._:/+-`."""
    data = str(value).encode("utf-8", "replace")
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in data)


def line(nonce: str, phase: str, state: str, when: float, values: Mapping[str, object]) -> str:
    """One line of an 008 event; what does not fit is left off at the end, whole values first."""
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
    """A connection to the starter that never fails its caller: no chirp only means no lines."""

    def __init__(self, environment: Mapping[str, str], note: Callable[[str], None]) -> None:
        self._note = note
        self._noted = False
        self._failures = 0
        self._socket: socket.socket | None = None
        self._address = _read_config(environment)
        if self._address is None:
            self._failed("no chirp configuration: phases are not shown in the event log")

    def send(self, text: str, *, last: bool = False) -> bool:
        """Write one line to the job's event log; False when it did not get there."""
        if self._address is None or (self._failures >= _TRIES and not last):
            return False
        try:
            if self._socket is None:
                self._connect()
            self._ask(f"ulog {escape(text)}")
        except (OSError, ValueError) as error:
            self.close()
            self._failures += 1
            self._failed(f"chirp failed: {error}")
            return False
        self._failures = 0
        return True

    def set_attribute(self, name: str, expression: str, *, quiet: bool = False) -> bool:
        """Set an attribute of the job's ad, for its later attempts; False when it is not set."""
        try:
            if self._socket is None:
                self._connect()
            self._ask(f"set_job_attr {name} {escape(expression)}")
        except (OSError, ValueError) as error:
            self.close()
            if not quiet:
                self._note(f"{name} cannot be set by chirp: {error}")
            return False
        return True

    def set_reason(self, words: str, environment: Mapping[str, str]) -> None:
        """Let the job's ad say why this attempt ended; `pool.policy` makes a hold's reason of it.

        The number of the start goes with it: what an earlier attempt said is not this one's. The
        embedded pool takes no attributes: it reads the record.
        """
        from headway.node.classad import quoted, read_job_ad
        from headway.node.errors import LONGEST_REASON, REASON

        starts = read_job_ad(environment).get("numshadowstarts")
        text = " ".join(words.encode("ascii", "backslashreplace").decode().split())
        if isinstance(starts, int):
            value = f"{{{starts}, {quoted(text[:LONGEST_REASON])}}}"
            self.set_attribute(REASON, value, quiet=True)

    def close(self) -> None:
        """End the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connect(self) -> None:
        import socket

        if self._address is None:
            raise OSError("no chirp configuration")
        host, port, cookie = self._address
        self._socket = socket.create_connection((host, port), timeout=TIMEOUT)
        self._ask(f"cookie {escape(cookie)}")

    def _ask(self, request: str) -> None:
        if self._socket is None:
            raise OSError("not connected")
        self._socket.sendall(request.encode("utf-8", "replace") + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            piece = self._socket.recv(256)
            if not piece or len(answer) > 256:
                raise OSError("the starter broke the connection off")
            answer += piece
        code = int(answer)
        if code < 0:
            raise OSError(f"the starter refused with {code}")

    def _failed(self, words: str) -> None:
        if not self._noted:
            self._noted = True
            self._note(words)


def _read_config(environment: Mapping[str, str]) -> tuple[str, int, str] | None:
    named = environment.get("_CONDOR_CHIRP_CONFIG")
    folders = (environment.get("_CONDOR_SCRATCH_DIR"), os.curdir)
    for path in [named, *(os.path.join(folder, ".chirp.config") for folder in folders if folder)]:
        try:
            with open(path or "", encoding="utf-8") as file:
                host, port, cookie = file.read(4096).split()
            return host, int(port), cookie
        except (OSError, ValueError):
            continue
    return None


# The attempt: its name, its secret, its folder, and what it hands from one segment to the next.
#
# When the agent exits with a checkpoint, HTCondor saves the checkpoint and starts the same agent
# in the same folder again: the same attempt goes on with its next segment. A note in the scratch
# folder says so. It is read and deleted before the command starts, which must never see the nonce.

NOTE = ".headway-attempt.json"


class Attempt:
    """One try of a job on one slot; a later segment of it continues an earlier one."""

    def __init__(self, note: dict[str, object] | None = None) -> None:
        carried = note or {}
        self.id = str(carried.get("attempt") or _new_id())
        self.nonce = str(carried.get("nonce") or os.urandom(8).hex())
        number = carried.get("segment")
        self.segment = number + 1 if isinstance(number, int) else 1
        used = carried.get("used")
        # seconds of run that count towards the time limit
        self.used = float(used) if isinstance(used, (int, float)) else 0.0
        self.segments = _dicts(carried.get("segments"))
        self.phases = _dicts(carried.get("phases"))
        self.inputs = _dicts(carried.get("inputs"))
        proven = carried.get("proven")
        # input path -> [size, mtime_ns, inode] when it was last proven
        self.proven: dict[str, object] = proven if isinstance(proven, dict) else {}
        #: What the job took from the shell of whoever submitted it: kept in memory alone.
        self.secrets: dict[str, str] = {}
        self.folder = f"{OUT}/attempts/{self.id}"

    def leave_note(self) -> None:
        """Hand over to the next segment; the last act before exiting with a checkpoint."""
        names = ("nonce", "segment", "used", "segments", "phases", "inputs", "proven")
        note = {"attempt": self.id, **{name: getattr(self, name) for name in names}}
        if self.secrets:  # the pool brings no input again for the next segment
            write_json(SECRETS, self.secrets)
        write_json(NOTE, note)


def begin_attempt() -> Attempt:
    """The attempt that goes on here, or a new one."""
    try:
        with open(NOTE, encoding="utf-8") as file:
            note = json.load(file)
    except (OSError, ValueError, RecursionError):
        note = None
    with contextlib.suppress(OSError):
        os.unlink(NOTE)
    return Attempt(note if _sound(note) else None)


def write_json(path: str, data: object, mode: int = 0o600) -> None:
    """Write JSON atomically; unless told otherwise only the owner may read it."""
    text = json.dumps(data, indent=1, ensure_ascii=True)
    write_atomically(path, f"{text}\n".encode(), mode, fsync=False)


def _new_id() -> str:
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.urandom(3).hex()}"


def _sound(note: object) -> bool:
    """Whether the note can be the agent's own: the command may have written there as well."""
    if not isinstance(note, dict):
        return False
    name, nonce = note.get("attempt"), note.get("nonce")
    number = note.get("segment")
    return (
        isinstance(name, str)
        and len(name) == 23
        and not set(name) - set("0123456789abcdefTZ-")
        and isinstance(nonce, str)
        and len(nonce) == 16
        and not set(nonce) - set("0123456789abcdef")
        and isinstance(number, int)
        and 0 < number < 1_000_000
    )


def _dicts(values: object) -> list[dict[str, object]]:
    return [v for v in values if isinstance(v, dict)] if isinstance(values, list) else []


# The record: what the agent tells of an attempt, as 008 lines, a log and the record.
#
# `record.json` is written before the command without the nonce and in the end with it. A small
# file is kept in reserve so that there is room for the record when the command has filled the
# disk.

FORMAT = 1
RESERVE = ".reserve"
_RESERVE_SIZE = 65_536


class SteadyClock:
    """Wall time that never runs backwards: one reading of the wall clock plus monotonic time."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        return self._offset + time.monotonic()


class Phase:
    """One phase, as a context: its begin and its end are told, with the error if there was one."""

    def __init__(self, record: AttemptRecord, name: str, values: Mapping[str, object]) -> None:
        self._record = record
        self.name = name
        self.begin = record.clock.now()
        self.ok = True
        self.told: dict[str, object] = {}  # goes into the `end` line and the record
        self.entry: dict[str, object] = {"name": name, "segment": record.attempt.segment}
        record.tell(name, "begin", values, self.begin)

    def __enter__(self) -> Phase:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        end = self._record.clock.now()
        ok = self.ok and error is None
        self.entry.update(begin=_round(self.begin), end=_round(end), ok=ok, **self.told)
        told = dict(self.told)
        if error is not None:
            self.entry["error"] = words_of(error)
            told["error"] = words_of(error)[:200]
        self._record.phases.append(self.entry)
        values = {"ok": int(ok), "seconds": round(end - self.begin, 3), **told}
        self._record.tell(self.name, "end", values, end)


class EventLines:
    """The agent's lines in the job's event log, written by chirp.

    Args:
        nonce: What shows that a line is this agent's own.
        note: Told, in words, when chirp fails.
    """

    def __init__(self, nonce: str, note: Callable[[str], None]) -> None:
        self.clock = SteadyClock()
        self.said = False  # whether there was anything to say yet
        self._nonce = nonce
        self._chirp = Chirp(os.environ, note)

    def tell(
        self, phase: str, state: str, values: Mapping[str, object], when: float | None = None
    ) -> None:
        """One 008 line; `when`: not now but at that time."""
        self.said = True
        text = line(self._nonce, phase, state, self.clock.now() if when is None else when, values)
        self._chirp.send(text, last=phase == "done")

    def progress(self, phase: str, **values: object) -> None:
        """A `progress` line."""
        self.tell(phase, "progress", values)

    def arrived(self, phase: str, **values: object) -> None:
        """An `arrived` line: one file is there."""
        self.tell(phase, "arrived", values)

    def set_attribute(self, name: str, expression: str) -> bool:
        """Set an attribute of the job itself; False where the pool does not let us."""
        return self._chirp.set_attribute(name, expression)

    def set_reason(self, words: str) -> None:
        """Let the job's ad say why this attempt ended, for the reason of a hold."""
        self._chirp.set_reason(words, os.environ)

    def close(self) -> None:
        """End the connection to the starter."""
        self._chirp.close()


class AttemptRecord(EventLines):
    """The evidence of one attempt."""

    def __init__(self, attempt: Attempt, host_info: HostInfo) -> None:
        self.attempt = attempt
        self.host_info = host_info
        self.phases = list(attempt.phases)
        self.inputs: list[dict[str, object]] = list(attempt.inputs)
        self.outputs: list[dict[str, object]] = []
        self.problems: list[str] = []
        self.command: dict[str, object] = {}
        self._plan: Plan | None = None
        self._reserve = f"{attempt.folder}/{RESERVE}"
        os.makedirs(attempt.folder, 0o755, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._log = os.open(f"{attempt.folder}/agent.log", flags, 0o644)
        with open(self._reserve, "wb") as file:
            file.write(os.urandom(_RESERVE_SIZE))  # random: some file systems squeeze zeros away
        super().__init__(attempt.nonce, self.note)
        self.begin = self.clock.now()

    @property
    def log_file(self) -> int:
        """agent.log, for those whom the agent starts."""
        return self._log

    def note(self, words: str) -> None:
        """A line in agent.log; a full disk is no failure."""
        stamp = time.strftime("%H:%M:%S", time.gmtime(self.clock.now()))
        _say(self._log, f"{stamp} {words}\n")

    def log(self, words: str) -> None:
        """A line in agent.log and on stderr."""
        self.note(words)
        _say(2, f"headway: {words}\n")

    def problem(self, words: str) -> None:
        """Something that is not right but does not end the attempt."""
        self.problems.append(words)
        self.log(words)

    def phase(self, name: str, **values: object) -> Phase:
        """Begin a phase; a context."""
        return Phase(self, name, values)

    def where(self) -> str:
        """Job and place, for messages."""
        job = f"job {self._plan.row.get('job')} " if self._plan else ""
        return f"{job}on {self.host_info}"

    def know(self, plan: Plan) -> None:
        """From now on the record says what the plan says."""
        self._plan = plan

    def write_early(self) -> None:
        """The record as far as it is known, without the nonce: the command can read it."""
        try:
            self._write(self._record(None, "the agent has not finished", secret=False))
        except OSError as error:
            self.log(f"the early record cannot be written: {error.strerror}")
            with contextlib.suppress(OSError):  # that of the last segment holds the nonce
                os.unlink(f"{self.attempt.folder}/record.json")

    def finish(self, code: int, reason: str) -> None:
        """The last line and the full record, even when the disk is full."""
        done: dict[str, object] = {"exit": code}
        done.update((key, self.command.get(key)) for key in ("status", "signal"))
        if code not in (Exit.OK, Exit.CHECKPOINT):
            done["reason"] = reason[:LONGEST_REASON]
        self.tell("done", "end", done)
        self.close()
        with contextlib.suppress(OSError):
            os.unlink(self._reserve)
        try:
            self._write(self._record(code, reason, secret=True))
        except OSError as error:
            self.log(f"the record cannot be written: {error.strerror}")

    def segments(self, code: int | None) -> list[dict[str, object]]:
        """The segments up to and with this one."""
        keys = ("status", "signal", "seconds", "cpu_user", "cpu_system", "max_rss")
        this: dict[str, object] = {
            "segment": self.attempt.segment,
            "begin": _round(self.begin),
            "end": _round(self.clock.now()) if code is not None else None,
            "exit": code,
            **{key: self.command.get(key) for key in keys},
        }
        return [*self.attempt.segments, this]

    def _record(self, code: int | None, reason: str, *, secret: bool) -> dict[str, object]:
        plan, host = self._plan, self.host_info
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


def _say(descriptor: int, text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(descriptor, text.encode("utf-8", "backslashreplace"))


def _round(seconds: float) -> float:
    return round(seconds, 3)


# Progress: how far a transfer phase is, and when to say so.

FIRST = 5.0  # seconds to the first line; the distance then doubles, so that the log stays small
LONGEST = 300.0
_SOURCES = 6  # that a line names at most: a chirp line has a thousand bytes


class Progress:
    """How far a phase is; written by the transferring thread, read by the main thread."""

    def __init__(self, sizes: Mapping[str, int | None]) -> None:
        self._sizes = dict(sizes)  # by path; None: not known yet
        self.file = ""
        self.snapshot: Snapshot | None = None  # of the present file, while sources are at work
        self.arrived: list[dict[str, object]] = []  # what the log is still to be told
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
        """The next file."""
        self.file, self.snapshot = path, None

    def moved(self, count: int, _total: int | None) -> None:
        """The present file has come this far."""
        self._current = count

    def watched(self, snapshot: Snapshot) -> None:
        """The present file and its sources."""
        self.snapshot = snapshot
        self._current = snapshot.bytes
        if snapshot.total is not None:
            self._sizes[self.file] = snapshot.total

    def finished(self, size: int) -> None:
        """The present file is complete."""
        if self.file in self._sizes and self._sizes[self.file] is None:
            self._sizes[self.file] = size
        self.snapshot = None
        self._finished, self._current = self._finished + size, 0

    def values(self) -> dict[str, object]:
        """What a progress line says; the longest last, where a line is cut."""
        said: dict[str, object] = {"bytes": self.done, "total": self.total, "file": self.file}
        now = self.snapshot
        if now is not None:
            said.update(done=now.bytes, size=now.total, rate=int(now.rate), slow=now.slow or None)
            said["from"] = source_words(now) or None
        return said


class ProgressReporter:
    """Sends a progress line after 5 s, 10, 20, 40, … and at last every five minutes."""

    def __init__(self, lines: Lines, phase: str, progress: Progress) -> None:
        self._lines, self._phase, self._progress = lines, phase, progress
        self._begin = time.monotonic()
        self._next = FIRST

    def tick(self) -> float:
        """Say how far it is if that is due; returns the seconds until it is to be asked again."""
        now = time.monotonic() - self._begin
        self.tell_arrived()
        if now >= self._next:
            self._lines.progress(self._phase, **self._progress.values())
            self._next = next_after(self._next, now)
        return min(self._next - now, FIRST)

    def tell_arrived(self) -> None:
        """A line for each file that took its time and is there."""
        while self._progress.arrived:
            self._lines.arrived(self._phase, **self._progress.arrived.pop(0))


def next_after(mark: float, now: float) -> float:
    """The first mark of 5, 10, 20, …, 320, 620, 920, … that lies after `now`."""
    while mark <= now:
        mark += min(mark, LONGEST)
    return mark


def source_words(snapshot: Snapshot) -> str:
    """HOST/STATE/BYTES for each source, joined by `+`; those that gave most come first."""
    sources = sorted(snapshot.sources, key=lambda source: -source.bytes)
    return "+".join(f"{each.host}/{each.state}/{each.bytes}" for each in sources[:_SOURCES])
