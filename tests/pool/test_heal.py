"""Heal on a real pool: every hold that can be provoked, all at once; crowds; kills; rivals."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from headway.events import Event, EventType, Outcome, Status, fold, read_log
from headway.holds.audit import HealState, read_audit
from headway.holds.rules import Rules

from .harness import Pool
from .places import CondorPlace

SUBMIT = """
import json, sys, htcondor2
common = {"should_transfer_files": "YES", "transfer_executable": "False", "notification": "never",
          "ulog_execute_attrs": "GLIDEIN_ResourceName", "request_memory": "32",
          "request_disk": "1024", "executable": "/bin/true", "output": "$(Cluster).out",
          "job_machine_attrs": "GLIDEIN_ResourceName"}
clusters = {}
for name, lines in json.load(sys.stdin).items():
    count = int(lines.pop("queue", 1))
    lines = {"log": f"{name}.log", **common, **lines}
    clusters[name] = htcondor2.Schedd().submit(htcondor2.Submit(lines), count=count).cluster()
print(json.dumps(clusters))
"""
# what its slot is too small for lasts until it is held, and else ends at once
UNLESS_THERE_IS = (
    "import os, time; lines = open(os.environ['_CONDOR_MACHINE_AD']).read().splitlines();"
    " (has,) = [int(line.split()[2]) for line in lines if line.startswith('{0} = ')];"
    " time.sleep(90 * (has < {1}))"
)
QUICK = ("--backoff", "1s", "--most-wait", "2s")
SLOW_SITES, DISK_SITE = ("CHTC-Spark-CE1", "ONE-SLOT"), "PDX-Coeus-CE1"


class Server(BaseHTTPRequestHandler):
    """`/late` and `/slow` are well once the test says so, everything else is never there."""

    is_well: ClassVar[bool] = False

    def do_GET(self) -> None:
        if self.path == "/slow" and not Server.is_well:
            time.sleep(8)
        if self.path not in ("/late", "/slow") or not Server.is_well:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"there")

    do_HEAD = do_GET

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # a plugin was killed while it waited
            super().handle()

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    Server.is_well = False
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def submit(pool: Pool, folder: Path, jobs: Mapping[str, Mapping[str, str]]) -> dict[str, int]:
    pool.give(folder)
    done = pool.python(SUBMIT, cwd=folder, input=json.dumps(jobs))
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found


def audits(folder: Path) -> list[Path]:
    return sorted(folder.glob("state*/headway/heal/*.jsonl"))


def events(folder: Path, name: str) -> list[Event]:
    log = folder / f"{name}.log"
    return list(read_log(log).events) if log.exists() else []


class Heal:
    """`headway heal … --do` as the user runs it; to be killed, and started again."""

    def __init__(
        self,
        pool: Pool,
        folder: Path,
        *args: str,
        state: str = "state",
        of: Sequence[str] = ("--pool", "htcondor"),
    ) -> None:
        (folder / state).mkdir(exist_ok=True)
        pool.give(folder / state)
        self.said = folder / f"{state}.said"
        with self.said.open("a") as file:
            self.process = pool.popen_as_user(
                ["python", "-m", "headway", "heal", *of, "--do", *QUICK, *args],
                cwd=folder,
                # the server that jobs were held for lies on this machine
                env={"XDG_STATE_HOME": str(folder / state), "HEADWAY_MAY_ASK": "127.0.0.0/8"},
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def kill(self) -> None:
        """As `kill -9` would, with whatever it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def end(self) -> str:
        """Ask it to end, as Ctrl-C does, and return all that it said."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(180) == 130, self.said.read_text()
        text = self.said.read_text()
        assert "Traceback" not in text and "bug in headway" not in text, text
        return text


@contextlib.contextmanager
def configured(pool: Pool, site: str, lines: str) -> Iterator[None]:
    """A site with further configuration, of its startd too."""
    path = pool.home / "etc" / f"site-{site}"
    before = path.read_text()

    def write(text: str) -> None:
        path.write_text(text)
        env = {**os.environ, **pool.env, "CONDOR_CONFIG": str(path)}
        done = subprocess.run(["condor_reconfig"], env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    write(f"{before}\n{lines}\n")
    try:
        yield
    finally:
        write(before)


def test_every_hold_that_can_be_provoked(condor_pool: Pool, server: str) -> None:
    """The transient ones end in success; the others are left, a person's above all."""
    pool, folder = condor_pool, condor_pool.user_dir()
    (folder / "gone.txt").write_text("gone before it is fetched")
    broken = folder / "broken.sh"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    eats = f"x = b'x' * (190 << 20); {UNLESS_THERE_IS.format('Memory', 190)}"
    fills = f"open('big','wb').write(b'x' * (60 << 20)); {UNLESS_THERE_IS.format('Disk', 60 << 10)}"
    jobs: dict[str, dict[str, str]] = {
        "late": {"transfer_input_files": f"{server}/late"},
        "slow": {
            "transfer_input_files": f"{server}/slow",
            "requirements": " || ".join(f'GLIDEIN_ResourceName == "{s}"' for s in SLOW_SITES),
        },
        "never": {"transfer_input_files": f"{server}/never"},
        "optout": {"transfer_input_files": f"{server}/late", "My.HeadwayHeal": "false"},
        "gone": {"transfer_input_files": "gone.txt", "requirements": "MY.Go ?: false"},
        "lacks": {"transfer_output_files": "nothing.txt"},
        "broken": {"executable": str(broken), "transfer_executable": "True"},
        "memory": {
            "executable": "/usr/bin/python3",
            "arguments": f"\"-c '{_quoted(eats)}'\"",
            "request_memory": "120",
        },
        "greedy": {  # beyond four times what it asks for
            "executable": "/usr/bin/python3",
            "arguments": f"\"-c '{_quoted(eats)}'\"",
            "request_memory": "33",
        },
        "disk": {
            "request_disk": "40000",
            "executable": "/usr/bin/python3",
            "arguments": f"\"-c '{_quoted(fills)}'\"",
            "requirements": f'GLIDEIN_ResourceName == "{DISK_SITE}"',
        },
        "job_time": _sleeps(30) | {"allowed_job_duration": "3"},
        "run_time": _sleeps(30) | {"allowed_execute_duration": "3"},
        "policy": _sleeps(30) | {"periodic_hold": "JobStatus == 2"},
        "on_exit": {"executable": "/bin/false", "on_exit_hold": "ExitCode =!= 0"},
        "user": _sleeps(60),
        "edited": {"transfer_input_files": f"{server}/late"},
    }
    hungry = _hungry(pool, eats)
    # how much memory a job has is measured every 15 s by default, or not at all
    watchful = "PID_SNAPSHOT_INTERVAL = 1\n"
    slow = f"{watchful}MAX_FILE_TRANSFER_PLUGIN_LIFETIME = 3"
    full = "use POLICY : HOLD_IF_DISK_EXCEEDED\nDISK_EXCEEDED = DiskUsage > Disk"
    for lines in jobs.values():
        lines.setdefault("requirements", f'GLIDEIN_ResourceName =!= "{DISK_SITE}"')
    with contextlib.ExitStack() as stack:
        for site in set(pool.sites) - {DISK_SITE}:
            more = slow if site in SLOW_SITES else watchful
            stack.enter_context(configured(pool, site, more))
        stack.enter_context(configured(pool, DISK_SITE, full))
        clusters = submit(pool, folder, jobs)
        watched = hungry.popen("run", "job.toml", "--pool", "htcondor", **AS_TEXT)
        (folder / "gone.txt").unlink()
        edit = ["condor_qedit", str(clusters["gone"]), "Go", "true"]
        assert pool.run_as_user(edit).returncode == 0

        def held(name: str) -> bool:
            return any(e.number == EventType.HELD for e in events(folder, name))

        pool.run_as_user(["condor_hold", str(clusters["user"])])
        pool.wait_for(lambda: held("edited"), 180, "a hold of `edited`")
        edit = ["condor_qedit", str(clusters["edited"]), "HoldReasonCode", "26"]
        assert pool.run_as_user(edit).returncode == 0
        logs = [f"{name}.log" for name in jobs]
        heal = Heal(pool, folder, "--most-per-job", "4", of=logs)
        for name in jobs:
            pool.wait_for(partial(held, name), 180, f"a hold of `{name}`")
        Server.is_well = True
        healed = ("late", "slow", "memory", "disk")
        try:
            for name in healed:
                pool.wait_for(partial(_is_success, folder, name), 180, f"the success of `{name}`")
            known = partial(_all_ended, folder, {clusters[name] for name in healed})
            pool.wait_for(known, 180, "their outcomes in the audit")
        except AssertionError as error:
            log = "".join((folder / f"{n}.log").read_text()[-3000:] for n in healed)
            raise AssertionError(f"{error}\n{heal.said.read_text()}\n{log}") from None
        said = heal.end()
        told = watched.communicate(timeout=180)[0]
    # `headway run` heals its own jobs
    assert watched.returncode == 0 and "heal: release hungry-1.0" in told, told
    run = hungry.newest()
    assert run.jobs[0].holds == 1 and (run.folder.path / "heal.jsonl").exists(), told
    states = {name: _state(folder, name) for name in jobs}
    for name in set(jobs) - set(healed):
        assert states[name].status is Status.HELD, (name, states[name], said)
    codes = {name: (_holds(folder, name)[0].code, _holds(folder, name)[0].subcode) for name in jobs}
    assert codes["slow"] == (13, 62) and codes["memory"] == (21, 102), codes
    assert codes["disk"] == (21, 104)
    assert codes["late"][0] == codes["never"][0] == 13 and codes["late"][1] == 256
    assert codes["gone"] == (13, 2) and codes["lacks"] == (12, 2) and codes["broken"] == (6, 2)
    assert codes["job_time"] == (46, 0) and codes["run_time"] == (47, 0)
    assert codes["policy"][0] == codes["on_exit"][0] == 3 and codes["user"] == (1, 0)
    untouched = set(jobs) - set(healed) - {"never"}
    for name in untouched:
        assert states[name].holds == 1 and not _released(folder, name), (name, said)
    assert len(_released(folder, "never")) <= 4
    (path,) = audits(folder)
    state = HealState.of(read_audit(path), Rules())
    ends = Counter(entry.ending for entry in state.by_id.values() if entry.intent.key)
    assert ends and not state.pending
    acts = {entry.intent.key.cluster: entry for entry in state.by_id.values()}
    for name in healed:
        last = acts[clusters[name]]
        assert last.ending is not None and last.ending.value == "success", (name, last)
    left = [r for r in read_audit(path) if r["kind"] == "left"]
    why = {r["decision"]["job"].partition(".")[0]: r["why"] for r in left}
    assert "on purpose" in why[str(clusters["user"])], why
    answers = {_raise_to(pool, folder, *words) for words in (("--held",), ("greedy.log",))}
    answers |= set(re.findall(r"needs RequestMemory = ([0-9,]+) MB", why[str(clusters["greedy"])]))
    assert len(answers) == 1 and int(answers.pop()) > 190, (answers, why)
    assert "HeadwayHeal is false" in why[str(clusters["optout"])], why
    assert "somebody edited it" in why[str(clusters["edited"])], why
    pool.run_as_user(["condor_rm", "-all"])


