"""Algorithm 1 on a tiny riddle: its order, its budget, and going on after a stop at any phase."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marco.dataset import Dataset
from marco.experiments.journal import RunJournal, alone
from marco.exploration import ExplorationEnvironment, explore_reward
from marco.model.rivals import uncertainty_of
from tiny_run import SEEDS, WORLD, begin, settings


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run in one piece: its folder, its events and what it learned."""
    folder = tmp_path_factory.mktemp("whole")
    events = list(begin(folder, settings()).run())
    return folder, [event for event, _ in events], events[-1][1]


def test_the_lines_of_algorithm_1_come_in_their_order(whole):
    _, events, _ = whole
    one = ["collect", "fit", "team", "explore"]
    assert [event.phase for event in events] == [*one, *one, "collect", "fit", "finish", "done"]
    assert [event.samples for event in events] == [20] * 4 + [36] * 4 + [50] * 4


def test_the_budget_is_used_to_the_last_step_and_not_exceeded_by_one(whole):
    folder, _, _ = whole
    dataset = Dataset(folder / "data", WORLD.spec, len(SEEDS))
    np.testing.assert_array_equal(dataset.samples, [50, 50])
    for seed in range(len(SEEDS)):
        episodes = dataset.episodes(seed)
        cut = ~(episodes.terminated | episodes.truncated).any(0)
        # At most one episode is cut off at the end of each of the three chunks.
        assert cut.sum() <= 3
        assert (np.diff(episodes.mask.astype(int), axis=0) <= 0).all()
        assert dataset.episodes(seed, samples=20).mask.sum() == 20


def test_seeds_collect_different_episodes_and_learn_different_teams(whole):
    folder, _, state = whole
    dataset = Dataset(folder / "data", WORLD.spec, len(SEEDS))
    assert not np.array_equal(dataset.episodes(0).actions[:, :8], dataset.episodes(1).actions[:, :8])
    first, second = (jax.tree.map(lambda leaf, i=i: leaf[i], state.team.learner.online) for i in (0, 1))
    assert not np.array_equal(first.team.network.head.weight, second.team.network.head.weight)


@pytest.mark.parametrize("stop", [1, 2, 3, 4, 6, 9, 10, 11])
def test_a_run_stopped_after_any_phase_ends_with_the_same_team_bit_for_bit(whole, tmp_path, stop):
    _, events, state = whole
    run = begin(tmp_path, settings()).run()
    for _ in range(stop):
        next(run)
    run.close()
    rest = list(begin(tmp_path, settings()).run())
    # Phases are done once; `done` is said again.
    assert [event.phase for event, _ in rest] == [event.phase for event in events[stop:]]
    for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(rest[-1][1]), strict=True):
        np.testing.assert_array_equal(one, other)


def test_collection_goes_on_where_a_crash_left_it(whole, tmp_path):
    folder, events, state = whole
    (tmp_path / "data").mkdir()
    for name in ("chunk-000000.npz", "chunk-000001.npz"):
        (tmp_path / "data" / name).write_bytes((folder / "data" / name).read_bytes())
    (tmp_path / "data" / ".chunk-000002.npz.tmp").write_bytes(b"torn")
    rest = list(begin(tmp_path, settings()).run())
    assert [event.phase for event, _ in rest] == [event.phase for event in events]
    for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(rest[-1][1]), strict=True):
        np.testing.assert_array_equal(one, other)


def test_without_the_exploration_policy_chance_collects(tmp_path, whole):
    events = list(begin(tmp_path, settings(collector="random")).run())
    assert not any(event.numbers for event, _ in events if event.phase == "explore")
    theirs = Dataset(whole[0] / "data", WORLD.spec, len(SEEDS)).episodes(0, 20)
    ours = Dataset(tmp_path / "data", WORLD.spec, len(SEEDS)).episodes(0, 20)
    np.testing.assert_array_equal(ours.actions, theirs.actions)  # the first chunk is random in both


def test_the_exploration_world_pays_reward_plus_lambda_r_tilde_and_shows_the_state(whole):
    _, _, state = whole
    model = jax.tree.map(lambda leaf: leaf[0], state.model)
    env = ExplorationEnvironment(model, jnp.float32(2.0))
    key = jax.random.key(0)
    moment = env.initial(key)
    actions = jnp.argmax(env.available(moment), -1).astype(jnp.int32)
    paid, plain = env.transition(key, moment, actions), model.transition(key, moment, actions)
    r_tilde = uncertainty_of(model, "variance", moment, actions, plain.world)
    assert r_tilde > 0.0
    np.testing.assert_allclose(paid.reward, plain.reward + 2.0 * r_tilde, rtol=1e-6)
    np.testing.assert_array_equal(env.observe(moment), np.tile(env.central(moment), (2, 1)))


