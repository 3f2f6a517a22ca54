"""`headway init job.sub`: what it writes loads and means the same, or nothing is written."""

from __future__ import annotations

import json
import stat
import string
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.cli.convert import convert, is_submit_file
from headway.cli.init import convert_file
from headway.errors import ConversionError, SpecError
from headway.node.plan import fill
from headway.spec import Job, load_job

from .conftest import Done

Call = Callable[..., Done]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project as people have them: scripts, folders of code and data, lists of rows."""
    for name in ("src", "data", "config"):
        (tmp_path / name).mkdir()
    for name in ("data/a.csv", "data/b.csv", "config/base.yaml", "weights.tar"):
        (tmp_path / name).write_text(name)
    (tmp_path / "src" / "train.py").write_text("open('model.pt', 'w').write('m')\n")
    (tmp_path / "run.sh").write_text('#!/bin/bash\nset -e\npython3 train.py "$@"\n')
    (tmp_path / "run.sh").chmod(0o755)
    (tmp_path / "rates.txt").write_text("0.1, a, --wd 0\n0.01, b, --wd 1e-4\n")
    return tmp_path


def job_of(folder: Path, text: str) -> tuple[Job, str]:
    (folder / "job.sub").write_text(text)
    (folder / "job.toml").unlink(missing_ok=True)
    target, written, _ = convert_file(folder / "job.sub")
    return load_job(target), written


def argv(job: Job, number: int) -> list[str]:
    return [fill(word, job.row(number)) for word in job.command]


# -- whole files


def test_a_sweep_with_a_container_and_federated_data(folder: Path) -> None:
    job, text = job_of(
        folder,
        """
        universe = container
        container_image = osdf:///site/images/torch.sif
        executable = run.sh
        arguments = --rate $(rate) --set $(set) $(more)
        transfer_input_files = src/train.py, osdf:///site/data/$(set).tar, data/$(set).csv
        transfer_output_files = model.pt, logs/
        transfer_output_remaps = "model.pt = models/$(set)-$(rate).pt"
        log = logs/$(Cluster).log
        output = logs/$(Cluster)_$(Process).out
        error = logs/$(Cluster)_$(Process).err
        request_cpus = 4
        request_memory = 16GB
        request_disk = 20000000
        request_gpus = 1
        gpus_minimum_capability = 7.5
        gpus_minimum_memory = 12GB
        gpus_minimum_runtime = 12010
        requirements = (HAS_CVMFS_oasis == true)
        +ProjectName = "Headway_Tests"
        +JobDurationCategory = "Long"
        max_retries = 2
        queue rate, set, more from rates.txt
        """,
    )
    assert job.container == "osdf:///site/images/torch.sif"
    assert [job.row(n)["rate"] for n in range(job.size)] == ["0.1", "0.01"]
    assert argv(job, 1)[-7:] == ["./run.sh", "--rate", "0.01", "--set", "b", "--wd", "1e-4"]
    assert set(job.files) == {"run.sh", "src/train.py", "data/a.csv", "data/b.csv"}
    assert [(given.urls, given.path) for given in job.inputs] == [
        (("osdf:///site/data/{set}.tar",), "{set}.tar")
    ]
    assert [(out.path, out.to) for out in job.outputs] == [
        ("model.pt", "models/{set}-{rate}.pt"),
        ("logs", None),
    ]
    asked = job.resources
    assert (asked.cpus, asked.memory, asked.disk) == (4, 16 * 2**30, 19532 * 2**20)
    assert asked.gpus is not None
    assert (asked.gpus.count, asked.gpus.memory) == (1, 12 * 2**30)
    assert (asked.gpus.capability, asked.gpus.runtime) == (7.5, "12.1")
    assert job.requirements == "(HAS_CVMFS_oasis == true)"
    assert job.submit == {"+ProjectName": '"Headway_Tests"'}
    assert (job.duration, job.retries.command) == ("Long", 2)
    assert "Not converted" not in text
    assert "# line 9: log = logs/$(Cluster).log  (the run's events.log" in text


def test_jobs_by_number_on_staging(folder: Path) -> None:
    job, text = job_of(
        folder,
        """
        container_image = file:///staging/me/torch.sif
        Executable = run.sh
        Arguments = $(Process) $INT(Process,%03d)
        transfer_input_files = src/, weights.tar
        transfer_output_files = checkpoints
        Output = $(Process).out
        RequestCpus = 1
        RequestMemory = 8*1024
        request_disk = 2GB
        request_GPUs = 1
        require_gpus = (Capability >= 8.0) && (GlobalMemoryMb >= 40000)
        +WantGPULab = true
        queue 5
        """,
    )
    assert job.size == 5
    assert argv(job, 3)[-3:] == ["./run.sh", "3", "003"]
    assert "src/train.py" in argv(job, 3)
    assert job.resources.memory == 8 * 2**30
    gpus = job.resources.gpus
    assert gpus is not None and (gpus.capability, gpus.memory) == (8.0, 40000 * 2**20)
    assert job.submit == {"+WantGPULab": "true"}
    assert "Not converted" not in text


def test_docker_with_the_folders_kept(folder: Path) -> None:
    (folder / "train.py").write_text("#!/usr/bin/env python3\nopen('out.txt', 'w')\n")
    job, text = job_of(
        folder,
        """
        universe = docker
        docker_image = pytorch/pytorch:2.0.1-cuda11.7
        executable = train.py
        preserve_relative_paths = true
        transfer_input_files = config/, data/a.csv
        getenv = True
        request_memory = 16G
        queue 1
        """,
    )
    assert job.container == "docker://pytorch/pytorch:2.0.1-cuda11.7"
    assert job.command == ("python3", "train.py")  # it has no exec bit: HTCondor would give it one
    assert job.files == ("config", "data/a.csv", "train.py")
    assert [output.path for output in job.outputs] == ["out.txt"]
    assert "# line 7: getenv = True\n#   variables of this machine" in text


def test_an_older_file_with_an_image_of_cvmfs(folder: Path) -> None:
    job, _ = job_of(
        folder,
        """
        Universe = vanilla
        executable = /bin/bash
        arguments = run.sh one
        transfer_input_files = run.sh, https://example.org/a.tgz?x=1
        transfer_output_remaps = "hists.root = out/hists_$(Process).root"
        +SingularityImage = "/cvmfs/singularity.opensciencegrid.org/some/image:latest"
        Requirements = HAS_SINGULARITY == True
        x509userproxy = /tmp/x509up_u1
        queue 2
        """,
    )
    assert job.command == ("/bin/bash", "run.sh", "one")
    assert job.container == "/cvmfs/singularity.opensciencegrid.org/some/image:latest"
    assert job.inputs[0].path == "a.tgz"
    assert [(o.path, o.to, o.required) for o in job.outputs] == [
        ("hists.root", "out/hists_{job}.root", False)
    ]
    assert job.submit == {"x509userproxy": "/tmp/x509up_u1"}


def test_a_program_a_row(folder: Path) -> None:
    for name in ("one.sh", "two.sh"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    job, _ = job_of(
        folder,
        "executable = $(script)\ntransfer_output_files = $Fn(script).root\n"
        "queue script matching files *o*.sh\n",
    )
    assert [argv(job, n) for n in range(2)] == [["./one.sh"], ["./two.sh"]]
    assert job.files == ("one.sh", "two.sh")
    assert fill(job.outputs[0].path, job.row(1)) == "two.root"


def test_a_folder_a_job(folder: Path) -> None:
    for number in range(2):
        (folder / f"run_{number}").mkdir()
        (folder / f"run_{number}" / "in.dat").touch()
    job, _ = job_of(
        folder,
        "executable = run.sh\ninitialdir = run_$(Process)\ntransfer_input_files = in.dat\n"
        "transfer_output_files = out.dat\nqueue 2\n",
    )
    assert job.files == ("run.sh", "run_0/in.dat", "run_1/in.dat")
    assert "run_1/in.dat" in argv(job, 1)
    assert job.outputs[0].to == "run_{job}/out.dat"


def test_what_condor_submit_finds_from_the_folder_it_is_called_in(
    folder: Path, headway: Call
) -> None:
    (folder / "condor").mkdir()
    (folder / "condor" / "train.sub").write_text("executable = run.sh\nqueue\n")
    done = headway("init", "condor/train.sub")
    assert done.stdout.startswith("wrote job.toml")
    assert load_job(folder / "job.toml").name == "train"


def test_many_rows_stand_in_a_table_of_their_own(folder: Path) -> None:
    (folder / "many.txt").write_text("".join(f"{n}, a,b {n}\n" for n in range(100)))
    job, text = job_of(
        folder, "executable = run.sh\narguments = $(n) $(v)\nqueue n,v from many.txt\n"
    )
    assert 'table = "job.rows.csv"' in text
    assert job.size == 100
    assert argv(job, 7)[-3:] == ["7", "a,b", "7"]
    (folder / "job.toml").unlink()
    with pytest.raises(SpecError, match=r"job\.rows\.csv.*exists"):
        convert_file(folder / "job.sub")
    assert not (folder / "job.toml").exists()


def test_a_converted_file_runs_as_htcondor_would_run_it(folder: Path, headway: Call) -> None:
    (folder / "src" / "train.py").write_text(
        "import sys\nopen('model.pt', 'w').write(' '.join(sys.argv[1:]) + open('a.csv').read()"
        " + sys.stdin.readline())\n"
    )
    (folder / "job.sub").write_text(
        "executable = run.sh\narguments = \"$(rate) 'it''s $(set)' $(more)\"\n"
        "transfer_input_files = src/train.py, data/\ninput = rates.txt\n"
        'transfer_output_files = model.pt\ntransfer_output_remaps = "model.pt = out/$(set).pt"\n'
        "request_memory = 100MB\nrequest_disk = 50MB\nqueue rate, set, more from rates.txt\n"
    )
    headway("init", "job.sub")
    headway("run", "job.toml")
    assert (folder / "out/a.pt").read_text() == "0.1 it's a --wd 0data/a.csv0.1, a, --wd 0\n"
    assert (folder / "out/b.pt").read_text() == "0.01 it's b --wd 1e-4data/a.csv0.1, a, --wd 0\n"


# -- single values


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("a  b\tc", ["a", "b", "c"]),
        (r"say \"hi\" it's", ["say", '"hi"', "it's"]),
        ("\"a 'b c' d\"", ["a", "b c", "d"]),
        ('"say ""hi"" \'it\'\'s\'"', ["say", '"hi"', "it's"]),
        ("\"x='a b'c ''\"", ["x=a bc", ""]),
        ('{x} ${HOME} { {\\"a\\":{\\"b\\":1}}', ["{x}", "${HOME}", "{", '{"a":{"b":1}}']),
        ("$(DOLLAR)HOME", ["$HOME"]),
    ],
)
def test_both_syntaxes_of_arguments(folder: Path, arguments: str, words: list[str]) -> None:
    job, _ = job_of(folder, f"executable = run.sh\narguments = {arguments}\nqueue\n")
    assert argv(job, 0) == ["./run.sh", *words]


def test_a_value_of_a_row_is_as_many_words_as_htcondor_makes_of_it(folder: Path) -> None:
    text = "executable = run.sh\narguments = --x $(rest)\nqueue rest from (\n{}\n)\n"
    same, _ = job_of(folder, text.format("-a 1\n-b 2"))
    assert argv(same, 1) == ["./run.sh", "--x", "-b", "2"]
    other, _ = job_of(folder, text.format("-a 1\n-b '$HOME;' *"))
    assert argv(other, 1) == [
        "sh",
        "-c",
        """exec "$@" --x -b ''"'"'$HOME;'"'"'' '*'""",
        "sh",
        "./run.sh",
    ]


@pytest.mark.parametrize(
    ("environment", "variables"),
    [
        ("A=1;B=two words; C=", {"A": "1", "B": "two words", "C": ""}),
        ("\"A=1 B='two words' C='it''s'\"", {"A": "1", "B": "two words", "C": "it's"}),
        ('"A=$(Process) B=""q"""', {"A": "{job}", "B": '"q"'}),
    ],
)
def test_both_syntaxes_of_environment(
    folder: Path, environment: str, variables: dict[str, str]
) -> None:
    job, _ = job_of(folder, f"executable = run.sh\nenvironment = {environment}\nqueue 2\n")
    assert job.environment == variables


