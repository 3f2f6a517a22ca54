"""URLs: what they name, what messages may show of them, and the proxy on the way to their host."""

from __future__ import annotations

import contextlib
import os
import re
from urllib.parse import SplitResult, quote, unquote, urlsplit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_PORTS = {"http": 80, "https": 443}
FEDERATED = ("osdf", "stash", "pelican")
_URL = re.compile(
    r"([A-Za-z][A-Za-z0-9+._-]*)://([^/?#\\]*)([^?#]*)(?:\?([^#]*))?(?:#.*)?", re.DOTALL
)
_IN_TEXT = re.compile(
    r"([A-Za-z][A-Za-z0-9+._-]*://)([^\s/?#@\"'<>]*@)?([^\s?#\"'<>]*)[?#][^\s\"'<>]*"
)
_USER_IN_TEXT = re.compile(r"(://)[^\s/?#@\"'<>]*@")
_TOKEN_IN_TEXT = re.compile(
    r"\beyJ[\w-]+\.[\w-]*(?:\.[\w-]*)?"
    r"|\b(?:authz|(?:access_)?token|sig(?:nature)?)=(?:bearer(?:[ +]|%20)+)?[\w.~+/%-]+=*"
    r"|\bbearer(?:[ +]|%20)+[\w.~+/%-]+=*",
    re.IGNORECASE,
)
# an escape that a path can do without may still be one that it needs (%2F), so none is touched
_SAFE = "%/:=&?~#+!$,;'@()*[]"


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
    """The proxy that the environment wants between this node and a host; None: no proxy.

    One that cannot be used is a ProxyError: to bypass it silently would be against the wish of
    whoever set the variable.
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
        proxy_host, proxy_port = parts.hostname, parts.port or 3128
    except ValueError:
        proxy_host = None
    if proxy_host is None:
        raise ProxyError(variable, "no host")
    if parts.scheme != "http":
        known = re.fullmatch("https|socks[45]?[ah]?", parts.scheme)
        kind = f"a proxy by {parts.scheme}://" if known else "a proxy of another kind"
        raise ProxyError(variable, kind)
    return Proxy(proxy_host, proxy_port, _userinfo(parts), variable)


def bypassed(host: str, port: int, no_proxy: str) -> bool:
    """Whether `no_proxy` excepts a host: names with all below them, addresses, networks, `*`."""
    host = host.lower().strip("[]").rstrip(".")
    for word in no_proxy.lower().replace(",", " ").split():
        if word == "*":
            return True
        if "/" in word:
            import ipaddress

            with contextlib.suppress(ValueError):
                if ipaddress.ip_address(host) in ipaddress.ip_network(word, strict=False):
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


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5


class Name:
    """What a URL names, apart from the way there."""

    def __init__(self, scheme: str, credential: str, host: str, path: str, query: str) -> None:
        self.scheme = scheme
        self.credential = credential  # `name` of name+osdf://…: the only token to be used
        self.host = host  # of the federation's discovery; none: OSDF's own
        self.path, self.query = path, query

    @property
    def federated(self) -> bool:
        """Whether a director must be asked where the object is."""
        return self.scheme in FEDERATED

    @property
    def plain(self) -> str:
        """The URL without the credential's name, as HTTP can use it."""
        return f"{self.scheme}://{self.host}{self.path}" + (f"?{self.query}" if self.query else "")


class Route:
    """The way to a URL's host: straight, or through the proxy that the environment names."""

    def __init__(self, url: str) -> None:
        parts = split(url)
        self.tls = parts.scheme == "https"
        self.host = parts.hostname or ""
        self.port = parts.port or DEFAULT_PORTS.get(parts.scheme, 0)
        self.target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self.userinfo = _userinfo(parts)
        self.proxy = proxy_for(parts.scheme, self.host, self.port)
        shown_port = "" if self.port == DEFAULT_PORTS.get(parts.scheme) else f":{self.port}"
        self.bracketed = f"[{self.host}]" if ":" in self.host else self.host
        self.host_header = self.bracketed + shown_port
        self.absolute = f"{parts.scheme}://{self.host_header}{self.target}"

    @property
    def first_hop(self) -> tuple[str, int]:
        """Whom to connect to."""
        if self.proxy is not None:
            return self.proxy.host, self.proxy.port
        return self.host, self.port

    @property
    def peer(self) -> str:
        """Whom to connect to, as messages call it."""
        return f"{self.bracketed}:{self.port}" if self.proxy is None else str(self.proxy)


