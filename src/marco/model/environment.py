"""The learned model as an environment: every learner runs in it unchanged."""

from abc import abstractmethod
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from marco.environments.base import ByMember, Environment, Transition
from marco.model.components import Model, Noise
from marco.model.description import Description
from marco.model.uncertainty import BonusName, uncertainty
from marco.sampling import draw_below
from marco.types import NO_ACTION, Spec, split_observations

ResampleMember = Literal["step", "episode"]


class ModelEnvironment(Environment):
    """An environment made of learned models, which also knows how uncertain these are."""

    @property
    @abstractmethod
    def models(self) -> tuple[Model, ...]:
        """The models that are played: one, or one per agent."""

    @abstractmethod
    def uncertainty(
        self, bonus: BonusName, state: Any, actions: Int[Array, " N"], next_state: Any
    ) -> Float[Array, ""]:
        """r-tilde of a step between two states of this environment, summed over the models."""


class LearnedState(NamedTuple):
    """The state of a learned environment: all of it was drawn from the model."""

    central: Float[Array, " S"]
    observation: Float[Array, "N O"]
    available: Bool[Array, "N A"]
    member: Float[Array, ""]


class LearnedEnvironment(ModelEnvironment):
    """Plays the ensemble: one member, drawn anew at every step or kept for the episode, predicts the step.

    Everything it knows of the true environment comes from data, but for the horizon.
    """

    model: Model
    resample_member: ResampleMember = eqx.field(static=True, default="step")

    @property
    def spec(self) -> Spec:
        return self.model.spec

    @property
    def models(self) -> tuple[Model, ...]:
        return (self.model,)

    def by_member(self) -> ByMember | None:
        count = self.model.num_members
        if count in (None, 1):
            return None
        alone, differs = self.model.by_member(count)
        whole, marks = (LearnedEnvironment(model, self.resample_member) for model in (alone, differs))
        return ByMember(count, *eqx.partition(whole, marks), self.resample_member == "step")

    def initial(self, key: PRNGKeyArray) -> LearnedState:
        key_start, key_noise = jax.random.split(key)
        member, (seen,) = self.model.noise(key_noise, "observation")
        nobody = jnp.full(self.spec.num_agents, NO_ACTION, jnp.int32)
        start = self.model.draw_start(key_start)
        return self._state(seen, member, start, nobody)

    def transition(self, key: PRNGKeyArray, state: LearnedState, actions: Int[Array, " N"]) -> Transition:
        member, (moved, ended, seen) = self.model.noise(key, "dynamics", "termination", "observation")
        member = member if self.resample_member == "step" else state.member
        next_s = self.model.draw_next_state(moved, member, state.central, actions)
        reward = self.model.expected_reward(member, state.central, actions, next_s)
        over = self.model.draw_termination(ended, member, state.central, actions, next_s)
        return Transition(self._state(seen, member, next_s, actions), reward, over)

    def observe(self, state: LearnedState) -> Float[Array, "N O"]:
        return state.observation

    def available(self, state: LearnedState) -> Bool[Array, "N A"]:
        return state.available

    def central(self, state: LearnedState) -> Float[Array, " S"]:
        return state.central

    def uncertainty(
        self, bonus: BonusName, state: LearnedState, actions: Int[Array, " N"], next_state: LearnedState
    ) -> Float[Array, ""]:
        return uncertainty(
            self.model, bonus, state.central, actions, next_state.central, next_state.observation
        )

    def _state(
        self,
        noise: Noise,
        member: Float[Array, ""],
        central: Float[Array, " S"],
        previous: Int[Array, " N"],
    ) -> LearnedState:
        observation = self.model.draw_observation(noise, member, central, previous)
        return LearnedState(central, observation, self.model.available_actions(central), member)


class DecentralisedState(NamedTuple):
    """The state of each agent's own environment."""

    agents: tuple[LearnedState, ...]


