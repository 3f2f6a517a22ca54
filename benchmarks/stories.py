"""Stories: what the jobs of a real pool went through, event by event, for other jobs to follow."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

LOGS = Path(__file__).parents[1] / "tests" / "events" / "logs"

#: What a pool of some size sees, in parts of a thousand. A word after the name makes a variant:
#: `failed` ends with return value 1, `stalled` has two stalled transfers before it.
POOL_MIX = {
    "ok_transfer": 370,
    "second_startd": 100,
    "out_remap": 100,
    "gpu": 60,
    "selfckpt": 40,
    "transfer_with_028_sites": 10,
    "ok_transfer failed": 60,
    "ok_transfer stalled": 70,
    "gpu stalled": 20,
    "retriable_cooldown": 20,
    "fail_404": 20,
    "vacate": 40,
    "starter_kill": 10,
    "shadow_kill": 5,
    "schedd_kill_reconnect": 10,
    "curl_plugin_cut_while_progressing": 10,
    "stall_plugin_lifetime": 10,
    "memory": 10,
    "disk": 5,
    "exec_duration": 10,
    "job_duration": 3,
    "missing_input": 4,
    "missing_output": 5,
    "upload_fail": 4,
    "bad_exec": 2,
    "periodic_hold": 2,
}


class Pace(NamedTuple):
    """How long a step takes: `least`, and what a log-normal with this median and spread adds."""

    least: float
    median: float
    spread: float


AT_ONCE = Pace(0, 0, 0)
SOON = Pace(0, 0.6, 0.6)
QUEUE = Pace(5, 1_500, 1.2)
TRANSFER_IN = Pace(20, 400, 0.7)
CUT = Pace(3_600, 40, 0.6)
COMPUTE = Pace(60, 4_000, 0.8)
TRANSFER_OUT = Pace(2, 25, 0.9)
AWAY = Pace(10, 300, 0.8)
HELD = Pace(30, 7_200, 1.2)


@dataclass
class Step:
    """One event of a real job, with fields where another job's event differs."""

    number: int
    words: str  # of its first line
    seconds: int  # since the job's first event, in the real log
    text: str


@dataclass
class Story:
    """The events of one real job, and how their times hang together."""

    steps: list[Step]
    paces: list[Pace]
    attempt: NDArray[np.int32]  # of each event
    execute: NDArray[np.int32]  # steps between which TimeExecute runs
    executed: NDArray[np.int32]
    busy: NDArray[np.int32]  # the step at which TimeSlotBusy begins

    @property
    def size(self) -> int:
        return sum(len(step.text) for step in self.steps)


def stories_of(mix: Mapping[str, int] | None) -> tuple[list[Story], NDArray[np.float64]]:
    """The stories and how often each is told; without a mix all real jobs as they are, in turn."""
    if mix is None:
        stories = [_story(job) for path in sorted(LOGS.glob("*.log")) for job in _jobs(path)]
        return stories, np.full(len(stories), 1 / len(stories))
    stories = []
    stalls = _jobs(LOGS / "curl_plugin_cut_while_progressing.log")[0]
    second = [at for at, step in enumerate(stalls) if step.number == 4][1]
    for name in mix:
        base, _, variant = name.partition(" ")
        steps = _jobs(LOGS / f"{base}.log", site_in_001=True)[0]
        if variant == "failed":
            for step in steps:
                step.text = step.text.replace("(return value 0)", "(return value 1)")
        elif variant == "stalled":
            steps = stalls[: second + 1] + steps[1:]
        stories.append(_story(steps))
    weights = np.array(list(mix.values()), dtype=np.float64)
    return stories, weights / weights.sum()


