"""Addresses on loopback: one for each server, one where nobody is, one that swallows connects."""

from __future__ import annotations

import contextlib
import itertools
import socket
from collections.abc import Iterator

FIRST, LAST = 2, 120  # 127.0.0.x; the lab's certificates name all of them
_numbers = itertools.cycle(range(FIRST, LAST + 1))


def listen(host: str | None = None, backlog: int = 256) -> socket.socket:
    """A listening socket at an address of its own, with a free port."""
    host = host or f"127.0.0.{next(_numbers)}"
    try:
        return socket.create_server((host, 0), backlog=backlog)
    except OSError:  # a system whose loopback has one address only
        return socket.create_server(("127.0.0.1", 0), backlog=backlog)


def dead_url(path: str = "/", scheme: str = "http") -> str:
    """A URL where connections are refused: its port was free a moment ago."""
    with listen() as place:
        host, port = place.getsockname()
    return f"{scheme}://{host}:{port}{path}"


@contextlib.contextmanager
def black_hole(scheme: str = "http") -> Iterator[str]:
    """A URL without a path at which a connect neither succeeds nor fails: the queue is full."""
    with listen(backlog=0) as place, _filled(place):
        address = place.getsockname()
        yield f"{scheme}://{address[0]}:{address[1]}"


@contextlib.contextmanager
def dead_ipv6(port: int) -> Iterator[str]:
    """The IPv6 address of this host, at whose port a connect neither succeeds nor fails.

    A name with this address and that of a server on 127.0.0.1 has a dead IPv6 beside a live IPv4.
    An OSError where the host has no IPv6, or the port is taken.
    """
    with (
        socket.create_server(("::1", port), family=socket.AF_INET6, backlog=0) as place,
        _filled(place),
    ):
        yield "::1"


@contextlib.contextmanager
def _filled(place: socket.socket) -> Iterator[None]:
    """The socket's queue of connections, full."""
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            filler = stack.enter_context(socket.socket(place.family))
            filler.settimeout(0.05)
            try:
                filler.connect(place.getsockname())
            except TimeoutError:
                break
        else:
            raise OSError("this system's queue of connections cannot be filled")
        yield