class DecentralisedEnvironment(ModelEnvironment):
    """The agents' own models side by side: each environment starts and moves by itself.

    The team's reward is the mean of the predicted rewards. Whether the episode ends is predicted by one
    agent's model, drawn anew at every step: the models cannot agree, since none knows what the others do.
    """

    environments: tuple[LearnedEnvironment, ...]
    team: Spec = eqx.field(static=True)

    @property
    def spec(self) -> Spec:
        """The shape of the team's environment; its state is the joint observation."""
        return self.team

    @property
    def models(self) -> tuple[Model, ...]:
        return tuple(environment.model for environment in self.environments)

    def initial(self, key: PRNGKeyArray) -> DecentralisedState:
        keys = jax.random.split(key, len(self.environments))
        return DecentralisedState(
            tuple(own.initial(key) for own, key in zip(self.environments, keys, strict=True))
        )

    def transition(
        self, key: PRNGKeyArray, state: DecentralisedState, actions: Int[Array, " N"]
    ) -> Transition:
        key_end, *keys = jax.random.split(key, len(self.environments) + 1)
        steps = [
            own.transition(key, before, actions[index : index + 1])
            for index, (own, key, before) in enumerate(
                zip(self.environments, keys, state.agents, strict=True)
            )
        ]
        who = draw_below(key_end, jnp.int32(len(self.environments)))
        return Transition(
            DecentralisedState(tuple(step.world for step in steps)),
            jnp.mean(jnp.stack([step.reward for step in steps])),
            jnp.stack([step.terminated for step in steps])[who],
        )

    def observe(self, state: DecentralisedState) -> Float[Array, "N O"]:
        return split_observations(self.spec, self.central(state))

    def available(self, state: DecentralisedState) -> Bool[Array, "N A"]:
        masks = [own.available[0] for own in state.agents]
        return jnp.stack([jnp.pad(mask, (0, self.spec.num_actions - mask.size)) for mask in masks])

    def central(self, state: DecentralisedState) -> Float[Array, " S"]:
        return jnp.concatenate([own.central for own in state.agents])

    def uncertainty(
        self,
        bonus: BonusName,
        state: DecentralisedState,
        actions: Int[Array, " N"],
        next_state: DecentralisedState,
    ) -> Float[Array, ""]:
        total = jnp.float32(0.0)
        rows = zip(self.environments, state.agents, next_state.agents, strict=True)
        for index, (own, before, after) in enumerate(rows):
            total += own.uncertainty(bonus, before, actions[index : index + 1], after)
        return total


class DescribedEnvironment(ModelEnvironment):
    """A learned environment whose agents see raw columns, as in the true one; its state is described."""

    inner: ModelEnvironment
    description: Description = eqx.field(static=True)
    team: Spec = eqx.field(static=True)

    @property
    def spec(self) -> Spec:
        """The shape of the true environment, but for the described state."""
        return self.team

    @property
    def models(self) -> tuple[Model, ...]:
        return self.inner.models

    def by_member(self) -> ByMember | None:
        inner = self.inner.by_member()
        return inner and inner.within(self, lambda env: env.inner)

    def initial(self, key: PRNGKeyArray) -> Any:
        return self.inner.initial(key)

    def transition(self, key: PRNGKeyArray, state: Any, actions: Int[Array, " N"]) -> Transition:
        return self.inner.transition(key, state, actions)

    def observe(self, state: Any) -> Float[Array, "N O"]:
        return self.description.decode_observation(self.inner.observe(state))

    def available(self, state: Any) -> Bool[Array, "N A"]:
        return self.inner.available(state)

    def central(self, state: Any) -> Float[Array, " S"]:
        return self.inner.central(state)

    def uncertainty(
        self, bonus: BonusName, state: Any, actions: Int[Array, " N"], next_state: Any
    ) -> Float[Array, ""]:
        return self.inner.uncertainty(bonus, state, actions, next_state)
