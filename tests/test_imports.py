"""Imports flow one way; the node half stands alone."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "headway"
# A file may import from its own layer and from those above it here.
LAYERS = (
    ("node",),
    ("checkpoint", "files", "torch", "errors", "text"),
    ("spec", "events"),
    ("holds",),
    ("pool",),
    ("report", "advisor"),
    ("api", "transfers", "heal", "collect", "check"),
    ("cli",),
    ("__main__",),
)
# Shows what is public, and loads it only when it is asked for.
FACADE = "__init__"
FILES = sorted(path for path in SOURCE.rglob("*.py"))


def layer_of(name: str) -> int:
    for number, names in enumerate(LAYERS):
        if name in names:
            return number
    raise AssertionError(f"headway.{name} is in no layer: say in LAYERS where it belongs")


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Every module that a file names in an import, wherever it stands; relative ones resolved."""
    package = ["headway", *path.relative_to(SOURCE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield node.lineno, module
            if module == "headway":
                for alias in node.names:
                    yield node.lineno, f"headway.{alias.name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_file_imports_only_from_its_left(path: Path) -> None:
    own = path.relative_to(SOURCE).with_suffix("").parts[0]
    if own == FACADE:
        return
    for line, module in imports(path):
        if module.startswith("headway."):
            other = module.split(".")[1]
            if (SOURCE / other).exists() or (SOURCE / f"{other}.py").exists():
                assert layer_of(other) <= layer_of(own), f"{path}:{line} imports {module}"
                if layer_of(other) == layer_of(own):
                    assert other == own, f"{path}:{line}: {own} and {other} stand side by side"


@pytest.mark.parametrize(
    "path", sorted((SOURCE / "node").rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE))
)
def test_the_node_half_needs_nothing_but_the_standard_library(path: Path) -> None:
    for line, module in imports(path):
        top = module.split(".")[0]
        alone = module.startswith("headway.node") or top in sys.stdlib_module_names
        assert alone, f"{path}:{line} imports {module}"


# What goes to the worker for the user's own script to import, and the frameworks that it may name.
FOR_SCRIPTS = {"checkpoint": {"torch", "numpy"}, "files": set[str](), "torch": {"torch"}}


@pytest.mark.parametrize("name", FOR_SCRIPTS)
def test_what_scripts_import_needs_the_node_half_and_a_framework_at_most(name: str) -> None:
    paths = [path for path in FILES if path.relative_to(SOURCE).with_suffix("").parts[0] == name]
    assert paths
    for path in paths:
        for line, module in imports(path):
            top = module.split(".")[0]
            own = module.startswith(("headway.node", f"headway.{name}"))
            alone = own or top in sys.stdlib_module_names or top in FOR_SCRIPTS[name]
            assert alone, f"{path}:{line} imports {module}"


def test_the_rule_is_tested_on_all_of_the_house() -> None:
    parts = {path.relative_to(SOURCE).with_suffix("").parts[0] for path in FILES} - {FACADE}
    assert parts == {name for layer in LAYERS for name in layer}
