"""Sandboxes in the store: whole or not there, proven by the ticket, and swept in the end."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lab.killing import in_a_new_process, killed_at
from tests.node.store.keeping import ALICE, MALLORY, as_user, needs_root

from headway.node.errors import NodeError, Stopped
from headway.node.store.folder import FACTS, Settings, Store, create_store
from headway.node.store.sandboxes import (
    FILES,
    TAKEN_AGE,
    TICKET,
    NoHandOver,
    SandboxError,
    Sandboxes,
    Ticket,
)

TREE = {"model.pt": b"weights" * 1000, "deep/er/log.txt": b"", "deep/a b;c=é": b"x"}


def write(folder: Path, tree: dict[str, bytes] = TREE) -> Path:
    for name, data in tree.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    (folder / "empty").mkdir()
    return folder


def read(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def store(tmp_path: Path) -> Store:
    create_store(str(tmp_path / "store"), Settings())
    return Store(str(tmp_path / "store"))


@pytest.fixture
def sandboxes(store: Store) -> Sandboxes:
    return Sandboxes(store)


def handed(sandboxes: Sandboxes, tmp_path: Path, name: str = "run-0") -> Ticket:
    outputs = write(tmp_path / f"outputs-{name}")
    ticket = sandboxes.hand_over(str(outputs), name, at="node.example.org", stays=3600.0)
    assert not outputs.exists()
    return ticket


def test_what_is_handed_over_comes_out_again(sandboxes: Sandboxes, tmp_path: Path) -> None:
    ticket = handed(sandboxes, tmp_path)
    assert sandboxes.held() == [("run-0", 7001)] and ticket.size == 7001
    again = sandboxes.ticket("run-0", ticket.digest)
    assert vars(again) == vars(ticket) and again.digest == ticket.digest
    for number in range(2):  # the first courier may be evicted before anything is home
        home = tmp_path / f"home{number}"
        sandboxes.take_out(again, str(home))
        assert read(home) == TREE and (home / "empty").is_dir()
    assert os.path.samefile(tmp_path / "home0/model.pt", tmp_path / "home1/model.pt")
    assert sandboxes.drop("run-0") and not sandboxes.drop("run-0")
    assert read(tmp_path / "home0") == TREE
    with pytest.raises(SandboxError, match="is not in the store"):
        sandboxes.take_out(ticket, str(tmp_path / "home2"))
    assert not (tmp_path / "home2").exists()


class Damage:
    """What may happen to a sandbox on a node."""

    def cut(self, files: Path) -> None:
        os.truncate(files / "model.pt", 10)

    def flipped(self, files: Path) -> None:
        with open(files / "model.pt", "r+b") as file:
            file.write(b"W")

    def gone(self, files: Path) -> None:
        (files / "deep/er/log.txt").unlink()

    def replaced_by_a_link(self, files: Path) -> None:
        shutil.copy(files / "model.pt", files / "other")
        (files / "model.pt").unlink()
        (files / "model.pt").symlink_to("other")

    def replaced_by_a_pipe(self, files: Path) -> None:
        (files / "model.pt").unlink()
        os.mkfifo(files / "model.pt")

    def undescribed(self, files: Path) -> None:
        (files.parent / FACTS).unlink()

    def emptied(self, files: Path) -> None:
        shutil.rmtree(files)


@pytest.mark.parametrize("damage", [name for name in vars(Damage) if name[0] != "_"])
def test_what_is_damaged_is_not_delivered(
    store: Store, sandboxes: Sandboxes, tmp_path: Path, damage: str
) -> None:
    ticket = handed(sandboxes, tmp_path)
    getattr(Damage(), damage)(Path(store.sandboxes, "run-0", FILES))
    with pytest.raises(SandboxError):
        sandboxes.take_out(ticket, str(tmp_path / "home"))
    assert not (tmp_path / "home").exists(), "half of it was delivered"


def test_a_file_that_no_ticket_names_is_not_delivered(
    store: Store, sandboxes: Sandboxes, tmp_path: Path
) -> None:
    ticket = handed(sandboxes, tmp_path)
    Path(store.sandboxes, "run-0", FILES, "extra").write_text("from somebody else")
    sandboxes.take_out(ticket, str(tmp_path / "home"))
    assert read(tmp_path / "home") == TREE


def test_only_the_ticket_that_went_home_counts(
    store: Store, sandboxes: Sandboxes, tmp_path: Path
) -> None:
    """Whoever has the same account can write another one into the store."""
    ticket = handed(sandboxes, tmp_path)
    path = Path(store.sandboxes, "run-0", TICKET)
    ticket.files[0] = (*ticket.files[0][:2], "0" * 64)
    for change in (lambda: path.write_bytes(ticket.as_bytes()), path.unlink):
        digest = Ticket.read(path.read_bytes()).digest
        assert sandboxes.ticket("run-0", digest).size == 7001
        change()
        with pytest.raises(SandboxError):
            sandboxes.ticket("run-0", digest)
    with pytest.raises(SandboxError, match="not in the store"):
        sandboxes.ticket("../inputs", digest)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2}, {"files": None}, {"files": [["a", 1]]}, {"files": [["../a", 1, "0" * 64]]},
        {"files": [["/etc/passwd", 1, "0" * 64]]}, {"files": [["a//b", 1, "0" * 64]]},
        {"files": [["a\0", 1, "0" * 64]]}, {"files": [["a", -1, "0" * 64]]},
        {"files": [["a", True, "0" * 64]]}, {"files": [["a", 1, "0" * 63]]},
        {"files": [["a", 1, "0" * 64]] * 2}, {"folders": [".."]}, {"folders": [7]},
        {"sandbox": "../../other"}, {"sandbox": ".."}, {"sandbox": "a/b"}, {"made": "today"},
    ],
)  # fmt: skip
def test_a_forged_ticket_is_refused(
    sandboxes: Sandboxes, tmp_path: Path, change: dict[str, Any]
) -> None:
    data = {**json.loads(handed(sandboxes, tmp_path).as_bytes()), **change}
    with pytest.raises(SandboxError, match="the ticket is damaged"):
        Ticket.read(json.dumps(data).encode())


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_garbage_is_no_ticket(data: bytes) -> None:
    with pytest.raises(SandboxError):
        Ticket.read(data)


def test_a_name_is_handed_over_once(sandboxes: Sandboxes, tmp_path: Path) -> None:
    ticket = handed(sandboxes, tmp_path)
    other = write(tmp_path / "other", {"model.pt": b"other"})
    for name in ("run-0", "../run-0", "", ".", "a/b", "x" * 200):
        with pytest.raises(NoHandOver):
            sandboxes.hand_over(str(other), name, at="node.example.org", stays=60.0)
        assert read(other) == {"model.pt": b"other"}, "outputs were touched"
    sandboxes.take_out(ticket, str(tmp_path / "home"))
    assert read(tmp_path / "home") == TREE


def test_a_store_that_holds_enough_takes_no_more(tmp_path: Path) -> None:
    create_store(str(tmp_path / "store"), Settings(sandbox_quota=10_000))
    sandboxes = Sandboxes(Store(str(tmp_path / "store")))
    handed(sandboxes, tmp_path, "first")
    outputs = write(tmp_path / "outputs")
    with pytest.raises(NoHandOver, match="holds 7001 bytes of 10000"):
        sandboxes.hand_over(str(outputs), "second", at="node.example.org", stays=60.0)
    assert read(outputs) == TREE
    sandboxes.drop("first")
    sandboxes.hand_over(str(outputs), "second", at="node.example.org", stays=60.0)


def test_what_is_no_file_is_not_handed_over(sandboxes: Sandboxes, tmp_path: Path) -> None:
    outputs = write(tmp_path / "outputs")
    os.mkfifo(outputs / "pipe")
    with pytest.raises(NoHandOver, match="pipe is not a file"):
        sandboxes.hand_over(str(outputs), "run-0", at="node.example.org", stays=60.0)
    assert sandboxes.held() == []


def test_an_eviction_ends_it_before_anything_moves(store: Store, tmp_path: Path) -> None:
    outputs = write(tmp_path / "outputs")
    with pytest.raises(Stopped):
        Sandboxes(store, lambda: True).hand_over(
            str(outputs), "run-0", at="node.example.org", stays=60.0
        )
    assert read(outputs) == TREE and os.listdir(store.drafts) == os.listdir(store.sandboxes) == []
    ticket = Sandboxes(store).hand_over(str(outputs), "run-0", at="node.example.org", stays=60.0)
    with pytest.raises(Stopped):
        Sandboxes(store, lambda: True).take_out(ticket, str(tmp_path / "home"))
    assert not (tmp_path / "home").exists()


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "mount"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs", str(place)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_store_on_another_file_system_gets_and_gives_copies(
    sandboxes: Sandboxes, store: Store, elsewhere: Path, tmp_path: Path
) -> None:
    outputs = write(elsewhere / "outputs")
    ticket = sandboxes.hand_over(str(outputs), "run-1", at="node.example.org", stays=60.0)
    assert read(outputs) == TREE and os.listdir(store.drafts) == []
    sandboxes.take_back("run-1", str(outputs))
    assert read(outputs) == TREE and sandboxes.held() == []
    again = sandboxes.hand_over(str(outputs), "run-1", at="node.example.org", stays=60.0)
    assert again.files == ticket.files
    sandboxes.take_out(again, str(elsewhere / "home"))
    assert read(elsewhere / "home") == TREE, "what a courier cannot link it copies"
    with pytest.raises(Stopped):
        Sandboxes(store, lambda: True).hand_over(str(outputs), "run-2", at="a", stays=60.0)
    assert read(outputs) == TREE and os.listdir(store.drafts) == []


def test_a_copy_that_does_not_fit_goes_home_with_its_job(elsewhere: Path, tmp_path: Path) -> None:
    create_store(str(elsewhere / "store"), Settings())
    store = Store(str(elsewhere / "store"))
    outputs = write(tmp_path / "outputs")
    (outputs / "large").write_bytes(bytes(5 << 20))
    with pytest.raises(NoHandOver, match="No space left"):
        Sandboxes(store).hand_over(str(outputs), "run-0", at="a", stays=60.0)
    assert (outputs / "large").stat().st_size == 5 << 20
    assert os.listdir(store.drafts) == os.listdir(store.sandboxes) == []


def test_a_full_disk(elsewhere: Path, tmp_path: Path) -> None:
    create_store(str(elsewhere / "store"), Settings())
    sandboxes = Sandboxes(Store(str(elsewhere / "store")))
    outputs = write(elsewhere / "outputs")
    fill = os.open(elsewhere / "fill", os.O_WRONLY | os.O_CREAT)
    with pytest.raises(OSError, match="No space") as full:
        while True:
            os.write(fill, bytes(4096))
    assert full.value.errno == errno.ENOSPC
    os.close(fill)
    with pytest.raises(NoHandOver, match="No space left"):
        sandboxes.hand_over(str(outputs), "run-0", at="node.example.org", stays=60.0)
    assert read(outputs) == TREE
    (elsewhere / "fill").unlink()
    assert (
        sandboxes.hand_over(str(outputs), "run-0", at="node.example.org", stays=60.0).size == 7001
    )


def test_ten_thousand_small_files(sandboxes: Sandboxes, tmp_path: Path) -> None:
    outputs = tmp_path / "outputs"
    for folder in range(10):
        (outputs / str(folder)).mkdir(parents=True)
        for number in range(1000):
            (outputs / str(folder) / str(number)).write_bytes(b"%d" % number)
    ticket = sandboxes.hand_over(str(outputs), "run-0", at="node.example.org", stays=60.0)
    assert len(ticket.files) == 10_000 and len(ticket.as_bytes()) < 1_500_000
    sandboxes.take_out(ticket, str(tmp_path / "home"))
    assert sum(1 for path in (tmp_path / "home").rglob("*") if path.is_file()) == 10_000


def test_the_sweeper_removes_what_is_over(
    store: Store, sandboxes: Sandboxes, tmp_path: Path
) -> None:
    now = time.time()
    tickets = {name: handed(sandboxes, tmp_path, name) for name in ("waits", "out", "sent", "bad")}
    for name in ("out", "sent"):
        sandboxes.take_out(tickets[name], str(tmp_path / name))
    Path(store.sandboxes, "bad", FACTS).write_text("[]")
    shutil.rmtree(tmp_path / "sent")  # this courier has ended; the other one is still sending
    assert sandboxes.sweep(now) == ["bad: its description is damaged"]
    assert sandboxes.sweep(now + TAKEN_AGE + 60) == ["sent: it was taken out"]
    assert sorted(name for name, _ in sandboxes.held()) == ["out", "waits"]
    assert sandboxes.sweep(now + 4000) == [
        "out: its time is over",
        "waits: nobody has taken it out in time",
    ]
    assert os.listdir(store.sandboxes) == os.listdir(store.drafts) == []


def test_a_slow_courier_that_dies_leaves_time_for_the_next(
    sandboxes: Sandboxes, tmp_path: Path
) -> None:
    now = time.time()
    ticket = handed(sandboxes, tmp_path)
    sandboxes.take_out(ticket, str(tmp_path / "home"))
    assert sandboxes.sweep(now + 3000) == [], "it is being sent"
    shutil.rmtree(tmp_path / "home")
    assert sandboxes.sweep(now + 3100) == []
    sandboxes.take_out(ticket, str(tmp_path / "home"))
    assert read(tmp_path / "home") == TREE


def test_a_clock_that_jumps_loses_nothing(
    sandboxes: Sandboxes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticket = handed(sandboxes, tmp_path)
    later = time.time() + 10 * 86400
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: later)
        assert sandboxes.sweep(later) == []
    sandboxes.take_out(ticket, str(tmp_path / "home"))


def test_what_cannot_be_taken_out_now_is_not_lost(sandboxes: Sandboxes, tmp_path: Path) -> None:
    ticket = handed(sandboxes, tmp_path)
    (tmp_path / "home").mkdir()
    with pytest.raises(NodeError, match="File exists") as error:
        sandboxes.take_out(ticket, str(tmp_path / "home"))
    assert not isinstance(error.value, SandboxError)
    assert sandboxes.held() == [("run-0", 7001)]


@pytest.mark.parametrize("size", ["Infinity", "NaN", "-1", "true", '"7"', "1e400"])
def test_a_nonsensical_size_stops_nobody(
    store: Store, sandboxes: Sandboxes, tmp_path: Path, size: str
) -> None:
    handed(sandboxes, tmp_path)
    path = Path(store.sandboxes, "run-0", FACTS)
    path.write_text(path.read_text().replace('"size": 7001', f'"size": {size}'))
    handed(sandboxes, tmp_path, "run-1")
    assert sandboxes.held() == [("run-1", 7001)]
    assert sandboxes.sweep(time.time()) == ["run-0: its description is damaged"]


def test_a_folder_that_nobody_may_write_to_is_removed_too(
    sandboxes: Sandboxes, store: Store, tmp_path: Path
) -> None:
    handed(sandboxes, tmp_path)
    Path(store.sandboxes, "run-0", FILES, "deep").chmod(0o555)
    assert sandboxes.drop("run-0") and os.listdir(store.drafts) == []


def _hand_over_until(line: int, root: str, outputs: str) -> int:
    """Hand over in a process that is killed at the so manyth line; how many there were."""
    sandboxes = Sandboxes(Store(root))
    return killed_at(
        line,
        lambda: sandboxes.hand_over(outputs, "run-0", at="node.example.org", stays=3600.0),
        lambda frame: frame.f_code.co_name in ("hand_over", "_put_in_place", "_line"),
    )


def _kill_each_hand_over(root: str, place: str) -> None:
    store, lines, line = Store(root), 0, 0
    sandboxes = Sandboxes(store)
    while line <= lines:
        outputs = write(Path(place, "outputs"))
        found = _hand_over_until(line, root, str(outputs))
        lines = found if line == 0 else lines
        held = [name for name, _ in sandboxes.held()]
        assert held in ([], ["run-0"]), line
        if held:
            files = Path(store.sandboxes, "run-0", FILES)
            assert not outputs.exists() and read(files) == TREE, line
        else:  # with its job they go, or with the sweeper
            left = [outputs, *Path(store.drafts).glob(f"*/{FILES}")]
            assert any(each.exists() and read(each) == TREE for each in left), line
        shutil.rmtree(outputs, ignore_errors=True)
        sandboxes.sweep(time.time() + 4000)
        store.sweep(time.time() + 2 * 86400)
        assert os.listdir(store.sandboxes) == os.listdir(store.drafts) == [], line
        line += 1
    assert lines > 15


def test_killed_at_any_line(store: Store, tmp_path: Path) -> None:
    in_a_new_process(_kill_each_hand_over, store.root, str(tmp_path))


@needs_root
def test_nobody_gets_at_the_sandbox_of_another_user(tmp_path: Path) -> None:
    root = tmp_path / "everybody"
    create_store(str(root), Settings(shared_account=False))
    root.chmod(0o1777)
    for place in (tmp_path, *tmp_path.parents):
        if place.stat().st_uid == 0 and not place.stat().st_mode & 0o001:
            place.chmod(place.stat().st_mode | 0o011)
    (tmp_path / "alice").mkdir()
    (tmp_path / "mallory").mkdir()
    os.chown(tmp_path / "alice", ALICE, ALICE)
    os.chown(tmp_path / "mallory", MALLORY, MALLORY)

    def give() -> bytes:
        outputs = write(tmp_path / "alice" / "outputs")
        return (
            Sandboxes(Store(str(root)))
            .hand_over(str(outputs), "run-0", at="node.example.org", stays=60.0)
            .as_bytes()
        )

    ticket = Ticket.read(as_user(ALICE, give))

    def steal() -> list[str]:
        mine = Sandboxes(Store(str(root)))
        assert mine.held() == [] and not mine.drop("run-0")
        worked = []
        try:
            mine.take_out(ticket, str(tmp_path / "mallory" / "home"))
            worked.append("take out")
        except SandboxError:
            pass
        # Alice's place in the store by another name: a ticket names no folder of the node's
        ticket.store = f"{root}/u{ALICE}"
        try:
            mine.take_out(ticket, str(tmp_path / "mallory" / "home"))
            worked.append("forged ticket")
        except SandboxError:
            pass
        return worked

    assert as_user(MALLORY, steal) == []
    assert as_user(ALICE, lambda: Sandboxes(Store(str(root))).held()) == [("run-0", 7001)]
    mode = os.stat(root / f"u{ALICE}").st_mode
    assert stat.S_IMODE(mode) == 0o700
