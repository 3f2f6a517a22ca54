"""Tokens: the right one is found, renewed, and goes nowhere but into one header."""

from __future__ import annotations

import copy
import json
import logging
import os
import pickle
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.node.transfer import tokens
from headway.node.transfer.tokens import (
    Need,
    Secret,
    Token,
    bearer,
    claims_of,
    covers,
    find_token,
    meant_for,
)

from .federation import ISSUER, TRACER, clean, creds, jwt

pytestmark = pytest.mark.usefixtures(clean.__name__)
__all__ = ["clean"]

NEED = Need("/lab/a/b", issuers=[ISSUER], bases=["/lab"])


def test_a_secret_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    secret = Secret(TRACER)
    logging.getLogger("x").warning("%s %r", secret, {"token": secret})
    for text in (str(secret), repr([secret]), f"{secret}", f"{secret!r:>9}", f"{secret:>9}"):
        assert TRACER not in text
    assert TRACER not in caplog.text
    for write in (pickle.dumps, copy.copy, copy.deepcopy, json.dumps):
        with pytest.raises(TypeError):
            write(secret)
    assert secret.reveal() == TRACER
    assert secret == Secret(TRACER)
    assert secret != TRACER


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("https://cache/a", True),
        ("https://cache:443/b?c", True),
        ("http://cache/a", False),
        ("https://cache:8443/a", False),
        ("https://other/a", False),
        ("https://cache.other/a", False),
        ("https://cache@other/a", False),
    ],
)
def test_a_token_goes_to_its_host_alone_and_by_tls(url: str, sent: bool) -> None:
    headers = bearer(Secret(TRACER), "https://cache/a", url)
    assert headers == ({"Authorization": f"Bearer {TRACER}"} if sent else {})
    assert bearer(Secret(TRACER), "http://cache/a", "http://cache/a") == {}
    assert bearer(None, url, url) == {}


def test_plain_and_json_files(tmp_path: Path) -> None:
    plain, wrapped = jwt(mark="plain"), jwt(mark="json")
    environ = creds(tmp_path, scitokens=f"{plain}\n")
    assert find_token(NEED, environ=environ) == Secret(plain)
    environ = creds(tmp_path, scitokens=json.dumps({"access_token": wrapped, "expires_in": 1}))
    assert find_token(NEED, environ=environ) == Secret(wrapped)


@pytest.mark.parametrize(
    "text", ["", "\n", "a b", "a\r\nX: y", "{", "[]", "{}", '{"access_token":1}']
)
def test_files_that_hold_no_token(tmp_path: Path, text: str) -> None:
    assert find_token(NEED, environ=creds(tmp_path, scitokens=text)) is None


def test_a_folder_and_a_pipe_are_no_token(tmp_path: Path) -> None:
    environ = creds(tmp_path)
    os.mkfifo(tmp_path / "creds" / "scitokens.use")
    (tmp_path / "creds" / "folder.use").mkdir()
    begin = time.monotonic()
    assert find_token(NEED, environ=environ) is None
    assert time.monotonic() - begin < 20  # a pipe would be waited for without end


def test_the_order_of_places(tmp_path: Path) -> None:
    environ = creds(tmp_path, scitokens=jwt(mark="condor"))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / f"bt_u{os.getuid()}").write_text(jwt(mark="run"))
    (tmp_path / "file").write_text(jwt(mark="file"))
    found = []
    for name, value in (
        ("XDG_RUNTIME_DIR", str(tmp_path / "run")),
        ("BEARER_TOKEN_FILE", str(tmp_path / "file")),
        ("BEARER_TOKEN", jwt(mark="text")),
    ):
        token = find_token(NEED, environ=environ)
        assert token is not None
        found.append(token.reveal().rpartition(TRACER)[2])
        environ[name] = value
    token = find_token(NEED, environ=environ)
    assert token is not None
    found.append(token.reveal().rpartition(TRACER)[2])
    assert found == ["condor", "run", "file", "text"]


def test_a_planted_token_in_the_shared_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "_SHARED", str(tmp_path))
    planted = tmp_path / f"bt_u{os.getuid()}"
    planted.write_text(jwt())
    assert find_token(NEED, environ={}) is not None
    if os.getuid() == 0:
        os.chown(planted, 12345, 12345)
        assert find_token(NEED, environ={}) is None
    planted.unlink()
    (tmp_path / "mine").write_text(jwt())
    planted.symlink_to(tmp_path / "mine")  # where anybody can put a link, none is followed
    assert find_token(NEED, environ={}) is None


