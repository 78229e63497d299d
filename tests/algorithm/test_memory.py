"""How much is remembered: chosen by held-out episodes, kept in the run's folder, told in numbers."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marco
from helpers.hidden_worlds import MODEL, Echo, Ring
from helpers.tiny_run import TINY, WORLD, settings
from helpers.zoo_toys import Central, toy
from marco.algorithm.config import MarcoConfig
from marco.algorithm.loop import Marco
from marco.algorithm.memory import Gain, Losses, Memories, Memory, better, gain, lengths
from marco.data.dataset import Dataset
from marco.environments.base import has_joint_state
from marco.learners.mappo import MAPPO
from marco.model.description import Description, Row
from marco.model.frames import with_frames
from marco.model.parts import Part
from marco.model.stacked_view import Stacked
from marco.model.views import Described
from marco.policies.base import RandomPolicy
from marco.rollout import play
from marco.runs.checkpoint import RunJournal
from marco.types import NO_ACTION, Continuous

TEAM = replace(TINY, mixer="qmix")
SETTINGS = settings(
    model=MODEL, team=TEAM, candidates=(TEAM,), samples=400, first_chunk=300, chunk=100, team_share=0.0
)


def begin(env, folder=None, **changes):
    memories = Memories(None if folder is None else folder / "memory.json")
    dataset = Dataset(None if folder is None else folder / "data", env.spec, 1)
    journal = {} if folder is None else {"journal": RunJournal(folder)}
    return Marco(env, replace(SETTINGS, **changes), (3,), dataset, memories=memories, **journal)


def collected(env, samples):
    """A run whose first chunk is so many random samples."""
    run = begin(env, samples=samples, first_chunk=samples)
    run.check()
    for seed in range(samples // env.spec.horizon):
        episode = play(jax.random.key(seed), env, RandomPolicy())
        run.dataset.append(jax.tree.map(lambda leaf: np.asarray(leaf)[None, :, None], episode))
    return run


def test_what_two_steps_tell_is_remembered_and_told():
    run = collected(Ring(hidden=True), 800)
    memory = run.memory(800)
    assert memory.frames == 2
    assert [one.frames for one in memory.gains] == [2, 4]
    # By what is seen now two ways are open to both agents, ln 4 a step; after the first step none is.
    assert 0.8 < memory.gains[0].nats < np.log(4) * 7 / 8 + 3 * memory.gains[0].error
    (warning,) = run.memory_warnings(0, 800)
    assert (
        f"of the last 2 steps: remembering them predicts the next step better by {memory.gains[0].nats:.2g}"
        in warning
    )
    assert "What is still hidden is not measured" in warning
    assert run.spec(800) == with_frames(run.env.spec, 2)
    assert run.spec(0) == run.env.spec  # before there are data


def test_a_state_that_is_markov_remembers_nothing():
    run = collected(Ring(hidden=False), 800)
    assert run.memory(800).frames == 1
    assert all(one.nats < 0.05 for one in run.memory(800).gains)
    assert run.memory_warnings(0, 800) == ()
    assert run.spec(800) == run.env.spec


def test_a_reward_for_what_was_seen_before_is_found():
    """A light seen at step t decides the reward at step t + 1; the next light is pure chance."""
    run = collected(Echo(), 400)
    assert run.memory(400).frames == 2
    # The reward is earned one time in four: H(1/4) = 0.56 nats, of which the answers tell some.
    assert 0.15 < run.memory(400).gains[0].nats < 0.56


def test_gains_are_means_over_steps_with_errors_over_episodes():
    """Two episodes of 2 steps gain 1 and 3 nats in all: 1 a step, with an error of half of the gap."""
    episode = np.array([0, 0, 1, 1])
    base = Losses(np.array([[1.0, 1.0, 2.0, 2.0]]).T, episode)
    other = Losses(np.array([[0.0, 1.0, 0.0, 1.0]]).T, episode)
    nats, error = gain([base], [other])
    assert nats == (1.0 + 3.0) / 4
    # Off by -1 and 1 from 2 nats each: sqrt(2 * (1 + 1)) / 4.
    assert error == pytest.approx(np.sqrt(2 * 2.0) / 4)
    both = gain([base, base], [other, other])
    assert both == pytest.approx((2 * nats, np.sqrt(2) * error))


def test_one_feature_must_gain_much_beyond_noise_and_all_together_must_not_lose():
    """Forty episodes of one step: of two features one is 1 nat before, the other 2."""
    episode, ones = np.arange(40), np.ones(40)

    def losses(first, second):
        return [Losses(np.stack([first * ones, second * ones], -1), episode)]

    base = losses(1.0, 2.0)
    assert better(base, losses(0.7, 2.0))
    assert not better(base, losses(0.8, 1.6))  # a fifth of each: another fit might do that
    assert not better(base, losses(0.7, 2.4))
    chance = np.where(episode % 2, 3.0, -2.3)  # 0.35 on average, with an error of 0.42
    assert not better(base, losses(1.0 - chance, 2.0))


def test_it_is_chosen_at_the_first_fit_and_whenever_the_samples_have_doubled():
    asked = []

    def choose(samples):
        asked.append(samples)
        return Memory(len(asked))

    kept, fits = Memories(), [100, 150, 200, 350, 400, 500]
    found = [kept.at(fits[: count + 1], choose).frames for count in range(len(fits))]
    assert (found, asked) == ([1, 1, 2, 2, 3, 3], [100, 200, 400])
    assert kept.at([], choose) == Memory()


def test_the_longest_memory_says_that_more_may_be_hidden():
    longest = Memory(4, (Gain(2, 0.5, 0.01), Gain(4, 0.75, 0.02)))
    assert longest.warnings()[0].endswith("4 steps are better than 2 by 0.25 nats, so it may be much.")
    assert Memory(2, longest.gains).warnings()[0].endswith("What is still hidden is not measured.")
    assert Memory(1, longest.gains).warnings() == Memory(2).warnings() == ()


def test_no_memory_is_longer_than_an_episode_or_wider_than_is_of_use():
    assert lengths(Ring(hidden=True).spec) == (1, 2, 4)
    assert lengths(Ring(hidden=True, horizon=3).spec) == (1, 2)
    assert lengths(replace(WORLD.spec, horizon=9, state=(Continuous("picture", 400),))) == (1, 2)


def test_a_described_state_is_stacked_in_described_columns():
    """The light is a number to the environment and a class to the model; agent b's repeats agent a's."""
    env = Echo()
    light = Row(2, (Part("light", (0,), ((0.0,), (1.0,))), Part("again", (1,), repeats=(0,))))
    view = Described(Stacked(2), replace(Description.of(env.spec), state=light))
    (spec,) = view.model_specs(env.spec)
    assert [feature.name for feature in spec.state] == [
        "light",
        "1 ago: light",
        "1 ago: a action",
        "1 ago: b action",
    ]
    assert view.spec(env.spec).agents == env.spec.agents
    played = play(jax.random.key(0), env, RandomPolicy())
    (viewed,), memory = view.episodes(env.spec, played), view.start(env.spec)
    taken = np.concatenate([np.full((1, 2), NO_ACTION), played.actions])
    for t in range(9):
        shown = env.reset(0)._replace(
            state=jnp.asarray(played.state[t]), previous_actions=jnp.asarray(taken[t])
        )
        memory, seen = view.timestep(env.spec, memory, shown)
        np.testing.assert_array_equal(seen.state, viewed.state[t])
        assert seen.state.shape == (1 + 1 + 2 * 2,)


def test_which_environments_have_no_state_of_their_own():
    assert has_joint_state(toy())
    assert not has_joint_state(toy(Central, state="state"))
    assert not has_joint_state(WORLD)
    assert begin(toy(), samples=30, first_chunk=30, memory=2).spec(0).frames == 2


def test_critics_see_what_is_remembered():
    run = begin(Echo(), memory=2, team=MAPPO(hidden=8, critic_hidden=8))
    critic = run.init().team.learner.online.critic
    # Two timesteps of two lights, the actions of two agents, and the clock.
    assert critic.layers[0].weight.shape == (1, 2 * 2 + 2 * 2 + 1, 8)


def test_what_is_set_by_hand_is_not_compared():
    run = begin(Ring(hidden=True), memory=4)
    run.check()
    assert run.spec(0) == with_frames(run.env.spec, 4)
    assert run.memories.found == {}
    assert run.memory_warnings(0, 400) == ()
    assert MarcoConfig.preset("paper", WORLD.spec).memory == 1
    assert MarcoConfig.preset("default", WORLD.spec).memory == 0


@pytest.mark.parametrize(
    ("env", "changes", "words"),
    [
        (WORLD, {"memory": 2}, "memory=2 is for a centralised model .* In switch, .*leave it out"),
        (Ring(True), {"memory": 2, "view": "joint-observation"}, "with the view joint-observation, leave"),
        (
            Ring(True),
            {"memory": 9},
            "memory=9 is more than an episode of ring has steps: give 8 or less, or 0",
        ),
    ],
)
def test_a_memory_that_cannot_be_is_refused(env, changes, words):
    with pytest.raises(ValueError, match=words):
        begin(env, **changes).check()


def test_a_negative_memory_is_refused():
    with pytest.raises(ValueError, match="memory must not be negative, got -1"):
        settings(memory=-1)


@pytest.mark.parametrize(
    "text",
    ['{"format": 1, "after": {"300": {"frames": 0, "gains": []}}}', '{"format": 2, "after": {}}', "{"],
)
def test_a_damaged_file_is_refused_with_the_cure(tmp_path, text):
    (tmp_path / "memory.json").write_text(text)
    with pytest.raises(ValueError, match=r"memory.json .*Delete it and the checkpoint beside it"):
        begin(Ring(True), tmp_path).memory(300)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    run = begin(Echo(), folder)
    run.check()
    events = list(run.run())
    return folder, run, events


def test_a_run_collects_trains_and_warns_with_a_memory(finished):
    folder, run, events = finished
    _, state = events[-1]
    kept = json.loads((folder / "memory.json").read_text())
    assert list(kept["after"]) == ["300"]
    assert kept["after"]["300"]["frames"] == 2
    assert state.model.spec == with_frames(run.env.spec, 2)
    ended = [event for event, _ in events if event.over]
    assert [len(event.warnings) > 0 for event in ended if event.phase == "collect"] == [True, True]
    assert any("of the last 2 steps" in line for line in state.warnings((3,), ended))


def test_a_run_that_is_resumed_remembers_the_same_and_ends_the_same(finished, tmp_path):
    folder, _, events = finished
    for event, _ in begin(Echo(), tmp_path).run():
        if event.over and event.phase == "explore":
            break
    *_, (_, state) = begin(Echo(), tmp_path).run()
    assert (tmp_path / "memory.json").read_text() == (folder / "memory.json").read_text()
    same = jax.tree.map(np.array_equal, state, events[-1][1])
    assert all(jax.tree.leaves(same))


def test_the_team_sees_no_state_and_is_saved_loaded_and_played(finished, tmp_path):
    _, run, events = finished
    team = events[-1][1].policy(run.config, 0)
    team.save(tmp_path / "team.npz")
    loaded = marco.load(tmp_path / "team.npz")
    played = play(jax.random.key(0), run.env, team)
    for seen, taken in zip(np.asarray(played.observation)[:-1], played.actions, strict=True):
        assert list(loaded.act(seen)) == taken.tolist()
