"""Random number generators: those of the whole process, and single ones."""

from __future__ import annotations

import random
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def state_of_all() -> dict[str, Any]:
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


def restore_all(state: dict[str, Any]) -> None:
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


def is_generator(thing: Any) -> bool:
    """Whether it is one generator: of Python, of NumPy or of torch."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    return (
        isinstance(thing, random.Random)
        or (numpy is not None and isinstance(thing, numpy.random.Generator))
        or (torch is not None and isinstance(thing, torch.Generator))
    )


def state_of(thing: Any) -> Any:
    """The state of one generator."""
    if isinstance(thing, random.Random):
        return thing.getstate()
    return thing.bit_generator.state if hasattr(thing, "bit_generator") else thing.get_state()


def restore(thing: Any, state: Any) -> None:
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
