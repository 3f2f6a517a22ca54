"""The origin as the last resort: asked for when no cache gives anything, and only then."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.lab import Authority, Fault, Hang, Made, Server, Silent, Status, dead_url

from headway.node.errors import TransferError
from headway.node.transfer import federation, fetch

from .federation import Registry, clean

pytestmark = pytest.mark.usefixtures(clean.__name__, "quick")
__all__ = ["clean"]

CONTENT = Made(6 << 20, seed=9)


def server(*faults: Fault) -> Server:
    return Server({"/lab/a": CONTENT}, faults, tls=Authority.get().good)


@pytest.mark.parametrize(
    "sick", [Status(404), Status(503), Hang("request"), Silent(after=2 << 20, scope="server")]
)
def test_caches_that_do_not_help(sick: Fault, tmp_path: Path) -> None:
    with (
        server(sick) as cache,
        server() as home,
        Registry("/lab", [dead_url("", "https"), cache], [home]) as it,
    ):
        begin = time.monotonic()
        fetch([it.pelican_url("/a")], str(tmp_path / "a"), checksum=CONTENT.checksum())
        assert time.monotonic() - begin < 10
        assert CONTENT.fault(tmp_path / "a") is None
        assert home.sent > 0
        asked = [request.path for request in it.requests]
        assert asked.count("/api/v1.0/director/origin/lab/a") == 1


def test_an_object_that_no_director_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(federation, "GRACE", 0.5)
    with Registry("/lab", [dead_url("", "https")], objects=[]) as it:
        begin = time.monotonic()
        with pytest.raises(TransferError) as caught:
            fetch([it.pelican_url("/a")], str(tmp_path / "a"))
        assert 0.5 < time.monotonic() - begin < 10
        assert not caught.value.retryable
        assert "knows no server" in caught.value.message
        assert 3 <= len(it.requests) - 1 <= 6  # repeated, and polite


def test_a_director_that_comes_back(tmp_path: Path) -> None:
    front = Status(502, server="nginx").for_seconds(1)
    with server() as cache, Registry("/lab", [cache], faults=[front]) as it:
        begin = time.monotonic()
        fetch([it.pelican_url("/a")], str(tmp_path / "a"), checksum=CONTENT.checksum())
        assert time.monotonic() - begin < 4
        assert len(it.requests) < 9


def test_an_origin_is_left_alone_while_caches_serve(tmp_path: Path) -> None:
    with server() as cache, server() as home, Registry("/lab", [cache], [home]) as it:
        fetch([it.pelican_url("/a")], str(tmp_path / "a"), checksum=CONTENT.checksum())
        assert CONTENT.fault(tmp_path / "a") is None
        assert home.requests == []
        assert [request.path for request in it.requests][1:] == ["/lab/a"]
