"""The ImageNet example: its data, transforms and model; and interruptions change nothing."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.node.stream.arriving import Arriving

from headway.node.transfer.manifest import make_manifest

if importlib.util.find_spec("torch") is None or importlib.util.find_spec("PIL") is None:
    pytest.skip("the ImageNet example needs PyTorch and Pillow", allow_module_level=True)

from PIL import Image

from headway.torch import Shuffled

EXAMPLE = Path(__file__).parents[2] / "examples" / "imagenet"
MODEL, METRICS = "imagenet_resnet50.pt", "metrics.json"
INTERVAL = "HEADWAY_CHECKPOINT_INTERVAL"
TINY = "--image-size 32 --width 4 --batch-size 16 --epochs 2 --held-out 0 --threads 1 --save-model"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"imagenet_{name}", EXAMPLE / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


train, make_data = load("train"), load("make_data")
torch = train.torch


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    handler, threads = signal.getsignal(signal.SIGTERM), torch.get_num_threads()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(INTERVAL, raising=False)
    yield
    signal.signal(signal.SIGTERM, handler)
    torch.set_num_threads(threads)


def made(path: Path, flags: str) -> Path:
    assert make_data.main(["--output", str(path), "--workers", "1", *flags.split()]) == 0
    return path


def published(path: Path) -> Path:
    Path(f"{path}.headway").write_bytes(make_manifest(str(path), chunk_size=1 << 16))
    return path


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "train.tar"
    return published(made(path, "--classes 4 --per-class 20 --side 32"))


@pytest.fixture(scope="session")
def uninterrupted(
    data: Path, tmp_path_factory: pytest.TempPathFactory, quick_start: dict[str, str]
) -> Path:
    folder = tmp_path_factory.mktemp("uninterrupted")
    command = [sys.executable, "-W", "error", str(EXAMPLE / "train.py"), "--data", str(data)]
    environment = quick_start | {"HEADWAY_TRACE": "trace.jsonl"}
    environment.pop(INTERVAL, None)
    subprocess.run([*command, *TINY.split()], cwd=folder, env=environment, check=True)
    return folder


def start(data: Path, *flags: str) -> int:
    """The exit code; a checkpoint ends the process, as far as a test can be ended."""
    try:
        code = train.main(["--data", str(data), *TINY.split(), *flags])
    except SystemExit as left:
        code = left.code
    assert isinstance(code, int)
    return code


def metrics(folder: Path = Path()) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / METRICS).read_text())
    return found


def assert_same_result(folder: Path) -> None:
    for name in (MODEL, METRICS):
        assert Path(name).read_bytes() == (folder / name).read_bytes(), name


# -- the made data set


def members(content: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        found = {}
        for member in archive:
            stream = archive.extractfile(member)
            assert member.isfile() and stream
            found[member.name] = stream.read()
        return found


def test_made_data_has_the_shape_of_ilsvrc2012(tmp_path: Path) -> None:
    whole = made(tmp_path / "a.tar", "--classes 3 --per-class 40 --side 24").read_bytes()
    tars = members(whole)
    assert list(tars) == sorted(tars) and len(tars) == 3
    assert all(re.fullmatch(r"n\d{8}\.tar", name) for name in tars)
    assert all(len(each) % 10240 == 0 for each in (whole, *tars.values()))
    seen = set()
    for name, content in tars.items():
        images = members(content)
        assert list(images) == [f"{name[:-4]}_{number}.JPEG" for number in range(1, 41)]
        for jpeg in images.values():
            with Image.open(io.BytesIO(jpeg)) as image:
                assert (image.format, image.mode, image.size) == ("JPEG", "RGB", (24, 24))
        seen |= {hashlib.sha256(jpeg).digest() for jpeg in images.values()}
    assert len(seen) == 120


def test_the_same_seed_makes_the_same_bytes_with_any_number_of_workers(tmp_path: Path) -> None:
    flags = "--classes 2 --per-class 70 --side 16"
    one, other = (
        made(tmp_path / f"{seed}.tar", f"{flags} --seed {seed}").read_bytes() for seed in (7, 8)
    )
    two = made(tmp_path / "two.tar", f"{flags} --seed 7 --workers 2").read_bytes()
    assert one == two != other


def test_repeated_pictures_are_other_bytes_and_the_same_picture(tmp_path: Path) -> None:
    whole = made(tmp_path / "a.tar", "--classes 1 --per-class 9 --side 16 --distinct 3")
    [content] = members(whole.read_bytes()).values()
    images = list(members(content).values())
    assert len(set(images)) == 9
    assert len({Image.open(io.BytesIO(jpeg)).tobytes() for jpeg in images}) == 3


def test_memory_does_not_grow_with_the_data_set(tmp_path: Path) -> None:
    def peak(per_class: int) -> tuple[float, float]:
        """Of the memory, and the size of the file, in MB."""
        path = tmp_path / f"{per_class}.tar"
        flags = f"--classes 2 --per-class {per_class} --side 500 --distinct 4 --workers 1"
        command = [sys.executable, str(EXAMPLE / "make_data.py"), *flags.split()]
        process = subprocess.Popen([*command, "--output", str(path)])
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        return usage.ru_maxrss / 1e3, path.stat().st_size / 1e6

    (little, small), (much, large) = peak(10), peak(1000)
    assert large > small + 100 and much < little + 8


# -- transforms


@pytest.mark.parametrize(
    ("mode", "kind"), [("RGB", "JPEG"), ("L", "JPEG"), ("CMYK", "JPEG"), ("P", "PNG")]
)
def test_every_kind_of_image_becomes_pixels(mode: str, kind: str) -> None:
    buffer = io.BytesIO()
    Image.linear_gradient("L").resize((50, 37)).convert(mode).save(buffer, kind)
    pixels = train.decode(buffer.getvalue(), 24)
    assert pixels.shape == (24, 24, 3) and pixels.dtype == torch.uint8
    down = pixels[:, 12].float().mean(1)
    assert abs(float(down[-1] - down[0])) > 100 and (pixels[3] == pixels[3, 0]).all()


def test_mirroring_and_normalising() -> None:
    images = torch.arange(2 * 4 * 4 * 3, dtype=torch.uint8).view(2, 4, 4, 3)
    made = train.prepare(images, torch.device("cpu"), torch.tensor([False, True]))
    assert made.shape == (2, 3, 4, 4)
    for channel, (mean, std) in enumerate(zip(train.PIXEL_MEAN, train.PIXEL_STD, strict=True)):
        expected = (images[..., channel] / 255 - mean) / std
        torch.testing.assert_close(made[0, channel], expected[0])
        torch.testing.assert_close(made[1, channel], expected[1].flip(1))
    torch.testing.assert_close(train.prepare(images, torch.device("cpu"))[0], made[0])


def test_what_is_mirrored_follows_from_seed_epoch_and_sample() -> None:
    many = list(range(4000))
    coins = train.flips(1, 0, many)
    assert 0.45 < coins.double().mean() < 0.55
    assert train.flips(1, 0, many[70:90]).equal(coins[70:90])
    for other in (train.flips(1, 1, many), train.flips(2, 0, many)):
        assert 0.45 < (other == coins).double().mean() < 0.55


# -- the model


def test_the_model_is_resnet50() -> None:
    model = train.ResNet50(1000)
    assert sum(parameter.numel() for parameter in model.parameters()) == 25_557_032
    names = model.state_dict().keys()
    assert len(names) == 320
    assert {"conv1.weight", "layer1.0.downsample.1.running_mean", "layer4.2.bn3.bias"} <= names
    small = train.ResNet50(7, width=4).eval()
    assert small(torch.zeros(2, 3, 64, 64)).shape == (2, 7)


def test_weights_come_from_a_file(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(5)
    given = train.ResNet50(9, width=4)
    torch.save(given.state_dict(), "weights.pth")
    same, other = train.ResNet50(9, width=4), train.ResNet50(5, width=4)
    before = other.fc.weight.clone()
    for model in (same, other):
        train.load_weights(model, Path("weights.pth"))
        assert model.conv1.weight.equal(given.conv1.weight)
    assert same.fc.weight.equal(given.fc.weight) and other.fc.weight.equal(before)
    assert start(data, "--weights", "weights.pth", "--width", "8") == 2
    assert start(data, "--weights", "none.pth") == 2
    Path("weights.pth").write_text("<html>404</html>")
    assert start(data, "--weights", "weights.pth") == 2
    said = capsys.readouterr().err
    assert said.count("train.py: weights.pth: no weights of this model (") == 2
    assert "train.py: none.pth: " in said and said.count("\n") == 3


# -- the training


def test_it_learns(tmp_path: Path) -> None:
    path = published(made(tmp_path / "train.tar", "--classes 4 --per-class 60 --side 32"))
    assert start(path, "--width", "8", "--epochs", "6", "--lr", "0.02") == 0
    epochs = metrics()["epochs"]
    assert len(epochs) == 6
    assert epochs[-1]["train_loss"] < epochs[0]["train_loss"] / 1.5
    assert epochs[-1]["top1"] > 0.5 and epochs[-1]["top1"] <= epochs[-1]["top5"] == 1
    kept = torch.load(MODEL, weights_only=True)
    model = train.ResNet50(len(kept["classes"]), kept["config"]["width"])
    model.load_state_dict(kept["state_dict"])


def test_no_image_is_both_learnt_from_and_tested(data: Path) -> None:
    parts = {}
    for digits in ("0", "10"):
        for kind, only in (("learnt", train.others(digits)), ("tested", f"*{digits}.JPEG")):
            found = train.TarDataset(str(data), only=only).source.samples
            parts[kind] = {found.name(number) for number in range(len(found))}
        assert not parts["learnt"] & parts["tested"]
        assert len(parts["learnt"] | parts["tested"]) == 80
        assert len(parts["tested"]) == (8 if digits == "0" else 4)


def test_an_end_at_every_batch_changes_nothing(
    data: Path, uninterrupted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An epoch is five batches of learning and one of testing; workers do not matter."""
    monkeypatch.setenv(INTERVAL, "0.000001")
    codes: list[int] = []
    while not codes or (codes[-1] == 85 and len(codes) < 20):
        codes.append(start(data, "--workers", "1" if len(codes) == 2 else "0"))
    assert codes == [85] * 12 + [0]
    assert_same_result(uninterrupted)


