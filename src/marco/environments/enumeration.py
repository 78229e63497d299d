"""Enumeration of a finite environment: its starts, available joint actions, and their random outcomes.

Batches are pytrees of numpy arrays with one row per state. Exact values, exact model errors and tables are
built from these few functions.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from marco.environments.base import FiniteEnvironment

Method = Literal["start", "available", "observe", "central", "outcome_probabilities", "successor"]


class Outcomes(NamedTuple):
    """The outcomes of positive probability, one row each."""

    row: Int[np.ndarray, " L"]
    """The row of the batch of which it is an outcome."""
    outcome: Int[np.ndarray, " L"]
    probability: Float[np.ndarray, " L"]


def each(env: FiniteEnvironment, method: Method, *batch: Any, least: int = 1) -> Any:
    """Call a method of the environment on every row of a batch."""
    return padded(partial(_vmapped, method), env, *batch, least=least)


def starts(env: FiniteEnvironment) -> Outcomes:
    """The outcomes of the start."""
    return _possible(np.asarray(env.start_probabilities())[None])


def outcomes(
    env: FiniteEnvironment, states: Any, actions: Int[np.ndarray, "M N"], least: int = 1
) -> Outcomes:
    """The outcomes of one joint action in each state."""
    return _possible(each(env, "outcome_probabilities", states, actions, least=least))


def joint_actions(
    weights: Float[np.ndarray, "M N A"] | Bool[np.ndarray, "M N A"],
) -> tuple[Int[np.ndarray, " L"], Int[np.ndarray, "L N"], Float[np.ndarray, " L"]]:
    """All joint actions of positive weight: the row, the actions, and the product of the agents' weights.

    The weights are action probabilities, or the mask of the available actions. The last agent runs fastest.
    """
    row = np.arange(weights.shape[0])
    product = np.ones(weights.shape[0])
    chosen = np.zeros((weights.shape[0], 0), np.int32)
    for agent in range(weights.shape[1]):
        which, action = np.nonzero(weights[row, agent])
        product = product[which] * weights[row[which], agent, action]
        chosen = np.concatenate([chosen[which], action[:, None].astype(np.int32)], axis=1)
        row = row[which]
    return row, chosen, product


def rows(batch: Any, which: np.ndarray) -> Any:
    """The chosen rows of a batch."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[which], batch)


def row_bytes(batch: Any) -> UInt8[np.ndarray, "M bytes"]:
    """The bytes of each row, equal for equal rows."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(batch)]
    flat = [np.ascontiguousarray(leaf).reshape(len(leaf), -1).view(np.uint8) for leaf in leaves]
    return np.concatenate(flat, axis=1)


def normalised(probabilities: Any) -> Float[np.ndarray, "..."]:
    """In double precision: thirds that were rounded become thirds again."""
    exact = np.asarray(probabilities, np.float64)
    return exact / exact.sum(-1, keepdims=True)


def padded(function: Callable[..., Any], static: Any, *batch: Any, least: int = 1) -> Any:
    """Call a compiled function on a batch padded to a power of two, so that few sizes are compiled."""
    number = len(jax.tree.leaves(batch)[0])
    size = max(1 << (number - 1).bit_length(), least)
    index = np.minimum(np.arange(size), number - 1)
    return rows(function(static, *rows(batch, index)), np.arange(number))


def _possible(probabilities: Any) -> Outcomes:
    chance = normalised(probabilities)
    row, outcome = np.nonzero(chance)
    return Outcomes(row, outcome.astype(np.int32), chance[row, outcome])


@partial(jax.jit, static_argnums=0)
def _vmapped(method: Method, env: FiniteEnvironment, *batch: Any) -> Any:
    return jax.vmap(getattr(env, method))(*batch)
