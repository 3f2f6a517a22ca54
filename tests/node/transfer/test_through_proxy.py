"""Through a real proxy: https by CONNECT, http by absolute URLs, with and without its blessing."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.lab import Authority, Held, Server, dead_url

from headway.node.errors import TransferError
from headway.node.transfer import fetch, put
from headway.node.transfer.client import HttpClient
from headway.node.transfer.federation import resolve
from headway.node.transfer.http import ask
from headway.node.transfer.source import Fault
from headway.node.transfer.upload import Delivery

from .federation import TRACER, Registry, clean

pytestmark = pytest.mark.usefixtures(clean.__name__)
__all__ = ["clean"]

DATA = Held(os.urandom(300_000))


class Proxy:
    """An HTTP proxy on loopback: it tunnels, forwards, or refuses, and remembers the heads."""

    def __init__(self) -> None:
        self.heads: list[str] = []
        self.refuse = 0  # the status of a refusal
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://me:{TRACER}@127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            data = b""
            while b"\r\n\r\n" not in data:
                piece = client.recv(65536)
                if not piece:
                    return
                data += piece
            head, _, rest = data.partition(b"\r\n\r\n")
            self.heads.append(head.decode("latin-1"))
            if self.refuse:
                client.sendall(b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % self.refuse)
                return
            method, target, _ = self.heads[-1].split("\r\n")[0].split(" ")
            host = target if method == "CONNECT" else target.split("/")[2]
            name, _, port = host.rpartition(":")
            with socket.create_connection((name, int(port)), 5) as server:
                server.settimeout(None)
                if method == "CONNECT":
                    client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                else:
                    path = target[target.index(host) + len(host) :]
                    lines = [line for line in head.split(b"\r\n") if not line.startswith(b"Proxy-")]
                    lines[0] = f"{method} {path} HTTP/1.1".encode()
                    server.sendall(b"\r\n".join(lines) + b"\r\n\r\n" + rest)
                back = threading.Thread(target=_pump, args=(server, client), daemon=True)
                back.start()
                _pump(client, server)
                back.join(10)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    made = Proxy()
    monkeypatch.setenv("HTTPS_PROXY", made.url)
    monkeypatch.setenv("http_proxy", made.url)
    yield made
    made.close()


@pytest.mark.parametrize("tls", [True, False])
def test_everything_goes_through_it(proxy: Proxy, tls: bool, tmp_path: Path) -> None:
    identity = Authority.get().good if tls else None
    with Server({"/lab/a": DATA}, tls=identity, moves=True) as it:
        assert ask("GET", it.url("/lab/a")).status == 200
        fetch([it.url("/lab/a")], str(tmp_path / "a"), size=DATA.size)
        assert DATA.fault(tmp_path / "a") is None
        Delivery(str(tmp_path / "a"), it.url("/lab/b")).put()
        assert it.store["/lab/b"].content.size == DATA.size
        first = f"CONNECT {it.address[0]}:{it.address[1]}" if tls else "GET http://"
        assert proxy.heads[0].startswith(first)
        assert len(proxy.heads) >= 6
        assert all("Proxy-Authorization: Basic" in head for head in proxy.heads)
        assert not any("proxy-authorization" in request.headers for request in it.requests)


def test_directors_and_exceptions(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    with Registry("/lab", [dead_url("", "https")]) as it:
        assert resolve(it.pelican_url("/a"))
        assert len(proxy.heads) == 2
        monkeypatch.setenv("NO_PROXY", "127.0.0.0/8")
        assert resolve(it.pelican_url("/a"))
        assert len(proxy.heads) == 2


def test_a_proxy_that_refuses_or_is_gone(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy.refuse = 403
    with pytest.raises(Fault) as caught:
        ask("GET", dead_url("/x", "https"))
    assert "refuses to connect to" in caught.value.words
    assert "HTTPS_PROXY" in caught.value.remedy
    assert TRACER not in f"{caught.value} {caught.value.remedy}"
    monkeypatch.setenv("HTTPS_PROXY", dead_url("").replace("//", f"//me:{TRACER}@"))
    with pytest.raises(Fault) as caught:
        ask("GET", dead_url("/x", "https"))
    assert "HTTPS_PROXY" in caught.value.words  # who knows that a proxy is set at all?
    assert TRACER not in str(caught.value)
    assert "HTTPS_PROXY" in caught.value.remedy


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_password_that_is_missing_is_told_alike_by_all(
    proxy: Proxy, scheme: str, tmp_path: Path
) -> None:
    proxy.refuse = 407
    variable = "http_proxy" if scheme == "http" else "HTTPS_PROXY"
    url, file = dead_url("/x", scheme), tmp_path / "f"
    file.write_bytes(b"data")
    for attempt in (
        lambda: ask("GET", url),
        lambda: HttpClient(url).open(0, 10),
        lambda: Delivery(str(file), url).put(),
    ):
        with pytest.raises(Fault) as caught:
            attempt()
        fault = caught.value
        assert f"(of {variable})" in fault.words and "HTTP 407" in fault.words
        assert f"set {variable} to http://USER:PASSWORD@" in fault.remedy
        assert fault.lasting and not fault.retryable
        assert TRACER not in f"{fault} {fault.remedy}"
    begin = time.monotonic()
    with pytest.raises(TransferError, match="HTTP 407"):
        put(str(file), url)
    assert time.monotonic() - begin < 1


@pytest.mark.parametrize("kind", ["socks5h", "https"])
def test_a_proxy_that_is_not_supported_is_not_passed_by(
    kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("http_proxy", f"{kind}://me:{TRACER}@127.0.0.1:9")
    file = tmp_path / "f"
    file.write_bytes(b"data")
    with Server({"/a": DATA}) as it, Server({"/a": DATA}, tls=Authority.get().good) as mirror:
        begin = time.monotonic()
        for attempt in (
            lambda: fetch([it.url("/a")], str(tmp_path / "a")),
            lambda: put(str(file), it.url("/b")),
        ):
            with pytest.raises(TransferError) as caught:
                attempt()
            words = f"{caught.value.message} {caught.value.remedy}"
            assert f"http_proxy names a proxy by {kind}://" in words
            assert TRACER not in words
        assert it.connections == 0
        fetch([it.url("/a"), mirror.url("/a")], str(tmp_path / "a"))
        assert time.monotonic() - begin < 5
    assert DATA.fault(tmp_path / "a") is None


def test_a_dead_proxy_is_named_by_a_download(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dead = dead_url("")
    monkeypatch.setenv("http_proxy", dead)
    with pytest.raises(TransferError) as caught:
        fetch([dead_url("/a")], str(tmp_path / "a"), patience=0.5)
    assert f"the proxy {dead.rpartition('/')[2]} (of http_proxy) refuses" in caught.value.message