@pytest.mark.parametrize("way", ["BEARER_TOKEN_FILE", "XDG_RUNTIME_DIR", "_CONDOR_CREDS", "name"])
def test_a_file_of_somebody_else_is_not_used(tmp_path: Path, way: str) -> None:
    environ = creds(tmp_path, scitokens=jwt())
    file = tmp_path / "creds" / "scitokens.use"
    if way == "BEARER_TOKEN_FILE":
        environ = {way: str(file)}
    elif way == "XDG_RUNTIME_DIR":
        file = file.rename(tmp_path / f"bt_u{os.getuid()}")
        environ = {way: str(tmp_path)}
    name = "scitokens" if way == "name" else ""
    assert find_token(NEED, name, environ) is not None
    refused: list[str] = []
    file.chmod(0o666)
    assert find_token(NEED, name, environ, refused=refused) is None
    assert refused == [f"{file} can be written to by every user of this machine, so it is not used"]
    file.chmod(0o600)
    if os.getuid() == 0:
        refused.clear()
        os.chown(file, 12345, 12345)
        assert find_token(NEED, name, environ, refused=refused) is None
        assert refused == [f"{file} belongs to another user (12345), so it is not used"]


def test_the_best_of_several_providers(tmp_path: Path) -> None:
    environ = creds(
        tmp_path,
        aaa=jwt("storage.read:/elsewhere", mark="scope"),
        bbb=jwt(seconds=-10, mark="expired"),
        ccc=jwt(issuer="https://other.invalid", mark="foreign"),
        ddd=jwt("storage.read:/a storage.create:/x", mark="right"),
        scitokens="opaque",
    )
    token = find_token(NEED, environ=environ)
    assert token is not None
    assert token.reveal().endswith("right")
    need = Need("/lab/x/y", write=True, issuers=[ISSUER], bases=["/lab"])
    write = find_token(need, environ=environ)
    assert write is not None
    assert write.reveal().endswith("right")


def test_a_token_of_another_issuer_is_not_shown_around(tmp_path: Path) -> None:
    environ = creds(tmp_path, mine=jwt(issuer="https://other.invalid"))
    assert find_token(NEED, environ=environ) is None
    assert find_token(NEED, "mine", environ) is not None  # the user has said so
    loose = Need("/lab/a", issuers=["https://other.invalid/"])
    assert find_token(loose, environ=environ) is not None


def test_a_named_token(tmp_path: Path) -> None:
    environ = creds(tmp_path, service_handle=jwt(mark="right"), scitokens=jwt(mark="wrong"))
    environ["BEARER_TOKEN"] = jwt(mark="wrong")
    token = find_token(NEED, "service.handle", environ)
    assert token is not None
    assert token.reveal().endswith("right")
    assert find_token(NEED, "nobody", environ) is None
    (tmp_path / "outside.use").write_text(jwt())
    assert find_token(NEED, "../outside", environ) is None


def test_a_renewed_file_is_read_again(tmp_path: Path) -> None:
    environ = creds(tmp_path, scitokens=jwt(seconds=5, mark="old"))
    token = find_token(NEED, environ=environ)
    assert token is not None
    assert token.expired(time.time())
    path = tmp_path / "creds" / "scitokens.use"
    path.write_text("")  # caught in the middle of being written
    assert token.reveal().endswith("old")
    new = tmp_path / "new"
    new.write_text(jwt(mark="new"))
    os.replace(new, path)
    assert token.reveal().endswith("new")
    assert not token.expired(time.time())
    path.unlink()
    assert token.reveal().endswith("new")


def test_a_file_that_changes_hands_is_not_read_again(tmp_path: Path) -> None:
    environ = creds(tmp_path, scitokens=jwt(seconds=5, mark="old"))
    token = find_token(NEED, environ=environ)
    assert token is not None
    path = tmp_path / "creds" / "scitokens.use"
    path.write_text(jwt(mark="planted"))
    path.chmod(0o666)
    assert token.reveal().endswith("old")
    assert "can be written to by every user" in token.trouble
    if os.getuid() == 0:
        path.chmod(0o600)
        os.chown(path, 12345, 12345)
        assert token.reveal().endswith("old")
        assert "belongs to another user" in token.trouble
        os.chown(path, 0, 0)
    path.chmod(0o600)
    for other in (jwt(issuer="https://other.invalid"), jwt(aud="https://bank.invalid")):
        path.write_text(other)  # it was granted for servers that this one is not for
        assert token.reveal().endswith("old")
        assert "another issuer or audience" in token.trouble
    path.write_text(jwt(mark="new"))
    assert token.reveal().endswith("new")
    assert token.trouble == ""


