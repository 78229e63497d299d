"""JaxMARL's environments as our worlds: the same numbers, true last states, two kinds of end."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marco.environments.adapters.jaxmarl import JaxMARLWorld
from marco.environments.registry import make
from marco.policies.base import RandomPolicy
from marco.rollout import rollouts
from marco.types import ActionComponent, Continuous, binary, blocks

jaxmarl = pytest.importorskip("jaxmarl")

NOTHING, SWITCH_LIGHT, TELL = range(3)


@pytest.fixture(scope="module")
def riddle():
    return JaxMARLWorld(jaxmarl.make("switch_riddle"))


@pytest.fixture(scope="module")
def reference():
    return JaxMARLWorld(jaxmarl.make("MPE_simple_reference_v3"))


def play(env, moves):
    """Everybody takes the same action, step after step."""
    state, shown = env.reset(jax.random.key(0))
    step = jax.jit(env.step)
    for key, move in zip(jax.random.split(jax.random.key(1), len(moves)), moves, strict=True):
        state, shown = step(key, state, jnp.full(env.spec.num_agents, move, jnp.int32))
    return shown


# --- Shapes ------------------------------------------------------------------------------------------------


def test_riddle_shows_its_two_yes_or_no_observations_and_its_state_without_the_clock(riddle):
    spec = riddle.spec
    assert (spec.name, spec.num_agents, spec.num_actions, spec.horizon) == ("SwitchRiddle", 3, 3, 6)
    assert spec.agents[0].actions == (ActionComponent("action", 3),)
    assert spec.agents[0].observation == (binary("observation.0"), binary("observation.1"))
    assert set(spec.state) == {
        binary("bulb_state"),
        Continuous("agent_in_room"),
        *(Continuous(f"has_been {i}") for i in range(3)),
    }


def test_reference_shows_its_box_as_it_is(reference):
    spec = reference.spec
    assert (spec.num_agents, spec.num_actions, spec.observation_width, spec.horizon) == (2, 50, 21, 25)
    # Five entities with place and velocity, two agents with ten words, two goals.
    assert spec.state_width == 5 * 2 + 5 * 2 + 2 * 10 + 2
    assert spec.state == (
        *(Continuous(f"p_pos {i}", 2) for i in range(5)),
        *(Continuous(f"p_vel {i}", 2) for i in range(5)),
        *(Continuous(f"c {i}", 10) for i in range(2)),
        *(Continuous(f"goal {i}") for i in range(2)),
    )


def test_agents_that_differ_are_padded():
    env = JaxMARLWorld(jaxmarl.make("MPE_simple_speaker_listener_v4"))
    # The speaker sees 3 columns and has 3 words, the listener sees 11 and has 5 moves.
    assert [agent.num_actions for agent in env.spec.agents] == [3, 5]
    assert [agent.observation_width for agent in env.spec.agents] == [3, 11]
    _, shown = env.reset(jax.random.key(0))
    assert shown.observation.shape == (2, 11)
    np.testing.assert_array_equal(shown.observation[0, 3:], np.zeros(8))
    np.testing.assert_array_equal(shown.available, [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])


def test_make_builds_an_instance_by_its_registered_name():
    assert make("jaxmarl:switch_riddle", horizon=4, num_agents=5).spec.num_agents == 5


# --- The same numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "reward"), [("switch_riddle", "sum"), ("MPE_simple_reference_v3", "mean")])
def test_observations_and_rewards_are_those_of_step_env_along_a_trajectory(name, reward):
    inner = jaxmarl.make(name)
    env = JaxMARLWorld(inner, reward=reward)
    seen, theirs = inner.reset(jax.random.key(3))
    state, shown = env.reset(jax.random.key(3))
    step, rng = jax.jit(env.step), np.random.default_rng(0)
    for key in jax.random.split(jax.random.key(4), env.spec.horizon):
        np.testing.assert_allclose(shown.observation, [seen[a] for a in inner.agents], atol=1e-6)
        # Nobody tells, so that the riddle lasts.
        actions = rng.integers(TELL if name == "switch_riddle" else 50, size=len(inner.agents))
        state, shown = step(key, state, jnp.asarray(actions, jnp.int32))
        seen, theirs, rewards, _, _ = inner.step_env(
            key, theirs, dict(zip(inner.agents, actions.tolist(), strict=True))
        )
        paid = np.array([rewards[a] for a in inner.agents])
        np.testing.assert_allclose(shown.reward, getattr(paid, reward)(), rtol=1e-6)
        assert not shown.terminated
    assert shown.truncated


def test_the_reward_of_the_team_may_be_one_agents():
    inner = jaxmarl.make("switch_riddle")
    paid = jnp.array([1.0, 5.0, 3.0])
    for rule, expected in {"mean": 3.0, "sum": 9.0, "agent_1": 5.0}.items():
        assert JaxMARLWorld(inner, reward=rule)._team_reward(paid) == expected
    with pytest.raises(ValueError, match=re.escape("an agent (agent_0, agent_1, agent_2), got 'agent_3'")):
        JaxMARLWorld(inner, reward="agent_3")


def test_our_reference_pays_what_jaxmarls_pays(reference):
    """Two independent versions of MPE agree: JaxMARL's, wrapped, and ours."""
    from marco.environments.reference import Reference, ReferenceState

    state, shown = reference.reset(jax.random.key(0))
    theirs = state.world.inner
    ours = Reference()
    own, seen = ours.begin(
        ReferenceState(
            theirs.p_pos[:2], theirs.p_vel[:2], theirs.p_pos[2:], theirs.goal, jnp.zeros(2, jnp.int32)
        )
    )
    rng, their_step, own_step = np.random.default_rng(1), jax.jit(reference.step), jax.jit(ours.step)
    for key in jax.random.split(jax.random.key(1), 25):
        np.testing.assert_allclose(seen.observation, shown.observation, atol=1e-5)
        np.testing.assert_allclose(seen.reward, shown.reward, atol=1e-5)
        actions = jnp.asarray(rng.integers(50, size=2), jnp.int32)
        state, shown = their_step(key, state, actions)
        own, seen = own_step(key, own, actions)


