"""The words every module shares: what a world looks like (Spec) and what playing it gives (Episode).

Axes, in the order in which they always stand:

    T  time            B  batch of episodes        N  agents
    A  actions         O  observation columns      S  state columns
    K  outcomes of chance, or classes of a feature
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

NO_ACTION = -1
"""The previous action at the first step, where there is none. Its one-hot code is all zeros."""


@dataclass(frozen=True)
class Categorical:
    """A feature with finitely many classes, shown as a one-hot block of columns.

    With `blank`, class 0 is shown by no column at all: a light that is off, a word not yet spoken. A
    yes-or-no feature is thus one column. `low` and `high` are what a column shows when it is off and on.
    """

    name: str
    size: int
    blank: bool = False
    low: float = 0.0
    high: float = 1.0
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"feature {self.name!r} must have at least one class, got size={self.size}.")
        if self.labels and len(self.labels) != self.size:
            raise ValueError(
                f"feature {self.name!r} has {self.size} classes but {len(self.labels)} labels: give one each."
            )
        if not self.low < self.high:
            raise ValueError(f"feature {self.name!r} needs low < high, got {self.low} and {self.high}.")

    @property
    def width(self) -> int:
        """How many columns show the feature."""
        return self.size - self.blank

    def encode(self, index: Int[Array, "*batch"]) -> Float[Array, "*batch width"]:
        """The columns that show class `index`."""
        hot = jax.nn.one_hot(index - self.blank, self.width, dtype=jnp.float32)
        return self.low + (self.high - self.low) * hot

    def decode(self, block: Float[Array, "*batch width"]) -> Int[Array, "*batch"]:
        """The class that the columns show: the largest column, or the blank if none is nearer to on."""
        middle = 0.5 * (self.low + self.high)
        if self.blank:
            nothing = jnp.full((*block.shape[:-1], 1), middle, block.dtype)
            block = jnp.concatenate([nothing, block], axis=-1)
        return jnp.argmax(block, axis=-1).astype(jnp.int32)

    def label(self, index: int) -> str:
        """The class in words."""
        return self.labels[index] if self.labels else str(index)


@dataclass(frozen=True)
class Continuous:
    """A feature of `width` real numbers."""

    name: str
    width: int = 1

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ValueError(f"feature {self.name!r} must have at least one column, got width={self.width}.")


Feature = Categorical | Continuous


def binary(name: str, labels: tuple[str, str] = ("no", "yes")) -> Categorical:
    """A yes-or-no feature, shown as one column of 0 or 1."""
    return Categorical(name, size=2, blank=True, labels=labels)


def total_width(features: Sequence[Feature]) -> int:
    """How many columns the features fill together."""
    return sum(feature.width for feature in features)


def blocks(features: Sequence[Feature]) -> list[slice]:
    """Where each feature's columns stand in a vector of them all."""
    ends = np.cumsum([0, *(feature.width for feature in features)]).tolist()
    return [slice(begin, end) for begin, end in pairwise(ends)]


@dataclass(frozen=True)
class ActionComponent:
    """One part of an action: `reference` has a move (of 5) and a message (of 10)."""

    name: str
    size: int
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(
                f"action factor {self.name!r} must have at least one value, got size={self.size}."
            )
        if self.labels and len(self.labels) != self.size:
            raise ValueError(
                f"action factor {self.name!r} has {self.size} values but {len(self.labels)} labels: "
                "give one each."
            )


@dataclass(frozen=True)
class Agent:
    """What one agent can do and see. An action index runs fastest over the first factor."""

    name: str
    actions: tuple[ActionComponent, ...]
    observation: tuple[Feature, ...]

    @property
    def num_actions(self) -> int:
        """How many actions the agent has, all factors combined."""
        return int(np.prod([factor.size for factor in self.actions]))

    @property
    def observation_width(self) -> int:
        """How many columns the agent sees."""
        return total_width(self.observation)

    def action_label(self, action: int) -> str:
        """The action in words."""
        words = []
        for factor in self.actions:
            action, value = divmod(action, factor.size)
            words.append(factor.labels[value] if factor.labels else f"{factor.name} {value}")
        return ", ".join(words)


