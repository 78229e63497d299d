"""Seeds and restarts: segments change no bit, and the best team is kept whatever its learner."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.tiny_run import TINY, WORLD, Leaning
from marco.algorithm.exploration import StateAsObservation
from marco.environments.switch import Switch
from marco.evaluation import exact_value
from marco.learners.mappo import MAPPO
from marco.learners.parallel import Estimate, each, init_all, train_all, train_seeds_until
from marco.learners.q_learning import QLearner
from marco.learners.restarts import (
    Best,
    better,
    groups,
    race,
    restart_keys,
    stale,
    train_best,
    train_for,
    winning_policy,
    winning_value,
)

VDN = QLearner("vdn", hidden=8, batch_size=4, buffer_size=16)
QMIX = QLearner("qmix", hidden=8, batch_size=4, buffer_size=16, mixing_embed_dim=4)


@pytest.mark.parametrize(
    ("backend", "calls"),
    [
        ("cpu", [(QMIX, (0,)), (QMIX, (2,)), (VDN, (1,)), (VDN, (3,))]),
        ("gpu", [(QMIX, (0, 2)), (VDN, (1, 3))]),
    ],
)
def test_restarts_have_a_call_each_on_a_cpu_and_one_per_learner_elsewhere(monkeypatch, backend, calls):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    assert [(group.learner, group.members) for group in groups((QMIX, VDN, QMIX, VDN))] == calls


def test_one_thing_is_not_batched_and_comes_out_as_in_a_batch():
    seen = []

    def double(x, pair):
        seen.append(x.shape)
        return 2.0 * x, pair[0] + pair[1]

    for count in (1, 3):
        x = jnp.arange(4.0 * count).reshape(count, 4)
        ours, theirs = each(double)(x, (x, x)), jax.vmap(double)(x, (x, x))
        jax.tree.map(np.testing.assert_array_equal, ours, theirs)
    assert set(seen) == {(4,)}


def test_a_value_is_stale_when_it_has_not_risen_beyond_noise_for_three_segments_of_the_second_half():
    noise = np.array([0.1, 0.1])
    flat, rising = [0.5] * 10, [0.1 * n for n in range(10)]
    history = [np.array(values) for values in zip(flat, rising, strict=True)]
    assert not stale(history[:7], noise).any()
    assert stale(history[:8], noise).tolist() == [True, False]
    late = [0.5] * 6 + [0.6, 0.61, 0.62, 0.63]
    assert stale([np.array([value]) for value in late[:9]], np.array([0.05])).tolist() == [False]
    assert stale([np.array([value]) for value in late], np.array([0.05])).tolist() == [True]


@pytest.mark.parametrize(
    ("of_second", "segments", "kept"), [([0.1] * 10, 8, 0.1), ([0.1 * n for n in range(10)], 10, 0.9)]
)
def test_a_race_ends_when_no_seed_gains_and_a_team_that_stands_is_kept(
    monkeypatch, of_second, segments, kept
):
    """The first seed gains nothing for eight segments, and what comes later is too late."""
    values = zip([0.5] * 8 + [0.9] * 2, of_second, strict=True)
    pairs = (jnp.array(pair)[:, None] for pair in values)
    scripted = (Estimate(pair, jnp.full((2, 1), 0.01), pair[..., None]) for pair in pairs)
    monkeypatch.setattr("marco.learners.restarts.evaluate_all", lambda *call: next(scripted))
    keys = restart_keys(jax.random.split(jax.random.key(0), 2), 1)
    told = list(race(keys, lambda progress: WORLD, WORLD, (TINY,), 10))
    assert len(told) == segments
    assert told[-1].progress == 1.0
    np.testing.assert_allclose(winning_value(told[-1].best), [0.5, kept], rtol=1e-6)


def test_training_in_segments_ends_as_in_one_piece_bit_for_bit(monkeypatch):
    monkeypatch.setattr("marco.learners.restarts.PATIENCE", 10)
    keys = jax.random.split(jax.random.key(0), 2)
    restarts = restart_keys(keys, 2)
    envs = WORLD  # it holds no arrays: stacked it is the same
    *_, last = race(restarts, lambda progress: envs, envs, (TINY, TINY), 7)
    wholes = []
    for group in groups((TINY, TINY)):
        own = restarts.of(group.members)
        wholes.append(train_all(own.train, init_all(own.init, TINY, WORLD.spec), envs, TINY, 7)[0])
    assert last.progress == 1.0
    np.testing.assert_array_equal(last.steps, sum(np.asarray(one.samples).sum(-1) for one in wholes))
    states = jax.tree.map(lambda leaf: leaf[:, 0], init_all(restarts.init, TINY, WORLD.spec))
    whole, _ = train_seeds_until(keys, envs, TINY, states, jnp.array([60, 60]))
    *_, last = train_for(keys, lambda progress: envs, TINY, states, 60)
    jax.tree.map(np.testing.assert_array_equal, whole, last.states)
    assert (last.steps == np.asarray(whole.samples)).all()
    assert (last.steps >= 60).all()


def test_a_team_that_goes_on_ends_as_in_one_piece_bit_for_bit():
    keys = jax.random.split(jax.random.key(0), 2)
    restarts = restart_keys(keys, 1)
    begun = init_all(restarts.init, TINY, WORLD.spec)
    whole, _ = train_all(restarts.train, begun, WORLD, TINY, 7)
    continued = jax.tree.map(lambda leaf: leaf[:, 0], begun)
    *_, last = race(restarts, lambda progress: WORLD, WORLD, (TINY,), 7, continued)
    for seed in (0, 1):
        ours = winning_policy(last.best, seed)
        theirs = TINY.greedy(jax.tree.map(lambda leaf, seed=seed: leaf[seed, 0], whole).learner)
        jax.tree.map(np.testing.assert_array_equal, ours, theirs)


def test_the_better_team_is_kept_for_every_seed_by_itself():
    """Policies are told apart by their weights; the first seed gets better, the second does not."""
    first = better(None, Leaning(jnp.array([[1.0, 2.0], [3.0, 4.0]])), jnp.array([[0.1, 0.2], [0.9, 0.3]]))
    np.testing.assert_array_equal(first.policy.weights, [2.0, 3.0])
    second = better(first, Leaning(jnp.array([[5.0], [6.0]])), jnp.array([[0.5], [0.5]]))
    np.testing.assert_array_equal(second.policy.weights, [5.0, 3.0])
    np.testing.assert_allclose(second.value, [0.5, 0.9])


def test_the_winner_may_be_of_another_learner_in_every_seed():
    one = Best(Leaning(jnp.array([[1.0], [2.0]])), jnp.array([0.7, 0.1]))
    other = Best(StateAsObservation(Leaning(jnp.array([3.0, 4.0]))), jnp.array([0.6, 0.2]))
    assert winning_value((one, other)) == pytest.approx([0.7, 0.2])
    assert winning_policy((one, other), 0).weights.tolist() == [1.0]
    assert float(winning_policy((one, other), 1).inner.weights) == 4.0


def test_the_best_of_several_is_chosen_by_its_value_in_the_environment():
    env = Switch(horizon=3)
    learners = (VDN, MAPPO(hidden=8, episodes_per_update=4), VDN)
    team, value = train_best(jax.random.key(0), env, learners, 10)
    assert value == pytest.approx(exact_value(env, team), abs=4 / np.sqrt(4096))
