"""A small federation of the lab, and an environment that holds nothing of this machine's."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.lab import Authority
from tests.lab import Director as Registry

from headway.node.transfer import federation, upload

__all__ = ["ISSUER", "TRACER", "Registry", "clean", "creds", "jwt"]

TRACER = "tracer-5ec7e7"  # in every secret of these tests: no output may hold it
ISSUER = "https://issuer.lab.invalid"


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """No proxies, tokens or federations of this machine; the lab's authority is trusted."""
    words = (
        "_proxy",
        "bearer_token",
        "bearer_token_file",
        "_condor_creds",
        "nearest_cache",
        "_ca_bundle",
    )
    prefixes = ("OSDF_", "PELICAN_", "STASH_", "XDG_RUNTIME_DIR", "SSL_CERT", "X509_CERT")
    for name in list(os.environ):
        if name.lower().endswith(words) or name.startswith(prefixes):
            monkeypatch.delenv(name)
    monkeypatch.setenv("SSL_CERT_FILE", str(Authority.get().bundle))
    monkeypatch.chdir(tmp_path)  # no .condor_creds of the checkout
    federation.forget()
    upload._moves.clear()
    yield tmp_path
    federation.forget()


def jwt(
    scope: str = "storage.read:/",
    *,
    issuer: str = ISSUER,
    seconds: float = 3600,
    mark: str = "",
    **more: object,
) -> str:
    """A token as an issuer makes it, but for its signature; it holds the tracer in the clear."""
    claims = {
        "iss": issuer,
        "scope": scope,
        "exp": time.time() + seconds,
        "wlcg.ver": "1.0",
        **more,
    }
    parts = [json.dumps({"alg": "none"}), json.dumps(claims)]
    coded = [base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts]
    return ".".join([*coded, f"{TRACER}{mark}"])


def creds(folder: Path, **tokens: str) -> dict[str, str]:
    """A credentials folder as HTCondor makes it, and the environment that names it."""
    place = folder / "creds"
    place.mkdir(exist_ok=True)
    for name, text in tokens.items():
        (place / f"{name}.use").write_text(text)
    return {"_CONDOR_CREDS": str(place)}
