"""`headway publish` and `headway plugin`, as typed."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from pathlib import Path

import pytest

from headway.cli import main
from headway.cli.commands import OK, WRONG


def make_tar(path: Path, *names: str) -> None:
    with tarfile.open(path, "w") as archive:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size = 4
            archive.addfile(entry, io.BytesIO(b"data"))


def test_publish_says_what_it_wrote_and_what_to_pin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_tar(tmp_path / "train.tar", "cat/1.jpg", "cat/2.jpg", "dog/1.jpg")
    assert main(["publish", "train.tar"]) == OK
    digest = hashlib.sha256((tmp_path / "train.tar.headway").read_bytes()).hexdigest()
    said = capsys.readouterr()
    assert "wrote train.tar.headway: 10.2 kB in 1 chunk, 3 members, 2 classes" in said.out
    assert f'manifest = "sha256:{digest}"' in said.out
    assert said.err == ""


def test_publish_for_scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "weights.bin"
    path.write_bytes(b"w" * 200_000)
    assert main(["publish", str(path), "--json", "--chunk-size", "64 KiB"]) == OK
    told = json.loads(capsys.readouterr().out)
    assert told["manifest"] == f"{path}.headway" and told["chunks"] == 4
    assert told["sha256"] == hashlib.sha256(b"w" * 200_000).hexdigest()
    assert told["members"] is None and told["notes"] == []


def test_publish_refuses_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torn = tmp_path / "torn.tar"
    make_tar(torn, "a", "b")
    torn.write_bytes(torn.read_bytes()[:1300])
    assert main(["publish", str(torn)]) == WRONG
    said = capsys.readouterr().err
    assert "torn.tar is a damaged tar file" in said and "--no-index" in said
    assert main(["publish", str(torn), "--no-index"]) == OK
    for size in ("12", "3 KiB", "64 parsecs", "100 GB"):
        assert main(["publish", str(torn), "--no-index", "--chunk-size", size]) == WRONG
        assert "error:" in capsys.readouterr().err
    (tmp_path / "torn.tar.headway").write_text("mine")
    assert main(["publish", str(torn), "--no-index"]) == WRONG
    assert (tmp_path / "torn.tar.headway").read_text() == "mine"


def test_plugin_writes_a_program_and_touches_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "headway-plugin"
    for _ in range(2):  # its own it replaces
        assert main(["plugin", "-o", str(target)]) == OK
    said = capsys.readouterr().out
    assert "FILETRANSFER_PLUGINS = " in said and "transfer_plugins = " in said
    done = subprocess.run([target, "-classad"], capture_output=True, text=True, check=True)
    assert "MultipleFileSupport = true" in done.stdout
    target.write_text("something else")
    assert main(["plugin", "-o", str(target), "--json"]) == WRONG
    assert target.read_text() == "something else"
    assert main(["plugin", "-o", str(tmp_path / "no/such/folder")]) == WRONG
