"""What a look at the pool's slots says of a job, for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from headway.pool.match import START, Lacking, Match, Need, needs_of
from headway.pool.preflight.findings import Finding, error, warning
from headway.spec import Job, format_size
from headway.spec.words import closest
from headway.text import many

_WAYS = 2  # to match, the best first
_SHOWN = 5  # sites
_PLATFORM = {"arch": "architecture", "opsys": "operating system"}
_GROWS = {
    "pilots": "pilots may bring others, because jobs ask for them",
    "flocking": "this access point also sends jobs to other pools",
    "the job router": "this access point's job router may send jobs elsewhere",
}


def slot_findings(job: Job, match: Match, strict: bool | None = None) -> Iterator[Finding]:
    """Why no slot of the pool could run a job; nothing where one could.

    Args:
        job: The job.
        match: What the look at the slots has shown.
        strict: True refuses whatever no slot of today could run, False warns only. None refuses
            where these slots are all that there can be.

    Yields:
        The finding that none matches and what would, then each need that rules slots out.
    """
    if match.matching:
        return
    make = error if strict else warning
    if match.unknown:
        what = f"whether any slot fits is not known: {match.unknown}"
        yield make("slots-unknown", "pool", what, "`condor_status` shows what the pool has")
        return
    if not match.slots:
        what = "the pool has no slots at the moment: the job waits until there is one that fits"
        yield make("no-slots", "pool", what, "`condor_status` shows what the pool has")
        return
    if strict is None and not match.grows:
        make = error
    needs = {START: Need(START, "pool", ""), **{need.key: need for need in needs_of(job)}}
    ways = _ways(match)
    words = "; or ".join(_way(needs, way) for way in ways)
    if strict is None:
        words += f"; {'--strict refuses it' if match.grows else '--no-strict submits it anyway'}"
    yield make("no-slot-fits", "pool", _headline(match), words)
    keys = dict.fromkeys(key for way in ways for key in way.needs)
    every = {key for way in match.lacking for key in way.needs}
    keys |= dict.fromkeys(key for key in needs if key in every and _rules_out_all(match, key))
    for key in keys:
        name = "requirements" if key.startswith("requirements ") else key.replace(".", "-")
        what, remedy = _what(job, match, needs[key]), _remedy(job, match, needs[key])
        yield make(f"slots-{name}", needs[key].where, what, remedy)


def _rules_out_all(match: Match, key: str) -> bool:
    return match.ruled_out(key) == match.slots


def _headline(match: Match) -> str:
    which = (
        f"none of the pool's {match.slots:,} slots" if match.slots > 1 else "no slot of the pool"
    )
    if match.grows:
        return f"{which} could run this job today; {_GROWS.get(match.grows, match.grows)}"
    return f"{which} can ever run this job: it would wait without end"


def _ways(match: Match) -> list[Lacking]:
    """The least that could be changed; where there are GPUs, they are not given up."""
    ways: list[Lacking] = []
    for each in match.lacking:
        if not any(each.without_gpus or set(way.needs) <= set(each.needs) for way in ways):
            ways.append(each)
    return ways[:_WAYS]


def _way(needs: dict[str, Need], way: Lacking) -> str:
    steps = " and ".join(_step(needs[key], way.offer.get(key, 0.0)) for key in way.needs)
    return f"{many(way.fitting, 'slot')} would match {steps}"


def _step(need: Need, have: float) -> str:
    """What to change of one need so that a slot with so much matches."""
    if need.key == START:
        return "if START took it"
    if need.key in _OPTIONS and have:
        return f"with {_OPTIONS[need.key](have)}"
    if need.key.startswith("requirements "):
        return f"without `{need.expression}`"
    if need.key in ("arch", "opsys"):
        return f"with another {_PLATFORM[need.key]}"
    return f"without {need.where.removesuffix('.count')}"


def _remedy(job: Job, match: Match, need: Need) -> str:
    if need.key == START:
        return "the pool's staff know what a job must say; +NAME = VALUE under [submit] says it"
    if need.key == "only":
        unknown = [site for site in job.sites.only if site not in match.sites]
        meant = closest(unknown[0], match.sites) if unknown else None
        there = f"the slots are at {_some(match.sites)}"
        return f"did you mean {meant}? {there}" if meant else there
    if need.key == "arch":
        return "say `Arch == …` in `requirements`, and bring a command that runs there"
    if need.key.startswith("requirements "):
        return "`condor_status -long` shows what slots say of themselves"
    return ""


def _what(job: Job, match: Match, need: Need) -> str:
    """What the slots lack, at how many of them, and the most that there is."""
    at = f"at {match.ruled_out(need.key):,} of {many(match.slots, 'slot')}"
    most = match.most.get(need.key, 0.0)
    gpus = job.resources.gpus
    each = "no GPU" if gpus is None or gpus.count == 1 else f"fewer than {gpus.count} GPUs"
    if need.key == "cpus":
        return f"fewer than {many(int(need.asked), 'cpu')} {at}; the largest has {most:g}"
    if need.key in ("memory", "disk"):
        asked, largest = format_size(_bytes(need.asked, need)), format_size(_bytes(most, need))
        return f"less than {asked} of {need.key} {at}; the largest has {largest}"
    if need.key == "gpus":
        return f"{each} {at}" + (f"; the most is {most:g}" if most else "")
    if need.key == "gpus.memory":
        asked, largest = format_size(need.asked * 2**20), format_size(most * 2**20)
        return f"{each} with {asked} of memory {at}; the largest GPU has {largest}"
    if need.key == "gpus.capability":
        return f"{each} of capability {need.asked:g} {at}; the highest is {most:g}"
    if need.key == "gpus.runtime":
        known = f"the newest is {_version(most)}" if most else "their slots name none"
        return f"{each} with a CUDA runtime of {_version(need.asked)} {at}; {known}"
    if need.key == "gpus.all":
        return f"{each} that is all of what is asked for, at once, {at}"
    if need.key == START:
        shown = f": `{match.starts[0]}`" if match.starts else ""
        return f"refused by the slot's own START {at}{shown}"
    if need.key == "only":
        return f"another site than {_some(job.sites.only)} {at}"
    if need.key == "avoid":
        return f"a site to avoid {at}"
    if need.key == "container":
        kind = need.expression.rpartition(".")[2]
        return f"no containers of this kind ({kind}) {at}"
    if need.key == "scheme":
        return f"no plugin that fetches {job.container} {at}"
    if need.key in ("arch", "opsys"):
        return f"another {_PLATFORM[need.key]} than this access point's {at}"
    return f"`{need.expression}` does not hold {at}"


def _bytes(figure: float, need: Need) -> float:
    return figure * (2**20 if need.key == "memory" else 2**10)


def _version(figure: float) -> str:
    return f"{int(figure) // 1000}.{int(figure) % 1000 // 10}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def round_down(size: float) -> str:
    """A size that is not more than `size`, short enough to type."""
    unit, factor = ("GB", 10**9) if size >= 10**9 else ("MB", 10**6)
    return f"{int(size // factor)}{unit}"


#: How to ask for no more than a figure.
_OPTIONS: dict[str, Callable[[float], str]] = {
    "cpus": lambda have: f"--resource cpu={have:g}",
    "memory": lambda have: f"--resource mem={round_down(have * 2**20)}",
    "disk": lambda have: f"--resource disk={round_down(have * 2**10)}",
    "gpus": lambda have: f"--resource nvidia-gpu={have:g}",
    "gpus.memory": lambda have: f"--resource gpu-mem={round_down(have * 2**20)}",
    "gpus.capability": lambda have: f"--set resources.gpus.capability={have:.1f}",
    "gpus.runtime": lambda have: f"--set resources.gpus.runtime={_version(have)}",
}
