"""A PettingZoo environment before it is played: how it is made, and what it looks like in MARCO's words."""

import warnings
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Literal

import numpy as np

from marco.environments.adapters.gymnasium_spaces import Actions, Columns, actions, columns
from marco.optional import require
from marco.types import Agent, Categorical, Feature, binary

ParallelEnv = Any
"""A `pettingzoo.ParallelEnv`. PettingZoo is no dependency, so its types cannot be named."""

AgentId = Hashable
"""PettingZoo's name of an agent: mostly a string, but anything that keys a dict."""

StateSource = Literal["auto", "state", "joint"]
"""The central state: `state()`, the joint observation, or (auto) the first of them that there is."""

HORIZON_NAMES = ("max_cycles", "max_steps", "max_episode_steps", "num_iters", "episode_limit", "horizon")
"""The attributes in which environments keep their time limit."""


@dataclass(frozen=True)
class Seat:
    """The fixed row of one possible agent: who sits there, and how it sees and acts."""

    id: AgentId
    columns: Columns
    actions: Actions

    @property
    def agent(self) -> Agent:
        """The agent in MARCO's words."""
        return Agent(str(self.id), self.actions.actions, self.columns.features)


def factory_at(path: str) -> Callable[..., ParallelEnv]:
    """The function that `package.module:function` names."""
    module_name, _, function_name = path.partition(":")
    if not module_name or not function_name:
        raise ValueError(
            f"{path!r} names no function: write package.module:function, as in "
            "mpe2.simple_spread_v3:parallel_env."
        )
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # The module is there; something that it imports is not.
        raise ValueError(
            f"{path!r}: there is no module {error.name!r}. Install it or correct the path."
        ) from error
    factory: Callable[..., ParallelEnv] | None = getattr(module, function_name, None)
    if not callable(factory):
        offered = [name for name, value in vars(module).items() if name[0] != "_" and callable(value)]
        raise ValueError(
            f"{path!r}: module {module_name!r} has no function {function_name!r}. It offers {offered}."
        )
    return factory


def build(env: ParallelEnv | Callable[..., ParallelEnv], settings: dict[str, Any]) -> ParallelEnv:
    """The environment itself, or what the function makes when it is called with the settings."""
    zoo = require("pettingzoo", "pettingzoo")
    made = env
    if callable(env) and not isinstance(env, zoo.ParallelEnv | zoo.AECEnv):
        made = _call(env, settings)
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


def seats_of(env: ParallelEnv, name: str) -> tuple[Seat, ...]:
    """A seat for every agent that may ever be there, in the environment's order."""
    possible = getattr(env, "possible_agents", None)
    if not possible:
        raise ValueError(
            f"{name} has no possible_agents, so its agents cannot be given fixed rows. "
            "Set possible_agents to the list of every agent that may ever appear."
        )
    return tuple(_seat(env, agent, f"{name}, agent {agent!r}") for agent in possible)


def state_columns(env: ParallelEnv, name: str, source: StateSource) -> Columns | None:
    """How `state()` is shown, or None if there is none and the joint observation must do."""
    env.reset(seed=0)
    try:
        first = env.state()
    except NotImplementedError:
        first = None
    if first is None and source == "state":
        raise ValueError(f"{name} does not implement state(). Use state='joint' for the joint observation.")
    if first is None:
        warnings.warn(
            f"{name} does not implement state(): the joint observation stands in for the central state, and "
            "may not be Markov. Implement state(), or say state='joint' to accept it.",
            UserWarning,
            stacklevel=3,
        )
        return None
    space = getattr(env, "state_space", None)
    if space is None:
        spaces = require("gymnasium.spaces", "pettingzoo")
        space = spaces.Box(-np.inf, np.inf, np.shape(first), np.float32)
    return columns(space, "state", f"{name}, state() (state='joint' does without it)")


def joint_features(seats: tuple[Seat, ...]) -> tuple[Feature, ...]:
    """The joint observation as a central state: for each agent whether it is there, and what it sees."""
    features: list[Feature] = []
    for seat in seats:
        features.append(binary(f"{seat.id}.present"))
        features += [_or_absent(feature, str(seat.id)) for feature in seat.columns.features]
    return tuple(features)


def horizon_of(env: ParallelEnv, name: str) -> int:
    """The time limit that the environment keeps in one of its attributes."""
    for holder in (env, env.unwrapped):
        for attribute in HORIZON_NAMES:
            value = getattr(holder, attribute, None)
            if isinstance(value, int | np.integer) and value > 0:
                return int(value)
    raise ValueError(f"{name} does not say how long an episode lasts: give horizon=, the most steps of one.")


def _call(factory: Callable[..., ParallelEnv], settings: dict[str, Any]) -> ParallelEnv:
    try:
        return factory(**settings)
    except TypeError as error:
        if "argument" not in str(error):
            raise
        raise ValueError(
            f"{getattr(factory, '__qualname__', factory)} cannot be called with the settings {settings}: "
            f"{error}. Leave out or add what it says."
        ) from error


def _seat(env: ParallelEnv, agent: AgentId, where: str) -> Seat:
    seen = columns(env.observation_space(agent), "observation", where)
    return Seat(agent, seen, actions(env.action_space(agent), where))


def _or_absent(feature: Feature, agent: str) -> Feature:
    """The feature of an agent that may be away: all zeros are then a class of their own."""
    name = f"{agent}.{feature.name}"
    if not isinstance(feature, Categorical) or feature.blank:
        return replace(feature, name=name)
    labels = ("absent", *(feature.label(index) for index in range(feature.size)))
    return replace(feature, name=name, size=feature.size + 1, blank=True, labels=labels)
