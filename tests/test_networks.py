import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marco.environments.reference import Reference
from marco.environments.switch import Switch
from marco.networks import GRU, Dense, TeamNetwork, pick_rows
from marco.policies.base import RandomPolicy
from marco.rollout import rollouts
from marco.types import ActionComponent, Agent, Spec, TimeStep, action_table, binary, previous_actions


def test_dense_by_hand():
    layer = Dense(jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.array([0.5, -0.5]))
    assert layer(jnp.array([1.0, 10.0])).tolist() == [31.5, 41.5]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_gru_by_hand():
    """One unit. reset = s(1), update = s(2), new = tanh(3 + s(1) * 0.5 h), mixed by update."""
    gru = GRU(Dense(jnp.ones((1, 3)), jnp.zeros(3)), Dense(jnp.array([[0.0, 0.0, 0.5]]), jnp.zeros(3)))
    memory = gru(jnp.array([0.4]), jnp.array([1.0, 2.0, 3.0]))
    new = np.tanh(3 + sigmoid(1) * 0.5 * 0.4)
    assert memory.tolist() == pytest.approx([(1 - sigmoid(2)) * new + sigmoid(2) * 0.4], abs=1e-6)


@pytest.mark.parametrize("timesteps", [3, 20])  # without a loop, and with one
def test_the_gradient_of_an_episode_is_that_of_its_steps(timesteps):
    gru = GRU.create(jax.random.key(0), 4, 5)
    projected = jax.random.normal(jax.random.key(1), (timesteps, 2, 15))
    wanted = jax.random.normal(jax.random.key(2), (timesteps, 2, 5))

    def at_once(gru, projected):
        return jnp.sum(gru.unroll(projected) * wanted)

    def by_steps(gru, projected):
        memory, total = jnp.zeros((2, 5)), 0.0
        for seen, want in zip(projected, wanted, strict=True):
            memory = gru(memory, seen)
            total += jnp.sum(memory * want)
        return total

    value, slopes = jax.value_and_grad(at_once, (0, 1))(gru, projected)
    expected, expected_slopes = jax.value_and_grad(by_steps, (0, 1))(gru, projected)
    assert value == pytest.approx(float(expected), rel=1e-4, abs=1e-4)
    for slope, wanted_slope in zip(jax.tree.leaves(slopes), jax.tree.leaves(expected_slopes), strict=True):
        np.testing.assert_allclose(slope, wanted_slope, rtol=1e-4, atol=1e-5)
    assert jnp.abs(slopes[0].from_memory.weight).max() > 0.01


def test_picked_rows_are_one_hot_codes_times_the_matrix():
    weight, index = jnp.arange(6.0).reshape(3, 2), jnp.array([[2, 0], [-1, 2]])
    assert pick_rows(weight, index).tolist() == [[[4.0, 5.0], [0.0, 1.0]], [[0.0, 0.0], [4.0, 5.0]]]
    slope = jax.grad(lambda w: jnp.sum(pick_rows(w, index) * jnp.array([1.0, 10.0])))(weight)
    assert slope.tolist() == [[1.0, 10.0], [0.0, 0.0], [2.0, 20.0]]


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("factored", [True, False])
def test_unrolling_is_stepping(shared, factored):
    """Recurrent state and previous actions stand at the right moments."""
    env = Reference(horizon=4)
    team = TeamNetwork.create(jax.random.key(0), env.spec, 16, shared, factored)
    episodes = rollouts(jax.random.key(1), env, RandomPolicy(), 3)
    before = previous_actions(episodes)
    together = team.unroll(episodes.observation, before)
    for b in range(3):
        memory = team.start()
        for t in range(5):
            timestep = TimeStep(episodes.observation[t, b], None, None, before[t, b], None, None, None)
            memory, scores = team.step(memory, timestep)
            np.testing.assert_allclose(scores, together[t, b], atol=1e-5)


def test_agents_with_networks_of_their_own_differ():
    env = Switch()
    own = TeamNetwork.create(jax.random.key(0), env.spec, 8, share_parameters=False)
    assert own.network.head.weight.shape == (3, 8, 4)
    assert not np.allclose(own.network.head.weight[0], own.network.head.weight[1])


def test_factor_heads_add_up():
    """Reference: action = move + 5 * word scores head[move] + head[5 + word]."""
    table = action_table(Reference().spec, factored=True)
    assert table.shape == (2, 50, 15)
    heads = np.arange(15.0)
    scores = table[0] @ heads
    assert scores[3 + 5 * 7] == heads[3] + heads[5 + 7]
    np.testing.assert_array_equal(action_table(Reference().spec, factored=False)[1], np.eye(50))


def test_unequal_agents_have_heads_of_their_own():
    seen = (binary("x"),)
    speaker = Agent("speaker", (ActionComponent("word", 3),), seen)
    mover = Agent("mover", (ActionComponent("x", 2), ActionComponent("y", 2)), seen)
    table = action_table(Spec("s", (speaker, mover), seen, 5), factored=True)
    assert table.shape == (2, 4, 4)
    np.testing.assert_array_equal(table[0, :3, :3], np.eye(3))
    assert table[0, 3].sum() == 0
    np.testing.assert_array_equal(table[1, 2], [1, 0, 0, 1])
