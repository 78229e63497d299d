"""Statistics of a set of runs: how many fail, with an exact confidence interval, and their samples."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from marco.tabular.rmax.loop import LearningRun


class Interval(NamedTuple):
    """A two-sided confidence interval."""

    low: float
    high: float


def clopper_pearson(failures: int, runs: int, level: float = 0.95) -> Interval:
    """The exact interval of a failure probability, from the failures among runs (Clopper & Pearson 1934)."""
    from scipy.stats import binomtest  # half a second of import, needed here only

    if not 0 <= failures <= runs or runs < 1:
        raise ValueError(f"failures must be between 0 and runs, got {failures} of {runs}.")
    interval = binomtest(failures, runs).proportion_ci(level, method="exact")
    return Interval(float(interval.low), float(interval.high))


def summary(runs: Sequence[LearningRun], margin: float) -> dict[str, Any]:
    """Failures (a final regret above the margin), samples until success, and episodes with a bad team."""
    failing = [run.regret > margin for run in runs]
    needed = [run.samples_until(margin) for run in runs]
    reached = [count for count in needed if count is not None]
    escapes = [sum(phase.escapes for phase in run.phases) for run in runs]
    plans = [phase.certified for run in runs for phase in run.phases]
    return {
        "runs": len(runs),
        "failing": sum(failing),
        "failing_share": sum(failing) / len(runs),
        "failing_interval": list(clopper_pearson(sum(failing), len(runs))),
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