def _raise_to(pool: Pool, folder: Path, *words: str) -> str:
    """The memory that `advise` would give the greedy job."""
    done = pool.headway(["advise", *words, "--offline", "--json"], cwd=folder)
    advice = json.loads(done.stdout)["advice"]
    return str(next(a["changes"][0]["new"] for a in advice if "from 33 MiB" in str(a["changes"])))


AS_TEXT: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}


def _hungry(pool: Pool, eats: str) -> CondorPlace:
    """A job.toml whose job needs more memory than it asks for, in a slot made for it alone."""
    place = CondorPlace(pool)
    place.write(
        {
            "job.toml": f'name = "hungry"\ncommand = ["/usr/bin/python3", "-c", "{eats}"]\n'
            'requirements = "TARGET.PartitionableSlot =?= true"\n'
            f'[sites]\navoid = ["{DISK_SITE}"]\n[retries]\nbackoff = "1 s"\n'
            '[resources]\nmemory = "120 MB"\ndisk = "20 MB"\n'
        }
    )
    return place


def _quoted(code: str) -> str:
    return code.replace("'", "''")


def _sleeps(seconds: int) -> dict[str, str]:
    return {"executable": "/bin/sleep", "arguments": str(seconds)}


def _state(folder: Path, name: str) -> Any:
    return fold(events(folder, name)).get(0) or fold([Event(0, 0, 0, 0, 0.0)])[0]


