"""The trial at the end: who plays how long, to the last step of the budget, also after a stop."""

from dataclasses import replace
from itertools import islice

import jax
import numpy as np
import pytest

from helpers.host_riddle import HostRiddle
from helpers.tiny_run import KNOWN, SEEDS, TINY, WORLD, Drifter, begin, phases, settings
from marco.algorithm.offline import recorded
from marco.algorithm.trial import candidate_names, stints, who_plays
from marco.data.dataset import Dataset
from marco.learners.mappo import MAPPO
from marco.learners.q_learning import QLearner
from marco.runs.checkpoint import RunJournal

PLAN = settings(samples=68, trial_samples=18, offline=(TINY,), offline_updates=3)
"""The tiny run, with six episodes of three steps more for a trial."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run in one piece: its folder, the ends of its phases and what it learned."""
    folder = tmp_path_factory.mktemp("whole")
    told = list(phases(begin(folder, PLAN, known=KNOWN)))
    return folder, [event for event, _ in told], told[-1][1]


def test_the_trial_is_the_last_phase_and_takes_what_is_left_of_the_budget(whole):
    folder, events, state = whole
    assert [event.phase for event in events][-4:] == ["fit", "final", "trial", "done"]
    assert [event.samples for event in events][-4:] == [50, 50, 68, 68]
    dataset = Dataset(folder / "data", WORLD.spec, len(SEEDS))
    assert dataset.samples.tolist() == [68, 68]
    trial = begin(folder, PLAN, known=KNOWN).trial(state)
    assert trial.names == ("vdn", "offline vdn")
    for index in range(len(SEEDS)):
        chosen, other = trial.candidates(index)
        assert {chosen.name, other.name} == {"vdn", "offline vdn"}
        assert chosen.expected - chosen.error >= other.expected - other.error
        assert chosen.episodes + other.episodes >= 6  # of at most three steps
        low, high = chosen.interval
        assert low <= chosen.expected <= high


def test_what_the_chosen_team_earned_is_told(whole):
    folder, events, state = whole
    trial = begin(folder, PLAN, known=KNOWN).trial(state)
    told = events[-2].metrics
    for index in range(len(SEEDS)):
        chosen = trial.candidates(index)[0]
        assert told["trial_return"][index] == chosen.real
        assert told["expected_return"][index] == pytest.approx(chosen.expected)


def test_a_run_stopped_in_its_trial_ends_with_the_same_team_bit_for_bit(whole, tmp_path):
    folder, _, state = whole
    run = begin(tmp_path, PLAN, known=KNOWN).run()
    seen = 0
    for event, _ in run:
        seen += event.phase == "trial"
        if seen == 3:  # in the midst of it: some of its episodes are there
            break
    run.close()
    have = Dataset(tmp_path / "data", WORLD.spec, len(SEEDS)).samples
    assert (have > 50).any()
    assert (have < 68).any()
    *_, (_, again) = begin(tmp_path, PLAN, known=KNOWN).run()
    for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(one, other)
    *_, (_, restored) = begin(folder, PLAN, known=KNOWN).run()  # all is done: nothing is played again
    for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(restored), strict=True):
        np.testing.assert_array_equal(one, other)


def test_teams_of_all_kinds_are_kept_and_restored(tmp_path):
    """MAPPO, Q-learning and an own learner have policies of different shapes."""
    mappo = MAPPO(hidden=8, critic_hidden=8, episodes_per_update=4)
    plan = settings(samples=60, trial_samples=10, candidates=(mappo, TINY, Drifter()), final_updates=2)
    told = list(phases(begin(tmp_path, plan, known=KNOWN)))
    trial = begin(tmp_path, plan, known=KNOWN).trial(told[-1][1])
    assert trial.names == ("mappo", "vdn", "drifter")
    assert RunJournal(tmp_path).latest == len(told) - 1
    restored = begin(tmp_path, plan, known=KNOWN).restore()
    for one, other in zip(jax.tree.leaves(told[-1][1]), jax.tree.leaves(restored), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_promise_that_the_world_does_not_keep_is_told(whole):
    """As if the model had said 50, where the riddle pays from -1 to 1."""
    folder, _, state = whole
    trial = begin(folder, PLAN, known=KNOWN).trial(state)
    assert trial.warnings(SEEDS) == ()
    bold = state.imagined._replace(
        by_member=state.imagined.by_member + 50.0, deviation=state.imagined.deviation + 0.1
    )
    (first, second) = replace(trial, imagined=bold).warnings(SEEDS)
    assert "the team of seed 3 earns 5" in first
    assert "the model is not to be trusted there" in second


def test_candidates_are_named_by_their_learners():
    names = candidate_names((QLearner("qmix"), QLearner("vdn"), QLearner("qmix")), True, (QLearner("iql"),))
    assert names == ("qmix", "vdn", "planned", "offline iql")


def test_as_many_teams_play_as_there_is_room_for_and_two_in_the_second_round():
    standing = np.array([[0.1, 0.4, -np.inf, 0.3], [0.4, 0.1, 0.2, 0.3]])
    all_of_them = who_plays(standing, 24, 0, horizon=3)  # two episodes of three steps each: room for four
    assert all_of_them.tolist() == [[True, True, False, True], [True] * 4]
    assert who_plays(standing, 12, 0, horizon=3).tolist() == [
        [False, True, False, True],
        [True, False, False, True],
    ]
    assert who_plays(standing, 24, 1, horizon=3).tolist() == [
        [False, True, False, True],
        [True, False, False, True],
    ]
    assert who_plays(standing, 2, 0, horizon=3).sum(1).tolist() == [1, 1]


def test_stints_follow_each_other_and_fill_the_round():
    plays = np.array([[True, False, True], [True, True, True]])
    found = stints(np.array([50, 50]), np.array([59, 60]), plays)
    assert [(since.tolist(), until.tolist()) for since, until in found] == [
        ([50, 50], [54, 53]),
        ([54, 53], [54, 56]),
        ([54, 56], [59, 60]),
    ]


def test_recorded_episodes_are_padded_to_a_power_of_two(whole):
    dataset = Dataset(whole[0] / "data", WORLD.spec, len(SEEDS))
    real = [dataset.episodes(index, 50) for index in range(len(SEEDS))]
    found = recorded(real)
    sizes = [own.reward.shape[1] for own in real]
    assert found.added.tolist() == sizes
    assert found.episodes.reward.shape[1] == 1 << (max(sizes) - 1).bit_length()
    first = jax.tree.map(lambda leaf: np.asarray(leaf)[0, : sizes[0]], found.episodes)
    np.testing.assert_array_equal(first.actions, np.moveaxis(real[0].actions, 1, 0))
    assert list(islice(first.mask.sum(1), 3)) == np.asarray(real[0].mask).sum(0)[:3].tolist()


def test_a_world_outside_jax_has_its_trial_too(tmp_path):
    """Every step of it is counted, and kept as it is taken."""
    steps = []
    world = HostRiddle(before=steps.append)
    plan = settings(samples=38, trial_samples=18, first_chunk=20, team=Drifter(), explorer=Drifter())
    *_, (event, state) = begin(tmp_path, plan, world, SEEDS[:1], KNOWN).run()
    assert (event.phase, event.samples) == ("done", 38)
    assert len(steps) == 38
    (only,) = begin(tmp_path, plan, world, SEEDS[:1], KNOWN).trial(state).candidates(0)
    assert (only.name, only.episodes >= 6) == ("drifter", True)
