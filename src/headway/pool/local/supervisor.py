"""The local pool's supervisor: runs the jobs of one run folder as processes.

It reads all that it knows of a job from the event log when it starts. So it can be killed at any
time, and another one goes on.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import re
import secrets
import selectors
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headway.errors import EventLogError, PoolError, PoolUnreachable
from headway.events import EventWriter
from headway.node.errors import ENDED_BY_POOL, Exit
from headway.node.files import write_atomically
from headway.node.plan import fill
from headway.pool.base import Action
from headway.pool.folder import RunFolder, failing
from headway.pool.local.attempt import AttemptEnd, ResourceUsage, RunningAttempt, read_record
from headway.pool.local.job import LocalJob
from headway.pool.local.machine import (
    Claim,
    Held,
    MachineClaims,
    ResourceRequest,
    Site,
    sites_of,
    take,
)
from headway.pool.local.queue import HELD_AT_OUTPUT, HELD_AT_START, HoldReason, Queue, QueueEntry
from headway.pool.local.scratch import (
    Orphans,
    bring_home,
    checkpoint_folder,
    move_into_place,
    remove_tree,
    tree_size,
)
from headway.pool.program import compile_agent, encoded_row
from headway.spec.places import image_path

LOCK = "supervisor"
_TICK = 0.2
_DISK_FAILS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
_SYNC = 1.0  # seconds of finished jobs that a power cut may undo

# Another process asks a supervisor by a file in the control folder, and gets a file back.
_PATIENCE = 15.0


def answer_requests(folder: RunFolder, answer: Callable[[Mapping[str, Any]], object]) -> None:
    """Answer the requests in the control folder, oldest first."""
    place = folder.path / "control"
    try:
        names = os.listdir(place)
    except OSError:
        return  # nobody has ever asked
    for path in (place / name for name in sorted(names) if name[0] != "."):
        if path.suffix != ".json":
            continue
        try:
            body = json.loads(path.read_bytes())
        except FileNotFoundError:
            continue  # who asked did not wait
        except (OSError, ValueError, RecursionError):
            with contextlib.suppress(OSError):
                path.rename(f"{path}.bad")
            continue
        answered = json.dumps(answer(body)).encode()
        # A request that cannot be answered (a full disk) times out, which must not end the pool.
        with contextlib.suppress(OSError):
            write_atomically(path.with_suffix(".answer"), answered)
        # Only now: after a crash in between, the request is merely carried out again.
        with contextlib.suppress(OSError):
            path.unlink()


def remove_answers(folder: RunFolder) -> None:
    """Remove answers that nobody has waited for."""
    with contextlib.suppress(OSError):
        for left in (folder.path / "control").glob("*.answer"):
            left.unlink(missing_ok=True)


def ask(folder: RunFolder, body: Mapping[str, Any], *, alive: Callable[[], bool]) -> Any:
    """Ask the running supervisor and wait for its answer; None if it ends without one."""
    place = folder.path / "control"
    path = place / f"{time.time_ns()}-{uuid.uuid4().hex[:8]}.json"
    answer = path.with_suffix(".answer")
    what = f"the local pool of {folder.label} cannot be asked"
    with failing(what, f"is there space and permission in {place}?", PoolError):
        place.mkdir(0o700, exist_ok=True)
        write_atomically(path, json.dumps(body).encode())
    deadline = time.monotonic() + _PATIENCE
    try:
        while time.monotonic() < deadline:
            with contextlib.suppress(FileNotFoundError):
                return json.loads(answer.read_bytes())
            if not alive() and not answer.exists():
                return None
            time.sleep(0.02)
    finally:
        for file in (path, answer):
            with contextlib.suppress(OSError):
                file.unlink()
    raise PoolUnreachable(
        f"the local pool of {folder.label} did not answer within {_PATIENCE:.0f} s",
        remedy="it is safe to try again",
    )


_LONGEST_LINE = 8192
_MOST_STRANGERS = 256  # connections that have sent no cookie yet
_OK, _NOT_AUTHENTICATED, _UNKNOWN = b"0\n", b"-1\n", b"-7\n"


class ChirpServer:
    """Listens on loopback for the lines of agents; a line counts only after an attempt's cookie."""

    def __init__(
        self, selector: selectors.BaseSelector, on_line: Callable[[str, str], None]
    ) -> None:
        self.selector = selector
        self.on_line = on_line
        self.cookies: dict[str, str] = {}  # whose each is
        self.connections: list[_Connection] = []  # oldest first
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._socket.setblocking(False)
        selector.register(self._socket, selectors.EVENT_READ, self._accept)

    def admit(self, owner: str) -> str:
        """The text of .chirp.config for one attempt."""
        cookie = secrets.token_hex(16)
        self.cookies[cookie] = owner
        host, port = self._socket.getsockname()
        return f"{host} {port} {cookie}\n"

    def dismiss(self, owner: str) -> None:
        """Accept the cookies of this owner no longer."""
        self.cookies = {c: who for c, who in self.cookies.items() if who != owner}
        for connection in [one for one in self.connections if one.owner == owner]:
            connection.close()

    def close(self) -> None:
        for connection in list(self.connections):
            connection.close()
        self.selector.unregister(self._socket)
        self._socket.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            self.connections.append(_Connection(self, self._socket.accept()[0]))
        # Those who never send a cookie must not use up all the files that may be open.
        strangers = [one for one in self.connections if one.owner is None]
        for connection in strangers[:-_MOST_STRANGERS]:
            connection.close()


