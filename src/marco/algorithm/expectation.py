"""What teams are expected to earn for real: what the model says of them, and what they earned in a trial."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.stats import chi2

from marco.learners.candidates import Imagined

CHANCE = 0.05
"""How probable gaps are that are still taken for chance."""


USUAL = 0.05
"""By which share of what the best team gains over random play models err about all teams alike.

Measured: 0.004 on `switch`, 0.03 on `bridge`, 0.1 and 0.04 on `reference` with 20,000 and 50,000 samples
(benchmarks/README.md)."""


class Expected(NamedTuple):
    """What each team of a seed is expected to earn for real, by the model and the trial together."""

    mean: Float[np.ndarray, " C"]
    error: Float[np.ndarray, " C"]

    @property
    def cautious(self) -> Float[np.ndarray, " C"]:
        """What a team earns at least, more likely than not: by this one is chosen."""
        return self.mean - self.error


def expected(
    imagined: Float[np.ndarray, " C"],
    doubt: Float[np.ndarray, " C"],
    spread: float,
    earned: Sequence[Float[np.ndarray, " _"]],
    usual: float = 0.0,
) -> Expected:
    """Real values from imagined ones, their doubt (a standard deviation) and the returns of real episodes.

    A random-effects model, as in meta-analysis. A team's real value is its imagined one plus an error that
    all share, the model's optimism, plus one of its own; both are estimated from the gaps between real and
    imagined returns (DerSimonian and Laird, 1986); the second is 0 as long as chance explains the gaps.
    `spread` is the standard deviation of a single return, `usual` the shared error that a model may have
    without real episodes showing it.
    """
    episodes = np.array([len(one) for one in earned], float)
    played = episodes > 0
    real = np.array([one.mean() if len(one) else 0.0 for one in earned])
    gap, noise = (real - imagined)[played], spread**2 / episodes[played]
    own = doubt[played] ** 2
    tiny = 1e-12 * max(1.0, spread**2)
    own_error = _between(gap, own + noise + tiny)
    weight = 1.0 / (own + own_error + noise + tiny)
    shared, uncertain = _shrunk(gap, weight, usual**2)
    prior = doubt**2 + own_error
    mean, variance = imagined + shared, prior + uncertain
    keeps = noise / (prior[played] + noise + tiny)  # how much of the model's word is left
    mean[played] = imagined[played] + shared + (1.0 - keeps) * (gap - shared)
    variance[played] = keeps * prior[played] + keeps**2 * uncertain
    return Expected(mean, np.sqrt(variance))


def _between(gap: Float[np.ndarray, " P"], within: Float[np.ndarray, " P"]) -> float:
    """The variance of gaps beyond that `within` each of them, by the method of moments.

    0 where Cochran's test does not find them different: else who was lucky in a few episodes would be chosen.
    """
    if len(gap) < 2:
        return 0.0
    weight, freedom = 1.0 / within, len(gap) - 1
    common = np.average(gap, weights=weight)
    q = float((weight * (gap - common) ** 2).sum())
    if q <= chi2.ppf(1.0 - CHANCE, freedom):
        return 0.0
    return (q - freedom) / float(weight.sum() - (weight**2).sum() / weight.sum())


def _shrunk(
    gap: Float[np.ndarray, " P"], weight: Float[np.ndarray, " P"], usual: float
) -> tuple[float, float]:
    """What all gaps share, and its variance: as far as it is more than chance, or is usual."""
    if not len(gap):
        return 0.0, usual
    common, variance = float(np.average(gap, weights=weight)), 1.0 / float(weight.sum())
    beyond = max(usual, common**2 - variance)
    share = beyond / (beyond + variance)
    return share * common, share * variance


def expected_of_seed(
    imagined: Imagined, seed: int, earned: Sequence[Float[np.ndarray, " _"]], floor: float
) -> Expected:
    """`expected` of one seed's candidates, where random play earns the floor; none have minus infinity."""
    promised = imagined.mean[:, seed]
    there = np.isfinite(promised)
    mean, error = np.full(len(there), -np.inf), np.zeros(len(there))
    # One spread for all: few real episodes that end alike do not make a return certain.
    alone = [one.var(ddof=1) for one in earned if len(one) > 1]
    spread = np.sqrt(max([*np.asarray(imagined.deviation)[there, seed].astype(float) ** 2, *alone]))
    found = expected(
        promised[there],
        np.hypot(imagined.doubt, imagined.standard_error)[there, seed],
        float(spread),
        [one for one, is_there in zip(earned, there, strict=True) if is_there],
        USUAL * float(abs(promised[there].max() - floor)),
    )
    mean[there], error[there] = found
    return Expected(mean, error)
