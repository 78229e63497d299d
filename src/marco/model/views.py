"""What a model takes for the state: the three models of the paper's Figure 2 behind one interface.

MARCO's model is *centralised*: it models the central state. There are two baselines. The state of the
*joint-observation* model (as MAMBPO's) is the current observation of all agents. The *decentralised* one is a
model per agent, of that agent's own observations and actions. Each baseline is the same model of another
*view* of the same episodes, in which observations take the place of the state. So the same code fits and
plays all three.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from marco.environments.base import ObservationFromState
from marco.model.components import Model
from marco.model.description import Description
from marco.model.environment import (
    DecentralisedEnvironment,
    DescribedEnvironment,
    LearnedEnvironment,
    ModelEnvironment,
    ResampleMember,
)
from marco.model.inputs import ComponentName
from marco.policies.base import Memory, Policy
from marco.types import Episode, Feature, Spec, TimeStep, concatenate_observations

ViewName = Literal["centralised", "joint-observation", "decentralised"]

KnownFunctions = dict[ComponentName, Any]
"""Components that are given and not learned."""


class View(ABC):
    """How a learned environment sees the true one. `true_spec` is always that of the true environment."""

    @abstractmethod
    def spec(self, true_spec: Spec) -> Spec:
        """The shape of the learned environment."""

    @abstractmethod
    def model_specs(self, true_spec: Spec) -> tuple[Spec, ...]:
        """The shape of each model: there is one, or one per agent."""

    @abstractmethod
    def episodes(self, true_spec: Spec, episodes: Episode) -> tuple[Episode, ...]:
        """The same episodes as each model observes them."""

    @abstractmethod
    def for_team(self, true_spec: Spec, episodes: Episode) -> Episode:
        """The same episodes as the learned environment would show them."""

    def start(self, true_spec: Spec) -> Memory:
        """What has to be remembered of a true episode, at its start: nothing, in most views."""
        return ()

    @abstractmethod
    def timestep(self, true_spec: Spec, memory: Memory, timestep: TimeStep) -> tuple[Memory, TimeStep]:
        """A true timestep with the view's state, which a policy trained in the learned environment needs."""

    @abstractmethod
    def known(self, model_spec: Spec, given: KnownFunctions) -> KnownFunctions:
        """The known components of a model, of those `given` by the user."""

    def environment(
        self, models: tuple[Model, ...], true_spec: Spec, resample_member: ResampleMember
    ) -> ModelEnvironment:
        """The learned environment."""
        (model,) = models
        return LearnedEnvironment(model, resample_member)


@dataclass(frozen=True)
class Centralised(View):
    """One model of the central state: MARCO's own."""

    def spec(self, true_spec: Spec) -> Spec:
        return true_spec

    def model_specs(self, true_spec: Spec) -> tuple[Spec, ...]:
        return (true_spec,)

    def episodes(self, true_spec: Spec, episodes: Episode) -> tuple[Episode, ...]:
        return (episodes,)

    def for_team(self, true_spec: Spec, episodes: Episode) -> Episode:
        return episodes

    def timestep(self, true_spec: Spec, memory: Memory, timestep: TimeStep) -> tuple[Memory, TimeStep]:
        return memory, timestep

    def known(self, model_spec: Spec, given: KnownFunctions) -> KnownFunctions:
        return given


@dataclass(frozen=True)
class JointObservation(View):
    """One model of what all agents observe now, side by side."""

    def spec(self, true_spec: Spec) -> Spec:
        return joint_observation_spec(true_spec)

    def model_specs(self, true_spec: Spec) -> tuple[Spec, ...]:
        return (self.spec(true_spec),)

    def episodes(self, true_spec: Spec, episodes: Episode) -> tuple[Episode, ...]:
        return (self.for_team(true_spec, episodes),)

    def for_team(self, true_spec: Spec, episodes: Episode) -> Episode:
        return _jointly_observed(true_spec, episodes)

    def timestep(self, true_spec: Spec, memory: Memory, timestep: TimeStep) -> tuple[Memory, TimeStep]:
        return memory, timestep._replace(state=concatenate_observations(true_spec, timestep.observation))

    def known(self, model_spec: Spec, given: KnownFunctions) -> KnownFunctions:
        return _state_is_observed("joint-observation", model_spec, given)


@dataclass(frozen=True)
class Decentralised(View):
    """A model per agent, of what that agent observes and does alone, with the team's reward."""

    def spec(self, true_spec: Spec) -> Spec:
        return joint_observation_spec(true_spec)

    def model_specs(self, true_spec: Spec) -> tuple[Spec, ...]:
        return tuple(
            Spec(
                f"{true_spec.name}, agent {agent.name} alone", (agent,), agent.observation, true_spec.horizon
            )
            for agent in true_spec.agents
        )

    def episodes(self, true_spec: Spec, episodes: Episode) -> tuple[Episode, ...]:
        return tuple(_one_agent(true_spec, episodes, index) for index in range(true_spec.num_agents))

    def for_team(self, true_spec: Spec, episodes: Episode) -> Episode:
        return _jointly_observed(true_spec, episodes)

    def timestep(self, true_spec: Spec, memory: Memory, timestep: TimeStep) -> tuple[Memory, TimeStep]:
        return memory, timestep._replace(state=concatenate_observations(true_spec, timestep.observation))

    def known(self, model_spec: Spec, given: KnownFunctions) -> KnownFunctions:
        return _state_is_observed("decentralised", model_spec, given)

    def environment(
        self, models: tuple[Model, ...], true_spec: Spec, resample_member: ResampleMember
    ) -> ModelEnvironment:
        own = tuple(LearnedEnvironment(model, resample_member) for model in models)
        return DecentralisedEnvironment(own, self.spec(true_spec))


