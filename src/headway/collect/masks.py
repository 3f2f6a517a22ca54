"""Masks: the text of an event without names, but with the same figures.

Only what is known to be HTCondor's own stays: lines of figures in just the form that HTCondor gives
them, attributes that are known by name, and in reasons the words in `WORDS`. All else is left out
or gets a pseudonym.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from headway.errors import CollectError
from headway.events.columnar.columns import machine
from headway.events.format import COMMON_FILES, COMMON_TEXTS, TRANSFER_TEXTS, CommonStage, EventType
from headway.node.classad import parse_value
from headway.node.files import write_atomically

_EVENTS = """Submit Execute ExecutableError Checkpointed JobEvicted JobTerminated JobImageSize
ShadowException Generic JobAborted JobSuspended JobUnsuspended JobHeld JobReleased NodeExecute
NodeTerminated PostScriptTerminated RemoteError JobDisconnected JobReconnected
JobReconnectFailed GridResourceUp GridResourceDown GridSubmit JobAdInformation JobStatusUnknown
JobStatusKnown JobStageIn JobStageOut AttributeUpdate PreSkip ClusterSubmit ClusterRemove
FactoryPaused FactoryResumed FileTransfer ReserveSpace ReleaseSpace FileComplete FileUsed
FileRemoved DataflowJobSkipped CommonFiles"""
_TRIGGERS = """SUBMIT EXECUTE EXECUTABLE_ERROR CHECKPOINTED JOB_EVICTED JOB_TERMINATED IMAGE_SIZE
SHADOW_EXCEPTION GENERIC JOB_ABORTED JOB_SUSPENDED JOB_UNSUSPENDED JOB_HELD JOB_RELEASED
REMOTE_ERROR JOB_DISCONNECTED JOB_RECONNECTED JOB_RECONNECT_FAILED ATTRIBUTE_UPDATE
FILE_TRANSFER JOB_STATUS_UNKNOWN JOB_STATUS_KNOWN JOB_STAGE_IN JOB_STAGE_OUT CLUSTER_SUBMIT
CLUSTER_REMOVE COMMON_FILES"""
#: HTCondor's names for the types of events.
_TYPES = frozenset(
    {*(f"{name}Event" for name in _EVENTS.split()), *(f"ULOG_{name}" for name in _TRIGGERS.split())}
)

_FIGURE_NAMES = """
AllowedExecuteDuration AllowedJobDuration Cluster CommittedTime CommonFilesMappedTime Cpus
CpusProvisioned CpusUsage CumulativeSuspensionTime Disk DiskProvisioned DiskUsage EventTypeNumber
ExitBySignal ExitCode ExitSignal GLIDEIN_ToDie GLIDEIN_ToRetire GPUs GPUsProvisioned GPUsUsage
GpusProvisioned HoldReasonCode HoldReasonSubCode ImageSize JobCurrentStartDate
JobCurrentStartExecutingDate JobPrio JobStatus JobUniverse LastHoldReasonCode
LastHoldReasonSubCode MaxHosts Memory MemoryProvisioned MemoryUsage MinHosts NumCkpts NumHolds
NumJobCompletions NumJobStarts NumRestarts NumShadowExceptions NumShadowStarts NumSystemHolds
Proc ProportionalSetSize ProportionalSetSizeKb QDate ReceivedBytes RemoteSysCpu RemoteUserCpu
RemoteWallClockTime RequestCpus RequestDisk RequestGPUs RequestGpus RequestMemory ResidentSetSize
ReturnValue SentBytes Size StatsLifetime Subproc TerminatedBySignal TerminatedNormally
TimeExecuteUsage TimeSlotBusyUsage TotalReceivedBytes TotalSentBytes TransferInFinished
TransferInQueued TransferInStarted TransferOutFinished TransferOutQueued TransferOutStarted
TriggerEventTypeNumber Type"""
#: Attributes that are numbers and say nothing about anybody.
_FIGURE_ATTRIBUTES = frozenset(_FIGURE_NAMES.split())


_WORDS = """
a abnormal abort aborted above access accord account action actually ad address admin administrator
after again agent all allocate allocated allowed allowedexecuteduration allowedjobduration already
also an and another any apptainer are argument arguments as asked assigned at attempt attempting
attempts attribute authentication authorization available average b back bad be because been before
begin being between broken busy but by byte bytes cache call can cancel canceled cancelled cannot
central certificate cgroup changing check checkpoint checkpointed checkpointing checkpoints checksum
chmod claim claimed classads client clock closed cloud cluster code collector command complete
completed condor condor_hold condor_qedit condor_release condor_rm condor_vacate condor_vacate_job
conflict connect connection contact container content core corefile corrupt corrupted could couldn
count cpu cpus create credential credentials cron cuda curl curl_plugin current currenttime d dag
dagman damaged data dataflow day days deactivated debug deferral denied details detected device did
died director directory disconnected disk diskusage do docker does done down download downloading
drained draining driver due duration during each ec2 else empty end entered enteredcurrentstatus
environment errno error evaluated event events ever every evicted exceeded exception exec executable
execute executing execution exists exit exitbysignal exitcode exited exitstatus expired expression
factory failed failure failures false fatal fetch fetching file files filetransfer find finish
finished first for forbidden format found free from frontend full g gahp gateway gb get gib
gigabytes glidein global gone gpu gpus greater grid h had handle has have headway held here hold
holdreasoncode holdreasonsubcode hook host hosts hour hours hr htcondor http i id idle if ifthenelse
image imagesize in incomplete info information initial initialize initiate initiated input instance
internal internet interpreter interrupted into invalid is isundefined it its iwd job jobduration
jobdurationcategory jobleaseduration joblog jobruncount jobstatus k kb kbps kib killed killer
kilobytes known lack large larger last later launch least left length less levels limit linked links
list load local locate log logs long longer lost low m machine macro manager many match matched
materialization max max_transfer_input_mb max_transfer_output_mb maximum may mb mbps megabytes
memory memoryusage method mib might min mins minute minutes mismatch missing mode more most mount
move moved ms must name negotiator network never new next nfs no node non none normal not now number
numholds numjobcompletions numjobstarts numshadowstarts numsystemholds nvidia o object obtain oci of
off ok old on one onexithold onexitholdreason onexitremove only oom open operation option or origin
osdf osdf_plugin other our out output over own parent parse partial partitionable paused peak peaks
peer pelican pelican_plugin pending per percent performing periodic periodichold periodicholdreason
periodicholdsubcode periodicrelease periodicremove periodicvacate permanent permission permitted
pilot pipe please plugin plugins point policy pool post pre preempt preempted preempting premature
prepare previous probe problem processes produce progress properly protocol provisioned proxy pull
pulled put python queue queued quota ran range rank rate reached read reading reason receive
received receiving reconnect reconnected reconnection redirect redirects refused registry rejected
release released remote remotewallclocktime remove removed rename request request_cpus request_disk
request_memory requestcpus requestdisk requested requestgpus requestmemory requests requeued
requirements rescheduling reserved reset residentsetsize resolution resolve resource resources
response restart restarted resumed retriable retries retry retryable return returned returning route
run running runtime s same schedd scheduler script sec second seconds secs see self send sending
sent server service setting shadow shell should should_transfer_files shutdown sif signal
singularity site size skipped slot slow smaller socket some soon space speed spent spool spooling
ssl stage stale stalled standard start startd started starter stash_plugin stashcp stat status
stderr stdin stdout still stop store subcode submit submitted success such support supported
suspended symbolic syntax sys system system_periodic_hold system_periodic_release
system_periodic_remove system_periodic_vacate t tb temporarily temporary terminated termination test
text than that the their then there these they this those three tib time timed timeexecute timeout
timer times timeslotbusy tls to token too total transfer transfer_input_files transfer_output_files
transferring transient tries triggered true truncated trying two type unable unauthorized
unavailable unclaimed undefined under unexpected unexpectedly unfit universe unknown unreachable
unspecified unsupported unsuspended up updated upload uploading url usage use used user using usr
vacate vacated valid value values variable verify version via wait waiting wall walltime want_hold
warning was we were what when when_to_transfer_output where which while who whole will with within
without working would write writing yet you your zero"""
#: The words of HTCondor, its plugins and Headway, in lower case. No others stay in reasons: a word
#: that is not here may be somebody's name.
WORDS = frozenset(_WORDS.split())


# Pseudonyms: the same name always gets the same one, and nobody can find the name without the key.


_KEY_SIZE = 32
_DIGITS = 12
_SLOT = re.compile(r"slot\d{1,6}(?:_\d{1,6})*\Z", re.ASCII)
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30})://([^/?#]*)(.*)\Z", re.DOTALL)
#: Schemes that say how a file moves; any other may be somebody's name.
_SCHEMES = frozenset(
    {"http", "https", "ftp", "file", "osdf", "stash", "pelican", "root", "roots", "s3", "gs"}
    | {"davs", "dav", "gsiftp", "docker", "oras", "igwn", "htcondor", "data", "box", "gdrive"}
)
#: No such name can be somebody's machine.
_NOWHERE = "anon.invalid"


class Pseudonyms:
    """Pseudonyms by kind of name; each is made of a keyed hash of the name."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.digest = lru_cache(maxsize=1 << 16)(self._digest)

    def _digest(self, name: str) -> str:
        data = name.strip().lower().encode("utf-8", "replace")
        return hmac.new(self._key, data, hashlib.sha256).hexdigest()[:_DIGITS]

    def user(self, name: str) -> str:
        """For a user; the part after an @ is a host."""
        local, _, domain = name.partition("@")
        return f"user-{self.digest(local)}" + (f"@{self.host(domain)}" if domain else "")

    def site(self, name: str) -> str:
        """For a site."""
        return f"site-{self.digest(name)}"

    def host(self, name: str) -> str:
        """For a machine, by its name or address."""
        return f"host-{self.digest(name.rstrip('.'))}.{_NOWHERE}"

    def address(self, address: str) -> str:
        """For an address like `<192.0.2.1:9618?addrs=…&alias=name>`, or a plain name."""
        host = self.host(machine(address))
        return f"<0.0.0.0:0?addrs=0.0.0.0-0&alias={host}>" if address.startswith("<") else host

    def slot(self, name: str) -> str:
        """For a slot: its number stays, the machine gets a pseudonym."""
        *parts, host = name.split("@")
        masked = [part if _SLOT.match(part) else f"x-{self.digest(part)}" for part in parts]
        return "@".join([*masked, self.host(host)])

    def path(self, path: str) -> str:
        """For a path; neither its depth nor its ending can be seen."""
        return f"/path-{self.digest(path)}"

    def url(self, url: str) -> str:
        """For a URL; its scheme stays."""
        match = _URL.match(url)
        if not match:
            return self.path(url)
        scheme = match[1].lower()
        scheme = scheme if scheme.partition("+")[2] in _SCHEMES or scheme in _SCHEMES else "url"
        scheme = scheme.rpartition("+")[2]
        host = match[2].rpartition("@")[2].partition(":")[0]
        return f"{scheme}://{self.host(host) if host else ''}{self.path(match[3])}"

    def word(self, word: str) -> str:
        """For anything else."""
        return f"w{self.digest(word)}"


