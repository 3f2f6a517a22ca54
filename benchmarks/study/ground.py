"""The ground that a run stands on: a real HTCondor pool with the world's sites and nodes."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from study.federation import Federation
from study.world import HOUR, LEAST, Slot, World
from tests.pool.harness import Pool

from headway.cli.wrap import write_plugin
from headway.pool.htcondor.node_config import NodeSettings, node_config

NODE = Path(__file__).parent / "node"
FULL_SIZE = 143e9  # bytes of the study's data set
# Before 25.2.1 nothing told the starter that a plugin was at work; so the news is put off for ever.
NO_NEWS = 1_000_000
PROGRAM = "headway-node.pyz"  # the sweeper of the nodes' stores
QUICK_SWEEP = 5  # the same in the short form, where nobody is to wait for it
SWEEP = 60  # seconds between two looks of it, as by default: all of them share this machine
KEEP_FREE = 10**9  # bytes of the disk that all nodes share
ELSEWHERE = 1_200.0  # seconds of the study after which a job that waits gets another slot
_WRAPPER = """#!/bin/sh
# What differs from node to node: how fast it computes, where its director is, whether jobs get out.
slot=$GLIDEIN_ResourceName/$STUDY_NODE-${{_CONDOR_SLOT%%@*}}
export OSDF_DIRECTOR_URL={director}/$slot
. {folder}/slots/$slot
if [ "$STUDY_NETWORK" = no ]; then exec unshare --map-current-user --net "$@"; fi
exec "$@"
"""


@dataclass(frozen=True)
class Era:
    """What a year's HTCondor and Pelican do."""

    alive: bool  # a plugin at work is not cut
    retries: bool  # what may pass is tried again, instead of a hold


ERA_2024 = Era(alive=False, retries=False)
ERA_2026 = Era(alive=True, retries=True)


def make_pool(
    world: World, federation: Federation, era: Era, folder: Path, clusters: int = 1
) -> Pool:
    """A pool, not yet started, whose nodes find what they need in `folder`.

    Its first cluster is `clusters`: reports of several runs tell jobs apart by that.
    """
    director = federation.director.url("").rstrip("/")
    _furnish(world, director, era, folder)
    lines = "\n".join(_node(name, slots) for name, slots in world.nodes.items())
    return Pool(
        {
            "POOL_SITES": lines,
            "POOL_EXTRA_CM": _access_point(world, era, clusters),
            "POOL_EXTRA_SITES": f"{_all_nodes(world, era, folder)}\n{_store(world, folder)}",
        }
    )


def _furnish(world: World, director: str, era: Era, folder: Path) -> None:
    for slot in world.slots:
        path = folder / "slots" / slot.label
        path.parent.mkdir(parents=True, exist_ok=True)
        network = "yes" if slot.networked else "no"
        compute = world.scale.seconds(slot.compute)
        path.write_text(f"export STUDY_COMPUTE={compute:.3f}\nSTUDY_NETWORK={network}\n")
    wrapper = folder / "wrapper"
    wrapper.write_text(_WRAPPER.format(director=director, folder=folder))
    wrapper.chmod(0o755)
    shutil.copy(NODE / "plugin.py", folder / "plugin")
    (folder / "plugin").chmod(0o755)
    shrunk = world.scale.hour / HOUR
    write_plugin(folder / PROGRAM)
    settings = {
        "director": director,
        "seconds": shrunk,
        "least": LEAST,
        "rates": world.scale.size / FULL_SIZE / shrunk,
        "retries": era.retries,
    }
    (folder / "plugin.json").write_text(json.dumps(settings))
    for path in [folder, *folder.rglob("*")]:
        path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))


