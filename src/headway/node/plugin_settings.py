"""What a plugin is told: by the job's ad, by the machine's, and by the administrator.

The job's own environment never reaches a plugin, so that a job speaks through attributes
(`My.HeadwayPatience = 60` in a submit file):

HeadwayConnections   connections at once, over all files (4)
HeadwayPerSource     connections to one server at once (2)
HeadwayPatience      seconds without a byte from anywhere before a file is given up (180)
HeadwayGrace         seconds for which every source must say 404 before it is believed (10)
HeadwayChecksums     "train.tar=sha256:…, test.tar=md5:…": what files must be, by their name
HeadwayOverwrite     false: an upload never replaces what lies there already (true)
HeadwayStallTimeout  the starter's STARTER_FILE_XFER_STALL_TIMEOUT in seconds, which no plugin can
                     see; 0: it does not cut. In the machine's ad (STARTD_ATTRS) or as the
                     environment variable HEADWAY_STALL_TIMEOUT it goes before the job's word
"""

from __future__ import annotations

import os
import re

from headway.node.ads import read_old_ad

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from headway.node.ads import Ad

SHARE = 0.8  # of the starter's time-out, after which the plugin stops by itself
_CUT = 3600.0  # HTCondor's own default
_LIFETIME = 72000.0  # MAX_FILE_TRANSFER_PLUGIN_LIFETIME, also HTCondor's own default
# From this version on the starter sees that a silent plugin is alive: only its lifetime ends it.
_WATCHFUL = (25, 2, 1)
_VERSION = re.compile(r"CondorVersion:\s+([0-9]+)\.([0-9]+)\.([0-9]+)")
_CHECKSUM = re.compile(r"([^=,\s]+)=((?:sha256|md5|adler32|crc32c):[0-9A-Fa-f]+)\Z")


class Settings:
    """How to go about it; what is written wrongly is told in `notes`, and passed over."""

    def __init__(self, job: Ad, machine: Ad, environment: Mapping[str, str]) -> None:
        self.notes: list[str] = []
        self.connections = int(self._number(job, "HeadwayConnections", 4, 1, 16))
        self.per_source = int(self._number(job, "HeadwayPerSource", 2, 1, 8))
        self.patience = self._number(job, "HeadwayPatience", 180, 1, 86400)
        self.grace = self._number(job, "HeadwayGrace", 10, 0, 86400)
        self.overwrite = job.get("headwayoverwrite") is not False
        self.checksums = self._checksums(job.get("headwaychecksums"))
        listed = job.get("headwayinputs")  # of a wrapped program: what the agent stages in
        parts = listed.split(",") if isinstance(listed, str) else []
        self.inputs = [part.strip() for part in parts if part.strip()]
        self.limit = self._limit(job, machine, environment)  # seconds in all; None: as many as need

    def _limit(self, job: Ad, machine: Ad, environment: Mapping[str, str]) -> float | None:
        told: Ad = {}
        said = environment.get("HEADWAY_STALL_TIMEOUT", "")
        for ad in (job, machine, {"headwaystalltimeout": _as_number(said)} if said else {}):
            told.update({k: v for k, v in ad.items() if k == "headwaystalltimeout"})
        seconds = self._number(told, "HeadwayStallTimeout", _usual_cut(machine), 0, 1e7)
        return seconds * SHARE if seconds else None

    def _number(self, ad: Ad, name: str, usual: float, least: float, most: float) -> float:
        value = ad.get(name.lower())
        if value is None:
            return usual
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.notes.append(f"{name} is no number; {usual:g} is used")
            return usual
        if not least <= value <= most:
            self.notes.append(f"{name} is not between {least:g} and {most:g}; {usual:g} is used")
            return usual
        return value

    def _checksums(self, text: object) -> dict[str, str]:
        found = {}
        for part in re.split(r"[,\s]+", text) if isinstance(text, str) else []:
            match = _CHECKSUM.match(part)
            if match:
                found[match[1]] = match[2].lower()
            elif part:
                self.notes.append("HeadwayChecksums holds something that is no NAME=algorithm:hex")
        return found


def read_settings(folder: str, environment: Mapping[str, str]) -> Settings:
    """The settings of a plugin whose input file lies in `folder`, the job's own."""
    job = _ad_in(environment.get("_CONDOR_JOB_AD") or os.path.join(folder, ".job.ad"))
    machine = _ad_in(environment.get("_CONDOR_MACHINE_AD") or os.path.join(folder, ".machine.ad"))
    return Settings(job, machine, environment)


def _ad_in(path: str) -> Ad:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return read_old_ad(file.read(4 << 20))
    except (OSError, ValueError):
        return {}


def _as_number(text: str) -> object:
    try:
        return float(text)
    except ValueError:
        return text


def _usual_cut(machine: Ad) -> float:
    """After how many seconds this starter would cut the transfer, left to itself."""
    version = _VERSION.search(str(machine.get("condorversion", "")))
    if version and tuple(map(int, version.groups())) >= _WATCHFUL:
        return _LIFETIME
    return _CUT
