"""The audit that heal writes, and the state that follows from it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from math import inf, isfinite
from pathlib import Path
from typing import Any

from headway.errors import HeadwayError
from headway.holds.hold import FIRST, PLAIN, Key
from headway.holds.rules import HOUR, Breaker, Rules
from headway.node.files import lock
from headway.pool import RunFolder
from headway.pool.folder import open_own, open_plain

WHOLE = re.compile(r"[0-9]{1,15}\Z", re.ASCII)
SITE = re.compile(r"[A-Za-z0-9_.-]{1,100}\Z", re.ASCII)
CATEGORIES = ('"Medium"', '"Long"')
WIDE = "cause "  # begins the names of breakers for all sites and sources


class ReleaseEnding(str, Enum):
    """What became of a released job, as its event log says."""

    SUCCESS = "success"
    HELD = "held again"  # for the same cause
    OTHER = "held for another cause"
    FAILED = "failed"
    REMOVED = "removed"  # which does not say whether the release was right
    GONE = "gone"  # out of the queue, and no log says how


@dataclass(frozen=True)
class Edit:
    """An attribute to set before a release; `old`: the value that it must have, if any."""

    attribute: str
    new: str
    old: str = ""

    def is_sound(self) -> bool:
        """Whether heal makes such edits: of a request to a number, or of the duration category."""
        if self.attribute == "JobDurationCategory":
            return self.new in CATEGORIES and self.old == ""
        requests = ("RequestMemory", "RequestDisk")
        return (
            self.attribute in (*requests, *(f"{FIRST}{name}" for name in requests))
            and isinstance(self.new, str)
            and isinstance(self.old, str)
            and bool(WHOLE.match(self.new))
            and (self.old == "" or bool(WHOLE.match(self.old)))
        )


@dataclass(frozen=True)
class Intent:
    """What heal has decided to do about one hold of one job; recorded before it is done."""

    id: str
    time: float
    act: str  # release or remove
    key: Key
    user: str
    holds: int
    since: float
    code: int
    subcode: int
    cause: str = ""
    early: bool = False  # whether it was held before its command started
    log: str = ""
    breakers: tuple[str, ...] = ()
    claim: str = ""
    before: str = ""  # the claim that the job had
    heals: int = 0
    edits: tuple[Edit, ...] = ()
    avoid: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The intent in types that JSON has."""
        edits = [vars(edit) for edit in self.edits]
        return {**vars(self), "key": list(self.key), "edits": edits}

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Intent:
        """From a line of the audit.

        Raises:
            KeyError, TypeError, ValueError: The line is not one that heal writes.
        """
        known = {name: facts[name] for name in cls.__dataclass_fields__ if name in facts}
        for name in ("breakers", "avoid"):
            known[name] = tuple(known.get(name, ()))
        known["key"] = Key(*facts["key"])
        known["edits"] = tuple(Edit(**edit) for edit in known.get("edits", ()))
        intent = cls(**known)
        if not intent._is_sound():
            raise ValueError("not an intent of heal")
        return intent

    def _is_sound(self) -> bool:
        """Whether each value is one that heal writes: they become constraints."""
        counts = (*self.key, self.holds, self.heals)
        texts = (self.id, self.user, self.cause, self.log, *self.breakers)
        claims = (self.claim, self.before)
        return (
            self.act in ("release", "remove")
            and all(type(number) is int for number in (*counts, self.code, self.subcode))
            and all(number >= 0 for number in counts)
            and all(type(at) in (int, float) and isfinite(at) for at in (self.time, self.since))
            and all(isinstance(text, str) for text in (*texts, *claims, *self.avoid))
            and all(PLAIN.match(text) for text in claims)
            and all(SITE.match(site) for site in self.avoid)
            and all(edit.is_sound() for edit in self.edits)
        )


