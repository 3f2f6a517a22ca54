"""A connection to one host: name service, TCP, a proxy where the environment names one, and TLS.

Every wait is bounded. Another thread may `abort` it at any moment, and it aborts itself when its
caller wants to stop. Heads are received into a buffer, bodies straight into the caller's memory.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import threading
import time
from itertools import zip_longest

from headway.node.errors import Stopped
from headway.node.transfer.heads import HEAD_END, MAX_HEAD, parse_head, tunnel_head
from headway.node.transfer.source import Fault
from headway.node.transfer.urls import ProxyError, Route, bypassed, scrubbed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Union

    from headway.node.transfer.heads import ResponseHead
    from headway.node.transfer.tls import TlsPipe

    Pipe = Union[socket.socket, TlsPipe]
    Stop = Callable[[], bool]
    Address = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[object, ...]]


CONNECT = 10.0  # seconds for the name service, for the addresses, and for the TLS handshake
STAGGER = 0.25  # seconds until the next address is tried in parallel (RFC 8305)
SILENCE = 300.0  # a safety net for downloads: their supervisor acts long before
MOMENT = 0.25  # seconds without a byte after which `receive` raises Quiet
BUFFER = 1 << 17
MAY_ASK = "HEADWAY_MAY_ASK"  # private hosts and networks that a URL of a log may lead to
_TICK = 0.1
_ADDRESSES = 8  # of one host that are tried
_PIECE = 1 << 16  # bytes that the host must take within its silence
_NAT64 = "64:ff9b::/96"
# private, although Python calls them global: local NAT64, an IPv4 address within, site-local
_PRIVATE = ("64:ff9b:1::/48", "::/96", "fec0::/10")


class Quiet(Exception):
    """Nothing came for a moment; nothing is lost, and reading may go on."""


class Connection:
    """A connection to the host of a URL, through the proxy that the environment names.

    `silence`: seconds in which the host must take or give a byte. `deadline`: when all must be
    over, by the monotonic clock. `should_stop` is asked often, in a thread of its own; a wait then
    ends with Stopped. `public`: the URL comes from a stranger, so no host of a private network is
    asked. A Fault: the URL leads nowhere, or the environment names an unusable proxy.
    """

    def __init__(
        self,
        url: str,
        *,
        silence: float = SILENCE,
        deadline: float = float("inf"),
        should_stop: Stop | None = None,
        public: bool = False,
    ) -> None:
        self.route = _route(url)
        self.phase = "resolve"
        self.silence = silence
        self.buffer = bytearray(BUFFER)  # what was received and not used is in [at, end)
        self.view = memoryview(self.buffer)
        self.at = self.end = 0
        self._deadline, self._should_stop, self._public = deadline, should_stop, public
        self._pipe: Pipe | None = None
        self._raw: socket.socket | None = None
        self._aborted = self._stopped = False
        self._over = threading.Event()

    def abort(self) -> None:
        """Wake whoever waits for this connection; the wait ends with a Fault."""
        self._aborted = True
        raw = self._raw
        if raw is not None:
            with contextlib.suppress(OSError):
                # not the TLS socket's own method, which would take its state from under the reader
                socket.socket.shutdown(raw, socket.SHUT_RDWR)

    def close(self) -> None:
        """End it; to close it twice does no harm."""
        self._over.set()
        pipe, raw, self._pipe, self._raw = self._pipe, self._raw, None, None
        self.at = self.end = 0
        for each in (pipe, raw):
            if each is not None:
                with contextlib.suppress(OSError):
                    each.close()

    def connect(self) -> None:
        """Open it; Fault when it cannot be opened, Stopped when the caller wants to stop."""
        self._over.clear()
        if self._should_stop is not None:
            threading.Thread(target=self._watch, daemon=True).start()
        try:
            self._connect()
        except Exception as error:
            self.close()
            raise self._failed(error) from None

    @property
    def is_open(self) -> bool:
        return self._pipe is not None

    # -- bytes

    def send(self, data: bytes | memoryview) -> None:
        """Send all of it; after a Fault there may still be an answer that says why."""
        pipe = self._pipe
        try:
            if pipe is None:
                raise Fault("the connection is closed")
            pipe.settimeout(self.silence)
            for at in range(0, len(data), _PIECE):
                self.check()
                pipe.sendall(bytes(data[at : at + _PIECE]))
            pipe.settimeout(MOMENT)
        except Exception as error:
            raise self._failed(error, "took no more bytes") from None

    def receive(self, view: memoryview) -> int:
        """Some bytes; 0 when the host has closed the connection, Quiet when nothing comes."""
        if self.at < self.end:
            count = min(self.end - self.at, len(view))
            view[:count] = self.view[self.at : self.at + count]
            self.at += count
            return count
        pipe = self._pipe
        try:
            count = 0 if pipe is None else pipe.recv_into(view)
            if count == 0 and self._aborted:
                self.check()
            return count
        except (TimeoutError, socket.timeout):
            raise Quiet from None
        except Exception as error:
            self.close()
            raise self._failed(error) from None

    def fill(self) -> int:
        """Receive more into the buffer; 0 when the host has closed the connection, or Quiet."""
        at, end = self.at, self.end
        if at == end or end == BUFFER:
            self.buffer[: end - at] = self.buffer[at:end]
            at, end = 0, end - at
        self.at = self.end = end  # nothing is there for `receive` to take
        try:
            count = self.receive(self.view[end:])
            end += count
            return count
        finally:
            self.at, self.end = (at, end) if self._pipe is not None else (0, 0)

    def head(self, silence: float) -> ResponseHead:
        """Read the next head; what follows it stays in the buffer."""
        self.buffer[: self.end - self.at] = self.buffer[self.at : self.end]
        self.at, self.end = 0, self.end - self.at
        scanned = 0
        since = time.monotonic()
        while True:
            self.check()
            found = HEAD_END.search(self.buffer, scanned, self.end)
            if not self.buffer.startswith(b"HTTP/"[: self.end], 0, self.end):
                raise Fault("it does not speak HTTP properly (status line)")
            if (found.start() if found else self.end) > MAX_HEAD:
                raise Fault("it does not speak HTTP properly (too long a head)")
            if found:
                self.at = found.end()
                return parse_head(bytes(self.view[: found.start()]))
            scanned = max(0, self.end - 3)
            try:
                if not self.fill():
                    words = "it broke off within the head of its answer"
                    raise Fault(words if self.end else "it closed the connection without an answer")
                since = time.monotonic()
            except Quiet:
                self.wait(since, silence, "gave no answer")

    def wait(self, since: float, silence: float, what: str) -> None:
        """After a Quiet: Fault when the host has been silent for too long."""
        self.check()
        if time.monotonic() - since > silence:
            raise Fault(f"it {what} for {silence:.0f} s")

    # -- connecting

    def _connect(self) -> None:
        route = self.route
        self.phase = "resolve"
        found = self._addresses(*route.first_hop)
        if self._public:
            self._refuse_private(found)
        self.phase = "connect"
        raw = self._race(interleaved(found)[:_ADDRESSES])
        self._pipe = self._raw = raw
        self.check()  # an abort that came before the socket was here to be woken
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if route.tls:
            if route.proxy is not None:
                self._tunnel()
            self.phase = "TLS"
            try:  # not every Python has TLS
                from headway.node.transfer.tls import TlsPipe, trust
            except ImportError:
                words = "this node's Python cannot speak https"
                raise Fault(words, node=True, lasting=True) from None
            pipe = TlsPipe(raw, trust().context, route.host)
            self._pipe, self._raw = pipe, pipe.socket
            self.check()  # as before: the old socket could not be woken any more
            pipe.settimeout(CONNECT)
            pipe.handshake()
        self._pipe.settimeout(MOMENT)
        self.phase = "first byte"

    def _addresses(self, host: str, port: int) -> list[Address]:
        """Look the host up in a thread: a resolver that hangs cannot be stopped."""
        with contextlib.suppress(OSError, UnicodeError):
            numeric = socket.AI_NUMERICHOST
            return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=numeric))
        found: list[list[Address]] = []

        def ask() -> None:
            with contextlib.suppress(OSError, UnicodeError):
                found.append(list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)))

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        since = time.monotonic()
        while asking.is_alive():
            self.check()
            if time.monotonic() - since > CONNECT:
                raise Fault(f"the name service did not answer for {host} in {CONNECT:.0f} s")
            asking.join(_TICK)
        if not found:
            through = f" ({self.route.peer})" if self.route.proxy is not None else ""
            raise Fault(f"{host} is not known to this node's name service{through}")
        return found[0]

    def _refuse_private(self, found: Sequence[Address]) -> None:
        """Check the addresses that are used next; behind a proxy, those that it would use."""
        host, port = self.route.host, self.route.port
        if self.route.proxy is not None:
            try:
                found = self._addresses(host, port)
            except Fault:
                return  # only the proxy knows the name, and must judge it
        for *_, address in found:
            may_ask, number = os.environ.get(MAY_ASK, ""), str(address[0])
            excepted = bypassed(host, port, may_ask) or bypassed(number, port, may_ask)
            if is_private(number) and not excepted:
                raise Fault(
                    f"{host} is in a private network, where a URL of a log may not lead",
                    settled=True,
                    remedy=f"to allow it, name it in {MAY_ASK}",
                )

    def _race(self, addresses: Sequence[Address]) -> socket.socket:
        """Connect to the first address that answers; each try starts shortly after the last one."""
        waiting, trying = list(addresses), dict[int, socket.socket]()
        failure = OSError(errno.EADDRNOTAVAIL, "it has no address that this node can use")
        poll = select.poll()
        due, end = 0.0, time.monotonic() + CONNECT
        try:
            while waiting or trying:
                self.check()
                now = time.monotonic()
                if waiting and (not trying or now >= due):
                    family, kind, protocol, _, address = waiting.pop(0)
                    try:
                        made = socket.socket(family, kind, protocol)  # a node may have no IPv6
                    except OSError as error:
                        failure = error
                        continue
                    trying[made.fileno()] = made
                    made.setblocking(False)
                    begun = made.connect_ex(address)
                    poll.register(made, select.POLLOUT)
                    if begun not in (0, errno.EINPROGRESS):
                        failure = OSError(begun, os.strerror(begun))
                        poll.unregister(made)
                        trying.pop(made.fileno()).close()
                        continue
                    due, end = now + STAGGER, now + CONNECT
                if now > end:
                    raise TimeoutError
                for number, _ in poll.poll(1000 * min(_TICK, max(0.0, due - now) or _TICK)):
                    made = trying.pop(number)
                    poll.unregister(made)
                    broken = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                    if not broken:
                        return made
                    failure = OSError(broken, os.strerror(broken))
                    made.close()
                    due = 0.0
            raise failure
        finally:
            for made in trying.values():
                made.close()

    def _tunnel(self) -> None:
        """Ask the proxy for a connection to the host itself."""
        route = self.route
        assert self._raw is not None
        try:
            self.send(tunnel_head(route))
            answer = self.head(CONNECT)
        except Fault as fault:
            fault.words = f"{route.peer}: {fault.words}"
            raise
        if answer.status != 200:
            raise proxy_refusal(route, answer.status)
        if self.at < self.end:
            raise Fault(f"{route.proxy} speaks out of turn")

    # -- the end of waits

    def _watch(self) -> None:
        assert self._should_stop is not None
        while not self._over.wait(_TICK):
            if self._should_stop():
                self._stopped = True
                self.abort()
                return

    def check(self) -> None:
        if self._stopped:
            raise Stopped("the transfer was stopped")
        if self._aborted:
            raise Fault("given up")
        if time.monotonic() > self._deadline:
            raise Fault("it did not finish its answer in time")

    def _failed(self, error: Exception, what: str = "gave no answer") -> Exception:
        """What an error of a socket means, with the phase in which it happened."""
        if self._stopped:
            return Stopped("the transfer was stopped")
        if self._aborted:
            error = Fault("given up")
        elif not isinstance(error, (Fault, Stopped)):
            error = network_fault(error, self.route, self.phase, what)
        if isinstance(error, Fault):
            error.phase = error.phase or self.phase
        return error


def interleaved(found: Sequence[Address]) -> list[Address]:
    """The addresses in turns of their families, as RFC 8305 says; the first stays the first."""
    first = [each for each in found if each[0] == found[0][0]]
    other = [each for each in found if each[0] != found[0][0]]
    return [each for pair in zip_longest(first, other) for each in pair if each is not None]


def network_fault(error: Exception, route: Route, phase: str, what: str) -> Fault:
    """What an error of a socket means; a proxy is named, since users may not know of it."""
    if type(error).__module__ == "ssl":
        from headway.node.transfer.tls import tls_fault

        fault = tls_fault(error, route.host)
        fault.phase = phase
        return fault
    if not isinstance(error, (OSError, ValueError)):
        raise error
    late = isinstance(error, (TimeoutError, socket.timeout))
    words = scrubbed(getattr(error, "strerror", None) or str(error) or type(error).__name__, 80)
    if isinstance(error, ConnectionRefusedError):
        words = f"{route.peer} refuses connections"
    elif phase == "connect" and late:
        words = f"{route.peer} did not accept a connection in {CONNECT:.0f} s"
    elif phase == "connect":
        words = f"{route.peer} cannot be reached: {words}"
    elif late:
        words = f"it {'did not finish the TLS handshake' if phase == 'TLS' else what} in time"
    else:
        words = f"the connection failed: {words}"
    remedy = ""
    if route.proxy is not None and phase == "connect":
        remedy = f"check {route.proxy.variable} and no_proxy of the job's environment"
    return Fault(words, phase=phase, remedy=remedy)


def proxy_refusal(route: Route, status: int) -> Fault:
    """What the refusal of a proxy means: 407 to any request, or any status to a tunnel's."""
    who = str(route.proxy) if route.proxy else "a proxy that the environment does not name"
    variable = route.proxy.variable if route.proxy is not None else ""
    if status == 407:
        words = f"{who} wants a user name and a password, or other ones: HTTP 407"
        remedy = "ask the site for them"
        if variable:
            remedy = (
                f"set {variable} to http://USER:PASSWORD@HOST:PORT, or add the host to no_proxy"
            )
    else:
        words = f"{who} refuses to connect to {route.host}:{route.port}: HTTP {status}"
        remedy = f"check {variable or 'https_proxy'} and no_proxy of the job's environment"
    lasting = status in (403, 407)
    return Fault(words, retryable=not lasting, lasting=lasting, phase="connect", remedy=remedy)


def is_private(address: str) -> bool:
    """Whether an address is not one of the public Internet."""
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


def _route(url: str) -> Route:
    try:
        return Route(url)
    except ValueError as error:
        is_proxy = isinstance(error, ProxyError)
        raise Fault(
            scrubbed(str(error)),
            settled=True,
            lasting=is_proxy,
            phase="connect" if is_proxy else "resolve",
            remedy=error.remedy if isinstance(error, ProxyError) else "correct the URL",
        ) from None
