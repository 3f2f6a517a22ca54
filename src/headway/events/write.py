"""Writing event logs in HTCondor's own format, as the local pool does."""

from __future__ import annotations

import errno
import math
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from headway.errors import EventLogError
from headway.events.event import Event
from headway.events.format import (
    EVICTION_REASON,
    TABLE,
    TRANSFER_TEXTS,
    Ad,
    Direction,
    EventType,
    Resource,
    Stage,
    Transfer,
    Usage,
    Value,
    event_lines,
    inert,
    resource_lines,
    ulog_name,
)
from headway.node.classad import Expr
from headway.node.files import NONE_HERE, lock

# HTCondor reads a header line into 1,024 bytes and loses the rest.
_HEADER_LIMIT = 1020
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_RESERVED = frozenset({"true", "false", "undefined", "error", "is", "isnt", "parent", "not"})


def event_bytes(
    number: int, cluster: int, proc: int, at: float | None, text: str, body: Iterable[str] = ()
) -> bytes:
    """A whole event with its end mark; `text` may be anything, `body` must be `inert` already."""
    head = f"{number:03d} ({cluster:03d}.{proc:03d}.000) {stamp(at)} "
    return "\n".join((head + inert(text, _HEADER_LIMIT - len(head)), *body, "...\n")).encode()


def stamp(at: float | None) -> str:
    """A time, or now, in local time to the second."""
    return _stamp(math.floor(time.time() if at is None else at))


