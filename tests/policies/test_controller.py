"""A planned team at play: by hand, in JAX and by numpy alone, and its file."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marco.policies.deploy
from helpers.damage import npz
from marco.environments.switch import NONE, TELL, Switch
from marco.policies.controller import FAR, ControllerPolicy
from marco.policies.deploy import read_arrays
from marco.policies.export import load_policy
from marco.rollout import rollouts

ENV = Switch(agents=2, horizon=3)
AWAY, DARK, LIT = [0.0, 0.0], [1.0, 0.0], [1.0, 1.0]


def team(seed=0):
    """Controllers at random, of three nodes; the second agent knows one observation less."""
    rng = np.random.default_rng(seed)
    known = np.array([[AWAY, DARK, LIT, [FAR, FAR]], [AWAY, DARK, [FAR, FAR], [FAR, FAR]]])
    return ControllerPolicy(
        jnp.asarray(rng.integers(4, size=(2, 3, 3)), jnp.int16),
        jnp.asarray(rng.integers(3, size=(2, 3, 3, 4)), jnp.int16),
        jnp.asarray(known, jnp.float32),
        ENV.spec,
    )


def test_a_controller_by_hand():
    actions = np.full((2, 3, 2), NONE, np.int16)
    actions[:, :, 1] = TELL
    leads = np.zeros((2, 3, 2, 3), np.int16)
    leads[0, :, 0, 2] = 1  # the first agent: once it was in the lit room, it is in node 1
    leads[0, :, 1, :] = 1
    known = np.broadcast_to(np.array([AWAY, DARK, LIT], np.float32), (2, 3, 2))
    agent = np.array([AWAY, [0.9, 0.2], LIT, AWAY])  # the second is nearest to the dark room
    policy = ControllerPolicy(*map(jnp.asarray, (actions, leads, known)), ENV.spec)
    _, timestep = ENV.reset(jax.random.key(0))
    memory, chosen = policy.start(), []
    for seen in agent:
        there = timestep._replace(
            observation=jnp.asarray([seen, AWAY], jnp.float32), available=jnp.ones((2, 4), bool)
        )
        memory, probability = policy(memory, there)
        chosen.append(np.argmax(probability, -1).tolist())
    assert chosen == [[NONE, NONE], [NONE, NONE], [TELL, NONE], [TELL, NONE]]


@pytest.mark.parametrize("seed", range(3))
def test_numpy_acts_as_jax_does_step_for_step(seed, tmp_path):
    policy = team(seed)
    policy.save(tmp_path / "team.npz")
    episodes = rollouts(jax.random.key(seed), ENV, policy, 20)
    loaded = marco.policies.deploy.load(tmp_path / "team.npz")
    again = rollouts(jax.random.key(seed), ENV, load_policy(tmp_path / "team.npz", ENV.spec), 20)
    np.testing.assert_array_equal(again.actions, episodes.actions)
    for b in range(20):
        loaded.reset()
        for t in range(int(episodes.length[b])):
            acted = loaded.act(np.asarray(episodes.observation[t, b]), np.asarray(episodes.available[t, b]))
            assert acted == episodes.actions[t, b].tolist()


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("successors", lambda a: a + 9, "nodes that are not there"),
        ("actions", lambda a: a + 9, "actions that their agents do not have"),
        ("observations", lambda a: a * np.nan, "nodes that are not there"),
        ("actions", lambda a: a[:, :2], "do not fit together"),
        ("actions", lambda a: a.astype(np.float32), "type float32"),
    ],
)
def test_damaged_controllers_are_refused(name, change, words, tmp_path):
    file = tmp_path / "team.npz"
    team().save(file)
    arrays = read_arrays(file)
    arrays[name] = change(arrays[name])
    file.write_bytes(npz(arrays))
    with pytest.raises(ValueError, match=words):
        marco.policies.deploy.load(file)
