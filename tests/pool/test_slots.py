"""Transfer slots on a real pool, by the lines of `headway node-config`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from headway.cli.wrap import write_plugin
from headway.node.host import COURIER
from headway.pool.htcondor.node_config import NodeSettings, node_config

from .harness import Pool
from .jobs import PlainJob, submit_all
from .places import CondorPlace
from .together import beside_others

COUNT = 2
NO_TYPES = "SLOT_TYPE_1 =;SLOT_TYPE_1_PARTITIONABLE =;NUM_SLOTS_TYPE_1 ="
GPUS = "GPU_DISCOVERY_EXTRA = -simulate:4,2;use FEATURE:GPUs;STARTD_CRON_GPUs_MONITOR_EXECUTABLE ="
#: What administrators have written, and what their slots have beside two transfer slots: type,
#: CPUs, MB, GPUs.
SITES = {
    "NO-TYPES": (f"{NO_TYPES};{GPUS}", [("Partitionable", 4, 3840, 2)]),
    "FULL": (
        f"SLOT_TYPE_1 = cpus=100%, ram=100%, disk=100%, swap=100%, gpus=100%;{GPUS}",
        [("Partitionable", 4, 3840, 2)],
    ),
    "PART": (f"SLOT_TYPE_1 = cpus=3,memory=75%,disk=50%;{GPUS}", [("Partitionable", 3, 3072, 2)]),
    "STATIC": (
        "SLOT_TYPE_1 = 1/2;NUM_SLOTS_TYPE_1 = 2;SLOT_TYPE_1_PARTITIONABLE = False",
        [("Static", 2, 1920, 0)] * 2,
    ),
    "HALF": (
        "SLOT_TYPE_1 = 1/4;NUM_SLOTS_TYPE_1 = 2;SLOT_TYPE_1_PARTITIONABLE = False",
        [("Static", 1, 1024, 0)] * 2,
    ),
    "COUNTED": (
        f"{NO_TYPES};NUM_SLOTS = 2;SLOT_TYPE_0_PARTITIONABLE = False",
        [("Static", 2, 1920, 0)] * 2,
    ),
}


def lines_for(pool: Pool) -> str:
    program = pool.home / "headway-node-slots.pyz"
    if not program.exists():
        write_plugin(program)
    return node_config(NodeSettings(program=str(program), period=1, transfer_slots=COUNT))


def slots(pool: Pool, site: str) -> list[dict[str, Any]]:
    """The ads of a site's slots but the dynamic ones, the first slot first."""
    asked = f'GLIDEIN_ResourceName == "{site}" && DynamicSlot =!= True'
    said = pool.run_as_user(["condor_status", "-json", "-constraint", asked]).stdout
    return sorted(json.loads(said or "[]"), key=lambda ad: int(ad["SlotID"]))


def sizes(ads: Iterable[dict[str, Any]]) -> list[tuple[str, float, int, int]]:
    return [
        (ad["SlotType"], ad["TotalSlotCpus"], ad["TotalSlotMemory"], ad.get("TotalSlotGPUs", 0))
        for ad in ads
    ]


def ran_on(job: PlainJob) -> str:
    """The slot that a job has been given."""
    [slot] = re.findall(r"SlotName: (\S+?)@", job.log_with("001"))
    return str(slot)


@beside_others(40)
def test_couriers_and_other_jobs_never_share_a_slot(pool: Pool) -> None:
    site, mine = "NO-TYPES", "START = $(START) && TARGET.Unwelcome =!= True"
    pool.add_sites({site: f"{SITES[site][0]};{mine}"}, lines_for(pool))
    sign = pool.user_dir() / "sign"
    busy = f"until [ -e {sign} ]; do sleep 0.1; done"
    others, couriers = ([PlainJob(pool, site) for _ in range(4)] for _ in range(2))
    submit_all(others, busy, request_cpus="1", request_memory="32MB")
    assert {ran_on(job) for job in others} == {f"slot1_{n}" for n in range(1, 5)}

    # all cores are taken: two transfer slots run four couriers, one after the other
    courier = {f"My.{COURIER}": "true", "request_cpus": "0"}
    submit_all(couriers, "echo $CUDA_VISIBLE_DEVICES > gpus", **courier)
    for job in couriers:
        job.log_with("005")
        assert ran_on(job) in ("slot2", "slot3")
        assert (job.folder / "gpus").read_text().strip() in ("", "10000")
    # neither a job that needs no core nor one that is unwelcome gets a transfer slot
    small = PlainJob(pool, site).submit("true", request_cpus="0", **{f"My.{COURIER}": "false"})
    plain = PlainJob(pool, site).submit("true", request_cpus="0")
    unwelcome = PlainJob(pool, site).submit("true", **courier, **{"My.Unwelcome": "true"})
    last = PlainJob(pool, site).submit("true", **courier)
    last.log_with("005")  # the jobs before it have been looked at, too
    for job in (small, plain, unwelcome):
        assert "\n001 (" not in job.log_with("000")
    sign.touch()
    assert {ran_on(small)[:6], ran_on(plain)[:6]} == {"slot1_"}
    unwelcome.remove()
    # GPUs stay with the ordinary slot, for couriers that ask for them, too
    wants = PlainJob(pool, site).submit("true", request_gpus="1", **courier)
    two = PlainJob(pool, site).submit("true", request_gpus="2")
    assert ran_on(two).startswith("slot1_") and "\n001 (" not in wants.log_with("000")
    wants.remove()


