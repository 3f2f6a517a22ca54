"""The store's folder: entries are complete or not there, for one user only, and within limits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.lab.killing import in_a_new_process
from tests.node.store.keeping import ALICE, MALLORY, as_user, keep, kill_at_each_line, needs_root

from headway.node.errors import NodeError
from headway.node.files import lock
from headway.node.store import folder
from headway.node.store.folder import (
    DATA,
    DAY,
    FACTS,
    MARKER,
    Draft,
    Entry,
    Settings,
    Store,
    create_store,
    hold,
    open_store,
)

OWN = Settings(shared_account=False)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    create_store(str(tmp_path / "store"), OWN)
    return tmp_path / "store"


def names(store: Store) -> list[str]:
    return sorted(entry.name for entry in store.entries())


def test_what_is_kept_is_found(root: Path) -> None:
    store = Store(str(root))
    made = keep(store, "a", b"hello")
    found = Store(str(root)).find("a")
    assert found is not None and Path(found.data).read_bytes() == b"hello"
    assert (found.size, found.facts) == (5, made.facts)
    assert os.stat(found.data).st_mode & 0o777 == 0o444
    assert os.stat(store.home).st_mode & 0o777 == 0o700
    assert store.find("b") is None
    assert os.listdir(store.drafts) == []


def test_settings_are_read_back(tmp_path: Path) -> None:
    given = Settings(quota=5, keep_free=7, age=9.5, shared_account=False, share_inputs=True)
    create_store(str(tmp_path / "store"), given)
    assert vars(Store(str(tmp_path / "store")).settings) == vars(given)
    usual = Settings.read(b'{"format": 1}')
    assert vars(usual) == vars(Settings()) and usual.shared_account and not usual.keeps_inputs


@pytest.mark.parametrize(
    "marker",
    ["", "[]", "{}", '{"format": 2}', '{"format": 1, "quota": -1}', '{"format": 1, "age": "1d"}',
     '{"format": 1, "shared_account": 1}', '{"format": 1, "keep_free": true}',
     '{"format": 1, "age": null}', "[" * 100_000],
)  # fmt: skip
def test_a_damaged_marker_is_no_store(root: Path, marker: str) -> None:
    (root / MARKER).write_text(marker)
    with pytest.raises(NodeError, match="is damaged"):
        Store(str(root))
    assert open_store(str(root)) is None


def test_what_is_no_store(tmp_path: Path) -> None:
    assert open_store(None) is None and open_store("") is None
    with pytest.raises(NodeError, match="No such file"):
        Store(str(tmp_path / "nowhere"))
    with pytest.raises(NodeError, match=f"it has no {MARKER}"):
        Store(str(tmp_path))
    (tmp_path / "file").touch()
    with pytest.raises(NodeError, match="it is not a folder"):
        Store(str(tmp_path / "file"))


def test_a_link_to_a_store_is_refused(tmp_path: Path, root: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    with pytest.raises(NodeError, match="it is not a folder"):
        Store(str(tmp_path / "link"))
    (root / MARKER).rename(tmp_path / "marker")
    (root / MARKER).symlink_to(tmp_path / "marker")
    with pytest.raises(NodeError, match="cannot be used"):
        Store(str(root))


def test_a_store_that_others_could_change_is_refused(root: Path) -> None:
    root.chmod(0o777)
    with pytest.raises(NodeError, match="not sticky"):
        Store(str(root))
    root.chmod(0o1777)
    Store(str(root))
    (root / MARKER).chmod(0o666)
    with pytest.raises(NodeError, match="written to by every user"):
        Store(str(root))


class Faults:
    """What may happen to an entry on a disk."""

    def cut(self, entry: Entry) -> None:
        os.chmod(entry.data, 0o644)
        os.truncate(entry.data, 2)
        os.chmod(entry.data, 0o444)

    def changed(self, entry: Entry) -> None:
        os.chmod(entry.data, 0o644)
        Path(entry.data).write_bytes(b"atad")
        os.chmod(entry.data, 0o444)

    def writable(self, entry: Entry) -> None:
        os.chmod(entry.data, 0o644)

    def gone(self, entry: Entry) -> None:
        os.unlink(entry.data)

    def link(self, entry: Entry) -> None:
        os.rename(entry.data, f"{entry.folder}/../../other")
        os.symlink(os.path.abspath(f"{entry.folder}/../../other"), entry.data)

    def undescribed(self, entry: Entry) -> None:
        os.unlink(f"{entry.folder}/{FACTS}")

    def garbled(self, entry: Entry) -> None:
        Path(entry.folder, FACTS).write_text("{")

    def other_format(self, entry: Entry) -> None:
        Path(entry.folder, FACTS).write_text(json.dumps({**entry.facts, "format": 2}))


FAULTS = [name for name in vars(Faults) if not name.startswith("_")]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("by", ["find", "sweep"])
def test_a_damaged_entry_is_dropped(root: Path, fault: str, by: str) -> None:
    store = Store(str(root))
    entry = keep(store, "bad")
    keep(store, "good")
    getattr(Faults(), fault)(entry)
    if by == "find":
        assert store.find("bad") is None
    else:
        assert [words.partition(":")[0] for words in store.sweep()] == ["bad"]
    assert names(store) == ["good"]
    assert os.listdir(store.inputs) == ["good"] and os.listdir(store.drafts) == []


def test_what_was_not_used_for_longest_goes_first(root: Path) -> None:
    create_store(str(root), Settings(quota=40, shared_account=False))
    store, now = Store(str(root)), time.time()
    for age, name in enumerate("abcd"):
        keep(store, name, bytes(10), now - age)
    pinned = store.find("d")
    assert pinned is not None
    store.pin(pinned, True)
    assert [entry.name for entry in store.entries()] == ["d", "c", "b", "a"]
    assert store.make_room(0) and len(store.entries()) == 4
    assert store.make_room(15)
    assert names(store) == ["a", "d"]
    store.touch(store.entries()[0])
    assert [entry.name for entry in store.entries()] == ["a", "d"]
    assert not store.make_room(31), "what is pinned stays"
    assert names(store) == ["a", "d"]
    assert store.make_room(30) and names(store) == ["d"]
    assert store.entries()[0].pinned


def test_the_disk_keeps_free_what_it_must(root: Path) -> None:
    free = folder.free_bytes(str(root))
    create_store(str(root), Settings(keep_free=2 * free, shared_account=False))
    store = Store(str(root))
    keep(store, "a")
    assert not store.make_room(1) and names(store) == ["a"]
    assert not store.make_room() and names(store) == []
    create_store(str(root), Settings(keep_free=free // 2, shared_account=False))
    store = Store(str(root))
    keep(store, "a")
    assert store.make_room(1) and names(store) == ["a"]
    assert not store.make_room(free) and names(store) == ["a"]


def test_the_sweeper_removes_what_is_old(root: Path) -> None:
    store, now = Store(str(root)), time.time()
    keep(store, "old", used=now - 31 * DAY)
    keep(store, "new", used=now - 29 * DAY)
    store.pin(keep(store, "pinned"), True)
    os.utime(Path(store.inputs, "pinned"), (0, 0))
    for name, age in (("left", 2 * DAY), ("young", 60.0)):
        Path(store.drafts, name).mkdir()
        part = Path(store.drafts, name, "data.part")
        part.touch()
        for path in (part, part.parent):
            os.utime(path, (now - age, now - age))
    Path(store.drafts, ".gone-1234", "deep").mkdir(parents=True)
    assert store.sweep() == [
        "left: a download that nobody goes on with",
        "old: not used for 31 days",
    ]
    assert names(store) == ["new", "pinned"] and os.listdir(store.drafts) == ["young"]
    assert store.sweep() == []


def test_an_entry_in_use_stays(root: Path) -> None:
    store = Store(str(root))
    entry = keep(store, "a", used=0.0)
    reader, other = hold(entry.folder, shared=True), hold(entry.folder, shared=True)
    assert reader is not None and other is not None
    assert not store.drop(entry.folder) and store.sweep() == []
    replaced = store.draft("a")
    assert replaced is not None
    Path(replaced.data).write_bytes(b"other")
    with pytest.raises(BlockingIOError):
        replaced.finish({})
    assert Path(entry.data).read_bytes() == b"data"
    reader.release()
    other.release()
    assert replaced.finish({}).size == 5
    replaced.close()
    assert names(store) == ["a"] and os.listdir(store.drafts) == []


def test_one_makes_an_entry_and_others_wait(root: Path) -> None:
    store = Store(str(root))
    draft = store.draft("a")
    assert draft is not None
    asked: list[str] = []

    def go_on(path: str) -> bool:
        asked.append(path)
        if len(asked) == 2:
            draft.close()
        return len(asked) < 5

    second = store.draft("a", go_on)
    assert second is not None and asked == [draft.folder] * 2
    assert store.draft("a") is None, "who does not wait gets nothing"
    second.close()


def test_a_killed_maker_leaves_its_draft_to_the_next(root: Path) -> None:
    code = (
        "import sys, time; from headway.node.store.folder import Store\n"
        f"draft = Store({str(root)!r}).draft('a')\n"
        "open(draft.data + '.part', 'wb').write(b'half'); print('ready', flush=True)\n"
        "time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    store = Store(str(root))
    assert store.draft("a") is None
    process.kill()
    process.wait()
    process.stdout.close()
    draft = store.draft("a")
    assert draft is not None and Path(f"{draft.data}.part").read_bytes() == b"half"
    Path(draft.data).write_bytes(b"whole")
    entry = draft.finish({})
    assert sorted(os.listdir(entry.folder)) == [DATA, FACTS]


@pytest.mark.parametrize("act", ["keep", "drop", "sweep"])
def test_killed_at_any_line(root: Path, act: str) -> None:
    in_a_new_process(kill_at_each_line, str(root), act)


# -- two users


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A store for everybody, as an administrator makes it."""
    root = tmp_path / "everybody"
    create_store(str(root), OWN, mode=0o1777)
    root.chmod(0o1777)
    for place in (tmp_path, *tmp_path.parents):
        if place.stat().st_mode & 0o001 == 0 and place.stat().st_uid == os.getuid():
            place.chmod(place.stat().st_mode | 0o011)
    return root


