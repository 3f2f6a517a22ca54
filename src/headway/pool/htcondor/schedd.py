"""Requests to a schedd, each from a process of its own.

HTCondor's bindings wait for ever when a schedd accepts a connection and does not answer, and
nothing in the same process can stop them. So each request is made by this module as a program that
can be killed. HEADWAY_PATIENCE is how many seconds an answer may take.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from headway.errors import PoolError, PoolUnreachable
from headway.node.classad import quoted
from headway.node.host import TRANSFER_SLOT
from headway.node.process import isolated
from headway.pool.htcondor.dag import PROGRAM as DAGMAN
from headway.pool.match import SLOT_NAMES, Match, SlotNeed, match_slots, names_in

_PATIENCE = 60.0
_MATCH_PATIENCE = 10.0  # seconds that a look at the slots may take
_PAUSES = (1.0, 3.0)  # seconds before a request is made again
_COMMON_INPUT = (25, 14)  # the HTCondor from which on `transfer_common_input` works
_PROGRAM = "from headway.pool.htcondor.schedd import main; sys.exit(main())"
_SHOWN = 5  # names
_LONGEST = 240  # characters of what HTCondor says
# What the schedd answers instead of a job's number when there are too many jobs.
_JOB_LIMITS = {
    "-2": "MAX_JOBS_SUBMITTED, for all users together",
    "-3": "MAX_JOBS_PER_OWNER, for one user",
    "-4": "MAX_JOBS_PER_SUBMISSION, for one run",
}
_NO_BINDINGS = "no bindings"
_UNREACHABLE = "unreachable"
_REFUSED = "refused"


def patience() -> float:
    """How long a schedd may take to answer, in seconds."""
    with contextlib.suppress(ValueError):
        seconds = float(os.environ.get("HEADWAY_PATIENCE", ""))
        if 0 < seconds < math.inf:
            return seconds
    return _PATIENCE


def run_scope(cluster: int, run_id: str, *, dag: bool = False) -> str:
    """The constraint that only a run's jobs match, even if its cluster's number is used again.

    `dag`: the cluster is DAGMan's, and the jobs are those that it has submitted.
    """
    key = "DAGManJobId" if dag else "ClusterId"
    return f"{key} == {int(cluster)} && HeadwayRun == {quoted(run_id)}"


class Schedd:
    """The schedd of this machine, or a named one; each call ends within a minute or so."""

    def __init__(self, name: str | None = None, collector: str | None = None) -> None:
        self.name = name
        self.collector = collector

    def submit(self, text: str, lock: int) -> int:
        """Submit a description with its queue statement, without retries; returns the cluster.

        The program keeps the open file `lock` until it ends, so that the file stays locked even if
        the caller is killed.
        """
        return int(self._ask("submit", patience(), keep=(lock,), text=text))

    def submit_dag(self, file: str, name: str, run_id: str, lock: int) -> int:
        """Submit a DAG, as `submit` does; returns DAGMan's own cluster."""
        asked = {"file": file, "name": name, "run": run_id}
        return int(self._ask("submit_dag", patience(), keep=(lock,), **asked))

    def query(
        self, constraint: str, attributes: Sequence[str], *, clusters: bool = False
    ) -> list[dict[str, Any]]:
        """The ads of the jobs that match, with these attributes or, if none are named, all.

        `clusters`: also the ads of clusters whose jobs HTCondor makes in portions.
        """
        asked = {"constraint": constraint, "attributes": list(attributes), "clusters": clusters}
        return list(self._ask_patiently("query", **asked))

    def act(self, action: str, constraint: str, reason: str) -> Mapping[str, int]:
        """Hold, Release, Remove or Vacate the jobs that match; returns HTCondor's counts."""
        asked = {"action": action, "constraint": constraint, "reason": reason}
        return dict(self._ask_patiently("act", **asked))

    def edit(self, constraint: str, attribute: str, value: str) -> None:
        """Set an attribute of the jobs that match to a ClassAd expression."""
        self._ask_patiently("edit", constraint=constraint, attribute=attribute, value=value)

    def match(self, job: Mapping[str, str], needs: Sequence[SlotNeed]) -> Match:
        """Compare a job with the slots of the pool, in a few seconds at most.

        Args:
            job: The attributes of the job's ad, as expressions.
            needs: What it requires of a slot.

        Returns:
            How the collector's slots match, or why it could not be asked.
        """
        terms, seconds = [asdict(need) for need in needs], min(patience(), _MATCH_PATIENCE)
        try:
            facts = self._ask("match", seconds, job=dict(job), needs=terms)
        except PoolError as error:
            return Match(unknown=error.message)
        return Match.from_dict(facts)

    def slots(self, constraint: str, attributes: Sequence[str]) -> list[dict[str, Any]]:
        """These attributes of the slots for which the constraint is true."""
        seconds, wanted = min(patience(), _MATCH_PATIENCE), list(attributes)
        return list(self._ask("slots", seconds, constraint=constraint, attributes=wanted))

    def takes_common_input(self) -> bool:
        """Whether a submit description can name files that HTCondor brings to a node only once.

        Returns:
            Whether the bindings, which read the submit description, and the schedd are new enough;
            False also if the schedd cannot be found in a few seconds.
        """
        try:
            versions = self._ask("versions", min(patience(), _MATCH_PATIENCE))
        except PoolError:
            return False
        return take_common_input(versions)

    def parameters(self, *names: str) -> list[str | None]:
        """Values of this machine's HTCondor configuration, for which no schedd is needed."""
        values = self._ask("parameters", patience(), parameters=names)
        return [None if value is None else str(value) for value in values]

    def _ask_patiently(self, what: str, **details: Any) -> Any:
        """Ask, and retry while there is time."""
        deadline = time.monotonic() + patience()
        for pause in _PAUSES:
            try:
                return self._ask(what, deadline - time.monotonic(), **details)
            except PoolUnreachable:
                if time.monotonic() + pause >= deadline:
                    raise
                time.sleep(pause)
        return self._ask(what, deadline - time.monotonic(), **details)

    def _ask(self, what: str, seconds: float, *, keep: tuple[int, ...] = (), **details: Any) -> Any:
        import logging  # here, since the program that `_ask` starts does not need it

        log = logging.getLogger(__name__)
        begin = time.monotonic()
        # The program also ends by itself, in case nobody is left to kill it.
        question = {"what": what, "schedd": self.name, "collector": self.collector, **details}
        question["seconds"] = math.ceil(seconds) + 1
        try:
            done = subprocess.run(
                isolated(_PROGRAM),
                input=json.dumps(question),
                capture_output=True,
                text=True,
                encoding="utf-8",
                errors="replace",
                timeout=seconds,
                pass_fds=keep,
            )
        except subprocess.TimeoutExpired:
            log.debug("%s: no answer within %.1f s", what, seconds)
            raise self._unreachable(what, f"no answer within {seconds:.0f} s") from None
        log.debug("%s: answered after %.2f s", what, time.monotonic() - begin)
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
            raise PoolError(
                f"HTCondor's bindings failed: {last[0]}",
                remedy="does `condor_q` work in this shell? CONDOR_CONFIG names the configuration",
            ) from None
        if "answer" in answer:
            return answer["answer"]
        if answer["fault"] == _UNREACHABLE:
            raise self._unreachable(what, answer["words"])
        if answer["fault"] == _NO_BINDINGS:
            raise PoolError(
                f"HTCondor's Python bindings cannot be used here: {answer['words']}",
                remedy="`pip install htcondor` on Linux; --pool local needs none",
            )
        raise PoolError(answer["words"], remedy=answer["remedy"])

    def _unreachable(self, what: str, words: str) -> PoolUnreachable:
        who = f"the schedd {self.name or 'of this machine'}"
        if what == "match":
            who = f"the collector {self.collector or 'of this pool'}"
        return PoolUnreachable(
            f"{who} cannot be reached: {words}",
            remedy="it is safe to try again; `condor_q` and your pool's status page tell whether it"
            " is up, and CONDOR_CONFIG which pool this is",
        )


