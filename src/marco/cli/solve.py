"""The commands that reckon: marco solve, marco bound."""

import json
import math
from dataclasses import dataclass
from typing import Annotated, Any

import tyro
from rich.table import Table

from marco.cli.common import console, parse_settings, tell_bounds
from marco.tabular.library import load
from marco.tabular.policies import show
from marco.tabular.problem import DecPOMDP
from marco.tabular.rmax.theorem import Promise, printed, repaired, verdict
from marco.tabular.solver.bounds import mdp_bound
from marco.tabular.solver.search import Solution, solve


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
        report = None if self.json else tell_bounds
        found = solve(problem.dynamics, steps, seconds=self.time, report=report, interruptible=True)
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


def _print_tree(lines: list[str], most: int = 60) -> None:
    for line in lines[:most]:
        console.print(line, highlight=False, markup=False)
    if len(lines) > most:
        console.print(f"and {len(lines) - most} more lines; --json gives the whole policy")


def _cells(promise: Promise) -> list[str]:
    return [
        f"{number:.3g}" for number in (promise.m_reward, promise.m_transition, promise.m, promise.episodes)
    ]
