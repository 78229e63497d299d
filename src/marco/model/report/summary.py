"""How good a model is, in plain numbers, judged only by rows that the judging members never trained on."""

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from marco.model.components import Component, Known, Model
from marco.model.early_stopping import ComponentFit, Rows
from marco.model.fit import problem
from marco.model.inputs import ComponentName
from marco.model.report.exact import Pairs, dynamics_error
from marco.model.report.held_out import BINS, CalibrationBin, OutOfBag, calibration, out_of_bag
from marco.model.report.open_loop import OpenLoopError
from marco.model.rows import Data
from marco.types import Categorical, blocks

VISITS = ((0, 0), (1, 2), (3, 10), (11, 100), (101, None))
"""Bins of how often a pair of state and joint action was seen, ends included."""


class ClassReport(NamedTuple):
    """How well one categorical feature is predicted."""

    feature: str
    loss: float
    """The negative log-likelihood, in nats."""
    accuracy: float
    """How often the likeliest class is the true one."""
    calibration_error: float
    """By how much confidence and accuracy differ, on average over the bins."""


class NumberReport(NamedTuple):
    """How well one continuous feature is predicted; of the dynamics, its change."""

    feature: str
    loss: float
    """The negative log-likelihood of all its numbers, in nats, in units of their spread."""
    error: float
    """The root mean squared error, in raw units."""
    error_in_spreads: float
    within_50: float | None
    """The share within the central interval of probability 50%. None, if the feature never varied."""
    within_90: float | None


class VisitBin(NamedTuple):
    """Rows whose pair of state and joint action the judging members saw about equally often."""

    visits: str
    rows: int
    loss: float | None
    """In nats per row, all features together; None without rows."""
    wrong: float | None
    """The share of rows in which the likeliest class of some feature is not the true one."""


class ComponentReport(NamedTuple):
    """How well a component predicts rows that were held out."""

    component: ComponentName
    rows: int
    judged: int
    """How many rows at least one member held out."""
    loss: float
    """In nats per row, all features together."""
    classes: tuple[ClassReport, ...]
    numbers: tuple[NumberReport, ...]
    calibration: tuple[CalibrationBin, ...]
    """Of all its classes together; empty bins are left out."""
    by_visits: tuple[VisitBin, ...]
    """Of discrete states only."""


class ErrorBin(NamedTuple):
    """The exact error of pairs that are in the data about equally often; None without pairs."""

    visits: str
    pairs: int
    total_variation: float | None
    impossible: float | None


class TruthReport(NamedTuple):
    """How far the dynamics are from the true ones, exactly, over all pairs that can come up."""

    pairs: int
    total_variation: float
    """The mean over pairs, each counting the same."""
    visited_total_variation: float
    """The mean over pairs as often as they are in the data."""
    largest: float
    impossible: float
    """The mean probability given to next states that cannot be."""
    histogram: tuple[int, ...]
    """Of total variation, from 0 to 1."""
    by_visits: tuple[ErrorBin, ...]


class ModelReport(NamedTuple):
    """All that is known of how good a model is."""

    world: str
    samples: int
    """The real steps it was learned from."""
    components: tuple[ComponentReport, ...]
    truth: TruthReport | None
    open_loop: OpenLoopError | None

    def as_dict(self) -> dict[str, Any]:
        """Plain dictionaries, lists and numbers, for JSON."""
        plain: dict[str, Any] = _plain(self)
        return plain


def model_report(
    model: Model,
    fits: dict[ComponentName, ComponentFit],
    data: Data,
    pairs: Pairs | None = None,
    open_loop: OpenLoopError | None = None,
) -> ModelReport:
    """Judge a model by the rows that its members held out, and by the truth where that is given.

    `fits` and `data` are those of `fit`. `pairs` (of `reachable_pairs`) adds the exact error of the dynamics,
    for discrete states; `open_loop` (of `open_loop_error`) the error of numbers over many steps.
    """
    parts = tuple(_component_report(model, name, fit, data) for name, fit in fits.items())
    truth = None if pairs is None else truth_report(model, pairs, data)
    return ModelReport(model.spec.name, int(data.num_steps), parts, truth, open_loop)


def truth_report(model: Model, pairs: Pairs, data: Data) -> TruthReport:
    """The exact error of the dynamics, by how often the pairs are in the data."""
    found = dynamics_error(model, pairs, data)
    variation, impossible = found.total_variation, found.impossible
    bins = [
        ErrorBin(label, int(here.sum()), _mean(variation[here]), _mean(impossible[here]))
        for label, here in _by_visits(found.seen)
    ]
    counts, _ = np.histogram(variation, BINS, (0.0, 1.0))
    return TruthReport(
        pairs=len(variation),
        total_variation=float(variation.mean()),
        visited_total_variation=float((variation * found.seen).sum() / max(found.seen.sum(), 1)),
        largest=float(variation.max()),
        impossible=float(impossible.mean()),
        histogram=tuple(counts.tolist()),
        by_visits=tuple(bins),
    )


