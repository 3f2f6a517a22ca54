"""The streams: all inputs of an attempt that arrive while the command runs.

Each has a fetcher, a process of its own, which is started again when it dies. One that fails for
good says so to the readers by `PATH.arrival`, so that the command ends by itself; what becomes of
the attempt is the input's doing then, unless the command has saved what it made of proven bytes.
"""

from __future__ import annotations

import contextlib
import os
import time

from headway.node.exits import Exit
from headway.node.inputs import brief, describe_sources
from headway.node.progress import FIRST, next_after
from headway.node.stream.feed import Feed
from headway.node.verdict import Failed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.node.attempt import Attempt
    from headway.node.journal import Journal
    from headway.node.plan import Input
    from headway.node.transfer.manifest import Manifest
    from headway.node.watch import Watch

TICK = 0.5  # seconds between two looks at the fetchers
ENDS = 60.0  # seconds in which a command shall end that can get no more data
_PROOF = 600.0  # seconds in which a whole object is proven that could not be chunk by chunk


class Streams:
    """All streams of an attempt."""

    def __init__(self, journal: Journal, attempt: Attempt) -> None:
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