def test_a_value_of_the_shell_is_not_written_down(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "s3cret")
    job, text = job_of(
        folder,
        'executable = run.sh\nenvironment = "WANDB_API_KEY=$ENV(WANDB_API_KEY) B=$(DOLLAR)HOME"\n'
        "getenv = HF_TOKEN, WANDB_API_KEY\nqueue\n",
    )
    assert job.from_shell == {"WANDB_API_KEY": "WANDB_API_KEY", "HF_TOKEN": "HF_TOKEN"}
    assert job.environment["B"] == "$$HOME"
    assert "s3cret" not in text


def test_the_largest_request_of_a_table(folder: Path) -> None:
    job, text = job_of(
        folder, "executable = run.sh\nrequest_memory = $(mem)\nqueue mem in (2GB 512MB)\n"
    )
    assert job.resources.memory == 2 * 2**30
    assert "request_memory differs from job to job" in text


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("request_memory = ifThenElse(isUndefined(MemoryUsage), 1024, MemoryUsage * 2)", "size"),
        ("request_cpus = 1 # one", "plain number"),
        ("transfer_input_files = /somewhere/else.dat", "outside the folder"),
        ("transfer_input_files = ../up.dat", "outside the folder"),
        ("transfer_input_files = not-here.dat", "no such file"),
        ("transfer_input_files = s3://bucket/key", "s3://"),
        ("transfer_input_files = osdf:///site/folder/?recursive", "single objects"),
        ("transfer_output_files = /scratch/out", "job's own folder"),
        ("getenv = true", "machine"),
        ("environment = A=x-$ENV(MY_SECRET_TOKEN)", "secret"),
        ("getenv = PYTHON*", "one by one"),
        ("on_exit_hold = ExitCode != 0", "retries"),
        ("should_transfer_files = NO", "brings files itself"),
        ("gpus_minimum_memory = 8GB", "without request_gpus"),
        ("checkpoint_exit_code = 85", "makes up the checkpoint"),
        ('+Attribute = "$(Cluster)"', "at submit"),
        ("use template : Something(1)", "only the pool knows"),
        ("container_image = image.sif", "no file"),
        ("transfer_output_files = plan.json", "used by Headway"),
        ("requirements = $(undefined) == 1", "nothing in the file sets it"),
    ],
)
def test_what_is_not_taken_over_stays_with_its_line_and_the_reason(
    folder: Path, line: str, why: str
) -> None:
    (folder / "job.sub").write_text(f"executable = run.sh\n{line}\nqueue\n")
    target, text, made = convert_file(folder / "job.sub")
    assert any(why in each.reason for each in made.skipped), made.skipped
    assert why in text.partition("# Not converted")[2]
    assert load_job(target).command == ("./run.sh",)


