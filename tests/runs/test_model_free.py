import json
import os
import subprocess
import sys
from typing import get_args

import jax
import numpy as np
import pytest

from marco.environments.adapters.pettingzoo import PettingZooWorld
from marco.environments.reference import Reference
from marco.environments.switch import Switch
from marco.environments.registry import bridge
from marco.evaluation import exact_value
from marco.runs.run import MarcoRun
from marco.runs.model_free import ModelFree
from marco.learners.presets import LearnerName, default_recipe, make_learner
from marco.learners.seeds import begin_seeds, bytes_per_seed, check_memory, seed_keys, train_seeds
from marco.learners.mappo import MAPPO
from marco.learners.q_learning import QLearner
from marco.learners.training import begin, train, train_best

TINY = QLearner("vdn", hidden=8, batch_size=4, buffer_size=16)


def test_the_budget_is_never_exceeded_and_all_but_one_update_is_spent():
    env = Switch()
    runs = list(ModelFree(env, TINY, (0, 1), samples=200, evaluate_every=70).run())
    evaluations = [evaluation for evaluation, _ in runs]
    assert len(evaluations) == 3
    for evaluation, target in zip(evaluations, (70, 140, 200), strict=True):
        assert target - 6 < max(evaluation.samples) <= target
    assert evaluations[-1].exact
    assert evaluations[-1].test_samples == 0
    assert evaluations[-1].returns == [exact_value(env, policy) for policy in runs[-1][1]]


def test_seeds_trained_together_are_the_seeds_trained_alone():
    env, keys = Switch(), seed_keys((3, 8))
    together, _ = train_seeds(keys, env, TINY, begin_seeds(keys, TINY, env.spec), 15)
    alone, _ = train(keys[1], env, TINY, begin(keys[1], TINY, env.spec), 15)
    assert int(together.samples[1]) == int(alone.samples)
    for many, one in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(many[1], one, atol=1e-5)


def test_a_world_that_cannot_be_enumerated_is_sampled_and_counted():
    runs = ModelFree(
        Reference(horizon=5), MAPPO(hidden=8, episodes_per_update=4), (0,), 40, 40, test_episodes=7
    )
    evaluation, _ = list(runs.run())[-1]
    assert (evaluation.exact, evaluation.test_samples, evaluation.samples) == (False, 7 * 5, [40])


def test_a_pettingzoo_world_is_trained_in_by_the_same_learner():
    from mpe2 import simple_spread_v3

    world = PettingZooWorld(simple_spread_v3.parallel_env, max_cycles=4, N=2)
    learner = QLearner("qmix", hidden=8, batch_size=2, buffer_size=8, episodes_per_update=2)
    evaluation, _ = list(ModelFree(world, learner, (5,), 24, 24, test_episodes=2).run())[-1]
    assert (evaluation.samples, evaluation.updates, evaluation.test_samples) == ([24], 3, 8)
    assert evaluation.loss[0] > 0