# --- The two ends ------------------------------------------------------------------------------------------


def test_telling_terminates_and_shows_the_true_last_state(riddle):
    shown = play(riddle, [SWITCH_LIGHT, TELL])
    assert shown.terminated
    assert not shown.truncated
    assert shown.reward == -1.0
    # The light is still on and somebody has been in the room: no fresh episode has taken its place.
    places = zip(riddle.spec.state, blocks(riddle.spec.state), strict=True)
    columns = {feature.name: np.asarray(shown.state[place]) for feature, place in places}
    assert columns["bulb_state"] == 1.0
    assert sum(columns[f"has_been {i}"] for i in range(3)) >= 1.0


def test_reaching_jaxmarls_own_limit_is_truncation_not_termination(riddle):
    state, _ = riddle.reset(jax.random.key(0))
    assert riddle.env.step_env(
        jax.random.key(0), state.world.inner.replace(step=5), dict.fromkeys(riddle.env.agents, NOTHING)
    )[3]["__all__"]
    shown = play(riddle, [NOTHING] * 6)
    assert shown.truncated
    assert not shown.terminated


def test_telling_at_the_very_last_step_is_a_true_end(riddle):
    shown = play(riddle, [NOTHING] * 5 + [TELL])
    assert shown.terminated
    assert not shown.truncated
    assert abs(float(shown.reward)) == 1.0


def test_a_longer_horizon_than_jaxmarls_own_is_kept():
    env = JaxMARLWorld(jaxmarl.make("switch_riddle"), horizon=9)
    assert not play(env, [NOTHING] * 8).last
    assert play(env, [NOTHING] * 9).truncated


class Wrapped:
    """Passes everything on, as JaxMARL's wrappers do, and so has no time limit of its own."""

    def __init__(self, inner):
        self._inner = inner

    def __getattr__(self, name):
        return getattr(self._inner, name)


