"""The study's 100 jobs as event logs: `python -m tests.report.study FOLDER` writes them.

From the table, to the second: each job's outcome, sites, compute (TimeExecute), TimeSlotBusy,
compute of evicted attempts, all input transfer time and the part of it that succeeded; how often it
was stalled, held and evicted. A job with more than one site has gone through them in this order.

Made up, because the table does not know: when jobs were submitted and matched, and the slots (as
few as it takes to need about a week); how the lost transfer time is divided: evenly over the stalls
of a job, but for short transfers before a hold or an eviction (the study's text knows those of
794570.006 and .010); without stalls, evenly over the transfers that ended in a hold or an eviction.
What 794570.010 lost beside its evicted attempt ended in a shadow exception, since the table counts
neither a stall nor a hold of it. Nothing lies between a transfer, the compute and the end, as in
the table's sums. Slots, addresses, bytes, memory and disk are made up as well, and plausible; so
are the words, but for those of the holds that lasted.
"""

from __future__ import annotations

import csv
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from pathlib import Path

from headway.events.format import EventType, Resource, Usage, event_lines, resource_lines
from headway.events.write import ending_ad, event_bytes, used_ad

TABLE = Path(__file__).parent / "data" / "ospool-imagenet-100-jobs.csv"

SUBMITTED = {794569: datetime(2024, 9, 2, 9, 30), 794570: datetime(2024, 9, 3, 9, 30)}
#: Slots by site; the study does not know the site of 15 jobs.
SLOTS = {"CHTC-Spark-CE1": 2, "PDX-Coeus-CE1": 3, "GP-ARGO-ksu-backfill": 1, "": 6}

URL = "osdf:///nrp/osdf/ILSVRC2012/ILSVRC2012_img_train.tar"
TAR = 147_897_477_120  # bytes of ImageNet's training images
MODEL = 102_532_867
#: Seconds of transfers that ended in a hold or, by the study's text, in an eviction.
HELD_TRANSFER = 300
EVICTED_TRANSFERS = (447, 522)
ARRIVED_THEN_EVICTED = 939
#: Stalls before each hold that was released, by the study's text; of other jobs, all of them.
STALLS_BEFORE_HOLD = {
    (794569, 14): (5,),
    (794569, 30): (8,),
    (794569, 34): (12,),
    (794569, 37): (10, 6),
}


@dataclass(frozen=True)
class Row:
    """One row of the table; seconds, None where the cell is empty."""

    cluster: int
    proc: int
    sites: tuple[str, ...]
    outcome: str
    execute: int | None
    busy: int | None
    wasted: int
    transfer: int
    last: int
    stalls: int
    holds: int
    evictions: int


def rows(path: Path = TABLE) -> list[Row]:
    """The table."""
    with path.open(newline="") as file:
        return [_row(cells) for cells in csv.DictReader(file)]


def _row(cells: dict[str, str]) -> Row:
    cluster, proc, _ = cells["job_id"].split(".")
    return Row(
        int(cluster),
        int(proc),
        tuple(cells["sites"].split(";")),
        cells["outcome"],
        int(cells["execute_s"]) if cells["execute_s"] else None,
        int(cells["slot_busy_s"]) if cells["slot_busy_s"] else None,
        int(cells["wasted_execute_s"]),
        int(cells["transfer_total_s"]),
        int(cells["transfer_last_s"]),
        int(cells["stalls"]),
        int(cells["holds"]),
        int(cells["evictions"]),
    )


class Ending(Enum):
    """How an attempt came to its end."""

    SUCCESS = "success"
    WRONG_OUTPUT = "wrong_output"
    NOT_FOUND = "held_transfer_404"
    OVER_TIME = "held_execute_duration"
    STALL = "stall"
    HOLD = "hold"  # for a transfer, and released
    EVICTION = "eviction"
    EXCEPTION = "shadow exception"


@dataclass(frozen=True)
class Try:
    """One attempt: where, how long its input transfer and its compute took, how it ended."""

    site: str
    transfer: int
    ending: Ending
    execute: int | None = None  # None: it never got to 001


def tries(row: Row) -> list[Try]:
    """The attempts of a job, its sites in order, the lost transfer time divided over them."""
    final = Try(row.sites[-1], row.last, Ending(row.outcome), row.execute)
    released = row.holds - (1 if final.ending in _LASTING_HOLDS else 0)
    lost = row.transfer - row.last
    if row.wasted:
        evicted = Try(row.sites[0], ARRIVED_THEN_EVICTED, Ending.EVICTION, row.wasted)
        rest = Try(row.sites[-1], lost - evicted.transfer, Ending.EXCEPTION)
        return [evicted, rest, final]
    if row.stalls:
        return [*_stalled(row, lost, released), final]
    ending = Ending.HOLD if released else Ending.EVICTION
    shares = _evenly(lost, released or row.evictions)
    return [*(Try(row.sites[0], seconds, ending) for seconds in shares), final]


