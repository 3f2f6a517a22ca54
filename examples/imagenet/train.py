"""Train ResNet50 on ImageNet out of its tar file, whole or still arriving, and survive eviction."""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import math
import os
import pickle
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

# On shared cores, threads that spin while they wait take the time of those that work.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

# On a worker both come with the job; elsewhere `pip install headway`.
from headway.checkpoint import Checkpoint, CheckpointError, trace
from headway.torch import DataError, Loader, NodeError, TarDataset, TransferError

EXIT_FAILED, EXIT_BAD_INPUT = 1, 2
NO_DATA = (TransferError, NodeError)
MODEL, METRICS = Path("imagenet_resnet50.pt"), Path("metrics.json")
PIXEL_MEAN, PIXEL_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BLOCKS, EXPANSION = (3, 4, 6, 3), 4
TOP = 5
MAY_BE_ZERO = ("seed", "workers", "momentum")
TOLD = 50  # batches from one line to the next


class BadInput(Exception):
    """What the user gave cannot be used: one line and exit code 2."""


class Bottleneck(nn.Module):
    """A block of ResNet50, its stride in the 3 x 3 convolution."""

    def __init__(self, inputs: int, inner: int, stride: int) -> None:
        super().__init__()
        outputs = inner * EXPANSION
        self.conv1 = nn.Conv2d(inputs, inner, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        return F.relu(self.bn3(self.conv3(x)) + shortcut)


class ResNet50(nn.Module):
    """He et al. 2015; layers are called as in torchvision, so that its weights fit."""

    def __init__(self, classes: int, width: int = 64) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        channels = width
        for stage, blocks in enumerate(BLOCKS):
            inner, made = width << stage, []
            for block in range(blocks):
                made.append(Bottleneck(channels, inner, 2 if stage and not block else 1))
                channels = inner * EXPANSION
            self.add_module(f"layer{stage + 1}", nn.Sequential(*made))
        self.fc = nn.Linear(channels, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if isinstance(module, Bottleneck):
                nn.init.zeros_(module.bn3.weight)  # each block begins as its shortcut

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, padding=1)
        for stage in range(len(BLOCKS)):
            x = self.get_submodule(f"layer{stage + 1}")(x)
        logits: Tensor = self.fc(x.mean(dim=(2, 3)))
        return logits


def load_weights(model: ResNet50, path: Path) -> None:
    """Begin with these; a last layer for another number of classes is left as it is."""
    damage = (OSError, EOFError, ValueError, LookupError, AttributeError, TypeError, RuntimeError)
    try:
        weights = torch.load(path, map_location="cpu", weights_only=True)
        weights = weights.get("state_dict", weights)  # of a model that was written here
        if weights["fc.weight"].shape != model.fc.weight.shape:
            weights = {**weights, "fc.weight": model.fc.weight, "fc.bias": model.fc.bias}
        model.load_state_dict(weights)
    except (*damage, pickle.UnpicklingError) as error:
        raise BadInput(f"{path}: no weights of this model ({first_line(error)})") from error


def decode(data: bytes, side: int) -> Tensor:
    """One image as `side` x `side` pixels, channels last: what a worker makes of a sample."""
    with Image.open(io.BytesIO(data)) as image:
        # ILSVRC2012 has grey and CMYK images, too, and a PNG
        resized = image.convert("RGB").resize((side, side), Image.Resampling.BILINEAR)
    return torch.frombuffer(bytearray(resized.tobytes()), dtype=torch.uint8).view(side, side, 3)


def flips(seed: int, epoch: int, samples: Sequence[int]) -> Tensor:
    """Which samples are mirrored in this epoch, whatever batch they are in."""
    coins = (
        hashlib.blake2b(b"%d %d %d" % (seed, epoch, sample), digest_size=1).digest()[0] & 1
        for sample in samples
    )
    return torch.tensor(list(coins), dtype=torch.bool)


def prepare(images: Tensor, device: torch.device, mirrored: Tensor | None = None) -> Tensor:
    """Decoded images as the model takes them; on a GPU this is its work, not the workers'."""
    images = images.to(device, non_blocking=True).permute(0, 3, 1, 2)
    if mirrored is not None:
        images = torch.where(mirrored.to(device)[:, None, None, None], images.flip(3), images)
    mean, std = torch.tensor([PIXEL_MEAN, PIXEL_STD], device=device)[..., None, None]
    scaled: Tensor = (images / 255 - mean) / std
    return scaled


class Score:
    """Mean loss, top-1 and top-5 over batches; it can be saved."""

    def __init__(self, device: torch.device) -> None:
        # on the GPU, which then need not be waited for at each step
        self.sums = torch.zeros(4, dtype=torch.float64, device=device)

    def add(self, loss: Tensor, logits: Tensor, labels: Tensor) -> None:
        count = len(labels)
        best = logits.topk(min(TOP, logits.shape[1])).indices == labels[:, None]
        new = [loss.detach() * count, best[:, 0].sum(), best.sum(), torch.tensor(count)]
        self.sums += torch.stack([each.double().to(self.sums.device) for each in new])

    def take(self) -> dict[str, float]:
        """The means so far; begins anew."""
        means = self.means()
        self.sums.zero_()
        return means

    def means(self) -> dict[str, float]:
        loss, first, five, count = self.sums.tolist()
        return {"loss": loss / count, "top1": first / count, "top5": five / count}

    def state_dict(self) -> dict[str, Tensor]:
        return {"sums": self.sums}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.sums.copy_(state["sums"])


class Training:
    """All that a training consists of; each part is in its checkpoint."""

    def __init__(self, options: argparse.Namespace, device: torch.device) -> None:
        self.options, self.device = options, device
        self.data = TarDataset(
            options.data,
            decode=partial(decode, side=options.image_size),
            only=others(options.held_out),
        )
        held = TarDataset(
            options.data,
            decode=partial(decode, side=options.image_size),
            only=f"*{options.held_out}.JPEG",
            classes=self.data.classes,
        )
        settings = {"workers": options.workers, "pin_memory": device.type == "cuda"}
        self.loader = Loader(self.data, options.batch_size, seed=options.seed, **settings)
        self.held = Loader(held, options.batch_size, shuffle=False, **settings)
        torch.manual_seed(options.seed)
        self.model = ResNet50(len(self.data.classes), options.width)
        if options.weights:
            load_weights(self.model, options.weights)
        self.model.to(device, memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=options.lr, momentum=options.momentum
        )
        self.mixed = device.type == "cuda"
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.mixed)
        self.learnt, self.tested = Score(device), Score(device)
        self.history: list[dict[str, Any]] = []
        names = ("batch_size", "lr", "momentum", "seed", "image_size", "width", "held_out")
        self.config = {name: getattr(options, name) for name in names}
        self.config["classes"] = len(self.data.classes)
        self.checkpoint = Checkpoint("ckpt", every=60 * options.checkpoint_minutes)

    def parts(self) -> dict[str, Any]:
        names = ("model", "optimizer", "scaler", "loader", "held", "learnt", "tested")
        return {name: getattr(self, name) for name in names}

    def state(self) -> dict[str, Any]:
        return {"config": self.config, "history": self.history, **self.parts()}

    def resume(self) -> None:
        """Go on from the newest checkpoint, if there is one."""
        try:
            kept = self.checkpoint.load(**self.parts())
        except RuntimeError as error:  # torch's, where the shapes are others
            words = f"ckpt is of another training ({first_line(error)}); move it away"
            raise BadInput(words) from error
        if kept is None:
            return
        before = kept["config"]
        if changed := [
            f"{name} was {before[name]}" for name in before if before[name] != self.config[name]
        ]:
            raise BadInput(f"ckpt is of another training ({', '.join(changed)}); move it away")
        self.history = kept["history"]
        place = f"sample {self.loader.position} of epoch {self.loader.epoch + 1}"
        print(f"going on at {place}", flush=True)

    def tick(self) -> None:
        """After each batch: save when it is time to, leave when the pool says so."""
        self.checkpoint.tick(**self.state())

    def fit(self) -> None:
        try:
            while self.held.epoch < self.options.epochs:
                if self.loader.epoch == self.held.epoch:
                    self.learn()
                self.test()
                self.close_epoch()
        except NO_DATA as error:  # no more data comes; what came is learnt from
            print(f"train.py: {error}", file=sys.stderr)
            self.checkpoint.leave(**self.state())

    def predict(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast(self.device.type, torch.float16, enabled=self.mixed):
            logits = self.model(images)
            return F.cross_entropy(logits, labels), logits

    def learn(self) -> None:
        """What is left of the epoch."""
        self.model.train()
        steps, begin, seen = len(self.loader), time.monotonic(), 0
        for images, labels in self.checkpoint.over(self.loader, self.state):
            epoch, samples = self.loader.epoch, self.loader.samples
            mirrored = flips(self.options.seed, epoch, samples)
            labels = labels.to(self.device, non_blocking=True)
            loss, logits = self.predict(prepare(images, self.device, mirrored), labels)
            self.optimizer.zero_grad()
            torch.autograd.backward(self.scaler.scale(loss))
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.learnt.add(loss, logits, labels)
            step = -(-self.loader.position // self.options.batch_size)
            trace(epoch=epoch, step=step, loss=loss, samples=samples)
            seen += len(labels)
            if step % TOLD == 0:
                speed = seen / (time.monotonic() - begin)
                self.tell(f"epoch {epoch + 1} batch {step}/{steps}", self.learnt, speed)
            self.tick()

    def test(self) -> None:
        """Measure the model on the images that it does not learn from."""
        self.model.eval()
        for images, labels in self.checkpoint.over(self.held, self.state):
            labels = labels.to(self.device, non_blocking=True)
            with torch.no_grad():
                loss, logits = self.predict(prepare(images, self.device), labels)
            self.tested.add(loss, logits, labels)
            self.tick()

    def tell(self, where: str, score: Score, speed: float) -> None:
        means = score.means()
        if not math.isfinite(means["loss"]):
            raise FloatingPointError(f"{where}: the loss is not finite; lower --lr")
        values = " ".join(f"{name}={value:.4f}" for name, value in means.items())
        print(f"{where} {values} images/s={speed:.0f}", flush=True)

    def close_epoch(self) -> None:
        learnt, tested = self.learnt.take(), self.tested.take()
        if not math.isfinite(learnt["loss"]):
            raise FloatingPointError(f"epoch {self.held.epoch}: the loss is not finite; lower --lr")
        row = {"epoch": self.held.epoch, "train_loss": learnt["loss"], "train_top1": learnt["top1"]}
        self.history.append({**row, **tested})
        values = " ".join(f"{name}={value:.4f}" for name, value in tested.items())
        waited = f"waited {self.loader.waited:.0f} s for data"
        print(f"epoch {self.held.epoch} held-out {values}, {waited}", flush=True)

    def write_results(self) -> None:
        classes = list(self.data.classes)
        if self.options.save_model:
            weights = {name: value.cpu() for name, value in self.model.state_dict().items()}
            buffer = io.BytesIO()
            torch.save({"config": self.config, "classes": classes, "state_dict": weights}, buffer)
            replace_file(MODEL, buffer.getvalue())
        metrics = {"config": self.config, "epochs": self.history}
        replace_file(METRICS, (json.dumps(metrics, indent=2) + "\n").encode())


def others(ending: str) -> list[str]:
    """Patterns of all images whose names do not end so."""
    return [f"*[!{letter}]{ending[at + 1 :]}.JPEG" for at, letter in enumerate(ending)]


def first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(":")


def replace_file(path: Path, payload: bytes) -> None:
    """Write under a temporary name, then put in place, so that no reader sees half a file."""
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_bytes(payload)
    os.replace(temporary, path)


def parse_options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--data", default="ILSVRC2012_img_train.tar", help="the tar file of class tars")
    add("--weights", type=Path, help="begin with these, such as torchvision's of ResNet50")
    add("--epochs", type=int, default=5)
    add("--batch-size", type=int, default=128)
    add("--lr", type=float, default=0.01)
    add("--momentum", type=float, default=0.9)
    add("--seed", type=int, default=0)
    add("--workers", type=int, default=0, help="processes that decode images")
    add("--image-size", type=int, default=224, metavar="PIXELS")
    add("--width", type=int, default=64, help="channels of the first layer; 64 makes ResNet50")
    add("--held-out", default="00", metavar="DIGITS", help="images ending so are for testing")
    add("--checkpoint-minutes", type=float, default=10)
    add("--threads", type=int, help="CPU threads (default: as torch chooses)")
    add("--save-model", action="store_true", help=f"write {MODEL}")
    options = parser.parse_args(arguments)
    for name, value in vars(options).items():
        if type(value) in (int, float) and name not in MAY_BE_ZERO and not value > 0:
            parser.error(f"--{name.replace('_', '-')} must be above 0")
    if not options.held_out.isdecimal():
        parser.error("--held-out takes digits, such as 0 for a tenth or 00 for a hundredth")
    return options


def main(arguments: list[str] | None = None) -> int:
    options = parse_options(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    try:
        training = Training(options, torch.device("cuda" if torch.cuda.is_available() else "cpu"))
        training.resume()
        training.fit()
        training.write_results()
    except (BadInput, DataError, CheckpointError, FloatingPointError, *NO_DATA) as error:
        print(f"train.py: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT if isinstance(error, (BadInput, DataError)) else EXIT_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
