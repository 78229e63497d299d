"""What members say of rows that they never trained on, and how sure they may be."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from marco.model.components import Component
from marco.model.early_stopping import Rows
from marco.model.likelihoods import Targets

BINS = 10
"""Of calibration curves and histograms, of equal width from 0 to 1."""


BATCH = 2048
"""How many rows are asked about at once."""


class CalibrationBin(NamedTuple):
    """Predictions that were about equally sure: how sure they were, and how many were right."""

    confidence: float
    right: float
    rows: int


def calibration(
    confidence: Float[np.ndarray, " rows"], right: Bool[np.ndarray, " rows"]
) -> tuple[tuple[CalibrationBin, ...], float]:
    """The calibration curve, and the expected calibration error: sum_b n_b / n |right_b - confidence_b|."""
    # A confidence of exactly 1 belongs to the last bin.
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    curve = tuple(
        CalibrationBin(float(confidence[here].mean()), float(right[here].mean()), int(here.sum()))
        for here in (place == index for index in range(BINS))
        if here.any()
    )
    total = sum(one.rows for one in curve)
    return curve, sum((one.rows / total * abs(one.right - one.confidence) for one in curve), 0.0)


class OutOfBag(NamedTuple):
    """What the members that held a row out say of it, all weighing the same."""

    judged: Bool[np.ndarray, " rows"]
    """Whether any did. If none, the rest means nothing."""
    probability: Float[np.ndarray, "rows F K"]
    mean: Float[np.ndarray, "rows C"]
    """In units of the numbers' spread, as is the rest."""
    loss: Float[np.ndarray, "rows C"]
    """Of each number."""
    below: Float[np.ndarray, "rows C"]
    """The probability of a smaller number than the true one: between 0.05 and 0.95 in the central 90%."""


def out_of_bag(component: Component, rows: Rows, held_out: Bool[Array, "members rows"]) -> OutOfBag:
    """Ask about each true row those members that never trained on it."""
    count = int(rows.number)
    asked = (rows.x, rows.targets, jnp.asarray(held_out).T)
    said = []
    for begin in range(0, count, BATCH):
        # The last batch is filled up with its last row, so that one size is compiled for all data.
        batch = np.minimum(np.arange(begin, begin + BATCH), count - 1)
        answers = _ask(component, *jax.tree.map(lambda leaf, batch=batch: leaf[batch], asked))
        said.append([np.asarray(answer)[: count - begin] for answer in answers])
    parts = [np.concatenate(part) for part in zip(*said, strict=True)]
    return OutOfBag(np.asarray(jnp.any(held_out, axis=0))[:count], *parts)


@jax.jit
def _ask(component: Component, x: Array, targets: Targets, held: Array) -> tuple[Array, Array, Array, Array]:
    def one(x: Array, classes: Array, raw: Array, held: Array) -> tuple[Array, Array, Array, Array]:
        weight = held / jnp.maximum(held.sum(), 1)
        said = component.predict(x, classes)
        gap = component.values.normalise(raw) - said.mean
        density = jax.scipy.stats.norm.logpdf(gap, scale=jnp.exp(0.5 * said.log_variance))
        smaller = jax.scipy.stats.norm.cdf(gap * jnp.exp(-0.5 * said.log_variance))
        return (
            jnp.tensordot(weight, jnp.exp(said.log_probability), 1),
            weight @ said.mean,
            -jax.nn.logsumexp(density, axis=0, b=weight[:, None]),
            weight @ smaller,
        )

    return jax.vmap(one)(x, targets.classes, targets.values, held)
