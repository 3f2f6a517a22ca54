#!/bin/sh
# The head of headway-node.pyz: finds a Python 3.9 or later and lets it run the rest of this file.
# -I and -S keep the job's PYTHON* variables and the node's site-packages away from the agent;
# the command finds all of them as they were (Python sets LC_CTYPE in a C locale: that is undone).
check='import sys
if sys.version_info < (3, 9): sys.exit(1)
sys.stdout.write(sys.executable or "")'
run='import os, sys
sys.path.insert(0, sys.argv[1])
if not sys.argv[2]: os.environ.pop("LC_CTYPE", None)
from headway.node.__main__ import start
start(sys.argv[3:])'
list="python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9 python
/usr/bin/python3 /usr/local/bin/python3 /opt/conda/bin/python3 /usr/libexec/platform-python
/opt/rh/rh-python39/root/usr/bin/python3"
for candidate in ${HEADWAY_PYTHON:+"$HEADWAY_PYTHON"} $list; do
  python=$("$candidate" -I -S -c "$check" 2>/dev/null </dev/null) || continue
  exec "${python:-$candidate}" -I -S -X utf8 -c "$run" "$0" "${LC_CTYPE-}" "$@"
done
seen=
for candidate in ${HEADWAY_PYTHON:+"$HEADWAY_PYTHON"} $list; do
  command -v "$candidate" >/dev/null 2>&1 || continue
  version=$("$candidate" --version 2>&1 </dev/null) || version="does not run"
  seen="$seen $candidate ($version)"
done
words="headway: no Python 3.9 or later on this node (exit 80); seen:${seen:- none}; \
use a container with Python, or set HEADWAY_PYTHON"
echo "$words" >&2
mkdir -p headway-out && echo "$words" >headway-out/no-python.txt
exit 80
