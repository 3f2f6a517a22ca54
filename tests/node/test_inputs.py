"""Inputs as the command finds them."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from tests.lab import Flip, Held, Made, Rate, Server, Status, dead_url

from headway.node import inputs as staging
from headway.node import record
from headway.node.errors import LONGEST_REASON, TransferError
from headway.node.plan import Plan
from headway.node.record import Attempt, Progress, ProgressReporter, line, next_after
from headway.node.transfer.manifest import digest_of, make_manifest

from .conftest import Node, Web, seconds_to_start, wait
from .transfer.test_resume import journalled

DATA = b"0123456789" * 1000
SHA = f"sha256:{hashlib.sha256(DATA).hexdigest()}"


def test_inputs_are_there_before_the_command(node: Node, web: Web) -> None:
    web.files.update(a=DATA, b=b"small")
    (node.folder / "local").write_bytes(DATA)
    node.row(job="0", which="a")
    node.plan(
        "cmp in/a local && cat b && ls in",
        inputs=[
            {"urls": [web.url("{which}?sig=geheim")], "path": "in/{which}", "checksum": SHA},
            {"urls": [f"file://{node.folder}/local", web.url("a")], "path": "c"},
            {"urls": [web.url("b")], "path": "b", "size": 5},
        ],
    )
    assert node.run() == 0, node.stderr
    assert node.stdout() == "smalla\n"
    inputs = node.record()["inputs"]
    assert [(i["path"], i["source"], i["bytes"], i["verified"], i["proof"]) for i in inputs] == [
        ("in/a", "127.0.0.1", 10_000, True, "checksum"),
        ("c", "localhost", 10_000, False, ""),
        ("b", "127.0.0.1", 5, False, "size"),
    ]
    assert [i["sources"][0]["bytes"] for i in inputs] == [10_000, 10_000, 5]
    assert {line["state"] for line in node.chirp.phases()} == {"begin", "end"}  # all were short
    assert "geheim" not in (node.attempt() / "record.json").read_text()
    assert "geheim" not in (node.attempt() / "agent.log").read_text()


@pytest.mark.parametrize("path", ["a.tar", "x/" * 130 + "a.tar", "é" * 100, "y" * 500])
@pytest.mark.parametrize("words", ["404 Not Found", "é " * 300, "no answer " * 100])
def test_a_reason_fits_and_has_its_url_whole_or_not_at_all(path: str, words: str) -> None:
    url = f"https://example.org/{'d' * 250}/a.tar"
    inputs = [{"urls": [url], "path": path}]
    plan = Plan({"format": 1, "run": "r", "command": ["true"], "inputs": inputs}, {"job": "0"})
    text = staging.brief(plan.inputs[0], TransferError(words, retryable=True))
    written = text.encode("ascii", "backslashreplace").decode()[:LONGEST_REASON]
    assert (f"({url})" in written) == ("https" in written)
    if len(path) < 10:
        assert url in written and words[:40] in text


def test_an_input_that_does_not_come(node: Node, web: Web) -> None:
    code, exit_code = 404, 81
    web.script["data"] = [lambda request: web.reply(request, code)]
    given = {"urls": [web.url("data?k=geheim")], "path": "data", "patience": 1}
    node.plan(["true"], inputs=[given])
    assert node.run() == exit_code
    assert f"data did not arrive: {web.url('data')}: HTTP {code}" in node.stderr
    assert "geheim" not in node.stderr
    record = node.record()
    assert (record["exit"], record["phases"][-1]["ok"]) == (exit_code, False)
    assert str(code) in record["phases"][-1]["error"]
    told = node.chirp.phases()
    assert told[-2]["phase"] == "stage-in"
    assert str(code) in told[-2]["error"]


def test_a_wrong_checksum_never_reaches_the_command(node: Node, web: Web) -> None:
    web.files["data"] = DATA[:-1] + b"x"
    node.plan(["touch", "ran"], inputs=[{"urls": [web.url("data")], "path": "d", "checksum": SHA}])
    assert node.run() == 82
    assert not (node.folder / "ran").exists()
    assert not (node.folder / "d").exists()


def test_inputs_that_htcondor_brought(node: Node) -> None:
    (node.folder / "train.tar").write_bytes(DATA)
    (node.folder / "b").write_bytes(b"b")
    node.plan(
        "ls data/train.tar b",
        inputs=[
            {"urls": [], "path": "data/train.tar", "arrives_as": "train.tar", "checksum": SHA},
            {"urls": [], "path": "b"},
        ],
    )
    assert node.run() == 0, node.stderr
    assert not (node.folder / "train.tar").exists()


def test_a_truncated_file_from_htcondor(node: Node) -> None:
    (node.folder / "t").write_bytes(DATA[:-1])
    node.plan(["true"], inputs=[{"urls": [], "path": "t", "size": len(DATA)}])
    assert node.run() == 81
    assert "9999 bytes, not 10000" in node.stderr


def test_a_file_that_htcondor_did_not_bring(node: Node) -> None:
    node.plan(["true"], inputs=[{"urls": [], "path": "t"}])
    assert node.run() == 82
    assert "HTCondor did not transfer it" in node.stderr


def test_no_network_is_a_bad_node(node: Node) -> None:
    node.plan(["true"], inputs=[{"urls": ["http://127.0.0.1:1/x"], "path": "x"}])
    at_start, begin = seconds_to_start(node.pyz), time.monotonic()
    assert node.run() == 80
    assert time.monotonic() - begin < 5 + at_start
    assert "no way out: no source of any input can be reached" in node.stderr
    assert 'via = "plugin"' in node.stderr
    assert node.record()["phases"][-1]["no_way_out"] == 1
    assert [phase["name"] for phase in node.record()["phases"]] == ["check"]


@pytest.mark.skipif(os.getuid() != 0, reason="a network namespace needs root")
@pytest.mark.parametrize(
    "url",
    ["http://192.0.2.7/x", "osdf:///ns/x", "pelican://192.0.2.7/ns/x", "https://no.invalid/x"],
)
def test_no_route_at_all_is_said_at_once(node: Node, url: str) -> None:
    node.plan(["true"], inputs=[{"urls": [url], "path": "x"}])
    at_start, begin = seconds_to_start(node.pyz), time.monotonic()
    done = subprocess.run(
        ["unshare", "--net", str(node.pyz), "agent", "plan.json"],
        cwd=node.folder,
        env=node.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if "unshare" in done.stderr:
        pytest.skip(f"no network namespace: {done.stderr.strip()}")
    assert done.returncode == 80, done.stderr
    assert "no way out" in done.stderr
    assert time.monotonic() - begin < 7 + at_start


class Starter:
    """HTCondor's side of one job: its ad as a file, and what chirp has set in it."""

    def __init__(self, node: Node, **attributes: str) -> None:
        self.node, self.attributes = node, attributes

    def environment(self) -> dict[str, str]:
        for request in self.node.chirp.raw:
            words = request.decode().split()
            if words[0] == "set_job_attr":
                self.attributes[words[1]] = words[2]
        lines = [f"{name} = {value}\n" for name, value in self.attributes.items()]
        path = self.node.folder / ".job.ad"
        path.write_text("".join(lines))
        return {"_CONDOR_JOB_AD": str(path)}


