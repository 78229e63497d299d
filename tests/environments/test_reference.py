"""Simple reference: equal to mpe2 step by step, and worth what hand-written teams earn in it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marco.environments.experts import GoToCentroid, StandStill, TellAndGo
from marco.environments.reference import Reference, ReferenceState
from marco.policies.base import RandomPolicy
from marco.rollout import rollouts
from marco.types import NO_ACTION, blocks

HORIZON = 25


def one_world(**changes) -> ReferenceState:
    return ReferenceState(
        positions=jnp.array([[0.0, 0.0], [1.0, 1.0]]),
        velocities=jnp.zeros((2, 2)),
        landmarks=jnp.array([[3.0, 4.0], [1.0, 0.0], [-1.0, 0.0]]),
        goals=jnp.array([0, 1], jnp.int32),
        messages=jnp.array([0, 0], jnp.int32),
    )._replace(**changes)


def test_has_fifty_actions_twentyone_observation_columns_and_forty_state_columns():
    spec = Reference().spec
    assert (spec.num_agents, spec.num_actions, spec.observation_width, spec.state_width) == (2, 50, 21, 40)
    assert spec.agents[0].action_label(2 + 5 * 7) == "right, message 7"


def test_horizon_below_one_is_refused_when_the_world_is_made():
    with pytest.raises(ValueError, match="horizon of at least 1, got 0"):
        Reference(horizon=0)


# --- One step, by hand -------------------------------------------------------------------------------------


def test_reward_is_minus_the_mean_distance_to_the_own_landmark():
    # Agent 0 is at (0, 0), its landmark at (3, 4): 5. Agent 1 is at (1, 1), its landmark at (1, 0): 1.
    moved = Reference().transition(jax.random.key(0), one_world(), jnp.array([0, 0]))
    assert moved.reward == -3.0
    assert not moved.terminated


def test_a_push_shows_in_the_velocity_now_and_in_the_position_a_step_later():
    env, key = Reference(), jax.random.key(0)
    right_and_up = jnp.array([2, 4])
    first = env.transition(key, one_world(), right_and_up).world
    np.testing.assert_array_equal(first.positions, [[0.0, 0.0], [1.0, 1.0]])
    np.testing.assert_allclose(first.velocities, [[0.5, 0.0], [0.0, 0.5]])
    second = env.transition(key, first, jnp.array([1, 0])).world
    np.testing.assert_allclose(second.positions, [[0.05, 0.0], [1.0, 1.05]], atol=1e-7)
    np.testing.assert_allclose(second.velocities, [[0.75 * 0.5 - 0.5, 0.0], [0.0, 0.375]], atol=1e-7)


def test_action_37_is_a_push_to_the_right_and_word_7():
    world = Reference().transition(jax.random.key(0), one_world(), jnp.array([37, 3])).world
    np.testing.assert_array_equal(world.messages, [8, 1])
    np.testing.assert_allclose(world.velocities, [[0.5, 0.0], [0.0, -0.5]])


def test_an_agent_sees_its_partners_goal_and_word_not_its_own():
    world = one_world(velocities=jnp.array([[0.1, 0.2], [0.3, 0.4]]), messages=jnp.array([3, 0], jnp.int32))
    seen = np.asarray(Reference().observe(world))
    np.testing.assert_allclose(seen[0, :8], [0.1, 0.2, 3, 4, 1, 0, -1, 0])
    np.testing.assert_allclose(seen[1, :8], [0.3, 0.4, 2, 3, 0, -1, -2, -1])
    np.testing.assert_array_equal(seen[:, 8:11], [[0.25, 0.75, 0.25], [0.75, 0.25, 0.25]])
    np.testing.assert_array_equal(seen[0, 11:], np.zeros(10))
    np.testing.assert_array_equal(seen[1, 11:], np.eye(10)[2])


def test_central_state_shows_every_field_where_the_spec_says():
    env = Reference()
    world = one_world(messages=jnp.array([0, 10], jnp.int32))
    shown = env.central(world)
    features = {
        f.name: (f, shown[block]) for f, block in zip(env.spec.state, blocks(env.spec.state), strict=True)
    }
    np.testing.assert_array_equal(features["position 1"][1], [1.0, 1.0])
    np.testing.assert_array_equal(features["landmark 0"][1], [3.0, 4.0])
    decoded = [int(f.decode(block)) for name, (f, block) in features.items() if name[:4] in ("goal", "mess")]
    assert decoded == [0, 1, 0, 10]


# --- mpe2, step by step ------------------------------------------------------------------------------------


def mpe2_world(scene) -> ReferenceState:
    """Our world from mpe2's own objects: agent i's `goal_b` is where its partner has to go."""
    goals = [scene.landmarks.index(agent.goal_b) for agent in scene.agents][::-1]
    words = [int(agent.state.c.argmax()) + 1 if agent.state.c.any() else 0 for agent in scene.agents]
    return ReferenceState(
        positions=jnp.array([agent.state.p_pos for agent in scene.agents], jnp.float32),
        velocities=jnp.array([agent.state.p_vel for agent in scene.agents], jnp.float32),
        landmarks=jnp.array([landmark.state.p_pos for landmark in scene.landmarks], jnp.float32),
        goals=jnp.array(goals, jnp.int32),
        messages=jnp.array(words, jnp.int32),
    )


def test_equals_mpe2_in_1250_random_joint_steps():
    simple_reference_v3 = pytest.importorskip("mpe2.simple_reference_v3")
    theirs, ours = simple_reference_v3.parallel_env(max_cycles=HORIZON), Reference(HORIZON)
    begin, step, central = jax.jit(ours.begin), jax.jit(ours.step), jax.jit(ours.central)
    rng, close, steps = np.random.default_rng(0), {"rtol": 0, "atol": 1e-5}, 0
    for episode in range(50):
        seen, _ = theirs.reset(seed=episode)
        scene = theirs.unwrapped.world
        state, shown = begin(mpe2_world(scene))
        np.testing.assert_allclose(shown.observation, [seen[name] for name in theirs.agents], **close)
        while theirs.agents:
            names, actions = theirs.possible_agents, rng.integers(50, size=2)
            seen, rewards, terminated, truncated, _ = theirs.step(
                dict(zip(names, actions.tolist(), strict=True))
            )
            state, shown = step(jax.random.key(0), state, jnp.asarray(actions, jnp.int32))
            np.testing.assert_allclose(shown.observation, [seen[name] for name in names], **close)
            np.testing.assert_allclose(shown.state, central(mpe2_world(scene)), **close)
            np.testing.assert_allclose(shown.reward, np.mean(list(rewards.values())), **close)
            assert bool(shown.terminated) == any(terminated.values())
            assert bool(shown.truncated) == all(truncated.values())
            steps += 1
    assert steps == 1250


def test_starts_are_uniform_in_the_square_with_independent_goals_as_in_mpe2():
    n = 20_000
    worlds = jax.vmap(Reference().initial)(jax.random.split(jax.random.key(0), n))
    for places in (worlds.positions, worlds.landmarks):
        assert -1 <= places.min() < -0.999
        assert 0.999 < places.max() <= 1
        # A uniform number in [-1, 1] has variance 1/3 and standard error 0.577 / sqrt(n) = 0.004.
        np.testing.assert_allclose(places.mean(axis=0), 0.0, atol=5 * 0.0041)
        np.testing.assert_allclose(places.var(axis=0), 1 / 3, atol=5 * 0.0021)
    pairs = np.bincount(np.asarray(worlds.goals @ jnp.array([3, 1])), minlength=9) / n
    np.testing.assert_allclose(pairs, 1 / 9, atol=5 * np.sqrt(1 / 9 * 8 / 9 / n))
    assert not worlds.velocities.any()
    assert not worlds.messages.any()


# --- What teams earn ---------------------------------------------------------------------------------------

# Over 96,000 episodes of 25 steps, mean over agents; standard errors 0.03, 0.03, 0.02 and 0.01.
MEASURED = {"random": -28.28, "still": -26.04, "centroid": -17.34, "own goal": -7.52}


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("random", RandomPolicy()),
        ("still", StandStill()),
        ("centroid", GoToCentroid()),
        ("own goal", TellAndGo()),
    ],
)
def test_hand_written_teams_earn_what_was_measured(name, policy):
    returns = rollouts(jax.random.key(11), Reference(HORIZON), policy, 4000).undiscounted_return
    standard_error = float(returns.std()) / np.sqrt(len(returns))
    assert standard_error < 0.16
    assert abs(float(returns.mean()) - MEASURED[name]) < 4 * standard_error


def test_speaking_is_worth_about_ten_points_over_the_centroid():
    # Other people's controllers in the same convention: centroid -17.0, own goal from step 1 -8.2.
    assert MEASURED["centroid"] == pytest.approx(-17.0, abs=0.5)
    assert -8.2 < MEASURED["own goal"] < -7.2  # -7.2 is theirs from step 0, before anything can be heard


def test_episode_is_cut_at_the_horizon_and_never_ends_by_itself():
    episode = rollouts(jax.random.key(0), Reference(horizon=7), RandomPolicy(), 3)
    assert episode.mask.all()
    assert not episode.terminated.any()
    np.testing.assert_array_equal(episode.truncated.sum(axis=0), [1, 1, 1])
    assert episode.truncated[-1].all()


def test_teller_names_its_partners_landmark_from_the_first_step():
    env = Reference()
    _, first = env.begin(one_world())
    np.testing.assert_array_equal(first.previous_actions, [NO_ACTION, NO_ACTION])
    _, probabilities = TellAndGo()((), first)
    # Agent 1 has to go to landmark 1 and agent 0 to landmark 0: agent 0 says 1, agent 1 says 0.
    np.testing.assert_array_equal(probabilities.argmax(axis=-1) // 5, [1, 0])
