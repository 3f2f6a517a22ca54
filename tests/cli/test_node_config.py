"""`headway node-config`; tests/pool/test_store.py puts its lines into a real pool."""

from __future__ import annotations

import json
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
