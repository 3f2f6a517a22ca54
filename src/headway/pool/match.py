"""Which slots of a pool could ever run a job, and what the others lack.

A job's needs are the terms of the Requirements that HTCondor makes from its submit description.
HTCondor's own ClassAd library evaluates them against all that a slot has, not only against what is
free now. What may change while a job waits, such as a machine's load or the time, rules no slot
out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.spec import Job

SITE = "(TARGET.GLIDEIN_ResourceName ?: TARGET.Machine)"
START = "start"
_FIGURES = ("Cpus", "Memory", "Disk", "GPUs")
_GPU = ("GlobalMemoryMb", "Capability", "MaxSupportedVersion")
_PILOT = (
    "GLIDEIN_ResourceName", "GLIDEIN_Site", "GLIDEIN_Name", "GLIDEIN_Factory",
    "GLIDEIN_Entry_Name", "GLIDEIN_ClusterId", "GLIDEIN_ToDie", "GLIDEIN_MASTER_NAME",
)  # fmt: skip
#: What is asked of the collector besides the names in the expressions.
SLOT_NAMES = (*_FIGURES, *(f"TotalSlot{name}" for name in _FIGURES), *_PILOT, "Machine", "Start")

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'')
_NAMED = re.compile(r"(?:\b(MY|TARGET)\s*\.\s*)?\b([A-Za-z_]\w*)\b(?!\s*\()", re.IGNORECASE)
_WORDS = {"my", "target", "true", "false", "undefined", "error", "is", "isnt"}
_MACRO = re.compile(r"\$\$?[\w]*\(")
# Attributes of a machine that may change from one moment to the next.
_PASSING = re.compile(
    r"\w*LoadAvg|\w*Idle|Clock(?:Min|Day)|\w*Time|State|Activity|CpuBusy|\w*Draining\w*|\w*ToDie"
    r"|\w*ToRetire|Child\w+|Recent\w+|Num[A-Z]\w*|Remote\w+|VirtualMemory|LastHeardFrom",
    re.IGNORECASE,
)
_NOW = re.compile(r"\b(?:time|random|currentTime)\s*\(", re.IGNORECASE)
# Attributes of a job that are not known, or may change, before it is submitted.
_LATER = re.compile(
    r"Owner|User|Acc(?:oun)?t\w*Group\w*|Nice\w*|ClusterId|GlobalJobId|\w*Usage(?:_RAW)?|ImageSize\w*"
    r"|ResidentSetSize\w*|Cmd|Arg\w*|Iwd|Env\w*|x509\w*|QDate|Job[A-Z]\w*|Num[A-Z]\w*|Last[A-Z]\w*"
    r"|MachineAttr\w+|EnteredCurrent\w+|Rank|ConcurrencyLimits|Hold\w+|Exit\w+|Transfer\w+"
    r"|CondorVersion|SubmitVersion|CondorPlatform|HeadwayAvoid\w*|Current\w+|Committed\w+|Cumulative\w+",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class SlotNeed:
    """One term of what a job requires of a slot.

    Attributes:
        key: What a Match calls it.
        where: The key of job.toml that says so.
        expression: The term, with the slot as TARGET.
        amount: The slot's attribute that is compared, where it is a figure.
        asked: The figure that is asked for.
        after: Needs that say it better: where a slot lacks one of them, this one is not counted.
    """

    key: str
    where: str
    expression: str
    amount: str = ""
    asked: float = 0.0
    after: tuple[str, ...] = ()


@dataclass(frozen=True)
class Lacking:
    """Slots that lack the same needs."""

    needs: tuple[str, ...]
    slots: int
    offer: Mapping[str, float] = field(default_factory=dict)  # what the best of them has instead
    fitting: int = 0  # how many of them have as much as that one

    @property
    def without_gpus(self) -> bool:
        """Whether a job that asks for GPUs would get none here."""
        return self.offer.get("gpus") == 0


@dataclass(frozen=True)
class Match:
    """How the slots of a pool match one job."""

    slots: int = 0
    matching: int = 0
    lacking: tuple[Lacking, ...] = ()  # the nearest first: few needs, many slots
    most: Mapping[str, float] = field(default_factory=dict)  # of each figure, at any slot
    sites: tuple[str, ...] = ()  # where the slots are, the largest first
    starts: tuple[str, ...] = ()  # terms of START that refuse the job, the commonest first
    grows: str = ""  # why there may be other slots later
    unknown: str = ""  # why the slots could not be looked at
    transfer_slots: int = 0  # which take couriers alone, and are none of `slots`

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Match:
        """A match as `dataclasses.asdict` and JSON leave it."""
        lacking = (Lacking(**{**each, "needs": tuple(each["needs"])}) for each in facts["lacking"])
        lists = {key: tuple(facts[key]) for key in ("sites", "starts")}
        return cls(**{**facts, **lists, "lacking": tuple(lacking)})

    def ruled_out(self, key: str) -> int:
        """How many slots lack a need."""
        return sum(each.slots for each in self.lacking if key in each.needs)


def requests(job: Job) -> dict[str, int]:
    """What a job asks for, in the units of its ad."""
    wanted, gpus = job.resources, job.resources.gpus
    return {
        "RequestCpus": wanted.cpus,
        "RequestMemory": -(-wanted.memory // 2**20),
        "RequestDisk": -(-wanted.disk // 2**10),
        **({"RequestGPUs": gpus.count} if gpus else {}),
    }


def needs_of(job: Job) -> list[SlotNeed]:
    """What a job requires of a slot, as HTCondor will have it.

    All rows of a table ask for the same.

    Args:
        job: The job as it was described.

    Returns:
        Its needs; START, which is the slot's own, is not among them.
    """
    needs = []
    for attribute, figure in requests(job).items():
        name = attribute.removeprefix("Request")
        key, term = name.lower(), f"(TARGET.{name} ?: 0) >= {attribute}"
        where = "resources.gpus.count" if key == "gpus" else f"resources.{key}"
        needs.append(SlotNeed(key, where, term, name, figure))
    properties = _gpu_properties(job)
    for key, (name, least) in properties.items():
        term = _on_gpus(f"{name} >= {least:g}")
        needs.append(SlotNeed(f"gpus.{key}", f"resources.gpus.{key}", term, f"GPUs_{name}", least))
    if len(properties) > 1:
        every = " && ".join(f"{name} >= {figure:g}" for name, figure in properties.values())
        single = tuple(f"gpus.{key}" for key in properties)
        needs.append(SlotNeed("gpus.all", "resources.gpus", _on_gpus(every), after=single))
    if job.sites.only:
        needs.append(SlotNeed("only", "sites.only", at_sites(job.sites.only)))
    if job.sites.avoid:
        needs.append(SlotNeed("avoid", "sites.avoid", f"!{at_sites(job.sites.avoid)}"))
    for number, term in enumerate(terms(job.requirements) if job.requirements else ()):
        needs.append(SlotNeed(f"requirements {number}", "requirements", term))
    return [*needs, *_platform(job)]


def _on_gpus(term: str) -> str:
    """A term for as many GPUs as are asked for, or as the slot has: another need has the count."""
    wanted = "min({RequestGPUs, TARGET.GPUs ?: 0})"
    return f"{wanted} == 0 || countMatches({term}, TARGET.AvailableGPUs) >= {wanted}"


def at_sites(sites: Iterable[str]) -> str:
    """The term that a slot is at one of these sites."""
    return f"identicalMember({SITE}, {{{site_names(sites)}}})"


def site_names(names: Iterable[str]) -> str:
    """Names of sites, in which there are neither quotes nor backslashes, as ClassAd strings."""
    return ", ".join(f'"{name}"' for name in names)


def _gpu_properties(job: Job) -> dict[str, tuple[str, float]]:
    """What each GPU must have: the attribute and the least figure, by the key of job.toml."""
    gpus, found = job.resources.gpus, {}
    if gpus and gpus.memory is not None:
        found["memory"] = ("GlobalMemoryMb", float(-(-gpus.memory // 2**20)))
    if gpus and gpus.capability is not None:
        found["capability"] = ("Capability", gpus.capability)
    if gpus and gpus.runtime is not None:
        major, _, minor = gpus.runtime.partition(".")
        found["runtime"] = ("MaxSupportedVersion", float(int(major) * 1000 + int(minor or 0) * 10))
    return found


def _platform(job: Job) -> Iterator[SlotNeed]:
    """What HTCondor itself adds for the access point's platform, containers and transfers."""
    own = job.requirements or ""
    if not re.search(r"\bArch\b", own, re.IGNORECASE):
        yield SlotNeed("arch", "requirements", "TARGET.Arch == MY.SubmitArch")
    image = job.container
    if image is None:
        if not re.search(r"\bOpSys", own, re.IGNORECASE):
            yield SlotNeed("opsys", "requirements", "TARGET.OpSys == MY.SubmitOpSys")
        return
    scheme = image.partition("://")[0].lower() if "://" in image else ""
    kind = "HasSIF" if image.endswith(".sif") else "HasSandboxImage"
    kind = "HasDockerURL" if scheme == "docker" else kind
    yield SlotNeed("container", "container", f"TARGET.HasContainer && TARGET.{kind}")
    own_plugins = any("transferplugins" in key.lower().replace("_", "") for key in job.submit)
    if scheme in ("osdf", "stash", "pelican", "http", "https") and not own_plugins:
        methods = "TARGET.HasFileTransferPluginMethods"
        yield SlotNeed("scheme", "container", f'stringListIMember("{scheme}", {methods})')


