"""Finite Dec-POMDPs: the exact solver, and samples needed by exploration methods."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.stats import binomtest

from record import RMAX, SOLVER, Results, Row
from tables.common import grouped, markdown

PROBLEMS = {
    "recycling": "recycling, horizon 4",
    "gridsmall": "GridSmall, horizon 3",
    "switch": "riddle, 3 prisoners, 4 steps",
}
TITLES = {
    ("epsilon-greedy", None): "epsilon-greedy certainty equivalence",
    ("random", None): "random exploration",
    ("rmax", 5): "R-MAX, m=5",
    ("rmax", 10): "R-MAX, m=10",
    ("rmax", 20): "R-MAX, m=20",
    ("self-loop", 20): "R-MAX, self-loops, m=20",
    ("centralised", 5): "centralised exploration, m=5",
    ("centralised", 10): "centralised exploration, m=10",
    ("centralised", 20): "centralised exploration, m=20",
    ("psrl", None): "PSRL",
    ("bonus", None): "bonus (MBIE-EB)",
}
SOLVED = {
    "dectiger": "Dec-Tiger",
    "broadcast-channel": "broadcast channel",
    "recycling": "recycling",
    "gridsmall": "GridSmall",
    "Grid3x3corners": "Grid3x3corners",
    "Mars": "Mars",
    "switch": "riddle, 3 prisoners",
    "bridge": "bridge, 2 agents, length 1",
}

Samples = Float[np.ndarray, " runs"]
Cell = tuple[str, int | None]
"""A method and its m, where it has one."""


class Runs(NamedTuple):
    """The runs of a cell: how many fail, the exact 95% interval of that share, quartiles of the others."""

    runs: int
    failing: int
    interval: tuple[float, float]
    quartiles: list[float] | None
    uncertified: float
    """The share of plans that were not proved optimal in their time."""


def rmax_runs(results: Results, problem: str) -> dict[Cell, Runs]:
    """A summary of every cell."""
    cells = grouped(results.read(RMAX[problem]), "method", "m")
    return {(method, m): _runs(rows) for (method, m), rows in cells.items()}


def _runs(rows: list[Row]) -> Runs:
    reached = [row["samples_to_reach"] for row in rows if row["samples_to_reach"] is not None]
    failing = len(rows) - len(reached)
    low, high = binomtest(failing, len(rows)).proportion_ci(method="exact")
    quartiles = np.percentile(reached, [25, 50, 75]).tolist() if reached else None
    share = sum(row["uncertified"] for row in rows) / sum(row["plans"] for row in rows)
    return Runs(len(rows), failing, (low, high), quartiles, share)


def rmax(results: Results) -> str:
    """A line for each method: the median of the samples needed, and the failing runs."""
    of = [rmax_runs(results, problem) for problem in PROBLEMS]
    lines = [[title, *(_cell(cells[cell]) for cells in of)] for cell, title in TITLES.items()]
    return markdown(["method", *PROBLEMS.values()], lines)


def _cell(runs: Runs) -> str:
    low, high = (f"{bound:.2f}".removesuffix(".00") for bound in runs.interval)
    needed = f"{runs.quartiles[1]:,.0f}" if runs.quartiles else "none"
    return f"{needed}; {runs.failing} of {runs.runs} ({low} to {high})"


def comparisons(results: Results, one: str = "epsilon-greedy", other: str = "random") -> str:
    """For each problem, the probability that a run of the one needs fewer samples than one of the other."""
    lines = []
    for problem, title in PROBLEMS.items():
        rows = results.read(RMAX[problem])
        ours, theirs = (_samples([row for row in rows if row["method"] == method]) for method in (one, other))
        random = np.random.default_rng(0)
        draws = [
            needs_fewer(random.choice(ours, ours.size), random.choice(theirs, theirs.size))
            for _ in range(2_000)
        ]
        low, high = np.percentile(draws, [2.5, 97.5])
        lines.append([title, f"{needs_fewer(ours, theirs):.2f} ({low:.2f} to {high:.2f})"])
    return markdown(
        ["problem", f"{one} needs fewer samples than {other}: probability (95% bootstrap)"], lines
    )


def needs_fewer(ours: Samples, theirs: Samples) -> float:
    """The probability that one of ours is smaller than one of theirs; ties count as half of it."""
    ordered = np.sort(theirs)
    smaller, not_larger = (np.searchsorted(ordered, ours, side) for side in ("left", "right"))
    return float(np.mean(theirs.size - 0.5 * (smaller + not_larger)) / theirs.size)


def _samples(rows: list[Row]) -> Samples:
    """Of a run that fails, infinitely many."""
    needed = [row["samples_to_reach"] for row in rows]
    return np.array([np.inf if samples is None else samples for samples in needed])


def solver(results: Results) -> str:
    """For each problem the horizons that were solved, with CPU seconds, and bounds of the others."""
    of = grouped(results.read(SOLVER), "problem")
    lines = []
    for problem, title in SOLVED.items():
        rows = of[problem,]
        published = [_solved(row) for row in rows if row["optimal"] and row["published"] is not None]
        beyond = [
            f"{row['horizon']}: {row['value']:.6f} ({_seconds(row)})"
            for row in rows
            if row["optimal"] and row["published"] is None
        ]
        bounds = [
            f"{row['horizon']:,}: {row['value']:.4f} to {row['upper']:.4f}"
            for row in rows
            if not row["optimal"]
        ]
        lines.append([title, ", ".join(published), ", ".join(beyond), "; ".join(bounds)])
    header = ["problem", "solved to the published value (horizon: seconds)", "beyond: value (seconds)"]
    return markdown([*header, "not in ten minutes: bounds"], lines)


def _solved(row: Row) -> str:
    if abs(row["value"] - row["published"]) > 5e-3:
        raise ValueError(
            f"{row['problem']} at horizon {row['horizon']}: {row['value']}, published {row['published']}."
        )
    return f"{row['horizon']}: {_seconds(row)}"


def _seconds(row: Row) -> str:
    spent: Any = row["cpu_seconds"]
    return f"{spent:.0f}" if spent >= 10 else f"{spent:.2g}"
