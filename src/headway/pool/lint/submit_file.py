"""Submit descriptions as HTCondor reads them: statements, and the lines of each."""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Literal

from headway.errors import HeadwayError
from headway.text import closest

_QUEUE = re.compile(r"queue(?:\s|\Z)", re.I)
_HEREDOC = re.compile(r"(?P<key>\S+?)\s*@=(?P<tag>\w+)\s*\Z")
_ASSIGNMENT = re.compile(r"(?P<key>\+?[A-Za-z_$][\w.$()]*|\d\w*)\s*=(?P<value>.*)\Z", re.S)
_BRANCH = re.compile(r"(if|elif|else|endif)(?:\s|\Z)", re.I)
_OTHER = re.compile(r"(include|use|error|warning)(?:\s|:|\Z)", re.I)
_OPEN_LIST = re.compile(r".*\(([^)]*)\Z", re.S)
_REFERENCE = re.compile(r"\$\(([A-Za-z_][\w.]*)(?::([^()]*))?\)")

#: `queue a, b from …`: what stands before, which of the three words, and what follows.
QUEUE_ITEMS = re.compile(
    r"(?P<before>.*?)(?:^|(?<=[\s,]))(?P<how>in|from|matching)\b(?P<rest>.*)\Z", re.I
)
UNCLOSED = "unclosed"  # the key of an `@=tag` that runs to the end of the file

# Attributes of the job ad that are submit commands only with a `+` (`+Out = …`). Without it they
# are a macro of the file, or another command (transfer_output = true).
_AS_ATTRIBUTES = {
    "in": "input",
    "out": "output",
    "err": "error",
    "transferinput": "transferinputfiles",
    "transferoutput": "transferoutputfiles",
}
# Other names for submit commands: older ones, and attributes of the job ad.
_ALIASES = {
    "userlog": "log",
    "cmd": "executable",
    "args": "arguments",
    "arguments2": "arguments",
    "stdin": "input",
    "stdout": "output",
    "stderr": "error",
    "env": "environment",
    "environment2": "environment",
    "jobmaxretries": "maxretries",
    "ulogexecuteeventattrs": "ulogexecuteattrs",
    "userlogexecuteeventattrs": "ulogexecuteattrs",
    "jobiwd": "initialdir",
    "iwd": "initialdir",
}

# Beginnings of keys that only submit descriptions have: one of them is enough if there is no
# `queue`, which may come from the command line.
_TELLING = (
    *("executable", "universe", "containerimage", "dockerimage", "shouldtransfer"),
    *("requestcpus", "requestmemory", "requestdisk", "requestgpus"),
    *("transferinput", "transferoutput"),
)


#: An assignment; `queue`; `if`, `elif`, `else` or `endif`; `include`, `use` and the like, or a line
#: that condor_submit cannot read; a comment or an empty line.
StatementKind = Literal["assign", "queue", "branch", "other", "nothing"]


@dataclass(frozen=True)
class Statement:
    """One statement and its lines, counted from 1; `value` with continuations joined."""

    kind: StatementKind
    first: int
    last: int
    key: str = ""
    value: str = ""
    within: int = 0  # how many `if`s are open around it
    lines: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The key without regard to case, underscores, `+` and `MY.`."""
        return canonical(self.key)

    @property
    def text(self) -> str:
        """Its lines as one, without comments in between."""
        lines = [line.strip() for line in self.lines]
        lines = [line for line in lines if line and not (line.startswith("#") and len(lines) > 1)]
        return " ".join(line.removesuffix("\\").rstrip() for line in lines)

    @property
    def variables(self) -> list[str]:
        """The names that `queue a, b from …` gives each job a value for."""
        match = QUEUE_ITEMS.match(self.value) if self.kind == "queue" else None
        return re.findall(r"[A-Za-z_]\w*", match["before"]) if match else []


@dataclass(frozen=True)
class SubmitFile:
    """A submit description; `lines` put together are the file, byte for byte."""

    lines: tuple[str, ...]
    statements: tuple[Statement, ...]

    @property
    def first_queue(self) -> Statement | None:
        return next((s for s in self.statements if s.kind == "queue"), None)

    @property
    def includes(self) -> bool:
        """Whether keys may come from elsewhere (`include`, `use`)."""
        return any(s.kind == "other" and s.key in ("include", "use") for s in self.statements)

    def assignments(self, key: str, *, before: int | None = None) -> list[Statement]:
        """The statements that set `key`, under any of its names, before a line of the file."""
        name = canonical(key)
        places = (s for s in self.statements if s.kind == "assign" and s.name == name)
        return [place for place in places if before is None or place.last < before]

    def last(self, key: str) -> Statement | None:
        """The assignment of a key that is in effect at the first `queue`."""
        queue = self.first_queue
        found = self.assignments(key, before=queue.first if queue else None)
        return found[-1] if found else None

    def value(self, key: str, default: str = "") -> str:
        """The value of `key` at the first `queue`, with the file's own macros filled in."""
        statement = self.last(key)
        return self.expand(statement.value).strip() if statement else default

    def expand(self, text: str, depth: int = 8) -> str:
        """`text` with each `$(name)` that the file sets; others stay, as `$(Process)` does."""
        if depth == 0 or "$(" not in text:
            return text

        def filled(match: re.Match[str]) -> str:
            value = self._macro(match[1].lower())
            if value is None:
                return match[0] if match[2] is None else match[2]
            return match[0] if f"$({match[1]}".lower() in value.lower() else value

        expanded = _REFERENCE.sub(filled, text)
        return expanded if expanded == text else self.expand(expanded, depth - 1)

    def _macro(self, name: str) -> str | None:
        """A macro by its exact name: `+Foo` does not set `$(Foo)`."""
        before = takewhile(lambda statement: statement.kind != "queue", self.statements)
        values = [s.value for s in before if s.kind == "assign" and s.key.lower() == name]
        return values[-1] if values else None


