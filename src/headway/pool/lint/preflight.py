"""Preflight: what would make a job fail on this pool, reported before it is submitted."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from headway.node.probe import ZSTD
from headway.pool.base import Limits
from headway.pool.lint.case import PreflightCase, command_findings, put_where_cached
from headway.pool.lint.traps import LintFinding, error, hint, warning, worst_first
from headway.pool.match import START, Lacking, Match, SlotNeed, needs_of
from headway.pool.prepare import agent_urls, by_agent, not_in_shell
from headway.spec import Job, Output, format_duration, format_size
from headway.spec.errors import first_few
from headway.text import closest, many

_log = logging.getLogger(__name__)

_HOUR = 3600.0
_CATEGORIES = {"Medium": 20 * _HOUR, "Long": 40 * _HOUR}  # the OSPool holds a job after this long
_LONGEST_INTERVAL = 5 * _HOUR
_OUR_MODULE = "headway.checkpoint"  # exits with the code that job.toml names
_OSPOOL_INPUT = 10 * 10**9  # bytes per job that the OSPool recommends
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
    """Check a job before it is submitted.

    Only the job's own files are read; nothing is downloaded.

    Args:
        job: The job.
        base: The folder of job.toml.
        limits: What the pool accepts.
        pool: The pool, as `--pool` names it.
        match: What the pool's slots offer the job, if it is known.
        strict: As `slot_findings` explains it.

    Returns:
        The findings, the worst first.
    """
    case = PreflightCase(job, base, limits, pool)
    checks: tuple[Callable[[PreflightCase], Iterator[LintFinding]], ...] = (
        *(file_findings, command_findings, _requests, _gpus, _inputs, _environment),
        *(_container, _outputs, _duration, _checkpoint),
    )
    slots = slot_findings(job, match, strict) if match else ()
    findings = worst_first((*slots, *(finding for part in checks for finding in part(case))))
    for each in findings:
        _log.info("%s: %s: %s: %s", each.severity.value, each.id, each.where, each.what)
    return findings


def _requests(case: PreflightCase) -> Iterator[LintFinding]:
    asked, limits = case.job.resources, case.limits
    gpus = asked.gpus.count if asked.gpus else 0
    rows: list[tuple[str, int, int | None, str]] = [
        ("cpus", asked.cpus, limits.cpus, "cpu"),
        ("memory", asked.memory, limits.memory, "mem"),
        ("disk", asked.disk, limits.disk, "disk"),
        ("gpus", gpus, limits.gpus, "nvidia-gpu"),
    ]
    for key, wanted, there, option in rows:
        if there is None or wanted <= there:
            continue
        place = "this machine" if case.local else "the pool's largest slot"
        value, where = str(there), f"resources.{key}"
        if key in ("memory", "disk"):
            value, shown = round_down(there), (format_size(wanted), format_size(there))
            what = f"asks for {shown[0]}; {place} has {shown[1]} of {key}"
        else:
            noun = {"cpus": "cpu", "gpus": "GPU"}[key]
            has = many(there, noun) if there else f"no {noun}"
            what = f"asks for {many(wanted, noun)}; {place} has {has}"
        remedy = f"--resource {option}={value}"
        if value == "0MB":
            remedy = f"free some space: next to no {key} is left"
        if key == "gpus":
            where += ".count"
            remedy += "" if there else ", or a pool with GPUs"
        yield (error if case.local else warning)(f"request-{key}", what, remedy, where)


def _gpus(case: PreflightCase) -> Iterator[LintFinding]:
    asked = case.job.resources.gpus
    if asked is None:
        return
    where = "resources.gpus"
    if case.ospool and asked.count > _OSPOOL_GPUS:
        what = f"few machines of the OSPool have {asked.count} GPUs free at once: expect to wait"
        remedy = f"--resource nvidia-gpu={_OSPOOL_GPUS}, or several jobs"
        yield warning("gpu-count", what, remedy, f"{where}.count")
    if "count" not in asked.model_fields_set:
        given = " and ".join(sorted(asked.model_fields_set)) or "nothing"
        what = f"sets {given} but not how many GPUs: the job asks for one"
        yield hint("gpu-count-missing", what, "count = 1", where)
    if case.job.resources.cpus == 1 and case.uses_loader:
        what = f"one cpu decodes about {_DECODES} JPEGs per second: the GPU waits for it"
        yield hint("gpu-starved", what, "cpus = 4, and as many loader workers", "resources.cpus")


def _inputs(case: PreflightCase) -> Iterator[LintFinding]:
    job = by_agent(case.job) if case.local else case.job
    for number, given in enumerate(job.inputs):
        where = f"inputs[{number}]"
        if case.local and not agent_urls(case.job, given):
            what = "needs the job's own transfer plugin, and the local pool runs none"
            remedy = "remove transfer_plugins from [submit]; Headway downloads it by itself"
            yield error("input-plugin", what, remedy, where)
        names = [url.lower().split("?")[0] for url in given.urls]
        if any(name.endswith(".zip") for name in names) and not given.unpack:
            what = "is a zip archive: `unzip` is missing in many containers"
            remedy = "unpack = true lets the agent unpack it; or repack it as .tar, and read that"
            yield hint("zip", what, remedy, where)
        if given.unpack and any(name.endswith(ZSTD) for name in names) and not case.local:
            what = "can be unpacked only on nodes with the program zstd or Python 3.14"
            remedy = "the job skips other nodes; every node can read gzip and xz"
            yield hint("zstd", what, remedy, where)
        if given.mode == "stream":
            from headway.pool.lint.streams import stream_findings  # it loads the downloader

            yield from stream_findings(case, given, where)
    if case.ospool and case.input_bytes > _OSPOOL_INPUT:
        size, most = format_size(case.input_bytes), format_size(_OSPOOL_INPUT)
        what = f"{size} of input for each job; the OSPool recommends up to {most}"
        remedy = "split the data into shards, one for each job, or stream it (mode)"
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
        remedy = "install apptainer, or remove `container` for a run on this pool"
        yield error("container-unavailable", what, remedy, "container")
        return
    scheme = image.split("://", 1)[0].lower() if "://" in image else ""
    if scheme == "docker" and not case.local:
        what = "each site pulls and converts a docker:// image again, which can take many minutes"
        remedy = f"build a .sif once (apptainer build) and {put_where_cached(case)}"
        yield hint("container-docker", what, remedy, "container")
    elif scheme in ("osdf", "stash", "pelican") and case.local:
        what = f"HTCondor brings images from {scheme}://, and the local pool cannot"
        yield error("container-scheme", what, "name a local .sif, or docker://…", "container")
    elif not scheme and not image.startswith("/cvmfs/") and not case.image_path.exists():
        what = f"there is no {image} here"
        yield error("container-missing", what, "name a .sif file, or docker://…", "container")


def _outputs(case: PreflightCase) -> Iterator[LintFinding]:
    listed: dict[str, set[str]] = {}
    for number, output in enumerate(case.job.outputs):
        where = f"outputs[{number}]"
        if output.to and not case.job.uploads(output):
            yield from _destination(case, output, f"{where}.to", listed)
        name = output.path.rstrip("/").rsplit("/", 1)[-1]
        if output.required and "{" not in name and case.scripts and not case.mentions(name):
            what = f"{output.path} is required, and neither the command nor its scripts mention it"
            remedy = "check the name; without it the attempt counts as failed"
            yield hint("output-unmentioned", what, remedy, f"{where}.path")


def _destination(
    case: PreflightCase, output: Output, where: str, listed: dict[str, set[str]]
) -> Iterator[LintFinding]:
    """Check where an output goes on the access point; each folder is listed once."""
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
        what = f"the outputs cannot be written to {folder or 'the job folder'}: {reason}"
        yield error("output-folder", what, "create the folder, or choose another", where)
    if taken and not output.overwrite:
        more = f" (and {len(taken) - 1:,} more)" if len(taken) > 1 else ""
        what = f"{taken[0]}{more} exists already, and would be overwritten"
        remedy = "move it away, or set overwrite = true"
        yield error("output-exists", what, remedy, where)


def _look_into(folder: Path) -> tuple[set[str], str]:
    """The names in a folder, and why no file can be added to it, if so."""
    try:
        names = {entry.name for entry in os.scandir(folder)}
    except FileNotFoundError:
        existing = next(parent for parent in folder.parents if parent.exists())
        if not existing.is_dir():
            return set(), f"{existing.name} is not a folder"
        allowed = os.access(existing, os.W_OK | os.X_OK)
        return set(), "" if allowed else f"you may not write to {existing}"
    except OSError as problem:
        return set(), (problem.strerror or str(problem)).lower()
    return names, "" if os.access(folder, os.W_OK | os.X_OK) else "you may not write to it"


def _duration(case: PreflightCase) -> Iterator[LintFinding]:
    job = case.job
    if case.ospool and job.duration is None and job.checkpoint is None:
        what = "job.toml does not say how long the job takes: the OSPool holds it after 20 h"
        remedy = 'duration = "Medium" (under 10 h) or "Long" (under 20 h), or a [checkpoint]'
        yield hint("duration", what, remedy, "duration")
    held = _CATEGORIES.get(job.duration or "")
    if held is not None and job.time_limit is not None and job.time_limit > held:
        saved = job.checkpoint is not None
        limits = format_duration(job.time_limit), format_duration(held)
        what = f"time_limit is {limits[0]}, and a {job.duration} job is held after {limits[1]}"
        what += " without a checkpoint" if saved else ""
        other = 'duration = "Long", or ' if job.duration == "Medium" else ""
        remedy = f"{other}write a checkpoint at least every 5 h"
        yield (hint if saved else warning)("duration-limit", what, remedy, "time_limit")


def _checkpoint(case: PreflightCase) -> Iterator[LintFinding]:
    saved = case.job.checkpoint
    if saved is None:
        return
    if saved.interval is not None and saved.interval > _LONGEST_INTERVAL:
        what = f"a checkpoint every {format_duration(saved.interval)}: an eviction costs as much"
        if case.ospool:
            what += ", and the OSPool may hold such a long job"
        yield warning("checkpoint-interval", what, 'interval = "2 h"', "checkpoint.interval")
    if not case.scripts:
        return
    names = {path.rstrip("/").rsplit("/", 1)[-1] for path in saved.paths}
    if not any(case.mentions(name) for name in names):
        what = f"the command and its scripts never mention {' or '.join(sorted(names))}"
        remedy = "write the checkpoint there, and read it at the start if it exists"
        yield hint("checkpoint-paths", what, remedy, "checkpoint.paths")
    elif not (case.mentions(str(saved.exit_code), word=True) or case.mentions(_OUR_MODULE)):
        what = f"the command and its scripts never mention {saved.exit_code}"
        remedy = f"after writing the checkpoint, exit with {saved.exit_code}"
        yield hint("checkpoint-code", what, remedy, "checkpoint.exit_code")


# The job's files: do they exist, can they be packed, and are they small enough to transfer?

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
            yield error("file-dangling", what, "correct the link, or leave it out", where)
        else:
            near = closest(path.name, case.siblings(name.rpartition("/")[0]))
            remedy = f"did you mean {near}?" if near else "correct the name in `files`"
            yield error("file-missing", "does not exist", remedy, where)
        return
    except OSError as problem:
        what = f"cannot be read: {(problem.strerror or str(problem)).lower()}"
        yield error("file-unreadable", what, "check its permissions", where)
        return
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        what = "is a socket, pipe or device, which cannot be packed"
        yield error("file-special", what, "leave it out of `files`", where)
    elif not os.access(path, os.R_OK | (os.X_OK if stat.S_ISDIR(kind) else 0)):
        yield error("file-unreadable", "cannot be read", f"chmod u+r {name}", where)
    elif stat.S_ISDIR(kind) and path.is_symlink() and not _link_holds(case, name, path):
        what = f"is a link to the folder {os.readlink(path)}, which does not go with the job"
        remedy = "replace the link by a copy of the folder, or declare its files as inputs"
        yield error("file-link", what, remedy, where)


def _link_holds(case: PreflightCase, name: str, path: Path) -> bool:
    """Whether the target of a link to a folder is packed too."""
    target = os.readlink(path)
    inside = os.path.normpath(os.path.join(os.path.dirname(name), target))
    if inside.startswith(("/", "../")):
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
            f"{format_size(total)} would go through HTCondor's own transfer, which allows"
            f" {format_size(limit)} here (hold code 32). The biggest: {named}"
        )
        remedy = "put large files behind a URL and declare them as inputs"
        yield error("payload-size", what, remedy, "files")
    elif case.image_bytes > _BIG and not case.local:
        what = f"an image of {format_size(case.image_bytes)} goes from here to every node"
        remedy = f"{put_where_cached(case)}, and name that in `container`"
        yield hint("container-size", what, remedy, "container")


def _disk(case: PreflightCase) -> Iterator[LintFinding]:
    """The payload needs its size twice, because its archive is there too."""
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
        what = f"asks for {format_size(asked)}; {format_size(need)} are declared ({shown}), which"
        what += " leaves little for what the command writes"
        yield warning("disk", what, remedy, "resources.disk")


# Which slots of the pool could run the job.

_WAYS = 2  # to match, the best first
_SHOWN = 5  # sites
_PLATFORM = {"arch": "architecture", "opsys": "operating system"}
_GROWS = {
    "pilots": "pilots may bring others for jobs that ask for them",
    "flocking": "this access point also sends jobs to other pools",
    "the job router": "this access point's job router may send jobs elsewhere",
}


def slot_findings(job: Job, match: Match, strict: bool | None = None) -> Iterator[LintFinding]:
    """Why no slot of the pool could run a job, or no courier bring its outputs home.

    Args:
        job: The job.
        match: How the slots compare with the job's needs.
        strict: True refuses a job that no current slot could run, False only warns. None refuses
            it if the pool can have no other slots.

    Yields:
        The finding that no slot matches and what would, then each need that rules slots out.
    """
    if job.deliver == "later" and match.slots and not match.transfer_slots:
        what = "no node of the pool has transfer slots: the outputs go home with their jobs"
        remedy = "`headway node-config` prints what a node needs for them"
        yield warning("no-transfer-slots", what, remedy, "deliver")
    if match.matching:
        return
    make = error if strict else warning
    if match.unknown or not match.slots:
        id, what = (
            "no-slots",
            "the pool has no slots at the moment: the job waits for one that fits",
        )
        if match.unknown:
            id, what = "slots-unknown", f"the pool's slots are not known: {match.unknown}"
        yield make(id, what, "`condor_status` shows what the pool has", "pool")
        return
    if strict is None and not match.grows:
        make = error
    needs = {START: SlotNeed(START, "pool", ""), **{need.key: need for need in needs_of(job)}}
    ways = _ways(match)
    words = "; or ".join(
        f"{many(way.fitting, 'slot')} would match "
        + " and ".join(_step(needs[key], way.offer.get(key, 0.0)) for key in way.needs)
        for way in ways
    )
    if strict is None:
        words += f"; {'--strict refuses it' if match.grows else '--no-strict submits it anyway'}"
    yield make("no-slot-fits", _headline(match), words, "pool")
    keys = dict.fromkeys(key for way in ways for key in way.needs)
    keys |= dict.fromkeys(key for key in needs if match.ruled_out(key) == match.slots)
    for key in keys:
        name = "requirements" if key.startswith("requirements ") else key.replace(".", "-")
        what, remedy = _what(job, match, needs[key]), _remedy(job, match, needs[key])
        yield make(f"slots-{name}", what, remedy, needs[key].where)


def _headline(match: Match) -> str:
    many_slots = f"none of the pool's {match.slots:,} slots"
    which = many_slots if match.slots > 1 else "no slot of the pool"
    if match.grows:
        return f"{which} could run this job today; {_GROWS.get(match.grows, match.grows)}"
    return f"{which} can ever run this job: it would wait forever"


def _ways(match: Match) -> list[Lacking]:
    """The smallest changes that would make slots match, without giving up the GPUs."""
    ways: list[Lacking] = []
    for each in match.lacking:
        if not any(each.without_gpus or set(way.needs) <= set(each.needs) for way in ways):
            ways.append(each)
    return ways[:_WAYS]


def _step(need: SlotNeed, have: float) -> str:
    """How to change one need so that a slot with this amount matches."""
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
        return "ask the pool's staff what a job must set; +NAME = VALUE under [submit] sets it"
    if need.key == "only":
        unknown = [site for site in job.sites.only if site not in match.sites]
        meant = closest(unknown[0], match.sites) if unknown else None
        there = f"the slots are at {first_few(list(match.sites), _SHOWN)}"
        return f"did you mean {meant}? {there}" if meant else there
    if need.key == "arch":
        return "write `Arch == …` in `requirements`, and bring a command that runs there"
    if need.key.startswith("requirements "):
        return "`condor_status -long` shows the attributes of the slots"
    return ""


def _what(job: Job, match: Match, need: SlotNeed) -> str:
    """What the slots lack, how many of them, and the most that there is."""
    at = f"at {match.ruled_out(need.key):,} of {many(match.slots, 'slot')}"
    most = match.most.get(need.key, 0.0)
    gpus = job.resources.gpus
    each = "no GPU" if gpus is None or gpus.count == 1 else f"fewer than {gpus.count} GPUs"
    unit = 2**10 if need.key == "disk" else 2**20
    asked, largest = format_size(need.asked * unit), format_size(most * unit)
    runtime = f"the newest is {_version(most)}" if most else "their slots name none"
    start = f": `{match.starts[0]}`" if match.starts else ""
    kind = need.expression.rpartition(".")[2]
    texts = {
        "cpus": f"fewer than {many(int(need.asked), 'cpu')} {at}; the largest has {most:g}",
        "memory": f"less than {asked} of memory {at}; the largest has {largest}",
        "disk": f"less than {asked} of disk {at}; the largest has {largest}",
        "gpus": f"{each} {at}" + (f"; the most is {most:g}" if most else ""),
        "gpus.memory": f"{each} with {asked} of memory {at}; the largest GPU has {largest}",
        "gpus.capability": f"{each} of capability {need.asked:g} {at}; the highest is {most:g}",
        "gpus.runtime": f"{each} with a CUDA runtime of {_version(need.asked)} {at}; {runtime}",
        "gpus.all": f"{each} that has everything the job asks for at once {at}",
        START: f"refused by the slot's own START {at}{start}",
        "only": f"another site than {first_few(list(job.sites.only), _SHOWN)} {at}",
        "avoid": f"a site to avoid {at}",
        "container": f"no containers of this kind ({kind}) {at}",
        "scheme": f"no plugin that fetches {job.container} {at}",
        "arch": f"another architecture than this access point's {at}",
        "opsys": f"another operating system than this access point's {at}",
    }
    return texts.get(need.key, f"`{need.expression}` does not hold {at}")


def _version(figure: float) -> str:
    return f"{figure // 1000:.0f}.{figure % 1000 // 10:.0f}"


def round_down(size: float) -> str:
    """A size that is not more than `size`, short enough to type."""
    unit, factor = ("GB", 10**9) if size >= 10**9 else ("MB", 10**6)
    return f"{int(size // factor)}{unit}"


#: The option that asks for no more than a slot has.
_OPTIONS: dict[str, Callable[[float], str]] = {
    "cpus": lambda have: f"--resource cpu={have:g}",
    "memory": lambda have: f"--resource mem={round_down(have * 2**20)}",
    "disk": lambda have: f"--resource disk={round_down(have * 2**10)}",
    "gpus": lambda have: f"--resource nvidia-gpu={have:g}",
    "gpus.memory": lambda have: f"--resource gpu-mem={round_down(have * 2**20)}",
    "gpus.capability": lambda have: f"--set resources.gpus.capability={have:.1f}",
    "gpus.runtime": lambda have: f"--set resources.gpus.runtime={_version(have)}",
}
