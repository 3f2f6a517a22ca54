"""What `fetch` promises, request by request, against servers that misbehave in small ways."""

from __future__ import annotations

import hashlib
import http.server
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.lab import Authority, Digests, Headers, IgnoreRange, Made, Server
from tests.node.conftest import Web

from headway.node.errors import NodeError, Stopped, TransferError
from headway.node.transfer import Snapshot, fetch, source
from headway.node.transfer.fetch import FetchLoop
from headway.node.transfer.options import Options
from headway.node.transfer.source import Identity
from headway.node.transfer.urls import Route

Request = http.server.BaseHTTPRequestHandler
DATA = os.urandom(3_000_000)
SHA = f"sha256:{hashlib.sha256(DATA).hexdigest()}"
MB = 1 << 20


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxies of this machine, and short pauses."""
    for name in list(os.environ):
        if name.lower().endswith(("_proxy", "_ca_bundle")) or name.startswith("SSL_CERT"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(source, "FIRST_PAUSE", 0.02)


def status(web: Web, code: int, **headers: str) -> Callable[[Request], bool]:
    return lambda request: web.reply(request, code, **headers)


def normal(_: Request) -> bool:
    return False


def ranges(web: Web) -> list[str | None]:
    return [headers.get("Range") for _, _, headers in web.requests]


def test_a_file_arrives_with_one_request(web: Web, tmp_path: Path) -> None:
    web.files["data"] = DATA
    got = fetch([web.url("data")], str(tmp_path / "a/b/data"), size=len(DATA), checksum=SHA)
    assert (tmp_path / "a/b/data").read_bytes() == DATA
    assert (got.bytes, got.verified, got.url) == (len(DATA), True, web.url("data"))
    assert os.listdir(tmp_path / "a/b") == ["data"]
    assert len(web.requests) == 1
    got = fetch([web.url("data")], str(tmp_path / "again"))
    assert (got.verified, got.proof) == (False, "")
    assert len(web.requests) == 2


@pytest.mark.parametrize("declared", [0, None])
@pytest.mark.parametrize("with_ranges", [True, False])
def test_an_empty_file(web: Web, tmp_path: Path, declared: int | None, with_ranges: bool) -> None:
    web.files["data"], web.ranges = b"", with_ranges
    assert fetch([web.url("data")], str(tmp_path / "data"), size=declared).bytes == 0
    assert (tmp_path / "data").read_bytes() == b""


def test_an_old_file_is_replaced(web: Web, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"old")
    web.files["data"] = b"new"
    fetch([web.url("data")], str(tmp_path / "data"))
    assert (tmp_path / "data").read_bytes() == b"new"


@pytest.mark.parametrize("code", [404, 403, 500, 503, 429])
def test_a_refusal_that_passes(web: Web, tmp_path: Path, code: int) -> None:
    web.files["data"] = DATA[:1_000_000]  # too little to be shared by two connections
    web.script["data"] = [status(web, code), status(web, code), normal]
    assert fetch([web.url("data")], str(tmp_path / "data")).bytes == 1_000_000
    assert len(web.requests) == 3


@pytest.mark.parametrize(
    ("code", "retryable"), [(404, True), (500, True), (401, False), (403, False), (410, False)]
)
def test_a_refusal_that_stays(web: Web, tmp_path: Path, code: int, retryable: bool) -> None:
    web.script["data"] = [status(web, code)]
    with pytest.raises(TransferError) as caught:
        fetch([web.url("data?token=geheim")], str(tmp_path / "data"), patience=1, grace=0.5)
    assert caught.value.retryable is retryable
    assert f"{web.url('data')}: HTTP {code}" in caught.value.message
    assert "geheim" not in str(caught.value)
    assert len(web.requests) >= 4
    assert not list(tmp_path.iterdir())


def test_absence_is_final_where_it_is_asked_for(web: Web, tmp_path: Path) -> None:
    begin = time.monotonic()
    with pytest.raises(TransferError) as caught:
        fetch([web.url("x"), web.url("y")], str(tmp_path / "d"), grace=0.5, absence_is_final=True)
    assert not caught.value.retryable
    assert 0.5 < time.monotonic() - begin < 3
    assert caught.value.message.count("HTTP 404") == 2


def test_the_next_mirror_is_asked_at_once(web: Web, tmp_path: Path) -> None:
    web.files["good"] = DATA
    got = fetch([web.url("bad"), web.url("good")], str(tmp_path / "data"))
    assert got.url == web.url("good")
    assert web.paths()[:2] == ["bad", "good"]
    assert web.paths().count("bad") == 1


def test_a_broken_transfer_goes_on_where_it_stopped(web: Web, tmp_path: Path) -> None:
    web.script["data"] = [
        lambda r: web.give(r, DATA, only=2_400_000),
        lambda r: web.give(r, DATA, only=200_000),
        lambda r: web.give(r, DATA),
    ]
    got = fetch([web.url("data")], str(tmp_path / "data"))
    assert (tmp_path / "data").read_bytes() == DATA
    assert ranges(web)[1:3] == ["bytes=2400000-2999999", "bytes=2600000-2999999"]
    assert got.bytes == len(DATA)


def test_another_mirror_goes_on(web: Web, tmp_path: Path) -> None:
    web.files["b"] = DATA
    web.script["a"] = [lambda r: web.give(r, DATA, only=2_400_000), status(web, 500)]
    fetch([web.url("a"), web.url("b")], str(tmp_path / "data"), checksum=SHA)
    assert "bytes=2400000-2999999" in ranges(web)
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
    web.script["data"] = [lambda r: web.give(r, DATA, only=1_000_000), lambda r: web.give(r, DATA)]
    fetch([web.url("data")], str(tmp_path / "data"), checksum=SHA)
    assert (tmp_path / "data").read_bytes() == DATA


def test_an_object_of_unknown_length(tmp_path: Path) -> None:
    content = Made(20 * MB, seed=5)
    chunked = [IgnoreRange(), Headers((("Content-Length", None), ("Connection", "close")))]
    with Server({"/a": content}, chunked) as server:
        seen: list[int | None] = []
        fetch([server.url("/a")], str(tmp_path / "d"), progress=lambda _, total: seen.append(total))
    assert content.fault(tmp_path / "d") is None


def test_a_wrong_content_range_is_not_believed(web: Web, tmp_path: Path) -> None:
    def lie(request: Request) -> bool:
        request.send_response(206)
        request.send_header("Content-Range", f"bytes 0-{len(DATA) - 1}/{len(DATA)}")
        request.send_header("Content-Length", str(len(DATA)))
        request.end_headers()
        return True

    web.script["data"] = [lambda r: web.give(r, DATA, only=2_400_000), lie, normal]
    web.files["data"] = DATA
    fetch([web.url("data")], str(tmp_path / "data"))
    assert (tmp_path / "data").read_bytes() == DATA


def test_a_body_that_is_always_cut(web: Web, tmp_path: Path) -> None:
    web.ranges = False
    web.script["data"] = [lambda r: web.give(r, DATA, only=1000)]
    with pytest.raises(TransferError) as caught:
        fetch([web.url("data")], str(tmp_path / "data"), patience=1)
    assert caught.value.retryable
    assert "broke off" in caught.value.message
    assert "(body, may pass)" in caught.value.message


def cut_without_a_sign(request: Request, count: int = 4) -> bool:
    """The end of the connection is the end of the body; HEAD tells the truth."""
    if request.command == "HEAD":
        return False
    request.wfile.write(b'HTTP/1.0 200 OK\r\nETag: "1"\r\n\r\n' + DATA[:count])
    request.close_connection = True
    return True


def test_a_body_without_a_length_that_is_cut(web: Web, tmp_path: Path) -> None:
    web.files["data"] = web.files["mirror"] = DATA
    web.script["data"] = [cut_without_a_sign]
    with pytest.raises(TransferError) as caught:
        fetch([web.url("data")], str(tmp_path / "data"), patience=0.5)
    assert f"{len(DATA) - 4} bytes too early" in caught.value.message
    assert caught.value.retryable
    assert os.listdir(tmp_path) == []
    fetch([web.url("data"), web.url("mirror")], str(tmp_path / "data"))
    assert (tmp_path / "data").read_bytes() == DATA
    web.script["data"] = [lambda r: cut_without_a_sign(r, len(DATA))]
    fetch([web.url("data")], str(tmp_path / "whole"))
    assert (tmp_path / "whole").read_bytes() == DATA


@pytest.mark.parametrize("part", [True, False])
def test_an_answer_that_ends_before_its_last_word(web: Web, tmp_path: Path, part: bool) -> None:
    def wordless(request: Request) -> bool:
        if request.command == "HEAD":
            return False
        head, data = 'HTTP/1.1 200 OK\r\nETag: "1"\r\n', DATA
        if part and "Range" in request.headers:
            first, last = request.headers["Range"].removeprefix("bytes=").split("-")
            data = DATA[int(first) : int(last) + 1]
            about = f"Content-Range: bytes {first}-{int(first) + len(data) - 1}/{len(DATA)}\r\n"
            head = head.replace("200", "206") + about
        head += "Transfer-Encoding: chunked\r\nTrailer: X-Transfer-Status\r\n\r\n"
        request.wfile.write(head.encode() + b"%x\r\n" % len(data) + data)
        request.close_connection = True
        return True

    web.files["data"] = DATA
    web.script["data"] = [wordless]
    with pytest.raises(TransferError) as caught:
        fetch([web.url("data")], str(tmp_path / "data"), size=len(DATA), patience=0.5)
    assert "broke off before the end of the answer" in caught.value.message
    assert os.listdir(tmp_path) == []
    web.script["data"] = [wordless, normal]
    fetch([web.url("data")], str(tmp_path / "data"))
    assert (tmp_path / "data").read_bytes() == DATA


def test_a_failure_told_behind_the_last_byte(web: Web, tmp_path: Path) -> None:
    """Whatever is complete before it comes, the last word is waited for."""

    def fails_late(request: Request) -> bool:
        if request.command == "HEAD":
            return False
        head = f"HTTP/1.1 206 OK\r\nContent-Range: bytes 0-{len(DATA) - 1}/{len(DATA)}\r\n"
        head += 'ETag: "1"\r\nTransfer-Encoding: chunked\r\nTrailer: X-Transfer-Status\r\n\r\n'
        request.wfile.write(head.encode() + b"%x\r\n" % len(DATA) + bytes(len(DATA)) + b"\r\n")
        request.wfile.flush()
        threading.Event().wait(0.3)
        request.wfile.write(b"0\r\nX-Transfer-Status: 500: the origin went away\r\n\r\n")
        return True

    web.files["data"] = DATA
    web.script["data"] = [fails_late, normal]
    fetch([web.url("data")], str(tmp_path / "data"), size=len(DATA))
    assert (tmp_path / "data").read_bytes() == DATA


def test_what_a_server_says_after_the_proof_changes_nothing(web: Web, tmp_path: Path) -> None:
    web.files["data"] = DATA
    path = str(tmp_path / "data")
    options = Options(patience=5.0, grace=5.0, negotiate=False)
    run = FetchLoop([web.url("data")], path, options)
    run.resume()
    run.supervise()
    run.requests._on_last_answer(run.download.sources[0], Identity(len(DATA), '"2"'))
    run.finish()
    run.close(keep=False)
    assert (tmp_path / "data").read_bytes() == DATA


def test_a_wrong_size_is_known_before_it_moves(web: Web, tmp_path: Path) -> None:
    web.files["data"] = DATA
    with pytest.raises(TransferError) as caught:
        fetch([web.url("data")], str(tmp_path / "data"), size=5)
    assert not caught.value.retryable
    assert "has 3000000 bytes there, not 5" in caught.value.message
    assert len(web.requests) == 1


def test_a_flipped_byte_is_noticed_and_another_mirror_helps(web: Web, tmp_path: Path) -> None:
    web.files["bad"] = bytes([DATA[0] ^ 1]) + DATA[1:]
    web.files["good"] = DATA
    with pytest.raises(TransferError) as caught:
        fetch([web.url("bad")], str(tmp_path / "data"), checksum=SHA)
    assert not caught.value.retryable
    assert "sha256 is" in caught.value.message
    assert "(verify, will not pass)" in caught.value.message
    assert not (tmp_path / "data").exists()
    fetch([web.url("bad"), web.url("good")], str(tmp_path / "data"), checksum=SHA)
    assert (tmp_path / "data").read_bytes() == DATA


@pytest.mark.parametrize(
    "digests",
    [
        Digests(algorithms=("sha-256",)),
        Digests(algorithms=("md5",)),
        Digests(algorithms=("adler32",)),
    ],
)
@pytest.mark.parametrize("right", [True, False])
def test_a_digest_is_negotiated_where_none_is_declared(
    digests: Digests, right: bool, tmp_path: Path
) -> None:
    from tests.lab import Fault, Flip

    content = Made(24 * MB, seed=6)
    faults: list[Fault] = [] if right else [Flip(20 * MB)]
    with Server({"/a": content}, faults, digests=digests) as server:
        if right:
            assert fetch([server.url("/a")], str(tmp_path / "d")).proof == "digest"
            assert content.fault(tmp_path / "d") is None
        else:
            with pytest.raises(TransferError):
                fetch([server.url("/a")], str(tmp_path / "d"), patience=5)
            assert os.listdir(tmp_path) == []


def test_refused_and_unknown_hosts(tmp_path: Path) -> None:
    with pytest.raises(TransferError) as caught:
        fetch(["http://127.0.0.1:1/x"], str(tmp_path / "data"), patience=0.3)
    assert caught.value.retryable
    assert "refuses connections (connect, may pass)" in caught.value.message
    with pytest.raises(TransferError) as caught:
        fetch(["http://no.such.host.invalid/x"], str(tmp_path / "data"), patience=0.3)
    assert "resolve" in caught.value.message


def test_redirects(web: Web, tmp_path: Path) -> None:
    web.files["data"] = DATA
    web.script["first"] = [status(web, 307, Location="/data")]
    assert fetch([web.url("first")], str(tmp_path / "data")).bytes == len(DATA)
    web.script["loop"] = [status(web, 302, Location="/loop")]
    with pytest.raises(TransferError):
        fetch([web.url("loop")], str(tmp_path / "data"), patience=0.3)
    web.script["file"] = [status(web, 302, Location="file:///etc/passwd")]
    with pytest.raises(TransferError) as caught:
        fetch([web.url("file")], str(tmp_path / "data"), patience=2)
    assert not caught.value.retryable


def test_progress_and_stop(web: Web, tmp_path: Path) -> None:
    web.files["data"] = DATA
    seen: list[tuple[int, int | None]] = []
    shots: list[Snapshot] = []
    fetch(
        [web.url("data?sig=geheim")],
        str(tmp_path / "data"),
        progress=lambda *far: seen.append(far),
        watch=shots.append,
    )
    assert seen[-1] == (len(DATA), len(DATA))
    assert shots[-1].sources[0].host == f"127.0.0.1:{web.port}"
    assert shots[-1].sources[0].bytes == len(DATA)
    assert "geheim" not in repr(shots[-1].as_json())
    with pytest.raises(Stopped):
        fetch([web.url("data")], str(tmp_path / "other"), should_stop=lambda: True)
    assert not list(tmp_path.glob("other*"))


def test_a_wish_to_stop_is_heard_while_a_server_is_silent(web: Web, tmp_path: Path) -> None:
    begin = time.monotonic()

    def sleep(_: Request) -> bool:
        time.sleep(6)
        return True

    web.script["data"] = [sleep]
    with pytest.raises(Stopped):
        fetch(
            [web.url("data")],
            str(tmp_path / "d"),
            should_stop=lambda: time.monotonic() - begin > 0.3,
        )
    assert time.monotonic() - begin < 5
    assert os.listdir(tmp_path) == []


def test_a_callback_that_fails_ends_the_transfer_cleanly(web: Web, tmp_path: Path) -> None:
    web.files["data"] = DATA

    def fail(_done: int, _total: int | None) -> None:
        raise KeyError("bar")

    with pytest.raises(KeyError):
        fetch([web.url("data")], str(tmp_path / "d"), progress=fail)
    assert not list(tmp_path.glob("d.part*"))


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
        fetch([url], str(tmp_path / "data"), grace=0.1)
    assert "geheim" not in str(caught.value)
    assert web.requests[0][2]["Authorization"] == "Basic bWU6Z2VoZWlt"


@pytest.mark.parametrize("url", ["ftp://h/x", "http:///x", "file://host/x", "x", ""])
def test_urls_that_cannot_be(url: str, tmp_path: Path) -> None:
    with pytest.raises(TransferError) as caught:
        fetch([url], str(tmp_path / "data"))
    assert not caught.value.retryable


def test_local_files(tmp_path: Path) -> None:
    (tmp_path / "so urce").write_bytes(DATA)
    url = f"file://{tmp_path}/so%20urce"
    assert fetch([url], str(tmp_path / "copy"), size=len(DATA), checksum=SHA).bytes == len(DATA)
    with pytest.raises(TransferError) as caught:
        fetch([f"file://{tmp_path}/none"], str(tmp_path / "x"), grace=0.2)
    assert caught.value.retryable
    with pytest.raises(TransferError):
        fetch([url], str(tmp_path / "x"), size=3)
    with pytest.raises(TransferError):
        fetch([f"file://{tmp_path}"], str(tmp_path / "x"), patience=1)


def test_a_large_local_file_and_a_mirror(tmp_path: Path) -> None:
    with Made(40 * MB, seed=2).write(tmp_path / "object") as content:
        with Server({"/a": content}) as server:
            fetch([f"file://{tmp_path}/object", server.url("/a")], str(tmp_path / "copy"))
        assert content.fault(tmp_path / "copy") is None


def test_tls_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = Made(20 * MB, seed=1)
    authority = Authority.get()
    with Server({"/a": content}, tls=authority.good) as server:
        with pytest.raises((TransferError, NodeError)) as caught:
            fetch([server.url("/a")], str(tmp_path / "data"), patience=1)
        assert "certificate" in str(caught.value)
        assert server.requests == []
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.bundle))
        fetch([server.url("/a")], str(tmp_path / "data"))
        assert content.fault(tmp_path / "data") is None
    for bad in (authority.expired, authority.wrong_host, authority.unknown):
        with Server({"/a": content}, tls=bad) as server:
            with pytest.raises(TransferError) as refused:
                fetch([server.url("/a")], str(tmp_path / "other"), patience=0.3)
            assert "(TLS" in refused.value.message
            assert server.requests == []


def test_tls_does_not_lead_out_of_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.lab import Redirect

    authority = Authority.get()
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.bundle))
    with Server({"/a": Made(1000)}) as plain:
        down = [Redirect(plain.url("/a"))]
        with Server({"/a": Made(1000)}, down, tls=authority.good) as secure:
            with pytest.raises(TransferError) as refused:
                fetch([secure.url("/a")], str(tmp_path / "data"), patience=2)
            assert "https to http" in str(refused.value)
        assert plain.requests == []
