"""Masks: an event's words without anybody's names, and still the same figures.

Nothing stays that is not known to be HTCondor's own: lines of figures that have just the form that
HTCondor gives them, attributes that are known by name, and in reasons the words in `phrases`. All
else is left out or gets a pseudonym.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from enum import Enum, auto
from functools import lru_cache
from pathlib import Path

from headway.errors import CollectError
from headway.events.columnar.columns import machine
from headway.events.format import TRANSFER_TEXTS, EventType
from headway.node.classad import parse_value
from headway.node.files import write_atomically

# The attributes that an anonymised event keeps, and what each of them is about.


class Sort(Enum):
    """What the text of an attribute is."""

    SITE = auto()
    SLOT = auto()
    USER = auto()
    HOST = auto()
    REASON = auto()
    TYPE = auto()  # one of HTCondor's own words, a date or a figure


NAMES = {
    **dict.fromkeys(
        ("GLIDEIN_ResourceName", "MachineAttrGLIDEIN_ResourceName0", "GLIDEIN_Site"), Sort.SITE
    ),
    **dict.fromkeys(("RemoteHost", "LastRemoteHost", "SlotName"), Sort.SLOT),
    **dict.fromkeys(("Owner", "User"), Sort.USER),
    **dict.fromkeys(("ExecuteHost", "SubmitHost", "Host"), Sort.HOST),
    **dict.fromkeys(
        ("HoldReason", "ReleaseReason", "RemoveReason", "VacateReason", "Reason"), Sort.REASON
    ),
    **dict.fromkeys(
        (
            *("MyType", "TriggerEventTypeName", "EventTime"),
            *("RunLocalUsage", "RunRemoteUsage", "TotalLocalUsage", "TotalRemoteUsage"),
        ),
        Sort.TYPE,
    ),
}

_EVENTS = """Submit Execute ExecutableError Checkpointed JobEvicted JobTerminated JobImageSize
ShadowException Generic JobAborted JobSuspended JobUnsuspended JobHeld JobReleased NodeExecute
NodeTerminated PostScriptTerminated RemoteError JobDisconnected JobReconnected
JobReconnectFailed GridResourceUp GridResourceDown GridSubmit JobAdInformation JobStatusUnknown
JobStatusKnown JobStageIn JobStageOut AttributeUpdate PreSkip ClusterSubmit ClusterRemove
FactoryPaused FactoryResumed FileTransfer ReserveSpace ReleaseSpace FileComplete FileUsed
FileRemoved DataflowJobSkipped"""
_TRIGGERS = """SUBMIT EXECUTE EXECUTABLE_ERROR CHECKPOINTED JOB_EVICTED JOB_TERMINATED IMAGE_SIZE
SHADOW_EXCEPTION GENERIC JOB_ABORTED JOB_SUSPENDED JOB_UNSUSPENDED JOB_HELD JOB_RELEASED
REMOTE_ERROR JOB_DISCONNECTED JOB_RECONNECTED JOB_RECONNECT_FAILED ATTRIBUTE_UPDATE
FILE_TRANSFER JOB_STATUS_UNKNOWN JOB_STATUS_KNOWN JOB_STAGE_IN JOB_STAGE_OUT CLUSTER_SUBMIT
CLUSTER_REMOVE"""
#: What texts of the sort TYPE can be.
TYPES = frozenset(
    {
        *(f"{name}Event" for name in _EVENTS.split()),
        *(f"ULOG_{name}" for name in _TRIGGERS.split()),
    }
)

_FIGURE_NAMES = """
AllowedExecuteDuration AllowedJobDuration Cluster CommittedTime Cpus CpusProvisioned CpusUsage
CumulativeSuspensionTime Disk DiskProvisioned DiskUsage EventTypeNumber ExitBySignal ExitCode
ExitSignal GLIDEIN_ToDie GLIDEIN_ToRetire GPUs GPUsProvisioned GPUsUsage GpusProvisioned
HoldReasonCode HoldReasonSubCode ImageSize JobCurrentStartDate JobCurrentStartExecutingDate
JobPrio JobStatus JobUniverse LastHoldReasonCode LastHoldReasonSubCode MaxHosts Memory
MemoryProvisioned MemoryUsage MinHosts NumCkpts NumHolds NumJobCompletions NumJobStarts
NumRestarts NumShadowExceptions NumShadowStarts NumSystemHolds Proc ProportionalSetSize
ProportionalSetSizeKb QDate ReceivedBytes RemoteSysCpu RemoteUserCpu RemoteWallClockTime
RequestCpus RequestDisk RequestGPUs RequestGpus RequestMemory ResidentSetSize ReturnValue
SentBytes Size StatsLifetime Subproc TerminatedBySignal TerminatedNormally TimeExecuteUsage
TimeSlotBusyUsage TotalReceivedBytes TotalSentBytes TransferInFinished TransferInQueued
TransferInStarted TransferOutFinished TransferOutQueued TransferOutStarted
TriggerEventTypeNumber Type"""
#: Attributes that are numbers, and say nothing about anybody.
FIGURES = frozenset(_FIGURE_NAMES.split())


# The words of HTCondor, its plugins and Headway: no others stay in anonymised reasons.
#
# A word that is not here may be somebody's name.


_PHRASES = """
Job submitted from host. Job executing on host. Job was evicted. Job terminated. Job was held. Job
was aborted by the user. Job was released. Job was suspended. Job was unsuspended. Job was
checkpointed. Job disconnected, attempting to reconnect. Job reconnected to. Job reconnection
failed. Error from starter on. Warning from starter on. Image size of job updated. Job ad
information event triggered. Shadow exception. Number of processes actually suspended. Job not
properly linked for Condor. Job file not executable. Changing job attribute from to. Setting job
attribute to. Started Finished Entered queue to transfer transferring input output files. Seconds
spent in queue. Transferring to host. Cluster submitted removed. Job Materialization Paused
Resumed. Factory. Grid resource back up, detected down. Job submitted to grid resource. PRE POST
script terminated skipped. DAG Node. Node executing terminated. Job performing stage in out of
files. The job's remote status is unknown, is known again. Reserved space. Released space. Global
JobLog. Dataflow job was skipped. Reason unspecified. No reason. Code Subcode.

