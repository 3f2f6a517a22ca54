"""The files of one checkpoint: written and hashed at once, on disk before they count."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from functools import partial

from headway.checkpoint.errors import CheckpointError
from headway.checkpoint.tree import Leaves, pack, unpack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import IO, Any

INDEX, VALUES = "index.json", "values.json"
_FORMAT = 1
_BLOCK = 1 << 20
_TENSORS, _ARRAYS, _BYTES = ".pt", ".npz", ".bin"


def write(folder: str, states: dict[str, Any]) -> int:
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
        leaves = Leaves()
        values[name] = pack(state, name, leaves)
        if leaves.tensors:
            import torch

            add(f"{name}{_TENSORS}", partial(torch.save, leaves.tensors))
        if leaves.arrays:
            add(f"{name}{_ARRAYS}", partial(_put_arrays, leaves.arrays))
    add(VALUES, partial(_put, json.dumps(values).encode()))
    index = {"format": _FORMAT, "files": dict(digests)}
    add(INDEX, partial(_put, json.dumps(index).encode()))
    sync_folder(folder)
    return size


def read(place: str) -> dict[str, Any]:
    """All states of a checkpoint in which `fault` finds none."""
    try:
        values = _json(os.path.join(place, VALUES))
        files = list(_json(os.path.join(place, INDEX))["files"])
        leaves: dict[str, Leaves] = {name: Leaves() for name in values}
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
        states.update((name, unpack(packed, leaves[name])) for name, packed in values.items())
        return states
    except ImportError as error:
        raise CheckpointError(f"{place} needs {error.name}, which is not installed here") from None
    except Exception as error:  # torch and NumPy raise what they like on bytes that are not theirs
        raise CheckpointError(
            f"{place} is as it was written, and cannot be read: {type(error).__name__}: {error}"
        ) from error


def fault(place: str) -> str:
    """What is wrong with a checkpoint; empty: nothing."""
    try:
        index = _json(os.path.join(place, INDEX))
        if index["format"] != _FORMAT:
            return f"it has format {index['format']}, which this Headway does not know"
        files = dict(index["files"])
        for name, digest in files.items():
            if os.path.basename(name) != name:
                return f"it names a file outside of itself: {name!r}"
            if _digest(os.path.join(place, name)) != digest:
                return f"{name} is not as it was written"
        return "" if VALUES in files else f"it has no {VALUES}"
    except OSError as error:
        return f"{os.path.basename(error.filename or place)}: {error.strerror}"
    except (ValueError, KeyError, TypeError, RecursionError):
        return f"{INDEX} is damaged"


def sync_folder(folder: str) -> None:
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
