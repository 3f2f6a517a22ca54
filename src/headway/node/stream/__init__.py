"""Reading an object while it arrives."""
