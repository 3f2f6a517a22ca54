"""The fetcher: brings one object while the command reads it, in a process of its own.

    headway-node.pyz fetcher

What to fetch is one line of JSON on its standard input, which then stays open: its end is the wish
to stop, also when the agent was killed. Standard output has a line of JSON for each thing that the
agent shall know: that it has begun, how far it is, and how it ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import threading
import time

from headway.node.errors import NodeError, Stopped
from headway.node.exits import Exit
from headway.node.stream.audience import Audience, default_order
from headway.node.transfer.fetch import PATIENCE, fetch
from headway.node.verdict import code_of, words_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.node.transfer.manifest import Manifest
    from headway.node.transfer.report import Snapshot

_TELL = 0.5  # seconds between two words on how far it is


def run_fetcher() -> int:
    """One object, to its end or to that of standard input; returns the exit code."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    line = sys.stdin.buffer.readline()
    try:
        task = Task(json.loads(line))
    except (ValueError, KeyError, TypeError):
        sys.stderr.write("headway: the fetcher is started by the agent\n")
        return int(Exit.AGENT_ERROR)
    return _Fetcher(task).run()


class Task:
    """What to fetch, and how; the agent writes it and the fetcher reads it."""

    def __init__(self, data: dict[str, object]) -> None:
        self.path = str(data["path"])
        urls = data["urls"]
        self.urls = [str(url) for url in urls] if isinstance(urls, list) else []
        size, window = data.get("size"), data.get("window")
        self.size = size if isinstance(size, int) else None
        self.window = window if isinstance(window, int) else 0
        checksum, pin = data.get("checksum"), data.get("manifest")
        self.checksum = str(checksum) if checksum else None
        self.manifest = str(pin) if pin else None
        patience = data.get("patience")
        self.patience = float(patience) if isinstance(patience, (int, float)) else PATIENCE
        self.again = data.get("again") is True  # a fetcher before this one was killed

    def as_json(self) -> dict[str, object]:
        return dict(vars(self))


class _Fetcher:
    def __init__(self, task: Task) -> None:
        self._task = task
        self._audience: Audience | None = None
        self._begin = time.monotonic()
        self._begun = False
        self._last: Snapshot | None = None

    def run(self) -> int:
        try:
            return self._run()
        except Stopped:
            self._tell("stopped")
            return 0
        except Exception as error:
            meant = code_of(error)
            code = int(Exit.AGENT_ERROR if meant is None else meant)
            if meant is None:
                import traceback

                traceback.print_exc()
            words = words_of(error)
            arrival = self._audience.arrival if self._audience is not None else None
            if arrival is not None:
                arrival.fail(words, retryable=code != Exit.INPUT_FAILED)
            self._tell("failed", error=words, remedy=getattr(error, "remedy", ""), code=code)
            return code

    def _run(self) -> int:
        task = self._task
        manifest = self._manifest()
        if task.window and manifest is not None and task.window < manifest.size:
            self._check_holes()
        audience = Audience(task.path, manifest, window=task.window, again=task.again)
        self._audience = audience
        if task.again and os.path.exists(task.path):  # it was killed after its last byte
            size = os.path.getsize(task.path)
            audience.finish(size)
            self._tell("whole", size=size, proof="manifest" if manifest else "")
            return 0
        if manifest is not None and manifest.is_tar:
            threading.Thread(target=self._think, daemon=True).start()
        checksum = task.checksum if not audience.room else None
        got = fetch(
            task.urls,
            task.path,
            size=task.size,
            checksum=checksum,
            manifest=manifest,
            watch=self._watch,
            should_stop=_ended,
            patience=task.patience,
            keep=True,
            readers=audience,
        )
        self._last = got.snapshot
        audience.finish(got.bytes)
        self._tell("whole", size=got.bytes, proof=got.proof, url=got.url)
        return 0

    def _manifest(self) -> Manifest | None:
        if self._task.manifest is None:
            return None
        from headway.node.transfer.manifest import MAX_MANIFEST, SUFFIX, read_manifest

        with open(f"{self._task.path}{SUFFIX}", "rb") as file:
            return read_manifest(file.read(MAX_MANIFEST + 1), pin=self._task.manifest)

    def _check_holes(self) -> None:
        from headway.node.transfer.holes import can_punch

        folder = os.path.dirname(self._task.path) or os.curdir
        if not can_punch(folder):
            raise NodeError(
                "this node's file system cannot give back parts of a file, as keep = false needs",
                remedy="another node may do; keep = true needs the whole object's disk",
            )

    def _think(self) -> None:
        """Beside the first bytes: how they should go on while nobody says so."""
        audience = self._audience
        while audience is not None and audience.arrival is None:
            time.sleep(0.01)
        if audience is not None:
            audience.default = default_order(self._task.path)

    def _watch(self, now: Snapshot) -> None:
        self._last = now
        self._tell("progress" if self._begun else "begun")
        if self._audience is not None and self._audience.arrival is not None:
            self._begun = True

    def _tell(self, state: str, **more: object) -> None:
        """One line for the agent; what is no news can be lost when it does not listen."""
        audience, last = self._audience, self._last
        arrival = audience.arrival if audience is not None else None
        if state == "begun" and arrival is None:
            return
        said: dict[str, object] = {
            "state": state,
            "seconds": round(time.monotonic() - self._begin, 3),
            "here": arrival.count() if arrival is not None else 0,
            "size": arrival.size if arrival is not None else None,
            "ever": arrival.ever if arrival is not None else 0,
            "again": arrival.again if arrival is not None else 0,
        }
        if last is not None:
            said["snapshot"] = last.as_json()
        said.update(more)
        data = json.dumps(said).encode() + b"\n"
        if state == "progress" and not select.select([], [1], [], 0)[1]:
            return
        with contextlib.suppress(OSError):
            while data:
                data = data[os.write(1, data) :]


def _ended() -> bool:
    """Whether the agent wants it to stop, or is gone."""
    ready = select.select([0], [], [], 0)[0]
    return bool(ready) and not os.read(0, 4096)
