"""The transfer engine against servers that misbehave."""

from __future__ import annotations

import hashlib
import http.server
import os
import random
import shutil
import ssl
import subprocess
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headway.node.errors import NodeError, Stopped, TransferError
from headway.node.transfer import checksum, fetch, prove, put, shown
from headway.node.transfer.urls import Route

from .conftest import Web

Request = http.server.BaseHTTPRequestHandler
DATA = os.urandom(3_000_000)
SHA = f"sha256:{hashlib.sha256(DATA).hexdigest()}"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxies of this machine, and no real waiting between two rounds."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith("SSL_CERT"):
            monkeypatch.delenv(name)
    real = time.sleep
    monkeypatch.setattr(random, "uniform", lambda a, b: 0.02)
    monkeypatch.setattr(time, "sleep", lambda seconds: real(min(seconds, 0.02)))


def status(web: Web, code: int, **headers: str) -> Callable[[Request], bool]:
    return lambda request: web.reply(request, code, **headers)


def normal(_: Request) -> bool:
    return False


def test_a_file_arrives(web: Web, tmp_path: Path) -> None:
    web.files["data"] = DATA
    got = fetch([web.url("data")], str(tmp_path / "a/b/data"), size=len(DATA), checksum=SHA)
    assert (tmp_path / "a/b/data").read_bytes() == DATA
    assert (got.bytes, got.verified, got.url) == (len(DATA), True, web.url("data"))
    assert not list(tmp_path.rglob("*.part"))


def test_an_empty_file(web: Web, tmp_path: Path) -> None:
    web.files["data"] = b""
    assert fetch([web.url("data")], str(tmp_path / "data"), size=0).bytes == 0


@pytest.mark.parametrize("code", [404, 403, 500, 503, 429])
def test_a_refusal_that_passes(web: Web, tmp_path: Path, code: int) -> None:
    web.files["data"] = DATA
    web.script["data"] = [status(web, code), status(web, code), normal]
    assert fetch([web.url("data")], str(tmp_path / "data")).bytes == len(DATA)
    assert len(web.requests) == 3


@pytest.mark.parametrize(
    ("code", "retryable"), [(404, True), (500, True), (401, False), (403, False), (410, False)]
)
def test_a_refusal_that_stays(web: Web, tmp_path: Path, code: int, retryable: bool) -> None:
    web.script["data"] = [status(web, code)]
    with pytest.raises(TransferError) as caught:
        fetch([web.url("data?token=geheim")], str(tmp_path / "data"))
    assert caught.value.retryable is retryable
    assert f"HTTP {code}" in caught.value.message
    assert "geheim" not in str(caught.value)
    assert len(web.requests) == 4
    assert not list(tmp_path.iterdir())


def test_the_next_mirror_is_asked_at_once(web: Web, tmp_path: Path) -> None:
    web.files["good"] = DATA
    got = fetch([web.url("bad"), web.url("good")], str(tmp_path / "data"))
    assert got.url == web.url("good")
    assert web.paths() == ["bad", "good"]


def test_a_broken_transfer_goes_on_where_it_stopped(web: Web, tmp_path: Path) -> None:
    web.script["data"] = [
        lambda r: web.give(r, DATA, only=1_000_000),
        lambda r: web.give(r, DATA, only=500_000),
        lambda r: web.give(r, DATA),
    ]
    got = fetch([web.url("data")], str(tmp_path / "data"))
    assert (tmp_path / "data").read_bytes() == DATA
    asked = [headers.get("Range") for _, _, headers in web.requests]
    assert asked == [None, "bytes=1000000-", "bytes=1500000-"]
    assert web.requests[1][2]["If-Range"] == '"1"'
    assert got.bytes == len(DATA)


def test_another_mirror_goes_on_if_the_whole_can_be_proven(web: Web, tmp_path: Path) -> None:
    web.files["b"] = DATA
    web.script["a"] = [lambda r: web.give(r, DATA, only=1_000_000)]
    fetch([web.url("a"), web.url("b")], str(tmp_path / "data"), checksum=SHA)
    assert web.requests[1][2].get("Range") == "bytes=1000000-"
    assert "If-Range" not in web.requests[1][2]
    assert (tmp_path / "data").read_bytes() == DATA


def test_the_object_changed_in_between(web: Web, tmp_path: Path) -> None:
    new = os.urandom(2_000_000)
    web.script["data"] = [
        lambda r: web.give(r, DATA, only=1_000_000),
        lambda r: web.give(r, new, etag='"2"'),
    ]
    fetch([web.url("data")], str(tmp_path / "data"))
    assert (tmp_path / "data").read_bytes() == new


def test_a_server_without_ranges(web: Web, tmp_path: Path) -> None:
    web.ranges = False
    web.script["data"] = [
        lambda r: web.give(r, DATA, only=1_000_000),
        lambda r: web.give(r, DATA),
    ]
    fetch([web.url("data")], str(tmp_path / "data"), checksum=SHA)
    assert (tmp_path / "data").read_bytes() == DATA


