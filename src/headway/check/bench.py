"""The bench: starts of the job's command on this machine, as the local pool's agent makes them."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headway.check.follower import TRACE, Follower, listeners, programs
from headway.check.results import digests
from headway.check.saves import DELETED, Watch, copy_paths, fold, relevant
from headway.check.start import Seen, Start
from headway.node.checkpoint import FOLDER, find
from headway.node.exits import Exit
from headway.pool.base import Action
from headway.pool.folder import Runs
from headway.pool.local.attempt import IN_CONTAINER, Attempt, Ending
from headway.pool.local.compiled import compile_agent
from headway.pool.local.machine import Claim, Request, find_apptainer, take
from headway.pool.local.pool import LocalPool
from headway.pool.local.scratch import checkpoint_folder, remove_tree, save_checkpoint
from headway.pool.prepare import encoded_row, image_path, prepare
from headway.spec import Job

_LOOK = 0.004  # seconds between looks at a running command
_LISTEN = 0.05  # the same, at its handlers
_SPARE = 20.0  # times as long as such a look takes
_LEEWAY = 10.0  # seconds beyond the grace after which everything of an attempt is killed


class TimeOver(Exception):
    """The time that the check may take is over."""


class Bench:
    """A run folder of the check's own, in which one job is started as often as needed."""

    def __init__(self, job: Job, base: Path, root: Path, index: int, deadline: float) -> None:
        self.job, self.index, self.deadline = job, index, deadline
        self.notes: list[str] = []
        self.starts = 0
        pool = LocalPool.parse("", root)
        self._site = pool.sites[0]
        self.job = job = self._fitted(job)
        self.folder = prepare(job, base, Runs(root / ".headway"), pool.facts(), "check")
        self._claim = take(self._site, Request.of(job), ()) or Claim(
            self._site.name, job.resources.cpus, job.resources.memory, job.resources.disk
        )
        self._agent = compile_agent(self.folder.agent, self.folder.programs)
        self._row = encoded_row(job, index)
        self._image = image_path(job.container, base) if job.container else None
        self._plan: dict[str, Any] = json.loads(self.folder.plan.read_bytes())
        self._plan["disk"] = None  # a slice needs less
        for output in self._plan["outputs"]:
            output["to"] = None  # nothing leaves this machine
        self._root = root
        self.best_save: Start | None = None  # the start whose save tells most
        self._places = 0
        self._copies = 0
        self.paths: Sequence[str] = job.checkpoint.paths if job.checkpoint else ()

    def _fitted(self, job: Job) -> Job:
        """The job as this machine can run it."""
        wanted = job.resources.gpus
        if wanted is not None and len(self._site.gpus) < wanted.count:
            self.notes.append("this machine has not the GPUs that the job asks for: run without")
            resources = job.resources.model_copy(update={"gpus": None})
            job = job.model_copy(update={"resources": resources})
        if job.container and find_apptainer() is None:
            self.notes.append("there is no apptainer here: run without the job's container")
            job = job.model_copy(update={"container": None})
        return job

    @property
    def spool(self) -> Path:
        """Where the pool keeps the last checkpoint that the command has vouched for."""
        return checkpoint_folder(self.folder, self.index)

    def new_place(self) -> int:
        """The number of a folder that nobody has used."""
        self._places += 1
        return self._places

    def scratch(self, place: int) -> Path:
        return self._attempt(place).scratch

    def forget(self) -> None:
        """What follows is another job's life: no checkpoint waits for it."""
        remove_tree(self.spool)

    def start(
        self,
        place: int,
        *,
        interval: float | None = None,
        when: Callable[[Seen], bool] | None = None,
        how: str = "",
        patience: float = 3600.0,
        laid: Callable[[Path], None] | None = None,
    ) -> Start:
        """Start the command in a folder, new or used, and follow it to its end.

        `how` ("term", "kill") is done to it as soon as `when` says so; `laid` puts a checkpoint
        into a new folder.
        """
        attempt = self._attempt(place)
        if not attempt.scratch.exists():
            attempt.prepare("")
            if laid is not None:
                laid(attempt.scratch)
        made = Start(place, before=self._copy(attempt.scratch))
        made.had = any(made.before.iterdir())
        self._write_plan(attempt.scratch, interval)
        watch = Follower(attempt.scratch)
        self.starts += 1
        begin = time.monotonic()
        attempt.start(self._agent, self._row, self._image)
        saves: list[Watch] = []
        try:
            early = self._follow(attempt, made, watch, saves, when, how, patience)
        finally:
            attempt.kill()  # which ends what it left, too
            while attempt.poll() is None:
                time.sleep(_LOOK)
            changes = [change for each in saves for change in each.close()]
        made.wall = time.monotonic() - begin
        killed = made.hung or (made.interrupted and how == "kill")
        made.code = None if killed else attempt.poll()
        watch.finish(made)
        made.after = self._copy(attempt.scratch)
        made.bytes = _size(made.after)
        made.blind = not saves or saves[0].blind
        made.changes = relevant(changes, made.before, made.after)
        if saves and made.interrupted:
            late = relevant(fold(saves[0].events[early:], self.paths), made.before, made.after)
            made.late = any(each.how != DELETED for each in late)
        if made.code == Exit.CHECKPOINT:
            save_checkpoint(self.folder, self.index, attempt.scratch)
        made.outputs = digests(attempt.scratch / "headway-out" / "outputs")
        self._share_inputs(attempt.scratch, watch.begin)
        self._keep_one(made, candidate=laid is None)
        return made

    def _follow(
        self,
        attempt: Attempt,
        made: Start,
        watch: Follower,
        saves: list[Watch],
        when: Callable[[Seen], bool] | None,
        how: str,
        patience: float,
    ) -> int:
        """Look at it until it ends; returns how much was seen of its saves when interrupted."""
        begin, acted, early = time.monotonic(), 0.0, 0
        rows, first, last = 0, 0.0, 0.0
        started = look = 0.0
        heard: set[int] = set()
        while attempt.poll() is None:
            now = time.monotonic()
            if not saves and watch.running():
                saves.append(Watch(attempt.scratch, self.paths))
                started = now
            seen = Seen(watch.rows(), watch.printed(), now - started if started else 0.0)
            if started and made.listened is None and not seen.rows and now > look:
                hear = listeners(attempt.scratch, attempt.pid)
                if hear & heard:  # twice: between fork and exec a program has its parent's
                    made.listened = seen.seconds
                # on a busy machine there are many processes to look at, but the second look is near
                spare = 0.0 if hear - heard else _SPARE * (time.monotonic() - now)
                look, heard = now + max(_LISTEN, spare), hear
            seen.listened = made.listened
            if seen.lines > (made.printed[-1][1] if made.printed else 0):
                made.printed.append((seen.seconds, seen.lines))
            if seen.rows > rows:
                rows, first, last = seen.rows, first or now, now
            if not acted and when is not None and saves and when(seen):
                acted, early, made.interrupted = now, saves[0].mark(), True
                made.programs = programs(attempt.scratch, attempt.pid)
                if how == "kill":
                    attempt.kill()
                else:
                    ending = Ending(Action.EVICT, "headway check")
                    attempt.end(ending, self.job.grace + _LEEWAY)
            if now > begin + patience and not made.hung:
                made.hung = True
                attempt.kill()
            if now > self.deadline:
                raise TimeOver
            time.sleep(_LOOK)
        made.span = last - first
        made.to_end = time.monotonic() - acted if acted else 0.0
        return early

    def _keep_one(self, made: Start, *, candidate: bool) -> None:
        """Keep the copies of the best save alone: checkpoints are large.

        Best is one with a checkpoint to begin with, that was not killed while it wrote.
        """

        def rank(start: Start) -> tuple[bool, bool, bool]:
            return (not start.saved, not start.had, start.code is None)

        best = self.best_save
        if candidate and made.saved and (best is None or rank(made) < rank(best)):
            self.best_save, made = made, best or Start(0)
        for copy in (made.before, made.after):
            if copy != Path():
                remove_tree(copy)

    def drop(self, place: int) -> None:
        """Remove a folder that is not started in again."""
        remove_tree(self.scratch(place))

    def _attempt(self, place: int) -> Attempt:
        return Attempt(self.folder, self.index, place, self._site, self._claim, 1)

    def _write_plan(self, scratch: Path, interval: float | None) -> None:
        plan = dict(self._plan)
        inside = Path(IN_CONTAINER) if self._image else scratch
        plan["environment"] = {
            **plan["environment"],
            "HEADWAY_TRACE": str(inside / TRACE).replace("{", "{{").replace("}", "}}"),
        }
        if plan["checkpoint"] is not None:
            given = {"interval": interval}
            given |= {} if interval is not None else {"signal": None}
            plan["checkpoint"] = {**plan["checkpoint"], **given}
        (scratch / "plan.json").write_text(json.dumps(plan), encoding="utf-8")

    def _copy(self, scratch: Path) -> Path:
        self._copies += 1
        target = self._root / "copies" / str(self._copies)
        target.mkdir(parents=True)
        if not copy_paths(self.paths, scratch, target):
            # in a new folder the agent puts it into place, from where the pool gives it
            given = find(str(scratch / FOLDER))
            if given is not None:
                copy_paths(self.paths, Path(given.place), target)
        return target

    def _share_inputs(self, scratch: Path, begin: float) -> None:
        """Stage in once: the other starts take each input from the first, if it was not changed."""
        if self._image:
            return  # a container does not see it
        for number, given in enumerate(self._plan["inputs"]):
            path, kept = scratch / given["path"], self._root / "inputs" / str(number)
            if "{" in given["path"] or kept.exists() or given.get("mode") == "stream":
                continue
            with contextlib.suppress(OSError):
                if path.is_file() and path.stat().st_mtime <= begin:
                    kept.parent.mkdir(exist_ok=True)
                    os.link(path, kept)
                    given["urls"] = [kept.as_uri()]
                    given["manifest"] = None  # beside the object, where it is not now


def _size(folder: Path) -> int:
    return sum(each.lstat().st_size for each in folder.rglob("*") if not each.is_dir())
