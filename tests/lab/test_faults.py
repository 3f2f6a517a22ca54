"""Every fault does what it says."""

from __future__ import annotations

import gzip
import http.client
import socket
import ssl
import threading
import time
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest
from tests.lab import (
    Authority,
    Change,
    Chunked,
    Coded,
    Crowded,
    Delay,
    Digests,
    Drop,
    FailedTrailer,
    Flip,
    FoldedHeaders,
    Garbage,
    Hang,
    Headers,
    Http10,
    IgnoreRange,
    LineFeeds,
    LyingHead,
    Made,
    OtherBytes,
    Portal,
    Rate,
    Redirect,
    Reset,
    Server,
    Shorter,
    Silent,
    SlowHeaders,
    Status,
    Strained,
    Truncate,
    Unsized,
    Validators,
    Version,
    WrongContentRange,
    WrongLength,
    black_hole,
    dead_ipv6,
    dead_url,
)
from tests.lab.client import CONTENT, MB, OTHER, WHOLE, connect, get, seconds_since, sick

# -- faults: no answer


@pytest.mark.parametrize("at", ["accept", "request"])
def test_hang(at: str) -> None:
    fault = Hang() if at == "accept" else Hang(at="request")
    with sick(fault.connections(1)) as (server, url):
        with pytest.raises(TimeoutError):
            get(url, timeout=0.2)
        assert len(server.requests) == (0 if at == "accept" else 1)
        assert get(url).body == WHOLE


def test_who_has_hung_up_is_not_counted() -> None:
    """Though the thread that serves it has not heard of that yet."""
    with sick(Delay(1).connections(1)) as (server, url):
        with pytest.raises(TimeoutError):
            get(url, timeout=0.2)
        assert get(url).body == WHOLE
        assert server.connections_max == 1


def test_a_server_with_hanging_clients_stops_at_once() -> None:
    with sick(Hang()) as (server, _):
        clients = [socket.create_connection(server.address) for _ in range(20)]
        deadline = time.monotonic() + 5
        while server.connections_now < 20 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert server.connections_max == 20
        clients.pop().close()
        while server.connections_now > 19 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert server.connections_now == 19  # it notices who leaves
        begin = time.monotonic()
    assert seconds_since(begin) < 2
    for client in clients:
        client.close()


def test_drop() -> None:
    with sick(Drop().connections(1), Drop(at="request", reset=False).connections(2)) as (_, url):
        with pytest.raises(ConnectionResetError):
            get(url)
        with pytest.raises(http.client.RemoteDisconnected):
            get(url)
        assert get(url).how == "whole"


def test_garbage() -> None:
    with sick(Garbage()) as (_, url), pytest.raises(http.client.BadStatusLine):
        get(url)


def test_nobody_there() -> None:
    with pytest.raises(ConnectionRefusedError):
        get(dead_url("/a"))
    with black_hole() as base, pytest.raises(TimeoutError):
        get(f"{base}/a", timeout=0.2)


def test_delay_and_slow_headers() -> None:
    with sick(Delay(0.3).requests(1), SlowHeaders(400).requests(2)) as (_, url):
        begin = time.monotonic()
        assert get(url).how == "whole"
        assert 0.3 <= seconds_since(begin) < 5
        begin = time.monotonic()
        assert get(url).how == "whole"
        assert 0.3 <= seconds_since(begin) < 4  # some 200 bytes


# -- faults: another answer


def test_statuses_that_pass() -> None:
    busy = Status(503, retry_after="2").requests(2)
    with sick(Status(404).for_seconds(0.3), busy, Status(429).requests(3)) as (_, url):
        assert get(url).status == 404
        time.sleep(0.35)
        refused = get(url)
        assert (refused.status, refused.headers["Retry-After"]) == (503, "2")
        assert get(url).status == 429
        assert get(url).status == 200


def test_faults_for_one_path_and_method() -> None:
    with sick(Status(500).on("/a").methods("GET"), Status(403).after_seconds(9)) as (server, url):
        assert get(url).status == 500
        assert get(url, method="HEAD").status == 200
        assert get(server.url("/b")).body == b"small"
        server.faults = []
        assert get(url).status == 200


def test_faults_by_bytes() -> None:
    with sick(Status(500).bytes(1000, 3000)) as (_, url):
        answers = [get(url, (0, 1000)).status for _ in range(4)]
        assert answers[:2] == [206, 500]
        assert answers[-1] in (206, 500)  # the texts of refusals are bytes too


