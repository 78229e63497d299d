"""The lines, words and numbers of a .dpomdp file, with errors that name the line."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
COUNT = re.compile(r"[0-9]{1,18}")
"""A count or an index: no other digits, and none too long to be a number."""
LARGEST = 1e100
"""The largest number that a file may hold: sums and products of such numbers are still finite."""
LONGEST = 2**24
"""The most characters in a line: its words take some thirty times as much memory."""


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


def significant_lines(text: Iterable[str]) -> Iterator[Line]:
    """The lines that are not empty or comments only."""
    for number, line in enumerate(text, 1):
        kept = line.split("#", 1)[0].replace('"', "").strip()
        if kept:
            yield Line(number, kept)


def short(text: str) -> str:
    """A text as an error quotes it."""
    return repr(text if len(text) <= 60 else text[:60] + "...")


@dataclass
class Lines:
    """The lines of a file, read in order, once; `last` is the number of the one read last."""

    file: str
    rest: Iterator[Line]
    last: int = 0

    def take(self) -> Line | None:
        """The next line, or None at the end."""
        line = next(self.rest, None)
        if line is not None:
            self.last = line.number
            if len(line.text) > LONGEST:
                self.fail(line, f"the line has {len(line.text):,} characters, over the limit of {LONGEST:,}")
        return line

    def next(self, expected: str) -> Line:
        """The next line; an error if there is none."""
        if (line := self.take()) is None:
            self.fail(self.last, f"the file ends where {expected} should follow")
        return line

    def fail(self, at: Line | int, what: str) -> NoReturn:
        """Raise an error that names the file and the line."""
        raise FormatError(f"{self.file}:{at if isinstance(at, int) else at.number}: {what}.")

    def joint(self, line: Line, text: str, names: Sequence[tuple[str, ...]], kind: str) -> list[int]:
        """The joint indices denoted by '*', an index, or one word per agent."""
        words, sizes = text.split(), tuple(len(each) for each in names)
        if words == ["*"]:
            return list(range(int(np.prod(sizes))))
        if len(words) == 1 and len(names) > 1 and COUNT.fullmatch(words[0]):
            if int(words[0]) >= np.prod(sizes):
                self.fail(line, f"joint {kind} {words[0]} is beyond the last, {np.prod(sizes) - 1}")
            return [int(words[0])]
        if len(words) != len(names):
            self.fail(line, f"a joint {kind} has one word for each of {len(names)} agents, got {short(text)}")
        parts = [self.one(line, word, each, kind) for word, each in zip(words, names, strict=True)]
        return [int(index) for index in np.ravel_multi_index(np.ix_(*parts), sizes).ravel()]

    def one(self, line: Line, word: str, names: Sequence[str], kind: str) -> list[int]:
        """The indices denoted by '*', a name or an index."""
        if word == "*":
            return list(range(len(names)))
        if word in names:
            return [names.index(word)]
        if COUNT.fullmatch(word) and int(word) < len(names):
            return [int(word)]
        some = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        self.fail(line, f"unknown {kind} {short(word)}: use one of {some}, an index below {len(names)}, or *")

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
            self.fail(line, f"expected a number, got {short(word)}")
        if abs(value := float(word)) > LARGEST:
            self.fail(line, f"expected a number from {-LARGEST:g} to {LARGEST:g}, got {short(word)}")
        return value