def test_the_job_s_ad_says_why_an_input_did_not_arrive(node: Node, web: Web) -> None:
    """For the reason of the hold: the input, the status, the source and the URL, and no secret."""
    web.script["d"] = [lambda request: web.reply(request, 404)]
    path = 'odd "name" \\ ü'
    given = {"urls": [f"{web.url('d')}?sig=geheim"], "path": path, "patience": 1}
    node.plan(["true"], inputs=[given])
    starter = Starter(node, NumShadowStarts="4")
    assert node.run(**starter.environment()) == 81
    (asked,) = [line.decode() for line in node.chirp.raw if line.startswith(b"set_job_attr")]
    said = asked.removeprefix("set_job_attr HeadwayReason ").replace("\\ ", " ")
    escaped = said.strip().replace("\\\\", "\\")  # as a ClassAd expression
    host = web.url("d").split("/")[2]
    assert escaped.startswith('{4, "the input \'odd \\"name\\" ') and "\\xfc" in escaped
    assert "HTTP 404" in escaped and f"from {host} ({web.url('d')})" in escaped
    assert escaped.endswith('"}') and escaped.isascii() and "geheim" not in asked
    # Without the ad of a real starter nothing is set, and nothing breaks.
    node.chirp.raw.clear()
    assert node.run() == 81
    assert not [line for line in node.chirp.raw if line.startswith(b"set_job_attr")]