def canonical(key: str) -> str:
    """`WhenToTransferOutput`, `when_to_transfer_output`, `MY.…` and `+…` are one key."""
    bare = key.lower().removeprefix("+").removeprefix("my.")
    name = bare.replace("_", "")
    if len(bare) < len(key) and name in _AS_ATTRIBUTES:
        return _AS_ATTRIBUTES[name]
    return _ALIASES.get(name, name)


def split_list(value: str) -> list[str]:
    """The items of a list such as `a, b c`, without the quotes around it."""
    return [item for item in re.split(r"[,\s]+", value.strip().strip('"')) if item]


def split_files(value: str) -> list[str]:
    """The items of a list of files, which only commas separate."""
    return [item for item in (part.strip() for part in value.strip().strip('"').split(",")) if item]


def split_arguments(text: str) -> list[str]:
    """The words of `arguments`, in the old syntax or the new.

    Raises:
        ValueError: quotes have no partner.
    """
    text = text.strip()
    if not text.startswith('"'):
        if '"' in text.replace('\\"', ""):
            raise ValueError('a " in arguments without quotes around them is written \\"')
        return [word.replace('\\"', '"') for word in text.split()]
    if len(text) < 2 or not text.endswith('"'):
        raise ValueError('the arguments begin with " and do not end with it')
    inside = re.sub('""', "\x04", text[1:-1])
    if '"' in inside:
        raise ValueError('a " within the arguments is written ""')
    return [word.replace("\x04", '"') for word in _quoted_words(inside)]


def split_environment(text: str) -> Iterator[tuple[str, str]]:
    """The variables of `environment`, in the old syntax (`A=1;B=2`) or the new.

    Raises:
        ValueError: quotes have no partner, or a word is no assignment.
    """
    text = text.strip()
    words = split_arguments(text) if text.startswith('"') else map(str.strip, text.split(";"))
    for word in filter(None, words):
        name, equals, value = word.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][\w.]*", name.strip()):
            raise ValueError(f"{word} is not NAME=value")
        yield name.strip(), value


def _quoted_words(text: str) -> Iterator[str]:
    """Words separated by spaces; '…' quotes a word, in which '' is a quote."""
    for match in re.finditer(r"(?:[^\s']|'(?:[^']|'')*')+|'", text):
        word = match[0]
        if word == "'" or (word.count("'") % 2):
            raise ValueError("a single quote has no partner")
        yield re.sub(r"'((?:[^']|'')*)'", lambda quoted: quoted[1].replace("''", "'"), word)


def read(text: str) -> SubmitFile:
    """Read a submit description; lines that are not understood are kept as they are."""
    lines = tuple(re.findall(r"[^\n]*\n|[^\n]+\Z", text))
    return SubmitFile(lines, tuple(_statements(lines)))


