"""XML and JSON logs: the same events as the text log that HTCondor wrote beside them.

`formats/` is from a real pool (HTCondor 25): the pool-wide log as JSON and as XML, and the jobs'
own logs of the same runs as text; most 028 events were left out.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.events import Event, Follower, Jobs, read_log
from headway.events.clock import Clock
from headway.events.opening import Format, sniff
from headway.events.read import AdParser, JsonParser, XmlParser

FORMATS = Path(__file__).parent / "formats"
LOGS = Path(__file__).parent / "logs"
PARSERS: dict[str, type[AdParser]] = {"json": JsonParser, "xml": XmlParser}
both = pytest.mark.parametrize("kind", ["json", "xml"])
quick = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def by_job(events: list[Event]) -> dict[tuple[int, int], list[Event]]:
    found = defaultdict(list)
    for event in events:
        found[event.cluster, event.proc].append(event)
    found.pop((-1, -1), None)  # the pool-wide log's own header
    return found


def comparable(event: Event) -> Event:
    # A text log has whole seconds; the ClassAd of a 004 event lacks the resource table.
    body = event.body
    if event.number == 4:
        tables = (at for at, line in enumerate(body) if "Partitionable Resources" in line)
        body = body[: next(tables, len(body))]
    return replace(event, time=float(math.floor(event.time)), body=body)


@both
def test_common_files_but_for_the_proc_which_ads_leave_out(kind: str) -> None:
    ours = read_log(FORMATS / f"common.{kind}")
    text = read_log(FORMATS / f"common-{kind}.log")
    assert ours.skipped == () and {event.proc for event in ours.events} == {-1}
    found = [replace(comparable(event), proc=-1000) for event in ours.events]
    assert found == text.events and len(found) == 2


@both
@pytest.mark.parametrize("name", ["jobs", "gpu"])
def test_the_same_events_as_the_text_log(name: str, kind: str) -> None:
    ours = read_log(FORMATS / f"{name}.{kind}")
    text = read_log(FORMATS / f"{name}-{kind}.log")
    assert ours.skipped == ()
    assert ours.offset == (FORMATS / f"{name}.{kind}").stat().st_size
    theirs, ours_by_job = by_job(text.events), by_job(ours.events)
    assert ours_by_job.keys() == theirs.keys()
    for job, events in theirs.items():
        assert list(map(comparable, ours_by_job[job])) == list(map(comparable, events))


@both
def test_properties(kind: str) -> None:
    events = read_log(FORMATS / f"jobs.{kind}").events
    jobs = by_job(events)
    last = {job: [e for e in found if e.number != 28][-1] for job, found in jobs.items()}
    assert last[1, 0].return_value == 0
    assert last[1, 0].received == 3963
    assert last[1, 0].resources["Memory"].request == 64
    assert last[7, 0].number == 5
    assert last[7, 0].signal == 11
    (held,) = (event for event in jobs[3, 0] if event.number == 12)
    assert held.codes == (13, 2)
    (policy,) = (event for event in jobs[8, 0] if event.number == 12)
    assert policy.reason == 'Too long: "quoted" \\\\ <b>&amp; back'
    evicted, *_ = (event for event in jobs[5, 0] if event.number == 4)
    assert (evicted.code, evicted.reason) == (1022, "Job vacated by schedd")
    requeued = next(event for event in jobs[6, 0] if event.requeued)
    assert requeued.return_value == 5
    assert requeued.reason.startswith("The job attribute OnExitRemove")
    ad = next(event for event in jobs[1, 0] if event.number == 28 and event.site)
    assert (ad.site, ad.attributes["Owner"]) == ("CHTC-Spark-CE1", "user")
    gpu = read_log(FORMATS / f"gpu.{kind}").events
    running = next(event for event in gpu if event.number == 1)
    assert running.attributes["AvailableGPUs"] == "{ GPUs_GPU_a0223334 }"
    assert gpu[-1].resources["GPUs"].assigned == ("GPU-a0223334",)


@both
def test_the_same_fate_as_the_text_log(kind: str) -> None:
    for name in ("jobs", "gpu"):
        ours = Jobs(read_log(FORMATS / f"{name}.{kind}").events).by_id
        theirs = Jobs(read_log(FORMATS / f"{name}-{kind}.log").events).by_id
        for ident, job in theirs.items():
            twin = ours[ident]
            assert (twin.status, twin.outcome, twin.why) == (job.status, job.outcome, job.why)
            assert (twin.attempts, twin.site, twin.slot) == (job.attempts, job.site, job.slot)


@both
def test_read_like_htcondor_does(kind: str, judge: Callable[[Path], list[dict[str, Any]]]) -> None:
    path = FORMATS / f"jobs.{kind}"
    theirs = judge(path)
    ours = read_log(path).events
    assert [event.number for event in ours] == [event["type"] for event in theirs]
    for our, their in zip(ours, theirs, strict=True):
        assert (our.cluster, our.proc) == (their.get("Cluster", -1), their.get("Proc", -1))
        if our.number == 12:
            assert our.reason == their["HoldReason"]


def pieces(kind: str, data: bytes, cuts: list[int]) -> tuple[list[Event], AdParser]:
    parser = PARSERS[kind](Clock(0))
    events: list[Event] = []
    for start, end in pairwise([0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]):
        events += parser.feed(data[start:end])
    return events, parser


FRAMES = {
    "json": [b'{\n  "EventTypeNumber": 13,\n  "Cluster": 1,\n  "Proc": %d,\n  "EventTime": '
             b'"2026-11-15T22:19:56"\n}\n' % n for n in range(3)],
    "xml": [b'<c>\n    <a n="EventTypeNumber"><i>13</i></a>\n    <a n="Cluster"><i>1</i></a>\n'
            b'    <a n="Proc"><i>%d</i></a>\n    <a n="EventTime"><s>2026-11-15T22:19:56</s></a>\n'
            b"</c>\n" % n for n in range(3)],
}  # fmt: skip
FLAT = {
    "json": b'{"EventTypeNumber": 13, "Cluster": 1, "Proc": 7, '
    b'"EventTime": "2026-11-15T22:19:56"}\n',
    "xml": b'<c><a n="EventTypeNumber"><i>13</i></a><a n="Cluster"><i>1</i></a><a n="Proc">'
    b'<i>7</i></a><a n="EventTime"><s>2026-11-15T22:19:56</s></a></c>\n',
}


@both
def test_damage(kind: str) -> None:
    one, two, three = FRAMES[kind]
    torn = one[: len(one) // 2].rpartition(b"\n")[0] + b"\n"
    cases = {
        one + two + three: ([0, 1, 2], 0),
        one + b"\n\n" + two: ([0, 1], 0),
        b"\xef\xbb\xbf" + one + two: ([0, 1], 0),
        (one + two).replace(b"\n", b"\r\n"): ([0, 1], 0),
        one + FLAT[kind] + two: ([0, 7, 1], 0),
        one + torn + two: ([0, 1], len(torn)),
        one + b"stray\n" + two: ([0, 1], 6),
        one + b"\0" * 512 + two: ([0, 1], 512),
        two[30:] + one: ([0], len(two) - 30),
        one + two.replace(b"2026-11-15", b"2026-13-15") + three: ([0, 2], len(two)),
        one + two.replace(b"EventTypeNumber", b"EventTypeNumbers") + three: ([0, 2], len(two) + 1),
        one + two.replace(b"56", b"\xe9") + three: ([0, 2], len(two) - 1),
        one + two[:-2]: ([0], 0),
    }
    for data, (procs, lost) in cases.items():
        events, parser = pieces(kind, data, [])
        assert [event.proc for event in events] == procs
        assert sum(skip.length for skip in parser.skipped) == lost
        assert parser.offset + parser.pending == len(data)


@both
def test_truncated_anywhere(kind: str) -> None:
    data = (FORMATS / f"gpu.{kind}").read_bytes()
    whole, _ = pieces(kind, data, [])
    before = 0
    for cut in range(0, len(data), 7):
        events, parser = pieces(kind, data[:cut], [])
        assert events == whole[: len(events)]
        assert before <= len(events)
        assert not parser.skipped
        before = len(events)
        events, parser = pieces(kind, data[cut:], [])
        assert events == whole[len(whole) - len(events) :]
        assert len(parser.skipped) <= 2
    assert before == len(whole) - 1


@both
def test_a_last_newline_that_an_editor_took(kind: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"".join(FRAMES[kind])[:-1])
    assert len(read_log(tmp_path / "log").events) == 3


@given(st.data())
@quick
def test_pieces_do_not_matter(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["json", "xml"]))
    one, two, three = FRAMES[kind]
    parts = st.one_of(
        st.sampled_from([one, two, three, FLAT[kind], one[:40], two[20:], b"\n", b"\0", b"}\n"]),
        st.binary(max_size=12),
    )
    log = b"".join(data.draw(st.lists(parts, max_size=10)))
    expected, whole = pieces(kind, log, [])
    found, pieced = pieces(kind, log, data.draw(st.lists(st.integers(0, 600))))
    assert found == expected
    assert (pieced.offset, pieced.pending) == (whole.offset, whole.pending)
    assert pieced.skipped == whole.skipped


@given(st.data())
@quick
def test_whole_events_survive_damage_elsewhere(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["json", "xml"]))
    junk = data.draw(
        st.lists(st.binary(max_size=30).filter(lambda b: b"\n" not in b), min_size=2, max_size=2)
    )
    one, two, three = FRAMES[kind]
    events, _ = pieces(kind, one + junk[0] + b"\n" + two + junk[1] + b"\n" + three, [])
    assert [event.proc for event in events] == [0, 1, 2]


ads = st.dictionaries(
    st.text(st.characters(codec="ascii", categories=["L"]), min_size=1, max_size=12)
    | st.sampled_from(["Reason", "Cluster", "HoldReasonCode", "ExecuteProps", "ToE", "Type"]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
        ),
        max_leaves=6,
    ),
    max_size=8,
)


@given(st.integers(0, 150), ads)
@quick
def test_any_ad_gives_an_event_of_printable_lines(number: int, ad: dict[str, Any]) -> None:
    import json

    ad |= {"EventTypeNumber": number, "EventTime": "2026-11-15T22:19:56.125Z"}
    events, _ = pieces("json", json.dumps(ad).encode() + b"\n", [])
    (event,) = events
    assert (event.number, event.time % 1) == (number, 0.125)
    for line in (event.text, *event.body):
        assert "\n" not in line
        line.encode()
    for name in dir(Event):
        if not name.startswith("_"):
            getattr(event, name)


def test_hostile_xml() -> None:
    one, two, _ = FRAMES["xml"]
    bomb = b'<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b SYSTEM "file:///etc/passwd">]>\n'
    entity = one.replace(b"<i>0</i>", b"<s>&a;&b;&lt;&#65;&#x42;</s>").replace(b"Proc", b"Reason")
    events, parser = pieces("xml", bomb + entity + two, [])
    assert events[0].reason == "&a;&b;<AB"
    assert [skip.offset for skip in parser.skipped] == [0]
    deep = b"<c>\n" + b'<a n="x"><c>' * 100_000 + b"</c></a>" * 100_000 + b"\n</c>\n"
    events, parser = pieces("xml", deep + two, [])
    assert [event.proc for event in events] == [1]
    assert [skip.length for skip in parser.skipped] == [len(deep)]


def test_hostile_json() -> None:
    _, two, _ = FRAMES["json"]
    deep = b'{\n"EventTypeNumber": 1, "EventTime": "2026-11-15T22:19:56", "ExecuteProps": {"x":'
    deep += b"[" * 100_000 + b"]" * 100_000 + b"}\n}\n"
    digits = b'{\n"EventTypeNumber": ' + b"9" * 100_000 + b"\n}\n"
    halves = two.replace(b"Proc", b"Reason").replace(
        b': 1,\n  "EventTime', b': "\\ud800",\n  "EventTime'
    )
    events, parser = pieces("json", deep + digits + halves + two, [])
    assert [event.reason for event in events] == ["?", ""]
    assert [skip.length for skip in parser.skipped] == [len(deep), len(digits)]


@both
def test_endless_garbage_does_not_pile_up(kind: str) -> None:
    parser = PARSERS[kind](Clock(0))
    for _ in range(20):
        assert parser.feed(b"\0" * (1 << 20)) == []
    assert parser.pending < 17 << 20
    assert len(parser.feed(b"\n" + FRAMES[kind][0])) == 1


def test_when_the_command_ended(tmp_path: Path) -> None:
    toe = b'"ToE": {"Who": "itself", "How": "OF_ITS_OWN_ACCORD", "HowCode": 0, "When": 1794781196'
    ended = FRAMES["json"][0].replace(b": 13", b": 5").replace(b"\n}", b",\n  %b}\n}" % toe)
    (tmp_path / "log").write_bytes(ended)
    (event,) = read_log(tmp_path / "log").events
    assert event.body[-1] == (
        "\tJob terminated of its own accord at 2026-11-15T22:19:56Z with exit-code 0."
    )


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"", Format.NONE),
        (b"hello\n", Format.NONE),
        (b'{"a": 1}\n', Format.NONE),
        (b"<html>\n", Format.NONE),
        (FRAMES["json"][0], Format.JSON),
        (FRAMES["json"][0][3:], Format.JSON),
        (FLAT["json"], Format.JSON),
        (FRAMES["xml"][0], Format.XML),
        (b'<?xml version="1.0"?>\n<classads>\n' + FRAMES["xml"][0], Format.XML),
        (FLAT["xml"], Format.XML),
        (b"000 (1.0.0) 11/15 22:19:56 x\n", Format.TEXT),
        (b"\ttail of another\n...\n000 (1.0.0) 2026-11-15 22:19:56 x\n", Format.TEXT),
        (b"\0\0\0" + b"000 (1.0.0) 2026-11-15 22:19:56 x\n", Format.TEXT),
        (b"\xef\xbb\xbf000 (1.0.0) 2026-11-15 22:19:56 x\n", Format.TEXT),
    ],
)
def test_sniff(head: bytes, expected: Format) -> None:
    assert sniff(head) is expected


def test_sniff_every_log() -> None:
    for path in LOGS.iterdir():
        assert sniff(path.read_bytes()[:4096]) is Format.TEXT
    for path in FORMATS.iterdir():
        assert sniff(path.read_bytes()).value == path.suffix[1:].replace("log", "text")


@both
def test_following(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "EventLog"
    data = (FORMATS / f"gpu.{kind}").read_bytes()
    follower = Follower(path)
    found: list[Event] = []
    for start in range(0, len(data), 500):
        with path.open("ab") as file:
            file.write(data[start : start + 500])
        found += follower.poll()
    follower.close()
    assert found == read_log(path).events
