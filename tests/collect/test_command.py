"""`headway collect` as it is typed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.collect.stores import LOGS, long_log, same_events

from headway.cli import main

SOURCE = Path(__file__).parents[2] / "src"
EVENTS = long_log(1)


def test_once_and_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "kept"
    assert main(["collect", str(LOGS), "--into", str(store)]) == 0
    assert "566 new events" in capsys.readouterr().out
    assert main(["collect", str(LOGS), "--into", str(store)]) == 0
    assert "nothing new" in capsys.readouterr().out
    assert main(["collect", str(store), "--status"]) == 0
    shown = capsys.readouterr().out
    assert "566 events of 36 jobs from 39 logs" in shown and "no gaps" in shown
    assert main(["collect", "--status", "--into", str(store), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["events"], found["gap_count"], found["anonymised"]) == (566, 0, False)
    assert [day["day"] for day in found["days"]] == ["2026-11-15"]


def test_a_gap_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, store = tmp_path / "EventLog", tmp_path / "kept"
    log.write_bytes(b"".join(EVENTS[:20]))
    assert main(["collect", str(log), "--into", str(store), "--json"]) == 0
    log.unlink()
    (tmp_path / "EventLog").write_bytes(b"".join(EVENTS[40:60]))
    assert main(["collect", str(log), "--into", str(store)]) == 0
    assert "gap in" in capsys.readouterr().err
    assert main(["collect", str(store), "--status"]) == 0
    assert "1 gaps:" in capsys.readouterr().out


def test_anonymised_warns_of_its_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["collect", str(LOGS), "--into", str(tmp_path / "kept"), "--anonymise"]
    assert main([*words, "--key", str(tmp_path / "secret" / "key")]) == 0
    assert "do not share it" in capsys.readouterr().err
    assert not (tmp_path / "kept" / "key").exists()
    assert main([*words, "--key", str(tmp_path / "secret" / "key")]) == 0
    assert "hand" not in capsys.readouterr().err
    assert main(words) == 2
    assert "is gone" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, said",
    [
        (["x.log"], "missing: --into"),
        (["--into", "k"], "missing: LOG"),
        (["x.log", "--into", "k", "--every", "soon"], "--every"),
        (["x.log", "--into", "k", "--every", "0.1s"], "--every"),
        (["x.log", "--into", "k", "--key", "f"], "--key goes with --anonymise"),
        (["a", "b", "--status"], "name one folder"),
        (["nowhere", "--status"], "there is no store in"),
        (["nowhere.log", "--into", "k"], "there is no log"),
    ],
)
def test_what_is_refused(
    words: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["collect", *words]) == 2
    assert said in capsys.readouterr().err
    assert not os.listdir(tmp_path)


def test_following_until_told_to_end(tmp_path: Path) -> None:
    log, store = tmp_path / "job.log", tmp_path / "kept"
    words = ["collect", str(log), "--into", str(store), "--follow", "--every", "1s", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "headway", *words],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )
    assert process.stdout
    try:
        deadline = time.monotonic() + 30
        while not (store / "collected.json").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        log.write_bytes(b"".join(EVENTS[:30]))
        assert json.loads(process.stdout.readline())["events"] == 30
        with log.open("ab") as file:
            file.write(b"".join(EVENTS[30:70]))
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert sum(json.loads(line)["events"] for line in rest.splitlines()) == 40
    same_events(store, [log])
