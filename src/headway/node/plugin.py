"""HTCondor's multi-file transfer plugin: `-classad`, or `-infile F -outfile F [-upload]`.

headway-node.pyz is the plugin when it is called with these options, installed for all jobs
(FILETRANSFER_PLUGINS) or transferred with one (transfer_plugins). It speaks protocol 2 and 4. It
prints nothing while it works: the starter of HTCondor 25.2.1 and later takes silence for life.

The job's own environment never reaches a plugin, so a job sets attributes instead
(`My.HeadwayPatience = 60` in a submit file):

HeadwayConnections   connections at once, for all files (4)
HeadwayPerSource     connections to one server at once (2)
HeadwayPatience      seconds without a byte from any source before a file fails (180)
HeadwayGrace         seconds for which every source must say 404 before a file fails (10)
HeadwayChecksums     "train.tar=sha256:…, test.tar=md5:…": checksums of files, by their name
HeadwayOverwrite     false: an upload never replaces an existing object (true)
HeadwayStallTimeout  the starter's STARTER_FILE_XFER_STALL_TIMEOUT in seconds, which no plugin can
                     see; 0: none. The machine's ad (STARTD_ATTRS) and the environment variable
                     HEADWAY_STALL_TIMEOUT take precedence over the job's ad
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time

from headway.node import VERSION
from headway.node.classad import read_ad_file, write_ad
from headway.node.errors import HeadwayError, NodeError, Stopped, TransferError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headway.node.classad import Ad
    from headway.node.transfer import Snapshot


SHARE = 0.8  # of the starter's timeout, after which the plugin stops by itself
_TIMEOUT = 3600.0  # HTCondor's own default
_LIFETIME = 72000.0  # MAX_FILE_TRANSFER_PLUGIN_LIFETIME, also HTCondor's own default
# From this version on the starter knows that a silent plugin is alive: only its lifetime ends it.
_SEES_LIFE = (25, 2, 1)
_VERSION = re.compile(r"CondorVersion:\s+([0-9]+)\.([0-9]+)\.([0-9]+)")
_CHECKSUM = re.compile(r"([^=,\s]+)=((?:sha256|md5|adler32|crc32c):[0-9A-Fa-f]+)\Z")


class Settings:
    """The settings of a transfer; `notes` says which attributes are wrong and ignored."""

    def __init__(self, job: Ad, machine: Ad, environment: Mapping[str, str]) -> None:
        self.notes: list[str] = []
        self.connections = int(self._number(job, "HeadwayConnections", 4, 1, 16))
        self.per_source = int(self._number(job, "HeadwayPerSource", 2, 1, 8))
        self.patience = self._number(job, "HeadwayPatience", 180, 1, 86400)
        self.grace = self._number(job, "HeadwayGrace", 10, 0, 86400)
        self.overwrite = job.get("headwayoverwrite") is not False
        self.checksums = self._checksums(job.get("headwaychecksums"))
        listed = job.get("headwayinputs")  # of a wrapped program: what the agent stages in
        parts = listed.split(",") if isinstance(listed, str) else []
        self.inputs = [part.strip() for part in parts if part.strip()]
        name = "headwaystalltimeout"
        timeout = environment.get("HEADWAY_STALL_TIMEOUT")
        value = _as_number(timeout) if timeout else machine.get(name, job.get(name))
        seconds = self._number(
            {name: value}, "HeadwayStallTimeout", _stall_timeout(machine), 0, 1e7
        )
        self.limit = seconds * SHARE if seconds else None  # seconds in all; None: no limit

    def _number(self, ad: Ad, name: str, usual: float, least: float, most: float) -> float:
        value = ad.get(name.lower())
        if value is None:
            return usual
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.notes.append(f"{name} is not a number; {usual:g} is used")
            return usual
        if not least <= value <= most:
            self.notes.append(f"{name} is not between {least:g} and {most:g}; {usual:g} is used")
            return usual
        return value

    def _checksums(self, text: object) -> dict[str, str]:
        found = {}
        for part in re.split(r"[,\s]+", text) if isinstance(text, str) else []:
            match = _CHECKSUM.match(part)
            if match:
                found[match[1]] = match[2].lower()
            elif part:
                self.notes.append("HeadwayChecksums has an entry that is not NAME=algorithm:hex")
        return found


def read_settings(folder: str, environment: Mapping[str, str]) -> Settings:
    """The settings of a plugin whose input file is in `folder`, the job's own."""
    job = environment.get("_CONDOR_JOB_AD") or os.path.join(folder, ".job.ad")
    machine = environment.get("_CONDOR_MACHINE_AD") or os.path.join(folder, ".machine.ad")
    return Settings(read_ad_file(job), read_ad_file(machine), environment)


