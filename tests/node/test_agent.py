"""One attempt from begin to end."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import headway
import headway.node
from headway.node.record import write_json

from .conftest import Node


def test_a_plain_command_succeeds_and_is_recorded(node: Node) -> None:
    node.plan(["sh", "-c", "echo out; echo err >&2"])
    assert node.run() == 0
    assert node.stderr == ""
    folder = node.attempt()
    assert re.fullmatch(r"\d{8}T\d{6}Z-[0-9a-f]{6}", folder.name)
    assert (folder / "stdout").read_text() == "out\n"
    assert (folder / "stderr").read_text() == "err\n"
    assert sorted(p.name for p in folder.iterdir()) == [
        *("agent.log", "record.json", "stderr", "stdout")
    ]
    record = node.record()
    assert record["format"] == 1
    assert record["attempt"] == folder.name
    assert (record["exit"], record["command"]["status"]) == (0, 0)
    assert [phase["name"] for phase in record["phases"]] == [
        *("check", "stage-in", "run", "stage-out")
    ]
    assert all(phase["begin"] <= phase["end"] and phase["ok"] for phase in record["phases"])
    assert (record["run"], record["name"], record["job"]) == ("4b1f", "test", "0")
    assert len(record["segments"]) == 1


def test_phases_are_told_by_chirp_under_the_nonce(node: Node) -> None:
    node.plan(["true"])
    node.run()
    told = node.chirp.phases()
    assert [(each["phase"], each["state"]) for each in told] == [
        *(("check", "begin"), ("check", "end")),
        *(("stage-in", "begin"), ("stage-in", "end")),
        *(("run", "begin"), ("run", "end")),
        *(("stage-out", "begin"), ("stage-out", "end")),
        ("done", "end"),
    ]
    record = node.record()
    assert {each["nonce"] for each in told} == {record["nonce"]}
    assert re.fullmatch("[0-9a-f]{16}", record["nonce"])
    assert told[-1]["exit"] == "0"
    assert told[5]["status"] == "0"
    assert told[0]["attempt"] == record["attempt"]
    times = [float(each["t"]) for each in told]
    assert times == sorted(times)


def test_the_command_cannot_see_the_nonce(node: Node) -> None:
    look = """
import os, sys
for folder, _, names in os.walk("."):
    for name in names:
        print(open(os.path.join(folder, name), "rb").read().hex())
for pid in (os.getpid(), os.getppid()):
    for name in ("environ", "cmdline"):
        print(open(f"/proc/{pid}/{name}", "rb").read().hex())
