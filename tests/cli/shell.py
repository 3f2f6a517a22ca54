"""The command line as somebody types it, apart from this machine's environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.lab import Authority
from tests.loaded import SOURCE, run_headway
from tests.node.transfer.federation import TRACER


class Shell:
    """Calls `headway` in a folder, with nothing of this machine's environment but the path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stdout = ""
        self.environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(SOURCE),
            "SSL_CERT_FILE": str(Authority.get().bundle),
        }

    def __call__(self, *words: str, code: int = 0) -> str:
        done = run_headway(words, cwd=self.folder, env=self.environment)
        said = done.stdout + done.stderr
        assert done.returncode == code, said
        assert "Traceback" not in said or "--debug" in words
        assert TRACER not in said
        self.stdout = done.stdout
        return said

    def start(self, *words: str) -> subprocess.Popen[str]:
        """A process that goes on beside the test."""
        return subprocess.Popen(
            [sys.executable, "-m", "headway", *words],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def json(self, *words: str, code: int = 0) -> Any:
        self(*words, "--json", code=code)
        return json.loads(self.stdout)
