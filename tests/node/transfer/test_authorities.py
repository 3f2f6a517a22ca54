"""Which certificates are trusted: what the environment names, and what a bare container says."""

from __future__ import annotations

import ssl
import subprocess
import sys
from pathlib import Path

import pytest
from tests.lab import Authority, Server

from headway.node import transfer
from headway.node.transfer import tls
from headway.node.transfer.http import ask
from headway.node.transfer.source import Fault

from .federation import clean

pytestmark = pytest.mark.usefixtures(clean.__name__)
__all__ = ["clean"]


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A container without any authorities: nothing is where Python or a distribution looks."""
    (tmp_path / "nothing").mkdir()
    (tmp_path / "empty").touch()
    monkeypatch.setattr(tls, "_BUNDLES", ())
    monkeypatch.setattr(tls, "_usual", lambda: iter(()))
    monkeypatch.setattr(tls, "_made", {})
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "empty"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "nothing"))
    return tmp_path


def status() -> int:
    with Server({"/a": b"x"}, tls=Authority.get().good) as it:
        return ask("GET", it.url("/a")).status


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"])
def test_bundles_that_the_environment_names(
    bare: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with pytest.raises(Fault):
        status()
    monkeypatch.setenv(name, str(Authority.get().bundle))
    assert status() == 200


@pytest.mark.parametrize("name", ["SSL_CERT_DIR", "X509_CERT_DIR"])
def test_folders_that_the_environment_names(
    bare: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = bare / "hashed"
    folder.mkdir()
    bundle = Authority.get().bundle
    hashed = subprocess.run(
        ["openssl", "x509", "-in", str(bundle), "-noout", "-hash"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    (folder / f"{hashed}.0").write_bytes(bundle.read_bytes())
    monkeypatch.setenv(name, str(folder))
    assert status() == 200


def test_the_usual_places_are_tried_when_the_named_one_is_not_there(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site's own path, handed into a container that does not have it."""
    monkeypatch.setenv("SSL_CERT_FILE", "/not/in/this/container.pem")
    monkeypatch.setenv("SSL_CERT_DIR", "/nor/this")
    monkeypatch.setattr(tls, "_usual", lambda: iter([str(Authority.get().bundle)]))
    assert status() == 200


def test_a_bare_container_is_told_what_to_do(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Fault) as caught:
        status()
    fault = caught.value
    assert fault.node
    assert fault.phase == "TLS"
    assert "no CA certificates" in fault.words
    assert "empty holds none" in fault.words
    assert "ca-certificates" in fault.remedy
    assert "SSL_CERT_FILE" in fault.remedy
    monkeypatch.setenv("SSL_CERT_FILE", "/not/there.pem")
    with pytest.raises(Fault) as caught:
        status()
    assert "/not/there.pem is not there" in caught.value.words


def test_a_damaged_bundle_is_no_crash(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (bare / "damaged").write_text("-----BEGIN CERTIFICATE-----\nnot\n-----END CERTIFICATE-----\n")
    monkeypatch.setenv("CURL_CA_BUNDLE", str(bare / "damaged"))
    with pytest.raises(Fault):
        status()


def test_verification_is_never_off() -> None:
    made = tls.trust().context
    assert made.verify_mode is ssl.CERT_REQUIRED
    assert made.check_hostname


def test_a_python_without_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, tls.__name__)
    monkeypatch.delattr(transfer, "tls")
    monkeypatch.setitem(sys.modules, "ssl", None)
    words = "this node's Python cannot speak https"
    with Server({"/a": b"x"}) as it, pytest.raises(Fault, match=words) as caught:
        ask("GET", it.url("/a").replace("http:", "https:"))
    assert caught.value.node and caught.value.lasting
