"""Which run and job a word means."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headway.cli.address import find, find_run
from headway.errors import RunError
from headway.pool.folder import RunFolder, Runs

Make = Callable[..., RunFolder]


@pytest.fixture
def runs(tmp_path: Path, make_run: Make) -> Runs:
    make_run("cifar10", jobs=3, cluster=8001)  # cifar10-1
    make_run("cifar10", jobs=2, cluster=8002)  # cifar10-2
    make_run("v2.0", jobs=5, cluster=8003)  # v2.0-1
    make_run("v2", jobs=4, cluster=8004)  # v2-1
    make_run("last", jobs=10, cluster=8005)  # last-1
    return Runs(tmp_path / ".headway")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (None, "last-1"),
        ("", "last-1"),
        ("cifar10-1", "cifar10-1"),
        ("cifar10", "cifar10-2"),
        ("cifar10-1.2", "cifar10-1.2"),
        ("cifar10.1", "cifar10-2.1"),
        (".9", "last-1.9"),
        ("9", "last-1.9"),
        ("0", "last-1.0"),
        ("8001.2", "cifar10-1.2"),
        ("8001", "cifar10-1"),
        ("v2.0", "v2.0-1"),  # a run's own name goes before job 0 of the run v2
        ("v2.1", "v2-1.1"),
        ("v2.0.4", "v2.0-1.4"),
        ("v2.0-1.4", "v2.0-1.4"),
        ("v2-1.0", "v2-1.0"),
    ],
)
def test_meaning(runs: Runs, text: str | None, meant: str) -> None:
    assert str(find(text, runs)) == meant


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cifar10-9", "there is no run 'cifar10-9'"),
        ("cifar10-9.0", "there is no run 'cifar10-9'"),
        ("cifar10-1.3", "cifar10-1 has no job 3"),
        (".10", "last-1 has no job 10"),
        ("77", "last-1 has no job 77"),
        ("77.0", "there is no run '77'"),
        ("cifar10-1.x", "there is no run 'cifar10-1.x'"),
        ("cifar10-1.", "there is no run 'cifar10-1.'"),
        ("cifar10-1.-1", "there is no run 'cifar10-1.-1'"),
        (".", "there is no run '.'"),
        ("..", "there is no run '..'"),
        ("cifar10-1.٣", "there is no run"),
        ("9" * 5000, "there is no run"),
    ],
)
def test_nothing_of_that_name(runs: Runs, text: str, message: str) -> None:
    with pytest.raises(RunError) as caught:
        find(text, runs)
    assert caught.value.message.startswith(message)
    assert caught.value.remedy


def test_a_typing_error_gets_a_hint(runs: Runs) -> None:
    with pytest.raises(RunError, match="did you mean cifar10-1"):
        find("cifr10-1.0", runs)


def test_two_runs_of_one_cluster_are_not_guessed(tmp_path: Path, make_run: Make) -> None:
    make_run("a", cluster=7)
    make_run("b", cluster=7)
    with pytest.raises(RunError, match=r"several runs have the cluster 7[\s\S]*a-1, b-1"):
        find("7.0", Runs(tmp_path / ".headway"))


def test_a_real_pool_s_cluster_goes_before_a_local_one(tmp_path: Path, make_run: Make) -> None:
    make_run("real", cluster=7)
    make_run("toy", cluster=7, pool="local")
    assert str(find("7.0", Runs(tmp_path / ".headway"))) == "real-1.0"


def test_a_path_names_a_run(runs: Runs) -> None:
    path = str(runs.folder / "cifar10-1")
    assert str(find(path, runs)) == "cifar10-1"
    assert str(find(f"{path}.1", runs)) == "cifar10-1.1"


def test_no_runs_at_all(tmp_path: Path) -> None:
    for text in (None, "a", ".0", "0"):
        with pytest.raises(RunError, match="there are no runs"):
            find(text, Runs(tmp_path / ".headway"))


def test_a_whole_run(runs: Runs) -> None:
    assert find_run("cifar10", runs).label == "cifar10-2"
    with pytest.raises(RunError, match=r"cifar10-2\.0 is one job"):
        find_run("cifar10.0", runs)