def main() -> int:
    """Answer one request from stdin on stdout."""
    # Whatever HTCondor's libraries print must not get into the answer.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    question = json.loads(sys.stdin.buffer.read())
    signal.alarm(question["seconds"])
    answer: dict[str, Any]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import htcondor2
        except Exception as error:
            answer = {"fault": _NO_BINDINGS, "words": _words(error)}
        else:
            try:
                answer = {"answer": _answer(htcondor2, question)}
            except Exception as error:
                fault = _UNREACHABLE if _did_not_answer(str(error)) else _REFUSED
                answer = {"fault": fault, "words": _words(error)}
                answer["remedy"] = getattr(error, "remedy", "")
    json.dump(answer, answers)
    answers.flush()
    return 0


def _answer(htcondor2: Any, question: Mapping[str, Any]) -> Any:
    what = question["what"]
    if what == "parameters":
        return [htcondor2.param.get(name) for name in question["parameters"]]
    if what == "match":
        return asdict(_match(htcondor2, question))
    if what == "slots":
        pool, kind = htcondor2.Collector(question["collector"]), htcondor2.AdType.Startd
        wanted = question["attributes"]
        ads = pool.query(kind, question["constraint"], wanted)
        return [{key: _plain(ad.get(key)) for key in wanted} for ad in ads]
    place = _place(htcondor2, question["schedd"], question["collector"])
    if what == "versions":
        return [htcondor2.version(), str(place.get("CondorVersion"))]
    schedd = htcondor2.Schedd(place)
    if what == "submit":
        return schedd.submit(htcondor2.Submit(question["text"])).cluster()
    if what == "submit_dag":
        return _submit_dag(htcondor2, schedd, question)
    constraint = question["constraint"]
    if what == "query":
        wanted, options = question["attributes"], htcondor2.QueryOpt
        opts = options.IncludeClusterAd if question["clusters"] else options.Default
        ads = schedd.query(constraint=constraint, projection=wanted, opts=opts)
        return [{key: _plain(ad.get(key)) for key in (wanted or ad)} for ad in ads]
    if what == "act":
        action = getattr(htcondor2.JobAction, question["action"])
        return dict(schedd.act(action, constraint, reason=(question["reason"], 0)))
    import classad2

    try:
        classad2.ExprTree(question["value"])
    except classad2.ClassAdException:  # the schedd would take it for `undefined`
        raise ValueError(f"{question['value']!r} is not a ClassAd expression") from None
    return schedd.edit(constraint, question["attribute"], question["value"])


