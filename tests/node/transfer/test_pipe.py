"""The TLS pipe gives the bytes that were sent, however they are cut, and tells how they ended."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator

import pytest
from tests.lab import Authority

from headway.node.transfer.tls import TlsPipe

HOST = "127.0.0.1"


@contextlib.contextmanager
def served(
    talk: Callable[[ssl.SSLSocket], None],
    *,
    version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
    timeout: float | None = 10.0,
    cut: threading.Event | None = None,
) -> Iterator[TlsPipe]:
    """A pipe to a server that talks to whoever connects; the server closes when it has talked.

    `cut`: once it is set, the last bytes that come over the network are lost on the way.
    """
    context = Authority.get().good.context()
    context.minimum_version = context.maximum_version = version
    with socket.create_server((HOST, 0)) as listener:

        def serve() -> None:
            raw, _ = listener.accept()
            connection = context.wrap_socket(raw, server_side=True)
            with connection, contextlib.suppress(OSError):  # the pipe says no farewell of its own
                talk(connection)

        server = threading.Thread(target=serve, daemon=True)
        server.start()
        raw = socket.create_connection(listener.getsockname(), 10.0)
        if cut is not None:
            raw = relayed(raw, cut)
        raw.settimeout(timeout)
        pipe = TlsPipe(raw, Authority.get().client_context(), HOST)
        try:
            pipe.handshake()
            yield pipe
        finally:
            pipe.close()
            server.join(10.0)


def relayed(server: socket.socket, cut: threading.Event) -> socket.socket:
    """A connection to the same server, without the last hundred bytes that it sends."""
    near, far = socket.socketpair()

    def give() -> None:
        with far, server:
            while data := far.recv(1 << 16):
                server.sendall(data)

    def take() -> None:
        held = b""
        while data := server.recv(1 << 16):
            held += data
            keep = min(100, len(held)) if cut.is_set() else 0
            far.sendall(held[: len(held) - keep])
            held = held[len(held) - keep :]
        far.shutdown(socket.SHUT_RDWR)

    for each in (give, take):
        threading.Thread(target=suppressed, args=(each,), daemon=True).start()
    return near


def suppressed(call: Callable[[], None]) -> None:
    with contextlib.suppress(OSError):
        call()


def received(pipe: TlsPipe, size: int) -> bytes:
    buffer = bytearray(size)
    return bytes(buffer[: pipe.recv_into(memoryview(buffer))])


def read_all(pipe: TlsPipe, sizes: Callable[[], int]) -> bytes:
    """All bytes up to the farewell, each read into a buffer of another size."""
    got = bytearray()
    while True:
        view = memoryview(bytearray(sizes()))
        count = pipe.recv_into(view)
        if not count:
            return bytes(got)
        got += view[:count]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("timeout", [10.0, None], ids=["timeout", "blocking"])
@pytest.mark.parametrize("most_sent", [3, 5_000, 1 << 14, 300_000])
@pytest.mark.parametrize("most_read", [1_000, 70_000, 2 << 20])
def test_any_records_into_any_buffers(
    version: ssl.TLSVersion, timeout: float | None, most_sent: int, most_read: int
) -> None:
    chance = random.Random(f"{most_sent} {most_read}")
    content = chance.randbytes(min(1_000_000, 3_000 * most_sent))

    def talk(connection: ssl.SSLSocket) -> None:
        at = 0
        while at < len(content):
            piece = content[at : at + chance.randint(1, most_sent)]
            connection.sendall(piece)
            at += len(piece)
        connection.unwrap()

    reading = random.Random(most_read)
    with served(talk, version=version, timeout=timeout) as pipe:
        assert read_all(pipe, lambda: reading.randint(1, most_read)) == content


def test_a_slow_server_is_not_waited_for_once_something_is_here() -> None:
    go_on = threading.Event()

    def talk(connection: ssl.SSLSocket) -> None:
        connection.sendall(b"first")
        go_on.wait(10.0)
        connection.sendall(b"second")
        connection.unwrap()

    with served(talk) as pipe:
        assert received(pipe, 1000) == b"first"
        go_on.set()
        assert received(pipe, 1000) == b"second"
        assert received(pipe, 1000) == b""


def test_silence_is_a_timeout_and_nothing_is_lost() -> None:
    go_on = threading.Event()

    def talk(connection: ssl.SSLSocket) -> None:
        connection.sendall(b"first")
        go_on.wait(10.0)
        connection.sendall(b"second")

    with served(talk, timeout=0.1) as pipe:
        assert received(pipe, 1000) == b"first"
        with pytest.raises(socket.timeout):
            received(pipe, 1000)
        go_on.set()
        while True:
            with contextlib.suppress(socket.timeout):
                assert received(pipe, 1000) == b"second"
                break


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_an_end_without_a_farewell_is_told_after_the_last_byte(version: ssl.TLSVersion) -> None:
    content = random.Random(1).randbytes(200_000)
    with served(lambda connection: connection.sendall(content), version=version) as pipe:
        got = b""
        with pytest.raises(ssl.SSLEOFError):
            while True:
                got += received(pipe, 50_000)
        assert got == content


def test_half_a_record_is_no_bytes() -> None:
    """Somebody on the way lets through only the beginning of the server's last record."""
    content = random.Random(2).randbytes(100_000)
    begin = threading.Event()

    def talk(connection: ssl.SSLSocket) -> None:
        begin.wait(10.0)
        connection.sendall(content)

    with served(talk, cut=begin) as pipe:
        begin.set()
        got = b""
        with pytest.raises(ssl.SSLEOFError):
            while True:
                got += received(pipe, 30_000)
        assert 0 < len(got) < len(content)
        assert content.startswith(got)


