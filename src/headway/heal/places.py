"""Where audits are kept, and the bounds that a run brings itself."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import replace
from pathlib import Path

from headway.heal.rules import Rules
from headway.pool import RunFolder


def audit_of_run(folder: RunFolder) -> Path:
    """The audit of a run is with the run."""
    return folder.path / "heal.jsonl"


def audit_of_pool(name: str) -> Path:
    """The user's audit of a schedd; a home folder may be shared by several access points."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    place = name if name != "htcondor" else f"htcondor:schedd={socket.gethostname()}"
    return Path(home) / "headway" / "heal" / f"{re.sub(r'[^A-Za-z0-9.-]', '_', place)}.jsonl"


def rules_of_run(folder: RunFolder, rules: Rules, most_per_job: int | None = None) -> Rules:
    """The rules for a run: what its job.toml says of releases holds for all of them."""
    retries = folder.job.retries
    most = max(retries.holds, retries.input) if most_per_job is None else most_per_job
    if rules.backoff != Rules.backoff:  # somebody asked for another one
        return replace(rules, most_per_job=most)
    pause = min(rules.pause, 5 * retries.backoff)
    return replace(rules, most_per_job=most, backoff=retries.backoff, pause=pause)
