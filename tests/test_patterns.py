"""Every regular expression of the package, against texts that are made to slow it down.

A pattern that tries the same characters again and again takes the square of a text, or its cube:
a line of some hundred kilobytes in a log, a header or a script is then enough to stop a command.
From each pattern this makes texts that lead into its repeats and then fail, and asks for the
processor time that they take. A pattern that is quick only because its text is short stands in
SHORT, with what keeps the text short.
"""

from __future__ import annotations

import ast
import functools
import importlib
import math
import pkgutil
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headway

try:
    from re import _constants as sre  # type: ignore[attr-defined]
    from re import _parser as parser  # type: ignore[attr-defined]
except ImportError:  # before Python 3.11
    import sre_constants as sre
    import sre_parse as parser

#: Characters of a text, and how many times as many the second one has.
LENGTH, TIMES = 300, 4
#: Seconds of a processor: what takes less is not measured again.
QUICK = 0.0002
#: A linear pattern takes 4 times as long for the second text, a quadratic one 16 times.
TOO_STEEP, TOO_LONG = 9.0, 0.002
CERTAIN = 0.5  # whatever else the machine did
MANY = 50

SHORT = {
    "headway.holds.reason._MASK": "reasons are cut at 2,000 characters",
    "headway.cli.draft._SHEBANG": "a script's first 300 characters",
    "headway.check.trials._FLOAT": "lines are cut at 1,000 characters",
    "headway.check.trials._TIMES": "lines are cut at 1,000 characters",
    "headway.check.trials.label": "lines are cut at 1,000 characters",
    "headway.node.transfer.urls._IN_TEXT": "a server's words are cut at 3,200 characters",
    "headway.node.transfer.urls._TOKEN_IN_TEXT": "a server's words are cut at 3,200 characters",
    "headway.spec.files._AT": "the words of a TOML reader's own error",
}
#: Patterns that are handed on to somebody who uses them with this method.
ANY_WAY = {"match", "search", "fullmatch"}
_MATCHED = "_BYTES _SIZE _USAGE _NORMAL _SIGNAL _FIRST _NEXT _HEREDOC _BRANCH _OTHER"
_MATCHED += " _CODES _EVICTED_CODES _ENDING"
HANDED_ON = {name: {"match"} for name in _MATCHED.split()}
#: How often a method looks at a text from each of its places.
SEARCHES = ("search", "sub", "subn", "split", "findall", "finditer")


def modules() -> list[str]:
    found = (info.name for info in pkgutil.walk_packages(headway.__path__, "headway."))
    return [name for name in found if not name.endswith("__main__")]


class Uses(ast.NodeVisitor):
    """The patterns of a module, and the methods that they are used with."""

    def __init__(self) -> None:
        self.methods: dict[str, set[str]] = {}
        self.direct: list[tuple[str, str, str]] = []  # where, method, pattern
        self._inside = ""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        before, self._inside = self._inside, node.name
        self.generic_visit(node)
        self._inside = before

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in (*SEARCHES, "match", "fullmatch"):
            named = node.value
            while isinstance(named, (ast.Subscript, ast.Call)):
                named = named.value if isinstance(named, ast.Subscript) else named.func
            name = getattr(named, "attr", getattr(named, "id", ""))
            self.methods.setdefault(str(name), set()).add(node.attr)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        of = node.func
        if isinstance(of, ast.Attribute) and getattr(of.value, "id", "") == "re" and node.args:
            text = node.args[0]
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                self.direct.append((self._inside, of.attr, text.value))
        self.generic_visit(node)


def patterns() -> Iterator[tuple[str, re.Pattern[Any], set[str]]]:
    for name in modules():
        try:
            module = importlib.import_module(name)
        except ImportError:  # torch is not there
            continue
        uses = Uses()
        uses.visit(ast.parse(Path(str(module.__file__)).read_text()))
        for key, value in members_of(module):
            for one in kept(value):
                # One that is only handed on may be used with any of them.
                methods = uses.methods.get(key) or HANDED_ON.get(key) or ANY_WAY
                yield f"{name}.{key}", one, methods
        for inside, method, text in uses.direct:
            if inside and method != "compile" and method != "escape":
                yield f"{name}.{inside}", re.compile(text), {method}


def members_of(module: object) -> Iterator[tuple[str, object]]:
    """The names of a module and of its classes, with what they stand for."""
    for key, value in vars(module).items():
        if isinstance(value, type) and value.__module__.startswith("headway"):
            yield from (pair for pair in vars(value).items() if not pair[0].startswith("__"))
        else:
            yield key, value


def kept(value: object, depth: int = 0) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, (tuple, list)) and depth < 3:
        for one in value:
            yield from kept(one, depth + 1)
    elif isinstance(value, dict) and depth < 3:
        yield from kept(list(value.values()), depth + 1)


LETTERS = "a1 \t.,:;=-_/\\\"'()[]{}<>@#%+*?!|&$~^`xe\n\0\x80"


@functools.cache
def members(items: tuple[tuple[Any, Any], ...]) -> list[str]:
    """Some letters of a class."""
    source = "".join(LETTERS)
    found = []
    for letter in source:
        inside = any(_is(letter, op, what) for op, what in items if op is not sre.NEGATE)
        if inside != any(op is sre.NEGATE for op, _ in items):
            found.append(letter)
    for op, what in items:
        if op is sre.LITERAL and not any(o is sre.NEGATE for o, _ in items):
            found.append(chr(what))
        elif op is sre.RANGE and not any(o is sre.NEGATE for o, _ in items):
            found.append(chr(what[0]))
    return list(dict.fromkeys(found)) or ["a"]


