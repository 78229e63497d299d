"""A PettingZoo environment before it is played: how it is made, and its shape in MARCO's terms."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from marco.environments.adapters.common import time_limit
from marco.environments.adapters.gymnasium_spaces import Actions, Columns, actions, columns
from marco.environments.base import ObservationFromState
from marco.environments.user_code import call, noted, warn
from marco.optional import require
from marco.types import Agent, Categorical, Feature, Spec, binary

ParallelEnv = Any
"""A `pettingzoo.ParallelEnv`. PettingZoo is no dependency, so its types cannot be named."""

AgentId = Hashable
"""PettingZoo's name of an agent: mostly a string, but anything that keys a dict."""

StateSource = Literal["auto", "state", "joint"]
"""The central state: `state()`, the joint observation, or (auto) the first of them that there is."""


@dataclass(frozen=True)
class AgentSlot:
    """The fixed row of one possible agent: its name, its observations and its actions."""

    id: AgentId
    columns: Columns
    actions: Actions

    @property
    def agent(self) -> Agent:
        return Agent(str(self.id), self.actions.actions, self.columns.features)


def build(env: ParallelEnv | Callable[..., ParallelEnv], settings: dict[str, Any]) -> ParallelEnv:
    """The environment itself, or what the function makes when it is called with the settings."""
    zoo = require("pettingzoo", "pettingzoo")
    made = env
    if callable(env) and not isinstance(env, zoo.ParallelEnv | zoo.AECEnv):
        made = call(env, settings, getattr(env, "__qualname__", str(env)))
    elif settings:
        raise ValueError(f"the settings {settings} need a function to pass them to, but {env!r} is none.")
    if isinstance(made, zoo.AECEnv):
        raise ValueError(
            f"{made} is an AECEnv, whose agents act in turn. Use its module's parallel_env, or convert it "
            "with pettingzoo.utils.conversions.aec_to_parallel."
        )
    if not isinstance(made, zoo.ParallelEnv):
        raise ValueError(
            f"{made!r} is no pettingzoo.ParallelEnv. Give an instance of one, or a function that returns "
            "one, such as mpe2.simple_spread_v3.parallel_env."
        )
    return made


def slots_of(env: ParallelEnv, name: str) -> tuple[AgentSlot, ...]:
    """A slot for every agent that may ever appear, in the environment's order."""
    possible = getattr(env, "possible_agents", None)
    if not possible:
        raise ValueError(
            f"{name} has no possible_agents, so its agents cannot be given fixed rows. "
            "Set possible_agents to the list of every agent that may ever appear."
        )
    return tuple(_slot(env, agent, f"{name}, agent {agent!r}") for agent in possible)


def state_columns(env: ParallelEnv, name: str, source: StateSource) -> Columns | None:
    """How `state()` is shown, or None if there is none and the joint observation must do."""
    with noted(f"reset(seed=0) of {name}"):
        env.reset(seed=0)
    try:
        with noted(f"state() of {name}"):
            if (first := env.state()) is None:
                raise NotImplementedError
    except Exception as error:  # wrappers around a missing state() raise whatever they like
        missing = isinstance(error, NotImplementedError)
        if source == "state" and not missing:
            raise
        why = "does not implement state()"
        if source == "state":
            raise ValueError(f"{name} {why}. Use state='joint' for the joint observation.") from error
        if not missing:
            why = f"has a state() that raised {type(error).__name__}: {error}"
        warn(
            f"{name} {why}: the joint observation stands in for the central state, and may not be Markov. "
            "Mend state(), or say state='joint' (--env.state joint) to accept it."
        )
        return None
    space = getattr(env, "state_space", None)
    if space is None:
        spaces = require("gymnasium.spaces", "pettingzoo")
        space = spaces.Box(-np.inf, np.inf, np.shape(first), np.float32)
    return columns(space, "state", f"{name}, state() (state='joint' does without it)")


def joint_features(slots: tuple[AgentSlot, ...]) -> tuple[Feature, ...]:
    """The joint observation as a central state: for each agent whether it is there, and what it sees."""
    features: list[Feature] = []
    for slot in slots:
        features.append(binary(f"{slot.id}.present"))
        features += [_or_absent(feature, str(slot.id)) for feature in slot.columns.features]
    return tuple(features)


def joint_observation(spec: Spec) -> ObservationFromState:
    """What the agents see, of a state of `joint_features`."""
    # Each agent's own columns come after the one that says whether it is there.
    ends = np.cumsum([1 + agent.observation_width for agent in spec.agents])
    own = [range(end - a.observation_width, end) for end, a in zip(ends, spec.agents, strict=True)]
    return ObservationFromState(spec, tuple(int(column) for columns in own for column in columns))


def horizon_of(env: ParallelEnv, name: str) -> int:
    """The time limit that the environment keeps in one of its attributes."""
    if (limit := time_limit(env, env.unwrapped)) is not None:
        return limit
    raise ValueError(f"{name} does not say how long an episode lasts: give horizon=, the most steps of one.")


def _slot(env: ParallelEnv, agent: AgentId, where: str) -> AgentSlot:
    seen = columns(env.observation_space(agent), "observation", where)
    return AgentSlot(agent, seen, actions(env.action_space(agent), where))


def _or_absent(feature: Feature, agent: str) -> Feature:
    """The feature of an agent that may be absent: all zeros are then a class of their own."""
    name = f"{agent}.{feature.name}"
    if not isinstance(feature, Categorical) or feature.blank:
        return replace(feature, name=name)
    labels = ("absent", *(feature.label(index) for index in range(feature.size)))
    return replace(feature, name=name, size=feature.size + 1, blank=True, labels=labels)
