"""A saved team plays by numpy alone as it does in JAX."""

import json
import subprocess
import sys
import tracemalloc
import zipfile

import jax
import numpy as np
import pytest

import marco.policies.deploy
from helpers.damage import npy, npz, overlapping, zipped
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
    (tmp_path / "empty.npz").touch()
    for name in ("torn", "empty"):
        with pytest.raises(
            ValueError, match=rf"{name}\.npz is no policy file, or is damaged: .* Copy it again"
        ):
            marco.policies.deploy.load(tmp_path / f"{name}.npz")
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "seed-old.npz").touch()
    with pytest.raises(ValueError, match="holds no policy yet"):
        marco.policies.deploy.load(tmp_path)


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """The arrays and the facts of a sound policy file, to be tampered with."""
    file = tmp_path_factory.mktemp("team") / "team.npz"
    RecurrentPolicy(TeamNetwork.create(jax.random.key(0), Switch().spec, 4)).save(file)
    with np.load(file) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return arrays, json.loads(str(arrays.pop("facts")))


def first(change):
    return lambda arrays, facts: facts["agents"][0].update(change)


@pytest.mark.parametrize(
    ("tamper", "message"),
    [
        (lambda arrays, facts: facts.pop("agents"), "facts need world, shared, factored and agents"),
        (lambda arrays, facts: facts.update(agents=[]), "facts need world"),
        (lambda arrays, facts: facts.update(shared="yes"), "facts need world"),
        (lambda arrays, facts: facts.update(format=9), "it has the format 9, this MARCO reads 1"),
        (lambda arrays, facts: facts["agents"].append(7), "agent 3 needs name, num_actions"),
        (lambda arrays, facts: facts.update(shared=False), "'encoder' has the shape"),
        (first({"num_actions": 10**10}), "agent 0 needs name, num_actions"),
        (first({"num_actions": "4"}), "agent 0 needs name, num_actions"),
        (first({"action_labels": [1, 2, 3, 4]}), "agent 0 needs name, num_actions"),
        (first({"observation_width": 10**10}), "'encoder' has the shape .* its agents need"),
        (lambda arrays, facts: arrays.pop("head"), "'head' has the shape None"),
        (lambda arrays, facts: arrays.update(more=np.zeros(2)), "'more' has the shape"),
        (lambda arrays, facts: arrays.update(memory=np.zeros((4, 9))), "'memory' has the shape"),
        (lambda arrays, facts: arrays.update(memory_bias=np.float32(3)), "has the shape"),
        (
            lambda arrays, facts: arrays.update(sizes=np.array([10**10, 4, 3])),
            r"sizes are \[10000000000, 4, 3\]",
        ),
        (lambda arrays, facts: arrays.update(head=arrays["head"] * np.nan), "'head' holds what is no finite"),
        (lambda arrays, facts: arrays.update(head=arrays["head"] + np.inf), "'head' holds what is no finite"),
        (
            lambda arrays, facts: arrays.update(head=arrays["head"].astype(str)),
            "'head' holds what is no finite",
        ),
        (lambda arrays, facts: arrays.update(head=arrays["head"].astype(object)), "array of the shape"),
    ],
)
def test_a_file_that_was_tampered_with_is_refused_as_it_is_read(parts, tmp_path, tamper, message):
    arrays, facts = dict(parts[0]), json.loads(json.dumps(parts[1]))
    tamper(arrays, facts)
    (tmp_path / "team.npz").write_bytes(npz(arrays | {"facts": np.array(json.dumps(facts))}))
    with pytest.raises(ValueError, match=rf"team\.npz is no policy file, or is damaged: .*{message}"):
        marco.policies.deploy.load(tmp_path / "team.npz")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (zipped({"head": npy(np.zeros(3), (10**10,))}), "an array of the shape"),
        (zipped({"head": npy(np.zeros(3), (10**30,))}), "an array of the shape"),
        (zipped({"head": npy(np.zeros(6), (-2, -3))}), "an array of the shape"),
        (npz({"head": np.zeros(10**6)}, zipfile.ZIP_DEFLATED), "its arrays are compressed"),
        (npz({"head": np.frombuffer(bytes(range(256)))}, zipfile.ZIP_LZMA), "its arrays are compressed"),
        (overlapping({"head": npy(np.zeros(10**4))}), "its arrays are larger than the file"),
    ],
    ids=["header", "beyond", "negative", "compressed", "incompressible", "overlapping"],
)
def test_no_file_takes_more_memory_than_it_has(tmp_path, content, message):
    (tmp_path / "team.npz").write_bytes(content)
    tracemalloc.start()
    with pytest.raises(ValueError, match=rf"team\.npz is no policy file, or is damaged: .*{message}"):
        marco.policies.deploy.load(tmp_path / "team.npz")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**22


def test_a_team_for_other_actions_is_refused_by_its_file(parts, tmp_path):
    """The sizes fit, the components of the actions do not."""
    arrays, facts = parts
    table = arrays["table"][:, ::-1]
    content = npz(arrays | {"table": table, "facts": np.array(json.dumps(facts))})
    (tmp_path / "team.npz").write_bytes(content)
    with pytest.raises(
        ValueError, match=r"team\.npz: this team was trained in 'switch', whose actions have other"
    ):
        load_policy(tmp_path / "team.npz", Switch().spec)
