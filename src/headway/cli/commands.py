"""The table of commands, and their exit codes; quick to load, for `headway --help`."""

from __future__ import annotations

from typing import NamedTuple

#: Exit codes of every command; see docs/commands.
OK, FAILED, WRONG, POOL, BUG, PIPE, INTERRUPTED = 0, 1, 2, 3, 70, 141, 130


class Command(NamedTuple):
    """A command's module, what it does in one line, and its heading in the overview."""

    module: str
    summary: str
    group: str


RUNNING, WATCHING, ACTING, MOVING, WRITING = "Run", "Watch", "Act", "Move data", "Write"

COMMANDS = {
    "run": Command("run", "run the jobs of a job.toml and watch them until they end", RUNNING),
    "check": Command(
        "check", "test that a job survives interruptions before you submit it", RUNNING
    ),
    "status": Command("status", "show the jobs of a run or of an event log", WATCHING),
    "list": Command("status", "list all runs that are here", WATCHING),
    "logs": Command("logs", "print the output of a job", WATCHING),
    "deliveries": Command(
        "deliveries", "show outputs that are not home yet, and retry or drop them", WATCHING
    ),
    "report": Command("report", "show where the slot time went, from event logs", WATCHING),
    "collect": Command("collect", "archive event logs, by day, before they rotate away", WATCHING),
    "advise": Command("advise", "explain why jobs are held and what to do about it", WATCHING),
    "hold": Command("act", "stop jobs and keep them in the queue", ACTING),
    "release": Command("act", "let held jobs run again", ACTING),
    "remove": Command("act", "take jobs out of the queue for good", ACTING),
    "evict": Command("act", "stop running jobs so that they start again elsewhere", ACTING),
    "set": Command("act", "change what queued or held jobs request", ACTING),
    "heal": Command("heal", "release held jobs that can succeed, within limits", ACTING),
    "clean": Command("clean", "delete old runs; shows first what it would delete", ACTING),
    "fetch": Command("fetch", "download files and verify them", MOVING),
    "sources": Command("sources", "show where a file can be downloaded from, and how fast", MOVING),
    "put": Command("publish", "upload a file and verify it", MOVING),
    "publish": Command("publish", "write a manifest with which jobs verify a file", MOVING),
    "cache": Command("cache", "show the inputs that this machine keeps for the next run", MOVING),
    "plugin": Command("wrap", "write the file-transfer plugin for HTCondor", MOVING),
    "init": Command("init", "write a job.toml for a script or a submit file", WRITING),
    "wrap": Command("wrap", "let Headway follow the jobs of an HTCondor submit file", WRITING),
    "node-config": Command(
        "node_config", "print the configuration of a node with a store", WRITING
    ),
}

#: The names that other tools give to these commands.
SYNONYMS = {
    "submit": "run", "start": "run", "launch": "run", "exec": "run", "resume": "run",
    "verify": "check", "test": "check", "prove": "check",
    "ps": "status", "q": "status", "queue": "status", "show": "status", "jobs": "status",
    "watch": "status", "info": "status",
    "ls": "list", "runs": "list", "history": "list",
    "log": "logs", "tail": "logs", "cat": "logs", "output": "logs", "stdout": "logs",
    "delivery": "deliveries", "deliver": "deliveries", "couriers": "deliveries",
    "courier": "deliveries", "sandboxes": "deliveries",
    "summary": "report", "stats": "report", "accounting": "report", "efficiency": "report",
    "account": "report", "analyze": "report", "analyse": "report",
    "archive": "collect", "keep": "collect", "store": "collect", "anonymise": "collect",
    "pause": "hold", "stop": "hold", "suspend": "hold",
    "unhold": "release", "continue": "release",
    "rm": "remove", "kill": "remove", "delete": "remove", "cancel": "remove", "abort": "remove",
    "vacate": "evict", "preempt": "evict",
    "edit": "set", "qedit": "set", "change": "set", "raise": "set", "alter": "set",
    "advice": "advise", "why": "advise", "held": "advise", "explain": "advise",
    "prune": "clean", "purge": "clean", "gc": "clean", "cleanup": "clean", "tidy": "clean",
    "fix": "heal", "repair": "heal", "retry": "heal",
    "get": "fetch", "download": "fetch", "wget": "fetch", "curl": "fetch", "pull": "fetch",
    "caches": "sources", "mirrors": "sources", "origins": "sources", "where": "sources",
    "upload": "put", "send": "put", "push": "put",
    "manifest": "publish", "index": "publish", "hash": "publish",
    "new": "init", "create": "init", "convert": "wrap", "import": "wrap",
}  # fmt: skip

_GLOBALS = """\
options, before or after the command:
  -h, --help  show this help, or that of the command
  --version   print the version
  -v, -vv     log to stderr what Headway does; -vv also logs every request it makes
  --no-color  print without colours, as with the environment variable NO_COLOR
  --debug     show a traceback on errors

`headway COMMAND --help` shows the options of a command, with examples.
"""


def overview() -> str:
    """What `headway --help` prints."""
    lines = ["usage: headway COMMAND …", ""]
    lines += ["Machine-learning training that gets somewhere on HTCondor pools."]
    group = ""
    for name, command in COMMANDS.items():
        if command.group != group:
            group = command.group
            lines += ["", f"{group}:"]
        lines.append(f"  {name:<11} {command.summary}")
    return "\n".join([*lines, "", _GLOBALS])
