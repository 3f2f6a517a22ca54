"""Files of a run that HTCondor brings to a node once for all jobs."""

from __future__ import annotations

import hashlib

import pytest

from headway.events import Outcome, read_log
from headway.events.format import CommonStage
from headway.pool.htcondor.submit import LEAST
from headway.report import report

from .harness import Pool
from .places import CondorPlace

WORK = """
import hashlib, os, sys, time
while not os.path.exists(sys.argv[1]):
    time.sleep(0.1)
with open("data.bin", "rb") as file:
    print(hashlib.sha256(file.read()).hexdigest(), file=open("digest", "w"))
"""


@pytest.fixture(scope="module")
def sites(condor_pool: Pool) -> Pool:
    """The pool with a node that brings files once, and one with a static slot, which cannot."""
    asks = "GUIDANCE_MUMS_THE_WORD = False"
    static = "SLOT_TYPE_1_PARTITIONABLE = False;SLOT_TYPE_1 = cpus=1;NUM_SLOTS_TYPE_1 = 2"
    condor_pool.add_sites({"SHARES": asks, "STATIC": f"{asks};{static}"})
    return condor_pool


def job(place: CondorPlace, site: str, count: int) -> str:
    """A job with a large file, for one site; its command waits for the file `go`."""
    place.write({"work.py": WORK})
    (place.folder / "data.bin").write_bytes(bytes(LEAST))
    return (
        f'name = "large"\ncommand = "python3 work.py {place.folder}/go"\ncount = {count}\n'
        'files = ["work.py", "data.bin"]\noutputs = ["digest"]\n'
        f'[sites]\nonly = ["{site}"]\n'
        '[submit]\n"MY.WantsSite" = \'"' + site + "\"'\n"
        '[resources]\nmemory = "64 MB"\ndisk = "300 MB"\n'
    )


def test_six_jobs_share_one_transfer_also_after_an_eviction(sites: Pool) -> None:
    place = CondorPlace(sites)
    run = place.start(job(place, "SHARES", 6))
    place.wait(run, lambda state: state.phase == "run")
    place.headway("evict", f"{run.label}.0")
    place.wait(run, lambda state: state.evictions and state.phase == "run")
    place.write({"go": ""})
    place.settle(run)
    digest = hashlib.sha256(bytes(LEAST)).hexdigest()
    assert [(run.outputs(n) / "digest").read_text().strip() for n in range(6)] == [digest] * 6
    assert [run.jobs[n].outcome for n in range(6)] == [Outcome.SUCCESS] * 6, place.story()
    events = read_log(run.folder.events).events
    stages = [event.common for event in events if event.number == 47]
    assert stages == [CommonStage.STARTED, CommonStage.FINISHED], place.story()
    ends = [event.received for event in events if event.number in (4, 5) and event.proc >= 0]
    assert len(ends) == 7 and all(received and received < LEAST for received in ends)
    totals = report(str(run.folder.path)).totals
    assert (totals.jobs, totals.common_transfers, totals.common_jobs) == (6, 1, 6)


def test_a_node_that_cannot_do_it_gets_a_copy_for_each_job(sites: Pool) -> None:
    place = CondorPlace(sites)
    text = job(place, "STATIC", 2)
    place.write({"go": ""})
    run = place.run(text)
    assert "transfer_common_input" in run.folder.submit_file.read_text()
    events = read_log(run.folder.events).events
    assert [event.received for event in events if event.number == 47] == []
    ends = [event.received or 0 for event in events if event.number == 5]
    assert len(ends) == 2 and min(ends) > LEAST
    assert [run.jobs[n].outcome for n in range(2)] == [Outcome.SUCCESS] * 2, place.story()


def test_an_image_goes_to_a_node_once(sites: Pool) -> None:
    if not sites.containers:
        pytest.skip("this machine runs no containers")
    place = CondorPlace(sites)
    image = place.folder / "large.sif"
    image.write_bytes(sites.image.read_bytes().ljust(LEAST, b"\0"))
    run = place.run(
        'name = "boxed"\ncommand = "sh -c \'ls / > root\'"\ncount = 3\ncontainer = "large.sif"\n'
        'outputs = ["root"]\n[sites]\nonly = ["SHARES"]\n'
        '[submit]\n"MY.WantsSite" = \'"SHARES"\'\n'
        '[resources]\nmemory = "64 MB"\ndisk = "300 MB"\n'
    )
    assert "container_is_common = true" in run.folder.submit_file.read_text()
    events = read_log(run.folder.events).events
    stages = [event.common for event in events if event.number == 47]
    assert stages == [CommonStage.STARTED, CommonStage.FINISHED], place.story()
    assert all((event.received or 0) < LEAST for event in events if event.number == 5)
    assert [run.jobs[n].outcome for n in range(3)] == [Outcome.SUCCESS] * 3, place.story()
