"""Submit descriptions evaluated, beside HTCondor's own reader; nothing is ever run."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.errors import ConversionError
from headway.pool.lint.evaluate import evaluate, plain, template
from headway.pool.lint.submit_file import Unknown, arithmetic

htcondor2 = pytest.importorskip("htcondor2")

MACROS = """\
x = 5
f = /a/b/c.txt
g = .hidden
h = a/b/
n = $(x)$(x)
x = 6
later = $(n)
n2 = one
n2 = $(n2) two
if defined x
  y = yes
else
  y = no
endif
if ! defined nothing
  z = unset
elif true
  z = wrong
endif
if version >= 9.0
  v = new
endif
if $(x)
  w = number
endif
long = a \\
   b
empty =
s = "in quotes"
two = 2
list = p,q , r
e = 7/2*2
deep = a/b/c/d.tar.gz
"""
TEXTS = [
    "$(x) $(later) $(n2) $(y) $(z) $(v) $(w) $(long)",
    "$(nothing:else) $(nothing:) $(DOLLAR)(x)",
    "$Fn(f) $Fp(f) $Fx(f) $Fnx(f) $Fd(f) $Fpn(f) $Fdb(f) $Fpb(f) [$Fb(f)] [$Fxb(f)] $Fq(f)",
    "[$Fnx(g)|$Fn(g)|$Fx(g)] [$Fp(h)|$Fn(h)|$Fd(h)]",
    "$BASENAME(f) $BASENAME(f,.txt) $DIRNAME(f)",
    "$INT(x) $INT(x,%03d) $REAL(x) $INT(x,%x)",
    "[$(empty:else)] [$(empty)]",
    "$SUBSTR(f,2,3) $SUBSTR(f,-3) [$SUBSTR(none,1)] $SUBSTR(f,1,-2) $SUBSTR(f,two,two)",
    "$CHOICE(1,a,b,c) $CHOICE(two,list)",
    "$STRING(s) [$STRING(s,%12s)] $STRING(f) $EVAL(e) $INT(e) $REAL(e,%g)",
    "$Fdd(deep) $Fddb(deep) $Fdn(deep) $Fqa(deep) $Fnx(deep) $FNX(deep) $Fpw(deep) $Fw(deep)",
    "$ENV(HEADWAY_TEST_SET) $ENV(HEADWAY_TEST_NOT:a default) $ENV(HEADWAY_TEST_SET:x)/y",
]
QUEUES = [
    "queue x in (a b, c)",
    "queue 2 x in (a b)",
    "queue x in a, b",
    "queue x in (\n a b\n # not this\n c,d\n)",
    "queue in (a b)",
    "queue a, b from (\n1, 2\n# not this\n3 4 5\n)",
    "queue a,b,c from (\n 1  ,2\t3 4 \n)",
    "queue x from (\n a b \n c\n)",
    "queue x matching *.txt",
    "queue x matching files *.txt, *.dat",
    "queue x matching dirs *",
]


@pytest.mark.parametrize("text", TEXTS)
def test_macros_are_htcondors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADWAY_TEST_SET", "of the shell")
    whole = f"executable = /bin/true\n{MACROS}arguments = {text}\nqueue\n"
    expected = htcondor2.Submit(whole).expand("arguments")
    assert evaluate(whole, tmp_path).text("arguments") == expected


@pytest.mark.parametrize("queue", QUEUES)
def test_rows_are_htcondors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, queue: str) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("b.txt", "a.txt", "c.dat"):
        (tmp_path / name).touch()
    (tmp_path / "folder.txt").mkdir()
    text = f"executable = /bin/true\n{queue}\n"
    submit = htcondor2.Submit(text)
    items = list(submit.itemdata())
    each = 2 if queue.startswith("queue 2") else 1
    expected = [list(item.values()) for item in items for _ in range(each)]
    found = evaluate(text, tmp_path)
    names = list(items[0])
    rows = [[row[name] for name in found.columns[: len(names)]] for row in found.rows]
    assert sorted(rows) == sorted(expected) if "matching" in queue else rows == expected


def test_rows_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "rows.txt").write_text("# lr name\n0.1, a b\n\n0.2 c\n0.3\n")
    found = evaluate("executable = x\nqueue lr, name from rows.txt\n", tmp_path)
    assert found.rows == [
        {"lr": "0.1", "name": "a b"},
        {"lr": "0.2", "name": "c"},
        {"lr": "0.3", "name": ""},
    ]
    part = evaluate("executable = x\nqueue lr from [1:] rows.txt\n", tmp_path)
    assert [row["lr"] for row in part.rows] == ["0.2 c", "0.3"]


def test_what_differs_becomes_a_column(tmp_path: Path) -> None:
    text = (
        "executable = x\nstem = $Fn(file)\n"
        "arguments = $(file) $(stem) $INT(Process,%02d) $(Process) $(Step) {brace}\n"
        "queue 2 file in (d/a.csv d/b.csv)\n"
    )
    found = evaluate(text, tmp_path)
    said = template(found.text("arguments"))
    assert said == "{file} {file_Fn} {job_int} {job} {step} {{brace}}"
    assert [row["file_Fn"] for row in found.rows] == ["a", "a", "b", "b"]
    assert [row["job_int"] for row in found.rows] == ["00", "01", "02", "03"]
    assert plain(found.text("arguments")).startswith("$(file) ")


def test_a_column_that_counts_is_not_taken_for_the_job_s_number(tmp_path: Path) -> None:
    text = "executable = x\narguments = $(Row) $(Step)\nqueue id, n from (\n0 a\n1 b\n)\n"
    found = evaluate(text, tmp_path)
    assert template(found.text("arguments")) == "{job} 0"
    assert found.column("arg1", ["0", "1"]) == found.expand("$(id)")


def test_a_variable_called_job_is_no_job_number(tmp_path: Path) -> None:
    found = evaluate("executable = x\narguments = $(job)\nqueue job in (a b)\n", tmp_path)
    assert template(found.text("arguments")) == "{job_}"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("$(Cluster)", "at submit"),
        ("$(runid)", "nothing in the file sets it"),
        ("$$(Arch)", "machine"),
        ("$ENV(WANDB_API_KEY)", "secret"),
        ("$ENV(NOT_SET_ANYWHERE)", "not set"),
        ("$RANDOM_INTEGER(1,5)", "chance"),
        ("$RANDOM_CHOICE(a,b)", "chance"),
        ("$EVAL(1.5 * 3)", "only HTCondor"),
        ("$NONSENSE(1,5)", "not one that"),
        ("$CHOICE(9,a,b)", "not the place"),
        ("$(a)", "cannot be read"),
        ("$Fn(f)", "way of itself"),
    ],
)
def test_what_cannot_be_known_is_said(tmp_path: Path, text: str, why: str) -> None:
    whole = f"executable = x\na = $(b)\nb = $(a)\nf = $Fn(f)\narguments = {text}\nqueue\n"
    with pytest.raises(Unknown, match=why):
        evaluate(whole, tmp_path).text("arguments")


def test_the_environment_of_the_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA_SET", "cifar")
    found = evaluate("arguments = $ENV(DATA_SET) $ENV(NOT_SET:x)\nqueue\n", tmp_path)
    assert found.text("arguments") == "cifar x"


@pytest.mark.parametrize(
    "queue",
    ["queue a from touch ran |", "queue from touch ran |", "include command : touch ran\nqueue"],
)
def test_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, queue: str) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        found = evaluate(f"executable = x\n{queue}\n", tmp_path)
        assert "program" in found.skipped[0].reason
    except ConversionError as refusal:
        assert "program" in str(refusal)
    assert not (tmp_path / "ran").exists()


def test_included_lines_and_those_that_hold_for_no_job(tmp_path: Path) -> None:
    (tmp_path / "common.inc").write_text("request_memory = 3GB\nmark = in\n")
    found = evaluate(
        "include : common.inc\nexecutable = x\nif $(unknown)\n  a = 1\nendif\nqueue\nb = 2\n",
        tmp_path,
    )
    assert found.text("request_memory") == "3GB"
    assert [each.line for each in found.skipped] == [4, 7]
    (tmp_path / "loop.inc").write_text("include : loop.inc\n")
    with pytest.raises(ConversionError, match="one another"):
        evaluate("include : loop.inc\nqueue\n", tmp_path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("executable = x\nqueue\nqueue\n", "second"),
        ("executable = x\nqueue 0\n", "no job"),
        ("executable = x\nqueue 10000000\n", "more than"),
        ("executable = x\nqueue many\n", "number of jobs"),
        ("executable = x\nqueue a from missing.txt\n", "no file"),
        ("executable = x\nqueue a matching *.nothing\n", "matches"),
        ("executable = x\na @=end\n", "closes"),
        ("if $(what)\nqueue\nendif\n", "only HTCondor knows"),
    ],
)
def test_what_cannot_be_read_as_one_kind_of_job(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ConversionError, match=why):
        evaluate(text, tmp_path)


def test_sums() -> None:
    assert arithmetic("8*1024") == 8192
    assert arithmetic("(2 + 2) / 4 - -1") == 2
    for text in ("", "x", "8 GB", "9**9**9", "1/0", "__import__('os')", "(" * 150):
        assert arithmetic(text) is None
