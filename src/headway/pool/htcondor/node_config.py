"""The configuration of an execution point with a store and transfer slots, and its check."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headway.node.host import COURIER, STORE, STORE_IN_CONTAINERS, TRANSFER_SLOT, TRANSFER_SLOTS
from headway.node.store.sweeper import INPUTS

WANTS_STORE = "HeadwayWantStore"  # in a job's ad: its container is to see the store
_CRON = "HEADWAYSTORE"
# Of the ten types, one that is seldom in use. Slots are numbered in the order of their types, so
# the ordinary ones keep their names: expressions of pilots look at `Slot1_State`.
_TYPE = 9
# Both sides are true or false for every job and slot, so no job makes START undefined.
_SEPARATED = f"((TARGET.{COURIER} =?= True) == (MY.{TRANSFER_SLOT} =?= True))"
# A SLOT_TYPE_1 that takes all memory or disk: `100%`, `memory=100%`, or `1/8` if there are 8 slots,
# but not `cpus=100%`. Only where commas separate its parts: to others nothing can be added.
_TAKES_ALL = "(^|,) *((memory|ram|disk) *= *)?(100%|1/$(NUM_SLOTS_TYPE_1)) *(,|$)"
#: What `check_ads` looks at.
ATTRIBUTES = (
    "Name",
    STORE,
    INPUTS,
    "HeadwayStoreSwept",
    "HeadwayStoreUsed",
    "HeadwayStoreFree",
    TRANSFER_SLOT,
    "Start",
    "DynamicSlot",
    "SlotBrokenReason",
    "TotalSlotCpus",
    "TotalSlotMemory",
    "TotalSlotGPUs",
)


@dataclass(frozen=True)
class NodeSettings:
    """What an administrator decides.

    Attributes:
        store: The store's folder; it may have HTCondor's macros in it.
        program: Where headway-node.pyz is on the execution point.
        shared_account: The jobs of several people run under one account, as in most pilots.
        share_inputs: Keep inputs even then.
        quota: The bytes that one account may keep; None: no limit.
        keep_free: The bytes of the file system that stay free.
        age: The seconds after which an input that nobody has used goes.
        period: The seconds between two looks of the sweeper.
        containers: Let containers see the store.
        transfer_slots: How many couriers may run at the same time; 0: there are no transfer slots.
    """

    store: str = "$(LOCAL_DIR)/headway-store"
    program: str = "/usr/local/libexec/headway-node.pyz"
    shared_account: bool = True
    share_inputs: bool = False
    quota: int | None = None
    keep_free: int = 10 * 10**9
    age: float = 30 * 86400.0
    period: int = 60
    containers: bool = True
    transfer_slots: int = 4

    @property
    def words(self) -> str:
        """The settings as arguments of the sweeper."""
        switch = {True: "true", False: "false"}
        given = {
            "quota": self.quota,
            "keep_free": self.keep_free,
            "age": int(self.age),
            "shared_account": switch[self.shared_account],
            "share_inputs": switch[self.share_inputs],
        }
        return " ".join(f"{name}={value}" for name, value in given.items() if value is not None)

    @property
    def ad_file(self) -> str:
        """Where root's sweeper writes what the startd is to tell."""
        return f"{self.store}.ad"


def node_config(settings: NodeSettings) -> str:
    """The text for a file in config.d of an execution point, with a comment on each part."""
    parts = [*_store_part(settings), *_sweeper_part(settings)]
    if settings.transfer_slots:
        parts += _slots_part(settings)
    if settings.containers:
        parts += _container_part(settings)
    if not settings.shared_account:
        parts += _crontab(settings)
    return "\n".join(["# Headway's store, written by `headway node-config`", *parts, ""])


def _store_part(settings: NodeSettings) -> Iterator[str]:
    yield ""
    yield "# Where inputs stay for the next job. It must be on a local disk, best the one of"
    yield "# EXECUTE: there a job gets its input as a hard link. Elsewhere it reads it in place."
    yield f"HEADWAY_STORE = {settings.store}"
    yield "# The machine's ad tells jobs where it is."
    yield f'{STORE} = "$(HEADWAY_STORE)"'
    yield f"STARTD_ATTRS = $(STARTD_ATTRS) {STORE}"


