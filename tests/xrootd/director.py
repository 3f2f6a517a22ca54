"""The director of the house, as a process of its own: it runs until its standard input ends."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.lab import Identity
from tests.node.transfer.federation import Registry


def main(folder: str, origin: str, cache: str) -> None:
    identity = Identity(Path(folder, "good.pem"), Path(folder, "good.key"))
    places = [[f"https://127.0.0.1:{port}"] for port in (cache, origin)]
    with Registry("/lab", *places, tls=identity) as director:
        print(f"{director.address[0]}:{director.address[1]}", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
