"""The test pool itself: it runs jobs of an ordinary user, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import pytest

from .harness import HERE, POOL_USER, USER, Pool
from .together import Together, at_the_same_time, beside_others

SUBMIT = """
import json, sys, htcondor2
description = {
    "log": "job.log", "output": "job.out", "error": "job.err", "transfer_executable": "False",
    "should_transfer_files": "YES", "ulog_execute_attrs": "GLIDEIN_ResourceName",
    **json.loads(sys.argv[1]),
}
schedd = htcondor2.Schedd()
cluster = schedd.submit(htcondor2.Submit(description)).cluster()
print(schedd.query(f"ClusterId == {cluster}", ["Owner"])[0]["Owner"])
"""


def submit(pool: Pool, folder: Path, **description: str) -> str:
    """Submit a job as hwuser and return its owner."""
    done = pool.python(SUBMIT, json.dumps(description), cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def wait_for_event(pool: Pool, folder: Path, *numbers: str) -> str:
    """Wait until the job's log has one of the events, and return the log."""
    path = folder / "job.log"

    def log_with_event() -> str:
        log = path.read_text() if path.exists() else ""
        return log if any(f"\n{number} (" in "\n" + log for number in numbers) else ""

    return pool.wait_for(log_with_event, 180, f"event {' or '.join(numbers)} in {path}")


def run_job(pool: Pool, **description: str) -> tuple[str, str]:
    """Run a job to its end and return its event log and what it printed."""
    folder = pool.user_dir()
    submit(pool, folder, **description)
    log = wait_for_event(pool, folder, "005", "009", "012")
    assert "return value 0" in log, log
    return log, (folder / "job.out").read_text()


def at(site: str) -> str:
    return f'GLIDEIN_ResourceName == "{site}"'


@beside_others()
def test_a_users_job_runs_at_a_site(condor_pool: Pool) -> None:
    folder = condor_pool.user_dir()
    assert submit(condor_pool, folder, executable="/usr/bin/id", arguments="-un") == USER
    log = wait_for_event(condor_pool, folder, "005", "012")
    execute = log.partition("\n001 (")[2].partition("\n...")[0]
    assert any(f'GLIDEIN_ResourceName = "{site}"' in execute for site in condor_pool.sites), log
    assert (folder / "job.out").read_text().strip() == POOL_USER


@beside_others()
def test_the_user_may_not_touch_the_jobs_of_others(condor_pool: Pool) -> None:
    folder = condor_pool.user_dir()
    description = "executable = /bin/true\nhold = true\nqueue\n"
    env = {**os.environ, **condor_pool.env}
    submitted = subprocess.run(
        ["condor_submit", "-terse"],
        input=description,
        env=env,
        cwd=folder,
        text=True,
        capture_output=True,
        check=True,
    )
    job = submitted.stdout.split()[0]
    refused = condor_pool.run_as_user(["condor_rm", job])
    assert refused.returncode != 0
    assert "Permission denied" in refused.stdout + refused.stderr
    subprocess.run(["condor_rm", job], env=env, capture_output=True, check=True)


def test_a_gpu_job_gets_its_device(condor_pool: Pool) -> None:
    log, out = run_job(
        condor_pool,
        executable="/bin/sh",
        arguments="\"-c 'echo $CUDA_VISIBLE_DEVICES'\"",
        request_gpus="1",
    )
    assert out.startswith("GPU-"), out
    assert "CHTC-Spark-CE1" in log or "PDX-Coeus-CE1" in log


def in_a_container(condor_pool: Pool, form: str) -> None:
    if not condor_pool.containers:
        pytest.skip("apptainer cannot run here: no user namespaces")
    image = condor_pool.image if form == "file" else condor_pool.image_dir
    code = "import ssl, sqlite3; print(open('/etc/os-release').read())"
    _, out = run_job(
        condor_pool,
        universe="container",
        container_image=str(image),
        transfer_container=str(form == "file"),
        executable="/usr/bin/python3",
        arguments=f"\"-c '{code.replace(chr(39), chr(39) * 2)}'\"",
    )
    assert "Headway test image" in out


@at_the_same_time(in_a_container)
@pytest.mark.parametrize("promise", ["file", "folder"])
def test_a_container_job_runs(
    together: Together, request: pytest.FixtureRequest, promise: str
) -> None:
    together.wait(request)


GOING: dict[str, tuple[Literal["down", "drain", "crash"], str, str]] = {
    "ONE-SLOT": ("down", "004", ""),
    "GP-ARGO-ksu-backfill": ("drain", "004", "bye\n"),
    "PDX-Coeus-CE1": ("crash", "022", ""),
}


