"""The journal: what the agent tells of an attempt, as 008 lines, a log and the record.

`record.json` is written before the command without the nonce and in the end with it. A small file
is kept in reserve so that there is room for the record when the command has filled the disk.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time

from headway.node.attempt import write_json
from headway.node.chirp import Chirp, line
from headway.node.exits import LONGEST_REASON, Exit
from headway.node.verdict import words_of
from headway.node.version import VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from headway.node.attempt import Attempt
    from headway.node.place import Place
    from headway.node.plan import Plan

FORMAT = 1
RESERVE = ".reserve"
_RESERVE_SIZE = 65_536


class Clock:
    """Wall time that never runs backwards: one reading of the wall clock plus monotonic time."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        return self._offset + time.monotonic()


class Phase:
    """One phase, as a context: its begin and its end are told, with the error if there was one."""

    def __init__(self, journal: Journal, name: str, values: Mapping[str, object]) -> None:
        self._journal = journal
        self.name = name
        self.begin = journal.clock.now()
        self.ok = True
        self.told: dict[str, object] = {}  # goes into the `end` line and the record
        self.entry: dict[str, object] = {"name": name, "segment": journal.attempt.segment}
        journal.tell(name, "begin", self.begin, values)

    def __enter__(self) -> Phase:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        end = self._journal.clock.now()
        ok = self.ok and error is None
        self.entry.update(begin=_round(self.begin), end=_round(end), ok=ok, **self.told)
        told = dict(self.told)
        if error is not None:
            self.entry["error"] = words_of(error)
            told["error"] = words_of(error)[:200]
        self._journal.phases.append(self.entry)
        values = {"ok": int(ok), "seconds": round(end - self.begin, 3), **told}
        self._journal.tell(self.name, "end", end, values)


class Journal:
    """The evidence of one attempt."""

    def __init__(self, attempt: Attempt, place: Place) -> None:
        self.attempt = attempt
        self.place = place
        self.clock = Clock()
        self.begin = self.clock.now()
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
        self._chirp = Chirp(os.environ, self.note)

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

    def tell(self, phase: str, state: str, when: float, values: Mapping[str, object]) -> None:
        """One 008 line."""
        text = line(self.attempt.nonce, phase, state, when, values)
        self._chirp.send(text, last=phase == "done")

    def progress(self, phase: str, **values: object) -> None:
        """A `progress` line."""
        self.tell(phase, "progress", self.clock.now(), values)

    def arrived(self, phase: str, **values: object) -> None:
        """An `arrived` line: one file is there."""
        self.tell(phase, "arrived", self.clock.now(), values)

    def set_attribute(self, name: str, expression: str) -> bool:
        """Set an attribute of the job itself; False where the pool does not let us."""
        return self._chirp.set_attribute(name, expression)

    def set_reason(self, words: str) -> None:
        """Let the job's ad say why this attempt ended, for the reason of a hold."""
        self._chirp.set_reason(words, os.environ)

    def where(self) -> str:
        """Job and place, for messages."""
        job = f"job {self._plan.row.get('job')} " if self._plan else ""
        return f"{job}on {self.place}"

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
        self.tell("done", "end", self.clock.now(), done)
        self._chirp.close()
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
        plan, place = self._plan, self.place
        return {
            "format": FORMAT,
            "attempt": self.attempt.id,
            "nonce": self.attempt.nonce if secret else None,
            "run": plan.run if plan else None,
            "name": plan.name if plan else None,
            "job": plan.row.get("job") if plan else None,
            "host": place.host,
            "site": place.site,
            "slot": place.slot,
            "cluster_proc": place.cluster_proc,
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
        os.makedirs(
            self.attempt.folder, 0o755, exist_ok=True
        )  # the command may have cleaned up a lot
        path = f"{self.attempt.folder}/record.json"
        write_json(path, record)
        os.chmod(path, 0o644)


def _say(descriptor: int, text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(descriptor, text.encode("utf-8", "backslashreplace"))


def _round(seconds: float) -> float:
    return round(seconds, 3)
