from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.node.plan import fill, placeholders
from headway.spec.errors import Wrong
from headway.spec.places import check_template, filler

from .conftest import Load
from .conftest import Wrong as Problems

_TEXT = st.text(
    st.sampled_from("ab{}$%s \\/é") | st.characters(codec="utf-8", exclude_characters="\0")
)
_TEMPLATES = st.lists(
    st.sampled_from(["{a}", "{b}", "{job}", "{{", "}}", "${a}", "%s", "%"]) | _TEXT
).map("".join)


@given(_TEMPLATES, st.lists(st.tuples(_TEXT, _TEXT), min_size=1, max_size=5))
def test_columns_fill_as_the_node_fills(text: str, rows: list[tuple[str, str]]) -> None:
    table = [{"a": a, "b": b, "job": str(job)} for job, (a, b) in enumerate(rows)]
    if not set(placeholders(text)) <= {"a", "b", "job"}:
        return
    names, filled = filler(text)
    columns = {name: [row[name] for row in table] for name in ("a", "b", "job")}
    expected = [fill(text, row) for row in table]
    assert filled(columns) == (expected if names else expected[:1])


@given(_TEMPLATES)
def test_what_is_accepted_loses_no_brace_unawares(text: str) -> None:
    try:
        check_template(text, {"a", "b", "job"})
    except Wrong:
        return
    bare = fill(text, dict.fromkeys(placeholders(text), ""))
    lost = len(placeholders(text))
    assert text.count("{") - bare.count("{") == text.count("}") - bare.count("}")
    assert text.count("{") - bare.count("{") >= lost


@pytest.mark.parametrize(
    "text",
    ["{job}", "a{job}b{job}", "${HOME}", '{"a": 1}', "{{literal}}", "{}", "{ job }", "plain"],
)
def test_good_templates(load: Load, text: str) -> None:
    job = load(f"environment = {{X = '''{text}'''}}")
    assert job.environment["X"] == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{jbo}", "did you mean `{job}`?"),
        ("{print}", "only `{job}`"),
        ('{"a": {"b": 1}}', "`}}` stands for a single `}`"),
        ("${A:-${B}}", "`}}`"),
        ("{{", "`{{` stands for a single `{`"),
    ],
)
def test_bad_templates(wrong: Problems, text: str, words: str) -> None:
    (problem,) = wrong(f"environment = {{X = '''{text}'''}}")
    assert problem.where == "job.toml: environment.X"
    assert words in str(problem)
    assert "`{{`" in problem.remedy


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('files = ["{job}.py"]', "files[0]"),
        ('checkpoint = {paths = ["ok", "{job}"]}', "checkpoint.paths[1]"),
        ('container = "docker://x/{job}"', "container"),
    ],
)
def test_placeholders_where_none_are_filled(wrong: Problems, text: str, where: str) -> None:
    (problem,) = wrong(text)
    assert problem.where == f"job.toml: {where}"
    assert "not filled in here" in problem.what
    assert "placeholders work in command" in problem.remedy
