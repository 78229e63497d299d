"""Trees of arrays, cut and put together on the host's side of a run.

What is done to one array at a time outside a compiled function is compiled for each shape: hundreds of
programs of a line, a few seconds on a CPU and half a minute on a GPU. Here a whole tree is one program.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int


@jax.jit
def row_of(tree: Any, index: Int[Array, ""] | int) -> Any:
    """One row of every array: the seed at this place."""
    return jax.tree.map(lambda leaf: leaf[index], tree)


@partial(jax.jit, static_argnames="axis")
def squeezed(tree: Any, axis: int = 1) -> Any:
    """Every array without an axis, of which only the first place is kept."""
    return jax.tree.map(lambda leaf: jax.lax.index_in_dim(leaf, 0, axis, keepdims=False), tree)


@partial(jax.jit, static_argnames=("count", "axis"))
def repeated(tree: Any, count: int = 1, axis: int = 1) -> Any:
    """Every array so many times along a new axis."""
    return jax.tree.map(lambda leaf: jnp.repeat(jnp.expand_dims(leaf, axis), count, axis), tree)


def stacked(trees: Sequence[Any]) -> Any:
    """One tree of several, along a new first axis."""
    return jax.tree.map(_stack, *trees)


def like(shapes: Any) -> Any:
    """Arrays of zeros with these shapes."""
    return jax.tree.map(lambda leaf: jax.device_put(np.zeros(leaf.shape, leaf.dtype)), shapes)


def _stack(*leaves: Any) -> Array:
    if jnp.issubdtype(leaves[0].dtype, jax.dtypes.prng_key):
        return _stack_on_device(leaves)
    return jax.device_put(np.stack([np.asarray(leaf) for leaf in leaves]))


@jax.jit
def _stack_on_device(leaves: tuple[Array, ...]) -> Array:
    return jnp.stack(leaves)