def job_attributes(job: Job) -> dict[str, str]:
    """The attributes that are known before submit, as expressions; empty: they differ by job."""
    ad = {name: str(figure) for name, figure in requests(job).items()}
    ad |= {"JobUniverse": "5", "JobStatus": "1", "WantIOProxy": "true", "HeadwayRun": ""}
    if job.container is not None:
        ad["WantContainer"] = "true"
    if job.duration is not None:
        ad["JobDurationCategory"] = f'"{job.duration}"'
    for key, value in job.submit.items():
        name = re.match(r"(?:\+|MY\.)(\w+)\Z", key, re.IGNORECASE)
        if name:
            ad[name[1]] = "" if _MACRO.search(value) else value
    return ad


def terms(expression: str) -> list[str]:
    """The parts of an expression that must all hold."""
    text = _without_brackets(expression.strip())
    parts, depth, start, at = [], 0, 0, 0
    while at < len(text):
        quoted = _STRING.match(text, at)
        if quoted:
            at = quoted.end()
            continue
        letter = text[at]
        depth += (letter in "([{") - (letter in ")]}")
        if depth == 0 and (text.startswith("||", at) or _is_choice(text, at)):
            return [text]
        if depth == 0 and text.startswith("&&", at):
            parts.append(text[start:at])
            start = at = at + 2
            continue
        at += 1
    if not parts:
        return [text]
    return [term for part in (*parts, text[start:]) for term in terms(part)]


