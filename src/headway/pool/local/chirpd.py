"""The pool's end of chirp: the agent's lines on their way into the event log."""

from __future__ import annotations

import contextlib
import secrets
import selectors
import socket
from collections.abc import Callable

_LONGEST_LINE = 8192
_MOST_STRANGERS = 256  # connections that have shown no cookie yet
_OK, _NOT_AUTHENTICATED, _UNKNOWN = b"0\n", b"-1\n", b"-7\n"


class ChirpServer:
    """Listens on loopback; a line counts only where an attempt's cookie was shown."""

    def __init__(
        self, selector: selectors.BaseSelector, on_line: Callable[[str, str], None]
    ) -> None:
        self._selector = selector
        self._on_line = on_line
        self._cookies: dict[str, str] = {}
        self._connections: list[_Connection] = []  # oldest first
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._socket.setblocking(False)
        selector.register(self._socket, selectors.EVENT_READ, self._accept)

    def admit(self, owner: str) -> str:
        """The text of .chirp.config for one attempt."""
        cookie = secrets.token_hex(16)
        self._cookies[cookie] = owner
        host, port = self._socket.getsockname()
        return f"{host} {port} {cookie}\n"

    def dismiss(self, owner: str) -> None:
        """Its cookies are worth nothing from now on."""
        self._cookies = {c: who for c, who in self._cookies.items() if who != owner}
        for connection in [one for one in self._connections if one.owner == owner]:
            connection.close()

    def close(self) -> None:
        for connection in list(self._connections):
            connection.close()
        self._selector.unregister(self._socket)
        self._socket.close()

    def owner(self, cookie: str) -> str | None:
        return self._cookies.get(cookie)

    def say(self, owner: str, line: str) -> None:
        self._on_line(owner, line)

    def forget(self, connection: _Connection) -> None:
        self._connections.remove(connection)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            socket_, _ = self._socket.accept()
            socket_.setblocking(False)
            self._connections.append(_Connection(self, self._selector, socket_))
        # Who never says who he is must not use up all that may be open.
        strangers = [one for one in self._connections if one.owner is None]
        for connection in strangers[:-_MOST_STRANGERS]:
            connection.close()


class _Connection:
    def __init__(
        self, server: ChirpServer, selector: selectors.BaseSelector, connection: socket.socket
    ) -> None:
        self._server = server
        self._selector = selector
        self._socket = connection
        self.owner: str | None = None
        self._closed = False
        self._buffer = b""
        selector.register(connection, selectors.EVENT_READ, self._receive)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._selector.unregister(self._socket)
            self._socket.close()
            self._server.forget(self)

    def _receive(self) -> None:
        if self._closed:
            return
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        try:
            for line in lines:
                self._socket.sendall(self._answer(line.decode("utf-8", "replace")))
        except OSError:
            data = b""
        if not data or len(self._buffer) > _LONGEST_LINE:
            self.close()

    def _answer(self, line: str) -> bytes:
        command, _, argument = line.strip("\r").partition(" ")
        if command == "cookie":
            self.owner = self._server.owner(argument)
            return _OK if self.owner else _NOT_AUTHENTICATED
        if self.owner is None:
            return _NOT_AUTHENTICATED
        if command == "ulog":
            self._server.say(self.owner, _unescape(argument))
            return _OK
        return _UNKNOWN


def _unescape(argument: str) -> str:
    """Chirp escapes what would end a word with a backslash."""
    text, escaped = [], False
    for character in argument:
        if character == "\\" and not escaped:
            escaped = True
            continue
        text.append(character)
        escaped = False
    return "".join(text)
