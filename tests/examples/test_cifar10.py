"""The CIFAR-10 example learns, survives interruption, and refuses bad data plainly."""

import gzip
import importlib.util
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("the CIFAR-10 example needs PyTorch", allow_module_level=True)

EXAMPLE = Path(__file__).parents[2] / "examples" / "cifar10"
FOLDER = "cifar-10-batches-bin"
INTERVAL = "HEADWAY_CHECKPOINT_INTERVAL"
TINY = ["--epochs", "3", "--batch-size", "32", "--width", "4", "--blocks", "1", "--threads", "1"]


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"cifar10_{name}", EXAMPLE / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


train = load("train")
make_data = load("make_data")
torch = train.torch


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    handler, threads = signal.getsignal(signal.SIGTERM), torch.get_num_threads()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(INTERVAL, raising=False)
    yield
    signal.signal(signal.SIGTERM, handler)
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def members() -> dict[str, bytes]:
    return dict(make_data.members(per_class=10, seed=1))


@pytest.fixture(scope="session")
def data(members: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "tiny.tar"
    path.write_bytes(make_data.tar(members))
    return path


@pytest.fixture(scope="session")
def uninterrupted(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("uninterrupted")
    places = ["--checkpoint-dir", str(folder / "ckpt"), "--output", str(folder / "model.pt")]
    assert (
        train.main(["--data", str(data), *TINY, *places, "--metrics", str(folder / "metrics.json")])
        == 0
    )
    return folder


def start(data: Path, *flags: str) -> int:
    code = train.main(["--data", str(data), *TINY, *flags])
    assert isinstance(code, int)
    return code


def metrics(folder: Path = Path()) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "metrics.json").read_text())
    return found


def assert_same_result(folder: Path) -> None:
    ours, theirs = (torch.load(place / "model.pt", weights_only=True) for place in (Path(), folder))
    assert ours["config"] == theirs["config"]
    torch.testing.assert_close(ours["state_dict"], theirs["state_dict"])
    assert len(metrics()["epochs"]) == len(metrics(folder)["epochs"])
    for row, expected in zip(metrics()["epochs"], metrics(folder)["epochs"], strict=True):
        assert row == pytest.approx(expected, rel=1e-4)


def test_the_model_is_resnet_20() -> None:
    assert sum(p.numel() for p in train.ResNet(width=16, blocks=3).parameters()) == 269_722


def test_crops_and_flips_only_move_pixels() -> None:
    torch.manual_seed(0)
    column = torch.arange(32, dtype=torch.uint8).expand(64, 3, 32, 32) + 1
    moved = train.augment(column)
    assert moved.shape == column.shape and moved.dtype == torch.uint8
    steps = moved[:, 0, 16].int().diff(dim=1)[:, 8:-8]
    assert {tuple(row.unique().tolist()) for row in steps} == {(1,), (-1,)}


def test_it_learns_from_a_gzipped_tar(tmp_path: Path) -> None:
    made = tmp_path / "shapes.tar.gz"
    assert make_data.main(["--per-class", "60", "--output", str(made)]) == 0
    bigger = ["--width", "8", "--epochs", "6", "--batch-size", "16"]
    assert start(made, *bigger) == 0
    result = metrics()
    assert result["test_accuracy"] > 0.5
    assert result["epochs"][-1]["train_loss"] < result["epochs"][0]["train_loss"] / 1.5
    assert result["resumed"] == 0 and result["seconds"] > 0


def test_data_is_read_as_written(data: Path, members: dict[str, bytes]) -> None:
    read = train.load_data(data, torch.device("cpu"))
    first = members["data_batch_1.bin"][:3073]
    assert read.train.labels[0] == first[0]
    assert bytes(read.train.images[0].flatten().tolist()) == first[1:]
    assert len(read.train.labels) == 100 and len(read.test.labels) == 20
    assert read.classes == list(make_data.SHAPES)


