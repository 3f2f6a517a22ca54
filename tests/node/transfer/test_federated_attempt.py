"""A whole attempt with a federation: the agent fetches, the command runs, the agent sends."""

from __future__ import annotations

import os
import time

import pytest
from tests.lab import Authority, Digests, Held, Server, Status

from headway.node.errors import Exit
from headway.node.outputs import below

from ..conftest import Node
from .federation import TRACER, Registry, creds, jwt

DATA = os.urandom(2_000_000)


@pytest.fixture
def origin() -> Server:
    tls = Authority.get().good
    return Server({"/lab/in": Held(DATA)}, tls=tls, moves=True, digests=Digests())


def everything(node: Node) -> str:
    """All that the attempt has left or told, but for the credentials themselves."""
    files = [path for path in node.folder.rglob("*") if path.is_file()]
    kept = [path for path in files if path.suffix != ".use" and path.name != "plan.json"]
    texts = [path.read_bytes().decode("latin-1") for path in kept]
    return "\n".join([node.stderr, repr(node.chirp.phases()), *texts])


def test_in_and_out(node: Node, origin: Server) -> None:
    scopes = "storage.read:/ storage.modify:/"
    environ = creds(node.folder, scitokens=jwt(scopes), other="opaque")
    trust = {"CURL_CA_BUNDLE": str(Authority.get().bundle)}  # of the job: it counts for the agent
    with origin, Registry("/lab", [origin], [origin], require_token=True) as it:
        node.plan(
            "mkdir out out/b && cp in out/a && echo c > 'out/b/c d'",
            environment=trust,
            inputs=[{"path": "in", "urls": [it.pelican_url("/in")], "size": len(DATA)}],
            outputs=[{"path": "out", "to": f"scitokens+{it.pelican_url('/out')}"}],
        )
        assert node.run(**environ) == Exit.OK, everything(node)
        assert origin.store.paths() == ["/lab/in", "/lab/out/a", "/lab/out/b/c d"]
        sent = origin.store["/lab/out/a"].content
        assert sent.read(0, sent.size) == DATA
        assert origin.saw(TRACER)
        assert not it.saw(TRACER)
        assert TRACER not in everything(node)


@pytest.mark.parametrize("code", [403, 500])
def test_no_secret_in_what_a_failed_attempt_leaves(node: Node, origin: Server, code: int) -> None:
    environ = creds(node.folder, scitokens=jwt("storage.read:/"))
    environ["SSL_CERT_FILE"] = str(Authority.get().bundle)
    evil = f"https://h/?authz={TRACER} Bearer {TRACER}".encode()
    refuses = Status(code, body=evil, headers=(("X-Said", TRACER),))
    with origin, Registry("/lab", [origin], [origin], require_token=True) as it:
        it.faults = [refuses.on("/lab/in")]
        node.plan("true", inputs=[{"path": "in", "urls": [it.pelican_url("/in", query=TRACER)]}])
        process = node.start(**environ)
        for _ in range(100):
            if len(it.requests) >= 3:
                break
            time.sleep(0.1)
        process.terminate()
        assert node.end(process) != Exit.OK
        assert TRACER not in everything(node)


def test_urls_below_a_folder() -> None:
    assert below("osdf:///a/b", "c d") == "osdf:///a/b/c%20d"
    assert below("my_key+osdf:///a/", "c") == "my_key+osdf:///a/c"
    assert below("https://h/a?sig=1", "b/c") == "https://h/a/b/c?sig=1"
    assert below("file:///a", "b") == "file:///a/b"
