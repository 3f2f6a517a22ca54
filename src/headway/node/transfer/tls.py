"""TLS: certificates are always verified, and a node without any says so in words."""

from __future__ import annotations

import os
import ssl

from headway.node.transfer.source import Fault

# where distributions and conda keep their bundle, for a Python that was built for another place
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/opt/conda/ssl/cacert.pem",
)
_made: dict[tuple[str | None, str | None], ssl.SSLContext] = {}
_REMEDY = "set SSL_CERT_FILE in the job's environment, or put ca-certificates into the container"


def context() -> ssl.SSLContext:
    """The client context of this process; SSL_CERT_FILE and SSL_CERT_DIR count."""
    key = (os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
    if key not in _made:
        made = ssl.create_default_context()
        if not any(key) and not _has_certificates(made):
            for bundle in _BUNDLES:
                if os.path.isfile(bundle):
                    made.load_verify_locations(bundle)
                    break
        _made[key] = made
    return _made[key]


def tls_fault(error: ssl.SSLError, host: str) -> Fault:
    """What a TLS failure means."""
    if not isinstance(error, ssl.SSLCertVerificationError):
        return Fault(f"TLS with {host} failed: {error.reason or error}")
    if not _has_certificates(context()):
        named = os.environ.get("SSL_CERT_FILE")
        where = f"SSL_CERT_FILE={named} holds none" if named else "there is no CA bundle"
        return Fault(
            f"this node or container has no CA certificates ({where})", node=True, remedy=_REMEDY
        )
    return Fault(
        f"the certificate of {host} is not trusted: {error.verify_message}", remedy=_REMEDY
    )


def _has_certificates(made: ssl.SSLContext) -> bool:
    if made.cert_store_stats()["x509_ca"]:
        return True
    # a folder of hashed certificates is read only when one is needed
    folder = os.environ.get("SSL_CERT_DIR") or ssl.get_default_verify_paths().capath
    try:
        return bool(folder and os.listdir(folder))
    except OSError:
        return False
