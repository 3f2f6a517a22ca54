"""Eviction, time limit, stragglers and the orphan rule."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .conftest import Node, Web, alive, wait

BUSY = 5.0  # seconds that a busy machine may add

# writes `ready`, then waits; what it does on SIGTERM is put in place of HANDLER
WAITER = """
import os, signal, sys, time
def handler(number, frame):
    open("got", "a").write(f"{number}\\n")
    HANDLER
signal.signal(signal.SIGTERM, handler)
open("pid", "w").write(str(os.getpid()))
open("ready", "w").close()
while True: time.sleep(0.01)
"""
CHECKPOINT = {"paths": ["ckpt"], "exit_code": 77, "interval": None, "signal": None}


def waiter(handler: str) -> str:
    return WAITER.replace("HANDLER", handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_an_eviction_reaches_the_command_once(node: Node, number: signal.Signals) -> None:
    node.python(waiter("time.sleep(0.3); sys.exit(0)"))
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may be under nohup
    process = node.start()
    signal.signal(signal.SIGHUP, before)
    node.wait_for("ready")
    process.send_signal(number)
    time.sleep(0.1)
    process.send_signal(number)
    assert node.end(process) == 143
    assert (node.folder / "got").read_text() == "15\n"
    record = node.record()
    assert record["exit"] == 143
    assert record["reason"].startswith("evicted")
    assert record["command"]["status"] == 0
    assert node.chirp.phases()[-1]["exit"] == "143"


def test_a_checkpoint_on_eviction(node: Node) -> None:
    node.python(waiter("os.mkdir('ckpt'); sys.exit(77)"), checkpoint=CHECKPOINT)
    process = node.start()
    node.wait_for("ready")
    process.terminate()
    assert node.end(process) == 85
    assert node.record()["exit"] == 85
    run = node.record()["phases"][-1]
    assert (run["name"], run["ok"], run["cause"]) == ("run", True, "evicted")


def test_an_eviction_whose_checkpoint_is_missing(node: Node) -> None:
    node.python(waiter("sys.exit(77)"), checkpoint=CHECKPOINT)
    process = node.start()
    node.wait_for("ready")
    process.terminate()
    assert node.end(process) == 143


def test_the_group_is_killed_after_the_grace(node: Node) -> None:
    node.python(waiter("pass"), grace=0.3)
    process = node.start()
    node.wait_for("ready")
    begin = time.monotonic()
    process.terminate()
    assert node.end(process) == 143
    assert 0.3 <= time.monotonic() - begin < 5 + BUSY
    assert node.record()["command"]["signal"] == 9
    assert not alive(int((node.folder / "pid").read_text()))


@pytest.mark.parametrize("shell", [True, False])
def test_a_program_below_a_shell_has_its_grace(node: Node, shell: bool) -> None:
    """The shell must not take the program, which saves its state, with it into the grave."""
    (node.folder / "job.py").write_text(waiter("time.sleep(0.3); os.mkdir('ckpt'); sys.exit(77)"))
    line = f"{sys.executable} job.py; exit $?"
    if shell:
        node.plan(line, checkpoint=CHECKPOINT)
    else:
        (node.folder / "job.sh").write_text(line)
        node.plan(["sh", "job.sh"], checkpoint=CHECKPOINT)
    process = node.start()
    node.wait_for("ready")
    process.terminate()
    # only a shell of our own making can pass the exit code on
    assert node.end(process) == (85 if shell else 143)
    assert (node.folder / "ckpt").exists()


def test_the_time_limit(node: Node) -> None:
    node.python(waiter("sys.exit(1)"), time_limit=1.0, outputs=[{"path": "ready"}])
    assert node.run() == 86
    assert "time limit" in node.stderr
    assert node.record()["command"]["status"] == 1
    assert (node.attempt() / "outputs" / "ready").exists()


def test_the_time_limit_with_a_stubborn_command(node: Node) -> None:
    node.python(waiter("pass"), time_limit=1.0, grace=0.2)
    assert node.run() == 86
    assert node.record()["command"]["signal"] == 9


def test_a_checkpoint_at_the_time_limit(node: Node) -> None:
    node.python(waiter("os.mkdir('ckpt'); sys.exit(77)"), time_limit=1.0, checkpoint=CHECKPOINT)
    assert node.run() == 85


def test_an_eviction_within_the_time_limits_grace(node: Node) -> None:
    node.python(waiter("time.sleep(0.5); sys.exit(0)"), time_limit=1.0)
    process = node.start()
    node.wait_for("got")
    process.terminate()
    assert node.end(process) == 86
    assert (node.folder / "got").read_text() == "15\n"


def test_the_checkpoint_signal_is_sent_once_at_the_interval(node: Node) -> None:
    code = waiter("pass").replace("SIGTERM", "SIGUSR1") + "\n"
    once = "while not os.path.exists('got'): time.sleep(0.01)\ntime.sleep(1.5); os.mkdir('ckpt')"
    code = code.replace("while True: time.sleep(0.01)", once)
    node.python(
        code + "sys.exit(77)",
        # long enough that the command listens by then
        checkpoint={"paths": ["ckpt"], "exit_code": 77, "interval": 1.0, "signal": "SIGUSR1"},
    )
    assert node.run() == 85
    assert (node.folder / "got").read_text() == f"{int(signal.SIGUSR1)}\n"


def test_stragglers_end_with_the_command(node: Node) -> None:
    node.plan("(trap '' TERM HUP; sleep 60) & echo $! > straggler; exit 0")
    assert node.run() == 0
    pid = int((node.folder / "straggler").read_text())
    wait(lambda: not alive(pid), 2 + BUSY)


def test_a_signal_while_data_arrive(node: Node, web: Web) -> None:
    def slow(request: object) -> bool:
        (node.folder / "ready").touch()
        time.sleep(30)
        return True

    web.script["data"] = [slow]
    node.plan(["true"], inputs=[{"urls": [web.url("data")], "path": "data"}])
    process = node.start()
    node.wait_for("ready")
    begin = time.monotonic()
    process.terminate()
    assert node.end(process) == 143
    assert time.monotonic() - begin < 2 + BUSY  # and not the server's 30
    record = node.record()
    assert (record["exit"], record["phases"][-1]["name"]) == (143, "stage-in")
    assert record["command"] is None
    assert "run" not in {each["phase"] for each in node.chirp.phases()}


def test_a_signal_while_outputs_leave(node: Node, web: Web) -> None:
    def slow(request: object) -> bool:
        (node.folder / "ready").touch()
        time.sleep(30)
        return True

    web.script["model"] = [slow]
    node.plan("echo x > model", outputs=[{"path": "model", "to": web.url("model")}])
    process = node.start()
    node.wait_for("ready")
    process.terminate()
    assert node.end(process) == 143
    assert node.record()["phases"][-1]["name"] == "stage-out"


def test_a_signal_before_the_command_starts(node: Node) -> None:
    """Whenever the signal comes, the agent ends at once, and never without its command."""
    node.plan(["sleep", "30.0417"])
    for delay in (0.0, 0.03, 0.05, 0.07, 0.1):
        process = node.start()
        time.sleep(delay)
        process.terminate()
        assert node.end(process) in (143, -15)  # -15: before the agent could do anything
    assert (
        "sleep 30.0417" not in subprocess.run(["ps", "ax"], capture_output=True, text=True).stdout
    )


def test_the_orphan_rule(node: Node, tmp_path: Path) -> None:
    """When the pool dies, the agent and its command follow within about a second."""
    node.python(waiter("pass"), grace=60.0)
    pool = f"""
