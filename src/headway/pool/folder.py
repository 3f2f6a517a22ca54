"""The run folder: everything that is kept of one run.

What is in a run folder becomes code that runs as the user (the node program) and commands that a
schedd obeys. So before Headway acts on a run, its folder and those above it, `runs` and `.headway`,
must belong to the user and must not be writable by anybody else. Reading somebody else's run is
safe: only plain files are read, and their values are checked.
"""

from __future__ import annotations

import contextlib
import errno
import getpass
import grp
import json
import math
import os
import pwd
import re
import shlex
import shutil
import stat
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from headway.errors import HeadwayError, RunError
from headway.node.files import Lock, lock, write_atomically
from headway.node.plan import AGENT, PAYLOAD, PLAN, SECRETS
from headway.text import closest

if TYPE_CHECKING:
    from headway.spec import Job

T = TypeVar("T")
FORMAT = 1
ROOT_NAME = ".headway"
_MAX_FACTS = 2**20  # bytes of run.json
_MAX_RECORD = 2**22  # of record.json; the agent's own are a few kB
_MAX_JOB = 2**29  # of job.json, which has the rows of the table
_OLD_DRAFT = 86400.0  # seconds
_PACKING = 600.0  # seconds that another headway may take to pack the same job
_MAX_PATH = 4000  # bytes of a path
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_NAME = re.compile(r"(?P<name>.+)-(?P<number>[0-9]+)\Z")
_LIST_RUNS = "`headway list` shows the runs that are here"
_STILL_GOOD = "the event log and jobs/ in that folder are still good to look into"


@contextlib.contextmanager
def failing(what: str, remedy: str, kind: type[HeadwayError] = RunError) -> Iterator[None]:
    """Make an OSError an error for people: what has failed, why, and what to do about it."""
    try:
        yield
    except OSError as error:
        raise kind(f"{what}: {error.strerror or error}", remedy=remedy) from error


def user_name(uid: int) -> str:
    """The name of an account, or its number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def own_name() -> str:
    """The name of the current user, or the number of an account that has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def others_can_write(found: os.stat_result) -> bool:
    """Whether others than the owner can write there.

    The user's private group has no others: many systems give each user one, and the umask 002.
    """
    if found.st_mode & stat.S_IWOTH or not found.st_mode & stat.S_IWGRP:
        return bool(found.st_mode & stat.S_IWOTH)
    try:
        group, name = grp.getgrgid(found.st_gid), pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return True
    return group.gr_name != name or bool(set(group.gr_mem) - {name})


