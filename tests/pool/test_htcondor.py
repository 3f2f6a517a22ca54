"""The HTCondor side when things go wrong: silent schedds, refusals, holds, bad nodes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from headway.api import Run
from headway.events import Outcome, Status
from headway.node.errors import Exit
from headway.pool import Runs

from .harness import Pool
from .places import CondorPlace
from .together import Together, at_the_same_time, promises

SMALL = '[resources]\nmemory = "64 MB"\ndisk = "20 MB"\n'
NOWHERE = '[sites]\nonly = ["NOWHERE"]\n'
GPU_SITE, BAD_GPU_SITE = "CHTC-Spark-CE1", "PDX-Coeus-CE1"


@pytest.fixture
def place(condor_pool: Pool) -> CondorPlace:
    return CondorPlace(condor_pool)


def daemon(pool: Pool, name: str) -> int:
    """The pid of a daemon of this very pool; other pools may run on the machine."""
    mark = f"HEADWAY_POOL_PROCESS={pool.home}/cm"
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            environment = (path.parent / "environ").read_text(errors="replace").split("\0")
            if Path(path.read_text().split("\0")[0]).name == name and mark in environment:
                return int(path.parent.name)
    raise AssertionError(f"no {name} in {pool.home}")


@contextlib.contextmanager
def configured(pool: Pool, lines: str, *, site: str = "") -> Iterator[None]:
    """The pool with further configuration: of the access point, or of one site's new jobs."""
    path = pool.home / "etc" / (f"site-{site}" if site else "condor_config")
    before = path.read_text()

    def write(text: str) -> None:
        path.write_text(text)
        if not site:
            env = {**os.environ, **pool.env}
            done = subprocess.run(["condor_reconfig"], env=env, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr

    write(f"{before}\n{lines}\n")
    try:
        yield
    finally:
        write(before)


def ask(
    place: CondorPlace, *args: str, env: Mapping[str, str] | None = None, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run a headway command that may fail; it never shows a traceback."""
    done = place.condor.headway(args, cwd=place.folder, env=env, timeout=timeout)
    assert "Traceback" not in done.stderr and "bug in headway" not in done.stderr, done.stderr
    return done


def submit(place: CondorPlace, job: str, *args: str) -> Run:
    place.write({"job.toml": job})
    place.headway("run", "job.toml", "--pool", "htcondor", "--detach", *args)
    return place.newest()


def clusters(pool: Pool, run_id: str) -> Counter[int]:
    """How many jobs of a run the queue has, by cluster."""
    done = pool.run_as_user(["condor_q", "-af", "ClusterId", "HeadwayRun"])
    assert done.returncode == 0, done.stderr
    rows = (line.split() for line in done.stdout.splitlines())
    return Counter(int(row[0]) for row in rows if row[1:] == [run_id])


class TestSchedd:
    """Asking again never doubles and never loses, whatever died in between."""

    def test_stopped_then_killed(self, place: CondorPlace) -> None:
        pool = place.condor
        before = submit(place, 'name = "before"\ncommand = "true"\n' + NOWHERE + SMALL)
        place.write({"job.toml": 'name = "after"\ncommand = "true"\n' + NOWHERE + SMALL})
        command = ("run", "job.toml", "--pool", "htcondor", "--detach")
        hasty = {"HEADWAY_PATIENCE": "2"}
        schedd = daemon(pool, "condor_schedd")
        os.kill(schedd, signal.SIGSTOP)
        try:
            begin = time.monotonic()
            with ThreadPoolExecutor(3) as hands:
                # the event log alone tells the state
                told = hands.submit(ask, place, "status", before.label, env=hasty)
                refused = [
                    hands.submit(ask, place, *words, env=hasty)
                    for words in (command, ("hold", before.label))
                ]
            for done in (each.result() for each in refused):
                assert done.returncode == 3, done.stderr
                assert "cannot be reached" in done.stderr and "safe to try again" in done.stderr
            assert "1 idle" in told.result().stdout
            assert time.monotonic() - begin < 30, "as patient as if nobody were hasty"
        finally:
            os.kill(schedd, signal.SIGCONT)
        assert ask(place, *command).returncode == 0
        after = place.newest()
        assert after.label == "after-1" and list(
            clusters(pool, after.folder.facts.id).values()
        ) == [1]

        # killed between prepare and submit; its master starts another one
        os.kill(schedd, signal.SIGKILL)
        place.write({"job.toml": 'name = "killed"\ncommand = "true"\n' + NOWHERE + SMALL})

        def asked_again() -> bool:
            return ask(place, *command).returncode == 0

        pool.wait_for(asked_again, 180, "a submit after the schedd was killed")
        killed = place.newest()
        assert killed.label == "killed-1"
        assert list(clusters(pool, killed.folder.facts.id).values()) == [1]
        runs = (before, after, killed)
        with ThreadPoolExecutor(len(runs)) as hands:
            removed = hands.map(lambda run: place.headway("remove", run.label).stdout, runs)
        for run, said in zip(runs, removed, strict=True):
            assert f"removed {run.label}.0" in said
            place.settle(run)

    def test_headway_killed_while_it_submits(self, place: CondorPlace) -> None:
        """Parent, child or both, at eight moments around the schedd's commit."""
        pool, rounds = place.condor, range(8)
        place.write(
            {
                f"{number}.toml": f'name = "round{number}"\ncommand = "true"\ncount = 40\n'
                f"{NOWHERE}{SMALL}"
                for number in rounds
            }
        )

        def killed(number: int) -> bool:
            command = ("run", f"{number}.toml", "--pool", "htcondor", "--detach")
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            process = place.popen(*command, **quiet)
            rows = place.folder / f".headway/runs/round{number}-1/job.rows"
            pool.wait_for(rows.exists, 180, "a submit that begins")
            time.sleep(0.03 * number)  # the child needs 0.15 to 0.3 s
            children = _children(process.pid)
            for pid in {0: [process.pid], 1: children, 2: [process.pid, *children]}[number % 3]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()
            # at once: the orphaned child may still be at it
            assert ask(place, *command).returncode == 0
            return process.returncode != 0

        with ThreadPoolExecutor(3) as hands:
            in_time = sum(hands.map(killed, rounds))
        for number in rounds:
            run = Run(Runs(place.folder / ".headway").find(f"round{number}-1"))
            assert list(clusters(pool, run.folder.facts.id).values()) == [40], run.label
            assert run.folder.facts.cluster in clusters(pool, run.folder.facts.id)
        assert len(list(place.folder.glob(".headway/runs/round*"))) == 8
        assert in_time >= 3, "nothing was killed in time"
        assert "removed 40 jobs of round0-1" in place.headway("remove", "--all").stdout


def _children(parent: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rpartition(") ")[2].split()[1]) == parent:
                found.append(int(path.parent.name))
    return found


def does_not_parse(pool: Pool, lines: str, said: str) -> None:
    place = CondorPlace(pool)
    place.write({"job.toml": f'name = "bad"\ncommand = "true"\n{lines}{SMALL}'})
    done = ask(place, "run", "job.toml", "--pool", "htcondor")
    assert done.returncode == 3 and said in done.stderr, done.stderr
    assert "bad-1 was not submitted" in done.stderr and "job.sub" in done.stderr


class Refusals:
    def requirements_that_do_not_parse(self, pool: Pool) -> None:
        does_not_parse(pool, 'requirements = "(HasIt &&"\n', "Requirements")

    def a_priority_that_does_not_parse(self, pool: Pool) -> None:
        does_not_parse(pool, '[submit]\npriority = "high"\n', "priority=high is invalid")

    def an_attribute_that_does_not_parse(self, pool: Pool) -> None:
        does_not_parse(pool, '[submit]\n"+Mine" = "(1 +"\n', "Mine = (1 +")

    def a_key_that_headway_writes_itself(self, pool: Pool) -> None:
        place = CondorPlace(pool)
        place.write({"job.toml": 'name = "own"\ncommand = "true"\n[submit]\nHeadwayRun = "1"\n'})
        done = ask(place, "run", "job.toml", "--pool", "htcondor", "--dry-run")
        assert done.returncode == 2 and "submit.HeadwayRun" in done.stderr, done.stderr

    def a_schedd_that_does_not_exist_gets_nothing(self, pool: Pool) -> None:
        """HTCondor's bindings take the local one instead."""
        place = CondorPlace(pool)
        place.write({"job.toml": 'name = "lost"\ncommand = "true"\n' + SMALL})
        done = ask(place, "run", "job.toml", "--pool", "htcondor:schedd=nope")
        assert done.returncode == 3, done.stderr
        assert "no schedd 'nope'" in done.stderr and "it has ap@" in done.stderr
        assert not clusters(place.condor, place.newest().folder.facts.id)


@at_the_same_time(lambda pool, promise: getattr(Refusals(), promise)(pool))
@pytest.mark.parametrize("promise", promises(Refusals))
def test_refused(together: Together, request: pytest.FixtureRequest, promise: str) -> None:
    together.wait(request)


def test_limits_of_the_access_point(place: CondorPlace) -> None:
    place.write(
        {
            "big.bin": "x" * 2_500_000,
            "small.bin": "y" * 1000,
            "job.toml": 'name = "big"\ncommand = "true"\nfiles = ["big.bin", "small.bin"]\n'
            + SMALL,
        }
    )
    with configured(place.condor, "MAX_TRANSFER_INPUT_MB = 2\nMAX_JOBS_PER_SUBMISSION = 5"):
        done = ask(place, "run", "job.toml", "--pool", "htcondor")
        assert done.returncode == 2 and "big.bin (2.5 MB)" in done.stderr, done.stderr
        assert not (place.folder / ".headway").exists()
        place.write({"job.toml": 'name = "many"\ncommand = "true"\ncount = 6\n' + SMALL})
        done = ask(place, "run", "job.toml", "--pool", "htcondor")
    assert done.returncode == 3 and "MAX_JOBS_PER_SUBMISSION" in done.stderr, done.stderr
    assert not clusters(place.condor, place.newest().folder.facts.id)


class Server(BaseHTTPRequestHandler):
    """`/late` is there once the test says so, everything else never."""

    is_there = False

    def do_GET(self) -> None:
        if self.path != "/late" or not Server.is_there:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"there")

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@contextlib.contextmanager
def served() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


# Brings `osdf:` objects whose content is their URL; the first `failures` calls fail.
PLUGIN = """#!/usr/bin/python3
import os, re, sys
if "-classad" in sys.argv:
    print('MultipleFileSupport = true\\nPluginType = "FileTransfer"\\nSupportedMethods = "osdf"')
    sys.exit(0)
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
asked = open(options["-infile"]).read()
with open("{calls}", "a") as file:
    file.write("x")
bad = os.path.getsize("{calls}") <= {failures}
with open(options["-outfile"], "w") as out:
    for ad in re.findall(r"\\[.*?\\]", asked, re.S):
        url = re.search(r'Url = "([^"]*)"', ad)[1]
        place = re.search(r'LocalFileName = "([^"]*)"', ad)[1]
        if not bad:
            open(place, "w").write(url)
        out.write(f'[ TransferUrl = "{url}"; TransferFileName = "{place}"; ')
        out.write(f'TransferSuccess = {"false" if bad else "true"}; TransferError = "sick" ]\\n')
sys.exit(1 if bad else 0)
"""
HIDES_GPUS = '#!/bin/sh\nCUDA_VISIBLE_DEVICES= exec "$@"\n'


WRAPPED = {
    # no log, no file transfer said, two jobs
    "plain.sub": "executable = /bin/echo\narguments = hello\ntransfer_executable = false\n"
    "should_transfer_files = YES\noutput = plain.$(Process).out\nqueue 2\n",
    # requirements of its own, a table, and a site where every job fails
    "picky.sub": "executable = picky.sh\nlog = picky.log\nrequirements = \\\n"
    f'  (NumJobCompletions ?: 0) > 0 || GLIDEIN_ResourceName == "{BAD_GPU_SITE}"\n'
    "should_transfer_files = YES\noutput = picky.$(n).out\narguments = $(n)\nqueue n in (a b)\n",
    # an input that cannot be had
    "starved.sub": "executable = /bin/true\ntransfer_executable = false\nlog = starved.log\n"
    "should_transfer_files = YES\ntransfer_input_files = URL/never\nqueue\n",
}


class Promises:
    def nobody_watches(self, pool: Pool) -> None:
        """All submitted with --detach at once; then the event logs tell what became of them."""
        with served() as server:
            self._nobody_watches(pool, server)

    def _nobody_watches(self, pool: Pool, server: str) -> None:
        places = {name: CondorPlace(pool) for name in ("node", "late", "never", "sick", "dead")}
        places |= {name: CondorPlace(pool) for name in ("gone", "user", "fails")}
        wrapper = pool.home / "hides-gpus"
        wrapper.write_text(HIDES_GPUS)
        wrapper.chmod(0o755)
        lines = '[retries]\nbackoff = "1 s"\n{}\n' + SMALL
        with configured(pool, f"USER_JOB_WRAPPER = {wrapper}", site=BAD_GPU_SITE):
            runs = {
                # a node whose GPU cannot be seen is left for another
                "node": submit(
                    places["node"],
                    'name = "node"\ncommand = "true"\n'
                    "requirements = '(NumJobCompletions ?: 0) > 0 || "
                    f'GLIDEIN_ResourceName == "{BAD_GPU_SITE}"\'\n{SMALL}gpus = 1\n',
                ),
                # an input that is not there yet, and one that never will be
                "late": submit(
                    places["late"],
                    'name = "late"\ncommand = "cat late"\n'
                    f'[[inputs]]\nurl = "{server}/late"\n' + lines.format("input = 8"),
                ),
                "never": submit(
                    places["never"],
                    'name = "never"\ncommand = "true"\n'
                    f'[[inputs]]\nurl = "{server}/never"\n' + lines.format("input = 1"),
                ),
                # HTCondor's own transfer fails twice, or always
                "sick": self._brought(places["sick"], failures=2, retries="holds = 4"),
                "dead": self._brought(places["dead"], failures=99, retries="holds = 1"),
                # what no time mends: a file that is gone, a person's hold
                "gone": submit(
                    places["gone"], 'name = "gone"\ncommand = "true"\n' + NOWHERE + lines.format("")
                ),
                "user": submit(
                    places["user"], 'name = "user"\ncommand = "true"\n' + NOWHERE + lines.format("")
                ),
                "fails": submit(places["fails"], 'name = "fails"\ncommand = "false"\n' + SMALL),
            }
            places["user"].headway("hold", "user-1")
            runs["gone"].folder.payload.unlink()
            cluster = str(runs["gone"].folder.facts.cluster)
            edited = pool.run_as_user(["condor_qedit", cluster, "Requirements", "True"])
            assert edited.returncode == 0, edited.stderr
            places["late"].wait(runs["late"], lambda state: state.holds)
            Server.is_there = True
            for name, run in runs.items():
                places[name].settle(run)

        def told(name: str) -> dict[str, Any]:
            state = runs[name].jobs[0]
            return {"outcome": state.outcome, "holds": state.holds, "attempts": state.attempts}

        story = runs["node"].folder.events.read_text()
        assert told("node") == {"outcome": Outcome.SUCCESS, "holds": 0, "attempts": 2}, story
        assert runs["node"].jobs[0].site == GPU_SITE and "return value 80" in story
        late = runs["late"].jobs[0]
        assert late.outcome is Outcome.SUCCESS and late.holds >= 1, places["late"].story()
        assert "Code 3 Subcode 81" in runs["late"].folder.events.read_text()
        held = (
            f"Headway: the input 'late' did not arrive: HTTP 404 Not Found from"
            f" {server.removeprefix('http://')} ({server}/late); released by itself after 1 s"
        )
        assert held in runs["late"].folder.events.read_text(), places["late"].story()
        assert "PeriodicRelease expression" in runs["late"].folder.events.read_text()
        assert told("never") == {"outcome": Outcome.FAILURE, "holds": 1, "attempts": 2}
        assert runs["never"].jobs[0].failure is Exit.INPUT_RETRYABLE
        assert not clusters(pool, runs["never"].folder.facts.id)
        for job, name in enumerate(("eins", "zwei")):
            state = runs["sick"].jobs[job]
            assert state.outcome is Outcome.SUCCESS, places["sick"].story()
            brought = (runs["sick"].outputs(job) / "copy").read_text()
            assert brought == f"osdf:///ns/{name}.bin"
        sick = [state.holds for state in runs["sick"].jobs.values()]
        assert sum(sick) == 2, "two calls failed"
        for state in runs["dead"].jobs.values():
            assert state.status is Status.HELD and state.hold_code == 13
            assert (state.hold_subcode or 0) >= 256 and state.holds == 2, places["dead"].story()
        gone = runs["gone"].jobs[0]
        assert (gone.hold_code, gone.hold_subcode, gone.holds) == (13, 2, 1)
        assert runs["user"].jobs[0].hold_code == 1 and runs["user"].jobs[0].holds == 1
        told_set = places["user"].headway("set", "user-1", "memory=50MiB", "time_limit=1h")
        assert "headway release user-1.0" in told_set.stdout
        asked = ["-af", "RequestMemory", "HeadwayTimeLimit"]
        user = str(runs["user"].folder.facts.cluster)
        assert pool.run_as_user(["condor_q", user, *asked]).stdout.split() == ["50", "3600"]
        assert told("fails") == {"outcome": Outcome.FAILURE, "holds": 0, "attempts": 1}
        for name in ("dead", "gone", "user"):
            places[name].headway("remove", "--all")

    def _brought(self, place: CondorPlace, *, failures: int, retries: str) -> Run:
        """Two jobs with an input each that HTCondor's plugin has to bring."""
        calls = place.folder / "calls"
        plugin = PLUGIN.replace("{calls}", str(calls)).replace("{failures}", str(failures))
        place.write({"plugin.py": plugin, "calls": "", "rows.csv": "name\neins\nzwei\n"})
        calls.chmod(0o666)  # the plugin runs as the site's user
        return submit(
            place,
            'name = "brought"\ncommand = "cp in/it.bin copy"\ntable = "rows.csv"\n'
            'outputs = ["copy"]\n[[inputs]]\nurl = "osdf:///ns/{name}.bin"\npath = "in/it.bin"\n'
            f'[submit]\ntransfer_plugins = "osdf={place.folder}/plugin.py"\n'
            f'[retries]\nbackoff = "1 s"\n{retries}\n{SMALL}',
        )

    def wrapped_submit_files(self, pool: Pool) -> None:
        with served() as server:
            self._wrapped_submit_files(CondorPlace(pool), server)

    def _wrapped_submit_files(self, place: CondorPlace, server: str) -> None:
        pool = place.condor
        picky = f"#!/bin/sh\ngrep -q {BAD_GPU_SITE} $_CONDOR_MACHINE_AD && exit 7\necho $1\n"
        place.write({name: text.replace("URL", server) for name, text in WRAPPED.items()})
        place.write({"picky.sh": picky})
        submitted = {}
        for name in WRAPPED:
            stem = name.removesuffix(".sub")
            place.headway("wrap", name)
            path = place.folder / f"{stem}.headway.sub"
            if stem == "starved":  # the same rule with shorter pauses and one release
                text = path.read_text().replace("60 * pow", "1 * pow")
                path.write_text(text.replace("NumHolds <= 5", "NumHolds <= 1"))
            place.give()
            done = pool.run_as_user(["condor_submit", "-terse", path.name], cwd=place.folder)
            assert done.returncode == 0, done.stderr
            submitted[stem] = done.stdout.split()[0].split(".")[0]

        def log(stem: str) -> str:
            path = place.folder / ("plain.events.log" if stem == "plain" else f"{stem}.log")
            return path.read_text() if path.exists() else ""

        pool.wait_for(lambda: log("plain").count("return value 0") == 2, 180, "plain jobs")
        assert log("plain").count("\n001 (") == 2
        for event in log("plain").split("\n001 (")[1:]:
            assert 'GLIDEIN_ResourceName = "' in event.partition("\n...")[0]
        assert log("plain").count("MachineAttrGLIDEIN_ResourceName0 = ") >= 4, "028 after each 040"
        pool.wait_for(lambda: log("picky").count("return value 0") == 2, 180, "picky jobs")
        assert log("picky").count("return value 7") == 2, (
            "it went back to the bad site, or never there"
        )
        assert sorted(path.read_text() for path in place.folder.glob("picky.?.out")) == [
            "a\n",
            "b\n",
        ]
        pool.wait_for(lambda: log("starved").count("\n012 (") == 2, 180, "two holds")
        time.sleep(5)  # as long as the rule would need for another release
        assert log("starved").count("\n012 (") == 2 and log("starved").count("\n013 (") == 1
        before = log("starved").partition("\n012 (")[0]
        assert "MachineAttrGLIDEIN_ResourceName0 = " in before, (
            "a job that never started has a site"
        )
        pool.run_as_user(["condor_rm", submitted["starved"]])

    def what_fits_is_done_and_the_rest_is_told(self, pool: Pool) -> None:
        place = CondorPlace(pool)
        # not where another promise waits for a place
        avoid = f'[sites]\navoid = ["{BAD_GPU_SITE}"]\n'
        run = submit(place, 'name = "act"\ncommand = "sleep 900"\ncount = 4\n' + avoid + SMALL)
        for job in range(4):
            place.wait(run, lambda state: state.phase == "run", job=job)
        assert place.headway("hold", "act-1.0").stdout == "held act-1.0\n"
        place.wait(run, lambda state: state.status is Status.HELD)
        assert place.headway("remove", "act-1.3").stdout == "removed act-1.3\n"
        place.wait(run, lambda state: state.terminal, job=3)
        for action, job, said in (
            ("hold", 0, "it is already held"),
            ("release", 1, "it is not held"),
            ("evict", 0, "it is not running"),
            ("remove", 3, "it has left the queue"),
        ):
            done = place.headway(action, f"act-1.{job}", code=1)
            assert done.stdout.startswith("not ") and done.stdout.endswith(f": {said}\n")
        log = run.folder.events.read_text()
        assert log.count("\tvia headway hold (by user hwuser)\n") == 1, log
        assert log.count("\tvia headway remove (by user hwuser)\n") == 1, log

        edits = [(0, "RequestMemory", "99"), (0, "RequestMemory", "1 +"), (3, "JobPrio", "1")]
        code = "import json, sys; from headway.api import Run; run = Run.find('act-1')\n"
        code += "for j, k, v in json.loads(sys.argv[1]): print(run.edit([j], k, v)[0].error)"
        done = place.condor.python(code, json.dumps(edits), cwd=place.folder)
        told = ["", "'1 +' is not a ClassAd expression", "it has left the queue"]
        assert done.stdout.splitlines() == told, done.stderr
        asked = [str(run.folder.facts.cluster), "-af", "ProcId", "RequestMemory"]
        assert "0 99" in place.condor.run_as_user(["condor_q", *asked]).stdout

        # all of the run: only those that it was done to
        assert place.headway("hold", "act-1").stdout == "held 2 jobs of act-1\n"
        assert place.headway("hold", "act-1").stdout == "there is no job to hold\n"
        assert place.headway("release", "act-1").stdout == "released 3 jobs of act-1\n"
        assert place.headway("remove", "act-1").stdout == "removed 3 jobs of act-1\n"
        place.settle(run)

    def a_running_job_is_followed_to_its_end(self, pool: Pool) -> None:
        place = CondorPlace(pool)
        said = "for i in 1 2 3 4 5 6; do echo line $i; sleep 0.5; done"
        run = submit(place, f'name = "talks"\ncommand = ["sh", "-c", "{said}"]\n' + SMALL)
        place.wait(run, lambda state: state.phase == "run")
        heard = place.headway("logs", run.label, "-f").stdout
        assert heard == "".join(f"line {n}\n" for n in range(1, 7))

    def a_converted_submit_file_does_what_condor_submit_does(self, pool: Pool) -> None:
        place = CondorPlace(pool)
        (place.folder / "out").mkdir()
        place.write(
            {
                "run.sh": '#!/bin/sh\ncat deep.txt words-*.txt - > got\necho "$@" $KIND >> got\n',
                "a/deep.txt": "deep\n",
                "b/words-x.txt": "x\n",
                "b/words-y.txt": "y\n",
                "rows.txt": "x, 0.1 -v\ny, 0.2\n",
                "train.sub": "executable = run.sh\narguments = \"--name '$(name) z' $(rest)\"\n"
                'environment = "KIND=$Fn(list)"\nlist = some/list.of\ninput = a/deep.txt\n'
                "transfer_input_files = a/, b/words-$(name).txt\ntransfer_output_files = got\n"
                'transfer_output_remaps = "got = out/$(name)-$INT(Process,%02d)"\nlog = log\n'
                "request_cpus = 1\nrequest_memory = 64MB\nrequest_disk = 64MB\n"
                "should_transfer_files = YES\nqueue name, rest from rows.txt\n",
            }
        )
        place.headway("init", "train.sub")
        place.headway("run", "job.toml", "--pool", place.pool)
        names = ("x-00", "y-01")
        ours = [(place.folder / "out" / name).read_text() for name in names]
        for name in names:
            (place.folder / "out" / name).unlink()
        place.condor.run_as_user(["condor_submit", "train.sub"], cwd=place.folder)
        place.condor.run_as_user(["condor_wait", "-wait", "60", "log"], cwd=place.folder)
        theirs = [(place.folder / "out" / name).read_text() for name in names]
        assert theirs[0] == "deep\nx\ndeep\n--name x z 0.1 -v list\n"
        assert ours == theirs

    def gpus_by_memory_and_capability(self, pool: Pool) -> None:
        wanted = {
            "memory": '{ count = 1, memory = "40 GB" }',
            "capability": "{ count = 1, capability = 8.0 }",
            "toomuch": '{ count = 1, memory = "90 GB" }',
        }
        places = {name: CondorPlace(pool) for name in wanted}
        prefer = f'[sites]\nprefer = ["{BAD_GPU_SITE}"]\n'
        runs = {
            name: submit(
                places[name], f'name = "{name}"\ncommand = "true"\n{prefer}{SMALL}gpus = {gpus}\n'
            )
            for name, gpus in wanted.items()
        }
        for name in ("memory", "capability"):
            places[name].settle(runs[name])
            assert runs[name].jobs[0].site == GPU_SITE
        assert runs["toomuch"].jobs[0].status is Status.IDLE
        places["toomuch"].headway("remove", "toomuch-1")

    def outputs_go_where_they_belong_under_any_name(self, pool: Pool) -> None:
        place = CondorPlace(pool)
        place.folder = place.folder / "lr=0.1; é (x) #1 'q'"
        place.folder.mkdir()
        make = "mkdir -p 'o u t/d/e'; echo $0 > 'o u t/d/e/x y.txt'; echo 1 > a=b.txt;"
        make += " ln -s a=b.txt link.txt; ln -s d 'o u t/again'; ln -s 'o u t' folder"
        place.write({"rows.csv": 'k\nfirst one\n"zwö,2"\n'})
        run = place.run(
            f'name = "näme of it"\ncommand = ["sh", "-c", "{make}", "{{k}}"]\ntable = "rows.csv"\n'
            'outputs = [{ path = "o u t", to = "results/{k}/deep/o u t" }, "folder", "link.txt",\n'
            '  { path = "a=b.txt", to = "results/{k}/lr=1;x,ü.txt" }]\n' + SMALL
        )
        for job, name in enumerate(("first one", "zwö,2")):
            results = place.folder / "results" / name
            assert (results / "deep/o u t/d/e/x y.txt").read_text() == f"{name}\n"
            assert (results / "deep/o u t/again/e/x y.txt").read_text() == f"{name}\n"
            assert (results / "lr=1;x,ü.txt").read_text() == "1\n"
            assert (run.outputs(job) / "link.txt").read_text() == "1\n"
            assert (run.outputs(job) / "folder/d/e/x y.txt").read_text() == f"{name}\n"


@at_the_same_time(lambda pool, promise: getattr(Promises(), promise)(pool), seconds=30)
@pytest.mark.parametrize("promise", promises(Promises))
def test_at_the_same_time(together: Together, request: pytest.FixtureRequest, promise: str) -> None:
    together.wait(request)


@pytest.fixture
def roomy(condor_pool: Pool) -> Iterator[Path]:
    """A user's folder in memory where there is some: 100,000 folders cost a disk seconds."""
    memory = Path("/dev/shm")
    there = memory.is_dir() and shutil.disk_usage(memory).free > 300_000_000
    with tempfile.TemporaryDirectory(prefix="hwpool-", dir=memory if there else None) as folder:
        condor_pool.give(Path(folder))
        yield Path(folder)


ROWS = 100_000  # many times what HTCondor puts into the queue at once


class TestManyJobs:
    def test_a_hundred_thousand_rows(self, condor_pool: Pool, roomy: Path) -> None:
        place = CondorPlace(condor_pool)
        place.folder = roomy
        rows = "n\n" + "".join(f"{n}\n" for n in range(ROWS))
        job = 'name = "wide"\ncommand = ["sh", "-c", "echo $0 > out.txt", "{n}-{job}"]\n'
        job += 'table = "rows.csv"\noutputs = ["out.txt"]\n' + SMALL
        place.write({"rows.csv": rows, "job.toml": job})
        place.headway("run", "job.toml", "--pool", "htcondor", "--detach", timeout=120)
        run = place.newest()
        facts = run.folder.facts
        assert facts.submitted and facts.submitted - run.folder.submit_rows.stat().st_mtime < 5
        for job_number in (0, 1):
            place.wait(run, lambda state: state.outcome is Outcome.SUCCESS, job=job_number)
            text = (run.outputs(job_number) / "out.txt").read_text()
            assert text == f"{job_number}-{job_number}\n"
        there = sum(clusters(place.condor, facts.id).values())
        assert 0 < there <= 1100, "they are put into the queue bit by bit"
        said = place.headway("remove", run.label).stdout
        assert said.startswith("removed 99,") and "jobs of wide-1" in said
        place.condor.wait_for(lambda: not clusters(place.condor, facts.id), 180, "an empty queue")
        log = run.folder.events.read_text
        place.condor.wait_for(lambda: "Cluster removed" in log(), 180, "the factory's end")
        place.settle(run)
        ends = Counter(state.outcome for state in run.jobs.values())
        assert ends[Outcome.SUCCESS] + ends[Outcome.REMOVED] == ROWS
        assert "there is no job to remove" in place.headway("remove", run.label).stdout
