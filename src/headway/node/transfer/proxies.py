"""Proxies: which one the environment wants between this node and a host, if any."""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_PORT = 3128


class Proxy:
    """An HTTP proxy; `userinfo` is secret."""

    def __init__(self, host: str, port: int, userinfo: str | None) -> None:
        self.host, self.port, self.userinfo = host, port, userinfo

    def __repr__(self) -> str:
        return f"Proxy({self.host}:{self.port})"


def proxy_for(
    scheme: str, host: str, port: int, environ: Mapping[str, str] = os.environ
) -> Proxy | None:
    """The proxy to go through; None: straight, also past a proxy that cannot be used."""
    found = _named(scheme, host, port, environ)
    return found[1] if found else None


def proxy_words(scheme: str, host: str, port: int, environ: Mapping[str, str] = os.environ) -> str:
    """What a failure to connect should say about proxies; nothing when they play no part."""
    found = _named(scheme, host, port, environ)
    if found is None:
        return ""
    variable, proxy = found
    if proxy is None:
        return f"{variable} names a proxy that is not http://, so it was tried without one"
    return f"through the proxy {proxy.host}:{proxy.port} of {variable}"


def bypassed(host: str, port: int, no_proxy: str) -> bool:
    """Whether `no_proxy` excepts a host: names with all below them, addresses, networks, `*`."""
    host = host.lower().strip("[]").rstrip(".")
    for word in no_proxy.lower().replace(",", " ").split():
        if word == "*":
            return True
        if "/" in word:
            if _in_network(host, word):
                return True
            continue
        name, wanted = _port_of(word)
        if wanted not in (None, port):
            continue
        name = name.lstrip("*").lstrip(".").rstrip(".")
        if name and (host == name or host.endswith(f".{name}")):
            return True
    return False


def _named(
    scheme: str, host: str, port: int, environ: Mapping[str, str]
) -> tuple[str, Proxy | None] | None:
    """The variable that counts and its proxy; None: no variable does."""
    names = [f"{scheme}_proxy", f"{scheme.upper()}_PROXY", "all_proxy", "ALL_PROXY"]
    if "REQUEST_METHOD" in environ:
        names.remove(f"{scheme.upper()}_PROXY")  # in a CGI program a client can forge HTTP_PROXY
    variable = next((name for name in names if environ.get(name)), None)
    if variable is None or scheme == "file":
        return None
    except_for = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    if bypassed(host, port, except_for):
        return None
    value = environ[variable].strip()
    try:
        parts = urlsplit(value if "://" in value else f"http://{value}")
        if parts.scheme != "http" or not parts.hostname:
            return variable, None
        userinfo = None
        if parts.username is not None:
            userinfo = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        return variable, Proxy(parts.hostname, parts.port or _PORT, userinfo)
    except ValueError:
        return variable, None


def _port_of(word: str) -> tuple[str, int | None]:
    """host and port of an exception; an IPv6 address has colons of its own."""
    if word.startswith("["):
        name, _, rest = word[1:].partition("]")
        return name, int(rest[1:]) if rest[:1] == ":" and _is_port(rest[1:]) else None
    name, colon, port = word.rpartition(":")
    if colon and ":" not in name and _is_port(port):
        return name, int(port)
    return word, None


def _in_network(host: str, word: str) -> bool:
    import ipaddress

    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(word, strict=False)
    except ValueError:
        return False


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5
