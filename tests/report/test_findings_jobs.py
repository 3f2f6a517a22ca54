"""Findings about jobs: restarts without a checkpoint, retry loops, exit codes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from tests.report.made import Row, accounts_of

from headway.report.findings.clusters import wilson, young
from headway.report.findings.compute import restart
from headway.report.findings.holds import retry_loop
from headway.report.findings.jobs import exit_code

HOUR = 3600.0


def success(compute_s: float = 14000.0, **row: Any) -> Row:
    return {"parts": {"transfer-in": 600.0, "compute": compute_s}} | row


def evicted(compute_s: float, **row: Any) -> Row:
    return success(compute_s) | {"ending": "eviction", "code": 1022} | row


def test_restarts_without_a_checkpoint() -> None:
    jobs: list[Row] = [{"gpus": 1, "tries": [evicted(5 * HOUR), success()]} for _ in range(6)]
    [found] = restart(accounts_of(jobs))
    assert found.title == (
        "30.0 GPU hours of compute were lost in 6 evictions because there was no checkpoint"
    )
    assert found.cost_s == 6 * 5 * HOUR  # the transfers are not in it
    told_saving = dict(found.evidence)
    # 6 evictions in 55.3 slot hours, 60 s a checkpoint: the square root of 2 * 9.2 h * 60 s.
    assert told_saving["interval that loses least (Young's rule)"] == "33 min"
    saved = told_saving["a checkpoint every 30 minutes would have saved"]
    assert saved.startswith("28.5 GPU hours, for ")
    assert 'interval = "30 min"' in found.advice[1].lines


def test_checkpoints_that_exist_give_their_own_cost() -> None:
    tries = [evicted(2 * HOUR, checkpoints=2, checkpoint_s=600.0, ending="redone"), success()]
    [found] = restart(accounts_of([{"tries": tries} for _ in range(6)]))
    assert found.title.endswith("since the last checkpoint")
    assert dict(found.evidence)["one checkpoint takes"] == "5 min"


def test_few_evictions_or_little_lost_are_no_finding() -> None:
    assert restart(accounts_of([{"tries": [evicted(9 * HOUR), success()]}] * 2)) == []
    assert restart(accounts_of([{"tries": [evicted(60), success()]}] * 20)) == []
    assert restart(accounts_of([{"tries": [success()]}] * 50)) == []


def test_a_checkpoint_is_no_remedy_for_evictions_after_a_minute() -> None:
    """1,000 evictions of a minute each: no checkpoint is written that soon."""
    [found] = restart(
        accounts_of([{"tries": [*[evicted(60)] * 100, success()]} for _ in range(10)])
    )
    assert "1,000 evictions because there was no checkpoint, most of them too soon" in found.title


def test_evictions_at_the_same_age_are_a_limit_of_the_pool() -> None:
    """As a pool of physicists does: every slot is taken back after 72 hours."""
    jobs: list[Row] = [{"tries": [evicted(72 * HOUR + 3 * n), success()]} for n in range(9)]
    [found] = restart(accounts_of([*jobs, {"tries": [evicted(5 * HOUR), success()]}]))
    assert ("evicted at the same age", "9 of them, at 72 hours") in found.evidence
    assert "takes the slot back after 72 hours" in found.why
    spread: list[Row] = [{"tries": [evicted((1 + 7 * n) * HOUR), success()]} for n in range(9)]
    [found] = restart(accounts_of(spread))
    assert "normal life" in found.why


def test_young_by_hand() -> None:
    assert young(3600, 2) == 120
    assert young(-1, 2) == 0


def failing(value: int = 1, **row: Any) -> Row:
    tried = {"ending": "failed", "return_value": value, "parts": {"compute": 30.0}}
    return tried | row


def test_a_retry_loop() -> None:
    jobs: list[Row] = [{"tries": [success()]} for _ in range(9)]
    at: Row = {"site": "A", "machine": "a.test"}
    jobs.append({"outcome": "held", "tries": [failing(**at)] * 7})
    jobs.append({"outcome": "removed", "tries": [failing(**at)] * 12})
    [found] = retry_loop(accounts_of(jobs))
    assert found.title.startswith(
        "2 jobs tried 5 times or more and ended the same way each time (return value 1): "
    )
    assert (found.cost_s, found.attempts, found.lost_jobs) == (19 * 30, 19, 2)
    assert ("most of one job", "1.10: 12 tries") in found.evidence
    assert "command = 3" in found.advice[-1].lines
    # 0 is the present site when a machine is asked: a job that shuns it would start nowhere.
    lines = " ".join(line for step in found.advice for line in step.lines)
    assert "ResourceName1" in lines and "ResourceName0" not in lines
    assert "MY.MachineAttrGLIDEIN_ResourceName1 =?= undefined ||" in lines


def test_progress_variety_and_few_tries_are_no_loop() -> None:
    saved = failing(checkpoints=1)
    assert retry_loop(accounts_of([{"outcome": "held", "tries": [saved] * 9}])) == []
    varied = [failing(value) for value in (1, 2, 3, 4, 5, 6, 7)]
    assert retry_loop(accounts_of([{"outcome": "held", "tries": varied}])) == []
    assert retry_loop(accounts_of([{"outcome": "held", "tries": [failing()] * 4}])) == []
    assert retry_loop(accounts_of([{"tries": [success()]}] * 40)) == []


@pytest.mark.parametrize(
    ("value", "words", "line"),
    [
        (137, "(SIGKILL)", 'memory = "6 GiB"'),
        (127, "(command not found)", "container_image = https://…/image.sif"),
        (126, "(not executable)", "chmod +x SCRIPT"),
        (139, "(SIGSEGV)", "gpus_minimum_capability = 7.5"),
        (80, "(the node is not fit for the job)", ""),
        (1, "return value 1: ", ""),
    ],
)
def test_the_same_return_value_on_many_jobs(value: int, words: str, line: str) -> None:
    jobs: list[Row] = [{"tries": [success()]} for _ in range(50)]
    bad = {"outcome": "failed", "return_value": value, "tries": [failing(value)], "gpus": 1}
    bad |= {"memory_asked": 4096, "memory_used": 4000}
    [found] = exit_code(accounts_of(jobs + [bad] * 12))
    name = "Headway's own exit code" if value == 80 else "return value"
    assert found.title.startswith(f"12 jobs ended with {name} {value}")
    assert words in found.title
    assert (found.cost_s, found.lost_jobs) == (12 * 30, 12)
    assert "normal termination" in found.why
    assert not line or any(line in step.lines for step in found.advice)


def test_advice_is_for_what_the_jobs_have() -> None:
    """No GPU advice without a GPU, and no memory where most of it was free."""
    bad = {"outcome": "failed", "tries": [failing(139)], "return_value": 139}
    [found] = exit_code(accounts_of([bad] * 12))
    assert "gpu" not in str(found.advice).lower()
    killed = {"outcome": "failed", "tries": [failing(137)], "return_value": 137}
    [found] = exit_code(accounts_of([killed | {"memory_asked": 16384, "memory_used": 900}] * 12))
    assert "request_memory" not in str(found.advice)
    assert "at most 900 MiB of the 16 GiB asked for" in found.advice[0].text
    [found] = exit_code(accounts_of([killed] * 12))
    assert not any(step.lines for step in found.advice)


def test_a_loop_is_kept_from_what_its_log_names() -> None:
    """Only glideins have a name for their site; every slot has a machine."""
    here: Row = {"site": "m1.test", "machine": "m1.test"}
    [found] = retry_loop(accounts_of([{"outcome": "held", "tries": [failing(**here)] * 7}]))
    assert "GLIDEIN" not in str(found.advice)
    assert "job_machine_attrs = Machine" in found.advice[1].lines
    assert "TARGET.Machine =!= MY.MachineAttrMachine1" in found.advice[1].lines[-1]


def test_the_command_s_own_value_counts_not_headway_s() -> None:
    said = {"reason": "the command exited with 3"}
    bad = {"outcome": "failed", "return_value": 83, "tries": [failing(83) | said]}
    mute = {"outcome": "failed", "return_value": 83, "tries": [failing(83)]}
    own, headways = exit_code(accounts_of([bad] * 7 + [mute] * 6))
    assert own.title.startswith("7 jobs ended with return value 3:")
    assert "83" not in own.title + own.why
    assert "83" not in retry_loop(accounts_of([bad | {"tries": [failing(83) | said] * 9}]))[0].title
    assert headways.title.startswith("6 jobs ended with Headway's own exit code 83 (the command")


def test_a_failed_job_is_named_with_its_row() -> None:
    bad = {"outcome": "failed", "return_value": 3, "tries": [failing(3)]}
    accounts = accounts_of([bad] * 6)
    [plain] = exit_code(accounts)
    assert "the error file of 1.0, 1.1 and 4 more" in plain.advice[-1].text
    rows = pl.Series("row", [f"lr={n}" for n in range(5)] + [None])
    [found] = exit_code(replace(accounts, jobs=accounts.jobs.with_columns(rows)))
    assert "the error file of 1.0 (lr=0), 1.1 (lr=1) and 4 more" in found.advice[-1].text
    assert found.named == plain.named


def test_a_signal_and_its_shell_code_are_the_same_end() -> None:
    by_signal = {"outcome": "failed", "signal": 9, "tries": [failing(0)]}
    by_shell = {"outcome": "failed", "return_value": 137, "tries": [failing(137)]}
    [found] = exit_code(accounts_of([by_signal] * 4 + [by_shell] * 4))
    assert found.key == "exit:137"
    assert found.jobs == 8


def test_few_or_rare_values_are_no_finding() -> None:
    bad = {"outcome": "failed", "return_value": 1, "tries": [failing()]}
    good = {"tries": [success()]}
    assert exit_code(accounts_of([good] * 20 + [bad] * 4)) == []
    assert exit_code(accounts_of([good] * 995 + [bad] * 5)) == []
    assert exit_code(accounts_of([good] * 50)) == []


def test_wilson_is_honest_about_few_cases() -> None:
    assert wilson(0, 0) == (0, 1)
    low, high = wilson(3, 3)
    assert low < 0.5 and high == 1
    assert 0.27 < wilson(0, 10)[1] < 0.28
