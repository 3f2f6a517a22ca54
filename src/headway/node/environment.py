"""Environment: the variables that steer transfers, wherever they are looked at."""

from __future__ import annotations

AUTHORITIES = (
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "X509_CERT_DIR",
)
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
_TOKENS = ("BEARER_TOKEN", "BEARER_TOKEN_FILE")
FEDERATIONS = ("OSDF", "PELICAN", "STASH")
_FEDERATED = (
    "FEDERATION_DISCOVERYURL",
    "FEDERATION_DIRECTORURL",
    "DIRECTOR_URL",
    "NEAREST_CACHE",
    "CLIENT_PREFERREDCACHES",
)
NAMES = frozenset(
    (
        *AUTHORITIES,
        *_PROXIES,
        *(name.upper() for name in _PROXIES),
        *_TOKENS,
        "NEAREST_CACHE",
        *(f"{prefix}_{name}" for prefix in FEDERATIONS for name in _FEDERATED),
    )
)
