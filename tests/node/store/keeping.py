"""What tests of the store share: entries, two users of one machine, and a kill at each line."""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.lab.killing import killed_at

from headway.node.store.folder import DATA, DAY, FACTS, Entry, Store

T = TypeVar("T")
ALICE, MALLORY = 64_001, 64_002  # need no entry in /etc/passwd

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


_FORKING = threading.Lock()


def as_user(uid: int, function: Callable[..., T], *arguments: Any) -> T:
    """Call a function as this user; what it returns or raises is returned or raised here."""
    with _FORKING:  # a child of another thread's would keep the pipe open
        there, here = os.pipe()
        child = os.fork()
        if child != 0:
            os.close(here)
    if child == 0:
        os.close(there)
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            said: tuple[bool, object] = (True, function(*arguments))
        except BaseException as error:
            said = (False, error)
        with os.fdopen(here, "wb") as file:
            pickle.dump(said, file)
        os._exit(0)
    with os.fdopen(there, "rb") as file:
        data = file.read()
    os.waitpid(child, 0)
    assert data, "the process ended without an answer"
    fine, value = pickle.loads(data)
    if not fine:
        raise value
    return value  # type: ignore[no-any-return]


def keep(store: Store, name: str, data: bytes = b"data", used: float | None = None) -> Entry:
    """Make an entry."""
    draft = store.draft(name)
    assert draft is not None
    Path(draft.data).write_bytes(data)
    entry = draft.finish({})
    draft.close()
    if used is not None:
        os.utime(entry.folder, (used, used))
    return entry


def _until(line: int, root: str, act: str) -> int:
    """Act in a process that is killed at the so manyth line; returns how many there were."""
    store = Store(root)
    acts: dict[str, Callable[[], object]] = {
        "keep": lambda: keep(store, "new", b"new data"),
        "drop": lambda: store.drop(os.path.join(store.inputs, "old")),
        "sweep": lambda: store.sweep(time.time() + 40 * DAY),
    }
    files = ("store/folder.py", "node/files.py")
    return killed_at(line, acts[act], lambda frame: frame.f_code.co_filename.endswith(files))


def kill_at_each_line(root: str, act: str) -> None:
    store, lines, line = Store(root), 0, 0
    while line <= lines:
        keep(store, "old", b"old data")
        found = _until(line, root, act)
        lines = found if line == 0 else lines
        for entry in store.entries():
            assert Path(entry.data).read_bytes() == entry.name.encode() + b" data", line
            assert not entry.fault()
        # What a kill leaves behind is gone after a sweep, sooner or later.
        store.sweep(time.time() + 2 * DAY)
        assert os.listdir(store.drafts) == [], (line, os.listdir(store.drafts))
        assert set(os.listdir(store.inputs)) <= {"old", "new"}
        for name in os.listdir(store.inputs):
            assert sorted(os.listdir(f"{store.inputs}/{name}")) == [DATA, FACTS]
            assert store.drop(f"{store.inputs}/{name}")
        line += 1
    assert lines > 10
