"""What heal has done so far: the audit that it writes, and the state that follows from it."""

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
WIDE = "cause "  # what the name of a breaker begins with that is over all sites and sources


class ReleaseEnding(str, Enum):
    """How a released job went on, as its event log tells."""

    SUCCESS = "success"
    HELD = "held again"  # for the same cause
    OTHER = "held for another cause"
    FAILED = "failed"
    REMOVED = "removed"  # which tells nothing of whether the release was right
    GONE = "gone"  # out of the queue, and no log tells how


@dataclass(frozen=True)
class Edit:
    """An attribute to set before a release; `old`: what it must be, as an expression."""

    attribute: str
    new: str
    old: str = ""

    def is_sound(self) -> bool:
        """Whether it is one that heal makes: a request's new number, or a category."""
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
    """What heal has decided to do to one hold of one job; written down before it is done."""

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
        """In types that JSON knows."""
        edits = [{"attribute": e.attribute, "new": e.new, "old": e.old} for e in self.edits]
        facts = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**facts, "key": list(self.key), "edits": edits}

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Intent:
        """From a line of the audit.

        Raises:
            KeyError, TypeError, ValueError: The line is not one that heal writes.
        """
        known = {name: facts[name] for name in cls.__dataclass_fields__ if name in facts}
        intent = cls(
            **{
                **known,
                "key": Key(*facts["key"]),
                "breakers": tuple(facts.get("breakers", ())),
                "avoid": tuple(facts.get("avoid", ())),
                "edits": tuple(Edit(**edit) for edit in facts.get("edits", ())),
            }
        )
        intent._check()
        return intent

    def _check(self) -> None:
        """ValueError unless each value is of the kind that heal writes: they become constraints."""
        counts = (*self.key, self.holds, self.heals)
        codes = (self.code, self.subcode)
        texts = (self.id, self.user, self.cause, self.log, *self.breakers)
        sound = (
            self.act in ("release", "remove")
            and all(type(number) is int for number in (*counts, *codes))
            and all(number >= 0 for number in counts)
            and all(type(at) in (int, float) and isfinite(at) for at in (self.time, self.since))
            and all(isinstance(text, str) for text in texts)
            and all(
                isinstance(text, str) and PLAIN.match(text) for text in (self.claim, self.before)
            )
            and all(isinstance(site, str) and SITE.match(site) for site in self.avoid)
            and all(edit.is_sound() for edit in self.edits)
        )
        if not sound:
            raise ValueError("not an intent of heal's")


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
    """All that decisions depend on beside the queue, the log and the advice."""

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
        """Take in one line of the audit; one that makes no sense changes nothing."""
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
            entry = self.by_id.get(str(record.get("id", "")))
            if entry is not None:
                self._follow(entry, str(kind), record, latest)

    @property
    def pending(self) -> list[Intent]:
        """Decisions of which nobody knows whether they were carried out."""
        return [entry.intent for entry in self.by_id.values() if entry.done is None]

    @property
    def open(self) -> list[HealAction]:
        """Acts that were made and whose ending is not known."""
        return [entry for entry in self.by_id.values() if entry.done and entry.ending is None]

    def breaker(self, name: str) -> Breaker:
        """The breaker of that name; one that nothing is known of is as good as new."""
        return self.breakers.get(name) or Breaker(name, wide=name.startswith(WIDE))

    def releases(self, key: Key) -> int:
        """How often heal has, or may have, released the job."""
        return sum(entry.counts for entry in self.by_job.get(key, ()))

    def in_last_hour(self, now: float) -> Counter[str]:
        """Releases in the last hour by user; one from the future tells that a clock jumped."""
        return Counter(
            entry.intent.user
            for entry in self.by_id.values()
            if abs(now - entry.intent.time) < HOUR and entry.counts
        )

    def _intend(self, intent: Intent) -> None:
        entry = self.by_id.get(intent.id)
        if entry is None:
            entry = self.by_id[intent.id] = HealAction(intent)
            self.by_job[intent.key].append(entry)
        else:  # tried again, after the pool had refused it
            entry.intent, entry.done, entry.words = intent, None, ""
        for name in intent.breakers:
            breaker = self.breakers.setdefault(name, self.breaker(name))
            breaker.released(intent.id, intent.time)

    def _follow(
        self, entry: HealAction, kind: str, record: Mapping[str, Any], latest: float
    ) -> None:
        now = min(float(record.get("time", 0.0)), latest)
        intent = entry.intent
        breakers = [self.breakers[name] for name in intent.breakers]
        if kind == "result":
            entry.done, entry.words = bool(record.get("done")), str(record.get("words", ""))
            entry.tries += 1
            entry.tried = now
            if not entry.done:
                for breaker in breakers:
                    breaker.dropped(intent.id)
        elif kind == "passed":
            entry.passed = True
            for breaker in breakers:
                breaker.passed(intent.id, self.rules)
        elif kind == "outcome" and entry.ending is None:
            entry.ending, entry.ended = ReleaseEnding(record["how"]), now
            if entry.ending is ReleaseEnding.HELD and record.get("same") is False:
                entry.ending = ReleaseEnding.OTHER  # in the words of an earlier Headway
            for breaker in breakers:
                if entry.ending in (ReleaseEnding.SUCCESS, ReleaseEnding.FAILED):
                    breaker.passed(intent.id, self.rules)
                elif entry.ending is ReleaseEnding.HELD:
                    breaker.fell(intent.id, now)
                else:
                    breaker.dropped(intent.id)


