"""The study of exploration as a table, and how often one method needs fewer samples than another."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from tabular_learning import COLUMNS

PROBLEMS = {
    "recycling": "recycling, horizon 4",
    "gridsmall": "GridSmall, horizon 3",
    "switch": "riddle, 3 prisoners, 4 steps",
}
TITLES = {
    "epsilon-greedy": "epsilon-greedy certainty equivalence",
    "random": "random exploration",
    "rmax m=5": "R-MAX, m=5",
    "rmax m=10": "R-MAX, m=10",
    "rmax m=20": "R-MAX, m=20",
    "self-loop m=20": "R-MAX, self-loops, m=20",
    "centralised m=5": "centralised exploration, m=5",
    "centralised m=10": "centralised exploration, m=10",
    "centralised m=20": "centralised exploration, m=20",
    "psrl": "PSRL",
    "bonus": "bonus (MBIE-EB)",
}

Samples = Float[np.ndarray, " runs"]


def table(folder: Path) -> Iterator[str]:
    """A line for each method: the median of the samples that were needed, and the failing runs."""
    studies = {name: _cells(folder, name) for name in PROBLEMS}
    yield "| method | " + " | ".join(PROBLEMS.values()) + " |"
    yield "|---" * (1 + len(PROBLEMS)) + "|"
    for cell, title in TITLES.items():
        told = [_told(cells[cell]["summary"]) for cells in studies.values()]
        yield f"| {title} | " + " | ".join(told) + " |"


def comparisons(folder: Path, one: str = "epsilon-greedy", other: str = "random") -> Iterator[str]:
    """For each problem, the probability that a run of the one needs fewer samples than one of the other."""
    for name, title in PROBLEMS.items():
        cells = _cells(folder, name)
        ours, theirs = (_samples(cells[cell]["rows"]) for cell in (one, other))
        random = np.random.default_rng(0)
        draws = [
            needs_fewer(random.choice(ours, ours.size), random.choice(theirs, theirs.size))
            for _ in range(2_000)
        ]
        low, high = np.percentile(draws, [2.5, 97.5])
        share = needs_fewer(ours, theirs)
        interval = f"{low:.2f} to {high:.2f}"
        yield f"{title}: {one} needs fewer than {other} with probability {share:.2f} ({interval})"


def needs_fewer(ours: Samples, theirs: Samples) -> float:
    """The probability that one of ours is smaller than one of theirs; ties count as half of it."""
    return float(np.mean((ours[:, None] < theirs) + 0.5 * (ours[:, None] == theirs)))


def _cells(folder: Path, problem: str) -> dict[str, Any]:
    return dict(json.loads((folder / f"rmax-{problem}.json").read_text())["cells"])


def _samples(rows: list[list[Any]]) -> Samples:
    """Of a run that fails, infinitely many."""
    column = COLUMNS.index("samples_until")
    return np.array([np.inf if row[column] is None else row[column] for row in rows])


def _told(summary: dict[str, Any]) -> str:
    low, high = (f"{bound:.2f}".removesuffix(".00") for bound in summary["failing_interval"])
    needed = f"{summary['samples_to_reach'][1]:,.0f}" if summary["samples_to_reach"] else "none"
    return f"{needed}; {summary['failing']} of {summary['runs']} ({low} to {high})"
