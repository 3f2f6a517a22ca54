#!/bin/sh
# The head of headway-node.pyz: finds a Python 3.9 or later and lets it run the rest of this file.
# -I and -S keep the job's PYTHON* variables and the node's site-packages away from the agent; the
# command finds all of them as they were (Python sets LC_CTYPE in a C locale: that is undone).
# A Python whose name says that it is new enough is started without a trial; should it lack a part of
# the standard library it hands over to the next one, and HEADWAY_TRIED says which not to ask again.
check='import sys
if sys.version_info < (3, 9): sys.exit(1)
sys.stdout.write(sys.executable or "")'
run='import os, sys
library, pyz = os.path.dirname(os.__file__), sys.argv[1]
parts = ("json/decoder.py", "tarfile.py", "http/client.py", "urllib/request.py", "ssl.py")
whole = not os.path.exists(library) or all(os.path.exists(library + "/" + p) for p in parts)
try: import zlib
except ImportError: whole = False
if sys.version_info < (3, 9) or not whole:
    os.environ["HEADWAY_TRIED"] = os.environ.get("HEADWAY_TRIED", "") + sys.argv[2] + " "
    os.execv("/bin/sh", ["sh", pyz] + sys.argv[4:])
if not sys.argv[3]: os.environ.pop("LC_CTYPE", None)
os.environ.pop("HEADWAY_TRIED", None)
sys.path.insert(0, pyz)
from headway.node.__main__ import start
start(sys.argv[4:])'
start() { # interpreter, its name among the candidates, the arguments of the agent
  python=$1 name=$2
  shift 2
  exec "$python" -I -S -X utf8 -c "$run" "$0" "$name" "${LC_CTYPE-}" "$@"
}
new() { # does not name one that has been tried
  case " ${HEADWAY_TRIED-} " in *" $1 "*) return 1 ;; esac
}
if [ -x "${HEADWAY_PYTHON-}" ] && new "$HEADWAY_PYTHON"; then
  start "$HEADWAY_PYTHON" "$HEADWAY_PYTHON" "$@"
elif [ -z "${HEADWAY_PYTHON-}" ]; then
  for version in 3.14 3.13 3.12 3.11 3.10 3.9; do
    for folder in /usr/bin /usr/local/bin /opt/conda/bin; do
      candidate=$folder/python$version
      [ -x "$candidate" ] && new "$candidate" && start "$candidate" "$candidate" "$@"
    done
  done
fi
list="python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9 python
/usr/bin/python3 /usr/local/bin/python3 /opt/conda/bin/python3 /usr/libexec/platform-python"
for candidate in ${HEADWAY_PYTHON:+"$HEADWAY_PYTHON"} $list; do
  new "$candidate" || continue
  found=$("$candidate" -I -S -c "$check" 2>/dev/null </dev/null) || continue
  start "${found:-$candidate}" "$candidate" "$@"
done
seen=
for candidate in ${HEADWAY_PYTHON:+"$HEADWAY_PYTHON"} $list; do
  command -v "$candidate" >/dev/null 2>&1 || continue
  version=$("$candidate" --version 2>&1 </dev/null) || version="does not run"
  new "$candidate" || version="$version, lacks parts of its library"
  seen="$seen $candidate ($version)"
done
words="headway: no Python 3.9 or later on this node"
seen="seen:${seen:- none}"
case ${1-} in
  -infile | -outfile | -upload) ;; # HTCondor's words to a transfer plugin
  *)
    words="$words (exit 80); $seen; use a container with Python, or set HEADWAY_PYTHON"
    echo "$words" >&2
    mkdir -p headway-out && echo "$words" >headway-out/no-python.txt
    exit 80
    ;;
esac
# A plugin runs outside the job's container. People read what its answer says in the hold reason.
words="$words for the transfer plugin"
case $seen in
  *[\"\\]* | *"
"*) ;; # it would have to be quoted
  *) words="$words; $seen" ;;
esac
words="$words; let the job run elsewhere, or in a container with its inputs named in job.toml"
echo "$words" >&2
url= infile=/dev/null outfile=/dev/null
while [ $# -gt 0 ]; do
  case $1 in
    -infile) infile=${2-} ;;
    -outfile) outfile=${2-} ;;
  esac
  shift
done
while IFS= read -r line || [ -n "$line" ]; do
  case $line in *Url\ =\ \"*) url=${line#*Url = \"} url=${url%%\"*} && break ;; esac
done <"$infile"
case $url in *\\*) url= ;; esac
# over the blanks that HTCondor has reserved, which may be all the room there is
echo "[ TransferSuccess = false; TransferUrl = \"$url\"; TransferError = \"$words\" ]" 1<>"$outfile"
exit 11 # as the plugin itself says where another node may do better
