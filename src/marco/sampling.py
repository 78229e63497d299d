"""Draws of indices, whole numbers and weights.

On a CPU every draw is a loop of its own, and half a second of compilation: what can be drawn at once is.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray


def draw(key: PRNGKeyArray, probabilities: Float[Array, "*batch K"]) -> Int[Array, "*batch"]:
    """Draw an index with the given probabilities (or weights) by one uniform number each.

    An index of probability zero is never drawn, and one of probability one always.
    """
    return pick(jax.random.uniform(key, probabilities.shape[:-1]), probabilities)


def pick(u: Float[Array, "*batch"], probabilities: Float[Array, "*batch K"]) -> Int[Array, "*batch"]:
    """The index that uniform noise u selects."""
    # A parallel sum may round an impossible index above the one before it: it is taken out of the race.
    total = jnp.where(probabilities > 0.0, jnp.cumsum(probabilities, axis=-1), 0.0)
    threshold = (u * total.max(axis=-1))[..., None]
    return jnp.argmax(total > threshold, axis=-1).astype(jnp.int32)


def draw_below(
    key: PRNGKeyArray, number: Int[Array, ""], shape: tuple[int, ...] = ()
) -> Int[Array, "*shape"]:
    """Draw integers below `number`, uniform up to a modulo bias of number / 2^32; 0 if number <= 0."""
    most = jnp.maximum(number, 1).astype(jnp.uint32)
    return (jax.random.bits(key, shape) % most).astype(jnp.int32)
