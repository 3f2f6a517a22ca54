"""Is the node fit? The decision, and the facts that need no network."""

from __future__ import annotations

import pytest

from headway.node.probe import Facts, judge, visible_gpus

from .conftest import Node


def facts(**values: object) -> Facts:
    made = Facts()
    for name, value in values.items():
        assert hasattr(made, name)
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("values", "bad", "words"),
    [
        ({}, False, ""),
        ({"python": (3, 8, 1)}, True, "3.8.1 is too old"),
        ({"scratch_error": "Read-only file system"}, True, "Read-only"),
        ({"free": 10, "missing": 11}, True, "10 bytes are free"),
        ({"free": 11, "missing": 11}, False, ""),
        ({"free": 10, "missing": 0, "disk": 100}, False, "10 bytes are free of the 100"),
        ({"free": None, "missing": 11}, False, ""),
        ({"unreadable": "t.tar.zst"}, True, "neither zstd nor Python 3.14"),
        ({"gpus_wanted": 2, "gpus": 1}, True, "1 GPUs are visible, the job needs 2"),
        ({"gpus_wanted": 1, "gpus": 1}, False, ""),
        ({"gpus_wanted": 1, "gpus": None}, False, ""),
        ({"hosts": {"a": {"h": "refused"}}}, True, "no source of any input"),
        ({"hosts": {"a": {"h": "refused", "i": ""}}}, False, ""),
        ({"hosts": {"a": {"h": "refused"}, "b": {"i": ""}}}, False, "some sources"),
    ],
)
def test_the_judgement(values: dict[str, object], bad: bool, words: str) -> None:
    findings = judge(facts(**values))
    assert any(finding.bad for finding in findings) is bad
    assert words in " ".join(finding.words for finding in findings)
    if not words:
        assert findings == []


@pytest.mark.parametrize(
    ("environment", "devices", "count"),
    [
        ({}, 0, 0),
        ({}, 2, 2),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, 0, 2),
        ({"CUDA_VISIBLE_DEVICES": "GPU-a4b, GPU-77"}, 0, 2),
        ({"CUDA_VISIBLE_DEVICES": ""}, 4, 0),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, 4, 0),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, 4, 0),
        ({"_CONDOR_AssignedGPUs": "10000"}, 4, 0),  # what HTCondor says when there is none
        ({"_CONDOR_AssignedGPUs": "GPU-1"}, 0, 1),
    ],
)
def test_visible_gpus(environment: dict[str, str], devices: int, count: int) -> None:
    assert visible_gpus(environment, devices) == count


def test_a_job_without_its_gpu_ends_before_anything_moves(node: Node) -> None:
    node.plan(["touch", "ran"], gpus=1)
    assert node.run(CUDA_VISIBLE_DEVICES="") == 80
    assert "0 GPUs are visible" in node.stderr
    assert not (node.folder / "ran").exists()
    assert node.run(CUDA_VISIBLE_DEVICES="GPU-1") == 0


def test_too_little_room_for_the_inputs(node: Node) -> None:
    node.plan(["true"], inputs=[{"urls": ["file:///none"], "path": "x", "size": 1 << 60}])
    assert node.run() == 80
    assert "bytes are free" in node.stderr
