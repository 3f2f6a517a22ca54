"""URLs: what may be shown of them, and which way leads to their host."""

from __future__ import annotations

import os
from urllib.parse import SplitResult, urlsplit

DEFAULT_PORTS = {"http": 80, "https": 443}


class Route:
    """The way to a URL's host: straight, or through the proxy that the environment names."""

    def __init__(self, url: str) -> None:
        parts = split(url)
        self.tls = parts.scheme == "https"
        self.host = parts.hostname or ""
        self.port = parts.port or DEFAULT_PORTS.get(parts.scheme, 0)
        self.target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self.userinfo = _userinfo(parts)
        proxy = _proxy(parts.scheme, parts.netloc.rpartition("@")[2])
        self.proxy_host = proxy.hostname if proxy else None
        self.proxy_port = (proxy.port or 3128) if proxy else None
        self.proxy_userinfo = _userinfo(proxy) if proxy else None
        shown_port = "" if self.port == DEFAULT_PORTS.get(parts.scheme) else f":{self.port}"
        bracketed = f"[{self.host}]" if ":" in self.host else self.host
        self.host_header = bracketed + shown_port
        self.absolute = f"{parts.scheme}://{self.host_header}{self.target}"

    @property
    def first_hop(self) -> tuple[str, int]:
        """Whom to connect to."""
        if self.proxy_host is not None and self.proxy_port is not None:
            return self.proxy_host, self.proxy_port
        return self.host, self.port


def split(url: str) -> SplitResult:
    """The parts of a URL; ValueError in words when it is none that the engine can use."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https", "file"):
        raise ValueError(f"{shown(url)} is neither http, https nor file")
    if any(ord(c) <= 32 or ord(c) == 127 for c in url):
        raise ValueError(f"{shown(url)} holds white space; write it as %20")
    if parts.scheme == "file":
        if parts.hostname not in (None, "localhost") or not parts.path.startswith("/"):
            raise ValueError(f"{shown(url)} does not name a file of this node")
    elif not parts.hostname or parts.port == 0:
        raise ValueError(f"{shown(url)} names no host")
    return parts


def shown(url: str) -> str:
    """The URL as messages may show it: without query, fragment and user information."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        text = f"{parts.scheme}://{host}{parts.path}" if parts.scheme else parts.path
    except ValueError:
        return "a malformed URL"
    return "".join(c if c.isprintable() else "?" for c in text)


def host_of(url: str) -> str:
    """The host alone, for records."""
    try:
        return urlsplit(url).hostname or "localhost"
    except ValueError:
        return "?"


def _userinfo(parts: SplitResult) -> str | None:
    from urllib.parse import unquote

    if parts.username is None:
        return None
    return f"{unquote(parts.username)}:{unquote(parts.password or '')}"


def _proxy(scheme: str, host: str) -> SplitResult | None:
    from urllib.request import proxy_bypass

    lower, upper = f"{scheme}_proxy", f"{scheme.upper()}_PROXY"
    # HTTP_PROXY in capitals can be forged by a client in CGI, so only the lower-case name counts
    value = os.environ.get(lower) or (os.environ.get(upper) if scheme == "https" else None)
    value = value or os.environ.get("all_proxy")  # noqa: SIM112
    if not value or proxy_bypass(host):
        return None
    parts = urlsplit(value if "://" in value else f"http://{value}")
    return parts if parts.hostname and parts.scheme == "http" else None