def _kept_by_alice(root: Path) -> tuple[str, str]:
    store = Store(str(root))
    entry = keep(store, "sha256-1234", b"of alice")
    return store.home, entry.data


@needs_root
def test_nobody_gets_what_another_user_keeps(shared: Path) -> None:
    home, data = as_user(ALICE, _kept_by_alice, shared)

    def attack() -> list[str]:
        worked = []

        def tried(what: str, act: Any) -> None:
            try:
                act()
                worked.append(what)
            except OSError:
                pass

        tried("list", lambda: os.listdir(home))
        tried("read", lambda: Path(data).read_bytes())
        tried("link", lambda: os.link(data, shared / "mine"))
        tried("write", lambda: Path(data).write_bytes(b"poison"))
        tried("replace", lambda: os.rename(home, shared / "away"))
        tried("remove", lambda: os.rmdir(home))
        tried("marker", lambda: (shared / MARKER).unlink())
        tried("settings", lambda: (shared / MARKER).write_text("{}"))
        tried("lock", lambda: lock(os.open(home, os.O_RDONLY)))
        store = Store(str(shared))
        assert store.find("sha256-1234") is None and store.home != home
        return worked

    assert as_user(MALLORY, attack) == []
    found = as_user(ALICE, lambda: Store(str(shared)).find("sha256-1234") is not None)
    assert found