def _is_choice(text: str, at: int) -> bool:
    """Whether there is a `?` of `a ? b : c`; those of `=?=` and `a ?: b` bind closer than `&&`."""
    return text[at] == "?" and text[at - 1 : at] != "=" and text[at + 1 : at + 2] != ":"


def _without_brackets(text: str) -> str:
    while text.startswith("(") and text.endswith(")"):
        depth = 0
        for at, letter in enumerate(_STRING.sub(lambda quoted: "_" * len(quoted[0]), text)):
            depth += (letter == "(") - (letter == ")")
            if depth == 0 and at < len(text) - 1:
                return text
        text = text[1:-1].strip()
    return text


@lru_cache(maxsize=10_000)
def names_in(expression: str) -> dict[str, str]:
    """The attributes that an expression names, each with `my`, `target` or nothing before it."""
    found = {}
    for scope, name in _NAMED.findall(_STRING.sub('""', expression)):
        if name.lower() not in _WORDS:
            found[name] = scope.lower()
    return found


def match_slots(ad: Any, needs: Sequence[SlotNeed], slots: Iterable[Any]) -> Match:
    """Compare a job with slots.

    Args:
        ad: The job's ad, a ClassAd; an attribute that is an empty string is not known.
        needs: What it requires.
        slots: The slots' ads, without dynamic ones; they are changed to all that a slot has.

    Returns:
        How many match, and what the others lack.
    """
    # The schedd will refuse what is not an expression.
    judged = [
        (need, term)
        for need in needs
        if _lasts(need.expression, ad) and (term := _Term.of(need.expression)) is not None
    ]
    starts = _Starts(ad)
    sites: Counter[str] = Counter()
    figures = [need for need in needs if need.amount]
    most: dict[str, float] = {}
    groups: dict[tuple[str, ...], list[dict[str, float]]] = {}
    grows, matching, count = "", 0, 0
    for slot in slots:
        count += 1
        _set_totals(slot)
        sites[str(slot.get("GLIDEIN_ResourceName") or slot.get("Machine") or "")] += 1
        if not grows and any(name in slot for name in _PILOT):
            grows = "pilots"
        have = {need.key: _figure(slot.get(need.amount)) for need in figures}
        most = {key: max(figure, most.get(key, 0.0)) for key, figure in have.items()}
        lacks: list[str] = []
        for need, term in judged:
            counted = any(key in lacks for key in need.after)
            if not counted and not _holds(term.value(slot, my=ad, target=slot)):
                lacks.append(need.key)
        if starts.refuse(slot):
            lacks.append(START)
        matching += not lacks
        if lacks:
            groups.setdefault(tuple(lacks), []).append(have)
    asked = {need.key: need.asked for need in figures}
    lacking = [_lacking(key, some, asked) for key, some in groups.items()]
    return Match(
        count,
        matching,
        tuple(sorted(lacking, key=_distance)),
        most,
        tuple(site for site, _ in sites.most_common(100)),
        tuple(text for text, _ in starts.refusing.most_common(3)),
        grows,
    )


