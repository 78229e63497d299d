import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marco.environments.base import WorldError
from marco.environments.bridge import make_bridge as bridge
from marco.environments.switch import Switch
from marco.networks import TeamNetwork
from marco.policies.base import EpsilonGreedy, Policy, RandomPolicy, RecurrentPolicy
from marco.rollout import play, rollouts
from marco.sampling import draw
from marco.types import TimeStep


class AlwaysTell(Policy):
    """Tells in the room, and does nothing elsewhere."""

    def start(self):
        return ()

    def __call__(self, memory, timestep):
        tell = timestep.available[:, 1]
        return memory, jax.nn.one_hot(jnp.where(tell, 1, 0), 4)


def test_draw_follows_the_probabilities():
    probabilities = jnp.array([0.5, 0.0, 0.3, 0.2])
    drawn = draw(jax.random.key(0), jnp.broadcast_to(probabilities, (100_000, 4)))
    shares = np.bincount(drawn, minlength=4) / 100_000
    assert shares[1] == 0.0
    np.testing.assert_allclose(shares, probabilities, atol=4 * np.sqrt(0.25 / 100_000))


def test_draw_takes_a_certain_outcome_always():
    certain = jnp.tile(jnp.eye(5), (2000, 1))
    np.testing.assert_array_equal(draw(jax.random.key(1), certain), np.tile(np.arange(5), 2000))


def test_random_play_takes_each_available_action_equally_often():
    episodes = rollouts(jax.random.key(0), Switch(), RandomPolicy(), 20_000)
    first = np.asarray(episodes.actions[0])
    in_room = np.asarray(episodes.observation[0, :, :, 0]) > 0.5
    assert (first[~in_room] == 0).all()
    shares = np.bincount(first[in_room], minlength=4) / in_room.sum()
    np.testing.assert_allclose(shares, 0.25, atol=4 * np.sqrt(0.1875 / 20_000))


def test_epsilon_greedy_tells_as_often_as_epsilon_says():
    """In the room: 1 - epsilon + epsilon / 4 of the time."""
    policy = EpsilonGreedy(AlwaysTell(), jnp.float32(0.4))
    episodes = rollouts(jax.random.key(0), Switch(), policy, 20_000)
    told = np.asarray((episodes.actions[0] == 1).any(-1)).mean()
    assert told == pytest.approx(0.7, abs=4 * np.sqrt(0.21 / 20_000))
    assert (np.asarray(episodes.actions[0])[np.asarray(episodes.observation[0, :, :, 0]) < 0.5] == 0).all()


def test_previous_actions_are_those_of_the_step_before():
    env = Switch()
    state, timestep = env.reset(jax.random.key(0))
    np.testing.assert_array_equal(timestep.previous_actions, [-1, -1, -1])
    actions = jnp.where(timestep.available[:, 2], 2, 0).astype(jnp.int32)
    state, timestep = env.step(jax.random.key(1), state, actions)
    np.testing.assert_array_equal(timestep.previous_actions, actions)


class Corridor:
    """A host world that ends after `length` steps and pays the number of the step."""

    def __init__(self, length, horizon):
        self.length, self.horizon, self.seeds = length, horizon, []

    @property
    def spec(self):
        return Switch(2, self.horizon).spec

    def reset(self, seed):
        self.time = 0
        self.seeds.append(seed)
        return self._show(0.0)

    def step(self, actions):
        assert self.time < self.length, "stepped after the end"
        self.time += 1
        return self._show(float(self.time))

    def _show(self, reward):
        return TimeStep(
            observation=np.full((2, 2), self.time, np.float32),
            state=np.full((5,), self.time, np.float32),
            available=np.array([[True, False, False, False]] * 2),
            previous_actions=np.zeros(2, np.int32),
            reward=np.float32(reward),
            terminated=np.bool_(self.time == self.length),
            truncated=np.bool_(self.length > self.time == self.horizon),
        )


def test_the_host_loop_pads_an_early_end():
    world = Corridor(length=3, horizon=5)
    episode = play(jax.random.key(0), world, RandomPolicy())
    np.testing.assert_array_equal(episode.mask, [1, 1, 1, 0, 0])
    np.testing.assert_array_equal(episode.reward, [1, 2, 3, 0, 0])
    np.testing.assert_array_equal(episode.terminated, [0, 0, 1, 0, 0])
    np.testing.assert_array_equal(episode.state[:, 0], [0, 1, 2, 3, 3, 3])
    assert episode.actions.shape == (5, 2)
    assert not episode.truncated.any()
    assert all(isinstance(leaf, np.ndarray) for leaf in episode)
    assert (episode.length, episode.undiscounted_return) == (3, 6.0)


def test_the_host_loop_stops_at_the_horizon_and_passes_new_seeds_on():
    world = Corridor(length=99, horizon=4)
    for seed in range(2):
        episode = play(jax.random.key(seed), world, RandomPolicy())
        np.testing.assert_array_equal(episode.truncated, [0, 0, 0, 1])
    assert world.seeds[0] != world.seeds[1]
    play(jax.random.key(0), world, RandomPolicy())
    assert world.seeds[2] == world.seeds[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reward": np.float32(np.nan)}, "showed reward nan: only finite numbers can be learned from"),
        ({"state": np.zeros(4)}, r"showed state of the shape \(4,\), its spec says \(5,\)"),
        ({"observation": np.full((2, 2), np.inf)}, "showed observation .*inf"),
        ({"terminated": None}, "showed terminated None: only finite numbers"),
        ({"reward": np.float64(1e39)}, r"showed reward 1e\+39: only finite numbers"),
        ({"available": np.zeros((2, 4), bool)}, "every agent needs one or more of its own"),
    ],
)
def test_what_a_host_world_shows_is_checked_and_the_step_named(monkeypatch, change, message):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)
    world = Corridor(length=3, horizon=5)
    plainly = world.step
    world.step = lambda actions: plainly(actions)._replace(**change if world.time == 2 else {})
    with pytest.raises(WorldError, match=message) as caught:
        play(jax.random.key(0), world, RandomPolicy())
    called, retraced = caught.value.__notes__
    assert called.startswith(f"MARCO called: step 2 after reset(seed={world.seeds[0]}) of switch")
    assert retraced == "Actions since the reset: [[0, 0], [0, 0]]"
    world.reset = lambda seed: ({}, {})
    with pytest.raises(WorldError, match=r"return a marco\.types\.TimeStep"):
        play(jax.random.key(0), world, RandomPolicy())


def test_wrong_shapes_are_refused_by_value(monkeypatch):
    """Shapes in annotations are enforced in tests only: these are the errors that users see."""
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)
    env = Switch()
    state, _ = env.reset(jax.random.key(0))
    with pytest.raises(
        ValueError, match=r"one action for each of its 3 agents, got actions of the shape \(2,\)"
    ):
        env.step(jax.random.key(0), state, jnp.zeros(2, jnp.int32))
    with pytest.raises(
        ValueError, match=r"shape \(3, 7\), agents by actions, but this policy gives \(3, 4\)"
    ):
        rollouts(jax.random.key(0), bridge(), AlwaysTell(), 2)
    team = RecurrentPolicy(TeamNetwork.create(jax.random.key(0), Switch(4).spec, 8))
    with pytest.raises(ValueError, match="this policy does not fit switch"):
        rollouts(jax.random.key(0), env, team, 2)