def test_sigterm_in_the_middle_of_an_epoch_changes_nothing(
    data: Path, uninterrupted: Path, capsys: pytest.CaptureFixture[str], quick_start: dict[str, str]
) -> None:
    command = [sys.executable, str(EXAMPLE / "train.py"), "--data", str(data), *TINY.split()]
    trace = Path("trace.jsonl")
    os.mkfifo(trace)  # a step that nobody reads keeps the training waiting
    environment = quick_start | {"HEADWAY_TRACE": str(trace.absolute())}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        said = b""
        while said.count(b'"step"') < 2:
            said += trace.read_bytes()
        process.terminate()
        rest = os.open(trace, os.O_RDONLY | os.O_NONBLOCK)
        process.wait()
        said += os.read(rest, 1 << 16)
        os.close(rest)
    done = [json.loads(line) for line in said.splitlines()]
    assert process.returncode == 85 and done[-1] == {"event": "leave", "code": 85}
    steps = [row for row in done if "step" in row]
    assert 2 <= len(steps) < 9
    assert start(data) == 0
    place = (steps[-1]["epoch"], min(72, 16 * steps[-1]["step"]))
    assert f"going on at sample {place[1]} of epoch {place[0] + 1}" in capsys.readouterr().out
    assert_same_result(uninterrupted)


