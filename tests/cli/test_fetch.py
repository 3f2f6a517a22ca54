"""`headway fetch`, as a user calls it: real processes, real servers, real kills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from rich.console import Console
from tests.lab import Authority, Flip, Held, Made, Rate, Server, Status, Truncate, dead_url
from tests.node.transfer.federation import TRACER, Registry, creds, jwt

from headway.cli import main
from headway.cli.commands import FAILED, INTERRUPTED, WRONG
from headway.cli.fetch import LineMeter, LiveMeter, Meter, due
from headway.node.transfer import Snapshot, SourceState
from headway.node.transfer.manifest import digest_of, make_manifest
from headway.node.transfer.source import Fault, Source

from .shell import Shell
from .test_live import on_terminal

CONTENT = Made(6 << 20, seed=5)
HELD = {"/a.tar": CONTENT}


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_one_object_from_two_sources(shell: Shell, tmp_path: Path) -> None:
    with Server(HELD) as one, Server(HELD) as two:
        urls = (one.url("/a.tar", query=f"sig={TRACER}"), "--mirror", two.url("/a.tar"))
        said = shell("fetch", *urls, "--checksum", CONTENT.checksum("md5").upper())
        assert said.startswith("a.tar: 6.29 MB in ") and "its checksum is right" in said
        assert said == shell.stdout  # and nothing on stderr, for it was quick
        assert CONTENT.fault(tmp_path / "a.tar") is None
        told = shell.json("fetch", *urls, "-o", "new/folder/")
        assert told["path"] == "new/folder/a.tar" and told["bytes"] == CONTENT.size
        assert (told["here"], told["resumed"], told["verified"]) == (False, 0, False)
        assert told["urls"] == [one.url("/a.tar"), two.url("/a.tar")]
        assert sum(each["bytes"] for each in told["sources"]) == CONTENT.size
        assert CONTENT.fault(tmp_path / "new/folder/a.tar") is None
    assert names(tmp_path) == ["a.tar", "new"]
    assert names(tmp_path / "new/folder") == ["a.tar"]


def test_an_object_of_a_federation(shell: Shell, tmp_path: Path) -> None:
    shell.environment |= creds(tmp_path, scitokens=jwt("storage.read:/"))
    tls = Authority.get().good
    with (
        Server({"/lab/a.tar": CONTENT}, [Status(503)], tls=tls) as sick,
        Server({"/lab/a.tar": CONTENT}, tls=tls) as well,
        Registry("/lab", [sick, well], [well], require_token=True) as it,
    ):
        url = it.pelican_url("/a.tar", query=f"authz={TRACER}")
        told = shell.json("fetch", url, "-o", "here.tar", "--checksum", CONTENT.checksum())
        assert well.saw(TRACER)
    assert {each["url"] for each in told["sources"]} == {
        sick.url("/lab/a.tar"),
        well.url("/lab/a.tar"),
    }
    assert CONTENT.fault(tmp_path / "here.tar") is None


def test_several_urls_are_several_files(shell: Shell, tmp_path: Path) -> None:
    held = {"/x": Held(b"x" * 9), "/y": Held(b""), "/z": Held(b"z")}
    with Server(held, [Status(503).on("/y")]) as it:
        urls = [it.url(path) for path in held]
        words = ("fetch", *urls, "-o", "data", "--json", "--patience", "0.2 s")
        shell(*words, code=FAILED)
        x, error, z = map(json.loads, shell.stdout.splitlines())
        assert (x["path"], x["bytes"], x["proof"]) == ("data/x", 9, "")
        assert error["error"]["retryable"] is True and "503" in error["error"]["message"]
        assert z["path"] == "data/z"
        assert names(tmp_path / "data") == ["x", "z"]
        it.faults = []
        assert "y: 0 B in" in shell("fetch", urls[1])


def until(happens: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not happens():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_stopped_and_killed_it_goes_on_from_the_part(shell: Shell, tmp_path: Path) -> None:
    with Server(HELD, [Rate(4e6)]) as it:
        words = ("fetch", it.url("/a.tar"), "--checksum", CONTENT.checksum())
        with shell.start(*words) as stopped:
            until(lambda: it.sent > 2 << 20)
            stopped.send_signal(signal.SIGINT)
            _, said = stopped.communicate(timeout=120)
        assert stopped.returncode == INTERRUPTED
        assert "a.tar.part stays, and the same command continues from there" in said
        assert names(tmp_path) == ["a.tar.part", "a.tar.part.journal"]
        sent = it.sent
        with shell.start(*words) as killed:
            until(lambda: it.sent > sent + (1 << 20))
            killed.kill()
            killed.communicate(timeout=120)
        assert killed.returncode == -signal.SIGKILL
        it.faults = []
        told = shell.json(*words)
        assert told["resumed"] > 1 << 20 and told["proof"] == "checksum"
        assert told["sources"][0]["bytes"] == CONTENT.size - told["resumed"]
        assert CONTENT.fault(tmp_path / "a.tar") is None
        assert names(tmp_path) == ["a.tar"]


def test_what_is_here_stays_unless_told_otherwise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    target = tmp_path / "a.tar"
    target.write_text("mine")
    with Server(HELD) as it:
        fetch = ["fetch", it.url("/a.tar")]
        right = ["--checksum", CONTENT.checksum()]
        assert main(fetch) == WRONG
        said = capsys.readouterr().err
        assert "is here already, and nothing proves" in said and "--overwrite" in said
        assert main([*fetch, *right]) == WRONG
        assert "it is another one: sha256 is" in capsys.readouterr().err
        it.faults = [Truncate(99, scope="object"), Flip(9)]
        assert main([*fetch, *right, "--overwrite", "--patience", "0.3 s"]) != 0
        assert it.requests and target.read_text() == "mine"
        it.faults, asked = [], len(it.requests)
        assert main([*fetch, *right, "--overwrite"]) == 0
        assert CONTENT.fault(target) is None
        capsys.readouterr()
        asked = len(it.requests)
        assert main([*fetch, *right, "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["here"] and told["verified"] and len(it.requests) == asked
        for name, make in (("pipe", os.mkfifo), ("dangling", lambda p: os.symlink("no", p))):
            make(tmp_path / name)
            assert main([*fetch, "-o", name, "--overwrite"]) == WRONG
            assert "not a file" in capsys.readouterr().err
        assert len(it.requests) == asked
    assert "a.tar.part" not in names(tmp_path)


def test_the_pinned_manifest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    CONTENT.write("here").close()
    manifest = make_manifest("here", chunk_size=1 << 20)
    held = {**HELD, "/a.tar.headway": Held(manifest)}
    with Server(held, [Flip(3 << 20).on("/a.tar")]) as bad, Server(held) as well:
        fetch = ["fetch", bad.url("/a.tar"), "--mirror", well.url("/a.tar"), "--manifest"]
        assert main([*fetch, digest_of(manifest)]) == 0
        assert "every chunk is what the manifest says" in capsys.readouterr().out
        assert CONTENT.fault(tmp_path / "a.tar") is None
        assert main([*fetch, digest_of(manifest), "-o", "here"]) == 0
        assert "here is here already" in capsys.readouterr().out
        fetch = ["fetch", well.url("/a.tar"), "--manifest", digest_of(b""), "--json"]
        assert main([*fetch, "-o", "other"]) == WRONG
        told = json.loads(capsys.readouterr().out)["error"]
        assert told["kind"] == "ManifestError" and "headway publish" in told["remedy"]
    assert names(tmp_path) == ["a.tar", "here"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["http://h/a", "-o", "-"], "name a file"),
        (["http://h/a", "http://h/b", "--checksum", "md5:0"], "one object"),
        (["http://h/a", "http://g/a"], "--mirror URL"),
        (["http://h/a", "http://h/b", "-o", "file"], "not a folder"),
        (["http://h/a", "--size", "3 parsecs"], "--size"),
        (["http://h/a", "--connections", "99"], "from 1 to 16"),
        (["http://h/a", "--patience", "5"], "--patience"),
        (["http://h/a", "--checksum", "sha1:00"], "not a known checksum"),
        (["http://h/a", "--checksum", "md5:00"], "32 hexadecimal digits"),
        (["http://h/a", "--manifest", "00"], "headway publish"),
        (["http://h/"], "name of a file"),
        (["a"], "is not a URL"),
        (["s3://h/a"], "use https://"),
        (["http://h/a", "-o", "file/a"], "cannot be made"),
        ([], "missing: URL"),
    ],
)
def test_words_that_mean_nothing(
    words: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert main(["fetch", *words]) in (WRONG, FAILED)
    err = capsys.readouterr().err
    assert said in err and "\n  " in err  # with what to do
    assert names(tmp_path) == ["file"]


def test_what_fails_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    secret = f"http://me:{TRACER}@{dead_url('/a').removeprefix('http://')}?sig={TRACER}"
    assert main(["fetch", secret, "--patience", "0.3 s"]) == FAILED
    said = capsys.readouterr().err
    assert "refuses connections (connect, may pass)" in said and "headway sources" in said
    assert TRACER not in said
    with Server(HELD) as it:
        assert main(["fetch", it.url("/b"), "--patience", "6 s"]) == WRONG
        assert "404" in capsys.readouterr().err
        assert names(tmp_path) == []
        it.faults = [Truncate(1 << 20, scope="object")]
        assert main(["fetch", it.url("/a.tar"), "--patience", "0.3 s"]) == FAILED
        assert "stays in a.tar.part" in capsys.readouterr().err
        assert TRACER not in (tmp_path / "a.tar.part.journal").read_text()


def test_a_full_disk_and_a_folder_of_somebody_else(shell: Shell, tmp_path: Path) -> None:
    with Server(HELD) as it:
        program = f"{sys.executable} -m headway fetch {it.url('/a.tar')}"
        done = subprocess.run(
            ["sh", "-c", f"ulimit -f 1000; exec {program}"],
            cwd=tmp_path,
            env=shell.environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == FAILED
        assert "the disk is full" in done.stderr and "make room" in done.stderr
        assert not (tmp_path / "a.tar").exists()
        (tmp_path / "theirs").mkdir(mode=0o755)
        tmp_path.chmod(0o755)
        call = (
            "import os, sys, headway.cli, headway.transfers\n"
            "import headway.cli, headway.cli, headway.cli.fetch\n"
            "import headway.cli.view\n"
            "parser = headway.cli.parser_of('fetch')\n"
            "if os.getuid() == 0: os.setresuid(65534, 65534, 65534)\n"
            "else: os.chmod('theirs', 0o555)\n"
            f"sys.exit(headway.cli.main(['fetch', {it.url('/a.tar')!r}, '-o', 'theirs/']))"
        )
        done = subprocess.run(
            [sys.executable, "-c", call],
            cwd=tmp_path,
            env=shell.environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == FAILED, done.stderr
        assert "theirs is not yours to write to" in done.stderr


def test_the_bar_on_a_terminal(tmp_path: Path, command: Sequence[str]) -> None:
    with Server(HELD, [Rate(2e6)]) as it, Server(HELD, [Status(503)]) as sick:
        url = it.url("/a.tar", query=f"sig={TRACER}")
        argv = [*command, "fetch", sick.url("/a.tar"), "--mirror", url]
        out, code = on_terminal(argv, tmp_path, press=("connection", b"\x03"))
        assert code == INTERRUPTED
        for words in ("━", " %", " / 6.29 MB", "B/s", " left", "active", "HTTP 503"):
            assert words in out, words
        assert "\x1b[36m" in out and "the same command continues" in out
        it.faults = []
        out, code = on_terminal(argv, tmp_path, env={"NO_COLOR": "1", "TERM": "dumb"})
        assert code == 0 and "continuing from it" in out
        assert "\x1b" not in out and TRACER not in out
        assert CONTENT.fault(tmp_path / "a.tar") is None


def source(state: str, *, rate: float = 0.0, words: str = "", done: int = 0) -> SourceState:
    made = Source("https://cache.org/a?x", key=1)
    made.bytes = done
    made.fault = Fault(words, phase="body") if words else None
    return SourceState(made, state, rate, 2 if state == "active" else 0)


def snapshot(done: int, *sources: SourceState, slow: str = "", total: int = 10**9) -> Snapshot:
    rate = sum(each.rate for each in sources)
    return Snapshot(done, total, rate, 1.0, list(sources), slow)


def test_why_it_is_not_faster() -> None:
    meter = Meter("a.tar", limit=1800.0)
    slow = snapshot(5000, source("active", rate=900.0), slow="source")
    meter.take(slow, 100.0)
    assert "slow, not stalled; the download goes on" in meter.words(slow, 101.0)
    assert meter.left(slow) == pytest.approx((10**9 - 5000) / 900)
    meter.take(slow, 112.0)
    assert "no data for 12 s" in meter.words(slow, 112.0)
    assert "30 min" in meter.words(slow, 112.0)
    two = (source("active", rate=900.0), source("active", rate=1e6))
    assert meter.words(snapshot(6000, *two, slow="source"), 101.0) == ""
    assert "network" in meter.words(snapshot(6000, *two, slow="network"), 101.0)
    assert "disk" in meter.words(snapshot(6000, *two, slow="disk"), 101.0)
    assert "looking up the sources" in meter.words(snapshot(0), 101.0)
    assert "all bytes have arrived" in meter.words(snapshot(10**9, *two), 101.0)


def test_lines_for_a_log_and_pictures_for_narrow_terminals() -> None:
    assert [due(n) for n in range(6)] == [2.0, 10.0, 30.0, 60.0, 120.0, 180.0]
    seen = snapshot(
        250_000_000,
        source("active", rate=5e6, done=250_000_000),
        source("benched", words="it fell silent \x1b[2J"),
    )
    meter = LineMeter("a.tar", 1800.0)
    meter.saw(seen)  # too early for a line
    line = meter.line(seen, time.monotonic())
    assert line.startswith("a.tar: 25 %, 250 MB / 1 GB, 5 MB/s, 2 min 30 s left (cache.org is")
    assert "benched: it fell silent �[2J (body)" in line
    meter.close()
    for width in (20, 60, 84, 200):
        with open(os.devnull, "w") as nowhere:
            console = Console(width=width, height=8, record=True, file=nowhere)
            live = LiveMeter("a" * 300, 1800.0, console)
            live.saw(seen)
            console.print(live.picture(seen, time.monotonic()))
            live.close()
        text = console.export_text()
        assert all(len(each) <= width for each in text.splitlines())
        assert ("━" in text) == (width >= 84)
        many = snapshot(1, *[source("new")] * 40)
        with open(os.devnull, "w") as nowhere:
            console = Console(width=width, height=8, record=True, file=nowhere)
            console.print(LiveMeter("a", 1800.0, console).picture(many, 1.0))
            assert len(console.export_text().splitlines()) < 8
