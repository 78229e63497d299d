import jax
import numpy as np

from marco.data.replay import add, empty_buffer, sample
from marco.environments.switch import Switch
from marco.policies.base import RandomPolicy
from marco.rollout import rollouts


def numbered(first, count, env):
    """Episodes whose rewards say which they are."""
    episodes = rollouts(jax.random.key(first), env, RandomPolicy(), count)
    return episodes._replace(reward=0 * episodes.reward + np.arange(first, first + count))


def test_the_ring_keeps_the_last_episodes():
    env = Switch()
    buffer = empty_buffer(env.spec, 6)
    for first in (0, 2, 4, 6):
        buffer = add(buffer, numbered(first, 2, env))
    assert (int(buffer.added), int(buffer.size), buffer.capacity) == (8, 6, 6)
    assert sorted(buffer.episodes.reward[:, 0].tolist()) == [2, 3, 4, 5, 6, 7]


def test_samples_are_whole_episodes_drawn_evenly_from_those_that_are_there():
    env = Switch()
    buffer = add(empty_buffer(env.spec, 100), numbered(0, 4, env))
    batch = sample(jax.random.key(0), buffer, 4000)
    assert batch.observation.shape == (7, 4000, 3, 2)
    assert (batch.reward == batch.reward[0]).all()
    shares = np.bincount(np.asarray(batch.reward[0], int), minlength=4) / 4000
    np.testing.assert_allclose(shares, 0.25, atol=4 * np.sqrt(0.1875 / 4000))
