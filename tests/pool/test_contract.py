"""One contract, two pools: the same job.toml gives the same outputs on both."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest
from tests.lab import Server
from tests.lab import Status as Answers
from tests.node.test_unpack import tar_of, zip_of

from headway.events import Outcome, Status
from headway.node.errors import Exit

from .harness import Pool
from .places import CondorPlace, LocalPlace, Place, apptainer_folder, record
from .together import Together, at_the_same_time, promises

SMALL = '[resources]\nmemory = "64 MB"\ndisk = "20 MB"\n'
DATA = b"0123456789abcdef" * 4096

# Counts in steps of 0.1 s until the test says that it is enough; on SIGTERM saves where it is, a
# new name each time, and asks to be started again.
COUNTER = """#!/bin/sh
mkdir -p ckpt
n=$(ls ckpt | sed -n 's/^at-//p' | sort -n | tail -n 1)
n=${n:-0}
echo "from $n, $(ls ckpt | grep -c at-) saved" >> ckpt/history
trap 'rm -f ckpt/at-*; : > ckpt/at-$n; exit 85' TERM
until [ -e "ENOUGH" ]; do sleep 0.1 & wait $!; n=$((n + 1)); done
cp ckpt/history history.txt
echo $n > total.txt
"""
CHECKPOINTED = (
    'name = "counter"\ncommand = "./counter.sh"\nfiles = ["counter.sh"]\n'
    'outputs = ["history.txt", "total.txt"]\n[checkpoint]\npaths = ["ckpt"]\n' + SMALL
)

SHOW = """\
test ! -e headway-secrets.json || exit 9
mkdir -p ckpt
echo "$KEY $TEXT" >> ckpt/seen
test $(wc -l < ckpt/seen) = 2 || exit 85
cp ckpt/seen out
"""


class Contract:
    """What both pools keep; every method is a promise, and gets a place of its own."""

    def files_environment_and_input_reach_the_command_and_output_comes_home(
        self, place: Place
    ) -> None:
        checksum = hashlib.sha256(DATA).hexdigest()
        place.write({"tool/work.sh": '#!/bin/sh\ncat "tool/words.txt" - > "sum of it.txt"\n'})
        place.write({"tool/words.txt": "wörds\n"})
        packed = {
            "/t.tar.gz": gzip.compress(tar_of({"a": b"tar"})),
            "/z.zip": zip_of({"b": b"zip"}),
        }
        with Server({"/data.bin": DATA, **packed}) as server:
            unpacked = (
                f'[[inputs]]\nurl = "{server.url("/t.tar.gz")}"\npath = "in/t"\nunpack = true\n'
                f'[[inputs]]\nurl = "{server.url("/z.zip")}"\nvia = "plugin"\nunpack = true\n'
            )
            run = place.run(
                'name = "first job"\nshell = true\n'
                'command = """(echo $GREETING; cksum < in/data.bin) | tool/work.sh; '
                'echo said; cat in/t/a z/b; ls in z; echo err >&2"""\n'
                'files = ["tool"]\noutputs = ["sum of it.txt"]\n'
                '[environment]\nGREETING = "it\'s \\"quoted\\" & $HOME"\n'
                f'[[inputs]]\nurl = "{server.url("/data.bin")}"\npath = "in/data.bin"\n'
                f'size = {len(DATA)}\nchecksum = "sha256:{checksum}"\n' + unpacked + SMALL
            )
        text = (run.outputs() / "sum of it.txt").read_text()
        assert text.splitlines()[:2] == ["wörds", 'it\'s "quoted" & $HOME']
        assert text.splitlines()[2].endswith(f" {len(DATA)}")
        stdout, stderr = run.stream(0, "stdout"), run.stream(0, "stderr")
        assert stdout is not None
        assert stdout.read_text() == "said\ntarzipin:\ndata.bin\nt\n\nz:\nb\n"
        assert stderr is not None and stderr.read_text() == "err\n"
        state = run.jobs[0]
        assert state.outcome is Outcome.SUCCESS and state.attempts == 1
        assert record(run)["inputs"][0]["bytes"] == len(DATA)

    def the_log_names_the_site_and_the_phases(self, place: Place) -> None:
        run = place.run('name = "phases"\ncommand = "sleep 1"\n' + SMALL)
        state = run.jobs[0]
        assert state.site and record(run)["site"] == state.site
        assert record(run)["slot"].split("@")[0] == state.slot.split("@")[0]
        text = run.folder.events.read_text()
        assert text.count("phase=run state=begin") == 1 and "phase=done" in text
        assert text.count(f"nonce={record(run)['nonce']}") == text.count("headway nonce=")
        assert "MachineAttrGLIDEIN_ResourceName0" in text
        assert state.foreign == 0

    def a_table_of_twenty_rows(self, place: Place) -> None:
        rows = "name,value\n" + "".join(f"row {n},{n * n}\n" for n in range(20))
        place.write({"rows.csv": rows})
        run = place.run(
            'name = "table"\n'
            'command = ["sh", "-c", "echo $1 > $0", "{name}.txt", "{value}-{job}"]\n'
            'table = "rows.csv"\noutputs = ["{name}.txt"]\n' + SMALL
        )
        for n in range(20):
            assert (run.outputs(n) / f"row {n}.txt").read_text() == f"{n * n}-{n}\n"
        assert len(run.jobs) == 20

    def only_what_is_missing_is_run_again_and_all_runs_have_one_program(self, place: Place) -> None:
        job = (
            'name = "scan"\ncommand = ["sh", "work.sh", "{lr}"]\nfiles = ["work.sh"]\n'
            'table = "lr.csv"\noutputs = [{path = "out.txt", to = "results/{lr}.txt"}, "log"]\n'
            + SMALL
        )
        work = 'echo lr $1; mkdir log; echo $1 > log/a; echo "$1 $HEADWAY_JOB" > out.txt\n'
        place.write({"work.sh": f"[ $1 = 2 ] && exit 3\n{work}", "lr.csv": "lr\n1\n2\n"})
        first = place.run(job, code=1)
        place.write({"work.sh": work, "lr.csv": "lr\n3\n2\n1\n"})
        second = place.run(job, "--only-missing")
        assert second.label == "scan-2" and len(second.jobs) == 2 and second.succeeded()
        texts = {path.name: path.read_text() for path in (place.folder / "results").iterdir()}
        assert texts == {"1.txt": "1 0\n", "2.txt": "2 1\n", "3.txt": "3 0\n"}
        done = place.headway("run", "job.toml", "--pool", place.pool, "--only-missing")
        assert "nothing to run" in done.stdout and place.newest().label == "scan-2"
        places = [(each.name, [one.where for one in each.outputs]) for each in second.results()]
        assert [name for name, _ in places] == ["scan-2.0", "scan-2.1", "scan-1.0"]
        assert places[2][1] == [
            str(place.folder / "results/1.txt"), str(first.outputs(0) / "log")
        ]  # fmt: skip
        assert first.folder.agent.samefile(second.folder.agent)
        lines = place.headway("logs", "scan-2").stdout.splitlines()
        assert sorted(lines) == ["scan-2.0 lr=3 | lr 3", "scan-2.1 lr=2 | lr 2"]

    def a_container(self, place: Place) -> None:
        shutil.copy(place.image, place.folder / "image.sif")
        place.write({"where.py": "import os\nopen('where.txt', 'w').write(os.getcwd())\n"})
        run = place.run(
            'name = "boxed"\ncommand = "python3 where.py"\nfiles = ["where.py"]\n'
            'outputs = ["where.txt"]\ncontainer = "image.sif"\n'
            '[resources]\nmemory = "256 MB"\ndisk = "200 MB"\n'
        )
        assert (run.outputs() / "where.txt").read_text().startswith("/srv")
        assert "phase=done" in run.folder.events.read_text()

    def a_secret_of_the_shell_reaches_the_command_alone(self, place: Place) -> None:
        place.env = {"API_KEY": "hush-xyz"}
        place.write({"show.sh": SHOW})
        run = place.run(
            'name = "secret"\ncommand = "sh show.sh"\nfiles = ["show.sh"]\noutputs = ["out"]\n'
            '[environment]\nKEY = "$API_KEY"\nTEXT = "$$API_KEY"\n'
            f'[checkpoint]\npaths = ["ckpt"]\n{SMALL}'
        )
        text = (run.outputs() / "out").read_text()
        assert text == "hush-xyz $API_KEY\nhush-xyz $API_KEY\n", "in both segments"
        secrets = run.folder.secrets
        assert secrets.stat().st_mode & 0o777 == 0o600
        for path in run.folder.path.rglob("*"):
            if path.is_file() and path not in (secrets, run.outputs() / "out"):
                assert b"hush-xyz" not in path.read_bytes(), path

    def a_gpu(self, place: Place) -> None:
        run = place.run(
            'name = "gpu"\ncommand = ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES > gpu.txt"]\n'
            'outputs = ["gpu.txt"]\n'
            + SMALL
            + 'gpus = { count = 1, memory = "8 GB", capability = 7.0 }\n'
        )
        devices = (run.outputs() / "gpu.txt").read_text().strip()
        assert devices.startswith("GPU-") and "," not in devices

    def an_eviction_goes_on_from_the_checkpoint(self, place: Place) -> None:
        place.write({"counter.sh": COUNTER.replace("ENOUGH", f"{place.folder}/enough")})
        run = place.start(CHECKPOINTED)
        for attempt in (1, 2):
            place.wait(run, lambda s, a=attempt: s.phase == "run" and s.attempts == a)  # type: ignore[misc]
            time.sleep(1.5)
            place.headway("evict", run.label)
        place.wait(run, lambda state: state.phase == "run" and state.attempts == 3)
        (place.folder / "enough").touch()
        place.settle(run)
        history = (run.outputs() / "history.txt").read_text().splitlines()
        starts = [int(line.split()[1].rstrip(",")) for line in history]
        assert starts[0] == 0 < starts[1] < starts[2], place.story()
        assert [line.split(", ")[1] for line in history] == ["0 saved", "1 saved", "1 saved"]
        assert int((run.outputs() / "total.txt").read_text()) >= starts[2]
        state = run.jobs[0]
        assert state.outcome is Outcome.SUCCESS and state.evictions == 2 and state.attempts == 3
        assert len(run.folder.attempts(0)) == 3, "the records of evicted attempts are lost"

    def exit_85_by_itself_goes_on_in_the_same_attempt(self, place: Place) -> None:
        place.write(
            {
                "step.sh": "#!/bin/sh\nmkdir -p ckpt\necho x >> ckpt/steps\nwc -l < ckpt/steps\n"
                '[ "$(wc -l < ckpt/steps)" -ge 3 ] || exit 85\ncp ckpt/steps steps.txt\n'
            }
        )
        run = place.run(
            'name = "steps"\ncommand = "./step.sh"\nfiles = ["step.sh"]\noutputs = ["steps.txt"]\n'
            '[checkpoint]\npaths = ["ckpt"]\n' + SMALL
        )
        assert (run.outputs() / "steps.txt").read_text() == "x\nx\nx\n"
        state = run.jobs[0]
        assert state.attempts == 1 and state.checkpoints == 2 and state.foreign == 0
        assert len(record(run)["segments"]) == 3
        stdout = run.stream(0, "stdout")
        assert stdout is not None and stdout.read_text().split() == ["1", "2", "3"]

    def hold_and_release(self, place: Place) -> None:
        until = f"until [ -e {place.folder}/enough ]; do sleep 0.1; done"
        run = place.start(f'name = "held"\nshell = true\ncommand = "{until}"\n' + SMALL)
        place.headway("hold", run.label)
        place.wait(run, lambda state: state.status is Status.HELD)
        assert run.jobs[0].hold_code == 1
        (place.folder / "enough").touch()
        place.headway("release", f"{run.label}.0")
        place.settle(run)
        assert run.jobs[0].outcome is Outcome.SUCCESS and run.jobs[0].holds == 1

    def removal_ends_the_whole_process_tree(self, place: Place) -> None:
        run = place.start(
            'name = "gone"\nshell = true\ncommand = "sleep 300 & sleep 300"\ngrace = "2 s"\n'
            + SMALL
        )
        place.wait(run, lambda state: state.phase == "run")
        place.headway("remove", run.label)
        place.settle(run)
        assert run.jobs[0].outcome is Outcome.REMOVED

    def a_site_where_every_job_fails_is_left(self, place: Place) -> None:
        place.write(
            {
                "picky.sh": f"#!/bin/sh\ngrep -q {place.bad_site} $_CONDOR_MACHINE_AD && exit 7\n"
                "echo fine > fine.txt\n"
            }
        )
        run = place.run(
            'name = "picky"\ncommand = "./picky.sh"\nfiles = ["picky.sh"]\ncount = 4\n'
            f'outputs = ["fine.txt"]\n{place.begins_there}[retries]\ncommand = 3\n'
            f'[sites]\nprefer = ["{place.bad_site}"]\n' + SMALL
        )
        for job, state in run.jobs.items():
            assert state.outcome is Outcome.SUCCESS, (job, state.why)
            assert state.site != place.bad_site
        assert max(state.attempts for state in run.jobs.values()) == 2
        assert any(state.requeues for state in run.jobs.values())

    def a_failed_command_is_a_failed_command(self, place: Place) -> None:
        run = place.run(
            'name = "fails"\ncommand = ["sh", "-c", "echo why >&2; exit 3"]\noutputs = ["no.txt"]\n'
            + SMALL,
            code=1,
        )
        state = run.jobs[0]
        assert state.failure is Exit.COMMAND_FAILED and state.holds == 0
        assert record(run)["command"]["status"] == 3
        stderr = run.stream(0, "stderr")
        assert stderr is not None and stderr.read_text() == "why\n"

    def a_missing_output_is_tried_once_more_and_then_told(self, place: Place) -> None:
        run = place.run('name = "none"\ncommand = "true"\noutputs = ["no.txt"]\n' + SMALL, code=1)
        state = run.jobs[0]
        assert state.failure is Exit.OUTPUT_MISSING and state.attempts == 2

    def an_input_that_fails_for_a_while_is_held_and_released(self, place: Place) -> None:
        with Server({"/data.bin": DATA}, [Answers(503).times(4)]) as server:
            run = place.run(
                'name = "patient"\ncommand = "true"\n[retries]\nbackoff = "1 s"\n'
                f'[[inputs]]\nurl = "{server.url("/data.bin")}"\n' + SMALL,
                timeout=180,
            )
        assert run.jobs[0].outcome is Outcome.SUCCESS

    def headway_killed_right_after_submit(self, place: Place) -> None:
        job = (
            'name = "orphan"\ncommand = ["sh", "-c", "sleep 3; echo {job} > out.txt"]\ncount = 2\n'
        )
        job += 'outputs = ["out.txt"]\n' + SMALL
        place.write({"job.toml": job})
        command = ("run", "job.toml", "--pool", place.pool)
        process = place.popen(*command)
        log = place.folder / ".headway/runs/orphan-1/events.log"
        deadline = threading.Event()
        for _ in range(300):
            if log.exists() and log.read_text().count("Job submitted") == 2:
                break
            deadline.wait(0.1)
        process.send_signal(signal.SIGKILL)
        process.wait()
        place.wait_for_what_it_takes_along()
        place.headway(*command)
        run = place.newest()
        assert run.label == "orphan-1", "asking again doubles the jobs"
        assert [(run.outputs(n) / "out.txt").read_text() for n in (0, 1)] == ["0\n", "1\n"]
        assert run.folder.events.read_text().count("Job submitted") == 2

    def a_running_job_can_be_listened_to(self, place: Place) -> None:
        run = place.start('name = "talks"\ncommand = ["sh", "-c", "echo now; sleep 300"]\n' + SMALL)
        place.wait(run, lambda state: state.phase == "run")
        for _ in range(50):
            heard = place.headway("logs", run.label, code=None).stdout
            if heard or run.jobs[0].terminal:
                break
            time.sleep(0.2)
        assert heard == "now\n" and not run.jobs[0].terminal
        place.headway("remove", run.label)

    def status_and_logs_tell_the_same_story(self, place: Place) -> None:
        run = place.run('name = "told"\ncommand = "echo spoken"\n' + SMALL)
        told = json.loads(place.headway("status", run.label, "--json").stdout)
        assert [job["status"] for job in told["states"]] == ["completed"]
        assert place.headway("logs", f"{run.label}.0").stdout == "spoken\n"


PROMISES = promises(Contract)


@at_the_same_time(lambda pool, promise: getattr(Contract(), promise)(CondorPlace(pool)))
@pytest.mark.parametrize("promise", PROMISES)
def test_on_htcondor(together: Together, request: pytest.FixtureRequest, promise: str) -> None:
    together.wait(request)


@pytest.mark.parametrize("promise", [each for each in PROMISES if each != "a_container"])
def test_locally(tmp_path: Path, promise: str) -> None:
    getattr(Contract(), promise)(LocalPlace(tmp_path))


def test_a_container_locally(condor_pool: Pool, tmp_path: Path) -> None:
    """Image and apptainer are the test pool's."""
    place = LocalPlace(tmp_path, apptainer_folder(condor_pool))
    place.image = condor_pool.image
    Contract().a_container(place)
