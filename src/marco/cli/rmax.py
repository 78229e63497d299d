"""The command `marco rmax`: learn a finite Dec-POMDP by Adapted R-MAX or by a method it is compared with."""

import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from marco.checks import check_seed
from marco.cli.common import console, print_bounds
from marco.cli.settings import parse_with_rest, table_of
from marco.tabular import DecPOMDP, solve
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
    Unknown,
    draw_runs,
    learn,
    make_task,
    summary,
)
from marco.tabular.rmax.plots import check_figure

COUNTS_TO_M = ("rmax", "centralised")
"""Methods for which a pair is known after m visits."""
MethodName = Literal["rmax", "random", "epsilon-greedy", "psrl", "bonus", "centralised"]
ROWS = 20
"""The most runs that the printed table shows."""
REPORT_EVERY = 5.0
"""Seconds between two lines of progress where there is no terminal."""


@dataclass(frozen=True)
class Rmax:
    """Learn a finite Dec-POMDP by Adapted R-MAX (or another method), evaluated exactly after every plan."""

    problem: Annotated[str, tyro.conf.Positional]
    """A finite environment, as in marco solve."""
    horizon: int | None = None
    """The number of steps in an episode; that of `marco worlds`, if not given."""
    m: int = 5
    """The number of visits after which a pair is known (rmax, centralised)."""
    episodes: int = 5_000
    """The most episodes of a run."""
    runs: int = 1
    """The number of runs, with seeds from --seed on."""
    unknown: Unknown = "absorbing"
    """An unknown pair leads to an absorbing state that pays R_max (repaired), or to itself (as printed)."""
    method: MethodName = "rmax"
    """The exploration method."""
    epsilon: float = 0.025
    """A run succeeds if its regret is at most 2 epsilon at the end, in the problem's own units."""
    plan_time: float = math.inf
    """Processor time in seconds for one plan; plans not proved optimal by then are counted."""
    seed: int = 0
    """The first seed."""
    json: bool = False
    """Print one JSON object, and nothing else."""
    figure: Path | None = None
    """Draw regret, escape probability and known pairs into this file."""

    def run(self, problem: DecPOMDP, horizon: int) -> None:
        """Learn, then print and draw the results."""
        task, steps, method = make_task(problem), problem.steps(horizon), self._method()
        runs: list[LearningRun] = []
        try:
            best = solve(problem.dynamics, steps, report=None if self.json else print_bounds)
            for run in self._runs(task, steps, method, best.lower):
                runs.append(run)
        except KeyboardInterrupt:
            if not runs:
                raise SystemExit(130) from None
            print(f"Stopped after {len(runs)} of {self.runs} runs.", file=sys.stderr)
        margin = 2.0 * self.epsilon
        facts = {"problem": problem.name, "horizon": horizon, "optimum": best.lower}
        ways = {"method": self.method, "m": self.m, "unknown": self.unknown, "episodes": self.episodes}
        limit = {"pairs": int(task.pairs.sum()), "escapes_limit": self.m * int(task.pairs.sum())}
        outcome = {**facts, **ways, **limit, "margin": margin, **summary(runs, margin)}
        if self.figure is not None:
            title = f"{problem.name}, horizon {horizon}: {self._described(method)}, {_count(len(runs))}"
            draw_runs(runs, title, self.figure)
        if self.json:
            each = [_run_facts(seed, run) for seed, run in enumerate(runs, self.seed)]
            print(json.dumps(outcome | {"each": each}))
            return
        self._print(outcome, runs)

    def check(self) -> None:
        """Refuse bad options before anything is computed."""
        for name, number in (("--runs", self.runs), ("--episodes", self.episodes)):
            if number < 1:
                raise ValueError(f"{name} must be at least 1, got {number}.")
        if not 0.0 <= self.epsilon < math.inf:
            raise ValueError(f"--epsilon must be a number from 0 on, got {self.epsilon}.")
        check_seed("--seed", self.seed)
        if self.figure is not None:
            check_figure(self.figure)

    def _runs(self, task: Task, steps: int, method: Method, optimum: float) -> Iterator[LearningRun]:
        """The runs one by one, with their progress on stderr."""
        seeds = range(self.seed, self.seed + self.runs)
        for seed in seeds if self.json or self.runs == 1 else _progress(seeds):
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
                return EpsilonGreedyExploration(seconds=self.plan_time)
            case "psrl":
                return PosteriorSampling(seconds=self.plan_time)
            case "bonus":
                return ExplorationBonus(seconds=self.plan_time)

    def _described(self, method: Method) -> str:
        """The method with its settings, in words."""
        settings = {field.name: getattr(method, field.name) for field in fields(method)}  # type: ignore[arg-type]
        seconds = settings.pop("seconds")
        words = [f"{name} = {setting}" for name, setting in settings.items()]
        words += [f"{seconds:g} s per plan"] if math.isfinite(seconds) else []
        return f"{self.method} ({', '.join(words)})" if words else self.method

    def _print(self, outcome: dict[str, Any], runs: Sequence[LearningRun]) -> None:
        margin = f"{outcome['margin']:g}"
        columns = ("run", "plans", "episodes", "samples", "final", "regret")
        table = Table(*columns, f"episodes worse than {margin}")
        for seed, run in enumerate(runs[:ROWS], self.seed):
            played = sum(phase.episodes for phase in run.phases)
            cells = (seed, len(run.phases), played, run.samples, "yes" if run.final else "no")
            table.add_row(
                *map(str, cells), f"{max(run.regret, 0.0):.4f}", str(run.worse_than(outcome["margin"]))
            )
        console.print(table)
        if len(runs) > ROWS:
            console.print(f"and {len(runs) - ROWS} more runs")
        lines = [f"optimum {outcome['optimum']:.6f}", _failures(outcome)]
        if self.method in COUNTS_TO_M:
            lines.append(
                f"most episodes of a run that met an unknown pair: {outcome['escapes_most']}; "
                f"R-MAX's limit is {outcome['escapes_limit']}"
            )
        lines.append(f"plans not proved optimal: {outcome['plans_uncertified']} of {outcome['plans']}")
        for line in lines:
            console.print(line, highlight=False)