def test_sites_go_and_come_back(condor_pool: Pool) -> None:
    """Only a drained site gives its jobs the time for a checkpoint."""
    folders = {site: condor_pool.user_dir() for site in GOING}
    for site, folder in folders.items():
        (folder / "job.sh").write_text(
            f"trap 'sleep 2; echo bye > {folder}/last-words; exit 1' TERM; sleep 300 & wait\n"
        )
        (folder / "last-words").touch()
        condor_pool.give(folder)
        (folder / "last-words").chmod(0o666)  # the job runs as the site's user
        submit(
            condor_pool,
            folder,
            executable="/bin/sh",
            arguments="job.sh",
            transfer_input_files="job.sh",
            requirements=at(site),
        )
    for folder in folders.values():
        wait_for_event(condor_pool, folder, "001")
    with ThreadPoolExecutor(len(GOING)) as hands:
        list(hands.map(lambda site: condor_pool.stop_site(site, GOING[site][0]), GOING))
    for site, (_, event, last_words) in GOING.items():
        wait_for_event(condor_pool, folders[site], event)
        assert (folders[site] / "last-words").read_text() == last_words
    condor_pool.run_as_user(["condor_rm", "-all"])
    condor_pool.start_sites(*GOING)
    again = {site: condor_pool.user_dir() for site in GOING}
    for site, folder in again.items():
        submit(condor_pool, folder, executable="/bin/true", requirements=at(site))
    for folder in again.values():
        assert "return value 0" in wait_for_event(condor_pool, folder, "005", "009", "012")


@beside_others()
def test_the_user_has_the_checkouts_headway(condor_pool: Pool) -> None:
    assert condor_pool.run_as_user(["id", "-un"]).stdout.strip() == USER
    done = condor_pool.headway(["--version"])
    assert done.returncode == 0, done.stderr
    # a program started with an empty environment has it too
    code = "import headway, sys; print(sys.executable)"
    python = condor_pool.python(code).stdout.strip()
    assert condor_pool.run_as_user(["env", "-i", python, "-c", code]).stdout.strip() == python


def command_lines() -> dict[int, str]:
    """Every process of the machine with its arguments."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found[int(path.parent.name)] = path.read_text(errors="replace").replace("\0", " ")
    return found


def children(parents: set[int]) -> set[int]:
    """The processes started by any of these, and so on down."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rpartition(") ")[2].split()[1]) in parents:
                found.add(int(path.parent.name))
    return found | children(found) if found else found


@beside_others(15)
def test_down_leaves_nothing_even_of_a_pool_in_ruins(condor_pool: Pool) -> None:
    """A second pool at the same time, its masters, schedd and starters killed while jobs run."""
    ruin = Pool({"POOL_EXTRA_CM": "SCHEDD_NAME = ruin"})
    ruin.keeps_folder = False
    ruin.start()
    try:
        kinds = {
            "plain": {"executable": "/bin/sleep", "arguments": "4001"},
            "bare": {"executable": "/usr/bin/env", "arguments": "-i sleep 4002"},
            "contained": {
                "executable": "/bin/sleep",
                "arguments": "4003",
                "universe": "container",
                "container_image": str(ruin.image),
            },
            "like DAGMan": {
                "executable": "/bin/sleep",
                "arguments": "4004",
                "universe": "scheduler",
            },
        }
        folders = [ruin.user_dir() for _ in kinds]
        for folder, description in zip(folders, kinds.values(), strict=True):
            submit(ruin, folder, **description)
        for folder in folders:
            wait_for_event(ruin, folder, "001")
        masters = {int(path.read_text()) for path in ruin.home.glob("**/run/master.pid")}
        before: dict[int, str] = {}

        def all_sleep() -> bool:
            everything = masters | children(masters)
            before.clear()
            before.update({p: line for p, line in command_lines().items() if p in everything})
            ends = [f"sleep {seconds} " for seconds in range(4001, 4005)]
            return all(any(line.endswith(end) for line in before.values()) for end in ends)

        ruin.wait_for(all_sleep, 180, "four jobs that sleep")
        doomed = [
            pid
            for pid, line in before.items()
            if any(f"condor_{name}" in line for name in ("master", "schedd", "starter"))
        ]
        assert len(doomed) == 5 + 1 + 3
        for pid in doomed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    finally:
        ruin.stop()
    after = command_lines()
    assert not [line for pid, line in before.items() if after.get(pid) == line]
    assert not [line for line in after.values() if str(ruin.home) in line]
    assert not ruin.home.exists()


def test_no_mirror_is_one_line_and_exit_code_3(tmp_path: Path) -> None:
    env = {**os.environ, "HEADWAY_POOL_CACHE": str(tmp_path), "POOL_MIRROR": "http://127.0.0.1:9/x"}
    done = subprocess.run(
        [HERE / "pool.sh", "up"], env=env, capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 3
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("mode", "summary", "code"),
    [("skip", "1 test SKIPPED: HEADWAY_POOL=skip", 0), ("require", "1 test FAILED in set-up", 1)],
)
def test_the_summary_says_that_there_was_no_pool(
    tmp_path: Path, mode: str, summary: str, code: int
) -> None:
    env = {**os.environ, "HEADWAY_POOL_CACHE": str(tmp_path), "POOL_MIRROR": "http://127.0.0.1:9/x"}
    test = f"{HERE}/test_pool.py::test_a_users_job_runs_at_a_site"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", test],
        env={**env, "HEADWAY_POOL": mode},
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"real pool: {summary}" in done.stdout
    assert done.returncode == code
