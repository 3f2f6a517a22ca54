"""Each rule stands twice, as an expression and as a function: they say the same."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headway.events import EventWriter
from headway.node.errors import Exit
from headway.pool.local.job import LocalJob
from headway.pool.local.machine import Site
from headway.pool.local.queue import QueueState
from headway.pool.policy import (
    AT_AVOIDED_PLACE,
    AT_SANDBOX,
    AVOID,
    AVOIDED,
    HISTORY,
    LONGEST_BACKOFF,
    MOST_STARTS,
    NOT_AVOIDED,
    NOT_PREFETCHED_ELSEWHERE,
    AfterExit,
    after_exit,
    avoid_lines,
    backoff,
    courier_lines,
    courier_needs,
    exit_lines,
    for_couriers,
    hold_reason,
    hold_reason_expression,
    prefetch_lines,
    release_expression,
    releases,
)
from headway.spec import Retries, build_job

pytest.importorskip("htcondor2")
import classad2

STATUSES = [*map(int, Exit), 1, 2, 79, 88, 128, 143, 255, -1, -9, -15]


class Ad:
    """A job ad in which expressions are evaluated."""

    def __init__(self, **expressions: str) -> None:
        self._ad = classad2.ClassAd()
        for name, text in expressions.items():
            self._ad[name] = classad2.ExprTree(text)

    def value(self, name: str, facts: Mapping[str, Any]) -> Any:
        for key, value in facts.items():
            if value is None:
                self._ad.pop(key, None)
            else:
                self._ad[key] = value
        return self._ad.eval(name)

    def accepts(self, slot: Any) -> bool:
        """Whether the job's requirements take a slot; `matches` asks the one in the brackets."""
        return bool(slot.matches(self._ad))


def avoiding_ad() -> Ad:
    lines = {key.removeprefix("+"): text for key, text in avoid_lines(Retries()).items()}
    return Ad(**lines, Requirements=NOT_AVOIDED)


def slot(site: str | None, name: str, *, machine: str = "m") -> Any:
    facts = {"Name": name, "Machine": machine, "GLIDEIN_ResourceName": site}
    return classad2.ClassAd({key: value for key, value in facts.items() if value is not None})


def by_classad(ad: Ad, status: int, ends: int, holds: int, inputs: int) -> AfterExit:
    facts = {
        "ExitBySignal": status < 0,
        "ExitCode": status if status >= 0 else None,
        "ExitSignal": -status if status < 0 else None,
        # counted before the expressions are looked at
        "NumJobCompletions": ends + inputs + 1,
        "NumHolds": holds or None,
        "NumHoldsByReason": classad2.ClassAd({"JobPolicy": inputs}) if inputs else None,
    }
    hold, remove = ad.value("on_exit_hold", facts), ad.value("on_exit_remove", {})
    assert isinstance(hold, bool) and isinstance(remove, bool)
    return AfterExit.HOLD if hold else AfterExit.END if remove else AfterExit.RETRY


@pytest.mark.parametrize("command", [0, 1, 3])
def test_the_end_of_an_attempt(command: int) -> None:
    for node, given, output in itertools.product((0, 1, 2), repeat=3):
        retries = Retries(node=node, input=given, output=output, command=command)
        lines = exit_lines(retries)
        ad = Ad(on_exit_hold=lines["on_exit_hold"], on_exit_remove=lines["on_exit_remove"])
        for status, ends, holds in itertools.product(STATUSES, range(4), range(4)):
            told = after_exit(status, ends=ends, holds=holds, retries=retries)
            for inputs in {0, holds}:
                found = by_classad(ad, status, ends, holds, inputs)
                assert found is told, (retries, status, ends, holds, inputs)