Transfer input files failure at execution point using protocol. Transfer output files failure at
access point while sending files to, receiving files from. Details. total failures, first failure.
reading writing from to file. errno. No such file or directory. Permission denied. Exec format
error. Text file busy. Input/output error. I/O. Cannot allocate memory. No space left on device.
Stale file handle. Stale NFS file handle. Disk quota exceeded. Is a directory. Not a directory.
File exists. File too large. Too many open files. Too many levels of symbolic links. Argument list
too long. Bad address. Broken pipe. Device or resource busy. Invalid argument. Connection timed
out, refused, reset by peer, aborted, closed. No route to host. Network is unreachable, down.
Resource temporarily unavailable. Timer expired. Operation not permitted, not supported, timed
out, cancelled, already in progress. Host is down. Name or service not known. Temporary failure in
name resolution. Could not resolve host. Interrupted system call. Read-only file system. Success.
Unknown error. Protocol error. Address already in use. Killed. Failed to transfer files.
FILETRANSFER. non-zero exit from. Error. server returned HTTP response status Not Found,
Forbidden, Unauthorized, Bad Request, Internal Server Error, Service Unavailable, Bad Gateway,
Gateway Timeout, Too Many Requests, Moved, Gone, Conflict, Method Not Allowed, OK, Partial
Content. site. URL file. retriable, retryable, temporary, transient, permanent. no space left at
origin. cache director origin. exited exit code signal. no valid classads in output. did not
produce. plugin plugins failed. Input Output File transfer stalled for seconds. lack of progress.
STARTER SHADOW STARTD SCHEDD at failed to send receive file(s) to from. upload download uploading
downloading fetch fetching put get. timeout time-out timed-out. couldn't could not connect to. SSL
TLS certificate problem verify. token expired, invalid, missing, rejected. authentication
authorization credential credentials. checksum mismatch. size mismatch. truncated. attempts
attempt retries retry tries. after before within during. bytes byte kB KB MB GB TB KiB MiB GiB TiB
B K M G T Mb Gb percent. broken pipe. premature end. failed attempts. curl curl_plugin osdf_plugin
stash_plugin pelican_plugin stashcp pelican osdf htcondor condor. object server client proxy
redirect redirects. range. length. slow speed too low average limit. kbps mbps rate.

