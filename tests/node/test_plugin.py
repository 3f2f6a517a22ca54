"""The plugin as HTCondor calls it: the real headway-node.pyz, files of ads, servers on loopback."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import os
import re
import signal
import string
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples_of import examples
from tests.lab import Flip, Hang, Made, Rate, Server, Silent, Status, dead_url

from headway.node import plugin
from headway.node.classad import AdError, Expr, read_ads, read_old_ad, write_ad
from headway.node.plugin import Settings, error_kind, run_plugin

from .conftest import PYTHON, seconds_to_start

try:
    classad2: Any = importlib.import_module("classad2")
except ImportError:
    classad2 = None
BLANKS = b" " * 19264  # what HTCondor reserves for the answer


class Call:
    """One call of the plugin in a job's folder."""

    def __init__(self, folder: Path, pyz: Path) -> None:
        self.folder, self.pyz = folder, pyz
        self.stderr = self.stdout = ""
        self.started: list[subprocess.Popen[str]] = []
        folder.mkdir(exist_ok=True)
        (folder / ".plugin.out").write_bytes(BLANKS)

    def job_ad(self, **attributes: Any) -> None:
        lines = [f"{name} = {json.dumps(value)}\n" for name, value in attributes.items()]
        (self.folder / ".job.ad").write_text("".join(lines))

    def ask(self, *pairs: tuple[str, str]) -> None:
        ads = [write_ad({"Url": url, "LocalFileName": name}) for url, name in pairs]
        (self.folder / ".plugin.in").write_text("".join(ads))

    def start(self, *options: str, **environment: str) -> subprocess.Popen[str]:
        files = ["-infile", f"{self.folder}/.plugin.in", "-outfile", f"{self.folder}/.plugin.out"]
        process = subprocess.Popen(
            [self.pyz, *files, *options],
            env={"PATH": os.environ["PATH"], "HEADWAY_PYTHON": PYTHON, **environment},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def end(self, process: subprocess.Popen[str]) -> int:
        self.stdout, self.stderr = process.communicate(timeout=90)
        return process.returncode

    def run(self, *options: str, **environment: str) -> int:
        return self.end(self.start(*options, **environment))

    def answers(self) -> list[dict[str, Any]]:
        text = (self.folder / ".plugin.out").read_text()
        answers = read_ads(text)
        if classad2 is not None:  # HTCondor must be able to read them, too
            there = list(classad2.parseAds(text, classad2.ParserType.New)) if answers else []
            assert [ad["TransferSuccess"] for ad in there] == [
                answer["transfersuccess"] for answer in answers
            ]
        return answers

    def answer(self) -> dict[str, Any]:
        (answer,) = self.answers()
        return answer


@pytest.fixture
def call(tmp_path: Path, pyz: Path) -> Iterator[Call]:
    call = Call(tmp_path / "job", pyz)
    yield call
    for process in call.started:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.communicate()


def test_it_says_what_it_can_do(pyz: Path) -> None:
    done = subprocess.run([pyz, "-classad"], capture_output=True, text=True, check=True)
    told = read_old_ad(done.stdout)
    assert told["multiplefilesupport"] is True and told["plugintype"] == "FileTransfer"
    assert told["protocolversion"] == 4
    assert told["supportedmethods"] == "osdf,stash,pelican,https,http,file"
    assert len(done.stdout.splitlines()) == 5


@pytest.mark.parametrize("words", [[], ["-infile"], ["-infile", "a"], ["-x"], ["-classad", "-x"]])
def test_wrong_words_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_plugin(words) == 1
    assert "usage" in capsys.readouterr().err


def test_files_arrive_several_at_a_time(call: Call) -> None:
    contents = {f"/data/f{n}.bin": Made(300_000 + n, seed=n) for n in range(7)}
    with Server(contents, [Rate(1_000_000)]) as server:
        call.ask(*((server.url(path), str(call.folder / path[6:])) for path in contents))
        assert call.run() == 0, call.stderr
        assert 2 <= server.connections_max <= 2  # polite: at most two to one server
    for path, content in contents.items():
        assert content.fault(call.folder / path[6:]) is None
    answers = call.answers()
    assert [answer["transferfilename"] for answer in answers] == [
        str(call.folder / path[6:]) for path in contents
    ]
    for answer, content in zip(answers, contents.values(), strict=True):
        assert answer["transfersuccess"] is True and answer["transfertype"] == "download"
        assert answer["transferfilebytes"] == content.size == answer["transfertotalbytes"]
        assert answer["transferprotocol"] == "http" and "transfererror" not in answer
        (source,) = answer["developerdata"]["sources"]
        assert source["bytes"] == content.size and source["host"].startswith("127.0.0.")
    assert call.stdout == call.stderr == ""
    assert not [name for name in os.listdir(call.folder) if "part" in name]


def test_protocol_4_puts_other_ads_between(call: Call) -> None:
    content = Made(1000, seed=1)
    with Server({"/a": content}) as server:
        file_ad = write_ad({"LocalFileName": "a", "URL": server.url("/a"), "Odd": [1, {"x": 2}]})
        text = f'[ PluginData = [ a = 1 + foo("]") ] ]{file_ad}[ Protocol = "http"; ]\n'
        (call.folder / ".plugin.in").write_text(text)
        assert call.run() == 0, call.stderr
    assert content.fault(call.folder / "a") is None
    assert call.answer()["transferurl"].startswith("http://127.")


def test_uploads_replace_unless_told_not_to(call: Call) -> None:
    with Server({"/out/old": b"before"}) as server:
        for name in ("new", "old"):
            (call.folder / name).write_text(f"content of {name}")
        urls = [(server.url(f"/out/{name}"), str(call.folder / name)) for name in ("new", "old")]
        call.ask(*urls)
        call.job_ad(HeadwayOverwrite=False)
        assert call.run("-upload") == 1
        by_name = {Path(a["transferfilename"]).name: a for a in call.answers()}
        assert by_name["new"]["transfersuccess"] is True
        assert by_name["new"]["transfertype"] == "upload"
        assert by_name["old"]["transfersuccess"] is False
        assert server.store["/out/old"].content.read(0, 99) == b"before"
        (call.folder / ".job.ad").unlink()
        assert call.run("-upload") == 0
        assert server.store["/out/old"].content.read(0, 99) == b"content of old"
    call.ask((urls[0][0], str(call.folder / "missing")))
    assert call.run("-upload") == 1
    assert "no such file" in call.answer()["transfererror"]


def test_a_404_that_passes_and_one_that_stays(call: Call) -> None:
    content = Made(5000, seed=2)
    with Server({"/a": content}, [Status(404).for_seconds(0.4)]) as server:
        call.ask((server.url("/a"), "a"), (server.url("/never", query="sig=s3cret"), "b"))
        call.job_ad(HeadwayGrace=2)
        assert call.run() in (1, 11)
        first, second = call.answers()
    assert first["transfersuccess"] is True and content.fault(call.folder / "a") is None
    assert second["transfersuccess"] is False and "404" in second["transfererror"]
    (data,) = second["transfererrordata"]
    assert data["errortype"] == "Specification" and data["errorcode"] == 404
    assert data["failedserver"].startswith("127.0.0.")
    assert "s3cret" not in second["transfererror"] + str(second["developerdata"]) + call.stderr
    assert not (call.folder / "b").exists()


def test_a_checksum_proves_or_refuses(call: Call) -> None:
    content = Made(200_000, seed=3)
    good = f"a={content.checksum()}, b=md5:{'0' * 32}, nonsense"
    with Server({"/a": content, "/b": content}) as server:
        call.ask((server.url("/a"), "a"), (server.url("/b"), "b"))
        call.job_ad(HeadwayChecksums=good)
        assert call.run() in (1, 11)
        first, second = call.answers()
        assert first["transfersuccess"] is True and first["developerdata"]["proof"] == "checksum"
        assert "nothing" not in first and "NAME=" in str(first["developerdata"]["notes"])
        assert second["transfersuccess"] is False and "md5" in second["transfererror"]
        assert not (call.folder / "b").exists()
        server.faults = [Flip(1000).once()]
        call.ask((server.url("/a"), "a2"))
        call.job_ad(HeadwayChecksums=f"a2={content.checksum()}")
        assert call.run() == 0, call.stderr
    assert content.fault(call.folder / "a2") is None


def test_it_stops_before_the_starter_would_cut_it(call: Call) -> None:
    """The starter's time-out is 4 s here; what is done by then counts."""
    small, large = Made(1000, seed=4), Made(50_000_000, seed=5)
    with Server({"/small": small, "/large": large}, [Rate(500_000).on("/large")]) as server:
        call.ask((server.url("/large"), "large"), (server.url("/small"), "small"))
        call.job_ad(HeadwayStallTimeout=4)
        at_start = seconds_to_start(call.pyz)
        begin = time.monotonic()
        assert call.run() == 11
        assert 3.0 < time.monotonic() - begin < 4.5 + at_start
    first, second = call.answers()
    assert first["transfersuccess"] is False and "was stopped after 3 s" in first["transfererror"]
    (data,) = first["transfererrordata"]
    assert repr(data["retryable"]) == "0"  # HTCondor takes numbers only; False would mean never
    assert second["transfersuccess"] is True
    assert sorted(os.listdir(call.folder)) == [".job.ad", ".plugin.in", ".plugin.out", "small"]


def test_a_server_that_hangs_does_not_hold_it_beyond_its_time(call: Call) -> None:
    with Server({"/a": Made(1000)}, [Hang()]) as server:
        call.ask((server.url("/a"), "a"))
        at_start = seconds_to_start(call.pyz)
        begin = time.monotonic()
        assert call.run(HEADWAY_STALL_TIMEOUT="2.5") == 11
        assert time.monotonic() - begin < 4 + at_start
    assert "stopped" in call.answer()["transfererror"]


def test_patience_comes_from_the_job_ad(call: Call) -> None:
    with Server({"/a": Made(5_000_000)}, [Silent(after=10_000, scope="server")]) as server:
        call.ask((server.url("/a"), "a"))
        call.job_ad(HeadwayPatience=2)
        begin = time.monotonic()
        assert call.run() == 11, call.stderr
        assert time.monotonic() - begin < 15
    (data,) = call.answer()["transfererrordata"]
    assert repr(data["retryable"]) == "0" and call.answer()["transfersuccess"] is False


def test_a_server_that_is_not_there(call: Call) -> None:
    call.ask((dead_url("/a"), "a"))
    call.job_ad(HeadwayPatience=1)
    assert call.run() == 11
    (data,) = call.answer()["transfererrordata"]
    assert data["errortype"] == "Contact" and data["failedserver"]


def test_sigterm_ends_it_with_an_answer(call: Call) -> None:
    with Server({"/a": Made(50_000_000)}, [Rate(100_000)]) as server:
        call.ask((server.url("/a"), "a"))
        process = call.start()
        while not server.requests:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert call.end(process) == 11
    assert "stopped by HTCondor" in call.answer()["transfererror"]


@pytest.mark.parametrize(
    "name", ["../outside", "/etc/headway-test", "sub/../../outside", "link/x", "", ".", "sub/.."]
)
@pytest.mark.parametrize("upload", [False, True])
def test_nothing_outside_the_jobs_folder(call: Call, name: str, upload: bool) -> None:
    (call.folder.parent / "outside").write_text("untouched")
    (call.folder / "link").symlink_to(call.folder.parent)
    (call.folder / "sub").mkdir()
    with Server({"/a": b"hostile"}) as server:
        call.ask((server.url("/a"), name))
        assert call.run(*(["-upload"] if upload else [])) == 1
        assert not server.requests
    (data,) = call.answer()["transfererrordata"]
    assert data["errortype"] == "Parameter" and repr(data["retryable"]) == "-1"
    assert (call.folder.parent / "outside").read_text() == "untouched"
    assert not os.path.exists("/etc/headway-test")


def test_two_requests_for_one_place_do_not_meet(call: Call) -> None:
    one, two = Made(400_000, seed=8), Made(400_000, seed=9)
    with Server({"/1": one}) as first, Server({"/2": two}) as second:
        call.ask((first.url("/1"), "same"), (second.url("/2"), "same"))
        assert call.run() == 0
    assert None in (one.fault(call.folder / "same"), two.fault(call.folder / "same"))


def test_the_answer_goes_where_there_is_no_room(call: Call) -> None:
    """A limit on file sizes stands for the full disk: the reserved blanks are all there is."""
    (call.folder / ".plugin.out").write_bytes(b" " * 3000)
    call.ask(*((dead_url(f"/{n}"), f"f{n}") for n in range(8)))
    call.job_ad(HeadwayPatience=1, HeadwayPerSource=8, HeadwayConnections=8)
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000));"
        "from headway.node.plugin import run_plugin; sys.exit(run_plugin(sys.argv[1:]))"
    )
    files = ["-infile", f"{call.folder}/.plugin.in", "-outfile", f"{call.folder}/.plugin.out"]
    # -B: under the limit, bytecode that it wrote would be cut short, and break every later import
    command = [sys.executable, "-B", "-c", code, *files]
    done = subprocess.run(command, capture_output=True, timeout=40)
    assert done.returncode in (1, 11)
    answers = call.answers()
    assert len(answers) == 8 and all(answer["transfererror"] for answer in answers)


