"""Outputs: verified, moved, sent, or kept with a failed attempt."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from .conftest import Node, Web


def home(node: Node) -> Path:
    return node.folder / "headway-out" / "outputs"


def kept(node: Node) -> Path:
    return node.attempt() / "outputs"


def tree(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir())


def out(path: str, **more: Any) -> dict[str, Any]:
    return {"path": path, "to": None, "required": True, "min_size": 0, **more}


def test_files_and_folders_are_moved(node: Node) -> None:
    node.plan(
        "mkdir -p out/deep; echo 1 > out/deep/a; echo 22 > out/b; echo x > model.pt;"
        "ls -i model.pt | cut -d' ' -f1",
        outputs=[out("out"), out("model.pt", min_size=2), out("log", required=False)],
    )
    assert node.run() == 0
    assert tree(home(node)) == ["model.pt", "out/b", "out/deep/a"]
    assert (home(node) / "model.pt").stat().st_ino == int(node.stdout())
    assert not (node.folder / "model.pt").exists()
    told = {o["path"]: (o["bytes"], o["files"], o["where"]) for o in node.record()["outputs"]}
    assert told["out"] == (5, 2, "headway-out/outputs/out")
    assert told["model.pt"] == (2, 1, "headway-out/outputs/model.pt")
    assert any("log is missing" in problem for problem in node.record()["problems"])


def test_a_link_within_a_folder_that_is_an_output_too(node: Node) -> None:
    node.plan("mkdir out; echo 1 > out/a; ln -s a out/link", outputs=[out("out/link"), out("out")])
    assert node.run() == 0
    assert tree(home(node)) == ["out/a", "out/link"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("true", "model is missing"),
        ("echo 1 > model", "model has 2 bytes, at least 10 are declared"),
        ("mkdir model; echo 1 > model/a", "model has 2 bytes, at least 10 are declared"),
        ("ln -s nowhere model", "does not exist"),
        ("ln -s /etc/passwd model", "leads out of the job's folder"),
        ("mkfifo model", "neither a file nor a folder"),
        ("ln -s . model", "the job's folder itself"),
        ("mkdir x; ln -s $PWD/.. x/up; ln -s x/up model", "leads out"),
    ],
)
def test_a_missing_output(node: Node, line: str, words: str) -> None:
    node.plan(f"{line}; echo log > log", outputs=[out("model", min_size=10), out("log")])
    assert node.run() == 84
    assert words in node.stderr
    assert not home(node).exists()
    assert (kept(node) / "log").read_text() == "log\n"
    assert node.record()["exit"] == 84
    assert node.record()["phases"][-1]["ok"] is False


def test_the_outputs_of_a_failed_command_are_kept(node: Node) -> None:
    node.plan("mkdir out; echo 1 > out/a; exit 1", outputs=[out("out"), out("none")])
    assert node.run() == 83
    assert tree(kept(node)) == ["out/a"]
    assert node.record()["outputs"][0]["where"].endswith("/outputs/out")


def test_links_go_home_as_what_they_point_to(node: Node) -> None:
    node.plan(
        "mkdir out runs; echo 1 > runs/best; echo 2 > out/last; ln -s runs/best model;"
        "ln -s last out/latest; ln -s ../runs out/runs; ln -s ../../etc/passwd out/secret;"
        "ln -s gone out/gone; ln -s .. out/up; ln -s . out/self; mkfifo out/pipe;"
        "mkdir out/locked; echo 3 > out/locked/x; chmod 0 out/locked/x; chmod 100 out/locked",
        outputs=[out("model"), out("out")],
    )
    assert node.run() == 0, node.stderr
    assert tree(home(node)) == [
        *("model", "out/last", "out/latest", "out/locked/x", "out/runs/best")
    ]
    assert not any(path.is_symlink() for path in home(node).rglob("*"))
    assert (home(node) / "model").read_text() == "1\n"
    assert (home(node) / "out/latest").read_text() == "2\n"
    problems = "\n".join(node.record()["problems"])
    for name in ("secret", "gone", "up", "self", "pipe"):
        assert f"out/{name} " in problems


def test_links_in_a_circle(node: Node) -> None:
    node.plan(
        "mkdir a b; touch a/1 b/2; ln -s ../b a/b; ln -s ../a b/a; ln -s loop loop",
        outputs=[out("a"), out("b"), out("loop", required=False)],
    )
    assert node.run() == 0, node.stderr
    assert {"a/1", "a/b/2", "b/2"} <= set(tree(home(node)))


@pytest.mark.parametrize("order", [["out", "out/a"], ["out/a", "out"]])
def test_an_output_within_another(node: Node, order: list[str]) -> None:
    node.plan(
        "mkdir out; echo 1 > out/a; echo 2 > out/b; ln -s out/b link",
        outputs=[*map(out, order), out("link")],
    )
    assert node.run() == 0, node.stderr
    assert tree(home(node)) == ["link", "out/a", "out/b"]
    assert (home(node) / "link").read_text() == "2\n"


def test_a_sparse_file_is_not_copied(node: Node) -> None:
    node.python("open('big', 'wb').truncate(1 << 40)", outputs=[out("big", min_size=1 << 40)])
    assert node.run() == 0
    assert (home(node) / "big").stat().st_blocks == 0


def test_outputs_with_a_url_are_sent(node: Node, web: Web, tmp_path: Path) -> None:
    node.row(job="5")
    node.plan(
        "echo m > model; mkdir -p out/x; echo a > 'out/x/a b'; echo l > log",
        outputs=[
            out("model", to=web.url("up/{job}?sig=geheim")),
            out("out", to=f"file://{tmp_path}/results"),
            out("log"),
        ],
    )
    assert node.run() == 0, node.stderr
    assert web.files["up/5"] == b"m\n"
    assert (tmp_path / "results/x/a b").read_text() == "a\n"
    assert tree(home(node)) == ["log"]
    told = {o["path"]: o["where"] for o in node.record()["outputs"]}
    assert told["model"] == web.url("up/5")
    assert "geheim" not in (node.attempt() / "record.json").read_text()


def test_an_upload_never_overwrites_unless_told(node: Node, web: Web) -> None:
    web.files["model"] = b"precious"
    node.plan("echo m > model", outputs=[out("model", to=web.url("model"))])
    assert node.run() == 84
    assert "already" in node.stderr
    assert web.files["model"] == b"precious"
    assert (kept(node) / "model").read_text() == "m\n"
    node.plan("echo m > model", outputs=[out("model", to=web.url("model"), overwrite=True)])
    assert node.run() == 0, node.stderr
    assert web.files["model"] == b"m\n"


def test_unreadable_folder_names(node: Node) -> None:
    node.python("import os; os.mkdir('out'); open(b'out/\\xff', 'w').close()", outputs=[out("out")])
    assert node.run() == 0, node.stderr
    assert os.listdir(os.fsencode(home(node) / "out")) == [b"\xff"]