@dataclass(frozen=True)
class Spec:
    """The shape of a Dec-POMDP: enough to build learners and models for it, nothing of its dynamics.

    Agents may differ: actions are padded to `num_actions` (and masked), observations to
    `observation_width` (with zeros). `horizon` is the known time limit; time is no part of the state.
    """

    name: str
    agents: tuple[Agent, ...]
    state: tuple[Feature, ...]
    horizon: int

    def __post_init__(self) -> None:
        if not self.agents:
            raise ValueError(f"world {self.name!r} needs at least one agent.")
        if not self.state:
            raise ValueError(f"world {self.name!r} needs at least one state feature.")
        if self.horizon < 1:
            raise ValueError(f"world {self.name!r} needs a horizon of at least 1, got {self.horizon}.")

    @property
    def num_agents(self) -> int:
        """N."""
        return len(self.agents)

    @cached_property
    def num_actions(self) -> int:
        """A: the largest number of actions of any agent."""
        return max(agent.num_actions for agent in self.agents)

    @cached_property
    def observation_width(self) -> int:
        """O: the largest number of columns any agent sees."""
        return max(agent.observation_width for agent in self.agents)

    @cached_property
    def state_width(self) -> int:
        """S: the columns of the central state."""
        return total_width(self.state)

    @cached_property
    def state_has_numbers(self) -> bool:
        """Whether any feature of the state is continuous."""
        return any(isinstance(feature, Continuous) for feature in self.state)

    @cached_property
    def actions_exist(self) -> Bool[np.ndarray, "N A"]:
        """Which of the padded actions each agent has at all."""
        counts = np.array([agent.num_actions for agent in self.agents])
        return np.arange(self.num_actions) < counts[:, None]


class TimeStep(NamedTuple):
    """What a world shows at one moment. The reward and the two ends are those of the step that led here."""

    observation: Float[Array, "N O"]
    state: Float[Array, " S"]
    available: Bool[Array, "N A"]
    previous_actions: Int[Array, " N"]
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]

    @property
    def last(self) -> Bool[ArrayLike, ""]:
        """Whether the episode is over."""
        return self.terminated | self.truncated


class Episode(NamedTuple):
    """One episode, time first; a batch of them has the axes T B.

    What the world shows stands at T + 1 moments (the terminal one included), what happens between them
    at T. Steps after the end have `mask` False: nothing changes in them and they pay nothing.
    """

    observation: Float[Array, "T+1 N O"]
    state: Float[Array, "T+1 S"]
    available: Bool[Array, "T+1 N A"]
    actions: Int[Array, "T N"]
    reward: Float[Array, " T"]
    terminated: Bool[Array, " T"]
    truncated: Bool[Array, " T"]
    mask: Bool[Array, " T"]

    @property
    def length(self) -> Int[ArrayLike, "*batch"]:
        """How many steps were really taken."""
        return self.mask.sum(axis=0)

    @property
    def undiscounted_return(self) -> Float[ArrayLike, "*batch"]:
        """The sum of the rewards."""
        return (self.reward * self.mask).sum(axis=0)


@lru_cache
def action_table(spec: Spec, factored: bool) -> Float[np.ndarray, "N A heads"]:
    """Which outputs of the network add up to each action's score."""
    if not factored:
        return np.broadcast_to(
            np.eye(spec.num_actions, dtype=np.float32), (spec.num_agents,) + (spec.num_actions,) * 2
        )
    width = max(sum(factor.size for factor in agent.actions) for agent in spec.agents)
    table = np.zeros((spec.num_agents, spec.num_actions, width), np.float32)
    for index, agent in enumerate(spec.agents):
        actions, offset = np.arange(agent.num_actions), 0
        rest = actions
        for factor in agent.actions:
            rest, value = np.divmod(rest, factor.size)
            table[index, actions, offset + value] = 1.0
            offset += factor.size
    return table


@lru_cache
def is_identity(spec: Spec, factored: bool) -> bool:
    """Whether the network's outputs already are the actions' scores (padding apart)."""
    return not factored or all(len(agent.actions) == 1 for agent in spec.agents)


def previous_actions(episode: Episode) -> Int[Array, "moments *batch N"]:
    """The actions before each moment of an episode; none before the first."""
    none = jnp.full_like(episode.actions[:1], -1)
    return jnp.concatenate([none, episode.actions])


def concatenate_observations(
    spec: Spec, observation: Float[Array, "*batch N O"]
) -> Float[Array, "*batch columns"]:
    """All agents' columns in a row, without padding."""
    return jnp.concatenate(
        [observation[..., i, : a.observation_width] for i, a in enumerate(spec.agents)], -1
    )


def split_observations(spec: Spec, columns: Float[Array, "*batch columns"]) -> Float[Array, "*batch N O"]:
    """The inverse of `together`."""
    rows, at = [], 0
    for agent in spec.agents:
        own = columns[..., at : at + agent.observation_width]
        at += agent.observation_width
        padding = [(0, 0)] * (own.ndim - 1) + [(0, spec.observation_width - agent.observation_width)]
        rows.append(jnp.pad(own, padding))
    return jnp.stack(rows, axis=-2)
