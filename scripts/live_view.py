"""Draw docs/images/live-view.svg: the live view of a real run on the local pool, caught midway.

    python scripts/live_view.py [FILE.svg]

The run is small and everything in it happens: inputs come from a slow server on this machine, some
commands fail, one job is held. What is drawn comes from the run's event log through the same view
that `headway run` shows on a terminal.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme

import headway
from headway.cli.job_text import RunJobs
from headway.cli.view import LiveView
from headway.pool import open_pool

TARGET = Path(__file__).parents[1] / "docs" / "images" / "live-view.svg"
POOL = "local:site=Lakeside,cpus=4;site=Foothills,cpus=4"
WIDTH, HEIGHT = 128, 22
BYTES = 48_000_000
KINDS = [
    "train",
    "quick",
    "diverge",
    "train",
    "train",
    "quick",
    "train",
    "quick",
    "train",
    "broken",
]

SCRIPT = """\
import sys, time
kind = sys.argv[1]
if kind == "diverge":
    sys.exit("loss is nan after 40 steps")
if kind == "broken":
    import model_that_is_not_there
time.sleep(0.2 if kind == "quick" else 120)
"""
JOB = """\
name = "cifar10"
command = "python3 train.py {kind}"
files = ["train.py"]
table = "jobs.csv"
grace = "2 s"
[resources]
cpus = 1
memory = "50 MB"
disk = "100 MB"
[[inputs]]
url = "http://127.0.0.1:PORT/{kind}/{job}.tar"
path = "data.tar"
size = 48_000_000
"""
THEME = TerminalTheme(
    (24, 26, 33),
    (214, 218, 228),
    [
        (24, 26, 33),
        (240, 104, 104),
        (121, 204, 128),
        (232, 190, 96),
        (110, 160, 240),
        (190, 140, 230),
        (92, 194, 208),
        (214, 218, 228),
    ],
)


class Slow(BaseHTTPRequestHandler):
    """Serves zeros, each path at its own pace."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._begin(0)

    def do_GET(self) -> None:
        first = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").split("-")[0])
        self._begin(first)
        kind, number = self.path.strip("/").split("/")
        seconds = 6.0 + 5 * int(number.split(".")[0]) if kind == "train" else 0.2
        left, block = BYTES - first, 64 * 1024
        while left > 0:
            try:
                self.wfile.write(bytes(min(block, left)))
            except OSError:
                return
            left -= block
            time.sleep(seconds * block / BYTES)

    def _begin(self, first: int) -> None:
        self.send_response(206 if first else 200)
        self.send_header("Content-Length", str(BYTES - first))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", '"zeros"')
        if first:
            self.send_header("Content-Range", f"bytes {first}-{BYTES - 1}/{BYTES}")
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing of this is worth a line."""


def main() -> int:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    server = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    folder = Path(tempfile.mkdtemp(prefix="headway-live-view-"))
    try:
        text = _svg(folder, server.server_address[1])
    finally:
        server.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    print(f"{target} is drawn")
    return 0


def _svg(folder: Path, port: int) -> str:
    (folder / "train.py").write_text(SCRIPT)
    rows = [f"{kind}\n" for kind in [*KINDS, *["train", "quick"] * 20]]
    (folder / "jobs.csv").write_text("kind\n" + "".join(rows))
    (folder / "job.toml").write_text(JOB.replace("PORT", str(port)))
    pool = open_pool(POOL, folder)
    run = headway.run(folder / "job.toml", pool=pool, start=folder, wait=False)
    try:
        run_jobs = RunJobs(run)
        began = time.monotonic()
        while not _telling(run_jobs) and time.monotonic() - began < 60:
            time.sleep(0.2)
            run.refresh()
            idle = list(run_jobs.groups["idle"])
            if time.monotonic() - began > 3 and not run_jobs.groups["held"] and idle:
                run.hold([idle[0]])
        console = Console(
            record=True, width=WIDTH, height=HEIGHT, force_terminal=True, file=io.StringIO()
        )
        console.print(LiveView(run_jobs, "local", console, began=began).picture(time.time()))
        return console.export_svg(title="headway run job.toml", theme=THEME)
    finally:
        run.pool.leave(run.folder)


def _telling(run_jobs: RunJobs) -> bool:
    """Whether there is something of everything to see."""
    counts = run_jobs.counts
    running = run_jobs.groups["running"].values()
    moving = [state for state in running if state.phase == "stage-in" and state.progress_bytes]
    far = [s for s in moving if (s.progress_bytes or 0) > 0.7 * BYTES]
    training = [state for state in running if state.phase == "run"]
    enough = counts["failed"] >= 2 and counts["held"] and counts["succeeded"] >= 3
    return bool(enough and far and len(moving) >= 3 and len(training) >= 2)


if __name__ == "__main__":
    os.environ.pop("NO_COLOR", None)
    os.environ["LOGNAME"] = "ada"  # who held the job
    sys.exit(main())
