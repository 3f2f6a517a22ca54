"""The test pool itself: it runs jobs of an ordinary user, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .harness import HERE, POOL_USER, USER, Pool

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

    return pool.wait_for(log_with_event, 90, f"event {' or '.join(numbers)} in {path}")


def run_job(pool: Pool, **description: str) -> tuple[str, str]:
    """Run a job to its end and return its event log and what it printed."""
    folder = pool.user_dir()
    submit(pool, folder, **description)
    log = wait_for_event(pool, folder, "005", "009", "012")
    assert "return value 0" in log, log
    return log, (folder / "job.out").read_text()


def at(site: str) -> str:
    return f'GLIDEIN_ResourceName == "{site}"'


def test_a_users_job_runs_at_a_site(condor_pool: Pool) -> None:
    folder = condor_pool.user_dir()
    assert submit(condor_pool, folder, executable="/usr/bin/id", arguments="-un") == USER
    log = wait_for_event(condor_pool, folder, "005", "012")
    execute = log.partition("\n001 (")[2].partition("\n...")[0]
    assert any(f'GLIDEIN_ResourceName = "{site}"' in execute for site in condor_pool.sites), log
    assert (folder / "job.out").read_text().strip() == POOL_USER


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


@pytest.mark.parametrize("form", ["file", "folder"])
def test_a_container_job_runs(condor_pool: Pool, form: str) -> None:
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


@pytest.mark.parametrize(("how", "event"), [("down", "004"), ("drain", "004"), ("crash", "022")])
def test_a_site_goes_and_comes_back(condor_pool: Pool, how: str, event: str) -> None:
    folder = condor_pool.user_dir()
    script = "trap ''sleep 2; echo bye > last-words; exit 1'' TERM; sleep 300 & wait"
    submit(
        condor_pool,
        folder,
        executable="/bin/sh",
        arguments=f"\"-c '{script}'\"",
        requirements=at("ONE-SLOT"),
        when_to_transfer_output="ON_EXIT_OR_EVICT",
    )
    wait_for_event(condor_pool, folder, "001")
    condor_pool.stop_site("ONE-SLOT", how)  # type: ignore[arg-type]
    wait_for_event(condor_pool, folder, event)
    condor_pool.run_as_user(["condor_rm", "-all"])
    condor_pool.start_site("ONE-SLOT")
    run_job(condor_pool, executable="/bin/true", requirements=at("ONE-SLOT"))


def test_the_user_has_the_checkouts_headway(condor_pool: Pool) -> None:
    code = (
        "import headway, htcondor2, pydantic, rich, importlib.metadata as m; m.version('headway')"
    )
    done = condor_pool.python(code)
    assert done.returncode == 0, done.stderr
    assert condor_pool.run_as_user(["id", "-un"]).stdout.strip() == USER


def belongs(process: Path, home: Path) -> bool:
    """Whether a process has the pool's folder in its environment, arguments or working folder."""
    try:
        texts = [(process / name).read_bytes() for name in ("environ", "cmdline")]
        texts.append(os.fsencode(os.readlink(process / "cwd")))
    except OSError:
        return False
    return any(os.fsencode(home) in text for text in texts)


def test_down_leaves_nothing_even_of_a_pool_in_ruins(condor_pool: Pool) -> None:
    """A second pool at the same time, its masters and starters killed while jobs run."""
    ruin = Pool()
    ruin.start()
    try:
        jobs = [ruin.user_dir(), ruin.user_dir()]
        submit(ruin, jobs[0], executable="/usr/bin/env", arguments="-i sleep 300")
        submit(
            ruin,
            jobs[1],
            executable="/bin/sleep",
            arguments="300",
            universe="container",
            container_image=str(ruin.image),
        )
        for folder in jobs:
            wait_for_event(ruin, folder, "001")
        for process in Path("/proc").glob("[0-9]*"):
            if belongs(process, ruin.home):
                name = (process / "comm").read_text()
                if name.startswith(("condor_master", "condor_starter", "condor_schedd")):
                    os.kill(int(process.name), signal.SIGKILL)
    finally:
        ruin.stop()
    left = [path for path in Path("/proc").glob("[0-9]*") if belongs(path, ruin.home)]
    assert not left
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
