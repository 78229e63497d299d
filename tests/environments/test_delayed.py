import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marco.environments.delayed import NONE, PRESS, TAKE, Delayed


def play_actions(env, script):
    """Agent 0 follows the script; what each moment shows."""
    state, timestep = env.reset(jax.random.key(0))
    shown = [timestep]
    step = jax.jit(env.step)
    for action in script:
        actions = jnp.array([action] + [NONE] * (env.agents - 1), jnp.int32)
        state, timestep = step(jax.random.key(0), state, actions)
        shown.append(timestep)
    return shown


def test_the_light_turns_on_delay_steps_after_the_press():
    shown = play_actions(Delayed(), [PRESS] + [NONE] * 11)
    lights = [float(timestep.observation[0, 0]) for timestep in shown]
    assert lights == [0.0] * 10 + [1.0] * 3


def test_nobody_sees_the_countdown():
    """Pressed or not, all observations and actions look alike until the light is on."""
    pressed, idle = play_actions(Delayed(), [PRESS] + [NONE] * 8), play_actions(Delayed(), [NONE] * 9)
    for one, other in zip(pressed[2:], idle[2:], strict=True):
        np.testing.assert_array_equal(one.observation, other.observation)
        assert not np.array_equal(one.state, other.state)


def test_pressing_again_does_not_restart_the_countdown():
    shown = play_actions(Delayed(delay=4), [PRESS] * 4)
    assert [float(t.observation[0, 0]) for t in shown] == [0, 0, 0, 0, 1]


def test_taking_pays_in_the_light_and_costs_in_the_dark():
    shown = play_actions(Delayed(delay=2), [TAKE, PRESS, NONE, TAKE, NONE])
    assert [float(t.reward) for t in shown[1:]] == [-1, 0, 0, 1, 0]
    assert [float(t.observation[0, 0]) for t in shown] == [0, 0, 0, 1, 0, 0]


def test_the_best_team_takes_every_delay_plus_one_steps():
    env = Delayed(delay=3, horizon=9)
    cycle = [PRESS, NONE, NONE, TAKE]
    shown = play_actions(env, cycle * 2 + [NONE])
    assert sum(float(t.reward) for t in shown) == env.optimum == 2.0
    assert shown[-1].truncated
    assert not shown[-1].terminated


@pytest.mark.parametrize(
    ("settings", "message"), [({"agents": 0}, "agents=0"), ({"delay": 0}, "at least 1 step, got delay=0")]
)
def test_bad_sizes_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Delayed(**settings)
