"""Checkpoints that survive anything: saved completely or not at all, and verified when loaded.

    from headway.checkpoint import Checkpoint

    checkpoint = Checkpoint("ckpt")
    kept = checkpoint.load(model=model, optimizer=optimizer)  # None at the very beginning
    step = kept["step"] if kept else 0
    while step < steps:
        ...
        step += 1
        checkpoint.tick(model=model, optimizer=optimizer, step=step)

`tick` saves when it is time. After SIGTERM, and at the interval of job.toml's [checkpoint], it also
ends the process with its exit code, 85. Only the standard library is needed. Objects with a
`state_dict` (models, optimizers, schedulers, data sets) are saved by it: tensors with torch, arrays
with NumPy. The states of random number generators are always saved.

FOLDER/00000012/ is one checkpoint: values.json, a file for the tensors or arrays of each object,
and index.json with the sha256 of each file. `load` takes the newest one that is complete, and until
then the one before it is kept.
"""

from __future__ import annotations

import base64
import collections
import contextlib
import hashlib
import json
import multiprocessing.util
import os
import random
import re
import shutil
import signal
import sys
import threading
import time
import zipfile
from functools import partial
from operator import methodcaller

from headway.node.files import sync_folder
from headway.node.process import ignore_foreign_sigterm

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType
    from typing import IO, Any, NoReturn

__all__ = ["Checkpoint", "CheckpointError", "trace"]


class CheckpointError(Exception):
    """A checkpoint cannot be written, or none of the existing ones can be read."""


_EXIT_CODE = 85
_INTERVAL = "HEADWAY_CHECKPOINT_INTERVAL"
_EXIT = "HEADWAY_CHECKPOINT_EXIT_CODE"
_SIGNAL = "HEADWAY_CHECKPOINT_SIGNAL"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_NUMBER = re.compile(r"[0-9]{8}\Z")
_DRAFT = re.compile(r"\.new-([0-9]+)\Z")
_RANDOM = "_rng"
_FORGOTTEN = 3600.0  # seconds after which nobody is writing to a draft


class _StopAsked(BaseException):
    """SIGTERM came while the program waited for a batch."""