def main(arguments: list[str]) -> None:
    """Learn and show."""
    options, rest = parse_with_rest(Rmax, arguments, "marco rmax")
    options.check()
    options.run(*table_of(options, rest))


def _progress(seeds: Sequence[int]) -> Iterator[int]:
    """The seeds one by one: a progress bar in a terminal, else a line now and then."""
    errors = Console(stderr=True)
    if errors.is_terminal:
        columns = (TextColumn("runs"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=errors, transient=True) as progress:
            yield from progress.track(seeds)
        return
    reported = time.monotonic()
    for done, seed in enumerate(seeds):
        if time.monotonic() - reported > REPORT_EVERY:
            reported = time.monotonic()
            print(f"{done} of {len(seeds)} runs", file=sys.stderr, flush=True)
        yield seed


def _failures(outcome: dict[str, Any]) -> str:
    """How many runs fail. One run says nothing about the share of failures, so it has no interval."""
    if outcome["runs"] == 1:
        return (
            f"the run ends with a regret {'above' if outcome['failing'] else 'within'} {outcome['margin']:g}"
        )
    low, high = outcome["failing_interval"]
    return (
        f"{outcome['failing']} of {outcome['runs']} runs end with a regret above {outcome['margin']:g}; "
        f"95% confidence interval of the share: {low:.3f} to {high:.3f}"
    )


def _count(runs: int) -> str:
    return f"{runs} run" if runs == 1 else f"{runs} runs"


def _run_facts(seed: int, run: LearningRun) -> dict[str, Any]:
    """A run in full; every phase stands for all its episodes."""
    phases = [
        {**phase._asdict(), "escape": None if math.isnan(phase.escape) else phase.escape}
        for phase in run.phases
    ]
    return {"seed": seed, "final": run.final, "regret": run.regret, "samples": run.samples, "phases": phases}
