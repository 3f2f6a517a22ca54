"""The local pool's working part: runs the jobs of one run folder as processes.

All that it knows of a job it reads from the event log when it starts, so it can be killed at any
time and another one goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from headway.errors import HeadwayError, PoolError, RunError
from headway.events import EventWriter, read_log
from headway.node.exits import Exit
from headway.node.template import fill
from headway.pool.base import Action
from headway.pool.folder import RunFolder
from headway.pool.local import control
from headway.pool.local.attempt import Attempt, Ending, Used
from headway.pool.local.chirpd import ChirpServer
from headway.pool.local.machine import Claim, Ledger, Request, Site, take
from headway.pool.local.queue import Entry, Queue
from headway.pool.local.scratch import bring_home, kill_strays, move_into_place, remove_tree

LOCK = "supervisor"
_TICK = 0.2


class Supervisor:
    """Runs what fits, ends what must end, and leaves when nothing is left that could run."""

    def __init__(self, folder: RunFolder) -> None:
        facts = folder.facts
        self.folder = folder
        self.job = folder.job
        self.sites = tuple(Site.from_facts(site) for site in facts.pool["sites"])
        self.rows = folder.rows.read_text(encoding="ascii").split()
        self.queue = Queue(EventWriter(folder.events, fsync=True), facts.number, self.job)
        self.running: dict[int, Attempt] = {}
        self.stopping = False
        self.selector = selectors.DefaultSelector()
        self.chirp = ChirpServer(self.selector, self._agent_line)
        self.ledger = Ledger() if any(site.whole_machine for site in self.sites) else None

    def close(self) -> None:
        for attempt in self.running.values():
            attempt.kill()
        self.chirp.close()
        self.selector.close()
        self.queue.close()
        if self.ledger is not None:
            self.ledger.close()

    def recover(self) -> None:
        """Learn from the log where things stand, and take up what a predecessor left lying."""
        self.queue.replay(read_log(self.folder.events).events)
        self.queue.submit_missing(f"<127.0.0.1:0?alias={socket.gethostname()}>")
        scratch = self.folder.path / "scratch"
        for entry in self.queue.in_status("running"):
            self._recover_attempt(entry, scratch / f"{entry.index}.{entry.starts}")
        for left in scratch.glob("*"):
            kill_strays(left)
            remove_tree(left)

    def run(self) -> None:
        """Work until every job is over, held for good, or the run was asked to stop."""
        while self.running or (not self.stopping and self.queue.has_work()):
            if not self.stopping:
                self.queue.release_due()
                self._start_what_fits()
            for key, _ in self.selector.select(_TICK):
                key.data()
            self._settle()

    def stop(self, reason: str = "headway was stopped") -> None:
        """End all attempts as evictions, with their grace; the run can be resumed."""
        self.stopping = True
        for attempt in self.running.values():
            if attempt.ending is None:
                attempt.end(Ending(Action.EVICT, reason), self.job.grace)

    def answer(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Carry out one request of `control`; one result a job."""

        def act(index: int) -> str:
            entry = self.queue.get(index)
            if entry is None:
                return "there is no such job"
            if "edit" in body:
                return self.queue.edit(entry, *body["edit"])
            return self._act(entry, Action(body["action"]), str(body["reason"]))

        return [{"job": index, "error": act(index)} for index in body["jobs"]]

    def _act(self, entry: Entry, action: Action, reason: str) -> str:
        attempt = self.running.get(entry.index)
        if attempt is None or action is Action.RELEASE:
            return self.queue.act(entry, action, reason)
        attempt.end(Ending(action, reason), self.job.grace)
        return ""

    def _settle(self) -> None:
        for attempt in list(self.running.values()):
            status = attempt.poll()
            if status is not None:
                self._ended(attempt, status)
        for request in control.requests(self.folder):
            request.answer(self.answer(request.body))

    def _agent_line(self, owner: str, line: str) -> None:
        self.queue.said(int(owner.split(".")[0]), line)

    # -- starting

    def _start_what_fits(self) -> None:
        for entry in self.queue.in_status("idle"):
            sites = self.queue.sites_for(entry, self.sites)
            placed = self._place(sites, self.queue.request(entry))
            if placed is not None:
                self._start(entry, *placed)
            elif len(sites) == len(self.sites) and not entry.edits:
                return  # all is full, and the jobs behind ask for the same

    def _place(self, sites: list[Site], request: Request) -> tuple[Site, Claim] | None:
        for site in sites:
            mine = [a.claim for a in self.running.values() if a.site.name == site.name]
            if self.ledger is not None and site.whole_machine:
                claim = self.ledger.claim(site, request, mine)
            else:
                claim = take(site, request, mine)
            if claim is not None:
                return site, claim
        return None

    def _start(self, entry: Entry, site: Site, claim: Claim) -> None:
        taken = {attempt.slot_number for attempt in self.running.values()}
        slot = next(number for number in itertools.count(1) if number not in taken)
        attempt = Attempt(self.folder, entry.index, entry.starts + 1, site, claim, slot)
        try:
            attempt.prepare(self.chirp.admit(attempt.owner))
            attempt.start(self.rows[entry.index], self.job.container)
        except (OSError, PoolError) as error:
            attempt.clean()
            self._give_back()
            self.queue.start_failed(entry, error)
            return
        self.queue.started(entry, attempt)
        self.running[entry.index] = attempt

    # -- ending

    def _ended(self, attempt: Attempt, status: int) -> None:
        entry = self.queue[attempt.job]
        if status == Exit.CHECKPOINT and self.job.checkpoint is not None:
            attempt.save_checkpoint()
            self.queue.checkpointed(entry)
            if attempt.ending is None:
                attempt.restart()
                return
        attempt.bring_home()
        del self.running[attempt.job]
        self.chirp.dismiss(attempt.owner)
        self._give_back()
        if status == Exit.OK:
            self._put_in_place(entry)
        if attempt.ending is None or status == Exit.OK:
            self.queue.exited(entry, status, attempt.used)
        else:
            self._asked_to_end(entry, attempt, attempt.ending)
        attempt.clean()

    def _asked_to_end(self, entry: Entry, attempt: Attempt, ending: Ending) -> None:
        if ending.action is Action.REMOVE:
            self.queue.remove(entry, ending.reason)
            return
        self.queue.evicted(entry, attempt.used, ending.reason, checkpointed=attempt.checkpointed)
        if ending.action is Action.HOLD:
            self.queue.hold(entry, ending.reason)

    def _put_in_place(self, entry: Entry) -> None:
        """Move outputs that have a place of their own on this machine there."""
        base, row = Path(self.folder.facts.base), self.job.row(entry.index)
        for output in self.job.outputs:
            if output.to is None or "://" in output.to:
                continue
            source = self.folder.job_folder(entry.index) / "outputs" / fill(output.path, row)
            target = base / fill(output.to, row)
            if not source.exists():
                continue
            if target.exists() and not output.overwrite:
                self.queue.said(entry.index, f"{target} exists: the output stays in {source}")
                continue
            try:
                move_into_place(source, target)
            except OSError as error:
                self.queue.said(entry.index, f"{target}: {error.strerror}: it stays in {source}")

    def _give_back(self) -> None:
        if self.ledger is not None:
            self.ledger.record([attempt.claim for attempt in self.running.values()])

    def _recover_attempt(self, entry: Entry, scratch: Path) -> None:
        """An attempt whose supervisor died: over if its record says so, else evicted."""
        kill_strays(scratch)
        home = self.folder.job_folder(entry.index)
        used = Used(bytes_home=bring_home(scratch, home))
        for folder in reversed(self.folder.attempts(entry.index)):
            record = _record(folder / "record.json")
            segments = record.get("segments") or [{}]
            began, ended = segments[0].get("begin", 0.0), segments[-1].get("end", 0.0)
            if record.get("exit") == Exit.OK and began >= entry.since - 2:
                used.executed = used.busy = max(0.0, ended - began)
                self.queue.exited(entry, Exit.OK, used)
                return
        self.queue.evicted(entry, used, "the local pool was killed while this job ran")


