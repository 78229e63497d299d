"""Units: learners see rewards and columns by what the data show of them, whatever an environment counts in.

Learning rates, clipped gradients and initial weights suit numbers of about 1. So a learner divides rewards by
the largest one seen, and maps every continuous column to -1 to 1, the ends of what was seen of it. Rewards a
hundred times as large, or columns shifted and stretched, are the same numbers to a learner.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from marco.types import Categorical, Episode, Feature, Spec, blocks

UnitsName = Literal["raw", "scaled"]
"""Whether a learner sees numbers as they are, or by what the data show of them."""

LEAST = 1e-6
"""A column that varies by no more than this share of its size is constant: the rest is rounding."""


class Columns(NamedTuple):
    """How columns are shown to a network: (x - shift) scale. The scale of a constant column is 0."""

    shift: Float[Array, "*rows width"]
    scale: Float[Array, "*rows width"]

    def __call__(self, x: Float[Array, "*batch width"]) -> Float[Array, "*batch width"]:
        """The columns as a network sees them."""
        return (x - self.shift) * self.scale


class Range(NamedTuple):
    """The least and the greatest value of every column so far."""

    low: Float[Array, "*rows width"]
    high: Float[Array, "*rows width"]

    @property
    def columns(self) -> Columns:
        """From -1 to 1 within the range."""
        half, middle = 0.5 * (self.high - self.low), 0.5 * (self.high + self.low)
        varies = (self.high > self.low) & (half > LEAST * jnp.abs(middle))
        scale = jnp.where(varies, 1.0 / jnp.where(varies, half, 1.0), 0.0)
        return Columns(jnp.where(varies, middle, 0.0), scale)


class Units(NamedTuple):
    """What was seen of an environment's numbers: what they are measured in follows from it."""

    reward: Float[Array, "*S"]
    """The largest absolute reward."""
    observation: Range
    """Agents that observe the same features share their ranges, as they may share a network."""
    state: Range
    measuring: Bool[Array, "*S"]
    """Whether a learner goes on measuring; not in a learned model, where real data were measured before."""

    @property
    def reward_scale(self) -> Float[Array, "*S"]:
        """What rewards are multiplied by: 1, as long as all were 0."""
        return jnp.where(self.reward > 0.0, 1.0 / jnp.where(self.reward > 0.0, self.reward, 1.0), 1.0)

    def __call__(self, episodes: Episode) -> Episode:
        """The episodes as a learner sees them."""
        return episodes._replace(
            observation=self.observation.columns(episodes.observation),
            state=self.state.columns(episodes.state),
            reward=episodes.reward * self.reward_scale,
        )


def unmeasured(spec: Spec) -> Units:
    """Before anything was seen. Classes are 0 and 1 whatever their columns hold, and need no data for it."""
    seen = [_prior(agent.observation, spec.observation_width) for agent in spec.agents]
    low, high = (jnp.asarray(np.stack(ends)) for ends in zip(*seen, strict=True))
    state = (jnp.asarray(end) for end in _prior(spec.state, spec.state_width))
    return Units(jnp.float32(0.0), Range(low, high), Range(*state), jnp.bool_(True))


def measure(units: Units, spec: Spec, episodes: Episode) -> Units:
    """Units that know of these episodes (axes T B), too. Numpy's arrays are read on the host."""
    kin = np.array([[one.observation == other.observation for other in spec.agents] for one in spec.agents])
    seen = _range_of(episodes.observation, episodes.mask[..., None, None])
    low = jnp.min(jnp.where(kin[..., None], seen.low, jnp.inf), axis=1)
    high = jnp.max(jnp.where(kin[..., None], seen.high, -jnp.inf), axis=1)
    return units._replace(
        reward=jnp.maximum(units.reward, abs(episodes.reward).max(where=episodes.mask, initial=0.0)),
        observation=_wider(units.observation, Range(low, high)),
        state=_wider(units.state, _range_of(episodes.state, episodes.mask[..., None])),
    )


def go_on_measuring(units: Units, spec: Spec, episodes: Episode) -> Units:
    """`measure`, unless real data were measured before."""
    return jax.lax.cond(units.measuring, lambda: measure(units, spec, episodes), lambda: units)


def real_units(spec: Spec, episodes: Episode) -> Units:
    """The units of real episodes (axes T B), to be kept while a learner trains in a model of them."""
    return measure(unmeasured(spec), spec, episodes)._replace(measuring=jnp.bool_(False))


def _prior(features: Sequence[Feature], width: int) -> tuple[np.ndarray, np.ndarray]:
    """The ends of the range of each column before any data; padding stays 0.

    A class's columns, off or on, become 0 and 1: the range from -1 to 1 begins one step below "off".
    """
    low, high = np.full(width, -1.0, np.float32), np.full(width, 1.0, np.float32)
    for feature, block in zip(features, blocks(features), strict=True):
        if isinstance(feature, Categorical):
            low[block], high[block] = 2.0 * feature.low - feature.high, feature.high
        else:
            low[block], high[block] = np.inf, -np.inf
    return low, high


def _range_of(x: Any, taken: Any) -> Range:
    """The range over time and episodes: of the first timestep, and of those that steps led to."""
    first, later, axes = x[0], x[1:], (0, 1)
    return Range(
        jnp.minimum(first.min(0), later.min(axis=axes, where=taken, initial=np.inf)),
        jnp.maximum(first.max(0), later.max(axis=axes, where=taken, initial=-np.inf)),
    )


def _wider(before: Range, more: Range) -> Range:
    return Range(jnp.minimum(before.low, more.low), jnp.maximum(before.high, more.high))
