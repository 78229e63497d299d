"""What a team is worth: exactly where chance can be enumerated, else from many episodes."""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from marco.environments.base import Environment, EnvironmentState, FiniteEnvironment, HostWorld
from marco.policies.base import Memory, Policy
from marco.rollout import play, rollouts
from marco.types import TimeStep


class Estimate(NamedTuple):
    """A mean over episodes and its standard error."""

    mean: float
    standard_error: float
    episodes: int
    """0, if the mean is exact."""
    steps: int
    """Steps that were taken in the world for it."""


def sampled_value(key: PRNGKeyArray, env: Environment, policy: Policy, episodes: int) -> Estimate:
    """The mean undiscounted return over independent episodes."""
    if episodes < 2:
        raise ValueError(f"an estimate needs at least 2 episodes, got {episodes}.")
    returns, lengths = _returns(key, env, policy, episodes)
    return _estimate(np.asarray(returns), np.asarray(lengths))


def sampled_value_in_host(key: PRNGKeyArray, world: HostWorld, policy: Policy, episodes: int) -> Estimate:
    """The same in a world outside JAX, one episode after the other."""
    if episodes < 2:
        raise ValueError(f"an estimate needs at least 2 episodes, got {episodes}.")
    played = [play(one, world, policy) for one in jax.random.split(key, episodes)]
    returns = np.array([episode.undiscounted_return for episode in played])
    return _estimate(returns, np.array([episode.length for episode in played]))


def _estimate(returns: np.ndarray, lengths: np.ndarray) -> Estimate:
    values = returns.astype(np.float64)
    error = float(values.std(ddof=1) / math.sqrt(values.size))
    return Estimate(float(values.mean()), error, values.size, int(lengths.sum()))


@partial(jax.jit, static_argnames="episodes")
def _returns(
    key: PRNGKeyArray, env: Environment, policy: Policy, episodes: int
) -> tuple[Float[Array, " B"], Int[Array, " B"]]:
    played = rollouts(key, env, policy, episodes)
    return played.undiscounted_return, played.length


class TooManyHistoriesError(ValueError):
    """The exact value would take too long."""


class Histories(NamedTuple):
    """Everything that can have happened so far, one row each; equal rows are merged."""

    probability: Float[np.ndarray, " M"]
    state: EnvironmentState
    timestep: TimeStep
    memory: Memory


def exact_value(env: FiniteEnvironment, policy: Policy, limit: int = 500_000) -> float:
    """The expected undiscounted return of a joint policy, by enumeration of all that can happen.

    Histories that leave world and memory the same are one, so that the cost depends on how much the
    policy remembers and how much it leaves to chance: a deterministic team in the riddle has at most
    N^T of them, and a team without memory as many as there are states.
    """
    histories = _beginnings(env, policy)
    value = 0.0
    for _ in range(env.spec.horizon):
        reward, histories = _one_step(env, policy, histories, limit)
        value += reward
        if not histories.probability.size:
            break
    return value


def _beginnings(env: FiniteEnvironment, policy: Policy) -> Histories:
    chance = _normalised(env.start_probabilities())
    (outcomes,) = np.nonzero(chance)
    state, timestep = _at_start(env, outcomes.astype(np.int32))
    memory = jax.tree.map(lambda leaf: np.stack([np.asarray(leaf)] * len(outcomes)), policy.start())
    return Histories(chance[outcomes], state, timestep, memory)


def _one_step(
    env: FiniteEnvironment, policy: Policy, before: Histories, limit: int
) -> tuple[float, Histories]:
    memory, probabilities = _padded(_decide, policy, before.memory, before.timestep)
    row, actions, weight = _joint_actions(_normalised(probabilities))
    _check_number(len(row), limit)
    acting = _rows(before.state, row)
    chance = _normalised(_padded(_chance, env, acting.world, actions))
    branch, outcome = np.nonzero(chance)
    _check_number(len(branch), limit)
    probability = (before.probability[row] * weight)[branch] * chance[branch, outcome]
    state, timestep = _padded(_follow, env, _rows(acting, branch), actions[branch], outcome.astype(np.int32))
    reward = float(np.sum(probability * timestep.reward))
    goes_on = ~(timestep.terminated | timestep.truncated)
    after = Histories(probability, state, timestep, _rows(memory, row[branch]))
    return reward, _merged(_rows(after, goes_on))


