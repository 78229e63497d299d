import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marco.environments.tabular import from_tables
from marco.evaluation import exact_value
from marco.policies.base import Policy, RandomPolicy
from marco.rollout import rollouts

STATES, ACTIONS, OBSERVATIONS = 2, (2, 3), (2, 2)


def tables(**changed):
    """Joint action 4 = (1, 1) swaps the state and pays 1 in state 0; agent 0 sees the state, agent 1 0."""
    P = np.tile(np.eye(2)[:, None], (1, 6, 1))
    P[:, 4] = [[0, 1], [1, 0]]
    R = np.zeros((2, 6))
    R[0, 4] = 1.0
    O = np.zeros((6, 2, 4))  # noqa: E741
    O[:, 0, 0] = O[:, 1, 2] = 1.0
    return {"P": P, "R": R, "O": O, "d0": np.array([1.0, 0.0])} | changed


def make(horizon=4, **changed):
    options = {key: changed.pop(key) for key in ("available", "terminal") if key in changed}
    return from_tables(
        **tables(**changed), actions=ACTIONS, observations=OBSERVATIONS, horizon=horizon, **options
    )


class Fixed(Policy):
    """Always the same joint action."""

    actions: jax.Array

    def start(self):
        return ()

    def __call__(self, memory, timestep):
        return memory, jax.nn.one_hot(self.actions, timestep.available.shape[-1])


def test_the_last_agent_runs_fastest_in_joint_indices():
    env = make()
    state, timestep = env.reset(jax.random.key(0))
    np.testing.assert_array_equal(timestep.observation, 0.0)  # nothing is seen at the start
    state, timestep = env.step(jax.random.key(0), state, jnp.array([1, 1], jnp.int32))
    assert float(timestep.reward) == 1.0
    np.testing.assert_array_equal(timestep.state, [0, 1])
    np.testing.assert_array_equal(timestep.observation, [[0, 1], [1, 0]])  # joint observation 2 = (1, 0)


def test_exact_values_of_fixed_and_random_teams():
    """Swapping always pays at t = 0 and 2. At random each step swaps with probability 1/6."""
    env = make(horizon=4)
    assert exact_value(env, Fixed(jnp.array([1, 1]))) == 2.0
    in_state_0, expected = 1.0, 0.0
    for _ in range(4):
        expected += in_state_0 / 6
        in_state_0 = in_state_0 * 5 / 6 + (1 - in_state_0) / 6
    assert exact_value(env, RandomPolicy()) == pytest.approx(expected, abs=1e-12)


def test_entering_a_terminal_state_ends_the_episode():
    env = make(terminal=[False, True])
    episode = rollouts(jax.random.key(0), env, Fixed(jnp.array([1, 1])), 3)
    np.testing.assert_array_equal(episode.length, 1)
    assert episode.terminated[0].all()
    assert exact_value(env, Fixed(jnp.array([1, 1]))) == 1.0


def test_masks_are_those_given_and_padding_is_masked_always():
    available = np.ones((2, 2, 3), bool)
    available[0, 1] = [False, True, False]
    timestep = make(available=available).reset(jax.random.key(0))[1]
    np.testing.assert_array_equal(timestep.available, [[1, 1, 0], [0, 1, 0]])


def test_sampled_states_and_observations_follow_the_tables():
    rng = np.random.default_rng(0)
    P, O = rng.dirichlet(np.ones(2), (2, 6)), rng.dirichlet(np.ones(4), (6, 2))  # noqa: E741
    env = make(horizon=1, P=P, O=O)
    episodes = rollouts(jax.random.key(0), env, Fixed(jnp.array([0, 2])), 40_000)
    state = np.asarray(episodes.state[1]).argmax(-1)
    seen = np.asarray(episodes.observation[1]).argmax(-1)
    shares = np.bincount(state * 4 + seen[:, 0] * 2 + seen[:, 1], minlength=8) / 40_000
    expected = (P[0, 2][:, None] * O[2]).ravel()
    np.testing.assert_allclose(shares, expected, atol=4 * np.sqrt(0.25 / 40_000))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"R": np.zeros((2, 5))}, r"R must have the shape \(2, 6\), got \(2, 5\)"),
        ({"d0": np.array([0.5, 0.4])}, r"d0\[\] sums to 0.9: probabilities must sum to 1"),
        ({"P": -tables()["P"]}, "is -1.0: a probability cannot be negative"),
        ({"R": np.full((2, 6), np.nan)}, "R holds nan: every entry must be a finite number"),
        ({"available": np.zeros((2, 2, 3), bool)}, r"available\[0, 0\] allows no action"),
        ({"terminal": [True]}, r"terminal must have the shape \(2,\), got \(1,\)"),
        ({"horizon": 0}, "horizon of at least 1, got 0"),
    ],
)
def test_bad_tables_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        make(**changed)


def test_agents_must_be_counted_alike():
    with pytest.raises(ValueError, match="actions counts 1 agents and observations 2"):
        from_tables(**tables(), actions=(6,), observations=(2, 2), horizon=3)
