"""The pages say what the command line does, and their examples run."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import headway
from headway.cli import parser_of
from headway.cli.commands import COMMANDS

from .conftest import SOURCE, environment

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted((DOCS / "commands").glob("*.md"))
API = (DOCS / "api.md").read_text(encoding="utf-8")

_spec = importlib.util.spec_from_file_location("update_docs", ROOT / "scripts/update_docs.py")
assert _spec is not None and _spec.loader is not None
update_docs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(update_docs)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_usage_is_up_to_date(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert update_docs.updated(text) == text, "run scripts/update_docs.py"


def test_every_command_and_option_is_documented() -> None:
    shown = [name for page in PAGES for name in update_docs.documented(page.read_text("utf-8"))]
    assert sorted(shown) == sorted(COMMANDS)
    everything = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    for name in COMMANDS:
        for action in parser_of(name)._actions:
            assert action.help, f"{name}: {action.dest} has no help"
            for option in action.option_strings:
                assert option in everything


def commands_in(text: str) -> list[str]:
    """Every `headway …` that a page tells to type."""
    typed = re.findall(r"^\$ (headway .*)$", text, re.MULTILINE)
    examples = re.findall(r"^  (headway .*?)  +# ", text, re.MULTILINE)
    return typed + examples


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_parse(page: Path) -> None:
    found = commands_in(page.read_text(encoding="utf-8"))
    assert found
    for line in found:
        name, *words = shlex.split(line)[1:]
        parser_of(name).parse(words)


def test_the_exit_codes_are_those_of_the_code() -> None:
    from headway.cli import commands

    page = (DOCS / "commands/run.md").read_text(encoding="utf-8")
    for code in (
        commands.OK,
        commands.FAILED,
        commands.WRONG,
        commands.POOL,
        commands.BUG,
        commands.INTERRUPTED,
    ):
        assert re.search(rf"^\| {code} \|", page, re.MULTILINE)
    assert f"{commands.PIPE}: " in page


def test_the_api_is_documented() -> None:
    for name in headway.__all__:
        if name not in ("__version__", "HeadwayError", "Runs"):
            assert f"`{name}" in API or f"headway.{name}" in API, name
    for attribute in ("label", "jobs", "settled", "succeeded", "wait", "outputs", "stream"):
        assert hasattr(headway.Run, attribute)


EXAMPLES = dict(re.findall(r"<!-- example: (\w+) -->\n```python\n(.*?)```", API, re.DOTALL))
EXPECTED = {
    "succeeds": r'\{"seed": null\}\n',
    "many": r'0 completed \S+ 1\n\{"seed": "1"\}\n1 completed \S+ 1\n\{"seed": "2"\}\n',
    "acts": r"train-1 False\n1 removed\n\{0: 'succeeded', 1: 'removed.*'\}\n.*/stdout\n",
    "edits": r"0 asks for 100 MiB\n1 asks for 100 MiB\nTrue <Run train-1 on local: 2 succeeded>\n",
    "fetches": r"(?s)(\d+ of \d+ .*\n)+data/train\.py manifest True\n",
    "reports": r"1 of 1 succeeded\n\['job', 'job_id', 'attempt'\]\n",
    "refuses": r"\S.*cuont.*did you mean `count`\?\n",
}


@pytest.mark.parametrize("name", EXPECTED)
def test_the_api_s_examples_run(name: str, tmp_path: Path) -> None:
    assert set(EXAMPLES) == set(EXPECTED)
    pause = {"acts": "2", "edits": "0.5"}.get(name, "0")
    (tmp_path / "train.py").write_text(
        "import json, sys, time\n"
        f"time.sleep({pause})\n"
        "seed = sys.argv[2] if len(sys.argv) > 2 else None\n"
        'json.dump({"seed": seed}, open("metrics.json", "w"))\n'
    )
    (tmp_path / "job.toml").write_text(
        'name = "train"\ncommand = "python3 train.py"\nfiles = ["train.py"]\n'
        '[resources]\nmemory = "50 MB"\ndisk = "10 MB"\n[[outputs]]\npath = "metrics.json"\n'
    )
    done = subprocess.run(
        [sys.executable, "-c", EXAMPLES[name]],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(EXPECTED[name], done.stdout), done.stdout


def test_import_is_cheap_and_whole() -> None:
    code = (
        "import sys, headway; assert 'pydantic' not in sys.modules; import headway.api;"
        "assert all(getattr(headway, name) is not None for name in headway.__all__);"
        "assert set(headway.__all__) <= set(dir(headway));"
        "assert callable(headway.run); print(headway.__version__)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert re.match(r"\d+\.\d+", done.stdout)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        headway.nothing  # noqa: B018


def test_the_picture_is_there() -> None:
    picture = (DOCS / "images/live-view.svg").read_text(encoding="utf-8")
    assert "stage-in" in picture
    assert str(Path.home()) not in picture
    assert "benched" in (DOCS / "images/fetch.svg").read_text(encoding="utf-8")