def _record(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


@contextlib.contextmanager
def _lock(folder: RunFolder) -> Iterator[None]:
    """Wait out the moments in which others look at the lock to see whether anybody lives."""
    for patience in (0.05, 0.1, 0.2, 0.5, 0):
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(folder.locked(LOCK))
            except RunError:
                if not patience:
                    raise
                time.sleep(patience)
                continue
            yield
            return


def supervise(folder: RunFolder, *, ready: Callable[[], None], leash: int | None) -> None:
    """Run a folder's jobs to their end; `leash` is a pipe whose closing means: stop."""
    with _lock(folder), contextlib.closing(Supervisor(folder)) as supervisor:
        wake, waker = socket.socketpair()
        for end in (wake, waker):
            end.setblocking(False)
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)

        def drain() -> None:
            with contextlib.suppress(BlockingIOError):
                wake.recv(4096)

        def let_go() -> None:
            supervisor.selector.unregister(leash)  # type: ignore[arg-type]
            supervisor.stop()

        supervisor.selector.register(wake, selectors.EVENT_READ, drain)
        if leash is not None:
            supervisor.selector.register(leash, selectors.EVENT_READ, let_go)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: supervisor.stop())
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        supervisor.recover()
        ready()
        supervisor.run()


def main() -> int:
    """`python -m headway.pool.local.supervisor RUN`: what the local pool starts for each run."""
    parser = argparse.ArgumentParser(prog="headway.pool.local.supervisor")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ready", type=int)
    parser.add_argument("--leash", type=int)
    arguments = parser.parse_args()

    def ready() -> None:
        if arguments.ready is not None:
            os.write(arguments.ready, b"ready")
            os.close(arguments.ready)

    try:
        supervise(RunFolder(arguments.folder), ready=ready, leash=arguments.leash)
    except HeadwayError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
