"""Preflight: what would make a job fail on this pool, said before it is submitted."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from headway.node.probe import ZSTD
from headway.pool.base import Limits
from headway.pool.match import Match
from headway.pool.preflight.case import Case, put_where_cached
from headway.pool.preflight.command import command_findings
from headway.pool.preflight.files import file_findings
from headway.pool.preflight.findings import (
    Finding,
    Severity,
    error,
    hint,
    raise_errors,
    warning,
    worst_first,
)
from headway.pool.preflight.slots import round_down, slot_findings
from headway.pool.preflight.streams import stream_findings
from headway.pool.prepare import agent_urls, by_agent, not_in_shell
from headway.spec import Job, Output, format_duration, format_size
from headway.text import many

__all__ = ["Finding", "Severity", "preflight", "raise_errors"]

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
) -> list[Finding]:
    """Everything worth saying about `job` before `pool` gets it, worst first.

    `base` is the folder of job.toml, `match` a look at the pool's slots; `slot_findings` explains
    `strict`. Only the job's own files are looked at; nothing is fetched.
    """
    case = Case(job, base, limits, pool)
    checks: tuple[Callable[[Case], Iterator[Finding]], ...] = (
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
    return worst_first((*slots, *(finding for part in checks for finding in part(case))))


def _requests(case: Case) -> Iterator[Finding]:
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
        yield make(f"request-{key}", f"resources.{key}", what, remedy)


def _gpus(case: Case) -> Iterator[Finding]:
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
        yield make("request-gpus", f"{where}.count", what, remedy)
    if case.ospool and asked.count > _OSPOOL_GPUS:
        what = (
            f"few machines of the OSPool have {asked.count} GPUs free at once: expect a long wait"
        )
        remedy = f"--resource nvidia-gpu={_OSPOOL_GPUS}, or several jobs"
        yield warning("gpu-count", f"{where}.count", what, remedy)
    if "count" not in asked.model_fields_set:
        given = " and ".join(sorted(asked.model_fields_set)) or "nothing"
        what = f"says {given} but not how many GPUs: one is asked for"
        yield hint("gpu-count-missing", where, what, "count = 1")
    if case.job.resources.cpus == 1 and case.uses_loader:
        what = f"one cpu decodes about {_DECODES} JPEGs a second: the GPU waits for it"
        yield hint("gpu-starved", "resources.cpus", what, "cpus = 4, and as many loader workers")


def _inputs(case: Case) -> Iterator[Finding]:
    job = by_agent(case.job) if case.local else case.job
    for number, given in enumerate(job.inputs):
        where = f"inputs[{number}]"
        if case.local and not agent_urls(case.job, given):
            what = "is left to the job's own transfer plugin, and the local pool runs none"
            remedy = "take transfer_plugins out of [submit]; Headway fetches it by itself"
            yield error("input-plugin", where, what, remedy)
        names = [url.lower().split("?")[0] for url in given.urls]
        if any(name.endswith(".zip") for name in names) and not given.unpack:
            what = "is a zip archive: `unzip` is missing in many containers"
            remedy = "unpack = true has the agent unpack it; or repack it as .tar and read it as is"
            yield hint("zip", where, what, remedy)
        if given.unpack and any(name.endswith(ZSTD) for name in names) and not case.local:
            what = "is unpacked only where a node has the program zstd or Python 3.14"
            remedy = "other nodes are passed over; gzip and xz are read everywhere"
            yield hint("zstd", where, what, remedy)
        if given.mode == "stream":
            yield from stream_findings(case, given, where)
    if case.ospool and case.input_bytes > _OSPOOL_INPUT:
        what = (
            f"{format_size(case.input_bytes)} of input for each job; up to"
            f" {format_size(_OSPOOL_INPUT)} are a good fit for the OSPool"
        )
        remedy = "split the data into shards, one job each, or stream it (mode)"
        yield warning("input-guideline", "inputs", what, remedy)


def _environment(case: Case) -> Iterator[Finding]:
    for problem in not_in_shell(case.job):
        yield error("not-in-shell", problem.where, problem.what, problem.remedy)


def _container(case: Case) -> Iterator[Finding]:
    image = case.job.container
    if image is None:
        return
    if not case.limits.containers:
        what = f"{image} cannot be run: this pool has no containers"
        remedy = "install apptainer, or take `container` out for a run on this pool"
        yield error("container-unavailable", "container", what, remedy)
        return
    scheme = image.split("://", 1)[0].lower() if "://" in image else ""
    if scheme == "docker" and not case.local:
        what = "each site pulls a docker:// image anew and converts it, which can take many minutes"
        remedy = f"build a .sif once (apptainer build) and {put_where_cached(case)}"
        yield hint("container-docker", "container", what, remedy)
    elif scheme in ("osdf", "stash", "pelican") and case.local:
        what = f"{scheme}:// is HTCondor's to bring, and the local pool has none"
        yield error("container-scheme", "container", what, "name a local .sif, or docker://…")
    elif not scheme and not image.startswith("/cvmfs/") and not case.image_path.exists():
        what = f"there is no {image} here"
        yield error("container-missing", "container", what, "name a .sif file, or docker://…")


def _outputs(case: Case) -> Iterator[Finding]:
    listed: dict[str, set[str]] = {}
    for number, output in enumerate(case.job.outputs):
        where = f"outputs[{number}]"
        if output.to and "://" not in output.to:
            yield from _destination(case, output, f"{where}.to", listed)
        name = output.path.rstrip("/").rsplit("/", 1)[-1]
        if output.required and "{" not in name and case.scripts and not case.mentions(name):
            what = f"{output.path} is required, and neither the command nor its scripts mention it"
            remedy = "check the name; without it the attempt counts as failed"
            yield hint("output-unmentioned", f"{where}.path", what, remedy)


def _destination(
    case: Case, output: Output, where: str, listed: dict[str, set[str]]
) -> Iterator[Finding]:
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
        yield error("output-folder", where, what, "create the folder, or choose another")
    if taken and not output.overwrite:
        more = f" (and {len(taken) - 1:,} more)" if len(taken) > 1 else ""
        what = f"{taken[0]}{more} exists already, and would have to be replaced"
        remedy = "move it away, or say overwrite = true"
        yield error("output-exists", where, what, remedy)


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


def _duration(case: Case) -> Iterator[Finding]:
    job = case.job
    if case.ospool and job.duration is None and job.checkpoint is None:
        what = "nothing says how long the job takes: the OSPool holds it after 20 h"
        remedy = 'duration = "Medium" (under 10 h) or "Long" (under 20 h), or a [checkpoint]'
        yield hint("duration", "duration", what, remedy)
    held = _CATEGORIES.get(job.duration or "")
    if held is not None and job.time_limit is not None and job.time_limit > held:
        saved = job.checkpoint is not None
        what = (
            f"time_limit is {format_duration(job.time_limit)}, and a {job.duration} job is held"
            f" after {format_duration(held)}" + (" without a checkpoint" if saved else "")
        )
        other = 'duration = "Long", or ' if job.duration == "Medium" else ""
        remedy = f"{other}write a checkpoint at least every 5 h"
        yield (hint if saved else warning)("duration-limit", "time_limit", what, remedy)


def _checkpoint(case: Case) -> Iterator[Finding]:
    saved = case.job.checkpoint
    if saved is None:
        return
    if saved.interval is not None and saved.interval > _LONGEST_INTERVAL:
        what = f"a checkpoint every {format_duration(saved.interval)}: an eviction costs that much"
        if case.ospool:
            what += ", and the OSPool may hold such a job for its length"
        yield warning("checkpoint-interval", "checkpoint.interval", what, 'interval = "2 h"')
    if not case.scripts:
        return
    names = {path.rstrip("/").rsplit("/", 1)[-1] for path in saved.paths}
    if not any(case.mentions(name) for name in names):
        what = f"the command and its scripts never mention {' or '.join(sorted(names))}"
        remedy = "write the checkpoint there, and read it at the start if it exists"
        yield hint("checkpoint-paths", "checkpoint.paths", what, remedy)
    elif not case.mentions(str(saved.exit_code), word=True) and not case.mentions(_KEEPER):
        what = f"the command and its scripts never mention {saved.exit_code}"
        remedy = f"after writing the checkpoint, exit with {saved.exit_code}"
        yield hint("checkpoint-code", "checkpoint.exit_code", what, remedy)