@lru_cache(maxsize=8)
def _stamp(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def ending_ad(return_value: int | None, signal: int | None) -> Ad:
    """How a command ended; exactly one of the two must be given."""
    if (return_value is None) == (signal is None):
        raise ValueError("a command ends with either a return value or a signal")
    if signal is None:
        return {"TerminatedNormally": True, "ReturnValue": return_value}
    return {"TerminatedBySignal": signal}


def used_ad(usage: Usage | None, sent: int, received: int) -> Ad:
    """What an attempt used; the access point's own processor times are not measured."""
    used = str(usage or Usage())
    return {
        "RunRemoteUsage": used,
        "TotalRemoteUsage": used,
        "SentBytes": sent,
        "ReceivedBytes": received,
        "TotalSentBytes": sent,
        "TotalReceivedBytes": received,
    }


_LASTING = frozenset({EventType.TERMINATED, EventType.ABORTED, EventType.HELD})
_END = b"\n...\n"


class EventWriter:
    """Appends events to a log, each whole or not at all; safe for several threads and processes.

    Opening cuts off what a crash left behind the last complete event (`repaired` says how many
    bytes). Each method writes one event and returns it. Times default to now and are written, like
    HTCondor's, as local time to the second.

    Args:
        path: The log; it is made if it is not there.
        fsync: An event that ends or holds a job is on the disk when the call returns.

    Raises:
        EventLogError: The file cannot be opened or written, or is no event log.

    Example:
        >>> with EventWriter("events.log") as writer:
        ...     writer.released(7, 0, "try again").reason
        'try again'
    """

    def __init__(self, path: str | os.PathLike[str], *, fsync: bool = False) -> None:
        self.path = Path(path)
        self.fsync = fsync
        self._lock = threading.RLock()
        self._group: list[tuple[int, bytes]] | None = None
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            self._fd = os.open(self.path, flags, 0o644)
        except OSError as error:
            raise EventLogError(
                f"the event log {self.path} cannot be opened: {error.strerror}",
                remedy="Check that its folder exists and that you may write there.",
            ) from error
        try:
            with self._exclusive():
                self.repaired = self._repair()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> EventWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; closing twice does no harm."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    @contextmanager
    def group(self) -> Iterator[None]:
        """Write the events of the block together, in one write; an exception drops them all."""
        with self._lock:
            if self._group is not None:
                raise RuntimeError("groups of events do not nest")
            self._group = []
            try:
                yield
                group, self._group = self._group, None
                if group:
                    self._append(group)
            finally:
                self._group = None

    def submitted(
        self, cluster: int, proc: int, host: str, *, notes: str = "", time: float | None = None
    ) -> Event:
        """000: the job is in the queue."""
        ad: Ad = {"SubmitHost": _host(host), "LogNotes": inert(notes)}
        return self._write(EventType.SUBMIT, cluster, proc, time, ad)

    def executing(
        self,
        cluster: int,
        proc: int,
        host: str,
        *,
        slot: str = "",
        attributes: Mapping[str, Value] | None = None,
        time: float | None = None,
    ) -> Event:
        """001: an attempt runs; `GLIDEIN_ResourceName` among the attributes names the site."""
        ad: Ad = {
            "ExecuteHost": _host(host),
            "SlotName": inert(slot.replace('"', "")),
            "ExecuteProps": _inert_ad(attributes or {}),
        }
        return self._write(EventType.EXECUTE, cluster, proc, time, ad)

    def evicted(
        self,
        cluster: int,
        proc: int,
        reason: str = "",
        code: int = 0,
        subcode: int = 0,
        *,
        requeued: bool = False,
        return_value: int | None = None,
        signal: int | None = None,
        checkpointed: bool = False,
        usage: Usage | None = None,
        sent: int = 0,
        received: int = 0,
        resources: Mapping[str, Resource] | None = None,
        time: float | None = None,
    ) -> Event:
        """004: the attempt is over and the job is not.

        `requeued`: the command ended by itself, with `return_value` or `signal`, and the job's
        policy wants another try.
        """
        reason = inert(reason)
        ad: Ad = {
            "ReasonCode": code,
            "ReasonSubCode": subcode,
            "TerminatedAndRequeued": requeued,
            "Checkpointed": checkpointed,
            **used_ad(usage, sent, received),
        }
        if requeued:
            ad |= ending_ad(return_value, signal)
            if reason.startswith((EVICTION_REASON.texts[0].strip("\t"), TABLE.strip())):
                reason = EVICTION_REASON({"Reason": reason})[0].strip()
        return self._write(
            EventType.EVICTED, cluster, proc, time, ad | {"Reason": reason}, resources
        )

    def terminated(
        self,
        cluster: int,
        proc: int,
        *,
        return_value: int | None = None,
        signal: int | None = None,
        usage: Usage | None = None,
        sent: int = 0,
        received: int = 0,
        resources: Mapping[str, Resource] | None = None,
        time: float | None = None,
    ) -> Event:
        """005: the job is over, with a return value or by a signal."""
        ad = ending_ad(return_value, signal) | used_ad(usage, sent, received)
        return self._write(EventType.TERMINATED, cluster, proc, time, ad, resources)

    def image_size(
        self,
        cluster: int,
        proc: int,
        size_kb: int,
        *,
        memory_mb: int | None = None,
        resident_kb: int | None = None,
        time: float | None = None,
    ) -> Event:
        """006: how much memory the attempt uses."""
        ad: Ad = {"Size": size_kb}
        if memory_mb is not None:
            ad["MemoryUsage"] = memory_mb
        if resident_kb is not None:
            ad["ResidentSetSize"] = resident_kb
        return self._write(EventType.IMAGE_SIZE, cluster, proc, time, ad)

    def generic(self, cluster: int, proc: int, text: str, *, time: float | None = None) -> Event:
        """008: a line of the agent or of the job itself; cut off after about 950 bytes."""
        # Alone on the header, these three dots would be read as the end mark.
        ad: Ad = {"Info": "…" if inert(text) == "..." else text}
        return self._write(EventType.GENERIC, cluster, proc, time, ad)

    def aborted(
        self, cluster: int, proc: int, reason: str = "", *, time: float | None = None
    ) -> Event:
        """009: somebody removed the job."""
        return self._write(EventType.ABORTED, cluster, proc, time, {"Reason": inert(reason)})

    def held(
        self,
        cluster: int,
        proc: int,
        reason: str = "",
        code: int = 0,
        subcode: int = 0,
        *,
        time: float | None = None,
    ) -> Event:
        """012: the job waits for somebody to release or remove it."""
        ad: Ad = {"HoldReason": inert(reason), "HoldReasonCode": code, "HoldReasonSubCode": subcode}
        return self._write(EventType.HELD, cluster, proc, time, ad)

    def released(
        self, cluster: int, proc: int, reason: str = "", *, time: float | None = None
    ) -> Event:
        """013: the job may run again."""
        return self._write(EventType.RELEASED, cluster, proc, time, {"Reason": inert(reason)})

    def ad_information(
        self,
        cluster: int,
        proc: int,
        trigger: EventType,
        attributes: Mapping[str, Value],
        *,
        time: float | None = None,
    ) -> Event:
        """028: attributes of the job as they were at the event before this one."""
        ad: Ad = {
            "EventTime": stamp(time).replace(" ", "T"),
            **_inert_ad(attributes),
            "Cluster": cluster,
            "Proc": proc,
            "Subproc": 0,
            "EventTypeNumber": int(EventType.AD_INFORMATION),
            "TriggerEventTypeNumber": int(trigger),
            "TriggerEventTypeName": ulog_name(trigger),
        }
        return self._write(EventType.AD_INFORMATION, cluster, proc, time, ad)

    def attribute_update(
        self, cluster: int, proc: int, attribute: str, value: str, *, time: float | None = None
    ) -> Event:
        """033: somebody edited the job."""
        ad: Ad = {"Attribute": inert(attribute), "Value": inert(value)}
        return self._write(EventType.ATTRIBUTE_UPDATE, cluster, proc, time, ad)

    def transfer(
        self,
        cluster: int,
        proc: int,
        direction: Direction,
        stage: Stage,
        *,
        host: str = "",
        queued_seconds: int | None = None,
        time: float | None = None,
    ) -> Event:
        """040: the pool's own file transfer is queued, has started or has finished."""
        number = list(TRANSFER_TEXTS).index(Transfer(direction, stage)) + 1
        ad: Ad = {"Type": number, "Host": inert(host)}
        if queued_seconds is not None:
            ad["QueueingDelay"] = queued_seconds
        return self._write(EventType.FILE_TRANSFER, cluster, proc, time, ad)

    def _write(
        self,
        number: EventType,
        cluster: int,
        proc: int,
        at: float | None,
        ad: Ad,
        resources: Mapping[str, Resource] | None = None,
    ) -> Event:
        at = time.time() if at is None else at
        text, *body = event_lines(ad, number)
        body += resource_lines(resources or {})
        data = event_bytes(number, cluster, proc, at, text, body)
        with self._lock:
            if self._group is None:
                self._append([(number, data)])
            else:
                self._group.append((number, data))
        return Event(number, cluster, proc, 0, at, text, tuple(body))

    def _append(self, events: list[tuple[int, bytes]]) -> None:
        data = b"".join(event for _, event in events)
        with self._exclusive():
            start = os.fstat(self._fd).st_size
            try:
                written = os.write(self._fd, data)
                if written < len(data):
                    # A regular file takes less only when the next byte would find no room.
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                if self.fsync and any(number in _LASTING for number, _ in events):
                    os.fsync(self._fd)
            except OSError as error:
                with suppress(OSError):
                    os.ftruncate(self._fd, start)
                raise EventLogError(
                    f"the event log {self.path} cannot be written: {error.strerror}",
                    remedy=_remedy(error),
                ) from error

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        if self._fd < 0:
            raise EventLogError(f"the event log {self.path} has been closed")
        held = None
        try:
            held = lock(self._fd, wait=True)
        except OSError as error:
            # Where nothing can be locked, O_APPEND alone must do.
            if error.errno not in NONE_HERE:
                raise
        try:
            yield
        finally:
            if held is not None:
                held.release()

    def _repair(self) -> int:
        size = os.fstat(self._fd).st_size
        keep = _end_of_last_event(self._fd, size)
        if keep == size:
            return 0
        if keep == 0 and not _begins_like_an_event(os.pread(self._fd, 64, 0)):
            raise EventLogError(
                f"{self.path} is not an event log; nothing was written to it",
                remedy="Choose another file, or move this one out of the way.",
            )
        os.ftruncate(self._fd, keep)
        return size - keep


def _host(host: str) -> str:
    # HTCondor's reader takes no host, and one that begins like an end mark, for damage.
    return inert(host).lstrip(". ") or "unknown"


def _inert_ad(attributes: Mapping[str, Value]) -> Ad:
    for name in attributes:
        if not _NAME.match(name) or name.lower() in _RESERVED:
            raise ValueError(f"{name!r} is not a ClassAd attribute name")
    return {name: _inert_value(value) for name, value in attributes.items()}


def _inert_value(value: Value) -> Value:
    if isinstance(value, Expr):
        return Expr(inert(value))
    if not isinstance(value, str):
        return value
    # In a log a backslash is itself, except before a quote, where nothing can write it.
    return re.sub(r"(?<!\\)\\+(?=\"|\Z)", lambda match: "/" * len(match[0]), inert(value))


def _remedy(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return "Make room on that file system or raise its quota; the log itself is intact."
    return "The log itself is intact; check its file system, then try again."


def _begins_like_an_event(head: bytes) -> bool:
    # A torn first event may be as short as one byte of "000 (001.000.000) ...".
    return head[:3].isdigit() and b" ("[: len(head[3:5])] == head[3:5]


def _end_of_last_event(fd: int, size: int) -> int:
    step = 65536
    end = size
    while end > 0:
        start = max(0, end - step)
        block = os.pread(fd, end - start, start)
        at = max(block.rfind(_END), block.rfind(b"\n...\r\n"))
        if at >= 0:
            return start + block.index(b"\n", at + 1) + 1
        if start == 0:
            return block.index(b"\n") + 1 if block.startswith((b"...\n", b"...\r\n")) else 0
        end = start + len(_END) + 1
    return 0
