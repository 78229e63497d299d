"""A saved team plays by numpy alone as it does in JAX."""

import subprocess
import sys

import jax
import numpy as np
import pytest

import marco.policies.deploy
from marco.environments.reference import Reference
from marco.environments.switch import Switch
from marco.networks import TeamNetwork
from marco.policies.base import RecurrentPolicy
from marco.policies.export import load_policy
from marco.rollout import rollouts


@pytest.fixture(params=[(True, True), (True, False), (False, True)], ids=["shared", "joint head", "one each"])
def saved(request, tmp_path):
    """A team in reference, and the file it was saved in."""
    shared, factored = request.param
    env = Reference(horizon=8)
    policy = RecurrentPolicy(TeamNetwork.create(jax.random.key(3), env.spec, 16, shared, factored))
    policy.save(tmp_path / "team.npz")
    return env, policy, tmp_path / "team.npz"


def test_numpy_acts_as_jax_does_step_for_step(saved):
    env, policy, file = saved
    episodes = rollouts(jax.random.key(0), env, policy, 5)
    team = marco.policies.deploy.load(file)
    for b in range(5):
        team.reset()
        for t in range(env.spec.horizon):
            acted = team.act(np.asarray(episodes.observation[t, b]), np.asarray(episodes.available[t, b]))
            assert acted == episodes.actions[t, b].tolist()


def test_an_agent_acts_alone(saved):
    env, policy, file = saved
    episodes = rollouts(jax.random.key(1), env, policy, 1)
    for index in range(env.spec.num_agents):
        agent = marco.policies.deploy.load(file).agent(index)
        alone = [agent.act(np.asarray(episodes.observation[t, 0, index])) for t in range(env.spec.horizon)]
        assert alone == episodes.actions[:, 0, index].tolist()


def test_masks_are_respected(tmp_path):
    env = Switch()
    policy = RecurrentPolicy(TeamNetwork.create(jax.random.key(0), env.spec, 8))
    policy.save(tmp_path / "team.npz")
    agent = marco.policies.deploy.load(tmp_path / "team.npz").agent(1)
    for action in range(4):
        assert agent.act([1.0, 0.0], np.arange(4) == action) == action
    assert agent.action_labels == ("None", "Tell", "On", "Off")


def test_saving_and_loading_gives_the_same_team(saved):
    env, policy, file = saved
    again = load_policy(file, env.spec)
    for one, other in zip(jax.tree.leaves(policy), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_policy_file_needs_numpy_alone(saved):
    _, _, file = saved
    code = (
        "import sys, importlib.util\n"
        "for name in ('jax', 'jaxlib', 'equinox', 'optax', 'jaxtyping', 'safetensors', 'marco'):\n"
        "    sys.modules[name] = None\n"
        f"spec = importlib.util.spec_from_file_location('policy', {marco.policies.deploy.__file__!r})\n"
        "policy = importlib.util.module_from_spec(spec); sys.modules['policy'] = policy\n"
        "spec.loader.exec_module(policy)\n"
        f"team = policy.load({str(file)!r})\n"
        "print(len(team.act([[0.0] * 21] * 2)))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.stdout == "2\n", ran.stderr


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda team: team.act([[0.0] * 21]), "the team has 2 agents, got 1 observations"),
        (lambda team: team.act([[0.0] * 20] * 2), "agent 'agent 0' sees 21 numbers, got 20"),
        (lambda team: team.act([[np.nan] * 21] * 2), "every number must be finite"),
        (lambda team: team.agent(2), "the team has agents 0 to 1, got 2"),
        (lambda team: team.agent(0).act([0.0] * 21, [0] * 50), "has 50 actions, of which one at least"),
    ],
)
def test_mistakes_are_named(saved, call, message):
    with pytest.raises(ValueError, match=message):
        call(marco.policies.deploy.load(saved[2]))


def test_bad_files_are_named(tmp_path):
    with pytest.raises(ValueError, match="there is no policy file and no run at"):
        marco.policies.deploy.load(tmp_path / "nothing")
    with pytest.raises(ValueError, match="holds no policy yet"):
        marco.policies.deploy.load(tmp_path)
    (tmp_path / "torn.npz").write_bytes(b"PK\x03\x04 torn")
    with pytest.raises(ValueError, match=r"torn\.npz is no policy file, or is damaged"):
        marco.policies.deploy.load(tmp_path / "torn.npz")
