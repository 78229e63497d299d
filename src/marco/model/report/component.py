"""How well one component predicts held-out rows: nats, accuracy, calibration, and by visits."""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from marco.model.components import Component, Known, Model
from marco.model.early_stopping import ComponentFit, Examples
from marco.model.fit import examples
from marco.model.inputs import ComponentName
from marco.model.report.held_out import CalibrationBin, OutOfBag, calibration, out_of_bag
from marco.model.rows import Data
from marco.types import Categorical, blocks

VISITS = ((0, 0), (1, 2), (3, 10), (11, 100), (101, None))
"""Bins of how often a pair of state and joint action is in the data, ends included."""


class CategoricalReport(NamedTuple):
    """How well one categorical feature is predicted."""

    feature: str
    loss: float
    """The negative log-likelihood, in nats."""
    accuracy: float
    """How often the likeliest class is the true one."""
    calibration_error: float
    """The expected calibration error: the mean gap between confidence and accuracy."""


class ContinuousReport(NamedTuple):
    """How well one continuous feature is predicted; of the dynamics, its change."""

    feature: str
    loss: float
    """The negative log-likelihood of all its normalised values, in nats."""
    rmse: float
    """The root mean squared error, in raw units."""
    normalised_rmse: float
    """The same in units of the standard deviation."""
    within_50: float | None
    """The share within the central 50% interval. None, if the feature never varied."""
    within_90: float | None


class VisitBin(NamedTuple):
    """Rows whose pair of state and joint action the evaluating members trained on about equally often."""

    visits: str
    rows: int
    loss: float | None
    """In nats per row, all features together; None without rows."""
    excess: float | None
    """By how much the loss exceeds that of the true distribution; None where that is not known."""
    wrong: float | None
    """The share of rows in which the likeliest class of some feature is not the true one."""


class ComponentReport(NamedTuple):
    """How well a component predicts held-out rows."""

    component: ComponentName
    rows: int
    held_out: int
    """How many rows at least one member held out: all the rest is computed from these."""
    loss: float
    """In nats per row, all features together."""
    learned_nothing: bool
    """Whether it is no better than frequencies of classes and means of values."""
    excess: float | None
    """By how much the loss exceeds that of the true distribution on the same rows, where that is known.

    The rest of the loss is chance, which no model can predict."""
    categorical: tuple[CategoricalReport, ...]
    continuous: tuple[ContinuousReport, ...]
    calibration: tuple[CalibrationBin, ...]
    """Of all categorical features together; empty bins are left out."""
    by_visits: tuple[VisitBin, ...]
    """Of discrete states only."""


def component_report(
    model: Model,
    name: ComponentName,
    fit: ComponentFit,
    data: Data,
    floor: Float[np.ndarray, " rows"] | None = None,
) -> ComponentReport:
    """Evaluate one component by its held-out rows.

    `floor` is the loss of the true distribution on each row, where that is known; NaN where not.
    """
    component = getattr(model, name)
    if isinstance(component, Known):
        raise ValueError(f"the {name} is known, not learned: its fit is another model's.")
    rows = examples(model.inputs, name, component.layout, data)
    predicted = out_of_bag(component, rows, fit.held_out)
    held, count = predicted.held_out, int(rows.number)
    classes = np.asarray(rows.targets.classes)[:count]
    chosen = np.take_along_axis(predicted.probability, classes[..., None], axis=-1)[..., 0]
    nats = -np.log(np.maximum(chosen, 1e-30))
    varies = np.asarray(component.values.scale) > 0.0
    loss = nats.sum(-1) + np.where(varies, predicted.loss, 0.0).sum(-1)
    excess = np.full(count, np.nan) if floor is None else loss - floor
    right, confidence = predicted.probability.argmax(-1) == classes, predicted.probability.max(-1)
    by_visits: tuple[VisitBin, ...] = ()
    if all(isinstance(feature, Categorical) for feature in model.spec.state):
        visits = _visits(_situations(model, name, rows, data), np.asarray(fit.held_out)[:, :count])
        by_visits = _visit_bins(visits[held], loss[held], excess[held], ~right.all(-1)[held])
    return ComponentReport(
        component=name,
        rows=count,
        held_out=int(held.sum()),
        loss=float(loss[held].mean()),
        learned_nothing=bool(fit.learned_nothing()),
        excess=mean_or_none(excess[held]),
        categorical=tuple(
            CategoricalReport(
                feature.name,
                float(nats[held, index].mean()),
                float(right[held, index].mean()),
                calibration(confidence[held, index], right[held, index])[1],
            )
            for index, feature in enumerate(component.layout.categorical)
        ),
        continuous=_continuous_reports(component, np.asarray(rows.targets.values)[:count], predicted),
        calibration=calibration(confidence[held].ravel(), right[held].ravel())[0],
        by_visits=by_visits,
    )


