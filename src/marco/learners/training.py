"""The one training loop of all learners in all environments, true or learned: play, update, repeat."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Int, PRNGKeyArray

from marco.data.replay import Buffer, sample
from marco.environments.base import Environment, HostWorld
from marco.environments.user_code import during
from marco.learners.base import Learner, LearnerState, Metrics
from marco.rollout import play, rollouts
from marco.types import Episode, Spec


class TrainingState(NamedTuple):
    """What a learner has learned, and from how much."""

    learner: LearnerState
    samples: Int[Array, ""]
    """Environment steps."""
    updates: Int[Array, ""]


@partial(jax.jit, static_argnames=("learner", "spec"))
def init(key: PRNGKeyArray, learner: Learner, spec: Spec) -> TrainingState:
    """The state before the first update."""
    return TrainingState(learner.init(key, spec), jnp.int32(0), jnp.int32(0))


@partial(jax.jit, static_argnames="learner", donate_argnames="state")
def train(
    key: PRNGKeyArray,
    env: Environment,
    learner: Learner,
    state: TrainingState,
    updates: Int[ArrayLike, ""],
) -> tuple[TrainingState, Metrics]:
    """Play and update `updates` times; returns the new state and the mean metrics over these updates.

    Environment and state are arguments, so that a refitted model of the same shape needs no compilation and
    seeds are one more `vmap`. Randomness depends on the key and on the updates done so far: a training that
    is cut in two ends with the same bits as an uninterrupted one.
    """
    one_more, zeros = _loop_body(key, env, learner, state)
    # The number of updates is common to all seeds, so no seed waits for, or is copied because of, another.
    state, sums = jax.lax.fori_loop(0, updates, lambda _, carry: one_more(carry), (state, zeros))
    return state, jax.tree.map(lambda total: total / jnp.maximum(updates, 1), sums)


@partial(jax.jit, static_argnames="learner", donate_argnames="state")
def train_until(
    key: PRNGKeyArray,
    env: Environment,
    learner: Learner,
    state: TrainingState,
    target: Int[ArrayLike, ""],
) -> tuple[TrainingState, Metrics]:
    """`train` until `state.samples` is at least `target`; earlier samples count too."""
    first = state.updates
    one_more, zeros = _loop_body(key, env, learner, state)
    state, sums = jax.lax.while_loop(lambda carry: carry[0].samples < target, one_more, (state, zeros))
    return state, jax.tree.map(lambda total: total / jnp.maximum(state.updates - first, 1), sums)


def train_in_host(
    key: PRNGKeyArray, env: HostWorld, learner: Learner, state: TrainingState, updates: int
) -> tuple[TrainingState, Metrics]:
    """`train` in an environment outside JAX: a host loop plays the episodes, the update is compiled."""
    if updates < 1:
        raise ValueError(f"updates must be at least 1, got {updates}.")
    seen = []
    for _ in range(updates):
        key_play, key_learn = jax.random.split(jax.random.fold_in(key, state.updates))
        policy = learner.act(state.learner, state.samples)
        keys = jax.random.split(key_play, learner.episodes_per_update)
        played: list[Episode] = []
        for key_one in keys:
            with during(f"episode {int(state.updates) * len(keys) + len(played) + 1} of the run"):
                played.append(play(key_one, env, policy))
        episodes = jax.tree.map(lambda *leaves: jnp.stack(leaves, axis=1), *played)
        state, metrics = _learn(key_learn, learner, state, episodes)
        seen.append(metrics)
    return state, jax.tree.map(lambda *values: jnp.stack(values).mean(), *seen)


def train_on(
    key: PRNGKeyArray, recorded: Buffer, learner: Learner, state: TrainingState, updates: Int[ArrayLike, ""]
) -> TrainingState:
    """`train` on recorded episodes alone, drawn from a buffer: nothing is played."""

    def one_more(_: Array, state: TrainingState) -> TrainingState:
        key_draw, key_learn = jax.random.split(jax.random.fold_in(key, state.updates))
        return _learn(key_learn, learner, state, sample(key_draw, recorded, learner.episodes_per_update))[0]

    return jax.lax.fori_loop(0, updates, one_more, state)


Carry = tuple[TrainingState, Metrics]
"""The state of a training, and the sums of its metrics."""


def _loop_body(
    key: PRNGKeyArray, env: Environment, learner: Learner, state: TrainingState
) -> tuple[Callable[[Carry], Carry], Metrics]:
    """One more update as the body of a loop, and the sums to start from."""

    def one_more(carry: Carry) -> Carry:
        state, sums = carry
        state, metrics = _update(jax.random.fold_in(key, state.updates), env, learner, state)
        return state, jax.tree.map(jnp.add, sums, metrics)

    shapes = jax.eval_shape(lambda s: _update(key, env, learner, s)[1], state)
    return one_more, jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)


def _update(key: PRNGKeyArray, env: Environment, learner: Learner, state: TrainingState) -> Carry:
    key_play, key_learn = jax.random.split(key)
    policy = learner.act(state.learner, state.samples)
    episodes = rollouts(key_play, env, policy, learner.episodes_per_update)
    return _learn(key_learn, learner, state, episodes)


@partial(jax.jit, static_argnames="learner", donate_argnames="state")
def _learn(key: PRNGKeyArray, learner: Learner, state: TrainingState, episodes: Episode) -> Carry:
    learned, metrics = learner.update(key, state.learner, episodes)
    samples = state.samples + jnp.sum(episodes.mask, dtype=jnp.int32)
    metrics = metrics | {"return": jnp.mean(episodes.undiscounted_return)}
    return TrainingState(learned, samples, state.updates + 1), metrics
