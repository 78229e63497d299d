"""The likelihood of a row of features: categorical distributions, and Gaussians for continuous features."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from marco.model.codes import NO_CODES, Codes
from marco.sampling import pick
from marco.types import Categorical, Feature, blocks, total_width

IMPOSSIBLE = -1e9
"""The logit of an impossible class: its probability is exactly 0."""

REACH = 2
"""Differences between classes from -REACH to REACH are told apart; a larger one is far."""

WIDTH = 2 * REACH + 1

MIN_LOG_VARIANCE = -14.0
"""Of a normalised value: a standard deviation of about a thousandth."""


class Targets(NamedTuple):
    """A row of features: the class of each categorical one, and the values of the continuous ones."""

    classes: Int[Array, "*batch F"]
    values: Float[Array, "*batch C"]


class Prediction(NamedTuple):
    """The predicted distribution of a row: over classes for categorical features, Gaussian for values."""

    log_probability: Float[Array, "*batch F K"]
    mean: Float[Array, "*batch C"]
    log_variance: Float[Array, "*batch C"]


@dataclass(frozen=True)
class Layout:
    """Where the features of a row are: F categorical ones of at most K classes, and C continuous values.

    A *slot* is what has a likelihood of its own: each categorical feature, and all values together.
    """

    features: tuple[Feature, ...]
    changes: bool = False
    """Whether the inputs begin with the same features as they were before."""
    num_actions: int = 0
    """How many of the last inputs are actions, by which the next classes are guessed; 0 for no guess."""
    copied: tuple[Feature, ...] = ()
    """The features that the inputs begin with, where these may be copies of them. The last inputs are then
    guesses of the classes, by K."""
    certain: tuple[int, ...] = ()
    """The numbers of the categorical features that have always been as they are guessed: as before, or as
    copied. There is nothing to learn of them."""
    codes: Codes = NO_CODES
    """The one-hot codes among the inputs."""

    @cached_property
    def categorical(self) -> tuple[Categorical, ...]:
        """The categorical features, in their order."""
        return tuple(feature for feature in self.features if isinstance(feature, Categorical))

    @property
    def num_categorical(self) -> int:
        """The number of categorical features, F."""
        return len(self.categorical)

    @cached_property
    def num_classes(self) -> int:
        """The largest number of classes of any feature, K."""
        return max((feature.size for feature in self.categorical), default=1)

    @cached_property
    def num_values(self) -> int:
        """The number of continuous values, C."""
        return int(sum(f.width for f in self.features if not isinstance(f, Categorical)))

    @property
    def num_scores(self) -> int:
        """How many numbers score a categorical feature: one per class, and one per change."""
        return self.num_classes + (self.changes or bool(self.copied)) * WIDTH

    @property
    def num_draws(self) -> int:
        """How much uniform noise draws a row: one number per categorical feature and per value."""
        return self.num_categorical + self.num_values

    @property
    def num_slots(self) -> int:
        """The number of slots."""
        return self.num_categorical + bool(self.num_values)

    @cached_property
    def learned(self) -> Int[np.ndarray, " L"]:
        """The numbers of the categorical features that are not certain."""
        return np.setdiff1d(np.arange(self.num_categorical), self.certain).astype(int)

    @property
    def learned_slots(self) -> Int[np.ndarray, " networks"]:
        """The slots of which there is something to learn."""
        return np.append(self.learned, [self.num_categorical] * bool(self.num_values)).astype(int)

    @cached_property
    def slot_names(self) -> tuple[str, ...]:
        """The name of each slot."""
        return (*(f.name for f in self.categorical), *(("continuous",) if self.num_values else ()))

    @cached_property
    def class_exists(self) -> Bool[np.ndarray, "F K"]:
        """Which of the padded classes a feature has at all."""
        sizes = np.array([feature.size for feature in self.categorical], int)
        return np.arange(self.num_classes) < sizes[:, None]

    @cached_property
    def value_dimensions(self) -> Int[np.ndarray, " C"]:
        """Which dimensions of a row are continuous."""
        found = [
            np.arange(block.start, block.stop)
            for feature, block in zip(self.features, blocks(self.features), strict=True)
            if not isinstance(feature, Categorical)
        ]
        return np.concatenate([np.zeros(0, int), *found])

    @cached_property
    def _class_map(self) -> tuple[Float[np.ndarray, "dimensions F"], Float[np.ndarray, " F"]]:
        """The weights and the shift of `class_numbers`."""
        places = [
            (feature, block)
            for feature, block in zip(self.features, blocks(self.features), strict=True)
            if isinstance(feature, Categorical)
        ]
        weight = np.zeros((total_width(self.features), len(places)), np.float32)
        shift = np.zeros(len(places), np.float32)
        for number, (feature, block) in enumerate(places):
            by_column = (np.arange(feature.width) + feature.blank) / (feature.high - feature.low)
            weight[block, number] = by_column
            shift[number] = -feature.low * by_column.sum()
        return weight, shift

    def class_numbers(self, row: Float[Array, "*batch dimensions"]) -> Float[Array, "*batch F"]:
        """The classes of a row, as `split` decodes them, by one product: rows must be exact codes."""
        weight, shift = self._class_map
        return jnp.round(jnp.matmul(row, weight, precision="highest") + shift)

    def classes_of(self, rows: Float[np.ndarray, "rows dimensions"]) -> Int[np.ndarray, "rows F"]:
        """`class_numbers` of rows on the host, of which there are as many as there are."""
        weight, shift = self._class_map
        return np.rint(rows @ weight + shift).astype(int)

    def near(self, x: Float[Array, " in"]) -> Bool[Array, "F near K"] | None:
        """Which class is how far from the present, or copied, one, from -REACH to REACH; None without one."""
        if not ((self.changes or self.copied) and self.categorical):
            return None
        if self.copied:
            now = jnp.round(x[-self.num_categorical :] * self.num_classes)
        else:
            now = self.class_numbers(x[: total_width(self.features)])
        apart = np.arange(self.num_classes) - now[:, None]
        return apart[:, None, :] == np.arange(-REACH, REACH + 1)[:, None]

    def possible(self, seen: Bool[Array, "F K"]) -> Bool[Array, "F K"]:
        """The classes that may be drawn: those that were seen and, of what is certain, all."""
        return seen.at[np.array(self.certain, int)].set(True) if self.certain else seen

    def with_certain(
        self, scores: Float[Array, "L K"], near: Bool[Array, "F near K"] | None
    ) -> Float[Array, "F K"]:
        """The scores of all categorical features: of those that are certain, one class alone is possible."""
        if not self.certain:
            return scores
        assert near is not None
        return jnp.where(near[:, REACH], 0.0, IMPOSSIBLE).at[self.learned].set(scores)

    def split(self, row: Float[Array, "*batch dimensions"]) -> Targets:
        """Decode a row into classes and values."""
        placed = zip(self.features, blocks(self.features), strict=True)
        classes = [f.decode(row[..., block]) for f, block in placed if isinstance(f, Categorical)]
        none = jnp.zeros((*row.shape[:-1], 0), jnp.int32)
        stacked = jnp.stack(classes, axis=-1) if classes else none
        return Targets(stacked, row[..., self.value_dimensions])

    def join(self, targets: Targets) -> Float[Array, "*batch dimensions"]:
        """Encode classes and values as a row: the inverse of `split`."""
        parts, index, at = [], 0, 0
        for feature in self.features:
            if isinstance(feature, Categorical):
                parts.append(feature.encode(targets.classes[..., index]))
                index += 1
            else:
                parts.append(targets.values[..., at : at + feature.width])
                at += feature.width
        return jnp.concatenate(parts, axis=-1)


def add_changes(
    out: Float[Array, "*F out"], near: Bool[Array, "*F near K"] | None, num_classes: int
) -> Float[Array, "*F K"]:
    """The score of each class: its own, and that of its distance from the present class."""
    own = out[..., :num_classes]
    if near is None:
        return own
    by_change = out[..., num_classes : num_classes + WIDTH, None]
    return own + jnp.sum(jnp.where(near, by_change, 0.0), axis=-2)


def categorical(
    scores: Float[Array, "*batch F K"], possible: Bool[Array, "F K"]
) -> Float[Array, "*batch F K"]:
    """Log-probabilities of the classes; those of impossible classes are below -1e8."""
    return jax.nn.log_softmax(jnp.where(possible, scores, IMPOSSIBLE), axis=-1)


def bounded_log_variance(raw: Float[Array, "*batch C"]) -> Float[Array, "*batch C"]:
    """A log-variance above MIN_LOG_VARIANCE."""
    return MIN_LOG_VARIANCE + jax.nn.softplus(raw - MIN_LOG_VARIANCE)


def negative_log_likelihood(
    prediction: Prediction, targets: Targets, varies: Bool[Array, " C"], beta: float = 0.0
) -> Float[Array, "*batch slots"]:
    """In nats, per slot. Values that never vary are known, and add nothing.

    With a `beta` each value is weighted by its predicted variance to that power, through which no gradient
    flows. The gradient of a likelihood is the error over the variance: of values that share a network, one
    that is a copy of an input soon outweighs by thousands what is hard to learn, which then never is
    (Seitzer et al., 2022, On the pitfalls of heteroscedastic uncertainty estimation).
    """
    chosen = jnp.take_along_axis(prediction.log_probability, targets.classes[..., None], axis=-1)[..., 0]
    if targets.values.shape[-1] == 0:
        return -chosen
    error = jnp.square(targets.values - prediction.mean)
    log_variance = prediction.log_variance
    each = 0.5 * (error * jnp.exp(-log_variance) + log_variance + jnp.log(2.0 * jnp.pi))
    if beta:
        each = each * jax.lax.stop_gradient(jnp.exp(beta * log_variance))
    continuous = jnp.sum(jnp.where(varies, each, 0.0), axis=-1, keepdims=True)
    return jnp.concatenate([-chosen, continuous], axis=-1)


def draw_classes(
    u: Float[Array, "*batch"], log_probability: Float[Array, "*batch K"]
) -> Int[Array, "*batch"]:
    """Draw a class by inverting the cumulative distribution at u; never an impossible one."""
    return pick(u, jnp.exp(log_probability))


def draw_values(
    u: Float[Array, "*batch C"], mean: Float[Array, "*batch C"], log_variance: Float[Array, "*batch C"]
) -> Float[Array, "*batch C"]:
    """Draw from Gaussians: their quantiles at u."""
    # Uniform noise comes in steps of 2^-23, from 0: its middle is taken, which is never 0 or 1.
    middle = u + 2.0**-24
    return mean + jnp.exp(0.5 * log_variance) * jnp.sqrt(2.0) * jax.lax.erf_inv(2.0 * middle - 1.0)
