"""`headway sources` and `headway put`, as a user calls them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.lab import (
    Authority,
    Digests,
    Hang,
    Headers,
    Held,
    Made,
    Rate,
    Server,
    Status,
    Truncate,
    dead_url,
)
from tests.node.transfer.federation import TRACER, Registry, creds, jwt

from headway.errors import TransferError
from headway.node.transfer import put
from headway.node.transfer.discovery import Health, judge
from headway.node.transfer.federation import Offer

from .shell import Shell

CONTENT = Made(3 << 20, seed=4)


def cache(*faults: Any, **more: Any) -> Server:
    return Server({"/lab/a": CONTENT}, faults, tls=Authority.get().good, **more)


def test_sources_and_how_they_are(shell: Shell) -> None:
    with (
        cache(age=7) as well,
        cache(Rate(1_000_000)) as slow,
        cache(Status(503)) as busy,
        cache(Truncate(1000)) as cut,
        Server({"/lab/a": Held(b"other")}, tls=Authority.get().good) as other,
        cache() as home,
        Registry("/lab", [well, slow, busy, cut, other, dead_url("", "https")], [home]) as it,
    ):
        url = it.pelican_url("/a")
        told = shell.json("sources", url)
        assert told["faults"] == []
        found = [(each["kind"], each["state"], each["phase"]) for each in told["sources"]]
        assert found == [
            ("cache", "well", ""),
            ("cache", "slow", ""),
            ("cache", "sick", "first byte"),
            ("cache", "sick", "body"),
            ("cache", "sick", ""),
            ("cache", "sick", "connect"),
            ("origin", "well", ""),
        ]
        first = told["sources"][0]
        assert (first["size"], first["age"], first["ranges"]) == (CONTENT.size, 7, True)
        assert first["rate"] > 1e6
        assert well.sent <= 1 << 20  # a sample, not the object
        table = shell("sources", url)
        for words in ("HTTP 503", "broke off", "5 bytes", "refuses connections", "slower"):
            assert words in table
        asked = len(well.requests)
        quick = shell("sources", url, "--quick")
        assert f"{well.address[0]}:{well.address[1]}" in quick
        assert len(well.requests) == asked


def test_nothing_secret_is_printed(shell: Shell, tmp_path: Path) -> None:
    shell.environment |= creds(tmp_path, scitokens=jwt("storage.read:/ storage.modify:/"))
    (tmp_path / "file").write_bytes(b"data")
    evil = f"see https://h/?authz={TRACER}, Bearer {TRACER}".encode()
    for fault in (Status(403, body=evil), Status(500, body=evil), Headers((("ETag", TRACER),))):
        with cache(fault) as one, Registry("/lab", [one], [one], require_token=True) as it:
            url = it.pelican_url("/a", query=f"authz={TRACER}")
            code = 0 if isinstance(fault, Headers) else 1
            for more in ([], ["--json"], ["--debug"]):
                shell("sources", url, *more, code=code)
            assert one.saw(TRACER)
            if code and fault != Status(500, body=evil):
                for more in ([], ["--json"]):
                    shell("put", "file", url, *more, code=2)
    web = f"https://me:{TRACER}@{dead_url('/x').removeprefix('http://')}?sig={TRACER}"
    shell("sources", web, code=1)
    shell("sources", f"osdf:///x?{TRACER}&recursive", code=1)
    shell("put", "file", f"ftp://me:{TRACER}@h/?{TRACER}", code=2)


def test_no_sources(shell: Shell) -> None:
    with Registry("/lab", [dead_url("")], objects=[]) as it:
        said = shell("sources", it.pelican_url("/a"), code=1)
        assert "no sources" in said
        assert "knows no server" in said
        assert "is the object there" in said
        told = shell.json("sources", it.pelican_url("/a"), code=1)
        assert told["faults"][0]["phase"] == "resolve"
    assert "not a URL" in shell("sources", "x", code=2)
    assert "missing" in shell("sources", code=2)


def test_what_fails_says_what_to_do_next(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"data")
    assert "\n  name a file that is there" in shell("publish", "none.tar", code=2)
    with Server(faults=[Status(405).methods("PUT")]) as it:
        told = shell.json("put", "file", it.url("/x"), code=2)["error"]
    assert not told["retryable"] and "HTTP 405" in told["message"]
    assert "accepts uploads" in told["remedy"]
    with pytest.raises(TransferError, match=r"refuses connections \(connect\)") as refused:
        put(str(tmp_path / "file"), dead_url("/x"), rounds=1)
    assert refused.value.retryable and "a later one may succeed" in refused.value.remedy
    shell.environment["OSDF_FEDERATION_DISCOVERYURL"] = dead_url("", "https")
    said = shell("sources", "osdf:///lab/a", code=1)
    assert "no sources: osdf:///lab/a" in said and "\n  check that this machine can reach" in said


def test_put(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(b"weights" * 1000)
    with Server(moves=True, digests=Digests()) as it:
        told = shell.json("put", "model.pt", it.url("/out/"))
        assert told["proof"] == "digest"
        assert told["url"] == it.url("/out/model.pt")
        assert told["bytes"] == 7000
        assert it.store.paths() == ["/out/model.pt"]
        assert "digest of it is right" in shell("put", "model.pt", it.url("/out/model.pt"))
        (tmp_path / "model.pt").write_bytes(b"other")
        assert "already" in shell("put", "model.pt", it.url("/out/model.pt"), code=2)
        assert shell.json("put", "model.pt", it.url("/out/model.pt"), code=2)["error"]["remedy"]
        shell("put", "model.pt", it.url("/out/model.pt"), "--overwrite")
        assert it.store["/out/model.pt"].content.size == 5
    target = tmp_path / "there" / "model.pt"
    shell("put", "model.pt", f"file://{target}")
    assert target.read_bytes() == b"other"
    assert "is a folder" in shell("put", "there", "https://h/", code=2)
    assert "does not exist" in shell("put", "nothing", "https://h/", code=2)
    assert "sources" in shell("caches", code=2)


def test_a_source_that_hangs_is_left(shell: Shell) -> None:
    with cache(Hang("request")) as sick, cache() as well:
        urls = (sick.url("/lab/a"), well.url("/lab/a"))
        told = shell.json("sources", *urls, "--patience", "1 s")
        assert [each["state"] for each in told["sources"]] == ["sick", "well"]
        assert "in time" in told["sources"][0]["words"]


def health(rate: float | None = None, size: int | None = 100, state: str = "well") -> Health:
    made = Health(Offer("https://h/a"))
    made.rate, made.size, made.state = rate, size, state
    return made


def test_judging_beside_the_others() -> None:
    found = [health(1e6), health(5e4), health(None, 50), health(2e8, 100, "sick"), health(9e5)]
    judge(found)
    assert [each.state for each in found] == ["well", "slow", "sick", "sick", "well"]
    alone = [health(10.0)]
    judge(alone)
    assert alone[0].state == "well"  # slow, but there is no better one
    quick = [health(2e9), health(5e7)]
    judge(quick)
    assert [each.state for each in quick] == ["well", "well"]
    judge([])
