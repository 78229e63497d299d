"""Whatever an environment counts in: learners, teams, files and exploration see the same numbers."""

import os
from dataclasses import replace

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.rescaled import rescaled
from helpers.tiny_run import KNOWN, TINY, WORLD, settings
from marco.algorithm.exploration import exploration_units
from marco.algorithm.loop import Marco
from marco.algorithm.presets import make_config
from marco.data.dataset import Dataset
from marco.environments.reference import Reference
from marco.environments.registry import make
from marco.evaluation import sampled_value
from marco.learners.mappo import MAPPO
from marco.learners.parallel import init_all, with_units
from marco.learners.q_learning import QLearner
from marco.learners.restarts import train_best
from marco.learners.training import init, train
from marco.policies.base import RandomPolicy
from marco.policies.deploy import load
from marco.policies.export import load_policy
from marco.rollout import rollouts
from marco.types import ActionComponent, Agent, Categorical, Continuous, Episode, Spec
from marco.units import Range, go_on_measuring, measure, real_units, unmeasured

SLOW = "MARCO_SLOW" in os.environ
SMALL = {"hidden": 8, "episodes_per_update": 4, "units": "scaled"}
LEARNERS = {
    "qmix": QLearner("qmix", batch_size=4, buffer_size=8, factored=True, **SMALL),
    "mappo": MAPPO(critic_hidden=8, **SMALL),
}
SPEC = Spec(
    "toy",
    (
        Agent("one", (ActionComponent("a", 2),), (Continuous("x"), Categorical("c", 2, low=-5.0, high=5.0))),
        Agent("two", (ActionComponent("a", 2),), (Continuous("x"), Categorical("c", 2, low=-5.0, high=5.0))),
        Agent("three", (ActionComponent("a", 2),), (Continuous("y"),)),
    ),
    state=(Continuous("s", 2),),
    horizon=2,
)


def toy_episode():
    """One episode of two steps, of which the second never was: what stands there must not count."""
    seen = np.zeros((3, 1, 3, 3), np.float32)
    seen[:, 0, :, 0] = np.transpose([(1.0, 3.0, 999.0), (2.0, 5.0, 999.0), (7.0, 7.0, 999.0)])
    seen[:, 0, :2, 1:] = (5.0, -5.0)
    state = np.array([[[10.0, 4.0]], [[30.0, 4.0]], [[999.0, 999.0]]], np.float32)
    return Episode(
        observation=seen,
        state=state,
        available=np.ones((3, 1, 3, 2), bool),
        actions=np.zeros((2, 1, 3), np.int32),
        reward=np.array([[-20.0], [999.0]], np.float32),
        terminated=np.array([[True], [False]]),
        truncated=np.zeros((2, 1), bool),
        mask=np.array([[True], [False]]),
    )


def test_rewards_are_divided_by_the_largest_and_columns_end_at_one():
    units = measure(unmeasured(SPEC), SPEC, toy_episode())
    shown = units(jax.tree.map(jnp.asarray, toy_episode()))
    assert units.reward_scale == np.float32(1.0 / 20.0)
    assert shown.reward[0, 0] == -1.0
    np.testing.assert_array_equal(shown.state[:2, 0], [[-1.0, 0.0], [1.0, 0.0]])  # a constant column is 0
    # Agents one and two see the same feature, from 1 to 5 between them; that of three was always 7.
    np.testing.assert_array_equal(shown.observation[:2, 0, :, 0], [[-1.0, -0.5, 0.0], [0.0, 1.0, 0.0]])
    # Classes are 0 and 1 whatever their columns hold, and padding stays 0.
    np.testing.assert_array_equal(shown.observation[0, 0, :, 1:], [[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]])


def test_before_anything_was_seen_numbers_stay_finite():
    shown = unmeasured(SPEC)(jax.tree.map(jnp.asarray, toy_episode()))
    assert np.isfinite(shown.observation).all()
    assert np.isfinite(shown.state).all()
    np.testing.assert_array_equal(shown.reward, toy_episode().reward)


def test_rounding_is_no_variation():
    million = np.float32(1e6)
    columns = Range(jnp.array([million]), jnp.array([np.nextafter(million, np.float32(2e6))])).columns
    assert columns.scale[0] == 0.0


def test_units_of_real_data_are_kept_and_others_are_measured_on():
    more = toy_episode()._replace(reward=np.array([[-80.0], [0.0]], np.float32))
    real = real_units(SPEC, toy_episode())
    assert go_on_measuring(real, SPEC, more).reward == 20.0
    assert go_on_measuring(real._replace(measuring=jnp.bool_(True)), SPEC, more).reward == 80.0


@pytest.mark.parametrize("name", LEARNERS)
def test_a_learner_learns_the_same_bits_in_other_units(name):
    """Powers of two change exponents alone."""
    env, learner = Reference(horizon=4), LEARNERS[name]
    plain = trained(rescaled(env), learner)
    assert differ(plain, init(jax.random.key(0), learner, env.spec).learner.online)
    for reward, stretch in ((64.0, 1.0), (1 / 64, 16.0)):
        same_bits(trained(rescaled(env, reward, stretch), learner), plain)


def test_raw_numbers_are_taken_as_they_are():
    env, learner = Reference(horizon=4), replace(LEARNERS["mappo"], units="raw")
    assert differ(trained(rescaled(env, 64.0), learner), trained(rescaled(env), learner))


def trained(env, learner):
    """The networks after a short training."""
    state = init(jax.random.key(0), learner, env.spec)
    return train(jax.random.key(1), env, learner, state, 6)[0].learner.online


