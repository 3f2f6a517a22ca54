"""Each fault that loses work on a pool is found, named, and mended in words."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.check import TITLES, Checked, Promise, check

SCRIPTS = Path(__file__).parent / "scripts"
JOB = """\
name = "toy"
command = "{command}"
shell = {shell}
files = ["*.py", "*.sh"]
{outputs}
grace = "{grace}"
[resources]
memory = "50 MB"
disk = "10 MB"
[checkpoint]
paths = ["ckpt"]
"""
Found = Callable[..., dict[str, Promise]]


@pytest.fixture
def found(tmp_path: Path) -> Found:
    """Check one of the scripts; returns its promises by name."""

    def call(
        command: str,
        more: str = "",
        *,
        shell: bool = False,
        extra: str = "",
        grace: str = "5 s",
        quick: bool = False,
        outputs: str = 'outputs = ["model.json"]',
    ) -> dict[str, Promise]:
        script = re.findall(r"\w+\.py", command)[0]
        for name in (script, "toy.py"):
            (tmp_path / name).write_bytes((SCRIPTS / name).read_bytes())
        text = JOB.format(command=command, shell=str(shell).lower(), grace=grace, outputs=outputs)
        (tmp_path / "none.sh").touch()
        (tmp_path / "job.toml").write_text(text + more)
        checked = check(
            tmp_path / "job.toml", extra=extra, start=tmp_path, limit=240.0, quick=quick
        )
        assert os.listdir(tmp_path / ".headway") == []  # nothing is left
        return seen(checked)

    return call


def seen(checked: Checked) -> dict[str, Promise]:
    for each in checked.promises:
        assert each.evidence, each
        assert each.mend or each.verdict != "broken", each
    promises = {each.name: each for each in checked.promises}
    assert list(promises) == list(TITLES)
    return promises


def broken(promises: dict[str, Promise]) -> set[str]:
    return {name for name, each in promises.items() if each.verdict == "broken"}


def evidence(promises: dict[str, Promise], name: str) -> str:
    return "\n".join(promises[name].evidence)


@pytest.mark.parametrize("script", ["sound.py", "ours.py"])
def test_a_sound_job_breaks_nothing(found: Found, script: str) -> None:
    promises = found(f"python3 {script}", 'interval = "1 h"\n')
    assert {name for name, each in promises.items() if each.verdict != "kept"} == set(), promises
    assert "put in place at once" in evidence(promises, "atomic")
    assert "of the interval of 3600 s" in evidence(promises, "cost")


def test_no_resume(found: Found) -> None:
    promises = found("python3 no_resume.py")
    assert "resume" in broken(promises)
    assert "from the beginning" in evidence(promises, "resume")
    assert "checkpoint.load" in promises["resume"].mend
    assert promises["sigterm"].verdict == promises["exit-code"].verdict == "kept"


def test_resume_at_the_next_epoch(found: Found) -> None:
    promises = found("python3 next_epoch.py")
    assert {"resume", "curve"} <= broken(promises)
    assert "steps are left out" in evidence(promises, "resume")


def test_resume_at_the_beginning_of_the_epoch(found: Found) -> None:
    promises = found("python3 same_epoch.py")
    assert "curve" in broken(promises) and "order" not in broken(promises)
    assert "the samples are the same" in evidence(promises, "curve")


def test_rng_not_saved(found: Found) -> None:
    promises = found("python3 no_rng.py")
    assert {"curve", "results"} <= broken(promises)
    assert promises["order"].verdict == promises["resume"].verdict == "kept"
    assert "random" in promises["curve"].mend


def test_sampler_not_saved(found: Found) -> None:
    promises = found("python3 no_sampler.py")
    assert "order" in broken(promises)
    assert promises["resume"].verdict == "kept"
    assert "generator" in promises["order"].mend


def test_checkpoint_not_atomic(found: Found) -> None:
    promises = found("python3 not_atomic.py")
    assert broken(promises) == {"atomic"}
    assert "ckpt/state.json was half written" in evidence(promises, "atomic")
    assert "os.replace" in promises["atomic"].mend


def test_two_files_that_belong_together(found: Found) -> None:
    promises = found("python3 two_files.py")
    assert broken(promises) == {"atomic"}
    assert "and ckpt/" in evidence(promises, "atomic")


def test_the_old_checkpoint_removed_first(found: Found) -> None:
    promises = found("python3 removes_first.py")
    assert broken(promises) == {"atomic"}
    assert "ckpt/state.json was deleted" in evidence(promises, "atomic")


@pytest.mark.parametrize(
    "command", ["python3 sound.py | tee log", "exec python3 wrapper.sh # sound.py"]
)
def test_exit_code_lost_on_the_way(found: Found, tmp_path: Path, command: str) -> None:
    """By a pipe, and by a program that starts the training as its child."""
    (tmp_path / "wrapper.sh").write_text(
        "import signal, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, 'sound.py'])\n"
        "signal.signal(signal.SIGTERM, lambda *_: child.terminate())\n"
        "child.wait()\n"
    )
    promises = found(command, 'interval = "1 h"\n', shell=True, quick=True)
    assert "exit-code" in broken(promises)
    assert promises["resume"].verdict != "broken"


def test_exit_code_lost_by_the_wrapper(found: Found, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("python3 sound.py\necho done\n")
    promises = found("sh run.sh # sound.py")
    assert broken(promises) == {"exit-code"}
    assert "was killed by SIGTERM, not with 85" in evidence(promises, "exit-code")
    assert "python3 sound.py" in evidence(promises, "exit-code")
    assert "exec python3" in promises["exit-code"].mend
    assert promises["resume"].verdict == "kept"


@pytest.mark.parametrize("script", ["sound.py", "ours.py"])
def test_exit_code_lost_at_the_interval(found: Found, script: str) -> None:
    """On SIGTERM the agent's own shell passes it on, but not past the next command."""
    promises = found(f"python3 {script} || exit 1", 'interval = "1 h"\n', shell=True)
    assert broken(promises) == {"exit-code"}
    assert "but the command exited with 1, not with 85" in evidence(promises, "exit-code")


