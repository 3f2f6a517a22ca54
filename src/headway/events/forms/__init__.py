"""The forms that logs come in: rotated, compressed, XML, JSON."""
