"""Inputs that come to a node while it computes another job of the run, on a real pool."""

from __future__ import annotations

from itertools import pairwise

from tests.lab import Made, Rate, Server

from headway.api import Run
from headway.cli.wrap import write_plugin
from headway.events import Outcome
from headway.pool.htcondor.node_config import NodeSettings, node_config

from .harness import Pool
from .places import CondorPlace, record
from .together import beside_others

JOBS = 3
RATE, SIZE = 4 << 20, 20 << 20  # so that a download takes five seconds
ON, OFF = "AHEAD", "NOT-AHEAD"
#: Each job but the last computes until the input of the next is there, and a little longer.
JOB = """\
name = "{name}"
shell = true
command = '''
sha256sum < in.bin > sum.txt
for n in $(seq {most}); do
  if [ {{job}} = 2 ] || ls {store}/u*/ahead/*-$(({{job}} + 1)); then break; fi
  sleep 0.2
done
sleep 4'''
outputs = ["sum.txt"]
count = {count}
{more}
[[inputs]]
url = "{url}{{job}}.bin"
path = "in.bin"
[resources]
memory = "64 MB"
disk = "50 MB"
[sites]
only = ["{site}"]
[submit]
"+WantsSite" = '"{site}"'
"""


def staging(run: Run, job: int) -> float:
    """The seconds for which a job staged in on the ordinary slot."""
    [phase] = [each for each in record(run, job)["phases"] if each["name"] == "stage-in"]
    return float(phase["end"] - phase["begin"])


def gaps(run: Run) -> list[float]:
    """The seconds between the end of one command and the begin of the next, on the one slot."""
    commands = [record(run, job)["command"] for job in range(len(run.jobs))]
    commands.sort(key=lambda command: float(command["begin"]))
    return [after["begin"] - before["end"] for before, after in pairwise(commands)]


@beside_others(45)
def test_inputs_come_while_another_job_computes(condor_pool: Pool) -> None:
    program = condor_pool.home / "headway-node-ahead.pyz"
    write_plugin(program)
    settings = NodeSettings(program=str(program), share_inputs=True, keep_free=10**6, period=1)
    one = "NUM_CPUS = 1"
    condor_pool.add_sites({ON: one, OFF: one}, node_config(settings))
    content = {f"/{name}{job}.bin": Made(SIZE, seed=job) for name in "ab" for job in range(JOBS)}

    with Server(content, [Rate(RATE)]) as server:

        def job(name: str, site: str, count: int, more: str, most: int) -> str:
            store = condor_pool.home / "sites" / site / "headway-store"
            url = server.url(f"/{'a' if site == ON else 'b'}")
            told = {"name": name, "site": site, "count": count, "more": more, "most": most}
            return JOB.format(store=store, url=url, **told)

        without, place = CondorPlace(condor_pool), CondorPlace(condor_pool)
        off = without.start(job("off", OFF, 2, "prefetch = false", 25))
        on = place.run(job("on", ON, JOBS, "", 300), timeout=180)
        without.settle(off)
        sent = dict.fromkeys(content, 0)
        for request in server.requests:
            sent[request.target] += request.sent
    for run in (on, off):
        for number, state in run.jobs.items():
            assert state.outcome is Outcome.SUCCESS and state.attempts == 1, place.story()
            checksum = content[f"/a{number}.bin"].digest("sha256")
            assert (run.outputs(number) / "sum.txt").read_text().split()[0] == checksum
    # a connection that is given up, on a busy machine, has sent a little that another one sends too
    assert all(sent[name] < 1.5 * SIZE for name in content), ("an object was sent twice", sent)
    given = [record(on, number)["inputs"][0] for number in range(JOBS)]
    assert [each["fetched"] for each in given] == [True, False, False], place.story()
    assert [each["source"] for each in given[1:]] == ["store"] * 2
    assert all(len(off.folder.attempts(number)) == 1 for number in off.jobs)
    assert all(record(off, number)["inputs"][0]["fetched"] for number in off.jobs)
    print(f"seconds between two commands: {gaps(on)}, without {gaps(off)}")
    assert max(staging(on, 1), staging(on, 2)) < 0.9 * SIZE / RATE < staging(off, 1)
    log = on.folder.events.read_text()
    assert "phase=prefetch" in log and "phase=prefetch" not in off.folder.events.read_text()
