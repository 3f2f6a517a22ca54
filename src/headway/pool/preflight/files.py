"""The job's files: are they there, can they be packed, and do they fit through the transfer?"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from headway.pool.preflight.case import Case, put_where_cached
from headway.pool.preflight.findings import Finding, error, hint, warning
from headway.spec import format_size
from headway.spec.words import closest
from headway.text import many

_AGENT_BYTES = 1_000_000  # headway-node.pyz, plan.json: generous
_HEADROOM = 256_000_000  # for what the command writes, at the least
_BIG = 1_000_000_000
_SHOWN = 3


def file_findings(case: Case) -> Iterator[Finding]:
    """What is wrong with the files themselves, then with their sizes."""
    for name, path in case.packed.items():
        yield from _one_file(case, name, path)
    yield from _transfer(case)
    yield from _disk(case)


def _one_file(case: Case, name: str, path: Path) -> Iterator[Finding]:
    where = f"files: {name}"
    try:
        kind = path.stat().st_mode
    except FileNotFoundError:
        if path.is_symlink():
            what = f"is a link to {os.readlink(path)}, which does not exist"
            yield error("file-dangling", where, what, "mend the link, or leave it out")
        else:
            near = closest(path.name, case.siblings(name.rpartition("/")[0]))
            remedy = f"did you mean {near}?" if near else "correct the name in `files`"
            yield error("file-missing", where, "does not exist", remedy)
        return
    except OSError as problem:
        what = f"cannot be looked at: {(problem.strerror or str(problem)).lower()}"
        yield error("file-unreadable", where, what, "check its permissions")
        return
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        what = "is a socket, pipe or device, which cannot be packed"
        yield error("file-special", where, what, "leave it out of `files`")
    elif not os.access(path, os.R_OK | (os.X_OK if stat.S_ISDIR(kind) else 0)):
        yield error("file-unreadable", where, "cannot be read", f"chmod u+r {name}")
    elif stat.S_ISDIR(kind) and path.is_symlink() and not _link_holds(case, name, path):
        what = f"is a link to the folder {os.readlink(path)}, which does not go with the job"
        remedy = "copy the folder into place of the link, or declare its files as inputs"
        yield error("file-link", where, what, remedy)


def _link_holds(case: Case, name: str, path: Path) -> bool:
    """Whether a link to a folder leads to something that is packed too."""
    target = os.readlink(path)
    if os.path.isabs(target):
        return False
    inside = os.path.normpath(os.path.join(os.path.dirname(name), target))
    if inside.startswith("../"):
        return False
    return inside in case.packed or any(other.startswith(f"{name}/") for other in case.packed)


def _transfer(case: Case) -> Iterator[Finding]:
    limit = case.limits.transfer_input_bytes
    total = case.payload_bytes + case.image_bytes + _AGENT_BYTES
    if limit is not None and total > limit:
        biggest = sorted(case.sizes.items(), key=lambda item: -item[1])[:_SHOWN]
        if case.image_bytes:
            biggest = [(case.job.container or "", case.image_bytes), *biggest]
        named = ", ".join(f"{name} ({format_size(size)})" for name, size in biggest)
        what = (
            f"{format_size(total)} would go through HTCondor's own transfer, which takes"
            f" {format_size(limit)} here (hold code 32). The biggest: {named}"
        )
        remedy = "put what is big behind a URL and declare it as an input"
        yield error("payload-size", "files", what, remedy)
    elif case.image_bytes > _BIG and not case.local:
        what = f"an image of {format_size(case.image_bytes)} goes from here to each node anew"
        remedy = f"{put_where_cached(case)}, and name that in `container`"
        yield hint("container-size", "container", what, remedy)


def _disk(case: Case) -> Iterator[Finding]:
    """Payload and its archive lie side by side; inputs and the image once."""
    asked = case.job.resources.disk
    parts = {
        many(len(case.job.inputs), "input"): case.input_disk,
        "files": case.payload_bytes + sum(case.sizes.values()),
        "the image": case.image_bytes,
        "outputs": sum(output.min_size for output in case.job.outputs),
    }
    need = sum(parts.values())
    shown = ", ".join(f"{noun} {format_size(size)}" for noun, size in parts.items() if size)
    wanted = need + max(_HEADROOM, need // 10)
    remedy = f"--resource disk={-(-wanted // 10**9)}GB"
    if need > asked:
        what = f"asks for {format_size(asked)}, and {format_size(need)} are declared: {shown}"
        yield error("disk", "resources.disk", what, remedy)
    elif wanted > asked and need > _HEADROOM:
        what = (
            f"asks for {format_size(asked)}; {format_size(need)} are declared ({shown}), which"
            " leaves little for what the command writes"
        )
        yield warning("disk", "resources.disk", what, remedy)
