"""Live checks, against real servers and files."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from tests.lab import Authority, Director, IgnoreRange, Made, Redirect, Server, Status, dead_url
from tests.node.transfer.federation import TRACER, clean, creds, jwt

from headway.holds.advice import Act
from headway.holds.advise import advise
from headway.holds.checks import askable, check, look_at, see
from headway.holds.history import History
from headway.holds.hold import Hold
from headway.node.transfer import federation
from headway.node.transfer.connection import MAY_ASK, is_private

from . import logs_made as made
from .logs_made import NOT_FOUND, hold

pytestmark = pytest.mark.usefixtures(clean.__name__, "near")
__all__ = ["clean"]


@pytest.fixture
def near(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lab's servers lie where a log alone is no reason to ask anybody."""
    monkeypatch.setenv(MAY_ASK, "127.0.0.0/8")


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
    hangs = threading.Event()

    def slow(url: str) -> tuple[bool | None, str]:
        if url == "slow":
            hangs.wait(60)
        return True, url

    begin = time.monotonic()
    found = look_at(["slow", "a", "b"], slow, patience=0.5)
    assert time.monotonic() - begin < 30
    hangs.set()
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
        "https://me:secret@x/y",
        "https://x@y",
        "https://x/y?X-Amz-Signature=secret",
        "osdf:///a/b?authz=secret",
        "osdf:///a/b?directread&authz=secret",
        "mine+osdf:///a/b",
    ],
)
def test_only_what_the_engine_would_fetch_is_asked_for(url: str) -> None:
    assert not askable(url)


