"""Bad input, end to end: clear words or the right thing, the exit code, and nothing lost."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import resource
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest
from tests.loaded import SOURCE, Done, run_headway, start_headway

from headway.pool.folder import RunFolder

Call = Callable[..., Done]

SMALL = '\ngrace = "2 s"\n[resources]\nmemory = "20 MB"\ndisk = "1 MB"\n'
NAME = 'name = "small"\n'
TRUE = NAME + 'command = "true"\n'


@pytest.fixture
def headway(tmp_path: Path) -> Call:
    """Call `headway …` in the test's folder; no bug is ever shown, whatever was asked."""

    def call(
        *words: str, code: int | tuple[int, ...], cwd: Path = tmp_path, anew: bool = False
    ) -> Done:
        kept = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
        env = {
            **kept,
            "PYTHONPATH": str(SOURCE),
            "XDG_RUNTIME_DIR": str(tmp_path),
            "HEADWAY_CACHE": "off",
            "LANG": "C.UTF-8",
            "COLUMNS": "200",
        }
        run = start_headway if anew else run_headway  # each stops a command that hangs
        done = run(words, cwd=cwd, env=env, errors="surrogateescape")
        said = done.stdout + done.stderr
        assert done.returncode in (code if isinstance(code, tuple) else (code,)), said
        assert "Traceback" not in done.stderr, said
        assert "bug in headway" not in said
        if done.returncode == 2:
            assert done.stderr.startswith("error: "), said
        return done

    return call


def write(folder: Path, text: str | bytes, name: str = "job.toml") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def run_folder(folder: Path, label: str = "small-1") -> Path:
    return folder / ".headway" / "runs" / label


# -- a job.toml that is wrong


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("# only a comment\n", "is empty"),
        ("name = small\n", "line 1"),
        (NAME + "command = “true”\n", "straight quotation marks"),
        (TRUE + "[resources\n", "line 3"),
        (TRUE + NAME, "twice"),
        ("a = " + "[" * 5000 + "]" * 5000, "nested too deeply"),
        (b'name = "caf\xe9"\n', "line 1 is not UTF-8"),
        (b"\xff\xfen\x00a\x00m\x00e\x00", "not UTF-8"),
        ('name = "a\0b"\n', "not TOML"),
        (NAME, "command"),
        ('command = "true"\n', "name"),
        ("name = 3\n" + 'command = "true"\n', "name"),
        (NAME + "command = 3\n", "command"),
        (NAME + "command = []\n", "command"),
        (NAME + 'command = "echo \'"\n', "command"),
        (NAME + 'command = ""\n', "command"),
        (TRUE + "resources = 3\n", "resources"),
        (TRUE + 'comand = "true"\n', "did you mean"),
        (TRUE + '[resources]\nmemory = "900 TB"\n', "900"),
        (TRUE + 'files = ["nothing*.py"]\n', "matches nothing"),
        (TRUE + 'files = ["../secret"]\n', "../secret"),
        (TRUE + 'outputs = ["../model.pt"]\n', "../model.pt"),
        (TRUE + 'outputs = ["a", "a"]\n', "outputs"),
        (TRUE + '[[inputs]]\nurl = "http://127.0.0.1/a"\npath = "../a"\n', "../a"),
        (TRUE + '[[inputs]]\nurl = "gopher://127.0.0.1/a"\n', "gopher"),
        (TRUE + '[[inputs]]\nurl = "http://127.0.0.1/a"\nchecksum = "md5:1"\n', "checksum"),
        (TRUE + '[checkpoint]\npaths = ["../c"]\n', "../c"),
        (TRUE + 'table = "nothing.csv"\n', "nothing.csv"),
        (TRUE + 'table = "."\n', "folder"),
        (TRUE + "table = [3]\n", "table"),
        (NAME + 'command = "echo {lr}"\n', "lr"),
        (NAME + 'command = "./nothing.sh"\n', "nothing.sh"),
    ],
)
def test_a_wrong_job_is_refused_in_words(
    headway: Call, tmp_path: Path, text: str | bytes, words: str
) -> None:
    path = write(tmp_path, text)
    before = path.read_bytes()
    done = headway("run", "job.toml", code=2)
    assert words in done.stderr
    assert path.read_bytes() == before
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["job.toml"]


