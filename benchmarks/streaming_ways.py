"""The ways of feeding a trainer that benchmarks/streaming.py compares; each runs as a process.

    python streaming_ways.py prepare|run TASK.json

`prepare` is what must be done once, before anything can be read or served: at home, on the whole
tar file. `run` is one pass over all images, in a node's folder. Both print what they cost as JSON.
All share decoding, batch size and number of workers; imports are counted for none.
"""

from __future__ import annotations

import gc
import importlib
import importlib.machinery
import io
import json
import math
import multiprocessing
import os
import random
import resource
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch
import torch.utils.data
from PIL import Image
from torch.utils.data.dataloader import default_collate

SIDE = 224
FIRST = 10  # batches whose classes are counted
SHARD = 1000  # images of a webdataset shard
# mosaicml-streaming, where data arrives: bytes of a shard, and images that it shuffles over. With
# its defaults, which are best where all is here, the first batch would need all shards.
ARRIVING_SHARD, ARRIVING_SHUFFLE = 4 << 20, 1000
NAME = "train.tar"


@dataclass
class Task:
    way: str
    tar: Path  # the whole tar file, at home
    made: Path  # what `prepare` makes of it
    node: Path  # where `run` may write
    url: str | None  # of the served folder of `made`, or of the tar file's own; None: all is here
    decode: bool
    images: int
    batch: int
    workers: int
    seed: int
    window: int = 0  # bytes of disk for an object that is not kept
    epochs: int = 1

    def __post_init__(self) -> None:
        self.tar, self.made, self.node = Path(self.tar), Path(self.made), Path(self.node)


def crop(data: bytes) -> torch.Tensor:
    return cropped(io.BytesIO(data))


def cropped(file: IO[bytes]) -> torch.Tensor:
    """A JPEG as the study's training has it: a random part of it, 224 pixels square."""
    picture = Image.open(file).convert("RGB")
    area = picture.width * picture.height * random.uniform(0.25, 1.0)
    side = min(int(math.sqrt(area)), picture.width, picture.height)
    left, top = (random.randint(0, most - side) for most in picture.size)
    box = (left, top, left + side, top + side)
    made = picture.resize((SIDE, SIDE), Image.Resampling.BILINEAR, box=box)
    return torch.frombuffer(bytearray(made.tobytes()), dtype=torch.uint8).view(SIDE, SIDE, 3)


def collated(samples: list[Any]) -> Any:
    """Pictures become one tensor, as usual; raw bytes stay a list."""
    if isinstance(samples[0][0], bytes):
        return tuple(zip(*samples, strict=True))
    return default_collate(samples)


def members(tar: Path) -> list[tuple[str, str, int, int]]:
    """Class, name, place and size of each image of a nested tar file."""
    found = []
    with tarfile.open(tar, "r:") as outer, tar.open("rb") as file:
        for each in outer:
            file.seek(each.offset_data)
            with tarfile.open(fileobj=file, mode="r:") as inner:
                found += [
                    (each.name.removesuffix(".tar"), one.name, one.offset_data, one.size)
                    for one in inner
                ]
    return found


def mixed(tar: Path, seed: int) -> Iterator[tuple[str, int, bytes]]:
    """Every image in random order: shards of one class each would train badly."""
    found = members(tar)
    labels = {name: label for label, name in enumerate(sorted({each[0] for each in found}))}
    random.Random(seed).shuffle(found)
    with tar.open("rb") as file:
        for class_name, name, place, size in found:
            yield name, labels[class_name], os.pread(file.fileno(), size, place)


class Folder:
    """Extract, then read files as torchvision's ImageFolder does."""

    def imports(self) -> None:
        pass

    def prepare(self, task: Task) -> None:
        if task.url is None:
            self._extract(task.tar, task.made, task.workers)

    def batches(self, task: Task) -> Iterable[Any]:
        root = task.made
        if task.url is not None:
            tar, root = task.node / NAME, task.node / "extracted"
            subprocess.run(["curl", "-sSf", "-o", tar, task.url], check=True)
            root.mkdir()
            self._extract(tar, root, task.workers)
        return torch.utils.data.DataLoader(
            _Files(root, task.decode),
            batch_size=task.batch,
            shuffle=True,
            num_workers=task.workers,
            collate_fn=collated,
        )

    def _extract(self, tar: Path, root: Path, processes: int) -> None:
        subprocess.run(["tar", "-xf", tar, "-C", root], check=True)
        one = 'mkdir "${0%.tar}" && tar -xf "$0" -C "${0%.tar}" && rm "$0"'
        names = "\0".join(str(path) for path in sorted(root.glob("*.tar")))
        command = ["xargs", "-0", "-n1", f"-P{processes}", "sh", "-c", one]
        subprocess.run(command, input=names.encode(), check=True)


