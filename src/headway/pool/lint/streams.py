"""Preflight of inputs that arrive while the command runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from headway.errors import ManifestError
from headway.node.stream.source import bytes_of_epoch
from headway.node.transfer.manifest import MAX_MANIFEST, SUFFIX, digest_of, read_manifest
from headway.pool.lint.case import PreflightCase
from headway.pool.lint.traps import LintFinding, error, hint
from headway.pool.prepare import agent_urls
from headway.spec import Input, format_size


def stream_findings(case: PreflightCase, given: Input, where: str) -> Iterator[LintFinding]:
    """The findings for one input with mode = "stream"."""
    if not agent_urls(case.job, given):
        what = "needs the job's own transfer plugin, which brings it before the command starts"
        remedy = "remove transfer_plugins from [submit], or leave out `mode`"
        yield error("stream-plugin", what, remedy, f"{where}.mode")
    packed = _packed(case, given)
    digest = digest_of(packed) if packed is not None else ""
    if given.manifest is None:
        proof = "its checksum is compared at the end" if given.checksum else "it has no checksum"
        what = f"streams without a manifest: the command reads data before it is verified; {proof}"
        remedy = "create a manifest with `headway publish`, and set `manifest` to its digest"
        if digest:
            remedy = f'{given.file}{SUFFIX} is among the files: add manifest = "{digest}"'
        yield hint("stream-unproven", what, remedy, where)
    elif digest and digest != given.manifest:
        what = f"is not the digest of {given.file}{SUFFIX}, which is among the files"
        yield error("stream-manifest", what, f'manifest = "{digest}"', f"{where}.manifest")
    if not given.keep and given.window is not None:
        yield _window(given, given.window, where, packed if digest == given.manifest else None)


def _window(given: Input, window: int, where: str, packed: bytes | None) -> LintFinding:
    manifest = None
    if packed is not None:
        with contextlib.suppress(ManifestError):
            manifest = read_manifest(packed, pin=None)
    what = f"keeps {format_size(window)} on disk, so"
    if manifest is not None and window < manifest.size:
        each = bytes_of_epoch(manifest, window)
        more = each / manifest.size - 1
        what += (
            f" every epoch downloads {format_size(each)} again ({more:.0%} more than its size),"
            f" {format_size(5 * each)} in five"
        )
    else:
        size = format_size(given.size) if given.size else "the whole object"
        what += (
            f" every epoch downloads {size} again, and some of it twice; agent.log says how much"
            " before the command starts"
        )
    return hint("stream-again", what, "keep = true if the disk has room for all of it", where)


def _packed(case: PreflightCase, given: Input) -> bytes | None:
    """The manifest that goes with the job."""
    path = case.packed.get(f"{given.file}{SUFFIX}")
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            return file.read(MAX_MANIFEST + 1)
    except OSError:
        return None
