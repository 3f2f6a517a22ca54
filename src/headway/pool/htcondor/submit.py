"""The submit description: everything that HTCondor must know to run the jobs on its own.

Some inputs come through HTCondor's plugins before the agent starts, and others could. A node may
let plugins into the network but not the job. An agent that finds itself on a second such node has
its job's next attempts bring the inputs by Headway's plugin: the submit description has the lists
for that in attributes, and the agent points HTCondor's own attributes at them by chirp. It sends no
URL that way, since HTCondor writes what it sends into the event log.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from headway.errors import PreflightError, Problem
from headway.node.classad import quoted
from headway.node.errors import Exit
from headway.node.host import TRANSFER_SLOT
from headway.node.plan import AGENT, OUT, PAYLOAD, PLAN, SECRETS, fill, placeholders
from headway.node.stage import INPUT, PLUGINS
from headway.node.store.inputs import Wanted
from headway.node.store.sweeper import INPUTS, advertised
from headway.node.transfer.manifest import SUFFIX, manifest_url
from headway.pool.folder import RunFolder
from headway.pool.htcondor.dag import Node, dag_text
from headway.pool.htcondor.node_config import WANTS_STORE
from headway.pool.htcondor.pairs import node_name, pair
from headway.pool.lint.submit_file import canonical, split_list
from headway.pool.match import at_sites, requests
from headway.pool.policy import (
    JOB,
    NOT_AVOIDED,
    NOT_PREFETCHED_ELSEWHERE,
    PAIRED,
    avoid_lines,
    courier_lines,
    courier_needs,
    exit_lines,
    for_couriers,
    log_lines,
    on_transfer_slot,
    prefetch_lines,
    release_expression,
    remove_lines,
)
from headway.pool.prepare import agent_urls, delivered_name, plugin_schemes, prefetches, schemes
from headway.pool.program import encoded_row
from headway.spec import Input, Job
from headway.spec.places import image_path
from headway.text import many

MOST_IDLE = 1000
HOLDS = "HeadwayHolds"  # whether a slot's node holds the job's inputs
HOLDERS_FIRST = 60  # seconds for which a job waits for such a node
SAVING = 30  # seconds after the grace in which the agent saves the checkpoint
KEY = "transfer_plugins"
_NETWORK = frozenset(("osdf", "stash", "pelican", "https", "http"))
_PLAIN_NAME = re.compile(r"[\w.+-]+")
_OWN = (PLAN, PAYLOAD, SECRETS, AGENT)
_UNSAFE = re.compile(r'[,"\\$]')  # ends an item or the string, or begins a macro or an escape
_PULLED = ("docker://", "oras://", "/cvmfs/")  # images that the node gets by itself
_INCLUDED = "include : $(told)"
_SEPARATOR = "\x1f"  # between the values of one line of job.rows: no value holds it
_COLUMNS = ("row", "brought", "to", "spare", "number")
_MACRO = re.compile(r"\$\w*\(|\$\$")
_UNSAFE_IN_PATHS = ',"\n\r$\\'  # end an item or the line, or begin a macro, in an unquoted value


# Common input: what all jobs of a run need, and HTCondor brings to a node once for all of them.
#
# The first job of the run on a node waits until it is there; the jobs on that node then get hard
# links to it. On a node that cannot do this, each job gets a copy of its own.

#: Bytes from which on it pays. HTCondor needs one to two seconds to set it up on each node, which
#: is what a gigabit line needs for two or three more copies of this size.
LEAST = 50_000_000
#: Jobs; more than these are put into the queue in portions. HTCondor 25.14.1 then makes no job at
#: all if they have common input.
LATE_FROM = 2000
#: Lines of job.toml by which the user decides, or puts jobs into the queue in portions.
_USERS = {
    canonical(key)
    for key in (
        *("transfer_common_input", "transfer_common_input_files", "common_input_files"),
        *("container_is_common", "require_common_files_transfer", "materialize_max_idle"),
    )
}


class CommonInput(NamedTuple):
    """Which files of a run are common input."""

    payload: bool = False
    image: bool = False


NOTHING = CommonInput()


def worth_sharing(job: Job, payload: int, image: int) -> CommonInput:
    """What of a run is worth bringing to a node only once.

    Args:
        job: The job.
        payload: The size of its packed files, in bytes.
        image: The size of its container image, if that is a file of this machine; else 0.

    Returns:
        What is large enough, if there are several jobs, not too many of them, and job.toml does not
        say otherwise.
    """
    if not 2 <= job.size <= LATE_FROM or _USERS.intersection(map(canonical, job.submit)):
        return NOTHING
    return CommonInput(payload >= LEAST, image >= LEAST)


def submit_description(
    job: Job,
    folder: RunFolder,
    run_id: str,
    base: Path,
    common: CommonInput = NOTHING,
    *,
    holders_first: bool = False,
    paired: bool = False,
) -> str:
    """The text of job.sub, which `condor_submit` would take.

    Args:
        job: The job.
        folder: Its run folder.
        run_id: The run's id.
        base: The folder of job.toml.
        common: What HTCondor brings to a node once for all jobs.
        holders_first: At first only nodes will do whose store holds the job's inputs.
        paired: Each job, and each courier, is a node of a DAG, which sets the macros of its row.

    Returns:
        The text, with its queue statement.

    Raises:
        PreflightError: job.toml sets a key that Headway writes itself.
    """
    later, ahead = job.deliver == "later", prefetches(job)
    sections: dict[str, Mapping[str, str]] = {
        "what runs": _what_runs(job, folder, base, common, paired),
        "what it needs": _needs(job, holders_first),
        "files": _files(job, folder, base, common),
        "with nobody watching": {
            **avoid_lines(job.retries),
            **exit_lines(job.retries, later=later, ahead=ahead),
            "periodic_release": release_expression(job.retries),
            **remove_lines(),
        },
        **({"outputs go home later": courier_lines(job.deliver_within)} if later else {}),
        **({"inputs come ahead": prefetch_lines(_within(job))} if ahead else {}),
        "the log knows what happened where": {"log": folder.events.as_posix(), **_log(job)},
        "who asked": {
            "batch_name": folder.label,
            "+HeadwayRun": quoted(run_id),
            "+WantIOProxy": "true",
            **({f"+{JOB}": "$(number)", f"+{PAIRED}": "$(paired)"} if paired else {}),
        },
    }
    lists = {canonical(key) for key in (*log_lines(), KEY)}
    users = {key: value for key, value in job.submit.items() if canonical(key) not in lists}
    if later and ahead:  # the second is the first, and more
        sections["outputs go home later"] = {
            key: text
            for key, text in sections["outputs go home later"].items()
            if key not in sections["inputs come ahead"]
        }
    own = {canonical(key) for section in sections.values() for key in section}
    what, remedy = "is written by Headway itself", "docs/job-toml.md shows the keys of job.toml"
    twice = [key for key in users if canonical(key) in own]
    if twice:
        problems = [Problem(f"submit.{key}", what, f"leave it out; {remedy}") for key in twice]
        raise PreflightError(problems)
    lines = [f"# {job.name}: {many(job.size, 'job')}, written by headway"]
    for title, section in {**sections, "said in job.toml": users}.items():
        if section:
            lines += ["", f"# {title}", *(f"{key} = {value}" for key, value in section.items())]
    queue = f"queue {','.join(_COLUMNS)} from {folder.submit_rows.as_posix()}"
    if paired:
        queue = f"# where its sandbox is, if it is the courier of another job\n{_INCLUDED}\nqueue"
    return "\n".join([*lines, "", queue, ""])


def _within(job: Job) -> float | None:
    """For how many seconds outputs wait for couriers; None: they do not."""
    return job.deliver_within if job.deliver == "later" else None


def _has_couriers(job: Job) -> bool:
    """Whether it may start on a transfer slot: there it needs neither its inputs nor its image."""
    return job.deliver == "later" or prefetches(job)


def dag(job: Job, folder: RunFolder, run_id: str, base: Path) -> str:
    """The text of a DAG of the jobs and their couriers."""
    nodes: list[Node] = []
    for line in row_lines(job, base):
        macros = dict(zip(_COLUMNS, line.split(_SEPARATOR), strict=True))
        nodes += pair(run_id, int(macros["number"]), folder.submit_file.name, macros)
    return dag_text(nodes, folder.dag_settings.name)


def courier_description(
    job: Job, description: str, run_id: str, base: Path, number: int, told: str, dagman: int
) -> str:
    """The text that submits the courier of a job anew, once DAGMan does not do so any more.

    Args:
        job: The job.
        description: The description of all jobs of the run.
        run_id: The run's id.
        base: The folder of job.toml.
        number: The number of the job.
        told: The lines that say where its sandbox is.
        dagman: DAGMan's cluster: by it the courier belongs to the run.
    """
    values = next(islice(row_lines(job, base), number, None)).split(_SEPARATOR)
    macros = {**dict(zip(_COLUMNS, values, strict=True)), "paired": "false"}
    given = "".join(f"{key} = {value}\n" for key, value in macros.items())
    # The log names its node as it does for DAGMan's own jobs; HTCondor before 25 does so by notes.
    node = node_name("courier", run_id, number)
    names = f"MY.DAGNodeName = {quoted(node)}\nsubmit_event_notes = DAG Node: {node}\n"
    own = f"{told}MY.DAGManJobId = {dagman}\n{names}"
    return given + description.replace(f"{_INCLUDED}\n", own)


def with_courier(job: Job, attribute: str, value: str) -> str:
    """A new request of a job that may start as a courier, which asks for as little as ever.

    Args:
        job: The job.
        attribute: The attribute of the job's ad.
        value: What the job is to have.
    """
    if not _has_couriers(job):
        return value
    found = courier_needs(later=_within(job), ahead=prefetches(job))
    courier = {key.replace("_", ""): need for key, need in found.items()}.get(attribute.lower())
    return value if courier is None else for_couriers(courier, value)


def check_paths(job: Job, folder: RunFolder, base: Path) -> None:
    """Refuse paths and URLs that HTCondor would misread in a submit description."""
    problems = [*_bad_places(job, folder, base), *_bad_outputs(job), *_bad_brought(job)]
    if problems:
        raise PreflightError(problems)


def _bad_places(job: Job, folder: RunFolder, base: Path) -> Iterator[Problem]:
    places = {str(folder.path)}
    if any(output.to and not job.uploads(output) for output in job.outputs):
        places.add(str(base))
    if job.container and "://" not in job.container:
        places.add(image_path(job.container, base))
    for place in sorted(places):
        odd = sorted({letter for letter in place if letter in _UNSAFE_IN_PATHS})
        if not place.isprintable():
            odd.append("a character that cannot be printed")
        if odd:
            yield Problem(
                place,
                f"HTCondor cannot take a path with {' '.join(odd)} in it",
                "start headway in a folder with a plainer name",
            )


def _bad_outputs(job: Job) -> Iterator[Problem]:
    for number, output in enumerate(job.outputs):
        if output.to is None or job.uploads(output):
            continue
        for key, template, odd in (("path", output.path, ";\\"), ("to", output.to, '"\\')):
            for text in filled(job, template):
                if any(letter in odd for letter in text) or _MACRO.search(text) or text[0] == " ":
                    yield Problem(
                        f"outputs[{number}].{key}",
                        f"HTCondor cannot bring {text!r} to a place of its own",
                        f"do without {' '.join(odd)} $( and a space at the beginning, or without"
                        " `to`: it comes home to the run folder under any name",
                    )
                    break


def _bad_brought(job: Job) -> Iterator[Problem]:
    """Inputs whose file names collide in the scratch folder, or that HTCondor would misread."""
    taken = dict.fromkeys((PLAN, PAYLOAD, SECRETS), "Headway's own file")
    for number, given in enumerate(job.inputs):
        brought = brought_urls(job, given)
        for name in map(delivered_name, brought):
            if name in taken:
                yield Problem(
                    f"inputs[{number}].url",
                    f"HTCondor brings it as {name}, which is the name of {taken[name]} too",
                    "give the object another name, or let the agent fetch it",
                )
            taken.setdefault(name, f"inputs[{number}]")
        for url in filled(job, brought[0]) if brought else ():
            if _MACRO.search(url) or "," in url:
                what = f"HTCondor would take a part of {url!r} for something else"
                yield Problem(f"inputs[{number}].url", what, "write $ as %24 and , as %2C")
                break


def filled(job: Job, template: str) -> Iterator[str]:
    """A template filled in for each job; only once where it is the same for all of them."""
    size = job.size if placeholders(template) else 1
    return (fill(template, job.row(index)) for index in range(size))


def _what_runs(
    job: Job, folder: RunFolder, base: Path, common: CommonInput, paired: bool
) -> dict[str, str]:
    image = {"container_image": image_path(job.container, base)} if job.container else {}
    later = job.deliver == "later"
    if image and (later or any(given.store for given in job.inputs)):
        image[f"+{WANTS_STORE}"] = "true"
    if image and _has_couriers(job):  # a courier needs no image
        for name in ("WantContainer", _wanted(image["container_image"])):
            image[f"+{name}"] = on_transfer_slot("false", "true")
    if common.image:
        image["container_is_common"] = "true"
    return {
        "universe": "container" if image else "vanilla",
        **image,
        "executable": folder.agent.as_posix(),
        "arguments": f"agent {folder.plan.name}",
        "environment": '"HEADWAY_ROW=$(row)"',
        "initialdir": f"{folder.jobs.as_posix()}/$(number)",
        "output": "agent.out",
        "error": "agent.err",
        "notification": "never",
        **({"max_idle": str(MOST_IDLE)} if job.size > LATE_FROM and not paired else {}),
    }


def _wanted(image: str) -> str:
    """The attribute by which HTCondor has a job run in an image."""
    if image.startswith(("docker:", "oras:")):
        return "WantDockerImage"
    return "WantSIF" if image.endswith(".sif") else "WantSandboxImage"


def holders_term(job: Job) -> str:
    """The term that a node's store holds every input of a job that has a proof; empty: none has."""
    names = []
    for given in job.inputs:
        if given.store and agent_urls(job, given):
            wanted = Wanted(given.urls, checksum=given.checksum, pin=given.manifest)
            names.append(advertised(wanted.name))
    kept = f'(TARGET.{INPUTS} ?: "")'
    return " && ".join(f'stringListMember("{name}", {kept})' for name in names if name)


