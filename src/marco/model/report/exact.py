"""The exact error of a model, in environments whose random outcomes can be enumerated."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from marco.environments.base import FiniteEnvironment
from marco.environments.enumeration import each, joint_actions, row_bytes, rows, starts
from marco.model.components import Known, Model
from marco.types import Spec


class Pairs(NamedTuple):
    """Every (s, a) that can come up, with what can follow."""

    state: Float[np.ndarray, "P S"]
    actions: Int[np.ndarray, "P N"]
    following: Float[np.ndarray, "P K S"]
    chance: Float[np.ndarray, "P K"]
    """The probability of each following state; equal states are added up in the first of them."""


class DynamicsError(NamedTuple):
    """How far the ensemble's mixture is from the true kernel, pair by pair."""

    total_variation: Float[np.ndarray, " P"]
    impossible: Float[np.ndarray, " P"]
    """The probability of next states that cannot be: all error in what is certain given what is chance."""
    seen: Int[np.ndarray, " P"]
    """How often the pair is in the data."""


def reachable_pairs(env: FiniteEnvironment, limit: int = 200_000) -> Pairs:
    """All states that any team can reach within the horizon, with all joint actions available there."""
    states = each(env, "start", starts(env).outcome)
    known: set[bytes] = set()
    found: list[Pairs] = []
    for _ in range(env.spec.horizon):
        states = _fresh(env, states, known)
        if not len(jax.tree.leaves(states)[0]):
            break
        row, actions, _ = joint_actions(each(env, "available", states))
        if len(row) + sum(len(pairs.actions) for pairs in found) > limit:
            raise ValueError(f"{env.spec.name} has over {limit} pairs of state and joint action: too many.")
        pairs, states = _outcomes(env, rows(states, row), actions)
        found.append(pairs)
    return Pairs(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


def dynamics_error(model: Model, pairs: Pairs, data: Any = None) -> DynamicsError:
    """Total variation between the mixture of the members and the true kernel, for discrete states."""
    if isinstance(model.dynamics, Known) or model.dynamics.layout.num_values:
        raise ValueError("the exact error is for learned dynamics of discrete states.")
    chance = np.asarray(_mixture(model, pairs.state, pairs.actions, pairs.following), np.float64)
    possible = pairs.chance > 0.0
    model_chance = np.where(possible, chance, 0.0)
    impossible = np.clip(1.0 - model_chance.sum(-1), 0.0, 1.0)
    variation = 0.5 * (np.abs(model_chance - pairs.chance).sum(-1) + impossible)
    seen = np.zeros(len(variation), int) if data is None else _visits(model.spec, pairs, data)
    return DynamicsError(variation, impossible, seen)


def _fresh(env: FiniteEnvironment, states: Any, known: set[bytes]) -> Any:
    """The states whose central state was not met before, once each."""
    if not len(jax.tree.leaves(states)[0]):
        return states
    fresh = []
    for row, key in enumerate(row_bytes(each(env, "central", states))):
        if key.tobytes() not in known:
            known.add(key.tobytes())
            fresh.append(row)
    return rows(states, np.array(fresh, int))


def _outcomes(env: FiniteEnvironment, states: Any, actions: Int[np.ndarray, "P N"]) -> tuple[Pairs, Any]:
    """What can follow each pair, and the states in which the episode goes on."""
    chance = each(env, "outcome_probabilities", states, actions)
    number, most = chance.shape
    row, outcome = np.repeat(np.arange(number), most), np.tile(np.arange(most, dtype=np.int32), number)
    after = each(env, "successor", rows(states, row), actions[row], outcome)
    following = each(env, "central", after.world).reshape(number, most, -1)
    pairs = _merged(Pairs(each(env, "central", states), actions, following, chance))
    return pairs, rows(after.world, ~after.terminated & (chance.ravel() > 0.0))


def _merged(pairs: Pairs) -> Pairs:
    """Outcomes that lead to the same state are one."""
    same = (pairs.following[:, :, None] == pairs.following[:, None, :]).all(-1)
    first = np.argmax(same, axis=-1)
    chance = np.zeros(pairs.chance.shape)
    np.add.at(chance, (np.arange(len(first))[:, None], first), np.asarray(pairs.chance, np.float64))
    return pairs._replace(chance=chance / chance.sum(-1, keepdims=True))


@jax.jit
def _mixture(
    model: Model, state: Float[Array, "P S"], actions: Int[Array, "P N"], following: Float[Array, "P K S"]
) -> Float[Array, "P K"]:
    """The probability of each following state: the mean of the members'."""
    dynamics = model.dynamics
    if isinstance(dynamics, Known):
        raise TypeError("known dynamics have no members.")

    def one(s: Array, a: Array, reached: Array) -> Array:
        classes = dynamics.layout.split(reached).classes
        said = dynamics.predict(model.inputs.before_step(s, a), classes).log_probability
        chosen = jnp.take_along_axis(said, classes[None, :, None], axis=-1)[..., 0]
        return jnp.exp(chosen.sum(-1)).mean()

    return jax.vmap(lambda s, a, many: jax.vmap(lambda reached: one(s, a, reached))(many))(
        state, actions, following
    )


def _visits(spec: Spec, pairs: Pairs, data: Any) -> Int[np.ndarray, " P"]:
    count = int(data.num_steps)
    seen: dict[bytes, int] = {}
    states, taken = np.asarray(data.steps.state[:count]), np.asarray(data.steps.actions[:count])
    for state, actions in zip(states, taken, strict=True):
        name = _name(state, actions)
        seen[name] = seen.get(name, 0) + 1
    return np.array([seen.get(_name(s, a), 0) for s, a in zip(pairs.state, pairs.actions, strict=True)])


def _name(state: np.ndarray, actions: np.ndarray) -> bytes:
    return np.asarray(state, np.float32).tobytes() + np.asarray(actions, np.int32).tobytes()
