"""What the three kinds of networks have in common, and what each keeps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.toys import noisy, small
from marco.model.config import PredictorConfig
from marco.model.likelihoods import Layout, bounded_log_variance
from marco.model.predictors import Chain, Factored, Recurrent, create_predictor
from marco.types import Categorical, Continuous, binary

CLASSES = Layout((Categorical("place", 3), binary("light")))
MIXED = Layout((Categorical("place", 3), Continuous("speed", 2), binary("light")))
X = jnp.array([0.5, -1.0])
ALL = jnp.asarray(CLASSES.class_exists)
DRAWS = 10_000
KINDS = {"chain": MIXED, "factored": MIXED, "recurrent": CLASSES}


def one(kind, layout, seed=0, noise=1.0):
    """A single network with random weights everywhere."""
    return jax.tree.map(lambda leaf: leaf[0], noisy(seed, small(kind), 2, layout, noise))


def classes(*values):
    return jnp.array(values, jnp.int32)


@jax.jit
def predict(network, row, seen=ALL):
    return network.predict(X, row, seen)


@jax.jit
def draws(network, seen=ALL):
    """The classes of many rows."""
    u = jax.random.uniform(jax.random.key(0), (DRAWS, network.layout.num_draws))
    return jax.vmap(lambda one: network.draw(one, X, seen).classes)(u)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fresh_network_says_nothing(kind):
    """1/3 each, 1/2 each, and standard Gaussians: whatever the inputs."""
    create = jax.jit(create_predictor, static_argnums=(0, 2, 3))
    said = predict(create(small(kind), jax.random.key(0), 2, KINDS[kind]), classes(2, 1))
    expected = [[1 / 3, 1 / 3, 1 / 3], [1 / 2, 1 / 2, 0.0]]
    np.testing.assert_allclose(jnp.exp(said.log_probability), expected, rtol=1e-6)
    assert (said.mean == 0.0).all()
    assert (said.log_variance == bounded_log_variance(jnp.zeros_like(said.mean))).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_class_never_seen_is_never_said_nor_drawn(kind):
    network = one(kind, CLASSES, noise=0.5)
    seen = jnp.array([[True, False, True], [True, True, False]])
    assert jnp.exp(predict(network, classes(0, 0), seen).log_probability[0, 1]) == 0.0
    assert not (draws(network, seen)[:, 0] == 1).any()
    assert (draws(network)[:, 0] == 1).any()


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_drawn_as_often_as_they_are_predicted(kind):
    """All six rows, each the product of its features' probabilities, within four standard deviations."""
    network = one(kind, CLASSES, noise=0.5)
    rows = [(place, light) for place in range(3) for light in range(2)]
    said = [np.asarray(predict(network, classes(*row)).log_probability) for row in rows]
    expected = np.exp([own[0, place] + own[1, light] for own, (place, light) in zip(said, rows, strict=True)])
    assert expected.sum() == pytest.approx(1.0, abs=1e-5)
    place, light = np.asarray(draws(network)).T
    shares = np.bincount(2 * place + light, minlength=6) / DRAWS
    np.testing.assert_allclose(shares, expected, atol=4 * np.sqrt(0.25 / DRAWS))


@pytest.mark.parametrize("kind", ["chain", "recurrent"])
def test_a_feature_is_told_those_before_it_and_none_after_it(kind):
    network = one(kind, KINDS[kind], noise=0.5)
    base, later, earlier = (predict(network, classes(*row)) for row in ((0, 0), (0, 1), (2, 0)))
    assert (base.log_probability[0] == later.log_probability[0]).all()
    assert (base.log_probability[1] != earlier.log_probability[1])[:2].all()
    assert (base.log_probability[0] == earlier.log_probability[0]).all()
    if base.mean.size:  # the numbers come last, after every class
        assert (base.mean != later.mean).all()
        assert (base.mean != earlier.mean).all()


