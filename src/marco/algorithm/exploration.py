"""The learned model wrapped for exploration: agents observe the state and receive an uncertainty bonus."""

from functools import lru_cache, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray

from marco.environments.base import ByMember, Environment, Transition
from marco.model.environment import ModelEnvironment
from marco.model.novelty import Novelty
from marco.model.uncertainty import BonusName
from marco.policies.base import Memory, Policy
from marco.types import Agent, Spec, TimeStep
from marco.units import Range, Units


def explore_reward(r: Float[Array, ""], r_tilde: Float[Array, ""], lam: Float[Array, ""]) -> Float[Array, ""]:
    """Equation 1, second line: r_explore = R + lambda r-tilde."""
    return r + lam * r_tilde


class ExplorationEnvironment(Environment):
    """A learned model with the central state as every agent's observation, and the reward of Equation 1."""

    inner: ModelEnvironment
    lam: Float[Array, ""]
    bonus: BonusName = eqx.field(static=True, default="variance")
    reward_scale: Float[Array, ""] | None = None
    """What R is multiplied by, since r-tilde has no unit; None: nothing."""
    novelty: Novelty | None = None
    """How new steps are, where that is rewarded as well."""
    played: ModelEnvironment | None = None
    """One member of the model, where episodes are shared out among them: all of `inner` give the bonus."""

    @property
    def spec(self) -> Spec:
        return exploration_spec(self.inner.spec)

    def by_member(self) -> ByMember | None:
        inner = self.inner.by_member()
        return inner and inner.within(self, lambda env: env.played)

    def initial(self, key: PRNGKeyArray) -> Any:
        return self.inner.initial(key)

    def transition(self, key: PRNGKeyArray, state: Any, actions: Int[Array, " N"]) -> Transition:
        """A step of the model; disagreement of the ensemble is rewarded."""
        after = (self.played or self.inner).transition(key, state, actions)
        r_tilde = self.inner.uncertainty(self.bonus, state, actions, after.world)
        if self.novelty is not None:
            r_tilde += self.novelty(self.inner.central(state), actions)
        r = after.reward if self.reward_scale is None else self.reward_scale * after.reward
        return after._replace(reward=explore_reward(r, r_tilde, self.lam))

    def observe(self, state: Any) -> Float[Array, "N O"]:
        return _for_all_agents(self.inner.central(state), self.spec.num_agents)

    def available(self, state: Any) -> Bool[Array, "N A"]:
        return self.inner.available(state)

    def central(self, state: Any) -> Float[Array, " S"]:
        return self.inner.central(state)


@partial(jax.jit, static_argnames="bonus")
def exploration_environments(
    models: ModelEnvironment,
    lam: Float[ArrayLike, ""],
    bonus: BonusName,
    reward_scale: Float[Array, " S"] | None = None,
    novelty: Novelty | None = None,
) -> Any:
    """Every seed's model, wrapped for exploration."""

    def one(
        model: ModelEnvironment, scale: Float[Array, ""] | None, novelty: Novelty | None
    ) -> ExplorationEnvironment:
        return ExplorationEnvironment(model, jnp.float32(lam), bonus, scale, novelty)

    return jax.vmap(one)(models, reward_scale, novelty)


def exploration_units(units: Units) -> Units:
    """The units of the exploration policy: it observes the state, and its reward has none any more."""
    columns = Range(*(_for_all_agents(end, len(units.observation.low)) for end in units.state))
    return units._replace(observation=columns, reward=jnp.ones_like(units.reward))


class StateAsObservation(Policy):
    """Plays the exploration policy in the true environment: every agent is given the state."""

    inner: Policy

    def start(self) -> Memory:
        return self.inner.start()

    def __call__(self, memory: Memory, timestep: TimeStep) -> tuple[Memory, Float[Array, "N A"]]:
        """The inner policy's choice, with the state in place of the observations."""
        state = _for_all_agents(timestep.state, timestep.observation.shape[0])
        return self.inner(memory, timestep._replace(observation=state))


@lru_cache
def exploration_spec(spec: Spec) -> Spec:
    """The spec of an environment in which every agent observes the state."""
    team = tuple(Agent(agent.name, agent.actions, spec.state) for agent in spec.agents)
    return Spec(f"{spec.name}-exploration", team, spec.state, spec.horizon)


def _for_all_agents(state: Float[Array, " S"], agents: int) -> Float[Array, "N S"]:
    return jnp.broadcast_to(state, (agents, *state.shape))
