"""`headway wrap`: what it adds, what it leaves, and what HTCondor makes of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.errors import HeadwayError
from headway.pool import policy
from headway.pool.lint.submit_file import canonical, read
from headway.pool.lint.wrap import BEGIN, END, wrap, wrap_file
from headway.spec import Retries

SUBS = sorted((Path(__file__).parent / "subs").glob("*.sub"))
CRLF = "executable = run.bat\r\n# win \\\r\nrequest_disk = \\\r\n  2 GB\r\n\r\nQUEUE 3\r\n"
TEXTS = [
    *(pytest.param(path.read_text(), id=path.stem) for path in SUBS),
    pytest.param(CRLF, id="crlf"),
    pytest.param("executable = a", id="one line, no end"),
    pytest.param("executable = a \\", id="ends in a backslash"),
    pytest.param("", id="empty"),
    pytest.param("queue", id="queue alone"),
    pytest.param('+Requirements = X\n+UserLogExecuteEventAttrs = "A"\nqueue\n', id="ad attributes"),
    pytest.param("Requirements =\nexecutable = a\nqueue\n", id="empty requirements"),
]


def is_subsequence(lines: list[str], of: list[str]) -> bool:
    rest: Iterator[str] = iter(of)
    return all(line in rest for line in lines)


def split(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+\Z", text)


def check_survival(text: str) -> None:
    wrapped = wrap(text)
    before, begin, rest = wrapped.text.partition(BEGIN)
    after = rest.partition(END)[2].partition("\n")[2] if begin else ""
    assert begin or wrapped.text == wrapped.original
    if wrapped.text != wrapped.original:
        # Nothing but the block was added, save a line end where the file had none.
        assert text.startswith(before.rstrip("\r\n"))
        assert before + after in (text, f"{text}\n", f"{text}\r\n", f"{text}\n\n") or (
            is_subsequence(split(text), split(before + after))
        )
    assert is_subsequence(split(text)[:-1], split(wrapped.text))
    assert wrapped.text.count(BEGIN) == text.count(BEGIN) + (wrapped.text != wrapped.original)


def check_idempotence(text: str) -> None:
    once = wrap(text)
    twice = wrap(once.text)
    assert twice.text == twice.original, twice.diff()
    assert twice.added == ()


@pytest.mark.parametrize("text", TEXTS)
def test_every_line_survives(text: str) -> None:
    check_survival(text)


@pytest.mark.parametrize("text", TEXTS)
def test_wrapping_twice_adds_nothing(text: str) -> None:
    check_idempotence(text)


LINES = st.sampled_from(
    [
        *("executable = a", "log = x", "LOG=y", "UserLog = z", "# comment", "# c \\", "", "  "),
        *("requirements = A || B", "Requirements=A && \\", "  B", "+Requirements = X"),
        *("ulog_execute_attrs = A, B", "ulog_execute_attrs = $(x), C", "job_machine_attrs = Q"),
        *("job_ad_information_attrs = RemoteHost", "max_retries = 3", "on_exit_remove = true"),
        *("periodic_release = false", "if defined z", "else", "endif", "include : common"),
        *("queue", "queue 3", "queue a in (1 2)", "queue a from (", "1, 2", ")", "x @=e", "@e"),
        *("a = b \\", "a\tb", "k = é\x0c\x85", "universe = local", "crlf = 1\r", "\\", BEGIN, END),
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(LINES, max_size=12), st.sampled_from(["", "\n"]))
def test_any_line_survives(lines: list[str], end: str) -> None:
    text = "\n".join(lines) + end
    wrapped = wrap(text)
    assert is_subsequence(split(text)[:-1], split(wrapped.text))
    assert (
        wrapped.text.replace("\r", "")
        .replace("\n", "")
        .find("".join(split(text)[-1:]).strip("\r\n"))
        >= 0
    )
    check_idempotence(text)


@pytest.mark.parametrize("text", TEXTS)
def test_the_block_stands_before_the_first_queue(text: str) -> None:
    wrapped = wrap(text)
    file = read(wrapped.text)
    if wrapped.text != wrapped.original and file.first_queue is not None:
        block = next(n for n, line in enumerate(file.lines, 1) if line.strip() == BEGIN)
        assert block < file.first_queue.first


def test_what_is_added_to_a_bare_file() -> None:
    wrapped = wrap("executable = a\nqueue\n", "train")
    assert wrapped.added == (
        "log",
        "ulog_execute_attrs",
        "job_machine_attrs",
        "job_machine_attrs_history_length",
        "job_ad_information_attrs",
        "periodic_release",
        "max_retries",
        "+HeadwayAvoid",
        "+HeadwayAvoided",
        "requirements",
    )
    file = read(wrapped.text)
    assert file.value("log") == "train.events.log"
    assert file.value("requirements") == policy.NOT_AVOIDED
    assert file.value("+HeadwayAvoid") == policy.avoid_lines(Retries())["+HeadwayAvoid"]
    for bound in ("NumHolds", "NumShadowStarts", "EnteredCurrentStatus"):
        assert bound in file.value("periodic_release")
    assert "NumJobStarts" not in wrapped.text


def test_what_is_there_is_kept_or_joined() -> None:
    text = (
        "log = mine.log\nulog_execute_attrs = A\nrequirements = X || Y\nmax_retries = 7\n"
        "periodic_release = NumHolds < 3\njob_machine_attrs = GLIDEIN_ResourceName, B\nqueue\n"
    )
    wrapped = wrap(text)
    file = read(wrapped.text)
    assert "ulog_execute_attrs = A, GLIDEIN_ResourceName\n" in wrapped.text
    assert file.value("max_retries") == "7"
    assert file.value("log") == "mine.log"
    assert file.value("periodic_release") == "NumHolds < 3"
    assert file.value("job_machine_attrs") == "GLIDEIN_ResourceName, B, Machine, Name"
    assert "requirements = ($(requirements:True)) && " in wrapped.text
    assert "periodic_release is yours and was left alone" in wrapped.notes


def test_attributes_of_the_ad_stay_strings() -> None:
    wrapped = wrap('+JobMachineAttrs = "A"\nqueue\n')
    assert '+JobMachineAttrs = "A, GLIDEIN_ResourceName, Machine, Name"\n' in wrapped.text


def test_an_own_rule_for_the_end_is_left_alone() -> None:
    wrapped = wrap("on_exit_remove = ExitCode == 3\nqueue\n")
    assert "max_retries" not in wrapped.added
    assert any("max_retries" in note for note in wrapped.notes)


def test_no_sites_no_avoidance() -> None:
    wrapped = wrap("universe = local\nqueue\n")
    assert wrapped.added == ("log",)


def test_later_queues_are_told_of() -> None:
    text = (Path(__file__).parent / "subs" / "two-queues.sub").read_text()
    assert any("line 10 sets requirements" in note for note in wrap(text).notes)


def test_line_ends_are_the_files_own() -> None:
    assert "\n" not in wrap(CRLF).text.replace("\r\n", "")
    assert "\r" not in wrap("executable = a\nqueue\n").text


def test_diff_adds_and_removes_nothing() -> None:
    for path in SUBS:
        body = [line for line in wrap(path.read_text()).diff().split("\n")[2:] if line]
        assert not [line for line in body if line.startswith("-")]
        assert [line for line in body if line.startswith("+")]


# -- files


def test_writes_beside_the_original_and_never_over_it(tmp_path: Path) -> None:
    original = b"executable = a\n# caf\xe9\nqueue\n"
    path = tmp_path / "job.sub"
    path.write_bytes(original)
    target, wrapped = wrap_file(path)
    assert target == tmp_path / "job.headway.sub"
    assert path.read_bytes() == original
    assert b"# caf\xe9\n" in target.read_bytes()
    assert "job.events.log" in wrapped.text
    with pytest.raises(HeadwayError, match="exists already"):
        wrap_file(path)
    with pytest.raises(HeadwayError, match="the original itself"):
        wrap_file(path, path)
    wrap_file(path, overwrite=True)
    wrap_file(path, path, overwrite=True)
    assert BEGIN.encode() in path.read_bytes()


def test_a_missing_file_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(HeadwayError, match="cannot be read"):
        wrap_file(tmp_path / "none.sub")


# -- HTCondor's own reader


@pytest.fixture(scope="module")
def htcondor2() -> Any:
    return pytest.importorskip("htcondor2")


def expanded(submit: Any, key: str) -> str:
    try:
        return str(submit.expand(key))
    except KeyError:  # of a value that is empty once expanded
        return ""


JOINED = {canonical(key) for key in ("requirements", *policy.log_lines())}


@pytest.mark.parametrize("text", TEXTS)
def test_htcondor_reads_the_same_values(text: str, htcondor2: Any) -> None:
    if "include" in text:
        text = text.replace("include ifexist : common.sub\n", "base_attrs = Z\n")
    before = htcondor2.Submit(text)
    after = htcondor2.Submit(wrap(text).text)
    assert after.getQArgs() == before.getQArgs()
    for key in before:
        if canonical(key) not in JOINED and not text.endswith("\\"):
            assert expanded(after, key) == expanded(before, key), key


@pytest.mark.parametrize("text", TEXTS)
def test_what_was_joined_holds_both(text: str, htcondor2: Any) -> None:
    if "include" in text:
        text = text.replace("include ifexist : common.sub\n", "base_attrs = Z\n")
    before = {canonical(key): value for key, value in htcondor2.Submit(text).items()}
    submit = htcondor2.Submit(wrap(text).text)
    after = {canonical(key): value for key, value in submit.items()}
    for key in JOINED & set(before):
        for part in re.split(r"[\s,\"]+", before[key]):
            assert part in after[key]


def test_conditions_decide_when_htcondor_reads_the_file(htcondor2: Any) -> None:
    text = (Path(__file__).parent / "subs" / "conditional.sub").read_text()
    wrapped = wrap(text).text
    plain = htcondor2.Submit(wrapped)
    assert plain.expand("requirements").startswith("(HasCPU || HasMoreCPU) && ")
    assert plain.expand("log") == "job.events.log"
    with_gpu = htcondor2.Submit(f"gpu = 1\n{wrapped}")
    assert with_gpu.expand("requirements").startswith("(HasGPU) && ")
    assert with_gpu.expand("log") == "gpu.log"


def test_lists_are_joined_when_htcondor_reads_the_file(htcondor2: Any) -> None:
    text = "if defined z\n  job_machine_attrs = A\nendif\nqueue\n"
    wrapped = wrap(text).text
    ours = "GLIDEIN_ResourceName, Machine, Name"
    assert htcondor2.Submit(wrapped).expand("job_machine_attrs") == ours
    defined = htcondor2.Submit(f"z = 1\n{wrapped}")
    assert defined.expand("job_machine_attrs") == f"A, {ours}"


def test_htcondor_understands_the_expressions(htcondor2: Any) -> None:
    classad2 = pytest.importorskip("classad2")
    file = htcondor2.Submit(wrap("executable = a\nrequirements = X || Y\nqueue\n").text)
    for key in ("requirements", "periodic_release"):
        classad2.ExprTree(file.expand(key))


@pytest.mark.parametrize("text", TEXTS)
def test_wrapped_text_has_no_statement_of_an_unknown_kind(text: str) -> None:
    known = [s for s in read(text).statements if s.kind == "other"]
    assert len([s for s in read(wrap(text).text).statements if s.kind == "other"]) == len(known)
