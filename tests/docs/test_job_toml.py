"""docs/job-toml.md says what is so: its example loads, and it knows every key and exit code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from headway.node.errors import MEANING
from headway.spec import (
    CheckpointSettings,
    Gpus,
    Input,
    Job,
    Output,
    Resources,
    Retries,
    Sites,
    load_job,
)

PAGE = Path(__file__).parents[2] / "docs" / "job-toml.md"
README = PAGE.parents[1] / "README.md"


def keys(model: type[BaseModel]) -> set[str]:
    return {field.alias or name for name, field in model.model_fields.items()}


def section(title: str) -> str:
    text = PAGE.read_text()
    start = text.index(title)
    return text[start : text.find("\n## ", start + 1)]


def documented(title: str) -> set[str]:
    rows = re.findall(r"^\| `([a-z_.]+)` \|", section(title), re.MULTILINE)
    return {row.rpartition(".")[2] for row in rows}


def test_every_key_of_a_job_is_documented() -> None:
    parts = {"resources", "inputs", "outputs", "checkpoint", "retries", "sites"}
    assert documented("# job.toml") | parts == (keys(Job) - {"rows"}) | {"table"}


@pytest.mark.parametrize(
    ("title", "model"),
    [
        ("## `inputs`", Input),
        ("## `outputs`", Output),
        ("## `[checkpoint]`", CheckpointSettings),
        ("## `[retries]`", Retries),
        ("## `[sites]`", Sites),
    ],
)
def test_every_key_of_a_part_is_documented(title: str, model: type[BaseModel]) -> None:
    assert documented(title) == keys(model)


def test_every_resource_is_documented() -> None:
    assert documented("## `[resources]`") == keys(Resources) | keys(Gpus)


def test_the_example_loads(tmp_path: Path) -> None:
    example = PAGE.read_text().split("<!-- job -->\n```toml\n")[1].split("```")[0]
    (tmp_path / "job.toml").write_text(example)
    (tmp_path / "train.py").write_text("")
    (tmp_path / "models").mkdir()
    (tmp_path / "rows.csv").write_text("lr\n0.1\n0.01\n")
    job = load_job(tmp_path / "job.toml")
    assert job.size == 2 and job.outputs[1].to == "results/{lr}.json"


def test_every_exit_code_is_documented() -> None:
    rows = re.findall(r"^\| ([0-9]+) \| (.*) \|$", section("## Exit codes"), re.MULTILINE)
    assert {int(code): words for code, words in rows} == {int(c): w for c, w in MEANING.items()}


def test_the_first_job_of_the_readme_loads(tmp_path: Path) -> None:
    text = README.read_text().split("cat > job.toml <<'END'\n")[1].split("    END\n")[0]
    (tmp_path / "job.toml").write_text("\n".join(line[4:] for line in text.splitlines()))
    (tmp_path / "train.py").write_text("")
    assert load_job(tmp_path / "job.toml").outputs[0].path == "model.pt"


def test_links_of_the_readme_and_the_pages_lead_somewhere() -> None:
    root = README.parent
    for page in [README, *root.glob("docs/**/*.md"), *root.glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
