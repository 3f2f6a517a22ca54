"""A director that fails, lies or answers late, beside a healthy mirror and alone."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.lab import (
    Authority,
    Delay,
    Director,
    Drop,
    Fault,
    Garbage,
    Hang,
    Made,
    Redirect,
    Server,
    Status,
    dead_url,
)
from tests.lab.stopwatch import Stopwatch

from headway.node.errors import TransferError
from headway.node.transfer import fetch

from .federation import clean

pytestmark = pytest.mark.usefixtures(clean.__name__, "quick")
__all__ = ["clean"]

TIME = 0.25  # of the engine's own
SIZE = 16 << 20
CONTENT, OTHER = Made(SIZE, seed=9), Made(SIZE, seed=10)


def server(content: Made = CONTENT, *faults: Fault) -> Server:
    return Server({"/lab/a": content}, faults, tls=Authority.get().good)


FAULTS: dict[str, list[Fault]] = {
    "fails": [Status(500)],
    "somebody in between fails": [Status(502, server="nginx")],
    "hangs": [Hang()],
    "hangs after the request": [Hang(at="request")],
    "is late": [Delay(30)],
    "is dropped": [Drop()],
    "is no director": [Garbage()],
    "knows nothing": [Status(404).on("/lab/a")],
    "sends us to nonsense": [Redirect("http://[").on("/lab/a")],
}
# what it names: nobody there, somebody without the object, and somebody with another one
LIES = ["dead", "empty", "other"]


@pytest.mark.parametrize("name", FAULTS)
def test_failing_beside_a_mirror(name: str, tmp_path: Path) -> None:
    with (
        server() as cache,
        Director("/lab", [cache], faults=FAULTS[name]) as it,
        server() as mirror,
    ):
        _well([it.pelican_url("/a"), mirror.url("/lab/a")], tmp_path, [cache, mirror])


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("beside", ["a mirror", "a good cache"])
def test_lying_beside_something_good(lie: str, beside: str, tmp_path: Path) -> None:
    with server(OTHER) as other, Server(tls=Authority.get().good) as empty, server() as good:
        named: list[Server | str] = [{"empty": empty, "other": other}.get(lie) or dead_url("/")]
        if beside == "a good cache":
            named.append(good)
        with Director("/lab", named) as it:
            urls = [it.pelican_url("/a"), good.url("/lab/a")]
            # nothing but the whole tells which of two versions is right
            again = 1.0 if lie == "other" else 0.0
            _well(urls[: 2 - len(named) + 1], tmp_path, [other, good], again)


def _well(urls: list[str], folder: Path, servers: list[Server], again: float = 0.0) -> None:
    watch = Stopwatch()
    fetch(urls, str(folder / "a"), checksum=CONTENT.checksum())
    # a busy machine takes longer to send the bytes, which is not the director's doing
    sending = sum(request.sending for each in servers for request in each.requests)
    assert watch.seconds < 10 * TIME + 1 + min(sending, 10 * TIME)
    assert CONTENT.fault(folder / "a") is None
    assert sum(each.sent for each in servers) <= (1.05 + again) * SIZE + (4 << 20)


@pytest.mark.parametrize("name", FAULTS)
def test_failing_alone(name: str, tmp_path: Path) -> None:
    with server() as cache, Director("/lab", [cache], faults=FAULTS[name]) as it:
        begin = time.monotonic()
        with pytest.raises(TransferError) as caught:
            fetch([it.pelican_url("/a")], str(tmp_path / "a"), patience=1)
        assert time.monotonic() - begin < 6
    assert it.pelican_url("/a") in caught.value.message
    assert "(resolve" in caught.value.message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "passing", [Delay(2 * TIME), Status(500).for_seconds(2 * TIME), Drop().connections(1, 2)]
)
def test_failing_for_a_while_alone(passing: Fault, tmp_path: Path) -> None:
    with server() as cache, Director("/lab", [cache], faults=[passing]) as it:
        _well([it.pelican_url("/a")], tmp_path, [cache])


@pytest.mark.parametrize(
    ("lie", "words"), [("dead", "refuses connections"), ("empty", "404"), ("other", "sha256 is")]
)
def test_lying_alone(lie: str, words: str, tmp_path: Path) -> None:
    with server(OTHER) as other, Server(tls=Authority.get().good) as empty:
        named: Server | str = {"empty": empty, "other": other}.get(lie) or dead_url("", "https")
        with Director("/lab", [named]) as it, pytest.raises(TransferError) as caught:
            fetch(
                [it.pelican_url("/a")],
                str(tmp_path / "a"),
                checksum=CONTENT.checksum(),
                patience=1,
                grace=0.5,
            )
    assert words in caught.value.message
    assert list(tmp_path.iterdir()) == []
