"""The way in and out: help, wrong words, exit codes, pipes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from headway import cli
from headway.cli.commands import COMMANDS, SYNONYMS, overview

from .conftest import Done, environment

Call = Callable[..., Done]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: headway {name} ")
    assert "examples:" in text
    assert "--json" in text
    assert max(map(len, text.splitlines())) <= 100


def test_the_overview_names_every_command(headway: Call) -> None:
    for words in ([], ["--help"], ["-h"], ["help"]):
        assert headway(*words).stdout == overview()
    assert all(f"  {name} " in overview() for name in COMMANDS)


def test_help_loads_nothing_heavy() -> None:
    code = "import sys, headway.cli; headway.cli.main(['--help']); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(Path(cli.__file__).parents[2])},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    heavy = {"pydantic", "rich", "htcondor2", "argparse", "json", "asyncio", "subprocess"}
    assert not loaded & heavy


def test_version(headway: Call) -> None:
    assert headway("--version").stdout.startswith("headway 0.")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["stauts"], "did you mean `headway status`?"),
        (["submit"], "did you mean `headway run`?"),
        (["rm"], "did you mean `headway remove`?"),
        (["job.toml"], "did you mean `headway run job.toml`?"),
        (["xyzzy"], "`headway --help` shows all of them"),
        (["--versoin"], "did you mean --version?"),
        (["status", "--jsn"], "did you mean --json?"),
        (["run", "job.toml", "--detatch"], "did you mean --detach?"),
        (["run", "job.toml", "--dry-rum"], "did you mean --dry-run?"),
        (["run", "job.toml", "--poool=local"], "did you mean --pool?"),
        (["run"], "headway init SCRIPT"),
        (["run", "a.toml", "b.toml"], "unexpected argument 'b.toml'"),
        (["run", "--pool"], "expected one argument"),
        (["run", "job.toml", "--resume", "a"], "do not go together"),
        (["logs", "--stderr", "--agent"], "not allowed with"),
        (["hold"], "which run or job?"),
        (["remove", "--all", "a"], "do not go together"),
        (["init"], "missing: SCRIPT"),
        (["run", "--det"], "there is no option --det"),
    ],
)
def test_wrong_words_are_answered(
    words: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert hint in captured.err
    assert "Traceback" not in captured.err


def test_synonyms_lead_to_commands() -> None:
    assert set(SYNONYMS.values()) <= set(COMMANDS)
    assert not set(SYNONYMS) & set(COMMANDS)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["run", "nothing.toml"], 2, "`headway init SCRIPT` writes one"),
        (["heal", "./nothing.log"], 2, "there is no log ./nothing.log"),
        (["status"], 2, "there are no runs"),
        (["logs", "a.0"], 2, "there are no runs"),
        (["wrap", "nothing.sub"], 2, "cannot be read"),
        (["init", "nothing.py"], 2, "there is no such file"),
    ],
)
def test_errors_have_a_code_and_a_remedy(
    headway: Call, words: list[str], code: int, message: str
) -> None:
    done = headway(*words, code=code)
    assert message in done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    as_json = json.loads(headway(*words, "--json", code=code).stdout)
    assert as_json["exit"] == code
    assert message in as_json["error"]["message"]


def test_pool_trouble_has_its_own_code(headway: Call, job_toml: Callable[..., Path]) -> None:
    job_toml((0, 0))
    assert "there is no pool" in headway("run", "job.toml", "--pool", "slurm", code=3).stderr
    assert not Path(".headway").exists()


def test_a_bug_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(name: str) -> None:
        raise ZeroDivisionError("by\x1b[2J zero")

    monkeypatch.setattr(cli, "parser_of", broken)
    assert cli.main(["status"]) == 70
    text = capsys.readouterr().err
    assert text.startswith("error: this is a bug in headway: ZeroDivisionError: by")
    assert text.endswith("; run again with --debug\n")
    assert "\x1b" not in text
    with pytest.raises(ZeroDivisionError):
        cli.main(["--debug", "status"])
    with pytest.raises(ZeroDivisionError):
        cli.main(["status", "--debug"])


def test_a_closed_pipe_is_quiet(command: Sequence[str], tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        done = subprocess.run(
            [*command, "--help"],
            stdout=closed,
            stderr=subprocess.PIPE,
            env=environment(tmp_path),
            text=True,
        )
    assert done.stderr == ""
    assert done.returncode == 141


def test_ctrl_c_anywhere_is_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import signal

    def stopped(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "parser_of", stopped)
    before = signal.getsignal(signal.SIGINT)
    try:
        assert cli.main(["status"]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert "interrupted" in capsys.readouterr().err


def test_global_options_go_before_and_after(headway: Call) -> None:
    for words in (["--no-color", "list"], ["list", "--no-color"], ["--debug", "list"]):
        assert "no runs in" in headway(*words).stdout


@pytest.mark.parametrize("before", [True, False], ids=["before the command", "after it"])
def test_v_logs_on_stderr_and_changes_nothing_else(
    headway: Call, make_run: Callable[..., Any], before: bool
) -> None:
    made = make_run("train", events=lambda log: log.submitted(1, 0, "<127.0.0.1:1>", time=1000.0))
    log = str(made.events)
    words = ["advise", log, "--offline", "--json"]
    quiet = headway(*words)
    assert quiet.stderr == ""
    told = headway("-v", *words) if before else headway(*words, "-v")
    assert told.stdout == quiet.stdout
    line = rf"[0-9-]{{10}} [0-9:,]{{12}} INFO headway\.holds\.history: reading {re.escape(log)}"
    assert re.search(line, told.stderr), told.stderr
    assert "DEBUG" not in told.stderr


def test_vv_logs_more(headway: Call, make_run: Callable[..., Any]) -> None:
    make_run("train")
    shown = headway("status", "train-1", "--json")
    told = headway("-vv", "status", "train-1", "--json")
    assert told.stdout == shown.stdout
    assert " INFO headway.cli.address: train-1 is in " in told.stderr
    assert " DEBUG headway.api: train-1: reading " in told.stderr