@needs_root
@pytest.mark.parametrize("trap", ["folder", "link", "open"])
def test_a_place_that_another_user_has_taken_is_not_used(
    shared: Path, tmp_path: Path, trap: str
) -> None:
    """Mallory can keep Alice from the store, and no more."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    elsewhere.chmod(0o777)

    def squat() -> None:
        place = shared / f"u{ALICE}"
        if trap == "link":
            place.symlink_to(elsewhere)
        else:
            place.mkdir()
            place.chmod(0o777)
            if trap == "open":
                (place / "inputs").mkdir()

    as_user(MALLORY, squat)
    with pytest.raises(NodeError, match="not a folder of this user's own"):
        as_user(ALICE, Store, str(shared))
    assert list(elsewhere.iterdir()) == []


@needs_root
def test_a_store_of_another_user_is_not_used(tmp_path: Path, shared: Path) -> None:
    def own() -> str:
        create_store(str(shared / "trap"), OWN, mode=0o1777)
        os.chmod(shared / "trap", 0o1777)
        return str(shared / "trap")

    trap = as_user(MALLORY, own)
    with pytest.raises(NodeError, match="belongs to another user"):
        as_user(ALICE, Store, trap)


def test_a_draft_is_of_its_user_alone(root: Path) -> None:
    draft = Store(str(root)).draft("a")
    assert isinstance(draft, Draft) and os.stat(draft.folder).st_mode & 0o777 == 0o700
    draft.close()