def test_a_wrong_content_range_is_not_believed(web: Web, tmp_path: Path) -> None:
    def lie(request: Request) -> bool:
        request.send_response(206)
        request.send_header("Content-Range", f"bytes 0-{len(DATA) - 1}/{len(DATA)}")
        request.send_header("Content-Length", str(len(DATA)))
        request.end_headers()
        return True

    web.script["data"] = [lambda r: web.give(r, DATA, only=1_000_000), lie, normal]
    web.files["data"] = DATA
    fetch([web.url("data")], str(tmp_path / "data"))
    assert (tmp_path / "data").read_bytes() == DATA


def test_progress_earns_more_tries(web: Web, tmp_path: Path) -> None:
    data = os.urandom(12_000_000)
    web.script["data"] = [lambda r: web.give(r, data, only=1_100_000)]
    fetch([web.url("data")], str(tmp_path / "data"), size=len(data))
    assert (tmp_path / "data").read_bytes() == data
    assert len(web.requests) > 10


def test_a_body_that_is_always_cut(web: Web, tmp_path: Path) -> None:
    web.ranges = False
    web.script["data"] = [lambda r: web.give(r, DATA, only=1000)]
    with pytest.raises(TransferError) as caught:
        fetch([web.url("data")], str(tmp_path / "data"))
    assert caught.value.retryable
    assert "broke off" in caught.value.message


def test_a_wrong_size_is_known_before_it_moves(web: Web, tmp_path: Path) -> None:
    web.files["data"] = DATA
    with pytest.raises(TransferError) as caught:
        fetch([web.url("data")], str(tmp_path / "data"), size=5)
    assert not caught.value.retryable
    assert "has 3000000 bytes there, not 5" in caught.value.message


def test_a_flipped_byte_is_noticed_and_another_mirror_helps(web: Web, tmp_path: Path) -> None:
    web.files["bad"] = bytes([DATA[0] ^ 1]) + DATA[1:]
    web.files["good"] = DATA
    with pytest.raises(TransferError) as caught:
        fetch([web.url("bad")], str(tmp_path / "data"), checksum=SHA)
    assert not caught.value.retryable
    assert "sha256 is" in caught.value.message
    assert len(web.requests) == 2  # not the whole object four times
    assert not (tmp_path / "data").exists()
    fetch([web.url("bad"), web.url("good")], str(tmp_path / "data"), checksum=SHA)
    assert (tmp_path / "data").read_bytes() == DATA


