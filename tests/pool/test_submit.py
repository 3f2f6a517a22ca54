"""The submit description as text, without a pool."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.errors import PreflightError
from headway.pool.folder import RunFolder
from headway.pool.htcondor.schedd import take_common_input
from headway.pool.htcondor.submit import (
    LATE_FROM,
    LEAST,
    NOTHING,
    CommonInput,
    check_paths,
    row_lines,
    submit_description,
    worth_sharing,
)
from headway.pool.prepare import by_agent, plan
from headway.spec import Job, load_job


def job_of(folder: Path, text: str) -> Job:
    (folder / "rows.csv").write_text("name,url\none,osdf:///ns/1.bin\ntwo,https://h/2.bin\n")
    (folder / "box.sif").touch()
    (folder / "job.toml").write_text(f'name = "it"\ncommand = "true"\n{text}')
    return load_job(folder / "job.toml")


def lines_of(job: Job, base: Path, common: CommonInput = NOTHING) -> dict[str, str]:
    text = submit_description(job, RunFolder(base / "run-1"), "id", base, common)
    pairs = (line.partition(" = ") for line in text.splitlines() if " = " in line)
    return {key: value for key, _, value in pairs}


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("box.sif", "{base}/box.sif"),
        ("/cvmfs/x/y", "/cvmfs/x/y"),
        ("docker://python:3", "docker://python:3"),
        ("osdf:///ns/box.sif", "osdf:///ns/box.sif"),
    ],
)
def test_an_image_means_the_same_from_everywhere(tmp_path: Path, image: str, expected: str) -> None:
    lines = lines_of(job_of(tmp_path, f'container = "{image}"\n'), tmp_path)
    assert lines["container_image"] == expected.format(base=tmp_path)
    assert lines["universe"] == "container"


OWN_PLUGIN = '[submit]\ntransfer_plugins = "osdf=/x/plugin"\n'


def test_the_agent_takes_all_mirrors_but_those_of_the_jobs_own_plugin(tmp_path: Path) -> None:
    mirrors = '[[inputs]]\nurl = ["osdf:///ns/a.bin", "https://h/a.bin"]\n'
    job = job_of(tmp_path, mirrors)
    assert plan(job, "id")["inputs"][0]["urls"] == ["osdf:///ns/a.bin", "https://h/a.bin"]
    assert "osdf" not in lines_of(job, tmp_path)["transfer_input_files"]
    job = job_of(tmp_path, mirrors + OWN_PLUGIN)
    assert plan(job, "id")["inputs"][0]["urls"] == ["https://h/a.bin"]


def test_htcondor_brings_what_the_jobs_own_plugin_is_for(tmp_path: Path) -> None:
    job = job_of(
        tmp_path,
        'table = "rows.csv"\n[[inputs]]\nurl = "osdf:///ns/same.bin"\n'
        '[[inputs]]\nurl = "osdf:///ns/{name}.tar"\npath = "a"\n'
        f'[[inputs]]\nurl = "{{url}}"\npath = "b"\n{OWN_PLUGIN}',
    )
    assert [given["urls"] for given in plan(job, "id")["inputs"]] == [[], [], []]
    lines = lines_of(job, tmp_path)
    assert lines["transfer_input_files"].endswith("payload.tar, osdf:///ns/same.bin$(brought)")
    brought = [line.split("\x1f")[1] for line in row_lines(job, tmp_path)]
    assert brought == [
        ", osdf:///ns/one.tar, osdf:///ns/1.bin",
        ", osdf:///ns/two.tar, https://h/2.bin",
    ]


VIA = 'url = "osdf:///ns/a.bin"\nvia = "plugin"\n'


def test_via_plugin_brings_headways_own_plugin_along(tmp_path: Path) -> None:
    pin, checksum = f"sha256:{'a' * 64}", f"md5:{'b' * 32}"
    more = f'manifest = "{pin}"\nchecksum = "{checksum}"\npatience = "20 s"\n'
    job = job_of(tmp_path, f"[[inputs]]\n{VIA}{more}")
    (given,) = plan(job, "id")["inputs"]
    assert (given["urls"], given["manifest"], given["patience"]) == ([], pin, 20.0)
    lines = lines_of(job, tmp_path)
    assert lines["transfer_plugins"] == f"osdf={tmp_path}/run-1/headway-node.pyz"
    assert lines["transfer_input_files"].endswith(
        "payload.tar, osdf:///ns/a.bin, osdf:///ns/a.bin.headway$(brought)"
    )
    assert lines["+HeadwayChecksums"] == f'"a.bin={checksum}"'
    assert lines["+HeadwayPatience"] == "20"
    assert plan(by_agent(job), "id")["inputs"][0]["urls"] == ["osdf:///ns/a.bin"]
    lines = lines_of(job_of(tmp_path, f"[[inputs]]\n{VIA}{OWN_PLUGIN}"), tmp_path)
    assert lines["transfer_plugins"] == "osdf=/x/plugin"
    said = '[submit]\ntransfer_plugins = "s3=/x/plugin"\n'
    lines = lines_of(job_of(tmp_path, f"[[inputs]]\n{VIA}{said}"), tmp_path)
    assert lines["transfer_plugins"].startswith("s3=/x/plugin; osdf=")


def test_the_lists_for_nodes_without_a_way_out(tmp_path: Path) -> None:
    job = job_of(
        tmp_path,
        'table = "rows.csv"\n[[inputs]]\nurl = ["https://h/a.bin?sig=1", "osdf:///ns/a"]\n'
        '[[inputs]]\nurl = "osdf:///ns/{name}.tar"\npath = "b"\n'
        '[[inputs]]\nurl = "file:///mnt/c"\n',
    )
    lines = lines_of(job, tmp_path)
    assert "h/a.bin" not in lines["transfer_input_files"]
    assert lines["+HeadwayPluginInput"].endswith(
        'payload.tar$(brought), https://h/a.bin?sig=1$(spare)")'  # else, on a transfer slot, few
    )
    assert lines["+HeadwayPluginPlugins"] == f'"https,osdf={tmp_path}/run-1/headway-node.pyz"'
    rows = [line.split("\x1f") for line in row_lines(job, tmp_path)]
    assert [row[3] for row in rows] == [", osdf:///ns/one.tar", ", osdf:///ns/two.tar"]
    for odd in (
        'url = "https://h/x"\npath = "1"\n[[inputs]]\nurl = "https://h/y/x"\npath = "2"',
        'url = "https://h/a,b"',
        'url = "https://h/plan.json"\npath = "p"',
        'url = "file:///mnt/c"',
    ):
        lines = lines_of(job_of(tmp_path, f"[[inputs]]\n{odd}\n"), tmp_path)
        assert "+HeadwayPluginInput" not in lines


def test_inputs_that_differ_may_come_ahead(tmp_path: Path) -> None:
    given = '[[inputs]]\nurl = "https://h/{job}.bin"\n'
    lines = lines_of(job_of(tmp_path, f"count = 2\n{given}"), tmp_path)
    assert lines["+HeadwayCourier"] == "TARGET.HeadwayTransferSlot =?= true"
    assert lines["request_cpus"] == "ifThenElse(HeadwayCourier =?= true, 0, 1)"
    assert "HeadwayMayPrefetch =?= true" in lines["requirements"]
    assert lines["on_exit_remove"].startswith("HeadwayPrefetch =!= NumShadowStarts && ")
    assert "HeadwayTransferSlot" in lines["job_machine_attrs"]
    both = "count = 2\noutputs = ['x']\ndeliver = 'later'\n"
    lines = lines_of(job_of(tmp_path, f"{both}{given}"), tmp_path)
    assert lines["+HeadwayCourier"].startswith("HeadwayDeliverSince =!= undefined")
    assert lines["+HeadwayCourier"].endswith("|| TARGET.HeadwayTransferSlot =?= true")
    assert lines["keep_claim_idle"] == "ifThenElse(HeadwayCourier =?= true, 300, 0)"
    for without in (
        given,  # a single job
        f"count = 2\nprefetch = false\n{given}",
        "count = 2\n[[inputs]]\nurl = 'https://h/same.bin'\n",
        f"count = 2\n{given}store = false\n",
        f"count = 2\n{given}size = '10 MB'\n",  # not worth a start
        f"count = 2\n{given}via = 'plugin'\n",
    ):
        job = job_of(tmp_path, without)
        assert "+HeadwayCourier" not in lines_of(job, tmp_path), without
        assert not plan(job, "id")["prefetch"]


@pytest.mark.parametrize("packed", [False, True])
def test_a_manifest_among_the_files_is_not_asked_of_the_source(
    tmp_path: Path, packed: bool
) -> None:
    (tmp_path / "a.tar.headway").touch()
    files = 'files = ["a.tar.headway"]\n' if packed else ""
    pin = f'manifest = "sha256:{"a" * 64}"\n'
    spare = lines_of(
        job_of(tmp_path, f'{files}[[inputs]]\nurl = "https://h/a.tar"\n{pin}'), tmp_path
    )["+HeadwayPluginInput"]
    assert ", https://h/a.tar" in spare and ("a.tar.headway" in spare) != packed


def test_lists_are_added_to_and_own_keys_refused(tmp_path: Path) -> None:
    said = '[submit]\njob_machine_attrs = "OpSys"\nmax_job_retirement_time = "5"\n'
    lines = lines_of(job_of(tmp_path, said), tmp_path)
    assert lines["job_machine_attrs"] == "GLIDEIN_ResourceName, Machine, Name, OpSys"
    assert lines["max_job_retirement_time"] == "5"
    for key in ("MY.HeadwayRun", "WantIOProxy", "OnExitHoldSubCode", "batch_name"):
        with pytest.raises(Exception, match=r"Headway|use `name`"):
            lines_of(job_of(tmp_path, f'[submit]\n"{key}" = "1"\n'), tmp_path)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('outputs = [{ path = "a;b", to = "x/y" }]\n', "outputs[0].path"),
        ("outputs = [{ path = 'a', to = 'x/y\"z' }]\n", "outputs[0].to"),
        ('outputs = [{ path = "a", to = "x/$(Cluster)" }]\n', "outputs[0].to"),
        (f'[[inputs]]\nurl = "osdf:///ns/plan.json"\npath = "x"\n{OWN_PLUGIN}', "inputs[0].url"),
        (
            '[[inputs]]\nurl = "osdf:///a/x"\npath = "a"\n[[inputs]]\nurl = "osdf:///b/x"\n'
            f'path = "b"\n{OWN_PLUGIN}',
            "inputs[1].url",
        ),
    ],
)
def test_what_htcondor_would_misread_is_refused(tmp_path: Path, text: str, where: str) -> None:
    with pytest.raises(PreflightError) as refused:
        check_paths(job_of(tmp_path, text), RunFolder(tmp_path / "run-1"), tmp_path)
    assert [problem.where for problem in refused.value.problems] == [where]


@pytest.mark.parametrize("name", ["a,b", 'a"b', "a$b", "a\\b", "a\udcffb"])
def test_a_run_folder_that_no_submit_file_can_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(PreflightError, match="HTCondor cannot take a path"):
        check_paths(job_of(tmp_path, ""), RunFolder(tmp_path / name / "run-1"), tmp_path)


def test_the_agent_has_time_left_after_the_grace(tmp_path: Path) -> None:
    lines = lines_of(job_of(tmp_path, 'grace = "2 min"\n'), tmp_path)
    assert lines["job_max_vacate_time"] == "150"


def test_sites_are_one_term_each_and_machines_where_there_are_no_sites(tmp_path: Path) -> None:
    job = job_of(tmp_path, '[sites]\nonly = ["A", "B"]\navoid = ["C", "D"]\nprefer = ["A"]\n')
    lines = lines_of(job, tmp_path)
    site = "identicalMember((TARGET.GLIDEIN_ResourceName ?: TARGET.Machine)"
    assert lines["requirements"] == (
        f'({site}, {{"A", "B"}})) && (!{site}, {{"C", "D"}})) && (HeadwayAvoided =!= true)'
    )
    assert lines["rank"] == f'{site}, {{"A"}})'
    assert {"+HeadwayAvoid", "+HeadwayAvoided"} <= lines.keys()


LARGE = LEAST
SPARE = '[[inputs]]\nurl = "https://h/a.bin"\n'


@pytest.mark.parametrize(
    ("more", "payload", "image", "expected"),
    [
        ("count = 2\n", LARGE, LARGE, CommonInput(payload=True, image=True)),
        ("count = 2\n", LARGE, LARGE - 1, CommonInput(payload=True)),
        ("count = 2\n", LARGE - 1, LARGE, CommonInput(image=True)),
        ("count = 2\n", LARGE - 1, 0, NOTHING),
        ("", LARGE, LARGE, NOTHING),
        (f"count = {LATE_FROM}\n", LARGE, 0, CommonInput(payload=True)),
        (f"count = {LATE_FROM + 1}\n", LARGE, 0, NOTHING),
        ('count = 2\n[submit]\nmaterialize_max_idle = "1"\n', LARGE, 0, NOTHING),
        ('count = 2\n[submit]\ncontainer_is_common = "false"\n', LARGE, LARGE, NOTHING),
        ('count = 2\n[submit]\n"MY.CommonInputFiles" = \'"/a"\'\n', LARGE, LARGE, NOTHING),
    ],
)
def test_what_is_large_and_for_several_jobs_is_common_input(
    tmp_path: Path, more: str, payload: int, image: int, expected: CommonInput
) -> None:
    assert worth_sharing(job_of(tmp_path, more), payload, image) == expected


def test_common_input_is_not_brought_with_each_job(tmp_path: Path) -> None:
    job = job_of(
        tmp_path, f'count = 2\ncontainer = "box.sif"\nenvironment = {{ A = "$A" }}\n{SPARE}'
    )
    run = f"{tmp_path}/run-1"
    ours = {"transfer_common_input", "container_is_common"}
    assert not ours & lines_of(job, tmp_path).keys()
    lines = lines_of(job, tmp_path, CommonInput(payload=True, image=True))
    assert lines["transfer_common_input"] == f"{run}/payload.tar"
    assert lines["container_is_common"] == "true"
    own = f"{run}/plan.json, {run}/headway-secrets.json$(brought)"
    assert lines["transfer_input_files"] == own
    # HTCondor brings common input whatever TransferInput says
    assert lines["+HeadwayPluginInput"] == f'"{own}, https://h/a.bin$(spare)"'
    lines = lines_of(job, tmp_path, CommonInput(image=True))
    assert "payload.tar" in lines["transfer_input_files"]
    assert ours & lines.keys() == {"container_is_common"}


@pytest.mark.parametrize(
    ("bindings", "schedd", "expected"),
    [
        ("25.14.1", "25.14.0", True),
        ("26.0.0", "25.14.1", True),
        ("25.14.1", "25.13.9", False),
        ("25.10.1", "25.14.1", False),
        ("25.14.1", "None", False),
    ],
)
def test_both_ends_of_a_submit_must_know_common_input(
    bindings: str, schedd: str, expected: bool
) -> None:
    texts = [f"$CondorVersion: {bindings} 2026-09-24 BuildID: 1 $", f"$CondorVersion: {schedd} $"]
    assert take_common_input(texts) is expected
