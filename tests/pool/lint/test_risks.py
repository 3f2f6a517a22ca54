"""`headway wrap --check`: what it finds in submit descriptions, and where it keeps quiet."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headway.errors import HeadwayError
from headway.pool.lint.risks import file_risks, risks
from headway.pool.lint.traps import Severity
from headway.pool.lint.wrap import wrap

SUBS = Path(__file__).parent / "subs"

# A description that nothing can be said against; each case below spoils one thing.
CLEAN = """\
executable = run.sh
container_image = osdf:///ospool/x.sif
log = run.log
output = run.$(Process).out
transfer_input_files = train.py
request_cpus = 4
request_gpus = 1
gpus_minimum_capability = 7.5
request_memory = 8 GB
request_disk = 20 GB
should_transfer_files = YES
checkpoint_exit_code = 85
transfer_checkpoint_files = ckpt
+JobDurationCategory = "Long"
+WantGPULab = true
notification = never
queue 3
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "run.sh").write_text("#!/bin/bash\nset -e\nmkdir -p ckpt\npython3 train.py\n")
    (tmp_path / "train.py").write_text("print('results.json')\n")
    return tmp_path


def ids(text: str, base: Path) -> set[str]:
    return {finding.id for finding in risks(text, base)}


def test_nothing_to_say(base: Path) -> None:
    assert risks(CLEAN, base) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("request_gpus = 1\n", "", {"gpu-keys"}),
        ("request_gpus = 1\n", "request_gpus = 0\n", {"gpu-keys"}),
        ("request_gpus = 1\ngpus_minimum_capability = 7.5\n", "", set()),
        ("queue", "periodic_release = true\nqueue", {"release-unbounded"}),
        ("queue", "periodic_release = NumJobStarts < 10\nqueue", {"release-unbounded"}),
        ("queue", "PeriodicRelease = HoldReasonCode == 13\nqueue", {"release-unbounded"}),
        ("queue", "periodic_release = HoldReasonCode == 3 && NumJobStarts < 9\nqueue", set()),
        ("queue", "periodic_release = false\nqueue", set()),
        ("queue", "periodic_release = NumHolds < 5\nqueue", set()),
        ("queue", "n = NumHolds\nperiodic_release = $(n) < 5\nqueue", set()),
        ("files = YES", "files = NO", {"no-transfer", "transfer-conflict"}),
        ("files = YES", "files = IF_NEEDED", set()),
        ("queue", "transfer_output_files = results.json\nqueue", {"output-missing", "same-file"}),
        ("queue", "transfer_output_files = $(Process).out\nqueue", set()),
        ("= train.py", "= train.py, data.csv", {"input-missing"}),
        ("= train.py", "= train.py, $(file).csv", {"macro-unset"}),
        ("= train.py", "= train.py, osdf:///nrp/x.tar", {"hour-cut"}),
        ("= train.py", "= train.py, https://x/y.tar", set()),
        ("= train.py", "= train.py, https://x/y.zip", {"zip"}),
        ("queue", '+SingularityImage = "x"\nqueue', {"two-images"}),
        ("container_image = osdf:///ospool/x", '+SingularityImage = "x"\n#', {"singularity-image"}),
        ("log = run.log\n", "", {"no-log"}),
        ("log = run.log\n", "UserLog = run.log\n", set()),
        ("queue", "max_retries = 3\nqueue", {"retry-same-site"}),
        ("transfer_checkpoint_files = ckpt\n", "", {"checkpoint-files"}),
        ("checkpoint_exit_code = 85\n", "", {"checkpoint-code"}),
        ('+JobDurationCategory = "Long"\n', "", {"duration"}),
        ("request_memory = 8 GB\n", "", {"no-request"}),
        ("request_disk = 20 GB", "request_disk = 20", {"no-unit"}),
        ("request_memory = 8 GB", "RequestMemory = 8192", {"no-unit"}),
        ("request_memory = 8 GB", "request_memory = 8G", set()),
        ("request_memory = 8 GB", "request_memory = $(mem)", {"macro-unset"}),
        ("request_memory = 8 GB", "request_memory = MemoryUsage * 2", set()),
        ("notification = never", "notification = complete", {"notification"}),
        ("queue", "getenv = True\nqueue", {"getenv"}),
        ("queue", "getenv = HOME\nqueue", set()),
        ("queue 3\n", "", {"no-queue"}),
        ("queue 3\n", "queue 3\nqueue 4\n", {"after-queue"}),
        ("queue 3\n", "queue x from (\n1\n2\n)\n\n# end\n", set()),
        ("queue", "arguments = 1 \\\n# two\nqueue", {"submit-comment"}),
        ("queue", "arguments = 1 \\\n# two \\\n  3\nqueue", set()),
        ("queue", "x @=end\nqueue", {"unclosed", "no-queue"}),
        ("= run.sh", "= gone.sh", {"executable-missing"}),
        ("= run.sh", "= /bin/echo\ntransfer_executable = false", set()),
        ("= run.sh", "= $(prog)", {"macro-unset"}),
    ],
)
def test_one_thing(old: str, new: str, expected: set[str], base: Path) -> None:
    assert old in CLEAN
    assert ids(CLEAN.replace(old, new, 1), base) == expected


