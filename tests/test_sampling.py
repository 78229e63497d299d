"""Draws: their shares, their bounds, and what certain numbers stand for."""

import jax
import jax.numpy as jnp
import numpy as np

from marco.networks import draw_blocks
from marco.sampling import draw_below, pick


def test_numbers_stand_for_indices_by_their_share():
    """Of the weights 1, 0 and 3 the first holds for luck below a quarter, and the second never."""
    luck = jnp.array([0.0, 0.2499, 0.25, 0.9999])
    assert pick(luck, jnp.tile(jnp.array([1.0, 0.0, 3.0]), (4, 1))).tolist() == [0, 0, 2, 2]


def test_whole_numbers_below_another_are_all_as_likely():
    """Within four standard deviations of a share, at most sqrt(1 / (4 n))."""
    n = 50_000
    drawn = draw_below(jax.random.key(0), jnp.int32(5), (n,))
    shares = np.bincount(drawn, minlength=5) / n
    assert shares.size == 5
    np.testing.assert_allclose(shares, 0.2, atol=4 * np.sqrt(0.25 / n))
    assert draw_below(jax.random.key(0), jnp.int32(1)) == 0
    assert draw_below(jax.random.key(0), jnp.int32(0)) == 0


def test_blocks_of_weights_are_uniform_within_one_over_the_root_of_the_fan_in():
    """A uniform number within b has the variance b^2 / 3; no number is in two blocks."""
    first, second = draw_blocks(jax.random.key(0), (100, 50, 4), (30, 200, 100))
    assert (first.shape, second.shape) == ((100, 50), (30, 200))
    for block, bound in ((first, 0.5), (second, 0.1)):
        assert 0.99 * bound < jnp.abs(block).max() <= bound
        np.testing.assert_allclose(block.var(), bound**2 / 3.0, rtol=0.05)
        np.testing.assert_allclose(block.mean(), 0.0, atol=4.0 * bound / np.sqrt(3.0 * block.size))
    assert np.intersect1d(first / 0.5, second / 0.1).size < 50  # by chance a few of 2^23 are the same
