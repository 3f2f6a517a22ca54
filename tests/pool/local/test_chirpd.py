"""The pool's end of chirp: only who shows an attempt's cookie is heard."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.node.record import Chirp
from headway.pool.local import supervisor
from headway.pool.local.supervisor import ChirpServer

from .house import wait


class Listener:
    """A chirp server in a thread, and what it heard."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        self.selector = selectors.DefaultSelector()
        self.server = ChirpServer(self.selector, lambda *line: self.lines.append(line))
        self.lock = threading.Lock()
        self._over = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._over:
            ready = self.selector.select(0.02)
            with self.lock:
                for key, _ in ready:
                    key.data()

    def close(self) -> None:
        self._over = True
        self._thread.join()
        self.server.close()
        self.selector.close()

    def connect(self, config: str) -> socket.socket:
        host, port, _ = config.split()
        return socket.create_connection((host, int(port)), timeout=60)


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.close()


def ask(connection: socket.socket, line: bytes) -> bytes:
    connection.sendall(line + b"\n")
    return connection.recv(100)


def test_the_agents_own_end_speaks_with_it(listener: Listener, tmp_path: Path) -> None:
    (tmp_path / ".chirp.config").write_text(listener.server.admit("3.1"))
    chirp = Chirp({"_CONDOR_SCRATCH_DIR": str(tmp_path)}, lambda _: None)
    assert chirp.send("headway a=b\\c  d")
    assert listener.lines == [("3.1", "headway a=b\\c  d")]
    listener.server.dismiss("3.1")
    assert not chirp.send("too late")
    chirp.close()


def test_a_wrong_cookie_is_not_heard(listener: Listener) -> None:
    config = listener.server.admit("0.1")
    with listener.connect(config) as connection:
        assert ask(connection, b"ulog hello") == b"-1\n"
        assert ask(connection, b"cookie wrong") == b"-1\n"
        assert ask(connection, b"ulog hello") == b"-1\n"
        assert ask(connection, b"cookie " + config.split()[2].encode()) == b"0\n"
        assert ask(connection, b"open /etc/passwd") == b"-7\n"
        assert ask(connection, b"ulog hello\r") == b"0\n"
        assert ask(connection, b"cookie wrong") == b"-1\n"
        assert ask(connection, b"ulog again") == b"-1\n"
    assert listener.lines == [("0.1", "hello")]


@pytest.mark.parametrize("junk", [b"\0\xff\xfe\n" * 50, b"\n\n\n", b"ulog\ncookie\n", b"\\\n"])
def test_junk_is_refused_and_others_are_heard(listener: Listener, junk: bytes) -> None:
    config = listener.server.admit("0.1")
    with listener.connect(config) as rude, listener.connect(config) as polite:
        rude.sendall(junk)
        assert ask(polite, b"cookie " + config.split()[2].encode()) == b"0\n"
        assert ask(polite, b"ulog fine") == b"0\n"
    assert listener.lines == [("0.1", "fine")]


def test_a_line_without_an_end_is_cut_off(listener: Listener) -> None:
    config = listener.server.admit("0.1")
    with listener.connect(config) as connection:
        connection.sendall(b"x" * 100_000)
        with contextlib.suppress(ConnectionResetError):  # it had not read all that was sent
            assert connection.recv(10) == b""


def test_who_breaks_off_is_forgotten(listener: Listener) -> None:
    config = listener.server.admit("0.1")
    for text in (b"", b"cook", b"cookie " + config.split()[2].encode() + b"\nulog half"):
        with listener.connect(config) as connection:
            connection.sendall(text)
    wait(lambda: not listener.server.connections)
    assert listener.lines == []
    assert len(listener.selector.get_map()) == 1


def test_strangers_cannot_use_up_what_may_be_open(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_MOST_STRANGERS", 5)
    config = listener.server.admit("0.1")
    with listener.connect(config) as known:
        assert ask(known, b"cookie " + config.split()[2].encode()) == b"0\n"
        strangers = [listener.connect(config) for _ in range(30)]
        wait(lambda: strangers[24].recv(1) == b"")
        wait(lambda: len(listener.server.connections) <= 6)
        assert ask(known, b"ulog still here") == b"0\n"
        for stranger in strangers:
            stranger.close()
