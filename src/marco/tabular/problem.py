"""A finite Dec-POMDP as tables with names (DecPOMDP), and in the form that planners use (Dynamics)."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from marco.environments.tabular import Tabular, from_tables

TOLERANCE = 1e-5
"""How far the probabilities in a problem may miss a sum of 1: files give few digits."""


@dataclass(frozen=True, eq=False)
class DecPOMDP:
    """Tables P[s, a, s'], R[s, a], O[a, s', o], d0[s], with a name for everything.

    a and o number the joint actions and observations, last agent fastest. Nothing is seen at the start.
    An action that is not `available` does what the agent's first available one does. States that are
    `given` need not be learned: their outcomes are told. Values are undiscounted; `discount` is only kept.
    """

    name: str
    agents: tuple[str, ...]
    states: tuple[str, ...]
    actions: tuple[tuple[str, ...], ...]
    observations: tuple[tuple[str, ...], ...]
    P: Float[np.ndarray, "S JA S"]
    R: Float[np.ndarray, "S JA"]
    O: Float[np.ndarray, "JA S JO"]  # noqa: E741  (the paper's letter)
    d0: Float[np.ndarray, " S"]
    available: Bool[np.ndarray, "S N A"] | None = None
    terminal: Bool[np.ndarray, " S"] | None = None
    given: Bool[np.ndarray, " S"] | None = None
    prologue: int = 0
    """Steps before the first real one: 1 where a start state is put first to show a first observation."""
    discount: float = 1.0

    def __post_init__(self) -> None:
        states, joint, seen = len(self.states), self.num_joint_actions, self.num_joint_observations
        shapes = {"P": (states, joint, states), "R": (states, joint), "O": (joint, states, seen)}
        for letter, shape in (shapes | {"d0": (states,)}).items():
            if getattr(self, letter).shape != shape:
                found = getattr(self, letter).shape
                raise ValueError(f"{self.name}: {letter} must have the shape {shape}, got {found}.")
        for letter in ("P", "O", "d0"):
            table = getattr(self, letter)
            worst = float(np.abs(table.sum(-1) - 1.0).max())
            if worst > TOLERANCE or table.min() < 0.0:
                raise ValueError(
                    f"{self.name}: a row of {letter} misses a sum of 1 by {worst:.3g} or has a negative "
                    "entry: give probabilities."
                )

    @property
    def num_states(self) -> int:
        """S."""
        return len(self.states)

    @property
    def num_actions(self) -> tuple[int, ...]:
        """How many actions each agent has."""
        return tuple(len(names) for names in self.actions)

    @property
    def num_observations(self) -> tuple[int, ...]:
        """How many observations each agent has."""
        return tuple(len(names) for names in self.observations)

    @property
    def num_joint_actions(self) -> int:
        """A."""
        return int(np.prod(self.num_actions))

    @property
    def num_joint_observations(self) -> int:
        """JO."""
        return int(np.prod(self.num_observations))

    def steps(self, horizon: int) -> int:
        """How many steps of the table a horizon takes: the prologue is no real step."""
        if horizon < 1:
            raise ValueError(f"{self.name} needs a horizon of at least 1, got {horizon}.")
        return horizon + self.prologue

    @cached_property
    def canonical(self) -> Int[np.ndarray, "S JA"]:
        """The joint action that a joint action amounts to in a state: unavailable parts are replaced."""
        if self.available is None:
            joint = np.arange(self.num_joint_actions)
            return np.broadcast_to(joint, (self.num_states, joint.size))
        return canonical_actions(self.available, self.num_actions)

    @cached_property
    def dynamics(self) -> "Dynamics":
        """The same for planners."""
        seen, following = np.nonzero(self.O.max(0).T > 0.0)
        G = np.ascontiguousarray(self.P[:, :, following] * self.O[:, following, seen])
        return Dynamics(G, self.R, self.d0, seen, following, self.num_actions, self.num_observations)

    def environment(self, horizon: int) -> Tabular:
        """The problem as a world that every learner can play."""
        return from_tables(
            self.P,
            self.R,
            self.O,
            self.d0,
            actions=self.num_actions,
            observations=self.num_observations,
            horizon=self.steps(horizon),
            available=self.available,
            terminal=self.terminal,
            name=self.name,
        )


def canonical_actions(
    available: Bool[np.ndarray, "S N A"], actions: tuple[int, ...]
) -> Int[np.ndarray, "S JA"]:
    """Every joint action with its unavailable parts replaced by the agent's first available action."""
    chosen = []
    for agent, part in enumerate(np.unravel_index(np.arange(int(np.prod(actions))), actions)):
        allowed = available[:, agent, :]
        chosen.append(np.where(allowed[:, part], part, allowed.argmax(-1)[:, None]))
    return np.ravel_multi_index(tuple(chosen), actions)


class Dynamics(NamedTuple):
    """What planners need: G[s, a, m] is the probability of the outcome m, a next state with what is seen.

    Outcomes that never occur are left out; the others are ordered by the joint observation.
    """

    G: Float[np.ndarray, "S JA M"]
    R: Float[np.ndarray, "S JA"]
    d0: Float[np.ndarray, " S"]
    seen: Int[np.ndarray, " M"]
    following: Int[np.ndarray, " M"]
    actions: tuple[int, ...]
    observations: tuple[int, ...]

    @property
    def P(self) -> Float[np.ndarray, "S JA S"]:  # noqa: N802  (the paper's letter)
        """The transitions alone."""
        return self.G @ (self.following[:, None] == np.arange(self.d0.size))


def from_outcomes(
    outcomes: Float[np.ndarray, "S JA S JO"],
    R: Float[np.ndarray, "S JA"],
    d0: Float[np.ndarray, " S"],
    actions: tuple[int, ...],
    observations: tuple[int, ...],
) -> Dynamics:
    """Dynamics from the probabilities of s' and o together, as counts of n(s, a, s', o) give them."""
    seen, following = np.nonzero(outcomes.max((0, 1)).T > 0.0)
    return Dynamics(outcomes[:, :, following, seen], R, d0, seen, following, actions, observations)