def name(url: str) -> Name:
    """What a source's URL names; ValueError when the engine cannot use it."""
    match = _URL.fullmatch(url)
    if match is None:
        raise ValueError(f"{shown(url)} is not a URL")
    scheme, credential = _scheme(match[1])
    host, path, query = match[2], match[3], match[4] or ""
    if scheme not in FEDERATED:
        if credential and scheme == "file":
            raise ValueError(f"{shown(url)}: a file needs no token")
        split(f"{scheme}://{url[match.end(1) + 3 :]}")
        return Name(scheme, credential, host, path, query)
    if any(ord(c) <= 32 or ord(c) == 127 for c in url):
        raise ValueError(f"{shown(url)} holds white space; write it as %20")
    if "@" in host:
        raise ValueError(f"{shown(url)}: a federation knows no user names")
    if scheme != "pelican":  # osdf://ns/object is a slip of osdf:///ns/object
        host, path = "", f"/{host}{path}" if host else path
    elif not host:
        raise ValueError(f"{shown(url)} names no federation: write pelican://host/namespace/object")
    else:
        split(f"https://{host}/")
    if not path.strip("/"):
        raise ValueError(f"{shown(url)} names no object")
    return Name(scheme, credential, host, "/" + path.lstrip("/"), query)


def split(url: str) -> SplitResult:
    """The parts of an http, https or file URL; ValueError when it is none of them."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https", "file"):
        raise ValueError(f"{shown(url)} is neither http, https nor file")
    if any(ord(c) <= 32 or ord(c) == 127 for c in url):
        raise ValueError(f"{shown(url)} holds white space; write it as %20")
    if parts.scheme == "file":
        if parts.hostname not in (None, "localhost") or not parts.path.startswith("/"):
            raise ValueError(f"{shown(url)} does not name a file of this node")
        return parts
    try:
        port = parts.port
    except ValueError:
        port = 0
    if not parts.hostname or port == 0 or "%" in parts.hostname or "\\" in parts.netloc:
        raise ValueError(f"{shown(url)} names no host")
    return parts


def ascii_target(target: str) -> str:
    """A path and query as a request line can carry them."""
    return quote(target, safe=_SAFE)


def shown(url: str) -> str:
    """The URL as messages may show it: without query, fragment and user information."""
    match = _URL.fullmatch(url)
    if match is None:
        text = re.split(r"[?#]", url, maxsplit=1)[0].rpartition("@")[2]
    elif match[2].count("[") != match[2].count("]"):
        return "a malformed URL"
    else:
        text = f"{match[1]}://{match[2].rpartition('@')[2]}{match[3]}"
    return "".join(c if c.isprintable() else "?" for c in text)


def scrubbed(text: str, length: int = 200) -> str:
    """Words of a server as messages may show them: one short line without anything secret."""
    text = "".join(c if c.isprintable() else " " for c in text[: 16 * length])
    text = _IN_TEXT.sub(r"\1\3", text)
    text = _USER_IN_TEXT.sub(r"\1", text)
    text = " ".join(_TOKEN_IN_TEXT.sub("***", text).split())
    return text if len(text) <= length else f"{text[: length - 1]}…"


def host_of(url: str) -> str:
    """The host alone, for records."""
    try:
        return urlsplit(url).hostname or "localhost"
    except ValueError:
        return "?"


def authority(url: str) -> str:
    """host:port, to tell sources of one object apart."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "localhost", parts.port
    except ValueError:
        return "?"
    return host if port in (None, DEFAULT_PORTS.get(parts.scheme)) else f"{host}:{port}"


def same_host(one: str, other: str) -> bool:
    """Whether two URLs lead to the same scheme, host and port."""
    try:
        a, b = urlsplit(one), urlsplit(other)
        ports = [parts.port or DEFAULT_PORTS.get(parts.scheme) for parts in (a, b)]
    except ValueError:
        return False
    return (a.scheme, a.hostname, ports[0]) == (b.scheme, b.hostname, ports[1]) and bool(a.hostname)


def _scheme(text: str) -> tuple[str, str]:
    """The scheme and the credential's name; HTCondor writes name+scheme, some write scheme+name."""
    text = text.replace("_", ".")
    front, _, last = text.rpartition("+")
    if not front or last.lower() in (*FEDERATED, *DEFAULT_PORTS, "file"):
        return last.lower(), front
    first, _, rest = text.partition("+")
    return (first.lower(), rest) if first.lower() in FEDERATED else (text.lower(), "")


def _userinfo(parts: SplitResult) -> str | None:
    if parts.username is None:
        return None
    return f"{unquote(parts.username)}:{unquote(parts.password or '')}"
