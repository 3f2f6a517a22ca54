"""TLS, the director and the wide path."""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.lab import (
    Authority,
    Delay,
    Director,
    Hang,
    Made,
    Server,
    Status,
    Truncate,
    WidePath,
    dead_url,
)
from tests.lab.client import CONTENT, MB, WHOLE, connect, get, seconds_since

# -- TLS, director, path


def test_tls() -> None:
    lab = Authority.get()
    with Server({"/a": CONTENT}, [Truncate(1000).requests(2)], tls=lab.good) as server:
        assert get(server.url("/a")).body == WHOLE
        assert get(server.url("/a")).how == "short"
    trusting = ssl.create_default_context(capath=str(lab.folder))
    with (
        Server({"/a": CONTENT}, tls=lab.good) as server,
        socket.create_connection(server.address) as plain,
        trusting.wrap_socket(plain, server_hostname=server.address[0]) as wrapped,
    ):
        assert wrapped.version() is not None
    for identity, words in (
        (lab.expired, "expired"),
        (lab.wrong_host, "IP address mismatch"),
        (lab.unknown, "unable to get local issuer"),
    ):
        with (
            Server({"/a": CONTENT}, tls=identity) as server,
            pytest.raises(ssl.SSLCertVerificationError, match=words),
        ):
            get(server.url("/a"))


def test_a_hang_comes_before_tls() -> None:
    with Server({"/a": CONTENT}, [Hang()], tls=Authority.get().good) as server:
        trusting = Authority.get().client_context()
        with (
            socket.create_connection(server.address, timeout=0.2) as plain,
            pytest.raises(TimeoutError),
        ):
            trusting.wrap_socket(plain, server_hostname=server.address[0])


def test_director() -> None:
    content = Made(5000)
    with (
        Server({"/lab/a": content}) as near,
        Server({"/lab/a": content}) as origin,
        Director("/lab", [near, dead_url("")], [origin], require_token=True) as director,
    ):
        found = json.loads(get(director.url("/.well-known/pelican-configuration")).body)
        assert found["director_endpoint"] == director.url("").rstrip("/")
        told = get(director.url("/lab/a"))
        assert (told.status, told.headers["Location"]) == (307, near.url("/lab/a"))
        assert told.headers["Server"].startswith("pelican/")
        links = told.headers["Link"].split(", ")
        assert links[0] == f'<{near.url("/lab/a")}>; rel="duplicate"; pri=1; depth=1'
        assert len(links) == 2 and "pri=2" in links[1]
        assert "namespace=/lab, require-token=true" in told.headers["X-Pelican-Namespace"]
        assert get(told.headers["Location"]).body == content.read(0, 5000)
        for url in (
            director.url("/api/v1.0/director/origin/lab/a"),
            director.url("/lab/a", query="directread"),
        ):
            assert get(url).headers["Location"].startswith(origin.url("/lab/a"))
        assert get(director.url("/elsewhere/a")).status == 404
        director.objects = {"/lab/b"}
        unknown = get(director.url("/lab/a"))
        assert (unknown.status, unknown.headers["Server"]) == (404, "pelican/7.17.0")
        director.faults = [Status(404, server="nginx"), Delay(0.1)]
        begin = time.monotonic()
        between = get(director.url("/lab/a"))
        assert (between.status, between.headers["Server"]) == (404, "nginx")
        assert seconds_since(begin) >= 0.1
        host, port = director.address
        assert director.pelican_url("/a") == f"pelican://{host}:{port}/lab/a"


def quickest(act: Callable[[], None], enough: float) -> float:
    """Seconds of the quickest of some tries: a busy machine makes each of them longer."""
    least = math.inf
    for _ in range(8):
        begin = time.monotonic()
        act()
        least = min(least, seconds_since(begin))
        if least < enough:
            break
    return least


def used(path: WidePath) -> float:
    """Seconds of a processor that the path has taken."""
    ticks = Path(f"/proc/{path.process.pid}/stat").read_text().split()[13:15]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def test_wide_path() -> None:
    content = Made(2 * MB)
    with Server({"/a": content}) as server:
        with WidePath(server.address, delay=0.1, rate=4 * MB) as path:
            url, before = path.url(server.url("/a")), used(path)

            def connect_and_ask() -> None:
                with contextlib.closing(connect(url)) as client:
                    assert get(url, (0, 1), connection=client).status == 206

            assert 0.2 <= quickest(connect_and_ask, 2) < 2  # connect, then question and answer
            with contextlib.closing(connect(url)) as client:

                def ask() -> None:
                    assert get(url, (0, 1), connection=client).status == 206

                def ask_for_all() -> None:
                    assert get(url, connection=client).body == content.read(0, content.size)

                ask()
                assert 0.1 <= quickest(ask, 2) < 2
                assert 0.5 <= quickest(ask_for_all, 5) < 5
            assert used(path) - before < 0.3
        assert path.process.returncode == 0
    with WidePath(server.address) as path, pytest.raises(OSError):
        get(path.url("http://127.0.0.1:1/a"))  # nobody behind it
