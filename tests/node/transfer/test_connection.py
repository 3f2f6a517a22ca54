"""Connections: the first address that answers, names that are looked up in bounded time."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.lab import Authority, Held, Server, black_hole

from headway.node.errors import Stopped
from headway.node.transfer import connection, fetch, put
from headway.node.transfer.client import HttpClient
from headway.node.transfer.connection import Connection, Quiet, interleaved
from headway.node.transfer.http import ask
from headway.node.transfer.source import Fault

from .federation import clean

pytestmark = pytest.mark.usefixtures(clean.__name__)
__all__ = ["clean"]

DATA = Held(os.urandom(100_000))
NONE = socket.AddressFamily(socket.AF_APPLETALK)  # of which no machine makes a socket any more


def named(
    patch: pytest.MonkeyPatch, *addresses: tuple[socket.AddressFamily, tuple[object, ...]]
) -> None:
    """Let the name service know `two.invalid` by these addresses."""
    real = socket.getaddrinfo

    def look_up(host: str, port: int, **more: int) -> list[tuple[object, ...]]:
        if host != "two.invalid":
            return real(host, port, **more)  # type: ignore[return-value]
        if more.get("flags"):
            raise socket.gaierror(socket.EAI_NONAME, "not a number")
        return [(family, socket.SOCK_STREAM, 6, "", at) for family, at in addresses]

    patch.setattr(socket, "getaddrinfo", look_up)


@contextlib.contextmanager
def dead_ipv6() -> Iterator[tuple[object, ...]]:
    """An IPv6 address of this machine where a connect neither succeeds nor fails."""
    try:
        place = socket.create_server(("::1", 0), family=socket.AF_INET6, backlog=0)
    except OSError:
        pytest.skip("this machine has no IPv6")
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(place).getsockname()
        for _ in range(8):
            filler = stack.enter_context(socket.socket(socket.AF_INET6))
            filler.settimeout(0.05)
            with contextlib.suppress(TimeoutError):
                filler.connect(address)
                continue
            break
        yield address


@pytest.mark.parametrize("dead", ["IPv6", "IPv4", "no such family", "refused"])
def test_one_dead_address_beside_a_live_one(
    dead: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Downloads, uploads and questions alike; 5 s for each connection once."""
    with contextlib.ExitStack() as stack:
        it = stack.enter_context(Server({"/a": DATA}))
        first: tuple[socket.AddressFamily, tuple[object, ...]] = (NONE, ("x", 1))
        if dead == "IPv6":
            first = socket.AF_INET6, stack.enter_context(dead_ipv6())
        elif dead == "IPv4":
            host, _, port = stack.enter_context(black_hole()).rpartition("//")[2].rpartition(":")
            first = socket.AF_INET, (host, int(port))
        elif dead == "refused":
            with socket.create_server(("127.0.0.1", 0)) as gone:
                first = socket.AF_INET, gone.getsockname()
        named(monkeypatch, first, (socket.AF_INET, it.address))
        url = f"http://two.invalid:{it.address[1]}/a"
        begin = time.monotonic()
        assert ask("GET", url).status == 200
        assert time.monotonic() - begin < 4
        fetch([url], str(tmp_path / "a"))
        assert DATA.fault(tmp_path / "a") is None
        put(str(tmp_path / "a"), url.replace("/a", "/b"))
        assert it.store["/b"].content.size == DATA.size
        assert time.monotonic() - begin < 6


def test_a_host_none_of_whose_addresses_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CONNECT", 0.5)
    with black_hole() as hole:
        host, _, port = hole.rpartition("//")[2].rpartition(":")
        named(monkeypatch, *[(socket.AF_INET, (host, int(port)))] * 3, (NONE, ("x", 1)))
        begin = time.monotonic()
        with pytest.raises(Fault, match=r"two\.invalid:80 did not accept a connection"):
            ask("GET", "http://two.invalid/")
        assert time.monotonic() - begin < 3
    named(monkeypatch, (NONE, ("x", 1)))
    with pytest.raises(Fault, match="cannot be reached"):
        ask("GET", "http://two.invalid/")


def test_families_take_turns() -> None:
    six = [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", (f"::{n}",)) for n in range(3)]
    four = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1",))]
    found = [*six, *four]
    assert interleaved(found) == [six[0], four[0], six[1], six[2]]
    assert interleaved([]) == []


def test_a_name_service_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    real = socket.getaddrinfo

    def hang(host: str, port: int, **more: int) -> object:
        if not more.get("flags"):
            over.wait(20)
        return real(host, port, **more)

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    try:
        client = HttpClient("http://slow.invalid/a")
        threading.Timer(0.3, client.abort).start()
        begin = time.monotonic()
        with pytest.raises(Fault, match="given up"):
            client.open(0, 10)
        with pytest.raises(Stopped):
            ask("GET", "http://slow.invalid/a", should_stop=lambda: True)
        monkeypatch.setattr(connection, "CONNECT", 0.3)
        with pytest.raises(Fault, match=r"not answer for slow\.invalid"):
            HttpClient("http://slow.invalid/a").open(0, 10)
        assert time.monotonic() - begin < 4
    finally:
        over.set()


@pytest.mark.parametrize("host", ["a..b", "x" * 70 + ".org", "\u2603" * 70, "[::zz]", "-"])
def test_odd_hosts_are_told_in_words(host: str) -> None:
    with pytest.raises(Fault) as caught:
        Connection(f"http://{host}/").connect()
    assert "Error" not in str(caught.value)


@pytest.mark.parametrize("which", ["expired", "wrong_host", "unknown"])
def test_a_bad_certificate_is_there_to_stay(which: str) -> None:
    with Server({"/a": DATA}, tls=getattr(Authority.get(), which)) as it:
        for attempt in (
            lambda: ask("GET", it.url("/a")),
            lambda: HttpClient(it.url("/a")).open(0, 9),
        ):
            with pytest.raises(Fault, match="certificate") as caught:
                attempt()
            assert caught.value.lasting and caught.value.phase == "TLS"
        assert it.requests == []


def test_a_cut_connection_is_no_end_of_a_body() -> None:
    """Nothing but the end of the connection tells where this body ends."""
    answered = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(1000)
                peer.sendall(b"HTTP/1.0 200 OK\r\n\r\nhello")
                answered.wait(10)
                client.abort()
                peer.recv(1000)

        client = HttpClient(f"http://127.0.0.1:{listener.getsockname()[1]}/x")
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with contextlib.closing(client):
            client.open(0, None)
            assert client.ends_anywhere
            answered.set()
            view = memoryview(bytearray(100))
            with pytest.raises(Fault, match="given up"):
                while True:
                    with contextlib.suppress(Quiet):
                        assert client.read_into(view)
        thread.join(10)