def test_crowded() -> None:
    with sick(Crowded(1)) as (server, url):
        first = connect(url)
        assert get(url, connection=first).status == 200
        assert get(url).status == 503
        first.close()
        deadline = time.monotonic() + 5
        while server.connections_now and time.monotonic() < deadline:
            time.sleep(0.01)
        assert get(url).status == 200


def test_redirects() -> None:
    with sick(Redirect().on("/a"), Redirect("http://127.0.0.1:9/x", 307).on("/b")) as (server, url):
        loop = get(url)
        assert (loop.status, loop.headers["Location"]) == (302, "/a")
        assert get(server.url("/b")).headers["Location"] == "http://127.0.0.1:9/x"


def test_range_ignored() -> None:
    with sick(IgnoreRange()) as (_, url):
        got = get(url, (1000, 2000))
        assert (got.status, got.body) == (200, WHOLE)
        assert "Content-Range" not in got.headers


def test_wrong_content_range() -> None:
    with sick(WrongContentRange(100)) as (server, url):
        got = get(url, (1000, 2000))
        assert got.headers["Content-Range"] == f"bytes 1100-2099/{CONTENT.size}"
        assert got.body == WHOLE[1100:2100]
        server.faults = [WrongContentRange(100, lie=True)]
        got = get(url, (1000, 2000))
        assert got.headers["Content-Range"] == f"bytes 1000-1999/{CONTENT.size}"
        assert got.body == WHOLE[1100:2100]
        server.faults = [WrongContentRange(100, header_only=True)]
        got = get(url, (1000, 2000))
        assert got.headers["Content-Range"] == f"bytes 1100-2099/{CONTENT.size}"
        assert got.body == WHOLE[1000:2000]


def test_wrong_lengths() -> None:
    with sick(WrongLength(500)) as (server, url):
        got = get(url, (0, 1000))
        assert (got.headers["Content-Length"], got.body, got.how) == ("1500", WHOLE[:1000], "short")
        server.faults = [WrongLength(-500)]
        assert (get(url, (0, 1000)).body) == WHOLE[:500]
        server.faults = [Shorter(5000)]
        whole, part = get(url), get(url, (4000, 9000))
        assert (whole.body, whole.how) == (WHOLE[:5000], "whole")
        assert part.body == WHOLE[4000:5000]
        assert part.headers["Content-Range"] == "bytes 4000-4999/5000"
        assert get(url, (5000, 9000)).status == 416


def test_headers_are_set_and_removed() -> None:
    fault = Headers((("ETag", None), ("Digest", "md5=AAAA"), ("age", "5")))
    with sick(fault) as (_, url):
        headers = get(url).headers
        assert (headers["ETag"], headers["Digest"], headers["Age"]) == (None, "md5=AAAA", "5")


# -- faults: other bytes


def test_flipped_byte() -> None:
    with sick(Flip(5000)) as (server, url):
        bad = bytearray(WHOLE)
        bad[5000] ^= 1
        assert get(url).body == bad
        assert get(url, (4000, 6000)).body == bad[4000:6000]
        assert get(url, (0, 5000)).body == WHOLE[:5000]
        server.faults = [Flip(5000, 0x80).once()]
        assert get(url, (5001, 6000)).body == WHOLE[5001:6000]  # does not count
        assert get(url, (5000, 6000)).body[0] == WHOLE[5000] ^ 0x80
        assert get(url, (5000, 6000)).body == WHOLE[5000:6000]


def test_flipped_byte_of_a_file(tmp_path: Path) -> None:
    with CONTENT.write(tmp_path / "a") as filed, Server({"/a": filed}, [Flip(2 * MB)]) as server:
        body = get(server.url("/a")).body
        assert body[2 * MB] == WHOLE[2 * MB] ^ 1
        assert body[: 2 * MB] + body[2 * MB + 1 :] == WHOLE[: 2 * MB] + WHOLE[2 * MB + 1 :]


def test_other_versions() -> None:
    shorter = Made(MB, seed=9)
    with sick(Version(OTHER)) as (server, url):
        got = get(url, (1000, 2000))
        assert (got.body, got.headers["ETag"]) == (OTHER.read(1000, 1000), OTHER.etag)
        server.faults = [Version(OTHER, keep_etag=True)]
        got = get(url, (1000, 2000))
        assert (got.body, got.headers["ETag"]) == (OTHER.read(1000, 1000), CONTENT.etag)
        server.faults = [Version(shorter)]
        assert get(url, (1000, 2000)).headers["Content-Range"] == f"bytes 1000-1999/{MB}"
        assert get(url).body == shorter.read(0, MB)


