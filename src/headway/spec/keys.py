"""The keys people write for ours: other systems' words, and what a submit file would say."""

from __future__ import annotations

from headway.spec.words import Loc, closest, key_path, listed

# Words of HTCondor submit files, Slurm, Kubernetes and habit, by the job.toml key that is meant.
_MEANS = {
    "name": "batch_name jobname job_name job_batch_name title id",
    "command": "executable exec arguments args argument cmd run script entrypoint program argv",
    "shell": "use_shell bash sh",
    "files": "file transfer_input_files code sources src payload transfer_executable upload",
    "environment": "env environ envs variables environment_variables getenv",
    "container": "image container_image docker_image docker singularity apptainer "
    "singularityimage sif",
    "count": "queue jobs replicas copies njobs num_jobs array",
    "table": "rows row csv matrix parameters params sweep columns",
    "resources.cpus": "cpu cores core ncpus num_cpus request_cpus requestcpus "
    "cpus_per_task threads ntasks",
    "resources.memory": "mem ram request_memory requestmemory memory_mb mem_gb mem_mb",
    "resources.disk": "storage scratch request_disk requestdisk disk_space diskspace",
    "resources.gpus": "gpu ngpus num_gpus request_gpus requestgpus gres accelerators gpu_count "
    "require_gpus",
    "resources.gpus.count": "number num",
    "resources.gpus.memory": "vram gpu_memory gpu_mem gpus_minimum_memory minimum_memory",
    "resources.gpus.capability": "compute_capability cc gpus_minimum_capability cuda_capability",
    "resources.gpus.runtime": "cuda cuda_version gpus_minimum_runtime",
    "inputs": "input data datasets dataset downloads",
    "inputs.url": "urls uri href source mirrors from",
    "inputs.path": "dest destination target filename",
    "inputs.checksum": "sha256 md5 digest hash sum adler32 crc32c",
    "inputs.size": "bytes length",
    "inputs.manifest": "pin index",
    "inputs.patience": "stall stall_timeout",
    "inputs.via": "through transfer",
    "inputs.mode": "how streaming stream",
    "inputs.unpack": "extract untar unzip decompress gunzip expand",
    "inputs.keep": "cache store retain",
    "inputs.window": "cache_limit cache_size buffer",
    "outputs": "results artifacts artefacts transfer_output_files transfer_output_remaps "
    "output_destination",
    "outputs.to": "upload_to remap",
    "outputs.min_size": "minimum_size minsize",
    "checkpoint": "checkpoints checkpointing transfer_checkpoint_files",
    "checkpoint.paths": "files files_to_keep",
    "checkpoint.exit_code": "checkpoint_exit_code exitcode",
    "checkpoint.interval": "every period",
    "grace": "grace_period kill_timeout job_max_vacate_time stop_timeout",
    "duration": "jobdurationcategory job_duration_category",
    "time_limit": "walltime wall_time timelimit timeout max_runtime time allowed_execute_duration "
    "allowed_job_duration maxwalltime",
    "retries": "retry max_retries attempts on_exit_remove on_exit_hold periodic_release "
    "periodic_remove retry_until success_exit_code",
    "requirements": "requirement constraint constraints",
    "sites": "site desired_sites undesired_sites",
    "sites.avoid": "exclude undesired blacklist blocklist",
    "sites.only": "require whitelist allowlist",
    "submit": "htcondor condor extra submit_options",
}
SYNONYMS = {word: key for key, words in _MEANS.items() for word in words.split()}

# What Headway writes into the submit description itself, with the job.toml key to use instead.
_NO_KEY = "Headway needs it for its own work"
SUBMIT_OWN = {
    word: f"use `{key}`"
    for word, key in SYNONYMS.items()
    if word.startswith(
        ("request_", "request", "transfer_", "gpus_minimum", "periodic_", "on_exit", "container_")
    )
    or word
    in (
        "executable", "arguments", "queue", "env", "getenv", "max_retries", "retry_until",
        "success_exit_code", "checkpoint_exit_code", "docker_image", "singularityimage",
        "jobdurationcategory", "job_max_vacate_time", "batch_name", "job_batch_name",
        "allowed_execute_duration", "allowed_job_duration", "output_destination", "require_gpus",
    )
}  # fmt: skip
SUBMIT_OWN |= {
    "environment": "use `environment`",
    "requirements": "use `requirements`",
    "files": "use `files`",
    "log": "the event log is events.log in the run folder",
    "output": "what the command prints comes home to the run folder",
    "error": "what the command prints comes home to the run folder",
    "transfer_output": "what the command prints comes home to the run folder",
    "transfer_error": "what the command prints comes home to the run folder",
    "input": "let the command read a file from `files` or `inputs`",
    "kill_sig": "use `grace`",
    "count": "use `count`",
} | dict.fromkeys(
    (
        "universe", "cmd", "args", "in", "out", "err", "initialdir", "initial_dir", "iwd",
        "userlog", "should_transfer_files", "when_to_transfer_output", "stream_output",
        "stream_error", "preserve_relative_paths", "periodic_hold", "leave_in_queue", "hold",
        "job_lease_duration", "requiregpus", "jobuniverse", "maxretries", "max_idle",
        "max_materialize", "periodic_vacate", "periodic_hold_reason", "noop_job",
    ),
    _NO_KEY,
)  # fmt: skip
_STATEMENTS = ("if", "elif", "else", "endif", "include", "use")
SUBMIT_OWN |= dict.fromkeys(_STATEMENTS, "only `key = value` lines can be added")


def submit_remedy(key: str) -> str | None:
    """What to do instead, if a submit line is one that Headway writes itself."""
    bare = key.lower()
    for beginning in ("+", "my."):
        bare = bare.removeprefix(beginning)
    return SUBMIT_OWN.get(bare)


def unknown_key(loc: Loc, known: dict[tuple[str, ...], list[str]]) -> tuple[str, str]:
    """What is wrong with a key that does not exist, and which key is probably meant."""
    level = tuple(part for part in loc[:-1] if isinstance(part, str))
    word = str(loc[-1])
    here = known.get(level, [])
    meant = _meant(word, level, here, known)
    if meant is None:
        remedy = f"the keys here are {listed(here, most=30)}"
    elif level and meant in known.get((), []) and meant not in here:
        remedy = f"`{meant}` stands at the top of job.toml, before the first section"
    else:
        remedy = f"did you mean `{meant}`?"
    return f"there is no key `{key_path((word,))}`", remedy


def _meant(
    word: str, level: tuple[str, ...], here: list[str], known: dict[tuple[str, ...], list[str]]
) -> str | None:
    lower = word.lower().lstrip("+").removeprefix("my.").replace("-", "_")
    for key in here:
        if lower == key or lower.rstrip("s") == key.rstrip("s"):
            return key
    synonym = SYNONYMS.get(lower)
    if synonym and _level_of(synonym) == level:
        return synonym.rpartition(".")[2]
    for other, keys in known.items():  # a key that exists, in another table
        if lower in keys:
            return ".".join((*other, lower))
    near = closest(word, here)
    if near or synonym:
        return near or synonym
    every = {key: ".".join((*other, key)) for other, keys in known.items() for key in keys}
    far = closest(word, every)
    return every[far] if far else None


def _level_of(key: str) -> tuple[str, ...]:
    return tuple(key.split(".")[:-1])
