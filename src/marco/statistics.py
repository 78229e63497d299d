"""What is said of several runs: means, interquartile means, probabilities of improvement, with intervals.

Intervals are 95% bootstrap intervals: seeds are drawn again, with replacement, within each environment
(stratified; Agarwal et al., 2021). They depend on the values alone: the draws have a seed of their own.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

RESAMPLES = 2_000

Runs = Float[np.ndarray, " _"]
"""A score of each run of one setting in one environment."""


class Interval(NamedTuple):
    """An estimate with its 95% interval."""

    estimate: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{_plain(self.estimate)} ({_plain(self.low)} to {_plain(self.high)})"


def _plain(value: float) -> str:
    if not np.isfinite(value):
        return "never" if value > 0 else "?"
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}" if abs(value) >= 10 else f"{value:.3f}"


def interquartile_mean(values: Runs) -> float:
    """The mean of the middle half: a quarter of the values, rounded down, is left out at each end."""
    ordered, out = np.sort(np.asarray(values, float)), len(values) // 4
    return float(ordered[out : len(ordered) - out].mean())


def bootstrap(strata: Sequence[Runs], statistic: Callable[[list[Any]], float]) -> Interval:
    """A statistic of the runs in several environments (or of several settings), with its interval."""
    draws = np.random.default_rng(0)
    strata = [np.asarray(values, float) for values in strata]
    found = [statistic([draws.choice(values, len(values)) for values in strata]) for _ in range(RESAMPLES)]
    # Never is infinite, and there is nothing between it and a number.
    low, high = np.quantile(found, (0.025, 0.975), method="inverted_cdf")
    return Interval(float(statistic(strata)), float(low), float(high))


def mean(strata: Sequence[Runs]) -> Interval:
    """The mean over all runs."""
    return bootstrap(strata, lambda drawn: float(np.concatenate(drawn).mean()))


def iqm(strata: Sequence[Runs]) -> Interval:
    """The interquartile mean over all runs."""
    return bootstrap(strata, lambda drawn: interquartile_mean(np.concatenate(drawn)))


def probability_of_improvement(ours: Sequence[Runs], theirs: Sequence[Runs]) -> Interval:
    """That a run of ours is better than one of theirs, averaged over environments; ties count half."""
    if len(ours) != len(theirs) or not ours:
        raise ValueError(f"both sides need the same environments, got {len(ours)} and {len(theirs)}.")

    def better(drawn: list[Any]) -> float:
        pairs = zip(drawn[: len(ours)], drawn[len(ours) :], strict=True)
        return float(np.mean([_wins(one, other) for one, other in pairs]))

    return bootstrap([*ours, *theirs], better)


def _wins(ours: Any, theirs: Any) -> float:
    """The share of all pairs that ours win (Mann and Whitney's U, divided by its most)."""
    ordered = np.sort(theirs)
    below, upto = (np.searchsorted(ordered, ours, side) for side in ("left", "right"))
    return float((below + upto).mean() / (2 * len(theirs)))


class Crossing(NamedTuple):
    """Where a curve first is at a level: on the line between two points, which it is known to lie between."""

    at: float
    after: float
    by: float


def crossing(samples: Any, values: Any, level: float) -> Crossing:
    """The samples at which a curve first is at a level; never is infinite."""
    reached = np.asarray(values) >= level - 1e-9
    if not reached.any():
        return Crossing(np.inf, np.inf, np.inf)
    at = int(reached.argmax())
    if at == 0:
        return Crossing(*[float(samples[0])] * 3)
    share = (level - values[at - 1]) / (values[at] - values[at - 1])
    between = samples[at - 1] + np.clip(share, 0.0, 1.0) * (samples[at] - samples[at - 1])
    return Crossing(float(between), float(samples[at - 1]), float(samples[at]))


def samples_to_reach(samples: Sequence[float], runs: Sequence[Runs], level: float) -> Interval:
    """The samples by which the mean over runs first is at a level; `runs` has those of each budget.

    Between two budgets nothing is known: the low end is the budget before, the high end the one after.
    """

    def at(name: str) -> Callable[[list[Any]], float]:
        return lambda drawn: getattr(crossing(samples, [one.mean() for one in drawn], level), name)

    estimate, low, high = (bootstrap(runs, at(name)) for name in Crossing._fields)
    return Interval(estimate.estimate, low.low, high.high)
