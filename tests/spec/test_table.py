from __future__ import annotations

import time
from pathlib import Path

import pytest

from headway.errors import SpecError
from headway.spec import build_job, dump_job, load_resolved

from .conftest import Load, Wrong


def test_csv(load: Load, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(
        "\ufefflr, näm\r\n".replace("näm", "name").encode()
        + '0.1,"a, ""b"""\r\n\r\n 1e-3 ,ü x\r\n'.encode()
    )
    job = load('table = "rows.csv"\nenvironment = {LR = "{lr}"}')
    assert job.rows == ({"lr": "0.1", "name": 'a, "b"'}, {"lr": "1e-3 ", "name": "ü x"})
    assert job.size == 2
    assert load_resolved(dump_job(job)) == job


def test_tabs(load: Load, tmp_path: Path) -> None:
    (tmp_path / "rows.tsv").write_text("a\tb\n1\t2,3\n")
    assert load('table = "rows.tsv"').rows == ({"a": "1", "b": "2,3"},)


def test_written_out(load: Load) -> None:
    job = load('table = [{lr = 0.1, name = "a", on = true}, {lr = 1, name = "ü", on = false}]')
    assert job.rows == (
        {"lr": "0.1", "name": "a", "on": "true"},
        {"lr": "1", "name": "ü", "on": "false"},
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"a,b\n", "no rows"),
        (b"a,b\n1\n1,2\n1\n1\n1\n", "line 2, 4, 5 and 1 more"),
        (b"a,b\n1,2,3\n", "too many fields (there are 2 columns) in line 2"),
        (b"a,a\n1,2\n", "2 times"),
        (b"job\n1\n", "`job` is the job's number"),
        (b"1a\n1\n", "not a column name"),
        ("ä\n1\n".encode(), "not a column name"),
        (b"a,\n1,2\n", "not a column name"),
        (b"a;b\n1;2\n", "not separated by commas"),
        (b'a\n"x\n', "no partner"),
        (b'a\n"x"y\n', "follows a closing"),
        (b'a\n"x\ny"\n', "line break"),
        (b"a\nx\x00y\n", "line 2 contains a NUL"),
        (b"a\n" + b"x" * 200_000 + b"\n", "line 2"),
        (b"a\nok\n\xff\n", "line 3 is not UTF-8"),
    ],
)
def test_bad_csv(wrong: Wrong, tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "rows.csv").write_bytes(content)
    problems = wrong('table = "rows.csv"\nenvironment = {A = "{a}"}')
    assert words in str(problems[0])
    assert problems[0].where == "rows.csv"


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ('table = "rwos.csv"', "table", "did you mean"),
        ('table = "folder"', "table", "is a folder"),
        ('table = ""', "table", "names no file"),
        ("table = 3", "table", "file or a list of rows"),
        ("table = []", "table", "no rows"),
        ("table = [3]", "table[0]", "table of columns"),
        ("table = [{a = 1}, {b = 1}]", "table[1]", "lacks `a`"),
        ("table = [{a = [1]}]", "table[0].a", "not a list"),
        ('table = [{a = "x\\ny"}]', "table[0].a", "line break"),
        ("table = [{job = 1}]", "table[0]", "job's number"),
        ('table = [{"a b" = 1}]', "table[0]", "not a column name"),
        ("table = [{a = 0x" + "f" * 5000 + "}]", "table[0].a", "too many digits"),
    ],
)
def test_bad_tables(wrong: Wrong, tmp_path: Path, text: str, where: str, words: str) -> None:
    (tmp_path / "rows.csv").write_text("a\n1\n")
    (tmp_path / "folder").mkdir()
    problem = wrong(text)[0]
    assert problem.where == f"job.toml: {where}"
    assert words in str(problem)


def test_unknown_column(wrong: Wrong) -> None:
    (problem,) = wrong('table = [{lr = 1, name = 2}]\noutputs = ["{nmae}.pt"]')
    assert "did you mean `{name}`?" in problem.remedy


@pytest.mark.parametrize(
    ("column", "text", "where", "words"),
    [
        ("../../x", 'outputs = ["out/{c}"]', "outputs[0]", "leaves the job's folder"),
        ("/etc/x", 'outputs = ["{c}"]', "outputs[0]", "not relative"),
        ("", 'outputs = ["{c}"]', "outputs[0]", "empty"),
        ("plan.json", 'outputs = ["{c}"]', "outputs[0]", "used by"),
        ("headway", 'outputs = [".{c}"]', "outputs[0]", "used by"),
        ("a\\\\b", 'outputs = ["{c}"]', "outputs[0]", "backslash"),
        ("..", 'inputs = [{url = "http://a/b", path = "{c}/b"}]', "inputs[0].path", "leaves"),
        ("a b", 'inputs = ["https://a/{c}"]', "inputs[0]", "%20"),
        ("u:p@x", 'inputs = [{url = "https://{c}/b"}]', "inputs[0].url", "password"),
        ("s3://x/y", 'inputs = [{url = "{c}", path = "y"}]', "inputs[0].url", "does not fetch"),
        ("../x", 'outputs = [{path = "a", to = "r/{job}/{c}"}]', "outputs[0].to", "leads out of"),
        ("s3://x", 'outputs = [{path = "a", to = "{c}/{job}"}]', "outputs[0].to", "does not send"),
    ],
)
def test_values_that_lead_astray(
    wrong: Wrong, column: str, text: str, where: str, words: str
) -> None:
    fine = "https://h/fine" if '= "{c}' in text else "fine"
    (problem,) = wrong(f'table = [{{c = "{fine}"}}, {{c = "{column}"}}]\n{text}')
    assert problem.where == f"job.toml: {where}"
    assert words in str(problem)
    assert "in job 1" in problem.what