def _joint_actions(
    probabilities: Float[np.ndarray, "M N A"],
) -> tuple[Int[np.ndarray, " L"], Int[np.ndarray, "L N"], Float[np.ndarray, " L"]]:
    """All joint actions of positive probability: of which row, which one, how probable."""
    row = np.arange(probabilities.shape[0])
    weight = np.ones(probabilities.shape[0])
    chosen = np.zeros((probabilities.shape[0], 0), np.int32)
    for agent in range(probabilities.shape[1]):
        which, action = np.nonzero(probabilities[row, agent])
        weight = weight[which] * probabilities[row[which], agent, action]
        chosen = np.concatenate([chosen[which], action[:, None].astype(np.int32)], axis=1)
        row = row[which]
    return row, chosen, weight


def _merged(histories: Histories) -> Histories:
    """Add up the probabilities of rows that leave world and memory the same."""
    if not histories.probability.size:
        return histories
    rows = len(histories.probability)
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves((histories.state, histories.memory))]
    raw = np.concatenate([np.ascontiguousarray(leaf).reshape(rows, -1).view(np.uint8) for leaf in leaves], 1)
    _, first, group = np.unique(raw, axis=0, return_index=True, return_inverse=True)
    merged = _rows(histories, first)
    return merged._replace(probability=np.bincount(group.ravel(), histories.probability))


def _check_number(histories: int, limit: int) -> None:
    if histories > limit:
        raise TooManyHistoriesError(
            f"the exact value needs {histories} histories at one step, over the limit of {limit}: "
            "use sampled_value, a policy with less randomness and memory, or a larger limit."
        )


def _normalised(probabilities: Any) -> Float[np.ndarray, "..."]:
    """In double precision: thirds that were rounded become thirds again."""
    exact = np.asarray(probabilities, np.float64)
    return exact / exact.sum(-1, keepdims=True)


def _rows(tree: Any, which: np.ndarray) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[which], tree)


def _padded(function: Any, static: Any, *batched: Any) -> Any:
    """Call a compiled function on batches padded to a power of two, so that few sizes are compiled."""
    rows = len(jax.tree.leaves(batched)[0])
    size = 1 << (rows - 1).bit_length()
    index = np.minimum(np.arange(size), rows - 1)
    return _rows(function(static, *_rows(batched, index)), np.arange(rows))


@jax.jit
def _at_start(env: FiniteEnvironment, outcomes: Int[Array, " M"]) -> tuple[EnvironmentState, TimeStep]:
    return jax.vmap(lambda outcome: env.begin(env.start(outcome)))(outcomes)


@jax.jit
def _decide(policy: Policy, memory: Memory, timestep: TimeStep) -> tuple[Memory, Float[Array, "M N A"]]:
    return jax.vmap(policy)(memory, timestep)


@jax.jit
def _chance(env: FiniteEnvironment, world: Any, actions: Int[Array, "M N"]) -> Float[Array, "M K"]:
    return jax.vmap(env.outcome_probabilities)(world, actions)


@jax.jit
def _follow(
    env: FiniteEnvironment,
    state: EnvironmentState,
    actions: Int[Array, "M N"],
    outcome: Int[Array, " M"],
) -> tuple[EnvironmentState, TimeStep]:
    def follow_one(state: EnvironmentState, actions: Array, outcome: Array) -> tuple[Any, Any]:
        return env.advance(state, actions, env.successor(state.world, actions, outcome))

    return jax.vmap(follow_one)(state, actions, jnp.asarray(outcome))
