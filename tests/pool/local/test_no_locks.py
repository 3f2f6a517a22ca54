"""A project on a file system without locks: some NFS, Lustre and AFS homes have none."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headway.node.files import lock

from .house import SMALL, House, wait

NO_FLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int flock(int fd, int how) {
  static int (*real)(int, int);
  char link[64], path[4096];
  const char *folder = getenv("NO_FLOCK_IN");
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (folder && length > 0 && !strncmp(path, folder, strlen(folder))) {
    errno = atoi(getenv("NO_FLOCK_ERRNO"));
    return -1;
  }
  if (!real) real = dlsym(RTLD_NEXT, "flock");
  return real(fd, how);
}
"""
FAILURES = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
HOLDER = """
import fcntl, os, sys, time
from headway.node.files import lock
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
try:
    fcntl.flock(file, fcntl.LOCK_EX)
    sys.exit("it is not taken away")
except OSError:
    held = lock(file)
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that takes `flock` away from whatever lies in one folder."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("library")
    (folder / "no_flock.c").write_text(NO_FLOCK)
    library = folder / "no_flock.so"
    command = [compiler, "-shared", "-fPIC", "-o", str(library), f"{folder}/no_flock.c", "-ldl"]
    subprocess.run(command, check=True)
    return library


@pytest.fixture
def house(house: House, library: Path) -> House:
    house.environment |= {"LD_PRELOAD": str(library), "NO_FLOCK_IN": str(house.folder)}
    house.environment["NO_FLOCK_ERRNO"] = str(errno.ENOSYS)
    return house


def hold(house: House, path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HOLDER, path],
        env=house.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("failure", FAILURES, ids=lambda number: errno.errorcode[number])
def test_one_process_has_the_lock_until_it_is_gone(house: House, failure: int) -> None:
    house.environment["NO_FLOCK_ERRNO"] = str(failure)
    path = house.folder / "a.lock"
    first = hold(house, path)
    assert first.stdout is not None and first.stdout.readline() == "held\n"
    second = hold(house, path)
    try:
        assert "BlockingIOError" in second.communicate(timeout=120)[1]
    finally:
        first.send_signal(signal.SIGKILL)
        first.communicate()
    third = hold(house, path)
    assert third.stdout is not None and third.stdout.readline() == "held\n"
    third.kill()
    third.communicate()


def test_a_run_from_start_to_end(house: House) -> None:
    """Submit, look, act, heal and collect: none of them is a bug of headway's."""
    job = f'name = "long"\ncommand = "sleep 60"\ngrace = "2 s"\n{SMALL}'
    run = house.start(job)
    house.wait(run, lambda state: state.phase == "run")
    assert "running" in house.headway("status", run.label).stdout
    house.headway("hold", run.label)
    house.wait(run, lambda state: state.status.value == "held")
    house.headway("heal", run.label, "--do", "--once")
    house.headway("remove", run.label)
    # its supervisor ends, which its lock tells
    told = house.headway("run", "--resume", run.label, code=None)
    assert "removed" in told.stdout + told.stderr
    house.headway("collect", str(run.folder.events), "--into", "kept")


def test_stand_ins_do_not_pile_up(house: House) -> None:
    folder = Path(f"/tmp/headway-locks-{os.geteuid()}")
    before = set(folder.iterdir()) if folder.exists() else set()
    house.run(f'name = "short"\ncommand = "true"\n{SMALL}')
    wait(lambda: not set(folder.iterdir()) - before)


def test_a_stand_in_is_never_anothers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has put a folder or a link of that name into /tmp gets no say in what is locked."""
    import headway.node.files as locks

    def without(file: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", without)
    monkeypatch.setattr(locks, "_PLACES", (str(tmp_path),))
    folder = tmp_path / f"headway-locks-{os.geteuid()}"
    (tmp_path / "real").mkdir()
    folder.symlink_to(tmp_path / "real")
    with open(tmp_path / "file", "w") as file:
        with pytest.raises(OSError, match="is not a folder of yours alone"):
            lock(file.fileno())
        folder.unlink()
        folder.mkdir()
        folder.chmod(0o777)
        with pytest.raises(OSError, match="is not a folder of yours alone"):
            lock(file.fileno())