@dataclass
class HealAction:
    """An intent and what became of it."""

    intent: Intent
    done: bool | None = None  # None: not known yet
    words: str = ""
    passed: bool = False
    ending: ReleaseEnding | None = None
    ended: float = 0.0
    tries: int = 0
    tried: float = 0.0

    @property
    def is_release(self) -> bool:
        return self.intent.act == "release"

    @property
    def counts(self) -> bool:
        """Whether it is, or may be, a release that was made."""
        return self.is_release and self.done is not False


@dataclass
class HealState:
    """All that decisions depend on besides the queue, the log and the advice."""

    rules: Rules = field(default_factory=Rules)
    #: The audit's own id: two heals never have the same.
    id: str = ""
    lines: int = 0
    by_id: dict[str, HealAction] = field(default_factory=dict)
    by_job: defaultdict[Key, list[HealAction]] = field(default_factory=lambda: defaultdict(list))
    breakers: dict[str, Breaker] = field(default_factory=dict)
    #: What was last said of each hold that was left alone.
    said: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, records: Iterable[Mapping[str, Any]], rules: Rules, *, latest: float = inf
    ) -> HealState:
        """The state after these lines; a time that is later than `latest` counts as `latest`."""
        state = cls(rules)
        for record in records:
            state.take(record, latest)
        return state

    def take(self, record: Mapping[str, Any], latest: float = inf) -> None:
        """Apply one record of the audit."""
        self.lines += 1
        kind = record.get("kind")
        if kind == "audit":
            self.id = self.id or str(record.get("id", ""))
        elif kind == "intent":
            intent = Intent.of(record["intent"])
            self._intend(replace(intent, time=min(intent.time, latest)))
        elif kind == "left":
            self.said[str(record["id"])] = str(record.get("why", ""))
        else:
            action = self.by_id.get(str(record.get("id", "")))
            if action is not None:
                self._follow(action, str(kind), record, latest)

    @property
    def pending(self) -> list[Intent]:
        """Decisions that may or may not have been carried out."""
        return [action.intent for action in self.by_id.values() if action.done is None]

    @property
    def open(self) -> list[HealAction]:
        """Actions that were carried out and have not ended yet."""
        return [action for action in self.by_id.values() if action.done and action.ending is None]

    def breaker(self, name: str) -> Breaker:
        """The breaker of that name, or a new one."""
        return self.breakers.get(name) or Breaker(name, wide=name.startswith(WIDE))

    def releases(self, key: Key) -> int:
        """How often heal has, or may have, released the job."""
        return sum(action.counts for action in self.by_job.get(key, ()))

    def in_last_hour(self, now: float) -> Counter[str]:
        """Releases in the last hour by user; if a clock jumped back, some are in the future."""
        return Counter(
            action.intent.user
            for action in self.by_id.values()
            if abs(now - action.intent.time) < HOUR and action.counts
        )

    def _intend(self, intent: Intent) -> None:
        action = self.by_id.get(intent.id)
        if action is None:
            action = self.by_id[intent.id] = HealAction(intent)
            self.by_job[intent.key].append(action)
        else:  # another try, after the pool refused it
            action.intent, action.done, action.words = intent, None, ""
        for name in intent.breakers:
            breaker = self.breakers.setdefault(name, self.breaker(name))
            breaker.released(intent.id, intent.time)

    def _follow(
        self, action: HealAction, kind: str, record: Mapping[str, Any], latest: float
    ) -> None:
        now = min(float(record.get("time", 0.0)), latest)
        intent = action.intent
        breakers = [self.breakers[name] for name in intent.breakers]
        if kind == "result":
            action.done, action.words = bool(record.get("done")), str(record.get("words", ""))
            action.tries, action.tried = action.tries + 1, now
            if not action.done:
                for breaker in breakers:
                    breaker.dropped(intent.id)
        elif kind == "passed":
            action.passed = True
            for breaker in breakers:
                breaker.passed(intent.id, self.rules)
        elif kind == "outcome" and action.ending is None:
            action.ending, action.ended = ReleaseEnding(record["how"]), now
            if action.ending is ReleaseEnding.HELD and record.get("same") is False:
                action.ending = ReleaseEnding.OTHER  # in the words of an earlier Headway
            for breaker in breakers:
                if action.ending in (ReleaseEnding.SUCCESS, ReleaseEnding.FAILED):
                    breaker.passed(intent.id, self.rules)
                elif action.ending is ReleaseEnding.HELD:
                    breaker.fell(intent.id, now)
                else:
                    breaker.dropped(intent.id)


