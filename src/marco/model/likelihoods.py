"""How likely a row of features is: categorical for classes (yes or no among them), Gaussian for numbers."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from marco.sampling import pick
from marco.types import Categorical, Feature, blocks

IMPOSSIBLE = -1e9
"""The score of a class that cannot be: its probability is exactly 0."""

SUREST = -14.0
"""The least log-variance of a number, in units of its own spread: a standard deviation of a thousandth."""


class Targets(NamedTuple):
    """A row of features: the class of each categorical one, and the numbers of the continuous ones."""

    classes: Int[Array, "*batch F"]
    values: Float[Array, "*batch C"]


class Prediction(NamedTuple):
    """What a network says of a row: a distribution over classes each, a Gaussian for each number."""

    log_probability: Float[Array, "*batch F K"]
    mean: Float[Array, "*batch C"]
    log_variance: Float[Array, "*batch C"]


@dataclass(frozen=True)
class Layout:
    """Where the features of a row are: classes first, F of at most K; then numbers, C of them.

    A *slot* is what has a likelihood of its own: each categorical feature, and all numbers together.
    """

    features: tuple[Feature, ...]

    @cached_property
    def categorical(self) -> tuple[Categorical, ...]:
        """The features with classes, in their order."""
        return tuple(feature for feature in self.features if isinstance(feature, Categorical))

    @property
    def num_categorical(self) -> int:
        """F."""
        return len(self.categorical)

    @cached_property
    def num_classes(self) -> int:
        """K: the most classes of any feature."""
        return max((feature.size for feature in self.categorical), default=1)

    @cached_property
    def num_values(self) -> int:
        """C: how many numbers."""
        return int(sum(f.width for f in self.features if not isinstance(f, Categorical)))

    @property
    def num_draws(self) -> int:
        """How many uniform numbers decide a row: one for each class and each number."""
        return self.num_categorical + self.num_values

    @property
    def num_slots(self) -> int:
        """How many parts have a likelihood of their own."""
        return self.num_categorical + bool(self.num_values)

    @cached_property
    def slot_names(self) -> tuple[str, ...]:
        """The slots in words."""
        return (*(f.name for f in self.categorical), *(("numbers",) if self.num_values else ()))

    @cached_property
    def class_exists(self) -> Bool[np.ndarray, "F K"]:
        """Which of the padded classes a feature has at all."""
        sizes = np.array([feature.size for feature in self.categorical], int)
        return np.arange(self.num_classes) < sizes[:, None]

    @cached_property
    def value_columns(self) -> Int[np.ndarray, " C"]:
        """Which columns of a row hold numbers."""
        found = [
            np.arange(block.start, block.stop)
            for feature, block in zip(self.features, blocks(self.features), strict=True)
            if not isinstance(feature, Categorical)
        ]
        return np.concatenate([np.zeros(0, int), *found])

    def split(self, columns: Float[Array, "*batch columns"]) -> Targets:
        """Read classes and numbers off the columns that show them."""
        shown = zip(self.features, blocks(self.features), strict=True)
        classes = [f.decode(columns[..., block]) for f, block in shown if isinstance(f, Categorical)]
        none = jnp.zeros((*columns.shape[:-1], 0), jnp.int32)
        stacked = jnp.stack(classes, axis=-1) if classes else none
        return Targets(stacked, columns[..., self.value_columns])

    def join(self, targets: Targets) -> Float[Array, "*batch columns"]:
        """The columns that show a row."""
        parts, index, at = [], 0, 0
        for feature in self.features:
            if isinstance(feature, Categorical):
                parts.append(feature.encode(targets.classes[..., index]))
                index += 1
            else:
                parts.append(targets.values[..., at : at + feature.width])
                at += feature.width
        return jnp.concatenate(parts, axis=-1)


def categorical(
    scores: Float[Array, "*batch F K"], possible: Bool[Array, "F K"]
) -> Float[Array, "*batch F K"]:
    """Log-probabilities of the classes; those that cannot be have none."""
    return jax.nn.log_softmax(jnp.where(possible, scores, IMPOSSIBLE), axis=-1)


def bounded_log_variance(raw: Float[Array, "*batch C"]) -> Float[Array, "*batch C"]:
    """A log-variance that never falls below the surest."""
    return SUREST + jax.nn.softplus(raw - SUREST)


def negative_log_likelihood(
    prediction: Prediction, targets: Targets, varies: Bool[Array, " C"]
) -> Float[Array, "*batch slots"]:
    """One number per slot, in nats. Numbers that never vary are known, and count for nothing."""
    chosen = jnp.take_along_axis(prediction.log_probability, targets.classes[..., None], axis=-1)[..., 0]
    if targets.values.shape[-1] == 0:
        return -chosen
    error = jnp.square(targets.values - prediction.mean)
    log_variance = prediction.log_variance
    each = 0.5 * (error * jnp.exp(-log_variance) + log_variance + jnp.log(2.0 * jnp.pi))
    numbers = jnp.sum(jnp.where(varies, each, 0.0), axis=-1, keepdims=True)
    return jnp.concatenate([-chosen, numbers], axis=-1)


def draw_classes(
    luck: Float[Array, "*batch"], log_probability: Float[Array, "*batch K"]
) -> Int[Array, "*batch"]:
    """The class of each distribution that a number from 0 to 1 stands for; never one that cannot be."""
    return pick(luck, jnp.exp(log_probability))


def draw_values(
    luck: Float[Array, "*batch C"], mean: Float[Array, "*batch C"], log_variance: Float[Array, "*batch C"]
) -> Float[Array, "*batch C"]:
    """The numbers of which a share `luck` of their Gaussians lies below."""
    # Uniform numbers come in steps of 2^-23, from 0: what is meant is the middle of a step, never 0 or 1.
    share = luck + 2.0**-24
    return mean + jnp.exp(0.5 * log_variance) * jnp.sqrt(2.0) * jax.lax.erf_inv(2.0 * share - 1.0)
