"""A real HTCondor pool."""
