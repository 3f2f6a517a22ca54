"""Masks: an event's words without anybody's names, and still the same figures.

Nothing stays that is not known to be HTCondor's own: lines of figures that have just the form that
HTCondor gives them, attributes that are known by name, and in reasons the words in `phrases`. All
else is left out or gets a pseudonym.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from headway.collect.attributes import FIGURES, NAMES, TYPES, Sort
from headway.collect.phrases import WORDS
from headway.collect.pseudonyms import Pseudonyms
from headway.events.classad import parse_value
from headway.events.event import TRANSFER_TEXTS, EventType

MASKED = "masked"
_MEMORY = 1 << 16
#: Characters of a line that are looked at; the rest of a longer one is left out.
_LONGEST = 8000

#: Lines that hold figures and no names.
_FIGURES = re.compile(
    r"\t(?:"
    r"\([01]\) (?:Normal termination \(return value -?\d{1,10}\)"
    r"|Abnormal termination \(signal -?\d{1,10}\)|No core file|CPU times"
    r"|Job was (?:not )?checkpointed\.?|Job terminated and was requeued)"
    r"|\t?Usr \d{1,9} \d\d:\d\d:\d\d, Sys \d{1,9} \d\d:\d\d:\d\d  -  "
    r"(?:Run|Total) (?:Remote|Local) Usage"
    r"|\d{1,18}(?:\.\d{1,6})?  -  (?:Run|Total) Bytes (?:Sent|Received) By (?:Job|Node)"
    r"|\d{1,18}  -  (?:MemoryUsage|ResidentSetSize|ProportionalSetSize) of job \([MK]B\)"
    r"|Partitionable Resources : {1,4}Usage {1,2}Request {0,2}Allocated(?: Assigned)? ?"
    r"|Code -?\d{1,10} Subcode -?\d{1,10}"
    r"|Seconds spent in queue: \d{1,10}"
    r"|Job terminated (?:of its own accord|by the startd|by the schedd|by the shadow)"
    r" at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ(?: with (?:exit-code|signal) -?\d{1,10})?\.?"
    r"|Number of processes actually suspended: \d{1,6}"
    r")\Z",
    re.ASCII,
)
_RESOURCE = re.compile(
    r"(\t   (?:Cpus|Disk \(KB\)|GPUs|Memory \(MB\)|TimeExecute \(s\)|TimeSlotBusy \(s\)|Gpus)"
    r" *:[\d .]*)(?P<assigned>\S.*)?\Z",
    re.ASCII | re.DOTALL,
)
_ATTRIBUTE = re.compile(r"(\s*)([A-Za-z_]\w*)(\s*=\s*)(.*)\Z", re.ASCII | re.DOTALL)
_NUMBER = re.compile(
    r"(?:-?\d{1,19}(?:\.\d{1,20})?(?:[eE][+-]?\d{1,3})?|true|false|undefined)\Z", re.ASCII
)
_DATE = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,6})?Z?\Z", re.ASCII)
_CPU = re.compile(r"Usr \d{1,9} \d\d:\d\d:\d\d, Sys \d{1,9} \d\d:\d\d:\d\d\Z", re.ASCII)

_HEADERS = re.compile(
    r"(?:Job was (?:evicted\. Code -?\d{1,10} Subcode -?\d{1,10}|evicted\.|held\.|released\."
    r"|aborted(?: by the user)?\.|suspended\.|unsuspended\.|checkpointed\.)"
    r"|Job terminated\.|Image size of job updated: \d{1,18}|Shadow exception!"
    r"|Job disconnected, attempting to reconnect|Job reconnection failed"
    r"|Job ad information event triggered\.|Cluster (?:submitted|removed)"
    r"|(?:PRE|POST) [Ss]cript terminated\.?|Job Materialization (?:Paused|Resumed)"
    r"|Dataflow job was skipped\.?)\Z",
    re.ASCII,
)
#: Events whose lines are a reason; their number stays as it is, since readers count them.
_WITH_REASON = frozenset({2, 4, 7, 9, 12, 13, 21, 22, 23, 24, 29, 36, 37, 38, 46})
_WITH_ATTRIBUTES = frozenset({EventType.EXECUTE, EventType.AD_INFORMATION})
_POOL_HEADER = re.compile(r"Global JobLog: ctime=(\d{1,12}) .*?sequence=(\d{1,9}) ", re.ASCII)
_AGENT_WORDS = {
    "phase": frozenset({"check", "stage-in", "run", "stage-out", "done"}),
    "state": frozenset({"begin", "progress", "arrived", "end"}),
}
_AGENT_FIGURES = frozenset({"t", "exit", "bytes", "seconds", "ok", "stalls", "total", "segment"})
_AGENT_NUMBER = re.compile(r"-?\d{1,18}(?:\.\d{1,6})?\Z", re.ASCII)

_TOKEN = re.compile(
    r"""
    (?P<url> [A-Za-z][A-Za-z0-9+.-]{0,30}://[^\s,;|)'"<>]* )
  | (?P<sinful> <[^<>\s]{3,400}> )
  | (?P<quoted> (?<!\w)'[^'\n]{0,1000}'(?!\w) | (?<!\w)"[^"\n]{0,1000}"(?!\w) )
  | (?P<at> [^\s,;|()'"<>]+@[^\s,;|()'"<>]* )
  | (?P<path> [^\s,;|()'"<>=]*[/\\][^\s,;|()'"<>]* )
  | (?P<clock> (?<![\w:.])(?:\d{1,4}\+)?\d{1,4}:\d\d(?::\d\d)?(?![\w:.]) )
  | (?P<day> (?<![\w-])\d{4}-\d\d-\d\d(?![\w-]) )
  | (?P<ip6> (?=[0-9A-Fa-f]*(?:::|:[0-9A-Fa-f]*:[0-9A-Fa-f]*:))[0-9A-Fa-f:.]+(?:%\w+)? )
  | (?P<dotted> \w[\w-]*(?:\.[\w-]+)+ )
  | (?P<run> \w+(?:-\w+)* )
  | (?P<space> [ \t]+ )
  | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_QUANTITY = re.compile(r"(\d{1,18})([A-Za-z]{1,3})?\Z", re.ASCII)
_UNITS = frozenset(
    {"s", "ms", "m", "min", "sec", "h", "d"}
    | {"b", "k", "kb", "mb", "gb", "tb", "kib", "mib", "gib", "tib"}
)
_DECIMAL = re.compile(r"\d{1,18}\.\d{1,18}\Z", re.ASCII)
_IP = re.compile(r"\d{1,3}(?:[.-]\d{1,3}){3}\Z", re.ASCII)
_SLOT = re.compile(r"slot\d{1,6}(?:_\d{1,6})*\Z", re.ASCII)
_KEPT_AFTER = frozenset({"code", "subcode", "errno", "status", "signal", "exit", "value", "error"})
_PLAIN = frozenset("!\"#$%&'()*+,-./:;<=>?[\\]^_`{|}~")


class Masks:
    """Takes names out of events; lines come again and again, so it remembers them."""

    def __init__(self, names: Pseudonyms) -> None:
        self.names = names
        self._known: dict[tuple[int, str], str | None] = {}

    def event(self, number: int, text: str) -> str:
        """What follows an event's header, without names."""
        header, *lines = text.split("\n")
        found = [self._remembered(-1 - number, header, self._header) or MASKED]
        found += [
            masked
            for line in lines
            if (masked := self._remembered(number, line, self._line)) is not None
        ]
        return "\n".join(found)

    def reason(self, reason: str) -> str:
        """A reason with pseudonyms in the places of its values."""
        before = ["", ""]
        found = []
        for match in _TOKEN.finditer(reason[:_LONGEST]):
            kind = match.lastgroup or "other"
            word = match[0]
            found.append(self._token(kind, word, before))
            if kind != "space":
                before = [before[1], word.lower()]
        return "".join(found)

    def _remembered(
        self, number: int, line: str, make: Callable[[int, str], str | None]
    ) -> str | None:
        key = (number, line)
        if key in self._known:
            return self._known[key]
        if len(self._known) >= _MEMORY:
            self._known.clear()
        made = self._known[key] = make(number, line)
        return made

    def _header(self, number: int, text: str) -> str:
        number = -1 - number
        if _HEADERS.match(text) or (number == EventType.FILE_TRANSFER and text in _TRANSFERS):
            return text
        if number == EventType.GENERIC:
            return self._generic(text)
        if number == EventType.ATTRIBUTE_UPDATE:
            return f"Changing job attribute {MASKED}"
        before, host, address = text.partition("host: ")
        if host and number in (0, 1, 14):
            return self.reason(before) + host + self.names.address(address.strip())
        before, on, slot = text.partition(" on ")
        if on and number == EventType.REMOTE_ERROR:
            colon = ":" if slot.rstrip().endswith(":") else ""
            return self.reason(before) + on + self.names.slot(slot.rstrip(": ").strip()) + colon
        return self.reason(text) if number in _WITH_REASON else MASKED

    def _generic(self, text: str) -> str:
        match = _POOL_HEADER.match(text)
        if match:
            return f"Global JobLog: ctime={match[1]} id={MASKED} sequence={match[2]} "
        words = text.split()
        if not words or words[0] != "headway":
            return MASKED
        kept: dict[str, str] = {}
        for word in words[1:]:
            key, _, value = word.partition("=")
            if key in kept:
                continue
            if key == "nonce" and value:
                kept[key] = self.names.digest(value)
            elif value in _AGENT_WORDS.get(key, ()) or (
                key in _AGENT_FIGURES and _AGENT_NUMBER.match(value)
            ):
                kept[key] = value
            elif key == "source" and value:
                kept[key] = self.names.host(value)
        return " ".join(["headway", *(f"{key}={value}" for key, value in kept.items())])

    def _line(self, number: int, line: str) -> str | None:
        """A line of a body; None: it is left out."""
        if not line.strip() or _FIGURES.match(line):
            return line if line.isascii() else ""
        match = _RESOURCE.match(line)
        if match:
            return match[1] + ('"masked"' if match["assigned"] else "")
        if line.startswith("\tTransferring to host: "):
            return "\tTransferring to host: " + self.names.address(line[23:].strip())
        if line.startswith("\tSlotName: "):
            return "\tSlotName: " + self.names.slot(line[11:].strip().strip('"'))
        if number in _WITH_ATTRIBUTES:
            return self._attribute(line)
        if number not in _WITH_REASON:
            return None
        indent = line[: len(line) - len(line.lstrip())]
        return indent + self.reason(line.strip())

    def _attribute(self, line: str) -> str | None:
        match = _ATTRIBUTE.match(line)
        if not match:
            return None
        indent, name, equals, raw = match.groups()
        raw = raw.strip()
        sort = NAMES.get(name)
        if sort is None:
            return line if name in FIGURES and _NUMBER.match(raw) else None
        value = parse_value(raw)
        masked = self._value(sort, value) if type(value) is str else None
        return None if masked is None else f'{indent}{name}{equals}"{masked}"'

    def _value(self, sort: Sort, value: str) -> str | None:
        names = self.names
        if sort is Sort.SITE:
            return names.site(value)
        if sort is Sort.SLOT:
            return names.slot(value)
        if sort is Sort.USER:
            return names.user(value)
        if sort is Sort.HOST:
            return names.address(value)
        if sort is Sort.REASON:
            return self.reason(value).replace("\\", "/").replace('"', "'")
        return value if value in TYPES or _DATE.match(value) or _CPU.match(value) else None

    def _token(self, kind: str, word: str, before: list[str]) -> str:
        names = self.names
        if kind in ("clock", "day", "space"):
            return word
        if kind == "other":
            return word if word in _PLAIN else "?"
        if kind == "quoted":
            return self._quoted(word)
        if kind == "sinful":
            return names.address(word)
        stem = word.rstrip(".:!?")
        end = word[len(stem) :]
        if kind == "url":
            return names.url(stem) + end
        if kind == "at":
            slot = _SLOT.match(stem.partition("@")[0])
            return (names.slot(stem) if slot else names.user(stem)) + end
        if kind == "path":
            words = re.split(r"[/\\]", stem)
            own = all(one.lower() in WORDS for one in words) and word[0] not in "/\\"
            return word if own else names.path(stem) + end
        if kind == "ip6":
            colons = not word.strip(":")
            return word if colons else names.host(stem.strip("[]")) + end
        if before[1] == "site":
            return names.site(word)
        if before == ["by", "user"]:
            return names.user(word)
        if before[1] == "point" and word.lower() not in WORDS:
            return names.host(word)
        return self._word(kind, word, before)

    def _quoted(self, word: str) -> str:
        inner = word[1:-1]
        plain = all(one.lower() in WORDS for one in re.findall(r"\w+", inner))
        if (plain and inner.isascii()) or "()" in inner or "==" in inner:
            return word[0] + self.reason(inner) + word[-1]
        if re.match(r"[/~.]{1,2}/?\S+\Z", inner):
            return word[0] + self.names.path(inner) + word[-1]
        return f"{word[0]}text-{self.names.digest(inner)}{word[-1]}"

    def _word(self, kind: str, word: str, before: list[str]) -> str:
        if word.lower() in WORDS or _SLOT.match(word):
            return word
        if _IP.match(word):
            return self.names.host(word)
        if kind == "dotted":
            if _DECIMAL.match(word):
                whole, _, part = word.partition(".")
                return f"{_rounded(whole)}.{part[0]}"
            if word.count(".") == 1:
                return f"file-{self.names.digest(word)}.x"
            return self.names.host(word)
        match = _QUANTITY.match(word)
        if match and (match[2] is None or match[2].lower() in _UNITS):
            kept = before[1] in _KEPT_AFTER and len(match[1]) <= 5
            return (match[1] if kept else _rounded(match[1])) + (match[2] or "")
        if "-" in word and all(
            one.lower() in WORDS or (one.isdigit() and len(one) < 3) for one in word.split("-")
        ):
            return word
        return self.names.word(word)


_TRANSFERS = frozenset(TRANSFER_TEXTS.values())


def _rounded(digits: str) -> str:
    """A number in its size: what is short says what happened, what is long may be somebody's."""
    return digits if len(digits) <= 3 else digits[0] + "0" * (len(digits) - 1)
