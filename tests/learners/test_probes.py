"""Learners on worlds with known values, and the two habits of the training loop."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers import probes
from marco.environments.switch import Switch
from marco.evaluation import exact_value
from marco.learners.mappo import MAPPO
from marco.learners.q_learning import QLearner
from marco.learners.training import init, train
from marco.policies.base import RandomPolicy
from marco.rollout import rollouts
from marco.types import previous_actions

pytestmark = pytest.mark.usefixtures("optimised")
FAST = {
    "optimiser": "adam",
    "learning_rate": 3e-3,
    "hidden": 32,
    "episodes_per_update": 32,
    "buffer_size": 1024,
    "batch_size": 128,
    "target_update_interval": 25,
    "gamma": 1.0,
    # As in QMIX's paper, behaviour is random throughout, so that values are all that differs.
    "epsilon_end": 1.0,
}
PPO = MAPPO(episodes_per_update=64, gamma=1.0, learning_rate=3e-3)


def learned(env, learner, updates, seed=0):
    key_init, key_train = jax.random.split(jax.random.key(seed))
    return train(key_train, env, learner, init(key_init, learner, env.spec), updates)[0]


@pytest.mark.parametrize("mixer", ["iql", "vdn", "qmix"])
def test_one_joint_choice(mixer):
    env = probes.one_step()
    learner = QLearner(mixer, **FAST)
    state = learned(env, learner, 200)
    assert exact_value(env, learner.greedy(state.learner)) == 1.0


def test_one_joint_choice_by_policy_gradients():
    env = probes.one_step()
    state = learned(env, PPO, 50)
    assert exact_value(env, PPO.greedy(state.learner)) == 1.0


@pytest.mark.parametrize(("mixer", "value"), [("vdn", 7.0), ("qmix", 8.0)])
def test_two_step_game_where_sums_fail_and_qmix_succeeds(mixer, value):
    env = probes.two_step()
    learner = QLearner(mixer, **FAST)
    state = learned(env, learner, 1200)
    assert exact_value(env, learner.greedy(state.learner)) == value


@pytest.mark.parametrize("trace", [0.0, 0.8])
def test_memory_is_needed_and_had(trace):
    """Without memory the best is 1/2."""
    env = probes.memory()
    learner = QLearner("iql", td_lambda=trace, **FAST)
    state = learned(env, learner, 800)
    assert exact_value(env, learner.greedy(state.learner)) == pytest.approx(1.0)


def test_memory_by_policy_gradients():
    env = probes.memory()
    state = learned(env, PPO, 150)
    assert exact_value(env, PPO.greedy(state.learner)) == pytest.approx(1.0)


@pytest.mark.parametrize("mixer", ["iql", "vdn", "qmix"])
def test_values_do_not_grow_past_the_horizon(mixer):
    """4, 3, 2, 1 is left to earn at t = 0, 1, 2, 3; a bootstrap past the clock would add to the last."""
    env = probes.paying()
    learner = QLearner(mixer, **FAST)
    state = learned(env, learner, 800).learner
    episode = rollouts(jax.random.key(1), env, RandomPolicy(), 8)
    q = state.online.team.unroll(episode.observation, previous_actions(episode))
    chosen = jnp.take_along_axis(q[:-1], episode.actions[..., None], axis=-1)[..., 0]
    value = state.online.mixer(chosen, episode.state[:-1])
    np.testing.assert_allclose(value[..., 0].mean(1), [4.0, 3.0, 2.0, 1.0], atol=0.15)


@pytest.mark.parametrize(
    "learner", [QLearner("qmix", batch_size=4, buffer_size=8), MAPPO(episodes_per_update=4)]
)
def test_the_same_seed_gives_the_same_bits_and_a_cut_changes_nothing(learner):
    env = Switch()
    key = jax.random.key(5)

    def run(*pieces):
        state = init(jax.random.key(4), learner, env.spec)
        for updates in pieces:
            state, _ = train(key, env, learner, state, updates)
        return state

    whole = run(12)
    chex.assert_trees_all_equal(whole, run(12))
    chex.assert_trees_all_equal(whole, run(5, 7))


def test_fresh_worlds_of_one_shape_are_never_compiled_again():
    learner = QLearner(batch_size=4, buffer_size=8)
    for index in range(3):
        env = probes.from_tables(
            np.ones((1, 2, 1)),
            np.full((1, 2), float(index)),
            np.ones((2, 1, 1)),
            [1.0],
            actions=(2,),
            observations=(1,),
            horizon=2,
        )
        state = init(jax.random.key(index), learner, env.spec)
        state, metrics = train(jax.random.key(index), env, learner, state, 3 + index)
        assert float(metrics["return"]) == 2.0 * index
        if index == 0:
            compiled = train._cache_size()
    assert train._cache_size() == compiled


def test_samples_are_the_steps_really_taken():
    env = Switch()
    learner = QLearner(batch_size=4, buffer_size=40, episodes_per_update=20)
    state = init(jax.random.key(0), learner, env.spec)
    state, _ = train(jax.random.key(1), env, learner, state, 1)
    assert int(state.samples) == int(state.learner.replay.episodes.mask.sum())
    assert int(state.learner.replay.size) == 20