def test_a_silent_server(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headway.node.transfer import http as engine

    monkeypatch.setattr(engine, "READ_TIMEOUT", 0.2)
    done: list[bool] = []

    def hang(request: Request) -> bool:
        while not done:
            time.sleep(0.02)
        return True

    web.files["data"] = DATA
    web.script["data"] = [hang, normal]
    fetch([web.url("data")], str(tmp_path / "data"))
    done.append(True)


def test_refused_and_unknown_hosts(tmp_path: Path) -> None:
    with pytest.raises(TransferError) as caught:
        fetch(["http://127.0.0.1:1/x"], str(tmp_path / "data"), rounds=1)
    assert caught.value.retryable
    assert "refuses connections" in caught.value.message
    with pytest.raises(TransferError) as caught:
        fetch(["http://no.such.host.invalid/x"], str(tmp_path / "data"), rounds=1)
    assert "name service" in caught.value.message


def test_redirects(web: Web, tmp_path: Path) -> None:
    web.files["data"] = DATA
    web.script["first"] = [status(web, 307, Location="/data")]
    assert fetch([web.url("first")], str(tmp_path / "data")).bytes == len(DATA)
    web.script["loop"] = [status(web, 302, Location="/loop")]
    with pytest.raises(TransferError):
        fetch([web.url("loop")], str(tmp_path / "data"), rounds=1)
    web.script["file"] = [status(web, 302, Location="file:///etc/passwd")]
    with pytest.raises(TransferError) as caught:
        fetch([web.url("file")], str(tmp_path / "data"), rounds=1)
    assert not caught.value.retryable


def test_progress_and_stop(web: Web, tmp_path: Path) -> None:
    web.files["data"] = DATA
    seen: list[tuple[int, int | None]] = []
    fetch([web.url("data")], str(tmp_path / "data"), progress=lambda *far: seen.append(far))
    assert len(seen) == 1
    assert seen[0][1] == len(DATA)
    with pytest.raises(Stopped):
        fetch([web.url("data")], str(tmp_path / "other"), should_stop=lambda: True)
    assert not list(tmp_path.glob("other*"))


def test_a_proxy_is_used_and_bypassed(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Web()
    proxied = "http://elsewhere.invalid/data"
    proxy.script[proxied] = [lambda r: proxy.give(r, DATA)]
    monkeypatch.setenv("http_proxy", f"http://user:pass@127.0.0.1:{proxy.port}")
    fetch([proxied], str(tmp_path / "data"))
    assert (tmp_path / "data").read_bytes() == DATA
    assert proxy.requests[0][2]["Proxy-Authorization"].startswith("Basic ")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    web.files["data"] = DATA
    fetch([web.url("data")], str(tmp_path / "data"))
    assert len(proxy.requests) == 1
    assert Route("http://elsewhere.invalid/").first_hop == ("127.0.0.1", proxy.port)
    proxy.close()


def test_userinfo_becomes_a_header_and_stays_hidden(web: Web, tmp_path: Path) -> None:
    url = web.url("data").replace("http://", "http://me:geheim@")
    with pytest.raises(TransferError) as caught:
        fetch([url], str(tmp_path / "data"), rounds=1)
    assert "geheim" not in str(caught.value)
    assert web.requests[0][2]["Authorization"] == "Basic bWU6Z2VoZWlt"


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


@pytest.mark.parametrize("url", ["ftp://h/x", "osdf:///x", "http:///x", "file://host/x", "x", ""])
def test_urls_that_cannot_be(url: str, tmp_path: Path) -> None:
    with pytest.raises(TransferError) as caught:
        fetch([url], str(tmp_path / "data"))
    assert not caught.value.retryable


def test_local_files(tmp_path: Path) -> None:
    (tmp_path / "so urce").write_bytes(DATA)
    url = f"file://{tmp_path}/so%20urce"
    assert fetch([url], str(tmp_path / "copy"), size=len(DATA), checksum=SHA).bytes == len(DATA)
    with pytest.raises(TransferError) as caught:
        fetch([f"file://{tmp_path}/none"], str(tmp_path / "x"), rounds=2)
    assert caught.value.retryable
    with pytest.raises(TransferError):
        fetch([url], str(tmp_path / "x"), size=3)


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


@pytest.mark.parametrize("data", [b"", b"123456789", DATA[:100_001]])
def test_checksums(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(data)
    plain = checksum._PlainCrc32c()
    plain.update(data)
    crc = plain.hexdigest()
    if data == b"123456789":
        assert crc == "e3069283"
    for declared in (
        f"sha256:{hashlib.sha256(data).hexdigest()}",
        f"md5:{hashlib.md5(data).hexdigest()}",
        f"adler32:{zlib.adler32(data):08x}",
        f"crc32c:{crc}",
    ):
        assert prove(str(tmp_path / "f"), size=len(data), checksum=declared) is None
        wrong = declared[:-1] + ("0" if declared[-1] != "0" else "1")
        assert prove(str(tmp_path / "f"), size=None, checksum=wrong)


def test_the_kernels_crc32c_agrees() -> None:
    try:
        kernel = checksum._KernelCrc32c()
    except (OSError, AttributeError) as error:
        pytest.skip(f"the kernel does not offer crc32c here: {error}")
    plain = checksum._PlainCrc32c()
    for piece in (DATA[:10], b"", DATA[10:300_000]):
        kernel.update(piece)
        plain.update(piece)
    assert kernel.hexdigest() == plain.hexdigest()


def test_proving_what_is_not_there(tmp_path: Path) -> None:
    assert prove(str(tmp_path / "none"), size=1, checksum=None)
    assert prove(str(tmp_path), size=None, checksum=None)


@pytest.fixture
def secure(web: Web, tmp_path: Path) -> Iterator[tuple[Web, Path]]:
    """A server with a certificate of a CA of our own."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl on this machine")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=127.0.0.1", "-keyout", str(key)),
            *("-addext", "subjectAltName=IP:127.0.0.1", "-out", str(cert)),
            *("-addext", "keyUsage=digitalSignature,keyCertSign"),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    web.server.socket = context.wrap_socket(web.server.socket, server_side=True)
    yield web, cert


def test_tls_is_verified(
    secure: tuple[Web, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    web, cert = secure
    web.files["data"] = DATA
    url = web.url("data").replace("http:", "https:")
    with pytest.raises((TransferError, NodeError)) as caught:
        fetch([url], str(tmp_path / "data"), rounds=1)
    assert "certificate" in str(caught.value)
    assert web.requests == []
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    fetch([url], str(tmp_path / "data"))
    assert (tmp_path / "data").read_bytes() == DATA
    web.script["down"] = [status(web, 302, Location=f"http://127.0.0.1:{web.port}/data")]
    with pytest.raises(TransferError) as refused:
        fetch([url.replace("data", "down")], str(tmp_path / "data"), rounds=1)
    assert "https to http" in str(refused.value)


def test_a_container_without_ca_bundle(
    secure: tuple[Web, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    web, _ = secure
    (tmp_path / "empty").touch()
    (tmp_path / "nothing").mkdir()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "empty"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "nothing"))
    with pytest.raises(NodeError) as caught:
        fetch([web.url("data").replace("http:", "https:")], str(tmp_path / "data"), rounds=1)
    assert "no CA certificates" in caught.value.message
    assert "SSL_CERT_FILE" in caught.value.remedy
