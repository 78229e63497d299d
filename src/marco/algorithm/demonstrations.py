"""Demonstration prefixes: imagined episodes that begin with the actions of real ones.

A team trained from scratch would have to find by chance what the exploration policy has found already. Here
some episodes begin with the actions of a real episode, up to a step drawn from all real ones (compare JSRL,
Go-Explore and Backplay). The actions are *recorded*: they carry no information about the episode in which
they are replayed. A live exploration policy would leak privileged state through its actions; teams then rely
on signals that are absent at execution (a return of 0.55 instead of 0.74 on the riddle).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray

from marco.environments.base import ByMember, Environment, Transition
from marco.model.rows import pad_rows
from marco.sampling import draw_below
from marco.types import Episode, Spec


class Demonstrations(NamedTuple):
    """The actions of real episodes, step after step; rows from `number` on are padding."""

    actions: Int[Array, "*S rows N"]
    first: Int[Array, "*S rows"]
    """The row of the first step of the same episode."""
    number: Int[Array, "*S"]


def demonstrations_from(episodes: Episode, capacity: int) -> Demonstrations:
    """The actions of real episodes (axes T B). Runs on the host."""
    taken = np.asarray(episodes.mask).T  # B T
    actions = np.asarray(episodes.actions, np.int32).swapaxes(0, 1)[taken]
    lengths = taken.sum(1)
    first = np.repeat(np.cumsum(lengths) - lengths, lengths).astype(np.int32)
    return Demonstrations(pad_rows(actions, capacity), pad_rows(first, capacity), jnp.int32(len(actions)))


class DemonstrationState(NamedTuple):
    """The state of the inner environment, and what is still to be replayed."""

    inner: Any
    row: Int[Array, ""]
    """The row of the action that is replayed at this step."""
    left: Int[Array, ""]
    """How many steps are still to be replayed."""


class DemonstrationEnvironment(Environment):
    """An environment in which a share of the episodes begin with the actions of a real one.

    While they are replayed the recorded action is the only one available; an agent whose recorded action is
    not available is free to choose. So learners need to know nothing of it.
    """

    inner: Environment
    real: Demonstrations
    share: Float[Array, ""]

    @property
    def spec(self) -> Spec:
        return self.inner.spec

    def by_member(self) -> ByMember | None:
        inner = self.inner.by_member()
        return inner and inner.within(self, lambda env: env.inner)

    def initial(self, key: PRNGKeyArray) -> DemonstrationState:
        key_inner, key_share, key_step = jax.random.split(key, 3)
        step = draw_below(key_step, self.real.number)
        first = self.real.first[step]
        replayed = jax.random.uniform(key_share) < self.share
        return DemonstrationState(self.inner.initial(key_inner), first, jnp.where(replayed, step - first, 0))

    def transition(
        self, key: PRNGKeyArray, state: DemonstrationState, actions: Int[Array, " N"]
    ) -> Transition:
        after = self.inner.transition(key, state.inner, actions)
        row = jnp.minimum(state.row + 1, self.real.first.shape[0] - 1)
        return after._replace(world=DemonstrationState(after.world, row, jnp.maximum(state.left - 1, 0)))

    def observe(self, state: DemonstrationState) -> Float[Array, "N O"]:
        return self.inner.observe(state.inner)

    def available(self, state: DemonstrationState) -> Bool[Array, "N A"]:
        """The recorded action while it is replayed."""
        free = self.inner.available(state.inner)
        recorded = self.real.actions[state.row][:, None] == jnp.arange(free.shape[-1])
        bound = (state.left > 0) & jnp.any(recorded & free, axis=-1, keepdims=True)
        return jnp.where(bound, recorded, free)

    def central(self, state: DemonstrationState) -> Float[Array, " S"]:
        return self.inner.central(state.inner)


@jax.jit
def with_demonstrations(envs: Environment, real: Demonstrations, share: Float[ArrayLike, ""]) -> Any:
    """Every seed's environment with a share of demonstration prefixes."""
    return jax.vmap(lambda env, own: DemonstrationEnvironment(env, own, jnp.float32(share)))(envs, real)
