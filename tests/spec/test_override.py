from __future__ import annotations

from typing import Any

import pytest

from headway.spec import apply_overrides as apply

from .conftest import Load, Wrong

RAW: dict[str, Any] = {
    "name": "n",
    "command": "a b",
    "resources": {"gpus": 1, "memory": "2 GB"},
    "inputs": ["https://a/b", {"url": ["https://c/d"]}],
    "outputs": ["m.pt"],
}


@pytest.mark.parametrize(
    ("option", "path", "value"),
    [
        ("resources.gpus.count=2", "resources.gpus", {"count": 2}),
        ("resources.gpus.memory=8 GB", "resources.gpus", {"count": 1, "memory": "8 GB"}),
        ("resources.gpus=3", "resources.gpus", 3),
        ("resources.memory=8GB", "resources.memory", "8GB"),
        ('name="2024"', "name", "2024"),
        ("name=a=b", "name", "a=b"),
        ("name=x\nshell = true", "name", "x\nshell = true"),
        ("inputs[0].url=https://x/y", "inputs.0", {"url": "https://x/y"}),
        ("inputs.0.path=p", "inputs.0", {"url": "https://a/b", "path": "p"}),
        ("inputs[1].url[0]=https://x/y", "inputs.1.url", ["https://x/y"]),
        ("inputs[0].url[1]=https://x/y", "inputs.0.url", ["https://a/b", "https://x/y"]),
        ("inputs[2].url=https://x/y", "inputs.2", {"url": "https://x/y"}),
        ("outputs[0].to=r/m.pt", "outputs.0", {"path": "m.pt", "to": "r/m.pt"}),
        ("outputs[0].required=false", "outputs.0.required", False),
        ('files=["a.py"]', "files", ["a.py"]),
        ("files[0]=a.py", "files", ["a.py"]),
        ("command=python3 x.py --lr 0.1", "command", "python3 x.py --lr 0.1"),
        ("environment.V=1.10", "environment", {"V": "1.10"}),
        ('environment.V="1.10"', "environment", {"V": "1.10"}),
        ("submit.MY.Foo=1", "submit", {"MY.Foo": "1"}),
        ('submit."+Foo"="x"', "submit", {"+Foo": "x"}),
        ("submit.+Foo=true", "submit", {"+Foo": "true"}),
        ("checkpoint.paths=['c']", "checkpoint", {"paths": ["c"]}),
        ("container=", "container", ""),
    ],
)
def test_set(option: str, path: str, value: object) -> None:
    raw, problems = apply(RAW, [option])
    assert problems == []
    found: Any = raw
    for part in path.split("."):
        found = found[int(part) if part.isdigit() else part]
    assert found == value


def test_the_document_itself_is_left_alone() -> None:
    before = repr(RAW)
    apply(RAW, ["inputs[0].path=x", "resources.gpus.count=9"], ["mem=3 GB"])
    assert repr(RAW) == before


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("", "KEY=VALUE"),
        ("a", "KEY=VALUE"),
        ("=1", "KEY=VALUE"),
        (".a=1", "KEY=VALUE"),
        ("a..b=1", "KEY=VALUE"),
        ("a b=1", "KEY=VALUE"),
        ("[0]=1", "KEY=VALUE"),
        ("0.a=1", "KEY=VALUE"),
        ("inputs[9].url=x", "there are 2"),
        ("inputs[99999999999999].url=x", "does not exist"),
        ("outputs[5]=x", "there are 1"),
        ("files[1]=x", "there are none yet"),
        ("inputs.url=x", "inputs[0].url"),
        ("name.x=1", "not a table"),
        ("command[0]=x", "not a list"),
        ('"a=1', "KEY=VALUE"),
    ],
)
def test_bad_set(option: str, words: str) -> None:
    _, (problem,) = apply(RAW, [option])
    assert problem.where == f"--set {option}"
    assert words in str(problem)


