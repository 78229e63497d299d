"""Hand-worked numbers for every target and mixer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marco.environments.switch import Switch
from marco.learners.mixers import Independent, Monotonic, Sum
from marco.learners.q_learning import QLearner, best_values, lambda_returns
from marco.networks import MLP, Dense


def column(*values):
    """Time down, one episode."""
    return jnp.array(values, jnp.float32)[:, None]


def flags(*values):
    return jnp.array(values, bool)[:, None]


def returns(reward, over, bootstrap, gamma=0.5, td_lambda=0.0, mask=None):
    mask = [1] * len(reward) if mask is None else mask
    result = lambda_returns(
        column(*reward), flags(*over), flags(*mask), column(*bootstrap)[..., None], gamma, td_lambda
    )
    return result[:, 0, 0].tolist()


def test_one_step_targets_stop_at_the_end():
    """r + gamma v(next), but r alone at the end."""
    assert returns([1, 2, 3], [0, 0, 1], [9, 10, 20, 99]) == [1 + 5.0, 2 + 10.0, 3.0]


def test_lambda_one_is_the_discounted_return():
    assert returns([1, 2, 4], [0, 0, 1], [9, 9, 9, 9], td_lambda=1.0) == [1 + 0.5 * (2 + 0.5 * 4), 4.0, 4.0]


def test_lambda_between_mixes_value_and_return():
    """G1 = 4; G0 = 1 + 0.5 (0.2 * 10 + 0.8 * 4)."""
    assert returns([1, 4], [0, 1], [7, 10, 99], td_lambda=0.8) == pytest.approx([1 + 0.5 * 5.2, 4.0])


def test_an_episode_that_was_cut_off_bootstraps_at_the_cut():
    """Neither terminated nor at the horizon: the last step taken looks at v, whatever lambda says."""
    result = returns([1, 2, 0], [0, 0, 0], [9, 8, 6, 99], td_lambda=1.0, mask=[1, 1, 0])
    assert result[:2] == [1 + 0.5 * (2 + 0.5 * 6), 2 + 0.5 * 6]


def test_double_q_takes_the_judges_choice_at_the_other_networks_value():
    judge = jnp.array([[1.0, 5.0, 9.0]])
    values = jnp.array([[10.0, 20.0, 30.0]])
    available = jnp.array([[True, True, False]])
    assert best_values(judge, values, available).tolist() == [20.0]
    assert best_values(values, values, available).tolist() == [20.0]
    assert best_values(-judge, values, available).tolist() == [10.0]


def test_vdn_target_sums_each_agents_best_available_value():
    """0.5 + 0.99 * (2.0 + 1.0)."""
    q = jnp.array([[[[0.0, 0.0], [0.0, 0.0]]], [[[2.0, 9.0], [0.5, 1.0]]]])
    available = jnp.array([[[[True, True], [True, True]]], [[[True, False], [True, True]]]])
    best = Sum()(best_values(q, q, available), jnp.zeros((2, 1, 3)))
    target = lambda_returns(column(0.5), flags(0), flags(1), best, 0.99, 0.0)
    assert target[0, 0].tolist() == pytest.approx([0.5 + 0.99 * (2.0 + 1.0)])


def test_iql_keeps_the_agents_apart_and_vdn_adds_them():
    q = jnp.array([1.0, 2.0, 4.0])
    assert Independent()(q, jnp.zeros(2)).tolist() == [1.0, 2.0, 4.0]
    assert Sum()(q, jnp.zeros(2)).tolist() == [7.0]


def constant(size_in, *values):
    """A layer that gives the same whatever it sees."""
    return Dense(jnp.zeros((size_in, len(values))), jnp.array(values, jnp.float32))


def test_qmix_by_hand():
    """|W1| = [[1, 2], [3, 4]], b1 = (-8, 1), |w2| = (1, 2), b2 = 5, q = (1, 1).

    q |W1| + b1 = (4 - 8, 6 + 1) = (-4, 7); elu gives (exp(-4) - 1, 7); times w2 plus b2.
    """
    mixer = Monotonic(
        constant(2, -1, 2, 3, -4), constant(2, -8, 1), constant(2, 1, -2), MLP((constant(2, 5),))
    )
    mixed = mixer(jnp.array([1.0, 1.0]), jnp.array([0.3, 0.7]))
    assert mixed.tolist() == pytest.approx([np.exp(-4) - 1 + 2 * 7 + 5])


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000), st.integers(0, 2), st.floats(0.01, 5))
def test_qmix_never_falls_when_an_agents_value_rises(seed, agent, rise):
    key_mixer, key_q, key_state = jax.random.split(jax.random.key(seed), 3)
    mixer = Monotonic.create(key_mixer, Switch().spec, 8)
    q, state = 3 * jax.random.normal(key_q, (3,)), jax.random.normal(key_state, (7,))
    assert mixer(q.at[agent].add(rise), state)[0] >= mixer(q, state)[0] - 1e-5


def test_epsilon_goes_down_in_a_straight_line():
    learner = QLearner(epsilon_start=1.0, epsilon_end=0.2, epsilon_anneal_steps=100)
    shares = [float(learner.epsilon(jnp.int32(n))) for n in (0, 25, 50, 100, 10_000)]
    assert shares == pytest.approx([1.0, 0.8, 0.6, 0.2, 0.2])


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"batch_size": 0}, "batch_size must be positive, got 0"),
        ({"gamma": 1.5}, "gamma must be between 0.0 and 1.0, got 1.5"),
        ({"td_lambda": -0.1}, "td_lambda must be between 0.0 and 1.0, got -0.1"),
        (
            {"buffer_size": 100, "episodes_per_update": 3},
            "buffer_size=100 must be a multiple of episodes_per_update=3",
        ),
        ({"buffer_size": 31}, "buffer_size=31 never holds a batch of 32: make it larger"),
        ({"learning_rate": 0.0}, "learning_rate must be positive, got 0.0"),
    ],
)
def test_bad_settings_are_refused(settings_, message):
    with pytest.raises(ValueError, match=message):
        QLearner(**settings_)
