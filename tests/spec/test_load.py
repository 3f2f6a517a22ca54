from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headway.spec
from headway.errors import SpecError
from headway.spec import build_job, load_job, load_resolved

from .conftest import MINIMAL, Load, Wrong


def test_all_problems_at_once(wrong: Wrong) -> None:
    problems = wrong(
        """
command = "train {lr}"
files = ["nope.py", "../up"]
gpu = 1
count = 0
[resources]
memory = 8
[[inputs]]
url = "https://a/b"
checksum = "nonsense"
[[inputs]]
url = "https://c/b"
[[outputs]]
path = "o"
[[outputs]]
path = "o"
unknown = 1
""",
        whole=True,
        overrides=["resources.gpuz.count=2", "nonsense"],
        resources=["mem=8"],
    )
    assert [problem.where.removeprefix("job.toml: ") for problem in problems] == [
        "--set nonsense",
        "--resource mem=8",
        "files[0]",
        "files[1]",
        "name",
        "command",
        "count",
        "resources.memory",
        "--set resources.gpuz.count=2",
        "inputs[0].checksum",
        "outputs[1].unknown",
        "gpu",
        "inputs[1].path",
        "outputs[1].path",
    ]
    assert all(problem.what for problem in problems)


@pytest.mark.parametrize(
    ("content", "where", "words"),
    [
        (b"", "job.toml", "is empty"),
        (b"# nothing\n", "job.toml", "is empty"),
        (b"\xff\xfen\x00", "job.toml", "line 1 is not UTF-8"),
        (b'name = "x"\ncommand = "\xe9"\n', "job.toml", "line 2 is not UTF-8"),
        (b"name = x", "job.toml: line 1, column 8", 'name = "x"'),
        (b'name = "x"\nname = "y"', "job.toml: ", "twice"),
        (b'name = "x', "job.toml: ", "is not TOML"),
        (b"shell = True", "job.toml: line 1", "shell = true"),
        (b"name: x", "job.toml: line 1", "key = value"),
        ("name = “x”".encode(), "job.toml: line 1", "straight"),
        (b"[submit]\n+Foo = 1", "job.toml: line 2", '"+Foo" = '),
        (b"a = " + b"[" * 100_000, "job.toml", "is not TOML"),
        (b"a = " + b"9" * 10_000, "job.toml", "is not TOML"),
        (b"a\x00b = 1", "job.toml", "is not TOML"),
    ],
)
def test_documents_that_are_not(tmp_path: Path, content: bytes, where: str, words: str) -> None:
    path = tmp_path / "job.toml"
    path.write_bytes(content)
    with pytest.raises(SpecError) as caught:
        load_job(path)
    (problem,) = caught.value.problems
    assert problem.where.startswith(where)
    assert words in str(problem)


def test_byte_order_mark_and_windows_lines(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_bytes(b"\xef\xbb\xbf" + MINIMAL.replace("\n", "\r\n").encode())
    assert load_job(path).name == "n"


def test_missing_file_and_folder(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(MINIMAL)
    for path, words in (
        (tmp_path / "jop.toml", 'did you mean "job.toml"?'),
        (tmp_path / "nowhere" / "job.toml", "no such file"),
        (tmp_path / "job.toml" / "x", "cannot be read"),
        (tmp_path, "is a folder"),
        (tmp_path / "a\0b", "not the name of a file"),
        (tmp_path / ("x" * 300), "cannot be read"),
    ):
        with pytest.raises(SpecError) as caught:
            load_job(path)
        assert words in str(caught.value)


def test_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "job.toml")
    with pytest.raises(SpecError, match="not a regular file"):
        load_job(tmp_path / "job.toml")


@pytest.mark.parametrize("call", ["stat", "read_bytes"])
def test_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "job.toml").write_text(MINIMAL)
    monkeypatch.setattr(Path, call, refuse)
    with pytest.raises(SpecError, match="cannot be read: Permission denied"):
        load_job(tmp_path / "job.toml")


