"""Content and sound servers; the faults have tests of their own."""

from __future__ import annotations

import base64
import hashlib
import http.client
import socket
import subprocess
import time
from pathlib import Path

import pytest
from tests.lab import Digests, Drop, Filed, Held, Made, Object, Reset, Server, Status, Truncate
from tests.lab.client import CONTENT, MB, OTHER, WHOLE, connect, get
from tests.lab.content import crc32c


def test_example_curl_goes_on_after_resets(tmp_path: Path) -> None:
    """As a test of the engine looks: a fault, a client, and the file it leaves."""
    content = Made(4 * MB, seed=1)
    with Server({"/a": content}, [Truncate(MB + 1, scope="connection")]) as server:
        for _ in range(4):
            command = ["curl", "-sS", "-C", "-", "-o", str(tmp_path / "a"), server.url("/a")]
            subprocess.run(command, capture_output=True)
        assert content.fault(tmp_path / "a") is None
        assert server.sent == content.size
        assert server.ranges[1] == f"bytes={MB + 1}-"


# -- content


def test_content_is_a_function_of_its_offset(tmp_path: Path) -> None:
    assert len(WHOLE) == CONTENT.size
    for begin, length in ((0, 1), (65_535, 2), (MB - 1, 70_000), (CONTENT.size - 3, 99)):
        assert CONTENT.read(begin, length) == WHOLE[begin : begin + length]
    assert CONTENT.read(CONTENT.size, 5) == b""
    blocks = {WHOLE[at : at + 1000] for at in range(0, 3 * MB, 65_536)}
    assert len(blocks) == 48  # no two alike, so a misplaced one is noticed
    assert OTHER.read(0, 1000) != WHOLE[:1000]
    assert CONTENT.digest("sha256") == hashlib.sha256(WHOLE).hexdigest()
    assert CONTENT.checksum("md5") == f"md5:{hashlib.md5(WHOLE).hexdigest()}"
    assert f"{crc32c(b'123456789'):08x}" == "e3069283"
    assert Held(b"Wikipedia").digest("adler32") == "11e60398"
    with CONTENT.write(tmp_path / "a") as filed:
        assert filed.digest("sha256") == CONTENT.digest("sha256")
        assert CONTENT.fault(tmp_path / "a") is None
    bad = bytearray(WHOLE)
    bad[MB + 5] ^= 1
    (tmp_path / "a").write_bytes(bad)
    assert CONTENT.fault(tmp_path / "a") == f"byte {MB + 5} is wrong"
    (tmp_path / "a").write_bytes(WHOLE[:-1])
    assert CONTENT.fault(tmp_path / "a") == f"{CONTENT.size - 1} bytes, not {CONTENT.size}"


# -- a sound server


def test_a_sound_server(tmp_path: Path) -> None:
    with CONTENT.write(tmp_path / "a") as filed, Server({"/a": CONTENT, "/f": filed}) as server:
        client = connect(server.url("/"))
        for path in ("/a", "/f"):
            url = server.url(path)
            assert get(url, connection=client).body == WHOLE
            part = get(url, (1000, 2 * MB), connection=client, X_Word="geheim")
            assert (part.status, part.body) == (206, WHOLE[1000 : 2 * MB])
            assert part.headers["Content-Range"] == f"bytes 1000-{2 * MB - 1}/{CONTENT.size}"
            head = get(url, connection=client, method="HEAD")
            assert (head.body, head.headers["Content-Length"]) == (b"", str(CONTENT.size))
        tail = get(server.url("/a"), connection=client, Range="bytes=-10")
        assert tail.body == WHOLE[-10:]
        beyond = get(server.url("/a"), (CONTENT.size, CONTENT.size + 1), connection=client)
        assert (beyond.status, beyond.headers["Content-Range"]) == (416, f"bytes */{CONTENT.size}")
        assert get(server.url("/none"), connection=client).status == 404
        etag, range = CONTENT.etag, (0, 10)
        assert get(server.url("/a"), range, connection=client, If_Range=etag).status == 206
        assert get(server.url("/a"), range, connection=client, If_Range='"other"').status == 200
        assert get(server.url("/a"), range, connection=client, If_Match='"other"').status == 412
        assert (server.connections, server.connections_now, server.connections_max) == (1, 1, 1)
        assert server.requests[1].sent == 2 * MB - 1000
        assert server.sent == sum(request.sent for request in server.requests)
        assert server.ranges[:2] == [None, f"bytes=1000-{2 * MB - 1}"]
        assert server.saw("geheim") and not server.saw("Geheimnis")
        client.close()


def test_a_healthy_source_is_fast(tmp_path: Path) -> None:
    with Made(128 * MB).write(tmp_path / "a") as filed, Server({"/a": filed}) as server:
        # the machine has other work too, so the processor time of the best of some tries counts
        assert any(_rate(server, filed) > 500e6 for _ in range(12))


