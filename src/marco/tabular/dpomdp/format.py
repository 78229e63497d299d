"""The .dpomdp file format: reading and writing, plain or gzipped.

Two dialects are read: that of the MADP toolbox, and one that quotes names and has the short form
`R: JA : s : r`. A later T or O line overwrites an earlier one. A reward that depends on s' or o adds its
expected value to R(s, a); a reward that depends on neither sets R(s, a).
"""

import gzip
import io
import warnings
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from marco.tabular.dpomdp.reader import Reader
from marco.tabular.dpomdp.tokens import FormatError, Lines, significant_lines
from marco.tabular.problem import DecPOMDP

MOST_BYTES = 2**27
"""The longest text that is read: a small gzipped file may hold one without end."""

__all__ = ["FormatError", "parse", "read", "text", "write"]


def read(path: Path) -> DecPOMDP:
    """The problem in a .dpomdp or .dpomdp.gz file."""
    if not path.is_file():
        raise FormatError(f"there is no file {str(path)!r}: give the path of a .dpomdp file.")
    name = path.name.removesuffix(".gz").removesuffix(".dpomdp")
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise FormatError(f"{path} holds more than {MOST_BYTES:,} bytes of text: give a smaller problem.")
        problem = _parsed(io.TextIOWrapper(io.BytesIO(data), "utf-8-sig"), str(path), name)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise FormatError(
            f"{path} cannot be read as text or gzipped text ({error}): get a whole copy of the file, "
            "with a name that ends in .gz if it is gzipped."
        ) from error
    if problem.discount != 1.0:
        warnings.warn(
            f"discount {problem.discount:g} of {path} is not used: returns are undiscounted sums over the "
            "horizon.",
            UnusedDiscountWarning,
            stacklevel=2,
        )
    return problem


class UnusedDiscountWarning(UserWarning):
    """A file has a discount, and values are undiscounted."""


def parse(content: str, file: str = "<text>", name: str = "problem") -> DecPOMDP:
    """The problem in a text; errors call the text `file`."""
    return _parsed(io.StringIO(content, newline=None), file, name)


def _parsed(lines: Iterable[str], file: str, name: str) -> DecPOMDP:
    return Reader(name, Lines(file, significant_lines(lines))).problem()


def write(problem: DecPOMDP, path: Path) -> None:
    """Write a problem to a file, gzipped if its name ends in .gz; `read` gives the same tables."""
    data = text(problem).encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def text(problem: DecPOMDP) -> str:
    """The problem as a text in full precision; entries of 0 are left out."""
    lines = [
        f"# {problem.name}",
        "agents: " + _listed(problem.agents),
        f"discount: {problem.discount!r}",
        "values: reward",
        "states: " + _listed(problem.states),
        "start:",
        " ".join(repr(float(p)) for p in problem.d0),
        "actions:",
        *map(_listed, problem.actions),
        "observations:",
        *map(_listed, problem.observations),
    ]
    for action in range(problem.num_joint_actions):
        each = " ".join(map(str, np.unravel_index(action, problem.num_actions)))
        for s, after in np.argwhere(problem.P[:, action] > 0.0):
            lines.append(f"T: {each} : {s} : {after} : {float(problem.P[s, action, after])!r}")
        for after, seen in np.argwhere(problem.O[action] > 0.0):
            shown = " ".join(map(str, np.unravel_index(seen, problem.num_observations)))
            lines.append(f"O: {each} : {after} : {shown} : {float(problem.O[action, after, seen])!r}")
    for s, action in np.argwhere(problem.R != 0.0):
        each = " ".join(map(str, np.unravel_index(action, problem.num_actions)))
        lines.append(f"R: {each} : {s} : * : * : {float(problem.R[s, action])!r}")
    return "\n".join(lines) + "\n"


def _listed(names: tuple[str, ...]) -> str:
    """The names, or their number if they are just indices."""
    numbered = names == tuple(str(i) for i in range(len(names)))
    return str(len(names)) if numbered else " ".join(name.replace(" ", "-") for name in names)