_LASTING_HOLDS = (Ending.NOT_FOUND, Ending.OVER_TIME)


def _stalled(row: Row, lost: int, released: int) -> Iterator[Try]:
    evicted = EVICTED_TRANSFERS[: row.evictions]
    for site, seconds in zip(row.sites, evicted, strict=False):
        yield Try(site, seconds, Ending.EVICTION)
    stalls = _evenly(lost - sum(evicted) - released * HELD_TRANSFER, row.stalls)
    before = STALLS_BEFORE_HOLD.get((row.cluster, row.proc), (row.stalls,))[:released]
    for count in before:
        for _ in range(count):
            yield Try(row.sites[0], stalls.pop(), Ending.STALL)
        yield Try(row.sites[0], HELD_TRANSFER, Ending.HOLD)
    while stalls:
        yield Try(row.sites[-1], stalls.pop(), Ending.STALL)


def _evenly(whole: int, parts: int) -> list[int]:
    if not parts:
        assert whole == 0
        return []
    each, more = divmod(whole, parts)
    return [each + 1] * more + [each] * (parts - more)


@dataclass
class Slot:
    """One slot of a site, taken by one attempt after the other."""

    site: str
    number: int
    address: str
    free: float = 0.0

    @property
    def machine(self) -> str:
        """The name of the node."""
        return f"gpu{self.number}.{self.site.lower() or 'elsewhere'}.pool.test"

    @property
    def name(self) -> str:
        """As HTCondor writes it."""
        return f"slot1_1@glidein_{self.number}@{self.machine}"

    @property
    def host(self) -> str:
        """As HTCondor writes it."""
        dashed = f"{self.address}-9618"
        return f"<{self.address}:9618?addrs={dashed}&alias={self.machine}>"


@dataclass
class _Job:
    row: Row
    left: list[Try]
    ready: float
    events: list[tuple[float, bytes]] = field(default_factory=list)

    def note(self, at: float, number: int, text: str, body: list[str] | None = None) -> None:
        row = self.row
        self.events.append((at, event_bytes(number, row.cluster, row.proc, at, text, body or [])))


def logs() -> dict[str, bytes]:
    """The event logs by name, one a cluster, in the form of HTCondor 25."""
    chance = random.Random(794569)
    slots = {site: [_slot(site, n) for n in range(count)] for site, count in SLOTS.items()}
    jobs = [_Job(row, tries(row), SUBMITTED[row.cluster].timestamp()) for row in rows()]
    for job in jobs:
        job.note(job.ready, 0, f"Job submitted from host: {_AP}")
        job.ready += 20

    def match(job: _Job) -> tuple[float, Slot]:
        slot = min(slots[job.left[0].site], key=lambda slot: slot.free)
        return max(job.ready, slot.free), slot

    # As the schedd does it: who can begin first, and of several the one that was submitted first.
    while waiting := [job for job in jobs if job.left]:
        job = min(waiting, key=lambda job: match(job)[0])
        end, slot = match(job)
        end = _attempted(job, job.left[0], slot, end)
        while job.left[0].ending is Ending.STALL:
            # It stays where it is, and begins again from nothing.
            del job.left[0]
            end = _attempted(job, job.left[0], slot, end + chance.randrange(1, 4))
        slot.free = end + chance.randrange(2, 30)
        job.ready = end + chance.randrange(2, 120)
        if job.left[0].ending is Ending.HOLD:
            job.ready += chance.randrange(1800, 7200)
            job.note(job.ready, 13, "Job was released.", ["\tvia condor_release (by user ml)"])
            job.ready += chance.randrange(5, 60)
        del job.left[0]
    return {
        f"imagenet-{cluster}.log": b"".join(
            event
            for _, event in sorted(
                (event for job in jobs if job.row.cluster == cluster for event in job.events),
                key=lambda event: event[0],
            )
        )
        for cluster in SUBMITTED
    }


_AP = "<192.0.2.10:9618?addrs=192.0.2.10-9618&alias=ap.pool.test>"


def _slot(site: str, number: int) -> Slot:
    net = list(SLOTS).index(site)
    return Slot(site, number + 1, f"198.51.100.{net * 50 + number + 1}")


def _attempted(job: _Job, attempt: Try, slot: Slot, begin: float) -> float:
    """Notes what the log says about one attempt; when it ended."""
    arrived = begin + attempt.transfer
    job.note(begin, 40, "Started transferring input files", _to(slot))
    if attempt.execute is None:
        _lost(job, attempt, slot, arrived)
        return arrived
    job.note(arrived, 40, "Finished transferring input files")
    job.note(arrived, 1, f"Job executing on host: {slot.host}", _execution(slot))
    job.note(arrived + 1, 6, "Image size of job updated: 12582912", _memory())
    end = arrived + attempt.execute
    if attempt.ending is Ending.EVICTION:
        reason = "Job vacated by schedd"
        table = _resources(attempt.execute, attempt.execute + attempt.transfer)
        job.note(end, 4, "Job was evicted. Code 1022 Subcode 0", _evicted(reason, table))
    elif attempt.ending is Ending.OVER_TIME:
        reason = "The job exceeded allowed execute duration of 20:00:00"
        job.note(end, 12, "Job was held.", [f"\t{reason}", "\tCode 47 Subcode 0"])
    else:
        job.note(end, 40, "Started transferring output files")
        job.note(end, 40, "Finished transferring output files")
        job.note(end, 5, "Job terminated.", _terminated(job.row, attempt))
    return end