@pytest.mark.parametrize("workers", ["0", "1"])
def test_data_that_stops_arriving_in_the_middle_changes_nothing(
    data: Path,
    uninterrupted: Path,
    tmp_path: Path,
    workers: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path, content = tmp_path / "train.tar", data.read_bytes()
    Path(f"{path}.headway").write_bytes(Path(f"{data}.headway").read_bytes())
    learnt = train.TarDataset(str(data), only=train.others("0"))
    sample = list(Shuffled(learnt, seed=0))[40]
    with Arriving(path, content, 512, hold=0) as arriving:
        for chunk in set(range(arriving.chunks)) - {learnt.source.samples.offsets[sample] // 512}:
            arriving.bring(chunk)
        arriving.arrival.fail("every cache fell silent", retryable=True)
        assert start(path, "--workers", workers) == 85
        assert "train.py: every cache fell silent" in capsys.readouterr().err
    Path(f"{path}.arrival").unlink()
    path.write_bytes(content)
    assert start(path) == 0
    assert "going on at sample 32 of epoch 1" in capsys.readouterr().out
    assert_same_result(uninterrupted)


def test_every_sample_is_learnt_from_once_an_epoch(uninterrupted: Path) -> None:
    lines = (uninterrupted / "trace.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    orders = [
        [sample for row in rows if row["epoch"] == epoch for sample in row["samples"]]
        for epoch in (0, 1)
    ]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(72))
    assert orders[0] != orders[1]


def test_a_checkpoint_of_another_training_is_refused(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(INTERVAL, "0.000001")
    assert start(data) == 85
    assert start(data, "--lr", "0.5") == 2
    assert "lr was 0.01" in capsys.readouterr().err
    assert start(data, "--width", "8") == 2
    assert "ckpt is of another training" in capsys.readouterr().err


def test_what_cannot_be_used_is_told(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.tar").write_bytes(data.read_bytes()[:30_000])
    assert start(Path("bad.tar")) == 2
    assert "bad.tar is a damaged tar file" in capsys.readouterr().err
    assert start(data, "--lr", "1e30") == 1
    assert "lower --lr" in capsys.readouterr().err
    for flags in (("--batch-size", "0"), ("--held-out", "x")):
        assert start(data, *flags) == 2
        assert flags[0] in capsys.readouterr().err