def _sweeper_part(settings: NodeSettings) -> Iterator[str]:
    yield ""
    if settings.shared_account:
        yield "# The sweeper makes the store, removes what is old, damaged or too much, and puts"
        yield "# the names of the inputs into the machine's ad, so that jobs can prefer this node."
        program, arguments = settings.program, f"store $(HEADWAY_STORE) {settings.words}"
    else:
        yield "# What an account keeps is for that account alone, so only root can look after all"
        yield "# of it: see the line for root's crontab at the end. The startd tells what it found."
        program, arguments = (
            "/bin/cat",
            settings.ad_file.replace(settings.store, "$(HEADWAY_STORE)"),
        )
    yield f"STARTD_CRON_JOBLIST = $(STARTD_CRON_JOBLIST) {_CRON}"
    yield f"STARTD_CRON_{_CRON}_EXECUTABLE = {program}"
    yield f"STARTD_CRON_{_CRON}_ARGS = {arguments}"
    yield f"STARTD_CRON_{_CRON}_PERIOD = {settings.period}s"
    yield f"STARTD_CRON_{_CRON}_MODE = Periodic"


def _slots_part(settings: NodeSettings) -> Iterator[str]:
    yield ""
    yield "# Transfer slots. They run couriers, which bring home what a job has left in the"
    yield "# store, while that job's slot already runs the next job. First the ordinary slots:"
    yield "# HTCondor drops those of a machine without slot types as soon as there is a type. So"
    yield "# they become type 1 and are what they were. A type 1 of yours stays."
    yield "if ! defined NUM_SLOTS_TYPE_1"
    yield "  SLOT_TYPE_1 = auto"
    yield "  SLOT_TYPE_1_PARTITIONABLE = $(SLOT_TYPE_0_PARTITIONABLE:True)"
    yield "  NUM_SLOTS_TYPE_1 = $(NUM_SLOTS:1)"
    yield "endif"
    yield "# If type 1 takes all of the memory and the disk, it now takes all but what the transfer"
    yield "# slots have. Its CPUs, GPUs and other resources stay as they are."
    yield f'HEADWAY_TAKES_ALL = regexp("{_TAKES_ALL}", "$(SLOT_TYPE_1)", "i")'
    yield "if $INT(HEADWAY_TAKES_ALL)"
    yield "  SLOT_TYPE_1 = $(SLOT_TYPE_1),memory=auto,disk=auto"
    yield "endif"
    yield "# A transfer slot takes no core, no GPU, 128 MB of memory and a hundredth of the disk."
    yield f"# If type {_TYPE} is yours already, use another number up to 10 in the next lines."
    yield f"SLOT_TYPE_{_TYPE} = minimal,0%,cpus=0.1,memory=128,disk=1%"
    yield f"NUM_SLOTS_TYPE_{_TYPE} = {settings.transfer_slots}"
    yield "# Each slot's ad tells which kind it is."
    yield f"{TRANSFER_SLOT} = False"
    yield f"SLOT_TYPE_{_TYPE}_{TRANSFER_SLOT} = True"
    yield "# Their number is by what waiting jobs share them out that bring their inputs ahead."
    yield f"{TRANSFER_SLOTS} = {settings.transfer_slots}"
    yield f"STARTD_ATTRS = $(STARTD_ATTRS) {TRANSFER_SLOT} {TRANSFER_SLOTS}"
    yield "# Couriers start on transfer slots alone, and all other jobs on the other slots alone."
    yield "# Your own START still holds for both. A START in a later file would replace this one."
    yield f"START = ($(START)) && {_SEPARATED}"


def _crontab(settings: NodeSettings) -> Iterator[str]:
    new = f"{settings.ad_file}.new"
    sweep = f"{settings.program} store {settings.store} {settings.words}"
    yield ""
    yield "# For /etc/cron.d/headway-store, with the store's own path in place of the macro:"
    yield f"#   * * * * * root {sweep} > {new} && mv {new} {settings.ad_file}"


def _container_part(settings: NodeSettings) -> Iterator[str]:
    yield ""
    yield "# Containers of jobs that ask for it see the store, too. If there is an expression"
    yield "# already, put both into one."
    yield (
        f"SINGULARITY_BIND_EXPR = ifThenElse(TARGET.{WANTS_STORE} =?= true,"
        f' "$(HEADWAY_STORE):{STORE_IN_CONTAINERS}", "")'
    )


def steps(settings: NodeSettings) -> list[tuple[str, str]]:
    """What to type on the execution point, and what it does; the last ones undo it."""
    take = "condor_restart -peaceful -startd" if settings.transfer_slots else "condor_reconfig"
    what = "take the new lines"
    if settings.transfer_slots:
        what += "; slots need a restart, which waits until the jobs on this machine have ended"
    count = "" if settings.transfer_slots else " --transfer-slots 0"
    found = [
        (f"headway plugin -o {settings.program}", "write the program that sweeps the store"),
        (take, what),
        (f"headway node-config --check{count}", "see that the startd has them"),
    ]
    if not settings.shared_account:
        found.insert(2, ("editor /etc/cron.d/headway-store", "the line at the end of the text"))
    undo = f"rm the file from config.d, then {take}, then rm -r the store's folder"
    return [*found, (undo, "undo it")]


