"""The wrapped program: a submit file's own executable, started when its URLs have been staged in.

`headway-node.pyz stage PROGRAM ARGUMENT…` is what `headway wrap` makes of an executable. The URLs
are in the job's ad (HeadwayInputs), with HeadwayChecksums and HeadwayPatience as for the plugin.
The program then takes the agent's place by exec: its exit code, signals and files are its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time

from headway.node.attempt import Attempt, write_json
from headway.node.chirp import Chirp, line
from headway.node.errors import HeadwayError, NodeError, TransferError
from headway.node.exits import LONGEST_REASON, Exit
from headway.node.journal import Clock
from headway.node.place import Place
from headway.node.plan import Plan
from headway.node.plugin_settings import read_settings
from headway.node.verdict import code_of, words_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from headway.node.plugin_settings import Settings

INPUTS = "HeadwayInputs"
# what has been staged in here already: HTCondor starts a program again in its folder after a
# checkpoint
_NOTE = ".headway-staged.json"
_LOOK = 1.0


def run_wrapped(program: str, arguments: Sequence[str]) -> int:
    """Stage in, then become the program; returns an exit code only where that fails."""
    lines = _Lines()
    begin = time.monotonic()
    try:
        moved = _stage_in(lines)
    except (HeadwayError, OSError) as error:
        meant = code_of(error)
        code = int(Exit.AGENT_ERROR if meant is None else meant)
        words, remedy = words_of(error), getattr(error, "remedy", "")
        if lines.told:
            seconds = round(time.monotonic() - begin, 3)
            lines.tell("stage-in", "end", ok=0, seconds=seconds, error=words[:200])
        reason = getattr(error, "brief", "") or words
        if code == Exit.INPUT_RETRYABLE:
            lines.set_reason(reason)  # the job is held now
        lines.tell("done", "end", exit=code, reason=reason[:LONGEST_REASON])
        told = f"headway: {words} (on {Place(os.environ)}, exit {code})"
        sys.stderr.write(f"{told}; {remedy}\n" if remedy else f"{told}\n")
        return code
    if moved is not None:
        lines.tell("stage-in", "end", ok=1, seconds=round(time.monotonic() - begin, 3), bytes=moved)
        lines.tell("run", "begin")
    lines.close()
    return _become(program, arguments)


class _Lines:
    """The agent's lines in the event log, without the record that nobody would bring home."""

    def __init__(self) -> None:
        self._clock = Clock()
        self._nonce = os.urandom(8).hex()
        self._chirp = Chirp(os.environ, lambda _words: None)
        self.told = False

    def tell(self, phase: str, state: str, **values: object) -> None:
        self.told = True
        text = line(self._nonce, phase, state, self._clock.now(), values)
        self._chirp.send(text, last=phase == "done")

    def progress(self, phase: str, **values: object) -> None:
        self.tell(phase, "progress", **values)

    def arrived(self, phase: str, **values: object) -> None:
        self.tell(phase, "arrived", **values)

    def set_attribute(self, name: str, expression: str) -> bool:
        return self._chirp.set_attribute(name, expression)

    def set_reason(self, words: str) -> None:
        self._chirp.set_reason(words, os.environ)

    def close(self) -> None:
        self._chirp.close()


def _stage_in(lines: _Lines) -> int | None:
    """The bytes that were staged in; None: there was nothing to do."""
    from headway.node import inputs, probe
    from headway.node.progress import Progress, Teller
    from headway.node.way_out import WayOut

    settings = read_settings(os.curdir, os.environ)
    plan = _plan(settings)
    attempt = Attempt()
    attempt.proven = _read_note()
    way_out = WayOut(os.environ)
    way_out.take_brought(plan.inputs)
    wanted = [each for each in plan.inputs if each.urls]
    missing = inputs.missing(wanted, attempt)
    if not missing:
        return None
    lines.tell("stage-in", "begin", files=len(missing))
    lost = [each for each in probe.judge(probe.examine(plan, missing, os.environ)) if each.bad]
    if lost:
        no_way = any(each.no_way_out for each in lost)
        remedy = way_out.none(lines.set_attribute) if no_way else "another node may do"
        raise NodeError("; ".join(each.words for each in lost), remedy=remedy)
    progress = Progress(inputs.sizes(missing))
    teller = Teller(lines, "stage-in", progress)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            inputs.stage_in(missing, attempt, progress, lambda: False, lambda _words: None, [])
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(min(teller.tick(), _LOOK))
    teller.tell_arrived()
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
