"""The numbers of Algorithm 1's presets, where a slip would change results without a word."""

from dataclasses import replace

import pytest

from marco.algorithm.config import MarcoConfig
from marco.environments.registry import make
from marco.learners.mappo import MAPPO
from marco.learners.q_learning import QLearner

SWITCH, BRIDGE, REFERENCE = (make(name).spec for name in ("switch", "bridge", "reference"))


def test_the_paper_preset_has_the_papers_numbers():
    switch, bridge, reference = (MarcoConfig.preset("paper", spec) for spec in (SWITCH, BRIDGE, REFERENCE))
    assert [s.samples for s in (switch, bridge, reference)] == [10_000, 50_000, 50_000]
    assert [s.chunk for s in (switch, bridge, reference)] == [5_000, 10_000, 10_000]
    assert [s.team_steps for s in (switch, bridge, reference)] == [10_000, 50_000, 50_000]
    assert [s.explorer_steps for s in (switch, bridge, reference)] == [100_000, 100_000, 50_000]
    assert [s.team.mixer for s in (switch, bridge, reference)] == ["iql", "vdn", "qmix"]
    assert [s.explorer.mixer for s in (switch, bridge, reference)] == ["vdn", "vdn", "qmix"]
    for config in (switch, bridge, reference):
        assert (config.lam, config.bonus, config.epsilon) == (2.0, "variance", 0.1)
        assert (config.candidates, config.demonstrations) == ((), 0.0)
        assert config.model.reward.training is None
    assert [s.final_updates for s in (switch, bridge, reference)] == [100_000, 40_000, 40_000]