def test_files(load: Load, tmp_path: Path) -> None:
    for name in ("b.py", "a.py", "src/x.py", "src/deep/y.py", "data[1].txt", "ünï.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert load('files = ["*.py", "./a.py"]').files == ("a.py", "b.py")
    assert load('files = ["src/", "src/*.py", "a.py"]').files == ("a.py", "src")
    assert load('files = ["src/**/*.py"]').files == ("src/deep/y.py", "src/x.py")
    assert load('files = ["data[1].txt", "ü*"]').files == ("data[1].txt", "ünï.txt")


def test_bad_files(wrong: Wrong, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "plan.json").write_text("")
    (tmp_path / "dangling").symlink_to("nothing")
    os.mkfifo(tmp_path / "pipe")
    problems = wrong(
        'files = ["trian.py", "*.txt", "/etc/passwd", "../x", "", "plan.*", "dangling", "pipe", 3,'
        ' ".", "a\\\\b", "a\\u0000b", "{a,b}.py"]'
    )
    words = [
        'did you mean "train.py"?', "matches nothing", "relative", "leaves", "empty", "used by",
        "leads nowhere", "neither", "should be text", "folder itself", "backslash", "control",
        "no file",
    ]  # fmt: skip
    assert [problem.where for problem in problems] == [
        f"job.toml: files[{index}]" for index in range(len(words))
    ]
    for problem, word in zip(problems, words, strict=True):
        assert word in str(problem)
        assert problem.remedy


def test_files_is_a_list(wrong: Wrong) -> None:
    (problem,) = wrong('files = "a.py"')
    assert problem.remedy == 'write ["a.py"]'


@pytest.mark.parametrize("path", ["a.py", "src/x.py", "src", "a.py/b"])
def test_an_input_must_not_hide_a_file(wrong: Wrong, tmp_path: Path, path: str) -> None:
    (tmp_path / "a.py").write_text("")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "x.py").write_text("")
    (problem,) = wrong(
        f'files = ["a.py", "src"]\ninputs = [{{url = "http://a/b", path = "{path}"}}]'
    )
    assert "would hide" in problem.what


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ('inputs = [{url = "http://a/t.tar", unpack = true}, "http://a/t"]', "another input"),
        ('inputs = [{url = "http://a/t.tar", unpack = true}, "http://b/t.tar"]', "another input"),
        (
            'inputs = [{url = "http://a/t.tar", unpack = true},{url = "http://a/b", path = "t/b"}]',
            "lies within",
        ),
        ('files = ["t"]\ninputs = [{url = "http://a/t.tar", unpack = true}]', "would hide"),
        ('files = ["t.tar"]\ninputs = [{url = "http://a/t.tar", unpack = true}]', "would hide"),
        (
            'inputs = [{url = "http://a/t.tar", unpack = true}]\n[checkpoint]\npaths = ["t/state"]',
            "unpacked anew",
        ),
    ],
)
def test_what_is_unpacked_takes_no_other_place(
    wrong: Wrong, tmp_path: Path, document: str, words: str
) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "x").write_text("")
    (tmp_path / "t.tar").write_text("")
    assert words in wrong(document)[0].what


def test_an_input_beside_files(load: Load, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    load('files = ["src"]\ninputs = [{url = "http://a/b", path = "src/data.bin"}]')


def test_container_file(load: Load, tmp_path: Path) -> None:
    (tmp_path / "image.sif").write_text("")
    assert load('container = "image.sif"').container == "image.sif"


def test_relative_path_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "job.toml").write_text(MINIMAL + 'files = ["job.toml"]')
    monkeypatch.chdir(tmp_path)
    assert load_job("job.toml").files == ("job.toml",)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"name": 3}', "nonsense", '{"a": NaN}'])
def test_damaged_job_json(text: str) -> None:
    with pytest.raises(SpecError, match=r"job\.json"):
        load_resolved(text)


_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
_VALUES = st.recursive(
    _SCALARS.filter(lambda value: value is not None),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
_KEYS = st.sampled_from([*headway.spec.Job.model_fields, "table", "x"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.dictionaries(_KEYS, _VALUES, max_size=6))
def test_any_document_is_a_job_or_a_list_of_problems(
    tmp_path: Path, document: dict[str, object]
) -> None:
    try:
        build_job(document, folder=tmp_path)
    except SpecError as error:
        assert error.problems
        for problem in error.problems:
            assert "\n" not in problem.where


def test_exports() -> None:
    assert sorted(headway.spec.__all__) == list(headway.spec.__all__)
    assert all(hasattr(headway.spec, name) for name in headway.spec.__all__)


def test_import_brings_nothing_heavy() -> None:
    code = (
        "import sys, headway.spec;"
        "print([m for m in ('rich', 'htcondor2', 'difflib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("name", "text"),
    [("train.py", "import torch\n"), ("train.sub", "executable = run.sh\nqueue\n")],
)
def test_a_script_in_the_place_of_a_job_toml(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(SpecError, match=f"`headway init {name}` writes a job.toml"):
        load_job(tmp_path / name)
