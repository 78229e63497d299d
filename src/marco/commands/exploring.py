"""The command that learns tables: marco rmax."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro
from rich.table import Table

from marco.commands.common import console, parse_settings
from marco.tabular.comparators import (
    Centralised,
    EpsilonGreedy,
    ExplorationBonus,
    PosteriorSampling,
    RandomExploration,
)
from marco.tabular.known_model import Unknown, make_task
from marco.tabular.learning import Method, Run, learn
from marco.tabular.problems import load
from marco.tabular.rmax import RMax
from marco.tabular.solver import solve
from marco.tabular.statistics import summary

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
    """Seconds a plan may take; teams that were not proved optimal by then are counted."""
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
        for name, number in (("--runs", self.runs), ("--episodes", self.episodes)):
            if number < 1:
                raise ValueError(f"{name} must be at least 1, got {number}.")
        if self.figure is not None and not self.figure.absolute().parent.is_dir():
            folder = str(self.figure.absolute().parent)
            raise ValueError(f"--figure: there is no folder {folder!r}: make it first.")
        problem = load(self.problem, **parse_settings(self.set))
        task, steps, method = make_task(problem), problem.steps(self.horizon), self._method()
        best = solve(problem.dynamics, steps)
        seeds = range(self.seed, self.seed + self.runs)
        runs = [
            learn(np.random.default_rng(seed), task, steps, method, self.episodes, best.lower)
            for seed in seeds
        ]
        margin = 2.0 * self.epsilon
        facts = {"problem": problem.name, "horizon": self.horizon, "optimum": best.lower}
        ways = {"method": self.method, "m": self.m, "unknown": self.unknown, "episodes": self.episodes}
        limit = {"pairs": int(task.pairs.sum()), "escapes_limit": self.m * int(task.pairs.sum())}
        outcome = {**facts, **ways, **limit, "margin": margin, **summary(runs, margin)}
        if self.figure is not None:
            from marco.tabular.plots import draw_runs

            draw_runs(runs, f"{problem.name}, horizon {self.horizon}, {method}", self.figure)
        if self.json:
            print(
                json.dumps(
                    outcome | {"each": [_life(seed, run) for seed, run in zip(seeds, runs, strict=True)]}
                )
            )
            return
        self._print(outcome, runs)

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
        for line in (
            f"optimum {outcome['optimum']:.6f}",
            f"{outcome['failing']} of {outcome['runs']} runs end with a team that lacks more than "
            f"{outcome['margin']:g}; 95% interval of the share: {low:.3f} to {high:.3f}",
            f"most escapes in a run: {outcome['escapes_most']}; R-MAX's limit is {outcome['escapes_limit']}",
            f"plans not proved optimal: {outcome['plans_uncertified']} of {outcome['plans']}",
        ):
            console.print(line, highlight=False)


def _life(seed: int, run: Run) -> dict[str, Any]:
    """A run in full; every phase stands for all its episodes."""
    phases = [{**phase._asdict(), "escape": _number(phase.escape)} for phase in run.phases]
    return {"seed": seed, "final": run.final, "regret": run.regret, "samples": run.samples, "phases": phases}


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
