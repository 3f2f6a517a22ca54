"""The keeper: when to save, when to leave, and which checkpoint to go on from."""

from __future__ import annotations

import contextlib
import multiprocessing.util
import os
import re
import shutil
import signal
import sys
import threading
import time

from headway.checkpoint import files, generators
from headway.checkpoint.errors import CheckpointError
from headway.checkpoint.tracing import trace
from headway.node.children import heed_parent_alone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType
    from typing import Any, NoReturn

EXIT_CODE = 85
_INTERVAL = "HEADWAY_CHECKPOINT_INTERVAL"
_EXIT = "HEADWAY_CHECKPOINT_EXIT_CODE"
_SIGNAL = "HEADWAY_CHECKPOINT_SIGNAL"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_NUMBER = re.compile(r"[0-9]{8}\Z")
_DRAFT = re.compile(r"\.new-([0-9]+)\Z")
_RANDOM = "_rng"
_FORGOTTEN = 3600.0  # seconds after which nobody is writing a draft any more


class _Asked(BaseException):
    """SIGTERM came while a batch was waited for."""


class Checkpoint:
    """The checkpoints of one training, in one folder, the last `keep` of them.

    `every`: seconds after which `tick` saves and goes on, beside the job's interval, at which it
    saves and leaves.
    """

    def __init__(self, folder: str = "ckpt", *, every: float | None = None, keep: int = 2) -> None:
        if keep < 2:
            raise CheckpointError("keep at least 2 checkpoints: the newest may turn out damaged")
        self.folder, self.every, self.keep = os.path.abspath(folder), every, keep
        self.exit_code = int(_number(_EXIT, EXIT_CODE))
        self._begin = self._saved = time.monotonic()
        self._leave_after = _number(_INTERVAL, None)
        self._asked = False  # no Event: its lock would stop a handler within a handler for ever
        self._awaited: tuple[Any, Any] | None = None  # a loader, and its state before the wait
        self._damaged: set[int] = set()  # that `load` has passed over
        self._pid = os.getpid()
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in _signals():
                self._before[number] = signal.signal(number, self._signalled)
            multiprocessing.util.register_after_fork(self, heed_parent_alone)

    def should_stop(self) -> bool:
        """Whether it is time to save and leave: SIGTERM came, or the job's interval is over."""
        if self._asked:
            return True
        limit = self._leave_after
        return limit is not None and time.monotonic() - self._begin >= limit

    def due(self) -> bool:
        """Whether it is time to save."""
        if self.should_stop():
            return True
        return self.every is not None and time.monotonic() - self._saved >= self.every

    def tick(self, **things: Any) -> None:
        """Save when it is time to; leave when it is time to."""
        if self.should_stop():
            self.leave(**things)
        if self.due():
            self.save(**things)

    def over(self, loader: Any, things: Callable[[], dict[str, Any]]) -> Iterator[Any]:
        """The loader's batches; if SIGTERM comes while there is none, saves `things()` and leaves.

        A loop over the loader itself heeds SIGTERM with the next batch, and that may take long.
        """
        batches = iter(loader)
        while True:
            try:
                self._awaited = loader, _position(loader)
                if self._asked:
                    raise _Asked
                batch = next(batches)
            except StopIteration:
                return
            except _Asked:
                self.leave(**things())
            finally:
                self._awaited = None
            yield batch

    def leave(self, **things: Any) -> NoReturn:
        """Save, and end the process with the exit code that says "start me again"."""
        self.save(**things)
        trace(event="leave", code=self.exit_code)
        for child in multiprocessing.active_children():
            if child.daemon:  # a loader would wait for each of its workers, should they wait, too
                child.terminate()
        sys.stdout.flush()
        sys.stderr.flush()
        raise SystemExit(self.exit_code)

    def save(self, **things: Any) -> str:
        """Save all of it under the next number; returns the folder of this checkpoint."""
        for name in things:
            if not _NAME.match(name) or name in ("index", "values", _RANDOM):
                raise CheckpointError(f"{name!r} is not a name for a part of a checkpoint")
        begin = time.monotonic()
        states = {name: _state(thing) for name, thing in things.items()}
        states[_RANDOM] = generators.state_of_all()
        draft = os.path.join(self.folder, f".new-{os.getpid()}")
        try:
            os.makedirs(self.folder, exist_ok=True)
            shutil.rmtree(draft, ignore_errors=True)
            os.mkdir(draft)
            size = files.write(draft, states)
            target = os.path.join(self.folder, f"{self._next():08d}")
            os.rename(draft, target)
            files.sync_folder(self.folder)
        except (OSError, RuntimeError) as error:  # torch's writer turns an OSError into the other
            words = getattr(error, "strerror", None) or str(error)
            raise CheckpointError(
                f"the checkpoint could not be written to {self.folder}: {words};"
                " the one before it is still there"
            ) from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        self._saved = time.monotonic()
        trace(event="save", seconds=round(self._saved - begin, 4), bytes=size)
        for number in sorted(self._numbers(), key=self._worth)[: -self.keep]:
            shutil.rmtree(os.path.join(self.folder, f"{number:08d}"), ignore_errors=True)
        return target

    def load(self, **things: Any) -> dict[str, Any] | None:
        """Put the newest checkpoint that is whole into `things`; returns its other values.

        Each of `things` has a `load_state_dict`, or is a random number generator. None: there is no
        checkpoint yet.
        """
        self._clear_drafts()
        faults = []
        for number in sorted(self._numbers(), reverse=True):
            place = os.path.join(self.folder, f"{number:08d}")
            fault = files.fault(place)
            if fault:
                faults.append(f"{place}: {fault}")
                self._damaged.add(number)
                continue
            for words in faults:
                print(f"passed over a damaged checkpoint: {words}", file=sys.stderr)
            return _restore(place, things)
        if faults:
            raise CheckpointError(
                f"no checkpoint is whole: {'; '.join(faults)};"
                f" to begin anew, move {self.folder} away"
            )
        return None

    def _numbers(self) -> list[int]:
        try:
            return [int(name) for name in os.listdir(self.folder) if _NUMBER.match(name)]
        except FileNotFoundError:
            return []

    def _worth(self, number: int) -> tuple[bool, int]:
        """The least goes first: what is damaged, then what is old."""
        return number not in self._damaged, number

    def _next(self) -> int:
        return max(self._numbers(), default=0) + 1

    def _clear_drafts(self) -> None:
        """Remove what processes left that were killed while they saved."""
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self.folder):
                match, path = _DRAFT.match(name), os.path.join(self.folder, name)
                if match and (not _alive(int(match[1])) or _age(path) > _FORGOTTEN):
                    shutil.rmtree(path, ignore_errors=True)

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid:
            # a data loader's worker has inherited this handler, and is to end as it always would
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self._asked = True
        before = self._before.get(number)
        if callable(before):
            before(number, frame)
        awaited, self._awaited = self._awaited, None
        # a loader that has moved on has given a batch, and that one is not lost
        if awaited is not None and _position(awaited[0]) == awaited[1]:
            raise _Asked


