"""The command that learns tables: marco rmax."""

import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro
from rich.table import Table

from marco.cli.common import console, parse_settings, tell_bounds
from marco.tabular.library import load
from marco.tabular.rmax.comparators import (
    Centralised,
    EpsilonGreedy,
    ExplorationBonus,
    PosteriorSampling,
    RandomExploration,
)
from marco.tabular.rmax.known_model import Task, Unknown, make_task
from marco.tabular.rmax.loop import Method, Run, learn
from marco.tabular.rmax.plots import check_figure, draw_runs
from marco.tabular.rmax.rmax import RMax
from marco.tabular.rmax.statistics import summary
from marco.tabular.solver.search import solve

COUNTS_TO_M = ("rmax", "centralised")
"""Methods that call a pair known when it has been seen m times."""
MethodName = Literal["rmax", "random", "epsilon-greedy", "psrl", "bonus", "centralised"]


@dataclass(frozen=True)
class Rmax:
    """Learn a finite Dec-POMDP by Adapted R-MAX (or another way), judged exactly after every plan."""

    problem: Annotated[str, tyro.conf.Positional]
    """A built-in problem or a .dpomdp(.gz) file, as in marco solve."""
    horizon: int
    """How many steps an episode has."""
    m: int = 5
    """How often a pair must be seen to be known (rmax, centralised)."""
    episodes: int = 5_000
    """Episodes of a run that does not end before."""
    runs: int = 1
    """How many runs, with seeds from --seed on."""
    unknown: Unknown = "absorbing"
    """An unknown pair leads to a state that pays R_max for ever (repaired), or nowhere (as printed)."""
    method: MethodName = "rmax"
    """How to explore."""
    epsilon: float = 0.025
    """A team is good if it lacks at most 2 epsilon, in the problem's own units."""
    plan_time: float = math.inf
    """Seconds of the processor that a plan may take; teams not proved optimal by then are counted."""
    seed: int = 0
    """The first seed."""
    json: bool = False
    """Print one JSON object, and nothing else."""
    figure: Path | None = None
    """Draw regret, escape probability and known pairs into this file."""
    set: tuple[str, ...] = ()
    """Settings of the problem, as in --set agents=4."""

    def run(self) -> None:
        """Learn and show."""
        self._check()
        problem = load(self.problem, **parse_settings(self.set))
        task, steps, method = make_task(problem), problem.steps(self.horizon), self._method()
        runs: list[Run] = []
        try:
            best = solve(problem.dynamics, steps, report=None if self.json else tell_bounds)
            for run in self._runs(task, steps, method, best.lower):
                runs.append(run)
        except KeyboardInterrupt:
            if not runs:
                raise SystemExit(130) from None
            print(f"Stopped after {len(runs)} of {self.runs} runs.", file=sys.stderr)
        margin = 2.0 * self.epsilon
        facts = {"problem": problem.name, "horizon": self.horizon, "optimum": best.lower}
        ways = {"method": self.method, "m": self.m, "unknown": self.unknown, "episodes": self.episodes}
        limit = {"pairs": int(task.pairs.sum()), "escapes_limit": self.m * int(task.pairs.sum())}
        outcome = {**facts, **ways, **limit, "margin": margin, **summary(runs, margin)}
        if self.figure is not None:
            draw_runs(runs, f"{problem.name}, horizon {self.horizon}, {method}", self.figure)
        if self.json:
            print(
                json.dumps(outcome | {"each": [_life(seed, run) for seed, run in enumerate(runs, self.seed)]})
            )
            return
        self._print(outcome, runs)

    def _check(self) -> None:
        for name, number in (("--runs", self.runs), ("--episodes", self.episodes)):
            if number < 1:
                raise ValueError(f"{name} must be at least 1, got {number}.")
        if self.epsilon < 0.0:
            raise ValueError(f"--epsilon must not be negative, got {self.epsilon}.")
        if self.figure is not None:
            check_figure(self.figure)

    def _runs(self, task: Task, steps: int, method: Method, optimum: float) -> Iterator[Run]:
        """The runs one by one; how many there are is told now and then."""
        told = time.monotonic()
        for done, seed in enumerate(range(self.seed, self.seed + self.runs)):
            if time.monotonic() - told > 5.0 and not self.json:
                told = time.monotonic()
                print(f"{done} of {self.runs} runs", file=sys.stderr, flush=True)
            yield learn(np.random.default_rng(seed), task, steps, method, self.episodes, optimum)

    def _method(self) -> Method:
        match self.method:
            case "rmax":
                return RMax(self.m, self.unknown, self.plan_time)
            case "centralised":
                return Centralised(self.m, self.plan_time)
            case "random":
                return RandomExploration(self.plan_time)
            case "epsilon-greedy":
                return EpsilonGreedy(seconds=self.plan_time)
            case "psrl":
                return PosteriorSampling(seconds=self.plan_time)
            case "bonus":
                return ExplorationBonus(seconds=self.plan_time)

    def _print(self, outcome: dict[str, Any], runs: Sequence[Run]) -> None:
        table = Table(
            "run",
            "plans",
            "episodes",
            "samples",
            "final",
            "regret",
            f"episodes worse than {outcome['margin']:g}",
        )
        for seed, run in enumerate(runs[:20], self.seed):
            played = sum(phase.episodes for phase in run.phases)
            cells = (seed, len(run.phases), played, run.samples, "yes" if run.final else "no")
            table.add_row(*map(str, cells), f"{run.regret:.4f}", str(run.worse_than(outcome["margin"])))
        console.print(table)
        if len(runs) > 20:
            console.print(f"and {len(runs) - 20} more runs")
        low, high = outcome["failing_interval"]
        limit = f"; R-MAX's limit is {outcome['escapes_limit']}" if self.method in COUNTS_TO_M else ""
        for line in (
            f"optimum {outcome['optimum']:.6f}",
            f"{outcome['failing']} of {outcome['runs']} runs end with a team that lacks more than "
            f"{outcome['margin']:g}; 95% interval of the share: {low:.3f} to {high:.3f}",
            f"most episodes of a run that met an unknown pair: {outcome['escapes_most']}{limit}",
            f"plans not proved optimal: {outcome['plans_uncertified']} of {outcome['plans']}",
        ):
            console.print(line, highlight=False)


def _life(seed: int, run: Run) -> dict[str, Any]:
    """A run in full; every phase stands for all its episodes."""
    phases = [{**phase._asdict(), "escape": _number(phase.escape)} for phase in run.phases]
    return {"seed": seed, "final": run.final, "regret": run.regret, "samples": run.samples, "phases": phases}


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