@pytest.fixture
def tokens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A token for the victim's own object, in every place where one is looked for."""
    token = jwt("storage.read:/")
    (tmp_path / "token").write_text(token)
    everywhere = {"BEARER_TOKEN": token, "BEARER_TOKEN_FILE": str(tmp_path / "token")}
    everywhere |= creds(tmp_path, scitokens=token, mine=token)
    (tmp_path / ".netrc").write_text(f"default login me password {TRACER}\n")
    for name, value in {**everywhere, "HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("tokens")
@pytest.mark.parametrize("needs", [False, True])
def test_no_token_goes_where_a_log_says(monkeypatch: pytest.MonkeyPatch, needs: bool) -> None:
    """Also through the federation that the user's own settings name, and through redirects."""
    tls = Authority.get().good
    with (
        Server({"/lab/a": b"x", "/a": b"x"}, tls=tls) as thief,
        Server(tls=tls, faults=[Redirect(thief.url("/a"))]) as sends_on,
        Director("/lab", [thief, sends_on], [thief], require_token=needs) as it,
    ):
        monkeypatch.setenv("OSDF_DIRECTOR_URL", it.url("").rstrip("/"))
        for url in ("osdf:///lab/a", it.pelican_url("/a"), thief.url("/a"), sends_on.url("/a")):
            federation.forget()
            assert see(url)[0] is True
            (found,) = check([missing(url)], History(), now=made.BEGIN + 60)
            assert found.object_there is True
        assert len(thief.requests) > 4
        for server in (thief, sends_on, it):
            assert not server.saw(TRACER)


@pytest.mark.usefixtures("tokens")
@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_refusal_without_a_token_says_nothing_of_the_object(status: int) -> None:
    tls = Authority.get().good
    with (
        Server(tls=tls, faults=[Status(status)]) as cache,
        Director("/lab", [cache], [cache], require_token=True) as it,
    ):
        asked = missing(it.pelican_url("/a"))
        (found,) = check([asked], History(), now=made.BEGIN + 60)
        assert found.object_there is None
        assert "without a token" in found.words[0]
        assert advise(asked, History(), found).act is not Act.CHANGE
        it.require_token = False
        (found,) = check([asked], History(), now=made.BEGIN + 60)
        assert found.object_there is (False if status == 404 else None)


def test_a_log_does_not_make_us_ask_a_private_network(monkeypatch: pytest.MonkeyPatch) -> None:
    tls = Authority.get().good
    with (
        Server({"/a": b"x", "/lab/a": b"x"}, tls=tls) as inside,
        Server(tls=tls, faults=[Redirect(inside.url("/a"))]) as sends_on,
        Director("/lab", [inside], [inside]) as it,
    ):
        monkeypatch.delenv(MAY_ASK)
        for url in (inside.url("/a"), it.pelican_url("/a")):
            there, words = see(url)
            assert there is None
            assert "private network" in words
        monkeypatch.setenv(MAY_ASK, f"{sends_on.address[0]},{it.address[0]}")
        federation.forget()
        for url in (sends_on.url("/a"), it.pelican_url("/a")):
            assert see(url)[0] is None
        assert inside.requests == []
        monkeypatch.setenv(MAY_ASK, "127.0.0.0/8")
        assert see(inside.url("/a"))[0] is True


@pytest.mark.parametrize(
    ("address", "private"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("169.254.169.254", True),
        ("10.1.2.3", True),
        ("172.16.0.1", True),
        ("192.168.1.1", True),
        ("100.64.0.1", True),
        ("0.0.0.0", True),
        ("224.0.0.1", True),
        ("::1", True),
        ("::", True),
        ("fe80::1%eth0", True),
        ("fd00::1", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:8.8.8.8", False),
        ("64:ff9b::7f00:1", True),
        ("64:ff9b:1::7f00:1", True),
        ("::10.0.0.1", True),
        ("fec0::1", True),
        ("2002:7f00:1::", True),
        ("8.8.8.8", False),
        ("2606:4700::1", False),
    ],
)
def test_private_addresses(address: str, private: bool) -> None:
    assert is_private(address) is private


def test_a_look_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many servers a director names, and however much they send."""
    with Server({"/lab/a": Made(64 << 20)}, [IgnoreRange()], tls=Authority.get().good) as big:
        places = [big.url("").rstrip("/") + f"/{number}" for number in range(40)]
        with Director("/lab", places, places) as it:
            see(it.pelican_url("/a"))
            assert len(big.requests) <= 8
            assert see(big.url("/lab/a"))[0] is True
            assert big.sent < 8 << 20


@pytest.mark.parametrize(
    "path", ["/net/evil.invalid/x", "/proc/self/mem", "/net/../net/e/x", "/dev/shm/../tty"]
)
def test_a_log_does_not_make_us_mount_anything(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    reason = f"Transfer input files failure at access point x: reading from file {path}: (errno 2)"
    assert check([hold(13, 2, reason)], History(), here=True)[0].file_there is None


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


def test_the_queue_s_word_and_the_log_s_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    from headway.holds.queue import holds_of, queue_of_pool
    from headway.pool.htcondor.schedd import Schedd

    asked = []

    def query(
        self: Schedd, constraint: str, attributes: object, *, clusters: bool = False
    ) -> list[dict[str, object]]:
        """What a schedd answers."""
        asked.append(constraint)
        common = {"HoldReasonCode": 13, "HoldReasonSubCode": 256, "UserLog": "a.log"}
        return [
            {"ClusterId": 1, "ProcId": 0, **common, "RequestMemory": 7, "RequestGPUs": 2},
            {"ClusterId": 9, "ProcId": 3, **common, "HoldReason": NOT_FOUND, "NumHolds": 4,
             "EnteredCurrentStatus": int(made.BEGIN), "Iwd": "/home/x"},
        ]  # fmt: skip

    monkeypatch.setattr(Schedd, "query", query)
    held = queue_of_pool("htcondor", user='o"x\\').held(edits=False)
    assert asked == ['(Owner == "o\\"x\\\\") && JobStatus == 5']
    history = made.history_of([made.submitted(0), *made.tried(0, 1)])
    known, alone = holds_of(held, history)
    assert known.at == history.held()[0].at
    assert known.facts["RequestMemory"] == 7 and known.facts["RequestGpus"] == 2
    assert alone.log == "/home/x/a.log" and alone.holds == 4 and alone.values["url"] == made.URL
    assert advise(alone, history).cause == "input-object-not-found"


def test_a_job_that_was_stopped_at_its_limit_has_used_it_whatever_a_sample_says() -> None:
    """Docker's use is looked at now and then; the peak that stopped the job is never seen."""
    said = "Error from slot1@h: Docker job has gone over memory limit of 16384 Mb"
    over = hold(34, 0, said, facts={"RequestMemory": 16384, "MemoryUsage": 1852})
    assert check([over], History())[0].request_enough is None
    change = advise(over, History()).changes[0]
    assert change.attribute == "RequestMemory" and int(change.new) > 16384
    silent = "Job has encountered an out-of-memory event."
    facts = {"RequestMemory": 2048, "MemoryUsage": 1500, "MemoryProvisioned": 2048}
    assert check([hold(34, 0, silent, facts=facts)], History())[0].request_enough is None
    raised = hold(34, 0, silent, facts={**facts, "RequestMemory": 4096})
    assert check([raised], History())[0].request_enough


def test_the_folder_that_results_go_to(tmp_path: Path) -> None:
    said = (
        "Transfer output files failure at access point ap1 while receiving files from execution"
        f" point slot1@h. Details: writing to file {tmp_path}/results/out.txt: (errno 2) No such"
        " file or directory"
    )
    unwritten = hold(12, 2, said)
    advice = advise(unwritten, History())
    assert (advice.cause, advice.act) == ("output-unwritable", Act.CHANGE)
    assert f"{tmp_path}/results/out.txt" in advice.headline
    assert check([unwritten], History(), here=True)[0].file_there is False
    (tmp_path / "results").mkdir()
    (found,) = check([unwritten], History(), here=True)
    assert found.file_there and advise(unwritten, History(), found).act is Act.RELEASE
