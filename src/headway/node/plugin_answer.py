"""What a plugin answers: one result ad for each file, with what went wrong as HTCondor wants it."""

from __future__ import annotations

import os
import re
import time

from headway.node.ads import write_ad
from headway.node.errors import NodeError, Stopped, TransferError
from headway.node.transfer.urls import host_of, shown
from headway.node.version import VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.node.transfer import Snapshot

RETRYABLE = 11  # what Pelican's plugin says, too: HTCondor's PelicanRetryPolicy starts elsewhere
FAILED = 1
_LONGEST_ERROR = 2000  # characters that end in a hold reason
_STATUS = re.compile(r"\bHTTP ([1-5][0-9][0-9])\b")


class Request:
    """One file that HTCondor wants moved; `place` is where it is, checked."""

    def __init__(self, url: str, name: str, place: str) -> None:
        self.url, self.name, self.place = url, name, place


class Result:
    """What became of a request."""

    def __init__(self, request: Request, upload: bool) -> None:
        self.request, self.upload = request, upload
        self.begin = self.end = time.time()
        self.bytes = 0
        self.error: Exception | None = None
        self.done = False
        self.tries: Snapshot | None = None  # the sources as they were last seen
        self.proof = ""

    @property
    def retryable(self) -> bool:
        """Whether the same may succeed another time or at another node."""
        if isinstance(self.error, TransferError):
            return self.error.retryable
        return isinstance(self.error, (NodeError, Stopped))

    @property
    def words(self) -> str:
        error = self.error
        if error is None:
            return "" if self.done else "it was not finished"
        remedy = getattr(error, "remedy", "")
        text = f"{getattr(error, 'message', error)}{f' ({remedy})' if remedy else ''}"
        return text if len(text) <= _LONGEST_ERROR else f"{text[: _LONGEST_ERROR - 1]}…"

    @property
    def failed(self) -> bool:
        return self.error is not None or not self.done

    def ad(self, notes: list[str]) -> dict[str, object]:
        """The result ad. HTCondor wants the URL back as it gave it, with any query."""
        request = self.request
        ad: dict[str, object] = {
            "TransferFileName": request.name,
            "TransferUrl": request.url,
            "TransferSuccess": not self.failed,
            # name+osdf://… means: with the token of that name
            "TransferProtocol": request.url.partition(":")[0].rpartition("+")[2].lower(),
            "TransferType": "upload" if self.upload else "download",
            "TransferFileBytes": self.bytes,
            "TransferTotalBytes": self._moved(),
            "TransferStartTime": int(self.begin),
            "TransferEndTime": int(self.end),
            "ConnectionTimeSeconds": round(self.end - self.begin, 3),
        }
        if self.failed:
            ad["TransferError"] = self.words
            ad["TransferErrorData"] = self._error_data()
        ad["DeveloperData"] = self._developer_data(notes)
        return ad

    def short_ad(self) -> dict[str, object]:
        """The least that HTCondor needs, for a disk that has no room for more."""
        request = self.request
        ad = {"TransferFileName": request.name, "TransferUrl": request.url}
        if self.failed:
            return {**ad, "TransferSuccess": False, "TransferError": self.words[:100]}
        return {**ad, "TransferSuccess": True}

    def _moved(self) -> int:
        if self.tries is None:
            return self.bytes
        return max(self.bytes, sum(source.bytes + source.wasted for source in self.tries.sources))

    def _developer_data(self, notes: list[str]) -> dict[str, object]:
        data: dict[str, object] = {
            "HeadwayVersion": VERSION,
            "Seconds": round(self.end - self.begin, 3),
            "Proof": self.proof,
        }
        if self.tries is not None:
            data["SlowPart"] = self.tries.slow
            data["Sources"] = [
                {
                    "Host": source.host,
                    "Bytes": source.bytes,
                    "WastedBytes": source.wasted,
                    "State": source.state,
                    "Phase": source.phase,
                    "Fault": source.words,  # Error itself is a word of the ClassAd language
                }
                for source in self.tries.sources
            ]
        if notes:
            data["Notes"] = notes
        return data

    def _error_data(self) -> list[dict[str, object]]:
        """One entry for each source that failed, or one for the whole."""
        # a number to HTCondor, whose starter drops a boolean: -1 never, 0 at any time, else seconds
        hope = {"Retryable": 0 if self.retryable else -1}
        found: list[dict[str, object]] = []
        for source in self.tries.sources if self.tries is not None else []:
            if source.words:
                kind = error_kind(source.words, source.phase, source.host)
                found.append({**kind, **_between(source.host, source.phase, self.request), **hope})
        return found or [{**self._own_kind(), **hope}]

    def _own_kind(self) -> dict[str, object]:
        host = host_of(self.request.url)
        if isinstance(self.error, Unusable):
            kind: dict[str, object] = {"ErrorType": "Parameter", "PluginVersion": VERSION}
            return {**kind, "PluginLaunched": True, "ErrorCode": FAILED, "ErrorString": self.words}
        if isinstance(self.error, Stopped):
            return _transfer_error(host, "TimedOut", RETRYABLE, self.words)
        if isinstance(self.error, NodeError):
            full = "full" in self.words or "no room" in self.words
            return _transfer_error(host, "NoSpace" if full else "TimedOut", FAILED, self.words)
        return error_kind(self.words, "", host)


