"""`headway wrap` on the command line; what it adds is tested with the wrapping itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Done

Call = Callable[..., Done]
SUBMIT = """\
executable = train.sh
request_cpus = 1
request_memory = 2GB
request_disk = 4GB
log = train.log
queue
"""


@pytest.fixture
def submit(tmp_path: Path) -> Path:
    script = tmp_path / "train.sh"
    script.write_text("#!/bin/bash\nset -euo pipefail\ntrue\n")
    script.chmod(0o755)
    path = tmp_path / "train.sub"
    path.write_text(SUBMIT)
    return path


def test_it_writes_beside_the_original(headway: Call, submit: Path) -> None:
    done = headway("wrap", "train.sub")
    wrapped = submit.with_name("train.headway.sub")
    assert "+" in done.stdout and "ulog_execute_attrs" in done.stdout
    assert "condor_submit train.headway.sub" in done.stderr
    assert submit.read_text() == SUBMIT
    assert "exists already" in headway("wrap", "train.sub", code=2).stderr
    headway("wrap", "train.sub", "--overwrite")
    assert headway("wrap", "train.sub", "-o", "-").stdout == wrapped.read_text()


def test_as_json(headway: Call, submit: Path) -> None:
    document = json.loads(headway("wrap", "train.sub", "-o", "new.sub", "--json").stdout)
    assert document["written"] == "new.sub"
    assert document["added"]
    text = json.loads(headway("wrap", "train.sub", "-o", "-", "--json").stdout)["text"]
    assert text == submit.with_name("new.sub").read_text()
    assert "findings" in json.loads(headway("wrap", "train.sub", "--check", "--json").stdout)


def test_check_writes_nothing(headway: Call, submit: Path) -> None:
    before = sorted(submit.parent.iterdir())
    headway("wrap", "train.sub", "--check")
    submit.with_name("train.sh").write_text("#!/bin/bash\r\ntrue\r\n")
    done = headway("wrap", "train.sub", "--check", code=2)
    assert "error" in done.stderr
    assert sorted(submit.parent.iterdir()) == before


def test_it_says_what_check_finds_and_not_what_it_has_mended(headway: Call, submit: Path) -> None:
    submit.write_text(SUBMIT.replace("log = train.log\n", "getenv = true\nmax_retries = 3\n"))
    said = headway("wrap", "train.sub")
    assert "getenv = true" in said.stderr
    assert "name what is needed" in said.stderr
    assert "no event log" not in said.stderr
    assert "straight back to the site" not in said.stderr
    for to in ("other.sub", "-"):
        document = json.loads(headway("wrap", "train.sub", "-o", to, "--json").stdout)
        assert "getenv" in [finding["id"] for finding in document["findings"]]
        assert "no-log" not in [finding["id"] for finding in document["findings"]]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train.py", "import torch\nlr = 0.1\nif lr:\n    print(lr)\n"),
        ("job.toml", 'name = "first"\ncommand = "python3 train.py"\n'),
        ("rates.csv", "lr,seed\n0.1,1\n"),
        ("empty.sub", ""),
    ],
)
def test_a_file_that_is_no_submit_file_is_left_alone(
    headway: Call, tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    for options in ([], ["--check"], ["-o", "-"]):
        done = headway("wrap", name, *options, code=2)
        assert f"{name} is not a submit file" in done.stderr and "headway init" in done.stderr
        assert done.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_paths_are_taken_from_the_folder_that_one_is_in(headway: Call, tmp_path: Path) -> None:
    (tmp_path / "condor").mkdir()
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.sh").write_text("#!/bin/bash\nset -e\n./work\n")
    text = SUBMIT.replace("train.sh", "code/train.sh").replace("queue", "output = a.out\nqueue")
    (tmp_path / "condor/train.sub").write_text(text)
    assert "nothing risky" in headway("wrap", "condor/train.sub", "--check").stdout
    (tmp_path / "code/train.sh").unlink()
    said = headway("wrap", "condor/train.sub", "--check", code=2).stderr
    assert f"there is no {tmp_path}/code/train.sh" in said


def test_the_agent_is_named_as_condor_submit_finds_it(headway: Call, tmp_path: Path) -> None:
    (tmp_path / "condor").mkdir()
    (tmp_path / "train.sh").write_text("#!/bin/bash\nset -e\n./work\n")
    inputs = "transfer_input_files = https://x.org/y.tar\ntransfer_output_files = out\nqueue"
    (tmp_path / "condor/train.sub").write_text(SUBMIT.replace("queue", inputs))
    headway("wrap", "condor/train.sub")
    agent = tmp_path / "condor/train.headway-node.pyz"
    written = (tmp_path / "condor/train.headway.sub").read_text()
    assert agent.exists() and f"executable = {agent}\n" in written
    assert f"executable = {agent}\n" in headway("wrap", "condor/train.sub", "-o", "-").stdout


def test_a_dag_is_called_one(headway: Call, tmp_path: Path) -> None:
    dag = (
        '# two steps\nJOB A prepare.sub\nJOB B train.sub DIR sub\nPARENT A CHILD B\nVARS A x="1"\n'
    )
    (tmp_path / "all.dag").write_text(dag)
    said = headway("wrap", "all.dag", "--check", code=2).stderr
    assert "is a DAG" in said and "prepare.sub" in said


def test_a_submit_file_may_leave_its_queue_to_the_command_line(
    headway: Call, tmp_path: Path
) -> None:
    (tmp_path / "part.sub").write_text("Request_Memory = 2GB\nlog = a.log\n")
    assert "no `queue` statement" in headway("wrap", "part.sub").stderr
