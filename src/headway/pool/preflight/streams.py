"""What is worth saying about an input that arrives while the command runs."""

from __future__ import annotations

from collections.abc import Iterator

from headway.errors import ManifestError
from headway.node.stream.source import bytes_of_epoch
from headway.node.transfer.manifest import MAX_MANIFEST, SUFFIX, Manifest, digest_of, read_manifest
from headway.pool.preflight.case import Case
from headway.pool.preflight.findings import Finding, error, hint
from headway.pool.prepare import agent_urls
from headway.spec import Input, format_size


def stream_findings(case: Case, given: Input, where: str) -> Iterator[Finding]:
    """Of one input with mode = "stream"."""
    if not agent_urls(case.job, given):
        what = "is left to the job's own transfer plugin, which brings it before the command starts"
        remedy = "take transfer_plugins out of [submit], or leave out `mode`"
        yield error("stream-plugin", f"{where}.mode", what, remedy)
    packed = _packed(case, given)
    digest = digest_of(packed) if packed is not None else ""
    if given.manifest is None:
        proof = "its checksum is compared at the end" if given.checksum else "nothing proves it"
        what = (
            f"streams without a manifest: the command reads bytes before they are proven; {proof}"
        )
        remedy = "`headway publish` makes the manifest: name its digest as `manifest`"
        if digest:
            remedy = f'{given.file}{SUFFIX} is among the files: add manifest = "{digest}"'
        yield hint("stream-unproven", where, what, remedy)
    elif digest and digest != given.manifest:
        what = f"is not the digest of {given.file}{SUFFIX}, which is among the files"
        yield error("stream-manifest", f"{where}.manifest", what, f'manifest = "{digest}"')
    if not given.keep and given.window is not None:
        yield _window(given, given.window, where, packed if digest == given.manifest else None)


def _window(given: Input, window: int, where: str, packed: bytes | None) -> Finding:
    manifest = _read(packed)
    if manifest is not None and window < manifest.size:
        each = bytes_of_epoch(manifest, window)
        more = each / manifest.size - 1
        what = (
            f"keeps {format_size(window)} of the disk: {format_size(each)} come anew in every"
            f" epoch ({more:.0%} more than it has), {format_size(5 * each)} in five"
        )
    else:
        size = f"{format_size(given.size)} come" if given.size else "the whole object comes"
        what = (
            f"keeps {format_size(window)} of the disk: {size} anew in every epoch, and some"
            " twice; agent.log says how much before the command starts"
        )
    return hint("stream-again", where, what, "keep = true where the disk has room for all of it")


def _packed(case: Case, given: Input) -> bytes | None:
    """The manifest that travels with the job."""
    path = case.packed.get(f"{given.file}{SUFFIX}")
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            return file.read(MAX_MANIFEST + 1)
    except OSError:
        return None


def _read(data: bytes | None) -> Manifest | None:
    if data is None:
        return None
    try:
        return read_manifest(data, pin=None)
    except ManifestError:
        return None