# The audit file: what heal decided, on what evidence, what it did, and how that ended.
#
# Append-only JSON lines. A line is on the disk before heal does what it says. A line that was cut
# short by a kill or a full disk gets a line end and is ignored; nothing was done about it.


FORMAT = 1


def audit_of_run(folder: RunFolder) -> Path:
    """The path of a run's audit."""
    return folder.path / "heal.jsonl"


def audit_of_pool(name: str) -> Path:
    """The path of a user's audit of a schedd; several access points may share a home folder."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    place = name if name != "htcondor" else f"htcondor:schedd={socket.gethostname()}"
    return Path(home) / "headway" / "heal" / f"{re.sub(r'[^A-Za-z0-9.-]', '_', place)}.jsonl"


class AuditError(HeadwayError):
    """The audit cannot be read or written, or another heal uses it."""


class Audit:
    """An audit, open for one heal at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with contextlib.ExitStack() as stack:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                # heal does what it says, so nobody else may have written it or put a link there
                self._fd = open_own(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
                stack.callback(os.close, self._fd)
                stack.callback(lock(self._fd).release)
                self._end_last_line()
            except BlockingIOError:
                raise AuditError(
                    f"another heal is at work with {path}",
                    remedy="one is enough; end it first, or look at what it does with"
                    " `headway heal --audit`",
                ) from None
            except OSError as error:
                raise _failed(path, error) from error
            self.records = list(read_audit(path))
            if not any(record.get("kind") == "audit" for record in self.records):
                first = {"kind": "audit", "id": uuid.uuid4().hex[:12], "format": FORMAT}
                self.records += self.write(first)
            self._stack = stack.pop_all()

    def write(self, *records: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Append records and wait until they are on the disk; returns them with their times."""
        now = round(time.time(), 3)
        stamped = [{"time": now, **record} for record in records]
        text = "".join(json.dumps(record, default=str) + "\n" for record in stamped)
        data = text.encode("ascii")  # what a log says cannot act on a terminal from here
        try:
            while data:
                data = data[os.write(self._fd, data) :]
            os.fsync(self._fd)
        except OSError as error:
            # What was written must not become one line with what comes next.
            with contextlib.suppress(OSError):
                self._end_last_line()
            raise _failed(self.path, error) from error
        return stamped

    def close(self) -> None:
        """Unlock and close it."""
        self._stack.close()

    def __enter__(self) -> Audit:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _end_last_line(self) -> None:
        size = os.fstat(self._fd).st_size
        if size and os.pread(self._fd, 1, size - 1) != b"\n":
            os.write(self._fd, b"\n")


def read_audit(path: Path) -> Iterator[dict[str, Any]]:
    """The records of an audit; damaged lines are ignored."""
    try:
        with open(open_plain(path), "rb") as file:
            yield from filter(None, map(_record, file))
    except FileNotFoundError:
        return
    except OSError as error:
        raise _failed(path, error) from error


def _record(line: bytes) -> dict[str, Any] | None:
    """The record in a line; None: it is incomplete, or `HealState` cannot take it."""
    if not line.endswith(b"\n"):
        return None
    try:
        record: dict[str, Any] = json.loads(line)
        if record["kind"] == "intent":
            Intent.of(record["intent"])
        elif record["kind"] == "outcome":
            ReleaseEnding(record["how"])
        float(record.get("time", 0.0))
    except (KeyError, RecursionError, TypeError, ValueError):
        return None
    return record


def _failed(path: Path, error: OSError) -> AuditError:
    return AuditError(
        f"the audit {path} cannot be written: {error.strerror or error}",
        remedy="heal does nothing that it cannot write down; is there space and permission?",
    )
