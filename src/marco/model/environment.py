"""The learned model as a world: every learner runs in it unchanged."""

from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from marco.environments.base import Environment, Transition
from marco.model.components import Model, draw_member
from marco.types import NO_ACTION, Spec

ResampleMember = Literal["step", "episode"]


class LearnedWorld(NamedTuple):
    """A moment in the model: all of it was drawn from what was learned."""

    state: Float[Array, " S"]
    observation: Float[Array, "N O"]
    available: Bool[Array, "N A"]
    member: Float[Array, ""]


class LearnedEnvironment(Environment):
    """Plays the ensemble: one member, drawn anew per step or kept for the episode, says what happens.

    Nothing in it comes from the true world but through data; the horizon is known.
    """

    model: Model
    resample_member: ResampleMember = eqx.field(static=True, default="step")

    @property
    def spec(self) -> Spec:
        """The shape of the world that the model was learned from."""
        return self.model.spec

    def initial(self, key: PRNGKeyArray) -> LearnedWorld:
        """A start that was seen, as the model shows it."""
        key_start, key_member, key_show = jax.random.split(key, 3)
        nobody = jnp.full(self.spec.num_agents, NO_ACTION, jnp.int32)
        return self._moment(key_show, draw_member(key_member), self.model.draw_start(key_start), nobody)

    def transition(self, key: PRNGKeyArray, world: LearnedWorld, actions: Int[Array, " N"]) -> Transition:
        """One step of the model."""
        key_member, key_state, key_end, key_show = jax.random.split(key, 4)
        member = draw_member(key_member) if self.resample_member == "step" else world.member
        following = self.model.draw_following(key_state, member, world.state, actions)
        reward = self.model.expected_reward(member, world.state, actions, following)
        over = self.model.draw_termination(key_end, member, world.state, actions, following)
        return Transition(self._moment(key_show, member, following, actions), reward, over)

    def observe(self, world: LearnedWorld) -> Float[Array, "N O"]:
        """What was drawn for each agent to see."""
        return world.observation

    def available(self, world: LearnedWorld) -> Bool[Array, "N A"]:
        """What the model holds to be available."""
        return world.available

    def central(self, world: LearnedWorld) -> Float[Array, " S"]:
        """The imagined central state."""
        return world.state

    def _moment(
        self,
        key: PRNGKeyArray,
        member: Float[Array, ""],
        state: Float[Array, " S"],
        previous: Int[Array, " N"],
    ) -> LearnedWorld:
        observation = self.model.draw_observation(key, member, state, previous)
        return LearnedWorld(state, observation, self.model.available_actions(state), member)
