"""A finite Dec-POMDP as tables with names (DecPOMDP), and in the form that the solver uses (Dynamics)."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from marco.environments.tabular import Labels, Tabular, from_tables

TOLERANCE = 1e-5
"""How far the sum of probabilities may be from 1: files give few digits."""
ENTRIES = 100_000_000
"""The most numbers in a table: they take 8 bytes each, and planners copy them."""


def gigabytes(entries: int) -> str:
    """The memory that so many numbers take."""
    return f"{8 * entries / 1e9:,.1f} GB"


@dataclass(frozen=True, eq=False)
class DecPOMDP:
    """Tables P[s, a, s'], R[s, a], O[a, s', o], d0[s], with names for agents, states, actions, observations.

    a and o are indices of joint actions and joint observations, last agent fastest. There is no observation
    before the first action. An action that is not `available` has the effect of the agent's first available
    action. The outcomes of states that are `given` need not be learned. Values are undiscounted: `discount`
    is kept for the file format only.
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
    """Steps before the first real one: 1 where an added start state gives the first observation."""
    discount: float = 1.0

    def __post_init__(self) -> None:
        states, joint, seen = len(self.states), self.num_joint_actions, self.num_joint_observations
        shapes = {"P": (states, joint, states), "R": (states, joint), "O": (joint, states, seen)}
        for letter, shape in (shapes | {"d0": (states,)}).items():
            if getattr(self, letter).shape != shape:
                found = getattr(self, letter).shape
                raise ValueError(f"{self.name}: {letter} must have the shape {shape}, got {found}.")
        if not np.isfinite(self.R).all():
            raise ValueError(f"{self.name}: R has an entry that is not finite: give rewards as numbers.")
        if not 0.0 <= self.discount <= 1.0:
            raise ValueError(f"{self.name}: discount must be from 0 to 1, got {self.discount}.")
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
        return len(self.states)

    @property
    def num_actions(self) -> tuple[int, ...]:
        """The number of actions of each agent."""
        return tuple(len(names) for names in self.actions)

    @property
    def num_observations(self) -> tuple[int, ...]:
        """The number of observations of each agent."""
        return tuple(len(names) for names in self.observations)

    @property
    def num_joint_actions(self) -> int:
        return int(np.prod(self.num_actions))

    @property
    def num_joint_observations(self) -> int:
        return int(np.prod(self.num_observations))

    def steps(self, horizon: int) -> int:
        """The steps of the table that a horizon takes: the prologue is not counted as a real step."""
        if horizon < 1:
            raise ValueError(f"{self.name} needs a horizon of at least 1, got {horizon}.")
        return horizon + self.prologue

    @cached_property
    def canonical(self) -> Int[np.ndarray, "S JA"]:
        """The joint action with the same effect in a state and only available actions."""
        if self.available is None:
            joint = np.arange(self.num_joint_actions)
            return np.broadcast_to(joint, (self.num_states, joint.size))
        return canonical_actions(self.available, self.num_actions)

    @cached_property
    def dynamics(self) -> "Dynamics":
        """The problem as the solver takes it."""
        observation, after = np.nonzero(self.O.max(0).T > 0.0)
        entries = self.R.size * observation.size
        if entries > ENTRIES:
            raise ValueError(
                f"{self.name} has {entries:,} outcomes (s, a, s', o), which take {gigabytes(entries)}; the "
                f"limit is {gigabytes(ENTRIES)}: solve a smaller problem."
            )
        G = np.ascontiguousarray(self.P[:, :, after] * self.O[:, after, observation])
        return Dynamics(G, self.R, self.d0, observation, after, self.num_actions, self.num_observations)

    def environment(self, horizon: int) -> Tabular:
        """The problem as an environment that every learner can be trained in."""
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
            labels=Labels(self.agents, self.states, self.actions, self.observations),
        )


def canonical_actions(
    available: Bool[np.ndarray, "S N A"], actions: tuple[int, ...]
) -> Int[np.ndarray, "S JA"]:
    """Every joint action with unavailable actions replaced by the agent's first available one."""
    chosen = []
    for agent, part in enumerate(np.unravel_index(np.arange(int(np.prod(actions))), actions)):
        allowed = available[:, agent, :]
        chosen.append(np.where(allowed[:, part], part, allowed.argmax(-1)[:, None]))
    return np.ravel_multi_index(tuple(chosen), actions)


class Dynamics(NamedTuple):
    """A Dec-POMDP as the solver takes it.

    G[s, a, m] is the probability of outcome m: a pair of a next state and a joint observation. Outcomes that
    never occur are left out; the others are sorted by joint observation.
    """

    G: Float[np.ndarray, "S JA M"]
    R: Float[np.ndarray, "S JA"]
    d0: Float[np.ndarray, " S"]
    joint_observation: Int[np.ndarray, " M"]
    """The joint observation of each outcome."""
    next_state: Int[np.ndarray, " M"]
    """The next state of each outcome."""
    num_actions: tuple[int, ...]
    """The number of actions of each agent."""
    num_observations: tuple[int, ...]
    """The number of observations of each agent."""

    @property
    def P(self) -> Float[np.ndarray, "S JA S"]:  # noqa: N802  (the paper's letter)
        """The transition probabilities, without observations."""
        return self.G @ (self.next_state[:, None] == np.arange(self.d0.size))

    @property
    def agent_observations(self) -> Int[np.ndarray, "M N"]:
        """Each agent's observation in each outcome."""
        return np.stack(np.unravel_index(self.joint_observation, self.num_observations), -1)
