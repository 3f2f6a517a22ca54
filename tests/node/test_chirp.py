"""The lines that reach the event log."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from urllib.parse import unquote

import pytest

from headway.node import record as node_chirp
from headway.node.record import LINE_MAX, encode, escape, line

from .conftest import Chirp, Node


def test_values_are_encoded() -> None:
    assert encode("a/b:c+d-e.f_g") == "a/b:c+d-e.f_g"
    assert encode("a b=c%ü\n") == "a%20b%3Dc%25%C3%BC%0A"
    assert unquote(encode("a b=c%ü\n")) == "a b=c%ü\n"


def test_a_line_is_cut_between_values_and_never_within_a_byte() -> None:
    whole = line("n", "run", "end", 1.5, {"status": 0, "none": None, "reason": "it is"})
    assert whole == "headway nonce=n phase=run state=end t=1.500 status=0 reason=it%20is"
    for extra in range(6):
        cut = line("n", "done", "end", 1.5, {"exit": 83, "reason": "x" * extra + "ü" * 500})
        assert len(cut) <= LINE_MAX
        assert " exit=83 " in cut
        unquote(cut, errors="strict") if cut.count("%") % 2 == 0 else None
        assert cut[-2] != "%"
        assert cut[-1] != "%"


def test_words_are_escaped() -> None:
    assert escape("a b\\c\td") == "a\\ b\\\\c\\\td"


def test_the_request_is_one_word(tmp_path: Path, chirp: Chirp) -> None:
    (tmp_path / ".chirp.config").write_text(f"127.0.0.1 {chirp.port} {chirp.cookie}")
    notes: list[str] = []
    client = node_chirp.Chirp({"_CONDOR_SCRATCH_DIR": str(tmp_path)}, notes.append)
    assert client.send("headway a=b c=d")
    assert client.send("headway e=f")
    client.close()
    assert chirp.raw == [b"cookie c0ffee\n", b"ulog headway\\ a=b\\ c=d\n", b"ulog headway\\ e=f\n"]
    assert chirp.lines == ["headway a=b c=d", "headway e=f"]
    assert notes == []


def test_the_named_configuration_comes_first(tmp_path: Path, chirp: Chirp) -> None:
    (tmp_path / "elsewhere").write_text(f"127.0.0.1 {chirp.port} {chirp.cookie}")
    environment = {"_CONDOR_CHIRP_CONFIG": str(tmp_path / "elsewhere")}
    client = node_chirp.Chirp(environment, print)
    assert client.send("x")
    client.close()


@pytest.mark.parametrize("config", ["", "host", "a b c d", "127.0.0.1 x y", "127.0.0.1 1 y"])
def test_no_chirp_is_noted_once(tmp_path: Path, config: str) -> None:
    (tmp_path / ".chirp.config").write_text(config)
    notes: list[str] = []
    client = node_chirp.Chirp({"_CONDOR_SCRATCH_DIR": str(tmp_path)}, notes.append)
    assert [client.send("x") for _ in range(5)] == [False] * 5
    assert len(notes) == 1


def test_a_starter_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_chirp, "TIMEOUT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        (tmp_path / ".chirp.config").write_text(f"127.0.0.1 {port} c")
        client = node_chirp.Chirp({"_CONDOR_SCRATCH_DIR": str(tmp_path)}, lambda _: None)
        begin = time.monotonic()
        assert not any(client.send("x") for _ in range(50))
        assert time.monotonic() - begin < 4  # and not a tenth of a second for each


def test_a_wrong_cookie_or_a_refusal_does_not_stop_the_agent(node: Node) -> None:
    (node.folder / ".chirp.config").write_text(f"127.0.0.1 {node.chirp.port} wrong\n")
    node.plan(["true"])
    assert node.run() == 0
    assert "refused with -1" in (node.attempt() / "agent.log").read_text()
    assert node.chirp.lines == []


def test_without_configuration_the_agent_is_quiet_about_it(node: Node) -> None:
    (node.folder / ".chirp.config").unlink()
    node.plan(["true"])
    assert node.run() == 0
    assert node.stderr == ""
    assert "no chirp" in (node.attempt() / "agent.log").read_text()