@pytest.mark.parametrize(
    ("top", "sections", "places"),
    [
        (
            "count = 0\ngrace = 60\nfiles = [3]\noutputs = [3]",
            "[resources]\nmemory = 8\ndisk = '4 parsecs'\ncpus = -1",
            "count grace files outputs memory disk cpus",
        ),
        (
            "count = -3\ngrace = '-1 s'\nfiles = 'train.py'\noutputs = ['/tmp/model.pt']",
            "[resources]\nmemory = '8'\ncpus = 'all'\n[retries]\ncommand = -1",
            "count grace files outputs memory cpus retries",
        ),
        (
            "count = 'many'\ntime_limit = 'soon'\nfiles = ['nothing.py', '/etc/passwd']",
            "[resources]\nmemory = '-8 GB'\ngpus = -1\n[[outputs]]\npath = 'a'\nmin_size = -1",
            "count time_limit nothing.py /etc/passwd memory gpus min_size",
        ),
        (
            "count = 1.5\nshell = 'yes'\nenvironment = 3\noutputs = ['headway-out/x']",
            "[resources]\nmemory = '0 B'\n[checkpoint]\npaths = ['c']\nexit_code = 0\n"
            "[[inputs]]\nurl = 'http://127.0.0.1/a'\nsize = -1",
            "count shell environment headway-out memory exit_code size",
        ),
    ],
)
def test_all_mistakes_are_told_at_once(
    headway: Call, tmp_path: Path, top: str, sections: str, places: str
) -> None:
    write(tmp_path, f"{TRUE}{top}\n{sections}\n")
    done = headway("run", "job.toml", "--json", code=2)
    assert [place for place in places.split() if place not in done.stderr] == []
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["exit"] == 2
    assert len(last["error"]["problems"]) >= len(places.split())


# -- a job.toml, or a table, that is not a plain file


def _folder(path: Path) -> None:
    path.mkdir()


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def _circle(path: Path) -> None:
    path.symlink_to(path.name)


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _nothing(path: Path) -> None:
    pass


ODD = [_folder, _fifo, _dangling, _circle, _device, _nothing]


