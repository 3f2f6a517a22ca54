"""From a job to a run folder that is ready to submit: the plan, the payload and the agent."""

from __future__ import annotations

import csv
import errno
import hashlib
import io
import json
import logging
import os
import stat
import tarfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from headway.errors import Problem, SpecError
from headway.node.plan import PAYLOAD, fill, placeholders
from headway.pool.folder import RunFacts, RunFolder, Runs
from headway.pool.program import share_agent
from headway.spec import Input, Job, dump_job
from headway.text import many

_log = logging.getLogger(__name__)

#: Bytes of outputs from which on a sandbox pays. To leave so many in a store takes the slot 7 ms
#: (1 GB: 0.5 s); to send them, 80 ms on a gigabit line and 1 s at 10 MB/s. A courier needs about a
#: second of a transfer slot.
SMALLEST_SANDBOX = 10_000_000
SMALLEST_PREFETCH = 20_000_000  # bytes: for fewer, a start on a transfer slot does not pay
LONGEST_DELIVERY = 86400.0  # seconds that a courier may take to send a sandbox
_NEVER_PACKED = {".headway", ".git", "__pycache__", ".venv"}


def prepare(
    job: Job, base: Path, runs: Runs, pool: Mapping[str, Any], digest: str, kept: str = ""
) -> RunFolder:
    """Make a new run folder, completely or not at all; `kept`: the text of kept.json, if any."""

    def write(folder: RunFolder, facts: RunFacts) -> None:
        for file in (folder.job_file, folder.plan, folder.payload):
            file.touch(0o600)  # `environment` and `files` may be private
        folder.job_file.write_text(dump_job(job), encoding="utf-8")
        # the local pool has no plugins: the agent downloads what a plugin would
        planned = by_agent(job) if pool["kind"] == "local" else job
        text = json.dumps(plan(planned, facts.id), indent=1)
        folder.plan.write_text(f"{text}\n", encoding="utf-8")
        if job.from_shell:
            folder.secrets.touch(0o600)
            folder.secrets.write_text(json.dumps(_shell_values(job)), encoding="ascii")
        if job.rows is not None:
            folder.rows.write_text(rows_csv(job), encoding="utf-8")
        if kept:
            folder.kept.write_text(kept, encoding="utf-8")
        write_payload(job.files, base, folder.payload)
        share_agent(folder.agent, folder.programs)
        folder.jobs.mkdir(0o755)

    folder = runs.create(job.name, pool=pool, base=base, digest=digest, fill=write)
    _log.info("%s is made for %s", folder.path, many(job.size, "job"))
    return folder


def not_in_shell(job: Job) -> list[Problem]:
    """The variables that the job takes from the shell but that are not set there."""
    return [
        Problem(
            f"environment.{name}",
            f"the variable {there} is not set in this shell",
            f'`export {there}=…` sets it; the text ${there} itself is written "$${there}"',
        )
        for name, there in job.from_shell.items()
        if there not in os.environ
    ]


def _shell_values(job: Job) -> dict[str, str]:
    problems = not_in_shell(job)
    if problems:
        raise SpecError(problems)
    return {name: os.environ[there] for name, there in job.from_shell.items()}


def plan(job: Job, run_id: str) -> dict[str, Any]:
    """What plan.json tells the agent to do, with placeholders still in it."""
    return {
        "format": 1,
        "run": run_id,
        "name": job.name,
        "command": list(job.command),
        "shell": job.shell,
        "environment": job.written_environment,
        "secrets": sorted(job.from_shell),
        "payload": PAYLOAD,
        "inputs": [
            {
                "urls": agent_urls(job, given),
                "path": given.file,
                "unpack": given.path if given.unpack else None,
                "arrives_as": delivered_name(given.urls[0]),
                "checksum": given.checksum,
                "size": given.size,
                "manifest": given.manifest,
                "patience": given.patience,
                "mode": given.mode,
                "keep": given.keep,
                "store": given.store,
                "window": given.window,
            }
            for given in job.inputs
        ],
        "outputs": [
            {
                "path": output.path,
                "to": output.to if job.uploads(output) else None,
                "required": output.required,
                "min_size": output.min_size,
                "overwrite": output.overwrite,
            }
            for output in job.outputs
        ],
        "checkpoint": job.checkpoint.model_dump(mode="json") if job.checkpoint else None,
        "prefetch": prefetches(job),
        "deliver": delivery(job),
        "disk": job.resources.disk,
        "gpus": job.resources.gpus.count if job.resources.gpus else 0,
        "grace": job.grace,
        "time_limit": job.time_limit,
    }


def prefetches(job: Job) -> bool:
    """Whether it pays to bring a job's inputs to a node while another job computes there.

    Inputs that are the same for all jobs have come with the first of them.
    """
    own = [given for given in job.inputs if given.store and given.mode == "file"]
    own = [given for given in own if any(map(placeholders, agent_urls(job, given)))]
    sizes = [given.size for given in own]
    small = None not in sizes and sum(filter(None, sizes)) < SMALLEST_PREFETCH
    return job.prefetch and job.size > 1 and bool(own) and not small


