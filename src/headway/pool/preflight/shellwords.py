"""The words of a shell script: quotes, escapes, continuations and substitutions."""

from __future__ import annotations

import re

CONTINUATION = "\\\n"


class WordReader:
    """Reads words from `text` at `at` and counts lines; a scanner says what becomes of the rest."""

    def __init__(self, text: str, line: int) -> None:
        self.text = text
        self.line = line
        self.at = 0

    # What a scanner wants to know of

    def on_join(self) -> None:
        """A line ends in a backslash within a word."""

    def on_blanks(self) -> None:
        """A backslash stands before blanks at a line's end: it joins nothing."""

    def on_substitution(self, inside: str, line: int) -> None:
        """Commands stand in `$( )` or backticks."""

    # -- words

    def read_word(self) -> str:
        parts: list[str] = []
        while self.at < len(self.text):
            character = self.text[self.at]
            if character in " \t\n\r\f\v;&|()<>":
                break
            if character == "\\":
                if self.text.startswith(CONTINUATION, self.at):
                    self.on_join()
                    self.at += 2
                    self.line += 1
                    continue
                if re.compile(r"\\[ \t]+(?=\n|\Z)").match(self.text, self.at):
                    self.on_blanks()
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
        self.line += inside.count("\n")
        self.at = end + 1
        return inside

    def _double_quoted(self) -> str:
        self.at += 1
        parts: list[str] = []
        while self.at < len(self.text) and self.text[self.at] != '"':
            character = self.text[self.at]
            if character == "\\":
                following = self.text[self.at + 1 : self.at + 2]
                self.line += following == "\n"
                parts.append("" if following == "\n" else following)
                self.at += 2
            elif character in "$`":
                parts.append(self._dollar())
            else:
                self.line += character == "\n"
                parts.append(character)
                self.at += 1
        self.at += 1
        return "".join(parts)

    def _dollar(self) -> str:
        """`$x`, `${x}`, `$(…)`, backticks: kept as they are, the commands inside are read."""
        start, line = self.at, self.line
        if self.text[self.at] == "`":
            inside = self._until("`")
            self.on_substitution(inside, line)
        elif self.text.startswith("$((", self.at) or self.text.startswith("${", self.at):
            self._balanced("(" if self.text[self.at + 1] == "(" else "{")
        elif self.text.startswith("$(", self.at):
            inside = self._balanced("(")
            self.on_substitution(inside, line)
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
        while self.at < len(self.text):
            character = self.text[self.at]
            if character == "'":
                self._until("'")
                continue
            if character == '"':
                self._skip_quoted()
                continue
            if character == "\\":
                self.line += self.text[self.at + 1 : self.at + 2] == "\n"
                self.at += 2
                continue
            level += {opener: 1, closer: -1}.get(character, 0)
            self.line += character == "\n"
            self.at += 1
            if not level:
                break
        return self.text[start : max(start, self.at - 1)]

    def _skip_quoted(self) -> None:
        match = re.compile(r'"(?:\\.|[^"\\])*"?', re.S).match(self.text, self.at)
        end = match.end() if match else self.at + 1
        self.line += self.text.count("\n", self.at, end)
        self.at = end