class Unusable(TransferError):
    """What HTCondor asked for makes no sense, or would lead out of the job's folder."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retryable=False)


def error_kind(words: str, phase: str, host: str) -> dict[str, object]:
    """The entry of TransferErrorData that fits a fault of one server."""
    match = _STATUS.search(words)
    status = int(match[1]) if match else 0
    code = status or FAILED
    text = {"ErrorCode": code, "ErrorString": words[:300]}
    if phase == "resolve":
        kind = {"ErrorType": "Resolution", "FailedName": host, "FailureType": "PreContact"}
        return {**kind, **text}
    if phase in ("connect", "TLS"):
        return {"ErrorType": "Contact", "FailedServer": host, **text}
    if status in (401, 403):
        kind = {"ErrorType": "Authorization", "FailedServer": host}
        how = "Authentication" if status == 401 else "Authorization"
        return {**kind, "FailureType": how, "ShouldRefresh": status == 401, **text}
    if status in (404, 410):
        return {"ErrorType": "Specification", "FailedServer": host, **text}
    return _transfer_error(host, "NoSpace" if phase == "disk" else "TimedOut", code, words)


def _transfer_error(host: str, how: str, code: int, words: str) -> dict[str, object]:
    kind = {"ErrorType": "Transfer", "FailedServer": host, "FailureType": how}
    return {**kind, "ErrorCode": code, "ErrorString": words[:300]}


def _between(host: str, phase: str, request: Request) -> dict[str, object]:
    """A cache or mirror that the URL does not name."""
    if host.partition(":")[0] == host_of(request.url):
        return {}
    reached = phase not in ("resolve", "connect", "TLS")
    how = "PostConnection" if reached else "Connection"
    return {"IntermediateServerErrorType": how, "IntermediateServer": host}


def write_answer(path: str, results: list[Result], notes: list[str]) -> None:
    """Write the result ads over the blanks that HTCondor has reserved for them.

    That must work on a full disk, too, where its blocks are the only ones to be had: the file is
    not truncated before it is written.
    """
    try:
        _write(path, [write_ad(result.ad(notes)) for result in results])
    except OSError:
        _write(path, [write_ad(result.short_ad()) for result in results])


def _write(path: str, ads: list[str]) -> None:
    data = "".join(f"{ad}\n" for ad in ads).encode("utf-8", "surrogateescape")
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        done = 0
        while done < len(data):
            done += os.pwrite(file, data[done:], done)
        os.ftruncate(file, done)
    finally:
        os.close(file)


def summary(results: list[Result]) -> str:
    """What failed, for the starter's log."""
    return "".join(
        f"headway: {shown(result.request.url)}: {result.words}\n"
        for result in results
        if result.failed
    )
