"""The one loop of all learners in all worlds, true or learned: play, learn, repeat."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int, Key, PRNGKeyArray

from marco.environments.base import Environment, HostWorld
from marco.learners.base import Learner, LearnerState, Metrics
from marco.policies.base import Policy
from marco.rollout import play, rollout, rollouts
from marco.types import Episode, Spec


class TrainingState(NamedTuple):
    """What a learner has learned, and from how much."""

    learner: LearnerState
    samples: Int[Array, ""]
    """Steps taken in the world."""
    updates: Int[Array, ""]


@partial(jax.jit, static_argnames=("learner", "spec"))
def begin(key: PRNGKeyArray, learner: Learner, spec: Spec, which: Int[ArrayLike, ""] = 0) -> TrainingState:
    """Before the first sample; as which of several teams of one world."""
    return TrainingState(learner.init(key, spec, which), jnp.int32(0), jnp.int32(0))


@partial(jax.jit, static_argnames="learner", donate_argnames="state")
def train(
    key: PRNGKeyArray,
    env: Environment,
    learner: Learner,
    state: TrainingState,
    updates: Int[ArrayLike, ""],
) -> tuple[TrainingState, Metrics]:
    """Play and learn `updates` times; also the means over these of what was seen on the way.

    World and state are arguments, so that a fresh model of the same shape costs no compilation, and
    seeds are one more `vmap`. Randomness depends on the key and on the updates done so far, so that a
    training cut in two ends as one in a piece does.
    """
    one_more, nothing = _updating(key, env, learner, state)
    # A number of updates that all seeds share: none of them has to wait, or be copied, for another.
    state, sums = jax.lax.fori_loop(0, updates, lambda _, carry: one_more(carry), (state, nothing))
    return state, jax.tree.map(lambda total: total / jnp.maximum(updates, 1), sums)


@partial(jax.jit, static_argnames="learner", donate_argnames="state")
def train_until(
    key: PRNGKeyArray,
    env: Environment,
    learner: Learner,
    state: TrainingState,
    target: Int[ArrayLike, ""],
) -> tuple[TrainingState, Metrics]:
    """`train`, until at least `target` steps were taken in the world, those before it included."""
    first = state.updates
    one_more, nothing = _updating(key, env, learner, state)
    state, sums = jax.lax.while_loop(lambda carry: carry[0].samples < target, one_more, (state, nothing))
    return state, jax.tree.map(lambda total: total / jnp.maximum(state.updates - first, 1), sums)


def train_in_host(
    key: PRNGKeyArray, world: HostWorld, learner: Learner, state: TrainingState, updates: int
) -> tuple[TrainingState, Metrics]:
    """`train` in a world outside JAX: episodes come one by one from a host loop, learning is compiled."""
    if updates < 1:
        raise ValueError(f"updates must be at least 1, got {updates}.")
    seen = []
    for _ in range(updates):
        key_play, key_learn = jax.random.split(jax.random.fold_in(key, state.updates))
        policy = learner.act(state.learner, state.samples)
        keys = jax.random.split(key_play, learner.episodes_per_update)
        played = [play(key_one, world, policy) for key_one in keys]
        episodes = jax.tree.map(lambda *leaves: jnp.stack(leaves, axis=1), *played)
        state, metrics = _learn(key_learn, learner, state, episodes)
        seen.append(metrics)
    return state, jax.tree.map(lambda *values: jnp.stack(values).mean(), *seen)


Carry = tuple[TrainingState, Metrics]
"""Where training stands, and the sums of what was seen on the way."""


def _updating(
    key: PRNGKeyArray, env: Environment, learner: Learner, state: TrainingState
) -> tuple[Callable[[Carry], Carry], Metrics]:
    """One more update, as the body of a loop; and sums of nothing, to begin with."""

    def one_more(carry: Carry) -> Carry:
        state, sums = carry
        state, metrics = _update(jax.random.fold_in(key, state.updates), env, learner, state)
        return state, jax.tree.map(jnp.add, sums, metrics)

    shapes = jax.eval_shape(lambda s: _update(key, env, learner, s)[1], state)
    return one_more, jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)


def _update(
    key: PRNGKeyArray, env: Environment, learner: Learner, state: TrainingState
) -> tuple[TrainingState, Metrics]:
    key_play, key_learn = jax.random.split(key)
    policy = learner.act(state.learner, state.samples)
    keys = jax.random.split(key_play, learner.episodes_per_update)
    episodes = jax.vmap(rollout, in_axes=(0, None, None), out_axes=1)(keys, env, policy)
    return _learn(key_learn, learner, state, episodes)


@partial(jax.jit, static_argnames="learner", donate_argnames="state")
def _learn(
    key: PRNGKeyArray, learner: Learner, state: TrainingState, episodes: Episode
) -> tuple[TrainingState, Metrics]:
    learned, metrics = learner.update(key, state.learner, episodes)
    samples = state.samples + jnp.sum(episodes.mask, dtype=jnp.int32)
    metrics = metrics | {"return": jnp.mean(episodes.undiscounted_return)}
    return TrainingState(learned, samples, state.updates + 1), metrics


class Best(NamedTuple):
    """The best of several trainings, by its greedy value in the world it was trained in."""

    state: TrainingState
    values: Float[Array, " R"]
    """What each of them is worth there."""
    samples: Int[Array, ""]
    """Steps taken in the world by all of them, choosing included."""


@partial(jax.jit, static_argnames=("learner", "restarts", "episodes"))
def train_best(
    key: PRNGKeyArray,
    env: Environment,
    learner: Learner,
    updates: Int[ArrayLike, ""],
    restarts: int,
    episodes: int = 4_096,
) -> Best:
    """Train from `restarts` beginnings and keep the team that is worth most over so many episodes.

    For worlds whose samples are free: learned ones. Optimisers differ more by luck than by settings.
    """
    keys = restart_keys(key, restarts)
    states = begin_several(keys.begin, learner, env.spec)
    states, _ = jax.vmap(lambda key, state: train(key, env, learner, state, updates))(keys.train, states)
    return best_of(keys.judge, env, learner, states, episodes)


def begin_several(keys: Key[Array, " R"], learner: Learner, spec: Spec) -> TrainingState:
    """Several teams of one world, before the first sample."""
    each = jnp.arange(keys.shape[0])
    return jax.vmap(lambda key, which: begin(key, learner, spec, which))(keys, each)


class RestartKeys(NamedTuple):
    """Keys of several trainings in one world."""

    begin: Key[Array, " R"]
    train: Key[Array, " R"]
    judge: Key[Array, " R"]
    again: Key[Array, " R"]


def restart_keys(key: PRNGKeyArray, restarts: int) -> RestartKeys:
    """One key for each use of each restart."""
    each = jax.vmap(lambda one: jax.random.split(one, 4), out_axes=1)(jax.random.split(key, restarts))
    return RestartKeys(*each)


def best_of(
    keys: Key[Array, " R"],
    env: Environment,
    learner: Learner,
    states: TrainingState,
    episodes: int = 4_096,
) -> Best:
    """Of several trainings (first axis) the one whose greedy team is worth most over so many episodes."""
    policies = jax.vmap(lambda state: learner.greedy(state.learner))(states)
    values, taken = jax.vmap(lambda key, policy: judge(key, env, policy, episodes))(keys, policies)
    best: TrainingState = jax.tree.map(lambda leaf: leaf[jnp.argmax(values)], states)
    return Best(best, values, jnp.sum(states.samples + taken))


def judge(
    key: PRNGKeyArray, env: Environment, policy: Policy, episodes: int = 4_096
) -> tuple[Float[Array, ""], Int[Array, ""]]:
    """What a team is worth over so many episodes, and how many steps these took."""
    judged = rollouts(key, env, policy, episodes)
    return judged.undiscounted_return.mean(), judged.length.sum()