def test_other_kinds_of_failure_are_named_as_well(node: Node, web: Web) -> None:
    web.files["data"] = DATA[:-1] + b"x"
    url = web.url("data")
    given: dict[str, Any] = {"urls": [url], "path": "d", "checksum": SHA}
    node.plan(["true"], inputs=[given])
    assert node.run() == 82
    reason = node.record()["reason"]
    assert reason.startswith("the input 'd' did not arrive: ") and "sha256" in reason
    assert url in reason and reason in [line.get("reason") for line in decoded(node)]
    (node.folder / "in").mkdir()
    node.plan(["true"], inputs=[{"urls": [url], "path": "in", "size": 1}])
    assert node.run() == 82
    assert "a folder of that name is in the way" in node.record()["reason"]
    node.plan(["true"], inputs=[{"urls": [], "path": "t"}])
    assert node.run() == 82
    assert "the input 't' did not arrive: " in node.record()["reason"]


def decoded(node: Node) -> list[dict[str, str]]:
    return [{key: unquote(value) for key, value in told.items()} for told in node.chirp.phases()]


def test_the_second_node_without_a_way_out_hands_over_to_the_plugin(node: Node) -> None:
    url = f"{dead_url('/in.bin')}?sig=geheim"
    node.plan(["true"], inputs=[{"urls": [url], "path": "d/x", "arrives_as": "in.bin"}])
    starter = Starter(node, HeadwayPluginInput=f'"a, {url}"', HeadwayPluginPlugins='"http=p"')
    assert node.run(**starter.environment()) == 80
    assert "another node may work" in node.stderr
    assert starter.environment() and "TransferInput" not in starter.attributes
    assert node.run(**starter.environment()) == 80
    assert "from now on HTCondor's plugin transfers the inputs" in node.stderr
    starter.environment()
    assert starter.attributes["TransferInput"] == "HeadwayPluginInput"
    assert starter.attributes["TransferPlugins"] == "HeadwayPluginPlugins"
    assert b"geheim" not in b"".join(node.chirp.raw)
    (node.folder / "in.bin").write_bytes(b"brought")
    assert node.run(**starter.environment()) == 0, node.stderr
    assert (node.folder / "d/x").read_bytes() == b"brought"


def test_a_pool_that_lets_no_job_change_itself(node: Node) -> None:
    node.plan(["true"], inputs=[{"urls": [dead_url("/in.bin")], "path": "x"}])
    starter = Starter(node, HeadwayPluginInput='"a"', HeadwayNoWayOut="5")
    node.chirp.answer = b"-3\n"
    assert node.run(**starter.environment()) == 80
    assert 'via = "plugin"' in node.stderr


def test_one_dead_mirror_is_no_reason(node: Node, web: Web) -> None:
    web.files["data"] = DATA
    node.plan(["true"], inputs=[{"urls": ["http://127.0.0.1:1/x", web.url("data")], "path": "x"}])
    assert node.run() == 0


def test_a_folder_in_the_way(node: Node, web: Web) -> None:
    (node.folder / "x").mkdir()
    web.files["data"] = DATA
    node.plan(["true"], inputs=[{"urls": [web.url("data")], "path": "x"}])
    assert node.run() == 82
    assert "in the way" in node.stderr


def test_an_input_does_not_leave_through_a_link(node: Node, web: Web) -> None:
    (node.folder.parent / "outside").mkdir()
    (node.folder / "link").symlink_to("../outside")
    web.files["data"] = DATA
    node.plan(["true"], inputs=[{"urls": [web.url("data")], "path": "link/x"}])
    assert node.run() == 82
    assert not list((node.folder.parent / "outside").iterdir())


def test_proxies_and_certificates_of_the_job_count(node: Node, web: Web) -> None:
    web.script["http://far.invalid/data"] = [lambda request: web.give(request, DATA)]
    node.plan(
        ["true"],
        environment={"http_proxy": f"http://127.0.0.1:{web.port}"},
        inputs=[{"urls": ["http://far.invalid/data"], "path": "x", "checksum": SHA}],
    )
    assert node.run() == 0, node.stderr


def test_progress_lines_grow_rarer() -> None:
    marks, mark = [], record.FIRST
    while mark < 1000:
        marks.append(mark)
        mark = next_after(mark, mark)
    assert marks == [5, 10, 20, 40, 80, 160, 320, 620, 920]
    assert next_after(5, 100) == 160


MIB = 1 << 20
CONTENT = Made(3 * MIB, seed=11)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("published") / "a"
    CONTENT.write(path).close()
    return make_manifest(str(path), chunk_size=MIB)


