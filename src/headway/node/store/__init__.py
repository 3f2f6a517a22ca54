"""The store of a node: what stays there between jobs."""
