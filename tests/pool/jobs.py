"""Plain HTCondor jobs of hwuser's, without Headway."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from .harness import Pool

_SUBMIT = """
import json, sys, htcondor2
schedd = htcondor2.Schedd()
print(schedd.submit(htcondor2.Submit(json.loads(sys.argv[1]))).cluster())
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
        description = {**self._description, "arguments": f"\"-c '{command}'\"", **more}
        done = self.pool.python(_SUBMIT, json.dumps(description), cwd=self.folder)
        assert done.returncode == 0, done.stderr
        self.cluster = done.stdout.strip()
        return self

    def log_with(self, *events: str) -> str:
        """The job's log as soon as it has one of these events."""
        path = self.folder / "job.log"

        def log() -> str:
            text = path.read_text() if path.exists() else ""
            return text if any(f"\n{number} (" in f"\n{text}" for number in events) else ""

        return self.pool.wait_for(log, 90, f"event {' or '.join(events)} in {path}")

    def input_record(self) -> str:
        """What HTCondor keeps of the input transfer, which is more than the log says."""
        asked = ["condor_history", "-epochs", "-type", "INPUT", "-long", self.cluster]
        return self.pool.wait_for(
            lambda: self.pool.run_as_user(asked).stdout, 20, "the record of the transfer"
        )

    def remove(self) -> None:
        self.pool.run_as_user(["condor_rm", self.cluster])
