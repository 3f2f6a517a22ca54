"""The reader of submit descriptions, by itself and against HTCondor's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.pool.lint.submit_file import canonical, read, split_files, split_list

SUBS = sorted((Path(__file__).parent / "subs").glob("*.sub"))


def keys(text: str) -> dict[str, str]:
    return {s.key: s.value for s in read(text).statements if s.kind == "assign"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 1\n", {"a": "1"}),
        ("  A  =  1 2  \n", {"A": "1 2"}),
        ("a=1=2\n", {"a": "1=2"}),
        ("+A = 1\nMY.B=2\n", {"+A": "1", "MY.B": "2"}),
        ("a = 1 \\\n  2\n", {"a": "1 2"}),
        ("a = 1 \\ \n  2\n", {"a": "1 2"}),  # HTCondor takes blanks after a backslash
        ("a = 1 \\\n# c \\\n  2\n", {"a": "1 2"}),
        ("a = 1 \\\n\nb = 2\n", {"a": "1", "b": "2"}),
        ("# a \\\nb = 2\n", {"b": "2"}),
        ("a @=end\n x\n y = 2\n @end\nb=1\n", {"a": "x\ny = 2", "b": "1"}),
        ("a = 1\r\nb = \\\r\n 2\r\n", {"a": "1", "b": "2"}),
        ("queued = 1\nif_x = 2\ninclude_me = 3\n", {"queued": "1", "if_x": "2", "include_me": "3"}),
        ("a = 1", {"a": "1"}),
        ("", {}),
    ],
)
def test_assignments(text: str, expected: dict[str, str]) -> None:
    assert keys(text) == expected


@pytest.mark.parametrize(
    ("text", "first", "last", "count"),
    [
        ("a=1\nqueue\n", 2, 2, 1),
        ("a=1\n  QUEUE 5\n", 2, 2, 1),
        ("queue x in (a\n b\n c\n)\na=1\nqueue\n", 1, 4, 2),
        ("queue x in (a b)\na=1\n", 1, 1, 1),
        ("queue x from (\nqueue 3\n)\n", 1, 3, 1),
        ("queue x from (\nqueue 3\n", 1, 2, 1),
        ("a @=e\nqueue\n@e\nqueue\n", 4, 4, 1),
        ("a = 1 \\\nqueue\nqueue 2\n", 3, 3, 1),
        ("# queue\nqueue\n", 2, 2, 1),
    ],
)
def test_queues(text: str, first: int, last: int, count: int) -> None:
    file = read(text)
    queues = [s for s in file.statements if s.kind == "queue"]
    assert len(queues) == count
    assert (queues[0].first, queues[0].last) == (first, last)


def test_the_last_assignment_before_the_queue_holds_under_any_name() -> None:
    file = read("WhenToTransferOutput = a\nwhen_to_transfer_output = b\nqueue\nx=1\n")
    assert file.value("when_to_transfer_output") == "b"
    assert file.value("x") == ""
    assert read('+JobDurationCategory = "Long"\n').value("JobDurationCategory") == '"Long"'
    assert read("UserLog = x\n").value("log") == "x"
    assert canonical("MY.Request_Cpus") == canonical("RequestCpus")


def test_macros_of_the_file_are_filled_in() -> None:
    file = read("d = data\nf = $(d)/x.$(Process)\ng = $(none:y)\nh = $(h) 1\n+D = 2\n")
    assert file.value("f") == "data/x.$(Process)"
    assert file.value("g") == "y"
    assert file.value("h") == "$(h) 1"


def test_lists() -> None:
    assert split_list(' "a, b  c" ') == ["a", "b", "c"]
    assert split_files("a b.txt, c,") == ["a b.txt", "c"]


@pytest.mark.parametrize("path", SUBS, ids=lambda path: path.name)
def test_lines_are_the_file(path: Path) -> None:
    text = path.read_text()
    file = read(text)
    assert "".join(file.lines) == text
    covered = [n for s in file.statements for n in range(s.first, s.last + 1)]
    assert covered == list(range(1, len(file.lines) + 1))


LINES = st.sampled_from(
    [
        *("foo = 1", "Bar=2 \\", "  baz  =  a b  ", "# c", "# c \\", "", "  ", '+Foo = "x"'),
        *("MY.Bar = 3", "x @=e", "@e", "q_z = 7\\", "\\", "queue", "queue 3", "Queue x in ("),
        *("a b", ")", "queued = 3", "9a = 4", "foo.x = 3", "k=v\r", " \\ ", "else=2"),
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(LINES, max_size=8))
def test_as_htcondor_reads_it(lines: list[str]) -> None:
    htcondor2 = pytest.importorskip("htcondor2")
    text = "\n".join([*lines, "last = 1\n"])
    try:
        theirs = dict(htcondor2.Submit(text))
    except ValueError:
        return  # HTCondor refuses it
    file = read(text)
    queue = file.first_queue
    ours = {
        s.key.lower().replace("+", "my.")
        for s in file.statements
        if s.kind == "assign" and (queue is None or s.first < queue.first)
    }
    assert ours == {key.lower() for key in theirs}