def _lost(job: _Job, attempt: Try, slot: Slot, at: float) -> None:
    """Notes how an input transfer ended that did not arrive."""
    ending = attempt.ending
    if ending is Ending.STALL:
        stalled = "Input File transfer stalled for 3600 seconds"
        job.note(at - 2, 21, f"Error from starter on {slot.name}:", [f"\t{stalled}"])
        body = _evicted(f"Error from {slot.name}: {stalled}", _resources())
        job.note(at, 4, "Job was evicted. Code 1007 Subcode 0", body)
    elif ending is Ending.EVICTION:
        body = _evicted("Job vacated by schedd", _resources())
        job.note(at, 4, "Job was evicted. Code 1022 Subcode 0", body)
    elif ending is Ending.EXCEPTION:
        body = [f"\tError from {slot.name}: Failed to transfer files"]
        body += ["\t0  -  Run Bytes Sent By Job", "\t0  -  Run Bytes Received By Job"]
        job.note(at, 7, "Shadow exception!", body)
    else:
        said = (
            "404 page not found" if ending is Ending.NOT_FOUND else "read: connection reset by peer"
        )
        detail = f"{said} ( URL file = {URL} )|"
        plugin = "FILETRANSFER:1:non-zero exit (1) from /usr/libexec/condor/stash_plugin."
        error = [f"\tFailed to transfer files: {plugin} |Error: {detail}", "\tCode 12 Subcode 256"]
        where = f"Transfer input files failure at execution point {slot.name} using protocol osdf."
        reason = f"{where} Details: {detail}"
        job.note(at, 40, "Finished transferring input files")
        job.note(at, 40, "Started transferring output files")
        job.note(at, 21, f"Error from starter on {slot.name}:", error)
        body = _evicted(reason, _resources())
        job.note(at, 4, "Job was evicted. Code 13 Subcode 256", body)
        job.note(at, 12, "Job was held.", [f"\t{reason}", "\tCode 13 Subcode 256"])


def _to(slot: Slot) -> list[str]:
    return [f"\tTransferring to host: {slot.host}"]


def _execution(slot: Slot) -> list[str]:
    gpu = f"GPU_{slot.number:08x}"
    return [
        f"\tSlotName: {slot.name}",
        f"\tAvailableGPUs = {{ GPUs_{gpu} }}",
        f'\tCondorScratchDir = "/srv/glidein_{slot.number}/execute/dir_{slot.number}/scratch"',
        "\tCpus = 1",
        "\tDisk = 419430400",
        f'\tGLIDEIN_ResourceName = "{slot.site}"',
        "\tGPUs = 1",
        f'\tGPUs_{gpu} = [ Id = "{gpu.replace("_", "-")}"; Capability = 8.0 ]',
        "\tMemory = 16384",
    ]


def _memory() -> list[str]:
    return ["\t12288  -  MemoryUsage of job (MB)", "\t12582912  -  ResidentSetSize of job (KB)"]


def _evicted(reason: str, resources: list[str]) -> list[str]:
    ad = used_ad(None, 0, 0) | {"Reason": reason}
    return [*event_lines(ad, EventType.EVICTED)[1:], *resources]


def _terminated(row: Row, attempt: Try) -> list[str]:
    assert attempt.execute is not None
    good = attempt.ending is Ending.SUCCESS
    busy = row.busy or attempt.execute + attempt.transfer
    used = used_ad(Usage(user=attempt.execute), MODEL if good else 0, TAR)
    ad = ending_ad(0 if good else 1, None) | used
    return [*event_lines(ad, EventType.TERMINATED)[1:], *_resources(attempt.execute, busy)]


def _resources(execute: int | None = None, busy: int | None = None) -> list[str]:
    ran = execute is not None
    table = {
        "Cpus": Resource(0.9 if ran else None, 1, 1),
        "Disk": Resource(335_544_320 if ran else 1, 419_430_400, 419_430_400),
        "GPUs": Resource(None, 1, 1),
        "Memory": Resource(12_288 if ran else None, 16_384, 16_384),
    }
    if ran:
        table |= {"TimeExecute": Resource(execute), "TimeSlotBusy": Resource(busy)}
    return resource_lines(table)


def write(folder: Path) -> list[Path]:
    """Writes the logs into a folder; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, data in logs().items():
        paths.append(folder / name)
        paths[-1].write_bytes(data)
    return paths


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tests.report.study FOLDER")
    for written in write(Path(sys.argv[1])):
        print(written)
