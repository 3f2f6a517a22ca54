"""Values of `environment` that are taken from the shell: they reach the command and nobody else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headway.errors import SpecError
from headway.pool import Limits, RunFolder, Runs
from headway.pool.htcondor.submit import submit_description
from headway.pool.lint.preflight import preflight
from headway.pool.prepare import job_digest, plan, prepare
from headway.spec import Job, build_job, load_resolved

from .house import SMALL, House

SECRET = "hush-xyz"
JOB = (
    'name = "keyed"\nshell = true\n'
    'command = "sleep 1; test ! -e headway-secrets.json && echo $KEY > out"\noutputs = ["out"]\n'
)


def job_of(tmp_path: Path, **environment: str) -> Job:
    raw = {"name": "keyed", "command": "true", "environment": environment}
    return build_job(raw, folder=tmp_path)


@pytest.mark.parametrize(
    ("text", "from_shell", "written"),
    [
        ("$KEY", {"A": "KEY"}, {}),
        ("$$KEY", {}, {"A": "$KEY"}),
        ("$$$KEY", {}, {"A": "$$$KEY"}),
        ("$HOME/data", {}, {"A": "$HOME/data"}),
        ("plain", {}, {"A": "plain"}),
        ("$", {}, {"A": "$"}),
        ("$1", {}, {"A": "$1"}),
        ("it costs $5", {}, {"A": "it costs $5"}),
        ("", {}, {"A": ""}),
    ],
)
def test_what_is_taken_from_the_shell(
    tmp_path: Path, text: str, from_shell: dict[str, str], written: dict[str, str]
) -> None:
    job = job_of(tmp_path, A=text)
    assert (job.from_shell, job.written_environment) == (from_shell, written)


def test_the_value_is_in_one_file_and_in_no_description(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", SECRET)
    job = job_of(tmp_path, KEY="$API_KEY", PLAIN="x")
    folder = prepare(job, tmp_path, Runs(tmp_path / ".headway"), {"kind": "local"}, "d")
    assert json.loads(folder.secrets.read_text()) == {"KEY": SECRET}
    assert folder.secrets.stat().st_mode & 0o777 == 0o600
    for path in folder.path.rglob("*"):
        if path.is_file() and path != folder.secrets:
            assert SECRET.encode() not in path.read_bytes(), path
    described = submit_description(job, RunFolder(tmp_path / "r-1"), "id", tmp_path)
    assert "encrypt_input_files = headway-secrets.json" in described
    told = (described, repr(job), str(plan(job, "id")), folder.job_file.read_text())
    assert not any(SECRET in text for text in told)
    assert load_resolved(folder.job_file.read_text()).from_shell == {"KEY": "API_KEY"}
    before = job_digest(job, tmp_path, "local")
    monkeypatch.setenv("API_KEY", "another")
    assert job_digest(job, tmp_path, "local") == before


def test_without_secrets_there_is_no_file(tmp_path: Path) -> None:
    job = job_of(tmp_path, PLAIN="x")
    folder = prepare(job, tmp_path, Runs(tmp_path / ".headway"), {"kind": "local"}, "d")
    assert not folder.secrets.exists()
    described = submit_description(job, folder, "id", tmp_path)
    assert "headway-secrets" not in described


def test_a_variable_that_is_not_set_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("API_KEY", raising=False)
    job = job_of(tmp_path, KEY="$API_KEY")
    (found,) = preflight(job, tmp_path, Limits(), pool="local")[:1]
    assert found.where == "environment.KEY" and "API_KEY is not set" in found.what
    assert "export API_KEY" in found.remedy and "$$API_KEY" in found.remedy
    with pytest.raises(SpecError, match="API_KEY is not set"):
        prepare(job, tmp_path, Runs(tmp_path / ".headway"), {"kind": "local"}, "d")


def test_on_the_command_line(house: House) -> None:
    """Refused, shown and run, and the same value after the shell has another one."""
    house.write(f'{JOB}{SMALL}[environment]\nKEY = "$API_KEY"\n')
    refused = house.headway("run", "job.toml", "--dry-run", code=None)
    assert refused.returncode != 0 and "API_KEY is not set" in refused.stdout + refused.stderr
    house.environment["API_KEY"] = SECRET
    shown = house.headway("run", "job.toml", "--dry-run", "--json")
    assert SECRET not in shown.stdout + shown.stderr
    run = house.start((house.folder / "job.toml").read_text())
    del house.environment["API_KEY"]
    house.headway("run", "--resume", run.label)
    assert (run.outputs() / "out").read_text() == f"{SECRET}\n"
