"""Preflight: each check in a job that it stops or warns of, and in one that it lets through."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from headway.errors import PreflightError
from headway.node.transfer.manifest import publish
from headway.pool.base import Limits
from headway.pool.htcondor.pool import is_ospool
from headway.pool.lint.preflight import preflight
from headway.pool.lint.traps import LintFinding, Severity, raise_errors
from headway.spec import Job

OSPOOL = Limits(transfer_input_bytes=5000 * 2**20, ospool=True)
LOCAL = Limits(cpus=2, memory=8 * 10**9, disk=50 * 10**9, gpus=0, containers=False)
ROOMY = Limits(cpus=64, memory=10**12, disk=10**13, gpus=8)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("import sys\nprint('model.pt', 'ckpt', 85)\n")
    script = tmp_path / "run.sh"
    script.write_text("#!/bin/bash\nset -e\npython3 train.py\n")
    script.chmod(0o755)
    return tmp_path


def job(**keys: Any) -> Job:
    return Job.model_validate(
        {"name": "x", "command": ["python3", "train.py"], "files": ("train.py",), **keys}
    )


def look(
    base: Path, limits: Limits = ROOMY, pool: str = "local", **keys: Any
) -> dict[str, LintFinding]:
    found = preflight(job(**keys), base, limits, pool=pool)
    return {finding.id: finding for finding in found}


def test_a_good_job_raises_no_alarm(base: Path) -> None:
    assert look(base) == {}
    assert look(base, OSPOOL, "htcondor", duration="Medium") == {}


def test_all_errors_are_raised_at_once_and_a_warning_is_none(base: Path) -> None:
    bad = job(command=["./gone.sh"], files=("none.py",))
    with pytest.raises(PreflightError) as raised:
        raise_errors(preflight(bad, base, ROOMY, pool="local"))
    assert len(raised.value.problems) == 2
    assert "none.py" in str(raised.value)
    left = preflight(job(), base, OSPOOL, pool="htcondor")
    raise_errors(left)
    assert [finding.id for finding in left] == ["duration"]


# -- files


def big_file(path: Path, size: int) -> None:
    with path.open("wb") as file:
        os.truncate(file.fileno(), size)


def test_payload_over_the_transfer_limit(base: Path) -> None:
    (base / "data").mkdir()
    big_file(base / "data" / "a.bin", 4 * 10**9)
    big_file(base / "data" / "b.bin", 2 * 10**9)
    keys: dict[str, Any] = {"files": ("train.py", "data"), "resources": {"disk": "100 GB"}}
    found = look(base, OSPOOL, "htcondor", **keys)
    assert found["payload-size"].severity is Severity.ERROR
    assert "data/a.bin (4 GB), data/b.bin (2 GB)" in found["payload-size"].what
    assert "payload-size" not in look(base, **keys)
    os.truncate(base / "data" / "b.bin", 1000)
    assert "payload-size" not in look(base, OSPOOL, "htcondor", **keys)


def test_files_that_cannot_be_packed(base: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "x").write_text("")
    os.mkfifo(base / "pipe")
    (base / "gone").symlink_to("nowhere")
    (base / "lib").mkdir()
    (base / "inner").symlink_to("lib")
    (base / "outer").symlink_to(elsewhere)
    (base / "above").symlink_to(os.path.relpath(elsewhere, base))
    (base / "copy.py").symlink_to("/etc/hostname")
    assert set(look(base, files=("train.py", "pipe"))) == {"file-special"}
    assert set(look(base, files=("train.py", "gone"))) == {"file-dangling"}
    assert set(look(base, files=("train.py", "outer"))) == {"file-link"}
    assert set(look(base, files=("train.py", "above"))) == {"file-link"}
    assert set(look(base, files=("train.py", "inner"))) == {"file-link"}
    assert look(base, files=("train.py", "inner", "lib")) == {}
    assert look(base, files=("train.py", "copy.py")) == {}  # packed as a file of its own
    missing = look(base, files=("train.py", "trian.py"))
    assert missing["file-missing"].remedy == "did you mean train.py?"


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read everything")
def test_unreadable_file(base: Path) -> None:
    (base / "secret").write_text("x")
    (base / "secret").chmod(0)
    assert set(look(base, files=("train.py", "secret"))) == {"file-unreadable"}


@pytest.mark.parametrize(
    ("disk", "expected"), [("4 GB", Severity.ERROR), ("10.2 GB", Severity.WARNING), ("20 GB", None)]
)
def test_disk_for_what_is_declared(base: Path, disk: str, expected: Severity | None) -> None:
    given = {"url": "https://x/data.tar", "size": 10**10}
    found = look(base, inputs=[given], resources={"disk": disk})
    assert (found["disk"].severity if "disk" in found else None) is expected
    if expected:
        assert found["disk"].remedy == "--resource disk=12GB"


# -- command


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["./run.sh"], None),
        (["run.sh"], "program-path"),
        (["./runn.sh"], "program-missing"),
        (["./other.sh"], "program-missing"),
        (["other.sh"], "program-missing"),
        (["nowhere.sh"], "program-missing"),
        (["python3", "train.py", "--x", "1"], None),
        (["python3", "-u", "train.py"], None),
        (["python3", "-W", "ignore", "other.py"], "script-missing"),
        (["python3", "tarin.py"], "script-missing"),
        (["timeout", "2h", "python3", "tarin.py"], "script-missing"),
        (["torchrun", "--nproc-per-node", "2", "train.py"], None),
        (["accelerate", "launch", "--num_processes", "1", "other.py"], "script-missing"),
        (["bash", "run.sh"], None),
        (["bash", "-c", "other.py"], None),
        (["python3", "-c", "print(1)", "other.py"], None),
        (["python3", "-m", "other"], "script-missing"),
        (["python3", "-m", "pkg.tool"], "script-missing"),
        (["python3", "-m", "train"], None),
        (["python3", "-m", "torch.distributed.run"], None),
        (["/opt/tool/run.sh"], None),
        (["python3", "/opt/tool.py"], None),
        (["python3", "train.py", "--config", "conf.yaml"], "file-not-brought"),
        (["python3", "train.py", "--config=conf.yaml"], "file-not-brought"),
        (["python3", "train.py", "--out", "model.pt"], None),
        (["python3", "train.py", "--lr", "0.1", "pkg"], None),
        (["echo", "hello"], None),
        (["no-such-program"], None),
        (["prog"], "program-missing"),
    ],
)
def test_what_the_command_names(base: Path, command: list[str], expected: str | None) -> None:
    for name in ("other.sh", "other.py", "conf.yaml", "prog", "model.pt"):
        (base / name).write_text("")
    (base / "pkg").mkdir()
    (base / "pkg" / "tool.py").write_text("")
    keys: dict[str, Any] = {
        "command": command,
        "files": ("train.py", "run.sh"),
        "outputs": [{"path": "model.pt"}],
    }
    assert set(look(base, **keys)) == ({expected} if expected else set())


def test_did_you_mean(base: Path) -> None:
    found = look(base, command=["python3", "tarin.py"])
    assert found["script-missing"].remedy == "did you mean train.py?"
    (base / "other.py").write_text("")
    found = look(base, command=["python3", "other.py"])
    assert found["script-missing"].remedy == 'files = ["train.py", "other.py"]'


def test_an_input_can_bring_the_program(base: Path) -> None:
    keys: dict[str, Any] = {"command": ["./tool", "x"], "inputs": [{"url": "https://x/tool"}]}
    assert look(base, **keys) == {}


def test_a_program_that_cannot_be_started(base: Path) -> None:
    (base / "run.sh").chmod(0o644)
    assert set(look(base, command=["./run.sh"], files=("run.sh",))) == {"program-mode"}
    (base / "run.sh").chmod(0o755)
    (base / "run.sh").write_text("python3 x\n")
    assert set(look(base, command=["./run.sh"], files=("run.sh",))) == {"shebang-missing"}
    assert look(base, command=["bash", "run.sh"], files=("run.sh",)) == {}


def test_shell_commands_are_read_as_shell(base: Path) -> None:
    assert look(base, command="python3 train.py && echo ok", shell=True) == {}
    found = look(
        base, command="mkdir -p x; python3 tarin.py; run.sh", shell=True, files=("run.sh",)
    )
    assert set(found) == {"script-missing", "program-path", "errexit"}


def test_traps_of_the_scripts_are_part_of_it(base: Path) -> None:
    (base / "train.py").write_text("model = resnet50(pretrained=True)\nopen('/home/me/x')\n")
    assert set(look(base, OSPOOL, "htcondor", duration="Long")) == {"weights", "absolute-path"}
    assert set(look(base)) == {"weights"}  # on this machine the path may well exist


# -- resources


def test_more_than_this_machine_has(base: Path) -> None:
    asked = {"cpus": 8, "memory": "16 GB", "disk": "60 GB", "gpus": 1}
    found = look(base, LOCAL, resources=asked)
    assert found["request-cpus"].what == "asks for 8 cpus; this machine has 2 cpus"
    assert found["request-cpus"].remedy == "--resource cpu=2"
    assert found["request-memory"].remedy == "--resource mem=8GB"
    assert found["request-disk"].remedy == "--resource disk=50GB"
    assert found["request-gpus"].what == "asks for 1 GPU; this machine has no GPU"
    assert all(finding.severity is Severity.ERROR for finding in found.values())
    elsewhere = look(base, LOCAL, "htcondor", resources=asked)
    assert elsewhere["request-cpus"].severity is Severity.WARNING


def test_gpus(base: Path) -> None:
    two = look(base, OSPOOL, "htcondor", resources={"gpus": 2, "cpus": 4}, duration="Long")
    assert two["gpu-count"].severity is Severity.WARNING
    assert look(base, OSPOOL, "htcondor", resources={"gpus": 1}, duration="Long") == {}
    unsaid = look(base, resources={"gpus": {"memory": "20 GB"}, "cpus": 4})
    assert unsaid["gpu-count-missing"].what.startswith("sets memory but not how many")
    assert look(base, resources={"gpus": {"memory": "20 GB", "count": 1}}) == {}


def test_one_cpu_starves_a_gpu(base: Path) -> None:
    (base / "train.py").write_text("DataLoader(d, num_workers=args.w)\n")
    assert set(look(base, resources={"gpus": 1})) == {"gpu-starved"}
    assert look(base, resources={"gpus": 1, "cpus": 4}) == {}
    assert look(base) == {}


# -- inputs, container


def test_inputs_on_the_local_pool(base: Path) -> None:
    for url in ("osdf:///x/y.tar", "stash:///x/y.tar", "pelican://h/y.tar", "a+osdf:///x/y.tar"):
        keys: dict[str, Any] = {"inputs": [{"url": url}]}
        assert look(base, **keys) == {}
        assert look(base, OSPOOL, "htcondor", duration="Long", **keys) == {}
        keys["submit"] = {"Transfer_Plugins": "x=/y; osdf,stash,pelican=/p"}
        assert look(base, **keys)["input-plugin"].severity is Severity.ERROR
        assert look(base, OSPOOL, "htcondor", duration="Long", **keys) == {}
    assert look(base, inputs=[{"url": ["https://a/y.tar", "https://b/y.tar"]}]) == {}


def test_an_input_that_streams(base: Path) -> None:
    given = {"url": "https://x/y.tar", "mode": "stream"}
    pinned = {**given, "manifest": f"sha256:{'a' * 64}"}
    assert set(look(base, inputs=[given])) == {"stream-unproven"}
    assert "it has no checksum" in look(base, inputs=[given])["stream-unproven"].what
    assert look(base, inputs=[pinned]) == {}
    window = {**pinned, "keep": False, "window": 2 * 10**9, "size": 150 * 10**9}
    found = look(base, inputs=[window])
    assert (
        set(found) == {"stream-again"}
        and "every epoch downloads 150 GB again" in found["stream-again"].what
    )
    own = {"transfer_plugins": "https=./mine"}
    assert "stream-plugin" in look(base, OSPOOL, "htcondor", inputs=[pinned], submit=own)


def test_a_manifest_among_the_files(base: Path) -> None:
    (base / "y.tar").write_bytes(bytes(range(256)) * 20_000)
    digest = publish(str(base / "y.tar"), chunk_size=1 << 16).digest
    given = {"url": "https://x/y.tar", "mode": "stream"}
    files = ["train.py", "y.tar.headway"]
    found = look(base, inputs=[given], files=files)["stream-unproven"]
    assert f'manifest = "{digest}"' in found.remedy
    assert look(base, inputs=[{**given, "manifest": digest}], files=files) == {}
    other = {**given, "manifest": f"sha256:{'a' * 64}"}
    wrong = look(base, inputs=[other], files=files)["stream-manifest"]
    assert wrong.severity is Severity.ERROR and digest in wrong.remedy
    window = {**given, "manifest": digest, "keep": False, "window": 2_000_000}
    again = look(base, inputs=[window], files=files)["stream-again"].what
    assert "every epoch downloads 5.12 MB again (0% more than its size), 25.6 MB in five" in again


def test_what_is_unpacked(base: Path) -> None:
    given = {"url": "https://x/y.zip", "unpack": True, "size": 3 * 10**9}
    far: dict[str, Any] = {"limits": OSPOOL, "pool": "htcondor", "duration": "Long"}
    assert look(base, inputs=[given], resources={"disk": "10 GB"}) == {}
    needs = look(base, inputs=[given], resources={"disk": "5 GB"})["disk"]
    assert needs.severity is Severity.ERROR and "6 GB are declared" in needs.what
    for command in ("python3 y/train.py", "y/run.sh"):
        found = look(base, inputs=[given], resources={"disk": "10 GB"}, command=command)
        assert found == {}  # it may be in the archive
    packed = {**given, "url": "https://x/y.tar.zst?x"}
    assert set(look(base, inputs=[packed], resources={"disk": "10 GB"}, **far)) == {"zstd"}


def test_zip_and_guideline(base: Path) -> None:
    assert set(look(base, inputs=[{"url": "https://x/y.zip?z=1"}])) == {"zip"}
    keys: dict[str, Any] = {"resources": {"disk": "200 GB"}, "duration": "Long"}
    halves = [{"url": f"https://x/{n}", "size": 6 * 10**9} for n in "ab"]
    found = look(base, OSPOOL, "htcondor", inputs=halves, **keys)
    assert found["input-guideline"].severity is Severity.WARNING
    assert look(base, OSPOOL, "htcondor", inputs=halves[:1], **keys) == {}


def test_containers(base: Path) -> None:
    (base / "x.sif").write_bytes(b"sif")
    far: dict[str, Any] = {"limits": OSPOOL, "pool": "htcondor", "duration": "Long"}
    assert set(look(base, LOCAL, container="x.sif")) == {"container-unavailable"}
    assert set(look(base, container="gone.sif")) == {"container-missing"}
    assert look(base, container="x.sif") == {}
    assert set(look(base, container="osdf:///x.sif")) == {"container-scheme"}
    assert look(base, container="osdf:///x.sif", **far) == {}
    assert look(base, container="docker://x") == {}
    assert look(base, container="docker://x", **far)["container-docker"].severity is Severity.HINT
    assert look(base, container="/cvmfs/x", **far) == {}
    big_file(base / "x.sif", 2 * 10**9)
    assert set(look(base, container="x.sif", **far)) == {"container-size"}
    big_file(base / "x.sif", 6 * 10**9)
    found = look(base, container="x.sif", **far, resources={"disk": "20 GB"})
    assert "x.sif (6 GB)" in found["payload-size"].what


# -- outputs


def test_destinations(base: Path) -> None:
    (base / "results").mkdir()
    (base / "results" / "model.pt").write_text("")
    (base / "file").write_text("")

    def to(place: str, **more: Any) -> set[str]:
        return set(look(base, outputs=[{"path": "model.pt", "to": place, **more}]))

    assert to("results/model.pt") == {"output-exists"}
    assert to("results/model.pt", overwrite=True) == set()
    assert to("results/other.pt") == set()
    assert to("new/deep/model.pt") == set()
    assert to("file/model.pt") == {"output-folder"}
    assert to("https://x/model.pt") == set()
    assert to(str(base / "results" / "model.pt")) == {"output-exists"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root can write everywhere")
def test_a_folder_of_someone_else(base: Path) -> None:
    (base / "locked").mkdir(mode=0o555)
    for place in ("locked/m.pt", "locked/new/m.pt"):
        assert set(look(base, outputs=[{"path": "model.pt", "to": place}])) == {"output-folder"}


def test_an_output_that_nothing_mentions(base: Path) -> None:
    assert set(look(base, outputs=[{"path": "out/weights.h5"}])) == {"output-unmentioned"}
    assert look(base, outputs=[{"path": "out/weights.h5", "required": False}]) == {}
    assert look(base, outputs=[{"path": "out/model.pt"}]) == {}


# -- time


def test_duration(base: Path) -> None:
    far: dict[str, Any] = {"limits": OSPOOL, "pool": "htcondor"}
    assert set(look(base, **far)) == {"duration"}
    assert look(base, **far, checkpoint={"paths": ["ckpt"]}) == {}
    assert look(base, **far, duration="Medium", time_limit="20 h") == {}
    late = look(base, **far, duration="Medium", time_limit="21 h")
    assert late["duration-limit"].severity is Severity.WARNING
    assert look(base, **far, duration="Long", time_limit="40 h") == {}
    assert set(look(base, **far, duration="Long", time_limit="41 h")) == {"duration-limit"}
    saved = look(base, **far, duration="Long", time_limit="3 days", checkpoint={"paths": ["ckpt"]})
    assert saved["duration-limit"].severity is Severity.HINT


def test_checkpoint(base: Path) -> None:
    def saved(**keys: Any) -> set[str]:
        return set(look(base, checkpoint={"paths": ["ckpt"], **keys}))

    assert saved(interval="5 h") == set()
    assert saved(interval="6 h") == {"checkpoint-interval"}
    assert saved(paths=["state"]) == {"checkpoint-paths"}
    assert saved(exit_code=77) == {"checkpoint-code"}
    (base / "train.py").write_text("import headway.checkpoint as c\nc.Checkpoint('ckpt')\n")
    assert saved() == saved(exit_code=77) == set()


# -- tables


def table(base: Path, size: int, **keys: Any) -> tuple[dict[str, LintFinding], float]:
    rows = tuple({"n": str(n), "lr": f"0.{n}", "site": "ab"[n % 2]} for n in range(size))
    described = job(rows=rows, duration="Long", **keys)
    begin = time.process_time()  # other work on the machine does not count
    found = preflight(described, base, OSPOOL, pool="htcondor")
    seconds = time.process_time() - begin
    return {finding.id: finding for finding in found}, seconds


def test_each_value_of_a_table_is_looked_at(base: Path) -> None:
    (base / "conf").mkdir()
    for n in range(3):
        (base / "conf" / f"{n}.yaml").write_text("")
    command = ["python3", "train.py", "conf/{n}.yaml"]
    found, _ = table(base, 5, command=command)
    assert found["file-not-brought"].what.startswith("conf/0.yaml (and 2 more) is here")
    assert found["file-not-brought"].remedy == 'files = ["train.py", "conf"]'
    assert table(base, 5, command=command, files=("train.py", "conf"))[0] == {}
    scripts, _ = table(base, 2, command=["python3", "{site}.py"])
    assert scripts["script-missing"].severity is Severity.ERROR
    (base / "results").mkdir()
    (base / "results" / "4.pt").write_text("")
    outputs = [{"path": "model.pt", "to": "results/{n}.pt"}]
    assert set(table(base, 5, outputs=outputs)[0]) == {"output-exists"}
    assert table(base, 4, outputs=outputs)[0] == {}


def test_a_hundred_thousand_rows_in_a_second(base: Path) -> None:
    (base / "conf").mkdir()
    for n in range(1000):
        (base / "conf" / f"{n}.yaml").write_text("")

    def look() -> tuple[dict[str, LintFinding], float]:
        return table(
            base,
            100_000,
            command=["python3", "train.py", "--lr", "{lr}", "--config", "conf/{n}.yaml", "{job}"],
            inputs=[{"url": "https://x/{n}.tar", "path": "data/{n}.tar"}],
            outputs=[{"path": "model.pt", "to": "results/{site}/{n}.pt"}],
        )

    # The best of three: two busy threads of one core each seem to take twice as long.
    found, seconds = min((look() for _ in range(3)), key=lambda each: each[1])
    assert set(found) == {"file-not-brought"}
    assert seconds < 1


# -- in the words of the job and its pool


def test_a_gpu_s_wait_only_where_there_is_a_gpu(base: Path) -> None:
    (base / "run.sh").write_text("#!/bin/bash\nset -e\ntar -xf data.tar\npython3 train.py\n")
    (base / "train.py").write_text("import zipfile\nzipfile.ZipFile('x.zip')\n")
    keys: dict[str, Any] = {"command": "bash run.sh", "files": ("run.sh", "train.py")}
    without = look(base, **keys)
    assert "GPU" not in "".join(finding.what for finding in without.values())
    assert set(without) == {"extract", "zip"}
    with_one = look(base, resources={"gpus": 1, "cpus": 4}, **keys)
    assert all("the GPU waits" in finding.what for finding in with_one.values())


@pytest.mark.parametrize(
    ("arguments", "declared", "workers"),
    [
        ("--workers 8", True, 8),
        ("-j 8", True, 8),
        ("-j8", True, 8),
        ("--workers 2", True, None),
        ("-j 2", True, None),
        ("--workers auto", True, None),
        ("", True, 6),
        ("--num-workers=8", False, 8),
        ("data.num_workers=8", False, 8),
        ("--dataloader_num_workers 8", False, 8),
        ("-j 8 --co-workers-only 9", False, None),
    ],
)
def test_the_loader_processes_that_the_command_asks_for(
    base: Path, arguments: str, declared: bool, workers: int | None
) -> None:
    script = "p.add_argument('-j', '--workers', type=int, default=6)\nDataLoader(d, 0)\n"
    (base / "train.py").write_text(script if declared else "p.add_argument('-j', '--jobs')\n")
    found = look(base, command=["python3", "train.py", *arguments.split()], resources={"cpus": 4})
    said = [finding.what for finding in found.values()]
    assert said == ([f"{workers} loader processes share 4 cpus requested"] if workers else [])


def test_the_most_loader_processes_of_a_table(base: Path) -> None:
    described = job(
        command="python3 train.py --workers {n}",
        rows=({"n": "1"}, {"n": "16"}),
        resources={"cpus": 4},
    )
    found = {one.id: one for one in preflight(described, base, ROOMY, pool="local")}
    assert found["workers"].what.startswith("16 loader processes")
    (base / "run.sh").write_text("#!/bin/bash\nset -e\npython3 train.py --workers 12\n")
    inner = look(base, command="bash run.sh", files=("run.sh",), resources={"cpus": 4})
    assert inner["workers"].what.startswith("12 loader processes")
    assert inner["workers"].where == "run.sh:3"


@pytest.mark.parametrize(
    "line",
    [
        "source ~/.bashrc",
        ". $HOME/.profile",
        "source ${HOME}/miniconda3/etc/profile.d/conda.sh",
        "source /home/me/venv/bin/activate",
        "cp ~/.netrc .",
    ],
)
def test_a_file_of_the_home_never_goes_into_files(base: Path, line: str) -> None:
    (base / "run.sh").write_text(f"#!/bin/bash\nset -e\n{line}\npython3 train.py\n")
    keys: dict[str, Any] = {"command": "bash run.sh", "files": ("run.sh", "train.py")}
    found = look(base, Limits(), "htcondor", **keys)
    assert set(found) == {"home-file"}
    assert "container" in found["home-file"].remedy
    assert "`files`" not in found["home-file"].remedy


def test_the_ospool_s_advice_is_for_the_ospool(base: Path) -> None:
    keys: dict[str, Any] = {
        "resources": {"gpus": 2, "cpus": 4, "disk": "200 GB"},
        "inputs": [{"url": "https://x/a", "size": 60 * 10**9}],
        "container": "docker://x",
        "checkpoint": {"paths": ["model.pt"], "interval": "9 h"},
    }
    (base / "train.py").write_text("model.pt 85")
    elsewhere = look(base, Limits(), "htcondor", **keys)
    assert set(elsewhere) == {"container-docker", "checkpoint-interval", "syntax"}
    assert not any("OS" in str(finding) for finding in elsewhere.values())
    there = look(base, OSPOOL, "htcondor", **keys)
    assert {"gpu-count", "input-guideline"} <= set(there)
    assert "OSDF" in there["container-docker"].remedy
    assert "OSPool" in there["checkpoint-interval"].what
    assert "duration" not in look(base, Limits(), "htcondor")
    assert "duration" in look(base, OSPOOL, "htcondor")
    own = [{"url": "osdf:///ospool/ap40/data/me/x.tar"}]
    assert "duration" in look(base, Limits(), "htcondor", inputs=own)


@pytest.mark.parametrize(
    ("collectors", "expected"),
    [
        ("cm-1.ospool.osg-htc.org:9618?sock=collector, cm-2.ospool.osg-htc.org", True),
        ("cm.chtc.wisc.edu", False),
        ("127.0.0.1:9618", False),
        ("notospool.osg-htc.org", False),
        ("", False),
    ],
)
def test_the_ospool_is_known_by_its_collectors(collectors: str, expected: bool) -> None:
    assert is_ospool(collectors) is expected
