"""Line 6 of Algorithm 1 for all seeds."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from helpers.tiny_run import MODEL, begin, phases, settings
from marco.algorithm import fit
from marco.algorithm.state import Stream
from marco.model.config import PredictorConfig


@pytest.fixture
def collected(tmp_path):
    """A run of two seeds with its first chunk of real data; its dynamics are a small recurrent network."""
    recurrent = replace(MODEL, dynamics=PredictorConfig("recurrent", (6,), 2))
    run = begin(tmp_path, settings(model=recurrent))
    next(phases(run))
    return run


def test_large_networks_are_fitted_seed_after_seed_and_come_out_the_same(collected, monkeypatch):
    keys, (data, plan) = collected.keys(0, Stream.FIT), collected.to_fit(20)
    found = {}
    for limit in (0.0, np.inf):
        fit._fit_component.clear_cache()
        monkeypatch.setattr(fit, "LARGE", limit)
        found[limit] = fit.fit_parts(keys, data, plan, [(0, "dynamics")])
    fit._fit_component.clear_cache()
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, atol=1e-4), *found.values())


def test_the_arithmetic_of_a_gradient_step_is_counted(collected):
    """Six operations a weight and row: forwards, and twice as many backwards; a GRU, for each feature."""
    plan = collected.plan()
    weights = plan.weights((0, "dynamics"))
    features = len(collected.env.spec.state)
    assert plan.arithmetic((0, "dynamics")) == 6 * weights * features * 16 * 2  # rows of a batch, members
    assert plan.arithmetic((0, "reward")) == 6 * plan.weights((0, "reward")) * 16
