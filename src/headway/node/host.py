"""This machine: its names, its processors, and the environment variables for transfers."""

from __future__ import annotations

import contextlib
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class HostInfo:
    """Where this attempt runs, as far as the pool says; an unknown part is None."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        machine = _attributes(
            environment.get("_CONDOR_MACHINE_AD"),
            ("GLIDEIN_ResourceName", "SlotName", "Name", "Machine"),
        )
        job = _attributes(environment.get("_CONDOR_JOB_AD"), ("ClusterId", "ProcId"))
        self.host = machine.get("Machine") or os.uname().nodename
        self.site = environment.get("GLIDEIN_ResourceName") or machine.get("GLIDEIN_ResourceName")
        self.slot = (
            machine.get("Name") or machine.get("SlotName") or environment.get("_CONDOR_SLOT")
        )
        self.cluster_proc = f"{job['ClusterId']}.{job['ProcId']}" if len(job) == 2 else None

    def __str__(self) -> str:
        return f"{self.host} ({self.site})" if self.site else self.host


STORE = "HeadwayStore"  # in a machine's ad: where its store is
TRANSFER_SLOT = "HeadwayTransferSlot"  # in a slot's ad: it takes couriers and nothing else
#: In a job's ad: its sandbox, the digest of its ticket, the startd whose store has it, since when
#: it waits there, by the access point's clock, and the number of the start that left it there.
SANDBOX, TICKET, SANDBOX_AT = "HeadwaySandbox", "HeadwayTicket", "HeadwaySandboxAt"
SINCE, HANDED = "HeadwayDeliverSince", "HeadwayHanded"
#: How many of its attempts have ended well without being its end: they are no tries.
STEPS = "HeadwaySteps"
COURIER = "HeadwayCourier"  # in a job's ad: it runs on transfer slots and nowhere else
TRANSFER_SLOTS = "HeadwayTransferSlots"  # in a slot's ad: how many of them its node has
#: In a machine's ad: the runs that compute there, each as often as inputs are to be brought.
PREFETCH_FOR = "HeadwayPrefetchFor"
#: In a job's ad: the number of its last start, if that brought its inputs to a node and no more;
#: from when on it may do so again; the startd that has them, and until when it waits for that one,
#: by the access point's clock; the checksums of what came, for inputs that declare none.
PREFETCH, PREFETCH_AFTER = "HeadwayPrefetch", "HeadwayPrefetchAfter"
PREFETCHED_AT, PREFETCHED_UNTIL = "HeadwayPrefetchedAt", "HeadwayPrefetchedUntil"
PREFETCHED = "HeadwayPrefetched"
STORE_IN_CONTAINERS = "/headway-store"  # where a site puts it in containers


def store_folder(environment: Mapping[str, str]) -> str | None:
    """Where this node's store is, if it has one."""
    path = machine_attribute(environment, STORE)
    if path and not os.path.isdir(path) and os.path.isdir(STORE_IN_CONTAINERS):
        return STORE_IN_CONTAINERS
    return path


def machine_attribute(environment: Mapping[str, str], name: str) -> str | None:
    """The text of an attribute of this slot's ad."""
    return _attributes(environment.get("_CONDOR_MACHINE_AD"), (name,)).get(name)


def _attributes(path: str | None, names: tuple[str, ...]) -> dict[str, str]:
    """The named attributes of an old-style ClassAd file, which has one attribute in each line."""
    found: dict[str, str] = {}
    with contextlib.suppress(OSError), open(path or "", encoding="utf-8", errors="replace") as file:
        for line in file:
            name, equals, value = line.partition("=")
            if equals and name.strip() in names:
                found[name.strip()] = value.strip().strip('"')
    return found


AUTHORITIES = (
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "X509_CERT_DIR",
)
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
_TOKENS = ("BEARER_TOKEN", "BEARER_TOKEN_FILE")
FEDERATIONS = ("OSDF", "PELICAN", "STASH")
_FEDERATED = (
    "FEDERATION_DISCOVERYURL",
    "FEDERATION_DIRECTORURL",
    "DIRECTOR_URL",
    "NEAREST_CACHE",
    "CLIENT_PREFERREDCACHES",
)
#: The environment variables that control transfers.
TRANSFER_VARIABLES = frozenset(
    (
        *AUTHORITIES,
        *_PROXIES,
        *(name.upper() for name in _PROXIES),
        *_TOKENS,
        "NEAREST_CACHE",
        *(f"{prefix}_{name}" for prefix in FEDERATIONS for name in _FEDERATED),
    )
)


def usable_processors() -> int:
    """How many of the machine's processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
