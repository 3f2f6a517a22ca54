"""Inputs that stay on the nodes of a real pool, with the lines of `headway node-config`."""

from __future__ import annotations

import hashlib
import json

from tests.lab import Made, Server

from headway.cli.wrap import write_plugin
from headway.events import Outcome
from headway.pool.htcondor.node_config import NodeSettings, node_config

from .harness import Pool
from .places import CondorPlace, record
from .together import beside_others

CONTENT = Made(20 << 20, seed=33)
SHA = hashlib.sha256(CONTENT.read(0, CONTENT.size)).hexdigest()
SITES = ("KEEPS-A", "KEEPS-B")
JOB = """\
name = "{name}"
shell = true
command = "sha256sum < data/in.bin > sum.txt"
outputs = ["sum.txt"]
{more}
[[inputs]]
url = "{url}"
path = "data/in.bin"
checksum = "sha256:{sha}"
[resources]
memory = "64 MB"
disk = "50 MB"
[submit]
"+WantsStore" = "true"
"""


def add_sites(pool: Pool) -> None:
    """Two sites with a store each, for jobs that say `WantsStore`."""
    program = pool.home / "headway-node.pyz"
    write_plugin(program)
    settings = NodeSettings(program=str(program), share_inputs=True, keep_free=10**6, period=1)
    start = "START = TARGET.WantsStore =?= true"
    pool.add_sites(dict.fromkeys(SITES, start), node_config(settings))


@beside_others(40)
def test_a_node_keeps_its_inputs_and_jobs_prefer_it(condor_pool: Pool) -> None:
    add_sites(condor_pool)
    place = CondorPlace(condor_pool)
    names = {"name": "first", "sha": SHA, "more": ""}

    def checked(site: str) -> dict[str, str]:
        done = place.headway("node-config", "--check", site, "--json", code=None)
        return {each["what"]: each["found"] for each in json.loads(done.stdout)["checked"]}

    with Server({"/in.bin": CONTENT}) as server:
        names["url"] = server.url("/in.bin")
        first = place.run(JOB.format(**names) + '[sites]\nonly = ["KEEPS-B"]\n')
        assert first.jobs[0].outcome is Outcome.SUCCESS and first.jobs[0].site == "KEEPS-B"
        assert server.sent >= CONTENT.size and record(first)["inputs"][0]["fetched"]
        condor_pool.wait_for(
            lambda: checked("KEEPS-B").get("inputs kept", "").startswith("1, "), 60, "its ad"
        )
        sent = server.sent
        second = place.run(JOB.format(**{**names, "name": "second"}))
        assert second.jobs[0].site == "KEEPS-B"
        assert "HeadwayHolds =?= true || time() - QDate" in second.folder.submit_file.read_text()
        if condor_pool.containers:
            inside = {**names, "name": "inside", "more": f'container = "{place.image}"'}
            third = place.run(JOB.format(**inside) + '[sites]\nonly = ["KEEPS-B"]\n')
        assert server.sent == sent, "the data was downloaded again"
    for run in (second, third) if condor_pool.containers else (second,):
        assert (run.outputs(0) / "sum.txt").read_text().split()[0] == SHA
        [given] = record(run)["inputs"]
        assert given["source"] == "store" and given["proof"] == "checksum"
    log = (second.folder.attempts(0)[-1] / "agent.log").read_text()
    assert "linked from the node's store" in log
    done = place.headway("node-config", "--check", "KEEPS-A")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["ok"] * 6
    done = place.headway("node-config", "--check", "ONE-SLOT", code=1)
    assert "HeadwayStore is not in its ad" in done.stdout
