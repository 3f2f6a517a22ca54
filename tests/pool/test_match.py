"""A look at the slots before a job is submitted: what never matches is refused, or warned of."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from headway.pool.lint.preflight import slot_findings
from headway.pool.lint.traps import Severity
from headway.pool.match import Match, job_attributes, match_slots, names_in, needs_of, terms
from headway.spec import Job, build_job

from .harness import Pool
from .places import CondorPlace
from .together import beside_others

pytest.importorskip("htcondor2")
import classad2

# The four partitionable slots of the test pool, as its collector had them; both GPUs of the first
# were in use. The sites have 8, 8, 2 and 1 GB of memory and 2, 1, 0 and 0 GPUs.
ADS = (Path(__file__).parent / "slots.ads").read_text()


def job_of(**keys: Any) -> Job:
    return build_job({"name": "it", "command": "true", **keys}, folder=Path("/"))


def look(job: Job, slots: Mapping[str, str] | None = None, *, static: bool = True) -> Match:
    """The stored slots held against a job; `slots`: expressions that every slot has instead."""
    ad = classad2.ClassAd({"SubmitArch": "X86_64", "SubmitOpSys": "LINUX", "Owner": "ann"})
    for name, text in job_attributes(job).items():
        ad[name] = classad2.ExprTree(text) if text else ""
    ads = list(classad2.parseAds(ADS))
    for slot in ads:
        for name in [name for name in slot if static and name.startswith("GLIDEIN_")]:
            slot["Machine"] = slot["GLIDEIN_ResourceName"] if "R" in name else slot["Machine"]
            del slot[name]
        for name, text in (slots or {}).items():
            slot[name] = classad2.ExprTree(text)
    return match_slots(ad, needs_of(job), ads)


def told(job: Job, match: Match, strict: bool | None = None) -> list[str]:
    found = list(slot_findings(job, match, strict))
    assert len({finding.severity for finding in found}) == 1
    return [f"{finding.problem}" for finding in found]


def test_a_job_that_fits_is_not_spoken_of() -> None:
    job = job_of()
    match = look(job)
    assert (match.slots, match.matching) == (4, 3)
    assert not list(slot_findings(job, match))


def test_a_pool_without_transfer_slots_is_told() -> None:
    later = Job(name="it", command="true", outputs=["a"], deliver="later")
    found = list(slot_findings(later, Match(slots=3, matching=3)))
    assert [(each.id, each.severity) for each in found] == [("no-transfer-slots", Severity.WARNING)]
    assert "go home with their jobs" in found[0].what
    assert not list(slot_findings(later, Match(slots=3, matching=3, transfer_slots=2)))
    assert not list(slot_findings(Job(name="it", command="true"), Match(slots=3, matching=3)))


def test_what_is_in_use_today_counts() -> None:
    """The two GPUs of the first slot are taken, and it has 7 of its 8 cpus left."""
    gpus = {"count": 2, "memory": "40 GB", "capability": 8.0}
    assert look(job_of(resources={"cpus": 8, "gpus": gpus})).matching == 1


NEVER: dict[str, tuple[dict[str, Any], str, str]] = {
    "memory": (
        {"resources": {"memory": "64 GB"}},
        "2 slots would match with --resource mem=8GB",
        "resources.memory: less than 64 GB of memory at 4 of 4 slots; the largest has 8.59 GB",
    ),
    "disk and cpus": (
        {"resources": {"disk": "4 TB", "cpus": 100}},
        "2 slots would match with --resource cpu=8 and with --resource disk=8GB",
        "resources.disk: less than 4 TB of disk at 4 of 4 slots; the largest has 8.19 GB",
    ),
    "GPUs": (
        {"resources": {"gpus": 4}},
        "1 slot would match with --resource nvidia-gpu=2",
        "resources.gpus.count: fewer than 4 GPUs at 4 of 4 slots; the most is 2",
    ),
    "a GPU's memory": (
        {"resources": {"gpus": {"memory": "80 GB"}}},
        "1 slot would match with --resource gpu-mem=49GB",
        "resources.gpus.memory: no GPU with 80 GB of memory at 2 of 4 slots;"
        " the largest GPU has 50 GB",
    ),
    "fewer GPUs would still be too old": (
        {"resources": {"gpus": {"count": 4, "capability": 9.0}}},
        "1 slot would match with --resource nvidia-gpu=2 and with"
        " --set resources.gpus.capability=8.0",
        "resources.gpus.capability: fewer than 4 GPUs of capability 9 at 2 of 4 slots;"
        " the highest is 8",
    ),
    "a CUDA runtime": (
        {"resources": {"gpus": {"runtime": "12.1"}}},
        "2 slots would match without resources.gpus.runtime",
        "resources.gpus.runtime: no GPU with a CUDA runtime of 12.1 at 2 of 4 slots;"
        " their slots name none",
    ),
    "a site, misspelt": (
        {"sites": {"only": ["ONESLOT"]}},
        "3 slots would match without sites.only",
        "did you mean ONE-SLOT? the slots are at CHTC-Spark-CE1,",
    ),
    "sites to avoid": (
        {"sites": {"avoid": ["CHTC-Spark-CE1", "PDX-Coeus-CE1", "GP-ARGO-ksu-backfill"]}},
        "3 slots would match without sites.avoid; or 1 slot would match with --resource mem=1GB",
        "sites.avoid: a site to avoid at 3 of 4 slots",
    ),
    "a requirement": (
        {"requirements": '(OpSysMajorVer > 7 && (Foo == 3)) && Arch == "X86_64"'},
        "3 slots would match without `Foo == 3`",
        "requirements: `Foo == 3` does not hold at 4 of 4 slots",
    ),
    "another architecture": (
        {"requirements": 'Arch == "aarch64"'},
        '3 slots would match without `Arch == "aarch64"`',
        'requirements: `Arch == "aarch64"` does not hold at 4 of 4 slots',
    ),
    "a container's scheme": (
        {"container": "osdf:///ns/it.sif"},
        "3 slots would match without container",
        "container: no plugin that fetches osdf:///ns/it.sif at 4 of 4 slots",
    ),
}


@pytest.mark.parametrize("case", NEVER)
def test_what_never_matches_and_what_would(case: str) -> None:
    keys, way, what = NEVER[case]
    job = job_of(**keys)
    match = look(job)
    assert match.matching == 0
    found = list(slot_findings(job, match))
    assert {finding.severity for finding in found} == {Severity.ERROR}
    first, *others = told(job, match)
    assert "none of the pool's 4 slots can ever run this job" in first
    assert f"{way}; --no-strict submits it anyway" in first
    assert any(what in other for other in others), others


@pytest.mark.parametrize(
    ("container", "attribute"),
    [("docker://x", "HasDockerURL"), ("/cvmfs/x.sif", "HasSIF"), ("/cvmfs/x", "HasSandboxImage")],
)
def test_a_kind_of_container_that_no_slot_runs(container: str, attribute: str) -> None:
    job = job_of(container=container)
    assert look(job).matching == 3
    match = look(job, {attribute: "false"})
    words = f"container: no containers of this kind ({attribute}) at 4 of 4 slots"
    assert words in told(job, match)


def test_pilots_may_come_so_it_is_a_warning() -> None:
    job = job_of(resources={"memory": "64 GB"})
    match = look(job, static=False)
    assert match.grows == "pilots"

    def severity(strict: bool | None, match: Match = match) -> Severity:
        return next(iter(slot_findings(job, match, strict))).severity

    assert [severity(strict) for strict in (None, True, False)] == [
        Severity.WARNING,
        Severity.ERROR,
        Severity.WARNING,
    ]
    assert "pilots may bring others" in told(job, match)[0]
    assert told(job, match)[0].endswith("--resource mem=8GB; --strict refuses it")
    static = replace(match, grows="")
    assert severity(None, static) is Severity.ERROR
    assert severity(False, static) is Severity.WARNING
    for unsure in (
        Match(),
        Match(unknown="the collector of this pool cannot be reached: it slept"),
    ):
        assert [severity(s, unsure) for s in (None, True)] == [Severity.WARNING, Severity.ERROR]


@pytest.mark.parametrize(
    ("start", "keys", "matching"),
    [
        ('TARGET.WantsSite =?= "A"', {}, 0),
        ('TARGET.WantsSite =?= "A"', {"submit": {"+WantsSite": '"A"'}}, 3),
        ('TARGET.WantsSite =?= "A"', {"submit": {"+WantsSite": '"$(Process)"'}}, 3),
        ("TARGET.RequestGPUs > 0", {}, 0),
        ('KeyboardIdle > 9 && Owner == "ann"', {}, 3),
        ('KeyboardIdle > 9 && Owner == "bob"', {}, 0),
        ("RequestMemory <= 100", {}, 0),
        # what may be otherwise tomorrow, or is not known before a job is submitted
        ("KeyboardIdle > 90000 && LoadAvg < 0.1", {}, 3),
        ("false", {}, 3),
        ('TARGET.Owner == "bob" || State == "Claimed"', {}, 3),
        ("time() - TARGET.QDate > 600", {}, 3),
        ('TARGET.AcctGroup == "physics"', {}, 3),
        ("TARGET.NumJobStarts > 3 && TARGET.JobPrio > 2", {}, 3),
        ("Other", {}, 0),  # neither the slot nor the job says it
    ],
)
def test_a_start_expression_that_looks_at_the_job(
    start: str, keys: dict[str, Any], matching: int
) -> None:
    job = job_of(**keys)
    match = look(job, {"Start": start})
    assert match.matching == matching
    if not matching:
        assert any("refused by the slot's own START at 4 of 4" in text for text in told(job, match))


@pytest.mark.parametrize(
    "requirements",
    [
        "time() - QDate > 60 || Foo",
        "MY.Go ?: false",
        "TARGET.GLIDEIN_ResourceName =!= MY.MachineAttrGLIDEIN_ResourceName1",
        "NumJobCompletions > 0",
        "LoadAvg < 0.01",
        'Machine == "node$(Process)"',
        "this is ( no expression",
    ],
)
def test_a_requirement_that_may_hold_later_rules_nothing_out(requirements: str) -> None:
    assert look(job_of(requirements=requirements)).matching == 3


@pytest.mark.parametrize(
    ("expression", "parts"),
    [
        ("a && b", ["a", "b"]),
        ("((a) && (b && (c)))", ["a", "b", "c"]),
        ("a && b || c", ["a && b || c"]),
        ("(a || b) && c", ["a || b", "c"]),
        ("a ? b && c : d", ["a ? b && c : d"]),
        ("(x ?: y) =?= 3 && f(a && b)", ["(x ?: y) =?= 3", "f(a && b)"]),
        ('x == "&& (" && y', ['x == "&& ("', "y"]),
        ("(a) && (b)", ["a", "b"]),
    ],
)
def test_the_terms_of_an_expression(expression: str, parts: list[str]) -> None:
    assert terms(expression) == parts


def test_the_names_of_an_expression() -> None:
    text = 'TARGET.Memory >= MY.RequestMemory && f(x) && "Not.This" != y && true'
    assert names_in(text) == {"Memory": "target", "RequestMemory": "my", "x": "", "y": ""}


def test_a_match_is_the_same_after_its_way_through_json() -> None:
    match = look(job_of(resources={"gpus": {"count": 4, "memory": "80 GB"}}))
    assert Match.from_dict(json.loads(json.dumps(asdict(match)))) == match


def test_thousands_of_slots_and_of_rows_are_quick() -> None:
    rows = tuple({"n": str(n)} for n in range(10_000))
    job = job_of(resources={"memory": "64 GB"}).model_copy(update={"rows": rows})
    ad = classad2.ClassAd({"SubmitArch": "X86_64", "SubmitOpSys": "LINUX"})
    for name, text in job_attributes(job).items():
        ad[name] = classad2.ExprTree(text) if text else ""
    slots = [slot for _ in range(500) for slot in classad2.parseAds(ADS)]
    begun = time.process_time()
    assert match_slots(ad, needs_of(job), slots).slots == 2000
    assert time.process_time() - begun < 2


def test_a_collector_that_does_not_answer_keeps_nobody_waiting(tmp_path: Path) -> None:
    """A dry run needs no schedd, so nothing but the look is tried here."""
    (tmp_path / "job.toml").write_text('name = "it"\ncommand = "true"\n')
    with socket.create_server(("127.0.0.1", 0)) as silent:
        pool = f"htcondor:collector=127.0.0.1:{silent.getsockname()[1]}"
        found = dry_run(tmp_path, pool, HEADWAY_PATIENCE="6", CONDOR_CONFIG="/dev/null")
    (unknown,) = [f for f in found if f["id"] == "slots-unknown"]
    assert unknown["severity"] == "warning"
    assert "the collector 127.0.0.1" in unknown["what"] and "within 6 s" in unknown["what"]


def test_the_program_that_asks_starts_quickly() -> None:
    """It is started for every question, so it loads nothing that a question does not need."""
    code = (
        "import sys, headway.pool.htcondor.schedd;"
        "print({'pydantic', 'headway.spec'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def dry_run(folder: Path, pool: str, **env: str) -> list[dict[str, str]]:
    command = [sys.executable, "-m", "headway", "run", "job.toml", "--dry-run", "--json"]
    done = subprocess.run(
        [*command, "--pool", pool],
        cwd=folder,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found: list[dict[str, str]] = json.loads(done.stdout)["findings"]
    return found


# -- on a real pool

AS_HTCONDOR = """
import htcondor2
from dataclasses import asdict
from pathlib import Path
from headway.pool.folder import RunFolder
from headway.pool.match import _set_totals, job_attributes, needs_of
from headway.pool.htcondor.schedd import _match
from headway.pool.htcondor.submit import submit_description
from headway.spec import build_job

