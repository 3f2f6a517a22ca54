"""Fetch: bring one object to its path, from whichever of its sources are healthy."""

from __future__ import annotations

import os
import time

from headway.node.errors import Stopped, TransferError
from headway.node.transfer.journal import SUFFIX, Journal
from headway.node.transfer.part import Part
from headway.node.transfer.roster import Roster
from headway.node.transfer.supervisor import Supervisor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headway.node.transfer.proof import Chunks
    from headway.node.transfer.report import Snapshot
    from headway.node.transfer.route import Readers

PATIENCE = 180.0  # seconds without a byte from anywhere: on a slot, a GPU waits
GRACE = 10.0  # seconds for which every source must say that there is no such object
CONNECTIONS = 4
PER_SOURCE = 2


class Fetched:
    """A file that has arrived and is proven as far as anything was declared."""

    def __init__(
        self,
        path: str,
        size: int,
        seconds: float,
        url: str,
        verified: bool,
        proof: str,
        last: Snapshot,
    ) -> None:
        self.path, self.bytes, self.seconds = path, size, seconds
        self.url = url  # the source that gave the last byte
        self.verified = verified  # a checksum or manifest was declared and is right
        self.proof = proof  # "manifest", "checksum", "digest" (a server's own word), "size" or ""
        self.snapshot = last  # the sources as they were at the end


def fetch(
    urls: Sequence[str],
    path: str,
    *,
    size: int | None = None,
    most: int | None = None,
    checksum: str | None = None,
    manifest: Chunks | None = None,
    progress: Callable[[int, int | None], None] | None = None,
    watch: Callable[[Snapshot], None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    patience: float = PATIENCE,
    grace: float = GRACE,
    absence_is_final: bool = False,
    connections: int = CONNECTIONS,
    per_source: int = PER_SOURCE,
    keep: bool = False,
    replace: bool = True,
    direct: bool = False,
    negotiate: bool = True,
    readers: Readers | None = None,
) -> Fetched:
    """Bring one object to `path`; the bytes gather in PATH.part, with a journal beside it.

    `progress(bytes, total)` and `watch(snapshot)` are called at most twice a second. `most`: an
    object of more bytes is refused. `absence_is_final`: nobody waits in a slot, so what no other
    try soon can change ends it early. `keep`: what has arrived stays when it ends early, for
    another call to go on from; a process that is killed leaves it in any case. `replace`: a file
    that has the name by then gives way. `direct`: federations shall give the origin's bytes.
    `negotiate`: ask servers for a digest where nothing is declared. `readers` use it while it
    arrives: they say what comes first, and hear of what is there and proven.
    """
    begin = time.monotonic()
    if manifest is not None:
        if size not in (None, manifest.size):
            raise TransferError(
                f"{os.path.basename(path)} is declared with {size} bytes, "
                f"but its manifest says {manifest.size}",
                retryable=False,
                remedy="publish the object again, or correct the size",
            )
        size = manifest.size
    roster = Roster(
        urls,
        per_source=per_source,
        # who leaves room for other sources has not asked for all of one
        hesitates=per_source < connections,
        direct=direct,
        should_stop=should_stop,
    )
    if should_stop():
        raise Stopped("the transfer was stopped")
    part = Part(path, replace=replace)
    journal = Journal(f"{part.place}{SUFFIX}", _proof_of(checksum, manifest))
    run = Supervisor(part, journal, roster, size, checksum, manifest, connections, readers)
    run.patience, run.grace, run.final = patience, grace, absence_is_final
    run.progress, run.watch, run.should_stop = progress, watch, should_stop
    run.job.most = most
    if negotiate and checksum is None and manifest is None:
        run.questions.want_digest()
    whole = False
    try:
        run.resume()
        run.supervise()
        run.finish()
        whole = True
    finally:
        run.close(keep=keep and not whole and run.job.ledger.bytes > 0)
    job = run.job
    declared = checksum is not None or manifest is not None
    return Fetched(
        path,
        job.ledger.bytes,
        time.monotonic() - begin,
        job.last_url or (urls[0] if urls else ""),
        declared,
        run.proof,
        run.snapshot(),
    )


def _proof_of(checksum: str | None, manifest: Chunks | None) -> str:
    """What a journal must belong to, in one line."""
    if manifest is None:
        return checksum or ""
    import hashlib

    hasher = hashlib.sha256(f"{manifest.size} {manifest.chunk_size} ".encode())
    for number in range(len(manifest.digests)):
        hasher.update(manifest.digests[number])
    return f"{checksum or ''} manifest:{hasher.hexdigest()}"