# The audit: what heal decided, on what evidence, what it did, and how that ended.
#
# Append-only JSON lines. A line is on the disk before what it tells of is done. A line that a kill
# or a full disk cut short is closed off and passed over; it was never acted upon.


FORMAT = 1


def audit_of_run(folder: RunFolder) -> Path:
    """The audit of a run is with the run."""
    return folder.path / "heal.jsonl"


def audit_of_pool(name: str) -> Path:
    """The user's audit of a schedd; a home folder may be shared by several access points."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    place = name if name != "htcondor" else f"htcondor:schedd={socket.gethostname()}"
    return Path(home) / "headway" / "heal" / f"{re.sub(r'[^A-Za-z0-9.-]', '_', place)}.jsonl"


class AuditError(HeadwayError):
    """The audit cannot be read_audit or written, or another heal has it."""


class Audit:
    """One audit, open for one heal; another one that asks for it is told so."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # what it says is done: nobody else may have written it, and it must lead nowhere else
            self._fd = open_own(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise _failed(path, error) from error
        try:
            self._lock = lock(self._fd)
        except BlockingIOError:
            os.close(self._fd)
            raise AuditError(
                f"another heal is at work with {path}",
                remedy="one is enough; end it first, or look at what it does with"
                " `headway heal --audit`",
            ) from None
        except OSError as error:
            os.close(self._fd)
            raise _failed(path, error) from error
        try:
            self._mend()
            self.records = list(read_audit(path))
            if not any(record.get("kind") == "audit" for record in self.records):
                first = {"kind": "audit", "id": uuid.uuid4().hex[:12], "format": FORMAT}
                self.records += self.write(first)
        except BaseException:
            self.close()
            raise

    def write(self, *records: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Append lines and have them on the disk; returns them as they were written."""
        now = round(time.time(), 3)
        stamped = [{"time": now, **record} for record in records]
        text = "".join(json.dumps(record, default=str) + "\n" for record in stamped)
        data = text.encode("ascii")  # what a log says cannot act on a terminal from here
        try:
            while data:
                data = data[os.write(self._fd, data) :]
            os.fsync(self._fd)
        except OSError as error:
            # What did get there must not become one line with what comes next.
            with contextlib.suppress(OSError):
                self._mend()
            raise _failed(self.path, error) from error
        return stamped

    def close(self) -> None:
        """Let go of it."""
        if self._fd >= 0:
            self._lock.release()
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Audit:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _mend(self) -> None:
        """Close off a last line that has no end."""
        size = os.fstat(self._fd).st_size
        if size and os.pread(self._fd, 1, size - 1) != b"\n":
            os.write(self._fd, b"\n")


def read_audit(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of an audit; what is none is passed over."""
    try:
        with open(open_plain(path), "rb") as file:
            for line in file:
                record = _record(line)
                if record is not None:
                    yield record
    except FileNotFoundError:
        return
    except OSError as error:
        raise _failed(path, error) from error


def _record(line: bytes) -> dict[str, Any] | None:
    if not line.endswith(b"\n"):
        return None  # being written, or cut short
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and _makes_sense(record) else None


def _makes_sense(record: Mapping[str, Any]) -> bool:
    """Whether the fold can take it; a damaged line must not stop heal for ever."""

    try:
        if record["kind"] == "intent":
            Intent.of(record["intent"])
        elif record["kind"] == "outcome":
            ReleaseEnding(record["how"])
        float(record.get("time", 0.0))
    except (KeyError, TypeError, ValueError):
        return False
    return True


def _failed(path: Path, error: OSError) -> AuditError:
    return AuditError(
        f"the audit {path} cannot be written: {error.strerror or error}",
        remedy="heal does nothing that it cannot write down; is there space and permission?",
    )
