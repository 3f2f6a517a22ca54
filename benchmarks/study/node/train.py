"""The study's training in small: five epochs over a tar file, each sample proven in a sum.

    train.py DATA MODEL --weights FILE|URL [--stream]

A sample takes as long as this node computes for one (STUDY_COMPUTE: seconds for all of them), by
the clock, without using the processor. The model is a sum over (epoch, sample) of digests: a sample
that is wrong, missing or counted twice makes another model.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import sys
import tarfile
import time
import urllib.request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

EPOCHS = 5
UNPACKING = 978 / 14_824  # of the compute; then the study's script wanted its weights
CHECKPOINT = "ckpt/state.json"
MODULUS = 1 << 256
NAP = 0.1  # seconds; shorter ones would only cost wake-ups


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("model")
    parser.add_argument("--weights", required=True)
    parser.add_argument("--stream", action="store_true")
    args = parser.parse_args()
    state = load()
    train(state, args)
    model = hashlib.sha256(b"%064x" % state["sum"] + read(args.weights)).hexdigest()
    with open(args.model, "w") as file:
        json.dump({"model": model, "spent": state["spent"], "waited": state["waited"]}, file)


def train(state: dict[str, Any], args: argparse.Namespace) -> None:
    saves = Saves()
    site = os.environ["GLIDEIN_ResourceName"]  # noqa: SIM112, its name
    ready, deadline = False, time.monotonic()
    while state["epoch"] < EPOCHS:
        source = Streamed(args.data, state) if args.stream else Whole(args.data, state)
        step = float(os.environ["STUDY_COMPUTE"]) / EPOCHS / len(source)
        waited = 0.0
        for name, data in source.samples():
            # what it waited for data it could not compute; what the machine was busy with it could
            deadline += step + source.waited - waited
            waited = source.waited
            add(state, name, data)
            state["spent"][site] = state["spent"].get(site, 0.0) + step
            state["position"] += 1
            if deadline - time.monotonic() > NAP:
                time.sleep(deadline - time.monotonic())
            if not ready and state["epoch"] + state["position"] / len(source) > UNPACKING * EPOCHS:
                ready = bool(read(args.weights))
            if saves.due():
                state["waited"] += waited
                save(state)
                sys.exit(saves.code)
        time.sleep(max(0.0, deadline - time.monotonic()))
        state["waited"] += waited
        state["epoch"], state["position"] = state["epoch"] + 1, 0


class Saves:
    """When a checkpoint is wanted: on SIGTERM, and at the interval."""

    def __init__(self) -> None:
        self.code = int(os.environ.get("HEADWAY_CHECKPOINT_EXIT_CODE", "0"))
        interval = float(os.environ.get("HEADWAY_CHECKPOINT_INTERVAL", "inf"))
        self._at, self._told = time.monotonic() + interval, False
        if self.code:
            signal.signal(signal.SIGTERM, self._tell)

    def _tell(self, *_: object) -> None:
        self._told = True

    def due(self) -> bool:
        return bool(self.code) and (self._told or time.monotonic() > self._at)


def add(state: dict[str, Any], name: str, data: bytes) -> None:
    digest = hashlib.sha256(f"{state['epoch']} {name} ".encode() + data).digest()
    state["sum"] = (state["sum"] + int.from_bytes(digest, "big")) % MODULUS


class Whole:
    """A tar file that is all there."""

    waited = 0.0

    def __init__(self, path: str, state: dict[str, Any]) -> None:
        with tarfile.open(path) as tar:
            self._members = [(m.name, m.offset_data, m.size) for m in tar if m.isreg()]
        self._path, self._begin = path, state["position"]

    def __len__(self) -> int:
        return len(self._members)

    def samples(self) -> Iterator[tuple[str, bytes]]:
        with open(self._path, "rb") as file:
            for name, offset, size in self._members[self._begin :]:
                file.seek(offset)
                yield name, file.read(size)


class Streamed:
    """A tar file that may still be arriving."""

    def __init__(self, path: str, state: dict[str, Any]) -> None:
        import headway.files

        place = {"epoch": state["epoch"], "begin": state["position"]}
        self._stream = headway.files.stream(path, seed=1, **place)

    def __len__(self) -> int:
        return len(self._stream.files)

    @property
    def waited(self) -> float:
        return self._stream.waited

    def samples(self) -> Iterator[tuple[str, bytes]]:
        return ((name, data) for name, _, data in self._stream)


def read(place: str) -> bytes:
    if "://" not in place:
        with open(place, "rb") as file:
            return file.read()
    with urllib.request.urlopen(place, timeout=10) as answer:
        return bytes(answer.read())


def load() -> dict[str, Any]:
    try:
        with open(CHECKPOINT) as file:
            return dict(json.load(file))
    except FileNotFoundError:
        return {"epoch": 0, "position": 0, "sum": 0, "spent": {}, "waited": 0.0}


def save(state: dict[str, Any]) -> None:
    os.makedirs(os.path.dirname(CHECKPOINT), exist_ok=True)
    with open(CHECKPOINT + ".new", "w") as file:
        json.dump(state, file)
    os.replace(CHECKPOINT + ".new", CHECKPOINT)


if __name__ == "__main__":
    main()