def _rate(server: Server, filed: Filed) -> float:
    buffer, count = bytearray(MB), 0
    with socket.create_connection(server.address) as client:
        client.sendall(b"GET /a HTTP/1.1\r\nConnection: close\r\n\r\n")
        begin = time.process_time()
        while got := client.recv_into(buffer):
            count += got
    assert count > filed.size
    return count / (time.process_time() - begin)


def test_puts() -> None:
    with Server({"/a": b"old"}, moves=True) as server:
        assert get(server.url("/new"), method="PUT", body=b"data").status == 201
        assert get(server.url("/new")).body == b"data"
        assert get(server.url("/a"), method="PUT", body=b"x", If_None_Match="*").status == 412
        assert server.store["/a"].content.read(0, 9) == b"old"
        move = get(server.url("/new"), method="MOVE", Destination=server.url("/a"), Overwrite="F")
        assert move.status == 412
        assert get(server.url("/new"), method="MOVE", Destination=server.url("/c")).status == 204
        assert server.store.paths() == ["/a", "/c"]
        assert get(server.url("/c"), method="DELETE").status == 204
        assert get(server.url("/c")).status == 404
        assert server.received == 4 + 1


@pytest.mark.parametrize("half", [False, True])
def test_a_put_that_is_cut(half: bool) -> None:
    with Server({}, [Reset(every=1000)], half_objects=half) as server:
        with pytest.raises(OSError):
            get(server.url("/a"), method="PUT", body=WHOLE)
        deadline = time.monotonic() + 5
        while server.connections_now and time.monotonic() < deadline:
            time.sleep(0.01)
        assert ("/a" in server.store) is half
        assert not half or server.store["/a"].content.size == 1000


def test_a_put_whose_answer_is_lost() -> None:
    with Server({}, [Drop(at="request").once()]) as server:
        with pytest.raises((ConnectionError, http.client.BadStatusLine)):
            get(server.url("/a"), method="PUT", body=b"data")
        assert server.store["/a"].content.read(0, 9) == b"data"


def test_a_put_that_is_refused_before_its_body() -> None:
    with Server({}, [Status(507)]) as server, socket.create_connection(server.address) as client:
        client.sendall(b"PUT /a HTTP/1.1\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n")
        assert client.recv(99).startswith(b"HTTP/1.1 507")
        server.faults = []
        with socket.create_connection(server.address) as other:
            other.sendall(b"PUT /a HTTP/1.1\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
            assert other.recv(99).startswith(b"HTTP/1.1 100")
            other.sendall(b"abc")
            assert other.recv(99).startswith(b"HTTP/1.1 201")


def test_digests() -> None:
    plain, digits = {"/a": CONTENT}, bytes.fromhex
    sha, md5 = (base64.b64encode(digits(CONTENT.digest(n))).decode() for n in ("sha256", "md5"))
    crc = digits(CONTENT.digest("crc32c"))
    with Server(plain, digests=Digests()) as server:
        url = server.url("/a")
        assert "Digest" not in get(url, method="HEAD").headers
        wanted = get(url, method="HEAD", Want_Digest="md5;q=0.1, sha-256;q=0.9").headers
        assert wanted["Digest"] == f"sha-256={sha}"
        wanted = get(url, (0, 9), Want_Repr_Digest="sha-256=1, md5=9, crc32c=0").headers
        assert wanted["Repr-Digest"] == f"md5=:{md5}:"
        crc_wanted = get(url, method="HEAD", Want_Digest="crc32c").headers
        assert crc_wanted["Digest"] == f"crc32c={base64.b64encode(crc).decode()}"
        adler = get(url, method="HEAD", Want_Digest="adler32").headers
        assert adler["Digest"] == f"adler32={CONTENT.digest('adler32')}"
        assert "Digest" not in get(url, method="HEAD", Want_Digest="sha-512").headers
    with Server(plain, digests=Digests(crc32c="hex", refuse=405)) as server:
        assert get(server.url("/a"), method="HEAD", Want_Digest="crc32c").status == 405
        got = get(server.url("/a"), Want_Digest="crc32c")
        assert (got.status, got.headers["Digest"]) == (200, f"crc32c={crc.hex()}")
    with Server(plain, digests=Digests(of=OTHER)) as server:
        lie = get(server.url("/a"), method="HEAD", Want_Digest="sha-256").headers["Digest"]
        assert lie == f"sha-256={base64.b64encode(digits(OTHER.digest('sha256'))).decode()}"


def test_names_and_ages() -> None:
    with Server({"/a": Object(CONTENT, etag=None, modified=None)}, age=7, name="x/1") as server:
        headers = get(server.url("/a"), (0, 1)).headers
        assert (headers["Age"], headers["Server"]) == ("7", "x/1")
        assert "ETag" not in headers and "Last-Modified" not in headers
