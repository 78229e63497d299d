"""Hand-worked likelihoods, and the columns they are read from."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marco.model.likelihoods import (
    MIN_LOG_VARIANCE,
    Layout,
    Prediction,
    Targets,
    bounded_log_variance,
    categorical,
    draw_classes,
    draw_values,
    negative_log_likelihood,
)
from marco.types import Categorical, Continuous, binary

LAYOUT = Layout((Categorical("place", 3), Continuous("speed", 2), binary("light")))
SAID = Prediction(
    jnp.log(jnp.array([[0.2, 0.5, 0.3], [0.9, 0.1, 1e-20]])),
    jnp.array([1.0, 0.0]),
    jnp.log(jnp.array([4.0, 1.0])),
)
HAPPENED = Targets(jnp.array([1, 1]), jnp.array([3.0, 5.0]))


def test_a_layout_counts_features_classes_numbers_and_slots():
    assert (LAYOUT.num_categorical, LAYOUT.num_classes, LAYOUT.num_values, LAYOUT.num_slots) == (2, 3, 2, 3)
    assert LAYOUT.slot_names == ("place", "light", "continuous")
    assert LAYOUT.value_dimensions.tolist() == [3, 4]
    assert LAYOUT.class_exists.tolist() == [[True, True, True], [True, True, False]]


def test_columns_split_into_classes_and_numbers_and_join_again():
    columns = jnp.array([[0.0, 1.0, 0.0, 0.5, -2.0, 1.0], [1.0, 0.0, 0.0, 7.0, 8.0, 0.0]])
    targets = LAYOUT.split(columns)
    assert targets.classes.tolist() == [[1, 1], [0, 0]]
    assert targets.values.tolist() == [[0.5, -2.0], [7.0, 8.0]]
    assert LAYOUT.join(targets).tolist() == columns.tolist()


def test_layouts_without_classes_or_without_numbers_are_empty_there():
    numbers, classes = Layout((Continuous("x", 2),)), Layout((binary("b"),))
    assert numbers.split(jnp.ones((4, 2))).classes.shape == (4, 0)
    assert classes.split(jnp.ones((4, 1))).values.shape == (4, 0)
    assert (numbers.num_slots, classes.num_slots) == (1, 1)


def test_likelihood_by_hand():
    """-ln 0.5; -ln 0.1; and for numbers 2 and 5 off, of variances 4 and 1, (1 + ln 4 + 25) / 2 + ln 2 pi."""
    nats = negative_log_likelihood(SAID, HAPPENED, jnp.array([True, True]))
    expected = [-np.log(0.5), -np.log(0.1), 0.5 * (1 + np.log(4) + 25) + np.log(2 * np.pi)]
    assert nats.tolist() == pytest.approx(expected, rel=1e-6)


def test_a_number_counts_by_the_root_of_its_variance_with_a_beta_of_a_half():
    """The first of those numbers, of variance 4, counts twice; classes, and the second, count as before."""
    nats = negative_log_likelihood(SAID, HAPPENED, jnp.array([True, True]), beta=0.5)
    first, second = 0.5 * (1 + np.log(4) + np.log(2 * np.pi)), 0.5 * (25 + np.log(2 * np.pi))
    assert nats.tolist() == pytest.approx([-np.log(0.5), -np.log(0.1), 2 * first + second], rel=1e-6)


def test_no_gradient_flows_through_the_weight_of_a_number():
    """It would be lowered by a smaller variance: that of 5 off, of variance 1, is (1 - 25) / 2 without."""

    def loss(log_variance):
        said = SAID._replace(log_variance=jnp.array([log_variance, 0.0])[::-1])
        return negative_log_likelihood(said, HAPPENED, jnp.array([False, True]), beta=0.5).sum()

    assert float(jax.grad(loss)(0.0)) == pytest.approx((1 - 25) / 2)


def test_a_number_that_never_varies_counts_for_nothing():
    nats = negative_log_likelihood(SAID, HAPPENED, jnp.array([True, False]))
    assert float(nats[2]) == pytest.approx(0.5 * (1 + np.log(4) + np.log(2 * np.pi)), rel=1e-6)


def test_without_numbers_there_is_a_slot_per_class_feature_only():
    nothing = jnp.zeros(0)
    said = Prediction(SAID.log_probability, nothing, nothing)
    nats = negative_log_likelihood(said, Targets(HAPPENED.classes, nothing), jnp.zeros(0, bool))
    assert nats.tolist() == pytest.approx([-np.log(0.5), -np.log(0.1)], rel=1e-6)


def test_a_class_that_cannot_be_has_probability_exactly_0_whatever_its_score():
    """The scores ln 1, ln 3 and 50, of which the last cannot be: 1/4 and 3/4."""
    said = categorical(jnp.array([[0.0, np.log(3.0), 50.0]]), jnp.array([[True, True, False]]))
    assert jnp.exp(said)[0].tolist() == pytest.approx([0.25, 0.75, 0.0], rel=1e-6)
    assert jnp.exp(said)[0, 2] == 0.0


def test_log_variances_are_kept_above_the_surest_and_else_left_alone():
    bounded = bounded_log_variance(jnp.array([-1e4, 0.0, 3.0]))
    assert bounded.tolist() == pytest.approx([MIN_LOG_VARIANCE, 0.0, 3.0], abs=2e-6)  # softplus(-14) < 1e-6


def test_draws_follow_the_probabilities_and_never_take_the_impossible():
    """Within four standard deviations of a share, at most sqrt(1 / (4 n))."""
    n = 10_000
    keys = jax.random.split(jax.random.key(0), n)
    log_probability = jnp.log(jnp.array([0.5, 0.0, 0.2, 0.3]))
    drawn = np.asarray(jax.vmap(lambda key: draw_classes(jax.random.uniform(key), log_probability))(keys))
    shares = np.bincount(drawn, minlength=4) / n
    np.testing.assert_allclose(shares, [0.5, 0.0, 0.2, 0.3], atol=4 * np.sqrt(0.25 / n))
    assert shares[1] == 0.0


def test_drawn_numbers_have_the_mean_and_the_variance_said():
    """Standard errors over n draws: sqrt(var / n) of the mean, var sqrt(2 / n) of the variance."""
    n = 10_000
    keys = jax.random.split(jax.random.key(0), n)
    mean, variance = jnp.array([1.0, -2.0]), jnp.array([4.0, 0.25])
    drawn = np.asarray(
        jax.vmap(lambda key: draw_values(jax.random.uniform(key, (2,)), mean, jnp.log(variance)))(keys)
    )
    assert (np.abs(drawn.mean(0) - mean) < 4 * np.sqrt(variance / n)).all()
    assert (np.abs(drawn.var(0) - variance) < 4 * variance * np.sqrt(2 / n)).all()


def test_numbers_stand_for_the_quantiles_of_a_gaussian_and_none_is_infinite():
    """The median is the mean; 0.97725 of a Gaussian lies below two standard deviations."""
    luck = jnp.array([0.0, 0.02275, 0.5, 0.97725, 1.0 - 2.0**-23])
    drawn = draw_values(luck, jnp.full(5, 1.0), jnp.full(5, jnp.log(9.0)))
    np.testing.assert_allclose(drawn[1:4], [-5.0, 1.0, 7.0], atol=1e-3)
    assert 15.0 < -(drawn[0] - 1.0) < 18.0
    assert 15.0 < drawn[4] - 1.0 < 18.0
