"""A yardstick for learned models: scikit-learn's gradient-boosted trees on the same rows.

It is no part of MARCO. What trees learn from some rows, a model of an environment should learn, too:
`yardstick` says how well one column is predicted, in nats (classes) or as the share of the variance that is
left (values); `chained` does so for all columns of a component, each given those before it.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from marco.optional import require
from marco.types import Categorical, Feature

SMALLEST = 1e-6
"""The least probability that counts: a class never seen costs 13.8 nats, on either side."""
HELD_OUT = 0.2
"""The share of the episodes by which the trees' training is stopped."""
MOST_DIFFERENCES = 500
"""Pairs of columns of one kind; beyond so many none are shown."""


class Loss(NamedTuple):
    """How well a column is predicted in rows that nothing was trained on."""

    nats: float | None = None
    """Of classes: the mean of minus the log-probability."""
    unexplained: float | None = None
    """Of values: the mean squared error over the variance in these rows."""
    right: np.ndarray | None = None
    """Of classes: in which rows the likeliest one is the true one."""


def yardstick(
    rows_in: np.ndarray,
    classes_or_values: np.ndarray,
    test_in: np.ndarray,
    test_classes_or_values: np.ndarray,
    groups: np.ndarray | None = None,
    iterations: int = 200,
    seed: int = 0,
) -> Loss:
    """Train trees to predict one column from rows, and say how well they do in the test rows.

    Whole numbers are classes, other numbers are values. `groups` are the episodes of the rows: some of them
    are held out, to stop the training by.
    """
    y, test_y = np.asarray(classes_or_values), np.asarray(test_classes_or_values)
    held = _held_out(np.arange(len(y)) if groups is None else groups, seed)
    if y.dtype.kind in "biu":
        return of_probabilities(*_probabilities(rows_in, y, test_in, held, iterations, seed), test_y)
    if np.ptp(y[~held]) == 0.0:
        return of_values(np.full(len(test_y), y[0]), test_y)
    trees = _trees("HistGradientBoostingRegressor", iterations, seed)
    # Values of any unit: the stopping rule is absolute.
    scale = y[~held].std()
    trees.fit(rows_in[~held], y[~held] / scale, X_val=rows_in[held], y_val=y[held] / scale)
    return of_values(trees.predict(test_in) * scale, test_y)


def of_probabilities(probability: np.ndarray, classes: np.ndarray, truth: np.ndarray) -> Loss:
    """The loss of predicted probabilities (rows by classes), where column k is the class `classes[k]`."""
    is_true = truth[:, None] == classes[None]
    given = np.maximum((probability * is_true).sum(1), SMALLEST)
    right = classes[probability.argmax(1)] == truth
    return Loss(nats=float(-np.log(given).mean()), right=right)


def of_values(predicted: np.ndarray, truth: np.ndarray) -> Loss:
    """The loss of predicted values; of values that never vary in the test rows nothing is said."""
    variance = float(np.var(truth))
    if variance < 1e-12:
        return Loss()
    return Loss(unexplained=float(np.square(predicted - truth).mean() / variance))


def chained(
    rows_in: np.ndarray,
    targets: Sequence[np.ndarray],
    test_in: np.ndarray,
    test_targets: Sequence[np.ndarray],
    groups: np.ndarray | None = None,
    **settings: Any,
) -> list[Loss]:
    """The loss of every column, given the inputs and the columns before it, as a chain of features has it."""
    losses = []
    for y, test_y in zip(targets, test_targets, strict=True):
        losses.append(yardstick(rows_in, y, test_in, test_y, groups, **settings))
        if np.ptp(y) > 0:
            rows_in, test_in = np.column_stack([rows_in, y]), np.column_stack([test_in, test_y])
    return losses


def related(features: Sequence[Feature], numbers: np.ndarray) -> np.ndarray:
    """Columns with their differences: one for every two of one kind, as two rows, or two places."""
    kinds = [_kind(feature) for feature in features for _ in range(_numbers(feature))]
    pairs = [(i, j) for i, j in combinations(range(len(kinds)), 2) if kinds[i] == kinds[j]]
    if not pairs or len(pairs) > MOST_DIFFERENCES:
        return numbers
    left, right = np.array(pairs).T
    return np.column_stack([numbers, numbers[:, left] - numbers[:, right]])


def _kind(feature: Feature) -> tuple[Any, ...]:
    if isinstance(feature, Categorical):
        return ("classes", feature.size, feature.blank)
    return ("values", feature.width)


def _numbers(feature: Feature) -> int:
    """A class is one number, a value is one."""
    return 1 if isinstance(feature, Categorical) else feature.width


def _held_out(groups: np.ndarray, seed: int) -> np.ndarray:
    """Rows of some whole groups; of a single group every fifth row."""
    names = np.unique(groups)
    if len(names) < 2:
        return np.arange(len(groups)) % round(1 / HELD_OUT) == 0
    count = max(1, round(HELD_OUT * len(names)))
    return np.isin(groups, np.random.default_rng(seed).choice(names, count, replace=False))


def _probabilities(
    rows_in: np.ndarray, y: np.ndarray, test_in: np.ndarray, held: np.ndarray, iterations: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """The probability of each class in the test rows, and which classes these are."""
    known = np.unique(y[~held])
    if len(known) == 1:
        # Only one was met: it is as likely as one more row of another kind is unlikely.
        sure = 1.0 - 1.0 / (len(y) + 2)
        return np.full((len(test_in), 1), sure), known
    trees = _trees("HistGradientBoostingClassifier", iterations, seed)
    judged = held & np.isin(y, known)
    if not judged.any():
        judged = held | True
    trees.fit(rows_in[~held], y[~held], X_val=rows_in[judged], y_val=y[judged])
    return trees.predict_proba(test_in), trees.classes_


def _trees(name: str, iterations: int, seed: int) -> Any:
    ensemble = require("sklearn.ensemble", "dev")
    return getattr(ensemble, name)(
        max_iter=iterations, early_stopping=True, n_iter_no_change=10, random_state=seed
    )
