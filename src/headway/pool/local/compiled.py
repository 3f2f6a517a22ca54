"""The agent of a run, compiled for this interpreter: the same sources, and half the start-up."""

from __future__ import annotations

import importlib.util
import io
import marshal
import sys
import zipfile
from pathlib import Path

from headway.pool.folder import write_atomically
from headway.pool.package import PROGRAM, link_shared, short_digest


def compile_agent(agent: Path, store: Path) -> Path:
    """A headway-node.pyz with compiled modules beside the sources; itself if that fails.

    As the agent itself, it is one file for all runs of the store.
    """
    tag = f"{sys.implementation.cache_tag}{agent.suffix}"
    made = agent.with_name(f"{agent.stem}.{tag}")
    if made.exists():
        return made
    try:
        data = agent.read_bytes()
        shared = store / f"{agent.stem}-{short_digest(data)}.{tag}"
        if store.is_dir():
            link_shared(shared, made, lambda: zipfile.is_zipfile(shared), lambda: _compiled(data))
        else:  # of an older Headway, or moved away from its runs
            write_atomically(made, _compiled(data), PROGRAM)
    except (OSError, ValueError, SyntaxError, zipfile.BadZipFile):
        return agent
    return made


def _compiled(data: bytes) -> bytes:
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
