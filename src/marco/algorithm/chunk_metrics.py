"""What was collected, in numbers: its return, and how little the model had known of it. From data alone."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from marco.algorithm.config import MarcoConfig
from marco.environments.base import Environment
from marco.model.uncertainty import BonusName, uncertainty
from marco.model.views import ModelKind, models_of, views
from marco.types import Episode, Spec


class Taken(NamedTuple):
    """The steps of a chunk as one model sees them; rows that are not `real` are padding."""

    state: Float[Array, "*seeds rows S"]
    actions: Int[Array, "*seeds rows N"]
    following: Float[Array, "*seeds rows S"]
    observation: Float[Array, "*seeds rows N O"]
    """After the step."""
    real: Bool[Array, "*seeds rows"]


def chunk_metrics(
    settings: MarcoConfig, spec: Spec, worlds: Environment | None, chunk: list[Episode]
) -> dict[str, list[Any]]:
    """What a chunk paid each seed, and, where there was a model before it, how uncertain that was of it."""
    numbers: dict[str, list[Any]] = {"return": [whole_return(episodes) for episodes in chunk]}
    if worlds is not None:
        steps = [taken(settings.kind, spec, episodes, settings.chunk) for episodes in chunk]
        rows = jax.tree.map(lambda *leaves: jnp.stack(leaves), *steps)
        numbers["uncertainty"] = mean_uncertainty(worlds, settings.bonus, rows).tolist()
    return numbers


def whole_return(episodes: Episode) -> float | None:
    """The mean return of the episodes (axes T B) that were not cut off; None if all of them were."""
    whole = np.asarray(episodes.terminated | episodes.truncated).any(0)
    returns = np.asarray(episodes.undiscounted_return)[whole]
    return float(returns.mean()) if whole.any() else None


def taken(kind: ModelKind, spec: Spec, episodes: Episode, capacity: int) -> tuple[Taken, ...]:
    """The steps of episodes (axes T B), for each model of a learned world. Runs on the host."""
    mask = np.asarray(episodes.mask)
    found = []
    for _, view in views(kind, spec, episodes):
        state, observation = np.asarray(view.state), np.asarray(view.observation)
        rows: Any = (state[:-1], view.actions, state[1:], observation[1:], mask)
        found.append(Taken(*(_padded(leaf, mask, capacity) for leaf in rows)))
    return tuple(found)


@partial(jax.jit, static_argnames="bonus")
def mean_uncertainty(
    worlds: Environment, bonus: BonusName, steps: tuple[Taken, ...]
) -> Float[Array, " seeds"]:
    """r-tilde of real steps under each seed's models: the mean over steps of the sum over models."""

    def one(world: Environment, steps: tuple[Taken, ...]) -> Float[Array, ""]:
        total = jnp.float32(0.0)
        for model, rows in zip(models_of(world), steps, strict=True):
            r_tilde = jax.vmap(partial(uncertainty, model, bonus))(*rows[:-1])
            total += jnp.sum(jnp.where(rows.real, r_tilde, 0.0)) / jnp.maximum(rows.real.sum(), 1)
        return total

    return jax.vmap(one)(worlds, steps)


def _padded(leaf: Any, mask: np.ndarray, capacity: int) -> Any:
    rows = np.asarray(leaf)[mask]
    return np.concatenate([rows, np.zeros((capacity - len(rows), *rows.shape[1:]), rows.dtype)])
