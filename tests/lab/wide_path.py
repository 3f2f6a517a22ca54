"""A wide-area path in a process of its own: every connection through it is delayed and limited.

A connect costs one round trip more, data is half a round trip under way in each direction, and no
connection carries more than `rate` bytes per second towards the client. With `slow_start` each
begins with ten packets per round trip and doubles, as TCP does. Bytes are moved in large pieces by
one thread that sleeps until something is due: 200 MB/s take about a fifth of a core.
"""

from __future__ import annotations

import collections
import contextlib
import math
import selectors
import socket
import subprocess
import sys
import time
from pathlib import Path

from .addresses import listen

_PROGRAM = "import sys; from tests.lab.wide_path import main; main(sys.argv[1:])"
_PIECE = 1 << 18
_TICK = 0.004  # seconds that a due piece may wait for others
_INITIAL = 10 * 1448  # bytes in the first round trip of slow start


class WidePath:
    """The path to one server; use it in a `with` block, and its `url` in place of the server's."""

    def __init__(
        self,
        address: tuple[str, int],
        *,
        delay: float = 0.040,
        rate: float = 25e6,
        slow_start: bool = True,
    ) -> None:
        self._arguments = [address[0], str(address[1]), str(delay), str(rate), str(int(slow_start))]

    def __enter__(self) -> WidePath:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *self._arguments],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        host, port = self.process.stdout.readline().split()
        self.address = host, int(port)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate()  # the end of its input is the end of the path

    def url(self, url: str) -> str:
        """The same URL, by way of this path."""
        scheme, _, rest = url.partition("://")
        return f"{scheme}://{self.address[0]}:{self.address[1]}/{rest.partition('/')[2]}"


class _Way:
    """One direction of one connection: pieces under way, each with the time at which it is due."""

    def __init__(self, source: socket.socket, target: socket.socket, settings: _Settings) -> None:
        self.source, self.target = source, target
        self._settings = settings
        self._under_way: collections.deque[tuple[float, memoryview]] = collections.deque()
        self._held = 0
        self._free = 0.0  # when the next piece may be read
        self._window = float(_INITIAL)  # bytes per round trip
        self.over = False  # the source has said all
        self.done = False  # and the target has heard it
        self.blocked = False  # the target does not take more at the moment
        self.starved = False  # the source has nothing at the moment

    @property
    def full(self) -> bool:
        """Whether as much is under way as fits: TCP's window."""
        return self._held > 2 * self._settings.rate * self._settings.delay + _PIECE

    def read_time(self) -> float | None:
        return None if self.over or self.full else self._free

    def read(self, now: float, begin: float) -> bool:
        """Take what the source has, no more than the rate allows; False when it has nothing now."""
        rate = self._rate()
        most = max(1024, min(_PIECE, int(rate * 2 * _TICK)))
        try:
            piece = self.source.recv(most)
        except BlockingIOError:
            return False
        due = max(now, begin) + self._settings.delay / 2
        self.over = not piece
        self._free = max(now - _TICK, self._free) + len(piece) / rate
        # each acknowledged byte lets one more go: the window doubles per round trip
        self._window += math.log(2) * len(piece)
        self._held += len(piece)
        self._under_way.append((due, memoryview(piece)))
        return True

    def _rate(self) -> float:
        settings = self._settings
        if not settings.slow_start or not settings.delay:
            return settings.rate
        return min(settings.rate, self._window / settings.delay)

    def write_time(self) -> float | None:
        return self._under_way[0][0] if self._under_way and not self.blocked else None

    def write(self, now: float) -> None:
        """Hand over what is due."""
        while self._under_way and self._under_way[0][0] <= now + _TICK / 2:
            due, piece = self._under_way.popleft()
            if not piece:
                with contextlib.suppress(OSError):
                    self.target.shutdown(socket.SHUT_WR)
                self.done = True
                return
            try:
                sent = self.target.send(piece)
            except BlockingIOError:
                sent = 0
            self._held -= sent
            if sent < len(piece):
                self._under_way.appendleft((due, piece[sent:]))
                self.blocked = True
                return