def _node(name: str, slots: list[Slot]) -> str:
    """A node as pool.sh takes it: a startd of its own, which names the site that it is of."""
    places = ", ".join(str(slot.place) for slot in slots)
    site, _, node = name.rpartition("-")
    told = f"GLIDEIN_ResourceName={site} STUDY_NODE={node} HEADWAY_POOL_PROCESS=$(LOCAL_DIR)"
    lines = [
        "SLOT_TYPE_1_PARTITIONABLE = False",
        "SLOT_TYPE_1 = cpus=1",
        f"NUM_SLOTS_TYPE_1 = {len(slots)}",
        f'GLIDEIN_Site = "{site}"',
        f'GLIDEIN_ResourceName = "{site}"',
        f'STARTER_JOB_ENVIRONMENT = "{told}"',
        f'StudyNode = "{node}"',
        f"StudyPlace = ({{{places}}})[SlotID - 1]",
        "STARTD_ATTRS = $(STARTD_ATTRS) StudyNode StudyPlace",
    ]
    return f"{name}|{len(slots)}|{256 * len(slots)}||{';'.join(lines)}"


def _store(world: World, folder: Path) -> str:
    """What `headway node-config` prints for a pilot whose users trust each other.

    Every run has these lines, also those whose jobs do not know of a store.
    """
    settings = NodeSettings(
        program=str(folder / PROGRAM),
        share_inputs=True,
        transfer_slots=0,  # no output here is worth a courier
        keep_free=KEEP_FREE,
        period=QUICK_SWEEP if world.certain else SWEEP,
    )
    return node_config(settings)


def _access_point(world: World, era: Era, clusters: int) -> str:
    lines = [
        f"SCHEDD_CLUSTER_INITIAL_VALUE = {clusters}",
        "NEGOTIATOR_PRE_JOB_RANK = -StudyPlace",
        "DEFAULT_USERLOG_FORMAT_OPTIONS = SUB_SECOND",
        "MAX_TRANSFER_INPUT_MB = 5000",
        "JOB_TRANSFORM_NAMES = TwentyHours",
        "JOB_TRANSFORM_TwentyHours @=end",
        f"  DEFAULT AllowedExecuteDuration {world.limit}",
        "@end",
    ]
    # HTCondor 25.14 uses the policy unless told otherwise, after all else has been read: only with
    # the daemon's name do other figures stay.
    delay = max(1, round(world.scale.seconds(300)))
    lines += [
        f"AUTO_USE_FEATURE_PelicanRetryPolicy = {era.retries}",
        f"SCHEDD.PelicanRetry_MinimumDelay = {delay}",
        f"SCHEDD.PelicanRetry_RandomDelay = {delay}",
    ]
    return "\n".join(lines)


# Slots come one after the other, as pilots do, and each takes a new job in its turn alone, so that
# every run has the same jobs in the same places. With other users on a pool a slot elsewhere is not
# just free: a job that was thrown out goes on where it was, if it may, or has to wait.
_START = (
    "(time() - TARGET.QDate >= {turn}) && ("
    " (isUndefined(TARGET.LastRemoteHost) && ({new}))"
    " || TARGET.LastRemoteHost =?= MY.Name"
    # asked again when the job is about to begin, whose status is then that of a running one
    " || (!isUndefined(TARGET.LastRemoteHost) && (TARGET.JobStatus =!= 1"
    " || time() - TARGET.EnteredCurrentStatus > {elsewhere})))"
)

_IN_TURN = "time() - TARGET.QDate <= {turn} + {long} || time() - TARGET.QDate > {all_turns}"


def _start(world: World) -> str:
    turn = f"{world.spacing} * StudyPlace"
    if world.certain:
        new = "TARGET.ProcId == StudyPlace"
    else:
        long, all_turns = max(1, world.spacing - 1), world.spacing * (world.jobs + 1)
        new = _IN_TURN.format(turn=turn, long=long, all_turns=all_turns)
    return _START.format(turn=turn, new=new, elsewhere=round(world.patience(ELSEWHERE)))


def _all_nodes(world: World, era: Era, folder: Path) -> str:
    return "\n".join(
        [
            f"START = {_start(world)}",
            f"USER_JOB_WRAPPER = {folder}/wrapper",
            f"FILETRANSFER_PLUGINS = $(LIBEXEC)/curl_plugin, {folder}/plugin",
            f"STARTER_FILE_XFER_STALL_TIMEOUT = {world.cut}",
            "STARTER_XFER_LAST_ALIVE_DELAY = 1",
            "STARTER_XFER_LAST_ALIVE_INTERVAL = 1",
            f"MY_POPEN_KEEPALIVE_INTERVAL = {1 if era.alive else NO_NEWS}",
        ]
    )