def key_of(path: Path, *, may_make: bool) -> tuple[bytes, bool]:
    """The key in this file, and whether it was made now; only its owner can read it."""
    try:
        key = path.read_bytes()
        if len(key) == _KEY_SIZE:
            return key, False
        if key or not may_make:
            raise CollectError(f"{path} is not a key", remedy="name the right file with --key")
        path.unlink()  # left by a process that was killed
    except FileNotFoundError:
        if not may_make:
            raise CollectError(
                f"the key {path} is gone: the same name would get another pseudonym",
                remedy="put it back or name it with --key, or collect into another folder",
            ) from None
    except OSError as error:
        raise CollectError(
            f"the key {path} cannot be read: {error.strerror}", remedy="see to its permissions"
        ) from error
    key = secrets.token_bytes(_KEY_SIZE)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, key, 0o600, temporary=f".{path.name}.new")
    except OSError as error:
        raise CollectError(
            f"the key {path} cannot be written: {error.strerror}",
            remedy="name another file with --key",
        ) from error
    return key, True


MASKED = "masked"
_MEMORY = 1 << 15  # lines, and as many headers
_WORTH_KEEPING = 500  # characters: longer lines rarely come again
#: Characters of a line that are read; the rest of a longer line is left out.
_LONGEST = 8000