The job attribute expression evaluated to TRUE FALSE UNDEFINED ERROR. PeriodicHold PeriodicRelease
PeriodicRemove PeriodicVacate OnExitHold OnExitRemove OnExitHoldReason PeriodicHoldReason
PeriodicHoldSubCode SYSTEM_PERIODIC_HOLD SYSTEM_PERIODIC_RELEASE SYSTEM_PERIODIC_REMOVE
SYSTEM_PERIODIC_VACATE WANT_HOLD PREEMPT JobStatus HoldReasonCode HoldReasonSubCode NumJobStarts
NumShadowStarts NumHolds NumSystemHolds NumJobCompletions EnteredCurrentStatus CurrentTime time
ExitCode ExitBySignal ExitStatus JobRunCount RemoteWallClockTime MemoryUsage ResidentSetSize
ImageSize DiskUsage RequestMemory RequestDisk RequestCpus RequestGpus JobLeaseDuration JobDuration
JobDurationCategory AllowedJobDuration AllowedExecuteDuration ifThenElse isUndefined. system macro
policy periodic on exit hold release remove vacate. The job exceeded allowed job execute duration
of. maximum runtime run-time wall clock walltime. limit reached. ran too long. bad exit. memory
usage exceeded request_memory request_disk request_cpus memory limit. disk usage exceeded
allocated disk. Memory Disk Cpus GPUs usage is over above more than requested allocated
provisioned. peak peaks used using. Job has gone over. cgroup out-of-memory oom killer killed by
the. megabytes gigabytes kilobytes. via condor_rm condor_hold condor_release condor_vacate
condor_vacate_job condor_qedit by user. Python-initiated action. Submitted on hold at user's
request. Spooling input data files. removed released held by DAGMan. parent. DAG Removed because.
Other. Job vacated by schedd, startd, user, admin. Startd was shutdown. Startd was asked to
vacate. Claim was deactivated, vacated, preempted. preempting draining drained. Job not found at
execution machine. Job disconnected too long. JobLeaseDuration seconds expired. Socket between
submit and execute hosts closed unexpectedly. Trying to reconnect. Can not reconnect to,
rescheduling job. startd not found. starter shadow exited died. unexpectedly. machine no longer
available. lost contact. shadow exception. Failed to execute, initiate, start, create, open, read,
write, move, rename, remove, chmod, access, stat, find, load, run, launch, initialize, obtain,
store, locate, parse. directory initial working iwd. executable command interpreter shell script.
user log. standard input output error stdin stdout stderr. container image singularity apptainer
docker pull pulled runtime universe. test failed. cannot mount. sif oci registry. hook prepare
job. account slot user. spool. checkpoint checkpoints. self-checkpointing. restart restarted.
transfer_input_files transfer_output_files should_transfer_files when_to_transfer_output.
MAX_TRANSFER_INPUT_MB MAX_TRANSFER_OUTPUT_MB. larger smaller greater less than. has have had been
be being was were is are it its this that these those not no none and or but if then else because
due for from to into of off on in at as an a the with without within by via per while when where
which who what there here also only more most less least first last next previous again yet still
already never ever all any some each every other another same one two three. can cannot could may
might must should will would do does did done. see please check contact your you we our they their
administrator support. new old current. value values return returned returning normal abnormal
termination own accord. Usr Sys Run Remote Local Usage Total Bytes Sent Received By Job.
Partitionable Resources Usage Request Allocated Assigned. TimeExecute TimeSlotBusy. core file
Corefile in. CPU times. requeued. event events log logs. s sec secs second seconds min mins minute
minutes h hr hour hours d day days ms. idle running completed suspended. claim claimed unclaimed.
match matched requirements rank. negotiator collector central manager. scheduler. pool glidein
pilot. factory frontend. EC2 GAHP grid cloud connection instance. cron. deferral. cuda gpu nvidia
driver. node unfit probe. stage stage-in stage-out. headway agent. network. internet. connection.
reset. protocol version. mode. type. name. id. number. count. max min. option. argument arguments.
environment. variable. undefined. syntax. unexpected. internal. fatal. warning. info. debug. abort
aborted. cancel. canceled cancelled. denied. rejected. refused. unavailable. unreachable. unknown.
unable. unsupported. unspecified. missing. empty. corrupt corrupted. damaged. incomplete. partial.
whole. complete. finish. begin end start stop wait waiting. queue queued. pending. busy. free.
full. over under. up down. now later soon.
"""

WORDS = frozenset(word.lower() for word in re.findall(r"[A-Za-z][A-Za-z0-9_]*", _PHRASES))


# Pseudonyms: the same name always gets the same one, and without the key nobody finds it out.


_KEY_SIZE = 32
_DIGITS = 12
_SLOT = re.compile(r"slot\d{1,6}(?:_\d{1,6})*\Z", re.ASCII)
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30})://([^/?#]*)(.*)\Z", re.DOTALL)
#: Schemes that say how a file moves; any other may be somebody's own word.
_SCHEMES = frozenset(
    {"http", "https", "ftp", "file", "osdf", "stash", "pelican", "root", "roots", "s3", "gs"}
    | {"davs", "dav", "gsiftp", "docker", "oras", "igwn", "htcondor", "data", "box", "gdrive"}
)
#: No such name can be somebody's machine.
_NOWHERE = "anon.invalid"


class Pseudonyms:
    """Names by what they are of; each is made of a keyed hash of the name alone."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.digest = lru_cache(maxsize=1 << 16)(self._digest)

    def _digest(self, name: str) -> str:
        data = name.strip().lower().encode("utf-8", "replace")
        return hmac.new(self._key, data, hashlib.sha256).hexdigest()[:_DIGITS]

    def user(self, name: str) -> str:
        """For a user; the part behind an @ is a host."""
        local, _, domain = name.partition("@")
        return f"user-{self.digest(local)}" + (f"@{self.host(domain)}" if domain else "")

    def site(self, name: str) -> str:
        """For a site."""
        return f"site-{self.digest(name)}"

    def host(self, name: str) -> str:
        """For a machine, by its name or number."""
        return f"host-{self.digest(name.rstrip('.'))}.{_NOWHERE}"

    def address(self, address: str) -> str:
        """For an address like `<192.0.2.1:9618?addrs=…&alias=name>`, or a plain name."""
        host = self.host(machine(address))
        return f"<0.0.0.0:0?addrs=0.0.0.0-0&alias={host}>" if address.startswith("<") else host

    def slot(self, name: str) -> str:
        """For a slot: its number stays, the machine is one."""
        *parts, host = name.split("@")
        kept = [one if _SLOT.match(one) else f"x-{self.digest(one)}" for one in parts]
        return "@".join([*kept, self.host(host)])

    def path(self, path: str) -> str:
        """For a path as a whole: neither its depth nor its ending stays."""
        return f"/path-{self.digest(path)}"

    def url(self, url: str) -> str:
        """For a URL: how it is fetched stays."""
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
    """The key in this file, made on first use for the owner's eyes only; whether it was made."""
    try:
        key = path.read_bytes()
        if len(key) == _KEY_SIZE:
            return key, False
        if key or not may_make:
            raise CollectError(f"{path} is no key", remedy="name the right file with --key")
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
    return _made(path), True


def _made(path: Path) -> bytes:
    key = secrets.token_bytes(_KEY_SIZE)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, key, 0o600, temporary=f".{path.name}.new")
    except OSError as error:
        raise CollectError(
            f"the key {path} cannot be written: {error.strerror}",
            remedy="name another file with --key",
        ) from error
    return key


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