def test_where_and_how_bad(base: Path) -> None:
    finding = risks(CLEAN.replace("request_gpus = 1\n", ""), base)[0]
    assert finding.severity is Severity.ERROR
    assert finding.where == "job.sub:7"
    assert finding.line == "gpus_minimum_capability = 7.5"
    small = risks(CLEAN.replace("disk = 20 GB", "disk = 20"), base)[0]
    assert (small.severity, small.what) == (Severity.WARNING, "20 without a unit means 20 KiB")
    assert risks(CLEAN.replace("8 GB", "8192"), base)[0].severity is Severity.HINT


def test_an_output_that_no_script_mentions_is_worse(base: Path) -> None:
    text = CLEAN.replace("queue 3", "transfer_output_files = {}\nqueue")
    assert risks(text.format("results.json"), base)[0].severity is Severity.HINT
    assert risks(text.format("model.pt"), base)[0].severity is Severity.WARNING


def test_input_over_the_transfer_limit(base: Path) -> None:
    with (base / "big.tar").open("wb") as file:
        os.truncate(file.fileno(), 6 * 10**9)
    found = risks(CLEAN.replace("= train.py", "= train.py, big.tar"), base)
    assert [finding.id for finding in found] == ["input-size"]
    assert "big.tar, 6 GB" in found[0].what


def test_input_is_that_of_the_first_job(base: Path) -> None:
    for name, size in (("a", 6 * 10**9), ("b", 10)):
        (base / name).mkdir()
        with (base / name / "x.bin").open("wb") as file:
            os.truncate(file.fileno(), size)
    text = CLEAN.replace("= train.py", "= x.bin").replace(
        "queue 3", "initialdir = $(d)\nqueue d in (a, b)"
    )
    assert "input-size" in ids(text, base)


def test_traps_of_the_scripts_it_names(base: Path) -> None:
    (base / "run.sh").write_text("#!/bin/bash\nset -e\nmkdir ckpt\nwget https://x/y\n")
    (base / "train.py").write_text("model.cuda(1)\n")
    assert ids(CLEAN, base) == {"mkdir", "fetch", "gpu-index"}
    found = {finding.id: finding for finding in risks(CLEAN, base)}
    assert found["mkdir"].severity is Severity.ERROR  # the job checkpoints
    assert found["fetch"].where == "run.sh:4"


def test_initialdir_is_where_inputs_lie_and_the_executable_does_not(base: Path) -> None:
    (base / "sub").mkdir()
    text = CLEAN.replace("queue", "initialdir = sub\nqueue")
    (found,) = risks(text, base)
    assert found.id == "input-missing"
    assert f"there is no {base}/sub/train.py" in found.what
    (base / "train.py").rename(base / "sub/train.py")
    assert risks(text, base) == []
    assert ids(CLEAN.replace("queue", "initialdir = gone\nqueue"), base) >= {"folder-missing"}