def test_another_version_has_no_digest_of_the_true_one() -> None:
    with Server({"/a": CONTENT}, [Version(OTHER)], digests=Digests()) as server:
        assert "Digest" not in get(server.url("/a"), method="HEAD", Want_Digest="md5").headers
        server.faults = [Version(OTHER, keep_etag=True)]
        assert "Digest" in get(server.url("/a"), method="HEAD", Want_Digest="md5").headers


def test_a_version_that_changes_under_way() -> None:
    with sick(Change(OTHER, after=2 * MB)) as (_, url):
        first, second = get(url), get(url)
        assert first.headers["ETag"] == CONTENT.etag
        assert first.body == WHOLE[: 2 * MB] + OTHER.read(2 * MB, 2 * MB)
        assert (second.headers["ETag"], second.body) == (OTHER.etag, OTHER.read(0, 4 * MB))


# -- faults: bytes that do not come


def test_silent_per_connection() -> None:
    with sick(Silent(after=1500)) as (_, url):
        client = connect(url, 1)
        assert len(get(url, (0, 1000), connection=client).body) == 1000
        got = get(url, (1000, 2000), connection=client)
        assert (got.body, got.how) == (WHOLE[1000:1500], "silent")
        client.close()
        assert get(url, (0, 1500)).how == "whole"


def test_silent_for_ever() -> None:
    with sick(Silent(after=1500, scope="server")) as (server, url):
        assert len(get(url, (0, 1000)).body) == 1000
        assert len(get(url, (0, 1000), timeout=3).body) == 500
        assert len(get(url, (0, 1000), timeout=0.2).body) == 0
        assert server.sent == 1500