asks = {
    "plain": {},
    "gpu": {"resources": {"gpus": {"memory": "30 GB", "capability": 7.5}}},
    "two": {"resources": {"gpus": 2, "cpus": 8}},
    "large": {"resources": {"memory": "64 GB"}},
    "there": {"sites": {"only": ["ONE-SLOT", "PDX-Coeus-CE1"]}},
    "elsewhere": {"sites": {"avoid": ["PDX-Coeus-CE1"]}},
    "system": {"requirements": "OpSysMajorVer > 9 && TARGET.HasSIF"},
    "docker": {"container": "docker://python:3"},
    "sif": {"container": "osdf:///ns/it.sif"},
}
schedd, here = htcondor2.Schedd(), Path.cwd()
slots = htcondor2.Collector().query(htcondor2.AdType.Startd, "DynamicSlot =!= true")
for slot in slots:
    _set_totals(slot)
for name, more in asks.items():
    job = build_job({"name": name, "command": "true", **more}, folder=here)
    text = submit_description(job, RunFolder(here), "id", here)
    lines = dict(line.split(" = ", 1) for line in text.splitlines() if " = " in line)
    wanted = ("request", "gpus_", "requirements", "universe", "container", "should", "+Headway")
    lines = {key: value for key, value in lines.items() if key.startswith(wanted)}
    lines |= {"executable": "/bin/true", "transfer_executable": "false", "hold": "true"}
    cluster = schedd.submit(htcondor2.Submit(lines)).cluster()
    (ad,) = schedd.query(f"ClusterId == {cluster}")
    schedd.act(htcondor2.JobAction.Remove, f"ClusterId == {cluster}")
    needs = [asdict(need) for need in needs_of(job)]
    question = {"job": job_attributes(job), "needs": needs, "schedd": None, "collector": None}
    ours = _match(htcondor2, question)
    print(name, ours.matching, sum(ad.symmetricMatch(slot) for slot in slots), ours.slots)
