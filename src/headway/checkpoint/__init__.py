"""Checkpoints that survive anything: saved whole or not at all, proven when loaded.

    from headway.checkpoint import Checkpoint

    checkpoint = Checkpoint("ckpt")
    kept = checkpoint.load(model=model, optimizer=optimizer)  # None at the very beginning
    step = kept["step"] if kept else 0
    while step < steps:
        ...
        step += 1
        checkpoint.tick(model=model, optimizer=optimizer, step=step)

`tick` saves when it is time and, after SIGTERM or at the interval of job.toml's [checkpoint], also
ends the process with its exit code, 85. Needs nothing but the standard library; what has a
`state_dict` (models, optimizers, schedulers, data sets) is saved by it, with torch where there are
tensors, with NumPy where there are arrays. The states of random number generators are kept without
being asked for.

FOLDER/00000012/ is one checkpoint: values.json, a file for the tensors or arrays of each thing, and
index.json with the sha256 of each. The newest is loaded that is whole; the one before it is kept
until then.
"""

from headway.checkpoint.errors import CheckpointError
from headway.checkpoint.keeper import Checkpoint
from headway.checkpoint.tracing import trace

__all__ = ["Checkpoint", "CheckpointError", "trace"]
