"""A shell script as simple commands: enough of the grammar to know what runs, and where.

It knows continuations, comments, quotes, heredocs, substitutions, pipelines, conditions, loops and
functions. It never fails: whatever it cannot read becomes words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_CONTINUATION = "\\\n"
_OPERATORS = ("&&", "||", ";;&", ";;", ";&", "|&", ";", "&", "|", "(", ")")
_REDIRECTIONS = ("&>>", "&>", "<<<", "<<-", "<<", "<>", ">>", ">&", ">|", "<&", ">", "<")
_OPENERS = {"if", "while", "until", "for", "select", "case", "{"}
_CLOSERS = {"fi", "done", "esac", "}"}
_LEADERS = {"then", "do", "else", "elif", "!", "time", "if", "while", "until", "{"}
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[[^]]*\])?\+?=")


@dataclass
class ShellCommand:
    """One simple command: its words without quotes, and its surroundings."""

    line: int
    words: list[str] = field(default_factory=list)
    before: str = ""  # the operator that joins it to what precedes it
    after: str = ""  # the operator that follows it
    within: tuple[str, ...] = ()  # the if, for, while, until, case, function around it
    condition: bool = False  # stands between `if`, `while`, `until` and its body
    assignments: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)  # files that redirections name
    nested: bool = False  # inside $( ) or backticks

    @property
    def name(self) -> str:
        """The program, without its folder; empty for a bare assignment."""
        return self.words[0].rpartition("/")[2] if self.words else ""

    @property
    def arguments(self) -> list[str]:
        return self.words[1:]

    def operands(self) -> list[str]:
        """The arguments that are not options."""
        return [word for word in self.words[1:] if not word.startswith("-")]

    def has_flag(self, short: str, long: str) -> bool:
        """Whether an option is given, alone or in a group such as -xzf."""
        words = self.words[1:]
        grouped = (word for word in words if re.fullmatch(r"-[A-Za-z]+", word))
        return any(word.split("=")[0] == long for word in words) or any(short in w for w in grouped)


@dataclass(frozen=True)
class Break:
    """A backslash at the end of a line that does not continue the command."""

    kind: str  # "space", "comment" or "blank": what follows it
    line: int  # of the backslash
    next_line: int  # of the text that it cuts off; 0: nothing follows


@dataclass
class ShellScript:
    """The commands of a shell script, in order."""

    lines: list[str]
    commands: list[ShellCommand] = field(default_factory=list)
    breaks: list[Break] = field(default_factory=list)
    joins: list[int] = field(default_factory=list)  # lines that end in a working backslash
    functions: set[str] = field(default_factory=set)

    def text(self, line: int) -> str:
        """A line of the file."""
        return self.lines[line - 1] if 0 < line <= len(self.lines) else ""

    def calls(self, *names: str) -> list[ShellCommand]:
        return [command for command in self.commands if command.name in names]


def scan(text: str) -> ShellScript:
    """Read a script with line ends of any kind."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    script = ShellScript(text.split("\n"))
    _Scanner(text, script).run()
    script.commands = [c for c in script.commands if c.words or c.assignments or c.targets]
    script.commands.sort(key=lambda command: command.line)
    return script


