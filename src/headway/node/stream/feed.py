"""Feeds: the inputs of an attempt that arrive while the command runs.

Each has a fetcher, a process of its own, which is restarted when it dies. A fetcher that fails for
good tells the readers by `PATH.arrival`, so that the command ends by itself. The attempt then fails
because of the input, unless the command has saved a checkpoint made from verified bytes.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import sys
import time

from headway.node.errors import Exit, Failed, HeadwayError
from headway.node.inputs import brief, mark, wanted
from headway.node.process import describe_exit, isolated, own_archive, signals_blocked, spawn
from headway.node.record import FIRST, describe_sources, format_sources, next_after
from headway.node.stream.arrival import ARRIVAL_SUFFIX as ARRIVAL
from headway.node.stream.arrival import WANTED_SUFFIX as WANTED
from headway.node.stream.arrival import Arrival
from headway.node.stream.fetcher import Task, changed_at_source
from headway.node.stream.source import bytes_of_epoch
from headway.node.transfer.options import PATIENCE
from headway.node.transfer.urls import host_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from headway.node.plan import PlannedInput
    from headway.node.process import Watch
    from headway.node.record import Attempt, AttemptRecord
    from headway.node.store.inputs import InputStore
    from headway.node.transfer.manifest import Manifest


_DEATHS = 5  # in a row, of fetchers that fetched nothing
_PAUSE = 0.5  # seconds before a fetcher is restarted; doubles
_STOP = 3.0  # seconds that a fetcher has to stop
_SILENCE = 600.0  # seconds without a message after which it hangs: a large sync may take long
_MOST = 1 << 20  # bytes of one line
_LATE = (Exit.INPUT_RETRYABLE, Exit.BAD_NODE)


class Feed:
    """One input, and its fetcher."""

    def __init__(self, given: PlannedInput, manifest: Manifest | None, log: int) -> None:
        self.given, self.manifest = given, manifest
        self.state = ""  # of the fetcher: begun, progress, complete, stopped, failed
        # the latest of what the fetcher has reported
        self.report: dict[str, Any] = {"here": 0, "ever": 0, "again": 0, "size": None, "seconds": 0}
        self.failure: Failed | None = None
        self.complete_at: float | None = None  # seconds after the beginning
        self.in_doubt = False  # when closed: readers were given bytes that turned out wrong
        self.restarts = 0
        self.arrival: Arrival | None = None
        self._log = log
        self._begin = time.monotonic()
        self._pid = self._input = self._output = -1
        self._text = b""
        self._heard = self._begin
        self._deaths, self._best, self._restart_at = 0, 0, 0.0

    @functools.cached_property
    def each_epoch(self) -> int | None:
        """The bytes that each epoch fetches; None if all bytes stay."""
        window = 0 if self.given.keep else self.given.window or 0
        if self.manifest is None or not 0 < window < self.manifest.size:
            return None
        return bytes_of_epoch(self.manifest, window)

    @property
    def only_late(self) -> bool:
        """Whether another try may help, and all bytes that came were verified."""
        if self.failure is None:
            return True
        return self.manifest is not None and self.failure.code in _LATE

    @property
    def over(self) -> bool:
        return self.state in ("complete", "stopped", "failed")

    @property
    def here(self) -> int:
        """The bytes on disk."""
        return int(self.report["here"])

    @property
    def fetched_bytes(self) -> int:
        """The bytes of the object that have arrived, each counted once."""
        return max(self.here, int(self.report["ever"]))

    @property
    def all_here(self) -> bool:
        """Whether every byte is here, verified or not."""
        self.look()
        return self.arrival is not None and self.arrival.has(0, self.arrival.size)

    @property
    def waited(self) -> float:
        """Seconds that the command waited for it."""
        self.look()
        return self.arrival.waited() if self.arrival is not None else 0.0

    @property
    def begun(self) -> bool:
        """Whether readers can open it."""
        return os.path.exists(f"{self.given.path}{ARRIVAL}")

    def start(self, *, again: bool = False) -> None:
        """Start a fetcher in a process group of its own."""
        given = self.given
        task = Task(
            path=given.path,
            urls=given.urls,
            size=given.size,
            checksum=given.checksum,
            manifest=given.manifest,
            patience=PATIENCE if given.patience is None else given.patience,
            window=0 if given.keep else given.window or 0,
            again=again,
        )
        self._heard = time.monotonic()
        theirs, self._input = os.pipe()
        self._output, their_output = os.pipe()
        os.set_blocking(self._output, False)
        standard = enumerate((theirs, their_output, self._log))
        files = [(os.POSIX_SPAWN_DUP2, file, number) for number, file in standard]
        try:
            with signals_blocked():
                self._pid = spawn(sys.executable, [*_program(), "fetcher"], os.environ, files)
        finally:
            os.close(theirs)
            os.close(their_output)
        data = json.dumps(task._asdict()).encode() + b"\n"
        with contextlib.suppress(BrokenPipeError):  # it died at once, which `tick` will notice
            while data:
                data = data[os.write(self._input, data) :]

    def tick(self, now: float) -> None:
        """Read the fetcher's messages; restart it if it has died."""
        if self.over:
            return
        if self._pid < 0:
            if now >= self._restart_at:
                self.start(again=self.begun)
            return
        self._hear()
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if pid:
            self._hear()
            self._close()
            if not self.over:
                self._died(status, now)
        elif now - self._heard > _SILENCE:
            os.killpg(self._pid, signal.SIGKILL)
            self._heard = now

    def _died(self, status: int, now: float) -> None:
        """The fetcher ended without a last message."""
        self.restarts += 1
        self._deaths = 1 if self.here > self._best else self._deaths + 1
        self._best = max(self._best, self.here)
        how = describe_exit(os.waitstatus_to_exitcode(status))
        words = f"the fetcher of {self.given.path} {how}"
        if self._deaths > _DEATHS:
            self.fail(Exit.INPUT_RETRYABLE, f"{words}, {self._deaths} times in a row")
            return
        self._restart_at = now + min(_PAUSE * 2.0 ** (self._deaths - 1), 10.0)
        os.write(self._log, f"{words}; it is restarted\n".encode())

    def _hear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self._output, 1 << 16):
                self._text = (self._text + piece)[-_MOST:]
                self._heard = time.monotonic()
        *lines, self._text = self._text.split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                self._take(json.loads(line))

    def _take(self, message: dict[str, Any]) -> None:
        state = message["state"]
        if state == "complete":
            self.complete_at = time.monotonic() - self._begin
        elif state == "failed":
            code = message.get("code")
            code = Exit(code) if code in tuple(Exit) else Exit.AGENT_ERROR
            words, remedy = message.get("error", "the fetcher failed"), message.get("remedy", "")
            self.failure = Failed(code, words, remedy=remedy)
        self.state = state
        self.report.update(message)

    def look(self) -> None:
        """Open `PATH.arrival` as soon as it exists; it is removed when the stream has ended."""
        if self.arrival is None:
            with contextlib.suppress(OSError, ValueError, HeadwayError):
                self.arrival = Arrival.follow(f"{self.given.path}{ARRIVAL}")

    def fail(self, code: Exit, words: str) -> None:
        """Give up, and tell the readers."""
        self.state, self.failure = "failed", Failed(code, words, remedy="look at agent.log")
        self.look()
        if self.arrival is not None:
            self.arrival.fail(words, retryable=True)

    def stop(self) -> None:
        """Ask the fetcher to end, and kill it if it does not."""
        if self._input >= 0:
            os.close(self._input)
            self._input = -1
        end = time.monotonic() + _STOP
        while self._pid >= 0:
            self._hear()
            if os.waitpid(self._pid, os.WNOHANG)[0]:
                self._hear()
                self._close()
                break
            if time.monotonic() > end:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._pid, signal.SIGKILL)
                end += 60.0
            time.sleep(0.01)
        if not self.over:
            self.state = "stopped"

    def _close(self) -> None:
        for descriptor in (self._input, self._output):
            if descriptor >= 0:
                os.close(descriptor)
        self._pid = self._input = self._output = -1
        self._text = b""

    def close(self) -> None:
        """Remove everything but the object, or what another attempt can resume."""
        self.look()
        if self.arrival is not None:
            self.in_doubt = self.manifest is None and self.arrival.losses > 0
            self.arrival.close()
        self.tidy_up()

    def tidy_up(self) -> None:
        """Remove the files by which an earlier segment's readers and fetcher communicated."""
        for suffix in (ARRIVAL, WANTED):
            with contextlib.suppress(OSError):
                os.unlink(f"{self.given.path}{suffix}")

    def record(self, run_seconds: float) -> dict[str, Any]:
        """What the record says about it."""
        report, waited = self.report, self.waited
        proof = report.get("proof", "") if self.state == "complete" else ""
        if self.manifest is not None and self.here:
            proof = "manifest"  # for each chunk that a reader has seen
        entry = {
            "path": self.given.path,
            "mode": "stream",
            "source": host_of(report["url"]) if report.get("url") else "",
            "bytes": self.fetched_bytes,
            "size": report["size"],
            "seconds": round(report["seconds"], 3),
            "verified": proof in ("checksum", "manifest"),
            "proof": proof,
            "fetched": True,
            "sources": describe_sources(report.get("snapshot")),
            "whole_at": None if self.complete_at is None else round(self.complete_at, 3),
            "waited": round(waited, 3),
            "waited_share": round(min(1.0, waited / run_seconds), 4) if run_seconds > 0 else None,
            "refetched": report["again"],
            "restarts": self.restarts,
        }
        if self.each_epoch is not None:
            entry.update(window=self.given.window, each_epoch=self.each_epoch)
        if self.failure is not None:
            entry["error"] = self.failure.message[:200]
        return entry


