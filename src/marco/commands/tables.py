"""The commands of the tables: marco solve, marco rmax, marco bound."""

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro
from rich.table import Table

from marco.commands.common import console, parse_settings
from marco.tabular.bounds import Promise, printed, repaired, verdict
from marco.tabular.comparators import (
    Centralised,
    EpsilonGreedy,
    ExplorationBonus,
    PosteriorSampling,
    RandomExploration,
)
from marco.tabular.heuristics import mdp_bound
from marco.tabular.known_model import Unknown, make_task
from marco.tabular.learning import Method, Run, learn
from marco.tabular.policies import show
from marco.tabular.problem import DecPOMDP
from marco.tabular.problems import load
from marco.tabular.rmax import RMax
from marco.tabular.solver import Solution, solve
from marco.tabular.statistics import summary

MethodName = Literal["rmax", "random", "epsilon-greedy", "psrl", "bonus", "centralised"]


@dataclass(frozen=True)
class Solve:
    """Find the best decentralised team of a finite Dec-POMDP, exactly, or bounds on what it earns."""

    problem: Annotated[str, tyro.conf.Positional]
    """dectiger, broadcast-channel, recycling, gridsmall, counterexample, switch, bridge; or a file."""
    horizon: int
    """How many steps."""
    time: float = math.inf
    """Seconds after which the bounds reached are given. Ctrl-C does the same."""
    json: bool = False
    """Print one JSON object, and nothing else."""
    trees: bool = True
    """Show each agent's policy as a tree."""
    set: tuple[str, ...] = ()
    """Settings of the problem, as in --set agents=4."""

    def run(self) -> None:
        """Solve and show."""
        problem = load(self.problem, **parse_settings(self.set))
        steps = problem.steps(self.horizon)
        report = None if self.json else _report
        found = solve(problem.dynamics, steps, seconds=self.time, report=report)
        if self.json:
            print(json.dumps(self._facts(problem, found)))
            return
        what = "value" if found.optimal else "best found"
        console.print(
            f"{problem.name}, horizon {self.horizon}: {what} [bold]{found.lower:.6f}[/bold]", highlight=False
        )
        console.print(
            f"bounds {found.lower:.6f} to {found.upper:.6f}; a team that sees the state earns "
            f"{mdp_bound(problem.dynamics, steps):.6f}; {found.seconds:.2f} s, "
            f"{found.nodes} occupancy states",
            highlight=False,
        )
        if self.trees:
            for agent, policy in enumerate(found.team):
                console.print(f"\nagent {problem.agents[agent]}:", highlight=False)
                _print_tree(show(problem, policy, agent))

    def _facts(self, problem: DecPOMDP, found: Solution) -> dict[str, Any]:
        policy = [
            {
                "actions": [now.tolist() for now in agent.actions],
                "successors": [now.tolist() for now in agent.successors],
            }
            for agent in found.team
        ]
        return {
            "problem": problem.name,
            "horizon": self.horizon,
            "prologue": problem.prologue,
            "value": found.lower,
            "upper": found.upper,
            "optimal": found.optimal,
            "seconds": round(found.seconds, 3),
            "occupancy_states": found.nodes,
            "policy": policy,
        }


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


@dataclass(frozen=True)
class Bound:
    """The numbers of the theorem: samples per pair and bad episodes, as printed and as repaired."""

    states: int
    """S."""
    joint_actions: int
    """A: the joint actions."""
    horizon: int
    """H."""
    epsilon: float
    """All but so many episodes are within 2 epsilon of the best team; rewards are in [0, 1]."""
    delta: float
    """The probability of failure."""
    gamma: float = 0.99
    """The discount of the conditions as printed."""
    joint_observations: int = 1
    """Joint observations, if they are no function of the next state."""
    json: bool = False
    """Print one JSON object, and nothing else."""

    def run(self) -> None:
        """Compute and show."""
        promises = {
            "printed": printed(self.states, self.joint_actions, self.epsilon, self.delta, self.gamma),
            "repaired": repaired(
                self.states,
                self.joint_actions,
                self.horizon,
                self.epsilon,
                self.delta,
                self.joint_observations,
            ),
        }
        verdicts = {name: verdict(promise, self.epsilon, self.horizon) for name, promise in promises.items()}
        if self.json:
            print(
                json.dumps({name: {**p._asdict(), "verdict": verdicts[name]} for name, p in promises.items()})
            )
            return
        table = Table("", "m_R", "m_P", "m", "bad episodes, at most")
        for name, promise in promises.items():
            table.add_row(name, *_cells(promise))
        console.print(table)
        for name, words in verdicts.items():
            console.print(f"{name}: {words}.", highlight=False)
        console.print(
            f"printed: gamma {self.gamma:g}, and 3 epsilon and 2 delta in truth, see docs/theory.md.",
            highlight=False,
        )


def _report(lower: float, upper: float, seconds: float) -> None:
    print(f"{seconds:6.1f} s: {lower:.6f} to {upper:.6f}", file=sys.stderr, flush=True)


def _print_tree(lines: list[str], most: int = 60) -> None:
    for line in lines[:most]:
        console.print(line, highlight=False, markup=False)
    if len(lines) > most:
        console.print(f"and {len(lines) - most} more lines; --json gives the whole policy")


def _life(seed: int, run: Run) -> dict[str, Any]:
    """A run in full; every phase stands for all its episodes."""
    phases = [{**phase._asdict(), "escape": _number(phase.escape)} for phase in run.phases]
    return {"seed": seed, "final": run.final, "regret": run.regret, "samples": run.samples, "phases": phases}


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _cells(promise: Promise) -> list[str]:
    return [
        f"{number:.3g}" for number in (promise.m_reward, promise.m_transition, promise.m, promise.episodes)
    ]