def test_outputs_that_are_left_for_a_courier() -> None:
    """Only the start that left them puts the job back, and only if it is its own courier."""
    retries = Retries(command=1)
    lines = exit_lines(retries, later=True)
    ad = Ad(on_exit_hold=lines["on_exit_hold"], on_exit_remove=lines["on_exit_remove"])
    for handed, paired in itertools.product((None, 2, 3), (None, True, False)):
        facts = {"NumShadowStarts": 3, "HeadwayHanded": handed, "HeadwayPaired": paired}
        ad.value("on_exit_hold", facts)
        for status, ends, holds in itertools.product(STATUSES, range(3), range(2)):
            left = handed == 3 and paired is not True
            told = after_exit(status, ends=ends, holds=holds, retries=retries, handed=left)
            for steps in (0, 1, 4):
                ad.value("on_exit_hold", {"HeadwaySteps": steps or None})
                found = by_classad(ad, status, ends + steps, holds, 0)
                assert found is told, (handed, paired, status, ends, holds, steps)


def test_a_courier_that_is_killed_comes_again() -> None:
    """Whatever killed it was not the user's command; but it must not go on for ever."""
    retries = Retries(command=0)
    lines = exit_lines(retries, later=True)
    ad = Ad(on_exit_hold=lines["on_exit_hold"], on_exit_remove=lines["on_exit_remove"])
    for courier, starts in itertools.product((None, False, True), (2, MOST_STARTS, 100)):
        ad.value("on_exit_hold", {"NumShadowStarts": starts, "HeadwayCourier": courier})
        for status, ends in itertools.product(STATUSES, range(3)):
            told = after_exit(
                status, ends=ends, holds=0, retries=retries, courier=bool(courier), starts=starts
            )
            assert by_classad(ad, status, ends, 0, 0) is told, (courier, starts, status, ends)


def test_a_job_is_a_courier_until_its_time_is_over() -> None:
    lines = {key.removeprefix("+"): text for key, text in courier_lines(3600.0).items()}
    ad = Ad(cpus=for_couriers("0", "4"), Requirements=for_couriers(AT_SANDBOX, "true"), **lines)
    here = {"HeadwaySandboxAt": "a@node"}
    slots = {
        "its transfer slot": ("slot2@a@node", True),
        "another node's": ("slot2@b@node", True),
        "an ordinary one": ("slot1@a@node", False),
    }
    for since, is_courier in ((None, False), (0, True), (-3500, True), (-3700, False)):
        told = None if since is None else int(time.time()) + since
        facts = {**here, "HeadwayDeliverSince": told}
        assert ad.value("cpus", facts) == (0 if is_courier else 4)
        assert ad.value("keep_claim_idle", facts) == (300 if is_courier else 0)
        for name, (slot_name, transfer) in slots.items():
            ad_of_slot = classad2.ClassAd({"Name": slot_name, "HeadwayTransferSlot": transfer})
            ad_of_slot["Requirements"] = True
            taken = not is_courier or name == "its transfer slot"
            assert ad.accepts(ad_of_slot) is taken, (since, name)


@pytest.mark.parametrize(
    "said",
    [
        "the input 'd.tar' did not arrive: HTTP 404 Not Found from c.example.org (osdf:///n/d.tar)",
        'says "no" \\ \t twice',
        "one\n...\n005 (1.0.0) forged\x1b[31m",
        "x" * 9000,
        "",
    ],
)
def test_the_reason_of_a_hold(said: str) -> None:
    for pause, holds in itertools.product((1.0, 60.0, 1000.0, 0.5), (0, 1, 2, 20)):
        retries = Retries(backoff=pause)
        ad = Ad(reason=hold_reason_expression(retries))
        told = hold_reason(said, holds=holds, retries=retries)
        facts: dict[str, Any] = {
            "NumHolds": holds or None,
            "NumShadowStarts": 3,
            "HeadwayReason": [3, said],
        }
        assert ad.value("reason", facts) == told
        assert told.isprintable() and len(told) < 600
        # An earlier attempt's, or what is none, is not said.
        default = hold_reason("", holds=holds, retries=retries)
        for other in ([2, said], [3, 7], [3], "x", None, [3, classad2.ClassAd()]):
            assert ad.value("reason", {"HeadwayReason": other}) == default


@pytest.mark.parametrize("pause", [1.0, 60.0, 1000.0])
def test_the_release_of_a_hold(pause: float) -> None:
    codes = range(48)
    subcodes = (0, 1, 2, 5, 11, 12, 13, 26, 28, 62, 81, 101, 104, 110, 113, 255, 256, 512)
    for given, holds_allowed in ((0, 0), (1, 2), (2, 1)):
        retries = Retries(input=given, holds=holds_allowed, backoff=pause)
        ad = Ad(rule=release_expression(retries))
        for code, subcode, holds in itertools.product(codes, subcodes, (1, 2, 3)):
            told = releases(code, subcode, holds=holds, starts=1, retries=retries)
            wait = backoff(holds, retries)
            facts = {
                "JobStatus": 5,
                "HoldReasonCode": code,
                "HoldReasonSubCode": subcode,
                "NumHolds": holds,
                "NumShadowStarts": 1,
                "EnteredCurrentStatus": int(time.time() - wait) - 5,
            }
            assert ad.value("rule", facts) is told, (retries, code, subcode, holds)
            if told:
                early = {"EnteredCurrentStatus": int(time.time() - wait) + 5}
                assert ad.value("rule", early) is False
                assert ad.value("rule", {**facts, "JobStatus": 1}) is False
                later = {**facts, "EnteredCurrentStatus": int(time.time()) + 3600}
                assert ad.value("rule", later) is True, "the clock was set back"


def test_the_bounds_of_a_release() -> None:
    retries = Retries(holds=20, backoff=60.0)
    ad = Ad(rule=release_expression(retries))
    for holds, starts in itertools.product((1, 6, 7, 12, 20, 21), (0, 1, MOST_STARTS, 31)):
        wait = backoff(holds, retries)
        assert wait <= LONGEST_BACKOFF
        told = releases(11, 0, holds=holds, starts=starts, retries=retries)
        facts = {
            "JobStatus": 5,
            "HoldReasonCode": 11,
            "HoldReasonSubCode": 0,
            "NumHolds": holds,
            "NumShadowStarts": starts or None,
            "EnteredCurrentStatus": int(time.time() - wait) - 5,
        }
        assert ad.value("rule", facts) is told, (holds, starts)


def test_the_sites_that_a_job_avoids(tmp_path: Path) -> None:
    job = build_job({"name": "a", "command": "true"}, folder=Path("/"))
    names = [*"ABCDEFG"]
    sites = [Site(name, 1, 1, 1) for name in names]
    writer = EventWriter(tmp_path / "events.log")
    queue = QueueState(1, LocalJob.of(job.model_dump()))
    entry = queue[0]
    ad = avoiding_ad()
    # in the local pool a site is one node
    slots = {name: slot(name, f"slot1@{name}") for name in names}
    for past in ("", "A", "AB", "BAC", "ABAB", "ABCDE", "EDCBAE"):
        entry.sites, entry.starts = [], 0
        for site in past:
            at = {"GLIDEIN_ResourceName": site}
            queue.replay([writer.executing(1, 0, "<a>", slot="slot1@a", attributes=at)])
        newest = past[::-1][: HISTORY - 1]
        facts: dict[str, Any] = {}
        for n in range(1, HISTORY):
            there = newest[n - 1] if n <= len(newest) else None
            facts[f"MachineAttrGLIDEIN_ResourceName{n}"] = there
            facts[f"MachineAttrName{n}"] = there and f"slot1_{n}@{there}"
        for ends, holds, by_user, inputs, hold, waited in itertools.product(
            (0, 1, 2),
            (0, 1, 2, 3),
            (0, 1, 2),
            (0, 1, 2, 3),
            ((1, 0), (3, 81), (3, 0), (13, 81)),
            (10, Retries().avoid + 10, 4 * Retries().avoid + 10),
        ):
            if by_user + inputs > holds:
                continue
            entry.ends, entry.holds, entry.user_holds = ends, holds, by_user
            entry.hold = hold if holds else (0, 0)
            entry.moved = time.monotonic() - waited
            reasons = {"UserRequest": by_user, "JobPolicy": inputs, "Unspecified": 1}
            facts |= {
                "NumJobCompletions": ends + inputs,
                "NumHolds": holds or None,
                "LastHoldReasonCode": hold[0] if holds else None,
                "LastHoldReasonSubCode": hold[1] if holds else None,
                "NumHoldsByReason": classad2.ClassAd(
                    {reason: count for reason, count in reasons.items() if count}
                ),
                "EnteredCurrentStatus": int(time.time() - waited),
            }
            told = {site.name for site in queue.sites_for(entry, sites)}
            ad.value(AVOID, facts)
            found = {name for name, there in slots.items() if ad.accepts(there)}
            assert found == told, (past, ends, holds, by_user, inputs, hold, waited)


