"""Train a small ResNet on CIFAR-10, read straight from its binary tar, and survive interruption."""

import argparse
import io
import json
import math
import os
import pickle
import signal
import sys
import tarfile
import time
import warnings
import zlib
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any

# On shared cores, threads that spin while they wait take the time of those that work.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
with warnings.catch_warnings():
    # Nothing here needs NumPy, but torch announces its absence at import.
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
    import torch
    import torch.nn.functional as F
    from torch import Tensor, nn

EXIT_FAILED, EXIT_BAD_INPUT, EXIT_CHECKPOINTED = 1, 2, 85
INTERVAL_VARIABLE = "HEADWAY_CHECKPOINT_INTERVAL"
CLASSES, CHANNELS, SIDE, CROP_PADDING = 10, 3, 32, 4
RECORD_BYTES = 1 + CHANNELS * SIDE * SIDE
PIXEL_MEAN, PIXEL_STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
FOLDER = "cifar-10-batches-bin"
TRAIN_MEMBERS = [f"{FOLDER}/data_batch_{number}.bin" for number in range(1, 6)]
TEST_MEMBER, NAMES_MEMBER = f"{FOLDER}/test_batch.bin", f"{FOLDER}/batches.meta.txt"


class BadInput(Exception):
    """What the user gave cannot be used: one line and exit code 2."""


class CheckpointNow(Exception):
    """The run is to be checkpointed and left with exit code 85."""


@dataclass(frozen=True)
class Split:
    images: Tensor
    labels: Tensor


@dataclass(frozen=True)
class Data:
    train: Split
    test: Split
    classes: list[str]
    checksum: int


def read_members(path: Path) -> dict[str, bytes]:
    wanted = {*TRAIN_MEMBERS, TEST_MEMBER, NAMES_MEMBER}
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                name = str(PurePosixPath(member.name))
                if name in wanted and member.isfile():
                    stream = archive.extractfile(member)
                    found[name] = stream.read() if stream else b""
    except (tarfile.TarError, EOFError, zlib.error) as error:
        reason = str(error).partition("\n")[0].rstrip(":")
        raise BadInput(f"{path}: not a complete tar archive: {reason}") from error
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror or error}") from error
    if missing := sorted(wanted - found.keys()):
        raise BadInput(f"{path}: has no {', '.join(missing)} (cifar-10-binary.tar.gz does)")
    return found


def decode(payload: bytes, origin: str, device: torch.device) -> Split:
    if not payload or len(payload) % RECORD_BYTES:
        raise BadInput(f"{origin}: {len(payload)} bytes are not records of {RECORD_BYTES} bytes")
    records = torch.frombuffer(bytearray(payload), dtype=torch.uint8).to(device)
    records = records.view(-1, RECORD_BYTES)
    labels = records[:, 0].long()
    if len(wrong := (labels >= CLASSES).nonzero()):
        first = int(wrong[0])
        raise BadInput(f"{origin}: record {first} has label {int(labels[first])}, not 0 to 9")
    return Split(records[:, 1:].reshape(-1, CHANNELS, SIDE, SIDE), labels)