def test_what_enters_the_recurrent_network_is_the_feature_and_the_class_before_it():
    """For the second of two features after class 2 of three: inputs 1 (of 2) and 2 + 2 (of 2 * 3) are on."""
    network = one("recurrent", CLASSES, noise=0.5)
    entries = network._entries()
    for slot, before, on in ((0, 0, [0]), (0, 2, [0]), (1, 2, [1, 2 + 2]), (1, 0, [1, 2])):
        row = jnp.zeros(2 + 2 * 3).at[jnp.array(on)].set(1.0)
        expected = network.gru.from_input(jax.nn.relu(network.entry(row)))
        np.testing.assert_allclose(entries[slot, before], expected, rtol=1e-5, atol=1e-6)


def test_a_chain_keeps_the_better_slots_of_two():
    """Slot 1 is mine, slots 0 and 2 the other's: so are what they say."""
    mine, other = one("chain", MIXED, seed=0), one("chain", MIXED, seed=1)
    both = mine.choose(jnp.array([False, True, False]), other)
    row = classes(1, 1)
    chosen, own, its = (predict(network, row) for network in (both, mine, other))
    np.testing.assert_array_equal(chosen.log_probability[0], its.log_probability[0])
    np.testing.assert_array_equal(chosen.log_probability[1], own.log_probability[1])
    np.testing.assert_array_equal(chosen.mean, its.mean)
    assert (own.mean != its.mean).all()


def test_a_factored_network_keeps_classes_and_numbers_apart():
    mine, other = one("factored", MIXED, seed=0), one("factored", MIXED, seed=1)
    both = mine.choose(jnp.array([True, False]), other)
    row = classes(1, 1)
    chosen, own, its = (predict(network, row) for network in (both, mine, other))
    np.testing.assert_array_equal(chosen.log_probability, own.log_probability)
    np.testing.assert_array_equal(chosen.mean, its.mean)


def test_units_are_slots_in_a_chain_two_parts_if_factored_and_one_if_recurrent():
    by_slot = jnp.array([1.0, 2.0, 4.0])
    assert one("chain", MIXED).losses(by_slot).tolist() == [1.0, 2.0, 4.0]
    assert one("factored", MIXED).losses(by_slot).tolist() == [3.0, 4.0]
    assert one("recurrent", CLASSES).losses(by_slot[:2]).tolist() == [3.0]


@pytest.mark.parametrize("kind", ["chain", "factored"])
def test_widening_adds_to_the_log_variances_and_to_nothing_else(kind):
    """Weights so small that the log-variances are far from their bound."""
    network = one(kind, MIXED, noise=0.1)
    before = predict(network, classes(0, 1))
    after = predict(network.recalibrate_variance(jnp.array([0.5, 2.0])), classes(0, 1))
    np.testing.assert_allclose(after.log_variance - before.log_variance, [0.5, 2.0], atol=1e-5)
    np.testing.assert_array_equal(after.mean, before.mean)
    np.testing.assert_array_equal(after.log_probability, before.log_probability)


def test_the_recurrent_network_refuses_numbers():
    with pytest.raises(ValueError, match="for categorical features only: use chain or factored"):
        create_predictor(small("recurrent"), jax.random.key(0), 2, MIXED)


def test_an_unknown_kind_is_refused():
    """Without the type checks of the tests, which would refuse the name as well."""
    settings = object.__new__(PredictorConfig)
    object.__setattr__(settings, "kind", "tree")
    with pytest.raises(ValueError, match=r"kind must be one of chain, factored, recurrent, got .tree."):
        settings.__post_init__()


def test_kinds_are_what_they_are_called():
    made = [type(one(kind, CLASSES)) for kind in KINDS]
    assert made == [Chain, Factored, Recurrent]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden": ()}, r"hidden sizes must be positive and at least one, got \(\)"),
        ({"hidden": (16, 0)}, r"got \(16, 0\)"),
        ({"members": 0}, "at least 1 member, got members=0"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        PredictorConfig(**settings)
