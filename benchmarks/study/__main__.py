"""The study again: the same jobs, stock and with Headway, on a real HTCondor pool in small.

    python benchmarks/study --to FOLDER [--seed N]     one seed of everything
    python benchmarks/study --to FOLDER --short        12 jobs, every fault once, two runs
    python benchmarks/study --to FOLDER --result       only the table and the page, of what is there

Each run has a pool and a federation of its own, and meets the same weather. Needs root, as the
pool's tests do (tests/pool/README.md). README.md beside this file says what it shows, and what not.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:1] = [str(HERE.parent), str(HERE.parents[1])]

from study.data import DataSet  # noqa: E402
from study.figures import figures  # noqa: E402
from study.methods import try_methods  # noqa: E402
from study.runs import POOLS, WAYS, Way, run  # noqa: E402
from study.world import SHORT_SIZE, World, make_world, short_world  # noqa: E402
from tests.pool.harness import PoolUnavailable  # noqa: E402

from study import limits, result  # noqa: E402

SIZE = 48_000_000
SHORT = ("stock-2024", "headway")


def main() -> None:
    args = _arguments()
    if not args.result:
        args.to.mkdir(parents=True, exist_ok=True)
        if args.short:
            world = short_world(args.seed)
        else:
            world = make_world(args.seed, hour=args.hour, size=SIZE)
        _run_all(world, _pools(args), args)
        if args.runs:  # others may be under way beside it
            return
    found = result.load(args.to)
    if not found:
        sys.exit(f"{args.to} has no runs; without --result they are made")
    (args.to / "table.md").write_text(result.markdown(result.table(found)))
    if len(found) > 1:
        (args.to / "index.html").write_text(result.page(args.to, found))
    print(result.markdown(result.table(found)))
    findings = limits.judge(found)
    print(result.markdown(limits.rows(findings)))
    if all(way.name in found for way in WAYS):
        print(result.headline(found))


def _pools(args: argparse.Namespace) -> list[Sequence[Way]]:
    """The pools to make, each with the rounds to run on it."""
    names = args.runs.split(",") if args.runs else SHORT if args.short else None
    chosen = [rounds for rounds in POOLS if not names or rounds[0].name in names]
    # in short only what can be different the second time
    return [each[: 1 if args.short and not each[0].mode else args.rounds] for each in chosen]


def _run_all(world: World, pools: Sequence[Sequence[Way]], args: argparse.Namespace) -> None:
    data = DataSet(args.to / f"data-{world.seed}.tar", world.scale.size)

    def one(rounds: Sequence[Way]) -> None:
        folders = [args.to / way.name / f"seed-{world.seed}" for way in rounds]
        if all(folder.with_suffix(".json").exists() for folder in folders):
            return
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        begin = time.monotonic()
        for ran in run(rounds, world, data, args.to):
            found = figures(ran, world)
            path = args.to / ran.way.name / f"seed-{world.seed}.json"
            path.write_text(json.dumps(found.as_dict(), indent=1) + "\n")
            _say(f"{ran.way.name}, seed {world.seed}: {found.verified} of {found.jobs} in", begin)

    if args.short:  # what waits most of its time can wait together
        with ThreadPoolExecutor(len(pools)) as hands:
            list(hands.map(one, pools))
    else:  # figures that count are taken one by one
        for rounds in pools:
            one(rounds)
    if not args.short and not args.runs:
        begin = time.monotonic()
        quick = make_world(world.seed, hour=10.0, size=SHORT_SIZE, spacing=1)
        small = DataSet(args.to / "small.tar", SHORT_SIZE)
        shutil.rmtree(args.to / "methods" / f"seed-{world.seed}", ignore_errors=True)
        tried = try_methods(quick, small, args.to / "methods" / f"seed-{world.seed}")
        path = args.to / "methods" / f"seed-{world.seed}.json"
        path.write_text(json.dumps(tried.as_dict(), indent=1) + "\n")
        _say("methods and overhead in", begin)


def _say(words: str, begin: float) -> None:
    print(f"{words} {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, required=True, help="a folder for everything")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--short", action="store_true", help="12 jobs, stock-2024 and headway")
    parser.add_argument("--runs", default="", help="only these, parted by commas, and no page")
    parser.add_argument("--rounds", type=int, default=2, help="1 or 2 of each run (2)")
    parser.add_argument("--hour", type=float, default=30.0, help="seconds of an hour (30)")
    parser.add_argument("--result", action="store_true", help="run nothing")
    args: argparse.Namespace = parser.parse_args()
    return args


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that pools are stopped
    try:
        main()
    except PoolUnavailable as reason:
        sys.exit(f"no real pool: {reason}")
