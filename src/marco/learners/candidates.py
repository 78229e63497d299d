"""Teams to choose among, of every seed: the best of each learner, and what each is worth in the model."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from marco.learners.parallel import EVALUATION_EPISODES
from marco.policies.base import Policy


class Best(NamedTuple):
    """The best team of one learner so far, of every seed, and its value when it was chosen."""

    policy: Policy
    value: Float[Array, " S"]


def better(before: Best | None, policies: Policy, values: Float[Array, "S R"]) -> Best:
    """The best of an earlier team and of new ones (axes S R)."""
    return best_of(policies, values) if before is None else _better(before, policies, values)


@jax.jit
def best_of(policies: Policy, values: Float[Array, "S R"]) -> Best:
    """The best of several policies of every seed (axes S R)."""

    def one(policies: Policy, values: Float[Array, " R"]) -> Best:
        index = jnp.argmax(values)
        return Best(jax.tree.map(lambda leaf: leaf[index], policies), values[index])

    return jax.vmap(one)(policies, values)


@jax.jit
def _better(before: Best, policies: Policy, values: Float[Array, "S R"]) -> Best:
    def one(old: Best, new: Best) -> Best:
        return jax.tree.map(lambda then, now: jnp.where(new.value > old.value, now, then), old, new)

    return jax.vmap(one)(before, best_of(policies, values))


def winner(best: tuple[Best, ...]) -> Int[np.ndarray, " S"]:
    """Which learner's team is the best, for every seed."""
    return np.argmax(np.stack([np.asarray(one.value) for one in best]), axis=0)


def winning_value(best: tuple[Best, ...]) -> Float[np.ndarray, " S"]:
    """The value of the best team of every seed."""
    return np.max(np.stack([np.asarray(one.value) for one in best]), axis=0)


def winning_policy(best: tuple[Best, ...], seed: int) -> Policy:
    """The best team of one seed (by its index)."""
    one = best[int(winner(best)[seed])]
    # Gathered to one device: evaluation is small, and runs where the host can look at it.
    return jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf)[seed]), one.policy)


class Imagined(NamedTuple):
    """What every candidate of every seed earns in the seed's last model, by fresh episodes.

    Minus infinity, where a seed has no such candidate.
    """

    by_member: Float[Array, "C S M"]
    """The mean return in each member of the model."""
    deviation: Float[Array, "C S"]
    """The standard deviation of a single return."""
    episodes: Int[ArrayLike, ""] = EVALUATION_EPISODES
    """How many episodes each candidate played."""

    @property
    def mean(self) -> Float[np.ndarray, "C S"]:
        """The mean return over all members."""
        return np.asarray(self.by_member, float).mean(-1)

    @property
    def standard_error(self) -> Float[np.ndarray, "C S"]:
        """That of the mean, by chance alone."""
        return np.asarray(self.deviation, float) / np.sqrt(np.asarray(self.episodes))

    @property
    def doubt(self) -> Float[np.ndarray, "C S"]:
        """The standard deviation over members, beyond what chance makes of the episodes of each.

        A team that found out where one member is wrong is worth much there, and little in the others.
        """
        known = np.asarray(self.by_member, float)
        if (members := known.shape[-1]) == 1:
            return np.zeros(known.shape[:-1])
        there = np.isfinite(known).all(-1, keepdims=True)
        chance = np.asarray(self.deviation, float) ** 2 * members / np.asarray(self.episodes)
        return np.sqrt(np.maximum(0.0, np.where(there, known, 0.0).var(-1, ddof=1) - chance))

    @property
    def cautious(self) -> Float[np.ndarray, "C S"]:
        """The lower end over members: by it a team is chosen where none has played for real."""
        return self.mean - self.doubt


class ImaginedReturn(NamedTuple):
    """The return of the chosen team of every seed in its model."""

    mean: Float[np.ndarray, " S"]
    low: Float[np.ndarray, " S"]
    """In the member of the model that thinks least of it."""
    high: Float[np.ndarray, " S"]
    """In the member that thinks most of it."""


def imagined_return(imagined: Imagined, best: tuple[Best, ...]) -> ImaginedReturn:
    """That of the winners."""
    own = np.take_along_axis(np.asarray(imagined.by_member), winner(best)[None, :, None], axis=0)[0]
    return ImaginedReturn(own.mean(-1), own.min(-1), own.max(-1))


def chosen_by(best: tuple[Best, ...], values: Float[ArrayLike, "C S"]) -> tuple[Best, ...]:
    """The same teams with other values to be chosen by."""
    return tuple(
        one._replace(value=jnp.asarray(value, jnp.float32))
        for one, value in zip(best, np.asarray(values), strict=True)
    )
