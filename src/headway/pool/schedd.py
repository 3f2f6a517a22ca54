"""One schedd, asked from a process of its own.

HTCondor's bindings wait without end for a schedd that is there and does not answer, and nothing in
the same process can stop them. So `python -m headway.pool.schedd`, which can be killed, puts each
question.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from headway.errors import PoolError, PoolUnreachable

_PATIENCE = 60.0
_NO_BINDINGS = "no bindings"
_UNREACHABLE = "unreachable"
_REFUSED = "refused"


class Schedd:
    """Asks the schedd of this machine, or a named one; an answer comes or fails in a minute."""

    def __init__(self, name: str | None = None, collector: str | None = None) -> None:
        self.name = name
        self.collector = collector

    def submit(self, text: str) -> int:
        """Submit a description with its queue statement; returns the cluster."""
        return int(self._ask("submit", text=text))

    def query(self, constraint: str, attributes: Sequence[str]) -> list[dict[str, Any]]:
        """The ads of the jobs that match, with these attributes or, if none are named, all."""
        found: list[dict[str, Any]] = self._ask(
            "query", constraint=constraint, attributes=list(attributes)
        )
        return found

    def act(self, action: str, constraint: str, reason: str) -> Mapping[str, int]:
        """Hold, Release, Remove or Vacate the jobs that match; returns HTCondor's counts."""
        counts: dict[str, int] = self._ask(
            "act", action=action, constraint=constraint, reason=reason
        )
        return counts

    def edit(self, constraint: str, attribute: str, value: str) -> None:
        """Set an attribute to a ClassAd expression."""
        self._ask("edit", constraint=constraint, attribute=attribute, value=value)

    def parameter(self, name: str) -> str | None:
        """A value of this machine's HTCondor configuration; asks no schedd."""
        value = self._ask("parameter", parameter=name)
        return None if value is None else str(value)

    def _ask(self, what: str, **details: Any) -> Any:
        question = {"what": what, "schedd": self.name, "collector": self.collector, **details}
        try:
            done = subprocess.run(
                [sys.executable, "-m", "headway.pool.schedd"],
                input=json.dumps(question),
                capture_output=True,
                text=True,
                timeout=_PATIENCE,
            )
        except subprocess.TimeoutExpired:
            raise self._unreachable(f"no answer within {_PATIENCE:.0f} s") from None
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
            raise PoolError(f"HTCondor's bindings failed: {last[0]}") from None
        if "answer" in answer:
            return answer["answer"]
        if answer["fault"] == _UNREACHABLE:
            raise self._unreachable(answer["words"])
        if answer["fault"] == _NO_BINDINGS:
            raise PoolError(
                f"HTCondor's Python bindings cannot be used here: {answer['words']}",
                remedy="`pip install htcondor` on Linux; --pool local needs none",
            )
        raise PoolError(f"the schedd refuses: {answer['words']}")

    def _unreachable(self, words: str) -> PoolUnreachable:
        return PoolUnreachable(
            f"the schedd {self.name or 'of this machine'} cannot be reached: {words}",
            remedy="asking again is safe; `condor_q` and your pool's status page tell whether it is"
            " up, and CONDOR_CONFIG which pool this is",
        )


def main() -> int:
    """Answer one question from stdin on stdout."""
    question = json.load(sys.stdin)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import htcondor2
    except Exception as error:
        return _say({"fault": _NO_BINDINGS, "words": _words(error)})
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _say({"answer": _answer(htcondor2, question)})
    except Exception as error:
        fault = _UNREACHABLE if _did_not_answer(str(error)) else _REFUSED
        return _say({"fault": fault, "words": _words(error)})


def _answer(htcondor2: Any, question: Mapping[str, Any]) -> Any:
    what = question["what"]
    if what == "parameter":
        return htcondor2.param.get(question["parameter"])
    schedd = _locate(htcondor2, question["schedd"], question["collector"])
    if what == "submit":
        return schedd.submit(htcondor2.Submit(question["text"])).cluster()
    constraint = question["constraint"]
    if what == "query":
        wanted = question["attributes"]
        ads = schedd.query(constraint=constraint, projection=wanted)
        return [{key: _plain(ad.get(key)) for key in (wanted or ad)} for ad in ads]
    if what == "act":
        action = getattr(htcondor2.JobAction, question["action"])
        return dict(schedd.act(action, constraint, reason=(question["reason"], 0)))
    return schedd.edit(constraint, question["attribute"], question["value"])


def _locate(htcondor2: Any, name: str | None, collector: str | None) -> Any:
    if not name and not collector:
        return htcondor2.Schedd()
    place = htcondor2.Collector(collector).locate(htcondor2.DaemonType.Schedd, name)
    return htcondor2.Schedd(place)


def _plain(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


def _did_not_answer(words: str) -> bool:
    """Whether asking again can help; HTCondor tells only in words."""
    signs = (
        "Failed to connect",
        "did not respond",
        "Unable to locate",
        "Failed communication",
        "Failed to fetch ads",
        "Error when performing action",
    )
    return any(sign in words for sign in signs)


def _words(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _say(answer: Mapping[str, Any]) -> int:
    json.dump(answer, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