def _lacking(
    keys: tuple[str, ...], slots: Sequence[Mapping[str, float]], asked: Mapping[str, float]
) -> Lacking:
    """A group of slots, and what the one that comes nearest to all figures has."""
    short = [key for key in keys if key in asked]
    best = max(slots, key=lambda have: min((have[key] / asked[key] for key in short), default=0.0))
    offer = {key: best[key] for key in short}
    fitting = sum(all(have[key] >= least for key, least in offer.items()) for have in slots)
    return Lacking(keys, len(slots), offer, fitting)


def _distance(group: Lacking) -> tuple[bool, int, int]:
    """A sort key: groups with GPUs first, then by few needs and many slots."""
    return group.without_gpus, len(group.needs), -group.slots


def _set_totals(slot: Any) -> None:
    """Set the slot's figures to all that it has, whoever uses it now."""
    for name in _FIGURES:
        total = slot.get(f"TotalSlot{name}")
        if total is not None:
            slot[name] = total
    named = [slot[name] for name in slot if name.startswith("GPUs_")]
    gpus = [value for value in named if isinstance(value, type(slot))]  # each is an ad of its own
    if gpus:
        slot["AvailableGPUs"] = gpus
        for name in _GPU:
            slot[f"GPUs_{name}"] = max(_figure(gpu.get(name)) for gpu in gpus)


class _Term:
    """An expression that is evaluated only once for slots with the same values of its names."""

    def __init__(self, text: str, tree: Any) -> None:
        self.text = text
        self._tree = tree
        self._names = tuple(names_in(text))
        self._known: dict[tuple[Any, ...], Any] = {}

    @classmethod
    def of(cls, text: str) -> _Term | None:
        """None: it is not an expression."""
        import classad2

        try:
            return cls(text, classad2.ExprTree(text))
        except classad2.ClassAdException:
            return None

    def value(self, slot: Any, *, my: Any, target: Any) -> Any:
        """Its value with two ads, one of which is the slot's."""
        values = tuple(slot.get(name) for name in self._names)
        try:
            if values not in self._known:
                self._known[values] = self._tree.eval(my, target)
            return self._known[values]
        except TypeError:  # lists, and expressions, which may name what is not known here
            return self._tree.eval(my, target)


class _Starts:
    """The slots' START expressions, of which a pool has few."""

    def __init__(self, ad: Any) -> None:
        self._ad = ad
        self._terms: dict[tuple[str, frozenset[str]], list[_Term]] = {}
        self.refusing: Counter[str] = Counter()

    def refuse(self, slot: Any) -> bool:
        """Whether a slot can never take the job, as far as anybody can tell."""
        start = slot.get("Start")
        if start is None or isinstance(start, bool):
            return False
        text = str(start)
        own = frozenset(name for name in names_in(text) if name in slot)
        if (text, own) not in self._terms:
            self._terms[text, own] = list(self._lasting(text, own))
        for term in self._terms[text, own]:
            value = term.value(slot, my=slot, target=self._ad)
            # An attribute that is an expression may name others that nobody asked for.
            vague = any(isinstance(slot[name], type(start)) for name in own)
            if value is False or (not _holds(value) and not vague):
                self.refusing[term.text] += 1
                return True
        return False

    def _lasting(self, start: str, own: frozenset[str]) -> Iterator[_Term]:
        """The terms that depend on the job, and on nothing that may change."""
        for text in terms(start):
            named = names_in(text)
            of_job = [n for n, scope in named.items() if scope == "target" or n not in own]
            passing = _NOW.search(text) or any(_PASSING.fullmatch(name) for name in named)
            known = all(_is_known(name, self._ad) for name in of_job)
            term = _Term.of(text) if of_job and known and not passing else None
            if term is not None:
                yield term


def _lasts(term: str, ad: Any) -> bool:
    """Whether a term of a job's own requirements stays the same while the job waits."""
    if _MACRO.search(term) or _NOW.search(term):
        return False
    for name, scope in names_in(term).items():
        if name in ad:
            if ad[name] == "":
                return False
        elif scope == "my" or (scope == "" and _LATER.fullmatch(name)) or _PASSING.fullmatch(name):
            return False
    return True


def _is_known(name: str, ad: Any) -> bool:
    """Whether it is known which value a job will have for this attribute, if any."""
    return ad[name] != "" if name in ad else not _LATER.fullmatch(name)


def _holds(value: Any) -> bool:
    # `undefined` and `error` are numbers to Python, and neither is true.
    return type(value) in (bool, int, float) and bool(value)


def _figure(value: Any) -> float:
    return float(value) if type(value) in (int, float) else 0.0
