"""The configuration of an execution point with a store, what each line is for, and its check."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headway.node.host import STORE, STORE_IN_CONTAINERS
from headway.node.store.sweeper import INPUTS

WANTS_STORE = "HeadwayWantStore"  # in a job's ad: its container is to see the store
_CRON = "HEADWAYSTORE"
#: What `check_ad` looks at.
ATTRIBUTES = ("Name", STORE, INPUTS, "HeadwayStoreSwept", "HeadwayStoreUsed", "HeadwayStoreFree")


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
    found = [
        (f"headway plugin -o {settings.program}", "write the program that sweeps the store"),
        ("condor_reconfig", "take the new lines"),
        ("headway node-config --check", "see that the startd has them"),
    ]
    if not settings.shared_account:
        found.insert(2, ("editor /etc/cron.d/headway-store", "the line at the end of the text"))
    undo = "rm the file from config.d, then condor_reconfig, then rm -r the store's folder"
    return [*found, (undo, "undo it")]


@dataclass(frozen=True)
class Checked:
    """One thing that was looked at on a startd; `problem` is empty if it is as it should be."""

    what: str
    found: str
    problem: str = ""


def check_ad(ad: Mapping[str, Any], now: float, period: int = 60) -> list[Checked]:
    """What a startd's ad shows of the store.

    Args:
        ad: The ad of one of its slots.
        now: Seconds since the epoch.
        period: How often the sweeper looks.

    Returns:
        Each thing that was looked at.
    """
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
