"""The shapes that events have in real logs, as HTCondor 7 to 24 wrote them, and a log made of them.

    python benchmarks/shapes.py FILE [--size MB]

The words are HTCondor's own. The log has three ages: dates without a year and plain addresses,
then longer addresses and tables, then dates with a year, slots, transfers and codes. Cluster ids
have 1 to 10 digits, and there are 5,000 hosts. The same arguments make the same bytes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from made_logs import Made
from numpy.typing import NDArray


def _usages(*names: str) -> str:
    return "".join(
        f"\t\tUsr 0 00:12:07, Sys 0 00:00:{at:02d}  -  {name}\n" for at, name in enumerate(names)
    )


_RUN = _usages("Run Remote Usage", "Run Local Usage")
_ALL = _usages("Run Remote Usage", "Run Local Usage", "Total Remote Usage", "Total Local Usage")
_RUN_BYTES = "\t{number}  -  Run Bytes Sent By Job\n\t{number}655  -  Run Bytes Received By Job\n"
_ALL_BYTES = (
    _RUN_BYTES
    + "\t{number}  -  Total Bytes Sent By Job\n\t{number}655  -  Total Bytes Received By Job\n"
)
_TABLE = (
    "\tPartitionable Resources :    Usage  Request Allocated \n"
    "\t   Cpus                 :                 1         1 \n"
    "\t   Disk (KB)            :   925944  4194304  35008281 \n"
    "\t   Memory (MB)          :        4     8000      8000 \n"
)
_WIDE_TABLE = (
    "\tPartitionable Resources :        Usage     Request  Allocated \n"
    "\t   Cpus                 :         1.00          16         16 \n"
    "\t   Disk (KB)            :    118864152    78643200 1810509281 \n"
    "\t   Ioheavy              :                                   0 \n"
    "\t   Memory (MB)          :       177342      204800     204800 \n"
)
_NEW_TABLE = (
    "\tPartitionable Resources :    Usage  Request Allocated Assigned\n"
    "\t   Cpus                 :     0.02        1         1 \n"
    "\t   Disk (KB)            :    21     1048576   1048576 \n"
    '\t   GPUs                 :                 1         1 "GPU-a0223334"\n'
    "\t   Memory (MB)          :     9          64       128 \n"
    "\t   TimeExecute (s)      :   {number}                    \n"
    "\t   TimeSlotBusy (s)     :   {number}                    \n"
)
_ADDRESS = "<{ip}:{port}>"
_QUERY = "<{ip}:{port}?addrs={ip}-{port}&noUDP&sock={number}_affc_3>"
_CCB = (
    "<{ip}:{port}?CCBID=128.104.100.30:9640%3faddrs%3d128.104.100.30-9640#{number}"
    "&addrs={ip}-{port}&noUDP>"
)
_ALIAS = "<{ip}:{port}?addrs={ip}-{port}&alias={host}&noUDP&sock=startd_{number}>"
_ENDED = "\n\tJob terminated of its own accord at {utc}Z with exit-code 0.\n"

#: By name: the event without its header's number, id and date, and the number.
SHAPES: dict[str, tuple[int, str]] = {
    "000 <ip:port>": (0, f"Job submitted from host: {_ADDRESS}\n"),
    "000 alias": (0, f"Job submitted from host: {_ALIAS}\n"),
    "000 DAG node": (0, f"Job submitted from host: {_ADDRESS}\n    DAG Node: B{{number}}\n"),
    "001 <ip:port>": (1, f"Job executing on host: {_ADDRESS}\n"),
    "001 query": (1, f"Job executing on host: {_QUERY}\n"),
    "001 CCB": (1, f"Job executing on host: {_CCB}\n"),
    "001 no brackets": (1, "Job executing on host: {slot}@{host}\n"),
    "001 SlotName": (
        1,
        f"Job executing on host: {_ALIAS}\n\tSlotName: {{slot}}@{{host}}\n"
        '\tCondorScratchDir = "/var/lib/condor/execute/dir_{number}"\n'
        "\tCpus = 1\n\tDisk = 1048576\n\tGPUs = 0\n\tMemory = 128\n",
    ),
    "002": (2, "(1) Job not properly linked for Condor.\n"),
    "003": (3, f"Job was checkpointed.\n{_RUN}"),
    "004 no code": (4, f"Job was evicted.\n\t(0) Job was not checkpointed.\n{_RUN}{_RUN_BYTES}"),
    "004 no code, no bytes": (4, f"Job was evicted.\n\t(1) Job was checkpointed.\n{_RUN}"),
    "004 no code, table": (
        4,
        f"Job was evicted.\n\t(0) Job was not checkpointed.\n{_RUN}{_RUN_BYTES}{_TABLE}",
    ),
    "004 requeued": (
        4,
        f"Job was evicted.\n\t(0) Job terminated and was requeued\n{_RUN}{_RUN_BYTES}"
        "\t(1) Normal termination (return value 1)\n"
        "\tThe job attribute OnExitRemove expression '(ExitCode == 0)' evaluated to FALSE\n",
    ),
    "004 code": (
        4,
        f"Job was evicted. Code 1006 Subcode 0\n\t(0) CPU times\n{_RUN}{_RUN_BYTES}"
        f"\tReason: Error from {{slot}}@{{host}}: STARTER at {{ip}} failed\n{_NEW_TABLE}",
    ),
    "005 no table": (
        5,
        f"Job terminated.\n\t(1) Normal termination (return value 0)\n{_ALL}{_ALL_BYTES}",
    ),
    "005 signal": (
        5,
        "Job terminated.\n\t(0) Abnormal termination (signal 9)\n\t(0) No core file\n"
        f"{_ALL}{_ALL_BYTES}",
    ),
    "005 table": (
        5,
        f"Job terminated.\n\t(1) Normal termination (return value 0)\n{_ALL}{_ALL_BYTES}{_TABLE}",
    ),
    "005 wide table": (
        5,
        f"Job terminated.\n\t(1) Normal termination (return value 1)\n{_ALL}{_ALL_BYTES}"
        f"{_WIDE_TABLE}",
    ),
    "005 new": (
        5,
        f"Job terminated.\n\t(1) Normal termination (return value 0)\n{_ALL}{_ALL_BYTES}"
        f"{_NEW_TABLE}{_ENDED}",
    ),
    "006": (6, "Image size of job updated: {number}\n"),
    "006 new": (
        6,
        "Image size of job updated: {number}\n\t3  -  MemoryUsage of job (MB)\n"
        "\t{number}  -  ResidentSetSize of job (KB)\n",
    ),
    "007": (
        7,
        "Shadow exception!\n\tError from {slot}@{host}: STARTER at {ip} failed to send file(s) to"
        f" <{{ip}}:{{port}}>\n{_RUN_BYTES}",
    ),
    "007 short": (7, f"Shadow exception!\n\tCan no longer talk to condor_starter\n{_RUN_BYTES}"),
    "008": (8, "some words of the user about step {number}\n"),
    "009": (9, "Job was aborted by the user.\n\tvia condor_rm (by user ann)\n"),
    "009 no reason": (9, "Job was aborted by the user.\n"),
    "010": (10, "Job was suspended.\n\tNumber of processes actually suspended: 4\n"),
    "011": (11, "Job was unsuspended.\n"),
    "012 no code": (12, "Job was held.\n\tReason unspecified\n"),
    "012 code": (
        12,
        "Job was held.\n\tError from {slot}@{host}: Failed to execute '/home/ann/run.sh': (errno=2:"
        " 'No such file or directory')\n\tCode 6 Subcode 2\n",
    ),
    "012 two lines": (
        12,
        "Job was held.\n\tError from {slot}@{host}: first\n\tsecond {number}\n"
        "\tCode 13 Subcode -1\n",
    ),
    "013": (13, "Job was released.\n\tvia condor_release (by user ann)\n"),
    "014": (14, f"Node 0 executing on host: {_ADDRESS}\n"),
    "016": (
        16,
        "POST Script terminated.\n\t(1) Normal termination (return value 0)\n"
        "    DAG Node: B{number}\n",
    ),
    "021": (
        21,
        "Error from starter on {slot}@{host}:\n\tFailed to open '/scratch/dir_{number}/x':"
        " Permission denied (errno 13)\n\tCode 7 Subcode 13\n",
    ),
    "022": (
        22,
        "Job disconnected, attempting to reconnect\n    Socket between submit and execute hosts"
        f" closed unexpectedly\n    Trying to reconnect to {{slot}}@{{host}} {_ADDRESS}\n",
    ),
    "023": (
        23,
        f"Job reconnected to {{slot}}@{{host}}\n    startd address: {_ADDRESS}\n"
        f"    starter address: {_ADDRESS}\n",
    ),
    "024": (
        24,
        "Job reconnection failed\n    Job disconnected too long: JobLeaseDuration (2400 seconds)"
        " expired\n    Can not reconnect to {slot}@{host}, rescheduling job\n",
    ),
    "025": (25, "Grid Resource Back Up\n    GridResource: gt2 gate.{host}/jobmanager\n"),
    "026": (26, "Detected Down Grid Resource\n    GridResource: gt2 gate.{host}/jobmanager\n"),
    "027": (
        27,
        "Job submitted to grid resource\n    GridResource: condor {host} {host}\n"
        "    GridJobId: condor {host} {host} {number}.0\n",
    ),
    "028": (
        28,
        'Job ad information event triggered.\nProc = 0\nEventTime = "2014-03-03T15:12:32"\n'
        'TriggerEventTypeName = "ULOG_EXECUTE"\nTriggerEventTypeNumber = 1\nMyType = '
        '"ExecuteEvent"\nOwner = "ann"\nMachineAttrGLIDEIN_ResourceName0 = "{site}"\n'
        'RemoteHost = "{slot}@{host}"\nCluster = {number}\nSubproc = 0\n',
    ),
    "029": (29, "The job's remote status is unknown\n"),
    "030": (30, "The job's remote status is known again\n"),
    "033": (33, "Changing job attribute RequestMemory from {number} to 2048\n"),
    "035": (35, f"Cluster submitted from host: {_ADDRESS}\n"),
    "036": (36, "Cluster removed\n\tMaterialized {number} jobs from {number} items.\tComplete\n"),
    "040 queued": (40, "Entered queue to transfer input files\n"),
    "040 started": (40, f"Started transferring input files\n\tTransferring to host: {_ALIAS}\n"),
    "040 after a queue": (
        40,
        "Started transferring input files\n\tSeconds spent in queue: {number}\n"
        f"\tTransferring to host: {_ALIAS}\n",
    ),
    "040 finished": (40, "Finished transferring output files\n"),
}


class Header(NamedTuple):
    """How headers look, and what surrounds an event."""

    date: str = "%Y-%m-%d %H:%M:%S"
    digits: int = 3  # of a cluster, at least
    between: str = ""  # the events
    newline: str = "\n"


#: Around any event.
HEADERS = {
    "with a year": Header(),
    "no year": Header("%m/%d %H:%M:%S"),
    "T": Header("%Y-%m-%dT%H:%M:%S"),
    "Z": Header("%Y-%m-%d %H:%M:%SZ"),
    "offset": Header("%Y-%m-%dT%H:%M:%S+01:00"),
    "milliseconds": Header("%Y-%m-%d %H:%M:%S.123"),
    "9 digits": Header(digits=9),
    "10 digits": Header(digits=10),
    "blank lines": Header(between="\n"),
    "carriage returns": Header(newline="\r\n"),
}

HOSTS = 5_000
SEED = 15
_CHUNK = 50_000
#: The ages of the log: when it begins, the dates, and what its jobs go through, and how often.
_AGES: tuple[tuple[str, Header, tuple[tuple[int, str], ...]], ...] = (
    (
        "2009-03-01",
        HEADERS["no year"],
        (
            (5, "000 <ip:port>,001 <ip:port>,006,006,005 no table"),
            (3, "000 DAG node,001 <ip:port>,006,004 no code,001 <ip:port>,005 no table,016"),
            (2, "000 <ip:port>,001 <ip:port>,004 no code, no bytes,001 <ip:port>,006,005 signal"),
            (1, "000 <ip:port>,001 <ip:port>,007 short,001 <ip:port>,012 no code,013,009"),
            (1, "000 <ip:port>,001 <ip:port>,022,024,001 <ip:port>,010,011,005 signal"),
            (1, "000 <ip:port>,027,026,025,001 no brackets,005 no table"),
            (1, "000 <ip:port>,001 <ip:port>,003,002,009 no reason"),
        ),
    ),
    (
        "2015-06-01",
        HEADERS["no year"],
        (
            (5, "000 <ip:port>,001 query,006 new,006 new,005 table"),
            (4, "000 DAG node,001 CCB,006 new,004 no code, table,001 query,005 table,016"),
            (2, "000 <ip:port>,001 query,021,012 code,013,001 query,005 wide table"),
            (1, "000 <ip:port>,001 CCB,007,001 CCB,022,023,005 wide table,028"),
            (1, "000 <ip:port>,001 query,033,029,030,008,009,036"),
        ),
    ),
    (
        "2021-02-01",
        HEADERS["with a year"],
        (
            (5, "000 alias,040 queued,040 after a queue,001 SlotName,006 new,040 finished,005 new"),
            (3, "000 alias,040 started,001 SlotName,006 new,004 code,001 SlotName,005 new"),
            (1, "000 alias,001 SlotName,004 requeued,001 SlotName,012 two lines,013,009"),
            (1, "000 alias,001 SlotName,028,022,023,021,012 code,036"),
        ),
    ),
)  # fmt: skip


class _Hosts:
    def __init__(self, random: np.random.Generator) -> None:
        sites = [f"Site-{at:02d}" for at in range(40)]
        self.fields = [
            {
                "ip": f"10.{at // 250}.{at % 250}.7",
                "host": f"node{at:04d}.site{at % 40:02d}.example.edu",
                "site": sites[at % 40],
            }
            for at in range(HOSTS)
        ]

    def of(self, at: int, number: int) -> dict[str, Any]:
        """The fields of an event at this host."""
        more = {"port": 10_000 + number % 50_000, "slot": f"slot1_{number % 8}", "number": number}
        return self.fields[at] | more


def event(shape: str, header: Header, cluster: int, proc: int, date: str, fields: Any) -> str:
    """One event of this shape."""
    number, words = SHAPES[shape]
    text = f"{number:03d} ({cluster:0{header.digits}d}.{proc:03d}.000) {date} "
    text += words.format(**fields) + "...\n" + header.between
    return text.replace("\n", header.newline) if header.newline != "\n" else text


def alone(shape: str, header: Header, count: int) -> bytes:
    """So many events of one shape, of jobs that begin a second after each other."""
    random = np.random.default_rng(SEED)
    hosts = _Hosts(random)
    begin = datetime(2019, 1, 7, tzinfo=timezone.utc).timestamp()
    place = random.integers(0, HOSTS, count).tolist()
    parts = []
    for at in range(count):
        moment = datetime.fromtimestamp(begin + at, timezone.utc)
        fields = hosts.of(place[at], 100 + at) | {"utc": moment.strftime("%Y-%m-%dT%H:%M:%S")}
        cluster = 1 + at if header.digits < 9 else 10 ** (header.digits - 1) + at
        parts.append(event(shape, header, cluster, 0, moment.strftime(header.date), fields))
    return "".join(parts).encode()


def make_shapes(path: Path, size: int, *, seed: int = SEED) -> Made:
    """Writes a log of at least so many bytes with all three ages, and says what is in it."""
    random = np.random.default_rng(seed)
    hosts = _Hosts(random)
    jobs = events = 0
    with open(path, "wb") as file:
        for begin, header, stories in _AGES:
            first, goal = file.tell(), size // len(_AGES) + 1
            at = datetime.fromisoformat(begin).replace(tzinfo=timezone.utc).timestamp()
            while file.tell() - first < goal:
                made = list(_some(stories, at, jobs, header, hosts, random))
                at = made[-1][0]  # the next jobs come when these have ended
                jobs += _CHUNK // 10
                events += len(made)
                file.write("".join(text for _, text in made).encode())
        return Made(jobs, events, file.tell())


def _some(
    stories: tuple[tuple[int, str], ...],
    begin: float,
    first: int,
    header: Header,
    hosts: _Hosts,
    random: np.random.Generator,
) -> Iterator[tuple[float, str]]:
    """The events of some jobs, in the order of their times."""
    count = _CHUNK // 10
    share = np.array([weight for weight, _ in stories], np.float64)
    told = random.choice(len(stories), count, p=share / share.sum())
    shapes = [_shapes(words) for _, words in stories]
    clusters = _clusters(count, random)
    arrival = begin + np.sort(random.integers(0, 86_400, count))
    found = []
    for job in range(count):
        at = float(arrival[job])
        place = int(random.integers(0, HOSTS))
        for shape in shapes[told[job]]:
            at += int(random.integers(1, 1_200))
            if shape.startswith("001"):
                place = int(random.integers(0, HOSTS))
            found.append((at, job, shape, place))
    found.sort()
    for at, job, shape, place in found:
        moment = datetime.fromtimestamp(at, timezone.utc)
        fields = hosts.of(place, 100 + job) | {"utc": moment.strftime("%Y-%m-%dT%H:%M:%S")}
        date = moment.strftime(header.date)
        yield at, event(shape, header, int(clusters[job]), first + job, date, fields)


def _shapes(words: str) -> list[str]:
    """Names that are separated by commas, and may have commas themselves."""
    found: list[str] = []
    for part in words.split(","):
        if part.startswith(" "):
            found[-1] += "," + part
        else:
            found.append(part)
    return found


def _clusters(count: int, random: np.random.Generator) -> NDArray[np.int64]:
    digits = random.integers(1, 11, count)
    low, high = 10 ** (digits - 1), np.minimum(10**digits, 2**31 - 1)
    return (low + random.random(count) * (high - low)).astype(np.int64)


def main() -> int:
    parser = argparse.ArgumentParser(description="Make an event log of the shapes of real ones.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--size", type=float, default=200.0, help="megabytes")
    arguments = parser.parse_args()
    made = make_shapes(arguments.file, int(arguments.size * 1e6))
    print(f"{made.size / 1e6:.1f} MB, {made.events} events of {made.jobs} jobs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
