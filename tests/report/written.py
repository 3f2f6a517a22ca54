"""Event logs that tests write with the local pool's own writer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headway.events import Direction, EventWriter, Stage

HOST = "<127.0.0.1:9618>"
BEGIN = 1_757_000_000.0
#: Text that acts on a terminal, in a page and in a spreadsheet.
HOSTILE = '=HYPERLINK("http://x")\x1b[2J\x07<script>alert(1)</script>\u202e\''


def write_log(
    path: Path,
    endings: Sequence[int | str | None],
    *,
    cluster: int = 1,
    begin: float = BEGIN,
    site: str = "Site",
    transfer: float = 100,
    compute: float = 1000,
) -> Path:
    """One job for each ending: a return value, None (still running) or the reason of a hold.

    Each is queued for 10 s, transfers and computes as told, at its site.
    """
    with EventWriter(path) as log, log.group():
        for proc, ending in enumerate(endings):
            log.submitted(cluster, proc, HOST, time=begin)
            log.transfer(cluster, proc, Direction.INPUT, Stage.STARTED, host=HOST, time=begin + 10)
            log.transfer(cluster, proc, Direction.INPUT, Stage.FINISHED, time=begin + 10 + transfer)
            attributes = {"GLIDEIN_ResourceName": site}
            log.executing(
                cluster,
                proc,
                HOST,
                slot="slot1@node",
                attributes=attributes,
                time=begin + 10 + transfer,
            )
            end = begin + 10 + transfer + compute
            if isinstance(ending, str):
                log.held(cluster, proc, ending, 13, 256, time=end)
            elif ending is not None:
                log.terminated(cluster, proc, return_value=ending, received=1_000_000_000, time=end)
    return path
