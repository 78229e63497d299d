"""What an exploration method is: it plans, decides which steps are recorded, and when to plan again.

Two kinds share the last two. Methods that count to m (`CountsToM`) record a pair until it is known and plan
again when a pair becomes known. The others (`CountsEverything`) record every step, and their plans become
rarer as episodes accumulate.
"""

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from marco.tabular.policies import Team
from marco.tabular.problem import Dynamics
from marco.tabular.rmax.known_model import Counts
from marco.tabular.rmax.simulator import Actor
from marco.tabular.solver.limits import Limits
from marco.tabular.solver.search import Solution, solve

GROWTH = 0.3
"""A method without known pairs plans again when its episodes have grown by this share."""


class Plan(NamedTuple):
    """Who acts next, and the team that the method would return now."""

    actor: Actor
    team: Team
    escape: float
    """The exact probability that an episode of the actor meets an unknown pair; nan if none is unknown."""
    final: bool
    """Whether no episode of the actor can change the plan any more."""
    certified: bool
    """Whether the solver proved the team optimal in the model."""
    value: float
    """The team's value in the model."""
    known: int
    """The number of known pairs."""
    samples: int = 0
    """The samples that the team was planned with, if it is kept for several plans."""


class Snapshot(NamedTuple):
    """Where learning stands in relation to the latest plan."""

    episodes: int
    """Episodes before the plan."""
    played: int
    """Episodes since the plan."""
    visits: Float[np.ndarray, "S JA"]
    """The visits to each pair when the plan was made."""


class Method(ABC):
    """An exploration method."""

    @abstractmethod
    def plan(self, rng: np.random.Generator, counts: Counts, horizon: int, before: Plan | None) -> Plan:
        """Plan with what was counted; `before` is the previous plan."""

    @abstractmethod
    def should_record(self, counts: Counts, state: int, action: int) -> bool:
        """Whether a step from this pair is to be counted."""

    @abstractmethod
    def should_replan(self, counts: Counts, since: Snapshot) -> bool:
        """Whether the episodes since the latest plan call for a new one."""


@dataclass(frozen=True)
class CountsToM(Method):
    """A pair is known after m visits, and is not counted further."""

    m: int

    def __post_init__(self) -> None:
        if self.m < 1:
            raise ValueError(f"m must be at least 1, got {self.m}.")

    def should_record(self, counts: Counts, state: int, action: int) -> bool:
        return bool(counts.visits[state, counts.task.canonical[state, action]] < self.m)

    def should_replan(self, counts: Counts, since: Snapshot) -> bool:
        """Whether a count went from m - 1 to m."""
        return bool(((counts.visits >= self.m) & (since.visits < self.m)).any())

    def _plan(self, actor: Actor, found: Solution, escape: float, counts: Counts) -> Plan:
        return Plan(
            actor=actor,
            team=found.team,
            escape=escape,
            final=escape == 0.0,
            certified=found.optimal,
            value=found.lower,
            known=counts.number_known(self.m),
            samples=int(counts.visits.sum()),
        )


class CountsEverything(Method):
    """Every step is counted, and exploration never ends: no pair is unknown by definition."""

    def should_record(self, counts: Counts, state: int, action: int) -> bool:
        return True

    def should_replan(self, counts: Counts, since: Snapshot) -> bool:
        """Whether the episodes have grown by the share `GROWTH`."""
        return since.played >= max(1.0, GROWTH * since.episodes)

    def _plan(self, actor: Actor, found: Solution, counts: Counts) -> Plan:
        return Plan(
            actor=actor,
            team=found.team,
            escape=float("nan"),
            final=False,
            certified=found.optimal,
            value=found.lower,
            known=counts.number_known(1),
        )


def best_team(
    model: Dynamics, horizon: int, before: Plan | None, seconds: float, ceiling: float = float("inf")
) -> Solution:
    """The best team in a model, found from the previous one within `seconds` of processor time.

    With processor time, what a run learns depends on how fast the machine is, but not on how busy it is.
    """
    team = None if before is None else before.team
    return solve(model, horizon, Limits(seconds, ceiling, clock=time.thread_time), team=team)
