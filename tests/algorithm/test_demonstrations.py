"""Some imagined episodes retrace real ones: only what was done then, up to a moment of the data."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marco.algorithm.demonstrations import DemonstrationEnvironment, Demonstrations, demonstrations_from
from marco.environments.switch import ACTIONS, Switch
from marco.policies.base import RandomPolicy
from marco.rollout import rollouts

WORLD = Switch()
NONE, ON = ACTIONS.index("None"), ACTIONS.index("On")


def all_turned_on(*lengths: int) -> Demonstrations:
    """Real episodes of these lengths in which everybody always turned the light on."""
    number = sum(lengths)
    begins = np.repeat(np.cumsum(lengths) - np.array(lengths), lengths)
    actions = np.full((number + 3, 3), ON, np.int32)
    first = np.concatenate([begins, np.zeros(3, int)]).astype(np.int32)
    return Demonstrations(jnp.asarray(actions), jnp.asarray(first), jnp.int32(number))


@pytest.fixture(scope="module")
def demonstration_share():
    """Episodes of a random team, each of which retraces a real one of six steps."""
    env = DemonstrationEnvironment(WORLD, all_turned_on(6), jnp.float32(1.0))
    return rollouts(jax.random.key(0), env, RandomPolicy(), 3_000)


def bound_steps(episodes):
    """How many steps at the start of each episode leave the one in the room no choice."""
    choices = np.asarray(episodes.available).sum(-1).max(-1)  # T+1 B
    return np.cumprod(choices[:-1] == 1, axis=0).sum(0)


def test_the_recorded_action_is_the_only_one_and_who_cannot_take_it_is_free(demonstration_share):
    bound = np.arange(WORLD.horizon)[:, None] < bound_steps(demonstration_share)
    in_room = np.asarray(demonstration_share.observation)[:-1, :, :, 0] == 1
    actions = np.asarray(demonstration_share.actions)
    assert bound.any()
    assert (actions[bound][in_room[bound]] == ON).all()
    assert (actions[bound][~in_room[bound]] == NONE).all()  # On is not available to them


def test_the_moment_is_drawn_from_all_that_were_seen(demonstration_share):
    found = np.bincount(bound_steps(demonstration_share), minlength=6) / 3_000
    np.testing.assert_allclose(found, 1 / 6, atol=0.03)  # before its steps 0 to 5


def test_long_episodes_are_retraced_more_often_than_short_ones():
    env = DemonstrationEnvironment(WORLD, all_turned_on(1, 1, 2), jnp.float32(1.0))
    episodes = rollouts(jax.random.key(1), env, RandomPolicy(), 3_000)
    assert np.mean(bound_steps(episodes) == 1) == pytest.approx(1 / 4, abs=0.03)


def test_a_share_is_retraced_and_the_rest_is_as_in_the_world():
    env = DemonstrationEnvironment(WORLD, all_turned_on(6), jnp.float32(0.3))
    episodes = rollouts(jax.random.key(2), env, RandomPolicy(), 3_000)
    assert np.mean(bound_steps(episodes) > 0) == pytest.approx(0.3 * 5 / 6, abs=0.03)


def test_what_was_done_in_real_episodes_comes_in_rows():
    real = rollouts(jax.random.key(3), WORLD, RandomPolicy(), 5)
    past = demonstrations_from(real, 40)
    lengths = np.asarray(real.length)
    assert int(past.number) == lengths.sum()
    at = 0
    for index, length in enumerate(lengths):
        rows = slice(at, at + length)
        np.testing.assert_array_equal(past.actions[rows], real.actions[:length, index])
        assert (np.asarray(past.first[rows]) == at).all()
        at += length
