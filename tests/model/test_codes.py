"""Codes: weights that are looked up give what a product gives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marco.algorithm.presets import default_model
from marco.environments.registry import make
from marco.model import Centralised, ModelPlan
from marco.model.codes import LONG, Block, Codes, sum_rows
from marco.model.likelihoods import Layout, draw_classes, draw_values
from marco.model.predictors import Chain
from marco.types import Categorical, Continuous


def test_long_codes_are_found_among_short_ones_and_numbers():
    blocks = [Block(2, numbers=True), Block(LONG), Block(LONG - 1), Block(100)]
    codes = Codes.among(blocks)
    assert codes.places == ((2, 2 + LONG), (1 + 2 * LONG, 101 + 2 * LONG))
    others = codes.others(jnp.arange(101.0 + 2 * LONG))
    np.testing.assert_array_equal(others, [0, 1, *range(2 + LONG, 1 + 2 * LONG)])


def test_a_row_of_mostly_numbers_has_no_codes():
    assert Codes.among([Block(10), Block(10, numbers=True)]).places == ()
    assert Codes.among([Block(30), Block(10, numbers=True)]).places == ((0, 30),)


def test_classes_that_are_given_are_looked_up_beside_other_codes():
    codes = Codes(((0, 6),))
    assert codes.followed_by(8, 2, LONG).places == ((0, 6), (8, 8 + LONG), (8 + LONG, 8 + 2 * LONG))
    assert codes.followed_by(8, 2, LONG - 1) == codes
    assert Codes().followed_by(8, 2, LONG) == Codes()


def test_the_column_that_is_on_and_none():
    codes = Codes(((1, 6), (6, 11), (11, 16)))
    x = jnp.zeros(16).at[jnp.array([0, 1, 15])].set(1.0)
    np.testing.assert_array_equal(codes.on(x), [1, -1, 15])


@pytest.mark.parametrize("count", [0, 1, 9])
def test_the_sum_of_rows_is_the_product(count):
    weight = jax.random.normal(jax.random.key(0), (3, 50, 7))
    on = np.arange(0, 50, 5)[:count]
    row = np.zeros(50, np.float32)
    row[on[1:]] = 1.0
    without_first = np.where(np.arange(count) > 0, on, -1)
    found = sum_rows(weight, jnp.int32(2), jnp.asarray(without_first))
    np.testing.assert_allclose(found, row @ np.asarray(weight[2]), atol=1e-6)


@pytest.mark.parametrize("classes", [LONG - 1, LONG + 2])
def test_a_row_is_drawn_by_the_probabilities_that_the_product_gives(classes):
    """Each class inverts what `predict`, which multiplies, says given those drawn before it."""
    features = (*(Categorical(f"feature {i}", classes) for i in range(3)), Continuous("number", 2))
    layout = Layout(features, codes=Codes(((2, 8), (9, 14))))
    chain = Chain.create(jax.random.key(0), 15, layout, (16, 16))
    chain = jax.tree.map(lambda leaf: leaf + 0.3 * jax.random.normal(jax.random.key(1), leaf.shape), chain)
    x = jnp.array([0.5, -2.0, *np.eye(6)[4], 1.5, *np.eye(5)[0], 0.7])
    seen = jnp.ones((3, classes), bool)

    def check(u):
        drawn = chain.draw(u, x, seen)
        said = chain.predict(x, drawn.classes, seen)
        by_product = draw_classes(u[:3], said.log_probability)
        return drawn, by_product, draw_values(u[3:], said.mean, said.log_variance)

    drawn, classes_said, values_said = jax.vmap(check)(jax.random.uniform(jax.random.key(2), (200, 5)))
    np.testing.assert_array_equal(drawn.classes, classes_said)
    np.testing.assert_allclose(drawn.values, values_said, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("world", ["switch", "reference", "foraging"])
def test_the_codes_of_a_model_are_codes(world):
    """In real rows every code has at most one column on, and it is exactly 1."""
    from marco.model.fit import examples
    from marco.model.relations import Habits
    from marco.policies.base import RandomPolicy
    from marco.rollout import rollouts

    env = make(world)
    plan = ModelPlan(Centralised(), default_model(env.spec), env.spec)
    (data,) = plan.gather(rollouts(jax.random.key(0), env, RandomPolicy(), 8))
    for _, name in plan.components():
        layout = plan._layout(0, data.reward_values.shape[-1] == 0, name)
        rows = examples(plan.config.inputs(env.spec), name, layout, data)
        x = rows.x
        if layout.num_actions:
            x = Habits.of(layout, x, rows.targets.classes, rows.number).widen(layout, x)
        assert layout.codes.places or world != "foraging"
        for first, end in layout.codes.places:
            block = np.asarray(x[: int(rows.number), first:end])
            assert set(np.unique(block)) <= {0.0, 1.0}
            assert block.sum(-1).max() <= 1.0