_HEADER = re.compile(r"(\d{3}) \((\d+)\.(\d+)\.\d+\) (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (.*)")
_FIELDS = [
    (r"\A(\d{3}) \(\d+\.\d+\.\d+\) \S+ \S+", r"\1 ({cluster:03d}.{proc:03d}.000) {day} {clock}"),
    (r"(?m)^Cluster = \d+", "Cluster = {cluster}"),
    (r"(?m)^Proc = \d+", "Proc = {proc}"),
    (r'(?m)^EventTime = "[-\d]+T[:\d]+', 'EventTime = "{day}T{clock}'),
    (r"(TimeExecute \(s\) +:) +\d+", r"\1{execute:>9}"),
    (r"(TimeSlotBusy \(s\) +:) +\d+", r"\1{busy:>9}"),
    (r"(?m)^TimeExecuteUsage = \d+", "TimeExecuteUsage = {execute}"),
    (r"(?m)^TimeSlotBusyUsage = \d+", "TimeSlotBusyUsage = {busy}"),
]
_MACHINE_FIELDS = [
    (r"slot1_\d+@glidein_\w+@127-0-0-1\.pool", "slot1_{slot}@glidein_{glidein}@{host}"),
    (
        r"<127\.0\.0\.1:\d+\?addrs=127\.0\.0\.1-\d+&alias=127-0-0-1\.pool",
        "<{address}:{port}?addrs={address}-{port}&alias={host}",
    ),
    (r"STARTER at 127\.0\.0\.1", "STARTER at {address}"),
    (r"dir_\d+", "dir_{port}"),
    (r"CHTC-Spark-CE1|PDX-Coeus-CE1|GP-ARGO-ksu-backfill|ONE-SLOT", "{site}"),
]
#: The arguments of `str.format`, which is quicker with places than with names.
FIELDS_IN_ORDER = ["cluster", "proc", "day", "clock", "slot", "glidein"]
FIELDS_IN_ORDER += ["host", "address", "port", "site", "execute", "busy"]


def _jobs(path: Path, *, site_in_001: bool = False) -> list[list[Step]]:
    """The jobs of a real log, event by event, in the order of their first events."""
    jobs: dict[tuple[str, str], list[Step]] = {}
    begin: dict[tuple[str, str], datetime] = {}
    for text in path.read_text().split("\n...\n"):
        if not text.strip():
            continue
        header = _HEADER.match(text)
        if header is None:
            raise SystemExit(f"{path}: not an event: {text!r}")
        number, cluster, proc, date, words = header.groups()
        if site_in_001 and number == "001" and "GLIDEIN_ResourceName" not in text:
            text += '\n\tGLIDEIN_ResourceName = "ONE-SLOT"'
        time = datetime.fromisoformat(date)
        first = begin.setdefault((cluster, proc), time)
        step = Step(int(number), words, (time - first).seconds, _template(text))
        jobs.setdefault((cluster, proc), []).append(step)
    return list(jobs.values())


def _template(text: str) -> str:
    about_access_point = text.startswith("000") or "\nSubmitHost" in text
    text = text.replace("{", "{{").replace("}", "}}") + "\n...\n"
    for pattern, field in _FIELDS + ([] if about_access_point else _MACHINE_FIELDS):
        text = re.sub(pattern, field, text)
    for place, name in enumerate(FIELDS_IN_ORDER):
        text = re.sub(r"\{" + name + r"\b", "{" + str(place), text)
    return text


def _story(steps: list[Step]) -> Story:
    count = len(steps)
    attempt, execute, executed, busy = (np.zeros(count, dtype=np.int32) for _ in range(4))
    paces = []
    attempts = started = began = left = before = 0
    for at, step in enumerate(steps):
        if step.words.startswith("Started transferring input"):
            attempts, began = attempts + 1, at
        elif step.number == 1:
            started = at
        elif step.words.startswith("Started transferring output"):
            left = at
        attempt[at] = max(attempts - 1, 0)
        execute[at], executed[at], busy[at] = started, left if left > started else at, began
        paces.append(_pace(steps[before], step) if at else AT_ONCE)
        before = before if step.number == 28 else at
    return Story(steps, paces, attempt, execute, executed, busy)


def _pace(before: Step, after: Step) -> Pace:
    if after.number == 28:  # written at once with the event that it tells of
        return AT_ONCE
    begins = after.number == 1 or after.words.startswith("Started transferring input")
    pace = SOON
    if before.number in (0, 4, 13) and begins:
        pace = QUEUE
    elif before.words.startswith("Started transferring input"):
        pace = CUT if after.seconds - before.seconds >= 15 else TRANSFER_IN
    elif before.words.startswith("Started transferring output"):
        pace = TRANSFER_OUT
    elif before.number in (1, 6, 8, 23):
        pace = COMPUTE
    elif before.words.startswith("Finished transferring output") and after.number in (6, 40):
        pace = COMPUTE  # the transfer was a checkpoint
    elif before.number == 22:
        pace = AWAY
    elif before.number == 12:
        pace = HELD
    return pace
