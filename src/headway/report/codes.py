"""The numbers by which arrays know the words of the report."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headway.events.status import Phase, Status
from headway.report.words import Cause, Outcome, Verdict

Flags = NDArray[np.bool_]
Codes = NDArray[np.uint8]

PHASE = {phase: number for number, phase in enumerate(Phase)}
STATUS = {status: number for number, status in enumerate(Status)}
VERDICT = {verdict: number for number, verdict in enumerate(Verdict)}
CAUSE = {cause: number for number, cause in enumerate(Cause)}
OUTCOME = {outcome: number for number, outcome in enumerate(Outcome)}

#: The phase of a job that has ended.
OVER = len(Phase)
