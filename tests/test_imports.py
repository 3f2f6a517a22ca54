"""What lint-imports cannot say of the imports; the layers are contracts in pyproject.toml."""

from __future__ import annotations

import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

from headway.pool.program import packed

SOURCE = Path(__file__).parents[1] / "src" / "headway"
# What goes to the worker, and the frameworks that it may name.
WORKER = {
    "node": set[str](),
    "checkpoint": {"torch", "numpy"},
    "files": set[str](),
    "torch": {"torch"},
}


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    """Every import, wherever it stands, those for types alone included."""
    return grimp.build_graph("headway", include_external_packages=True, cache_dir=None)


@pytest.mark.parametrize("name", WORKER)
def test_what_runs_on_a_worker_needs_the_node_half_and_a_framework_at_most(
    graph: grimp.ImportGraph, name: str
) -> None:
    own = f"headway.{name}"
    allowed = {"headway", *sys.stdlib_module_names, *WORKER[name]}
    for importer in {own} | graph.find_descendants(own):
        for module in graph.find_modules_directly_imported_by(importer):
            known = module.split(".")[0] in allowed
            house = not module.startswith("headway") or f"{module}.".startswith(
                ("headway.node.", f"{own}.")
            )
            assert known and house, f"{importer} imports {module}"


@pytest.mark.parametrize("name", ["headway.files", "headway.node.inputs"])
def test_a_worker_needs_no_tls_until_it_is_asked_for(name: str) -> None:
    """A site's Python may lack it, and what loads it is slot time."""
    code = (
        f"import sys; sys.modules['ssl'] = None; import {name}; assert 'email' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_no_imports_go_in_a_ring(graph: grimp.ImportGraph) -> None:
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(" is imported by ".join(error.args[1]), pytrace=False)


def test_python_3_10_is_enough() -> None:
    vermin = pytest.importorskip("vermin")
    assert vermin
    newer = ("compression", "compression.zstd", "tomllib")  # imported where Python has them
    # what goes to the worker is held to 3.9; and comments could only tell vermin to look away
    files = sorted(set(SOURCE.rglob("*.py")) - set(packed(SOURCE)))
    options = ["-t=3.10-", "--no-tips", "--no-parse-comments"]
    options += [word for name in newer for word in ("--exclude", name)]
    found = subprocess.run(
        [sys.executable, "-c", "import vermin; vermin.main()", *options, *map(str, files)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout
