"""Headway in a minute: data over HTTP, training, an eviction on purpose, the result home."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import headway
from headway.cli import main as headway_command

HERE = Path(__file__).resolve().parent
DATA = HERE / "data" / "cifar10-small.tar"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        """Says nothing."""


def serve(folder: Path) -> str:
    """Serve a folder on loopback for as long as this process lives; returns its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def make_data() -> None:
    if not DATA.exists():
        print("making a small data set in CIFAR-10's format …", flush=True)
        DATA.parent.mkdir(exist_ok=True)
        command = [
            sys.executable,
            str(HERE / "make_data.py"),
            "--per-class",
            "200",
            "--output",
            str(DATA),
        ]
        subprocess.run(command, check=True)


def evict_once(before: set[str]) -> None:
    """Once training has finished an epoch, take the slot away, as an opportunistic pool would."""
    for _ in range(1200):
        time.sleep(0.1)
        new = [run for run in headway.Runs.here() if run.label not in before]
        streams = list(new[-1].path.glob("scratch/*/headway-out/attempts/*/stdout")) if new else []
        if any("epoch" in stream.read_text(errors="replace") for stream in streams):
            headway.Run(new[-1]).evict([0])
            return


def main() -> int:
    make_data()
    url = f"{serve(DATA.parent)}/{DATA.name}"
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    before = {run.label for run in headway.Runs.here()}
    threading.Thread(target=evict_once, args=(before,), daemon=True).start()
    job = str(HERE / "job.local.toml")
    code = headway_command(["run", job, "--set", f'inputs[0].url="{url}"', *sys.argv[1:]])
    if code:
        return code
    run = headway.Run.find("cifar10-demo")
    state = run.jobs[0]
    metrics = json.loads((run.outputs(0) / "metrics.json").read_text())
    print(
        f"\nWhat happened: {state.attempts} attempts, {state.evictions} eviction on purpose,"
        f" went on from its checkpoint {metrics['resumed']} time(s);"
        f" test accuracy {metrics['test_accuracy']:.2f} (chance is 0.10)."
        f"\nThe result: {run.outputs(0) / 'model.pt'}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
