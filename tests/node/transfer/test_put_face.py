"""What `put` and `shown` promise to the rest of Headway."""

from __future__ import annotations

import http.server
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.node.conftest import Web

from headway.node.errors import TransferError
from headway.node.transfer import put, shown

Request = http.server.BaseHTTPRequestHandler
DATA = os.urandom(3_000_000)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxies of this machine, and no real waiting between two rounds."""
    for name in list(os.environ):
        if name.lower().endswith(("_proxy", "_ca_bundle")) or name.startswith("SSL_CERT"):
            monkeypatch.delenv(name)
    real = time.sleep
    monkeypatch.setattr(random, "uniform", lambda a, b: 0.02)
    monkeypatch.setattr(time, "sleep", lambda seconds: real(min(seconds, 0.02)))


def status(web: Web, code: int, **headers: str) -> Callable[[Request], bool]:
    return lambda request: web.reply(request, code, **headers)


def normal(_: Request) -> bool:
    return False


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://u:p@h:8443/a/b?sig=x#f", "https://h:8443/a/b"),
        ("http://h", "http://h"),
        ("file:///a b", "file:///a b"),
        ("http://[::1", "a malformed URL"),
        ("http://h/\x1b[0m", "http://h/?[0m"),
    ],
)
def test_shown(url: str, expected: str) -> None:
    assert shown(url) == expected


def test_put_over_http(web: Web, tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(DATA)
    assert put(str(tmp_path / "model"), web.url("model?sig=1")).bytes == len(DATA)
    assert web.files["model"] == DATA
    with pytest.raises(TransferError) as caught:
        put(str(tmp_path / "model"), web.url("model"))
    assert not caught.value.retryable
    assert "already" in caught.value.message
    (tmp_path / "model").write_bytes(b"new")
    put(str(tmp_path / "model"), web.url("model"), overwrite=True)
    assert web.files["model"] == b"new"


def test_put_retries_and_recognises_its_own_upload(web: Web, tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(DATA)

    def store_and_die(request: Request) -> bool:
        web.files["model"] = request.rfile.read(int(request.headers["Content-Length"]))
        request.connection.close()
        return True

    web.script["model"] = [normal, status(web, 503), normal, store_and_die, normal]
    put(str(tmp_path / "model"), web.url("model"))
    assert web.files["model"] == DATA
    assert len(web.paths("PUT")) == 2


def test_put_that_is_refused(web: Web, tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"x")
    web.script["model"] = [status(web, 403)]
    with pytest.raises(TransferError) as caught:
        put(str(tmp_path / "model"), web.url("model"))
    assert not caught.value.retryable
    assert "HTTP 403" in caught.value.message


def test_put_to_a_folder(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"1")
    url = f"file://{tmp_path}/new/folder/model"
    put(str(tmp_path / "model"), url)
    (tmp_path / "model").write_bytes(b"2")
    with pytest.raises(TransferError):
        put(str(tmp_path / "model"), url)
    assert (tmp_path / "new/folder/model").read_bytes() == b"1"
    put(str(tmp_path / "model"), url, overwrite=True)
    assert [p.name for p in (tmp_path / "new/folder").iterdir()] == ["model"]
    assert (tmp_path / "new/folder/model").read_bytes() == b"2"