def _is_success(folder: Path, name: str) -> bool:
    return _state(folder, name).outcome is Outcome.SUCCESS


def _holds(folder: Path, name: str) -> list[Event]:
    return [e for e in events(folder, name) if e.number == EventType.HELD]


def _all_ended(folder: Path, clusters: set[int]) -> bool:
    (path,) = audits(folder)
    last = {e.intent.key.cluster: e for e in HealState.of(read_audit(path), Rules()).by_id.values()}
    return all(last[cluster].ending is not None for cluster in clusters)


def _released(folder: Path, name: str) -> list[Event]:
    return [e for e in events(folder, name) if e.number == EventType.RELEASED]


CROWD = {
    "queue": "200",
    "My.Dead": "true",
    "requirements": "MY.Dead =!= true",
    "periodic_hold": "JobStatus == 1 && Dead",
    "periodic_hold_subcode": "81",
    "periodic_hold_reason": '"Headway: an input did not arrive"',
    "log": "crowd.log",
}


def test_a_crowd_two_rivals_and_many_kills(condor_pool: Pool) -> None:
    """200 jobs held at once; heals on two machines, killed again and again; then all is well."""
    pool, folder = condor_pool, condor_pool.user_dir()
    cluster = submit(pool, folder, {"crowd": CROWD})["crowd"]
    # Late enough that all of them are held, so that nobody sees only a few.
    pool.wait_for(lambda: len(_holds(folder, "crowd")) >= 200, 180, "200 holds")
    chance = random.Random(5)
    names = ("state-a", "state-b")
    heals = {name: Heal(pool, folder, state=name) for name in names}
    pool.wait_for(lambda: len(audits(folder)) == 2, 180, "two audits")
    third = Heal(pool, folder, state="state-a")
    assert third.process.wait(120) == 2
    assert "another heal is at work" in third.said.read_text()

    def unrest(kills: int) -> None:
        for _ in range(kills):
            time.sleep(chance.uniform(0.3, 2.5))
            name = chance.choice(names)
            heals[name].kill()
            heals[name] = Heal(pool, folder, state=name)

    unrest(3)
    pool.wait_for(lambda: len(_released(folder, "crowd")) >= 2, 180, "canaries")
    dead = _released(folder, "crowd")
    assert len(dead) <= 16, "a stampede into what is dead"
    edit = ["condor_qedit", str(cluster), "Dead", "false"]
    assert pool.run_as_user(edit).returncode == 0

    def succeeded() -> int:
        return sum(e.return_value == 0 for e in events(folder, "crowd"))

    unrest(4)
    try:
        pool.wait_for(lambda: succeeded() >= 20, 180, "20 successes")
    except AssertionError as error:
        said = "\n".join(heal.said.read_text()[-6000:] for heal in heals.values())
        raise AssertionError(f"{error}: {succeeded()}\n{said}") from None
    for heal in heals.values():
        heal.end()

    def settle(name: str) -> subprocess.CompletedProcess[str]:
        env = {"XDG_STATE_HOME": str(folder / name)}
        args = ["heal", "--pool", "htcondor", "--do", "--once", "--json", "--most-per-hour", "0"]
        return pool.headway(args, cwd=folder, env=env)

    with ThreadPoolExecutor(len(names)) as hands:  # what the last kills left open
        for done in hands.map(settle, names):
            assert done.returncode == 0 and json.loads(done.stdout)["did"], done.stderr
    _check_the_books(folder, cluster)
    ads = pool.run_as_user(["condor_q", str(cluster), "-af", "HeadwayHeals", "ProcId"]).stdout
    counted = {int(p): int(n) for n, p in map(str.split, ads.splitlines()) if n != "undefined"}
    made = Counter(event.proc for event in _released(folder, "crowd"))
    for proc, count in counted.items():
        assert made[proc] <= count <= 5, (proc, made[proc], count)
    assert max(made.values()) <= 5
    pool.run_as_user(["condor_rm", "-all"])


