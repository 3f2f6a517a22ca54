"""The embedded pool: jobs as processes on this machine."""
