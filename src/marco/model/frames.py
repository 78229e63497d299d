"""A state with a memory: what is now, what was at the last timesteps, and what the agents did in between.

Where the state of an environment is no more than what its agents observe now, it tells too little of what
comes next: a position without its velocity. With the last few timesteps it tells more. Only what is now has
to be predicted; what was is known, and moves down by one. Before the start of an episode all was as at its
start, so that nothing seems to have moved; that nobody acted tells it from a true timestep.
"""

from dataclasses import replace
from functools import lru_cache

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
    past = [
        replace(feature, name=f"{ago} ago: {feature.name}")
        for ago in range(1, frames)
        for feature in spec.state
    ]
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
    """The features of all timesteps, without the actions."""
    return spec.state[: spec.frames * len(present(spec))]


def begin(spec: Spec, now: Float[Array, "*batch present"]) -> Float[Array, "*batch S"]:
    """The state at the start of an episode: nothing was otherwise before, and nobody has acted."""
    acted = spec.state_width - spec.frames * now.shape[-1]
    return jnp.concatenate([now] * spec.frames + [jnp.zeros((*now.shape[:-1], acted))], axis=-1)


def remember(
    spec: Spec, s: Float[Array, "*batch S"], a: Int[Array, "*batch N"], now: Float[Array, "*batch present"]
) -> Float[Array, "*batch S"]:
    """The state after a step from s: what was the present is past, and what is oldest is forgotten."""
    if spec.frames == 1:
        return now
    width, code = now.shape[-1], action_codes(spec, a)
    past, acted = s[..., : (spec.frames - 1) * width], s[..., spec.frames * width :]
    return jnp.concatenate([now, past, code, acted[..., : acted.shape[-1] - code.shape[-1]]], axis=-1)


def stacked(spec: Spec, episodes: Episode) -> Float[Array, "timesteps *batch S"]:
    """The states of episodes (time first) with their memory; `spec` is that of `with_frames`."""
    shown, acted = jnp.asarray(episodes.state), action_codes(spec, previous_actions(episodes))
    # Before the first timestep it is as at the first, where nobody has acted yet.
    before = [np.maximum(np.arange(len(shown)) - ago, 0) for ago in range(spec.frames)]
    return jnp.concatenate([shown[t] for t in before] + [acted[t] for t in before[:-1]], axis=-1)


def forget(spec: Spec, s: Float[Array, "*batch S"], frames: int) -> Float[Array, "*batch S"]:
    """The state as if the episode had begun `frames` timesteps ago, at most: its columns stay."""
    width = total_width(present(spec))
    shown = spec.frames * width
    source = np.arange(shown) - np.maximum(np.arange(shown) // width - (frames - 1), 0) * width
    acted = s[..., shown:]
    kept = np.arange(acted.shape[-1]) * (spec.frames - 1) < (frames - 1) * acted.shape[-1]
    return jnp.concatenate([s[..., source], jnp.where(kept, acted, 0.0)], axis=-1)


def action_codes(spec: Spec, actions: Int[Array, "*batch N"]) -> Float[Array, "*batch codes"]:
    """A one-hot code for each component of every agent's action; all zeros for no action."""
    table = jnp.asarray(action_table(spec, factored=True))
    hot = jnp.einsum("...na,nah->...nh", jax.nn.one_hot(actions, spec.num_actions), table)
    widths = [sum(component.size for component in agent.actions) for agent in spec.agents]
    return jnp.concatenate([hot[..., index, :width] for index, width in enumerate(widths)], axis=-1)
