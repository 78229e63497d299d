"""Teams trained without the model, on the real episodes alone: what a bad model cannot spoil."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, Shaped

from marco.data.replay import Buffer
from marco.learners.base import Learner
from marco.learners.candidates import Best
from marco.learners.parallel import greedy_all, init_all, stack_seeds, train_seeds_on, with_units
from marco.model.rows import pad_rows
from marco.trees import repeated, squeezed
from marco.types import Episode, Spec
from marco.units import Units


def train_offline(
    keys: Key[Array, " S"],
    learner: Learner,
    spec: Spec,
    episodes: Sequence[Episode],
    units: Units,
    updates: int,
) -> Best:
    """A team of every seed, trained on its recorded episodes (axes T B)."""
    drawn = jax.vmap(jax.random.split)(keys)
    states = with_units(learner, init_all(drawn[:, :1], learner, spec), units)
    alone = squeezed(states)
    trained = train_seeds_on(drawn[:, 1], recorded(episodes), learner, alone, updates)
    policy = squeezed(greedy_all(learner, repeated(trained)))
    return Best(policy, jnp.zeros(len(episodes)))


def offline_like(keys: Key[Array, " S"], learner: Learner, spec: Spec) -> Best:
    """The shapes of what `train_offline` gives."""

    def shapes() -> Best:
        policy = greedy_all(learner, init_all(keys[:, None], learner, spec))
        return Best(squeezed(policy), jnp.zeros(len(keys)))

    return jax.eval_shape(shapes)


def recorded(episodes: Sequence[Episode]) -> Buffer:
    """The real episodes of every seed as buffers of one size, a power of two: few sizes are compiled."""
    counts = [np.asarray(own.mask).any(0).sum() for own in episodes]
    room = 1 << int(max(counts) - 1).bit_length()

    def one(own: Episode) -> Buffer:
        played = np.asarray(own.mask).any(0)

        def rows(leaf: Shaped[np.ndarray, "T B ..."]) -> Array:
            kept = np.moveaxis(np.asarray(leaf)[:, played], 1, 0)
            return pad_rows(kept, room)

        return Buffer(jax.tree.map(rows, own), jnp.int32(played.sum()))

    return stack_seeds([one(own) for own in episodes])