def test_what_is_not_taken_over_is_printed(folder: Path, headway: Call) -> None:
    (folder / "job.sub").write_text("executable = run.sh\ngetenv = true\nqueue\n")
    said = headway("init", "job.sub")
    assert "job.sub:2: getenv = true\n    variables of this machine" in said.stderr
    (folder / "job.toml").unlink()
    facts = json.loads(headway("init", "job.sub", "--json").stdout)
    assert [left["line"] for left in facts["left"]] == [2]
    assert facts["text"] == (folder / "job.toml").read_text()


def test_checkpoints_and_limits(folder: Path) -> None:
    job, _ = job_of(
        folder,
        "executable = run.sh\ncheckpoint_exit_code = 77\ntransfer_checkpoint_files = state/, a.pt\n"
        "job_max_vacate_time = 120\nallowed_execute_duration = 3600\ninput = rates.txt\nqueue\n",
    )
    assert job.checkpoint is not None
    assert (job.checkpoint.paths, job.checkpoint.exit_code) == (("state", "a.pt"), 77)
    assert (job.grace, job.time_limit) == (120, 3600)
    assert job.command[-2:] == ("rates.txt", "./run.sh")


# -- nothing is written


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("executable = run.sh\narguments = $(Cluster)\nqueue\n", "line 2: arguments = $(Cluster)"),
        ("executable = run.sh\narguments = $(runid)\nqueue\n", "nothing in the file sets it"),
        ("executable = missing.sh\nqueue\n", "there is no file missing.sh"),
        ("executable = ../run.sh\nqueue\n", "lies outside"),
        ("executable = /home/nobody/run.sh\nqueue\n", "lies outside"),
        ("universe = docker\ndocker_image = a/b\nqueue\n", "no `executable`"),
        ("universe = grid\nexecutable = run.sh\nqueue\n", "universe grid"),
        ("executable = run.sh\nqueue a from seq 3 |\n", "a program prints the rows"),
        ("executable = run.sh\nqueue\nexecutable = run.sh\nqueue\n", "second `queue`"),
        ('executable = run.sh\narguments = "a \'b"\nqueue\n', "no partner"),
    ],
)
def test_a_file_that_cannot_be_converted_is_refused(folder: Path, text: str, why: str) -> None:
    (folder / "job.sub").write_text(text)
    before = sorted(folder.rglob("*"))
    with pytest.raises(ConversionError) as refused:
        convert_file(folder / "job.sub")
    assert why in str(refused.value)
    assert sorted(folder.rglob("*")) == before


