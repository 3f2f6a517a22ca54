"""What the checks before submit have found, for people and for programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import groupby

from headway.cli.show import paint, print_json, printable
from headway.pool.preflight.findings import Finding, Severity, worst_first
from headway.text import many

_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.HINT: "cyan"}


def tell(findings: Sequence[Finding], as_json: bool) -> None:
    """Warnings and hints before a submit; errors come with the refusal."""
    lesser = [finding for finding in findings if finding.severity is not Severity.ERROR]
    if as_json:
        for finding in lesser:
            print_json({"type": "finding", **as_dict(finding)})
    else:
        print_findings(lesser)


def print_findings(findings: Sequence[Finding]) -> None:
    """All findings on stderr, the worst first, each with its remedy."""
    for severity, group in groupby(worst_first(findings), key=lambda finding: finding.severity):
        found = list(group)
        title = many(len(found), severity.value)
        print(paint(f"{title}:", _STYLES[severity], sys.stderr), file=sys.stderr)
        for finding in found:
            for number, line in enumerate(str(finding.problem).splitlines()):
                print(f"  {'' if not number else '  '}{printable(line)}", file=sys.stderr)


def as_dict(finding: Finding) -> dict[str, str]:
    return {
        "severity": finding.severity.value,
        "id": finding.id,
        "where": finding.where,
        "what": finding.what,
        "remedy": finding.remedy,
        "line": finding.line,
    }
