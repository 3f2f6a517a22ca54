"""`python -m headway`."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    # `-m` puts the current folder first: a project's json.py would be taken for Python's own
    if sys.path and sys.path[0] in ("", os.getcwd()):
        del sys.path[0]
    from headway.cli import main

    sys.exit(main())
