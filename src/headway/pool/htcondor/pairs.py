"""Pairs: a job, and the courier that brings its outputs home, as nodes of a DAG.

Both have the same submit description. Before DAGMan submits a courier it runs `pair.sh`, which
looks at the ticket that came home with the job. A courier that has nothing to bring is left out.
Another one is told where the sandbox is; if it is lost, the courier computes the outputs itself.
After the courier `pair.sh` compares what has arrived with the ticket.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from headway.node.classad import quoted
from headway.node.files import write_atomically
from headway.node.host import HANDED, SANDBOX, SANDBOX_AT, SINCE, TICKET
from headway.node.process import isolated
from headway.node.store.sandboxes import SandboxError
from headway.pool.arrivals import arrival, delivered, ticket_of
from headway.pool.htcondor.dag import FAILED, SKIP, Node

SCRIPT = "pair.sh"
TOLD = "couriers"  # the folder with what each courier is told
NOTHING = f"{TOLD}/nothing"
COURIERS = 2  # more, if what one brought is not what the ticket says
_PROGRAM = "from headway.pool.htcondor.pairs import main; sys.exit(main(sys.argv[1:]))"


def pair(
    run_id: str, job: int, description: str, variables: Mapping[str, str]
) -> tuple[Node, Node]:
    """A job of a run, and its courier.

    Args:
        run_id: The run's id. The names of the nodes begin with a part of it, and the event log
            repeats them: `events.state` tells by them which job a courier belongs to.
        job: The job's number in the run.
        description: The submit description of both, relative to the run folder.
        variables: The macros of the job's row.
    """
    first = Node(
        node_name("job", run_id, job), description, {**variables, "paired": "true", "told": NOTHING}
    )
    courier = Node(
        node_name("courier", run_id, job),
        description,
        {**variables, "paired": "false", "told": f"{TOLD}/{job}"},
        before=f"{SCRIPT} before {job}",
        after=f"{SCRIPT} after {job} $RETURN",
        parents=(first.name,),
        retries=COURIERS,
    )
    return first, courier


def write_files(run: Path) -> None:
    """Write what the DAG of a run needs besides its own text and the description."""
    (run / TOLD).mkdir(0o755, exist_ok=True)
    write_atomically(run / NOTHING, b"# a job that is not the courier of another one\n")
    write_atomically(run / SCRIPT, script_text(run).encode(), 0o755)


def script_text(run: Path) -> str:
    """The text of `pair.sh`.

    If our program cannot run, for example because Python has been replaced, the courier does not
    know of a sandbox. Then it computes what it should have brought.
    """
    return f"""\
#!/bin/sh
# {SCRIPT} before|after JOB [EXIT CODE]: DAGMan runs it around each courier.
{shlex.join([*isolated(_PROGRAM), str(run)])} "$@"
code=$?
case $1,$code in
  before,{SKIP}) exit {SKIP} ;;
  before,0) exit 0 ;;
  before,*) cp {shlex.quote(str(run / NOTHING))} {shlex.quote(str(run / TOLD))}/"$2"; exit 0 ;;
  after,0 | after,1 | after,{FAILED}) exit $code ;;
  *) exit "$3" ;;
esac
"""


def told(sandbox: str, digest: str, at: str, since: int) -> str:
    """The submit lines that make a job the courier of a sandbox."""
    values = {SANDBOX: quoted(sandbox), TICKET: quoted(digest), SANDBOX_AT: quoted(at)}
    values |= {SINCE: str(since), HANDED: "undefined"}
    return "".join(f"MY.{key} = {value}\n" for key, value in values.items())


def main(arguments: list[str]) -> int:
    """What `pair.sh` runs; returns its exit code.

    Args:
        arguments: The run folder, `before` or `after`, the job's number and, after the courier, the
            exit code of its job.
    """
    run, moment, number = Path(arguments[0]), arguments[1], int(arguments[2])
    if moment == "after":
        if int(arguments[3]) != 0:  # the job's own policy has given up, or somebody removed it
            return FAILED
        fault = arrival(run, number)
        if fault:
            sys.stderr.write(f"job {number}: {fault}\n")
        return 1 if fault else 0
    try:
        text = news(run, number)
    except SandboxError:  # nobody knows where the sandbox is: the courier computes
        text = "# the ticket is damaged\n"
    if not text:
        return SKIP
    write_atomically(run / TOLD / str(number), text.encode())
    return 0


def news(run: Path, job: int) -> str:
    """The submit lines for the courier of a job; empty: it has nothing to bring."""
    ticket = ticket_of(run / "jobs" / str(job))
    if ticket is None or delivered(run, job, ticket):
        return ""
    return told(ticket.sandbox, ticket.digest, ticket.at, int(time.time()))


def node_name(kind: str, run_id: str, job: int) -> str:
    """The name of a job's node, or of its courier's; the event log repeats it."""
    return f"{kind}-{run_id[:8]}-{job}"
