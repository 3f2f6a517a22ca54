"""The attributes that an anonymised event keeps, and what each of them is about."""

from __future__ import annotations

from enum import Enum, auto


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

_FIGURES = """
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
FIGURES = frozenset(_FIGURES.split())