def test_an_input_file_that_is_none(call: Call) -> None:
    for text in ("", "garbage", '[ Url = "x" ', "[[[[", '[ Url = 3; LocalFileName = "a" ]'):
        (call.folder / ".plugin.in").write_text(text)
        (call.folder / ".plugin.out").write_bytes(BLANKS)
        code = call.run()
        assert code == (0 if not text else 1), text
        assert all(answer["transfersuccess"] is False for answer in call.answers())
    (call.folder / ".plugin.in").unlink()
    assert call.run() == 1
    assert "No such file" in call.answer()["transfererror"]


# -- fuzz -----------------------------------------------------------------------------------------

LETTERS = string.ascii_lowercase + "_"
NAMES = st.builds(
    str.__add__, st.sampled_from(LETTERS), st.text(LETTERS + string.digits, max_size=8)
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats(allow_nan=False, allow_infinity=False, width=32)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
ADS = st.dictionaries(NAMES, VALUES, max_size=5)


@given(st.lists(ADS, max_size=3))
@settings(max_examples=examples(200), deadline=None)
def test_ads_come_back_as_they_were_written(ads: list[dict[str, Any]]) -> None:
    assert read_ads("\n".join(map(write_ad, ads))) == ads


def test_htcondor_reads_and_writes_the_same() -> None:
    if classad2 is None:
        pytest.skip("needs the bindings of HTCondor")
    words = {"a": 'é\n"\\x\x01\x7f', "n": {"b": [1, 2.5, True, {"c": "d"}]}, "i": -3}
    (there,) = classad2.parseAds(write_ad(words))
    assert there["a"] == words["a"] and there["n"]["b"][3]["c"] == "d"
    assert read_ads(repr(there) + str(there)) == [words, words]
    expression = "[ a = foo(1, \"];\") + { 2 }[0]; b = undefined; c = x.y ?: 3; 'd e' = 31 * 2 ]"
    (found,) = read_ads(expression)
    assert set(found) == {"a", "b", "c", "d e"} and isinstance(found["a"], Expr)
    assert len(next(iter(classad2.parseAds(expression)))) == 4


@given(st.text(alphabet="[]{}();=,\"'\\/*ab1. \n", max_size=60))
@settings(max_examples=400, deadline=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(AdError):
        read_ads(text)
    read_old_ad(text)


def test_a_quote_without_its_backslash_in_an_old_ad() -> None:
    text = 'A = "say "x" \\"y\\""\nB = "plain"\nC = a == "b"\nD = UNDEFINED'
    ad = read_old_ad(text)
    assert ad == {"a": 'say "x" "y"', "b": "plain", "c": Expr('a == "b"'), "d": None}
    assert not isinstance(ad["a"], Expr)


@given(st.binary(max_size=300), st.booleans(), st.lists(st.text(max_size=20), max_size=2))
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_fuzzed_input_files_never_leave_the_folder(
    tmp_path: Path, noise: bytes, well_formed: bool, names: list[str]
) -> None:
    job = tmp_path / "fuzz" / "job"
    job.mkdir(parents=True, exist_ok=True)
    source = tmp_path / "source"
    source.write_bytes(b"content")
    data = noise
    if well_formed:
        ads = [write_ad({"Url": f"file://{source}", "LocalFileName": name}) for name in names]
        data = "".join(ads).encode("utf-8", "surrogateescape")
    (job / ".in").write_bytes(data)
    before = signal.getsignal(signal.SIGTERM)
    try:
        code = run_plugin(["-infile", str(job / ".in"), "-outfile", str(job / ".out")])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert code in (0, 1, 11)
    assert os.listdir(tmp_path / "fuzz") == ["job"]
    for answer in read_ads((job / ".out").read_text("utf-8", "surrogateescape")):
        assert isinstance(answer["transfersuccess"], bool)


def test_settings_and_their_bounds() -> None:
    usual = Settings({}, {}, {})
    assert (usual.connections, usual.per_source, usual.patience) == (4, 2, 180)
    assert usual.limit == 2880 and usual.overwrite and not usual.notes
    odd = Settings({"headwayconnections": 999, "headwaypatience": "soon"}, {}, {})
    assert odd.connections == 4 and odd.patience == 180 and len(odd.notes) == 2
    job, machine = {"headwaystalltimeout": 100}, {"headwaystalltimeout": 50}
    assert Settings(dict(job), {}, {}).limit == 80
    assert Settings(dict(job), dict(machine), {}).limit == 40
    assert Settings(dict(job), dict(machine), {"HEADWAY_STALL_TIMEOUT": "10"}).limit == 8
    assert Settings({"headwaystalltimeout": 0}, {}, {}).limit is None
    for version, limit in (
        ("24.0.1", 2880),
        ("25.2.0", 2880),
        ("25.2.1", 57600),
        ("26.1.0", 57600),
    ):
        told = {"condorversion": f"$CondorVersion: {version} 2026-01-01 BuildID: x $"}
        assert Settings({}, dict(told), {}).limit == limit


@pytest.mark.parametrize(
    ("words", "phase", "kind"),
    [
        ("x is not known", "resolve", {"ErrorType": "Resolution", "FailedName": "h"}),
        ("refuses connections", "connect", {"ErrorType": "Contact", "FailedServer": "h"}),
        ("HTTP 403 Forbidden", "first byte", {"ErrorType": "Authorization", "ErrorCode": 403}),
        ("HTTP 404 Not Found", "first byte", {"ErrorType": "Specification", "ErrorCode": 404}),
        ("HTTP 503 Busy", "first byte", {"ErrorType": "Transfer", "ErrorCode": 503}),
        ("no room", "disk", {"ErrorType": "Transfer", "FailureType": "NoSpace"}),
    ],
)
def test_kinds_of_errors(words: str, phase: str, kind: dict[str, object]) -> None:
    assert kind.items() <= error_kind(words, phase, "h").items()


def test_every_setting_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs/commands/moving-data.md").read_text()
    named = set(re.findall(r"^(Headway[A-Za-z]+) ", plugin.__doc__ or "", re.MULTILINE))
    used = set(re.findall(r'"(Headway[A-Za-z]+)"', inspect.getsource(plugin.Settings)))
    assert named >= used and len(named) == 7
    assert named == set(re.findall(r"^\| `My\.(Headway[A-Za-z]+)`", page, re.MULTILINE))
