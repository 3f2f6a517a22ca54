"""Results: the declared outputs of two runs, held against each other."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

# what an interrupted run may say otherwise: times, places, and how often it was interrupted
_OTHERWISE = re.compile(
    r"(?i)time|second|elapsed|duration|date|stamp|rate$|speed|host|node|pid|resum|restart|attempt"
    r"|start|wall|uptime"
)


def digests(folder: Path) -> dict[str, str]:
    """The digest of each file below a folder; of JSON without what may differ between runs."""
    if not folder.is_dir():
        return {}
    return {
        path.relative_to(folder).as_posix(): _digest(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def differing(one: dict[str, str], other: dict[str, str]) -> list[str]:
    """The names of files that are not the same in both."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    if path.suffix == ".json":
        try:
            told = _without_times(json.loads(path.read_bytes()))
            return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
        except (ValueError, RecursionError):
            pass  # then by its bytes
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _without_times(told: object) -> object:
    if isinstance(told, dict):
        return {
            key: _without_times(value)
            for key, value in told.items()
            if not (_OTHERWISE.search(key) and not isinstance(value, (dict, list)))
            or key in ("learning_rate", "lr")
        }
    if isinstance(told, list):
        return [_without_times(each) for each in told]
    return told