def differ(one, other):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return any(np.any(np.asarray(a) != np.asarray(b)) for a, b in pairs)


def same_bits(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("reward", "stretch", "shift"), [(100.0, 3.0, -7.0), (0.01, 0.1, 50.0)])
def test_a_learner_sees_the_same_numbers_in_any_units(reward, stretch, shift):
    env = Reference(horizon=5)
    other = rescaled(env, reward, stretch, shift, classes=True)
    played, same = (rollouts(jax.random.key(2), world, RandomPolicy(), 20) for world in (env, other))
    np.testing.assert_allclose(same.reward, reward * played.reward, rtol=1e-5)
    one = real_units(env.spec, played)(played)
    two = real_units(other.spec, same)(same)
    chex.assert_trees_all_close(one, two, atol=2e-4)
    # Both agents see the same features.
    np.testing.assert_allclose(np.abs(one.observation).max((0, 1, 2)), 1.0, atol=1e-6)


def team_of_marco(env, known=()):
    """A tiny run of MARCO: its exploration policy, its team, and what that imagines to be worth."""
    plan = settings(team=SCALED, explorer=SCALED, final_updates=20)
    *_, (_, state) = Marco(env, plan, (3,), Dataset(None, env.spec, 1), known=known).run()
    return state.explorer.learner.online, state.policy(plan, 0).network, state.imagined.mean


SCALED = replace(TINY, units="scaled")


def test_marco_learns_the_same_team_whatever_rewards_are_counted_in():
    """From the first real step to the last team: the reward's model, exploration and training."""
    *plain, imagined = team_of_marco(rescaled(WORLD), KNOWN[1:])
    *other, larger = team_of_marco(rescaled(WORLD, 64.0), KNOWN[1:])
    same_bits(other, plain)
    assert larger == 64.0 * imagined


@pytest.mark.skipif(not SLOW, reason="takes minutes: make test-all")
@pytest.mark.parametrize("env", [WORLD, Reference(horizon=4)], ids=["riddle", "reference"])
def test_marco_learns_the_same_team_whatever_columns_are_counted_in(env):
    *plain, imagined = team_of_marco(env)
    *other, larger = team_of_marco(rescaled(env, 64.0, 4.0, classes=True))
    same_bits(other, plain)
    assert larger == 64.0 * imagined


def test_units_come_from_real_data_alone():
    """What a team imagines does not change them, and its restarts share them."""
    episodes = rollouts(jax.random.key(0), Reference(horizon=4), RandomPolicy(), 8)
    env, learner = Reference(horizon=4), LEARNERS["mappo"]
    units = real_units(env.spec, episodes)
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf + 1]), units._replace(measuring=jnp.int32(0)))
    keys = jax.random.split(jax.random.key(0), (2, 3))
    states = with_units(learner, init_all(keys, learner, env.spec), stacked)
    np.testing.assert_array_equal(states.learner.units.reward, [[units.reward] * 3, [units.reward + 1] * 3])
    state = init(keys[0, 0], learner, env.spec)
    state = state._replace(learner=learner.with_units(state.learner, jax.tree.map(jnp.copy, units)))
    after = train(jax.random.key(1), env, learner, state, 3)[0].learner
    chex.assert_trees_all_equal(after.units, units)


def test_the_bonus_weighs_as_much_in_any_units():
    """r-tilde has no unit, so R has none beside it; the exploration policy observes the state."""
    units = exploration_units(real_units(SPEC, toy_episode()))
    assert units.reward_scale == 1.0
    np.testing.assert_array_equal(units.observation.low, [[10.0, 4.0]] * 3)


def test_a_saved_team_holds_its_units(tmp_path):
    env = rescaled(Reference(horizon=6), 100.0, 30.0, -200.0, classes=True)
    learner = LEARNERS["mappo"]
    state = init(jax.random.key(0), learner, env.spec)
    team = learner.greedy(train(jax.random.key(1), env, learner, state, 20)[0].learner)
    team.save(tmp_path / "team.npz")
    played = rollouts(jax.random.key(3), env, team, 6)
    by_numpy, again = load(tmp_path / "team.npz"), load_policy(tmp_path / "team.npz", env.spec)
    same_bits(again, team)
    for episode in range(6):
        by_numpy.reset()
        for t in range(env.spec.horizon):
            acted = by_numpy.act(np.asarray(played.observation[t, episode]))
            assert acted == played.actions[t, episode].tolist()


@pytest.mark.skipif(not SLOW, reason="takes minutes: make test-all")
@pytest.mark.parametrize(
    ("env", "learner", "updates", "least"),
    [
        (make("dectiger", horizon=4), "vdn", 4_000, -3.0),
        (make("switch"), "vdn", 2_000, 0.6),
        (Reference(), "mappo", 800, -15.0),
    ],
    ids=["dectiger", "switch", "reference"],
)
def test_teams_are_worth_the_same_in_any_units(env, learner, updates, least):
    """With free samples, in the environment's own units; `least` is far above a team that takes them raw."""
    config = make_config("default", env.spec, {"final_updates": updates, "learner": None})
    named = dict(zip(("mappo", "qmix", "vdn"), config.candidates, strict=False))
    values = []
    for reward, stretch, shift in ((1.0, 1.0, 0.0), (0.01, 0.1, 5.0), (100.0, 7.0, -20.0)):
        world = rescaled(env, reward, stretch, shift, classes=True)
        team, _ = train_best(jax.random.key(0), world, (named[learner],) * 2, updates)
        values.append(sampled_value(jax.random.key(1), world, team, 4_000).mean / reward)
    assert min(values) > least, values
