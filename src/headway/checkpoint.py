"""Checkpoints that survive anything: saved whole or not at all, proven when loaded.

    from headway.checkpoint import Checkpoint

    checkpoint = Checkpoint("ckpt")
    kept = checkpoint.load(model=model, optimizer=optimizer)  # None at the very beginning
    step = kept["step"] if kept else 0
    while step < steps:
        ...
        step += 1
        checkpoint.tick(model=model, optimizer=optimizer, step=step)

`tick` saves when it is time and, after SIGTERM or at the interval of job.toml's [checkpoint], also
ends the process with its exit code, 85. Needs nothing but the standard library; what has a
`state_dict` (models, optimizers, schedulers, data sets) is saved by it, with torch where there are
tensors, with NumPy where there are arrays. The states of random number generators are kept without
being asked for.

FOLDER/00000012/ is one checkpoint: values.json, a file for the tensors or arrays of each thing, and
index.json with the sha256 of each. The newest is loaded that is whole; the one before it is kept
until then.
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

from headway.node.process import heed_parent_alone

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType
    from typing import IO, Any, NoReturn

__all__ = ["Checkpoint", "CheckpointError", "trace"]


class CheckpointError(Exception):
    """A checkpoint that cannot be written, or none of those that are there can be read."""


_EXIT_CODE = 85
_INTERVAL = "HEADWAY_CHECKPOINT_INTERVAL"
_EXIT = "HEADWAY_CHECKPOINT_EXIT_CODE"
_SIGNAL = "HEADWAY_CHECKPOINT_SIGNAL"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_NUMBER = re.compile(r"[0-9]{8}\Z")
_DRAFT = re.compile(r"\.new-([0-9]+)\Z")
_RANDOM = "_rng"
_FORGOTTEN = 3600.0  # seconds after which nobody is writing a draft any more


class _StopAsked(BaseException):
    """SIGTERM came while a batch was waited for."""


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
        """Heed SIGTERM, and keep checkpoints in a folder.

        Args:
            folder: Where they are; it is made when the first is saved.
            every: Seconds after which `tick` saves and goes on, beside the job's interval, at which
                it saves and leaves.
            keep: How many of the newest are kept, at least 2.

        Raises:
            CheckpointError: `keep` is less than 2, or a variable of the job is not a number.
        """
        if keep < 2:
            raise CheckpointError("keep at least 2 checkpoints: the newest may turn out damaged")
        self.folder, self.every, self.keep = os.path.abspath(folder), every, keep
        self.exit_code = int(_number(_EXIT, _EXIT_CODE))
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
        """Whether it is time to save: to leave, or `every` seconds are over."""
        if self.should_stop():
            return True
        return self.every is not None and time.monotonic() - self._saved >= self.every

    def tick(self, **things: Any) -> None:
        """Save when it is time to; leave when it is time to.

        Args:
            things: What to save, as for `save`.

        Raises:
            CheckpointError: It could not be saved.
            SystemExit: It was saved, and the job is to be started again.
        """
        if self.should_stop():
            self.leave(**things)
        if self.due():
            self.save(**things)

    def over(self, loader: Any, things: Callable[[], dict[str, Any]]) -> Iterator[Any]:
        """The loader's batches; if SIGTERM comes while there is none, saves and leaves.

        A loop over the loader itself heeds SIGTERM with the next batch, and that may take long.

        Args:
            loader: What gives the batches.
            things: Gives what to save, as for `save`.

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
        """Save, and end the process with the exit code that says "start me again".

        Args:
            things: What to save, as for `save`.

        Raises:
            CheckpointError: It could not be saved.
            SystemExit: It was.
        """
        self.save(**things)
        trace(event="leave", code=self.exit_code)
        for child in multiprocessing.active_children():
            if child.daemon:  # a loader would wait for each of its workers, should they wait, too
                child.terminate()
        sys.stdout.flush()
        sys.stderr.flush()
        raise SystemExit(self.exit_code)

    def save(self, **things: Any) -> str:
        """Save all of it under the next number, whole or not at all.

        Args:
            things: By name: what has a `state_dict`, random number generators, and values (numbers,
                texts, lists, dicts, tuples, bytes, tensors, arrays).

        Returns:
            The folder of this checkpoint.

        Raises:
            CheckpointError: One of them cannot be saved, or the folder cannot be written to; the
                checkpoint before is still there.
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
            target = os.path.join(self.folder, f"{self._next():08d}")
            os.rename(draft, target)
            _sync_folder(self.folder)
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
        """Put the newest checkpoint that is whole into `things`.

        Args:
            things: By the names that they were saved under; each has a `load_state_dict`, or is a
                random number generator.

        Returns:
            The other values that were saved; None: there is no checkpoint yet.

        Raises:
            CheckpointError: No checkpoint is whole, or it does not have all of `things`.
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
            raise _StopAsked


