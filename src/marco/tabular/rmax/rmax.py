"""Adapted R-MAX (Algorithm 2): optimism about unknown pairs, exact planning, new plans between episodes."""

from dataclasses import dataclass

import numpy as np

from marco.tabular.policies import escape_probability
from marco.tabular.rmax.known_model import Counts, Unknown, known_model
from marco.tabular.rmax.loop import Plan, Snapshot, TeamActor, best_team


@dataclass(frozen=True)
class RMax:
    """Plan in the K-known model; a pair is known when it has been seen m times, and not counted further.

    The plan changes only when a pair becomes known, and only between episodes. Once no unknown pair can be
    met, it never changes again.
    """

    m: int
    unknown: Unknown = "absorbing"
    seconds: float = float("inf")
    """The processor's time that a plan may take; beyond it, the best team found is used."""

    def __post_init__(self) -> None:
        if self.m < 1:
            raise ValueError(f"m must be at least 1, got {self.m}.")

    def plan(self, rng: np.random.Generator, counts: Counts, horizon: int, before: Plan | None) -> Plan:
        """The best team in the K-known model."""
        known = counts.known(self.m)
        model = known_model(counts.task, *counts.estimate(), known, self.unknown)
        ceiling = float(horizon) if before is None else before.value
        if self.unknown == "self-loop" or (before is not None and not before.certified):
            # Where unknown pairs absorb, a pair that becomes known can only lower the best value.
            ceiling = float("inf")
        found = best_team(model, horizon, before, self.seconds, ceiling)
        escape = escape_probability(counts.task.problem.dynamics, found.team, known)
        return Plan(
            actor=TeamActor(found.team, counts.task.problem.num_actions),
            team=found.team,
            escape=escape,
            final=escape == 0.0,
            certified=found.optimal,
            value=found.lower,
            known=counts.number_known(self.m),
        )

    def wants(self, counts: Counts, state: int, action: int) -> bool:
        """Known pairs are not counted further."""
        return bool(counts.visits[state, counts.task.canonical[state, action]] < self.m)

    def stale(self, counts: Counts, since: Snapshot) -> bool:
        """Whether a count went from m - 1 to m."""
        return bool(((counts.visits >= self.m) & (since.visits < self.m)).any())
