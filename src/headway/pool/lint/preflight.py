"""Preflight: what would make a job fail on this pool, said before it is submitted."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from headway.errors import ManifestError
from headway.node.probe import ZSTD
from headway.node.stream.source import bytes_of_epoch
from headway.node.transfer.manifest import MAX_MANIFEST, SUFFIX, Manifest, digest_of, read_manifest
from headway.pool.base import Limits
from headway.pool.lint.case import PreflightCase, command_findings, put_where_cached
from headway.pool.lint.traps import LintFinding, error, hint, warning, worst_first
from headway.pool.match import START, Lacking, Match, SlotNeed, needs_of
from headway.pool.prepare import agent_urls, by_agent, not_in_shell
from headway.spec import Input, Job, Output, format_duration, format_size
from headway.text import closest, many

_log = logging.getLogger(__name__)

_HOUR = 3600.0
_CATEGORIES = {"Medium": 20 * _HOUR, "Long": 40 * _HOUR}  # the OSPool holds a job after this long
_LONGEST_INTERVAL = 5 * _HOUR
_KEEPER = "headway.checkpoint"  # exits with whatever code job.toml says
_OSPOOL_INPUT = 10 * 10**9  # bytes a job, and GPUs: what the OSPool asks for
_OSPOOL_GPUS = 1
_DECODES = 550  # JPEGs a second that one core decodes


def preflight(
    job: Job,
    base: Path,
    limits: Limits,
    *,
    pool: str,
    match: Match | None = None,
    strict: bool | None = None,
) -> list[LintFinding]:
    """Everything worth saying about a job before its pool gets it.

    Only the job's own files are looked at; nothing is fetched.

    Args:
        job: The job.
        base: The folder of job.toml.
        limits: What the pool accepts.
        pool: The pool, as `--pool` names it.
        match: What the pool's slots have for the job, if somebody has looked.
        strict: As `slot_findings` explains it.

    Returns:
        The findings, the worst first.
    """
    case = PreflightCase(job, base, limits, pool)
    checks: tuple[Callable[[PreflightCase], Iterator[LintFinding]], ...] = (
        file_findings,
        command_findings,
        _requests,
        _gpus,
        _inputs,
        _environment,
        _container,
        _outputs,
        _duration,
        _checkpoint,
    )
    slots = slot_findings(job, match, strict) if match else ()
    findings = worst_first((*slots, *(finding for part in checks for finding in part(case))))
    for each in findings:
        _log.info("%s: %s: %s: %s", each.severity.value, each.id, each.where, each.what)
    return findings


def _requests(case: PreflightCase) -> Iterator[LintFinding]:
    asked = case.job.resources
    make = error if case.local else warning
    place = "this machine has" if case.local else "the pool's largest slot has"
    rows: list[tuple[str, str, int, int | None, Callable[[int], str], str]] = [
        ("cpus", "cpu", asked.cpus, case.limits.cpus, lambda n: many(n, "cpu"), "cpu"),
        ("memory", "memory", asked.memory, case.limits.memory, format_size, "mem"),
        ("disk", "disk", asked.disk, case.limits.disk, format_size, "disk"),
    ]
    for key, noun, wanted, there, shown, option in rows:
        if there is None or wanted <= there:
            continue
        amount = shown(there) if noun == "cpu" else f"{shown(there)} of {noun}"
        what = f"asks for {shown(wanted)}; {place} {amount}"
        value = str(there) if noun == "cpu" else round_down(there)
        remedy = f"--resource {option}={value}"
        if value == "0MB":
            remedy = f"make room: next to no {noun} is free"
        yield make(f"request-{key}", what, remedy, f"resources.{key}")


def _gpus(case: PreflightCase) -> Iterator[LintFinding]:
    asked = case.job.resources.gpus
    if asked is None:
        return
    where = "resources.gpus"
    there = case.limits.gpus
    if there is not None and asked.count > there:
        make = error if case.local else warning
        has = many(there, "GPU") if there else "no GPU"
        place = "this machine has" if case.local else "the pool's largest slot has"
        remedy = f"--resource nvidia-gpu={there}"
        if not there:
            remedy += ", or a pool with GPUs"
        what = f"asks for {many(asked.count, 'GPU')}; {place} {has}"
        yield make("request-gpus", what, remedy, f"{where}.count")
    if case.ospool and asked.count > _OSPOOL_GPUS:
        what = (
            f"few machines of the OSPool have {asked.count} GPUs free at once: expect a long wait"
        )
        remedy = f"--resource nvidia-gpu={_OSPOOL_GPUS}, or several jobs"
        yield warning("gpu-count", what, remedy, f"{where}.count")
    if "count" not in asked.model_fields_set:
        given = " and ".join(sorted(asked.model_fields_set)) or "nothing"
        what = f"says {given} but not how many GPUs: one is asked for"
        yield hint("gpu-count-missing", what, "count = 1", where)
    if case.job.resources.cpus == 1 and case.uses_loader:
        what = f"one cpu decodes about {_DECODES} JPEGs a second: the GPU waits for it"
        yield hint("gpu-starved", what, "cpus = 4, and as many loader workers", "resources.cpus")


def _inputs(case: PreflightCase) -> Iterator[LintFinding]:
    job = by_agent(case.job) if case.local else case.job
    for number, given in enumerate(job.inputs):
        where = f"inputs[{number}]"
        if case.local and not agent_urls(case.job, given):
            what = "is left to the job's own transfer plugin, and the local pool runs none"
            remedy = "take transfer_plugins out of [submit]; Headway fetches it by itself"
            yield error("input-plugin", what, remedy, where)
        names = [url.lower().split("?")[0] for url in given.urls]
        if any(name.endswith(".zip") for name in names) and not given.unpack:
            what = "is a zip archive: `unzip` is missing in many containers"
            remedy = "unpack = true has the agent unpack it; or repack it as .tar and read it as is"
            yield hint("zip", what, remedy, where)
        if given.unpack and any(name.endswith(ZSTD) for name in names) and not case.local:
            what = "is unpacked only where a node has the program zstd or Python 3.14"
            remedy = "other nodes are passed over; gzip and xz are read everywhere"
            yield hint("zstd", what, remedy, where)
        if given.mode == "stream":
            yield from stream_findings(case, given, where)
    if case.ospool and case.input_bytes > _OSPOOL_INPUT:
        what = (
            f"{format_size(case.input_bytes)} of input for each job; up to"
            f" {format_size(_OSPOOL_INPUT)} are a good fit for the OSPool"
        )
        remedy = "split the data into shards, one job each, or stream it (mode)"
        yield warning("input-guideline", what, remedy, "inputs")


def _environment(case: PreflightCase) -> Iterator[LintFinding]:
    for problem in not_in_shell(case.job):
        yield error("not-in-shell", problem.what, problem.remedy, problem.where)


def _container(case: PreflightCase) -> Iterator[LintFinding]:
    image = case.job.container
    if image is None:
        return
    if not case.limits.containers:
        what = f"{image} cannot be run: this pool has no containers"
        remedy = "install apptainer, or take `container` out for a run on this pool"
        yield error("container-unavailable", what, remedy, "container")
        return
    scheme = image.split("://", 1)[0].lower() if "://" in image else ""
    if scheme == "docker" and not case.local:
        what = "each site pulls a docker:// image anew and converts it, which can take many minutes"
        remedy = f"build a .sif once (apptainer build) and {put_where_cached(case)}"
        yield hint("container-docker", what, remedy, "container")
    elif scheme in ("osdf", "stash", "pelican") and case.local:
        what = f"{scheme}:// is HTCondor's to bring, and the local pool has none"
        yield error("container-scheme", what, "name a local .sif, or docker://…", "container")
    elif not scheme and not image.startswith("/cvmfs/") and not case.image_path.exists():
        what = f"there is no {image} here"
        yield error("container-missing", what, "name a .sif file, or docker://…", "container")


def _outputs(case: PreflightCase) -> Iterator[LintFinding]:
    listed: dict[str, set[str]] = {}
    for number, output in enumerate(case.job.outputs):
        where = f"outputs[{number}]"
        if output.to and "://" not in output.to:
            yield from _destination(case, output, f"{where}.to", listed)
        name = output.path.rstrip("/").rsplit("/", 1)[-1]
        if output.required and "{" not in name and case.scripts and not case.mentions(name):
            what = f"{output.path} is required, and neither the command nor its scripts mention it"
            remedy = "check the name; without it the attempt counts as failed"
            yield hint("output-unmentioned", what, remedy, f"{where}.path")


def _destination(
    case: PreflightCase, output: Output, where: str, listed: dict[str, set[str]]
) -> Iterator[LintFinding]:
    """Where an output goes on the access point; each folder is looked into once."""
    taken: list[str] = []
    blocked: dict[str, str] = {}
    for text in case.filled(output.to or ""):
        folder, slash, name = text.rpartition("/")
        if folder not in listed:
            listed[folder], reason = _look_into(case.base / (folder or slash))
            if reason:
                blocked[folder] = reason
        if name in listed[folder]:
            taken.append(text)
    for folder, reason in blocked.items():
        what = f"nothing can be written to {folder or 'the job folder'}: {reason}"
        yield error("output-folder", what, "create the folder, or choose another", where)
    if taken and not output.overwrite:
        more = f" (and {len(taken) - 1:,} more)" if len(taken) > 1 else ""
        what = f"{taken[0]}{more} exists already, and would have to be replaced"
        remedy = "move it away, or say overwrite = true"
        yield error("output-exists", what, remedy, where)


def _look_into(folder: Path) -> tuple[set[str], str]:
    """The names in a folder, and why nothing can be added to it, if so."""
    try:
        names = {entry.name for entry in os.scandir(folder)}
    except FileNotFoundError:
        existing = next(parent for parent in folder.parents if parent.exists())
        if not existing.is_dir():
            return set(), f"{existing.name} is not a folder"
        allowed = os.access(existing, os.W_OK | os.X_OK)
        return set(), "" if allowed else f"{existing} is not yours to write to"
    except OSError as problem:
        return set(), (problem.strerror or str(problem)).lower()
    return names, "" if os.access(folder, os.W_OK | os.X_OK) else "it is not yours to write to"


def _duration(case: PreflightCase) -> Iterator[LintFinding]:
    job = case.job
    if case.ospool and job.duration is None and job.checkpoint is None:
        what = "nothing says how long the job takes: the OSPool holds it after 20 h"
        remedy = 'duration = "Medium" (under 10 h) or "Long" (under 20 h), or a [checkpoint]'
        yield hint("duration", what, remedy, "duration")
    held = _CATEGORIES.get(job.duration or "")
    if held is not None and job.time_limit is not None and job.time_limit > held:
        saved = job.checkpoint is not None
        what = (
            f"time_limit is {format_duration(job.time_limit)}, and a {job.duration} job is held"
            f" after {format_duration(held)}" + (" without a checkpoint" if saved else "")
        )
        other = 'duration = "Long", or ' if job.duration == "Medium" else ""
        remedy = f"{other}write a checkpoint at least every 5 h"
        yield (hint if saved else warning)("duration-limit", what, remedy, "time_limit")


def _checkpoint(case: PreflightCase) -> Iterator[LintFinding]:
    saved = case.job.checkpoint
    if saved is None:
        return
    if saved.interval is not None and saved.interval > _LONGEST_INTERVAL:
        what = f"a checkpoint every {format_duration(saved.interval)}: an eviction costs that much"
        if case.ospool:
            what += ", and the OSPool may hold such a job for its length"
        yield warning("checkpoint-interval", what, 'interval = "2 h"', "checkpoint.interval")
    if not case.scripts:
        return
    names = {path.rstrip("/").rsplit("/", 1)[-1] for path in saved.paths}
    if not any(case.mentions(name) for name in names):
        what = f"the command and its scripts never mention {' or '.join(sorted(names))}"
        remedy = "write the checkpoint there, and read it at the start if it exists"
        yield hint("checkpoint-paths", what, remedy, "checkpoint.paths")
    elif not case.mentions(str(saved.exit_code), word=True) and not case.mentions(_KEEPER):
        what = f"the command and its scripts never mention {saved.exit_code}"
        remedy = f"after writing the checkpoint, exit with {saved.exit_code}"
        yield hint("checkpoint-code", what, remedy, "checkpoint.exit_code")


# The job's files: are they there, can they be packed, and do they fit through the transfer?

_AGENT_BYTES = 1_000_000  # headway-node.pyz, plan.json: generous
_HEADROOM = 256_000_000  # for what the command writes, at the least
_BIG = 1_000_000_000
_FILES_SHOWN = 3


def file_findings(case: PreflightCase) -> Iterator[LintFinding]:
    """What is wrong with the files themselves, then with their sizes."""
    for name, path in case.packed.items():
        yield from _one_file(case, name, path)
    yield from _transfer(case)
    yield from _disk(case)


def _one_file(case: PreflightCase, name: str, path: Path) -> Iterator[LintFinding]:
    where = f"files: {name}"
    try:
        kind = path.stat().st_mode
    except FileNotFoundError:
        if path.is_symlink():
            what = f"is a link to {os.readlink(path)}, which does not exist"
            yield error("file-dangling", what, "mend the link, or leave it out", where)
        else:
            near = closest(path.name, case.siblings(name.rpartition("/")[0]))
            remedy = f"did you mean {near}?" if near else "correct the name in `files`"
            yield error("file-missing", "does not exist", remedy, where)
        return
    except OSError as problem:
        what = f"cannot be looked at: {(problem.strerror or str(problem)).lower()}"
        yield error("file-unreadable", what, "check its permissions", where)
        return
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        what = "is a socket, pipe or device, which cannot be packed"
        yield error("file-special", what, "leave it out of `files`", where)
    elif not os.access(path, os.R_OK | (os.X_OK if stat.S_ISDIR(kind) else 0)):
        yield error("file-unreadable", "cannot be read", f"chmod u+r {name}", where)
    elif stat.S_ISDIR(kind) and path.is_symlink() and not _link_holds(case, name, path):
        what = f"is a link to the folder {os.readlink(path)}, which does not go with the job"
        remedy = "copy the folder into place of the link, or declare its files as inputs"
        yield error("file-link", what, remedy, where)


def _link_holds(case: PreflightCase, name: str, path: Path) -> bool:
    """Whether a link to a folder leads to something that is packed too."""
    target = os.readlink(path)
    if os.path.isabs(target):
        return False
    inside = os.path.normpath(os.path.join(os.path.dirname(name), target))
    if inside.startswith("../"):
        return False
    return inside in case.packed or any(other.startswith(f"{name}/") for other in case.packed)


def _transfer(case: PreflightCase) -> Iterator[LintFinding]:
    limit = case.limits.transfer_input_bytes
    total = case.payload_bytes + case.image_bytes + _AGENT_BYTES
    if limit is not None and total > limit:
        biggest = sorted(case.sizes.items(), key=lambda item: -item[1])[:_FILES_SHOWN]
        if case.image_bytes:
            biggest = [(case.job.container or "", case.image_bytes), *biggest]
        named = ", ".join(f"{name} ({format_size(size)})" for name, size in biggest)
        what = (
            f"{format_size(total)} would go through HTCondor's own transfer, which takes"
            f" {format_size(limit)} here (hold code 32). The biggest: {named}"
        )
        remedy = "put what is big behind a URL and declare it as an input"
        yield error("payload-size", what, remedy, "files")
    elif case.image_bytes > _BIG and not case.local:
        what = f"an image of {format_size(case.image_bytes)} goes from here to each node anew"
        remedy = f"{put_where_cached(case)}, and name that in `container`"
        yield hint("container-size", what, remedy, "container")


def _disk(case: PreflightCase) -> Iterator[LintFinding]:
    """Payload and its archive lie side by side; inputs and the image once."""
    asked = case.job.resources.disk
    parts = {
        many(len(case.job.inputs), "input"): case.input_disk,
        "files": case.payload_bytes + sum(case.sizes.values()),
        "the image": case.image_bytes,
        "outputs": sum(output.min_size for output in case.job.outputs),
    }
    need = sum(parts.values())
    shown = ", ".join(f"{noun} {format_size(size)}" for noun, size in parts.items() if size)
    wanted = need + max(_HEADROOM, need // 10)
    remedy = f"--resource disk={-(-wanted // 10**9)}GB"
    if need > asked:
        what = f"asks for {format_size(asked)}, and {format_size(need)} are declared: {shown}"
        yield error("disk", what, remedy, "resources.disk")
    elif wanted > asked and need > _HEADROOM:
        what = (
            f"asks for {format_size(asked)}; {format_size(need)} are declared ({shown}), which"
            " leaves little for what the command writes"
        )
        yield warning("disk", what, remedy, "resources.disk")


# What a look at the pool's slots says of a job, for people.

_WAYS = 2  # to match, the best first
_SHOWN = 5  # sites
_PLATFORM = {"arch": "architecture", "opsys": "operating system"}
_GROWS = {
    "pilots": "pilots may bring others, because jobs ask for them",
    "flocking": "this access point also sends jobs to other pools",
    "the job router": "this access point's job router may send jobs elsewhere",
}


def slot_findings(job: Job, match: Match, strict: bool | None = None) -> Iterator[LintFinding]:
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
        yield make("slots-unknown", what, "`condor_status` shows what the pool has", "pool")
        return
    if not match.slots:
        what = "the pool has no slots at the moment: the job waits until there is one that fits"
        yield make("no-slots", what, "`condor_status` shows what the pool has", "pool")
        return
    if strict is None and not match.grows:
        make = error
    needs = {START: SlotNeed(START, "pool", ""), **{need.key: need for need in needs_of(job)}}
    ways = _ways(match)
    words = "; or ".join(_way(needs, way) for way in ways)
    if strict is None:
        words += f"; {'--strict refuses it' if match.grows else '--no-strict submits it anyway'}"
    yield make("no-slot-fits", _headline(match), words, "pool")
    keys = dict.fromkeys(key for way in ways for key in way.needs)
    every = {key for way in match.lacking for key in way.needs}
    keys |= dict.fromkeys(key for key in needs if key in every and _rules_out_all(match, key))
    for key in keys:
        name = "requirements" if key.startswith("requirements ") else key.replace(".", "-")
        what, remedy = _what(job, match, needs[key]), _remedy(job, match, needs[key])
        yield make(f"slots-{name}", what, remedy, needs[key].where)


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


def _way(needs: dict[str, SlotNeed], way: Lacking) -> str:
    steps = " and ".join(_step(needs[key], way.offer.get(key, 0.0)) for key in way.needs)
    return f"{many(way.fitting, 'slot')} would match {steps}"


def _step(need: SlotNeed, have: float) -> str:
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


def _remedy(job: Job, match: Match, need: SlotNeed) -> str:
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


def _what(job: Job, match: Match, need: SlotNeed) -> str:
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


def _bytes(figure: float, need: SlotNeed) -> float:
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


# What is worth saying about an input that arrives while the command runs.


def stream_findings(case: PreflightCase, given: Input, where: str) -> Iterator[LintFinding]:
    """Of one input with mode = "stream"."""
    if not agent_urls(case.job, given):
        what = "is left to the job's own transfer plugin, which brings it before the command starts"
        remedy = "take transfer_plugins out of [submit], or leave out `mode`"
        yield error("stream-plugin", what, remedy, f"{where}.mode")
    packed = _packed(case, given)
    digest = digest_of(packed) if packed is not None else ""
    if given.manifest is None:
        proof = "its checksum is compared at the end" if given.checksum else "nothing proves it"
        what = (
            f"streams without a manifest: the command reads bytes before they are proven; {proof}"
        )
        remedy = "`headway publish` makes the manifest: name its digest as `manifest`"
        if digest:
            remedy = f'{given.file}{SUFFIX} is among the files: add manifest = "{digest}"'
        yield hint("stream-unproven", what, remedy, where)
    elif digest and digest != given.manifest:
        what = f"is not the digest of {given.file}{SUFFIX}, which is among the files"
        yield error("stream-manifest", what, f'manifest = "{digest}"', f"{where}.manifest")
    if not given.keep and given.window is not None:
        yield _window(given, given.window, where, packed if digest == given.manifest else None)


def _window(given: Input, window: int, where: str, packed: bytes | None) -> LintFinding:
    manifest = _read(packed)
    if manifest is not None and window < manifest.size:
        each = bytes_of_epoch(manifest, window)
        more = each / manifest.size - 1
        what = (
            f"keeps {format_size(window)} of the disk: {format_size(each)} come anew in every"
            f" epoch ({more:.0%} more than it has), {format_size(5 * each)} in five"
        )
    else:
        size = f"{format_size(given.size)} come" if given.size else "the whole object comes"
        what = (
            f"keeps {format_size(window)} of the disk: {size} anew in every epoch, and some"
            " twice; agent.log says how much before the command starts"
        )
    return hint("stream-again", what, "keep = true where the disk has room for all of it", where)


def _packed(case: PreflightCase, given: Input) -> bytes | None:
    """The manifest that travels with the job."""
    path = case.packed.get(f"{given.file}{SUFFIX}")
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            return file.read(MAX_MANIFEST + 1)
    except OSError:
        return None


def _read(data: bytes | None) -> Manifest | None:
    if data is None:
        return None
    try:
        return read_manifest(data, pin=None)
    except ManifestError:
        return None
