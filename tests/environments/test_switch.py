import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marco.environments.bridge import END, LEFT, RIGHT, BridgeState
from marco.environments.bridge import make_bridge as bridge
from marco.environments.switch import NONE, OFF, ON, TELL, Switch, SwitchState


def world_of(visitor, light, visited):
    return SwitchState(jnp.int32(visitor), jnp.bool_(light), jnp.array(visited, bool))


def joint(*actions):
    return jnp.array(actions, jnp.int32)


def outcome_of(world, actions, outcome=0, env=None):
    return (env or Switch()).successor(world, joint(*actions), jnp.int32(outcome))


@pytest.mark.parametrize(("visited", "reward"), [((1, 1, 1), 1.0), ((1, 1, 0), -1.0)])
def test_telling_ends_with_the_verdict_on_who_has_been_there(visited, reward):
    result = outcome_of(world_of(1, False, visited), (NONE, TELL, NONE), outcome=2)
    assert (float(result.reward), bool(result.terminated)) == (reward, True)


@pytest.mark.parametrize(
    ("light", "action", "after"),
    [(0, ON, 1), (1, ON, 1), (0, OFF, 0), (1, OFF, 0), (1, NONE, 1), (0, NONE, 0)],
)
def test_the_visitor_switches_the_light(light, action, after):
    result = outcome_of(world_of(2, light, (0, 0, 1)), (NONE, NONE, action), outcome=0)
    assert bool(result.world.light) == bool(after)
    np.testing.assert_array_equal(result.world.visited, [True, False, True])
    assert (int(result.world.visitor), float(result.reward), bool(result.terminated)) == (0, 0.0, False)


def test_the_others_can_do_nothing():
    result = outcome_of(world_of(0, False, (1, 1, 1)), (NONE, TELL, ON))
    assert (bool(result.world.light), float(result.reward), bool(result.terminated)) == (False, 0.0, False)
    available = Switch().available(world_of(0, False, (1, 0, 0)))
    np.testing.assert_array_equal(available, [[1, 1, 1, 1], [1, 0, 0, 0], [1, 0, 0, 0]])


def test_only_the_visitor_sees_the_light():
    np.testing.assert_array_equal(Switch().observe(world_of(1, True, (1, 1, 0))), [[0, 0], [1, 1], [0, 0]])


def test_the_first_visitor_counts_as_having_been_there():
    start = Switch().start(jnp.int32(2))
    np.testing.assert_array_equal(start.visited, [False, False, True])
    assert not start.light
    np.testing.assert_allclose(Switch().start_probabilities(), [1 / 3] * 3)


def test_one_agent_is_refused():
    with pytest.raises(ValueError, match="at least 2 agents, got agents=1"):
        Switch(agents=1)


def on_bridge(*positions):
    return BridgeState(jnp.array(positions, jnp.int32), bridge().start(jnp.int32(0)).riddle)


def test_crossing_moves_are_clipped_and_the_room_is_empty():
    env = bridge()
    result = env.successor(on_bridge(0, 1, 3), joint(LEFT, RIGHT, RIGHT), jnp.int32(1))
    np.testing.assert_array_equal(result.world.positions, [0, 2, 3])
    assert int(result.world.riddle.visitor) == 3
    assert not result.world.riddle.visited.any()
    np.testing.assert_array_equal(
        env.observe(result.world), [[1, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0], [0, 0, 0, 1, 0, 0]]
    )
    np.testing.assert_array_equal(env.available(result.world), [[0, 0, 0, 0, 1, 1, 1]] * 3)


def test_the_riddle_starts_at_the_very_step_at_which_all_are_across():
    env = bridge()
    result = env.successor(on_bridge(2, 3, 2), joint(RIGHT, RIGHT, RIGHT), jnp.int32(1))
    assert int(result.world.riddle.visitor) == 1
    np.testing.assert_array_equal(result.world.riddle.visited, [False, True, False])
    np.testing.assert_array_equal(
        env.observe(result.world), [[0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 0], [0, 0, 0, 0, 0, 0]]
    )
    np.testing.assert_array_equal(
        env.available(result.world), [[1, 0, 0, 0, 0, 0, 0], [1] * 7, [1, 0, 0, 0, 0, 0, 0]]
    )


def test_ending_pays_nothing_on_the_bridge_and_in_the_room():
    env = bridge()
    ended = env.successor(on_bridge(0, 0, 0), joint(RIGHT, END, RIGHT), jnp.int32(0))
    assert (float(ended.reward), bool(ended.terminated)) == (0.0, True)
    riddle = BridgeState(jnp.array([3, 3, 3]), world_of(0, True, (1, 1, 1)))
    ended = env.successor(riddle, joint(END, NONE, NONE), jnp.int32(0))
    assert (float(ended.reward), bool(ended.terminated)) == (0.0, True)


def test_left_and_right_do_nothing_in_the_riddle_and_the_rest_is_the_riddles():
    env = bridge()
    riddle = BridgeState(jnp.array([3, 3, 3], jnp.int32), world_of(0, True, (1, 0, 1)))
    moved = env.successor(riddle, joint(LEFT, NONE, NONE), jnp.int32(1))
    np.testing.assert_array_equal(moved.world.positions, [3, 3, 3])
    assert bool(moved.world.riddle.light)
    np.testing.assert_array_equal(moved.world.riddle.visited, [True, True, True])
    told = env.successor(riddle, joint(TELL, NONE, NONE), jnp.int32(1))
    assert (float(told.reward), bool(told.terminated)) == (-1.0, True)


def test_the_state_tells_every_reachable_situation_apart():
    """Riddle: 3 visitors, 2 lights, 4 sets of others who have been there: 24 states are reachable."""
    env, seen = Switch(), set()
    for visitor in range(3):
        for light in (False, True):
            for others in range(4):
                visited = np.insert([others & 1, others >> 1], visitor, 1)
                seen.add(tuple(np.asarray(env.central(world_of(visitor, light, visited))).tolist()))
    assert len(seen) == 24
    assert env.spec.state_width == 7
    assert bridge().spec.state_width == 3 * 4 + 7


def test_a_bridge_of_no_length_is_refused():
    with pytest.raises(ValueError, match="at least 1 long, got length=0"):
        bridge(length=0)


def test_random_team_survives_a_crossing_step_with_probability_8_27():
    from marco.policies.base import RandomPolicy
    from marco.rollout import rollouts

    lengths = np.asarray(rollouts(jax.random.key(0), bridge(), RandomPolicy(), 50_000).length)
    survived = (lengths > 1).mean()
    assert survived == pytest.approx(8 / 27, abs=4 * np.sqrt(8 / 27 * 19 / 27 / 50_000))
