"""Any finite Dec-POMDP given by arrays, as an environment."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy.typing import ArrayLike

from marco.environments.base import FiniteEnvironment, Transition
from marco.types import ActionComponent, Agent, Categorical, Episode, Spec


class TabularState(NamedTuple):
    """The state, and what the agents last saw of it (-1 at the start, when nothing is seen yet)."""

    state: Int[Array, ""]
    seen: Int[Array, " N"]


class Labels(NamedTuple):
    """Names for the reader: of the agents, the states, and each agent's actions and observations."""

    agents: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    actions: tuple[tuple[str, ...], ...] = ()
    observations: tuple[tuple[str, ...], ...] = ()


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
    labels: Labels = eqx.field(static=True, default=Labels())

    @property
    def spec(self) -> Spec:
        sizes = (self.d0.shape[0], self.actions, self.observations)
        return _spec(self.name, *sizes, self.horizon, self.labels)

    def draw_timestep(self, axes: Any, episode: Episode, t: int) -> None:
        from marco.environments.pictures import draw_as_text, draw_grid, grid_of

        grid = grid_of(self.spec)
        if grid is None:
            draw_as_text(self.spec, axes, episode, t)
        else:
            draw_grid(self.spec, grid, axes, episode, t)

    def start_probabilities(self) -> Float[Array, " K"]:
        return self.d0

    def start(self, outcome: Int[Array, ""]) -> TabularState:
        """A start state, of which nothing is seen."""
        return TabularState(outcome, jnp.full((len(self.actions),), -1, jnp.int32))

    def outcome_probabilities(self, world: TabularState, actions: Int[Array, " N"]) -> Float[Array, " K"]:
        """The probabilities of all pairs of a next state and a joint observation."""
        joint = self._joint_action(actions)
        return (self.P[world.state, joint][:, None] * self.O[joint]).ravel()

    def successor(
        self, world: TabularState, actions: Int[Array, " N"], outcome: Int[Array, ""]
    ) -> Transition:
        """The pair of a next state and a joint observation that was drawn."""
        following, seen = jnp.divmod(outcome, self.O.shape[-1])
        each = jnp.stack(jnp.unravel_index(seen, self.observations)).astype(jnp.int32)
        reward = self.R[world.state, self._joint_action(actions)]
        return Transition(TabularState(following, each), reward, self.terminal[following])

    def observe(self, world: TabularState) -> Float[Array, "N O"]:
        """What each agent last saw."""
        return jax.nn.one_hot(world.seen, max(self.observations), dtype=jnp.float32)

    def available(self, world: TabularState) -> Bool[Array, "N A"]:
        """What the mask of the state allows."""
        return self.mask[world.state]

    def central(self, world: TabularState) -> Float[Array, " S"]:
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
    labels: Labels = Labels(),  # noqa: B008  (a constant)
) -> Tabular:
    """An environment from the tables P[s, a, s'], R[s, a], O[a, s', o] and d0[s], checked.

    `actions` and `observations` count those of each agent; a and o number the joint ones, last agent
    fastest. `available[s, agent, action]` and `terminal[s]` are optional.
    """
    if len(actions) != len(observations):
        raise ValueError(
            f"actions counts {len(actions)} agents and observations {len(observations)}: give both for each."
        )
    tables = {letter: np.asarray(table, float) for letter, table in zip("PRO", (P, R, O), strict=True)}
    tables["d0"] = np.asarray(d0, float)
    states = tables["d0"].size
    _check_tables(tables, int(np.prod(actions)), int(np.prod(observations)))
    ends = np.zeros(states, bool) if terminal is None else np.asarray(terminal, bool)
    _check_shape("terminal", ends, (states,))
    env = Tabular(
        **{letter: jnp.asarray(table, jnp.float32) for letter, table in tables.items()},
        mask=jnp.asarray(_mask(available, states, actions)),
        terminal=jnp.asarray(ends),
        actions=tuple(int(n) for n in actions),
        observations=tuple(int(n) for n in observations),
        horizon=int(horizon),
        name=name,
        labels=labels,
    )
    env.spec  # noqa: B018  (a bad horizon is refused here, not at the first step)
    return env


def _check_tables(tables: dict[str, np.ndarray], joint_actions: int, joint_observations: int) -> None:
    states = tables["d0"].size
    shapes = {
        "P": (states, joint_actions, states),
        "R": (states, joint_actions),
        "O": (joint_actions, states, joint_observations),
        "d0": (states,),
    }
    for letter, shape in shapes.items():
        _check_shape(letter, tables[letter], shape)
    for letter in ("P", "O", "d0"):
        _check_probabilities(letter, tables[letter])


def _mask(available: ArrayLike | None, states: int, actions: Sequence[int]) -> Bool[np.ndarray, "S N A"]:
    """The available actions, padding excluded; all that exist, if nothing is given."""
    shape = (states, len(actions), max(actions))
    exists = np.arange(max(actions)) < np.asarray(actions)[:, None]
    given = np.ones(shape, bool) if available is None else np.asarray(available, bool)
    _check_shape("available", given, shape)
    mask = given & exists
    if not mask.any(-1).all():
        state, agent = np.argwhere(~mask.any(-1))[0]
        raise ValueError(f"available[{state}, {agent}] allows no action: allow at least one everywhere.")
    return mask


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
    name: str,
    states: int,
    actions: tuple[int, ...],
    observations: tuple[int, ...],
    horizon: int,
    labels: Labels,
) -> Spec:
    agents = []
    for i, (acts, sees) in enumerate(zip(actions, observations, strict=True)):
        does = labels.actions[i] if labels.actions else ()
        seen = ("nothing", *labels.observations[i]) if labels.observations else ()
        agents.append(
            Agent(
                labels.agents[i] if labels.agents else str(i),
                (ActionComponent("action", acts, does),),
                (Categorical("seen", sees + 1, blank=True, labels=seen),),
            )
        )
    return Spec(name, tuple(agents), (Categorical("state", states, labels=labels.states),), horizon)
