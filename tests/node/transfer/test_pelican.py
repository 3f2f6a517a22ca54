"""Sources by name: directors that help, fail, lie and attack."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests import lab
from tests.lab import (
    Authority,
    Director,
    Drop,
    Garbage,
    Hang,
    Headers,
    Held,
    Server,
    SlowHeaders,
    Status,
    black_hole,
    dead_url,
)

from headway.node.errors import NodeError, Stopped, TransferError
from headway.node.transfer import federation, fetch
from headway.node.transfer.discovery import Discovery
from headway.node.transfer.federation import (
    Offer,
    absence_is_final,
    pairs,
    places,
    resolve,
    sources_of,
)
from headway.node.transfer.heads import ResponseHead, retry_after
from headway.node.transfer.http import ask
from headway.node.transfer.options import Options
from headway.node.transfer.source import Fault
from headway.node.transfer.upload import Delivery

from .federation import ISSUER, TRACER, clean, creds, jwt

pytestmark = pytest.mark.usefixtures(clean.__name__)
__all__ = ["clean"]

DATA = Held(b"data" * 1000)


def cache() -> Server:
    return Server({"/lab/a": DATA}, tls=Authority.get().good)


def headers(lines: dict[str, str | None]) -> Headers:
    return Headers(tuple(lines.items()))


def fault_of(url: str, **more: bool) -> Fault:
    with pytest.raises(Fault) as caught:
        resolve(url, **more)  # type: ignore[arg-type]
    assert caught.value.phase == "resolve"
    return caught.value


def test_caches_in_their_order_and_then_the_origin() -> None:
    with (
        cache() as one,
        cache() as two,
        cache() as home,
        Director("/lab", [one, two], [home]) as it,
    ):
        url = it.pelican_url("/a")
        offers = resolve(url)
        assert [offer.url for offer in offers] == [one.url("/lab/a"), two.url("/lab/a")]
        assert [(o.priority, o.depth, o.cache, o.origin) for o in offers] == [
            (1, 1, True, False),
            (2, 1, True, False),
        ]
        assert [offer.token for offer in offers] == [None, None]
        (last,) = resolve(url, direct=True)
        assert last.url == home.url("/lab/a", query="directread")
        assert last.origin
        assert [offer.name for offer in sources_of([url], origins=True)] == [
            f"{server.address[0]}:{server.address[1]}" for server in (one, two, home)
        ]
        asked = [request.path for request in it.requests]
        assert asked.count("/.well-known/pelican-configuration") == 1  # kept for the process
        assert "/api/v1.0/director/origin/lab/a" in asked


def test_the_priorities_decide_not_the_order() -> None:
    links = (
        '<https://c/a>; pri=3, <https://a/a>;rel="duplicate";pri=1,<https://b/a>; pri=2; depth=4'
    )
    assert [place.url[8] for place in places(links, "")] == ["a", "b", "c"]
    assert places(links, "")[1].depth == 4
    assert [p.url for p in places("", "https://l/a")] == ["https://l/a"]
    assert [p.url for p in places('<https://x/a>; rel="describedby"', "")] == []
    assert [p.url for p in places("<https://a/x,y;z>; pri=1", "https://a/x,y;z")] == [
        "https://a/x,y;z"
    ]


def test_osdf_asks_the_host_that_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    with cache() as one, Director("/lab", [one]) as it, Director("/lab", []) as other:
        monkeypatch.setenv("PELICAN_FEDERATION_DISCOVERYURL", it.url("").rstrip("/"))
        for scheme in ("osdf", "stash"):
            assert resolve(f"{scheme}:///lab/a")[0].url == one.url("/lab/a")
        assert resolve("osdf://lab/a")[0].url == one.url("/lab/a")
        host, port = it.address
        monkeypatch.setenv("PELICAN_FEDERATION_DISCOVERYURL", f"{host}:{port}")
        assert resolve("osdf:///lab/a")[0].url == one.url("/lab/a")
        monkeypatch.setenv("OSDF_DIRECTOR_URL", other.url(""))
        assert "knows no server" in fault_of("osdf:///lab/a").words
        assert resolve(it.pelican_url("/a"))  # a URL with a host has its own federation


def test_six_caches_are_enough() -> None:
    many = ", ".join(f"<https://c{n}.invalid/lab/a>; pri={n}" for n in range(1, 500))
    with Director("/lab", [dead_url("")], faults=[headers({"Link": many}).on("/lab/a")]) as it:
        offers = resolve(it.pelican_url("/a"))
        assert len(offers) == 6
        assert offers[1].url == "https://c1.invalid/lab/a"


def test_preferred_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    with cache() as one, cache() as two, Director("/lab", [one, two]) as it:
        url = it.pelican_url("/a")
        monkeypatch.setenv("NEAREST_CACHE", f"{two.url('').rstrip('/')},https://mine.invalid,+")
        assert [offer.url for offer in resolve(url)] == [
            two.url("/lab/a"),
            "https://mine.invalid/lab/a",
            one.url("/lab/a"),
        ]
        monkeypatch.setenv("NEAREST_CACHE", "mine.invalid")
        assert [offer.url for offer in resolve(url)] == ["https://mine.invalid/lab/a"]
        monkeypatch.setenv("BEARER_TOKEN", jwt())
        it.require_token = True
        offers = resolve(url)  # nobody but the director says who may see a token
        assert [offer.url for offer in offers] == [one.url("/lab/a"), two.url("/lab/a")]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Status(404, server="nginx"), "something before"),
        (Status(500, server="nginx"), "something before"),
        (Status(502, server="nginx"), "something before"),
        (Status(429, retry_after="7"), "busy"),
        (Status(500), "HTTP 500"),
        (Drop(), "cannot be asked"),
        (Garbage(), "does not speak HTTP"),
        (headers({"Location": "file:///etc/passwd", "Link": None}), "nowhere"),
        (headers({"Location": "https://me:x@h/a", "Link": None}), "nowhere"),
        (headers({"Location": None, "Link": None}), "nowhere"),
    ],
)
def test_director_faults_that_pass(fault: lab.Fault, words: str) -> None:
    with cache() as one, Director("/lab", [one], faults=[fault.on("/lab/a")]) as it:
        said = fault_of(it.pelican_url("/a"))
        assert words in said.words
        assert said.retryable
        assert not said.settled
        it.faults = []
        assert resolve(it.pelican_url("/a"))


def test_retry_after_is_handed_on() -> None:
    fault = Status(429, retry_after="7").on("/lab/a")
    with Director("/lab", [dead_url("")], faults=[fault]) as it:
        said = fault_of(it.pelican_url("/a"))
        assert said.after == 7
        assert said.strain


def test_a_404_counts_only_when_the_director_stays_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with Director("/lab", [dead_url("")], objects=[]) as it:
        url = it.pelican_url("/a")
        assert fault_of(url).retryable
        monkeypatch.setattr(federation, "GRACE", 0.3)
        assert fault_of(url).retryable
        assert fault_of(url).retryable  # often enough, but not for long enough
        time.sleep(0.3)
        said = fault_of(url)
        assert said.absent
        assert said.settled
        assert not said.retryable
        assert fault_of(it.pelican_url("/b")).retryable  # each object for itself
        it.objects = {"/lab/a"}
        assert resolve(url)
        it.objects = set()
        assert fault_of(url).retryable  # and from the beginning


def test_when_an_absence_is_final() -> None:
    assert not absence_is_final(2, 1e9)
    assert not absence_is_final(99, 1.0)
    assert absence_is_final(federation.ABSENCES, federation.GRACE)


def test_a_director_in_circles() -> None:
    away = headers({"Location": "/lab/b", "Link": None, "X-Pelican-Namespace": None})
    back = headers({"Location": "/lab/a", "Link": None, "X-Pelican-Namespace": None})
    faults = [away.on("/lab/a"), back.on("/lab/b")]
    with Director("/lab", [dead_url("")], faults=faults) as it:
        assert "in a loop" in fault_of(it.pelican_url("/a")).words
        assert len(it.requests) < 6


def test_a_giant_answer_is_not_swallowed() -> None:
    giant = ", ".join(f"<https://c.invalid/{n}>" for n in range(10_000))
    with Director("/lab", [dead_url("")], faults=[headers({"Link": giant}).on("/lab/a")]) as it:
        assert "too long" in fault_of(it.pelican_url("/a")).words


@pytest.mark.parametrize("document", [b"", b"[]", b"{", b'{"director_endpoint": 5}', b"\xff"])
def test_documents_that_are_none(document: bytes) -> None:
    objects = {"/.well-known/pelican-configuration": document}
    with Server(objects, tls=Authority.get().good) as it:
        assert fault_of(f"pelican://{it.address[0]}:{it.address[1]}/lab/a").retryable


@pytest.mark.parametrize("endpoint", ["http://h/", "file:///etc", "https://me:x@h/", "gopher://h"])
def test_a_director_that_is_not_safe_to_ask(endpoint: str) -> None:
    with Director("/lab", [], endpoint=endpoint) as it:
        said = fault_of(it.pelican_url("/a"))
        assert "cannot be used" in said.words
        assert not said.retryable


def test_a_federation_of_one_server() -> None:
    document = Held(json.dumps({}).encode())
    objects = {"/.well-known/pelican-configuration": document, "/lab/a": DATA}
    with Server(objects, tls=Authority.get().good) as it:
        (offer,) = resolve(f"pelican://{it.address[0]}:{it.address[1]}/lab/a?skipstat")
        assert offer.url == it.url("/lab/a")
        assert offer.origin


def test_a_director_that_is_silent_is_left_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(federation, "ANSWER", 0.5)
    for sick in (Hang("request"), SlowHeaders(20)):
        with Director("/lab", [dead_url("")], faults=[sick.on("/lab/a")]) as it:
            begin = time.monotonic()
            assert fault_of(it.pelican_url("/a")).retryable
            assert time.monotonic() - begin < 3


def test_a_wish_to_stop_is_heard_while_waiting() -> None:
    with Director("/lab", [dead_url("")], faults=[Hang()]) as it:
        begin = time.monotonic()
        with pytest.raises(Stopped):
            resolve(it.pelican_url("/a"), should_stop=lambda: time.monotonic() - begin > 0.3)
        assert time.monotonic() - begin < 2


def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    from headway.node.transfer import connection

    monkeypatch.setattr(connection, "CONNECT", 0.5)
    with black_hole("https") as hole:
        for url in (hole, dead_url("", "https")):
            host = url.removeprefix("https://")
            said = fault_of(f"pelican://{host}/lab/a")
            assert said.retryable
            assert host in said.words


def test_certificates_of_directors_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority.get()
    for identity in (authority.unknown, authority.expired, authority.wrong_host):
        with Director("/lab", [dead_url("")], tls=identity) as it:
            assert "certificate" in fault_of(it.pelican_url("/a")).words
            assert it.requests == []


@pytest.mark.parametrize("query", ["recursive", "recursive=true", "a=1&pack=tar"])
def test_single_objects_only(query: str) -> None:
    assert fault_of(f"pelican://h.invalid/lab/a?{query}").settled


@pytest.mark.parametrize("url", ["", "x", "pelican:///lab/a", "osdf:///", "ftp://h/a"])
def test_urls_that_cannot_be(url: str) -> None:
    with pytest.raises(TransferError) as caught:
        resolve(url)
    assert not caught.value.retryable


# -- tokens


def test_a_token_goes_with_each_offer_and_not_to_the_director(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in creds(tmp_path, scitokens=jwt()).items():
        monkeypatch.setenv(name, value)
    with cache() as one, Director("/lab", [one], require_token=True) as it:
        (offer,) = resolve(it.pelican_url("/a"))
        assert offer.token is not None
        assert offer.token.reveal().endswith(TRACER)
        assert not it.saw(TRACER)
        assert TRACER not in repr(offer)
        it.require_token = False
        assert resolve(it.pelican_url("/a"))[0].token is None  # what is public needs none


def test_no_token_over_plain_http(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BEARER_TOKEN", jwt())
    with (
        Server({"/lab/a": DATA}) as plain,
        cache() as safe,
        Director("/lab", [plain, safe], require_token=True) as it,
    ):
        assert [offer.url for offer in resolve(it.pelican_url("/a"))] == [safe.url("/lab/a")]
        it.caches = [plain]
        assert "unencrypted" in fault_of(it.pelican_url("/a")).words
        it.require_token = False
        assert [o.url for o in resolve(it.pelican_url("/a"))] == [plain.url("/lab/a")]


def test_a_missing_and_an_expired_token(monkeypatch: pytest.MonkeyPatch) -> None:
    with cache() as one, Director("/lab", [one], require_token=True) as it:
        said = fault_of(it.pelican_url("/a"))
        assert "/lab requires a token" in said.words
        assert not said.retryable
        assert "BEARER_TOKEN_FILE" in said.remedy
        monkeypatch.setenv("BEARER_TOKEN", jwt(seconds=-100))
        said = fault_of(it.pelican_url("/a"))
        assert "BEARER_TOKEN has expired" in said.words
        assert TRACER not in f"{said.words} {said.remedy}"


def test_a_named_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in creds(tmp_path, mine=jwt()).items():
        monkeypatch.setenv(name, value)
    with cache() as one, Director("/lab", [one], require_token=True) as it:
        assert resolve(f"mine+{it.pelican_url('/a')}")[0].token is not None
        assert "other" in fault_of(f"other+{it.pelican_url('/a')}").words
        (offer,) = resolve(f"mine+{one.url('/lab/a')}")
        assert offer.url == one.url("/lab/a")
        assert offer.token is not None
        assert "https" in fault_of("mine+http://h/a").words


@pytest.mark.parametrize(
    ("token", "issuer", "words"),
    [
        (jwt(), "", "names no issuer"),
        (jwt(issuer="https://bank.invalid"), "", "names no issuer"),
        (f"opaque-{TRACER}", "", "is no JWT"),
        (f"opaque-{TRACER}", ISSUER, "is no JWT"),
        (jwt(issuer="https://bank.invalid"), ISSUER, "of the issuer https://bank.invalid"),
        (jwt(aud="https://bank.invalid"), ISSUER, "for the audience https://bank.invalid"),
        (jwt("storage.read:/elsewhere"), ISSUER, "does not allow to read /lab/a"),
    ],
)
def test_a_stranger_s_director_does_not_get_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: str, issuer: str, words: str
) -> None:
    """It asks for one, names no issuer or the victim's, and has a cache that keeps every header."""
    (tmp_path / "token").write_text(token)
    everywhere = {"BEARER_TOKEN": token, "BEARER_TOKEN_FILE": str(tmp_path / "token")}
    for name, value in (everywhere | creds(tmp_path, scitokens=token, other=token)).items():
        monkeypatch.setenv(name, value)
    with cache() as thief, Director("/lab", [thief], [thief], require_token=True) as it:
        it.issuer = issuer
        for direct in (False, True):
            with pytest.raises(Fault) as caught:
                resolve(it.pelican_url("/a"), direct=direct)
            said = caught.value
            assert words in said.words
            assert not said.retryable
            assert "NAME+osdf://" in said.remedy
            assert TRACER not in f"{said.words}{said.remedy}"
        with pytest.raises(TransferError):
            fetch([it.pelican_url("/a")], str(tmp_path / "a"), patience=0.2, grace=0.2)
        upload = tmp_path / "upload"
        upload.write_bytes(b"data")
        with contextlib.suppress(Fault):  # it may take what is public
            Delivery(str(upload), it.pelican_url("/b")).put()
        assert not thief.saw(TRACER)
        assert not it.saw(TRACER)