class Checkpoint:
    """The checkpoints of one training, in one folder.

    Example:
        >>> checkpoint = Checkpoint("ckpt")
        >>> checkpoint.load() is None  # nothing was saved yet
        True
        >>> place = checkpoint.save(step=12, best=0.25)
        >>> Checkpoint("ckpt").load()
        {'step': 12, 'best': 0.25}
    """

    def __init__(self, folder: str = "ckpt", *, every: float | None = None, keep: int = 2) -> None:
        """Handle SIGTERM, and keep checkpoints in a folder.

        Args:
            folder: The folder; it is created when the first checkpoint is saved.
            every: Seconds after which `tick` saves and goes on. At the job's interval it saves and
                leaves.
            keep: How many of the newest checkpoints to keep, at least 2.

        Raises:
            CheckpointError: `keep` is less than 2, or a variable of the job is not a number.
        """
        if keep < 2:
            raise CheckpointError("keep at least 2 checkpoints: the newest may turn out damaged")
        self.folder, self.every, self.keep = os.path.abspath(folder), every, keep
        self.exit_code = int(_number(_EXIT, _EXIT_CODE))
        self._begin = self._saved = time.monotonic()
        self._leave_after = _number(_INTERVAL, None)
        self._asked = (
            False  # not an Event: a handler within a handler would wait for its lock for ever
        )
        self._awaited: tuple[Any, Any] | None = None  # a loader, and its state before the wait
        self._damaged: set[int] = set()  # that `load` has skipped
        self._pid = os.getpid()
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for number in _signals():
                self._before[number] = signal.signal(number, self._signalled)
            multiprocessing.util.register_after_fork(self, ignore_foreign_sigterm)

    def should_stop(self) -> bool:
        """Whether it is time to save and leave: after SIGTERM, or at the job's interval."""
        limit = self._leave_after
        return self._asked or (limit is not None and time.monotonic() - self._begin >= limit)

    def due(self) -> bool:
        """Whether it is time to save: to leave, or after `every` seconds."""
        every = self.every
        return self.should_stop() or (every is not None and time.monotonic() - self._saved >= every)

    def tick(self, **things: Any) -> None:
        """Save if it is time to save, and leave if it is time to leave.

        Args:
            things: What to save, as for `save`.

        Raises:
            CheckpointError: The checkpoint could not be saved.
            SystemExit: It was saved, and the job should be started again.
        """
        if self.should_stop():
            self.leave(**things)
        if self.due():
            self.save(**things)

    def over(self, loader: Any, things: Callable[[], dict[str, Any]]) -> Iterator[Any]:
        """Iterate over a loader; saves and leaves if SIGTERM comes during the wait for a batch.

        A loop over the loader itself notices SIGTERM with the next batch, which may take long.

        Args:
            loader: The source of the batches.
            things: Returns what to save, as for `save`.

        Yields:
            The batches.
        """
        batches = iter(loader)
        while True:
            try:
                self._awaited = loader, _position(loader)
                if self._asked:
                    raise _StopAsked
                batch = next(batches)
            except StopIteration:
                return
            except _StopAsked:
                self.leave(**things())
            finally:
                self._awaited = None
            yield batch

    def leave(self, **things: Any) -> NoReturn:
        """Save, and end the process with the exit code that means "start me again".

        Args:
            things: What to save, as for `save`.

        Raises:
            CheckpointError: The checkpoint could not be saved.
            SystemExit: It was saved.
        """
        self.save(**things)
        trace(event="leave", code=self.exit_code)
        for child in multiprocessing.active_children():
            if child.daemon:  # a loader would wait for each of its workers, which may wait, too
                child.terminate()
        sys.stdout.flush()
        sys.stderr.flush()
        raise SystemExit(self.exit_code)

    def save(self, **things: Any) -> str:
        """Save a checkpoint under the next number, completely or not at all.

        Args:
            things: By name, objects with a `state_dict`, random number generators, and values
                (numbers, texts, lists, dicts, tuples, bytes, tensors, arrays).

        Returns:
            The folder of this checkpoint.

        Raises:
            CheckpointError: One of them cannot be saved, or the folder cannot be written; the
                previous checkpoint is still there.
        """
        for name in things:
            if not _NAME.match(name) or name in ("index", "values", _RANDOM):
                raise CheckpointError(f"{name!r} is not a name for a part of a checkpoint")
        begin = time.monotonic()
        states = {name: _state(thing) for name, thing in things.items()}
        states[_RANDOM] = _random_states()
        draft = os.path.join(self.folder, f".new-{os.getpid()}")
        try:
            os.makedirs(self.folder, exist_ok=True)
            shutil.rmtree(draft, ignore_errors=True)
            os.mkdir(draft)
            size = _write(draft, states)
            target = os.path.join(self.folder, f"{max(self._numbers(), default=0) + 1:08d}")
            os.rename(draft, target)
            sync_folder(self.folder, strict=True)
        except (OSError, RuntimeError) as error:  # torch's writer turns the former into the latter
            words = getattr(error, "strerror", None) or str(error)
            raise CheckpointError(
                f"the checkpoint could not be written to {self.folder}: {words};"
                " the one before it is still there"
            ) from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        self._saved = time.monotonic()
        trace(event="save", seconds=round(self._saved - begin, 4), bytes=size)
        # damaged ones are removed first, then old ones
        worth = sorted(self._numbers(), key=lambda number: (number not in self._damaged, number))
        for number in worth[: -self.keep]:
            shutil.rmtree(os.path.join(self.folder, f"{number:08d}"), ignore_errors=True)
        return target

    def load(self, **things: Any) -> dict[str, Any] | None:
        """Restore `things` from the newest checkpoint that is complete.

        Args:
            things: By the names under which they were saved; each has a `load_state_dict`, or is a
                random number generator.

        Returns:
            The other values that were saved; None if there is no checkpoint yet.

        Raises:
            CheckpointError: No checkpoint is complete, or it does not have all of `things`.
        """
        self._clear_drafts()
        faults = []
        for number in sorted(self._numbers(), reverse=True):
            place = os.path.join(self.folder, f"{number:08d}")
            wrong = _fault(place)
            if wrong:
                faults.append(f"{place}: {wrong}")
                self._damaged.add(number)
                continue
            for words in faults:
                print(f"skipped a damaged checkpoint: {words}", file=sys.stderr)
            return _restore(place, things)
        if faults:
            raise CheckpointError(
                f"no checkpoint is complete: {'; '.join(faults)};"
                f" to start over, move {self.folder} away"
            )
        return None

    def _numbers(self) -> list[int]:
        try:
            return [int(name) for name in os.listdir(self.folder) if _NUMBER.match(name)]
        except FileNotFoundError:
            return []

    def _clear_drafts(self) -> None:
        """Remove the drafts of processes that were killed while they saved."""
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self.folder):
                match, path = _DRAFT.match(name), os.path.join(self.folder, name)
                if match and (not _alive(int(match[1])) or _age(path) > _FORGOTTEN):
                    shutil.rmtree(path, ignore_errors=True)

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid:
            # a data loader's worker has inherited this handler, and should end as usual
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self._asked = True
        before = self._before.get(number)
        if callable(before):
            before(number, frame)
        awaited, self._awaited = self._awaited, None
        # if the loader has moved on, it has returned a batch, which must not be lost
        if awaited is not None and _position(awaited[0]) == awaited[1]:
            raise _StopAsked


