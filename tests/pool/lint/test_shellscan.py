"""The shell scanner: what runs, on which line, and under which condition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.pool.lint.shell import scan


def words(text: str) -> list[list[str]]:
    return [command.words for command in scan(text).commands if command.words]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b c", [["a", "b", "c"]]),
        ("a; b & c\nd", [["a"], ["b"], ["c"], ["d"]]),
        ("a && b || c | d", [["a"], ["b"], ["c"], ["d"]]),
        ("a \\\n  b", [["a", "b"]]),
        ("a b\\\nc", [["a", "bc"]]),
        ("a # b\nc", [["a"], ["c"]]),
        ("a b#c", [["a", "b#c"]]),
        ("a 'b # ; c' \"d; e\" f\\ g", [["a", "b # ; c", "d; e", "f g"]]),
        ("X=1 a b", [["a", "b"]]),
        ("a > out 2>&1 < in b", [["a", "b"]]),
        ("cat <<EOF > x\nwget y\nEOF\na", [["cat"], ["a"]]),
        ("cat <<-'E O'\n\twget y\n\tE O\na", [["cat"], ["a"]]),
        ("cat <<A <<B\nx\nA\ny\nB\nc", [["cat"], ["c"]]),
        ("if a; then b; elif c; then d; else e; fi", [["a"], ["b"], ["c"], ["d"], ["e"]]),
        ("for x in wget curl; do a $x; done", [["a", "$x"]]),
        ("for x in \\\n  1 2\ndo a; done", [["a"]]),
        ("while a; do b; done", [["a"], ["b"]]),
        ("case $1 in\n -h|--help) a;;\n 'x y') b ;;\n *) c\nesac\nd", [["a"], ["b"], ["c"], ["d"]]),
        ("case $x in (a) b;; esac; c", [["b"], ["c"]]),
        ("f() { a; }\nfunction g { b; }\nfunction h () {\n c\n}", [["a"], ["b"], ["c"]]),
        ("(a; b) && c", [["a"], ["b"], ["c"]]),
        ("x=(wget --foo\n --bar)\na", [["a"]]),
        ("x+=(--foo)\na", [["a"]]),
        ("((i++))\na", [["a"]]),
        ("a $((1 + (2)))", [["a", "$((1 + (2)))"]]),
        ("a ${x:-b c} d", [["a", "${x:-b c}", "d"]]),
        ("[[ -f a && ! -d b ]] || c", [["[[", "-f", "a", "&", "&", "!", "-d", "b", "]]"], ["c"]]),
        ("a <<< 'b; c'", [["a"]]),
        ("! a", [["a"]]),
        ("a <(b c)", [["a"]]),
        ("a &> log", [["a"]]),
    ],
)
def test_commands(text: str, expected: list[list[str]]) -> None:
    assert words(text) == expected


def test_commands_in_substitutions_are_read() -> None:
    script = scan('x=$(a "$(b)")\necho "`c` and $(d \\\n e)"')
    nested = {command.name for command in script.commands if command.nested}
    assert nested == {"a", "b", "c", "d"}


def test_lines_are_counted_through_everything() -> None:
    text = "a 'x\ny' \\\n b\ncat <<E\n1\n2\nE\nc $(\nd\n)\n# e\nf"
    lines = {command.name: command.line for command in scan(text).commands}
    assert lines == {"a": 1, "cat": 4, "c": 8, "d": 9, "f": 12}


def test_conditions_and_surroundings() -> None:
    script = scan("if a && b; then c; fi\nwhile d; do e; done\nfor x in 1; do f; done\ng")
    seen = {c.name: (c.condition, c.within) for c in script.commands}
    assert seen["a"] == seen["b"] == (True, ("if",))
    assert seen["c"] == (False, ("if",))
    assert seen["d"] == (True, ("while",))
    assert seen["f"] == (False, ("for",))
    assert seen["g"] == (False, ())


@given(st.text(alphabet="ab \\\n\t'\"`$(){}[]<>|&;#=-!*", max_size=60))
def test_never_fails_and_always_ends(text: str) -> None:
    script = scan(text)
    assert all(1 <= command.line <= len(script.lines) + 1 for command in script.commands)
