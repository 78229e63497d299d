"""The study of exploration in tables: which way to explore needs the fewest samples.

A task is one run: a problem, a cell (a method with its setting) and a seed. Whatever is asked next is a run
of a cell that has the fewest, so that cells have equally many at any time. The files keep every run with its
seed and its source: the command, commit and machine that made it.
"""

import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from marco.data.storage import write_atomically
from marco.tabular.library import load
from marco.tabular.rmax.comparators import (
    Centralised,
    EpsilonGreedy,
    ExplorationBonus,
    PosteriorSampling,
    RandomExploration,
)
from marco.tabular.rmax.known_model import Task, make_task
from marco.tabular.rmax.loop import Method, Run, learn
from marco.tabular.rmax.rmax import RMax
from marco.tabular.rmax.statistics import clopper_pearson
from marco.tabular.solver.search import solve
from record import Sources
from workers import Tell, work

MARGIN = 0.05
WRITE_EVERY = 20.0
"""Seconds of work that a kill may lose."""


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
COLUMNS = (
    "seed",
    "source",
    "seconds",
    "samples_until",
    "samples",
    "regret",
    "final",
    "episodes_worse",
    "escapes",
    "plans",
    "uncertified",
)


def methods(seconds: float) -> dict[str, Method]:
    """Every cell of the study: a method with its setting."""
    cells: dict[str, Method] = {}
    for m in M:
        cells[f"rmax m={m}"] = RMax(m, "absorbing", seconds)
        cells[f"self-loop m={m}"] = RMax(m, "self-loop", seconds)
        cells[f"centralised m={m}"] = Centralised(m, seconds)
    cells["random"] = RandomExploration(seconds)
    cells["epsilon-greedy"] = EpsilonGreedy(seconds=seconds)
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
    runs: int, minutes: float, problems: list[str], families: list[str], processes: int, out: Path
) -> None:
    """Add runs until every cell has enough or the time is up."""
    deadline = time.monotonic() + 60.0 * minutes
    prepared = {name: _prepare(name) for name in problems}
    books = {name: Book(name, out / f"rmax-{name}.json", runs, families) for name in problems}
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


def one_run(prepared: dict[str, Prepared], run: OneRun, tell: Tell) -> list[Any]:
    """Learn once; the numbers of COLUMNS after the first two."""
    task, steps, optimum = prepared[run.problem]
    study, began = STUDIES[run.problem], time.process_time()
    method = methods(study.plan_seconds)[run.cell]
    found = learn(np.random.default_rng(run.seed), task, steps, method, study.episodes, optimum)
    return [round(time.process_time() - began, 3), *_numbers(found)]


def _numbers(run: Run) -> list[Any]:
    return [
        run.samples_until(MARGIN),
        run.samples,
        round(run.regret, 5),
        int(run.final),
        run.worse_than(MARGIN),
        sum(phase.escapes for phase in run.phases),
        len(run.phases),
        sum(not phase.certified for phase in run.phases),
    ]


class Book:
    """The result file of a problem, and which of its runs are still to be made."""

    def __init__(self, name: str, path: Path, runs: int, families: list[str]) -> None:
        self.name, self.path, self.runs = name, path, runs
        held = json.loads(path.read_text()) if path.exists() else {"cells": {}, "sources": []}
        self.sources = Sources(held["sources"])
        self.rows = {label: cell["rows"] for label, cell in held["cells"].items()}
        self.asked = [label for label in CELLS if {label, label.split()[0]} & set(families)]
        for label in self.asked:
            self.rows.setdefault(label, [])
        self.taken = {label: {row[0] for row in rows} for label, rows in self.rows.items()}

    def missing(self) -> bool:
        """Whether a run is still to be asked for."""
        return any(len(self.taken[label]) < self.runs for label in self.asked)

    def next_turn(self) -> tuple[int, float, str, str]:
        """The cell with the fewest runs, of equals the cheapest."""
        label = min(self.asked, key=lambda label: (len(self.taken[label]), self._dear(label)))
        return len(self.taken[label]), self._dear(label), self.name, label

    def _dear(self, label: str) -> float:
        rows = self.rows[label]
        return sum(row[2] for row in rows) / len(rows) if rows else 0.0

    def take(self, label: str) -> int:
        """The first seed that the cell has not had."""
        seed = next(seed for seed in range(self.runs) if seed not in self.taken[label])
        self.taken[label].add(seed)
        return seed

    def add(self, run: OneRun, numbers: list[Any]) -> None:
        """Keep a run."""
        self.rows[run.cell].append([run.seed, self.sources.count(), *numbers])

    def write(self) -> None:
        """Replace the file."""
        if self.sources.mine is None:
            return
        rows = {label: sorted(self.rows[label]) for label in CELLS if self.rows.get(label)}
        cells = {label: {"summary": summary(each), "rows": each} for label, each in rows.items()}
        facts = {"problem": self.name, **STUDIES[self.name]._asdict(), "margin": MARGIN}
        text = json.dumps({**facts, "columns": COLUMNS, "sources": self.sources.held, "cells": cells})
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, (text.replace("], [", "],\n[") + "\n").encode())


def _write(books: dict[str, Book], seconds: float) -> None:
    for name, book in books.items():
        book.write()
        had = [len(book.rows[label]) for label in book.asked]
        print(f"{seconds:.0f} s: {name} has {sum(had)} runs, {min(had)} to {max(had)} in a cell", flush=True)


def summary(rows: list[list[Any]]) -> dict[str, Any]:
    """What the runs of a cell come to."""
    of = {name: [row[i] for row in rows] for i, name in enumerate(COLUMNS)}
    reached = [samples for samples in of["samples_until"] if samples is not None]
    failing = len(rows) - len(reached)
    low, high = clopper_pearson(failing, len(rows))
    return {
        "runs": len(rows),
        "failing": failing,
        "failing_interval": [round(low, 4), round(high, 4)],
        "samples_to_reach": np.percentile(reached, [25, 50, 75]).tolist() if reached else None,
        "samples_median": float(np.median(of["samples"])),
        "regret_mean": round(float(np.mean(of["regret"])), 5),
        "episodes_worse_mean": float(np.mean(of["episodes_worse"])),
        "escapes_most": max(of["escapes"]),
        "uncertified_share": round(sum(of["uncertified"]) / sum(of["plans"]), 4),
        "seconds": round(sum(of["seconds"]), 2),
    }
