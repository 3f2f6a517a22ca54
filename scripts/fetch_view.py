"""Draw docs/images/fetch.svg: the meter of a real `headway fetch`, caught midway.

    python scripts/fetch_view.py [FILE.svg]

One object has four sources in the fault lab (tests/lab): two are well, one fell silent after a few
megabytes and one refuses. What is drawn is what the meter shows on a terminal at that moment.
"""

from __future__ import annotations

import io
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from rich.console import Console  # noqa: E402
from scripts.live_view import THEME  # noqa: E402
from tests.lab import Made, Rate, Server, Silent, Status  # noqa: E402

import headway  # noqa: E402
from headway.cli.fetch import LiveMeter  # noqa: E402
from headway.errors import Stopped  # noqa: E402

TARGET = ROOT / "docs" / "images" / "fetch.svg"
WIDTH, HEIGHT = 112, 8
CONTENT = Made(120 << 20, seed=1)
SHARE = 0.3  # of the object, from which on the picture may be taken


def main(target: Path) -> None:
    console = Console(
        record=True, width=WIDTH, height=HEIGHT, force_terminal=True, file=io.StringIO()
    )
    meter = LiveMeter("train.tar", 1800.0, console)
    meter.close()  # it only draws here
    held = {"/train.tar": CONTENT}
    taken: list[headway.Snapshot] = []

    def saw(snapshot: headway.Snapshot) -> None:
        meter.take(snapshot, time.monotonic())
        states = {source.state for source in snapshot.sources}
        whole = snapshot.bytes == snapshot.total
        if snapshot.bytes > SHARE * CONTENT.size and "benched" in states and not whole:
            taken.append(snapshot)

    with (
        Server(held, [Silent(after=4 << 20, scope="server")]) as silent,
        Server(held, [Rate(7e6)]) as one,
        Server(held, [Status(403)]) as closed,
        Server(held, [Rate(4e6)]) as two,
        tempfile.TemporaryDirectory(prefix="headway-fetch-view-") as folder,
    ):
        urls = [each.url("/train.tar") for each in (closed, silent, one, two)]
        try:
            headway.fetch(urls, folder, progress=saw, should_stop=lambda: bool(taken))
        except Stopped:
            console.print(meter.picture(taken[0], time.monotonic()))
    if not taken:
        raise SystemExit("there was nothing to see")
    text = console.export_svg(
        title="headway fetch URL --mirror URL --mirror URL --mirror URL", theme=THEME
    )
    target.write_text(text, encoding="utf-8")
    print(f"{target}: {len(text):,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET)
