"""HTCondor's multi-file transfer plugin: `-classad`, or `-infile F -outfile F [-upload]`.

headway-node.pyz is the plugin when it is called with these options, system-wide
(FILETRANSFER_PLUGINS) as well as brought along by a job (transfer_plugins). It speaks protocol 2
and 4. It prints nothing while it works: to the starter of HTCondor 25.2.1 and later, silence is
how a plugin shows that it is alive.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

from headway.node.errors import HeadwayError, Stopped, TransferError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headway.node.ads import Ad
    from headway.node.plugin_answer import Result
    from headway.node.plugin_settings import Settings

METHODS = ("osdf", "stash", "pelican", "https", "http", "file")
_USAGE = "usage: -classad\n       -infile FILE -outfile FILE [-upload]\n"
_LATE = 1.05  # of the time limit, after which nothing is waited for any more


def run_plugin(arguments: Sequence[str]) -> int:
    """Do what HTCondor asks for; 0: every file was moved, 11: try again, 1: do not."""
    if list(arguments) == ["-classad"]:
        sys.stdout.write(_self_description())
        return 0
    options = _options(arguments)
    if options is None:
        sys.stderr.write(_USAGE)
        return 1
    return _Plugin(*options).run()


def _self_description() -> str:
    from headway.node.version import VERSION

    return (
        "MultipleFileSupport = true\n"
        f'PluginVersion = "{VERSION}"\n'
        'PluginType = "FileTransfer"\n'
        "ProtocolVersion = 4\n"
        f'SupportedMethods = "{",".join(METHODS)}"\n'
    )


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
        from headway.node.plugin_settings import read_settings

        self._begin = time.monotonic()
        self._infile, self._outfile, self._upload = infile, outfile, upload
        self._root = os.path.realpath(os.path.dirname(os.path.abspath(infile)))
        self._settings = read_settings(self._root, os.environ)
        self._told_to_stop = False

    def run(self) -> int:
        from headway.node.plugin_answer import FAILED, RETRYABLE, summary, write_answer

        signal.signal(signal.SIGTERM, self._stop)
        results = self._results()
        _Crew(results, self._settings, self._move, self._is_over).work(self._last_moment())
        for result in results:
            if not result.done and result.error is None:
                result.error = self._too_late()
        bad = [result for result in results if result.failed]
        try:
            write_answer(self._outfile, results, self._settings.notes)
        except OSError as error:
            sys.stderr.write(f"headway: the answer cannot be written: {error.strerror}\n")
            return FAILED
        sys.stderr.write(summary(bad))
        if not bad:
            return 0
        return RETRYABLE if all(result.retryable for result in bad) else FAILED

    def _results(self) -> list[Result]:
        """One result, open or already an error, for each file that is asked for."""
        from headway.node.ads import MAX_BYTES, AdError, read_ads
        from headway.node.plugin_answer import Request, Result, Unusable

        try:
            with open(self._infile, "rb") as file:
                data = file.read(MAX_BYTES + 1)
            # bytes that are not UTF-8 must come back as they came
            ads = read_ads(data.decode("utf-8", "surrogateescape"))
        except (OSError, AdError) as error:
            result = Result(Request("", "", ""), self._upload)
            why = getattr(error, "strerror", None) or str(error)
            result.error = Unusable(f"HTCondor's list of files cannot be read: {why}")
            return [result]
        # protocol 4 puts ads between them that concern no file
        return [self._result(ad) for ad in ads if "url" in ad or "localfilename" in ad]

    def _result(self, ad: Ad) -> Result:
        from headway.node.plugin_answer import Request, Result, Unusable

        url, name = ad.get("url"), ad.get("localfilename")
        good = isinstance(url, str) and isinstance(name, str) and url != "" and name != ""
        request = Request(str(url or ""), str(name or ""), "")
        result = Result(request, self._upload)
        if not good or "\0" in request.name:
            result.error = Unusable("HTCondor's list of files holds one without URL or name")
            return result
        place = os.path.join(self._root, request.name)
        folder = os.path.realpath(os.path.dirname(place))
        request.place = os.path.join(folder, os.path.basename(place))
        within = folder == self._root or folder.startswith(self._root.rstrip("/") + "/")
        if not within or os.path.basename(place) in ("", ".", ".."):
            result.error = Unusable("it would be outside the job's folder")
        elif os.path.isdir(request.place):
            result.error = Unusable("a folder is in its place")
        return result

    def _move(self, result: Result, connections: int, per_source: int) -> None:
        """Move one file; engine and sources are those of the agent."""
        from headway.node import transfer

        request = result.request
        if self._upload:
            if not os.path.isfile(request.place):
                raise TransferError("there is no such file to send", retryable=False)
            sent = transfer.put(
                request.place,
                request.url,
                overwrite=self._settings.overwrite,
                should_stop=self._is_over,
            )
            result.bytes = sent.bytes
            return

        def watch(now: transfer.Snapshot) -> None:
            result.tries, result.bytes = now, now.bytes

        fetched = transfer.fetch(
            [request.url],
            request.place,
            checksum=self._settings.checksums.get(os.path.basename(request.name)),
            watch=watch,
            should_stop=self._is_over,
            patience=self._settings.patience,
            grace=self._settings.grace,
            connections=connections,
            per_source=per_source,
        )
        result.bytes, result.tries, result.proof = fetched.bytes, fetched.snapshot, fetched.proof

    def _is_over(self) -> bool:
        limit = self._settings.limit
        return self._told_to_stop or (limit is not None and time.monotonic() - self._begin > limit)

    def _last_moment(self) -> float | None:
        limit = self._settings.limit
        return None if limit is None else self._begin + limit * _LATE

    def _too_late(self) -> HeadwayError:
        if self._told_to_stop:
            return Stopped("the transfer was stopped by HTCondor")
        return TransferError(
            f"the transfer was stopped after {time.monotonic() - self._begin:.0f} s, before "
            "HTCondor would have cut it and begun again from nothing",
            retryable=True,
            remedy="let Headway's agent fetch large inputs, or raise"
            " STARTER_FILE_XFER_STALL_TIMEOUT and HeadwayStallTimeout",
        )

    def _stop(self, *_: object) -> None:
        self._told_to_stop = True


class _Crew:
    """Moves several files at once, few at a time to any one host."""

    def __init__(
        self,
        results: list[Result],
        settings: Settings,
        move: Callable[[Result, int, int], None],
        is_over: Callable[[], bool],
    ) -> None:
        from headway.node.transfer.urls import host_of

        self._hosts = {id(result): host_of(result.request.url) for result in results}
        self._waiting = [result for result in results if result.error is None]
        self._settings, self._move, self._is_over = settings, move, is_over
        self._under_way: list[Result] = []
        self._changed = threading.Condition()
        files = max(1, min(len(self._waiting), settings.connections))
        self._hands = files if self._waiting else 0
        self._each = settings.connections // files
        hosts = [self._hosts[id(result)] for result in self._waiting]
        busiest = max((hosts.count(host) for host in set(hosts)), default=1)
        self._per_source = max(1, settings.per_source // min(busiest, files, settings.per_source))

    def work(self, last_moment: float | None) -> None:
        """Until every file is moved or has failed; at the last moment nothing is waited for."""
        for _ in range(self._hands):
            threading.Thread(target=self._hand, daemon=True).start()
        with self._changed:
            while self._waiting or self._under_way:
                left = None if last_moment is None else last_moment - time.monotonic()
                if left is not None and left <= 0:
                    return
                # short waits, so that signals are heard
                self._changed.wait(0.5 if left is None else min(left, 0.5))

    def _hand(self) -> None:
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

    def _next(self) -> Result | None:
        """The first file whose host has a hand free, and whose place nobody writes to."""
        busy = [self._hosts[id(result)] for result in self._under_way]
        places = [result.request.place for result in self._under_way]
        for result in self._waiting:
            free = busy.count(self._hosts[id(result)]) < self._settings.per_source
            if free and result.request.place not in places:
                self._waiting.remove(result)
                self._under_way.append(result)
                return result
        return None

    def _do(self, result: Result) -> None:
        result.begin = time.time()
        try:
            if not self._is_over():
                self._move(result, self._each, self._per_source)
                result.done = True
        except Stopped:
            pass  # why, the plugin itself knows best
        except HeadwayError as error:
            result.error = error
        except Exception as error:  # one file's surprise must not cost the others their result
            result.error = TransferError(
                f"Headway failed in a way it should not: {type(error).__name__}", retryable=True
            )
        finally:
            result.end = time.time()