def test_equation_1_second_line_by_hand():
    assert explore_reward(jnp.float32(0.5), jnp.float32(0.25), jnp.float32(2.0)) == 1.0


def test_a_damaged_or_foreign_file_is_named(whole, tmp_path):
    folder, _, _ = whole
    (tmp_path / "data").mkdir()
    chunk = (folder / "data" / "chunk-000000.npz").read_bytes()
    (tmp_path / "data" / "chunk-000000.npz").write_bytes(chunk[: len(chunk) // 2])
    with pytest.raises(ValueError, match=r"chunk-000000\.npz is damaged"):
        Dataset(tmp_path / "data", WORLD.spec, len(SEEDS))
    (tmp_path / "data" / "chunk-000000.npz").write_bytes(chunk)
    with pytest.raises(ValueError, match=r"2 seeds of 3 steps .* this run has 1, 3"):
        Dataset(tmp_path / "data", WORLD.spec, 1)
    (tmp_path / "data" / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"notes\.txt does not belong there"):
        Dataset(tmp_path / "data", WORLD.spec, len(SEEDS))
    (tmp_path / "checkpoint.npz").write_bytes((folder / "checkpoint.npz").read_bytes()[:1000])
    with pytest.raises(ValueError, match=r"checkpoint\.npz is damaged.* Delete .* and resume"):
        RunJournal(tmp_path)


class Spy:
    """The tiny riddle as a host world that writes down all that is asked of it."""

    def __init__(self):
        self.spec, self.asked = WORLD.spec, []

    def reset(self, seed):
        self.asked.append("reset")
        self.state, shown = WORLD.reset(jax.random.key(seed))
        return shown

    def step(self, actions):
        self.asked.append("step")
        key = jax.random.fold_in(jax.random.key(7), len(self.asked))
        self.state, shown = WORLD.step(key, self.state, jnp.asarray(actions))
        return shown


def test_nothing_true_is_used_without_being_counted(tmp_path):
    """A host world gives away its starts, masks and rewards by reset and step alone: every one is in D."""
    spy = Spy()
    events = list(begin(tmp_path, settings(), spy, seeds=(3,)).run())
    dataset = Dataset(tmp_path / "data", WORLD.spec, 1)
    assert [event.phase for event, _ in events][-2:] == ["finish", "done"]
    assert spy.asked.count("step") == 50 == dataset.samples[0]
    assert spy.asked.count("reset") == dataset.episodes(0).mask.shape[1]


@pytest.mark.skipif("MARCO_CRASH" not in os.environ, reason="takes minutes: make crash")
def test_a_run_killed_at_random_moments_loses_no_sample_and_ends_with_the_same_team(whole, tmp_path):
    """SIGKILL, twenty times, at moments drawn uniformly over the length of a run."""
    _, _, state = whole
    program = [sys.executable, str(Path(__file__).with_name("tiny_run.py"))]
    for name in ("first", "timed"):  # the first may compile
        start = time.perf_counter()
        subprocess.run([*program, str(tmp_path / name)], check=True, capture_output=True)
        length = time.perf_counter() - start
    luck, kills, folder = random.Random(0), 0, 0
    while kills < 20:
        run, reported = tmp_path / str(folder), 0
        while kills < 20:
            process = subprocess.Popen([*program, str(run)], stdout=subprocess.PIPE, text=True)
            try:
                told, _ = process.communicate(timeout=luck.uniform(0.0, length))
            except subprocess.TimeoutExpired:
                process.kill()
                told, _ = process.communicate()
                kills += 1
            reported = max([reported, *(int(line.split()[1]) for line in told.splitlines() if " " in line)])
            if run.exists() and (run / "data").exists():
                assert Dataset(run / "data", WORLD.spec, len(SEEDS)).samples.min() >= reported
            if "done" in told:
                break
        folder += 1
    for done in range(folder):
        (*_, (_, last)) = begin(tmp_path / str(done), settings()).run()
        for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(last), strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_second_process_is_refused(tmp_path):
    with alone(tmp_path), pytest.raises(ValueError, match="in use by another process"), alone(tmp_path):
        pass
    with alone(tmp_path):
        pass


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"first": 60}, "first=60 must be from 1 to the budget of 50"),
        ({"chunk": 0}, "chunk must be at least 1, got 0"),
        ({"lam": -1.0}, "lam must not be negative, got -1.0"),
        ({"epsilon": 1.5}, "epsilon must be between 0 and 1, got 1.5"),
        ({"collector": "team"}, "give team_steps"),
    ],
)
def test_bad_settings_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        settings(**changes)