def test_a_token_goes_only_to_the_servers_in_its_audience(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        cache() as one,
        cache() as other,
        Director("/lab", [one, other], [other], require_token=True) as it,
    ):
        monkeypatch.setenv("BEARER_TOKEN", jwt(aud=[other.url("").rstrip("/"), "x"]))
        assert [o.url for o in resolve(it.pelican_url("/a"))] == [other.url("/lab/a")]
        monkeypatch.setenv("BEARER_TOKEN", jwt(aud=it.url("").rstrip("/")))
        assert len(resolve(it.pelican_url("/a"))) == 2  # the federation's own


def test_an_upload_without_a_token_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BEARER_TOKEN", jwt("storage.read:/"))
    (tmp_path / "file").write_bytes(b"data")
    refuses = [Status(403).methods("PUT")]
    tls = Authority.get().good
    with Server(tls=tls, faults=refuses) as origin, Director("/lab", [], [origin]) as it:
        with pytest.raises(Fault) as caught:
            Delivery(str(tmp_path / "file"), it.pelican_url("/b")).put()
        assert "403" in caught.value.words
        assert "no token was sent: BEARER_TOKEN is not sent, because" in caught.value.words
        assert not origin.saw(TRACER)


def test_nothing_secret_comes_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever a director does with it, neither a token nor a query reaches words or reprs."""
    monkeypatch.setenv("BEARER_TOKEN", jwt())
    evil = f'{{"msg": "no https://h/a?authz={TRACER} and Bearer {TRACER}"}}'.encode()
    sick: list[lab.Fault] = [
        Status(404, body=evil),
        Status(500, body=evil),
        Status(403, body=evil),
        headers({"Location": f"ftp://me:{TRACER}@h/?{TRACER}", "Link": None}),
        Garbage(evil),
    ]
    for fault in sick:
        with cache() as one, Director("/lab", [one], require_token=True) as it:
            it.faults = [fault.on("/lab/a")]
            said = fault_of(it.pelican_url("/a", query=f"authz={TRACER}"))
            assert TRACER not in f"{said} {said!r} {said.words} {said.remedy} {said.args}"
    with cache() as one, Director("/lab", [one], require_token=True) as it:
        offers = resolve(it.pelican_url("/a", query=f"authz={TRACER}"))
        assert TRACER in offers[0].url
        assert TRACER not in repr(offers)


# -- mirrors


def test_mirrors_of_one_object() -> None:
    with cache() as one, cache() as home, Director("/lab", [one], [home]) as it:
        urls = [it.pelican_url("/a"), "https://mirror.invalid/a", one.url("/lab/a"), "file:///a"]
        offers = sources_of(urls)
        assert [offer.url for offer in offers] == [one.url("/lab/a"), *urls[1:2], "file:///a"]
        faults: dict[str, Fault] = {}
        dead = f"pelican://{dead_url('').removeprefix('http://')}/lab/a"
        assert len(sources_of([dead, urls[1]], faults=faults)) == 1
        assert list(faults) == [dead]
        with pytest.raises(Fault):
            sources_of([dead])


# -- parsers


@given(st.text(max_size=300), st.text(max_size=60))
def test_link_headers_never_crash(links: str, location: str) -> None:
    for place in places(links, location):
        assert place.url.startswith(("http://", "https://"))
        assert place.priority >= 0


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["https://a/x", "http://b/y?z", "https://c/q,r", "file:///etc", "x"]),
            st.integers(-5, 1 << 30),
            st.sampled_from(["", ";", "; depth=2", '; rel="duplicate"', "; pri", "; =", ";rel=x"]),
        ),
        max_size=100,
    )
)
def test_links_come_in_order_and_once(links: list[tuple[str, int, str]]) -> None:
    header = ", ".join(f"<{url}>{more}; pri={pri}" for url, pri, more in links)
    found = places(header, "")
    assert len({place.url for place in found}) == len(found)
    assert [place.priority for place in found] == sorted(place.priority for place in found)
    assert {place.url for place in found} <= {"https://a/x", "http://b/y?z", "https://c/q,r"}


@given(st.text(max_size=200))
def test_pairs_never_crash(text: str) -> None:
    for key, value in pairs(text):
        assert key == key.lower()
        assert "," not in value


@given(st.text(max_size=40))
def test_retry_after_is_a_time(text: str) -> None:
    assert retry_after(text) >= 0
    assert retry_after("120") == 120
    assert retry_after("Wed, 01 Jan 2020 00:00:00 GMT") == 0


@given(st.lists(st.tuples(st.text(max_size=12), st.text(max_size=30)), max_size=10))
def test_directions_of_any_headers(fields: list[tuple[str, str]]) -> None:
    names = ["link", "location", "x-pelican-namespace", "x-pelican-token-generation"]
    reply = ResponseHead(307, "", [(n, v) for n, (_, v) in zip(names, fields, strict=False)])
    found = federation.Directions(reply, "https://d/lab/a")
    assert isinstance(found.needs_token, bool)


def test_answers_of_all_kinds_are_bounded() -> None:
    with Server({"/a": Held(b"x" * 1_000_000)}) as it:
        reply = ask("GET", it.url("/a"))
        assert (reply.status, len(reply.body), reply.length) == (200, 1 << 16, 1_000_000)
        assert ask("HEAD", it.url("/a")).body == b""
        assert ask("GET", it.url("/none")).words() == "HTTP 404 Not Found (no such object)"
        with pytest.raises(Fault) as caught:
            ask("GET", it.url("/a"), headers={"X": "a\r\nY: b"})
        assert not caught.value.retryable
    with Server({"/a": Held(b"x" * 300_000)}, trailers=True) as it:
        reply = ask("GET", it.url("/a"), headers={"TE": "trailers"}, body_limit=250_000)
        assert reply.body == b"x" * 250_000


_LINES = st.sampled_from(
    [
        *(b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/9.9 200\r\n", b"\r\n"),
        *(b"Content-Length: 5\r\n", b"Content-Length: -1\r\n", b"Content-Length: 9e9\r\n"),
        *(b"Transfer-Encoding: chunked\r\n", b"5\r\nhello\r\n", b"fffffffffffffff\r\n", b"0\r\n"),
        *(
            b"HTTP/1.1 307 x\r\n",
            b"Location: \xff\r\n",
            b"Link: <" + b"a" * 100 + b">\r\n",
            b"\x00",
        ),
    ]
)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(_LINES | st.binary(max_size=20), max_size=12))
def test_any_bytes_are_an_answer_or_a_fault(garbled: Server, lines: list[bytes]) -> None:
    garbled.faults = [Garbage(b"".join(lines))]
    try:
        reply = ask("GET", garbled.url("/lab/a"), seconds=5)
    except Fault as fault:
        assert fault.phase
        assert "\n" not in fault.words
    else:
        assert 200 <= reply.status < 600
        assert len(reply.body) <= 1 << 16
        reply.words()
        federation.Directions(reply, "https://d/lab/a")


@pytest.fixture(scope="module")
def garbled() -> Iterator[Server]:
    with Server({"/lab/a": DATA}) as it:
        yield it


def test_an_offer_has_a_name() -> None:
    assert Offer("https://h:8443/a?x").name == "h:8443"
    assert Offer("https://h/a").name == "h"


def test_a_node_that_cannot_ask_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> list[federation.Offer]:
        raise NodeError("this node has no clock", remedy="set it")

    monkeypatch.setattr(federation, "resolve", fail)
    discovery = Discovery(["pelican://lab.example/a"], Options())
    discovery.news(time.monotonic(), stuck=False)
    (asked,) = discovery._asked
    assert asked.thread is not None
    asked.thread.join(10)
    ((_, fault),) = discovery.faults()
    assert (fault.words, fault.remedy, fault.node) == ("this node has no clock", "set it", True)
