"""Plugins: what HTCondor brings before the agent starts, and what it would bring in the agent's
stead.

A node may let HTCondor's plugins out into the network and not the job. An agent that finds itself
on a second such node has its job's next attempts bring the inputs by Headway's plugin: the submit
description holds the lists for that in attributes, and the agent points HTCondor's own attributes
at them by chirp. No URL is in what it says, for HTCondor writes that into the event log.
"""

from __future__ import annotations

import re

from headway.node.plan import SECRETS
from headway.node.template import fill, placeholders
from headway.node.transfer.manifest import SUFFIX, manifest_url
from headway.node.way_out import INPUT, PLUGINS
from headway.pool.folder import RunFolder
from headway.pool.prepare import agent_urls, plugin_schemes, schemes, url_basename
from headway.pool.wrap.subfile import canonical
from headway.spec import Input, Job

KEY = "transfer_plugins"
_NETWORK = frozenset(("osdf", "stash", "pelican", "https", "http"))
_PLAIN_NAME = re.compile(r"[\w.+-]+")
_OWN = ("plan.json", "payload.tar", SECRETS, "headway-node.pyz")
# What would end an item or the string, or begin a macro or an escape.
_UNSAFE = re.compile(r'[,"\\$]')


def brought_urls(job: Job, given: Input) -> list[str]:
    """What HTCondor brings of an input: the first mirror, and its manifest if one is pinned."""
    return [] if agent_urls(job, given) else _with_manifest(job, given)


def plugin_lines(job: Job, folder: RunFolder) -> dict[str, str]:
    """The submit lines for inputs that go through plugins by the job's own wish."""
    through = [given for given in job.inputs if given.via == "plugin"]
    plugins = _plugins(job, folder, through)
    sums = [(url_basename(each.urls[0]), each.checksum) for each in through if each.checksum]
    plain = [f"{name}={checksum}" for name, checksum in sums if _PLAIN_NAME.fullmatch(name)]
    waits = [each.patience for each in through if each.patience is not None]
    return {
        **({KEY: plugins} if plugins else {}),
        **({"+HeadwayChecksums": f'"{", ".join(plain)}"'} if plain else {}),
        **({"+HeadwayPatience": f"{max(waits):g}"} if waits else {}),
    }


def spare_urls(job: Job) -> list[str]:
    """What plugins would bring where the agent has no way out; nothing if they cannot do it all."""
    brought = [url for given in job.inputs for url in brought_urls(job, given)]
    urls = [url for given in _spare(job) for url in _with_manifest(job, given)]
    names = [*_OWN, *map(url_basename, [*brought, *urls])]
    filled = (text for url in urls for text in _filled(job, url))
    if len(set(names)) < len(names) or any(_UNSAFE.search(text) for text in filled):
        return []
    return urls


def spare_lines(job: Job, folder: RunFolder, files: str) -> dict[str, str]:
    """The attributes that the agent may point HTCondor at; `files` is what it brings anyway."""
    urls = spare_urls(job)
    if not urls:
        return {}
    every = "".join(f", {url}" for url in urls if not placeholders(url))
    through = [given for given in job.inputs if given.via == "plugin"] + _spare(job)
    return {
        f"+{INPUT}": f'"{files}{every}$(spare)"',
        f"+{PLUGINS}": f'"{_plugins(job, folder, through)}"',
    }


def _spare(job: Job) -> list[Input]:
    """The inputs that the agent fetches from the network."""
    own = [given for given in job.inputs if agent_urls(job, given)]
    return [given for given in own if schemes(job, given.urls[0]) <= _NETWORK]


def _plugins(job: Job, folder: RunFolder, through: list[Input]) -> str:
    """The plugins that the job brings along: job.toml's, and Headway's for what is left."""
    said = next((v for k, v in job.submit.items() if canonical(k) == canonical(KEY)), "")
    left = {scheme for given in through for scheme in schemes(job, given.urls[0])}
    left -= plugin_schemes(job)
    own = [f"{','.join(sorted(left))}={folder.agent.as_posix()}"] if left else []
    return "; ".join([*filter(None, [said.strip().strip(";")]), *own])


def _with_manifest(job: Job, given: Input) -> list[str]:
    first = given.urls[0]
    packed = f"{given.file}{SUFFIX}" in job.files
    return [first, manifest_url(first)] if given.manifest and not packed else [first]


def _filled(job: Job, template: str) -> list[str]:
    size = job.size if placeholders(template) else 1
    return [fill(template, job.row(index)) for index in range(size)]
