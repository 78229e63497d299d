"""Algorithm 1 on a tiny riddle: its order, its budget, and going on after a stop at any phase."""

import hashlib
import json
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers.tiny_run import KNOWN, QUICK, SEEDS, TINY, WORLD, begin, phases, settings
from marco.algorithm.collect import observed_steps, uncertainty_of_seeds
from marco.algorithm.demonstrations import with_demonstrations
from marco.algorithm.events import Event
from marco.algorithm.exploration import ExplorationEnvironment, explore_reward
from marco.algorithm.loop import Marco
from marco.algorithm.state import MarcoState
from marco.data.dataset import Dataset
from marco.evaluation import exact_value
from marco.learners.restarts import PATIENCE, SEGMENTS
from marco.learners.training import init, train
from marco.model.uncertainty import uncertainty
from marco.model.views import Centralised
from marco.runs.checkpoint import RunJournal, alone
from marco.tabular.library import load


class Whole(NamedTuple):
    """A run in one piece."""

    folder: Path
    events: list[Event]
    """The ends of its phases."""
    learned: MarcoState
    shown: list[Any]
    """The best team so far at each piece of the last training, and at its end."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run in one piece: its folder, its events and what it learned."""
    folder = tmp_path_factory.mktemp("whole")
    told = list(begin(folder, settings(), known=KNOWN).run())
    shown = [state.best for event, state in told if event.phase == "final" and event.metrics]
    return Whole(folder, [event for event, _ in told if event.over], told[-1][1], shown)


GOLDEN_EPISODES = "7c50726f0cd10b1d74d9665799180d57a4b54faa1ac0b7976508c055a64b92c7"
"""A hash of all real episodes, as in version 0.1 (commit 419ec42)."""
GOLDEN_TEAMS = {
    0: [10.5354, 1.503, 37.8535, 3.4588, 35.6421, 4.1872, 4.0184, 0.5413],
    1: [12.579, 1.6652, 33.5864, 3.904, 33.1246, 4.6295, 5.4157, 0.8278],
}
"""The sum of |weights| by layer."""
GOLDEN_DYNAMICS = [298.0505, 13.8095, 2.3789, 0.3767, 4.7958, 0.3767]
"""The sums of |weights| of the last model's dynamics."""
GOLDEN_EXPLORER = [0.16481, 0.02265, 0.42723, 0.07116, 0.44026, 0.07103, 0.09691, 0.01341]
"""How far the weights of the exploration policy moved: they tell of every imagined episode.

A change anywhere in Algorithm 1 shows here. Whoever changes it on purpose writes new values, and says so in
the changelog.
"""


def test_the_same_seeds_give_the_same_real_episodes_models_and_teams(whole):
    dataset = Dataset(whole.folder / "data", WORLD.spec, len(SEEDS))
    found = hashlib.sha256()
    for seed in range(len(SEEDS)):
        for leaf in dataset.episodes(seed):
            found.update(np.ascontiguousarray(leaf).tobytes())
    assert found.hexdigest() == GOLDEN_EPISODES
    for seed, sums in GOLDEN_TEAMS.items():
        weights = jax.tree.leaves(whole.learned.policy(settings(), seed))
        # Not bit for bit: other processors round otherwise.
        assert [float(np.abs(leaf).sum()) for leaf in weights] == pytest.approx(sums, rel=1e-3)
    dynamics = jax.tree.leaves(whole.learned.model.model.dynamics.members)
    assert [float(np.abs(leaf).sum()) for leaf in dynamics] == pytest.approx(GOLDEN_DYNAMICS, rel=1e-3)
    before = begin(whole.folder, settings(), known=KNOWN).init().explorer.learner.online
    pairs = zip(jax.tree.leaves(whole.learned.explorer.learner.online), jax.tree.leaves(before), strict=True)
    moved = [float(np.abs(after - first).sum()) for after, first in pairs]
    assert moved == pytest.approx(GOLDEN_EXPLORER, rel=1e-2)


def test_the_lines_of_algorithm_1_come_in_their_order(whole):
    events = whole.events
    one = ["collect", "fit", "team", "explore"]
    assert [event.phase for event in events] == [*one, *one, "collect", "fit", "final", "done"]
    assert [event.samples for event in events] == [20] * 4 + [36] * 4 + [50] * 4


def test_the_best_team_so_far_is_shown_while_the_last_training_goes_on(whole):
    assert SEGMENTS // 2 + PATIENCE < len(whole.shown) <= SEGMENTS + 1
    for shown, kept in zip(whole.shown[-2], whole.learned.best, strict=True):
        jax.tree.map(np.testing.assert_array_equal, shown.policy, kept.policy)


