"""The model-free baseline, its presets, and seeds side by side."""

import json
import os
import subprocess
import sys
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marco.algorithm.model_free import ModelFree, ModelFreeConfig
from marco.environments.adapters.pettingzoo import PettingZooWorld
from marco.environments.bridge import Bridge
from marco.environments.reference import Reference
from marco.environments.switch import Switch
from marco.evaluation import exact_value
from marco.learners.mappo import MAPPO
from marco.learners.parallel import bytes_per_training, check_memory, init_all, train_all
from marco.learners.presets import LearnerName, make_learner
from marco.learners.q_learning import QLearner
from marco.learners.training import init, train

TINY = QLearner("vdn", hidden=8, batch_size=4, buffer_size=16)


def model_free(env, learner, seeds, samples, evaluate_every, test_episodes=1_000):
    return ModelFree(env, ModelFreeConfig(learner, samples, evaluate_every), seeds, test_episodes)


def test_the_budget_is_never_exceeded_and_all_but_one_update_is_spent():
    env = Switch()
    runs = list(model_free(env, TINY, (0, 1), 200, 70).run())
    events = [event for event, _ in runs]
    assert len(events) == 3
    for event, target in zip(events, (70, 140, 200), strict=True):
        assert target - 6 < max(event.metrics["samples"]) <= target
    assert events[-1].over
    assert events[-1].metrics["test_steps"] == [0, 0]
    assert events[-1].metrics["return"] == [exact_value(env, policy) for policy in runs[-1][1]]


def test_seeds_trained_together_are_the_seeds_trained_alone():
    env, keys = Switch(), jnp.stack([jax.random.key(seed) for seed in (3, 8)])
    together, _ = train_all(keys[:, None], init_all(keys[:, None], TINY, env.spec), env, TINY, 15)
    alone, _ = train(keys[1], env, TINY, init(keys[1], TINY, env.spec), 15)
    assert int(together.samples[1, 0]) == int(alone.samples)
    for many, one in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(many[1, 0], one, atol=1e-5)


def test_an_environment_that_cannot_be_enumerated_is_sampled_and_counted():
    learner = MAPPO(hidden=8, episodes_per_update=4)
    event, _ = list(model_free(Reference(horizon=5), learner, (0,), 40, 40, test_episodes=7).run())[-1]
    assert (event.metrics["test_steps"], event.metrics["samples"]) == ([7 * 5], [40])
    assert event.metrics["standard_error"][0] > 0.0


def test_a_pettingzoo_world_is_trained_in_by_the_same_learner():
    from mpe2 import simple_spread_v3

    env = PettingZooWorld(simple_spread_v3.parallel_env, max_cycles=4, N=2)
    learner = QLearner("qmix", hidden=8, batch_size=2, buffer_size=8, episodes_per_update=2)
    event, _ = list(model_free(env, learner, (5,), 24, 24, test_episodes=2).run())[-1]
    assert (event.metrics["samples"], event.metrics["test_steps"]) == ([24], [8])
    assert event.metrics["loss"][0] > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"samples": 5},
            r"samples=5 is less than one update may take \(1 episodes of 6 steps\): give at least 6",
        ),
        ({"evaluate_every": 0}, "evaluate_every must be at least 1, got 0"),
        ({"test_episodes": 1}, "test_episodes must be at least 2, got 1"),
        ({"seeds": (1, 1)}, r"seeds must be different whole numbers from 0 to 4294967295, got \[1, 1\]"),
        ({"seeds": (-1,)}, r"seeds must be different whole numbers from 0 to 4294967295, got \[-1\]"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_compiled(change, message):
    settings = {"seeds": (0,), "samples": 100, "evaluate_every": 50, "test_episodes": 10} | change
    with pytest.raises(ValueError, match=message):
        model_free(Switch(), TINY, **settings).check()


def test_memory_is_estimated_and_too_much_refused_with_what_fits():
    spec = Reference().spec
    learner = QLearner("qmix")
    needed = bytes_per_training(learner, spec)
    # 5,000 episodes of 26 timesteps: 2 x 21 observations and 40 of state in 4 bytes, 2 x 50 masks in 1.
    replay = 5000 * (26 * (4 * (42 + 40) + 100) + 25 * (4 * 2 + 4 + 3))
    assert replay < needed < 1.5 * replay
    check_memory((learner,), spec, 3, available=3 * needed)
    with pytest.raises(ValueError, match=r"4 seeds need about .* GiB are there: use at most 3 seeds"):
        check_memory((learner,), spec, 4, available=3 * needed + 1)
    with pytest.raises(ValueError, match="use at most 1 seeds"):  # restarts are alive at once
        check_memory((learner, learner), spec, 2, available=3 * needed)


def test_presets_choose_as_documented():
    bridge = Bridge(Switch(3), 3, 9).spec
    assert make_learner("paper", Switch().spec) == QLearner("iql")
    assert make_learner("paper", bridge) == QLearner("vdn")
    assert make_learner("paper", Reference().spec) == QLearner("qmix")
    assert make_learner("paper", Switch().spec, "vdn") == QLearner("vdn")
    assert make_learner("free-samples", Switch().spec).mixer == "qmix"
    assert isinstance(make_learner("free-samples", Reference().spec), MAPPO)
    for name in get_args(LearnerName):
        assert make_learner("sample-efficient", Switch().spec, name).episodes_per_update >= 1


def test_the_paper_preset_is_the_papers_numbers():
    learner = make_learner("paper", Switch().spec)
    assert (learner.hidden, learner.gamma, learner.buffer_size, learner.batch_size) == (64, 0.99, 5000, 32)
    assert (learner.epsilon_start, learner.epsilon_end, learner.epsilon_anneal_steps) == (1.0, 0.05, 100_000)
    assert (learner.optimiser, learner.learning_rate) == ("rmsprop", 1e-4)
    assert (learner.target_update_interval, learner.episodes_per_update) == (200, 1)
    assert (learner.gradient_steps, learner.td_lambda) == (1, 0.0)
    assert (learner.double, learner.share_parameters, learner.factored) == (True, True, False)


@pytest.mark.parametrize(
    ("preset", "name", "message"),
    [
        ("papers", None, "unknown preset 'papers': there are sample-efficient, paper, free-samples"),
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
from marco.learners.parallel import init_all, spread, train_all
from marco.learners.q_learning import QLearner
learner, env = QLearner("vdn", hidden=8, batch_size=4, buffer_size=16), Switch()
keys = jax.numpy.stack([jax.random.key(seed) for seed in range(4)])
found = []
for some in (keys, spread(keys)):
    some = some[:, None]
    state, _ = train_all(some, init_all(some, learner, env.spec), env, learner, 8)
    weights = state.learner.online.team.network.head.weight
    found.append([len(weights.sharding.device_set), np.asarray(weights).ravel().tolist(),
                  np.asarray(state.samples).tolist()])
print(json.dumps(found))
"""
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | flags)
    assert ran.returncode == 0, ran.stderr
    together, apart = json.loads(ran.stdout)
    assert (together[0], apart[0]) == (1, 4)
    assert together[2] == apart[2]
    np.testing.assert_allclose(together[1], apart[1], atol=1e-5)
