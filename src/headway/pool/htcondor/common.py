"""Common input: what all jobs of a run need, and HTCondor brings to a node once for all of them.

The first job of the run on a node waits until it is there; the jobs on that node then get hard
links to it. On a node that cannot do this, each job gets a copy of its own.
"""

from __future__ import annotations

from typing import NamedTuple

from headway.pool.lint.submit_file import canonical
from headway.spec import Job

#: Bytes from which on it pays. HTCondor needs one to two seconds to set it up on each node, which
#: is what a gigabit line needs for two or three more copies of this size.
LEAST = 50_000_000
#: Jobs; more than these are put into the queue in portions. HTCondor 25.14.1 then makes no job at
#: all if they have common input.
LATE_FROM = 2000
#: Lines of job.toml by which the user decides, or puts jobs into the queue in portions.
_USERS = {
    canonical(key)
    for key in (
        *("transfer_common_input", "transfer_common_input_files", "common_input_files"),
        *("container_is_common", "require_common_files_transfer", "materialize_max_idle"),
    )
}


class CommonInput(NamedTuple):
    """Which files of a run are common input."""

    payload: bool = False
    image: bool = False


NOTHING = CommonInput()


def worth_sharing(job: Job, payload: int, image: int) -> CommonInput:
    """What of a run is worth bringing to a node only once.

    Args:
        job: The job.
        payload: The size of its packed files, in bytes.
        image: The size of its container image, if that is a file of this machine; else 0.

    Returns:
        What is large enough, if there are several jobs, not too many of them, and job.toml does not
        say otherwise.
    """
    if not 2 <= job.size <= LATE_FROM or _USERS.intersection(map(canonical, job.submit)):
        return NOTHING
    return CommonInput(payload >= LEAST, image >= LEAST)
