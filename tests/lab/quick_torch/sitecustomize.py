"""On PYTHONPATH it more than halves the time that a program with a torch optimizer takes to start.

An optimizer imports torch's compiler, 800 modules, only to ask it to stay away. And torch itself
imports how each of its operations works on tensors without data, for that compiler. Here neither
is loaded until something is asked of it.
"""

from __future__ import annotations

import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

COMPILER, WITHOUT_DATA = "torch._dynamo", "torch._meta_registrations"


class Absent(ModuleType):
    """A compiler that does nothing, which is what it would do."""

    @staticmethod
    def disable(function: Any = None, *_: object, **__: object) -> Any:
        return function if function is not None else lambda inner: inner

    @staticmethod
    def graph_break(*_: object, **__: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)
            for module in (WITHOUT_DATA, COMPILER):
                sys.modules.pop(module, None)
                importlib.import_module(module)
        return getattr(importlib.import_module(COMPILER), name)


class WithoutTheRest(MetaPathFinder, Loader):
    """Finds an empty module in place of the operations on tensors without data."""

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name == WITHOUT_DATA else None

    def exec_module(self, module: ModuleType) -> None:
        """The one thing besides that their import does: random generators need it."""
        torch = sys.modules["torch"]
        if hasattr(torch._C, "_set_generator_metaclass"):
            base = importlib.import_module("torch._opaque_base")
            torch._C._set_generator_metaclass(base.OpaqueBaseMeta)


finder = WithoutTheRest()
sys.meta_path.insert(0, finder)
sys.modules[COMPILER] = Absent(COMPILER)
