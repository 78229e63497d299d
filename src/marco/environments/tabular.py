"""Any finite Dec-POMDP given by arrays: a table is a world too."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy.typing import ArrayLike

from marco.environments.base import FiniteEnvironment, Transition
from marco.types import ActionComponent, Agent, Categorical, Spec


class TabularWorld(NamedTuple):
    """The state, and what the agents last saw of it (-1 at the start, when nothing is seen yet)."""

    state: Int[Array, ""]
    seen: Int[Array, " N"]


class Tabular(FiniteEnvironment):
    """A Dec-POMDP given by its tables.

    Joint actions and joint observations are numbered with the last agent fastest. Entering a `terminal`
    state ends the episode. Make one with `from_tables`, which checks the numbers.
    """

    P: Float[Array, "S JA S"]
    R: Float[Array, "S JA"]
    O: Float[Array, "JA S JO"]  # noqa: E741  (the paper's letter)
    d0: Float[Array, " S"]
    mask: Bool[Array, "S N A"]
    terminal: Bool[Array, " S"]
    actions: tuple[int, ...] = eqx.field(static=True)
    observations: tuple[int, ...] = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    name: str = eqx.field(static=True)

    @property
    def spec(self) -> Spec:
        """The shape of the problem."""
        return _spec(self.name, self.d0.shape[0], self.actions, self.observations, self.horizon)

    def start_probabilities(self) -> Float[Array, " K"]:
        """The start distribution."""
        return self.d0

    def start(self, outcome: Int[Array, ""]) -> TabularWorld:
        """A start state, of which nothing is seen."""
        return TabularWorld(outcome, jnp.full((len(self.actions),), -1, jnp.int32))

    def outcome_probabilities(self, world: TabularWorld, actions: Int[Array, " N"]) -> Float[Array, " K"]:
        """The probabilities of all pairs of a next state and a joint observation."""
        joint = self._joint_action(actions)
        return (self.P[world.state, joint][:, None] * self.O[joint]).ravel()

    def successor(
        self, world: TabularWorld, actions: Int[Array, " N"], outcome: Int[Array, ""]
    ) -> Transition:
        """The pair of a next state and a joint observation that was drawn."""
        following, seen = jnp.divmod(outcome, self.O.shape[-1])
        each = jnp.stack(jnp.unravel_index(seen, self.observations)).astype(jnp.int32)
        reward = self.R[world.state, self._joint_action(actions)]
        return Transition(TabularWorld(following, each), reward, self.terminal[following])

    def observe(self, world: TabularWorld) -> Float[Array, "N O"]:
        """What each agent last saw."""
        return jax.nn.one_hot(world.seen, max(self.observations), dtype=jnp.float32)

    def available(self, world: TabularWorld) -> Bool[Array, "N A"]:
        """What the mask of the state allows."""
        return self.mask[world.state]

    def central(self, world: TabularWorld) -> Float[Array, " S"]:
        """The state."""
        return jax.nn.one_hot(world.state, self.d0.shape[0], dtype=jnp.float32)

    def _joint_action(self, actions: Int[Array, " N"]) -> Int[Array, ""]:
        strides = np.cumprod([1, *self.actions[:0:-1]])[::-1]
        return jnp.sum(actions * jnp.asarray(strides, jnp.int32))


def from_tables(
    P: ArrayLike,
    R: ArrayLike,
    O: ArrayLike,  # noqa: E741  (the paper's letter)
    d0: ArrayLike,
    *,
    actions: Sequence[int],
    observations: Sequence[int],
    horizon: int,
    available: ArrayLike | None = None,
    terminal: ArrayLike | None = None,
    name: str = "tabular",
) -> Tabular:
    """A world from the tables P[s, a, s'], R[s, a], O[a, s', o] and d0[s], checked.

    `actions` and `observations` count those of each agent; a and o number the joint ones, last agent
    fastest. `available[s, agent, action]` and `terminal[s]` are optional.
    """
    tables = {"P": np.asarray(P, float), "R": np.asarray(R, float), "O": np.asarray(O, float)}
    tables["d0"] = np.asarray(d0, float)
    if len(actions) != len(observations):
        raise ValueError(
            f"actions counts {len(actions)} agents and observations {len(observations)}: give both for each."
        )
    states, joint, seen = tables["d0"].size, int(np.prod(actions)), int(np.prod(observations))
    agents, widest = len(actions), max(actions)
    shapes = {"P": (states, joint, states), "R": (states, joint), "O": (joint, states, seen), "d0": (states,)}
    for letter, shape in shapes.items():
        _check_shape(letter, tables[letter], shape)
    for letter in ("P", "O", "d0"):
        _check_probabilities(letter, tables[letter])
    exists = np.arange(widest) < np.asarray(actions)[:, None]
    mask = (
        np.broadcast_to(exists, (states, agents, widest))
        if available is None
        else np.asarray(available, bool)
    )
    _check_shape("available", mask, (states, agents, widest))
    if not (mask & exists).any(-1).all():
        state, agent = np.argwhere(~(mask & exists).any(-1))[0]
        raise ValueError(f"available[{state}, {agent}] allows no action: allow at least one everywhere.")
    ends = np.zeros(states, bool) if terminal is None else np.asarray(terminal, bool)
    _check_shape("terminal", ends, (states,))
    world = Tabular(
        **{letter: jnp.asarray(table, jnp.float32) for letter, table in tables.items()},
        mask=jnp.asarray(mask & exists),
        terminal=jnp.asarray(ends),
        actions=tuple(int(n) for n in actions),
        observations=tuple(int(n) for n in observations),
        horizon=int(horizon),
        name=name,
    )
    world.spec  # noqa: B018  (a bad horizon is refused here, not at the first step)
    return world


def _check_shape(name: str, table: np.ndarray, shape: tuple[int, ...]) -> None:
    if table.shape != shape:
        raise ValueError(f"{name} must have the shape {shape}, got {table.shape}.")
    if not np.isfinite(table).all():
        raise ValueError(
            f"{name} holds {table[~np.isfinite(table)][0]}: every entry must be a finite number."
        )


def _check_probabilities(name: str, table: np.ndarray) -> None:
    if table.min() < 0.0:
        where = np.unravel_index(int(table.argmin()), table.shape)
        raise ValueError(f"{name}{list(map(int, where))} is {table.min()}: a probability cannot be negative.")
    off = np.abs(table.sum(-1) - 1.0)
    if off.max() > 1e-5:
        where = np.unravel_index(int(off.argmax()), off.shape)
        total = table.sum(-1)[where]
        raise ValueError(f"{name}{list(map(int, where))} sums to {total}: probabilities must sum to 1.")


@lru_cache
def _spec(
    name: str, states: int, actions: tuple[int, ...], observations: tuple[int, ...], horizon: int
) -> Spec:
    agents = tuple(
        Agent(str(i), (ActionComponent("action", acts),), (Categorical("seen", sees + 1, blank=True),))
        for i, (acts, sees) in enumerate(zip(actions, observations, strict=True))
    )
    return Spec(name, agents, (Categorical("state", states),), horizon)