class _Connection:
    def __init__(self, server: ChirpServer, connection: socket.socket) -> None:
        self._server = server
        self._socket = connection
        self._socket.setblocking(False)
        self.owner: str | None = None
        self._closed = False
        self._buffer = b""
        server.selector.register(connection, selectors.EVENT_READ, self._receive)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._server.selector.unregister(self._socket)
            self._socket.close()
            self._server.connections.remove(self)

    def _receive(self) -> None:
        if self._closed:
            return
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        try:
            for line in lines:
                self._socket.sendall(self._answer(line.decode("utf-8", "replace")))
        except OSError:
            data = b""
        if not data or len(self._buffer) > _LONGEST_LINE:
            self.close()

    def _answer(self, line: str) -> bytes:
        command, _, argument = line.strip("\r").partition(" ")
        if command == "cookie":
            self.owner = self._server.cookies.get(argument)
            return _OK if self.owner else _NOT_AUTHENTICATED
        if self.owner is None:
            return _NOT_AUTHENTICATED
        if command == "ulog":
            # chirp puts a backslash before what would end a word
            self._server.on_line(self.owner, re.sub(r"\\(.?)", r"\1", argument))
            return _OK
        return _UNKNOWN


class Supervisor:
    """Starts the jobs that fit, ends those that must end, and exits when none is left to run."""

    def __init__(self, folder: RunFolder, job: LocalJob) -> None:
        facts = folder.facts
        self.folder = folder
        self.job = job
        self.sites = sites_of(facts.pool, folder.label)
        container = self.job.container
        self.image = image_path(container, Path(facts.base)) if container else None
        self.queue = Queue(EventWriter(folder.events), facts.number, self.job)
        self.running: dict[int, RunningAttempt] = {}
        self.orphans = Orphans()
        self.stopping = False
        self._stop_asked = False
        self._muted = False
        self._look = True  # something has changed that may let a job start
        self._next_look = 0.0
        self._next_poll = 0.0
        self._next_sync = 0.0
        self.selector = selectors.DefaultSelector()
        self._woken, self.waker = socket.socketpair()
        for end in (self._woken, self.waker):
            end.setblocking(False)
        self.selector.register(self._woken, selectors.EVENT_READ, self._awake)
        self.chirp = ChirpServer(self.selector, self._agent_line)
        self.agent = folder.agent
        self.claims = MachineClaims() if any(site.shared for site in self.sites) else None

    def close(self) -> None:
        for attempt in self.running.values():
            attempt.kill()
        self.orphans.end_all()
        self.chirp.close()
        self.selector.close()
        self._woken.close()
        self.waker.close()
        self.queue.close()
        if self.claims is not None:
            self.claims.close()

    def run(self) -> None:
        """Work until every job is over or held for good, or the run was asked to stop.

        When the log or the disk fails, all attempts are ended with their grace before the error is
        raised. Nothing is logged about them: their folders stay for the next supervisor.
        """
        self.agent = compile_agent(self.folder.agent, self.folder.programs)
        try:
            while self.running or (not self.stopping and self.queue.has_work()):
                self._step()
            self._sync(at_once=True)
        except (EventLogError, OSError):
            self._give_up()
            raise

    def ask_to_stop(self) -> None:
        """For a signal handler: the next step of `run` stops."""
        self._stop_asked = True

    def stop(self, reason: str = "headway was stopped") -> None:
        """End all attempts as evictions, with their grace; the run can be resumed."""
        self.stopping = True
        for attempt in self.running.values():
            if attempt.ending is None:
                attempt.end(AttemptEnd(Action.EVICT, reason), self.job.grace)

    def answer(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Carry out one request of the control folder; one result for each job."""
        self._look = True

        def act(index: int) -> str:
            entry = self.queue.get(index)
            if entry is None:
                return "there is no such job"
            if "edit" in body:
                return self.queue.edit(entry, *map(str, body["edit"]))
            return self._act(entry, Action(body["action"]), str(body["reason"]))

        try:
            return [{"job": index, "error": act(index)} for index in body["jobs"]]
        except (KeyError, TypeError, ValueError) as error:
            return [{"job": -1, "error": f"the request makes no sense: {error}"}]

    def _act(self, entry: QueueEntry, action: Action, reason: str) -> str:
        attempt = self.running.get(entry.index)
        if attempt is not None and action is not Action.RELEASE:
            attempt.end(AttemptEnd(action, reason), self.job.grace)
            return ""
        if attempt is not None and attempt.release(reason):
            return ""
        error = self.queue.act(entry, action, reason)
        self._clean_if_over(entry)
        return error

    # -- the loop

    def _step(self) -> None:
        if self._stop_asked and not self.stopping:
            self.stop()
        if not self.stopping:
            self._look = self.queue.release_due() or self._look
            self._start_what_fits()
        for key, _ in self.selector.select(_TICK):
            key.data()
        self._settle()
        self._sync()

    def _settle(self) -> None:
        now = time.monotonic()
        if now < self._next_poll:
            return
        self._next_poll = now + _TICK
        for attempt in list(self.running.values()):
            if attempt.saves:
                continue
            if attempt.saved():
                self._checkpointed(attempt)
                continue
            status = attempt.poll()
            if status is None:
                continue
            self.orphans.end_of(attempt.scratch, self._agents())
            if status == Exit.CHECKPOINT and self.job.has_checkpoint:
                attempt.save_checkpoint(self._wake)
            else:
                self._finish(attempt, status)
        self.orphans.reap(self._agents())
        answer_requests(self.folder, self.answer)

    def _awake(self) -> None:
        """After a signal, such as that of a child's end, or when a thread has ended."""
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(4096)
        self._next_poll = 0.0

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self.waker.send(b"\0")

    def _agents(self) -> set[int]:
        return {attempt.pid for attempt in self.running.values()}

    def _agent_line(self, owner: str, line: str) -> None:
        if not self._muted:
            self.queue.log_line(int(owner.split(".")[0]), line)

    def _sync(self, *, at_once: bool = False) -> None:
        """Sync the log, but not after each job: a power cut also loses what they wrote just now."""
        now = time.monotonic()
        if at_once or now >= self._next_sync:
            self._next_sync = now + _SYNC
            self.queue.sync()

    def _give_up(self) -> None:
        self._muted = True
        self.stop("the local pool cannot go on")
        while self.running:
            for key, _ in self.selector.select(_TICK):
                key.data()
            for attempt in list(self.running.values()):
                if not attempt.saves and attempt.poll() is not None:
                    self.orphans.end_of(attempt.scratch, self._agents())
                    del self.running[attempt.job]

    # -- starting

    def _start_what_fits(self) -> None:
        """First jobs that have been tried before, then the others, which all ask for the same."""
        now = time.monotonic()
        if not self._look and now < self._next_look:
            return
        self._look = False
        full: set[tuple[object, ...]] = set()
        for entry in self.queue.odd():
            self._start_if_it_fits(entry, full)
        while not self._stop_asked:
            first = self.queue.first_plain()
            if first is None or not self._start_if_it_fits(first, full):
                break
        # A long queue of jobs that find no room must not take all the time of this process.
        self._next_look = now + max(_TICK, 10 * (time.monotonic() - now))

    def _start_if_it_fits(self, entry: QueueEntry, full: set[tuple[object, ...]]) -> bool:
        """Start or, if it can never start, hold a job; `full` collects what found no room."""
        if self._stop_asked:
            return False
        kind = (*entry.edits.items(), *self.queue.avoided(entry))
        if kind in full:
            return False
        sites, request = self.queue.sites_for(entry, self.sites), self.queue.request(entry)
        placed = self._place(sites, request)
        if placed is not None:
            self._start(entry, *placed)
            return True
        if not any(take(site, request, ()) for site in self.queue.allowed(self.sites)):
            reason = f"no site of this pool can ever take the job: {request.words()} asked for"
            self.queue.hold(entry, reason, HELD_AT_START)
            return True
        full.add(kind)
        return False

    def _place(self, sites: list[Site], request: ResourceRequest) -> tuple[Site, Claim] | None:
        for site in sites:
            if self.claims is not None and site.shared:
                claim = self.claims.claim(site, request, self._held())
            else:
                mine = [a.claim for a in self.running.values() if a.site.name == site.name]
                claim = take(site, request, mine)
            if claim is not None:
                return site, claim
        return None

    def _start(self, entry: QueueEntry, site: Site, claim: Claim) -> None:
        taken = {attempt.slot_number for attempt in self.running.values()}
        slot = next(number for number in itertools.count(1) if number not in taken)
        attempt = RunningAttempt(self.folder, entry.index, entry.starts + 1, site, claim, slot)
        attempt.time_limit = self.queue.request(entry).time_limit
        try:
            chirp = self.chirp.admit(attempt.owner)
            attempt.prepare(chirp, has_inputs=self.job.has_inputs)
            attempt.start(self.agent, encoded_row(self.job.row(entry.index)), self.image)
        except (OSError, PoolError) as error:
            self.chirp.dismiss(attempt.owner)
            attempt.clean()
            self._give_back()
            self.queue.start_failed(entry, error)
            return
        self.running[entry.index] = attempt
        self.queue.started(entry, attempt)

    # -- ending

    def _checkpointed(self, attempt: RunningAttempt) -> None:
        """The checkpoint is in the spool: the attempt goes on, unless it was asked to end."""
        entry = self.queue[attempt.job]
        if attempt.save_error:
            self.queue.log_line(entry.index, f"the checkpoint was not kept: {attempt.save_error}")
        else:
            self.queue.checkpointed(entry)
        if attempt.ending is None:
            try:
                attempt.restart()
                return
            except OSError as error:
                attempt.ending = AttemptEnd(Action.EVICT, f"it cannot be started again: {error}")
        self._finish(attempt, Exit.CHECKPOINT)

    def _finish(self, attempt: RunningAttempt, status: int) -> None:
        """Bring everything home and only then log it: in this order a crash loses nothing."""
        entry = self.queue[attempt.job]
        stuck = self.bring_home(entry, attempt.scratch, attempt.used)
        if status == Exit.OK and stuck is None:
            self.put_in_place(entry)
        ending = attempt.ending
        if status == ENDED_BY_POOL and ending is None:
            # Not ended by the pool: the machine shuts down, or somebody killed the agent.
            ending = AttemptEnd(Action.EVICT, "somebody asked the agent to end")
        if stuck is not None:
            self.queue.evicted(entry, attempt.used, stuck.reason, held=stuck)
        elif ending is None or status == Exit.OK:
            self.queue.exited(entry, status, attempt.used, self._reason(entry, status))
        elif ending.action is Action.REMOVE:
            self.queue.remove(entry, ending.reason)
        else:
            self.queue.evicted(
                entry,
                attempt.used,
                ending.reason,
                checkpointed=attempt.checkpointed,
                held=HoldReason(ending.reason) if ending.action is Action.HOLD else None,
            )
        del self.running[attempt.job]
        self.chirp.dismiss(attempt.owner)
        self._give_back()
        if stuck is None:
            attempt.clean()
        self._clean_if_over(entry)

    def bring_home(
        self, entry: QueueEntry, scratch: Path, used: ResourceUsage
    ) -> HoldReason | None:
        """Move an attempt's output into the run folder; returns why the job is held if it fails."""
        used.scratch_bytes = tree_size(scratch)
        try:
            used.bytes_home += bring_home(scratch, self.folder.job_folder(entry.index))
        except OSError as error:
            if error.errno in _DISK_FAILS:
                raise
            reason = f"its output cannot be brought home from {scratch}: {error}"
            return HoldReason(reason, HELD_AT_OUTPUT, error.errno or 0)
        return None

    def record(self, entry: QueueEntry) -> dict[str, Any]:
        """The record of a job's last attempt, if it has come home."""
        name = Path(entry.attempt).name
        attempt = self.folder.job_folder(entry.index) / "attempts" / name
        return read_record(attempt) if name else {}

    def _reason(self, entry: QueueEntry, status: int) -> str:
        """Why the inputs of an attempt did not arrive, in the agent's words."""
        record = self.record(entry) if status == Exit.INPUT_RETRYABLE else {}
        return str(record.get("reason") or "") if record.get("exit") == status else ""

    def put_in_place(self, entry: QueueEntry) -> None:
        """Move outputs to the paths on this machine that job.toml gives for them."""
        base, row = Path(self.folder.facts.base), self.job.row(entry.index)
        for number, output in enumerate(self.job.outputs):
            if output.to is None or self.job.uploads(output):
                continue
            source = self.folder.job_folder(entry.index) / "outputs" / fill(output.path, row)
            target = base / fill(output.to, row)
            if not os.path.lexists(source):
                continue
            if os.path.lexists(target) and not output.overwrite:
                self.queue.log_line(entry.index, f"{target} exists: the output stays in {source}")
                continue
            try:
                tag = f"{self.folder.facts.id}-{entry.index}-{number}"
                move_into_place(source, target, tag)
            except OSError as error:
                self.queue.log_line(
                    entry.index, f"{target}: {error.strerror}: it stays in {source}"
                )

    def _clean_if_over(self, entry: QueueEntry) -> None:
        if entry.status == "over":
            remove_tree(checkpoint_folder(self.folder, entry.index))

    def _held(self) -> list[Held]:
        return [(attempt.site, attempt.claim) for attempt in self.running.values()]

    def _give_back(self) -> None:
        self._look = True
        if self.claims is not None:
            self.claims.record(self._held())