def _is(letter: str, op: Any, what: Any) -> bool:
    if op is sre.LITERAL:
        return bool(ord(letter) == what)
    if op is sre.RANGE:
        return bool(what[0] <= ord(letter) <= what[1])
    name = str(what)
    of = {"DIGIT": letter.isdigit(), "SPACE": letter.isspace(), "WORD": letter.isalnum()}
    of["WORD"] |= letter == "_"
    found = next((yes for key, yes in of.items() if name.endswith(key)), False)
    return found != ("NOT" in name)


def sample(tree: Any, which: int = 0) -> str:
    """A text that the pattern, or a part of it, matches; mostly."""
    made = ""
    for op, what in tree:
        if op is sre.LITERAL:
            made += chr(what)
        elif op is sre.NOT_LITERAL:
            made += "b" if what == ord("a") else "a"
        elif op is sre.ANY:
            made += "a"
        elif op is sre.IN:
            letters = members(tuple(what))
            made += letters[which % len(letters)]
        elif op is sre.BRANCH:
            made += sample(what[1][which % len(what[1])], which)
        elif op is sre.SUBPATTERN:
            made += sample(what[-1], which)
        elif op in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            made += sample(what[2], which) * max(what[0], 1)
    return made


def repeats(tree: Any, before: str = "") -> Iterator[tuple[str, set[str]]]:
    """What leads to each repeat without an end, and some of what it repeats."""
    for op, what in tree:
        if op in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            inner = what[2]
            if what[1] > MANY:
                bodies = {sample(inner, which) for which in range(4)}
                if len(inner) == 1 and inner[0][0] is sre.IN:
                    bodies |= set(members(tuple(inner[0][1]))[:12])
                elif len(inner) == 1 and inner[0][0] in (sre.ANY, sre.NOT_LITERAL):
                    bodies |= set('a1 ."=/') - {chr(inner[0][1] or 0)}
                yield before, {body for body in bodies if body}
            yield from repeats(inner, before)
        elif op is sre.SUBPATTERN:
            yield from repeats(what[-1], before)
        elif op is sre.BRANCH:
            for branch in what[1]:
                yield from repeats(branch, before)
        before += sample([(op, what)])


def attacks(pattern: re.Pattern[Any]) -> Iterator[Any]:
    text = (
        pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    )
    tree = parser.parse(text, pattern.flags & ~re.UNICODE)
    found = list(repeats(tree))
    heads = {""} | {before for before, _ in found}
    pumps = {body for _, bodies in found for body in bodies}
    pairs = {(before, body) for before, bodies in found for body in bodies}
    pairs |= {("", pump) for pump in pumps} | {("", head + pump) for head, pump in set(pairs)}
    pairs |= {("", head) for head in heads if head}
    for before, pump in sorted(pairs):
        for after in ("", "!", "\n"):
            yield before, pump, after


def seconds(pattern: re.Pattern[Any], way: str, parts: tuple[str, str, str], length: int) -> float:
    before, pump, after = parts
    made = before + pump * (length // len(pump) + 1) + after
    text: Any = made if isinstance(pattern.pattern, str) else made.encode("latin-1", "replace")
    look = getattr(pattern, way)
    begin = time.process_time()
    look(text)
    return time.process_time() - begin


def slow(pattern: re.Pattern[Any], methods: set[str]) -> str:
    """What it is slow for, and how slow; empty if it is not."""
    ways = {"search" if method in SEARCHES else method for method in methods}
    for parts in attacks(pattern):
        for way in sorted(ways & {"search", "match", "fullmatch"}):
            if seconds(pattern, way, parts, LENGTH) < QUICK:
                continue
            # Measured again and again: somebody else may have had the processor's cache.
            once = min(seconds(pattern, way, parts, LENGTH) for _ in range(3))
            limit, four = max(TOO_LONG, TOO_STEEP * once), math.inf
            for _ in range(4):
                four = min(four, seconds(pattern, way, parts, TIMES * LENGTH))
                if not limit < four < CERTAIN:
                    break
            if four > limit:
                return f"{way}: {1000 * once:.1f} ms, then {1000 * four:.1f} ms for {parts!r}"
    return ""


def test_no_pattern_takes_the_square_of_a_text() -> None:
    found = {}
    seen: set[tuple[Any, int, frozenset[str]]] = set()
    for name, pattern, methods in patterns():
        key = (pattern.pattern, pattern.flags, frozenset(methods))
        if key in seen or name in SHORT:
            continue
        seen.add(key)
        found[name] = slow(pattern, methods)
    assert not any(found.values()), "\n".join(f"{k}: {v}" for k, v in found.items() if v)
    assert len(seen) > 150


@pytest.mark.parametrize(
    "pattern",
    [r"\s*=\s*(.*\S)\s*\Z", r"[0-9]+\.?[0-9]*x", r"(\w+)\s*=", r"(\w+):[ \t]*(.*?)[ \t]*\Z"],
)
def test_a_quadratic_pattern_is_seen(pattern: str) -> None:
    assert slow(re.compile(pattern), {"search"})


@pytest.mark.parametrize("pattern", [r"\b(\w+)\s*=", r"[a-z]{1,200}=", r"<[^<>]*>"])
def test_a_linear_pattern_is_not(pattern: str) -> None:
    assert not slow(re.compile(pattern), {"search"})