def test_a_pinned_manifest_repairs_a_chunk(node: Node, manifest: bytes) -> None:
    held = {"/a": CONTENT, "/a.headway": Held(manifest)}
    with Server(held, [Flip(2 * MIB + 5).on("/a")]) as sick, Server(held) as well:
        urls = [sick.url("/a"), well.url("/a")]
        node.plan(["true"], inputs=[{"urls": urls, "path": "a", "manifest": digest_of(manifest)}])
        assert node.run() == 0, node.stderr
        names = {request.path for request in sick.requests}
    assert "/a.headway" in names
    assert CONTENT.fault(node.folder / "a") is None
    (told,) = node.record()["inputs"]
    assert (told["proof"], told["verified"]) == ("manifest", True)
    gave = {source["host"]: source for source in told["sources"]}
    assert sum(source["bytes"] for source in gave.values()) >= CONTENT.size
    left = [path.name for path in node.folder.iterdir()]
    assert not [name for name in left if "manifest" in name or name.endswith((".part", ".headway"))]


@pytest.mark.parametrize("mode", ["file", "stream"])
def test_a_manifest_among_the_jobs_files(node: Node, manifest: bytes, mode: str) -> None:
    (node.folder / "a.headway").write_bytes(manifest)
    with Server({"/a": CONTENT}) as server:
        given = {"urls": [server.url("/a")], "path": "a", "manifest": digest_of(manifest)}
        read = "import headway.node.stream.samples as r; r.Object('a').read(0, r.Object('a').size)"
        node.plan([sys.executable, "-c", read], inputs=[{**given, "mode": mode}])
        assert node.run() == 0, node.stderr
        assert {request.path for request in server.requests} == {"/a"}
    assert node.record()["inputs"][0]["proof"] == "manifest"


def test_a_manifest_that_is_not_the_pinned_one_ends_it(node: Node, manifest: bytes) -> None:
    with Server({"/a": CONTENT, "/a.headway": Held(b"x" * 500)}) as server:
        pin = digest_of(manifest)
        node.plan(
            ["touch", "ran"],
            inputs=[{"urls": [server.url("/a", query="sig=geheim")], "path": "a", "manifest": pin}],
        )
        assert node.run() == 82
    assert "a.headway did not arrive" in node.stderr
    assert "headway publish" in node.stderr
    assert "geheim" not in node.stderr
    assert not (node.folder / "ran").exists()
    (told,) = node.record()["inputs"]
    assert "a.headway" in told["error"]


def test_what_htcondor_brought_is_held_against_its_manifest(node: Node, manifest: bytes) -> None:
    CONTENT.write(node.folder / "a").close()
    (node.folder / "a.headway").write_bytes(manifest)
    given = {"urls": [], "path": "in/a", "arrives_as": "a", "manifest": digest_of(manifest)}
    node.plan(["true"], inputs=[given])
    assert node.run() == 0, node.stderr
    assert node.record()["inputs"][0]["proof"] == "manifest"
    with open(node.folder / "in/a", "r+b") as file:
        file.write(b"x")
    assert node.run() == 81
    (node.folder / "a.headway").unlink()
    assert node.run() == 82
    assert "a.headway is not in the job's folder" in node.stderr


def test_the_patience_of_an_input(node: Node) -> None:
    with Server({"/a": CONTENT}, [Status(503)]) as server:
        node.plan(["true"], inputs=[{"urls": [server.url("/a")], "path": "a", "patience": 1.5}])
        at_start, begin = seconds_to_start(node.pyz), time.monotonic()
        assert node.run() == 81
    assert time.monotonic() - begin < 10 + at_start
    (told,) = node.record()["inputs"]
    assert told["sources"][0]["state"] in ("benched", "active", "new")
    assert "503" in told["sources"][0]["fault"]


def test_an_agent_that_is_killed_goes_on_when_it_is_started_again(node: Node) -> None:
    large = Made(24 << 20, seed=9)
    path = node.folder / "in" / "a"
    with Server({"/a": large}, [Rate(8 << 20, "server")]) as server:
        given = {"urls": [server.url("/a")], "path": "in/a", "checksum": large.checksum()}
        node.plan("cmp in/a in/a && ls in", inputs=[given])
        agent = node.start()
        wait(lambda: journalled(path) > 4 << 20)
        agent.send_signal(signal.SIGKILL)
        node.end(agent)
        known = journalled(path)
        assert not path.exists()
        server.faults, sent = [], server.sent
        assert node.run() == 0, node.stderr
        assert server.sent - sent <= large.size - known + (2 << 20)
    assert node.stdout() == "a\n"  # no part, no journal
    (told,) = node.record()["inputs"]
    assert (told["bytes"], told["proof"]) == (large.size, "checksum")
    assert large.fault(path) is None


