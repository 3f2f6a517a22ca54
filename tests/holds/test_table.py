"""The table of holds: real reasons get the right entry, and the policy's rule agrees with it."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from headway.holds import classify
from headway.holds.advice import Act
from headway.holds.advise import advise
from headway.holds.history import History
from headway.holds.hold import meaning_of
from headway.holds.table import CODE_NAMES, DEPENDS, NEVER, PERMANENT, TRANSIENT, VACATE, table
from headway.node.errors import Exit
from headway.pool.policy import releases
from headway.spec import Retries

from .logs_made import NOT_FOUND, RESET, hold
from .test_reasons import read_toml, reasons

ROOT = Path(__file__).parents[2]
LOGS = ROOT / "tests" / "events" / "logs"

#: Every real log whose job is held: the class of its first hold, and what a newcomer must be told.
SCENARIOS = {
    "bad_exec": ("executable-missing", PERMANENT, "/nonexistent/train.sh"),
    "command_failed_then_output_hold": ("output-file-missing", PERMANENT, "model.pt"),
    "disk": ("over-disk", PERMANENT, "disk"),
    "exec_duration": ("over-time", PERMANENT, "longer than it may"),
    "fail_404": ("input-object-not-found", DEPENDS, "osdf:///data/nope.txt"),
    "job_duration": ("over-time", PERMANENT, "longer than it may"),
    "memory": ("over-memory", PERMANENT, "memory"),
    "missing_input": ("input-file-missing", PERMANENT, "/nonexistent/in.txt"),
    "missing_output": ("output-file-missing", PERMANENT, "model.pt"),
    "periodic_hold": ("own-rule-time", DEPENDS, "ran too long"),
    "periodic_release_bounded": ("input-object-not-found", DEPENDS, "404"),
    "periodic_release_unbounded": ("input-object-not-found", DEPENDS, "404"),
    "stall_plugin_lifetime": ("input-too-slow", TRANSIENT, "took so long"),
    "upload_fail": ("output-no-space", DEPENDS, "no room left"),
    "wall_exit_nonzero": ("own-rule", DEPENDS, "bad exit"),
}


@pytest.mark.parametrize("log", sorted(LOGS.glob("*.log")), ids=lambda log: log.stem)
def test_every_real_scenario_that_ends_in_a_hold(log: Path) -> None:
    history = History.from_logs([log])
    holds = sorted(history.every_hold(), key=lambda each: each.at)
    if log.stem not in SCENARIOS:
        assert not holds
        return
    advice = advise(holds[0], history)
    cause, kind, said = SCENARIOS[log.stem]
    assert (advice.cause, advice.kind) == (cause, kind)
    assert said in advice.headline
    # A sentence, with nothing of the machinery in it.
    assert advice.headline.endswith(".") and "HoldReason" not in advice.headline
    assert "{" not in " ".join([advice.headline, *advice.reasons])
    assert advice.act is not Act.REMOVE


OTHERS = [
    # What decides is the text: these all say "13".
    (13, 2, "Error from slot1@h: STARTER at 10.0.0.1 failed to send file(s) to <10.0.0.2:1>: error"
     " reading from /scratch/out.root: (errno 2) No such file or directory; SHADOW failed to"
     " receive file(s) from <10.0.0.1:2>", "output-file-missing"),
    (13, 256, "Transfer output files failure at execution point s@h using protocol osdf. Details:"
     " 403 Forbidden ( URL file = osdf:///a/b )|", "output-forbidden"),
    (12, 2, "Error from slot1@h: SHADOW at 10.0.0.1 failed to send file(s) to <10.0.0.2:1>: error"
     " reading from /home/a/in.dat: (errno 2) No such file or directory; STARTER failed to receive"
     " file(s)", "input-file-missing"),
    (13, 256, NOT_FOUND, "input-object-not-found"),
    (13, 256, RESET, "input-network"),
    (13, 256, RESET.replace("read: connection reset by peer", "403 Forbidden"), "input-forbidden"),
    (13, 256, RESET.replace("read: connection reset by peer", "something else"), "input-plugin"),
    (13, 256, "Transfer input files failure at execution point s@h. Details: no space left on"
     " device", "input-node-full"),
    (34, 102, "Job has gone over cgroup memory limit of 1024 megabytes.", "over-memory"),
    (34, 102, "", "over-memory"),
    (26, 0, "Memory usage exceeds 20 GB", "over-memory"),
    (21, 1001, "policy", "over-memory-icecube"),
    (21, 103, "", "over-disk"),
    (3, 0, "The job attribute PeriodicHold expression 'NumJobStarts > 10' evaluated to TRUE",
     "too-many-starts"),
    (26, 0, "Your job has been running longer than 72 hours", "over-time-by-policy"),
    (3, 0, "The job attribute OnExitHold expression 'ExitCode =!= 0' evaluated to TRUE",
     "command-failed"),
    # What a rule names is not what it met, unless it names one thing alone.
    (3, 0, "The job attribute PeriodicHold expression 'MemoryUsage > 9000 || DiskUsage > 9000'"
     " evaluated to TRUE", "own-rule"),
    (26, 0, "The system macro SYSTEM_PERIODIC_HOLD expression '(JobStatus == 2) && (MemoryUsage >"
     " RequestMemory)' evaluated to TRUE", "over-memory"),
    (26, 0, "The system macro SYSTEM_PERIODIC_HOLD expression '(JobStatus == 1) && ((time() -"
     " EnteredCurrentStatus) > 86400)' evaluated to TRUE", "pool-rule"),
    (21, 0, "Error from slot1@h: WANT_HOLD = MemoryUsage > Memory", "over-memory"),
    # A rule's subcode is whatever somebody chose.
    (26, 102, "Excessive CPU usage", "over-cores"),
    (3, 102, "Job ran for more than two hours", "own-rule-time"),
    (21, 102, "Error from slot1@h: disk usage exceeded request_disk", "over-disk"),
    (21, 102, "", "over-memory"),
    # Of a 007, which has no code.
    (0, 0, "Error from slot1@h: Failed to execute '/x/condor_exec.exe': (errno=13: 'Permission"
     " denied')", "executable-denied"),
    (0, 0, "Error from slot1@h: Docker job has gone over memory limit of 8055 Mb", "over-memory"),
    (6, 8, "Failed to execute '/x': (errno=8: 'Exec format error')", "executable-unfit"),
    (6, 12, "", "start-transient"),
    (6, 0, "no site of this pool can ever take the job: 99 cpus asked for", "headway-too-large"),
    # Whatever the source said: it is Headway's own hold.
    (3, 81, "Headway: the input 'x' did not arrive: time limit exceeded from a.edu; released by"
     " itself after 60 s", "headway-input"),
    (3, 81, "Headway: the outputs could not be delivered: out.bin could not be sent to"
     " https://data.example.org/out.bin: HTTP 404 Not Found (first byte); released by itself after"
     " 60 s", "headway-delivery"),
    (1, 0, "via condor_hold (by user alice)", "user-request"),
    (1, 0, "please do not release", "user-request"),
    (13, 256, "via condor_hold (by user staff)", "user-request"),
    (15, 0, "submitted on hold at user's request", "submitted-on-hold"),
    (16, 1, "Spooling input data files", "spooling"),
    (35, 0, "Error from slot1@h: Cannot pull image: toomanyrequests", "image-unfetched"),
    (35, 0, "Error from slot1@h: invalid image reference", "image"),
    (1007, 0, "", "vacated"),
    (9, -1005, "", "vacated"),
    (999, 0, "what is this", "unknown"),
    (0, 0, "", "unknown"),
]  # fmt: skip


#: How sites, users and plugins put it.
WORDS = [tuple(row) for row in read_toml(Path(__file__).with_name("words.toml"))["words"]]


@pytest.mark.parametrize(("code", "subcode", "reason", "cause"), [*OTHERS, *WORDS])
def test_the_text_decides_then_the_code(code: int, subcode: int, reason: str, cause: str) -> None:
    assert meaning_of(hold(code, subcode, reason)).id == cause


def test_a_hold_that_the_job_s_own_policy_releases_is_transient() -> None:
    subcodes = [*range(140), 256, 2816, 65280]
    for code in range(60):
        for subcode in subcodes:
            if releases(code, subcode, holds=1, starts=0, retries=Retries()):
                entry = meaning_of(hold(code, subcode, ""))
                assert entry.kind == TRANSIENT, (code, subcode, entry.id)


def test_the_agent_s_exit_code_is_the_one_in_the_table() -> None:
    entry = next(entry for entry in table() if entry.id == "headway-input")
    assert entry.subcodes == frozenset({int(Exit.INPUT_RETRYABLE)})


def test_codes_1_15_and_16_are_never_advised_on() -> None:
    for code in (1, 15, 16):
        for reason in ("", NOT_FOUND, RESET, "memory usage exceeded request_memory"):
            for subcode in (0, 2, 102, 256):
                found = advise(hold(code, subcode, reason), History())
                assert found.act is Act.LEAVE and found.kind == NEVER
                assert found.probability is None and found.command == ""


def test_the_table_is_whole() -> None:
    ids = [entry.id for entry in table()]
    assert len(set(ids)) == len(ids) and ids[-1] == "unknown"
    for entry in table():
        assert entry.kind in (TRANSIENT, PERMANENT, DEPENDS, NEVER), entry.id
        assert 0 <= entry.prior <= 1 and entry.step in ("input", "start", "run", "output")
        assert entry.wait in ("", "object", "quiet", "own") and entry.raises in (
            "",
            "memory",
            "disk",
        )
        assert set(entry.checks) <= {"object", "file", "folder", "quiet", "request"}
        assert (entry.kind == NEVER) == (entry.worth == 0), entry.id
        assert entry.headline.endswith((".", "}.")) and entry.why and entry.do
        if entry.kind == PERMANENT:
            assert entry.changes or entry.raises or entry.act == "remove", entry.id
        for code in entry.codes or ():
            assert code in CODE_NAMES or code >= VACATE


def test_every_entry_can_be_met() -> None:
    """None stands in the shade of one before it."""
    met = {meaning_of(hold(code, sub, reason)).id for code, sub, reason, _ in OTHERS + WORDS}
    met |= {cause for cause, _, _ in SCENARIOS.values()}
    met |= {classify(r.get("code"), r.get("subcode"), r["text"]).id for r in reasons()}
    for code in range(60):
        for subcode in (0, 1, 2, 5, 13, 28, 62, 81, 101, 104, 110, 122, 256):
            met.add(meaning_of(hold(code, subcode, "")).id)
    for said in (
        "remaps resulted in a cycle",
        "unsupported protocol x",
        "checksum mismatch",
        "not found",
        "no space left",
        "connection refused",
        "permission denied",
    ):
        for code in (12, 13):
            way = {12: "Transfer output files failure: ", 13: "Transfer input files failure: "}
            met.add(meaning_of(hold(code, 256, way[code] + said)).id)
    assert {entry.id for entry in table()} - met == set()


def test_the_page_shows_the_table_as_it_is() -> None:
    spec = importlib.util.spec_from_file_location("update_holds", ROOT / "scripts/update_holds.py")
    assert spec is not None and spec.loader is not None
    update_holds = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(update_holds)
    text = (ROOT / "docs" / "holds.md").read_text(encoding="utf-8")
    assert update_holds.updated(text) == text, "run scripts/update_holds.py"
    assert len(re.findall(r"^\| `", text, re.MULTILINE)) == len(SCENARIOS) + len(table())
