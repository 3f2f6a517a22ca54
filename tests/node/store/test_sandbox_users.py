"""Sandboxes of two users of one node, and of somebody who has the same account."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.node.store.keeping import ALICE, MALLORY, as_user, needs_root

from headway.node.errors import NodeError
from headway.node.store.folder import Settings, Store, create_store
from headway.node.store.sandboxes import FILES, TICKET, NoHandOver, SandboxError, Sandboxes, Ticket
from headway.node.store.sweeper import run_store

DATA = b"what alice has made" * 1000


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A store for everybody, and a folder for each of the two."""
    root = tmp_path / "everybody"
    create_store(str(root), Settings(shared_account=False))
    root.chmod(0o1777)
    for place in (tmp_path, *tmp_path.parents):
        if place.stat().st_uid == 0 and not place.stat().st_mode & 0o001:
            place.chmod(place.stat().st_mode | 0o011)
    for name, user in (("alice", ALICE), ("mallory", MALLORY)):
        (tmp_path / name).mkdir()
        os.chown(tmp_path / name, user, user)
    return root


def give(root: Path, folder: Path, name: str = "run-0", data: bytes = DATA) -> Ticket:
    """Hand outputs over, as whoever calls."""
    outputs = folder / f"outputs-{name}"
    outputs.mkdir(parents=True)
    (outputs / "model.pt").write_bytes(data)
    (outputs / "model.pt").chmod(0o644)
    sandboxes = Sandboxes(Store(str(root)))
    return sandboxes.hand_over(str(outputs), name, at="node.example.org", stays=60.0)


def take(root: Path, ticket: Ticket, home: Path) -> bytes:
    """Take a sandbox out, as whoever calls; what came out."""
    sandboxes = Sandboxes(Store(str(root)))
    sandboxes.take_out(sandboxes.ticket(ticket.sandbox, ticket.digest), str(home))
    return (home / "model.pt").read_bytes()


@needs_root
def test_another_user_can_do_nothing_to_a_sandbox(shared: Path, tmp_path: Path) -> None:
    ticket = as_user(ALICE, give, shared, tmp_path / "alice")
    place = shared / f"u{ALICE}" / "sandboxes" / "run-0"
    model = place / FILES / "model.pt"

    def attack() -> list[str]:
        mine = tmp_path / "mallory"
        (mine / "poison").write_bytes(b"poison")
        acts: dict[str, Callable[[], Any]] = {
            "list users": lambda: os.listdir(place.parent.parent),
            "list": lambda: os.listdir(place),
            "stat": lambda: os.stat(model),
            "read": model.read_bytes,
            "read the ticket": (place / TICKET).read_bytes,
            "link": lambda: os.link(model, mine / "model.pt"),
            "link in": lambda: os.link(mine / "poison", place / FILES / "extra"),
            "write": lambda: model.write_bytes(b"poison"),
            "replace": lambda: os.replace(mine / "poison", model),
            "plant": lambda: os.mkdir(place.parent / "run-1"),
            "plant a link": lambda: os.symlink(mine, place.parent / "run-2"),
            "move": lambda: os.rename(place, mine / "run-0"),
            "move all": lambda: os.rename(place.parent.parent, mine / "all"),
            "drop": lambda: shutil.rmtree(place),
            "open up": lambda: os.chmod(place.parent.parent, 0o777),
            "enter": lambda: os.chdir(place),
        }
        worked = []
        for name, act in acts.items():
            try:
                act()
                worked.append(name)
            except OSError:
                pass
        return worked

    assert as_user(MALLORY, attack) == []
    assert as_user(ALICE, take, shared, ticket, tmp_path / "alice" / "home") == DATA


@needs_root
def test_a_ticket_of_another_user_gets_nothing(shared: Path, tmp_path: Path) -> None:
    """Neither for whoever forges it, who has the digest, nor for whoever is to believe it."""
    ticket = as_user(ALICE, give, shared, tmp_path / "alice")
    as_user(MALLORY, give, shared, tmp_path / "mallory", "run-0", b"poison")
    stolen = shared / f"u{ALICE}" / "sandboxes" / "run-0"

    def forge() -> list[str]:
        mine = Sandboxes(Store(str(shared)))
        place = Path(Store(str(shared)).sandboxes, "run-0")
        (place / TICKET).write_bytes(ticket.as_bytes())
        got = []
        for number, way in enumerate(("as it is", "file", "folder", "sandbox")):
            if way != "as it is":
                target = {"file": place / FILES / "model.pt", "folder": place / FILES}
                link = target.get(way, place)
                if way != "sandbox":
                    shutil.rmtree(link) if link.is_dir() else link.unlink()
                    link.symlink_to(stolen / link.relative_to(place))
                else:
                    os.rename(place, tmp_path / "mallory" / "away")
                    place.symlink_to(stolen)
            try:
                mine.take_out(ticket, str(tmp_path / "mallory" / f"home{number}"))
                got.append(way)
            except NodeError:
                assert not (tmp_path / "mallory" / f"home{number}").exists()
        return got

    assert as_user(MALLORY, forge) == []
    assert as_user(ALICE, take, shared, ticket, tmp_path / "alice" / "home") == DATA