def test_a_slow_only_source_goes_on_and_the_log_says_so(node: Node) -> None:
    slow = Made(700_000, seed=3)
    with Server({"/a": slow}, [Rate(60_000, "server")]) as server:
        node.plan(["true"], inputs=[{"urls": [server.url("/a")], "path": "a"}])
        assert node.run() == 0, node.stderr
    lines = [each for each in node.chirp.phases() if each["state"] == "progress"]
    assert [each.get("slow") for each in lines] == [None, "source"]  # after 5 s and 10 s
    assert 30_000 < int(lines[-1]["rate"]) < 100_000


class Lines(record.EventLines):
    """Lines that stay here instead of going to the event log."""

    def __init__(self) -> None:
        self.lines: list[dict[str, str]] = []

    def send_line(
        self, phase: str, state: str, values: Mapping[str, object], when: float | None = None
    ) -> None:
        text = line("n", phase, state, 0.0, values)
        self.lines.append(dict(word.split("=", 1) for word in text.split()[1:]))


def stage(folder: Path, inputs: list[dict[str, Any]], lines: Lines) -> list[dict[str, Any]]:
    """Stage in as the agent does, with a look every few milliseconds."""
    import threading

    data = {"format": 1, "command": ["x"], "inputs": inputs}
    plan = Plan(data, {"job": "0"})
    far = Progress({each.path: each.size for each in plan.inputs})
    teller = ProgressReporter(lines, "stage-in", far)
    told: list[dict[str, Any]] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            staging.stage_in(plan.inputs, Attempt(), far, lambda: False, lambda _: None, told)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    while thread.is_alive():
        teller.tick()
        thread.join(0.02)
    teller.report_arrivals()
    if errors:
        raise errors[0]
    return told


def test_the_log_is_told_of_sources_and_arrivals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(record, "FIRST", 0.6)
    monkeypatch.setattr(staging, "FIRST", 0.6)
    lines = Lines()
    with Server({"/a": CONTENT}, [Rate(CONTENT.size // 4)]) as one, Server({"/b": CONTENT}) as two:
        urls = [dead_url(), one.url("/a", query="sig=geheim")]
        given = [
            {"urls": urls, "path": "a", "checksum": CONTENT.checksum()},
            {"urls": [two.url("/b")], "path": "b"},
        ]
        told = stage(tmp_path, given, lines)
        host = one.url("/").split("/")[2]
    moving, arrived = [[x for x in lines.lines if x["state"] == s] for s in ("progress", "arrived")]
    first = next(x for x in moving if "size" in x)  # a slow machine has a line before it is known
    assert (first["file"], first["size"]) == ("a", str(CONTENT.size))
    assert "total" not in first  # nobody knows how large b is
    assert 0 < int(first["done"]) < CONTENT.size
    assert int(first["rate"]) > 0
    assert f"{host}/active/" in first["from"]
    assert [(x["file"], x["proof"], x["size"]) for x in arrived] == [
        ("a", "checksum", str(CONTENT.size))  # b came too soon to be worth a line
    ]
    assert f"{host}/" in arrived[0]["from"]
    assert "geheim" not in str(lines.lines)
    gave = {source["host"]: source for source in told[0]["sources"]}
    assert gave[host]["bytes"] == CONTENT.size
    dead = next(source for name, source in gave.items() if name != host)
    assert dead["bytes"] == 0
    assert "refuses" in dead["fault"]


def test_a_failed_input_leaves_what_its_sources_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Server({"/a": CONTENT}, [Status(403)]) as server:
        given = [{"urls": [server.url("/a")], "path": "a", "patience": 1}]
        far = Progress({"a": None})
        told: list[dict[str, Any]] = []
        inputs = Plan({"format": 1, "command": ["x"], "inputs": given}, {"job": "0"}).inputs
        with pytest.raises(TransferError):
            staging.stage_in(inputs, Attempt(), far, lambda: False, lambda _: None, told)
    assert "403" in told[0]["error"]
    assert not told[0]["fetched"]
