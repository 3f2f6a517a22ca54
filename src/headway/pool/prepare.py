"""From a job to a run folder that is ready to submit: the plan, the payload and the agent."""

from __future__ import annotations

import base64
import contextlib
import csv
import errno
import hashlib
import importlib.util
import io
import json
import logging
import marshal
import os
import stat
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

import headway.node
from headway.errors import Problem, SpecError
from headway.node.files import write_atomically
from headway.node.plan import PAYLOAD, fill, placeholders
from headway.pool.folder import RunFacts, RunFolder, Runs, check_own, others_can_write
from headway.spec import Input, Job, dump_job
from headway.text import many

_log = logging.getLogger(__name__)

_FOR_COMMANDS = ("checkpoint", "files", "torch")  # what a command may import besides the node half
_YOUNG = 3600.0  # seconds; a newer program may be about to get its first run
PROGRAM = 0o555  # the permissions of a file that runs share
_STAMP = (1980, 1, 1, 0, 0, 0)  # the same sources give the same bytes
#: Bytes of outputs from which on a sandbox pays: a courier costs about a second of its own.
SMALLEST_SANDBOX = 10_000_000
SMALLEST_PREFETCH = 20_000_000  # bytes: for fewer, a start on a transfer slot does not pay
LONGEST_DELIVERY = 86400.0  # seconds that a courier may take to send a sandbox
_NEVER_PACKED = {".headway", ".git", "__pycache__", ".venv"}
# The real headway/__init__.py belongs to the access point and may import anything. Where Headway is
# installed for the command, its other parts are still found, after those of this file.
_INIT = """\
import sys

from headway.node import VERSION as __version__

__path__ += [f"{place}/headway" for place in sys.path if place and not __file__.startswith(place)]
"""
_MAIN = "import sys\n\nfrom headway.node.__main__ import start\n\nstart(sys.argv[1:])\n"


def build_agent(path: Path) -> None:
    """Write headway-node.pyz: a shell stub that finds a Python, then a zip file of the sources."""
    write_atomically(path, _agent_bytes(), 0o755)


def share_agent(path: Path, store: Path) -> None:
    """Give a run its headway-node.pyz: a hard link to a file that the runs share.

    The run keeps it whatever becomes of the store or of other runs. Without hard links (AFS) the
    run gets a copy.
    """
    data = _agent_bytes()
    store.mkdir(mode=0o700, exist_ok=True)
    check_own(store)
    shared = store / f"headway-node-{short_digest(data)}.pyz"
    link_shared(shared, path, lambda: shared.read_bytes() == data, lambda: data)


def link_shared(
    shared: Path, path: Path, is_good: Callable[[], bool], make: Callable[[], bytes]
) -> None:
    """Make `path` a link to `shared`, which is made again where it is missing or damaged."""
    for _ in range(3):
        if not (_is_own(shared) and is_good()):
            write_atomically(shared, make(), PROGRAM)
        try:
            os.link(shared, path, follow_symlinks=False)
            return
        except FileNotFoundError:
            continue  # another process has cleaned up the store
        except OSError:
            break
    write_atomically(path, make(), PROGRAM)


def drop_unused(store: Path, *, act: bool = True) -> int:
    """Remove the programs that no run links to any more; returns their bytes."""
    freed = 0
    for file in store.glob("*headway-node*") if store.is_dir() else ():
        with contextlib.suppress(OSError):
            found = file.lstat()
            if found.st_nlink == 1 and time.time() - found.st_mtime > _YOUNG:
                freed += found.st_size
                if act:
                    file.unlink()
    return freed


def short_digest(data: bytes) -> str:
    """The digest that is part of a program's file name."""
    return hashlib.sha256(data).hexdigest()[:20]


def _is_own(file: Path) -> bool:
    """Whether a file exists that nobody but this user can have written."""
    try:
        found = file.lstat()
    except OSError:
        return False
    own = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
    return own and not others_can_write(found)


def is_agent(path: Path) -> bool:
    """Whether a file is a headway-node.pyz, of this or another version of Headway."""
    first = (Path(headway.node.__path__[0]) / "stub.sh").read_bytes().split(b"\n")[1]
    with path.open("rb") as file:
        return first in file.read(len(first) + 64)


def packed(package: Path) -> list[Path]:
    """The sources that go into headway-node.pyz, below the folder of the package."""
    names = ("node", *_FOR_COMMANDS)
    files = [file for name in names if (file := package / f"{name}.py").is_file()]
    return files + [file for name in names for file in (package / name).rglob("*.py")]


def _agent_bytes() -> bytes:
    root = Path(headway.node.__path__[0])
    sources = {
        f"headway/{file.relative_to(root.parent).as_posix()}": file.read_bytes()
        for file in packed(root.parent)
    }
    sources["headway/__init__.py"] = _INIT.encode()
    sources["__main__.py"] = _MAIN.encode()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        for name in sorted(sources):
            entry = zipfile.ZipInfo(name, _STAMP)
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED  # the stub skips a Python without zlib
            file.writestr(entry, sources[name])
    return (root / "stub.sh").read_bytes() + archive.getvalue()


def compile_agent(agent: Path, store: Path) -> Path:
    """A headway-node.pyz that also has modules compiled for this Python; itself if that fails.

    It starts in half the time, and the runs share it as they do the agent itself.
    """
    tag = f"{sys.implementation.cache_tag}{agent.suffix}"
    made = agent.with_name(f"{agent.stem}.{tag}")
    if made.exists():
        return made
    try:
        data = agent.read_bytes()
        shared = store / f"{agent.stem}-{short_digest(data)}.{tag}"
        if store.is_dir():
            link_shared(shared, made, lambda: zipfile.is_zipfile(shared), lambda: _compiled(data))
        else:  # an older Headway made the run, or it was moved
            write_atomically(made, _compiled(data), PROGRAM)
    except (OSError, ValueError, SyntaxError, zipfile.BadZipFile):
        return agent
    return made


@lru_cache(maxsize=1)  # a process that prepares several runs compiles once
def _compiled(data: bytes) -> bytes:
    archive = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(data)) as given,
        zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as made,
    ):
        stub = data[: min(entry.header_offset for entry in given.infolist())]
        for entry in given.infolist():
            source = given.read(entry)
            made.writestr(entry, source)
            if entry.filename.endswith(".py"):
                code = compile(source, entry.filename, "exec", dont_inherit=True)
                # the flag 1: Python does not check it against its source
                head = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little")
                module = head + importlib.util.source_hash(source) + marshal.dumps(code)
                made.writestr(zipfile.ZipInfo(f"{entry.filename}c"), module)
    return stub + archive.getvalue()


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


def image_path(container: str, base: Path) -> str:
    """The URL or the full path of a container image."""
    return container if "://" in container else (base / container).as_posix()


def encoded_row(job: Job, index: int) -> str:
    """A job's row as base64url JSON, which needs no quoting in a submit description."""
    text = json.dumps(job.row(index), ensure_ascii=False, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode("ascii")


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
