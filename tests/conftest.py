"""Property tests try the same examples each time; --hypothesis-profile=explore tries others."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("steady", derandomize=True)
settings.register_profile("explore", print_blob=True)
settings.load_profile("steady")
