"""Anonymised: no name of anybody stays anywhere in the store, and all figures stay."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path

import polars as pl
import pytest
from tests.collect.stores import LOGS, collect, events_of, same_events

from headway.collect import read_collected, status
from headway.collect.masks import MASKED, Masks, Pseudonyms
from headway.errors import CollectError
from headway.events import Columns, read_columns, read_log
from headway.events.columnar.columns import machine
from headway.holds.reason import parse
from headway.report.accounting import account

#: What must not be found, in upper or lower case; none is part of a word of HTCondor's.
SECRETS = (
    *("zorkmid", "quuxley", "blivet", "frobnitz", "wombat", "xyzzy", "plugh", "grault"),
    *("203.0.113.77", "203-0-113-77", "2001:db8", "dead:beef", "8675309", "eyjhbgci"),
    *("müßig", "müßig".encode().decode("latin-1")),
)
USER, HOST, SITE = "zorkmid", "wombat7.quuxley.example", "Frobnitz-CE9"
TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ6b3JrbWlkIn0.xyzzyplugh_8675309-grault"
FREE = (
    f"mail {USER}@blivet.example or Zorkmid@203.0.113.77 at 2001:db8::dead:beef and"
    f" [2001:db8:0:0:0:0:dead:beef]:8675 (203.0.113.77:9618) for /home/{USER}/Blivet/müßig.tar,"
    f" C:\\Users\\{USER}\\xyzzy.dat 'plugh grault' \"quuxley\" token={TOKEN} bearer:{TOKEN}"
    f" https://{USER}:xyzzy@cache.blivet.example:8443/frobnitz/plugh?sig={TOKEN}"
    f" blivet+https://h/grault osdf:///ospool/{USER}/data.tar uid=8675309 phone 867-5309-8675309"
    f" {HOST} slot1_2@{USER}@{HOST} xyzzy_plugh-grault ~{USER}/x ../plugh.sh $(xyzzy)"
    " \x1b[31mgrault"
)
ATTRIBUTES = (
    f'Owner = "{USER}"',
    f'User = "{USER}@{HOST}"',
    f'Iwd = "/home/{USER}"',
    f'Args = "--password xyzzy --user {USER}"',
    f'Environment = "TOKEN={TOKEN}"',
    "QuuxleySecret = 8675309",
    'Plugh = "xyzzy"',
    f'HoldReason = "Error from slot1@{HOST}: {FREE.replace(chr(92), "/").replace(chr(34), "")}"',
    f'MyType = "Zorkmid{"Event"}"',
    'TriggerEventTypeName = "ULOG_XYZZY"',
    'EventTime = "grault"',
    f'MachineAttrGLIDEIN_ResourceName0 = "{SITE}"',
    f'RemoteHost = "slot1_2@glidein_9@{HOST}"',
    'RequestMemory = "plugh"',
    "RequestDisk = ifThenElse(isUndefined(xyzzy), 8675309, grault)",
)
#: Events of all numbers that HTCondor has, and some that it has not.
OTHERS = [*range(48), 100, 150, 999]


def planted(event: bytes) -> bytes:
    """A real event in which everybody has a name, and free text wherever some can be."""
    text = event.decode()
    text = text.replace("condorpool", USER).replace("nobody", USER)
    text = text.replace("127-0-0-1.pool.test", HOST).replace("127-0-0-1", "203-0-113-77")
    text = text.replace("127.0.0.1", "203.0.113.77").replace("/pool/", f"/home/{USER}/Blivet/")
    text = re.sub(r"CHTC-Spark|PDX-Coeus|GP-ARGO-ksu|ONE-SLOT", "Frobnitz", text)
    text = text.replace("/data/", f"/{USER}/plugh/").replace("train.sh", "grault.sh")
    number = int(text[:3])
    header, *body = text.split("\n")[:-2]
    if number in (12, 21) and body:
        body[0] += f" {FREE}"
    elif number in (4, 7, 9, 13, 22, 24):
        body.append(f"\tReason: {FREE}")
    elif number == 28:
        body += ATTRIBUTES
    elif number == 1:
        body += [f"\t{line}" for line in ATTRIBUTES]
    else:
        body += [f"\t{FREE}", f"{FREE}", f"    {FREE}"]
    return "\n".join([header, *body, "...", ""]).encode()


def of_all_numbers() -> bytes:
    lines = "\n".join([f"\t{FREE}", f"\tReason: {FREE}", *ATTRIBUTES, "\tCode 3 Subcode 7"])
    events = [
        f"{number:03d} (77.{place}.0) 2026-10-11 10:00:{place:02d} {FREE} on host: {HOST}\n{lines}"
        for place, number in enumerate(OTHERS)
    ]
    texts = {
        8: f"headway nonce={USER} phase=xyzzy state=plugh t=grault source={HOST} why={TOKEN}",
        28: f"Global JobLog: ctime=1 id={HOST} sequence=1 creator_name=<{USER}>",
        33: f"Changing job attribute Xyzzy from {USER} to 5",
        1: "Job executing on host: <[2001:db8::dead:beef]:9618>",
        0: "Job submitted from host: <203.0.113.77:9618?addrs=203.0.113.77-9618>",
    }
    events += [f"{n:03d} (78.0.0) 2026-10-11 11:00:00 {text}" for n, text in texts.items()]
    return "".join(f"{event}\n...\n" for event in events).encode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real logs, planted, below the home of somebody."""
    home = tmp_path_factory.mktemp("home") / USER / "Blivet"
    home.mkdir(parents=True)
    for log in sorted(LOGS.glob("*.log")):
        events = events_of(log.read_bytes())
        (home / f"xyzzy-{log.name}").write_bytes(b"".join(map(planted, events)))
    (home / "all.log").write_bytes(of_all_numbers())
    return home