@dataclass(frozen=True)
class Checked:
    """One thing that was looked at on a startd; `problem` is empty if it is as it should be."""

    what: str
    found: str
    problem: str = ""


def check_ads(
    ads: Sequence[Mapping[str, Any]], now: float, period: int = 60, slots: int | None = None
) -> list[Checked]:
    """What the ads of a startd's slots show of the store and the transfer slots.

    Args:
        ads: The ads of all of its slots, at least one.
        now: Seconds since the epoch.
        period: How often the sweeper looks.
        slots: How many transfer slots it is to have; None: any number but none.

    Returns:
        Each thing that was looked at.
    """
    return [*_check_store(ads[0], now, period), *_check_slots(ads, slots)]


def _check_store(ad: Mapping[str, Any], now: float, period: int) -> list[Checked]:
    path, told = ad.get(STORE), ad.get(INPUTS)
    swept = ad.get("HeadwayStoreSwept")
    found = [
        Checked(
            "the store's place",
            str(path or ""),
            ""
            if path
            else f"{STORE} is not in its ad: STARTD_ATTRS lacks it, or no condor_reconfig",
        )
    ]
    if not isinstance(swept, (int, float)):
        why = "the sweeper has told nothing: see STARTD_CRON in the StartLog, and run it by hand"
        return [*found, Checked("the sweeper", "", why)]
    late = now - swept
    too_late = f"it was last heard of {late:.0f} s ago" if late > 5 * period + 300 else ""
    inputs = [name for name in str(told or "").split(",") if name]
    used, free = (ad.get(f"HeadwayStore{name}") for name in ("Used", "Free"))
    return [
        *found,
        Checked("the sweeper", f"last swept {max(0.0, late):.0f} s ago", too_late),
        Checked("inputs kept", f"{len(inputs)}, {used} bytes; {free} bytes of the disk are free"),
    ]


def _check_slots(ads: Sequence[Mapping[str, Any]], wanted: int | None) -> list[Checked]:
    fixed = [ad for ad in ads if ad.get("DynamicSlot") is not True]
    transfer = [ad for ad in fixed if ad.get(TRANSFER_SLOT) is True]
    ordinary = [ad for ad in fixed if ad.get(TRANSFER_SLOT) is not True]
    if wanted == 0 and not transfer:
        return []
    problem = ""
    if broken := [ad for ad in transfer if ad.get("SlotBrokenReason")]:
        problem = (
            f"{broken[0].get('Name')} is broken: {broken[0]['SlotBrokenReason']}; write memory=auto"
            " and disk=auto into the SLOT_TYPE that takes all, then condor_restart"
        )
    elif not transfer:
        problem = f"no slot has {TRANSFER_SLOT} = True: new slots need a condor_restart"
    elif wanted not in (None, len(transfer)):
        problem = f"there are {len(transfer)} instead of {wanted}"
    found = [Checked("transfer slots", str(len(transfer)), problem)]

    problem = ""
    if not ordinary:
        problem = "there are none: NUM_SLOTS_TYPE_1 is missing"
    elif any(ad.get(TRANSFER_SLOT) is None for ad in ordinary):
        problem = f"{TRANSFER_SLOT} is not in their ads: STARTD_ATTRS lacks it"
    found.append(Checked("ordinary slots", _resources(ordinary), problem))

    # a broken slot has no START
    starts = {str(ad.get("Name")): _plain(ad.get("Start")) for ad in ads if ad not in broken}
    odd = [name for name, start in starts.items() if _plain(_SEPARATED) not in start]
    problem = (
        f"{odd[0]} does not keep couriers and other jobs apart: the configuration lacks the line"
        " for START, or a later file sets START again"
        if odd
        else ""
    )
    return [*found, Checked("START", "it keeps couriers and other jobs apart", problem)]


def _resources(ads: Sequence[Mapping[str, Any]]) -> str:
    """How many slots there are, and what they have together."""
    total = [
        sum(float(ad.get(f"TotalSlot{name}") or 0) for ad in ads)
        for name in ("Cpus", "Memory", "GPUs")
    ]
    return "{}, with {:g} CPUs, {:g} MB and {:g} GPUs".format(len(ads), *total)


def _plain(expression: object) -> str:
    """A ClassAd expression in the one of its spellings that can be compared."""
    return "".join(str(expression).replace("=?=", "is").split()).lower()
