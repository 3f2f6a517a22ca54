"""Write the tables of docs/benchmarks.md, between their markers, from the benchmarks' raw figures.

python scripts/benchmark_figures.py           # rewrite the page from benchmarks/results/*.json
python scripts/benchmark_figures.py --check   # only say whether it is out of date; exit code 1

It also makes the README's sentence on transfer slots, and the picture above it.

What the benchmarks write with `--json` becomes the page as soon as it is put there:

    python benchmarks/transfer.py --json benchmarks/results/transfer.json
    python benchmarks/transfer.py --ways wide,wide-https --json benchmarks/results/wide.json
    python benchmarks/transfer.py --crowd --json benchmarks/results/crowd.json
    python benchmarks/transfer_faults.py --json benchmarks/results/transfer_faults.json
    python benchmarks/streaming.py --json benchmarks/results/streaming.json
    python benchmarks/second_run.py --json benchmarks/results/second_run.json
    python benchmarks/events.py --json benchmarks/results/events.json
    python benchmarks/stageout.py     # goes on where it was stopped
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT), str(ROOT / "scripts")]

import stageout  # noqa: E402
import stageout_figure  # noqa: E402
import transfer  # noqa: E402
import transfer_faults  # noqa: E402
from blocks import names, replaced, rewrite  # noqa: E402
from streaming import OURS, WINDOW_EPOCHS, median  # noqa: E402

PAGE, README = ROOT / "docs/benchmarks.md", ROOT / "README.md"
PICTURE = ROOT / "docs/images/stageout.svg"
RESULTS = ROOT / "benchmarks/results"


def updated(text: str) -> str:
    """A page with every block as the results have it."""
    if unknown := set(names(text, "benchmark")) - set(BLOCKS):
        raise ValueError(f"no benchmark fills the blocks {', '.join(unknown)}")
    return replaced(text, "benchmark", lambda name: "\n" + "\n".join(BLOCKS[name]()) + "\n")


def read(name: str) -> dict[str, Any]:
    """The raw figures of one benchmark."""
    known: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return known


def markdown(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table."""
    lines = [titles, ["---"] * len(titles), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def setting(known: dict[str, Any]) -> str:
    """When and where figures were taken, in a sentence."""
    about = known["machine"]
    places = about.get("file_systems", {})
    disk = f", the disk is {places['disk']}" if "disk" in places else ""
    words = (
        f"Measured on {about['date']}: {about['cores']} cores of {about['cpu']}, Linux"
        f" {about['kernel']}, {about['openssl']}, Python {about['python']}{disk}."
    )
    return f"{words} {known['note']}" if "note" in known else words


def columns(name: str, target: str) -> list[transfer.Column]:
    """The columns of a benchmark of transfers that have this target."""
    every = [transfer.Column.read(raw) for raw in read(name)["columns"]]
    return [column for column in every if column.target == target]


def fetching(name: str, target: str) -> list[str]:
    """Rates and costs: a row for each tool, a column for each way."""
    shown = columns(name, target)
    most = max(len(runs) for column in shown for runs in column.runs.values())
    tools = list(dict.fromkeys(tool for column in shown for tool in column.runs))
    tools.sort(key=lambda tool: not tool.startswith("headway"))
    rows = [[tool, *(cell(column, tool, most) for column in shown)] for tool in tools]
    rows.append(["**headway over the fastest peer's rate**", *map(rate_share, shown)])
    rows.append(["**headway over curl's CPU**", *map(cpu_share, shown)])
    titles = [f"{column.way}, {column.connections}" for column in shown]
    return markdown(["MB/s; CPU s/GB; MB", *titles], rows)


def cell(column: transfer.Column, tool: str, most: int) -> str:
    """The median, the slowest and the fastest run, CPU and memory; and when there are few runs."""
    if tool not in column.runs:
        return ""
    found, rates = column.median(tool), column.rates(tool)
    span = f"{min(rates) / 1e6:,.0f}–{max(rates) / 1e6:,.0f}"
    few = f"; {len(rates)} runs" if len(rates) < most else ""
    return f"{found.rate / 1e6:,.0f} ({span}); {found.cpu:.2f}; {found.memory / 1e6:.0f}{few}"


def rate_share(column: transfer.Column) -> str:
    peer = column.fastest_peer()
    if peer is None or "headway" not in column.runs:
        return ""
    return f"{column.median('headway').rate / column.median(peer).rate:.2f} ({peer})"


def cpu_share(column: transfer.Column) -> str:
    if not {"curl", "headway"} <= set(column.runs):
        return ""
    return f"{column.median('headway').cpu / column.median('curl').cpu:.2f}"


def limits(name: str) -> list[str]:
    """What Headway must reach on each way, and whether it does."""
    rows = []
    for raw in read(name)["columns"]:
        column = transfer.Column.read(raw)
        limit = transfer.LIMITS[column.way, column.target]
        cpu = "" if limit.cpu is None else f"{limit.cpu:.2f} of curl's CPU"
        said = "; ".join(words.partition(": ")[2] for words in column.complaints())
        peer = limit.peer or "the fastest peer"
        held = f"**no**: {said}" if said else "yes"
        rows.append([column.title, f"{limit.rate:.2f} of {peer}'s rate", cpu, held])
    return markdown(["way", "at least", "at most", "held"], rows)


def versions() -> list[str]:
    tools = read("transfer")["machine"]["tools"]
    shown = {name: said for name, said in tools.items() if name in ("headway", *_peers(tools))}
    return markdown(["tool", "version"], [[name, said] for name, said in shown.items()])


def _peers(tools: Iterable[str]) -> list[str]:
    return [name for name in tools if not name.startswith("headway")]


def size(name: str) -> str:
    """How much is fetched how often."""
    every = [transfer.Column.read(raw) for raw in read(name)["columns"]]
    most = max(len(runs) for column in every for runs in column.runs.values())
    some = "one run" if most == 1 else f"medians of {most} runs, taken in turns"
    return f"{every[0].size / 2**20:,.0f} MiB, {some}."


def crowd() -> list[str]:
    known = read("crowd")
    rushes = [transfer.Rush(**raw) for raw in known["rushes"]]
    labels = dict.fromkeys(rush.label for rush in rushes)
    rows = []
    for label in labels:
        mine = [rush for rush in rushes if rush.label == label]
        seconds = " and ".join(f"{rush.seconds:.1f}" for rush in mine)
        failed, most = sum(rush.failed for rush in mine), max(rush.most for rush in mine)
        rows.append([label, seconds, str(failed), str(most) if most else ""])
    about = f"{known['clients']} clients, {known['size'] / 2**20:.0f} MiB each"
    titles = [about, f"seconds (ideal {known['ideal']:.1f})", "failed", "connections at once"]
    return [setting(known), "", *markdown(titles, rows)]


def faults() -> list[str]:
    known = read("transfer_faults")
    cells = [transfer_faults.Cell(**raw) for raw in known["cells"]]
    words = f"{known['size'] / 2**20:.0f} MiB; a cell ends after {known['limit']:.0f} s."
    return [f"{setting(known)} {words}", "", *transfer_faults.table(cells)]


def feeding(world: str, shown: dict[str, Callable[[dict[str, float]], str]]) -> list[str]:
    """The ways of feeding a trainer: medians of their repetitions."""
    taken = read("streaming")["worlds"][world]
    found = {way: median(runs) for way, runs in taken.items()}
    rows = [[way, *(text(each) for text in shown.values())] for way, each in found.items()]
    return markdown(["way", *shown], rows)


def feeding_setting() -> list[str]:
    known = read("streaming")
    repetitions = known.get("repetitions") or max(
        len(runs) for runs in known["worlds"]["present"].values()
    )
    return [
        f"{setting(known)} {known['images']:,} JPEGs in a tar file of {known['size'] / 1e6:.0f} MB;"
        f" where it arrives, {known['rate'] / 1e6:g} MB/s; repetitions: {repetitions}."
    ]


def window() -> list[str]:
    known = read("streaming")
    found = known["worlds"]["window"][OURS][0]
    stated = found["each_epoch"] * WINDOW_EPOCHS
    rows = [
        ["to fetch, MB", f"{stated / 1e6:.0f}", f"{found['sent'] / 1e6:.0f}"],
        ["disk, MB", f"{found['window'] / 1e6:.0f}", f"{found['disk'] / 1e6:.0f}"],
    ]
    title = f"window of {known['share']:.0%}, {WINDOW_EPOCHS} epochs"
    return markdown([title, "stated before", "taken"], rows)


def second_run() -> list[str]:
    """How soon each way begins the command, and the CPU time of all its processes."""
    known = read("second_run")
    rows = []
    for way, figures in known["ways"].items():
        walls, cpus = ([each[key] for each in figures] for key in ("wall", "cpu"))
        spread = f" ({min(walls):.2f}–{max(walls):.2f})" if len(walls) > 1 else ""
        wall, cpu = statistics.median(walls), statistics.median(cpus)
        rows.append([way, f"{wall:.2f} s{spread}", f"{cpu:.2f} s"])
    taken = len(known["ways"]["cp"])
    return [
        f"{setting(known)} {known['size']:,} MiB, {taken} turns.",
        "",
        *markdown(["way", "its command starts after", "CPU of all processes"], rows),
    ]


_LOGS = {"pool": "a pool's log", "shapes": "old and new forms mixed"}


def logs() -> list[str]:
    """What each reader takes for the two logs, and how many times as fast as JobEventLog it is."""
    known = read("events")
    lines = [setting(known)]
    for name, words in _LOGS.items():
        found = known[name]
        readers = {reader: cost for reader, cost in found.items() if isinstance(cost, dict)}
        slow = readers["JobEventLog"]["wall"]
        rows = [
            [
                reader,
                f"{cost['wall']:.2f} s",
                f"{cost['cpu']:.2f} s",
                f"{found['events'] / cost['wall']:,.0f}",
                f"{cost['memory'] / 1e6:,.0f} MB",
                f"{slow / cost['wall']:.1f}",
            ]
            for reader, cost in readers.items()
        ]
        about = f"{words}: {found['size'] / 1e6:.0f} MB, {found['events']:,} events"
        titles = [about, "wall", "CPU", "events/s", "memory", "times JobEventLog"]
        lines += ["", *markdown(titles, rows)]
    return lines


def shapes() -> list[str]:
    """The events that cost most to read, for their size."""
    found = read("events")["by shape"]
    worst = sorted(found, key=lambda name: -found[name].get("ratio", 0.0))[:6]
    rows = [
        [name, f"{found[name]['us']:.2f}", f"{found[name]['bytes']:.0f}", _ratio(found[name])]
        for name in ("mean event", *worst)
    ]
    return markdown(["shape", "microseconds", "bytes", "times the mean event"], rows)


def _ratio(cost: dict[str, float]) -> str:
    return f"{cost['ratio']:.2f}" if "ratio" in cost else ""


def beside() -> list[str]:
    """Outputs that go home beside computing: each setting and number of jobs."""
    known = read("stageout")
    titles, *lines = stageout.table(stageout.rows(known))
    words = f"HTCondor {known['machine']['htcondor']}."
    return [f"{setting(known)} {words}", "", *markdown(titles, lines)]


def beside_limits() -> list[str]:
    """What Headway must reach beside the ideal and beside stock, and whether it does."""
    judged = [
        [row.setting, str(row.jobs), *told]
        for row in stageout.rows(read("stageout"))
        for told in row.judged()
    ]
    return markdown(["intervals", "jobs", "limit", "found", "held"], judged)


_PRESENT: dict[str, Callable[[dict[str, float]], str]] = {
    "first batch": lambda run: f"{run['first']:.2f} s",
    "images/s": lambda run: f"{run['rate']:,.0f}",
    "CPU s, all": lambda run: f"{run['cpu']:.1f}",
    "of them in the epoch": lambda run: f"{run['epoch_cpu']:.1f}",
    "raw images/s": lambda run: f"{run['raw_rate']:,.0f}",
    "extra disk": lambda run: f"{run['disk']:.1f} MB",
    "inodes": lambda run: f"{run['inodes']:,.0f}",
}
_ARRIVING: dict[str, Callable[[dict[str, float]], str]] = {
    "first batch": lambda run: f"{run['first']:.1f} s",
    "epoch done": lambda run: f"{run['done']:.1f} s",
    "images/s, all counted": lambda run: f"{run['rate']:,.0f}",
    "end over download": lambda run: f"{run['late']:.2f}",
    "CPU s": lambda run: f"{run['cpu']:.1f}",
    "extra disk": lambda run: f"{run['disk']:.1f} MB",
    "inodes": lambda run: f"{run['inodes']:,.0f}",
}
BLOCKS: dict[str, Callable[[], list[str]]] = {
    "transfer": lambda: [f"{setting(read('transfer'))} {size('transfer')}"],
    "versions": versions,
    "memory": lambda: fetching("transfer", "memory"),
    "disk": lambda: fetching("transfer", "disk"),
    "limits": lambda: limits("transfer"),
    "wide": lambda: [f"{setting(read('wide'))} {size('wide')}", "", *fetching("wide", "memory")],
    "crowd": crowd,
    "faults": faults,
    "feeding": feeding_setting,
    "present": lambda: feeding("present", _PRESENT),
    "arriving": lambda: feeding("arriving", _ARRIVING),
    "window": window,
    "second": second_run,
    "logs": logs,
    "shapes": shapes,
    "beside": beside,
    "beside-limits": beside_limits,
    "beside-headline": lambda: [stageout.headline(read("stageout"))],
}


if __name__ == "__main__":
    pages = rewrite([PAGE, README], updated)
    picture = rewrite([PICTURE], lambda _: stageout_figure.draw(read("stageout")))
    sys.exit(pages or picture)
