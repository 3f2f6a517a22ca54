"""The shell stub finds a Python, or says in words that there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headway.node.classad import read_ads

from .conftest import Node

SHELLS = [
    [path, *more]
    for name, *more in (["dash"], ["busybox", "sh"], ["bash", "--posix"], ["sh"])
    if (path := shutil.which(name))
]


def run(
    node: Node, shell: list[str], *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*shell, str(node.pyz), *arguments],
        cwd=node.folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def isolated(node: Node, tmp_path: Path) -> Node:
    """The stub with candidates of absolute path taken out, so that only PATH counts."""
    text = node.pyz.read_bytes()
    for folder in (b"/usr/bin", b"/usr/local/bin", b"/opt/conda/bin", b"/usr/libexec"):
        text = text.replace(folder, b"/no" + b"e" * (len(folder) - 3))
    node.pyz = tmp_path / "headway-node.pyz"
    node.pyz.write_bytes(text)
    node.pyz.chmod(0o755)
    node.plan(["/bin/echo", "hello"])
    (tmp_path / "bin").mkdir()
    for tool in ("mkdir", "cat"):
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool) or "")
    return node


def fake(node: Node, name: str, text: str) -> None:
    path = node.folder.parent / "bin" / name
    path.write_text(text)
    path.chmod(0o755)


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: Path(shell[0]).name)
def test_each_shell_starts_the_agent(isolated: Node, shell: list[str]) -> None:
    fake(isolated, "python3", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    done = run(isolated, shell, "agent", "plan.json", PATH=f"{isolated.folder.parent}/bin")
    assert (done.returncode, done.stderr) == (0, "")
    assert isolated.stdout() == "hello\n"


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: Path(shell[0]).name)
def test_no_python_at_all(isolated: Node, shell: list[str]) -> None:
    done = run(isolated, shell, "agent", "plan.json", PATH=f"{isolated.folder.parent}/bin")
    assert done.returncode == 80
    assert "no Python 3.9 or later on this node (exit 80); seen: none" in done.stderr
    assert (isolated.folder / "headway-out/no-python.txt").read_text() == done.stderr


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: Path(shell[0]).name)
def test_no_python_for_the_plugin(isolated: Node, shell: list[str]) -> None:
    """The hold reason says what the answer says, so there has to be one."""
    url = "https://h/a?sig=1"
    (isolated.folder / "in").write_text(f'[ LocalFileName = "/x/a"; Url = "{url}" ]\n[ Url = "b" ]')
    words = ("-infile", "in", "-outfile", "out", "-upload")
    path = f"{isolated.folder.parent}/bin"
    for output, told in (("Python 3.6.8", "seen: python3 (Python 3.6.8)"), ('"\\"', "")):
        fake(isolated, "python3", f"#!/bin/sh\n[ $1 = --version ] && echo '{output}' || exit 1\n")
        (isolated.folder / "out").write_bytes(b" " * 1000)
        done = run(isolated, shell, *words, PATH=path)
        assert done.returncode == 11
        (answer,) = read_ads((isolated.folder / "out").read_text())
        assert (answer["transfersuccess"], answer["transferurl"]) == (False, url)
        error = str(answer["transfererror"])
        assert error.startswith("headway: no Python 3.9 or later on this node for the transfer")
        assert told in error and done.stderr == f"{error}\n"
        assert (isolated.folder / "out").stat().st_size == 1000  # over the reserved room
    for name in ("in", "out"):
        (isolated.folder / name).unlink()
    assert run(isolated, shell, *words, PATH=path).returncode == 11
    assert len(read_ads((isolated.folder / "out").read_text())) == 1
    assert not (isolated.folder / "headway-out").exists()


def test_old_and_broken_pythons_are_passed_over_and_named(isolated: Node) -> None:
    path = f"{isolated.folder.parent}/bin"
    old = '#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.6.8" || exit 1\n'
    fake(isolated, "python3", old)
    fake(isolated, "python", "#!/bin/sh\necho broken >&2; exit 139\n")
    done = run(isolated, ["/bin/sh"], "agent", "plan.json", PATH=path)
    assert done.returncode == 80
    assert "python3 (Python 3.6.8)" in done.stderr
    assert "python (does not run)" in done.stderr
    fake(isolated, "python3.9", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    assert run(isolated, ["/bin/sh"], "agent", "plan.json", PATH=path).returncode == 0


def test_headway_python_comes_first(isolated: Node) -> None:
    fake(isolated, "python3", "#!/bin/sh\nexit 1\n")
    fake(isolated, "mine", f'#!/bin/sh\necho >used\nexec {sys.executable} "$@"\n')
    path = f"{isolated.folder.parent}/bin"
    done = run(
        isolated, ["/bin/sh"], "agent", "plan.json", PATH=path, HEADWAY_PYTHON=f"{path}/mine"
    )
    assert done.returncode == 0
    assert (isolated.folder / "used").exists()


def test_a_python_without_its_library_hands_over(isolated: Node, tmp_path: Path) -> None:
    """As in containers with a minimal Python: it runs, but has no http, ssl or json."""
    path = f"{tmp_path}/bin"
    bare = tmp_path / "bare"
    bare.mkdir()
    code = f"import os; os.__file__ = {str(bare / 'os.py')!r}; import sys; "
    fake(
        isolated,
        "mine",
        "#!/bin/sh\n"
        f"echo x >> {tmp_path}/asked\n"
        # -I -S -X utf8 -c CODE …: the same with another standard library
        f'shift 5; code=$1; shift; exec {sys.executable} -I -S -X utf8 -c "{code}$code" "$@"\n',
    )
    fake(isolated, "python3", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    done = run(
        isolated, ["/bin/sh"], "agent", "plan.json", PATH=path, HEADWAY_PYTHON=f"{path}/mine"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "asked").read_text() == "x\n"
    assert isolated.stdout() == "hello\n"


def test_arguments_with_spaces_and_a_strange_place(node: Node, tmp_path: Path) -> None:
    place = tmp_path / "a b'c"
    place.mkdir()
    pyz = place / "condor exec.exe"
    shutil.copy(node.pyz, pyz)
    node.plan(["echo", "hi"])
    (node.folder / "plan.json").rename(node.folder / "my plan.json")
    done = subprocess.run(
        [str(pyz), "agent", "my plan.json"], cwd=node.folder, env=node.environment, check=False
    )
    assert done.returncode == 0


def test_an_unknown_command_and_the_version(node: Node) -> None:
    done = run(node, ["/bin/sh"], "dance", **node.environment)
    assert done.returncode == 87
    assert "usage" in done.stderr
    assert run(node, ["/bin/sh"], "version", **node.environment).stdout.strip()


def test_python_runs_the_file_too(node: Node) -> None:
    done = subprocess.run(
        [sys.executable, str(node.pyz), "version"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"]},
    )
    assert (done.returncode, done.stderr) == (0, "")