def test_a_refusal_on_the_command_line(folder: Path, headway: Call) -> None:
    (folder / "job.sub").write_text("executable = run.sh\narguments = $(Cluster)\nqueue\n")
    done = headway("init", "job.sub", code=2)
    assert "error: line 2: arguments = $(Cluster)" in done.stderr
    assert done.stdout == ""


def test_nothing_is_overwritten_and_nobody_reads_more_than_before(
    folder: Path, headway: Call
) -> None:
    (folder / "job.sub").write_text("executable = run.sh\nenvironment = KEY=s3cret\nqueue\n")
    (folder / "job.sub").chmod(0o600)
    (folder / "job.toml").write_text("mine")
    assert "exists already" in headway("init", "job.sub", code=2).stderr
    assert (folder / "job.toml").read_text() == "mine"
    (folder / "job.toml").unlink()
    headway("init", "job.sub")
    assert stat.S_IMODE((folder / "job.toml").stat().st_mode) == 0o600


def test_which_files_are_submit_files(folder: Path) -> None:
    assert not is_submit_file(folder / "run.sh")
    assert not is_submit_file(folder / "src" / "train.py")
    (folder / "train").write_text("# mine\nExecutable = run.sh\nQueue 3\n")
    assert is_submit_file(folder / "train")
    (folder / "notes.txt").write_text("queue up for lunch\n")
    assert not is_submit_file(folder / "notes.txt")


