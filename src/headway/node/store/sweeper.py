"""The sweeper of a store: makes it, removes what is old or damaged, and tells what it keeps.

    headway-node.pyz store FOLDER [NAME=VALUE ...]

Each NAME is a setting of the store. What it prints is what a startd's cron job puts into the
machine's ad, so that jobs can prefer nodes that hold their input. Run by root, it sweeps what each
user keeps as that user, since nobody else may look into it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import sys
import time

from headway.node.classad import quoted
from headway.node.errors import NodeError
from headway.node.host import PREFETCH_FOR, STORE
from headway.node.store.ahead import Ahead
from headway.node.store.folder import (
    MARKER,
    Settings,
    Store,
    create_store,
    discard_foreign,
    free_bytes,
)
from headway.node.store.sandboxes import Sandboxes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: In a machine's ad: the inputs that are kept there, by `advertised`.
INPUTS = "HeadwayInputs"
_MOST = 200  # inputs in an ad, those that were used last
_DIGITS = 16  # of a digest: enough to tell the inputs of a pool apart
_USER = re.compile(r"u([0-9]{1,10})")
_SWITCHES = {"true": True, "false": False}


def advertised(name: str) -> str:
    """What an ad calls an input: the name of its entry, cut short; empty if nothing proves it."""
    kind, _, digits = name.partition("-")
    return f"{kind}-{digits[:_DIGITS]}" if kind in ("manifest", "sha256", "md5") else ""


def run_store(arguments: Sequence[str]) -> int:
    """Sweep a store and print what it keeps; returns the exit code."""
    root = os.path.abspath(arguments[0])
    try:
        given = dict(_setting(words) for words in arguments[1:])
        _make(root, given)
        names, used, waiting, runs = [], 0, [], []
        for store in _stores(root):
            try:
                sandboxes = Sandboxes(store)
                for words in [*store.sweep(), *sandboxes.sweep(time.time())]:
                    sys.stderr.write(f"{words}\n")
                waiting += [size for _, size in sandboxes.held()]
                ahead = Ahead(store)
                ahead.sweep(time.time())
                runs += ahead.wanted() if store.settings.keeps_inputs else []
                entries = store.entries()
            except Exception as error:  # what one user has there must not concern the others
                sys.stderr.write(f"{store.home} cannot be swept: {error!r:.200}\n")
                continue
            used += sum(entry.size for entry in entries)
            if store.settings.shared_account:  # else jobs do not know under which name they run
                names += [(entry.used, advertised(entry.name)) for entry in entries]
        newest = [name for _, name in sorted(names, reverse=True) if name][:_MOST]
        free = free_bytes(root)
    except (NodeError, OSError, ValueError) as error:
        sys.stderr.write(f"headway: the store {root}: {error}\n")
        return 1
    ad = {STORE: root, INPUTS: ",".join(dict.fromkeys(newest)), PREFETCH_FOR: ",".join(runs)}
    for name, text in ad.items():
        sys.stdout.write(f"{name} = {quoted(text)}\n")
    counts = {"Used": used, "Free": free, "Swept": int(time.time())}
    counts.update({"Sandboxes": len(waiting), "SandboxBytes": sum(waiting)})
    for name, count in counts.items():
        sys.stdout.write(f"HeadwayStore{name} = {count}\n")
    sys.stdout.write("- update:true\n")
    return 0


def _setting(words: str) -> tuple[str, object]:
    name, _, text = words.partition("=")
    if name not in vars(Settings()):
        raise ValueError(f"there is no setting {name!r}; there are {', '.join(vars(Settings()))}")
    return name, _SWITCHES[text] if text in _SWITCHES else int(text)


def _make(root: str, given: dict[str, object]) -> None:
    """Make the store, or give it these settings."""
    before: dict[str, object] = {}
    with contextlib.suppress(FileNotFoundError), open(os.path.join(root, MARKER), "rb") as file:
        before = Settings.read(file.read()).as_json()
    wanted = {"format": 1, **before, **given}
    if before and before == wanted:
        return
    settings = Settings.read(json.dumps(wanted).encode())
    create_store(root, settings)
    # What several accounts use must let each of them make a folder in it, and touch no other.
    open_to_all = os.geteuid() == 0 and not settings.shared_account
    os.chmod(root, 0o1777 if open_to_all else 0o700)


def _stores(root: str) -> Iterator[Store]:
    """The part of each user; for anybody but root, only the own one."""
    if os.geteuid() != 0:
        yield Store(root)
        return
    Store(root)  # whether it can be trusted
    for name in sorted(os.listdir(root)):
        match = _USER.fullmatch(name)
        if match is None:
            continue
        user, about = int(match[1]), os.lstat(os.path.join(root, name))
        if about.st_uid != user or not stat.S_ISDIR(about.st_mode):
            discard_foreign(os.path.join(root, name))  # somebody has taken another user's place
            continue
        os.seteuid(user)
        try:
            with contextlib.suppress(NodeError):
                yield Store(root)
        finally:
            os.seteuid(0)
