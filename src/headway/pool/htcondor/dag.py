"""DAGMan: HTCondor's own program that submits jobs in an order and follows them, unattended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

#: The exit code of a PRE script for a node that is not needed.
SKIP = 3
#: The exit code of a POST script for a node that has failed and is not to be tried again.
FAILED = 2
#: What must be on PATH for a DAG to be submitted.
PROGRAM = "condor_dagman"


@dataclass(frozen=True)
class Node:
    """One node of a DAG.

    Attributes:
        name: Its name, which the event log repeats.
        description: The submit description, relative to the folder of the DAG.
        variables: What the description's macros stand for.
        before: What runs before it is submitted; exit code SKIP leaves the node out.
        after: What decides, after the job, whether the node has succeeded.
        parents: The names of the nodes that must have succeeded before.
        retries: How often the node is tried again, unless `after` exits with FAILED.
    """

    name: str
    description: str
    variables: Mapping[str, str] = field(default_factory=dict)
    before: str = ""
    after: str = ""
    parents: Sequence[str] = ()
    retries: int = 0


def dag_text(nodes: Iterable[Node], settings: str) -> str:
    """The text of a DAG.

    Args:
        nodes: Its nodes, in the order in which DAGMan is to submit them.
        settings: The file with DAGMan's configuration.
    """
    lines = [f"CONFIG {settings}"]
    for node in nodes:
        lines.append(f"JOB {node.name} {node.description}")
        if node.variables:
            values = (f'{key}="{_escaped(text)}"' for key, text in node.variables.items())
            lines.append(f"VARS {node.name} {' '.join(values)}")
        if node.before:
            lines.append(f"SCRIPT PRE {node.name} {node.before}")
            lines.append(f"PRE_SKIP {node.name} {SKIP}")
        if node.after:
            lines.append(f"SCRIPT POST {node.name} {node.after}")
        if node.retries:
            lines.append(f"RETRY {node.name} {node.retries} UNLESS-EXIT {FAILED}")
        if node.parents:
            lines.append(f"PARENT {' '.join(node.parents)} CHILD {node.name}")
    return "\n".join([*lines, ""])


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def settings_text(most_idle: int) -> str:
    """DAGMan's configuration for a run."""
    return (
        "DAGMAN_USER_LOG_SCAN_INTERVAL = 1\n"  # seconds, or the least that the pool allows
        "DAGMAN_MAX_SUBMITS_PER_INTERVAL = 500\n"
        f"DAGMAN_MAX_JOBS_IDLE = {most_idle}\n"
        "DAGMAN_MAX_PRE_SCRIPTS = 4\n"
        "DAGMAN_MAX_POST_SCRIPTS = 2\n"
        "DAGMAN_GENERATE_SUBDAG_SUBMITS = False\n"
    )