@pytest.mark.parametrize(
    ("options", "resources"),
    [
        (["nvidia-gpu=2"], {"gpus": {"count": 2}, "memory": "2 GB"}),
        (["nvidia-gpu=0"], {"memory": "2 GB"}),
        (["cpu=1.5"], {"gpus": 1, "memory": "2 GB", "cpus": 2}),
        (["cpu=4"], {"gpus": 1, "memory": "2 GB", "cpus": 4}),
        (["mem=8GB", "disk=20 GB"], {"gpus": 1, "memory": "8GB", "disk": "20 GB"}),
        (["gpu-mem=16GB", "nvidia-gpu=2"],
         {"gpus": {"count": 2, "memory": "16GB"}, "memory": "2 GB"}),
    ],
)  # fmt: skip
def test_resource(options: list[str], resources: dict[str, object]) -> None:
    raw, problems = apply(RAW, [], options)
    assert problems == []
    assert raw["resources"] == resources


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("mem=300", "300 MB or 300 GB?"),
        ("gpu-mem=16", "16 MB or 16 GB?"),
        ("disk=-1 GB", "negative"),
        ("cpu=0", "at least 1"),
        ("cpu=-1", "not an amount"),
        ("cpu=nan", "not an amount"),
        ("cpu=inf", "not an amount"),
        ("cpu=many", "not an amount"),
        ("nvidia-gpu=1.5", "ask for 2"),
        ("nvidia-gpu=-1", "not an amount"),
        ("nvidia-gpu", "NAME=AMOUNT"),
        ("nvidia-gpu=", "NAME=AMOUNT"),
        ("amd-gpu=1", "NVIDIA GPUs only"),
        ("tpu=1", "NVIDIA GPUs only"),
        ("gpu=1", "did you mean nvidia-gpu?"),
        ("memory=1GB", "did you mean mem?"),
        ("quux=1", "known are nvidia-gpu, gpu-mem, cpu, mem, disk"),
    ],
)
def test_bad_resource(option: str, words: str) -> None:
    raw, (problem,) = apply(RAW, [], [option])
    assert problem.where == f"--resource {option}"
    assert words in str(problem)
    assert raw == RAW


def test_broken_documents_are_survived() -> None:
    _, (problem,) = apply({"resources": 3}, [], ["cpu=1"])
    assert "not a table" in problem.what


def test_no_gpu_but_its_memory(wrong: Wrong) -> None:
    (problem,) = wrong(resources=["gpu-mem=16GB", "nvidia-gpu=0"])
    assert problem.where == "--resource gpu-mem=16GB"


def test_gpu_memory_asks_for_a_gpu(load: Load) -> None:
    gpus = load(resources=["gpu-mem=16GB"]).resources.gpus
    assert gpus is not None
    assert (gpus.count, gpus.memory) == (1, 16 * 10**9)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("resources.gpuz.count=2", "did you mean `gpus`?"),
        ("resources.gpus.cuont=2", "did you mean `count`?"),
        ("resources.memory=8", "8 MB or 8 GB?"),
        ("name=2024", '"2024" in quotes'),
        ("inputs[0].url=s3://x", "does not fetch"),
        ("checkpoint.interval=1 h", "is missing"),
        ('files=["nope"]', "no file"),
        ("table=nope.csv", "no file"),
        ("table=[3]", "table of columns"),
        ("container=x.sif", "no file"),
        ("environment.HEADWAY_X=1", "choose another name"),
        ("submit.request_memory=1", "`resources.memory`"),
    ],
)
def test_what_an_option_brings_in_is_its_own_fault(wrong: Wrong, option: str, words: str) -> None:
    (problem,) = wrong("environment = {A = 1}\nsubmit = {rank = 1}", overrides=[option])
    assert problem.where == f"--set {option}"
    assert words in str(problem)


def test_what_was_wrong_before_is_not(wrong: Wrong) -> None:
    (problem,) = wrong("resources = {memory = 8, cpus = 1}", overrides=["resources.cpus=2"])
    assert problem.where == "job.toml: resources.memory"


def test_an_option_mends_the_file(load: Load) -> None:
    assert load("resources = {memory = 8}", overrides=["resources.memory=8 GB"])
    assert load("resources = {memory = 8}", resources=["mem=8 GB"]).resources.memory == 8 * 10**9
