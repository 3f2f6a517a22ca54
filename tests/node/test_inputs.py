"""Inputs as the command finds them."""

from __future__ import annotations

import hashlib
import time

from headway.node import progress
from headway.node.progress import next_after

from .conftest import Node, Web

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
            {"urls": [f"file://{node.folder}/local", web.url("b")], "path": "c"},
            {"urls": [web.url("b")], "path": "b", "size": 5},
        ],
    )
    assert node.run() == 0, node.stderr
    assert node.stdout() == "smalla\n"
    inputs = node.record()["inputs"]
    assert [(i["path"], i["source"], i["bytes"], i["verified"]) for i in inputs] == [
        ("in/a", "127.0.0.1", 10_000, True),
        ("c", "localhost", 10_000, False),
        ("b", "127.0.0.1", 5, False),
    ]
    assert "geheim" not in (node.attempt() / "record.json").read_text()
    assert "geheim" not in (node.attempt() / "agent.log").read_text()


def test_an_input_that_does_not_come(node: Node, web: Web) -> None:
    code, exit_code = 404, 81
    web.script["data"] = [lambda request: web.reply(request, code)]
    node.plan(["true"], inputs=[{"urls": [web.url("data?k=geheim")], "path": "data"}])
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
            {
                "urls": [],
                "path": "data/train.tar",
                "arrives_as": "train.tar",
                "checksum": SHA,
            },
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
    assert "HTCondor did not bring it" in node.stderr


def test_no_network_is_a_bad_node(node: Node) -> None:
    node.plan(["true"], inputs=[{"urls": ["http://127.0.0.1:1/x"], "path": "x"}])
    begin = time.monotonic()
    assert node.run() == 80
    assert time.monotonic() - begin < 5
    assert "no source of any input can be reached" in node.stderr
    assert [phase["name"] for phase in node.record()["phases"]] == ["check"]


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
    marks, mark = [], progress.FIRST
    while mark < 1000:
        marks.append(mark)
        mark = next_after(mark, mark)
    assert marks == [5, 10, 20, 40, 80, 160, 320, 620, 920]
    assert next_after(5, 100) == 160
