"""docs/architecture.md and CONTRIBUTING name modules that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "headway"
PAGES = ("docs/architecture.md", "CONTRIBUTING.md")
PACKAGES = sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))
NAME = re.compile(rf"`(?:headway\.)?((?:{'|'.join(PACKAGES)})(?:[./]\w+)+)(?:\.py)?`")
BARE = re.compile(r"`(\w+\.py)`")


def named(page: str) -> list[str]:
    names = {match[1] for match in NAME.finditer((ROOT / page).read_text())}
    return sorted(names - {"events.log"})  # the log of a run


def exists(name: str) -> bool:
    """Whether a module, a package or a name in one of them is called so."""
    path = SOURCE / name.removesuffix(".py").replace(".", "/")
    if path.is_dir() or path.with_suffix(".py").is_file() or (SOURCE / name).is_file():
        return True
    homes = [path.parent.with_suffix(".py"), path.parent / "__init__.py"]
    defined = re.compile(rf'^(?:def|class) {path.name}\b|"{path.name}"', re.MULTILINE)
    return any(defined.search(home.read_text()) for home in homes if home.is_file())


@pytest.mark.parametrize("page", PAGES)
def test_every_module_that_a_page_names_exists(page: str) -> None:
    names = named(page)
    assert len(names) >= 5
    assert [name for name in names if not exists(name)] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_names_exists(page: str) -> None:
    files = {match[1] for match in BARE.finditer((ROOT / page).read_text())}
    known = {
        path.name
        for folder in ("src", "scripts", "tests")
        for path in (ROOT / folder).rglob("*.py")
    }
    assert files <= known | {"train.py", "selectors.py"}


def test_a_module_that_is_gone_is_noticed() -> None:
    assert exists("holds/table.py")
    assert exists("report.findings")
    assert not exists("holds/advisor.py")
    assert not exists("report.told")
