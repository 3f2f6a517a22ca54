"""The exit codes with which the agent tells the pool what became of an attempt."""

from __future__ import annotations

from enum import IntEnum

#: In the job's ad: the number of a start, and why that attempt ended, for the reason of a hold.
REASON = "HeadwayReason"
LONGEST_REASON = 450  # characters
#: In the job's ad: seconds that `headway set` gives the command, in place of the plan's.
TIME_LIMIT = "HeadwayTimeLimit"


class Exit(IntEnum):
    """One code per failure class; the submit description retries by these alone."""

    OK = 0
    BAD_NODE = 80
    INPUT_RETRYABLE = 81
    INPUT_FAILED = 82
    COMMAND_FAILED = 83
    OUTPUT_MISSING = 84
    CHECKPOINT = 85
    OUT_OF_TIME = 86
    AGENT_ERROR = 87


MEANING = {
    Exit.OK: "the command succeeded and its outputs are there",
    Exit.BAD_NODE: "the node is not fit for the job",
    Exit.INPUT_RETRYABLE: "an input did not arrive; another try may succeed",
    Exit.INPUT_FAILED: "an input cannot arrive as declared",
    Exit.COMMAND_FAILED: "the command failed",
    Exit.OUTPUT_MISSING: "the command succeeded but a declared output is missing or too small",
    Exit.CHECKPOINT: "the command wrote a checkpoint and wants to go on from it",
    Exit.OUT_OF_TIME: "the command ran into the job's time limit",
    Exit.AGENT_ERROR: "the agent itself failed",
}
