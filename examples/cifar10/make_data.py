"""Make a small learnable data set in the format of cifar-10-binary.tar.gz.

Ten shapes and textures in random colours, sizes and places under noise. The same seed gives the
same tar, byte for byte; only the standard library is needed.
"""

import argparse
import gzip
import io
import os
import random
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

SIDE = 32
TRAIN_BATCHES = 5
FOLDER = "cifar-10-batches-bin"

Shape = Callable[[int, int, int], bool]

# Each tells whether the point (x, y), seen from the figure's centre, belongs to a figure of this
# size. All look alike in a mirror, since training flips images; all are integer arithmetic, since
# floating point may differ from machine to machine.
SHAPES: dict[str, Shape] = {
    "disc": lambda x, y, size: x * x + y * y <= size * size,
    "square": lambda x, y, size: max(abs(x), abs(y)) <= size,
    "diamond": lambda x, y, size: abs(x) + abs(y) <= size + 2,
    "cross": lambda x, y, size: min(abs(x), abs(y)) <= 1 and max(abs(x), abs(y)) <= size,
    "ring": lambda x, y, size: (size - 3) ** 2 <= x * x + y * y <= size * size,
    "frame": lambda x, y, size: size - 2 <= max(abs(x), abs(y)) <= size,
    "rows": lambda x, y, size: (y // (size // 3)) % 2 == 0,
    "columns": lambda x, y, size: (x // (size // 3)) % 2 == 0,
    "checks": lambda x, y, size: (x // (size // 3) + y // (size // 3)) % 2 == 0,
    "triangle": lambda x, y, size: 2 * abs(x) - size <= y <= size,
}


def draw(shape: Shape, rng: random.Random) -> bytes:
    """One image: the red, green and blue planes of 32 x 32 pixels."""
    size = rng.randint(6, 10)
    left, top = rng.randint(10, 21), rng.randint(10, 21)
    inside = [shape(x - left, y - top, size) for y in range(SIDE) for x in range(SIDE)]
    planes = bytearray()
    for _ in range(3):
        background = rng.randint(30, 130)
        figure = background + rng.randint(30, 110)
        noise = rng.randbytes(SIDE * SIDE)
        planes += bytes(
            min(255, max(0, (figure if hit else background) + (grain - 128) // 2))
            for hit, grain in zip(inside, noise, strict=True)
        )
    return bytes(planes)


def batch(per_class: int, rng: random.Random) -> bytes:
    labels = [label for label in range(len(SHAPES)) for _ in range(per_class)]
    rng.shuffle(labels)
    shapes = list(SHAPES.values())
    return b"".join(bytes([label]) + draw(shapes[label], rng) for label in labels)


def members(per_class: int, seed: int) -> dict[str, bytes]:
    rng = random.Random(seed)  # noqa: S311 (to be reproducible, not secret)
    found = {"batches.meta.txt": ("\n".join(SHAPES) + "\n\n").encode()}
    for number in range(1, TRAIN_BATCHES + 1):
        found[f"data_batch_{number}.bin"] = batch(per_class // TRAIN_BATCHES, rng)
    found["test_batch.bin"] = batch(per_class // TRAIN_BATCHES, rng)
    return found


def tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, payload in files.items():
            # A new TarInfo has time, owner and mode fixed, which keeps the bytes the same.
            info = tarfile.TarInfo(f"{FOLDER}/{name}")
            info.size = len(payload)
            archive.addfile(info, io.BytesIO(payload))
    return buffer.getvalue()


def write(path: Path, payload: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_bytes(payload)
    os.replace(temporary, path)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--output", type=Path, default=Path("shapes.tar.gz"), help=".tar or .tar.gz to write")
    add("--per-class", type=int, default=200, help="training images; a fifth as many for the test")
    add("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if options.per_class < TRAIN_BATCHES or options.per_class % TRAIN_BATCHES:
        parser.error(f"--per-class must be a multiple of {TRAIN_BATCHES}")
    if not options.output.name.endswith((".tar", ".tar.gz")):
        parser.error("--output must end in .tar or .tar.gz")
    payload = tar(members(options.per_class, options.seed))
    if options.output.name.endswith(".gz"):
        payload = gzip.compress(payload, compresslevel=6, mtime=0)
    write(options.output, payload)
    print(f"{options.output}: {len(payload)} bytes", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