def _state(thing: Any) -> Any:
    if hasattr(thing, "state_dict"):
        return thing.state_dict()
    return _generator_state(thing) if _is_generator(thing) else thing


def _position(loader: Any) -> Any:
    """Where it is; of one that does not know, the program itself counts what it was given."""
    return loader.state_dict() if hasattr(loader, "state_dict") else None


def _restore(place: str, things: dict[str, Any]) -> dict[str, Any]:
    found = _read(place)
    missing = sorted(things.keys() - found.keys())
    if missing:
        raise CheckpointError(
            f"{place} has no {', '.join(missing)}: it is of another version of the program;"
            f" to begin anew, move {os.path.dirname(place)} away"
        )
    for name, thing in things.items():
        if hasattr(thing, "load_state_dict"):
            thing.load_state_dict(found.pop(name))
        elif _is_generator(thing):
            _restore_generator(thing, found.pop(name))
        else:
            raise CheckpointError(
                f"{name} has no load_state_dict: leave it out and take it from what load returns"
            )
    _restore_random(found.pop(_RANDOM, {}))  # after all that may draw from them
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


_TRACE = "HEADWAY_TRACE"


def trace(**values: Any) -> None:
    """Append one line to the file that HEADWAY_TRACE names; without it, nothing happens.

    `headway check` compares `step`, `loss` and `samples` (which samples, in their order) of an
    interrupted training with those of an uninterrupted one.

    Args:
        values: What to tell; tensors and arrays will do.
    """
    path = os.environ.get(_TRACE)
    if not path:
        return
    line = json.dumps({name: _plain(value) for name, value in values.items()}) + "\n"
    with contextlib.suppress(OSError):  # no training ends because nobody could watch it
        # one write at the end of the file: a kill leaves whole lines
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
    """The states of the generators that every program has, and of NumPy's and torch's if loaded."""
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
    """Put the states back, as far as the same libraries and devices are here."""
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
                " random numbers on the GPU begin anew\n"
            )


def _is_generator(thing: Any) -> bool:
    """Whether it is one generator: of Python, of NumPy or of torch."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    return (
        isinstance(thing, random.Random)
        or (numpy is not None and isinstance(thing, numpy.random.Generator))
        or (torch is not None and isinstance(thing, torch.Generator))
    )


def _generator_state(thing: Any) -> Any:
    """The state of one generator."""
    if isinstance(thing, random.Random):
        return thing.getstate()
    return thing.bit_generator.state if hasattr(thing, "bit_generator") else thing.get_state()


def _restore_generator(thing: Any, state: Any) -> None:
    """Put one generator's state back."""
    if isinstance(thing, random.Random):
        thing.setstate(state)
    elif hasattr(thing, "bit_generator"):
        thing.bit_generator.state = state
    else:
        thing.set_state(state)


def _importable(name: str) -> bool:
    from importlib.util import find_spec

    return find_spec(name) is not None


#: What JSON cannot say is a dict with this key: {"$": "tuple", "of": […]}. No pickle is written but
#: torch's own of a flat dict of tensors, which is read with weights_only.
_KIND = "$"
_NUMERIC = "biufcSUMm"  # kinds of NumPy arrays that are read back without pickle


class _Leaves:
    """The tensors and arrays of one tree, by their numbers in it."""

    def __init__(self) -> None:
        self.tensors: dict[str, Any] = {}
        self.arrays: dict[str, Any] = {}


def _pack(state: Any, where: str, leaves: _Leaves) -> Any:
    """The state as JSON takes it; what cannot come back as it was is refused, with its place."""
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