# -- anything at all

KEYS = (
    "executable arguments environment transfer_input_files transfer_output_files initialdir input"
    " transfer_output_remaps request_memory request_gpus require_gpus container_image requirements"
    " +Attribute universe getenv x if else endif include max_retries checkpoint_exit_code"
    " transfer_checkpoint_files gpus_minimum_memory preserve_relative_paths batch_name rank"
)
VALUES = (
    *("run.sh", "src/", "data/$(x).csv", "$(x)", "$(Process)", "$Fn(x)", '"', "'", "a b", "@=t"),
    *(
        "{x}",
        "}}",
        "\\",
        "data/a.csv, src/train.py",
        "osdf:///a/b.tar",
        "http://h/$(x)",
        "a = b; c",
    ),
    *("true", "8*1024", "$$(A)", "$(x:$(y))", "..", "/", "~", "#", "é", "4 GB", "model.pt=$(x)/"),
    *('"a ""b"" c"', "$(DOLLAR)$(x)"),
)
QUEUES = (
    "queue",
    "queue 3",
    "queue x in (a b)",
    "queue x,y from rates.txt",
    "queue x matching *",
    "",
)


@given(
    lines=st.lists(
        st.tuples(
            st.sampled_from(KEYS.split()),
            st.lists(st.sampled_from(VALUES) | st.text(string.printable, max_size=6), max_size=3),
        ),
        max_size=12,
    ),
    queue=st.sampled_from(QUEUES),
)
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None
)
def test_any_file_gives_one_that_loads_or_a_reason(
    folder: Path, lines: list[tuple[str, list[str]]], queue: str
) -> None:
    text = "executable = run.sh\n" + "".join(f"{k} = {''.join(v)}\n" for k, v in lines) + queue
    path = folder / "any.sub"
    path.write_text(text, encoding="utf-8")
    (folder / "job.toml").unlink(missing_ok=True)
    try:
        target, _, made = convert_file(path)
    except ConversionError as refusal:
        assert str(refusal)
        assert not (folder / "job.toml").exists()
        return
    assert load_job(target).size == len(made.rows)


def test_a_conversion_tells_each_line_once(folder: Path) -> None:
    path = folder / "job.sub"
    path.write_text("executable = run.sh\ninitialdir = $(Cluster)\ninput = x\nqueue\n")
    left = convert(path, folder).skipped
    assert len(left) == len(set(left))


@pytest.mark.parametrize("verb", ["wrap", "init"])
@pytest.mark.parametrize("key", ["executable", "transfer_input_files"])
def test_a_name_that_no_file_can_have(folder: Path, headway: Call, key: str, verb: str) -> None:
    program = "" if key == "executable" else "executable = run.sh\n"
    (folder / "long.sub").write_text(f"{program}{key} = {'a' * 300}\nqueue\n")
    done = headway(verb, "long.sub", code=None)
    assert "bug in headway" not in done.stderr, done.stderr


def test_many_variables_of_many_rows(folder: Path) -> None:
    names, rows = ",".join(f"v{n}" for n in range(5000)), "x\n" * 5000
    text = f"executable = run.sh\nqueue {names} from (\n{rows})\n"
    (folder / "job.sub").write_text(text)
    with pytest.raises(ConversionError, match="5,000 rows of 5,000 values are too many"):
        convert(folder / "job.sub", folder)
