"""Adapted R-MAX (Algorithm 2): optimism about unknown pairs, exact planning, new plans between episodes."""

from dataclasses import dataclass

import numpy as np

from marco.tabular.policies import escape_probability
from marco.tabular.rmax.known_model import Counts, Unknown, known_model
from marco.tabular.rmax.methods import CountsToM, Plan, best_team
from marco.tabular.rmax.simulator import TeamActor


@dataclass(frozen=True)
class RMax(CountsToM):
    """Plan in the K-known model, in which unknown pairs pay R_max.

    The plan changes only when a pair becomes known, and only between episodes. Once no unknown pair can be
    met, it never changes again.
    """

    unknown: Unknown = "absorbing"
    seconds: float = float("inf")
    """Processor time for one plan; after it, the best team found is used."""

    def plan(self, rng: np.random.Generator, counts: Counts, horizon: int, before: Plan | None) -> Plan:
        """The best team in the K-known model."""
        known = counts.known(self.m)
        model = known_model(counts.task, *counts.estimate(), known, self.unknown)
        found = best_team(model, horizon, before, self.seconds, self._ceiling(horizon, before))
        escape = escape_probability(counts.task.problem.dynamics, found.team, known)
        return self._plan(TeamActor(found.team, counts.task.problem.num_actions), found, escape, counts)

    def _ceiling(self, horizon: int, before: Plan | None) -> float:
        """An upper bound on the best value, which ends a search that reaches it.

        Where unknown pairs absorb, a pair that becomes known can only lower the best value.
        """
        if self.unknown == "self-loop" or (before is not None and not before.certified):
            return float("inf")
        return float(horizon) if before is None else before.value