def _unpack(packed: Any, leaves: _Leaves) -> Any:
    """The state that was packed."""
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
    return {"tensor": leaves.tensors, "array": leaves.arrays}[kind][of]


def _scalar(state: Any) -> Any:
    """A plain number or text: subclasses (NumPy's floats, enums) come back as what they hold."""
    for plain in (bool, int, float, str):
        if isinstance(state, plain):
            return plain(state)
    return None


def _leaf(state: Any, where: str, leaves: _Leaves) -> Any:
    torch = sys.modules.get("torch")
    if torch is not None and type(state) in (torch.Tensor, torch.nn.Parameter):
        number = str(len(leaves.tensors))
        leaves.tensors[number] = state.detach()
        return {_KIND: "tensor", "of": number}
    array = None if torch is not None and isinstance(state, torch.Tensor) else _array(state)
    if array is not None and array.dtype.kind in _NUMERIC:
        number = str(len(leaves.arrays))
        leaves.arrays[number] = array
        return {_KIND: "array", "of": number}
    raise CheckpointError(
        f"{where} is a {type(state).__name__}, which cannot be saved: give numbers, texts, lists,"
        " dicts, tuples, bytes, tensors, arrays, or what has a state_dict"
    )


def _array(state: Any) -> Any:
    """NumPy's, and what turns into one (JAX, TensorFlow)."""
    if not (hasattr(state, "__array__") and hasattr(state, "dtype")):
        return None
    import numpy

    return numpy.asarray(state)


_INDEX, _VALUES = "index.json", "values.json"
_FORMAT = 1
_BLOCK = 1 << 20
_TENSORS, _ARRAYS, _BYTES = ".pt", ".npz", ".bin"


def _write(folder: str, states: dict[str, Any]) -> int:
    """Write all states into an empty folder; returns the bytes."""
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
            add(f"{name}{_BYTES}", partial(_put, state))
            continue
        leaves = _Leaves()
        values[name] = _pack(state, name, leaves)
        if leaves.tensors:
            import torch

            add(f"{name}{_TENSORS}", partial(torch.save, leaves.tensors))
        if leaves.arrays:
            add(f"{name}{_ARRAYS}", partial(_put_arrays, leaves.arrays))
    add(_VALUES, partial(_put, json.dumps(values).encode()))
    index = {"format": _FORMAT, "files": dict(digests)}
    add(_INDEX, partial(_put, json.dumps(index).encode()))
    _sync_folder(folder)
    return size


def _read(place: str) -> dict[str, Any]:
    """All states of a checkpoint in which `_fault` finds none."""
    try:
        values = _json(os.path.join(place, _VALUES))
        files = list(_json(os.path.join(place, _INDEX))["files"])
        leaves: dict[str, _Leaves] = {name: _Leaves() for name in values}
        states: dict[str, Any] = {}
        for file in files:
            name, suffix = os.path.splitext(file)
            path = os.path.join(place, file)
            if suffix == _BYTES:
                with open(path, "rb") as stream:
                    states[name] = stream.read()
            elif suffix == _TENSORS:
                import torch

                leaves[name].tensors = torch.load(path, map_location="cpu", weights_only=True)
            elif suffix == _ARRAYS:
                import numpy

                with numpy.load(path, allow_pickle=False) as arrays:
                    leaves[name].arrays = dict(arrays)
        states.update((name, _unpack(packed, leaves[name])) for name, packed in values.items())
        return states
    except ImportError as error:
        raise CheckpointError(f"{place} needs {error.name}, which is not installed here") from None
    except Exception as error:  # torch and NumPy raise what they like on bytes that are not theirs
        raise CheckpointError(
            f"{place} is as it was written, and cannot be read: {type(error).__name__}: {error}"
        ) from error


def _fault(place: str) -> str:
    """What is wrong with a checkpoint; empty: nothing."""
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


def _sync_folder(folder: str) -> None:
    """Names in a folder are on disk for sure only after this."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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


def _put(content: Any, file: _Hashed) -> None:
    file.write(content)


def _put_arrays(arrays: dict[str, Any], file: Any) -> None:
    """As numpy.savez, which wants a file that can be read too."""
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
