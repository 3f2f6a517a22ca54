"""The commands, as a table that costs nothing to read, and their exit codes."""

from __future__ import annotations

from typing import NamedTuple

#: Exit codes of every command; see docs/commands.
OK, FAILED, WRONG, POOL, BUG, PIPE, INTERRUPTED = 0, 1, 2, 3, 70, 141, 130


class Command(NamedTuple):
    """Where a command lives, and what it does in one line."""

    module: str
    summary: str
    group: str


RUNNING, WATCHING, ACTING, MOVING, WRITING = "Run", "Watch", "Act", "Move data", "Write"

COMMANDS = {
    "run": Command("run", "run a job.toml and watch it until it is over", RUNNING),
    "check": Command("check", "prove that a job survives interruption, before it runs", RUNNING),
    "status": Command("status", "show the jobs of a run or of an event log", WATCHING),
    "list": Command("status", "list all runs that are here", WATCHING),
    "logs": Command("logs", "print what a job wrote", WATCHING),
    "report": Command("report", "say where the slot time went, from event logs", WATCHING),
    "collect": Command("collect", "keep event logs, by day, before they are lost", WATCHING),
    "advise": Command("advise", "say what to do about held jobs, and why", WATCHING),
    "hold": Command("act", "take jobs off their nodes and keep them waiting", ACTING),
    "release": Command("act", "let held jobs go on", ACTING),
    "remove": Command("act", "take jobs out of the queue for good", ACTING),
    "evict": Command("act", "take jobs off their nodes and start them elsewhere", ACTING),
    "set": Command("act", "change what queued or held jobs ask for", ACTING),
    "heal": Command("heal", "release held jobs that can go on, within a budget", ACTING),
    "clean": Command("clean", "remove old runs, and say first what would go", ACTING),
    "fetch": Command("fetch", "bring objects here, whole and proven", MOVING),
    "sources": Command("sources", "say where an object can come from, and how well", MOVING),
    "put": Command("publish", "send a file to a URL, whole and proven", MOVING),
    "publish": Command("publish", "write down what a file must be when it arrives", MOVING),
    "plugin": Command("wrap", "write the file-transfer plugin for HTCondor", MOVING),
    "init": Command("init", "write a job.toml for a script", WRITING),
    "wrap": Command("wrap", "let Headway follow the jobs of an HTCondor submit file", WRITING),
}

#: Words that people bring from elsewhere.
SYNONYMS = {
    "submit": "run", "start": "run", "launch": "run", "exec": "run", "resume": "run",
    "verify": "check", "test": "check", "prove": "check",
    "ps": "status", "q": "status", "queue": "status", "show": "status", "jobs": "status",
    "watch": "status", "info": "status",
    "ls": "list", "runs": "list", "history": "list",
    "log": "logs", "tail": "logs", "cat": "logs", "output": "logs", "stdout": "logs",
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
  -v, -vv     log on stderr what is done, and every question that is asked
  --no-color  no colours; so does the environment variable NO_COLOR
  --debug     a traceback where something goes wrong

`headway COMMAND --help` has the options of a command, and examples.
"""


def overview() -> str:
    """What `headway --help` prints."""
    lines = ["usage: headway COMMAND …", ""]
    lines += ["Machine-learning training that gets somewhere on HTCondor pools.", ""]
    group = ""
    for name, command in COMMANDS.items():
        if command.group != group:
            lines += [""] if group else []
            group = command.group
            lines.append(f"{group}:")
        lines.append(f"  {name:<9} {command.summary}")
    return "\n".join([*lines, "", _GLOBALS])
