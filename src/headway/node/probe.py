"""The probe: can the job run on this node? `examine` gathers facts, and `judge` decides."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time

from headway.node.host import FEDERATIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headway.node.plan import Plan, PlannedInput
    from headway.node.transfer.urls import Name

TIMEOUT = 5.0  # seconds in which a host must answer
ZSTD = (".zst", ".tzst", ".zstd")
_NO_NETWORK = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL)
_NO_GPU = ("", "-1", "none", "void", "nodevfiles", "10000")  # 10000: HTCondor's word for none


class Facts:
    """What the probe has seen of the node."""

    def __init__(self) -> None:
        self.python = tuple(sys.version_info[:3])
        self.scratch_error = ""  # why the job's folder cannot be written
        self.free: int | None = None  # bytes
        self.missing = 0  # bytes of the inputs to fetch
        self.disk: int | None = None  # bytes that the job requested
        self.unreadable = ""  # an archive that this node cannot unpack
        self.gpus_wanted = 0
        self.gpus: int | None = None  # visible; None: unknown
        # input path -> host -> what went wrong, "" if it answered
        self.hosts: dict[str, dict[str, str]] = {}


class ProbeFinding:
    """One finding about the node; `bad`: the job cannot succeed here."""

    def __init__(self, bad: bool, words: str, *, no_network: bool = False) -> None:
        self.bad, self.words = bad, words
        self.no_network = no_network  # no source of any input can be reached from here


def examine(plan: Plan, missing: Sequence[PlannedInput], environment: Mapping[str, str]) -> Facts:
    """Look at the node; takes no longer than the network timeout."""
    facts = Facts()
    facts.scratch_error = _try_scratch()
    facts.missing = sum(
        (each.size if each.keep else min(each.size or 0, each.window or 0)) or 0 for each in missing
    )
    archives = [each for each in missing if each.unpack is not None]
    facts.missing += sum(each.size or 0 for each in archives)  # the content takes at least as much
    packed = [each.path for each in archives if each.arrives_as.lower().endswith(ZSTD)]
    if packed:
        from headway.node.unpack import can_read_zstd

        facts.unreadable = "" if can_read_zstd() else packed[0]
    with contextlib.suppress(OSError):
        room = os.statvfs(os.curdir)
        facts.free = room.f_bavail * room.f_frsize
    facts.disk = plan.disk
    facts.gpus_wanted = plan.gpus
    if plan.gpus:
        facts.gpus = visible_gpus(environment, _gpu_devices())
    facts.hosts = _ask_hosts(missing)
    return facts


def judge(facts: Facts) -> list[ProbeFinding]:
    """Decide what the facts mean; no input or output."""
    bad, notes = [], []
    if facts.python < (3, 9):
        found = ".".join(str(part) for part in facts.python)
        bad.append(f"Python {found} is too old, 3.9 is needed")
    if facts.scratch_error:
        bad.append(f"the job's folder cannot be used: {facts.scratch_error}")
    if facts.free is not None:
        if facts.free < facts.missing:
            bad.append(f"{facts.free} bytes are free, the inputs to fetch need {facts.missing}")
        elif facts.disk is not None and facts.free < facts.disk - facts.missing:
            notes.append(f"{facts.free} bytes are free of the {facts.disk} that the job requested")
    if facts.unreadable:
        bad.append(f"{facts.unreadable} cannot be unpacked: neither zstd nor Python 3.14 is here")
    if facts.gpus_wanted and facts.gpus is not None and facts.gpus < facts.gpus_wanted:
        bad.append(f"{facts.gpus} GPUs are visible, the job needs {facts.gpus_wanted}")
    findings = [ProbeFinding(True, words) for words in bad]
    return findings + [ProbeFinding(False, words) for words in notes] + _judge_network(facts.hosts)


def _judge_network(hosts: Mapping[str, Mapping[str, str]]) -> list[ProbeFinding]:
    silent = {path: answers for path, answers in hosts.items() if all(answers.values())}
    if not silent:
        return []
    faults = [f"{host}: {why}" for answers in silent.values() for host, why in answers.items()]
    words = "; ".join(dict.fromkeys(faults))
    if len(silent) == len(hosts):  # not one input has a source that answers
        words = f"no way out: no source of any input can be reached from here ({words})"
        return [ProbeFinding(True, words, no_network=True)]
    return [ProbeFinding(False, f"some sources do not answer ({words})")]


def visible_gpus(environment: Mapping[str, str], devices: int) -> int:
    """How many GPUs the command will see, from the environment or else the device files."""
    for name in ("CUDA_VISIBLE_DEVICES", "_CONDOR_AssignedGPUs"):
        value = environment.get(name)
        if value is not None:
            items = [item.strip() for item in value.split(",")]
            return len([item for item in items if item.lower() not in _NO_GPU])
    return devices


def _gpu_devices() -> int:
    try:
        names = os.listdir("/dev")
    except OSError:
        return 0
    nvidia = [n for n in names if n.startswith("nvidia") and n[len("nvidia") :].isdigit()]
    return len(nvidia) or (8 if "kfd" in names else 0)  # AMD: one device file for all of them


def _try_scratch() -> str:
    """Why the scratch folder cannot be written; empty if it can."""
    path = ".headway-probe"
    try:
        with open(path, "wb") as file:
            file.write(b"x" * 4096)
        os.unlink(path)
    except OSError as error:
        return "its disk is full" if error.errno == errno.ENOSPC else str(error.strerror)
    return ""


def _ask_hosts(missing: Sequence[PlannedInput]) -> dict[str, dict[str, str]]:
    """Connect to the hosts of all web sources at once."""
    wanted = {
        each.path: [url for url in each.urls if not url.lower().startswith("file:")]
        for each in missing
        if each.urls and not any(url.lower().startswith("file:") for url in each.urls)
    }
    if not wanted:
        return {}
    import threading

    from headway.node.transfer.urls import Route, name

    federations: set[tuple[str, int, bool]] = set()
    keys: dict[str, list[tuple[str, int, bool]]] = {}
    for path, urls in wanted.items():
        for url in urls:
            try:
                named = name(url)
                route = Route(_front_door(named) if named.federated else named.plain)
            except ValueError:
                continue  # stage-in reports it
            key = (*route.first_hop, route.tls and route.proxy is None)
            keys.setdefault(path, []).append(key)
            if named.federated and route.proxy is None:
                federations.add(key)
    answers: dict[tuple[str, int, bool], str] = {}

    def ask(key: tuple[str, int, bool]) -> None:
        words, here = _connect(*key)
        # a federation that is down or slow is not the node's fault, and stage-in waits for it
        answers[key] = words if here or key not in federations else ""

    every = {key for each in keys.values() for key in each}
    threads = [threading.Thread(target=ask, args=(key,), daemon=True) for key in every]
    for thread in threads:
        thread.start()
    end = time.monotonic() + TIMEOUT + 1.0  # looking up a name has no timeout of its own
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    late = f"no answer within {TIMEOUT:.0f} s"
    answers.update(dict.fromkeys(federations - answers.keys(), ""))
    return {
        path: {f"{key[0]}:{key[1]}": answers.get(key, late) for key in each}
        for path, each in keys.items()
    }


def _front_door(named: Name) -> str:
    """The URL of a federation that is asked first."""
    from headway.node.transfer.federation import OSDF

    if named.host:
        return f"https://{named.host}"
    for setting in ("DIRECTOR_URL", "FEDERATION_DIRECTORURL", "FEDERATION_DISCOVERYURL"):
        for prefix in FEDERATIONS:
            value = os.environ.get(f"{prefix}_{setting}")
            if value:
                return value if "://" in value else f"https://{value}"
    return f"https://{OSDF}"


def _connect(host: str, port: int, tls: bool) -> tuple[str, bool]:
    """What went wrong, if anything, and whether this node's network is at fault.

    The certificate is not checked here: stage-in does that.
    """
    import socket

    try:
        with socket.create_connection((host, port), timeout=TIMEOUT) as connection:
            if tls:
                import ssl

                plain = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                plain.check_hostname = False
                plain.verify_mode = ssl.CERT_NONE
                with plain.wrap_socket(connection, server_hostname=host):
                    pass
    except socket.gaierror:
        return "not known to this node's name service", True
    except (socket.timeout, TimeoutError):
        return f"no answer within {TIMEOUT:.0f} s", False
    except OSError as error:
        return str(error.strerror or error), error.errno in _NO_NETWORK
    return "", False