@pytest.mark.parametrize(
    ("name", "make"),
    [
        (name, make)
        for name in ("job.toml", "rows.csv", "train.py")
        for make in ODD
        if (name, make) != ("train.py", _folder)  # a folder may be one of the files
    ],
)
def test_what_is_no_plain_file(
    headway: Call, tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    write(tmp_path, NAME + 'command = "true {a}"\ntable = "rows.csv"\nfiles = ["train.py"]' + SMALL)
    write(tmp_path, "a\n1\n", "rows.csv")
    write(tmp_path, "", "train.py")
    (tmp_path / name).unlink()
    make(tmp_path / name)
    done = headway("run", "job.toml", "--dry-run", code=2)
    assert name in done.stderr


def test_a_name_that_is_too_long(headway: Call) -> None:
    headway("run", "x" * 5000, code=2)
    headway("run", "", code=2)


def test_ten_megabytes_of_comments_are_no_trouble(headway: Call, tmp_path: Path) -> None:
    write(tmp_path, ("# nothing\n" * 1_000_000) + TRUE + SMALL)
    headway("run", "job.toml", "--dry-run", code=0)
    write(tmp_path, ("# nothing\n" * 2_000_000) + TRUE + SMALL)
    assert "larger than" in headway("run", "job.toml", "--dry-run", code=2).stderr


def test_a_hundred_thousand_rows_are_quick(headway: Call, tmp_path: Path) -> None:
    write(tmp_path, NAME + 'command = "echo {lr} {name}"\ntable = "rows.csv"' + SMALL)
    rows = "".join(f"{number / 7},ü {number}\n" for number in range(100_000))
    write(tmp_path, "lr,name\n" + rows, "rows.csv")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = headway("run", "job.toml", "--dry-run", code=0, anew=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)  # its own time, however busy the machine
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 10
    assert "100000 job" in done.stdout.replace(",", "")
    assert not (tmp_path / ".headway").exists()


# -- odd names, and odd outputs


class Web(http.server.ThreadingHTTPServer):
    """Gives each path its own name as content."""

    daemon_threads = True

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = f"content of {unquote(self.path)}".encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass


@pytest.fixture
def web() -> Iterator[str]:
    with Web(("127.0.0.1", 0), Web.Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_unicode_and_spaces_everywhere(headway: Call, tmp_path: Path, web: str) -> None:
    folder = tmp_path / "my läb «1» 'x' $HOME"
    folder.mkdir()
    script = "trai n ✓.py"
    write(
        folder,
        "import sys\n"
        "data = open('da ta ü.bin', 'rb').read()\n"
        "more = open('more/ñ 1.txt', 'rb').read()\n"
        "open(f'mod el {sys.argv[1]}.pt', 'wb').write(data + more + sys.argv[2].encode())\n"
        "open('plain \"q\".json', 'w').write('é')\n"
        "print('grüße', flush=True)\n",
        script,
    )
    (folder / "more").mkdir()
    write(folder, "ñandú", "more/ñ 1.txt")
    write(folder, 'who,what\n"日 本",a;b $(c)\n', "rows ö.csv")
    write(
        folder,
        f"""
name = "größe a"
command = ["python3", "{script}", "{{who}}", "{{what}}"]
files = ["{script}", "more/"]
table = "rows ö.csv"
outputs = ["mod el {{who}}.pt", {{ path = 'plain "q".json', to = "re sults/{{who}} ✓.json" }}]
[[inputs]]
url = "{web}/{quote("ä b.bin")}"
path = "da ta ü.bin"
{SMALL.replace('grace = "2 s"', "")}""",
        "jöb 1.toml",
    )
    done = headway("run", "jöb 1.toml", "--pool", "local:cpus=2", code=0, cwd=folder)
    (made,) = (folder / ".headway" / "runs").iterdir()
    model = made / "jobs" / "0" / "outputs" / "mod el 日 本.pt"
    assert model.read_text() == "content of /ä b.binñandúa;b $(c)", done.stderr
    assert (folder / "re sults" / "日 本 ✓.json").read_text() == "é"
    assert headway("logs", made.name, code=0, cwd=folder).stdout == "grüße\n"
    assert headway("status", "größe a", code=0, cwd=folder).stdout


LINKS = """\
mkdir folder && echo in >folder/file && echo real >real && mkdir -p deep/er && echo x >deep/er/y
ln -s real to-file
ln -s folder to-folder
ln -s nowhere dangling
ln -s ../real folder/link
"""


def test_outputs_that_are_folders_and_links(headway: Call, tmp_path: Path) -> None:
    outputs = ["folder", "to-file", "to-folder", "deep"]
    shell = f'{NAME}shell = true\ncommand = """{LINKS}"""\n'
    write(tmp_path, f"{shell}outputs = {json.dumps(outputs)}{SMALL}")
    headway("run", "job.toml", code=0)
    home = run_folder(tmp_path) / "jobs" / "0" / "outputs"
    files = {path.relative_to(home).as_posix(): path for path in home.rglob("*") if path.is_file()}
    assert {name: path.read_text().strip() for name, path in files.items()} == {
        "folder/file": "in",
        "folder/link": "real",
        "to-file": "real",
        "to-folder/file": "in",
        "to-folder/link": "real",
        "deep/er/y": "x",
    }
    assert not any(path.is_symlink() for path in home.rglob("*"))


def test_an_output_that_dangles_is_missing_and_the_others_come_home(
    headway: Call, tmp_path: Path
) -> None:
    shell = f'{NAME}shell = true\ncommand = """{LINKS}"""\n'
    retries = "[retries]\noutput = 0\n"
    write(tmp_path, f'{shell}outputs = ["dangling", "folder"]{SMALL}{retries}')
    done = headway("run", "job.toml", code=1)
    assert "dangling" in done.stdout + done.stderr
    (attempt,) = (run_folder(tmp_path) / "jobs" / "0" / "attempts").iterdir()
    assert (attempt / "outputs" / "folder" / "file").read_text() == "in\n"


def test_a_command_that_is_not_there(headway: Call, tmp_path: Path) -> None:
    write(tmp_path, f'{NAME}command = "no-such-program-anywhere"{SMALL}')
    done = headway("run", "job.toml", code=1)
    assert "no-such-program-anywhere is not on this node's PATH" in done.stdout


@pytest.mark.parametrize(
    ("head", "words"),
    [("#!/no/such/interpreter\n", "interpreter"), ("#!/usr/bin/env no-such-python\n", "no-such")],
)
def test_an_interpreter_that_is_not_there(
    headway: Call, tmp_path: Path, head: str, words: str
) -> None:
    write(tmp_path, head, "train").chmod(0o755)
    write(tmp_path, f'{NAME}command = "./train"\nfiles = ["train"]{SMALL}')
    told = headway("run", "job.toml", code=(1, 2))
    assert words in told.stdout + told.stderr
    assert (tmp_path / "train").read_text() == head


# -- disks


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB of its own."""
    if os.getuid() != 0:
        pytest.skip("mounting a small file system needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=755", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_is_full_from_the_start(headway: Call, disk: Path) -> None:
    write(disk, NAME + 'command = "true"\n[resources]\nmemory = "20 MB"\ndisk = "1 MB"\n')
    fill(disk)
    done = headway("run", "job.toml", code=2, cwd=disk)
    assert "0 B of disk" in done.stderr or "No space left" in done.stderr
    (disk / "ballast").unlink()
    headway("run", "job.toml", code=0, cwd=disk)
    assert [path.name for path in (disk / ".headway" / "runs").iterdir()] == ["small-1"]


def fill(folder: Path) -> None:
    """Leave no byte free."""
    with (folder / "ballast").open("ab", buffering=0) as file:
        for size in (65536, 4096, 1):
            with contextlib.suppress(OSError):
                while file.write(b"x" * size):
                    pass


@contextlib.contextmanager
def filling(folder: Path, since: Path) -> Iterator[None]:
    """Take every byte that becomes free, from the moment that `since` is there."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.001):
            if since.exists():
                fill(folder)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_disk_that_becomes_full_during_a_run(headway: Call, disk: Path, tmp_path: Path) -> None:
    job = f"""{NAME}
shell = true
command = "echo $HEADWAY_JOB >result; : >$FLAG; sleep 0.3"
count = 3
outputs = ["result"]
environment = {{ FLAG = "{tmp_path / "flag"}" }}
[resources]
memory = "20 MB"
disk = "1 MB"
[retries]
command = 5
output = 5
"""
    write(disk, job)
    with filling(disk, tmp_path / "flag"):
        done = headway("run", "job.toml", "--pool", "local:cpus=1", code=(1, 2, 3), cwd=disk)
        assert "small-1" in done.stdout + done.stderr
        full = headway("run", "--resume", "small-1", code=(1, 2, 3), cwd=disk)
        assert "small-1" in full.stdout + full.stderr
        headway("status", code=0, cwd=disk)
    (disk / "ballast").unlink()
    headway("release", "small-1", code=(0, 1), cwd=disk)  # those that could not start are held
    headway("run", "--resume", "small-1", code=0, cwd=disk)
    assert [result(disk, number) for number in range(3)] == ["0\n", "1\n", "2\n"]
    assert (disk / "job.toml").read_text() == job


def result(folder: Path, job: int) -> str:
    return (run_folder(folder) / "jobs" / str(job) / "outputs" / "result").read_text()


@pytest.fixture
def read_only(disk: Path) -> Callable[[bool], None]:
    """Make the file system read-only, or writable again."""

    def switch(on: bool) -> None:
        words = ["mount", "-o", f"remount,{'ro' if on else 'rw'}", str(disk)]
        # a pool that is about to leave still has a file open for a moment
        wait_for(lambda: subprocess.run(words, check=False).returncode == 0)

    return switch


def test_a_folder_that_cannot_be_written(
    headway: Call, disk: Path, read_only: Callable[[bool], None]
) -> None:
    write(disk, TRUE + SMALL)
    read_only(True)
    assert "Read-only" in headway("run", "job.toml", code=2, cwd=disk).stderr
    headway("run", "job.toml", "--dry-run", code=0, cwd=disk)
    read_only(False)
    headway("run", "job.toml", code=0, cwd=disk)
    read_only(True)
    for words in (["status"], ["list"], ["logs"], ["status", "small-1.0"]):
        headway(*words, code=0, cwd=disk)
    assert "Read-only" in headway("run", "job.toml", code=2, cwd=disk).stderr


def test_acting_and_resuming_where_nothing_can_be_written(
    headway: Call, disk: Path, read_only: Callable[[bool], None]
) -> None:
    write(disk, NAME + 'command = "sleep 30"' + SMALL)
    headway("run", "job.toml", "--detach", code=0, cwd=disk)
    headway("hold", "small-1", code=0, cwd=disk)
    wait_for(lambda: "held" in headway("status", code=0, cwd=disk).stdout)
    wait_for(lambda: not RunFolder(run_folder(disk)).is_locked("supervisor"))  # its pool leaves
    read_only(True)
    for words in (["release"], ["remove"], ["run", "--resume"]):
        said = headway(*words, "small-1", code=(1, 2, 3), cwd=disk)
        assert said.stderr or said.stdout
    read_only(False)
    headway("remove", "small-1", code=0, cwd=disk)


def wait_for(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


# -- runs that are not there, or damaged


ASKING = [["status"], ["logs"], ["hold"], ["release"], ["remove"], ["evict"], ["run", "--resume"]]


@pytest.mark.parametrize("command", ASKING, ids=lambda words: words[0])
def test_where_there_are_no_runs(headway: Call, tmp_path: Path, command: list[str]) -> None:
    assert "no runs" in headway(*command, "small-1.0", code=2).stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("label", ["0", "../..", "é ü", "x" * 300, "a\nb", ".", "small-1."])
def test_odd_labels(headway: Call, damaged: Path, label: str) -> None:
    if label == "0":
        label = "7"
    done = headway("status", label, code=2)
    assert "no run" in done.stderr or "no job" in done.stderr or "run.json" in done.stderr


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of two jobs, one good and one bad, to copy and damage."""
    folder = tmp_path_factory.mktemp("ended")
    write(
        folder, f"{NAME}shell = true\ncommand = 'echo out {{job}}; exit {{job}}'\ncount = 2{SMALL}"
    )
    env = {**os.environ, "PYTHONPATH": str(SOURCE), "XDG_RUNTIME_DIR": str(folder)}
    done = run_headway(["run", "job.toml"], cwd=folder, env=env)
    assert done.returncode == 1, done.stdout + done.stderr
    return folder


@pytest.fixture
def damaged(ended: Path, tmp_path: Path) -> Path:
    """The run folder of a copy that may be damaged."""
    shutil.copytree(ended / ".headway", tmp_path / ".headway")
    return run_folder(tmp_path)


@pytest.mark.parametrize("command", ASKING, ids=lambda words: words[0])
def test_runs_and_jobs_that_are_not_there(headway: Call, damaged: Path, command: list[str]) -> None:
    assert "did you mean small-1" in headway(*command, "smal-1", code=2).stderr
    assert "has no job 2" in headway(*command, "small-1.2", code=2).stderr


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"id": 3}', b"\xff\xfe"])
def test_a_damaged_run_json(headway: Call, damaged: Path, content: bytes) -> None:
    (damaged / "run.json").write_bytes(content)
    for command in ASKING if content == b"{" else ASKING[:1]:
        done = headway(*command, "small-1", code=2)
        assert "run.json" in done.stderr
    assert (damaged / "jobs" / "0" / "attempts").is_dir()
    assert (damaged / "run.json").read_bytes() == content


def test_a_damaged_run_does_not_stand_in_the_way_of_others(headway: Call, damaged: Path) -> None:
    other = damaged.with_name("small-2")
    shutil.copytree(damaged, other)
    (damaged / "run.json").write_bytes(b"{")
    assert "small-2" in headway("status", "small-2", code=0).stdout
    assert headway("logs", "small-2.0", code=0).stdout == "out 0\n"
    assert "small-2" in headway("list", code=0).stdout


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"name": 3}', b"\xff\xfe"])
def test_a_damaged_job_json(headway: Call, damaged: Path, content: bytes) -> None:
    (damaged / "job.json").write_bytes(content)
    for command in ASKING if content == b"{" else ASKING[:1]:
        done = headway(*command, "small-1", code=(0, 2))
        assert done.returncode == 0 or "job.json" in done.stderr
    assert (damaged / "job.json").read_bytes() == content


def test_an_event_log_cut_at_any_place(headway: Call, damaged: Path) -> None:
    log = (damaged / "events.log").read_bytes()
    for size in (0, 100, len(log) // 2, len(log) - 1):
        (damaged / "events.log").write_bytes(log[:size])
        shown = json.loads(headway("status", "--json", code=0).stdout)
        assert shown["run"] == "small-1"
        assert headway("logs", "small-1.0", code=0).stdout == "out 0\n"
        assert (damaged / "events.log").read_bytes() == log[:size]
    (damaged / "events.log").write_bytes(log[:-20])
    headway("run", "--resume", "small-1", code=1)
    assert json.loads(headway("status", "--json", code=0).stdout)["counts"]["failed"] == 1


@pytest.mark.parametrize(
    "content",
    [b"nonsense\n...\n", b"\0" * 4096, b"\xff" * 100, b"000 (x.y.z) \n...\n", b"...\n" * 99],
)
def test_an_event_log_full_of_nonsense(headway: Call, damaged: Path, content: bytes) -> None:
    with (damaged / "events.log").open("ab") as file:
        file.write(content)
    shown = json.loads(headway("status", "--json", code=0).stdout)
    assert shown["counts"]["failed"] == shown["counts"]["succeeded"] == 1
    (damaged / "events.log").write_bytes(content)
    headway("status", code=0)
    (damaged / "events.log").unlink()
    headway("status", code=0)


@pytest.mark.parametrize("name", ["plan.json", "payload.tar", "headway-node.pyz", "job.json"])
def test_a_run_that_lost_a_part_is_not_resumed_in_silence(
    headway: Call, damaged: Path, name: str
) -> None:
    for other in damaged.glob("headway-node*.pyz"):  # one may be made from another
        if name == "headway-node.pyz":
            other.unlink()
    (damaged / name).unlink(missing_ok=True)
    (damaged / "events.log").unlink()
    done = headway("run", "--resume", "small-1", code=(1, 2, 3))
    assert name in done.stdout + done.stderr