def _program() -> list[str]:
    """The command that starts this node half once more, with the same Python."""
    archive = own_archive()
    if archive:
        return [sys.executable, "-I", "-S", "-X", "utf8", archive]
    return isolated("from headway.node.__main__ import start; start(sys.argv[1:])")


TICK = 0.5  # seconds between two looks at the fetchers
ENDS = 60.0  # seconds that a command has to end when it can get no more data
_PROOF = 600.0  # seconds to verify a complete object that could not be verified chunk by chunk


class Feeds:
    """All feeds of an attempt."""

    def __init__(
        self, record: AttemptRecord, attempt: Attempt, store: InputStore | None = None
    ) -> None:
        self._record, self._attempt, self._store = record, attempt, store
        self._feeds: list[Feed] = []
        self._begin = time.monotonic()
        self._next = FIRST
        self._failed_at: float | None = None
        self._announced: set[str] = set()

    def begin(self, given: PlannedInput, manifest: Manifest | None, watch: Watch) -> None:
        """Start a feed, and wait until it has begun to arrive."""
        feed = Feed(given, manifest, self._record.log_file)
        self._feeds.append(feed)
        feed.tidy_up()
        feed.start()
        each = feed.each_epoch  # takes a moment, in which the first bytes come
        if each is not None and manifest is not None:
            self._record.note(
                f"{given.path}: {given.window} of its {manifest.size} bytes are kept at a time;"
                f" every epoch fetches about {each} bytes: 5 epochs {5 * each}"
            )
        while not feed.over and not feed.begun:
            feed.tick(time.monotonic())
            watch.wait(0.02)
            watch.check()
        feed.look()
        self._raise(feed)

    def tick(self) -> float:
        """Look after all feeds, and report progress; returns the seconds to the next call."""
        now = time.monotonic()
        for feed in self._feeds:
            feed.tick(now)
            self._announce(feed)
            if feed.failure is not None and self._failed_at is None:
                self._failed_at = now
                self._record.log(f"{feed.failure.message}; the command can get no more of it")
        if now - self._begin >= self._next:
            self._report_progress()
            self._next = next_after(self._next, now - self._begin)
        return TICK

    def out_of_data(self) -> bool:
        """Whether the command still runs although it can get no more data."""
        return self._failed_at is not None and time.monotonic() - self._failed_at > ENDS

    def _report_progress(self) -> None:
        feed = next((each for each in self._feeds if not each.over), None)
        if feed is None:
            return
        snapshot = feed.report.get("snapshot") or {}
        sizes = [each.report["size"] for each in self._feeds]
        values = {
            "bytes": sum(each.here for each in self._feeds),
            "total": None if None in sizes else sum(sizes),
            "file": feed.given.path,
            "done": feed.here,
            "size": feed.report["size"],
            "rate": int(snapshot.get("rate") or 0),
            "waited": round(feed.waited, 1),
            "from": format_sources(describe_sources(snapshot)),
        }
        self._record.send_line("run", "progress", values)

    def _announce(self, feed: Feed) -> None:
        """Report that a feed is complete; the next segment need not verify it again."""
        path = feed.given.path
        if feed.state != "complete" or path in self._announced:
            return
        self._announced.add(path)
        entry = feed.record(0.0)
        seconds, proof = entry["seconds"], entry["proof"]
        verified = f", verified by its {proof}" if proof else ""
        self._record.note(f"{path}: {feed.here} bytes streamed in {seconds} s{verified}")
        with contextlib.suppress(OSError):
            self._attempt.proven[path] = mark(feed.given)
        if self._store is not None and feed.given.store and feed.given.keep and entry["verified"]:
            self._store.add(wanted(feed.given), path, proof, checked=False)
        if feed.complete_at is not None and feed.complete_at >= FIRST:
            values = {"file": path, "size": feed.here, "seconds": seconds, "proof": proof or "none"}
            self._record.send_line("run", "arrived", {**values, "waited": round(feed.waited, 1)})

    def finish(self, watch: Watch) -> None:
        """The command has succeeded: verify what is here but could not be verified by chunk."""
        for feed in self._feeds:
            end = time.monotonic() + _PROOF
            declared = feed.given.checksum is not None and feed.manifest is None
            while declared and not feed.over and feed.all_here:
                self.tick()
                watch.wait(0.05)
                watch.check()
                if time.monotonic() > end:
                    feed.fail(Exit.INPUT_RETRYABLE, f"{feed.given.path} could not be verified")
            if declared and not feed.over:
                self._record.problem(
                    f"{feed.given.path}: the command ended before all of it was here, so its"
                    " checksum could not be verified"
                )

    def end(self, run_seconds: float) -> None:
        """Stop the fetchers, and record what they did."""
        for feed in self._feeds:
            feed.stop()
            self._announce(feed)
            self._record.inputs.append(feed.record(run_seconds))
            feed.close()

    def can_continue(self) -> bool:
        """Whether a checkpoint that was saved is good, and worth another segment.

        An input that failed in the segment before, too, and has fetched nothing since, will not do
        better in the next one.
        """
        before = {each.get("path"): each for each in self._attempt.inputs if each.get("error")}
        for feed in self._feeds:
            earlier = before.get(feed.given.path, {}).get("bytes", -1)
            stuck = isinstance(earlier, int) and feed.fetched_bytes <= earlier
            if feed.in_doubt or not feed.only_late or (feed.failure is not None and stuck):
                return False
        return True

    @property
    def in_doubt(self) -> str:
        """The input whose bytes turned out to be wrong after they were read; empty: none."""
        return next((feed.given.path for feed in self._feeds if feed.in_doubt), "")

    def raise_failure(self) -> None:
        """Fail the attempt if an input has failed."""
        for feed in self._feeds:
            self._raise(feed)
            if feed.in_doubt:
                error = changed_at_source(feed.given.path)
                raise Failed(Exit.INPUT_RETRYABLE, error.message, remedy=error.remedy)

    def _raise(self, feed: Feed) -> None:
        if feed.failure is not None:
            feed.failure.brief = brief(feed.given, feed.failure)
            raise feed.failure
