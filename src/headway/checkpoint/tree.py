"""The tree: a state of nested lists, dicts and tuples as JSON, its tensors and arrays set apart.

What JSON cannot say is a dict with the key "$": {"$": "tuple", "of": […]}. No pickle is written but
torch's own of a flat dict of tensors, which is read with weights_only.
"""

from __future__ import annotations

import base64
import collections
import sys

from headway.checkpoint.errors import CheckpointError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_KIND = "$"
_NUMERIC = "biufcSUMm"  # kinds of NumPy arrays that are read back without pickle


class Leaves:
    """The tensors and arrays of one tree, by their numbers in it."""

    def __init__(self) -> None:
        self.tensors: dict[str, Any] = {}
        self.arrays: dict[str, Any] = {}


def pack(state: Any, where: str, leaves: Leaves) -> Any:
    """The state as JSON takes it; what cannot come back as it was is refused, with its place."""
    if state is None or isinstance(state, (bool, int, float, str)):
        return _scalar(state)
    kind = type(state)
    if kind is list:
        return [pack(each, f"{where}[{i}]", leaves) for i, each in enumerate(state)]
    if kind is tuple:
        of = [pack(each, f"{where}[{i}]", leaves) for i, each in enumerate(state)]
        return {_KIND: "tuple", "of": of}
    if kind is dict and _KIND not in state and all(type(key) is str for key in state):
        return {key: pack(each, f"{where}.{key}", leaves) for key, each in state.items()}
    if kind in (dict, collections.OrderedDict, collections.defaultdict):
        of = [
            [pack(key, where, leaves), pack(each, f"{where}.{key}", leaves)]
            for key, each in state.items()
        ]
        name = "ordered" if kind is collections.OrderedDict else "dict"
        packed = {_KIND: name, "of": of}
        if hasattr(state, "_metadata"):  # the versions of a torch model's modules
            packed["metadata"] = pack(state._metadata, f"{where}._metadata", leaves)
        return packed
    if kind in (bytes, bytearray):
        return {_KIND: "bytes", "of": base64.b64encode(state).decode("ascii")}
    return _leaf(state, where, leaves)


def unpack(packed: Any, leaves: Leaves) -> Any:
    """The state that was packed."""
    if isinstance(packed, list):
        return [unpack(each, leaves) for each in packed]
    if not isinstance(packed, dict):
        return packed
    if _KIND not in packed:
        return {key: unpack(each, leaves) for key, each in packed.items()}
    kind, of = packed[_KIND], packed["of"]
    if kind == "tuple":
        return tuple(unpack(each, leaves) for each in of)
    if kind in ("dict", "ordered"):
        pairs = [(unpack(key, leaves), unpack(each, leaves)) for key, each in of]
        made: Any = collections.OrderedDict(pairs) if kind == "ordered" else dict(pairs)
        if "metadata" in packed:
            made._metadata = unpack(packed["metadata"], leaves)
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


def _leaf(state: Any, where: str, leaves: Leaves) -> Any:
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