def test_by_default_every_other_team_is_vdn_and_explores_for_a_third_as_long():
    config = MarcoConfig.preset("default", SWITCH, final_updates=1_000)
    most = 1_000 * 32 * 6  # updates, episodes each, steps each
    assert [team.mixer for team in config.candidates] == ["qmix", "vdn", "qmix", "vdn"]
    assert [team.epsilon_anneal_steps for team in config.candidates] == [3 * most // 10, most // 10] * 2


def test_where_episodes_are_long_or_states_have_numbers_policy_gradients_take_part():
    reference = MarcoConfig.preset("default", REFERENCE)
    mappo, *others = reference.candidates
    assert isinstance(mappo, MAPPO)
    assert [team.mixer for team in others] == ["qmix", "vdn", "qmix"]
    foraging = MarcoConfig.preset(
        "default", make("foraging").spec
    )  # 50 steps: as many in a batch as elsewhere
    each = [one.candidates[0].episodes_per_update for one in (reference, foraging)]
    assert each == [128, 64]
    config = MarcoConfig.preset("default", SWITCH)
    assert (config.team.mixer, config.team_steps, config.team_share) == ("vdn", 50_000, 0.5)


def test_the_exploration_policy_has_as_many_updates_in_long_episodes_as_in_short_ones():
    """Of 16 episodes or, where they are long, 8; random actions become rare in a fifth of it."""
    for name, most in (("switch", 16 * 6), ("bridge", 16 * 9), ("reference", 8 * 25), ("foraging", 8 * 50)):
        config = MarcoConfig.preset("default", make(name).spec)
        assert config.explorer_steps == 400 * most
        assert config.explorer.episodes_per_update * make(name).spec.horizon == most
        assert config.explorer.epsilon_anneal_steps == 80 * most
    endless = MarcoConfig.preset("default", make("switch", horizon=1_000).spec)
    assert endless.explorer_steps == 400_000


@pytest.mark.parametrize(("learner", "tenths"), [("iql", 3), ("qmix", 3), ("vdn", 1)])
def test_a_learner_chosen_by_name_is_that_of_all_teams(learner, tenths):
    config = MarcoConfig.preset("default", SWITCH, learner=learner, final_updates=1_000)
    assert len(config.candidates) == 4
    for team in config.candidates:
        assert (team.mixer, team.epsilon_anneal_steps) == (learner, tenths * 1_000 * 32 * 6 // 10)
    assert (config.team.mixer, config.team.epsilon_anneal_steps) == (learner, 10_000)


def test_the_team_of_the_refits_follows_the_learner_by_name():
    """Where episodes are long, fewer make up an update."""
    reference = MarcoConfig.preset("default", REFERENCE)
    assert (reference.team.mixer, reference.team.episodes_per_update) == ("vdn", 8)
    mappo = MarcoConfig.preset("default", SWITCH, learner="mappo")
    assert isinstance(mappo.team, MAPPO)
    assert mappo.candidates == (replace(mappo.team, episodes_per_update=128),)


def test_a_twentieth_of_the_budget_is_for_the_trial_and_a_few_episodes_at_least():
    switch = MarcoConfig.preset("default", SWITCH, samples=10_000)
    assert (switch.trial_samples, switch.schedule[-2:], switch.samples) == (500, (9_000, 9_500), 10_000)
    few = MarcoConfig.preset("default", SWITCH, samples=300)
    assert (few.trial_samples, few.schedule) == (4 * 6, (300,))  # no room for two chunks: no trial
    assert MarcoConfig.preset("default", SWITCH, samples=60).trial_samples == 60 // 5
    assert [one.mixer for one in switch.offline] == ["vdn"]
    paper = MarcoConfig.preset("paper", SWITCH)
    assert (paper.trial_samples, paper.offline) == (0, ())


def test_rare_rewards_get_patience_and_long_episodes_fewer_refits():
    switch, reference = (MarcoConfig.preset("default", spec) for spec in (SWITCH, REFERENCE))
    assert (len(switch.candidates), switch.bonus) == (4, "standard-deviation")
    for model in (switch.model, reference.model):
        assert model.reward.training.patience == model.termination.training.patience == 20
        assert model.training.patience == 5
    assert reference.bonus == "variance"
    assert (switch.samples, switch.chunk) == (2_000, 500)
    assert (reference.samples, reference.chunk) == (20_000, 5_000)


def test_numbers_get_wider_networks_and_all_are_sparse_at_first():
    switch, bridge, reference = (MarcoConfig.preset("default", s).model for s in (SWITCH, BRIDGE, REFERENCE))
    assert [m.dynamics.hidden[0] for m in (switch, bridge, reference)] == [64, 64, 128]
    assert [m.reward.hidden[0] for m in (switch, bridge, reference)] == [64, 64, 128]
    for model in (switch, bridge, reference):
        names = ("dynamics", "reward", "observation", "termination")
        assert [model.training_of(name).sparsity for name in names] == [0.3] * 4
        assert (model.distances, model.relations, model.changes) == (True, True, True)
        assert model.dynamics.kind == model.observation.kind == "chain"
    paper = MarcoConfig.preset("paper", SWITCH).model
    assert (paper.distances, paper.relations, paper.changes) == (False, False, False)
    assert paper.training.sparsity == 0.0


def test_hard_values_are_learned_beside_easy_ones_in_default_and_the_likelihood_is_plain_in_paper():
    model, paper = (MarcoConfig.preset(name, REFERENCE).model for name in ("default", "paper"))
    names = ("dynamics", "reward", "observation", "termination", "available")
    assert [model.training_of(name).beta for name in names] == [0.5] * 5
    assert [paper.training_of(name).beta for name in names] == [0.0] * 5


def test_what_a_preset_derives_follows_the_changes():
    config = MarcoConfig.preset("default", SWITCH, samples=10_000, **{"team.learning_rate": 5e-4})
    assert (config.samples, config.chunk, config.first_chunk) == (10_000, 1_000, 1_000)
    assert {team.learning_rate for team in (config.team, *config.candidates)} == {5e-4}
    assert len(config.candidates) == 4
    shorter = MarcoConfig.preset("default", REFERENCE, **{"team.td_lambda": 0.5})  # MAPPO has none
    assert [getattr(team, "td_lambda", None) for team in shorter.candidates] == [None, 0.5, 0.5, 0.5]
    mine = QLearner("iql", learning_rate=1e-2)
    assert MarcoConfig.preset("default", SWITCH, team=mine).candidates == (mine,) * 4
    same = MarcoConfig.preset("default", SWITCH, chunk=250, **{"model.dynamics.members": 3})
    plain = MarcoConfig.preset("default", SWITCH)
    dynamics = replace(plain.model.dynamics, members=3)
    assert same == replace(plain, chunk=250, model=replace(plain.model, dynamics=dynamics))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lambda": 0.0}, "there is no setting 'lambda': do you mean 'lam'?"),
        ({"team.learning": 0.1}, "there is no setting 'team.learning': do you mean 'learning_rate'?"),
        ({"model.dynamics.member": 3}, "do you mean 'members'?"),
        ({"lam": -1.0}, "lam must not be negative, got -1.0"),
        ({"learner": "sac"}, "unknown learner 'sac': there are iql, vdn, qmix, mappo"),
    ],
)
def test_a_bad_change_is_refused_by_name(changes, message, monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        MarcoConfig.preset("default", SWITCH, **changes)


def test_changes_are_made_at_once_in_any_order():
    config = MarcoConfig.preset("default", SWITCH, collector="team", team_steps=100)
    assert (config.collector, config.team_steps) == ("team", 100)
    none = MarcoConfig.preset("default", SWITCH, **{"model.reward.training": None})
    assert none.model.reward.training is None
    qmix = MarcoConfig.preset("default", SWITCH, **{"team.mixer": "qmix"})
    assert [team.mixer for team in qmix.candidates] == ["qmix"] * 4


def test_an_unknown_preset_is_refused(monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)
    with pytest.raises(ValueError, match="unknown preset 'papers': there are default, paper"):
        MarcoConfig.preset("papers", SWITCH)