def test_several_seeds_of_a_host_world_are_refused_with_the_cure(tmp_path):
    """By either method; the command itself starts a process for each."""
    from mpe2 import simple_spread_v3

    world = PettingZooWorld(simple_spread_v3.parallel_env, max_cycles=4, N=2)
    refused = r"is no JAX world and runs one seed at a time, got seeds \[0, 1\]: start one process per seed"
    with pytest.raises(ValueError, match=refused):
        ModelFree(world, TINY, (0, 1), 100, 50)
    run = MarcoRun(
        world="mpe2.simple_spread_v3:parallel_env",
        world_settings={},
        preset="default",
        learner=None,
        samples=100,
        changes={},
        seeds=(0, 1),
        test_episodes=2,
        out=tmp_path / "run",
    )
    with pytest.raises(ValueError, match=refused):
        run.create()
    assert not run.out.exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"samples": 5},
            r"samples=5 is less than one update may take \(1 episodes of 6 steps\): give at least 6",
        ),
        ({"evaluate_every": 0}, "evaluate_every must be at least 1, got 0"),
        ({"test_episodes": 1}, "test_episodes must be at least 2, got 1"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_compiled(change, message):
    settings = {"samples": 100, "evaluate_every": 50, "test_episodes": 10} | change
    with pytest.raises(ValueError, match=message):
        ModelFree(Switch(), TINY, (0,), **settings)


def test_seeds_must_differ():
    with pytest.raises(ValueError, match=r"seeds must be different numbers from 0 on, got \[1, 1\]"):
        seed_keys((1, 1))


def test_memory_is_estimated_and_too_much_refused_with_what_fits():
    spec = Reference().spec
    learner = QLearner("qmix")
    needed = bytes_per_seed(learner, spec)
    # 5,000 episodes of 26 moments: 2 x 21 observations and 40 of state in 4 bytes, 2 x 50 masks in 1.
    replay = 5000 * (26 * (4 * (42 + 40) + 100) + 25 * (4 * 2 + 4 + 3))
    assert replay < needed < 1.5 * replay
    check_memory(learner, spec, 3, available=3 * needed)
    with pytest.raises(ValueError, match=r"4 seeds need about .* GiB are there: use at most 3 seeds"):
        check_memory(learner, spec, 4, available=3 * needed + 1)


def test_the_best_of_several_is_chosen_by_its_value_in_the_world():
    env = Switch(horizon=3)
    best = train_best(jax.random.key(0), env, TINY, 10, restarts=3, episodes=512)
    assert best.values.shape == (3,)
    value = exact_value(env, TINY.greedy(best.state.learner))
    assert value == pytest.approx(float(best.values.max()), abs=4 / np.sqrt(512))
    assert int(best.samples) > 3 * (10 + 512)


def test_presets_choose_as_documented():
    assert make_learner("paper", Switch().spec) == QLearner("iql")
    assert make_learner("paper", bridge().spec) == QLearner("vdn")
    assert make_learner("paper", Reference().spec) == QLearner("qmix")
    assert make_learner("paper", Switch().spec, "vdn") == QLearner("vdn")
    assert default_recipe(Switch().spec).learner.mixer == "qmix"
    assert default_recipe(Switch().spec).restarts == 4
    assert isinstance(default_recipe(Reference().spec).learner, MAPPO)
    for name in get_args(LearnerName):
        assert make_learner("frugal", Switch().spec, name).episodes_per_update >= 1


def test_the_paper_preset_is_the_papers_numbers():
    learner = make_learner("paper", Switch().spec)
    assert (learner.hidden, learner.gamma, learner.replay, learner.batch) == (64, 0.99, 5000, 32)
    assert (learner.epsilon_start, learner.epsilon_end, learner.epsilon_anneal_steps) == (1.0, 0.05, 100_000)
    assert (learner.optimiser, learner.learning_rate, learner.target_update_interval) == ("rmsprop", 1e-4, 200)
    assert (learner.episodes_per_update, learner.gradient_steps) == (1, 1)
    assert (learner.double, learner.trace, learner.shared, learner.factored) == (True, 0.0, True, False)


@pytest.mark.parametrize(
    ("preset", "name", "message"),
    [
        ("papers", None, "unknown preset 'papers': there are default, frugal, paper"),
        ("paper", "sac", "unknown learner 'sac': there are iql, vdn, qmix, mappo"),
        ("paper", "mappo", "the paper gives no numbers for mappo"),
    ],
)
def test_unknown_presets_and_learners_are_refused(preset, name, message, monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)
    with pytest.raises(ValueError, match=message):
        make_learner(preset, Switch().spec, name)


def test_seeds_are_spread_over_devices():
    """Four host devices: each holds one of four seeds, and each seed learns what it learns on one device."""
    code = """
import json, jax, numpy as np
from marco.environments.switch import Switch
from marco.learners.seeds import begin_seeds, seed_keys, train_seeds
from marco.learners.q_learning import QLearner
learner, env = QLearner("vdn", hidden=8, batch_size=4, buffer_size=16), Switch()
keys = seed_keys((0, 1, 2, 3))
state, _ = train_seeds(keys, env, learner, begin_seeds(keys, learner, env.spec), 8)
weights = state.learner.online.team.network.head.weight
print(json.dumps([len(weights.sharding.device_set), np.asarray(weights).ravel().tolist(),
                  np.asarray(state.samples).tolist()]))
"""
    found = {}
    for count in (1, 4):
        flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={count}", "JAX_PLATFORMS": "cpu"}
        ran = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | flags
        )
        assert ran.returncode == 0, ran.stderr
        found[count] = json.loads(ran.stdout)
    assert (found[1][0], found[4][0]) == (1, 4)
    assert found[1][2] == found[4][2]
    np.testing.assert_allclose(found[1][1], found[4][1], atol=1e-5)
