"""Feeds: the inputs of an attempt that arrive while the command runs.

Each has a fetcher, a process of its own, which is started again when it dies. One that fails for
good says so to the readers by `PATH.arrival`, so that the command ends by itself. What becomes of
the attempt is the input's doing then, unless the command has saved what it made of proven bytes.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import sys
import time

import headway.node
from headway.node.errors import Exit, Failed, HeadwayError
from headway.node.inputs import brief, describe_sources
from headway.node.process import isolated, signal_name
from headway.node.record import FIRST, next_after
from headway.node.stream.arrival import ARRIVAL_SUFFIX as ARRIVAL
from headway.node.stream.arrival import WANTED_SUFFIX as WANTED
from headway.node.stream.arrival import Arrival
from headway.node.stream.source import bytes_of_epoch
from headway.node.transfer.urls import host_of

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

    from headway.node.plan import Input
    from headway.node.process import Watch
    from headway.node.record import Attempt, AttemptRecord
    from headway.node.transfer.manifest import Manifest


_DEATHS = 5  # of fetchers that brought nothing, in a row
_PAUSE = 0.5  # seconds before a fetcher is started again; doubles
_STOP = 3.0  # seconds that it has to stop
_SILENCE = 600.0  # seconds without a word after which it hangs: a large sync may take long
_MOST = 1 << 20  # bytes of one line
_LATE = (Exit.INPUT_RETRYABLE, Exit.BAD_NODE)


class Feed:
    """One input, and the fetcher that brings it."""

    def __init__(self, given: Input, manifest: Manifest | None, log: int) -> None:
        self.given, self.manifest = given, manifest
        self.state = ""  # the fetcher's last word: begun, progress, whole, stopped, failed
        self.told: dict[str, Any] = {}  # with all that it said
        self.failure: Failed | None = None
        self.whole_at: float | None = None  # seconds after the beginning
        self.in_doubt = False  # readers were given bytes that were found to be wrong; when closed
        self.restarts = 0
        self._log = log
        self._begin = time.monotonic()
        self._pid = self._input = self._output = -1
        self._text = b""
        self._heard = self._begin
        self._deaths, self._best, self._again_at = 0, 0, 0.0
        self.arrival: Arrival | None = None

    @functools.cached_property
    def each_epoch(self) -> int | None:
        """The bytes that each epoch fetches; None: all of them stay."""
        window = 0 if self.given.keep else self.given.window or 0
        if self.manifest is None or not 0 < window < self.manifest.size:
            return None
        return bytes_of_epoch(self.manifest, window)

    @property
    def only_late(self) -> bool:
        """Whether it failed in a way that another try may mend, and all that came was proven."""
        if self.failure is None:
            return True
        return self.manifest is not None and self.failure.code in _LATE

    @property
    def over(self) -> bool:
        return self.state in ("whole", "stopped", "failed")

    @property
    def here(self) -> int:
        return int(self.told.get("here") or 0)

    @property
    def all_here(self) -> bool:
        """Whether every byte is here, proven or not."""
        self.look()
        return self.arrival is not None and self.arrival.has(0, self.arrival.size)

    @property
    def size(self) -> int | None:
        size = self.told.get("size")
        return size if isinstance(size, int) else None

    @property
    def snapshot(self) -> dict[str, Any]:
        """The transfer as it was last heard of."""
        return self.told.get("snapshot") or {}

    @property
    def refetched(self) -> int:
        return int(self.told.get("again") or 0)

    @property
    def brought(self) -> int:
        """The bytes of the object that came, each once."""
        return max(self.here, int(self.told.get("ever") or 0))

    @property
    def waited(self) -> float:
        """Seconds that the command waited for it."""
        self.look()
        return self.arrival.waited() if self.arrival is not None else 0.0

    def start(self, *, again: bool = False) -> None:
        """Start a fetcher in a process group of its own."""
        given = self.given
        task = {
            "path": given.path,
            "urls": given.urls,
            "size": given.size,
            "checksum": given.checksum,
            "manifest": given.manifest,
            "patience": given.patience,
            "window": 0 if given.keep else given.window,
            "again": again,
        }
        self._heard = time.monotonic()
        theirs, self._input = os.pipe()
        self._output, their_output = os.pipe()
        os.set_blocking(self._output, False)
        held = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
        try:
            self._pid = os.posix_spawn(
                sys.executable,
                [*_program(), "fetcher"],
                os.environ,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, theirs, 0),
                    (os.POSIX_SPAWN_DUP2, their_output, 1),
                    (os.POSIX_SPAWN_DUP2, self._log, 2),
                ],
                setpgroup=0,
                setsigmask=[],
                setsigdef=[signal.SIGTERM, signal.SIGINT, signal.SIGCHLD],
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
            os.close(theirs)
            os.close(their_output)
        data = json.dumps(task).encode() + b"\n"
        with contextlib.suppress(BrokenPipeError):  # it died at once, and will be missed
            while data:
                data = data[os.write(self._input, data) :]

    def tick(self, now: float) -> None:
        """Hear what the fetcher says; start it again if it has died."""
        if self.over:
            return
        if self._pid < 0:
            if now >= self._again_at:
                self.start(again=os.path.exists(f"{self.given.path}{ARRIVAL}"))
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
        """It ended without a last word."""
        self.restarts += 1
        self._deaths = 1 if self.here > self._best else self._deaths + 1
        self._best = max(self._best, self.here)
        if os.WIFSIGNALED(status):
            how = f"was killed by {signal_name(os.WTERMSIG(status))}"
        else:
            how = f"exited with {os.WEXITSTATUS(status)}"
        words = f"the fetcher of {self.given.path} {how}"
        if self._deaths > _DEATHS:
            self.fail(Exit.INPUT_RETRYABLE, f"{words}, {self._deaths} times in a row")
            return
        self._again_at = now + min(_PAUSE * 2.0 ** (self._deaths - 1), 10.0)
        os.write(self._log, f"{words}; it is started again\n".encode())

    def _hear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self._output, 1 << 16):
                self._text = (self._text + piece)[-_MOST:]
                self._heard = time.monotonic()
        *lines, self._text = self._text.split(b"\n")
        for line in lines:
            try:
                said = json.loads(line)
            except ValueError:
                continue
            if isinstance(said, dict):
                self._take(said)

    def _take(self, said: dict[str, Any]) -> None:
        self.state = str(said.get("state"))
        self.told.update(said)
        if self.state == "whole":
            self.whole_at = time.monotonic() - self._begin
        elif self.state == "failed":
            code = said.get("code")
            known = code if code in tuple(Exit) else Exit.AGENT_ERROR
            self.failure = Failed(
                Exit(known), str(said.get("error")), remedy=str(said.get("remedy") or "")
            )

    def look(self) -> None:
        """Open `PATH.arrival` as soon as it is there; it is gone when the stream has ended."""
        if self.arrival is None:
            with contextlib.suppress(OSError, ValueError, HeadwayError):
                self.arrival = Arrival.follow(f"{self.given.path}{ARRIVAL}")

    def fail(self, code: Exit, words: str) -> None:
        """Give up; readers hear it too."""
        self.state, self.failure = "failed", Failed(code, words, remedy="look at agent.log")
        self.look()
        if self.arrival is not None:
            self.arrival.fail(words, retryable=True)

    def stop(self) -> None:
        """End the fetcher: gently, then not."""
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
        """Leave nothing behind but the object, or what can be gone on with."""
        self.look()
        if self.arrival is not None:
            self.in_doubt = self.manifest is None and self.arrival.losses > 0
            self.arrival.close()
        self.tidy_up()

    def tidy_up(self) -> None:
        """What an earlier segment's readers and fetcher told each other is of no use to others."""
        for suffix in (ARRIVAL, WANTED):
            with contextlib.suppress(OSError):
                os.unlink(f"{self.given.path}{suffix}")

    @property
    def begun(self) -> bool:
        """Whether readers can open it."""
        return os.path.exists(f"{self.given.path}{ARRIVAL}")

    def record(self, run_seconds: float) -> dict[str, object]:
        """What the record says of it."""
        sources = describe_sources(self.snapshot.get("sources") or [])
        waited = self.waited
        proof = str(self.told.get("proof") or "") if self.state == "whole" else ""
        if self.manifest is not None and self.here:
            proof = "manifest"  # each chunk that a reader has seen
        said: dict[str, object] = {
            "path": self.given.path,
            "mode": "stream",
            "source": host_of(str(self.told["url"])) if self.told.get("url") else "",
            "bytes": self.brought,
            "size": self.size,
            "seconds": round(float(self.told.get("seconds") or 0.0), 3),
            "verified": proof in ("checksum", "manifest"),
            "proof": proof,
            "fetched": True,
            "sources": sources,
            "whole_at": None if self.whole_at is None else round(self.whole_at, 3),
            "waited": round(waited, 3),
            "waited_share": round(min(1.0, waited / run_seconds), 4) if run_seconds > 0 else None,
            "refetched": self.refetched,
            "restarts": self.restarts,
        }
        if self.each_epoch is not None:
            said.update(window=self.given.window, each_epoch=self.each_epoch)
        if self.failure is not None:
            said["error"] = self.failure.message[:200]
        return said


