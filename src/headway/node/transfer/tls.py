"""TLS; imported only where it is needed, because a node's Python may have been built without it."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import time

from headway.node.host import AUTHORITIES
from headway.node.transfer.source import Fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# TLS over a connected socket, for reading much at little cost. The socket never blocks, and only
# waits when there is nothing to read: with a timeout, it would ask the kernel before each record of
# 16 KiB whether there is one. Decrypting from memory, in large pieces, costs 7 % more processor
# time, since each byte is copied twice more.

_MORE = 1.0  # milliseconds to wait for more, where something is here
_GATHER = 0.05  # seconds for which that may go on


class TlsPipe:
    """A TLS connection with as much of a socket's methods as `Connection` needs.

    The connected socket `raw` must not be used any more; `socket` takes its place.
    """

    def __init__(self, raw: socket.socket, context: ssl.SSLContext, host: str) -> None:
        self._timeout = raw.gettimeout()
        raw.setblocking(False)
        # With OpenSSL 3, older Pythons (3.11.2) would take a connection that was cut for an end.
        context.options &= ~getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
        # Where the other side has hung up, `wrap_socket` fails and leaves its new socket open.
        if trouble := raw.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(trouble, os.strerror(trouble))
        self.socket = context.wrap_socket(
            raw, server_hostname=host, do_handshake_on_connect=False, suppress_ragged_eofs=False
        )
        self._poll = select.poll()
        self._trouble: OSError | None = None  # that came behind bytes, which are told first

    def settimeout(self, seconds: float | None) -> None:
        """Say how long each call may wait; None: for ever."""
        self._timeout = seconds

    def handshake(self) -> None:
        """Do the TLS handshake; an SSLError says why the certificate is not trusted."""
        self._patiently(self.socket.do_handshake)

    def recv_into(self, view: memoryview) -> int:
        """Receive what is there, at least one byte; 0 when the other side has said that it is done.

        Nothing is lost when socket.timeout says that nothing came in time. An ssl.SSLEOFError means
        that the connection ended without close_notify: anybody could have cut it.
        """
        if self._trouble is not None:
            raise self._trouble
        read, size, filled, end = self.socket.read, len(view), 0, 0.0
        while filled < size:
            try:
                # one record: 16 KiB at most; with a buffer, it returns a number
                count: int = read(size - filled, view[filled:])  # type: ignore[assignment]
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                if not filled:
                    filled = self._patiently(lambda: self.socket.read(size, view))  # type: ignore[arg-type,return-value]
                    if not filled:
                        break
                    continue
                # to come back for each few records costs more than to wait for some more
                now = time.monotonic()
                end = end or now + _GATHER
                if now > end or not self._waits(select.POLLIN, _MORE):
                    break
                continue
            except OSError as error:
                if not filled:
                    raise _as_cut(error) from None
                self._trouble = _as_cut(error)
                break
            if not count:
                break
            filled += count
        return filled

    def sendall(self, data: bytes) -> None:
        """Send all of it; socket.timeout when the other side takes nothing for too long."""
        view = memoryview(data)
        while view:
            view = view[self._patiently(lambda: self.socket.write(view)) :]  # noqa: B023

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.close()

    def _patiently(self, call: Callable[[], int | None]) -> int:
        """Call until it need not wait for the other side."""
        end = None if self._timeout is None else time.monotonic() + self._timeout
        while True:
            try:
                return call() or 0
            except ssl.SSLWantReadError:
                event = select.POLLIN
            except ssl.SSLWantWriteError:
                event = select.POLLOUT
            except ssl.SSLError as error:
                raise _as_cut(error) from None
            left = None if end is None else 1000 * (end - time.monotonic())
            if (left is not None and left <= 0) or not self._waits(event, left):
                raise socket.timeout("nothing came in time")

    def _waits(self, event: int, milliseconds: float | None) -> bool:
        """Whether the other side does what is waited for."""
        self._poll.register(self.socket, event)
        return bool(self._poll.poll(milliseconds))


def _as_cut(error: OSError) -> OSError:
    """The same error, as newer Pythons raise it."""
    cut = getattr(error, "reason", "") == "UNEXPECTED_EOF_WHILE_READING"
    return ssl.SSLEOFError(*error.args) if cut else error


# Certificates are always verified, and a node without any authorities says so in its message.

# OpenSSL reads the first two by itself; the others are what curl, requests and grid tools are given
_MORE_BUNDLES = AUTHORITIES[2:]
# where distributions and conda keep theirs, for a Python that was built for another place
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/opt/conda/ssl/cacert.pem",
    "/etc/grid-security/certificates",
    "/cvmfs/oasis.opensciencegrid.org/mis/certificates",
)
_made: dict[tuple[str | None, ...], _Trust] = {}
_REMEDY = (
    "put ca-certificates into the container, or bring a bundle with the job and set SSL_CERT_FILE "
    "to it, or bind the node's /etc/ssl (/etc/pki) into the container"
)


def tls_fault(error: Exception, host: str) -> Fault:
    if isinstance(error, ssl.SSLEOFError):
        return Fault("the connection broke off", phase="TLS")
    if not isinstance(error, ssl.SSLCertVerificationError):
        words = getattr(error, "reason", None) or type(error).__name__
        return Fault(f"TLS with {host} failed: {words}", phase="TLS")
    if not trust().any_authorities():
        words = f"this node or container has no CA certificates ({_whereabouts()})"
        return Fault(words, node=True, remedy=_REMEDY, phase="TLS", lasting=True)
    remedy = "is it the right host? if its authority is not a public one, name it in SSL_CERT_FILE"
    return Fault(
        f"the certificate of {host} is not trusted: {error.verify_message}",
        remedy=remedy,
        phase="TLS",
        lasting=True,
    )


class _Trust:
    """A client context, with the authorities that the environment names.

    It reads the folders only when it needs an authority.
    """

    def __init__(self) -> None:
        self.context = ssl.create_default_context()
        own = os.environ.get("SSL_CERT_DIR") or ssl.get_default_verify_paths().capath
        self._folders = (own or "").split(os.pathsep)
        settings = _settings()
        # several variables often name the same bundle, and a large one takes 40 ms each time
        loaded = {os.path.realpath(settings.get("SSL_CERT_FILE", ""))}
        for name in _MORE_BUNDLES:
            place = settings.get(name, "")
            if place and os.path.realpath(place) not in loaded:
                loaded.add(os.path.realpath(place))
                self.add(place)
        if not settings and not self.any_authorities():
            for place in _usual():
                self.add(place)
                if self.any_authorities():
                    break

    def add(self, place: str) -> None:
        """Trust a bundle, or a folder of hashed certificates, too."""
        with contextlib.suppress(OSError, ssl.SSLError):
            if os.path.isdir(place):
                self.context.load_verify_locations(capath=place)
                self._folders.append(place)
            else:
                self.context.load_verify_locations(cafile=place)

    def any_authorities(self) -> bool:
        """Whether there is any authority at all."""
        if self.context.cert_store_stats()["x509_ca"]:
            return True
        for folder in self._folders:
            with contextlib.suppress(OSError):
                if folder and os.listdir(folder):
                    return True
        return False


def trust() -> _Trust:
    """The context of this process, with the authorities that its environment names now."""
    key = tuple(os.environ.get(name) for name in AUTHORITIES)
    if key not in _made:
        _made[key] = _Trust()
    return _made[key]


def _settings() -> dict[str, str]:
    """The variables that name something which exists; what a container lacks counts as unset."""
    named = {name: os.environ.get(name, "") for name in AUTHORITIES}
    return {name: value for name, value in named.items() if value and os.path.exists(value)}


def _usual() -> Iterator[str]:
    yield from (place for place in _BUNDLES if os.path.exists(place))
    from importlib.util import find_spec

    with contextlib.suppress(ImportError, ValueError):
        found = find_spec("certifi")  # pip brings it into many containers
        if found is not None and found.origin:
            yield os.path.join(os.path.dirname(found.origin), "cacert.pem")


def _whereabouts() -> str:
    """Where the environment says that they are, and what is there."""
    there, named = _settings(), {name: os.environ.get(name) for name in AUTHORITIES}
    said = [
        f"{name}={value} {'holds none' if name in there else 'is not there'}"
        for name, value in named.items()
        if value
    ]
    return "; ".join(said) or "there is no CA bundle in any usual place"