class _Settings:
    def __init__(self, delay: float, rate: float, slow_start: bool) -> None:
        self.delay, self.rate, self.slow_start = delay, rate, slow_start


class _Pair:
    """A client's connection and the one to the server that belongs to it."""

    def __init__(self, client: socket.socket, server: socket.socket, settings: _Settings) -> None:
        self.begin = time.monotonic() + settings.delay  # the connect's own round trip
        self.sockets = client, server
        uphill = _Settings(settings.delay, max(settings.rate, 1e6), False)
        self.ways = _Way(client, server, uphill), _Way(server, client, settings)

    def close(self) -> None:
        for end in self.sockets:
            end.close()


class _Path:
    """The selector loop: readiness of sockets, and times at which pieces are due."""

    def __init__(self, target: tuple[str, int], settings: _Settings) -> None:
        self._target, self._settings = target, settings
        self._selector = selectors.DefaultSelector()
        self._listener = listen()
        self._pairs: set[_Pair] = set()
        self._wants: dict[socket.socket, int] = {}
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(sys.stdin, selectors.EVENT_READ)

    def run(self) -> None:
        print(*self._listener.getsockname(), flush=True)
        timeout: float | None = None
        while True:
            ready: dict[object, int] = {}
            for key, events in self._selector.select(timeout):
                ready[key.fileobj] = events
            if sys.stdin in ready:
                return
            if self._listener in ready:
                self._accept()
            now = time.monotonic()
            times = []
            for pair in list(self._pairs):
                try:
                    times += self._step(pair, ready, now)
                except OSError:  # one side has gone: the other learns it at once
                    self._drop(pair)
            # what is due soon waits for its neighbours, so that the loop does not spin
            timeout = max(_TICK, min(times) - time.monotonic()) if times else None

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        server = socket.socket()
        # what is under way shall be here, not in the buffers of a kernel that knows no delay
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _PIECE)
        try:
            server.connect(self._target)
        except OSError:
            server.close()
            client.close()
            return
        for end in (client, server):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._pairs.add(_Pair(client, server, self._settings))

    def _step(self, pair: _Pair, ready: dict[object, int], now: float) -> list[float]:
        """Move what can move; the times at which more may."""
        times = []
        for way in pair.ways:
            if ready.get(way.target, 0) & selectors.EVENT_WRITE:
                way.blocked = False
            # a socket that is watched and not ready has nothing; of the others nobody knows
            starved = way.starved and not ready.get(way.source, 0) & selectors.EVENT_READ
            while not starved and (begin := way.read_time()) is not None and begin <= now:
                starved = not way.read(now, pair.begin)
            way.starved = starved
            if (due := way.write_time()) is not None and due <= now + _TICK / 2:
                way.write(now)
            times += [t for t in (way.write_time(), way.read_time()) if t is not None and t > now]
        if all(way.done for way in pair.ways):
            self._drop(pair)
            return []
        for end in pair.sockets:
            reading = any(way.starved and not way.full for way in pair.ways if way.source is end)
            writing = any(way.blocked for way in pair.ways if way.target is end)
            self._want(end, selectors.EVENT_READ * reading | selectors.EVENT_WRITE * writing)
        return times

    def _want(self, end: socket.socket, wants: int) -> None:
        before = self._wants.get(end, 0)
        if wants == before:
            return
        if not before:
            self._selector.register(end, wants)
        elif not wants:
            self._selector.unregister(end)
        else:
            self._selector.modify(end, wants)
        self._wants[end] = wants

    def _drop(self, pair: _Pair) -> None:
        for end in pair.sockets:
            self._want(end, 0)
            self._wants.pop(end, None)
        pair.close()
        self._pairs.discard(pair)


def main(arguments: list[str]) -> None:
    host, port, delay, rate, slow_start = arguments
    settings = _Settings(float(delay), float(rate), bool(int(slow_start)))
    _Path((host, int(port)), settings).run()
