"""A plain client that says exactly what it got, and the content that the lab's own tests use."""

from __future__ import annotations

import contextlib
import http.client
import ssl
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

from tests.lab import Authority, Fault, Made, Server

MB = 1 << 20
CONTENT = Made(3 * MB + 123, seed=7)
WHOLE = CONTENT.read(0, CONTENT.size)
OTHER = Made(3 * MB + 123, seed=8)


class Got:
    """An answer, read to its end or to where it broke off."""

    def __init__(
        self, status: int, headers: http.client.HTTPMessage, body: bytes, how: str
    ) -> None:
        self.status, self.headers, self.body = status, headers, body
        self.how = how  # "whole", "short", "reset", "silent"


def get(
    url: str,
    range: tuple[int, int] | None = None,
    *,
    connection: http.client.HTTPConnection | None = None,
    method: str = "GET",
    body: bytes | None = None,
    timeout: float = 10,
    **headers: str,
) -> Got:
    """One request; a connection that is given stays open."""
    client = connection or connect(url, timeout)
    lines = {name.replace("_", "-"): value for name, value in headers.items()}
    if range:
        lines["Range"] = f"bytes={range[0]}-{range[1] - 1}"
    try:
        parts = urlsplit(url)
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        client.request(method, target, body, lines)
        answer = client.getresponse()
        data, how = b"", "whole"
        try:
            while piece := answer.read1(65536):
                data += piece
            if answer.length:  # http.client keeps quiet about it in read1
                how = "short"
            else:
                answer.read()  # nothing, but only now it knows that it is over
        except ConnectionResetError:
            how = "reset"
        except TimeoutError:
            how = "silent"
        except (http.client.IncompleteRead, ssl.SSLError):
            how = "short"
        return Got(answer.status, answer.headers, data, how)
    finally:
        if connection is None:
            client.close()


def connect(url: str, timeout: float = 10) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    assert parts.hostname is not None
    if parts.scheme == "http":
        return http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)
    trusting = Authority.get().client_context()
    return http.client.HTTPSConnection(
        parts.hostname, parts.port, timeout=timeout, context=trusting
    )


@contextlib.contextmanager
def sick(*faults: Fault) -> Iterator[tuple[Server, str]]:
    with Server({"/a": CONTENT, "/b": b"small"}, faults) as server:
        yield server, server.url("/a")


def seconds_since(begin: float) -> float:
    return time.monotonic() - begin
