"""A checkpoint is whole or not there, whatever happens while it is written or afterwards."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.lab.killing import in_a_new_process, killed_at

import headway.checkpoint
from headway.checkpoint import Checkpoint, CheckpointError, trace


@pytest.fixture(autouse=True)
def handler() -> Any:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


class Counter:
    """Something with a state, as a data set is."""

    def __init__(self, at: int = 0) -> None:
        self.at = at

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    place = str(tmp_path / "ckpt")
    plain = {"step": 7, "losses": [0.5, float("inf")], "names": {"a": None, "ü": True}}
    Checkpoint(place).save(data=Counter(41), blob=b"\0\1", **plain)
    counter = Counter()
    assert Checkpoint(place).load(data=counter) == {**plain, "blob": b"\0\1"}
    assert counter.at == 41


def test_nested_states_come_back_as_they_were(tmp_path: Path) -> None:
    state = {
        "pairs": [(1, 2.5), (-0.0, "x")],
        "by number": {0: "a", (1, 2): {"$": "not a kind"}},
        "bytes": [b"\0\xff"],
        "order": OrderedDict(b=1, a=2),
    }
    Checkpoint(str(tmp_path)).save(state=state, rng=random.getstate())
    kept = Checkpoint(str(tmp_path)).load()
    assert kept == {"state": state, "rng": random.getstate()}
    assert repr(kept["state"]) == repr(state)


def test_trees_of_arrays_come_back(tmp_path: Path) -> None:
    """As JAX, Keras and plain NumPy have them."""
    numpy = pytest.importorskip("numpy")
    params = {"dense": {"kernel": numpy.eye(3), "bias": numpy.float32(1.5)}, "n": numpy.int64(7)}
    Checkpoint(str(tmp_path)).save(params=params, weights=[numpy.arange(4, dtype="uint8")])
    kept = Checkpoint(str(tmp_path)).load()
    assert kept is not None
    assert (kept["params"]["dense"]["kernel"] == numpy.eye(3)).all()
    assert kept["params"]["dense"]["bias"] == numpy.float32(1.5) and kept["params"]["n"] == 7
    assert kept["weights"][0].dtype == numpy.uint8
    with pytest.raises(CheckpointError, match="objects is a"):
        Checkpoint(str(tmp_path)).save(objects=numpy.array([object()]))


def test_single_generators_go_on(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    ours, theirs = random.Random(1), numpy.random.default_rng(2)
    checkpoint = Checkpoint(str(tmp_path))
    checkpoint.save(ours=ours, theirs=theirs)
    drawn = [ours.random(), theirs.random()]
    checkpoint.load(ours=ours, theirs=theirs)
    assert [ours.random(), theirs.random()] == drawn


def test_at_the_beginning_there_is_none(tmp_path: Path) -> None:
    assert Checkpoint(str(tmp_path / "ckpt")).load(data=Counter()) is None


def test_random_numbers_go_on(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    checkpoint = Checkpoint(str(tmp_path))
    checkpoint.save()
    drawn = [random.random(), random.gauss(0, 1), numpy.random.normal(), numpy.random.random()]
    checkpoint.load()
    again = [random.random(), random.gauss(0, 1), numpy.random.normal(), numpy.random.random()]
    assert again == drawn


def test_the_last_ones_are_kept(tmp_path: Path) -> None:
    checkpoint = Checkpoint(str(tmp_path), keep=3)
    for step in range(6):
        checkpoint.save(step=step)
    assert sorted(os.listdir(tmp_path)) == ["00000004", "00000005", "00000006"]


@pytest.mark.parametrize("name", ["values.json", "index.json", "blob.bin"])
@pytest.mark.parametrize("how", ["flipped", "cut", "gone"])
def test_a_damaged_one_is_passed_over(
    tmp_path: Path, name: str, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = Checkpoint(str(tmp_path))
    checkpoint.save(step=1, blob=b"one")
    file = Path(checkpoint.save(step=2, blob=b"two")) / name
    content = bytearray(file.read_bytes())
    if how == "gone":
        file.unlink()
    else:
        content[len(content) // 2] ^= 0x41
        file.write_bytes(content if how == "flipped" else content[:-1])
    assert checkpoint.load() == {"step": 1, "blob": b"one"}
    assert "skipped a damaged checkpoint" in capsys.readouterr().err


@pytest.mark.parametrize("damaged", [1, 2])
def test_the_one_that_was_gone_on_from_outlives_the_damaged(tmp_path: Path, damaged: int) -> None:
    checkpoint = Checkpoint(str(tmp_path), keep=1 + damaged)
    checkpoint.save(step=1)
    for _ in range(damaged):
        (Path(checkpoint.save(step=2)) / "values.json").write_bytes(b"{}")
    later = Checkpoint(str(tmp_path))
    assert later.load() == {"step": 1}
    newest = Path(later.save(step=3))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000001", newest.name]
    (newest / "values.json").write_bytes(b"{}")
    assert Checkpoint(str(tmp_path)).load() == {"step": 1}


def test_when_none_is_whole_it_says_so(tmp_path: Path) -> None:
    checkpoint = Checkpoint(str(tmp_path))
    for _ in range(2):
        (Path(checkpoint.save(step=1)) / "values.json").write_bytes(b"{}")
    with pytest.raises(CheckpointError, match=r"no checkpoint is complete.*move .* away"):
        checkpoint.load()


def test_an_index_does_not_lead_outside(tmp_path: Path) -> None:
    checkpoint = Checkpoint(str(tmp_path / "ckpt"))
    index = Path(checkpoint.save(step=1)) / "index.json"
    index.write_text('{"format": 1, "files": {"../../secret.bin": "0", "values.json": "0"}}')
    (tmp_path / "secret.bin").write_bytes(b"secret")
    with pytest.raises(CheckpointError, match="outside of itself"):
        checkpoint.load()


@pytest.mark.parametrize("thing", [object(), {1, 2}, {"a": lambda: 0}, [{2: Path()}]])
def test_what_cannot_come_back_is_refused(tmp_path: Path, thing: object) -> None:
    checkpoint = Checkpoint(str(tmp_path))
    checkpoint.save(step=1)
    with pytest.raises(CheckpointError, match=r"thing\S* is a"):
        checkpoint.save(thing=thing)
    assert checkpoint.load() == {"step": 1}
    assert os.listdir(tmp_path) == ["00000001"]


@pytest.mark.parametrize("name", ["a/b", "..", "", "index", "values", "a.b"])
def test_odd_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(CheckpointError, match="not a name"):
        Checkpoint(str(tmp_path)).save(**{name: b"x"})


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    checkpoint = Checkpoint(str(tmp_path))
    checkpoint.save(step=1)
    with pytest.raises(CheckpointError, match="has no data: it is from another version"):
        checkpoint.load(data=Counter())


def test_what_cannot_be_put_back_is_told(tmp_path: Path) -> None:
    checkpoint = Checkpoint(str(tmp_path))
    checkpoint.save(step=1)
    with pytest.raises(CheckpointError, match="step has no load_state_dict"):
        checkpoint.load(step=1)


def test_a_full_disk_keeps_the_one_before(tmp_path: Path) -> None:
    checkpoint = Checkpoint(str(tmp_path))
    checkpoint.save(step=1)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        with pytest.raises(CheckpointError, match="the one before it is still there"):
            checkpoint.save(step=2, blob=bytes(1 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert os.listdir(tmp_path) == ["00000001"]
    assert checkpoint.load() == {"step": 1}


def test_killed_at_any_moment(tmp_path: Path) -> None:
    """All parts of what is loaded are of the same step, and steps never go back."""
    program = textwrap.dedent(
        f"""
        from headway.checkpoint import Checkpoint
        checkpoint = Checkpoint({str(tmp_path / "ckpt")!r})
        kept = checkpoint.load()
        step = kept["step"] if kept else 0
        assert not kept or kept["blob"] == str(step).encode() * 20000, "mixed"
        print(step, flush=True)
        while True:
            step += 1
            checkpoint.save(step=step, blob=str(step).encode() * 20000)
        """
    )
    last = -1
    for round in range(12):
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        assert process.stdout is not None
        with process, process.stdout:
            line = process.stdout.readline()
            time.sleep(0.003 * round)
            process.kill()
        assert int(line) >= last, line
        last = int(line)
    assert last > 0
    assert Checkpoint(str(tmp_path / "ckpt")).load() is not None
    assert not [name for name in os.listdir(tmp_path / "ckpt") if name.startswith(".new")]


def _lines(made: Callable[..., object]) -> range:
    lines, first = inspect.getsourcelines(made)
    return range(first, first + len(lines))


#: Lines that touch no file: of these there are thousands, one for each word of a random state.
PURE = {
    line
    for made in (headway.checkpoint._pack, headway.checkpoint._scalar, headway.checkpoint._plain)
    for line in _lines(made)
}


def _save_until(line: int, place: str, step: int) -> int:
    """Save in a process that is killed at the so manyth line; returns how many there were."""

    def own(frame: FrameType) -> bool:
        name = frame.f_code.co_filename
        return name.endswith("headway/checkpoint.py") and frame.f_lineno not in PURE

    checkpoint = Checkpoint(place)
    blob = str(step).encode() * 1000
    return killed_at(line, lambda: checkpoint.save(step=step, blob=blob), own)


def _kill_at_each_line(place: str) -> None:
    step = 0
    for _ in range(3):  # from then on each save also removes an old one
        step += 1
        lines = _save_until(0, place, step)
    assert lines > 50
    for line in range(1, lines + 1):
        assert _save_until(line, place, step + 1) == 0
        kept = Checkpoint(place).load()
        assert kept is not None and kept["step"] in (step, step + 1), line
        assert kept["blob"] == str(kept["step"]).encode() * 1000
        step = kept["step"]
    assert step > 3


def test_killed_at_any_line_of_a_save(tmp_path: Path) -> None:
    """Each line in turn: what is loaded then is whole, the new one or the one before it."""
    in_a_new_process(_kill_at_each_line, str(tmp_path / "ckpt"))


@pytest.mark.parametrize("room", ["1m", "3m"])
def test_a_disk_that_is_full(tmp_path: Path, room: str) -> None:
    """A real one; with room for three, saves go on for ever."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={room}", "tmpfs", str(tmp_path)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        checkpoint = Checkpoint(str(tmp_path / "ckpt"))
        blob = bytes(400_000)
        for step in range(2):
            checkpoint.save(step=step, blob=blob)
        if room == "1m":
            with pytest.raises(CheckpointError, match=r"No space left.*before it is still there"):
                checkpoint.save(step=2, blob=blob)
            assert checkpoint.load() == {"step": 1, "blob": blob}
        else:
            for step in range(2, 9):
                checkpoint.save(step=step, blob=blob)
            assert checkpoint.load() == {"step": 8, "blob": blob}
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_sigterm_saves_and_leaves_with_85(tmp_path: Path) -> None:
    program = textwrap.dedent(
        f"""
        import time
        from headway.checkpoint import Checkpoint
        checkpoint = Checkpoint({str(tmp_path / "ckpt")!r})
        step = 0
        print("ready", flush=True)
        while True:
            step += 1
            time.sleep(0.01)
            checkpoint.tick(step=step)
        """
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process, process.stdout:
        process.stdout.readline()
        process.terminate()
        assert process.wait(10) == 85
    kept = Checkpoint(str(tmp_path / "ckpt")).load()
    assert kept is not None and kept["step"] >= 1


def test_a_child_ends_at_sigterm_as_ever(tmp_path: Path) -> None:
    """A data loader ends its forked workers by SIGTERM, and waits for them."""
    Checkpoint(str(tmp_path))
    child = os.fork()
    if child == 0:
        time.sleep(20)
        os._exit(0)
    time.sleep(0.05)
    os.kill(child, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM


STRUCK = """
    import os, signal, sys
    from headway.checkpoint import Checkpoint

    def strike(frame, event, _):
        if event == "call" and not struck and frame.f_code.co_name != "_signalled":
            return None
        if event == "line":
            struck.append(1)
            os.kill(os.getpid(), signal.SIGTERM)
        return strike

    struck = []
    checkpoint = Checkpoint(sys.argv[1])
    sys.settrace(strike)
    os.kill(os.getpid(), signal.SIGTERM)
    while not struck:
        pass
    sys.settrace(None)
    assert len(struck) > 3
    checkpoint.tick(step=1)
"""


def test_a_signal_at_any_line_of_the_handler(tmp_path: Path) -> None:
    """A pool may send SIGTERM to all processes while the agent sends it, too."""
    command = [sys.executable, "-c", textwrap.dedent(STRUCK), str(tmp_path)]
    assert subprocess.run(command, timeout=20, check=False).returncode == 85
    assert Checkpoint(str(tmp_path)).load() == {"step": 1}


def test_a_handler_that_was_there_is_called_too(tmp_path: Path) -> None:
    called = []
    signal.signal(signal.SIGTERM, lambda *_: called.append(1))
    checkpoint = Checkpoint(str(tmp_path))
    assert not checkpoint.should_stop()
    os.kill(os.getpid(), signal.SIGTERM)
    assert called and checkpoint.should_stop() and checkpoint.due()


def test_the_jobs_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_CHECKPOINT_INTERVAL", "0.05")
    monkeypatch.setenv("HEADWAY_CHECKPOINT_EXIT_CODE", "77")
    checkpoint = Checkpoint(str(tmp_path))
    checkpoint.tick(step=1)
    time.sleep(0.06)
    with pytest.raises(SystemExit) as left:
        checkpoint.tick(step=2)
    assert left.value.code == 77
    assert checkpoint.load() == {"step": 2}


def test_the_jobs_signal_is_heeded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_CHECKPOINT_SIGNAL", "SIGUSR2")
    before = signal.getsignal(signal.SIGUSR2)
    try:
        checkpoint = Checkpoint(str(tmp_path))
        os.kill(os.getpid(), signal.SIGUSR2)
        assert checkpoint.should_stop()
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_drafts_of_the_dead_are_removed(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    for name in (f".new-{ended.pid}", ".new-1", f".new-{os.getpid()}"):
        (tmp_path / name).mkdir()
    os.utime(tmp_path / ".new-1", (0, 0))  # a living process by now, but no writer of this
    with subprocess.Popen(["sleep", "60"]) as writer:  # not the parent: in a container that is 1
        (tmp_path / f".new-{writer.pid}").mkdir()
        assert Checkpoint(str(tmp_path)).load() is None
        writer.kill()
    assert os.listdir(tmp_path) == [f".new-{writer.pid}"]


def test_the_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADWAY_TRACE", raising=False)
    trace(step=0)
    monkeypatch.setenv("HEADWAY_TRACE", str(tmp_path / "trace"))
    trace(step=1, loss=0.1, samples=range(3))
    Checkpoint(str(tmp_path / "ckpt")).save(step=1)
    first, second = map(json.loads, (tmp_path / "trace").read_text().splitlines())
    assert first == {"step": 1, "loss": 0.1, "samples": [0, 1, 2]}
    assert second["event"] == "save" and second["bytes"] > 100 and second["seconds"] > 0
    monkeypatch.setenv("HEADWAY_TRACE", str(tmp_path))  # a folder: not to be written to
    trace(step=2)


def test_own_interval_saves_and_goes_on(tmp_path: Path) -> None:
    checkpoint = Checkpoint(str(tmp_path), every=0.05)
    checkpoint.tick(step=1)
    assert os.listdir(tmp_path) == []
    time.sleep(0.06)
    checkpoint.tick(step=2)
    checkpoint.tick(step=3)
    assert checkpoint.load() == {"step": 2}


@pytest.mark.parametrize("text", ["soon", "0", "-5", "nan"])
def test_a_wrong_interval_is_told(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_CHECKPOINT_INTERVAL", text)
    with pytest.raises(CheckpointError, match="HEADWAY_CHECKPOINT_INTERVAL"):
        Checkpoint(str(tmp_path))


def test_a_moved_folder_is_found(tmp_path: Path) -> None:
    Checkpoint(str(tmp_path / "a")).save(step=3)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert Checkpoint(str(tmp_path / "b")).load() == {"step": 3}


class TestTorch:
    def test_training_goes_on_bit_by_bit(self, tmp_path: Path) -> None:
        torch = pytest.importorskip("torch")

        def parts() -> tuple[Any, Any, Any]:
            torch.manual_seed(1)
            model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
            optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
            return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2)

        def step(model: Any, optimizer: Any, scheduler: Any) -> None:
            optimizer.zero_grad()
            model(torch.randn(8, 4)).square().sum().backward()
            optimizer.step()
            scheduler.step()

        whole = parts()
        for _ in range(6):
            step(*whole)
        first = parts()
        for _ in range(3):
            step(*first)
        Checkpoint(str(tmp_path)).save(model=first[0], optimizer=first[1], scheduler=first[2])
        again = parts()
        torch.manual_seed(99)
        kept = Checkpoint(str(tmp_path)).load(
            model=again[0], optimizer=again[1], scheduler=again[2]
        )
        assert kept == {}
        for _ in range(3):
            step(*again)
        ours, theirs = again[0].state_dict(), whole[0].state_dict()
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)

    def test_a_pickle_is_not_run(self, tmp_path: Path) -> None:
        torch = pytest.importorskip("torch")
        checkpoint = Checkpoint(str(tmp_path))
        place = Path(checkpoint.save(weights=torch.zeros(3)))
        ran = tmp_path / "ran"

        class Hostile:
            def __reduce__(self) -> Any:
                return os.mkdir, (str(ran),)

        torch.save(Hostile(), place / "weights.pt")
        index = json.loads((place / "index.json").read_text())
        digest = hashlib.sha256((place / "weights.pt").read_bytes()).hexdigest()
        index["files"]["weights.pt"] = digest
        (place / "index.json").write_text(json.dumps(index))
        with pytest.raises(CheckpointError, match=r"cannot be read: .*[Ww]eights"):
            checkpoint.load()
        assert not ran.exists()

    def test_odd_numbers_in_states_come_back(self, tmp_path: Path) -> None:
        """Schedulers put NumPy's floats beside tensors, which weights_only would refuse."""
        torch, numpy = pytest.importorskip("torch"), pytest.importorskip("numpy")
        state = {"lr": numpy.float64(0.5), 3: torch.ones(2), "list": defaultdict(int, {"a": 1})}
        generator = torch.Generator().manual_seed(4)
        checkpoint = Checkpoint(str(tmp_path))
        checkpoint.save(state=state, generator=generator)
        drawn = torch.rand(2, generator=generator)
        kept = checkpoint.load(generator=generator)
        assert kept is not None and kept["state"]["lr"] == 0.5
        assert torch.equal(kept["state"][3], torch.ones(2)) and kept["state"]["list"] == {"a": 1}
        assert torch.equal(torch.rand(2, generator=generator), drawn)

    def test_the_versions_of_modules_are_kept(self, tmp_path: Path) -> None:
        torch = pytest.importorskip("torch")
        model = torch.nn.BatchNorm1d(2)
        checkpoint = Checkpoint(str(tmp_path))
        checkpoint.save(state=model.state_dict())
        kept = checkpoint.load()
        assert kept is not None
        assert kept["state"]._metadata == model.state_dict()._metadata

    def test_a_full_disk(self, tmp_path: Path) -> None:
        torch = pytest.importorskip("torch")
        checkpoint = Checkpoint(str(tmp_path))
        checkpoint.save(step=1)
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
        try:
            with pytest.raises(CheckpointError, match="the one before it is still there"):
                checkpoint.save(weights=torch.zeros(1 << 20))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert os.listdir(tmp_path) == ["00000001"]