def test_no_reaction_to_sigterm(found: Found) -> None:
    promises = found("python3 no_sigterm.py")
    assert broken(promises) == {"sigterm"}
    assert "was killed by SIGTERM" in evidence(promises, "sigterm")
    assert promises["resume"].verdict == "kept", promises["resume"]
    assert "Checkpoint(" in promises["sigterm"].mend


def test_sigterm_ignored(found: Found) -> None:
    promises = found("python3 deaf.py", grace="0.3 s")
    assert "sigterm" in broken(promises)
    assert "went on for the grace of 0.3 s" in evidence(promises, "sigterm")
    assert promises["resume"].verdict == promises["atomic"].verdict == "not tried"


def test_sigterm_ignored_by_one_that_saves(found: Found) -> None:
    """What it saves after SIGTERM it would have saved anyway."""
    promises = found("python3 no_sigterm.py --deaf", quick=True)
    assert broken(promises) == {"sigterm"}
    assert "as if there had been no SIGTERM" in evidence(promises, "sigterm")


def test_a_used_folder(found: Found) -> None:
    promises = found("python3 used_folder.py")
    assert "used-folder" in broken(promises)
    assert "FileExistsError" in evidence(promises, "used-folder")


def test_the_interval_is_not_heeded(found: Found) -> None:
    promises = found("env -u HEADWAY_CHECKPOINT_INTERVAL python3 sound.py", 'interval = "1 h"\n')
    assert broken(promises) == {"interval"}


def test_a_checkpoint_that_costs_too_much(found: Found) -> None:
    promises = found("python3 ours.py", 'interval = "0.002 s"\n')
    assert "cost" in broken(promises)


