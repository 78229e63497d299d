"""`marco solve`."""

import json
import math
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from marco.cli.common import console, print_bounds
from marco.cli.settings import parse_with_rest, table_of
from marco.tabular import DecPOMDP, Limits, Solution, show, solve
from marco.tabular.policies import FiniteStateController, number_of_lines

LINES = 60
"""The most lines of a tree that are printed."""


@dataclass(frozen=True)
class Solve:
    """Find the best decentralised team of a finite Dec-POMDP, proved optimal, or bounds on its value."""

    problem: Annotated[str, tyro.conf.Positional]
    """A finite environment: a table, a .dpomdp file, switch, bridge, or your own (see `marco worlds`)."""
    horizon: int | None = None
    """The number of steps; that of `marco worlds`, if not given."""
    time: float = math.inf
    """Seconds after which the search ends with the bounds reached. Ctrl-C does the same."""
    memory: float = 4.0
    """Gigabytes by which the program may grow; then the search ends with the bounds reached."""
    json: bool = False
    """Print one JSON object, and nothing else."""
    trees: bool = True
    """Print each agent's policy as a tree."""

    def run(self, problem: DecPOMDP, horizon: int) -> None:
        """Solve, and print the value, the bounds and the policies."""
        for option, value in (("--time", self.time), ("--memory", self.memory)):
            if not value > 0.0:
                raise ValueError(f"{option} must be more than 0, got {value:g}.")
        steps = problem.steps(horizon)
        report = None if self.json else print_bounds
        limits = Limits(self.time, interruptible=True, memory=1e9 * self.memory)
        found = solve(problem.dynamics, steps, limits, report=report)
        if self.json:
            print(json.dumps(self._facts(problem, horizon, found)))
            return
        what = "value" if found.optimal else "best found"
        console.print(
            f"{problem.name}, horizon {horizon}: {what} [bold]{found.lower:.6f}[/bold]", highlight=False
        )
        bounds = f"bounds {found.lower:.6f} to {found.upper:.6f}"
        if math.isfinite(found.mdp):
            bounds += f"; a team that observes the state has the value {found.mdp:.6f}"
        console.print(f"{bounds}; {found.seconds:.2f} s, {found.nodes} occupancy states", highlight=False)
        if found.full:
            console.print(f"The search ended at {self.memory:g} GB of memory: --memory gives it more.")
        if self.trees:
            for agent, controller in enumerate(found.team):
                console.print(f"\nagent {problem.agents[agent]}:", highlight=False)
                _print_tree(problem, controller, agent)

    def _facts(self, problem: DecPOMDP, horizon: int, found: Solution) -> dict[str, Any]:
        policy = [
            {
                "actions": [now.tolist() for now in agent.actions],
                "successors": [now.tolist() for now in agent.successors],
            }
            for agent in found.team
        ]
        return {
            "problem": problem.name,
            "horizon": horizon,
            "prologue": problem.prologue,
            "value": found.lower,
            "upper": found.upper,
            "optimal": found.optimal,
            "seconds": round(found.seconds, 3),
            "occupancy_states": found.nodes,
            "policy": policy,
        }


def main(arguments: list[str]) -> None:
    """Solve and show."""
    options, rest = parse_with_rest(Solve, arguments, "marco solve")
    options.run(*table_of(options, rest))


def _print_tree(problem: DecPOMDP, controller: FiniteStateController, agent: int) -> None:
    for line in show(problem, controller, agent, LINES):
        console.print(line, highlight=False, markup=False)
    if (left := number_of_lines(controller) - LINES) > 0:
        number = f"{left:,}" if left < 10**12 else f"about 10^{math.log10(left):.0f}"
        console.print(f"and {number} more lines; --json gives the whole policy", highlight=False)
