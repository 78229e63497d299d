"""Exact errors by hand on worlds of a few states."""

import jax.numpy as jnp
import numpy as np
import pytest

from helpers.toys import noisy_model, unbounded
from marco.environments.switch import Switch
from marco.environments.tabular import from_tables
from marco.model.components import Component, Known, Scaling
from marco.model.inputs import Inputs
from marco.model.likelihoods import Layout
from marco.model.predictors import Chain
from marco.model.report.exact import dynamics_error, reachable_pairs
from marco.model.rows import gather
from marco.networks import MLP, Dense
from marco.types import Episode


def line():
    """Three states in a row, one agent: action 0 stays, action 1 goes right with probability 3/4.

    State 2 is the end; state 1 can be reached from 0 alone. Nobody sees anything.
    """
    P = np.zeros((3, 2, 3))
    P[:, 0] = np.eye(3)
    P[0, 1] = [0.25, 0.75, 0.0]
    P[1, 1] = [0.0, 0.25, 0.75]
    P[2, 1] = [0.0, 0.0, 1.0]
    O = np.full((2, 3, 2), 0.5)  # noqa: E741
    return from_tables(
        P,
        np.zeros((3, 2)),
        O,
        [1.0, 0.0, 0.0],
        actions=(2,),
        observations=(2,),
        horizon=3,
        terminal=[False, False, True],
    )


def linear_dynamics(spec, *weights):
    """A chain per member whose scores are a linear map of (s, a): rows 0 to 2 for s, 3 and 4 for a."""
    layout = Layout(spec.state)
    straight = Dense(
        jnp.stack([jnp.concatenate([jnp.asarray(w, jnp.float32), jnp.zeros((3, 3))])[None] for w in weights]),
        jnp.zeros((len(weights), 1, 3)),
    )
    silent = MLP((Dense(jnp.zeros((len(weights), 1, 8, 3)), jnp.zeros((len(weights), 1, 3))),))
    unscaled = Scaling(jnp.zeros(5), jnp.ones(5))
    none = Scaling(jnp.zeros(0), jnp.zeros(0))
    return Component(
        Chain(silent, straight, layout), unscaled, none, jnp.ones((1, 3), bool), unbounded(layout), layout
    )


def model_with(dynamics):
    return noisy_model(0, line().spec, np.eye(3, dtype=np.float32), dynamics=dynamics)


def test_every_pair_that_can_come_up_is_found_with_what_can_follow():
    """States 0 and 1 with two actions each; what is seen at random is added up."""
    pairs = reachable_pairs(line())
    assert pairs.state.argmax(-1).tolist() == [0, 0, 1, 1]
    assert pairs.actions[:, 0].tolist() == [0, 1, 0, 1]
    chance = np.zeros((4, 3))
    for pair in range(4):
        np.add.at(chance[pair], pairs.following[pair].argmax(-1), pairs.chance[pair])
    np.testing.assert_allclose(chance, [[1, 0, 0], [0.25, 0.75, 0], [0, 1, 0], [0, 0.25, 0.75]], atol=1e-7)
    assert ((pairs.chance > 0).sum(-1) == [1, 2, 1, 2]).all()


def test_the_switch_has_24_states_with_4_actions_of_the_visitor():
    pairs = reachable_pairs(Switch())
    assert pairs.actions.shape == (96, 3)
    assert len(np.unique(pairs.state, axis=0)) == 24
    visitor = pairs.state[:, :3].argmax(-1)
    others = np.arange(3) != visitor[:, None]
    assert (pairs.actions[others] == 0).all()
    assert np.bincount(pairs.actions[np.arange(96), visitor]).tolist() == [24] * 4
    np.testing.assert_allclose(np.sort(pairs.chance, -1)[:, -3:], 1 / 3, atol=1e-6)


def test_a_horizon_too_short_to_get_there_leaves_states_out():
    """In two steps at most two agents have been in the room before the last action."""
    assert len(reachable_pairs(Switch(horizon=1)).actions) == 3 * 4
    assert len(reachable_pairs(Switch(horizon=2)).actions) == (3 * 2 + 6 * 2) * 4


def test_too_many_pairs_are_refused():
    with pytest.raises(ValueError, match="switch has over 50 pairs of state and joint action: too many"):
        reachable_pairs(Switch(), limit=50)


def test_errors_of_a_model_that_says_one_third_each():
    """To stay for sure: 2/3 is impossible. 1/4 and 3/4: off by 1/12, 5/12 and 1/3 impossible, half of it."""
    error = dynamics_error(
        model_with(linear_dynamics(line().spec, np.zeros((5, 3)))), reachable_pairs(line())
    )
    going = 0.5 * (1 / 12 + 5 / 12 + 1 / 3)
    np.testing.assert_allclose(error.total_variation, [2 / 3, going, 2 / 3, going], atol=1e-6)
    np.testing.assert_allclose(error.impossible, [2 / 3, 1 / 3, 2 / 3, 1 / 3], atol=1e-6)
    assert error.seen.tolist() == [0, 0, 0, 0]


def test_the_error_is_that_of_the_mixture_of_the_members():
    """Always 0, always 1, in state 0: half each, where to stay is certain and to go has 1/4 and 3/4."""
    always = [np.zeros((5, 3)) for _ in range(2)]
    always[0][:3, 0] = always[1][:3, 1] = 100.0
    error = dynamics_error(model_with(linear_dynamics(line().spec, *always)), reachable_pairs(line()))
    np.testing.assert_allclose(error.total_variation[:2], [0.5, 0.25], atol=1e-6)
    np.testing.assert_allclose(error.impossible[:2], [0.5, 0.0], atol=1e-6)


def test_visits_are_counted_by_state_and_joint_action():
    """Two episodes: right, right; and stay, which is all the second does."""
    state = np.eye(3, dtype=np.float32)[[[0, 0], [1, 0], [2, 0]]]
    episodes = Episode(
        observation=np.zeros((3, 2, 1, 2), np.float32),
        state=state,
        available=np.ones((3, 2, 1, 2), bool),
        actions=np.array([[[1], [0]], [[1], [0]]], np.int32),
        reward=np.zeros((2, 2), np.float32),
        terminated=np.array([[False, False], [True, False]]),
        truncated=np.zeros((2, 2), bool),
        mask=np.array([[True, True], [True, False]]),
    )
    data = gather(line().spec, episodes, capacity=10)
    model = model_with(linear_dynamics(line().spec, np.zeros((5, 3))))
    assert dynamics_error(model, reachable_pairs(line()), data).seen.tolist() == [1, 1, 0, 1]


def test_known_dynamics_have_no_error_to_find():
    with pytest.raises(ValueError, match="for learned dynamics of discrete states"):
        dynamics_error(model_with(Known(abs)), reachable_pairs(line()))


def test_inputs_of_the_line_are_three_columns_of_state_and_two_of_action():
    """What the weights above rely on."""
    x = Inputs(line().spec).before_step(jnp.eye(3)[1], jnp.array([1], jnp.int32))
    assert x.tolist() == [0, 1, 0, 0, 1]
