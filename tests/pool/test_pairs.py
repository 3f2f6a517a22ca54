"""What runs at the access point around each courier, with tickets that any node may have sent."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.node.plan import TICKET_FILE
from headway.node.store.sandboxes import MOST_TICKET, SandboxError, Ticket
from headway.pool.arrivals import arrival, ticket_of
from headway.pool.htcondor.dag import FAILED, SKIP
from headway.pool.htcondor.pairs import NOTHING, TOLD, main, script_text, write_files

DATA = b"what the job made"
SHA = hashlib.sha256(DATA).hexdigest()
LINE = re.compile(r'MY\.Headway\w+ = ("[\w.@:+-]*"|[0-9]+|undefined)', re.ASCII)
URL = "https://data.example.org/out.bin"


def ticket(**changes: Any) -> bytes:
    """The ticket of a sandbox with one file, as it comes home."""
    facts = {
        "format": 1,
        "sandbox": "run-0-attempt",
        "store": "/store",
        "at": "7@node.example.org",
        "files": [["out.bin", len(DATA), SHA]],
        "folders": [],
        "made": 1.5,
        "until": 2.5,
    }
    return json.dumps({**facts, **changes}, separators=(",", ":"), sort_keys=True).encode()


class Home:
    """A run of one job, whose ticket has come home."""

    def __init__(self, run: Path, to: str | None = None) -> None:
        self.run, self.job = run, run / "jobs" / "0"
        self.job.mkdir(parents=True)
        (run / "run.json").write_text(json.dumps({"base": str(run)}))
        outputs = [{"path": "out.bin", "to": to}]
        (run / "job.json").write_text(json.dumps({"rows": None, "outputs": outputs}))
        write_files(run)
        self.has(ticket())

    def has(self, data: bytes) -> None:
        (self.job / TICKET_FILE).write_bytes(data)

    def brought(self, data: bytes = DATA) -> None:
        (self.job / "outputs").mkdir(exist_ok=True)
        (self.job / "outputs" / "out.bin").write_bytes(data)

    def before(self) -> int:
        return main([str(self.run), "before", "0"])

    def after(self, code: int = 0) -> int:
        return main([str(self.run), "after", "0", str(code)])

    @property
    def told(self) -> str:
        return (self.run / TOLD / "0").read_text()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "run")


def test_a_courier_is_told_where_the_sandbox_is(home: Home) -> None:
    assert home.before() == 0
    lines = home.told.splitlines()
    assert len(lines) == 5 and all(LINE.fullmatch(line) for line in lines)
    assert 'MY.HeadwaySandbox = "run-0-attempt"' in lines
    digest = hashlib.sha256(ticket()).hexdigest()
    assert f'MY.HeadwayTicket = "{digest}"' in lines
    assert home.after() == 1, "nothing has arrived"
    home.brought()
    assert home.after() == 0 and home.before() == SKIP
    home.brought(DATA.upper())
    assert home.after() == 1 and home.before() == 0
    assert home.after(83) == home.after(-1002) == FAILED, "it would come again"


@pytest.mark.parametrize("said", [None, b"{}", b"{}\n"])
def test_without_a_sandbox_there_is_no_courier(home: Home, said: bytes | None) -> None:
    home.has(said or b"")
    if said is None:
        (home.job / TICKET_FILE).unlink()
    assert home.before() == SKIP and home.after() == 0


def test_what_goes_to_a_url_has_to_be_sent(tmp_path: Path) -> None:
    """Only a courier that came to its end shows that it is there."""
    home = Home(tmp_path / "run", URL)
    assert home.before() == 0
    for number, (code, sandbox) in enumerate(((81, "run-0-attempt"), (0, "run-0-earlier"))):
        phases = [{"name": "deliver", "sandbox": sandbox}]
        record = home.job / "attempts" / f"attempt-{number}" / "record.json"
        record.parent.mkdir(parents=True)
        record.write_text(json.dumps({"exit": code, "phases": phases}))
        assert home.before() == 0
    record.write_text(record.read_text().replace("earlier", "attempt"))
    assert home.before() == SKIP and home.after() == 0


HOSTILE = {
    "garbage": b"\xff\xfe{",
    "a list": b"[]",
    "deep": b"[" * 100_000,
    "a line in the name": ticket(sandbox="a\nMY.Owner = 1"),
    "a line at the end": ticket(sandbox="a\n"),
    "a quote in the name": ticket(sandbox='a" || true || "'),
    "a macro in the name": ticket(sandbox="$(run)"),
    "letters of other alphabets": ticket(sandbox="aªé"),
    "a line in the node": ticket(at='n"\nqueue 100\n'),
    "a macro in the node": ticket(at="$ENV(HOME)"),
    "another folder": ticket(files=[["../../1/outputs/out.bin", 1, SHA]]),
    "the root": ticket(files=[["/etc/passwd", 1, SHA]]),
    "a number for a name": ticket(files=[[7, 1, SHA]]),
    "no digest": ticket(files=[["out.bin", 1, SHA + "\n"]]),
    "endless": ticket(files=[["out.bin", 1e999, SHA]]),
    "words for a time": ticket(made="1\nqueue"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_ticket_tells_nobody_anything(home: Home, what: str) -> None:
    """The courier knows of no sandbox, and computes what it should have brought."""
    home.brought()
    home.has(HOSTILE[what])
    with pytest.raises(SandboxError):
        ticket_of(home.job)
    assert home.before() == 0
    assert home.told.startswith("#") and home.told.count("\n") == 1
    assert home.after() == 1 and "ticket is damaged" in arrival(home.run, 0)


def test_a_huge_ticket_is_not_read(home: Home) -> None:
    with (home.job / TICKET_FILE).open("wb") as file:
        file.write(ticket()[:-1])
        file.truncate(1 << 40)  # a terabyte, in a file with a hole
    with pytest.raises(SandboxError, match="its size"):
        ticket_of(home.job)
    assert home.before() == 0 and home.told.startswith("#")
    padded = ticket() + b" " * MOST_TICKET
    with pytest.raises(SandboxError, match="its size"):
        Ticket.read(padded)


TEXT = st.text(max_size=40) | st.from_regex(r"[A-Za-z0-9][\w.@:+-]{0,20}\s?", fullmatch=True)


@given(sandbox=TEXT, at=TEXT, path=TEXT)
def test_what_a_courier_is_told_is_five_lines(
    tmp_path_factory: pytest.TempPathFactory, sandbox: str, at: str, path: str
) -> None:
    home = Home(tmp_path_factory.mktemp("any") / "run")
    home.has(ticket(sandbox=sandbox, at=at, files=[[path, 1, SHA]]))
    assert home.before() == 0
    lines = home.told.splitlines()
    assert home.told.startswith("#") or len(lines) == 5 == len(list(filter(LINE.fullmatch, lines)))


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_only_a_file_is_what_the_job_made(home: Home, kind: str) -> None:
    home.brought()
    path = home.job / "outputs" / "out.bin"
    path.rename(home.run / "elsewhere")
    if kind == "link":
        path.symlink_to(home.run / "elsewhere")
    elif kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    assert "is not a file" in arrival(home.run, 0)


@pytest.mark.parametrize("program", ["works", "is gone"])
def test_the_script_leaves_a_description_that_can_be_submitted(home: Home, program: str) -> None:
    """Without Python a courier is told nothing; the file that its description includes is there."""
    text = script_text(home.run)
    if program == "is gone":
        text = text.replace(text.splitlines()[2].split()[0], "/nowhere/python", 1)
    script = home.run / "pair.sh"
    script.write_text(text)

    def code(*words: str) -> int:
        done = subprocess.run(["/bin/sh", str(script), *words], cwd="/", capture_output=True)
        return done.returncode

    assert code("before", "0") == 0
    assert (home.told == (home.run / NOTHING).read_text()) is (program == "is gone")
    assert code("after", "0", "7") == (FAILED if program == "works" else 7)
