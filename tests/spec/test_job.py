"""One line of job.toml, and what becomes of it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from headway.spec import Gpus, Input, Job, Output, Resources, dump_job, load_resolved
from headway.spec.fields import unknown_key
from headway.spec.job import KNOWN_KEYS

from .conftest import Load, Wrong

HASH = "a" * 64

GOOD = [
    ("", "command", ("true",)),
    ("resources = {gpus = 1}", "resources.gpus", Gpus(count=1)),
    ("resources = {gpus = 0}", "resources.gpus", None),
    ('resources = {gpus = {memory = "16 GB"}}', "resources.gpus.memory", 16 * 10**9),
    ("resources = {gpus = {capability = 7.5}}", "resources.gpus.capability", 7.5),
    ("resources = {gpus = {capability = 8}}", "resources.gpus.capability", 8.0),
    ('resources = {gpus = {runtime = "12.1"}}', "resources.gpus.runtime", "12.1"),
    ('resources = {memory = "8 GiB"}', "resources.memory", 8 * 2**30),
    ('inputs = ["https://x.org/d/a.tar?y=1#z"]', "inputs.0.path", "a.tar"),
    ('inputs = ["https://x.org/a%20b.tar"]', "inputs.0.path", "a b.tar"),
    ('inputs = ["osdf:///x/{job}.tar"]', "inputs.0.path", "{job}.tar"),
    ('inputs = [{url = ["https://a/b", "http://c/d"]}]', "inputs.0.urls", ("https://a/b", "http://c/d")),
    ('inputs = [{url = "file:///a/b", path = "./c//d/"}]', "inputs.0.path", "c/d"),
    ('inputs = [{url = "pelican://f.org/a/b"}]', "inputs.0.path", "b"),
    ('inputs = [{url = "mine.rw+osdf:///a/b"}]', "inputs.0.path", "b"),
    ('outputs = [{path = "a", to = "osdf:///x/a"}]', "outputs.0.to", "osdf:///x/a"),
    ('outputs = [{path = "a", to = "mine+pelican://h/a"}]', "outputs.0.to", "mine+pelican://h/a"),
    ('inputs = [{url = "stash:///a/b", size = 123}]', "inputs.0.size", 123),
    ('inputs = ["https://a/b"]', "inputs.0.mode", "file"),
    ('inputs = [{url = "https://a/b", mode = "stream"}]', "inputs.0.keep", True),
    (f'inputs = [{{url = "https://a/b", mode = "stream", manifest = "sha256:{HASH}", keep = false, '
     'window = "2 GB"}]', "inputs.0.window", 2 * 10**9),
    ('inputs = [{url = "stash:///a/b", size = "1 kB"}]', "inputs.0.size", 1000),
    (f'inputs = [{{url = "http://a/b", checksum = "SHA256:{HASH}"}}]',
     "inputs.0.checksum", f"sha256:{HASH}"),
    ('inputs = [{url = "http://a/b", checksum = "adler32:0123abcd"}]',
     "inputs.0.checksum", "adler32:0123abcd"),
    ('inputs = [{url = "http://[::1]:80/b"}]', "inputs.0.path", "b"),
    ('outputs = ["model.pt"]', "outputs.0.path", "model.pt"),
    ('outputs = [{path = "a/m.pt", to = "results/"}]', "outputs.0.to", "results/m.pt"),
    ('outputs = [{path = "m.pt", to = "../r/m.pt"}]', "outputs.0.to", "../r/m.pt"),
    ('outputs = [{path = "m.pt", to = "https://x/m"}]', "outputs.0.to", "https://x/m"),
    ('environment = {A = 1, B = true, C = "x y", D = 0.5}', "environment",
     {"A": "1", "B": "true", "C": "x y", "D": "0.5"}),
    ('grace = "0 s"', "grace", 0.0),
    ('time_limit = "20 h"', "time_limit", 72000.0),
    ('duration = "Long"', "duration", "Long"),
    ('checkpoint = {paths = ["ckpt/"], interval = "1 h", signal = "SIGUSR1"}',
     "checkpoint.paths", ("ckpt",)),
    ('container = "docker://pytorch/pytorch:2@sha256:ab"',
     "container", "docker://pytorch/pytorch:2@sha256:ab"),
    ('container = "/cvmfs/x/y"', "container", "/cvmfs/x/y"),
    ('requirements = " HasCVMFS "', "requirements", "HasCVMFS"),
    ('submit = {"+ProjectName" = "\\"x\\"", accounting_group = "g", rank = 1}', "submit",
     {"+ProjectName": '"x"', "accounting_group": "g", "rank": "1"}),
    ("[submit]\nMY.WantX = true", "submit", {"MY.WantX": "true"}),
    ('inputs = ["https://a/b"]', "inputs.0.via", "agent"),
    ('inputs = ["https://a/b.tar"]', "inputs.0.unpack", False),
    ('inputs = [{url = "https://a/t.tar.gz?x", unpack = true}]', "inputs.0.path", "t"),
    ('inputs = [{url = "https://a/t.tar.gz?x", unpack = true}]', "inputs.0.file", "t.tar.gz"),
    ('inputs = [{url = "https://a/l.csv.ZST", unpack = true}]', "inputs.0.path", "l.csv"),
    ('inputs = [{url = "https://a/{job}.zip", unpack = true}]', "inputs.0.path", "{job}"),
    ('inputs = [{url = "https://a/x.tgz", path = "d/x", unpack = true}]',
     "inputs.0.file", "d/x.tgz"),
    ('inputs = [{url = "https://a/x", unpack = true}]', "inputs.0.file", "x.packed"),
    ('inputs = [{url = "https://a/b", patience = "3 min"}]', "inputs.0.patience", 180.0),
    (f'inputs = [{{url = "https://a/b", manifest = "SHA256:{"AB" * 32}"}}]', "inputs.0.manifest",
     f"sha256:{'ab' * 32}"),
    ('sites = {avoid = ["A"], prefer = ["B"]}', "sites.avoid", ("A",)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "key", "value"), GOOD)
def test_good(load: Load, text: str, key: str, value: object) -> None:
    found: Any = load(text)
    for part in key.split("."):
        found = found[int(part)] if part.isdigit() else getattr(found, part)
    assert found == value


BAD = [
    # the name of the key, what is written, and words of the problem
    ("resources.memory", 'memory = 8', "8 MB or 8 GB?"),
    ("resources.memory", 'memory = "10 kB"', "too little"),
    ("resources.cpus", "cpus = 1.5", "write 2"),
    ("resources.cpus", 'cpus = "2"', "write 2 without quotes"),
    ("resources.cpus", "cpus = true", "whole number"),
    ("resources.cpus", "cpus = 0", "at least 1"),
    ("resources.gpus", "gpus = -1", "at least 1"),
    ("resources.gpus", "gpus = 1.5", "number of GPUs"),
    ("resources.gpus", "gpus = true", "number of GPUs"),
    ("resources.gpus.count", "gpus = {count = 0}", "leave `gpus` out"),
    ("resources.gpus.capability", 'gpus = {capability = "7.5"}', "without quotes"),
    ("resources.gpus.capability", "gpus = {capability = nan}", "number"),
    ("resources.gpus.runtime", "gpus = {runtime = 12.1}", '"12.1" in quotes'),
    ("resources.gpus.runtime", 'gpus = {runtime = "new"}', "CUDA version"),
    ("resources.gpus.memory", "gpus = {memory = 16}", "16 MB or 16 GB?"),
    ("resources", "resources = 3", "should be a table"),
    ("inputs", 'inputs = "https://a/b"', 'write ["https://a/b"]'),
    ("inputs[0]", "inputs = [3]", "[[inputs]]"),
    ("inputs[0].url", 'inputs = [{path = "x"}]', "is missing"),
    ("inputs[0].url", "inputs = [{url = []}]", "empty"),
    ("inputs[0].url[1]", 'inputs = [{url = ["http://a/b", 3]}]', "should be text"),
    ("inputs[0]", 'inputs = ["data.tar"]', "belongs in `files`"),
    ("inputs[0]", 'inputs = ["s3://b/c"]', "does not fetch from s3"),
    ("inputs[0]", 'inputs = ["https://me:pw@a/b"]', "user name or password"),
    ("inputs[0]", 'inputs = ["https:///b"]', "no host"),
    ("inputs[0]", 'inputs = ["https://a:port/b"]', "no valid host"),
    ("inputs[0]", 'inputs = ["http://[::1/b"]', "no valid host"),
    ("inputs[0]", 'inputs = ["https://a/b c"]', "%20"),
    ("inputs[0]", 'inputs = ["file://host/b"]', "names a machine"),
    ("inputs[0]", 'inputs = ["osdf://ospool/b"]', "osdf:///ospool/b"),
    ("inputs[0]", 'inputs = ["osdf:///a,b"]', "%2C"),
    ("inputs[0].manifest", 'inputs = [{url = "https://a/b", manifest = "md5:00"}]', "32 hexa"),
    ("inputs[0].manifest", f'inputs = [{{url = "https://a/b", manifest = "md5:{"0" * 32}"}}]',
     "`headway publish` printed"),
    ("inputs[0].patience", 'inputs = [{url = "https://a/b", patience = 3}]', "3 min or 3 h?"),
    ("inputs[0].via", 'inputs = [{url = "https://a/b", via = "pigeon"}]', "agent"),
    ("inputs[0].mode", 'inputs = [{url = "https://a/b", mode = "drip"}]', "stream"),
    ("inputs[0].mode", 'inputs = [{url = "https://a/b", via = "plugin", mode = "stream"}]',
     "leave out `via`"),
    ("inputs[0].unpack", 'inputs = [{url = "https://a/b", mode = "stream", unpack = true}]',
     "arrives"),
    ("inputs[0].unpack", 'inputs = [{url = "https://a/b.7z?x", unpack = true}]', "7z"),
    ("inputs[0].unpack", 'inputs = [{url = "https://a/b", unpack = "yes"}]', "true"),
    ("inputs[0].keep", 'inputs = [{url = "https://a/b", keep = false, window = "1 GB"}]', "stream"),
    ("inputs[0].keep", 'inputs = [{url = "https://a/b", mode = "stream", keep = false, '
     'window = "1 GB"}]', "headway publish"),
    ("inputs[0].window", f'inputs = [{{url = "https://a/b", mode = "stream", keep = false, '
     f'manifest = "sha256:{HASH}"}}]', "20 GB"),
    ("inputs[0].window", 'inputs = [{url = "https://a/b", mode = "stream", window = "1 GB"}]',
     "keep = false"),
    ("inputs[0].path", 'inputs = [{url = "https://a/"}]', "does not end in a file name"),
    ("inputs[0].path", 'inputs = [{url = "https://a/b", path = "/x"}]', "relative"),
    ("inputs[0].path", 'inputs = [{url = "https://a/b", path = "a/../../x"}]', "leaves"),
    ("inputs[0].path", 'inputs = [{url = "https://a/b", path = "a\\\\b"}]', "backslash"),
    ("inputs[0].path", 'inputs = [{url = "https://a/b", path = ""}]', "empty"),
    ("inputs[0].path", 'inputs = [{url = "https://a/b", path = "."}]', "folder itself"),
    ("inputs[0].path", 'inputs = [{url = "https://a/b", path = "a\\u0000b"}]', "NUL"),
    ("inputs[0].path", 'inputs = [{url = "https://a/b", path = "~/x"}]', "relative"),
    ("inputs[0].path", 'inputs = [{url = "https://a/b", path = "./plan.json"}]', "used by Headway"),
    ("inputs[0].path", 'inputs = [{url = "https://a/b", path = ".headway-x/y"}]', "used by"),
    ("inputs[0].path", f'inputs = [{{url = "https://a/b", path = "{"x" * 256}"}}]', "too long"),
    ("inputs[0].checksum", 'inputs = [{url = "http://a/b", checksum = "sha256:12"}]', "64"),
    ("inputs[0].checksum", f'inputs = [{{url = "http://a/b", checksum = "{HASH}"}}]', "sha256:"),
    ("inputs[0].checksum", 'inputs = [{url = "http://a/b", checksum = "sha1:ab"}]', "known"),
    ("inputs[0].checksum", 'inputs = [{url = "http://a/b", checksum = "crc32c:xyzxyzxy"}]', "hexa"),
    ("inputs[0].size", 'inputs = [{url = "http://a/b", size = "12"}]', "12 MB or 12 GB?"),
    ("inputs[0].size", 'inputs = [{url = "http://a/b", size = -1}]', "bytes"),
    ("inputs[0].size", 'inputs = [{url = "http://a/b", size = 1.5}]', "bytes"),
    ("inputs[1]", 'inputs = ["http://a/b", "http://c/b"]', "another input"),
    ("inputs[1].path", 'inputs = ["http://a/b", {url = "http://c/d", path = "b/c"}]', "within"),
    ("outputs[0].path", 'outputs = [{path = "headway-out/x"}]', "used by"),
    ("outputs[0]", 'outputs = ["../x"]', "leaves"),
    ("outputs[1]", 'outputs = ["a", "./a"]', "another output"),
    ("outputs[1].to", 'outputs = [{path = "a", to = "x"}, {path = "b", to = "./x"}]', "another"),
    ("outputs[0].to", 'outputs = [{path = "a", to = "osdf://x/a"}]', "osdf:///x/a"),
    ("inputs[0]", 'inputs = ["mine+s3://x/a"]', "does not fetch"),
    ("outputs[0].to", 'outputs = [{path = "a", to = "s3://x/a"}]', "does not send"),
    ("outputs[0].to", 'outputs = [{path = "a", to = "https://u:p@x/a"}]', "password"),
    ("outputs[0].to", 'outputs = [{path = "a", to = "~/a"}]', "not expanded"),
    ("outputs[0].to", 'outputs = [{path = "a", to = ""}]', "empty"),
    ("outputs[0].to", 'outputs = [{path = "a", to = ".."}]', "not a file"),
    ("outputs[0].to", 'outputs = [{path = "a", to = "http:x"}]', "://"),
    ("outputs[0].to", 'count = 3\noutputs = [{path = "a", to = "x"}]', "all 3 jobs"),
    ("outputs[0].required", 'outputs = [{path = "a", required = "yes"}]', "true or false"),
    ("outputs[0].min_size", 'outputs = [{path = "a", min_size = 3}]', "3 MB or 3 GB?"),
    ("checkpoint.paths", "checkpoint = {}", "is missing"),
    ("checkpoint.paths", "checkpoint = {paths = []}", "empty"),
    ("checkpoint.paths", 'checkpoint = {paths = "c"}', 'write ["c"]'),
    ("checkpoint.paths[0]", 'checkpoint = {paths = ["../c"]}', "leaves"),
    ("checkpoint.paths[0]", 'checkpoint = {paths = ["a,b"]}', "comma"),
    ("checkpoint.exit_code", 'checkpoint = {paths = ["c"], exit_code = 0}', "at least 1"),
    ("checkpoint.interval", 'checkpoint = {paths = ["c"], interval = 1}', "1 min or 1 h?"),
    ("checkpoint.interval", 'checkpoint = {paths = ["c"], interval = "0 s"}', "longer than 0 s"),
    ("checkpoint.signal", 'checkpoint = {paths = ["c"], signal = "SIGUSR1"}', "interval"),
    ("checkpoint.signal",
     'checkpoint = {paths = ["c"], interval = "1 h", signal = "USR1"}', '"SIGUSR1"?'),
    ("environment.A-B", 'environment = {"A-B" = 1}', "not a name"),
    ("environment._CONDOR_X", "environment = {_CONDOR_X = 1}", "HTCondor"),
    ("environment.HEADWAY_ROW", "environment = {HEADWAY_ROW = 1}", "Headway"),
    ("environment.A", "environment = {A = [1]}", "not a list"),
    ("environment.A", 'environment = {A = "\\u0000"}', "NUL"),
    ("count", "count = 0", "at least 1"),
    ("count", "count = 1000000000000", "at most 1,000,000"),
    ("count", 'count = 2\ntable = [{a = 1}, {a = 2}]', "`count` and `table`"),
    ("grace", "grace = 30", "30 s or 30 min?"),
    ("duration", 'duration = "long"', 'did you mean "Long"?'),
    ("duration", 'duration = "20 h"', "`time_limit`"),
    ("retries.node", "retries = {node = -1}", "at least 0"),
    ("requirements", 'requirements = " "', "empty"),
    ("requirements", 'requirements = "a\\nb"', "line break"),
    ("sites.avoid", 'sites = {only = ["A"], avoid = ["A"]}', "choose one"),
    ("sites.prefer", 'sites = {prefer = "A"}', 'write ["A"]'),
    ("container", 'container = "pytorch/pytorch:2"', "docker://pytorch/pytorch:2"),
    ("container", 'container = "x.sif"', "no file"),
    ("container", 'container = ""', "empty"),
    ("container", 'container = "docker://u:p@host/x"', "password"),
    ("submit", 'submit = "x"', "should be a table"),
    ('submit."a b"', 'submit = {"a b" = 1}', "not a submit command"),
    ("submit.rank", 'submit = {rank = "a\\nqueue 5"}', "line break"),
    ('submit."rank\\nqueue"', 'submit = {"rank\\nqueue" = "5"}', "not a submit command"),
    ("submit.rank", 'submit = {rank = "a\\\\"}', "backslash"),
    ("submit.rank", "submit = {rank = [1]}", "not a list"),
]  # fmt: skip


@pytest.mark.parametrize(("where", "text", "words"), BAD)
def test_bad(wrong: Wrong, where: str, text: str, words: str) -> None:
    inner = where.startswith("resources.")
    (problem,) = wrong(f"[resources]\n{text}" if inner else text)
    assert problem.where == f"job.toml: {where}"
    assert words in str(problem)
    assert "pydantic" not in str(problem) and "Input" not in str(problem)


OWN = {
    "executable": "command", "arguments": "command", "transfer_input_files": "files",
    "transfer_output_files": "outputs", "transfer_output_remaps": "outputs", "queue": "count",
    "environment": "environment", "requirements": "requirements", "max_retries": "retries",
    "request_cpus": "resources.cpus", "Request_Memory": "resources.memory",
    "request_disk": "resources.disk", "request_gpus": "resources.gpus",
    "transfer_checkpoint_files": "checkpoint", "checkpoint_exit_code": "checkpoint.exit_code",
    "container_image": "container", "docker_image": "container", "periodic_release": "retries",
    "periodic_remove": "retries", "on_exit_remove": "retries", "on_exit_hold": "retries",
    "+JobDurationCategory": "duration", "MY.RequestMemory": "resources.memory",
    "+SingularityImage": "container", "universe": "", "log": "", "output": "", "error": "",
    "initialdir": "", "when_to_transfer_output": "", "should_transfer_files": "", "if": "",
}  # fmt: skip


@pytest.mark.parametrize("key", OWN)
def test_submit_lines_that_headway_writes(wrong: Wrong, key: str) -> None:
    (problem,) = wrong(f'submit = {{"{key}" = "x"}}')
    assert problem.what == "is written by Headway itself"
    assert problem.remedy
    if OWN[key]:
        assert f"`{OWN[key]}`" in problem.remedy


UNKNOWN = {
    "gpu": "resources.gpus", "mem": "resources.memory", "ram": "resources.memory",
    "arguments": "command", "executable": "command", "transfer_input_files": "files",
    "cores": "resources.cpus", "walltime": "time_limit", "image": "container", "env": "environment",
    "memory": "resources.memory", "cpus": "resources.cpus", "rows": "table", "conut": "count",
    "Count": "count", "input": "inputs", "output": "outputs", "request_gpus": "resources.gpus",
    "queue": "count", "checksum": "inputs.checksum", "resource": "resources",
    "max-retries": "retries",
    "resources.gpu": "gpus", "resources.mem": "memory", "resources.gpus.vram": "memory",
    "resources.gpus.number": "count", "checkpoint.path": "paths", "retries.nodes": "node",
    "checkpoint.files": "paths",
    "inputs[0].urls": "url", "inputs[0].sha256": "checksum", "outputs[0].too": "to",
}  # fmt: skip


@pytest.mark.parametrize("key", UNKNOWN)
def test_unknown_keys(wrong: Wrong, key: str) -> None:
    base = (
        'inputs = [{url = "http://a/b"}]\noutputs = [{path = "a"}]\ncheckpoint = {paths = ["c"]}\n'
    )
    (problem,) = wrong(base, overrides=[f"{key}=1"])
    assert problem.where == f"--set {key}=1"
    assert "there is no key" in problem.what
    assert problem.remedy == f"did you mean `{UNKNOWN[key]}`?"


def test_unknown_key_like_no_other(wrong: Wrong) -> None:
    (problem,) = wrong("[retries]\nqqqqqq = 1")
    assert problem.where == "job.toml: retries.qqqqqq"
    assert problem.remedy.startswith("the keys here are `node`")


def test_a_key_in_the_wrong_table_is_told_where_it_belongs() -> None:
    for table in KNOWN_KEYS:
        for home, keys in KNOWN_KEYS.items():
            for key in set(keys) - set(KNOWN_KEYS[table]):
                _, remedy = unknown_key((*table, key), KNOWN_KEYS)
                assert remedy != f"did you mean `{key}`?", (table, home, key)
    _, remedy = unknown_key(("resources", "command"), KNOWN_KEYS)
    assert remedy == "`command` stands at the top of job.toml, before the first section"


def test_every_table_is_known_to_the_speller() -> None:
    tables = {
        key for key in Job.model_fields if isinstance(Job.model_fields[key].default, BaseModel)
    }
    assert {(table,) for table in tables} <= set(KNOWN_KEYS)


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("command = \"python3 train.py --name 'a b'\"", ("python3", "train.py", "--name", "a b")),
        ('command = ["a", "", "b c"]', ("a", "", "b c")),
        ('command = "a | b > c"\nshell = true', ("a | b > c",)),
        ('command = """\npython3 a.py \\\\\n  --x 1\n"""', ("python3", "a.py", "--x", "1")),
        ('command = "a # b"', ("a", "#", "b")),
        ("command = 'python3 -c \"x\ny\"'".replace("'", "'''"), ("python3", "-c", "x\ny")),
    ],
)
def test_commands(load: Load, text: str, command: tuple[str, ...]) -> None:
    assert load(f'name = "n"\n{text}', whole=True).command == command


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('command = ""', "empty"),
        ("command = []", "empty"),
        ('command = [""]', "the program, is empty"),
        ('command = ["a", 1]', "should be text"),
        ("command = 3", "text or a list"),
        ('command = "a \'b"', "no partner"),
        ('command = "a && b"', "shell = true"),
        ('command = "a > b"', "shell = true"),
        ('command = "a\\nb"', "several lines"),
        ('command = ["a", "b"]\nshell = true', "one text, not a list"),
        ('command = ["a"]\nshell = true', "one text, not a list"),
        ('command = "a"\nshell = "yes"', "true or false"),
        ('command = "a {x}"', "no column is called `x`"),
        ('command = "a \\u0000"', "NUL"),
    ],
)
def test_bad_commands(wrong: Wrong, text: str, words: str) -> None:
    (problem,) = wrong(f'name = "n"\n{text}', whole=True)
    assert words in str(problem)


@pytest.mark.parametrize(
    "name", ["cifar10", "Größe 2", "名前", "a.b_c-d", "e\u0301t\u00e9", "हिन्दी", "x" * 100]
)
def test_names(load: Load, name: str) -> None:
    assert load(f'name = "{name}"\ncommand = "a"', whole=True).name.casefold()


@pytest.mark.parametrize(
    "name",
    ["", " ", ".a", "-a", " a", "a ", "a/b", "a\\\\b", "a\\nb", "a\\u0000", "x" * 101, "名" * 100,
     'a\\"b', "{job}", "a\u202eb", "😀"],
)  # fmt: skip
def test_bad_names(wrong: Wrong, name: str) -> None:
    (problem,) = wrong(f'name = "{name}"\ncommand = "a"', whole=True)
    assert problem.where == "job.toml: name"
    assert problem.remedy


@pytest.mark.parametrize(("text", "key", "value"), GOOD)
def test_round_trip(load: Load, text: str, key: str, value: object) -> None:
    job = load(text)
    assert load_resolved(dump_job(job)) == job
    assert Job.model_validate_json(job.model_dump_json(by_alias=True)) == job


def test_in_code_plain_numbers_are_bytes_and_seconds() -> None:
    job = Job(
        name="n",
        command=("a {x}",),
        shell=True,
        rows=({"x": "1"}, {"x": "ü"}),
        resources=Resources(memory=10**9),
        inputs=(Input(url=("https://a/b",), path="b"),),
        outputs=(Output(path="c", min_size=5),),
        time_limit=5.0,
    )
    assert load_resolved(dump_job(job)) == job
    assert job.size == 2
    assert job.row(1) == {"x": "ü", "job": "1"}


def test_count_makes_rows_of_numbers(load: Load) -> None:
    job = load('count = 3\noutputs = [{path = "a", to = "r/{job}/"}]')
    assert job.size == 3
    assert job.row(2) == {"job": "2"}
    assert job.outputs[0].to == "r/{job}/a"
