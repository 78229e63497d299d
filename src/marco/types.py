"""The types every module shares: the shape of an environment (Spec) and what playing it gives (Episode).

Axes, in the order in which they always stand:

    T  time            B  batch of episodes        N  agents
    A  actions         O  observation columns      S  state columns
    K  random outcomes, or classes of a feature
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from marco.checks import check_fits, is_of

NO_ACTION = -1
"""The previous action at the first step, where there is none. Its one-hot code is all zeros."""

ActionIndex = TypeVar("ActionIndex", int, np.ndarray, Array)
"""One action or an array of them, each as one number."""


@dataclass(frozen=True)
class Categorical:
    """A feature with finitely many classes, encoded as a one-hot block of columns.

    With `blank`, class 0 is the block with no column on: a light that is off, a word not yet spoken. A
    yes-or-no feature is thus one column. `low` and `high` are the values of a column that is off and on.
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
        return self.size - self.blank

    def encode(self, index: Int[Array, "*batch"]) -> Float[Array, "*batch width"]:
        """The columns of class `index`."""
        hot = jax.nn.one_hot(index - self.blank, self.width, dtype=jnp.float32)
        return self.low + (self.high - self.low) * hot

    def decode(self, block: Float[Array, "*batch width"]) -> Int[Array, "*batch"]:
        """The class of a block: its largest column, or the blank if no column is nearer to on than to off."""
        middle = 0.5 * (self.low + self.high)
        if self.blank:
            nothing = jnp.full((*block.shape[:-1], 1), middle, block.dtype)
            block = jnp.concatenate([nothing, block], axis=-1)
        return jnp.argmax(block, axis=-1).astype(jnp.int32)

    def label(self, index: int) -> str:
        """The name of a class."""
        return self.labels[index] if self.labels else str(index)


@dataclass(frozen=True)
class Continuous:
    """A feature of `width` real numbers.

    Of a `vector` the length means something by itself, as of a way to another place, or of a velocity. Of a
    place it does not: where the origin is, nobody knows.
    """

    name: str
    width: int = 1
    vector: bool = False

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ValueError(f"feature {self.name!r} must have at least one column, got width={self.width}.")


Feature = Categorical | Continuous


def binary(name: str, labels: tuple[str, str] = ("no", "yes")) -> Categorical:
    """A yes-or-no feature: one column of 0 or 1."""
    return Categorical(name, size=2, blank=True, labels=labels)


def total_width(features: Sequence[Feature]) -> int:
    """The number of columns of all the features together."""
    return sum(feature.width for feature in features)


def blocks(features: Sequence[Feature]) -> list[slice]:
    """The slice of each feature in the vector of all columns."""
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
                f"action component {self.name!r} must have at least one value, got size={self.size}."
            )
        if self.labels and len(self.labels) != self.size:
            raise ValueError(
                f"action component {self.name!r} has {self.size} values but {len(self.labels)} labels: "
                "give one each."
            )


@dataclass(frozen=True)
class Agent:
    """The actions and observations of one agent.

    An action is one number. Where it has several components, the first component runs fastest.
    """

    name: str
    actions: tuple[ActionComponent, ...]
    observation: tuple[Feature, ...]

    @property
    def num_actions(self) -> int:
        """How many actions the agent has, all components combined."""
        return int(np.prod([component.size for component in self.actions]))

    @property
    def observation_width(self) -> int:
        return total_width(self.observation)

    def components_of(self, action: ActionIndex) -> tuple[ActionIndex, ...]:
        """The value of each component of an action, or of an array of actions."""
        values: list[ActionIndex] = []
        for component in self.actions[:-1]:
            values.append(action % component.size)
            action = action // component.size
        values.append(action)
        return tuple(values)

    def action_of(self, values: Sequence[ActionIndex]) -> ActionIndex:
        """The action with these components: the inverse of `components_of`."""
        action = values[-1]
        for component, value in zip(self.actions[-2::-1], values[-2::-1], strict=True):
            action = value + component.size * action
        return action

    def action_label(self, action: int) -> str:
        """The action in words."""
        return ", ".join(
            component.labels[value] if component.labels else f"{component.name} {value}"
            for component, value in zip(self.actions, self.components_of(action), strict=True)
        )


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
    frames: int = 1
    """Of how many timesteps the state consists: more than one where a model remembers (`model/frames.py`)."""

    def __post_init__(self) -> None:
        if not self.agents:
            raise ValueError(f"environment {self.name!r} needs at least one agent.")
        if not self.state:
            raise ValueError(f"environment {self.name!r} needs at least one state feature.")
        if not is_of(self.horizon, int):
            raise ValueError(
                f"environment {self.name!r} needs a whole number as horizon, got {self.horizon!r}."
            )
        if self.horizon < 1:
            raise ValueError(f"environment {self.name!r} needs a horizon of at least 1, got {self.horizon}.")
        step = self.num_agents * (self.observation_width + self.num_actions) + self.state_width
        what = f"an episode of environment {self.name!r} with horizon={self.horizon}"
        check_fits(what, (self.horizon + 1) * step, "make its horizon, or the environment, smaller")

    @property
    def num_agents(self) -> int:
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
    """What an environment returns at one timestep. The reward and the two ends are those of the last step."""

    observation: Float[Array, "N O"]
    state: Float[Array, " S"]
    available: Bool[Array, "N A"]
    previous_actions: Int[Array, " N"]
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]

    @property
    def last(self) -> Bool[ArrayLike, "*batch"]:
        return self.terminated | self.truncated


class Episode(NamedTuple):
    """One episode, time first; a batch of them has the axes T B.

    Observations, state and available actions have T + 1 timesteps (the terminal one included), actions and
    rewards T. Steps after the end have `mask` False: nothing changes in them and their reward is 0.
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
        return self.mask.sum(axis=0)

    @property
    def undiscounted_return(self) -> Float[ArrayLike, "*batch"]:
        return (self.reward * self.mask).sum(axis=0)


@lru_cache
def action_table(spec: Spec, factored: bool) -> Float[np.ndarray, "N A heads"]:
    """Which outputs of the network add up to each action's score."""
    if not factored:
        return np.broadcast_to(
            np.eye(spec.num_actions, dtype=np.float32), (spec.num_agents,) + (spec.num_actions,) * 2
        )
    width = max(sum(component.size for component in agent.actions) for agent in spec.agents)
    table = np.zeros((spec.num_agents, spec.num_actions, width), np.float32)
    for index, agent in enumerate(spec.agents):
        actions, offset = np.arange(agent.num_actions), 0
        for component, value in zip(agent.actions, agent.components_of(actions), strict=True):
            table[index, actions, offset + value] = 1.0
            offset += component.size
    return table


@lru_cache
def is_identity(spec: Spec, factored: bool) -> bool:
    """Whether the network's outputs already are the actions' scores (padding apart)."""
    return not factored or all(len(agent.actions) == 1 for agent in spec.agents)


def previous_actions(episode: Episode) -> Int[Array, "timesteps *batch N"]:
    """The actions before each timestep of an episode; none before the first."""
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
    """The inverse of `concatenate_observations`."""
    rows, at = [], 0
    for agent in spec.agents:
        own = columns[..., at : at + agent.observation_width]
        at += agent.observation_width
        padding = [(0, 0)] * (own.ndim - 1) + [(0, spec.observation_width - agent.observation_width)]
        rows.append(jnp.pad(own, padding))
    return jnp.stack(rows, axis=-2)