def _check_the_books(folder: Path, cluster: int) -> None:
    """Each release in the log is one decision of one audit, and the other way round."""
    pattern = re.compile(r"via headway heal (\S+)")
    in_log = Counter(
        (event.proc, match[1])
        for event in _released(folder, "crowd")
        if (match := pattern.search(event.reason))
    )
    assert in_log and max(in_log.values()) == 1, "a decision was carried out twice"
    # The schedd writes a release a moment after it made it, and a hold in between takes its reason.
    # Such a release belongs to a decision that is not in the log otherwise.
    nameless = Counter(e.proc for e in _released(folder, "crowd") if not e.reason)
    strange = [e for e in _released(folder, "crowd") if e.reason and not pattern.search(e.reason)]
    assert not strange, "somebody else released a job"
    told = Counter[tuple[int, str]]()
    for path in audits(folder):
        state = HealState.of(read_audit(path), Rules())
        assert not state.pending, "a decision was lost"
        for entry in state.by_id.values():
            if entry.done and entry.intent.key.cluster == cluster:
                told[entry.intent.key.proc, entry.intent.claim] += 1
    assert not in_log - told and max(told.values()) == 1, "a release that no audit has"
    assert Counter(proc for proc, _ in told - in_log) == nameless
    again = Counter(e.proc for e in _holds(folder, "crowd"))
    assert all(again[proc] > count for proc, count in nameless.items()), "not held again"
