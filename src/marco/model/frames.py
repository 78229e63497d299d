"""A state with a memory: what is now, what was at the last timesteps, and what the agents did in between.

Where the state of an environment is no more than what its agents observe now, it tells too little of what
comes next: a position without its velocity. With the last few timesteps it tells more. Only what is now has
to be predicted; what was is known, and moves down by one. Before the start of an episode there is nothing:
then all classes are off, numbers are 0, and that nobody acted tells it from a true timestep.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from marco.types import Categorical, Episode, Feature, Spec, action_table, previous_actions, total_width


@lru_cache
def with_frames(spec: Spec, frames: int) -> Spec:
    """The same environment, but its state is that of the last `frames` timesteps, with the actions between.

    The present comes first, as it was; then the timesteps before it, the latest first; then the actions, the
    latest first.
    """
    past = [_or_nothing(_ago(feature, ago)) for ago in range(1, frames) for feature in spec.state]
    acted = [
        Categorical(f"{ago} ago: {agent.name} {component.name}", component.size + 1, blank=True)
        for ago in range(1, frames)
        for agent in spec.agents
        for component in agent.actions
    ]
    return replace(spec, state=(*spec.state, *past, *acted), frames=frames)


def present(spec: Spec) -> tuple[Feature, ...]:
    """The features of the state that are of now: all, if nothing is remembered."""
    acted = (spec.frames - 1) * sum(len(agent.actions) for agent in spec.agents)
    return spec.state[: (len(spec.state) - acted) // spec.frames]


def timesteps(spec: Spec) -> tuple[Feature, ...]:
    """The features of all timesteps, without the actions; past classes are numbered as those of now are.

    The columns are the same: what is nothing, before the start of an episode, counts as class 0.
    """
    now = present(spec)
    return tuple(_ago(feature, ago) if ago else feature for ago in range(spec.frames) for feature in now)


def remember(
    spec: Spec, s: Float[Array, "*batch S"], a: Int[Array, "*batch N"], now: Float[Array, "*batch present"]
) -> Float[Array, "*batch S"]:
    """The state after a step from s: what was the present is past, and what is oldest is forgotten."""
    if spec.frames == 1:
        return now
    width, code = now.shape[-1], action_codes(spec, a)
    past, acted = s[..., : (spec.frames - 1) * width], s[..., spec.frames * width :]
    return jnp.concatenate([now, past, code, acted[..., : acted.shape[-1] - code.shape[-1]]], axis=-1)


def nothing(spec: Spec) -> Float[np.ndarray, " S"]:
    """What is remembered before the start of an episode: every class is off, every number 0."""
    off = [feature.low if isinstance(feature, Categorical) else 0.0 for feature in spec.state]
    return np.repeat(np.array(off, np.float32), [feature.width for feature in spec.state])


def stacked(spec: Spec, episodes: Episode) -> Float[Array, "timesteps *batch S"]:
    """The states of episodes (time first) with their memory; `spec` is that of `with_frames`."""
    shown = jnp.asarray(episodes.state)
    blank = nothing(spec)[: total_width(present(spec))]
    acted = action_codes(spec, previous_actions(episodes))
    frames = [_delayed(shown, ago, blank) for ago in range(spec.frames)]
    return jnp.concatenate([*frames, *(_delayed(acted, ago, 0.0) for ago in range(spec.frames - 1))], axis=-1)


def forget(spec: Spec, s: Float[Array, "*batch S"], frames: int) -> Float[Array, "*batch S"]:
    """The state as it would be if only the last `frames` timesteps were remembered; its columns stay."""
    width = total_width(present(spec))
    shown, acted = spec.frames * width, spec.state_width - spec.frames * width
    kept = [np.arange(shown) < frames * width, np.arange(acted) * (spec.frames - 1) < (frames - 1) * acted]
    return jnp.where(np.concatenate(kept), s, nothing(spec))


def action_codes(spec: Spec, actions: Int[Array, "*batch N"]) -> Float[Array, "*batch codes"]:
    """A one-hot code for each component of every agent's action; all zeros for no action."""
    table = jnp.asarray(action_table(spec, factored=True))
    hot = jnp.einsum("...na,nah->...nh", jax.nn.one_hot(actions, spec.num_actions), table)
    widths = [sum(component.size for component in agent.actions) for agent in spec.agents]
    return jnp.concatenate([hot[..., index, :width] for index, width in enumerate(widths)], axis=-1)


def _ago(feature: Feature, ago: int) -> Feature:
    return replace(feature, name=f"{ago} ago: {feature.name}")


def _or_nothing(feature: Feature) -> Feature:
    """The feature of a timestep that may not have been: all columns off are then a class of their own."""
    if not isinstance(feature, Categorical) or feature.blank:
        return feature
    labels = ("nothing", *(feature.label(index) for index in range(feature.size)))
    return replace(feature, size=feature.size + 1, blank=True, labels=labels)


def _delayed(rows: Float[Array, "timesteps *batch columns"], ago: int, blank: Any) -> Array:
    """What was shown so many timesteps ago; `blank` before the start."""
    before = jnp.broadcast_to(jnp.asarray(blank, rows.dtype), rows[:ago].shape)
    return jnp.concatenate([before, rows[: len(rows) - ago]])