def _program() -> list[str]:
    """How this very node half is started once more, by the same Python."""
    package = os.path.abspath(headway.node.__path__[0])
    archive = os.path.dirname(os.path.dirname(package))
    if os.path.isfile(archive):
        return [sys.executable, "-I", "-S", "-X", "utf8", archive]
    return isolated("from headway.node.__main__ import start; start(sys.argv[1:])")


TICK = 0.5  # seconds between two looks at the fetchers
ENDS = 60.0  # seconds in which a command shall end that can get no more data
_PROOF = 600.0  # seconds in which a whole object is proven that could not be chunk by chunk


class Feeds:
    """All feeds of an attempt."""

    def __init__(self, journal: AttemptRecord, attempt: Attempt) -> None:
        self._journal, self._attempt = journal, attempt
        self._feeds: list[Feed] = []
        self._begin = time.monotonic()
        self._next = FIRST
        self._failed_at: float | None = None
        self._announced: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._feeds)

    def begin(self, given: Input, manifest: Manifest | None, watch: Watch) -> None:
        """Start one, and wait until it has begun to arrive."""
        feed = Feed(given, manifest, self._journal.log_file)
        self._feeds.append(feed)
        feed.tidy_up()
        feed.start()
        each = feed.each_epoch  # takes a moment, in which the first bytes come
        if each is not None and manifest is not None:
            self._journal.note(
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
        """Look after all of them, and tell how far they are; returns the seconds to the next."""
        now = time.monotonic()
        for feed in self._feeds:
            feed.tick(now)
            self._announce(feed)
            if feed.failure is not None and self._failed_at is None:
                self._failed_at = now
                self._journal.log(f"{feed.failure.message}; the command can get no more of it")
        if now - self._begin >= self._next:
            self._tell()
            self._next = next_after(self._next, now - self._begin)
        return TICK

    def hopeless(self) -> bool:
        """Whether the command goes on although it can get no more data."""
        return self._failed_at is not None and time.monotonic() - self._failed_at > ENDS

    def _tell(self) -> None:
        under_way = [each for each in self._feeds if not each.over]
        if not under_way:
            return
        feed = under_way[0]
        sizes = [each.size for each in self._feeds]
        known = [size for size in sizes if size is not None]
        sources = describe_sources(feed.snapshot.get("sources") or [])
        gave = [f"{each['host']}/{each['state']}/{each['bytes']}" for each in sources[:6]]
        self._journal.progress(
            "run",
            bytes=sum(each.here for each in self._feeds),
            total=sum(known) if len(known) == len(sizes) else None,
            file=feed.given.path,
            done=feed.here,
            size=feed.size,
            rate=int(feed.snapshot.get("rate") or 0),
            waited=round(feed.waited, 1),
            **{"from": "+".join(gave) or None},
        )

    def _announce(self, feed: Feed) -> None:
        """Say that one is whole, and what proves it; the next segment need not prove it again."""
        if feed.state != "whole" or feed.given.path in self._announced:
            return
        self._announced.add(feed.given.path)
        facts = feed.record(0.0)
        seconds, proof = facts["seconds"], facts["proof"]
        self._journal.note(
            f"{feed.given.path}: {feed.here} bytes streamed in {seconds} s"
            + (f", proven by its {proof}" if proof else "")
        )
        with contextlib.suppress(OSError):
            status = os.stat(feed.given.path)
            mark = [status.st_size, status.st_mtime_ns, status.st_ino]
            self._attempt.proven[feed.given.path] = mark
        if feed.whole_at is not None and feed.whole_at >= FIRST:
            self._journal.arrived(
                "run",
                file=feed.given.path,
                size=feed.here,
                seconds=seconds,
                proof=proof or "none",
                waited=round(feed.waited, 1),
            )

    def finish(self, watch: Watch) -> None:
        """The command has succeeded: what is here, but not proven as a whole, is proven now."""
        for feed in self._feeds:
            end = time.monotonic() + _PROOF
            declared = feed.given.checksum is not None and feed.manifest is None
            while declared and not feed.over and feed.all_here:
                self.tick()
                watch.wait(0.05)
                watch.check()
                if time.monotonic() > end:
                    feed.fail(Exit.INPUT_RETRYABLE, f"{feed.given.path} could not be proven")
            if declared and not feed.over:
                self._journal.problem(
                    f"{feed.given.path}: the command ended before all of it was here, so that"
                    " its checksum could not be compared"
                )

    def end(self, run_seconds: float) -> None:
        """Stop the fetchers, and write down what they did."""
        for feed in self._feeds:
            feed.stop()
            self._announce(feed)
            self._journal.inputs.append(feed.record(run_seconds))
            feed.close()

    def vouch(self) -> bool:
        """Whether a checkpoint that was saved is good, and worth another segment, when all ended.

        An input that has failed in the segment before, too, and brought nothing since, will not do
        better in the next one.
        """
        before = {each.get("path"): each for each in self._attempt.inputs if each.get("error")}
        for feed in self._feeds:
            earlier = before.get(feed.given.path)
            stuck = earlier is not None and feed.brought <= _number(earlier.get("bytes"))
            if feed.in_doubt or not feed.only_late or (feed.failure is not None and stuck):
                return False
        return True

    @property
    def in_doubt(self) -> str:
        """The input whose bytes were found to be wrong after they were read; empty: none."""
        return next((feed.given.path for feed in self._feeds if feed.in_doubt), "")

    def raise_failure(self) -> None:
        """The input's failure is the attempt's."""
        for feed in self._feeds:
            self._raise(feed)
            if feed.in_doubt:
                raise Failed(
                    Exit.INPUT_RETRYABLE,
                    f"{feed.given.path} changed at its source, or was wrong, while it was being"
                    " read",
                    remedy="a `manifest` proves every chunk before it is read",
                )

    def _raise(self, feed: Feed) -> None:
        if feed.failure is not None:
            feed.failure.brief = brief(feed.given, feed.failure)
            raise feed.failure


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