def _statements(lines: tuple[str, ...]) -> Iterator[Statement]:
    at = within = 0
    while at < len(lines):
        first = at
        logical, at = _logical_line(lines, at)
        heredoc, branch, other = (pattern.match(logical) for pattern in (_HEREDOC, _BRANCH, _OTHER))
        assignment = _ASSIGNMENT.match(logical)
        kind: StatementKind = "other"
        key, value = other[1].lower() if other else "", logical
        if not logical or logical.startswith("#"):
            kind, key, value = "nothing", "", ""
        elif heredoc:
            body, at = _heredoc_body(lines, at, heredoc["tag"])
            key = UNCLOSED
            if body is not None:
                kind, key, value = "assign", heredoc["key"], body
        elif _QUEUE.match(logical):
            kind, key, value = "queue", "queue", logical[5:].strip()
            at = _after_items(lines, at, value)
        elif branch:
            kind, key, value = "branch", branch[1].lower(), logical[branch.end() :]
        elif assignment:
            kind, key, value = "assign", assignment["key"], assignment["value"].strip()
        within += kind == "branch" and key == "if"
        yield Statement(kind, first + 1, at, key, value, within, lines[first:at])
        within -= kind == "branch" and key == "endif" and within > 0


def _logical_line(lines: tuple[str, ...], at: int) -> tuple[str, int]:
    """One line with its continuations; of a comment among them only the backslash counts."""
    text = lines[at].strip()
    at += 1
    if text.startswith("#"):
        return text, at
    parts = [text]
    goes_on = text.endswith("\\")
    while goes_on and at < len(lines):
        parts[-1] = parts[-1].removesuffix("\\")
        text = lines[at].strip()
        at += 1
        goes_on = text.endswith("\\")
        parts.append("\\" if text.startswith("#") and goes_on else text)
        if text.startswith("#") and not goes_on:
            parts.pop()
            break
    return "".join(parts).removesuffix("\\").strip(), at


def _heredoc_body(lines: tuple[str, ...], at: int, tag: str) -> tuple[str | None, int]:
    body: list[str] = []
    while at < len(lines):
        text, at = _logical_line(lines, at)
        if text == f"@{tag}":
            return "\n".join(body), at
        if not text.startswith("#"):
            body.append(text)
    return None, at


def _after_items(lines: tuple[str, ...], at: int, arguments: str) -> int:
    """The line after the items of `queue … (`, which end with a line that begins with `)`."""
    if not _OPEN_LIST.match(arguments):
        return at
    for end in range(at, len(lines)):
        if lines[end].lstrip().startswith(")"):
            return end + 1
    return len(lines)


def read_text(path: Path) -> str:
    """The text of a submit description on disk; bytes that are not UTF-8 can be written back.

    Raises:
        HeadwayError: The file cannot be read, or is not a submit description.
    """
    try:
        text = path.read_bytes().decode("utf-8", errors="surrogateescape")
    except OSError as problem:
        raise HeadwayError(
            f"{path} cannot be read: {problem.strerror}", remedy="name a submit description"
        ) from problem
    file = read(text)
    nodes = _nodes_of_a_dag(text)
    if nodes and file.first_queue is None:
        raise HeadwayError(
            f"{path} is a DAG, for condor_submit_dag, and not a submit file",
            remedy=f"name a submit file of its nodes: {nodes[0]}",
        )
    keys = (statement.name for statement in file.statements if statement.kind == "assign")
    if not file.first_queue and not file.includes and not any(k.startswith(_TELLING) for k in keys):
        raise HeadwayError(
            f"{path} is not a submit file: it has no `queue`, no `executable` and no `request_…`",
            remedy="name the file that you give to condor_submit;"
            " for a script, `headway init` writes a job.toml",
        )
    return text


def _nodes_of_a_dag(text: str) -> list[str]:
    """The submit files of `JOB A a.sub` and the like."""
    lines = (line.split(None, 3) for line in text.splitlines())
    nodes = [words for words in lines if len(words) > 2 and words[0].upper() in ("JOB", "FINAL")]
    return [words[2] for words in nodes if words[1] != "=" and words[2][0] not in "={"]