def _component_report(model: Model, name: ComponentName, fit: ComponentFit, data: Data) -> ComponentReport:
    component = getattr(model, name)
    if isinstance(component, Known):
        raise ValueError(f"the {name} is known, not learned: its fit is another model's.")
    rows = problem(model.inputs, name, component.layout, data)
    said = out_of_bag(component, rows, fit.held_out)
    judged, count = said.judged, int(rows.number)
    classes = np.asarray(rows.targets.classes)[:count]
    chosen = np.take_along_axis(said.probability, classes[..., None], axis=-1)[..., 0]
    class_loss = -np.log(np.maximum(chosen, 1e-30))
    right = said.probability.argmax(-1) == classes
    varies = np.asarray(component.values.scale) > 0.0
    loss = class_loss.sum(-1) + np.where(varies, said.loss, 0.0).sum(-1)
    sure = said.probability.max(-1)
    curve, _ = calibration(sure[judged].ravel(), right[judged].ravel())
    by_visits: tuple[VisitBin, ...] = ()
    if all(isinstance(feature, Categorical) for feature in model.spec.state):
        visits = _visits(_situations(model, name, rows, data), np.asarray(fit.held_out)[:, :count])
        by_visits = _visit_bins(visits[judged], loss[judged], ~right.all(-1)[judged])
    return ComponentReport(
        component=name,
        rows=count,
        judged=int(judged.sum()),
        loss=float(loss[judged].mean()),
        classes=tuple(
            ClassReport(
                feature.name,
                float(class_loss[judged, index].mean()),
                float(right[judged, index].mean()),
                calibration(sure[judged, index], right[judged, index])[1],
            )
            for index, feature in enumerate(component.layout.categorical)
        ),
        numbers=_number_reports(component, np.asarray(rows.targets.values)[:count], said),
        calibration=curve,
        by_visits=by_visits,
    )


def _number_reports(
    component: Component, raw: Float[np.ndarray, "rows C"], said: OutOfBag
) -> tuple[NumberReport, ...]:
    scale = np.asarray(component.values.scale)
    truth = np.asarray(component.values.normalise(jnp.asarray(raw)))
    gap = np.where(scale > 0.0, said.mean - truth, 0.0)[said.judged]
    features = [f for f in component.layout.features if not isinstance(f, Categorical)]
    reports = []
    for feature, block in zip(features, blocks(features), strict=True):
        varying = np.arange(block.start, block.stop)[scale[block] > 0.0]
        off_centre = np.abs(said.below[said.judged][:, varying] - 0.5)
        reports.append(
            NumberReport(
                feature=feature.name,
                loss=float(said.loss[said.judged][:, varying].sum(-1).mean()),
                error=math.sqrt(np.square(gap[:, block] * scale[block]).mean()),
                error_in_spreads=math.sqrt(np.square(gap[:, block]).mean()),
                within_50=_mean(off_centre <= 0.25),
                within_90=_mean(off_centre <= 0.45),
            )
        )
    return tuple(reports)


def _situations(model: Model, name: ComponentName, rows: Rows, data: Data) -> np.ndarray:
    """What a row is counted by: (s, a), of observations (s, a_prev), of available actions s."""
    if name in ("reward", "termination"):
        return np.asarray(model.inputs.before_step(data.steps.state, data.steps.actions))[: int(rows.number)]
    return np.asarray(rows.x)[: int(rows.number)]


def _visits(
    situations: Float[np.ndarray, "rows in"], held_out: Bool[np.ndarray, "members rows"]
) -> Int[np.ndarray, " rows"]:
    """How often the members that judge a row trained on its like, on average, rounded down."""
    _, like = np.unique(situations, axis=0, return_inverse=True)
    like = like.ravel()
    trained = np.stack([np.bincount(like, weights=~held, minlength=like.max() + 1) for held in held_out])
    seen = np.where(held_out, trained[:, like], 0.0).sum(0)
    return (seen / np.maximum(held_out.sum(0), 1)).astype(int)


def _visit_bins(visits: np.ndarray, loss: np.ndarray, wrong: np.ndarray) -> tuple[VisitBin, ...]:
    return tuple(
        VisitBin(label, int(here.sum()), _mean(loss[here]), _mean(wrong[here]))
        for label, here in _by_visits(visits)
    )


def _by_visits(visits: Int[np.ndarray, " rows"]) -> list[tuple[str, Bool[np.ndarray, " rows"]]]:
    found = []
    for least, most in VISITS:
        label = f">{least - 1}" if most is None else str(least) if least == most else f"{least}-{most}"
        found.append((label, (visits >= least) & (visits <= (np.inf if most is None else most))))
    return found


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if values.size else None


def _plain(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        return {name: _plain(part) for name, part in value._asdict().items()}
    return [_plain(part) for part in value] if isinstance(value, tuple) else value