def _as_number(text: str) -> object:
    try:
        return float(text)
    except ValueError:
        return text


def _stall_timeout(machine: Ad) -> float:
    """After how many seconds this starter stops a transfer by default."""
    version = _VERSION.search(str(machine.get("condorversion", "")))
    return _LIFETIME if version and tuple(map(int, version.groups())) >= _SEES_LIFE else _TIMEOUT


# The plugin's answer: one result ad for each file, with errors in HTCondor's own terms.

RETRYABLE = 11  # as Pelican's plugin has it: HTCondor's PelicanRetryPolicy tries another node
FAILED = 1
_LONGEST_ERROR = 2000  # characters that become a hold reason
_STATUS = re.compile(r"\bHTTP ([1-5][0-9][0-9])\b")


class TransferResult:
    """One file that HTCondor wants transferred, and the outcome; `place`: its path, checked."""

    def __init__(self, url: str, name: str, upload: bool) -> None:
        self.url, self.name, self.upload = url, name, upload
        self.place = ""
        self.begin = self.end = time.time()
        self.bytes = 0
        self.error: Exception | None = None
        self.done = False
        self.snapshot: Snapshot | None = None  # the sources as they were last seen
        self.proof = ""

    @property
    def retryable(self) -> bool:
        """Whether another try, or another node, may succeed."""
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
        """The result ad; HTCondor expects its own URL, with any query."""
        ad: dict[str, object] = {
            "TransferFileName": self.name,
            "TransferUrl": self.url,
            "TransferSuccess": not self.failed,
            # name+osdf://… means: with the token of that name
            "TransferProtocol": self.url.partition(":")[0].rpartition("+")[2].lower(),
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
        """The least that HTCondor needs, for a full disk."""
        ad = {"TransferFileName": self.name, "TransferUrl": self.url}
        fault = {"TransferError": self.words[:100]} if self.failed else {}
        return {**ad, "TransferSuccess": not self.failed, **fault}

    def _moved(self) -> int:
        if self.snapshot is None:
            return self.bytes
        return max(
            self.bytes, sum(source.bytes + source.wasted for source in self.snapshot.sources)
        )

    def _developer_data(self, notes: list[str]) -> dict[str, object]:
        data: dict[str, object] = {
            "HeadwayVersion": VERSION,
            "Seconds": round(self.end - self.begin, 3),
            "Proof": self.proof,
        }
        if self.snapshot is not None:
            data["SlowPart"] = self.snapshot.slow
            data["Sources"] = [
                {
                    "Host": source.host,
                    "Bytes": source.bytes,
                    "WastedBytes": source.wasted,
                    "State": source.state,
                    "Phase": source.phase,
                    "Fault": source.words,  # Error itself is a word of the ClassAd language
                }
                for source in self.snapshot.sources
            ]
        if notes:
            data["Notes"] = notes
        return data

    def _error_data(self) -> list[dict[str, object]]:
        """One entry for each source that failed, or one for the transfer."""
        # a number to HTCondor, whose starter drops a boolean: -1 never, 0 at any time, else seconds
        hope = {"Retryable": 0 if self.retryable else -1}
        found: list[dict[str, object]] = []
        for source in self.snapshot.sources if self.snapshot is not None else []:
            if source.words:
                kind = error_kind(source.words, source.phase, source.host)
                found.append({**kind, **_between(source.host, source.phase, self.url), **hope})
        return found or [{**self._own_kind(), **hope}]

    def _own_kind(self) -> dict[str, object]:
        from headway.node.transfer.urls import host_of  # `-classad` does without

        host = host_of(self.url)
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
    """HTCondor's request makes no sense, or leads out of the job's folder."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retryable=False)


def error_kind(words: str, phase: str, host: str) -> dict[str, object]:
    """The entry of TransferErrorData for a fault of one server."""
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


def _between(host: str, phase: str, url: str) -> dict[str, object]:
    """The attributes of a cache or mirror that the URL does not name."""
    from headway.node.transfer.urls import host_of

    if host.partition(":")[0] == host_of(url):
        return {}
    reached = phase not in ("resolve", "connect", "TLS")
    how = "PostConnection" if reached else "Connection"
    return {"IntermediateServerErrorType": how, "IntermediateServer": host}


def write_answer(path: str, results: list[TransferResult], notes: list[str]) -> None:
    """Write the result ads over the blanks that HTCondor has reserved for them.

    The file is not truncated first: on a full disk no other blocks are free.
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


METHODS = ("osdf", "stash", "pelican", "https", "http", "file")
_DESCRIPTION = (
    "MultipleFileSupport = true\n"
    f'PluginVersion = "{VERSION}"\n'
    'PluginType = "FileTransfer"\n'
    "ProtocolVersion = 4\n"
    f'SupportedMethods = "{",".join(METHODS)}"\n'
)
_USAGE = "usage: -classad\n       -infile FILE -outfile FILE [-upload]\n"
_LATE = 1.05  # of the time limit, after which the plugin waits for nothing


def run_plugin(arguments: Sequence[str]) -> int:
    """Run the plugin; returns 0 if every file was transferred, 11 to try again, 1 to give up."""
    if list(arguments) == ["-classad"]:
        sys.stdout.write(_DESCRIPTION)
        return 0
    options = _options(arguments)
    if options is None:
        sys.stderr.write(_USAGE)
        return 1
    return _Plugin(*options).run()


def _options(arguments: Sequence[str]) -> tuple[str, str, bool] | None:
    files: dict[str, str] = {}
    upload = False
    words = iter(arguments)
    for word in words:
        if word == "-upload":
            upload = True
        elif word in ("-infile", "-outfile"):
            files[word] = next(words, "")
        else:
            return None
    if not files.get("-infile") or not files.get("-outfile"):
        return None
    return files["-infile"], files["-outfile"], upload


class _Plugin:
    """One call of the plugin."""

    def __init__(self, infile: str, outfile: str, upload: bool) -> None:
        self._begin = time.monotonic()
        self._infile, self._outfile, self._upload = infile, outfile, upload
        self._root = os.path.realpath(os.path.dirname(os.path.abspath(infile)))
        self._settings = read_settings(self._root, os.environ)
        self._stopped = False

    def run(self) -> int:
        signal.signal(signal.SIGTERM, self._stop)
        results = self._results()
        limit = self._settings.limit
        deadline = None if limit is None else self._begin + limit * _LATE
        _Workers(results, self._settings, self._transfer, self._is_over).work(deadline)
        for result in results:
            if not result.done and result.error is None:
                result.error = self._too_late()
        bad = [result for result in results if result.failed]
        try:
            write_answer(self._outfile, results, self._settings.notes)
        except OSError as error:
            sys.stderr.write(f"headway: the answer cannot be written: {error.strerror}\n")
            return FAILED
        if not bad:
            return 0
        from headway.node.transfer.urls import shown  # `-classad` does without

        for result in bad:
            sys.stderr.write(f"headway: {shown(result.url)}: {result.words}\n")
        return RETRYABLE if all(result.retryable for result in bad) else FAILED

    def _results(self) -> list[TransferResult]:
        """One result for each requested file, which may already be an error."""
        from headway.node.classad import MAX_BYTES, AdError, read_ads

        try:
            with open(self._infile, "rb") as file:
                data = file.read(MAX_BYTES + 1)
            # bytes that are not UTF-8 must come back as they came
            ads = read_ads(data.decode("utf-8", "surrogateescape"))
        except (OSError, AdError) as error:
            result = TransferResult("", "", self._upload)
            why = getattr(error, "strerror", None) or str(error)
            result.error = Unusable(f"HTCondor's list of files cannot be read: {why}")
            return [result]
        # protocol 4 puts ads between them that concern no file
        return [self._result(ad) for ad in ads if "url" in ad or "localfilename" in ad]

    def _result(self, ad: Ad) -> TransferResult:
        url, name = ad.get("url"), ad.get("localfilename")
        good = isinstance(url, str) and isinstance(name, str) and url != "" and name != ""
        result = TransferResult(str(url or ""), str(name or ""), self._upload)
        if not good or "\0" in result.name:
            result.error = Unusable("HTCondor's list of files has one without URL or name")
            return result
        place = os.path.join(self._root, result.name)
        folder, base = os.path.realpath(os.path.dirname(place)), os.path.basename(place)
        result.place = os.path.join(folder, base)
        within = folder == self._root or folder.startswith(self._root.rstrip("/") + "/")
        if not within or base in ("", ".", ".."):
            result.error = Unusable("it would be outside the job's folder")
        elif os.path.isdir(result.place):
            result.error = Unusable("a folder is in its place")
        return result

    def _transfer(self, result: TransferResult, connections: int, per_source: int) -> None:
        """Transfer one file, with the agent's own engine."""
        from headway.node import transfer

        if self._upload:
            if not os.path.isfile(result.place):
                raise TransferError("there is no such file to send", retryable=False)
            sent = transfer.put(
                result.place,
                result.url,
                overwrite=self._settings.overwrite,
                should_stop=self._is_over,
            )
            result.bytes = sent.bytes
            return

        def watch(now: transfer.Snapshot) -> None:
            result.snapshot, result.bytes = now, now.bytes

        fetched = transfer.fetch(
            [result.url],
            result.place,
            checksum=self._settings.checksums.get(os.path.basename(result.name)),
            watch=watch,
            should_stop=self._is_over,
            patience=self._settings.patience,
            grace=self._settings.grace,
            connections=connections,
            per_source=per_source,
        )
        result.bytes, result.snapshot, result.proof = fetched.bytes, fetched.snapshot, fetched.proof

    def _is_over(self) -> bool:
        limit = self._settings.limit
        return self._stopped or (limit is not None and time.monotonic() - self._begin > limit)

    def _too_late(self) -> HeadwayError:
        if self._stopped:
            return Stopped("the transfer was stopped by HTCondor")
        return TransferError(
            f"the transfer was stopped after {time.monotonic() - self._begin:.0f} s, before "
            "HTCondor would have ended it and started again from nothing",
            retryable=True,
            remedy="let Headway's agent fetch large inputs, or raise"
            " STARTER_FILE_XFER_STALL_TIMEOUT and HeadwayStallTimeout",
        )

    def _stop(self, *_: object) -> None:
        self._stopped = True


class _Workers:
    """Threads that transfer several files at once, but few with any one host."""

    def __init__(
        self,
        results: list[TransferResult],
        settings: Settings,
        transfer: Callable[[TransferResult, int, int], None],
        is_over: Callable[[], bool],
    ) -> None:
        from headway.node.transfer.urls import host_of

        self._hosts = {id(result): host_of(result.url) for result in results}
        self._waiting = [result for result in results if result.error is None]
        self._settings, self._transfer, self._is_over = settings, transfer, is_over
        self._under_way: list[TransferResult] = []
        self._changed = threading.Condition()
        files = max(1, min(len(self._waiting), settings.connections))
        self._threads = files if self._waiting else 0
        self._each = settings.connections // files
        hosts = [self._hosts[id(result)] for result in self._waiting]
        busiest = max((hosts.count(host) for host in set(hosts)), default=1)
        self._per_source = max(1, settings.per_source // min(busiest, files, settings.per_source))

    def work(self, deadline: float | None) -> None:
        """Work until every file is transferred or has failed, or the deadline has passed."""
        for _ in range(self._threads):
            threading.Thread(target=self._run, daemon=True).start()
        with self._changed:
            while self._waiting or self._under_way:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return
                # short waits, so that signals are handled
                self._changed.wait(0.5 if left is None else min(left, 0.5))

    def _run(self) -> None:
        while True:
            with self._changed:
                result = self._next()
                while result is None:
                    if not self._waiting:
                        return
                    self._changed.wait(0.5)
                    result = self._next()
            self._do(result)
            with self._changed:
                self._under_way.remove(result)
                self._changed.notify_all()

    def _next(self) -> TransferResult | None:
        """The first file whose host is not busy, and whose place nobody writes to."""
        busy = [self._hosts[id(result)] for result in self._under_way]
        places = [result.place for result in self._under_way]
        for result in self._waiting:
            free = busy.count(self._hosts[id(result)]) < self._settings.per_source
            if free and result.place not in places:
                self._waiting.remove(result)
                self._under_way.append(result)
                return result
        return None

    def _do(self, result: TransferResult) -> None:
        result.begin = time.time()
        try:
            if not self._is_over():
                self._transfer(result, self._each, self._per_source)
                result.done = True
        except Stopped:
            pass  # the plugin itself knows why
        except HeadwayError as error:
            result.error = error
        except Exception as error:  # an unexpected error must not cost the other files their result
            result.error = TransferError(
                f"Headway failed in a way it should not: {type(error).__name__}", retryable=True
            )
        finally:
            result.end = time.time()