def test_a_url_column(load: Load) -> None:
    load(
        'table = [{u = "https://a/b"}, {u = "osdf:///c"}]\ninputs = [{url = "{u}", path = "data"}]'
    )


@pytest.mark.parametrize(
    ("rows", "text", "words"),
    [
        ('[{n = "a"}, {n = "b"}]', 'to = "r/x.pt"', "all 2 jobs"),
        ('[{n = "a"}, {n = "b"}]', 'to = "r/{{n}}.pt"', "all 2 jobs"),
        ('[{n = "a"}, {n = "b"}, {n = "a"}]', 'to = "r/{n}.pt"', "job 0 (n = \"a\") and job 2"),
        ('[{n = "a"}, {n = "./a"}]', 'to = "r/{n}"', "both write"),
        ('[{n = "a"}, {n = "b"}]', 'to = "https://h/{n}/x"}, {path = "p", to = "https://h/b/x"',
         "all 2 jobs"),
        ('[{n = "a", m = "b"}, {n = "b", m = "c"}]', 'to = "{n}"}, {path = "p", to = "{m}"',
         "job 1"),
        ('[{n = "a", m = "a"}]', 'to = "{n}"}, {path = "p", to = "{m}"', "another output"),
    ],
)  # fmt: skip
def test_destinations_must_differ(wrong: Wrong, rows: str, text: str, words: str) -> None:
    (problem,) = wrong(f'table = {rows}\noutputs = [{{path = "a", {text}}}]')
    assert words in problem.what
    assert "placeholder" in problem.remedy


def test_a_destination_is_a_url_in_all_rows_or_in_none(wrong: Wrong) -> None:
    table = 'table = [{d = "https://h/x"}, {d = "r/y"}]\n'
    (problem,) = wrong(table + 'outputs = [{path = "a", to = "{d}"}]')
    assert problem.where == "job.toml: outputs[0].to"
    assert "a URL in some rows and a path in others" in problem.what


def test_absolute_and_relative_destinations(wrong: Wrong, tmp_path: Path) -> None:
    (problem,) = wrong(
        f'outputs = [{{path = "a", to = "r/x"}}, {{path = "b", to = "{tmp_path}/r/x"}},'
        f' {{path = "c", to = "file://{tmp_path}/r/y"}}]'
    )
    assert problem.where == "job.toml: outputs[1].to"


def test_paths_that_meet_in_one_row(wrong: Wrong) -> None:
    table = 'table = [{a = "x", b = "y"}, {a = "z", b = "z"}]\n'
    (problem,) = wrong(table + 'outputs = ["{a}", "{b}"]')
    assert 'in job 1 (b = "z")' in problem.what
    (problem,) = wrong(
        table + 'inputs = [{url = "http://a/1", path = "y"}, {url = "http://a/2", path = "{b}"}]'
    )
    assert problem.where == "job.toml: inputs[1].path"


def test_rows_hide_no_file(wrong: Wrong, tmp_path: Path) -> None:
    (tmp_path / "z").write_text("")
    (problem,) = wrong(
        'files = ["z"]\ntable = [{a = "x"}, {a = "z"}]\n'
        'inputs = [{url = "http://a/1", path = "{a}"}]'
    )
    assert 'in job 1 (a = "z")' in problem.what


def test_an_unreadable_table_hides_no_other_problem(wrong: Wrong) -> None:
    problems = wrong(
        'table = "none.csv"\noutputs = ["{a}", "x", {path = "x", to = "y"}]\ngrace = 3'
    )
    assert [problem.where for problem in problems] == [
        "job.toml: table",
        "job.toml: grace",
        "job.toml: outputs[2].path",
    ]


def test_a_hundred_thousand_rows(load: Load, tmp_path: Path) -> None:
    lines = (f"{i * 1e-5},nämé {i},{i % 97}/s-{i}.tar" for i in range(100_000))
    (tmp_path / "rows.csv").write_text("lr,name,shard\n" + "\n".join(lines), encoding="utf-8")
    begin = time.process_time()
    job = load(
        """
table = "rows.csv"
inputs = [{url = "https://data.example.org/{shard}", path = "in/{shard}"}]
outputs = [{path = "model.pt", to = "results/{name}.pt"}]
environment = {LR = "{lr}"}
"""
    )
    assert time.process_time() - begin < 5
    assert job.size == 100_000
    assert job.row(99_999)["name"] == "nämé 99999"


def test_a_million_jobs_of_a_count(load: Load) -> None:
    begin = time.process_time()
    assert load('count = 1000000\noutputs = [{path = "a", to = "r/{job}"}]').size == 1_000_000
    assert time.process_time() - begin < 5


def test_a_table_of_gigabytes_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "rows.csv").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(SpecError, match="larger than 500 MB"):
        build_job({"name": "n", "command": "true", "table": "rows.csv"}, folder=tmp_path)
