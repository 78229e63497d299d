"""Teams of a few steps, repeated: lower bounds over horizons that are too long for best responses."""

import math
from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from marco.tabular.policies import Team, repeated, rewards
from marco.tabular.problem import Dynamics
from marco.tabular.solver.best_response import TooManyBeliefsError, jesp
from marco.tabular.solver.bounds import prepare
from marco.tabular.solver.limits import OutOfTimeError, Stop, go_on

BELIEFS = 1_000
"""The most beliefs of a best response."""
OUTCOMES = 1_000_000
"""The most outcomes at a step of a team, so that its value is computed quickly."""
RESTARTS = 10
"""The number of restarts for each number of steps."""


def short_teams(
    rng: np.random.Generator, dynamics: Dynamics, horizon: int, stop: Stop
) -> Iterator[tuple[float, Team]]:
    """Teams that start anew every step, every two steps and so on, with their values over the horizon."""
    with suppress(TooManyBeliefsError, OutOfTimeError):
        for steps in range(1, horizon):
            _, team = jesp(rng, prepare(dynamics, steps, stop), RESTARTS, stop=stop, limit=BELIEFS)
            nodes = max(
                math.prod(map(len, now)) for now in zip(*(agent.actions for agent in team), strict=True)
            )
            if nodes * dynamics.next_state.size > OUTCOMES:
                return
            again, earned = repeated(team, dynamics.num_observations, horizon), 0.0
            for reward in rewards(dynamics, again):
                go_on(stop)
                earned += reward
            yield earned, again
