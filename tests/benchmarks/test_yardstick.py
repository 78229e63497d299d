"""The yardstick: trees that learn what is in the rows, and losses that are what they are said to be."""

import numpy as np
import pytest

from marco.environments.registry import make
from marco.model.config import FitConfig, ModelConfig, PredictorConfig
from marco.types import Categorical, Continuous
from model_quality import measure_models, random_episodes, view_of
from yardstick import SMALLEST, chained, of_probabilities, of_values, related, yardstick


def rows(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 4, (count, 3)).astype(float)


def small_model() -> ModelConfig:
    small, masks = PredictorConfig(hidden=(32,), members=2), PredictorConfig("factored", (32,), members=1)
    return ModelConfig(small, small, small, small, masks, FitConfig(learning_rate=3e-3))


def test_a_rule_is_learned_and_a_coin_is_not() -> None:
    x, test_x = rows(2_000, 0), rows(1_000, 1)
    rule = yardstick(x, (x[:, 0] > x[:, 1]).astype(int), test_x, (test_x[:, 0] > test_x[:, 1]).astype(int))
    assert rule.nats is not None
    assert rule.right is not None
    assert rule.nats < 0.01
    assert rule.right.all()
    coin = [np.random.default_rng(seed).integers(0, 2, len(of)) for seed, of in ((2, x), (3, test_x))]
    chance = yardstick(x, coin[0], test_x, coin[1])
    assert chance.nats == pytest.approx(np.log(2), abs=0.03)


def test_values_of_any_unit_are_learned() -> None:
    """The share of the variance that is left does not depend on the unit."""
    x, test_x = rows(2_000, 0), rows(1_000, 1)
    for unit in (1e-4, 1e4):
        found = yardstick(x, unit * x[:, 0] * x[:, 1], test_x, unit * test_x[:, 0] * test_x[:, 1])
        assert found.unexplained is not None
        assert found.unexplained < 0.01


def test_a_chain_sees_the_columns_before() -> None:
    """Two coins that always agree cost one coin."""
    x, test_x = rows(2_000, 0), rows(1_000, 1)
    coin, test_coin = (
        np.random.default_rng(seed).integers(0, 2, len(of)) for seed, of in ((2, x), (3, test_x))
    )
    first, second = chained(x, [coin, coin], test_x, [test_coin, test_coin])
    assert first.nats == pytest.approx(np.log(2), abs=0.03)
    assert second.nats == pytest.approx(0.0, abs=0.01)


def test_losses_worked_by_hand() -> None:
    found = of_probabilities(np.array([[0.5, 0.5], [0.9, 0.1]]), np.array([0, 1]), np.array([1, 0]))
    assert found.nats == pytest.approx(-(np.log(0.5) + np.log(0.9)) / 2)
    never = of_probabilities(np.array([[1.0]]), np.array([0]), np.array([7]))
    assert never.nats == pytest.approx(-np.log(SMALLEST))
    assert of_values(np.array([1.0, 1.0]), np.array([0.0, 2.0])).unexplained == 1.0
    assert of_values(np.array([1.0, 1.0]), np.array([2.0, 2.0])).unexplained is None


def test_differences_are_those_of_one_kind() -> None:
    """Two rows, a level, and two places of two numbers."""
    features = (
        Categorical("row", 5),
        Categorical("level", 3),
        Categorical("other row", 5),
        Continuous("xy", 2),
    )
    numbers = np.array([[4.0, 1.0, 1.0, 0.5, 0.25]])
    np.testing.assert_array_equal(related(features, numbers), [[4, 1, 1, 0.5, 0.25, 3, 0.25]])


def test_a_model_and_trees_are_judged_by_the_same_fresh_rows() -> None:
    """On `switch` who enters next is pure chance, ln 3 nats; the rest of the next state is known."""
    env = make("switch")
    episodes = random_episodes(env, 600, 0)
    assert 590 <= episodes.mask.sum() <= 600
    parts = measure_models("switch", env, small_model(), 600, 0)
    found = {(row["component"], row["side"]): row for part in parts for row in part}
    sides = ("MARCO", "boosting", "boosting, related")
    assert {side for _, side in found} == set(sides)
    assert {component for component, _ in found} >= {"dynamics", "reward", "observation", "available"}
    for side in sides:
        row = found["dynamics", side]
        assert np.log(3) - 0.02 < row["nats"] < 1.5
        assert row["right"] == pytest.approx(1 / 3, abs=0.06)


def test_the_model_is_of_what_a_run_would_fit() -> None:
    """A guessed spec is described: words are classes, and no numbers."""
    guess, own = make("jaxmarl:MPE_simple_speaker_listener_v4"), make("switch")
    (spec,) = view_of(guess, random_episodes(guess, 500, 0)).model_specs(guess.spec)
    assert not any(isinstance(feature, Categorical) for feature in guess.spec.state)
    assert any(isinstance(feature, Categorical) for feature in spec.state)
    assert view_of(own, random_episodes(own, 100, 0)).model_specs(own.spec) == (own.spec,)
