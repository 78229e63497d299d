"""The value of a team: exactly where the random outcomes can be enumerated, else from many episodes."""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from marco.checks import check_episodes, check_seed
from marco.environments.base import Environment, EnvironmentState, FiniteEnvironment, HostWorld
from marco.environments.enumeration import (
    joint_actions,
    normalised,
    outcomes,
    padded,
    row_bytes,
    rows,
    starts,
)
from marco.environments.registry import make
from marco.environments.user_code import during
from marco.policies.base import Memory, Policy
from marco.policies.deploy import TeamPolicy
from marco.policies.export import as_policy
from marco.rollout import play, rollouts
from marco.simulators.pool import Simulators, Task
from marco.types import Episode, TimeStep

EXACT_LIMIT = 50_000
"""The most histories that `evaluate` enumerates; beyond it samples."""


class Estimate(NamedTuple):
    """The value of a team, exact or the mean over test episodes."""

    mean: float
    standard_error: float
    episodes: int
    """0, if the mean is exact."""
    steps: int
    """Steps that were taken in the environment for it."""

    @property
    def exact(self) -> bool:
        return not self.episodes

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% confidence interval of the mean."""
        margin = 1.96 * self.standard_error
        return self.mean - margin, self.mean + margin


def evaluate(
    env: Environment | HostWorld | str,
    policy: Policy | TeamPolicy,
    episodes: int = 1_000,
    seed: int | PRNGKeyArray = 0,
) -> Estimate:
    """The value of a team: exact where that takes at most `EXACT_LIMIT` histories, else over test episodes.

    `seed` is that of the test episodes: a number, or a key of JAX. A team loaded from a file will do, too.
    """
    if isinstance(env, str):
        env = make(env)
    if isinstance(policy, TeamPolicy):
        policy = as_policy(policy, env.spec)
    if not isinstance(policy, Policy):
        raise ValueError(f"evaluate needs a Policy, or a team that marco.load gave, got {policy!r}.")
    if isinstance(env, FiniteEnvironment):
        try:
            return Estimate(exact_value(env, policy, EXACT_LIMIT), 0.0, 0, 0)
        except TooManyHistoriesError:
            pass
    if isinstance(seed, int):
        check_seed("seed", seed)
    key = jax.random.key(seed) if isinstance(seed, int) else seed
    return sampled_value(key, env, policy, episodes)


def sampled_value(key: PRNGKeyArray, env: Environment | HostWorld, policy: Policy, episodes: int) -> Estimate:
    """The mean undiscounted return over independent episodes; outside JAX one by one, or by simulators."""
    check_episodes("episodes", episodes)
    lost = 0
    if isinstance(env, Environment):
        returns, lengths = jax.tree.map(np.asarray, _returns(key, env, policy, episodes))
    elif isinstance(env, Simulators):
        returns, lengths, lost = _played_side_by_side(key, env, policy, episodes)
    else:
        played = []
        for number, one in enumerate(jax.random.split(key, episodes), 1):
            with during(f"test episode {number} of {episodes}"):
                played.append(play(one, env, policy))
        returns = np.array([episode.undiscounted_return for episode in played])
        lengths = np.array([episode.length for episode in played])
    values = returns.astype(np.float64)
    error = float(values.std(ddof=1) / math.sqrt(values.size))
    return Estimate(float(values.mean()), error, values.size, int(lengths.sum()) + lost)


def _played_side_by_side(
    key: PRNGKeyArray, env: Simulators, policy: Policy, episodes: int
) -> tuple[Float[np.ndarray, " B"], Int[np.ndarray, " B"], int]:
    """Returns and lengths of test episodes in their order, and the steps that were lost with simulators."""
    found: dict[int, Episode] = {}
    counts = [StepCount() for _ in range(episodes)]

    def task(number: int, one: PRNGKeyArray) -> Task:
        what = f"test episode {number + 1} of {episodes}"

        def play_in(simulator: HostWorld) -> None:
            with during(what):
                found[number] = play(one, simulator, policy, record=counts[number])

        return Task(what, play_in)

    tasks = (task(number, one) for number, one in enumerate(jax.random.split(key, episodes)))
    for _ in env.side_by_side(lambda: next(tasks, None)):
        pass
    returns = np.array([found[number].undiscounted_return for number in range(episodes)])
    lengths = np.array([found[number].length for number in range(episodes)])
    return returns, lengths, sum(count.steps for count in counts) - int(lengths.sum())


class StepCount:
    """A Recorder that only counts the steps that were begun."""

    steps = 0

    def show(self, timestep: TimeStep) -> None:
        """What is shown is not kept."""

    def act(self, actions: Int[np.ndarray, " N"]) -> None:
        """One more step."""
        self.steps += 1


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

    Histories that leave the environment's state and the memory the same are one, so that the cost depends on
    how much the policy remembers and how random it is: a deterministic team in the riddle has at most N^T of
    them, and a team without memory as many as there are states.
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
    _, outcome, probability = starts(env)
    state, timestep = _at_start(env, outcome)
    memory = jax.tree.map(lambda leaf: np.stack([np.asarray(leaf)] * len(outcome)), policy.start())
    return Histories(probability, state, timestep, memory)


def _one_step(
    env: FiniteEnvironment, policy: Policy, before: Histories, limit: int
) -> tuple[float, Histories]:
    memory, probabilities = padded(_decide, policy, before.memory, before.timestep)
    row, actions, weight = joint_actions(normalised(probabilities))
    _check_number(len(row), limit)
    acting = rows(before.state, row)
    branch, outcome, chance = outcomes(env, acting.world, actions)
    _check_number(len(branch), limit)
    probability = (before.probability[row] * weight)[branch] * chance
    state, timestep = padded(_follow, env, rows(acting, branch), actions[branch], outcome)
    reward = float(np.sum(probability * timestep.reward))
    goes_on = ~(timestep.terminated | timestep.truncated)
    after = Histories(probability, state, timestep, rows(memory, row[branch]))
    return reward, _merged(rows(after, goes_on))


def _merged(histories: Histories) -> Histories:
    """Add up the probabilities of rows that leave state and memory the same."""
    if not histories.probability.size:
        return histories
    raw = row_bytes((histories.state, histories.memory))
    _, first, group = np.unique(raw, axis=0, return_index=True, return_inverse=True)
    merged = rows(histories, first)
    return merged._replace(probability=np.bincount(group.ravel(), histories.probability))


def _check_number(histories: int, limit: int) -> None:
    if histories > limit:
        raise TooManyHistoriesError(
            f"the exact value needs {histories} histories at one step, over the limit of {limit}: "
            "use sampled_value, a policy with less randomness and memory, or a larger limit."
        )


@jax.jit
def _at_start(env: FiniteEnvironment, outcomes: Int[Array, " M"]) -> tuple[EnvironmentState, TimeStep]:
    return jax.vmap(lambda outcome: env.begin(env.start(outcome)))(outcomes)


@jax.jit
def _decide(policy: Policy, memory: Memory, timestep: TimeStep) -> tuple[Memory, Float[Array, "M N A"]]:
    return jax.vmap(policy)(memory, timestep)


@jax.jit
def _follow(
    env: FiniteEnvironment,
    state: EnvironmentState,
    actions: Int[Array, "M N"],
    outcome: Int[Array, " M"],
) -> tuple[EnvironmentState, TimeStep]:
    def follow_one(state: EnvironmentState, actions: Array, outcome: Array) -> tuple[Any, Any]:
        return env.advance(state, actions, env.successor(state.world, actions, outcome))

    return jax.vmap(follow_one)(state, actions, outcome)
