"""What there is nothing to learn of: features that have always been as they are guessed.

A food that nobody has eaten is where it was, and an agent that sees all of the state sees copies of it. Most
environments have such features. Each saves a network in every fit and in every imagined step, and is right.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from marco.model.frames import present
from marco.model.likelihoods import Layout
from marco.model.rows import Data
from marco.types import Feature, Spec, total_width

LEAST_ROWS, LEAST_OTHERS = 100, 20
"""From fewer rows, or fewer in which a feature is not as it mostly is, nothing is certain."""


class Certain(NamedTuple):
    """The numbers of the categorical features of a model that are certain, by component."""

    dynamics: tuple[int, ...] = ()
    """As they were before."""
    observation: tuple[int, ...] = ()
    """As some feature of the state is."""


def certain(spec: Spec, seeds: Sequence[Data]) -> Certain:
    """Those that have always been so, in the data of every seed."""
    each = [_of_one(spec, data) for data in seeds]
    return Certain(
        *(tuple(np.flatnonzero(np.all(found, axis=0)).tolist()) for found in zip(*each, strict=True))
    )


def _of_one(spec: Spec, data: Data) -> tuple[Bool[np.ndarray, " F"], Bool[np.ndarray, " G"]]:
    observed = tuple(feature for agent in spec.agents for feature in agent.observation)
    steps, timesteps = int(data.num_steps), int(data.num_timesteps)
    now = _classes(present(spec), np.asarray(data.steps.state)[:steps])
    then = _classes(present(spec), np.asarray(data.steps.next_state)[:steps])
    seen = np.asarray(data.timesteps.observation)[:timesteps]
    every = [seen[:, i, : agent.observation_width] for i, agent in enumerate(spec.agents)]
    shown = _classes(observed, np.concatenate(every, -1))
    state = _classes(spec.state, np.asarray(data.timesteps.state)[:timesteps])
    copies = [any((one == own).all() for own in state.T) for one in shown.T]
    enough = steps >= LEAST_ROWS
    stays = (now == then).all(0) & _varies(now)
    return stays & enough, np.array(copies, bool) & _varies(shown) & enough


def _varies(classes: Int[np.ndarray, "rows F"]) -> Bool[np.ndarray, " F"]:
    """Which features were often enough not of the class that they mostly are.

    One that hardly varied costs a small network, which is right at once. But it may well behave otherwise
    when more was explored, and what is certain decides which programs are compiled.
    """
    most = [np.bincount(one).max(initial=0) for one in classes.T]
    return len(classes) - np.array(most, int) >= LEAST_OTHERS


def _classes(
    features: tuple[Feature, ...], rows: Float[np.ndarray, "rows columns"]
) -> Int[np.ndarray, "rows F"]:
    """The classes of the features that rows begin with."""
    return Layout(features).classes_of(rows[:, : total_width(features)])
