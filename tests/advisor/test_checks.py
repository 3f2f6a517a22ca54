"""Live checks, against real servers and files."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.lab.addresses import dead_url
from tests.lab.server import Server

from headway.advisor import Act, History, advise
from headway.advisor.checks import PATIENCE, askable, check, look_at, see
from headway.advisor.hold import Hold

from . import made
from .made import NOT_FOUND, hold


def missing(url: str) -> Hold:
    found = hold(13, 256, NOT_FOUND.replace(made.URL, url))
    assert found.values["url"] == url
    return found


def test_an_object_that_answers_now_is_released() -> None:
    with Server({"/a.tar": b"x" * 5000}) as server:
        asked = [missing(server.url("/a.tar")), missing(server.url("/b.tar"))]
        there, gone = check(asked, History(), now=made.BEGIN + 60)
        assert there.object_there is True and "answers at 127.0.0." in there.words[0]
        assert gone.object_there is False
        assert advise(asked[0], History(), there).act is Act.RELEASE
        assert advise(asked[1], History(), gone).act is Act.CHANGE
        assert server.sent < 5000  # politely: the beginning of it alone


def test_each_object_is_asked_for_once() -> None:
    with Server({"/a.tar": b"x"}) as server:
        found = check([missing(server.url("/a.tar"))] * 500, History(), now=made.BEGIN + 60)
        assert all(each.object_there for each in found)
        assert len(server.requests) <= 2


def test_a_server_that_is_away_decides_nothing() -> None:
    asked = missing(dead_url("/a.tar"))
    (found,) = check([asked], History(), now=made.BEGIN + 60)
    assert found.object_there is None and found.words


def test_offline_and_old_holds_ask_nobody() -> None:
    def never(url: str) -> tuple[bool | None, str]:
        raise AssertionError(url)

    asked = missing("osdf:///data/x")
    assert check([asked], History(), now=made.BEGIN, offline=True, look=never)[0].words == ()
    stale = made.BEGIN + 15 * 86400
    assert check([asked], History(), now=stale, look=never)[0].object_there is None


def test_one_that_hangs_does_not_keep_the_others() -> None:
    def slow(url: str) -> tuple[bool | None, str]:
        time.sleep(3 if url == "slow" else 0)
        return True, url

    begin = time.monotonic()
    found = look_at(["slow", "a", "b"], slow, patience=0.5)
    assert time.monotonic() - begin < 2 < PATIENCE
    assert set(found) == {"a", "b"}


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://x/y",
        "",
        "javascript:1",
        "https://x/\x00",
        "osdf://" + "x" * 3000,
    ],
)
def test_only_what_the_engine_would_fetch_is_asked_for(url: str) -> None:
    assert not askable(url)


def test_no_token_goes_where_a_log_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret-token-of-mine")
    monkeypatch.setenv("BEARER_TOKEN", "secret-token-of-mine")
    monkeypatch.setenv("BEARER_TOKEN_FILE", str(token))
    with Server({"/a": b"x"}) as server:
        see(server.url("/a"))
        assert server.requests
        for request in server.requests:
            assert "secret" not in str(vars(request) if hasattr(request, "__dict__") else request)


def test_a_file_of_the_access_point(tmp_path: Path) -> None:
    path = tmp_path / "in.dat"
    reason = f"Transfer input files failure at access point x: reading from file {path}: (errno 2)"
    asked = hold(13, 2, reason)
    (here,) = check([asked], History(), here=True)
    (away,) = check([asked], History(), here=False)
    assert here.file_there is False and away.file_there is None
    path.write_text("x")
    (there,) = check([asked], History(), here=True)
    assert there.file_there is True
    assert advise(asked, History(), there).act is Act.RELEASE
    folder = hold(7, 2, f"Failed to open {tmp_path}/logs/out.txt as standard output")
    assert check([folder], History(), here=True)[0].file_there is False
    (tmp_path / "logs").mkdir()
    assert check([folder], History(), here=True)[0].file_there is True


def test_a_request_that_was_raised_meanwhile() -> None:
    over = hold(34, 102, "", facts={"RequestMemory": 1024, "MemoryUsage": 1500})
    assert check([over], History())[0].request_enough is None
    raised = over.knowing({"RequestMemory": 4096, "JobDurationCategory": None})
    (found,) = check([raised], History())
    assert found.request_enough and advise(raised, History(), found).act is Act.RELEASE
    assert "JobDurationCategory" not in raised.facts


def test_the_queue_s_word_and_the_log_s_are_put_together() -> None:
    from headway.advisor.queue import held_ads, holds_of

    class Queue:
        """What a schedd answers."""

        def query(self, constraint: str, attributes: object) -> list[dict[str, object]]:
            self.asked = constraint
            common = {"HoldReasonCode": 13, "HoldReasonSubCode": 256, "UserLog": "a.log"}
            return [
                {"ClusterId": 1, "ProcId": 0, **common, "RequestMemory": 7, "RequestGPUs": 2},
                {"ClusterId": 9, "ProcId": 3, **common, "HoldReason": NOT_FOUND, "NumHolds": 4,
                 "EnteredCurrentStatus": int(made.BEGIN), "Iwd": "/home/x"},
            ]  # fmt: skip

    queue = Queue()
    ads = held_ads(queue, user='o"x\\')
    assert queue.asked == 'JobStatus == 5 && Owner == "o\\"x\\\\"'
    history = made.history_of([made.submitted(0), *made.tried(0, 1)])
    known, alone = holds_of(ads, history)
    assert known.at == history.held()[0].at
    assert known.facts["RequestMemory"] == 7 and known.facts["RequestGpus"] == 2
    assert alone.log == "/home/x/a.log" and alone.holds == 4 and alone.values["url"] == made.URL
    assert advise(alone, history).cause == "input-object-not-found"
