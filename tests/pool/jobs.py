"""Plain HTCondor jobs of hwuser's, without Headway."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from .harness import Pool

_SUBMIT = """
import json, os, sys, htcondor2
schedd = htcondor2.Schedd()
for folder, description in json.load(sys.stdin):
    os.chdir(folder)
    print(schedd.submit(htcondor2.Submit(description)).cluster())
"""


class PlainJob:
    """A shell command as a job, in a folder of its own; `site` is one that has to be asked for."""

    def __init__(
        self, pool: Pool, site: str = "", *, files: Mapping[str, Path] | None = None
    ) -> None:
        self.pool, self.folder, self.cluster = pool, pool.user_dir(), ""
        for name, source in (files or {}).items():
            shutil.copy2(source, self.folder / name)
        pool.give(self.folder)
        self._description = {
            "log": "job.log",
            "executable": "/bin/sh",
            "transfer_executable": "False",
            "should_transfer_files": "YES",
            "request_memory": "64MB",
            "My.WantsSite": f'"{site}"',
            "requirements": f'GLIDEIN_ResourceName == "{site}"' if site else "true",
        }

    def submit(self, command: str, **more: str) -> PlainJob:
        submit_all([self], command, **more)
        return self

    def description(self, command: str) -> dict[str, str]:
        return {**self._description, "arguments": f"\"-c '{command}'\""}

    def log_with(self, *events: str) -> str:
        """The job's log as soon as it has one of these events."""
        path = self.folder / "job.log"

        def log() -> str:
            text = path.read_text() if path.exists() else ""
            return text if any(f"\n{number} (" in f"\n{text}" for number in events) else ""

        return self.pool.wait_for(log, 180, f"event {' or '.join(events)} in {path}")

    def input_record(self) -> str:
        """What HTCondor keeps of the input transfer, which is more than the log says."""
        asked = ["condor_history", "-epochs", "-type", "INPUT", "-long", self.cluster]
        return self.pool.wait_for(
            lambda: self.pool.run_as_user(asked).stdout, 20, "the record of the transfer"
        )

    def remove(self) -> None:
        self.pool.run_as_user(["condor_rm", self.cluster])


def submit_all(jobs: Sequence[PlainJob], command: str, **more: str) -> None:
    """Submit a command as each of the jobs, all in one go."""
    wanted = [(str(job.folder), {**job.description(command), **more}) for job in jobs]
    done = jobs[0].pool.python(_SUBMIT, input=json.dumps(wanted))
    assert done.returncode == 0, done.stderr
    for job, cluster in zip(jobs, done.stdout.split(), strict=True):
        job.cluster = cluster
