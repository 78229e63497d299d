"""Imagined episodes that first retrace real ones: a team is brought to where it would not get by itself.

A team trained from scratch has to find by chance what the exploration policy has found already. Here some
of its episodes begin with the actions of a real one, up to a moment drawn from all that were seen. These
actions know nothing of the episode they are replayed in, so that they give nothing away. An exploration
policy that led the team live would: it sees the state, and teams would learn to trust signs nobody gives.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from marco.environments.base import Environment, Transition
from marco.sampling import draw_below
from marco.types import Episode, Spec


class Demonstrations(NamedTuple):
    """What was done in real episodes, step after step; rows from `number` on are padding."""

    actions: Int[Array, "*seeds rows N"]
    first: Int[Array, "*seeds rows"]
    """The row of the first step of the same episode."""
    number: Int[Array, "*seeds"]


def demonstrations_from(episodes: Episode, capacity: int) -> Demonstrations:
    """The actions of real episodes (axes T B), in rows."""
    taken = np.asarray(episodes.mask).T  # B T
    actions = np.asarray(episodes.actions).swapaxes(0, 1)[taken]
    lengths = taken.sum(1)
    begins = np.cumsum(lengths) - lengths
    rows = np.zeros((capacity, actions.shape[-1]), np.int32)
    first = np.zeros(capacity, np.int32)
    rows[: len(actions)], first[: len(actions)] = actions, np.repeat(begins, lengths)
    return Demonstrations(jnp.asarray(rows), jnp.asarray(first), jnp.int32(len(actions)))


class DemonstrationState(NamedTuple):
    """A moment of the inner world, and what is to be demonstration_share."""

    inner: Any
    row: Int[Array, ""]
    """Of the action that a real episode had at this moment."""
    left: Int[Array, ""]
    """How many steps are still to be demonstration_share."""


class DemonstrationEnvironment(Environment):
    """A world in which a share of the episodes retrace real ones up to a moment drawn from all of these.

    Till then the recorded action is the only one available, if it is available at all; an agent that cannot
    do what was done then is free to choose. Learners need to know nothing of it.
    """

    inner: Environment
    past: Demonstrations
    share: Float[Array, ""]

    @property
    def spec(self) -> Spec:
        """As the inner world's."""
        return self.inner.spec

    def initial(self, key: PRNGKeyArray) -> DemonstrationState:
        """As in the inner world; what to retrace is drawn too."""
        key_inner, key_share, key_moment = jax.random.split(key, 3)
        moment = draw_below(key_moment, self.past.number)
        first = self.past.first[moment]
        demonstration_share = jax.random.uniform(key_share) < self.share
        return DemonstrationState(
            self.inner.initial(key_inner), first, jnp.where(demonstration_share, moment - first, 0)
        )

    def transition(
        self, key: PRNGKeyArray, world: DemonstrationState, actions: Int[Array, " N"]
    ) -> Transition:
        """As in the inner world."""
        after = self.inner.transition(key, world.inner, actions)
        row = jnp.minimum(world.row + 1, self.past.first.shape[0] - 1)
        return after._replace(world=DemonstrationState(after.world, row, jnp.maximum(world.left - 1, 0)))

    def observe(self, world: DemonstrationState) -> Float[Array, "N O"]:
        """As in the inner world."""
        return self.inner.observe(world.inner)

    def available(self, world: DemonstrationState) -> Bool[Array, "N A"]:
        """What was done then, as long as it is demonstration_share."""
        free = self.inner.available(world.inner)
        recorded = self.past.actions[world.row][:, None] == jnp.arange(free.shape[-1])
        bound = (world.left > 0) & jnp.any(recorded & free, axis=-1, keepdims=True)
        return jnp.where(bound, recorded, free)

    def central(self, world: DemonstrationState) -> Float[Array, " S"]:
        """As in the inner world."""
        return self.inner.central(world.inner)