@dataclass(frozen=True)
class Described(View):
    """A view of an environment in described columns. Agents observe raw ones, as in the true environment."""

    inner: View
    description: Description

    def spec(self, true_spec: Spec) -> Spec:
        return replace(self.inner.spec(self.description.spec(true_spec)), agents=true_spec.agents)

    def model_specs(self, true_spec: Spec) -> tuple[Spec, ...]:
        return self.inner.model_specs(self.description.spec(true_spec))

    def episodes(self, true_spec: Spec, episodes: Episode) -> tuple[Episode, ...]:
        return self.inner.episodes(self.description.spec(true_spec), self.description.episodes(episodes))

    def for_team(self, true_spec: Spec, episodes: Episode) -> Episode:
        described = self.description.episodes(episodes)
        state = self.inner.for_team(self.description.spec(true_spec), described).state
        return episodes._replace(state=state)

    def start(self, true_spec: Spec) -> Memory:
        return self.inner.start(self.description.spec(true_spec))

    def timestep(self, true_spec: Spec, memory: Memory, timestep: TimeStep) -> tuple[Memory, TimeStep]:
        described = self.description.timestep(timestep)
        memory, shown = self.inner.timestep(self.description.spec(true_spec), memory, described)
        return memory, timestep._replace(state=shown.state)

    def known(self, model_spec: Spec, given: KnownFunctions) -> KnownFunctions:
        return self.inner.known(
            model_spec,
            {name: _OfRaw(name, function, self.description) for name, function in given.items()},
        )

    def environment(
        self, models: tuple[Model, ...], true_spec: Spec, resample_member: ResampleMember
    ) -> ModelEnvironment:
        own = self.inner.environment(models, self.description.spec(true_spec), resample_member)
        return DescribedEnvironment(own, self.description, self.spec(true_spec))


@dataclass(frozen=True)
class _OfRaw:
    """A known function of the raw state, as one of the described state."""

    name: ComponentName
    function: Any
    description: Description

    def __call__(self, *arguments: Any) -> Any:
        """The function's answer for described states, described itself if it is a state or observed."""
        state = self.description.state
        match self.name, arguments:
            case "start", (key,):
                return state.encode(self.function(key))
            case "dynamics", (key, s, a):
                return state.encode(self.function(key, state.decode(s), a))
            case "observation", (key, s, previous):
                seen = self.function(key, state.decode(s), previous)
                return self.description.encode_observation(seen)
            case "available", (s,):
                return self.function(state.decode(s))
            case _, (s, a, next_s):
                return self.function(state.decode(s), a, state.decode(next_s))
        raise TypeError(f"{self.name} is given {len(arguments)} arguments.")


VIEWS: dict[ViewName, View] = {
    "centralised": Centralised(),
    "joint-observation": JointObservation(),
    "decentralised": Decentralised(),
}


def make_view(name: ViewName) -> View:
    """The view of this name, as configs give it."""
    if name not in VIEWS:
        raise ValueError(f"unknown view {name!r}: there are {', '.join(get_args(ViewName))}.")
    return VIEWS[name]


class ViewedPolicy(Policy):
    """Plays a policy that was trained on a view's state in the true environment."""

    inner: Policy
    view: View = eqx.field(static=True)
    true_spec: Spec = eqx.field(static=True)

    def start(self) -> Memory:
        """What the inner policy remembers, and what the view does."""
        return self.inner.start(), self.view.start(self.true_spec)

    def __call__(self, memory: Memory, timestep: TimeStep) -> tuple[Memory, Float[Array, "N A"]]:
        """The inner policy's choice, given the view's state."""
        own, seen = memory
        seen, viewed = self.view.timestep(self.true_spec, seen, timestep)
        own, probabilities = self.inner(own, viewed)
        return (own, seen), probabilities


def joint_observation_spec(true_spec: Spec) -> Spec:
    """The same environment, but its state is the current observation of all agents."""
    features: tuple[Feature, ...] = tuple(
        replace(feature, name=f"{agent.name}: {feature.name}")
        for agent in true_spec.agents
        for feature in agent.observation
    )
    return replace(true_spec, state=features)


def _jointly_observed(true_spec: Spec, episodes: Episode) -> Episode:
    """The same episodes; what all agents observe is the state."""
    joint = concatenate_observations(true_spec, jnp.asarray(episodes.observation))
    return episodes._replace(state=joint)


def _one_agent(true_spec: Spec, episodes: Episode, index: int) -> Episode:
    """The same episodes for one agent alone; its observation is the state."""
    agent = true_spec.agents[index]
    observed = episodes.observation[..., index : index + 1, : agent.observation_width]
    return episodes._replace(
        observation=observed,
        state=observed[..., 0, :],
        available=episodes.available[..., index : index + 1, : agent.num_actions],
        actions=episodes.actions[..., index : index + 1],
    )


def _state_is_observed(name: ViewName, model_spec: Spec, given: KnownFunctions) -> KnownFunctions:
    if given:
        raise ValueError(
            f"{', '.join(given)} cannot be given to a {name} model: known functions are of the central "
            "state, which it does not have. Leave them out, or take the centralised model."
        )
    return {"observation": ObservationFromState(model_spec, tuple(range(model_spec.state_width)))}