class _Scanner:
    def __init__(self, text: str, script: ShellScript, line: int = 1, nested: bool = False) -> None:
        self.text = text
        self.line = line
        self.at = 0
        self.script = script
        self.nested = nested
        self.open: list[str] = []  # constructs that are not closed yet
        self.conditions: list[bool] = []  # beside each of them: not at its body yet
        self.pattern = False  # the next word is a pattern of `case`
        self.heredocs: list[tuple[str, bool]] = []
        self.command = ShellCommand(line)

    # -- the main loop

    def run(self) -> None:
        self._fresh("")
        while self.at < len(self.text):
            character = self.text[self.at]
            if character == "\n":
                self._end("\n")
                self._newline()
            elif character in " \t\r\f\v":
                self.at += 1
            elif self.text.startswith(_CONTINUATION, self.at):
                self._continuation()
            elif character == "#":
                self._skip_to_line_end()
            elif self.pattern:
                self._case_pattern()
            elif character in "&|<>()" and self._in_test():
                self.command.words.append(character)
                self.at += 1
            elif not self._redirection() and not self._operator():
                self._word()
        self._end("")

    def _fresh(self, before: str) -> None:
        self.command = ShellCommand(
            self.line,
            before=before,
            within=tuple(opener for opener in self.open if opener not in ("{", "(")),
            condition=any(self.conditions),
            nested=self.nested,
        )

    def _push(self, opener: str) -> None:
        self.open.append(opener)
        self.conditions.append(opener in ("if", "while", "until"))

    def _pop(self) -> None:
        if self.open:
            self.open.pop()
            self.conditions.pop()

    def _in_test(self) -> bool:
        return self.command.words[:1] == ["[["] and self.command.words[-1] != "]]"

    def _end(self, operator: str) -> None:
        command = self.command
        if command.words or command.assignments or command.targets:
            command.after = operator
            self.script.commands.append(command)
            self._fresh(operator)
        elif operator not in ("\n", "") or command.before in ("", ";", "\n", "&"):
            self._fresh(operator)
        else:
            self.command.line = self.line  # `&&` at a line's end: the next line goes on

    def _newline(self) -> None:
        self.at += 1
        self.line += 1
        while self.heredocs:
            delimiter, tabs = self.heredocs.pop(0)
            self._skip_heredoc(delimiter, tabs)
        if not (self.command.words or self.command.assignments):
            self.command.line = self.line

    # -- pieces

    def _continuation(self) -> None:
        self.script.joins.append(self.line)
        here = self.line
        self._move(2)
        following = self.script.text(self.line).strip()
        if self.nested or not (self.command.words or self.command.before in ("&&", "||", "|")):
            return
        if following and not following.startswith("#"):
            return
        after = self._next_text(self.line + 1)
        option_follows = self.script.text(after).lstrip().startswith("-")
        if following.startswith("#") and (following.endswith("\\") or option_follows):
            self.script.breaks.append(Break("comment", here, after))
        elif not following and option_follows:
            self.script.breaks.append(Break("blank", here, after))

    def _move(self, count: int) -> None:
        """Go on in the text, and count the lines."""
        self.line += self.text.count("\n", self.at, self.at + count)
        self.at += count

    def _match(self, pattern: str) -> re.Match[str] | None:
        return re.compile(pattern, re.S).match(self.text, self.at)

    def _next_text(self, line: int) -> int:
        """The first line from here on that is neither empty nor a comment; 0 if there is none."""
        for number in range(line, len(self.script.lines) + 1):
            text = self.script.text(number).strip()
            if text and text[0] != "#":
                return number
        return 0

    def _skip_to_line_end(self) -> None:
        end = self.text.find("\n", self.at)
        self.at = len(self.text) if end < 0 else end

    def _skip_heredoc(self, delimiter: str, tabs: bool) -> None:
        while self.at < len(self.text):
            start = self.at
            self._skip_to_line_end()
            body = self.text[start : self.at]
            self.at = min(self.at + 1, len(self.text))
            self.line += 1
            if (body.lstrip("\t") if tabs else body) == delimiter:
                return

    def _redirection(self) -> bool:
        match = self._match(r"\d*")
        start = match.end() if match else self.at
        kind = next((r for r in _REDIRECTIONS if self.text.startswith(r, start)), None)
        if kind is None or self.text.startswith(("<(", ">("), start):
            return False
        self.at = start + len(kind)
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1
        target = self.read_word()
        if kind in ("<<", "<<-"):
            self.heredocs.append((target, kind == "<<-"))
        elif kind not in (">&", "<&", "<<<") or not re.fullmatch(r"\d*-?", target):
            self.command.targets.append(target)
        return True

    def _case_pattern(self) -> None:
        self.pattern = False
        if self._match(r"esac\b"):
            return
        while self.at < len(self.text) and self.text[self.at] != ")":
            start = self.at
            self.read_word()
            self.at = max(self.at, start + (self.text[self.at : self.at + 1] != ")"))
        self.at += 1
        self._fresh(";")

    def _operator(self) -> bool:
        operator = next((o for o in _OPERATORS if self.text.startswith(o, self.at)), None)
        if operator is None:
            return False
        self.at += len(operator)
        if operator == "(":
            self._open_parenthesis()
        elif operator == ")":
            self._close_parenthesis()
        else:
            self._end(operator)
            self.pattern = operator.startswith(";") and len(operator) > 1
        return True

    def _open_parenthesis(self) -> None:
        words = self.command.words
        rest = self._match(r"[ \t]*\)")
        if rest and len(words) == 1:  # name() { … }
            self.at = rest.end()
            self._function(words[0])
        elif words or self.command.assignments or self.text.startswith("(", self.at):
            self._skip_parentheses()  # array=( … ) and (( arithmetic ))
        else:
            self._push("(")
            self._fresh(self.command.before)

    def _function(self, name: str) -> None:
        self.script.functions.add(name)
        brace = self._match(r"\s*\{")
        if brace:
            self._move(len(brace[0]))
            self._push("function")
        self._fresh("")

    def _close_parenthesis(self) -> None:
        if self.open and self.open[-1] == "(":
            self._end(")")
            self._pop()
            self._fresh(")")
        else:
            self._fresh(";")

    def _skip_parentheses(self) -> None:
        level = 1
        while self.at < len(self.text) and level:
            character = self.text[self.at]
            if character in "'\"`$\\":
                self.read_word()
                continue
            level += {"(": 1, ")": -1}.get(character, 0)
            self._move(1)

    def _word(self) -> None:
        line = self.line
        start = self.at
        word = self.read_word()
        if self.at == start:  # a stray character: go on in any case
            self.at += 1
            return
        quoted = self.text[start] in "'\"\\"
        command = self.command
        if not command.words:
            if not quoted and self._keyword(word):
                return
            if not command.assignments:
                command.line = line
            if _ASSIGNMENT.match(word):
                command.assignments.append(word)
                return
        command.words.append(word)
        if len(command.words) == 2 and command.words[0] == "function":
            command.words.clear()
            rest = self._match(r"[ \t]*\(\s*\)")
            self.at = rest.end() if rest else self.at
            self._function(word)

    def _keyword(self, word: str) -> bool:
        if word in ("then", "do", "else", "elif") and self.open:
            self.conditions[-1] = word == "elif"
        if word in _OPENERS:
            self._push(word)
            if word in ("for", "select", "case"):
                self._skip_header()
        elif word in _CLOSERS:
            self._pop()
        elif word not in _LEADERS:
            return False
        self._fresh(self.command.before)
        return True

    def _skip_header(self) -> None:
        """Skip the words of `for x in …` and `case x in`, which are data."""
        match = self._match(r"[^;\n]*?\bin\b|[^;\n]*")
        if self.open[-1] == "case":
            self.at = match.end() if match else self.at
            self.pattern = True
            return
        while self.at < len(self.text) and self.text[self.at] not in ";\n":
            if self.text.startswith(_CONTINUATION, self.at):
                self._move(2)
            elif self.text[self.at] in " \t\r":
                self.at += 1
            else:
                start = self.at
                self.read_word()
                self.at = max(self.at, start + 1)

    # -- words

    def read_word(self) -> str:
        parts: list[str] = []
        while self.at < len(self.text):
            character = self.text[self.at]
            if character in " \t\n\r\f\v;&|()<>":
                break
            if character == "\\":
                if self.text.startswith(_CONTINUATION, self.at):
                    self.script.joins.append(self.line)
                    self._move(2)
                    continue
                next_line = self.line + 1
                blanks = self._match(r"\\[ \t]+(?=\n|\Z)") and not self.nested
                if blanks and self._next_text(next_line) == next_line:
                    self.script.breaks.append(Break("space", self.line, next_line))
                parts.append(self.text[self.at + 1 : self.at + 2])
                self.at += 2
            elif character == "'":
                parts.append(self._until("'"))
            elif character == '"':
                parts.append(self._double_quoted())
            elif character in "$`":
                parts.append(self._dollar())
            else:
                parts.append(character)
                self.at += 1
        return "".join(parts)

    def _until(self, quote: str) -> str:
        end = self.text.find(quote, self.at + 1)
        end = len(self.text) if end < 0 else end
        inside = self.text[self.at + 1 : end]
        self._move(end + 1 - self.at)
        return inside

    def _double_quoted(self) -> str:
        self.at += 1
        parts: list[str] = []
        while self.at < len(self.text) and self.text[self.at] != '"':
            character = self.text[self.at]
            if character == "\\":
                parts.append(self.text[self.at + 1 : self.at + 2].strip("\n"))
                self._move(2)
            elif character in "$`":
                parts.append(self._dollar())
            else:
                parts.append(character)
                self._move(1)
        self.at += 1
        return "".join(parts)

    def _dollar(self) -> str:
        """`$x`, `${x}`, `$(…)` or backticks as they are; the commands inside are read too."""
        start, line = self.at, self.line
        if self.text[self.at] == "`":
            _Scanner(self._until("`"), self.script, line, nested=True).run()
        elif self.text.startswith("$((", self.at) or self.text.startswith("${", self.at):
            self._balanced("(" if self.text[self.at + 1] == "(" else "{")
        elif self.text.startswith("$(", self.at):
            _Scanner(self._balanced("("), self.script, line, nested=True).run()
        elif self.text.startswith("$'", self.at):
            self.at += 1
            return self._until("'")
        else:
            self.at += 1
        return self.text[start : self.at]

    def _balanced(self, opener: str) -> str:
        closer = {"(": ")", "{": "}"}[opener]
        self.at += 2
        start = self.at
        level = 1
        while self.at < len(self.text) and level:
            quoted = self._match(r"""\\.?|'[^']*'?|"(?:\\.|[^"\\])*"?""")
            if quoted:
                self._move(len(quoted[0]))
                continue
            level += {opener: 1, closer: -1}.get(self.text[self.at], 0)
            self._move(1)
        return self.text[start : self.at if level else self.at - 1]