# The submit commands of HTCondor 25; most attributes of the job ad have the same name without `_`.
_COMMANDS = """
accounting_group accounting_group_user allow_arguments_v1 allow_environment_v1
allowed_execute_duration allowed_job_duration append_files arc_application arc_data_staging
arc_resources arc_rte arguments arguments2 aws_access_key_id_file aws_region
aws_secret_access_key_file azure_admin_key azure_admin_username azure_auth_file azure_image
azure_location azure_size batch_extra_submit_args batch_name batch_project batch_queue
batch_runtime buffer_block_size buffer_files buffer_size checkpoint_destination
checkpoint_exit_code cloud_label_names common_input_files compress_files concurrency_limits
concurrency_limits_expr container_image container_is_common container_service_names
container_target_dir copy_to_spool core_size coresize cron_day_of_month cron_day_of_week
cron_hour cron_minute cron_month cron_prep_time cron_window cuda_version dagman_log
deferral_prep_time deferral_time deferral_window delegate_job_gsi_credentials_lifetime
description disk_usage docker_image docker_network_type docker_override_entrypoint
docker_pull_policy docker_send_credentials dont_encrypt_input_files dont_encrypt_output_files
ec2_access_key_id ec2_ami_id ec2_availability_zone ec2_block_device_mapping ec2_ebs_volumes
ec2_elastic_ip ec2_iam_profile_arn ec2_iam_profile_name ec2_instance_type ec2_keypair
ec2_keypair_file ec2_parameter_names ec2_secret_access_key ec2_security_groups ec2_security_ids
ec2_spot_price ec2_tag_names ec2_user_data ec2_user_data_file ec2_vpc_ip ec2_vpc_subnet
email_attributes encrypt_execute_directory encrypt_input_files encrypt_output_files environment
environment2 erase_output_and_error_on_restart error executable exit_requirements fetch_files
file_remaps gce_account gce_auth_file gce_image gce_json_file gce_machine_type gce_metadata
gce_metadata_file gce_preemptible get_env getenv gpus_maximum_capability gpus_minimum_capability
gpus_minimum_memory gpus_minimum_runtime grid_resource gs_access_key_id_file
gs_secret_access_key_file hold hold_kill_sig image_size initial_dir initialdir input
jar_files java_vm_args java_vm_arguments java_vm_arguments2 job_ad_information_attrs job_iwd
job_lease_duration job_machine_attrs job_machine_attrs_history_length job_max_vacate_time
jobset keep_claim_idle kill_sig kill_sig_timeout leave_in_queue load_profile local_files log
log_xml machine_count manifest manifest_dir match_list_length materialize_max_idle max_idle
max_job_retirement_time max_materialize max_retries max_transfer_input_mb max_transfer_output_mb
memory_usage mount_under_scratch next_job_start_delay nice_user node_count noop_job
noop_job_exit_code noop_job_exit_signal notification notify_user on_evict_checks on_exit_hold
on_exit_hold_reason on_exit_hold_subcode on_exit_remove output output_destination
output_directory periodic_hold periodic_hold_reason periodic_hold_subcode periodic_release
periodic_remove periodic_vacate preferences preserve_relative_paths primary_unix_group prio
priority project_name public_input_files rank remote_initialdir remove_kill_sig rendezvousdir
request_cpus request_disk request_gpus request_memory require_gpus requirements
retry_request_disk retry_request_memory retry_request_memory_increase retry_request_memory_max
retry_until run_as_owner s3_access_key_id_file s3_secret_access_key_file scitokens_file
send_credential shell should_transfer_files skip_filechecks skip_if_dataflow stack_size
starter_debug starter_log stderr stdin stdout stream_error stream_input stream_output
submit_event_notes submit_event_notes_attrs submit_event_user_notes success_exit_code
suspend_job_at_exec tool_daemon_args tool_daemon_arguments tool_daemon_cmd tool_daemon_error
tool_daemon_input tool_daemon_output transfer_checkpoint_files transfer_common_input
transfer_common_input_files transfer_container transfer_error transfer_executable transfer_input
transfer_input_files transfer_input_remaps transfer_output transfer_output_files
transfer_output_remaps transfer_plugins ulog_execute_attrs universe
use_oauth_services use_scitoken use_scitokens use_x509userproxy vm_checkpoint vm_disk vm_macaddr
vm_memory vm_networking vm_networking_type vm_no_output_vm vm_type vm_vcpus vm_vnc want_ads
want_graceful_removal want_io_proxy want_job_networking when_to_transfer_output x509userproxy
xen_initrd xen_kernel xen_kernel_params xen_root
"""
#: Submit commands that HTCondor ignores without request_gpus.
GPU_KEYS = (
    *("gpus_minimum_memory", "gpus_minimum_capability", "gpus_maximum_capability"),
    *("gpus_minimum_runtime", "require_gpus"),
)
_NAMES = {canonical(name): name for name in _COMMANDS.split()}
_FAMILIES = ("request", "require", "remote", "ec2tag", "cloudlabel", "transform", "batch", "arc")


def is_command(key: str) -> bool:
    """Whether a key, in any of its spellings, is a submit command and not a macro of the file."""
    return canonical(key) in _NAMES


