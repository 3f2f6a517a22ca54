"""Writing event logs in HTCondor's own format: what the embedded local pool keeps its truth in."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from headway.errors import EventLogError
from headway.events.classad import Value, format_lines, inert
from headway.events.event import (
    TRANSFER_TEXTS,
    Direction,
    EventType,
    Resource,
    Stage,
    Transfer,
    Usage,
)
from headway.events.format import (
    ending_lines,
    event_bytes,
    resource_lines,
    stamp,
    transfer_lines,
    usage_lines,
)
from headway.node.locks import NONE_HERE, lock

_LASTING = frozenset({EventType.TERMINATED, EventType.ABORTED, EventType.HELD})
_END = b"\n...\n"


class EventWriter:
    """Appends events to a log, each whole or not at all; safe for several threads and processes.

    Opening cuts off what a crash left behind the last complete event (`repaired` says how many
    bytes). With `fsync`, an event that ends or holds a job is on the disk when the call returns.
    Times default to now and are written, like HTCondor's, as local time to the second.
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the file back; closing twice does no harm."""
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
    ) -> None:
        """000: the job is in the queue."""
        text = f"Job submitted from host: {_host(host)}"
        body = [f"    {inert(notes)}"] if inert(notes) else []
        self._write(EventType.SUBMIT, cluster, proc, time, text, body)

    def executing(
        self,
        cluster: int,
        proc: int,
        host: str,
        *,
        slot: str = "",
        attributes: Mapping[str, Value] | None = None,
        time: float | None = None,
    ) -> None:
        """001: an attempt runs; `GLIDEIN_ResourceName` among the attributes names the site."""
        name = inert(slot.replace('"', ""))
        body = [f"\tSlotName: {name}"] if name else []
        body += format_lines(attributes or {}, "\t")
        text = f"Job executing on host: {_host(host)}"
        self._write(EventType.EXECUTE, cluster, proc, time, text, body)

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
    ) -> None:
        """004: the attempt is over and the job is not.

        `requeued`: the command ended by itself, with `return_value` or `signal`, and the job's
        policy wants another try.
        """
        text = f"Job was evicted. Code {code} Subcode {subcode}" if code else "Job was evicted."
        reason = inert(reason)
        if requeued:
            body = ["\t(0) Job terminated and was requeued"]
        else:
            body = ["\t(1) Job was checkpointed." if checkpointed else "\t(0) CPU times"]
        body += usage_lines(usage or Usage(), total=False)
        body += transfer_lines(sent, received, total=False)
        if requeued:
            body += ending_lines(return_value, signal)
            if reason.startswith(("Reason: ", "Partitionable Resources")):
                reason = f"Reason: {reason}"
        elif reason:
            reason = f"Reason: {reason}"
        if reason:
            body.append(f"\t{reason}")
        body += resource_lines(resources or {})
        self._write(EventType.EVICTED, cluster, proc, time, text, body)

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
    ) -> None:
        """005: the job is over, with a return value or by a signal."""
        body = ending_lines(return_value, signal)
        body += usage_lines(usage or Usage(), total=True)
        body += transfer_lines(sent, received, total=True)
        body += resource_lines(resources or {})
        self._write(EventType.TERMINATED, cluster, proc, time, "Job terminated.", body)

    def image_size(
        self,
        cluster: int,
        proc: int,
        size_kb: int,
        *,
        memory_mb: int | None = None,
        resident_kb: int | None = None,
        time: float | None = None,
    ) -> None:
        """006: how much memory the attempt uses."""
        body = [] if memory_mb is None else [f"\t{memory_mb}  -  MemoryUsage of job (MB)"]
        if resident_kb is not None:
            body.append(f"\t{resident_kb}  -  ResidentSetSize of job (KB)")
        text = f"Image size of job updated: {size_kb}"
        self._write(EventType.IMAGE_SIZE, cluster, proc, time, text, body)

    def generic(self, cluster: int, proc: int, text: str, *, time: float | None = None) -> None:
        """008: what the agent, or the job itself, has to say; cut off after about 950 bytes."""
        # Alone on the header, these three dots would be read as the end mark.
        self._write(EventType.GENERIC, cluster, proc, time, "…" if inert(text) == "..." else text)

    def aborted(
        self, cluster: int, proc: int, reason: str = "", *, time: float | None = None
    ) -> None:
        """009: somebody removed the job."""
        self._write(
            EventType.ABORTED, cluster, proc, time, "Job was aborted.", _reason_lines(reason)
        )

    def held(
        self,
        cluster: int,
        proc: int,
        reason: str = "",
        code: int = 0,
        subcode: int = 0,
        *,
        time: float | None = None,
    ) -> None:
        """012: the job waits for somebody to release or remove it."""
        body = _reason_lines(reason) or ["\tReason unspecified"]
        body.append(f"\tCode {code} Subcode {subcode}")
        self._write(EventType.HELD, cluster, proc, time, "Job was held.", body)

    def released(
        self, cluster: int, proc: int, reason: str = "", *, time: float | None = None
    ) -> None:
        """013: the job may run again."""
        self._write(
            EventType.RELEASED, cluster, proc, time, "Job was released.", _reason_lines(reason)
        )

    def ad_information(
        self,
        cluster: int,
        proc: int,
        trigger: EventType,
        attributes: Mapping[str, Value],
        *,
        time: float | None = None,
    ) -> None:
        """028: attributes of the job as they were at the event before this one."""
        ad: dict[str, Value] = {
            "EventTime": stamp(time).replace(" ", "T"),
            **attributes,
            "Cluster": cluster,
            "Proc": proc,
            "Subproc": 0,
            "EventTypeNumber": int(EventType.AD_INFORMATION),
            "TriggerEventTypeNumber": int(trigger),
            "TriggerEventTypeName": f"ULOG_{_TRIGGER_NAMES.get(trigger, trigger.name)}",
        }
        text = "Job ad information event triggered."
        self._write(EventType.AD_INFORMATION, cluster, proc, time, text, format_lines(ad))

    def attribute_update(
        self, cluster: int, proc: int, attribute: str, value: str, *, time: float | None = None
    ) -> None:
        """033: somebody edited the job."""
        text = f"Setting job attribute {inert(attribute)} to {inert(value)}"
        self._write(EventType.ATTRIBUTE_UPDATE, cluster, proc, time, text)

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
    ) -> None:
        """040: the pool's own file transfer waits, moves or is through."""
        text = TRANSFER_TEXTS[Transfer(direction, stage)]
        body = [] if queued_seconds is None else [f"\tSeconds spent in queue: {queued_seconds}"]
        if inert(host):
            body.append(f"\tTransferring to host: {inert(host)}")
        self._write(EventType.FILE_TRANSFER, cluster, proc, time, text, body)

    def _write(
        self,
        number: EventType,
        cluster: int,
        proc: int,
        time: float | None,
        text: str,
        body: list[str] | None = None,
    ) -> None:
        data = event_bytes(number, cluster, proc, time, text, body or ())
        with self._lock:
            if self._group is None:
                self._append([(number, data)])
            else:
                self._group.append((number, data))

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


# The names of HTCondor's own that differ from ours.
_TRIGGER_NAMES = {
    EventType.EVICTED: "JOB_EVICTED",
    EventType.TERMINATED: "JOB_TERMINATED",
    EventType.ABORTED: "JOB_ABORTED",
    EventType.SUSPENDED: "JOB_SUSPENDED",
    EventType.UNSUSPENDED: "JOB_UNSUSPENDED",
    EventType.HELD: "JOB_HELD",
    EventType.RELEASED: "JOB_RELEASED",
    EventType.DISCONNECTED: "JOB_DISCONNECTED",
    EventType.RECONNECTED: "JOB_RECONNECTED",
    EventType.RECONNECT_FAILED: "JOB_RECONNECT_FAILED",
}


def _host(host: str) -> str:
    # HTCondor's reader takes no host, and one that begins like an end mark, for damage.
    return inert(host).lstrip(". ") or "unknown"


def _reason_lines(reason: str) -> list[str]:
    text = inert(reason)
    return [f"\t{text}"] if text else []


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
