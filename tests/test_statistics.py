"""Statistics of runs, worked by hand, and beside rliable's."""

import numpy as np
import pytest

from marco.statistics import (
    Crossing,
    Interval,
    crossing,
    interquartile_mean,
    iqm,
    mean,
    probability_of_improvement,
    samples_to_reach,
)


def test_the_middle_half():
    assert interquartile_mean(np.array([0.0, 1.0, 2.0, 100.0])) == 1.5
    assert interquartile_mean(np.array([0.0, 1.0, 5.0])) == 2.0  # a quarter of three is none


def test_equal_runs_have_no_spread():
    assert mean([np.array([2.0, 2.0])]) == Interval(2.0, 2.0, 2.0)


def test_strata_are_resampled_within():
    """Two environments, each without spread: stratified, the mean has none either."""
    assert mean([np.array([0.0, 0.0]), np.array([1.0, 1.0])]) == Interval(0.5, 0.5, 0.5)


def test_a_win_counts_one_and_a_tie_half():
    """Of four pairs two are won, one is a tie: (2 + 0.5) / 4."""
    found = probability_of_improvement([np.array([1.0, 3.0])], [np.array([1.0, 2.0])])
    assert found.estimate == pytest.approx(2.5 / 4)
    with pytest.raises(ValueError, match="the same environments, got 1 and 0"):
        probability_of_improvement([np.ones(2)], [])


def test_where_a_curve_is_at_a_level():
    assert crossing([100, 200], [0.2, 0.6], 0.5) == pytest.approx(Crossing(175.0, 100.0, 200.0))
    assert crossing([100, 200], [0.6, 0.9], 0.5) == Crossing(100.0, 100.0, 100.0)
    assert crossing([100, 200], [0.2, 0.3], 0.5) == Crossing(np.inf, np.inf, np.inf)


def test_samples_to_reach_a_level_over_budgets():
    runs = [np.array([0.2, 0.2]), np.array([0.6, 0.6])]
    assert samples_to_reach([100.0, 200.0], runs, 0.5) == pytest.approx(Interval(175.0, 100.0, 200.0))
    assert str(samples_to_reach([100.0, 200.0], runs, 0.7)) == "never (never to never)"


def test_as_rliable_says():
    """Estimates are the same; intervals, by other draws, nearly."""
    metrics = pytest.importorskip("rliable.metrics")
    rliable = pytest.importorskip("rliable.library")
    draws = np.random.default_rng(1)
    scores = draws.normal(size=(20, 3)) + np.arange(3)
    strata = list(scores.T)
    np.random.seed(0)
    points, intervals = rliable.get_interval_estimates(
        {"a": scores}, lambda x: np.array([metrics.aggregate_mean(x), metrics.aggregate_iqm(x)]), reps=2_000
    )
    for index, ours in enumerate((mean(strata), iqm(strata))):
        assert ours.estimate == pytest.approx(points["a"][index])
        assert [ours.low, ours.high] == pytest.approx(intervals["a"][:, index].tolist(), abs=0.06)
    theirs = metrics.probability_of_improvement(scores, scores[:, ::-1])
    assert probability_of_improvement(strata, strata[::-1]).estimate == pytest.approx(theirs)