def test_a_slot_of_the_site_that_is_another_node() -> None:
    """After a while the site counts again, but not the node that was not fit."""
    ad = avoiding_ad()
    facts: dict[str, Any] = {
        "NumJobCompletions": 1,
        "MachineAttrGLIDEIN_ResourceName1": "A",
        "MachineAttrName1": "slot1_3@glidein_1@a.edu",
    }
    for name, waited, fits in (
        ("slot1@glidein_1@a.edu", Retries().avoid + 10, False),
        ("slot1@glidein_2@a.edu", Retries().avoid + 10, True),
        ("slot1@glidein_2@a.edu", 10, False),
        ("slot1@glidein_1@a.edu", 4 * Retries().avoid + 10, True),
    ):
        ad.value(AVOID, facts | {"EnteredCurrentStatus": int(time.time() - waited)})
        assert ad.accepts(slot("A", name)) is fits, (name, waited)


def test_a_slot_without_a_site_is_known_by_its_machine() -> None:
    ad = avoiding_ad()
    failed = {"NumJobCompletions": 1, "MachineAttrMachine1": "m1", "MachineAttrName1": "slot1@m1"}
    ad.value(AVOID, failed | {"EnteredCurrentStatus": int(time.time())})
    assert not ad.accepts(slot(None, "slot2@m1", machine="m1"))
    assert ad.accepts(slot(None, "slot1@m2", machine="m2"))


def test_what_cannot_be_told_keeps_no_job_waiting() -> None:
    """As where somebody has set the list to what is no list."""
    assert Ad(Requirements=NOT_AVOIDED).accepts(slot("A", "slot1@a"))
    for odd in ("error", "undefined", "3"):
        ad = Ad(**{AVOID: odd, AVOIDED: AT_AVOIDED_PLACE, "Requirements": NOT_AVOIDED})
        assert ad.accepts(slot("A", "slot1@a"))


def test_the_requirement_is_one_term() -> None:
    """`condor_q -better-analyze` shows term by term, the attributes apart."""
    assert NOT_AVOIDED == "HeadwayAvoided =!= true"


def test_a_start_that_only_brings_inputs_is_never_the_last() -> None:
    """However it ends; and it costs the job no try."""
    for later in (False, True):
        retries = Retries(command=0, node=0)
        lines = exit_lines(retries, later=later, ahead=True)
        ad = Ad(on_exit_remove=lines["on_exit_remove"])
        for status, prefetch in itertools.product((0, 80, 82, 87, 143, -9), (None, 1, 2)):
            facts = {
                "NumShadowStarts": 2,
                "NumJobCompletions": 2,
                "HeadwaySteps": 1,
                "HeadwayPrefetch": prefetch,
                "ExitBySignal": status < 0,
                "ExitCode": max(0, status),
            }
            assert ad.value("on_exit_remove", facts) is (prefetch != 2), (status, prefetch)