@pytest.fixture(scope="module")
def store(folder: Path) -> Path:
    kept = folder.parents[1] / "kept"
    collect(kept, folder, anonymise=True)
    return kept


def everything(store: Path) -> str:
    """All that is in the files, decompressed, and the raw bytes and names as well."""
    found = []
    for path in sorted(store.rglob("*")):
        found.append(path.name)
        if path.suffix == ".parquet":
            found.append(pl.read_parquet(path).write_json())
            found.append(str(pl.read_parquet_schema(path)))
        if path.is_file():
            found.append(path.read_bytes().decode("latin-1"))
    return "\n".join(found).lower()


def test_nobody_s_name_stays(folder: Path, store: Path) -> None:
    text = everything(store)
    assert len(read_collected(store)) == len(read_columns([folder]))
    for secret in SECRETS:
        assert secret not in text, text[max(0, text.index(secret) - 300) :][:400]
    for word in ("password", "bearer"):
        assert word not in text
    table = pl.read_parquet(store / "events/*/*.parquet")
    assert not table["text"].str.contains("\x1b", literal=True).any()
    told = table.filter(pl.col("number").is_in([1, 28]))["text"]
    assert told.str.contains("Owner = ").any()
    assert not told.str.contains("Iwd|Args|Environment|Plugh|Secret").any()


def of_names(left: pl.Series, right: pl.Series) -> None:
    """Names are others, one for each; an empty one stays empty."""
    pairs = set(zip(left.to_list(), right.to_list(), strict=True))
    assert len({one for one, _ in pairs}) == len(pairs), left.name
    for one, two in pairs:
        assert (one in (None, "")) == (two in (None, "")), left.name


NAMES = {"site", "machine", "user", "log", "file", "slot", "job_id", "run"}
REASONS = {"reason", "text", "why", "hold_reason"}


def test_the_figures_stay(folder: Path, store: Path) -> None:
    plain, masked = account(read_columns([folder])), account(read_collected(store))
    compared = 0
    for name in ("jobs", "attempts", "pieces", "holds"):
        left, right = getattr(plain, name), getattr(masked, name)
        assert left.shape == right.shape
        # Logs are in the order of their names, which are others.
        keys = [c for c in ("cluster", "proc", "submitted", "begin", "start", "time") if c in left]
        keys += [c for c in left.columns if c not in keys and left[c].dtype.is_numeric()]
        keys = [c for c in keys if c not in ("job", "attempt_row", "log")]
        left, right = left.sort(keys, nulls_last=True), right.sort(keys, nulls_last=True)
        for column in left.columns:
            if left[column].equals(right[column]):
                compared += 1
            elif column not in ("job", "log"):
                assert left[column].dtype in (pl.String, pl.Categorical, pl.List(pl.String)), column
                assert column in NAMES | REASONS or "site" in column, column
                if left[column].dtype == pl.String:
                    of_names(left[column], right[column])
    assert compared > 40