def check_own(folder: Path) -> None:
    """Refuse a folder that is not the user's own, or that others can write to.

    Of a symbolic link, both the link and the folder that it leads to are checked. A folder that
    does not exist yet is fine.

    Args:
        folder: A `.headway` folder, the `runs` in it, or a run folder.

    Raises:
        RunError: It belongs to another user, others can write to it, or it is not a folder.
    """
    try:
        for found in (folder.lstat(), folder.stat()):
            if found.st_uid != os.geteuid():
                raise _foreign(folder, found.st_uid)
    except (FileNotFoundError, NotADirectoryError):
        if folder.is_symlink():
            remedy = f"remove it: `rm {shlex.quote(str(folder))}`"
            raise RunError(f"{folder} is a link that leads nowhere", remedy=remedy) from None
        return
    except OSError as error:
        raise RunError(f"{folder} cannot be looked at: {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode):
        raise RunError(f"{folder} is not a folder", remedy="move it away, and run again")
    if others_can_write(found):
        raise RunError(
            f"others can write to {folder} (mode {stat.S_IMODE(found.st_mode):04o}), and so change"
            " what your jobs run",
            remedy=f"close it: `chmod -R go-w {shlex.quote(str(folder))}`; a file system that keeps"
            " no permissions is no place for runs",
        )


def check_keeps(folder: Path) -> None:
    """Refuse a folder in which anybody could replace the user's own folder by another one.

    A sticky folder, such as /tmp, is fine: there users can only move what is theirs. So is a folder
    that a group shares on purpose.

    Raises:
        RunError: Everybody can write to the folder, and it is not sticky.
    """
    try:
        mode = folder.stat().st_mode
    except OSError:
        return  # whoever uses it will get the error
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        close = f"close it: `chmod o-w {shlex.quote(str(folder))}`"
        raise RunError(
            f"everybody can write to {folder}, and so replace your runs by others",
            remedy=f"{close}; or work in a folder of your own",
        )


def open_own(path: Path, flags: int, mode: int = 0o600) -> int:
    """Open or make a file that must be the user's own, and a plain one.

    Args:
        path: The file; if it is a symbolic link, it is not followed.
        flags: As for `os.open`.
        mode: The permissions of a new file.

    Returns:
        A file descriptor.

    Raises:
        RunError: It is a link, not a plain file, has a second name, is another user's, or others
            can write to it.
        OSError: It cannot be opened for another reason.
    """
    fd = open_plain(path, flags, mode)
    try:
        found = os.fstat(fd)
        if found.st_uid != os.geteuid():
            raise _foreign(path, found.st_uid)
        name = shlex.quote(str(path))
        if found.st_nlink > 1:
            raise RunError(
                f"{path} has a second name elsewhere, and whatever is written to it goes there too",
                remedy=f"make it a file of its own: `cp {name} {name}.new && mv {name}.new {name}`",
            )
        if others_can_write(found):
            raise RunError(
                f"others can write to {path} (mode {stat.S_IMODE(found.st_mode):04o})",
                remedy=f"close it: `chmod go-w {name}`",
            )
    except BaseException:
        os.close(fd)
        raise
    return fd


def read_plain(path: Path, most: int) -> bytes:
    """The bytes of a plain file, whoever owns it.

    Raises:
        RunError: It is a link, or not a plain file.
        OSError: It has more than `most` bytes, or cannot be read.
    """
    with open(open_plain(path), "rb") as file:
        large = os.fstat(file.fileno()).st_size > most
        data = b"" if large else file.read(most + 1)
    if large or len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes", str(path))
    return data


def check_links(folder: Path) -> None:
    """Refuse a folder with symbolic links right in it, which lead elsewhere.

    Raises:
        RunError: It names the link.
    """
    try:
        with os.scandir(folder) as entries:
            link = next((Path(entry.path) for entry in entries if entry.is_symlink()), None)
    except OSError:
        return  # it does not exist yet, or whoever uses it will get the error
    if link is not None:
        raise RunError(f"{link} is a symbolic link, which headway never makes", remedy=_gone(link))


def open_plain(path: Path, flags: int = os.O_RDONLY, mode: int = 0) -> int:
    """Open a plain file, whoever owns it; for anything else, opening might wait for ever.

    Raises:
        RunError: It is a link, or not a plain file.
        OSError: It cannot be opened for another reason.
    """
    try:
        # without O_NONBLOCK, opening a pipe that nobody writes to would wait for ever
        fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    except OSError as error:
        # ENXIO: a pipe that nobody reads, or a socket
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
        what = "a symbolic link" if path.is_symlink() else "not a plain file"
        raise RunError(f"{path} is {what}, which headway never makes", remedy=_gone(path)) from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise RunError(f"{path} is not a plain file", remedy=_gone(path))
    return fd


def _gone(path: Path) -> str:
    return f"if you trust the folder, remove it: `rm {shlex.quote(str(path))}`"


def _foreign(path: Path, uid: int) -> RunError:
    owner, place = user_name(uid), shlex.quote(str(path))
    remedy = f"to act on {owner}'s runs, become {owner}: `sudo -u {owner} headway …`"
    if uid == 0:
        remedy = f"if it ought to be yours: `sudo chown -R {user_name(os.geteuid())} {place}`"
    return RunError(
        f"{path} belongs to {owner}, not to you",
        remedy=f"{remedy}; for runs of your own work in another folder: `cd` there",
    )


def read_record(attempt: Path) -> dict[str, Any]:
    """The record in an attempt's folder, which a command may have written; empty: it has none."""
    try:
        record = json.loads(read_plain(attempt / "record.json", _MAX_RECORD))
    except (RunError, OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


@dataclass(frozen=True)
class RunFacts:
    """What run.json holds."""

    id: str
    name: str
    number: int
    created: float
    pool: Mapping[str, Any]
    base: str  # the folder of job.toml
    digest: str  # of the resolved job, its files and the pool
    cluster: int | None = None  # known once the pool has the jobs
    submitted: float | None = None
    format: int = FORMAT


def _checked(facts: RunFacts) -> RunFacts:
    """The same facts, if each is of its type: anybody may have written the file."""

    def number(value: object) -> bool:
        return type(value) is int and 0 <= value < 2**31

    def timestamp(value: object) -> bool:
        return isinstance(value, (int, float)) and math.isfinite(value)

    texts = (facts.id, facts.name, facts.base, facts.digest)
    pool = facts.pool
    sound = (
        all(isinstance(text, str) for text in texts)
        and _ID.fullmatch(facts.id)
        and number(facts.number)
        and timestamp(facts.created)
        and (facts.cluster is None or number(facts.cluster))
        and (facts.submitted is None or timestamp(facts.submitted))
        and isinstance(pool, dict)
        and pool.get("kind") in ("local", "htcondor")
        and all(isinstance(pool.get(key, ""), (str, type(None))) for key in ("schedd", "collector"))
    )
    if not sound:
        raise TypeError("it is not what headway wrote")
    if not number(facts.format) or facts.format > FORMAT:
        raise TypeError("a newer headway wrote it")
    return facts


class RunFolder:
    """One run on disk; the event log in it is the truth about its jobs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.events = path / "events.log"
        self.job_file = path / "job.json"
        self.plan = path / PLAN
        self.rows = path / "rows.csv"  # for people: job.json has them too
        self.kept = path / "kept.json"  # results of other runs that this one need not produce
        self.payload = path / PAYLOAD
        self.secrets = path / SECRETS  # what `environment` takes from the shell
        self.agent = path / AGENT
        self.programs = path.parent.parent / "node"  # the agents that runs share
        self.submit_file = path / "job.sub"
        self.submit_rows = path / "job.rows"
        self.dag = path / "run.dag"  # of jobs and their couriers
        self.dag_settings = path / "dag.config"
        self.dag_log = path / "run.dag.dagman.log"  # what HTCondor says of DAGMan itself
        self.jobs = path / "jobs"

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"

    @property
    def label(self) -> str:
        """The run's name for people, NAME-N."""
        return self.path.name

    @property
    def facts(self) -> RunFacts:
        file = self.path / "run.json"
        try:
            with open(open_plain(file), "rb") as text:
                return _checked(RunFacts(**json.loads(text.read(_MAX_FACTS))))
        except FileNotFoundError:
            what = f"{self.path} is not a run folder: run.json is missing"
            raise RunError(what, remedy=_LIST_RUNS) from None
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise RunError(f"{file} cannot be read: {error}", remedy=_STILL_GOOD) from error

    def update(self, **changes: Any) -> RunFacts:
        """Write run.json again with some facts changed."""
        facts = replace(self.facts, **changes)
        what = f"run.json of {self.label} cannot be written"
        with failing(what, f"is there space and permission in {self.path}?"):
            self._write(facts)
        return facts

    def _write(self, facts: RunFacts) -> None:
        text = json.dumps(asdict(facts), indent=1, sort_keys=True) + "\n"
        write_atomically(self.path / "run.json", text.encode())

    @cached_property
    def job(self) -> Job:
        """The resolved job."""
        from headway.spec import load_resolved

        return self._read_job(load_resolved)

    def job_document(self) -> Any:
        """The resolved job as plain data, not validated."""
        return self._read_job(json.loads)

    def _read_job(self, load: Callable[[str], T]) -> T:
        try:
            return load(read_plain(self.job_file, _MAX_JOB).decode())
        except PermissionError as error:  # its `environment` may be private
            owner = user_name(self.path.stat().st_uid)
            raise RunError(
                f"only {owner} can read {self.job_file}",
                remedy=f"`headway status {shlex.quote(str(self.events))}` shows its jobs, and"
                f" `headway report` reads it too; what they printed is in {self.jobs}",
            ) from error
        except (OSError, ValueError, RecursionError) as error:
            cause = getattr(error, "strerror", None) or error
            what = f"{self.job_file} cannot be read: {cause}"
            raise RunError(what, remedy=_STILL_GOOD) from error

    def job_folder(self, job: int) -> Path:
        """The folder for what comes home of one job."""
        return self.jobs / str(job)

    def attempts(self, job: int) -> list[Path]:
        """The folders of a job's attempts that have come home, oldest first."""
        folder = self.job_folder(job) / "attempts"
        return sorted(folder.iterdir()) if folder.is_dir() else []

    def check_own(self) -> None:
        """Refuse to act on the run unless it is the user's own, and nobody else can change it.

        Raises:
            RunError: It, or the folder that it lies in, is another user's or open to others; or
                there are links in place of its own files and folders.
        """
        check_own(self.path)
        for folder in (self.path, self.jobs, self.path / "spool"):
            check_links(folder)
        runs = self.path.parent
        if runs.name == "runs" and runs.parent.name == ROOT_NAME:
            Runs(runs.parent).check_own()
        else:
            check_keeps(runs)

    @contextlib.contextmanager
    def locked(self, name: str = "run", *, patience: float = 0.0) -> Iterator[Lock]:
        """Hold one of the run's locks.

        Args:
            name: Which one.
            patience: For how many seconds to wait while another process holds it.

        Raises:
            RunError: Another process has it, or this run cannot be written to.
        """
        deadline = time.monotonic() + patience
        with contextlib.ExitStack() as stack:
            held: Lock | None = None
            with failing(f"{self.label} cannot be locked", f"you need to write to {self.path}"):
                flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
                file = open_own(self.path / f"{name}.lock", flags)
                stack.callback(os.close, file)
                while held is None:
                    try:
                        held = lock(file)
                    except BlockingIOError:
                        if time.monotonic() >= deadline:
                            raise RunError(
                                f"another headway is working on {self.label}",
                                remedy=f"wait for it, or see `headway status {self.label}`",
                            ) from None
                        time.sleep(0.1)
            stack.callback(held.release)
            yield held

    def is_locked(self, name: str = "run") -> bool:
        """Whether some process holds that lock now; asking does not count as holding it."""
        what = f"it is unknown whether anybody is working on {self.label}"
        with failing(what, f"you need to read {self.path}"):
            try:
                with open(open_plain(self.path / f"{name}.lock"), "rb") as file:
                    lock(file.fileno(), shared=True).release()
            except BlockingIOError:
                return True
            except FileNotFoundError:
                pass
        return False


class Runs:
    """All runs below one `.headway` folder; iterates over them, oldest first.

    Args:
        root: The `.headway` folder. It need not exist yet.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / "runs"

    @classmethod
    def here(cls, start: Path | None = None) -> Runs:
        """The nearest `.headway` at or above `start`; else one there, which may not exist yet.

        As in git, the search ends at a folder of another owner and at the edge of a file system.
        Above `start` only the user's own runs are found.

        Args:
            start: Where to begin; by default the current folder.

        Returns:
            The runs there.
        """
        start = (start or Path.cwd()).absolute()
        for folder in (start, *start.parents):
            found = cls(folder / ROOT_NAME)
            if found.folder.is_dir() and (folder == start or found.is_own()):
                return found
            try:
                here, above = folder.stat(), folder.parent.stat()
            except OSError:
                break
            if here.st_uid != os.geteuid() or here.st_dev != above.st_dev:
                break
        return cls(start / ROOT_NAME)

    def is_own(self) -> bool:
        """Whether Headway may act on the runs here: see `check_own`."""
        try:
            self.check_own()
        except RunError:
            return False
        return True

    def check_own(self) -> None:
        """Refuse to act on runs that are not the user's own, or that others can change.

        Raises:
            RunError: It says who owns them or who can write, and what to do about it.
        """
        for folder in (self.root, self.folder):
            check_own(folder)
        check_keeps(self.root.parent)

    def __iter__(self) -> Iterator[RunFolder]:
        """Oldest first; a run whose run.json is damaged is left out, unless `find` names it."""
        found: dict[RunFolder, float] = {}
        for entry in self.folder.iterdir() if self.folder.is_dir() else ():
            if _NAME.match(entry.name) and not entry.name.startswith("."):
                run = RunFolder(entry)
                with contextlib.suppress(RunError):
                    found[run] = float(run.facts.created)
        return iter(sorted(found, key=found.__getitem__))

    def find(self, label: str | None = None) -> RunFolder:
        """One run.

        Args:
            label: Its label (`train-3`), its name (then the newest of it), or the path of its
                folder; None: the newest of all.

        Returns:
            Its folder.

        Raises:
            RunError: There is no such run, or its run.json is damaged.
        """
        if label and ("\0" in label or len(os.fsencode(label)) > _MAX_PATH):
            raise RunError(f"there is no run {label[:20]!r}…", remedy=_LIST_RUNS)
        if label and _NAME.match(label) and (self.folder / label / "run.json").is_file():
            run = RunFolder(self.folder / label)
            if run.facts:  # which raises if it is damaged
                return run
        runs = list(self)
        if not runs:
            raise RunError(
                f"there are no runs in {self.folder}",
                remedy="start one with `headway run job.toml`, or go to the folder where you did",
            )
        if label is None:
            return runs[-1]
        named = [run for run in runs if label in (run.label, run.facts.name)]
        if named:
            return named[-1]
        if Path(label).joinpath("run.json").is_file():
            return RunFolder(Path(label).absolute())
        close = closest(label, [run.label for run in runs])
        hint = f"did you mean {close}? " if close else ""
        raise RunError(f"there is no run {label!r} in {self.folder}", remedy=f"{hint}{_LIST_RUNS}")

    def create(
        self,
        name: str,
        *,
        pool: Mapping[str, Any],
        base: Path,
        digest: str,
        fill: Callable[[RunFolder, RunFacts], None],
    ) -> RunFolder:
        """Make the run folder NAME-N, completely or not at all.

        Args:
            name: The job's name.
            pool: What run.json keeps of the pool.
            base: The folder of job.toml.
            digest: That of the job, its files and the pool.
            fill: Writes into the folder before it gets its name.

        Returns:
            The new run.

        Raises:
            RunError: It cannot be written, or the folder is not the user's own.
        """
        facts = RunFacts(uuid.uuid4().hex, name, 0, time.time(), pool, str(base), digest)
        draft = self.folder / f".new-{facts.id}"
        self.check_own()
        what = f"a run folder cannot be made in {self.folder}"
        with failing(what, "start headway in a folder that you may write to"):
            self._make()
            self._remove_drafts()
            draft.mkdir(0o755)
        what = f"the run folder for {name!r} cannot be written"
        try:
            with failing(what, f"is there space and permission in {self.folder}?"):
                fill(RunFolder(draft), facts)
                number = 0
                while True:
                    free = int(self.next(name).path.name.rpartition("-")[2])
                    number = max(number + 1, free)  # on a network disk, a listing may be old
                    final = self.folder / f"{name}-{number}"
                    RunFolder(draft)._write(replace(facts, number=number))
                    try:
                        draft.rename(final)
                        return RunFolder(final)
                    except OSError:
                        if not final.exists():
                            raise
        finally:
            if draft.exists():
                shutil.rmtree(draft, ignore_errors=True)

    def _make(self) -> None:
        self.root.parent.mkdir(parents=True, exist_ok=True)
        for folder in (self.root, self.folder):
            folder.mkdir(0o755, exist_ok=True)  # not the group's to write, whatever the umask

    @contextlib.contextmanager
    def alone(self, digest: str) -> Iterator[None]:
        """Let no other process look for a run of this job or make one meanwhile.

        So two commands for the same job at the same time get the same run.

        Args:
            digest: That of the job, its files and the pool.

        Raises:
            RunError: Another process has been making a run for ten minutes.
        """
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):  # `create` will raise it again
                self._make()
            if self.root.is_dir():
                # several locks: hardly any job waits until the files of another one are packed
                name, root = f".making-{digest[:1]}", RunFolder(self.root)
                try:
                    stack.enter_context(root.locked(name, patience=_PACKING))
                except RunError:
                    if not root.is_locked(name):
                        raise
                    raise RunError(
                        f"another headway is making a run in {self.folder}, and does not end",
                        remedy="end that one, or wait for it, and run again",
                    ) from None
            yield

    def next(self, name: str) -> RunFolder:
        """The folder that the next run of this `name` would get; nothing is made."""
        stem = re.sub(r"[^\w.-]", "_", name)
        entries = self.folder.iterdir() if self.folder.is_dir() else ()
        found = [match for entry in entries if (match := _NAME.match(entry.name))]
        numbers = [int(match["number"]) for match in found if match["name"] == stem]
        number = 1 + max([self._last_number(stem), *numbers])
        return RunFolder(self.folder / f"{stem}-{number}")

    def same(self, digest: str) -> RunFolder | None:
        """The newest run with this `digest`, that is of the same job, files and pool, if any."""
        return next((run for run in reversed(list(self)) if run.facts.digest == digest), None)

    def remember_number(self, label: str) -> None:
        """Make sure that no other run gets the label of one that is about to be removed."""
        stem, _, number = label.rpartition("-")
        if int(number) > self._last_number(stem):
            write_atomically(self.folder / f".last-{stem}", f"{int(number)}\n".encode())

    def _last_number(self, stem: str) -> int:
        try:
            return int((self.folder / f".last-{stem}").read_text(encoding="ascii")[:20])
        except (OSError, ValueError):
            return 0

    def _remove_drafts(self) -> None:
        """Remove old drafts of processes that were killed."""
        for draft in self.folder.glob(".new-*"):
            with contextlib.suppress(OSError):
                if time.time() - draft.stat().st_mtime > _OLD_DRAFT:
                    shutil.rmtree(draft, ignore_errors=True)
