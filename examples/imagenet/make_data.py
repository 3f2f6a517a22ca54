"""Make a learnable data set of ILSVRC2012_img_train.tar's shape: a tar file of one tar a class.

Each class has a shape and a colour of its own; place, size, brightness and background are random.
The same arguments give the same bytes, with the same version of Pillow; memory does not grow with
the data set.
"""

from __future__ import annotations

import argparse
import io
import math
import os
import random
import sys
import tarfile
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import BinaryIO, NamedTuple

from PIL import Image, ImageDraw

BLOCK, RECORD = 512, 20 * 512  # of a tar file: what members and the whole are padded to
FIRST_CLASS, LAST_CLASS = 1440764, 15075141  # the first and the last of ILSVRC2012's synsets
MOST_CLASSES = 10_000
GOLDEN = 0.6180339887498949  # multiples of it spread evenly over 0 to 1, however many there are
NOISE = 4  # pixels of a picture for each of its background's
LOT = 32  # images that a process makes at a time


class Look(NamedTuple):
    """What all images of a data set have in common."""

    seed: int
    side: int
    quality: int


def class_name(number: int, classes: int) -> str:
    """As the synsets of ImageNet are called, in rising order."""
    return f"n{FIRST_CLASS + number * ((LAST_CLASS - FIRST_CLASS) // max(classes, 1)):08d}"


def draw(number: int, image: int, look: Look) -> bytes:
    """One JPEG file: image `image` of class `number`."""
    # to be reproducible, not secret
    dice = random.Random(f"{look.seed} {number} {image}")  # noqa: S311
    side = look.side
    grain = side // NOISE
    noise = Image.frombytes("RGB", (grain, grain), dice.randbytes(3 * grain * grain))
    noise = Image.blend(noise, Image.new("RGB", noise.size, "gray"), 0.4)  # the shape stands out
    picture = noise.resize((side, side), Image.Resampling.BICUBIC)
    colour = _colour(number * GOLDEN % 1, dice.uniform(0.75, 1.0))
    size = side * dice.uniform(0.25, 0.4)
    centre = [side * dice.uniform(0.35, 0.65) for _ in range(2)]
    # stars of 3 to 8 rays, blunt and sharp: each looks like itself in a mirror
    rays, sharp = 3 + number % 6, (0.9, 0.45)[number // 6 % 2]
    turn = dice.uniform(0, math.tau)
    points = [
        (
            centre[0] + size * (1.0, sharp)[at % 2] * math.cos(turn + at * math.pi / rays),
            centre[1] + size * (1.0, sharp)[at % 2] * math.sin(turn + at * math.pi / rays),
        )
        for at in range(2 * rays)
    ]
    ImageDraw.Draw(picture).polygon(points, fill=colour)
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=look.quality)
    return buffer.getvalue()


def _colour(hue: float, value: float) -> tuple[int, int, int]:
    def channel(shift: float) -> int:
        place = abs((hue + shift) % 1 * 6 - 3) - 1
        return round(255 * value * (0.15 + 0.85 * min(1.0, max(0.0, place))))

    return channel(0.0), channel(2 / 3), channel(1 / 3)


def lot(number: int, images: range, look: Look) -> list[bytes]:
    return [draw(number, image, look) for image in images]


def lots(classes: int, distinct: int, look: Look, workers: int) -> Iterator[list[bytes]]:
    """The distinct images of each class, a few at a time, in their order."""
    wanted = iter(
        (number, range(first, min(first + LOT, distinct + 1)))
        for number in range(classes)
        for first in range(1, distinct + 1, LOT)
    )
    if workers < 2:
        for number, images in wanted:
            yield lot(number, images, look)
        return
    with ProcessPoolExecutor(workers) as hands:
        # no more are under way than the hands need: results wait in memory
        ahead: deque[Future[list[bytes]]] = deque()
        for number, images in wanted:
            ahead.append(hands.submit(lot, number, images, look))
            if len(ahead) > 2 * workers:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def header(name: str, size: int) -> bytes:
    """A new TarInfo has time, owner and mode fixed, which keeps the bytes the same."""
    info = tarfile.TarInfo(name)
    info.size = size
    return info.tobuf(tarfile.GNU_FORMAT)  # sizes beyond 8 GiB, too


def end(size: int) -> bytes:
    """What closes a tar file of so many bytes."""
    return bytes(2 * BLOCK + -(size + 2 * BLOCK) % RECORD)


def numbered(jpeg: bytes, number: int) -> bytes:
    """The same image with its number as a JPEG comment: no two members have the same bytes."""
    words = b"%d" % number
    return jpeg[:2] + b"\xff\xfe" + (len(words) + 2).to_bytes(2, "big") + words + jpeg[2:]


def write_class(file: BinaryIO, name: str, per_class: int, images: Iterator[bytes]) -> int:
    """One class tar at the file's place, `images` over and over; returns its size."""
    begin = file.tell()
    again: list[bytes] = []
    for number in range(1, per_class + 1):
        jpeg = next(images, None)
        if jpeg is None:
            jpeg = numbered(again[number % len(again)], number)
        elif len(again) < LOT:
            again.append(jpeg)
        file.write(header(f"{name}_{number}.JPEG", len(jpeg)) + jpeg + bytes(-len(jpeg) % BLOCK))
    file.write(end(file.tell() - begin))
    return file.tell() - begin


def write(path: Path, classes: int, per_class: int, distinct: int, look: Look, workers: int) -> int:
    """The whole tar file; returns its size."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp")
    with temporary.open("wb", buffering=1 << 20) as file:
        made = lots(classes, distinct, look, workers)
        each_class = -(-distinct // LOT)
        for number in range(classes):
            name, place = class_name(number, classes), file.tell()
            file.write(bytes(BLOCK))  # the header needs the size, which comes with the images
            images = (jpeg for _ in range(each_class) for jpeg in next(made))
            size = write_class(file, name, per_class, images)
            file.seek(place)
            file.write(header(f"{name}.tar", size))
            file.seek(0, os.SEEK_END)
            file.write(bytes(-size % BLOCK))
        file.write(end(file.tell()))
        whole = file.tell()
    os.replace(temporary, path)
    return whole


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--output", type=Path, default=Path("train.tar"))
    add("--classes", type=int, default=10)
    add("--per-class", type=int, default=200, help="images; ILSVRC2012 has up to 1300")
    add("--side", type=int, default=64, help="pixels; 500 makes files of 80 kB")
    add("--quality", type=int, default=90, help="of the JPEG files, 1 to 95")
    add("--distinct", type=int, help="different pictures a class, which then repeat: faster")
    add("--seed", type=int, default=0)
    add("--workers", type=int, default=os.cpu_count(), help="processes")
    options = parser.parse_args(arguments)
    distinct = min(options.distinct or options.per_class, options.per_class)
    for name in ("classes", "per_class", "distinct"):
        if (getattr(options, name) or 1) < 1:
            parser.error(f"--{name.replace('_', '-')} must be above 0")
    if options.side < NOISE:
        parser.error(f"--side must be {NOISE} or more")
    if options.classes > MOST_CLASSES:
        parser.error(f"--classes: at most {MOST_CLASSES}")
    look = Look(options.seed, options.side, options.quality)
    size = write(
        options.output, options.classes, options.per_class, distinct, look, options.workers
    )
    print(f"{options.output}: {options.classes * options.per_class} images in {size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
