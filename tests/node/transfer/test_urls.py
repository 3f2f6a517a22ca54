"""URLs: what they name, what is shown of them, and the way to their hosts."""

from __future__ import annotations

import contextlib
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.node.transfer.urls import (
    ProxyError,
    Route,
    authority,
    bypassed,
    name,
    proxy_for,
    same_host,
    scrubbed,
    shown,
    split,
)

SECRET = "tracer5ec7e7"


@pytest.mark.parametrize(
    ("url", "scheme", "credential", "host", "path", "query"),
    [
        ("osdf:///ns/a", "osdf", "", "", "/ns/a", ""),
        ("osdf://ns/a", "osdf", "", "", "/ns/a", ""),
        ("OSDF:///ns/a?directread", "osdf", "", "", "/ns/a", "directread"),
        ("stash:///ns/a%20b", "stash", "", "", "/ns/a%20b", ""),
        ("pelican://fed.org:8444/ns/a", "pelican", "", "fed.org:8444", "/ns/a", ""),
        ("my.handle+osdf:///ns/a", "osdf", "my.handle", "", "/ns/a", ""),
        ("my_handle+osdf:///ns/a", "osdf", "my.handle", "", "/ns/a", ""),
        ("osdf+mine:///ns/a", "osdf", "mine", "", "/ns/a", ""),
        ("mine+https://h/a?x=1", "https", "mine", "h", "/a", "x=1"),
        ("https://h/a#f", "https", "", "h", "/a", ""),
        ("file:///a", "file", "", "", "/a", ""),
    ],
)
def test_what_a_url_names(
    url: str, scheme: str, credential: str, host: str, path: str, query: str
) -> None:
    named = name(url)
    assert (named.scheme, named.credential, named.host) == (scheme, credential, host)
    assert (named.path, named.query) == (path, query)
    assert named.federated == (scheme in ("osdf", "stash", "pelican"))