def _state(thing: Any) -> Any:
    if hasattr(thing, "state_dict"):
        return thing.state_dict()
    generator = _generator(thing)
    return thing if generator is None else generator[0]()


def _position(loader: Any) -> Any:
    """The loader's position; None if it has none, and the program counts the batches itself."""
    return loader.state_dict() if hasattr(loader, "state_dict") else None


def _restore(place: str, things: dict[str, Any]) -> dict[str, Any]:
    found = _read(place)
    missing = sorted(things.keys() - found.keys())
    if missing:
        raise CheckpointError(
            f"{place} has no {', '.join(missing)}: it is from another version of the program;"
            f" to start over, move {os.path.dirname(place)} away"
        )
    for name, thing in things.items():
        generator = _generator(thing)
        if hasattr(thing, "load_state_dict"):
            thing.load_state_dict(found.pop(name))
        elif generator is not None:
            generator[1](found.pop(name))
        else:
            raise CheckpointError(
                f"{name} has no load_state_dict: leave it out, and use what load returns"
            )
    _restore_random(found.pop(_RANDOM, {}))  # last, because others may use the generators
    return found


def _signals() -> list[int]:
    """SIGTERM, and the signal that the job's agent sends at the interval."""
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


_TRACE = "HEADWAY_TRACE"


def trace(**values: Any) -> None:
    """Append one line to the file that HEADWAY_TRACE names; does nothing if there is none.

    `headway check` compares `step`, `loss` and `samples` (which samples, in their order) of an
    interrupted training with those of an uninterrupted one.

    Args:
        values: The values to write, which may be tensors and arrays.
    """
    path = os.environ.get(_TRACE)
    if not path:
        return
    line = json.dumps({name: _plain(value) for name, value in values.items()}) + "\n"
    with contextlib.suppress(OSError):  # a training must not fail because of its trace
        # one write at the end of the file: a kill leaves complete lines
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, range)):
        return [_plain(each) for each in value]
    return str(value)


def _random_states() -> dict[str, Any]:
    """The states of the global generators of Python, and of NumPy and torch if loaded."""
    state: dict[str, Any] = {"python": random.getstate()}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        name, keys, position, has_gauss, cached = numpy.random.get_state()
        state["numpy"] = (name, keys.tolist(), int(position), int(has_gauss), float(cached))
    torch = sys.modules.get("torch")
    if torch is not None:
        state["torch"] = torch.get_rng_state().tolist()
        if torch.cuda.is_initialized():
            state["cuda"] = [each.tolist() for each in torch.cuda.get_rng_state_all()]
    return state


def _restore_random(state: dict[str, Any]) -> None:
    """Restore the states, as far as the same libraries and devices are here."""
    if "python" in state:
        random.setstate(state["python"])
    if "numpy" in state and _importable("numpy"):
        import numpy

        name, keys, *rest = state["numpy"]
        numpy.random.set_state((name, numpy.array(keys, dtype="uint32"), *rest))
    if "torch" in state and _importable("torch"):
        import torch

        torch.set_rng_state(torch.tensor(state["torch"], dtype=torch.uint8))
        kept = state.get("cuda", [])
        here = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if kept and here == len(kept):
            torch.cuda.set_rng_state_all([torch.tensor(each, dtype=torch.uint8) for each in kept])
        elif kept:
            sys.stderr.write(
                f"the checkpoint has random states of {len(kept)} GPUs, and {here} are here:"
                " random numbers on the GPU start over\n"
            )


