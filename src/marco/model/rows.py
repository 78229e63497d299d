"""Real episodes as rows to learn from: steps, moments and starts, padded to a size that never changes."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from marco.types import NO_ACTION, Episode, Spec

REWARD_VALUES = 16
"""Rewards that take at most so many values are classes; others are numbers."""


class Steps(NamedTuple):
    """One row per real step: what the dynamics, the reward and the termination are learned from."""

    state: Float[Array, "rows S"]
    actions: Int[Array, "rows N"]
    following: Float[Array, "rows S"]
    reward: Float[Array, " rows"]
    terminated: Bool[Array, " rows"]
    episode: Int[Array, " rows"]


class Moments(NamedTuple):
    """One row per moment that was shown, ends included: for observations and available actions."""

    state: Float[Array, "rows S"]
    previous_actions: Int[Array, "rows N"]
    observation: Float[Array, "rows N O"]
    available: Bool[Array, "rows N A"]
    episode: Int[Array, " rows"]


class Data(NamedTuple):
    """All that is known of a world. Rows after the counts are padding, so that its shape stays the same."""

    steps: Steps
    num_steps: Int[Array, ""]
    moments: Moments
    num_moments: Int[Array, ""]
    starts: Float[Array, "rows S"]
    num_starts: Int[Array, ""]
    reward_values: Float[Array, " R"]
    """The rewards there are, in order, the last one repeated; empty where they are numbers."""


def gather(spec: Spec, episodes: Episode, capacity: int | None = None) -> Data:
    """Rows from episodes with the axes T B, padded for `capacity` real steps in all."""
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
    shown = np.concatenate([np.ones((1, begun), bool), mask])
    nobody = np.full_like(episode.actions[:1], NO_ACTION)
    previous = np.concatenate([nobody, episode.actions]).astype(np.int32)
    moments: Any = Moments(
        episode.state[shown],
        previous[shown],
        episode.observation[shown],
        episode.available[shown],
        number[shown],
    )
    return Data(
        Steps(*(_padded(leaf, capacity) for leaf in steps)),
        jnp.int32(count),
        # Every episode has one moment more than steps, and one step at least.
        Moments(*(_padded(leaf, 2 * capacity) for leaf in moments)),
        jnp.int32(count + begun),
        _padded(episode.state[0], capacity),
        jnp.int32(begun),
        jnp.asarray(reward_values(steps.reward)),
    )


def reward_values(rewards: Float[np.ndarray, " rows"]) -> Float[np.ndarray, " R"]:
    """The values that rewards take, if they are few; else none, and rewards are numbers."""
    found = np.unique(rewards)
    if len(found) > REWARD_VALUES:
        return np.zeros(0, np.float32)
    return found[np.minimum(np.arange(REWARD_VALUES), len(found) - 1)].astype(np.float32)


def _padded(rows: np.ndarray, capacity: int) -> Array:
    padding = np.zeros((capacity - len(rows), *rows.shape[1:]), rows.dtype)
    return jnp.asarray(np.concatenate([rows, padding]))


def _check_finite(spec: Spec, episode: Episode) -> None:
    """Refuse what nothing can be learned from, by name and place."""
    for name in ("state", "observation", "reward"):
        values = np.asarray(getattr(episode, name))
        wrong = np.argwhere(~np.isfinite(values))
        if len(wrong):
            time, number = wrong[0][:2]
            raise ValueError(
                f"{spec.name}: {name} is {values[tuple(wrong[0])]} at step {time} of episode {number}: "
                "a model learns from finite numbers only; repair the world or leave the episode out."
            )