def delivery(job: Job) -> dict[str, float] | None:
    """What the plan says of outputs that go home after their job has ended; None: with it."""
    if job.deliver == "now":
        return None
    return {"smallest": SMALLEST_SANDBOX, "stays": 2 * job.deliver_within + LONGEST_DELIVERY}


def agent_urls(job: Job, given: Input) -> list[str]:
    """The mirrors that the agent downloads from; if there are none, HTCondor brings the first."""
    if given.via == "plugin":
        return []
    own = plugin_schemes(job)
    return [url for url in given.urls if not schemes(job, url) & own]


def by_agent(job: Job) -> Job:
    """The job as it is on a pool where only the agent brings inputs."""
    inputs = tuple(given.model_copy(update={"via": "agent"}) for given in job.inputs)
    return job.model_copy(update={"inputs": inputs})


def plugin_schemes(job: Job) -> set[str]:
    """The schemes for which the job brings a plugin of its own; HTCondor handles those."""
    lines = {key.lower(): value for key, value in job.submit.items()}
    plugins = lines.get("transfer_plugins", "").split(";")
    named = (plugin.partition("=")[0] for plugin in plugins if "=" in plugin)
    return {scheme.strip().lower() for each in named for scheme in each.split(",")}


def schemes(job: Job, url: str) -> set[str]:
    """The schemes of a URL; one that begins with a placeholder may have several."""
    rows = (job.row(index) for index in range(job.size))
    urls = (fill(url, row) for row in rows) if url.startswith("{") else (url,)
    # before a `+` stands the name of a credential
    return {each.split("://", 1)[0].lower().rpartition("+")[2] for each in urls}


def delivered_name(url: str) -> str:
    """The name under which HTCondor delivers a URL."""
    return PurePosixPath(url.split("://", 1)[-1].split("?", 1)[0]).name


def rows_csv(job: Job) -> str:
    """The table at submit as CSV, with the number of each job before its row."""
    text = io.StringIO()
    lines = csv.DictWriter(text, list(job.row(0)), lineterminator="\n")
    lines.writeheader()
    lines.writerows(job.row(index) for index in range(job.size))
    return text.getvalue()


def packed_files(files: tuple[str, ...], base: Path) -> list[tuple[str, Path]]:
    """Every file and folder that goes into the payload: its name there, and its path here."""
    found: dict[str, Path] = {}
    for name in files:
        found[PurePosixPath(name).as_posix()] = base / name
        if (base / name).is_dir():
            for folder, subfolders, names in os.walk(base / name):
                subfolders[:] = sorted(set(subfolders) - _NEVER_PACKED)
                for entry in [*subfolders, *sorted(names)]:
                    path = Path(folder) / entry
                    found[path.relative_to(base).as_posix()] = path
    return sorted((name, path) for name, path in found.items() if name != ".")


def write_payload(files: tuple[str, ...], base: Path, target: Path) -> None:
    """Pack the job's files as they are now, so that later edits do not affect waiting jobs."""
    named = {PurePosixPath(name).as_posix() for name in files}
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        for name, path in packed_files(files, base):
            archive.dereference = not _stays_link(path, name in named)
            try:
                archive.add(path, arcname=name, recursive=False, filter=_anonymous)
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                    raise  # it is the payload that cannot be written
                raise _unreadable(name, error) from error


def _stays_link(path: Path, named: bool) -> bool:
    """Whether a link is packed as a link, and not as what it points to.

    Links to folders, or to nothing, are: so no folder is packed twice. A link that job.toml names
    itself is not.
    """
    return path.is_symlink() and not named and (path.is_dir() or not path.exists())


def _unreadable(name: str, error: OSError) -> SpecError:
    what = f"cannot be read: {error.strerror or error}"
    return SpecError([Problem(f"files: {name}", what, "remove it, or take it out of `files`")])


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode |= stat.S_IRUSR | stat.S_IWUSR
    return entry


def job_digest(job: Job, base: Path, pool: str) -> str:
    """A digest that is the same for the same job, files and pool; times of files do not matter."""
    digest = hashlib.sha256()
    for part in (dump_job(job), str(base), pool):
        digest.update(hashlib.sha256(part.encode("utf-8", "surrogateescape")).digest())
    named = {PurePosixPath(name).as_posix() for name in job.files}
    for name, path in packed_files(job.files, base):
        digest.update(hashlib.sha256(os.fsencode(name)).digest())
        try:
            digest.update(_content_digest(path, name in named))
        except OSError as error:
            raise _unreadable(name, error) from error
    return digest.hexdigest()


def _content_digest(path: Path, named: bool) -> bytes:
    if _stays_link(path, named):
        return hashlib.sha256(b"link\0" + os.fsencode(path.readlink())).digest()
    if not path.is_file():
        return hashlib.sha256(b"folder").digest()
    with path.open("rb") as file:
        runs = os.fstat(file.fileno()).st_mode & stat.S_IXUSR
        digest = hashlib.sha256(b"program\0" if runs else b"file\0")
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.digest()