def load_data(path: Path, device: torch.device) -> Data:
    """Read and check everything in memory; nothing is extracted to disk."""
    members = read_members(path)
    classes = members[NAMES_MEMBER].decode(errors="replace").split()
    if len(classes) != CLASSES:
        raise BadInput(f"{path}: {NAMES_MEMBER} names {len(classes)} classes, not {CLASSES}")
    checksum, parts = 0, []
    for name in (*TRAIN_MEMBERS, TEST_MEMBER):
        checksum = zlib.crc32(members[name], checksum)
        parts.append(decode(members.pop(name), f"{path}: {name}", device))
    images = torch.cat([part.images for part in parts[:-1]])
    labels = torch.cat([part.labels for part in parts[:-1]])
    return Data(Split(images, labels), parts[-1], classes, checksum)


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.stride, self.added_channels = (1 if inputs == outputs else 2), outputs - inputs
        self.conv1 = nn.Conv2d(inputs, outputs, 3, self.stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x[:, :, :: self.stride, :: self.stride]
        shortcut = F.pad(shortcut, (0, 0, 0, 0, 0, self.added_channels))
        residual = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(residual + shortcut)


class ResNet(nn.Module):
    """The CIFAR ResNet of He et al. 2015: 6 * blocks + 2 layers, so 3 blocks make ResNet-20."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        stem = [nn.Conv2d(CHANNELS, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)]
        channels = [width] * (blocks + 1) + [2 * width] * blocks + [4 * width] * blocks
        body = [Block(*pair) for pair in pairwise(channels)]
        self.features = nn.Sequential(*stem, nn.ReLU(), *body)
        self.classifier = nn.Linear(4 * width, CLASSES)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.features(x).mean(dim=(2, 3)))
        return logits


def augment(images: Tensor) -> Tensor:
    # Drawn on the CPU even where a GPU is, so that one saved RNG state is enough anywhere.
    offsets = torch.randint(0, 2 * CROP_PADDING + 1, (2, len(images), 1))
    flipped = torch.rand(len(images), 1) < 0.5
    rows, columns = (offsets + torch.arange(SIDE)).unbind()
    columns = torch.where(flipped, columns.flip(1), columns)
    sample = torch.arange(len(images))[:, None, None]
    padded = F.pad(images, (CROP_PADDING,) * 4)
    return padded[sample, :, rows[:, :, None], columns[:, None]].permute(0, 3, 1, 2)


def normalise(images: Tensor) -> Tensor:
    mean, std = torch.tensor([PIXEL_MEAN, PIXEL_STD], device=images.device)[..., None, None]
    scaled: Tensor = (images / 255 - mean) / std
    return scaled.contiguous(memory_format=torch.channels_last)


class Stopper:
    """Knows, at batch boundaries, whether the run was asked to checkpoint and leave."""

    def __init__(self) -> None:
        text = os.environ.get(INTERVAL_VARIABLE) or "inf"
        try:
            interval = float(text)
        except ValueError:
            interval = math.nan
        if not interval > 0:
            raise BadInput(f"{INTERVAL_VARIABLE} is {text!r}, not a number of seconds above 0")
        self.deadline = time.monotonic() + interval
        self.terminated = False
        signal.signal(signal.SIGTERM, self._terminate)

    def _terminate(self, *_: object) -> None:
        self.terminated = True

    def check(self, also_interval: bool = True) -> None:
        if self.terminated:
            raise CheckpointNow("SIGTERM")
        if also_interval and time.monotonic() >= self.deadline:
            raise CheckpointNow(INTERVAL_VARIABLE)


@dataclass
class Progress:
    epoch: int = 0
    next_batch: int = 0
    loss_sum: float = 0.0
    correct: int = 0
    seen: int = 0
    resumed: int = 0
    seconds_before: float = 0.0
    history: list[dict[str, float]] = field(default_factory=list)

    def position(self) -> str:
        return f"{self.epoch} epochs and {self.next_batch} batches"


@dataclass
class Training:
    config: dict[str, Any]
    device: torch.device
    model: ResNet
    optimizer: torch.optim.Optimizer
    scheduler: torch.optim.lr_scheduler.LRScheduler
    progress: Progress = field(default_factory=Progress)
    started: float = field(default_factory=time.monotonic)

    def seconds(self) -> float:
        return self.progress.seconds_before + time.monotonic() - self.started


def new_training(options: argparse.Namespace, data: Data, device: torch.device) -> Training:
    names = ("width", "blocks", "epochs", "batch_size", "lr", "seed")
    config = {name: getattr(options, name) for name in names} | {"data_crc32": data.checksum}
    torch.manual_seed(options.seed)
    model = ResNet(options.width, options.blocks).to(device)
    settings = {"lr": options.lr, "momentum": 0.9, "weight_decay": 5e-4, "nesterov": True}
    optimizer = torch.optim.SGD(model.parameters(), **settings)
    batches = options.epochs * math.ceil(len(data.train.labels) / options.batch_size)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, batches)
    return Training(config, device, model, optimizer, scheduler)


def predict(training: Training, images: Tensor, labels: Tensor) -> tuple[Tensor, int]:
    # bfloat16 needs no loss scaling; a GPU before capability 8 would only emulate it.
    mixed = training.device.type == "cuda" and torch.cuda.get_device_capability()[0] >= 8
    with torch.autocast(training.device.type, torch.bfloat16, enabled=mixed):
        logits = training.model(normalise(images))
        loss = F.cross_entropy(logits, labels)
    return loss, int((logits.argmax(1) == labels).sum())


def train_batch(training: Training, images: Tensor, labels: Tensor) -> None:
    done = training.progress
    loss, correct = predict(training, augment(images), labels)
    if not math.isfinite(loss.item()):
        raise FloatingPointError(f"loss not finite in epoch {done.epoch + 1}; lower --lr")
    training.optimizer.zero_grad()
    torch.autograd.backward(loss)
    training.optimizer.step()
    training.scheduler.step()
    done.loss_sum += loss.item() * len(labels)
    done.correct += correct
    done.seen += len(labels)
    done.next_batch += 1


def train_epoch(training: Training, split: Split, stopper: Stopper) -> None:
    """Train what is left of the current epoch, whose order follows from seed and epoch alone."""
    config, done = training.config, training.progress
    generator = torch.Generator().manual_seed(config["seed"] * 1_000_003 + done.epoch)
    order = torch.randperm(len(split.labels), generator=generator)
    training.model.train()
    for chosen in torch.split(order, config["batch_size"])[done.next_batch :]:
        train_batch(training, split.images[chosen], split.labels[chosen])
        stopper.check()


def test(training: Training, split: Split, stopper: Stopper) -> tuple[float, float]:
    training.model.eval()
    loss_sum, correct_sum, count = 0.0, 0, len(split.labels)
    for first in range(0, count, 500):
        # Not at the interval: one that is shorter than the test would never get past it.
        stopper.check(also_interval=False)
        labels = split.labels[first : first + 500]
        with torch.no_grad():
            loss, correct = predict(training, split.images[first : first + 500], labels)
        loss_sum += loss.item() * len(labels)
        correct_sum += correct
    return loss_sum / count, correct_sum / count


def close_epoch(training: Training, test_loss: float, test_accuracy: float) -> None:
    done = training.progress
    row = {"train_loss": done.loss_sum / done.seen, "train_accuracy": done.correct / done.seen}
    row |= {"test_loss": test_loss, "test_accuracy": test_accuracy}
    done.epoch += 1
    done.next_batch, done.loss_sum, done.correct, done.seen = 0, 0.0, 0, 0
    done.history.append({"epoch": done.epoch, **row})
    values = " ".join(f"{name}={value:.4f}" for name, value in row.items())
    epochs, seconds = training.config["epochs"], f"{training.seconds():.1f}"
    print(f"epoch {done.epoch}/{epochs} {values} seconds={seconds}", flush=True)


def replace_file(path: Path, payload: bytes, keep_as: Path | None = None) -> None:
    """Write under a temporary name, then put in place, so that no reader sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp")
    with temporary.open("wb") as stream:
        stream.write(payload)
        stream.flush()
        os.fsync(stream.fileno())
    if keep_as and path.exists():
        os.replace(path, keep_as)
    os.replace(temporary, path)


def serialise(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def checkpoint_paths(folder: Path) -> tuple[Path, Path]:
    return folder / "checkpoint.pt", folder / "previous.pt"


def save_checkpoint(training: Training, folder: Path) -> None:
    progress = asdict(training.progress) | {"seconds_before": training.seconds()}
    state = {"config": training.config, "progress": progress, "rng": torch.get_rng_state()}
    for name in ("model", "optimizer", "scheduler"):
        state[name] = getattr(training, name).state_dict()
    current, previous = checkpoint_paths(folder)
    replace_file(current, serialise(state), keep_as=previous)


def restore(training: Training, path: Path) -> None:
    state = torch.load(path, map_location="cpu", weights_only=True)
    before, now = state["config"], training.config
    if changed := [f"{name} was {before[name]}" for name in now if before[name] != now[name]]:
        hint = "use --no-resume or another --checkpoint-dir"
        raise BadInput(f"{path} is of another run ({', '.join(changed)}); {hint}")
    for name in ("model", "optimizer", "scheduler"):
        getattr(training, name).load_state_dict(state[name])
    torch.set_rng_state(state["rng"])
    training.progress = Progress(**state["progress"])
    training.progress.resumed += 1


def load_checkpoint(options: argparse.Namespace, data: Data, device: torch.device) -> Training:
    """Continue from the newest checkpoint that can be read; without one, start anew."""
    damage = (OSError, RuntimeError, EOFError, ValueError, LookupError, TypeError)
    for path in filter(Path.exists, checkpoint_paths(options.checkpoint_dir)):
        training = new_training(options, data, device)
        try:
            restore(training, path)
        except (*damage, pickle.UnpicklingError) as error:
            print(f"{path}: damaged, not used ({type(error).__name__})", file=sys.stderr)
            continue
        print(f"resumed from {path} after {training.progress.position()}", flush=True)
        return training
    return new_training(options, data, device)


def write_results(training: Training, classes: list[str], options: argparse.Namespace) -> None:
    done, config = training.progress, training.config | {"classes": classes}
    weights = {name: value.cpu() for name, value in training.model.state_dict().items()}
    replace_file(options.output, serialise({"config": config, "state_dict": weights}))
    metrics: dict[str, Any] = {"resumed": done.resumed, "seconds": training.seconds()}
    metrics |= {"test_accuracy": done.history[-1]["test_accuracy"], "epochs": done.history}
    metrics["config"] = config
    replace_file(options.metrics, (json.dumps(metrics, indent=2) + "\n").encode())


def fit(training: Training, data: Data, options: argparse.Namespace, stopper: Stopper) -> None:
    while training.progress.epoch < options.epochs:
        train_epoch(training, data.train, stopper)
        close_epoch(training, *test(training, data.test, stopper))
        epoch = training.progress.epoch
        if epoch == options.epochs or epoch % options.checkpoint_every_epochs == 0:
            if options.checkpoint_exit and epoch < options.epochs:
                raise CheckpointNow("--checkpoint-exit")
            save_checkpoint(training, options.checkpoint_dir)


def parse_options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--data", type=Path, default=Path("cifar-10-binary.tar.gz"), help="the .tar or .tar.gz")
    add("--epochs", type=int, default=30)
    add("--batch-size", type=int, default=128)
    add("--lr", type=float, default=0.1, help="learning rate at the start of the cosine schedule")
    add("--width", type=int, default=16, help="channels in the first of the three stages")
    add("--blocks", type=int, default=3, help="residual blocks in each stage")
    add("--threads", type=int, help="CPU threads (default: as torch chooses)")
    add("--seed", type=int, default=0)
    add("--resume", action=argparse.BooleanOptionalAction, default=True, help="from a checkpoint")
    add("--checkpoint-dir", type=Path, default=Path("ckpt"))
    add("--checkpoint-every-epochs", type=int, default=1, metavar="N")
    add("--checkpoint-exit", action="store_true", help="exit 85 after each such checkpoint")
    add("--output", type=Path, default=Path("model.pt"), help="trained weights and settings")
    add("--metrics", type=Path, default=Path("metrics.json"))
    options = parser.parse_args(arguments)
    for name, value in vars(options).items():
        if type(value) in (int, float) and name != "seed" and not value > 0:
            parser.error(f"--{name.replace('_', '-')} must be above 0")
    return options


def run(options: argparse.Namespace) -> int:
    stopper = Stopper()
    if options.threads:
        torch.set_num_threads(options.threads)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = load_data(options.data, device)
    if not options.resume:
        for path in checkpoint_paths(options.checkpoint_dir):
            path.unlink(missing_ok=True)
    training = load_checkpoint(options, data, device)
    try:
        fit(training, data, options, stopper)
    except CheckpointNow as reason:
        save_checkpoint(training, options.checkpoint_dir)
        print(f"checkpoint after {training.progress.position()} ({reason}), exit 85", flush=True)
        return EXIT_CHECKPOINTED
    write_results(training, data.classes, options)
    return 0


def main(arguments: list[str] | None = None) -> int:
    try:
        return run(parse_options(arguments))
    except (BadInput, OSError, FloatingPointError) as error:
        print(f"train.py: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT if isinstance(error, BadInput) else EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
