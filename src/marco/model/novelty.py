"""How new a step is: its leverage among the real ones.

A model that sees relations predicts what it has never met, and its members agree on it: so they should, for a
team to be trained in it, but then disagreement no longer leads to where nobody has been. The leverage of a
step does: x (X'X + 1)^-1 x, with the real steps as the rows of X, is 1 for a place that was never entered or
an action that was never taken, and about one over the visits for others. It asks for no training.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from marco.model.inputs import Inputs
from marco.types import Episode, Spec

MOST_COLUMNS = 500
"""The cost of a step grows with the square of the columns: where there are more, nothing is new."""


class Novelty(eqx.Module):
    """Leverage among the steps of real episodes."""

    low: Float[Array, " C"]
    scale: Float[Array, " C"]
    """By which columns are shifted and scaled: numbers to their range in the data, classes not at all."""
    inverse: Float[Array, "C+1 C+1"]
    inputs: Inputs = eqx.field(static=True)

    def __call__(self, s: Float[Array, " S"], a: Int[Array, " N"]) -> Float[Array, ""]:
        """How new it is to take these actions in this state."""
        x = _row(self.inputs.before_step(s, a), self.low, self.scale)
        return x @ self.inverse @ x


def novelty_of(spec: Spec, episodes: Episode) -> Novelty | None:
    """The novelty of steps beside those of real episodes (axes T B); None if there are too many columns."""
    inputs = Inputs(spec, distances=False, relations=False)
    numbers = np.array(inputs.numeric("dynamics"))
    if len(numbers) > MOST_COLUMNS:
        return None
    taken = np.asarray(episodes.mask)
    state, actions = np.asarray(episodes.state)[:-1][taken], np.asarray(episodes.actions)[taken]
    rows = np.asarray(inputs.before_step(jnp.asarray(state), jnp.asarray(actions)))
    low, high = rows.min(0), rows.max(0)
    low = np.where(numbers, low, 0.0).astype(np.float32)
    scale = np.where(numbers & (high > low), 1.0 / np.maximum(high - low, 1e-9), 1.0).astype(np.float32)
    x = np.asarray(_row(jnp.asarray(rows), jnp.asarray(low), jnp.asarray(scale)), float)
    inverse = np.linalg.inv(x.T @ x + np.eye(x.shape[1]))
    return Novelty(jnp.asarray(low), jnp.asarray(scale), jnp.asarray(inverse, jnp.float32), inputs)


def _row(
    x: Float[Array, "*batch C"], low: Float[Array, " C"], scale: Float[Array, " C"]
) -> Float[Array, "*batch C+1"]:
    ones = jnp.ones((*x.shape[:-1], 1))
    return jnp.concatenate([(x - low) * scale, ones], axis=-1)