def meant(key: str) -> str:
    """The command that a key was probably meant to be; empty if it resembles none.

    A file may set any name as a macro, so a key must differ from a command by very little.
    """
    name = canonical(key)
    if name in _NAMES or len(name) < 6:
        return ""
    if name in ("requestcpu", "requestgpu"):
        return f"request_{name[7:]}s"
    if name == "requestgpumemory":
        return "gpus_minimum_memory"
    if name.startswith(_FAMILIES) and not name.startswith(("requestm", "requestd", "requirem")):
        return ""  # the pool defines request_licenses and the like
    near = closest(name, _NAMES, cutoff=0.88)
    return _NAMES[near] if near else ""


# The functions of macros: `$Fpn(…)`, `$INT(…)`, `$STRING(…)` and sums.


class Unknown(Exception):
    """A value that is not known before HTCondor has the job, and why."""


def path_parts(path: str, letters: str, base: str = "") -> str:
    """`$Fpdnx(…)`: the parts of a path, as condor_submit takes them on Linux.

    `base` is the folder of a relative path, if the letters ask for the full path.
    """
    bare = path[1:-1] if re.fullmatch(r"([\"']).*\1", path) else path
    if "f" in letters and base and not bare.startswith("/"):
        bare = f"{base}/{bare.removeprefix('./')}"
    if "w" in letters or "u" in letters:
        bare = re.sub(r"[/\\]", r"\\" if "w" in letters else "/", bare)
    folder, slash, file = bare.rpartition("/")
    if not slash and {"n", "x"} & set(letters):
        letters = letters.replace("p", "").replace("d", "")
    elif "x" in letters and {"p", "d"} & set(letters):
        letters += "n"  # HTCondor has no folder with an ending alone
    stem, dot, extension = file.rpartition(".")
    if not stem:
        stem, dot, extension = file, "", ""
    text = ""
    if "p" in letters:
        text += folder + slash
    elif "d" in letters:
        text += "/".join(folder.split("/")[-letters.count("d") :]) + slash
    if "b" in letters and not {"n", "x"} & set(letters):
        text = text.removesuffix(slash) if slash else text
    if "n" in letters:
        text += stem
    if "x" in letters:
        text += extension if "b" in letters and "n" not in letters else dot + extension
    if not {"p", "d", "n", "x"} & set(letters):
        text = bare
    quote = ("'" if "a" in letters else '"') if "q" in letters else ""
    return f"{quote}{text}{quote}"


def text_in_form(text: str, form: str, shown: str) -> str:
    """`$STRING(name,format)`: the text without the quotes of a ClassAd string."""
    bare = text[1:-1] if re.fullmatch(r'"[^"\\]*"', text) else text
    if form and not re.fullmatch(r"[^%]*%-?\d{0,4}(?:\.\d{1,4})?s[^%]*", form):
        raise Unknown(f"{shown}: {form} is not a format of one text")
    return form % bare if form else bare


def number_in_form(text: str, function: str, form: str, shown: str) -> str:
    """`$INT(…)` or `$REAL(…)`, in a format such as `%03d`; `shown` is the call in the file."""
    value = arithmetic(text)
    if value is None:
        raise Unknown(f"{shown}: {text} is not a number")
    if form and not re.fullmatch(
        r"[^%]*%[-+ 0#]*(?:[1-9]\d?)?(?:\.\d{1,2})?[dixXoeEfgG][^%]*", form
    ):
        raise Unknown(f"{shown}: {form} is not a format of one number")
    if function == "INT":
        return (form or "%d") % int(value)
    number = (form or "%.16G") % float(value)
    return f"{number}.0" if form and "." not in number else number


def evaluated(text: str, shown: str) -> str:
    """`$EVAL(…)` of whole numbers."""
    value = str(arithmetic(text))
    if not value.removeprefix("-").isdecimal():
        raise Unknown(f"{shown}: only HTCondor evaluates it")
    return value


def _divide(left: float, right: float) -> float:
    """Divide as ClassAds do: the quotient of whole numbers is whole, rounded towards zero."""
    if type(left) is type(right) is int:
        return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    return left / right


_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _divide,
}


def arithmetic(text: str) -> float | None:
    """The value of an expression of numbers, such as `8*1024`; None if it is anything else."""
    if len(text) > 200 or "#" in text:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `4in` is odd Python, and no sum
            return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, OverflowError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr) -> float:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value  # type: ignore[return-value]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    raise ValueError
