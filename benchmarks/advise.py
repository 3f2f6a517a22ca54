"""How long `headway advise` takes: one held job from a cold start, and a whole queue of them.

    python benchmarks/advise.py [--jobs N] [--runs N]

Writes two logs. In one a single job is held for its memory. In the other N jobs are held, for as
many different reasons as there are jobs (each names its own object, node and folder), after three
quarters as many others got through, some of them by a release. Runs the console command on each,
interpreter start included, with --offline, because no network is part of the figure, and prints
medians; exits with 1 when one is over its budget (0.5 s and, for 20,000 jobs, 10 s).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from measure import SOURCE, Cost, measure

sys.path.insert(0, str(SOURCE))

from headway.events.format import Resource, Usage, event_lines, resource_lines
from headway.events.write import ending_ad, event_bytes, used_ad

JOBS = 20_000
ONE, MANY = 0.5, 10.0  # seconds; the second is for JOBS jobs
SITES = ("CHTC-Spark-CE1", "PDX-Coeus-CE1", "GP-ARGO-ksu-backfill", "UNL-Swan-CE1", "ND-CAML-GPU")
PER_CLUSTER = 500


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure `headway advise`.")
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        one, many = Path(folder) / "one.log", Path(folder) / "many.log"
        one.write_bytes(b"".join(_over_memory(1, 0, time.time() - 3600)))
        many.write_bytes(b"".join(queue(arguments.jobs)))
        alone = [_advise(one, "1.0") for _ in range(arguments.runs)]
        all_held = [_advise(many) for _ in range(max(1, arguments.runs // 2))]
        size = many.stat().st_size
    first = statistics.median(cost.wall for cost in alone)
    second = statistics.median(cost.wall for cost in all_held)
    allowed = MANY * max(1.0, arguments.jobs / JOBS)
    memory = max(cost.memory for cost in all_held) / 1e6
    print(f"one held job       {first:6.2f} s   {_cpu(alone):5.2f} s of CPU   budget {ONE} s")
    print(
        f"{arguments.jobs:,} held jobs   {second:6.2f} s   {_cpu(all_held):5.2f} s of CPU"
        f"   budget {allowed:g} s   ({size / 1e6:.0f} MB of log, {memory:.0f} MB of memory)"
    )
    if first > ONE or second > allowed:
        print("over the budget")
        return 1
    return 0


def _cpu(costs: list[Cost]) -> float:
    return statistics.median(cost.cpu for cost in costs)


def _advise(log: Path, *more: str) -> Cost:
    return measure([sys.executable, "-m", "headway", "advise", str(log), *more, "--offline"])


def queue(jobs: int) -> Iterator[bytes]:
    """The events of a log in which so many jobs are held at its end."""
    begin = time.time() - 3 * 86400
    for number in range(jobs * 3 // 4):
        yield from _through(*_id(number), begin + number * 3, number)
    for number in range(jobs):
        at = begin + 2 * 86400 + number * 3
        cluster, proc = _id(jobs + number)
        if number % 10 == 9:
            yield from _over_memory(cluster, proc, at)
        else:
            yield from _transfer(cluster, proc, at, number)


def _id(number: int) -> tuple[int, int]:
    return 1 + number // PER_CLUSTER, number % PER_CLUSTER


def _through(cluster: int, proc: int, at: float, number: int) -> Iterator[bytes]:
    if number % 10 == 0:
        yield from _transfer(cluster, proc, at - 1800, number)
        yield event_bytes(13, cluster, proc, at - 900, "Job was released.")
    else:
        yield event_bytes(0, cluster, proc, at, "Job submitted from host: <192.0.2.10:9618>")
    yield event_bytes(40, cluster, proc, at + 1, "Started transferring input files")
    yield _started(cluster, proc, at + 60, number)
    text, *ended = event_lines(ending_ad(0, None) | used_ad(Usage(user=9), 1, 1), 5)
    yield event_bytes(5, cluster, proc, at + 600, text, [*ended, *_resources(900)])


def _transfer(cluster: int, proc: int, at: float, number: int) -> Iterator[bytes]:
    slot = _slot(number)
    said = ("404 page not found", "read: connection reset by peer", "502 Bad Gateway")[number % 3]
    url = f"osdf:///ospool/ap40/data/user{number % 40}/set-{number}/part-{number * 7}.tar"
    reason = (
        f"Transfer input files failure at execution point {slot} using protocol osdf."
        f" Details: {said} ( URL file = {url} )|"
    )
    yield event_bytes(0, cluster, proc, at, "Job submitted from host: <192.0.2.10:9618>")
    yield event_bytes(40, cluster, proc, at + 1, "Started transferring input files")
    yield event_bytes(40, cluster, proc, at + 5, "Finished transferring input files")
    error = [f"\tFailed to transfer files: |Error: {said}", "\tCode 12 Subcode 256"]
    yield event_bytes(21, cluster, proc, at + 5, f"Error from starter on {slot}:", error)
    yield _evicted(cluster, proc, at + 5, "13 Subcode 256", reason, 0)
    held = [f"\t{reason}", "\tCode 13 Subcode 256"]
    yield event_bytes(12, cluster, proc, at + 5, "Job was held.", held)


def _over_memory(cluster: int, proc: int, at: float) -> Iterator[bytes]:
    reason = f"Error from {_slot(proc)}: memory usage exceeded request_memory"
    yield event_bytes(0, cluster, proc, at, "Job submitted from host: <192.0.2.10:9618>")
    yield event_bytes(40, cluster, proc, at + 1, "Started transferring input files")
    yield _started(cluster, proc, at + 60, proc)
    yield _evicted(cluster, proc, at + 900, "21 Subcode 102", reason, 9000)
    held = [f"\t{reason}", "\tCode 21 Subcode 102"]
    yield event_bytes(12, cluster, proc, at + 900, "Job was held.", held)


def _started(cluster: int, proc: int, at: float, number: int) -> bytes:
    site = SITES[number % len(SITES)]
    body = [f"\tSlotName: {_slot(number)}", f'\tGLIDEIN_ResourceName = "{site}"', "\tGPUs = 1"]
    return event_bytes(1, cluster, proc, at, "Job executing on host: <198.51.100.7:9618>", body)


def _evicted(cluster: int, proc: int, at: float, code: str, reason: str, memory: int) -> bytes:
    _, *body = event_lines(used_ad(None, 0, 0) | {"Reason": reason}, 4)
    body += _resources(memory)
    return event_bytes(4, cluster, proc, at, f"Job was evicted. Code {code}", body)


def _resources(memory: int) -> list[str]:
    return resource_lines({"GPUs": Resource(None, 1, 1), "Memory": Resource(memory, 8192, 8192)})


def _slot(number: int) -> str:
    return f"slot1_1@glidein_{number}@gpu{number % 900}.{SITES[number % len(SITES)].lower()}.edu"


if __name__ == "__main__":
    sys.exit(main())
