"""The submit description: everything that HTCondor must know, so that nobody needs to watch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from headway.errors import PreflightError, Problem
from headway.node.exits import Exit
from headway.node.template import fill
from headway.pool.folder import RunFolder
from headway.pool.policy import (
    avoid_expression,
    exit_lines,
    log_lines,
    release_expression,
    remove_lines,
)
from headway.pool.prepare import by_agent, encoded_rows
from headway.spec import Job

OUT = "headway-out"
LATE_FROM = 2000  # jobs; from here on they are put into the queue bit by bit
MOST_IDLE = 1000
# In an unquoted submit value these would end an item, start a macro, or end the line.
_UNSAFE_IN_PATHS = ',;"\n\r$='


def submit_description(job: Job, folder: RunFolder, run_id: str) -> str:
    """The text of job.sub; `condor_submit job.sub` in its folder would do the same as Headway."""
    sections = (
        ("what runs", _what_runs(job, folder)),
        ("what it needs", _needs(job)),
        ("files", _files(job, folder)),
        ("with nobody watching", _policy(job)),
        ("the log knows what happened where", {"log": folder.events.as_posix(), **log_lines()}),
        ("who asked", {"+HeadwayRun": _string(run_id), "+WantIOProxy": "true"}),
        ("said in job.toml", job.submit),
    )
    lines = [f"# {job.name}: {job.size} job(s), written by headway"]
    for title, section in sections:
        if section:
            lines += ["", f"# {title}", *(f"{key} = {value}" for key, value in section.items())]
    return "\n".join([*lines, "", f"queue row,to from {folder.submit_rows.as_posix()}", ""])


def check_paths(folder: RunFolder) -> None:
    """Refuse a run folder whose path a submit description cannot carry."""
    found = sorted({letter for letter in str(folder.path) if letter in _UNSAFE_IN_PATHS})
    if found:
        raise PreflightError(
            [
                Problem(
                    str(folder.path),
                    f"HTCondor cannot take a path with {' '.join(map(repr, found))} in it",
                    "start headway in a folder with a plainer name",
                )
            ]
        )


def _what_runs(job: Job, folder: RunFolder) -> dict[str, str]:
    container = {"universe": "container", "container_image": job.container} if job.container else {}
    return {
        "universe": "vanilla",
        **{key: value for key, value in container.items() if value},
        "executable": folder.agent.as_posix(),
        "arguments": f"agent {folder.plan.name}",
        "environment": '"HEADWAY_ROW=$(row)"',
        "initialdir": f"{folder.jobs.as_posix()}/$(Process)",
        "output": "agent.out",
        "error": "agent.err",
        "notification": "never",
        **({"max_idle": str(MOST_IDLE)} if job.size > LATE_FROM else {}),
    }


def _needs(job: Job) -> dict[str, str]:
    wanted, gpus = job.resources, job.resources.gpus
    lines = {
        "request_cpus": str(wanted.cpus),
        "request_memory": f"{-(-wanted.memory // 2**20)} MB",
        "request_disk": f"{-(-wanted.disk // 2**10)} KB",
    }
    if gpus is not None:
        lines["request_gpus"] = str(gpus.count)
        if gpus.memory is not None:
            lines["gpus_minimum_memory"] = str(-(-gpus.memory // 2**20))
        if gpus.capability is not None:
            lines["gpus_minimum_capability"] = f"{gpus.capability:g}"
        if gpus.runtime is not None:
            lines["gpus_minimum_runtime"] = gpus.runtime
    if job.duration is not None:
        lines["+JobDurationCategory"] = _string(job.duration)
    lines["requirements"] = " && ".join(f"({clause})" for clause in _requirements(job))
    if job.sites.prefer:
        preferred = (f"TARGET.GLIDEIN_ResourceName =?= {_string(s)}" for s in job.sites.prefer)
        lines["rank"] = " || ".join(preferred)
    return lines


def _requirements(job: Job) -> Iterator[str]:
    site = "TARGET.GLIDEIN_ResourceName"
    if job.requirements:
        yield job.requirements
    if job.sites.only:
        yield " || ".join(f"{site} =?= {_string(name)}" for name in job.sites.only)
    for name in job.sites.avoid:
        yield f"{site} =!= {_string(name)}"
    yield avoid_expression()


def _files(job: Job, folder: RunFolder) -> dict[str, str]:
    urls = [given.urls[0] for given in job.inputs if not by_agent(given.urls)]
    home = _remap_escaped(f"{folder.jobs.as_posix()}/$(Process)")
    lines = {
        "should_transfer_files": "YES",
        # Also on eviction: the output folder, with the record and the checkpoint in it, is given to
        # the next attempt.
        "when_to_transfer_output": "ON_EXIT_OR_EVICT",
        "transfer_input_files": ", ".join(
            [folder.plan.as_posix(), folder.payload.as_posix(), *urls]
        ),
        "transfer_output_files": OUT,
        "transfer_output_remaps": f'"{OUT}={home}$(to)"',
        "job_max_vacate_time": str(math.ceil(job.grace)),
    }
    if job.checkpoint is not None:
        lines["checkpoint_exit_code"] = str(int(Exit.CHECKPOINT))
        lines["transfer_checkpoint_files"] = OUT
    return lines


def row_lines(job: Job, base: Path) -> Iterator[str]:
    """One line of rows.txt a job: its row, then where its outputs go other than the run folder."""
    placed = [output for output in job.outputs if output.to and "://" not in output.to]
    for index, row in enumerate(encoded_rows(job)):
        values = job.row(index) if placed else {}
        remaps = (
            ";"
            + _remap_escaped(f"{OUT}/outputs/{fill(output.path, values)}")
            + "="
            + _remap_escaped((base / fill(output.to or "", values)).as_posix())
            for output in placed
        )
        yield f"{row} {''.join(remaps)}".rstrip()


def _policy(job: Job) -> dict[str, str]:
    return {
        **exit_lines(job.retries),
        "periodic_release": release_expression(job.retries),
        **remove_lines(),
    }


def _remap_escaped(path: str) -> str:
    return path.replace("\\", "\\\\").replace("=", "\\=").replace(";", "\\;")


def _string(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
