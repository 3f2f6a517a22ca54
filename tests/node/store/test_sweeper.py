"""The program that makes a store, sweeps it and tells a startd what is in it."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
from tests.node.store.keeping import ALICE, MALLORY, as_user, keep, needs_root

from headway.node.classad import parse_lines
from headway.node.store.folder import DAY, MARKER, Settings, Store, create_store
from headway.node.store.sweeper import advertised, run_store

NAME = f"sha256-{'a1' * 32}"


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    """What a startd would take from the output."""
    *lines, last = capsys.readouterr().out.splitlines()
    assert last == "- update:true"
    return dict(parse_lines(lines))


def test_it_makes_a_store_and_tells_what_is_kept(
    pyz: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "store"
    words = [str(root), "quota=1000", "shared_account=true", "share_inputs=true"]
    done = subprocess.run([pyz, "store", *words], capture_output=True, text=True, check=True)
    assert f'HeadwayStore = "{root}"\nHeadwayInputs = ""\n' in done.stdout
    assert os.stat(root).st_mode & 0o777 == 0o700
    settings = Store(str(root)).settings
    assert (settings.quota, settings.keeps_inputs, settings.keep_free) == (1000, True, 0)
    for name in (NAME, f"manifest-{'b' * 64}", "url-1234", "crc32c-1234-5678"):
        keep(Store(str(root)), name, bytes(100))
    keep(Store(str(root)), "sha256-old", used=time.time() - 31 * DAY)
    assert run_store([str(root), "quota=2000"]) == 0
    ad = told(capsys)
    assert set(str(ad["HeadwayInputs"]).split(",")) == {NAME[:23], f"manifest-{'b' * 16}"}
    assert ad["HeadwayStoreUsed"] == 400 and ad["HeadwayStoreFree"]
    assert abs(time.time() - float(str(ad["HeadwayStoreSwept"]))) < 100
    settings = Store(str(root)).settings
    assert (settings.quota, settings.keeps_inputs) == (2000, True), "the others stay as they were"
    keep(Store(str(root)), "sha256-older", used=0.0)
    assert run_store([str(root)]) == 0
    assert "sha256-older: not used for" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["color=red"], ["quota=much"], ["quota=-1"], ["age=true"]])
def test_a_wrong_setting_changes_nothing(
    tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    create_store(str(tmp_path / "store"), Settings(quota=7))
    before = (tmp_path / "store" / MARKER).read_bytes()
    assert run_store([str(tmp_path / "store"), *words]) == 1
    assert "headway: the store" in capsys.readouterr().err
    assert (tmp_path / "store" / MARKER).read_bytes() == before


def test_names_in_ads() -> None:
    assert advertised(NAME) == f"sha256-{'a1' * 8}"
    assert advertised("url-1234") == advertised("adler32-1234-5678") == ""


@needs_root
def test_root_sweeps_for_every_user(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "store"
    for place in (tmp_path, *tmp_path.parents):
        if place.stat().st_uid == 0 and not place.stat().st_mode & 0o001:
            place.chmod(place.stat().st_mode | 0o011)
    assert run_store([str(root), "shared_account=false"]) == 0
    assert os.stat(root).st_mode & 0o7777 == 0o1777
    capsys.readouterr()
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("precious")

    def fill(old: str) -> None:
        store = Store(str(root))
        keep(store, NAME, bytes(10))
        keep(store, old, used=0.0)

    def trick() -> None:
        """An account whose folders are links, and the places of two that have none yet."""
        store = Store(str(root))
        os.rename(store.inputs, f"{store.home}/away")
        os.symlink(victim, store.inputs)
        os.symlink(victim, root / "u64003")
        (root / "u64004").mkdir()
        (root / "u64004" / "mine").write_text("not theirs")
        os.symlink(victim, root / "u64004" / "inputs")

    as_user(ALICE, fill, "sha256-old")
    as_user(MALLORY, trick)
    assert run_store([str(root)]) == 0
    said = capsys.readouterr()
    assert "sha256-old: not used for" in said.err and "cannot be swept" not in said.err
    assert 'HeadwayInputs = ""' in said.out, "the pool can see what is in an account's folder"
    assert "HeadwayStoreUsed = 10" in said.out
    assert as_user(ALICE, lambda: [entry.name for entry in Store(str(root)).entries()]) == [NAME]
    assert (victim / "file").read_text() == "precious"
    assert sorted(name for name in os.listdir(root) if name.startswith("u64")) == [
        f"u{ALICE}",
        f"u{MALLORY}",
    ]
    assert os.geteuid() == 0
