"""The pinned manifest: fetched from beside its object, and believed for its digest alone."""

from __future__ import annotations

import contextlib
import os
from urllib.parse import unquote

from headway.node.errors import NodeError, TransferError
from headway.node.transfer.fetch import GRACE, PATIENCE, fetch
from headway.node.transfer.manifest import (
    MAX_MANIFEST,
    SUFFIX,
    ManifestError,
    checked_pin,
    manifest_url,
    read_manifest,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headway.node.transfer.manifest import Manifest

_BESIDE = (
    f"the manifest lies beside the object as NAME{SUFFIX}: `headway publish` writes it "
    "and prints the digest to pin"
)


def pinned_manifest(
    urls: Sequence[str],
    pin: str,
    *,
    folder: str,
    patience: float = PATIENCE,
    grace: float = GRACE,
    absence_is_final: bool = False,
    direct: bool = False,
    should_stop: Callable[[], bool] = lambda: False,
    keep_as: str | None = None,
) -> Manifest:
    """The manifest of the object that lies at `urls`, from whichever of them has the pinned one.

    It gathers in a folder of its own below `folder`, which is gone afterwards; what a process that
    was killed has left of it is used by the next one. `keep_as`: a path at which it stays.
    """
    pin = checked_pin(pin)
    place = os.path.join(folder, f".headway-manifest-{pin[7:23]}")
    path = os.path.join(place, _name(urls[0] if urls else ""))

    try:
        fetch(
            [manifest_url(url) for url in urls],
            path,
            most=MAX_MANIFEST,
            checksum=pin,
            should_stop=should_stop,
            patience=patience,
            grace=grace,
            absence_is_final=absence_is_final,
            direct=direct,
        )
        found = read_manifest(_read(path), pin=pin)
        if keep_as is not None:
            _keep(path, keep_as)
        return found
    except ManifestError:
        raise
    except TransferError as error:
        remedy = f"{error.remedy}; {_BESIDE}" if error.remedy else _BESIDE
        raise ManifestError(error.message, retryable=error.retryable, remedy=remedy) from None
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
        with contextlib.suppress(OSError):
            os.rmdir(place)


def _name(url: str) -> str:
    """What messages call the manifest; a URL from anybody must not lead out of the folder."""
    last = unquote(url.partition("?")[0].partition("#")[0].rstrip("/")).rpartition("/")[2]
    plain = "".join(c if c.isprintable() else "_" for c in last)
    while len(os.fsencode(plain)) > 100:
        plain = plain[:-1]
    return f"{plain or 'object'}{SUFFIX}"


def _keep(path: str, target: str) -> None:
    try:
        os.makedirs(os.path.dirname(target) or os.curdir, exist_ok=True)
        os.chmod(path, 0o444)
        os.replace(path, target)
    except OSError as error:
        raise NodeError(f"{target} cannot be written: {error.strerror}") from None


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(MAX_MANIFEST + 1)
    except OSError as error:
        raise NodeError(
            f"the node's disk fails: {os.path.basename(path)}: {error.strerror}"
        ) from None