#: Lines with figures and no names.
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
#: Events whose lines are a reason; the number of lines stays, because readers count them.
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
_KEPT_AFTER = frozenset({"code", "subcode", "errno", "status", "signal", "exit", "value", "error"})
_PLAIN = frozenset("!\"#$%&'()*+,-./:;<=>?[\\]^_`{|}~")


_Made = TypeVar("_Made")


def _remembered(mask: Callable[[int, str], _Made]) -> Callable[[int, str], _Made]:
    """The same function, with a memory of short texts."""
    known = lru_cache(maxsize=_MEMORY)(mask)
    return lambda number, text: (known if len(text) <= _WORTH_KEEPING else mask)(number, text)


class Masks:
    """Takes names out of events; it remembers lines, because they come again and again."""

    def __init__(self, names: Pseudonyms) -> None:
        self.names = names
        self._header = _remembered(self._mask_header)
        self._line = _remembered(self._mask_line)
        attributes: dict[Callable[[str], str | None], str] = {
            names.site: "GLIDEIN_ResourceName MachineAttrGLIDEIN_ResourceName0 GLIDEIN_Site",
            names.slot: "RemoteHost LastRemoteHost SlotName",
            names.user: "Owner User",
            names.address: "ExecuteHost SubmitHost Host",
            self._attribute_reason: "HoldReason ReleaseReason RemoveReason VacateReason Reason",
            _known_text: "MyType TriggerEventTypeName EventTime"
            " RunLocalUsage RunRemoteUsage TotalLocalUsage TotalRemoteUsage",
        }
        #: How the texts of attributes are masked; all others are left out.
        self._attributes = {name: mask for mask, all in attributes.items() for name in all.split()}

    def event(self, number: int, text: str) -> str:
        """The text after an event's header, without names."""
        header, *lines = text.split("\n")
        masked = (self._line(number, line) for line in lines)
        first = self._header(number, header) or MASKED
        return "\n".join([first, *(line for line in masked if line is not None)])

    def reason(self, reason: str) -> str:
        """A reason with pseudonyms in place of names."""
        before = ["", ""]
        masked = []
        for match in _TOKEN.finditer(reason[:_LONGEST]):
            kind = match.lastgroup or "other"
            word = match[0]
            masked.append(self._token(kind, word, before))
            if kind != "space":
                before = [before[1], word.lower()]
        return "".join(masked)

    def _mask_header(self, number: int, text: str) -> str:
        if _HEADERS.match(text) or text in _STAGES.get(number, ()):
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
        values: dict[str, str] = {}
        for word in words[1:]:
            key, _, value = word.partition("=")
            if key in values:
                continue
            is_figure = key in _AGENT_FIGURES and _AGENT_NUMBER.match(value)
            if is_figure or value in _AGENT_WORDS.get(key, ()):
                values[key] = value
            elif key == "nonce" and value:
                values[key] = self.names.digest(value)
            elif key == "source" and value:
                values[key] = self.names.host(value)
        return " ".join(["headway", *(f"{key}={value}" for key, value in values.items())])

    def _mask_line(self, number: int, line: str) -> str | None:
        """A line of a body; None: it is left out."""
        if not line.strip() or _FIGURES.match(line):
            return line if line.isascii() else ""
        match = _RESOURCE.match(line)
        if match:
            return match[1] + ('"masked"' if match["assigned"] else "")
        if line in _COMMON_LINES:
            return line
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
        mask = self._attributes.get(name)
        if mask is None:
            return line if name in _FIGURE_ATTRIBUTES and _NUMBER.match(raw) else None
        value = parse_value(raw)
        masked = mask(value) if type(value) is str else None
        return None if masked is None else f'{indent}{name}{equals}"{masked}"'

    def _attribute_reason(self, value: str) -> str:
        return self.reason(value).replace("\\", "/").replace('"', "'")

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


_COMMON_LINES = frozenset(f"\t{text}" for text in COMMON_TEXTS.values())
#: Headers that say how far a transfer is.
_STAGES: dict[int, frozenset[str]] = {
    EventType.FILE_TRANSFER: frozenset(TRANSFER_TEXTS.values()),
    EventType.COMMON_FILES: frozenset(
        COMMON_FILES({"Type": stage.value})[0] for stage in CommonStage
    ),
}


def _known_text(value: str) -> str | None:
    """A type of event, a date or a figure; None: anything else."""
    return value if value in _TYPES or _DATE.match(value) or _CPU.match(value) else None


def _rounded(digits: str) -> str:
    """A number by its size: a short one says what happened, a long one may identify somebody."""
    return digits if len(digits) <= 3 else digits[0] + "0" * (len(digits) - 1)
