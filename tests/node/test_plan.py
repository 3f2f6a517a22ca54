"""Plans that are damaged, hostile or of another time."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.node.plan import SECRETS, Plan, PlanError, read_row, take_secrets

from .conftest import Node

GOOD: dict[str, Any] = {"format": 1, "command": ["true"]}


def plan(**changes: Any) -> Plan:
    return Plan({**GOOD, **changes}, {"job": "1", "up": "../up"})


def test_the_least_that_a_plan_must_say() -> None:
    least = plan()
    assert (least.command, least.grace, least.gpus, least.checkpoint) == (["true"], 60.0, 0, None)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": 2}, "format 2"),
        ({"format": None}, "format None"),
        ({"command": []}, "command"),
        ({"command": [""]}, "command"),
        ({"command": "true"}, "command"),
        ({"command": ["a", "b"], "shell": True}, "command"),
        ({"command": ["{nope}"]}, "no column 'nope'"),
        ({"command": ["a\0b"]}, "command"),
        ({"environment": {"A=B": "c"}}, "environment"),
        ({"environment": {"A": 1}}, "environment"),
        ({"environment": {"A": "{nope}"}}, "nope"),
        ({"payload": "../payload.tar"}, "payload"),
        ({"outputs": [{"path": "/etc/passwd"}]}, "outputs[0]"),
        ({"outputs": [{"path": "a/../../b"}]}, "outputs[0]"),
        ({"outputs": [{"path": "{up}"}]}, "outputs[0]"),
        ({"outputs": [{"path": ""}]}, "outputs[0]"),
        ({"outputs": [{"path": "."}]}, "outputs[0]"),
        ({"outputs": [{"path": "headway-out/attempts"}]}, "belongs to headway"),
        ({"outputs": [{"path": "a"}, {"path": "./a"}]}, "twice"),
        ({"outputs": [{"path": "a", "min_size": -1}]}, "min_size"),
        ({"outputs": ["a"]}, "must be an object"),
        ({"inputs": [{"path": "a"}]}, "urls"),
        ({"inputs": [{"path": "a", "urls": [], "checksum": "sha256:12"}]}, "checksum"),
        ({"inputs": [{"path": "a", "urls": [], "checksum": "sha1:" + "0" * 40}]}, "checksum"),
        ({"inputs": [{"path": "a", "urls": [], "size": 1.5}]}, "size"),
        ({"checkpoint": {"paths": ["/x"]}}, "checkpoint"),
        ({"checkpoint": {"paths": ["x"], "signal": "SIGKILL"}}, "signal"),
        ({"grace": "60"}, "grace"),
        ({"time_limit": float("nan")}, "time_limit"),
        ({"gpus": True}, "gpus"),
    ],
)
def test_what_is_wrong_is_said(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError) as caught:
        plan(**changes)
    assert words in str(caught.value)


def test_only_what_may_hold_placeholders_is_filled() -> None:
    made = plan(
        command=["{job}"],
        name="{job}",
        inputs=[{"urls": ["http://h/{job}"], "path": "in{job}", "arrives_as": "u{job}"}],
        outputs=[{"path": "out{job}", "to": "http://h/out{job}"}],
        checkpoint={"paths": ["{{c}}"]},
    )
    assert (made.command, made.name) == (["1"], "{job}")
    first = made.inputs[0]
    assert (first.urls, first.path, first.arrives_as) == (["http://h/1"], "in1", "u1")
    assert (made.outputs[0].path, made.outputs[0].url) == ("out1", "http://h/out1")
    assert made.checkpoint is not None
    assert made.checkpoint.paths == ["{{c}}"]


def test_only_urls_that_the_agent_can_reach_are_its_own() -> None:
    made = plan(
        outputs=[
            {"path": "a", "to": "https://h/a"},
            {"path": "b", "to": "results/b"},
            {"path": "c", "to": None},
            {"path": "d", "to": "osdf:///d"},
            {"path": "e", "to": "mine+pelican://h/d"},
            {"path": "f", "to": "s3://d"},
        ]
    )
    urls = ["https://h/a", None, None, "osdf:///d", "mine+pelican://h/d", None]
    assert [each.url for each in made.outputs] == urls


@pytest.mark.parametrize("row", ["%", "bm90IGpzb24", "WzFd", "eyJhIjoxfQ"])
def test_a_damaged_row(row: str) -> None:
    with pytest.raises(PlanError):
        read_row(row)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["path", "urls", "to", "paths", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(
            [
                *("format", "command", "shell", "environment", "payload", "inputs", "outputs"),
                *("checkpoint", "disk", "gpus", "grace", "time_limit", "run", "name"),
            ]
        ),
        anything,
    )
)
def test_no_plan_is_met_with_anything_but_words(data: dict[str, Any]) -> None:
    try:
        Plan({**GOOD, **data}, {"job": "0"})
    except PlanError as error:
        assert error.message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "did not transfer it"),
        ("", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "must be an object"),
        ('{"format": 9}', "reads format 1"),
        (json.dumps({**GOOD, "outputs": [{"path": "../x"}]}), "is not below the job's folder"),
    ],
)
def test_the_agent_ends_with_87_and_words(node: Node, text: str | None, words: str) -> None:
    if text is not None:
        (node.folder / "plan.json").write_text(text)
    assert node.run() == 87
    assert words in node.stderr
    assert "Traceback" not in node.stderr
    assert (node.record()["exit"], node.record()["command"]) == (87, None)
    assert node.chirp.phases()[-1]["exit"] == "87"


def test_secrets_that_cannot_be_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: str) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.chdir(tmp_path)
    Path(SECRETS).write_text('{"KEY": "x"}')
    monkeypatch.setattr(os, "unlink", fail)
    with pytest.raises(PlanError, match=f"{SECRETS} cannot be removed: Operation not permitted"):
        take_secrets(["KEY"])


def test_a_binary_plan(node: Node) -> None:
    (node.folder / "plan.json").write_bytes(b"\xff\xfe\x00")
    assert node.run() == 87


def test_a_damaged_row_is_told(node: Node) -> None:
    node.plan(["true"])
    assert node.run(HEADWAY_ROW="%%%") == 87
    assert "HEADWAY_ROW" in node.stderr
