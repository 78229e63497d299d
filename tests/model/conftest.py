"""One fit of one small environment, shared by all tests: nearly all the time goes into compiling it."""

from typing import Any, NamedTuple

import jax
import pytest

from helpers.toys import CAPACITY, fit_one, table
from marco.model.rows import gather
from marco.policies.base import RandomPolicy
from marco.rollout import rollouts


class Fitted(NamedTuple):
    env: Any
    episodes: Any
    data: Any
    model: Any
    reports: Any


@pytest.fixture(scope="session")
def fitted():
    """The random table, learned from a thousand episodes of random play."""
    env = table()
    episodes = rollouts(jax.random.key(0), env, RandomPolicy(), 1000)
    data = gather(env.spec, episodes, CAPACITY)
    return Fitted(env, episodes, data, *fit_one(jax.random.key(1), env.spec, data))
