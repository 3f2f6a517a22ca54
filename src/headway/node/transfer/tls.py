"""TLS: certificates are always verified, and a node without any authorities says so in words."""

from __future__ import annotations

import contextlib
import os
import ssl

from headway.node.environment import AUTHORITIES
from headway.node.transfer.source import Fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# OpenSSL reads the first two by itself; the others are what curl, requests and grid tools are given
_MORE = AUTHORITIES[2:]
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


def context() -> ssl.SSLContext:
    """The client context of this process, with the authorities that its environment names."""
    return _trust().context


def tls_fault(error: Exception, host: str) -> Fault:
    """What a TLS failure means."""
    if isinstance(error, ssl.SSLEOFError):
        return Fault("the connection broke off", phase="TLS")
    if not isinstance(error, ssl.SSLCertVerificationError):
        words = getattr(error, "reason", None) or type(error).__name__
        return Fault(f"TLS with {host} failed: {words}", phase="TLS")
    if not _trust().some():
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
    """A context and the folders that it reads only when it needs an authority."""

    def __init__(self) -> None:
        self.context = ssl.create_default_context()
        own = os.environ.get("SSL_CERT_DIR") or ssl.get_default_verify_paths().capath
        self._folders = (own or "").split(os.pathsep)
        settings = dict(_settings())
        # several variables often name the same bundle, and a large one takes 40 ms each time
        loaded = {os.path.realpath(settings.get("SSL_CERT_FILE", ""))}
        for name in _MORE:
            place = settings.get(name, "")
            if place and os.path.realpath(place) not in loaded:
                loaded.add(os.path.realpath(place))
                self.add(place)
        if not settings and not self.some():
            for place in _usual():
                self.add(place)
                if self.some():
                    break

    def add(self, place: str) -> None:
        """Trust a bundle, or a folder of hashed certificates, too."""
        with contextlib.suppress(OSError, ssl.SSLError):
            if os.path.isdir(place):
                self.context.load_verify_locations(capath=place)
                self._folders.append(place)
            else:
                self.context.load_verify_locations(cafile=place)

    def some(self) -> bool:
        """Whether there is any authority at all."""
        if self.context.cert_store_stats()["x509_ca"]:
            return True
        for folder in self._folders:
            with contextlib.suppress(OSError):
                if folder and os.listdir(folder):
                    return True
        return False


def _trust() -> _Trust:
    key = tuple(os.environ.get(name) for name in AUTHORITIES)
    if key not in _made:
        _made[key] = _Trust()
    return _made[key]


def _settings() -> Iterator[tuple[str, str]]:
    """The variables that name something which exists; what a container lacks counts as unset."""
    for name in AUTHORITIES:
        value = os.environ.get(name)
        if value and os.path.exists(value):
            yield name, value


def _usual() -> Iterator[str]:
    yield from (place for place in _BUNDLES if os.path.exists(place))
    from importlib.util import find_spec

    with contextlib.suppress(ImportError, ValueError):
        found = find_spec("certifi")  # many a container has it by way of pip
        if found is not None and found.origin:
            yield os.path.join(os.path.dirname(found.origin), "cacert.pem")


def _whereabouts() -> str:
    """What the environment says of them, and what became of it."""
    told = []
    there = dict(_settings())
    for name in AUTHORITIES:
        value = os.environ.get(name)
        if value:
            told.append(f"{name}={value} {'holds none' if name in there else 'is not there'}")
    return "; ".join(told) if told else "there is no CA bundle in any usual place"