def test_the_budget_is_used_to_the_last_step_and_not_exceeded_by_one(whole):
    folder = whole.folder
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
    folder, state = whole.folder, whole.learned
    dataset = Dataset(folder / "data", WORLD.spec, len(SEEDS))
    assert not np.array_equal(dataset.episodes(0).actions[:, :8], dataset.episodes(1).actions[:, :8])
    first, second = (state.policy(settings(), index) for index in (0, 1))
    assert not np.array_equal(first.network.network.head.weight, second.network.network.head.weight)


@pytest.mark.parametrize("stop", [1, 2, 3, 4, 6, 9, 10, 11])
def test_a_run_stopped_after_any_phase_ends_with_the_same_team_bit_for_bit(whole, tmp_path, stop):
    events, state = whole.events, whole.learned
    run = phases(begin(tmp_path, settings(), known=KNOWN))
    for _ in range(stop):
        next(run)
    run.close()
    rest = list(phases(begin(tmp_path, settings(), known=KNOWN)))
    # Phases are done once; what was collected is told again until it has been learned from.
    told = stop - 1 if events[stop - 1].phase == "collect" else stop
    assert [event for event, _ in rest] == events[told:]
    assert _metrics(tmp_path) == _metrics(whole.folder)
    for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(rest[-1][1]), strict=True):
        np.testing.assert_array_equal(one, other)


