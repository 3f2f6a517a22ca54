"""Advice about jobs of a real queue, and that its commands do what they say."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from .harness import Pool
from .jobs import PlainJob
from .together import beside_others

pytestmark = pytest.mark.pool


def advised(pool: Pool, *words: str) -> Any:
    done = pool.headway(["advise", *words, "--json"], cwd=pool.user_dir())
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@beside_others(10)
def test_a_queue_s_held_jobs_get_a_command_each_that_works(condor_pool: Pool) -> None:
    pool = condor_pool
    missing = PlainJob(pool)
    inputs = str(missing.folder / "data.txt")
    missing.submit("cat data.txt", transfer_input_files=inputs)
    long = PlainJob(pool).submit("sleep 60", allowed_execute_duration="3")
    mine = PlainJob(pool).submit("sleep 60", hold="true")
    for job in (missing, long):
        job.log_with("012")
    found = advised(pool, "--held", "--pool", "htcondor")
    told = {each["job"]: each for each in found["advice"]}
    first, second = told[f"{missing.cluster}.0"], told[f"{long.cluster}.0"]
    assert first["act"] == "change" and first["cause"] == "input-file-missing"
    assert "still not there" in " ".join(first["reasons"])
    assert first["log"] == str(missing.folder / "job.log") and first["hold"]["number"] == 1
    assert second["act"] == "change" and second["cause"] == "over-time"
    assert told[f"{mine.cluster}.0"]["act"] == "leave"
    # Somebody mends it: what is looked at now decides, and the command does what it says.
    (missing.folder / "data.txt").write_text("there")
    pool.give(missing.folder)
    (again,) = advised(pool, f"{missing.cluster}.0")["advice"]
    assert again["act"] == "release" and again["probability"] >= 0.9
    done = pool.run_as_user(shlex.split(again["command"]))
    assert done.returncode == 0, done.stderr
    assert "return value 0" in missing.log_with("005")
    for job in (long, mine):
        job.remove()