def _submit_dag(htcondor2: Any, schedd: Any, question: Mapping[str, Any]) -> int:
    """Submit DAGMan for a DAG from within its folder, whose files it names."""
    folder, _, name = question["file"].rpartition("/")
    os.chdir(folder)
    options = {"dagman": shutil.which(DAGMAN), "batch-name": question["name"], "force": True}
    description = htcondor2.Submit.from_dag(name, options)
    description["My.HeadwayRun"] = quoted(question["run"])
    return int(schedd.submit(description).cluster())


def _match(htcondor2: Any, question: Mapping[str, Any]) -> Match:
    import classad2

    setting = htcondor2.param.get
    ad = classad2.ClassAd()
    for name, text in question["job"].items():
        try:
            ad[name] = classad2.ExprTree(text) if text else ""
        except classad2.ClassAdException:
            ad[name] = ""
    ad["SubmitArch"], ad["SubmitOpSys"] = setting("ARCH") or "", setting("OPSYS") or ""
    if not question["schedd"]:  # another one may know this user by another name
        from headway.pool.folder import own_name

        ad["Owner"] = own_name()
    needs = [SlotNeed(**{**need, "after": tuple(need["after"])}) for need in question["needs"]]
    found = match_slots(ad, needs, _slots(htcondor2, question["collector"], needs))
    startds = htcondor2.Collector(question["collector"]), htcondor2.AdType.Startd
    couriers = startds[0].query(startds[1], f"{TRANSFER_SLOT} =?= true", ["Name"])
    found = replace(found, transfer_slots=len(couriers))
    if setting("FLOCK_TO") or setting("FLOCK_COLLECTOR_HOSTS"):
        return replace(found, grows="flocking")
    if "JOB_ROUTER" in (setting("DAEMON_LIST") or "").upper():
        return replace(found, grows="the job router")
    return found