def _metrics(folder):
    """A run's metrics, without the time it took."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert all(row.pop("seconds") >= 0.0 for row in rows)
    return rows


def test_what_was_collected_is_told_once_with_its_own_return_and_the_uncertainty_before_it(whole):
    folder = whole.folder
    rows = [row for row in _metrics(folder) if row["phase"] == "collect"]
    assert [row["samples"] for row in rows] == [20, 36, 50]
    assert "uncertainty" not in rows[0]["metrics"]
    dataset = Dataset(folder / "data", WORLD.spec, len(SEEDS))
    for row, since in zip(rows, (0, 20, 36), strict=True):
        for seed, told in enumerate(row["metrics"]["return"]):
            chunk = dataset.episodes(seed, row["samples"], since)
            assert chunk.mask.sum() == row["samples"] - since
            whole_ones = (chunk.terminated | chunk.truncated).any(0)
            assert told == pytest.approx(chunk.reward.sum(0)[whole_ones].mean())


def test_the_uncertainty_of_what_was_collected_is_that_of_its_steps_one_by_one(whole):
    folder, state = whole.folder, whole.learned
    episodes = Dataset(folder / "data", WORLD.spec, len(SEEDS)).episodes(0, 20)
    model = jax.tree.map(lambda leaf: leaf[0], state.model)
    r_tilde = jax.jit(lambda *step: uncertainty(model.model, "variance", *step))
    each = []
    for time, number in np.argwhere(episodes.mask):
        now, then = (time, number), (time + 1, number)
        step = (episodes.state[now], episodes.actions[now], episodes.state[then], episodes.observation[then])
        each.append(float(r_tilde(*step)))
    padded = observed_steps(Centralised(), WORLD.spec, episodes, capacity=40)
    worlds, steps = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], (model, padded))
    assert len(each) == 20
    assert np.mean(each) > 0.0
    assert uncertainty_of_seeds(worlds, "variance", steps)[0] == pytest.approx(np.mean(each), rel=1e-5)


def test_every_training_in_the_model_retraces_ever_less_of_real_episodes(tmp_path, monkeypatch):
    shares = []

    def spied(envs, real, share):
        shares.append(share)
        return with_demonstrations(envs, real, share)

    monkeypatch.setattr("marco.algorithm.loop.with_demonstrations", spied)
    list(phases(begin(tmp_path, settings(demonstrations=0.5), known=KNOWN)))
    one = [0.5, 0.4, 0.3, 0.2, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert shares[:20] == pytest.approx(one * 2)  # the explorer's two trainings
    assert shares[20:] == pytest.approx(one[: len(shares) - 20])  # the team's, which may end early
    assert len(shares) >= 28


def test_learning_that_ran_off_is_told_by_name_and_nothing_is_lost(tmp_path, monkeypatch):
    def run_off(self, phase, state):
        yield Event("fit", phase.iteration, phase.samples, {"reward": [0.5, float("nan")]}), state

    monkeypatch.setattr(Marco, "fit", run_off)
    with pytest.raises(ValueError, match=f"fit: the reward of seed {SEEDS[1]} is nan after 20 samples"):
        list(begin(tmp_path, settings(), known=KNOWN).run())
    assert Dataset(tmp_path / "data", WORLD.spec, len(SEEDS)).samples.tolist() == [20, 20]


def test_collection_goes_on_where_a_crash_left_it(whole, tmp_path):
    folder, events, state, _ = whole
    (tmp_path / "data").mkdir()
    for name in ("chunk-000000.npz", "chunk-000001.npz"):
        (tmp_path / "data" / name).write_bytes((folder / "data" / name).read_bytes())
    (tmp_path / "data" / ".chunk-000002.npz.tmp").write_bytes(b"torn")
    rest = list(phases(begin(tmp_path, settings(), known=KNOWN)))
    assert [event for event, _ in rest] == events
    for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(rest[-1][1]), strict=True):
        np.testing.assert_array_equal(one, other)


def test_without_the_exploration_policy_chance_collects(tmp_path, whole):
    events = list(phases(begin(tmp_path, settings(collector="random"), known=KNOWN)))
    assert not any(event.metrics for event, _ in events if event.phase == "explore")
    theirs = Dataset(whole.folder / "data", WORLD.spec, len(SEEDS)).episodes(0, 20)
    ours = Dataset(tmp_path / "data", WORLD.spec, len(SEEDS)).episodes(0, 20)
    np.testing.assert_array_equal(ours.actions, theirs.actions)  # the first chunk is random in both


@pytest.mark.parametrize(
    ("changes", "phase", "number"),
    [
        ({"collector": "team", "team_steps": 8, "candidates": ()}, "team", "imagined_return"),
        (
            {"lam": 0.0, "bonus": "standard-deviation", "resample_member": "episode"},
            "explore",
            "exploration_return",
        ),
        ({"bonus": "mutual-information", "warm_explorer": False}, "collect", "uncertainty"),
    ],
)
def test_the_variants_run_to_their_end(tmp_path, changes, phase, number):
    """No exploration policy, lambda 0, every bonus, known components, members per episode, no restarts."""
    run = begin(tmp_path, replace(QUICK, **changes), seeds=(3,), known=KNOWN)
    events = [event for event, _ in phases(run)]
    assert [event.phase for event in events][-2:] == ["final", "done"]
    assert Dataset(tmp_path / "data", WORLD.spec, 1).samples.tolist() == [50]
    told = [event.metrics[number] for event in events if event.phase == phase and number in event.metrics]
    assert len(told) == 2
    assert np.isfinite(told).all()
    assert ("exploration_return" in events[3].metrics) == (changes.get("collector") != "team")


@pytest.mark.parametrize("kind", ["joint-observation", "decentralised"])
def test_other_views_explore_and_collect(tmp_path, kind):
    run = phases(begin(tmp_path, replace(QUICK, view=kind), seeds=(3,)))
    events = [event for event, _ in islice(run, 5)]
    assert [event.phase for event in events] == ["collect", "fit", "team", "explore", "collect"]
    assert events[-1].metrics["uncertainty"][0] > 0.0
    assert Dataset(tmp_path / "data", WORLD.spec, 1).samples.tolist() == [36]


def test_a_problem_given_by_tables_is_learned_like_any_world(tmp_path):
    world = load("recycling").environment(horizon=3)
    quick = replace(QUICK, samples=20)
    (*_, (event, state)) = phases(begin(tmp_path, quick, world, seeds=(0,)))
    assert (event.phase, event.samples) == ("done", 20)
    assert np.isfinite(exact_value(world, state.policy(quick, 0)))


def test_qmix_explores_as_well(whole):
    """What it is paid hangs on the state alone, which is also what its mixer sees."""
    model = jax.tree.map(lambda leaf: leaf[0], whole.learned.model)
    env = ExplorationEnvironment(model, jnp.float32(2.0))
    explorer = replace(TINY, mixer="qmix", hidden=4, mixing_embed_dim=4)
    before = init(jax.random.key(0), explorer, env.spec)
    drawn = np.asarray(before.learner.online.mixer.first_weight.weight)  # the state before is donated
    after, metrics = train(jax.random.key(1), env, explorer, before, 3)
    assert metrics["return"] != 0.0
    assert (np.asarray(after.learner.online.mixer.first_weight.weight) != drawn).any()


def test_the_exploration_world_pays_reward_plus_lambda_r_tilde_and_shows_the_state(whole):
    state = whole.learned
    model = jax.tree.map(lambda leaf: leaf[0], state.model)
    env = ExplorationEnvironment(model, jnp.float32(2.0))
    key = jax.random.key(0)
    moment = env.initial(key)
    actions = jnp.argmax(env.available(moment), -1).astype(jnp.int32)
    paid, plain = env.transition(key, moment, actions), model.transition(key, moment, actions)
    r_tilde = model.uncertainty("variance", moment, actions, plain.world)
    assert r_tilde > 0.0
    np.testing.assert_allclose(paid.reward, plain.reward + 2.0 * r_tilde, rtol=1e-6)
    np.testing.assert_array_equal(env.observe(moment), np.tile(env.central(moment), (2, 1)))


def test_equation_1_second_line_by_hand():
    assert explore_reward(jnp.float32(0.5), jnp.float32(0.25), jnp.float32(2.0)) == 1.0


def test_a_damaged_or_foreign_file_is_named(whole, tmp_path):
    folder = whole.folder
    (tmp_path / "data").mkdir()
    chunk = (folder / "data" / "chunk-000000.npz").read_bytes()
    (tmp_path / "data" / "chunk-000000.npz").write_bytes(chunk[: len(chunk) // 2])
    with pytest.raises(ValueError, match=r"chunk-000000\.npz is damaged"):
        Dataset(tmp_path / "data", WORLD.spec, len(SEEDS))
    (tmp_path / "data" / "chunk-000000.npz").write_bytes(chunk)
    with pytest.raises(ValueError, match="holds 2 seeds, this run has 1"):
        Dataset(tmp_path / "data", WORLD.spec, 1)
    (tmp_path / "data" / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"notes\.txt does not belong there"):
        Dataset(tmp_path / "data", WORLD.spec, len(SEEDS))
    (tmp_path / "checkpoint.npz").write_bytes((folder / "checkpoint.npz").read_bytes()[:1000])
    with pytest.raises(ValueError, match=r"checkpoint\.npz is damaged.* Delete .* and resume"):
        RunJournal(tmp_path)


def test_who_only_reads_a_run_leaves_its_metrics_alone(tmp_path):
    """`marco model` may look at a run that goes on in another process: its last lines are not yet kept."""
    line = json.dumps({"step": 5, "phase": "collect"}) + "\n"
    (tmp_path / "metrics.jsonl").write_text(line)
    journal = RunJournal(tmp_path)
    assert (tmp_path / "metrics.jsonl").read_text() == line
    journal.note(1, Event("collect", 0, 20, {}))
    assert [row["step"] for row in _metrics(tmp_path)] == [1]


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
    events = list(phases(begin(tmp_path, QUICK, spy, seeds=(3,), known=KNOWN)))
    dataset = Dataset(tmp_path / "data", WORLD.spec, 1)
    assert [event.phase for event, _ in events][-2:] == ["final", "done"]
    assert spy.asked.count("step") == 50 == dataset.samples[0]
    assert spy.asked.count("reset") == dataset.episodes(0).mask.shape[1]


def test_a_model_that_learned_nothing_is_told_in_events_and_at_the_end(whole, tmp_path, monkeypatch):
    """A component no better than its floor, and members that agree on all that was collected."""
    monkeypatch.setattr("marco.model.early_stopping.LEAST_GAIN", np.inf)
    monkeypatch.setattr("marco.algorithm.loop.chunk_metrics", lambda *_: {"uncertainty": [0.0, 0.5]})
    told = [event for event, _ in phases(begin(tmp_path, settings(), known=KNOWN))]
    (of_fit,) = next(event.warnings for event in told if event.phase == "fit")
    (of_chunk,) = next(event.warnings for event in told if event.phase == "collect")
    assert of_fit.startswith("the model's dynamics (seeds 3, 4) predicts held-out steps no better than")
    assert of_chunk.startswith("the members of the model (seed 3) agree on every step")
    assert whole.learned.warnings(SEEDS, told) == (of_fit, of_chunk)
    assert [row["warnings"] for row in _metrics(tmp_path)][:2] == [[of_chunk], [of_fit]]


def test_what_an_environment_knows_of_itself_is_not_learned(tmp_path):
    spy = Spy()
    spy.known = dict(KNOWN)
    assert begin(tmp_path, QUICK, spy, seeds=(3,)).plan().components() == ((0, "dynamics"),)
    spy.known = "what else"  # an attribute of the user's own
    assert len(begin(tmp_path, QUICK, spy, seeds=(3,)).plan().components()) == 5


def test_a_second_process_is_refused(tmp_path):
    with alone(tmp_path), pytest.raises(ValueError, match="in use by another process"), alone(tmp_path):
        pass
    with alone(tmp_path):
        pass


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"first_chunk": 60}, "first_chunk=60 must be from 1 to the budget of 50"),
        ({"chunk": 0}, "chunk must be at least 1, got 0"),
        ({"lam": -1.0}, "lam must not be negative, got -1.0"),
        ({"epsilon": 1.5}, "epsilon must be between 0 and 1, got 1.5"),
        ({"demonstrations": -0.5}, "demonstrations must be between 0 and 1, got -0.5"),
        ({"collector": "team"}, "give team_steps"),
    ],
)
def test_bad_settings_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        settings(**changes)