import os, subprocess, sys
environment = dict(os.environ, HEADWAY_PARENT=str(os.getpid()))
agent = subprocess.Popen([{str(node.pyz)!r}, "agent", "plan.json"], env=environment)
open("agent-pid", "w").write(str(agent.pid))
agent.wait()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", pool],
        cwd=node.folder,
        env=node.environment,
        stderr=subprocess.DEVNULL,
    )
    node.wait_for("ready")
    agent = int((node.folder / "agent-pid").read_text())
    command = int((node.folder / "pid").read_text())
    time.sleep(1.2)
    assert alive(agent)
    process.kill()
    process.wait()
    wait(lambda: not alive(agent) and not alive(command), 3 + BUSY)  # though the grace is a minute
    assert node.record()["exit"] == 143
    assert "pool" in node.record()["reason"]


def test_a_wrapper_between_pool_and_agent_is_no_orphan(node: Node) -> None:
    node.plan(["sleep", "1.5"])
    agent = f"{node.pyz} agent plan.json; exit $?"
    environment = {**node.environment, "HEADWAY_PARENT": str(os.getpid())}
    done = subprocess.run(["sh", "-c", agent], cwd=node.folder, env=environment, check=False)
    assert done.returncode == 0


EVICTED_AT_A_LOOK = """
import os
from headway.node.process import Watch
def kill(pid, number):
    watch._stop(15, None)  # the signal comes at this very moment
    raise PermissionError
watch, os.kill = Watch(parent=1 << 30), kill
watch.wait(0)
assert watch.cause == "evicted", watch.cause
"""


def test_a_look_at_another_users_parent_loses_no_signal() -> None:
    subprocess.run([sys.executable, "-c", EVICTED_AT_A_LOOK], check=True, timeout=60)


OUT_OF_DATA = f"""
import os, sys, time
from headway.node.process import NO_DATA, Group, Watch
ticks = []
begin = time.monotonic()
group = Group(["sleep", "30"], dict(os.environ), 1, 2)
outcome = group.run(
    Watch(), grace=1.0, tick=lambda: ticks.append(1) or 0.05, out_of_data=lambda: len(ticks) > 5
)
assert outcome.cause == NO_DATA and outcome.signal == 15, vars(outcome)
assert 5 < len(ticks) < 20 and time.monotonic() - begin < 5 + {BUSY}
"""


def test_a_command_that_can_get_no_more_data_is_ended() -> None:
    subprocess.run([sys.executable, "-c", OUT_OF_DATA], check=True, timeout=60)
