"""The numbers of Algorithm 1's presets, where a slip would change results without a word."""

import pytest

from marco.algorithm.presets import marco_settings
from marco.environments.registry import make


def test_the_paper_preset_has_the_papers_numbers():
    switch, bridge, reference = (
        marco_settings("paper", make(name).spec) for name in ("switch", "bridge", "reference")
    )
    assert [s.samples for s in (switch, bridge, reference)] == [10_000, 50_000, 50_000]
    assert [s.chunk for s in (switch, bridge, reference)] == [5_000, 10_000, 10_000]
    assert [s.team_steps for s in (switch, bridge, reference)] == [10_000, 50_000, 50_000]
    assert [s.explorer_steps for s in (switch, bridge, reference)] == [100_000, 100_000, 50_000]
    assert [s.team.mixer for s in (switch, bridge, reference)] == ["iql", "vdn", "qmix"]
    assert [s.explorer.mixer for s in (switch, bridge, reference)] == ["vdn", "vdn", "qmix"]
    for settings in (switch, bridge, reference):
        assert (settings.lam, settings.bonus, settings.epsilon) == (2.0, "variance", 0.1)
        assert (settings.restarts, settings.demonstration_share) == (0, 0.0)
        assert settings.model.outcomes is None
    assert [s.final_updates for s in (switch, bridge, reference)] == [100_000, 40_000, 40_000]


@pytest.mark.parametrize(
    ("learner", "mixer", "tenths"),
    [(None, "either", 3), ("iql", "iql", 3), ("qmix", "qmix", 3), ("vdn", "vdn", 1)],
)
def test_vdn_acts_at_random_for_a_third_as_long_as_the_others(learner, mixer, tenths):
    spec = make("switch").spec
    team = marco_settings("default", spec, learner=learner, final_updates=1_000).team
    most = 1_000 * 32 * 6  # updates, episodes each, steps each
    assert team.mixer == mixer
    assert team.epsilon_anneal_steps == tenths * most // 10
    assert team.additive_epsilon_anneal_steps == (most // 10 if mixer == "either" else None)


def test_numbers_are_learned_by_one_team_of_policy_gradients_and_rare_prizes_with_patience():
    switch, reference = (marco_settings("default", make(name).spec) for name in ("switch", "reference"))
    assert (switch.restarts, switch.bonus, switch.model.outcomes.patience) == (4, "standard-deviation", 20)
    assert (reference.restarts, reference.bonus, reference.model.outcomes) == (1, "variance", None)
    assert (switch.samples, switch.chunk) == (2_000, 500)
    assert (reference.samples, reference.chunk) == (20_000, 5_000)