"""
    node.python(look)
    assert node.run() == 0
    nonce = node.record()["nonce"]
    assert len(node.stdout()) > 1000
    assert nonce.encode().hex() not in node.stdout()


def test_the_environment_of_the_command(node: Node) -> None:
    node.row(job="7", lr="0.1")
    node.python(
        "import json, os; print(json.dumps(dict(os.environ)))",
        environment={"RATE": "{lr}", "PYTHONPATH": "/mine", "PYTHONHOME": ""},
        checkpoint={"paths": ["c"], "exit_code": 77, "interval": 3600.0, "signal": "SIGUSR1"},
    )
    parent = str(os.getpid())
    assert node.run(HEADWAY_PARENT=parent, OTHER="ü x", PYTHONDONTWRITEBYTECODE="1") == 0
    found = json.loads(node.stdout())
    assert found["RATE"] == "0.1"
    assert found["PYTHONPATH"] == f"{node.pyz}:/mine"
    assert found["PYTHONDONTWRITEBYTECODE"] == "1"
    assert found["OTHER"] == "ü x"
    assert found["HEADWAY_JOB"] == "7"
    assert found["HEADWAY_ATTEMPT"] == node.record()["attempt"]
    assert found["HEADWAY_CHECKPOINT_INTERVAL"] == "3600"
    assert found["HEADWAY_CHECKPOINT_EXIT_CODE"] == "77"
    assert found["HEADWAY_CHECKPOINT_SIGNAL"] == "SIGUSR1"
    assert found["PATH"] == os.environ["PATH"]
    for private in ("HEADWAY_ROW", "HEADWAY_PARENT", "HEADWAY_TRIED"):
        assert private not in found


def test_a_c_locale_reaches_the_command_as_it_was(node: Node) -> None:
    node.plan(["env"])
    del node.environment["PATH"]
    assert node.run() == 0
    names = {line.partition("=")[0] for line in node.stdout().splitlines()}
    own = {"HEADWAY_PYTHON", "HEADWAY_JOB", "HEADWAY_ATTEMPT", "PYTHONPATH", "PYTHONUNBUFFERED"}
    assert names == own | names & {"PWD", "_"}


@pytest.mark.parametrize(("given", "seen"), [({}, "1"), ({"PYTHONUNBUFFERED": ""}, "")])
def test_what_a_python_command_prints_is_seen_at_once(
    node: Node, given: dict[str, str], seen: str
) -> None:
    code = (
        "import os, time; print(os.environ['PYTHONUNBUFFERED']); open('printed', 'w').close();"
        "time.sleep(0.01 if os.environ['PYTHONUNBUFFERED'] == '' else 60)"
    )
    node.plan([sys.executable, "-c", code], environment=given, grace=0.1)
    process = node.start()
    node.wait_for("printed")
    if seen:
        assert node.stdout() == f"{seen}\n"  # while it runs
        process.terminate()
    assert node.end(process) == (143 if seen else 0)
    assert node.stdout() == f"{seen}\n"


def test_python_variables_of_the_job_do_not_break_the_agent(node: Node, tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('shadowed')")
    (node.folder / "select.py").write_text("raise SystemExit('shadowed')")
    node.plan(["sh", "-c", "echo $PYTHONHOME $PYTHONPATH"])
    assert node.run(PYTHONHOME="/nowhere", PYTHONPATH=str(tmp_path), PYTHONSTARTUP="/x") == 0
    assert node.stdout() == f"/nowhere {node.pyz}:{tmp_path}\n"


def test_the_command_can_import_what_is_for_commands(node: Node) -> None:
    """-S: this Python sees nothing that is installed, as on a worker."""
    code = (
        "import sys; from headway.checkpoint import Checkpoint;"
        " Checkpoint().save(step=1); print(sys.path[1])"
    )
    node.plan([sys.executable, "-S", "-c", code])
    assert node.run() == 0, node.stderr
    assert node.stdout() == f"{node.pyz}\n"
    assert (node.folder / "ckpt/00000001/index.json").is_file()


def test_a_whole_headway_that_is_installed_is_still_found(node: Node) -> None:
    code = (
        "import headway.checkpoint, headway.text; print(headway.__version__);"
        " print(headway.checkpoint.__file__); print(headway.text.__file__)"
    )
    source = Path(headway.node.__path__[0]).parents[1]
    node.plan([sys.executable, "-S", "-c", code], environment={"PYTHONPATH": str(source)})
    assert node.run() == 0, node.stderr
    version, ours, installed = node.stdout().splitlines()
    assert version == headway.__version__
    assert ours.startswith(str(node.pyz)) and installed.startswith(str(source))


def test_a_path_that_python_would_part_is_not_given(node: Node, tmp_path: Path) -> None:
    odd = tmp_path / "a:b"
    odd.mkdir()
    node.pyz = Path(shutil.copy(node.pyz, odd / "agent.pyz"))
    node.plan(["sh", "-c", "echo ${PYTHONPATH-none}"])
    assert node.run() == 0
    assert node.stdout() == "none\n"


def test_a_failing_command(node: Node) -> None:
    node.plan(["sh", "-c", "exit 3"])
    assert node.run() == 83
    assert "the command exited with 3" in node.stderr
    assert len(node.stderr.splitlines()) == 1
    record = node.record()
    assert (record["exit"], record["command"]["status"], record["command"]["signal"]) == (
        83,
        3,
        None,
    )
    told = node.chirp.phases()
    assert (told[-1]["exit"], told[-1]["status"]) == ("83", "3")
    run = next(each for each in told if (each["phase"], each["state"]) == ("run", "end"))
    assert (run["ok"], run["status"]) == ("0", "3")


def test_a_command_killed_by_a_signal(node: Node) -> None:
    node.plan(["sh", "-c", "kill -SEGV $$"])
    assert node.run() == 83
    assert "SIGSEGV" in node.stderr
    assert node.record()["command"]["signal"] == 11


def test_85_without_a_checkpoint_is_just_a_failure(node: Node) -> None:
    node.plan(["sh", "-c", "exit 85"])
    assert node.run() == 83


def test_shell_lines_and_placeholders(node: Node) -> None:
    node.row(job="3", word="a b")
    node.plan('echo "{word}" ${{HEADWAY_JOB}} | tr a-z A-Z; exit {job}')
    assert node.run() == 83
    assert node.stdout() == "A B 3\n"
    assert node.record()["command"]["status"] == 3
    assert node.record()["command"]["argv"] == ['echo "a b" ${HEADWAY_JOB} | tr a-z A-Z; exit 3']


@pytest.mark.parametrize(
    ("command", "mode", "words"),
    [
        (["no-such-program"], None, "is not on this node's PATH"),
        (["train"], 0o755, "write ./train"),
        (["train"], 0o644, "write ./train and make it executable"),
        (["./train"], 0o644, "is not executable"),
        (["./train2"], 0o755, "does not exist"),
        (["/"], None, "is a folder"),
    ],
)
def test_a_command_that_cannot_start(
    node: Node, command: list[str], mode: int | None, words: str
) -> None:
    if mode is not None:
        (node.folder / "train").write_text("#!/bin/sh\n")
        (node.folder / "train").chmod(mode)
    node.plan(command)
    assert node.run() == 83
    assert words in node.stderr
    assert words in node.record()["reason"]


@pytest.mark.parametrize(
    ("text", "words"),
    [("no shebang\n", "needs a first line"), ("#!/no/such/shell\n", "names an interpreter")],
)
def test_a_script_without_a_usable_first_line(node: Node, text: str, words: str) -> None:
    (node.folder / "train").write_text(text)
    (node.folder / "train").chmod(0o755)
    node.plan(["./train"])
    assert node.run() == 83
    assert words in node.stderr


def test_a_command_that_cleans_up_too_much(node: Node) -> None:
    node.plan("rm -rf headway-out; echo ok > model", outputs=[{"path": "model"}])
    assert node.run() == 0
    assert node.record()["exit"] == 0
    assert (node.folder / "headway-out/outputs/model").read_text() == "ok\n"


def test_names_with_spaces_and_unicode(node: Node) -> None:
    node.row(job="0", name="mödel ☃")
    node.python("import sys; open(sys.argv[1], 'w').write('x'); print(sys.argv[1])")
    plan = json.loads((node.folder / "plan.json").read_text())
    plan["command"].append("{name}.pt")
    plan["outputs"] = [{"path": "{name}.pt"}]
    (node.folder / "plan.json").write_text(json.dumps(plan))
    assert node.run(PYTHONUTF8="1") == 0, node.stderr
    assert (node.folder / "headway-out/outputs/mödel ☃.pt").exists()
    assert node.record()["outputs"][0]["path"] == "mödel ☃.pt"


def test_the_place_comes_from_the_pool(node: Node) -> None:
    (node.folder / ".machine.ad").write_text(
        'GLIDEIN_ResourceName = "CHTC-Spark-CE1"\nName = "slot1_2@host"\nMachine = "gpu7"\n'
    )
    (node.folder / ".job.ad").write_text("ClusterId = 17\nProcId = 4\nOther = 1\n")
    node.plan(["true"])
    folder = node.folder
    node.run(_CONDOR_MACHINE_AD=f"{folder}/.machine.ad", _CONDOR_JOB_AD=f"{folder}/.job.ad")
    record = node.record()
    assert record["site"] == "CHTC-Spark-CE1"
    assert record["slot"] == "slot1_2@host"
    assert record["host"] == "gpu7"
    assert record["cluster_proc"] == "17.4"


def test_an_unforeseen_fault_is_told_without_a_traceback_on_stderr(node: Node) -> None:
    node.plan(["true"])
    (node.folder / "headway-out").mkdir()
    (node.folder / "headway-out" / "outputs").write_text("a file, not a folder")
    assert node.run() == 87
    assert "Traceback" not in node.stderr
    assert node.record()["exit"] == 87


def test_the_agent_works_with_closed_standard_streams(node: Node) -> None:
    node.plan(["sh", "-c", "cat; echo done"])
    agent = f"exec {node.pyz} agent plan.json <&- >&- 2>&-"
    node.environment["X"] = agent
    process = os.spawnle(
        os.P_WAIT,
        "/bin/sh",
        "sh",
        "-c",
        f"cd {node.folder} && {agent}",
        {**node.environment, "HEADWAY_PYTHON": sys.executable},
    )
    assert process == 0
    assert node.stdout() == "done\n"


def test_with_the_oldest_python_at_hand(node: Node) -> None:
    """HEADWAY_TEST_PYTHON makes all tests of this folder run the agent with another Python."""
    pyenv = sorted(str(path) for path in Path.home().glob(".pyenv/versions/3.9.*/bin/python3"))
    oldest = next(iter(pyenv), None) or shutil.which("python3.9")
    if oldest is None or subprocess.run([oldest, "-c", ""], capture_output=True).returncode:
        pytest.skip("no python3.9 on this machine")
    node.plan(["sh", "-c", "exit 3"])
    assert node.run(HEADWAY_PYTHON=oldest) == 83
    assert node.record()["python"].startswith("3.9.")
    assert node.chirp.phases()[-1]["exit"] == "83"


KILLED_AT_A_WRITE = """
import os
from headway.node.record import write_json
os.replace = lambda *_: os.kill(os.getpid(), 9)
write_json("note.json", {})
"""


def test_what_a_kill_leaves_of_a_write_is_gone_after_the_next(tmp_path: Path) -> None:
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", KILLED_AT_A_WRITE], cwd=tmp_path, check=False)
        assert done.returncode == -9
    write_json(str(tmp_path / "note.json"), {})
    assert os.listdir(tmp_path) == ["note.json"]
