"""Replay of the last episodes: a ring of fixed size, as pure functions."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from marco.sampling import draw_below
from marco.types import Episode, Spec


class Buffer(NamedTuple):
    """The last `capacity` episodes, batch axis first, and how many were ever added."""

    episodes: Episode
    added: Int[Array, ""]

    @property
    def capacity(self) -> int:
        """How many episodes it holds at most."""
        return self.episodes.reward.shape[0]

    @property
    def size(self) -> Int[Array, ""]:
        """How many episodes it holds now."""
        return jnp.minimum(self.added, self.capacity)


def empty_buffer(spec: Spec, capacity: int) -> Buffer:
    """An empty buffer for episodes of an environment."""
    time, agents = spec.horizon, spec.num_agents
    shown = (capacity, time + 1)
    flags = jnp.zeros((capacity, time), bool)
    episodes = Episode(
        observation=jnp.zeros((*shown, agents, spec.observation_width)),
        state=jnp.zeros((*shown, spec.state_width)),
        available=jnp.zeros((*shown, agents, spec.num_actions), bool),
        actions=jnp.zeros((capacity, time, agents), jnp.int32),
        reward=jnp.zeros((capacity, time)),
        terminated=flags,
        truncated=flags,
        mask=flags,
    )
    return Buffer(episodes, jnp.int32(0))


def add(buffer: Buffer, episodes: Episode) -> Buffer:
    """Put a batch of episodes (axes T B) in the place of the oldest. B must divide the capacity."""
    batch = episodes.reward.shape[1]
    start = buffer.added % buffer.capacity

    def write(ring: Array, new: Array) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(ring, jnp.moveaxis(new, 1, 0), start, axis=0)

    return Buffer(jax.tree.map(write, buffer.episodes, episodes), buffer.added + batch)


def sample(key: PRNGKeyArray, buffer: Buffer, batch: int) -> Episode:
    """Draw a batch of episodes (axes T B) uniformly, with replacement, from those it holds."""
    rows = draw_below(key, buffer.size, (batch,))

    def half(rows: Array) -> Episode:
        return jax.tree.map(lambda ring: ring[rows], buffer.episodes)

    # In a loop, or XLA fuses reading the ring with writing it, and then copies all of it at every update.
    drawn = jax.lax.map(half, rows, batch_size=-(-batch // 2))
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, 1), drawn)
