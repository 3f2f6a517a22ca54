"""Every sample once an epoch while a real fetcher brings the object, wherever things are killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings
from tests.lab import Held, Server
from tests.loading.conftest import CHUNK, decode
from tests.loading.test_loader import Team
from tests.node.transfer.made_tars import make_nested

from headway.node.plan import PlannedInput
from headway.node.stream.feed import Feed
from headway.node.transfer.manifest import digest_of, make_manifest, read_manifest
from headway.torch import Loader, TarDataset

CLASSES, EACH = 5, 24
COUNT = CLASSES * EACH
EPOCHS = 2
ROOM = 26 * CHUNK  # of 48 chunks
CONTENT = make_nested(
    {
        f"n{c}": {f"{i}.bin": f"{c * EACH + i}/".encode() + bytes(25_000) for i in range(EACH)}
        for c in range(CLASSES)
    }
)


class Node:
    """A folder to which a fetcher, a process of its own, brings the object."""

    def __init__(self, folder: Path, url: str, manifest: bytes, *, keep: bool) -> None:
        self.path = folder / "train.tar"
        Path(f"{self.path}.headway").write_bytes(manifest)
        pin = digest_of(manifest)
        given = SimpleNamespace(path=str(self.path), urls=[url], size=None, checksum=None)
        given.manifest, given.patience = pin, 20.0
        given.keep, given.window = keep, None if keep else ROOM
        self._log = os.open(os.devnull, os.O_WRONLY)
        self._feed = Feed(cast(PlannedInput, given), read_manifest(manifest, pin=pin), self._log)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_after)

    def __enter__(self) -> Node:
        self._feed.start()
        self._thread.start()
        end = time.monotonic() + 20
        while not self._feed.begun:
            assert time.monotonic() < end
            time.sleep(0.005)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._feed.stop()
        self._feed.close()
        os.close(self._log)

    def _look_after(self) -> None:
        while not self._over.wait(0.02):
            self._feed.tick(time.monotonic())

    def kill(self) -> None:
        if self._feed._pid > 0 and not self._feed.over:
            os.kill(self._feed._pid, signal.SIGKILL)


@contextmanager
def nodes(url: str, manifest: bytes, *, keep: bool) -> Iterator[Node]:
    with TemporaryDirectory() as name, Node(Path(name), url, manifest, keep=keep) as node:
        yield node


# the batch, ranks, workers, steps, and whether the fetcher is killed
teams = st.tuples(
    st.integers(1, 3), st.integers(1, 3), st.integers(0, 2), st.integers(1, 20), st.booleans()
)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("keep", [True, False])
@settings(deadline=None, max_examples=4)
@example([(3, 3, 0, 20, False)])  # in a window, the first rank must not pass what others still read
@given(st.lists(teams, min_size=1, max_size=3))
def test_any_workers_ranks_and_kills_while_it_arrives(
    keep: bool, teams: list[tuple[int, int, int, int, bool]]
) -> None:
    """Each team is on a node of its own, and ends without a word while its workers are ahead."""
    with TemporaryDirectory() as name:
        home = Path(name) / "train.tar"
        home.write_bytes(CONTENT)
        manifest = make_manifest(str(home), chunk_size=CHUNK)
    had: list[list[int]] = [[] for _ in range(EPOCHS)]
    state: dict[str, Any] = {}
    with Server({"/train.tar": Held(CONTENT)}) as server:
        for size, ranks, workers, steps, killed in [*teams, (3, 2, 1, 999, True)]:
            with nodes(server.url("/train.tar"), manifest, keep=keep) as node:
                data = TarDataset(str(node.path), decode=decode)
                state = state or Loader(data, 1, seed=4).state_dict()
                team = Team(data, size, ranks, state, workers)
                for step in range(steps):
                    epoch = state["epoch"]
                    if epoch == EPOCHS:
                        break
                    if killed and step == steps // 2 % 7:
                        node.kill()
                    got = team.step()
                    state = team.state()
                    had[epoch] += got
                    if not got:
                        team = Team(data, size, ranks, state, workers)
                del team
    assert [sorted(each) for each in had] == [list(range(COUNT))] * EPOCHS
