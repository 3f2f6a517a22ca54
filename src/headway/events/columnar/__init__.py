"""Events as columns: logs of millions of events, read at the speed of two cores."""