def test_done_at_the_horizon_of_a_wrapper_whose_limit_cannot_be_lifted_is_truncation():
    env = JaxMARLWorld(Wrapped(jaxmarl.make("switch_riddle")))
    assert env.spec.horizon == 6
    assert play(env, [NOTHING] * 6).truncated
    assert play(env, [TELL]).terminated


# --- Masks, batches, own states ----------------------------------------------------------------------------


def masked_riddle():
    """The riddle with masks: only the agent in the room may do more than nothing."""
    inner = jaxmarl.make("switch_riddle")

    class Masked(type(inner)):
        def get_avail_actions(self, state):
            in_room = jnp.arange(3) == state.agent_in_room
            return {a: jnp.array([1, in_room[i], in_room[i]], jnp.uint8) for i, a in enumerate(self.agents)}

    return JaxMARLWorld(Masked())


def test_masks_are_those_of_get_avail_actions():
    env = masked_riddle()
    state, shown = env.reset(jax.random.key(0))
    expected = np.ones((3, 3), bool)
    expected[np.arange(3) != int(state.world.inner.agent_in_room), 1:] = False
    np.testing.assert_array_equal(shown.available, expected)


def test_without_masks_every_action_is_available(riddle):
    assert riddle.reset(jax.random.key(0))[1].available.all()


def test_a_batch_of_episodes_is_played_at_once():
    episode = rollouts(jax.random.key(0), masked_riddle(), RandomPolicy(), 500)
    assert episode.observation.shape == (7, 500, 3, 2)
    available, actions = np.asarray(episode.available[:-1]), np.asarray(episode.actions)
    assert np.take_along_axis(available, actions[..., None], -1).all()
    # One agent in the room tells with probability 1/3 at each of six steps.
    survived = float(episode.truncated.any(axis=0).mean())
    assert survived == pytest.approx((2 / 3) ** 6, abs=5 * np.sqrt(0.088 * 0.912 / 500))
    assert (episode.terminated.any(axis=0) ^ episode.truncated.any(axis=0)).all()


def test_central_state_can_be_ones_own():
    env = JaxMARLWorld(
        jaxmarl.make("switch_riddle"),
        central=lambda state: state.has_been.astype(float),
        central_features=tuple(binary(f"{i} has been there") for i in range(3)),
    )
    _, shown = env.reset(jax.random.key(0))
    np.testing.assert_array_equal(shown.state, [0, 0, 0])


def test_multi_discrete_actions_become_components_the_first_running_fastest():
    inner = jaxmarl.make("switch_riddle")
    space = jaxmarl.environments.spaces.MultiDiscrete([3, 2])
    inner.action_spaces = dict.fromkeys(inner.agents, space)
    env = JaxMARLWorld(inner)
    assert env.spec.agents[0].actions == (ActionComponent("action.0", 3), ActionComponent("action.1", 2))
    chosen = env._decode(jnp.array([0, 2, 5], jnp.int32))
    np.testing.assert_array_equal([chosen[a] for a in inner.agents], [[0, 0], [2, 0], [2, 1]])


# --- Refusals ----------------------------------------------------------------------------------------------


def test_continuous_actions_are_refused_by_the_agents_name():
    with pytest.raises(ValueError, match=r"agent 'agent_0' has the action space Box.*action_type='Discrete'"):
        JaxMARLWorld(jaxmarl.make("MPE_simple_reference_v3", action_type="Continuous"))


def test_an_environment_without_a_limit_needs_a_horizon():
    inner = jaxmarl.make("switch_riddle")
    del inner.max_steps
    with pytest.raises(ValueError, match=r"names no time limit .*: give horizon="):
        JaxMARLWorld(inner)


def test_something_else_than_an_environment_is_refused():
    with pytest.raises(TypeError, match="no step_env"):
        JaxMARLWorld("switch_riddle")


def test_a_central_function_needs_its_features():
    with pytest.raises(ValueError, match="central and central_features together"):
        JaxMARLWorld(jaxmarl.make("switch_riddle"), central=lambda state: state.has_been)
