"""The lines, words and numbers of a .dpomdp file, with errors that name the line."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


class FormatError(ValueError):
    """A file that is not a valid Dec-POMDP; the message names the line and the reason."""


@dataclass(frozen=True)
class Line:
    """A line without comment and quotes, and its line number."""

    number: int
    text: str

    @property
    def words(self) -> list[str]:
        return self.text.split()


def significant_lines(text: str) -> Iterator[Line]:
    """The lines that are not empty or comments only."""
    for number, line in enumerate(text.splitlines(), 1):
        kept = line.split("#", 1)[0].replace('"', "").strip()
        if kept:
            yield Line(number, kept)


@dataclass
class Lines:
    """The lines of a file, read in order; `at` is the index of the next."""

    file: str
    lines: list[Line]
    at: int = 0

    def next(self, expected: str) -> Line:
        """The next line; an error if there is none."""
        if self.at == len(self.lines):
            last = self.lines[-1].number if self.lines else 0
            raise FormatError(f"{self.file}:{last}: the file ends where {expected} should follow.")
        self.at += 1
        return self.lines[self.at - 1]

    def fail(self, line: Line, what: str) -> NoReturn:
        """Raise an error that names the file and the line."""
        raise FormatError(f"{self.file}:{line.number}: {what}.")

    def joint(self, line: Line, text: str, names: Sequence[tuple[str, ...]], kind: str) -> list[int]:
        """The joint indices denoted by '*', an index, or one word per agent."""
        words, sizes = text.split(), tuple(len(each) for each in names)
        if words == ["*"]:
            return list(range(int(np.prod(sizes))))
        if len(words) == 1 and len(names) > 1 and words[0].isdigit():
            if int(words[0]) >= np.prod(sizes):
                self.fail(line, f"joint {kind} {words[0]} is beyond the last, {np.prod(sizes) - 1}")
            return [int(words[0])]
        if len(words) != len(names):
            self.fail(line, f"a joint {kind} has one word for each of {len(names)} agents, got {text!r}")
        parts = [self.one(line, word, each, kind) for word, each in zip(words, names, strict=True)]
        return [int(index) for index in np.ravel_multi_index(np.ix_(*parts), sizes).ravel()]

    def one(self, line: Line, word: str, names: Sequence[str], kind: str) -> list[int]:
        """The indices denoted by '*', a name or an index."""
        if word == "*":
            return list(range(len(names)))
        if word in names:
            return [names.index(word)]
        if word.isdigit() and int(word) < len(names):
            return [int(word)]
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        self.fail(line, f"unknown {kind} {word!r}: use one of {shown}, an index below {len(names)}, or *")

    def matrix(self, kind: str, shape: tuple[int, ...]) -> np.ndarray:
        """The table that begins with the next line; `uniform` and `identity` denote one."""
        line = self.next(f"a table of {shape[0]} x {shape[1]} numbers")
        if line.words == ["uniform"] and kind != "R":
            return np.full(shape, 1.0 / shape[1])
        if line.words == ["identity"] and kind == "T":
            return np.eye(shape[0])
        rows = [self.row(line, shape[1])]
        while len(rows) < shape[0]:
            rows.append(self.row(self.next(f"row {len(rows) + 1} of {shape[0]} of the table"), shape[1]))
        return np.array(rows)

    def row(self, line: Line, length: int) -> np.ndarray:
        """The numbers of a line, `length` of them, or `uniform`."""
        if line.words == ["uniform"]:
            return np.full(length, 1.0 / length)
        if len(line.words) != length:
            self.fail(line, f"expected a row of {length} numbers, got {len(line.words)}")
        return np.array([self.number(line, word) for word in line.words])

    def number(self, line: Line, word: str) -> float:
        """The value of a word."""
        if not NUMBER.fullmatch(word):
            self.fail(line, f"expected a number, got {word!r}")
        return float(word)
