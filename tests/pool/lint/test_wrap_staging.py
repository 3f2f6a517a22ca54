"""`headway wrap` and URLs: what the agent stages in, what stays with HTCondor, and why."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.lab import Made, Server, Status
from tests.node.conftest import Chirp

from headway.errors import HeadwayError
from headway.pool.lint.submit_file import read
from headway.pool.lint.wrap import Wrapped, wrap, wrap_file
from headway.pool.program import build_agent, is_agent

CONTENT = Made(50_000, seed=4)
PLAIN = {
    "executable": "run.sh",
    "arguments": "a $(Process)",
    "transfer_input_files": "note.txt, https://h/x.tar?sig=1, osdf:///ns/$(Process).tar",
    "transfer_output_files": "out",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    return tmp_path


def text_of(queue: str = "queue 2", **more: str) -> str:
    lines = {**PLAIN, **more}
    return "".join(f"{key} = {value}\n" for key, value in lines.items() if value) + f"{queue}\n"


def wrapped(folder: Path, text: str) -> Wrapped:
    return wrap(text, "job", base=folder)


def test_the_urls_move_and_the_rest_stays(folder: Path) -> None:
    done = wrapped(folder, text_of())
    file = read(done.text)
    assert done.staged
    assert file.value("executable") == "job.headway-node.pyz"
    assert file.value("arguments") == "stage run.sh a $(Process)"
    assert file.value("transfer_input_files") == "note.txt, run.sh"
    assert file.value("HeadwayInputs") == '"https://h/x.tar?sig=1, osdf:///ns/$(Process).tar"'
    assert file.value("should_transfer_files") == "YES"
    assert "ExitCode == 81" in file.value("on_exit_hold")
    again = wrapped(folder, done.text)
    assert again.text == again.original, again.diff()


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("", "stage run.sh"),
        ("\"one 'two three'\"", "\"stage run.sh one 'two three'\""),
        ('-x \\"q\\"', 'stage run.sh -x \\"q\\"'),
    ],
)
def test_arguments_keep_their_syntax(folder: Path, given: str, made: str) -> None:
    assert read(wrapped(folder, text_of(arguments=given)).text).value("arguments") == made


def test_as_htcondor_reads_it(folder: Path) -> None:
    submit = pytest.importorskip("htcondor2").Submit
    text = text_of(arguments="\"$(Process) 'a b'\"", initialdir="run$(Process)", host="https://h")
    text = text.replace("https://h/x.tar", "$(host)/x.tar")
    made: Any = submit(wrapped(folder, text).text)
    assert made.expand("arguments").startswith('"stage run.sh ')
    assert made.expand("arguments").endswith(" 'a b'\"")
    assert f"{folder}/run.sh" in made.expand("transfer_input_files")
    assert "https://h/x.tar?sig=1" in made.expand("MY.HeadwayInputs")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"universe": "docker"}, "universe docker"),
        ({"universe": "vm"}, "universe vm"),
        ({"transfer_executable": "false"}, "transfer_executable"),
        ({"should_transfer_files": "IF_NEEDED"}, "should_transfer_files is not YES"),
        ({"transfer_output_files": ""}, "would return everything"),
        ({"checkpoint_exit_code": "85"}, "every checkpoint"),
        ({"transfer_input_remaps": '"a=b"'}, "move the inputs"),
        ({"executable": "$(prog)"}, "only HTCondor knows"),
        ({"executable": "other.sh"}, "is not here"),
        ({"my_list": "$(transfer_input_files), z"}, "uses or sets transfer_input_files"),
        ({"queue": "queue arguments from list.txt"}, "uses or sets arguments"),
        ({"queue": "queue\narguments = b\nqueue"}, "more than once"),
        ({"transfer_input_files": "https://h/run.sh"}, "the name of the executable"),
    ],
)
def test_what_is_left_to_htcondor_as_a_whole(
    folder: Path, changes: dict[str, str], why: str
) -> None:
    text = text_of(**changes)
    done = wrapped(folder, text)
    assert not done.staged
    assert [note for note in done.notes if "left to HTCondor" in note and why in note], done.notes
    assert "HeadwayInputs" not in done.text


@pytest.mark.parametrize(
    "item",
    [
        "https://h/folder/",
        "osdf:///ns/a?recursive",
        "https://h/$$(Arch).tar",
        "$(url)",
        "https://other/x.tar",  # of the same name as another
    ],
)
def test_an_item_that_the_agent_cannot_carry_stays(folder: Path, item: str) -> None:
    inputs = f"osdf:///ns/good.tar, https://h/x.tar, {item}"
    done = wrapped(
        folder, text_of("queue url from u.txt", transfer_input_files=inputs, url="http://x/y")
    )
    file = read(done.text)
    assert item in file.last("transfer_input_files").value  # type: ignore[union-attr]
    assert "osdf:///ns/good.tar" in file.value("HeadwayInputs")
    assert item not in file.value("HeadwayInputs")
    assert any("left to HTCondor" in note for note in done.notes)


def test_no_urls_no_agent(folder: Path) -> None:
    done = wrapped(folder, text_of(transfer_input_files="a, s3://b/c"))
    assert not done.staged
    assert "arguments" not in done.added
    assert not [note for note in done.notes if "HTCondor" in note]


def test_the_agent_lies_beside_the_file(folder: Path) -> None:
    (folder / "job.sub").write_text(text_of())
    target, _ = wrap_file(folder / "job.sub")
    assert is_agent(folder / "job.headway-node.pyz")
    assert "executable = job.headway-node.pyz\n" in target.read_text()
    other = folder / "other"
    other.mkdir()
    target, _ = wrap_file(folder / "job.sub", other / "it.sub")
    assert f"executable = {other}/job.headway-node.pyz\n" in target.read_text()
    (folder / "job.headway-node.pyz").write_text("mine")
    with pytest.raises(HeadwayError, match="not Headway's agent"):
        wrap_file(folder / "job.sub", overwrite=True)
    assert (folder / "job.headway-node.pyz").read_text() == "mine"


class Sandbox:
    """A job's folder as HTCondor leaves it to a wrapped program."""

    def __init__(self, folder: Path, urls: str, **more: str) -> None:
        self.folder = folder
        ad = {"HeadwayInputs": f'"{urls}"', **more}
        lines = [f"{name} = {value}\n" for name, value in ad.items()]
        (folder / ".job.ad").write_text("".join(lines))

    def run(self, agent: Path, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(agent), "stage", *words],
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], "_CONDOR_JOB_AD": str(self.folder / ".job.ad")},
            capture_output=True,
            text=True,
        )


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("agent") / "headway-node.pyz"
    build_agent(path)
    return path