def test_a_project_whose_submit_files_have_a_folder_of_their_own(base: Path) -> None:
    """condor_submit takes paths from where it is called: the check says so, and goes on there."""
    (base / "condor/gpu").mkdir(parents=True)
    (base / "elsewhere").mkdir()
    (base / "condor/gpu/job.sub").write_text(CLEAN)
    assert file_risks(base / "condor/gpu/job.sub", base) == []
    for here in ("condor/gpu", "elsewhere"):
        (found,) = file_risks(base / "condor/gpu/job.sub", base / here)
        assert found.id == "other-folder"
        assert f"not in {base / here}" in found.what and f"looked for in {base}" in found.what
    (base / "run.sh").unlink()
    (base / "train.py").unlink()
    (found,) = file_risks(base / "condor/gpu/job.sub", base / "elsewhere")
    assert found.id == "not-here" and str(base / "elsewhere") in found.what


def test_what_becomes_of_a_job_whose_files_are_of_another_machine(base: Path) -> None:
    elsewhere = "/home/nobody-here/data.csv"
    (found,) = risks(CLEAN.replace("= train.py", f"= train.py, {elsewhere}"), base)
    assert (found.id, found.severity) == ("other-machine", Severity.WARNING)
    assert "a job from here is held" in found.what
    (found,) = risks(CLEAN.replace("= run.sh", "= /home/nobody-here/run.sh"), base)
    assert "condor_submit refuses the file here" in found.what


def test_the_same_trap_on_many_lines_is_said_once(base: Path) -> None:
    lines = "".join(f"./work /home/me/{number}\n" for number in range(9))
    (base / "run.sh").write_text(f"#!/bin/bash\nset -e\n{lines}")
    (found,) = risks(CLEAN, base)
    assert found.id == "absolute-path" and found.where == "run.sh:3"
    assert "`/home/me/0`" in found.what and "Also lines 4, 5, 6 and 5 more" in found.what
    assert "transfer_input_files" in found.remedy


@pytest.mark.parametrize("path", sorted(SUBS.glob("*.sub")), ids=lambda path: path.name)
def test_real_looking_files(path: Path) -> None:
    found = file_risks(path)
    assert all(finding.what and finding.remedy for finding in found)
    assert [f.severity for f in found] == sorted(
        (f.severity for f in found), key=list(Severity).index
    )


def test_what_the_study_would_have_been_told() -> None:
    found = {finding.id for finding in file_risks(SUBS / "imagenet-ospool.sub")}
    assert {"hour-cut", "output-missing", "singularity-image", "duration"} <= found


def test_wrapping_settles_what_it_can(base: Path) -> None:
    text = CLEAN.replace("log = run.log\n", "").replace("queue", "max_retries = 3\nqueue")
    assert ids(text, base) == {"no-log", "retry-same-site"}
    assert ids(wrap(text).text, base) == set()


def test_a_missing_file_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(HeadwayError, match="cannot be read"):
        file_risks(tmp_path / "none.sub")


def test_in_the_words_of_the_job_and_its_pool(base: Path) -> None:
    plain = CLEAN.replace("container_image = osdf:///ospool/x.sif\n", "")
    plain = plain.replace('+JobDurationCategory = "Long"\n', "")
    assert ids(plain, base) == set()
    assert ids(plain.replace("queue", '+ProjectName = "x"\nqueue'), base) == {"duration"}
    endless = plain.replace("queue", "periodic_release = true\nqueue")
    assert "GPU" in risks(endless, base)[0].what
    without = endless.replace("request_gpus = 1\ngpus_minimum_capability = 7.5\n", "")
    assert "GPU" not in risks(without, base)[0].what
    assert ids(plain.replace("queue", "arguments = --workers 9\nqueue"), base) == {"workers"}
    assert ids(plain.replace("queue", "arguments = --workers 4\nqueue"), base) == set()


def test_a_path_is_named_whole_and_the_unit_is_the_one_that_counts(base: Path) -> None:
    text = CLEAN.replace("request_memory = 8 GB", "request_memory = 2000")
    text = text.replace("queue 3", "arguments = /scratch/$ENV(NOT_SET)/data\nqueue 3")
    found = {finding.id: finding for finding in risks(text, base)}
    assert "/scratch/$ENV(NOT_SET)/data lies outside" in found["scratch-path"].what
    assert found["no-unit"].remedy == "write the unit: request_memory = 2000 MB"