@beside_others(20)
def test_the_slots_that_are_there_stay(pool: Pool) -> None:
    names = [name for name in SITES if name != "NO-TYPES"]
    pool.add_sites({name: SITES[name][0] for name in names}, lines_for(pool))
    for name in names:
        found = slots(pool, name)
        ordinary = [ad for ad in found if ad["HeadwayTransferSlot"] is False]
        transfer = [ad for ad in found if ad["HeadwayTransferSlot"] is True]
        assert found == ordinary + transfer, "the ordinary slots keep their numbers"
        assert sizes(ordinary) == SITES[name][1], name
        assert [(ad["Cpus"], ad["Memory"], ad.get("GPUs", 0)) for ad in transfer] == [
            (0.1, 128, 0)
        ] * COUNT
        done = CondorPlace(pool).headway("node-config", "--check", name)
        assert "ok     transfer slots: 2" in done.stdout


@beside_others(25)
def test_it_is_put_in_checked_and_undone(pool: Pool) -> None:
    site, place = "CHANGES", CondorPlace(pool)
    pool.add_sites({site: GPUS})
    before = slots(pool, site)
    assert sizes(before) == [("Partitionable", 4, 4096, 2)]

    def problems(*words: str) -> dict[str, str]:
        done = place.headway("node-config", "--check", site, *words, "--json", code=None)
        if done.returncode == 3:
            return {"startd": done.stderr}  # it restarts
        found = json.loads(done.stdout)
        wrong = {each["what"]: each["problem"] for each in found["checked"] if each["problem"]}
        assert found["ok"] is not bool(wrong) and done.returncode == bool(wrong)
        return wrong

    def until(says: dict[str, str], *words: str) -> None:
        def as_said() -> bool:
            found = problems(*words)
            return found.keys() == says.keys() and all(
                text in found[what] for what, text in says.items()
            )

        pool.wait_for(as_said, 60, f"--check says {says}")

    missing = {
        "the store's place": "HeadwayStore is not in its ad",
        "the sweeper": "told nothing",
        "transfer slots": "no slot has HeadwayTransferSlot",
        "ordinary slots": "STARTD_ATTRS lacks it",
        "START": "the line for START",
    }
    until(missing)
    ours, later = (pool.config_d(site) / f"9{n}-more.conf" for n in range(2))
    ours.write_text(lines_for(pool))
    pool.administer(site, "condor_reconfig", "-startd")
    until({"transfer slots": "need a condor_restart"})
    pool.administer(site, "condor_restart", "-peaceful", "-startd")
    until({})
    until({}, "--transfer-slots", str(COUNT))
    until({"transfer slots": "2 instead of 3"}, "--transfer-slots", "3")
    later.write_text("START = True\n")
    pool.administer(site, "condor_reconfig", "-startd")
    until({"START": "or a later file sets START"})
    later.write_text("SLOT_TYPE_1 = 100%\n")
    pool.administer(site, "condor_restart", "-peaceful", "-startd")
    until({"transfer slots": "is broken: Not enough"})

    later.unlink()
    ours.unlink()
    pool.administer(site, "condor_restart", "-peaceful", "-startd")
    until(missing)
    after = slots(pool, site)
    same = ("Name", "SlotTypeID", "Start", "Cpus", "Memory", "Disk", "GPUs", "Requirements")
    assert [{key: ad[key] for key in same} for ad in after] == [
        {key: ad[key] for key in same} for ad in before
    ]
    assert not [key for ad in after for key in ad if key.startswith("Headway")]
