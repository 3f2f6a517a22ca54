"""`headway deliveries` on a real pool: outputs that wait, and what is done about it."""

from __future__ import annotations

import json
import re
from typing import Any

from headway.api import Run
from headway.cli.wrap import write_plugin
from headway.events import JobState, Outcome, Status
from headway.node.host import COURIER
from headway.pool.htcondor.node_config import NodeSettings, node_config

from .harness import Pool
from .jobs import PlainJob
from .places import CondorPlace
from .together import beside_others

JOB = """\
name = "{name}"
shell = true
command = "head -c 12000000 /dev/urandom > out.bin"
count = {count}
[outputs]
files = ["out.bin"]
deliver = "later"
[resources]
memory = "64 MB"
disk = "50 MB"
[sites]
only = ["{site}"]
[submit]
"+WantsSite" = '"{site}"'
"""


def add_site(pool: Pool, name: str) -> None:
    """A site with a store and one transfer slot."""
    program = pool.home / f"headway-node-{name}.pyz"
    write_plugin(program)
    settings = NodeSettings(program=str(program), keep_free=10**6, period=1, transfer_slots=1)
    pool.add_sites({name: ""}, node_config(settings))


def listed(place: CondorPlace, run: Run) -> dict[int, dict[str, Any]]:
    """What is listed of a run, by job."""
    done = json.loads(place.headway("deliveries", run.label, "--json").stdout)
    assert done["notes"] == []
    return {each["job"]: each for each in done["deliveries"]}


def waits(state: JobState) -> bool:
    return state.status is Status.DELIVERING and state.courier_since is None


@beside_others(60)
def test_what_waits_is_sent_dropped_or_removed(pool: Pool) -> None:
    site = "ONE-COURIER"
    add_site(pool, site)
    place, sign = CondorPlace(pool), pool.user_dir() / "sign"
    stuck = f"until [ -e {sign} ]; do sleep 0.2; done"
    taken = PlainJob(pool, site).submit(stuck, request_cpus="0", **{f"My.{COURIER}": "true"})
    taken.log_with("001")
    run = place.start(JOB.format(name="stored", count=3, site=site))
    for job in range(3):
        place.wait(run, waits, job=job)

    def in_line() -> dict[int, dict[str, Any]]:
        found = listed(place, run)
        return found if all("is taken" in each["why"] for each in found.values()) else {}

    found = pool.wait_for(in_line, 90, "the transfer slot is taken")
    assert sorted(each["place"] for each in found.values()) == [1, 2, 3]
    assert {each["why"] for each in found.values()} == {f"the transfer slot of {site} is taken"}
    assert {(each["bytes"], each["files"], each["site"]) for each in found.values()} == {
        (12_000_000, 1, site)
    }
    text = place.headway("deliveries").stdout
    assert f"1st in line; the transfer slot of {site} is taken; else computed again in" in text
    assert "in line" in place.headway("status").stdout
    refused = place.headway("deliveries", "--retry", "stored-1.0", code=1).stdout
    assert "its courier waits already" in refused

    place.headway("hold", "stored-1.0")
    place.wait(run, lambda state: state.status is Status.HELD)
    assert listed(place, run)[0]["stage"] == "held"
    assert "a courier may bring" in place.headway("deliveries", "--retry", "stored-1.0").stdout
    place.wait(run, waits)
    done = place.headway("deliveries", "--drop", "stored-1.1").stdout
    assert done == f"stored-1.1: 12 MB at {site} are given up; it computes them again\n"
    place.wait(run, lambda state: state.attempts == 2, job=1)
    done = place.headway("deliveries", "--drop", "--remove", "stored-1.2").stdout
    assert done.startswith("stored-1.2: removed from the queue")
    sign.touch()
    place.settle(run)
    assert [run.jobs[job].outcome for job in range(3)] == [
        *(Outcome.SUCCESS, Outcome.SUCCESS, Outcome.REMOVED)
    ]
    assert [run.jobs[job].attempts for job in range(3)] == [1, 2, 1]
    assert [run.jobs[job].couriers for job in (0, 2)] == [1, 0]
    assert not run.damaged() and listed(place, run) == {}
    assert "are home" in place.headway("deliveries", "--drop", "stored-1.0", code=1).stdout

    # what came home is damaged, and the node still has it
    home = run.outputs(0) / "out.bin"
    content = home.read_bytes()
    home.write_bytes(content[:-1] + b"?" + b"?")
    pool.give(home)
    [one] = listed(place, run).values()
    assert (one["stage"], one["job"]) == ("damaged", 0) and "12000001 bytes" in one["why"]
    done = place.headway("deliveries", "--retry", "stored-1.0").stdout
    assert re.fullmatch(
        rf"stored-1\.0: another courier is in the queue, as \d+\.0, for 12 MB at {site}\n", done
    )
    place.wait(run, lambda state: state.couriers == 2 and state.outcome is Outcome.SUCCESS, 90)
    assert home.read_bytes() == content and listed(place, run) == {}
    assert run.jobs[0].attempts == 1
