"""How new a step is: leverage among the real steps, worked by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.tiny_run import WORLD
from marco.algorithm.exploration import exploration_environments
from marco.environments.registry import make
from marco.model.novelty import MOST_COLUMNS, novelty_of
from marco.policies.base import RandomPolicy
from marco.rollout import rollouts
from marco.types import ActionComponent, Agent, Categorical, Continuous, Episode, Spec


def episodes_of(spec, states, actions):
    """One episode of a single agent that was in these states and took these actions."""
    steps = len(actions)
    rows = np.zeros((steps + 1, 1, spec.state_width), np.float32)
    rows[:steps, 0] = states
    flags = np.zeros((steps, 1), bool)
    return Episode(
        observation=np.zeros((steps + 1, 1, 1, spec.observation_width), np.float32),
        state=rows,
        available=np.ones((steps + 1, 1, 1, spec.num_actions), bool),
        actions=np.array(actions, np.int32)[:, None, None],
        reward=np.zeros((steps, 1), np.float32),
        terminated=flags,
        truncated=flags,
        mask=~flags,
    )


def spec_of(*state):
    place = Categorical("place", 3)
    agent = Agent("walker", (ActionComponent("move", 2),), (place,))
    return Spec("line", (agent,), state or (place,), 10)


def test_a_place_never_entered_is_new_and_one_often_entered_is_not():
    """Columns: place 0, 1, 2, move 0, 1, and a one. Ten times in place 0 with move 0, and once in place 1.

    The inverse of X'X + 1 is worked by numpy.
    """
    spec = spec_of()
    places = np.eye(3, dtype=np.float32)
    found = novelty_of(spec, episodes_of(spec, places[[0] * 10 + [1]], [0] * 11))
    x = np.array([[1, 0, 0, 1, 0, 1]] * 10 + [[0, 1, 0, 1, 0, 1]], float)
    inverse = np.linalg.inv(x.T @ x + np.eye(6))
    for place in range(3):
        row = np.array([*places[place], 1, 0, 1], float)
        value = float(found(jnp.asarray(places[place]), jnp.array([0])))
        assert value == pytest.approx(row @ inverse @ row, rel=1e-4)
    often, once, never = (float(found(jnp.asarray(row), jnp.array([0]))) for row in places)
    assert often < 0.1 < 0.6 < once < 0.7 < 1.0 < never
    assert float(found(jnp.asarray(places[0]), jnp.array([1]))) > 1.0  # a move never made


def test_numbers_are_measured_by_their_range_and_far_away_is_new():
    spec = spec_of(Continuous("metres", 1))
    near = np.linspace(0.0, 1.0, 50)[:, None].astype(np.float32)
    metres = novelty_of(spec, episodes_of(spec, near, [0] * 50))
    millimetres = novelty_of(spec, episodes_of(spec, 1_000 * near + 7, [0] * 50))
    for place in (0.0, 0.5, 3.0):
        one = float(metres(jnp.array([place]), jnp.array([0])))
        other = float(millimetres(jnp.array([1_000 * place + 7]), jnp.array([0])))
        assert one == pytest.approx(other, rel=1e-3)
    assert float(metres(jnp.array([3.0]), jnp.array([0]))) > 5 * float(
        metres(jnp.array([0.5]), jnp.array([0]))
    )


def test_where_there_are_too_many_columns_nothing_is_new():
    spec = spec_of(Continuous("wide", MOST_COLUMNS))
    assert novelty_of(spec, episodes_of(spec, np.zeros((5, MOST_COLUMNS), np.float32), [0] * 5)) is None


def test_the_exploration_policy_is_paid_for_what_is_new_as_for_disagreement(monkeypatch):
    """In a true environment in the place of a model, whose r-tilde is 0."""
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)

    class Certain(type(WORLD)):
        def uncertainty(self, bonus, state, actions, after):
            return jnp.float32(0.0)

    env = Certain(agents=2, horizon=3)
    played = jax.tree.map(np.asarray, rollouts(jax.random.key(0), env, RandomPolicy(), 20))
    novelty = novelty_of(env.spec, played)
    stacked = jax.tree.map(lambda leaf: leaf[None], (env, novelty))
    explored = exploration_environments(stacked[0], 2.0, "variance", None, stacked[1])
    one = jax.tree.map(lambda leaf: leaf[0], explored)
    state = env.initial(jax.random.key(1))
    actions = jnp.array([0, 0])
    paid = one.transition(jax.random.key(2), state, actions).reward
    plain = env.transition(jax.random.key(2), state, actions).reward
    assert float(paid - plain) == pytest.approx(2.0 * float(novelty(env.central(state), actions)), rel=1e-5)


def test_built_in_environments_are_narrow_enough():
    for name in ("switch", "bridge", "reference", "foraging"):
        env = make(name)
        played = jax.tree.map(np.asarray, rollouts(jax.random.key(0), env, RandomPolicy(), 4))
        assert novelty_of(env.spec, played) is not None