@pytest.mark.parametrize("later", [None, 3600.0])
def test_where_a_waiting_job_brings_its_inputs(later: float | None) -> None:
    lines = {key.removeprefix("+"): text for key, text in prefetch_lines(later).items()}
    needs = courier_needs(later=later, ahead=True)
    ad = Ad(
        **lines,
        RequestCpus=for_couriers(needs["request_cpus"], "4"),
        Requirements=for_couriers(needs["requirements"], NOT_PREFETCHED_ELSEWHERE),
        HeadwayRun='"1f2e3d4c99"',
    )
    idle = {"JobStatus": 1, "EnteredCurrentStatus": int(time.time()) - 60}
    unset = ("NumShadowStarts", "HeadwayPrefetch", "HeadwayPrefetchAfter", "HeadwayPrefetchedAt")
    soon = int(time.time()) + 600

    def takes(slot: str, asked: str | None, **facts: Any) -> bool:
        """Whether a job with these facts goes to a transfer slot, by its number, or to another."""
        ad.value(
            "JobStatus", {**dict.fromkeys((*unset, "HeadwayPrefetchedUntil")), **idle, **facts}
        )
        about: dict[str, Any] = {"Name": slot, "HeadwayTransferSlots": 2}
        about["HeadwayTransferSlot"] = slot.startswith(("slot2", "slot3"))
        about["SlotID"] = int(slot[4])
        if asked is not None:
            about["HeadwayPrefetchFor"] = asked
        ad_of_slot = classad2.ClassAd(about)
        start = "(TARGET.HeadwayCourier =?= true) == (MY.HeadwayTransferSlot =?= true)"
        enough = "TARGET.RequestCpus <= (HeadwayTransferSlot ? 0 : 4)"
        ad_of_slot["Requirements"] = classad2.ExprTree(f"{start} && {enough}")
        return ad.accepts(ad_of_slot)

    for asked in (None, "", "1f2e3d4c", "99999999,1f2e3d4c"):
        for name in ("slot2@a", "slot3@a"):
            entries = (asked or "").split(",")
            place = int(name[4]) % 2
            wanted = len(entries) > place and entries[place] == "1f2e3d4c"
            assert takes(name, asked) is wanted, (asked, name)
        assert takes("slot1@a", asked), "an ordinary slot will do in any case"
    for facts in (
        {"EnteredCurrentStatus": int(time.time())},
        {"NumShadowStarts": 1},  # it has computed, or nobody knows
        {"NumShadowStarts": 2, "HeadwayPrefetch": 1},
        {"NumShadowStarts": 6, "HeadwayPrefetch": 6},
        {"HeadwayPrefetchAfter": soon},
        {"HeadwayPrefetchedAt": "b", "HeadwayPrefetchedUntil": soon},
    ):
        assert not takes("slot2@a", "1f2e3d4c", **facts), facts
    again = {"NumShadowStarts": 2, "HeadwayPrefetch": 2, "HeadwayPrefetchAfter": soon - 900}
    assert takes("slot2@a", "1f2e3d4c", **again)
    # the slot looks once more at a job that has been matched, and is about to run
    running = {"JobStatus": 2, "NumShadowStarts": 1, "EnteredCurrentStatus": int(time.time())}
    assert takes("slot2@a", "1f2e3d4c", **running)
    # then it prefers the node that has its inputs
    at = {"HeadwayPrefetchedAt": "a", "HeadwayPrefetchedUntil": soon}
    assert takes("slot1@a", None, **at) and takes("slot1_2@a", None, **at)
    assert not takes("slot1@b", None, **at)
    assert takes("slot1@b", None, **{**at, "HeadwayPrefetchedUntil": soon - 900})
    assert ad.value("RequestCpus", {}) == 4, "without a slot it is the job's own"
