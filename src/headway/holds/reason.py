"""A hold's reason, split into what all reasons of its kind share and the values of this job.

In the template, paths, hosts, names and numbers are replaced by what they are: `<path>`, `<host>`,
`<n>` …; numbers that say what happened (an HTTP status, an errno, an exit code) stay. A template's
template is the template itself. The reason is untrusted text and may be megabytes long: only its
beginning counts, and no pattern goes back over what it has read.

A policy expression that a reason quotes is not its meaning: most name several limits, and only one
of them was exceeded. `rule` says what an expression is about, if that is only one thing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from headway.text import printable

#: Characters of a reason that are read, and of a template.
LONGEST = 2000
_LONGEST_TEMPLATE = 1200
_LONGEST_VALUE = 500
_LEADING = "errno|status|exit|exited|returned|http|code|subcode|signal|error|user|site|point|file"
_HTTP_WORDS = "page|not|no|forbidden|bad|internal|service|gateway|too|gone|unauthorized"
_PLACEHOLDERS = "url|path|slot|host|user|site|text|id|n"

#: Texts of errno that HTCondor puts in quotes; other quoted text is the job's own.
_ERRNO_WORDS = frozenset(
    {
        "No such file or directory", "Permission denied", "Exec format error", "Text file busy",
        "Input/output error", "Cannot allocate memory", "No space left on device",
        "Stale file handle", "Disk quota exceeded", "Is a directory", "Not a directory",
        "Connection timed out", "Connection refused", "Connection reset by peer",
        "No route to host", "Network is unreachable", "Resource temporarily unavailable",
        "Timer expired",
    }
)  # fmt: skip

_MASK = re.compile(
    rf"""
    (?P<done> <(?:{_PLACEHOLDERS})> )
    # A 404 is another thing than a 503: these digits stay.
  | (?P<keep>
        \b(?i:errno|status|exit|exited|returned|http(?:/[12](?:\.[01])?)?|code|subcode|signal|error)
        (?:[ ](?i:code|status|with|value))? [ :=(]{{1,3}} \d{{1,5}}\b(?![.:/-]\w)
      | \b[45]\d\d\b(?=:?[ ](?:[A-Z][a-z]|(?i:{_HTTP_WORDS})\b))
    )
  | (?P<sinful> <[0-9\[][^<>\s]{{3,400}}> )
  | (?P<url> \b[A-Za-z][A-Za-z0-9+.-]{{0,30}}://[^\s,;|)'"<>]* )
  | (?P<user> (?<=\bby\ user\ )[^\s)<>]+ )
  | (?P<site> (?<=\bsite\ )[^\s)<>]+ )
  | (?P<slot> \b[\w.-]{{1,200}}@[\w-]+(?:[.@][\w-]+)* )
  | (?P<point> (?<=\bpoint\ )(?!while\b|using\b)[\w-]+(?:\.[\w-]+)* )
    # Plain words, as many at once as do not lead to one of the above: most of a reason is that.
  | (?P<words> (?:(?!(?i:{_LEADING})\b)[A-Za-z]{{1,40}}[ ])+ )
  | (?P<text> (?<!\w)'[^'\n]{{0,300}}'(?!\w) | (?<!\w)"[^"\n]{{0,300}}"(?!\w) )
  | (?P<path> (?<![\w.<>/~-])(?:~|\.{{1,2}})?/[^\s,;:|)'"<>]+ | (?<=\bfile\ )[\w-]+(?:\.[\w-]+)+ )
  | (?P<host>
        (?<![\w.-])\d{{1,3}}(?:\.\d{{1,3}}){{3}}(?::\d{{1,5}})?(?![\w.-]) |
        (?<![\w.-])(?:[A-Za-z0-9][\w-]{{0,62}}\.){{2,12}}[A-Za-z]{{2,24}}(?::\d{{1,5}})?(?![\w.-]) )
  | (?P<id> (?<!\w)[0-9a-fA-F]{{8}}[0-9a-fA-F-]*(?!\w) )
  | (?P<n> (?<![A-Za-z_<])\d\w*(?:[.:+-]\w+)* )
    """,
    re.VERBOSE | re.ASCII,
)
_KIND = {"sinful": "host", "point": "host"}
#: Files that HTCondor or the site creates on the node: their names say what failed.
_NODE_FILE = re.compile(
    r"condor_exec\.exe|_condor_std(?:out|err)|singularity|apptainer|docker"
    r"|[\w-]{0,40}job[_-]?wrapper[\w.-]{0,20}",
    re.ASCII,
)

#: HTCondor's text for a rule that was true, and that for a rule of the node without its own text.
_RULE = re.compile(
    r"(The (?:job attribute|system macro) \w{1,60} expression )'(.*)'( evaluated to \w{4,9})\W*\Z"
)
_WANTED = re.compile(r"(.{0,300}\bWANT_HOLD = )(.*)\Z")
_WORD = re.compile(r"(?<![\w.\"])[A-Za-z_]\w{0,100}", re.ASCII)
_QUOTED = re.compile(r'"[^"]{0,1000}"')
#: What the attributes of a rule are about; "": nothing in particular.
_ABOUT = {
    name.lower(): topic
    for topic, names in {
        "memory": "MemoryUsage RequestMemory ResidentSetSize ResidentSetSize_RAW ImageSize Memory "
        "MemoryProvisioned ProportionalSetSizeKb",
        "disk": "DiskUsage DiskUsage_RAW RequestDisk Disk DiskProvisioned",
        "cores": "CpusUsage RequestCpus Cpus CpusProvisioned",
        "time": "JobCurrentStartDate JobStartDate JobCurrentStartExecutingDate RemoteWallClockTime "
        "EnteredCurrentStatus CumulativeSlotTime",
        "starts": "NumJobStarts NumShadowStarts JobRunCount NumShadowExceptions NumHolds "
        "NumSystemHolds NumRestarts",
        "exit": "ExitCode ExitBySignal ExitSignal ExitStatus",
        "": "JobStatus LastJobStatus JobUniverse time CurrentTime ServerTime isUndefined undefined "
        "ifThenElse true false is isnt MY TARGET int floor real",
    }.items()
    for name in names.split()
}
_NOT_RUNNING = re.compile(r"(?i)JobStatus ?={1,2}[?!]?={0,1} ?[013-9]\b")


class Reason(NamedTuple):
    """A reason, parsed; see `parse` for what the values are called."""

    template: str
    values: Mapping[str, str]


@lru_cache(maxsize=32768)
def parse(reason: str) -> Reason:
    """The template of a reason and its values.

    `url`, `path`, `host`, `slot`, `site`, `user`: the first that it names. `text`: the first text
    in quotes. `source`: the cache or origin of a transfer. `protocol`, `status` (HTTP), `errno`,
    `exit` (of a plugin), `plugin`. `limit` and `used`, in the reason's own units, with `unit`.
    `rule`: what a policy expression is about, such as "memory"; empty if it is several things. Of
    a hold by Headway itself: `fault`, what failed, and `pause`, the seconds until the job is
    released by itself.
    """
    text = " ".join(reason[:LONGEST].split())
    ruled = _RULE.match(text) or _WANTED.match(text)
    if ruled:
        return _of_rule(ruled)
    values: dict[str, str] = {}
    masked = _masked(text, values)
    known = _settled(masked)
    for name, pattern in known.patterns:
        match = pattern.search(text)
        if match:
            values[name] = next(group for group in match.groups() if group)[:_LONGEST_VALUE]
            if name in ("limit", "used") and match.lastindex == 2:
                values["unit"] = match[2].lower()
    made = {**known.values, **values}
    if made.get("path", "").rstrip(".") == made.get("plugin", "").rstrip("."):
        made.pop("path", None)  # the plugin is not the file that was moved
    if "url" in made:
        made["url"] = made["url"].rstrip(":.")
    return Reason(known.template, MappingProxyType(made))


def _of_rule(found: re.Match[str]) -> Reason:
    """A reason that quotes an expression, of which only the subject is known."""
    values: dict[str, str] = {}
    template = f"{_masked(found[1], values)} <text>"
    if found.lastindex == 3:
        template += found[3]
    values |= {"text": found[2][:_LONGEST_VALUE], "rule": about(found[2])}
    return Reason(template, MappingProxyType(values))


def about(expression: str) -> str:
    """What a policy expression is about, if it is only one thing.

    Args:
        expression: A ClassAd expression, such as `MemoryUsage > 2000`.

    Returns:
        "memory", "disk", "cores", "time", "starts" or "exit"; empty if it names several of these,
        or something else.
    """
    words = {word.lower() for word in _WORD.findall(_QUOTED.sub("", expression[:LONGEST]))}
    topics = {_ABOUT.get(word, "other") for word in words} - {""}
    # A job that waits for too long has not run for too long.
    if topics == {"time"} and _NOT_RUNNING.search(expression[:LONGEST]):
        return ""
    return topics.pop() if len(topics) == 1 and topics != {"other"} else ""


class _Template(NamedTuple):
    """What all reasons of one template have in common; there are few templates."""

    template: str
    values: Mapping[str, str]
    patterns: tuple[tuple[str, re.Pattern[str]], ...]  # of values that may be in the text


@lru_cache(maxsize=8192)
def _settled(text: str) -> _Template:
    values: dict[str, str] = {}
    for _ in range(4):  # after a value is replaced, the text next to it may read as another one
        masked = _masked(text, values)
        if masked == text:
            break
        text = masked
    lowered = text.lower()
    patterns = tuple((name, pattern) for name, hint, pattern in _VALUES if hint in lowered)
    return _Template(text, values, patterns)


def _masked(text: str, values: dict[str, str]) -> str:
    """The text with placeholders; what they replace goes to the values."""

    def put(match: re.Match[str]) -> str:
        kind = match.lastgroup or "n"
        found = match[0]
        if kind in ("words", "done", "keep"):
            return found
        kind = _KIND.get(kind, kind)
        if kind == "text":
            inner = found[1:-1]
            if not inner or inner in _ERRNO_WORDS:
                return found
            found = inner
            if inner.startswith(("/", "./", "../", "~/")):
                kind = "path"
        if kind not in ("n", "id"):
            values.setdefault(kind, found[:_LONGEST_VALUE])
        if kind == "path":
            name = found[-80:].replace("\\", "/").rpartition("/")[2]
            return f"<path>/{name}" if _NODE_FILE.fullmatch(name) else "<path>"
        return f"<{kind}>"

    return printable(_MASK.sub(put, text))[:_LONGEST_TEMPLATE].strip(" |.")


_HOST = r"([A-Za-z0-9][A-Za-z0-9_.-]{0,200}\.[A-Za-z0-9-]{1,60})"
_STATUS = (
    r"(?i)\b(?:returned|status(?: code)?|http(?:/[12](?:\.[01])?)?|http error|error)[ :=]{1,2}"
    rf"([1-5]\d\d)\b|\b([45]\d\d):? (?:{_HTTP_WORDS})\b"
)
_AMOUNT = r"(\d{1,12}(?:\.\d{1,6})?) ?([kKmMgGtT]i?[bB]|megabytes|kilobytes|gigabytes|bytes)?"

_PLUGIN = r"(?i)\b(?:plugin|from) (/[^\s,;|()'\"]{0,300}plugin[\w.]{0,30})"
_ASKED = r"(?i)\b(?:Get|Head|Propfind) \\?\"https?://" + _HOST
_LIMIT = r"(?i)\b(?:limit|allowed|allocated|duration|maximum)(?: \w+)? of " + _AMOUNT
_USED = r"(?i)\b(?:peak |last measured )?(?:usage|used)[: ]{1,2}(?:of )?" + _AMOUNT
#: The name of a value, a text that the template must contain, and the pattern of the value.
_VALUES = tuple(
    (name, hint, re.compile(pattern, re.ASCII))
    for name, hint, pattern in (
        ("protocol", "using protocol", r"using protocol (\w{1,20})"),
        ("url", "url file = <url>", r"URL file = ([^\s|;)]{1,500})"),
        ("url", "http_proxy=<url> (<url>", r"http_proxy=\S{1,300} \(([^\s)]{1,500})\)"),
        ("status", "4", _STATUS),
        ("status", "5", _STATUS),
        ("errno", "errno", r"(?i)errno[ =:]{1,2}(\d{1,4})"),
        ("exit", "exit", r"(?i)exit(?:ed)?(?: with)?(?: code| status)?[ (:=]{1,2}(\d{1,3})\b"),
        ("plugin", "plugin <path>", _PLUGIN),
        ("plugin", "from <path>", _PLUGIN),
        ("source", "headway:", r"\AHeadway: .{1,450}? from " + _HOST + r"(?::\d{1,5})?[ ,;]"),
        ("fault", "headway:", r"did not arrive: (.{1,500}?); released by itself after \d"),
        ("pause", "released by itself", r"; released by itself after (\d{1,9}) s\Z"),
        ("source", "from ", r"(?i)\bfrom " + _HOST + r":\d{2,5}:"),
        ("source", "<url>", _ASKED),
        ("source", "<text>", _ASKED),
        ("source", "resolve host", r"(?i)could not resolve host:? '?" + _HOST),
        ("source", "connect", r"(?i)(?:failed to connect to|connection to) " + _HOST),
        ("limit", " of ", _LIMIT),
        ("used", "usage", _USED),
        ("used", "used", _USED),
        ("limit", "duration of", r"(?i)allowed \w{1,12} duration of ([0-9+:]{1,20})"),
    )
)


#: A 012 of HTCondor without a reason, or with only the name of a slot; Polars reads it, too.
NOTHING = r"(?i)^\W*(?:reason unspecified|unspecified|error from [^:]{0,200}:?)?\W*$"
_NOTHING = re.compile(NOTHING)


def says_nothing(reason: str) -> bool:
    """Whether a reason says nothing, so that the event before the hold may give the reason."""
    return _NOTHING.search(reason[:_LONGEST_VALUE]) is not None