def _slots(htcondor2: Any, collector: str | None, needs: Sequence[SlotNeed]) -> Iterator[Any]:
    """The ads of all slots but the dynamic ones, with the attributes that needs and START name."""
    pool, kind = htcondor2.Collector(collector), htcondor2.AdType.Startd
    static = f"DynamicSlot =!= true && {TRANSFER_SLOT} =!= true"
    gpus = "(TotalSlotGPUs ?: GPUs ?: 0) > 0"
    starts = {str(ad.get("Start")) for ad in pool.query(kind, static, ["Start"])}
    names = {*SLOT_NAMES, *(n for need in needs for n in names_in(need.expression))}
    names |= {name for start in starts for name in names_in(start)}
    if all(need.key != "gpus" for need in needs):
        yield from pool.query(kind, static, sorted(names))
        return
    yield from pool.query(kind, f"{static} && !({gpus})", sorted(names))
    yield from pool.query(kind, f"{static} && {gpus}")  # each GPU is an attribute of its own name


def _place(htcondor2: Any, name: str | None, collector: str | None) -> Any:
    """Where the schedd is; HTCondor would use the local one for a name it does not know."""
    if not name and not collector:
        return htcondor2.Collector().locate(htcondor2.DaemonType.Schedd)
    pool = htcondor2.Collector(collector)
    place = pool.locate(htcondor2.DaemonType.Schedd, name) if name else None
    if place is None:
        ads = pool.locateAll(htcondor2.DaemonType.Schedd)
        if len(ads) != 1 or name:
            known = sorted(str(ad.get("Name")) for ad in ads)
            what = f"no schedd {name!r}" if name else "not exactly one schedd"
            few = ", ".join(known[:_SHOWN]) + (", …" if len(known) > _SHOWN else "")
            raise PoolError(f"the pool has {what}", remedy=f"it has {few or 'none'}")
        place = ads[0]
    return place


def take_common_input(versions: Sequence[str]) -> bool:
    """Whether all of these, like `$CondorVersion: 25.14.1 2026-09-24 $`, know common input."""
    found = (re.match(r"\$CondorVersion: (\d{1,6})\.(\d{1,6})\.", text) for text in versions)
    return all(each and (int(each[1]), int(each[2])) >= _COMMON_INPUT for each in found)


def _plain(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


def _did_not_answer(words: str) -> bool:
    """Whether a retry may help, by the text of the error: HTCondor gives nothing else."""
    signs = "Failed to (?:connect|fetch ads)|did not respond|Unable to locate|Failed communication"
    return re.search(f"{signs}|Error when performing action", words) is not None


def _words(error: Exception) -> str:
    """HTCondor's message on one line, without the names of its own functions."""
    text = str(getattr(error, "message", error))
    text = re.sub(r"Failed to create job ad, errmsg=|\bSubmit:-?\d+:", " ", text)
    text = re.sub(r"parse_up_to_q_line\(\) failed", "a line is no submit command", text)
    text = " ".join(text.split()) or type(error).__name__
    too_many = re.search(r"but Schedd says (-\d+)", text)
    if too_many and too_many[1] in _JOB_LIMITS:
        text = f"there are more jobs than the schedd accepts: {_JOB_LIMITS[too_many[1]]}"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


if __name__ == "__main__":
    sys.exit(main())
