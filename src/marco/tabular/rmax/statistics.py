"""Shares of runs with exact intervals, and what a set of runs comes to."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from marco.tabular.rmax.loop import Run


class Interval(NamedTuple):
    """A two-sided confidence interval."""

    low: float
    high: float


def clopper_pearson(failures: int, runs: int, level: float = 0.95) -> Interval:
    """The exact interval of a probability after so many failures in so many runs (Clopper & Pearson 1934)."""
    if not 0 <= failures <= runs or runs < 1:
        raise ValueError(f"failures must be between 0 and runs, got {failures} of {runs}.")
    tail = (1.0 - level) / 2.0
    low = 0.0 if failures == 0 else _solve(lambda p: _at_least(failures, runs, p) - tail)
    high = (
        1.0
        if failures == runs
        else _solve(lambda p: tail - _at_least(failures + 1, runs, p, complement=True))
    )
    return Interval(low, high)


def _at_least(k: int, n: int, p: float, complement: bool = False) -> float:
    """P(X >= k) for a binomial X, or P(X < k)."""
    terms = range(k) if complement else range(k, n + 1)
    logs = [
        math.lgamma(n + 1)
        - math.lgamma(i + 1)
        - math.lgamma(n - i + 1)
        + (i * math.log(p) if i else 0.0)
        + ((n - i) * math.log1p(-p) if n - i else 0.0)
        for i in terms
    ]
    return sum(math.exp(log) for log in logs)


def _solve(rises: Any) -> float:
    """Where an increasing function of a probability crosses 0."""
    low, high = 1e-15, 1.0 - 1e-15
    for _ in range(200):
        middle = (low + high) / 2.0
        low, high = (low, middle) if rises(middle) > 0.0 else (middle, high)
    return (low + high) / 2.0


def summary(runs: Sequence[Run], margin: float) -> dict[str, Any]:
    """What runs come to: how many fail, how many samples the others need, how long teams were bad."""
    failing = [run.regret > margin for run in runs]
    needed = [run.samples_until(margin) for run in runs]
    reached = [count for count in needed if count is not None]
    interval = clopper_pearson(sum(failing), len(runs))
    escapes = [sum(phase.escapes for phase in run.phases) for run in runs]
    plans = [phase.certified for run in runs for phase in run.phases]
    return {
        "runs": len(runs),
        "failing": sum(failing),
        "failing_share": sum(failing) / len(runs),
        "failing_interval": list(interval),
        "final": sum(run.final for run in runs),
        "samples_to_reach_median": float(np.median(reached)) if reached else None,
        "samples_median": float(np.median([run.samples for run in runs])),
        "regret_mean": float(np.mean([run.regret for run in runs])),
        "regret_worst": max(run.regret for run in runs),
        "episodes_worse_mean": float(np.mean([run.worse_than(margin) for run in runs])),
        "episodes_worse_most": max(run.worse_than(margin) for run in runs),
        "escapes_most": max(escapes),
        "plans": len(plans),
        "plans_uncertified": plans.count(False),
    }
