"""Events as columns: reading logs of millions of events quickly."""
