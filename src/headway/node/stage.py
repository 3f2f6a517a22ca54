"""The wrapped program: a submit file's own executable, started after its URLs were staged in.

`headway wrap` replaces an executable by `headway-node.pyz stage PROGRAM ARGUMENT…`. The URLs are in
the job's ad (HeadwayInputs), with HeadwayChecksums and HeadwayPatience as for the plugin. The
program then replaces the agent by exec: its exit code, signals and files are its own.

`PluginFallback` is for every agent on a node that cannot reach the network.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading

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
from headway.node.record import (
    Attempt,
    EventLines,
    Progress,
    ProgressReporter,
    read_json,
    write_json,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headway.node.plan import PlannedInput
    from headway.node.plugin import Settings
    from headway.node.store.inputs import InputStore


INPUTS = "HeadwayInputs"
# what has been staged in already: after a checkpoint, HTCondor starts a program again in its folder
_NOTE = ".headway-staged.json"
_LONGEST_WAIT = 1.0


def run_wrapped(program: str, arguments: Sequence[str]) -> int:
    """Stage in, then become the program; returns an exit code only if that fails."""
    # only lines in the event log: nobody would transfer a record
    lines = EventLines(Attempt(), lambda _words: None)
    try:
        _stage_in(lines)
    except (HeadwayError, OSError) as error:
        code, words, remedy = code_of(error), words_of(error), getattr(error, "remedy", "")
        reason = getattr(error, "brief", "") or words
        if code == Exit.INPUT_RETRYABLE:
            lines.set_reason(reason)  # the job is held now
        lines.send_line("done", "end", {"exit": code, "reason": reason[:LONGEST_REASON]})
        message = f"headway: {words} (on {HostInfo(os.environ)}, exit {code})"
        sys.stderr.write(f"{message}; {remedy}\n" if remedy else f"{message}\n")
        return code
    lines.close()
    return _become(program, arguments)


def _stage_in(lines: EventLines) -> None:
    from headway.node import inputs, probe
    from headway.node.store.inputs import open_inputs

    plan, attempt = _plan(read_settings(os.curdir, os.environ)), lines.attempt
    attempt.proven = read_json(_NOTE)
    fallback = PluginFallback(os.environ)
    fallback.use_transferred(plan.inputs)
    lacking = inputs.missing(plan.inputs, attempt)
    if not lacking:
        return
    store = open_inputs(os.environ, lambda _words: None)
    missing = inputs.missing(lacking, attempt, store)  # the others are in this node's store
    with lines.phase("stage-in", files=len(lacking)) as phase:
        found = probe.judge(probe.examine(plan, missing, os.environ)) if missing else []
        bad = [each for each in found if each.bad]
        if bad:
            remedy = "another node may work"
            if any(each.no_network for each in bad):
                remedy = fallback.activate(lines.set_attribute)
            raise NodeError("; ".join(each.words for each in bad), remedy=remedy)
        phase["bytes"] = _fetch(lacking, lines, store)
    if store is not None:
        store.outlive_exec()
    with contextlib.suppress(OSError):
        write_json(_NOTE, attempt.proven)
    lines.send_line("run", "begin", {})


def _fetch(missing: list[PlannedInput], lines: EventLines, store: InputStore | None) -> int:
    """Fetch the inputs in a thread and report progress; returns the bytes."""
    from headway.node import inputs

    progress = Progress({each.path: each.size for each in missing})
    reporter = ProgressReporter(lines, "stage-in", progress)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            no_stop, no_note = lambda: False, lambda _words: None
            attempt = lines.attempt
            inputs.stage_in(missing, attempt, progress, no_stop, no_note, [], store=store)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(min(reporter.tick(), _LONGEST_WAIT))
    reporter.report_arrivals()
    if errors:
        raise errors[0]
    return progress.done


def _plan(settings: Settings) -> Plan:
    given = []
    for url in settings.inputs:
        name = url.partition("?")[0].rpartition("/")[2]
        path, literal = (text.replace("{", "{{").replace("}", "}}") for text in (name, url))
        checksum, patience = settings.checksums.get(name), settings.patience
        given.append({"urls": [literal], "path": path, "checksum": checksum, "patience": patience})
    if not given:
        raise TransferError(
            f"{INPUTS} is not in the job's ad, so the URLs to stage in are not known",
            retryable=False,
            remedy="submit the file that `headway wrap` wrote",
        )
    return Plan({"format": 1, "command": ["program"], "inputs": given}, {})


def _become(program: str, arguments: Sequence[str]) -> int:
    path = os.path.join(os.getcwd(), os.path.basename(program))
    try:
        # as HTCondor does with an executable
        os.chmod(path, os.stat(path).st_mode | 0o111)  # noqa: S103
        for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores them, and exec would pass that on
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        sys.stdout.flush()
        sys.stderr.flush()
        os.execv(path, [path, *arguments])  # noqa: S606
    except (OSError, ValueError) as error:
        words = getattr(error, "strerror", None) or str(error)
        sys.stderr.write(f"headway: {program} cannot be started: {words}\n")
    return Exit.COMMAND_FAILED


# The plugin fallback: for a job whose agent cannot reach the network from its node.
#
# Another node may work, so the first time the attempt just ends, and the job counts it. The second
# time the agent lets HTCondor's plugin transfer the inputs of the job's next attempts: it runs
# outside the job's container and firewall. The submit description holds the lists for it, and the
# agent points HTCondor at them. HTCondor stops a plugin after an hour, so one bad node is not
# enough reason for it.

INPUT = "HeadwayPluginInput"  # in the job's ad: TransferInput with the agent's inputs in it
PLUGINS = "HeadwayPluginPlugins"  # and TransferPlugins for them
_STANDS_FOR = {PLUGINS: "TransferPlugins", INPUT: "TransferInput"}
_COUNT = "HeadwayNoWayOut"
_DONE = "HeadwayByPlugin"
_ENOUGH = 2


class PluginFallback:
    """The state of the fallback in the job's ad, and how the agent changes it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        ad = read_job_ad(environment)
        count = ad.get(_COUNT.lower())
        self._count = count if isinstance(count, int) else 0
        self._offered = [name for name in _STANDS_FOR if ad.get(name.lower()) is not None]
        self.by_plugin = ad.get(_DONE.lower()) is True

    def use_transferred(self, inputs: list[PlannedInput]) -> None:
        """Have the agent take the inputs that the plugin has transferred, and not fetch them."""
        for each in inputs if self.by_plugin else ():
            if os.path.exists(each.arrives_as) or os.path.exists(each.path):
                each.urls = []

    def activate(self, set_attribute: Callable[[str, str], bool]) -> str:
        """Count a node without network, and use the plugin if there were enough; says what next."""
        remedy = 'another node may work; `via = "plugin"` in [[inputs]] has HTCondor transfer it'
        count = self._count + 1
        if INPUT not in self._offered or self.by_plugin:
            return remedy
        if not set_attribute(_COUNT, str(count)) or count < _ENOUGH:
            return remedy
        # the mark comes last: without it the agent ignores what the plugin transfers
        wanted = {_STANDS_FOR[name]: name for name in self._offered}
        wanted[_DONE] = "true"
        if all(set_attribute(name, value) for name, value in wanted.items()):
            return "from now on HTCondor's plugin transfers the inputs of this job"
        return remedy