def _generator(thing: Any) -> tuple[Callable[[], Any], Callable[[Any], None]] | None:
    """How to read and how to restore the state of a random number generator; None: it is none."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if isinstance(thing, random.Random):
        return thing.getstate, thing.setstate
    if numpy is not None and isinstance(thing, numpy.random.Generator):
        bits = thing.bit_generator
        return lambda: bits.state, partial(setattr, bits, "state")
    if torch is not None and isinstance(thing, torch.Generator):
        return thing.get_state, thing.set_state
    return None


def _importable(name: str) -> bool:
    from importlib.util import find_spec

    return find_spec(name) is not None


#: What JSON cannot express is a dict with this key: {"$": "tuple", "of": […]}. The only pickle is
#: torch's own, of a flat dict of tensors, which is read with weights_only.
_KIND = "$"
_NUMERIC = "biufcSUMm"  # kinds of NumPy arrays that are read back without pickle


def _no_leaves() -> dict[str, dict[str, Any]]:
    """The tensors and arrays of a state, by kind and by their number in it."""
    return {"tensor": {}, "array": {}}


def _pack(state: Any, where: str, leaves: dict[str, dict[str, Any]]) -> Any:
    """The state as JSON; refuses what could not be restored exactly, and says where it is."""
    if state is None or isinstance(state, (bool, int, float, str)):
        return _scalar(state)
    kind = type(state)
    if kind is list:
        return [_pack(each, f"{where}[{i}]", leaves) for i, each in enumerate(state)]
    if kind is tuple:
        of = [_pack(each, f"{where}[{i}]", leaves) for i, each in enumerate(state)]
        return {_KIND: "tuple", "of": of}
    if kind is dict and _KIND not in state and all(type(key) is str for key in state):
        return {key: _pack(each, f"{where}.{key}", leaves) for key, each in state.items()}
    if kind in (dict, collections.OrderedDict, collections.defaultdict):
        of = [
            [_pack(key, where, leaves), _pack(each, f"{where}.{key}", leaves)]
            for key, each in state.items()
        ]
        name = "ordered" if kind is collections.OrderedDict else "dict"
        packed = {_KIND: name, "of": of}
        if hasattr(state, "_metadata"):  # the versions of a torch model's modules
            packed["metadata"] = _pack(state._metadata, f"{where}._metadata", leaves)
        return packed
    if kind in (bytes, bytearray):
        return {_KIND: "bytes", "of": base64.b64encode(state).decode("ascii")}
    return _leaf(state, where, leaves)


def _unpack(packed: Any, leaves: dict[str, dict[str, Any]]) -> Any:
    """The state that `_pack` was given."""
    if isinstance(packed, list):
        return [_unpack(each, leaves) for each in packed]
    if not isinstance(packed, dict):
        return packed
    if _KIND not in packed:
        return {key: _unpack(each, leaves) for key, each in packed.items()}
    kind, of = packed[_KIND], packed["of"]
    if kind == "tuple":
        return tuple(_unpack(each, leaves) for each in of)
    if kind in ("dict", "ordered"):
        pairs = [(_unpack(key, leaves), _unpack(each, leaves)) for key, each in of]
        made: Any = collections.OrderedDict(pairs) if kind == "ordered" else dict(pairs)
        if "metadata" in packed:
            made._metadata = _unpack(packed["metadata"], leaves)
        return made
    if kind == "bytes":
        return base64.b64decode(of)
    return leaves[kind][of]


def _scalar(state: Any) -> Any:
    """A plain number or text: subclasses (NumPy's floats, enums) are restored as their value."""
    for plain in (bool, int, float, str):
        if isinstance(state, plain):
            return plain(state)
    return None


def _leaf(state: Any, where: str, leaves: dict[str, dict[str, Any]]) -> Any:
    torch = sys.modules.get("torch")
    kind, leaf = "tensor", None
    if torch is not None and isinstance(state, torch.Tensor):
        leaf = state.detach() if type(state) in (torch.Tensor, torch.nn.Parameter) else None
    elif hasattr(state, "__array__") and hasattr(state, "dtype"):  # also JAX and TensorFlow
        import numpy

        array = numpy.asarray(state)
        kind, leaf = "array", array if array.dtype.kind in _NUMERIC else None
    if leaf is not None:
        number = str(len(leaves[kind]))
        leaves[kind][number] = leaf
        return {_KIND: kind, "of": number}
    raise CheckpointError(
        f"{where} is a {type(state).__name__}, which cannot be saved: give numbers, texts, lists,"
        " dicts, tuples, bytes, tensors, arrays, or what has a state_dict"
    )


_INDEX, _VALUES = "index.json", "values.json"
_FORMAT = 1
_BLOCK = 1 << 20
_TENSORS, _ARRAYS, _BYTES = ".pt", ".npz", ".bin"


def _write(folder: str, states: dict[str, Any]) -> int:
    """Write all states into an empty folder; returns the number of bytes."""
    values: dict[str, Any] = {}
    digests: dict[str, str] = {}
    size = 0

    def add(name: str, put: Callable[[Any], object]) -> None:
        nonlocal size
        with open(os.path.join(folder, name), "xb") as file:
            hashed = _Hashed(file)
            put(hashed)
            file.flush()
            os.fsync(file.fileno())
            size += os.fstat(file.fileno()).st_size
        digests[name] = hashed.digest()

    for name, state in states.items():
        if isinstance(state, (bytes, bytearray, memoryview)):
            add(f"{name}{_BYTES}", methodcaller("write", state))
            continue
        leaves = _no_leaves()
        values[name] = _pack(state, name, leaves)
        if leaves["tensor"]:
            import torch

            add(f"{name}{_TENSORS}", partial(torch.save, leaves["tensor"]))
        if leaves["array"]:
            add(f"{name}{_ARRAYS}", partial(_put_arrays, leaves["array"]))
    add(_VALUES, methodcaller("write", json.dumps(values).encode()))
    index = {"format": _FORMAT, "files": dict(digests)}
    add(_INDEX, methodcaller("write", json.dumps(index).encode()))
    sync_folder(folder, strict=True)
    return size


def _read(place: str) -> dict[str, Any]:
    """All states of a checkpoint in which `_fault` finds nothing wrong."""
    try:
        values = _json(os.path.join(place, _VALUES))
        files = list(_json(os.path.join(place, _INDEX))["files"])
        leaves: dict[str, dict[str, dict[str, Any]]] = {name: _no_leaves() for name in values}
        states: dict[str, Any] = {}
        for file in files:
            name, suffix = os.path.splitext(file)
            path = os.path.join(place, file)
            if suffix == _BYTES:
                with open(path, "rb") as stream:
                    states[name] = stream.read()
            elif suffix == _TENSORS:
                import torch

                leaves[name]["tensor"] = torch.load(path, map_location="cpu", weights_only=True)
            elif suffix == _ARRAYS:
                import numpy

                with numpy.load(path, allow_pickle=False) as arrays:
                    leaves[name]["array"] = dict(arrays)
        states.update((name, _unpack(packed, leaves[name])) for name, packed in values.items())
        return states
    except ImportError as error:
        raise CheckpointError(f"{place} needs {error.name}, which is not installed here") from None
    except Exception as error:  # torch and NumPy raise all kinds of errors
        raise CheckpointError(
            f"{place} is not damaged, but cannot be read: {type(error).__name__}: {error}"
        ) from error


def _fault(place: str) -> str:
    """What is wrong with a checkpoint; empty if nothing is."""
    try:
        index = _json(os.path.join(place, _INDEX))
        if index["format"] != _FORMAT:
            return f"it has format {index['format']}, which this Headway does not know"
        files = dict(index["files"])
        for name, digest in files.items():
            if os.path.basename(name) != name:
                return f"it names a file outside of itself: {name!r}"
            if _digest(os.path.join(place, name)) != digest:
                return f"{name} is not as it was written"
        return "" if _VALUES in files else f"it has no {_VALUES}"
    except OSError as error:
        return f"{os.path.basename(error.filename or place)}: {error.strerror}"
    except (ValueError, KeyError, TypeError, RecursionError):
        return f"{_INDEX} is damaged"


class _Hashed:
    """A file that is hashed while it is written."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._hash = file, hashlib.sha256()

    def write(self, piece: Any) -> int:
        self._hash.update(piece)
        return self._file.write(piece)

    def flush(self) -> None:
        self._file.flush()

    def digest(self) -> str:
        return self._hash.hexdigest()


def _put_arrays(arrays: dict[str, Any], file: Any) -> None:
    """Like numpy.savez, which would need a file that can also be read."""
    import numpy

    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                numpy.lib.format.write_array(entry, array, allow_pickle=False)


def _json(path: str) -> Any:
    with open(path, "rb") as file:
        return json.loads(file.read())


def _digest(path: str) -> str:
    sha = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            sha.update(block)
    return sha.hexdigest()
