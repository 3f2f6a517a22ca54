"""The audit: nothing is lost of it, nothing of it stops heal, and one has it at a time."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headway.holds.audit import Audit, AuditError, HealState, read_audit
from headway.holds.decisions import decide
from headway.holds.rules import Rules

from .held_made import NOW, case, held

RULES = Rules()


def intent_line(number: int = 0) -> dict[str, object]:
    state = HealState(RULES, id="me")
    (decision,) = decide(state, [case(held(number))], NOW, RULES)
    assert decision.intent is not None
    return {
        "kind": "intent", "intent": decision.intent.as_json(), "decision": decision.as_json(),
    }  # fmt: skip


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "heal.jsonl"
    with Audit(path) as audit:
        line = intent_line()
        audit.write(line)
        id = line["intent"]["id"]  # type: ignore[index]
        audit.write({"kind": "result", "id": id, "done": True, "words": "\udcff \x1b[31m é"})
    state = HealState.of(read_audit(path), RULES)
    assert state.id and state.by_id[id].done and not state.pending
    with Audit(path) as again:
        assert HealState.of(again.records, RULES).id == state.id, "it keeps its name"


def test_a_line_cut_short_is_no_line(tmp_path: Path) -> None:
    path = tmp_path / "heal.jsonl"
    with Audit(path) as audit:
        audit.write(intent_line(0), intent_line(1))
    whole = path.read_bytes()
    for cut in range(0, len(whole), 7):
        path.write_bytes(whole[:cut])
        assert len(HealState.of(read_audit(path), RULES).by_id) <= whole[:cut].count(b"\n")
        if cut % 91 == 0:
            with Audit(path) as audit:
                audit.write(intent_line(2))
            assert len(HealState.of(read_audit(path), RULES).pending) >= 1


@pytest.mark.parametrize(
    "line",
    [
        b"\n", b"null\n", b"[]\n", b"{}\n", b'{"kind": "intent"}\n', b"\xff\xfe\n",
        b"[" * 5000 + b"\n",
        b'{"kind": "intent", "intent": {"id": "x", "key": "no"}}\n',
        b'{"kind": "outcome", "id": "x", "how": "well"}\n',
        b'{"kind": "result", "id": "nobody", "done": true}\n',
        b'{"kind": "result", "id": "nobody", "time": "soon"}\n',
    ],
)  # fmt: skip
def test_nonsense_is_passed_over(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "heal.jsonl"
    with Audit(path) as audit:
        audit.write(intent_line(0))
    path.write_bytes(line + path.read_bytes() + line)
    assert len(HealState.of(read_audit(path), RULES).by_id) == 1


def test_one_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "heal.jsonl"
    with Audit(path), pytest.raises(AuditError, match="another heal is at work"):
        Audit(path)
    Audit(path).close()


def test_a_full_disk_is_told_and_nothing_is_done(tmp_path: Path) -> None:
    path = tmp_path / "heal.jsonl"
    code = """
import sys
from pathlib import Path
from headway.holds.audit import Audit, AuditError
audit = Audit(Path(sys.argv[1]))
try:
    audit.write({"kind": "left", "id": "x", "why": "y" * 10_000})
except AuditError as error:
    print(error.message)
"""

    def little_room() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    done = subprocess.run(
        # -B: under the limit, bytecode would be cut short, and break every later import
        [sys.executable, "-B", "-c", code, str(path)],
        capture_output=True, text=True, preexec_fn=little_room,
    )  # fmt: skip
    assert "cannot be written" in done.stdout, done.stderr
    assert [record["kind"] for record in read_audit(path)] == ["audit"]
    with Audit(path) as audit:
        audit.write(intent_line())
    assert [record["kind"] for record in read_audit(path)] == ["audit", "intent"]


def test_no_permission_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AuditError, match="cannot be written"):
        Audit(tmp_path / "file" / "heal.jsonl")


def test_its_lines_are_evidence_for_a_model(tmp_path: Path) -> None:
    """A decision carries all that it was made of, and no control character."""
    path = tmp_path / "heal.jsonl"
    with Audit(path) as audit:
        audit.write(intent_line())
    raw = path.read_bytes()
    assert raw.endswith(b"\n") and os.stat(path).st_size == len(raw)
    decision = json.loads(raw.splitlines()[1])["decision"]
    advice = decision["advice"]
    assert advice["probability"] == 0.7 and advice["hold"]["template"]
    assert decision["verb"] == "release" and decision["releases"] == 0


@pytest.mark.parametrize(
    "change",
    [
        {"act": "Vacate"}, {"key": ["1 || true", 0]}, {"key": [1, 0, 2]}, {"key": [True, 0]},
        {"holds": "1"}, {"code": "13 || true"}, {"subcode": None}, {"since": "x"},
        {"since": float("inf")}, {"claim": 'x" || true || "'}, {"before": ["x"]}, {"heals": -1},
        {"edits": [{"attribute": "Cmd", "new": "1"}]}, {"user": 5}, {"avoid": ['A", "B']},
        {"edits": [{"attribute": "RequestMemory", "new": "time()"}]},
        {"edits": [{"attribute": "RequestMemory", "new": "1", "old": "1 || true"}]},
        {"edits": [{"attribute": "JobDurationCategory", "new": '"Forever"'}]},
    ],
    ids=str,
)  # fmt: skip
def test_an_intent_that_heal_would_not_write_is_no_intent(
    tmp_path: Path, change: dict[str, object]
) -> None:
    path = tmp_path / "heal.jsonl"
    line = intent_line()
    forged = {**line, "intent": {**line["intent"], **change}}  # type: ignore[dict-item]
    with Audit(path) as audit:
        audit.write(line)
        audit.write(forged)
    assert len(HealState.of(read_audit(path), RULES).pending) == 1
    assert sum(record["kind"] == "intent" for record in read_audit(path)) == 1