def _needs(job: Job, holders_first: bool) -> dict[str, str]:
    asked, gpus = requests(job), job.resources.gpus
    lines = {
        "request_cpus": str(asked["RequestCpus"]),
        "request_memory": f"{asked['RequestMemory']} MB",
        "request_disk": f"{asked['RequestDisk']} KB",
    }
    if gpus is not None:
        lines["request_gpus"] = str(asked["RequestGPUs"])
        if gpus.memory is not None:
            lines["gpus_minimum_memory"] = str(-(-gpus.memory // 2**20))
        if gpus.capability is not None:
            lines["gpus_minimum_capability"] = f"{gpus.capability:g}"
        if gpus.runtime is not None:
            lines["gpus_minimum_runtime"] = gpus.runtime
    if job.duration is not None:
        lines["+JobDurationCategory"] = quoted(job.duration)
    only, avoid = job.sites.only, job.sites.avoid
    clauses = [job.requirements, only and at_sites(only), avoid and f"!{at_sites(avoid)}"]
    holders, ranks = holders_term(job), []
    if job.sites.prefer:
        ranks.append(at_sites(job.sites.prefer))
    if holders:
        lines[f"+{HOLDS}"] = holders
        ranks.append(f"{HOLDS} =?= true")
    if holders_first:
        clauses.append(f"{HOLDS} =?= true || time() - QDate > {HOLDERS_FIRST}")
    ahead = prefetches(job)
    if ahead:
        clauses.append(NOT_PREFETCHED_ELSEWHERE)
    clauses = [clause for clause in (*clauses, NOT_AVOIDED) if clause]
    lines["requirements"] = " && ".join(f"({clause})" for clause in clauses)
    if _has_couriers(job):
        needs = courier_needs(later=_within(job), ahead=ahead)
        for key in lines.keys() & needs.keys():
            plain = lines[key].removesuffix(" MB").removesuffix(" KB")  # their units, too
            lines[key] = for_couriers(needs[key], plain)
    if ranks:
        lines["rank"] = " + ".join(f"({rank})" for rank in ranks) if ranks[1:] else ranks[0]
    return lines


def _files(job: Job, folder: RunFolder, base: Path, common: CommonInput) -> dict[str, str]:
    urls = [url for url in _brought(job) if not placeholders(url)]
    home = f"{_destination(folder.jobs)}/$(number)"
    payload = [folder.payload.as_posix()]
    secrets = [folder.secrets.as_posix()] if job.from_shell else []
    lines = {
        "should_transfer_files": "YES",
        # also on eviction: the next attempt gets the output folder with record and checkpoint
        "when_to_transfer_output": "ON_EXIT_OR_EVICT",
        **({"transfer_common_input": payload[0]} if common.payload else {}),
        "transfer_input_files": ", ".join(
            [folder.plan.as_posix(), *([] if common.payload else payload), *secrets, *urls]
        )
        + "$(brought)",
        "transfer_output_files": OUT,
        "transfer_output_remaps": f'"{OUT}={home}$(to)"',
        "job_max_vacate_time": str(math.ceil(job.grace) + SAVING),
    }
    if _has_couriers(job):  # in place of what HTCondor makes of the line above
        image = _brought_image(job, base, common)
        lines["+TransferInput"] = _input(job, folder, lines["transfer_input_files"] + image)
    if secrets:
        lines["encrypt_input_files"] = SECRETS
    lines |= plugin_lines(job, folder)
    lines |= spare_lines(job, folder, lines["transfer_input_files"], base, common)
    if job.checkpoint is not None:
        lines["checkpoint_exit_code"] = str(int(Exit.CHECKPOINT))
        lines["transfer_checkpoint_files"] = OUT
    return lines


def _brought_image(job: Job, base: Path, common: CommonInput) -> str:
    """The image as HTCondor would add it to the files that it brings to each job."""
    image = image_path(job.container, base) if job.container else ""
    own = {canonical(key): value for key, value in job.submit.items()}
    stays = own.get("transfercontainer", "true").strip().lower() == "false"
    if not image or common.image or stays or image.startswith(_PULLED):
        return ""
    return f", {image}"


def _input(job: Job, folder: RunFolder, files: str) -> str:
    """The value of TransferInput for these files: a courier needs only those for the agent."""
    if not _has_couriers(job):
        return f'"{files}"'
    own = [folder.plan, *([folder.secrets] if job.from_shell else [])]
    few = ", ".join(each.as_posix() for each in own)
    return on_transfer_slot(f'"{few}"', f'"{files}"')


def row_lines(job: Job, base: Path) -> Iterator[str]:
    """The lines of job.rows, one for each job, with _COLUMNS.

    They are its row, URLs, where outputs go, URLs for nodes without network, and its number.
    """
    placed = [output for output in job.outputs if output.to and not job.uploads(output)]
    brought = [url for url in _brought(job) if placeholders(url)]
    spare = [url for url in spare_urls(job) if placeholders(url)]
    for index in range(job.size):
        values = job.row(index) if placed or brought or spare else {}
        urls, later = (
            "".join(f", {fill(url, values)}" for url in each) for each in (brought, spare)
        )
        to = "".join(
            f";{_remapped(f'{OUT}/outputs/{fill(output.path, values)}')}"
            f"={_destination(base / fill(output.to or '', values))}"
            for output in placed
        )
        yield _SEPARATOR.join((encoded_row(job.row(index)), urls, to, later, str(index)))


def destinations(job: Job, base: Path) -> Iterator[Path]:
    """Where the outputs of all jobs go on this machine, other than into the run folder."""
    for output in job.outputs:
        if output.to and not job.uploads(output):
            yield from (base / text for text in filled(job, output.to))


def _brought(job: Job) -> list[str]:
    """The URLs that plugins bring before the agent starts."""
    return [url for given in job.inputs for url in brought_urls(job, given)]


def _log(job: Job) -> dict[str, str]:
    """The lines for the event log, with what job.toml adds to their lists."""
    lines = dict(log_lines())
    if _has_couriers(job):
        lines["job_machine_attrs"] += f", {TRANSFER_SLOT}"
    for key, value in job.submit.items():
        name = next((own for own in lines if canonical(own) == canonical(key)), None)
        if name is not None and not lines[name].isdigit():
            lines[name] = ", ".join(dict.fromkeys([*split_list(lines[name]), *split_list(value)]))
    return lines


def _remapped(name: str) -> str:
    """A name on the left of `transfer_output_remaps`, which cannot have `;` or `\\` in it."""
    return name.replace("=", "\\=")


def _destination(path: Path) -> str:
    """A path on the right of `transfer_output_remaps`, where `=` needs no escape."""
    return path.as_posix().replace(";", "\\;")


def brought_urls(job: Job, given: Input) -> list[str]:
    """The URLs of an input that HTCondor brings: the first mirror, and a pinned manifest."""
    return [] if agent_urls(job, given) else _with_manifest(job, given)


def plugin_lines(job: Job, folder: RunFolder) -> dict[str, str]:
    """The submit lines for inputs for which job.toml asks for a plugin."""
    through = [given for given in job.inputs if given.via == "plugin"]
    plugins = _plugins(job, folder, through)
    sums = [(delivered_name(each.urls[0]), each.checksum) for each in through if each.checksum]
    plain = [f"{name}={checksum}" for name, checksum in sums if _PLAIN_NAME.fullmatch(name)]
    waits = [each.patience for each in through if each.patience is not None]
    return {
        **({KEY: plugins} if plugins else {}),
        **({"+HeadwayChecksums": f'"{", ".join(plain)}"'} if plain else {}),
        **({"+HeadwayPatience": f"{max(waits):g}"} if waits else {}),
    }


def spare_urls(job: Job) -> list[str]:
    """The URLs for plugins on nodes where the agent has no network; empty: they cannot do it."""
    urls = [url for given in _spare(job) for url in _with_manifest(job, given)]
    names = [*_OWN, *map(delivered_name, [*_brought(job), *urls])]
    texts = (text for url in urls for text in filled(job, url))
    if len(set(names)) < len(names) or any(_UNSAFE.search(text) for text in texts):
        return []
    return urls


def spare_lines(
    job: Job, folder: RunFolder, files: str, base: Path, common: CommonInput
) -> dict[str, str]:
    """The attributes that the agent may point HTCondor at; `files` are brought in any case."""
    urls = spare_urls(job)
    if not urls:
        return {}
    every = "".join(f", {url}" for url in urls if not placeholders(url))
    through = [given for given in job.inputs if given.via == "plugin"] + _spare(job)
    return {
        f"+{INPUT}": _input(
            job, folder, f"{files}{every}$(spare){_brought_image(job, base, common)}"
        ),
        f"+{PLUGINS}": f'"{_plugins(job, folder, through)}"',
    }


def _spare(job: Job) -> list[Input]:
    """The inputs that the agent downloads from the network."""
    own = [given for given in job.inputs if agent_urls(job, given)]
    return [given for given in own if schemes(job, given.urls[0]) <= _NETWORK]


def _plugins(job: Job, folder: RunFolder, through: list[Input]) -> str:
    """The plugins that the job brings along: job.toml's own, and Headway's for other schemes."""
    users = next((v for k, v in job.submit.items() if canonical(k) == canonical(KEY)), "")
    left = {scheme for given in through for scheme in schemes(job, given.urls[0])}
    left -= plugin_schemes(job)
    own = f"{','.join(sorted(left))}={folder.agent.as_posix()}" if left else ""
    return "; ".join(filter(None, [users.strip().strip(";"), own]))


def _with_manifest(job: Job, given: Input) -> list[str]:
    first = given.urls[0]
    packed = f"{given.file}{SUFFIX}" in job.files
    return [first, manifest_url(first)] if given.manifest and not packed else [first]
