"""`headway node-config`; tests/pool/test_store.py puts its lines into a real pool."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.pool.htcondor.node_config import NodeSettings, check_ads, node_config

from .conftest import Done

Call = Callable[..., Done]


def test_a_pilot_sweeps_for_itself(headway: Call) -> None:
    done = headway("node-config", "--share-inputs", "--quota", "2TB", "--age", "7d")
    lines = done.stdout.splitlines()
    assert 'HeadwayStore = "$(HEADWAY_STORE)"' in lines
    assert "STARTD_CRON_HEADWAYSTORE_EXECUTABLE = /usr/local/libexec/headway-node.pyz" in lines
    [arguments] = [line for line in lines if "_ARGS" in line]
    assert arguments.endswith(
        "store $(HEADWAY_STORE) quota=2000000000000 keep_free=10000000000 age=604800"
        " shared_account=true share_inputs=true"
    )
    assert "SINGULARITY_BIND_EXPR" in done.stdout and "crontab" not in done.stdout
    assert "# undo it" in done.stderr and "headway plugin -o" in done.stderr


def test_only_root_can_sweep_for_several_accounts(headway: Call) -> None:
    done = headway("node-config", "--accounts", "own", "--store", "/scratch/store", "--json")
    document = json.loads(done.stdout)
    text = document["config"]
    assert "STARTD_CRON_HEADWAYSTORE_EXECUTABLE = /bin/cat" in text
    assert "STARTD_CRON_HEADWAYSTORE_ARGS = $(HEADWAY_STORE).ad" in text
    last = text.splitlines()[-1]
    assert last.startswith("#   * * * * * root /usr/local/libexec/headway-node.pyz store /scratch")
    assert last.endswith("> /scratch/store.ad.new && mv /scratch/store.ad.new /scratch/store.ad")
    assert "shared_account=false share_inputs=false" in text
    assert [each["does"] for each in document["steps"]][-1] == "undo it"


def test_every_line_of_the_configuration_has_a_comment_before_its_part() -> None:
    for settings in (NodeSettings(), NodeSettings(shared_account=False, containers=False)):
        parts = node_config(settings).strip().split("\n\n")
        assert len(parts) == 5, "the sweeper's second half is for several accounts"
        for part in parts:
            assert part.startswith("# ")


def test_transfer_slots(headway: Call) -> None:
    done = headway("node-config")
    assert "NUM_SLOTS_TYPE_9 = 4\n" in done.stdout
    assert "condor_restart -peaceful -startd" in done.stderr.splitlines()[-1], "so it is undone"
    assert "NUM_SLOTS_TYPE_9 = 1\n" in headway("node-config", "--transfer-slots", "1").stdout
    done = headway("node-config", "--transfer-slots", "0")
    assert "SLOT" not in done.stdout and "START =" not in done.stdout
    assert "condor_reconfig" in done.stderr and "condor_restart" not in done.stderr
    assert "headway node-config --check --transfer-slots 0" in done.stderr


def test_which_slot_types_make_room_for_transfer_slots() -> None:
    [expression] = re.findall(r'regexp\("(.*?)", "\$\(SLOT_TYPE_1\)"', node_config(NodeSettings()))
    for text, makes_room in {
        "100%": True,
        "1/8": True,
        "cpus=4, RAM=100%, disk=50%": True,
        "cpus=100%,disk = 100%": True,
        "auto": False,
        "cpus=100%": False,
        "1/16": False,  # half of the machine is free
        "1/80": False,
        "cpus=1/2, memory=75%, disk=50%": False,
        "cpus=4 memory=100%": False,  # a part with a comma would spoil it
        "memory=100% cpus=4": False,
    }.items():
        of_eight = expression.replace("$(NUM_SLOTS_TYPE_1)", "8")
        assert bool(re.search(of_eight, text, re.IGNORECASE)) == makes_room, text


def test_it_writes_no_file_twice(headway: Call, tmp_path: Path) -> None:
    target = tmp_path / "90-store.conf"
    assert "wrote 90-store.conf" in headway("node-config", "-o", str(target)).stdout
    assert target.read_text() == node_config(NodeSettings())
    target.write_text("mine")
    assert "exists" in headway("node-config", "-o", str(target), code=2).stderr
    assert target.read_text() == "mine"
    assert "cannot be written" in headway("node-config", "-o", "no/such/file", code=2).stderr


def test_a_wrong_command_line(headway: Call) -> None:
    for words, said in (
        (("node7",), "a machine goes with --check"),
        (("--accounts", "many"), "--accounts"),
        (("--quota", "much"), "--quota"),
        (("--transfer-slots", "many"), "from 0 to 32"),
        (("--check", "--pool", "local"), "has no startds"),
    ):
        assert said in headway("node-config", *words, code=2).stderr


@pytest.mark.parametrize(
    ("ad", "problems"),
    [
        ({}, ["HeadwayStore is not in its ad", "the sweeper has told nothing"]),
        ({"HeadwayStore": "/s"}, ["", "the sweeper has told nothing"]),
        ({"HeadwayStore": "/s", "HeadwayStoreSwept": 90}, ["", "", ""]),
        (
            {"HeadwayStore": "/s", "HeadwayStoreSwept": -900},
            ["", "it was last heard of 1000 s", ""],
        ),
    ],
)
def test_what_an_ad_shows(ad: dict[str, object], problems: list[str]) -> None:
    found = check_ads([ad], 100.0, slots=0)
    assert len(found) == len(problems)
    for each, problem in zip(found, problems, strict=True):
        assert bool(each.problem) == bool(problem) and problem in each.problem


START = "(true) && ((TARGET.HeadwayCourier is true) == (MY.HeadwayTransferSlot =?= true))"
SLOT = {"Name": "slot1@a", "HeadwayTransferSlot": False, "Start": START, "TotalSlotCpus": 4}
TRANSFER = {"Name": "slot2@a", "HeadwayTransferSlot": True, "Start": START}
BROKEN = {**TRANSFER, "Start": None, "SlotBrokenReason": "Not enough Disk"}


@pytest.mark.parametrize(
    ("ads", "wanted", "problems"),
    [
        ([SLOT, TRANSFER], None, ["", "", ""]),
        ([SLOT, TRANSFER], 1, ["", "", ""]),
        ([SLOT, TRANSFER], 2, ["there are 1 instead of 2", "", ""]),
        ([SLOT, TRANSFER], 0, ["there are 1 instead of 0", "", ""]),
        ([SLOT], None, ["need a condor_restart", "", ""]),
        ([{}], 0, []),
        ([SLOT, BROKEN], None, ["slot2@a is broken: Not enough Disk", "", ""]),
        ([TRANSFER], None, ["", "there are none", ""]),
        (
            [{"Name": "slot1@a", "Start": "true"}],
            None,
            ["condor_restart", "STARTD_ATTRS lacks it", "slot1@a does not keep couriers"],
        ),
        (
            [SLOT, TRANSFER, {**SLOT, "Name": "slot1_1@a", "DynamicSlot": True, "Start": "true"}],
            None,
            ["", "", "slot1_1@a does not keep couriers"],
        ),
    ],
)
def test_what_the_slots_show(
    ads: list[dict[str, object]], wanted: int | None, problems: list[str]
) -> None:
    store = {"HeadwayStore": "/s", "HeadwayStoreSwept": 90}
    found = check_ads([{**ad, **store} for ad in ads], 100.0, slots=wanted)[3:]
    assert len(found) == len(problems)
    for each, problem in zip(found, problems, strict=True):
        assert bool(each.problem) == bool(problem) and problem in each.problem
