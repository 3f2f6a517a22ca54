"""What it costs to keep a pool's event log: events a second, and how small they become.

    python benchmarks/collect.py [--size MB] [--folder FOLDER]

Makes a log of a pool from the real logs in tests/events/logs (see made_logs.py), stores it as it
is and anonymised, each in a process of its own, and reads it back.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from made_logs import make_log
from measure import measure
from stories import POOL_MIX

READ = """
import sys
from headway.collect import read_collected
print(len(read_collected(sys.argv[1])))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description="What it costs to keep a pool's event log.")
    parser.add_argument("--size", type=float, default=200.0, help="megabytes")
    parser.add_argument("--folder", type=Path, help="where the log is made; a temporary one if not")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        made = make_log(folder / "EventLog", size=int(arguments.size * 1e6), mix=POOL_MIX)
        print(f"{made.size / 1e6:.1f} MB, {made.events:,} events of {made.jobs:,} jobs")
        for kind, options in (("plain", []), ("anonymised", ["--anonymise"])):
            store = folder / kind
            words = ["collect", str(folder / "EventLog"), "--into", str(store), *options]
            cost = measure([sys.executable, "-m", "headway", *words])
            size = sum(path.stat().st_size for path in store.rglob("*.parquet"))
            print(
                f"{kind}: {cost.wall:.1f} s ({cost.cpu:.1f} s of CPU),"
                f" {made.size / 1e6 / cost.wall:.1f} MB/s, {made.events / cost.wall:,.0f} events/s,"
                f" {cost.memory / 1e6:.0f} MB of memory, {made.size / size:.1f} times smaller"
            )
            back = measure([sys.executable, "-c", READ, str(store)])
            if int(back.outputs[0]) != made.events:
                raise SystemExit(f"{kind}: {back.outputs[0].strip()} events came back")
            print(f"{kind}, read back: {back.wall:.1f} s ({back.cpu:.1f} s of CPU)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
