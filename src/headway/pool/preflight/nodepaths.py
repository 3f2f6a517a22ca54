"""Absolute paths that a job names on the node, where most of them are not.

Two kinds. Folders of people and of shared file systems (`/home`, `/nfs`, `/data`): a node has them
only if it mounts them. Scratch folders (`/tmp`, `/scratch`): a node may have them, but they are not
the job's own. Paths that nodes do have, such as `/usr` and `/cvmfs`, are neither.
"""

from __future__ import annotations

import re

_BEFORE = r"(?:^|(?<=[=:,'\"]))"  # a word, or what stands in it after `=`
# What no container image has; the rest may be the image's own.
_PEOPLE = (
    r"home\d*|homes|nethome|Users|afs|eos|nfs\w*|lustre\w*|gpfs\w*|beegfs\w*|ceph\w*|pnfs|staging"
    r"|ospool|stash"
)
_STORAGE = (
    r"data\w*|work\d*|projects?|storage\d*|shares?|shared|users?|export|mnt|hdfs|hadoop|vol\d*"
    r"|raid\d*|groups?|cluster|nas\w*|u|panfs|sphenix"
)
_CHILD = r"/[\w.$-]"
_LONGEST = 90  # characters of a path that is shown
# A bracket that is opened within it, as in $ENV(USER), belongs to it.
_PATH = re.compile(r"(?:\$\w{0,20}\([^()\s]{0,80}\)|[^\s'\"`;,)]){0,200}")

FAR_PATH = re.compile(rf"{_BEFORE}(?:~|/(?:{_PEOPLE})){_CHILD}")
STORAGE_PATH = re.compile(rf"{_BEFORE}(?:~|/(?:{_PEOPLE}|{_STORAGE})){_CHILD}")
SCRATCH_PATH = re.compile(
    rf"{_BEFORE}/(?:(?:var/)?tmp{_CHILD}|(?:local[_-]?|net)?scratch[\w-]*(?:/|\Z)"
    rf"|(?:local(?:disk|data)?|ssd\d*|nvme\d*){_CHILD})"
)
TEMPORARY = re.compile(rf"{_BEFORE}/(?:var/)?tmp/")  # every node has it
HOME = re.compile(rf"{_BEFORE}(?:~|\$HOME|\$\{{HOME\}}|/home/[\w.-]+|/Users/[\w.-]+)/[\w.]")
HOME_FILE = re.compile(HOME.pattern.replace(r"[\w.]", r"\.\w"))  # ~/.bashrc, $HOME/.netrc


def far_path(word: str, contained: bool) -> bool:
    """Whether a word names a folder of people or of shared storage.

    Args:
        word: a word of a command, or a value.
        contained: the job runs in a container, which may have a `/data` of its own.
    """
    if "://" in word:
        return False
    return (FAR_PATH if contained else STORAGE_PATH).search(word) is not None


def path_in(word: str) -> str:
    """The path that made a word suspicious, without what stands around it."""
    match = STORAGE_PATH.search(word) or SCRATCH_PATH.search(word)
    rest = word[match.start() :] if match else word
    found = _PATH.match(rest)
    path = found[0] if found else ""
    return path if len(path) <= _LONGEST else f"{path[:_LONGEST]}…"


def scratch_path(word: str) -> bool:
    """Whether a word names a scratch folder by a fixed path."""
    return "://" not in word and SCRATCH_PATH.search(word) is not None