def test_templates_and_consistency(tmp_path: Path) -> None:
    masks = Masks(Pseudonyms(b"k" * 32))
    same = 0
    for log in LOGS.glob("*.log"):
        for event in read_log(log).events:
            if not event.reason or "hw.pyz" in event.reason:
                continue  # a plugin's own name is a value that the template keeps
            masked = masks.reason(event.reason)
            assert parse(masked).template == parse(event.reason).template
            same += 1
    assert same > 100
    text = "Error from slot1_2@glidein_3@a.b.example: x by user ann (site MIT)"
    names = masks.names
    assert masks.reason(text) == (
        f"Error from {names.slot('slot1_2@glidein_3@a.b.example')}: {names.word('x')}"
        f" by user {names.user('ann')} (site {names.site('MIT')})"
    )
    assert names.slot("slot1@A.b.example").endswith(names.host("a.B.example"))
    address = names.address("<192.0.2.7:9618?addrs=192.0.2.7-9618&alias=a.b.example>")
    assert machine(address) == names.host("a.b.example")
    assert names.url("osdf:///ospool/x").startswith("osdf:///path-")
    assert Masks(Pseudonyms(b"l" * 32)).names.user("ann") != names.user("ann")


@pytest.mark.parametrize(
    "reason, kept",
    [
        ("The job exceeded allowed job duration of 20:00:00", "The job exceeded"),
        ("server returned 404 Not Found", "server returned 404 Not Found"),
        ("Input File transfer stalled for 3729 seconds", "transfer stalled for 3000 seconds"),
        ("memory usage exceeded request_memory", "memory usage exceeded request_memory"),
        ("(errno=28: 'No space left on device')", "(errno=28: 'No space left on device')"),
        ("via condor_hold (by user ann)", "via condor_hold (by user user-"),
        ("exit code 65280", "exit code 65280"),
        ("used 12345MB of 4096 MB", "used 10000MB of 4000 MB"),
    ],
)
def test_what_a_reason_keeps(reason: str, kept: str) -> None:
    assert kept in Masks(Pseudonyms(b"k" * 32)).reason(reason)


def test_free_text_is_gone() -> None:
    masks = Masks(Pseudonyms(b"k" * 32))
    assert masks.event(8, "my thesis about jobs") == MASKED
    pool = "Global JobLog: ctime=5 id=0.me.6 sequence=7 size=8 creator_name=<me>"
    assert masks.event(8, pool) == f"Global JobLog: ctime=5 id={MASKED} sequence=7 "
    assert masks.event(0, "Job submitted from host: h\n    my notes").count("\n") == 0
    line = (
        "headway nonce=ab phase=stage-in state=end t=5.000 bytes=12 url=http://h/x exit=0 note=me"
    )
    assert re.fullmatch(
        r"headway nonce=\w{12} phase=stage-in state=end t=5.000 bytes=12 exit=0",
        masks.event(8, line),
    )


def test_the_key(folder: Path, store: Path, tmp_path: Path) -> None:
    assert stat.S_IMODE((store / "key").stat().st_mode) == 0o600
    assert len((store / "key").read_bytes()) == 32
    found = json.loads((store / "collected.json").read_bytes())
    assert found["anonymised"] and all(s["name"].startswith("log-") for s in found["sources"])
    # It stays anonymised, and knows its logs again, also if nobody says so again.
    before = len(read_collected(store))
    assert collect(store, folder).events == 0
    assert status(store).anonymised and len(read_collected(store)) == before
    key = (store / "key").read_bytes()
    try:
        (store / "key").write_bytes(os.urandom(32))
        with pytest.raises(CollectError, match="is not the key"):
            collect(store, folder)
        (store / "key").unlink()
        with pytest.raises(CollectError, match="is gone"):
            collect(store, folder)
    finally:
        (store / "key").write_bytes(key)


def test_short_lines_are_remembered_and_long_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory is bounded by lines, so that each of them must be short."""
    asked: list[str] = []
    monkeypatch.setattr(Masks, "_mask_line", lambda self, number, line: asked.append(line))
    masks, long = Masks(Pseudonyms(b"k" * 32)), "b" * 501
    for _ in range(2):
        masks.event(5, f"Job terminated.\na\n{long}")
    assert asked == ["a", long, long]


def test_hostile_lines_cost_no_time() -> None:
    masks = Masks(Pseudonyms(b"k" * 32))
    for unit in ("a.", "/", ":", "'", "<", "a@", "a-", "0:", "\\", "http://", "(" * 3, "ü"):
        assert len(masks.reason(unit * 200_000)) < 500_000


def test_real_logs_unplanted_give_the_same_accounts(tmp_path: Path) -> None:
    collect(tmp_path / "plain", LOGS)
    plain: Columns = same_events(tmp_path / "plain", [LOGS])
    collect(tmp_path / "masked", LOGS, anonymise=True)
    masked = read_collected(tmp_path / "masked")
    for name in ("number", "kind", "code", "subcode", "value", "signal", "time", "cluster"):
        left, right = (sorted(getattr(of, name).tolist()) for of in (plain, masked))
        assert left == right, name
