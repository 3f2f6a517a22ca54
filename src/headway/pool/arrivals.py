"""Arrivals: what has come home of a job is compared with the ticket that said what would come.

It is read by programs that DAGMan starts for each job: it needs the standard library alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headway.node.files import write_atomically
from headway.node.plan import TICKET_FILE, fill
from headway.node.store.sandboxes import MOST_TICKET, SandboxError, Ticket

ARRIVED = "arrived.json"  # beside the ticket: which files have been compared with it
_PIECE = 1 << 20


def ticket_of(home: Path) -> Ticket | None:
    """The ticket in the folder of a job; None: its outputs came home with it, or never were.

    Raises:
        SandboxError: The ticket is damaged.
    """
    try:
        with (home / TICKET_FILE).open("rb") as file:
            data = file.read(MOST_TICKET + 1)
    except OSError:
        return None
    return Ticket.read(data) if data.strip() != b"{}" else None


def delivered(run: Path, job: int, ticket: Ticket) -> bool:
    """Whether nothing of a sandbox waits for a courier any more.

    Args:
        run: The run folder.
        job: The job's number in it.
        ticket: What the job has left.
    """
    sent = any(is_url(to) for _, to, _, _ in _places(run, job, ticket))
    return not arrival(run, job) and (not sent or _has_sent(run, job, ticket.sandbox))


def _has_sent(run: Path, job: int, sandbox: str) -> bool:
    """Whether a courier of this sandbox has come to its end, and so has sent what goes to URLs."""
    for path in (run / "jobs" / str(job) / "attempts").glob("*/record.json"):
        record = _read(path)
        phases = record.get("phases") if record.get("exit") == 0 else None
        for phase in phases if isinstance(phases, list) else ():
            if isinstance(phase, dict) and phase.get("sandbox") == sandbox:
                return True
    return False


def arrival(run: Path, job: int) -> str:
    """What is wrong with the outputs that a courier was to bring home; empty: all is well.

    A file is read once: what was compared and has not changed since is not compared again.

    Args:
        run: The run folder.
        job: The job's number in it.
    """
    home = run / "jobs" / str(job)
    try:
        ticket = ticket_of(home)
    except SandboxError as error:
        return error.message
    if ticket is None:
        return ""
    digest = ticket.digest
    known = _read(home / ARRIVED)
    before = known.get("files") if known.get("ticket") == digest else {}
    seen: dict[str, list[int]] = {}
    for path, size, sha256 in _expected(run, job, ticket):
        try:
            about = os.lstat(path)
        except OSError:
            return f"{path} has not arrived"
        if not stat.S_ISREG(about.st_mode):
            return f"{path} is not a file"
        if about.st_size != size:
            return f"{path} has {about.st_size} bytes and should have {size}"
        mark = [about.st_size, about.st_mtime_ns, about.st_ino]
        if not isinstance(before, dict) or before.get(path) != mark:
            try:
                found = _sha256(path)
            except OSError as error:
                return f"{path} cannot be read: {error.strerror}"
            if found != sha256:
                return f"{path} is not what the job made: its sha256 is another one"
        seen[path] = mark
    if seen != before:
        with contextlib.suppress(OSError):  # it is only compared again, then
            write_atomically(home / ARRIVED, json.dumps({"ticket": digest, "files": seen}).encode())
    return ""


def is_url(to: str) -> bool:
    """Whether a courier sends an output there itself."""
    return "://" in to or to.startswith("file:")


def _expected(run: Path, job: int, ticket: Ticket) -> Iterator[tuple[str, int, str]]:
    """Where each file of a sandbox goes on this machine, its size and its digest."""
    for path, to, size, sha256 in _places(run, job, ticket):
        if not is_url(to):  # else the courier has sent it there, and compared it
            yield path, size, sha256


def _places(run: Path, job: int, ticket: Ticket) -> Iterator[tuple[str, str, int, str]]:
    """For each file of a sandbox: its place here, the `to` of its output, its size and digest."""
    described, facts = _read(run / "job.json"), _read(run / "run.json")
    rows = described.get("rows")
    row = {"job": str(job), **(rows[job] if rows else {})}
    places = {
        fill(each["path"], row): fill(each["to"], row) if each.get("to") else ""
        for each in described["outputs"]
    }
    own = run / "jobs" / str(job) / "outputs"
    for name, size, sha256 in ticket.files:
        declared = [path for path in places if f"{name}/".startswith(f"{path}/")]
        output = max(declared, key=len, default="")
        to = places.get(output, "")
        path = os.path.normpath(Path(str(facts["base"])) / to) if to else os.path.join(own, output)
        yield f"{path}{name[len(output) :]}", to, size, sha256


def _read(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()