def test_each_epoch_visits_every_image_in_its_own_order(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_batch, seen = train.train_batch, []

    def recording(training: Any, images: Any, labels: Any) -> None:
        seen.extend(images.sum(dim=(1, 2, 3)).tolist())
        train_batch(training, images, labels)

    monkeypatch.setattr(train, "train_batch", recording)
    assert start(data) == 0
    first, second, third = seen[:100], seen[100:200], seen[200:]
    assert sorted(first) == sorted(second) == sorted(third)
    assert first != second and second != third and first != third


def test_exit_at_every_batch_changes_nothing(
    data: Path, uninterrupted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(INTERVAL, "0.000001")
    codes = [start(data)]
    while codes[-1] == 85 and len(codes) < 20:
        codes.append(start(data))
    assert codes == [85] * 12 + [0]
    assert metrics()["resumed"] == 12
    assert_same_result(uninterrupted)


def test_exit_after_every_epoch_changes_nothing(data: Path, uninterrupted: Path) -> None:
    assert [start(data, "--checkpoint-exit") for _ in range(3)] == [85, 85, 0]
    assert_same_result(uninterrupted)


def test_sigterm_in_the_middle_of_an_epoch_changes_nothing(
    data: Path, uninterrupted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_batch, calls = train.train_batch, []

    def terminated_in_its_sixth_batch(*arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) == 6:
            os.kill(os.getpid(), signal.SIGTERM)
        train_batch(*arguments)

    monkeypatch.setattr(train, "train_batch", terminated_in_its_sixth_batch)
    assert start(data) == 85
    saved = torch.load("ckpt/checkpoint.pt", weights_only=True)["progress"]
    assert (saved["epoch"], saved["next_batch"]) == (1, 2)
    assert not Path("model.pt").exists()
    assert start(data) == 0
    assert metrics()["resumed"] == 1
    assert_same_result(uninterrupted)


def test_sigterm_during_the_test_changes_nothing(
    data: Path, uninterrupted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = train.test

    def terminated(*arguments: Any) -> tuple[float, float]:
        os.kill(os.getpid(), signal.SIGTERM)
        result: tuple[float, float] = test(*arguments)
        return result

    monkeypatch.setattr(train, "test", terminated)
    assert start(data) == 85
    monkeypatch.setattr(train, "test", test)
    assert start(data) == 0
    assert_same_result(uninterrupted)


def test_a_real_process_takes_sigterm_and_goes_on(
    data: Path, tmp_path: Path, quick_start: dict[str, str]
) -> None:
    command = [sys.executable, str(EXAMPLE / "train.py"), "--data", str(data), *TINY, "--epochs"]
    process = subprocess.Popen(
        [*command, "3000"], env=quick_start, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout and process.stdout.readline().startswith("epoch 1/3000 ")
        process.send_signal(signal.SIGTERM)
        rest = process.communicate(timeout=120)[0]
    finally:
        process.kill()
    assert process.returncode == 85
    assert rest.splitlines()[-1].endswith("(SIGTERM), exit 85")
    environment = quick_start | {INTERVAL: "0.000001"}
    again = subprocess.run([*command, "3000"], env=environment, capture_output=True, text=True)
    assert again.returncode == 85
    assert again.stdout.startswith("resumed from ckpt/checkpoint.pt after ")
    assert again.stderr == ""


def test_a_finished_run_only_writes_its_results_again(data: Path, uninterrupted: Path) -> None:
    assert start(data) == 0
    Path("model.pt").unlink()
    assert start(data) == 0
    assert_same_result(uninterrupted)


def with_member(members: dict[str, bytes], name: str, payload: bytes | None) -> bytes:
    changed = {**members, name: payload}
    kept = {key: value for key, value in changed.items() if value is not None}
    return bytes(make_data.tar(kept))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda m: make_data.tar(m)[:40_000], "not a complete tar archive"),
        (lambda m: gzip.compress(make_data.tar(m))[:40_000], "not a complete tar archive"),
        (lambda m: b"<html>404 Not Found</html>" * 100, "not a complete tar archive"),
        (lambda m: b"", "not a complete tar archive"),
        (
            lambda m: with_member(m, "data_batch_3.bin", m["data_batch_3.bin"][:-1]),
            "data_batch_3.bin: 61459 bytes are not records of 3073 bytes",
        ),
        (lambda m: with_member(m, "data_batch_2.bin", b""), "data_batch_2.bin: 0 bytes are not"),
        (
            lambda m: with_member(m, "test_batch.bin", m["test_batch.bin"] + b"\xff" + bytes(3072)),
            "test_batch.bin: record 20 has label 255, not 0 to 9",
        ),
        (lambda m: with_member(m, "data_batch_5.bin", None), f"has no {FOLDER}/data_batch_5.bin"),
        (lambda m: with_member(m, "batches.meta.txt", b"cat\ndog\n"), "names 2 classes, not 10"),
    ],
)
def test_bad_data_is_one_line_and_exit_2(
    damage: Any, message: str, members: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("bad.tar").write_bytes(damage(members))
    assert start(Path("bad.tar")) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.startswith("train.py: bad.tar: ") and said.count("\n") == 1


def test_a_missing_file_is_one_line_and_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert start(Path("nowhere.tar")) == 2
    expected = "train.py: nowhere.tar: cannot be read: No such file or directory\n"
    assert capsys.readouterr().err == expected


def test_a_link_in_place_of_a_member_counts_as_missing(
    members: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    buffer = io.BytesIO(with_member(members, "test_batch.bin", None))
    with tarfile.open(fileobj=buffer, mode="a") as archive:
        link = tarfile.TarInfo(f"{FOLDER}/test_batch.bin")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    Path("bad.tar").write_bytes(buffer.getvalue())
    assert start(Path("bad.tar")) == 2
    assert f"has no {FOLDER}/test_batch.bin" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["soon", "0", "-5", "nan"])
def test_a_bad_interval_is_exit_2(
    value: str, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(INTERVAL, value)
    assert start(data) == 2
    assert f"{INTERVAL} is '{value}', not a number" in capsys.readouterr().err


def test_a_bad_flag_is_exit_2(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        start(data, "--batch-size", "0")
    assert stopped.value.code == 2
    assert "--batch-size must be above 0" in capsys.readouterr().err


def test_a_loss_that_is_not_finite_is_exit_1(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert start(data, "--lr", "1e30") == 1
    assert "lower --lr" in capsys.readouterr().err
    assert not Path("ckpt/checkpoint.pt").exists()


def interrupted_twice(data: Path) -> Path:
    assert [start(data, "--checkpoint-exit") for _ in range(2)] == [85, 85]
    return Path("ckpt/checkpoint.pt")


def test_a_truncated_checkpoint_falls_back_to_the_previous_one(
    data: Path, uninterrupted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = interrupted_twice(data)
    os.truncate(checkpoint, checkpoint.stat().st_size // 2)
    assert start(data) == 0
    said = capsys.readouterr()
    assert (
        said.err.startswith("ckpt/checkpoint.pt: damaged, not used") and said.err.count("\n") == 1
    )
    assert "resumed from ckpt/previous.pt after 1 epochs" in said.out
    assert_same_result(uninterrupted)


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", None])
def test_without_a_readable_checkpoint_it_starts_anew(
    content: bytes | None, data: Path, uninterrupted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = interrupted_twice(data)
    complete = torch.load(checkpoint, weights_only=True)
    for path in checkpoint.parent.glob("*.pt"):
        if content is None:
            torch.save({name: complete[name] for name in ("config", "model", "optimizer")}, path)
        else:
            path.write_bytes(content)
    assert start(data) == 0
    said = capsys.readouterr().err
    assert said.count("damaged, not used") == 2 and "Traceback" not in said
    assert metrics()["resumed"] == 0
    assert_same_result(uninterrupted)


def test_code_in_a_checkpoint_does_not_run(data: Path) -> None:
    class Attack:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (Path("attacked"),)

    checkpoint = Path("ckpt/checkpoint.pt")
    checkpoint.parent.mkdir()
    torch.save({"config": Attack()}, checkpoint)
    assert start(data) == 0
    assert not Path("attacked").exists()


def test_a_checkpoint_of_another_run_is_refused_until_told(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupted_twice(data)
    assert start(data, "--lr", "0.05") == 2
    said = capsys.readouterr().err
    assert "lr was 0.1" in said and "--no-resume" in said and said.count("\n") == 1
    assert start(data, "--lr", "0.05", "--no-resume") == 0
    assert metrics()["resumed"] == 0


def test_results_leave_no_temporary_files(data: Path, uninterrupted: Path) -> None:
    found = {str(path.relative_to(uninterrupted)) for path in uninterrupted.rglob("*.*")}
    checkpoints = {"ckpt/checkpoint.pt", "ckpt/previous.pt"}
    assert found == {"model.pt", "metrics.json"} | checkpoints


@pytest.mark.parametrize("name", ["made.tar", "made.tar.gz"])
def test_the_same_seed_makes_the_same_file(name: str) -> None:
    made = []
    for folder, seed in (("a", "7"), ("b", "7"), ("c", "8")):
        path = Path(folder, name)
        assert make_data.main(["--per-class", "5", "--seed", seed, "--output", str(path)]) == 0
        made.append(path.read_bytes())
    assert made[0] == made[1] != made[2]


def test_made_data_has_the_members_of_the_original(data: Path) -> None:
    with tarfile.open(data) as archive:
        found = {member.name: member for member in archive}
    assert set(found) == {*train.TRAIN_MEMBERS, train.TEST_MEMBER, train.NAMES_MEMBER}
    assert all(member.mtime == 0 and member.uid == 0 for member in found.values())