def visit_bins(visits: Int[np.ndarray, " rows"]) -> list[tuple[str, Bool[np.ndarray, " rows"]]]:
    """Which rows are in each bin of visits, by the label of the bin."""
    found = []
    for least, most in VISITS:
        label = f">{least - 1}" if most is None else str(least) if least == most else f"{least}-{most}"
        found.append((label, (visits >= least) & (visits <= (np.inf if most is None else most))))
    return found


def mean_or_none(values: np.ndarray) -> float | None:
    """The mean of all values that are not NaN; None if there is none."""
    values = values[~np.isnan(values)]
    return float(values.mean()) if values.size else None


def _continuous_reports(
    component: Component, raw: Float[np.ndarray, "rows C"], predicted: OutOfBag
) -> tuple[ContinuousReport, ...]:
    scale, held = np.asarray(component.values.scale), predicted.held_out
    truth = np.asarray(component.values.normalise(jnp.asarray(raw)))
    gap = np.where(scale > 0.0, predicted.mean - truth, 0.0)[held]
    features = [f for f in component.layout.features if not isinstance(f, Categorical)]
    reports = []
    for feature, block in zip(features, blocks(features), strict=True):
        varying = np.arange(block.start, block.stop)[scale[block] > 0.0]
        off_centre = np.abs(predicted.below[held][:, varying] - 0.5)
        reports.append(
            ContinuousReport(
                feature=feature.name,
                loss=float(predicted.loss[held][:, varying].sum(-1).mean()),
                rmse=math.sqrt(np.square(gap[:, block] * scale[block]).mean()),
                normalised_rmse=math.sqrt(np.square(gap[:, block]).mean()),
                within_50=mean_or_none((off_centre <= 0.25).astype(float)),
                within_90=mean_or_none((off_centre <= 0.45).astype(float)),
            )
        )
    return tuple(reports)


def _situations(model: Model, name: ComponentName, rows: Examples, data: Data) -> np.ndarray:
    """What a row is counted by: (s, a); of observations (s, a_prev), of available actions s."""
    if name in ("reward", "termination"):
        return np.asarray(model.inputs.before_step(data.steps.state, data.steps.actions))[: int(rows.number)]
    return np.asarray(rows.x)[: int(rows.number)]


def _visits(
    situations: Float[np.ndarray, "rows in"], held_out: Bool[np.ndarray, "members rows"]
) -> Int[np.ndarray, " rows"]:
    """How often the members that held a row out trained on its situation, on average, rounded down."""
    _, like = np.unique(situations, axis=0, return_inverse=True)
    like = like.ravel()
    trained = np.stack([np.bincount(like, weights=~held, minlength=like.max() + 1) for held in held_out])
    seen = np.where(held_out, trained[:, like], 0.0).sum(0)
    return (seen / np.maximum(held_out.sum(0), 1)).astype(int)


def _visit_bins(
    visits: np.ndarray, loss: np.ndarray, excess: np.ndarray, wrong: np.ndarray
) -> tuple[VisitBin, ...]:
    return tuple(
        VisitBin(
            label,
            int(here.sum()),
            mean_or_none(loss[here]),
            mean_or_none(excess[here]),
            mean_or_none(wrong[here].astype(float)),
        )
        for label, here in visit_bins(visits)
    )
