"""The study of exploration in finite Dec-POMDPs: which method needs the fewest samples.

A task is one run: a problem, a cell (a method with its setting) and a seed. The next task is a run of the
cell that has the fewest, so that cells have equally many at any time. The tables have a row for every run,
with its seed and its source: the command, commit and machine that made it.
"""

import time
from typing import NamedTuple

import numpy as np

from marco.jobs.events import Report
from marco.jobs.processes import work
from marco.tabular import load, solve
from marco.tabular.rmax import (
    Centralised,
    EpsilonGreedyExploration,
    ExplorationBonus,
    LearningRun,
    Method,
    PosteriorSampling,
    RandomExploration,
    RMax,
    Task,
    learn,
    make_task,
)
from record import RMAX, Results, Row

MARGIN = 0.05
WRITE_EVERY = 20.0
"""Seconds of work that a kill can lose."""


class Study(NamedTuple):
    """How a problem is learned."""

    horizon: int
    episodes: int
    plan_seconds: float


STUDIES = {
    "recycling": Study(4, 2_000, 2.0),
    "gridsmall": Study(3, 10_000, 2.0),
    "switch": Study(4, 5_000, 0.3),
}
M = (1, 2, 5, 10, 20)
FAMILIES = ("rmax", "self-loop", "centralised", "random", "epsilon-greedy", "bonus", "psrl")


def methods(seconds: float) -> dict[str, Method]:
    """Every cell of the study: a method with its setting."""
    cells: dict[str, Method] = {}
    for m in M:
        cells[f"rmax m={m}"] = RMax(m, "absorbing", seconds)
        cells[f"self-loop m={m}"] = RMax(m, "self-loop", seconds)
        cells[f"centralised m={m}"] = Centralised(m, seconds)
    cells["random"] = RandomExploration(seconds)
    cells["epsilon-greedy"] = EpsilonGreedyExploration(seconds=seconds)
    cells["bonus"] = ExplorationBonus(seconds=seconds)
    cells["psrl"] = PosteriorSampling(seconds=seconds)
    return cells


CELLS = tuple(methods(1.0))


class Prepared(NamedTuple):
    """A problem with what is made of it once."""

    task: Task
    steps: int
    optimum: float


class OneRun(NamedTuple):
    """A task."""

    problem: str
    cell: str
    seed: int


def study_learning(
    runs: int, minutes: float, problems: list[str], families: list[str], processes: int, results: Results
) -> None:
    """Add runs until every cell has enough or the time is up."""
    deadline = time.monotonic() + 60.0 * minutes
    prepared = {name: _prepare(name) for name in problems}
    books = {name: Book(name, results, runs, families) for name in problems}
    written, began = time.monotonic(), time.monotonic()

    def next_run() -> OneRun | None:
        waiting = [book.next_turn() for book in books.values() if book.missing()]
        if not waiting:
            return None
        _, _, name, cell = min(waiting)
        return OneRun(name, cell, books[name].take(cell))

    try:
        for event in work(one_run, prepared, next_run, processes=processes, deadline=deadline):
            if event is not None:
                if event.kind == "ended":
                    raise RuntimeError(f"{event.task} has no result: {event.value}")
                books[event.task.problem].add(event.task, event.value)
            if time.monotonic() - written > WRITE_EVERY:
                _write(books, time.monotonic() - began)
                written = time.monotonic()
    finally:
        _write(books, time.monotonic() - began)


def _prepare(name: str) -> Prepared:
    problem = load(name)
    steps = problem.steps(STUDIES[name].horizon)
    return Prepared(make_task(problem), steps, solve(problem.dynamics, steps).lower)


def one_run(prepared: dict[str, Prepared], run: OneRun, report: Report) -> tuple[float, Row]:
    """Learn once; the seconds it took, and its row."""
    task, steps, optimum = prepared[run.problem]
    study, began = STUDIES[run.problem], time.process_time()
    method = methods(study.plan_seconds)[run.cell]
    found = learn(np.random.default_rng(run.seed), task, steps, method, study.episodes, optimum)
    return time.process_time() - began, _row(run, found)


def _row(task: OneRun, run: LearningRun) -> Row:
    method, _, m = task.cell.partition(" m=")
    return {
        "method": method,
        "m": m,
        "seed": task.seed,
        "samples_to_reach": run.samples_until(MARGIN),
        "regret": round(run.regret, 4),
        "plans": len(run.phases),
        "uncertified": sum(not phase.certified for phase in run.phases),
    }


class Book:
    """The table of a problem, and which of its runs are still to be made."""

    def __init__(self, name: str, results: Results, runs: int, families: list[str]) -> None:
        self.name, self.results, self.runs = name, results, runs
        self.asked = [label for label in CELLS if {label, label.split()[0]} & set(families)]
        self.taken: dict[str, set[int]] = {label: set() for label in CELLS}
        for row in results.read(RMAX[name]):
            self.taken[_label(row)].add(row["seed"])
        self.done = {label: len(seeds) for label, seeds in self.taken.items()}
        self.seconds: dict[str, list[float]] = {label: [] for label in CELLS}
        self.new: list[Row] = []

    def missing(self) -> bool:
        """Whether a run is still to be asked for."""
        return any(len(self.taken[label]) < self.runs for label in self.asked)

    def next_turn(self) -> tuple[int, float, str, str]:
        """The cell with the fewest runs, of equals the cheapest so far."""
        label = min(self.asked, key=lambda label: (len(self.taken[label]), self._cost(label)))
        return len(self.taken[label]), self._cost(label), self.name, label

    def _cost(self, label: str) -> float:
        return float(np.mean(self.seconds[label])) if self.seconds[label] else 0.0

    def take(self, label: str) -> int:
        """The first seed that the cell has not had."""
        seed = next(seed for seed in range(self.runs) if seed not in self.taken[label])
        self.taken[label].add(seed)
        return seed

    def add(self, run: OneRun, result: tuple[float, Row]) -> None:
        """Keep a run until the next writing."""
        seconds, row = result
        self.seconds[run.cell].append(seconds)
        self.done[run.cell] += 1
        self.new.append(row)

    def write(self) -> None:
        """Add the new rows to the table."""
        if self.new:
            self.results.add(RMAX[self.name], sorted(self.new, key=lambda row: (_label(row), row["seed"])))
        self.new = []


def _label(row: Row) -> str:
    return f"{row['method']} m={row['m']}" if row["m"] else str(row["method"])


def _write(books: dict[str, Book], seconds: float) -> None:
    for name, book in books.items():
        book.write()
        runs = [book.done[label] for label in book.asked]
        print(
            f"{seconds:.0f} s: {name} has {sum(runs)} runs, {min(runs)} to {max(runs)} in a cell", flush=True
        )