SERVER = "https://cache.lab.invalid:8443/lab/a/b"
FIT = Need(
    "/lab/a/b",
    issuers=[ISSUER],
    bases=["/lab"],
    servers=[SERVER],
    federation=["https://lab.invalid", "https://director.lab.invalid/x"],
)


@pytest.mark.parametrize(
    ("audience", "fits"),
    [
        ("https://wlcg.cern.ch/jwt/v1/any", True),
        ("ANY", True),
        (["https://bank.invalid", "ANY"], True),
        ("https://cache.lab.invalid:8443", True),
        ("https://cache.lab.invalid", True),
        ("CACHE.lab.invalid", True),
        ("cache.lab.invalid:8443", True),
        ("https://lab.invalid", True),
        ("https://director.lab.invalid", True),
        ("https://cache.lab.invalid:9999", False),
        ("https://bank.invalid", False),
        ("https://cache.lab.invalid@bank.invalid", False),
        ("https://cache.lab.invalid.bank.invalid", False),
        ("condor://cache.lab.invalid", False),
        (ISSUER, False),  # the issuer's own services, not this server
        ("any", False),
        ("Site_Example", False),
        ("", False),
        ([], False),
        ([["ANY"]], False),
        (None, False),
        ({"ANY": 1}, False),
        ("https://[", False),
    ],
)
def test_audiences(tmp_path: Path, audience: object, fits: bool) -> None:
    environ = creds(tmp_path, mine=jwt(aud=audience))
    refused: list[str] = []
    assert (find_token(FIT, environ=environ, refused=refused) is not None) is fits
    assert find_token(FIT, "mine", environ) is not None  # the user has said so
    if not fits:
        assert "is meant for the audience" in refused[0]
        assert "not for cache.lab.invalid" in refused[0]


@pytest.mark.parametrize(
    ("token", "issuers", "words"),
    [
        (jwt(), [], "the director names no issuer"),
        (jwt(issuer="https://other.invalid"), [ISSUER], "of the issuer https://other.invalid"),
        (jwt(issuer="https://other.invalid"), [], "the director names no issuer"),
        (jwt("storage.read:/elsewhere"), [ISSUER], "does not allow to read /lab/a/b"),
        (jwt("storage.modify:/"), [ISSUER], "does not allow to read /lab/a/b"),
        (jwt("compute.create"), [ISSUER], "its scope is compute.create"),
        (jwt("storage.read:/a/b/../c"), [ISSUER], "does not allow to read"),
        (f"opaque-{TRACER}", [ISSUER], "is no JWT"),
        (f"a.b.{TRACER}", [ISSUER], "is no JWT"),
    ],
)
def test_a_token_that_nobody_named_is_sent_only_if_it_fits(
    tmp_path: Path, token: str, issuers: list[str], words: str
) -> None:
    need = Need("/lab/a/b", issuers=issuers, bases=["/lab"], servers=[SERVER])
    environ = {"BEARER_TOKEN": token}
    refused: list[str] = []
    assert find_token(need, environ=environ, refused=refused) is None
    (said,) = refused
    assert said.startswith("BEARER_TOKEN ")
    assert words in said
    assert TRACER not in said
    assert find_token(need, "mine", creds(tmp_path, mine=token)) is not None


@pytest.mark.parametrize(
    ("scope", "path", "write", "expected"),
    [
        ("storage.read:/", "/lab/a", False, True),
        ("storage.read", "/lab/a", False, True),
        ("read:/a", "/lab/a/b", False, True),
        ("storage.read:/lab/a", "/lab/a/b", False, True),
        ("storage.read:/a", "/lab/ab", False, False),
        ("storage.read:/", "/lab/a", True, False),
        ("storage.create:/a", "/lab/a", True, True),
        ("storage.modify:/", "/lab/a", True, True),
        ("write:/a", "/lab/a", True, True),
        ("compute.read", "/lab/a", False, False),
        ("storage.stage:/a", "/lab/a", False, True),
        ("storage.stage:/a", "/lab/a", True, False),
        ("storage.read:/a%20b/", "/lab/a b/c", False, True),
        ("storage.read:/a", "/lab/a/../b", False, False),
        ("storage.read:/a/..", "/lab/b", False, True),
    ],
)
def test_scopes(scope: str, path: str, write: bool, expected: bool) -> None:
    assert covers({"scope": scope}, Need(path, write=write, bases=["/lab"])) is expected


@given(st.text(max_size=200))
def test_anything_can_stand_where_a_token_should(text: str) -> None:
    claims_of(text)
    claims_of(f"a.{text}.b")
    Token(text).expired(time.time())
    covers({"scope": text, "exp": text}, NEED)
    meant_for({"aud": text}, [text, SERVER])
    meant_for({"aud": [text]}, [SERVER])
