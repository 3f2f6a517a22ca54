"""The words that fill an entry's sentences: what a reason names, as a person knows it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from headway.events.classad import inert
from headway.holds.reason import Reason
from headway.holds.table import code_name

_LONGEST = 300
_MOST_SAID = 160
#: The name that HTCondor gives a job's executable on the node.
_COPY = "condor_exec.exe"
#: HTCondor's own: a 012 without a reason, and one that only names a slot.
_NOTHING = re.compile(r"\W*(?:reason unspecified|unspecified|error from [^:]{0,200}:?)?\W*", re.I)


def says_nothing(reason: str) -> bool:
    """Whether a reason gives no reason, so that what came before the hold may give it."""
    return _NOTHING.fullmatch(reason[:_LONGEST]) is not None


def words_of(
    code: int, subcode: int, text: str, reason: Reason, facts: Mapping[str, object] | None = None
) -> dict[str, str]:
    """The values for `filled`, made harmless.

    Args:
        code: HTCondor's code.
        subcode: The subcode.
        text: The reason as the log has it.
        reason: The same, parsed.
        facts: What the job's ad says; `Cmd` is the user's own name of the executable.

    Returns:
        The reason's values, with `code`, `said` (the reason itself, in quotes), `name` (of the
        file, without its folder) and `program` (the executable as the user knows it, if known).
    """
    made = {name: inert(value, _LONGEST) for name, value in reason.values.items()}
    made["code"] = code_name(code, subcode)
    said = inert(text, _MOST_SAID).strip(" |.")
    if said:
        made["said"] = f"“{said}”"
    if "path" in made:
        made["name"] = made["path"].rpartition("/")[2] or made["path"]
    if made.get("name", _COPY) == _COPY:
        made.pop("path", None)  # the node's copy is nothing that a user could mend
        own = (facts or {}).get("Cmd")
        made["program"] = inert(own, _LONGEST) if isinstance(own, str) else ""
    else:
        made["program"] = made["path"]
    return made
