"""Commands that fetch or install something while the job runs."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Fetch:
    """One kind of such a command; `names` and `needs` are regular expressions."""

    id: str  # of the trap
    names: str  # of the program
    needs: str = ""  # what its arguments must hold

    def shown(self, words: list[str]) -> str:
        """The part of the command that names it: `wget`, `pip install`."""
        if self.id == "fetch":
            return words[0].rsplit("/", 1)[-1]
        verbs = ("install", "create", "update", "add", "clone", "pull", "fetch")
        verb = next((word for word in words if word in verbs), "")
        return f"{words[0].rsplit('/', 1)[-1]} {verb}".strip()


_FETCHES = (
    Fetch("fetch", "wget|curl|aria2c|axel|gdown|stashcp|xrdcp|scp|rsync|rclone"),
    Fetch("fetch", "pelican|osdf", r"object (?:get|copy)|^cp "),
    Fetch("fetch", "kaggle|huggingface-cli|hf", "download"),
    Fetch("fetch", "aws|gsutil|gcloud|s3cmd|mc|az", r"\b(?:cp|sync|get|mirror|download)\b"),
    Fetch("install", r"pip[\d.]*|uv|conda|mamba|micromamba", r"\b(?:install|create|update)\b"),
    Fetch("install", r"python[\d.]*", r"-m pip install"),
    Fetch("install", "apt-get|apt|yum|dnf|microdnf|apk", r"\b(?:install|update|add)\b"),
    Fetch("clone", "git", r"^(?:-[cC] \S+ )*(?:clone|pull|fetch|submodule update)\b"),
)
_WRAPPERS = {"sudo", "time", "nice", "nohup", "exec", "command", "env", "timeout", "stdbuf", "srun"}
_NO_DOWNLOAD = re.compile(
    r"(?:^|\s)(?:-T|--upload-file|-F|--form|-d|--data\S*|--post-\w+|--version|-V|--help)\b"
    r"|(?:-X|--request)[ =]?(?:PUT|POST|DELETE)"
)


def fetch_of(words: list[str]) -> Fetch | None:
    """The kind that a command is of, or None if it fetches nothing."""
    words = unwrapped(words)
    if not words:
        return None
    program, rest = words[0].rsplit("/", 1)[-1], " ".join(words[1:])
    if program in ("curl", "wget") and (not rest or _NO_DOWNLOAD.search(rest)):
        return None
    if {"--no-index", "--dry-run", "--offline"} & set(words):
        return None
    for row in _FETCHES:
        if re.fullmatch(row.names, program) and re.search(row.needs, rest):
            return row
    return None


def unwrapped(words: list[str]) -> list[str]:
    """A command without `time`, `timeout 2h`, `env A=b` and the like before it."""
    words = list(words)
    while len(words) > 1 and words[0].rsplit("/", 1)[-1] in _WRAPPERS:
        wrapper = words.pop(0).rsplit("/", 1)[-1]
        while len(words) > 1 and (words[0].startswith("-") or re.match(r"\w+=", words[0])):
            words.pop(0)
        if wrapper == "timeout" and len(words) > 1:
            words.pop(0)
    return words