def _state(thing: Any) -> Any:
    if hasattr(thing, "state_dict"):
        return thing.state_dict()
    return generators.state_of(thing) if generators.is_generator(thing) else thing


def _position(loader: Any) -> Any:
    """Where it is; of one that does not know, the program itself counts what it was given."""
    return loader.state_dict() if hasattr(loader, "state_dict") else None


def _restore(place: str, things: dict[str, Any]) -> dict[str, Any]:
    found = files.read(place)
    missing = sorted(things.keys() - found.keys())
    if missing:
        raise CheckpointError(
            f"{place} has no {', '.join(missing)}: it is of another version of the program;"
            f" to begin anew, move {os.path.dirname(place)} away"
        )
    for name, thing in things.items():
        if hasattr(thing, "load_state_dict"):
            thing.load_state_dict(found.pop(name))
        elif generators.is_generator(thing):
            generators.restore(thing, found.pop(name))
        else:
            raise CheckpointError(
                f"{name} has no load_state_dict: leave it out and take it from what load returns"
            )
    generators.restore_all(found.pop(_RANDOM, {}))  # after all that may draw from them
    return found


def _signals() -> list[int]:
    """SIGTERM, and what the job's agent sends at the interval."""
    asked = getattr(signal, os.environ.get(_SIGNAL, ""), None)
    return sorted({int(signal.SIGTERM), *([int(asked)] if isinstance(asked, int) else [])})


def _number(variable: str, otherwise: Any) -> Any:
    text = os.environ.get(variable, "")
    if not text:
        return otherwise
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 < number < float("inf"):
        raise CheckpointError(f"{variable} is {text!r}, not a number above 0")
    return number


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return pid != os.getpid()


def _age(path: str) -> float:
    try:
        return time.time() - os.stat(path).st_mtime
    except OSError:
        return 0.0
