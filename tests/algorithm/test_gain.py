"""What more samples buy, and runs that end before their budget is spent."""

import jax
import numpy as np
import pytest

from helpers.tiny_run import KNOWN, QUICK, SEEDS, WORLD, begin, phases, settings
from marco.algorithm.events import Event
from marco.algorithm.gain import gains, shortened
from marco.data.dataset import Dataset


def team(samples, *values, name="imagined_return"):
    return Event("team", 0, samples, {name: list(values)})


def test_gains_are_per_thousand_samples_from_refit_to_refit():
    told = [team(500, 0.1, 0.2), Event("explore", 0, 500, {}), team(1_000, 0.4, 0.2), team(3_000, 0.5, 0.0)]
    found = gains(told)
    assert [samples for samples, _ in found] == [1_000, 3_000]
    np.testing.assert_allclose([each for _, each in found], [[0.6, 0.0], [0.05, -0.1]])


def test_a_run_ends_when_two_chunks_in_a_row_gain_too_little_in_every_seed():
    config = settings(samples=68, trial_samples=18, until_gain_below=10.0)  # refits at 20, 36 and 50
    rising, still = [team(20, 0.0, 0.0), team(36, 0.5, 0.5)], [team(20, 0.0, 0.0), team(36, 0.1, 0.1)]
    assert shortened(config, [*rising, team(52, 0.5, 0.5)]) == config  # 0.5 in 16 samples is 31 per thousand
    assert shortened(config, [*still, team(52, 0.2, 0.5)]) == config  # the second seed rises
    ended = shortened(config, [*still, team(40, 0.1, 0.1)])
    assert (ended.samples, ended.schedule) == (40 + 18, (20, 36, 40))


def test_what_is_not_known_ends_no_run_and_planned_teams_count_where_none_is_trained():
    config = settings(samples=68, trial_samples=18, until_gain_below=10.0)
    unknown = [team(samples, None, 0.1, name="planned_return") for samples in (20, 36, 40)]
    assert shortened(config, unknown) == config
    known = [team(samples, 0.1, 0.1, name="planned_return") for samples in (20, 36, 40)]
    assert shortened(config, known).samples == 58
    assert shortened(settings(samples=68, trial_samples=18), known).samples == 68  # only if it is asked for


@pytest.mark.parametrize("stop", [0, 11, 13])
def test_a_run_that_ends_early_takes_fewer_samples_and_can_be_resumed(tmp_path, stop):
    """No gain is enough: the third refit is the last, and the trial comes after it."""
    learned = {"team_steps": 8, "demonstrations": 0.0, "trial_samples": 9}
    plan = settings(samples=200, team=QUICK.team, explorer=QUICK.explorer, until_gain_below=1e9, **learned)
    run = phases(begin(tmp_path, plan, known=KNOWN))
    told = [next(run)[0] for _ in range(stop)]
    run.close()
    *rest, (_, state) = phases(begin(tmp_path, plan, known=KNOWN))
    told = [event.phase for event in (*told, *(event for event, _ in rest))]
    assert told[-4:] == ["fit", "team", "final", "trial"]
    samples = Dataset(tmp_path / "data", WORLD.spec, len(SEEDS)).samples
    assert samples.tolist() == [20 + 16 + 16 + 9] * 2
    again = begin(tmp_path, plan, known=KNOWN).restore()
    for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(one, other)