def test_a_reset_is_told_as_such_after_what_came_before_it() -> None:
    ready, go_on = threading.Event(), threading.Event()

    def talk(connection: ssl.SSLSocket) -> None:
        connection.sendall(b"x" * 10_000)
        ready.wait(10.0)
        # closing with this option sends a reset
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
        go_on.set()

    with served(talk) as pipe:
        assert received(pipe, 10) == b"x" * 10
        assert received(pipe, 20_000) == b"x" * 9_990
        ready.set()
        go_on.wait(10.0)
        with pytest.raises((ConnectionResetError, ssl.SSLEOFError)):
            received(pipe, 10)


@pytest.mark.parametrize("kind", ["wrong_host", "unknown", "expired"])
def test_a_bad_certificate_is_refused_in_the_handshake(kind: str) -> None:
    identity = getattr(Authority.get(), kind)
    with socket.create_server((HOST, 0)) as listener:
        refused = []

        def serve() -> None:
            raw, _ = listener.accept()
            try:
                identity.context().wrap_socket(raw, server_side=True).recv(1)
            except OSError as error:
                refused.append(error)

        server = threading.Thread(target=serve, daemon=True)
        server.start()
        raw = socket.create_connection(listener.getsockname(), 10.0)
        pipe = TlsPipe(raw, Authority.get().client_context(), HOST)
        with contextlib.closing(pipe), pytest.raises(ssl.SSLCertVerificationError):
            pipe.handshake()
        server.join(10.0)
        assert refused  # it was told why


def test_a_reset_before_tls_begins_leaves_no_open_socket() -> None:
    with socket.create_server((HOST, 0)) as listener:
        raw = socket.create_connection(listener.getsockname(), 10.0)
        place = raw.fileno()
        other, _ = listener.accept()
        other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        other.close()
        select.select([raw], [], [], 10.0)
        with pytest.raises(OSError) as caught:
            TlsPipe(raw, Authority.get().client_context(), HOST)
        raw.close()
        with pytest.raises(OSError):
            os.fstat(place)  # though the error, which holds on to all that it met, is still there
        assert caught.value.errno == errno.ECONNRESET
