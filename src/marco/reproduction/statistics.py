"""What is said of runs: means, interquartile means, samples to a threshold and their ratio, with intervals.

Intervals are 95% bootstrap intervals over seeds, by rliable (Agarwal et al., 2021), stratified by environment
where there are several. A run that never reaches a threshold is censored: it counts as more samples than
were spent, so that a median or a share is still right where a mean would not be.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from marco.optional import require
from marco.reproduction.store import Measured, Row
from marco.statistics import RESAMPLES, Interval, crossing


def mean_and_iqm(values: Float[np.ndarray, " seeds"]) -> tuple[Interval, Interval]:
    """The mean, and the mean of the middle half, of one score per seed."""
    rliable, metrics = _rliable()
    scores = {"one": np.asarray(values, float)[:, None]}
    points, intervals = rliable.get_interval_estimates(
        scores,
        lambda x: np.array([metrics.aggregate_mean(x), metrics.aggregate_iqm(x)]),
        reps=RESAMPLES,
        random_state=np.random.RandomState(0),
    )
    both = zip(points["one"], *intervals["one"], strict=True)
    mean, iqm = (Interval(*map(float, one)) for one in both)
    return mean, iqm


def iqm_over(worlds: Sequence[Float[np.ndarray, " _"]]) -> Interval:
    """The interquartile mean of the scores in several environments, resampling seeds within each of them.

    All count the same: where one has more seeds than others, its first ones are taken.
    """
    rliable, metrics = _rliable()
    runs = min(len(one) for one in worlds)
    points, intervals = rliable.get_interval_estimates(
        {"all": np.stack([one[:runs] for one in worlds], axis=1)},
        lambda x: np.array([metrics.aggregate_iqm(x)]),
        reps=RESAMPLES,
        random_state=np.random.RandomState(0),
    )
    return Interval(float(points["all"][0]), *(float(bound) for bound in intervals["all"][:, 0]))


def improvement(
    ours: Sequence[Float[np.ndarray, " _"]], theirs: Sequence[Float[np.ndarray, " _"]]
) -> Interval:
    """The probability that a run of ours is better than one of theirs, averaged over environments."""
    rliable, metrics = _rliable()
    runs = min(len(one) for one in (*ours, *theirs))
    pair = tuple(np.stack([one[:runs] for one in side], axis=1) for side in (ours, theirs))
    points, intervals = rliable.get_interval_estimates(
        {"pair": pair},
        lambda x, y: np.array([metrics.probability_of_improvement(x, y)]),
        reps=RESAMPLES,
        random_state=np.random.RandomState(0),
    )
    return Interval(float(points["pair"][0]), *(float(bound) for bound in intervals["pair"][:, 0]))


def profile(
    scores: dict[str, Float[np.ndarray, "seeds worlds"]], levels: Float[np.ndarray, " levels"]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """For each method the share of runs above each level, and its intervals."""
    rliable, _ = _rliable()
    profiles, intervals = rliable.create_performance_profile(scores, levels, reps=RESAMPLES)
    return profiles, intervals


def samples_to(rows: Sequence[Row], threshold: float) -> float:
    """The samples after which a run first is at the threshold; infinite if it never is."""
    reached = [row.samples for row in rows if row.value >= threshold]
    return float(min(reached)) if reached else np.inf


def stays_from(rows: Sequence[Row], level: float) -> float:
    """The samples from which on a run stays at a level; infinite if it is not there at its end."""
    below = [index for index, row in enumerate(rows) if row.value < level - 1e-9]
    if not below:
        return float(rows[0].samples)
    return np.inf if below[-1] == len(rows) - 1 else float(rows[below[-1] + 1].samples)


MEASURED = ("team", "done", "train")
"""Rows of teams that were kept; those on the way of a last training are chosen by no one."""


def samples_of_mean(measured: Measured, threshold: float) -> Interval:
    """The samples after which the mean over seeds first is at the threshold, resampling seeds."""
    samples, values = _curves(measured)
    return _crossing(samples, values, lambda draws: threshold)


def ratio(
    fewer: int, measured: Measured, wanted: Float[np.ndarray, " seeds"], margin: float = 0.0
) -> Interval:
    """How many times the samples `fewer` a learner needs for the mean of `wanted`, resampling both.

    A mean that is less than the margin below counts as the same.
    """
    samples, values = _curves(measured)

    def target(draws: np.random.Generator | None) -> float:
        drawn = wanted if draws is None else draws.choice(wanted, len(wanted))
        return float(drawn.mean()) - margin

    return Interval(*(bound / fewer for bound in _crossing(samples, values, target)))


def _curves(measured: Measured) -> tuple[Any, Any]:
    curves = list(measured.curve(MEASURED).values())
    samples = np.array([[row.samples for row in rows] for rows in curves], float)
    return samples.mean(0), np.array([[row.value for row in rows] for rows in curves])


def _crossing(samples: Any, values: Any, target: Callable[[np.random.Generator | None], float]) -> Interval:
    """Where the mean curve first is at the target.

    Between two evaluations nothing is known: the low end is the evaluation before, the high end the one
    after, and the estimate lies on the line between them. Never is infinite.
    """

    draws, size = np.random.default_rng(0), len(values)
    found = [
        crossing(samples, values[draws.integers(0, size, size)].mean(0), target(draws))
        for _ in range(RESAMPLES)
    ]
    _, lows, highs = zip(*found, strict=True)
    low = np.quantile(lows, 0.025, method="inverted_cdf")
    high = np.quantile(highs, 0.975, method="inverted_cdf")
    return Interval(crossing(samples, values.mean(0), target(None)).at, float(low), float(high))


def difference(ours: Float[np.ndarray, " seeds"], theirs: Float[np.ndarray, " seeds"]) -> Interval:
    """Of the means, resampling both."""
    draws = np.random.default_rng(0)
    found = [
        draws.choice(ours, len(ours)).mean() - draws.choice(theirs, len(theirs)).mean()
        for _ in range(RESAMPLES)
    ]
    low, high = np.quantile(found, (0.025, 0.975))
    return Interval(float(ours.mean() - theirs.mean()), float(low), float(high))


def _rliable() -> tuple[Any, Any]:
    warnings.filterwarnings("ignore", "random_state is deprecated", FutureWarning)  # rliable's own call
    np.random.seed(0)  # rliable resamples by numpy's global generator
    return require("rliable.library", "reproduce"), require("rliable.metrics", "reproduce")
