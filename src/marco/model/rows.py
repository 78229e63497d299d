"""Real episodes as rows to learn from: steps, timesteps and starts, padded to a constant size."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from marco.types import NO_ACTION, Episode, Spec

REWARD_VALUES = 16
"""Rewards that take at most this many values are categorical; others are continuous."""


class Steps(NamedTuple):
    """One row per real step: what the dynamics, the reward and the termination are learned from."""

    state: Float[Array, "rows S"]
    actions: Int[Array, "rows N"]
    next_state: Float[Array, "rows S"]
    reward: Float[Array, " rows"]
    terminated: Bool[Array, " rows"]
    episode: Int[Array, " rows"]


class Timesteps(NamedTuple):
    """One row per observed timestep, ends included: for observations and available actions."""

    state: Float[Array, "rows S"]
    previous_actions: Int[Array, "rows N"]
    observation: Float[Array, "rows N O"]
    available: Bool[Array, "rows N A"]
    episode: Int[Array, " rows"]


class Data(NamedTuple):
    """All real data of an environment. Rows after the counts are padding, so that shapes stay the same."""

    steps: Steps
    num_steps: Int[Array, ""]
    timesteps: Timesteps
    num_timesteps: Int[Array, ""]
    starts: Float[Array, "rows S"]
    num_starts: Int[Array, ""]
    reward_values: Float[Array, " R"]
    """The rewards that occur, sorted, the last one repeated; empty if the reward is continuous."""


def gather(spec: Spec, episodes: Episode, capacity: int | None = None) -> Data:
    """Rows from episodes (axes T B), padded for `capacity` real steps in all. Runs on the host."""
    episode: Any = jax.tree.map(np.asarray, episodes)
    _check_finite(spec, episode)
    mask = np.asarray(episode.mask)
    count, begun = int(mask.sum()), mask.shape[1]
    capacity = count if capacity is None else capacity
    if not 1 <= count <= capacity:
        raise ValueError(f"a model needs from 1 to capacity={capacity} real steps, got {count}.")
    number = np.broadcast_to(np.arange(begun, dtype=np.int32), (len(mask) + 1, begun))
    steps: Any = Steps(
        episode.state[:-1][mask],
        episode.actions[mask].astype(np.int32),
        episode.state[1:][mask],
        episode.reward[mask],
        episode.terminated[mask],
        number[:-1][mask],
    )
    observed = np.concatenate([np.ones((1, begun), bool), mask])
    nobody = np.full_like(episode.actions[:1], NO_ACTION)
    previous = np.concatenate([nobody, episode.actions]).astype(np.int32)
    timesteps: Any = Timesteps(
        episode.state[observed],
        previous[observed],
        episode.observation[observed],
        episode.available[observed],
        number[observed],
    )
    return Data(
        Steps(*(pad_rows(leaf, capacity) for leaf in steps)),
        jnp.int32(count),
        # Every episode has one timestep more than steps, and one step at least.
        Timesteps(*(pad_rows(leaf, 2 * capacity) for leaf in timesteps)),
        jnp.int32(count + begun),
        pad_rows(episode.state[0], capacity),
        jnp.int32(begun),
        jnp.asarray(reward_values(steps.reward)),
    )


def reward_values(rewards: Float[np.ndarray, " rows"]) -> Float[np.ndarray, " R"]:
    """The values that rewards take, if they are few; else none, and the reward is continuous."""
    found = np.unique(rewards)
    if len(found) > REWARD_VALUES:
        return np.zeros(0, np.float32)
    return found[np.minimum(np.arange(REWARD_VALUES), len(found) - 1)].astype(np.float32)


def pad_rows(rows: np.ndarray, capacity: int) -> Array:
    """Rows with zeros after them, up to a capacity: the shape stays the same as data grow."""
    padding = np.zeros((capacity - len(rows), *rows.shape[1:]), rows.dtype)
    return jax.device_put(np.concatenate([rows, padding]))


def _check_finite(spec: Spec, episode: Episode) -> None:
    """Refuse data that nothing can be learned from, by name and place."""
    for name in ("state", "observation", "reward"):
        values = np.asarray(getattr(episode, name))
        wrong = np.argwhere(~np.isfinite(values))
        if len(wrong):
            time, number = wrong[0][:2]
            raise ValueError(
                f"{spec.name}: {name} is {values[tuple(wrong[0])]} at step {time} of episode {number}: "
                "a model learns from finite numbers only; repair the environment or leave the episode out."
            )
