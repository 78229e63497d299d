"""A guide leads some episodes for a while: only its action is available then, and all is free afterwards."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marco.environments.switch import ACTIONS, Switch
from marco.exploration import GuidedEnvironment
from marco.rollout import Policy, RandomPolicy, rollouts

WORLD = Switch()
ON = ACTIONS.index("On")


class TurnsOn(Policy):
    """Whoever is in the room turns the light on; the guide counts the moments it was asked at."""

    def start(self):
        return jnp.int32(0)

    def __call__(self, memory, timestep):
        wanted = jnp.where(timestep.available[:, ON], ON, 0)
        return memory + 1, jax.nn.one_hot(wanted, len(ACTIONS))


@pytest.fixture(scope="module")
def led():
    """Episodes of a random team of which a guide leads every one."""
    env = GuidedEnvironment(WORLD, TurnsOn(), jnp.float32(1.0))
    return rollouts(jax.random.key(0), env, RandomPolicy(), 2_000)


def test_as_long_as_the_guide_leads_only_its_action_is_available(led):
    counts = np.asarray(led.available).sum(-1)  # T+1 B N
    visitor_has_one = counts.max(-1) == 1
    # Led first, free afterwards: once there is a choice, there is one until the horizon.
    leads = np.cumprod(visitor_has_one[:-1], axis=0).astype(bool)
    taken = np.asarray(led.mask)
    in_room = np.asarray(led.observation)[:-1, :, :, 0] == 1
    actions = np.asarray(led.actions)
    assert (actions[leads & taken][in_room[leads & taken]] == ON).all()
    assert not visitor_has_one[:-1][~leads & taken].any()


def test_for_how_long_is_drawn_uniformly_up_to_the_whole_episode(led):
    steps = np.cumprod(np.asarray(led.available).sum(-1).max(-1)[:-1] == 1, axis=0).sum(0)
    # A led team never tells, so that no episode ends before it is free.
    found = np.bincount(steps, minlength=WORLD.horizon + 1) / len(steps)
    assert found[0] == 0.0
    np.testing.assert_allclose(found[1:], 1 / WORLD.horizon, atol=0.03)


def test_a_share_of_none_is_the_inner_world():
    env = GuidedEnvironment(WORLD, TurnsOn(), jnp.float32(0.0))
    episodes = rollouts(jax.random.key(1), env, RandomPolicy(), 500)
    choices = np.asarray(episodes.available).sum(-1).max(-1)
    assert (choices == len(ACTIONS)).all()


def test_the_share_of_led_episodes_is_the_one_asked_for():
    env = GuidedEnvironment(WORLD, TurnsOn(), jnp.float32(0.25))
    episodes = rollouts(jax.random.key(2), env, RandomPolicy(), 2_000)
    led = np.asarray(episodes.available).sum(-1).max(-1)[0] == 1
    assert led.mean() == pytest.approx(0.25, abs=0.04)