class _Files(torch.utils.data.Dataset[Any]):
    def __init__(self, root: Path, decode: bool) -> None:
        names = sorted(each.name for each in os.scandir(root))
        self._files = [
            (file.path, label)
            for label, name in enumerate(names)
            for file in sorted(os.scandir(root / name), key=lambda file: file.name)
        ]
        self._decode = decode

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        path, label = self._files[number]
        with open(path, "rb") as file:
            return (cropped(file) if self._decode else file.read()), label


class WebDataset:
    """Repacked into shards, which it reads one after the other, here or by curl."""

    def imports(self) -> None:
        self._library: Any = importlib.import_module("webdataset")

    def prepare(self, task: Task) -> None:
        with self._library.ShardWriter(
            str(task.made / "%04d.tar"), maxcount=min(SHARD, task.images // 4), verbose=0
        ) as writer:
            for number, (_, label, data) in enumerate(mixed(task.tar, task.seed)):
                writer.write({"__key__": f"{number:08d}", "jpg": data, "cls": label})

    def batches(self, task: Task) -> Iterable[Any]:
        names = sorted(path.name for path in task.made.glob("*.tar"))
        place = task.url or str(task.made)
        data = self._library.WebDataset(
            [f"{place}/{name}" for name in names], shardshuffle=len(names), seed=task.seed
        )
        decode = crop if task.decode else bytes
        each = data.shuffle(1000, initial=100).to_tuple("jpg", "cls").map_tuple(decode, int)
        batches = each.batched(task.batch, collation_fn=collated)
        loader: Iterable[Any] = self._library.WebLoader(
            batches, batch_size=None, num_workers=task.workers
        )
        return loader


class Mosaic:
    """Converted to MDS shards; by HTTP with a downloader of a few lines, for it has none."""

    def imports(self) -> None:
        try:
            importlib.import_module("torchvision")
        except (ImportError, RuntimeError):
            _stand_in_for_torchvision()
        self._library: Any = importlib.import_module("streaming")

    def prepare(self, task: Task) -> None:
        columns = {"image": "bytes", "label": "int"}
        size: dict[str, Any] = {} if task.url is None else {"size_limit": ARRIVING_SHARD}
        with self._library.MDSWriter(out=str(task.made), columns=columns, **size) as writer:
            for _, label, data in mixed(task.tar, task.seed):
                writer.write({"image": data, "label": label})

    def batches(self, task: Task) -> Iterable[Any]:
        download = self._library.base.storage.download
        decode = crop if task.decode else None

        class Images(self._library.StreamingDataset):  # type: ignore[name-defined]
            def __getitem__(self, at: Any) -> Any:
                found = super().__getitem__(at)
                image = found["image"]
                return (image if decode is None else decode(image)), found["label"]

        class Http(download.CloudDownloader):  # type: ignore[name-defined]
            @staticmethod
            def _client_identifier() -> str:
                return "http"

            def _validate_remote_path(self, remote: str) -> None:
                pass

            def clean_up(self) -> None:
                pass

            def _download_file_impl(self, remote: str, local: str, timeout: float) -> None:
                import urllib.request

                answer = urllib.request.urlopen(remote, timeout=timeout)
                with answer, open(f"{local}.tmp", "wb") as file:
                    shutil.copyfileobj(answer, file, 1 << 18)
                os.rename(f"{local}.tmp", local)

        download.DOWNLOADER_MAPPINGS["http"] = Http
        self._library.base.util.clean_stale_shared_memory()
        place: dict[str, Any] = {"local": str(task.made)}
        if task.url is not None:
            place = {"remote": task.url, "local": str(task.node / "mds")}
            place["shuffle_block_size"] = ARRIVING_SHUFFLE
        data = Images(**place, shuffle=True, shuffle_seed=task.seed, batch_size=task.batch)
        return torch.utils.data.DataLoader(
            data, batch_size=task.batch, num_workers=task.workers, collate_fn=collated
        )


def _stand_in_for_torchvision() -> None:
    """mosaicml-streaming imports two names of it, for data sets of its own that are not used here.

    With a torch that is built for CPUs alone, PyPI's torchvision cannot be imported.
    """
    import types

    names = ("torchvision", "torchvision.datasets", "torchvision.transforms")
    for name in (*names, "torchvision.transforms.functional"):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__spec__ = importlib.machinery.ModuleSpec(name, None)
    sys.modules["torchvision.datasets"].VisionDataset = object  # type: ignore[attr-defined]
    functional = sys.modules["torchvision.transforms.functional"]
    functional.to_tensor = None  # type: ignore[attr-defined]


class Headway:
    """The tar file as it is; while it arrives, with its manifest, from a fetcher as the agent's."""

    def __init__(self) -> None:
        self.said: dict[str, Any] = {}

    def imports(self) -> None:
        import headway.node.inputs
        import headway.node.stream.feed
        import headway.torch  # noqa: F401

    def prepare(self, task: Task) -> None:
        if task.url is not None:
            from headway.node.transfer.manifest import publish

            os.link(task.tar, task.made / NAME)  # it is published where it lies
            publish(str(task.made / NAME))

    def batches(self, task: Task) -> Iterable[Any]:
        from headway.torch import Loader, TarDataset

        path = str(task.tar)
        feed = None
        if task.url is not None:
            os.chdir(task.node)
            path, feed = NAME, _started(task)
        data = TarDataset(path, decode=crop if task.decode else None)
        loader = Loader(data, task.batch, seed=task.seed, workers=task.workers, collate=collated)
        while loader.epoch < task.epochs:
            yield from loader
        del loader, data
        gc.collect()
        if feed is not None:
            feed.stop()  # not closed: what it leaves is still to be measured
            said = feed.record(0.0)
            keys = ("window", "each_epoch", "refetched", "waited")
            self.said = {key: said[key] for key in keys if key in said}


def _started(task: Task) -> Any:
    """What the agent does with an input that streams."""
    from headway.node.inputs import pinned
    from headway.node.plan import FORMAT, Plan
    from headway.node.stream.feed import Feed
    from headway.node.transfer.manifest import SUFFIX, digest_of

    pin = digest_of((task.made / f"{NAME}{SUFFIX}").read_bytes())
    wish: dict[str, Any] = {
        "path": NAME,
        "urls": [f"{task.url}/{NAME}"],
        "manifest": pin,
        "mode": "stream",
    }
    if task.window:
        wish.update(keep=False, window=task.window)
    plan = Plan({"format": FORMAT, "command": ["true"], "inputs": [wish]}, {})
    manifest = pinned(plan.inputs[0], lambda: False, keep=True)
    feed = Feed(plan.inputs[0], manifest, os.open("log", os.O_WRONLY | os.O_CREAT, 0o600))
    feed.start()
    while not feed.begun and not feed.over:
        feed.tick(time.monotonic())
        time.sleep(0.005)
    if feed.failure is not None:
        raise feed.failure
    return feed


WAYS: dict[str, Any] = {
    "extract, folder": Folder,
    "webdataset": WebDataset,
    "mosaicml-streaming": Mosaic,
    "headway": Headway,
}


def run(way: Any, task: Task) -> dict[str, Any]:
    """One pass; every image must come, and each class as often as the others."""
    begin, cpu = time.monotonic(), _cpu()
    first = 0.0
    images = size = 0
    classes: set[int] = set()
    labels: dict[int, int] = {}
    for number, (batch, told) in enumerate(way.batches(task)):
        if not number:
            first = time.monotonic()
        images += len(batch)
        for label in map(int, told):
            labels[label] = labels.get(label, 0) + 1
        if number < FIRST:
            classes.update(map(int, told))
        if not task.decode:
            size += sum(map(len, batch))
    end = time.monotonic()
    gc.collect()
    left = multiprocessing.active_children()
    if left:
        raise SystemExit(f"workers are left, and their CPU time is not known: {left}")
    if images != task.images * task.epochs or len(set(labels.values())) != 1:
        raise SystemExit(f"{images} images came, of {task.images} × {task.epochs}: {labels}")
    return {
        "begin": begin,
        "first": first,
        "end": end,
        "cpu": _cpu() - cpu,
        "classes": len(classes),
        "bytes": size,
        **getattr(way, "said", {}),
    }


def prepare(way: Any, task: Task) -> dict[str, Any]:
    begin, cpu = time.monotonic(), _cpu()
    way.prepare(task)
    return {"seconds": time.monotonic() - begin, "cpu": _cpu() - cpu}


def _cpu() -> float:
    """Seconds of this process, and of all below it that have ended."""
    uses = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(use.ru_utime + use.ru_stime for use in uses)


def main(step: str, path: str) -> None:
    sys.path.pop(0)  # or else streaming.py beside this file hides mosaicml's package of that name
    task = Task(**json.loads(Path(path).read_text()))
    way = WAYS[task.way]()
    way.imports()
    if step != "imports":
        json.dump((prepare if step == "prepare" else run)(way, task), sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
