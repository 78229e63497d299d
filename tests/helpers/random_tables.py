"""Small random problems, and the benchmark files that are not part of the project."""

import os
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from marco.tabular.dpomdp.format import read
from marco.tabular.problem import DecPOMDP, Dynamics

FILES = Path(os.environ.get("MARCO_DPOMDP", Path(__file__).parents[3] / "shared" / "decpomdp"))


def benchmark_problem(name: str) -> DecPOMDP:
    path = FILES / f"{name}.dpomdp.gz"
    if not path.exists():
        pytest.skip(f"{path.name} is missing: set MARCO_DPOMDP to the folder that holds it")
    return _read_once(path)


@lru_cache
def _read_once(path: Path) -> DecPOMDP:
    return read(path)


def from_outcomes(
    outcomes: np.ndarray,
    R: np.ndarray,
    d0: np.ndarray,
    actions: tuple[int, ...],
    observations: tuple[int, ...],
) -> Dynamics:
    """Dynamics from the probabilities of s' and o together, with the axes S, JA, S, JO."""
    observation, after = np.nonzero(outcomes.max((0, 1)).T > 0.0)
    return Dynamics(outcomes[:, :, after, observation], R, d0, observation, after, actions, observations)


def random_dynamics(
    rng: np.random.Generator,
    states: int = 3,
    actions: tuple[int, ...] = (2, 2),
    observations: tuple[int, ...] = (2, 2),
) -> Dynamics:
    """Rewards in [0, 1]. Many outcomes are impossible, so that histories can be merged."""
    joint, seen = int(np.prod(actions)), int(np.prod(observations))
    outcomes = rng.dirichlet(np.full(states * seen, 0.2), (states, joint)).reshape(
        states, joint, states, seen
    )
    if rng.random() < 0.3:
        outcomes[-1] = 0.0
        outcomes[-1, :, -1, 0] = 1.0  # a state that is never left
    R = rng.random((states, joint))
    if rng.random() < 0.3:
        R[-1] = rng.random()
    return from_outcomes(outcomes, R, rng.dirichlet(np.ones(states)), actions, observations)


def turn_taking(rng: np.random.Generator, agents: int = 2, states: int = 5, actions: int = 2) -> Dynamics:
    """In every state one agent acts. It observes that and a bit; the others observe that they do not act."""
    whose, bit = rng.integers(agents, size=states), rng.integers(2, size=states)
    shows = np.zeros((states, agents), int)
    shows[np.arange(states), whose] = 1 + bit
    seen = np.ravel_multi_index(tuple(shows.T), (3,) * agents)
    part = np.stack(np.unravel_index(np.arange(actions**agents), (actions,) * agents))[whose]
    chance = rng.dirichlet(np.full(states, 0.3), (states, actions))[np.arange(states)[:, None], part]
    outcomes = np.zeros((states, actions**agents, states, 3**agents))
    outcomes[:, :, np.arange(states), seen] = chance
    R = rng.random((states, actions))[np.arange(states)[:, None], part]
    start = rng.dirichlet(np.ones(states)) * (whose == whose[0])
    return from_outcomes(outcomes, R, start / start.sum(), (actions,) * agents, (3,) * agents)
