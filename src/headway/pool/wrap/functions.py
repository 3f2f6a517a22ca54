"""What the functions of macros make of a text: `$Fpn(…)`, `$INT(…)`, `$STRING(…)` and sums."""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable


class Unknown(Exception):
    """A text that nobody can know before HTCondor has the job; says why."""


def path_parts(path: str, letters: str, base: str = "") -> str:
    """`$Fpdnx(…)`: what condor_submit makes of a path on Linux.

    Args:
        path: the path.
        letters: which parts to keep, in small letters.
        base: the folder of a relative path, where the whole path is asked for.
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


def text_in_form(form: str, shown: str) -> Callable[[str], str]:
    """`$STRING(name,format)`: the text without the quotes of a ClassAd string."""

    def change(text: str) -> str:
        bare = text[1:-1] if re.fullmatch(r'"[^"\\]*"', text) else text
        if not form:
            return bare
        if not re.fullmatch(r"[^%]*%-?\d{0,4}(?:\.\d{1,4})?s[^%]*", form):
            raise Unknown(f"{shown}: {form} is not a format of one text")
        return form % bare

    return change


def named_part(function: str, suffix: str) -> Callable[[str], str]:
    """`$DIRNAME(…)`, or `$BASENAME(…)` without an ending that is named."""
    if function == "DIRNAME":
        return lambda path: "".join(path.rpartition("/")[:2])
    return lambda path: path.rpartition("/")[2].removesuffix(suffix)


def number_in_form(function: str, form: str, shown: str) -> Callable[[str], str]:
    """`$INT(…)` or `$REAL(…)`, in a format such as `%03d`; `shown` is how it stands in the file."""

    def change(text: str) -> str:
        value = arithmetic(text)
        if value is None:
            raise Unknown(f"{shown}: {text} is not a number")
        if form and not re.fullmatch(
            r"[^%]*%[-+ 0#]*(?:[1-9]\d?)?(?:\.\d{1,2})?[dixXoeEfgG][^%]*", form
        ):
            raise Unknown(f"{shown}: {form} is not a format of one number")
        if function == "INT":
            return (form or "%d") % int(value)
        text = (form or "%.16G") % float(value)
        return f"{text}.0" if form and "." not in text else text

    return change


def whole_number(shown: str) -> Callable[[str], str]:
    """`$EVAL(…)`, as far as it is sums of whole numbers."""

    def change(text: str) -> str:
        value = str(arithmetic(text))
        if not value.removeprefix("-").isdecimal():
            raise Unknown(f"{shown}: only HTCondor evaluates it")
        return value

    return change


def _divide(left: float, right: float) -> float:
    """As ClassAds do: whole numbers stay whole, and what is left over is dropped."""
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
