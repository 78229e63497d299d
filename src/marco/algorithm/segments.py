"""Training inside the models in pieces: a run can say where it stands, and stop soon when asked to.

A training cut in pieces ends as one in a piece does, bit for bit, and no piece is compiled for itself.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from marco.algorithm.threads import cores, side_by_side
from marco.algorithm.vectorised import train_restarts, train_until_all
from marco.environments.base import Environment
from marco.learners.base import Learner, Metrics
from marco.learners.training import TrainingState

Worlds = Callable[[float], Environment]
"""The seeds' models, as they are when so much of a training is over."""

PIECES = 10
"""Of each training. More would cost time, since what runs beside a piece has to wait for its end."""


class Piece(NamedTuple):
    """Where a training stands after one more piece; seeds first."""

    share: float
    """How much of the training is over."""
    states: TrainingState
    returns: Float[np.ndarray, "seeds *R"]
    """The mean return while training, of the last piece."""
    steps: Int[np.ndarray, "seeds *R"]
    """Steps taken in the model since the training began."""


def train_for(
    keys: Key[Array, " seeds"],
    worlds: Worlds,
    learner: Learner,
    states: TrainingState,
    steps: int,
) -> Iterator[Piece]:
    """Train each seed's policy in its model until at least so many more steps were taken there."""
    first = np.asarray(states.samples)
    piece = Piece(0.0, states, np.zeros(first.shape), np.zeros_like(first))
    for number in range(1, PIECES + 1):
        targets = jnp.asarray(first + steps * number // PIECES, jnp.int32)
        trained, metrics = train_until_all(keys, worlds(piece.share), learner, piece.states, targets)
        piece = _after(piece, number / PIECES, trained, metrics)
        yield piece


def train_restarts_for(
    keys: Key[Array, "seeds R"],
    worlds: Worlds,
    learner: Learner,
    states: TrainingState,
    updates: int,
) -> Iterator[Piece]:
    """Train several teams in each seed's model."""
    first = np.asarray(states.samples)
    piece = Piece(0.0, states, np.zeros(first.shape), np.zeros_like(first))
    ends = np.arange(PIECES + 1) * updates // PIECES
    for number, more in enumerate(np.diff(ends), start=1):
        shared = (worlds(piece.share), learner, int(more))
        trained, metrics = by_groups(train_restarts, (keys, piece.states), *shared)
        piece = _after(piece, number / PIECES, trained, metrics)
        yield piece


def by_groups(function: Any, by_team: tuple[Any, ...], *shared: Any) -> Any:
    """A compiled function of teams (axes seeds R) and of what they share, on groups of them side by side."""
    groups = groups_of(jax.tree.leaves(by_team)[0].shape[1])
    if groups == 1:  # nothing to take apart: states hold the replayed episodes and can be large
        return function(*by_team, *shared)
    calls = [(*own, *shared) for own in _apart(by_team, groups)]
    function.lower(*calls[0]).compile()  # threads that find nothing compiled would all compile it
    return _together(side_by_side(lambda call: function(*call), calls))


def groups_of(teams: int) -> int:
    """Into how many groups to part teams: an accelerator has them all at once."""
    most = min(teams, cores()) if jax.default_backend() == "cpu" else 1
    return max(count for count in range(1, most + 1) if teams % count == 0)


@partial(jax.jit, static_argnames="groups")
def _apart(teams: Any, groups: int) -> list[Any]:
    """Teams (axes seeds R) in groups of the same size."""
    parted = jax.tree.map(lambda leaf: jnp.split(leaf, groups, axis=1), teams)
    return [
        jax.tree.map(lambda leaves, which=which: leaves[which], parted, is_leaf=lambda x: isinstance(x, list))
        for which in range(groups)
    ]


@jax.jit
def _together(groups: list[Any]) -> Any:
    """The inverse of `_apart`."""
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=1), *groups)


def _after(before: Piece, share: float, states: TrainingState, metrics: Metrics) -> Piece:
    # A piece may have found nothing left to do, when a short training is cut into many.
    moved = np.asarray(states.updates) > np.asarray(before.states.updates)
    returns = np.where(moved, np.asarray(metrics["return"]), before.returns)
    steps = before.steps + np.asarray(states.samples) - np.asarray(before.states.samples)
    return Piece(share, states, returns, steps)
