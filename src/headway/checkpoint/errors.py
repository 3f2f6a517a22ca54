"""What goes wrong with checkpoints."""


class CheckpointError(Exception):
    """A checkpoint that cannot be written, or none of those that are there can be read."""
