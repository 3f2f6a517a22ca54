"""A server of the lab: sound unless its faults say otherwise, and it counts everything."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from .addresses import listen
from .answer import Answer, Case, Request
from .connection import Connection
from .content import Content
from .faults import Fault
from .store import NO_DIGESTS, Digests, Object, Store
from .tls import Identity

if TYPE_CHECKING:
    from typing_extensions import Self

_SEND_BUFFER = 1 << 18  # so that bytes sent are hardly more than bytes that arrived


class Server:
    """An HTTP(S) server on loopback; use it in a `with` block."""

    def __init__(
        self,
        objects: Mapping[str, Object | Content | bytes] | None = None,
        faults: Iterable[Fault] = (),
        *,
        tls: Identity | None = None,
        digests: Digests = NO_DIGESTS,
        trailers: bool = False,
        age: int | None = None,
        half_objects: bool = False,
        moves: bool = False,
        name: str = "lab/1.0",
        host: str | None = None,
        send_buffer: int | None = _SEND_BUFFER,
    ) -> None:
        self.store = Store(
            objects or {},
            digests,
            trailers=trailers,
            age=age,
            half_objects=half_objects,
            moves=moves,
        )
        self.context: ssl.SSLContext | None = tls.context() if tls else None
        self.name = name
        self.lock = threading.RLock()
        self.stopped = threading.Event()
        self.shared: dict[Any, Any] = {}
        self.sent = 0  # body bytes
        self.received = 0
        self.connections = 0  # so far
        self.connections_max = 0  # at once
        self._faults = list(faults)
        self._used: dict[Fault, int] = {}
        self._requests: list[Request] = []
        self._begin: float | None = None
        self._threads: dict[threading.Thread, Connection] = {}
        self._host, self._send_buffer = host, send_buffer

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self._listener = listen(self._host)
        if self._send_buffer is not None:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer)
        self.address: tuple[str, int] = self._listener.getsockname()
        self.wake, self._waker = socket.socketpair()
        self._acceptor = threading.Thread(target=self._accept, name=f"lab {self.address}")
        self._acceptor.start()

    def stop(self) -> None:
        """End every connection and thread; an error when one does not end."""
        if self.stopped.is_set():
            return
        self.stopped.set()
        self._waker.send(b"x")  # stays there: all who wait see it
        self._acceptor.join()
        with self.lock:
            left = dict(self._threads)
        for connection in left.values():
            connection.interrupt()
        deadline = time.monotonic() + 10
        for thread in left:
            thread.join(max(0.0, deadline - time.monotonic()))
        for end in (self._listener, self.wake, self._waker):
            end.close()
        if any(thread.is_alive() for thread in left):
            raise RuntimeError(f"connections of the lab's server at {self.address} do not end")

    def url(self, path: str = "/", *, query: str = "") -> str:
        scheme = "https" if self.context else "http"
        host, port = self.address
        rest = f"?{query}" if query else ""
        return f"{scheme}://{host}:{port}{quote('/' + path.lstrip('/'), safe='/%')}{rest}"

    @property
    def faults(self) -> list[Fault]:
        with self.lock:
            return list(self._faults)

    @faults.setter
    def faults(self, faults: Iterable[Fault]) -> None:
        """Other faults from the next request on; answers under way go on as they are."""
        with self.lock:
            self._faults = list(faults)

    @property
    def requests(self) -> list[Request]:
        """All requests so far, in their order."""
        with self.lock:
            return list(self._requests)

    @property
    def ranges(self) -> list[str | None]:
        """What each GET asked for."""
        return [request.range for request in self.requests if request.method == "GET"]

    def saw(self, text: str) -> bool:
        """Whether any request carried this text: a token that was not meant for this server."""
        return any(
            text in request.target or any(text in value for value in request.headers.values())
            for request in self.requests
        )

    @property
    def connections_now(self) -> int:
        """Those whose client has not hung up."""
        with self.lock:
            return sum(each.open for each in self._threads.values())

    @property
    def seconds(self) -> float:
        """The server's clock: seconds since its first connection."""
        with self.lock:
            return time.monotonic() - self._begin if self._begin is not None else 0.0

    def answer(self, request: Request) -> Answer:
        """What a sound server says; a director says something else."""
        return self.store.answer(request)

    # -- for connections

    def note(self, method: str, target: str, headers: dict[str, str], connection: int) -> Request:
        with self.lock:
            number = len(self._requests) + 1
            request = Request(number, connection, self.seconds, method, target, headers)
            self._requests.append(request)
            return request

    def shape(self, case: Case, answer: Answer, *, at_accept: bool = False) -> None:
        """Let all faults that hold change the answer."""
        with self.lock:
            for fault in self._faults:
                if fault.at_accept != at_accept:
                    continue
                used = self._used.get(fault, 0)
                if fault.when.holds(case, used) and fault.shape(case, answer):
                    self._used[fault] = used + 1

    def _accept(self) -> None:
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        poll.register(self.wake, select.POLLIN)
        while not self.stopped.is_set():
            poll.poll()
            if self.stopped.is_set():
                return
            with contextlib.suppress(OSError):
                sock, _ = self._listener.accept()
                self._welcome(sock)

    def _welcome(self, sock: socket.socket) -> None:
        with self.lock:
            if self._begin is None:
                self._begin = time.monotonic()
            self.connections += 1
            connection = Connection(self, sock, self.connections)
            thread = threading.Thread(target=connection.run, name=f"lab {self.address}")
            self._threads = {t: c for t, c in self._threads.items() if t.is_alive()}
            self._threads[thread] = connection
            self.connections_max = max(self.connections_max, self.connections_now)
            thread.start()