class TestWithoutATrace:
    def test_what_it_prints_is_compared(self, found: Found) -> None:
        promises = found("python3 printing.py")
        assert broken(promises) == set()
        assert promises["curve"].verdict == promises["resume"].verdict == "kept"
        assert promises["order"].verdict == "not tried" and "trace(" in promises["order"].mend

    @pytest.mark.parametrize("buffer", ["", "1"])
    def test_lines_that_a_buffer_keeps_to_the_end_do_not_say_how_far_it_is(
        self, found: Found, buffer: str
    ) -> None:
        more = f'[environment]\nPYTHONUNBUFFERED = "{buffer}"\n'
        promises = found("python3 printing.py --buffered", more, quick=True)
        assert broken(promises) == set()
        assert promises["sigterm"].verdict == promises["resume"].verdict == "kept"

    def test_imports_that_take_longer_in_another_start_do_not_count(
        self, found: Found, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Though nobody noticed when the command began to heed SIGTERM, on a busy machine."""
        monkeypatch.setattr("headway.check.bench.listeners", lambda *_: set())
        been = tmp_path / "been"
        command = f"test -e {been} && sleep 0.8; touch {been}; exec python3 printing.py"
        promises = found(command, shell=True, quick=True)
        assert broken(promises) == set()
        assert promises["sigterm"].verdict == promises["resume"].verdict == "kept"

    def test_what_it_prints_differs(self, found: Found) -> None:
        assert "curve" in broken(found("python3 printing.py", extra="--broken"))

    def test_the_outputs_are_compared(self, found: Found) -> None:
        promises = found("python3 silent.py")
        assert broken(promises) == {"results"}
        assert promises["curve"].verdict == "not tried" and "trace(" in promises["curve"].mend


def test_what_is_never_the_same_is_not_called_broken(found: Found) -> None:
    promises = found("python3 unseeded.py")
    assert broken(promises) == set()
    assert promises["curve"].verdict == promises["results"].verdict == "not tried"
    assert "seed" in promises["curve"].mend


def test_a_job_that_fails_by_itself(found: Found) -> None:
    promises = found("python3 sound.py nothing; exit 3", shell=True)
    assert broken(promises) == {"runs"}
    assert "exited with 3" in evidence(promises, "runs")


def test_inputs_come_once_and_outputs_stay(found: Found, tmp_path: Path) -> None:
    """The command removes what its input came from: later starts must have got it elsewhere."""
    (tmp_path / "data.bin").write_bytes(b"data")
    (tmp_path / "sent").mkdir()
    command = f"grep -q data data.bin && rm -f {tmp_path}/data.bin; exec python3 sound.py"
    more = (
        f'[[inputs]]\nurl = "{(tmp_path / "data.bin").as_uri()}"\n'
        f'[[outputs]]\npath = "toy.py"\nto = "{(tmp_path / "sent/toy.py").as_uri()}"\n'
    )
    promises = found(command, more, shell=True, quick=True, outputs="")
    assert broken(promises) == set() and promises["resume"].verdict == "kept"
    assert promises["outputs"].verdict == "kept" and os.listdir(tmp_path / "sent") == []
    assert not (tmp_path / "data.bin").exists()


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch")
def test_pytorchs_mnist_with_five_lines(found: Found, quick_torch: str) -> None:
    command = f"{sys.executable} mnist.py --epochs 6 --log-interval 2 --save-model"
    output = 'outputs = ["mnist_cnn.pt"]'
    promises = found(command, quick_torch, grace="60 s", quick=True, outputs=output)
    assert broken(promises) == set()
    for name in ("sigterm", "exit-code", "resume", "curve", "results"):
        assert promises[name].verdict == "kept", promises[name]


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch")
def test_an_optimizer_that_is_not_saved(found: Found, quick_torch: str) -> None:
    command = f"{sys.executable} with_torch.py --forget"
    promises = found(command, quick_torch, grace="60 s", quick=True)
    assert broken(promises) == {"curve", "results"}
    assert promises["order"].verdict == "kept"