"""


def test_the_look_says_what_htcondor_says(four_sites: Pool) -> None:
    """Jobs of many kinds in the queue: as many slots as their own Requirements would take."""
    done = four_sites.python(AS_HTCONDOR, cwd=four_sites.user_dir())
    assert done.returncode == 0, done.stderr
    counts = {name: figures for name, *figures in map(str.split, done.stdout.splitlines())}
    for ours, theirs, seen in counts.values():
        assert ours == theirs and seen == "4", counts
    assert len(counts) == 9
    assert counts["plain"][0] == "3" and counts["gpu"][0] == "1" and counts["large"][0] == "0"


def test_where_pilots_bring_the_slots_it_is_submitted_with_a_warning(four_sites: Pool) -> None:
    place = CondorPlace(four_sites)
    place.write({"job.toml": LARGE})
    run = ["run", "job.toml", "--pool", "htcondor"]
    refused = place.headway(*run, "--strict", code=2)
    assert "none of the pool's 4 slots could run this job today" in refused.stderr
    assert not (place.folder / ".headway/runs/large-1").exists()
    done = place.headway(*run, "--detach", "--json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    found = {line["id"]: line for line in lines if line["type"] == "finding"}
    assert found["no-slot-fits"]["severity"] == "warning"
    assert "2 slots would match with --resource mem=8GB" in found["no-slot-fits"]["remedy"]
    assert "the largest has 8.59 GB" in found["slots-memory"]["what"]
    assert lines[-1]["type"] == "submitted"
    place.headway("remove", "large")


LARGE = 'name = "large"\ncommand = "true"\n[resources]\nmemory = "64 GB"\n'
IN_PYTHON = """
import headway
from pathlib import Path
from headway.spec import build_job