@pytest.mark.parametrize(
    "url",
    ["", "x", "/etc/passwd", "ftp://h/x", "osdf://", "osdf:///", "pelican:///ns/a", "pelican://h",
     "pelican://h/", "pelican://u:p@h/a", "osdf:///a b", "pelican://h:0/a", "pelican://h:x/a",
     "https:///x", "https://h:99999/x", "https://[::1/x", "file://elsewhere/x", "mine+file:///x",
     "javascript:alert(1)", "https://a\\@b/x", "mine+ftp://h/x"],
)  # fmt: skip
def test_what_names_nothing(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        name(url)


@given(st.text(string.printable, max_size=60))
def test_names_and_routes_never_crash(text: str) -> None:
    for scheme in ("", "https://", "osdf://", "pelican://", "a+b+osdf:", "https://["):
        url = scheme + text
        for function in (name, split, Route):
            try:
                function(url)
            except ValueError as error:
                assert "\n" not in str(error)
        authority(url)
        same_host(url, "https://h/")
        assert "\n" not in shown(url)


_WORD = st.text(string.ascii_letters + string.digits + "%=+-._~", min_size=1, max_size=12)


@given(
    scheme=st.sampled_from(["https", "osdf", "my_cred+https", "pelican", "a.b+osdf"]),
    user=st.booleans(),
    host=st.sampled_from(["h", "h:8443", "[::1]:8443", ""]),
    path=_WORD,
    end=st.sampled_from([f"?sig={SECRET}", f"?a=1&authz=Bearer%20{SECRET}", f"#{SECRET}", ""]),
)
def test_what_is_secret_is_never_shown(
    scheme: str, user: bool, host: str, path: str, end: str
) -> None:
    info = f"me:{SECRET}@" if user else ""
    url = f"{scheme}://{info}{host}/{path}{end}"
    assert SECRET not in shown(url)
    assert path in shown(url)
    for text in (f'GET "{url}" failed', f"see <{url}>", f"Authorization: Bearer {SECRET}"):
        assert SECRET not in scrubbed(text)
    try:
        name(url)
        Route(url)
    except ValueError as error:
        assert SECRET not in str(error)


def test_words_of_a_server_stay_short_and_plain() -> None:
    assert scrubbed("a\r\nb\x1b[0m") == "a b [0m"
    assert len(scrubbed("x" * 10_000)) == 200
    assert scrubbed("the token has expired") == "the token has expired"
    assert scrubbed("token=abc.def is bad") == "*** is bad"
    assert scrubbed("got eyJhbGciOi.eyJzdWIi.c2ln") == "got ***"


def test_same_host() -> None:
    assert same_host("https://h/a", "https://h:443/b")
    assert same_host("https://H/a", "https://h/b")
    assert not same_host("https://h/a", "http://h/a")
    assert not same_host("https://h/a", "https://h:444/a")
    assert not same_host("https://h/a", "https://h.evil/a")
    assert not same_host("x", "x")


@pytest.mark.parametrize(
    ("host", "port", "no_proxy", "expected"),
    [
        ("h.org", 443, "", False),
        ("h.org", 443, "*", True),
        ("h.org", 443, "h.org", True),
        ("a.h.org", 443, "h.org", True),
        ("a.h.org", 443, ".h.org", True),
        ("a.h.org", 443, "*.h.org", True),
        ("nh.org", 443, "h.org", False),
        ("H.ORG.", 443, "x, h.org", True),
        ("h.org", 443, "h.org:8443", False),
        ("h.org", 8443, "h.org:8443", True),
        ("127.0.0.1", 80, "127.0.0.0/8", True),
        ("128.0.0.1", 80, "127.0.0.0/8", False),
        ("::1", 80, "[::1]", True),
        ("::1", 80, "::1", True),
        ("::1", 80, "::/64", True),
        ("h", 80, "not/a/network", False),
    ],
)
def test_no_proxy(host: str, port: int, no_proxy: str, expected: bool) -> None:
    assert bypassed(host, port, no_proxy) is expected


@given(st.text(max_size=40), st.text(max_size=40))
def test_no_proxy_never_crashes(host: str, no_proxy: str) -> None:
    bypassed(host, 443, no_proxy)
    environ = {"https_proxy": host or "x", "no_proxy": no_proxy}
    with contextlib.suppress(ProxyError):
        proxy_for("https", "h", 443, environ)


@pytest.mark.parametrize(
    ("environ", "scheme", "expected"),
    [
        ({"https_proxy": "http://p:8080"}, "https", ("p", 8080)),
        ({"HTTPS_PROXY": "p"}, "https", ("p", 3128)),
        ({"https_proxy": "http://p"}, "http", None),
        ({"HTTP_PROXY": "http://p"}, "http", ("p", 3128)),
        ({"HTTP_PROXY": "http://p", "REQUEST_METHOD": "GET"}, "http", None),
        ({"ALL_PROXY": "http://p"}, "https", ("p", 3128)),
        ({"all_proxy": "http://p"}, "http", ("p", 3128)),
        ({"https_proxy": "http://p", "NO_PROXY": "h"}, "https", None),
        ({"https_proxy": ""}, "https", None),
        ({"all_proxy": "http://p"}, "file", None),
    ],
)
def test_proxies(environ: dict[str, str], scheme: str, expected: tuple[str, int] | None) -> None:
    proxy = proxy_for(scheme, "h", 443, environ)
    assert (proxy and (proxy.host, proxy.port)) == expected


@pytest.mark.parametrize(
    "url", ["socks5://{}p", "https://{}p:1", "http://{}p:x", "http://{}", "x://{}p"]
)
def test_a_proxy_that_cannot_be_used_is_told(url: str) -> None:
    with pytest.raises(ProxyError) as caught:
        proxy_for("https", "h", 443, {"https_proxy": url.format(f"me:{SECRET}@")})
    words = f"{caught.value} {caught.value.remedy}"
    assert "https_proxy names" in words and "only http:// proxies" in words
    assert SECRET not in words
    assert proxy_for("https", "h", 443, {"https_proxy": url.format(""), "no_proxy": "h"}) is None


def test_the_password_of_a_proxy_is_not_shown() -> None:
    proxy = proxy_for("https", "h", 443, {"https_proxy": f"http://me:{SECRET}@p"})
    assert proxy is not None
    assert proxy.userinfo == f"me:{SECRET}"
    assert SECRET not in repr(proxy)
    assert SECRET not in str(proxy)
