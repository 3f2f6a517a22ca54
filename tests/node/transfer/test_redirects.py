"""Where servers send us, and what comes along: nonsense is a fault, and a token stays behind."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from tests.lab import Authority, Director, Made, Redirect, Server

from headway.node.errors import TransferError
from headway.node.transfer import federation, fetch, put
from headway.node.transfer.client import HttpClient
from headway.node.transfer.discovery import examine
from headway.node.transfer.federation import Offer
from headway.node.transfer.heads import MOST_REDIRECTS, followed
from headway.node.transfer.source import Fault
from headway.node.transfer.upload import Delivery

from .federation import TRACER, clean, jwt

pytestmark = pytest.mark.usefixtures(clean.__name__, "quick")
__all__ = ["clean"]

CONTENT = Made(1 << 20, seed=3)
NONSENSE = ["http://[", "//[x", "ssh://h/x", "http://a b/", "http://h:99999/"]


@pytest.mark.parametrize("location", NONSENSE)
def test_nonsense_beside_a_healthy_mirror(location: str, tmp_path: Path) -> None:
    path = tmp_path / "a"
    with Server(faults=[Redirect(location)]) as lost, Server({"/a": CONTENT}) as mirror:
        fetch([lost.url("/a"), mirror.url("/a")], str(path))
    assert CONTENT.fault(path) is None


@pytest.mark.parametrize("location", NONSENSE)
def test_nonsense_alone(location: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"data")
    with Server(faults=[Redirect(location)]) as lost:
        for attempt in (
            lambda: fetch([lost.url("/a")], str(tmp_path / "a"), patience=0.5),
            lambda: put(str(file), lost.url("/a"), rounds=1),
        ):
            with pytest.raises(TransferError) as caught:
                attempt()
            assert "redirects to nowhere" in caught.value.message
        said = examine(Offer(lost.url("/a"))).fault
    assert said is not None and "redirects to nowhere" in said.words


@pytest.mark.parametrize("way", ["http://h/x", "HTTP://h/x", "file:///etc/passwd", "FILE:/etc/x"])
def test_out_of_tls_in_any_spelling(way: str) -> None:
    for url in ("https://h/a", "HTTPS://h/a"):
        with pytest.raises(Fault) as caught:
            followed(url, way)
        assert "which is refused" in caught.value.words and not caught.value.retryable


def test_an_error_that_nobody_thought_of_is_not_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stumble(*_: object, **__: object) -> list[Offer]:
        raise ZeroDivisionError

    monkeypatch.setattr(federation, "resolve", stumble)
    with pytest.raises(TransferError) as caught:
        fetch(["pelican://h/a"], str(tmp_path / "a"), patience=0.3)
    assert "ZeroDivisionError" in caught.value.message and caught.value.retryable


def test_a_token_does_not_go_where_a_cache_redirects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BEARER_TOKEN", jwt())
    tls, path = Authority.get().good, tmp_path / "a"
    with (
        Server({"/x": CONTENT}, tls=tls) as elsewhere,
        Server(tls=tls, faults=[Redirect(elsewhere.url("/x"))]) as cache,
        Director("/lab", [cache], require_token=True) as it,
    ):
        fetch([it.pelican_url("/a")], str(path))
        assert cache.saw(TRACER)
        assert elsewhere.sent and not elsewhere.saw(TRACER)
    assert CONTENT.fault(path) is None


@pytest.mark.parametrize("length", [10, 11])
def test_a_chain_is_followed_as_far_as_the_words_say(length: int, tmp_path: Path) -> None:
    assert MOST_REDIRECTS == 10
    chain = [Redirect(f"/{n + 1}").on(f"/{n}") for n in range(length)]
    with Server({f"/{length}": CONTENT}, chain) as it:
        health = examine(Offer(it.url("/0")))
        if length == 10:
            fetch([it.url("/0")], str(tmp_path / "a"))
            assert CONTENT.fault(tmp_path / "a") is None
            assert health.fault is None
            return
        client = HttpClient(it.url("/0"))
        with (
            contextlib.closing(client),
            pytest.raises(Fault, match="more than 10 redirects") as caught,
        ):
            client.open(0, 10)
        assert caught.value.lasting
        assert health.fault is not None and "more than 10 redirects" in health.fault.words


def test_a_loop_is_told_at_once(tmp_path: Path) -> None:
    round_and_round = [Redirect("/b").on("/a"), Redirect("/a").on("/b")]
    file = tmp_path / "file"
    file.write_bytes(b"data")
    with Server(faults=round_and_round) as it:
        client = HttpClient(it.url("/a"))
        for attempt in (
            lambda: client.open(0, 10),
            lambda: Delivery(str(file), it.url("/a")).put(),
        ):
            with contextlib.closing(client), pytest.raises(Fault, match="in a loop") as caught:
                attempt()
            assert caught.value.lasting
        assert len(it.requests) == 4
