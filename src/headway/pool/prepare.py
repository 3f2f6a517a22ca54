"""From a job to a run folder that is ready to submit."""

from __future__ import annotations

import base64
import csv
import errno
import hashlib
import io
import json
import os
import stat
import tarfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from headway.errors import Problem, SpecError
from headway.node.template import fill
from headway.pool.folder import RunFacts, RunFolder, Runs
from headway.pool.package import share_agent
from headway.spec import Input, Job, dump_job

_NEVER_PACKED = {".headway", ".git", "__pycache__", ".venv"}


def prepare(
    job: Job, base: Path, runs: Runs, pool: Mapping[str, Any], digest: str, kept: str = ""
) -> RunFolder:
    """A new run folder, whole or not at all; `kept`: the text of its kept.json, if it has one."""

    def write(folder: RunFolder, facts: RunFacts) -> None:
        for file in (folder.job_file, folder.plan, folder.payload):
            file.touch(0o600)  # `environment` and `files` may hold what is nobody else's business
        folder.job_file.write_text(dump_job(job), encoding="utf-8")
        # the local pool has no plugins: whatever a plugin would bring, the agent fetches
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

    return runs.create(job.name, pool=pool, base=base, digest=digest, fill=write)


def not_in_shell(job: Job) -> list[Problem]:
    """The variables that the job takes from the shell, and that are not set there."""
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
    """What the agent is to do, with placeholders still in it."""
    return {
        "format": 1,
        "run": run_id,
        "name": job.name,
        "command": list(job.command),
        "shell": job.shell,
        "environment": job.written_environment,
        "secrets": sorted(job.from_shell),
        "payload": "payload.tar",
        "inputs": [
            {
                "urls": agent_urls(job, given),
                "path": given.file,
                "unpack": given.path if given.unpack else None,
                "arrives_as": url_basename(given.urls[0]),
                "checksum": given.checksum,
                "size": given.size,
                "manifest": given.manifest,
                "patience": given.patience,
                "mode": given.mode,
                "keep": given.keep,
                "window": given.window,
            }
            for given in job.inputs
        ],
        "outputs": [
            {
                "path": output.path,
                "to": output.to if output.to and "://" in output.to else None,
                "required": output.required,
                "min_size": output.min_size,
                "overwrite": output.overwrite,
            }
            for output in job.outputs
        ],
        "checkpoint": job.checkpoint.model_dump(mode="json") if job.checkpoint else None,
        "disk": job.resources.disk,
        "gpus": job.resources.gpus.count if job.resources.gpus else 0,
        "grace": job.grace,
        "time_limit": job.time_limit,
    }


def agent_urls(job: Job, given: Input) -> list[str]:
    """The mirrors that the agent fetches from; if there are none, HTCondor brings the first."""
    if given.via == "plugin":
        return []
    own = plugin_schemes(job)
    return [url for url in given.urls if not schemes(job, url) & own]


def by_agent(job: Job) -> Job:
    """The job as it is where nothing but the agent brings inputs."""
    inputs = tuple(given.model_copy(update={"via": "agent"}) for given in job.inputs)
    return job.model_copy(update={"inputs": inputs})


def plugin_schemes(job: Job) -> set[str]:
    """The schemes for which the job brings a plugin of its own: those are left to HTCondor."""
    lines = {key.lower(): value for key, value in job.submit.items()}
    plugins = lines.get("transfer_plugins", "").split(";")
    named = (plugin.partition("=")[0] for plugin in plugins if "=" in plugin)
    return {scheme.strip().lower() for each in named for scheme in each.split(",")}


def schemes(job: Job, url: str) -> set[str]:
    """The schemes of a URL; one that begins with a placeholder may have several."""
    filled = (
        (fill(url, job.row(index)) for index in range(job.size)) if url.startswith("{") else (url,)
    )
    # what stands before a `+` is the name of a credential
    return {each.split("://", 1)[0].lower().rpartition("+")[2] for each in filled}


def url_basename(url: str) -> str:
    """The name under which HTCondor delivers a URL."""
    return PurePosixPath(url.split("://", 1)[-1].split("?", 1)[0]).name


def image_path(container: str, base: Path) -> str:
    """A container image by its URL, or by a path that means the same everywhere."""
    return container if "://" in container else (base / container).as_posix()


def encoded_row(job: Job, index: int) -> str:
    """A job's row as base64url JSON, which no submit language can misread."""
    text = json.dumps(job.row(index), ensure_ascii=False, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode("ascii")


def rows_csv(job: Job) -> str:
    """The table as it was at submit, with the number of each job before its row."""
    text = io.StringIO()
    columns = [name for name in (job.rows or ({},))[0] if name != "job"]
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["job", *columns])
    for index in range(job.size):
        row = job.row(index)
        lines.writerow([row["job"], *(row[name] for name in columns)])
    return text.getvalue()


def packed_files(files: tuple[str, ...], base: Path) -> list[tuple[str, Path]]:
    """Every file and folder that goes into the payload, as (name within it, place here)."""
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
    """Pack the job's files as they are now, so that later edits do not reach waiting jobs."""
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
    """A link is packed as what it points to, but within a folder a link to a folder, or to nothing.

    So is no folder packed twice; one that job.toml names itself is meant with what is in it.
    """
    return path.is_symlink() and not named and (path.is_dir() or not path.exists())


def _unreadable(name: str, error: OSError) -> SpecError:
    remedy = "remove it, or take it out of `files`"
    return SpecError(
        [Problem(f"files: {name}", f"cannot be read: {error.strerror or error}", remedy)]
    )


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode |= stat.S_IRUSR | stat.S_IWUSR
    return entry


def job_digest(job: Job, base: Path, pool: str) -> str:
    """The same job, files and pool give the same digest; times of files do not matter."""
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
