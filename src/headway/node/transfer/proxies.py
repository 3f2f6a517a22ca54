"""Proxies: which one the environment wants between this node and a host, if any."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote, urlsplit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_PORT = 3128


class Proxy:
    """An HTTP proxy; `userinfo` is secret."""

    def __init__(self, host: str, port: int, userinfo: str | None, variable: str) -> None:
        self.host, self.port, self.userinfo = host, port, userinfo
        self.variable = variable  # of the environment, that names it

    def __repr__(self) -> str:
        return f"Proxy({self.host}:{self.port})"

    def __str__(self) -> str:
        return f"the proxy {self.host}:{self.port} (of {self.variable})"


class ProxyError(ValueError):
    """The environment names a proxy that cannot be used."""

    def __init__(self, variable: str, what: str) -> None:
        super().__init__(f"{variable} names {what}, and only http:// proxies are supported")
        self.remedy = (
            f"set {variable} to http://HOST:PORT, or name the host in no_proxy to do without one"
        )


def proxy_for(
    scheme: str, host: str, port: int, environ: Mapping[str, str] = os.environ
) -> Proxy | None:
    """The proxy that the environment wants between this node and a host.

    Args:
        scheme: Of the URL; no proxy leads to a file.
        host: The host, which `no_proxy` may except.
        port: Its port.
        environ: The environment.

    Returns:
        The proxy; None: connect to the host itself.

    Raises:
        ProxyError: The proxy is not one that can be used. To go past it in silence would be
            against the wish of whoever set the variable.
    """
    names = [f"{scheme}_proxy", f"{scheme.upper()}_PROXY", "all_proxy", "ALL_PROXY"]
    if "REQUEST_METHOD" in environ:
        names.remove(f"{scheme.upper()}_PROXY")  # in a CGI program a client can forge HTTP_PROXY
    variable = next((name for name in names if environ.get(name)), None)
    if variable is None or scheme == "file":
        return None
    if bypassed(host, port, environ.get("no_proxy") or environ.get("NO_PROXY") or ""):
        return None
    value = environ[variable].strip()
    try:
        parts = urlsplit(value if "://" in value else f"http://{value}")
        proxy_host, proxy_port = parts.hostname, parts.port or _PORT
    except ValueError:
        proxy_host = None
    if proxy_host is None:
        raise ProxyError(variable, "no host")
    if parts.scheme != "http":
        known = re.fullmatch("https|socks[45]?[ah]?", parts.scheme)
        kind = f"a proxy by {parts.scheme}://" if known else "a proxy of another kind"
        raise ProxyError(variable, kind)
    userinfo = None
    if parts.username is not None:
        userinfo = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return Proxy(proxy_host, proxy_port, userinfo, variable)


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
