"""How new a step is: the counts of real steps, worked by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.tiny_run import WORLD
from marco.algorithm.exploration import exploration_environments
from marco.environments.registry import make
from marco.model.novelty import novelty_of
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


def test_each_agents_action_is_counted_in_its_state():
    """Ten times in place 0 with move 0, three times in place 1: one over the root of one plus that."""
    places = np.eye(3, dtype=np.float32)
    found = novelty_of(episodes_of(spec_of(), places[[0, 0, 0, 1] * 3 + [0]], [0] * 13))
    assert float(found.weight) == 1.0  # all of the later seven states had been met
    for place, move, visits in ((0, 0, 10), (1, 0, 3), (2, 0, 0), (0, 1, 0)):
        value = float(found(jnp.asarray(places[place]), jnp.array([move])))
        assert value == pytest.approx((1 + visits) ** -0.5, rel=1e-5)


def test_a_team_is_as_new_as_its_agents_are_on_average():
    """The first agent has taken this action here, the second has not: (1 / sqrt(1 + n) + 1) / 2."""
    env = WORLD
    played = jax.tree.map(np.asarray, rollouts(jax.random.key(0), env, RandomPolicy(), 20))
    found = novelty_of(played)
    taken = np.asarray(played.mask)
    state, actions = played.state[:-1][taken], played.actions[taken]
    row = state[0]
    here = (state == row).all(-1)
    each = [[int((here & (actions[:, agent] == a)).sum()) for a in range(4)] for agent in range(2)]
    for first, second in ((0, 0), (0, 1), (3, 0)):
        expected = np.mean([(1 + each[0][first]) ** -0.5, (1 + each[1][second]) ** -0.5])
        value = float(found(jnp.asarray(row), jnp.array([first, second]))) / float(found.weight)
        assert value == pytest.approx(expected, rel=1e-5)


def test_where_states_never_come_back_nothing_is_new():
    """Of six states, one of the later three had been met: a third of the novelty. Of numbers, none is."""
    places = np.eye(3, dtype=np.float32)
    half = novelty_of(episodes_of(spec_of(), places[[0, 0, 0, 1, 0, 2]], [0] * 6))
    assert float(half.weight) == pytest.approx(1 / 3)
    spec = spec_of(Continuous("metres", 1))
    metres = np.linspace(0.0, 1.0, 50)[:, None].astype(np.float32)
    found = novelty_of(episodes_of(spec, metres, [0] * 50))
    assert float(found(jnp.array([3.0]), jnp.array([0]))) == 0.0


def test_steps_that_are_few_have_places_of_their_own():
    """All pairs of a state of `bridge` with an action, as far as they were met: hardly two share a count."""
    env = make("bridge")
    played = jax.tree.map(np.asarray, rollouts(jax.random.key(0), env, RandomPolicy(), 200))
    taken = np.asarray(played.mask)
    state, actions = played.state[:-1][taken], played.actions[taken]
    steps = {
        (row.tobytes(), agent, action)
        for row, own in zip(state, actions.tolist(), strict=True)
        for agent, action in enumerate(own)
    }
    visits = np.asarray(novelty_of(played).visits)
    assert int((visits > 0).sum()) == pytest.approx(len(steps), abs=2)
    assert int(visits.sum()) == actions.size


def test_the_exploration_policy_is_paid_for_what_is_new_as_for_disagreement(monkeypatch):
    """In a true environment in the place of a model, whose r-tilde is 0."""
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)

    class Certain(type(WORLD)):
        def uncertainty(self, bonus, state, actions, after):
            return jnp.float32(0.0)

    env = Certain(agents=2, horizon=3)
    played = jax.tree.map(np.asarray, rollouts(jax.random.key(0), env, RandomPolicy(), 20))
    novelty = novelty_of(played)
    stacked = jax.tree.map(lambda leaf: leaf[None], (env, novelty))
    explored = exploration_environments(stacked[0], 2.0, "variance", None, stacked[1])
    one = jax.tree.map(lambda leaf: leaf[0], explored)
    state = env.initial(jax.random.key(1))
    actions = jnp.array([0, 0])
    assert float(novelty.weight) > 0.0
    paid = one.transition(jax.random.key(2), state, actions).reward
    plain = env.transition(jax.random.key(2), state, actions).reward
    assert float(paid - plain) == pytest.approx(2.0 * float(novelty(env.central(state), actions)), rel=1e-5)
