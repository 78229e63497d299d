"""The rows of a cell, in a file that says where they come from.

OUT/cells/CELL.csv    finished: a line of facts, then a row per evaluation and seed
OUT/runs/CELL/        on the way: the folder of a run, which an interrupted study goes on with
"""

import csv
import hashlib
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from marco.data.storage import write_atomically

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


class Row(NamedTuple):
    """What a team is worth at some moment, and what its data cover."""

    phase: str
    """team, final, done (the team that is kept) or, model-free, train."""
    seed: int
    samples: int
    """Real steps so far."""
    steps: int
    """Steps of the policy's training so far, imagined or real."""
    value: float
    """The return in the true environment; exact, or by test episodes, which are not counted."""
    imagined: float | None = None
    pairs: float | None = None
    """The share of all reachable pairs (s, a) that the data hold."""
    met: float | None = None
    """The share of them among 5,000 pairs that the team meets."""
    r05: float | None = None
    """Quantiles of log r-tilde over the 5,000 pairs, under the model at the time."""
    r25: float | None = None
    r50: float | None = None
    r75: float | None = None
    r95: float | None = None


class Measured(NamedTuple):
    """A finished cell."""

    facts: dict[str, Any]
    """The commit, the machine, the seconds it took."""
    rows: list[Row]

    @property
    def seeds(self) -> list[int]:
        """In their order."""
        return sorted({row.seed for row in self.rows})

    def final(self) -> Float[np.ndarray, " seeds"]:
        """The value of each seed's last team."""
        last = {row.seed: row.value for row in self.rows}
        return np.array([last[seed] for seed in self.seeds])

    def curve(self, phases: tuple[str, ...] = ()) -> dict[int, list[Row]]:
        """The rows of each seed, in their order."""
        kept = [row for row in self.rows if not phases or row.phase in phases]
        return {seed: [row for row in kept if row.seed == seed] for seed in self.seeds}


def write(path: Path, facts: dict[str, Any], rows: Iterable[Row]) -> None:
    """Write a cell, whole or not at all."""
    text = io.StringIO()
    text.write(f"# {json.dumps(facts)}\n")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Row._fields)
    writer.writerows([_formatted(value) for value in row] for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text.getvalue().encode())


def read(path: Path) -> Measured:
    """A cell that was written."""
    first, *lines = path.read_text().splitlines()
    try:
        facts = json.loads(first.removeprefix("# "))
        rows = [Row(*(_parsed(name, text) for name, text in line.items())) for line in csv.DictReader(lines)]
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error}): delete it, and it is run again.") from error
    return Measured(facts, rows)


def digest(settings: Any) -> str:
    """Twelve digits that depend on all of some settings: others, a changed default say, have others."""
    return hashlib.sha256(repr(settings).encode()).hexdigest()[:12]


def _formatted(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _parsed(name: str, text: str) -> Any:
    if name == "phase":
        return text
    if not text:
        return None
    return int(text) if name in ("seed", "samples", "steps") else float(text)