def test_a_limit_for_all_connections_is_exact() -> None:
    with sick(Silent(after=5 * MB + 1, scope="server")) as (server, url):
        threads = [
            threading.Thread(target=get, args=(url,), kwargs={"timeout": 1}) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert server.sent == 5 * MB + 1


def test_truncated() -> None:
    with sick(Truncate(2 * MB)) as (_, url):
        got = get(url)
        assert (got.body, got.how) == (WHOLE[: 2 * MB], "short")
        assert got.headers["Content-Length"] == str(CONTENT.size)
        assert get(url, (0, 2 * MB)).how == "whole"


def test_truncated_for_good() -> None:
    with sick(Truncate(2 * MB, scope="object")) as (_, url):
        assert get(url).body == WHOLE[: 2 * MB]
        beyond = get(url, (2 * MB, 3 * MB))
        assert (beyond.status, beyond.body, beyond.how) == (206, b"", "short")


def test_reset_every_so_many_bytes() -> None:
    with sick(Reset(every=MB)) as (_, url):
        for _ in range(2):  # each connection anew
            got = get(url)
            assert got.how == "reset" and len(got.body) <= MB


def test_rates() -> None:
    with sick(Rate(MB)) as (server, url):
        begin = time.monotonic()
        assert get(url, (0, MB // 2)).how == "whole"
        assert 0.4 < seconds_since(begin) < 5
        server.faults = [Rate(1000)]
        with socket.create_connection(server.address) as client:
            client.sendall(b"GET /a HTTP/1.1\r\n\r\n")
            time.sleep(1)
            count = len(client.recv(1 << 16).partition(b"\r\n\r\n")[2])
        assert 500 < count < 1500


def test_a_rate_for_all_connections_together() -> None:
    with sick(Rate(2 * MB, scope="server")) as (_, url):
        threads = [threading.Thread(target=get, args=(url, (0, MB // 4))) for _ in range(4)]
        begin = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert 0.4 < seconds_since(begin) < 5


def test_a_strained_server_gives_less_to_a_crowd() -> None:
    with sick(Strained(2 * MB, crowd=1)) as (_, url):
        idle = connect(url)
        assert get(url, (0, 1), connection=idle).how == "whole"
        begin = time.monotonic()
        assert get(url, (0, MB // 2)).how == "whole"
        assert 0.4 < seconds_since(begin) < 5  # half of the rate: the idle one counts too
        idle.close()


def test_trailers() -> None:
    with Server({"/a": CONTENT}, trailers=True) as server:
        url = server.url("/a")
        assert get(url, TE="trailers").body == WHOLE
        assert "X-Transfer-Status: 200: OK" in _raw(server, "TE: trailers")
        assert "X-Transfer-Status" not in _raw(server, "X: y")
        server.faults = [FailedTrailer(after=1000)]
        said = _raw(server, "TE: trailers")
        assert said.startswith("HTTP/1.1 206")
        assert said.endswith("0\r\nX-Transfer-Status: 500: the origin went away\r\n\r\n")
        cut = get(url, (500, 5000))
        assert (cut.body, cut.how) == (WHOLE[500:1500], "whole")  # only the trailer tells


def _raw(server: Server, header: str) -> str:
    said = b""
    with socket.create_connection(server.address) as client:
        lines = ["GET /a HTTP/1.1", "Range: bytes=0-2999", "Connection: close", header, "", ""]
        client.sendall("\r\n".join(lines).encode())
        while piece := client.recv(1 << 16):
            said += piece
    return said.decode("latin-1")


def test_faults_together() -> None:
    with sick(Delay(0.2), Flip(10), Truncate(1000), Headers((("ETag", None),))) as (_, url):
        begin = time.monotonic()
        got = get(url)
        assert seconds_since(begin) >= 0.2
        assert (len(got.body), got.how, got.headers["ETag"]) == (1000, "short", None)
        assert got.body[10] == WHOLE[10] ^ 1


# -- faults: other framing


@pytest.mark.parametrize("size", [1, 64, None])
def test_chunks(size: int | None) -> None:
    with sick(Chunked(size)) as (server, url):
        got = get(url, (100, 5100))
        assert (got.status, got.body, got.how) == (206, WHOLE[100:5100], "whole")
        assert got.headers["Content-Range"] and got.headers["Content-Length"] is None
        assert get(url, method="HEAD").headers["Content-Length"] is None
        said = _raw(server, "X: y").partition("\r\n\r\n")[2]
        assert said.startswith(f"{size or 3000:x}\r\n") and said.endswith("\r\n0\r\n\r\n")


def test_chunks_cut_off_and_no_size_anywhere() -> None:
    with sick(IgnoreRange(), Chunked(), Truncate(MB)) as (_, url):
        got = get(url, (100, 5100))
        assert (got.status, got.body, got.how) == (200, WHOLE[:MB], "short")
        assert not {"Content-Range", "Content-Length"} & set(got.headers)


@pytest.mark.parametrize("fault", [Unsized(), Http10()])
def test_the_end_of_the_connection_is_that_of_the_body(fault: Unsized | Http10) -> None:
    with sick(fault) as (server, url):
        for method in ("GET", "HEAD"):
            got = get(url, (100, 5100), method=method)
            assert (got.status, got.how, got.headers["Connection"]) == (200, "whole", "close")
            assert got.body == (WHOLE if method == "GET" else b"")
            told = {"Content-Range", "Content-Length", "Transfer-Encoding", "Accept-Ranges"}
            assert not told & set(got.headers)
        version = "1.0" if isinstance(fault, Http10) else "1.1"
        assert _raw(server, "X: y").startswith(f"HTTP/{version} 200 OK")
        server.faults = [fault, Truncate(MB)]
        got = get(url)
        assert (got.body, got.how) == (WHOLE[:MB], "whole")  # nobody can tell


def test_a_sized_answer_of_http_1_0() -> None:
    with sick(Http10(sized=True)) as (_, url):
        got = get(url, (100, 5100))
        assert (got.status, got.headers["Content-Length"]) == (200, str(CONTENT.size))
        assert (got.body, got.headers["Connection"]) == (WHOLE, "close")


def test_tls_without_its_farewell() -> None:
    with Server({"/a": CONTENT}, [Unsized()], tls=Authority.get().good) as server:
        assert _over_tls(server) == (CONTENT.size, "closed")
        server.faults = [Unsized(), Truncate(MB)]
        assert _over_tls(server) == (MB, "cut")


def _over_tls(server: Server) -> tuple[int, str]:
    """The length of a body, and how TLS ended; http.client does not tell."""
    context, said = Authority.get().client_context(), b""
    context.options &= ~getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)  # older Pythons ignore it
    with context.wrap_socket(
        socket.create_connection(server.address, timeout=10),
        server_hostname=server.address[0],
        suppress_ragged_eofs=False,
    ) as client:
        client.sendall(b"GET /a HTTP/1.1\r\n\r\n")
        try:
            while piece := client.recv(1 << 16):
                said += piece
            how = "closed"
        except ssl.SSLError:  # SSLEOFError in newer Pythons
            how = "cut"
    return len(said.partition(b"\r\n\r\n")[2]), how


def test_folded_headers_and_line_feeds() -> None:
    with sick(FoldedHeaders()) as (server, url):
        assert f"ETag:\r\n\t {CONTENT.etag}\r\n" in _raw(server, "X: y")
        got = get(url, (0, 10))
        assert (got.headers["ETag"].strip(), got.body) == (CONTENT.etag, WHOLE[:10])
        server.faults = [LineFeeds()]
        head = _raw(server, "X: y").partition("\n\n")[0]
        assert "\r" not in head and f"\nETag: {CONTENT.etag}\n" in head
        assert get(url, (0, 10)).body == WHOLE[:10]


def test_unasked_gzip() -> None:
    with sick(Coded()) as (_, url):
        got = get(url, (100, 5100))
        assert (got.status, got.headers["Content-Encoding"]) == (200, "gzip")
        assert got.headers["Content-Length"] is None and gzip.decompress(got.body) == WHOLE
        assert get(url, method="HEAD").headers["ETag"] == f"W/{CONTENT.etag}"


# -- faults: other words


def test_a_lying_head() -> None:
    date = "Fri, 03 Jan 2025 00:00:00 GMT"
    with sick(LyingHead(length=0, etag='"x"', modified=date)) as (_, url):
        told, true = get(url, method="HEAD").headers, get(url).headers
        assert (told["Content-Length"], told["ETag"], told["Last-Modified"]) == ("0", '"x"', date)
        assert (true["Content-Length"], true["ETag"]) == (str(CONTENT.size), CONTENT.etag)
        assert true["Last-Modified"] != date


def test_validators_that_change() -> None:
    with sick(Validators(etag="new", modified="new")) as (server, url):
        seen = [get(url, (0, 10)) for _ in range(4)]
        assert len({got.headers["ETag"] for got in seen}) == 4
        assert len({got.headers["Last-Modified"] for got in seen}) == 4
        assert {got.body for got in seen} == {WHOLE[:10]}
        server.faults = [Validators(etag=('"a"', '"b"'), modified="now")]
        seen = [get(url, (0, 10)) for _ in range(4)]
        tags = [got.headers["ETag"] for got in seen]
        assert set(tags[:2]) == {'"a"', '"b"'} and tags[:2] == tags[2:]
        now = parsedate_to_datetime(seen[-1].headers["Last-Modified"]).timestamp()
        assert abs(now - time.time()) < 5


def test_a_portal() -> None:
    with sick(Portal()) as (server, url):
        for path in ("/a", "/nothing"):
            got = get(server.url(path), (100, 200))
            assert (got.status, got.headers["ETag"]) == (200, None)
            assert got.headers["Content-Type"].startswith("text/html")
            assert got.body.startswith(b"<!DOCTYPE html>")
        server.faults = [Portal(b"<p>Error").methods("GET")]
        assert get(url, method="HEAD").headers["Content-Length"] == str(CONTENT.size)
        assert get(url).body == b"<p>Error"


def test_wrong_bytes_after_a_good_start() -> None:
    with sick(OtherBytes(after=MB)) as (_, url):
        got = get(url)
        assert got.body[:MB] == WHOLE[:MB] and got.headers["ETag"] == CONTENT.etag
        assert not any(a == b for a, b in zip(got.body[MB:], WHOLE[MB:], strict=True))
        part = get(url, (MB - 5, MB + 5))
        assert part.headers["Content-Range"] == f"bytes {MB - 5}-{MB + 4}/{CONTENT.size}"
        assert part.body == got.body[MB - 5 : MB + 5]


def test_a_dead_ipv6_beside_a_live_ipv4() -> None:
    with Server({"/a": CONTENT}, host="127.0.0.1") as server:
        try:
            place = dead_ipv6(server.address[1])
            with place as host, pytest.raises(TimeoutError):
                socket.create_connection((host, server.address[1]), timeout=0.2)
        except OSError as error:
            pytest.skip(f"no IPv6 on loopback: {error}")
        assert get(server.url("/a"), (0, 10)).body == WHOLE[:10]
