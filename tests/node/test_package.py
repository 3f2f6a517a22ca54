"""headway-node.pyz: small, reproducible, and of the node half alone."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import headway.node
from headway.pool.program import build_agent, packed

ROOT = Path(headway.node.__path__[0])
SOURCES = sorted(ROOT.rglob("*.py"))
PACKED = sorted(packed(ROOT.parent))


@pytest.fixture
def pyz(tmp_path: Path) -> Path:
    """As it is sent, without the bytecode that it has in other tests."""
    path = tmp_path / "headway-node.pyz"
    build_agent(path)
    return path


def test_the_same_sources_give_the_same_bytes(tmp_path: Path) -> None:
    build_agent(tmp_path / "a")
    previous = os.umask(0o077)
    build_agent(tmp_path / "b")
    os.umask(previous)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o755
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]


def test_it_is_small_and_holds_sources_only(pyz: Path) -> None:
    assert pyz.stat().st_size < 300_000
    with zipfile.ZipFile(pyz) as archive:
        names = archive.namelist()
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        own = archive.read("headway/__init__.py")
        assert own != (ROOT.parent / "__init__.py").read_bytes() and b"__path__" in own
        assert archive.read("headway/node/agent.py") == (ROOT / "agent.py").read_bytes()
    assert names == sorted(names)
    assert {name.partition(".")[2] for name in names} == {"py"}
    assert len(names) == len(PACKED) + 2
    assert set(SOURCES) < set(PACKED)


def test_an_older_file_is_replaced_while_it_runs(tmp_path: Path) -> None:
    (tmp_path / "agent").write_text("old")
    with (tmp_path / "agent").open() as reader:
        build_agent(tmp_path / "agent")
        assert reader.read() == "old"


def imports(source: Path) -> set[str]:
    names: set[str] = set()
    for item in ast.walk(ast.parse(source.read_text())):
        if isinstance(item, ast.Import):
            names.update(alias.name for alias in item.names)
        elif isinstance(item, ast.ImportFrom):
            assert item.level == 0
            names.add(item.module or "")
    return names


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_node_half_imports_the_standard_library_and_itself(source: Path) -> None:
    for name in imports(source):
        own = name == "headway.node" or name.startswith("headway.node.")
        assert own or name.partition(".")[0] in sys.stdlib_module_names, name


def test_a_plain_attempt_loads_little(pyz: Path, tmp_path: Path) -> None:
    """Start-up time is slot time: no ssl, http, tarfile, typing or subprocess without need."""
    (tmp_path / "plan.json").write_text('{"format": 1, "command": ["true"]}')
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from headway.node.__main__ import main;"
        "code = main(['agent', 'plan.json']); print(*sys.modules); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(pyz)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.split())
    heavy = {"ssl", "http.client", "tarfile", "typing", "subprocess", "dataclasses", "threading"}
    assert not loaded & (heavy | {"urllib.parse", "hashlib", "shutil", "socket", "inspect"})


def test_python_3_9_is_enough() -> None:
    vermin = pytest.importorskip("vermin")
    found = subprocess.run(
        [
            sys.executable,
            "-c",
            "import vermin; vermin.main()",
            "-t=3.9-",
            "--no-tips",
            *map(str, PACKED),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert vermin
    assert found.returncode == 0, found.stdout


def test_sources_compile_with_the_oldest_python_at_hand() -> None:
    for source in PACKED:
        ast.parse(source.read_text(), feature_version=(3, 9))
