"""The world in which the exploration policy is trained: the model, with the state shown and surprise paid."""

from functools import lru_cache
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from marco.environments.base import Environment, Transition
from marco.model.uncertainty import BonusName
from marco.model.views import uncertainty_of
from marco.policies.base import Memory, Policy
from marco.types import Agent, Spec, TimeStep


def explore_reward(r: Float[Array, ""], r_tilde: Float[Array, ""], lam: Float[Array, ""]) -> Float[Array, ""]:
    """Equation 1, second line: r_explore = R + lambda r-tilde."""
    return r + lam * r_tilde


class ExplorationEnvironment(Environment):
    """A learned world with the central state as every agent's observation, and the reward of Equation 1."""

    inner: Environment
    lam: Float[Array, ""]
    bonus: BonusName = eqx.field(static=True, default="variance")

    @property
    def spec(self) -> Spec:
        """As the model's, but every agent sees the state."""
        return exploration_spec(self.inner.spec)

    def initial(self, key: PRNGKeyArray) -> Any:
        """As in the model."""
        return self.inner.initial(key)

    def transition(self, key: PRNGKeyArray, world: Any, actions: Int[Array, " N"]) -> Transition:
        """As in the model; what the ensemble disagrees on is paid for."""
        after = self.inner.transition(key, world, actions)
        r_tilde = uncertainty_of(self.inner, self.bonus, world, actions, after.world)
        return after._replace(reward=explore_reward(after.reward, r_tilde, self.lam))

    def observe(self, world: Any) -> Float[Array, "N O"]:
        """The state, for everybody."""
        return _for_everybody(self.inner.central(world), self.spec.num_agents)

    def available(self, world: Any) -> Bool[Array, "N A"]:
        """As in the model."""
        return self.inner.available(world)

    def central(self, world: Any) -> Float[Array, " S"]:
        """As in the model."""
        return self.inner.central(world)


class StateAsObservation(Policy):
    """The exploration policy at work in the true world: everybody is shown the state."""

    inner: Policy

    def start(self) -> Memory:
        """The inner policy's memory."""
        return self.inner.start()

    def __call__(self, memory: Memory, timestep: TimeStep) -> tuple[Memory, Float[Array, "N A"]]:
        """Show the state instead of the observations, and ask."""
        state = _for_everybody(timestep.state, timestep.observation.shape[0])
        return self.inner(memory, timestep._replace(observation=state))


@lru_cache
def exploration_spec(spec: Spec) -> Spec:
    """The shape of a world in which every agent sees the state."""
    team = tuple(Agent(agent.name, agent.actions, spec.state) for agent in spec.agents)
    return Spec(f"{spec.name}-exploration", team, spec.state, spec.horizon)


def _for_everybody(state: Float[Array, " S"], agents: int) -> Float[Array, "N S"]:
    return jnp.broadcast_to(state, (agents, *state.shape))
