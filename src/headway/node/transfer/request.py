"""Requests: the head that is sent to a server, or to a proxy for the way to it."""

from __future__ import annotations

from base64 import b64encode

from headway.node.transfer.source import Fault
from headway.node.transfer.urls import ascii_target
from headway.node.version import VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from headway.node.transfer.urls import Route


def request(route: Route, method: str, headers: Mapping[str, str]) -> bytes:
    """The head of a request for the route's target; a token among the headers beats a password."""
    through = route.proxy_host is not None and not route.tls
    fields = {
        "Host": route.host_header,
        "User-Agent": f"headway/{VERSION}",
        **basic("Authorization", route.userinfo),
        **(basic("Proxy-Authorization", route.proxy_userinfo) if through else {}),
        **headers,
    }
    target = ascii_target(route.absolute if through else route.target)
    return _head(f"{method} {target} HTTP/1.1", fields)


def tunnel(route: Route) -> bytes:
    """The head that asks a proxy for a way through to the route's host."""
    host = f"[{route.host}]" if ":" in route.host else route.host
    place = f"{host}:{route.port}"
    fields = {"Host": place, **basic("Proxy-Authorization", route.proxy_userinfo)}
    return _head(f"CONNECT {place} HTTP/1.1", fields)


def basic(field: str, userinfo: str | None) -> dict[str, str]:
    """The header that carries a user's name and password, if there are any."""
    if userinfo is None:
        return {}
    return {field: f"Basic {b64encode(userinfo.encode()).decode('ascii')}"}


def _head(first: str, fields: Mapping[str, str]) -> bytes:
    lines = [first, *(f"{name}: {value}" for name, value in fields.items())]
    if any(mark in line for line in lines for mark in "\r\n\0"):
        raise Fault("the request would hold a line break", retryable=False, settled=True)
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")