def test_the_program_is_itself_after_staging(folder: Path, agent: Path) -> None:
    (folder / "run.sh").write_text(
        '#!/bin/sh\nprintf "%s|" "$@"\nwc -c < x.tar\ncat /proc/self/status | grep SigIgn\nexit 7\n'
    )
    (folder / "run.sh").chmod(0o644)  # HTCondor makes executables executable; so does the agent
    with Server({"/x.tar": CONTENT}) as server:
        checksums = f'"x.tar={CONTENT.checksum()}"'
        url = server.url("/x.tar", query="sig=1")
        box = Sandbox(folder, url, HeadwayChecksums=checksums)
        done = box.run(agent, "run.sh", "a b", "", "$c")
        assert done.returncode == 7, done.stderr
        assert done.stdout.startswith("a b||$c|50000\n")
        assert int(done.stdout.split("SigIgn:")[1], 16) & (1 << 12) == 0  # SIGPIPE
        asked = len(server.requests)
        assert box.run(agent, "run.sh").returncode == 7  # again, as after a checkpoint
        assert len(server.requests) == asked


def test_the_program_does_not_start_without_its_input(folder: Path, agent: Path) -> None:
    (folder / "run.sh").write_text("#!/bin/sh\ntouch ran\n")
    with Server({"/x.tar": CONTENT}, [Status(503)]) as server:
        chirp = Chirp()
        (folder / ".chirp.config").write_text(f"127.0.0.1 {chirp.port} {chirp.cookie}\n")
        ad = {"HeadwayPatience": "1", "NumShadowStarts": "2"}
        box = Sandbox(folder, server.url("/x.tar", query="sig=geheim"), **ad)
        done = box.run(agent, "run.sh")
        assert done.returncode == 81
        assert "x.tar did not arrive" in done.stderr
        # What the hold's reason will say is in the job's ad.
        (asked,) = [line.decode() for line in chirp.raw if line.startswith(b"set_job_attr")]
        said = asked.replace("\\ ", " ")
        assert said.startswith(
            "set_job_attr HeadwayReason {2, \"the input 'x.tar' did not arrive: "
        )
        assert f"({server.url('/x.tar')})" in said and "503" in said and "geheim" not in said
        chirp.close()
        server.faults = []
        wrong = f'"x.tar=sha256:{"0" * 64}"'
        box = Sandbox(folder, server.url("/x.tar"), HeadwayChecksums=wrong)
        assert box.run(agent, "run.sh").returncode == 82
    assert Sandbox(folder, "").run(agent, "run.sh").returncode == 82
    assert "geheim" not in done.stderr
    assert not (folder / "ran").exists()
