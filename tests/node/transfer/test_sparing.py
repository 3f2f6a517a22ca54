"""Requests and connections are spared: where each costs much, and where many clients share one."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from tests.lab import Crowded, Delay, Made, Rate, Server

from headway.node.transfer import fetch
from headway.node.transfer.client import HttpClient, IdleClients
from headway.node.transfer.source import Fault, Source

MB = 1 << 20
SIZE = 24 * MB


def test_a_slow_answer_is_asked_for_few_times(tmp_path: Path) -> None:
    content = Made(SIZE, seed=5)
    with Server({"/a": content}, [Delay(0.3), Rate(60 * MB, scope="server")]) as server:
        fetch([server.url("/a")], str(tmp_path / "a"), connections=4, per_source=4)
        assert content.fault(tmp_path / "a") is None
        assert len(server.ranges) <= 6


def test_the_question_for_a_digest_leaves_its_connection_to_a_lane(tmp_path: Path) -> None:
    content = Made(SIZE, seed=5)
    with Server({"/a": content}, [Delay(0.1), Rate(12 * MB, scope="server")]) as server:
        fetch([server.url("/a")], str(tmp_path / "a"), size=SIZE, connections=2, per_source=2)
        assert content.fault(tmp_path / "a") is None
        asked = next(each for each in server.requests if each.method == "HEAD")
        brought = [each.connection for each in server.requests if each.method == "GET"]
        assert asked.connection == 2 and 2 in brought
        assert server.connections_max == 2


def test_a_connection_that_has_brought_its_share_is_not_another_lanes() -> None:
    """Where each connection gives so much and no more, a fresh one is worth its opening."""

    class Open(HttpClient):
        idle = True

    idle, source = IdleClients(), Source("http://127.0.0.1/a", key=1)
    used, unused = Open(source.url, None), Open(source.url, None)
    assert idle.keep(source, used) and idle.unused(source) is None
    assert not idle.keep(source, unused, unused=True)
    assert idle.take([source]) == {1: used}
    assert idle.keep(source, unused, unused=True) and idle.unused(source) is unused
    idle.close(but=[unused])
    assert idle.unused(source) is None and not idle.take([source])


def test_one_connection_asks_once(tmp_path: Path) -> None:
    content = Made(SIZE, seed=5)
    with Server({"/a": content}) as server:
        fetch([server.url("/a")], str(tmp_path / "a"), size=SIZE, connections=1, per_source=1)
        assert content.fault(tmp_path / "a") is None
        assert server.ranges == [f"bytes=0-{SIZE - 1}"]


def test_no_connection_outlives_its_transfer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next file's would be one more than a server shall have."""
    close = HttpClient.close

    def slowly(client: HttpClient) -> None:
        if threading.current_thread().name.startswith("lane"):
            time.sleep(0.5)
        close(client)

    monkeypatch.setattr(HttpClient, "close", slowly)
    monkeypatch.setattr(IdleClients, "keep", lambda *_, **__: False)
    content = Made(MB, seed=5)
    with Server({"/a": content}) as server:
        fetch([server.url("/a")], str(tmp_path / "a"), checksum=content.checksum())
        assert (server.connections_max, server.connections_now) == (1, 0)


def test_a_second_connection_is_not_opened_at_once(tmp_path: Path) -> None:
    content = Made(SIZE, seed=5)
    with Server({"/a": content}, [Rate(24 * MB, scope="server")]) as server:
        fetch([server.url("/a")], str(tmp_path / "a"), checksum=content.checksum())
        assert content.fault(tmp_path / "a") is None
        assert server.connections_max == 1


def test_a_refused_connection_leaves_the_other_at_work(tmp_path: Path) -> None:
    content = Made(SIZE, seed=5)
    strain = [Crowded(1, retry_after="30"), Rate(24 * MB, scope="server")]
    with Server({"/a": content}, strain) as server:
        done = fetch(
            [server.url("/a")],
            str(tmp_path / "a"),
            size=SIZE,
            checksum=content.checksum(),
            connections=2,
            per_source=2,
        )
        assert content.fault(tmp_path / "a") is None
        assert done.seconds < 10, "it did not wait as long as only the second one was told to"


def test_hesitation() -> None:
    source = Source("http://a.invalid/x", key=0, most=2, hesitation=3.0)
    assert source.allowed_now(100.0, 1e9) == 1
    source.gave(1, 100.0)
    assert source.allowed_now(102.0, 1e9) == 1
    assert source.allowed_now(103.0, 1e9) == 2
    assert source.allowed_now(103.0, 5.0) == 1, "it is over soon in any case"
    assert Source("http://a.invalid/x", key=0, most=4).allowed_now(0.0, 0.0) == 4


def test_a_strained_source_goes_on_with_what_flows() -> None:
    source = Source("http://a.invalid/x", key=0, most=4)
    source.strained(Fault("HTTP 503", strain=True, after=10.0), 100.0, 2)
    assert source.allowed == 2 and source.ready(100.0)
    source.gave(1, 125.0)
    assert source.allowed == 2, "what it asked for, and then a while"
    source.gave(1, 131.0)
    assert source.allowed == 3


def test_the_latency_is_that_of_a_connection_that_stands() -> None:
    source = Source("http://a.invalid/x", key=0)
    for seconds in (0.4, 0.1, 0.2):
        source.answered_after(seconds)
    assert 0.1 <= source.latency < 0.2


def test_the_last_question_takes_no_further_connection(tmp_path: Path) -> None:
    content = Made(SIZE, seed=5)
    with Server({"/a": content}) as server:
        fetch([server.url("/a")], str(tmp_path / "a"), connections=1, negotiate=False)
        assert content.fault(tmp_path / "a") is None
        assert [each.method for each in server.requests] == ["GET", "GET", "HEAD"]
        assert server.connections == 1
