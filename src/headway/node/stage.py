"""The wrapped program: a submit file's own executable, started when its URLs have been staged in.

`headway-node.pyz stage PROGRAM ARGUMENT…` is what `headway wrap` makes of an executable. The URLs
are in the job's ad (HeadwayInputs), with HeadwayChecksums and HeadwayPatience as for the plugin.
The program then takes the agent's place by exec: its exit code, signals and files are its own.

`PluginFallback` is for every agent whose node lets nothing out into the network.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time

from headway.node.classad import read_job_ad
from headway.node.errors import (
    LONGEST_REASON,
    Exit,
    HeadwayError,
    NodeError,
    TransferError,
    code_of,
    words_of,
)
from headway.node.host import HostInfo
from headway.node.plan import Plan
from headway.node.plugin import read_settings
from headway.node.record import Attempt, EventLines, Progress, ProgressReporter, write_json

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headway.node.plan import Input
    from headway.node.plugin import Settings


INPUTS = "HeadwayInputs"
# what has been staged in here already: HTCondor starts a program again in its folder after a
# checkpoint
_NOTE = ".headway-staged.json"
_LOOK = 1.0


def run_wrapped(program: str, arguments: Sequence[str]) -> int:
    """Stage in, then become the program; returns an exit code only where that fails."""
    # lines in the event log alone: nobody would bring a record home
    lines = EventLines(os.urandom(8).hex(), lambda _words: None)
    begin = time.monotonic()
    try:
        moved = _stage_in(lines)
    except (HeadwayError, OSError) as error:
        meant = code_of(error)
        code = int(Exit.AGENT_ERROR if meant is None else meant)
        words, remedy = words_of(error), getattr(error, "remedy", "")
        if lines.said:
            seconds = round(time.monotonic() - begin, 3)
            lines.tell("stage-in", "end", {"ok": 0, "seconds": seconds, "error": words[:200]})
        reason = getattr(error, "brief", "") or words
        if code == Exit.INPUT_RETRYABLE:
            lines.set_reason(reason)  # the job is held now
        lines.tell("done", "end", {"exit": code, "reason": reason[:LONGEST_REASON]})
        told = f"headway: {words} (on {HostInfo(os.environ)}, exit {code})"
        sys.stderr.write(f"{told}; {remedy}\n" if remedy else f"{told}\n")
        return code
    if moved is not None:
        seconds = round(time.monotonic() - begin, 3)
        lines.tell("stage-in", "end", {"ok": 1, "seconds": seconds, "bytes": moved})
        lines.tell("run", "begin", {})
    lines.close()
    return _become(program, arguments)


def _stage_in(lines: EventLines) -> int | None:
    """The bytes that were staged in; None: there was nothing to do."""
    from headway.node import inputs, probe

    settings = read_settings(os.curdir, os.environ)
    plan = _plan(settings)
    attempt = Attempt()
    attempt.proven = _read_note()
    fallback = PluginFallback(os.environ)
    fallback.take_brought(plan.inputs)
    wanted = [each for each in plan.inputs if each.urls]
    missing = inputs.missing(wanted, attempt)
    if not missing:
        return None
    lines.tell("stage-in", "begin", {"files": len(missing)})
    lost = [each for each in probe.judge(probe.examine(plan, missing, os.environ)) if each.bad]
    if lost:
        no_way = any(each.no_way_out for each in lost)
        remedy = fallback.none(lines.set_attribute) if no_way else "another node may do"
        raise NodeError("; ".join(each.words for each in lost), remedy=remedy)
    progress = Progress(inputs.sizes(missing))
    reporter = ProgressReporter(lines, "stage-in", progress)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            inputs.stage_in(missing, attempt, progress, lambda: False, lambda _words: None, [])
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(min(reporter.tick(), _LOOK))
    reporter.tell_arrived()
    if errors:
        raise errors[0]
    with contextlib.suppress(OSError):
        write_json(_NOTE, attempt.proven)
    return progress.done


def _plan(settings: Settings) -> Plan:
    given = []
    for url in settings.inputs:
        name = url.partition("?")[0].rpartition("/")[2]
        literal = url.replace("{", "{{").replace("}", "}}")
        given.append(
            {
                "urls": [literal],
                "path": name.replace("{", "{{").replace("}", "}}"),
                "checksum": settings.checksums.get(name),
                "patience": settings.patience,
            }
        )
    if not given:
        raise TransferError(
            f"{INPUTS} is not in the job's ad: what is to be staged in is not known",
            retryable=False,
            remedy="submit what `headway wrap` wrote",
        )
    return Plan({"format": 1, "command": ["program"], "inputs": given}, {})


def _read_note() -> dict[str, object]:
    try:
        with open(_NOTE, encoding="utf-8") as file:
            note = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    return note if isinstance(note, dict) else {}


def _become(program: str, arguments: Sequence[str]) -> int:
    path = os.path.join(os.getcwd(), os.path.basename(program))
    try:
        # as HTCondor does with an executable
        os.chmod(path, os.stat(path).st_mode | 0o111)  # noqa: S103
        for name in ("SIGPIPE", "SIGXFSZ"):  # which Python ignores, and exec would hand on
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        sys.stdout.flush()
        sys.stderr.flush()
        os.execv(path, [path, *arguments])  # noqa: S606
    except (OSError, ValueError) as error:
        words = getattr(error, "strerror", None) or str(error)
        sys.stderr.write(f"headway: {program} cannot be started: {words}\n")
    return Exit.COMMAND_FAILED


# The plugin fallback: what a job does whose agent cannot reach the network from its node.
#
# Another node may do, so the first time the attempt ends, and the job counts. The second time the
# agent has the job's next attempts bring the inputs by HTCondor's plugin, which runs outside the
# job's container and firewall: the submit description holds the lists for it, and the agent points
# HTCondor at them. A plugin is cut off after an hour, so that one bad node is no reason for it.

INPUT = "HeadwayPluginInput"  # in the job's ad: TransferInput with the agent's inputs in it
PLUGINS = "HeadwayPluginPlugins"  # and TransferPlugins for them
_STANDS_FOR = {PLUGINS: "TransferPlugins", INPUT: "TransferInput"}
_COUNT = "HeadwayNoWayOut"
_DONE = "HeadwayByPlugin"
_ENOUGH = 2


class PluginFallback:
    """What the job's ad says of the fallback, and what the agent changes in it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        ad = read_job_ad(environment)
        count = ad.get(_COUNT.lower())
        self._count = count if isinstance(count, int) else 0
        self._offered = [name for name in (PLUGINS, INPUT) if isinstance(ad.get(name.lower()), str)]
        self.by_plugin = ad.get(_DONE.lower()) is True

    def take_brought(self, inputs: list[Input]) -> None:
        """Let the agent find, rather than fetch, what the plugin has brought in its stead."""
        for each in inputs if self.by_plugin else ():
            if os.path.exists(each.arrives_as) or os.path.exists(each.path):
                each.urls = []

    def none(self, set_attribute: Callable[[str, str], bool]) -> str:
        """There is no way out of this node; does what can be done, and says what that is."""
        line = '`via = "plugin"` in [[inputs]] has HTCondor bring it'
        if INPUT not in self._offered or self.by_plugin:
            return f"another node may do; {line}"
        count = self._count + 1
        said = set_attribute(_COUNT, str(count))
        if not said or count < _ENOUGH:
            return f"another node may do; {line}"
        # the mark last: without it the agent does not look for what the plugin brings
        wanted = {_STANDS_FOR[name]: name for name in self._offered}
        wanted[_DONE] = "true"
        if all(set_attribute(name, value) for name, value in wanted.items()):
            return "from now on HTCondor's plugin brings the inputs of this job"
        return f"another node may do; {line}"