small = {"name": "it", "command": "true"}
for more in (
    {"resources": {"memory": "64 MB", "gpus": 1}},
    {"resources": {"memory": "64 MB"}, "submit": {"+Robot": "true"}},
):
    try:
        headway.run(build_job(small | more, folder=Path("/")), pool="htcondor", wait=False)
    except headway.PreflightError as error:
        print(*error.problems, sep="\\n")
print("made" if Path(".headway/runs").exists() else "nothing made")
job = build_job(small | {"resources": {"memory": "64 GB"}}, folder=Path("/"))
run = headway.run(job, pool="htcondor", wait=False, strict=False)
print(*run.findings, sep="\\n")
run.remove()
job = build_job(small | {"resources": {"memory": "64 MB"}}, folder=Path("/"))
run = headway.run(job, pool="htcondor", wait=False)
print("spoken of:", [finding.id for finding in run.findings if "slot" in finding.id])
"""


@beside_others(15)
def test_a_static_pool_refuses_what_it_can_never_run(condor_pool: Pool) -> None:
    """One machine that no pilot brought; the session's pool lends its Python."""
    pool = Pool({"POOL_SITES": "DESK|2|2048||STARTD_ATTRS =;START = TARGET.Robot =!= true"})
    pool.home = Path(tempfile.mkdtemp(prefix="hws-", dir="/tmp"))
    pool.home.chmod(0o755)
    folder = condor_pool.user_dir()
    (folder / "job.toml").write_text(LARGE)
    where = {"cwd": folder, "env": {"CONDOR_CONFIG": str(pool.home / "etc/condor_config")}}
    try:
        pool._script("up")
        refused = condor_pool.headway(["run", "job.toml", "--pool", "htcondor"], **where)
        done = condor_pool.python(IN_PYTHON, **where)
    finally:
        pool._script("down")
        shutil.rmtree(pool.home)
    assert refused.returncode == 2
    assert "no slot of the pool can ever run this job" in refused.stderr
    assert "less than 64 GB of memory at 1 of 1 slot; the largest has 2.15 GB" in refused.stderr
    assert "1 slot would match with --resource mem=2GB" in refused.stderr
    assert done.returncode == 0, done.stderr
    before, after = done.stdout.split("nothing made\n")
    assert "resources.gpus.count: no GPU at 1 of 1 slot" in before
    assert "refused by the slot's own START at 1 of 1 slot: `TARGET.Robot isnt true`" in before
    assert "warning: pool: no slot of the pool can ever run this job" in after
    assert after.endswith("spoken of: []\n"), after