@needs_root
def test_a_hard_link_to_a_file_of_another_user_is_not_delivered(
    shared: Path, tmp_path: Path
) -> None:
    """Some systems let anybody make one to what can be read; here root makes it."""
    ticket = as_user(ALICE, give, shared, tmp_path / "alice")
    other_data = DATA.replace(b"alice", b"MALLO")
    theirs = as_user(MALLORY, give, shared, tmp_path / "mallory", "run-0", other_data)
    homes = {ALICE: tmp_path / "alice" / "home", MALLORY: tmp_path / "mallory" / "home"}
    for user, other in ((ALICE, MALLORY), (MALLORY, ALICE)):
        place, source = (shared / f"u{each}/sandboxes/run-0/files" for each in (user, other))
        (place / "model.pt").rename(place / "kept")
        os.link(source / ("model.pt" if user == ALICE else "kept"), place / "model.pt")
        for each in (ticket, theirs):
            with pytest.raises(SandboxError):
                as_user(user, take, shared, each, homes[user])
            assert not homes[user].exists()


@needs_root
def test_nobody_can_look_while_a_sandbox_comes_and_goes(shared: Path, tmp_path: Path) -> None:
    """From the first moment on, what a user has there is for that user alone."""
    stop = tmp_path / "stop"

    def watch() -> list[str]:
        seen: list[str] = []
        home = shared / f"u{ALICE}"
        places = [home, *(home / each for each in ("sandboxes", "drafts", "inputs"))]
        places += [home / "sandboxes" / "run-0", home / "sandboxes" / "run-0" / FILES / "model.pt"]
        while not stop.exists():
            for place in places:
                for act in (os.listdir, lambda path: os.open(path, os.O_RDONLY)):
                    try:
                        act(place)
                        seen.append(str(place))
                    except OSError:
                        pass
        return seen

    found: list[Any] = []
    watcher = threading.Thread(target=lambda: found.append(as_user(MALLORY, watch)))
    watcher.start()

    def come_and_go() -> None:
        for number in range(100):
            shutil.rmtree(tmp_path / "alice", ignore_errors=True)
            ticket = give(shared, tmp_path / "alice" / str(number))
            assert take(shared, ticket, tmp_path / "alice" / str(number) / "home") == DATA
            assert Sandboxes(Store(str(shared))).drop("run-0")

    try:
        as_user(ALICE, come_and_go)
    finally:
        stop.touch()
        watcher.join()
    assert found == [[]]


@needs_root
@pytest.mark.parametrize("who", ["alice", "the sweeper of root"])
def test_a_place_that_is_swapped_all_the_time(shared: Path, tmp_path: Path, who: str) -> None:
    """A link, a folder and a file take turns in Alice's place: none of them is followed."""
    place, stop = shared / f"u{ALICE}", tmp_path / "stop"
    trap = tmp_path / "mallory" / "trap"

    def swap() -> int:
        trap.mkdir()
        trap.chmod(0o777)
        (trap / "sandboxes").mkdir()
        (trap / "precious").write_text("x")
        turns = 0
        while turns < 4 or not stop.exists():
            turns += 1
            try:
                if turns % 3 == 0:
                    place.symlink_to(trap)
                elif turns % 3 == 1:
                    place.mkdir(0o777)
                else:
                    place.write_text("")
                place.rmdir() if turns % 3 == 1 else place.unlink()
            except OSError:
                pass
        return turns

    found: list[Any] = []
    swapper = threading.Thread(target=lambda: found.append(as_user(MALLORY, swap)))
    swapper.start()

    def try_to_give() -> str:
        for number in range(300):
            try:
                give(shared, tmp_path / "alice" / str(number), f"run-{number}")
                return "given"
            except (NodeError, NoHandOver):
                shutil.rmtree(tmp_path / "alice" / str(number), ignore_errors=True)
        return "never"

    try:
        if who == "alice":
            said = as_user(ALICE, try_to_give)
        else:
            end = time.monotonic() + 2
            while time.monotonic() < end:
                run_store([str(shared)])
    finally:
        stop.touch()
        swapper.join()
    assert found[0] > 3
    assert (trap / "precious").read_text() == "x" and not list((trap / "sandboxes").iterdir())
    if who == "alice" and said == "given":  # then it is hers, and the sticky folder keeps it
        assert place.lstat().st_uid == ALICE and not place.is_symlink()


def test_a_file_that_is_swapped_while_it_is_taken_out(tmp_path: Path) -> None:
    """By somebody with the same account: what comes out is what was handed over, or nothing."""
    root = tmp_path / "store"
    create_store(str(root), Settings())
    ticket = give(root, tmp_path)
    files = Path(Store(str(root)).sandboxes, "run-0", FILES)
    (tmp_path / "secret").write_bytes(b"secret" * 4000)
    (files / "true").write_bytes(DATA)
    stop, kinds = threading.Event(), [0, 0]

    def swap() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            other = files / f"next{number % 2}"
            other.unlink(missing_ok=True)
            if number % 3 == 0:
                other.symlink_to(tmp_path / "secret")
            elif number % 3 == 1:
                os.link(files / "true", other)
            else:
                other.write_bytes(DATA.replace(b"alice", b"MALLO"))
            os.replace(other, files / "model.pt")

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for number in range(300):
            try:
                assert take(root, ticket, tmp_path / f"home{number}") == DATA
                kinds[0] += 1
            except NodeError:
                assert not (tmp_path / f"home{number}").exists()
                kinds[1] += 1
    finally:
        stop.set()
        swapper.join()
    assert min(kinds) > 0, kinds
