"""Open-loop error: how far a model drifts from the truth over many steps without correction."""

from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from marco.environments.base import Environment
from marco.model.components import Model
from marco.model.description import Description
from marco.model.views import joint_observation_spec
from marco.policies.base import Policy
from marco.rollout import rollouts
from marco.types import Continuous, Spec, blocks, concatenate_observations


class OpenLoopError(NamedTuple):
    """The mean Euclidean error of each continuous feature, after 1, 2, ... steps."""

    features: tuple[str, ...]
    error: tuple[tuple[float | None, ...], ...]
    """By feature, then by step; None after the end of every episode."""
    episodes: int
    real_steps: int
    """Steps taken in the true environment for this: to be counted apart."""


def open_loop_error(
    key: PRNGKeyArray,
    model: Model,
    env: Environment,
    policy: Policy,
    episodes: int,
    steps: int,
    description: Description | None = None,
) -> OpenLoopError:
    """Play fresh true episodes, replay their actions in the model from the same starts, and compare.

    The model is sampled as a learner experiences it, with a member drawn per step. A joint-observation model
    is compared with the true joint observation. A described model is compared in described columns.
    """
    places = [
        (feature.name, block)
        for feature, block in zip(model.spec.state, blocks(model.spec.state), strict=True)
        if isinstance(feature, Continuous)
    ]
    if not places:
        raise ValueError(
            f"the state of {model.spec.name} has no continuous features: use exact_report instead."
        )
    if not 1 <= steps <= env.spec.horizon or episodes < 1:
        raise ValueError(
            f"needs from 1 to {env.spec.horizon} steps of {env.spec.name} and at least 1 episode, "
            f"got steps={steps} and episodes={episodes}."
        )
    key_true, key_model = jax.random.split(key)
    played = rollouts(key_true, env, policy, episodes)
    true = env.spec
    if description is not None:
        played, true = description.episodes(played), description.spec(true)
    truth = _true_states(model.spec, true, played.state, played.observation)
    imagined = _imagined(key_model, model, truth[0], played.actions[:steps])
    alive = np.asarray(played.mask[:steps])
    gaps = np.asarray(imagined) - np.asarray(truth[1 : steps + 1])
    error = [_by_step(np.linalg.norm(gaps[..., block], axis=-1), alive) for _, block in places]
    names = tuple(name for name, _ in places)
    return OpenLoopError(names, tuple(error), episodes, int(np.asarray(played.mask).sum()))


def _true_states(
    learned: Spec, true: Spec, state: Float[Array, "T B S"], observation: Float[Array, "T B N O"]
) -> Float[Array, "T B dimensions"]:
    if learned.state == true.state:
        return state
    if learned.state == joint_observation_spec(true).state:
        return concatenate_observations(true, observation)
    raise ValueError(
        f"the model's state is neither that of {true.name} nor its joint observation: "
        "compare it with the environment that it was learned from."
    )


@jax.jit
def _imagined(
    key: PRNGKeyArray, model: Model, start: Float[Array, "B S"], actions: Int[Array, "T B N"]
) -> Float[Array, "T B S"]:
    def one_step(s: Array, given: tuple[PRNGKeyArray, Array]) -> tuple[Array, Array]:
        key, a = given
        member, (noise,) = model.noise(key, "dynamics")
        next_s = model.draw_next_state(noise, member, s, a)
        return next_s, next_s

    def one_episode(key: PRNGKeyArray, start: Array, actions: Array) -> Array:
        keys = jax.random.split(key, len(actions))
        return jax.lax.scan(one_step, start, (keys, actions))[1]

    play = partial(jax.vmap, in_axes=(0, 0, 1), out_axes=1)(one_episode)
    return play(jax.random.split(key, start.shape[0]), start, actions)


def _by_step(distance: Float[np.ndarray, "T B"], alive: np.ndarray) -> tuple[float | None, ...]:
    return tuple(
        float(row[here].mean()) if here.any() else None for row, here in zip(distance, alive, strict=True)
    )
