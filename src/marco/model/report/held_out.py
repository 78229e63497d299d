"""The predictions of members for rows that they held out, and how calibrated these are."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from marco.model.components import Component
from marco.model.early_stopping import Examples
from marco.model.likelihoods import Targets

BINS = 10
"""Of calibration curves and histograms, of equal width from 0 to 1."""

BATCH = 2048
"""How many rows are predicted at once."""


class CalibrationBin(NamedTuple):
    """Predictions of about equal confidence: their mean confidence and their accuracy."""

    confidence: float
    accuracy: float
    rows: int


def calibration(
    confidence: Float[np.ndarray, " rows"], right: Bool[np.ndarray, " rows"]
) -> tuple[tuple[CalibrationBin, ...], float]:
    """The calibration curve and the expected calibration error, sum_b n_b / n |accuracy_b - confidence_b|."""
    # A confidence of exactly 1 belongs to the last bin.
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    curve = tuple(
        CalibrationBin(float(confidence[here].mean()), float(right[here].mean()), int(here.sum()))
        for here in (place == index for index in range(BINS))
        if here.any()
    )
    total = sum(one.rows for one in curve)
    return curve, sum((one.rows / total * abs(one.accuracy - one.confidence) for one in curve), 0.0)


class OutOfBag(NamedTuple):
    """The mean prediction for each row of those members that held it out."""

    held_out: Bool[np.ndarray, " rows"]
    """Whether any member held the row out. If none did, the rest means nothing."""
    probability: Float[np.ndarray, "rows F K"]
    mean: Float[np.ndarray, "rows C"]
    """Normalised, as is the rest."""
    loss: Float[np.ndarray, "rows C"]
    """Of each value, in nats."""
    below: Float[np.ndarray, "rows C"]
    """The predicted probability of a smaller value than the true one."""


def out_of_bag(component: Component, rows: Examples, held_out: Bool[Array, "members rows"]) -> OutOfBag:
    """Predict each true row by those members that never trained on it."""
    count = int(rows.number)
    given = (rows.x, rows.targets, jnp.asarray(held_out).T)
    predicted = []
    for begin in range(0, count, BATCH):
        # The last batch is filled up with its last row, so that one size is compiled for all data.
        batch = np.minimum(np.arange(begin, begin + BATCH), count - 1)
        found = _predict(component, *jax.tree.map(lambda leaf, batch=batch: leaf[batch], given))
        predicted.append([np.asarray(part)[: count - begin] for part in found])
    parts = [np.concatenate(part) for part in zip(*predicted, strict=True)]
    return OutOfBag(np.asarray(jnp.any(held_out, axis=0))[:count], *parts)


@jax.jit
def _predict(
    component: Component, x: Array, targets: Targets, held: Array
) -> tuple[Array, Array, Array, Array]:
    def one(x: Array, classes: Array, raw: Array, held: Array) -> tuple[Array, Array, Array, Array]:
        weight = held / jnp.maximum(held.sum(), 1)
        predicted = component.predict(x, classes)
        gap = component.values.normalise(raw) - predicted.mean
        density = jax.scipy.stats.norm.logpdf(gap, scale=jnp.exp(0.5 * predicted.log_variance))
        smaller = jax.scipy.stats.norm.cdf(gap * jnp.exp(-0.5 * predicted.log_variance))
        return (
            jnp.tensordot(weight, jnp.exp(predicted.log_probability), 1),
            weight @ predicted.mean,
            -jax.nn.logsumexp(density, axis=0, b=weight[:, None]),
            weight @ smaller,
        )

    return jax.vmap(one)(x, targets.classes, targets.values, held)
