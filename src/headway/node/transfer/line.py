"""A line to one host: connected, through a proxy where one is wanted, and by TLS, in bounded time.

Every wait ends when the host has been silent too long, when the deadline comes, or when the caller
wants to stop. Downloads have their own, faster wire; this one carries small answers and uploads.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
import time

from headway.node.errors import Stopped
from headway.node.transfer.proxies import bypassed, proxy_words
from headway.node.transfer.request import tunnel
from headway.node.transfer.source import Fault
from headway.node.transfer.tls import context, tls_fault
from headway.node.transfer.urls import Route

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Stop = Callable[[], bool]
    Address = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[object, ...]]

CONNECT = 10.0  # seconds for the name service, for each address, and for the TLS handshake
_TICK = 0.1
_HEAD = 1 << 16  # bytes of a proxy's or server's head
_ADDRESSES = 4  # of one host that are tried
MAY_ASK = "HEADWAY_MAY_ASK"  # private hosts and networks that may be asked because a log says so
_NAT64 = "64:ff9b::/96"
# private, although Python calls them global: local NAT64, an IPv4 address within, site-local
_PRIVATE = ("64:ff9b:1::/48", "::/96", "fec0::/10")


class Line:
    """One connection; `silence` is how long the host may neither take nor give a byte."""

    def __init__(
        self, url: str, *, silence: float, deadline: float, should_stop: Stop, public: bool = False
    ) -> None:
        self.route = Route(url)
        self._public = public  # the URL is a stranger's word: no host of a private network
        self.silence = silence
        self._deadline, self._should_stop = deadline, should_stop
        self._left = b""
        self.phase = "resolve"
        try:
            self._socket = self._connect()
            if self.route.tls:
                if self.route.proxy_host is not None:
                    self._tunnel()
                self.phase = "TLS"
                self._secure()
        except BaseException as error:
            if isinstance(error, Fault):
                error.phase = error.phase or self.phase
            self.close()
            raise
        self.phase = "first byte"

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            self._socket.close()

    def send(self, data: bytes | memoryview) -> None:
        """Give all of it; OSError when the host no longer takes it, which may be an answer."""
        view = memoryview(data)
        since = time.monotonic()
        while view:
            try:
                view = view[self._socket.send(view) :]
                since = time.monotonic()
            except (BlockingIOError, ssl.SSLWantWriteError):
                self._wait(select.POLLOUT, since, "took no more bytes")
            except ssl.SSLWantReadError:
                self._wait(select.POLLIN, since, "took no more bytes")

    def receive(self, most: int, what: str = "gave no answer") -> bytes:
        """The next bytes, as they come; none: the host has closed."""
        if self._left:
            data, self._left = self._left[:most], self._left[most:]
            return data
        return self._fresh(most, what)

    def _fresh(self, most: int, what: str) -> bytes:
        since = time.monotonic()
        while True:
            try:
                return self._socket.recv(most)
            except (BlockingIOError, ssl.SSLWantReadError):
                self._wait(select.POLLIN, since, what)
            except ssl.SSLWantWriteError:
                self._wait(select.POLLOUT, since, what)
            except ssl.SSLEOFError:
                return b""

    def answers_within(self, seconds: float) -> bool:
        """Whether the host says something soon; for servers that refuse before the body is sent."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self._left:
                return True
            try:
                self._left = self._socket.recv(_HEAD)
                return True
            except (BlockingIOError, ssl.SSLWantReadError):
                self._check()
                self._poll(select.POLLIN, min(_TICK, end - time.monotonic()))
            except ssl.SSLWantWriteError:
                self._poll(select.POLLOUT, _TICK)
        return False

    def goes_on(self) -> bool:
        """Whether the host's first word is 100 Continue, which is then taken away."""
        while b"\n" not in self._left and len(self._left) < 64:
            piece = self._fresh(_HEAD, "gave no answer")
            if not piece:
                return False
            self._left += piece
        if not self._left.startswith((b"HTTP/1.1 100", b"HTTP/1.0 100")):
            return False
        self.head()
        return True

    def head(self) -> list[str]:
        """The lines of the next head; too long a one is a Fault."""
        data = b""
        while b"\r\n\r\n" not in data and b"\n\n" not in data:
            if len(data) > _HEAD:
                raise Fault("its answer's head is too long", phase=self.phase)
            piece = self.receive(_HEAD)
            if not piece:
                words = "it broke off" if data else "it closed the connection without an answer"
                raise Fault(words, phase=self.phase)
            data += piece
        ends = [data.find(mark) + len(mark) for mark in (b"\r\n\r\n", b"\n\n") if mark in data]
        self._left = data[min(ends) :] + self._left
        return data[: min(ends)].decode("latin-1").replace("\r\n", "\n").rstrip("\n").split("\n")

    def _connect(self) -> socket.socket:
        host, port = self.route.first_hop
        fault = Fault(f"{host} has no address")
        found = self._addresses(host, port)[:_ADDRESSES]
        if self._public:
            self._refuse_private(found)
        self.phase = "connect"
        for family, kind, protocol, _, address in found:
            try:
                made = socket.socket(family, kind, protocol)
            except OSError:  # such as IPv6 on a node that has none
                continue
            made.setblocking(False)
            try:
                self._socket = made
                self._reach(address)
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return made
            except Fault as error:
                fault = error
            except OSError as error:
                fault = self._no_way(error)
            except BaseException:
                made.close()
                raise
            made.close()
        raise fault

    def _addresses(self, host: str, port: int) -> list[Address]:
        """The name service is asked beside: a resolver that hangs cannot be told to stop."""
        found: list[list[Address]] = []
        failed: list[OSError] = []

        def ask() -> None:
            try:
                found.append(list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)))
            except (OSError, UnicodeError) as error:
                failed.append(error if isinstance(error, OSError) else OSError(str(error)))

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        since = time.monotonic()
        while asking.is_alive():
            self._check()
            if time.monotonic() - since > CONNECT:
                raise Fault(f"the name service did not answer for {host} in {CONNECT:.0f} s")
            asking.join(_TICK)
        if not found:
            raise Fault(f"{host} is not known to this node's name service")
        return found[0]

    def _refuse_private(self, found: list[Address]) -> None:
        """Judged by the very addresses that follow; behind a proxy by those that it may see."""
        host, port = self.route.host, self.route.port
        if self.route.proxy_host is not None:
            try:
                found = self._addresses(host, port)
            except Fault:
                return  # only the proxy knows the name, and must judge it
        for *_, address in found:
            if is_private(str(address[0])) and not _excepted(host, str(address[0]), port):
                raise Fault(
                    f"{host} is of a private network, which a URL of a log is not asked in",
                    retryable=False,
                    settled=True,
                    remedy=f"to ask it all the same, name it in {MAY_ASK}",
                )

    def _reach(self, address: tuple[object, ...]) -> None:
        since = time.monotonic()
        with contextlib.suppress(BlockingIOError):
            self._socket.connect(address)
        while not self._poll(select.POLLOUT, _TICK):
            self._check()
            if time.monotonic() - since > CONNECT:
                raise Fault(f"{self._peer()} did not accept a connection in {CONNECT:.0f} s")
        number = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            raise OSError(number, _strerror(number))

    def _tunnel(self) -> None:
        route = self.route
        self.send(tunnel(route))
        words = self.head()[0].split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/") or words[1] != "200":
            code = words[1] if len(words) > 1 and words[1].isdecimal() else "no proper answer"
            proxy = f"the proxy {route.proxy_host}:{route.proxy_port}"
            raise Fault(
                f"{proxy} refuses the way to {route.host}:{route.port}: {code}",
                remedy="check https_proxy and no_proxy of the job's environment",
            )
        self._left = b""

    def _secure(self) -> None:
        try:
            wrapped = context().wrap_socket(
                self._socket, server_hostname=self.route.host, do_handshake_on_connect=False
            )
            self._socket = wrapped
            since = time.monotonic()
            self.silence, usual = CONNECT, self.silence
            while True:
                try:
                    wrapped.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    self._wait(select.POLLIN, since, "did not finish the TLS handshake")
                except ssl.SSLWantWriteError:
                    self._wait(select.POLLOUT, since, "did not finish the TLS handshake")
            self.silence = usual
        except ssl.SSLError as error:
            raise tls_fault(error, self.route.host) from None
        except OSError as error:
            raise self._no_way(error) from None

    def _wait(self, event: int, since: float, what: str) -> None:
        self._check()
        if time.monotonic() - since > self.silence:
            raise Fault(f"{self._peer()} {what} for {self.silence:.0f} s", phase=self.phase)
        self._poll(event, _TICK)

    def _check(self) -> None:
        if self._should_stop():
            raise Stopped("the transfer was stopped")
        if time.monotonic() > self._deadline:
            raise Fault(f"{self._peer()} did not finish its answer in time", phase=self.phase)

    def _poll(self, event: int, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._socket, event)
        return bool(poll.poll(max(0.0, seconds) * 1000))

    def _peer(self) -> str:
        host, port = self.route.first_hop
        return f"{host}:{port}"

    def _no_way(self, error: OSError) -> Fault:
        scheme = "https" if self.route.tls else "http"
        words = proxy_words(scheme, self.route.host, self.route.port)
        if isinstance(error, ConnectionRefusedError):
            said = f"{self._peer()} refuses connections"
        else:
            said = f"{self._peer()} cannot be reached: {error.strerror or type(error).__name__}"
        return Fault(f"{said} ({words})" if words else said)


def is_private(address: str) -> bool:
    """Whether an address is this machine's, its network's or nobody's, not the Internet's."""
    import ipaddress

    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return True
    if isinstance(found, ipaddress.IPv6Address):
        within = found.ipv4_mapped or found.sixtofour
        if within is None and found in ipaddress.ip_network(_NAT64):
            within = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if within is not None:
            return is_private(str(within))
        if any(found in ipaddress.ip_network(each) for each in _PRIVATE):
            return True
    return not found.is_global or found.is_multicast


def _excepted(host: str, address: str, port: int) -> bool:
    import os

    words = os.environ.get(MAY_ASK, "")
    return bypassed(host, port, words) or bypassed(address, port, words)


def _strerror(number: int) -> str:
    import os

    return os.strerror(number)
