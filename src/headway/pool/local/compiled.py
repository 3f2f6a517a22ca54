"""The agent of a run, compiled for this interpreter: the same sources, and half the start-up."""

from __future__ import annotations

import importlib.util
import io
import marshal
import os
import sys
import zipfile
from pathlib import Path


def compile_agent(agent: Path) -> Path:
    """A copy of headway-node.pyz with compiled modules beside the sources; itself if that fails."""
    made = agent.with_name(f"{agent.stem}.{sys.implementation.cache_tag}{agent.suffix}")
    if made.exists():
        return made
    draft = made.with_name(f".{made.name}.{os.getpid()}")
    try:
        draft.write_bytes(_compiled(agent))
        draft.chmod(0o755)
        draft.replace(made)
    except (OSError, ValueError, SyntaxError, zipfile.BadZipFile):
        return agent
    finally:
        draft.unlink(missing_ok=True)
    return made


def _compiled(agent: Path) -> bytes:
    data = agent.read_bytes()
    archive = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(data)) as given,
        zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as made,
    ):
        stub = data[: min(entry.header_offset for entry in given.infolist())]
        for entry in given.infolist():
            source = given.read(entry)
            made.writestr(entry, source)
            if entry.filename.endswith(".py"):
                made.writestr(zipfile.ZipInfo(f"{entry.filename}c"), _module(source, entry))
    return stub + archive.getvalue()


def _module(source: bytes, entry: zipfile.ZipInfo) -> bytes:
    """The bytes of a .pyc that is not checked against its source."""
    code = compile(source, entry.filename, "exec", dont_inherit=True)
    head = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little")
    return head + importlib.util.source_hash(source) + marshal.dumps(code)
